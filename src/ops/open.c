/* open.c - from a chosen device to its backend. The list is backends.inc; a kind without a row
 * there was not compiled in. */
#include "ops/open.h"

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

const bnet_kernel_name *bnet_kernel_name_find(const char *id)
{
    static const bnet_kernel_name *(*const lists[])(size_t *) = {
#define BACKEND(name) bnet_##name##_kernel_names,
#include "ops/backends.inc"
#undef BACKEND
    };
    for (size_t b = 0; b < BNET_COUNT(lists); b++) {
        size_t n;
        const bnet_kernel_name *names = lists[b](&n);
        for (size_t i = 0; i < n; i++)
            if (strcmp(names[i].id, id) == 0)
                return &names[i];
    }
    return NULL;
}

const char *bnet_backend_at(int i)
{
    static const char *const names[] = {
#define BACKEND(name) #name,
#include "ops/backends.inc"
#undef BACKEND
    };
    return i >= 0 && (size_t)i < BNET_COUNT(names) ? names[i] : NULL;
}
