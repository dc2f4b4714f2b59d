/* plain.h - single operations on the CPU, host memory to host memory (bnet_plain of backend.h): one
 * body compiled per instruction set. All sets give the same bits. Pure functions, any thread. */
#ifndef BNET_PLAIN_H
#define BNET_PLAIN_H

#include "ops/inspect.h"
#include "ops/open.h"
#include "ops/reference.h"

typedef struct bnet_plain_fns {
    void (*convert)(bitnet_conversion c, const void *in, size_t n, void *out);
    void (*vector)(bitnet_vector v, const float *x, const float *z, size_t n, float *y);
    void (*softmax)(const float *x, size_t rows, size_t n, float *y);
    void (*argmax)(const float *x, size_t rows, size_t n, int32_t *id);
    /* c[i][j]: products added in the order of k, each sum rounded once */
    void (*matmul)(const float *a, const float *b, float *c, size_t m, size_t n, size_t k);
} bnet_plain_fns;

extern const bnet_plain_fns bnet_plain_scalar;
#if defined(__aarch64__)
extern const bnet_plain_fns bnet_plain_neon;
#elif defined(__x86_64__)
extern const bnet_plain_fns bnet_plain_avx2;
#endif

#endif
