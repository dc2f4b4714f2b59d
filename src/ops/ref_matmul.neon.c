/* ref_matmul.neon.c - matmul_i2s for neon. */
#include "ops/ref_matmul.h"

void bnet_ref_matmul_neon(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n, size_t k)
{
    ref_matmul(a, b, c, m, n, k);
}
