/* kinds.c - the kinds of device, their names, and which of them this build computes on. */
#include "device/probe.h"

#include <stdio.h>
#include <strings.h>

static const bnet_kind kinds[BNET_DEV_COUNT] = {
#define KIND(id, name, alias, label, remedy, detection, checked)                                   \
    [BNET_DEV_##id] = {name, alias, label, remedy, detection, checked},
#include "device/kinds.inc"
#undef KIND
};

const bnet_kind *bnet_kind_info(bnet_device_kind k)
{
    assert((int)k >= 0 && k < BNET_DEV_COUNT);
    return &kinds[k];
}

const char *bnet_device_name(bnet_device_kind k)
{
    return bnet_kind_info(k)->name;
}

const char *bnet_device_label(bnet_device_kind k)
{
    return bnet_kind_info(k)->label;
}

bool bnet_device_supported(bnet_device_kind k)
{
    return bnet_kind_info(k)->remedy != NULL;
}

static bool same(const char *name, const char *text, size_t n)
{
    return strlen(name) == n && strncasecmp(name, text, n) == 0;
}

bool bnet_kind_find(const char *text, size_t n, bnet_device_kind *out)
{
    for (int k = 0; k < BNET_DEV_COUNT; k++)
        if (same(kinds[k].name, text, n) || same(kinds[k].alias, text, n)) {
            *out = (bnet_device_kind)k;
            return true;
        }
    return false;
}

const char *bnet_kind_values(char out[BNET_KIND_VALUES])
{
    size_t n = (size_t)snprintf(out, BNET_KIND_VALUES, "auto, cpu, gpu");
    for (int k = 0; k < BNET_DEV_COUNT; k++) {
        const bnet_kind *i = &kinds[k];
        bool twice = strcmp(i->name, i->alias) != 0;
        if (k != BNET_DEV_CPU && n < BNET_KIND_VALUES)
            n += (size_t)snprintf(out + n, BNET_KIND_VALUES - n, ", %s%s%s%s", i->name,
                                  twice ? " (" : "", twice ? i->alias : "", twice ? ")" : "");
    }
    assert(n < BNET_KIND_VALUES);
    return out;
}

void bnet_compiled(bool compiled[BNET_DEV_COUNT])
{
    memset(compiled, 0, BNET_DEV_COUNT * sizeof *compiled);
    compiled[BNET_DEV_CPU] = compiled[BNET_DEV_HOST] = true;
#ifdef BITNET_HAVE_NULL
    compiled[BNET_DEV_NULL] = true;
#endif
#ifdef BITNET_HAVE_CUDA
    compiled[BNET_DEV_CUDA] = true;
#endif
#ifdef BITNET_HAVE_HIP
    compiled[BNET_DEV_HIP] = true;
#endif
#ifdef BITNET_HAVE_ONEAPI
    compiled[BNET_DEV_ONEAPI] = true;
#endif
#ifdef BITNET_HAVE_METAL
    compiled[BNET_DEV_METAL] = true;
#endif
#ifdef BITNET_HAVE_OPENCL
    compiled[BNET_DEV_OPENCL] = true;
#endif
#ifdef BITNET_HAVE_VULKAN
    compiled[BNET_DEV_VULKAN] = true;
#endif
#ifdef BITNET_HAVE_NPU
    compiled[BNET_DEV_NPU] = true;
#endif
}

void bnet_device_matrix(const bool compiled[BNET_DEV_COUNT], bnet_str *out)
{
    bnet_str_puts(out, "| device | `--device` | detected by | computes | checked by |\n"
                       "|---|---|---|---|---|\n");
    for (int i = 0; i < BNET_DEV_COUNT; i++) {
        const bnet_kind *k = &kinds[i];
        bnet_str_addf(out, "| %s | `%s`", k->label, k->name);
        if (strcmp(k->name, k->alias) != 0)
            bnet_str_addf(out, ", `%s`", k->alias);
        bnet_str_addf(out, " | %s | %s | %s |\n", k->detection,
                      compiled[i] ? "yes"
                      : k->remedy ? "in builds with its toolkit"
                                  : "not supported by this version",
                      k->checked);
    }
}
