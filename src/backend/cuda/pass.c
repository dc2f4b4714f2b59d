/* pass.c - whole passes through a network. A decode step (one token per timeline) is recorded as a
 * graph and repeated: where the network fits, one kernel for all layers of one token (decode.c),
 * else five kernels a layer, with norm, quantisation, rope, cache, gate and residual inside them.
 * Prompts take the same kernels with matrices for many tokens. */
#include "backend/cuda/net.h"

#include <stdio.h>

enum { FETCH_THREADS = 128 };

void bnet_cuda_fetch_step(gpu_backend *be, const bnet_kernel_record *k, size_t n_bytes)
{
    const ref_fetch_args a = {cuda_at(cuda_pinned(be->step_host)), cuda_at(be->step_at),
                              n_bytes / 4};
    const bnet_cu_launch l = {
        {(uint32_t)((a.n + FETCH_THREADS - 1) / FETCH_THREADS), 1, 1}, FETCH_THREADS, 0};
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

typedef struct run {
    struct gpu_net *n;
    const bnet_pass *p;
    const gpu_kv *kv;
    bool all_rows; /* rows are the tokens in their order */
    bool recorded; /* work that is repeated: it fetches its step itself */
    bool at_once;  /* one kernel for all layers */
    size_t fetch_bytes;
} run;

static const gpu_at nowhere = {0};
enum { GEMV_TOKENS = 4 };             /* more are faster by tiles, where the chip has them */
enum { HEAD_FEW = 4, GEMV_MOST = 8 }; /* rows of x; GEMV_MOST: of the kernels of few rows */

/* One product of the layer: floats [T][k] normed (norm 0: not), quantised, multiplied. */
static void project(gpu_backend *be, const run *r, const gpu_weight *w, const bnet_cu_w2 *m,
                    gpu_at x, gpu_at norm, uint32_t epilogue)
{
    int t = r->p->step->n_tokens;
    const bnet_kernel_record *k = bnet_gpu_pick(be, w, (size_t)t);
    cuda_w2_call c = {.m = *m,
                      .eps = r->n->net->rms_eps,
                      .k = (uint32_t)w->info.n_in,
                      .n_tokens = (uint32_t)t,
                      .epilogue = epilogue};
    if (!k || !bnet_cuda_w2_fast(k)) {
        bnet_gpu_ok(be, "linear", GPU_NO_KERNEL);
        return;
    }
    bool gemv = bnet_cuda_w2_norms(k);
    c.x = x;
    c.norm = norm;
    if (t > 1 || !gemv || be->batch_invariant) {
        gpu_act8 act = r->n->arena.act;
        act.stride = w->stride;
        c.act = cuda_act(&act);
        if ((t > GEMV_TOKENS || !gemv) && bnet_cuda_tiles(be, r->n, &c))
            return;
        if (!bnet_cuda_norm_rows(be, r->n, &c))
            bnet_cuda_norm_act(be, r->n->norm, x, norm, c.eps, t, w->info.n_in, nowhere, &act);
        c.x = c.norm = nowhere;
    }
    bnet_cuda_w2(be, k, &c);
}

/* ---- attention ---- */

static bool tiles_pay(const gpu_backend *be, const run *r)
{
    int hd = r->kv->shape.head_dim;
    return r->n->prefill && r->kv->shape.type != BITNET_KV_F32 && (hd == 64 || hd == 128) &&
           (be->batch_invariant || be->step.n_tokens >= 4 * be->step.n_tiles);
}

static void attend(gpu_backend *be, const run *r, int layer)
{
    const bnet_net *net = r->n->net;
    const cuda_arena *m = &r->n->arena;
    const bnet_kernel_record *decode = be->use.attention[r->kv->shape.type];
    bnet_cu_attn_args a = bnet_cuda_attn_args(be, r->kv, layer, net->n_heads);
    a.q = cuda_at(m->q);
    a.k = cuda_at(m->k);
    a.v = cuda_at(m->v);
    a.y = cuda_at(m->a);
    a.n_rot = (uint32_t)net->rope.n_rot;
    a.neox = net->rope.neox;
    a.cs = cuda_at(m->cs);
    bool tiles = !be->step.single && tiles_pay(be, r); /* they rotate their queries themselves */
    if (!be->step.single) {
        bnet_cu_attn_args b = a;
        b.q = tiles ? 0 : a.q;
        bnet_cu_launch l = bnet_rope_append_launch(&b);
        bnet_cuda_run(be, r->n->append, 0, &l, GPU_OVERLAP, &b);
        a.cs = tiles ? a.cs : 0;
    }
    if (tiles) {
        bnet_cuda_prefill_run(be, r->n->prefill, &a);
        return;
    }
    bnet_cuda_attn_run(be, decode, &a);
}

/* ---- the pass ---- */

static void run_layer(gpu_backend *be, const run *r, int i)
{
    const cuda_layer *l = &r->n->layers[i];
    const cuda_arena *m = &r->n->arena;
    project(be, r, l->q, &l->qkv, m->x, l->attn_norm, BNET_CU_STORE);
    attend(be, r, i);
    project(be, r, l->o, &l->out, m->a, l->attn_sub_norm, BNET_CU_ADD);
    project(be, r, l->gate, &l->gate_up, m->x, l->ffn_norm,
            r->n->net->act == BNET_ACT_RELU2 ? BNET_CU_RELU2 : BNET_CU_SILU);
    project(be, r, l->down, &l->ffn_out, m->h, l->ffn_sub_norm, BNET_CU_ADD);
}

/* The final norm of the rows that are wanted. */
static void run_last(gpu_backend *be, const run *r)
{
    const bnet_net *net = r->n->net;
    const cuda_arena *m = &r->n->arena;
    const bnet_kernel_record *g = be->use.gather;
    gpu_at x = m->x;
    if (!r->all_rows) {
        ((gpu_fn_gather *)g->fn)(be, g, x, be->step.rows, r->p->n_rows, net->n_embd, m->picked);
        x = m->picked;
    }
    bnet_cuda_norm_act(be, r->n->norm, x, gpu_w(net->output_norm)->w[0], net->rms_eps, r->p->n_rows,
                       net->n_embd, gpu_buf(r->p->last)->p, NULL);
}

/* What takes the next of *n rows, and how many (*n). Five to eight rows of x cost the kernel of few
 * more than that of many on 9.0 (elsewhere nobody has timed it), whose sums have another order. */
static const bnet_kernel_record *head_kernel(gpu_backend *be, const gpu_weight *w, size_t *n)
{
    const bnet_kernel_record *many = NULL;
    if (*n > HEAD_FEW && *n <= GEMV_MOST && !be->batch_invariant &&
        be->caps.has & BNET_CUDA_NEED(90))
        many = bnet_gpu_pick(be, w, GEMV_MOST + 1);
    return many && many->fn == (bnet_kernel_fn)bnet_cuda_head_batch_q ? many
                                                                      : bnet_gpu_pick_for(be, w, n);
}

static void run_head(gpu_backend *be, const run *r)
{
    const bnet_net *net = r->n->net;
    const gpu_weight *w = gpu_w(net->head);
    const cuda_arena *m = &r->n->arena;
    const bnet_kernel_record *top = be->use.topk;
    size_t n_rows = (size_t)r->p->n_rows;
    gpu_at last = gpu_buf(r->p->last)->p, best = cuda_pinned(r->n->best);
    gpu_at ids = gpu_plus(best, n_rows * BNET_BEST * 4);
    const bnet_kernel_record *by_copy = bnet_cuda_head_copy_kernel(be, w, r->p->n_rows);
    if (by_copy) {
        ((cuda_fn_best *)by_copy->fn)(be, by_copy, w, last, r->p->n_rows, m->logits, best, ids);
        return;
    }
    for (size_t i = 0, n; i < n_rows; i += n) {
        n = n_rows - i;
        const bnet_kernel_record *k = head_kernel(be, w, &n);
        if (!k)
            return;
        ((gpu_fn_linear *)k->fn)(be, k, w, gpu_plus(last, i * net->n_embd * 4), (int)n,
                                 gpu_plus(m->logits, i * net->n_vocab * 4));
    }
    ((gpu_fn_topk *)top->fn)(be, top, m->logits, (int)n_rows, net->n_vocab, BNET_BEST, best, ids);
}

static void run_pass(gpu_backend *be, void *user)
{
    const run *r = user;
    const bnet_net *net = r->n->net;
    const bnet_kernel_record *e = r->n->embed, *t = be->use.table;
    if (r->recorded)
        ((cuda_fn_fetch *)r->n->fetch->fn)(be, r->n->fetch, r->fetch_bytes);
    ((gpu_fn_embed *)e->fn)(be, e, gpu_w(net->embd), r->n->arena.x);
    if (r->at_once)
        ((cuda_fn_layers *)r->n->decode.kernel->fn)(be, r->n, r->kv);
    else
        ((gpu_fn_table *)t->fn)(be, t, &net->rope, r->n->arena.cs);
    for (int i = r->at_once ? net->n_layers : 0; i < net->n_layers && gpu_alive(be); i++)
        run_layer(be, r, i);
    if (r->p->n_rows > 0)
        run_last(be, r);
    if (r->p->n_rows > 0 && r->p->best)
        run_head(be, r);
}

/* ---- what comes back ---- */

static void take_best(gpu_backend *be, const run *r)
{
    size_t n = (size_t)r->p->n_rows * BNET_BEST;
    const float *values = r->n->best;
    const int32_t *ids = (const int32_t *)(values + n);
    if (!bnet_gpu_await(be, n * 8))
        return;
    for (int i = 0; i < r->p->n_rows; i++) {
        bnet_best *b = &r->p->best[i];
        for (b->n = 0; b->n < BNET_BEST && ids[b->n] >= 0; b->n++) {
            b->ids[b->n] = ids[b->n];
            b->logits[b->n] = values[b->n];
        }
        ids += BNET_BEST;
        values += BNET_BEST;
    }
}

static bool in_order(const bnet_pass *p)
{
    bool all = p->n_rows == p->step->n_tokens;
    for (int i = 0; all && i < p->n_rows; i++)
        all = p->rows[i] == i;
    return all;
}

/* The cache of the pass; NULL: there are several types. */
static const gpu_kv *one_cache(const gpu_backend *be, const bnet_step *s)
{
    int types = be->step.used[0] + be->step.used[1] + be->step.used[2];
    return types == 1 ? (const gpu_kv *)(const void *)s->seqs[s->seq[0]].store : NULL;
}

/* False: the pass must be composed. */
static bool start(gpu_backend *be, const bnet_pass *p, run *r)
{
    struct gpu_net *n = bnet_cuda_net(be, p->net);
    if (!n || !n->usable || !gpu_alive(be))
        return false;
    if (!bnet_gpu_step_make(be, p->step, p->rows, p->n_rows))
        return true;
    *r = (run){.n = n, .p = p, .kv = one_cache(be, p->step), .all_rows = in_order(p)};
    if (!r->kv || p->n_rows > p->step->n_tokens)
        return false;
    bool timed = be->base.meter && be->n_half; /* launches of half precision are timed one by one */
    r->recorded = !timed && be->step.single && p->step->n_tokens <= be->plan.max_batch &&
                  (r->all_rows || !p->n_rows) && be->d->c->record_begin;
    r->at_once = !be->batch_invariant && bnet_cuda_decode_serves(n, r->kv, p->step->n_tokens);
    bool ok = r->recorded ? bnet_gpu_step_leave(be, &r->fetch_bytes) : bnet_gpu_step_bring(be);
    ok = ok && bnet_gpu_angles(be, &p->net->rope, be->step.max_pos + 1);
    if (ok) /* what fails here is noted and said by sync */
        bnet_cuda_arena(be, n, p->step->n_tokens, p->n_rows, p->best != NULL);
    return true;
}

/* Attention's blocks of a token, if they depend on the step's positions. */
static uint32_t blocks_of(const gpu_backend *be, const run *r)
{
    const bnet_net *net = r->n->net;
    uint32_t octets = bnet_cu_div((uint32_t)(net->n_heads / net->n_kv_heads), 8);
    return r->at_once ? 0
                      : bnet_cuda_attn_blocks(be, (uint32_t)(be->step.n_tokens * net->n_kv_heads) *
                                                      octets);
}

static void push_pass(const gpu_backend *be, const bnet_pass *p)
{
    char name[48];
    bool decode = be->step.single;
    if (!be->d->range_push)
        return;
    snprintf(name, sizeof name, "%s: %d %s", decode ? "decode" : "prompt", p->step->n_tokens,
             decode ? "timelines" : "tokens");
    gpu_push(be, name);
}

bool bnet_cuda_pass(bnet_backend *b, const bnet_pass *p)
{
    gpu_backend *be = gpu_of(b);
    run r = {0};
    bnet_gpu_enter(be);
    bool ours = start(be, p, &r);
    if (ours && gpu_alive(be)) {
        const gpu_record_key key = {p->step->n_tokens,     p->n_rows,       be->step.n_seqs,
                                    be->step.n_tiles,      r.fetch_bytes,   gpu_buf(p->last)->id,
                                    (int)r.kv->shape.type, p->best != NULL, blocks_of(be, &r)};
        push_pass(be, p);
        if (r.recorded)
            bnet_gpu_repeat(be, &r.n->records, &key, run_pass, &r);
        else
            bnet_gpu_work(be, run_pass, &r);
        if (p->next && !r.recorded && gpu_alive(be))
            bnet_gpu_step_ahead(be, p->next->step, p->next->rows, p->next->n_rows);
        if (p->keep && gpu_alive(be)) /* before anything is waited for */
            bnet_gpu_ok(be, "keeping a hidden state",
                        be->d->c->copy(be->d, gpu_buf(p->keep)->p, gpu_buf(p->last)->p,
                                       p->net->n_embd * sizeof(float)));
        if (p->n_rows > 0 && p->best)
            take_best(be, &r);
        gpu_pop(be);
    }
    bnet_gpu_leave(be);
    return ours;
}
