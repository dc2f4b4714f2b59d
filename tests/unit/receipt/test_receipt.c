/* X_*: a receipt of a real run passes every gate; each falsified one is refused by the right gate.
 */
#include "unit/engine/nano.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "bitnet_tools.h"
#include "receipt/receipt_seal.h"

static char folder[] = "/tmp/bitnet-receipt-XXXXXX";
static char good[64];

static const char *file(const char *name, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/%s", folder, name);
    return buf;
}

/* A receipt of a real run: prompt, a few tokens, twice. */
static void make_receipt(const char *path, const char *isa)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.fake_gpu = "none";
    o.isa = isa;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    static const char *const flags[] = {"batch=8", "temperature=0", "deterministic=on",
                                        "strict=off", "seed=7"};
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    int32_t ids[12];
    nano_ids(&n, 4, ids, 12);
    OK(bitnet_session_append(s, ids, 5, NULL, NULL, &err)); /* before: does not belong to it */
    bitnet_receipt *r = NULL;
    OK(bitnet_receipt_open(n.engine, &r, &err));
    bitnet_receipt_facts f;
    bitnet_receipt_facts_init(&f);
    f.deterministic = f.identical = true;
    f.n_runs = 2;
    f.seed = 7;
    f.n_generated = 12;
    f.first_token_ms = 20;
    f.decode_ms = 220;
    f.total_ms = 240;
    f.n_passed = 1;
    f.prompt_ids = ids;
    f.n_prompt = 1;
    f.output_ids = ids;
    f.n_output = 12;
    f.text = "a story";
    f.n_text = 7;
    f.command = "run";
    f.flags = flags;
    f.n_flags = 5;
    f.finish = "length";
    for (int run = 0; run < 2; run++) {
        OK(bitnet_session_rewind(s, 0, &err));
        for (int i = 0; i < 12; i++) {
            OK(bitnet_session_append(s, ids + i, 1, NULL, NULL, &err));
            assert_non_null(bitnet_session_logits(s));
        }
    }
    OK(bitnet_receipt_write(r, &f, path, &err));
    OK(bitnet_receipt_write(r, &f, path, &err)); /* again is legal */
    bitnet_receipt_close(r);
    bitnet_session_close(s);
    nano_close(&n);
}

/* ---- receipts of single answers ---- */

/* A function in place of a file: it gets the text, and may have enough of it. */
typedef struct taker {
    FILE *to;
    size_t n_left;
} taker;

static bool take_bytes(void *user, const void *bytes, size_t n)
{
    taker *t = user;
    if (n > t->n_left)
        return false;
    t->n_left -= n;
    return fwrite(bytes, 1, n, t->to) == n;
}

static bool stop_at_once(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    return done > total;
}

static void a_function_gets_the_text(void **state)
{
    (void)state;
    char path[128];
    bitnet_error e = {0};
    static const int32_t ids[] = {1, 2, 3};
    nano n = nano_open(1);
    bitnet_receipt *r;
    bitnet_session *s = nano_session(&n, 64, 0, BITNET_KV_F16);
    OK(bitnet_receipt_open(n.engine, &r, &err));
    OK(bitnet_session_append(s, ids, 3, NULL, NULL, &err));
    FAILS(bitnet_receipt_digest(r, stop_at_once, NULL, &err), BITNET_CANCELLED, "cancelled");
    OK(bitnet_receipt_digest(r, NULL, NULL, &err));
    OK(bitnet_receipt_digest(r, stop_at_once, NULL, &err)); /* there is nothing left to do */
    for (size_t room = 0; room <= 1 << 20; room += 1 << 20) {
        bitnet_receipt_facts f;
        bitnet_receipt_facts_init(&f);
        f.session = s;
        taker t = {fopen(file("given.json", path, sizeof path), "w"), room};
        assert_non_null(t.to);
        bitnet_status st = bitnet_receipt_write_to(r, &f, take_bytes, &t, &e);
        assert_int_equal(fclose(t.to), 0);
        assert_int_equal(st, room ? BITNET_OK : BITNET_CANCELLED);
    }
    OK(bitnet_receipt_verify(path, NULL, NULL, &err));
    FAILS(bitnet_receipt_write_to(r, NULL, NULL, NULL, &err), BITNET_ARGUMENT, "write");
    bitnet_receipt_close(r);
    bitnet_session_close(s);
    nano_close(&n);
}

static json_t *answer_receipt(bitnet_receipt *r, const bitnet_session *s, const char *name)
{
    char path[128];
    bitnet_receipt_facts f;
    bitnet_receipt_facts_init(&f);
    f.n_generated = 6;
    f.first_token_ms = 20;
    f.decode_ms = 100;
    f.total_ms = 120;
    f.session = s;
    OK(bitnet_receipt_write(r, &f, file(name, path, sizeof path), &err));
    OK(bitnet_receipt_verify(path, NULL, NULL, &err));
    json_t *j = json_load_file(path, 0, NULL);
    assert_non_null(j);
    return j;
}

static json_int_t sum_of(const json_t *j, const char *field)
{
    const char *key;
    json_t *n;
    json_int_t sum = 0;
    json_object_foreach(json_object_get(j, field), key, n) sum += json_integer_value(n);
    return sum;
}

/* Two answers of one batch: each has its own receipt, which passes; a falsified one does not. */
static void X_1_receipt_of_one_answer(void **state)
{
    (void)state;
    nano n = nano_open(1), other = nano_open(1);
    bitnet_session *s[2] = {nano_session(&n, 64, 8, 0), nano_session(&n, 64, 8, 0)};
    bitnet_receipt *r = NULL, *foreign = NULL;
    int32_t ids[8], pair[2];
    nano_ids(&n, 4, ids, 8);
    OK(bitnet_receipt_open(n.engine, &r, &err));
    OK(bitnet_session_append(s[0], ids, 8, NULL, NULL, &err)); /* alone */
    for (int i = 0; i < 6; i++) {
        pair[0] = pair[1] = ids[i];
        OK(step_each(n.engine, s, NULL, pair, 2, NULL, &err)); /* together */
    }
    json_t *a = answer_receipt(r, s[0], "a.json"), *b = answer_receipt(r, s[1], "b.json");
    assert_true(sum_of(b, "kernel_calls") > 0);
    assert_int_equal(sum_of(b, "shared_calls"), sum_of(b, "kernel_calls"));
    assert_true(sum_of(a, "shared_calls") > 0);
    assert_true(sum_of(a, "shared_calls") < sum_of(a, "kernel_calls"));
    assert_int_equal(sum_of(a, "shared_calls"), sum_of(b, "shared_calls"));
    const char *id = json_object_iter_key(json_object_iter(json_object_get(b, "kernel_calls")));
    json_object_set_new(json_object_get(b, "shared_calls"), id, json_integer(1000000));
    char path[128];
    assert_int_equal(json_dump_file(b, file("forged.json", path, sizeof path), 0), 0);
    FAILS(bitnet_receipt_verify(path, NULL, NULL, &err), BITNET_RECEIPT, "shared_calls of kernel");
    bitnet_receipt_facts f;
    bitnet_receipt_facts_init(&f);
    f.session = s[0];
    OK(bitnet_receipt_open(other.engine, &foreign, &err));
    FAILS(bitnet_receipt_write(foreign, &f, path, &err), BITNET_ARGUMENT, "another engine");
    json_decref(a);
    json_decref(b);
    bitnet_receipt_close(r);
    bitnet_receipt_close(foreign);
    bitnet_session_close(s[0]);
    bitnet_session_close(s[1]);
    nano_close(&n);
    nano_close(&other);
}

static void refused(json_t *j, int want, const char *says, const char *what);

typedef struct company {
    bitnet_session *s;
    int32_t ids[8];
    atomic_bool end;
} company;

static void *keep_company(void *arg)
{
    company *c = arg;
    while (!atomic_load(&c->end) && bitnet_session_rewind(c->s, 0, NULL) == BITNET_OK)
        if (bitnet_session_append(c->s, c->ids, 8, NULL, NULL, NULL) != BITNET_OK)
            break;
    return NULL;
}

/* Another thread computes with the same engine, and parts of its passes fall between ours. */
static void an_answer_in_company(void **state)
{
    (void)state;
    nano n = nano_open(1);
    company c = {.s = nano_session(&n, 64, 8, 0)};
    nano_ids(&n, 5, c.ids, 8);
    for (int round = 0; round < 3; round++) {
        bitnet_session *s = nano_session(&n, 64, 8, 0);
        bitnet_receipt *r = NULL;
        pthread_t thread;
        OK(bitnet_receipt_open(n.engine, &r, &err));
        OK(bitnet_session_append(s, c.ids, 8, NULL, NULL, &err)); /* alone */
        atomic_store(&c.end, false);
        assert_int_equal(pthread_create(&thread, NULL, keep_company, &c), 0);
        usleep(20000);
        for (int i = 0; i < 30; i++)
            OK(bitnet_session_append(s, c.ids + i % 8, 1, NULL, NULL, &err));
        atomic_store(&c.end, true);
        pthread_join(thread, NULL);
        json_t *j = answer_receipt(r, s, "company.json"); /* is accepted */
        assert_true(sum_of(j, "shared_calls") > 0);
        json_t *calls = json_object_get(j, "kernel_calls");
        void *at = json_object_iter(calls);
        while (at && strncmp(json_object_iter_key(at), "glu", 3) != 0)
            at = json_object_iter_next(calls, at);
        assert_non_null(at); /* the part that is ours alone grows */
        json_object_iter_set_new(calls, at,
                                 json_integer(json_integer_value(json_object_iter_value(at)) + 1));
        OK(bnet_receipt_seal(j, &err));
        refused(j, 15, "calls of", "one call more");
        json_decref(j);
        bitnet_receipt_close(r);
        bitnet_session_close(s);
    }
    bitnet_session_close(c.s);
    nano_close(&n);
}

/* How often the file is opened until the call returns. */
static size_t n_openings(int watch)
{
    char events[4096];
    size_t n_events = 0;
    ssize_t n = read(watch, events, sizeof events);
    for (ssize_t at = 0; at < n;) {
        struct inotify_event e;
        memcpy(&e, events + at, sizeof e);
        n_events += (e.mask & IN_OPEN) != 0;
        at += (ssize_t)sizeof e + (ssize_t)e.len;
    }
    return n_events;
}

/* What is signed is what was verified: the file is not read a second time, when it may be another.
 */
static void signing_reads_once(void **state)
{
    (void)state;
    char path[128], secret[65], key[65];
    bitnet_verify_options o;
    json_t *j = json_load_file(good, 0, NULL);
    assert_int_equal(json_dump_file(j, file("sign.json", path, sizeof path), 0), 0);
    json_decref(j);
    OK(bitnet_receipt_key(secret, key, &err));
    int watch = inotify_init1(IN_NONBLOCK);
    assert_true(watch >= 0 && inotify_add_watch(watch, path, IN_OPEN | IN_CLOSE) >= 0);
    OK(bitnet_receipt_sign(path, secret, &err));
    assert_int_equal(n_openings(watch), 1);
    close(watch);
    bitnet_verify_options_init(&o);
    o.public_key = key;
    OK(bitnet_receipt_verify(path, &o, NULL, &err));
}

static int make_good(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    file("good.json", good, sizeof good);
    make_receipt(good, "scalar"); /* so that its ids are the same on every machine */
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    static const char *const names[] = {"good.json",    "bad.json",  "best.json",
                                        "a.json",       "b.json",    "forged.json",
                                        "company.json", "sign.json", "given.json"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(file(names[i], path, sizeof path));
    return rmdir(folder);
}

/* ---- what is in one ---- */

static json_int_t calls_of(const json_t *j, const char *id)
{
    return json_integer_value(json_object_get(json_object_get(j, "kernel_calls"), id));
}

static void X_4_a_real_receipt_passes(void **state)
{
    (void)state;
    int gate = -1;
    OK(bitnet_receipt_verify(good, NULL, &gate, &err));
    assert_int_equal(gate, 0);
    json_t *j = json_load_file(good, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "backend_summary")),
                        "requested=auto detected=[cpu] selected=cpu");
    /* exactly the calls of the two runs, 24 passes: what came before is not counted */
    assert_int_equal(calls_of(j, "embed_row.scalar"), 24);
    /* eight of int8 in a pass, in one with what stands before: in two layers twice after a norm and
     * once more at the start, three times after a sum and a norm, twice after a gate and a norm */
    assert_int_equal(calls_of(j, "norm_quantize.scalar"), 24 * 3);
    assert_int_equal(calls_of(j, "add_norm_quantize.scalar"), 24 * 3);
    assert_int_equal(calls_of(j, "glu_relu2_norm_quantize.scalar"), 24 * 2);
    assert_int_equal(calls_of(j, "add_f32.scalar"), 24);
    assert_int_equal(calls_of(j, "rmsnorm_f32.scalar"), 24);
    assert_int_equal(calls_of(j, "attention_f16.scalar"), 24 * 2);
    char hex[65];
    OK(bitnet_file_sha256(NANO_PATH, hex, &err));
    const json_t *m = json_object_get(j, "model_info");
    assert_string_equal(json_string_value(json_object_get(m, "sha256")), hex);
    json_decref(j);
}

/* Beyond what JSON readers take for a whole number: as digits in quotes. */
static void seeds_from_2_63_on_are_texts(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    nano n = nano_open(1);
    for (int i = 0; i < 3; i++) {
        bitnet_receipt *r = NULL;
        bitnet_receipt_facts f;
        char path[128], want[32], got[32];
        OK(bitnet_receipt_open(n.engine, &r, &err));
        bitnet_receipt_facts_init(&f);
        f.seed = seeds[i];
        OK(bitnet_receipt_write(r, &f, file("best.json", path, sizeof path), &err));
        bitnet_receipt_close(r);
        json_t *j = json_load_file(path, 0, NULL);
        const json_t *seed = json_object_get(json_object_get(j, "environment"), "BITNET_SEED");
        snprintf(want, sizeof want, "%llu", (unsigned long long)seeds[i]);
        snprintf(got, sizeof got, "%lld", (long long)json_integer_value(seed));
        assert_string_equal(i ? json_string_value(seed) : got, want);
        json_decref(j);
    }
    nano_close(&n);
}

/* Must hold 3: the instruction set shows in the ids. */
static void X_3_isa_changes_the_ids(void **state)
{
    (void)state;
    char path[128];
    make_receipt(file("best.json", path, sizeof path), NULL);
    OK(bitnet_receipt_verify(path, NULL, NULL, &err));
    json_t *a = json_load_file(good, 0, NULL), *b = json_load_file(path, 0, NULL);
    assert_true(calls_of(a, "linear_i2s.scalar") > 0);
    bitnet_kernel_info k;
    bool better = false;
    for (int i = 0; bitnet_kernel_at(i, &k); i++)
        better |= k.available && strcmp(k.isa, "scalar") != 0;
    if (better)
        assert_false(json_equal(json_object_get(a, "kernels"), json_object_get(b, "kernels")));
    json_decref(a);
    json_decref(b);
}

/* ---- falsified ---- */

/* path ("a.b", "kernels[0]"), its new value as JSON (NULL: removed), and the gate that notices. */
typedef struct tampering {
    int gate;
    const char *path, *value;
    const char *says;
} tampering;

static const tampering table[] = {
    {1, "schema_version", "\"1.0.0\"", "must be \"1.1.0\""},
    {1, "schema_version", NULL, "schema_version"},
    {1, "timestamp", NULL, "timestamp is missing"},
    {1, "kernels", "\"linear_i2s.scalar\"", "kernels is missing or of the wrong type"},
    {1, "model_info.sha256", "5", "model_info.sha256"},
    {1, "performance_baseline.tokens_generated", "-1", "tokens_generated"},
    {1, "environment", NULL, "environment.BITNET_VERSION"},
    {1, "deterministic", "\"yes\"", "deterministic"},
    {2, "compute_path", "\"mock\"", "compute_path is \"mock\""},
    {2, "compute_path", "\"fallback\"", "compute_path is \"fallback\""},
    {3, "kernels", "[]", "empty"},
    {5, "kernels[0]", "\"\"", "kernel 0"},
    {5, "kernels[1]", "\" \\t \"", "kernel 1"},
    {5, "kernels[1]", "3", "kernel 1"},
    {6, "kernels[0]", "\"linear_i2s.Mock\"", "Mock"},
    {8, "test_results.failed", "1", "1 tests failed"},
    {8, "test_results.total", "5", "total is 5"},
    {9, "kernels[0]", "\"gemm_i2s.cuda\"", "no kernel of the registry"},
    {9, "backend", "\"cuda\"", "without one kernel of it"},
    {9, "backend", "\"teapot\"", "without one kernel of it"},
    {11, "quantization.fallback_count", "3", "fallback_count is 3"},
    {11, "fallback.steps", "1", "fell back"},
    {11, "fallback.kernel_calls", "9", "fell back"},
    {12, "performance_baseline.tokens_per_second", "1e9", "tokens/s"},
    {12, "performance_baseline.average_token_latency_ms", "1e-6", "tokens/s"},
    {12, "performance_baseline.average_token_latency_ms", "0", "without any time"},
    {12, "performance_baseline.read_limit_gb_s", "0", "not plausible"},
    {12, "performance_baseline.read_limit_gb_s", "1e12", "not plausible"},
    {12, "performance_baseline.weight_bytes_per_token", "0", "not plausible"},
    {13, "test_results.determinism.identical", "false", "not identical"},
    {13, "test_results.determinism.runs", "1", "no second run"},
    {14, "backend_summary", "\"requested=auto detected=[cpu]\"", "lacks"},
    {14, "backend_summary", "\"requested=auto detected=[cuda,cpu] selected=cuda\"",
     "selected cuda"},
    {14, "backend_summary", "\"requested=auto detected=[cuda] selected=cpu\"", "only [cuda]"},
    {15, "kernel_calls", "{}", "has no calls"},
    {15, "kernel_calls.more", "4", "entries"},
    {13, "performance_baseline.tokens_generated", "24", "24 generated"},
    {16, "performance_baseline.tokens_per_second", "100", "are not"},
    {16, "performance_baseline.total_time_ms", "120", "are not"},
    {16, "performance_baseline.first_token_latency_ms", "500", "exceed"},
    {17, "model_info.sha256", "\"abc\"", "64 hexadecimal"},
    {18, "timestamp", "\"yesterday\"", "RFC 3339"},
    {18, "timestamp", "\"2026-13-01T00:00:00Z\"", "RFC 3339"},
    {18, "timestamp", "\"2999-01-01T00:00:00Z\"", "future"},
    {1, "extra", "1", "\"extra\" is no field"},
    {1, "environment.note", "\"x\"", "environment.\"note\" is no field"},
    {1, "test_results.determinism.more", "1", "is no field"},
    {1, "model_info.layers", "0", "layers is 0"},
    {1, "model_info.hidden_size", "0", "hidden_size is 0"},
    {1, "model_info.vocab_size", "0", "vocab_size is 0"},
    {1, "model_info.file_bytes", "0", "file_bytes is 0"},
    {1, "model_info.file_bytes", "9007199254740993", "above 2^53"},
    {1, "environment.threads", "0", "threads is 0"},
    {9, "environment.isa", "\"teapot\"", "isa \"teapot\" is unknown"},
    {9, "environment.provider", "\"teapot\"", "provider \"teapot\" is unknown"},
    {9, "environment.provider", "\"cuda\"", "not of cpu"},
    {9, "environment.precision", "\"fp8\"", "precision \"fp8\" is none of fp32, fp16, bf16"},
    {9, "environment.precision", "\"\"", "is none of fp32"},
    {9, "environment.precision", "\"bf16\"", "precision bf16 is not of cpu"},
    {11, "quantization.types_used", "[]", "lacks"},
    {11, "quantization.types_used[0]", "3", "no text"},
    {11, "quantization.types_used[0]", "\"q4_0\"", "names q4_0"},
    {12, "performance_baseline.read_limit_gb_s", "4001", "not plausible"},
    {12, "performance_baseline.weight_bytes_per_token", "1", "not plausible for a model file"},
    {12, "performance_baseline.weight_bytes_per_token", "900719925474099", "not plausible for"},
    {12, "model_info.file_bytes", "900719925474099", "not plausible for a model file"},
    {13, "test_results.determinism.tokens", "11", "11 tokens were compared"},
    {13, "environment.BITNET_DETERMINISTIC", "false", "BITNET_DETERMINISTIC is false"},
    {14, "backend_summary", "\"requested=auto detected=[cpu] selected=cpu\\n\"", "exceeds"},
    {14, "backend_summary", "\"requested=auto detected=[cpu] selected=cpu fast\"", "exceeds"},
    {14, "backend_summary", "\" requested=auto detected=[cpu] selected=cpu\"", "exceeds"},
    {14, "backend_summary", "\"requested=auto detected=[cpu] selected=cpu:7\"", "cannot be"},
    {14, "backend_summary", "\"requested=cpu:7 detected=[cpu] selected=cpu:7\"", "cannot be"},
    {14, "backend_summary", "\"requested=cuda detected=[cpu] selected=cpu\"", "cannot be"},
    {14, "backend_summary", "\"requested=gpu detected=[cpu] selected=cpu\"", "cannot be"},
    {15, "kernel_calls.attention_f16:scalar", "47", "47 calls of attention"},
    {15, "kernel_calls.kv_store_f16:scalar", "1", "1 calls of kv_store"},
    {15, "graph_replays", "1", "a CPU records nothing"},
    {15, "cut_passes", "1", "was not cancelled"},
    {15, "unrecorded_steps", "1", "a CPU records nothing"},
    {1, "graph_replays", "-1", "graph_replays"},
    {15, "environment.GPU_DEVICE", "\"NVIDIA H200\"", "the backend is cpu"},
    {15, "kernel_calls.add_f32:scalar", "9007199254740993", "too many calls"},
    {18, "timestamp", "\"2025- 1- 1T 4: 4: 2Z\"", "RFC 3339"},
    {18, "timestamp", "\"-001-02-01T00:00:00Z\"", "RFC 3339"},
    {18, "timestamp", "\"2026-02-31T00:00:00Z\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-29T00:00:00Z\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-28T00:00:00+99:99\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-28T00:00:00.Z\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-28T24:00:00Z\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-28T00:60:00Z\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-28T00:00:61Z\"", "RFC 3339"},
    {18, "timestamp", "\"2025-02-28T00:00:00Z \"", "RFC 3339"},
    {1, "generation.text_sha256", "\"ABC\"", "not 64 hexadecimal digits"},
    {1, "generation.output_ids_sha256", NULL, "output_ids_sha256 is missing"},
    {1, "receipt_sha256", NULL, "receipt_sha256 is missing"},
    {1, "environment.tuning", NULL, "environment.tuning is missing"},
    {15, "generation.output_tokens", "13", "13 tokens in 2 runs make 26"},
    {15, "generation.output_tokens", "0", "0 tokens in 2 runs"},
    {15, "generation.prompt_tokens", "0", "0 batches"},
    {19, "generation.text_bytes", "0", "text_bytes is 0"},
    {19, "generation.text_bytes", "0", "text_sha256 is not the digest of nothing"},
    {20, "generation.text_bytes", "8", "not that of the other fields"},
    {20, "environment.CPU_BRAND", "\"another\"", "not that of the other fields"},
    {13, "environment.BITNET_SEED", "8", "the seed among the flags is 7"},
    {20, "environment.BITNET_VERSION", "\"9.9.9\"", "not that of the other fields"},
    {13, "environment.BITNET_STRICT_MODE", "true", "the flag strict was off"},
    {16, "performance_baseline.first_token_latency_ms", "1", "are not the total"},
    {12, "performance_baseline.first_token_latency_ms", "0.000001", "tokens/s"},
    {12, "performance_baseline.read_limit_gb_s", "301", "not plausible"}, /* of two threads */
    {14, "environment.GPU_INFO", "\"cuda 8 device(s) (CUDA 13.0)\"", "GPU_INFO names cuda"},
    {14, "backend_summary", "\"requested=auto detected=[cuda,cpu] selected=cpu\"",
     "does not name cuda"},
    {15, "test_results.determinism.runs", "3", "24 passes"},
    {15, "generation.prompt_tokens", "9", "2 batches of the prompt"},
    {19, "generation.finish", "\"\"", "finish is empty"},
};

/* A colon in the last key stands for the point of a kernel id. */
static void set(json_t *root, const char *path, json_t *v)
{
    char key[64];
    json_t *o = root;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        o = json_object_get(o, key);
        assert_non_null(o);
    }
    const char *bracket = strchr(path, '[');
    snprintf(key, sizeof key, "%.*s", (int)strcspn(path, "["), path);
    if (strchr(key, ':'))
        *strchr(key, ':') = '.';
    if (bracket)
        assert_int_equal(
            json_array_set_new(json_object_get(o, key), (size_t)strtoul(bracket + 1, NULL, 10), v),
            0);
    else if (v)
        assert_int_equal(json_object_set_new(o, key, v), 0);
    else
        assert_int_equal(json_object_del(o, key), 0);
}

static void refused(json_t *j, int want, const char *says, const char *what)
{
    char path[128], number[32];
    bitnet_error err = {0};
    int gate = 0;
    assert_int_equal(json_dump_file(j, file("bad.json", path, sizeof path), 0), 0);
    bitnet_status st = bitnet_receipt_verify(path, NULL, &gate, &err);
    snprintf(number, sizeof number, "gate %d ", want);
    if (st != BITNET_RECEIPT || gate != want || !strstr(err.message, number) ||
        !strstr(err.message, says))
        fail_msg("%s: status %d, gate %d, \"%s\"; wanted gate %d, \"%s\"", what, (int)st, gate,
                 err.message, want, says);
}

/* With the digest that fits it, which anyone can compute. */
static void dump_accepted(json_t *j)
{
    char path[128];
    OK(bnet_receipt_seal(j, &err));
    assert_int_equal(json_dump_file(j, file("bad.json", path, sizeof path), 0), 0);
    OK(bitnet_receipt_verify(path, NULL, NULL, &err));
}

/* ---- every leaf ---- */

static json_t *another(const json_t *v)
{
    char buf[256];
    if (json_is_integer(v))
        return json_integer(json_integer_value(v) + 1);
    if (json_is_real(v))
        return json_real(json_real_value(v) * (1 + 1e-6) + 1e-6);
    if (json_is_boolean(v))
        return json_boolean(!json_is_true(v));
    snprintf(buf, sizeof buf, "%s", json_string_value(v));
    if (buf[0])
        buf[strlen(buf) - 1] ^= 1;
    else
        snprintf(buf, sizeof buf, "x");
    return json_string(buf);
}

/* Changes the leaf `v` of `root` by `put`, expects a refusal, changes it back. */
static void leaf_is_bound(json_t *root, json_t *parent, const char *key, size_t i, json_t *v)
{
    char path[128];
    bitnet_error err = {0};
    json_incref(v);
    json_t *changed = another(v);
    assert_int_equal(key ? json_object_set_new(parent, key, changed)
                         : json_array_set_new(parent, i, changed),
                     0);
    assert_int_equal(json_dump_file(root, file("bad.json", path, sizeof path), 0), 0);
    if (bitnet_receipt_verify(path, NULL, NULL, &err) != BITNET_RECEIPT)
        fail_msg("%s (%zu) can be changed", key ? key : "of a list", i);
    key ? json_object_set_new(parent, key, v) : json_array_set_new(parent, i, v);
}

static size_t bind_leaves(json_t *root, json_t *part)
{
    const char *key;
    json_t *v;
    void *next;
    size_t i, n = 0;
    json_object_foreach_safe(part, next, key, v)
    {
        if (json_is_object(v) || json_is_array(v))
            n += bind_leaves(root, v);
        else
            leaf_is_bound(root, part, key, 0, v), n++;
    }
    json_array_foreach(part, i, v) leaf_is_bound(root, part, NULL, i, v), n++;
    return n;
}

static void X_3_every_leaf_is_bound(void **state)
{
    (void)state;
    char path[128];
    json_t *j = json_load_file(good, 0, NULL);
    size_t n = bind_leaves(j, j);
    assert_true(n > 70);
    print_message("%zu leaves changed, each refused\n", n);
    assert_int_equal(json_dump_file(j, file("bad.json", path, sizeof path), 0), 0);
    OK(bitnet_receipt_verify(path, NULL, NULL, &err)); /* all of them were changed back */
    json_decref(j);
}

/* ---- lies with a digest that fits them ---- */

/* Every kernel's calls, one more, one less, a hundredfold. */
static void X_3_counts_are_those_of_the_passes(void **state)
{
    (void)state;
    json_t *j = json_load_file(good, 0, NULL), *calls = json_object_get(j, "kernel_calls");
    const char *id;
    json_t *v;
    void *next;
    json_object_foreach_safe(calls, next, id, v)
    {
        json_int_t n = json_integer_value(v), lies[] = {n + 1, n - 1, 100 * n, n + 24, 2 * n};
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s", id);
            json_object_set_new(calls, name, json_integer(lies[i]));
            OK(bnet_receipt_seal(j, &err));
            refused(j, 15, "calls", name);
            json_object_set_new(calls, name, json_integer(n));
        }
    }
    json_decref(j);
}

/* What contradicts nothing else can be said by anyone: 0 are those that only a signature binds. */
static void X_3_single_lies_with_a_digest(void **state)
{
    (void)state;
    static const tampering lies[] = {
#ifdef __x86_64__
        {9, "kernels[0]", "\"linear_i2s.avx2\"", "beyond environment.isa"},
#else
        {9, "kernels[0]", "\"linear_i2s.dotprod\"", "beyond environment.isa"},
#endif
        {9, "environment.provider", "\"host\"", "not of cpu"},
        {14, "environment.GPU_INFO", "\"cuda 1 device(s) (CUDA 13.0)\"", "GPU_INFO names cuda"},
        {15, "environment.GPU_DEVICE", "\"NVIDIA H200\"", "the backend is cpu"},
        {13, "environment.BITNET_SEED", "99", "seed"},
        {13, "environment.BITNET_STRICT_MODE", "true", "strict"},
        {13, "deterministic", "false", "identical runs"},
        {13, "test_results.determinism.identical", "false", "not identical"},
        {15, "test_results.determinism.runs", "4", "passes"},
        {16, "performance_baseline.first_token_latency_ms", "1", "are not the total"},
        {12, "performance_baseline.read_limit_gb_s", "4000", "not plausible"},
        {0, "environment.CPU_BRAND", "\"a faster one\"", ""},
        {0, "environment.BITNET_VERSION", "\"9.9.9\"", ""},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        json_t *j = json_load_file(good, 0, NULL);
        set(j, lies[i].path, json_loads(lies[i].value, JSON_DECODE_ANY, NULL));
        if (!lies[i].gate) { /* without the new digest it is refused */
            refused(j, 20, "not that of the other fields", lies[i].path);
            dump_accepted(j);
            json_decref(j);
            continue;
        }
        OK(bnet_receipt_seal(j, &err));
        refused(j, lies[i].gate, lies[i].says, lies[i].path);
        json_decref(j);
    }
}

static void X_1_tampered_receipts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const tampering *t = &table[i];
        json_t *j = json_load_file(good, 0, NULL);
        json_t *v = t->value ? json_loads(t->value, JSON_DECODE_ANY, NULL) : NULL;
        assert_true(!t->value || v);
        set(j, t->path, v);
        refused(j, t->gate, t->says, t->path);
        json_decref(j);
    }
    print_message("%zu tampered receipts refused\n", sizeof table / sizeof *table);
}

static json_t *time_in(double hours)
{
    char text[32];
    time_t then = time(NULL) + (time_t)(hours * 3600);
    struct tm t;
    gmtime_r(&then, &t);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t);
    return json_string(text);
}

/* Just beyond a bound is refused, just within it is not. */
static void X_1_bounds_of_gates(void **state)
{
    (void)state;
    static const char rate_path[] = "performance_baseline.tokens_per_second";
    json_t *j = json_load_file(good, 0, NULL);
    double rate = json_real_value(
        json_object_get(json_object_get(j, "performance_baseline"), "tokens_per_second"));
    char sha[65];
    set(j, "timestamp", time_in(25));
    refused(j, 18, "future", "25 hours ahead");
    set(j, "timestamp", time_in(23));
    dump_accepted(j);
    assert_true(rate > 1);
    set(j, rate_path, json_real(1.02 * rate));
    refused(j, 16, "are not", "a rate 2 % too high");
    set(j, rate_path, json_real(0.98 * rate));
    refused(j, 16, "are not", "a rate 2 % too low");
    set(j, rate_path, json_real(1.005 * rate));
    dump_accepted(j);
    snprintf(sha, sizeof sha, "%s",
             json_string_value(json_object_get(json_object_get(j, "model_info"), "sha256")));
    assert_int_equal(strlen(sha), 64);
    char *letter = sha + strcspn(sha, "abcdef");
    assert_true(*letter);
    *letter = (char)(*letter - 'a' + 'A');
    set(j, "model_info.sha256", json_string(sha));
    refused(j, 17, "64 hexadecimal", "a digest in upper case");
    json_decref(j);
}

/* Ids that need more than one value changed. */
static void X_1_too_many_too_long_twice(void **state)
{
    (void)state;
    json_t *j = json_load_file(good, 0, NULL), *ids = json_object_get(j, "kernels");
    char longer[200];
    memset(longer, 'k', sizeof longer);
    longer[129] = '\0';
    json_array_append_new(ids, json_string(longer));
    refused(j, 7, "129 bytes", "a long id");
    json_array_remove(ids, json_array_size(ids) - 1);
    json_array_append(ids, json_array_get(ids, 0));
    refused(j, 15, "named twice", "an id twice");
    while (json_array_size(ids) < 10000)
        json_array_append(ids, json_array_get(ids, 0));
    clock_t begun = clock();
    refused(j, 9, "10000 kernels, a registry has at most 1024", "more than any registry");
    assert_true(clock() - begun < CLOCKS_PER_SEC / 2);
    json_array_append(ids, json_array_get(ids, 0));
    refused(j, 4, "10001", "too many");
    json_decref(j);
    j = json_load_file(good, 0, NULL);
    json_object_set(j, "shared_calls", json_object_get(j, "kernel_calls"));
    OK(bnet_receipt_seal(j, &err));
    refused(j, 15, "shared_calls in a receipt of run", "calls that are said to be others'");
    json_decref(j);
}

/* Removes every kernel of the op, with its calls. */
static void drop_op(json_t *j, const char *prefix)
{
    json_t *ids = json_object_get(j, "kernels"), *calls = json_object_get(j, "kernel_calls");
    for (size_t i = json_array_size(ids); i-- > 0;) {
        char id[128];
        snprintf(id, sizeof id, "%s", json_string_value(json_array_get(ids, i)));
        if (strncmp(id, prefix, strlen(prefix)) != 0)
            continue;
        json_array_remove(ids, i);
        json_object_del(calls, id);
    }
}

/* Another kernel in the place of those that begin so: a head once for every token, ternary
 * matrices seven times and the others once for every layer of every pass. */
static void swap_id(json_t *j, const char *prefix, const char *id)
{
    int n_calls = strncmp(id, "linear_f32", 10) == 0 ? 24 : strstr(id, "_i2s") ? 7 * 48 : 48;
    json_t *ids = json_object_get(j, "kernels"), *calls = json_object_get(j, "kernel_calls");
    drop_op(j, prefix);
    json_array_append_new(ids, json_string(id));
    json_object_set_new(calls, id, json_integer(n_calls));
}

/* Gate 10: a run without one of its operations is none. Gate 11: only fallbacks. */
static void X_3_operations_must_be_there(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *says;
    } rows[] = {{"embed", "no embed"}, {"rope", "no rope"}, {"kv_store", "no kv_store"},
                {"glu", "no glu"},     {"add", "no add"},   {"attention", "no attention"}};
    static const char *const several[] = {"norm_quantize", "add_norm", "glu_relu2_norm"};
    json_t *j;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        j = json_load_file(good, 0, NULL);
        drop_op(j, rows[i].prefix);
        refused(j, 10, rows[i].says, rows[i].prefix);
        json_decref(j);
    }
    /* what a kernel of several operations does is there, until it is dropped as well */
    j = json_load_file(good, 0, NULL);
    drop_op(j, "rmsnorm");
    refused(j, 15, "192 calls of rmsnorm leave 0", "rmsnorm");
    for (size_t i = 0; i < sizeof several / sizeof *several; i++)
        drop_op(j, several[i]);
    refused(j, 10, "no rmsnorm", "rmsnorm");
    json_decref(j);
    j = json_load_file(good, 0, NULL);
    for (size_t i = 0; i < sizeof several / sizeof *several; i++)
        drop_op(j, several[i]);
    swap_id(j, "glu", "glu_relu2.scalar");
    refused(j, 10, "no quantize", "quantize");
    json_decref(j);
    j = json_load_file(good, 0, NULL);
    drop_op(j, "linear");
    drop_op(j, "matmul");
    drop_op(j, "gem"); /* gemv, gemm */
    refused(j, 10, "no linear", "linear");
    json_array_append_new(json_object_get(j, "kernels"), json_string("linear_fallback.scalar"));
    json_object_set_new(json_object_get(j, "kernel_calls"), "linear_fallback.scalar",
                        json_integer(3));
    refused(j, 11, "1 of 1 linear kernels are fallbacks", "fallback alone");
    json_decref(j);
}

/* Kernels, machine, cache and weights must fit each other, whatever machine this is. */
static void evidence_must_fit(void **state)
{
    (void)state;
    static const struct {
        int gate;
        const char *os, *isa, *prefix, *id, *types, *says;
    } rows[] = {
        {9, "Linux 6 aarch64", "best", "linear_i2s", "linear_i2s.avx2", NULL, "architecture"},
        {9, "Linux 6 x86_64", "best", "linear_i2s", "linear_i2s.neon", NULL, "architecture"},
        {9, "Linux 6 aarch64", "avx2", "linear_i2s", "linear_i2s.scalar", NULL, "not of"},
        {9, "Linux 6 aarch64", "scalar", "linear_i2s", "linear_i2s.dotprod", NULL, "beyond"},
        {9, "Linux 6 aarch64", "neon", "linear_i2s", "linear_i2s.dotprod", NULL, "beyond"},
        {10, "Linux 6 aarch64", "best", "attention", "attention_f32.scalar", NULL, "kv_store"},
        {10, "Linux 6 x86_64", "best", "kv_store", "kv_store_i8.scalar", NULL, "attention"},
        {11, "Linux 6 x86_64", "best", "linear_f32", "linear_f32.scalar", "[\"f32\"]",
         "no linear kernel is ternary"},
        {0, "Linux 6 x86_64", "best", "linear_f32", "linear_f32.scalar", "[\"i2s\", \"f32\"]", ""},
        {0, "Linux 6 aarch64", "best", "linear_f32", "linear_f32.scalar", "[\"f32\", \"i2s\"]", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *j = json_load_file(good, 0, NULL), *env = json_object_get(j, "environment");
        drop_op(j, "linear");
        drop_op(j, "matmul");
        drop_op(j, "gem");
        json_object_set_new(env, "provider", json_string("fallback"));
        json_object_set_new(env, "OS", json_string(rows[i].os));
        json_object_set_new(env, "isa", json_string(rows[i].isa));
        if (rows[i].gate != 11)
            swap_id(j, "linear_i2s", "linear_i2s.scalar");
        swap_id(j, rows[i].prefix, rows[i].id);
        if (!strstr(rows[i].id, "linear"))
            swap_id(j, "linear_f32", "linear_f32.scalar");
        if (rows[i].types)
            set(j, "quantization.types_used", json_loads(rows[i].types, 0, NULL));
        if (rows[i].gate)
            refused(j, rows[i].gate, rows[i].says, rows[i].id);
        else
            dump_accepted(j);
        json_decref(j);
    }
}

/* A CPU has other sets beside its best, which what is tuned may take, but none that is better. */
static void no_kernel_is_beyond_the_provider(void **state)
{
    (void)state;
    static const struct {
        const char *os, *provider, *id;
        bool fits;
    } rows[] = {
        {"Linux 6 x86_64", "amx", "gemv_i2s_r16.avxvnni", true},
        {"Linux 6 x86_64", "amx", "gemm_i2s_r16.avx512vnni", true},
        {"Linux 6 x86_64", "avx512vnni", "gemm_i2s_r16.amx", false},
        {"Linux 6 x86_64", "avxvnni", "gemv_i2s_r16.avx512", false},
        {"Linux 6 x86_64", "fallback", "linear_i2s.avx2", false},
        {"Linux 6 aarch64", "i8mm", "gemv_i2s_r16.sve", true},
        {"Linux 6 aarch64", "dotprod", "gemv_i2s_r16.i8mm", false},
        {"Linux 6 armv8l", "i8mm", "gemv_i2s_r16.sve", true},
        {"Linux 6 i686", "amx", "gemv_i2s_r16.dotprod", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *j = json_load_file(good, 0, NULL), *env = json_object_get(j, "environment");
        json_object_set_new(env, "provider", json_string(rows[i].provider));
        json_object_set_new(env, "OS", json_string(rows[i].os));
        json_object_set_new(env, "isa", json_string("best"));
        swap_id(j, "linear_i2s", rows[i].id);
        set(j, "quantization.types_used", json_pack("[ss]", "f16", "i2s_r16"));
        if (rows[i].fits)
            dump_accepted(j);
        else
            refused(j, 9, "beyond environment.provider", rows[i].id);
        json_decref(j);
    }
}

/* With the model at hand, what is said of it is compared. */
static void facts_of_the_model(void **state)
{
    (void)state;
    static const tampering facts[] = {
        {15, "model_info.layers", "1", "24 passes through 1 layers"},
        {17, "model_info.hidden_size", "7", "hidden_size is 7"},
        {17, "model_info.num_attention_heads", "7", "attention_heads is 7"},
        {17, "model_info.num_key_value_heads", "7", "value_heads is 7"},
        {17, "model_info.vocab_size", "7", "vocab_size is 7"},
        {17, "model_info.architecture", "\"llama9\"", "architecture is \"llama9\""},
        {17, "model_info.quantization_type", "\"F16\"", "quantization_type is \"F16\""},
    };
    bitnet_verify_options o;
    char path[128];
    bitnet_verify_options_init(&o);
    o.model_path = NANO_PATH;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        json_t *j = json_load_file(good, 0, NULL);
        int gate = 0;
        set(j, facts[i].path, json_loads(facts[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(json_dump_file(j, file("bad.json", path, sizeof path), 0), 0);
        FAILS(bitnet_receipt_verify(path, &o, &gate, &err), BITNET_RECEIPT, facts[i].says);
        assert_int_equal(gate, facts[i].gate);
        json_decref(j);
    }
    json_t *j = json_load_file(good, 0, NULL), *p = json_object_get(j, "performance_baseline");
    json_int_t n = json_integer_value(json_object_get(p, "weight_bytes_per_token"));
    json_object_set_new(p, "weight_bytes_per_token", json_integer(n - 1));
    dump_accepted(j);
    FAILS(bitnet_receipt_verify(path, &o, NULL, &err), BITNET_RECEIPT, "weight_bytes_per_token");
    json_decref(j);
}

/* Not called deterministic, yet of identical runs; called so, but nothing was compared. */
static void identical_needs_two_runs(void **state)
{
    (void)state;
    json_t *j = json_load_file(good, 0, NULL);
    set(j, "deterministic", json_false());
    set(j, "test_results.determinism.runs", json_integer(1));
    refused(j, 13, "identical, but there was no second run", "identical of one run");
    json_decref(j);
    j = json_load_file(good, 0, NULL);
    set(j, "test_results.passed", json_integer(0));
    set(j, "test_results.total", json_integer(0));
    refused(j, 13, "not among the tests that passed", "no comparison");
    json_decref(j);
}

static void not_json(void **state)
{
    (void)state;
    static const char *const texts[] = {"",   "{",     "[]", "null", "{\"a\": 1, \"a\": 2}",
                                        "\0", "\"x\"", "{}", "\xff"};
    char path[128];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int gate = 0;
        FILE *f = fopen(file("bad.json", path, sizeof path), "wb");
        fwrite(texts[i], 1, i == 5 ? 1 : strlen(texts[i]), f);
        fclose(f);
        FAILS(bitnet_receipt_verify(path, NULL, &gate, &err), BITNET_RECEIPT, "gate 1 ");
        assert_int_equal(gate, 1);
    }
    FAILS(bitnet_receipt_verify(file("absent", path, sizeof path), NULL, NULL, &err), BITNET_IO,
          "absent");
}

static void verify_options(void **state)
{
    (void)state;
    bitnet_verify_options o;
    int gate = 0;
    bitnet_verify_options_init(&o);
    o.require_gpu = true;
    FAILS(bitnet_receipt_verify(good, &o, &gate, &err), BITNET_RECEIPT, "gate 9 ");
    o.require_gpu = false;
    o.model_path = NANO_PATH;
    OK(bitnet_receipt_verify(good, &o, &gate, &err));
    o.model_path = TEST_SOURCE_DIR "/README.md";
    FAILS(bitnet_receipt_verify(good, &o, &gate, &err), BITNET_RECEIPT, "gate 17 ");
    o.model_path = "/nowhere/at/all";
    FAILS(bitnet_receipt_verify(good, &o, &gate, &err), BITNET_IO, "/nowhere/at/all");
}

/* Numbers are fixed, ascending, each gate has its words; every gate was provoked above. */
static void gates_are_numbered(void **state)
{
    (void)state;
    int number;
    const char *what;
    for (int i = 0; bitnet_gate_at(i, &number, &what); i++) {
        bool provoked = number == 4 || number == 7 || number == 10 ||
                        number == 21; /* the last: of signed ones */
        assert_int_equal(number, i + 1);
        assert_true(strlen(what) > 8);
        for (size_t k = 0; k < sizeof table / sizeof *table; k++)
            provoked |= table[k].gate == number;
        if (!provoked)
            fail_msg("gate %d is not tested", number);
    }
    assert_false(bitnet_gate_at(-1, &number, &what));
}

static void writing_fails(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_receipt *r = NULL;
    FAILS(bitnet_receipt_open(NULL, &r, &err), BITNET_ARGUMENT, "must not be NULL");
    OK(bitnet_receipt_open(n.engine, &r, &err));
    FAILS(bitnet_receipt_write(r, NULL, "/nowhere/at/all", &err), BITNET_IO, "/nowhere/at");
    FAILS(bitnet_receipt_write(r, NULL, NULL, &err), BITNET_ARGUMENT, "must not be NULL");
    bitnet_receipt_close(r);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_1_receipt_of_one_answer),
        cmocka_unit_test(a_function_gets_the_text),
        cmocka_unit_test(an_answer_in_company),
        cmocka_unit_test(signing_reads_once),
        cmocka_unit_test(X_4_a_real_receipt_passes),
        cmocka_unit_test(seeds_from_2_63_on_are_texts),
        cmocka_unit_test(X_3_isa_changes_the_ids),
        cmocka_unit_test(X_1_tampered_receipts_are_refused),
        cmocka_unit_test(X_3_every_leaf_is_bound),
        cmocka_unit_test(X_1_bounds_of_gates),
        cmocka_unit_test(X_3_counts_are_those_of_the_passes),
        cmocka_unit_test(X_3_single_lies_with_a_digest),
        cmocka_unit_test(X_1_too_many_too_long_twice),
        cmocka_unit_test(X_3_operations_must_be_there),
        cmocka_unit_test(evidence_must_fit),
        cmocka_unit_test(no_kernel_is_beyond_the_provider),
        cmocka_unit_test(facts_of_the_model),
        cmocka_unit_test(identical_needs_two_runs),
        cmocka_unit_test(not_json),
        cmocka_unit_test(verify_options),
        cmocka_unit_test(gates_are_numbered),
        cmocka_unit_test(writing_fails),
    };
    return cmocka_run_group_tests_name("receipt", tests, make_good, remove_all);
}
