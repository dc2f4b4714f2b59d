/* Log-likelihood: against a softmax in long double, cut and in windows. */
#include "nano.h"

#include <math.h>

enum { N = 60 };

typedef struct reference {
    const int32_t *ids;
    size_t n_ids;
    int n_vocab;
    double surprise[N]; /* of token i + 1 after tokens 0..i */
} reference;

static bool collect(void *user, size_t index, const float *logits)
{
    reference *r = user;
    long double sum = 0;
    for (int i = 0; i < r->n_vocab; i++)
        sum += expl((long double)logits[i] - 50);
    if (index + 1 < r->n_ids)
        r->surprise[index] = (double)(logl(sum) + 50 - (long double)logits[r->ids[index + 1]]);
    return true;
}

static double sum_of(const nano *n, const int32_t *ids, size_t n_ids, size_t from)
{
    reference r = {.ids = ids, .n_ids = n_ids, .n_vocab = n->n_vocab};
    bitnet_session *s = nano_session(n, 0, 0, BITNET_KV_F16);
    OK(bitnet_session_append(s, ids, n_ids, collect, &r, &err));
    bitnet_session_close(s);
    double sum = 0;
    for (size_t i = from; i + 1 < n_ids; i++)
        sum += r.surprise[i];
    return sum;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-5 * fabs(b)))
        fail_msg("%.9g is not %.9g", a, b);
}

static void scores(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[N];
    nano_ids(&n, 21, ids, N);
    bitnet_session *s = nano_session(&n, 0, 7, BITNET_KV_F16),
                   *small = nano_session(&n, 25, 0, BITNET_KV_F16);
    bitnet_score_result r;
    OK(bitnet_session_append(s, ids + 5, 9, NULL, NULL, &err)); /* a past that must not matter */
    OK(bitnet_score(s, ids, N, 0, &r, &err));
    assert_int_equal(r.n_tokens, N);
    assert_int_equal(r.n_scored, N - 1);
    near(r.nll, sum_of(&n, ids, N, 0));

    OK(bitnet_score(small, ids, N, 0, &r, &err)); /* cut at the context */
    assert_int_equal(r.n_tokens, 25);
    assert_int_equal(r.n_scored, 24);
    near(r.nll, sum_of(&n, ids, 25, 0));

    OK(bitnet_score(small, ids, N, 10, &r,
                    &err)); /* windows [0,25) [10,35) [20,45) [30,55) [40,60) */
    assert_int_equal(r.n_tokens, N);
    assert_int_equal(r.n_scored, N - 1);
    double want = sum_of(&n, ids, 25, 0);
    for (size_t begin = 10; begin <= 30; begin += 10)
        want += sum_of(&n, ids + begin, 25, 14);
    want += sum_of(&n, ids + 40, 20, 14);
    near(r.nll, want);

    OK(bitnet_score(small, ids, N, 24, &r, &err)); /* the longest stride: windows meet */
    assert_int_equal(r.n_scored, N - 1);
    near(r.nll, sum_of(&n, ids, 25, 0) + sum_of(&n, ids + 24, 25, 0) + sum_of(&n, ids + 48, 12, 0));

    for (size_t k = 0; k < 2; k++) {
        OK(bitnet_score(s, ids, k, 0, &r, &err));
        assert_int_equal(r.n_tokens, k);
        assert_int_equal(r.n_scored, 0);
        assert_true(r.nll == 0);
    }
    FAILS(bitnet_score(small, ids, N, 25, &r, &err), BITNET_ARGUMENT,
          "stride is 25, must be 0 or 1..24");
    ids[3] = -4;
    FAILS(bitnet_score(small, ids, N, 0, &r, &err), BITNET_ARGUMENT, "score: id -4 at index 3");
    bitnet_session_close(s);
    bitnet_session_close(small);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
