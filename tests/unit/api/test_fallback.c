/* BE_11: a step that fails at run time is repeated on the CPU: the right answer, a count, a word in
 * the receipt; in strict mode, or with a device asked for by name, an error. */
#include "unit/engine/nano.h"
#include "bitnet_check.h"

#include <jansson.h>
#include <unistd.h>

#include "unit/engine/broken.h"

enum { N_PROMPT = 70, N_MORE = 6 };

typedef struct warning {
    int n;
    char text[512];
} warning;

static void hear(void *user, bitnet_log_level level, const char *module, const char *message)
{
    warning *w = user;
    if (level != BITNET_LOG_WARN || strcmp(module, "engine") != 0)
        return;
    w->n++;
    snprintf(w->text, sizeof w->text, "%s", message);
}

static nano open_with(bool strict, warning *w)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.strict = strict;
    o.log = hear;
    o.log_user = w;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

/* Logits after every one of the ids, appended in two pieces and then one by one. */
static bool collect(void *user, size_t index, const float *logits)
{
    (void)index;
    float **at = user;
    memcpy(*at, logits, 512 * sizeof *logits);
    *at += 512;
    return true;
}

static bitnet_status run_all(const nano *n, float *logits, bitnet_error *err)
{
    int32_t ids[N_PROMPT + N_MORE];
    nano_ids(n, 5, ids, N_PROMPT + N_MORE);
    bitnet_session *s = nano_session(n, 256, 32, BITNET_KV_F16);
    float *at = logits;
    bitnet_status st = bitnet_session_append(s, ids, N_PROMPT, collect, &at, err);
    for (int i = N_PROMPT; st == BITNET_OK && i < N_PROMPT + N_MORE; i++) {
        st = bitnet_session_append(s, ids + i, 1, NULL, NULL, err);
        if (st == BITNET_OK) {
            memcpy(at, bitnet_session_logits(s), 512 * sizeof *at);
            at += 512;
        }
    }
    if (st == BITNET_OK)
        assert_int_equal(at - logits, (N_PROMPT + N_MORE) * 512);
    bitnet_session_close(s);
    return st;
}

static uint64_t fallback_count(const nano *n)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    OK(bitnet_engine_stats(n->engine, &s, &err));
    return s.on_device.fallback_count;
}

/* Whichever sync fails, in a prompt, between two deliveries of logits or while decoding. */
static void BE_11_any_step_may_fail(void **state)
{
    (void)state;
    size_t size = (N_PROMPT + N_MORE) * 512 * sizeof(float);
    float *want = malloc(size), *got = malloc(size);
    warning w = {0};
    nano n = open_with(false, &w);
    assert_int_equal(n.n_vocab, 512);
    break_engine(n.engine, 0, false);
    OK(run_all(&n, want, &err));
    int n_syncs = the_broken.n_syncs;
    assert_int_equal(fallback_count(&n), 0);
    nano_close(&n);
    assert_true(n_syncs > 8);
    for (int at = 1; at <= n_syncs; at++) {
        w = (warning){0};
        n = open_with(false, &w);
        break_engine(n.engine, at, at % 2);
        memset(got, 0, size);
        OK(run_all(&n, got, &err));
        if (memcmp(want, got, size) != 0)
            fail_msg("sync %d of %d fails: the logits differ", at, n_syncs);
        assert_int_equal(fallback_count(&n), 1);
        assert_int_equal(w.n, 1);
        assert_non_null(strstr(w.text, "injected failure"));
        bitnet_engine_stats_reset(n.engine);
        assert_int_equal(fallback_count(&n), 0);
        nano_close(&n);
    }
    free(want);
    free(got);
}

static void BE_11_strict_is_an_error(void **state)
{
    (void)state;
    warning w = {0};
    float *got = malloc((N_PROMPT + N_MORE) * 512 * sizeof *got);
    nano n = open_with(true, &w);
    break_engine(n.engine, 2, false);
    FAILS(run_all(&n, got, &err), BITNET_ERROR, "strict mode allows no fallback");
    assert_int_equal(fallback_count(&n), 0);
    nano_close(&n);
    free(got);
}

/* A device asked for by name is used or an error; only auto goes on elsewhere. */
static void BE_11_named_device_is_an_error(void **state)
{
    (void)state;
    warning w = {0};
    float *got = malloc((N_PROMPT + N_MORE) * 512 * sizeof *got);
    for (int is_auto = 0; is_auto < 2; is_auto++) {
        nano n = open_with(false, &w);
        break_engine(n.engine, 2, false);
        n.engine->selection.kind = BNET_DEV_CUDA; /* as if it had been one */
        n.engine->selection.is_auto = is_auto;
        if (is_auto)
            OK(run_all(&n, got, &err));
        else
            FAILS(run_all(&n, got, &err), BITNET_ERROR, "cuda was asked for by name");
        assert_int_equal(fallback_count(&n), is_auto);
        nano_close(&n);
    }
    free(got);
}

/* Sessions on both sides go through one batch step. */
static void BE_11_batches(void **state)
{
    (void)state;
    enum { N = 4 };
    warning w = {0};
    nano n = open_with(false, &w);
    bitnet_session *a[N], *b[N];
    int32_t ids[N * 9];
    nano_ids(&n, 8, ids, N * 9);
    for (int i = 0; i < N; i++) {
        a[i] = nano_session(&n, 64, 8, BITNET_KV_F16);
        b[i] = nano_session(&n, 64, i == 2 ? 16 : 2, BITNET_KV_F16);
        OK(bitnet_session_append(a[i], ids + 9 * i, 8, NULL, NULL, &err));
        OK(bitnet_session_append(a[i], ids + 9 * i + 8, 1, NULL, NULL, &err));
        OK(bitnet_session_append(a[i], ids, 1, NULL, NULL, &err));
    }
    for (int i = 0; i < N; i++) {
        OK(bitnet_session_append(b[i], ids + 9 * i, 8, NULL, NULL, &err));
        if (i == 0) { /* one has fallen already */
            break_engine(n.engine, 1, false);
            OK(bitnet_session_append(b[0], ids + 8, 1, NULL, NULL, &err));
            OK(bitnet_session_rewind(b[0], 8, &err));
            assert_true(b[0]->fallen);
        }
    }
    int32_t last[N], again[N];
    for (int i = 0; i < N; i++) {
        last[i] = ids[9 * i + 8];
        again[i] = ids[0];
    }
    OK(step_each(n.engine, b, NULL, last, N, NULL, &err));
    assert_false(b[3]->fallen);
    the_broken.fail_at = the_broken.n_syncs + 2; /* after the one that has fallen */
    OK(step_each(n.engine, b, NULL, again, N, NULL, &err));
    for (int i = 0; i < N; i++) {
        assert_same_logits(&n, bitnet_session_logits(a[i]), bitnet_session_logits(b[i]), "batch");
        assert_int_equal(bitnet_session_position(b[i]), 10);
    }
    assert_true(fallback_count(&n) >= 2);
    for (int i = 0; i < N; i++) {
        bitnet_session_close(a[i]);
        bitnet_session_close(b[i]);
    }
    nano_close(&n);
}

/* ---- failures that come at a bad time ---- */

static const bnet_backend_vtable *sound;
static bnet_backend_vtable unsound;
static int n_left; /* calls that succeed before one fails, or all do from there on */
static bool lasting;

static bool fails_now(void)
{
    return lasting ? n_left-- <= 0 : n_left-- == 0;
}

static bitnet_status failing_sync(bnet_backend *be, bitnet_error *err)
{
    return fails_now() ? bnet_fail(err, BITNET_ERROR, "injected failure") : sound->sync(be, err);
}

static bitnet_status failing_release(bnet_backend *be, bitnet_error *err)
{
    bitnet_status st = sound->release ? sound->release(be, err) : BITNET_OK;
    return fails_now() ? bnet_fail(err, BITNET_ERROR, "injected failure") : st;
}

static void harm(bnet_backend *be, bool release, int left, bool for_good)
{
    sound = be->v;
    unsound = *sound;
    if (release)
        unsound.release = failing_release;
    else
        unsound.sync = failing_sync;
    n_left = left;
    lasting = for_good;
    be->v = &unsound;
}

/* The CPU fails too, in the middle of computing the timeline: nothing of it is lost. */
static void BE_11_a_fallback_that_fails(void **state)
{
    (void)state;
    warning w = {0};
    nano n = open_with(false, &w);
    int32_t ids[N_PROMPT + 2];
    nano_ids(&n, 5, ids, N_PROMPT + 2);
    bitnet_session *first = nano_session(&n, 256, 16, BITNET_KV_F16),
                   *s = nano_session(&n, 256, 16, BITNET_KV_F16),
                   *alone = nano_session(&n, 256, 16, BITNET_KV_F16);
    OK(bitnet_session_append(s, ids, N_PROMPT, NULL, NULL, &err));
    OK(bitnet_session_append(alone, ids, N_PROMPT, NULL, NULL, &err));
    break_engine(n.engine, 1, true);
    OK(bitnet_session_append(first, ids, 1, NULL, NULL, &err)); /* now there is a spare */
    harm(n.engine->spare, false, 2, true);
    FAILS(bitnet_session_append(s, ids + N_PROMPT, 1, NULL, NULL, &err), BITNET_ERROR,
          "falling back to the CPU");
    assert_int_equal(bitnet_session_position(s), N_PROMPT);
    assert_false(s->fallen);
    n.engine->spare->v = sound;
    unbreak_engine(n.engine);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "kept");
    OK(bitnet_session_append(s, ids + N_PROMPT, 2, NULL, NULL, &err));
    OK(bitnet_session_append(alone, ids + N_PROMPT, 2, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "continued");
    bitnet_session_close(first);
    bitnet_session_close(s);
    bitnet_session_close(alone);
    nano_close(&n);
}

/* A cache that this machine has no memory for is not asked of the allocator. */
static void BE_11_a_fallback_asks_for_memory_first(void **state)
{
    (void)state;
    warning w = {0};
    nano n = open_with(false, &w);
    bitnet_session *s = nano_session(&n, 256, 16, BITNET_KV_F16);
    const int32_t id = 3;
    OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    s->n_ctx = 1 << 30; /* as if a device had room for it */
    break_engine(n.engine, 1, true);
    FAILS(bitnet_session_append(s, &id, 1, NULL, NULL, &err), BITNET_MEMORY, "free are");
    assert_int_equal(bitnet_session_position(s), 1);
    assert_null(n.engine->spare);
    s->n_ctx = 256;
    unbreak_engine(n.engine);
    bitnet_session_close(s);
    nano_close(&n);
}

static bool fail_after_the_last(void *user, size_t index, const float *logits)
{
    (void)logits;
    if (index + 1 == *(size_t *)user)
        n_left = 0;
    return true;
}

/* All logits were told, then keeping the last state fails: the session has logits after all. */
static void BE_11_logits_after_a_late_failure(void **state)
{
    (void)state;
    warning w = {0};
    nano n = open_with(false, &w);
    int32_t ids[20];
    size_t n_ids = 20;
    nano_ids(&n, 6, ids, n_ids);
    bitnet_session *s = nano_session(&n, 256, 32, BITNET_KV_F16),
                   *alone = nano_session(&n, 256, 32, BITNET_KV_F16);
    OK(bitnet_session_append(alone, ids, n_ids, NULL, NULL, &err));
    harm(n.engine->backend, true, 1000000, false);
    OK(bitnet_session_append(s, ids, n_ids, fail_after_the_last, &n_ids, &err));
    n.engine->backend->v = sound;
    assert_int_equal(fallback_count(&n), 1);
    assert_int_equal(bitnet_session_position(s), n_ids);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "late");
    bitnet_session_close(s);
    bitnet_session_close(alone);
    nano_close(&n);
}

typedef struct saved {
    uint8_t bytes[1 << 20];
    size_t n;
} saved;

static bool keep_bytes(void *user, const void *bytes, size_t n)
{
    saved *s = user;
    if (n > sizeof s->bytes - s->n)
        return false;
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return true;
}

/* The device fails while a saved timeline is brought to it: the one that was there stays. */
static void BE_11_a_load_that_fails(void **state)
{
    (void)state;
    warning w = {0};
    static saved other;
    nano n = open_with(false, &w);
    int32_t ids[N_PROMPT + 1], few[40];
    nano_ids(&n, 5, ids, N_PROMPT + 1);
    nano_ids(&n, 9, few, 40);
    bitnet_session *s = nano_session(&n, 256, 32, BITNET_KV_F16),
                   *alone = nano_session(&n, 256, 32, BITNET_KV_F16);
    OK(bitnet_session_append(alone, few, 40, NULL, NULL, &err));
    OK(bitnet_session_save_to(alone, keep_bytes, &other, &err));
    OK(bitnet_session_sync(alone, ids, N_PROMPT + 1, NULL, &err));
    OK(bitnet_session_append(s, ids, N_PROMPT, NULL, NULL, &err));
    harm(n.engine->backend, false, 0, true);
    FAILS(bitnet_session_load_memory(s, other.bytes, other.n, &err), BITNET_ERROR, "injected");
    n.engine->backend->v = sound;
    assert_int_equal(bitnet_session_position(s), N_PROMPT);
    assert_memory_equal(bitnet_session_tokens(s), ids, N_PROMPT * sizeof *ids);
    OK(bitnet_session_append(s, ids + N_PROMPT, 1, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "not loaded");
    OK(bitnet_session_load_memory(s, other.bytes, other.n, &err));
    assert_int_equal(bitnet_session_position(s), 40);
    bitnet_session_close(s);
    bitnet_session_close(alone);
    nano_close(&n);
}

/* the receipt tells, and is refused. */
static void BE_11_receipt_says_fallback(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-fallback-XXXXXX";
    int fd = mkstemp(path), gate = 0;
    assert_true(fd >= 0);
    warning w = {0};
    nano n = open_with(false, &w);
    bitnet_receipt *r = NULL;
    float *got = malloc((N_PROMPT + N_MORE) * 512 * sizeof *got);
    OK(bitnet_receipt_open(n.engine, &r, &err));
    break_engine(n.engine, 3, false);
    OK(run_all(&n, got, &err));
    OK(bitnet_receipt_write(r, NULL, path, &err));
    FAILS(bitnet_receipt_verify(path, NULL, &gate, &err), BITNET_RECEIPT, "gate 2 ");
    assert_int_equal(gate, 2);
    json_t *j = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "compute_path")), "fallback");
    json_t *f = json_object_get(j, "fallback");
    assert_int_equal(json_integer_value(json_object_get(f, "steps")), 1);
    assert_true(json_integer_value(json_object_get(f, "kernel_calls")) > 0);
    assert_non_null(json_object_get(json_object_get(j, "kernel_calls"), "linear_i2s.scalar"));
    json_decref(j);
    bitnet_receipt_close(r);
    nano_close(&n);
    free(got);
    close(fd);
    remove(path);
}

static bool yes(void *user)
{
    return *(const bool *)user;
}

/* Who may end a session's work may still do so after it has moved to the CPU. */
static void BE_11_cancel_moves_along(void **state)
{
    (void)state;
    warning w = {0};
    int32_t ids[N_PROMPT];
    bool stop = false;
    nano n = open_with(false, &w);
    break_engine(n.engine, 1, false);
    nano_ids(&n, 5, ids, N_PROMPT);
    bitnet_session *s = nano_session(&n, 256, 32, BITNET_KV_F16);
    bitnet_session_on_cancel(s, yes, &stop);
    OK(bitnet_session_append(s, ids, 8, NULL, NULL, &err));
    assert_int_equal(fallback_count(&n), 1);
    stop = true;
    assert_int_equal(bitnet_session_append(s, ids + 8, 8, NULL, NULL, NULL), BITNET_CANCELLED);
    bitnet_session_close(s);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(BE_11_any_step_may_fail),
        cmocka_unit_test(BE_11_cancel_moves_along),
        cmocka_unit_test(BE_11_strict_is_an_error),
        cmocka_unit_test(BE_11_named_device_is_an_error),
        cmocka_unit_test(BE_11_batches),
        cmocka_unit_test(BE_11_a_fallback_that_fails),
        cmocka_unit_test(BE_11_a_fallback_asks_for_memory_first),
        cmocka_unit_test(BE_11_logits_after_a_late_failure),
        cmocka_unit_test(BE_11_a_load_that_fails),
        cmocka_unit_test(BE_11_receipt_says_fallback),
    };
    return cmocka_run_group_tests_name("fallback", tests, NULL, NULL);
}
