/* null.h - the backend that forwards everything to the CPU, counting. */
#ifndef BNET_NULL_H
#define BNET_NULL_H

#include "ops/inspect.h"
#include "ops/open.h"

#define BNET_NULL_NAME "null(cpu)"

bitnet_status bnet_null_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);
const bnet_kernel_record *bnet_null_kernel_rows(size_t *n);
/* Operations that went through it. */
uint64_t bnet_null_ops(const bnet_backend *be);

#endif
