/* ops_attention.c - the cache and the attention over it. One item = one query head of one token; it
 * walks its timeline's blocks in ascending order, so the result depends on neither batch nor
 * threads. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kv_block.h"

#include <math.h>

uint64_t bnet_cpu_kv_block_bytes(const bnet_kv_shape *s)
{
    return 2 * (uint64_t)s->n_kv_heads * bnet_kv_part_bytes(s->type, (size_t)s->head_dim);
}

bnet_kv_store *bnet_cpu_kv_new(bnet_backend *b, const bnet_kv_shape *s)
{
    (void)b;
    uint64_t block = bnet_cpu_kv_block_bytes(s), total;
    if (!bnet_mul(block, (uint64_t)s->n_layers * (uint64_t)s->n_blocks, &total) || total > SIZE_MAX)
        return NULL;
    bnet_kv_store *kv = bnet_calloc(1, sizeof *kv);
    uint8_t *data = bnet_alloc((size_t)total);
    if (!kv || !data) {
        bnet_free(kv);
        bnet_free(data);
        return NULL;
    }
    *kv =
        (bnet_kv_store){*s, bnet_kv_part_bytes(s->type, (size_t)s->head_dim), (size_t)block, data};
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

void *bnet_cpu_kv_block(bnet_kv_store *kv, int layer, int block)
{
    return kv_part(kv, layer, block, 0, 0);
}

typedef struct attention_job {
    cpu_backend *be;
    const bnet_step *step;
    int layer, n_heads;
    const float *q, *k, *v;
    float *y;
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
    bnet_cpu_items(be, (size_t)s->n_tokens, 1,
                   4 * (size_t)shape->n_kv_heads * (size_t)shape->head_dim, append_tokens, &j);
}

static void attend_head(const attention_job *j, size_t t, size_t head)
{
    const bnet_seq *seq = &j->step->seqs[j->step->seq[t]];
    const bnet_kv_store *kv = seq->store;
    size_t hd = (size_t)kv->shape.head_dim;
    int kv_head = (int)head / (j->n_heads / kv->shape.n_kv_heads), n_pos = j->step->pos[t] + 1;
    const float *q = j->q + (t * (size_t)j->n_heads + head) * hd;
    float *o = j->y + (t * (size_t)j->n_heads + head) * hd, scale = 1.0f / sqrtf((float)hd);
    bnet_fn_attention *fold = (bnet_fn_attention *)j->be->use.attention[kv->shape.type]->fn;
    bnet_softmax run = {-INFINITY, 0};
    memset(o, 0, hd * sizeof *o);
    for (int b = 0; b * BNET_BLOCK_POS < n_pos; b++) {
        int n = BNET_MIN(n_pos - b * BNET_BLOCK_POS, (int)BNET_BLOCK_POS);
        fold(q, kv_part(kv, j->layer, seq->blocks[b], kv_head, 0),
             kv_part(kv, j->layer, seq->blocks[b], kv_head, 1), hd, (size_t)n, scale, &run, o);
    }
    float norm = 1.0f / run.l;
    for (size_t i = 0; i < hd; i++)
        o[i] *= norm;
}

static void attend_items(void *arg, size_t begin, size_t end)
{
    const attention_job *j = arg;
    for (size_t i = begin; i < end; i++)
        attend_head(j, i / (size_t)j->n_heads, i % (size_t)j->n_heads);
}

void bnet_cpu_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                        bnet_buffer *y)
{
    cpu_backend *be = (cpu_backend *)b;
    attention_job j = {
        .be = be, .step = s, .layer = layer, .n_heads = n_heads, .q = q->data, .y = y->data};
    size_t hd = (size_t)s->seqs[s->seq[0]].store->shape.head_dim;
    size_t n_pos = (size_t)s->pos[s->n_tokens - 1] + 1;
    count_types(be, s, be->use.attention);
    bnet_cpu_items(be, (size_t)s->n_tokens * (size_t)n_heads, 1, 2 * n_pos * hd, attend_items, &j);
}
