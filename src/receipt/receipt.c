/* receipt.c - the one writer of receipts. Everything in one was counted by the dispatcher, measured
 * or read from the machine; what the caller says of the run (tokens, times, checks) stands where
 * the schema says so (docs/receipt.schema.json). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <time.h>

#include "bitnet_check.h"
#include "bench/read_limit.h"
#include "base/sha256.h"
#include "engine/engine.h"
#include "receipt/receipt_seal.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

struct bitnet_receipt {
    bitnet_engine *engine;
    bitnet_kernel_use before[BNET_KERNELS_MAX];
    size_t n_before;
    uint64_t dequantised, steps, cut, spare_calls, replays, unrecorded; /* before */
    bool measured;
    double read_limit;
    char sha256[2 * BNET_SHA256_BYTES + 1];
};

static void add_calls(void *sum, const bitnet_kernel_use *u)
{
    *(uint64_t *)sum += u->n_calls;
}

static uint64_t spare_calls(const bitnet_engine *e)
{
    uint64_t calls = 0;
    if (e->n_fallbacks)
        bnet_backend_each_kernel(e->spare, add_calls, &calls);
    return calls;
}

static bnet_backend_stats device_of(const bitnet_engine *e)
{
    bnet_backend_stats d;
    bnet_backend_stats_read(e->backend, &d);
    return d;
}

void bitnet_receipt_facts_init(bitnet_receipt_facts *f)
{
    if (!f)
        return;
    *f = (bitnet_receipt_facts){.struct_size = sizeof *f, .n_runs = 1};
}

bitnet_status bitnet_receipt_open(bitnet_engine *e, bitnet_receipt **out, bitnet_error *err)
{
    if (!e || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: engine and out must not be NULL");
    if (!e->model)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: %s was opened with vocab_only", e->path);
    bitnet_receipt *r = bnet_calloc(1, sizeof *r);
    if (!r)
        return bnet_no_memory(err, "receipt");
    r->engine = e;
    r->n_before = bitnet_engine_kernels(e, r->before, BNET_KERNELS_MAX);
    r->dequantised = bitnet_engine_fallbacks(e);
    r->steps = e->n_fallbacks;
    r->cut = e->n_cut;
    r->spare_calls = spare_calls(e);
    r->replays = device_of(e).n_replays;
    r->unrecorded = device_of(e).n_unrecorded;
    *out = r;
    return BITNET_OK;
}

void bitnet_receipt_close(bitnet_receipt *r)
{
    bnet_free(r);
}

/* ---- once per receipt ---- */

bitnet_status bitnet_receipt_digest(bitnet_receipt *r, bitnet_progress_fn each, void *user,
                                    bitnet_error *err)
{
    if (!r)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: receipt must not be NULL");
    if (r->sha256[0] || bnet_model_cache_sum(&r->engine->cache, r->sha256))
        return BITNET_OK;
    const bnet_gguf *g = r->engine->gguf;
    char hex[65];
    bitnet_status st = bnet_sha256_hex_by(bnet_gguf_file_data(g), (size_t)bnet_gguf_file_bytes(g),
                                          each, user, hex, err);
    if (st != BITNET_OK)
        return st;
    memcpy(r->sha256, hex, sizeof hex);
    bnet_model_cache_remember(&r->engine->cache, r->sha256);
    return BITNET_OK;
}

static bitnet_status measure(bitnet_receipt *r, bitnet_error *err)
{
    if (r->measured)
        return BITNET_OK;
    bitnet_status st = bitnet_receipt_digest(r, NULL, NULL, err);
    r->read_limit = bnet_read_limit(r->engine);
    r->measured = st == BITNET_OK;
    return st;
}

/* ---- the document: a failed allocation anywhere is noticed at the end ---- */

typedef struct document {
    const bitnet_receipt *r;
    const bitnet_engine *e;
    const bitnet_receipt_facts *f;
    bitnet_stats stats;
    bnet_backend_stats device;
    uint64_t steps, dequantised, on_spare; /* of this receipt */
    bool failed;
} document;

static void put(document *d, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        d->failed = true;
}

/* Text of the world: bytes that are no UTF-8 become question marks. */
static json_t *text(const char *s)
{
    bnet_str clean = {0};
    bnet_str_puts(&clean, "");
    for (size_t n = strlen(s); n;) {
        int k = bnet_utf8_len(s, n);
        if (k > 0)
            bnet_str_add(&clean, s, (size_t)k);
        else
            bnet_str_putc(&clean, '?');
        size_t step = k > 0 ? (size_t)k : 1;
        s += step;
        n -= step;
    }
    json_t *j = clean.failed ? NULL : json_stringn(clean.data ? clean.data : "", clean.n);
    bnet_str_free(&clean);
    return j;
}

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* JSON readers take whole numbers below 2^63; larger seeds are texts. */
static json_t *seed(uint64_t n)
{
    char digits[24];
    if (n <= INT64_MAX)
        return count(n);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    return json_string(digits);
}

/* Rounded as people want it; a number that is none becomes 0. */
static json_t *number(double x)
{
    return json_real(isfinite(x) ? round(x * 1e6) / 1e6 : 0);
}

static void put_time(document *d, json_t *root)
{
    char stamp[32] = "1970-01-01T00:00:00Z";
    time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t))
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &t);
    put(d, root, "timestamp", json_string(stamp));
}

/* Calls of a kernel since the receipt was opened. */
static uint64_t calls_since(const bitnet_receipt *r, const bitnet_kernel_use *u)
{
    for (size_t i = 0; i < r->n_before; i++)
        if (strcmp(r->before[i].id, u->id) == 0)
            return u->n_calls - r->before[i].n_calls;
    return u->n_calls;
}

static void add_type(document *d, json_t *types, const bnet_kernel_record *k)
{
    const char *name = bnet_format_name(k->format);
    for (size_t i = 0; i < json_array_size(types); i++)
        if (strcmp(json_string_value(json_array_get(types, i)), name) == 0)
            return;
    if (json_array_append_new(types, text(name)) != 0)
        d->failed = true;
}

typedef struct kernel_lists {
    document *d;
    json_t *ids, *calls, *types;
    json_t *shared; /* those calls of a session that served others, too */
} kernel_lists;

static void list_kernel(const kernel_lists *l, const char *id, uint64_t n_calls)
{
    const bnet_kernel_record *k = bnet_registry_find(l->d->e->runtime->registry, id);
    if (n_calls == 0)
        return;
    if (json_array_append_new(l->ids, text(id)) != 0)
        l->d->failed = true;
    put(l->d, l->calls, id, count(n_calls));
    if (k && (k->op == BNET_OP_LINEAR || k->op == BNET_OP_BEST))
        add_type(l->d, l->types, k);
}

static void list_use(void *user, const bitnet_kernel_use *u)
{
    const kernel_lists *l = user;
    list_kernel(l, u->id, calls_since(l->d->r, u));
}

static void list_session(const kernel_lists *l, const bitnet_session *s)
{
    for (size_t i = 0; i < s->n_kernels; i++) {
        list_kernel(l, s->kernels[i].id, s->kernels[i].n_calls);
        put(l->d, l->shared, s->kernels[i].id, count(s->kernels[i].n_shared));
    }
}

static void put_kernels(document *d, json_t *root)
{
    json_t *ids = json_array(), *calls = json_object(), *types = json_array();
    json_t *shared = json_object();
    kernel_lists l = {d, ids, calls, types, shared};
    if (d->f->session)
        list_session(&l, d->f->session);
    else
        bnet_engine_uses(d->e, list_use, &l);
    json_t *quantization = json_object();
    put(d, quantization, "types_used", types);
    put(d, quantization, "fallback_count", count(d->dequantised));
    put(d, root, "kernels", ids);
    put(d, root, "kernel_calls", calls);
    put(d, root, "cut_passes", count(d->e->n_cut - d->r->cut));
    if (d->f->session) { /* which passes were repeated is counted for the engine alone */
        put(d, root, "shared_calls", shared);
    } else {
        json_decref(shared);
        put(d, root, "graph_replays", count(d->device.n_replays - d->r->replays));
        put(d, root, "unrecorded_steps", count(d->device.n_unrecorded - d->r->unrecorded));
    }
    put(d, root, "quantization", quantization);
}

static void put_path(document *d, json_t *root)
{
    bool real = d->steps == 0 && d->dequantised == 0 && d->on_spare == 0;
    json_t *fallback = json_object();
    put(d, fallback, "steps", count(d->steps));
    put(d, fallback, "kernel_calls", count(d->on_spare));
    put(d, root, "compute_path", json_string(real ? "real" : "fallback"));
    put(d, root, "fallback", fallback);
    put(d, root, "backend", text(bnet_backend_name(d->e->backend)));
    put(d, root, "backend_summary", text(d->e->selection.summary));
}

static void put_environment(document *d, json_t *root)
{
    const bitnet_runtime *r = d->e->runtime;
    json_t *o = json_object();
    struct utsname os;
    bnet_str s = {0}, gpus = {0};
    if (uname(&os) == 0)
        bnet_str_addf(&s, "%s %s %s", os.sysname, os.release, os.machine);
    bnet_devices_summary(r->devices, &gpus);
    put(d, o, "BITNET_VERSION", json_string(BITNET_VERSION));
    put(d, o, "BITNET_DETERMINISTIC",
        json_boolean(d->f->deterministic || d->f->deterministic_asked));
    put(d, o, "BITNET_SEED", seed(d->f->seed));
    put(d, o, "BITNET_STRICT_MODE", json_boolean(r->strict));
    put(d, o, "OS", text(s.data ? s.data : "unknown"));
    put(d, o, "CPU_BRAND", text(r->devices->cpu.brand));
    put(d, o, "GPU_INFO", text(gpus.data ? gpus.data : ""));
    put(d, o, "GPU_DEVICE", text(d->device.device[0] ? d->device.device : "none"));
    put(d, o, "compiler", text(COMPILER));
    put(d, o, "threads", json_integer(bnet_pool_threads(r->pool)));
    put(d, o, "isa", text(r->isa ? r->isa : "best"));
    put(d, o, "provider", text(d->stats.provider ? d->stats.provider : bitnet_runtime_provider(r)));
    put(d, o, "tuning", text(r->tuning ? r->tuning : "none"));
    put(d, o, "precision", text(d->stats.ran_in ? d->stats.ran_in : "fp32"));
    put(d, root, "environment", o);
    d->failed = d->failed || s.failed || gpus.failed;
    bnet_str_free(&s);
    bnet_str_free(&gpus);
}

static void put_model(document *d, json_t *root)
{
    const bitnet_model_info *i = &d->e->info;
    json_t *o = json_object();
    put(d, o, "path", text(i->path));
    put(d, o, "architecture", text(i->architecture));
    put(d, o, "quantization_type", text(i->weight_type));
    put(d, o, "layers", json_integer(i->n_layers));
    put(d, o, "hidden_size", json_integer(i->n_embd));
    put(d, o, "num_attention_heads", json_integer(i->n_heads));
    put(d, o, "num_key_value_heads", json_integer(i->n_kv_heads));
    put(d, o, "vocab_size", json_integer(i->n_vocab));
    put(d, o, "file_bytes", count(i->n_file_bytes));
    put(d, o, "sha256", json_string(d->r->sha256));
    put(d, root, "model_info", o);
}

/* The SHA-256 of bytes; those of ids are their 32-bit values, lowest byte first. */
static json_t *digest(document *d, const void *bytes, size_t n)
{
    char hex[2 * BNET_SHA256_BYTES + 1];
    bitnet_status st = bnet_sha256_hex(bytes, n, hex, NULL);
    d->failed = d->failed || st != BITNET_OK;
    return st == BITNET_OK ? json_string(hex) : NULL;
}

static json_t *digest_ids(document *d, const int32_t *ids, size_t n)
{
    bnet_str bytes = {0};
    for (size_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)ids[i];
        char le[4] = {(char)id, (char)(id >> 8), (char)(id >> 16), (char)(id >> 24)};
        bnet_str_add(&bytes, le, sizeof le);
    }
    json_t *j = bytes.failed ? NULL : digest(d, bytes.data, bytes.n);
    bnet_str_free(&bytes);
    return j;
}

static void put_generation(document *d, json_t *root)
{
    const bitnet_receipt_facts *f = d->f;
    json_t *o = json_object(), *request = json_object(), *flags = json_array();
    put(d, o, "prompt_tokens", count(f->n_prompt));
    put(d, o, "prompt_ids_sha256", digest_ids(d, f->prompt_ids, f->n_prompt));
    put(d, o, "output_tokens", count(f->n_output));
    put(d, o, "output_ids_sha256", digest_ids(d, f->output_ids, f->n_output));
    put(d, o, "text_bytes", count(f->n_text));
    put(d, o, "text_sha256", digest(d, f->text, f->n_text));
    put(d, o, "finish", text(f->finish ? f->finish : ""));
    put(d, root, "generation", o);
    for (size_t i = 0; i < f->n_flags; i++)
        if (json_array_append_new(flags, text(f->flags[i])) != 0)
            d->failed = true;
    put(d, request, "command", text(f->command ? f->command : ""));
    put(d, request, "flags", flags);
    put(d, root, "request", request);
}

static void put_tests(document *d, json_t *root)
{
    const bitnet_receipt_facts *f = d->f;
    json_t *o = json_object(), *det = json_object();
    put(d, o, "total", json_integer(f->n_passed + f->n_failed + f->n_skipped));
    put(d, o, "passed", json_integer(f->n_passed));
    put(d, o, "failed", json_integer(f->n_failed));
    put(d, o, "skipped", json_integer(f->n_skipped));
    put(d, det, "identical", json_boolean(f->deterministic && f->identical));
    put(d, det, "runs", json_integer(f->n_runs));
    put(d, det, "tokens", count(f->n_generated));
    put(d, o, "determinism", det);
    put(d, root, "test_results", o);
}

static void put_performance(document *d, json_t *root)
{
    const bitnet_receipt_facts *f = d->f;
    double n = (double)f->n_generated;
    json_t *o = json_object();
    put(d, o, "tokens_generated", count(f->n_generated));
    put(d, o, "total_time_ms", number(f->total_ms));
    put(d, o, "tokens_per_second", number(f->total_ms > 0 ? n * 1e3 / f->total_ms : 0));
    put(d, o, "first_token_latency_ms", number(f->first_token_ms));
    put(d, o, "average_token_latency_ms", number(n > 1 ? f->decode_ms / (n - 1) : 0));
    put(d, o, "memory_usage_mb", number((double)d->stats.on_device.memory_used / 1e6));
    put(d, o, "read_limit_gb_s", number(d->r->read_limit));
    put(d, o, "weight_bytes_per_token", count(bnet_weight_bytes_per_token(d->e)));
    put(d, root, "performance_baseline", o);
}

static json_t *build(document *d)
{
    json_t *root = json_object();
    put(d, root, "schema_version", json_string(BNET_RECEIPT_SCHEMA));
    put_time(d, root);
    put_path(d, root);
    put_kernels(d, root);
    put(d, root, "deterministic", json_boolean(d->f->deterministic));
    put_environment(d, root);
    put_model(d, root);
    put_generation(d, root);
    put_tests(d, root);
    put_performance(d, root);
    return root;
}

/* ---- writing ---- */

static bitnet_status read_facts(const bitnet_receipt *r, const bitnet_receipt_facts *facts,
                                bitnet_receipt_facts *f, bitnet_error *err)
{
    bitnet_receipt_facts_init(f);
    bitnet_status st = bnet_options_copy(f, sizeof *f, facts, "receipt facts", err);
    if (st != BITNET_OK)
        return st;
    if ((f->n_prompt && !f->prompt_ids) || (f->n_output && !f->output_ids) ||
        (f->n_text && !f->text) || (f->n_flags && !f->flags))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "receipt facts: a list is NULL, but its length is not 0");
    if (f->session && f->session->engine != r->engine)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: session belongs to another engine");
    return BITNET_OK;
}

/* The sealed receipt, to be freed. */
static bitnet_status make(bitnet_receipt *r, const bitnet_receipt_facts *facts, json_t **out,
                          bitnet_error *err)
{
    bitnet_receipt_facts f;
    bitnet_status st = read_facts(r, facts, &f, err);
    if (st != BITNET_OK)
        return st;
    document d = {.r = r, .e = r->engine, .f = &f, .device = device_of(r->engine)};
    d.steps = d.e->n_fallbacks - r->steps;
    d.dequantised = bitnet_engine_fallbacks(d.e) - r->dequantised;
    d.on_spare = spare_calls(d.e) - r->spare_calls;
    if (f.session && !f.session->fallen) /* what fell back was another answer */
        d.steps = d.on_spare = 0;
    bitnet_stats_init(&d.stats);
    st = bitnet_engine_stats(d.e, &d.stats, err);
    if (st == BITNET_OK)
        st = measure(r, err);
    if (st != BITNET_OK)
        return st;
    *out = build(&d);
    st = d.failed ? bnet_no_memory(err, "receipt") : bnet_receipt_seal(*out, err);
    if (st != BITNET_OK)
        json_decref(*out);
    return st;
}

bitnet_status bitnet_receipt_write(bitnet_receipt *r, const bitnet_receipt_facts *facts,
                                   const char *path, bitnet_error *err)
{
    if (!r || !path)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: receipt and path must not be NULL");
    json_t *root;
    bitnet_status st = make(r, facts, &root, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_receipt_save(root, path, err);
    json_decref(root);
    return st;
}

bitnet_status bitnet_receipt_write_to(bitnet_receipt *r, const bitnet_receipt_facts *facts,
                                      bitnet_bytes_fn write, void *user, bitnet_error *err)
{
    if (!r || !write)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: receipt and write must not be NULL");
    json_t *root;
    bitnet_status st = make(r, facts, &root, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_receipt_give(root, write, user, err);
    json_decref(root);
    return st;
}
