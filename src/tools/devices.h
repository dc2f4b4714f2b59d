/* devices.h - the opened devices of bitnet_tools.h and their rendering. */
#ifndef BNET_ENGINE_DEVICES_H
#define BNET_ENGINE_DEVICES_H

#include "bitnet_tools.h"
#include "device/device.h"

enum { BNET_DEVICES_VIEWS = BITNET_DEVICES_PREFLIGHT + 1 };

struct bitnet_devices {
    bnet_devices found;
    bitnet_error verdict; /* of preflight: status OK, or why not */
    bnet_str text[BNET_DEVICES_VIEWS], json[BNET_DEVICES_VIEWS];
};

/* Can this build compute on some device of the kind? */
bool bnet_devices_usable(const bnet_devices *d, int kind);
/* Appends one JSON object and a newline. False: no memory. */
bool bnet_devices_render_json(const bitnet_devices *d, bitnet_devices_view view, bnet_str *out);

#endif
