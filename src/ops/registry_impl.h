/* registry_impl.h - the inside of the registry, shared by its files.
 *
 * Everything only grows: records and choices are appended to chains whose links are published with
 * release stores, and nothing is unlinked before close. So readers take no lock, never wait
 * and may keep what they found; writers take turns at one mutex. */
#ifndef BNET_REGISTRY_IMPL_H
#define BNET_REGISTRY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "ops/registry.h"

enum { REGISTRY_BUCKETS = 256, CHOICE_BUCKETS = 1024, CHOICES_MAX = 65536, TRIAL_BUCKETS = 64 };

typedef struct registry_node {
    bnet_kernel_record rec; /* its texts lie in `text` */
    const struct registry_key *key;
    _Atomic(struct registry_node *) next; /* of the same key, in order of registration */
    char *text;
} registry_node;

typedef struct registry_key {
    uint32_t id; /* registry_key_id */
    _Atomic(registry_node *) first;
    _Atomic(struct registry_key *) next; /* in the bucket */
} registry_key;

/* One word of the tuning cache. Only `kernel` may change. */
typedef struct registry_choice {
    const registry_key *key;
    uint64_t m, n, k;
    _Atomic(const registry_node *) kernel; /* of the same key */
    _Atomic(struct registry_choice *) next;
} registry_choice;

struct bnet_registry {
    pthread_mutex_t lock; /* of writers */
    atomic_size_t n, n_choices;
    atomic_uint generation;
    _Atomic(registry_node *) records[BNET_KERNELS_MAX];
    _Atomic(registry_key *) buckets[REGISTRY_BUCKETS];
    _Atomic(registry_choice *) choices[CHOICE_BUCKETS];
    atomic_bool refines;
    size_t n_trials;                                    /* by the lock */
    _Atomic(struct bnet_trial *) trials[TRIAL_BUCKETS]; /* registry_refine.c */
};

/* (device, op, format, dtype) as one number. */
static inline uint32_t registry_key_id(bnet_device_kind device, bnet_op op, bnet_format format,
                                       bnet_dtype dtype)
{
    return (((uint32_t)device * BNET_OPS + op) * BNET_FORMATS + format) * BNET_DTYPES + dtype;
}

static inline uint64_t registry_hash_shape(uint64_t h, uint64_t m, uint64_t n, uint64_t k)
{
    h = (h ^ m) * 0x9e3779b97f4a7c15u;
    h = (h ^ n ^ h >> 32) * 0x9e3779b97f4a7c15u;
    h = (h ^ k ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline bool registry_same_key(const bnet_kernel_record *r, const bnet_kernel_query *q)
{
    return r->op == q->op && r->format == q->format && r->dtype == q->dtype;
}

static inline size_t registry_bucket(uint32_t id)
{
    return (id * 0x9e3779b9u >> 16) % REGISTRY_BUCKETS;
}

/* The key's records, NULL: it has none. */
static inline const registry_key *registry_find_key(const bnet_registry *r, bnet_device_kind device,
                                                    bnet_op op, bnet_format format,
                                                    bnet_dtype dtype)
{
    uint32_t id = registry_key_id(device, op, format, dtype);
    const registry_key *k =
        atomic_load_explicit(&r->buckets[registry_bucket(id)], memory_order_acquire);
    while (k && k->id != id)
        k = atomic_load_explicit(&k->next, memory_order_acquire);
    return k;
}

static inline registry_node *registry_first(const registry_key *k)
{
    return atomic_load_explicit(&k->first, memory_order_acquire);
}

static inline registry_node *registry_next(const registry_node *n)
{
    return atomic_load_explicit(&n->next, memory_order_acquire);
}

/* Why a record cannot serve, as a number: the text is made only when somebody wants to read it. */
typedef enum registry_veto {
    VETO_NONE,
    VETO_DEVICE,
    VETO_KEY,
    VETO_BUILD,
    VETO_NEEDS,
    VETO_M,
    VETO_N,
    VETO_K
} registry_veto;

registry_veto bnet_registry_veto(const bnet_kernel_record *k, const bnet_capabilities *c,
                                 const bnet_kernel_query *q);
/* The choice for this query of this key, NULL: none. */
const bnet_kernel_record *bnet_registry_choice(const bnet_registry *r, const registry_key *key,
                                               const bnet_capabilities *c,
                                               const bnet_kernel_query *q);
void bnet_registry_free_choices(bnet_registry *r);
void bnet_registry_free_trials(bnet_registry *r);

#endif
