/* single_op.avx2.c - single operations for avx2. */
#include "ops/quantize_body.h"
#include "ops/single_op_body.h"

SINGLE_FNS(avx2)
QUANTIZE_FN(avx2)
