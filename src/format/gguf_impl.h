/* gguf_impl.h - what the files of the GGUF reader share: the open file, and a cursor that cannot
 * leave it. */
#ifndef BNET_GGUF_IMPL_H
#define BNET_GGUF_IMPL_H

#include "format/gguf.h"

/* Limits; all stricter than what a file could hold, none reached by a sane one. */
#define GGUF_MAX_KEYS      65536u
#define GGUF_MAX_TENSORS   65536u
#define GGUF_MAX_KEY_BYTES 65535u
#define GGUF_MAX_ARRAY     (UINT64_C(1) << 30)
#define GGUF_MAX_ALIGNMENT (1u << 20)
#define GGUF_NAME_CAP      64 /* of a tensor name, its NUL counted */
#define GGUF_MIN_KEY       14 /* bytes of the smallest record: length 8, key 1, type 4, value 1 */
#define GGUF_MIN_TENSOR    33 /* length 8, name 1, n_dims 4, dim 8, type 4, offset 8 */

/* What to do about a file that ends too early. */
#define GGUF_CUT "; the file is cut or damaged: download or copy it again"

/* A key or name and its place in the file's order, sorted by bytes for lookup and to find
 * duplicates. */
typedef struct gguf_ref {
    bnet_span name;
    uint32_t index;
} gguf_ref;

typedef struct gguf_tensor {
    bnet_tensor t;
    char name[GGUF_NAME_CAP];
} gguf_tensor;

struct bnet_gguf {
    char *path;
    char label[256]; /* the path in messages: its end if it is very long */
    bnet_map map;    /* owned; empty if the caller keeps the bytes */
    const uint8_t *data;
    uint64_t n_bytes;
    uint32_t version;
    uint64_t alignment, data_start;
    size_t n_kv, n_tensors;
    bnet_gguf_kv *kv;
    gguf_tensor *tensors;
    gguf_ref *kv_refs, *tensor_refs;
};

/* Where the reader is, and in which record, so that any failure can say so. */
typedef struct gguf_cursor {
    const bnet_gguf *g;
    bitnet_error *err;
    const bnet_log *log;
    uint64_t pos;
    const char *section; /* "header", "key", "tensor" */
    uint64_t index, n;   /* record number and how many there are */
    bnet_span name;      /* once known */
    uint64_t promised;   /* bytes of the whole file, where it is shorter; else 0 */
} gguf_cursor;

/* "<file>: key general.name: <text> (offset 0x1f)"; status is MODEL. A file known to be cut says so
 * first. */
bitnet_status bnet_gguf_fail_at(const gguf_cursor *c, uint64_t at, const char *fmt, ...)
    BITNET_PRINTF(3, 4);
bitnet_status bnet_gguf_take(gguf_cursor *c, uint64_t n, const char *what, const uint8_t **out);
bitnet_status bnet_gguf_take_u32(gguf_cursor *c, const char *what, uint32_t *out);
bitnet_status bnet_gguf_take_u64(gguf_cursor *c, const char *what, uint64_t *out);
/* A length and the 1..max bytes of a key or name, none of them NUL; they become c->name. */
bitnet_status bnet_gguf_take_name(gguf_cursor *c, const char *what, uint64_t max);

/* gguf_kv.c: the n_kv records from the cursor on; gguf_tensors.c: infos, then sizes and places. */
bitnet_status bnet_gguf_read_keys(bnet_gguf *g, gguf_cursor *c);
bitnet_status bnet_gguf_read_infos(bnet_gguf *g, gguf_cursor *c);
bitnet_status bnet_gguf_place_tensors(bnet_gguf *g, gguf_cursor *c);
uint32_t bnet_gguf_elem_bytes(bnet_gguf_vtype t); /* 0 for strings and arrays */
const char *bnet_gguf_vtype_name(bnet_gguf_vtype t);

#endif
