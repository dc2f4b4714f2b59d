/* Every stage of the sampler against a slow reference written from the header's words, its draws
 * against the distribution, its errors, its speed on a large vocabulary. */
#include "test.h"

#include <float.h>
#include <malloc.h>
#include <math.h>
#include <time.h>

#include "sampler/sampler.h"
#include "torture/interpose.h"

typedef struct item {
    int32_t id;
    double logit, p, distance;
} item;

static bitnet_sampler_options plain(void)
{
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    return o;
}

static bitnet_sampler *open_ok(const bitnet_sampler_options *o, int n_vocab)
{
    bitnet_sampler *s = NULL;
    bitnet_error err = {0};
    if (bitnet_sampler_open(o, n_vocab, &s, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return s;
}

static float uniform(uint64_t *rng)
{
    return (float)(test_rand(rng) >> 40) / 16777216.0f;
}

/* A rough bell of the given width. */
static float bell(uint64_t *rng, float width)
{
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += uniform(rng);
    return (sum - 6) * width;
}

/* ---- the reference ---- */

static int by_p(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1)
                                : (x->id > y->id) - (x->id < y->id);
}

static int by_distance(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->distance != y->distance ? (x->distance > y->distance ? 1 : -1)
                                      : (x->id > y->id) - (x->id < y->id);
}

static void normalise(item *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i].p;
    for (size_t i = 0; i < n; i++)
        v[i].p /= sum;
}

static size_t share(const item *v, size_t n, double want)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if ((sum += v[i].p) >= want - 1e-9)
            return i + 1;
    return n;
}

static double penalise(const bitnet_sampler_options *o, double logit, int32_t id,
                       const int32_t *history, size_t n)
{
    size_t from =
        o->penalty_window && n > (size_t)o->penalty_window ? n - (size_t)o->penalty_window : 0;
    int count = 0, said = 0;
    for (size_t i = from; i < n; i++)
        count += history[i] == id;
    for (size_t i = o->penalty_from ? o->penalty_from : from; i < n; i++)
        said += history[i] == id;
    if (count)
        logit = logit > 0 ? logit / (double)o->repetition_penalty
                          : logit * (double)o->repetition_penalty;
    return said ? logit - (double)o->presence_penalty - said * (double)o->frequency_penalty : logit;
}

static size_t reference(const bitnet_sampler_options *o, const float *logits, int n_vocab,
                        const int32_t *history, size_t n_history, item *v)
{
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++)
        if (isfinite(logits[id]))
            v[n++] =
                (item){.id = id, .logit = penalise(o, (double)logits[id], id, history, n_history)};
    qsort(v, n, sizeof *v, by_p);
    if (o->top_k > 0 && n > (size_t)o->top_k)
        n = (size_t)o->top_k;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        v[i].p = exp((v[i].logit - v[0].logit) / (double)o->temperature);
        kept += v[i].p * (double)BNET_WEIGHT_ONE >= 1;
    }
    normalise(v, n = kept);
    if (o->typical_p < 1) {
        double entropy = 0;
        for (size_t i = 0; i < n; i++)
            entropy -= v[i].p * log(v[i].p);
        for (size_t i = 0; i < n; i++)
            v[i].distance = fabs(-log(v[i].p) - entropy);
        qsort(v, n, sizeof *v, by_distance);
        n = share(v, n, (double)o->typical_p);
        qsort(v, n, sizeof *v, by_p);
        normalise(v, n);
    }
    n = share(v, n, o->top_p < 1 ? (double)o->top_p : 2);
    for (size_t i = 0; i < n; i++)
        if (v[i].p < (double)o->min_p * v[0].p * (1 - 1e-9))
            n = i;
    normalise(v, n);
    return n;
}

static void compare(const bitnet_sampler_options *o, const float *logits, int n_vocab,
                    const int32_t *history, size_t n_history)
{
    item *want = calloc((size_t)n_vocab, sizeof *want);
    int32_t *ids = calloc((size_t)n_vocab, sizeof *ids);
    uint64_t *weights = calloc((size_t)n_vocab, sizeof *weights), total, sum = 0;
    size_t n, n_want = reference(o, logits, n_vocab, history, n_history, want);
    bitnet_sampler *s = open_ok(o, n_vocab);
    assert_int_equal(bnet_sampler_distribution(s, logits, history, n_history, ids, weights,
                                               (size_t)n_vocab, &n, &total, NULL),
                     BITNET_OK);
    if (n != n_want)
        fail_msg("%zu candidates, reference has %zu (vocab %d k %d p %g min %g typ %g t %g)", n,
                 n_want, n_vocab, o->top_k, (double)o->top_p, (double)o->min_p,
                 (double)o->typical_p, (double)o->temperature);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] != want[i].id)
            fail_msg("place %zu is id %d, reference has %d", i, ids[i], want[i].id);
        double p = (double)weights[i] / (double)total;
        if (fabs(p - want[i].p) > 2e-6)
            fail_msg("id %d has p %.9g, reference %.9g", ids[i], p, want[i].p);
        sum += weights[i];
    }
    assert_true(sum == total);
    bitnet_sampler_close(s);
    free(want);
    free(ids);
    free(weights);
}

/* ---- tests ---- */

static void stages(void **state)
{
    (void)state;
    uint64_t rng = 20240229;
    print_message("seed %llu\n", (unsigned long long)rng);
    static const float temperatures[] = {0.3f, 0.7f, 1.0f, 2.5f};
    for (int round = 0; round < 1200; round++) {
        int n_vocab = 1 + (int)(test_rand(&rng) % 400);
        float logits[400];
        int32_t history[200];
        for (int i = 0; i < n_vocab; i++)
            logits[i] = bell(&rng, 3);
        for (int i = 0; i < 200; i++)
            history[i] = (int32_t)(test_rand(&rng) % (uint64_t)n_vocab);
        bitnet_sampler_options o = plain();
        unsigned which = (unsigned)round % 64; /* every combination of stages */
        o.temperature = temperatures[test_rand(&rng) % 4];
        o.top_k = which & 1 ? 1 + (int)(test_rand(&rng) % 100) : 0;
        o.top_p = which & 2 ? uniform(&rng) : 1;
        o.min_p = which & 4 ? uniform(&rng) * 0.2f : 0;
        o.typical_p = which & 8 ? uniform(&rng) : 1;
        o.repetition_penalty = which & 16 ? 1 + uniform(&rng) : 1;
        o.presence_penalty = which & 32 ? uniform(&rng) * 2 - 1 : 0;
        o.frequency_penalty = which & 32 ? uniform(&rng) : 0;
        o.penalty_window = (int)(test_rand(&rng) % 3) * 50;
        o.penalty_from = test_rand(&rng) % 4 * 70; /* 210 is beyond every history here */
        compare(&o, logits, n_vocab, history, test_rand(&rng) % 201);
    }
}

static void ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    float logits[100];
    for (int i = 0; i < 100; i++)
        logits[i] = i % 10 == 7 ? 2.0f : 1.0f;
    bitnet_sampler_options o = plain();
    o.top_k = 13;
    compare(&o, logits, 100, NULL, 0); /* the ten 7s, then 0, 1, 2 */
    o.temperature = 0;
    bitnet_sampler *s = open_ok(&o, 100);
    int32_t id;
    assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
    assert_int_equal(id, 7);
    bitnet_sampler_close(s);
}

static size_t n_candidates(const bitnet_sampler_options *o, const float *logits, int n_vocab)
{
    int32_t ids[8];
    uint64_t weights[8], total;
    size_t n = 0;
    bitnet_sampler *s = open_ok(o, n_vocab);
    assert_int_equal(
        bnet_sampler_distribution(s, logits, NULL, 0, ids, weights, 8, &n, &total, NULL),
        BITNET_OK);
    bitnet_sampler_close(s);
    return n;
}

/* Equal logits have equal weights, so these shares are met to the last bit: top_p is satisfied by
 * a share that equals it, min_p keeps what is as heavy as it asks for. */
static void shares_met_exactly(void **state)
{
    (void)state;
    static const float even[4] = {1, 1, 1, 1}, first_two[4] = {0, 2, 2, 0};
    bitnet_sampler_options o = plain();
    o.top_p = 0.5f;
    assert_int_equal(n_candidates(&o, even, 4), 2);
    o.top_p = 0.75f;
    assert_int_equal(n_candidates(&o, even, 4), 3);
    o = plain();
    o.typical_p = 0.25f;
    assert_int_equal(n_candidates(&o, even, 4), 1);
    o = plain();
    o.min_p = 1;
    assert_int_equal(n_candidates(&o, even, 4), 4);
    assert_int_equal(n_candidates(&o, first_two, 4), 2);
}

static void bad_logits_are_never_chosen(void **state)
{
    (void)state;
    float logits[5] = {NAN, INFINITY, 1.0f, -INFINITY, NAN};
    bitnet_sampler_options o = plain();
    int32_t id;
    for (int greedy = 0; greedy < 2; greedy++) {
        o.temperature = greedy ? 0 : 1;
        bitnet_sampler *s = open_ok(&o, 5);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
            assert_int_equal(id, 2);
        }
        logits[2] = NAN;
        bitnet_error err = {0};
        id = -7;
        assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err), BITNET_ERROR);
        assert_non_null(strstr(err.message, "none of the 5 logits is finite"));
        assert_int_equal(id, -7);
        logits[2] = 1.0f;
        bitnet_sampler_close(s);
    }
}

static void extremes(void **state)
{
    (void)state;
    float logits[4] = {FLT_MAX, -FLT_MAX, 0, FLT_MAX};
    int32_t id, history[2] = {0, 3};
    bitnet_sampler_options o = plain();
    o.temperature = FLT_MIN;
    o.repetition_penalty = 0.01f; /* FLT_MAX / 0.01 would overflow */
    bitnet_sampler *s = open_ok(&o, 4);
    bool seen[4] = {false};
    for (int i = 0; i < 64; i++) {
        assert_int_equal(bitnet_sampler_pick(s, logits, history, 2, &id, NULL), BITNET_OK);
        seen[id] = true;
    }
    assert_true(seen[0] && seen[3] && !seen[1] && !seen[2]);
    bitnet_sampler_close(s);
    history[0] = -5; /* ids that are no tokens are passed over */
    history[1] = 4;
    s = open_ok(&o, 4);
    assert_int_equal(bitnet_sampler_pick(s, logits, history, 2, &id, NULL), BITNET_OK);
    bitnet_sampler_close(s);
}

/* What init promises (bitnet.h, the manual page): nobody else writes these down. */
static void defaults(void **state)
{
    (void)state;
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    assert_int_equal(o.struct_size, sizeof o);
    assert_true(o.temperature == 0.7f && o.top_k == 50 && o.top_p == 0.95f);
    assert_true(o.min_p == 0 && o.typical_p == 1 && o.seed == 0);
    assert_true(o.repetition_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0);
    assert_int_equal(o.penalty_window, 64);
}

/* The lowest logit there is can be chosen; without any the stages have nothing to sort. */
static void least_and_none(void **state)
{
    (void)state;
    float lowest[3] = {NAN, -FLT_MAX, -INFINITY}, none[3] = {NAN, NAN, -INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        bitnet_sampler_options o = plain();
        int32_t id = -1;
        o.temperature = greedy ? 0 : 1;
        o.top_k = 2;
        o.typical_p = 0.5f;
        bitnet_sampler *s = open_ok(&o, 3);
        assert_int_equal(bitnet_sampler_pick(s, lowest, NULL, 0, &id, NULL), BITNET_OK);
        assert_int_equal(id, 1);
        assert_int_equal(bitnet_sampler_pick(s, none, NULL, 0, &id, NULL), BITNET_ERROR);
        bitnet_sampler_close(s);
    }
}

/* Counts of 20000 draws fit the distribution: 8 outcomes, 7 degrees of freedom, 24.3 is the 99.9 %
 * point. */
static void draws_follow_the_distribution(void **state)
{
    (void)state;
    float logits[8];
    double p[8], sum = 0, chi = 0;
    unsigned counts[8] = {0};
    for (int i = 0; i < 8; i++) {
        logits[i] = 0.4f * (float)i;
        sum += p[i] = exp((double)logits[i] / 0.8);
    }
    bitnet_sampler_options o = plain();
    o.temperature = 0.8f;
    o.seed = 99;
    bitnet_sampler *s = open_ok(&o, 8);
    for (int i = 0; i < 20000; i++) {
        int32_t id;
        assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
        counts[id]++;
    }
    for (int i = 0; i < 8; i++) {
        double expected = 20000 * p[i] / sum;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    print_message("chi-square %.2f\n", chi);
    assert_true(chi > 0.5 && chi < 24.3);
    bitnet_sampler_close(s);
}

/* What a seed means is pinned: these ids must come out on every machine. */
static void seeds_are_pinned(void **state)
{
    (void)state;
    static const int32_t want[2][12] = {{26, 61, 14, 35, 16, 7, 20, 51, 9, 16, 14, 16},
                                        {1, 44, 18, 44, 31, 55, 35, 56, 35, 7, 20, 48}};
    float logits[64];
    uint64_t rng = 5;
    for (int i = 0; i < 64; i++)
        logits[i] = bell(&rng, 2);
    for (int k = 0; k < 2; k++) {
        bitnet_sampler_options o;
        bitnet_sampler_options_init(&o);
        o.temperature = 1.5f;
        o.seed = k ? 0x123456789abcdef0u : 1;
        bitnet_sampler *s = open_ok(&o, 64);
        for (int i = 0; i < 12; i++) {
            int32_t id;
            assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
            if (id != want[k][i])
                fail_msg("seed %d draw %d gives %d, must give %d", k, i, id, want[k][i]);
        }
        bitnet_sampler_close(s);
    }
}

/* A restored state repeats the choices that followed it, in the same sampler and in another one of
 * another seed; saving changes nothing. */
static void states_repeat_choices(void **state)
{
    (void)state;
    enum { N = 200, DRAWS = 20 };
    float logits[N];
    uint64_t rng = 8;
    for (int i = 0; i < N; i++)
        logits[i] = bell(&rng, 2);
    bitnet_sampler_options o = plain();
    o.seed = 77;
    bitnet_sampler *s = open_ok(&o, N), *untouched = open_ok(&o, N);
    o.seed = 3;
    bitnet_sampler *other = open_ok(&o, N);
    for (int round = 0; round < 5; round++) {
        bitnet_sampler_state start;
        int32_t first[DRAWS], id;
        bitnet_sampler_save(s, &start);
        for (int i = 0; i < DRAWS; i++) {
            assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &first[i], NULL), BITNET_OK);
            assert_int_equal(bitnet_sampler_pick(untouched, logits, NULL, 0, &id, NULL), BITNET_OK);
            assert_int_equal(id, first[i]);
        }
        bitnet_sampler_restore(s, &start);
        bitnet_sampler_restore(other, &start);
        for (int i = 0; i < DRAWS; i++) {
            assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
            assert_int_equal(id, first[i]);
            assert_int_equal(bitnet_sampler_pick(other, logits, NULL, 0, &id, NULL), BITNET_OK);
            assert_int_equal(id, first[i]);
        }
    }
    bitnet_sampler_close(s);
    bitnet_sampler_close(untouched);
    bitnet_sampler_close(other);
}

static void penalties_leave_nothing_behind(void **state)
{
    (void)state;
    float logits[3] = {1.0f, 0.9f, 0.1f};
    const int32_t history[4] = {0, 0, 1, 0};
    bitnet_sampler_options o = plain();
    o.temperature = 0;
    o.frequency_penalty = 0.2f;
    bitnet_sampler *s = open_ok(&o, 3);
    int32_t id;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(bitnet_sampler_pick(s, logits, history, 4, &id, NULL), BITNET_OK);
        assert_int_equal(id, 1); /* 1.0 - 0.6 < 0.9 - 0.2 */
        assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
        assert_int_equal(id, 0);
    }
    bitnet_sampler_close(s);
}

/* One kind of penalty is enough. */
static void each_penalty_alone(void **state)
{
    (void)state;
    static const float logits[3] = {1.0f, 0.9f, 0.1f};
    static const int32_t history[1] = {0};
    for (int kind = 0; kind < 4; kind++) {
        bitnet_sampler_options o = plain();
        int32_t id = -1;
        o.temperature = 0;
        o.repetition_penalty = kind == 1 ? 2 : 1;
        o.presence_penalty = kind == 2 ? 0.5f : 0;
        o.frequency_penalty = kind == 3 ? 0.5f : 0;
        bitnet_sampler *s = open_ok(&o, 3);
        assert_int_equal(bitnet_sampler_pick(s, logits, history, 1, &id, NULL), BITNET_OK);
        assert_int_equal(id, kind ? 1 : 0);
        bitnet_sampler_close(s);
    }
}

/* A window beyond what there is room for at once: without memory the choice fails, and nothing is
 * written where there is none. */
static void no_room_for_a_long_window(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float logits[N];
    static int32_t history[N];
    bitnet_sampler_options o = plain();
    int32_t id = -1;
    for (int i = 0; i < N; i++)
        history[i] = i;
    o.temperature = 0;
    o.presence_penalty = 1;
    o.penalty_window = 0; /* all of it */
    bitnet_sampler *s = open_ok(&o, N);
    interpose_start(0, false);
    bitnet_status st = bitnet_sampler_pick(s, logits, history, N, &id, NULL);
    assert_int_equal(interpose_stop(), 1);
    assert_int_equal(st, BITNET_MEMORY);
    assert_int_equal(id, -1);
    assert_int_equal(bitnet_sampler_pick(s, logits, history, N - 1, &id, NULL), BITNET_OK);
    assert_int_equal(id, N - 1);
    bitnet_sampler_close(s);
}

#define REFUSED(field_, value_, text_)                                                             \
    do {                                                                                           \
        bitnet_sampler_options o = plain();                                                        \
        bitnet_sampler *s = NULL;                                                                  \
        bitnet_error err = {0};                                                                    \
        o.field_ = value_;                                                                         \
        assert_int_equal(bitnet_sampler_open(&o, 10, &s, &err), BITNET_ARGUMENT);                  \
        assert_null(s);                                                                            \
        if (!strstr(err.message, text_) || !strstr(err.message, #field_))                          \
            fail_msg("message is: %s", err.message);                                               \
    } while (0)

static void options_are_checked(void **state)
{
    (void)state;
    REFUSED(temperature, NAN, "must be 0..100");
    REFUSED(temperature, -0.1f, "must be 0..100");
    REFUSED(temperature, INFINITY, "must be 0..100");
    REFUSED(top_k, -1, "is -1, must be 0..");
    REFUSED(top_p, 1.01f, "must be 0..1");
    REFUSED(top_p, NAN, "must be 0..1");
    REFUSED(min_p, -1, "is -1, must be 0..1");
    REFUSED(typical_p, 2, "is 2, must be 0..1");
    REFUSED(repetition_penalty, 0, "is 0, must be 0.01..100");
    REFUSED(presence_penalty, 101, "is 101, must be -100..100");
    REFUSED(frequency_penalty, -101, "must be -100..100");
    REFUSED(penalty_window, -1, "is -1, must be 0..");
    REFUSED(struct_size, 0, "is 0, must be 8..4096");
    REFUSED(struct_size, 4097, "is 4097");
    bitnet_sampler *s = NULL;
    bitnet_error err = {0};
    assert_int_equal(bitnet_sampler_open(NULL, 0, &s, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "n_vocab is 0"));
}

/* A program of an older header knows only the first fields: the rest must be the defaults, not its
 * memory. */
static void older_and_newer_programs(void **state)
{
    (void)state;
    bitnet_sampler_options o;
    memset(&o, 0xff, sizeof o);
    o.struct_size = offsetof(bitnet_sampler_options, top_k);
    o.temperature = 0;
    bitnet_sampler *s = NULL;
    assert_int_equal(bitnet_sampler_open(&o, 10, &s, NULL), BITNET_OK);
    bitnet_sampler_close(s);
    struct {
        bitnet_sampler_options o;
        uint64_t future;
    } newer = {plain(), 0};
    newer.o.struct_size = sizeof newer;
    assert_int_equal(bitnet_sampler_open(&newer.o, 10, &s, NULL), BITNET_OK);
    bitnet_sampler_close(s);
    bitnet_error err = {0};
    newer.future = 1;
    assert_int_equal(bitnet_sampler_open(&newer.o, 10, &s, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "update the library"));
}

static void large_vocabulary_is_fast(void **state)
{
    (void)state;
    enum { N = 128256, ROUNDS = 20 };
    float *logits = malloc(N * sizeof *logits);
    uint64_t rng = 3;
    for (int i = 0; i < N; i++)
        logits[i] = bell(&rng, 3);
    for (int k = 0; k < 3; k++) {
        bitnet_sampler_options o = plain();
        o.top_k = k == 0 ? 50 : 0;
        o.top_p = k == 1 ? 1 : 0.95f;
        o.typical_p = k == 2 ? 0.5f : 1;
        bitnet_sampler *s = open_ok(&o, N);
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        for (int i = 0; i < ROUNDS; i++) {
            int32_t id;
            assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, NULL), BITNET_OK);
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        double ms =
            ((double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6) / ROUNDS;
        print_message("%s: %.2f ms per pick\n",
                      k == 0   ? "top-k 50"
                      : k == 1 ? "everything"
                               : "typical",
                      ms);
        assert_true(ms < 500); /* a full sort per pick under a sanitizer and an emulator still
                                  passes; a hang does not */
        bitnet_sampler_close(s);
    }
    free(logits);
}

/* The choice from what is wanted alone is the choice from all logits. */
static void same_from_a_list(bitnet_sampler *s, const float *logits, int n_vocab,
                             const bnet_top_want *want, const int32_t *history, size_t n_history)
{
    int32_t *ids = calloc((size_t)n_vocab, sizeof *ids), from_all = -1, from_list = -1;
    float *listed = calloc((size_t)n_vocab, sizeof *listed);
    size_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        size_t above = 0;
        bool named = false;
        for (int k = 0; k < n_vocab; k++)
            above += logits[k] > logits[i] + want->range;
        for (size_t k = 0; k < want->n_ids; k++)
            named = named || want->ids[k] == i;
        if (above >= want->k + want->n_ids && !named)
            continue;
        ids[n] = i;
        listed[n++] = logits[i];
    }
    bnet_top top = {ids, listed, n};
    for (int i = 0; i < 20; i++) {
        bitnet_sampler_state before;
        bitnet_sampler_save(s, &before);
        assert_int_equal(bitnet_sampler_pick(s, logits, history, n_history, &from_all, NULL),
                         BITNET_OK);
        bitnet_sampler_restore(s, &before);
        assert_int_equal(bnet_sampler_pick_among(s, &top, history, n_history, &from_list, NULL),
                         BITNET_OK);
        assert_int_equal(from_all, from_list);
    }
    free(ids);
    free(listed);
}

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* A sampler of a large vocabulary is small, also after it has chosen; without top-k it takes room
 * for all candidates with its first choice. */
static void idle_samplers_are_small(void **state)
{
    (void)state;
    if (INTERPOSE_SANITIZED) {
        print_message("the sanitizer's allocator does not say what is in use\n");
        skip();
    }
    enum { N = 128256, SAMPLERS = 64 };
    float *logits = calloc(N, sizeof *logits);
    bitnet_sampler *s[SAMPLERS];
    int32_t history[100], id;
    uint64_t rng = 3;
    for (int i = 0; i < N; i++)
        logits[i] = bell(&rng, 3);
    for (int i = 0; i < 100; i++)
        history[i] = (int32_t)(test_rand(&rng) % N);
    for (int kind = 0; kind < 3; kind++) {
        bitnet_sampler_options o = plain();
        o.top_k = kind == 1 ? 0 : 50;
        o.temperature = kind == 2 ? 0 : 0.7f;
        o.repetition_penalty = 1.1f;
        size_t before = in_use();
        for (int i = 0; i < SAMPLERS; i++)
            s[i] = open_ok(&o, N);
        size_t opened = (in_use() - before) / SAMPLERS;
        for (int i = 0; i < SAMPLERS && kind != 1; i++)
            assert_int_equal(bitnet_sampler_pick(s[i], logits, history, 100, &id, NULL), BITNET_OK);
        size_t used = (in_use() - before) / SAMPLERS;
        print_message("top_k %d, temperature %.1f: %zu bytes, %zu after a choice\n", o.top_k,
                      (double)o.temperature, opened, used);
        assert_true(opened < 32 * 1024 && used < 32 * 1024);
        assert_int_equal(bitnet_sampler_pick(s[0], logits, history, 100, &id, NULL), BITNET_OK);
        for (int i = 0; i < SAMPLERS; i++)
            bitnet_sampler_close(s[i]);
    }
    free(logits);
}

/* A forbidden id is as if its logit were minus infinity: for the greedy choice, for the
 * distribution that is left, and beside penalties; and it comes back as it was. */
static void forbidden_ids(void **state)
{
    (void)state;
    enum { N = 300 };
    float logits[N], without[N];
    int32_t ids[2][N], history[] = {7, 9, 9};
    uint64_t weights[2][N], total[2], rng = 5;
    size_t n[2];
    bitnet_error err = {0};
    for (int i = 0; i < N; i++)
        logits[i] = without[i] = bell(&rng, 2);
    logits[9] = 30, logits[150] = 20;
    without[9] = without[150] = -INFINITY;
    for (int kind = 0; kind < 3; kind++) {
        bitnet_sampler_options o = plain();
        o.top_k = kind == 1 ? 20 : 0;
        o.repetition_penalty = kind == 2 ? 1.5f : 1;
        bitnet_sampler *s = open_ok(&o, N), *other = open_ok(&o, N);
        bnet_top_want want, fewer;
        assert_true(bnet_sampler_want(s, history, 3, &fewer));
        for (int32_t id = -1; id <= N; id++) /* twice, and outside: no matter */
            if (id == 9 || id == 150 || id < 0 || id == N)
                bnet_sampler_forbid(s, id, true), bnet_sampler_forbid(s, id, true);
        assert_true(bnet_sampler_want(s, history, 3, &want)); /* both may be among the best */
        assert_int_equal(want.k, fewer.k + 2);
        assert_true(want.range == fewer.range);
        assert_int_equal(bnet_sampler_distribution(s, logits, history, 3, ids[0], weights[0], N,
                                                   &n[0], &total[0], &err),
                         BITNET_OK);
        assert_int_equal(bnet_sampler_distribution(other, without, history, 3, ids[1], weights[1],
                                                   N, &n[1], &total[1], &err),
                         BITNET_OK);
        assert_int_equal(n[0], n[1]);
        assert_true(total[0] == total[1]);
        assert_memory_equal(ids[0], ids[1], n[0] * sizeof ids[0][0]);
        assert_memory_equal(weights[0], weights[1], n[0] * sizeof weights[0][0]);
        same_from_a_list(s, logits, N, &want, history, 3);
        bnet_sampler_forbid(s, 9, false);
        assert_true(bnet_sampler_want(s, history, 3, &want));
        assert_int_equal(want.k, fewer.k + 1);
        bnet_sampler_forbid(s, 150, false);
        assert_true(bnet_sampler_want(s, history, 3, &want));
        assert_int_equal(want.k, fewer.k);
        bitnet_sampler_close(s);
        bitnet_sampler_close(other);
    }
    bitnet_sampler_options o = plain();
    o.temperature = 0;
    bitnet_sampler *s = open_ok(&o, N);
    int32_t id, best;
    bnet_sampler_forbid(s, 9, true);
    assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err), BITNET_OK);
    assert_int_equal(id, 150);
    bnet_sampler_forbid(s, 150, true);
    assert_int_equal(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err), BITNET_OK);
    bitnet_sampler *other = open_ok(&o, N);
    assert_int_equal(bitnet_sampler_pick(other, without, NULL, 0, &best, &err), BITNET_OK);
    assert_int_equal(id, best);
    bitnet_sampler_close(s);
    bitnet_sampler_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages),
        cmocka_unit_test(ties_go_to_the_lowest_id),
        cmocka_unit_test(shares_met_exactly),
        cmocka_unit_test(bad_logits_are_never_chosen),
        cmocka_unit_test(extremes),
        cmocka_unit_test(defaults),
        cmocka_unit_test(least_and_none),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(seeds_are_pinned),
        cmocka_unit_test(states_repeat_choices),
        cmocka_unit_test(penalties_leave_nothing_behind),
        cmocka_unit_test(each_penalty_alone),
        cmocka_unit_test(no_room_for_a_long_window),
        cmocka_unit_test(forbidden_ids),
        cmocka_unit_test(idle_samplers_are_small),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(older_and_newer_programs),
        cmocka_unit_test(large_vocabulary_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
