/* decode.c - one token through all layers by one kernel (decode.h), where network, cache and chip
 * allow it: the tables it wants, made once per network, and its launch. */
#include "backend/cuda/net.h"

#include <math.h>

enum { HEAD_DIM = 128, RESERVED_SHARED = 1 << 10 };

static void fill_layer(const cuda_layer *l, bnet_cu_layer *out)
{
    const bnet_cu_w2 *m[] = {&l->qkv, &l->out, &l->gate_up, &l->ffn_out};
    const gpu_at norms[] = {l->attn_norm, l->attn_sub_norm, l->ffn_norm, l->ffn_sub_norm};
    *out =
        (bnet_cu_layer){.scale = {l->qkv.part[0].scale, l->qkv.part[1].scale, l->qkv.part[2].scale,
                                  l->out.part[0].scale, l->gate_up.part[0].scale,
                                  l->gate_up.part[1].scale, l->ffn_out.part[0].scale}};
    for (int i = 0; i < 4; i++) {
        out->w[i] = m[i]->w;
        out->norm[i] = cuda_at(norms[i]);
    }
}

static bnet_cu_decode_args shape_of(const bnet_net *net)
{
    return (bnet_cu_decode_args){.n_layers = (uint32_t)net->n_layers,
                                 .n_embd = (uint32_t)net->n_embd,
                                 .n_ff = (uint32_t)net->n_ff,
                                 .n_heads = (uint32_t)net->n_heads,
                                 .n_kv_heads = (uint32_t)net->n_kv_heads,
                                 .n_rot = (uint32_t)net->rope.n_rot,
                                 .neox = net->rope.neox,
                                 .silu = net->act == BNET_ACT_SILU,
                                 .eps = net->rms_eps,
                                 .scale = 1.0f / sqrtf((float)net->head_dim)};
}

/* One piece of memory: layers, plan, epoch and words of blocks (zero), exchange (nothing there
 * yet). */
static bool bring(gpu_backend *be, cuda_decode *d, const bnet_cu_layer *layers,
                  const uint32_t *plan, uint32_t n_blocks)
{
    const gpu_calls *c = be->d->c;
    size_t n_layers = d->args.n_layers * sizeof *layers,
           n_plan = (size_t)n_blocks * 8 * sizeof *plan;
    size_t at_plan = (n_layers + 255) / 256 * 256, at_epoch = (at_plan + n_plan + 255) / 256 * 256;
    size_t at = (at_epoch + (n_blocks + 2) * sizeof *plan + 255) / 256 * 256;
    size_t n = (size_t)bnet_decode_exchange_bytes(&d->args);
    d->n_bytes = at + n;
    d->memory = bnet_gpu_take(be, d->n_bytes, &be->other_bytes);
    if (gpu_none(d->memory) || !bnet_gpu_ok(be, "clearing", c->fill(be->d, d->memory, 0, at)) ||
        !bnet_gpu_ok(be, "clearing", c->fill(be->d, gpu_plus(d->memory, at), BNET_DECODE_NONE, n)))
        return false;
    bnet_gpu_upload(be, d->memory, layers, n_layers);
    bnet_gpu_upload(be, gpu_plus(d->memory, at_plan), plan, n_plan);
    d->args.layers = cuda_at(d->memory);
    d->args.plan = d->args.layers + at_plan;
    d->args.epoch = d->args.layers + at_epoch;
    d->args.exchange = d->args.layers + at;
    return gpu_alive(be);
}

/* Blocks that are on the device together, in whole clusters with nearly all of the shared memory.
 */
static uint32_t resident(gpu_backend *be, const bnet_kernel_record *k)
{
    const gpu_dims d = {.grid = {BNET_DECODE_CLUSTER, 1, 1},
                        .block = {BNET_DECODE_THREADS, 1, 1},
                        .shared_bytes = BNET_DECODE_MUCH_SHARED,
                        .cluster = BNET_DECODE_CLUSTER};
    gpu_occupancy o = {0};
    if (!be->d->c->occupancy || be->d->c->occupancy(be->d, be->code[k->slot][0], &d, &o) != GPU_OK)
        return 0;
    return (uint32_t)o.clusters * BNET_DECODE_CLUSTER;
}

void bnet_cuda_decode_prepare(gpu_backend *be, struct gpu_net *n)
{
    const bnet_kernel_query q = {
        .op = BNET_OP_LAYERS, .format = BNET_FORMAT_I2S, .dtype = BNET_DTYPE_F32};
    const bnet_gpu *g = &be->d->gpu;
    cuda_decode *d = &n->decode;
    *d = (cuda_decode){.args = shape_of(n->net), .flags = GPU_OVERLAP | GPU_COOPERATIVE};
    uint32_t n_blocks = 0;
    if (n->net->head_dim != HEAD_DIM ||
        bnet_registry_select(be->registry, &be->caps, &q, &d->kernel, NULL) != BITNET_OK ||
        !bnet_gpu_has(be, d->kernel, 0) || (n_blocks = resident(be, d->kernel)) == 0)
        return;
    uint32_t *plan = bnet_alloc((size_t)n_blocks * 8 * sizeof *plan);
    bnet_cu_layer *layers = bnet_calloc(d->args.n_layers, sizeof *layers);
    if (plan && layers) {
        for (uint32_t i = 0; i < d->args.n_layers; i++)
            fill_layer(&n->layers[i], &layers[i]);
        uint32_t most = (uint32_t)g->max_shared_memory_optin - RESERVED_SHARED;
        bnet_decode_plan(&d->args, n_blocks, most, plan);
        d->usable = bnet_decode_fits(&d->args, most) && bring(be, d, layers, plan, n_blocks);
    }
    bnet_free(plan);
    bnet_free(layers);
}

void bnet_cuda_decode_free(gpu_backend *be, struct gpu_net *n)
{
    bnet_gpu_give(be, n->decode.memory, n->decode.n_bytes, &be->other_bytes);
}

bool bnet_cuda_decode_serves(const struct gpu_net *n, const gpu_kv *kv, int n_tokens)
{
    return n->decode.usable && n_tokens == 1 && kv->shape.type == BITNET_KV_F16 &&
           kv->shape.head_dim == HEAD_DIM;
}

/* Some drivers do not take a cooperative launch that may also start early; what else is wrong, they
 * say again. */
static void first_launch(gpu_backend *be, cuda_decode *d, const gpu_launch *l, const void *args)
{
    const gpu_arg whole = {GPU_ARG_STRUCT, {.whole = args}};
    gpu_launch again = *l;
    gpu_result r = bnet_gpu_try(be, l, &whole, 1);
    d->tried = true;
    if (r == GPU_OK)
        return;
    if (r == GPU_LOST) {
        bnet_gpu_ok(be, d->kernel->id, r);
        return;
    }
    d->flags = again.dims.flags = GPU_COOPERATIVE;
    bnet_gpu_launch(be, &again, &whole, 1);
}

void bnet_cuda_layers(gpu_backend *be, struct gpu_net *n, const gpu_kv *kv)
{
    cuda_decode *d = &n->decode;
    bnet_cu_decode_args a = d->args;
    a.step = cuda_step(be, BITNET_KV_F16);
    a.x = cuda_at(n->arena.x);
    a.angles = cuda_at(be->angles);
    a.part_bytes = (uint32_t)kv->part_bytes;
    bnet_cu_launch l = bnet_decode_launch(&a);
    const gpu_launch launch = {.kernel = d->kernel,
                               .dims = {.grid = {l.grid[0], 1, 1},
                                        .block = {l.block, 1, 1},
                                        .shared_bytes = l.shared,
                                        .flags = d->flags}};
    if (!d->tried && gpu_alive(be))
        first_launch(be, d, &launch, &a);
    else
        cuda_launch(be, &launch, &a);
}
