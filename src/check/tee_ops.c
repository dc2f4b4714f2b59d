/* tee_ops.c - every operation, twice: the inputs of side 0 are copied to side 1, both compute, the
 * results are compared. No difference survives an operation, so each is found where it arises. */
#include "check/tee.h"

#include "ops/kv_block.h"

enum { BOTH = 2, TABLE_ULPS = 4 }; /* cosines and sines come from libraries on some devices */

static tee_backend *tee_of(bnet_backend *b)
{
    return (tee_backend *)b;
}

static bnet_buffer *half(const bnet_buffer *b, int s)
{
    return ((const tee_buffer *)(const void *)b)->half[s];
}

static const tee_weight *weight_of(const bnet_weight *w)
{
    return (const tee_weight *)(const void *)w;
}

static const bnet_weight_info *info_of(const bnet_weight *w)
{
    const tee_weight *t = weight_of(w);
    return bnet_op_weight_info(t->first, t->half[0]);
}

static bnet_backend *side(const tee_call *c, int s)
{
    return c->tee->side[s].be;
}

static tee_call begin(bnet_backend *b, const char *op, const bnet_weight *w, int n_rows,
                      size_t n_cols)
{
    return bnet_tee_begin(tee_of(b), op, w ? weight_of(w) : NULL, (size_t)n_rows, n_cols);
}

/* NULL: reading it failed, which sync will report; then nothing is compared. */
static const void *see(tee_backend *t, int s, const bnet_buffer *b, size_t n_bytes)
{
    return bnet_op_read(t->side[s].be, half(b, s), n_bytes);
}

/* Side 1 gets side 0's input, one row of row_bytes for each row of the call. */
static void feed(const tee_call *c, const bnet_buffer *b, size_t row_bytes)
{
    size_t n_bytes = c->n_rows * row_bytes;
    const void *bytes = see(c->tee, 0, b, n_bytes);
    if (bytes)
        bnet_op_write(side(c, 1), half(b, 1), bytes, n_bytes);
}

static void compare(tee_call *c, const bnet_buffer *y)
{
    size_t n = c->n_rows * c->n_cols * sizeof(float);
    bnet_tee_ran(c);
    const float *first = see(c->tee, 0, y, n), *second = see(c->tee, 1, y, n);
    if (first && second)
        bnet_tee_floats(c, first, second);
    bnet_tee_end(c);
}

/* ---- positions of rows ---- */

static bool room_for(tee_backend *t, tee_buffer *b, size_t n)
{
    bool ok = bnet_grow(&b->pos, &b->cap_pos, n, sizeof *b->pos);
    b->n_pos = ok ? n : 0;
    t->no_memory = t->no_memory || !ok;
    t->now = ok ? b : NULL;
    return ok;
}

static void rows_are(tee_backend *t, bnet_buffer *x, const bnet_step *s)
{
    tee_buffer *b = (tee_buffer *)(void *)x;
    if (room_for(t, b, (size_t)s->n_tokens))
        memcpy(b->pos, s->pos, (size_t)s->n_tokens * sizeof *b->pos);
}

static void rows_from(tee_backend *t, const bnet_buffer *x, const int32_t *rows, int n_rows,
                      bnet_buffer *y)
{
    const tee_buffer *from = (const tee_buffer *)(const void *)x;
    tee_buffer *to = (tee_buffer *)(void *)y;
    if (!room_for(t, to, (size_t)n_rows))
        return;
    for (int i = 0; i < n_rows; i++)
        to->pos[i] = (size_t)rows[i] < from->n_pos ? from->pos[rows[i]] : -1;
}

/* ---- steps with each side's stores ---- */

static bool step_for(tee_backend *t, int s, const bnet_step *step, bnet_step *out)
{
    tee_side *side = &t->side[s];
    size_t n = 0;
    for (int i = 0; i < step->n_tokens; i++)
        n = BNET_MAX(n, (size_t)step->seq[i] + 1);
    if (!bnet_grow(&side->seqs, &side->cap_seqs, n, sizeof *side->seqs)) {
        t->no_memory = true;
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const tee_kv *kv = (const tee_kv *)(const void *)step->seqs[i].store;
        side->seqs[i] = (bnet_seq){kv->half[s], step->seqs[i].blocks};
    }
    *out = *step;
    out->seqs = side->seqs;
    return true;
}

/* For operations that look at ids and positions alone. */
static bnet_step without_caches(const bnet_step *s)
{
    bnet_step plain = *s;
    plain.seqs = NULL;
    return plain;
}

static const tee_kv *kv_of(const bnet_step *s, int token)
{
    return (const tee_kv *)(const void *)s->seqs[s->seq[token]].store;
}

/* A copy of one block of one layer; NULL: no memory. */
static const uint8_t *block_of(tee_backend *t, const tee_kv *kv, int s, int layer, int block)
{
    if (!bnet_grow(&t->block[s], &t->cap_block[s], (size_t)bnet_kv_layer_bytes(&kv->shape), 1)) {
        t->no_memory = true;
        return NULL;
    }
    bnet_op_kv_get(t->side[s].be, kv->half[s], layer, block, t->block[s]);
    return t->block[s];
}

/* ---- the table ---- */

static void tee_embed(bnet_backend *b, const bnet_weight *w, const bnet_step *s, bnet_buffer *x)
{
    rows_are(tee_of(b), x, s);
    tee_call c = begin(b, "embed", w, s->n_tokens, info_of(w)->n_in);
    bnet_step plain = without_caches(s);
    for (int i = 0; i < BOTH; i++)
        bnet_op_embed(side(&c, i), weight_of(w)->half[i], &plain, half(x, i));
    compare(&c, x);
}

static void tee_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *w, float eps,
                        int n_rows, bnet_buffer *y)
{
    size_t n = info_of(w)->n_in;
    tee_call c = begin(b, "rmsnorm", w, n_rows, n);
    feed(&c, x, n * sizeof(float));
    for (int i = 0; i < BOTH; i++)
        bnet_op_rmsnorm(side(&c, i), half(x, i), weight_of(w)->half[i], eps, n_rows, half(y, i));
    compare(&c, y);
}

static bnet_act8 act_for(const bnet_act8 *q, int s)
{
    return (bnet_act8){half(q->q, s), half(q->scale, s), half(q->sum, s), q->stride};
}

static bool see_quantized(const tee_call *c, int s, const bnet_act8 *q, tee_quantized *out)
{
    size_t n = c->n_rows;
    *out = (tee_quantized){see(c->tee, s, q->q, n * q->stride),
                           see(c->tee, s, q->scale, n * sizeof(float)),
                           see(c->tee, s, q->sum, n * sizeof(int32_t))};
    return out->q && out->scale && out->sum;
}

static void tee_quantize_i8(bnet_backend *b, bnet_buffer *x, int n_rows, size_t n_cols,
                            bnet_act8 *q)
{
    tee_quantized first, second;
    tee_call c = begin(b, "quantize_i8", NULL, n_rows, n_cols);
    feed(&c, x, n_cols * sizeof(float));
    for (int i = 0; i < BOTH; i++) {
        bnet_act8 own = act_for(q, i);
        bnet_op_quantize_i8(side(&c, i), half(x, i), n_rows, n_cols, &own);
    }
    bool seen = see_quantized(&c, 0, q, &first) && see_quantized(&c, 1, q, &second);
    bnet_tee_ran(&c);
    const float *from = see(c.tee, 0, x, c.n_rows * n_cols * sizeof(float));
    if (from && seen)
        bnet_tee_quantized(&c, from, q->stride, &first, &second);
    bnet_tee_end(&c);
}

static void tee_linear_ternary(bnet_backend *b, const bnet_weight *w, const bnet_act8 *q,
                               int n_rows, bnet_buffer *y)
{
    tee_call c = begin(b, "linear_ternary", w, n_rows, info_of(w)->n_out);
    feed(&c, q->q, q->stride);
    feed(&c, q->scale, sizeof(float));
    feed(&c, q->sum, sizeof(int32_t));
    for (int i = 0; i < BOTH; i++) {
        bnet_act8 own = act_for(q, i);
        bnet_op_linear_ternary(side(&c, i), weight_of(w)->half[i], &own, n_rows, half(y, i));
    }
    compare(&c, y);
}

static void tee_linear_float(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                             bnet_buffer *y)
{
    tee_call c = begin(b, "linear_float", w, n_rows, info_of(w)->n_out);
    feed(&c, x, info_of(w)->n_in * sizeof(float));
    for (int i = 0; i < BOTH; i++)
        bnet_op_linear_float(side(&c, i), weight_of(w)->half[i], half(x, i), n_rows, half(y, i));
    compare(&c, y);
}

static void tee_rope_table(bnet_backend *b, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs)
{
    tee_call c = begin(b, "rope_table", NULL, s->n_tokens, (size_t)r->n_rot);
    bnet_step plain = without_caches(s);
    c.ulps = TABLE_ULPS;
    for (int i = 0; i < BOTH; i++)
        bnet_op_rope_table(side(&c, i), r, &plain, half(cs, i));
    compare(&c, cs);
}

static void tee_rope(bnet_backend *b, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                     bnet_buffer *x)
{
    size_t n = (size_t)n_heads * (size_t)r->head_dim;
    tee_call c = begin(b, "rope", NULL, n_rows, n);
    feed(&c, cs, (size_t)r->n_rot * sizeof(float));
    feed(&c, x, n * sizeof(float));
    for (int i = 0; i < BOTH; i++)
        bnet_op_rope(side(&c, i), r, half(cs, i), n_rows, n_heads, half(x, i));
    compare(&c, x);
}

/* What each token's keys and values became, head by head. */
static void compare_cache(tee_call *c, const bnet_step *s, const float *k, const float *v)
{
    for (int i = 0; i < s->n_tokens; i++) {
        const tee_kv *kv = kv_of(s, i);
        int block = s->seqs[s->seq[i]].blocks[s->pos[i] / BNET_BLOCK_POS];
        size_t hd = (size_t)kv->shape.head_dim, n_kv = (size_t)kv->shape.n_kv_heads;
        size_t part = bnet_kv_part_bytes(kv->shape.type, hd);
        const uint8_t *a = block_of(c->tee, kv, 0, c->layer, block),
                      *b = block_of(c->tee, kv, 1, c->layer, block);
        if (!a || !b)
            return;
        for (size_t h = 0; h < 2 * n_kv; h++) {
            const float *x = (h % 2 ? v : k) + ((size_t)i * n_kv + h / 2) * hd;
            bnet_tee_cached(c, (size_t)i, h / 2 * hd, kv, (size_t)(s->pos[i] % BNET_BLOCK_POS), x,
                            a + h * part, b + h * part);
        }
    }
}

static void tee_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                          bnet_buffer *v)
{
    const bnet_kv_shape *shape = &kv_of(s, 0)->shape;
    size_t row = (size_t)shape->n_kv_heads * (size_t)shape->head_dim * sizeof(float);
    tee_call c = begin(b, "kv_append", NULL, s->n_tokens, 0);
    c.layer = layer;
    feed(&c, k, row);
    feed(&c, v, row);
    bool ok = true;
    for (int i = 0; i < BOTH; i++) {
        bnet_step own;
        ok = step_for(c.tee, i, s, &own) && ok;
        if (ok)
            bnet_op_kv_append(side(&c, i), &own, layer, half(k, i), half(v, i));
    }
    if (!ok)
        return;
    bnet_tee_ran(&c);
    const float *keys = see(c.tee, 0, k, c.n_rows * row),
                *values = see(c.tee, 0, v, c.n_rows * row);
    if (keys && values)
        compare_cache(&c, s, keys, values);
    bnet_tee_end(&c);
}

/* Every block a token looks at, from side 0 to side 1; the last token of a timeline sees all. */
static void feed_cache(tee_backend *t, const bnet_step *s, int layer)
{
    for (int i = 0; i < s->n_tokens; i++) {
        const tee_kv *kv = kv_of(s, i);
        bool last = i + 1 == s->n_tokens || s->seq[i + 1] != s->seq[i];
        for (int blk = 0; last && blk * BNET_BLOCK_POS <= s->pos[i]; blk++) {
            int at = s->seqs[s->seq[i]].blocks[blk];
            const uint8_t *bytes = block_of(t, kv, 0, layer, at);
            if (bytes)
                bnet_op_kv_put(t->side[1].be, kv->half[1], layer, at, bytes);
        }
    }
}

static void tee_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads,
                          bnet_buffer *q, bnet_buffer *y)
{
    size_t n = (size_t)n_heads * (size_t)kv_of(s, 0)->shape.head_dim;
    tee_call c = begin(b, "attention", NULL, s->n_tokens, n);
    c.layer = layer;
    feed(&c, q, n * sizeof(float));
    feed_cache(c.tee, s, layer);
    bool ok = true;
    for (int i = 0; i < BOTH; i++) {
        bnet_step own;
        ok = step_for(c.tee, i, s, &own) && ok;
        if (ok)
            bnet_op_attention(side(&c, i), &own, layer, n_heads, half(q, i), half(y, i));
    }
    if (ok)
        compare(&c, y);
}

/* An operation over n values that does not say how they lie in rows, and its inputs. */
static tee_call begin_flat(bnet_backend *b, const char *op, size_t n, const bnet_buffer *x,
                           const bnet_buffer *y)
{
    const tee_buffer *now = tee_of(b)->now;
    size_t n_rows = now && now->n_pos && n % now->n_pos == 0 ? now->n_pos : 1;
    tee_call c = begin(b, op, NULL, (int)n_rows, n / n_rows);
    feed(&c, x, c.n_cols * sizeof(float));
    feed(&c, y, c.n_cols * sizeof(float));
    return c;
}

static void tee_glu(bnet_backend *b, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                    size_t n, bnet_buffer *y)
{
    tee_call c = begin_flat(b, act == BNET_ACT_RELU2 ? "glu_relu2" : "glu_silu", n, gate, up);
    for (int i = 0; i < BOTH; i++)
        bnet_op_glu(side(&c, i), act, half(gate, i), half(up, i), n, half(y, i));
    compare(&c, y);
}

static void tee_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n)
{
    tee_call c = begin_flat(b, "add", n, x, y);
    for (int i = 0; i < BOTH; i++)
        bnet_op_add(side(&c, i), half(x, i), half(y, i), n);
    compare(&c, x);
}

static void tee_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                       size_t n_cols, bnet_buffer *y)
{
    size_t last = 0;
    for (int i = 0; i < n_rows; i++)
        last = BNET_MAX(last, (size_t)rows[i]);
    rows_from(tee_of(b), x, rows, n_rows, y);
    tee_call c = begin(b, "gather", NULL, n_rows, n_cols), input = c;
    input.n_rows = last + 1;
    feed(&input, x, n_cols * sizeof(float));
    for (int i = 0; i < BOTH; i++)
        bnet_op_gather(side(&c, i), half(x, i), rows, n_rows, n_cols, half(y, i));
    compare(&c, y);
}

void bnet_tee_fill(bnet_backend_vtable *v)
{
    v->embed = tee_embed;
    v->rmsnorm = tee_rmsnorm;
    v->quantize_i8 = tee_quantize_i8;
    v->linear_ternary = tee_linear_ternary;
    v->linear_float = tee_linear_float;
    v->rope_table = tee_rope_table;
    v->rope = tee_rope;
    v->kv_append = tee_kv_append;
    v->attention = tee_attention;
    v->glu = tee_glu;
    v->add = tee_add;
    v->gather = tee_gather;
}
