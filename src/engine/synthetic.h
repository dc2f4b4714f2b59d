/* synthetic.h - random weights into a GGUF file that has its header already. */
#ifndef BNET_SYNTHETIC_H
#define BNET_SYNTHETIC_H

#include "engine/engine.h"

/* Fills every tensor of the file at `data`; those that are neither I2_S nor vectors are of type
 * `head` and have rows of n_embd values. Fails: ARGUMENT (such rows cannot be), MEMORY. */
bitnet_status bnet_synthetic_fill(uint8_t *data, size_t n_bytes, bnet_type head, int n_embd,
                                  bitnet_error *err);

#endif
