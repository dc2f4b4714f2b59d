/* After a session is open, the token loop allocates nothing, and opening it takes what _memory
 * said. */
#include "nano.h"

#include <malloc.h>

#include "torture/interpose.h"

static bool quiet(void *user, const char *text, size_t n, int32_t id)
{
    (void)text;
    (void)id;
    *(size_t *)user += n;
    return true;
}

static bitnet_batch_item one_token(bitnet_session *s, const int32_t *id, bitnet_sampler *sampler)
{
    bitnet_batch_item i;
    bitnet_batch_item_init(&i);
    i.session = s;
    i.ids = id;
    i.n_ids = 1;
    i.sampler = sampler;
    return i;
}

static void token_loop(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        nano n = nano_open(n_threads);
        bitnet_session *s = nano_session(&n, 0, 16, BITNET_KV_F16),
                       *t = nano_session(&n, 0, 16, BITNET_KV_INT8);
        bitnet_sampler_options so;
        bitnet_sampler_options_init(&so);
        so.typical_p = 0.9f;
        so.min_p = 0.01f;
        so.repetition_penalty = 1.1f;
        bitnet_sampler *pick = NULL;
        OK(bitnet_sampler_open(&so, n.n_vocab, &pick, &err));
        int32_t ids[60], one[2] = {1, 2};
        nano_ids(&n, 31, ids, 60);
        const char *stops[] = {"never there at all", "\xf0\x9f\x98\x80"};
        bitnet_generate_options o;
        bitnet_generate_options_init(&o);
        size_t n_shown = 0;
        o.max_tokens = 150;
        o.ignore_eos = true;
        o.print_special = true;
        o.stops = stops;
        o.n_stops = 2;
        o.on_text = quiet;
        o.user = &n_shown;
        bitnet_batch *batch = NULL;
        OK(bitnet_batch_open(n.engine, NULL, &batch, &err));
        bitnet_batch_item items[2];
        items[0] = one_token(s, &one[0], NULL);
        items[1] = one_token(t, &one[1], pick);
        bitnet_generate_result r;
        bitnet_error err = {0};
        bitnet_score_result score;
        interpose_start(-1, false);
        bitnet_status st = bitnet_generate(s, pick, ids, 60, &o, &r, &err);
        if (st == BITNET_OK)
            st = bitnet_session_rewind(s, 30, &err);
        if (st == BITNET_OK)
            st = bitnet_session_sync(s, ids, 50, NULL, &err);
        if (st == BITNET_OK)
            st = bitnet_batch_step(batch, items, 2, &err);
        if (st == BITNET_OK)
            st = bitnet_score(t, ids, 60, 0, &score, &err);
        long n_asked = interpose_stop();
        if (st != BITNET_OK)
            fail_msg("%s", err.message);
        if (n_asked)
            fail_msg("%d threads: %ld allocations in the token loop", n_threads, n_asked);
        assert_int_equal(r.n_generated, 150);
        assert_true(n_shown > 0);
        bitnet_batch_close(batch);
        bitnet_sampler_close(pick);
        bitnet_session_close(s);
        bitnet_session_close(t);
        nano_close(&n);
    }
}

/* The counter counts: otherwise the test above would pass with any code. */
static void opening_allocates(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = NULL;
    interpose_start(-1, false);
    bitnet_status st = bitnet_session_open(n.engine, NULL, &s, NULL);
    long n_asked = interpose_stop();
    assert_int_equal(st, BITNET_OK);
    assert_true(n_asked > 10);
    bitnet_session_close(s);
    nano_close(&n);
}

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static void memory_is_told_before(void **state)
{
    (void)state;
    if (INTERPOSE_SANITIZED) {
        print_message("the sanitizer's allocator does not say what is in use\n");
        skip();
    }
    nano n = nano_open(2);
    static const struct {
        int n_ctx, n_batch;
        bitnet_kv_type kv;
    } rows[] = {{0, 512, BITNET_KV_F16},
                {100, 1, BITNET_KV_F32},
                {4096, 64, BITNET_KV_INT8},
                {1, 1, BITNET_KV_F16}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bitnet_session_options o;
        bitnet_session_options_init(&o);
        o.n_ctx = rows[i].n_ctx;
        o.n_batch = rows[i].n_batch;
        o.kv_type = rows[i].kv;
        size_t before = in_use();
        bitnet_session_cost cost;
        OK(bitnet_session_memory(n.engine, &o, &cost, &err));
        size_t told = (size_t)(cost.session_bytes + cost.cache_bytes + cost.workspace_bytes);
        bitnet_session *s = NULL;
        OK(bitnet_session_open(n.engine, &o, &s, &err));
        size_t taken = in_use() - before;
        if (taken < told * 0.95 || taken > told * 1.02 + 65536) /* headers and page ends */
            fail_msg("row %zu: told %zu bytes, took %zu", i, told, taken);
        bitnet_session *second = NULL; /* the workspace serves both */
        before = in_use();
        OK(bitnet_session_open(n.engine, &o, &second, &err));
        told = (size_t)(cost.session_bytes + cost.cache_bytes);
        taken = in_use() - before;
        if (taken < told * 0.95 || taken > told * 1.02 + 4096)
            fail_msg("row %zu: told %zu bytes of a second session, took %zu", i, told, taken);
        bitnet_session_close(second);
        bitnet_session_close(s);
    }
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(token_loop),
                                       cmocka_unit_test(opening_allocates),
                                       cmocka_unit_test(memory_is_told_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
