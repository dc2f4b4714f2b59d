/* refops.h - checks that the reference operations share with those on a device. */
#ifndef BNET_REFOPS_H
#define BNET_REFOPS_H

#include "bitnet_extras.h"

/* _order: all items checked, sorted by shape. */
bitnet_status bnet_matmul_check(const bitnet_matmul *item, bitnet_error *err);
bitnet_status bnet_matmul_order(const bitnet_matmul *items, size_t n_items,
                                const bitnet_matmul ***out, bitnet_error *err);
bitnet_status bnet_qk256_check(size_t n_w, const float *scales, size_t n_scales, size_t rows,
                               size_t cols, bitnet_code_map map, bitnet_error *err);

#endif
