/* A cache on a GPU (gpu.h): where its memory is counted, and what saving moves. */
#include "crowd.h"
#include "gpu.h"

static void test_memory_of_the_device(void **state)
{
    (void)state;
    need_gpu();
    nano n = nano_on("cuda"), host = nano_on("cpu");
    bitnet_kv_pool *p = NULL;
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    o.max_bytes = (uint64_t)1 << 42;
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_MEMORY,
          "GiB, the device's memory has");
    FAILS(bitnet_kv_pool_open(host.engine, &o, &p, &err), BITNET_MEMORY, "GiB; free are");
    assert_null(p);
    nano_close(&n);
    nano_close(&host);
}

static bitnet_performance_stats stats_of(const nano *n)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    OK(bitnet_engine_stats(n->engine, &s, &err));
    return s.performance;
}

/* A saved timeline goes on as it was, on either device; saving brings nothing to the device. */
static void test_saving_reads_only(void **state)
{
    (void)state;
    need_gpu();
    static const char path[] = TEST_BINARY_DIR "/pool_gpu_session.bin";
    nano n = nano_on("cuda");
    bitnet_kv_pool *p = crowd_pool(&n, 6, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, 192), *f = NULL, *own = nano_session(&n, 192, 32, 0);
    int32_t ids[192];
    nano_ids(&n, 31, ids, 192);
    OK(bitnet_session_append(s, ids, 100, NULL, NULL, &err));
    OK(bitnet_session_fork(s, 96, &f, &err));
    bitnet_performance_stats before = stats_of(&n);
    OK(bitnet_session_save(f, path, &err));
    bitnet_performance_stats after = stats_of(&n);
    assert_int_equal(after.n_h2d, before.n_h2d);
    assert_int_equal(after.h2d_bytes, before.h2d_bytes);
    assert_true(after.d2h_bytes - before.d2h_bytes >= 2 * crowd_stats(p).block_bytes);
    OK(bitnet_session_load(own, path, &err));
    OK(bitnet_session_load(f, path, &err)); /* into blocks that it shares: they are exchanged */
    bitnet_session *all[] = {s, f, own};
    OK(bitnet_session_rewind(s, 96, &err));
    for (int i = 0; i < 3; i++)
        OK(bitnet_session_append(all[i], ids + 40, 7, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(f), "fork");
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(own), "loaded");
    for (int i = 0; i < 3; i++)
        bitnet_session_close(all[i]);
    unlink(path);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* ---- batch_invariant and eviction ---- */

typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

static bool add_bytes(void *user, const void *data, size_t n)
{
    bytes *b = user;
    b->data = realloc(b->data, b->n + n);
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return true;
}

/* On a real GPU, or where that is missing on the host-memory driver: the emulated one is slow. */
static nano open_invariant(bool invariant)
{
    nano n = {0};
    bitnet_runtime_options r;
    bitnet_runtime_options_init(&r);
    r.n_threads = 1;
    r.device = real_gpu ? "cuda" : "host";
    OK(bitnet_runtime_open(&r, &n.runtime, &err));
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.batch_invariant = invariant;
    const char *story = TEST_SOURCE_DIR "/models/story.gguf";
    OK(bitnet_engine_open(n.runtime, real_gpu ? story : NANO_PATH, &o, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

enum { TOKENS = 158 }; /* pieces of 40 and 70 by the session, 30 by a batch, then one by one */

static void in_pieces(const nano *n, bitnet_session *s, const int32_t *ids)
{
    bitnet_batch *b = NULL;
    bitnet_batch_item i;
    OK(bitnet_batch_open(n->engine, NULL, &b, &err));
    bitnet_batch_item_init(&i);
    i.session = s;
    i.ids = ids + 110;
    i.n_ids = 40;
    OK(bitnet_session_append(s, ids, 40, NULL, NULL, &err));
    OK(bitnet_session_append(s, ids + 40, 70, NULL, NULL, &err));
    OK(bitnet_batch_step(b, &i, 1, &err));
    i.n_ids = 1;
    for (i.ids = ids + 150; i.ids < ids + TOKENS; i.ids++)
        OK(bitnet_batch_step(b, &i, 1, &err));
    bitnet_batch_close(b);
}

static uint64_t calls_of(const bitnet_session *s)
{
    bitnet_session_kernel k[BNET_SESSION_KERNELS];
    uint64_t sum = 0;
    size_t n = bitnet_session_kernels(s, k, BNET_SESSION_KERNELS);
    for (size_t i = 0; i < n; i++)
        sum += k[i].n_calls;
    return sum;
}

/* True if a cache that was lost from block `keep` on and computed again has the same bytes. *calls:
 * kernels called for that. */
static bool survives_eviction(const nano *n, int keep, uint64_t *calls)
{
    bitnet_kv_pool *p = crowd_pool(n, 8, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(n, p, 256), *hog = crowd_session(n, p, 512);
    int32_t ids[512];
    bytes before = {0}, after = {0};
    nano_ids(n, 51, ids, 512);
    in_pieces(n, s, ids);
    OK(bitnet_session_save_to(s, add_bytes, &before, &err));
    OK(bitnet_session_append(hog, ids, (size_t)(8 - keep) * 64, NULL, NULL, &err));
    assert_int_equal(bitnet_session_cached(s), keep * 64);
    bitnet_session_close(hog);
    *calls = calls_of(s);
    OK(bitnet_session_save_to(s, add_bytes, &after, &err));
    *calls = calls_of(s) - *calls;
    assert_int_equal(bitnet_session_cached(s), TOKENS);
    assert_int_equal(before.n, after.n);
    bool same = memcmp(before.data, after.data, before.n) == 0;
    free(before.data);
    free(after.data);
    bitnet_session_close(s);
    bitnet_kv_pool_close(p);
    return same;
}

/* With batch_invariant a cache that was evicted has the bits it had: it is computed in the pieces
 * in which its tokens came. */
static void test_evicted_bits_are_invariant(void **state)
{
    (void)state;
    bool differs = false;
    nano plain = open_invariant(false), n = open_invariant(true);
    for (int keep = 0; keep <= 2; keep++) {
        uint64_t calls[2];
        assert_true(survives_eviction(&n, keep, &calls[1]));
        differs = !survives_eviction(&plain, keep, &calls[0]) || differs;
        print_message("lost from token %d on: %d kernels called, %d with batch_invariant\n",
                      keep * 64, (int)calls[0], (int)calls[1]);
        assert_true(real_gpu || calls[1] > 2 * calls[0]); /* 5 passes against 14 */
    }
    print_message("without batch_invariant the bits %s\n", differs ? "differ" : "are the same");
    nano_close(&plain);
    nano_close(&n);
}

/* A pass longer than a step may compute is not divided: the step completes it. */
static void test_a_long_pass_is_computed_again_whole(void **state)
{
    (void)state;
    nano n = open_invariant(true);
    bitnet_kv_pool *p = crowd_pool(&n, 8, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, 256), *hog = crowd_session(&n, p, 512);
    int32_t ids[512];
    nano_ids(&n, 52, ids, 512);
    OK(bitnet_session_append(s, ids, 100, NULL, NULL, &err));
    OK(bitnet_session_append(s, ids + 100, 20, NULL, NULL, &err));
    OK(bitnet_session_append(hog, ids, 512, NULL, NULL, &err));
    bitnet_session_close(hog);
    bitnet_batch *b = NULL;
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = 16;
    OK(bitnet_batch_open(n.engine, &o, &b, &err));
    bitnet_batch_item i;
    bitnet_batch_item_init(&i);
    i.session = s, i.ids = ids + 120, i.n_ids = 1;
    for (size_t k = 1; k <= 3; k++) { /* of 16 tokens, in passes of 32 */
        assert_int_equal(bitnet_batch_step(b, &i, 1, NULL), BITNET_AGAIN);
        assert_int_equal(bitnet_session_cached(s), k * 32);
    }
    OK(bitnet_batch_step(b, &i, 1, &err));
    assert_int_equal(bitnet_session_cached(s), 121);
    bitnet_batch_close(b);
    bitnet_session_close(s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

int main(int argc, char **argv)
{
    (void)argc;
    choose_gpu(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_of_the_device),
                                       cmocka_unit_test(test_saving_reads_only),
                                       cmocka_unit_test(test_evicted_bits_are_invariant),
                                       cmocka_unit_test(test_a_long_pass_is_computed_again_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
