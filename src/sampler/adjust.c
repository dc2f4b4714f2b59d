/* adjust.c - marks for ids that are treated apart, and a hash table of those in the window. */
#include "sampler/adjust.h"

#include <float.h>

bool bnet_adjust_penalises(const bnet_adjust *a)
{
    return a->repetition != 1.0f || a->presence != 0.0f || a->frequency != 0.0f;
}

/* The tokens of the window: the last *n of a history of *n. */
static const int32_t *window_of(const bnet_adjust *a, const int32_t *history, size_t *n)
{
    size_t all = *n;
    if (a->window)
        *n = BNET_MIN(a->window, all);
    return history + (all - *n);
}

/* Room for a window of n tokens. */
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

/* ---- the window ---- */

/* The slot of an id, or the empty one where it belongs. Requires slots. */
static bnet_occurrences *slot_of(const bnet_adjust *a, int32_t id)
{
    size_t i = (uint32_t)id * 0x9e3779b1u >> 7;
    while (a->seen[i &= a->n_slots - 1].n && a->seen[i].id != id)
        i++;
    return &a->seen[i];
}

bool bnet_adjust_begin(bnet_adjust *a, const int32_t *history, size_t n)
{
    if (!bnet_adjust_penalises(a))
        return true;
    history = window_of(a, history, &n);
    if (!reserve(a, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (history[i] < 0 || history[i] >= a->n_vocab)
            continue;
        bnet_occurrences *s = slot_of(a, history[i]);
        *s = (bnet_occurrences){history[i], s->n + 1};
        mark(a, history[i]);
    }
    return true;
}

void bnet_adjust_end(bnet_adjust *a, const int32_t *history, size_t n)
{
    if (!bnet_adjust_penalises(a))
        return;
    history = window_of(a, history, &n);
    for (size_t i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < a->n_vocab)
            unmark(a, history[i]);
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
        if (!a->seen[i].n || bnet_constraints_bias(c, a->seen[i].id, &bias))
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

static float penalised(const bnet_adjust *a, float logit, uint32_t n)
{
    logit = logit > 0 ? logit / a->repetition : logit * a->repetition;
    return clamped(logit - (a->presence + a->frequency * (float)n));
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
    uint32_t n = a->n_slots ? slot_of(a, id)->n : 0;
    if (n)
        *v = penalised(a, *v, n);
    return true;
}
