/* Opening models, the facts about them, their text functions, and several threads on one engine. */
#include "nano.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/file.h"
#include "ops/open.h"

static void facts(void **state)
{
    (void)state;
    nano n = nano_open(2);
    const bitnet_model_info *i = bitnet_engine_model(n.engine);
    assert_int_equal(bitnet_runtime_threads(n.runtime), 2);
    assert_int_equal(i->struct_size, sizeof *i);
    assert_string_equal(i->path, NANO_PATH);
    assert_string_equal(i->activation, "relu2");
    assert_string_equal(i->weight_type, "I2_S");
    assert_string_equal(i->tokenizer, "bpe/llama-3");
    assert_string_equal(i->chat_template, "bitnet");
    assert_int_equal(i->template_match, BITNET_TEMPLATE_EXACT);
    assert_true(strncmp(i->architecture, "bitnet", 6) == 0);
    assert_int_equal(i->n_layers, 2);
    assert_int_equal(i->n_embd, 256);
    assert_int_equal(i->n_ff, 512);
    assert_int_equal(i->n_heads, 4);
    assert_int_equal(i->n_kv_heads, 2);
    assert_int_equal(i->head_dim, 64);
    assert_int_equal(i->n_vocab, 512);
    assert_int_equal(i->n_ctx_train, 256);
    assert_true(i->tied_head);
    assert_true(i->bos_id >= 0 && i->eos_id >= 0);
    struct stat st;
    assert_int_equal(stat(NANO_PATH, &st), 0);
    assert_int_equal(i->n_file_bytes, st.st_size);
    /* per layer q, o 256x256, k, v 256x128, gate, up, down 256x512, norms 3x256 + 512; embedding;
     * last norm */
    assert_int_equal(i->n_params,
                     2 * (2 * 65536 + 2 * 32768 + 3 * 131072 + 3 * 256 + 512) + 512 * 256 + 256);
    assert_true(i->bits_per_weight > 2 && i->bits_per_weight < 8);
    nano_close(&n);
}

static void kernels(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = nano_session(&n, 0, 0, BITNET_KV_F16);
    int32_t id = 1;
    bitnet_kernel_use use[64], again[64];
    size_t before = bitnet_engine_kernels(n.engine, use, 64);
    assert_int_equal(before, 0); /* counted since this engine was opened */
    OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    size_t n_kernels = bitnet_engine_kernels(n.engine, use, 64);
    assert_true(n_kernels >= 5 && n_kernels <= 64);
    assert_int_equal(bitnet_engine_kernels(n.engine, NULL, 0), n_kernels);
    OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    assert_int_equal(bitnet_engine_kernels(n.engine, again, 64), n_kernels);
    for (size_t i = 0; i < n_kernels; i++) {
        assert_string_equal(use[i].id, again[i].id);
        if (again[i].n_calls != 2 * use[i].n_calls)
            fail_msg("%s: %llu calls after one token, %llu after two", use[i].id,
                     (unsigned long long)use[i].n_calls, (unsigned long long)again[i].n_calls);
        bool listed = false;
        bitnet_kernel_info info;
        for (int k = 0; bnet_backend_kernel_at(k, &info); k++)
            listed = listed || (strcmp(info.id, use[i].id) == 0 && info.available);
        if (!listed)
            fail_msg("%s ran but is not listed as available", use[i].id);
    }
    int b = 0;
    assert_string_equal(bitnet_backend_list(b++), "cpu");
#ifdef BITNET_HAVE_CUDA
    assert_string_equal(bitnet_backend_list(b++), "cuda");
#endif
    assert_string_equal(bitnet_backend_list(b++), "host");
    assert_null(bitnet_backend_list(b));
    bitnet_session_close(s);
    nano_close(&n);
}

static void from_memory(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *bytes;
    size_t n_bytes;
    OK(bnet_read_file(NANO_PATH, (size_t)1 << 30, &bytes, &n_bytes, &err));
    int32_t ids[20];
    nano_ids(&n, 8, ids, 20);
    bitnet_session *a = nano_session(&n, 0, 0, BITNET_KV_F16);
    OK(bitnet_session_append(a, ids, 20, NULL, NULL, &err));
    for (size_t shift = 0; shift < 2; shift++) { /* any alignment works */
        char *copy = malloc(n_bytes + 1);
        memcpy(copy + shift, bytes, n_bytes);
        nano m = {.runtime = n.runtime, .n_vocab = n.n_vocab};
        OK(bitnet_engine_open_memory(n.runtime, copy + shift, n_bytes, NULL, &m.engine, &err));
        assert_string_equal(bitnet_engine_model(m.engine)->path, "<memory>");
        bitnet_session *b = nano_session(&m, 0, 0, BITNET_KV_F16);
        OK(bitnet_session_append(b, ids, 20, NULL, NULL, &err));
        assert_same_logits(&n, bitnet_session_logits(a), bitnet_session_logits(b),
                           "file and memory");
        bitnet_session_close(b);
        bitnet_engine_close(m.engine);
        free(copy);
    }
    bitnet_engine *e = NULL;
    FAILS(bitnet_engine_open_memory(n.runtime, bytes, 100, NULL, &e, &err), BITNET_MODEL,
          "<memory>");
    bnet_free(bytes);
    bitnet_session_close(a);
    nano_close(&n);
}

static void vocab_only(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    bitnet_engine *e = NULL;
    bitnet_session *s = NULL;
    int32_t a[64], b[64];
    size_t n_a, n_b;
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &o, &e, &err));
    FAILS(bitnet_session_open(e, NULL, &s, &err), BITNET_ARGUMENT, "opened with vocab_only");
    bitnet_session_cost cost;
    FAILS(bitnet_session_memory(e, NULL, &cost, &err), BITNET_ARGUMENT, "opened with vocab_only");
    OK(bitnet_tokenize(n.engine, "Hello there", 11, BITNET_TEXT_BOS, a, 64, &n_a, &err));
    OK(bitnet_tokenize(e, "Hello there", 11, BITNET_TEXT_BOS, b, 64, &n_b, &err));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a * sizeof *a);
    assert_int_equal(bitnet_engine_kernels(e, NULL, 0), 0);
    assert_int_equal(bitnet_engine_model(e)->n_vocab, 512);
    bitnet_engine_close(e);
    o.i2s_layout = (bitnet_i2s_layout)3;
    FAILS(bitnet_engine_open(n.runtime, NANO_PATH, &o, &e, &err), BITNET_ARGUMENT,
          "i2s_layout is 3, must be 0..2");
    bitnet_engine_close(NULL);
    nano_close(&n);
}

static void text(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[64], bos = bitnet_engine_model(n.engine)->bos_id;
    char out[256];
    size_t n_ids = 0, n_bytes = 0;
    static const char sentence[] = "A cat <|eot_id|> sat.";
    OK(bitnet_tokenize(n.engine, sentence, sizeof sentence - 1,
                       BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, ids, 64, &n_ids, &err));
    assert_int_equal(ids[0], bos);
    size_t full = n_ids;
    FAILS(bitnet_tokenize(n.engine, sentence, sizeof sentence - 1,
                          BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, NULL, 0, &n_ids, &err),
          BITNET_ARGUMENT, "the buffer holds 0");
    assert_int_equal(n_ids, full);
    int32_t two[3] = {0, 0, -9};
    FAILS(bitnet_tokenize(n.engine, sentence, sizeof sentence - 1,
                          BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, two, 2, &n_ids, &err),
          BITNET_ARGUMENT, "call again");
    assert_int_equal(two[1], ids[1]);
    assert_int_equal(two[2], -9);
    OK(bitnet_detokenize(n.engine, ids, full, 0, out, sizeof out, &n_bytes, &err));
    assert_int_equal(n_bytes, 11); /* specials have no text */
    assert_memory_equal(out, "A cat  sat.", 11);
    OK(bitnet_detokenize(n.engine, ids + 1, full - 1, BITNET_TEXT_SPECIAL, out, sizeof out,
                         &n_bytes, &err));
    assert_int_equal(n_bytes, sizeof sentence - 1);
    assert_memory_equal(out, sentence, n_bytes);
    FAILS(bitnet_detokenize(n.engine, ids, full, 0, out, 3, &n_bytes, &err), BITNET_ARGUMENT,
          "the buffer holds 3");
    ids[0] = 512;
    FAILS(bitnet_detokenize(n.engine, ids, 1, 0, out, sizeof out, &n_bytes, &err), BITNET_ARGUMENT,
          "id 512 at index 0 is outside the vocabulary 0..511");
    OK(bitnet_tokenize(n.engine, "", 0, 0, ids, 64, &n_ids, &err));
    assert_int_equal(n_ids, 0);
    assert_null(bitnet_token_bytes(n.engine, -1, &n_bytes));
    assert_null(bitnet_token_bytes(n.engine, 512, NULL));
    assert_non_null(bitnet_token_bytes(n.engine, bos, &n_bytes));
    assert_true(bitnet_token_special(n.engine, bos));
    assert_true(bitnet_token_stops(n.engine, bitnet_engine_model(n.engine)->eos_id));
    assert_false(bitnet_token_stops(n.engine, bos));
    nano_close(&n);
}

/* ---- runtime ---- */

static void runtime_options(void **state)
{
    (void)state;
    bitnet_runtime_options o;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = -1;
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT, "n_threads is -1, must be 0..1024");
    o.n_threads = 1;
    o.isa = "quantum";
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT, "quantum");
    o.isa = "scalar";
    OK(bitnet_runtime_open(&o, &r, &err));
    bitnet_runtime_close(r);
    OK(bitnet_runtime_open(NULL, &r, &err));
    assert_true(bitnet_runtime_threads(r) >= 1);
    bitnet_runtime_close(r);
    bitnet_runtime_close(NULL);
    o.struct_size = 5000;
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT,
          "runtime options: struct_size is 5000");
}

/* A thread that computes may ask for its place among pinned ones, and stays where it is otherwise.
 */
static void callers_are_pinned_when_they_ask(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int pin = BITNET_PIN_ON; pin <= BITNET_PIN_OFF; pin++) {
        bool pinned = pin == BITNET_PIN_ON && CPU_COUNT(&before) > 1;
        bitnet_runtime_options o;
        bitnet_runtime *r;
        bitnet_engine *e;
        bitnet_runtime_options_init(&o);
        o.device = "cpu";
        o.n_threads = 2;
        o.pin = (bitnet_pin)pin;
        OK(bitnet_runtime_open(&o, &r, &err));
        OK(bitnet_engine_open(r, NANO_PATH, NULL, &e, &err));
        assert_int_equal(bitnet_engine_pin_caller(e), pinned);
        bitnet_engine_close(e);
        bitnet_runtime_close(r);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_int_equal(CPU_COUNT(&after), pinned ? 1 : CPU_COUNT(&before));
        assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    }
}

static void count_warnings(void *user, bitnet_log_level level, const char *module,
                           const char *message)
{
    assert_null(strchr(message, '\n'));
    if (level == BITNET_LOG_WARN && strcmp(module, "session") == 0 &&
        strstr(message, "n_ctx 300 is beyond the 256"))
        ++*(int *)user;
}

static void a_longer_context_warns(void **state)
{
    (void)state;
    nano n = nano_open(1);
    nano_close(&n);
    int n_warnings = 0;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.log = count_warnings;
    o.log_user = &n_warnings;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    bitnet_session *s = nano_session(&n, 300, 0, BITNET_KV_F16);
    assert_int_equal(n_warnings, 1);
    bitnet_session_close(s);
    nano_close(&n);
}

/* The scalar kernels and the best ones agree bit for bit. */
static void isa_changes_no_bit(void **state)
{
    (void)state;
    nano best = nano_open(1), plain = {.n_vocab = best.n_vocab};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.isa = "scalar";
    OK(bitnet_runtime_open(&o, &plain.runtime, &err));
    OK(bitnet_engine_open(plain.runtime, NANO_PATH, NULL, &plain.engine, &err));
    int32_t ids[100];
    nano_ids(&best, 12, ids, 100);
    bitnet_session *a = nano_session(&best, 0, 0, BITNET_KV_F16),
                   *b = nano_session(&plain, 0, 0, BITNET_KV_F16);
    OK(bitnet_session_append(a, ids, 100, NULL, NULL, &err));
    OK(bitnet_session_append(b, ids, 100, NULL, NULL, &err));
    assert_same_logits(&best, bitnet_session_logits(a), bitnet_session_logits(b),
                       "scalar and best");
    bitnet_session_close(a);
    bitnet_session_close(b);
    nano_close(&plain);
    nano_close(&best);
}

/* ---- threads ---- */

enum { WORKERS = 4, STEPS = 40 };

typedef struct worker {
    const nano *n;
    int32_t ids[STEPS];
    bool ok;
} worker;

static void *work(void *user)
{
    worker *w = user;
    bitnet_session *s = NULL;
    bitnet_sampler *pick = NULL;
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    size_t n_ids;
    int32_t ids[32];
    w->ok = bitnet_session_open(w->n->engine, NULL, &s, NULL) == BITNET_OK &&
            bitnet_sampler_open(&o, w->n->n_vocab, &pick, NULL) == BITNET_OK &&
            bitnet_tokenize(w->n->engine, "One day", 7, BITNET_TEXT_BOS, ids, 32, &n_ids, NULL) ==
                BITNET_OK &&
            bitnet_session_append(s, ids, n_ids, NULL, NULL, NULL) == BITNET_OK;
    for (int i = 0; w->ok && i < STEPS; i++)
        w->ok = bitnet_sampler_pick(pick, bitnet_session_logits(s), NULL, 0, &w->ids[i], NULL) ==
                    BITNET_OK &&
                bitnet_session_append(s, &w->ids[i], 1, NULL, NULL, NULL) == BITNET_OK;
    bitnet_sampler_close(pick);
    bitnet_session_close(s);
    return NULL;
}

static void one_engine_many_threads(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        nano n = nano_open(n_threads);
        worker w[WORKERS];
        pthread_t threads[WORKERS];
        for (int i = 0; i < WORKERS; i++) {
            w[i] = (worker){.n = &n};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
        }
        for (int i = 0; i < WORKERS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < WORKERS; i++) {
            assert_true(w[i].ok);
            assert_memory_equal(w[i].ids, w[0].ids, sizeof w[0].ids);
        }
        nano_close(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts),
        cmocka_unit_test(kernels),
        cmocka_unit_test(from_memory),
        cmocka_unit_test(vocab_only),
        cmocka_unit_test(text),
        cmocka_unit_test(runtime_options),
        cmocka_unit_test(callers_are_pinned_when_they_ask),
        cmocka_unit_test(a_longer_context_warns),
        cmocka_unit_test(isa_changes_no_bit),
        cmocka_unit_test(one_engine_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
