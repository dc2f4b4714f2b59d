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

/* ---- one tensor's members, in whatever order they come ---- */

typedef struct numbers {
    size_t n; /* how many there are; SIZE_MAX: no such member */
    uint64_t value[BNET_ST_MAX_DIMS];
} numbers;

typedef struct entry {
    char dtype[16]; /* cut there: longer than any name; "": no such member */
    bool has_dtype;
    numbers shape, offsets;
} entry;

/* The value that follows is of another kind than it should. */
static void wrong_kind(bnet_json_at *at, const char *key, bnet_json_event e, const char *want)
{
    bnet_json_fail(at, key, "is %s; %s was expected", bnet_json_event_name(e), want);
}

/* A non-negative integer, the i-th of an array. */
static uint64_t read_number(const bnet_json_reader *r, size_t i, bnet_json_at *at, const char *key)
{
    int64_t n = 0;
    if (r->event != BNET_JSON_INTEGER)
        bnet_json_fail(at, key, "element %zu is %s; an integer was expected", i,
                       bnet_json_event_name(r->event));
    else if (!bnet_json_int64(r, &n))
        bnet_json_fail(at, key, "element %zu does not fit 63 bits: too big integer", i);
    else if (n < 0)
        bnet_json_fail(at, key, "element %zu is negative: %lld", i, (long long)n);
    return n < 0 ? 0 : (uint64_t)n;
}

/* The array that r has begun; numbers beyond those that are kept are counted. */
static void read_numbers(bnet_json_reader *r, bnet_json_at *at, const char *key, numbers *out)
{
    if (r->event == BNET_JSON_NULL)
        return;
    if (r->event != BNET_JSON_ARRAY) {
        wrong_kind(at, key, r->event, "an array");
        return;
    }
    for (out->n = 0; at->status == BITNET_OK && bnet_json_next(r) != BNET_JSON_ARRAY_END;
         out->n++) {
        uint64_t n = read_number(r, out->n, at, key);
        if (out->n < BNET_ST_MAX_DIMS)
            out->value[out->n] = n;
    }
}

static void read_dtype_name(bnet_json_reader *r, bnet_json_at *at, entry *e)
{
    bnet_str text = {0};
    if (r->event != BNET_JSON_STRING) {
        if (r->event != BNET_JSON_NULL)
            wrong_kind(at, "dtype", r->event, "a string");
        return;
    }
    bnet_json_text(r, &text);
    if (text.failed)
        bnet_json_no_memory(at);
    snprintf(e->dtype, sizeof e->dtype, "%s", text.data ? text.data : "");
    e->has_dtype = true;
    bnet_str_free(&text);
}

/* The object that r has begun. Members of other names are allowed, as in the format's own reader.
 */
static void read_entry(bnet_json_reader *r, bnet_json_at *at, entry *e)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    bool seen[BNET_COUNT(keys)] = {false};
    while (at->status == BITNET_OK && bnet_json_next(r) == BNET_JSON_KEY) {
        size_t k = 0;
        while (k < BNET_COUNT(keys) && !bnet_json_text_is(r, keys[k]))
            k++;
        bnet_json_next(r);
        if (k == BNET_COUNT(keys)) {
            bnet_json_skip(r);
            continue;
        }
        if (seen[k])
            bnet_json_fail(at, keys[k], "duplicate object key");
        seen[k] = true;
        if (k == 0)
            read_dtype_name(r, at, e);
        else
            read_numbers(r, at, keys[k], k == 1 ? &e->shape : &e->offsets);
    }
}

/* ---- what they mean together ---- */

/* Returns the number of bytes. */
static uint64_t take_shape(const numbers *shape, bnet_json_at *at, bnet_st_tensor *t)
{
    uint64_t n = dtypes[t->dtype].n_bytes;
    if (shape->n > BNET_ST_MAX_DIMS) {
        bnet_json_fail(at, "shape", "has %zu dimensions; at most %d are supported", shape->n,
                       BNET_ST_MAX_DIMS);
        return 0;
    }
    t->n_dims = (uint32_t)shape->n;
    for (uint32_t i = 0; at->status == BITNET_OK && i < t->n_dims; i++) {
        t->shape[i] = shape->value[i];
        if (!bnet_mul(n, t->shape[i], &n))
            bnet_json_fail(at, "shape", "the number of bytes overflows 64 bits at element %u", i);
    }
    return n;
}

static void take_offsets(const numbers *offsets, bnet_json_at *at, uint64_t n_data,
                         uint64_t n_bytes, bnet_st_tensor *t)
{
    if (offsets->n != 2) {
        bnet_json_fail(at, "data_offsets", "has %zu elements; a begin and an end were expected",
                       offsets->n);
        return;
    }
    t->begin = offsets->value[0];
    t->end = offsets->value[1];
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
static bitnet_status read_tensor(bnet_json_reader *r, bnet_json_at *at, uint64_t n_data,
                                 bnet_st_tensor *t)
{
    entry e = {.shape = {.n = SIZE_MAX}, .offsets = {.n = SIZE_MAX}};
    read_entry(r, at, &e);
    if (!e.has_dtype || e.shape.n == SIZE_MAX || e.offsets.n == SIZE_MAX)
        return bnet_json_fail(at,
                              !e.has_dtype            ? "dtype"
                              : e.shape.n == SIZE_MAX ? "shape"
                                                      : "data_offsets",
                              "is missing");
    t->dtype = read_dtype(e.dtype, at);
    uint64_t n_bytes = take_shape(&e.shape, at, t);
    take_offsets(&e.offsets, at, n_data, n_bytes, t);
    return at->status;
}

/* ---- the header ---- */

/* The names of an object's members so far: a second one of a name is refused. `text` has room for
 * all of the header, so that it never moves. */
typedef struct names {
    bnet_str text;
    bnet_strmap seen;
} names;

/* Returns the key that r stands at, NUL-terminated, or NULL. */
static const char *take_name(names *n, const bnet_json_reader *r, bnet_json_at *at)
{
    char quoted[128];
    bool existed = false;
    size_t begin = n->text.n;
    bnet_json_text(r, &n->text);
    const char *name = n->text.data + begin;
    size_t length = n->text.n - begin;
    bnet_str_putc(&n->text, '\0');
    if (n->text.failed || !bnet_strmap_put(&n->seen, name, length, 0, &existed))
        bnet_json_no_memory(at);
    else if (memchr(name, '\0', length))
        at->status = bnet_fail(at->err, at->kind, "%s: the name \"%s\" holds \\u0000", at->file,
                               bnet_quote(name, length, quoted, sizeof quoted));
    else if (existed)
        at->status = bnet_fail(at->err, at->kind, "%s: duplicate object key \"%s\"", at->file,
                               bnet_quote(name, length, quoted, sizeof quoted));
    else if (n->seen.n_used > MAX_TENSORS)
        at->status =
            bnet_fail(at->err, at->kind, "%s: the header has more than %u members of one object",
                      at->file, MAX_TENSORS);
    return at->status == BITNET_OK ? name : NULL;
}

static bool names_open(names *n, size_t n_header, bnet_json_at *at)
{
    *n = (names){.text = {.data = NULL}};
    if (!bnet_str_reserve(&n->text, n_header) || !bnet_strmap_init(&n->seen, 16))
        bnet_json_no_memory(at);
    return at->status == BITNET_OK;
}

static void names_close(names *n)
{
    bnet_str_free(&n->text);
    bnet_strmap_free(&n->seen);
}

/* Texts under different names, and nothing else, by the format's rule. */
static void check_metadata(bnet_json_reader *r, bnet_json_at *at)
{
    names n;
    if (r->event != BNET_JSON_OBJECT) {
        wrong_kind(at, "__metadata__", r->event, "an object");
        return;
    }
    names_open(&n, r->n, at);
    while (at->status == BITNET_OK && bnet_json_next(r) == BNET_JSON_KEY && take_name(&n, r, at))
        if (bnet_json_next(r) != BNET_JSON_STRING)
            bnet_json_fail(at, "__metadata__", "holds %s; only strings are allowed",
                           bnet_json_event_name(r->event));
    names_close(&n);
}

static bitnet_status add_tensor(bnet_st_file *f, const char *name, bnet_json_reader *r,
                                uint64_t n_data, bitnet_error *err)
{
    char quoted[128], section[160];
    bnet_st_tensor t = {0};
    size_t n = strlen(name);
    bnet_quote(name, n, quoted, sizeof quoted);
    if (n == 0 || n > MAX_NAME)
        return bnet_fail(err, BITNET_MODEL, "%s: tensor name \"%s\": length %zu is outside 1..%u",
                         f->path, quoted, n, MAX_NAME);
    if (r->event != BNET_JSON_OBJECT)
        return bnet_fail(err, BITNET_MODEL, "%s: tensor %s: is %s; an object was expected", f->path,
                         quoted, bnet_json_event_name(r->event));
    snprintf(section, sizeof section, "%s: ", quoted);
    bnet_json_at at = {f->path, section, BITNET_MODEL, err, BITNET_OK};
    bitnet_status st = read_tensor(r, &at, n_data, &t);
    if (st != BITNET_OK)
        return st;
    if (!bnet_grow(&f->tensors, &f->cap, f->n_tensors + 1, sizeof *f->tensors) ||
        !(t.name = bnet_strdup(name)))
        return bnet_no_memory(err, f->path);
    t.path = f->path;
    f->tensors[f->n_tensors++] = t;
    return BITNET_OK;
}

/* r stands before the header, which is JSON as a whole. */
static bitnet_status read_header(bnet_st_file *f, bnet_json_reader *r, uint64_t n_data,
                                 bnet_json_at *at)
{
    names n;
    const char *name;
    bnet_json_next(r);
    names_open(&n, r->n, at);
    while (at->status == BITNET_OK && bnet_json_next(r) == BNET_JSON_KEY &&
           (name = take_name(&n, r, at)) != NULL) {
        bnet_json_next(r);
        if (strcmp(name, "__metadata__") == 0)
            check_metadata(r, at);
        else
            at->status = add_tensor(f, name, r, n_data, at->err);
    }
    names_close(&n);
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
    bnet_json_reader r = bnet_json_reader_of((const char *)data + 8, (size_t)len);
    st = bnet_json_check(&r, "header", &at);
    if (st == BITNET_OK)
        st = read_header(f, &r, n - 8 - len, &at);
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
