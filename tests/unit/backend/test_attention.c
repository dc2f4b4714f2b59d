/* test_attention.c - attention through the backend: the same bits for any number of threads, for
 * passes of one token and of many, split by blocks or by tiles of tokens, with every cache type and
 * with timelines that share a pass. */
#include "test.h"

#include <math.h>

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/cpu.h"

enum { MAX_T = 40, N_CTX = 704, N_BLOCKS = 24 };

typedef struct rig {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_kv_store *kv;
    bnet_buffer *q, *k, *v, *y;
    int32_t blocks[2][N_BLOCKS];
    bnet_seq seqs[2];
    bnet_kv_shape shape;
} rig;

static uint64_t seed = 7;

static void fill(bnet_buffer *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((float *)b->data)[i] = 3 * (float)((double)(int64_t)test_rand(&seed) / 9.3e18);
}

static void rig_open(rig *r, int n_threads, const char *isa, const bnet_kv_shape *shape)
{
    *r = (rig){.shape = *shape};
    size_t hd = (size_t)shape->head_dim, f = sizeof(float);
    assert_int_equal(bnet_pool_open(n_threads, &r->pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&r->registry, NULL), BITNET_OK);
    assert_int_equal(bnet_backend_open_cpu(r->pool, r->registry, isa, false, NULL, &r->be, NULL),
                     BITNET_OK);
    r->kv = r->be->v->kv_new(r->be, shape);
    assert_non_null(r->kv);
    r->q = r->be->v->buffer_new(r->be, MAX_T * (size_t)shape->n_heads * hd * f);
    r->y = r->be->v->buffer_new(r->be, MAX_T * (size_t)shape->n_heads * hd * f);
    r->k = r->be->v->buffer_new(r->be, MAX_T * (size_t)shape->n_kv_heads * hd * f);
    r->v = r->be->v->buffer_new(r->be, MAX_T * (size_t)shape->n_kv_heads * hd * f);
    for (int s = 0; s < 2; s++) {
        for (int b = 0; b < N_BLOCKS / 2; b++) /* interleaved, and not in order */
            r->blocks[s][b] = (2 * (N_BLOCKS / 2 - 1 - b) + s) % N_BLOCKS;
        r->seqs[s] = (bnet_seq){r->kv, r->blocks[s]};
    }
}

static void rig_close(rig *r)
{
    bnet_buffer *all[] = {r->q, r->k, r->v, r->y};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        r->be->v->buffer_free(r->be, all[i]);
    r->be->v->kv_free(r->be, r->kv);
    bnet_backend_close(r->be);
    bnet_registry_close(r->registry);
    bnet_pool_close(r->pool);
}

/* Appends and attends to n tokens of timeline s at pos on, and n_other of the other one. */
static void pass(rig *r, int s, int pos, int n, int n_other)
{
    int32_t ids[MAX_T] = {0}, at[MAX_T], seq[MAX_T];
    for (int t = 0; t < n + n_other; t++) {
        seq[t] = t < n ? s : 1 - s;
        at[t] = t < n ? pos + t : pos / 2 + t - n;
    }
    bnet_step step = {n + n_other, ids, at, seq, r->seqs};
    size_t t = (size_t)(n + n_other), hd = (size_t)r->shape.head_dim;
    fill(r->q, t * (size_t)r->shape.n_heads * hd);
    fill(r->k, t * (size_t)r->shape.n_kv_heads * hd);
    fill(r->v, t * (size_t)r->shape.n_kv_heads * hd);
    r->be->v->kv_append(r->be, &step, 0, r->k, r->v);
    r->be->v->attention(r->be, &step, 0, r->shape.n_heads, r->q, r->y);
}

/* A fixed story of passes; the hash of all results. */
static uint64_t story(int n_threads, const char *isa, const bnet_kv_shape *shape)
{
    static const struct {
        int s, pos, n, n_other;
    } passes[] = {{0, 0, 40, 0},
                  {1, 0, 17, 0},
                  {0, 40, 1, 0},
                  {0, 41, 3, 0},
                  {0, 60, 9, 9},
                  {1, 80, 5, 19}, /* the longest run begins inside a tile */
                  {1, 62, 1, 1},
                  {0, 300, 17, 0},
                  {0, 320, 1, 0},
                  {0, 383, 1, 0},
                  {0, 384, 1, 0},
                  {0, 700, 1, 0},
                  /* the first of them by blocks, the others by tiles, on 7 threads */
                  {0, 701, 1, 20},
                  {1, 640, 2, 20},
                  {0, 640, 14, 1}};
    rig r;
    uint64_t hash = 14695981039346656037u;
    rig_open(&r, n_threads, isa, shape);
    for (int b = 0; b < N_BLOCKS; b++)
        r.be->v->kv_clear(r.kv, b); /* positions never stored: zeros */
    seed = 7;
    for (size_t i = 0; i < BNET_COUNT(passes); i++) {
        int n = passes[i].n + passes[i].n_other;
        pass(&r, passes[i].s, passes[i].pos, passes[i].n, passes[i].n_other);
        const uint8_t *y = r.y->data;
        for (size_t b = 0; b < (size_t)(n * shape->n_heads * shape->head_dim) * 4; b++)
            hash = (hash ^ y[b]) * 1099511628211u;
    }
    rig_close(&r);
    return hash;
}

static void test_threads_and_sets_change_nothing(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7};
    static const bnet_kv_shape shapes[] = {
        {1, N_BLOCKS, 2, 128, BITNET_KV_F16, 8}, {1, N_BLOCKS, 2, 64, BITNET_KV_F32, 2},
        {1, N_BLOCKS, 1, 48, BITNET_KV_F16, 7},  {1, N_BLOCKS, 3, 64, BITNET_KV_INT8, 9},
        {1, N_BLOCKS, 2, 20, BITNET_KV_INT8, 4}, {1, N_BLOCKS, 1, 1024, BITNET_KV_F16, 2},
        {1, N_BLOCKS, 5, 32, BITNET_KV_F16, 20},
    };
    for (size_t s = 0; s < BNET_COUNT(shapes); s++) {
        uint64_t want = story(1, "scalar", &shapes[s]);
        for (size_t i = 0; i < BNET_COUNT(threads); i++)
            if ((!test_quick() || i == s % BNET_COUNT(threads)) &&
                story(threads[i], NULL, &shapes[s]) != want)
                fail_msg("shape %zu, %d threads: other bits than the scalar kernels on one thread",
                         s, threads[i]);
    }
}

/* ---- tiles ---- */

enum { TILE_KV = 8 };

/* A step of runs[0] tokens of one timeline, then runs[1] of the next one, ... up to a 0. */
static bnet_step step_of(const int *runs, int32_t *seq)
{
    int n = 0;
    for (int i = 0; runs[i]; i++)
        for (int t = 0; t < runs[i]; t++)
            seq[n++] = i;
    return (bnet_step){n, NULL, NULL, seq, NULL};
}

static void count_items(const bnet_tiles *tiles, size_t most, int (*seen)[TILE_KV])
{
    for (size_t i = 0; i < tiles->n_items; i++) {
        size_t end, head, begin = bnet_tile_at(tiles, i, &end, &head);
        assert_true(begin < end && end - begin <= most && head < TILE_KV);
        for (size_t t = begin; t < end; t++)
            seen[t][head]++;
    }
}

static void test_every_token_is_in_one_tile(void **state)
{
    (void)state;
    static const int steps[][12] = {{1},
                                    {3},
                                    {14},
                                    {16},
                                    {40},
                                    {1, 1, 1, 1, 1, 1, 1, 1, 14},
                                    {1, 1, 1, 40},
                                    {5, 33},
                                    {20, 19, 1},
                                    {2, 1, 1, 1, 1},
                                    {1, 1, 9, 1, 3}};
    for (size_t i = 0; i < BNET_COUNT(steps); i++)
        for (size_t n_kv = 1; n_kv <= TILE_KV; n_kv++)
            for (size_t n_threads = 1; n_threads <= 33; n_threads += n_threads < 9 ? 1 : 8) {
                int32_t seq[MAX_T + 8];
                int seen[MAX_T + 8][TILE_KV] = {{0}};
                bnet_step step = step_of(steps[i], seq);
                bnet_tiles tiles[BNET_TILINGS];
                size_t n = bnet_choose_tiles(&step, 16, n_kv, n_threads, tiles);
                assert_in_range(n, 1, BNET_TILINGS);
                for (size_t k = 0; k < n; k++)
                    count_items(&tiles[k], 16, seen);
                for (int t = 0; t < step.n_tokens; t++)
                    for (size_t h = 0; h < TILE_KV; h++)
                        assert_int_equal(seen[t][h], h < n_kv);
            }
}

/* A prompt's 14 tokens beside 8 of others, 5 kv heads. Two threads: each has two heads whole and
 * half of the last one; of 4 heads one each, and two halves of two. Sixteen: three tiles of each
 * head, one for nearly every thread. */
static void test_short_runs_have_wide_tiles(void **state)
{
    (void)state;
    static const int runs[] = {1, 1, 1, 1, 1, 1, 1, 1, 14, 0};
    int32_t seq[MAX_T];
    bnet_step step = step_of(runs, seq);
    bnet_tiles tiles[BNET_TILINGS];
    assert_int_equal(bnet_choose_tiles(&step, 16, 5, 2, tiles), 3);
    assert_int_equal(tiles[0].n_items, 4);
    assert_int_equal(tiles[0].tile, 14);
    assert_int_equal(tiles[1].n_items, 2);
    assert_int_equal(tiles[1].tile, 7);
    assert_int_equal(tiles[2].end, 8);
    bnet_choose_tiles(&step, 16, 4, 2, tiles);
    assert_int_equal(tiles[0].n_items, 2);
    assert_int_equal(tiles[1].n_items, 4);
    assert_int_equal(bnet_choose_tiles(&step, 16, 5, 16, tiles), 2);
    assert_int_equal(tiles[0].tile, 5);
    assert_int_equal(tiles[0].n_items, 15);
    assert_int_equal(tiles[1].tile, 1);                       /* the rows of others */
    step = step_of((const int[]){256, 0}, (int32_t[256]){0}); /* long enough as it is */
    assert_int_equal(bnet_choose_tiles(&step, 16, 5, 2, tiles), 1);
    assert_int_equal(tiles[0].tile, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_sets_change_nothing),
        cmocka_unit_test(test_every_token_is_in_one_tile),
        cmocka_unit_test(test_short_runs_have_wide_tiles),
    };
    return cmocka_run_group_tests_name("backend/attention", tests, NULL, NULL);
}
