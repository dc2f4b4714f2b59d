/* gguf_write.c - GGUF version 3 out: keys and tensor infos are gathered in memory, data streams
 * through.
 *
 * Invariants: offsets are fixed when a tensor is declared; data arrives in declaration order; the
 * target file appears only when every byte of every tensor has been written. */
#include "format/gguf_impl.h"

#define ALIGNMENT 32

typedef struct out_tensor {
    char name[GGUF_NAME_CAP];
    uint64_t n_bytes, offset; /* offset: from the start of the data */
    uint64_t ne[BNET_MAX_DIMS];
    uint32_t n_dims, type;
} out_tensor;

struct bnet_gguf_writer {
    bnet_str keys; /* the serialised records */
    size_t n_keys;
    bnet_strmap names; /* of keys: points into `owned` */
    char **owned;
    size_t owned_cap;
    out_tensor *tensors;
    size_t n_tensors, tensors_cap;
    uint64_t n_data;    /* padded bytes of all tensors */
    bitnet_error first; /* the first failure of an adder; status OK: none */
    bnet_writer *file;
    size_t current;  /* tensor whose data is awaited */
    uint64_t n_done; /* its bytes so far */
};

bnet_gguf_writer *bnet_gguf_writer_new(void)
{
    bnet_gguf_writer *w = bnet_calloc(1, sizeof *w);
    if (w && !bnet_strmap_init(&w->names, 64)) {
        bnet_free(w);
        return NULL;
    }
    return w;
}

void bnet_gguf_writer_free(bnet_gguf_writer *w)
{
    if (!w)
        return;
    bnet_writer_abort(w->file);
    for (size_t i = 0; i < w->n_keys; i++)
        bnet_free(w->owned[i]);
    bnet_free(w->owned);
    bnet_free(w->tensors);
    bnet_strmap_free(&w->names);
    bnet_str_free(&w->keys);
    bnet_free(w);
}

/* ---- keys ---- */

static void fail_first(bnet_gguf_writer *w, bitnet_status status, const char *what,
                       const char *name)
{
    if (w->first.status == BITNET_OK)
        bnet_fail(&w->first, status, "%s %s", what, name);
}

static void add_u32(bnet_str *s, uint32_t v)
{
    bnet_str_add(s, &v, sizeof v);
}

static void add_u64(bnet_str *s, uint64_t v)
{
    bnet_str_add(s, &v, sizeof v);
}

static void add_bytes(bnet_str *s, const void *p, size_t n)
{
    add_u64(s, n);
    bnet_str_add(s, p, n);
}

/* Begins a record: key and type. False: a failure was noted and nothing may be appended. */
static bool begin_key(bnet_gguf_writer *w, const char *key, bnet_gguf_vtype type)
{
    bool existed = false;
    size_t n = strlen(key);
    if (n == 0 || n > GGUF_MAX_KEY_BYTES || w->n_keys >= GGUF_MAX_KEYS || w->file) {
        fail_first(w, BITNET_ARGUMENT, "cannot add the key", key);
        return false;
    }
    char *copy = bnet_strdup(key);
    if (!copy || !bnet_grow(&w->owned, &w->owned_cap, w->n_keys + 1, sizeof *w->owned) ||
        !bnet_strmap_put(&w->names, copy, n, 0, &existed)) {
        bnet_free(copy);
        fail_first(w, BITNET_MEMORY, "out of memory: key", key);
        return false;
    }
    if (existed) {
        bnet_free(copy);
        fail_first(w, BITNET_ARGUMENT, "added twice: key", key);
        return false;
    }
    w->owned[w->n_keys++] = copy;
    add_bytes(&w->keys, key, n);
    add_u32(&w->keys, type);
    return true;
}

static void put_scalar(bnet_gguf_writer *w, const char *key, bnet_gguf_vtype type, const void *v)
{
    if (begin_key(w, key, type))
        bnet_str_add(&w->keys, v, bnet_gguf_elem_bytes(type));
}

void bnet_gguf_put_u32(bnet_gguf_writer *w, const char *key, uint32_t v)
{
    put_scalar(w, key, BNET_GGUF_U32, &v);
}

void bnet_gguf_put_f32(bnet_gguf_writer *w, const char *key, float v)
{
    put_scalar(w, key, BNET_GGUF_F32, &v);
}

void bnet_gguf_put_bool(bnet_gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;
    put_scalar(w, key, BNET_GGUF_BOOL, &byte);
}

void bnet_gguf_put_string(bnet_gguf_writer *w, const char *key, const char *s, size_t n)
{
    if (begin_key(w, key, BNET_GGUF_STRING))
        add_bytes(&w->keys, s, n);
}

void bnet_gguf_put_array(bnet_gguf_writer *w, const char *key, bnet_gguf_vtype elem,
                         const void *data, size_t n)
{
    uint64_t n_bytes;
    uint32_t size = bnet_gguf_elem_bytes(elem);
    if (size == 0 || !bnet_mul(n, size, &n_bytes)) {
        fail_first(w, BITNET_ARGUMENT, "no array can be made of this element type: key", key);
        return;
    }
    if (!begin_key(w, key, BNET_GGUF_ARRAY))
        return;
    add_u32(&w->keys, elem);
    add_u64(&w->keys, n);
    bnet_str_add(&w->keys, data, (size_t)n_bytes);
}

void bnet_gguf_put_strings(bnet_gguf_writer *w, const char *key, const bnet_span *v, size_t n)
{
    if (!begin_key(w, key, BNET_GGUF_ARRAY))
        return;
    add_u32(&w->keys, BNET_GGUF_STRING);
    add_u64(&w->keys, n);
    for (size_t i = 0; i < n; i++)
        add_bytes(&w->keys, v[i].data, v[i].n);
}

/* ---- tensors ---- */

/* Checks a declaration as the reader would. */
static bool fill_tensor(out_tensor *t, const char *name, bnet_type type, const uint64_t *ne,
                        uint32_t n_dims)
{
    uint64_t n_rows = 1;
    size_t n = strlen(name);
    if (n == 0 || n >= GGUF_NAME_CAP || n_dims < 1 || n_dims > BNET_MAX_DIMS || ne[0] == 0 ||
        (uint32_t)type > UINT16_MAX)
        return false;
    memset(t, 0, sizeof *t);
    memcpy(t->name, name, n);
    t->n_dims = n_dims;
    t->type = (uint32_t)type;
    for (uint32_t d = 0; d < n_dims; d++) {
        t->ne[d] = ne[d];
        if (ne[d] == 0 || (d > 0 && !bnet_mul(n_rows, ne[d], &n_rows)))
            return false;
    }
    return bnet_type_bytes(type, ne[0], n_rows, &t->n_bytes);
}

void bnet_gguf_declare(bnet_gguf_writer *w, const char *name, bnet_type t, const uint64_t *ne,
                       uint32_t n_dims)
{
    out_tensor fresh;
    uint64_t padded, end;
    if (w->file || w->n_tensors >= GGUF_MAX_TENSORS || !fill_tensor(&fresh, name, t, ne, n_dims) ||
        !bnet_round_up(fresh.n_bytes, ALIGNMENT, &padded) || !bnet_add(w->n_data, padded, &end)) {
        fail_first(w, BITNET_ARGUMENT, "its name, shape or type cannot be written: tensor", name);
        return;
    }
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0) {
            fail_first(w, BITNET_ARGUMENT, "declared twice: tensor", name);
            return;
        }
    if (!bnet_grow(&w->tensors, &w->tensors_cap, w->n_tensors + 1, sizeof *w->tensors)) {
        fail_first(w, BITNET_MEMORY, "out of memory: tensor", name);
        return;
    }
    fresh.offset = w->n_data;
    w->n_data = end;
    w->tensors[w->n_tensors++] = fresh;
}

static void add_info(bnet_str *s, const out_tensor *t)
{
    add_bytes(s, t->name, strlen(t->name));
    add_u32(s, t->n_dims);
    for (uint32_t d = 0; d < t->n_dims; d++)
        add_u64(s, t->ne[d]);
    add_u32(s, t->type);
    add_u64(s, t->offset);
}

/* ---- the file ---- */

/* The first failure of an adder, or OK. */
static bitnet_status check_adders(bnet_gguf_writer *w, const char *name, bitnet_error *err)
{
    if (w->keys.failed)
        fail_first(w, BITNET_MEMORY, "out of memory:", "keys");
    if (w->first.status != BITNET_OK)
        return bnet_fail(err, w->first.status, "%s: %s", name, w->first.message);
    return BITNET_OK;
}

bitnet_status bnet_gguf_head(bnet_gguf_writer *w, bnet_str *head, uint64_t *n_file,
                             bitnet_error *err)
{
    static const char zeros[ALIGNMENT] = {0};
    bitnet_status st = check_adders(w, "GGUF", err);
    if (st != BITNET_OK)
        return st;
    bnet_str_add(head, "GGUF", 4);
    add_u32(head, 3);
    add_u64(head, w->n_tensors);
    add_u64(head, w->n_keys);
    bnet_str_add(head, w->keys.data, w->keys.n);
    for (size_t i = 0; i < w->n_tensors; i++)
        add_info(head, &w->tensors[i]);
    if (w->n_tensors)
        bnet_str_add(head, zeros, -head->n % ALIGNMENT);
    if (head->failed)
        return bnet_no_memory(err, "tensor infos");
    *n_file = head->n + w->n_data;
    return BITNET_OK;
}

bitnet_status bnet_gguf_begin(bnet_gguf_writer *w, const char *path, bitnet_error *err)
{
    bnet_str head = {0};
    uint64_t n_file;
    bitnet_status st = check_adders(w, path, err);
    if (st != BITNET_OK)
        return st;
    if (w->file)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: the writer has begun already", path);
    st = bnet_writer_open(path, &w->file, err);
    if (st == BITNET_OK)
        st = bnet_gguf_head(w, &head, &n_file, err);
    if (st == BITNET_OK)
        st = bnet_writer_write(w->file, head.data, head.n, err);
    bnet_str_free(&head);
    return st;
}

bitnet_status bnet_gguf_data(bnet_gguf_writer *w, const void *data, size_t n, bitnet_error *err)
{
    if (!w->file || w->current >= w->n_tensors)
        return bnet_fail(err, BITNET_ARGUMENT, "tensor data where none is awaited");
    const out_tensor *t = &w->tensors[w->current];
    if (n > t->n_bytes - w->n_done)
        return bnet_fail(err, BITNET_ARGUMENT, "tensor %s: %zu bytes given, %llu of %llu awaited",
                         t->name, n, (unsigned long long)(t->n_bytes - w->n_done),
                         (unsigned long long)t->n_bytes);
    bitnet_status st = bnet_writer_write(w->file, data, n, err);
    if (st != BITNET_OK)
        return st;
    w->n_done += n;
    if (w->n_done < t->n_bytes)
        return BITNET_OK;
    w->current++;
    w->n_done = 0;
    return bnet_writer_zeros(w->file, (size_t)(-t->n_bytes % ALIGNMENT), err);
}

bitnet_status bnet_gguf_finish(bnet_gguf_writer *w, bitnet_error *err)
{
    if (!w->file)
        return bnet_fail(err, BITNET_ARGUMENT, "the writer has not begun");
    if (w->current < w->n_tensors)
        return bnet_fail(err, BITNET_ARGUMENT, "tensor %s: only %llu of %llu bytes were written",
                         w->tensors[w->current].name, (unsigned long long)w->n_done,
                         (unsigned long long)w->tensors[w->current].n_bytes);
    bnet_writer *file = w->file;
    w->file = NULL;
    return bnet_writer_commit(file, err);
}

const char *bnet_gguf_temp_path(const bnet_gguf_writer *w)
{
    return w->file ? bnet_writer_temp_path(w->file) : NULL;
}

uint64_t bnet_gguf_data_bytes(const bnet_gguf_writer *w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < w->n_tensors; i++)
        n += w->tensors[i].n_bytes;
    return n;
}
