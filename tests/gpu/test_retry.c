/* test_retry.c - a failure that leaves the device in order: what was on its way is brought anew, so
 * that the same step, asked for again, and later sessions compute what they should. Whichever copy
 * or launch it is, and whichever of several sessions asked for it: that one is told. A lost device
 * is named by whoever comes later. */
#include "unit/engine/step.h"
#include "device.h"

#include "backend/group/group.h"
#include "bitnet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { STEPS = 4, PROMPT = 5, RUN = STEPS + 1, SPEAKERS = 3 };

static bitnet_runtime *runtime;
static bitnet_engine *engine;

static void open_engine(const char *device)
{
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.device = device;
    o.n_threads = 1;
    OK(bitnet_runtime_open(&o, &runtime, &err));
    OK(bitnet_engine_open(runtime, test_model(), NULL, &engine, &err));
}

static void close_engine(void)
{
    unsetenv("BITNET_EMULATED_FAIL");
    bitnet_engine_close(engine);
    bitnet_runtime_close(runtime);
}

static bitnet_status open_session(bitnet_session **out, bitnet_error *err)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = 128;
    return bitnet_session_open(engine, &o, out, err);
}

/* Again until it is done; how often that took more than one attempt. */
static int append(bitnet_session *s, const int32_t *ids, size_t n)
{
    bitnet_error err = {0};
    int failed = 0;
    while (bitnet_session_append(s, ids, n, NULL, NULL, &err) != BITNET_OK)
        if (++failed > 2)
            fail_msg("%s", err.message);
    return failed;
}

/* Logits that could not be computed are asked for again; *failed counts that. */
static int32_t best(const bitnet_session *s, int *failed)
{
    const float *l = bitnet_session_logits(s);
    int32_t id = 0;
    if (!l) {
        (*failed)++;
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
    OK(open_session(&s, &err));
    int failed = append(s, prompt, PROMPT);
    ids[0] = best(s, &failed);
    for (int i = 0; i < STEPS; i++) {
        failed += append(s, &ids[i], 1);
        ids[i + 1] = best(s, &failed);
    }
    bitnet_session_close(s);
    return failed;
}

/* Every n-th call of one function in a fresh engine, then in one that has recorded its steps. */
static void refuse(const char *device, const char *call, int code, int first, int step, int last)
{
    int32_t want[RUN], got[RUN];
    char wish[64];
    int failed = 0;
    open_engine("cpu");
    speak(want);
    close_engine();
    for (int n = first; n <= last; n += step) {
        open_engine(device);
        snprintf(wish, sizeof wish, "%s %d %d", call, n, code);
        setenv("BITNET_EMULATED_FAIL", wish, 1);
        for (int i = 0; i < 2; i++) {
            failed += speak(got);
            for (int k = 0; k < RUN; k++)
                if (got[k] != want[k])
                    fail_msg("%s, session %d: token %d is %d, not %d", wish, i, k, got[k], want[k]);
        }
        close_engine();
    }
    assert_true(failed > 0);
}

static void test_copies_to_the_device(void **state)
{
    (void)state;
    refuse("cuda", "cuMemcpyHtoD", 2, 1, 1, 4);
}

static void test_launches(void **state)
{
    (void)state;
    refuse("cuda", "cuLaunchKernel", 701, 20, 9, 74);
}

/* The first launches of the first session interleave gate and up: where one fails, the session is
 * not opened, and both matrices stay usable. */
static void test_fusing(void **state)
{
    (void)state;
    int32_t want[RUN], got[RUN];
    char wish[64];
    open_engine("cpu");
    speak(want);
    close_engine();
    for (int n = 1; n <= 2; n++) {
        bitnet_session *s = NULL;
        bitnet_error why = {0};
        open_engine("cuda");
        snprintf(wish, sizeof wish, "cuLaunchKernel %d 701", n);
        setenv("BITNET_EMULATED_FAIL", wish, 1);
        assert_int_not_equal(open_session(&s, &why), BITNET_OK);
        assert_non_null(strstr(why.message, "pack_gpu"));
        assert_int_equal(speak(got), 0);
        assert_memory_equal(got, want, sizeof want);
        close_engine();
    }
}

/* A repetition that failed on a group launched nothing: it is counted nowhere. */
static void test_a_failed_repetition_is_not_counted(void **state)
{
    (void)state;
    bitnet_session *s = NULL;
    bitnet_error why = {0};
    bnet_backend_stats before, after;
    const int32_t id = 20;
    open_engine("cuda:0,cuda:0");
    OK(open_session(&s, &err));
    for (int i = 0; i < 3; i++) /* as it is, recorded, repeated */
        append(s, &id, 1);
    gpu_group *g = (gpu_group *)(void *)engine->backend;
    gpu_backend *first = gpu_of(g->rank[0]);
    uint64_t calls[BNET_KERNELS_MAX];
    for (int i = 0; i < BNET_KERNELS_MAX; i++)
        calls[i] = first->calls[i];
    bnet_backend_stats_read(&g->base, &before);
    assert_true(before.n_replays > 0);
    setenv("BITNET_EMULATED_FAIL", "cuGraphLaunch 1 701", 1);
    assert_int_not_equal(bitnet_session_append(s, &id, 1, NULL, NULL, &why), BITNET_OK);
    bnet_backend_stats_read(&g->base, &after);
    assert_int_equal(after.n_replays, before.n_replays);
    assert_int_equal(after.n_launches, before.n_launches);
    for (int i = 0; i < BNET_KERNELS_MAX; i++)
        assert_int_equal(first->calls[i], calls[i]);
    append(s, &id, 1);
    bitnet_session_close(s);
    close_engine();
}

static void test_copies_to_the_host(void **state)
{
    (void)state;
    refuse("cuda", "cuMemcpyDtoH", 2, 1, 2, 5);
    refuse("cuda:0,cuda:0", "cuMemcpyDtoH", 2, 3, 1, 3);
}

/* ---- several sessions of one engine: whose failure is it? ---- */

typedef struct speaker {
    int32_t ids[RUN];
    int failed;
    bool gave_up;
    char message[200];
} speaker;

/* No asserts: it runs in threads. */
static bool say(speaker *p, bitnet_session *s, const int32_t *ids, size_t n)
{
    bitnet_error err = {0};
    for (int i = 0; i < 4; i++) {
        bitnet_status st = bitnet_session_append(s, ids, n, NULL, NULL, &err);
        if (st == BITNET_OK)
            return true;
        p->failed++;
    }
    snprintf(p->message, sizeof p->message, "%.199s", err.message);
    p->gave_up = true;
    return false;
}

static int32_t best_or_none(speaker *p, const bitnet_session *s)
{
    const float *l = bitnet_session_logits(s);
    for (int i = 0; !l && i < 4; i++) {
        p->failed++;
        l = bitnet_session_logits(s);
    }
    int32_t id = l ? 0 : -1;
    for (int32_t i = 1; l && i < bitnet_engine_model(engine)->n_vocab; i++)
        id = l[i] > l[id] ? i : id;
    return id;
}

static void *speak_in_a_thread(void *arg)
{
    static const int32_t prompt[PROMPT] = {20, 23, 26, 29, 32};
    speaker *p = arg;
    bitnet_session *s = NULL;
    if (open_session(&s, NULL) != BITNET_OK) {
        p->gave_up = true;
        return NULL;
    }
    bool ok = say(p, s, prompt, PROMPT);
    p->ids[0] = ok ? best_or_none(p, s) : -1;
    for (int i = 0; ok && i < STEPS; i++) {
        ok = say(p, s, &p->ids[i], 1);
        p->ids[i + 1] = ok ? best_or_none(p, s) : -1;
    }
    bitnet_session_close(s);
    return NULL;
}

/* One launch or copy fails while several sessions step: one of them is told, once, and repeats its
 * step; all say what they should. */
static int disturb(const char *device, const char *wish, const int32_t *want)
{
    speaker p[SPEAKERS] = {{.failed = 0}};
    pthread_t threads[SPEAKERS];
    int failed = 0;
    open_engine(device);
    setenv("BITNET_EMULATED_FAIL", wish, 1);
    for (int i = 0; i < SPEAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, speak_in_a_thread, &p[i]), 0);
    for (int i = 0; i < SPEAKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SPEAKERS; i++) {
        if (p[i].gave_up || memcmp(p[i].ids, want, sizeof p[i].ids) != 0)
            fail_msg("%s on %s, session %d: other tokens %s", wish, device, i, p[i].message);
        failed += p[i].failed;
    }
    close_engine();
    return failed;
}

static void test_a_failure_is_told_to_whose_it_is(void **state)
{
    static const char *const devices[] = {"cuda", "cuda:0,cuda:0"};
    int32_t want[RUN];
    char wish[64];
    (void)state;
    open_engine("cpu");
    speak(want);
    close_engine();
    for (size_t d = 0; d < BNET_COUNT(devices); d++) {
        int failed = 0;
        for (int n = 3; n < 60; n += quick() ? 18 : 3) {
            snprintf(wish, sizeof wish, "cuLaunchKernel %d 701", 5 * n);
            int now = disturb(devices[d], wish, want);
            snprintf(wish, sizeof wish, "cuMemcpyDtoH %d 2", n / 3);
            now = BNET_MAX(now, disturb(devices[d], wish, want));
            assert_true(now <= 1);
            failed += now;
        }
        assert_true(failed > 0);
    }
}

/* ---- a cache pool: whose block was not zeroed? ---- */

static bitnet_session *open_in_pool(bitnet_kv_pool *pool)
{
    bitnet_session *s = NULL;
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = 128;
    o.kv_pool = pool;
    OK(bitnet_session_open(engine, &o, &s, &err));
    return s;
}

/* The session that takes the block is told, before any pass, and has none of it; the other one is
 * not; asked again, the first goes on. */
static void refuse_a_block(const char *device)
{
    static const int32_t prompt[PROMPT] = {20, 23, 26, 29, 32};
    bitnet_kv_pool *pool = NULL;
    bitnet_kv_pool_stats stats;
    bitnet_error why = {0};
    open_engine(device);
    OK(bitnet_kv_pool_open(engine, NULL, &pool, &err));
    bitnet_session *a = open_in_pool(pool), *b = open_in_pool(pool);
    OK(bitnet_session_append(b, prompt, PROMPT, NULL, NULL, &err));
    int failed = 0;
    int32_t said = best(b, &failed);
    setenv("BITNET_EMULATED_FAIL", "cuMemsetD8 1 1", 1);
    assert_int_not_equal(bitnet_session_append(a, prompt, PROMPT, NULL, NULL, &why), BITNET_OK);
    assert_non_null(strstr(why.message, "clearing the cache"));
    bitnet_kv_pool_read(pool, &stats);
    assert_int_equal(stats.n_used, 1);
    assert_int_equal(stats.n_hits + stats.n_rebuilds, 0);
    OK(bitnet_session_append(b, &said, 1, NULL, NULL, &err));
    OK(bitnet_session_append(a, prompt, PROMPT, NULL, NULL, &err));
    assert_int_equal(best(a, &failed), said);
    bitnet_session_close(a);
    bitnet_session_close(b);
    bitnet_kv_pool_close(pool);
    close_engine();
}

static void test_a_block_that_is_not_zeroed(void **state)
{
    (void)state;
    refuse_a_block("cuda");
    refuse_a_block("cuda:0,cuda:0");
}

/* Where another device may be taken, the session continues on it, also out of a group. */
static void test_a_block_that_is_not_zeroed_falls_back(void **state)
{
    (void)state;
    bitnet_kv_pool *pool = NULL;
    const int32_t ids[2] = {20, 20};
    int failed = 0;
    char wish[64];
    open_engine("auto");
    OK(bitnet_kv_pool_open(engine, NULL, &pool, &err));
    bitnet_session *s[3] = {open_in_pool(pool), open_in_pool(pool), open_in_pool(pool)};
    snprintf(wish, sizeof wish, "cuMemsetD8 %d 1", bitnet_engine_model(engine)->n_layers + 1);
    setenv("BITNET_EMULATED_FAIL", wish, 1); /* the second block */
    OK(step_each(engine, s, NULL, ids, 2, NULL, &err));
    assert_true(!s[0]->fallen && s[1]->fallen);
    setenv("BITNET_EMULATED_FAIL", "cuMemsetD8 1 1", 1);
    OK(bitnet_session_append(s[2], ids, 1, NULL, NULL, &err));
    assert_true(s[2]->fallen);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bitnet_session_position(s[i]), 1);
        assert_int_equal(best(s[i], &failed), best(s[0], &failed));
    }
    for (int i = 0; i < 3; i++)
        bitnet_session_close(s[i]);
    bitnet_kv_pool_close(pool);
    close_engine();
}

/* ---- facts that are asked for meanwhile ---- */

typedef struct asking {
    bnet_backend *be;
    atomic_bool done;
} asking;

static void *ask_read_limit(void *arg)
{
    asking *a = arg;
    a->be->inspect->read_limit(a->be);
    atomic_store(&a->done, true);
    return NULL;
}

/* A copy to rank 1 failed; who measures now must not hear of it in place of who copied. */
static void test_measuring_hears_no_failure_of_others(void **state)
{
    (void)state;
    bitnet_error why = {0};
    uint8_t bytes[64] = {0};
    pthread_t thread;
    setenv("BITNET_EMULATED_MEMORY", "268435456", 1); /* little is copied */
    open_engine("cuda:0,cuda:0");
    asking a = {.be = engine->backend};
    bnet_buffer *buffer = a.be->v->buffer_new(a.be, sizeof bytes);
    assert_non_null(buffer);
    a.be->v->hold(a.be);
    setenv("BITNET_EMULATED_FAIL", "cuMemcpyHtoD 2 2", 1);
    a.be->v->write(a.be, buffer, bytes, sizeof bytes);
    assert_int_equal(pthread_create(&thread, NULL, ask_read_limit, &a), 0);
    for (int ms = 0; ms < 300 && !atomic_load(&a.done); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_false(atomic_load(&a.done));
    assert_int_not_equal(a.be->v->sync(a.be, &why), BITNET_OK);
    assert_non_null(strstr(why.message, "rank 1 of 2"));
    assert_int_equal(a.be->v->release(a.be, &why), BITNET_OK);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&a.done));
    a.be->v->buffer_free(a.be, buffer);
    close_engine();
    unsetenv("BITNET_EMULATED_MEMORY");
}

static void test_lost_is_not_out_of_memory(void **state)
{
    (void)state;
    bitnet_session *s = NULL, *later = NULL;
    bitnet_error why = {0};
    const int32_t id = 20;
    open_engine("cuda");
    OK(open_session(&s, &err));
    setenv("BITNET_EMULATED_FAIL", "cuLaunchKernel 3 700", 1);
    assert_int_not_equal(bitnet_session_append(s, &id, 1, NULL, NULL, &why), BITNET_OK);
    assert_int_equal(open_session(&later, &why), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(why.message, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    bitnet_session_close(s);
    close_engine();
}

int main(void)
{
    find_device("90");
    if (!emulated) /* a real one refuses nothing */
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_to_the_device),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_fusing),
        cmocka_unit_test(test_a_failed_repetition_is_not_counted),
        cmocka_unit_test(test_copies_to_the_host),
        cmocka_unit_test(test_a_failure_is_told_to_whose_it_is),
        cmocka_unit_test(test_a_block_that_is_not_zeroed),
        cmocka_unit_test(test_a_block_that_is_not_zeroed_falls_back),
        cmocka_unit_test(test_measuring_hears_no_failure_of_others),
        cmocka_unit_test(test_lost_is_not_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
