/* net.h - a whole network on the device: fused matrices, the memory of a pass, recorded steps. */
#ifndef BNET_CUDA_NET_H
#define BNET_CUDA_NET_H

#include "backend/cuda/decode.h"
#include "backend/cuda/launch.h"
#include "backend/gpu/record.h"

/* One layer as the kernels take it; destinations are filled in with the arena's addresses. */
typedef struct cuda_layer {
    const gpu_weight *q, *o, *gate, *down; /* whose kernels are asked for */
    bnet_cu_w2 qkv, out, gate_up, ffn_out;
    gpu_at attn_norm, attn_sub_norm, ffn_norm, ffn_sub_norm; /* or nowhere */
} cuda_layer;

/* Where the intermediate results of a pass lie. */
typedef struct cuda_arena {
    gpu_at base;
    size_t n_bytes;
    int n_tokens, n_rows; /* room */
    gpu_at x, q, k, v, a, h, cs, picked, logits;
    gpu_act8 act; /* stride is the input's */
} cuda_arena;

/* All layers of one token in one kernel. */
typedef struct cuda_decode {
    bool usable, tried; /* tried: was launched before, flags are known to be taken */
    unsigned flags;
    const bnet_kernel_record *kernel;
    gpu_at memory;
    size_t n_bytes;
    bnet_cu_decode_args args; /* but for what steps change */
} cuda_decode;

struct gpu_net {
    const bnet_net *net;
    bool usable;
    cuda_layer *layers;
    gpu_at *fused; /* pieces that hold the parts of several weights, [2 n_layers] */
    size_t *fused_bytes;
    size_t n_fused; /* of them: the network they were made of may be gone before we are */
    cuda_arena arena;
    cuda_decode decode;
    const bnet_kernel_record *embed, *norm, *append, *prefill, *fetch;
    const bnet_kernel_record *tiles, *norm_tiles; /* NULL: this chip has none */
    gpu_records records;
    void *best; /* pinned, written by kernels: [n_rows][BNET_BEST] floats, then as many ids */
};

/* Looks at the network and fuses its weights, once; NULL or !usable: passes must be composed. */
struct gpu_net *bnet_cuda_net(gpu_backend *be, const bnet_net *net);
/* launch_tiles.c: c->x normed and quantised into tiles at c->act (nowhere: they are there),
 * multiplied; false: not this one. */
bool bnet_cuda_tiles(gpu_backend *be, const struct gpu_net *n, const cuda_w2_call *c);
/* The same norm and codes into rows at c->act; false: this chip has no kernel for it. */
bool bnet_cuda_norm_rows(gpu_backend *be, const struct gpu_net *n, const cuda_w2_call *c);
/* Room for a pass; false: no memory. */
bool bnet_cuda_arena(gpu_backend *be, struct gpu_net *n, int n_tokens, int n_rows, bool logits);

/* decode.c: after the weights were fused. Serves: is this step for it? */
void bnet_cuda_decode_prepare(gpu_backend *be, struct gpu_net *n);
void bnet_cuda_decode_free(gpu_backend *be, struct gpu_net *n);
bool bnet_cuda_decode_serves(const struct gpu_net *n, const gpu_kv *kv, int n_tokens);

#endif
