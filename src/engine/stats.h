/* stats.h - what an engine counts, for the files that tell of it. */
#ifndef BNET_STATS_H
#define BNET_STATS_H

#include "engine/engine.h"

/* Every kernel both backends of an engine have called, each id once. `out` holds BNET_KERNELS_MAX.
 */
size_t bnet_engine_uses(const bitnet_engine *e, bitnet_kernel_use *out);

#endif
