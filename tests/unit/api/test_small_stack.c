/* test_small_stack.c - every public function works on a thread with a stack of 64 KB, as servers
 * and language runtimes make them: each group of calls below runs on such a thread, below which
 * lies a page that nobody may touch. The last test reads the headers, so that a new function cannot
 * be forgotten here. What a group used of its stack is printed. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/engine/nano.h"

#include "bitnet_check.h"
#include "bitnet_extras.h"
#include "bitnet_tools.h"

#define STORY_PATH TEST_SOURCE_DIR "/models/story.gguf"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 1 << 20 }; /* frames are several times as large: only that all of it works */
#else
enum { STACK = 64 << 10 };
#endif

enum { IDS = 100, TEXT = 1 << 20 };

/* What the groups share; large things lie here and not on the stack that is measured. */
static struct {
    bitnet_runtime *runtime;
    bitnet_engine *engine, *story;
    bitnet_error err;
    int n_failed;
    int32_t ids[IDS];
    char text[TEXT], path[256];
    size_t n, n_bytes;
    float values[4096], other[4096];
    uint8_t bytes[16384];
} t;

/* Assertions of cmocka jump to its own thread: here a failure is only counted. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("line %d: %s (%s)\n", __LINE__, #condition, t.err.message);                \
            t.n_failed++;                                                                          \
        }                                                                                          \
    } while (0)
#define FINE(call)   CHECK((call) == BITNET_OK)
#define IS(call, st) CHECK((call) == (st))

static const char *file(const char *name)
{
    snprintf(t.path, sizeof t.path, "%s/small_stack.%d.%s", TEST_BINARY_DIR, (int)getpid(), name);
    return t.path;
}

/* ---- the groups ---- */

static void opening(void)
{
    static bitnet_runtime_options r;
    static bitnet_engine_options e;
    bitnet_runtime_options_init(&r);
    r.n_threads = 2;
    r.statistics = true;
    FINE(bitnet_runtime_open(&r, &t.runtime, &t.err));
    CHECK(bitnet_runtime_threads(t.runtime) == 2);
    CHECK(bitnet_runtime_summary(t.runtime) != NULL);
    bitnet_engine_options_init(&e);
    FINE(bitnet_engine_open(t.runtime, STORY_PATH, &e, &t.story, &t.err));
    FINE(bitnet_engine_open(t.runtime, NANO_PATH, NULL, &t.engine, &t.err));
    CHECK(bitnet_engine_model(t.engine)->n_vocab > 0);
    (void)bitnet_engine_pin_caller(t.engine);
}

static void words(void)
{
    CHECK(bitnet_status_text(BITNET_OK) && bitnet_version() && bitnet_api_version());
    CHECK(bitnet_backend_list(0) && bitnet_precision_text(BITNET_PRECISION_FP32));
    CHECK(bitnet_template_list(0) && bitnet_finish_text(BITNET_FINISH_LENGTH));
    CHECK(bitnet_architecture_list(0) && bitnet_isa_at(0));
    int gate;
    const char *says;
    CHECK(bitnet_gate_at(0, &gate, &says));
    static bitnet_kernel_info k;
    static bitnet_synthetic_info s;
    CHECK(bitnet_kernel_at(0, &k) && bitnet_synthetic_at(0, &s));
    (void)bitnet_cpu_is_virtual();
    (void)bitnet_cuda_image(0);
}

static void memory_engine(void)
{
    FILE *f = fopen(NANO_PATH, "rb");
    size_t n = 0, cap = 64 << 20;
    void *data = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bitnet_engine *e = NULL;
    if (f && data != MAP_FAILED)
        n = fread(data, 1, cap, f);
    CHECK(f && n > 0);
    FINE(bitnet_engine_open_memory(t.runtime, data, n, NULL, &e, &t.err));
    bitnet_engine_close(e);
    munmap(data, cap);
    fclose(f);
}

static void on_file(void *user, const bitnet_cache_file *f)
{
    (void)user;
    (void)f;
}

/* Packed weights kept and found again; limits; addresses. */
static void kept(void)
{
    static bitnet_engine_options o;
    bitnet_limit limit;
    bitnet_limit_set(&limit, 1e9);
    bitnet_limit_end(&limit);
    CHECK(bitnet_limit_reached(&limit));
    (void)bitnet_engine_map(t.engine, &limit);
    bitnet_engine_options_init(&o);
    o.cache_dir = file("cache");
    for (int i = 0; i < 2; i++) {
        bitnet_engine *e = NULL;
        FINE(bitnet_engine_open(t.runtime, STORY_PATH, &o, &e, &t.err));
        bitnet_engine_close(e);
    }
    FINE(bitnet_cache_list(t.path, on_file, NULL, &t.err));
    FINE(bitnet_cache_clear(t.path, on_file, NULL, &t.err));
    rmdir(t.path);
}

/* Templates that go as deep as they may: brackets in statements, macros in macros, lists in lists.
 */
static void deep_template(void)
{
    static const char *const parts[] = {"", "", "(", ")", "[", "]"};
    static char source[4096];
    for (int kind = 0; kind < 3; kind++) {
        int n = kind == 0 ? 30 : 34;
        char *at = source, *end = source + sizeof source;
        at += snprintf(at, (size_t)(end - at), "{%% macro f(n) %%}{{ f(n - 1) if n else ");
        for (int i = 0; i < n && kind; i++)
            at += snprintf(at, (size_t)(end - at), "%s", parts[2 * kind]);
        at += snprintf(at, (size_t)(end - at), "1");
        for (int i = 0; i < n && kind; i++)
            at += snprintf(at, (size_t)(end - at), "%s", parts[2 * kind + 1]);
        at += snprintf(at, (size_t)(end - at), " }}{%% endmacro %%}");
        for (int i = 0; i < n && !kind; i++)
            at += snprintf(at, (size_t)(end - at), "{%% for i in [0] %%}");
        at += snprintf(at, (size_t)(end - at), "{{ f(23) | tojson }}");
        for (int i = 0; i < n && !kind; i++)
            at += snprintf(at, (size_t)(end - at), "{%% endfor %%}");
        (void)bitnet_template_render(source, strlen(source), "{}", 2, t.text, TEXT, &t.n_bytes,
                                     &t.err);
        CHECK(t.n_bytes || strstr(t.err.message, "nest"));
    }
}

/* A schema as deep as JSON may be, by values and by schemas. */
static void deep_schema(void)
{
    static const char *const parts[][3] = {{"{\"const\": ", "[", "]"},
                                           {"{\"items\": ", "{\"items\": ", "}"}};
    static char source[4096];
    for (int kind = 0; kind < 2; kind++) {
        size_t n = (size_t)snprintf(source, sizeof source, "%s", parts[kind][0]);
        for (int i = 0; i < 62; i++)
            n += (size_t)snprintf(source + n, sizeof source - n, "%s", parts[kind][1]);
        n += (size_t)snprintf(source + n, sizeof source - n, "%s", kind ? "true" : "1");
        for (int i = 0; i < 62; i++)
            n += (size_t)snprintf(source + n, sizeof source - n, "%s", parts[kind][2]);
        bitnet_grammar *g = NULL;
        n += (size_t)snprintf(source + n, sizeof source - n, "}");
        FINE(bitnet_grammar_open(t.story, BITNET_GRAMMAR_JSON_SCHEMA, source, n, &g, &t.err));
        bitnet_grammar_close(g);
    }
}

/* Groups as deep as they may be, and a mask. */
static void deep_grammar(void)
{
    static char source[4096];
    static uint32_t mask[(1 << 18) / 32];
    size_t n_words = ((size_t)bitnet_engine_model(t.story)->n_vocab + 31) / 32;
    bitnet_grammar *g = NULL;
    bitnet_matcher *m = NULL, *fork = NULL;
    bitnet_sampler *sampler = NULL;
    size_t n = (size_t)snprintf(source, sizeof source, "root ::= ");
    memset(source + n, '(', 64);
    n += 64;
    n += (size_t)snprintf(source + n, sizeof source - n, "[a-z]{1,9}");
    memset(source + n, ')', 64);
    FINE(bitnet_grammar_open(t.story, BITNET_GRAMMAR_GBNF, source, n + 64, &g, &t.err));
    FINE(bitnet_matcher_open(g, true, &m, &t.err));
    FINE(bitnet_matcher_mask(m, mask, n_words, &t.err));
    FINE(bitnet_sampler_open(NULL, bitnet_engine_model(t.story)->n_vocab, &sampler, &t.err));
    FINE(bitnet_matcher_constrain(m, sampler, NULL, 0, &t.err));
    FINE(bitnet_matcher_fork(m, &fork, &t.err));
    FINE(bitnet_tokenize(t.story, "fox", 3, 0, t.ids, IDS, &t.n_bytes, &t.err));
    FINE(bitnet_matcher_accept(m, t.ids[0], &t.err));
    deep_schema();
    CHECK(bitnet_matcher_done(m) && !bitnet_matcher_done(fork));
    bitnet_sampler_close(sampler);
    bitnet_matcher_close(fork);
    bitnet_matcher_close(m);
    bitnet_grammar_close(g);
}

#define DEEP10  "[[[[[[[[[["
#define DEEP    DEEP10 DEEP10 DEEP10 DEEP10 DEEP10 SHALLOW SHALLOW SHALLOW SHALLOW SHALLOW
#define SHALLOW "]]]]]]]]]]"

static void text(void)
{
    static const char sentence[] = "Once upon a time, the fox's 123 friends didn't go home...";
    static bitnet_stream_options o;
    static const bitnet_message m[] = {{"system", "Be kind."}, {"user", "Hello <there>"}};
    bitnet_stream *s = NULL;
    const char *piece;
    size_t n_ids = 0;
    bool stopped;
    FINE(bitnet_tokenize(t.story, sentence, strlen(sentence), 0, t.ids, IDS, &n_ids, &t.err));
    FINE(bitnet_detokenize(t.story, t.ids, n_ids, 0, t.text, TEXT, &t.n_bytes, &t.err));
    CHECK(t.n_bytes >= strlen(sentence));
    CHECK(bitnet_token_bytes(t.story, t.ids[0], &t.n_bytes) != NULL);
    (void)bitnet_token_special(t.story, t.ids[0]);
    (void)bitnet_token_stops(t.story, t.ids[0]);
    FINE(bitnet_chat_render(t.story, NULL, m, 2, true, t.text, TEXT, &t.n_bytes, &t.err));
    static const char request[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello <there>\",\"more\":" DEEP "}]}";
    static bitnet_chat_features f;
    bitnet_chat_features_init(&f);
    FINE(bitnet_chat_features_get(t.story, "file", &f, &t.err));
    FINE(bitnet_chat_render_json(t.story, "file", request, strlen(request), t.text, TEXT,
                                 &t.n_bytes, &t.err));
    deep_template();
    deep_grammar();
    bitnet_stream_options_init(&o);
    FINE(bitnet_stream_open(t.story, &o, &s, &t.err));
    for (size_t i = 0; i < n_ids; i++)
        FINE(bitnet_stream_push(s, t.ids[i], &piece, &t.n_bytes, &stopped, &t.err));
    FINE(bitnet_stream_finish(s, &piece, &t.n_bytes, &t.err));
    bitnet_stream_reset(s);
    bitnet_stream_close(s);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

static bool told(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    return done <= total;
}

static bool take_bytes(void *user, const void *bytes, size_t n_bytes)
{
    (void)user;
    bool fits = t.n_bytes + n_bytes <= sizeof t.text;
    if (fits)
        memcpy(t.text + t.n_bytes, bytes, n_bytes);
    t.n_bytes += fits ? n_bytes : 0;
    return true;
}

/* A prompt long enough for every kernel of a pass, with one type of cache. */
static void one_session(bitnet_engine *e, bitnet_kv_type type)
{
    static bitnet_session_options o;
    static bitnet_session_cost cost;
    static bitnet_session_kernel used[64];
    bitnet_session *s = NULL, *f = NULL;
    bitnet_session_options_init(&o);
    o.n_ctx = 256;
    o.kv_type = type;
    for (int i = 0; i < IDS; i++)
        t.ids[i] = i % 200;
    FINE(bitnet_session_memory(e, &o, &cost, &t.err));
    FINE(bitnet_session_open(e, &o, &s, &t.err));
    bitnet_session_on_cancel(s, never, NULL);
    bitnet_session_on_progress(s, told, NULL);
    FINE(bitnet_session_append(s, t.ids, IDS, NULL, NULL, &t.err));
    FINE(bitnet_session_append(s, t.ids, 1, NULL, NULL, &t.err));
    CHECK(bitnet_session_logits(s) && bitnet_session_tokens(s));
    CHECK(bitnet_session_position(s) == IDS + 1 && bitnet_session_context(s) == 256);
    CHECK(bitnet_session_cached(s) <= IDS + 1);
    FINE(bitnet_session_fork(s, 64, &f, &t.err));
    FINE(bitnet_session_sync(f, t.ids, IDS, &t.n, &t.err));
    FINE(bitnet_session_rewind(f, 10, &t.err));
    CHECK(bitnet_session_kernels(s, used, 64) > 0);
    bitnet_session_close(f);
    bitnet_session_close(s);
}

static void sessions(void)
{
    one_session(t.story, BITNET_KV_F16);
    one_session(t.story, BITNET_KV_F32);
    one_session(t.story, BITNET_KV_INT8);
    one_session(t.engine, BITNET_KV_F16);
}

static bitnet_session *nano_timeline(int n_ctx, bitnet_kv_pool *pool)
{
    static bitnet_session_options o;
    bitnet_session *s = NULL;
    bitnet_session_options_init(&o);
    o.n_ctx = n_ctx;
    o.kv_pool = pool;
    FINE(bitnet_session_open(t.engine, &o, &s, &t.err));
    return s;
}

static void session_files(void)
{
    bitnet_session *s = nano_timeline(128, NULL);
    t.n_bytes = 0;
    FINE(bitnet_session_append(s, t.ids, 4, NULL, NULL, &t.err));
    FINE(bitnet_session_save(s, file("session"), &t.err));
    FINE(bitnet_session_load(s, t.path, &t.err));
    unlink(t.path);
    FINE(bitnet_session_save_to(s, take_bytes, NULL, &t.err));
    FINE(bitnet_session_load_memory(s, t.text, t.n_bytes, &t.err));
    bitnet_session_close(s);
}

static void pools(void)
{
    static bitnet_kv_pool_options o;
    static bitnet_kv_pool_stats stats;
    bitnet_kv_pool *pool = NULL;
    bitnet_kv_pool_options_init(&o);
    o.max_bytes = 8 << 20;
    o.max_sequence = 256;
    FINE(bitnet_kv_pool_open(t.engine, &o, &pool, &t.err));
    bitnet_session *a = nano_timeline(256, pool), *b = nano_timeline(256, pool);
    FINE(bitnet_session_append(a, t.ids, IDS, NULL, NULL, &t.err));
    FINE(bitnet_session_publish(a, 1, &t.err));
    FINE(bitnet_session_publish_all(a, 1, &t.err));
    FINE(bitnet_session_reuse(b, 1, t.ids, IDS, &t.n, &t.err));
    CHECK(t.n > 0);
    bitnet_kv_pool_read(pool, &stats);
    bitnet_session_close(a);
    bitnet_session_close(b);
    bitnet_kv_pool_close(pool);
}

static bool on_text(void *user, const char *bytes, size_t n_bytes, int32_t id)
{
    (void)user;
    (void)bytes;
    (void)n_bytes;
    return id >= -1;
}

static void generating(void)
{
    static bitnet_sampler_options o;
    static bitnet_sampler_state state;
    static bitnet_constraints c;
    static bitnet_generate_options g;
    static bitnet_generate_result result;
    static bitnet_score_result score;
    static bitnet_logprob top[BITNET_LOGPROBS_MAX];
    int n_vocab = bitnet_engine_model(t.engine)->n_vocab;
    bitnet_session *s = nano_timeline(256, NULL);
    bitnet_sampler *p = NULL;
    int32_t id;
    bitnet_sampler_options_init(&o);
    FINE(bitnet_sampler_open(&o, n_vocab, &p, &t.err));
    bitnet_constraints_init(&c);
    FINE(bitnet_sampler_constrain(p, &c, &t.err));
    bitnet_sampler_save(p, &state);
    bitnet_sampler_restore(p, &state);
    bitnet_generate_options_init(&g);
    g.max_tokens = 8;
    g.ignore_eos = true;
    g.on_text = on_text;
    FINE(bitnet_generate(s, p, t.ids, 5, &g, &result, &t.err));
    FINE(bitnet_session_append(s, t.ids, 1, NULL, NULL, &t.err));
    const float *logits = bitnet_session_logits(s);
    FINE(bitnet_sampler_pick(p, logits, t.ids, 4, &id, &t.err));
    size_t n_top = n_vocab < BITNET_LOGPROBS_MAX ? (size_t)n_vocab : BITNET_LOGPROBS_MAX;
    FINE(bitnet_logprobs(logits, n_vocab, NULL, 0, top, n_top, &t.err));
    FINE(bitnet_score(s, t.ids, 40, 16, &score, &t.err));
    bitnet_sampler_close(p);
    bitnet_session_close(s);
}

static void batches(void)
{
    static bitnet_batch_options o;
    static bitnet_batch_item items[2];
    static bitnet_logprob top[8];
    bitnet_session *s[2] = {nano_timeline(128, NULL), nano_timeline(128, NULL)};
    bitnet_batch *b = NULL;
    bitnet_sampler *p = NULL;
    bitnet_batch_options_init(&o);
    FINE(bitnet_batch_open(t.engine, &o, &b, &t.err));
    FINE(bitnet_sampler_open(NULL, bitnet_engine_model(t.engine)->n_vocab, &p, &t.err));
    CHECK(bitnet_batch_tokens(b) > 0);
    for (int i = 0; i < 2; i++) {
        bitnet_batch_item_init(&items[i]);
        items[i].session = s[i];
        items[i].ids = t.ids;
        items[i].n_ids = 5;
        items[i].sampler = p;
        items[i].top = i ? top : NULL;
        items[i].n_top = i ? 8 : 0;
    }
    FINE(bitnet_batch_step(b, items, 2, &t.err));
    bitnet_batch_close(b);
    bitnet_sampler_close(p);
    bitnet_session_close(s[0]);
    bitnet_session_close(s[1]);
}

static void statistics(void)
{
    static bitnet_stats stats;
    static bitnet_memory_use use;
    static bitnet_kernel_use used[64];
    static bitnet_health health;
    bitnet_stats_init(&stats);
    FINE(bitnet_engine_warmup(t.engine, NULL, &t.err));
    CHECK(bitnet_engine_kernels(t.engine, used, 64) > 0);
    FINE(bitnet_engine_stats(t.engine, &stats, &t.err));
    CHECK(bitnet_stats_summary(&stats, t.text, TEXT) > 0);
    (void)bitnet_stats_gpu_effective(&stats);
    bitnet_engine_stats_reset(t.engine);
    CHECK(bitnet_engine_fallbacks(t.engine) == 0);
    CHECK(bitnet_engine_token_bytes(t.engine) && bitnet_engine_token_ops(t.engine));
    bitnet_memory_use_init(&use);
    IS(bitnet_engine_memory_use(t.engine, &use, &t.err), BITNET_NOT_AVAILABLE);
    bitnet_health_init(&health);
    FINE(bitnet_health_check(t.engine, &health, &t.err));
    CHECK(bitnet_health_json(&health, t.text, TEXT) > 0);
}

static void devices(void)
{
    static bitnet_devices_options o;
    static bitnet_host_memory memory;
    bitnet_devices *d = NULL;
    bitnet_devices_options_init(&o);
    o.tool_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    FINE(bitnet_devices_open(&o, &d, &t.err));
    CHECK(bitnet_devices_text(d, BITNET_DEVICES_INFO) &&
          bitnet_devices_json(d, BITNET_DEVICES_INFO));
    (void)bitnet_devices_preflight(d);
    (void)bitnet_devices_gpu_compiled(d);
    (void)bitnet_devices_gpu_available(d);
    CHECK(bitnet_devices_supports(d, "cpu"));
    bitnet_devices_close(d);
    FINE(bitnet_host_memory_read(&memory, &t.err));
}

static void inspecting(void)
{
    static bitnet_inspect_kv kv;
    static bitnet_inspect_tensor tensor;
    static bitnet_tensor_stats stats;
    bitnet_inspect *i = NULL;
    FINE(bitnet_inspect_open(NANO_PATH, &i, &t.err));
    CHECK(bitnet_inspect_version(i) && bitnet_inspect_file_bytes(i));
    for (size_t k = 0; k < bitnet_inspect_n_kv(i); k++)
        CHECK(bitnet_inspect_kv_at(i, k, &kv));
    for (size_t k = 0; k < bitnet_inspect_n_tensors(i); k++) {
        CHECK(bitnet_inspect_tensor_at(i, k, &tensor));
        FINE(bitnet_inspect_stats(i, k, &stats, &t.err));
    }
    bitnet_inspect_close(i);
    FINE(bitnet_file_sha256(NANO_PATH, t.text, &t.err));
}

static void on_rate(void *user, const bitnet_kernel_rate *rate)
{
    (void)user;
    (void)rate;
}

static void on_regression(void *user, const bitnet_regression *row)
{
    (void)user;
    (void)row;
}

static void measuring(void)
{
    static bitnet_bench_options o;
    static bitnet_bench_run run;
    static bitnet_kernel_use used[64];
    static bitnet_profile_entry entries[64];
    static bitnet_kernel_time times[8];
    static bitnet_baseline_result result;
    static bitnet_limits limits;
    bitnet_bench *b = NULL;
    bitnet_bench_test test;
    double ms;
    bitnet_bench_options_init(&o);
    o.n_ctx = 64;
    CHECK(bitnet_bench_parse("pp16", &test));
    FINE(bitnet_bench_open(t.engine, &o, &b, &t.err));
    FINE(bitnet_bench_once(b, &test, &run, &t.err));
    bitnet_bench_forget(b);
    FINE(bitnet_bench_profile(b, &test, entries, 64, &t.n, &ms, &t.err));
    CHECK(bitnet_bench_kernels(b, used, 64) > 0 && bitnet_bench_memory(b) > 0);
    IS(bitnet_bench_kernel_times(b, &test, times, 8, &t.n, &ms, &t.err), BITNET_NOT_AVAILABLE);
    bitnet_bench_close(b);
    FINE(bitnet_bench_each_kernel(t.engine, 1, 1, on_rate, NULL, &t.err));
    CHECK(bitnet_summarize(&ms, 1).n == 1);
    bitnet_limits_init(&limits);
    FINE(bitnet_limits_measure(t.runtime, &limits, &t.err));
    IS(bitnet_baseline_compare("{", 1, "{", 1, 0.05, on_regression, NULL, &result, &t.err),
       BITNET_ARGUMENT);
}

static void synthetic(void)
{
    static bitnet_synthetic_info info;
    bitnet_synthetic *s = NULL;
    bitnet_engine *e = NULL;
    const char *least = NULL;
    int n_embd = INT32_MAX;
    for (int i = 0; bitnet_synthetic_at(i, &info); i++)
        if (info.n_embd < n_embd) {
            n_embd = info.n_embd;
            least = info.name;
        }
    FINE(bitnet_synthetic_open(least, NULL, &s, &t.err));
    CHECK(bitnet_synthetic_name(s) != NULL);
    FINE(bitnet_synthetic_engine(s, t.runtime, NULL, &e, &t.err));
    bitnet_engine_close(e);
    IS(bitnet_synthetic_save(s, "/nonexistent/folder/file", &t.err), BITNET_IO);
    bitnet_synthetic_close(s);
}

static void plain_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void on_tuned(void *user, const bitnet_tune_result *result)
{
    (void)user;
    (void)result;
}

static void registry(void)
{
    static bitnet_kernel k;
    static bitnet_kernel_query shapes[16];
    static bitnet_provider_info provider;
    const bitnet_kernel_query q = {
        .op = "linear", .format = "i2s", .dtype = "i8", .m = 1, .n = 256, .k = 256};
    const char *id = NULL;
    bitnet_kernel_init(&k);
    k.id = "add_f32.small_stack";
    k.op = "add";
    k.format = k.dtype = "f32";
    k.fn = (void (*)(void))plain_add;
    FINE(bitnet_kernel_register(t.runtime, &k, &t.err));
    CHECK(bitnet_runtime_has_kernel(t.runtime, NULL, "add", "f32", "f32"));
    FINE(bitnet_runtime_select(t.runtime, &q, &id, &t.err));
    FINE(bitnet_kernels_json(t.runtime, NULL, t.text, TEXT, &t.n_bytes, &t.err));
    CHECK(bitnet_provider_at(t.runtime, 0, &provider) && bitnet_runtime_provider(t.runtime));
    CHECK(bitnet_engine_shapes(t.engine, shapes, 16) > 0);
    FINE(bitnet_runtime_tune(t.runtime, &q, 1, 1, file("tuning"), on_tuned, NULL, &t.err));
    unlink(t.path);
}

static void receipts(void)
{
    static bitnet_receipt_facts f;
    static bitnet_verify_options v;
    bitnet_receipt *r = NULL;
    bitnet_session *s = nano_timeline(64, NULL);
    int gate = 0;
    FINE(bitnet_receipt_open(t.engine, &r, &t.err));
    FINE(bitnet_session_append(s, t.ids, 8, NULL, NULL, &t.err));
    bitnet_receipt_facts_init(&f);
    f.n_generated = 6;
    f.first_token_ms = 20;
    f.decode_ms = 100;
    f.total_ms = 120;
    FINE(bitnet_receipt_digest(r, told, NULL, &t.err));
    FINE(bitnet_receipt_write(r, &f, file("receipt"), &t.err));
    FINE(bitnet_receipt_key(t.text, t.text + 100, &t.err));
    FINE(bitnet_receipt_sign(t.path, t.text, &t.err));
    bitnet_verify_options_init(&v);
    (void)bitnet_receipt_verify(t.path, &v, &gate, &t.err);
    f.session = s;
    FINE(bitnet_receipt_write(r, &f, t.path, &t.err));
    t.n_bytes = 0;
    FINE(bitnet_receipt_write_to(r, &f, take_bytes, NULL, &t.err));
    unlink(t.path);
    bitnet_session_close(s);
    bitnet_receipt_close(r);
}

static void checking(void)
{
    static bitnet_validate_options o;
    static bitnet_comparison c;
    bitnet_validation *v = NULL;
    bitnet_bridge *b = NULL;
    FINE(bitnet_bridge_open(TEST_BINARY_DIR "/bridge/good.so", &b, &t.err));
    FINE(bitnet_bridge_compare_matmul(t.runtime, b, 8, 8, 8, &c, &t.err));
    FINE(bitnet_bridge_compare_quantize(t.runtime, b, BITNET_QTYPE_I2S, 256, &c, &t.err));
    FINE(bitnet_bridge_compare_linear(t.runtime, b, 2, 16, 128, NULL, &c, &t.err));
    CHECK(bitnet_compare_times(1, 1, true, 0).release_gate);
    bitnet_runtime *served = NULL; /* closed before the bridge */
    FINE(bitnet_runtime_open(NULL, &served, &t.err));
    bitnet_status st = bitnet_bridge_serve(served, b, &t.err);
    CHECK(st == BITNET_OK || st == BITNET_NOT_AVAILABLE);
    bitnet_runtime_close(served);
    bitnet_validate_options_init(&o);
    o.parts = BITNET_VALIDATE_ACCURACY | BITNET_VALIDATE_MODEL | BITNET_VALIDATE_BRIDGE;
    o.quick = true;
    o.model_path = NANO_PATH;
    o.bridge = b;
    FINE(bitnet_validate(t.runtime, &o, &v, &t.err));
    FINE(bitnet_validation_json(v, t.text, TEXT, &t.n_bytes, &t.err));
    bitnet_validation_free(v);
    bitnet_bridge_close(b);
    FINE(bitnet_isa_self_test(NULL, &t.err));
}

static void reference_operations(void)
{
    enum { N = 24 };
    const bitnet_matmul item = {
        (const int8_t *)t.bytes, N * N, t.bytes, N * N, t.values, N * N, N, N, N};
    bitnet_single_op op = {.op = BITNET_SINGLE_VECTOR,
                           .type = BITNET_VECTOR_SILU,
                           .n = N,
                           .in = {t.values},
                           .out = {t.other}};
    bitnet_single *s = NULL;
    static bitnet_single_info info;
    FINE(bitnet_matmul_i2s(item.a, item.n_a, item.b, item.n_b, item.c, item.n_c, N, N, N, &t.err));
    FINE(bitnet_batch_matmul_i2s(&item, 1, &t.err));
    size_t n = bitnet_quantized_bytes(BITNET_QTYPE_TL2, 256);
    FINE(bitnet_quantize(BITNET_QTYPE_TL2, BITNET_SCALE_ABSMEAN, t.values, 256, t.bytes, n, t.other,
                         2, &t.err));
    FINE(bitnet_dequantize(BITNET_QTYPE_TL2, t.bytes, n, 256, t.other, 2, t.values, &t.err));
    bitnet_i2s_unpack(t.bytes, 64, t.bytes + 512);
    CHECK(bitnet_i2s_trit(1) == 0);
    FINE(bitnet_qk256_gemv(t.bytes, 128, NULL, 0, 2, 256, t.values, BITNET_CODES_TERNARY, t.other,
                           &t.err));
    FINE(bitnet_bitnet32_decode(t.bytes, 20, 64, BITNET_CODES_NOZERO, t.other, &t.err));
    FINE(bitnet_bitnet32_gemv(t.bytes, 20, 1, 64, t.values, BITNET_CODES_NOZERO, t.other, &t.err));
    CHECK(bitnet_access_pattern((const uint64_t[]){1, 2, 3}, 3).kind == BITNET_ACCESS_SEQUENTIAL);
    FINE(bitnet_single_open(t.runtime, BITNET_PRECISION_FP32, &s, &t.err));
    FINE(bitnet_single_run(s, &op, 1, &t.err));
    bitnet_single_read(s, &info);
    bitnet_single_close(s);
}

static void single_operations(void)
{
    enum { N = 24, MANY = 70 };
    static bitnet_matmul items[MANY];
    static bitnet_ops_stats stats;
    static int32_t index[N];
    bitnet_ops *o = NULL;
    FINE(bitnet_ops_open(t.runtime, BITNET_PRECISION_FP32, &o, &t.err));
    CHECK(bitnet_ops_provider(o) && bitnet_ops_precision(o) == BITNET_PRECISION_FP32);
    for (int i = 0; i < MANY; i++)
        items[i] = (bitnet_matmul){
            (const int8_t *)t.bytes, N * N, t.bytes, N * N, t.values, N * N, N, N, N};
    FINE(bitnet_ops_matmul_i2s(o, items, &t.err));
    FINE(bitnet_ops_batch_matmul_i2s(o, items, MANY, &t.err));
    FINE(bitnet_ops_quantize(o, BITNET_QTYPE_TL2, BITNET_SCALE_ABSMAX, t.values, 4096, t.bytes,
                             sizeof t.bytes, t.other, 8, &t.err));
    FINE(bitnet_ops_qk256_gemv(o, t.bytes, 128, NULL, 0, 2, 256, t.values, BITNET_CODES_TERNARY,
                               t.other, &t.err));
    FINE(bitnet_ops_matmul(o, t.values, t.values, t.other, N, N, N, &t.err));
    FINE(bitnet_ops_convert(o, BITNET_F32_TO_F16, t.values, N, t.other, &t.err));
    FINE(bitnet_ops_vector(o, BITNET_VECTOR_ADD, t.values, t.values, N, t.other, &t.err));
    FINE(bitnet_ops_softmax(o, t.values, N, N, t.other, &t.err));
    FINE(bitnet_ops_argmax(o, t.values, N, N, index, &t.err));
    bitnet_ops_stats_init(&stats);
    FINE(bitnet_ops_read(o, &stats, &t.err));
    bitnet_ops_close(o);
}

static void memory_pools(void)
{
    static bitnet_mempool_options o;
    static bitnet_mempool_stats stats;
    static bitnet_mempool_leak leak;
    bitnet_mempool *p = NULL;
    void *m = NULL;
    bitnet_mempool_options_init(&o);
    FINE(bitnet_mempool_open(&o, &p, &t.err));
    CHECK(bitnet_mempool_device_id(p) == 0);
    FINE(bitnet_mempool_alloc_at(p, 100, __FILE__, __LINE__, &m, &t.err));
    CHECK(bitnet_mempool_leaks(p, &leak, 1) == 1);
    FINE(bitnet_mempool_free(p, m, &t.err));
    bitnet_mempool_read(p, &stats);
    bitnet_status st = bitnet_memory_health(p, 1e9, &t.err);
    CHECK(st == BITNET_OK || st == BITNET_MEMORY_GATE);
    (void)bitnet_mempool_cleanup(p, true);
    bitnet_mempool_close(p);
}

/* With a GPU, its context too; the rest is for a program's own kernels, and refused here. */
static void cuda(void)
{
    static bitnet_work_options o;
    bitnet_cuda *c = NULL;
    bitnet_cuda_module *m = NULL;
    bitnet_work *w = NULL;
    void *p = NULL;
    double ms;
    (void)bitnet_cuda_open(0, &c, &t.err);
    (void)bitnet_cuda_context(c);
    (void)bitnet_cuda_stream(c, 0);
    (void)bitnet_cuda_allocator(c);
    p = bitnet_cuda_host_alloc(c, 64);
    bitnet_cuda_host_free(c, p);
    CHECK(bitnet_cuda_module_load(c, NULL, &m, &t.err) != BITNET_OK);
    (void)bitnet_cuda_module_handle(m);
    CHECK(bitnet_cuda_kernel(c, m, "none", &p, &t.err) != BITNET_OK);
    bitnet_cuda_module_free(m);
    bitnet_work_options_init(&o);
    CHECK(bitnet_work_submit(c, &o, &w, &t.err) != BITNET_OK);
    (void)bitnet_work_done(w);
    CHECK(bitnet_work_wait(w, &t.err) != BITNET_OK);
    CHECK(bitnet_work_times(w, &ms, &ms, &t.err) != BITNET_OK);
    bitnet_work_free(w);
    bitnet_cuda_close(c);
}

static void closing(void)
{
    bitnet_engine_close(t.engine);
    bitnet_engine_close(t.story);
    bitnet_runtime_close(t.runtime);
}

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {{"opening", opening},
              {"words", words},
              {"engine in memory", memory_engine},
              {"what is kept", kept},
              {"text", text},
              {"sessions", sessions},
              {"session files", session_files},
              {"pools", pools},
              {"generating", generating},
              {"batches", batches},
              {"statistics", statistics},
              {"devices", devices},
              {"inspecting", inspecting},
              {"measuring", measuring},
              {"synthetic models", synthetic},
              {"registry", registry},
              {"receipts", receipts},
              {"checking", checking},
              {"reference operations", reference_operations},
              {"single operations", single_operations},
              {"memory pools", memory_pools},
              {"cuda", cuda},
              {"closing", closing}};

/* ---- the thread ---- */

typedef struct job {
    uint8_t *bottom; /* of the thread's stack */
    void (*run)(void);
} job;

/* Some systems want more for a thread (PTHREAD_STACK_MIN): what is more than 64 KB is taken away.
 */
static void *run_group(void *arg)
{
    const job *j = arg;
    size_t left = (size_t)((uint8_t *)__builtin_frame_address(0) - j->bottom);
    uint8_t *taken = __builtin_alloca(left > STACK ? left - STACK : 1);
    __asm__ volatile("" : : "r"(taken) : "memory");
    j->run();
    return NULL;
}

static size_t untouched(const uint8_t *stack)
{
    size_t n = 0;
    while (n < STACK && stack[n] == 0xa5)
        n++;
    return n;
}

static size_t stack_bytes(void)
{
    long least = sysconf(_SC_THREAD_STACK_MIN);
    return least > STACK ? (size_t)least : (size_t)STACK;
}

static void run_on(uint8_t *stack, size_t n_bytes, void (*run)(void))
{
    job j = {stack, run};
    pthread_attr_t attr;
    pthread_t thread;
    memset(stack, 0xa5, n_bytes);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, n_bytes), 0);
    assert_int_equal(pthread_create(&thread, &attr, run_group, &j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

static void test_on_64_kb(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n_bytes = stack_bytes();
    uint8_t *map =
        mmap(NULL, n_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map, page, PROT_NONE), 0);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        print_message("%s ... ", groups[i].name); /* a group that ends the program is the last */
        fflush(stdout);
        run_on(map + page, n_bytes, groups[i].run);
        print_message("%zu of %d bytes\n", STACK - untouched(map + page), (int)STACK);
        assert_int_equal(t.n_failed, 0);
    }
    munmap(map, n_bytes + page);
}

/* ---- nothing is forgotten ---- */

static char *read_source(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", TEST_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    char *source = calloc(1, 1 << 20);
    if (!f || !source || fread(source, 1, (1 << 20) - 1, f) == 0)
        fail_msg("cannot read %s", path);
    fclose(f);
    return source;
}

static int count_missing(const char *header, const char *calls)
{
    int n_missing = 0, n_found = 0;
    for (const char *p = header; (p = strstr(p, "\nBITNET_API ")) != NULL;) {
        char call[128];
        p += 12;
        const char *open = strchr(p, '('), *name = open;
        while (name > p && strchr("abcdefghijklmnopqrstuvwxyz_0123456789", name[-1]))
            name--;
        snprintf(call, sizeof call, "%.*s(", (int)(open - name), name);
        n_found++;
        if (!strstr(calls, call)) {
            print_error("%s is not called on a small stack\n", call);
            n_missing++;
        }
    }
    return n_found < 10 ? -1 : n_missing;
}

static void test_every_function_is_here(void **state)
{
    (void)state;
    char *calls = read_source("tests/unit/api/test_small_stack.c");
    static const char *const headers[] = {"include/bitnet.h", "include/bitnet_tools.h",
                                          "include/bitnet_kernel.h", "include/bitnet_check.h",
                                          "extras/bitnet_extras.h"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        char *header = read_source(headers[i]);
        assert_int_equal(count_missing(header, calls), 0);
        free(header);
    }
    free(calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_function_is_here),
        cmocka_unit_test(test_on_64_kb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
