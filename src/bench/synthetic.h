/* synthetic.h - random weights into a GGUF file that has its header already. */
#ifndef BNET_SYNTHETIC_H
#define BNET_SYNTHETIC_H

#include "engine/engine.h"
#include "bitnet_tools.h"

/* Fills every tensor of the file at `data`; those that are neither I2_S nor vectors are of type
 * `head` and have rows of n_embd values. Fails: ARGUMENT (the type has no such rows), MEMORY. */
bitnet_status bnet_synthetic_fill(uint8_t *data, size_t n_bytes, bnet_type head, int n_embd,
                                  bitnet_error *err);

/* The path under which this process can open the file while the object is open. */
enum { BNET_SYNTHETIC_PATH = 48 };
void bnet_synthetic_path(const bitnet_synthetic *m, char out[BNET_SYNTHETIC_PATH]);

#endif
