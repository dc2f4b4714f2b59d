/* attention.c - attention over a long f16 cache, 20 heads of 128 that share 5 of the cache, as in
 * 2b-4t: milliseconds of all layers for one piece of a prompt, and for one of its tokens.
 *
 * bench/attention THREADS POSITION TOKENS...
 * built by: cmake --build BUILD --target bench_attention
 * POSITION: of the piece's first token; TOKENS: of the pieces, which take turns */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/half_inline.h"

enum { HEADS = 20, KV_HEADS = 5, DIM = 128, LAYERS = 30, ROUNDS = 9 };
enum { MOST = 512, FARTHEST = 100000, PIECES = 8 }; /* tokens, position, sizes */

typedef struct rig {
    bnet_backend *be;
    bnet_kv_store *kv;
    bnet_buffer *q, *y;
    int32_t *blocks;
} rig;

static uint64_t seed = 1;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(seed >> 40) / 16777216.0f - 0.5f;
}

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool fill_cache(rig *r, int n_blocks)
{
    size_t n_bytes = (size_t)bnet_kv_layer_bytes(&(bnet_kv_shape){.n_layers = 1,
                                                                  .n_blocks = 1,
                                                                  .n_kv_heads = KV_HEADS,
                                                                  .head_dim = DIM,
                                                                  .type = BITNET_KV_F16});
    uint16_t *bytes = malloc(n_bytes);
    if (!bytes)
        return false;
    for (size_t i = 0; i < n_bytes / 2; i++)
        bytes[i] = float_to_half(uniform());
    for (int layer = 0; layer < LAYERS; layer++)
        for (int b = 0; b < n_blocks; b++)
            r->be->v->kv_put(r->kv, layer, b, bytes);
    free(bytes);
    return true;
}

static bool rig_open(rig *r, int n_threads, int n_pos)
{
    int n_blocks = (n_pos + BNET_BLOCK_POS - 1) / BNET_BLOCK_POS;
    bnet_kv_shape shape = {.n_layers = LAYERS,
                           .n_blocks = n_blocks,
                           .n_heads = HEADS,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .type = BITNET_KV_F16};
    bnet_pool *pool;
    bnet_registry *registry;
    if (bnet_pool_open(n_threads, &pool, NULL) || bnet_registry_open(&registry, NULL) ||
        bnet_backend_open_cpu(pool, registry, NULL, false, NULL, &r->be, NULL))
        return false;
    size_t n_bytes = (size_t)2 * MOST * HEADS * DIM * sizeof(float);
    r->kv = r->be->v->kv_new(r->be, &shape);
    r->q = r->be->v->buffer_new(r->be, n_bytes);
    r->y = r->be->v->buffer_new(r->be, n_bytes);
    r->blocks = calloc((size_t)n_blocks, sizeof *r->blocks);
    if (!r->kv || !r->q || !r->y || !r->blocks)
        return false;
    for (int b = 0; b < n_blocks; b++)
        r->blocks[b] = b;
    for (size_t i = 0; i < (size_t)MOST * HEADS * DIM; i++)
        ((float *)r->q->data)[i] = uniform();
    return fill_cache(r, n_blocks);
}

static double piece_ms(rig *r, int pos, int n)
{
    int32_t at[MOST], zero[MOST] = {0};
    bnet_seq seq = {r->kv, r->blocks};
    bnet_step step = {n, zero, at, zero, &seq};
    for (int t = 0; t < n; t++)
        at[t] = pos + t;
    double began = ms();
    for (int layer = 0; layer < LAYERS; layer++)
        r->be->v->attention(r->be, &step, layer, HEADS, r->q, r->y);
    return ms() - began;
}

static bool within(const char *word, int least, int most, int *out)
{
    *out = atoi(word);
    return *out >= least && *out <= most;
}

static bool understood(int argc, char **argv, int *n_threads, int *pos, int *sizes)
{
    bool ok = argc >= 4 && argc <= 3 + PIECES && within(argv[1], 1, 1024, n_threads) &&
              within(argv[2], 0, FARTHEST, pos);
    for (int i = 3; ok && i < argc; i++)
        ok = within(argv[i], 1, MOST, &sizes[i - 3]);
    if (!ok)
        fprintf(stderr,
                "usage: attention THREADS POSITION TOKENS... (up to %d sizes of 1 to %d tokens, "
                "positions up to %d)\n",
                PIECES, MOST, FARTHEST);
    return ok;
}

int main(int argc, char **argv)
{
    double took[PIECES][ROUNDS];
    rig r = {0};
    int n_pieces = argc - 3, n_threads, pos, sizes[PIECES];
    if (!understood(argc, argv, &n_threads, &pos, sizes))
        return 2;
    if (!rig_open(&r, n_threads, pos + MOST)) {
        fprintf(stderr, "attention: no memory, or no threads, for this\n");
        return 1;
    }
    for (int i = 0; i < ROUNDS; i++)
        for (int p = 0; p < n_pieces; p++)
            took[p][i] = piece_ms(&r, pos, sizes[p]);
    printf("tokens    median ms     a token      least ms\n");
    for (int p = 0; p < n_pieces; p++) {
        int n = sizes[p];
        qsort(took[p], ROUNDS, sizeof(double), ascending);
        printf("%6d %12.2f %11.3f %13.2f\n", n, took[p][ROUNDS / 2], took[p][ROUNDS / 2] / n,
               took[p][0]);
    }
    return 0;
}
