/* plan.h - what a conversion will write: a list of tensors, each with where its values come from.
 * Making the plan checks everything that can be checked without reading weights; carrying it out
 * streams rows. Hides: row blocks, dequantisation, absmean, row order, output encodings. */
#ifndef BNET_CONVERT_PLAN_H
#define BNET_CONVERT_PLAN_H

#include "convert/convert.h"
#include "format/gguf.h"

typedef enum bnet_item_kind {
    BNET_ITEM_FLOAT,  /* values are written as they are */
    BNET_ITEM_PACKED, /* 2-bit codes, a quarter of the rows per bit pair; value = trit * scale */
    BNET_ITEM_MASTER, /* values are made ternary by absmean of the whole tensor */
} bnet_item_kind;

typedef struct bnet_item {
    char name[64]; /* in the output */
    bnet_item_kind kind;
    bnet_type type; /* in the output */
    uint32_t n_dims;
    uint64_t n_rows, n_cols;
    bnet_type source_type; /* F32, F16 or BF16, unless packed */
    const uint8_t *data;   /* borrowed from a map that outlives the plan */
    float scale;           /* packed */
    uint32_t n_heads; /* not 0: rows of each head are reordered from halves to adjacent pairs */
    const char *path; /* of the input, for messages */
    char *source;     /* name in the input, owned */
} bnet_item;

typedef struct bnet_plan {
    bnet_item *items;
    size_t n_items, cap;
    const bnet_convert_options *options;
} bnet_plan;

/* Takes a copy of *item; source_name is copied. Fails ARGUMENT with a remedy where the shape does
 * not fit the type. */
bitnet_status bnet_plan_add(bnet_plan *p, const bnet_item *item, const char *source_name,
                            bitnet_error *err);
void bnet_plan_free(bnet_plan *p);
/* Writes the data of every item in order. Fails MODEL (a code 3, NaN, a value the type cannot
 * hold), IO, CANCELLED. */
bitnet_status bnet_plan_emit(const bnet_plan *p, bnet_gguf_writer *w, bitnet_error *err);

/* Hyper-parameters common to every input, put as keys in the order of published files. */
typedef struct bnet_shape {
    const char *arch, *name, *activation;
    const char *repository; /* "" or "owner/model" */
    uint32_t n_vocab, n_ctx, n_embd, n_layers, n_ff, head_dim, n_heads, n_kv_heads;
    bool key_length; /* head_dim differs from width / heads: readers need to be told */
    float eps, rope_base;
} bnet_shape;

struct bnet_vocab;
/* Keys, tensors, file: the last leg of every conversion. */
bitnet_status bnet_plan_write(const bnet_plan *p, const bnet_shape *shape, struct bnet_vocab *vocab,
                              const char *out, bitnet_error *err);

/* The two inputs (hf.c, llama2c.c). */
bitnet_status bnet_convert_hf(const char *dir, const char *out, const bnet_convert_options *options,
                              bitnet_error *err);
bitnet_status bnet_convert_llama2c(const char *path, const char *out,
                                   const bnet_convert_options *options, bitnet_error *err);

#endif
