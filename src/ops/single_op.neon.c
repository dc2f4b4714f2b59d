/* single_op.neon.c - single operations for neon. */
#include "ops/single_op_body.h"

SINGLE_FNS(neon)
