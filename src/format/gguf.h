/* gguf.h - GGUF files: a reader over mapped bytes that trusts nothing, and a writer.
 *
 * Invariants of an open file: every key and tensor name is unique; every string, array and tensor
 * lies inside the file; every tensor's type is in tensor_types.inc and its size was computed with
 * checked arithmetic; no two tensors overlap. */
#ifndef BNET_GGUF_H
#define BNET_GGUF_H

#include "base/file.h"
#include "base/str.h"
#include "format/tensor.h"

typedef enum bnet_gguf_vtype {
    BNET_GGUF_U8,
    BNET_GGUF_I8,
    BNET_GGUF_U16,
    BNET_GGUF_I16,
    BNET_GGUF_U32,
    BNET_GGUF_I32,
    BNET_GGUF_F32,
    BNET_GGUF_BOOL,
    BNET_GGUF_STRING,
    BNET_GGUF_ARRAY,
    BNET_GGUF_U64,
    BNET_GGUF_I64,
    BNET_GGUF_F64,
} bnet_gguf_vtype;

typedef struct bnet_gguf_kv {
    bnet_span key;
    bnet_gguf_vtype type;
    bnet_gguf_vtype elem; /* of an array */
    uint64_t count;       /* of an array; 1 otherwise */
    const uint8_t *data;  /* the value or the first element; a string starts with its length */
    uint64_t offset;      /* of data in the file */
} bnet_gguf_kv;

typedef struct bnet_gguf bnet_gguf;

/* The bytes are a map of a file, not memory of the caller. */
bool bnet_gguf_mapped(const bnet_gguf *g);
/* The mapped file as it was when it was opened; zeros if it came from memory. */
const bnet_file_id *bnet_gguf_file_id(const bnet_gguf *g);
/* Does the address lie in that map? For signal handlers too. */
bool bnet_gguf_holds(const bnet_gguf *g, const void *address);
/* `log` may be NULL; warnings (gaps between tensors, odd but harmless things) go there. */
bitnet_status bnet_gguf_open(const char *path, const bnet_log *log, bnet_gguf **out,
                             bitnet_error *err);
/* Bytes the caller keeps; `name` stands in messages where the path would. */
bitnet_status bnet_gguf_open_memory(const void *data, size_t n_bytes, const char *name,
                                    const bnet_log *log, bnet_gguf **out, bitnet_error *err);
void bnet_gguf_close(bnet_gguf *g);

const char *bnet_gguf_path(const bnet_gguf *g);
uint32_t bnet_gguf_version(const bnet_gguf *g);
uint64_t bnet_gguf_file_bytes(const bnet_gguf *g);
uint64_t bnet_gguf_head_bytes(const bnet_gguf *g); /* all before the tensors' data */
const uint8_t *bnet_gguf_file_data(const bnet_gguf *g);

size_t bnet_gguf_n_kv(const bnet_gguf *g);
const bnet_gguf_kv *bnet_gguf_kv_at(const bnet_gguf *g, size_t i);
const bnet_gguf_kv *bnet_gguf_find(const bnet_gguf *g, const char *key); /* NULL: absent */
size_t bnet_gguf_n_tensors(const bnet_gguf *g);
const bnet_tensor *bnet_gguf_tensor_at(const bnet_gguf *g, size_t i);
const bnet_tensor *bnet_gguf_tensor(const bnet_gguf *g, const char *name); /* NULL: absent */

/* Typed reads. An absent key leaves *out alone (set your default first) and sets *found (may be
 * NULL); a key of the wrong type or outside [lo, hi] fails MODEL naming file, key, value, limits
 * and offset. Integers of any width and sign are accepted after the range check; floats accept F32
 * and F64 and must be finite. A string array gives its elements one by one. */
bitnet_status bnet_gguf_int(const bnet_gguf *g, const char *key, int64_t lo, int64_t hi,
                            int64_t *out, bool *found, bitnet_error *err);
bitnet_status bnet_gguf_float(const bnet_gguf *g, const char *key, double lo, double hi,
                              double *out, bool *found, bitnet_error *err);
bitnet_status bnet_gguf_bool(const bnet_gguf *g, const char *key, bool *out, bool *found,
                             bitnet_error *err);
bitnet_status bnet_gguf_string(const bnet_gguf *g, const char *key, bnet_span *out, bool *found,
                               bitnet_error *err);
/* The array under key with the given element type, or NULL in *out if absent. For BNET_GGUF_I32
 * also U32. */
bitnet_status bnet_gguf_array(const bnet_gguf *g, const char *key, bnet_gguf_vtype elem,
                              const bnet_gguf_kv **out, bitnet_error *err);
/* Walks a string array the reader has bounds-checked: *cursor starts at kv->data. */
bnet_span bnet_gguf_next_string(const uint8_t **cursor);
/* The single scalar value of any integer/bool/float kv as text, for inspection ("3", "1e-05"). */
void bnet_gguf_kv_text(const bnet_gguf_kv *kv, bnet_str *out, size_t max_elems);

/* ---- writer: keys first, then tensor infos, then data in the same order ---- */

typedef struct bnet_gguf_writer bnet_gguf_writer;

bnet_gguf_writer *bnet_gguf_writer_new(void); /* NULL: no memory */
void bnet_gguf_writer_free(bnet_gguf_writer *w);
/* Adders remember the first failure (no memory, duplicate key); _begin reports it. */
void bnet_gguf_put_u32(bnet_gguf_writer *w, const char *key, uint32_t v);
void bnet_gguf_put_f32(bnet_gguf_writer *w, const char *key, float v);
void bnet_gguf_put_bool(bnet_gguf_writer *w, const char *key, bool v);
void bnet_gguf_put_string(bnet_gguf_writer *w, const char *key, const char *s, size_t n);
void bnet_gguf_put_array(bnet_gguf_writer *w, const char *key, bnet_gguf_vtype elem,
                         const void *data, size_t n);
void bnet_gguf_put_strings(bnet_gguf_writer *w, const char *key, const bnet_span *v, size_t n);
/* Declares a tensor; its data must follow in declaration order. */
void bnet_gguf_declare(bnet_gguf_writer *w, const char *name, bnet_type t, const uint64_t *ne,
                       uint32_t n_dims);
/* Opens path and writes header, keys and infos (alignment 32). */
bitnet_status bnet_gguf_begin(bnet_gguf_writer *w, const char *path, bitnet_error *err);
/* What _begin would write before the data, for a file made in memory, and the size of the whole
 * file (every tensor padded). */
bitnet_status bnet_gguf_head(bnet_gguf_writer *w, bnet_str *head, uint64_t *n_file,
                             bitnet_error *err);
/* Appends data of the current tensor in any number of pieces; when its bytes are complete, pads and
 * moves on to the next. A piece may not cross from one tensor into the next: ARGUMENT. The bytes of
 * a tensor are those of bnet_type_bytes; for I2_S that is n/4 bytes of codes and the 32 of
 * bnet_i2s_tail. */
bitnet_status bnet_gguf_data(bnet_gguf_writer *w, const void *data, size_t n, bitnet_error *err);
/* Checks that every tensor is complete, then renames into place; _writer_free without it removes
 * the output. */
bitnet_status bnet_gguf_finish(bnet_gguf_writer *w, bitnet_error *err);
/* The temporary behind the output between _begin and _finish (NULL otherwise), for a signal
 * handler. */
const char *bnet_gguf_temp_path(const bnet_gguf_writer *w);
uint64_t
bnet_gguf_data_bytes(const bnet_gguf_writer *w); /* all declared tensor data, for progress */

#endif
