/* trace.c - the records of a trace. A record is named after the weight in the operation, else after
 * layer and operation; a number tells apart what has the same name in one layer of one pass. */
#include "ops/trace.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/file.h"
#include "base/sha256.h"
#include "ops/json_text.h"

enum { NAME_MAX_BYTES = 96 };

typedef struct weight_name {
    const bnet_weight *weight;
    char name[NAME_MAX_BYTES];
} weight_name;

struct bnet_trace {
    pthread_mutex_t lock; /* recursive: of whoever computes */
    char *folder;
    weight_name *weights;
    size_t n_weights, cap_weights;
    uint64_t index; /* of the next record */
    int64_t pass;   /* -1: none yet */
    int layer, n_tokens, head_dim;
    int n_of[BNET_ENTRIES]; /* unnamed results of each operation in this layer */
    bitnet_status status;   /* the first failure */
    bitnet_error err;
};

/* ---- opening ---- */

static bitnet_status make_folder(const char *folder, char *copy, bitnet_error *err)
{
    char found[256];
    if (!*copy || !bnet_make_folder(copy))
        return bnet_fail(err, BITNET_IO, "trace: the folder '%s' cannot be made: %s", folder,
                         strerror(errno));
    if (bnet_folder_find(folder, ".json", found, sizeof found))
        return bnet_fail(err, BITNET_IO,
                         "trace: the folder '%s' holds %s already: empty it or name another, since "
                         "two traces cannot be told apart",
                         folder, found);
    return BITNET_OK;
}

static bool init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t kind;
    if (pthread_mutexattr_init(&kind) != 0)
        return false;
    bool ok = pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE) == 0 &&
              pthread_mutex_init(lock, &kind) == 0;
    pthread_mutexattr_destroy(&kind);
    return ok;
}

bitnet_status bnet_trace_open(const char *folder, bnet_trace **out, bitnet_error *err)
{
    bnet_trace *t = bnet_calloc(1, sizeof *t);
    if (!t || !(t->folder = bnet_strdup(folder)) || !init_lock(&t->lock)) {
        bnet_free(t ? t->folder : NULL);
        bnet_free(t);
        return bnet_no_memory(err, "trace");
    }
    t->pass = t->layer = -1;
    bitnet_status st = make_folder(folder, t->folder, err);
    if (st != BITNET_OK) {
        bnet_trace_close(t);
        return st;
    }
    *out = t;
    return BITNET_OK;
}

void bnet_trace_close(bnet_trace *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    bnet_free(t->weights);
    bnet_free(t->folder);
    bnet_free(t);
}

bitnet_status bnet_trace_status(bnet_trace *t, bitnet_error *err)
{
    bnet_trace_hold(t);
    bitnet_status st = t->status;
    if (st != BITNET_OK)
        bnet_fail(err, st, "%s", t->err.message);
    bnet_trace_release(t);
    return st;
}

/* ---- where the engine is ---- */

void bnet_trace_hold(bnet_trace *t)
{
    pthread_mutex_lock(&t->lock);
}

void bnet_trace_release(bnet_trace *t)
{
    pthread_mutex_unlock(&t->lock);
}

void bnet_trace_layer(bnet_trace *t, int layer)
{
    t->layer = layer;
    memset(t->n_of, 0, sizeof t->n_of);
}

void bnet_trace_pass(bnet_trace *t, int n_tokens)
{
    t->pass++;
    t->n_tokens = n_tokens;
    bnet_trace_layer(t, -1);
}

void bnet_trace_head_dim(bnet_trace *t, int head_dim)
{
    t->head_dim = head_dim;
}

/* ---- names ---- */

/* "blk.0.attn_q.weight" is "blk.0.attn_q"; characters that do not belong into the name of a file
 * become '_'. */
static void plain_name(const char *from, char out[NAME_MAX_BYTES])
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    static const char end[] = ".weight";
    size_t n = strlen(from), tail = sizeof end - 1;
    if (n > tail && strcmp(from + n - tail, end) == 0)
        n -= tail;
    n = BNET_MIN(n, (size_t)NAME_MAX_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = strchr(good, from[i]) ? from[i] : '_';
    out[n] = '\0';
}

static void failed(bnet_trace *t, bitnet_status st, const bitnet_error *why)
{
    if (t->status != BITNET_OK)
        return;
    t->status = st;
    t->err = *why;
}

void bnet_trace_weight(bnet_trace *t, const bnet_weight *w, const char *name)
{
    bnet_trace_hold(t);
    bitnet_error err = {0};
    if (bnet_grow(&t->weights, &t->cap_weights, t->n_weights + 1, sizeof *t->weights)) {
        t->weights[t->n_weights].weight = w;
        plain_name(name, t->weights[t->n_weights++].name);
    } else {
        failed(t, bnet_no_memory(&err, "trace"), &err);
    }
    bnet_trace_release(t);
}

static void name_result(bnet_trace *t, bnet_op_entry e, const bnet_weight *w,
                        char out[NAME_MAX_BYTES])
{
    for (size_t i = t->n_weights; w && i > 0; i--) /* the latest, if memory was used again */
        if (t->weights[i - 1].weight == w) {
            memcpy(out, t->weights[i - 1].name, NAME_MAX_BYTES);
            return;
        }
    int n = ++t->n_of[e], at = 0;
    if (t->layer >= 0)
        at = snprintf(out, NAME_MAX_BYTES, "blk.%d.", t->layer);
    at += snprintf(out + at, NAME_MAX_BYTES - (size_t)at, "%s", bnet_entry_name(e));
    if (n > 1)
        snprintf(out + at, NAME_MAX_BYTES - (size_t)at, ".%d", n);
}

/* ---- records ---- */

typedef struct record {
    char name[NAME_MAX_BYTES + 8];
    const char *stage, *dtype;
    size_t n_rows, n_cols, row_bytes, stride; /* of a row; from one row to the next */
    const uint8_t *data;
} record;

static double squares_of(const record *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const uint8_t *row = r->data + i * r->stride;
        for (size_t j = 0; j < r->n_cols; j++) {
            double x =
                r->row_bytes == r->n_cols ? (double)(int8_t)row[j] : (double)bnet_f32(row + 4 * j);
            sum += x * x;
        }
    }
    return sum;
}

static bitnet_status digest(const record *r, char hex[65], bitnet_error *err)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t raw[BNET_SHA256_BYTES];
    bnet_sha256 *h = NULL;
    bitnet_status st = bnet_sha256_open(&h, err);
    if (st != BITNET_OK)
        return st;
    for (size_t i = 0; i < r->n_rows; i++)
        bnet_sha256_add(h, r->data + i * r->stride, r->row_bytes);
    st = bnet_sha256_finish(h, raw, err);
    bnet_sha256_close(h);
    for (size_t i = 0; i < 2 * sizeof raw; i++)
        hex[i] = digits[i % 2 ? raw[i / 2] & 15 : raw[i / 2] >> 4];
    hex[64] = '\0';
    return st;
}

static void put_record(const bnet_trace *t, const record *r, const char *hex, bnet_str *s)
{
    size_t n = r->n_rows * r->n_cols;
    double rms = sqrt(squares_of(r) / (double)BNET_MAX(n, (size_t)1));
    bnet_str_addf(s, "{\"index\": %llu, ", (unsigned long long)t->index);
    bnet_json_member(s, "name", r->name, ", ");
    bnet_json_member(s, "stage", r->stage, ", ");
    bnet_str_addf(s, "\"layer\": %d, \"seq\": %lld, \"shape\": [%zu, %zu], ", t->layer,
                  (long long)t->pass, r->n_rows, r->n_cols);
    bnet_json_member(s, "dtype", r->dtype, ", ");
    bnet_str_addf(s, "\"num_elements\": %zu, \"rms\": ", n);
    bnet_str_addf(s, isfinite(rms) ? "%.9g, " : "null, ", rms);
    bnet_json_member(s, "sha256", hex, "}\n");
}

static bitnet_status save(const bnet_trace *t, const record *r, bitnet_error *err)
{
    char hex[65];
    bnet_writer *w = NULL;
    bnet_str text = {0}, path = {0};
    bitnet_status st = digest(r, hex, err);
    if (st != BITNET_OK)
        return st;
    put_record(t, r, hex, &text);
    bnet_str_addf(&path, "%s/%06llu-%s-%s.json", t->folder, (unsigned long long)t->index, r->name,
                  r->stage);
    st = text.failed || path.failed ? bnet_no_memory(err, "trace")
                                    : bnet_writer_open(path.data, &w, err);
    if (st == BITNET_OK)
        st = bnet_writer_write(w, text.data, text.n, err);
    if (st == BITNET_OK)
        st = bnet_writer_publish(w, err);
    else
        bnet_writer_abort(w);
    bnet_str_free(&text);
    bnet_str_free(&path);
    return st;
}

static void add(bnet_backend *be, const record *r)
{
    bnet_trace *t = be->trace;
    bitnet_error err = {0};
    if (t->status != BITNET_OK || !r->data) /* what could not be read is told by sync */
        return;
    bitnet_status st = save(t, r, &err);
    if (st != BITNET_OK)
        failed(t, st, &err);
    t->index++;
}

void bnet_trace_floats(bnet_backend *be, bnet_op_entry e, const bnet_weight *w, int n_rows,
                       size_t n_cols, bnet_buffer *y)
{
    bnet_trace *t = be->trace;
    bnet_trace_hold(t);
    size_t rows = (size_t)(n_rows ? n_rows : BNET_MAX(t->n_tokens, 1));
    size_t cols = n_rows ? n_cols : n_cols / rows;
    record r = {.stage = bnet_entry_name(e),
                .dtype = "f32",
                .n_rows = rows,
                .n_cols = cols,
                .row_bytes = cols * sizeof(float),
                .stride = cols * sizeof(float)};
    name_result(t, e, w, r.name);
    r.data = be->v->read(be, y, rows * r.stride);
    add(be, &r);
    bnet_trace_release(t);
}

void bnet_trace_heads(bnet_backend *be, int n_rows, int n_heads, bnet_buffer *y)
{
    size_t n_cols = (size_t)n_heads * (size_t)be->trace->head_dim;
    bnet_trace_floats(be, BNET_ENTRY_ATTENTION, NULL, n_rows, n_cols, y);
}

/* The codes, and a record of their scales. */
void bnet_trace_int8(bnet_backend *be, int n_rows, size_t n_cols, const bnet_act8 *q)
{
    bnet_trace *t = be->trace;
    bnet_trace_hold(t);
    record r = {.stage = bnet_entry_name(BNET_ENTRY_QUANTIZE),
                .dtype = "i8",
                .n_rows = (size_t)n_rows,
                .n_cols = n_cols,
                .row_bytes = n_cols,
                .stride = q->stride};
    name_result(t, BNET_ENTRY_QUANTIZE, NULL, r.name);
    r.data = be->v->read(be, q->q, (size_t)n_rows * q->stride);
    add(be, &r);
    r.dtype = "f32";
    r.n_cols = 1;
    r.row_bytes = r.stride = sizeof(float);
    size_t n = strlen(r.name);
    snprintf(r.name + n, sizeof r.name - n, ".scale");
    r.data = be->v->read(be, q->scale, (size_t)n_rows * sizeof(float));
    add(be, &r);
    bnet_trace_release(t);
}
