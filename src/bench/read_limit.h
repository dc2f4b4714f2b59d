/* read_limit.h - how fast tokens could come at most: every weight is read once per token. */
#ifndef BNET_READ_LIMIT_H
#define BNET_READ_LIMIT_H

#include "engine/engine.h"

/* Bytes of weights one token reads, as the backend holds them. */
uint64_t bnet_weight_bytes(const bnet_gguf *g, const bnet_hparams *h);
uint64_t bnet_weight_bytes_per_token(const bitnet_engine *e);
/* GB/s at which the runtime's threads read the model's bytes, or the first 256 MB of them: from the
 * caches if they fit there, as a run does. Takes some 50 ms. */
double bnet_read_limit(const bitnet_engine *e);

#endif
