/* safetensors.h - checkpoints as named tensors over mapped files.
 * Hides: the header's JSON, offsets, shards and their index.
 *
 * Invariants of an open file: names are unique; every tensor's bytes equal its shape times its
 * element size; the tensors cover the data part exactly, without overlap or hole. */
#ifndef BNET_SAFETENSORS_H
#define BNET_SAFETENSORS_H

#include "base/file.h"
#include "base/str.h"

/* name, bytes per element */
#define BNET_ST_DTYPE_MAP(X)                                                                       \
    X(BOOL, 1)                                                                                     \
    X(U8, 1) X(I8, 1) X(F8_E5M2, 1) X(F8_E4M3, 1) X(I16, 2) X(U16, 2) X(F16, 2) X(BF16, 2)         \
        X(I32, 4) X(U32, 4) X(F32, 4) X(I64, 8) X(U64, 8) X(F64, 8)

typedef enum bnet_st_dtype {
#define BNET_ST_ENUM(name, size) BNET_ST_##name,
    BNET_ST_DTYPE_MAP(BNET_ST_ENUM)
#undef BNET_ST_ENUM
} bnet_st_dtype;

#define BNET_ST_MAX_DIMS 8

typedef struct bnet_st_tensor {
    char *name;       /* NUL-terminated, owned by the file */
    const char *path; /* of the file it lies in, borrowed from the file */
    bnet_st_dtype dtype;
    uint32_t n_dims;
    uint64_t shape[BNET_ST_MAX_DIMS]; /* outermost first */
    uint64_t begin, end;              /* bytes of the data part */
    const uint8_t *data;
} bnet_st_tensor;

typedef struct bnet_st_file {
    char *path;
    bnet_map map;            /* empty for _parse */
    bnet_st_tensor *tensors; /* in the order of their data */
    size_t n_tensors, cap;
} bnet_st_file;

const char *bnet_st_dtype_name(bnet_st_dtype t);
/* "[128, 256]" */
const char *bnet_st_shape_text(const bnet_st_tensor *t, char *buf, size_t cap);

/* Reads the header of the n bytes of a whole file, which the caller keeps; `path` stands in
 * messages. On failure *out is empty. */
bitnet_status bnet_st_parse(const uint8_t *data, size_t n, const char *path, bnet_st_file *out,
                            bitnet_error *err);
bitnet_status bnet_st_open(const char *path, bnet_st_file *out, bitnet_error *err);
void bnet_st_close(bnet_st_file *f);

/* A directory's model.safetensors, or the shards that its model.safetensors.index.json lists. */
typedef struct bnet_checkpoint {
    bnet_st_file *files;
    size_t n_files, cap_files;
    bnet_st_tensor **tensors; /* of all files */
    bool *used;               /* [n_tensors] marked by _find */
    size_t n_tensors;
    bnet_strmap by_name;
} bnet_checkpoint;

bitnet_status bnet_checkpoint_open(const char *dir, bnet_checkpoint *out, bitnet_error *err);
void bnet_checkpoint_close(bnet_checkpoint *c);
/* NULL: absent. Marks the tensor as used. */
const bnet_st_tensor *bnet_checkpoint_find(bnet_checkpoint *c, const char *name);
/* The file to name where a tensor is missing: the only one, or the directory's index. */
const char *bnet_checkpoint_path(const bnet_checkpoint *c);

#endif
