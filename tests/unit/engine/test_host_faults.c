/* test_host_faults.c - a model on the host-memory driver whose calls fail one after the other: what
 * failed is told and given back, the same step asked for again computes what it should, and a lost
 * device stays lost. The same code drives every GPU. */
#include "test.h"

#include "backend/gpu/gpu.h"
#include "backend/host/host.h"
#include "engine/engine.h"
#include "model/model.h"

enum { STEPS = 4, PROMPT = 5, RUN = STEPS + 1 };

#define MODEL TEST_SOURCE_DIR "/models/nano.gguf"

static bitnet_runtime *runtime;
static bitnet_engine *engine;

static void check(bitnet_status st, const bitnet_error *err)
{
    if (st != BITNET_OK)
        fail_msg("status %d: %s", (int)st, err->message);
}

static void open_engine(const char *device)
{
    bitnet_error err = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.device = device;
    o.n_threads = 2;
    check(bitnet_runtime_open(&o, &runtime, &err), &err);
    check(bitnet_engine_open(runtime, MODEL, NULL, &engine, &err), &err);
}

static void close_engine(void)
{
    bitnet_engine_close(engine);
    bitnet_runtime_close(runtime);
}

static gpu_driver *driver(void)
{
    return gpu_of(engine->backend)->d;
}

static bitnet_status open_session(bitnet_session **out, bitnet_error *err)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = 128;
    return bitnet_session_open(engine, &o, out, err);
}

/* Again until it is done; how many attempts failed. */
static int append(bitnet_session *s, const int32_t *ids, size_t n)
{
    bitnet_error err = {0};
    int failed = 0;
    while (bitnet_session_append(s, ids, n, NULL, NULL, &err) != BITNET_OK)
        if (++failed > 2)
            fail_msg("%s", err.message);
    return failed;
}

/* Logits are computed when they are asked for: that may fail, too. */
static int32_t best(const bitnet_session *s, int *failed)
{
    const float *l = bitnet_session_logits(s);
    int32_t id = 0;
    if (!l) {
        ++*failed;
        l = bitnet_session_logits(s);
    }
    assert_non_null(l);
    for (int32_t i = 1; i < bitnet_engine_model(engine)->n_vocab; i++)
        id = l[i] > l[id] ? i : id;
    return id;
}

static int speak(int32_t ids[RUN])
{
    static const int32_t prompt[PROMPT] = {20, 23, 26, 29, 32};
    bitnet_session *s = NULL;
    bitnet_error err = {0};
    int failed = 0;
    while (open_session(&s, &err) != BITNET_OK)
        if (++failed > 2)
            fail_msg("%s", err.message);
    failed += append(s, prompt, PROMPT);
    ids[0] = best(s, &failed);
    for (int i = 0; i < STEPS; i++) {
        failed += append(s, &ids[i], 1);
        ids[i + 1] = best(s, &failed);
    }
    bitnet_session_close(s);
    return failed;
}

/* Calls of one kind fail, each in a conversation of its own. */
static void refuse(host_call call, uint64_t step)
{
    int32_t want[RUN], got[RUN];
    int failed = 0;
    open_engine("host");
    uint64_t before = bnet_host_calls(driver(), call);
    assert_int_equal(speak(want), 0);
    uint64_t n_calls = bnet_host_calls(driver(), call) - before;
    for (uint64_t n = 1; n <= n_calls; n += step) {
        bnet_host_fail(driver(), call, n, GPU_FAILED);
        failed += speak(got);
        assert_memory_equal(got, want, sizeof want);
    }
    bnet_host_fail(driver(), call, 0, GPU_FAILED);
    assert_int_equal(speak(got), 0);
    assert_memory_equal(got, want, sizeof want);
    assert_true(failed > 0);
    close_engine();
}

static void test_launches_fail(void **state)
{
    (void)state;
    refuse(HOST_LAUNCH, 7);
}

static void test_copies_fail(void **state)
{
    (void)state;
    refuse(HOST_COPY, 3);
}

static void test_waiting_fails(void **state)
{
    (void)state;
    refuse(HOST_WAIT, 1);
}

/* A session that gets no memory leaves none behind. */
static void test_sessions_without_memory(void **state)
{
    (void)state;
    int32_t ids[RUN];
    int refused = 0;
    open_engine("host");
    assert_int_equal(speak(ids), 0);
    uint64_t used = bnet_host_used(driver());
    for (uint64_t n = 1; n <= 40; n++) {
        bitnet_session *s = NULL;
        bitnet_error err = {0};
        bnet_host_fail(driver(), HOST_ALLOC, n, GPU_NO_MEMORY);
        bitnet_status st = open_session(&s, &err);
        refused += st != BITNET_OK;
        assert_true(st == BITNET_OK || (st == BITNET_MEMORY && err.message[0]));
        bitnet_session_close(s);
        bnet_host_fail(driver(), HOST_ALLOC, 0, GPU_OK);
    }
    assert_true(refused > 0);
    assert_int_equal(speak(ids), 0);
    assert_int_equal(bnet_host_used(driver()), used);
    close_engine();
}

/* Loading stops at whatever cannot be had, names the tensor, and gives back the rest. */
static void test_weights_without_memory(void **state)
{
    (void)state;
    bitnet_error err = {0};
    open_engine("cpu");
    bitnet_status st = BITNET_MEMORY;
    for (uint64_t n = 1; st != BITNET_OK; n += 5) {
        bnet_backend *be = NULL;
        bnet_model *m = NULL;
        const bnet_backend_want want = {
            .device = BNET_DEV_HOST, .pool = runtime->pool, .registry = runtime->registry};
        check(bnet_backend_open(&want, &be, &err), &err);
        bnet_host_fail(gpu_of(be)->d, HOST_ALLOC, n, GPU_NO_MEMORY);
        st = bnet_model_open(engine->gguf, be, engine->layout, &engine->log, NULL, &m, &err);
        assert_true(st == BITNET_OK || (st == BITNET_MEMORY && strstr(err.message, "tensor ")));
        assert_true(n < 2000);
        bnet_model_close(m);
        bnet_backend_close(be);
    }
    close_engine();
}

/* A weight that cannot be brought to the device is no lack of memory. */
static void test_weights_whose_copies_fail(void **state)
{
    (void)state;
    bitnet_error err = {0};
    open_engine("cpu");
    bitnet_status st = BITNET_NOT_AVAILABLE;
    for (uint64_t n = 1; st != BITNET_OK; n += 7) {
        bnet_backend *be = NULL;
        bnet_model *m = NULL;
        const bnet_backend_want want = {
            .device = BNET_DEV_HOST, .pool = runtime->pool, .registry = runtime->registry};
        check(bnet_backend_open(&want, &be, &err), &err);
        bnet_host_fail(gpu_of(be)->d, HOST_COPY, n, GPU_FAILED);
        st = bnet_model_open(engine->gguf, be, engine->layout, &engine->log, NULL, &m, &err);
        if (st != BITNET_OK && (st != BITNET_NOT_AVAILABLE || !strstr(err.message, "tensor ")))
            fail_msg("copy %d: status %d: %s", (int)n, (int)st, err.message);
        assert_true(n < 2000);
        bnet_model_close(m);
        bnet_backend_close(be);
    }
    close_engine();
}

static void test_a_lost_device_stays_lost(void **state)
{
    (void)state;
    bitnet_session *s = NULL;
    bitnet_error err = {0};
    const int32_t id = 20;
    open_engine("host");
    check(open_session(&s, &err), &err);
    bnet_host_fail(driver(), HOST_LAUNCH, 3, GPU_LOST);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bitnet_session_append(s, &id, 1, NULL, NULL, &err), BITNET_NOT_AVAILABLE);
        assert_non_null(strstr(err.message, "host: device 0 (plain memory)"));
    }
    bitnet_session_close(s);
    close_engine();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launches_fail),
        cmocka_unit_test(test_copies_fail),
        cmocka_unit_test(test_waiting_fails),
        cmocka_unit_test(test_sessions_without_memory),
        cmocka_unit_test(test_weights_without_memory),
        cmocka_unit_test(test_weights_whose_copies_fail),
        cmocka_unit_test(test_a_lost_device_stays_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
