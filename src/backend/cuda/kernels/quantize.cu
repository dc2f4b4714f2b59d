/* quantize.cu - float weights to ternary blocks (I2_S, TL1, TL2 as ops/reference.h packs them), and rows
 * of 2-bit codes in blocks of 256 times a float vector. */
#include "common.cuh"

enum { SCALE_THREADS = 512, THREADS = 256, GROUP = 24 /* weights that fill whole bytes always */ };
enum { I2S, TL1, TL2 };

/* The mean of |x|, as the CPU's sum in order gives it. Sums of another order are within n units of
 * the last place of it: where all of these give the same float, so does the CPU; else one thread
 * adds in order. */
static __device__ float mean_of(const float *x, uint64_t n, double sum)
{
    double slack = 4.0 * (double)n * 0x1p-53, count = (double)n;
    float low = (float)(sum * (1.0 - slack) / count), high = (float)(sum * (1.0 + slack) / count);
    if (low == high)
        return low;
    sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return (float)(sum / count);
}

/* Block b: the scale of its values. */
KERNEL __launch_bounds__(SCALE_THREADS)
    bnet_quantize_scales(const __grid_constant__ bnet_cu_quantize_args a)
{
    __shared__ double sums[32];
    __shared__ float tops[32];
    uint64_t begin = min((uint64_t)blockIdx.x * a.block, a.n), n = min(a.block, a.n - begin);
    const float *x = a.x + begin;
    double sum = 0;
    float most = 0;
    for (uint64_t i = threadIdx.x; i < n; i += SCALE_THREADS) {
        sum += fabs((double)x[i]);
        most = fmaxf(most, fabsf(x[i]));
    }
    sum = block_sum<SCALE_THREADS>(sum, sums);
    most = block_max<SCALE_THREADS>(most, tops);
    if (threadIdx.x != 0)
        return;
    if (n == 0) {
        a.scales[blockIdx.x] = 0.0f;
        return;
    }
    float scale = a.rule ? (most > 1e-8f ? __fdiv_rn(most, 1.5f) : 1.0f)
                         : fmaxf(mean_of(x, n, sum), 1e-5f);
    a.scales[blockIdx.x] = scale;
}

static __device__ __forceinline__ int trit_by(uint32_t rule, float x, float scale)
{
    float q = __fdiv_rn(x, scale);
    return rule ? (q > 0.5f) - (q < -0.5f) : (int)fmaxf(-1.0f, fminf(1.0f, rintf(q)));
}

/* Byte b of up to 24 weights. */
template <int TYPE> static __device__ __forceinline__ uint32_t byte_of(const int *t, int b)
{
    const int *w = t + 4 * b;
    if (TYPE == I2S)
        return (w[0] + 1) | (w[1] + 1) << 2 | (w[2] + 1) << 4 | (w[3] + 1) << 6;
    if (TYPE == TL1)
        return (3 * w[0] + w[1] + 4) << 4 | (3 * w[2] + w[3] + 4);
    w = t + 6 * b;
    return abs(9 * w[0] + 3 * w[1] + w[2]) << 4 | abs(9 * w[3] + 3 * w[4] + w[5]);
}

template <int TYPE> static __device__ __forceinline__ void quantize(const bnet_cu_quantize_args &a)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS * GROUP, triples = (a.n + 2) / 3;
    uint64_t first = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP;
    for (; first < a.n; first += step) {
        int t[GROUP];
        uint32_t here = (uint32_t)min((uint64_t)GROUP, a.n - first), signs = 0;
#pragma unroll
        for (uint32_t j = 0; j < GROUP; j++)
            t[j] = j < here ? trit_by(a.rule, a.x[first + j], a.scales[(first + j) / a.block]) : 0;
        constexpr uint32_t per_byte = TYPE == TL2 ? 6 : 4;
#pragma unroll
        for (uint32_t b = 0; b < GROUP / per_byte; b++)
            if (b * per_byte < here)
                a.out[first / per_byte + b] = (uint8_t)byte_of<TYPE>(t, (int)b);
#pragma unroll
        for (uint32_t i = 0; TYPE == TL2 && i < 8; i++)
            signs |= (uint32_t)(9 * t[3 * i] + 3 * t[3 * i + 1] + t[3 * i + 2] < 0) << i;
        if (TYPE == TL2)
            a.out[(triples + 1) / 2 + first / GROUP] = (uint8_t)signs;
    }
}

#define QUANTIZE(name, type)                                                                       \
    KERNEL __launch_bounds__(THREADS) bnet_quantize_##name(                                        \
        const __grid_constant__ bnet_cu_quantize_args a)                                           \
    {                                                                                              \
        quantize<type>(a);                                                                         \
    }
QUANTIZE(i2s, I2S)
QUANTIZE(tl1, TL1)
QUANTIZE(tl2, TL2)

/* A warp per row: a lane has 8 columns of a block in 2 bytes. */
KERNEL __launch_bounds__(THREADS) bnet_qk256_gemv(const __grid_constant__ bnet_cu_qk256_args a)
{
    uint32_t row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t n_blocks = (a.cols + 255) / 256;
    if (row >= a.rows)
        return;
    double sum = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        size_t block = (size_t)row * n_blocks + b;
        uint32_t codes = ((const uint16_t *)(a.w + block * 64))[lane], col = b * 256 + lane * 8;
        double dot = 0;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            int c = (int)(codes >> 2 * i & 3);
            int v = a.map == 0 ? (c == 3 ? 0 : c - 1) : c - 2 + (a.map == 2 && c > 1);
            if (col + i < a.cols)
                dot += (double)v * (double)a.x[col + i];
        }
        sum += (double)(a.scales ? a.scales[block] : 1.0f) * dot;
    }
    sum = warp_sum(sum);
    if (lane == 0)
        a.y[row] = (float)sum;
}
