/* net.c - making a network ready for whole passes: q, k, v of a layer become one matrix, gate and
 * up another with their rows interleaved, so that one launch serves each and the gate is applied
 * where the sums are. The weights stay usable alone: they point into the fused memory. */
#include "backend/cuda/net.h"
#include "backend/cuda/head_copy.h"

/* of a prompt or a step; batches of timelines take more when they come */
enum { RESERVED_ROWS = 1 };

/* ---- fusing ---- */

static bool can_be_fused(const bnet_weight *w)
{
    const gpu_weight *g = w ? gpu_w(w) : NULL;
    return g && g->layout == GPU_W2 && gpu_none(g->block_scales) && !g->borrowed;
}

static bool same_width(const bnet_weight *a, const bnet_weight *b)
{
    return gpu_w(a)->stride == gpu_w(b)->stride && gpu_w(a)->info.n_in == gpu_w(b)->info.n_in;
}

static bool vector_or_none(const bnet_weight *w)
{
    return !w || gpu_w(w)->layout == GPU_VECTOR;
}

static bool layer_fits(const bnet_net_layer *y)
{
    const bnet_weight *all[] = {y->q, y->k, y->v, y->o, y->gate, y->up, y->down};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        if (!can_be_fused(all[i]))
            return false;
    return same_width(y->q, y->k) && same_width(y->q, y->v) && same_width(y->gate, y->up) &&
           gpu_w(y->gate)->info.n_out == gpu_w(y->up)->info.n_out && y->attn_norm && y->ffn_norm &&
           vector_or_none(y->attn_sub_norm) && vector_or_none(y->ffn_sub_norm);
}

static uint32_t tiles_of(const gpu_weight *w)
{
    return bnet_cu_div((uint32_t)w->info.n_out, BNET_W2_TILE);
}

/* The weight's rows lie in the fused piece now: its own memory is given back. */
static void hand_over(gpu_backend *be, gpu_weight *w, gpu_at to, uint32_t paired)
{
    bnet_gpu_give(be, w->w[0], w->n_bytes, &be->weight_bytes);
    w->w[0] = to;
    w->paired = paired;
    w->borrowed = true;
}

/* One matrix of several, one behind the other. On failure the weights keep their own memory. */
static bool stack(gpu_backend *be, gpu_weight *const *w, int n, gpu_at *piece, size_t *n_bytes,
                  bnet_cu_w2 *m)
{
    uint32_t tiles = 0;
    for (int i = 0; i < n; i++)
        tiles += tiles_of(w[i]);
    *m = (bnet_cu_w2){
        .n_tiles = tiles, .n_chunks = w[0]->stride / BNET_W2_CHUNK, .n_parts = (uint32_t)n};
    size_t per_tile = (size_t)m->n_chunks * BNET_W2_UNIT;
    *n_bytes = tiles * per_tile;
    *piece = bnet_gpu_take(be, *n_bytes, &be->weight_bytes);
    if (gpu_none(*piece))
        return false;
    m->w = cuda_at(*piece);
    tiles = 0;
    for (int i = 0; i < n; i++) {
        gpu_at to = gpu_plus(*piece, tiles * per_tile);
        if (!bnet_gpu_ok(be, "fusing weights",
                         be->d->c->copy(be->d, to, w[i]->w[0], tiles_of(w[i]) * per_tile)))
            return false;
        m->part[i] = (bnet_cu_part){.first_tile = tiles,
                                    .n_rows = (uint32_t)w[i]->info.n_out,
                                    .scale = w[i]->scale,
                                    .ld = (uint32_t)w[i]->info.n_out};
        tiles += tiles_of(w[i]);
    }
    for (int i = 0; i < n; i++)
        hand_over(be, w[i], gpu_plus(*piece, m->part[i].first_tile * per_tile), 0);
    return true;
}

/* Gate and up with interleaved rows. On failure both keep their own memory. */
static bool pair(gpu_backend *be, gpu_weight *gate, gpu_weight *up, gpu_at *piece, size_t *n_bytes,
                 bnet_cu_w2 *m)
{
    uint32_t n = (uint32_t)gate->info.n_out, chunks = gate->stride / BNET_W2_CHUNK;
    *m = (bnet_cu_w2){.n_tiles = bnet_cu_div(n, 8), .n_chunks = chunks, .n_parts = 2, .paired = 1};
    *n_bytes = (size_t)m->n_tiles * chunks * BNET_W2_UNIT;
    *piece = bnet_gpu_take(be, *n_bytes, &be->weight_bytes);
    if (gpu_none(*piece))
        return false;
    m->w = cuda_at(*piece);
    ref_pair_args a = {.a = cuda_at(gate->w[0]),
                       .b = cuda_at(up->w[0]),
                       .out = m->w,
                       .n_words = *n_bytes / 4,
                       .n_chunks = (int32_t)chunks,
                       .n_tiles = (int32_t)tiles_of(gate)};
    const bnet_cu_launch l = {{(uint32_t)((a.n_words + 255) / 256), 1, 1}, 256, 0};
    bnet_cuda_run(be, be->use.pack, 1, &l, 0, &a);
    if (!gpu_alive(be))
        return false;
    m->part[0] = (bnet_cu_part){.n_rows = n, .scale = gate->scale, .ld = n};
    m->part[1] = (bnet_cu_part){.n_rows = n, .scale = up->scale, .ld = n};
    hand_over(be, gate, *piece, 1);
    hand_over(be, up, *piece, 2);
    return true;
}

static gpu_at vector(const bnet_weight *w)
{
    return w ? gpu_w(w)->w[0] : (gpu_at){0};
}

static bool fuse_layer(gpu_backend *be, struct gpu_net *n, int i)
{
    const bnet_net_layer *y = &n->net->layers[i];
    cuda_layer *l = &n->layers[i];
    gpu_weight *qkv[] = {gpu_w(y->q), gpu_w(y->k), gpu_w(y->v)};
    *l = (cuda_layer){.q = gpu_w(y->q),
                      .o = gpu_w(y->o),
                      .gate = gpu_w(y->gate),
                      .down = gpu_w(y->down),
                      .out = bnet_cuda_w2_of(gpu_w(y->o), (gpu_at){0}),
                      .ffn_out = bnet_cuda_w2_of(gpu_w(y->down), (gpu_at){0}),
                      .attn_norm = vector(y->attn_norm),
                      .attn_sub_norm = vector(y->attn_sub_norm),
                      .ffn_norm = vector(y->ffn_norm),
                      .ffn_sub_norm = vector(y->ffn_sub_norm)};
    return stack(be, qkv, 3, &n->fused[2 * i], &n->fused_bytes[2 * i], &l->qkv) &&
           pair(be, gpu_w(y->gate), gpu_w(y->up), &n->fused[2 * i + 1], &n->fused_bytes[2 * i + 1],
                &l->gate_up);
}

/* ---- kernels ---- */

static bool select_one(gpu_backend *be, bnet_op op, bnet_format format,
                       const bnet_kernel_record **out)
{
    bnet_kernel_query q = {.op = op, .format = format, .dtype = BNET_DTYPE_F32};
    return bnet_registry_select(be->registry, &be->caps, &q, out, NULL) == BITNET_OK &&
           bnet_gpu_has(be, *out, 0);
}

/* Every kernel a pass may want is there; attention over tiles is a matter of speed alone. */
static bool kernels(gpu_backend *be, struct gpu_net *n)
{
    const bnet_weight *w = n->net->layers[0].q;
    const bnet_kernel_record *one = bnet_gpu_pick(be, gpu_w(w), 1),
                             *many = bnet_gpu_pick(be, gpu_w(w), 512);
    if (!select_one(be, BNET_OP_PREFILL, BNET_FORMAT_ANY, &n->prefill))
        n->prefill = NULL;
    if (!select_one(be, BNET_OP_LINEAR_TILES, BNET_FORMAT_I2S, &n->tiles))
        n->tiles = NULL;
    if (!select_one(be, BNET_OP_NORM_TILES, BNET_FORMAT_I8, &n->norm_tiles))
        n->norm_tiles = NULL;
    return one && many && bnet_cuda_w2_fast(one) && bnet_cuda_w2_fast(many) &&
           bnet_gpu_has(be, one, 0) && bnet_gpu_has(be, many, 0) &&
           select_one(be, BNET_OP_EMBED, gpu_w(n->net->embd)->query.format, &n->embed) &&
           select_one(be, BNET_OP_NORM_QUANTIZE, BNET_FORMAT_I8, &n->norm) &&
           select_one(be, BNET_OP_ROPE_APPEND, BNET_FORMAT_ANY, &n->append) &&
           select_one(be, BNET_OP_STEP, BNET_FORMAT_ANY, &n->fetch) &&
           be->use.attention[0]->fn == (bnet_kernel_fn)bnet_cuda_attn_decode &&
           bnet_gpu_has(be, be->use.attention[0], 0) && bnet_gpu_has(be, be->use.topk, 0);
}

static bool fits(gpu_backend *be, struct gpu_net *n)
{
    const bnet_net *net = n->net;
    const bnet_kv_shape shape = {.n_kv_heads = net->n_kv_heads, .head_dim = net->head_dim};
    for (int i = 0; i < net->n_layers; i++)
        if (!layer_fits(&net->layers[i]))
            return false;
    return net->n_layers > 0 && bnet_cuda_attn_fits(&shape, net->n_heads) && kernels(be, n);
}

static void net_free(gpu_backend *be, struct gpu_net *n)
{
    bnet_gpu_records_free(be, &n->records);
    bnet_cuda_decode_free(be, n);
    for (size_t i = 0; n->fused && n->fused_bytes && i < n->n_fused; i++)
        bnet_gpu_give(be, n->fused[i], n->fused_bytes[i], &be->weight_bytes);
    bnet_gpu_give(be, n->arena.base, n->arena.n_bytes, &be->other_bytes);
    be->d->c->host_release(be->d, n->best);
    bnet_free(n->fused);
    bnet_free(n->fused_bytes);
    bnet_free(n->layers);
    bnet_free(n);
}

static void prepare(gpu_backend *be, struct gpu_net *n)
{
    size_t n_layers = (size_t)n->net->n_layers;
    n->layers = bnet_calloc(n_layers, sizeof *n->layers);
    n->n_fused = 2 * n_layers;
    n->fused = bnet_calloc(2 * n_layers, sizeof *n->fused);
    n->fused_bytes = bnet_calloc(2 * n_layers, sizeof *n->fused_bytes);
    n->best = be->d->c->host_alloc(be->d, (size_t)BNET_BEST_ROWS * BNET_BEST * 8);
    bool ok = n->layers && n->fused && n->fused_bytes && n->best;
    for (size_t i = 0; ok && i < n_layers; i++)
        ok = fuse_layer(be, n, (int)i);
    n->usable = ok;
    if (ok)
        bnet_cuda_decode_prepare(be, n);
}

struct gpu_net *bnet_cuda_net(gpu_backend *be, const bnet_net *net)
{
    if (be->net)
        return be->net->net == net ? be->net : NULL;
    struct gpu_net *n = bnet_calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->net = net;
    be->net = n;
    be->net_free = net_free;
    if (fits(be, n))
        prepare(be, n);
    bnet_logf(&be->log, BITNET_LOG_DEBUG, be->d->c->name, "passes are %s",
              !n->usable         ? "composed of single operations"
              : n->decode.usable ? "run whole, all layers of a step in one kernel"
                                 : "run whole, decode steps recorded");
    if (n->decode.usable)
        bnet_logf(&be->log, BITNET_LOG_DEBUG, be->d->c->name,
                  "a step's layers: a persistent grid of %d blocks, one per multiprocessor",
                  bnet_persistent_grid(&be->d->gpu, 1));
    return n;
}

/* ---- the memory of a pass ---- */

static gpu_at part(gpu_at *at, size_t n_bytes)
{
    gpu_at here = *at;
    at->offset += (n_bytes + 255) / 256 * 256;
    return here;
}

/* Places from `base` on; returns how many bytes they take. */
static size_t place(const bnet_net *net, cuda_arena *a, gpu_at base)
{
    size_t f = sizeof(float), t = (size_t)a->n_tokens, r = (size_t)a->n_rows;
    size_t nq = (size_t)net->n_heads * (size_t)net->head_dim * f;
    size_t nkv = (size_t)net->n_kv_heads * (size_t)net->head_dim * f;
    size_t widest = BNET_MAX(BNET_MAX(net->n_embd, net->n_ff), nq / f);
    a->x = part(&base, t * net->n_embd * f);
    a->q = part(&base, t * nq);
    a->k = part(&base, t * nkv);
    a->v = part(&base, t * nkv);
    a->a = part(&base, t * nq);
    a->h = part(&base, t * net->n_ff * f);
    a->cs = part(&base, t * (size_t)net->rope.n_rot * f);
    a->picked = part(&base, t * net->n_embd * f);
    a->act.q = part(&base, (t + 127) / 128 * 128 * ((widest + 127) / 128 * 128)); /* whole tiles */
    a->act.scale = part(&base, t * f);
    a->act.sum = part(&base, t * f);
    a->logits = part(&base, r * (size_t)bnet_screen_most(net->n_vocab) * f); /* or bounds of them */
    return base.offset;
}

static size_t arena_bytes(const bnet_net *net, int n_tokens, int n_rows)
{
    cuda_arena a = {.n_tokens = n_tokens, .n_rows = n_rows};
    return place(net, &a, (gpu_at){0});
}

static void aim(struct gpu_net *n)
{
    const cuda_arena *a = &n->arena;
    for (int i = 0; i < n->net->n_layers; i++) {
        cuda_layer *l = &n->layers[i];
        l->qkv.part[0].y = cuda_at(a->q);
        l->qkv.part[1].y = cuda_at(a->k);
        l->qkv.part[2].y = cuda_at(a->v);
        l->out.part[0].y = cuda_at(a->x);
        l->gate_up.part[0].y = cuda_at(a->h);
        l->ffn_out.part[0].y = cuda_at(a->x);
    }
}

bool bnet_cuda_arena(gpu_backend *be, struct gpu_net *n, int n_tokens, int n_rows, bool logits)
{
    cuda_arena *a = &n->arena, fresh = *a;
    int rows = logits ? n_rows : 0;
    if (!gpu_none(a->base) && n_tokens <= a->n_tokens && rows <= a->n_rows)
        return true;
    fresh.n_tokens = BNET_MAX(n_tokens, a->n_tokens);
    fresh.n_rows = BNET_MAX(rows, a->n_rows);
    size_t n_bytes = place(n->net, &fresh, (gpu_at){0});
    gpu_at base = bnet_gpu_take(be, n_bytes, &be->other_bytes);
    if (gpu_none(base))
        return bnet_gpu_ok(be, "memory of a pass", GPU_NO_MEMORY);
    bnet_gpu_give(be, a->base, a->n_bytes, &be->other_bytes);
    place(n->net, &fresh, base);
    fresh.base = base;
    fresh.n_bytes = n_bytes;
    *a = fresh;
    aim(n);
    be->epoch++;
    return true;
}

/* ---- memory of passes before there is one, so that a lack of it shows when a session is opened
 * ---- */

uint64_t bnet_cuda_pass_bytes(bnet_backend *b, const bnet_net *net, int n_tokens)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    const struct gpu_net *n = be->net;
    size_t have = n ? n->arena.n_bytes : 0;
    bool whole = !n || (n->net == net && n->usable);
    int tokens = n ? BNET_MAX(n_tokens, n->arena.n_tokens) : n_tokens;
    size_t need =
        arena_bytes(net, tokens, n ? BNET_MAX(n->arena.n_rows, RESERVED_ROWS) : RESERVED_ROWS);
    need += gpu_none(be->step_at) ? GPU_STEP_BYTES : 0;
    bnet_gpu_leave(be);
    return whole && need > have ? need - have : 0;
}

bool bnet_cuda_pass_reserve(bnet_backend *b, const bnet_net *net, int n_tokens)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    struct gpu_net *n = bnet_cuda_net(be, net);
    bool ok = !n || !n->usable || bnet_cuda_arena(be, n, n_tokens, RESERVED_ROWS, true);
    if (!ok && !be->lost)
        be->failed = GPU_OK; /* the session is not opened, others go on */
    ok = ok && gpu_alive(be);
    bnet_gpu_leave(be);
    return ok;
}
