/* test_user.c - a program with kernels of its own, as bitnet_extras.h promises: it loads PTX into
 * the context engines compute in, takes memory of the device from a pool, submits work to streams
 * and waits for it. It runs on the emulated device or on a real one (device.h), and what must
 * overlap must overlap in both. */
#include "device.h"
#include "bitnet_extras.h"

#include <pthread.h>

#include "user_kernel.h"

enum { N = 1000, BLOCK = 128, SPIN = 128 };

static bitnet_cuda *cuda;

static int open_device(void **state)
{
    bitnet_error err = {0};
    (void)state;
    if (bitnet_cuda_open(0, &cuda, &err) == BITNET_OK)
        return 0;
    print_error("%s\n", err.message);
    return 1;
}

static int close_device(void **state)
{
    (void)state;
    bitnet_cuda_close(cuda);
    return 0;
}

static bitnet_mempool *open_pool(void)
{
    bitnet_mempool *pool = NULL;
    bitnet_mempool_options o;
    bitnet_mempool_options_init(&o);
    o.allocator = bitnet_cuda_allocator(cuda);
    OK(bitnet_mempool_open(&o, &pool, &err));
    return pool;
}

static void *take(bitnet_mempool *pool, size_t n_bytes)
{
    void *p = NULL;
    OK(bitnet_mempool_alloc(pool, n_bytes, &p, &err));
    return p;
}

static bitnet_work *submit(const bitnet_work_options *o)
{
    bitnet_work *w = NULL;
    OK(bitnet_work_submit(cuda, o, &w, &err));
    return w;
}

static bitnet_work *copy(int stream, bitnet_copy kind, void *dst, const void *src, size_t n,
                         const bitnet_work *after)
{
    bitnet_work_options o;
    bitnet_work_options_init(&o);
    o.stream = stream;
    o.copy = kind;
    o.dst = dst;
    o.src = src;
    o.n_bytes = n;
    o.after = after;
    return submit(&o);
}

static bitnet_work *launch(int stream, void *kernel, unsigned n_threads, void **params,
                           const bitnet_work *after)
{
    bitnet_work_options o;
    bitnet_work_options_init(&o);
    o.stream = stream;
    o.kernel = kernel;
    o.grid[0] = (n_threads + BLOCK - 1) / BLOCK;
    o.block[0] = BLOCK;
    o.params = params;
    o.after = after;
    return submit(&o);
}

static void finish(bitnet_work *w)
{
    OK(bitnet_work_wait(w, &err));
    assert_true(bitnet_work_done(w));
    bitnet_work_free(w);
}

/* Up, a kernel of the program's own, down: in three streams, each after the one before. */
static void test_K_24_P_5_a_users_kernel(void **state)
{
    (void)state;
    bitnet_cuda_module *module = NULL;
    void *kernel = NULL;
    float *host = bitnet_cuda_host_alloc(cuda, 2 * N * sizeof *host), a = 0.5f;
    uint32_t n = N;
    assert_non_null(host);
    assert_non_null(bitnet_cuda_context(cuda));
    OK(bitnet_cuda_module_load(cuda, user_kernel, &module, &err));
    assert_non_null(bitnet_cuda_module_handle(module));
    OK(bitnet_cuda_kernel(cuda, module, "user_scale_add", &kernel, &err));
    bitnet_mempool *pool = open_pool();
    float *x = take(pool, N * sizeof *x), *y = take(pool, N * sizeof *y);
    for (int i = 0; i < N; i++) {
        host[i] = (float)i;
        host[N + i] = 1000.0f;
    }
    bitnet_work *up[2] = {copy(0, BITNET_COPY_TO_DEVICE, x, host, N * sizeof *x, NULL),
                          copy(0, BITNET_COPY_TO_DEVICE, y, host + N, N * sizeof *y, NULL)};
    void *params[] = {&y, &x, &a, &n};
    bitnet_work *run = launch(1, kernel, N, params, up[1]);
    a = 77; /* arguments were taken when it was submitted */
    bitnet_work *down = copy(2, BITNET_COPY_TO_HOST, host, y, N * sizeof *y, run);
    finish(down);
    for (int i = 0; i < N; i++)
        assert_true(host[i] == 1000.0f + 0.5f * (float)i);
    finish(up[0]), finish(up[1]), finish(run);
    OK(bitnet_mempool_free(pool, x, &err));
    OK(bitnet_mempool_free(pool, y, &err));
    bitnet_mempool_close(pool);
    bitnet_cuda_host_free(cuda, host);
    bitnet_cuda_module_free(module);
}

/* The context is the one the driver calls primary: other CUDA code of the process has it too. */
static void test_K_24_handles(void **state)
{
    (void)state;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL, *kernel = NULL;
    int (*retain)(void **, int) = NULL, (*release)(int) = NULL;
    assert_non_null(lib);
    void *f = dlsym(lib, "cuDevicePrimaryCtxRetain");
    memcpy(&retain, &f, sizeof f);
    f = dlsym(lib, "cuDevicePrimaryCtxRelease_v2");
    memcpy(&release, &f, sizeof f);
    assert_int_equal(retain(&context, 0), 0);
    assert_ptr_equal(context, bitnet_cuda_context(cuda));
    release(0);
    dlclose(lib);
    assert_non_null(bitnet_cuda_stream(cuda, 0));
    assert_ptr_not_equal(bitnet_cuda_stream(cuda, 1), bitnet_cuda_stream(cuda, 0));
    assert_null(bitnet_cuda_stream(cuda, BITNET_CUDA_STREAMS));
    assert_null(bitnet_cuda_stream(cuda, -1));
    OK(bitnet_cuda_kernel(cuda, NULL, "bnet_ref_add", &kernel, &err)); /* of this build */
    assert_non_null(kernel);
}

static void test_K_24_what_is_wrong_is_said(void **state)
{
    (void)state;
    bitnet_cuda_module *module = NULL;
    bitnet_error why = {0};
    void *kernel = NULL;
    assert_int_equal(bitnet_cuda_module_load(cuda, "// no kernel at all\n", &module, &why),
                     BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(why.message, "loading a module: CUDA_ERROR_INVALID_"));
    OK(bitnet_cuda_module_load(cuda, user_kernel, &module, &err));
    assert_int_equal(bitnet_cuda_kernel(cuda, module, "absent", &kernel, &why),
                     BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(why.message, "the module has no kernel \"absent\""));
    bitnet_work_options o;
    bitnet_work *w = NULL;
    bitnet_work_options_init(&o);
    assert_int_equal(bitnet_work_submit(cuda, &o, &w, &why), BITNET_ARGUMENT);
    o.stream = BITNET_CUDA_STREAMS;
    assert_int_equal(bitnet_work_submit(cuda, &o, &w, &why), BITNET_ARGUMENT);
    assert_non_null(strstr(why.message, "stream"));
    /* the module is left to bitnet_cuda_close */
}

static void check_numbers(const uint32_t *v, uint32_t n_rounds)
{
    for (uint32_t i = 0; i < SPIN; i += 17) {
        uint32_t want = i;
        for (uint32_t r = 0; r < n_rounds; r++)
            want = want * 1664525u + 1013904223u;
        assert_int_equal(v[i], want);
    }
}

typedef struct timeline {
    double begin[2], end[2];
} timeline;

/* The same kernel twice, in these streams; times and results. */
static timeline spin_twice(void *kernel, int first, int second, uint32_t n_rounds)
{
    bitnet_mempool *pool = open_pool();
    uint32_t *host = bitnet_cuda_host_alloc(cuda, 2 * SPIN * sizeof *host);
    uint32_t *out[2] = {take(pool, SPIN * sizeof *out[0]), take(pool, SPIN * sizeof *out[0])};
    int stream[2] = {first, second};
    bitnet_work *run[2], *down[2];
    timeline t;
    for (int i = 0; i < 2; i++) {
        void *params[] = {&out[i], &n_rounds};
        run[i] = launch(stream[i], kernel, SPIN, params, NULL);
    }
    bool early = bitnet_work_done(run[1]);
    for (int i = 0; i < 2; i++)
        down[i] = copy(stream[i], BITNET_COPY_TO_HOST, host + i * SPIN, out[i], SPIN * sizeof *host,
                       NULL);
    for (int i = 0; i < 2; i++) {
        OK(bitnet_work_times(run[i], &t.begin[i], &t.end[i], &err));
        finish(down[i]);
        finish(run[i]);
        check_numbers(host + i * SPIN, n_rounds);
        OK(bitnet_mempool_free(pool, out[i], &err));
    }
    assert_false(early); /* submitting did not wait */
    bitnet_mempool_close(pool);
    bitnet_cuda_host_free(cuda, host);
    return t;
}

static double overlap(const timeline *t)
{
    double begin = t->begin[0] > t->begin[1] ? t->begin[0] : t->begin[1];
    double end = t->end[0] < t->end[1] ? t->end[0] : t->end[1];
    return end - begin;
}

static void print_timeline(const char *what, const timeline *t)
{
    print_message("%s: first %.3f .. %.3f ms, second %.3f .. %.3f ms, together %.3f ms\n", what,
                  0.0, t->end[0] - t->begin[0], t->begin[1] - t->begin[0], t->end[1] - t->begin[0],
                  overlap(t) > 0 ? overlap(t) : 0.0);
}

/* In two streams at the same time, in one stream one after the other; the numbers do not change. */
static void test_P_2_two_streams_overlap(void **state)
{
    (void)state;
    const uint32_t n_rounds = 300000; /* some ms */
    bitnet_cuda_module *module = NULL;
    void *kernel = NULL;
    OK(bitnet_cuda_module_load(cuda, user_kernel, &module, &err));
    OK(bitnet_cuda_kernel(cuda, module, "user_spin", &kernel, &err));
    spin_twice(kernel, 1, 2, 1000); /* loads what is loaded at first use */
    timeline two = spin_twice(kernel, 1, 2, n_rounds), one = spin_twice(kernel, 3, 3, n_rounds);
    print_timeline("two streams", &two);
    print_timeline("one stream", &one);
    assert_true(overlap(&two) > 0.5 * (two.end[0] - two.begin[0]));
    assert_true(one.begin[1] >= one.end[0] - 0.01);
    bitnet_cuda_module_free(module);
}

/* A copy from pinned memory while a kernel runs. */
static void test_P_2_P_5_copies_overlap_kernels(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    bitnet_cuda_module *module = NULL;
    void *kernel = NULL;
    OK(bitnet_cuda_module_load(cuda, user_kernel, &module, &err));
    OK(bitnet_cuda_kernel(cuda, module, "user_spin", &kernel, &err));
    bitnet_mempool *pool = open_pool();
    uint32_t *out = take(pool, SPIN * sizeof *out), n_rounds = 300000;
    uint8_t *host = bitnet_cuda_host_alloc(cuda, BYTES), *dst = take(pool, BYTES);
    void *params[] = {&out, &n_rounds};
    memset(host, 3, BYTES);
    bitnet_work *run = launch(1, kernel, SPIN, params, NULL);
    bitnet_work *up = copy(2, BITNET_COPY_TO_DEVICE, dst, host, BYTES, NULL);
    double begin[2], end[2];
    OK(bitnet_work_times(run, &begin[0], &end[0], &err));
    OK(bitnet_work_times(up, &begin[1], &end[1], &err));
    print_message("kernel %.3f ms; copy of 1 MiB %.3f ms, done %.3f ms before the kernel\n",
                  end[0] - begin[0], end[1] - begin[1], end[0] - end[1]);
    assert_true(end[1] < end[0]);
    finish(run), finish(up);
    OK(bitnet_mempool_free(pool, out, &err));
    OK(bitnet_mempool_free(pool, dst, &err));
    bitnet_mempool_close(pool);
    bitnet_cuda_host_free(cuda, host);
    bitnet_cuda_module_free(module);
}

static char leaks[512];

static void keep_leak(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user, (void)level, (void)module;
    snprintf(leaks, sizeof leaks, "%s", message);
}

/* The tracking pool over memory of the device: peak, reuse, who forgot what. */
static void test_P_1_pool_over_stream_ordered_memory(void **state)
{
    (void)state;
    bitnet_mempool_options o;
    bitnet_mempool_stats s;
    bitnet_mempool *pool = NULL;
    bitnet_mempool_options_init(&o);
    o.allocator = bitnet_cuda_allocator(cuda);
    o.max_pool_size = 1 << 20;
    o.log = keep_leak;
    OK(bitnet_mempool_open(&o, &pool, &err));
    void *a = take(pool, 4096), *b = take(pool, 8192);
    OK(bitnet_mempool_free(pool, a, &err));
    assert_ptr_equal(take(pool, 4096), a);
    void *beyond = NULL;
    bitnet_error why;
    assert_int_equal(bitnet_mempool_alloc(pool, 2 << 20, &beyond, &why), BITNET_MEMORY);
    OK(bitnet_mempool_free(pool, a, &err));
    bitnet_mempool_read(pool, &s);
    assert_int_equal(s.peak_bytes, 4096 + 8192);
    assert_int_equal(s.current_bytes, 8192);
    assert_int_equal(s.n_hits, 1);
    bitnet_mempool_leak leak;
    assert_int_equal(bitnet_mempool_leaks(pool, &leak, 1), 1);
    assert_ptr_equal(leak.p, b);
    bitnet_mempool_close(pool);
    assert_non_null(strstr(leaks, "8192 bytes"));
}

/* ---- two engines at once, each with a stream of its own ---- */

enum { STORY = 48 };

typedef struct teller {
    bitnet_engine *engine;
    int32_t ids[STORY];
    size_t n_ids;
} teller;

static void *tell(void *user)
{
    teller *t = user;
    bitnet_session *session = NULL;
    bitnet_sampler *sampler = NULL;
    bitnet_sampler_options greedy;
    bitnet_generate_options o;
    bitnet_generate_result result = {0};
    int32_t ids[32];
    size_t n = 0;
    bitnet_sampler_options_init(&greedy);
    greedy.temperature = 0;
    bitnet_generate_options_init(&o);
    o.max_tokens = STORY;
    OK(bitnet_session_open(t->engine, NULL, &session, &err));
    OK(bitnet_sampler_open(&greedy, bitnet_engine_model(t->engine)->n_vocab, &sampler, &err));
    OK(bitnet_tokenize(t->engine, "Once upon a time", 16, 0, ids, 32, &n, &err));
    OK(bitnet_generate(session, sampler, ids, n, &o, &result, &err));
    t->n_ids = result.n_generated < STORY ? result.n_generated : STORY;
    memcpy(t->ids, bitnet_session_tokens(session) + n, (t->n_ids - 1) * sizeof *t->ids);
    t->ids[t->n_ids - 1] = result.last_id;
    bitnet_sampler_close(sampler);
    bitnet_session_close(session);
    return NULL;
}

static void test_P_2_two_engines_at_once(void **state)
{
    (void)state;
    teller all[3] = {{0}};
    pthread_t threads[2];
    bitnet_runtime *runtime = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.device = "cuda";
    OK(bitnet_runtime_open(&o, &runtime, &err));
    for (int i = 0; i < 3; i++)
        OK(bitnet_engine_open(runtime, test_model(), NULL, &all[i].engine, &err));
    tell(&all[2]); /* alone */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, tell, &all[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(all[2].n_ids > 8);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(all[i].n_ids, all[2].n_ids);
        assert_memory_equal(all[i].ids, all[2].ids, all[2].n_ids * sizeof *all[2].ids);
    }
    for (int i = 0; i < 3; i++)
        bitnet_engine_close(all[i].engine);
    bitnet_runtime_close(runtime);
}

/* A failure while the build's images are loaded: what was loaded before is not loaded once more. */
static void test_images_are_loaded_once(void **state)
{
    (void)state;
    if (!emulated) /* a real device refuses nothing */
        return;
    bitnet_cuda *other = NULL;
    bitnet_error why = {0};
    void *kernel = NULL;
    size_t n_images = 0;
    while (bitnet_cuda_image(n_images))
        n_images++;
    OK(bitnet_cuda_open(0, &other, &err));
    uint64_t before = emulated->n_modules;
    setenv("BITNET_EMULATED_FAIL", "cuModuleLoadData 3 2", 1);
    assert_int_equal(bitnet_cuda_kernel(other, NULL, "bnet_ref_add", &kernel, &why), BITNET_MEMORY);
    assert_int_equal(emulated->n_modules - before, 2);
    unsetenv("BITNET_EMULATED_FAIL");
    for (int i = 0; i < 2; i++)
        OK(bitnet_cuda_kernel(other, NULL, "bnet_ref_add", &kernel, &err));
    assert_int_equal(emulated->n_modules - before, n_images);
    bitnet_cuda_close(other);
}

/* Once more with memory pools in the driver. */
int main(void)
{
    find_device("90");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K_24_P_5_a_users_kernel),
        cmocka_unit_test(test_K_24_handles),
        cmocka_unit_test(test_K_24_what_is_wrong_is_said),
        cmocka_unit_test(test_P_2_two_streams_overlap),
        cmocka_unit_test(test_P_2_P_5_copies_overlap_kernels),
        cmocka_unit_test(test_P_2_two_engines_at_once),
        cmocka_unit_test(test_P_1_pool_over_stream_ordered_memory),
        cmocka_unit_test(test_images_are_loaded_once),
    };
    int failed = cmocka_run_group_tests(tests, open_device, close_device);
    if (!emulated)
        return failed;
    setenv("BITNET_EMULATED_POOLS", "1", 1);
    return failed + cmocka_run_group_tests(tests, open_device, close_device);
}
