/* i2s_r16.amx.c - packed groups for many tokens with tiles of 16 x 64 bytes. Four lines of a group,
 * expanded to bytes 0..2, are a tile of 64 columns x 16 rows as tdpbsud wants it; 64 columns of 16
 * tokens are the other factor. 32 rows x 32 tokens are summed at once in four tiles, over all
 * columns. Sums are within 2 * 128 * K < 2^31.
 *
 * Factors pass through two tiles, one of activations and one of weights, though one factor of four
 * is then loaded twice: that is faster than four tiles for them (docs/SPEED.md), it seems because a
 * load waits for a register behind the eight that have names, and there are few of these.
 *
 * What has to move while the multiplier works, 64 cycles for 64 columns of such a block:
 *   - weights are expanded a few steps ahead into a small ring, which stays in the first-level
 *     cache: expanding them again for every 32 tokens costs nothing that the multiplier waits for,
 *     and the second-level cache sees packed weights only;
 *   - every row of the call passes over as many tokens as the second-level cache holds (a batch),
 *     which are copied once into the order of tiles, unless that takes longer than it saves;
 *   - outputs are called into the cache while their sums are not yet complete.
 * Tokens beyond the last are not in the tiles; rows beyond it are, and are not stored. */
#include "backend/cpu/kernels/r16_zmm.h"

enum {
    STEP = 64,                   /* columns of a tile */
    TILE = 1024,                 /* bytes of a tile */
    AHEAD = 3,                   /* steps the ring is filled before its use */
    RING = 4,                    /* steps in the ring, a power of two > AHEAD */
    BATCH = BNET_TEMP_TILES,     /* bytes of activations, but 32 tokens where these are more, which
                                    are not copied; temp: a batch; then the ring; then four sums */
    RING_BYTES = BNET_TEMP_RING, /* RING * 2 * TILE */
    FEW_ROWS = 512               /* of a call: for fewer, up to 32 tokens are not copied */
};
#define FENCE() __asm__ volatile("" ::: "memory") /* gcc 12 does not see what tile loads read */
_Static_assert((int)RING_BYTES == RING * 2 * TILE, "the ring has room");

/* A batch of tokens and what serves it. */
typedef struct batch {
    const bnet_r16 *a;
    size_t n_steps; /* K / 64 */
    size_t t;       /* first token */
    const int8_t *x;
    size_t x_token, x_step, x_block; /* bytes from token to token, by 64 columns, by 32 tokens */
    uint8_t *ring;                   /* [RING][group][16 * 64] */
    int32_t *sums;                   /* [4][16][16] */
} batch;

/* One block of 32 rows, or 16, and up to 32 tokens: one part of them, or two of the same length,
 * which have a token in common where their number is odd. */
typedef struct place {
    const uint8_t *w, *next; /* its weights, and those of the block after it (NULL: none) */
    size_t n_group;          /* bytes from group to group */
    const int8_t *x;         /* its tokens in the batch */
    float *y;
    size_t y_stride, n_tokens, second; /* with which token the second part begins */
} place;

/* Tiles 0..3: sums [part of the tokens][group]; 4: activations; 6: weights. */
static void shape_tiles(size_t n_tokens, const int n_t, const int n_g)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t n_bytes[16];
        uint8_t n_rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 7; i++) {
        bool sums = i < 4 && i / 2 < n_t && i % 2 < n_g;
        if (sums || i == 4 || i == 6)
            c.n_bytes[i] = STEP;
        if (sums || i == 4)
            c.n_rows[i] = (uint8_t)n_tokens;
    }
    c.n_rows[6] = 16;
    FENCE();
    _tile_loadconfig(&c);
}

/* Four lines each of n_g groups, n_group bytes apart, to bytes. */
static ALWAYS_INLINE void expand(const uint8_t *w, size_t n_group, uint8_t *to, const int n_g)
{
    const vec three = v_bytes(3);
    UNROLL for (int i = 0; i < 4 * n_g; i++)
    {
        uint8_t *line = to + 256 * i;
        vec v = v_load(w + (size_t)(i / 4) * n_group + 64 * (i % 4));
        v_store(line, v_and(v, three));
        v_store(line + 64, v_and(v_right16(v, 2), three));
        v_store(line + 128, v_and(v_right16(v, 4), three));
        v_store(line + 192, v_and(v_right16(v, 6), three));
    }
}

/* 64 columns: one or two tiles of activations, tokens x_token bytes apart, times as many of
 * weights. */
static ALWAYS_INLINE void multiply(const int8_t *x, const int8_t *second, size_t x_token,
                                   const uint8_t *w, const int n_t, const int n_g)
{
    _tile_loadd(4, x, x_token);
    _tile_loadd(6, w, STEP);
    _tile_dpbsud(0, 4, 6);
    if (n_g > 1) {
        _tile_loadd(6, w + TILE, STEP);
        _tile_dpbsud(1, 4, 6);
    }
    if (n_t > 1) {
        _tile_loadd(4, second, x_token);
        if (n_g > 1) {
            _tile_dpbsud(3, 4, 6);
            _tile_loadd(6, w, STEP);
        }
        _tile_dpbsud(2, 4, 6);
    }
}

static ALWAYS_INLINE void zero_sums(const int n_t, const int n_g)
{
    _tile_zero(0);
    if (n_g > 1)
        _tile_zero(1);
    if (n_t > 1)
        _tile_zero(2);
    if (n_t > 1 && n_g > 1)
        _tile_zero(3);
}

/* A tile of integer sums to outputs. */
static void tile_out(const bnet_r16 *a, const int32_t *sums, size_t row, size_t n_rows, size_t t,
                     size_t n_tokens)
{
    __mmask16 mask = (__mmask16)((1u << n_rows) - 1);
    for (size_t i = 0; i < n_tokens; i++) {
        __m512i v = _mm512_sub_epi32(v_load(sums + 16 * i), v_set32(a->x_sum[t + i]));
        __m512 scale = _mm512_set1_ps(a->x_scale[t + i] * a->w_scale);
        _mm512_mask_storeu_ps(a->y + (t + i) * a->y_stride + row, mask,
                              _mm512_mul_ps(_mm512_cvtepi32_ps(v), scale));
    }
}

/* The block from `row` and token t on. */
static ALWAYS_INLINE void block_out(const batch *b, const place *p, size_t row, size_t t,
                                    const int n_t, const int n_g)
{
    _tile_stored(0, b->sums, STEP);
    if (n_g > 1)
        _tile_stored(1, b->sums + 256, STEP);
    if (n_t > 1)
        _tile_stored(2, b->sums + 512, STEP);
    if (n_t > 1 && n_g > 1)
        _tile_stored(3, b->sums + 768, STEP);
    FENCE();
    for (int i = 0; i < n_t; i++)
        for (int j = 0; j < n_g; j++) {
            size_t r = row + 16 * (size_t)j, n_rows = BNET_MIN(b->a->n_rows - r, (size_t)16);
            tile_out(b->a, b->sums + 256 * (2 * i + j), r, n_rows, t + (i ? p->second : 0),
                     p->n_tokens - p->second);
        }
}

/* Step k calls what later steps need: the lines of y that this block will write, weights of the
 * rows after these. Not the activations: they come by themselves, and asking for them costs more.
 */
static ALWAYS_INLINE void call_ahead(const place *p, size_t k, const int n_g)
{
    if (k < p->n_tokens) {
        const char *y = (const char *)(p->y + k * p->y_stride);
        _mm_prefetch(y, _MM_HINT_T0);
        if (n_g > 1)
            _mm_prefetch(y + 64, _MM_HINT_T0);
    }
    if (p->next && p->next != p->w)
        UNROLL for (int i = 0; i < 4 * n_g; i++) _mm_prefetch(
            (const char *)p->next + (size_t)(i / 4) * p->n_group + 256 * k + 64 * (i % 4),
            _MM_HINT_T1);
}

/* One block over all columns. The ring holds its first steps; at the end it holds those of p->next.
 */
static ALWAYS_INLINE void block(const batch *b, const place *p, size_t *at, const int n_t,
                                const int n_g)
{
    const size_t n = b->n_steps, ahead = BNET_MIN(n, (size_t)AHEAD);
    zero_sums(n_t, n_g);
    for (size_t k = 0; k < n; k++, ++*at) {
        size_t to = k + ahead;
        const uint8_t *from = to < n ? p->w + 256 * to : p->next ? p->next + 256 * (to - n) : NULL;
        if (from)
            expand(from, p->n_group, b->ring + (*at + ahead) % RING * 2 * TILE, n_g);
        call_ahead(p, k, n_g);
        FENCE();
        const int8_t *x = p->x + k * b->x_step;
        multiply(x, x + p->second * b->x_token, b->x_token, b->ring + *at % RING * 2 * TILE, n_t,
                 n_g);
        FENCE(); /* the next step expands into this place of the ring */
    }
}

/* Rows r[0]..r[1], 16 n_g at a time, and token blocks t[0]..t[1] of the batch, n_tokens in each. */
static ALWAYS_INLINE void region(const batch *b, const size_t t[2], const size_t r[2],
                                 size_t n_tokens, const int n_t, const int n_g)
{
    const bnet_r16 *a = b->a;
    const size_t n_group = 64 * a->n_lines, second = n_t > 1 ? n_tokens / 2 : 0;
    size_t at = 0;
    shape_tiles(n_tokens - second, n_t, n_g);
    for (; at < BNET_MIN(b->n_steps, (size_t)AHEAD); at++)
        expand(a->w + r[0] / 16 * n_group + 256 * at, n_group, b->ring + at * 2 * TILE, n_g);
    at = 0;
    for (size_t row = r[0]; row < r[1]; row += 32)
        for (size_t i = t[0]; i < t[1]; i++) {
            size_t first = b->t + 32 * i, then = i + 1 < t[1] ? row : row + 32;
            const place p = {.w = a->w + row / 16 * n_group,
                             .next = then < r[1] ? a->w + then / 16 * n_group : NULL,
                             .n_group = n_group,
                             .x = b->x + i * b->x_block,
                             .y = a->y + first * a->y_stride + row,
                             .y_stride = a->y_stride,
                             .n_tokens = n_tokens,
                             .second = second};
            block(b, &p, &at, n_t, n_g);
            block_out(b, &p, row, first, n_t, n_g);
        }
}

/* Token blocks t[0]..t[1], of n_tokens each, and all rows: by two groups, and one that is left. */
static ALWAYS_INLINE void all_rows(const batch *b, const size_t t[2], size_t n_tokens,
                                   const int n_t)
{
    const size_t n_rows = b->a->n_rows, left = n_rows % 32;
    const size_t pairs = left > 16 ? n_rows : n_rows - left;
    if (pairs)
        region(b, t, (size_t[2]){0, pairs}, n_tokens, n_t, 2);
    if (pairs < n_rows)
        region(b, t, (size_t[2]){pairs, n_rows}, n_tokens, n_t, 1);
}

/* The batch's n tokens in the order of tiles: [ceil(n / 32)][n_steps][32][64]. */
static void copy_tokens(batch *b, size_t n)
{
    int8_t *x = (int8_t *)b->a->temp;
    for (size_t i = 0; i < n; i++) {
        const int8_t *from = b->a->x + (b->t + i) * b->a->x_stride;
        int8_t *to = x + i / 32 * b->n_steps * 2 * TILE + i % 32 * STEP;
        for (size_t k = 0; k < b->n_steps; k++)
            v_store(to + k * 2 * TILE, v_load(from + STEP * k));
    }
    b->x = x;
    b->x_token = STEP;
    b->x_step = 2 * TILE;
    b->x_block = b->n_steps * 2 * TILE;
}

static void place_tokens(batch *b, size_t n)
{
    bool pays = n > 32 || b->a->n_rows >= FEW_ROWS;
    if (pays && b->n_steps * 2 * TILE <= BATCH) {
        copy_tokens(b, n);
        return;
    }
    b->x_token = b->a->x_stride;
    b->x = b->a->x + b->t * b->x_token;
    b->x_step = STEP;
    b->x_block = 32 * b->x_token;
}

void bnet_gemm_i2s_r16_amx(const bnet_r16 *a)
{
    batch b = {.a = a, .n_steps = a->n_lines / 4};
    b.ring = a->temp + BATCH;
    b.sums = (int32_t *)(void *)(b.ring + RING_BYTES);
    size_t most = BNET_MAX(BATCH / (b.n_steps * 2 * TILE), (size_t)1) * 32;
    for (; b.t < a->n_tokens; b.t += most) {
        size_t n = BNET_MIN(most, a->n_tokens - b.t), whole = n / 32;
        const size_t last[2] = {whole, whole + 1};
        place_tokens(&b, n);
        if (whole)
            all_rows(&b, (size_t[2]){0, whole}, 32, 2);
        if (n % 32 > 16)
            all_rows(&b, last, n % 32, 2);
        else if (n % 32)
            all_rows(&b, last, n % 32, 1);
    }
    _tile_release();
}
