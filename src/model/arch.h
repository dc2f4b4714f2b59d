/* arch.h - hyper-parameters from metadata. */
#ifndef BNET_ARCH_H
#define BNET_ARCH_H

#include "model/model.h"

#define BNET_HEAD_DIM_MAX 1024

/* Everything but n_vocab, sub_norms and tied_head, which the tensors decide (weights.c). */
bitnet_status bnet_hparams_read(const bnet_gguf *g, bnet_hparams *out, bitnet_error *err);
const char *bnet_arch_at(int i); /* supported architectures; NULL past the end */

#endif
