/* Cache blocks of a pool: nobody has a block that another has unless it was shared, a shared block
 * is copied before it is written, blocks come back, sizes are what was told, and a pass over two
 * timelines of a pool is two passes on their own. */
#include "test.h"

#include "model/kv.h"
#include "model/model.h"
#include "ops/open.h"
#include "tiny.h"

typedef struct run {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_gguf *g;
    bnet_model *m;
    char path[512];
} run;

static void run_open(run *r, const tiny *t)
{
    memset(r, 0, sizeof *r);
    tiny_file(t, r->path, sizeof r->path);
    assert_int_equal(bnet_pool_open(1, &r->pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&r->registry, NULL), BITNET_OK);
    assert_int_equal(bnet_backend_open_cpu(r->pool, r->registry, NULL, false, NULL, &r->be, NULL),
                     BITNET_OK);
    assert_int_equal(bnet_gguf_open(r->path, NULL, &r->g, NULL), BITNET_OK);
    assert_int_equal(bnet_model_open(r->g, r->be, t->layout, NULL, NULL, &r->m, NULL), BITNET_OK);
}

static void run_close(run *r)
{
    bnet_model_close(r->m);
    bnet_gguf_close(r->g);
    bnet_backend_close(r->be);
    bnet_registry_close(r->registry);
    bnet_pool_close(r->pool);
    unlink(r->path);
}

static void distinct(bnet_kv *const *kv, int n, int n_blocks)
{
    bool seen[16] = {false};
    assert_true(n_blocks <= 16);
    for (int i = 0; i < n; i++)
        for (int b = 0; b < bnet_kv_mapped(kv[i]); b++) {
            int32_t block = kv[i]->table[b];
            assert_true(block >= 0 && block < n_blocks);
            if (seen[block])
                fail_msg("timeline %d has block %d, which another has", i, (int)block);
            seen[block] = true;
        }
}

static void test_KV_2_sharing(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    bnet_kv_blocks *blocks;
    bnet_kv *kv[3];
    assert_int_equal(bnet_kv_blocks_open(r.m, 7, BITNET_KV_F16, &blocks, NULL), BITNET_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(bnet_kv_open_pooled(blocks, 400, &kv[i], NULL), BITNET_OK);
    assert_int_equal(bnet_kv_blocks_free(blocks), 7);
    assert_int_equal(tiny_reserve(kv[0], 0, 65, NULL), BITNET_OK);
    assert_int_equal(tiny_reserve(kv[1], 0, 64, NULL), BITNET_OK);
    assert_int_equal(tiny_reserve(kv[2], 0, 200, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_blocks_free(blocks), 0);
    distinct(kv, 3, 7);
    assert_int_equal(tiny_reserve(kv[2], 0, 100, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_cover(kv[2], 1, NULL), BITNET_OK); /* what is there stays */
    assert_int_equal(bnet_kv_mapped(kv[2]), 2);
    assert_int_equal(tiny_reserve(kv[0], 0, 0, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_blocks_free(blocks), 4);
    assert_int_equal(bnet_kv_cover(kv[1], 300, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_blocks_free(blocks), 0);
    distinct(kv, 3, 7);
    bnet_kv_close(kv[1]);
    assert_int_equal(bnet_kv_blocks_free(blocks), 5);
    bnet_kv_close(kv[0]);
    bnet_kv_close(kv[2]);
    assert_int_equal(bnet_kv_blocks_free(blocks), 7);
    bnet_kv_blocks_close(blocks);
    bnet_kv_blocks_close(NULL);
    run_close(&r);
}

/* Writes one byte everywhere into positions [0, n_pos); returns how many bytes that were. */
static uint64_t fill(bnet_kv *kv, int n_pos, int byte)
{
    uint64_t n = bnet_kv_saved_bytes(kv, n_pos);
    uint8_t *bytes = malloc((size_t)n);
    assert_non_null(bytes);
    memset(bytes, byte, (size_t)n);
    assert_int_equal(bnet_kv_write(kv, n_pos, bytes, NULL), BITNET_OK);
    free(bytes);
    return n;
}

typedef struct looking {
    int byte;
    uint64_t n_other;
} looking;

static bitnet_status look_at(void *user, const void *bytes, size_t n, bitnet_error *err)
{
    (void)err;
    looking *l = user;
    for (size_t i = 0; i < n; i++)
        l->n_other += ((const uint8_t *)bytes)[i] != l->byte;
    return BITNET_OK;
}

/* Bytes of positions [0, n_pos) that are not `byte`. */
static uint64_t look(const bnet_kv *kv, int n_pos, int byte)
{
    looking l = {byte, 0};
    assert_int_equal(bnet_kv_read(kv, n_pos, look_at, &l, NULL), BITNET_OK);
    return l.n_other;
}

static void test_KV_3_bytes_and_clean_blocks(void **state)
{
    (void)state;
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    for (int i = 0; i < 3; i++) {
        bnet_kv_blocks *blocks;
        bnet_kv *a, *b;
        assert_int_equal(bnet_kv_blocks_open(r.m, 2, types[i], &blocks, NULL), BITNET_OK);
        assert_int_equal(bnet_kv_open_pooled(blocks, 128, &a, NULL), BITNET_OK);
        assert_int_equal(bnet_kv_open_pooled(blocks, 128, &b, NULL), BITNET_OK);
        uint64_t n_bytes = fill(a, 100, 0x5a);
        assert_int_equal(n_bytes, 2 * bnet_kv_block_bytes(r.m, types[i]));
        assert_int_equal(look(a, 128, 0x5a), 0);
        assert_int_equal(n_bytes, bnet_kv_bytes(r.m, 100, types[i]));
        assert_int_equal(tiny_reserve(a, 0, 0, NULL), BITNET_OK);
        assert_int_equal(bnet_kv_cover(b, 128, NULL), BITNET_OK);
        assert_int_equal(look(b, 128, 0), 0);
        bnet_kv_close(a);
        bnet_kv_close(b);
        bnet_kv_blocks_close(blocks);
    }
    run_close(&r);
}

/* What is saved of a timeline that was rewound has nothing of what it had behind its end. */
static void test_saved_tail_is_zero(void **state)
{
    (void)state;
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    for (int i = 0; i < 3; i++) {
        bnet_kv *kv;
        assert_int_equal(bnet_kv_open(r.m, 128, types[i], &kv, NULL), BITNET_OK);
        uint64_t all = fill(kv, 128, 0x5a), block = all / 2, gaps = look(kv, 128, 0x5a);
        assert_int_equal(gaps, 0);
        const bnet_kv_shape *s = &kv->blocks->shape;
        uint64_t row = (uint64_t)s->head_dim * bnet_kv_elem(s->type);
        if (types[i] == BITNET_KV_INT8)
            row += bnet_kv_groups((size_t)s->head_dim) * sizeof(float);
        uint64_t rows = 2u * (uint64_t)s->n_kv_heads * (uint64_t)s->n_layers; /* of a position */
        assert_int_equal(look(kv, 70, 0x5a), 58 * rows * row);
        assert_int_equal(look(kv, 1, 0x5a), 63 * rows * row);
        assert_int_equal(look(kv, 64, 0x5a), 0);
        assert_true(63 * rows * row < block);
        bnet_kv_close(kv);
    }
    run_close(&r);
}

static void share(bnet_kv *to, const bnet_kv *from, int n_blocks)
{
    for (int i = 0; i < n_blocks; i++)
        bnet_kv_map(to, bnet_kv_block_at(from, i));
}

/* b shares the two blocks of a. Who writes takes a copy of the second; the other sees nothing. */
static void test_copy_on_write(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    bnet_kv_blocks *blocks;
    bnet_kv *a, *b;
    assert_int_equal(bnet_kv_blocks_open(r.m, 4, BITNET_KV_F16, &blocks, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_open_pooled(blocks, 256, &a, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_open_pooled(blocks, 256, &b, NULL), BITNET_OK);
    fill(a, 100, 0x11);
    share(b, a, 2);
    assert_int_equal(bnet_kv_blocks_free(blocks), 2);
    assert_int_equal(bnet_kv_blocks_refs(blocks, bnet_kv_block_at(a, 1)), 2);
    assert_int_equal(bnet_kv_missing(b, 100, 100), 0); /* reading alone */
    assert_int_equal(tiny_reserve(b, 100, 100, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_block_at(b, 1), bnet_kv_block_at(a, 1));
    assert_int_equal(bnet_kv_missing(b, 64, 65), 1); /* a full block is not written */
    assert_int_equal(bnet_kv_missing(b, 100, 101), 1);
    assert_int_equal(bnet_kv_missing(b, 100, 129), 2);
    assert_int_equal(tiny_reserve(b, 100, 101, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_block_at(b, 0), bnet_kv_block_at(a, 0));
    assert_true(bnet_kv_block_at(b, 1) != bnet_kv_block_at(a, 1));
    assert_int_equal(bnet_kv_blocks_free(blocks), 1);
    assert_int_equal(look(b, 128, 0x11), 0);           /* it is a copy */
    assert_int_equal(bnet_kv_missing(a, 100, 101), 0); /* a has its block for itself again */
    bnet_kv_close(a);
    assert_int_equal(bnet_kv_blocks_free(blocks), 2); /* the first one is still b's */
    assert_int_equal(look(b, 128, 0x11), 0);
    bnet_kv_blocks_hold(blocks, bnet_kv_block_at(b, 0));
    int32_t held = bnet_kv_block_at(b, 0);
    bnet_kv_close(b);
    assert_int_equal(bnet_kv_blocks_free(blocks), 3);
    bnet_kv_blocks_drop(blocks, held);
    assert_int_equal(bnet_kv_blocks_free(blocks), 4);
    bnet_kv_blocks_close(blocks);
    run_close(&r);
}

/* A copy to blocks of its own, of a part of a timeline. */
static void test_copies(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    bnet_kv *a, *b;
    assert_int_equal(bnet_kv_open(r.m, 256, BITNET_KV_INT8, &a, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_open(r.m, 100, BITNET_KV_INT8, &b, NULL), BITNET_OK);
    fill(a, 200, 0x22);
    fill(b, 70, 0x33);
    assert_int_equal(bnet_kv_copy(b, a, 65, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_mapped(b), 2);
    assert_int_equal(look(b, 128, 0x22), 0);
    fill(b, 65, 0x44);
    assert_int_equal(look(a, 256, 0x22), 0);
    bnet_kv_close(a);
    bnet_kv_close(b);
    run_close(&r);
}

/* ---- a backend that fails to zero or to copy a block ---- */

static const bnet_backend_vtable *whole; /* a vtable has no room for an owner */
static int clears_left, n_held;
static bool clear_failed;

static void failing_clear(bnet_kv_store *store, int block)
{
    (void)store, (void)block;
    assert_true(n_held > 0); /* or the failure is told to somebody else */
    clear_failed = clear_failed || --clears_left < 0;
}

static void note_hold(bnet_backend *be)
{
    (void)be;
    n_held++;
}

static bitnet_status tell(bnet_backend *be, bitnet_error *err)
{
    (void)be;
    bool failed = clear_failed;
    n_held--;
    clear_failed = false;
    return failed ? bnet_fail(err, BITNET_ERROR, "injected failure of a clear") : BITNET_OK;
}

static void check_not_taken(bnet_kv *kv, int n_mapped)
{
    bitnet_error err = {0};
    const bnet_kv_blocks *b = kv->blocks;
    int n_free = b->n_free, n_cleared = b->n_cleared;
    clears_left = 1; /* one block is zeroed, the next is not */
    assert_int_equal(bnet_kv_cover(kv, 300, &err), BITNET_ERROR);
    assert_non_null(strstr(err.message, "injected"));
    assert_int_equal(bnet_kv_mapped(kv), n_mapped);
    assert_int_equal(b->n_free, n_free);
    assert_int_equal(b->n_cleared, n_cleared);
    assert_int_equal(tiny_reserve(kv, 128, 300, NULL), BITNET_ERROR);
    assert_int_equal(bnet_kv_mapped(kv), n_mapped);
    clears_left = 5 - n_mapped; /* exactly those: a block that failed is zeroed when taken again */
    assert_int_equal(bnet_kv_cover(kv, 300, NULL), BITNET_OK);
    assert_int_equal(clears_left, 0);
    assert_int_equal(n_held, 0);
    distinct(&kv, 1, 5);
}

static void failing_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from)
{
    (void)dst, (void)to, (void)src, (void)from;
    assert_true(n_held > 0);
    clear_failed = true;
}

static void test_blocks_that_cannot_be_copied(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    bnet_kv_blocks *blocks;
    bnet_kv *a, *b;
    assert_int_equal(bnet_kv_blocks_open(r.m, 4, BITNET_KV_F16, &blocks, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_open_pooled(blocks, 256, &a, NULL), BITNET_OK);
    assert_int_equal(bnet_kv_open_pooled(blocks, 256, &b, NULL), BITNET_OK);
    fill(a, 100, 0x11);
    share(b, a, 2);
    whole = r.be->v;
    bnet_backend_vtable v = *whole;
    v.kv_copy = failing_copy;
    v.hold = note_hold;
    v.release = tell;
    r.be->v = &v;
    bitnet_error err = {0};
    assert_int_equal(tiny_reserve(b, 100, 150, &err), BITNET_ERROR);
    assert_non_null(strstr(err.message, "injected"));
    assert_int_equal(bnet_kv_mapped(b), 2);
    assert_int_equal(bnet_kv_block_at(b, 1), bnet_kv_block_at(a, 1));
    assert_int_equal(bnet_kv_blocks_free(blocks), 2);
    r.be->v = whole;
    assert_int_equal(tiny_reserve(b, 100, 150, NULL), BITNET_OK);
    assert_int_equal(look(a, 128, 0x11), 0);
    bnet_kv_close(a);
    bnet_kv_close(b);
    assert_int_equal(bnet_kv_blocks_free(blocks), 4);
    bnet_kv_blocks_close(blocks);
    run_close(&r);
}

static void test_KV_3_blocks_that_cannot_be_zeroed(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    for (int shared = 0; shared < 2; shared++) {
        bnet_kv_blocks *blocks = NULL;
        bnet_kv *kv;
        whole = r.be->v;
        bnet_backend_vtable v = *whole;
        v.kv_clear = failing_clear;
        v.hold = note_hold;
        v.release = tell;
        r.be->v = &v;
        if (shared)
            assert_int_equal(bnet_kv_blocks_open(r.m, 5, BITNET_KV_F16, &blocks, NULL), BITNET_OK);
        assert_int_equal(shared ? bnet_kv_open_pooled(blocks, 300, &kv, NULL)
                                : bnet_kv_open(r.m, 300, BITNET_KV_F16, &kv, NULL),
                         BITNET_OK);
        clears_left = 2;
        assert_int_equal(bnet_kv_cover(kv, 128, NULL), BITNET_OK);
        check_not_taken(kv, 2);
        bnet_kv_close(kv);
        bnet_kv_blocks_close(blocks);
        r.be->v = whole;
    }
    run_close(&r);
}

enum { N = 70 };

/* Two timelines, a token of each per pass. */
static void two_timelines(const bnet_model *m, bnet_kv *const kv[2], const int32_t *ids, float *out)
{
    bnet_workspace *ws;
    size_t n_vocab = (size_t)bnet_model_hparams(m)->n_vocab;
    int32_t seq[2] = {0, 1}, rows[2] = {0, 1};
    const float *l;
    assert_int_equal(bnet_workspace_open(m, 2, &ws, NULL), BITNET_OK);
    for (int i = 0; i < N; i++) {
        int32_t pos[2] = {i, i}, now[2] = {ids[i], ids[N - 1 - i]};
        bnet_batch b = {2, now, pos, seq, kv, 2, rows, 2, false, NULL, NULL};
        assert_int_equal(bnet_forward(ws, &b, NULL), BITNET_OK);
    }
    assert_int_equal(bnet_head(ws, 0, 2, &l, NULL), BITNET_OK);
    memcpy(out, l, 2 * n_vocab * sizeof *out);
    bnet_workspace_close(ws);
}

static void test_KV_2_shared_is_own(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)(tiny_hash("ids", (uint64_t)i) % (uint64_t)t.n_vocab);
    size_t n_bytes = 2 * (size_t)t.n_vocab * sizeof(float);
    float *own = malloc(n_bytes), *shared = malloc(n_bytes);
    bnet_kv_blocks *blocks;
    bnet_kv *kv[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(bnet_kv_open(r.m, N, BITNET_KV_INT8, &kv[i], NULL), BITNET_OK);
    two_timelines(r.m, kv, ids, own);
    bnet_kv_close(kv[0]);
    bnet_kv_close(kv[1]);
    assert_int_equal(bnet_kv_blocks_open(r.m, 4, BITNET_KV_INT8, &blocks, NULL), BITNET_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(bnet_kv_open_pooled(blocks, N, &kv[i], NULL), BITNET_OK);
    two_timelines(r.m, kv, ids, shared);
    assert_memory_equal(own, shared, n_bytes);
    bnet_kv_close(kv[0]);
    bnet_kv_close(kv[1]);
    bnet_kv_blocks_close(blocks);
    free(own);
    free(shared);
    run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_KV_2_sharing),
                                       cmocka_unit_test(test_KV_3_bytes_and_clean_blocks),
                                       cmocka_unit_test(test_KV_3_blocks_that_cannot_be_zeroed),
                                       cmocka_unit_test(test_saved_tail_is_zero),
                                       cmocka_unit_test(test_copy_on_write),
                                       cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_blocks_that_cannot_be_copied),
                                       cmocka_unit_test(test_KV_2_shared_is_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
