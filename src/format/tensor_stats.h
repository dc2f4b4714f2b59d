/* tensor_stats.h - what the values of a tensor look like, and whether they look wrong. */
#ifndef BNET_TENSOR_STATS_H
#define BNET_TENSOR_STATS_H

#include "base/progress.h"
#include "bitnet_tools.h"
#include "format/tensor.h"

/* Reads the whole tensor in small steps; progress (may be NULL) gets its bytes. A type without a
 * decoder gives zeros and no suspicion. False: the caller cancelled, and *out is meaningless. */
bool bnet_tensor_stats(const bnet_tensor *t, bnet_progress *progress, bitnet_tensor_stats *out);

#endif
