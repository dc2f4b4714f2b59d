/* rng.c - the generator. Ten rounds of two 32x32->64 multiplications; the halves trade places and
 * are mixed with a key that walks by two odd constants. */
#include "sampler/rng.h"

enum { ROUNDS = 10 };

void bnet_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0;
        uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t bnet_random(uint64_t seed, uint64_t counter)
{
    const uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    bnet_philox(c, key, out);
    return out[0] | (uint64_t)out[1] << 32;
}

uint64_t bnet_random_below(uint64_t bits, uint64_t n)
{
    uint64_t lo = (bits & 0xffffffffu) * (n & 0xffffffffu);
    uint64_t m1 = (bits >> 32) * (n & 0xffffffffu) + (lo >> 32);
    uint64_t m2 = (bits & 0xffffffffu) * (n >> 32) + (m1 & 0xffffffffu);
    return (bits >> 32) * (n >> 32) + (m1 >> 32) + (m2 >> 32);
}
