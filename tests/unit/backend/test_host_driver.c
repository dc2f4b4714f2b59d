/* test_host_driver.c - the contract of gpu/driver.h, as the host-memory driver keeps it: work is
 * done in order and not before somebody waits, ranges are checked, records repeat what was asked
 * for, and every call can be made to fail. A model runs on it and leaves nothing behind. */
#include "test.h"

#include "backend/gpu/gpu.h"
#include "backend/gpu/record.h"
#include "backend/group/group.h"
#include "backend/host/host.h"

typedef struct rig {
    bnet_pool *pool;
    gpu_driver *d;
    bitnet_error err;
} rig;

static int rig_open(void **state)
{
    rig *g = calloc(1, sizeof *g);
    assert_int_equal(bnet_pool_open(2, &g->pool, NULL), BITNET_OK);
    assert_int_equal(bnet_host_driver_open(g->pool, &g->d, &g->err), BITNET_OK);
    assert_int_equal(g->d->c->enter(g->d), GPU_OK);
    *state = g;
    return 0;
}

static int rig_close(void **state)
{
    rig *g = *state;
    g->d->c->leave(g->d);
    assert_int_equal(bnet_host_used(g->d), 0);
    g->d->c->close(g->d);
    bnet_pool_close(g->pool);
    free(g);
    return 0;
}

static gpu_at take(rig *g, size_t n_bytes)
{
    gpu_memory m = NULL;
    assert_int_equal(g->d->c->alloc(g->d, n_bytes, &m), GPU_OK);
    return (gpu_at){m, 0};
}

static void give(rig *g, gpu_at at)
{
    g->d->c->release(g->d, at.memory);
}

static const char *explained(rig *g, gpu_result r)
{
    g->d->c->explain(g->d, "a test", r, &g->err);
    return g->err.message;
}

/* x += y through the kernel of that name. */
static gpu_result add(rig *g, gpu_at x, gpu_at y, uint64_t n)
{
    gpu_kernel k = NULL;
    const gpu_arg args[] = {gpu_arg_at(x), gpu_arg_at(y), gpu_arg_u64(n)};
    const gpu_dims dims = {.grid = {(unsigned)(n / 64 + 1), 1, 1}, .block = {64, 1, 1}};
    assert_int_equal(g->d->c->find(g->d, "bnet_ref_add", &k), GPU_OK);
    return g->d->c->launch(g->d, k, &dims, args, 3);
}

static void test_work_is_done_when_somebody_waits(void **state)
{
    rig *g = *state;
    const gpu_calls *c = g->d->c;
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {10, 20, 30, 40, 50}, got[5] = {0};
    gpu_at a = take(g, sizeof x), b = take(g, sizeof y);
    assert_int_equal(c->to_device(g->d, a, x, sizeof x), GPU_OK);
    assert_int_equal(c->to_device(g->d, b, y, sizeof y), GPU_OK);
    assert_int_equal(add(g, a, b, 5), GPU_OK);
    assert_int_equal(c->to_host(g->d, got, a, sizeof got), GPU_OK);
    assert_true(got[4] == 0);
    assert_int_equal(c->wait(g->d), GPU_OK);
    for (int i = 0; i < 5; i++)
        assert_true(got[i] == x[i] + y[i]);
    give(g, a);
    give(g, b);
}

static void test_new_memory_is_not_zero(void **state)
{
    rig *g = *state;
    uint8_t got[4] = {0};
    gpu_at a = take(g, 64);
    assert_int_equal(g->d->c->to_host(g->d, got, gpu_plus(a, 60), 4), GPU_OK);
    assert_int_equal(g->d->c->wait(g->d), GPU_OK);
    assert_true(got[0] != 0 && got[3] != 0);
    give(g, a);
}

static void test_ranges_are_checked(void **state)
{
    rig *g = *state;
    const gpu_calls *c = g->d->c;
    uint8_t bytes[128] = {0};
    gpu_at a = take(g, 64), b = take(g, 64), none = {NULL, 0};
    assert_int_equal(c->to_device(g->d, a, bytes, 65), GPU_FAILED);
    assert_non_null(strstr(explained(g, GPU_FAILED), "bytes outside of their memory (65, 64)"));
    assert_int_equal(c->to_host(g->d, bytes, gpu_plus(a, 60), 5), GPU_FAILED);
    assert_int_equal(c->copy(g->d, a, gpu_plus(b, 1), 64), GPU_FAILED);
    assert_int_equal(c->fill(g->d, none, 0, 1), GPU_FAILED);
    const gpu_rows rows = {.dst = a, .dst_pitch = 30, .n_bytes = 8, .n_rows = 3};
    assert_int_equal(c->fill_rows(g->d, &rows, 0), GPU_FAILED);
    assert_int_equal(add(g, a, gpu_plus(b, 4), 16), GPU_FAILED); /* the second has 15 floats */
    assert_non_null(strstr(explained(g, GPU_FAILED), "bnet_ref_add (1, 64)"));
    assert_int_equal(add(g, a, none, 16), GPU_FAILED);
    assert_int_equal(add(g, a, b, 16), GPU_OK);
    give(g, a);
    give(g, b);
}

static void test_arguments_must_be_the_kernels(void **state)
{
    rig *g = *state;
    gpu_kernel k = NULL;
    gpu_at a = take(g, 64);
    const gpu_arg args[] = {gpu_arg_at(a), gpu_arg_u64(16)};
    const gpu_dims dims = {.grid = {1, 1, 1}, .block = {64, 1, 1}};
    assert_int_equal(g->d->c->find(g->d, "bnet_ref_add", &k), GPU_OK);
    assert_int_equal(g->d->c->launch(g->d, k, &dims, args, 2), GPU_FAILED);
    assert_int_equal(g->d->c->find(g->d, "no_such_kernel", &k), GPU_NO_KERNEL);
    assert_non_null(strstr(explained(g, GPU_NO_KERNEL), "no_such_kernel"));
    give(g, a);
}

static void test_records_repeat_what_was_asked_for(void **state)
{
    rig *g = *state;
    const gpu_calls *c = g->d->c;
    gpu_graph graph = NULL;
    float one[3] = {1, 1, 1}, got[3];
    gpu_at a = take(g, sizeof one), b = take(g, sizeof one);
    assert_int_equal(c->fill(g->d, a, 0, sizeof one), GPU_OK);
    assert_int_equal(c->record_begin(g->d), GPU_OK);
    assert_int_equal(c->to_device(g->d, b, one, sizeof one), GPU_OK);
    assert_int_equal(add(g, a, b, 3), GPU_OK);
    assert_int_equal(c->record_end(g->d, &graph), GPU_OK);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(c->replay(g->d, graph), GPU_OK);
        assert_int_equal(c->to_host(g->d, got, a, sizeof got), GPU_OK);
        assert_int_equal(c->wait(g->d), GPU_OK);
        assert_true(got[0] == (float)i && got[2] == (float)i);
    }
    c->graph_release(g->d, graph);
    give(g, a);
    give(g, b);
}

/* What waits for recorded work of another device is recorded with it. */
static void test_records_of_two_devices(void **state)
{
    rig *g = *state;
    const gpu_calls *c = g->d->c;
    gpu_driver *other = NULL;
    gpu_graph graph = NULL;
    float got = 0, one = 1;
    assert_int_equal(bnet_host_driver_open(g->pool, &other, &g->err), BITNET_OK);
    rig second = {.pool = g->pool, .d = other};
    assert_int_equal(c->enter(other), GPU_OK);
    gpu_at a = take(g, 4), b = take(&second, 4);
    assert_int_equal(c->fill(g->d, a, 0, 4), GPU_OK);
    assert_int_equal(c->record_begin(g->d), GPU_OK);
    assert_int_equal(c->after(other, g->d), GPU_OK);
    assert_int_equal(c->to_device(other, b, &one, 4), GPU_OK);
    assert_int_equal(c->after(g->d, other), GPU_OK);
    assert_int_equal(add(g, a, b, 1), GPU_OK);
    assert_int_equal(c->record_end(g->d, &graph), GPU_OK);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(c->replay(g->d, graph), GPU_OK);
        assert_int_equal(c->to_host(g->d, &got, a, 4), GPU_OK);
        assert_int_equal(c->wait(g->d), GPU_OK);
        assert_true(got == (float)i);
    }
    c->graph_release(g->d, graph);
    give(g, a);
    give(&second, b);
    c->leave(other);
    c->close(other);
}

static void test_rows_and_times(void **state)
{
    rig *g = *state;
    const gpu_calls *c = g->d->c;
    uint8_t got[32];
    double ms = -1;
    gpu_at a = take(g, 32), b = take(g, 32);
    assert_int_equal(c->fill(g->d, a, 1, 32), GPU_OK);
    assert_int_equal(c->fill(g->d, b, 2, 32), GPU_OK);
    assert_int_equal(c->stamp(g->d, 3), GPU_OK);
    const gpu_rows rows = {gpu_plus(a, 2), b, 8, 4, 3, 4};
    assert_int_equal(c->copy_rows(g->d, &rows), GPU_OK);
    assert_int_equal(c->stamp(g->d, 4), GPU_OK);
    assert_int_equal(c->to_host(g->d, got, a, 32), GPU_OK);
    assert_int_equal(c->between(g->d, 3, 4, &ms), GPU_OK);
    assert_true(ms >= 0);
    for (int i = 0; i < 32; i++)
        assert_int_equal(got[i], i % 8 >= 2 && i % 8 < 5 ? 2 : 1);
    give(g, a);
    give(g, b);
}

static void test_calls_can_be_made_to_fail(void **state)
{
    rig *g = *state;
    const gpu_calls *c = g->d->c;
    gpu_memory m = NULL;
    gpu_graph graph = NULL;
    gpu_at a = take(g, 64);
    bnet_host_fail(g->d, HOST_ALLOC, 2, GPU_NO_MEMORY);
    gpu_at b = take(g, 64);
    assert_int_equal(c->alloc(g->d, 64, &m), GPU_NO_MEMORY);
    assert_int_equal(c->explain(g->d, "a test", GPU_NO_MEMORY, &g->err), BITNET_MEMORY);
    bnet_host_fail(g->d, HOST_LAUNCH, 1, GPU_LOST);
    assert_int_equal(add(g, a, b, 16), GPU_LOST);
    assert_int_equal(add(g, a, b, 16), GPU_OK);
    bnet_host_fail(g->d, HOST_WAIT, 1, GPU_FAILED);
    assert_int_equal(c->wait(g->d), GPU_FAILED);
    bnet_host_fail(g->d, HOST_RECORD, 2, GPU_UNSUPPORTED);
    assert_int_equal(c->record_begin(g->d), GPU_OK);
    assert_int_equal(c->record_end(g->d, &graph), GPU_UNSUPPORTED);
    assert_null(graph);
    bnet_host_fail(g->d, HOST_COPY, 1, GPU_FAILED);
    bnet_host_fail(g->d, HOST_COPY, 0, GPU_FAILED);
    assert_int_equal(c->fill(g->d, a, 0, 64), GPU_OK);
    c->leave(g->d);
    assert_int_equal(c->fill(g->d, a, 0, 64), GPU_FAILED);
    assert_non_null(strstr(explained(g, GPU_FAILED), "outside of enter and leave"));
    c->enter(g->d);
    give(g, a);
    give(g, b);
}

/* ---- the GPU host on this driver ---- */

static bnet_backend_want want_of(rig *g, const bnet_registry *registry)
{
    return (bnet_backend_want){.device = BNET_DEV_HOST, .pool = g->pool, .registry = registry};
}

/* A device that cannot be entered is not opened, and nothing of it stays. */
static void test_a_device_that_cannot_be_entered(void **state)
{
    rig g = {0};
    (void)state;
    bnet_registry *registry = NULL;
    bnet_backend *be = NULL;
    const gpu_vendor vendor = {.rows = NULL};
    assert_int_equal(bnet_pool_open(1, &g.pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&registry, &g.err), BITNET_OK);
    assert_int_equal(bnet_host_driver_open(g.pool, &g.d, &g.err), BITNET_OK);
    bnet_backend_want w = want_of(&g, registry);
    bnet_host_fail(g.d, HOST_ENTER, 1, GPU_FAILED);
    assert_int_equal(bnet_gpu_open(&w, g.d, &vendor, &be, &g.err), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(g.err.message, "entering the device: this call was made to fail"));
    assert_null(be);
    bnet_registry_close(registry);
    bnet_pool_close(g.pool);
}

/* The host's driver without what several devices need. */
static gpu_calls calls_of_one;

static bitnet_status open_one_alone(const bnet_backend_want *w, bnet_backend **out,
                                    bitnet_error *err)
{
    static const gpu_vendor vendor = {.rows = NULL};
    gpu_driver *d = NULL;
    bitnet_status st = bnet_host_driver_open(w->pool, &d, err);
    if (st != BITNET_OK)
        return st;
    calls_of_one = *d->c;
    calls_of_one.after = NULL;
    calls_of_one.reach = NULL;
    calls_of_one.fetch = NULL;
    calls_of_one.copy_rows = NULL;
    d->c = &calls_of_one;
    return bnet_gpu_open(w, d, &vendor, out, err);
}

static bitnet_status never_joined(gpu_backend *const *ranks, int n, const bnet_log *log,
                                  gpu_exchange **out, bitnet_error *err)
{
    (void)ranks, (void)n, (void)log, (void)out, (void)err;
    fail();
    return BITNET_OK;
}

static void test_a_driver_without_calls_for_several_devices(void **state)
{
    static const gpu_group_vendor several = {open_one_alone, never_joined};
    rig g = {0};
    (void)state;
    bnet_registry *registry = NULL;
    bnet_backend *be = NULL;
    assert_int_equal(bnet_pool_open(1, &g.pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&registry, &g.err), BITNET_OK);
    bnet_backend_want w = want_of(&g, registry);
    w.ranks = (bnet_selection_ranks){.split = BNET_SPLIT_LAYER, .n = 2};
    assert_int_equal(bnet_group_open(&w, &several, &be, &g.err), BITNET_NOT_AVAILABLE);
    assert_string_equal(g.err.message, "host: this driver cannot divide a model among several "
                                       "devices; name one: host:0");
    assert_null(be);
    bnet_registry_close(registry);
    bnet_pool_close(g.pool);
}

static void count_work(gpu_backend *be, void *user)
{
    (void)be;
    ++*(int *)user;
}

/* Work is recorded for a buffer, not for the place where the buffer lies: the next one there may be
 * other memory under the same handle. */
static void test_a_record_ends_with_its_buffer(void **state)
{
    rig g = {0};
    (void)state;
    bnet_registry *registry = NULL;
    bnet_backend *be = NULL;
    int n = 0;
    assert_int_equal(bnet_pool_open(1, &g.pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&registry, &g.err), BITNET_OK);
    bnet_backend_want w = want_of(&g, registry);
    assert_int_equal(bnet_host_open(&w, &be, &g.err), BITNET_OK);
    gpu_records *records = calloc(1, sizeof *records);
    for (int i = 0; i < 2; i++) {
        bnet_buffer *b = be->v->buffer_new(be, 64);
        const gpu_record_key key = {.n_tokens = 1, .last = gpu_buf(b)->id};
        bnet_gpu_enter(gpu_of(be));
        for (int k = 0; k < 4; k++) /* launched, recorded, repeated twice */
            bnet_gpu_repeat(gpu_of(be), records, &key, count_work, &n);
        bnet_gpu_leave(gpu_of(be));
        assert_int_equal(n, 4 * i + 2);
        const gpu_record_key longer = {.n_tokens = 1, .last = gpu_buf(b)->id, .blocks = 2};
        bnet_gpu_enter(gpu_of(be));
        for (int k = 0; k < 4; k++) /* attention divided in another way is other work */
            bnet_gpu_repeat(gpu_of(be), records, &longer, count_work, &n);
        bnet_gpu_leave(gpu_of(be));
        assert_int_equal(n, 4 * i + 4);
        be->v->buffer_free(be, b); /* the pool gives the same place again */
    }
    bnet_gpu_enter(gpu_of(be));
    bnet_gpu_records_free(gpu_of(be), records);
    bnet_gpu_leave(gpu_of(be));
    free(records);
    bnet_backend_close(be);
    bnet_registry_close(registry);
    bnet_pool_close(g.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_work_is_done_when_somebody_waits, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_new_memory_is_not_zero, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_ranges_are_checked, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_arguments_must_be_the_kernels, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_records_repeat_what_was_asked_for, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(test_records_of_two_devices, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_rows_and_times, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_calls_can_be_made_to_fail, rig_open, rig_close),
        cmocka_unit_test(test_a_device_that_cannot_be_entered),
        cmocka_unit_test(test_a_driver_without_calls_for_several_devices),
        cmocka_unit_test(test_a_record_ends_with_its_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
