/* weight_rows.h - the one reader of weights: from a tensor of any supported type to checked rows
 * that every backend packs from. Hides: the packings of I2_S, TQ blocks, ternary weights stored as
 * floats, when one scale can serve a tensor, and what a damaged file looks like. */
#ifndef BNET_WEIGHT_ROWS_H
#define BNET_WEIGHT_ROWS_H

#include "base/thread.h"
#include "format/codec.h"

/* Where a weight comes from. Everything is borrowed. */
typedef struct bnet_weight_source {
    const bnet_tensor *tensor;
    const char *file;         /* for messages */
    bitnet_i2s_layout layout; /* of I2_S */
    bool ternarise;           /* a float matrix must turn out ternary (bitnet architectures) */
    float extra_scale;        /* multiplies the scale (separate ".scale" tensors); 1 if none */
} bnet_weight_source;

/* A matrix that takes int8 activations. */
static inline bool bnet_weight_is_ternary(const bnet_weight_source *s)
{
    bnet_type t = s->tensor->type;
    return s->tensor->n_dims > 1 && (bnet_type_is_ternary(t) || bnet_type_is_bn(t) || s->ternarise);
}

typedef enum bnet_rows_form {
    BNET_ROWS_VECTOR,  /* one row of n_in floats */
    BNET_ROWS_TERNARY, /* canonical I2_S: 128 weights in 32 bytes, codes 0, 1, 2 for -1, 0, +1;
                          rows are padded to whole groups of 128 with code 1 */
    BNET_ROWS_STORED,  /* as the type stores them; bnet_decode_part reads them */
} bnet_rows_form;

typedef struct bnet_weight_rows {
    bnet_rows_form form;
    bnet_type type; /* in the file */
    uint64_t n_in, n_out;
    bool ternary; /* bnet_weight_is_ternary, whatever the form */
    bool damaged; /* a warning was logged: invalid codes or scales that are not positive */
    const uint8_t *data;
    size_t row_bytes;    /* from one row to the next */
    float scale;         /* of a ternary matrix; 0 with block_scales. BNET_ROWS_STORED: what
                            multiplies products of the decoded values */
    float *block_scales; /* [n_out][n_in / 256] where the scales of a ternary matrix differ; NULL */
    uint8_t *owned;      /* what data points into; NULL: the tensor's bytes */
} bnet_weight_rows;

/* Reads and checks a weight, with the threads of `pool`. Codes of 3 become 0 and scales that are
 * not positive are kept, each with a warning. `device` names the backend in messages.
 * Requires that the tensor's bytes outlive the rows: most forms point into them.
 * Fails with MODEL (a type no decoder knows, a scale that is not finite, a matrix that should be
 * ternary and is not) or MEMORY; then *out is empty. */
bitnet_status bnet_weight_rows_read(const bnet_weight_source *s, const char *device,
                                    bnet_pool *pool, const bnet_log *log, bnet_weight_rows *out,
                                    bitnet_error *err);
void bnet_weight_rows_free(bnet_weight_rows *rows);
/* Rows [first, first + n) of a matrix, borrowed: not to be freed. */
bnet_weight_rows bnet_weight_rows_part(const bnet_weight_rows *rows, uint64_t first, uint64_t n);

#endif
