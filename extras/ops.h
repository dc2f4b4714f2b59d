/* ops.h - the inside of bitnet_ops, shared by the files with its calls. */
#ifndef BITNET_EXTRAS_OPS_H
#define BITNET_EXTRAS_OPS_H

#include "check.h"

/* n operations that do not need each other, counted and timed. o NULL: by the scalar functions of
 * the CPU. */
bitnet_status bnetx_run(bitnet_ops *o, bitnet_single_op *ops, size_t n, bitnet_error *err);
bool bnetx_on_device(bitnet_ops *o);

#endif
