/* The memory pool as programs see it: defaults of M-1, sites by the macro, an allocator of their
 * own, host memory, health. */
#include "unit/engine/nano.h"

#include "bitnet_extras.h"
#include "bitnet_tools.h"

static void test_M_1_defaults(void **state)
{
    (void)state;
    bitnet_mempool_options o;
    bitnet_mempool_options_init(&o);
    assert_int_equal(o.struct_size, sizeof o);
    assert_int_equal(o.max_pool_size, 2147483648u);
    assert_int_equal(o.max_cached_buffers, 1000);
    assert_int_equal(o.cleanup_interval_ms, 30000);
    assert_true(o.tracking);
    bitnet_mempool *p = NULL;
    void *b;
    o.device_memory = 10000; /* a tenth of the device */
    o.device_id = 3;
    OK(bitnet_mempool_open(&o, &p, &err));
    assert_int_equal(bitnet_mempool_device_id(p), 3);
    FAILS(bitnet_mempool_alloc(p, 1001, &b, &err), BITNET_MEMORY, "max_pool_size 1000");
    OK(bitnet_mempool_alloc(p, 1000, &b, &err));
    OK(bitnet_mempool_free(p, b, &err));
    FAILS(bitnet_mempool_free(p, b, &err), BITNET_ARGUMENT, "device 3");
    bitnet_mempool_close(p);
    bitnet_mempool_close(NULL);
    p = NULL;
    o.max_pool_size = 0;
    FAILS(bitnet_mempool_open(&o, &p, &err), BITNET_ARGUMENT, "max_pool_size");
    bitnet_mempool_options_init(&o);
    o.cleanup_interval_ms = -1;
    FAILS(bitnet_mempool_open(&o, &p, &err), BITNET_ARGUMENT, "cleanup_interval_ms");
    assert_null(p);
}

typedef struct own {
    size_t n_live;
    double now_ms;
} own;

static void *own_take(void *user, size_t n)
{
    ((own *)user)->n_live++;
    return malloc(n);
}

static void own_give(void *user, void *p, size_t n)
{
    (void)n;
    ((own *)user)->n_live--;
    free(p);
}

static double own_clock(void *user)
{
    return ((own *)user)->now_ms;
}

static void test_M_3_M_4_M_9_through_the_api(void **state)
{
    (void)state;
    own w = {0, 50};
    bitnet_mempool_options o;
    bitnet_mempool_options_init(&o);
    o.allocator = (bitnet_allocator){own_take, own_give, &w};
    o.clock_ms = own_clock;
    o.clock_user = &w;
    bitnet_mempool *p = NULL;
    OK(bitnet_mempool_open(&o, &p, &err));
    void *a, *b;
    OK(bitnet_mempool_alloc(p, 100, &a, &err));
    OK(bitnet_mempool_free(p, a, &err));
    int line = __LINE__ + 1;
    OK(bitnet_mempool_alloc(p, 100, &b, &err));
    assert_ptr_equal(a, b);
    w.now_ms = 1050;
    bitnet_mempool_leak leak[2];
    assert_int_equal(bitnet_mempool_leaks(p, leak, 2), 1);
    assert_int_equal(leak[0].n_bytes, 100);
    assert_true(leak[0].age_ms == 1000);
    assert_int_equal(leak[0].line, line);
    assert_non_null(strstr(leak[0].file, "test_mempool_api.c"));
    bitnet_mempool_stats s;
    bitnet_mempool_read(p, &s);
    assert_int_equal(s.n_hits, 1);
    assert_int_equal(s.n_misses, 1);
    assert_int_equal(s.allocated_bytes, 200);
    assert_int_equal(s.freed_bytes, 100);
    assert_int_equal(s.current_bytes, 100);
    FAILS(bitnet_memory_health(p, 500, &err), BITNET_MEMORY_GATE, "100 bytes held for 1.0 s");
    OK(bitnet_mempool_free(p, b, &err));
    assert_int_equal(bitnet_mempool_leaks(p, leak, 2), 0);
    bitnet_mempool_read(p, &s);
    assert_int_equal(s.current_bytes, 0);
    assert_int_equal(s.n_cached, 1);
    w.now_ms += 30000;
    assert_int_equal(bitnet_mempool_cleanup(p, false), 1);
    assert_int_equal(w.n_live, 0);
    bitnet_mempool_close(p);
    o.allocator.give = NULL;
    FAILS(bitnet_mempool_open(&o, &p, &err), BITNET_ARGUMENT, "take and give");
}

static void test_M_8_host_memory(void **state)
{
    (void)state;
    bitnet_host_memory m = {0};
    OK(bitnet_host_memory_read(&m, &err));
    assert_true(m.total_bytes > 0 && m.used_bytes + m.available_bytes == m.total_bytes);
    assert_true(m.process_bytes > 0 && m.process_bytes <= m.process_peak_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_M_1_defaults),
                                       cmocka_unit_test(test_M_3_M_4_M_9_through_the_api),
                                       cmocka_unit_test(test_M_8_host_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
