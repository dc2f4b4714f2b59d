/* single_op.avx512.c - single operations for avx512. */
#include "ops/quantize_body.h"
#include "ops/single_op_body.h"

SINGLE_FNS(avx512)
QUANTIZE_FN(avx512)
