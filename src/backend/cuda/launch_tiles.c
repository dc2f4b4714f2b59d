/* launch_tiles.c - ternary products of batches over activations in tiles (tiles.h): how many rows a
 * block takes, how many blocks share the columns. */
#include "backend/cuda/net.h"
#include "backend/cuda/tiles.h"

/* Symbols of the row; the last three are of 128, 128 and 64 rows. */
enum { TILES_128, TILES_256, PROMPT_128, PROMPT_96, ROWS, TILES_16, TILES_32, ROWS_16 };
enum { CLUSTER_MAX = 5, FIXED = 4, MEETING = 2 }; /* costs in chunks of 128 rows */

/* What a shape costs: waves of blocks, each as long as its chunks and what every block pays, for
 * meeting by the block met. Where hardly a multiprocessor is left free the next kernel starts late.
 */
static uint32_t cost(const bnet_cu_gemm_args *a, uint32_t rows, uint32_t n_sm)
{
    bnet_cu_launch l = bnet_w2_tiles_launch(a, rows, BNET_TILE_TOKENS);
    uint32_t blocks = l.grid[0] * l.grid[1] * l.grid[2], full = blocks > n_sm * 3 / 4;
    uint32_t chunks = bnet_cu_div(a->m.n_chunks, a->splits);
    return bnet_cu_div(blocks, n_sm) * (chunks * rows / 128 + FIXED + MEETING * a->splits + full);
}

/* The cheapest shape that fits; 0: none does. Sets the splits. */
static uint32_t shape_of(const gpu_backend *be, bnet_cu_gemm_args *a)
{
    uint32_t best = UINT32_MAX, best_rows = 0, best_splits = 1;
    uint32_t n_sm = (uint32_t)bnet_persistent_grid(&be->d->gpu, 1);
    uint32_t room = (uint32_t)be->d->gpu.max_shared_memory_optin;
    uint32_t tokens = bnet_tile_tokens(a->n_tokens);
    for (uint32_t rows = 128; rows <= (tokens == BNET_TILE_TOKENS ? 256 : 128); rows *= 2)
        for (a->splits = 1; a->splits <= BNET_MIN(CLUSTER_MAX, a->m.n_chunks); a->splits++) {
            uint32_t need = bnet_w2_tiles_shared(a->m.n_chunks, rows, a->splits, tokens);
            if (bnet_cu_div(a->m.n_chunks, a->splits) > BNET_W2_TILES_CHUNKS || need + 2048 > room)
                continue;
            uint32_t c = cost(a, rows, n_sm);
            if (c < best) {
                best = c;
                best_rows = rows;
                best_splits = a->splits;
            }
        }
    a->splits = best_splits;
    return best_rows;
}

/* Blocks with all columns of their rows, where the device has all of them at once. */
static bool by_rows(gpu_backend *be, const struct gpu_net *n, const bnet_cu_gemm_args *a,
                    uint32_t tokens)
{
    bnet_cu_launch l = bnet_w2_rows_launch(a, tokens);
    uint32_t n_sm = (uint32_t)bnet_persistent_grid(&be->d->gpu, 1);
    return a->epilogue < BNET_CU_RELU2 && a->m.n_chunks <= BNET_W2_ROWS_CHUNKS &&
           l.grid[1] * l.grid[2] <= n_sm &&
           l.shared + 2048 <= (uint32_t)be->d->gpu.max_shared_memory_optin &&
           bnet_gpu_has(be, n->tiles, tokens == 16 ? ROWS_16 : ROWS);
}

enum { INTO_TILES, INTO_ROWS }; /* symbols of the norm */

static void norm(gpu_backend *be, const struct gpu_net *n, const cuda_w2_call *c, int symbol)
{
    bnet_cu_norm_args a = {.x = cuda_at(c->x),
                           .norm = cuda_at(c->norm),
                           .act = c->act,
                           .k = c->k,
                           .ld = c->k,
                           .eps = c->eps};
    bnet_cu_launch l = bnet_norm_tiles_launch(c->n_tokens);
    bnet_cuda_run(be, n->norm_tiles, symbol, &l, GPU_OVERLAP, &a);
}

bool bnet_cuda_norm_rows(gpu_backend *be, const struct gpu_net *n, const cuda_w2_call *c)
{
    if (n->norm_tiles)
        norm(be, n, c, INTO_ROWS);
    return n->norm_tiles != NULL;
}

static void run(gpu_backend *be, const struct gpu_net *n, int symbol, const bnet_cu_launch *l,
                bnet_cu_gemm_args *a)
{
    const gpu_launch launch = {.kernel = n->tiles,
                               .symbol = symbol,
                               .dims = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                        .block = {l->block, 1, 1},
                                        .shared_bytes = l->shared,
                                        .flags = GPU_OVERLAP,
                                        .cluster = a->splits}};
    cuda_launch(be, &launch, a);
}

/* Tokens of one tile. */
static void batch(gpu_backend *be, const struct gpu_net *n, bnet_cu_gemm_args *a, uint32_t rows)
{
    uint32_t tokens = bnet_tile_tokens(a->n_tokens), each = tokens == 16 ? 16 : 32;
    if (by_rows(be, n, a, each)) {
        bnet_cu_launch l = bnet_w2_rows_launch(a, each);
        a->splits = 1;
        run(be, n, each == 16 ? ROWS_16 : ROWS, &l, a);
        return;
    }
    bnet_cu_launch l = bnet_w2_tiles_launch(a, rows, tokens);
    int whole = rows == 256 ? TILES_256 : TILES_128;
    run(be, n, tokens == 16 ? TILES_16 : tokens == 32 ? TILES_32 : whole, &l, a);
}

bool bnet_cuda_tiles(gpu_backend *be, const struct gpu_net *n, const cuda_w2_call *c)
{
    bnet_cu_gemm_args a = {
        .m = c->m, .act = c->act, .n_tokens = c->n_tokens, .epilogue = c->epilogue};
    bool few = c->n_tokens <= BNET_TILE_TOKENS;
    uint32_t n_sm = (uint32_t)bnet_persistent_grid(&be->d->gpu, 1);
    uint32_t rows = n->tiles && n->norm_tiles && few ? shape_of(be, &a) : 0;
    if (!n->tiles || !n->norm_tiles || (few ? !rows : !bnet_gpu_has(be, n->tiles, PROMPT_128)))
        return false;
    if (!gpu_none(c->x))
        norm(be, n, c, INTO_TILES);
    if (few) {
        batch(be, n, &a, rows);
        return true;
    }
    uint32_t tokens = bnet_w2_prompt_shape(&a, n_sm);
    bnet_cu_launch l = bnet_w2_prompt_launch(&a, tokens);
    run(be, n, tokens == 96 ? PROMPT_96 : PROMPT_128, &l, &a);
    return true;
}
