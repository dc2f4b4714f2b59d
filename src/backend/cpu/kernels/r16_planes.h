/* r16_planes.h - several tokens against packed groups of 16 rows by vpdpbusd. A kernel file brings
 * the words of its registers (r16_ymm.h, r16_zmm.h), v_dot and finish (r16_vnni.h), and for few
 * tokens and for many the groups and tokens whose sums its registers hold (FEW_G, FEW_T, MANY_G,
 * MANY_T) with lists of 1 .. T (FEW_TILES, MANY_TILES).
 *
 * Few tokens meet the packed lines. A plane of a line is masked where it stands, by one instruction
 * for all tokens of a tile. Plane p counts 4^p fold, so the planes of a piece of lines are added
 * from the last to the first, and between two of them the sums are shifted down by two: exactly,
 * all being multiples. Before the next piece they are shifted up by six. Bounds: sums are within
 * 2 * 128 * K <= 2^23 for K <= 32768, hence 2^29 when shifted up; plane 3 adds at most
 * 2 * 64 * 128 * 4 * PIECE = 2^23.
 *
 * For many tokens MANY_G groups are expanded to bytes, plane by plane, which costs less than to
 * mask them for each tile.
 *
 * Tokens are taken in batches that half of the second-level cache holds, copied into the order in
 * which tiles read them. Codes 0, 1, 2 stand for -1, 0, 1: the sum of x is taken off at the end. */
#ifndef BNET_KERNELS_R16_PLANES_H
#define BNET_KERNELS_R16_PLANES_H

enum {
    PIECE = 128, /* lines: two groups of them stay in the first-level cache for four planes */
    LINES = 2,   /* of a turn; n_lines is a multiple of 8 */
    FOUR = 4,    /* tokens that are copied together */
    MANY = 48,   /* tokens of a batch for which groups are expanded */
    MOST_G = FEW_G > MANY_G ? FEW_G : MANY_G,
    MOST_ACC = (FEW_G * FEW_T > MANY_G * MANY_T ? FEW_G * FEW_T : MANY_G * MANY_T) * PARTS
};
/* Whoever has as many tokens in a batch has no more columns than this, for which there is room. */
_Static_assert(BNET_TEMP_BATCH / MANY < BNET_TEMP_GROUP / BNET_R16_ROWS + 128, "groups have room");

/* ---- tokens ---- */

static inline __m128i load16(const int8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static inline void store16(int8_t *p, __m128i v)
{
    _mm_storeu_si128((__m128i *)(void *)p, v);
}

/* Four tokens, stride bytes apart; plane, line: bytes from one to the next. */
static void copy_four(const int8_t *x, size_t stride, size_t n_lines, size_t plane, size_t line,
                      int8_t *to)
{
    for (size_t l = 0; l < n_lines; l++, x += 16, to += line) {
        __m128i x0 = load16(x), x1 = load16(x + stride);
        __m128i x2 = load16(x + 2 * stride), x3 = load16(x + 3 * stride);
        __m128i a = _mm_unpacklo_epi32(x0, x1), b = _mm_unpacklo_epi32(x2, x3);
        __m128i c = _mm_unpackhi_epi32(x0, x1), d = _mm_unpackhi_epi32(x2, x3);
        store16(to, _mm_unpacklo_epi64(a, b));
        store16(to + plane, _mm_unpackhi_epi64(a, b));
        store16(to + 2 * plane, _mm_unpacklo_epi64(c, d));
        store16(to + 3 * plane, _mm_unpackhi_epi64(c, d));
    }
}

static void copy_one(const int8_t *x, size_t n_lines, size_t plane, size_t line, int8_t *to)
{
    for (size_t l = 0; l < n_lines; l++)
        for (size_t p = 0; p < 4; p++)
            memcpy(to + p * plane + l * line, x + 16 * l + 4 * p, 4);
}

/* n tokens from t on become [plane][line][token][4]. */
static void copy_tile(const bnet_r16 *a, size_t t, size_t n, int8_t *to)
{
    const int8_t *x = a->x + t * a->x_stride;
    const size_t line = 4 * n, plane = line * a->n_lines;
    size_t j = 0;
    for (; j + FOUR <= n; j += FOUR)
        copy_four(x + j * a->x_stride, a->x_stride, a->n_lines, plane, line, to + 4 * j);
    for (; j < n; j++)
        copy_one(x + j * a->x_stride, a->n_lines, plane, line, to + 4 * j);
}

/* ---- tiles ---- */

/* Where a tile begins. */
typedef struct place {
    const bnet_r16 *a;
    size_t row, t;
    const int8_t *x;     /* its tokens, copied */
    const uint8_t *wide; /* its groups as bytes: [group][plane][line][64]; NULL: packed lines */
    const uint8_t *next; /* packed lines to call into the second-level cache meanwhile, or NULL */
} place;

/* Adds one plane of a line of n_g groups, n_group bytes apart, times n_t tokens: acc[token][group].
 * mask: NULL where they are bytes. */
static ALWAYS_INLINE void add_line(const uint8_t *w, size_t n_group, const vec *mask,
                                   const int8_t *x, vec *acc, const int n_g, const int n_t)
{
    vec field[MOST_G * PARTS];
    UNROLL for (int i = 0; i < n_g * PARTS; i++)
    {
        field[i] = v_load(w + (size_t)(i / PARTS) * n_group + 64 / PARTS * (i % PARTS));
        if (mask)
            field[i] = v_and(field[i], *mask);
    }
    UNROLL for (int j = 0; j < n_t; j++)
    {
        vec four = v_spread(x + 4 * j), *sums = acc + j * n_g * PARTS;
        UNROLL for (int i = 0; i < n_g * PARTS; i++) sums[i] = v_dot(sums[i], field[i], four);
    }
}

/* One plane of n lines; x: of its first. Returns what is called into the cache after that: a fourth
 * of the lines was. */
static ALWAYS_INLINE const uint8_t *add_plane(const uint8_t *w, size_t n, size_t n_group, int p,
                                              const int8_t *x, const uint8_t *next, vec *acc,
                                              const int n_g, const int n_t)
{
    const size_t line = 4 * (size_t)n_t;
    const vec mask = v_bytes(3 << 2 * p);
    for (size_t l = 0; l < n; l += LINES, w += LINES * BNET_R16_LINE, x += LINES * line) {
        for (int g = 0; next && g < n_g; g++)
            _mm_prefetch((const char *)next + (size_t)g * n_group, _MM_HINT_T1);
        next = next ? next + LINES * BNET_R16_LINE / 4 : NULL;
        UNROLL for (size_t i = 0; i < LINES; i++)
            add_line(w + BNET_R16_LINE * i, n_group, &mask, x + line * i, acc, n_g, n_t);
    }
    return next;
}

static ALWAYS_INLINE void add_packed(const place *at, vec *acc, const int n_g, const int n_t)
{
    const size_t n_lines = at->a->n_lines, n_group = BNET_R16_LINE * n_lines;
    const size_t line = 4 * (size_t)n_t;
    const uint8_t *w = at->a->w + at->row / BNET_R16_ROWS * n_group, *next = at->next;
    const int n_acc = n_t * n_g * PARTS;
    for (size_t l = 0; l < n_lines; l += PIECE, w += BNET_R16_LINE * PIECE) {
        size_t n = BNET_MIN((size_t)PIECE, n_lines - l);
        UNROLL for (int i = 0; i < n_acc; i++) acc[i] = v_left32(acc[i], 6);
        for (int p = 3; p >= 0; p--) {
            const int8_t *x = at->x + line * ((size_t)p * n_lines + l);
            next = add_plane(w, n, n_group, p, x, next, acc, n_g, n_t);
            UNROLL for (int i = 0; i < n_acc; i++) acc[i] = p ? v_right32(acc[i], 2) : acc[i];
        }
    }
}

static ALWAYS_INLINE void add_wide(const place *at, vec *acc, const int n_g, const int n_t)
{
    const size_t n = 4 * at->a->n_lines, line = 4 * (size_t)n_t;
    const uint8_t *w = at->wide;
    const int8_t *x = at->x;
    for (size_t l = 0; l < n; l += LINES, w += LINES * BNET_R16_LINE, x += LINES * line)
        UNROLL for (size_t i = 0; i < LINES; i++)
            add_line(w + BNET_R16_LINE * i, BNET_R16_LINE * n, NULL, x + line * i, acc, n_g, n_t);
}

/* n_g groups times n_t tokens. Outputs are called into the cache before they are computed. */
static ALWAYS_INLINE void tile(const place *at, const int n_g, const int n_t, const bool wide)
{
    const bnet_r16 *a = at->a;
    const float *y = a->y + at->t * a->y_stride + at->row;
    vec acc[MOST_ACC];
    for (int j = 0; j < n_t; j++, y += a->y_stride)
        for (int g = 0; g < n_g; g++)
            __builtin_prefetch(y + BNET_R16_ROWS * g, 1, 3);
    UNROLL for (int i = 0; i < n_t * n_g * PARTS; i++) acc[i] = v_zero();
    if (wide)
        add_wide(at, acc, n_g, n_t);
    else
        add_packed(at, acc, n_g, n_t);
    UNROLL for (int j = 0; j < n_t; j++)
        finish(a, at->row, at->t + (size_t)j, n_g, acc + j * n_g * PARTS);
}

/* ---- batches ---- */

#define TILE_FEW(n)                                                                                \
    static void few_##n(const place *at, size_t n_g)                                               \
    {                                                                                              \
        if (n_g == FEW_G)                                                                          \
            tile(at, FEW_G, n, false);                                                             \
        else                                                                                       \
            tile(at, 1, n, false);                                                                 \
    }
#define TILE_MANY(n)                                                                               \
    static void many_##n(const place *at, size_t n_g)                                              \
    {                                                                                              \
        if (n_g == MANY_G)                                                                         \
            tile(at, MANY_G, n, true);                                                             \
        else if (MANY_G > 2 && n_g == 2)                                                           \
            tile(at, 2, n, true);                                                                  \
        else                                                                                       \
            tile(at, 1, n, true);                                                                  \
    }
#define NAME_FEW(n)  few_##n,
#define NAME_MANY(n) many_##n,
FEW_TILES(TILE_FEW)
MANY_TILES(TILE_MANY)

/* Tokens t .. t + n of a call, in tiles of about equal length. */
typedef struct batch {
    const bnet_r16 *a;
    size_t t, n, n_tiles;
    bool many;
} batch;

static inline size_t tile_begin(const batch *b, size_t i)
{
    return b->n * i / b->n_tiles;
}

/* One group of lines to bytes. */
static void expand(const uint8_t *w, size_t n_lines, uint8_t *wide)
{
    const vec three = v_bytes(3);
    const size_t plane = BNET_R16_LINE * n_lines;
    for (size_t at = 0; at < plane; at += 64 / PARTS) {
        vec v = v_load(w + at);
        v_store(wide + at, v_and(v, three));
        v_store(wide + plane + at, v_and(v_right16(v, 2), three));
        v_store(wide + 2 * plane + at, v_and(v_right16(v, 4), three));
        v_store(wide + 3 * plane + at, v_and(v_right16(v, 6), three));
    }
}

/* n_g groups from `row` on and all tokens of the batch. The first tile calls the groups after
 * them, if there are any. */
static void batch_groups(const batch *b, size_t row, size_t n_g)
{
    static void (*const few[])(const place *, size_t) = {FEW_TILES(NAME_FEW)};
    static void (*const many[])(const place *, size_t) = {MANY_TILES(NAME_MANY)};
    const bnet_r16 *a = b->a;
    const size_t n_group = BNET_R16_LINE * a->n_lines, end = row + BNET_R16_ROWS * n_g;
    const uint8_t *w = a->w + row / BNET_R16_ROWS * n_group;
    uint8_t *wide = b->many ? a->temp + BNET_TEMP_BATCH : NULL;
    for (size_t g = 0; wide && g < n_g; g++)
        expand(w + g * n_group, a->n_lines, wide + 4 * g * n_group);
    for (size_t i = 0; i < b->n_tiles; i++) {
        size_t t = tile_begin(b, i), n = tile_begin(b, i + 1) - t;
        const place at = {.a = a,
                          .row = row,
                          .t = b->t + t,
                          .x = (const int8_t *)a->temp + BNET_R16_ROWS * a->n_lines * t,
                          .wide = wide,
                          .next = i == 0 && end < a->n_rows ? w + n_g * n_group : NULL};
        if (b->many)
            many[n - 1](&at, n_g);
        else
            few[n - 1](&at, n_g);
    }
}

static void run_batch(const batch *b)
{
    const size_t n_groups = bnet_r16_groups(b->a->n_rows), most = b->many ? MANY_G : FEW_G;
    for (size_t i = 0; i < b->n_tiles; i++) {
        size_t t = tile_begin(b, i);
        copy_tile(b->a, b->t + t, tile_begin(b, i + 1) - t,
                  (int8_t *)b->a->temp + 16 * b->a->n_lines * t);
    }
    for (size_t g = 0, n; g < n_groups; g += n) {
        n = BNET_MIN(most, n_groups - g);
        if (!b->many && n < FEW_G)
            n = 1;
        batch_groups(b, BNET_R16_ROWS * g, n);
    }
}

static inline void gemm_planes(const bnet_r16 *a)
{
    size_t most = BNET_TEMP_BATCH / (16 * a->n_lines);
    most -= most < MANY ? 0 : most % MANY_T; /* whole tiles */
    for (size_t t = 0, n; t < a->n_tokens; t += n) {
        n = BNET_MIN(most, a->n_tokens - t);
        const bool many = n >= MANY;
        const size_t each = many ? MANY_T : FEW_T;
        run_batch(&(batch){a, t, n, (n + each - 1) / each, many});
    }
}

#endif
