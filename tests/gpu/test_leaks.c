/* test_leaks.c - who forgets memory of the device is named when the backend closes: weights and
 * caches by their bytes, buffers by the line that asked; who does not hears nothing. */
#include "device.h"

#include "bitnet_check.h"

static char said[4096];

static void keep(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user, (void)module;
    if (level <= BITNET_LOG_WARN)
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", message);
}

typedef struct opened {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *backend;
} opened;

static opened open_ranks(int n)
{
    opened o = {0};
    const bnet_log log = {keep, NULL};
    OK(bnet_pool_open(1, &o.pool, &err));
    OK(bnet_registry_open(&o.registry, &err));
    const bnet_backend_want want = {
        .device = BNET_DEV_CUDA,
        .ranks = {.n = n > 1 ? n : 0, .split = n > 1 ? BNET_SPLIT_TENSOR : BNET_SPLIT_NONE},
        .pool = o.pool,
        .registry = o.registry,
        .log = &log};
    said[0] = '\0';
    OK(bnet_backend_open(&want, &o.backend, &err));
    return o;
}

static opened open_backend(void)
{
    return open_ranks(1);
}

static void close_backend(opened *o)
{
    bnet_backend_close(o->backend);
    bnet_registry_close(o->registry);
    bnet_pool_close(o->pool);
}

static const bnet_kv_shape shape = {
    .n_layers = 1, .n_blocks = 2, .n_kv_heads = 1, .head_dim = 64, .type = BITNET_KV_F16};

static void test_P_1_what_was_forgotten(void **state)
{
    (void)state;
    opened o = open_backend();
    void *kv = o.backend->v->kv_new(o.backend, &shape);
    void *b = o.backend->v->buffer_new(o.backend, 12345);
    assert_true(kv && b);
    close_backend(&o);
    bnet_free(kv), bnet_free(b); /* what the host kept of them */
    assert_non_null(strstr(said, "leak: 0 bytes of weights and 32768 of caches"));
    assert_non_null(strstr(said, "12345 bytes of device 0 held"));
    assert_non_null(strstr(said, "memory.c:"));
}

static void test_P_1_nothing_was_forgotten(void **state)
{
    (void)state;
    opened o = open_backend();
    bnet_kv_store *kv = o.backend->v->kv_new(o.backend, &shape);
    bnet_buffer *b = o.backend->v->buffer_new(o.backend, 12345);
    assert_true(kv && b);
    o.backend->v->buffer_free(o.backend, b);
    o.backend->v->kv_free(o.backend, kv);
    close_backend(&o);
    assert_string_equal(said, "");
}

/* What fails half-way gives back what it had, and a rate that could not be measured is none. */
static void test_P_1_what_failed_was_given_back(void **state)
{
    (void)state;
    if (!emulated) /* a real device refuses nothing */
        return;
    opened o = open_backend();
    bitnet_error why = {0};
    setenv("BITNET_EMULATED_FAIL", "cuMemsetD8 1 1", 1);
    assert_null(o.backend->v->buffer_new(o.backend, 12345));
    assert_int_not_equal(o.backend->v->sync(o.backend, &why), BITNET_OK);
    setenv("BITNET_EMULATED_FAIL", "cuStreamSynchronize 2 2", 1);
    assert_true(o.backend->inspect->read_limit(o.backend) <= 0);
    OK(o.backend->v->sync(o.backend, &err));
    assert_true(o.backend->inspect->read_limit(o.backend) > 0);
    unsetenv("BITNET_EMULATED_FAIL");
    close_backend(&o);
    assert_string_equal(said, "");
}

/* What the pool of buffers keeps for later is no obstacle: it counts as memory that can be had, of
 * one device and of a group's ranks, and a cache that needs it gets it. */
static void test_P_1_idle_buffers_make_room(void **state)
{
    (void)state;
    if (!emulated) /* whose memory is as large as we say */
        return;
    enum { IDLE = 6 << 20, BLOCK = 16384 };
    setenv("BITNET_EMULATED_MEMORY", "134217728", 1);
    for (int ranks = 1; ranks <= 2; ranks++) {
        opened o = open_ranks(ranks);
        bitnet_memory_use u;
        uint64_t idle;
        bnet_buffer *b = o.backend->v->buffer_new(o.backend, IDLE);
        assert_non_null(b);
        o.backend->v->buffer_free(o.backend, b);
        assert_true(bnet_backend_usage(o.backend, &u, &idle));
        if (idle < (uint64_t)ranks * IDLE || idle > u.own)
            fail_msg("%d rank(s): %llu bytes can be had", ranks, (unsigned long long)idle);
        bnet_kv_shape large = shape;
        large.n_blocks = (int)((u.total - u.foreign - u.own + idle) / BLOCK);
        bnet_kv_store *kv = ranks == 1 ? o.backend->v->kv_new(o.backend, &large) : NULL;
        assert_true(kv || ranks > 1);
        if (kv)
            o.backend->v->kv_free(o.backend, kv);
        close_backend(&o);
        assert_string_equal(said, "");
    }
    unsetenv("BITNET_EMULATED_MEMORY");
}

/* Freed memory that the C library keeps is no leak: with one thread pieces of 16 MB come to lie
 * between small ones, and whether they go back to the system is chance. */
static void test_V_4_kept_by_the_allocator_is_no_leak(void **state)
{
    (void)state;
    bitnet_runtime_options ro;
    bitnet_validate_options o;
    bitnet_runtime *r = NULL;
    bitnet_validation *v = NULL;
    bitnet_runtime_options_init(&ro);
    ro.n_threads = 1;
    ro.device = "cuda";
    OK(bitnet_runtime_open(&ro, &r, &err));
    bitnet_validate_options_init(&o);
    o.device = "cuda";
    o.model_path = test_model();
    o.parts = BITNET_VALIDATE_MEMORY;
    o.quick = true;
    OK(bitnet_validate(r, &o, &v, &err));
    if (v->memory.verdict == BITNET_VERDICT_FAIL ||
        (emulated && v->memory.verdict == BITNET_VERDICT_PASS &&
         v->memory.growth_bytes > 256 << 10))
        fail_msg("%lld bytes more", (long long)v->memory.growth_bytes);
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

int main(void)
{
    find_device("90");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_1_what_was_forgotten),
        cmocka_unit_test(test_P_1_nothing_was_forgotten),
        cmocka_unit_test(test_P_1_what_failed_was_given_back),
        cmocka_unit_test(test_P_1_idle_buffers_make_room),
        cmocka_unit_test(test_V_4_kept_by_the_allocator_is_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
