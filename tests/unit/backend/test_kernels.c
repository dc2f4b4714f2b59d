/* test_kernels.c - kcheck: every row of the kernel list against the scalar row of its op and
 * format, bit for bit, and the scalar rows against a naive double computation. Inputs end at a
 * guard page, outputs start poisoned, sizes cover every tail, fills the extremes. The seed is
 * printed; set KCHECK_SEED to repeat. */
#include "test.h"

#include "guarded.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "ops/kv_block.h"
#include "backend/cpu/softmax.h"
#include "base/mathf.h"
#include "device/cpu_features.h"

static uint64_t seed;

static const bnet_kernel_record *row_at(size_t i)
{
    size_t n;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    return i < n ? &rows[i] : NULL;
}

static bool available(const bnet_kernel_record *r)
{
    return (r->needs & ~bnet_cpu_features()) == 0;
}

static void fill_ternary(uint8_t *w, size_t n_w, int fill)
{
    static const uint8_t fills[] = {0x00, 0xaa, 0x55};
    for (size_t i = 0; i < n_w; i++) {
        uint8_t b = 0;
        for (int k = 0; k < 4; k++)
            b = (uint8_t)(b << 2 | test_rand(&seed) % 3);
        w[i] = fill < 3 ? fills[fill] : b;
    }
}

/* `off`: bytes between the end of the inputs and the guard page, so that they are misaligned */
static void check_ternary_case(const bnet_kernel_record *r, size_t n_blocks, size_t n_rows,
                               size_t n_tokens, int fill, size_t off)
{
    size_t n_w = 32 * n_blocks * n_rows, stride = 128 * n_blocks, n = n_rows * n_tokens;
    guarded gw = guard_new(n_w + off), gx = guard_new(stride * n_tokens + off);
    int8_t *x = (int8_t *)gx.data;
    int32_t sum[BNET_TERNARY_TOKENS] = {0}, *got = malloc((n + 1) * sizeof *got),
            *want = malloc(n * sizeof *want);
    fill_ternary(gw.data, n_w, fill);
    for (size_t i = 0; i < stride * n_tokens; i++) {
        x[i] = fill == 0 ? -128 : fill == 1 ? 127 : fill == 2 ? -127 : (int8_t)test_rand(&seed);
        sum[i / stride] += x[i];
    }
    memset(got, 0x7f, (n + 1) * sizeof *got);
    bnet_linear_i2s_scalar(gw.data, n_blocks, n_rows, x, stride, sum, n_tokens, want);
    ((bnet_fn_ternary *)r->fn)(gw.data, n_blocks, n_rows, x, stride, sum, n_tokens, got);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s: %zu blocks, %zu rows, %zu tokens, fill %d: element %zu is %d, reference "
                     "%d",
                     r->id, n_blocks, n_rows, n_tokens, fill, i, got[i], want[i]);
    assert_int_equal(got[n], 0x7f7f7f7f); /* nothing behind the result */
    free(got);
    free(want);
    guard_free(&gw);
    guard_free(&gx);
}

static void check_ternary_row(const bnet_kernel_record *r)
{
    static const size_t blocks[] = {1, 2, 3, 5, 8, 20, 54, 216}; /* 216 * 128 = 27648 columns */
    for (size_t b = 0; b < BNET_COUNT(blocks); b++)
        for (size_t n_rows = 1; n_rows <= 9; n_rows++)
            for (int fill = 0; fill < 4; fill++)
                check_ternary_case(r, blocks[b], n_rows, 1, fill, n_rows % 2 * 3);
    for (size_t n_tokens = 1; n_tokens <= BNET_TERNARY_TOKENS; n_tokens++)
        for (size_t n_rows = 1; n_rows <= 5; n_rows++)
            for (int fill = 0; fill < 4; fill++)
                check_ternary_case(r, n_tokens % 3 + 1, n_rows, n_tokens, fill, n_tokens % 2);
}

static void test_ternary_rows(void **state)
{
    (void)state;
    const bnet_kernel_record *r;
    for (size_t i = 0; (r = row_at(i)) != NULL; i++) {
        if (r->op != BNET_OP_LINEAR || r->format != BNET_FORMAT_I2S)
            continue;
        if (available(r))
            check_ternary_row(r);
        else
            print_message("%s: not available on this CPU, not checked\n", r->id);
    }
}

/* The reference itself: naive decode of every element by the format layer's locator. */
static void test_ternary_reference(void **state)
{
    (void)state;
    enum { K = 384, N = 5 };
    uint8_t w[K * N / 4];
    int8_t x[K], trits[K];
    int32_t acc[N];
    for (size_t i = 0; i < sizeof w; i++)
        w[i] = (uint8_t)(test_rand(&seed) % 3 << 6 | test_rand(&seed) % 3 << 4 |
                         test_rand(&seed) % 3 << 2 | test_rand(&seed) % 3);
    for (size_t i = 0; i < K; i++)
        x[i] = (int8_t)test_rand(&seed);
    bnet_linear_i2s_scalar(w, K / 128, N, x, K, &(int32_t){0}, 1, acc);
    for (size_t r = 0; r < N; r++) {
        int32_t want = 0;
        assert_int_equal(bnet_i2s_decode_row(BITNET_I2S_128, w, K, r, trits), 0);
        for (size_t i = 0; i < K; i++)
            want += trits[i] * x[i];
        assert_int_equal(acc[r], want);
    }
}

/* y = sum of scale[b] * integer sum of block b */
static void test_ternary_scaled(void **state)
{
    (void)state;
    enum { K = 768, N = 3 };
    uint8_t w[K * N / 4];
    int8_t x[K], trits[K];
    float scales[N * K / 256], y[N];
    for (size_t i = 0; i < sizeof w; i++)
        w[i] = (uint8_t)(test_rand(&seed) % 3 << 6 | test_rand(&seed) % 3 << 4 |
                         test_rand(&seed) % 3 << 2 | test_rand(&seed) % 3);
    for (size_t i = 0; i < K; i++)
        x[i] = (int8_t)test_rand(&seed);
    for (size_t i = 0; i < BNET_COUNT(scales); i++)
        scales[i] = (float)(test_rand(&seed) % 1000) / 300.0f;
    bnet_linear_i2s_b256_scalar(w, K / 128, scales, N, x, K, 1, y);
    for (size_t r = 0; r < N; r++) {
        double want = 0;
        bnet_i2s_decode_row(BITNET_I2S_128, w, K, r, trits);
        for (size_t i = 0; i < K; i++)
            want += (double)scales[r * (K / 256) + i / 256] * trits[i] * x[i];
        assert_true(fabs(y[r] - want) <= 1e-4 * (1 + fabs(want)));
    }
}

static float random_float(void)
{
    return (float)((double)(int64_t)test_rand(&seed) / 9.3e18);
}

static void check_linear(const bnet_kernel_record *r, bnet_type type, size_t n_cols,
                         size_t n_tokens)
{
    uint64_t n_bytes = 0;
    assert_true(bnet_type_bytes(type, n_cols, 1, &n_bytes));
    guarded w = guard_new((size_t)n_bytes), x = guard_new(n_cols * n_tokens * sizeof(float));
    float *xs = malloc(n_cols * n_tokens * sizeof *xs), *row = malloc(n_cols * sizeof *row),
          y[BNET_LINEAR_TOKENS];
    for (size_t i = 0; i < n_cols; i++)
        row[i] = random_float();
    for (size_t i = 0; i < n_cols * n_tokens; i++)
        xs[i] = random_float();
    memcpy(x.data, xs, n_cols * n_tokens * sizeof *xs);
    assert_true(bnet_encode_row(type, row, w.data, n_cols));
    assert_true(bnet_decode_row(type, w.data, row, n_cols));
    ((bnet_fn_linear *)r->fn)(w.data, (const float *)(const void *)x.data, n_cols, n_cols, n_tokens,
                              y);
    for (size_t t = 0; t < n_tokens; t++)
        if (y[t] != bnet_dot_f32(row, xs + t * n_cols, n_cols))
            fail_msg("%s: %zu columns, token %zu of %zu: %.9g, reference %.9g", r->id, n_cols, t,
                     n_tokens, (double)y[t], (double)bnet_dot_f32(row, xs + t * n_cols, n_cols));
    free(xs);
    free(row);
    guard_free(&w);
    guard_free(&x);
}

static void test_linear_rows(void **state)
{
    (void)state;
    const bnet_kernel_record *r;
    for (size_t i = 0; (r = row_at(i)) != NULL; i++) {
        const bnet_type_info *t = bnet_format_type(r->format);
        if (r->op != BNET_OP_LINEAR || !t || !available(r))
            continue;
        for (size_t m = 1; m <= 40; m++)
            for (size_t n_tokens = 1; n_tokens <= BNET_LINEAR_TOKENS; n_tokens += 3)
                check_linear(r, t->type, m * BNET_MAX(r->k.multiple, 1), n_tokens);
    }
}

/* The fallback on a type that has a kernel equals that kernel, and with int8 activations the dot
 * product with their floats. */
static void test_fallback_rows(void **state)
{
    (void)state;
    enum { K = 768, T = 3 };
    float row[K], x[T * K], want[T], got[T];
    int8_t q[T * K];
    uint8_t bytes[K * 4];
    for (size_t i = 0; i < K; i++)
        row[i] = random_float();
    for (size_t i = 0; i < T * K; i++) {
        q[i] = (int8_t)test_rand(&seed);
        x[i] = q[i];
    }
    assert_true(bnet_encode_row(BNET_Q6_K, row, bytes, K));
    bnet_linear_q6_k_scalar(bytes, x, K, K, T, want);
    bnet_linear_fallback_scalar(BNET_Q6_K, bytes, x, K, K, T, got);
    assert_memory_equal(got, want, sizeof got);
    bnet_linear_fallback_i8_scalar(BNET_Q6_K, bytes, q, K, K, T, got);
    assert_memory_equal(got, want, sizeof got);
}

static void test_exp(void **state)
{
    (void)state;
    assert_true(bnet_expf(-INFINITY) == 0 && bnet_expf(-88.0f) == 0);
    assert_true(isinf(bnet_expf(89.0f)) && isnan(bnet_expf(NAN)));
    assert_true(bnet_expf(0.0f) == 1.0f);
    double worst = 0;
    for (float x = -87.3f; x < 88.7f; x += 0.00137f) {
        double want = exp((double)x), ulp = fabs(want) * 1.1920929e-7;
        double e = fabs((double)bnet_expf(x) - want) / ulp;
        worst = e > worst ? e : worst;
    }
    print_message("bnet_expf: worst error %.2f ulp\n", worst);
    assert_true(worst <= 2.0);
}

static void test_rmsnorm(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 8, 33, 512, 2560, 8192};
    for (size_t s = 0; s < BNET_COUNT(sizes); s++) {
        size_t n = sizes[s];
        float *x = malloc(n * sizeof *x), *w = malloc(n * sizeof *w), *y = malloc(n * sizeof *y);
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = 3 * random_float();
            w[i] = random_float();
            sum += (double)x[i] * x[i];
        }
        bnet_rmsnorm_f32_scalar(x, w, n, 1e-5f, y);
        double scale = 1 / sqrt(sum / (double)n + 1e-5);
        for (size_t i = 0; i < n; i++)
            assert_true(fabs(y[i] - x[i] * scale * w[i]) <=
                        1e-6 * (1e-3 + fabs(x[i] * scale * w[i])));
        bnet_rmsnorm_f32_scalar(x, w, n, 1e-5f, x); /* in place */
        assert_memory_equal(x, y, n * sizeof *x);
        free(x);
        free(w);
        free(y);
    }
}

static void test_quantize(void **state)
{
    (void)state;
    /* amax 127 makes the scale 1: halves must go to even */
    const float x[8] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127.0f};
    const int8_t want[8] = {127, 0, 2, 2, 0, -2, -2, -127};
    int8_t q[128];
    int32_t sum = 7;
    memset(q, 0x55, sizeof q);
    assert_true(bnet_quantize_i8_scalar(x, 8, 128, q, &sum) == 1.0f);
    assert_memory_equal(q, want, 8);
    assert_int_equal(sum, 0);
    for (int i = 8; i < 128; i++)
        assert_int_equal(q[i], 0);
    const float tiny[2] = {1e-9f, -1e-9f}; /* the floor of 1e-5 keeps noise at zero */
    bnet_quantize_i8_scalar(tiny, 2, 128, q, &sum);
    assert_true(q[0] == 0 && q[1] == 0 && sum == 0);
    const float bad[3] = {NAN, INFINITY, 1.0f}; /* defined, whatever it is */
    bnet_quantize_i8_scalar(bad, 3, 128, q, &sum);
}

/* softmax(q k / sqrt(d)) v in double over all positions at once, against the blockwise fold. */
static void check_attention(bitnet_kv_type type, size_t hd, size_t n_pos, double tolerance)
{
    static bnet_fn_kv_store *const stores[3] = {bnet_kv_store_f16_scalar, bnet_kv_store_f32_scalar,
                                                bnet_kv_store_i8_scalar};
    static bnet_fn_attention *const folds[3] = {
        bnet_attention_f16_scalar, bnet_attention_f32_scalar, bnet_attention_i8_scalar};
    size_t n_blocks = (n_pos + 63) / 64, part = bnet_kv_part_bytes(type, hd);
    uint8_t *k = calloc(n_blocks, part), *v = calloc(n_blocks, part);
    float *kf = malloc(n_pos * hd * 4), *vf = malloc(n_pos * hd * 4), *q = malloc(hd * 4),
          *o = calloc(hd, 4);
    for (size_t i = 0; i < hd; i++)
        q[i] = 4 * random_float();
    for (size_t i = 0; i < n_pos * hd; i++) {
        kf[i] = 2 * random_float();
        vf[i] = random_float();
    }
    for (size_t p = 0; p < n_pos; p++) {
        stores[type](kf + p * hd, hd, p % 64, k + p / 64 * part);
        stores[type](vf + p * hd, hd, p % 64, v + p / 64 * part);
    }
    bnet_softmax block, run = bnet_softmax_start(o, hd);
    static _Alignas(64) uint8_t temp[128 << 10];
    float *ob = malloc(hd * 4);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t n = (uint8_t)BNET_MIN(n_pos - 64 * b, (size_t)64);
        bnet_attend a = {
            .q = q,
            .q_stride = hd,
            .n_tokens = 1,
            .n_heads = 1,
            .head_dim = hd,
            .k_part = k + b * part,
            .v_part = v + b * part,
            .n_pos = &n,
            .scale = 1 / sqrtf((float)hd),
            .block = &block,
            .o = ob,
            .temp = temp,
        };
        folds[type](&a);
        bnet_softmax_merge(&run, o, &block, ob, hd);
    }
    double total = 0, *want = calloc(hd, sizeof *want);
    for (size_t p = 0; p < n_pos; p++) {
        double s = 0;
        for (size_t i = 0; i < hd; i++)
            s += (double)q[i] * kf[p * hd + i];
        double e = exp(s / sqrt((double)hd));
        total += e;
        for (size_t i = 0; i < hd; i++)
            want[i] += e * vf[p * hd + i];
    }
    for (size_t i = 0; i < hd; i++)
        if (fabs(o[i] / run.l - want[i] / total) > tolerance)
            fail_msg("attention type %d hd %zu pos %zu: element %zu is %g, want %g", type, hd,
                     n_pos, i, o[i] / run.l, want[i] / total);
    free(k), free(v), free(kf), free(vf), free(q), free(o), free(ob), free(want);
}

static void test_attention(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 8, 64, 96, 100, 128, 256},
                        lens[] = {1, 2, 63, 64, 65, 128, 300, 4096};
    for (size_t d = 0; d < BNET_COUNT(dims); d++)
        for (size_t n = 0; n < BNET_COUNT(lens); n++) {
            check_attention(BITNET_KV_F32, dims[d], lens[n], 1e-5);
            check_attention(BITNET_KV_F16, dims[d], lens[n], 4e-3);
            check_attention(BITNET_KV_INT8, dims[d], lens[n], 4e-2);
        }
}

static void test_rope_and_glu(void **state)
{
    (void)state;
    float cs[4] = {0, 1, 1, 0}; /* turn by 90 degrees, then by none */
    float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4};
    bnet_rope_norm_scalar(a, cs, 4);
    assert_memory_equal(a, ((float[]){-2, 1, 3, 4}), sizeof a);
    bnet_rope_neox_scalar(b, cs, 4);
    assert_memory_equal(b, ((float[]){-3, 2, 1, 4}), sizeof b);
    const float gate[3] = {-1, 2, 300}, up[3] = {5, 3, 2};
    float y[3];
    bnet_glu_relu2_scalar(gate, up, 3, y);
    assert_memory_equal(y, ((float[]){0, 12, 180000}), sizeof y); /* beyond the range of f16 */
    bnet_glu_silu_scalar(gate, up, 3, y);
    assert_true(fabs(y[0] + 5 / (1 + exp(1.0))) < 1e-6 && y[2] == 600);
}

static void test_isa_limits(void **state)
{
    (void)state;
    bitnet_error err;
    bnet_capabilities c;
    uint32_t needs;
    assert_int_equal(bnet_cpu_capabilities("scalar", &c, &err), BITNET_OK);
    assert_int_equal(c.has, 0);
    assert_int_equal(c.device, BNET_DEV_CPU);
    assert_int_equal(bnet_cpu_capabilities(NULL, &c, &err), BITNET_OK);
    uint32_t sve = BNET_CPU_SVE | BNET_CPU_SVE2 | BNET_CPU_SVEI8MM; /* no longer than NEON: no */
    assert_int_equal(c.has, bnet_cpu_features() & (bnet_cpu_sve_bytes() > 16 ? ~0u : ~sve));
    assert_int_equal(bnet_cpu_capabilities("avx9000", &c, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "avx9000"));
    assert_non_null(strstr(err.message, "scalar"));
    const char *foreign = bnet_cpu_features() & BNET_CPU_NEON ? "avx2" : "dotprod";
    assert_int_equal(bnet_cpu_capabilities(foreign, &c, &err), BITNET_NOT_AVAILABLE);
    assert_int_equal(bnet_cpu_isa_needs(foreign, &needs, &err), BITNET_OK);
    assert_true(needs != 0);
}

int main(void)
{
    const char *s = getenv("KCHECK_SEED");
    seed = s ? strtoull(s, NULL, 0) : 20260;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ternary_reference), cmocka_unit_test(test_ternary_rows),
        cmocka_unit_test(test_ternary_scaled),    cmocka_unit_test(test_linear_rows),
        cmocka_unit_test(test_fallback_rows),     cmocka_unit_test(test_exp),
        cmocka_unit_test(test_rmsnorm),           cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_attention),         cmocka_unit_test(test_rope_and_glu),
        cmocka_unit_test(test_isa_limits),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
