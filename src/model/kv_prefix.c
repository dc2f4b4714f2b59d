/* kv_prefix.c - the index of texts: one node per block of the pool, chained by the hash of its
 * tokens if it is full and by that of its parent in any case, and a heap of the nodes that may be
 * given up. Invariants: a node's parent is full and stays in the index as long as the node does, so
 * only leaves are removed; the heap has exactly the leaves, on top the first to go; of a family the
 * node used last comes first. */
#include "model/kv_prefix.h"

#include "model/kv.h"

enum {
    LOOK = 64, /* nodes of a family that are compared with a text */
    WALK = 512 /* nodes that are passed for it, with those of other families in the same place */
};

typedef struct node {
    uint64_t hash, scope, last_use, n_uses, entered;
    int32_t parent, next; /* next: of the same bucket */
    int32_t newer, older; /* of the same family */
    int32_t n_children;
    int32_t at; /* in the heap; of a leaf */
    bool known; /* the block is in the index */
    int32_t n_tokens;
    int32_t tokens[BNET_KV_BLOCK];
} node;

struct bnet_kv_prefixes {
    const bnet_kv_blocks *blocks;
    bitnet_kv_policy policy;
    node *nodes;   /* [n_blocks] by physical block */
    int32_t *heap; /* [n_heap] leaves, by block */
    int32_t n_heap;
    int32_t *buckets;  /* [mask + 1] first full node, BNET_KV_NONE: empty */
    int32_t *families; /* [mask + 1] newest node by scope and parent */
    uint64_t mask;
};

bitnet_status bnet_kv_prefixes_open(bnet_kv_blocks *blocks, bitnet_kv_policy policy,
                                    bitnet_error *err)
{
    size_t n_blocks = (size_t)blocks->shape.n_blocks;
    uint64_t n = 1;
    while (n < n_blocks)
        n *= 2;
    bnet_kv_prefixes *x = bnet_calloc(1, sizeof *x);
    if (!x)
        return bnet_no_memory(err, "index of prefixes");
    *x = (bnet_kv_prefixes){.blocks = blocks,
                            .policy = policy,
                            .nodes = bnet_calloc(n_blocks, sizeof *x->nodes),
                            .heap = bnet_calloc(n_blocks, sizeof *x->heap),
                            .buckets = bnet_calloc((size_t)n, sizeof *x->buckets),
                            .families = bnet_calloc((size_t)n, sizeof *x->families),
                            .mask = n - 1};
    if (!x->nodes || !x->heap || !x->buckets || !x->families) {
        bnet_kv_prefixes_close(x);
        return bnet_no_memory(err, "index of prefixes");
    }
    for (uint64_t i = 0; i < n; i++)
        x->buckets[i] = x->families[i] = BNET_KV_NONE;
    blocks->prefixes = x;
    return BITNET_OK;
}

bnet_kv_prefixes *bnet_kv_prefixes_of(const bnet_kv_blocks *blocks)
{
    return blocks->prefixes;
}

void bnet_kv_prefixes_close(bnet_kv_prefixes *x)
{
    if (!x)
        return;
    bnet_free(x->nodes);
    bnet_free(x->heap);
    bnet_free(x->buckets);
    bnet_free(x->families);
    bnet_free(x);
}

/* ---- the heap ---- */

/* True if block a is given up before b: those that nobody else holds first, then by the policy. */
static bool goes_before(const bnet_kv_prefixes *x, int32_t a, int32_t b)
{
    const node *m = &x->nodes[a], *n = &x->nodes[b];
    bool used = x->blocks->n_refs[a] > 1, other = x->blocks->n_refs[b] > 1;
    if (used != other)
        return other;
    if (x->policy == BITNET_KV_FIFO && m->entered != n->entered)
        return m->entered < n->entered;
    if (x->policy == BITNET_KV_LFU && m->n_uses != n->n_uses)
        return m->n_uses < n->n_uses;
    return m->last_use != n->last_use ? m->last_use < n->last_use : a < b;
}

static void put(bnet_kv_prefixes *x, int32_t at, int32_t block)
{
    x->heap[at] = block;
    x->nodes[block].at = at;
}

/* Puts the block, which belongs somewhere above or below the place, where it belongs. */
static void sift(bnet_kv_prefixes *x, int32_t at, int32_t block)
{
    for (; at > 0 && goes_before(x, block, x->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put(x, at, x->heap[(at - 1) / 2]);
    for (int32_t child; (child = 2 * at + 1) < x->n_heap; at = child) {
        child += child + 1 < x->n_heap && goes_before(x, x->heap[child + 1], x->heap[child]);
        if (!goes_before(x, x->heap[child], block))
            break;
        put(x, at, x->heap[child]);
    }
    put(x, at, block);
}

static void enter(bnet_kv_prefixes *x, int32_t leaf)
{
    x->n_heap++;
    sift(x, x->n_heap - 1, leaf);
}

static void leave(bnet_kv_prefixes *x, int32_t leaf)
{
    int32_t at = x->nodes[leaf].at, last = x->heap[--x->n_heap];
    if (last != leaf)
        sift(x, at, last);
}

void bnet_kv_prefix_changed(bnet_kv_prefixes *x, int32_t block)
{
    if (x && x->nodes[block].known && x->nodes[block].n_children == 0)
        sift(x, x->nodes[block].at, block);
}

/* ---- families: what continues one block, or begins the texts of one scope ---- */

static uint64_t hash_parent(uint64_t scope, int32_t parent)
{
    uint64_t h = (scope ^ 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return (h ^ (h >> 32) ^ (uint32_t)parent) * 0xc4ceb9fe1a85ec53u;
}

static int32_t *family(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent)
{
    uint64_t h = hash_parent(scope, parent);
    return &x->families[(h ^ (h >> 32)) & x->mask];
}

static void family_enter(bnet_kv_prefixes *x, int32_t block)
{
    node *n = &x->nodes[block];
    int32_t *newest = family(x, n->scope, n->parent);
    n->newer = BNET_KV_NONE;
    n->older = *newest;
    if (*newest != BNET_KV_NONE)
        x->nodes[*newest].newer = block;
    *newest = block;
}

static void family_leave(bnet_kv_prefixes *x, int32_t block)
{
    const node *n = &x->nodes[block];
    if (n->older != BNET_KV_NONE)
        x->nodes[n->older].newer = n->newer;
    if (n->newer != BNET_KV_NONE)
        x->nodes[n->newer].older = n->older;
    else
        *family(x, n->scope, n->parent) = n->older;
}

/* A way through the nodes of a family, those used last first. */
typedef struct walk {
    const bnet_kv_prefixes *x;
    uint64_t scope;
    int32_t parent, next;
    int n_seen, n_passed;
} walk;

static walk walk_begin(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent)
{
    return (walk){.x = x, .scope = scope, .parent = parent, .next = *family(x, scope, parent)};
}

/* The next one, or BNET_KV_NONE. */
static int32_t walk_next(walk *w)
{
    while (w->next != BNET_KV_NONE && w->n_seen < LOOK && w->n_passed++ < WALK) {
        int32_t at = w->next;
        const node *n = &w->x->nodes[at];
        w->next = n->older;
        if (n->scope == w->scope && n->parent == w->parent) {
            w->n_seen++;
            return at;
        }
    }
    return BNET_KV_NONE;
}

/* With how many of n tokens a node begins. */
static int n_common_with(const node *m, const int32_t *tokens, int n)
{
    int i = 0, most = BNET_MIN(n, (int)m->n_tokens);
    while (i < most && m->tokens[i] == tokens[i])
        i++;
    return i;
}

int32_t bnet_kv_prefix_begins(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                              const int32_t *tokens, int n, int *n_common)
{
    int32_t best = BNET_KV_NONE, i;
    walk w = walk_begin(x, scope, parent);
    *n_common = 0;
    while ((i = walk_next(&w)) != BNET_KV_NONE) {
        int common = n_common_with(&x->nodes[i], tokens, n);
        if (common > *n_common) {
            *n_common = common;
            best = i;
        }
    }
    return best;
}

/* ---- finding and entering ---- */

static uint64_t hash_of(uint64_t scope, int32_t parent, const int32_t *tokens)
{
    uint64_t h = hash_parent(scope, parent);
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

static void bucket_enter(bnet_kv_prefixes *x, int32_t block)
{
    node *n = &x->nodes[block];
    n->hash = hash_of(n->scope, n->parent, n->tokens);
    n->next = x->buckets[n->hash & x->mask];
    x->buckets[n->hash & x->mask] = block;
}

static void bucket_leave(bnet_kv_prefixes *x, int32_t block)
{
    int32_t *at = &x->buckets[x->nodes[block].hash & x->mask];
    while (*at != block)
        at = &x->nodes[*at].next;
    *at = x->nodes[block].next;
}

void bnet_kv_prefix_add(bnet_kv_prefixes *x, uint64_t scope, int32_t parent, const int32_t *tokens,
                        int n_tokens, int32_t block, uint64_t now)
{
    node *n = &x->nodes[block];
    assert(!n->known && (parent == BNET_KV_NONE || x->nodes[parent].known));
    assert(n_tokens > 0 && n_tokens <= BNET_KV_BLOCK);
    *n = (node){.scope = scope,
                .last_use = now,
                .n_uses = 1,
                .entered = now,
                .parent = parent,
                .n_tokens = n_tokens,
                .known = true};
    memcpy(n->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    if (n_tokens == BNET_KV_BLOCK)
        bucket_enter(x, block);
    family_enter(x, block);
    enter(x, block);
    if (parent != BNET_KV_NONE && x->nodes[parent].n_children++ == 0)
        leave(x, parent);
}

bool bnet_kv_prefix_has(const bnet_kv_prefixes *x, int32_t block)
{
    return x && x->nodes[block].known;
}

void bnet_kv_prefix_use(bnet_kv_prefixes *x, int32_t block, uint64_t now)
{
    x->nodes[block].last_use = now;
    x->nodes[block].n_uses++;
    family_leave(x, block);
    family_enter(x, block);
    bnet_kv_prefix_changed(x, block);
}

static void remove_leaf(bnet_kv_prefixes *x, int32_t block)
{
    node *n = &x->nodes[block];
    assert(n->known && n->n_children == 0);
    if (n->n_tokens == BNET_KV_BLOCK)
        bucket_leave(x, block);
    family_leave(x, block);
    leave(x, block);
    if (n->parent != BNET_KV_NONE && --x->nodes[n->parent].n_children == 0)
        enter(x, n->parent);
    n->known = false;
}

int32_t bnet_kv_prefix_evict(bnet_kv_prefixes *x, bool unused)
{
    int32_t first = x && x->n_heap ? x->heap[0] : BNET_KV_NONE;
    if (first == BNET_KV_NONE || (unused && x->blocks->n_refs[first] > 1))
        return BNET_KV_NONE;
    remove_leaf(x, first);
    return first;
}

bool bnet_kv_prefix_forget(bnet_kv_prefixes *x, int32_t block)
{
    if (!bnet_kv_prefix_has(x, block) || x->nodes[block].n_children > 0)
        return false;
    remove_leaf(x, block);
    return true;
}

int32_t bnet_kv_prefix_outgrown(bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                                const int32_t *tokens, int n)
{
    walk w = walk_begin(x, scope, parent);
    int32_t i;
    while ((i = walk_next(&w)) != BNET_KV_NONE) {
        const node *m = &x->nodes[i];
        if (m->n_tokens < n && x->blocks->n_refs[i] == 1 &&
            n_common_with(m, tokens, n) == m->n_tokens)
            break;
    }
    if (i != BNET_KV_NONE)
        remove_leaf(x, i);
    return i;
}
