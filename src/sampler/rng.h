/* rng.h - random numbers as a function of (seed, counter): no state but the counter, integers only,
 * the same on every machine. Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011). */
#ifndef BNET_RNG_H
#define BNET_RNG_H

#include <stdint.h>

/* One block: 128 bits of counter enciphered under a 64-bit key. */
void bnet_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The counter-th 64 random bits of the stream `seed`. */
uint64_t bnet_random(uint64_t seed, uint64_t counter);
/* Scales 64 random bits to [0, n): the high half of bits * n. The bias is below n / 2^64. */
uint64_t bnet_random_below(uint64_t bits, uint64_t n);

#endif
