/* test_warmup.c - a warm-up is a step as any other: the kernels of whole passes run, with the head,
 * and nothing of it is left in other sessions (BE-8). */
#include "unit/engine/nano.h"

#include "engine/engine.h"

static nano open_timed(void)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.fake_gpu = "none";
    o.statistics = true;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static uint64_t launches(const nano *n)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    OK(bitnet_engine_stats(n->engine, &s, &err));
    return s.performance.n_launches;
}

static void append(bitnet_session *s, size_t n_ids)
{
    const int32_t ids[] = {7, 8, 9};
    OK(bitnet_session_append(s, ids, n_ids, NULL, NULL, &err));
    assert_non_null(bitnet_session_logits(s));
}

static void test_BE_8_a_warm_up_runs_real_steps(void **state)
{
    (void)state;
    nano n = open_timed();
    bitnet_session *s = nano_session(&n, 64, 64, BITNET_KV_F16);
    append(s, 2);
    append(s, 1);
    uint64_t two = launches(&n); /* of a prompt and a token */
    double ms = 0;
    assert_true(two > 0);
    OK(bitnet_engine_warmup(n.engine, &ms, &err));
    assert_int_equal(launches(&n), 2 * two);
    assert_true(ms > 0);
    assert_int_equal(bitnet_session_position(s), 3);
    OK(bitnet_engine_warmup(n.engine, NULL, &err));
    bitnet_session_close(s);
    nano_close(&n);
}

static void test_BE_8_no_weights_no_warm_up(void **state)
{
    (void)state;
    nano n = open_timed();
    bitnet_engine_options o;
    bitnet_engine *words = NULL;
    bitnet_error why = {0};
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &o, &words, &err));
    assert_int_equal(bitnet_engine_warmup(words, NULL, &why), BITNET_ARGUMENT);
    assert_non_null(strstr(why.message, "there are no weights to run"));
    assert_int_equal(bitnet_engine_warmup(NULL, NULL, &why), BITNET_ARGUMENT);
    bitnet_engine_close(words);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_BE_8_a_warm_up_runs_real_steps),
        cmocka_unit_test(test_BE_8_no_weights_no_warm_up),
    };
    return cmocka_run_group_tests_name("api/warmup", tests, NULL, NULL);
}
