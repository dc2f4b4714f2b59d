/* single_op.h - single operations on the CPU, host memory to host memory (bitnet_single_op): one
 * body compiled per instruction set. All sets give the same bits. Pure functions, any thread. */
#ifndef BNET_SINGLE_OP_H
#define BNET_SINGLE_OP_H

#include "ops/inspect.h"
#include "ops/open.h"
#include "ops/reference.h"

typedef struct bnet_single_fns {
    void (*convert)(bitnet_conversion c, const void *in, size_t n, void *out);
    void (*vector)(bitnet_vector v, const float *x, const float *z, size_t n, float *y);
    void (*softmax)(const float *x, size_t rows, size_t n, float *y);
    void (*argmax)(const float *x, size_t rows, size_t n, int32_t *id);
    /* c[i][j]: products added in the order of k, each sum rounded once */
    void (*matmul)(const float *a, const float *b, float *c, size_t m, size_t n, size_t k);
} bnet_single_fns;

extern const bnet_single_fns bnet_single_scalar;
#if defined(__aarch64__)
extern const bnet_single_fns bnet_single_neon;
#elif defined(__x86_64__)
extern const bnet_single_fns bnet_single_avx2, bnet_single_avx512;
#endif

#endif
