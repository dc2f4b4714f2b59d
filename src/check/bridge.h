/* bridge.h - a loaded plugin, shared by what loads it and what compares with it. */
#ifndef BNET_BRIDGE_H
#define BNET_BRIDGE_H

#include "bitnet_check.h"

struct bitnet_bridge {
    void *library;
    char *path;
    bool started;
    bitnet_bridge_init_fn *init;
    bitnet_bridge_cleanup_fn *cleanup;
    bitnet_bridge_available_fn *available;
    bitnet_bridge_matmul_fn *matmul_i2s;
    bitnet_bridge_quantize_fn *quantize;
    bitnet_bridge_error_fn *last_error;
    bitnet_fn_ternary *linear_i2s; /* NULL: it cannot serve */
};

/* What the plugin says about its last failure, in buf. */
const char *bnet_bridge_words(const bitnet_bridge *b, char *buf, size_t cap);

#endif
