/* validate_case.c - one operation with made-up data, on any backend. */
#include "check/validate.h"

#include <math.h>

enum { VOCAB = 16 }; /* rows of an embedding */

/* ---- pieces ---- */

bool bnet_case_buffer(kernel_case *c, size_t n_floats, bool input)
{
    int i = c->n_buffers++;
    size_t n = c->n_bytes[i] = n_floats * sizeof(float);
    c->buf[i] = bnet_op_buffer(c->be, n);
    c->host[i] = input ? bnet_alloc(n) : NULL;
    for (size_t j = 0; c->host[i] && j < n_floats; j++)
        c->host[i][j] = (float)((int)(bnet_case_random(&c->seed) % 4001) - 2000) / 1000.0f;
    c->result = i;
    return c->buf[i] && (!input || c->host[i]);
}

static int8_t act_value(kernel_case *c, size_t token)
{
    if (c->fill == CASE_RANDOM)
        return (int8_t)((int)(bnet_case_random(&c->seed) % 255) - 127);
    return (c->fill == CASE_EXTREME_PLUS) == (token % 2 == 0) ? 127 : -127;
}

bool bnet_case_act(kernel_case *c, size_t n_cols)
{
    size_t m = (size_t)c->s.m, stride = (n_cols + 127) / 128 * 128;
    c->act = (bnet_act8){bnet_op_buffer(c->be, m * stride), bnet_op_buffer(c->be, m * 4),
                         bnet_op_buffer(c->be, m * 4), stride};
    c->q = bnet_calloc(m, stride);
    c->scales = bnet_calloc(m, sizeof *c->scales);
    c->sums = bnet_calloc(m, sizeof *c->sums);
    if (!c->act.q || !c->act.scale || !c->act.sum || !c->q || !c->scales || !c->sums)
        return false;
    for (size_t t = 0; t < m; t++) {
        c->scales[t] = 1.0f / (float)(64 + t % 3);
        for (size_t i = 0; i < n_cols; i++)
            c->sums[t] += c->q[t * stride + i] = act_value(c, t);
    }
    return true;
}

/* m tokens of one timeline, from position 0. */
bool bnet_case_step(kernel_case *c)
{
    size_t m = (size_t)c->s.m;
    c->ids = bnet_calloc(m, sizeof *c->ids);
    c->pos = bnet_calloc(m, sizeof *c->pos);
    c->seq = bnet_calloc(m, sizeof *c->seq);
    c->blocks = bnet_calloc(m / 64 + 1, sizeof *c->blocks);
    if (!c->ids || !c->pos || !c->seq || !c->blocks)
        return false;
    for (size_t i = 0; i < m; i++) {
        c->ids[i] = (int32_t)(i * 7 % VOCAB);
        c->pos[i] = (int32_t)i;
        c->blocks[i / 64] = (int32_t)(m / 64 - i / 64); /* last block first */
    }
    c->step = (bnet_step){(int)m, c->ids, c->pos, c->seq, &c->timeline};
    return true;
}

bool bnet_case_cache(kernel_case *c)
{
    int n_blocks = (int)(c->s.m / 64 + 1), n_heads = bnet_case_heads(c);
    bnet_kv_shape shape = {.n_layers = 1,
                           .n_blocks = n_blocks,
                           .n_kv_heads = BNET_MAX(n_heads / 2, 1),
                           .head_dim = c->head,
                           .type = c->kv_type,
                           .n_heads = n_heads};
    size_t n = (size_t)c->s.m * (size_t)shape.n_kv_heads * (size_t)c->head;
    c->kv = bnet_op_kv_new(c->be, &shape);
    if (!c->kv || !bnet_case_step(c) || !bnet_case_buffer(c, n, true) ||
        !bnet_case_buffer(c, n, true))
        return false;
    c->timeline = (bnet_seq){c->kv, c->blocks};
    c->kv_shape = shape;
    for (int b = 0; b < n_blocks; b++) /* as the model does at first use */
        bnet_op_kv_clear(c->be, c->kv, b);
    return true;
}

bool bnet_case_rope(kernel_case *c)
{
    int half = c->head / 2;
    c->inv_freq = bnet_alloc((size_t)half * sizeof *c->inv_freq);
    for (int i = 0; c->inv_freq && i < half; i++)
        c->inv_freq[i] = pow(10000.0, -1.0 * i / half);
    bool neox = c->neox || c->rec->format == BNET_FORMAT_NEOX;
    c->rope = (bnet_rope){c->inv_freq, c->head, c->head, neox};
    return c->inv_freq && (c->ids || bnet_case_step(c)) &&
           bnet_case_buffer(c, (size_t)c->s.m * (size_t)c->head, false) &&
           bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), true);
}

bitnet_status bnet_case_prepare(kernel_case *c, bitnet_error *err)
{
    bnet_weight_request r = {.source.tensor = &c->tensor,
                             .source.file = "validation",
                             .source.layout = BITNET_I2S_128,
                             .source.ternarise = c->ternarise,
                             .source.extra_scale = 1.0f,
                             .head =
                                 bnet_case_head(c->rec) || c->rec->format == BNET_FORMAT_Q6_K_R4};
    return bnet_op_weight(c->be, &r, NULL, &c->w, err);
}

/* A vector of n weights, or an embedding of VOCAB rows. */
static bool plain_weight(kernel_case *c, uint32_t n_dims)
{
    size_t n = (size_t)c->s.n * (n_dims == 2 ? VOCAB : 1);
    float *w = bnet_alloc(n * sizeof *w);
    c->bytes = (uint8_t *)w;
    for (size_t i = 0; w && i < n; i++)
        w[i] = (float)((int)(bnet_case_random(&c->seed) % 2001) - 1000) / 1000.0f;
    c->tensor = (bnet_tensor){.name = "synthetic.weight",
                              .n_dims = n_dims,
                              .ne = {c->s.n, n_dims == 2 ? VOCAB : 1, 1, 1},
                              .type = BNET_F32,
                              .data = c->bytes,
                              .n_bytes = n * sizeof *w};
    return w != NULL;
}

/* ---- operations: making, running ---- */

typedef struct case_op {
    bnet_op op;
    bool (*open)(kernel_case *c);
    void (*run)(kernel_case *c);
} case_op;

static bool open_rows(kernel_case *c) /* x -> y */
{
    size_t n = (size_t)(c->s.m * c->s.n);
    return bnet_case_buffer(c, n, true) && bnet_case_buffer(c, n, false);
}

static bool open_norm(kernel_case *c)
{
    return plain_weight(c, 1) && open_rows(c);
}

/* Kernels for one type of rows get rows of that type. */
static bool encode_embedding(kernel_case *c, bnet_format type)
{
    const bnet_type_info *t = bnet_format_type(type);
    uint64_t row_bytes = 0;
    if (!t || t->type == BNET_F32)
        return true;
    bnet_type_bytes(t->type, c->s.n, 1, &row_bytes);
    uint8_t *rows = bnet_calloc(VOCAB, (size_t)row_bytes);
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < VOCAB; i++)
        ok = bnet_encode_row(t->type, (const float *)(const void *)c->bytes + i * c->s.n,
                             rows + i * row_bytes, (size_t)c->s.n);
    if (!ok) {
        bnet_free(rows);
        return false;
    }
    bnet_free(c->bytes);
    c->bytes = rows;
    c->tensor.type = t->type;
    c->tensor.data = rows;
    c->tensor.n_bytes = row_bytes * VOCAB;
    return true;
}

bool bnet_case_embedding(kernel_case *c, bnet_format type)
{
    return plain_weight(c, 2) && encode_embedding(c, type) && bnet_case_step(c) &&
           bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), false);
}

static bool open_embed(kernel_case *c)
{
    return bnet_case_embedding(c, c->rec->format);
}

static bool open_quantize(kernel_case *c)
{
    return bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), true) && bnet_case_act(c, (size_t)c->s.n);
}

/* x -> y, q */
bool bnet_case_norm_quantize(kernel_case *c)
{
    return open_norm(c) && bnet_case_act(c, (size_t)c->s.n);
}

/* x, y -> z, q; what x is added to is compared, too */
static bool open_two_quantize(kernel_case *c)
{
    return bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), true) && bnet_case_norm_quantize(c);
}

static bool open_two(kernel_case *c) /* x, y -> z */
{
    return bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), true) && open_rows(c);
}

static bool open_add(kernel_case *c) /* x += y */
{
    bool ok = open_two(c);
    c->result = 0;
    return ok;
}

/* What is stored is read back by attention. */
bool bnet_case_attention(kernel_case *c)
{
    return bnet_case_cache(c) && open_rows(c);
}

static void run_norm(kernel_case *c)
{
    bnet_op_rmsnorm(c->be, c->buf[0], c->w, 1e-5f, (int)c->s.m, c->buf[1]);
}

static void run_embed(kernel_case *c)
{
    bnet_op_embed(c->be, c->w, &c->step, c->buf[0]);
}

static void run_quantize(kernel_case *c)
{
    bnet_op_quantize_i8(c->be, c->buf[0], (int)c->s.m, (size_t)c->s.n, &c->act);
}

static void run_norm_quantize(kernel_case *c)
{
    bnet_op_norm_quantize(c->be, c->buf[0], NULL, c->w, 1e-5f, (int)c->s.m, c->buf[1], &c->act);
}

static void run_add_norm_quantize(kernel_case *c)
{
    bnet_op_norm_quantize(c->be, c->buf[0], c->buf[1], c->w, 1e-5f, (int)c->s.m, c->buf[2],
                          &c->act);
}

static bnet_activation activation(const kernel_case *c)
{
    return c->rec->format == BNET_FORMAT_RELU2 ? BNET_ACT_RELU2 : BNET_ACT_SILU;
}

static void run_glu_norm_quantize(kernel_case *c)
{
    bnet_op_glu_norm_quantize(c->be, activation(c), c->buf[0], c->buf[1], c->w, 1e-5f, (int)c->s.m,
                              c->buf[2], &c->act);
}

static void run_rope(kernel_case *c)
{
    bnet_op_rope_table(c->be, &c->rope, &c->step, c->buf[0]);
    bnet_op_rope(c->be, &c->rope, c->buf[0], (int)c->s.m, bnet_case_heads(c), c->buf[1]);
}

static void run_store(kernel_case *c)
{
    bnet_op_kv_append(c->be, &c->step, 0, c->buf[0], c->buf[1]);
}

static void run_attention(kernel_case *c)
{
    run_store(c);
    bnet_op_attention(c->be, &c->step, 0, bnet_case_heads(c), c->buf[2], c->buf[3]);
}

static void run_glu(kernel_case *c)
{
    bnet_op_glu(c->be, activation(c), c->buf[0], c->buf[1], (size_t)(c->s.m * c->s.n), c->buf[2]);
}

static void run_add(kernel_case *c)
{
    bnet_op_add(c->be, c->buf[0], c->buf[1], (size_t)(c->s.m * c->s.n));
}

bool bnet_case_matrix(kernel_case *c)
{
    bool i8 = bnet_case_ternary(c->rec);
    return (i8 ? bnet_case_act(c, (size_t)c->s.k)
               : bnet_case_buffer(c, (size_t)(c->s.m * c->s.k), true)) &&
           bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), false);
}

static void run_linear(kernel_case *c)
{
    if (c->act.q)
        bnet_op_linear_ternary(c->be, c->w, &c->act, (int)c->s.m, c->buf[0]);
    else
        bnet_op_linear_float(c->be, c->w, c->buf[0], (int)c->s.m, c->buf[1]);
}

static bool open_head(kernel_case *c)
{
    return bnet_case_buffer(c, (size_t)c->s.k, true) && bnet_case_buffer(c, (size_t)c->s.n, false);
}

/* A full row with the listed logits in their places; the best is NaN if it is not listed. */
static void place(const bnet_top *top, float *y, size_t n)
{
    size_t best = 0;
    bool listed = false;
    for (size_t i = 1; i < n; i++)
        best = y[i] > y[best] ? i : best;
    for (size_t i = 0; i < top->n; i++) {
        listed = listed || top->ids[i] == (int32_t)best;
        y[top->ids[i]] = top->logits[i];
    }
    if (!listed)
        y[best] = NAN;
}

static void run_head(kernel_case *c)
{
    size_t n = (size_t)c->s.n;
    bnet_top_want want = {.k = 1};
    bnet_top top = {0};
    bnet_buffer *scratch = bnet_op_buffer(c->be, bnet_op_top_bytes(c->be, c->w) + 1);
    float *y = bnet_calloc(n, sizeof *y);
    if (scratch && y) {
        bnet_op_linear_float(c->be, c->w, c->buf[0], 1, c->buf[1]);
        const float *all = bnet_op_read(c->be, c->buf[1], n * sizeof *y);
        if (all)
            memcpy(y, all, n * sizeof *y);
        bnet_op_top(c->be, c->w, c->buf[0], 1, &want, c->buf[1], scratch, &top);
        place(&top, y, n);
        bnet_op_write(c->be, c->buf[1], y, n * sizeof *y);
    }
    bnet_op_buffer_free(c->be, scratch);
    bnet_free(y);
}

static const case_op ops[] = {
    {BNET_OP_LINEAR, bnet_case_matrix, run_linear},
    {BNET_OP_HEAD_SCAN, open_head, run_head},
    {BNET_OP_RMSNORM, open_norm, run_norm},
    {BNET_OP_EMBED, open_embed, run_embed},
    {BNET_OP_QUANTIZE, open_quantize, run_quantize},
    {BNET_OP_NORM_QUANTIZE, bnet_case_norm_quantize, run_norm_quantize},
    {BNET_OP_ADD_NORM_QUANTIZE, open_two_quantize, run_add_norm_quantize},
    {BNET_OP_GLU_NORM_QUANTIZE, open_two_quantize, run_glu_norm_quantize},
    {BNET_OP_ROPE, bnet_case_rope, run_rope},
    {BNET_OP_KV_STORE, bnet_case_attention, run_attention},
    {BNET_OP_ATTENTION, bnet_case_attention, run_attention},
    {BNET_OP_GLU, open_two, run_glu},
    {BNET_OP_ADD, open_add, run_add},
};

static const case_op *find_op(bnet_op op)
{
    for (size_t i = 0; i < BNET_COUNT(ops); i++)
        if (ops[i].op == op)
            return &ops[i];
    return NULL;
}

static bool embedding_fits(const kernel_case *c)
{
    const bnet_type_info *t = bnet_format_type(c->rec->format);
    uint64_t row_bytes;
    return !t || bnet_type_bytes(t->type, c->s.n, 1, &row_bytes);
}

bitnet_status bnet_case_open(bnet_backend *be, const bnet_kernel_record *rec, case_shape s,
                             case_fill fill, kernel_case *c, const char **skip, bitnet_error *err)
{
    const case_op *op = find_op(rec->op);
    bitnet_status st = BITNET_OK;
    *c = (kernel_case){.be = be,
                       .rec = rec,
                       .s = s,
                       .fill = fill,
                       .seed = 1,
                       .head = CASE_HEAD,
                       .kv_type = bnet_case_kv_type(rec->format)};
    *skip = op ? NULL : "no case is known for this operation";
    if (op && bnet_case_fused(rec) && !bnet_op_fuses(be))
        *skip = "the device has no call for it alone";
    if (op && op->op == BNET_OP_EMBED && !embedding_fits(c))
        *skip = "n does not fit the blocks of the format";
    if (op && (bnet_case_linear(rec) || bnet_case_head(rec)))
        st = bnet_case_weight(c, skip, err);
    if (st == BITNET_OK && !*skip && !op->open(c))
        st = bnet_no_memory(err, "validation");
    if (st == BITNET_OK && !*skip && c->tensor.data)
        st = bnet_case_prepare(c, err);
    if (st == BITNET_OK && !*skip)
        return BITNET_OK;
    bnet_case_close(c);
    return st;
}

void bnet_case_close(kernel_case *c)
{
    bnet_op_weight_free(c->be, c->w);
    bnet_op_buffer_free(c->be, c->act.q);
    bnet_op_buffer_free(c->be, c->act.scale);
    bnet_op_buffer_free(c->be, c->act.sum);
    for (int i = 0; i < c->n_buffers; i++) {
        bnet_op_buffer_free(c->be, c->buf[i]);
        bnet_free(c->host[i]);
    }
    bnet_op_kv_free(c->be, c->kv);
    void *all[] = {c->bytes, c->q,   c->scales, c->sums,    c->ids,
                   c->pos,   c->seq, c->blocks, c->inv_freq};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        bnet_free(all[i]);
    *c = (kernel_case){0};
}

void bnet_case_load(kernel_case *c)
{
    size_t m = (size_t)c->s.m;
    for (int i = 0; i < c->n_buffers; i++)
        if (c->host[i])
            bnet_op_write(c->be, c->buf[i], c->host[i], c->n_bytes[i]);
    if (!c->act.q)
        return;
    bnet_op_write(c->be, c->act.q, c->q, m * c->act.stride);
    bnet_op_write(c->be, c->act.scale, c->scales, m * sizeof *c->scales);
    bnet_op_write(c->be, c->act.sum, c->sums, m * sizeof *c->sums);
}

bitnet_status bnet_case_run(kernel_case *c, bitnet_error *err)
{
    find_op(c->rec->op)->run(c);
    return bnet_op_sync(c->be, err);
}

const float *bnet_case_result(kernel_case *c)
{
    return bnet_op_read(c->be, c->buf[c->result], c->n_bytes[c->result]);
}

bnet_kernel_query bnet_case_query(const bnet_kernel_record *k, case_shape s)
{
    bnet_kernel_query q = bnet_query_for(k);
    if (bnet_case_product(k)) {
        bool padded = bnet_case_linear(k) &&
                      (k->format == BNET_FORMAT_I2S || k->format == BNET_FORMAT_I2S_R16);
        q.m = s.m;
        q.n = s.n;
        q.k = padded ? (s.k + 127) / 128 * 128 : s.k;
    }
    return q;
}
