/* attention_tiles.c - tiles of attention (attention_tiles.h). */
#include "backend/cpu/attention_tiles.h"

enum {
    ENOUGH = 4,      /* items for each thread */
    ENOUGH_LAST = 2, /* where every thread has whole kv heads as well */
};

size_t bnet_tile_at(const bnet_tiles *tiles, size_t i, size_t *end, size_t *head)
{
    size_t at = i / tiles->n_heads * tiles->tile;
    *end = BNET_MIN(at + tiles->tile - tiles->skip, tiles->n_tokens);
    *head = tiles->head + i % tiles->n_heads;
    return at > tiles->skip ? at - tiles->skip : 0;
}

static size_t n_tiles(size_t n_tokens, size_t tile)
{
    return (n_tokens + tile - 1) / tile;
}

/* Where the tokens of the timeline of token t end. */
static size_t run_end(const bnet_step *s, size_t t)
{
    size_t end = t + 1;
    while (end < (size_t)s->n_tokens && s->seq[end] == s->seq[t])
        end++;
    return end;
}

/* The most tokens of one timeline that follow each other; *begin: the first of them. */
static size_t longest_run(const bnet_step *s, size_t *begin)
{
    size_t longest = 0;
    for (size_t t = 0, end; t < (size_t)s->n_tokens; t = end) {
        end = run_end(s, t);
        if (end - t > longest) {
            longest = end - t;
            *begin = t;
        }
    }
    return longest;
}

/* Tiles of all runs that are about as long as the longest. */
static size_t n_long_tiles(const bnet_step *s, size_t longest, size_t tile)
{
    size_t n = 0;
    for (size_t t = 0, end; t < (size_t)s->n_tokens; t = end) {
        end = run_end(s, t);
        n += 2 * (end - t) >= longest ? n_tiles(end - t, tile) : 0;
    }
    return n;
}

/* The widest tile of `tile` tokens, half of that, a quarter ... that gives n_items or more. Where
 * no run is longer than a token a tile may hold many timelines. */
static size_t tile_for(const bnet_step *s, size_t tile, size_t n_heads, size_t n_items)
{
    size_t t = (size_t)s->n_tokens, begin = 0, run = longest_run(s, &begin);
    while (tile > 1 &&
           (run == 1 ? n_tiles(t, tile) : n_long_tiles(s, run, tile)) * n_heads < n_items)
        tile /= 2;
    return tile;
}

/* Those of the longest run, which a prompt is, begin where it does, and are about equal: threads
 * would wait for the last of unequal ones. */
static bnet_tiles tiles_of(const bnet_step *s, size_t tile, size_t head, size_t n_heads)
{
    size_t t = (size_t)s->n_tokens, begin = 0, run = longest_run(s, &begin), skip = 0;
    if (run > 1) {
        tile = n_tiles(run, n_tiles(run, tile));
        skip = n_tiles(begin, tile) * tile - begin;
    }
    return (bnet_tiles){tile, skip, t, head, n_heads, n_tiles(t + skip, tile) * n_heads};
}

/* Of a run too short for wide tiles every thread gets as many kv heads whole as there are for all
 * threads; the last ones, at most as many as threads, are what evens that out. */
void bnet_choose_tiles(const bnet_step *s, size_t most, size_t n_kv, size_t n_threads,
                       bnet_tiles *wide, bnet_tiles *narrow)
{
    size_t begin, last = n_kv, enough = (n_threads > 1 ? ENOUGH : 0) * n_threads;
    bool is_short = longest_run(s, &begin) > 1 && tile_for(s, most, n_kv, enough) < most;
    if (is_short && n_kv > n_threads) {
        last = (n_kv - 1) % n_threads + 1;
        enough = ENOUGH_LAST * n_threads;
    }
    *wide = tiles_of(s, most, 0, n_kv - last);
    *narrow = tiles_of(s, tile_for(s, most, last, enough), n_kv - last, last);
}
