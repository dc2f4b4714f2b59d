/* health.c - a quick look at a running engine: memory, one matrix of the model against the bytes of
 * the file, one entry of a cache. Costs a fraction of a token and disturbs no session. */
#include "engine/engine.h"
#include "bitnet_check.h"
#include "bitnet_tools.h"

#include "model/weights.h"
#include "ops/json_text.h"

#include <math.h>
#include <stdio.h>

enum { ROWS = 8 }; /* of the matrix that are computed a second time */

#define FLOAT_BOUND 1e-5 /* of |w| |x| */

void bitnet_health_init(bitnet_health *h)
{
    if (!h)
        return;
    *h = (bitnet_health){.struct_size = sizeof *h};
}

static void wrong(bitnet_health *h, const char *text)
{
    if (!h->detail[0])
        bnet_quote(text, strlen(text), h->detail, sizeof h->detail);
}

static void check_memory(bitnet_health *h)
{
    char text[96];
    bitnet_host_memory m = {0};
    bitnet_host_memory_read(&m, NULL); /* where the system does not say, nothing is wrong */
    h->memory_available = m.available_bytes;
    h->process_bytes = m.process_bytes;
    h->memory_ok = m.available_bytes >= m.total_bytes / 20;
    if (h->memory_ok)
        return;
    snprintf(text, sizeof text, "memory: host: %llu of %llu bytes are available",
             (unsigned long long)m.available_bytes, (unsigned long long)m.total_bytes);
    wrong(h, text);
}

/* ---- one matrix ---- */

typedef struct trial {
    bitnet_engine *e;
    const bnet_tensor *tensor; /* of the matrix, in the file */
    float extra;               /* its separate scale; 1: it has none */
    const bnet_weight *w;
    const bnet_weight_info *info;
    size_t stride; /* of int8 activations */
    bnet_buffer *x, *q, *scale, *sum, *y;
    float *input, *row;
} trial;

static void trial_free(trial *t)
{
    bnet_buffer *all[] = {t->x, t->q, t->scale, t->sum, t->y};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        bnet_op_buffer_free(t->e->backend, all[i]);
    bnet_free(t->input);
    bnet_free(t->row);
}

static bool trial_open(trial *t)
{
    bnet_backend *be = t->e->backend;
    size_t n = (size_t)t->info->n_in, f = sizeof(float);
    t->stride = (n + 127) / 128 * 128;
    t->x = bnet_op_buffer(be, n * f);
    t->q = bnet_op_buffer(be, t->stride);
    t->scale = bnet_op_buffer(be, f);
    t->sum = bnet_op_buffer(be, sizeof(int32_t));
    t->y = bnet_op_buffer(be, (size_t)t->info->n_out * f);
    t->input = bnet_alloc(n * f);
    t->row = bnet_alloc(n * f);
    for (size_t i = 0; t->input && i < n; i++)
        t->input[i] = (float)((int)(i * 37 % 255) - 127); /* the largest is 127: the scale is 1 */
    if (t->input && n)
        t->input[0] = -127;
    return t->x && t->q && t->scale && t->sum && t->y && t->input && t->row;
}

/* Decodes a row as the backend prepared it; false: only the backend can read its type. */
static bool trial_row(const trial *t, size_t row)
{
    uint64_t row_bytes = 0;
    size_t n = (size_t)t->info->n_in;
    if (t->tensor->type == BNET_I2_S) {
        int8_t *trits =
            (int8_t *)(void *)t->row; /* decoded where the floats will be, then widened */
        bnet_i2s_decode_row(t->e->layout, t->tensor->data, n, row, trits);
        for (size_t i = n; i-- > 0;) {
            float v = (float)trits[i] * t->info->scale;
            memcpy(t->row + i, &v, sizeof v);
        }
        return true;
    }
    if (!bnet_type_bytes(t->tensor->type, n, 1, &row_bytes) ||
        !bnet_decode_row(t->tensor->type, t->tensor->data + row * row_bytes, t->row, n))
        return false;
    bool master = t->info->ternary && !bnet_type_is_ternary(t->tensor->type) &&
                  !bnet_type_is_bn(t->tensor->type);
    for (size_t i = 0; i < n; i++) /* floats become ternary when they are prepared */
        t->row[i] = master ? (float)((t->row[i] > 0) - (t->row[i] < 0)) * t->info->scale
                           : t->row[i] * t->extra;
    return true;
}

/* Compares one result with a plain sum in double. */
static bool trial_agrees(const trial *t, float got, double *want)
{
    double sum = 0, size = 0;
    for (size_t i = 0; i < t->info->n_in; i++) {
        sum += (double)t->row[i] * (double)t->input[i];
        size += fabs((double)t->row[i] * (double)t->input[i]);
    }
    *want = sum;
    return fabs((double)got - sum) <= FLOAT_BOUND * size + 1e-30;
}

static bitnet_status trial_run(const trial *t, bitnet_error *err)
{
    bnet_backend *be = t->e->backend;
    bnet_act8 act = {t->q, t->scale, t->sum, t->stride};
    bnet_op_hold(be);
    bnet_op_write(be, t->x, t->input, (size_t)t->info->n_in * sizeof(float));
    if (t->info->ternary) {
        bnet_op_quantize_i8(be, t->x, 1, (size_t)t->info->n_in, &act);
        bnet_op_linear_ternary(be, t->w, &act, 1, t->y);
    } else {
        bnet_op_linear_float(be, t->w, t->x, 1, t->y);
    }
    return bnet_op_release(be, bnet_op_sync(be, err), err);
}

static void trial_judge(const trial *t, bitnet_health *h)
{
    size_t n_out = (size_t)t->info->n_out;
    const float *y = bnet_op_read(t->e->backend, t->y, n_out * sizeof(float));
    h->compute_ok = true;
    if (!y) {
        h->compute_ok = false;
        wrong(h, "the result of a product cannot be read from the device");
        return;
    }
    for (size_t i = 0; i < ROWS && i < n_out; i++) {
        size_t row = i * (n_out - 1) / (ROWS - 1) % n_out;
        double want;
        if (!trial_row(t, row) || trial_agrees(t, y[row], &want))
            continue;
        char text[240];
        snprintf(text, sizeof text, "%s: row %zu times a vector is %g instead of %g",
                 t->tensor->name, row, (double)y[row], want);
        h->compute_ok = false;
        wrong(h, text);
    }
}

static bitnet_status check_compute(bitnet_engine *e, bitnet_health *h, bitnet_error *err)
{
    trial t = {.e = e, .tensor = bnet_gguf_tensor(e->gguf, "blk.0.attn_q.weight")};
    t.w = e->model->layers[0].q;
    t.info = bnet_op_weight_info(e->backend, t.w);
    if (!t.tensor || t.tensor->ne[0] != t.info->n_in || t.tensor->ne[1] != t.info->n_out) {
        wrong(h, "blk.0.attn_q.weight is not in the file");
        return BITNET_OK;
    }
    const bnet_tensor *extra = bnet_gguf_tensor(e->gguf, "blk.0.attn_q.scale");
    t.extra = extra ? bnet_f32(extra->data) : 1; /* one F32 value, as the loader checked */
    bitnet_status st = trial_open(&t) ? trial_run(&t, err) : bnet_no_memory(err, "health check");
    if (st == BITNET_OK)
        trial_judge(&t, h);
    trial_free(&t);
    return st;
}

/* ---- one entry of a cache ---- */

typedef struct entry {
    bnet_kv_shape shape;
    bnet_kv_store *store;
    bnet_buffer *k, *v, *q, *y;
    float *values; /* of v: exact in half precision */
    size_t n_heads;
} entry;

static bitnet_status entry_run(bnet_backend *be, const entry *t, bitnet_error *err)
{
    int32_t zero = 0, block = 0;
    bnet_seq seq = {t->store, &block};
    bnet_step step = {1, &zero, &zero, &zero, &seq};
    size_t n = (size_t)t->shape.n_kv_heads * (size_t)t->shape.head_dim * sizeof(float);
    bnet_op_hold(be);
    bnet_op_write(be, t->k, t->values, n);
    bnet_op_write(be, t->v, t->values, n);
    bnet_op_kv_append(be, &step, 0, t->k, t->v);
    bnet_op_attention(be, &step, 0, (int)t->n_heads, t->q, t->y);
    return bnet_op_release(be, bnet_op_sync(be, err), err);
}

/* One position: attention can only return its value, to every head of the group. */
static bool entry_agrees(bnet_backend *be, const entry *t)
{
    size_t hd = (size_t)t->shape.head_dim, group = t->n_heads / (size_t)t->shape.n_kv_heads;
    const float *y = bnet_op_read(be, t->y, t->n_heads * hd * sizeof(float));
    for (size_t h = 0; h < t->n_heads; h++)
        for (size_t i = 0; i < hd; i++)
            if (!y || !(fabsf(y[h * hd + i] - t->values[h / group * hd + i]) <= 1e-6f))
                return false;
    return true;
}

static bitnet_status check_cache(bitnet_engine *e, bitnet_health *h, bitnet_error *err)
{
    const bnet_hparams *p = bnet_model_hparams(e->model);
    bnet_backend *be = e->backend;
    entry t = {.shape = {1, 1, p->n_kv_heads, p->head_dim, BITNET_KV_F16, p->n_heads},
               .n_heads = (size_t)p->n_heads};
    size_t n_kv = (size_t)p->n_kv_heads * (size_t)p->head_dim,
           n_q = t.n_heads * (size_t)p->head_dim, f = sizeof(float);
    t.store = bnet_op_kv_new(be, &t.shape);
    t.k = bnet_op_buffer(be, n_kv * f);
    t.v = bnet_op_buffer(be, n_kv * f);
    t.q = bnet_op_buffer(be, n_q * f);
    t.y = bnet_op_buffer(be, n_q * f);
    t.values = bnet_alloc(n_kv * f);
    for (size_t i = 0; t.values && i < n_kv; i++)
        t.values[i] = (float)(int)(i % 61) / 32.0f - 1.0f;
    bitnet_status st = t.store && t.k && t.v && t.q && t.y && t.values
                           ? entry_run(be, &t, err)
                           : bnet_no_memory(err, "health check");
    if (st == BITNET_OK) {
        h->cache_ok = entry_agrees(be, &t);
        if (!h->cache_ok)
            wrong(h, "attention over one cached position does not return its value");
    }
    bnet_buffer *all[] = {t.k, t.v, t.q, t.y};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        bnet_op_buffer_free(be, all[i]);
    bnet_op_kv_free(be, t.store);
    bnet_free(t.values);
    return st;
}

bitnet_status bitnet_health_check(bitnet_engine *e, bitnet_health *health, bitnet_error *err)
{
    if (!e || !health || health->struct_size < sizeof *health)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "health: engine and a health set up with bitnet_health_init are needed");
    if (!e->model)
        return bnet_fail(err, BITNET_ARGUMENT, "health: the engine has a vocabulary only");
    bitnet_health h;
    double start = bnet_now_ms();
    bitnet_health_init(&h);
    check_memory(&h);
    bnet_guest_enter(&e->workspaces);
    bitnet_status st = check_compute(e, &h, err);
    if (st == BITNET_OK)
        st = check_cache(e, &h, err);
    bnet_guest_leave(&e->workspaces);
    if (st != BITNET_OK)
        return st;
    h.healthy = h.memory_ok && h.compute_ok && h.cache_ok;
    h.elapsed_ms = bnet_now_ms() - start;
    *health = h;
    return BITNET_OK;
}

size_t bitnet_health_json(const bitnet_health *h, char *buf, size_t cap)
{
    if (!h)
        return 0;
    static const char *const word[] = {"false", "true"};
    bnet_str s = {0};
    bnet_str_addf(&s,
                  "{\"healthy\": %s, \"memory_ok\": %s, \"compute_ok\": %s, \"cache_ok\": %s, "
                  "\"memory_available\": %llu, \"process_bytes\": %llu, \"elapsed_ms\": %.3f, "
                  "\"detail\": ",
                  word[h->healthy], word[h->memory_ok], word[h->compute_ok], word[h->cache_ok],
                  (unsigned long long)h->memory_available, (unsigned long long)h->process_bytes,
                  h->elapsed_ms);
    bnet_json_text(&s, h->detail);
    bnet_str_putc(&s, '}');
    size_t n = s.failed ? 0 : s.n;
    if (cap && buf)
        snprintf(buf, cap, "%s", s.failed ? "" : s.data);
    bnet_str_free(&s);
    return n;
}
