/* codec.c - rows of floats to and from bytes: the plain types, Q8_0 and Q4_0, and the way to the
 * others.
 *
 * Encoders compute codes with the unrounded f32 scale and store it as f16, as the format's other
 * implementations do, so that files agree byte for byte. */
#include "format/codec_impl.h"

static void q8_0_decode(const block_q8_0 *b, float *x)
{
    float d = bnet_get_f16(b->d);
    for (int i = 0; i < 32; i++)
        x[i] = (float)b->q[i] * d;
}

static void q8_0_encode(const float *x, block_q8_0 *b)
{
    float amax = 0;
    for (int i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float d = amax / 127.0f, inverse = d != 0 ? 1.0f / d : 0;
    bnet_put_f16(b->d, d);
    for (int i = 0; i < 32; i++)
        b->q[i] = (int8_t)bnet_code(roundf(x[i] * inverse), -127, 127);
}

static void q4_0_decode(const block_q4_0 *b, float *x)
{
    float d = bnet_get_f16(b->d);
    for (int i = 0; i < 16; i++) {
        x[i] = (float)((b->q[i] & 15) - 8) * d;
        x[i + 16] = (float)((b->q[i] >> 4) - 8) * d;
    }
}

/* The element of largest magnitude becomes code 0 (= -8 d), whatever its sign: d carries the sign.
 */
static void q4_0_encode(const float *x, block_q4_0 *b)
{
    float best = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(best))
            best = x[i];
    float d = best / -8.0f, inverse = d != 0 ? 1.0f / d : 0;
    bnet_put_f16(b->d, d);
    for (int i = 0; i < 16; i++) {
        int lo = bnet_code((float)trunc((double)x[i] * inverse + 8.5), 0, 15);
        int hi = bnet_code((float)trunc((double)x[i + 16] * inverse + 8.5), 0, 15);
        b->q[i] = (uint8_t)(lo | hi << 4);
    }
}

static void tq_decode(bnet_type t, const void *src, float *dst, size_t n)
{
    size_t n_bytes = t == BNET_TQ1_0 ? sizeof(block_tq1_0) : sizeof(block_tq2_0);
    for (size_t i = 0; i < n; i += 256) {
        int8_t trits[256];
        float d;
        bnet_tq_decode_row(t, (const uint8_t *)src + i / 256 * n_bytes, trits, &d, 256);
        for (size_t j = 0; j < 256; j++)
            dst[i + j] = (float)trits[j] * d;
    }
}

bool bnet_decode_row(bnet_type t, const void *src, float *dst, size_t n)
{
    const uint8_t *s = src;
    switch (t) {
    case BNET_F32:
        memcpy(dst, src, n * sizeof *dst);
        return true;
    case BNET_F16:
        for (size_t i = 0; i < n; i++)
            dst[i] = bnet_get_f16(s + 2 * i);
        return true;
    case BNET_BF16:
        for (size_t i = 0; i < n; i++)
            dst[i] = bnet_bf16_to_f32(bnet_u16(s + 2 * i));
        return true;
    case BNET_Q8_0:
        for (size_t i = 0; i < n / 32; i++)
            q8_0_decode((const block_q8_0 *)src + i, dst + 32 * i);
        return true;
    case BNET_Q4_0:
        for (size_t i = 0; i < n / 32; i++)
            q4_0_decode((const block_q4_0 *)src + i, dst + 32 * i);
        return true;
    case BNET_Q6_K:
        for (size_t i = 0; i < n / 256; i++)
            bnet_q6_k_decode((const block_q6_k *)src + i, dst + 256 * i);
        return true;
    case BNET_TQ1_0:
    case BNET_TQ2_0:
        tq_decode(t, src, dst, n);
        return true;
    default:
        return false;
    }
}

bool bnet_encode_row(bnet_type t, const float *src, void *dst, size_t n)
{
    uint8_t *d = dst;
    switch (t) {
    case BNET_F32:
        memcpy(dst, src, n * sizeof *src);
        return true;
    case BNET_F16:
        for (size_t i = 0; i < n; i++)
            bnet_put_f16(d + 2 * i, src[i]);
        return true;
    case BNET_BF16:
        for (size_t i = 0; i < n; i++)
            bnet_put_u16(d + 2 * i, bnet_f32_to_bf16(src[i]));
        return true;
    case BNET_Q8_0:
        for (size_t i = 0; i < n / 32; i++)
            q8_0_encode(src + 32 * i, (block_q8_0 *)dst + i);
        return true;
    case BNET_Q4_0:
        for (size_t i = 0; i < n / 32; i++)
            q4_0_encode(src + 32 * i, (block_q4_0 *)dst + i);
        return true;
    case BNET_Q6_K:
        for (size_t i = 0; i < n / 256; i++)
            bnet_q6_k_encode(src + 256 * i, (block_q6_k *)dst + i);
        return true;
    case BNET_TQ1_0:
        for (size_t i = 0; i < n / 256; i++)
            bnet_tq1_0_encode(src + 256 * i, (block_tq1_0 *)dst + i);
        return true;
    case BNET_TQ2_0:
        for (size_t i = 0; i < n / 256; i++)
            bnet_tq2_0_encode(src + 256 * i, (block_tq2_0 *)dst + i);
        return true;
    default:
        return false;
    }
}
