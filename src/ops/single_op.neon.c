/* single_op.neon.c - single operations for neon. */
#include "ops/quantize_body.h"
#include "ops/single_op_body.h"

SINGLE_FNS(neon)
QUANTIZE_FN(neon)
