/* test_codec_extra.c - decoders of types without a kernel: blocks written by hand, element by
 * element after the layout's description, and rows read in parts. Q4_K and IQ4_NL are compared with
 * the gguf package in tests/format, too. */
#include "test.h"

#include "format/codec.h"

static uint64_t seed = 7;

static void fill_trits(int8_t *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] = (int8_t)(test_rand(&seed) % 3) - 1;
}

/* Every row in parts of every multiple of the block, against what was put in. */
static void check_parts(bnet_type type, const uint8_t *row, size_t block, size_t n,
                        const float *want)
{
    float got[512];
    assert_true(n <= 512);
    for (size_t size = block; size <= n; size += block)
        for (size_t first = 0; first + size <= n; first += block) {
            memset(got, 0xff, sizeof got);
            assert_true(bnet_decode_part(type, row, first, size, got));
            for (size_t i = 0; i < size; i++)
                if (got[i] != want[first + i])
                    fail_msg("%s, %zu from %zu: element %zu is %g, want %g",
                             bnet_type_find((uint32_t)type)->name, size, first, i, (double)got[i],
                             (double)want[first + i]);
        }
}

static void test_iq2_bn(void **state)
{
    (void)state;
    enum { N = 256 };
    uint8_t row[4 + N / 4] = {0};
    int8_t t[N];
    float want[N];
    fill_trits(t, N);
    bnet_put_f32(row, 0.37f);
    for (int i = 0; i < N; i++) {
        int b = i / 64, e = i % 64;
        row[4 + 16 * b + e % 16] |= (uint8_t)((t[i] + 1) << 2 * (e / 16));
        want[i] = (float)t[i] * 0.37f;
    }
    check_parts(BNET_IQ2_BN, row, 64, N, want);
}

/* five trits t0..t4 in one byte: ceil(256 * number / 243), the first trit the most significant */
static uint8_t five(const int8_t *t, int n)
{
    int q = 0;
    for (int i = 0; i < 5; i++)
        q = 3 * q + (i < n ? t[i] + 1 : 0);
    return (uint8_t)((256 * q + 242) / 243);
}

/* The same with the weights 81, 27, ... reversed in the byte, as IQ1_BN has them: trit j counts
 * 3^j. */
static uint8_t five_rising(const int8_t *t, int n)
{
    int8_t r[5] = {-1, -1, -1, -1, -1};
    for (int i = 0; i < n; i++)
        r[4 - i] = t[i];
    return five(r, 5);
}

static void test_iq1_bn(void **state)
{
    (void)state;
    enum { N = 192 };
    uint8_t row[2 + 13 * N / 64] = {0};
    int8_t t[N];
    float want[N], d = bnet_f16_to_f32(bnet_f32_to_f16(1.25f));
    fill_trits(t, N);
    bnet_put_u16(row, bnet_f32_to_f16(1.25f));
    for (int b = 0; b < N / 64; b++) {
        uint8_t *p = row + 2 + 13 * b;
        int8_t last[4];
        for (int g = 0; g < 4; g++) {
            for (int k = 0; k < 3; k++)
                p[3 * g + k] = five_rising(t + 64 * b + 16 * g + 5 * k, 5);
            last[g] = t[64 * b + 16 * g + 15];
        }
        p[12] = five_rising(last, 4);
    }
    for (int i = 0; i < N; i++)
        want[i] = (float)t[i] * d;
    check_parts(BNET_IQ1_BN, row, 64, N, want);
}

static void test_q1_0_and_q2_0(void **state)
{
    (void)state;
    uint8_t one[2 * 18] = {0}, two[4 * 18] = {0};
    float want[256];
    for (int b = 0; b < 2; b++)
        bnet_put_u16(one + 18 * b, bnet_f32_to_f16((float)b + 0.5f));
    for (int i = 0; i < 256; i++) {
        unsigned bit = (unsigned)(test_rand(&seed) % 2);
        one[18 * (i / 128) + 2 + i % 128 / 8] |= (uint8_t)(bit << i % 8);
        want[i] = bit ? (float)(i / 128) + 0.5f : -((float)(i / 128) + 0.5f);
    }
    check_parts(BNET_Q1_0, one, 128, 256, want);
    for (int b = 0; b < 4; b++)
        bnet_put_u16(two + 18 * b, bnet_f32_to_f16((float)b + 0.5f));
    for (int i = 0; i < 256; i++) {
        int code = (int)(test_rand(&seed) % 4);
        two[18 * (i / 64) + 2 + i % 64 / 4] |= (uint8_t)(code << 2 * (i % 4));
        want[i] = (float)(code - 1) * ((float)(i / 64) + 0.5f);
    }
    check_parts(BNET_Q2_0, two, 64, 256, want);
}

/* A type the other file decodes, in parts; and who can be decoded at all. */
/* Scales and minima of six bits: of groups 0 to 3 in the low bits of bytes 0 to 7; of groups 4 to 7
 * four bits in bytes 8 to 11, the other two on top of bytes 0 to 7. */
static void test_q4_k(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        uint8_t b[144] = {0}, scale[8], minimum[8];
        float want[256];
        bnet_put_u16(b, bnet_f32_to_f16(0.5f));
        bnet_put_u16(b + 2, bnet_f32_to_f16(0.25f));
        for (int j = 0; j < 8; j++) {
            uint8_t *low = b + 4 + j % 4;
            scale[j] = (uint8_t)(test_rand(&seed) % 64);
            minimum[j] = (uint8_t)(test_rand(&seed) % 64);
            low[0] |= (uint8_t)(j < 4 ? scale[j] : scale[j] >> 4 << 6);
            low[4] |= (uint8_t)(j < 4 ? minimum[j] : minimum[j] >> 4 << 6);
            low[8] |= (uint8_t)(j < 4 ? 0 : (scale[j] & 15) | (minimum[j] & 15) << 4);
        }
        for (int i = 0; i < 256; i++) {
            unsigned code = (unsigned)(test_rand(&seed) % 16), j = (unsigned)i / 32;
            b[16 + 32 * (i / 64) + i % 32] |= (uint8_t)(code << 4 * (j % 2));
            want[i] = 0.5f * (float)(scale[j] * code) - 0.25f * (float)minimum[j];
        }
        check_parts(BNET_Q4_K, b, 256, 256, want);
    }
}

static void test_iq4_nl(void **state)
{
    (void)state;
    static const float values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    uint8_t b[18];
    float want[32];
    bnet_put_u16(b, bnet_f32_to_f16(0.5f));
    for (int i = 0; i < 16; i++) {
        b[2 + i] = (uint8_t)(i | (15 - i) << 4);
        want[i] = 0.5f * values[i];
        want[16 + i] = 0.5f * values[15 - i];
    }
    check_parts(BNET_IQ4_NL, b, 32, 32, want);
}

static void test_known_types(void **state)
{
    (void)state;
    float x[512], want[512];
    uint8_t bytes[512 / 256 * 210];
    for (int i = 0; i < 512; i++)
        x[i] = (float)((int)(test_rand(&seed) % 2001) - 1000) / 500.0f;
    assert_true(bnet_encode_row(BNET_Q6_K, x, bytes, 512));
    assert_true(bnet_decode_row(BNET_Q6_K, bytes, want, 512));
    check_parts(BNET_Q6_K, bytes, 256, 512, want);
    static const bnet_type yes[] = {BNET_F32,  BNET_F16,    BNET_BF16, BNET_Q8_0,
                                    BNET_Q4_0, BNET_Q6_K,   BNET_Q4_K, BNET_IQ4_NL,
                                    BNET_Q1_0, BNET_IQ1_BN, BNET_Q2_0, BNET_IQ2_BN};
    static const bnet_type no[] = {BNET_I2_S, BNET_Q5_K,      BNET_Q4_1, BNET_TL1,
                                   BNET_TL2,  BNET_IQ2_BN_R4, BNET_I8,   (bnet_type)12345};
    for (size_t i = 0; i < BNET_COUNT(yes); i++)
        assert_true(bnet_can_decode(yes[i]));
    for (size_t i = 0; i < BNET_COUNT(no); i++)
        assert_false(bnet_can_decode(no[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iq2_bn),        cmocka_unit_test(test_iq1_bn),
        cmocka_unit_test(test_q1_0_and_q2_0), cmocka_unit_test(test_q4_k),
        cmocka_unit_test(test_iq4_nl),        cmocka_unit_test(test_known_types),
    };
    return cmocka_run_group_tests_name("codec_extra", tests, NULL, NULL);
}
