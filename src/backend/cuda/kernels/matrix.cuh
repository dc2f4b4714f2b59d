/* matrix.cuh - rows of float and block-quantised matrices as kernels read them: a lane's share of a
 * row in one or two wide loads, then as floats. */
#ifndef BNET_MATRIX_CUH
#define BNET_MATRIX_CUH

#include "common.cuh"

/* E: elements a lane takes at once. load(row, at): elements at .. at + E - 1. */
struct rows_f16 {
    enum { E = 8 };
    uint4 v;
    __device__ __forceinline__ void load(const bnet_dev_matrix &m, size_t row, uint32_t at)
    {
        v = load_stream(m.w[0] + (row * m.stride + at) * 2);
    }
    __device__ __forceinline__ void floats(float *f) const
    {
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 p = __half22float2(*(const __half2 *)&w[i]);
            f[2 * i] = p.x;
            f[2 * i + 1] = p.y;
        }
    }
};

struct rows_bf16 {
    enum { E = 8 };
    uint4 v;
    __device__ __forceinline__ void load(const bnet_dev_matrix &m, size_t row, uint32_t at)
    {
        v = load_stream(m.w[0] + (row * m.stride + at) * 2);
    }
    __device__ __forceinline__ void floats(float *f) const
    {
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            f[2 * i] = __uint_as_float(w[i] << 16);
            f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
    }
};

struct rows_f32 {
    enum { E = 4 };
    uint4 v;
    __device__ __forceinline__ void load(const bnet_dev_matrix &m, size_t row, uint32_t at)
    {
        v = load_stream(m.w[0] + (row * m.stride + at) * 4);
    }
    __device__ __forceinline__ void floats(float *f) const
    {
        f[0] = __uint_as_float(v.x), f[1] = __uint_as_float(v.y);
        f[2] = __uint_as_float(v.z), f[3] = __uint_as_float(v.w);
    }
};

/* value = scale * code, rounded once */
struct rows_q8 {
    enum { E = 16 };
    uint4 v;
    __half scale;
    __device__ __forceinline__ void load(const bnet_dev_matrix &m, size_t row, uint32_t at)
    {
        v = load_stream(m.w[0] + row * m.stride + at);
        scale = __ldg((const __half *)m.w[1] + row * (m.stride / 32) + at / 32);
    }
    __device__ __forceinline__ void floats(float *f) const
    {
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        float s = __half2float(scale);
#pragma unroll
        for (int i = 0; i < 16; i++)
            f[i] = __fmul_rn((float)(int8_t)(w[i / 4] >> 8 * (i & 3)), s);
    }
};

/* value = (d * scale) * (code - 32) as the codec computes it */
struct rows_q6k {
    enum { E = 32 };
    uint4 low;
    uint2 high;
    uint16_t scales;
    __half d;
    __device__ __forceinline__ void load(const bnet_dev_matrix &m, size_t row, uint32_t at)
    {
        size_t sub = row * (m.stride / 32) + at / 32;
        low = load_stream(m.w[0] + sub * 16);
        high = __ldg((const uint2 *)(m.w[1] + sub * 8));
        scales = __ldg((const uint16_t *)(m.w[2] + sub * 2));
        d = __ldg((const __half *)m.w[3] + sub / 8);
    }
    __device__ __forceinline__ void floats(float *f) const
    {
        const uint32_t l[4] = {low.x, low.y, low.z, low.w}, h[2] = {high.x, high.y};
        float df = __half2float(d);
        float s[2] = {__fmul_rn(df, (float)(int8_t)(scales & 255)),
                      __fmul_rn(df, (float)(int8_t)(scales >> 8))};
#pragma unroll
        for (int i = 0; i < 32; i++) {
            uint32_t lo = l[i % 16 / 4] >> (8 * (i & 3) + 4 * (i / 16)) & 15;
            uint32_t hi = h[i % 8 / 4] >> (8 * (i & 3) + 2 * (i / 8)) & 3;
            f[i] = __fmul_rn(s[i / 16], (float)((int)(lo | hi << 4) - 32));
        }
    }
};

#endif
