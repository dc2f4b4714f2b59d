/* What a caller who asked is told: how far loading, a prompt, a score, a validation have come. It
 * never falls, reaches the end, changes no bit, and false ends the call with nothing spoiled. */
#include "unit/engine/nano.h"

#include "bitnet_check.h"
#include "bitnet_tools.h"

enum { N = 90 };

typedef struct told {
    uint64_t done, total, n_calls, stop_at; /* stop_at: the call that says no; 0: none does */
    bool fell, moved;
} told;

static bool tell(void *user, uint64_t done, uint64_t total)
{
    told *t = user;
    t->fell = t->fell || done < t->done || done > total;
    t->moved = t->moved || (t->n_calls && total != t->total);
    t->done = done;
    t->total = total;
    return ++t->n_calls != t->stop_at;
}

static void complete(const told *t, uint64_t at_least)
{
    if (t->fell || t->moved || t->done != t->total || t->total == 0 || t->n_calls < at_least)
        fail_msg("told %llu times, at last %llu of %llu%s%s", (unsigned long long)t->n_calls,
                 (unsigned long long)t->done, (unsigned long long)t->total,
                 t->fell ? ", less than before" : "", t->moved ? ", of another total" : "");
}

static uint64_t tensor_bytes(void)
{
    uint64_t n_bytes = 0;
    bitnet_inspect *i = NULL;
    bitnet_inspect_tensor t;
    OK(bitnet_inspect_open(NANO_PATH, &i, &err));
    for (size_t k = 0; bitnet_inspect_tensor_at(i, k, &t); k++)
        n_bytes += t.n_bytes;
    bitnet_inspect_close(i);
    return n_bytes;
}

static bitnet_status load(bool strict, told *t, bitnet_engine **e, bitnet_runtime **r,
                          bitnet_error *err)
{
    bitnet_runtime_options ro;
    bitnet_engine_options o;
    bitnet_runtime_options_init(&ro);
    ro.n_threads = 2;
    ro.strict = strict;
    assert_int_equal(bitnet_runtime_open(&ro, r, err), BITNET_OK);
    bitnet_engine_options_init(&o);
    o.on_progress = tell;
    o.progress_user = t;
    return bitnet_engine_open(*r, NANO_PATH, &o, e, err);
}

static void loading(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        bitnet_runtime *r = NULL;
        bitnet_engine *e = NULL;
        told t = {0}, stopped = {0};
        OK(load(strict, &t, &e, &r, &err));
        complete(&t, 10);
        assert_int_equal(t.total, tensor_bytes() * (strict ? 2 : 1));
        bitnet_engine_close(e);
        bitnet_runtime_close(r);
        for (stopped.stop_at = 1; stopped.stop_at <= t.n_calls; stopped.stop_at += 7) {
            e = NULL;
            stopped.n_calls = stopped.done = 0;
            FAILS(load(strict, &stopped, &e, &r, &err), BITNET_CANCELLED, "cancelled");
            assert_null(e);
            assert_int_equal(stopped.n_calls, stopped.stop_at);
            bitnet_runtime_close(r);
        }
    }
}

static void vocabulary_alone(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_engine_options o;
    bitnet_engine *e = NULL;
    told t = {0};
    bitnet_engine_options_init(&o);
    o.on_progress = tell;
    o.progress_user = &t;
    o.vocab_only = true;
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &o, &e, &err));
    assert_int_equal(t.n_calls, 0);
    bitnet_engine_close(e);
    nano_close(&n);
}

static bool ignore(void *user, size_t index, const float *logits)
{
    (void)user, (void)index, (void)logits;
    return true;
}

/* The same bits as without being told, and cancelled anywhere the session goes on as if it had not
 * begun. */
static void prompts(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[N];
    nano_ids(&n, 5, ids, N);
    bitnet_session *plain = nano_session(&n, 0, 40, BITNET_KV_F16);
    bitnet_session *s = nano_session(&n, 0, 40, BITNET_KV_F16);
    OK(bitnet_session_append(plain, ids, N, NULL, NULL, &err));
    for (int each = 0; each < 2; each++) {
        told t = {0};
        bitnet_session_on_progress(s, tell, &t);
        OK(bitnet_session_append(s, ids, N, each ? ignore : NULL, NULL, &err));
        complete(&t, 6); /* three passes of several layers */
        assert_int_equal(t.total, N);
        assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(plain), "told");
        for (uint64_t at = 1; at <= t.n_calls; at++) {
            told no = {.stop_at = at};
            OK(bitnet_session_rewind(s, 0, &err));
            bitnet_session_on_progress(s, tell, &no);
            FAILS(bitnet_session_append(s, ids, N, each ? ignore : NULL, NULL, &err),
                  BITNET_CANCELLED, "cancelled at position");
            assert_int_equal(no.n_calls, at);
            size_t came = bitnet_session_position(s);
            assert_true(came <= N);
            bitnet_session_on_progress(s, NULL, NULL);
            if (came < N)
                OK(bitnet_session_append(s, ids + came, N - came, NULL, NULL, &err));
            assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(plain), "after");
        }
        OK(bitnet_session_rewind(s, 0, &err));
    }
    bitnet_session_close(s);
    bitnet_session_close(plain);
    nano_close(&n);
}

/* Of a prompt that is partly known, the rest; of single tokens nothing. */
static void generating(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[N];
    nano_ids(&n, 6, ids, N);
    bitnet_session *s = nano_session(&n, 0, 0, BITNET_KV_F16);
    bitnet_sampler *sampler = NULL;
    bitnet_generate_options o;
    told t = {0};
    OK(bitnet_sampler_open(NULL, n.n_vocab, &sampler, &err));
    bitnet_generate_options_init(&o);
    o.max_tokens = 9;
    o.ignore_eos = true;
    bitnet_session_on_progress(s, tell, &t);
    OK(bitnet_generate(s, sampler, ids, N - 20, &o, NULL, &err));
    complete(&t, 2);
    assert_int_equal(t.total, N - 20);
    t = (told){0};
    OK(bitnet_generate(s, sampler, ids, N, &o, NULL, &err));
    complete(&t, 2);
    assert_int_equal(t.total, 20);
    t = (told){.stop_at = 1};
    OK(bitnet_session_rewind(s, 0, &err));
    FAILS(bitnet_generate(s, sampler, ids, N, &o, NULL, &err), BITNET_CANCELLED, "cancelled");
    assert_int_equal(bitnet_session_position(s), 0);
    bitnet_sampler_close(sampler);
    bitnet_session_close(s);
    nano_close(&n);
}

static void scores(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[N];
    nano_ids(&n, 7, ids, N);
    bitnet_session *s = nano_session(&n, 32, 0, BITNET_KV_F16);
    bitnet_score_result plain, r;
    OK(bitnet_score(s, ids, N, 10, &plain, &err));
    told t = {0}, no = {.stop_at = 5};
    bitnet_session_on_progress(s, tell, &t);
    OK(bitnet_score(s, ids, N, 10, &r, &err));
    complete(&t, 8);
    assert_true(r.nll == plain.nll && r.n_scored == plain.n_scored);
    assert_int_equal(t.total, 6 * 31 + 29); /* windows from 0, 10, ..., 50, and 60 to the end */
    bitnet_session_on_progress(s, tell, &no);
    FAILS(bitnet_score(s, ids, N, 10, &r, &err), BITNET_CANCELLED, "cancelled");
    t = (told){0};
    bitnet_session_on_progress(s, tell, &t);
    OK(bitnet_session_rewind(s, 0, &err));
    OK(bitnet_session_append(s, ids, 12, NULL, NULL, &err));
    assert_int_equal(t.total, 12); /* what a score left behind does not count */
    bitnet_session_close(s);
    nano_close(&n);
}

static void validation(void **state)
{
    (void)state;
    nano n = nano_open(2);
    bitnet_validate_options o;
    bitnet_validation *v = NULL;
    told t = {0}, no = {.stop_at = 4};
    bitnet_validate_options_init(&o);
    o.quick = true;
    o.parts = BITNET_VALIDATE_MODEL | BITNET_VALIDATE_ACCURACY;
    o.model_path = NANO_PATH;
    o.on_progress = tell;
    o.progress_user = &t;
    OK(bitnet_validate(n.runtime, &o, &v, &err));
    complete(&t, 20);
    bitnet_validation_free(v);
    o.progress_user = &no;
    FAILS(bitnet_validate(n.runtime, &o, &v, &err), BITNET_CANCELLED, "cancelled");
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading), cmocka_unit_test(vocabulary_alone),
        cmocka_unit_test(prompts), cmocka_unit_test(generating),
        cmocka_unit_test(scores),  cmocka_unit_test(validation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
