/* adjust.c - marks for ids that are treated apart, and a hash table of those in the window. */
#include "sampler/adjust.h"

#include <float.h>

bool bnet_adjust_penalises(const bnet_adjust *a)
{
    return a->repetition != 1.0f || a->presence != 0.0f || a->frequency != 0.0f;
}

/* Tokens of a history. */
typedef struct span {
    const int32_t *ids;
    size_t n;
} span;

/* The last ones, whose logits the repetition penalty changes. */
static span window_of(const bnet_adjust *a, const int32_t *history, size_t n)
{
    size_t last = a->window ? BNET_MIN(a->window, n) : n;
    return a->repetition == 1.0f ? (span){history, 0} : (span){history + (n - last), last};
}

/* Those that presence and frequency count: the same, or all from a place on. */
static span said_of(const bnet_adjust *a, const int32_t *history, size_t n)
{
    size_t last = a->window ? BNET_MIN(a->window, n) : n, from = a->from ? a->from : n - last;
    from = BNET_MIN(from, n);
    bool none = a->presence == 0.0f && a->frequency == 0.0f;
    return none ? (span){history, 0} : (span){history + from, n - from};
}

/* Room for n tokens. */
static bool reserve(bnet_adjust *a, size_t n)
{
    size_t n_slots = a->n_slots ? a->n_slots : 16;
    n = BNET_MIN(n, (size_t)a->n_vocab);
    while (n_slots < 2 * n)
        n_slots *= 2;
    if (n_slots == a->n_slots)
        return true;
    bnet_occurrences *seen = bnet_calloc(n_slots, sizeof *seen);
    if (!seen)
        return false;
    bnet_free(a->seen);
    a->seen = seen;
    a->n_slots = n_slots;
    return true;
}

bitnet_status bnet_adjust_open(bnet_adjust *a, const bitnet_sampler_options *o, int n_vocab,
                               bitnet_error *err)
{
    *a = (bnet_adjust){.n_vocab = n_vocab,
                       .repetition = o->repetition_penalty,
                       .presence = o->presence_penalty,
                       .frequency = o->frequency_penalty,
                       .window = (size_t)o->penalty_window,
                       .from = o->penalty_from,
                       .marked = bnet_calloc(((size_t)n_vocab + 63) / 64, sizeof *a->marked)};
    bool ok = a->marked && (!bnet_adjust_penalises(a) || reserve(a, BNET_MIN(a->window, 1024)));
    return ok ? BITNET_OK : bnet_no_memory(err, "sampler");
}

void bnet_adjust_free(bnet_adjust *a)
{
    bnet_constraints_free(&a->constraints);
    bnet_free(a->forbidden);
    bnet_free(a->marked);
    bnet_free(a->seen);
}

/* ---- bans and biases ---- */

static void mark(bnet_adjust *a, int32_t id)
{
    a->marked[id / 64] |= (uint64_t)1 << (id % 64);
}

/* Its index among the forbidden ids, or n_forbidden. */
static size_t find_forbidden(const bnet_adjust *a, int32_t id)
{
    size_t i = 0;
    while (i < a->n_forbidden && a->forbidden[i] != id)
        i++;
    return i;
}

/* Nothing but a bias or a ban keeps the mark of an id. */
static void unmark(bnet_adjust *a, int32_t id)
{
    float bias;
    if (find_forbidden(a, id) == a->n_forbidden &&
        !bnet_constraints_bias(&a->constraints, id, &bias))
        a->marked[id / 64] &= ~((uint64_t)1 << (id % 64));
}

bitnet_status bnet_adjust_constrain(bnet_adjust *a, const bitnet_constraints *c, bitnet_error *err)
{
    bnet_constraints *k = &a->constraints;
    for (size_t i = 0; i < k->n_biases; i++)
        a->marked[k->biases[i].id / 64] &= ~((uint64_t)1 << (k->biases[i].id % 64));
    bitnet_status st = bnet_constraints_set(k, c, a->n_vocab, err);
    for (size_t i = 0; i < k->n_biases; i++)
        mark(a, k->biases[i].id);
    for (size_t i = 0; i < a->n_forbidden; i++)
        mark(a, a->forbidden[i]);
    return st;
}

bool bnet_adjust_forbid(bnet_adjust *a, int32_t id, bool forbid)
{
    size_t i = find_forbidden(a, id);
    if (id < 0 || id >= a->n_vocab || forbid == (i < a->n_forbidden))
        return true;
    if (!forbid) {
        a->forbidden[i] = a->forbidden[--a->n_forbidden];
        unmark(a, id);
        return true;
    }
    if (!bnet_grow(&a->forbidden, &a->forbidden_cap, i + 1, sizeof *a->forbidden))
        return false;
    a->forbidden[a->n_forbidden++] = id;
    mark(a, id);
    return true;
}

/* ---- what was said ---- */

static bool is_used(const bnet_occurrences *slot)
{
    return slot->n || slot->said;
}

/* The slot of an id, or the empty one where it belongs. Requires slots. */
static bnet_occurrences *slot_of(const bnet_adjust *a, int32_t id)
{
    size_t i = (uint32_t)id * 0x9e3779b1u >> 7;
    while (is_used(&a->seen[i &= a->n_slots - 1]) && a->seen[i].id != id)
        i++;
    return &a->seen[i];
}

static void count(bnet_adjust *a, span s, uint32_t n, uint32_t said)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.ids[i] < 0 || s.ids[i] >= a->n_vocab)
            continue;
        bnet_occurrences *slot = slot_of(a, s.ids[i]);
        *slot = (bnet_occurrences){s.ids[i], slot->n + n, slot->said + said};
        mark(a, s.ids[i]);
    }
}

static void uncount(bnet_adjust *a, span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.ids[i] >= 0 && s.ids[i] < a->n_vocab)
            unmark(a, s.ids[i]);
}

bool bnet_adjust_begin(bnet_adjust *a, const int32_t *history, size_t n)
{
    if (!bnet_adjust_penalises(a))
        return true;
    span window = window_of(a, history, n), said = said_of(a, history, n);
    if (!reserve(a, window.n + said.n))
        return false;
    count(a, window, 1, 0);
    count(a, said, 0, 1);
    return true;
}

void bnet_adjust_end(bnet_adjust *a, const int32_t *history, size_t n)
{
    if (!bnet_adjust_penalises(a))
        return;
    uncount(a, window_of(a, history, n));
    uncount(a, said_of(a, history, n));
    memset(a->seen, 0, a->n_slots * sizeof *a->seen);
}

bool bnet_adjust_list(bnet_adjust *a, const int32_t *history, size_t n, int32_t *ids, size_t cap,
                      size_t *n_ids)
{
    const bnet_constraints *c = &a->constraints;
    if (c->n_biases > cap || !bnet_adjust_begin(a, history, n))
        return false;
    for (size_t i = 0; i < c->n_biases; i++)
        ids[i] = c->biases[i].id;
    *n_ids = c->n_biases;
    bool fits = true;
    for (size_t i = 0; i < a->n_slots && fits; i++) {
        float bias;
        if (!is_used(&a->seen[i]) || bnet_constraints_bias(c, a->seen[i].id, &bias))
            continue;
        fits = *n_ids < cap;
        if (fits)
            ids[(*n_ids)++] = a->seen[i].id;
    }
    bnet_adjust_end(a, history, n);
    return fits;
}

/* ---- logits ---- */

static float clamped(float v)
{
    return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : v;
}

static float penalised(const bnet_adjust *a, float logit, const bnet_occurrences *slot)
{
    if (slot->n)
        logit = logit > 0 ? logit / a->repetition : logit * a->repetition;
    if (slot->said)
        logit -= a->presence + a->frequency * (float)slot->said;
    return clamped(logit);
}

bool bnet_adjust_logit(const bnet_adjust *a, int32_t id, float *v)
{
    float bias;
    if (find_forbidden(a, id) < a->n_forbidden)
        return false;
    if (bnet_constraints_bias(&a->constraints, id, &bias)) {
        if (bias < -FLT_MAX)
            return false;
        *v = clamped(*v + bias);
    }
    if (a->n_slots)
        *v = penalised(a, *v, slot_of(a, id));
    return true;
}
