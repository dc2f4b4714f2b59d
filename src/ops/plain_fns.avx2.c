/* plain_fns.avx2.c - single operations for avx2. */
#include "ops/plain_body.h"

PLAIN_FNS(avx2);
