/* bridge_compare.c - our functions and a plugin's on the same random input: results and times. The
 * reference product of unpacked codes, the kernel that computes models, quantisation. */
#include "check/bridge.h"
#include "check/validate.h"

#include <math.h>

#define RELATIVE 1e-5

enum { REPEATS = 3, SIDE_MAX = 1 << 16, SIZE_MAX_BYTES = 1 << 30 };

/* Computes a case with our function (side 0) or the plugin's (side 1). */
typedef bitnet_status (*side_fn)(void *c, int side, bitnet_error *err);

/* The shortest time of either side, in nanoseconds; the first round only warms up. */
static bitnet_status time_sides(side_fn run, void *c, uint64_t best[2], bitnet_error *err)
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
                     bnet_bridge_words(b, words, sizeof words));
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

static bitnet_status matmul_run(void *matmul, int side, bitnet_error *err)
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

/* ---- the kernel of models ---- */

enum { BLOCK = 128, TOKENS_MAX = 16 }; /* weights in 32 bytes, tokens of a call of linear_i2s */

typedef struct linear_case {
    const bitnet_bridge *bridge;
    kernel_case ours;
    uint8_t *codes;  /* [k][n], as bitnet_bridge_matmul_i2s takes them */
    uint8_t *packed; /* [n][k / 4], as bitnet_bridge_linear_i2s does */
    float *sums;     /* [m][n] of the plugin */
    int32_t *acc;    /* [TOKENS_MAX][n] */
} linear_case;

/* The weights of our case in both forms of the plugin. */
static void linear_codes(linear_case *c, const float *row, size_t r)
{
    size_t n = (size_t)c->ours.s.n, k = (size_t)c->ours.s.k;
    for (size_t i = 0; i < k; i++) {
        uint8_t code = row[i] > 0 ? 2 : row[i] < 0 ? 0 : 1;
        size_t in_block = i % BLOCK;
        c->codes[i * n + r] = code;
        c->packed[r * (k / 4) + i / BLOCK * 32 + in_block % 32] |=
            (uint8_t)(code << (6 - 2 * (in_block / 32)));
    }
}

static bool linear_fill(linear_case *c)
{
    size_t m = (size_t)c->ours.s.m, n = (size_t)c->ours.s.n, k = (size_t)c->ours.s.k;
    float *row = bnet_alloc(k * sizeof *row);
    c->codes = bnet_alloc(k * n);
    c->packed = bnet_calloc(n, k / 4);
    c->sums = bnet_calloc(m * n, sizeof *c->sums);
    c->acc = bnet_calloc(TOKENS_MAX * n, sizeof *c->acc);
    bool ok = row && c->codes && c->packed && c->sums && c->acc;
    for (size_t r = 0; ok && r < n; r++) {
        ok = bnet_case_weight_row(&c->ours, r, row);
        if (ok)
            linear_codes(c, row, r);
    }
    bnet_free(row);
    return ok;
}

/* By the function that the plugin would serve with. */
static void linear_packed(const linear_case *c)
{
    size_t m = (size_t)c->ours.s.m, n = (size_t)c->ours.s.n, k = (size_t)c->ours.s.k;
    for (size_t t = 0; t < m; t += TOKENS_MAX) {
        size_t n_t = BNET_MIN(m - t, (size_t)TOKENS_MAX);
        c->bridge->linear_i2s(c->packed, k / BLOCK, n, c->ours.q + t * k, k, c->ours.sums + t, n_t,
                              c->acc);
        for (size_t i = 0; i < n_t * n; i++)
            c->sums[t * n + i] = (float)c->acc[i];
    }
}

static bitnet_status linear_run(void *linear, int side, bitnet_error *err)
{
    linear_case *c = linear;
    const case_shape *s = &c->ours.s;
    if (side == 0)
        return bnet_case_run(&c->ours, err);
    if (c->bridge->linear_i2s) {
        linear_packed(c);
        return BITNET_OK;
    }
    return plugin_status(c->bridge, "bitnet_bridge_matmul_i2s",
                         c->bridge->matmul_i2s(c->ours.q, c->codes, c->sums, (size_t)s->m,
                                               (size_t)s->n, (size_t)s->k),
                         err);
}

/* The plugin's sums with the scales of token and tensor, as the kernel multiplies them: whole
 * numbers times the same float are equal or wrong. */
static bitnet_comparison linear_judge(linear_case *c, const uint64_t best[2])
{
    size_t m = (size_t)c->ours.s.m, n = (size_t)c->ours.s.n;
    float scale = bnet_op_weight_info(c->ours.be, c->ours.w)->scale;
    const float *ours = bnet_case_result(&c->ours);
    for (size_t i = 0; i < m * n; i++)
        c->sums[i] *= c->ours.scales[i / n] * scale;
    double off = ours ? farthest(ours, c->sums, m * n) : INFINITY;
    return bitnet_compare_times(best[0], best[1], off == 0, off);
}

/* The first kernel of a matrix that the backend has called. */
static const char *kernel_of(const bitnet_runtime *r, const bnet_backend *be)
{
    bitnet_kernel_use uses[8];
    size_t n = BNET_MIN(bnet_backend_kernels(be, uses, BNET_COUNT(uses)), BNET_COUNT(uses));
    for (size_t i = 0; i < n; i++) {
        const bnet_kernel_record *k = bnet_registry_find(r->registry, uses[i].id);
        if (k && k->op == BNET_OP_LINEAR)
            return k->id;
    }
    return "";
}

static bitnet_status linear_on(const bitnet_runtime *r, bnet_backend *be, bitnet_bridge *b,
                               case_shape s, const char **kernel, bitnet_comparison *out,
                               bitnet_error *err)
{
    const bnet_kernel_record form = {
        .id = "", .op = BNET_OP_LINEAR, .format = BNET_FORMAT_I2S, .dtype = BNET_DTYPE_I8};
    linear_case c = {.bridge = b};
    const char *skip = NULL;
    uint64_t best[2];
    bitnet_status st = bnet_case_open(be, &form, s, CASE_RANDOM, &c.ours, &skip, err);
    if (st != BITNET_OK || skip) /* a case of I2_S can always be made but without memory */
        return st != BITNET_OK ? st : bnet_no_memory(err, "bridge");
    bnet_case_load(&c.ours);
    st = linear_fill(&c) ? time_sides(linear_run, &c, best, err) : bnet_no_memory(err, "bridge");
    if (st == BITNET_OK) {
        *out = linear_judge(&c, best);
        *kernel = kernel_of(r, be);
    }
    void *all[] = {c.codes, c.packed, c.sums, c.acc};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        bnet_free(all[i]);
    bnet_case_close(&c.ours);
    return st;
}

bitnet_status bitnet_bridge_compare_linear(const bitnet_runtime *r, bitnet_bridge *b, size_t m,
                                           size_t n, size_t k, const char **kernel,
                                           bitnet_comparison *out, bitnet_error *err)
{
    const char *ran;
    bnet_backend *be = NULL;
    if (!r || !b || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "bridge: runtime, bridge and out must be given");
    bitnet_status st = check_sizes((size_t[3]){m, n, k}, err);
    if (st == BITNET_OK && k % BLOCK != 0)
        st =
            bnet_fail(err, BITNET_ARGUMENT, "bridge: k is %zu, must be a multiple of %d", k, BLOCK);
    if (st == BITNET_OK)
        st = bnet_backend_open_cpu(r->pool, r->registry, r->isa, false, NULL, &be, err);
    if (st == BITNET_OK)
        st = linear_on(r, be, b, (case_shape){m, n, k}, kernel ? kernel : &ran, out, err);
    bnet_backend_close(be);
    return st;
}

/* ---- quantisation ---- */

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

static bitnet_status quantize_run(void *quantize, int side, bitnet_error *err)
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
