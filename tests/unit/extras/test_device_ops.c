/* test_device_ops.c - single operations (bitnet_ops) on an emulated GPU, on the best instruction
 * set and on the scalar one, and every failure of a mixed-precision call. gpu.h says which
 * GPU that is. */
#include "unit/engine/gpu.h"
#include "device/cuda_needs.h"

#include <math.h>
#include <pthread.h>

#include "bitnet_extras.h"
#include "engine/engine.h"
#include "format/codec.h"

static uint64_t seed = 7;

static void need_faults(void)
{
    need_gpu();
    if (real_gpu) {
        print_message("failures are made to order on an emulated device alone\n");
        skip();
    }
}

/* ---- objects ---- */

typedef struct said { /* what was logged */
    char text[4096];
} said;

static void keep_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    said *s = user;
    size_t n = strlen(s->text);
    (void)module;
    if (level <= BITNET_LOG_INFO)
        snprintf(s->text + n, sizeof s->text - n, "%s\n", message);
}

typedef struct machine {
    bitnet_runtime *runtime;
    bitnet_ops *ops;
} machine;

static machine machine_on(const char *device, const char *isa, bitnet_precision p, said *log)
{
    machine m = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.device = device;
    o.isa = isa;
    o.log = log ? keep_log : NULL;
    o.log_user = log;
    OK(bitnet_runtime_open(&o, &m.runtime, &err));
    OK(bitnet_ops_open(m.runtime, p, &m.ops, &err));
    return m;
}

static void machine_close(machine *m)
{
    bitnet_ops_close(m->ops);
    bitnet_runtime_close(m->runtime);
}

static float random_float(void)
{
    return (float)((int)(test_rand(&seed) % 20001) - 10000) / 5000.0f;
}

static float *floats(size_t n)
{
    float *f = malloc((n ? n : 1) * sizeof *f);
    for (size_t i = 0; i < n; i++)
        f[i] = random_float();
    return f;
}

/* ---- K-25: every operation by GPU, vectors, scalar ---- */

typedef void check_fn(bitnet_ops *o, const char *where);

static void check_matmul_i2s(bitnet_ops *o, const char *where)
{
    static const size_t shapes[][3] = {{1, 1, 1},    {8, 16, 300}, {16, 8, 64},   {32, 33, 65},
                                       {40, 7, 129}, {3, 5, 7},    {64, 64, 256}, {2, 3, 0}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        int8_t *a = malloc(m * k + 1);
        uint8_t *b = malloc(k * n + 1);
        float *c = malloc(m * n * 4), *want = malloc(m * n * 4);
        for (size_t i = 0; i < m * k; i++)
            a[i] = (int8_t)test_rand(&seed);
        for (size_t i = 0; i < k * n; i++)
            b[i] = (uint8_t)(test_rand(&seed) % 5);
        memset(c, 0x7f, m * n * 4);
        bitnet_matmul item = {a, m * k, b, k * n, c, m * n, m, n, k};
        OK(bitnet_matmul_i2s(a, m * k, b, k * n, want, m * n, m, n, k, &err));
        OK(bitnet_ops_matmul_i2s(o, &item, &err));
        if (memcmp(c, want, m * n * 4) != 0)
            fail_msg("%s: matmul_i2s %zu x %zu x %zu differs", where, m, n, k);
        free(a);
        free(b);
        free(c);
        free(want);
    }
}

/* K-6: GPU and CPU write the same bytes. */
static void check_quantize(bitnet_ops *o, const char *where)
{
    static const size_t sizes[][2] = {{1, 1}, {1024, 8}, {999, 7}, {4097, 1}, {10, 7}, {5000, 129}};
    for (int type = 0; type < 3; type++)
        for (int rule = 0; rule < 2; rule++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                size_t n = sizes[s][0], ns = sizes[s][1];
                size_t bytes = bitnet_quantized_bytes(type, n);
                float *x = floats(n), *s1 = calloc(ns, 4), *s2 = calloc(ns, 4);
                uint8_t *q1 = calloc(bytes, 1), *q2 = calloc(bytes, 1);
                OK(bitnet_quantize(type, rule, x, n, q1, bytes, s1, ns, &err));
                OK(bitnet_ops_quantize(o, type, rule, x, n, q2, bytes, s2, ns, &err));
                if (memcmp(q1, q2, bytes) != 0 || memcmp(s1, s2, ns * 4) != 0)
                    fail_msg("%s: type %d rule %d: %zu values, %zu scales differ", where, type,
                             rule, n, ns);
                free(x);
                free(s1);
                free(s2);
                free(q1);
                free(q2);
            }
    float bad[4] = {1, NAN, 0, 0}, scale;
    uint8_t byte;
    FAILS(bitnet_ops_quantize(o, BITNET_QTYPE_I2S, BITNET_SCALE_ABSMEAN, bad, 4, &byte, 1, &scale,
                              1, &err),
          BITNET_ARGUMENT, "value 1 is nan");
}

/* K-7 */
static void check_qk256(bitnet_ops *o, const char *where)
{
    static const size_t cols[] = {1, 255, 256, 257, 1000};
    enum { ROWS = 9 };
    for (size_t s = 0; s < sizeof cols / sizeof *cols; s++)
        for (int map = 0; map < 3; map++) {
            size_t k = cols[s], blocks = ROWS * ((k + 255) / 256);
            uint8_t *w = malloc(blocks * 64);
            float *x = floats(k), *scales = floats(blocks), y[ROWS], want[ROWS];
            for (size_t i = 0; i < blocks * 64; i++)
                w[i] = (uint8_t)test_rand(&seed);
            OK(bitnet_qk256_gemv(w, blocks * 64, scales, blocks, ROWS, k, x, map, want, &err));
            OK(bitnet_ops_qk256_gemv(o, w, blocks * 64, scales, blocks, ROWS, k, x, map, y, &err));
            for (int r = 0; r < ROWS; r++)
                if (!(fabsf(y[r] - want[r]) <= 1e-5f))
                    fail_msg("%s: qk256 %zu columns, row %d: %g, want %g", where, k, r,
                             (double)y[r], (double)want[r]);
            free(w);
            free(x);
            free(scales);
        }
}

static void check_matmul_f32(bitnet_ops *o, const char *where)
{
    enum { M = 5, N = 37, K = 70 };
    float *a = floats(M * K), *b = floats(K * N), c[M * N];
    OK(bitnet_ops_matmul(o, a, b, c, M, N, K, &err));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float want = 0; /* one order everywhere, each step rounded once: equal bits */
            for (int l = 0; l < K; l++)
                want = fmaf(a[i * K + l], b[l * N + j], want);
            if (c[i * N + j] != want)
                fail_msg("%s: matmul: (%d, %d) is %.9g, want %.9g", where, i, j,
                         (double)c[i * N + j], (double)want);
        }
    free(a);
    free(b);
}

/* K-17: every half, and floats on, above and below every middle between two of them. */
static void check_convert(bitnet_ops *o, const char *where)
{
    enum { HALVES = 65536 };
    uint16_t *h = malloc(HALVES * 2), *back = malloc(3 * HALVES * 2);
    float *f = malloc(HALVES * 4), *between = malloc(3 * HALVES * 4);
    for (int i = 0; i < HALVES; i++)
        h[i] = (uint16_t)i;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        OK(bitnet_ops_convert(o, bf16 ? BITNET_BF16_TO_F32 : BITNET_F16_TO_F32, h, HALVES, f,
                              &err));
        for (int i = 0; i < HALVES; i++) {
            float want = bf16 ? bnet_bf16_to_f32(h[i]) : bnet_f16_to_f32(h[i]);
            if (memcmp(&want, &f[i], 4) != 0)
                fail_msg("%s: %s %04x becomes another float", where, bf16 ? "bf16" : "f16", i);
            uint32_t bits, shift = bf16 ? 0x8000u : 0x1000u;
            memcpy(&bits, &want, 4);
            for (uint32_t d = 0; d < 3; d++) {
                uint32_t near = bits + shift + d - 1;
                memcpy(&between[3 * i + (int)d], &near, 4);
            }
        }
        OK(bitnet_ops_convert(o, bf16 ? BITNET_F32_TO_BF16 : BITNET_F32_TO_F16, between, 3 * HALVES,
                              back, &err));
        for (int i = 0; i < 3 * HALVES; i++)
            if (back[i] != (bf16 ? bnet_f32_to_bf16(between[i]) : bnet_f32_to_f16(between[i])))
                fail_msg("%s: %a becomes %04x", where, (double)between[i], back[i]);
    }
    free(h);
    free(back);
    free(f);
    free(between);
}

static double vector_want(int v, double x, double z)
{
    double relu2 = x > 0 ? x * x : 0, silu = x / (1 + exp(-x));
    const double all[] = {x + z, x * z, relu2, silu, relu2 * z, silu * z};
    return all[v];
}

/* K-13 */
static void check_vector(bitnet_ops *o, const char *where)
{
    enum { N = 1003 };
    float *x = floats(N), *z = floats(N), y[N];
    for (int v = 0; v < 6; v++) {
        OK(bitnet_ops_vector(o, (bitnet_vector)v, x, z, N, y, &err));
        for (int i = 0; i < N; i++)
            if (!(fabs((double)y[i] - vector_want(v, x[i], z[i])) <=
                  1e-6 * (1 + fabs((double)y[i]))))
                fail_msg("%s: function %d of %g, %g is %g", where, v, (double)x[i], (double)z[i],
                         (double)y[i]);
    }
    free(x);
    free(z);
}

/* K-12 */
static void check_softmax(bitnet_ops *o, const char *where)
{
    enum { ROWS = 5, N = 301 };
    float *x = floats(ROWS * N), y[ROWS * N];
    for (int i = 0; i < N; i++)
        x[N + i] *= 5000; /* e^10000 has no float */
    for (int i = 0; i < N; i++)
        x[4 * N + i] = -INFINITY;
    OK(bitnet_ops_softmax(o, x, ROWS, N, y, &err));
    for (int r = 0; r < 4; r++) {
        double sum = 0, want = 0, top = -INFINITY;
        for (int i = 0; i < N; i++)
            top = (double)x[r * N + i] > top ? (double)x[r * N + i] : top;
        for (int i = 0; i < N; i++) {
            sum += (double)y[r * N + i];
            want += exp((double)x[r * N + i] - top);
        }
        for (int i = 0; i < N; i++)
            if (!(fabs((double)y[r * N + i] - exp((double)x[r * N + i] - top) / want) <= 1e-6))
                fail_msg("%s: softmax row %d element %d", where, r, i);
        assert_true(fabs(sum - 1) < 1e-5);
    }
    assert_true(isnan(y[4 * N]));
    free(x);
}

static void check_argmax(bitnet_ops *o, const char *where)
{
    enum { N = 1000 };
    float *x = floats(4 * N);
    int32_t id[4];
    x[500] = x[700] = 9.0f; /* ties go to the lower one */
    x[N + 3] = INFINITY;
    x[N + 4] = NAN;
    x[N + 999] = 8.0f;
    for (int i = 0; i < N; i++)
        x[2 * N + i] = NAN;
    for (int i = 0; i < N; i++)
        x[3 * N + i] = i == 7 ? -0.0f : i == 9 ? 0.0f : -1.0f;
    OK(bitnet_ops_argmax(o, x, 4, N, id, &err));
    if (id[0] != 500 || id[1] != 999 || id[2] != -1 || id[3] != 7)
        fail_msg("%s: argmax is %d %d %d %d", where, id[0], id[1], id[2], id[3]);
    free(x);
}

static check_fn *const checks[] = {check_matmul_i2s, check_quantize, check_qk256,
                                   check_matmul_f32, check_convert,  check_vector,
                                   check_softmax,    check_argmax};

static void test_K_25_K_6_K_17_every_operation_by_gpu_simd_scalar(void **state)
{
    (void)state;
    static const struct {
        const char *device, *isa;
    } columns[] = {{"cuda", NULL}, {"cpu", NULL}, {"cpu", "scalar"}};
    for (size_t i = has_gpu ? 0 : 1; i < 3; i++) {
        machine m = machine_on(columns[i].device, columns[i].isa, BITNET_PRECISION_FP32, NULL);
        bitnet_ops_stats s;
        bitnet_ops_stats_init(&s);
        for (size_t k = 0; k < sizeof checks / sizeof *checks; k++)
            checks[k](m.ops, bitnet_ops_provider(m.ops));
        OK(bitnet_ops_read(m.ops, &s, &err));
        assert_string_equal(s.provider, bitnet_ops_provider(m.ops));
        assert_int_equal(s.n_device_ops, i == 0 ? s.n_ops : 0);
        assert_true((s.kernel != NULL) == (i == 0));
        assert_int_equal(s.fallback_count + s.memory_current, 0);
        machine_close(&m);
    }
}

/* ---- K-14, K-15, K-16: bounds ---- */

static void check_bound(const char *cc, bitnet_precision p, double unit, const char *kernel)
{
    static const size_t shapes[][3] = {{1, 1, 1}, {5, 37, 70}, {64, 128, 32}, {65, 129, 33}};
    setenv("BITNET_EMULATED_CC", cc, 1);
    machine m = machine_on("cuda", NULL, p, NULL);
    assert_int_equal(bitnet_ops_precision(m.ops), p);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t rows = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        float *a = floats(rows * k), *b = floats(k * n), *c = floats(rows * n);
        OK(bitnet_ops_matmul(m.ops, a, b, c, rows, n, k, &err));
        for (size_t i = 0; i < rows * n; i++) {
            double want = 0, sizes = 0;
            for (size_t l = 0; l < k; l++) {
                double t = (double)a[i / n * k + l] * (double)b[l * n + i % n];
                want += t;
                sizes += fabs(t);
            }
            double bound = (2 * unit + unit * unit + (double)k * 0x1p-23) * sizes;
            if (!(fabs((double)c[i] - want) <= bound))
                fail_msg("%s: %zu x %zu x %zu: element %zu is off by %g, bound %g", kernel, rows, n,
                         k, i, fabs((double)c[i] - want), bound);
        }
        free(a);
        free(b);
        free(c);
    }
    bitnet_ops_stats st;
    bitnet_ops_stats_init(&st);
    OK(bitnet_ops_read(m.ops, &st, &err));
    if (!real_gpu)
        assert_string_equal(st.kernel, kernel);
    machine_close(&m);
    setenv("BITNET_EMULATED_CC", "90", 1);
}

static void test_K_14_K_15_K_16_products_of_halves_within_their_bound(void **state)
{
    (void)state;
    need_gpu();
    check_bound("90", BITNET_PRECISION_FP32, 0, "matmul_nn_f32_gpu");
    check_bound("90", BITNET_PRECISION_FP16, 0x1p-11, "wmma_f16_gpu");
    check_bound("90", BITNET_PRECISION_BF16, 0x1p-8, "matmul_nn_bf16_gpu");
    if (real_gpu)
        return;
    check_bound("75", BITNET_PRECISION_FP16, 0x1p-11, "wmma_f16_gpu");
}

/* ---- K-18: what is taken ---- */

static void test_K_18_auto_takes_what_the_device_has(void **state)
{
    (void)state;
    static const struct {
        const char *cc;
        bitnet_precision wanted, got;
    } cases[] = {{"0", BITNET_PRECISION_AUTO, BITNET_PRECISION_FP32},
                 {"75", BITNET_PRECISION_AUTO, BITNET_PRECISION_FP16},
                 {"80", BITNET_PRECISION_AUTO, BITNET_PRECISION_BF16},
                 {"90", BITNET_PRECISION_AUTO, BITNET_PRECISION_BF16},
                 {"90", BITNET_PRECISION_FP32, BITNET_PRECISION_FP32},
                 {"75", BITNET_PRECISION_FP16, BITNET_PRECISION_FP16}};
    need_faults();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("BITNET_EMULATED_CC", cases[i].cc, 1);
        machine m = machine_on("cuda", NULL, cases[i].wanted, NULL);
        if (bitnet_ops_precision(m.ops) != cases[i].got)
            fail_msg("%s: %s is taken", cases[i].cc,
                     bitnet_precision_text(bitnet_ops_precision(m.ops)));
        machine_close(&m);
    }
    setenv("BITNET_EMULATED_CC", "90", 1);
}

/* ---- K-19: seven steps ---- */

static void test_K_19_ST_2_steps_memory_and_transfers(void **state)
{
    (void)state;
    enum { SIDE = 48 };
    need_gpu();
    static const bitnet_precision all[] = {BITNET_PRECISION_FP32, BITNET_PRECISION_FP16,
                                           BITNET_PRECISION_BF16};
    for (int p = 0; p < 3; p++) {
        machine m = machine_on("cuda", NULL, all[p], NULL);
        float *a = floats(SIDE * SIDE), *b = floats(SIDE * SIDE), c[SIDE * SIDE];
        bitnet_ops_stats before, s;
        bitnet_ops_stats_init(&before);
        bitnet_ops_stats_init(&s);
        OK(bitnet_ops_read(m.ops, &before, &err));
        for (int i = 0; i < 3; i++)
            OK(bitnet_ops_matmul(m.ops, a, b, c, SIDE, SIDE, SIDE, &err));
        OK(bitnet_ops_read(m.ops, &s, &err));
        const double ms[] = {s.precision.fp32_ms, s.precision.fp16_ms, s.precision.bf16_ms};
        for (int i = 0; i < 3; i++)
            assert_true(i == p ? ms[i] > 0 : ms[i] == 0);
        for (int i = 0; i < BITNET_SINGLE_STEPS; i++)
            assert_true(s.step_ms[i] >= 0);
        assert_true(s.step_ms[3] > 0 && s.step_ms[4] > 0 && s.step_ms[5] > 0);
        size_t bytes = SIDE * SIDE * sizeof(float);
        assert_int_equal(s.precision.n_ops, 3);
        assert_int_equal(s.precision.n_h2d, 6); /* the check at the start is not counted */
        assert_int_equal(s.precision.h2d_bytes, 6 * bytes);
        assert_int_equal(s.precision.n_d2h, 3);
        assert_int_equal(s.precision.d2h_bytes, 3 * bytes);
        assert_true(s.precision.memory_peak >= before.precision.memory_allocated + 3 * bytes);
        assert_true(s.precision.memory_allocated <= s.precision.memory_peak);
        assert_int_equal(s.memory_current, before.memory_current); /* all was brought back */
        assert_int_equal(s.n_matmul, 3);
        assert_true(s.avg_matmul_ms > 0);
        free(a);
        free(b);
        machine_close(&m);
    }
}

/* ---- K-20: five ways to fail ---- */

static void fault(const char *name, const char *value)
{
    setenv(name, value, 1);
}

static void no_faults(void)
{
    unsetenv("BITNET_EMULATED_FAIL");
    unsetenv("BITNET_EMULATED_WITHOUT");
    unsetenv("BITNET_EMULATED_WRONG");
    unsetenv("BITNET_EMULATED_MEMORY");
    setenv("BITNET_EMULATED_CC", "90", 1);
}

static void test_K_20_unsupported_hardware_computes_in_fp32(void **state)
{
    (void)state;
    need_faults();
    said log = {{0}};
    setenv("BITNET_EMULATED_CC", "75", 1);
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_BF16, &log);
    assert_int_equal(bitnet_ops_precision(m.ops), BITNET_PRECISION_FP32);
    assert_non_null(strstr(log.text,
                           "precision bf16: float matrices are multiplied in fp32: device "
                           "0 (emulated device) of compute capability 7.5 has no such "
                           "arithmetic"));
    check_matmul_f32(m.ops, "fp32 instead of bf16");
    machine_close(&m);
    said cpu = {{0}};
    m = machine_on("cpu", NULL, BITNET_PRECISION_FP16, &cpu);
    assert_non_null(strstr(cpu.text, "the CPU multiplies float matrices in fp32 only"));
    machine_close(&m);
    no_faults();
}

static void test_K_20_kernel_that_cannot_be_compiled_is_named(void **state)
{
    (void)state;
    need_faults();
    bitnet_runtime *r = NULL;
    bitnet_ops *o = NULL;
    bitnet_runtime_options options;
    bitnet_runtime_options_init(&options);
    options.device = "cuda";
    options.n_threads = 1;
    OK(bitnet_runtime_open(&options, &r, &err));
    fault("BITNET_EMULATED_WITHOUT", "bnet_matmul_f16_nt 218"); /* CUDA_ERROR_INVALID_PTX */
    FAILS(bitnet_ops_open(r, BITNET_PRECISION_FP16, &o, &err), BITNET_NOT_AVAILABLE,
          "precision fp16: kernel matmul_fp16_gpu is not in the images for device 0");
    fault("BITNET_EMULATED_WITHOUT", "bnet_matmul_bf16_nn 500");
    OK(bitnet_ops_open(r, BITNET_PRECISION_AUTO, &o, &err)); /* the next one serves */
    assert_int_equal(bitnet_ops_precision(o), BITNET_PRECISION_FP16);
    bitnet_ops_close(o);
    bitnet_runtime_close(r);
    no_faults();
}

static void test_K_20_without_memory_all_is_given_back(void **state)
{
    (void)state;
    need_faults();
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_FP16, NULL);
    enum { SIDE = 64 };
    float *a = floats(SIDE * SIDE), *b = floats(SIDE * SIDE), c[SIDE * SIDE];
    bitnet_ops_stats before, s;
    bitnet_ops_stats_init(&before);
    bitnet_ops_stats_init(&s);
    OK(bitnet_ops_read(m.ops, &before, &err));
    for (size_t n = 1; n <= 5;
         n++) { /* each of the five buffers, of sizes that were not there yet */
        char text[32];
        snprintf(text, sizeof text, "cuMemAlloc -%zu 2", n);
        fault("BITNET_EMULATED_FAIL", text);
        FAILS(bitnet_ops_matmul(m.ops, a, b, c, SIDE - n, SIDE - n, SIDE - 2 * n, &err),
              BITNET_MEMORY, "memory");
        OK(bitnet_ops_read(m.ops, &s, &err));
        assert_int_equal(s.memory_current, before.memory_current);
    }
    no_faults();
    OK(bitnet_ops_matmul(m.ops, a, b, c, SIDE, SIDE, SIDE, &err)); /* and it goes on */
    assert_string_equal(bitnet_ops_provider(m.ops), "cuda");
    free(a);
    free(b);
    machine_close(&m);
}

static void test_K_20_launch_that_fails_resets_the_device_and_the_cpu_goes_on(void **state)
{
    (void)state;
    need_faults();
    said log = {{0}};
    machine m = machine_on("auto", NULL, BITNET_PRECISION_FP16, &log);
    assert_string_equal(bitnet_ops_provider(m.ops), "cuda");
    fault("BITNET_EMULATED_FAIL", "cuLaunchKernel 1 719"); /* CUDA_ERROR_LAUNCH_FAILED */
    check_matmul_f32(m.ops, "the CPU instead of the device");
    assert_non_null(strstr(log.text, "CUDA_ERROR_LAUNCH_FAILED"));
    assert_non_null(strstr(log.text, "device 0 had failed: given back, which resets it"));
    bitnet_ops_stats s;
    bitnet_ops_stats_init(&s);
    OK(bitnet_ops_read(m.ops, &s, &err));
    assert_int_equal(s.fallback_count, 1);
    assert_int_equal(bitnet_ops_precision(m.ops), BITNET_PRECISION_FP32);
    assert_true(strcmp(bitnet_ops_provider(m.ops), "cuda") != 0);
    machine_close(&m);
    no_faults();
    m = machine_on("cuda", NULL, BITNET_PRECISION_FP32, NULL); /* asked for by name: an error */
    fault("BITNET_EMULATED_FAIL", "cuLaunchKernel 1 719");
    float x[4] = {1, 2, 3, 4}, y[4];
    FAILS(bitnet_ops_vector(m.ops, BITNET_VECTOR_RELU2, x, NULL, 4, y, &err), BITNET_NOT_AVAILABLE,
          "CUDA_ERROR_LAUNCH_FAILED");
    machine_close(&m);
    no_faults();
}

static void test_K_20_wrong_results_are_found_and_fp32_serves(void **state)
{
    (void)state;
    need_faults();
    said log = {{0}};
    fault("BITNET_EMULATED_WRONG", "bnet_wmma_matmul_f16");
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_FP16, &log);
    assert_int_equal(bitnet_ops_precision(m.ops), BITNET_PRECISION_FP32);
    assert_non_null(
        strstr(log.text, "its products are not what the reference says they should be"));
    check_matmul_f32(m.ops, "fp32 instead of wrong halves");
    machine_close(&m);
    fault("BITNET_EMULATED_WRONG", "bnet_matmul_bf16_nn");
    m = machine_on("cuda", NULL, BITNET_PRECISION_AUTO, NULL);
    assert_int_equal(bitnet_ops_precision(m.ops), BITNET_PRECISION_FP16);
    machine_close(&m);
    no_faults();
}

/* ---- K-21: many products ---- */

enum { ITEMS = 90 };

static void test_K_21_batch_on_a_device(void **state)
{
    (void)state;
    need_gpu();
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_FP32, NULL);
    static int8_t a[40 * 64];
    static uint8_t b[64 * 40];
    static float c[ITEMS][40 * 40], want[40 * 40];
    bitnet_matmul items[ITEMS];
    for (size_t i = 0; i < sizeof a; i++) {
        a[i] = (int8_t)test_rand(&seed);
        b[i] = (uint8_t)(test_rand(&seed) % 3);
    }
    OK(bitnet_ops_batch_matmul_i2s(m.ops, NULL, 0, &err));
    for (size_t i = 0; i < ITEMS; i++) {
        size_t mm = 1 + i * 7 % 40, nn = 1 + i * 11 % 40, kk = 1 + i * 13 % 64;
        items[i] = (bitnet_matmul){a, mm * kk, b, kk * nn, c[i], mm * nn, mm, nn, kk};
    }
    OK(bitnet_ops_batch_matmul_i2s(m.ops, items, ITEMS, &err));
    for (size_t i = 0; i < ITEMS; i++) {
        const bitnet_matmul *t = &items[i];
        OK(bitnet_matmul_i2s(t->a, t->n_a, t->b, t->n_b, want, t->n_c, t->m, t->n, t->k, &err));
        assert_memory_equal(want, t->c, t->n_c * sizeof(float));
    }
    items[5].n_a++;
    FAILS(bitnet_ops_batch_matmul_i2s(m.ops, items, ITEMS, &err), BITNET_ARGUMENT, "item 5");
    machine_close(&m);
}

static double batch_ms(bitnet_ops *o, const bitnet_matmul *items, size_t n, bool together)
{
    double start = bnet_now_ms();
    if (together)
        OK(bitnet_ops_batch_matmul_i2s(o, items, n, &err));
    for (size_t i = 0; !together && i < n; i++)
        OK(bitnet_ops_matmul_i2s(o, &items[i], &err));
    return bnet_now_ms() - start;
}

/* Best of a few, in turn; a margin for a machine that does other things too. */
static void test_K_21_batch_is_no_slower_than_a_loop(void **state)
{
    (void)state;
    enum { N = 64, SIDE = 24, ROUNDS = 7, MOST_ROUNDS = 70 }; /* more while others have the CPUs */
    need_gpu();
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_FP32, NULL);
    static int8_t a[SIDE * SIDE];
    static uint8_t b[SIDE * SIDE];
    static float c[N][SIDE * SIDE];
    bitnet_matmul items[N];
    double best[2] = {1e9, 1e9};
    for (size_t i = 0; i < N; i++)
        items[i] = (bitnet_matmul){a, sizeof a, b, sizeof b, c[i], SIDE * SIDE, SIDE, SIDE, SIDE};
    bool slower = true;
    for (int round = 0; round < 2 * ROUNDS || (slower && round < 2 * MOST_ROUNDS); round++) {
        double ms = batch_ms(m.ops, items, N, round % 2);
        best[round % 2] = ms < best[round % 2] ? ms : best[round % 2];
        slower = best[1] > 1.25 * best[0];
    }
    machine_close(&m);
    print_message("%d products of %d: one by one %.3f ms, together %.3f ms\n", N, SIDE, best[0],
                  best[1]);
    assert_false(slower);
}

/* ---- K-28: quantising on whatever there is ---- */

static void test_K_28_quantizer_of_a_device(void **state)
{
    (void)state;
    uint8_t out[256], want[256];
    float scales[8], want_scales[8], *x = floats(1024);
    OK(bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, x, 1024, want, 256, want_scales, 8,
                       &err));
    machine m = machine_on("auto", NULL, BITNET_PRECISION_FP32, NULL);
    OK(bitnet_ops_quantize(m.ops, BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, x, 1024, out, 256, scales,
                           8, &err));
    assert_memory_equal(out, want, 256);
    assert_memory_equal(scales, want_scales, sizeof scales);
    bitnet_ops_stats s;
    bitnet_ops_stats_init(&s);
    OK(bitnet_ops_read(m.ops, &s, &err));
    assert_int_equal(s.n_quantize, 1);
    assert_true(s.avg_quantize_ms > 0);
    assert_int_equal(s.n_device_ops, has_gpu ? 1 : 0);
    if (has_gpu && !real_gpu) { /* the device fails: the CPU computes, and it is counted */
        fault("BITNET_EMULATED_FAIL", "cuLaunchKernel 1 700");
        memset(out, 0, sizeof out);
        OK(bitnet_ops_quantize(m.ops, BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, x, 1024, out, 256,
                               scales, 8, &err));
        assert_memory_equal(out, want, 256);
        OK(bitnet_ops_read(m.ops, &s, &err));
        assert_int_equal(s.fallback_count, 1);
        no_faults();
    }
    machine_close(&m);
    free(x);
}

static void test_K_28_pieces_where_memory_is_short(void **state)
{
    (void)state;
    enum { N = 30000, SCALES = 100 };
    need_faults();
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_FP32, NULL);
    float *x = floats(N), s1[SCALES], s2[SCALES];
    for (int type = 0; type < 3; type++) {
        size_t bytes = bitnet_quantized_bytes(type, N);
        uint8_t *q1 = malloc(bytes), *q2 = malloc(bytes);
        OK(bitnet_quantize(type, BITNET_SCALE_ABSMEAN, x, N, q1, bytes, s1, SCALES, &err));
        fault("BITNET_EMULATED_MEMORY", "80000"); /* the values alone are 120,000 bytes */
        OK(bitnet_ops_quantize(m.ops, type, BITNET_SCALE_ABSMEAN, x, N, q2, bytes, s2, SCALES,
                               &err));
        no_faults();
        assert_memory_equal(q1, q2, bytes);
        assert_memory_equal(s1, s2, sizeof s1);
        free(q1);
        free(q2);
    }
    bitnet_ops_stats s;
    bitnet_ops_stats_init(&s);
    OK(bitnet_ops_read(m.ops, &s, &err));
    assert_true(s.n_quantize > 3); /* in pieces */
    free(x);
    machine_close(&m);
}

/* ---- REG-1, REG-2, REG-13: the provider ---- */

static void *at_work(void *arg)
{
    bitnet_ops *o = arg;
    int8_t a[4 * 32];
    uint8_t b[32 * 8];
    float c[4 * 8], want[4 * 8];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4 * 32; i++)
            a[i] = (int8_t)(i * 7 + round);
        for (int i = 0; i < 32 * 8; i++)
            b[i] = (uint8_t)((i + round) % 3);
        bitnet_matmul item = {a, sizeof a, b, sizeof b, c, 32, 4, 8, 32};
        if (bitnet_ops_matmul_i2s(o, &item, NULL) != BITNET_OK ||
            bitnet_matmul_i2s(a, sizeof a, b, sizeof b, want, 32, 4, 8, 32, NULL) != BITNET_OK ||
            memcmp(c, want, sizeof c) != 0)
            return arg;
    }
    return NULL;
}

static void test_REG_1_REG_2_cuda_provider_from_8_threads(void **state)
{
    (void)state;
    need_gpu();
    machine m = machine_on("cuda", NULL, BITNET_PRECISION_FP32, NULL);
    bitnet_provider_info p;
    assert_true(bitnet_provider_at(m.runtime, 0, &p));
    assert_string_equal(p.name, "cuda");
    assert_true(p.available && p.priority == 1);
    assert_string_equal(bitnet_runtime_provider(m.runtime), "cuda");
    pthread_t t[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&t[i], NULL, at_work, m.ops), 0);
    for (int i = 0; i < 8; i++) {
        void *failed;
        assert_int_equal(pthread_join(t[i], &failed), 0);
        assert_null(failed);
    }
    machine_close(&m);
}

static const char *chosen(const bnet_registry *r, int major, int minor, uint64_t m, uint64_t n)
{
    const bnet_capabilities c = {.device = BNET_DEV_CUDA,
                                 .has = bnet_cuda_has(major, minor, major >= 7),
                                 .builds = 1u << BNET_DEV_CUDA};
    const bnet_kernel_query q = {BNET_OP_MATMUL,       BNET_FORMAT_I2S, BNET_DTYPE_I8, m, n, 64,
                                 BITNET_PRIORITY_SPEED};
    const bnet_kernel_record *k = NULL;
    return bnet_registry_select(r, &c, &q, &k, NULL) == BITNET_OK ? k->id : "";
}

static void test_REG_13_default_set_by_capability(void **state)
{
    (void)state;
    need_gpu();
    machine m = machine_on("cpu", NULL, BITNET_PRECISION_FP32, NULL);
    const bnet_registry *r = m.runtime->registry;
    const bnet_kernel_record *plain = bnet_registry_find(r, "matmul_i2s_gpu"),
                             *tensor = bnet_registry_find(r, "wmma_i2s_gpu");
    const uint64_t built = BNET_CUDA_NEED(BUILT);
    assert_true(plain->tier == BITNET_TIER_HIGHLY && plain->alignment == 256 &&
                plain->m.min == 32 && plain->needs == (BNET_CUDA_NEED(61) | built)); /* dp4a */
    assert_true(tensor->tier == BITNET_TIER_EXTREMELY && tensor->alignment == 256 &&
                tensor->m.multiple == 8 && tensor->n.multiple == 8 &&
                tensor->needs == (BNET_CUDA_NEED(70) | BNET_CUDA_NEED(TENSOR_CORES) | built));
    assert_true(plain->temp_bytes == 0 &&
                tensor->temp_bytes == 0); /* blocks share, none is taken */
    assert_string_equal(chosen(r, 6, 1, 64, 64), "matmul_i2s_gpu");
    assert_string_equal(chosen(r, 6, 1, 8, 64), "matmul_i2s_gpu_few");
    assert_string_equal(chosen(r, 7, 0, 64, 64), "wmma_i2s_gpu");
    assert_string_equal(chosen(r, 9, 0, 64, 64), "wmma_i2s_gpu");
    assert_string_equal(chosen(r, 9, 0, 65, 64), "matmul_i2s_gpu");
    assert_string_equal(chosen(r, 6, 0, 64, 64), "");
    machine_close(&m);
}

/* ---- speed, told on a real GPU ---- */

static void tell_speed(const char *kernel, bitnet_precision p, const char *format, size_t side)
{
    machine m = machine_on("cuda", NULL, p, NULL);
    bnet_kernel_query q = {.op = BNET_OP_MATMUL,
                           .format = bnet_format_find(format),
                           .dtype =
                               strcmp(format, "i2s") == 0 ? BNET_DTYPE_I8 : bnet_dtype_find(format),
                           .m = side,
                           .n = side,
                           .k = side};
    OK(bnet_registry_tune(m.runtime->registry, &q, kernel, &err));
    float *a = floats(side * side), *b = floats(side * side), *c = floats(side * side);
    bitnet_ops_stats before, s;
    double best = 1e9;
    for (int i = 0; i < 4; i++) {
        bitnet_ops_stats_init(&before);
        bitnet_ops_stats_init(&s);
        bitnet_matmul item = {(int8_t *)a, side * side, (uint8_t *)b, side * side, c,
                              side * side, side,        side,         side};
        OK(bitnet_ops_read(m.ops, &before, &err));
        if (strcmp(format, "i2s") == 0)
            OK(bitnet_ops_matmul_i2s(m.ops, &item, &err));
        else
            OK(bitnet_ops_matmul(m.ops, a, b, c, side, side, side, &err));
        OK(bitnet_ops_read(m.ops, &s, &err));
        double ms = s.step_ms[4] - before.step_ms[4];
        best = ms < best ? ms : best;
    }
    assert_string_equal(s.kernel, kernel);
    print_message("%-20s %zu^3: %.3f ms, %.1f Tops\n", kernel, side, best,
                  2e-9 * (double)side * (double)side * (double)side / best);
    free(a);
    free(b);
    free(c);
    machine_close(&m);
}

static void speed(void **state)
{
    (void)state;
    if (!real_gpu) {
        print_message("an emulated device has none\n");
        skip();
    }
    tell_speed("matmul_nn_f32_gpu", BITNET_PRECISION_FP32, "f32", 1024);
    tell_speed("wmma_f16_gpu", BITNET_PRECISION_FP16, "f16", 2048);
    tell_speed("matmul_nn_bf16_gpu", BITNET_PRECISION_BF16, "bf16", 2048);
    tell_speed("matmul_i2s_gpu", BITNET_PRECISION_FP32, "i2s", 2048);
    tell_speed("wmma_i2s_gpu", BITNET_PRECISION_FP32, "i2s", 2048);
}

/* ---- arguments ---- */

static void arguments(void **state)
{
    (void)state;
    machine m = machine_on("cpu", NULL, BITNET_PRECISION_FP32, NULL);
    float x[4] = {0}, y[4];
    bitnet_ops *o = NULL;
    FAILS(bitnet_ops_open(NULL, BITNET_PRECISION_FP32, &o, &err), BITNET_ARGUMENT, "NULL");
    FAILS(bitnet_ops_open(m.runtime, (bitnet_precision)9, &o, &err), BITNET_ARGUMENT, "precision");
    FAILS(bitnet_ops_matmul(m.ops, NULL, x, y, 1, 1, 1, &err), BITNET_ARGUMENT, "NULL");
    FAILS(bitnet_ops_matmul(m.ops, x, x, y, SIZE_MAX, SIZE_MAX, 1, &err), BITNET_ARGUMENT,
          "too large");
    FAILS(bitnet_ops_vector(m.ops, (bitnet_vector)6, x, x, 4, y, &err), BITNET_ARGUMENT,
          "function");
    FAILS(bitnet_ops_vector(m.ops, BITNET_VECTOR_ADD, x, NULL, 4, y, &err), BITNET_ARGUMENT,
          "NULL");
    FAILS(bitnet_ops_convert(m.ops, (bitnet_conversion)4, x, 4, y, &err), BITNET_ARGUMENT,
          "conversion");
    FAILS(bitnet_ops_quantize(m.ops, (bitnet_qtype)3, BITNET_SCALE_ABSMAX, x, 4, (uint8_t *)y, 16,
                              y, 1, &err),
          BITNET_ARGUMENT, "quantization type 3");
    bitnet_ops_stats s = {.struct_size = 1};
    FAILS(bitnet_ops_read(m.ops, &s, &err), BITNET_ARGUMENT, "struct_size");
    assert_null(bitnet_ops_provider(NULL));
    bitnet_ops_close(NULL);
    machine_close(&m);
}

int main(int argc, char **argv)
{
    (void)argc;
    choose_gpu(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K_25_K_6_K_17_every_operation_by_gpu_simd_scalar),
        cmocka_unit_test(test_K_14_K_15_K_16_products_of_halves_within_their_bound),
        cmocka_unit_test(test_K_18_auto_takes_what_the_device_has),
        cmocka_unit_test(test_K_19_ST_2_steps_memory_and_transfers),
        cmocka_unit_test(test_K_20_unsupported_hardware_computes_in_fp32),
        cmocka_unit_test(test_K_20_kernel_that_cannot_be_compiled_is_named),
        cmocka_unit_test(test_K_20_without_memory_all_is_given_back),
        cmocka_unit_test(test_K_20_launch_that_fails_resets_the_device_and_the_cpu_goes_on),
        cmocka_unit_test(test_K_20_wrong_results_are_found_and_fp32_serves),
        cmocka_unit_test(test_K_21_batch_on_a_device),
        cmocka_unit_test(test_K_21_batch_is_no_slower_than_a_loop),
        cmocka_unit_test(test_K_28_quantizer_of_a_device),
        cmocka_unit_test(test_K_28_pieces_where_memory_is_short),
        cmocka_unit_test(test_REG_1_REG_2_cuda_provider_from_8_threads),
        cmocka_unit_test(test_REG_13_default_set_by_capability),
        cmocka_unit_test(speed),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests_name("engine/device_ops", tests, NULL, NULL);
}
