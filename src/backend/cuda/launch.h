/* launch.h - the functions behind the rows of kernels.inc, by the type of gpu.h they have. */
#ifndef BNET_CUDA_LAUNCH_H
#define BNET_CUDA_LAUNCH_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels.h"
#include "backend/gpu/ref/ref_args.h"
#include "backend/gpu/launch_ref.h"
#include "backend/gpu/precision.h"

struct gpu_net;
typedef void cuda_fn_layers(gpu_backend *be, struct gpu_net *n, const gpu_kv *kv);

/* launch_w2.c */
gpu_fn_ternary bnet_cuda_w2_gemv;
gpu_fn_ternary bnet_cuda_w2_gemm;

/* launch_ops.c */
void bnet_cuda_in_passes(void); /* of rows that pass.c alone launches; does nothing */
gpu_fn_norm bnet_cuda_norm;
gpu_fn_quantize bnet_cuda_quantize;
gpu_fn_embed bnet_cuda_embed;
gpu_fn_linear bnet_cuda_head;
gpu_fn_linear bnet_cuda_head_batch;
gpu_fn_linear bnet_cuda_head_batch_q;
gpu_fn_topk bnet_cuda_topk;
gpu_fn_attention bnet_cuda_attn_decode;
void bnet_cuda_norm_act(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at norm,
                        float eps, int n_rows, size_t n, gpu_at y, const gpu_act8 *act);
bnet_cu_attn_args bnet_cuda_attn_args(gpu_backend *be, const gpu_kv *kv, int layer, int n_heads);
bool bnet_cuda_attn_fits(const bnet_kv_shape *s, int n_heads);
bool bnet_cuda_attn_split(gpu_backend *be, bnet_cu_attn_args *a);
/* Blocks of one token by the kernels of heads of 128, where `who` want as many: as are on the
 * device together, and no more than the step's longest context has stretches. */
uint32_t bnet_cuda_attn_blocks(const gpu_backend *be, uint32_t who);
/* Every token on its own, by the kernel that fits best. */
void bnet_cuda_attn_run(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a);
/* Runs of tokens, by tiles; f16 or int8 cache, head_dim 64 or 128. */
void bnet_cuda_prefill_run(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a);
/* Bytes of dynamic shared memory that a block may have. */
uint32_t bnet_cuda_shared_max(const gpu_backend *be);
/* Counts one use and launches; flags take effect where the chip knows them. args: the kernel's
 * struct. */
void bnet_cuda_run(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                   const bnet_cu_launch *l, unsigned flags, const void *args);
/* The same for a further kernel of one use, which is not counted. */
void bnet_cuda_run_more(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                        const bnet_cu_launch *l, unsigned flags, const void *args);

static inline void cuda_launch(gpu_backend *be, const gpu_launch *l, const void *args)
{
    const gpu_arg whole = {GPU_ARG_STRUCT, {.whole = args}};
    bnet_gpu_launch(be, l, &whole, 1);
}

/* decode.c: one token through all layers */
cuda_fn_layers bnet_cuda_layers;

/* head_copy.c: the BNET_BEST largest logits of rows of x, straight from a head that has a copy for
 * it; most is room to work in, bnet_screen_most(N) floats for each. */
typedef void cuda_fn_best(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          gpu_at x, int n_rows, gpu_at most, gpu_at value, gpu_at index);
cuda_fn_best bnet_cuda_best;
cuda_fn_best bnet_cuda_best_batch;
/* Makes the copy where memory and kernels are there for it; false: there is none. */
bool bnet_cuda_head_copy_make(gpu_backend *be, gpu_weight *w);
/* The same where it pays. */
void bnet_cuda_head_loaded(gpu_backend *be, gpu_weight *w);
/* What takes that many rows of x and gives what the head itself gives of one; NULL: nothing. */
const bnet_kernel_record *bnet_cuda_head_copy_kernel(gpu_backend *be, const gpu_weight *w,
                                                     int n_rows);

/* launch_single_ops.c */
gpu_fn_linear bnet_cuda_gemv_half;
gpu_fn_linear bnet_cuda_matmul_half;
gpu_fn_convert bnet_cuda_convert;
gpu_fn_single bnet_cuda_single_i2s;
gpu_fn_single bnet_cuda_single_matmul;
gpu_fn_single bnet_cuda_single_quantize;
gpu_fn_single bnet_cuda_single_qk256;
gpu_fn_single bnet_cuda_single_vector;
gpu_fn_single bnet_cuda_single_softmax;
gpu_fn_single bnet_cuda_single_argmax;

/* pass.c */
gpu_pass bnet_cuda_pass;

/* kernel_calls.c */
bool bnet_cuda_kernel_call(bnet_backend *b, const bnet_kernel_call *a);

/* net.c */
uint64_t bnet_cuda_pass_bytes(bnet_backend *b, const bnet_net *net, int n_tokens);
bool bnet_cuda_pass_reserve(bnet_backend *b, const bnet_net *net, int n_tokens);

/* pass.c: a recorded step begins with fetching its step from pinned memory. */
typedef void cuda_fn_fetch(gpu_backend *be, const bnet_kernel_record *k, size_t n_bytes);
cuda_fn_fetch bnet_cuda_fetch_step;

static inline bnet_dev_act8 cuda_act(const gpu_act8 *a)
{
    return (bnet_dev_act8){cuda_at(a->q), cuda_at(a->scale), cuda_at(a->sum), (uint32_t)a->stride,
                           0};
}

static inline bnet_dev_matrix cuda_matrix(const gpu_weight *w)
{
    return (bnet_dev_matrix){
        {cuda_at(w->w[0]), cuda_at(w->w[1]), cuda_at(w->w[2]), cuda_at(w->w[3])},
        (uint32_t)w->info.n_out,
        (uint32_t)w->info.n_in,
        w->stride,
        0};
}

/* The step's tokens whose cache is of this type. */
static inline bnet_dev_step cuda_step(const gpu_backend *be, int type)
{
    const gpu_step_view *v = &be->step;
    return (bnet_dev_step){cuda_at(v->ids), cuda_at(v->pos[type]), cuda_at(v->seq),
                           cuda_at(v->seqs), cuda_at(v->tables)};
}

/* ---- one product of a ternary matrix, as passes and the single operation want it (launch_w2.c):
 * parts with their own scales and destinations, an input that may still have to be normed and
 * quantised, and what becomes of the sums ---- */

typedef struct cuda_w2_call {
    bnet_cu_w2 m;
    bnet_dev_act8 act; /* or x: */
    gpu_at x, norm;    /* one row of floats, normed (nowhere: not) and quantised inside */
    float eps;
    uint32_t k, n_tokens, epilogue;
} cuda_w2_call;

/* k: a row whose function is one of bnet_cuda_w2_*. */
void bnet_cuda_w2(gpu_backend *be, const bnet_kernel_record *k, const cuda_w2_call *call);
/* Can this row take floats (x)? */
bool bnet_cuda_w2_norms(const bnet_kernel_record *k);
bool bnet_cuda_w2_fast(const bnet_kernel_record *k); /* its function is one of bnet_cuda_w2_* */
/* One weight alone, wherever its tiles lie. */
bnet_cu_w2 bnet_cuda_w2_of(const gpu_weight *w, gpu_at y);

#endif
