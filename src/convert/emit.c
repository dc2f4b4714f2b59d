/* emit.c - carries out a plan: rows in, encoded rows out, a block of rows at a time. Pages of the
 * input are given back behind the reading, so resident memory stays at a few blocks whatever the
 * model's size. */
#include <math.h>
#include <stdio.h>

#include "convert/plan.h"
#include "format/codec.h"

#define BLOCK_BYTES (1u << 20) /* of floats per block of rows */

typedef struct emitter {
    const bnet_plan *plan;
    bnet_gguf_writer *w;
    bitnet_error *err;
    uint64_t n_done, n_total;
    const bnet_item *item;
    float scale;        /* of the ternary item at hand */
    size_t n_block;     /* rows per block of the item at hand */
    size_t n_row_bytes; /* encoded */
    float *row;         /* [n_cols] */
    int8_t *trits;      /* [n_cols] */
    uint8_t *out;       /* [n_block][n_row_bytes] */
} emitter;

static uint64_t source_row_bytes(const bnet_item *t)
{
    return t->kind == BNET_ITEM_PACKED ? t->n_cols
                                       : t->n_cols * (t->source_type == BNET_F32 ? 4u : 2u);
}

/* The input row that becomes output row r: within a head of d rows, new 2i+j comes from old
 * j*d/2+i. */
static uint64_t source_row(const bnet_item *t, uint64_t r)
{
    if (t->n_heads == 0)
        return r;
    uint64_t d = t->n_rows / t->n_heads, head = r / d, in = r % d;
    return head * d + (in % 2) * (d / 2) + in / 2;
}

static uint64_t packed_rows(const bnet_item *t)
{
    return (t->n_rows + 3) / 4;
}

static void release(const bnet_item *t, uint64_t r0, uint64_t r1)
{
    uint64_t n = source_row_bytes(t);
    if (t->kind == BNET_ITEM_PACKED) {
        uint64_t total = packed_rows(t);
        bnet_map_release(t->data + r0 % total * n,
                         (size_t)(BNET_MIN(r1 - r0, total - r0 % total) * n));
        return;
    }
    bnet_map_release(t->data + r0 * n, (size_t)((r1 - r0) * n));
}

static bitnet_status bad_value(const emitter *e, uint64_t row, size_t col, const char *what)
{
    return bnet_fail(e->err, BITNET_MODEL, "%s: tensor %s: row %llu, column %zu: %s", e->item->path,
                     e->item->source, (unsigned long long)row, col, what);
}

/* The largest |x| the output type holds; anything beyond would become infinity. */
static float type_limit(bnet_type t)
{
    return t == BNET_F32    ? 3.40282347e38f
           : t == BNET_BF16 ? 3.38953139e38f
           : t == BNET_Q8_0 ? 65504.0f * 127
                            : 65504.0f;
}

static bitnet_status check_values(const emitter *e, uint64_t row, const float *x, size_t n,
                                  float limit)
{
    char text[96];
    for (size_t i = 0; i < n; i++) {
        if (fabsf(x[i]) <= limit)
            continue;
        if (!isfinite(x[i]))
            return bad_value(e, row, i, isnan(x[i]) ? "not a number" : "infinite");
        snprintf(text, sizeof text, "%g does not fit the output type; use f32 or bf16",
                 (double)x[i]);
        return bad_value(e, row, i, text);
    }
    return BITNET_OK;
}

static bitnet_status load_floats(const emitter *e, uint64_t row, float limit)
{
    const bnet_item *t = e->item;
    bnet_decode_row(t->source_type, t->data + row * source_row_bytes(t), e->row, t->n_cols);
    return check_values(e, row, e->row, t->n_cols, limit);
}

/* Logical row r lies in packed row r % R, bits 2 * (r / R). */
static bitnet_status unpack_row(const emitter *e, uint64_t row)
{
    const bnet_item *t = e->item;
    uint64_t total = packed_rows(t);
    const uint8_t *src = t->data + row % total * t->n_cols;
    unsigned shift = 2 * (unsigned)(row / total), bad = 0;
    for (size_t i = 0; i < t->n_cols; i++) {
        unsigned code = (unsigned)src[i] >> shift & 3;
        bad |= code + 1;
        e->trits[i] = (int8_t)((int)code - 1);
    }
    if (!(bad & 4))
        return BITNET_OK;
    for (size_t i = 0; i < t->n_cols; i++)
        if (e->trits[i] == 2)
            return bad_value(e, row, i, "code 3, which is no ternary weight");
    return BITNET_OK;
}

static bitnet_status load_trits(const emitter *e, uint64_t row)
{
    if (e->item->kind == BNET_ITEM_PACKED)
        return unpack_row(e, row);
    bitnet_status st = load_floats(e, row, 3.40282347e38f);
    if (st == BITNET_OK)
        bnet_absmean_row(e->row, e->scale, e->trits, e->item->n_cols);
    return st;
}

/* One output row into `dst`, which is zeroed. */
static bitnet_status encode_row(const emitter *e, uint64_t r, uint8_t *dst)
{
    const bnet_item *t = e->item;
    uint64_t row = source_row(t, r);
    if (t->kind == BNET_ITEM_FLOAT) {
        bitnet_status st = load_floats(e, row, type_limit(t->type));
        if (st == BITNET_OK)
            bnet_encode_row(t->type, e->row, dst, t->n_cols);
        return st;
    }
    bitnet_status st = load_trits(e, row);
    if (st != BITNET_OK)
        return st;
    if (t->type == BNET_I2_S) {
        bnet_i2s_encode_row(BITNET_I2S_128, dst, t->n_cols, 0, e->trits);
        return BITNET_OK;
    }
    for (size_t i = 0; i < t->n_cols; i++)
        e->row[i] = (float)e->trits[i] * e->scale;
    bnet_encode_row(t->type, e->row, dst, t->n_cols);
    return BITNET_OK;
}

static bitnet_status report(emitter *e, uint64_t n_bytes)
{
    const bnet_convert_options *o = e->plan->options;
    e->n_done += n_bytes;
    if (!o->on_progress || o->on_progress(o->progress_user, e->n_done, e->n_total))
        return BITNET_OK;
    return bnet_fail(e->err, BITNET_CANCELLED, "conversion cancelled at tensor %s", e->item->name);
}

static bitnet_status emit_block(emitter *e, uint64_t r0, uint64_t r1)
{
    size_t n_bytes = (size_t)(r1 - r0) * e->n_row_bytes;
    memset(e->out, 0, n_bytes);
    for (uint64_t r = r0; r < r1; r++) {
        bitnet_status st = encode_row(e, r, e->out + (r - r0) * e->n_row_bytes);
        if (st != BITNET_OK)
            return st;
    }
    release(e->item, r0, r1);
    bitnet_status st = bnet_gguf_data(e->w, e->out, n_bytes, e->err);
    return st == BITNET_OK ? report(e, n_bytes) : st;
}

/* First pass over a master tensor: mean of |w|. */
static bitnet_status measure_master(emitter *e)
{
    const bnet_item *t = e->item;
    double sum = 0;
    for (uint64_t r0 = 0; r0 < t->n_rows; r0 += e->n_block) {
        uint64_t r1 = BNET_MIN(r0 + e->n_block, t->n_rows);
        for (uint64_t r = r0; r < r1; r++) {
            bitnet_status st = load_floats(e, r, 3.40282347e38f);
            if (st != BITNET_OK)
                return st;
            for (size_t i = 0; i < t->n_cols; i++)
                sum += fabs((double)e->row[i]);
        }
        release(t, r0, r1);
    }
    e->scale = bnet_absmean_finish(sum, t->n_rows * t->n_cols);
    return BITNET_OK;
}

/* A scale that the output stores in 16 bits must survive that. */
static bitnet_status check_scale(const emitter *e)
{
    const bnet_item *t = e->item;
    if (t->type == BNET_I2_S || t->type == BNET_F32)
        return BITNET_OK;
    float half = bnet_f16_to_f32(bnet_f32_to_f16(e->scale));
    if (isfinite(half) && half > 0)
        return BITNET_OK;
    return bnet_fail(e->err, BITNET_MODEL,
                     "%s: tensor %s: scale %g does not fit 16 bits; use --type i2_s or f32",
                     t->path, t->source, (double)e->scale);
}

static bitnet_status settle_scale(emitter *e)
{
    if (e->item->kind == BNET_ITEM_FLOAT)
        return BITNET_OK;
    e->scale = e->item->scale;
    bitnet_status st = e->item->kind == BNET_ITEM_MASTER ? measure_master(e) : BITNET_OK;
    return st == BITNET_OK ? check_scale(e) : st;
}

static bitnet_status emit_rows(emitter *e)
{
    const bnet_item *t = e->item;
    bitnet_status st = settle_scale(e);
    for (uint64_t r = 0; st == BITNET_OK && r < t->n_rows; r += e->n_block)
        st = emit_block(e, r, BNET_MIN(r + e->n_block, t->n_rows));
    if (st != BITNET_OK || t->type != BNET_I2_S)
        return st;
    uint8_t tail[32] = {0}; /* the scale, and 28 bytes the format leaves undefined */
    bnet_put_f32(tail, e->scale);
    st = bnet_gguf_data(e->w, tail, sizeof tail, e->err);
    return st == BITNET_OK ? report(e, sizeof tail) : st;
}

static bitnet_status emit_item(emitter *e, const bnet_item *t)
{
    uint64_t n_row_bytes = t->n_cols / 4;
    e->item = t;
    e->n_block = BNET_MAX(1u, BLOCK_BYTES / (t->n_cols * sizeof(float)));
    if (t->type != BNET_I2_S && !bnet_type_bytes(t->type, t->n_cols, 1, &n_row_bytes))
        return bnet_fail(e->err, BITNET_ERROR, "tensor %s: no size", t->name);
    e->n_row_bytes = (size_t)n_row_bytes;
    e->row = bnet_calloc(t->n_cols, sizeof *e->row);
    e->trits = bnet_calloc(t->n_cols, sizeof *e->trits);
    e->out = bnet_calloc(e->n_block, e->n_row_bytes);
    bitnet_status st =
        e->row && e->trits && e->out ? emit_rows(e) : bnet_no_memory(e->err, t->name);
    bnet_free(e->row);
    bnet_free(e->trits);
    bnet_free(e->out);
    return st;
}

bitnet_status bnet_plan_emit(const bnet_plan *p, bnet_gguf_writer *w, bitnet_error *err)
{
    emitter e = {.plan = p, .w = w, .err = err, .n_total = bnet_gguf_data_bytes(w)};
    for (size_t i = 0; i < p->n_items; i++) {
        bitnet_status st = emit_item(&e, &p->items[i]);
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}
