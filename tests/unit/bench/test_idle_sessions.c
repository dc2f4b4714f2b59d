/* What an idle session of the 2B-4T shape costs besides its cache blocks, counted in bytes that the
 * allocator gave out, and that bitnet_session_memory says the same. */
#include "unit/engine/nano.h"

#include <malloc.h>

#include "bitnet_tools.h"
#include "torture/interpose.h"

enum { SESSIONS = 64, MOST = 64 * 1024 };

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static bitnet_session *open_in(bitnet_engine *e, bitnet_kv_pool *pool, bitnet_session_cost *cost)
{
    bitnet_session *s = NULL;
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_batch = 16;
    o.n_ctx = 4096;
    o.kv_pool = pool;
    OK(bitnet_session_memory(e, &o, cost, &err));
    OK(bitnet_session_open(e, &o, &s, &err));
    return s;
}

static bitnet_kv_pool *open_pool(bitnet_engine *e)
{
    bitnet_kv_pool *p = NULL;
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    o.max_bytes = 32u << 20;
    o.max_sequence = 4096;
    OK(bitnet_kv_pool_open(e, &o, &p, &err));
    return p;
}

/* A token through two of the sessions, and their logits. */
static void use(bitnet_session *const *s)
{
    const int32_t id = 7;
    for (int i = 0; i < 2; i++) {
        OK(bitnet_session_append(s[i], &id, 1, NULL, NULL, &err));
        assert_non_null(bitnet_session_logits(s[i]));
    }
    for (int i = 0; i < 2; i++)
        OK(bitnet_session_rewind(s[i], 0, &err));
}

static void idle_sessions_cost_little(void **state)
{
    (void)state;
    if (INTERPOSE_SANITIZED) {
        print_message("the sanitizer's allocator does not say what is in use\n");
        skip();
    }
    bitnet_synthetic *model = NULL;
    bitnet_runtime *runtime = NULL;
    bitnet_engine *e = NULL;
    bitnet_runtime_options r;
    bitnet_engine_options o;
    bitnet_runtime_options_init(&r);
    bitnet_engine_options_init(&o);
    r.device = "cpu";
    o.no_pack = true; /* the weights stay in the file: they are not what is measured */
    OK(bitnet_runtime_open(&r, &runtime, &err));
    OK(bitnet_synthetic_open("2b-4t", "q4_0", &model, &err));
    OK(bitnet_synthetic_engine(model, runtime, &o, &e, &err));
    const bitnet_model_info *m = bitnet_engine_model(e);
    assert_true(m->n_layers == 30 && m->n_embd == 2560 && m->n_vocab == 128256);
    bitnet_kv_pool *pool = open_pool(e);
    bitnet_session_cost cost;
    bitnet_session *first[2] = {open_in(e, pool, &cost), open_in(e, pool, &cost)};
    use(first); /* whatever is made once for all is made */
    bitnet_session *s[SESSIONS];
    size_t before = in_use();
    for (int i = 0; i < SESSIONS; i++)
        s[i] = open_in(e, pool, &cost);
    size_t opened = (in_use() - before) / SESSIONS;
    use(s);
    size_t used = (in_use() - before) / SESSIONS;
    print_message("%zu bytes per session, %zu after two were used, told %llu\n", opened, used,
                  (unsigned long long)cost.session_bytes);
    assert_true(opened < MOST && used < MOST);
    assert_int_equal(cost.cache_bytes, 0);
    assert_true(opened > 0.95 * (double)cost.session_bytes);
    assert_true(opened < 1.05 * (double)cost.session_bytes + 1024);
    for (int i = 0; i < SESSIONS; i++)
        bitnet_session_close(s[i]);
    assert_true(in_use() < before + MOST); /* all of it came back */
    bitnet_session_close(first[0]);
    bitnet_session_close(first[1]);
    bitnet_kv_pool_close(pool);
    bitnet_engine_close(e);
    bitnet_synthetic_close(model);
    bitnet_runtime_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(idle_sessions_cost_little)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
