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
    FAILS(bitnet_kv_pool_open(host.engine, &o, &p, &err), BITNET_MEMORY, "GiB, this machine has");
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

int main(int argc, char **argv)
{
    (void)argc;
    choose_gpu(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_of_the_device),
                                       cmocka_unit_test(test_saving_reads_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
