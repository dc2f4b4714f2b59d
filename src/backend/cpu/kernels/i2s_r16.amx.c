/* i2s_r16.amx.c - packed groups for many tokens with tiles of 16 x 64 bytes. Four lines of a group,
 * expanded to bytes 0..2, are a tile of 64 columns x 16 rows as tdpbsud wants it; 64 columns of 16
 * tokens are read from the activations as they lie. 32 rows x 32 tokens are summed at once in four
 * tiles. Sums are within 2 * 128 * K < 2^31.
 *
 * Columns come in pieces, so that the expanded rows of a call, or 512 KiB of them, serve all tokens
 * from the second-level cache and activations are read once: between pieces the sums wait as
 * integers where the outputs will be. Rows and tokens beyond the last are not in the tiles. */
#include "backend/cpu/kernels/r16_zmm.h"

enum {
    WIDE = 512 * 1024, /* expanded weights, at the start of temp; four tiles of sums follow */
    PIECE = 2560,      /* most columns of a piece, a multiple of 64 */
    TILE = 1024        /* bytes of a tile */
};
#define FENCE() __asm__ volatile("" ::: "memory") /* tile loads and stores are not seen by gcc 12  \
                                                   */

/* Some columns of some groups. */
typedef struct piece {
    const bnet_r16 *a;
    size_t row, n_rows; /* first row, a multiple of 16; rows */
    size_t col, n_cols; /* multiples of 64 */
    bool first, last;   /* of the columns */
} piece;

/* Tiles 0..3: sums [token half][row half]; 4, 5: activations; 6, 7: weights. Sizes in tokens and
 * rows, 0: not used. */
static void shape_tiles(const size_t tokens[2], const size_t rows[2])
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t n_bytes[16];
        uint8_t n_rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            if (tokens[i] && rows[j]) {
                c.n_rows[2 * i + j] = (uint8_t)tokens[i];
                c.n_bytes[2 * i + j] = (uint16_t)(4 * rows[j]);
            }
        if (tokens[i]) {
            c.n_rows[4 + i] = (uint8_t)tokens[i];
            c.n_bytes[4 + i] = 64;
        }
        if (rows[i]) {
            c.n_rows[6 + i] = 16;
            c.n_bytes[6 + i] = (uint16_t)(4 * rows[i]);
        }
    }
    FENCE();
    _tile_loadconfig(&c);
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

/* The sums of earlier columns, or none. */
#define BEGIN(tile, i, j)                                                                          \
    do {                                                                                           \
        if (p->first)                                                                              \
            _tile_zero(tile);                                                                      \
        else                                                                                       \
            _tile_loadd(tile, y + (i)*16 * p->a->y_stride + (j)*16, y_step);                       \
    } while (0)
/* Sums for later columns, or outputs. */
#define END(tile, i, j)                                                                            \
    do {                                                                                           \
        if (p->last)                                                                               \
            _tile_stored(tile, sums + 256 * (tile), 64);                                           \
        else                                                                                       \
            _tile_stored(tile, y + (i)*16 * p->a->y_stride + (j)*16, y_step);                      \
    } while (0)

/* Up to 32 tokens from t on and 32 rows: n_t and n_g halves of each, of the sizes given. */
static ALWAYS_INLINE void block(const piece *p, size_t row, size_t t, const size_t tokens[2],
                                const size_t rows[2], const int n_t, const int n_g)
{
    const bnet_r16 *a = p->a;
    const uint8_t *w = a->temp + (row - p->row) * p->n_cols, *w1 = w + 16 * p->n_cols;
    const int8_t *x = a->x + t * a->x_stride + p->col, *x1 = x + 16 * a->x_stride;
    float *y = a->y + t * a->y_stride + row;
    size_t y_step = a->y_stride * sizeof *y;
    int32_t *sums = (int32_t *)(void *)(a->temp + WIDE);
    BEGIN(0, 0, 0);
    if (n_g > 1)
        BEGIN(1, 0, 1);
    if (n_t > 1)
        BEGIN(2, 1, 0);
    if (n_t > 1 && n_g > 1)
        BEGIN(3, 1, 1);
    for (size_t k = 0; k < p->n_cols; k += 64) {
        _tile_loadd(6, w + 16 * k, 64);
        _tile_loadd(4, x + k, a->x_stride);
        _tile_dpbsud(0, 4, 6);
        if (n_g > 1) {
            _tile_loadd(7, w1 + 16 * k, 64);
            _tile_dpbsud(1, 4, 7);
        }
        if (n_t > 1) {
            _tile_loadd(5, x1 + k, a->x_stride);
            _tile_dpbsud(2, 5, 6);
        }
        if (n_t > 1 && n_g > 1)
            _tile_dpbsud(3, 5, 7);
    }
    END(0, 0, 0);
    if (n_g > 1)
        END(1, 0, 1);
    if (n_t > 1)
        END(2, 1, 0);
    if (n_t > 1 && n_g > 1)
        END(3, 1, 1);
    FENCE();
    if (p->last)
        for (int i = 0; i < n_t; i++)
            for (int j = 0; j < n_g; j++)
                tile_out(a, sums + 256 * (2 * i + j), row + 16 * (size_t)j, rows[j],
                         t + 16 * (size_t)i, tokens[i]);
}

/* Tokens and rows from..to in blocks of n_t * 16 and n_g * 16, all of one shape. */
static ALWAYS_INLINE void region(const piece *p, const size_t t[2], const size_t r[2],
                                 const int n_t, const int n_g)
{
    size_t left_t = BNET_MIN(t[1] - t[0], (size_t)32), left_r = BNET_MIN(r[1] - r[0], (size_t)32);
    size_t tokens[2] = {BNET_MIN(left_t, (size_t)16), left_t > 16 ? left_t - 16 : 0};
    size_t rows[2] = {BNET_MIN(left_r, (size_t)16), left_r > 16 ? left_r - 16 : 0};
    shape_tiles(tokens, rows);
    for (size_t i = t[0]; i < t[1]; i += 32)
        for (size_t j = r[0]; j < r[1]; j += 32)
            block(p, p->row + j, i, tokens, rows, n_t, n_g);
}

static void tokens_of(const piece *p, size_t from, size_t to, const int n_t)
{
    const size_t t[2] = {from, to}, even = p->n_rows / 32 * 32;
    if (even)
        region(p, t, (size_t[2]){0, even}, n_t, 2);
    if (p->n_rows - even > 16)
        region(p, t, (size_t[2]){even, p->n_rows}, n_t, 2);
    else if (p->n_rows > even)
        region(p, t, (size_t[2]){even, p->n_rows}, n_t, 1);
}

/* The weights of a piece to bytes: [group][column / 4][row][column % 4]. */
static void expand(const piece *p)
{
    const bnet_r16 *a = p->a;
    const vec three = v_bytes(3);
    for (size_t r = 0; r < p->n_rows; r += 16) {
        const uint8_t *w = a->w + (p->row + r) * 4 * a->n_lines + 4 * p->col;
        uint8_t *wide = a->temp + r * p->n_cols;
        for (size_t l = 0; l < p->n_cols / 16; l++)
            for (unsigned i = 0; i < 4; i++)
                v_store(wide + 256 * l + 64 * i,
                        v_and(v_right16(v_load(w + 64 * l), 2 * i), three));
    }
    FENCE();
}

static void run_piece(const piece *p)
{
    size_t n = p->a->n_tokens, even = n / 32 * 32;
    expand(p);
    if (even)
        tokens_of(p, 0, even, 2);
    if (n - even > 16)
        tokens_of(p, even, n, 2);
    else if (n > even)
        tokens_of(p, even, n, 1);
}

void bnet_gemm_i2s_r16_amx(const bnet_r16 *a)
{
    size_t k = 16 * a->n_lines, n_pieces = (k + PIECE - 1) / PIECE;
    size_t cols = (k / 64 + n_pieces - 1) / n_pieces * 64, rows = WIDE / cols / 32 * 32;
    for (size_t r = 0; r < a->n_rows; r += rows)
        for (size_t c = 0; c < k; c += cols) {
            piece p = {.a = a, .row = r, .n_rows = BNET_MIN(rows, a->n_rows - r), .col = c};
            p.n_cols = BNET_MIN(cols, k - c);
            p.first = c == 0;
            p.last = c + cols >= k;
            run_piece(&p);
        }
    _tile_release();
}
