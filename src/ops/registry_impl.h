/* registry_impl.h - the inside of the registry, shared by its files.
 *
 * Everything only grows: records and choices are appended to chains whose links are published with
 * release stores, and nothing is unlinked before close. So readers take no lock, wait for nobody
 * and may keep what they found; writers take turns at one mutex. */
#ifndef BNET_REGISTRY_IMPL_H
#define BNET_REGISTRY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "ops/registry.h"

enum { REGISTRY_BUCKETS = 256, CHOICE_BUCKETS = 1024, CHOICES_MAX = 65536 };

typedef struct registry_node {
    bnet_kernel_record rec; /* its texts lie in `text` */
    uint64_t hash;          /* of the key */
    _Atomic(struct registry_node *) next;
    char *text;
} registry_node;

/* One word of the tuning cache. Only `kernel` may change. */
typedef struct registry_choice {
    uint64_t hash; /* of key, class of m, n, k */
    uint64_t m, n, k;
    _Atomic(const registry_node *) kernel; /* of the same key */
    _Atomic(struct registry_choice *) next;
} registry_choice;

struct bnet_registry {
    pthread_mutex_t lock; /* of writers */
    atomic_size_t n, n_choices;
    atomic_uint generation;
    _Atomic(registry_node *) records[BNET_KERNELS_MAX];
    _Atomic(registry_node *) buckets[REGISTRY_BUCKETS];
    _Atomic(registry_choice *) choices[CHOICE_BUCKETS];
};

/* FNV-1a over the key (device, op, format, dtype); texts are separated by their NUL. */
static inline uint64_t registry_hash_text(uint64_t h, const char *s)
{
    do
        h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    while (*s++);
    return h;
}

static inline uint64_t registry_hash(bnet_device_kind device, const char *op, const char *format,
                                     const char *dtype)
{
    uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)device;
    h = registry_hash_text(h, op);
    h = registry_hash_text(h, format);
    return registry_hash_text(h, dtype);
}

static inline uint64_t registry_hash_shape(uint64_t h, uint64_t m, uint64_t n, uint64_t k)
{
    h = (h ^ m) * 0x9e3779b97f4a7c15u;
    h = (h ^ n ^ h >> 32) * 0x9e3779b97f4a7c15u;
    h = (h ^ k ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline bool registry_same_key(const bnet_kernel_record *r, bnet_device_kind device,
                                     const char *op, const char *format, const char *dtype)
{
    return r->device == device && strcmp(r->op, op) == 0 && strcmp(r->format, format) == 0 &&
           strcmp(r->dtype, dtype) == 0;
}

static inline registry_node *registry_chain(const bnet_registry *r, uint64_t hash)
{
    return atomic_load_explicit(&r->buckets[(hash ^ hash >> 32) % REGISTRY_BUCKETS],
                                memory_order_acquire);
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
    VETO_CPU,
    VETO_CC,
    VETO_TENSOR_CORES,
    VETO_M,
    VETO_N,
    VETO_K
} registry_veto;

registry_veto bnet_registry_veto(const bnet_kernel_record *k, const bnet_capabilities *c,
                                 const bnet_kernel_query *q);
/* The choice for this query, NULL: none. The key's hash is the caller's. */
const bnet_kernel_record *bnet_registry_choice(const bnet_registry *r, uint64_t key_hash,
                                               const bnet_capabilities *c,
                                               const bnet_kernel_query *q);
void bnet_registry_free_choices(bnet_registry *r);
/* Kind of a build name ("cuda"); BNET_DEV_COUNT: none. */
bnet_device_kind bnet_registry_build_kind(const char *name);

#endif
