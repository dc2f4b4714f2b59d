/* test_guide.c - the tests the development guide names (T-6) that have no better home; those of a
 * GPU are in test_guide_gpu.c. */
#include "unit/engine/nano.h"

#include <math.h>

#include "base/base.h"
#include "bitnet_extras.h"
#include "device/cpu_features.h"
#include "ops/provider.h"

static bitnet_runtime *runtime_with(const char *device, const char *fake)
{
    bitnet_runtime_options o;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.device = device;
    o.fake_gpu = fake;
    OK(bitnet_runtime_open(&o, &r, &err));
    return r;
}

/* A GPU that is listed and does not compute: work goes to the CPU, is right, and that is said. */
static void test_gpu_quantization_fallback(void **state)
{
    (void)state;
    static const float in[8] = {0.5f, -0.3f, 0.8f, -0.1f, 0, 0.75f, -0.8f, 0.2f};
    static const uint8_t want[2] = {0x62, 0x49}; /* +1 -1 +1 0; 0 +1 -1 0: threshold 0.8 / 3 */
    uint8_t out[2] = {0};
    float scale = 0;
    bitnet_runtime *r = runtime_with("auto", "cuda");
    assert_string_equal(bitnet_runtime_summary(r),
                        "requested=auto detected=[cuda,cpu] selected=cpu");
    bitnet_provider_info p = {0};
    assert_true(bitnet_provider_at(r, 0, &p));
    assert_string_equal(p.name, "cuda");
    assert_false(p.available);
    const bnet_provider *cpu = bnet_provider_find(bitnet_runtime_provider(r));
    assert_non_null(cpu);
    assert_int_equal(cpu->device, BNET_DEV_CPU);
    cpu->quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, in, 8, out, &scale, 1, 8);
    assert_true(fabsf(scale - 0.8f / 1.5f) <= 1e-7f);
    assert_memory_equal(out, want, sizeof want);
    bitnet_runtime_close(r);
}

static bool has(uint32_t feature)
{
    return (bnet_cpu_features() & feature) != 0;
}

/* The family of kernels a platform gets is the best it has. */
static void test_platform_kernel_selection(void **state)
{
    (void)state;
    const char *want = "scalar", *id = NULL;
    if (has(BNET_CPU_NEON))
        want = has(BNET_CPU_I8MM) ? "i8mm" : has(BNET_CPU_DOTPROD) ? "dotprod" : "neon";
    if (bnet_cpu_sve_bytes() > 16) /* else its vectors are no longer than those of NEON */
        want = has(BNET_CPU_SVEI8MM) ? "svei8mm" : strcmp(want, "neon") == 0 ? "sve" : want;
    if (has(BNET_CPU_SSE41))
        want = has(BNET_CPU_AVX512VNNI) ? "avx512vnni"
               : has(BNET_CPU_AVX512BW) ? "avx512"
               : has(BNET_CPU_AVXVNNI)  ? "avxvnni"
               : has(BNET_CPU_AVX2)     ? "avx2"
                                        : "sse41";
    bool rows = strcmp(want, "neon") == 0 || strcmp(want, "scalar") == 0;
    bitnet_runtime *r = runtime_with("cpu", "none");
    for (uint64_t m = 1; m <= 512; m *= 512) {
        bitnet_kernel_query q = {.op = "linear", .format = rows ? "i2s" : "i2s_r16", .dtype = "i8"};
        if (m > 1 && has(BNET_CPU_AMX_INT8))
            want = "amx"; /* its tiles are for many tokens */
        q.m = m;
        q.n = q.k = 256;
        OK(bitnet_runtime_select(r, &q, &id, &err));
        const char *isa = strrchr(id, '.');
        print_message("m %d: %s\n", (int)m, id);
        assert_non_null(isa);
        assert_string_equal(isa + 1, want);
    }
    assert_string_equal(bitnet_runtime_provider(r), strcmp(want, "scalar") ? want : "fallback");
    bitnet_runtime_close(r);
}

/* Every provider of the CPU that is available multiplies; the plain one always is. */
static void test_cpu_provider_creation(void **state)
{
    (void)state;
    static const int8_t a[6] = {3, -2, 5, 1, 7, -4}; /* [2][3] */
    static const uint8_t b[6] = {2, 0, 1, 2, 0, 1};  /* [3][2]: + -, 0 +, - 0 */
    static const float want[4] = {-2, -5, 5, 6};     /* 3-5, -3-2; 1+4, -1+7 */
    bitnet_runtime *r = runtime_with("cpu", "none");
    bitnet_provider_info info;
    int n = 0;
    for (int i = 0; bitnet_provider_at(r, i, &info); i++) {
        if (!info.available)
            continue;
        const bnet_provider *p = bnet_provider_find(info.name);
        assert_non_null(p);
        assert_string_equal(info.device, "cpu");
        float c[4] = {0};
        p->matmul_i2s(a, b, c, 2, 2, 3);
        print_message("%s\n", info.name);
        assert_memory_equal(c, want, sizeof want);
        n++;
    }
    assert_true(n >= 1);
    assert_true(bitnet_provider_at(r, 0, &info));
    const bnet_provider *plain = bnet_provider_find("fallback");
    assert_int_equal(plain->rank, 8);
    bitnet_runtime_close(r);
}

/* ---- memory: the pool a device gets, with an allocator that counts ---- */

typedef struct counted {
    int n_taken, n_given;
    size_t bytes_out;
} counted;

static void *take(void *user, size_t n_bytes)
{
    counted *c = user;
    c->n_taken++;
    c->bytes_out += n_bytes;
    return malloc(n_bytes);
}

static void give(void *user, void *p, size_t n_bytes)
{
    counted *c = user;
    c->n_given++;
    c->bytes_out -= n_bytes;
    free(p);
}

static bitnet_mempool *pool_with(counted *c)
{
    bitnet_mempool_options o;
    bitnet_mempool *pool = NULL;
    bitnet_mempool_options_init(&o);
    o.allocator = (bitnet_allocator){take, give, c};
    OK(bitnet_mempool_open(&o, &pool, &err));
    return pool;
}

static void test_memory_tracking(void **state)
{
    (void)state;
    counted c = {0};
    bitnet_mempool *pool = pool_with(&c);
    bitnet_mempool_stats s;
    bitnet_mempool_leak held[4];
    void *a, *b;
    OK(bitnet_mempool_alloc(pool, 1000, &a, &err));
    int line = __LINE__ + 1;
    OK(bitnet_mempool_alloc(pool, 3000, &b, &err));
    OK(bitnet_mempool_free(pool, a, &err));
    bitnet_mempool_read(pool, &s);
    assert_int_equal(s.current_bytes, 3000);
    assert_int_equal(s.peak_bytes, 4000);
    assert_int_equal(s.n_allocs - s.n_frees, 1);
    assert_int_equal(bitnet_mempool_leaks(pool, held, 4), 1);
    assert_ptr_equal(held[0].p, b);
    assert_int_equal(held[0].n_bytes, 3000);
    assert_int_equal(held[0].line, line);
    assert_non_null(strstr(held[0].file, "test_guide.c"));
    OK(bitnet_mempool_free(pool, b, &err));
    assert_int_equal(bitnet_mempool_leaks(pool, held, 4), 0);
    bitnet_mempool_close(pool);
}

/* Buffers of a size that comes back are not asked of the device again. */
static void test_memory_optimization(void **state)
{
    (void)state;
    counted c = {0};
    bitnet_mempool *pool = pool_with(&c);
    bitnet_mempool_stats s;
    for (int i = 0; i < 1000; i++) {
        void *p[2];
        OK(bitnet_mempool_alloc(pool, 4096, &p[0], &err));
        OK(bitnet_mempool_alloc(pool, 65536, &p[1], &err));
        OK(bitnet_mempool_free(pool, p[0], &err));
        OK(bitnet_mempool_free(pool, p[1], &err));
    }
    bitnet_mempool_read(pool, &s);
    assert_int_equal(c.n_taken, 2);
    assert_int_equal(s.n_hits, 1998);
    assert_int_equal(s.n_misses, 2);
    bitnet_mempool_close(pool);
}

/* Everything goes back: the cache when asked, the rest at the end, also what somebody forgot. */
static void test_memory_cleanup(void **state)
{
    (void)state;
    counted c = {0};
    bitnet_mempool *pool = pool_with(&c);
    bitnet_mempool_stats s;
    void *p, *forgotten;
    OK(bitnet_mempool_alloc(pool, 512, &p, &err));
    OK(bitnet_mempool_alloc(pool, 256, &forgotten, &err));
    OK(bitnet_mempool_free(pool, p, &err));
    bitnet_mempool_read(pool, &s);
    assert_int_equal(s.cached_bytes, 512);
    assert_int_equal(bitnet_mempool_cleanup(pool, true), 1);
    bitnet_mempool_read(pool, &s);
    assert_int_equal(s.cached_bytes, 0);
    assert_int_equal(c.bytes_out, 256);
    bitnet_mempool_close(pool);
    assert_int_equal(c.bytes_out, 0);
    assert_int_equal(c.n_taken, c.n_given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu_quantization_fallback),
        cmocka_unit_test(test_platform_kernel_selection),
        cmocka_unit_test(test_cpu_provider_creation),
        cmocka_unit_test(test_memory_tracking),
        cmocka_unit_test(test_memory_optimization),
        cmocka_unit_test(test_memory_cleanup),
    };
    return cmocka_run_group_tests_name("engine/guide", tests, NULL, NULL);
}
