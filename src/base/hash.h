/* hash.h - SipHash-1-3 (Aumasson and Bernstein) under a secret key, for tables whose keys come from
 * files. Without the key nobody can choose texts that collide, whatever the file says. The value
 * of a hash differs from process to process: nothing that is printed or stored may depend on it. */
#ifndef BNET_HASH_H
#define BNET_HASH_H

#include "base/base.h"

typedef struct bnet_hash_key {
    uint64_t k0, k1;
} bnet_hash_key;

/* A key from the kernel's random numbers; from the clock and addresses where it has none. */
bnet_hash_key bnet_hash_key_new(void);

typedef struct bnet_sip {
    uint64_t v0, v1, v2, v3;
} bnet_sip;

static inline uint64_t bnet_rotl64(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void bnet_sip_round(bnet_sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = bnet_rotl64(s->v1, 13) ^ s->v0;
    s->v3 = bnet_rotl64(s->v3, 16) ^ s->v2;
    s->v0 = bnet_rotl64(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v3 = bnet_rotl64(s->v3, 21) ^ s->v0;
    s->v1 = bnet_rotl64(s->v1, 17) ^ s->v2;
    s->v2 = bnet_rotl64(s->v2, 32);
}

static inline bnet_sip bnet_sip_begin(bnet_hash_key key)
{
    return (bnet_sip){key.k0 ^ 0x736f6d6570736575u, key.k1 ^ 0x646f72616e646f6du,
                      key.k0 ^ 0x6c7967656e657261u, key.k1 ^ 0x7465646279746573u};
}

static inline void bnet_sip_word(bnet_sip *s, uint64_t word)
{
    s->v3 ^= word;
    bnet_sip_round(s);
    s->v0 ^= word;
}

static inline uint64_t bnet_sip_end(bnet_sip *s)
{
    s->v2 ^= 0xff;
    bnet_sip_round(s);
    bnet_sip_round(s);
    bnet_sip_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* The n bytes at s as a little-endian number; n < 8. `room`: the 8 bytes before s may be read. */
static inline uint64_t bnet_sip_tail(const char *s, size_t n, bool room)
{
    if (room)
        return bnet_u64(s + n - 8) >> 8 * (7 - n) >> 8;
    if (n >= 4)
        return bnet_u32(s) | (uint64_t)bnet_u32(s + n - 4) << 8 * (n - 4);
    if (n == 0)
        return 0;
    return (uint64_t)(unsigned char)s[0] | (uint64_t)(unsigned char)s[n / 2] << 8 * (n / 2) |
           (uint64_t)(unsigned char)s[n - 1] << 8 * (n - 1);
}

/* Feeds n bytes, the last word with the low byte of n on top. */
static inline void bnet_sip_bytes(bnet_sip *sip, const char *s, size_t n, bool room)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8)
        bnet_sip_word(sip, bnet_u64(s + i));
    bnet_sip_word(sip, (uint64_t)n << 56 | bnet_sip_tail(s + i, n - i, room));
}

/* SipHash-1-3 of n bytes. `room` (faster): the 8 bytes before them may be read. */
static inline uint64_t bnet_hash(bnet_hash_key key, const char *s, size_t n, bool room)
{
    bnet_sip sip = bnet_sip_begin(key);
    bnet_sip_bytes(&sip, s, n, room);
    return bnet_sip_end(&sip);
}

/* The hash of an ordered pair of texts. Where one of them has 8 bytes or more, a word that no text
 * of less than 8 bytes makes says where the first one ends, so that no two pairs are fed alike. */
static inline uint64_t bnet_hash_pair(bnet_hash_key key, const char *a, size_t n_a, const char *b,
                                      size_t n_b, bool room)
{
    bnet_sip sip = bnet_sip_begin(key);
    if ((n_a | n_b) >= 8)
        bnet_sip_word(&sip, (uint64_t)0xff << 56 | n_a);
    bnet_sip_bytes(&sip, a, n_a, room);
    bnet_sip_bytes(&sip, b, n_b, room);
    return bnet_sip_end(&sip);
}

#endif
