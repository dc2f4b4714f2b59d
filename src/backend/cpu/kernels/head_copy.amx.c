/* head_copy.amx.c - the scan of the head's copy with tiles, for 13 to 16 inputs; vpdpbusd is faster
 * for fewer. Sixteen lines of weights are a tile as they lie in memory: each of its rows holds four
 * columns of row 0 of the group, the four after them, four columns of row 1, and so on. Times the
 * even fours of the inputs every other sum is right, times the odd fours the others are; half of
 * the products are for nothing, and memory still is slower than they are.
 *
 * Lines after the last sixteen, and lines with high parts, go by vpdpbusd. */
#include "backend/cpu/kernels/head_copy_zmm.h"

enum {
    LINES = 16,                    /* of a tile of weights */
    INPUTS = 2 * EIGHT,            /* of a tile of inputs */
    TILE = LINES * BNET_COPY_LINE, /* bytes of either */
    MANY = INPUTS - 4 + 1          /* inputs that tiles are faster for */
};
#define FENCE() __asm__ volatile("" ::: "memory") /* gcc 12 does not see what tile loads read */

/* Sums of the even fours and of the odd ones, twice. */
typedef int32_t tile_sums[4][INPUTS][LINES];

/* Tiles 0..3: the sums; 4, 5: inputs; 6: weights. */
static void start_tiles(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t n_bytes[16];
        uint8_t n_rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 7; i++) {
        c.n_bytes[i] = BNET_COPY_LINE;
        c.n_rows[i] = 16;
    }
    FENCE();
    _tile_loadconfig(&c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static void end_tiles(tile_sums out)
{
    _tile_stored(0, out[0], BNET_COPY_LINE);
    _tile_stored(1, out[1], BNET_COPY_LINE);
    _tile_stored(2, out[2], BNET_COPY_LINE);
    _tile_stored(3, out[3], BNET_COPY_LINE);
    _tile_release();
    FENCE();
}

static inline void call_ahead(const uint8_t *w, size_t ahead)
{
    for (size_t i = 0; i < LINES; i++)
        _mm_prefetch((const char *)w + ahead + BNET_COPY_LINE * i, _MM_HINT_T1);
}

/* n tiles of weights times as many pairs of tiles of inputs. Two sums of each kind take turns,
 * since a product takes less time than the next one would wait for it. */
static void add_tiles(const uint8_t *w, const int8_t *x, size_t n, size_t ahead, tile_sums out)
{
    start_tiles();
    for (size_t k = 0; k < n; k++, w += TILE, x += 2 * TILE) {
        call_ahead(w, ahead);
        _tile_loadd(6, w, BNET_COPY_LINE);
        _tile_loadd(4, x, BNET_COPY_LINE);
        _tile_loadd(5, x + TILE, BNET_COPY_LINE);
        if (k % 2) {
            _tile_dpbsud(2, 4, 6);
            _tile_dpbsud(3, 5, 6);
        } else {
            _tile_dpbsud(0, 4, 6);
            _tile_dpbsud(1, 5, 6);
        }
    }
    end_tiles(out);
}

/* Adds the sums of input t of the tiles to those of the lines, in the same lanes. */
static inline __m512i with_tiles(__m512i sum, tile_sums s, int t)
{
    __m512i even = _mm512_add_epi32(_mm512_loadu_si512(s[0][t]), _mm512_loadu_si512(s[2][t]));
    __m512i odd = _mm512_add_epi32(_mm512_loadu_si512(s[1][t]), _mm512_loadu_si512(s[3][t]));
    return _mm512_add_epi32(sum, _mm512_mask_blend_epi32(0xaaaa, even, odd));
}

/* One group and two eights, some of the last may not be there. */
static void scan_sixteen(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                         float (*y)[BNET_COPY_ROWS])
{
    size_t n = n_cols / 8 / LINES, left = n_cols / 8 % LINES, ahead = bnet_copy_group_bytes(n_cols);
    tile_sums sums;
    add_tiles(group, x->tiles, n, ahead, sums);
    for (int e = 0; e < 2; e++) {
        __m512i high[EIGHT], low[EIGHT];
        const part rest = {.w = group + n * TILE,
                           .n = left,
                           .x = x[e].low + n * TILE,
                           .next = group + n * TILE + ahead,
                           .step = 2};
        sum_high(group, 0, 1, x + e, high);
        sum_part(&rest, 1, x[e].n, low);
        for (size_t t = 0; t < x[e].n; t++)
            low[t] = with_tiles(low[t], sums, EIGHT * e + (int)t);
        finish(group, x + e, n_cols, low, high, 1, y + EIGHT * e);
    }
}

void bnet_head_scan_i8_r8_amx(const uint8_t *groups, size_t n_groups, const bnet_head_eight *x,
                              size_t n_eights, size_t n_cols, float (*y)[BNET_COPY_ROWS])
{
    if (n_eights < 2 || x[0].n + x[1].n < MANY) {
        scan_all(groups, n_groups, x, n_eights, n_cols, y);
        return;
    }
    for (size_t g = 0; g < n_groups; g++)
        scan_sixteen(groups + g * bnet_copy_group_bytes(n_cols), x, n_cols, y + BNET_COPY_CALL * g);
}
