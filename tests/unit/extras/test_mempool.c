/* The memory pool: scripts of calls with the counters they must leave, limits, expiry by a clock in
 * the test's hand, leaks, an allocator in the test's hand, many threads. */
#include "test.h"

#include <pthread.h>

#include "base/base.h"
#include "bitnet_extras.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        if ((call) != BITNET_OK)                                                                   \
            fail_msg("%s: %s", #call, err.message);                                                \
    } while (0)

#define FAILS(call, status_, text_)                                                                \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        bitnet_status st_ = (call);                                                                \
        if (st_ != (status_) || !strstr(err.message, text_))                                       \
            fail_msg("%s: status %d, message \"%s\"", #call, (int)st_, err.message);               \
    } while (0)

#define TAKE(pool, n, out) OK(bitnet_mempool_alloc_at(pool, n, __FILE__, __LINE__, out, &err))
#define GIVE(pool, p)      OK(bitnet_mempool_free(pool, p, &err))

/* A world: an allocator that counts and can fail, a clock that stands still. */
typedef struct world {
    double now_ms;
    size_t n_takes, n_gives, n_bytes;
    size_t limit; /* bytes it has */
    char log[2048];
} world;

static void *world_take(void *user, size_t n)
{
    world *w = user;
    if (w->n_bytes + n > w->limit)
        return NULL;
    w->n_takes++;
    w->n_bytes += n;
    return malloc(n);
}

static void world_give(void *user, void *p, size_t n)
{
    world *w = user;
    w->n_gives++;
    w->n_bytes -= n;
    free(p);
}

static double world_clock(void *user)
{
    return ((world *)user)->now_ms;
}

static void world_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    world *w = user;
    size_t n = strlen(w->log);
    snprintf(w->log + n, sizeof w->log - n, "%d %s %s\n", (int)level, module, message);
}

static bitnet_mempool_options world_config(world *w)
{
    bitnet_mempool_options c;
    bitnet_mempool_options_init(&c);
    *w = (world){.now_ms = 1000, .limit = SIZE_MAX / 2};
    c.allocator = (bitnet_allocator){world_take, world_give, w};
    c.clock_ms = world_clock;
    c.clock_user = w;
    c.log = world_log;
    c.log_user = w;
    return c;
}

static bitnet_mempool *open_pool(const bitnet_mempool_options *c)
{
    bitnet_mempool *p = NULL;
    OK(bitnet_mempool_open(c, &p, &err));
    return p;
}

static bitnet_mempool_stats stats_of(bitnet_mempool *p)
{
    bitnet_mempool_stats s;
    bitnet_mempool_read(p, &s);
    return s;
}

static void test_M_1_config_defaults(void **state)
{
    (void)state;
    bitnet_mempool_options c;
    bitnet_mempool_options_init(&c);
    assert_int_equal(c.max_pool_size, 2147483648u);
    assert_int_equal(c.max_cached_buffers, 1000);
    assert_true(c.cleanup_interval_ms == 30000.0);
    assert_true(c.tracking);
}

static void test_M_1_limits(void **state)
{
    (void)state;
    world w;
    bitnet_mempool_options c = world_config(&w);
    c.max_pool_size = 1000;
    c.max_cached_buffers = 3;
    bitnet_mempool *p = open_pool(&c);
    void *a, *b, *none = &w;
    TAKE(p, 600, &a);
    FAILS(bitnet_mempool_alloc_at(p, 401, "f", 1, &none, &err), BITNET_MEMORY,
          "max_pool_size 1000");
    assert_ptr_equal(none, &w); /* written only on success */
    FAILS(bitnet_mempool_alloc_at(p, SIZE_MAX, "f", 1, &none, &err), BITNET_MEMORY, "600 in use");
    FAILS(bitnet_mempool_alloc_at(p, 0, "f", 1, &none, &err), BITNET_ARGUMENT, "0 bytes");
    TAKE(p, 400, &b); /* exactly full */
    GIVE(p, a);
    TAKE(p, 500, &a); /* the cached 600 had to make way */
    assert_int_equal(w.n_bytes, 900);
    assert_int_equal(stats_of(p).n_refused, 2);
    GIVE(p, a);
    GIVE(p, b);
    void *many[5];
    for (int i = 0; i < 5; i++) /* five sizes: the limit is a total, not one per size */
        TAKE(p, (size_t)(10 + i), &many[i]);
    for (int i = 0; i < 5; i++)
        GIVE(p, many[i]);
    assert_int_equal(stats_of(p).n_cached, 3);
    assert_int_equal(stats_of(p).cached_bytes, 12 + 13 + 14);
    bitnet_mempool_close(p);
    assert_int_equal(w.n_bytes, 0);
    assert_int_equal(w.n_takes, w.n_gives);
}

/* A call and the counters behind it: hits, misses, cached, current, peak. */
typedef struct call {
    char op; /* t(ake), g(ive), w(ait) */
    int slot;
    size_t n; /* bytes, or milliseconds */
    uint64_t hits, misses, cached, current, peak;
} call;

static void test_M_2_M_3_M_7_script(void **state)
{
    (void)state;
    static const call script[] = {
        {'t', 0, 100, 0, 1, 0, 100, 100},  {'t', 1, 100, 0, 2, 0, 200, 200},
        {'g', 0, 0, 0, 2, 1, 100, 200},    {'t', 2, 100, 1, 2, 0, 200, 200},
        {'t', 0, 64, 1, 3, 0, 264, 264},   {'g', 0, 0, 1, 3, 1, 200, 264},
        {'t', 0, 65, 1, 4, 1, 265, 265}, /* near is not equal */
        {'g', 1, 0, 1, 4, 2, 165, 265},    {'g', 2, 0, 1, 4, 3, 65, 265},
        {'w', 0, 29999, 1, 4, 3, 65, 265}, {'t', 1, 100, 2, 4, 2, 165, 265},
        {'g', 1, 0, 2, 4, 3, 65, 265},     {'w', 0, 1, 2, 4, 3, 65, 265},
        {'t', 1, 8, 2, 5, 1, 73, 265}, /* 30 s: two expired, the one used a moment ago stays */
        {'g', 1, 0, 2, 5, 2, 65, 265},     {'g', 0, 0, 2, 5, 3, 0, 265},
        {'t', 0, 100, 3, 5, 2, 100, 265},  {'g', 0, 0, 3, 5, 3, 0, 265},
    };
    world w;
    bitnet_mempool_options c = world_config(&w);
    bitnet_mempool *p = open_pool(&c);
    void *slots[3] = {0};
    uint64_t n_takes = 0, n_gives = 0;
    for (size_t i = 0; i < sizeof script / sizeof script[0]; i++) {
        const call *k = &script[i];
        if (k->op == 't') {
            TAKE(p, k->n, &slots[k->slot]);
            memset(slots[k->slot], 0x5a, k->n);
            n_takes++;
        } else if (k->op == 'g') {
            GIVE(p, slots[k->slot]);
            n_gives++;
        } else {
            w.now_ms += (double)k->n;
        }
        bitnet_mempool_stats s = stats_of(p);
        if (s.n_hits != k->hits || s.n_misses != k->misses || s.n_cached != k->cached ||
            s.current_bytes != k->current || s.peak_bytes != k->peak || s.n_allocs != n_takes ||
            s.n_frees != n_gives || s.allocated_bytes - s.freed_bytes != k->current)
            fail_msg("call %zu: hits %d misses %d cached %d current %d peak %d", i, (int)s.n_hits,
                     (int)s.n_misses, (int)s.n_cached, (int)s.current_bytes, (int)s.peak_bytes);
        assert_int_equal(w.n_bytes, s.current_bytes + s.cached_bytes);
    }
    assert_int_equal(stats_of(p).n_expired, 2);
    assert_int_equal(bitnet_mempool_cleanup(p, false), 0);
    w.now_ms += 30000;
    assert_int_equal(bitnet_mempool_cleanup(p, false), 3);
    bitnet_mempool_close(p);
    assert_int_equal(w.n_bytes, 0);
}

static void test_M_2_hit_reuses_newest(void **state)
{
    (void)state;
    world w;
    bitnet_mempool_options c = world_config(&w);
    bitnet_mempool *p = open_pool(&c);
    void *a, *b, *x;
    TAKE(p, 32, &a);
    TAKE(p, 32, &b);
    GIVE(p, a);
    GIVE(p, b);
    TAKE(p, 32, &x);
    assert_ptr_equal(x, b); /* still warm */
    TAKE(p, 32, &x);
    assert_ptr_equal(x, a);
    GIVE(p, a);
    FAILS(bitnet_mempool_free(p, a, &err), BITNET_ARGUMENT, "freed before");
    FAILS(bitnet_mempool_free(p, &w, &err), BITNET_ARGUMENT, "belongs elsewhere");
    OK(bitnet_mempool_free(p, NULL, &err));
    GIVE(p, b);
    assert_int_equal(stats_of(p).current_bytes, 0);
    assert_int_equal(bitnet_mempool_cleanup(p, true), 2);
    bitnet_mempool_close(p);
}

/* More buffers than the table of addresses begins with. */
static void test_M_2_many(void **state)
{
    (void)state;
    enum { N = 3000 };
    static void *held[N];
    world w;
    bitnet_mempool_options c = world_config(&w);
    c.max_cached_buffers = N;
    bitnet_mempool *p = open_pool(&c);
    uint64_t seed = 7;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N; i++)
            TAKE(p, 1 + i % 700, &held[i]);
        for (size_t i = N; i > 1; i--) { /* give back in disorder */
            size_t j = test_rand(&seed) % i;
            void *t = held[i - 1];
            held[i - 1] = held[j];
            held[j] = t;
        }
        for (size_t i = 0; i < N; i++)
            GIVE(p, held[i]);
    }
    bitnet_mempool_stats s = stats_of(p);
    assert_int_equal(s.n_misses, N);
    assert_int_equal(s.n_hits, N);
    assert_int_equal(s.current_bytes, 0);
    assert_int_equal(bitnet_mempool_leaks(p, NULL, 0), 0);
    bitnet_mempool_close(p);
    assert_int_equal(w.n_bytes, 0);
}

static void test_M_4_leaks(void **state)
{
    (void)state;
    world w;
    bitnet_mempool_options c = world_config(&w);
    bitnet_mempool *p = open_pool(&c);
    void *a, *b;
    TAKE(p, 16, &a); /* reused below: its site must be the later one */
    GIVE(p, a);
    assert_int_equal(bitnet_mempool_leaks(p, NULL, 0), 0);
    OK(bitnet_mempool_alloc_at(p, 4096, "first.c", 42, &b, &err));
    w.now_ms += 2500;
    OK(bitnet_mempool_alloc_at(p, 16, "second.c", 7, &a, &err));
    w.now_ms += 10000;
    bitnet_mempool_leak held[4];
    assert_int_equal(bitnet_mempool_leaks(p, held, 4), 2);
    assert_ptr_equal(held[0].p, b);
    assert_int_equal(held[0].n_bytes, 4096);
    assert_true(held[0].age_ms == 12500);
    assert_string_equal(held[0].file, "first.c");
    assert_int_equal(held[0].line, 42);
    assert_string_equal(held[1].file, "second.c");
    assert_true(held[1].age_ms == 10000);
    assert_int_equal(held[1].n_bytes, 16);
    assert_int_equal(held[1].line, 7);
    GIVE(p, a);
    bitnet_mempool_close(p);
    assert_string_equal(
        w.log, "1 mempool leak: 4096 bytes of device 0 held for 12.5 s, taken at first.c:42\n");
    assert_int_equal(w.n_bytes, 0);
    c = world_config(&w);
    c.tracking = false;
    p = open_pool(&c);
    TAKE(p, 8, &a);
    assert_int_equal(bitnet_mempool_leaks(p, held, 4), 0);
    assert_int_equal(stats_of(p).current_bytes, 8);
    bitnet_mempool_close(p);
    assert_string_equal(w.log, "");
    assert_int_equal(w.n_bytes, 0);
}

static void test_M_5_device_id(void **state)
{
    (void)state;
    world w[3];
    bitnet_mempool *p[3];
    void *b[3];
    for (int i = 0; i < 3; i++) {
        bitnet_mempool_options c = world_config(&w[i]);
        c.device_id = 2 * i;
        p[i] = open_pool(&c);
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k <= i; k++)
            TAKE(p[i], 100, &b[i]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bitnet_mempool_device_id(p[i]), 2 * i);
        assert_int_equal(stats_of(p[i]).current_bytes, 100 * (i + 1));
    }
    FAILS(bitnet_mempool_free(p[2], b[0], &err), BITNET_ARGUMENT, "device 4");
    for (int i = 0; i < 3; i++)
        bitnet_mempool_close(p[i]);
}

static void test_M_9_allocator(void **state)
{
    (void)state;
    world w;
    bitnet_mempool_options c = world_config(&w);
    w.limit = 1000;
    bitnet_mempool *p = open_pool(&c);
    void *a, *b;
    TAKE(p, 700, &a);
    FAILS(bitnet_mempool_alloc_at(p, 400, "f", 1, &b, &err), BITNET_MEMORY, "no 400 bytes");
    assert_int_equal(w.n_takes, 1);
    GIVE(p, a);
    TAKE(p, 400, &b); /* the cache gave up its 700 for it */
    assert_int_equal(w.n_bytes, 400);
    assert_int_equal(stats_of(p).n_refused, 1);
    GIVE(p, b);
    bitnet_mempool_close(p);
    assert_int_equal(w.n_takes, w.n_gives);
    bitnet_mempool_options_init(&c); /* the host's own */
    p = open_pool(&c);
    TAKE(p, 100, &a);
    assert_int_equal((uintptr_t)a % 64, 0);
    GIVE(p, a);
    bitnet_mempool_close(p);
    bitnet_mempool_close(NULL);
}

static void test_V_6_health(void **state)
{
    (void)state;
    world w;
    bitnet_mempool_options c = world_config(&w);
    c.max_pool_size = 1000;
    bitnet_mempool *p = open_pool(&c);
    bitnet_error found = {0};
    double begin = bnet_now_ms();
    bitnet_status st = bitnet_memory_health(p, 1000, &found);
    assert_true(bnet_now_ms() - begin < 100);
    assert_true(st == BITNET_OK || strncmp(found.message, "memory: host:", 13) == 0);
    void *a;
    OK(bitnet_mempool_alloc_at(p, 950, "here.c", 5, &a, &err));
    assert_int_equal(bitnet_mempool_alloc_at(p, 951, "here.c", 6, &a, NULL), BITNET_MEMORY);
    w.now_ms += 1001;
    assert_int_equal(bitnet_memory_health(p, 1000, &found), BITNET_MEMORY_GATE);
    assert_non_null(strstr(found.message, "950 of 1000 bytes are in use"));
    assert_non_null(strstr(found.message, "1 requests were refused"));
    assert_non_null(strstr(found.message, "held for 1.0 s, taken at here.c:5"));
    bitnet_mempool_close(p);
}

enum { N_THREADS = 8, N_ROUNDS = 2000 };

static void *worker(void *arg)
{
    bitnet_mempool *p = arg;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    void *held[8] = {0};
    size_t size[8];
    for (int i = 0; i < N_ROUNDS; i++) {
        int k = (int)(test_rand(&seed) % 8);
        if (held[k]) {
            unsigned char *b = held[k];
            for (size_t j = 0; j < size[k]; j++)
                if (b[j] != (unsigned char)size[k])
                    return "another thread wrote into a buffer";
            if (bitnet_mempool_free(p, held[k], NULL) != BITNET_OK)
                return "give failed";
            held[k] = NULL;
        } else {
            size[k] = 1 + test_rand(&seed) % 40;
            if (bitnet_mempool_alloc_at(p, size[k], __FILE__, __LINE__, &held[k], NULL) !=
                BITNET_OK)
                return "take failed";
            memset(held[k], (int)size[k], size[k]);
        }
        if (i % 512 == 0)
            bitnet_mempool_cleanup(p, true);
    }
    for (int k = 0; k < 8; k++)
        bitnet_mempool_free(p, held[k], NULL);
    return NULL;
}

static void test_M_2_threads(void **state)
{
    (void)state;
    bitnet_mempool_options c;
    bitnet_mempool_options_init(&c);
    bitnet_mempool *p = open_pool(&c);
    pthread_t t[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, worker, p), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *wrong;
        pthread_join(t[i], &wrong);
        if (wrong)
            fail_msg("thread %d: %s", i, (char *)wrong);
    }
    bitnet_mempool_stats s = stats_of(p);
    assert_int_equal(s.current_bytes, 0);
    assert_int_equal(s.n_allocs, s.n_frees);
    assert_int_equal(s.n_hits + s.n_misses, s.n_allocs);
    bitnet_mempool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M_1_config_defaults),
        cmocka_unit_test(test_M_1_limits),
        cmocka_unit_test(test_M_2_M_3_M_7_script),
        cmocka_unit_test(test_M_2_hit_reuses_newest),
        cmocka_unit_test(test_M_2_many),
        cmocka_unit_test(test_M_4_leaks),
        cmocka_unit_test(test_M_5_device_id),
        cmocka_unit_test(test_M_9_allocator),
        cmocka_unit_test(test_V_6_health),
        cmocka_unit_test(test_M_2_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
