/* tensor.h - what a tensor is on disk: its type table and its view into a mapped file.
 * Hides: type ids, block sizes, names. */
#ifndef BNET_TENSOR_H
#define BNET_TENSOR_H

#include "base/base.h"

typedef enum bnet_type {
#define TYPE(id, NAME, block, bytes, kind) BNET_##NAME = id,
#include "format/tensor_types.inc"
#undef TYPE
} bnet_type;

typedef enum bnet_type_kind {
    BNET_KIND_FLOAT,
    BNET_KIND_BLOCK,
    BNET_KIND_TERNARY,
    BNET_KIND_NAMED
} bnet_type_kind;

typedef struct bnet_type_info {
    bnet_type type;
    const char *name;
    uint32_t n_elems, n_bytes; /* per block */
    bnet_type_kind kind;
} bnet_type_info;

const bnet_type_info *bnet_type_find(uint32_t id);         /* NULL: unknown */
const bnet_type_info *bnet_type_by_name(const char *name); /* case-insensitive; NULL: unknown */
/* Whether its row of tensor_types.inc says TERNARY: a matrix of it takes int8 activations. */
bool bnet_type_is_ternary(bnet_type t);
/* Bytes of `n_rows` rows of `n_cols` elements; false if the shape does not fit the type or
 * overflows. */
bool bnet_type_bytes(bnet_type t, uint64_t n_cols, uint64_t n_rows, uint64_t *out);

#define BNET_MAX_DIMS 4

/* A tensor of an open file. All pointers are borrowed from the file. */
typedef struct bnet_tensor {
    const char *name; /* NUL-terminated */
    uint32_t n_dims;
    uint64_t ne[BNET_MAX_DIMS]; /* innermost first; missing ones are 1 */
    bnet_type type;
    const uint8_t *data;
    uint64_t n_bytes; /* as the type says */
    uint64_t offset;  /* of data in the file */
    uint64_t n_span;  /* bytes up to the next tensor or the end: tells I2_S flavours apart */
} bnet_tensor;

static inline uint64_t bnet_tensor_elems(const bnet_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; /* the reader checked the product */
}

#endif
