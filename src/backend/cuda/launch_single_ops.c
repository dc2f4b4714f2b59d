/* launch_single_ops.c - single operations and products of halves: arguments from addresses and
 * sizes. */
#include "backend/cuda/launch.h"
#include "backend/cuda/matmul_i2s.h"

#include "backend/gpu/precision.h"

enum { GRID_Y = 65535, REF_BLOCK = 128 };

static uint32_t least(size_t n)
{
    return (uint32_t)BNET_MIN(n, (size_t)UINT32_MAX);
}

/* ---- matrices ---- */

void bnet_cuda_single_i2s(gpu_backend *be, const bnet_kernel_record *k, const bitnet_single_op *p,
                          const gpu_at *in, const gpu_at *out)
{
    bnet_cu_matmul_i2s_args a = {.a = cuda_at(in[0]),
                                 .b = cuda_at(in[1]),
                                 .c = cuda_at(out[0]),
                                 .m = least(p->m),
                                 .n = least(p->n),
                                 .k = least(p->k)};
    bnet_launch l = bnet_launch_params(&be->d->gpu, p->m, p->n, BNET_MAX(p->k, 1));
    gpu_dims tiles = {.grid = {(unsigned)l.grid_x, (unsigned)l.grid_y, 1},
                      .block = {(unsigned)l.block, (unsigned)l.block, 1},
                      .shared_bytes = bnet_matmul_i2s_shared((uint32_t)l.block)};
    if (k->needs & BNET_CUDA_NEED(TENSOR_CORES))
        tiles = (gpu_dims){
            .grid = {bnet_cu_div(a.n, BNET_WMMA_I2S_SIDE), bnet_cu_div(a.m, BNET_WMMA_I2S_SIDE), 1},
            .block = {BNET_WMMA_I2S_THREADS, 1, 1}};
    const gpu_launch launch = {.kernel = k, .dims = tiles};
    cuda_launch(be, &launch, &a);
}

typedef struct product {
    cu_ptr a, b, c;
    uint32_t m, n, k, ldb;
    bool nt;
} product;

/* By tiles in slices of as many rows as a grid has, or a thread per result. */
static void multiply(gpu_backend *be, const bnet_kernel_record *k, const product *p)
{
    if (!(k->needs & BNET_CUDA_NEED(TENSOR_CORES)) && k->format != BNET_FORMAT_F32) {
        uint64_t n = (uint64_t)p->m * p->n;
        ref_matmul_args a = {.a = p->a,
                             .b = p->b,
                             .c = p->c,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .ldb = p->ldb,
                             .nt = p->nt,
                             .type = k->format == BNET_FORMAT_F16 ? REF_F16 : REF_BF16};
        const bnet_cu_launch l = {
            {(uint32_t)((n + REF_BLOCK - 1) / REF_BLOCK), 1, 1}, REF_BLOCK, 0};
        bnet_cuda_run(be, k, 0, &l, 0, &a);
        return;
    }
    size_t elem = k->format == BNET_FORMAT_F32 ? 4 : 2;
    const uint32_t at_once = GRID_Y * 64;
    for (uint32_t row = 0; row < p->m; row += at_once) {
        bnet_cu_matmul_args a = {.a = p->a + (size_t)row * p->k * elem,
                                 .b = p->b,
                                 .c = p->c + (size_t)row * p->n * sizeof(float),
                                 .m = BNET_MIN(p->m - row, at_once),
                                 .n = p->n,
                                 .k = p->k,
                                 .lda = p->k,
                                 .ldb = p->ldb,
                                 .ldc = p->n};
        bnet_cu_launch l = bnet_matmul_launch(&a);
        bnet_cuda_run(be, k, 0, &l, 0, &a);
    }
}

void bnet_cuda_single_matmul(gpu_backend *be, const bnet_kernel_record *k,
                             const bitnet_single_op *p, const gpu_at *in, const gpu_at *out)
{
    const product x = {cuda_at(in[0]), cuda_at(in[1]), cuda_at(out[0]), least(p->m),
                       least(p->n),    least(p->k),    least(p->n),     false};
    multiply(be, k, &x);
}

/* The model's: inputs become halves in scratch memory first. */
void bnet_cuda_matmul_half(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                           gpu_at x, int n_rows, gpu_at y)
{
    size_t n = (size_t)n_rows * w->info.n_in;
    gpu_at halves = bnet_gpu_scratch(be, n * sizeof(uint16_t));
    const product p = {
        cuda_at(halves),         cuda_at(w->w[0]),       cuda_at(y), (uint32_t)n_rows,
        (uint32_t)w->info.n_out, (uint32_t)w->info.n_in, w->stride,  true};
    if (gpu_none(halves))
        return;
    ((gpu_fn_convert *)be->to_half->fn)(be, be->to_half, x, n, halves);
    multiply(be, k, &p);
}

/* A few tokens: inputs rounded to halves and floats again, which the kernels of the head take. */
void bnet_cuda_gemv_half(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                         gpu_at x, int n_rows, gpu_at y)
{
    size_t n = (size_t)n_rows * w->info.n_in, halves = (n * sizeof(uint16_t) + 255) / 256 * 256;
    gpu_at at = bnet_gpu_scratch(be, halves + n * sizeof(float)), rounded = gpu_plus(at, halves);
    bnet_cu_vec_args down = {.x = cuda_at(x), .y = cuda_at(at), .n = n},
                     up = {.x = cuda_at(at), .y = cuda_at(rounded), .n = n};
    bnet_cu_launch l = bnet_vec_launch(n);
    if (gpu_none(at))
        return;
    bnet_cuda_run_more(be, k, 1, &l, 0, &down);
    bnet_cuda_run_more(be, k, 2, &l, 0, &up);
    bnet_cuda_head(be, k, w, rounded, n_rows, y);
}

/* ---- vectors ---- */

static void elements(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at z, size_t n,
                     gpu_at y)
{
    bnet_cu_vec_args a = {.x = cuda_at(x), .z = cuda_at(z), .y = cuda_at(y), .n = n};
    bnet_cu_launch l = bnet_vec_launch(n);
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

void bnet_cuda_convert(gpu_backend *be, const bnet_kernel_record *k, gpu_at src, size_t n,
                       gpu_at dst)
{
    elements(be, k, src, (gpu_at){0}, n, dst);
}

void bnet_cuda_single_vector(gpu_backend *be, const bnet_kernel_record *k,
                             const bitnet_single_op *p, const gpu_at *in, const gpu_at *out)
{
    elements(be, k, in[0], in[1], p->n, out[0]);
}

void bnet_cuda_single_softmax(gpu_backend *be, const bnet_kernel_record *k,
                              const bitnet_single_op *p, const gpu_at *in, const gpu_at *out)
{
    bnet_cu_vec_args a = {.x = cuda_at(in[0]), .y = cuda_at(out[0]), .n = p->n};
    bnet_cu_launch l = {{least(p->m), 1, 1}, 256, 0};
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

void bnet_cuda_single_argmax(gpu_backend *be, const bnet_kernel_record *k,
                             const bitnet_single_op *p, const gpu_at *in, const gpu_at *out)
{
    size_t at_once = BNET_MIN(p->m, (size_t)GRID_Y);
    cu_ptr work = cuda_at(bnet_gpu_zeros(be, at_once * 2 * sizeof(uint64_t)));
    for (size_t row = 0; work && row < p->m; row += at_once) {
        bnet_cu_sample_args a = {.logits = cuda_at(in[0]) + row * p->n * sizeof(float),
                                 .id = cuda_at(out[0]) + row * sizeof(int32_t),
                                 .work = work,
                                 .n = least(p->n),
                                 .ld = least(p->n),
                                 .k = 1,
                                 .rows = least(BNET_MIN(p->m - row, at_once))};
        bnet_cu_launch l = bnet_argmax_launch(a.rows);
        bnet_cuda_run(be, k, 0, &l, 0, &a);
    }
}

/* ---- weights ---- */

void bnet_cuda_single_quantize(gpu_backend *be, const bnet_kernel_record *k,
                               const bitnet_single_op *p, const gpu_at *in, const gpu_at *out)
{
    bnet_cu_quantize_args a = {.x = cuda_at(in[0]),
                               .out = cuda_at(out[0]),
                               .scales = cuda_at(out[1]),
                               .n = p->n,
                               .block = p->m,
                               .n_scales = least(p->k),
                               .rule = (uint32_t)p->rule};
    bnet_cu_launch scales = bnet_quantize_scales_launch(a.n_scales), l = bnet_quantize_launch(a.n);
    bnet_cuda_run_more(be, k, 1, &scales, 0, &a);
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

void bnet_cuda_single_qk256(gpu_backend *be, const bnet_kernel_record *k, const bitnet_single_op *p,
                            const gpu_at *in, const gpu_at *out)
{
    bnet_cu_qk256_args a = {.w = cuda_at(in[0]),
                            .scales = cuda_at(in[1]),
                            .x = cuda_at(in[2]),
                            .y = cuda_at(out[0]),
                            .rows = least(p->m),
                            .cols = least(p->k),
                            .map = (uint32_t)p->type};
    bnet_cu_launch l = bnet_qk256_launch(a.rows);
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}
