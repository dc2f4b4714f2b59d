/* ops_attention.c - the cache and the attention over it.
 *
 * Invariant: every query's blocks are reduced one by one and joined in ascending order (softmax.h),
 * so the result depends on neither batch nor threads. A pass is dealt out in tiles of tokens; of
 * tokens so long that others would wait for their kv heads, one after the other, in blocks of the
 * cache. */
#include <limits.h>
#include <stdatomic.h>

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/cpu.h"
#include "ops/kv_block.h"
#include "backend/cpu/softmax.h"

enum {
    TILE_TOKENS = 16,   /* most tokens that share a pass over a block */
    TILE_FLOATS = 8192, /* most values of one call's results */
    SPLIT_HEADS = 256,  /* most kv heads of a pass that is split by blocks */
    SMALL = 16384,      /* multiplications not worth a barrier */
    SHORT = 16, /* positions of a block too short to be worth fetching, or to fetch during */
    HUGE_FROM = 1 << 24 /* bytes of a cache that is worth huge pages */
};

bnet_kv_store *bnet_cpu_kv_new(bnet_backend *b, const bnet_kv_shape *s)
{
    uint64_t block = bnet_kv_layer_bytes(s), total;
    if (!bnet_mul(block, (uint64_t)s->n_layers * (uint64_t)s->n_blocks, &total) || total > SIZE_MAX)
        return NULL;
    bnet_kv_store *kv = bnet_calloc(1, sizeof *kv);
    if (!kv)
        return NULL;
    kv->shape = *s;
    kv->part_bytes = bnet_kv_part_bytes(s->type, (size_t)s->head_dim);
    kv->block_bytes = (size_t)block;
    kv->data = total < HUGE_FROM ? bnet_alloc((size_t)total) : bnet_alloc_huge((size_t)total);
    if (!kv->data) {
        bnet_cpu_kv_free(b, kv);
        return NULL;
    }
    return kv;
}

void bnet_cpu_kv_free(bnet_backend *b, bnet_kv_store *kv)
{
    (void)b;
    if (!kv)
        return;
    bnet_free(kv->data);
    bnet_free(kv);
}

void bnet_cpu_kv_get(bnet_kv_store *kv, int layer, int block, void *bytes)
{
    memcpy(bytes, kv_part(kv, layer, block, 0, 0), (size_t)bnet_kv_layer_bytes(&kv->shape));
}

void bnet_cpu_kv_put(bnet_kv_store *kv, int layer, int block, const void *bytes)
{
    memcpy(kv_part(kv, layer, block, 0, 0), bytes, (size_t)bnet_kv_layer_bytes(&kv->shape));
}

void bnet_cpu_kv_clear(bnet_kv_store *kv, int block)
{
    for (int layer = 0; layer < kv->shape.n_layers; layer++)
        memset(kv_part(kv, layer, block, 0, 0), 0, (size_t)bnet_kv_layer_bytes(&kv->shape));
}

void bnet_cpu_kv_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from)
{
    for (int layer = 0; layer < dst->shape.n_layers; layer++)
        memcpy(kv_part(dst, layer, to, 0, 0), kv_part(src, layer, from, 0, 0),
               (size_t)bnet_kv_layer_bytes(&dst->shape));
}

typedef struct attention_job {
    cpu_backend *be;
    const bnet_step *step;
    int layer, n_heads;
    size_t n_kv;
    const float *q, *k, *v;
    float *y;
    int most_blocks; /* a token with more is cut into blocks */
    size_t tile;     /* most tokens of one */
    bnet_tiles tiles[BNET_TILINGS];
    size_t n_items; /* of all tilings */
    atomic_size_t next;
    /* one token by blocks */
    size_t token, n_blocks;
    float *partial;                  /* results of its blocks */
    atomic_size_t done[SPLIT_HEADS]; /* blocks of each kv head */
} attention_job;

static void append_tokens(void *arg, size_t begin, size_t end)
{
    const attention_job *j = arg;
    for (size_t t = begin; t < end; t++) {
        const bnet_seq *seq = &j->step->seqs[j->step->seq[t]];
        const bnet_kv_shape *s = &seq->store->shape;
        bnet_fn_kv_store *store = (bnet_fn_kv_store *)j->be->use.kv_store[s->type]->fn;
        size_t hd = (size_t)s->head_dim, n_kv = (size_t)s->n_kv_heads;
        int pos = j->step->pos[t], block = seq->blocks[pos / BNET_BLOCK_POS];
        for (size_t h = 0; h < n_kv; h++) {
            size_t at = (t * n_kv + h) * hd;
            store(j->k + at, hd, (size_t)(pos % BNET_BLOCK_POS),
                  kv_part(seq->store, j->layer, block, (int)h, 0));
            store(j->v + at, hd, (size_t)(pos % BNET_BLOCK_POS),
                  kv_part(seq->store, j->layer, block, (int)h, 1));
        }
    }
}

/* Counts one use of each kernel that serves this pass (timelines may differ in cache type). */
static void count_types(cpu_backend *be, const bnet_step *s,
                        const bnet_kernel_record *const kernels[3])
{
    bool seen[3] = {false, false, false};
    for (int t = 0; t < s->n_tokens; t++)
        seen[s->seqs[s->seq[t]].store->shape.type] = true;
    for (int i = 0; i < 3; i++)
        if (seen[i])
            cpu_use(be, kernels[i]);
}

void bnet_cpu_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                        bnet_buffer *v)
{
    cpu_backend *be = (cpu_backend *)b;
    attention_job j = {.be = be, .step = s, .layer = layer, .k = k->data, .v = v->data};
    const bnet_kv_shape *shape = &s->seqs[s->seq[0]].store->shape;
    count_types(be, s, be->use.kv_store);
    bnet_pool_items(be->pool, (size_t)s->n_tokens, 1,
                    4 * (size_t)shape->n_kv_heads * (size_t)shape->head_dim, append_tokens, &j);
}

/* ---- attention ---- */

/* Queries that walk the same blocks: tokens begin .. end - 1 of one timeline, heads of one kv
 * head. */
typedef struct span {
    size_t begin, end, kv_head, head, n_heads;
} span;

/* Scratch of the thread that computes a span. */
typedef struct room {
    bnet_softmax run[TILE_FLOATS / 4], block[TILE_FLOATS / 4]; /* a head has 4 values or more */
    float o[TILE_FLOATS];
    _Alignas(64) uint8_t temp[]; /* of the kernel */
} room;
_Static_assert(sizeof(room) == CPU_SPAN_BYTES, "scratch of attention");

static const bnet_kv_store *store_of(const attention_job *j, const span *s)
{
    return j->step->seqs[j->step->seq[s->begin]].store;
}

/* Where the first query of the span lies in q and y. */
static size_t offset_of(const attention_job *j, const span *s, size_t hd)
{
    return (s->begin * (size_t)j->n_heads + s->head) * hd;
}

static int blocks_of(const attention_job *j, size_t token)
{
    return j->step->pos[token] / BNET_BLOCK_POS + 1;
}

/* The keys to fetch during block b: the next block's, or the first ones of the next kv head. A
 * short last block is not fetched, and too short to fetch anything during it: what follows it is
 * fetched during the block before. */
static const uint8_t *next_keys(const attention_job *j, const span *s, int b)
{
    const bnet_seq *seq = &j->step->seqs[j->step->seq[s->begin]];
    int last = blocks_of(j, s->end - 1) - 1;
    bool is_short = last > 0 && j->step->pos[s->end - 1] - last * BNET_BLOCK_POS < SHORT;
    bool more = b + 1 < last + !is_short;
    if (is_short && b == last)
        return NULL;
    int head = (int)s->kv_head + !more;
    if (head == seq->store->shape.n_kv_heads)
        return NULL;
    return kv_part(seq->store, j->layer, seq->blocks[more ? b + 1 : 0], head, 0);
}

/* One block for all queries of the span that see it, which are its last ones; joined to `run`, the
 * states of all queries of the span, unless that is NULL. */
static void attend_block(const attention_job *j, const span *s, int b, room *r, bnet_softmax *block,
                         float *o, bnet_softmax *run)
{
    const bnet_kv_store *kv = store_of(j, s);
    const bnet_seq *seq = &j->step->seqs[j->step->seq[s->begin]];
    size_t hd = (size_t)kv->shape.head_dim, stride = (size_t)j->n_heads * hd, t = s->begin;
    uint8_t n_pos[TILE_TOKENS];
    while (j->step->pos[t] < b * BNET_BLOCK_POS)
        t++;
    for (size_t i = t; i < s->end; i++)
        n_pos[i - t] =
            (uint8_t)BNET_MIN(j->step->pos[i] + 1 - b * BNET_BLOCK_POS, (int)BNET_BLOCK_POS);
    bnet_attend a = {.q = j->q + offset_of(j, s, hd) + (t - s->begin) * stride,
                     .q_stride = stride,
                     .n_tokens = s->end - t,
                     .n_heads = s->n_heads,
                     .head_dim = hd,
                     .k_part = kv_part(kv, j->layer, seq->blocks[b], (int)s->kv_head, 0),
                     .v_part = kv_part(kv, j->layer, seq->blocks[b], (int)s->kv_head, 1),
                     .k_next = next_keys(j, s, b),
                     .n_pos = n_pos,
                     .scale = 1.0f / sqrtf((float)hd),
                     .block = block,
                     .o = o,
                     .run = run ? run + (t - s->begin) * s->n_heads : NULL,
                     .y = j->y + offset_of(j, s, hd) + (t - s->begin) * stride,
                     .temp = r->temp};
    ((bnet_fn_attention *)j->be->use.attention[kv->shape.type]->fn)(&a);
}

/* All blocks of a span, each joined as soon as it is there. */
static void attend_span(const attention_job *j, const span *s, room *r)
{
    size_t hd = (size_t)store_of(j, s)->shape.head_dim, n = (s->end - s->begin) * s->n_heads;
    size_t stride = (size_t)j->n_heads * hd;
    float *y = j->y + offset_of(j, s, hd);
    bnet_softmax *run = r->run;
    for (size_t i = 0; i < n; i++)
        run[i] = bnet_softmax_start(y + i / s->n_heads * stride + i % s->n_heads * hd, hd);
    for (int b = 0; b < blocks_of(j, s->end - 1); b++)
        attend_block(j, s, b, r, r->block, r->o, run);
    for (size_t i = 0; i < n; i++)
        bnet_softmax_finish(&run[i], y + i / s->n_heads * stride + i % s->n_heads * hd, hd);
}

/* The heads of kv head h, as many at a time as a call can hold, for n_tokens tokens. */
static span first_span(const attention_job *j, size_t token, size_t n_tokens, size_t h)
{
    const bnet_kv_shape *s = &j->step->seqs[j->step->seq[token]].store->shape;
    size_t group = (size_t)j->n_heads / (size_t)s->n_kv_heads, hd = (size_t)s->head_dim;
    size_t most = BNET_MAX(TILE_FLOATS / (BNET_MAX(hd, (size_t)4) * n_tokens), (size_t)1);
    return (span){token, token + n_tokens, h, h * group, BNET_MIN(group, most)};
}

static void attend_kv_head(const attention_job *j, size_t token, size_t n_tokens, size_t h, room *r)
{
    span s = first_span(j, token, n_tokens, h);
    size_t n_kv = (size_t)store_of(j, &s)->shape.n_kv_heads;
    size_t end = (h + 1) * ((size_t)j->n_heads / n_kv);
    for (; s.head < end; s.head += s.n_heads) {
        s.n_heads = BNET_MIN(s.n_heads, end - s.head);
        attend_span(j, &s, r);
    }
}

static bool is_cut(const attention_job *j, size_t token)
{
    return blocks_of(j, token) > j->most_blocks;
}

/* Item i of some tiles; one is cut where the timeline changes. */
static void attend_tile(const attention_job *j, const bnet_tiles *of, size_t i, room *r)
{
    size_t end, h, t = bnet_tile_at(of, i, &end, &h);
    while (t < end) {
        size_t next = t + 1;
        while (next < end && j->step->seq[next] == j->step->seq[t] &&
               j->step->pos[next] >= j->step->pos[next - 1] && is_cut(j, next) == is_cut(j, t))
            next++;
        if (!is_cut(j, t))
            attend_kv_head(j, t, next - t, h, r);
        t = next;
    }
}

static room *room_take(const attention_job *j, bnet_share part)
{
    return (room *)(void *)bnet_cpu_scratch_take(j->be, part.thread);
}

/* Late tokens see most positions, so they go first; the result does not depend on which thread
 * takes an item. */
static void attend_item(const attention_job *j, size_t i, room *r)
{
    const bnet_tiles *tiles = j->tiles;
    for (; i >= tiles->n_items; tiles++)
        i -= tiles->n_items;
    attend_tile(j, tiles, tiles->n_items - 1 - i, r);
}

static void attend_tiles(void *arg, bnet_share part)
{
    attention_job *j = arg;
    room *r = room_take(j, part);
    size_t i;
    while ((i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->n_items)
        attend_item(j, i, r);
    bnet_cpu_scratch_give(j->be, part.thread);
}

/* ---- one token, its kv heads cut into blocks ---- */

/* Block b of kv head h behind the rows of y: [group] of bnet_softmax, then [group][head_dim]. */
static float *partial_of(const attention_job *j, const bnet_kv_store *kv, size_t h, size_t b,
                         bnet_softmax **block)
{
    size_t group = (size_t)j->n_heads / j->n_kv;
    float *p = j->partial + (h * j->n_blocks + b) * group * ((size_t)kv->shape.head_dim + 2);
    *block = (bnet_softmax *)(void *)p;
    return p + 2 * group;
}

static void join_partials(const attention_job *j, const span *s)
{
    const bnet_kv_store *kv = store_of(j, s);
    size_t hd = (size_t)kv->shape.head_dim;
    float *y = j->y + offset_of(j, s, hd);
    for (size_t g = 0; g < s->n_heads; g++) {
        bnet_softmax run = bnet_softmax_start(y + g * hd, hd), *block;
        for (size_t b = 0; b < j->n_blocks; b++) {
            const float *o = partial_of(j, kv, s->kv_head, b, &block);
            bnet_softmax_merge(&run, y + g * hd, &block[g], o + g * hd, hd);
        }
        bnet_softmax_finish(&run, y + g * hd, hd);
    }
}

/* Blocks begin .. end - 1 of a kv head; the thread that finishes the last one joins them all.
 */
static void attend_part(attention_job *j, size_t h, size_t begin, size_t end, room *r)
{
    span s = first_span(j, j->token, 1, h);
    if (end - begin == j->n_blocks) {
        attend_span(j, &s, r);
        return;
    }
    for (size_t b = begin; b < end; b++) {
        bnet_softmax *block;
        float *o = partial_of(j, store_of(j, &s), h, b, &block);
        attend_block(j, &s, (int)b, r, block, o, NULL);
    }
    size_t n = end - begin;
    if (atomic_fetch_add_explicit(&j->done[h], n, memory_order_acq_rel) + n == j->n_blocks)
        join_partials(j, &s);
}

static void attend_parts(void *arg, bnet_share part)
{
    attention_job *j = arg;
    room *r = room_take(j, part);
    size_t begin, end;
    bnet_split(j->n_kv * j->n_blocks, 1, part.index, part.count, &begin, &end);
    while (begin < end) {
        size_t h = begin / j->n_blocks, stop = BNET_MIN(end, (h + 1) * j->n_blocks);
        attend_part(j, h, begin - h * j->n_blocks, stop - h * j->n_blocks, r);
        begin = stop;
    }
    bnet_cpu_scratch_give(j->be, part.thread);
}

/* Results of every block of a token lie behind the rows of y, if there is room for the longest:
 * jobs of one pool take turns, so what one token needs is enough. */
static bool can_split(attention_job *j, const bnet_kv_store *kv, const bnet_buffer *y)
{
    size_t hd = (size_t)kv->shape.head_dim, n_heads = (size_t)j->n_heads, n_blocks = 0;
    size_t t = (size_t)j->step->n_tokens, values = n_heads / j->n_kv * hd;
    for (size_t i = 0; i < t; i++)
        n_blocks = BNET_MAX(n_blocks, (size_t)blocks_of(j, i));
    j->partial = j->y + t * n_heads * hd;
    size_t need = t * n_heads * hd + n_heads * n_blocks * (hd + 2);
    return need * sizeof(float) <= y->n_bytes && j->n_kv <= SPLIT_HEADS && values <= TILE_FLOATS;
}

static void attend_split(attention_job *j, size_t token)
{
    j->token = token;
    j->n_blocks = (size_t)blocks_of(j, token);
    for (size_t h = 0; h < j->n_kv; h++)
        atomic_init(&j->done[h], 0);
    bnet_pool_run(j->be->pool, attend_parts, j);
}

/* Tokens are cut into blocks where a kv head of one is more than a quarter of a thread's share of
 * the pass, and the longest has more blocks than tokens would be cut: waiting for all threads costs
 * about a block. Returns how many are not cut. */
static size_t choose_cuts(attention_job *j, const bnet_kv_store *kv, const bnet_buffer *y)
{
    size_t t = (size_t)j->step->n_tokens, n_blocks = 0, n_cut = 0;
    int longest = 0;
    for (size_t i = 0; i < t; i++) {
        n_blocks += (size_t)blocks_of(j, i);
        longest = BNET_MAX(longest, blocks_of(j, i));
    }
    size_t share = n_blocks * j->n_kv / (4 * (size_t)bnet_pool_threads(j->be->pool));
    j->most_blocks = (int)BNET_MIN(BNET_MAX(share, (size_t)1), (size_t)longest);
    for (size_t i = 0; i < t; i++)
        n_cut += is_cut(j, i);
    if (n_cut < (size_t)longest && can_split(j, kv, y))
        return t - n_cut;
    j->most_blocks = longest;
    return t;
}

static void choose_tiles(attention_job *j, size_t n_threads)
{
    size_t n = bnet_choose_tiles(j->step, j->tile, j->n_kv, n_threads, j->tiles);
    for (size_t i = 0; i < n; i++)
        j->n_items += j->tiles[i].n_items;
}

/* With all threads. */
static void attend_all(attention_job *j, const bnet_kv_store *kv, const bnet_buffer *y)
{
    size_t t = (size_t)j->step->n_tokens;
    size_t n_whole = choose_cuts(j, kv, y);
    choose_tiles(j, (size_t)bnet_pool_threads(j->be->pool));
    for (size_t i = 0; i < t && n_whole < t; i++)
        if (is_cut(j, i))
            attend_split(j, i);
    if (n_whole > 0)
        bnet_pool_run(j->be->pool, attend_tiles, j);
}

void bnet_cpu_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                        bnet_buffer *y)
{
    cpu_backend *be = (cpu_backend *)b;
    const bnet_kv_store *kv = s->seqs[s->seq[0]].store;
    size_t t = (size_t)s->n_tokens;
    attention_job j = {.be = be,
                       .step = s,
                       .layer = layer,
                       .n_heads = n_heads,
                       .n_kv = (size_t)kv->shape.n_kv_heads,
                       .q = q->data,
                       .y = y->data,
                       .most_blocks = INT_MAX,
                       .tile = BNET_MIN(TILE_TOKENS, TILE_FLOATS / kv->shape.head_dim)};
    count_types(be, s, be->use.attention);
    size_t cost = 2 * (size_t)n_heads * (size_t)kv->shape.head_dim * ((size_t)s->pos[t - 1] + 1);
    if (bnet_pool_threads(be->pool) > 1 && t * cost >= SMALL) {
        attend_all(&j, kv, y);
        return;
    }
    choose_tiles(&j, 1);
    attend_tiles(&j, (bnet_share){0, 1, 0});
}
