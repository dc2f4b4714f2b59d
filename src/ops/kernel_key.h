/* kernel_key.h - what a kernel is chosen by, besides its device: operation, format and activations.
 * Code compares the enums; names appear only where people or files meet them (queries, listings,
 * receipts, tuning files), by the functions below. */
#ifndef BNET_KERNEL_KEY_H
#define BNET_KERNEL_KEY_H

#include "format/tensor.h"

typedef enum bnet_op {
    BNET_OP_NONE,
#define OP(key, name) BNET_OP_##key,
#include "ops/ops.inc"
#undef OP
    BNET_OPS
} bnet_op;

typedef enum bnet_format {
    BNET_FORMAT_NONE,
#define FORMAT(key, name) BNET_FORMAT_##key,
#include "ops/formats.inc"
#undef FORMAT
    BNET_FORMATS
} bnet_format;

typedef enum bnet_dtype {
    BNET_DTYPE_NONE,
#define DTYPE(key, name) BNET_DTYPE_##key,
#include "ops/dtypes.inc"
#undef DTYPE
    BNET_DTYPES
} bnet_dtype;

/* A set of operations: bits 1 << bnet_op. */
typedef uint64_t bnet_op_set;
#define BNET_OP_BIT(key) (UINT64_C(1) << BNET_OP_##key)

/* "linear", "i2s", "i8"; "" for NONE and for what is out of range. */
const char *bnet_op_name(bnet_op op);
const char *bnet_format_name(bnet_format f);
const char *bnet_dtype_name(bnet_dtype d);
/* The operations that one call does: op itself, or those it is made of. */
bnet_op_set bnet_op_parts(bnet_op op);
/* The value of a name, which is compared exactly; NONE if nothing is called so, or for NULL. */
bnet_op bnet_op_find(const char *name);
bnet_format bnet_format_find(const char *name);
bnet_dtype bnet_dtype_find(const char *name);

/* The format of rows as they lie in a file. */
bnet_format bnet_format_of_type(bnet_type t);
/* The tensor type of a format; NULL: it is none. */
const bnet_type_info *bnet_format_type(bnet_format f);
/* Rows of trits, with one scale or several. */
bool bnet_format_ternary(bnet_format f);

#endif
