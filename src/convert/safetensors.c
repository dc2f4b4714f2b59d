/* safetensors.c - one file: its header read from bytes that nobody vouches for. */
#include "convert/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

#include "convert/json.h"

#define MAX_HEADER  (100u << 20)
#define MAX_TENSORS 65536u
#define MAX_NAME    1024u

static const struct {
    const char *name;
    uint32_t n_bytes;
} dtypes[] = {
#define ROW(name, size) {#name, size},
    BNET_ST_DTYPE_MAP(ROW)
#undef ROW
};

const char *bnet_st_dtype_name(bnet_st_dtype t)
{
    return dtypes[t].name;
}

const char *bnet_st_shape_text(const bnet_st_tensor *t, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "[");
    for (uint32_t i = 0; i < t->n_dims && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)t->shape[i]);
    if (n < cap)
        snprintf(buf + n, cap - n, "]");
    return buf;
}

static bnet_st_dtype read_dtype(const char *text, bnet_json_at *at)
{
    for (size_t i = 0; i < BNET_COUNT(dtypes); i++)
        if (strcmp(dtypes[i].name, text) == 0)
            return (bnet_st_dtype)i;
    bnet_json_refuse(at, "dtype", text, "is not a type of this format");
    return (bnet_st_dtype)0;
}

/* A non-negative integer out of an array. */
static uint64_t read_number(const json_t *array, size_t i, bnet_json_at *at, const char *key)
{
    const json_t *v = json_array_get(array, i);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v))
        bnet_json_fail(at, key, "element %zu is %s; an integer was expected", i, bnet_json_kind(v));
    else if (n < 0)
        bnet_json_fail(at, key, "element %zu is negative: %lld", i, (long long)n);
    return n < 0 ? 0 : (uint64_t)n;
}

/* Returns the number of bytes. */
static uint64_t read_shape(const json_t *array, bnet_json_at *at, bnet_st_tensor *t)
{
    uint64_t n = dtypes[t->dtype].n_bytes;
    if (json_array_size(array) > BNET_ST_MAX_DIMS) {
        bnet_json_fail(at, "shape", "has %zu dimensions; at most %d are supported",
                       json_array_size(array), BNET_ST_MAX_DIMS);
        return 0;
    }
    t->n_dims = (uint32_t)json_array_size(array);
    for (uint32_t i = 0; at->status == BITNET_OK && i < t->n_dims; i++) {
        t->shape[i] = read_number(array, i, at, "shape");
        if (!bnet_mul(n, t->shape[i], &n))
            bnet_json_fail(at, "shape", "the number of bytes overflows 64 bits at element %u", i);
    }
    return n;
}

static void read_offsets(const json_t *array, bnet_json_at *at, uint64_t n_data, uint64_t n_bytes,
                         bnet_st_tensor *t)
{
    if (json_array_size(array) != 2) {
        bnet_json_fail(at, "data_offsets", "has %zu elements; a begin and an end were expected",
                       json_array_size(array));
        return;
    }
    t->begin = read_number(array, 0, at, "data_offsets");
    t->end = read_number(array, 1, at, "data_offsets");
    unsigned long long b = t->begin, e = t->end;
    if (b > e)
        bnet_json_fail(at, "data_offsets", "begin %llu is behind end %llu", b, e);
    if (e > n_data)
        bnet_json_fail(at, "data_offsets",
                       "end %llu is behind the end of the data (%llu bytes): is the file cut "
                       "short?",
                       e, (unsigned long long)n_data);
    if (e - b != n_bytes)
        bnet_json_fail(at, "data_offsets", "span %llu bytes, but the shape needs %llu", e - b,
                       (unsigned long long)n_bytes);
}

/* Fills all of *t but name, path and data. */
static bitnet_status read_tensor(const json_t *obj, bnet_json_at *at, uint64_t n_data,
                                 bnet_st_tensor *t)
{
    const char *dtype = bnet_json_string(obj, at, "dtype", NULL);
    const json_t *shape = bnet_json_array(obj, at, "shape"),
                 *offsets = bnet_json_array(obj, at, "data_offsets");
    if (!dtype || !shape || !offsets)
        return bnet_json_fail(at,
                              !dtype   ? "dtype"
                              : !shape ? "shape"
                                       : "data_offsets",
                              "is missing");
    t->dtype = read_dtype(dtype, at);
    uint64_t n_bytes = read_shape(shape, at, t);
    read_offsets(offsets, at, n_data, n_bytes, t);
    return at->status;
}

static void check_metadata(json_t *meta, bnet_json_at *at)
{
    const char *key;
    json_t *v;
    if (!json_is_object(meta))
        bnet_json_fail(at, "__metadata__", "is %s; an object was expected", bnet_json_kind(meta));
    json_object_foreach(meta, key, v)
    {
        if (!json_is_string(v))
            bnet_json_fail(at, "__metadata__", "holds %s; only strings are allowed",
                           bnet_json_kind(v));
    }
}

static bitnet_status add_tensor(bnet_st_file *f, const char *name, const json_t *v, uint64_t n_data,
                                bitnet_error *err)
{
    char quoted[128], section[160];
    bnet_st_tensor t = {0};
    size_t n = strlen(name);
    bnet_quote(name, n, quoted, sizeof quoted);
    if (n == 0 || n > MAX_NAME)
        return bnet_fail(err, BITNET_MODEL, "%s: tensor name \"%s\": length %zu is outside 1..%u",
                         f->path, quoted, n, MAX_NAME);
    if (!json_is_object(v))
        return bnet_fail(err, BITNET_MODEL, "%s: tensor %s: is %s; an object was expected", f->path,
                         quoted, bnet_json_kind(v));
    snprintf(section, sizeof section, "%s: ", quoted);
    bnet_json_at at = {f->path, section, BITNET_MODEL, err, BITNET_OK};
    bitnet_status st = read_tensor(v, &at, n_data, &t);
    if (st != BITNET_OK)
        return st;
    if (!bnet_grow(&f->tensors, &f->cap, f->n_tensors + 1, sizeof *f->tensors) ||
        !(t.name = bnet_strdup(name)))
        return bnet_no_memory(err, f->path);
    t.path = f->path;
    f->tensors[f->n_tensors++] = t;
    return BITNET_OK;
}

static bitnet_status read_header(bnet_st_file *f, json_t *root, uint64_t n_data, bnet_json_at *at)
{
    const char *key;
    json_t *v;
    if (json_object_size(root) > MAX_TENSORS)
        return bnet_fail(at->err, BITNET_MODEL,
                         "%s: the header names %zu tensors; at most %u are supported", f->path,
                         json_object_size(root), MAX_TENSORS);
    json_object_foreach(root, key, v)
    {
        if (strcmp(key, "__metadata__") == 0)
            check_metadata(v, at);
        else
            at->status = add_tensor(f, key, v, n_data, at->err);
        if (at->status != BITNET_OK)
            break;
    }
    return at->status;
}

static int by_offset(const void *a, const void *b)
{
    const bnet_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The tensors must tile the data part: no overlap, no hole, nothing behind. */
static bitnet_status check_cover(bnet_st_file *f, uint64_t n_data, bitnet_error *err)
{
    uint64_t at = 0;
    char quoted[128];
    if (f->n_tensors)
        qsort(f->tensors, f->n_tensors, sizeof *f->tensors, by_offset);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const bnet_st_tensor *t = &f->tensors[i];
        if (t->begin != at)
            return bnet_fail(err, BITNET_MODEL,
                             "%s: tensor %s begins at data byte %llu, but %s ends at %llu: %s",
                             f->path, bnet_quote(t->name, strlen(t->name), quoted, sizeof quoted),
                             (unsigned long long)t->begin,
                             i ? "the tensor before it" : "the header", (unsigned long long)at,
                             t->begin < at ? "tensors overlap" : "bytes belong to nothing");
        at = t->end;
    }
    if (at != n_data)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: %llu bytes behind the last tensor (data byte %llu) belong to nothing",
                         f->path, (unsigned long long)(n_data - at), (unsigned long long)at);
    return BITNET_OK;
}

static bitnet_status header_length(const uint8_t *data, size_t n, const char *path, uint64_t *out,
                                   bitnet_error *err)
{
    if (n < 8)
        return bnet_fail(err, BITNET_MODEL, "%s: %zu bytes: too short for a safetensors file", path,
                         n);
    uint64_t len = bnet_u64(data);
    if (len > MAX_HEADER)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: header length %llu exceeds the limit of %u: not a safetensors file?",
                         path, (unsigned long long)len, MAX_HEADER);
    if (len > n - 8)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: header length %llu exceeds the file (%zu bytes): is it cut short?",
                         path, (unsigned long long)len, n);
    if (len == 0)
        return bnet_fail(err, BITNET_MODEL, "%s: the header is empty (offset 0x0)", path);
    if (data[8] != '{')
        return bnet_fail(err, BITNET_MODEL, "%s: the header does not begin with '{' (offset 0x8)",
                         path);
    *out = len;
    return BITNET_OK;
}

static bitnet_status parse_into(bnet_st_file *f, const uint8_t *data, size_t n, bitnet_error *err)
{
    uint64_t len = 0;
    bitnet_status st = header_length(data, n, f->path, &len, err);
    if (st != BITNET_OK)
        return st;
    bnet_json_at at = {f->path, "", BITNET_MODEL, err, BITNET_OK};
    json_t *root = bnet_json_parse((const char *)data + 8, (size_t)len, "header", &at);
    st = root ? read_header(f, root, n - 8 - len, &at) : at.status;
    json_decref(root);
    if (st == BITNET_OK)
        st = check_cover(f, n - 8 - len, err);
    for (size_t i = 0; i < f->n_tensors; i++)
        f->tensors[i].data = data + 8 + len + f->tensors[i].begin;
    return st;
}

bitnet_status bnet_st_parse(const uint8_t *data, size_t n, const char *path, bnet_st_file *out,
                            bitnet_error *err)
{
    bnet_st_file f = {.path = bnet_strdup(path)};
    bitnet_status st = f.path ? parse_into(&f, data, n, err) : bnet_no_memory(err, path);
    if (st != BITNET_OK)
        bnet_st_close(&f);
    *out = f;
    return st;
}

bitnet_status bnet_st_open(const char *path, bnet_st_file *out, bitnet_error *err)
{
    bnet_map map;
    *out = (bnet_st_file){0};
    bitnet_status st = bnet_map_open(path, &map, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_st_parse(map.data, map.n_bytes, path, out, err);
    if (st == BITNET_OK)
        out->map = map;
    else
        bnet_map_close(&map);
    return st;
}

void bnet_st_close(bnet_st_file *f)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        bnet_free(f->tensors[i].name);
    bnet_free(f->tensors);
    bnet_free(f->path);
    bnet_map_close(&f->map);
    *f = (bnet_st_file){0};
}
