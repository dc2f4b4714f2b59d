/* plain_fns.neon.c - single operations for neon. */
#include "ops/plain_body.h"

PLAIN_FNS(neon);
