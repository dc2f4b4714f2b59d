/* gemm_i2s_r16.i8mm.c - two and more tokens against packed groups of 16 rows, by 2x8 * 8x2 integer
 * matrix products.
 *
 * Up to 16 tokens meet the packed lines: weights become operands in registers (r16_pairs.h), which
 * costs less than expanding them to memory for so few.
 *
 * More are taken in batches that half of the second-level cache holds. Their codes are expanded 8
 * rows by 2560 columns at a time, a panel of 20 KB that stays in the first-level cache while the
 * tokens of the batch pass, eight at a time: 16 accumulators, 8 loads for 16 products. The sums of
 * all tokens are kept between the pieces of columns. */
#include "backend/cpu/kernels/r16_pairs.h"

enum {
    FEW = 16,                                  /* tokens that meet the packed lines */
    PANEL = 8,                                 /* rows: [step][plane][pair of rows][row][8] */
    PANEL_STEP = 4 * 8 * PANEL,                /* bytes */
    TILE = 8,                                  /* tokens that meet a panel together */
    MOST = BNET_TEMP_PANEL_SUMS / (4 * PANEL), /* tokens of a batch */
    PIECE = BNET_TEMP_PANEL / PANEL_STEP       /* steps of a panel */
};

/* Tokens t .. t + n, packed by tiles, 16 n_lines bytes each; temp: sums, a panel, these. */
typedef struct batch {
    const bnet_r16 *a;
    size_t t, n;
    int32_t *sums; /* [tile][pair of tokens][pair of rows][2][2] */
    uint8_t *panel;
    int8_t *x;
} batch;

/* ---- few tokens ---- */

/* All rows, 4 n_q at a time, and n_p pairs of tokens. */
#define ROWS(n_q, n_p)                                                                             \
    static void rows_##n_p(const batch *b)                                                         \
    {                                                                                              \
        for (size_t row = 0; row < b->a->n_rows; row += 4 * (n_q))                                 \
            tile(b->a, row, b->t, b->x, n_q, n_p);                                                 \
    }
ROWS(4, 1)
ROWS(2, 2)
ROWS(2, 3)
ROWS(1, 4)
ROWS(1, 5)
ROWS(1, 6)
ROWS(1, 7)
ROWS(1, 8)

static void few(const batch *b)
{
    static void (*const rows[])(const batch *) = {rows_1, rows_2, rows_3, rows_4,
                                                  rows_5, rows_6, rows_7, rows_8};
    size_t n_pairs = (b->n + 1) / 2;
    pack_pairs(b->a, b->t, n_pairs, b->x);
    rows[n_pairs - 1](b);
}

/* ---- many tokens ---- */

/* n_steps steps of 8 rows. */
static void expand(const uint8_t *w, size_t n_steps, uint8_t *to)
{
    for (size_t s = 0; s < n_steps; s++, w += STEP_BYTES, to += PANEL_STEP) {
        uint8x16_t rows[PANEL / 2];
        UNROLL for (int i = 0; i < PANEL / 2; i++) rows[i] = lines_zip(w + i / 2 * 16, i % 2);
        UNROLL for (int p = 0; p < 4; p++) UNROLL for (int i = 0; i < PANEL / 2; i++)
            vst1q_u8(to + 64 * p + 16 * i, plane(rows[i], p));
    }
}

/* Adds n_steps steps of a panel times n_p pairs of tokens; next: lines to call into the
 * second-level cache, soon: into the first; or NULL. */
static ALWAYS_INLINE void panel_add(const uint8_t *w, const int8_t *x, size_t n_steps,
                                    const int n_p, const uint8_t *next, const uint8_t *soon,
                                    int32_t *sums)
{
    int32x4_t acc[TILE / 2][4];
    UNROLL for (int i = 0; i < 4 * n_p; i++) acc[i / 4][i % 4] = vld1q_s32(sums + 4 * i);
    for (size_t s = 0; s < 4 * n_steps; s++, w += 64, x += 16 * n_p) { /* plane by plane */
        uint8x16_t rows[4];
        if (next && s % 2 == 0)
            __builtin_prefetch(next + BNET_R16_LINE / 2 * s, 0, 2);
        if (soon && s % 2 == 0)
            __builtin_prefetch(soon + BNET_R16_LINE / 2 * s, 0, 3);
        UNROLL for (int i = 0; i < 4; i++) rows[i] = vld1q_u8(w + 16 * i);
        UNROLL for (int j = 0; j < n_p; j++)
        {
            int8x16_t v = vld1q_s8(x + 16 * j);
            UNROLL for (int i = 0; i < 4; i++) acc[j][i] = usmmla(acc[j][i], rows[i], v);
        }
    }
    UNROLL for (int i = 0; i < 4 * n_p; i++) vst1q_s32(sums + 4 * i, acc[i / 4][i % 4]);
}

static size_t tile_pairs(const batch *b, size_t t)
{
    return (BNET_MIN((size_t)TILE, b->n - t) + 1) / 2;
}

/* Adds n steps from s on of the panel to the sums of all tokens. The first tile calls what is far,
 * the last one what is expanded next. */
static void batch_add(const batch *b, size_t s, size_t n, const uint8_t *next, const uint8_t *soon)
{
    for (size_t t = 0; t < b->n; t += TILE) {
        size_t p = tile_pairs(b, t);
        const int8_t *x = b->x + t * 16 * b->a->n_lines + 64 * p * s;
        int32_t *sums = b->sums + PANEL * t;
        bool last = t + TILE >= b->n;
        if (p == 4 && t == 0 && next)
            panel_add(b->panel, x, n, 4, next, NULL, sums);
        else if (p == 4 && !last)
            panel_add(b->panel, x, n, 4, NULL, NULL, sums);
        else if (p == 4)
            panel_add(b->panel, x, n, 4, NULL, soon, sums);
        else if (p == 3)
            panel_add(b->panel, x, n, 3, NULL, soon, sums);
        else if (p == 2)
            panel_add(b->panel, x, n, 2, NULL, soon, sums);
        else
            panel_add(b->panel, x, n, 1, NULL, soon, sums);
    }
}

static void batch_store(const batch *b, size_t row)
{
    const int32_t *at = b->sums;
    for (size_t t = 0; t < b->n; t += 2, at += 2 * PANEL) {
        store_pair(b->a, row, b->t + t, vld1q_s32(at), vld1q_s32(at + 4));
        if (row + 4 < b->a->n_rows)
            store_pair(b->a, row + 4, b->t + t, vld1q_s32(at + 8), vld1q_s32(at + 12));
    }
}

/* Rows row .. row + 8 and all tokens of the batch. */
static void batch_rows(const batch *b, size_t row)
{
    const bnet_r16 *a = b->a;
    const size_t n_steps = a->n_lines / 2, n_group = BNET_R16_LINE * a->n_lines;
    const uint8_t *w = lines_of(a, row);
    memset(b->sums, 0, (b->n + TILE - 1) / TILE * TILE * PANEL * sizeof *b->sums);
    for (size_t s = 0; s < n_steps; s += PIECE, w += PIECE * STEP_BYTES) {
        size_t n = BNET_MIN((size_t)PIECE, n_steps - s);
        bool more = s + n < n_steps;
        const uint8_t *soon = more ? w + PIECE * STEP_BYTES : lines_of(a, row + PANEL);
        expand(w, n, b->panel);
        batch_add(b, s, n, row % BNET_R16_ROWS ? w + n_group : NULL, soon);
    }
    batch_store(b, row);
}

static void many(const batch *b)
{
    for (size_t t = 0; t < b->n; t += TILE)
        pack_pairs(b->a, b->t + t, tile_pairs(b, t), b->x + t * 16 * b->a->n_lines);
    for (size_t row = 0; row < b->a->n_rows; row += PANEL)
        batch_rows(b, row);
}

void bnet_gemm_i2s_r16_i8mm(const bnet_r16 *a)
{
    batch b = {.a = a, .sums = (int32_t *)(void *)a->temp, .panel = a->temp + BNET_TEMP_PANEL_SUMS};
    size_t most = BNET_TEMP_BATCH / (16 * a->n_lines) / TILE * TILE;
    b.x = (int8_t *)b.panel + BNET_TEMP_PANEL;
    most = BNET_MIN(most, (size_t)MOST);
    for (size_t t = 0; t < a->n_tokens; t += most) {
        b.t = t;
        b.n = BNET_MIN(most, a->n_tokens - t);
        if (b.n <= FEW)
            few(&b);
        else
            many(&b);
    }
}
