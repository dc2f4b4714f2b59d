/* test_provider.c - providers in their order (REG-1 .. REG-3), their operations, and eight threads
 * that select, register and run at once. */
#include "test.h"

#include <pthread.h>

#include "ops/provider.h"
#include "records.h"

static bnet_kernel_record ternary_of(const char *id, bnet_device_kind d, const char *isa,
                                     uint32_t needs)
{
    bnet_kernel_record k = record_of(id, "linear", "i2s", "i8", BITNET_TIER_OPTIMIZED);
    k.device = d;
    k.isa = isa;
    k.needs = needs;
    return k;
}

typedef struct machine {
    bnet_capabilities caps[8];
    size_t n;
    int n_asked;
} machine;

static size_t devices_of(void *user, bnet_capabilities *out, size_t cap)
{
    machine *m = user;
    m->n_asked++;
    for (size_t i = 0; i < m->n && i < cap; i++)
        out[i] = m->caps[i];
    return m->n;
}

/* A registry with a ternary kernel of every provider. */
static bnet_registry *every_provider(void)
{
    bnet_registry *r = registry_new();
    must_add(r, ternary_of("x.cuda", BNET_DEV_CUDA, "sm_90", 0));
    must_add(r, ternary_of("x.rocm", BNET_DEV_HIP, "gfx942", 0));
    must_add(r, ternary_of("x.metal", BNET_DEV_METAL, "apple", 0));
    must_add(r, ternary_of("x.avx512", BNET_DEV_CPU, "avx512", BNET_CPU_AVX512F));
    must_add(r, ternary_of("x.avx2", BNET_DEV_CPU, "avx2", BNET_CPU_AVX2));
    must_add(r, ternary_of("x.neon", BNET_DEV_CPU, "neon", BNET_CPU_NEON));
    must_add(r, ternary_of("x.ffi", BNET_DEV_CPU, "ffi", 0));
    return r;
}

static const char *best_of(bnet_registry *r, machine m)
{
    bnet_manager *manager;
    assert_int_equal(bnet_manager_open(r, devices_of, &m, &manager, NULL), BITNET_OK);
    const bnet_provider *p = bnet_manager_best(manager);
    bnet_manager_close(manager);
    return p ? p->name : "";
}

static void test_REG_2_order_of_preference(void **state)
{
    (void)state;
    bnet_registry *r = every_provider();
    machine m = {.n = 4};
    m.caps[0] = cpu_with(BNET_CPU_AVX512F | BNET_CPU_AVX2 | BNET_CPU_NEON);
    m.caps[1] = (bnet_capabilities){.device = BNET_DEV_METAL};
    m.caps[2] = (bnet_capabilities){.device = BNET_DEV_HIP};
    m.caps[3] = cuda_with(9, 0);
    static const char *const order[] = {"cuda", "rocm", "metal", "avx512",
                                        "avx2", "neon", "ffi",   "fallback"};
    bnet_manager *manager;
    assert_int_equal(bnet_manager_open(r, devices_of, &m, &manager, NULL), BITNET_OK);
    const bnet_provider *p;
    int rank = 0;
    for (size_t i = 0; i < BNET_COUNT(order); i++) {
        p = bnet_manager_at(manager, i);
        assert_non_null(p);
        assert_string_equal(p->name, order[i]);
        assert_true(p->rank > rank); /* 1 .. 8 */
        rank = p->rank;
    }
    assert_int_equal(rank, 8);
    assert_null(bnet_manager_at(manager, BNET_COUNT(order)));
    bnet_manager_close(manager);
    /* taking the best one away, device by device and bit by bit */
    assert_string_equal(best_of(r, m), "cuda");
    m.n = 3;
    assert_string_equal(best_of(r, m), "rocm");
    m.n = 2;
    assert_string_equal(best_of(r, m), "metal");
    m.n = 1;
    assert_string_equal(best_of(r, m), "avx512");
    m.caps[0] = cpu_with(BNET_CPU_AVX2 | BNET_CPU_NEON);
    assert_string_equal(best_of(r, m), "avx2");
    m.caps[0] = cpu_with(BNET_CPU_NEON);
    assert_string_equal(best_of(r, m), "neon");
    m.caps[0] = cpu_with(0);
    assert_string_equal(best_of(r, m), "ffi");
    bnet_registry_close(r);
    r = registry_new();
    assert_string_equal(best_of(r, m), "fallback"); /* always there */
    m.n = 0;
    assert_string_equal(best_of(r, m), "");
    bnet_registry_close(r);
}

static void test_REG_3_asked_once(void **state)
{
    (void)state;
    bnet_registry *r = every_provider();
    machine m = {.n = 1};
    m.caps[0] = cpu_with(BNET_CPU_NEON);
    bnet_manager *manager;
    assert_int_equal(bnet_manager_open(r, devices_of, &m, &manager, NULL), BITNET_OK);
    assert_int_equal(m.n_asked, 0);
    const bnet_provider *p = bnet_manager_best(manager);
    for (int i = 0; i < 10; i++) {
        assert_ptr_equal(bnet_manager_best(manager), p);
        bnet_manager_at(manager, (size_t)i);
    }
    assert_int_equal(m.n_asked, 1);
    bnet_manager_close(manager);
    bnet_manager_close(NULL);
    bnet_registry_close(r);
}

/* ---- REG-1: name, availability, two operations, from any thread ---- */

enum { AVX512 = BNET_CPU_AVX512F | BNET_CPU_AVX512BW | BNET_CPU_AVX512VL | BNET_CPU_AVX512DQ };

static bool runs_here(const bnet_provider *p)
{
    static const struct {
        const char *isa;
        uint32_t needs;
    } sets[] = {{"scalar", 0},           {"neon", BNET_CPU_NEON},    {"dotprod", BNET_CPU_NEON},
                {"i8mm", BNET_CPU_NEON}, {"sve", BNET_CPU_NEON},     {"svei8mm", BNET_CPU_NEON},
                {"avx2", BNET_CPU_AVX2}, {"avx512", AVX512},         {"amx", AVX512},
                {"avx512vnni", AVX512},  {"avxvnni", BNET_CPU_AVX2}, {"sse41", BNET_CPU_SSE41}};
    for (size_t i = 0; i < BNET_COUNT(sets); i++)
        if (p->isa && strcmp(p->isa, sets[i].isa) == 0)
            return p->matmul_i2s && (sets[i].needs & ~bnet_cpu_features()) == 0;
    return false;
}

/* What a product is, by nothing of the library: all providers share one body. */
static void plain_matmul(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n, size_t k)
{
    static const int trit[4] = {-1, 0, 1, 0};
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            int sum = 0;
            for (size_t l = 0; l < k; l++)
                sum += a[i * k + l] * trit[b[l * n + j]];
            c[i * n + j] = (float)sum;
        }
}

typedef struct work {
    bnet_registry *r;
    int thread, n_failed;
} work;

static int use_provider(const bnet_provider *p, uint64_t *seed)
{
    enum { M = 3, N = 70, K = 33 };
    int8_t a[M * K];
    uint8_t b[K * N], packed[64];
    float c[M * N], want[M * N], in[24], scales[2], back[24];
    for (size_t i = 0; i < sizeof a; i++)
        a[i] = (int8_t)test_rand(seed);
    for (size_t i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(test_rand(seed) % 4);
    plain_matmul(a, b, want, M, N, K);
    p->matmul_i2s(a, b, c, M, N, K);
    for (int i = 0; i < 24; i++)
        in[i] = (float)(test_rand(seed) % 3) - 1;
    bool ok = true;
    p->quantize(BITNET_QTYPE_TL2, BITNET_SCALE_ABSMAX, in, 24, packed, scales, 2, 12);
    bnet_ref_dequantize(BITNET_QTYPE_TL2, packed, 24, scales, 2, back);
    for (int i = 0; i < 24; i++)
        ok = ok && (back[i] > 0) == (in[i] > 0) && (back[i] < 0) == (in[i] < 0);
    return memcmp(c, want, sizeof c) != 0 || !ok;
}

static void *providers_at_work(void *arg)
{
    work *w = arg;
    uint64_t seed = (uint64_t)w->thread;
    const bnet_provider *p;
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; (p = bnet_provider_at(i)) != NULL; i++)
            if (runs_here(p))
                w->n_failed += use_provider(p, &seed);
    return NULL;
}

static void run_threads(void *(*fn)(void *), bnet_registry *r)
{
    pthread_t t[8];
    work w[8];
    for (int i = 0; i < 8; i++) {
        w[i] = (work){r, i, 0};
        assert_int_equal(pthread_create(&t[i], NULL, fn, &w[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
        assert_int_equal(w[i].n_failed, 0);
    }
}

static void test_REG_1_provider_interface_from_8_threads(void **state)
{
    (void)state;
    size_t n = 0;
    const bnet_provider *p;
    for (size_t i = 0; (p = bnet_provider_at(i)) != NULL; i++) {
        assert_ptr_equal(bnet_provider_find(p->name), p);
        assert_true((p->matmul_i2s == NULL) == (p->quantize == NULL));
        n += runs_here(p);
    }
    assert_true(n >= 1);
    assert_null(bnet_provider_find("AVX2Kernel"));
    assert_non_null(bnet_provider_find("fallback")->matmul_i2s);
    run_threads(providers_at_work, NULL);
}

/* ---- registering, selecting, tuning and running at once ---- */

static void add_one(int *sum)
{
    ++*sum;
}

/* Every thread has a key of its own, which nothing else has. */
static bnet_kernel_query ask_of(int thread, int round)
{
    bnet_kernel_query q = ask("softmax", "tl1", "i8", (uint64_t)round + 1, 8, 8);
    q.format = (bnet_format)(1 + thread);
    return q;
}

static int select_and_run(bnet_registry *r, const bnet_capabilities *c, int thread, int round)
{
    const bnet_kernel_record *k = NULL;
    int sum = 0;
    bnet_kernel_query q = ask_of(thread, round);
    if (bnet_registry_select(r, c, &q, &k, NULL) != BITNET_OK)
        return 1;
    ((void (*)(int *))k->fn)(&sum);
    q = ask("linear", "i2s", "i8", (uint64_t)round + 1, 128, 128);
    return sum != 1 || bnet_registry_select(r, c, &q, &k, NULL) != BITNET_OK;
}

static void *registry_at_work(void *arg)
{
    work *w = arg;
    bnet_capabilities c = cpu_with(0);
    char id[32];
    for (int round = 0; round < 50; round++) {
        snprintf(id, sizeof id, "t%d.%d", w->thread, round);
        bnet_kernel_query q = ask_of(w->thread, round);
        bnet_kernel_record k =
            record_of(id, "softmax", "tl1", "i8", (bitnet_kernel_tier)(round % 4));
        k.format = q.format;
        k.fn = (bnet_kernel_fn)add_one;
        w->n_failed += bnet_registry_add(w->r, &k, NULL) != BITNET_OK;
        w->n_failed += bnet_registry_tune(w->r, &q, id, NULL) != BITNET_OK;
        w->n_failed += select_and_run(w->r, &c, w->thread, round);
        w->n_failed += bnet_registry_find(w->r, id) == NULL;
    }
    return NULL;
}

static void test_REG_9_select_register_run_from_8_threads(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    size_t before = bnet_registry_count(r);
    run_threads(registry_at_work, r);
    assert_int_equal(bnet_registry_count(r), before + 8 * 50);
    for (size_t i = 0; i < bnet_registry_count(r); i++)
        assert_int_equal(bnet_registry_at(r, i)->slot, i);
    bnet_registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_REG_1_provider_interface_from_8_threads),
        cmocka_unit_test(test_REG_2_order_of_preference),
        cmocka_unit_test(test_REG_3_asked_once),
        cmocka_unit_test(test_REG_9_select_register_run_from_8_threads),
    };
    return cmocka_run_group_tests_name("provider", tests, NULL, NULL);
}
