/* bridge.c - another implementation as a plugin: loading it, judging it by times, and putting it
 * into service as the provider "ffi". Nothing of it is needed to build or to run; docs/BRIDGE.md
 * says what a plugin exports. */
#include "check/bridge.h"

#include <dlfcn.h>
#include <unistd.h>

#include "engine/engine.h"

#define UNAVAILABLE "ffi bridge unavailable"

/* ---- loading ---- */

const char *bnet_bridge_words(const bitnet_bridge *b, char *buf, size_t cap)
{
    const char *s = b->last_error();
    if (!s || !*s)
        s = "it gave no reason";
    return bnet_quote(s, strlen(s), buf, cap);
}

static bitnet_status resolve(bitnet_bridge *b, bitnet_error *err)
{
    const struct {
        const char *name;
        void *to; /* a function pointer */
    } wanted[] = {
        {"bitnet_bridge_init", &b->init},           {"bitnet_bridge_cleanup", &b->cleanup},
        {"bitnet_bridge_available", &b->available}, {"bitnet_bridge_matmul_i2s", &b->matmul_i2s},
        {"bitnet_bridge_quantize", &b->quantize},   {"bitnet_bridge_last_error", &b->last_error},
    };
    for (size_t i = 0; i < BNET_COUNT(wanted); i++) {
        void *p = dlsym(b->library, wanted[i].name);
        if (!p)
            return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s: the bridge has no function %s",
                             b->path, wanted[i].name);
        memcpy(wanted[i].to, &p, sizeof p);
    }
    void *serves = dlsym(b->library, "bitnet_bridge_linear_i2s");
    memcpy(&b->linear_i2s, &serves, sizeof serves);
    return BITNET_OK;
}

static bitnet_status start(bitnet_bridge *b, bitnet_error *err)
{
    char words[240];
    int rc = b->init(BITNET_BRIDGE_ABI);
    if (rc != 0)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s: bitnet_bridge_init returned %d: %s",
                         b->path, rc, bnet_bridge_words(b, words, sizeof words));
    b->started = true;
    if (!b->available())
        return bnet_fail(err, BITNET_NOT_AVAILABLE, UNAVAILABLE);
    return BITNET_OK;
}

/* A name without a slash would be searched for among the system's libraries. */
static bitnet_status load(bitnet_bridge *b, const char *path, bitnet_error *err)
{
    bnet_str s = {0};
    bnet_str_addf(&s, "%s%s", strchr(path, '/') ? "" : "./", path);
    b->path = s.data;
    if (s.failed)
        return bnet_no_memory(err, "bridge");
    b->library = dlopen(b->path, RTLD_NOW | RTLD_LOCAL);
    if (b->library)
        return BITNET_OK;
    const char *why = dlerror();
    return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s: the bridge cannot be loaded: %s", path,
                     why ? why : "no reason given");
}

bitnet_status bitnet_bridge_open(const char *path, bitnet_bridge **out, bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "bridge: out must not be NULL");
    if (!path || !*path || access(path, F_OK) != 0)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, UNAVAILABLE);
    bitnet_bridge *b = bnet_calloc(1, sizeof *b);
    if (!b)
        return bnet_no_memory(err, "bridge");
    bitnet_status st = load(b, path, err);
    if (st == BITNET_OK)
        st = resolve(b, err);
    if (st == BITNET_OK)
        st = start(b, err);
    if (st != BITNET_OK) {
        bitnet_bridge_close(b);
        return st;
    }
    *out = b;
    return BITNET_OK;
}

void bitnet_bridge_close(bitnet_bridge *b)
{
    if (!b)
        return;
    if (b->started)
        b->cleanup();
    if (b->library)
        dlclose(b->library);
    bnet_free(b->path);
    bnet_free(b);
}

/* ---- judging ---- */

bitnet_comparison bitnet_compare_times(uint64_t native_ns, uint64_t reference_ns,
                                       bool accuracy_match, double max_error)
{
    double native = (double)BNET_MAX(native_ns, 1), reference = (double)reference_ns;
    return (bitnet_comparison){.native_ns = native_ns,
                               .reference_ns = reference_ns,
                               .accuracy_match = accuracy_match,
                               .max_error = max_error,
                               .improvement = reference / native - 1,
                               /* without rounding: -0.1 itself counts */
                               .migration_recommended =
                                   accuracy_match && 10 * reference >= 9 * native,
                               .release_gate = accuracy_match && 20 * reference >= 19 * native};
}

/* ---- serving ---- */

/* The lowest tier, of a kernel from outside: every native kernel but the plain C ones is preferred
 * to it, which is rank 7 of providers.inc. */
bitnet_status bitnet_bridge_serve(bitnet_runtime *r, bitnet_bridge *b, bitnet_error *err)
{
    if (!r || !b)
        return bnet_fail(err, BITNET_ARGUMENT, "bridge: runtime and bridge must be given");
    if (!b->linear_i2s)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "%s: the bridge has no function bitnet_bridge_linear_i2s: it can be "
                         "compared with, but not compute models",
                         b->path);
    const bnet_kernel_record rec = {.id = "linear_i2s.ffi",
                                    .device = BNET_DEV_CPU,
                                    .op = BNET_OP_LINEAR,
                                    .format = BNET_FORMAT_I2S,
                                    .dtype = BNET_DTYPE_I8,
                                    .isa = "ffi",
                                    .tier = BITNET_TIER_REFERENCE,
                                    .alignment = 1,
                                    .abi = BITNET_KERNEL_ABI,
                                    .agreement = "exact",
                                    .fn = (bnet_kernel_fn)b->linear_i2s,
                                    .outside = true};
    return bnet_registry_add(r->registry, &rec, err);
}
