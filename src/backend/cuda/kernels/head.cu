/* head.cu - rows of a float matrix times one to eight float vectors at the speed
 * of memory: the output head of decode steps, and small float products.
 *
 * A warp computes ROWS rows at a time; the vectors lie in shared memory, normed there, in the order
 * in which lanes read them without bank conflicts. */
#include "matrix.cuh"

enum { THREADS = BNET_HEAD_THREADS, WARPS = THREADS / 32 };

/* Where element k of a vector lies: [chunk of 32 E][quarter of a lane's E][lane][4]. */
template <int E> static __device__ __forceinline__ uint32_t x_at(uint32_t k)
{
    return k / (32 * E) * (32 * E) + k % E / 4 * 128 + k % (32 * E) / E * 4 + k % 4;
}

template <int E>
static __device__ void take_vectors(const bnet_cu_head_args &a, uint32_t padded, uint32_t slots,
                                    float *xs)
{
    __shared__ double sums[2][32];
    for (uint32_t t = 0; t < slots; t++) {
        const float *x = a.x + (size_t)t * a.ldx;
        uint32_t k_end = t < a.n_tokens ? a.m.k : 0;
        double ss = 0, inv = 1;
        for (uint32_t i = threadIdx.x; a.norm && i < k_end; i += THREADS)
            ss += (double)x[i] * x[i];
        if (a.norm) /* two scratches in turn: one barrier a round is enough */
            inv = 1.0 / sqrt(block_sum<THREADS>(ss, sums[t & 1]) / (double)a.m.k + (double)a.eps);
        for (uint32_t i = threadIdx.x; i < padded; i += THREADS) {
            float v = i < k_end ? x[i] : 0.0f;
            if (a.norm && i < k_end)
                v = (float)((double)v * inv * (double)a.norm[i]);
            xs[t * padded + x_at<E>(i)] = v;
        }
    }
    __syncthreads();
}

template <typename R, int T, int ROWS>
static __device__ __forceinline__ void head(const bnet_cu_head_args &a)
{
    extern __shared__ __align__(16) float xs[];
    constexpr int E = R::E;
    uint32_t padded = (a.m.stride + 1023) / 1024 * 1024, lane = threadIdx.x % 32;
    pdl_launch();
    pdl_wait();
    take_vectors<E>(a, padded, T, xs);
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, n_warps = gridDim.x * WARPS;
    uint32_t groups = (a.m.n_rows + ROWS - 1) / ROWS;
    for (uint32_t g = warp; g < groups; g += n_warps) {
        float acc[ROWS][T] = {};
        for (uint32_t at = lane * E; at < a.m.stride; at += 32 * E) {
            R r[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                r[i].load(a.m, min(g * ROWS + i, a.m.n_rows - 1), at);
            const float *x = xs + (at - lane * E) + lane * 4;
            float f[ROWS][E];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                r[i].floats(f[i]);
#pragma unroll
            for (int e = 0; e < E / 4; e++)
#pragma unroll
                for (int t = 0; t < T; t++) {
                    float4 v = *(const float4 *)(x + t * padded + e * 128);
#pragma unroll
                    for (int i = 0; i < ROWS; i++) {
                        acc[i][t] = fmaf(f[i][4 * e], v.x, acc[i][t]);
                        acc[i][t] = fmaf(f[i][4 * e + 1], v.y, acc[i][t]);
                        acc[i][t] = fmaf(f[i][4 * e + 2], v.z, acc[i][t]);
                        acc[i][t] = fmaf(f[i][4 * e + 3], v.w, acc[i][t]);
                    }
                }
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int t = 0; t < T; t++) {
                float s = warp_sum(acc[i][t]);
                if (lane == 0 && g * ROWS + i < a.m.n_rows && t < a.n_tokens)
                    a.y[(size_t)t * a.ld + g * ROWS + i] = s;
            }
    }
}

template <typename R, int ROWS> static __device__ __forceinline__ void heads(const bnet_cu_head_args &a)
{
    if (a.n_tokens == 1)
        head<R, 1, ROWS>(a);
    else if (a.n_tokens == 2)
        head<R, 2, ROWS>(a);
    else if (a.n_tokens <= 4)
        head<R, 4, (ROWS + 1) / 2>(a);
    else
        head<R, 8, (ROWS + 1) / 2>(a);
}

KERNEL __launch_bounds__(THREADS, 2) bnet_head_f16(const __grid_constant__ bnet_cu_head_args a)
{
    heads<rows_f16, 4>(a);
}

KERNEL __launch_bounds__(THREADS, 2) bnet_head_bf16(const __grid_constant__ bnet_cu_head_args a)
{
    heads<rows_bf16, 4>(a);
}

KERNEL __launch_bounds__(THREADS, 2) bnet_head_f32(const __grid_constant__ bnet_cu_head_args a)
{
    heads<rows_f32, 4>(a);
}
