/* test_weights.c - the quantised linear layer's contract (REG-16, REG-17, D-25): what is checked
 * when a weight is made, which kernel then serves which pass, and the dequantised fallback. */
#include "test.h"

#include <math.h>

#include "backend/cpu/cpu.h"
#include "device/cpu_features.h"
#include "format/codec.h"

typedef struct rig {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    int n_warnings, n_debug;
    char warning[512];
    bitnet_error err;
} rig;

static uint64_t seed = 3;

static void on_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    rig *g = user;
    (void)module;
    if (level == BITNET_LOG_WARN && ++g->n_warnings)
        snprintf(g->warning, sizeof g->warning, "%s", message);
    g->n_debug += level == BITNET_LOG_DEBUG && strstr(message, ": kernel ") != NULL;
}

static void rig_open_n(rig *g, const char *isa, bool strict, int n_threads)
{
    memset(g, 0, sizeof *g);
    bnet_log log = {on_log, g};
    assert_int_equal(bnet_pool_open(n_threads, &g->pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&g->registry, NULL), BITNET_OK);
    assert_int_equal(
        bnet_backend_open_cpu(g->pool, g->registry, isa, strict, &log, &g->be, &g->err), BITNET_OK);
}

static void rig_open(rig *g, const char *isa, bool strict)
{
    rig_open_n(g, isa, strict, 2);
}

static void rig_close(rig *g)
{
    bnet_backend_close(g->be);
    bnet_registry_close(g->registry);
    bnet_pool_close(g->pool);
}

/* A matrix of a type, with bytes that mean finite values. */
typedef struct matrix {
    bnet_tensor t;
    uint8_t *bytes;
} matrix;

static void put_half(uint8_t *p, float v)
{
    bnet_put_u16(p, bnet_f32_to_f16(v));
}

/* Scales of one row: small, positive, different from row to row unless `same`. */
static void set_scales(bnet_type t, uint8_t *row, size_t row_bytes, float d)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    if (t == BNET_IQ2_BN)
        bnet_put_f32(row, d);
    else if (t == BNET_IQ1_BN)
        put_half(row, d);
    else
        for (size_t b = 0; b + info->n_bytes <= row_bytes; b += info->n_bytes) {
            put_half(row + b, d);
            if (t == BNET_Q4_K)
                put_half(row + b + 2, d / 2);
        }
}

static matrix matrix_new(bnet_type type, size_t k, size_t n, bool same)
{
    uint64_t total = 0, row = 0;
    assert_true(bnet_type_bytes(type, k, n, &total));
    assert_true(bnet_type_bytes(type, k, 1, &row));
    matrix m = {.bytes = malloc((size_t)total)};
    for (size_t i = 0; i < total; i++) {
        m.bytes[i] = (uint8_t)test_rand(&seed);
        if (type == BNET_IQ2_BN || type == BNET_I2_S) /* no code 3 */
            m.bytes[i] &= (uint8_t) ~(m.bytes[i] >> 1 & 0x55);
    }
    for (size_t r = 0; r < n && type != BNET_I2_S; r++)
        set_scales(type, m.bytes + r * row, (size_t)row, same ? 0.125f : 0.01f * (float)(r + 1));
    if (type == BNET_I2_S)
        bnet_put_f32(m.bytes + k * n / 4, 0.125f);
    m.t = (bnet_tensor){.name = "blk.0.attn_q.weight",
                        .n_dims = 2,
                        .ne = {k, n, 1, 1},
                        .type = type,
                        .data = m.bytes,
                        .n_bytes = total,
                        .n_span = total};
    return m;
}

static bitnet_status prepare(rig *g, const matrix *m, bool ternarise, bnet_weight **w)
{
    bnet_log log = {on_log, g};
    bnet_weight_request r = {.source.tensor = &m->t,
                             .source.file = "test.gguf",
                             .source.layout = BITNET_I2S_128,
                             .source.ternarise = ternarise,
                             .source.extra_scale = 1.0f};
    return g->be->v->weight_prepare(g->be, &r, &log, w, &g->err);
}

static uint64_t calls_of(const rig *g, const char *id)
{
    bitnet_kernel_use use[64];
    size_t n = bnet_backend_kernels(g->be, use, 64);
    for (size_t i = 0; i < n; i++)
        if (strcmp(use[i].id, id) == 0)
            return use[i].n_calls;
    return 0;
}

enum { TOKENS = 37 };

/* Runs the weight on random input; *x is what the weight really sees. */
static float *run(rig *g, const bnet_weight *w, size_t n_tokens, float **x)
{
    const bnet_weight_info *i = g->be->v->weight_info(w);
    size_t k = i->n_in, stride = (k + 127) / 128 * 128;
    bnet_buffer *in = g->be->v->buffer_new(g->be, n_tokens * k * 4),
                *out = g->be->v->buffer_new(g->be, n_tokens * i->n_out * 4);
    bnet_act8 act = {g->be->v->buffer_new(g->be, n_tokens * stride),
                     g->be->v->buffer_new(g->be, n_tokens * 4),
                     g->be->v->buffer_new(g->be, n_tokens * 4), stride};
    *x = malloc(n_tokens * k * sizeof **x);
    for (size_t e = 0; e < n_tokens * k; e++)
        (*x)[e] = (float)((int)(test_rand(&seed) % 2001) - 1000) / 1000.0f;
    memcpy(in->data, *x, n_tokens * k * 4);
    if (i->ternary) {
        g->be->v->quantize_i8(g->be, in, (int)n_tokens, k, &act);
        g->be->v->linear_ternary(g->be, w, &act, (int)n_tokens, out);
        for (size_t e = 0; e < n_tokens * k; e++)
            (*x)[e] = (float)((int8_t *)act.q->data)[e / k * stride + e % k] *
                      ((float *)act.scale->data)[e / k];
    } else {
        g->be->v->linear_float(g->be, w, in, (int)n_tokens, out);
    }
    float *y = malloc(n_tokens * i->n_out * sizeof *y);
    memcpy(y, out->data, n_tokens * i->n_out * sizeof *y);
    bnet_buffer *all[] = {in, out, act.q, act.scale, act.sum};
    for (size_t b = 0; b < BNET_COUNT(all); b++)
        g->be->v->buffer_free(g->be, all[b]);
    return y;
}

static void decode_row_of(const matrix *m, size_t r, float *f)
{
    size_t k = (size_t)m->t.ne[0];
    uint64_t row = 0;
    if (m->t.type == BNET_I2_S) {
        int8_t trits[1024];
        bnet_i2s_decode_row(BITNET_I2S_128, m->bytes, k, r, trits);
        for (size_t i = 0; i < k; i++)
            f[i] = (float)trits[i] * 0.125f;
        return;
    }
    assert_true(bnet_type_bytes(m->t.type, k, 1, &row));
    assert_true(bnet_decode_part(m->t.type, m->bytes + r * row, 0, k, f));
}

/* The result against decoded weights times what the weight saw, in double. */
static void check_result(rig *g, const matrix *m, const bnet_weight *w, size_t n_tokens)
{
    size_t k = (size_t)m->t.ne[0], n = (size_t)m->t.ne[1];
    float *x, *y = run(g, w, n_tokens, &x), f[1024];
    for (size_t r = 0; r < n; r++) {
        decode_row_of(m, r, f);
        for (size_t t = 0; t < n_tokens; t++) {
            double want = 0, size = 0;
            for (size_t i = 0; i < k; i++) {
                want += (double)f[i] * x[t * k + i];
                size += fabs((double)f[i] * x[t * k + i]);
            }
            if (fabs(y[t * n + r] - want) > 1e-6 * (1 + size))
                fail_msg("%s: token %zu of %zu, row %zu: %g, want %g",
                         bnet_type_find((uint32_t)m->t.type)->name, t, n_tokens, r,
                         (double)y[t * n + r], want);
        }
    }
    free(x);
    free(y);
}

static void test_REG_16_construction_checks_the_registry(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        rig g;
        rig_open(&g, NULL, strict);
        bnet_weight *w = NULL;
        matrix good = matrix_new(BNET_I2_S, 256, 128, true), bad = good;
        assert_int_equal(prepare(&g, &good, false, &w), BITNET_OK); /* 128 x 256 I2S on the CPU */
        assert_int_equal(g.n_warnings, 0);
        assert_true(g.n_debug >= 1); /* the choice is in the debug log */
        check_result(&g, &good, w, 5);
        g.be->v->weight_free(g.be, w);
        bad.t.type = BNET_Q5_K; /* a type nobody can read: refused, strict or not */
        w = NULL;
        assert_int_equal(prepare(&g, &bad, false, &w), BITNET_MODEL);
        assert_null(w);
        assert_non_null(strstr(g.err.message, "UnsupportedKernelConfiguration{device: cpu, qtype: "
                                              "q5_k, operation: linear}"));
        assert_non_null(strstr(g.err.message, "test.gguf: tensor blk.0.attn_q.weight"));
        free(good.bytes);
        rig_close(&g);
    }
}

static void test_REG_16_strict_refuses_the_fallback(void **state)
{
    (void)state;
    static const bnet_type types[] = {BNET_Q4_K, BNET_IQ4_NL, BNET_Q1_0, BNET_Q2_0, BNET_IQ2_BN};
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        rig g;
        rig_open(&g, NULL, true);
        matrix m = matrix_new(types[i], 256, 8, false);
        bnet_weight *w = NULL;
        assert_int_equal(prepare(&g, &m, false, &w), BITNET_MODEL);
        static const char *const parts[] = {
            "UnsupportedKernelConfiguration{device: cpu, qtype: ", "operation: linear}", "strict",
            "test.gguf", "blk.0.attn_q.weight"};
        for (size_t p = 0; p < BNET_COUNT(parts); p++)
            if (!strstr(g.err.message, parts[p]))
                fail_msg("\"%s\" does not say \"%s\"", g.err.message, parts[p]);
        assert_int_equal(g.n_warnings, 0);
        free(m.bytes);
        rig_close(&g);
    }
}

static void test_REG_17_fallback_is_flagged_and_right(void **state)
{
    (void)state;
    static const bnet_type types[] = {BNET_Q4_K, BNET_IQ4_NL, BNET_Q1_0, BNET_Q2_0, BNET_IQ2_BN};
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        rig g;
        rig_open(&g, NULL, false);
        matrix m = matrix_new(types[i], 512, 9, false);
        bnet_weight *w, *again;
        bool bn = bnet_type_is_bn(types[i]);
        const char *id = bn ? "linear_fallback_i8.scalar" : "linear_fallback.scalar";
        assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
        assert_int_equal(prepare(&g, &m, false, &again), BITNET_OK);
        assert_int_equal(g.n_warnings, 1); /* once, however many weights */
        assert_non_null(strstr(g.warning, bnet_type_find((uint32_t)types[i])->name));
        assert_non_null(strstr(g.warning, "device cpu"));
        assert_int_equal(g.be->v->weight_info(w)->ternary, bn); /* BitLinear types quantise x */
        assert_int_equal(bnet_backend_fallbacks(g.be), 0);
        check_result(&g, &m, w, 1);
        check_result(&g, &m, again, TOKENS);
        assert_int_equal(bnet_backend_fallbacks(g.be), 2);
        assert_int_equal(calls_of(&g, id), 2);
        g.be->v->weight_free(g.be, w);
        g.be->v->weight_free(g.be, again);
        free(m.bytes);
        rig_close(&g);
    }
}

/* Row scales that agree make an IQ2_BN matrix plain ternary: a real kernel, no fallback. */
static void test_REG_17_bn_with_one_scale_is_ternary(void **state)
{
    (void)state;
    for (int ternarise = 0; ternarise < 2; ternarise++) {
        rig g;
        rig_open(&g, NULL, true);
        matrix m = matrix_new(BNET_IQ2_BN, 256, 12, true);
        bnet_weight *w;
        assert_int_equal(prepare(&g, &m, ternarise, &w), BITNET_OK);
        check_result(&g, &m, w, TOKENS);
        assert_int_equal(bnet_backend_fallbacks(g.be), 0);
        assert_int_equal(g.n_warnings, 0);
        g.be->v->weight_free(g.be, w);
        free(m.bytes);
        rig_close(&g);
    }
}

static void own_q4_k(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                     size_t n_tokens, float *y)
{
    bnet_linear_fallback_scalar(BNET_Q4_K, row, x, x_stride, n_cols, n_tokens, y);
}

/* An out-of-tree kernel for a type the tree has none for: no fallback any more, also in strict. */
static void test_REG_17_registered_kernel_ends_the_fallback(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, NULL, true);
    bnet_kernel_record k = {.id = "linear_q4_k.own",
                            .device = BNET_DEV_CPU,
                            .op = BNET_OP_LINEAR,
                            .format = BNET_FORMAT_Q4_K,
                            .dtype = BNET_DTYPE_F32,
                            .tier = BITNET_TIER_OPTIMIZED,
                            .abi = BITNET_KERNEL_ABI,
                            .agreement = "exact",
                            .fn = (bnet_kernel_fn)own_q4_k};
    assert_int_equal(bnet_registry_add(g.registry, &k, &g.err), BITNET_OK);
    matrix m = matrix_new(BNET_Q4_K, 512, 9, false);
    bnet_weight *w;
    assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
    check_result(&g, &m, w, 3);
    assert_int_equal(calls_of(&g, "linear_q4_k.own"), 1);
    assert_int_equal(bnet_backend_fallbacks(g.be), 0);
    g.be->v->weight_free(g.be, w);
    free(m.bytes);
    rig_close(&g);
}

/* ---- which kernel for which number of tokens ---- */

static void test_REG_14_pass_size_picks_the_kernel(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, NULL, false);
    matrix m = matrix_new(BNET_I2_S, 256, 16, true);
    bnet_weight *w;
    assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
    uint32_t f = bnet_cpu_features();
    bool wide = bnet_cpu_sve_bytes() > 16; /* longer than NEON's: else SVE must be asked for */
    const char *one = wide && f & BNET_CPU_SVEI8MM ? "gemv_i2s_r16.svei8mm"
                      : f & BNET_CPU_I8MM          ? "gemv_i2s_r16.i8mm"
                      : f & BNET_CPU_DOTPROD       ? "gemv_i2s_r16.dotprod"
                      : wide                       ? "gemv_i2s_r16.sve"
                      : f & BNET_CPU_NEON          ? "linear_i2s.neon"
                      : f & BNET_CPU_AVX512VNNI    ? "gemv_i2s_r16.avx512vnni"
                      : f & BNET_CPU_AVX512BW      ? "gemv_i2s_r16.avx512"
                      : f & BNET_CPU_AVXVNNI       ? "gemv_i2s_r16.avxvnni"
                      : f & BNET_CPU_AVX2          ? "gemv_i2s_r16.avx2"
                      : f & BNET_CPU_SSE41         ? "gemv_i2s_r16.sse41"
                                                   : "linear_i2s.scalar";
    char many[64];
    snprintf(many, sizeof many, "%s", one);
    if (strncmp(many, "gemv", 4) == 0 && strcmp(many, "gemv_i2s_r16.sve") != 0)
        many[3] = 'm';
    if (f & BNET_CPU_AMX_INT8)
        snprintf(many, sizeof many, "gemm_i2s_r16.amx");
    assert_string_equal(bnet_cpu_pick((cpu_backend *)g.be, w, 1)->id, one);
    assert_string_equal(bnet_cpu_pick((cpu_backend *)g.be, w, 512)->id, many);
    for (size_t n = 1; n <= 20; n++)
        check_result(&g, &m, w, n);
    uint64_t calls = calls_of(&g, one) + (strcmp(one, many) ? calls_of(&g, many) : 0);
    if (strcmp(many, "gemm_i2s_r16.svei8mm") == 0) /* few tokens are NEON's */
        calls += calls_of(&g, "gemm_i2s_r16.i8mm");
    if (strcmp(many, "gemm_i2s_r16.amx") == 0) /* 4 to 7 tokens are VNNI's */
        calls += calls_of(&g, "gemm_i2s_r16.avx512vnni");
    assert_int_equal(calls, 20);
    g.be->v->weight_free(g.be, w);
    free(m.bytes);
    rig_close(&g);
}

static bnet_kernel_record limited(const char *id, uint64_t max_m, bitnet_kernel_tier tier)
{
    return (bnet_kernel_record){.id = id,
                                .device = BNET_DEV_CPU,
                                .op = BNET_OP_LINEAR,
                                .format = BNET_FORMAT_I2S,
                                .dtype = BNET_DTYPE_I8,
                                .tier = tier,
                                .m = {1, max_m, 1},
                                .abi = BITNET_KERNEL_ABI,
                                .agreement = "exact",
                                .fn = (bnet_kernel_fn)bnet_linear_i2s_scalar};
}

/* A kernel registered, or a choice made, while a weight is in use counts from the next pass on. */
static void test_REG_20_new_knowledge_is_used_at_once(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, "scalar", false);
    matrix m = matrix_new(BNET_I2_S, 256, 16, true);
    bnet_weight *w;
    assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
    check_result(&g, &m, w, 3);
    assert_int_equal(calls_of(&g, "linear_i2s.scalar"), 1);
    bnet_kernel_record k = limited("late", 4, BITNET_TIER_HIGHLY);
    assert_int_equal(bnet_registry_add(g.registry, &k, NULL), BITNET_OK);
    check_result(&g, &m, w, 3);
    assert_int_equal(calls_of(&g, "late"), 1);
    check_result(&g, &m, w, 5); /* more than it takes */
    assert_int_equal(calls_of(&g, "late"), 1);
    assert_int_equal(calls_of(&g, "linear_i2s.scalar"), 2);
    bnet_kernel_query q = {BNET_OP_LINEAR,       BNET_FORMAT_I2S, BNET_DTYPE_I8, 3, 16, 256,
                           BITNET_PRIORITY_SPEED};
    assert_int_equal(bnet_registry_tune(g.registry, &q, "linear_i2s.scalar", NULL), BITNET_OK);
    check_result(&g, &m, w, 3);
    assert_int_equal(calls_of(&g, "linear_i2s.scalar"), 3);
    g.be->v->weight_free(g.be, w);
    free(m.bytes);
    rig_close(&g);
}

static void only_q2_0(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                      size_t n_tokens, float *y)
{
    bnet_linear_fallback_scalar(BNET_Q2_0, row, x, x_stride, n_cols, n_tokens, y);
}

/* Where every kernel of a key limits M, a larger pass is cut down, never refused half-way. */
static void test_REG_14_large_pass_is_cut_to_what_fits(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, NULL, true);
    bnet_kernel_record k = limited("q2_0.narrow", 4, BITNET_TIER_HIGHLY);
    k.format = BNET_FORMAT_Q2_0;
    k.dtype = BNET_DTYPE_F32;
    k.fn = (bnet_kernel_fn)only_q2_0;
    assert_int_equal(bnet_registry_add(g.registry, &k, NULL), BITNET_OK);
    matrix m = matrix_new(BNET_Q2_0, 128, 7, false);
    bnet_weight *w;
    assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
    check_result(&g, &m, w, TOKENS);
    assert_true(calls_of(&g, "q2_0.narrow") >= (TOKENS + 3) / 4);
    g.be->v->weight_free(g.be, w);
    free(m.bytes);
    rig_close(&g);
}

/* Blocks of TQ2_0 are 64 bytes of codes and the scale. One warning tells of a tensor; a scale of 0
 * is none, blocks without weights have it. */
static void test_negative_block_scales_are_warned_of(void **state)
{
    (void)state;
    static const struct {
        float second, third;
        int n_warnings;
    } rows[] = {{0.5f, 0.25f, 0}, {0, 0.25f, 0}, {-0.5f, 0.25f, 1}, {-0.5f, -0.25f, 1}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        rig g;
        bnet_weight *w = NULL;
        rig_open(&g, NULL, false);
        matrix m = matrix_new(BNET_TQ2_0, 256, 8, true);
        for (size_t r = 0; r < 8; r++) {
            memset(m.bytes + 66 * r, 0x86, 64); /* codes 2, 1, 0, 2 */
            put_half(m.bytes + 66 * r + 64, r == 1 ? rows[i].second : r == 2 ? rows[i].third : 1);
        }
        assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
        if (g.n_warnings != rows[i].n_warnings)
            fail_msg("row %zu: %d warnings, the last: %s", i, g.n_warnings, g.warning);
        if (g.n_warnings)
            assert_non_null(strstr(g.warning, "attn_q.weight: scale -0.5 is not positive"));
        bnet_cpu_weight_free(g.be, w);
        free(m.bytes);
        rig_close(&g);
    }
}

/* A code 3 counts as 0 and is told of once per tensor. */
static void test_invalid_codes_of_tq2_0_are_warned_of(void **state)
{
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        rig g;
        bnet_weight *w = NULL;
        rig_open(&g, NULL, false);
        matrix m = matrix_new(BNET_TQ2_0, 256, 8, true);
        for (size_t r = 0; r < 8; r++) {
            memset(m.bytes + 66 * r, 0x55, 64); /* codes 1: zeros */
            put_half(m.bytes + 66 * r + 64, 1);
        }
        if (damaged)
            m.bytes[5] = m.bytes[66 + 7] = 0xd5; /* one code 3 each */
        assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
        assert_int_equal(g.n_warnings, damaged);
        if (damaged)
            assert_non_null(strstr(g.warning, "attn_q.weight: 2 invalid codes (3) are read as 0"));
        memset(m.bytes, 0x55, 64); /* what it must count as */
        memset(m.bytes + 66, 0x55, 64);
        check_result(&g, &m, w, 3);
        g.be->v->weight_free(g.be, w);
        free(m.bytes);
        rig_close(&g);
    }
}

/* Small matrices and many tokens: threads share rows and divide the tokens. */
static void test_many_tokens_are_divided_among_threads(void **state)
{
    (void)state;
    static const struct {
        int n_threads;
        size_t n_tokens;
    } cases[] = {{2, 256}, {4, 257}, {6, 300}, {2, 255}, {2, 300}, {4, 515}, {8, 1030}};
    for (size_t i = 0; i < (test_quick() ? 3 : BNET_COUNT(cases)); i++) {
        rig g;
        bnet_weight *w = NULL;
        rig_open_n(&g, NULL, false, cases[i].n_threads);
        matrix m = matrix_new(BNET_I2_S, 256, 72, true); /* the last of 5 groups is not full */
        assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
        check_result(&g, &m, w, cases[i].n_tokens);
        g.be->v->weight_free(g.be, w);
        free(m.bytes);
        rig_close(&g);
    }
}

/* Packed groups hold 16 rows; the last one may hold any number of them. */
static void test_any_number_of_packed_rows(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, NULL, false);
    for (size_t n = 1; n <= 35; n++) {
        bnet_weight *w = NULL;
        matrix m = matrix_new(BNET_I2_S, 128, n, true);
        assert_int_equal(prepare(&g, &m, false, &w), BITNET_OK);
        check_result(&g, &m, w, 1);
        check_result(&g, &m, w, 5);
        g.be->v->weight_free(g.be, w);
        free(m.bytes);
    }
    rig_close(&g);
}

/* ---- scratch of kernels ---- */

static void does_nothing(const bnet_r16 *a)
{
    (void)a;
}

/* Scratch is taken when the backend opens, and no kernel that it may choose asks for more: no pass
 * can lack it, and no session can be told of another's failure. (A program cannot register kernels
 * of a format that is handed scratch: test_kernel_registry.) */
static void test_scratch_serves_every_kernel(void **state)
{
    (void)state;
    const char *isa;
    size_t n, n_with_scratch = 0;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (int i = 0; (isa = bnet_cpu_isa_at(i)) != NULL; i++) {
        bnet_capabilities caps;
        if (bnet_cpu_capabilities(isa, &caps, NULL) != BITNET_OK)
            continue;
        rig g;
        rig_open(&g, isa, false);
        cpu_backend *be = (cpu_backend *)g.be;
        for (size_t k = 0; k < n; k++) {
            if (rows[k].temp_bytes == 0 || (rows[k].needs & ~caps.has))
                continue;
            assert_true(rows[k].temp_bytes <= be->scratch.n_bytes);
            n_with_scratch++;
        }
        for (int t = 0; t < be->scratch.n && be->scratch.n_bytes; t++) {
            uint8_t *p = bnet_cpu_scratch_take(be, t);
            memset(p, 0xab, be->scratch.n_bytes); /* a sanitizer sees if that is too much */
            bnet_cpu_scratch_give(be, t);
        }
        assert_int_equal(g.be->v->sync(g.be, &g.err), BITNET_OK);
        rig_close(&g);
    }
    print_message("%zu rows with scratch\n", n_with_scratch);
}

/* What a program's kernel takes for itself is not taken for it: the backend opens. */
static void test_no_scratch_for_kernels_of_programs(void **state)
{
    (void)state;
    rig g = {.n_warnings = 0};
    bnet_kernel_record k = {.id = "linear_i2s.greedy",
                            .device = BNET_DEV_CPU,
                            .op = BNET_OP_LINEAR,
                            .format = BNET_FORMAT_I2S,
                            .dtype = BNET_DTYPE_I8,
                            .tier = BITNET_TIER_EXTREMELY,
                            .temp_bytes = (uint64_t)1 << 46,
                            .abi = BITNET_KERNEL_ABI,
                            .agreement = "exact",
                            .outside = true,
                            .fn = (bnet_kernel_fn)does_nothing};
    assert_int_equal(bnet_pool_open(2, &g.pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&g.registry, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_add(g.registry, &k, &g.err), BITNET_OK);
    if (bnet_backend_open_cpu(g.pool, g.registry, "scalar", false, NULL, &g.be, &g.err) !=
        BITNET_OK)
        fail_msg("%s", g.err.message);
    rig_close(&g);
}

/* The host of GPUs keeps rows that no kernel reads as floats, and says so; strict mode refuses. */
static void test_rows_without_a_kernel_on_a_gpu(void **state)
{
    (void)state;
    matrix m = matrix_new(BNET_Q4_K, 256, 8, true);
    for (int strict = 0; strict < 2; strict++) {
        rig g = {.n_warnings = 0};
        bnet_weight *w = NULL;
        bnet_log log = {on_log, &g};
        assert_int_equal(bnet_pool_open(2, &g.pool, NULL), BITNET_OK);
        assert_int_equal(bnet_registry_open(&g.registry, NULL), BITNET_OK);
        const bnet_backend_want want = {.device = BNET_DEV_HOST,
                                        .pool = g.pool,
                                        .registry = g.registry,
                                        .strict = strict,
                                        .log = &log};
        assert_int_equal(bnet_backend_open(&want, &g.be, &g.err), BITNET_OK);
        assert_int_equal(prepare(&g, &m, false, &w), strict ? BITNET_MODEL : BITNET_OK);
        if (strict) {
            assert_non_null(strstr(g.err.message, "strict mode allows no dequantised fallback"));
            assert_non_null(strstr(g.err.message, "{device: host, qtype: q4_k, operation: linear"));
        } else {
            assert_non_null(strstr(g.warning, "no kernel for Q4_K weights: they are kept as"));
            g.be->v->weight_free(g.be, w);
        }
        rig_close(&g);
    }
    free(m.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_tokens_are_divided_among_threads),
        cmocka_unit_test(test_any_number_of_packed_rows),
        cmocka_unit_test(test_REG_16_construction_checks_the_registry),
        cmocka_unit_test(test_REG_16_strict_refuses_the_fallback),
        cmocka_unit_test(test_REG_17_fallback_is_flagged_and_right),
        cmocka_unit_test(test_REG_17_bn_with_one_scale_is_ternary),
        cmocka_unit_test(test_REG_17_registered_kernel_ends_the_fallback),
        cmocka_unit_test(test_REG_14_pass_size_picks_the_kernel),
        cmocka_unit_test(test_REG_14_large_pass_is_cut_to_what_fits),
        cmocka_unit_test(test_scratch_serves_every_kernel),
        cmocka_unit_test(test_no_scratch_for_kernels_of_programs),
        cmocka_unit_test(test_REG_20_new_knowledge_is_used_at_once),
        cmocka_unit_test(test_negative_block_scales_are_warned_of),
        cmocka_unit_test(test_invalid_codes_of_tq2_0_are_warned_of),
        cmocka_unit_test(test_rows_without_a_kernel_on_a_gpu),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
