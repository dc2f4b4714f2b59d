/* bitnet_batch_sample: the tokens that stepping one by one and choosing would give. */
#include "nano.h"

enum { K = 5, STEPS = 12 };

static void batch_sample_equals_one_by_one(void **state)
{
    (void)state;
    nano n = nano_open(2);
    bitnet_session *a[K], *b[K];
    bitnet_sampler *sa[K], *sb[K];
    int32_t ids[K], next[K], prompt[80];
    nano_ids(&n, 6, prompt, 80);
    for (int i = 0; i < K; i++) {
        bitnet_sampler_options o;
        bitnet_sampler_options_init(&o);
        o.temperature = i == 0 ? 0 : 0.4f * (float)i;
        o.top_k = i == 2 ? 3 : i == 3 ? 0 : 40;
        o.repetition_penalty = i == 4 ? 1.3f : 1;
        o.seed = 7 + (uint64_t)i;
        OK(bitnet_sampler_open(&o, n.n_vocab, &sa[i], &err));
        OK(bitnet_sampler_open(&o, n.n_vocab, &sb[i], &err));
        a[i] = nano_session(&n, 100, 3, BITNET_KV_F16);
        b[i] = nano_session(&n, 100, 64, BITNET_KV_F16);
        OK(bitnet_session_append(a[i], prompt, (size_t)i * 13 + 1, NULL, NULL, &err));
        OK(bitnet_session_append(b[i], prompt, (size_t)i * 13 + 1, NULL, NULL, &err));
        ids[i] = prompt[i];
    }
    for (int step = 0; step < STEPS; step++) {
        OK(bitnet_batch_sample(a, sa, ids, K, next, &err));
        for (int i = 0; i < K; i++) {
            int32_t want;
            OK(bitnet_session_append(b[i], &ids[i], 1, NULL, NULL, &err));
            size_t at = bitnet_session_position(b[i]);
            OK(bitnet_sampler_pick(sb[i], bitnet_session_logits(b[i]), bitnet_session_tokens(b[i]),
                                   at, &want, &err));
            assert_int_equal(next[i], want);
            assert_int_equal(bitnet_session_position(a[i]), at);
            assert_null(bitnet_session_logits(a[i]));
            ids[i] = next[i];
        }
    }
    OK(bitnet_batch_step(a, ids, K, &err)); /* and all logits are there again */
    assert_non_null(bitnet_session_logits(a[0]));
    for (int i = 0; i < K; i++) {
        bitnet_session_close(a[i]);
        bitnet_session_close(b[i]);
        bitnet_sampler_close(sa[i]);
        bitnet_sampler_close(sb[i]);
    }
    nano_close(&n);
}

static void wrong_arguments(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = nano_session(&n, 16, 4, BITNET_KV_F16);
    bitnet_sampler *p = NULL, *none = NULL;
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    OK(bitnet_sampler_open(&o, n.n_vocab - 1, &p, &err));
    int32_t id = 1, next = -7;
    FAILS(bitnet_batch_sample(&s, &none, &id, 1, &next, &err), BITNET_ARGUMENT, "sampler 0");
    FAILS(bitnet_batch_sample(&s, &p, &id, 1, &next, &err), BITNET_ARGUMENT, "another vocabulary");
    FAILS(bitnet_batch_sample(&s, &p, &id, 1, NULL, &err), BITNET_ARGUMENT, "must not be NULL");
    OK(bitnet_batch_sample(NULL, NULL, NULL, 0, NULL, &err));
    assert_int_equal(bitnet_session_position(s), 0);
    bitnet_sampler_close(p);
    bitnet_session_close(s);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batch_sample_equals_one_by_one),
                                       cmocka_unit_test(wrong_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
