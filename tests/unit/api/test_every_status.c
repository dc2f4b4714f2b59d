/* Every status the library can return is provoked once and its message read; all of them have a
 * text. */
#include "unit/engine/nano.h"

#include <math.h>
#include <unistd.h>

#include "format/gguf.h"

static const char path[] = TEST_BINARY_DIR "/status_test.gguf";

static void texts(void **state)
{
    (void)state;
    static const struct {
        bitnet_status status;
        int number;
        const char *text;
    } rows[] = {
        {BITNET_OK, 0, "ok"},
        {BITNET_ERROR, 1, "error"},
        {BITNET_ARGUMENT, 2, "invalid argument"},
        {BITNET_MODEL, 3, "bad or unsupported model"},
        {BITNET_TOKENIZER, 4, "bad or unsupported tokenizer"},
        {BITNET_IO, 5, "input/output error"},
        {BITNET_MEMORY, 6, "out of memory"},
        {BITNET_MISMATCH, 7, "result differs from its reference"},
        {BITNET_SUSPICIOUS, 8, "suspicious weights"},
        {BITNET_PERFORMANCE, 9, "performance gate"},
        {BITNET_MEMORY_GATE, 10, "memory gate"},
        {BITNET_NOT_COMPILED, 11, "not compiled in"},
        {BITNET_NOT_AVAILABLE, 12, "not available on this machine"},
        {BITNET_RECEIPT, 13, "receipt refused"},
        {BITNET_VANISHED, 14, "model file changed while in use"},
        {BITNET_CONTEXT, 15, "context is full"},
        {BITNET_CANCELLED, 16, "cancelled"},
        {BITNET_AGAIN, 17, "not done yet: call again"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(rows[i].status, rows[i].number);
        assert_string_equal(bitnet_status_text(rows[i].status), rows[i].text);
    }
    assert_string_equal(bitnet_status_text((bitnet_status)18), "unknown status");
    assert_string_equal(bitnet_status_text((bitnet_status)-1), "unknown status");
    assert_string_equal(bitnet_version(), BITNET_VERSION);
    assert_int_equal(bitnet_api_version(), BITNET_API_VERSION);
}

static void error(void **state)
{
    (void)state;
    float logits[2] = {NAN, -INFINITY};
    bitnet_sampler *s = NULL;
    int32_t id;
    OK(bitnet_sampler_open(NULL, 2, &s, &err));
    FAILS(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err), BITNET_ERROR,
          "none of the 2 logits is finite");
    bitnet_sampler_close(s);
}

static void argument(void **state)
{
    (void)state;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 5000;
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT,
          "runtime options: n_threads is 5000, must be 0..1024");
}

static void model_io_tokenizer(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_engine *e = NULL;
    FAILS(bitnet_engine_open(n.runtime, "/no/such/model.gguf", NULL, &e, &err), BITNET_IO,
          "/no/such/model.gguf: cannot open: No such file or directory");
    FAILS(bitnet_engine_open(n.runtime, "/", NULL, &e, &err), BITNET_IO, "/: is a directory");
    FAILS(bitnet_engine_open(n.runtime, TEST_SOURCE_DIR "/LICENSE", NULL, &e, &err), BITNET_MODEL,
          TEST_SOURCE_DIR "/LICENSE");
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    bnet_gguf_put_string(w, "general.architecture", "bitnet-b1.58", 12);
    OK(bnet_gguf_begin(w, path, &err));
    OK(bnet_gguf_finish(w, &err));
    bnet_gguf_writer_free(w);
    FAILS(bitnet_engine_open(n.runtime, path, NULL, &e, &err), BITNET_MODEL, path);
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    FAILS(bitnet_engine_open(n.runtime, path, &o, &e, &err), BITNET_TOKENIZER, "tokenizer.ggml.");
    FAILS(bitnet_engine_open(NULL, path, &o, &e, &err), BITNET_ARGUMENT, "must not be NULL");
    assert_null(e);
    unlink(path);
    nano_close(&n);
}

static void memory(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = NULL;
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.kv_type = BITNET_KV_F32;
    o.n_ctx = 1 << 24; /* 32 GiB and more of cache */
    bitnet_session_cost cost;
    OK(bitnet_session_memory(n.engine, &o, &cost, &err));
    if (cost.cache_bytes <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)) {
        print_message(
            "this machine has more memory than the largest session of the nano model wants\n");
        nano_close(&n);
        skip();
    }
    FAILS(bitnet_session_open(n.engine, &o, &s, &err), BITNET_MEMORY,
          "session: a context of 16777216 with batch 512 needs ");
    assert_null(s);
    nano_close(&n);
}

static void not_available(void **state)
{
    (void)state;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
#if defined(__x86_64__)
    o.isa = "neon";
#else
    o.isa = "avx2";
#endif
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_NOT_AVAILABLE, o.isa);
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void context_cancelled(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = nano_session(&n, 2, 0, BITNET_KV_F16);
    int32_t ids[3] = {1, 2, 3};
    FAILS(bitnet_session_append(s, ids, 3, NULL, NULL, &err), BITNET_CONTEXT,
          "3 tokens do not fit behind position 0 of 2; open the session with a larger n_ctx");
    bitnet_session_on_cancel(s, at_once, NULL);
    FAILS(bitnet_session_append(s, ids, 1, NULL, NULL, &err), BITNET_CANCELLED,
          "cancelled at position 0");
    assert_int_equal(bitnet_session_append(s, ids, 1, NULL, NULL, NULL),
                     BITNET_CANCELLED); /* err may be NULL */
    bitnet_session_close(s);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(error),
        cmocka_unit_test(argument),
        cmocka_unit_test(memory),
        cmocka_unit_test(not_available),
        cmocka_unit_test(model_io_tokenizer),
        cmocka_unit_test(context_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
