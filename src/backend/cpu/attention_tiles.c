/* attention_tiles.c - tiles of attention (attention_tiles.h). */
#include "backend/cpu/attention_tiles.h"

enum {
    ENOUGH = 4, /* items for each thread keep it as busy as the others */
    /* What a tile costs: where it is wide its blocks are converted ahead. */
    CONVERTED = 3, /* fewest tokens */
    CONVERTING = 16,
    TOKEN = 10,
    TOKEN_BY_ITSELF = 24,
};

size_t bnet_tile_at(const bnet_tiles *tiles, size_t i, size_t *end, size_t *head)
{
    size_t at = tiles->begin + i / tiles->n_heads * tiles->tile;
    *end = BNET_MIN(at + tiles->tile, tiles->end);
    *head = tiles->head + i % tiles->n_heads;
    return at;
}

static size_t n_tiles(size_t n_tokens, size_t tile)
{
    return (n_tokens + tile - 1) / tile;
}

/* The most tokens of one timeline that follow each other; *begin: the first of them. */
static size_t longest_run(const bnet_step *s, size_t *begin)
{
    size_t longest = 0, n = (size_t)s->n_tokens;
    for (size_t t = 0, end; t < n; t = end) {
        for (end = t + 1; end < n && s->seq[end] == s->seq[t];)
            end++;
        if (end - t > longest) {
            longest = end - t;
            *begin = t;
        }
    }
    return longest;
}

/* Adds tiles, unless they would be of nothing. */
static void add(bnet_tiles *out, size_t *n, bnet_tiles t)
{
    if (t.begin == t.end || t.n_heads == 0)
        return;
    t.n_items = n_tiles(t.end - t.begin, t.tile) * t.n_heads;
    out[(*n)++] = t;
}

/* Tokens of many timelines may share a tile: each walks its own blocks. */
static void add_rows(bnet_tiles *out, size_t *n, size_t begin, size_t end, size_t most, size_t n_kv,
                     size_t n_threads)
{
    while (n_threads > 1 && most > 1 && n_tiles(end - begin, most) * n_kv < ENOUGH * n_threads)
        most /= 2;
    add(out, n, (bnet_tiles){.tile = most, .begin = begin, .end = end, .n_heads = n_kv});
}

/* How long the threads take for a run in tiles of so many tokens. They do not begin and end
 * together, which costs them a quarter of an item. */
static size_t cost_of(size_t run, size_t tile, size_t n_heads, size_t n_threads)
{
    size_t each = tile >= CONVERTED ? CONVERTING + TOKEN * tile : TOKEN_BY_ITSELF * tile;
    size_t rounds = (n_tiles(run, tile) * n_heads + n_threads - 1) / n_threads;
    return (4 * rounds + 1) * each;
}

/* Tiles of a run are about equal: threads would wait for the last of unequal ones. */
static size_t best_tile(size_t run, size_t most, size_t n_heads, size_t n_threads)
{
    size_t best = 0, least = SIZE_MAX;
    for (size_t t = most; t > 0; t--) {
        size_t tile = n_tiles(run, n_tiles(run, t)), cost = cost_of(run, tile, n_heads, n_threads);
        if (cost < least) {
            least = cost;
            best = tile;
        }
    }
    return best;
}

/* Of a run too short for many wide tiles every thread gets as many kv heads whole as there are for
 * all threads; the last ones, at most as many as threads, are what evens that out. */
static void add_run(bnet_tiles *out, size_t *n, size_t begin, size_t end, size_t most, size_t n_kv,
                    size_t n_threads)
{
    size_t run = end - begin, last = n_kv;
    if (n_threads > 1 && n_kv > n_threads && n_tiles(run, most) * n_kv < ENOUGH * n_threads)
        last = (n_kv - 1) % n_threads + 1;
    bnet_tiles t = {.tile = n_tiles(run, n_tiles(run, most)), .begin = begin, .end = end};
    t.n_heads = n_kv - last;
    add(out, n, t);
    t.tile = best_tile(run, most, last, n_threads);
    t.head = n_kv - last;
    t.n_heads = last;
    add(out, n, t);
}

size_t bnet_choose_tiles(const bnet_step *s, size_t most, size_t n_kv, size_t n_threads,
                         bnet_tiles out[BNET_TILINGS])
{
    size_t begin = 0, n = 0, n_tokens = (size_t)s->n_tokens, run = longest_run(s, &begin);
    if (run == 1) {
        add_rows(out, &n, 0, n_tokens, most, n_kv, n_threads);
        return n;
    }
    add_run(out, &n, begin, begin + run, most, n_kv, n_threads);
    add_rows(out, &n, begin + run, n_tokens, most, n_kv, n_threads);
    add_rows(out, &n, 0, begin, most, n_kv, n_threads);
    return n;
}
