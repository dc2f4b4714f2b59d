/* open.c - from a chosen device to its backend. The list is backends.inc; a kind without a row
 * there was not compiled in. */
#include "ops/backend.h"

static const struct {
    const char *device;
    bitnet_status (*open)(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);
} backends[] = {
#define BACKEND(name) {#name, bnet_##name##_open},
#include "ops/backends.inc"
#undef BACKEND
};

bitnet_status bnet_backend_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    const char *device = bnet_device_name(w->device);
    for (size_t i = 0; i < BNET_COUNT(backends); i++)
        if (strcmp(backends[i].device, device) == 0)
            return backends[i].open(w, out, err);
    return bnet_fail(err, BITNET_NOT_COMPILED,
                     "NotCompiled: feature %s: this build has no %s backend", device,
                     bnet_device_label(w->device));
}
