/* single_op.avx2.c - single operations for avx2. */
#include "ops/single_op_body.h"

SINGLE_FNS(avx2)
