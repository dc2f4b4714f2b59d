/* bridge.c - another implementation, loaded as a plugin and compared with ours. Nothing of it is
 * needed to build or to run; docs/BRIDGE.md says what a plugin exports. */
#include "check/validate.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#define UNAVAILABLE "ffi bridge unavailable"
#define RELATIVE    1e-5

enum { REPEATS = 3, SIDE_MAX = 1 << 16, SIZE_MAX_BYTES = 1 << 30 };

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
};

/* ---- loading ---- */

static const char *last_words(const bitnet_bridge *b, char *buf, size_t cap)
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
    return BITNET_OK;
}

static bitnet_status start(bitnet_bridge *b, bitnet_error *err)
{
    char words[240];
    int rc = b->init(BITNET_BRIDGE_ABI);
    if (rc != 0)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s: bitnet_bridge_init returned %d: %s",
                         b->path, rc, last_words(b, words, sizeof words));
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

/* ---- comparing ---- */

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

/* Computes a case with our function (side 0) or the plugin's (side 1). */
typedef bitnet_status (*side_fn)(const void *c, int side, bitnet_error *err);

/* The shortest time of either side, in nanoseconds; the first round only warms up. */
static bitnet_status time_sides(side_fn run, const void *c, uint64_t best[2], bitnet_error *err)
{
    best[0] = best[1] = UINT64_MAX;
    for (int i = 0; i < 2 * (REPEATS + 1); i++) {
        double start = bnet_now_ms();
        bitnet_status st = run(c, i % 2, err);
        uint64_t ns = (uint64_t)((bnet_now_ms() - start) * 1e6);
        if (st != BITNET_OK)
            return st;
        if (i >= 2)
            best[i % 2] = BNET_MIN(best[i % 2], ns);
    }
    return BITNET_OK;
}

static bitnet_status plugin_status(const bitnet_bridge *b, const char *what, int rc,
                                   bitnet_error *err)
{
    char words[240];
    if (rc == 0)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ERROR, "%s: %s returned %d: %s", b->path, what, rc,
                     last_words(b, words, sizeof words));
}

/* The largest difference; infinite where one of the two is no number. */
static double farthest(const float *a, const float *b, size_t n)
{
    double off = bnet_difference_of(a, b, n).off;
    return isnan(off) ? INFINITY : off;
}

typedef struct matmul_case {
    const bitnet_bridge *bridge;
    bnet_matmul_fn *native;
    size_t m, n, k;
    int8_t *a;
    uint8_t *b;
    float *c[2]; /* ours, the plugin's */
} matmul_case;

static bool matmul_fill(matmul_case *c)
{
    uint64_t seed = 1;
    c->a = bnet_alloc(c->m * c->k);
    c->b = bnet_alloc(c->k * c->n);
    c->c[0] = bnet_calloc(c->m * c->n, sizeof(float));
    c->c[1] = bnet_calloc(c->m * c->n, sizeof(float));
    if (!c->a || !c->b || !c->c[0] || !c->c[1])
        return false;
    for (size_t i = 0; i < c->m * c->k; i++)
        c->a[i] = (int8_t)((int)(bnet_case_random(&seed) % 255) - 127);
    for (size_t i = 0; i < c->k * c->n; i++)
        c->b[i] = (uint8_t)(bnet_case_random(&seed) % 3);
    return true;
}

static bitnet_status matmul_run(const void *matmul, int side, bitnet_error *err)
{
    const matmul_case *c = matmul;
    if (side == 0) {
        c->native(c->a, c->b, c->c[0], c->m, c->n, c->k);
        return BITNET_OK;
    }
    return plugin_status(c->bridge, "bitnet_bridge_matmul_i2s",
                         c->bridge->matmul_i2s(c->a, c->b, c->c[1], c->m, c->n, c->k), err);
}

static bitnet_status check_sizes(const size_t size[3], bitnet_error *err)
{
    for (int i = 0; i < 3; i++)
        if (size[i] == 0 || size[i] > SIDE_MAX)
            return bnet_fail(err, BITNET_ARGUMENT, "bridge: %c is %zu, must be 1..%d", "mnk"[i],
                             size[i], SIDE_MAX);
    if (size[0] * size[1] > SIZE_MAX_BYTES / 4)
        return bnet_fail(err, BITNET_ARGUMENT, "bridge: a result of %zu x %zu is too large",
                         size[0], size[1]);
    return BITNET_OK;
}

bitnet_status bitnet_bridge_compare_matmul(const bitnet_runtime *r, bitnet_bridge *b, size_t m,
                                           size_t n, size_t k, bitnet_comparison *out,
                                           bitnet_error *err)
{
    if (!r || !b || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "bridge: runtime, bridge and out must be given");
    bitnet_status st = check_sizes((size_t[3]){m, n, k}, err);
    if (st != BITNET_OK)
        return st;
    matmul_case c = {
        .bridge = b, .native = bnet_runtime_cpu_provider(r)->matmul_i2s, .m = m, .n = n, .k = k};
    uint64_t best[2];
    st = matmul_fill(&c) ? time_sides(matmul_run, &c, best, err) : bnet_no_memory(err, "bridge");
    if (st == BITNET_OK) {
        /* sums of int8 below 2^24 are whole numbers in a float: equal or wrong */
        double off = farthest(c.c[0], c.c[1], m * n);
        *out = bitnet_compare_times(best[0], best[1], off == 0, off);
    }
    void *all[] = {c.a, c.b, c.c[0], c.c[1]};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        bnet_free(all[i]);
    return st;
}

enum { SCALE_OF = 256 }; /* weights per scale when quantising */

typedef struct quantize_case {
    const bitnet_bridge *bridge;
    bnet_quantize_fn *native;
    bitnet_qtype type;
    size_t n, n_out, n_scales;
    float *in, *scales[2], *values[2];
    uint8_t *out[2];
} quantize_case;

static bool quantize_fill(quantize_case *c)
{
    uint64_t seed = 2;
    bool ok = (c->in = bnet_alloc(c->n * sizeof *c->in)) != NULL;
    for (int i = 0; i < 2; i++) {
        c->scales[i] = bnet_calloc(c->n_scales, sizeof(float));
        c->values[i] = bnet_calloc(c->n, sizeof(float));
        c->out[i] = bnet_calloc(c->n_out, 1);
        ok = ok && c->scales[i] && c->values[i] && c->out[i];
    }
    for (size_t i = 0; ok && i < c->n; i++)
        c->in[i] = (float)((double)(bnet_case_random(&seed) % 2000003) / 1000001.0 - 1.0);
    return ok;
}

static void quantize_free(quantize_case *c)
{
    bnet_free(c->in);
    for (int i = 0; i < 2; i++) {
        bnet_free(c->scales[i]);
        bnet_free(c->values[i]);
        bnet_free(c->out[i]);
    }
}

static bitnet_status quantize_run(const void *quantize, int side, bitnet_error *err)
{
    const quantize_case *c = quantize;
    if (side == 0) {
        c->native(c->type, BITNET_SCALE_ABSMEAN, c->in, c->n, c->out[0], c->scales[0], c->n_scales,
                  c->n / c->n_scales + (c->n % c->n_scales != 0));
        return BITNET_OK;
    }
    return plugin_status(c->bridge, "bitnet_bridge_quantize",
                         c->bridge->quantize((int)c->type, c->in, c->n, c->out[1], c->n_out,
                                             c->scales[1], c->n_scales),
                         err);
}

/* The same packed weights, and scales that agree to 1e-5. */
static bitnet_comparison quantize_judge(const quantize_case *c, const uint64_t best[2])
{
    bool match = memcmp(c->out[0], c->out[1], c->n_out) == 0;
    for (size_t i = 0; i < c->n_scales; i++)
        match = match && fabs((double)c->scales[0][i] - (double)c->scales[1][i]) <=
                             RELATIVE * fabs((double)c->scales[0][i]);
    for (int i = 0; i < 2; i++)
        bnet_ref_dequantize(c->type, c->out[i], c->n, c->scales[i], c->n_scales, c->values[i]);
    return bitnet_compare_times(best[0], best[1], match,
                                farthest(c->values[0], c->values[1], c->n));
}

bitnet_status bitnet_bridge_compare_quantize(const bitnet_runtime *r, bitnet_bridge *b,
                                             bitnet_qtype type, size_t n, bitnet_comparison *out,
                                             bitnet_error *err)
{
    if (!r || !b || !out || n == 0 || n > SIZE_MAX_BYTES / 4)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "bridge: runtime, bridge and out must be given, n is 1..%d",
                         SIZE_MAX_BYTES / 4);
    bitnet_status st =
        bnet_check_int("bridge", "type", (int)type, BITNET_QTYPE_I2S, BITNET_QTYPE_TL2, err);
    if (st != BITNET_OK)
        return st;
    quantize_case c = {.bridge = b,
                       .native = bnet_runtime_cpu_provider(r)->quantize,
                       .type = type,
                       .n = n,
                       .n_out = bnet_ref_quantized_bytes(type, n),
                       .n_scales = (n + SCALE_OF - 1) / SCALE_OF};
    uint64_t best[2];
    st =
        quantize_fill(&c) ? time_sides(quantize_run, &c, best, err) : bnet_no_memory(err, "bridge");
    if (st == BITNET_OK)
        *out = quantize_judge(&c, best);
    quantize_free(&c);
    return st;
}
