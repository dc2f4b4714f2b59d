/* single_op.scalar.c - single operations for scalar. */
#include "ops/single_op_body.h"

SINGLE_FNS(scalar)
