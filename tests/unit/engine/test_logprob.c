/* Log-probabilities against a softmax in long double and plain sorting; what cannot be computed;
 * their sum over a text is its score, bit for bit. */
#include "nano.h"

#include <float.h>
#include <math.h>

enum { V_MAX = 700, TOP = 40, N = 30 };

static double reference(const float *logits, int n, int32_t id)
{
    long double sum = 0;
    for (int i = 0; i < n; i++)
        sum += expl((long double)logits[i] - 20);
    return (double)((long double)logits[id] - 20 - logl(sum));
}

static void near(double a, double b)
{
    if (a != b && !(fabs(a - b) <= 1e-5 * fmax(1, fabs(b))))
        fail_msg("%.12g is not %.12g", a, b);
}

/* The best one that is not listed yet: the lowest of equal ids. */
static int32_t next_best(const float *logits, int n, const bitnet_logprob *listed, size_t n_listed)
{
    int32_t best = -1;
    for (int32_t id = 0; id < n; id++) {
        bool taken = !(logits[id] >= -FLT_MAX);
        for (size_t i = 0; i < n_listed; i++)
            taken = taken || listed[i].id == id;
        if (!taken && (best < 0 || logits[id] > logits[best]))
            best = id;
    }
    return best;
}

static void rows(void **state)
{
    (void)state;
    uint64_t rng = 31;
    float logits[V_MAX];
    for (int round = 0; round < 300; round++) {
        int n = 1 + (int)(test_rand(&rng) % V_MAX);
        for (int i = 0; i < n; i++) {
            logits[i] =
                (float)(test_rand(&rng) % (round % 2 ? 30 : 30000)) / (round % 2 ? 1.0f : 1000.0f) -
                5;
            if (round % 3 == 0 && i && test_rand(&rng) % 4 == 0)
                logits[i] = -INFINITY;
        }
        size_t n_top = test_rand(&rng) % TOP;
        bitnet_logprob top[TOP], chosen[3], again[1];
        for (int i = 0; i < 3; i++)
            chosen[i].id = (int32_t)(test_rand(&rng) % (unsigned)n);
        again[0] = chosen[2];
        OK(bitnet_logprobs(logits, n, chosen, 3, top, n_top, &err));
        OK(bitnet_logprobs(logits, n, again, 1, NULL, 0, &err));
        assert_memory_equal(&again[0].logprob, &chosen[2].logprob, sizeof(double));
        for (int i = 0; i < 3; i++)
            near(chosen[i].logprob, reference(logits, n, chosen[i].id));
        for (size_t i = 0; i < n_top; i++) {
            assert_int_equal(top[i].id, next_best(logits, n, top, i));
            near(top[i].logprob, top[i].id < 0 ? -INFINITY : reference(logits, n, top[i].id));
        }
    }
}

static const float *sorted_by;

static int larger_first(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sorted_by[x] != sorted_by[y])
        return sorted_by[x] > sorted_by[y] ? -1 : 1;
    return x - y;
}

/* More than are held at once, with many equal ones; fewer than are asked for. */
static void many(void **state)
{
    (void)state;
    enum { MANY = 1500 };
    static const size_t counts[] = {511, 512, 513, 1000, BITNET_LOGPROBS_MAX};
    static float logits[MANY];
    static int32_t order[MANY];
    static bitnet_logprob top[BITNET_LOGPROBS_MAX];
    uint64_t rng = 37;
    for (int round = 0; round < 10; round++) {
        int n = round % 2 ? MANY : 700;
        for (int i = 0; i < n; i++) {
            logits[i] = (float)(test_rand(&rng) % (round < 5 ? 20 : 5000)) / 100.0f;
            order[i] = i;
        }
        sorted_by = logits;
        qsort(order, (size_t)n, sizeof *order, larger_first);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            OK(bitnet_logprobs(logits, n, NULL, 0, top, counts[c], &err));
            for (size_t i = 0; i < counts[c]; i++)
                assert_int_equal(top[i].id, i < (size_t)n ? order[i] : -1);
        }
    }
}

static void refused(void **state)
{
    (void)state;
    float logits[3] = {1, 2, 3};
    bitnet_logprob one = {.id = 3};
    FAILS(bitnet_logprobs(logits, 3, &one, 1, NULL, 0, &err), BITNET_ARGUMENT,
          "chosen[0].id is 3, must be 0..2");
    one.id = -1;
    FAILS(bitnet_logprobs(logits, 3, &one, 1, NULL, 0, &err), BITNET_ARGUMENT, "is -1");
    FAILS(bitnet_logprobs(logits, 0, NULL, 0, NULL, 0, &err), BITNET_ARGUMENT, "n_vocab is 0");
    FAILS(bitnet_logprobs(logits, 3, NULL, 0, &one, BITNET_LOGPROBS_MAX + 1, &err), BITNET_ARGUMENT,
          "n_top is 1025");
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        logits[1] = bad[i];
        FAILS(bitnet_logprobs(logits, 3, NULL, 0, &one, 1, &err), BITNET_ERROR, "not finite");
    }
    logits[0] = logits[1] = logits[2] = -INFINITY;
    FAILS(bitnet_logprobs(logits, 3, NULL, 0, &one, 1, &err), BITNET_ERROR, "not finite");
}

typedef struct sum {
    const int32_t *next;
    int n_vocab;
    double nll;
} sum;

static bool add(void *user, size_t index, const float *logits)
{
    sum *s = user;
    bitnet_logprob one = {.id = s->next[index]};
    OK(bitnet_logprobs(logits, s->n_vocab, &one, 1, NULL, 0, &err));
    s->nll -= one.logprob;
    return true;
}

static void sums_to_the_score(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[N];
    nano_ids(&n, 3, ids, N);
    bitnet_session *s = nano_session(&n, 64, 7, BITNET_KV_F16);
    bitnet_score_result r;
    OK(bitnet_score(s, ids, N, 0, &r, &err));
    sum mine = {.next = ids + 1, .n_vocab = n.n_vocab};
    OK(bitnet_session_rewind(s, 0, &err));
    OK(bitnet_session_append(s, ids, N - 1, add, &mine, &err));
    assert_memory_equal(&mine.nll, &r.nll, sizeof r.nll);
    bitnet_session_close(s);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(many),
        cmocka_unit_test(refused),
        cmocka_unit_test(sums_to_the_score),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
