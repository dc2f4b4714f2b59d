/* kv_prefix.c - the index of texts: one node per block of the pool, chained by hash. Invariant: a
 * node's parent stays in the index as long as the node does, so only leaves are removed. */
#include "model/kv_prefix.h"

typedef struct node {
    uint64_t hash, scope, last_use, n_uses, entered;
    int32_t parent, next; /* next: of the same bucket */
    int32_t n_children;
    bool known; /* the block is in the index */
    int32_t tokens[BNET_KV_BLOCK];
} node;

struct bnet_kv_prefixes {
    node *nodes; /* [n_blocks] by physical block */
    int n_blocks;
    int32_t *buckets; /* [mask + 1] first node, BNET_KV_NONE: empty */
    uint64_t mask;
};

bitnet_status bnet_kv_prefixes_open(int n_blocks, bnet_kv_prefixes **out, bitnet_error *err)
{
    uint64_t n = 1;
    while (n < (uint64_t)n_blocks)
        n *= 2;
    bnet_kv_prefixes *x = bnet_calloc(1, sizeof *x);
    if (!x)
        return bnet_no_memory(err, "index of prefixes");
    *x = (bnet_kv_prefixes){.nodes = bnet_calloc((size_t)n_blocks, sizeof *x->nodes),
                            .n_blocks = n_blocks,
                            .buckets = bnet_calloc((size_t)n, sizeof *x->buckets),
                            .mask = n - 1};
    if (!x->nodes || !x->buckets) {
        bnet_kv_prefixes_close(x);
        return bnet_no_memory(err, "index of prefixes");
    }
    for (uint64_t i = 0; i < n; i++)
        x->buckets[i] = BNET_KV_NONE;
    *out = x;
    return BITNET_OK;
}

void bnet_kv_prefixes_close(bnet_kv_prefixes *x)
{
    if (!x)
        return;
    bnet_free(x->nodes);
    bnet_free(x->buckets);
    bnet_free(x);
}

static uint64_t hash_of(uint64_t scope, int32_t parent, const int32_t *tokens)
{
    uint64_t h = (scope ^ 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 32) ^ (uint32_t)parent) * 0xc4ceb9fe1a85ec53u;
    for (int i = 0; i < BNET_KV_BLOCK; i++)
        h = (h ^ (h >> 29) ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

static bool is_node(const node *n, uint64_t hash, uint64_t scope, int32_t parent,
                    const int32_t *tokens)
{
    return n->hash == hash && n->scope == scope && n->parent == parent &&
           memcmp(n->tokens, tokens, sizeof n->tokens) == 0;
}

int32_t bnet_kv_prefix_find(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                            const int32_t *tokens)
{
    uint64_t hash = hash_of(scope, parent, tokens);
    int32_t i = x->buckets[hash & x->mask];
    while (i != BNET_KV_NONE && !is_node(&x->nodes[i], hash, scope, parent, tokens))
        i = x->nodes[i].next;
    return i;
}

void bnet_kv_prefix_add(bnet_kv_prefixes *x, uint64_t scope, int32_t parent, const int32_t *tokens,
                        int32_t block, uint64_t now)
{
    node *n = &x->nodes[block];
    assert(!n->known && (parent == BNET_KV_NONE || x->nodes[parent].known));
    uint64_t hash = hash_of(scope, parent, tokens);
    int32_t *bucket = &x->buckets[hash & x->mask];
    *n = (node){.hash = hash,
                .scope = scope,
                .last_use = now,
                .n_uses = 1,
                .entered = now,
                .parent = parent,
                .next = *bucket,
                .known = true};
    memcpy(n->tokens, tokens, sizeof n->tokens);
    *bucket = block;
    if (parent != BNET_KV_NONE)
        x->nodes[parent].n_children++;
}

bool bnet_kv_prefix_has(const bnet_kv_prefixes *x, int32_t block)
{
    return x && x->nodes[block].known;
}

void bnet_kv_prefix_use(bnet_kv_prefixes *x, int32_t block, uint64_t now)
{
    x->nodes[block].last_use = now;
    x->nodes[block].n_uses++;
}

static void remove_leaf(bnet_kv_prefixes *x, int32_t block)
{
    node *n = &x->nodes[block];
    assert(n->known && n->n_children == 0);
    int32_t *at = &x->buckets[n->hash & x->mask];
    while (*at != block)
        at = &x->nodes[*at].next;
    *at = n->next;
    if (n->parent != BNET_KV_NONE)
        x->nodes[n->parent].n_children--;
    n->known = false;
}

/* True if a is given up before b. */
static bool goes_before(bitnet_kv_policy policy, const node *a, const node *b)
{
    if (policy == BITNET_KV_FIFO && a->entered != b->entered)
        return a->entered < b->entered;
    if (policy == BITNET_KV_LFU && a->n_uses != b->n_uses)
        return a->n_uses < b->n_uses;
    return a->last_use < b->last_use;
}

int32_t bnet_kv_prefix_evict(bnet_kv_prefixes *x, const bnet_kv_blocks *blocks,
                             bitnet_kv_policy policy, bool unused)
{
    int32_t best = BNET_KV_NONE;
    for (int32_t i = 0; i < x->n_blocks; i++) {
        const node *n = &x->nodes[i];
        if (!n->known || n->n_children > 0 || (unused && bnet_kv_blocks_refs(blocks, i) > 1))
            continue;
        if (best == BNET_KV_NONE || goes_before(policy, n, &x->nodes[best]))
            best = i;
    }
    if (best != BNET_KV_NONE)
        remove_leaf(x, best);
    return best;
}
