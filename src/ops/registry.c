/* registry.c - records of kernels: taking them in, finding them, choosing among them. What vetoes a
 * record is in registry_veto.c, the tuning cache in registry_tuning.c. */
#include "ops/registry_impl.h"

#include "ops/inspect.h"
#include "ops/open.h"

#include <stdio.h>

const char *bnet_tier_name(bitnet_kernel_tier t)
{
    static const char *const names[] = {"reference", "optimized", "highly", "extremely"};
    return (size_t)t < BNET_COUNT(names) ? names[t] : "unknown";
}

/* ---- taking in ---- */

static bitnet_status check_texts(const bnet_kernel_record *k, bitnet_error *err)
{
    const struct {
        const char *name, *value;
    } fields[] = {{"id", k->id},
                  {"op", bnet_op_name(k->op)},
                  {"format", bnet_format_name(k->format)},
                  {"dtype", bnet_dtype_name(k->dtype)},
                  {"agreement", k->agreement}};
    char quoted[96];
    for (size_t i = 0; i < BNET_COUNT(fields); i++)
        if (!fields[i].value || !*fields[i].value)
            return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: %s is missing",
                             k->id ? bnet_quote(k->id, strlen(k->id), quoted, sizeof quoted)
                                   : "without id",
                             fields[i].name);
    return BITNET_OK;
}

static bitnet_status check_rule(const char *id, char dim, const bitnet_dim_rule *r,
                                bitnet_error *err)
{
    if (r->max == 0 || r->min <= r->max)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: %c has min %llu above max %llu", id, dim,
                     (unsigned long long)r->min, (unsigned long long)r->max);
}

static bitnet_status check_record(const bnet_kernel_record *k, bitnet_error *err)
{
    bitnet_status st = check_texts(k, err);
    if (st != BITNET_OK)
        return st;
    if (k->abi != BITNET_KERNEL_ABI)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "kernel %s: made for kernel ABI %u, this library has %d; rebuild it "
                         "against this version's headers",
                         k->id, k->abi, BITNET_KERNEL_ABI);
    if (!k->fn)
        return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: fn is NULL", k->id);
    if ((unsigned)k->device >= BNET_DEV_COUNT || (unsigned)k->tier > BITNET_TIER_EXTREMELY)
        return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: device %d or tier %d is out of range",
                         k->id, (int)k->device, (int)k->tier);
    if (k->alignment & (k->alignment - 1))
        return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: alignment %u is not a power of two",
                         k->id, k->alignment);
    if (k->build && bnet_registry_kind(k->build) == BNET_DEV_COUNT)
        return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: build '%s' is no backend", k->id,
                         k->build);
    const bitnet_dim_rule *rules[] = {&k->m, &k->n, &k->k};
    for (int i = 0; st == BITNET_OK && i < 3; i++)
        st = check_rule(k->id, "MNK"[i], rules[i], err);
    return st;
}

/* Copies a text of the record behind the ones before it. */
static const char *take_text(char **at, const char *s)
{
    size_t n = strlen(s) + 1;
    char *to = memcpy(*at, s, n);
    *at += n;
    return to;
}

static registry_node *node_new(const bnet_kernel_record *k)
{
    const char *isa = k->isa ? k->isa : "", *build = k->build ? k->build : "";
    size_t n = strlen(k->id) + strlen(isa) + strlen(build) + strlen(k->agreement) + 4;
    registry_node *node = bnet_calloc(1, sizeof *node);
    char *at = bnet_alloc(n);
    if (!node || !at) {
        bnet_free(node);
        bnet_free(at);
        return NULL;
    }
    bnet_kernel_record *r = &node->rec;
    node->text = at;
    *r = *k;
    r->id = take_text(&at, k->id);
    r->isa = take_text(&at, isa);
    r->build = k->build ? take_text(&at, build) : NULL;
    r->agreement = take_text(&at, k->agreement);
    r->alignment = k->alignment ? k->alignment : 1;
    return node;
}

static registry_key *key_new(bnet_registry *r, const bnet_kernel_record *k)
{
    registry_key *key = bnet_calloc(1, sizeof *key);
    if (!key)
        return NULL;
    key->id = registry_key_id(k->device, k->op, k->format, k->dtype);
    _Atomic(registry_key *) *bucket = &r->buckets[registry_bucket(key->id)];
    atomic_store(&key->next, atomic_load(bucket));
    atomic_store_explicit(bucket, key, memory_order_release);
    return key;
}

/* Last in its chain, so that among equals the earlier registered is found first. */
static void publish(bnet_registry *r, registry_node *node, registry_key *key)
{
    size_t n = atomic_load(&r->n);
    node->rec.slot = (uint32_t)n;
    node->key = key;
    _Atomic(registry_node *) *link = &key->first;
    for (registry_node *at; (at = atomic_load(link)) != NULL;)
        link = &at->next;
    atomic_store_explicit(&r->records[n], node, memory_order_release);
    atomic_store_explicit(&r->n, n + 1, memory_order_release);
    atomic_store_explicit(link, node, memory_order_release);
    atomic_fetch_add(&r->generation, 1);
}

static bitnet_status add_locked(bnet_registry *r, const bnet_kernel_record *k, bitnet_error *err)
{
    if (bnet_registry_find(r, k->id))
        return bnet_fail(err, BITNET_ARGUMENT, "kernel %s: a kernel with this id is registered",
                         k->id);
    if (atomic_load(&r->n) == BNET_KERNELS_MAX)
        return bnet_fail(err, BITNET_MEMORY, "kernel %s: the registry is full (%d kernels)", k->id,
                         BNET_KERNELS_MAX);
    registry_node *node = node_new(k);
    registry_key *key = NULL;
    if (node)
        key = (registry_key *)registry_find_key(r, k->device, k->op, k->format, k->dtype);
    if (node && !key)
        key = key_new(r, &node->rec);
    if (!key) {
        bnet_free(node ? node->text : NULL);
        bnet_free(node);
        return bnet_no_memory(err, "kernel record");
    }
    publish(r, node, key);
    return BITNET_OK;
}

bitnet_status bnet_registry_add(bnet_registry *r, const bnet_kernel_record *k, bitnet_error *err)
{
    bitnet_status st = check_record(k, err);
    if (st != BITNET_OK)
        return st;
    pthread_mutex_lock(&r->lock);
    st = add_locked(r, k, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* The rows of every backend compiled in. */
static bitnet_status add_backends(bnet_registry *r, bitnet_error *err)
{
    static const bnet_kernel_record *(*const backends[])(size_t *) = {
#define BACKEND(name) bnet_##name##_kernel_rows,
#include "ops/backends.inc"
#undef BACKEND
    };
    bitnet_status st = BITNET_OK;
    for (size_t b = 0; b < BNET_COUNT(backends); b++) {
        size_t n;
        const bnet_kernel_record *rows = backends[b](&n);
        for (size_t i = 0; st == BITNET_OK && i < n; i++)
            st = rows[i].fn ? bnet_registry_add(r, &rows[i], err) : BITNET_OK;
    }
    return st;
}

bitnet_status bnet_registry_open(bnet_registry **out, bitnet_error *err)
{
    bnet_registry *r = bnet_calloc(1, sizeof *r);
    if (!r)
        return bnet_no_memory(err, "kernel registry");
    if (pthread_mutex_init(&r->lock, NULL) != 0) {
        bnet_free(r);
        return bnet_no_memory(err, "kernel registry");
    }
    bitnet_status st = add_backends(r, err);
    if (st != BITNET_OK) {
        bnet_registry_close(r);
        return st;
    }
    *out = r;
    return BITNET_OK;
}

void bnet_registry_close(bnet_registry *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < atomic_load(&r->n); i++) {
        registry_node *node = atomic_load(&r->records[i]);
        bnet_free(node->text);
        bnet_free(node);
    }
    for (int b = 0; b < REGISTRY_BUCKETS; b++)
        for (registry_key *k = atomic_load(&r->buckets[b]), *next; k; k = next) {
            next = atomic_load(&k->next);
            bnet_free(k);
        }
    bnet_registry_free_choices(r);
    bnet_registry_free_trials(r);
    pthread_mutex_destroy(&r->lock);
    bnet_free(r);
}

/* ---- finding ---- */

size_t bnet_registry_count(const bnet_registry *r)
{
    return atomic_load_explicit(&r->n, memory_order_acquire);
}

uint32_t bnet_registry_generation(const bnet_registry *r)
{
    return atomic_load_explicit(&r->generation, memory_order_acquire);
}

const bnet_kernel_record *bnet_registry_at(const bnet_registry *r, size_t i)
{
    if (i >= bnet_registry_count(r))
        return NULL;
    return &atomic_load_explicit(&r->records[i], memory_order_acquire)->rec;
}

const bnet_kernel_record *bnet_registry_find(const bnet_registry *r, const char *id)
{
    for (size_t i = 0; i < bnet_registry_count(r); i++) {
        const bnet_kernel_record *k = bnet_registry_at(r, i);
        if (strcmp(k->id, id) == 0)
            return k;
    }
    return NULL;
}

/* ---- choosing ---- */

static bool better(const bnet_kernel_record *a, const bnet_kernel_record *b, bitnet_priority p)
{
    if (p == BITNET_PRIORITY_REFERENCE)
        return a->tier < b->tier;
    if (p == BITNET_PRIORITY_MEMORY && a->temp_bytes != b->temp_bytes)
        return a->temp_bytes < b->temp_bytes;
    if (a->tier != b->tier)
        return a->tier > b->tier;
    return a->outside && !b->outside; /* who registers one wants it to run */
}

/* The best compatible record of a key. */
static const bnet_kernel_record *best_of(const registry_key *key, const bnet_capabilities *c,
                                         const bnet_kernel_query *q)
{
    const bnet_kernel_record *best = NULL;
    for (const registry_node *n = registry_first(key); n; n = registry_next(n))
        if ((!best || better(&n->rec, best, q->priority)) &&
            bnet_registry_veto(&n->rec, c, q) == VETO_NONE)
            best = &n->rec;
    return best;
}

bool bnet_registry_has(const bnet_registry *r, const bnet_capabilities *c, bnet_op op,
                       bnet_format format, bnet_dtype dtype)
{
    bnet_kernel_query q = {.op = op, .format = format, .dtype = dtype};
    const registry_key *key = registry_find_key(r, c->device, op, format, dtype);
    return key && best_of(key, c, &q) != NULL;
}

/* "NoCompatibleKernel{...}: linear_i2s.avx2: needs ...; linear_i2s.big: needs ..." */
static bitnet_status refuse(const registry_key *key, const bnet_capabilities *c,
                            const bnet_kernel_query *q, bitnet_error *err)
{
    bnet_str s = {0};
    char reason[160];
    for (const registry_node *n = err ? registry_first(key) : NULL; n; n = registry_next(n))
        bnet_str_addf(&s, "%s%s: %s", s.n ? "; " : "", n->rec.id,
                      bnet_kernel_veto(&n->rec, c, q, reason, sizeof reason));
    bitnet_status st =
        bnet_fail(err, BITNET_NOT_AVAILABLE,
                  "NoCompatibleKernel{device: %s, qtype: %s, operation: %s, dtype: %s, m: %llu, n: "
                  "%llu, k: %llu}: %s",
                  bnet_device_name(c->device), bnet_format_name(q->format), bnet_op_name(q->op),
                  bnet_dtype_name(q->dtype), (unsigned long long)q->m, (unsigned long long)q->n,
                  (unsigned long long)q->k, s.data ? s.data : "");
    bnet_str_free(&s);
    return st;
}

static bitnet_status unsupported(bnet_device_kind device, const char *op, const char *format,
                                 const char *dtype, bitnet_error *err)
{
    return bnet_fail(err, BITNET_NOT_AVAILABLE,
                     "UnsupportedKernelConfiguration{device: %s, qtype: %s, operation: %s}: no "
                     "kernel is registered for it (activations: %s)",
                     bnet_device_name(device), format ? format : "", op ? op : "",
                     dtype ? dtype : "");
}

bitnet_status bnet_query_read(const bitnet_kernel_query *names, bnet_device_kind device,
                              bnet_kernel_query *out, bitnet_error *err)
{
    *out = (bnet_kernel_query){bnet_op_find(names->op),
                               bnet_format_find(names->format),
                               bnet_dtype_find(names->dtype),
                               names->m,
                               names->n,
                               names->k,
                               names->priority};
    return out->op && out->format && out->dtype
               ? BITNET_OK
               : unsupported(device, names->op, names->format, names->dtype, err);
}

bitnet_status bnet_registry_select(const bnet_registry *r, const bnet_capabilities *c,
                                   const bnet_kernel_query *q, const bnet_kernel_record **out,
                                   bitnet_error *err)
{
    const registry_key *key = registry_find_key(r, c->device, q->op, q->format, q->dtype);
    const bnet_kernel_record *k = NULL;
    if (key && q->priority == BITNET_PRIORITY_SPEED &&
        atomic_load_explicit(&r->n_choices, memory_order_acquire) > 0)
        k = bnet_registry_choice(r, key, c, q);
    if (key && !k)
        k = best_of(key, c, q);
    if (k) {
        *out = k;
        return BITNET_OK;
    }
    if (key)
        return refuse(key, c, q, err);
    return unsupported(c->device, bnet_op_name(q->op), bnet_format_name(q->format),
                       bnet_dtype_name(q->dtype), err);
}

bitnet_status bnet_registry_select_all(const bnet_registry *r, const bnet_capabilities *c,
                                       const bnet_fixed *fixed, size_t n, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        bnet_kernel_query q = {
            .op = fixed[i].op, .format = fixed[i].format, .dtype = BNET_DTYPE_F32};
        st = bnet_registry_select(r, c, &q, fixed[i].to, err);
    }
    return st;
}

const bnet_kernel_record *bnet_registry_pick(const bnet_registry *r, const bnet_capabilities *c,
                                             const bnet_kernel_query *q, size_t m,
                                             bnet_picks *picks)
{
    atomic_uint_fast64_t *word = &picks->word[__builtin_ctzll(bnet_tuning_m(m))];
    uint64_t tag = (uint64_t)m << 32 | (uint64_t)(bnet_registry_generation(r) & 0xffff) << 16;
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    if ((now & ~UINT64_C(0xffff)) == tag)
        return bnet_registry_at(r, now & 0xffff);
    bnet_kernel_query of_m = *q;
    const bnet_kernel_record *k = NULL;
    of_m.m = m;
    if (bnet_registry_select(r, c, &of_m, &k, NULL) != BITNET_OK)
        return NULL;
    atomic_store_explicit(word, tag | k->slot, memory_order_relaxed);
    return k;
}
