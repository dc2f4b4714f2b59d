/* test_guide_gpu.c - the tests of a GPU that the development guide names (T-6): each the shortest
 * proof of its name, on the emulated device or on a real one (gpu.h). Where they end, others begin:
 * test_device_ops.c, tests/gpu, `bitnet validate --device cuda`. */
#include "unit/engine/gpu.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "bitnet_extras.h"
#include "bitnet_tools.h"

enum { N_IDS = 12, N_NEW = 10, N_THREADS = 4 };

static const int32_t ids[N_IDS] = {7, 21, 4, 90, 33, 12, 60, 5, 44, 18, 71, 9};

static const char *model_path(void)
{
    const char *path = getenv("BITNET_TEST_MODEL");
    return path ? path : NANO_PATH;
}

static bitnet_runtime *runtime_on(const char *device)
{
    bitnet_runtime_options o;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.device = device;
    OK(bitnet_runtime_open(&o, &r, &err));
    return r;
}

static nano model_on(const char *device)
{
    nano n = {.runtime = runtime_on(device)};
    OK(bitnet_engine_open(n.runtime, model_path(), NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

/* The most probable tokens after the prompt; false: some call failed. */
static bool go_on(const nano *n, int32_t next[N_NEW])
{
    bitnet_session_options so;
    bitnet_sampler_options greedy;
    bitnet_session *s = NULL;
    bitnet_sampler *chooser = NULL;
    bitnet_error err = {0};
    bitnet_session_options_init(&so);
    bitnet_sampler_options_init(&greedy);
    so.n_ctx = 64;
    greedy.temperature = 0;
    bool right = bitnet_session_open(n->engine, &so, &s, &err) == BITNET_OK &&
                 bitnet_sampler_open(&greedy, n->n_vocab, &chooser, &err) == BITNET_OK &&
                 bitnet_session_append(s, ids, N_IDS, NULL, NULL, &err) == BITNET_OK;
    for (int i = 0; right && i < N_NEW; i++)
        right = bitnet_sampler_pick(chooser, bitnet_session_logits(s), NULL, 0, &next[i], &err) ==
                    BITNET_OK &&
                bitnet_session_append(s, &next[i], 1, NULL, NULL, &err) == BITNET_OK;
    bitnet_sampler_close(chooser);
    bitnet_session_close(s);
    return right;
}

static void test_gpu_smoke(void **state)
{
    (void)state;
    need_gpu();
    int32_t next[N_NEW] = {0};
    nano n = model_on("cuda");
    assert_non_null(strstr(bitnet_runtime_summary(n.runtime), "selected=cuda"));
    assert_true(go_on(&n, next));
    for (int i = 0; i < N_NEW; i++)
        assert_in_range(next[i], 0, n.n_vocab - 1);
    nano_close(&n);
}

/* ---- quantising ---- */

static void test_gpu_quantization(void **state)
{
    (void)state;
    need_gpu();
    static const float in[8] = {0.5f, -0.3f, 0.8f, -0.1f, 0, 0.75f, -0.8f, 0.2f};
    static const uint8_t want[2] = {0x62, 0x49}; /* +1 -1 +1 0; 0 +1 -1 0: threshold 0.8 / 3 */
    uint8_t out[2] = {0};
    float scale = 0;
    bitnet_runtime *r = runtime_on("cuda");
    bitnet_ops *ops = NULL;
    bitnet_ops_stats s;
    OK(bitnet_ops_open(r, BITNET_PRECISION_FP32, &ops, &err));
    OK(bitnet_ops_quantize(ops, BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, in, 8, out, sizeof out,
                           &scale, 1, &err));
    assert_memory_equal(out, want, sizeof want);
    assert_true(fabsf(scale - 0.8f / 1.5f) <= 1e-7f);
    bitnet_ops_stats_init(&s);
    OK(bitnet_ops_read(ops, &s, &err));
    assert_string_equal(s.kernel, "quantize_i2s_gpu");
    bitnet_ops_close(ops);
    bitnet_runtime_close(r);
}

/* Three types, one and several scales: the same bytes and scales. */
static void test_gpu_vs_cpu_quantization_accuracy(void **state)
{
    (void)state;
    need_gpu();
    enum { N = 5000 };
    static float in[N];
    uint64_t seed = 11;
    for (int i = 0; i < N; i++)
        in[i] = (float)((int)(test_rand(&seed) % 2001) - 1000) / 700.0f;
    bitnet_runtime *r = runtime_on("cuda");
    bitnet_ops *ops = NULL;
    OK(bitnet_ops_open(r, BITNET_PRECISION_FP32, &ops, &err));
    for (int c = 0; c < 6; c++) {
        bitnet_qtype type = (bitnet_qtype)(c / 2);
        size_t n_scales = c % 2 ? 20 : 1, n_bytes = bitnet_quantized_bytes(type, N);
        uint8_t *gpu = calloc(n_bytes, 1), *cpu = calloc(n_bytes, 1);
        float of_gpu[20] = {0}, of_cpu[20] = {0};
        assert_true(gpu && cpu);
        OK(bitnet_ops_quantize(ops, type, BITNET_SCALE_ABSMAX, in, N, gpu, n_bytes, of_gpu,
                               n_scales, &err));
        OK(bitnet_quantize(type, BITNET_SCALE_ABSMAX, in, N, cpu, n_bytes, of_cpu, n_scales, &err));
        assert_memory_equal(gpu, cpu, n_bytes);
        assert_memory_equal(of_gpu, of_cpu, n_scales * sizeof *of_cpu);
        free(gpu), free(cpu);
    }
    bitnet_ops_close(ops);
    bitnet_runtime_close(r);
}

/* ---- products ---- */

typedef struct product { /* c [m][n] = a [m][k] b [k][n] */
    size_t m, n, k;
    int8_t *a;
    uint8_t *b;
    float *c;
} product;

static product product_new(size_t m, size_t n, size_t k)
{
    product p = {m, n, k, malloc(m * k), malloc(k * n), calloc(m * n, sizeof *p.c)};
    uint64_t seed = 5;
    assert_true(p.a && p.b && p.c);
    for (size_t i = 0; i < m * k; i++)
        p.a[i] = (int8_t)((int)(test_rand(&seed) % 255) - 127);
    for (size_t i = 0; i < k * n; i++)
        p.b[i] = (uint8_t)(test_rand(&seed) % 3);
    return p;
}

static void product_free(product *p)
{
    free(p->a), free(p->b), free(p->c);
}

static double ms_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void run_product(bitnet_ops *ops, product *p)
{
    const bitnet_matmul item = {.a = p->a,
                                .n_a = p->m * p->k,
                                .b = p->b,
                                .n_b = p->k * p->n,
                                .c = p->c,
                                .n_c = p->m * p->n,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k};
    OK(bitnet_ops_matmul_i2s(ops, &item, &err));
}

/* Milliseconds of a ternary product on a device, the fastest of three, copies included. */
static double best_ms(const char *device, product *p)
{
    bitnet_runtime *r = runtime_on(device);
    bitnet_ops *ops = NULL;
    double best = INFINITY;
    OK(bitnet_ops_open(r, BITNET_PRECISION_FP32, &ops, &err));
    for (int i = 0; i < 3; i++) {
        double began = ms_now();
        run_product(ops, p);
        best = fmin(best, ms_now() - began);
    }
    bitnet_ops_close(ops);
    bitnet_runtime_close(r);
    return best;
}

/* A large product is faster than one thread of the CPU, copies included; an emulated GPU only has
 * to say how long it took. */
static void test_gpu_performance(void **state)
{
    (void)state;
    need_gpu();
    size_t n = real_gpu ? 2048 : 32;
    product p = product_new(n, n, n);
    double gpu = best_ms("cuda", &p), cpu = best_ms("cpu", &p);
    print_message("%d x %d x %d: GPU %.3f ms, CPU %.3f ms\n", (int)n, (int)n, (int)n, gpu, cpu);
    assert_true(gpu > 0 && (!real_gpu || gpu < cpu));
    product_free(&p);
}

/* Integers exactly; floats within what bitnet_ops_matmul promises of each precision. */
static void test_cuda_numerical_accuracy(void **state)
{
    (void)state;
    need_gpu();
    enum { M = 9, N = 20, K = 70 };
    static const double unit[] = {0, 0x1p-11, 0x1p-8};
    static const bitnet_precision in[] = {BITNET_PRECISION_FP32, BITNET_PRECISION_FP16,
                                          BITNET_PRECISION_BF16};
    product p = product_new(M, N, K);
    static float want[M * N], a[M * K], b[K * N];
    OK(bitnet_matmul_i2s(p.a, M * K, p.b, K * N, want, M * N, M, N, K, &err));
    best_ms("cuda", &p);
    assert_memory_equal(p.c, want, sizeof want);
    for (int i = 0; i < M * K; i++)
        a[i] = (float)p.a[i] / 37.0f;
    for (int i = 0; i < K * N; i++)
        b[i] = ((float)p.b[i] - 1.1f) / 3.0f;
    bitnet_runtime *r = runtime_on("cuda");
    for (int c = 0; c < 3; c++) {
        bitnet_ops *ops = NULL;
        OK(bitnet_ops_open(r, in[c], &ops, &err));
        OK(bitnet_ops_matmul(ops, a, b, p.c, M, N, K, &err));
        double u = unit[c], share = 2 * u + u * u + K * 0x1p-23;
        for (int i = 0; i < M * N; i++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double t = (double)a[i / N * K + k] * b[k * N + i % N];
                sum += t, size += fabs(t);
            }
            if (!(fabs(p.c[i] - sum) <= share * size))
                fail_msg("precision %d, %d: %.9g instead of %.9g", c, i, (double)p.c[i], sum);
        }
        bitnet_ops_close(ops);
    }
    bitnet_runtime_close(r);
    product_free(&p);
}

/* ---- models ---- */

/* Cosine of two vectors of logits; *same: the largest are the same. */
static double likeness(const float *x, const float *y, int n, bool *same)
{
    double xy = 0, xx = 0, yy = 0;
    int top_x = 0, top_y = 0;
    for (int i = 0; i < n; i++) {
        xy += (double)x[i] * y[i], xx += (double)x[i] * x[i], yy += (double)y[i] * y[i];
        top_x = x[i] > x[top_x] ? i : top_x;
        top_y = y[i] > y[top_y] ? i : top_y;
    }
    *same = top_x == top_y;
    return xy / sqrt(xx * yy);
}

static void test_gpu_parity(void **state)
{
    (void)state;
    need_gpu();
    nano gpu = model_on("cuda"), cpu = model_on("cpu");
    bitnet_session *on_gpu = nano_session(&gpu, 64, 0, BITNET_KV_F32);
    bitnet_session *on_cpu = nano_session(&cpu, 64, 0, BITNET_KV_F32);
    OK(bitnet_session_append(on_gpu, ids, N_IDS, NULL, NULL, &err));
    OK(bitnet_session_append(on_cpu, ids, N_IDS, NULL, NULL, &err));
    bool same = false;
    double cosine =
        likeness(bitnet_session_logits(on_gpu), bitnet_session_logits(on_cpu), gpu.n_vocab, &same);
    print_message("cosine %.6f\n", cosine);
    assert_true(same && cosine > 0.999);
    bitnet_session_close(on_gpu), bitnet_session_close(on_cpu);
    nano_close(&gpu), nano_close(&cpu);
}

typedef struct worker {
    const nano *n;
    bool right;
    int32_t next[N_NEW];
} worker;

static void *work(void *of)
{
    worker *w = of;
    w->right = go_on(w->n, w->next);
    return NULL;
}

/* Sessions of four threads on one engine: each has what one alone has. */
static void test_concurrent_gpu_operations(void **state)
{
    (void)state;
    need_gpu();
    nano n = model_on("cuda");
    int32_t alone[N_NEW] = {0};
    worker w[N_THREADS];
    pthread_t thread[N_THREADS];
    assert_true(go_on(&n, alone));
    for (int i = 0; i < N_THREADS; i++) {
        w[i] = (worker){.n = &n};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < N_THREADS; i++) {
        assert_true(w[i].right);
        assert_memory_equal(w[i].next, alone, sizeof alone);
    }
    nano_close(&n);
}

/* Products of one token and of many are computed by kernels of the GPU. */
static void test_cuda_kernel_creation(void **state)
{
    (void)state;
    need_gpu();
    bitnet_runtime *r = runtime_on("cuda");
    bitnet_ops *ops = NULL;
    OK(bitnet_ops_open(r, BITNET_PRECISION_FP32, &ops, &err));
    assert_string_equal(bitnet_ops_provider(ops), "cuda");
    for (size_t m = 1; m <= 64; m *= 64) {
        product p = product_new(m, 40, 72);
        bitnet_ops_stats s;
        run_product(ops, &p);
        bitnet_ops_stats_init(&s);
        OK(bitnet_ops_read(ops, &s, &err));
        print_message("m %d: %s\n", (int)m, s.kernel);
        assert_non_null(strstr(s.kernel, "i2s_gpu"));
        assert_int_equal(s.fallback_count, 0);
        product_free(&p);
    }
    bitnet_ops_close(ops);
    bitnet_runtime_close(r);
}

/* A session's memory comes and goes; what it takes was told before. */
static void test_cuda_memory_management(void **state)
{
    (void)state;
    need_gpu();
    nano n = model_on("cuda");
    bitnet_memory_use before, with, after;
    bitnet_memory_use_init(&before), bitnet_memory_use_init(&with), bitnet_memory_use_init(&after);
    OK(bitnet_engine_memory_use(n.engine, &before, &err));
    bitnet_session *s = nano_session(&n, 128, 0, BITNET_KV_F16);
    OK(bitnet_session_append(s, ids, N_IDS, NULL, NULL, &err));
    OK(bitnet_engine_memory_use(n.engine, &with, &err));
    bitnet_session_close(s);
    OK(bitnet_engine_memory_use(n.engine, &after, &err));
    assert_true(before.weights > 0 && before.total > before.weights);
    assert_true(with.caches > before.caches);
    assert_int_equal(with.weights, before.weights);
    assert_int_equal(after.caches, before.caches);
    nano_close(&n);
}

int main(int argc, char **argv)
{
    (void)argc;
    choose_gpu(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu_smoke),
        cmocka_unit_test(test_gpu_quantization),
        cmocka_unit_test(test_gpu_vs_cpu_quantization_accuracy),
        cmocka_unit_test(test_gpu_performance),
        cmocka_unit_test(test_cuda_numerical_accuracy),
        cmocka_unit_test(test_gpu_parity),
        cmocka_unit_test(test_concurrent_gpu_operations),
        cmocka_unit_test(test_cuda_kernel_creation),
        cmocka_unit_test(test_cuda_memory_management),
    };
    return cmocka_run_group_tests_name("engine/guide_gpu", tests, NULL, NULL);
}
