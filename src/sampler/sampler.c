/* sampler.c - from logits to one token. Hides: the stages and the integer weights.
 *
 * Invariants: the choice depends on logits, history, options, seed and the number of draws so far,
 * and on nothing else (no libm, no float sum whose order could change: weights are integers, see
 * sampler.h). Candidates are a heap, best on top, popped only as far as a stage or the draw needs,
 * so no stage sorts the vocabulary. Ties go to the lowest id. Picking allocates only where it has
 * more candidates than ever before, and more than ROOM. */
#include "sampler/sampler.h"

#include <float.h>
#include <limits.h>
#include <math.h>

#include "sampler/adjust.h"
#include "sampler/candidates.h"
#include "sampler/rng.h"
#include "base/mathf.h"

enum {
    WANTED_MAX = 1024,  /* ids that are asked for one by one */
    ROOM = 1024,        /* candidates of top-k that there is room for at once */
    BLOCK = 64,         /* logits looked at together: a word of adjust.marked */
    VOCAB_MAX = 1 << 23 /* 2^23 weights of 2^40 fit a uint64_t */
};
/* e^-28 < 2^-40: a logit further below the best than that weighs nothing */
#define LIGHTEST 28.0f

struct bitnet_sampler {
    bnet_busy busy;
    bitnet_sampler_options o;
    int n_vocab;
    uint64_t n_draws;
    bnet_adjust adjust;
    /* [cap]; x: (logit - largest logit) / temperature, so <= 0; the logit while collecting.
     * key: x, or minus the distance to typical */
    bnet_candidates h;
    size_t cap;
    size_t limit;   /* candidates that survive, counted from the best */
    uint64_t total; /* sum of their weights */
    int32_t wanted[WANTED_MAX];
};

/* The logits to choose from: those of some ids, ascending; ids NULL: of all. */
typedef struct row {
    const int32_t *ids;
    const float *logits;
    size_t n;
} row;

static inline int32_t id_at(const row *r, size_t i)
{
    return r->ids ? r->ids[i] : (int32_t)i;
}

/* ---- opening ---- */

void bitnet_sampler_options_init(bitnet_sampler_options *o)
{
    if (o)
        *o = (bitnet_sampler_options){.struct_size = sizeof *o,
                                      .temperature = 0.7f,
                                      .top_k = 50,
                                      .top_p = 0.95f,
                                      .typical_p = 1.0f,
                                      .repetition_penalty = 1.0f,
                                      .penalty_window = 64};
}

static bitnet_status check(const bitnet_sampler_options *o, int n_vocab, bitnet_error *err)
{
    static const char who[] = "sampler options";
    const struct {
        const char *field;
        double value, lo, hi;
    } ranges[] = {
        {"temperature", (double)o->temperature, 0, 100},
        {"top_p", (double)o->top_p, 0, 1},
        {"min_p", (double)o->min_p, 0, 1},
        {"typical_p", (double)o->typical_p, 0, 1},
        {"repetition_penalty", (double)o->repetition_penalty, (double)0.01f, 100},
        {"presence_penalty", (double)o->presence_penalty, -100, 100},
        {"frequency_penalty", (double)o->frequency_penalty, -100, 100},
    };
    bitnet_status st = bnet_check_int("sampler", "n_vocab", n_vocab, 1, VOCAB_MAX, err);
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(ranges); i++)
        st = bnet_check_float(who, ranges[i].field, ranges[i].value, ranges[i].lo, ranges[i].hi,
                              err);
    if (st == BITNET_OK)
        st = bnet_check_int(who, "top_k", o->top_k, 0, INT_MAX, err);
    if (st == BITNET_OK)
        st = bnet_check_int(who, "penalty_window", o->penalty_window, 0, INT_MAX, err);
    return st;
}

bitnet_status bitnet_sampler_open(const bitnet_sampler_options *options, int n_vocab,
                                  bitnet_sampler **out, bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "sampler: out must not be NULL");
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "sampler options", err);
    if (st == BITNET_OK)
        st = check(&o, n_vocab, err);
    if (st != BITNET_OK)
        return st;
    bitnet_sampler *s = bnet_calloc(1, sizeof *s);
    if (!s)
        return bnet_no_memory(err, "sampler");
    s->o = o;
    s->n_vocab = n_vocab;
    st = bnet_adjust_open(&s->adjust, &o, n_vocab, err);
    size_t room = o.temperature > 0 ? BNET_MIN((size_t)o.top_k, (size_t)ROOM) : 0;
    if (st == BITNET_OK && !bnet_grow(&s->h.c, &s->cap, room, sizeof *s->h.c))
        st = bnet_no_memory(err, "sampler candidates");
    if (st != BITNET_OK) {
        bitnet_sampler_close(s);
        return st;
    }
    *out = s;
    return BITNET_OK;
}

void bitnet_sampler_close(bitnet_sampler *s)
{
    if (!s || s->busy)
        return;
    bnet_adjust_free(&s->adjust);
    bnet_free(s->h.c);
    bnet_free(s);
}

void bitnet_sampler_save(const bitnet_sampler *s, bitnet_sampler_state *state)
{
    if (s && state)
        *state = (bitnet_sampler_state){s->o.seed, s->n_draws};
}

void bitnet_sampler_restore(bitnet_sampler *s, const bitnet_sampler_state *state)
{
    if (!s || !state)
        return;
    s->o.seed = state->seed;
    s->n_draws = state->n_draws;
}

bitnet_status bitnet_sampler_constrain(bitnet_sampler *s, const bitnet_constraints *constraints,
                                       bitnet_error *err)
{
    if (!s)
        return bnet_fail(err, BITNET_ARGUMENT, "constraints: sampler must not be NULL");
    return bnet_adjust_constrain(&s->adjust, constraints, err);
}

bitnet_status bnet_sampler_enter(bitnet_sampler *s, const void *who, const char *call,
                                 bitnet_error *err)
{
    if (!s || s->busy == who)
        return BITNET_OK;
    return bnet_busy_enter(&s->busy, who, call, "sampler", err);
}

void bnet_sampler_leave(bitnet_sampler *s, const void *who)
{
    if (s)
        bnet_busy_leave(&s->busy, who);
}

int bnet_sampler_vocab(const bitnet_sampler *s)
{
    return s->n_vocab;
}

bool bnet_sampler_forbid(bitnet_sampler *s, int32_t id, bool forbid)
{
    return bnet_adjust_forbid(&s->adjust, id, forbid);
}

bool bnet_sampler_still(const bitnet_sampler *s)
{
    return s->o.temperature == 0.0f && !bnet_adjust_penalises(&s->adjust);
}

/* ---- logits to choose by ---- */

/* False for those that cannot be chosen: not finite, forbidden, not allowed. */
static inline bool logit_of(const bitnet_sampler *s, const row *r, size_t i, float *out)
{
    float v = r->logits[i];
    if (!(v >= -FLT_MAX && v <= FLT_MAX))
        return false;
    int32_t id = id_at(r, i);
    if (!bnet_constraints_allow(&s->adjust.constraints, id))
        return false;
    *out = v;
    return !bnet_adjust_marked(&s->adjust, id) || bnet_adjust_logit(&s->adjust, id, out);
}

/* Whether the BLOCK logits from the i-th on can be passed over: none of them is above `least`, and
 * none has a bias or penalty, which may raise it. */
static inline bool dull(const bitnet_sampler *s, const row *r, size_t i, float least)
{
    unsigned any = 0;
    for (size_t k = i; k < i + BLOCK; k++)
        any |= r->logits[k] > least;
    return !any && !s->adjust.marked[i / BLOCK];
}

/* The first index from i on where the row is worth looking at. least: what a logit must exceed;
 * NULL: not known yet. */
static inline size_t skip(const bitnet_sampler *s, const row *r, size_t i, const float *least)
{
    if (!r->ids)
        while (i % BLOCK == 0 && r->n - i >= BLOCK &&
               (!bnet_constraints_allow_any(&s->adjust.constraints, i) ||
                (least && dull(s, r, i, *least))))
            i += BLOCK;
    return i;
}

/* ---- stages ---- */

static size_t most_candidates(const bitnet_sampler *s)
{
    size_t all = (size_t)s->n_vocab;
    return s->o.top_k > 0 ? BNET_MIN((size_t)s->o.top_k, all) : all;
}

/* Every finite logit becomes a candidate; with top-k only the k best ones. Returns the largest
 * logit. */
static float collect(bitnet_sampler *s, const row *r)
{
    size_t all = (size_t)s->n_vocab, k = most_candidates(s);
    float v, largest = -FLT_MAX;
    s->h.n = 0;
    for (size_t i = 0; (i = skip(s, r, i, s->h.n == k && k < all ? &s->h.c[0].key : NULL)) < r->n;
         i++) {
        if (!logit_of(s, r, i, &v))
            continue;
        largest = v > largest ? v : largest;
        bnet_candidate fresh = {v, v, id_at(r, i)};
        if (k < all)
            bnet_candidates_offer(&s->h, k, fresh);
        else
            s->h.c[s->h.n++] = fresh;
    }
    if (k < all && s->o.typical_p < 1.0f) /* sums must not depend on what else was looked at */
        bnet_candidates_by_id(&s->h);
    return largest;
}

static inline uint64_t weight(const bnet_candidate *c)
{
    return c->x < -LIGHTEST ? 0 : (uint64_t)(bnet_expf(c->x) * (float)BNET_WEIGHT_ONE);
}

/* Logits to x and weights; drops what is lighter than one unit (2^-40 of the best), which no draw
 * would hit. */
static void scale(bitnet_sampler *s, float largest)
{
    size_t kept = 0;
    s->total = 0;
    for (size_t i = 0; i < s->h.n; i++) {
        bnet_candidate c = s->h.c[i];
        c.x = c.key = (c.x - largest) / s->o.temperature;
        uint64_t w = weight(&c);
        s->total += w;
        if (w)
            s->h.c[kept++] = c;
    }
    s->h.n = s->limit = kept;
    bnet_candidates_restart(&s->h);
}

/* Keeps the best candidates in heap order until they hold `share` of the total weight, one at
 * least. */
static void keep_share(bitnet_sampler *s, float share)
{
    double enough = (double)share * (double)s->total;
    uint64_t sum = 0;
    size_t i = 0;
    do
        sum += weight(bnet_candidates_nth(&s->h, i++));
    while (i < s->h.n && (double)sum < enough);
    s->limit = i;
    s->total = sum;
}

/* Typical: nearest first to the expected information. -ln p of a candidate is ln Z - x, the entropy
 * is ln Z - mean x, so the distance between the two is |x - mean x|: no logarithm is needed. */
static void keep_typical(bitnet_sampler *s)
{
    if (s->o.typical_p >= 1.0f)
        return;
    double sum = 0;
    for (size_t i = 0; i < s->h.n; i++)
        sum += (double)weight(&s->h.c[i]) * (double)s->h.c[i].x;
    double mean = sum / (double)s->total;
    for (size_t i = 0; i < s->h.n; i++)
        s->h.c[i].key = (float)-fabs((double)s->h.c[i].x - mean);
    bnet_candidates_restart(&s->h);
    keep_share(s, s->o.typical_p);
    memmove(s->h.c, s->h.c + (s->h.n - s->limit), s->limit * sizeof *s->h.c);
    s->h.n = s->limit;
    for (size_t i = 0; i < s->h.n; i++)
        s->h.c[i].key = s->h.c[i].x;
    bnet_candidates_restart(&s->h);
}

/* Min-p: drops what is lighter than min_p times the heaviest survivor. */
static void keep_min_p(bitnet_sampler *s)
{
    if (s->o.min_p <= 0.0f)
        return;
    double least = (double)s->o.min_p * (double)weight(bnet_candidates_nth(&s->h, 0));
    uint64_t sum = 0;
    size_t i = 0;
    for (; i < s->limit; i++) {
        uint64_t w = weight(bnet_candidates_nth(&s->h, i));
        if ((double)w < least)
            break;
        sum += w;
    }
    s->limit = i;
    s->total = sum;
}

static bitnet_status not_finite(const bitnet_sampler *s, bitnet_error *err)
{
    if (s->adjust.n_forbidden || s->adjust.constraints.masked || s->adjust.constraints.n_biases)
        return bnet_fail(
            err, BITNET_ERROR,
            "sampler: no token is left: %zu of the %d may not be chosen yet, %zu are "
            "not allowed, %zu have a bias, and no other logit is finite",
            s->adjust.n_forbidden, s->n_vocab,
            s->adjust.constraints.masked ? (size_t)s->n_vocab - s->adjust.constraints.n_allowed : 0,
            s->adjust.constraints.n_biases);
    return bnet_fail(
        err, BITNET_ERROR,
        "sampler: none of the %d logits is finite; the weights or the cache are damaged",
        s->n_vocab);
}

/* All stages: leaves `limit` candidates of weight `total`. Fails: ERROR if no logit is finite,
 * MEMORY. */
static bitnet_status prepare(bitnet_sampler *s, const row *r, bitnet_error *err)
{
    if (!bnet_grow(&s->h.c, &s->cap, BNET_MIN(most_candidates(s), r->n), sizeof *s->h.c))
        return bnet_no_memory(err, "sampler candidates");
    float largest = collect(s, r);
    if (s->h.n == 0)
        return not_finite(s, err);
    scale(s, largest);
    keep_typical(s);
    if (s->o.top_p < 1.0f)
        keep_share(s, s->o.top_p);
    keep_min_p(s);
    return BITNET_OK;
}

static int32_t draw(bitnet_sampler *s)
{
    uint64_t r = bnet_random_below(bnet_random(s->o.seed, s->n_draws++), s->total);
    for (size_t i = 0;; i++) {
        const bnet_candidate *c = bnet_candidates_nth(&s->h, i);
        uint64_t w = weight(c);
        if (r < w || i + 1 == s->limit)
            return c->id;
        r -= w;
    }
}

static bitnet_status greedy(const bitnet_sampler *s, const row *r, int32_t *id, bitnet_error *err)
{
    float v, largest = 0;
    int32_t best = -1;
    for (size_t i = 0; (i = skip(s, r, i, best >= 0 ? &largest : NULL)) < r->n; i++)
        if (logit_of(s, r, i, &v) && (best < 0 || v > largest)) {
            largest = v;
            best = id_at(r, i);
        }
    if (best < 0)
        return not_finite(s, err);
    *id = best;
    return BITNET_OK;
}

static bitnet_status pick(bitnet_sampler *s, const row *r, const int32_t *history, size_t n_history,
                          int32_t *id, bitnet_error *err)
{
    if (!bnet_adjust_begin(&s->adjust, history, n_history))
        return bnet_no_memory(err, "sampler penalties");
    bool is_greedy = s->o.temperature == 0.0f;
    bitnet_status st = is_greedy ? greedy(s, r, id, err) : prepare(s, r, err);
    bnet_adjust_end(&s->adjust, history, n_history);
    if (st == BITNET_OK && !is_greedy)
        *id = draw(s);
    return st;
}

bitnet_status bnet_sampler_pick_all(bitnet_sampler *s, const float *logits, const int32_t *history,
                                    size_t n_history, int32_t *id, bitnet_error *err)
{
    row r = {NULL, logits, (size_t)s->n_vocab};
    return pick(s, &r, history, n_history, id, err);
}

bitnet_status bitnet_sampler_pick(bitnet_sampler *s, const float *logits, const int32_t *history,
                                  size_t n_history, int32_t *id, bitnet_error *err)
{
    if (!s || !logits || !id || (n_history && !history))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "sampler: sampler, logits, id and history must not be NULL");
    bitnet_status st = bnet_busy_enter(&s->busy, s, "pick", "sampler", err);
    if (st != BITNET_OK)
        return st;
    st = bnet_sampler_pick_all(s, logits, history, n_history, id, err);
    bnet_busy_leave(&s->busy, s);
    return st;
}

bitnet_status bnet_sampler_pick_among(bitnet_sampler *s, const bnet_top *top,
                                      const int32_t *history, size_t n_history, int32_t *id,
                                      bitnet_error *err)
{
    row r = {top->ids, top->logits, top->n};
    return pick(s, &r, history, n_history, id, err);
}

/* Nothing but what a mask allows matters, so that is wanted, if it is little. */
static bool want_allowed(bitnet_sampler *s, bnet_top_want *want)
{
    size_t n = s->adjust.constraints.n_allowed;
    if (n > WANTED_MAX)
        return false;
    bnet_constraints_list(&s->adjust.constraints, s->wanted);
    *want = (bnet_top_want){.ids = s->wanted, .n_ids = n};
    return true;
}

/* An id with a bias or a penalty may end anywhere, so all of these are wanted, and beside them as
 * many of the others as if there were none. Without top-k: all that weigh something beside the best
 * one that has neither (a better one would make them lighter); 28 and a bit, for the rounding of
 * the quotient in scale(). */
bool bnet_sampler_want(bitnet_sampler *s, const int32_t *history, size_t n_history,
                       bnet_top_want *want)
{
    bool all = s->o.top_k == 0 && s->o.temperature > 0;
    if (s->adjust.constraints.masked)
        return want_allowed(s, want);
    *want = (bnet_top_want){.k = s->o.temperature == 0.0f || all ? 1 : (size_t)s->o.top_k,
                            .range = all ? (LIGHTEST + 0.01f) * s->o.temperature : 0,
                            .ids = s->wanted};
    want->k += s->adjust.n_forbidden; /* they may be among the best */
    return want->k < (size_t)s->n_vocab &&
           bnet_adjust_list(&s->adjust, history, n_history, s->wanted, WANTED_MAX, &want->n_ids);
}

bitnet_status bnet_sampler_distribution(bitnet_sampler *s, const float *logits,
                                        const int32_t *history, size_t n_history, int32_t *ids,
                                        uint64_t *weights, size_t cap, size_t *n, uint64_t *total,
                                        bitnet_error *err)
{
    row r = {NULL, logits, (size_t)s->n_vocab};
    if (!bnet_adjust_begin(&s->adjust, history, n_history))
        return bnet_no_memory(err, "sampler penalties");
    bitnet_status st = prepare(s, &r, err);
    bnet_adjust_end(&s->adjust, history, n_history);
    if (st != BITNET_OK)
        return st;
    for (size_t i = 0; i < s->limit && i < cap; i++) {
        const bnet_candidate *c = bnet_candidates_nth(&s->h, i);
        ids[i] = c->id;
        weights[i] = weight(c);
    }
    *n = s->limit;
    *total = s->total;
    return BITNET_OK;
}
