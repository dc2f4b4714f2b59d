/* plain_fns.scalar.c - single operations for scalar. */
#include "ops/plain_body.h"

PLAIN_FNS(scalar);
