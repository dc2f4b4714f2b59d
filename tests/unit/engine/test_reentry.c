/* Callbacks that call back: a session, a sampler or a batch that a call works with refuses every
 * other call that would change it, and the call that works with it ends as if nothing happened. */
#include "nano.h"

enum { N_PROMPT = 12, N_TOKENS = 8 };

/* What the callbacks of a test reach. */
typedef struct scene {
    nano n;
    bitnet_session *s, *other;
    bitnet_sampler *sampler;
    bitnet_batch *batch;
    int32_t prompt[N_PROMPT];
    int32_t out[64];
    size_t n_out, n_called;
} scene;

static const char in_use[] = "in use by a call that has not returned";

static bitnet_sampler *open_sampler(const scene *c, float temperature)
{
    bitnet_sampler_options o;
    bitnet_sampler *sampler = NULL;
    bitnet_sampler_options_init(&o);
    o.temperature = temperature;
    OK(bitnet_sampler_open(&o, c->n.n_vocab, &sampler, &err));
    return sampler;
}

static scene open_scene(void)
{
    scene c = {.n = nano_open(1)};
    c.s = nano_session(&c.n, 64, 4, BITNET_KV_F16);
    c.other = nano_session(&c.n, 64, 4, BITNET_KV_F16);
    c.sampler = open_sampler(&c, 0.7f);
    OK(bitnet_batch_open(c.n.engine, NULL, &c.batch, &err));
    nano_ids(&c.n, 1, c.prompt, N_PROMPT);
    return c;
}

static void close_scene(scene *c)
{
    bitnet_batch_close(c->batch);
    bitnet_sampler_close(c->sampler);
    bitnet_session_close(c->other);
    bitnet_session_close(c->s);
    nano_close(&c->n);
}

static bool no_bytes(void *user, const void *bytes, size_t n_bytes)
{
    (void)user, (void)bytes, (void)n_bytes;
    fail_msg("a refused call has written something");
    return false;
}

static bitnet_status step(const scene *c, bitnet_session *s, bitnet_sampler *sampler,
                          bitnet_error *err)
{
    bitnet_batch_item item;
    bitnet_batch_item_init(&item);
    item.session = s;
    item.ids = c->prompt;
    item.n_ids = 1;
    item.sampler = sampler;
    return bitnet_batch_step(c->batch, &item, 1, err);
}

/* Every call that changes the session. */
static void use_session(scene *c)
{
    size_t position = bitnet_session_position(c->s), n;
    bitnet_score_result score;
    bitnet_sampler *sampler = open_sampler(c, 0);
    c->n_called++;
    FAILS(bitnet_generate(c->s, sampler, c->prompt, N_PROMPT, NULL, NULL, &err), BITNET_ARGUMENT,
          in_use);
    FAILS(bitnet_session_append(c->s, c->prompt, 1, NULL, NULL, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_sync(c->s, c->prompt, 1, NULL, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_rewind(c->s, 0, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_score(c->s, c->prompt, N_PROMPT, 0, &score, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_save_to(c->s, no_bytes, NULL, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_save(c->s, "/nonexistent/file", &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_load(c->s, "/nonexistent/file", &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_load_memory(c->s, c->prompt, 1, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_publish(c->s, 0, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_publish_all(c->s, 0, &err), BITNET_ARGUMENT, in_use);
    FAILS(bitnet_session_reuse(c->s, 0, c->prompt, 1, &n, &err), BITNET_ARGUMENT, in_use);
    FAILS(step(c, c->s, NULL, &err), BITNET_ARGUMENT, "in use by a call");
    bitnet_session_close(c->s); /* refused, too: it has no way to say so but the log */
    assert_int_equal(bitnet_session_position(c->s), position);
    bitnet_sampler_close(sampler);
}

/* Every call that makes the sampler choose. */
static void use_sampler(scene *c)
{
    int32_t id;
    const float *logits = bitnet_session_logits(c->other);
    assert_non_null(logits);
    c->n_called++;
    FAILS(bitnet_generate(c->other, c->sampler, c->prompt, 2, NULL, NULL, &err), BITNET_ARGUMENT,
          in_use);
    FAILS(bitnet_sampler_pick(c->sampler, logits, NULL, 0, &id, &err), BITNET_ARGUMENT, in_use);
    FAILS(step(c, c->other, c->sampler, &err), BITNET_ARGUMENT, in_use);
    bitnet_sampler_close(c->sampler);
}

static bool text_uses_all(void *user, const char *text, size_t n_bytes, int32_t id)
{
    scene *c = user;
    (void)text, (void)n_bytes;
    c->out[c->n_out++] = id;
    use_session(c);
    use_sampler(c);
    assert_non_null(bitnet_session_logits(c->s)); /* reading is allowed between tokens */
    return true;
}

static bool text_alone(void *user, const char *text, size_t n_bytes, int32_t id)
{
    scene *c = user;
    (void)text, (void)n_bytes;
    c->out[c->n_out++] = id;
    return true;
}

static void generate(scene *c, bitnet_text_fn on_text)
{
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = N_TOKENS;
    o.ignore_eos = true;
    o.on_text = on_text;
    o.user = c;
    c->n_out = 0;
    OK(bitnet_generate(c->s, c->sampler, c->prompt, N_PROMPT, &o, NULL, &err));
    assert_int_equal(c->n_out, N_TOKENS);
}

/* Nested calls are refused, and the tokens are those of a generation without them. */
static void a_generation_is_not_disturbed(void **state)
{
    (void)state;
    scene c = open_scene(), plain = open_scene();
    OK(bitnet_session_append(c.other, c.prompt, 3, NULL, NULL, &err));
    generate(&c, text_uses_all);
    generate(&plain, text_alone);
    assert_memory_equal(c.out, plain.out, N_TOKENS * sizeof *c.out);
    assert_int_equal(c.n_called, 2 * N_TOKENS);
    generate(&c, text_alone); /* both are free again */
    close_scene(&plain);
    close_scene(&c);
}

static bool cancel_uses_all(void *user)
{
    use_session(user);
    assert_null(bitnet_session_logits(((scene *)user)->s)); /* it computes: there are none now */
    return false;
}

static bool progress_uses_all(void *user, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return !cancel_uses_all(user);
}

static bool logits_use_all(void *user, size_t index, const float *logits)
{
    bitnet_session *fork = NULL;
    scene *c = user;
    (void)index, (void)logits;
    FAILS(bitnet_session_fork(c->s, 1, &fork, &err), BITNET_ARGUMENT, in_use);
    return !cancel_uses_all(user);
}

static void a_prompt_is_not_disturbed(void **state)
{
    (void)state;
    scene c = open_scene();
    OK(bitnet_session_append(c.s, c.prompt, 1, NULL, NULL, &err)); /* there are logits before */
    OK(bitnet_session_append(c.other, c.prompt, N_PROMPT, NULL, NULL, &err));
    bitnet_session_on_cancel(c.s, cancel_uses_all, &c);
    bitnet_session_on_progress(c.s, progress_uses_all, &c);
    OK(bitnet_session_append(c.s, c.prompt + 1, N_PROMPT - 1, logits_use_all, &c, &err));
    assert_true(c.n_called > N_PROMPT);
    assert_same_logits(&c.n, bitnet_session_logits(c.s), bitnet_session_logits(c.other), "prompt");
    close_scene(&c);
}

static bool write_uses_all(void *user, const void *bytes, size_t n_bytes)
{
    (void)bytes, (void)n_bytes;
    use_session(user);
    return true;
}

static void a_saved_session_is_not_disturbed(void **state)
{
    (void)state;
    scene c = open_scene();
    OK(bitnet_session_append(c.s, c.prompt, N_PROMPT, NULL, NULL, &err));
    OK(bitnet_session_save_to(c.s, write_uses_all, &c, &err));
    assert_true(c.n_called > 0);
    OK(bitnet_session_rewind(c.s, 0, &err));
    close_scene(&c);
}

static bool step_uses_all(void *user)
{
    scene *c = user;
    use_session(c);
    use_sampler(c);
    FAILS(step(c, c->other, NULL, &err), BITNET_ARGUMENT, in_use); /* the batch itself */
    bitnet_batch_close(c->batch);
    return false;
}

static void a_step_is_not_disturbed(void **state)
{
    (void)state;
    scene c = open_scene();
    OK(bitnet_session_append(c.other, c.prompt, 3, NULL, NULL, &err));
    bitnet_session_on_cancel(c.s, step_uses_all, &c);
    OK(step(&c, c.s, c.sampler, &err));
    assert_int_equal(c.n_called, 2);
    assert_int_equal(bitnet_session_position(c.s), 1);
    bitnet_session_on_cancel(c.s, NULL, NULL);
    OK(step(&c, c.s, c.sampler, &err)); /* all three are free again */
    FAILS(step(&c, NULL, c.sampler, &err), BITNET_ARGUMENT, "is NULL");
    OK(step(&c, c.other, c.sampler, &err)); /* also after a step that was refused */
    close_scene(&c);
}

static void keep_line(void *user, bitnet_log_level level, const char *module, const char *message)
{
    if (level == BITNET_LOG_ERROR)
        snprintf(user, 256, "%s: %s", module, message);
}

/* A pool that is closed too early says so and stays: its sessions compute on. */
static void a_pool_with_sessions_is_not_closed(void **state)
{
    (void)state;
    char line[256] = "";
    nano n = {0};
    bitnet_kv_pool *pool = NULL;
    bitnet_kv_pool_stats stats = {0};
    int32_t ids[70];
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.log = keep_line;
    o.log_user = line;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    bitnet_kv_pool_options po;
    bitnet_kv_pool_options_init(&po);
    po.max_bytes = 1 << 20;
    OK(bitnet_kv_pool_open(n.engine, &po, &pool, &err));
    bitnet_session_options so;
    bitnet_session *s = NULL;
    bitnet_session_options_init(&so);
    so.kv_pool = pool;
    so.n_ctx = 128;
    OK(bitnet_session_open(n.engine, &so, &s, &err));
    bitnet_kv_pool_close(pool);
    assert_string_equal(line, "session: cache pool not closed: close its sessions first (1)");
    nano_ids(&n, 1, ids, 70);
    OK(bitnet_session_append(s, ids, 70, NULL, NULL, &err));
    bitnet_kv_pool_read(pool, &stats);
    assert_int_equal(stats.n_used, 2);
    bitnet_session_close(s);
    bitnet_kv_pool_close(pool);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generation_is_not_disturbed),
        cmocka_unit_test(a_prompt_is_not_disturbed),
        cmocka_unit_test(a_saved_session_is_not_disturbed),
        cmocka_unit_test(a_step_is_not_disturbed),
        cmocka_unit_test(a_pool_with_sessions_is_not_closed),
    };
    return cmocka_run_group_tests_name("reentry", tests, NULL, NULL);
}
