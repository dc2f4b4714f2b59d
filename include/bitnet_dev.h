/* bitnet_dev.h - for tools and kernel authors: looking into model files, listing kernels.
 * Same rules as bitnet.h (errors, ownership, threads), but no promise of stability between
 * versions. */
#ifndef BITNET_DEV_H
#define BITNET_DEV_H

#include "bitnet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- inspect: any GGUF file, also one we cannot run ---- */

typedef struct bitnet_inspect bitnet_inspect;

typedef struct bitnet_inspect_kv {
    const char *key;   /* NUL-terminated, borrowed until _close */
    const char *type;  /* "u32", "string", "array of string", ... */
    const char *value; /* as text; long arrays are cut with a count */
} bitnet_inspect_kv;

typedef struct bitnet_inspect_tensor {
    const char *name;
    const char *type; /* "I2_S" */
    uint32_t n_dims;
    uint64_t dims[4]; /* innermost first */
    uint64_t n_elems, n_bytes, offset;
} bitnet_inspect_tensor;

/* Found by reading the data. */
typedef struct bitnet_tensor_stats {
    double min, max, mean, rms;
    uint64_t n_nan, n_inf, n_zero;
    uint64_t n_minus, n_plus, n_invalid; /* ternary types: -1, +1, code 3 */
    float scale;                         /* I2_S; else 0 */
    bool ternary;
    char suspicious[160]; /* "" or what is wrong: "scale is nan", "all zero", "12 codes are 3" */
} bitnet_tensor_stats;

BITNET_API bitnet_status bitnet_inspect_open(const char *path, bitnet_inspect **out,
                                             bitnet_error *err);
BITNET_API void bitnet_inspect_close(bitnet_inspect *inspect);
BITNET_API uint32_t bitnet_inspect_version(const bitnet_inspect *inspect);
BITNET_API uint64_t bitnet_inspect_file_bytes(const bitnet_inspect *inspect);
BITNET_API size_t bitnet_inspect_n_kv(const bitnet_inspect *inspect);
BITNET_API size_t bitnet_inspect_n_tensors(const bitnet_inspect *inspect);
/* False past the end or without memory. */
BITNET_API bool bitnet_inspect_kv_at(bitnet_inspect *inspect, size_t i, bitnet_inspect_kv *out);
BITNET_API bool bitnet_inspect_tensor_at(bitnet_inspect *inspect, size_t i,
                                         bitnet_inspect_tensor *out);
/* Reads the whole tensor. Fails: ARGUMENT, MEMORY; a type without a decoder gives zeros and
 * suspicious "". */
BITNET_API bitnet_status bitnet_inspect_stats(bitnet_inspect *inspect, size_t i,
                                              bitnet_tensor_stats *out, bitnet_error *err);
/* SHA-256 of a file as 64 hex digits and a NUL. */
BITNET_API bitnet_status bitnet_file_sha256(const char *path, char hex[65], bitnet_error *err);

/* ---- what can be run ---- */

/* The i-th value of general.architecture that an engine opens, or NULL past the end. */
BITNET_API const char *bitnet_architecture_list(int i);

/* ---- kernels ---- */

typedef struct bitnet_kernel_info {
    const char *id;     /* "linear_i2s.dotprod" */
    const char *op;     /* "linear" */
    const char *format; /* "i2s" */
    const char *isa;    /* "dotprod" */
    bool available;     /* this CPU has the instruction set */
} bitnet_kernel_info;

/* The i-th compiled kernel row, best first within an op; false past the end. */
BITNET_API bool bitnet_kernel_at(int i, bitnet_kernel_info *out);

#ifdef __cplusplus
}
#endif
#endif
