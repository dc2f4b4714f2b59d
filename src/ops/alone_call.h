/* alone_call.h - a call of one kernel that otherwise serves inside whole passes. Part of the
 * contract of backend.h, for validation. */
#ifndef BNET_ALONE_CALL_H
#define BNET_ALONE_CALL_H

#include "base/base.h"

/* A call of one kernel that otherwise runs only inside whole passes, so that it can be checked. The
 * members that each op reads -> writes; it ignores the others:
 *   norm_quantize, norm_tiles  x [m][n], w (of the norm), eps -> act, its rows as elsewhere
 *   linear_tiles               act [m], w, way: which of the row's kernels, from 1; 0: the one for
 *                              the shape -> y [m][N]
 *   rope_append                step, rope, cs, x (queries; NULL: none), k, v -> x, layer 0 of the
 *                              cache
 *   prefill                    step, x (queries), cs, rope (cs NULL: queries are rotated), the
 *                              cache's layer 0 -> y
 *   topk                       x [m][n] -> y [m][BNET_BEST], ids [m][BNET_BEST], -1: no more
 *   best                       x [m][K], w -> y, ids: topk of its product with the head w [n][K]
 *   step                       step -> ids [3][T]: ids, positions, timelines as kernels see them */
typedef struct bnet_alone {
    const struct bnet_kernel_record *kernel;
    const struct bnet_step *step;
    const struct bnet_rope *rope;
    const struct bnet_weight *w;
    struct bnet_buffer *x, *k, *v, *cs, *y, *ids;
    const struct bnet_act8 *act;
    int m, n_heads, way;
    size_t n;
    float eps;
} bnet_alone;

#endif
