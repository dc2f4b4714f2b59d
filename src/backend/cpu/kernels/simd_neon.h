/* simd_neon.h - a vector of floats as the kernels that are written once for every vector width see
 * it. simd_avx2.h and simd_avx512.h define the same names with the same meaning. */
#ifndef BNET_SIMD_NEON_H
#define BNET_SIMD_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "base/base.h"

#define SIMD static inline __attribute__((always_inline))

typedef float32x4_t vf; /* VF floats */
typedef float32x4_t v4; /* 4 floats */
typedef float64x2_t vd; /* VD doubles */
typedef uint32x4_t vm;  /* a mask for each lane of vf */
enum { VF = 4, VD = 2 };
/* The function of a row of kernels.inc. */
#define ROW(name) bnet_##name##_neon

SIMD vf vf_set(float x)
{
    return vdupq_n_f32(x);
}
SIMD vf vf_abs(vf a)
{
    return vabsq_f32(a);
}
/* a * b + c, rounded once */
SIMD vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
/* a > b ? a : b, so b where either is NaN */
SIMD vf vf_pick_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
/* One step to the largest magnitude; a NaN stays in *max. */
SIMD void vf_amax(vf v, vf *max, vf *bad)
{
    (void)bad;
    *max = vmaxq_f32(*max, vabsq_f32(v));
}
SIMD vm vf_lt(vf a, vf b)
{
    return vcltq_f32(a, b);
}
SIMD vm vf_is_nan(vf a)
{
    return vmvnq_u32(vceqq_f32(a, a));
}
SIMD vf vf_select(vm m, vf yes, vf no)
{
    return vbslq_f32(m, yes, no);
}
SIMD vf vf_zero_where(vm m, vf v)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), m));
}
SIMD vf vf_from_f16(const uint8_t *p)
{
    uint16x4_t h;
    memcpy(&h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}
SIMD vf vf_round_f16(vf v)
{
    return vcvt_f32_f16(vcvt_f16_f32(v));
}
SIMD void vf_to_f16(uint8_t *p, vf v)
{
    uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(v));
    memcpy(p, &h, sizeof h);
}
SIMD vf vf_from_i8(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    int16x8_t h = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(w)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(h)));
}

SIMD v4 v4_pick_max(v4 a, v4 b)
{
    return vf_pick_max(a, b);
}
SIMD vf vf_repeat(v4 v)
{
    return v;
}
/* Halves added until four lanes are left. */
SIMD v4 vf_fold(vf v)
{
    return v;
}
/* Lane i: (x[i][0] + x[i][1]) + (x[i][2] + x[i][3]) */
SIMD v4 v4_fold_each(v4 a, v4 b, v4 c, v4 d)
{
    return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
}

/* Four weights of one position and the multiplication by one of them. */
typedef float32x4_t vweights;
SIMD vweights vw_load(const float *p)
{
    return vld1q_f32(p);
}
#define vw_fma(v, w, lane, acc) vfmaq_laneq_f32(acc, v, w, lane)

/* ---- doubles ---- */

SIMD vd vd_set(double x)
{
    return vdupq_n_f64(x);
}
SIMD vd vd_fma(vd a, vd b, vd c)
{
    return vfmaq_f64(c, a, b);
}
SIMD void vf_widen(vf v, vd out[VF / VD])
{
    out[0] = vcvt_f64_f32(vget_low_f32(v));
    out[1] = vcvt_high_f64_f32(v);
}
SIMD vf vf_narrow(const vd in[VF / VD])
{
    return vcvt_high_f32_f64(vcvt_f32_f64(in[0]), in[1]);
}

/* ---- integers ---- */

typedef int32x4_t vsum; /* sums of int8 */
SIMD int32_t vsum_total(vsum s)
{
    return vaddvq_s32(s);
}
/* The lowest bytes of 16 integers, added to the sum. */
SIMD void narrow16(const int32x4_t r[4], int8_t *q, vsum *sum)
{
    int16x8_t lo = vuzp1q_s16(vreinterpretq_s16_s32(r[0]), vreinterpretq_s16_s32(r[1]));
    int16x8_t hi = vuzp1q_s16(vreinterpretq_s16_s32(r[2]), vreinterpretq_s16_s32(r[3]));
    vst1q_s8(q, vuzp1q_s8(vreinterpretq_s8_s16(lo), vreinterpretq_s8_s16(hi)));
    *sum = vpadalq_s16(*sum, vaddq_s16(lo, hi));
}
/* 16 doubles x[i] * s, none beyond +-127.5, rounded to nearest even, as int8, added to the sum. */
SIMD void round16_d(const float *x, vd s, int8_t *q, vsum *sum)
{
    int32x4_t r[4];
    for (int i = 0; i < 4; i++) {
        float32x4_t v = vld1q_f32(x + 4 * i);
        int64x2_t a = vcvtnq_s64_f64(vcvt_f64_f32(vget_low_f32(v)) * s);
        int64x2_t b = vcvtnq_s64_f64(vcvt_high_f64_f32(v) * s);
        r[i] = vuzp1q_s32(vreinterpretq_s32_s64(a), vreinterpretq_s32_s64(b));
    }
    narrow16(r, q, sum);
}
/* The same with 16 floats v. *doubt becomes at least the largest distance of any v to its integer.
 * The bits of v + 1.5 * 2^23 end with the integer. */
SIMD void round16_v(const vf v[16 / VF], int8_t *q, vsum *sum, vf *doubt)
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    int32x4_t r[4];
    for (int i = 0; i < 4; i++) {
        float32x4_t t = v[i] + magic;
        *doubt = vmaxq_f32(*doubt, vabdq_f32(v[i], t - magic));
        r[i] = vreinterpretq_s32_f32(t);
    }
    narrow16(r, q, sum);
}
/* The largest of all lanes of maxima that vf_amax made; NaN if any of them is. */
SIMD float vf_max_lanes(vf a, vf b)
{
    return vmaxvq_f32(vmaxq_f32(a, b));
}
SIMD bool vf_any_above(vf v, float limit)
{
    return vmaxvq_f32(v) > limit;
}
/* 16 floats x[i] * s, none beyond +-127.5, rounded to nearest even, as int8 */
SIMD void round16_f(const float *x, float s, int8_t *q)
{
    int32x4_t r[4], unused = vdupq_n_s32(0);
    for (int i = 0; i < 4; i++)
        r[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), s));
    narrow16(r, q, &unused);
}

/* 16 int8 times s, as floats */
SIMD void scale16_i8(const uint8_t *p, float s, float *to)
{
    int8x16_t b = vld1q_s8((const int8_t *)p);
    int16x8_t lo = vmovl_s8(vget_low_s8(b)), hi = vmovl_high_s8(b);
    vst1q_f32(to, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), s));
    vst1q_f32(to + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(lo)), s));
    vst1q_f32(to + 8, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), s));
    vst1q_f32(to + 12, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(hi)), s));
}

/* Part p of a vector is its lanes 4 p .. 4 p + 3. Part p of out[e]: lane 4 p + e of all four. */
SIMD void vf_quads(const vf v[4], vf out[4])
{
    float64x2_t a = vreinterpretq_f64_f32(vzip1q_f32(v[0], v[1]));
    float64x2_t b = vreinterpretq_f64_f32(vzip2q_f32(v[0], v[1]));
    float64x2_t c = vreinterpretq_f64_f32(vzip1q_f32(v[2], v[3]));
    float64x2_t d = vreinterpretq_f64_f32(vzip2q_f32(v[2], v[3]));
    out[0] = vreinterpretq_f32_f64(vzip1q_f64(a, c));
    out[1] = vreinterpretq_f32_f64(vzip2q_f64(a, c));
    out[2] = vreinterpretq_f32_f64(vzip1q_f64(b, d));
    out[3] = vreinterpretq_f32_f64(vzip2q_f64(b, d));
}
/* out[p]: part p of v[0], v[step], 2 step and so on, of as many as there are parts. */
SIMD void vf_parts(const vf *v, size_t step, vf out[VF / 4])
{
    (void)step;
    out[0] = v[0];
}

/* Eight floats of each of V8_ROWS rows, and how many such vectors of sums are held at once. */
typedef struct v8 {
    float32x4_t lo, hi;
} v8;
enum { V8_ROWS = 1, V8_TILE = 8 };
SIMD v8 v8_zero(void)
{
    return (v8){vdupq_n_f32(0), vdupq_n_f32(0)};
}
/* the same in all rows */
SIMD v8 v8_load(const float *p)
{
    return (v8){vld1q_f32(p), vld1q_f32(p + 4)};
}
/* rows `stride` bytes apart */
SIMD v8 v8_from_f16(const uint8_t *p, size_t stride)
{
    (void)stride;
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
    return (v8){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
SIMD v8 v8_fma(v8 a, v8 b, v8 c)
{
    return (v8){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
/* Both halves of row r added. */
SIMD v4 v8_fold(v8 v, int r)
{
    (void)r;
    return vaddq_f32(v.lo, v.hi);
}

/* VF pairs: first and second of each */
SIMD void vf_load_pairs(const float *p, vf *a, vf *b)
{
    float32x4x2_t v = vld2q_f32(p);
    *a = v.val[0];
    *b = v.val[1];
}
SIMD void vf_store_pairs(float *p, vf a, vf b)
{
    float32x4x2_t v = {{a, b}};
    vst2q_f32(p, v);
}

/* How 16 running sums are handled: N_PASSES passes over a row, each over N_CHUNKS vectors that
 * lie 8 apart in every 16; and how many vectors of an output row, or of sums of turned keys, are
 * held at once. */
enum { N_PASSES = 2, PASS_STEP = 4, N_CHUNKS = 2, OUT_VECTORS = 4, IN_FLIGHT = 16, TILE = 8 };

#include "backend/cpu/kernels/simd_all.h"

#endif
