/* launch_plain.c - single operations and products of halves: arguments from addresses and sizes. */
#include "backend/cuda/launch.h"
#include "backend/cuda/plain.h"

#include "backend/gpu/precision.h"

enum { GRID_Y = 65535, REF_BLOCK = 128 };

static uint32_t least(size_t n)
{
    return (uint32_t)BNET_MIN(n, (size_t)UINT32_MAX);
}

/* ---- matrices ---- */

void bnet_cuda_plain_i2s(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                         const gpu_ptr *in, const gpu_ptr *out)
{
    bnet_cu_matmul_i2s_args a = {
        .a = in[0], .b = in[1], .c = out[0], .m = least(p->m), .n = least(p->n), .k = least(p->k)};
    bnet_launch l = bnet_launch_params(&be->d->gpu, p->m, p->n, BNET_MAX(p->k, 1));
    gpu_dims tiles = {.grid = {(unsigned)l.grid_x, (unsigned)l.grid_y, 1},
                      .block = {(unsigned)l.block, (unsigned)l.block, 1},
                      .shared_bytes = bnet_matmul_i2s_shared((uint32_t)l.block)};
    if (k->tensor_cores)
        tiles = (gpu_dims){
            .grid = {bnet_cu_div(a.n, BNET_WMMA_I2S_SIDE), bnet_cu_div(a.m, BNET_WMMA_I2S_SIDE), 1},
            .block = {BNET_WMMA_I2S_THREADS, 1, 1}};
    bnet_gpu_launch(be, k, 0, &tiles, &a);
}

typedef struct product {
    gpu_ptr a, b, c;
    uint32_t m, n, k, ldb;
    bool nt;
} product;

/* By tiles in slices of as many rows as a grid has, or a thread per result. */
static void multiply(gpu_backend *be, const bnet_kernel_record *k, const product *p)
{
    if (!k->tensor_cores && strcmp(k->format, "f32") != 0) {
        uint64_t n = (uint64_t)p->m * p->n;
        ref_matmul_args a = {.a = p->a,
                             .b = p->b,
                             .c = p->c,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .ldb = p->ldb,
                             .nt = p->nt,
                             .type = strcmp(k->format, "f16") == 0 ? REF_F16 : REF_BF16};
        gpu_dims d = {.grid = {(unsigned)((n + REF_BLOCK - 1) / REF_BLOCK), 1, 1},
                      .block = {REF_BLOCK, 1, 1}};
        bnet_gpu_launch(be, k, 0, &d, &a);
        return;
    }
    size_t elem = strcmp(k->format, "f32") == 0 ? 4 : 2;
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

void bnet_cuda_plain_matmul(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                            const gpu_ptr *in, const gpu_ptr *out)
{
    const product x = {in[0],       in[1],       out[0],      least(p->m),
                       least(p->n), least(p->k), least(p->n), false};
    multiply(be, k, &x);
}

/* The model's: inputs become halves in scratch memory first. */
void bnet_cuda_matmul_half(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                           gpu_ptr x, int n_rows, gpu_ptr y)
{
    size_t n = (size_t)n_rows * w->info.n_in;
    gpu_ptr halves = bnet_gpu_scratch(be, n * sizeof(uint16_t));
    const product p = {
        halves,    w->w[0], y, (uint32_t)n_rows, (uint32_t)w->info.n_out, (uint32_t)w->info.n_in,
        w->stride, true};
    if (!halves)
        return;
    ((gpu_fn_convert *)be->to_half->fn)(be, be->to_half, x, n, halves);
    multiply(be, k, &p);
}

/* A few tokens: inputs rounded to halves and floats again, which the kernels of the head take. */
void bnet_cuda_gemv_half(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                         gpu_ptr x, int n_rows, gpu_ptr y)
{
    size_t n = (size_t)n_rows * w->info.n_in, halves = (n * sizeof(uint16_t) + 255) / 256 * 256;
    gpu_ptr at = bnet_gpu_scratch(be, halves + n * sizeof(float));
    bnet_cu_vec_args down = {.x = x, .y = at, .n = n}, up = {.x = at, .y = at + halves, .n = n};
    bnet_cu_launch l = bnet_vec_launch(n);
    gpu_dims d = {.grid = {l.grid[0], 1, 1}, .block = {l.block, 1, 1}};
    if (!at)
        return;
    bnet_gpu_launch_more(be, k, 1, &d, &down);
    bnet_gpu_launch_more(be, k, 2, &d, &up);
    bnet_cuda_head(be, k, w, at + halves, n_rows, y);
}

/* ---- vectors ---- */

static void elements(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr x, gpu_ptr z, size_t n,
                     gpu_ptr y)
{
    bnet_cu_vec_args a = {.x = x, .z = z, .y = y, .n = n};
    bnet_cu_launch l = bnet_vec_launch(n);
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

void bnet_cuda_convert(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr src, size_t n,
                       gpu_ptr dst)
{
    elements(be, k, src, 0, n, dst);
}

void bnet_cuda_plain_vector(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                            const gpu_ptr *in, const gpu_ptr *out)
{
    elements(be, k, in[0], in[1], p->n, out[0]);
}

void bnet_cuda_plain_softmax(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                             const gpu_ptr *in, const gpu_ptr *out)
{
    bnet_cu_vec_args a = {.x = in[0], .y = out[0], .n = p->n};
    bnet_cu_launch l = {{least(p->m), 1, 1}, 256, 0};
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

void bnet_cuda_plain_argmax(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                            const gpu_ptr *in, const gpu_ptr *out)
{
    size_t at_once = BNET_MIN(p->m, (size_t)GRID_Y);
    gpu_ptr work = bnet_gpu_zeros(be, at_once * 2 * sizeof(uint64_t));
    for (size_t row = 0; work && row < p->m; row += at_once) {
        bnet_cu_sample_args a = {.logits = in[0] + row * p->n * sizeof(float),
                                 .id = out[0] + row * sizeof(int32_t),
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

void bnet_cuda_plain_quantize(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                              const gpu_ptr *in, const gpu_ptr *out)
{
    bnet_cu_quantize_args a = {.x = in[0],
                               .out = out[0],
                               .scales = out[1],
                               .n = p->n,
                               .block = p->m,
                               .n_scales = least(p->k),
                               .rule = (uint32_t)p->rule};
    bnet_cu_launch scales = bnet_quantize_scales_launch(a.n_scales), l = bnet_quantize_launch(a.n);
    gpu_dims d = {.grid = {scales.grid[0], 1, 1}, .block = {scales.block, 1, 1}};
    bnet_gpu_launch_more(be, k, 1, &d, &a);
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}

void bnet_cuda_plain_qk256(gpu_backend *be, const bnet_kernel_record *k, const bnet_plain *p,
                           const gpu_ptr *in, const gpu_ptr *out)
{
    bnet_cu_qk256_args a = {.w = in[0],
                            .scales = in[1],
                            .x = in[2],
                            .y = out[0],
                            .rows = least(p->m),
                            .cols = least(p->k),
                            .map = (uint32_t)p->type};
    bnet_cu_launch l = bnet_qk256_launch(a.rows);
    bnet_cuda_run(be, k, 0, &l, 0, &a);
}
