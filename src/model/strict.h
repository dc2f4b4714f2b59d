/* strict.h - weights that look damaged. */
#ifndef BNET_STRICT_H
#define BNET_STRICT_H

#include "base/progress.h"
#include "format/gguf.h"

/* Reads every tensor; progress (may be NULL) gets its bytes. Fails SUSPICIOUS naming the first few
 * that look wrong, and how many do. */
bitnet_status bnet_strict_weights(const bnet_gguf *g, bnet_progress *progress, bitnet_error *err);
/* Compares root mean squares with the ranges of a policy file. Fails: SUSPICIOUS, IO, ARGUMENT
 * (malformed, naming the place). A model no policy of the file speaks of passes with a warning. */
bitnet_status bnet_policy_check(const char *path, const bnet_gguf *g, const bnet_log *log,
                                bnet_progress *progress, bitnet_error *err);

#endif
