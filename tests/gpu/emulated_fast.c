/* emulated_fast.c - what the fast kernels mean (backend/cuda/kernels.h), one call per launch on the
 * host, with the CPU's arithmetic: so that passes, fused weights and graphs can be tested without a
 * GPU. Chosen when the emulated device says it has a compute capability that has them
 * (BITNET_EMULATED_CC=90). */
#define BNET_CUDA_EMULATED_FAST 1
#include "backend/cuda/batch.h"
#include "backend/cuda/decode.h"
#include "backend/cuda/w2_few_tokens.h"
#include "backend/cuda/tiles.h"
#include "backend/gpu/ref/ref_math.h"
#include "emulated_fast.h"

#include <stdlib.h>
#include <string.h>

enum { POS = 64 };

/* ---- norm and quantisation ---- */

static void norm_row(const float *x, const float *w, uint32_t n, float eps, float *y)
{
    double acc[8] = {0};
    for (uint32_t i = 0; i < n; i++)
        acc[i % 8] += (double)x[i] * x[i];
    for (int f = 4; f >= 1; f /= 2)
        for (int l = 0; l < f; l++)
            acc[l] += acc[l + f];
    double scale = 1.0 / sqrt(acc[0] / (double)n + (double)eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * scale * (double)w[i]);
}

static void quantize_row(const float *x, uint32_t n, uint32_t stride, int8_t *q, float *scale,
                         int32_t *sum)
{
    const double magic = 6755399441055744.0;
    float amax = 1e-5f;
    for (uint32_t i = 0; i < n; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    double s = 127.0 / (double)amax;
    *sum = 0;
    for (uint32_t i = 0; i < stride; i++) {
        double v = i < n ? (double)x[i] * s : 0;
        v = v >= -128.0 ? v : -128.0;
        v = v <= 127.0 ? v : 127.0;
        q[i] = (int8_t)(int32_t)((v + magic) - magic);
        *sum += q[i];
    }
    *scale = amax / 127.0f;
}

FAST(bnet_norm_quantize, bnet_cu_norm_args)
{
    extern uint64_t bnet_emulated_grid;
    float *h = malloc(a->k * sizeof *h);
    for (uint64_t r = 0; r < bnet_emulated_grid; r++) {
        const float *x = a->x + r * a->ld;
        if (a->norm)
            norm_row(x, a->norm, a->k, a->eps, h);
        else
            memcpy(h, x, a->k * sizeof *h);
        if (a->y)
            memcpy(a->y + r * a->k, h, a->k * sizeof *h);
        if (a->act.q)
            quantize_row(h, a->k, a->act.stride, a->act.q + r * a->act.stride, a->act.scale + r,
                         a->act.sum + r);
    }
    free(h);
}

FAST(bnet_norm_rows, bnet_cu_norm_args)
{
    bnet_norm_quantize_all(a);
}

FAST(bnet_norm_tiles, bnet_cu_norm_args)
{
    extern uint64_t bnet_emulated_grid;
    float *h = malloc(a->k * sizeof *h);
    int8_t *q = malloc(a->act.stride);
    for (uint64_t r = 0; r < bnet_emulated_grid; r++) {
        const float *x = a->x + r * a->ld;
        if (a->norm)
            norm_row(x, a->norm, a->k, a->eps, h);
        else
            memcpy(h, x, a->k * sizeof *h);
        quantize_row(h, a->k, a->act.stride, q, a->act.scale + r, a->act.sum + r);
        for (uint32_t i = 0; i < a->act.stride; i++)
            a->act.q[bnet_tile_place((uint32_t)bnet_emulated_grid, a->act.stride, (uint32_t)r, i)] =
                q[i];
    }
    free(h);
    free(q);
}

/* ---- ternary matrices ---- */

/* The 32 bytes of a row in a unit: byte i has the codes of columns i, 32 + i, 64 + i and 96 + i. */
static void bytes_of_row(const uint8_t *unit, uint32_t row, uint8_t bytes[32])
{
    for (uint32_t i = 0; i < 32; i += 4)
        memcpy(bytes + i, unit + 16 * (4 * (row % 8) + i % 16 / 4) + 4 * (row / 8 + 2 * (i / 16)),
               4);
}

static int32_t row_dot(const bnet_cu_w2 *m, uint32_t tile, uint32_t row, const int8_t *q)
{
    int32_t acc = 0;
    uint8_t bytes[32];
    for (uint32_t c = 0; c < m->n_chunks; c++, q += 128) {
        bytes_of_row(m->w + ((uint64_t)tile * m->n_chunks + c) * BNET_W2_UNIT, row, bytes);
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 32; i++)
                acc += ((bytes[i] >> (2 * s) & 3) - 1) * q[32 * s + i];
    }
    return acc;
}

static void put(const bnet_cu_part *p, uint32_t token, uint32_t row, float f, uint32_t epilogue)
{
    if (!p->y || row >= p->n_rows)
        return;
    float *y = p->y + (uint64_t)token * p->ld + row;
    *y = epilogue == BNET_CU_ADD ? *y + f : f;
}

static void paired_row(const bnet_cu_w2 *m, uint32_t r, const int8_t *q, float scale,
                       uint32_t token, uint32_t epilogue)
{
    float g = (float)row_dot(m, r / 8, r % 8, q) * (scale * m->part[0].scale);
    float u = (float)row_dot(m, r / 8, r % 8 + 8, q) * (scale * m->part[1].scale);
    if (epilogue == BNET_CU_RELU2) {
        g = g > 0 ? g : 0;
        put(&m->part[0], token, r, g * g * u, 0);
    } else if (epilogue == BNET_CU_SILU) {
        put(&m->part[0], token, r, g / (1.0f + ref_exp(-g)) * u, 0);
    } else {
        put(&m->part[0], token, r, g, epilogue);
        put(&m->part[1], token, r, u, epilogue);
    }
}

static void w2_token(const bnet_cu_w2 *m, const int8_t *q, float scale, uint32_t token,
                     uint32_t epilogue)
{
    for (uint32_t r = 0; m->paired && r < m->part[0].n_rows; r++)
        paired_row(m, r, q, scale, token, epilogue);
    for (uint32_t p = 0; !m->paired && p < m->n_parts; p++)
        for (uint32_t r = 0; r < m->part[p].n_rows; r++)
            put(&m->part[p], token, r,
                (float)row_dot(m, m->part[p].first_tile + r / 16, r % 16, q) *
                    (scale * m->part[p].scale),
                epilogue);
}

static void gemv(const bnet_cu_gemv_args *a)
{
    uint32_t stride = a->m.n_chunks * BNET_W2_CHUNK;
    int8_t *q = malloc(stride);
    float *h = malloc(a->k * sizeof *h), scale;
    int32_t sum;
    for (uint32_t t = 0; !a->x && t < a->n_tokens; t++)
        w2_token(&a->m, a->act.q + (uint64_t)t * a->act.stride, a->act.scale[t], t, a->epilogue);
    if (a->x) {
        if (a->norm)
            norm_row(a->x, a->norm, a->k, a->eps, h);
        else
            memcpy(h, a->x, a->k * sizeof *h);
        quantize_row(h, a->k, stride, q, &scale, &sum);
        w2_token(&a->m, q, scale, 0, a->epilogue);
    }
    free(q);
    free(h);
}

FAST(bnet_w2_gemv_ldg, bnet_cu_gemv_args)
{
    gemv(a);
}

/* Every tile has a block, every chunk of it a warp, and warps find their tile. */
static void gemv_one(const bnet_cu_few_args *a)
{
    extern uint64_t bnet_emulated_grid;
    const bnet_cu_w2 *m = &a->g.m;
    if (bnet_emulated_grid * a->tiles + a->more != m->n_tiles || a->more >= bnet_emulated_grid ||
        a->split * a->per < m->n_chunks || (a->split - 1) * a->per >= m->n_chunks ||
        a->per > (a->g.n_tokens == 1 ? BNET_ONE_UNITS : BNET_FEW_UNITS))
        abort();
    for (uint32_t w = 0; w < BNET_ONE_THREADS / 32; w++)
        if (w * a->inv >> 16 != w / a->split)
            abort();
    gemv(&a->g);
}

FAST(bnet_w2_one, bnet_cu_few_args)
{
    gemv_one(a);
}

FAST(bnet_w2_one_norm, bnet_cu_few_args)
{
    gemv_one(a);
}

FAST(bnet_w2_few, bnet_cu_few_args)
{
    gemv_one(a);
}

static void gemm(const bnet_cu_gemm_args *a)
{
    for (uint32_t t = 0; t < a->n_tokens; t++)
        w2_token(&a->m, a->act.q + (uint64_t)t * a->act.stride, a->act.scale[t], t, a->epilogue);
}

#define GEMM(name)                                                                                 \
    FAST(name, bnet_cu_gemm_args)                                                                  \
    {                                                                                              \
        gemm(a);                                                                                   \
    }
GEMM(bnet_w2_gemm_wgmma_64)
GEMM(bnet_w2_gemm_wgmma_128)
GEMM(bnet_w2_gemm_mma_64)

static void gemm_tiles(const bnet_cu_gemm_args *a)
{
    int8_t *q = malloc(a->act.stride);
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        for (uint32_t i = 0; i < a->act.stride; i++)
            q[i] = a->act.q[bnet_tile_place(a->n_tokens, a->act.stride, t, i)];
        w2_token(&a->m, q, a->act.scale[t], t, a->epilogue);
    }
    free(q);
}

#define TILES(name)                                                                                \
    FAST(name, bnet_cu_gemm_args)                                                                  \
    {                                                                                              \
        gemm_tiles(a);                                                                             \
    }
TILES(bnet_w2_tiles_128)
TILES(bnet_w2_tiles_256)
TILES(bnet_w2_prompt)
TILES(bnet_w2_prompt_96)
TILES(bnet_w2_rows)
TILES(bnet_w2_tiles_128_16)
TILES(bnet_w2_tiles_128_32)
TILES(bnet_w2_rows_16)

/* ---- rope, cache, attention: through the reference kernels ---- */

void bnet_ref_kv_store(void *p);
void bnet_ref_attention(void *p);
void bnet_ref_rope(void *p);

static void each(void (*kernel)(void *), void *args, uint64_t n)
{
    for (bnet_emulated_thread = 0; bnet_emulated_thread < n; bnet_emulated_thread++)
        kernel(args);
    bnet_emulated_thread = 0;
}

static ref_kv_args kv_args(const bnet_cu_attn_args *a)
{
    return (ref_kv_args){.step = a->step,
                         .k = a->k,
                         .v = a->v,
                         .q = a->q,
                         .y = a->y,
                         .scale = a->scale,
                         .n_tokens = (int32_t)a->n_tokens,
                         .layer = (int32_t)a->layer,
                         .n_heads = (int32_t)a->n_heads,
                         .n_kv_heads = (int32_t)a->n_kv_heads,
                         .head_dim = (int32_t)a->head_dim,
                         .type = (int32_t)a->kv_type,
                         .part_bytes = (int32_t)a->part_bytes};
}

static void append(const bnet_cu_attn_args *a, float *q, float *k)
{
    ref_rope_args r = {q,
                       a->cs,
                       (int32_t)a->n_tokens,
                       (int32_t)a->n_heads,
                       (int32_t)a->head_dim,
                       (int32_t)a->n_rot,
                       (int32_t)a->neox};
    if (q)
        each(bnet_ref_rope, &r, (uint64_t)a->n_tokens * a->n_heads * a->n_rot / 2);
    r.x = k;
    r.n_heads = (int32_t)a->n_kv_heads;
    each(bnet_ref_rope, &r, (uint64_t)a->n_tokens * a->n_kv_heads * a->n_rot / 2);
    ref_kv_args s = kv_args(a);
    s.k = k;
    each(bnet_ref_kv_store, &s, 2 * (uint64_t)a->n_tokens * a->n_kv_heads);
}

FAST(bnet_rope_append, bnet_cu_attn_args)
{
    append(a, a->q, a->k);
}

/* Reads every tile, so that a wrong list of them shows; q is left as it is. */
static void prefill(const bnet_cu_attn_args *a)
{
    ref_kv_args s = kv_args(a);
    size_t n = (size_t)a->n_tokens * a->ldq;
    float *q = malloc(n * sizeof *q);
    memcpy(q, a->q, n * sizeof *q);
    ref_rope_args r = {q,
                       a->cs,
                       (int32_t)a->n_tokens,
                       (int32_t)a->n_heads,
                       (int32_t)a->head_dim,
                       (int32_t)a->n_rot,
                       (int32_t)a->neox};
    if (a->cs)
        each(bnet_ref_rope, &r, (uint64_t)a->n_tokens * a->n_heads * a->n_rot / 2);
    s.q = q;
    for (uint32_t i = 0; i < a->n_tiles; i++)
        for (int32_t t = a->tiles[i].first; t < a->tiles[i].first + a->tiles[i].n; t++)
            for (uint32_t h = 0; h < a->n_heads; h++) {
                bnet_emulated_thread = (uint64_t)t * a->n_heads + h;
                bnet_ref_attention(&s);
            }
    bnet_emulated_thread = 0;
    free(q);
}

#define PREFILL(name)                                                                              \
    FAST(name, bnet_cu_attn_args)                                                                  \
    {                                                                                              \
        prefill(a);                                                                                \
    }
PREFILL(bnet_attn_prefill_f16_64)
PREFILL(bnet_attn_prefill_f16_128)
PREFILL(bnet_attn_prefill_i8_64)
PREFILL(bnet_attn_prefill_i8_128)

static void decode(const bnet_cu_attn_args *a)
{
    size_t nq = (size_t)a->n_tokens * a->ldq, nk = (size_t)a->n_tokens * a->ldk;
    float *q = malloc(nq * sizeof *q), *k = malloc(nk * sizeof *k);
    ref_kv_args s = kv_args(a);
    memcpy(q, a->q, nq * sizeof *q);
    if (a->cs) {
        memcpy(k, a->k, nk * sizeof *k);
        append(a, q, k);
    }
    s.q = q;
    each(bnet_ref_attention, &s, (uint64_t)a->n_tokens * a->n_heads);
    free(q);
    free(k);
}

/* Blocks that meet through counters, which are zero before. */
static void split_decode(const bnet_cu_attn_args *a)
{
    for (uint32_t i = 0; i < a->n_tokens * a->n_kv_heads; i++)
        if (a->counters[i])
            abort();
    decode(a);
}

FAST(bnet_attn_decode_f16, bnet_cu_attn_args)
{
    split_decode(a);
}

FAST(bnet_attn_decode_f32, bnet_cu_attn_args)
{
    split_decode(a);
}

FAST(bnet_attn_decode_i8, bnet_cu_attn_args)
{
    split_decode(a);
}

/* So many timelines that one block each fills the device. */
FAST(bnet_attn_batch_h128, bnet_cu_attn_args)
{
    decode(a);
}

FAST(bnet_attn_batch_h128_i8, bnet_cu_attn_args)
{
    decode(a);
}

FAST(bnet_attn_shared_h128, bnet_cu_attn_args)
{
    split_decode(a);
}

FAST(bnet_attn_shared_h128_i8, bnet_cu_attn_args)
{
    split_decode(a);
}

/* ---- all layers of one token ---- */

/* One product of the layer: x normed, quantised, multiplied. */
static void product(const bnet_cu_decode_args *a, const bnet_cu_layer *l, int which, const float *x,
                    bnet_cu_w2 *m, uint32_t epilogue)
{
    m->w = l->w[which];
    m->n_chunks = (which == 3 ? a->n_ff : a->n_embd) / BNET_W2_CHUNK;
    bnet_cu_gemv_args g = {.m = *m,
                           .x = x,
                           .norm = l->norm[which],
                           .eps = a->eps,
                           .k = m->n_chunks * BNET_W2_CHUNK,
                           .n_tokens = 1,
                           .epilogue = epilogue};
    gemv(&g);
}

static void decode_attention(const bnet_cu_decode_args *a, uint32_t layer, float *qkv, float *y)
{
    uint32_t nq = a->n_heads * 128, nkv = a->n_kv_heads * 128;
    uint32_t *counters = calloc(a->n_kv_heads, sizeof *counters);
    bnet_cu_attn_args at = {.step = a->step,
                            .q = qkv,
                            .k = qkv + nq,
                            .v = qkv + nq + nkv,
                            .cs = a->angles + (uint64_t)a->step.pos[0] * a->n_rot,
                            .y = y,
                            .counters = counters,
                            .ldq = nq,
                            .ldk = nkv,
                            .layer = layer,
                            .n_heads = a->n_heads,
                            .n_kv_heads = a->n_kv_heads,
                            .head_dim = 128,
                            .part_bytes = a->part_bytes,
                            .n_rot = a->n_rot,
                            .neox = a->neox,
                            .n_tokens = 1,
                            .scale = a->scale};
    decode(&at);
    free(counters);
}

static void decode_layer(const bnet_cu_decode_args *a, uint32_t layer, float *qkv, float *y,
                         float *h)
{
    const bnet_cu_layer *l = &a->layers[layer];
    uint32_t nq = a->n_heads * 128, nkv = a->n_kv_heads * 128;
    bnet_cu_w2 m = {.n_parts = 3,
                    .part = {{0, nq, l->scale[0], nq, qkv},
                             {nq / 16, nkv, l->scale[1], nkv, qkv + nq},
                             {(nq + nkv) / 16, nkv, l->scale[2], nkv, qkv + nq + nkv}}};
    product(a, l, 0, a->x, &m, BNET_CU_STORE);
    decode_attention(a, layer, qkv, y);
    bnet_cu_w2 o = {.n_parts = 1, .part = {{0, a->n_embd, l->scale[3], a->n_embd, a->x}}};
    product(a, l, 1, y, &o, BNET_CU_ADD);
    bnet_cu_w2 g = {
        .n_parts = 2,
        .paired = 1,
        .part = {{0, a->n_ff, l->scale[4], a->n_ff, h}, {0, a->n_ff, l->scale[5], a->n_ff, NULL}}};
    product(a, l, 2, a->x, &g, a->silu ? BNET_CU_SILU : BNET_CU_RELU2);
    bnet_cu_w2 d = {.n_parts = 1, .part = {{0, a->n_embd, l->scale[6], a->n_embd, a->x}}};
    product(a, l, 3, h, &d, BNET_CU_ADD);
}

/* A plan gives every tile of every matrix to one of the first n blocks, and all have some of gate +
 * up. */
static void check_division(const bnet_cu_decode_args *a, const uint32_t *plan, uint32_t n)
{
    for (uint32_t m = 0; m < 4; m++) {
        uint32_t next = 0;
        for (uint32_t b = 0; b < a->blocks; b++) {
            uint32_t p = plan[4 * b + m], tiles = p & 0xffff;
            if ((tiles && p >> 16 != next) || (b >= n && tiles) || (b < n && m == 2 && !tiles) ||
                tiles > a->tiles)
                abort();
            next += tiles;
        }
        if (next != bnet_decode_tiles(a, (int)m))
            abort();
    }
}

/* The grid is whole clusters, its two plans are right, and the exchange was cleared once. */
static void check_plan(const bnet_cu_decode_args *a)
{
    extern uint64_t bnet_emulated_grid;
    if (bnet_emulated_grid != a->blocks || a->blocks % BNET_DECODE_CLUSTER)
        abort();
    for (uint64_t i = 0; i < 2; i++)
        check_division(a, a->plan + 4 * i * a->blocks, a->matrix_blocks[i]);
    const uint8_t *bytes = (const uint8_t *)a->exchange;
    for (uint64_t i = 0; i < bnet_decode_exchange_bytes(a); i++)
        if (bytes[i] != BNET_DECODE_NONE)
            abort();
    if (a->epoch[0] > 3)
        abort();
}

FAST(bnet_decode_step, bnet_cu_decode_args)
{
    float *qkv = malloc((a->n_heads + 2 * a->n_kv_heads) * 128 * sizeof *qkv);
    float *y = malloc(a->n_heads * 128 * sizeof *y), *h = malloc(a->n_ff * sizeof *h);
    check_plan(a);
    for (uint32_t i = 0; i < a->n_layers; i++)
        decode_layer(a, i, qkv, y, h);
    a->epoch[0] = (a->epoch[0] + a->n_layers) % 4;
    free(qkv);
    free(y);
    free(h);
}

/* ---- rows of matrices ---- */

typedef float four __attribute__((vector_size(16)));

static four products(const float *w, const float *x)
{
    four a, b;
    memcpy(&a, w, sizeof a);
    memcpy(&b, x, sizeof b);
    return a * b;
}

/* Element k is added to sum k % 16. */
static float head_dot(const float *w, const float *x, uint32_t n)
{
    four s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16) {
        s0 += products(w + k, x + k);
        s1 += products(w + k + 4, x + k + 4);
        s2 += products(w + k + 8, x + k + 8);
        s3 += products(w + k + 12, x + k + 12);
    }
    float acc[16];
    memcpy(acc, (four[4]){s0, s1, s2, s3}, sizeof acc);
    for (uint32_t i = 0; k + i < n; i++)
        acc[i] += w[k + i] * x[k + i];
    return ref_fold16(acc);
}

/* A row is read once for all tokens. */
static void head(const bnet_cu_head_args *a, int type)
{
    float *w = malloc(a->m.k * sizeof *w);
    for (uint32_t r = 0; r < a->m.n_rows; r++) {
        for (uint32_t k = 0; k < a->m.k; k++)
            w[k] = ref_value(&a->m, type, r, (int)k);
        for (uint32_t t = 0; t < a->n_tokens; t++)
            a->y[(uint64_t)t * a->ld + r] = head_dot(w, a->x + (uint64_t)t * a->ldx, a->m.k);
    }
    free(w);
}

static void embed(const bnet_cu_embed_args *a, int type)
{
    extern uint64_t bnet_emulated_grid;
    for (uint64_t t = 0; t < bnet_emulated_grid; t++)
        for (uint32_t k = 0; k < a->m.k; k++)
            a->y[t * a->m.k + k] = ref_value(&a->m, type, (uint64_t)a->ids[t], (int)k);
}

#define MATRIX(name, type)                                                                         \
    FAST(bnet_head_##name, bnet_cu_head_args)                                                      \
    {                                                                                              \
        head(a, type);                                                                             \
    }                                                                                              \
    FAST(bnet_embed_##name, bnet_cu_embed_args)                                                    \
    {                                                                                              \
        embed(a, type);                                                                            \
    }
MATRIX(f32, REF_F32)
MATRIX(f16, REF_F16)
MATRIX(bf16, REF_BF16)
MATRIX(q8, REF_Q8)
MATRIX(q6k, REF_Q6K)

FAST(bnet_head_split, bnet_cu_batch_args)
{
    memset(a->halves, 0, (size_t)bnet_head_batch_padded(a->n_tokens) * a->m.stride * 4);
    memset(a->scale, 0, (size_t)bnet_head_batch_padded(a->n_tokens) * sizeof *a->scale);
}

static void head_batch(const bnet_cu_batch_args *a, int type)
{
    bnet_cu_head_args h = {
        .m = a->m, .x = a->x, .y = a->y, .n_tokens = a->n_tokens, .ldx = a->ldx, .ld = a->ld};
    head(&h, type);
}

#define BATCH(name, type)                                                                          \
    FAST(bnet_head_batch_##name, bnet_cu_batch_args)                                               \
    {                                                                                              \
        head_batch(a, type);                                                                       \
    }
BATCH(f16, REF_F16)
BATCH(f16_wgmma, REF_F16)
BATCH(q8_16, REF_Q8)
BATCH(q8_32, REF_Q8)
BATCH(q8_64, REF_Q8)
BATCH(q8_16_wgmma, REF_Q8)
BATCH(q8_32_wgmma, REF_Q8)
BATCH(q8_64_wgmma, REF_Q8)
BATCH(q6k_16, REF_Q6K)
BATCH(q6k_32, REF_Q6K)
BATCH(q6k_64, REF_Q6K)
BATCH(q6k_16_wgmma, REF_Q6K)
BATCH(q6k_32_wgmma, REF_Q6K)
BATCH(q6k_64_wgmma, REF_Q6K)

/* ---- the best of each row ---- */

void bnet_ref_topk(void *p);

FAST(bnet_topk_part, bnet_cu_sample_args)
{
    memset(a->work, 0, (size_t)a->rows * BNET_TOPK_SLICES * BNET_TOPK_MAX * sizeof *a->work);
}

FAST(bnet_topk_rows, bnet_cu_sample_args)
{
    memset(a->work, 0, (size_t)a->rows * BNET_TOPK_SLICES * BNET_TOPK_MAX * sizeof *a->work);
}

FAST(bnet_topk_join, bnet_cu_sample_args)
{
    ref_topk_args t = {a->logits, a->value, a->id, (int32_t)a->rows, (int32_t)a->n, (int32_t)a->k};
    each(bnet_ref_topk, &t, a->rows);
}

FAST(bnet_topk_merge, bnet_cu_sample_args)
{
    ref_topk_args t = {a->logits, a->value, a->id, (int32_t)a->rows, (int32_t)a->n, (int32_t)a->k};
    each(bnet_ref_topk, &t, a->rows);
}
