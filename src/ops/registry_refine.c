/* registry_refine.c - choices by the timings of real calls, where a program asked for it. The
 * kernels that could serve a class of shapes take turns until each has been timed often enough; the
 * one with the least median is then a choice like those of the tuning cache. Only kernels that are
 * exact take part, so no bit of a result depends on it. */
#include "ops/registry_impl.h"

enum { TURNS = 9, CANDIDATES = 8, TRIALS_MAX = 4096 };
static const double margin = 0.97; /* of the time of the one that serves: less is worth a change */

struct bnet_trial {
    bnet_kernel_query q; /* m: the largest of its class */
    bnet_device_kind device;
    const bnet_kernel_record *who[CANDIDATES]; /* the first serves already */
    int n;
    atomic_uint turn;
    atomic_bool decided;
    float ms[CANDIDATES][TURNS]; /* of a token; the rest by the registry's lock */
    int n_ms[CANDIDATES];
    _Atomic(struct bnet_trial *) next;
};

void bnet_registry_refine(bnet_registry *r, bool on)
{
    atomic_store(&r->refines, on);
}

bool bnet_registry_refines(const bnet_registry *r)
{
    return atomic_load_explicit(&r->refines, memory_order_relaxed);
}

void bnet_registry_free_trials(bnet_registry *r)
{
    for (int b = 0; b < TRIAL_BUCKETS; b++)
        for (bnet_trial *t = atomic_load(&r->trials[b]), *next; t; t = next) {
            next = atomic_load(&t->next);
            bnet_free(t);
        }
}

static size_t bucket_of(const bnet_capabilities *c, const bnet_kernel_query *q)
{
    uint32_t id = registry_key_id(c->device, q->op, q->format, q->dtype);
    return registry_hash_shape(id, bnet_tuning_m(q->m), q->n, q->k) % TRIAL_BUCKETS;
}

static bnet_trial *find_trial(const bnet_registry *r, const bnet_capabilities *c,
                              const bnet_kernel_query *q)
{
    bnet_trial *t = atomic_load_explicit(&r->trials[bucket_of(c, q)], memory_order_acquire);
    for (; t; t = atomic_load_explicit(&t->next, memory_order_acquire))
        if (t->device == c->device && t->q.op == q->op && t->q.format == q->format &&
            t->q.dtype == q->dtype && t->q.m == bnet_tuning_m(q->m) && t->q.n == q->n &&
            t->q.k == q->k)
            return t;
    return NULL;
}

static bool is_exact(const bnet_kernel_record *k)
{
    return strcmp(k->agreement, "exact") == 0;
}

/* Those that could serve instead of k. */
static void find_candidates(const bnet_registry *r, const bnet_capabilities *c,
                            const bnet_kernel_query *q, const bnet_kernel_record *k, bnet_trial *t)
{
    const registry_key *key = registry_find_key(r, c->device, q->op, q->format, q->dtype);
    t->who[t->n++] = k;
    for (const registry_node *n = key ? registry_first(key) : NULL; n && t->n < CANDIDATES;
         n = registry_next(n))
        if (&n->rec != k && n->rec.tier != BITNET_TIER_REFERENCE && is_exact(&n->rec) &&
            bnet_registry_veto(&n->rec, c, q) == VETO_NONE)
            t->who[t->n++] = &n->rec;
}

/* NULL: no memory, or too many. */
static bnet_trial *make_trial(bnet_registry *r, const bnet_capabilities *c,
                              const bnet_kernel_query *q, const bnet_kernel_record *k)
{
    pthread_mutex_lock(&r->lock);
    bnet_trial *t = find_trial(r, c, q);
    if (!t && r->n_trials < TRIALS_MAX && (t = bnet_calloc(1, sizeof *t)) != NULL) {
        t->q = *q;
        t->q.m = bnet_tuning_m(q->m);
        t->device = c->device;
        find_candidates(r, c, q, k, t);
        atomic_store(&t->decided, t->n < 2);
        _Atomic(bnet_trial *) *bucket = &r->trials[bucket_of(c, q)];
        atomic_store(&t->next, atomic_load(bucket));
        atomic_store_explicit(bucket, t, memory_order_release);
        r->n_trials++;
    }
    pthread_mutex_unlock(&r->lock);
    return t;
}

bnet_trial *bnet_trial_begin(const bnet_registry *registry, const bnet_capabilities *c,
                             const bnet_kernel_query *q, const bnet_kernel_record **k)
{
    bnet_registry *r = (bnet_registry *)(uintptr_t)registry; /* readers may add, under its lock */
    if (!bnet_registry_refines(r) || !is_exact(*k) || !q->m || !q->n || !q->k)
        return NULL;
    bnet_trial *t = find_trial(r, c, q);
    t = t ? t : make_trial(r, c, q, *k);
    if (!t || atomic_load_explicit(&t->decided, memory_order_relaxed))
        return NULL;
    const bnet_kernel_record *turn =
        t->who[atomic_fetch_add_explicit(&t->turn, 1, memory_order_relaxed) % (unsigned)t->n];
    if (bnet_registry_veto(turn, c, q) != VETO_NONE)
        return NULL;
    *k = turn;
    return t;
}

bool bnet_trial_open(const bnet_registry *r, const bnet_capabilities *c, const bnet_kernel_query *q)
{
    const bnet_trial *t = find_trial(r, c, q);
    return !t || !atomic_load_explicit(&t->decided, memory_order_relaxed);
}

static float median(float *ms, int n)
{
    for (int i = 1; i < n; i++) {
        float x = ms[i];
        int at = i;
        for (; at > 0 && ms[at - 1] > x; at--)
            ms[at] = ms[at - 1];
        ms[at] = x;
    }
    return ms[n / 2];
}

/* Called once, when all have been timed. */
static const bnet_kernel_record *decide(bnet_trial *t)
{
    int best = 0;
    double least = margin * (double)median(t->ms[0], TURNS);
    for (int i = 1; i < t->n; i++) {
        double ms = (double)median(t->ms[i], TURNS);
        if (ms < least) {
            least = ms;
            best = i;
        }
    }
    return t->who[best];
}

/* Notes a time; true: it was the last that was missing. */
static bool note(bnet_trial *t, const bnet_kernel_record *k, float ms)
{
    int missing = 0;
    for (int i = 0; i < t->n; i++) {
        if (t->who[i] == k && t->n_ms[i] < TURNS)
            t->ms[i][t->n_ms[i]++] = ms;
        missing += TURNS - t->n_ms[i];
    }
    return missing == 0 && !atomic_exchange(&t->decided, true);
}

const bnet_kernel_record *bnet_trial_end(const bnet_registry *registry, bnet_trial *t,
                                         const bnet_kernel_record *k, size_t m, double ms)
{
    bnet_registry *r = (bnet_registry *)(uintptr_t)registry;
    const bnet_kernel_record *best = NULL;
    pthread_mutex_lock(&r->lock);
    if (note(t, k, (float)(ms / (double)m)))
        best = decide(t);
    pthread_mutex_unlock(&r->lock);
    if (!best || best == t->who[0] || bnet_registry_tune(r, &t->q, best->id, NULL) != BITNET_OK)
        return NULL;
    return best;
}
