/* r16_blocks.h - how x86 kernels without byte dot products walk a call of many tokens: by blocks of
 * groups expanded to bytes once, that stay in the second-level cache while all tokens pass. A
 * kernel file includes the words of its registers (r16_xmm.h, ...), then the arithmetic
 * (r16_madd.h), then this.
 *
 * The arithmetic brings, for constant n_g groups and n_t tokens,
 *   tile(a, wide, row, t, n_g, n_t)    from wide[group][k / 4][row][k % 4], codes 0, 1, 2
 * and the kernel file TILE_G, TILE_T: as many as its registers hold; TILE_TAIL: the second choice
 * for tokens left over. */
#ifndef BNET_KERNELS_R16_BLOCKS_H
#define BNET_KERNELS_R16_BLOCKS_H

enum { GEMM_TEMP = BNET_TEMP_WIDE }; /* 16 rows of 32768 columns */

/* One group of lines to bytes: plane p of a line becomes 64 bytes of its own. */
static inline void expand_group(const uint8_t *w, size_t n_lines, uint8_t *wide)
{
    const vec three = v_bytes(3);
    for (size_t l = 0; l < n_lines; l++)
        for (size_t i = 0; i < PARTS; i++) {
            uint8_t *to = wide + 256 * l + 64 / PARTS * i;
            vec v = v_load(w + 64 * l + 64 / PARTS * i);
            v_store(to, v_and(v, three));
            v_store(to + 64, v_and(v_right16(v, 2), three));
            v_store(to + 128, v_and(v_right16(v, 4), three));
            v_store(to + 192, v_and(v_right16(v, 6), three));
        }
}

/* n_t tokens from t on, all groups of a block. */
static ALWAYS_INLINE void tiles(const bnet_r16 *a, size_t row, size_t n_groups, size_t t,
                                const int n_t)
{
    size_t g = 0, panel = 256 * a->n_lines;
    for (; g + TILE_G <= n_groups; g += TILE_G)
        tile(a, a->temp + g * panel, row + 16 * g, t, TILE_G, n_t);
    for (; g < n_groups; g++)
        tile(a, a->temp + g * panel, row + 16 * g, t, 1, n_t);
}

/* Many tokens; temp holds GEMM_TEMP bytes, at least one expanded group. */
static inline void gemm(const bnet_r16 *a)
{
    size_t panel = 256 * a->n_lines, n_groups = bnet_r16_groups(a->n_rows),
           block = GEMM_TEMP / panel;
    for (size_t g = 0; g < n_groups; g += block) {
        size_t n = BNET_MIN(block, n_groups - g), t = 0;
        for (size_t i = 0; i < n; i++)
            expand_group(a->w + (g + i) * 64 * a->n_lines, a->n_lines, a->temp + i * panel);
        for (; t + TILE_T <= a->n_tokens; t += TILE_T)
            tiles(a, 16 * g, n, t, TILE_T);
        for (; t + TILE_TAIL <= a->n_tokens; t += TILE_TAIL)
            tiles(a, 16 * g, n, t, TILE_TAIL);
        for (; t < a->n_tokens; t++)
            tiles(a, 16 * g, n, t, 1);
    }
}

#endif
