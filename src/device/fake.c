/* fake.c - BITNET_GPU_FAKE: pretends devices for tests of detection. One parser for all; what it
 * names is listed as present and as fake, and never computes. */
#include "device/probe.h"

#include <strings.h>

static bitnet_status unknown(const char *item, size_t n, bitnet_error *err)
{
    char quoted[64];
    return bnet_fail(
        err, BITNET_ARGUMENT,
        "BITNET_GPU_FAKE: \"%s\" is not known; use a comma list of cuda (or gpu), rocm "
        "(or hip), oneapi, metal, opencl (or ocl), vulkan, npu, or none alone",
        bnet_quote(item, n, quoted, sizeof quoted));
}

static bool is(const char *name, const char *item, size_t n)
{
    return strlen(name) == n && strncasecmp(name, item, n) == 0;
}

bitnet_status bnet_fake_parse(const char *text, bool faked[BNET_DEV_COUNT], bitnet_error *err)
{
    bool found[BNET_DEV_COUNT] = {false}, none = false, any = false;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ","), skip = n + (p[n] == ',');
        const char *item = p + strspn(p, " \t");
        item = BNET_MIN(item, p + n);
        n -= (size_t)(item - p);
        p += skip;
        while (n && (item[n - 1] == ' ' || item[n - 1] == '\t'))
            n--;
        bnet_device_kind k = BNET_DEV_CUDA;
        if (n == 0)
            continue;
        if (is("none", item, n)) {
            none = true;
            continue;
        }
        if (!is("gpu", item, n) && (!bnet_kind_find(item, n, &k) || k >= BNET_DEV_CPU))
            return unknown(item, n, err);
        found[k] = any = true;
    }
    if (none && any)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "BITNET_GPU_FAKE=%.200s: none stands alone, not beside a device", text);
    memcpy(faked, found, sizeof found);
    return BITNET_OK;
}
