/* tensor_stats.h - what the values of a tensor look like, and whether they look wrong. */
#ifndef BNET_TENSOR_STATS_H
#define BNET_TENSOR_STATS_H

#include "bitnet_dev.h"
#include "format/tensor.h"

/* Reads the whole tensor in small steps. A type without a decoder gives zeros and no suspicion. */
void bnet_tensor_stats(const bnet_tensor *t, bitnet_tensor_stats *out);

#endif
