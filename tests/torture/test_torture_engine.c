/* Every allocation between opening a model and its last token fails once. */
#include "torture/torture.h"

#include <openssl/err.h>
#include <unistd.h>

#include "bitnet_tools.h"

static const char model[] = TEST_SOURCE_DIR "/models/nano.gguf",
                  saved[] = TEST_BINARY_DIR "/torture_session.bin";

typedef struct run {
    int n_threads;
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    bitnet_session *session;
    bitnet_sampler *sampler;
} run;

static bitnet_status open_all(run *r, bitnet_error *err)
{
    bitnet_runtime_options ro;
    bitnet_runtime_options_init(&ro);
    ro.n_threads = r->n_threads;
    ro.fake_gpu = "none"; /* no driver of this machine is loaded: only our own allocations count */
    bitnet_session_options so;
    bitnet_session_options_init(&so);
    so.n_ctx = 64;
    so.n_batch = 8;
    bitnet_status st = bitnet_runtime_open(&ro, &r->runtime, err);
    if (st == BITNET_OK)
        st = bitnet_engine_open(r->runtime, model, NULL, &r->engine, err);
    if (st == BITNET_OK)
        st = bitnet_session_open(r->engine, &so, &r->session, err);
    if (st == BITNET_OK)
        st = bitnet_sampler_open(NULL, bitnet_engine_model(r->engine)->n_vocab, &r->sampler, err);
    return st;
}

static void close_all(run *r)
{
    bitnet_sampler_close(r->sampler);
    bitnet_session_close(r->session);
    bitnet_engine_close(r->engine);
    bitnet_runtime_close(r->runtime);
}

static bool on_text(void *user, const char *text, size_t n, int32_t id)
{
    (void)text;
    (void)id;
    *(size_t *)user += n;
    return true;
}

static bitnet_status speak(run *r, bitnet_error *err)
{
    const bitnet_message talk[] = {{"user", "Tell me a story about a cat."}};
    char text[512];
    int32_t ids[128];
    size_t n_bytes, n_ids, n_shown = 0;
    const char *stops[] = {"never", "ever"};
    bitnet_generate_options go;
    bitnet_generate_options_init(&go);
    go.max_tokens = 8;
    go.stops = stops;
    go.n_stops = 2;
    go.on_text = on_text;
    go.user = &n_shown;
    static const uint32_t some[1 << 13] = {0, ~0u, 7}; /* words for any vocabulary */
    bitnet_constraints c;
    bitnet_constraints_init(&c);
    c.allowed = some;
    c.biases = (const bitnet_bias[]){{40, 2}};
    c.n_biases = 1;
    bitnet_status st =
        bitnet_chat_render(r->engine, NULL, talk, 1, true, text, sizeof text, &n_bytes, err);
    if (st == BITNET_OK)
        st = bitnet_tokenize(r->engine, text, n_bytes, BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, ids,
                             128, &n_ids, err);
    if (st == BITNET_OK)
        st = bitnet_detokenize(r->engine, ids, n_ids, BITNET_TEXT_SPECIAL, text, sizeof text,
                               &n_bytes, err);
    if (st == BITNET_OK)
        st = bitnet_sampler_constrain(r->sampler, &c, err);
    if (st == BITNET_OK)
        st = bitnet_generate(r->session, r->sampler, ids, n_ids, &go, NULL, err);
    return st;
}

static bitnet_status stream(run *r, bitnet_error *err)
{
    static const char *const stops[] = {"never", "ever"};
    bitnet_stream_options o;
    bitnet_stream *s = NULL;
    const char *text;
    size_t n_bytes;
    bitnet_stream_options_init(&o);
    o.stops = stops;
    o.n_stops = 2;
    bitnet_status st = bitnet_stream_open(r->engine, &o, &s, err);
    for (int32_t id = 0; st == BITNET_OK && id < 300; id++)
        st = bitnet_stream_push(s, id, &text, &n_bytes, NULL, err);
    bitnet_stream_close(s);
    return st;
}

static bitnet_status tell(void *user, bitnet_error *err)
{
    run r = {.n_threads = *(int *)user};
    bitnet_status st = open_all(&r, err);
    if (st == BITNET_OK)
        st = speak(&r, err);
    if (st == BITNET_OK)
        st = stream(&r, err);
    close_all(&r);
    return st;
}

/* The calls that use the crypto library, on an engine opened while nothing fails. */
static bitnet_status files(void *user, bitnet_error *err)
{
    run *r = user;
    char hex[65];
    bitnet_inspect *in = NULL;
    bitnet_inspect_kv kv;
    bitnet_status st = bitnet_session_save(r->session, saved, err);
    if (st == BITNET_OK)
        st = bitnet_session_load(r->session, saved, err);
    if (st == BITNET_OK)
        st = bitnet_file_sha256(saved, hex, err);
    if (st == BITNET_OK)
        st = bitnet_inspect_open(model, &in, err);
    for (size_t i = 0; st == BITNET_OK && i < bitnet_inspect_n_kv(in); i++)
        if (!bitnet_inspect_kv_at(in, i, &kv)) {
            st = err->status = BITNET_MEMORY;
            snprintf(err->message, sizeof err->message, "no text for key %zu", i);
        }
    bitnet_inspect_close(in);
    return st;
}

/* Sessions that share blocks: forks in a pool, one that writes into a shared block, a copy without
 * a pool. */
static bitnet_status share(void *user, bitnet_error *err)
{
    run *r = user;
    int32_t ids[40];
    bitnet_kv_pool *pool = NULL;
    bitnet_session *s[3] = {NULL};
    bitnet_kv_pool_options po;
    bitnet_session_options so;
    bitnet_kv_pool_options_init(&po);
    bitnet_session_options_init(&so);
    po.max_bytes = 1 << 20;
    so.n_ctx = 64;
    so.n_batch = 8;
    for (int i = 0; i < 40; i++)
        ids[i] = i;
    bitnet_status st = bitnet_kv_pool_open(r->engine, &po, &pool, err);
    so.kv_pool = pool;
    if (st == BITNET_OK)
        st = bitnet_session_open(r->engine, &so, &s[0], err);
    if (st == BITNET_OK)
        st = bitnet_session_append(s[0], ids, 40, NULL, NULL, err);
    if (st == BITNET_OK)
        st = bitnet_session_fork(s[0], 30, &s[1], err);
    if (st == BITNET_OK)
        st = bitnet_session_append(s[1], ids, 10, NULL, NULL, err);
    if (st == BITNET_OK)
        st = bitnet_session_publish_all(s[0], 7, err);
    if (st == BITNET_OK)
        st = bitnet_session_reuse(s[1], 7, ids, 40, NULL, err);
    if (st == BITNET_OK)
        st = bitnet_session_fork(r->session, 3, &s[2], err);
    for (int i = 0; i < 3; i++)
        bitnet_session_close(s[i]);
    bitnet_kv_pool_close(pool);
    return st;
}

static void need_model(void)
{
    struct stat st;
    if (stat(model, &st) == 0)
        return;
    print_message("%s is missing\n", model);
    skip();
}

static void one_fails(void **state)
{
    (void)state;
    need_model();
    for (int n_threads = 1; n_threads <= 2; n_threads++)
        assert_true(torture(tell, &n_threads, false, 1) > 50);
}

static void all_fail_onward(void **state)
{
    (void)state;
    need_model();
    for (int n_threads = 1; n_threads <= 2; n_threads++)
        torture(tell, &n_threads, true, 1);
}

static void session_files_and_inspection(void **state)
{
    (void)state;
    need_model();
    run r = {.n_threads = 1};
    bitnet_error err = {0};
    if (open_all(&r, &err) != BITNET_OK || speak(&r, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    ERR_clear_error(); /* the crypto library makes a thread's error queue once and keeps it */
    torture(files, &r, false, 1);
    close_all(&r);
    unlink(saved);
}

static void sharing(void **state)
{
    (void)state;
    need_model();
    run r = {.n_threads = 1};
    bitnet_error err = {0};
    if (open_all(&r, &err) != BITNET_OK || speak(&r, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_true(torture(share, &r, false, 1) > 20);
    torture(share, &r, true, 1);
    close_all(&r);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fails), cmocka_unit_test(all_fail_onward),
        cmocka_unit_test(session_files_and_inspection), cmocka_unit_test(sharing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
