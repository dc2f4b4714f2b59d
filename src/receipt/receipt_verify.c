/* receipt_verify.c - the gates a receipt must pass, numbered in receipt_gates.inc. Believes nothing
 * the receipt says of itself where the registry or arithmetic know better. */
#include <math.h>
#include <strings.h>
#include <time.h>

#include "receipt/receipt_check.h"
#include "receipt/receipt_seal.h"
#include "bitnet_tools.h"

enum { KERNELS_MOST = 10000, ID_MOST = 128 };

/* ---- gates ---- */

static bool gate_schema(checking *c)
{
    char buf[64];
    if (!json_is_object(c->root))
        return no(c, "not an object");
    if (strcmp(text_at(c, "schema_version"), BNET_RECEIPT_SCHEMA) != 0)
        return no(c, "schema_version is \"%s\", must be \"" BNET_RECEIPT_SCHEMA "\"",
                  shown(text_at(c, "schema_version"), buf));
    return bnet_form_types(c) && bnet_form_keys(c) && bnet_form_sizes(c);
}

static bool gate_path_real(checking *c)
{
    char buf[64];
    const char *path = text_at(c, "compute_path");
    return strcmp(path, "real") == 0 || no(c, "compute_path is \"%s\"", shown(path, buf));
}

static bool gate_some_kernels(checking *c)
{
    return n_ids(c) > 0 || no(c, "the list of kernels is empty");
}

static bool gate_few_kernels(checking *c)
{
    return n_ids(c) <= KERNELS_MOST || no(c, "%zu kernels", n_ids(c));
}

static bool gate_ids_not_empty(checking *c)
{
    for (size_t i = 0; i < n_ids(c); i++)
        if (id_at(c, i)[strspn(id_at(c, i), " \t\r\n\v\f")] == '\0')
            return no(c, "kernel %zu is empty, blank or no text", i);
    return true;
}

static bool gate_no_mock(checking *c)
{
    char buf[64];
    for (size_t i = 0; i < n_ids(c); i++)
        if (strcasestr(id_at(c, i), "mock"))
            return no(c, "kernel \"%s\"", shown(id_at(c, i), buf));
    return true;
}

static bool gate_ids_short(checking *c)
{
    for (size_t i = 0; i < n_ids(c); i++)
        if (strlen(id_at(c, i)) > ID_MOST)
            return no(c, "kernel %zu has %zu bytes", i, strlen(id_at(c, i)));
    return true;
}

static bool gate_no_failures(checking *c)
{
    double failed = number_at(c, "test_results.failed");
    double sum =
        failed + number_at(c, "test_results.passed") + number_at(c, "test_results.skipped");
    if (failed > 0)
        return no(c, "%.0f tests failed", failed);
    return sum == number_at(c, "test_results.total") ||
           no(c, "test_results.total is %.0f, its parts sum to %.0f",
              number_at(c, "test_results.total"), sum);
}

static bool gate_device_ids(checking *c)
{
    const char *backend = text_at(c, "backend");
    char buf[64];
    size_t n_own = 0;
    if (n_ids(c) > BNET_KERNELS_MAX)
        return no(c, "%zu kernels, a registry has at most %d", n_ids(c), (int)BNET_KERNELS_MAX);
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (!k)
            return no(c, "\"%s\" is no kernel of the registry", shown(id_at(c, i), buf));
        bool own = strcmp(bnet_device_name(k->device), backend) == 0;
        if (!own && k->device != BNET_DEV_CPU)
            return no(c, "kernel %s is of %s, the backend is %.20s", k->id,
                      bnet_device_name(k->device), backend);
        n_own += own;
    }
    if (n_own == 0)
        return no(c, "backend %s is claimed without one kernel of it", shown(backend, buf));
    if (c->o->require_gpu && (strcmp(backend, "cpu") == 0 || strcmp(backend, "host") == 0))
        return no(c, "GPU kernels are required, the backend is %s", backend);
    return bnet_evidence_isa(c);
}

/* Has some backend of this library a kernel of that op for the device? Then a run must show one. */
static bool has_op(const checking *c, bnet_op op, const char *backend)
{
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (k && does_op(k, op) && strcmp(bnet_device_name(k->device), backend) == 0)
            return true;
    }
    return false;
}

static bool gate_all_ops(checking *c)
{
    static const bnet_op ops[] = {BNET_OP_EMBED,    BNET_OP_RMSNORM,   BNET_OP_LINEAR, BNET_OP_ROPE,
                                  BNET_OP_KV_STORE, BNET_OP_ATTENTION, BNET_OP_GLU,    BNET_OP_ADD};
    const char *backend = text_at(c, "backend");
    for (size_t i = 0; i < BNET_COUNT(ops); i++)
        if (!has_op(c, ops[i], backend))
            return no(c, "no %s kernel of %s", bnet_op_name(ops[i]), backend);
    if (ternary_type(text_at(c, "model_info.quantization_type")) &&
        !has_op(c, BNET_OP_QUANTIZE, backend))
        return no(c, "ternary weights, but no quantize kernel of %s", backend);
    return bnet_evidence_cache(c);
}

static bool gate_no_fallback(checking *c)
{
    size_t n_linear = 0, n_fallback = 0;
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (!k || k->op != BNET_OP_LINEAR)
            continue;
        n_linear++;
        n_fallback += k->format == BNET_FORMAT_FALLBACK;
    }
    if (n_fallback)
        return no(c, "%zu of %zu linear kernels are fallbacks, yet compute_path says real",
                  n_fallback, n_linear);
    if (number_at(c, "quantization.fallback_count") > 0)
        return no(c, "quantization.fallback_count is %.0f, yet compute_path says real",
                  number_at(c, "quantization.fallback_count"));
    if (number_at(c, "fallback.steps") > 0 || number_at(c, "fallback.kernel_calls") > 0)
        return no(c, "%.0f steps and %.0f kernel calls fell back, yet compute_path says real",
                  number_at(c, "fallback.steps"), number_at(c, "fallback.kernel_calls"));
    return bnet_evidence_formats(c);
}

/* A token reads most of the file: all but the embedding and the vocabulary, and dense weights of a
 * ternary model in 2 of their up to 32 bits. */
static bool plausible_bytes(checking *c, double bytes)
{
    double file = number_at(c, "model_info.file_bytes");
    double least = file / (ternary_type(text_at(c, "model_info.quantization_type")) ? 8 : 64);
    if (bytes < least || bytes > file)
        return no(c, "%.0f bytes per token are not plausible for a model file of %.0f", bytes,
                  file);
    return true;
}

/* Half as much again is granted to the measurement of the limit; more where the weights fit into a
 * cache: what is measured then is mostly how the threads of a busy machine were scheduled. */
static double grant(double bytes)
{
    return bytes < 64e6 ? 6 : 1.5;
}

/* GB/s. A core reads at most some 150 from its own caches, the memory of all at most 4000; the
 * fastest memory of a GPU does 8000, its caches a few times that. */
static double most_read(const checking *c)
{
    bool gpu = strcmp(text_at(c, "backend"), "cpu") != 0 && strcmp(text_at(c, "backend"), "host");
    return gpu ? 4e4 : BNET_MIN(4000, 150 * number_at(c, "environment.threads"));
}

static bool gate_roofline(checking *c)
{
    double limit = number_at(c, "performance_baseline.read_limit_gb_s");
    double bytes = number_at(c, "performance_baseline.weight_bytes_per_token");
    double rate = number_at(c, "performance_baseline.tokens_per_second");
    double latency = number_at(c, "performance_baseline.average_token_latency_ms");
    double n = number_at(c, "performance_baseline.tokens_generated");
    double first = number_at(c, "performance_baseline.first_token_latency_ms");
    double most_limit = most_read(c);
    if (!(limit >= 0.01) || limit > most_limit || !(bytes > 0))
        return no(c, "a read limit of %g GB/s and %g bytes per token are not plausible", limit,
                  bytes);
    if (!plausible_bytes(c, bytes))
        return false;
    double most = grant(bytes) * limit * 1e9 / bytes;
    if (n > 1 && !(latency > 0))
        return no(c, "%.0f tokens without any time between them", n);
    if (latency > 0)
        rate = BNET_MAX(rate, 1e3 / latency);
    if (n > 0 && first > 0) /* a pass comes before the first token, too */
        rate = BNET_MAX(rate, 1e3 / first);
    return rate <= most || no(c, "%.1f tokens/s, but %.1f GB/s and %.0f bytes per token allow %.1f",
                              rate, limit, bytes, most);
}

/* What the flags of `bitnet run` say is what the environment says. */
static bool flags_agree(checking *c)
{
    static const struct {
        const char *flag, *path;
    } rows[] = {{"deterministic", "environment.BITNET_DETERMINISTIC"},
                {"strict", "environment.BITNET_STRICT_MODE"}};
    if (strcmp(text_at(c, "request.command"), "run") != 0)
        return true;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        const char *value = bnet_receipt_flag(c, rows[i].flag);
        bool on = value && strcmp(value, "on") == 0;
        if (on != json_is_true(at(c->root, rows[i].path)))
            return no(c, "%s is %s, the flag %s was %s", rows[i].path, on ? "false" : "true",
                      rows[i].flag, on ? "on" : "off");
    }
    const json_t *seed = at(c->root, "environment.BITNET_SEED");
    const char *flag = bnet_receipt_flag(c, "seed"), *digits = json_string_value(seed);
    char whole[24];
    snprintf(whole, sizeof whole, "%lld", (long long)json_integer_value(seed));
    return (flag && strcmp(flag, digits ? digits : whole) == 0) ||
           no(c, "environment.BITNET_SEED is %.24s, the seed among the flags is %.24s",
              digits ? digits : whole, flag ? flag : "missing");
}

static bool gate_determinism(checking *c)
{
    bool identical = json_is_true(at(c->root, "test_results.determinism.identical"));
    double tokens = number_at(c, "test_results.determinism.tokens");
    double generated = number_at(c, "performance_baseline.tokens_generated");
    bool claimed = json_is_true(at(c->root, "deterministic"));
    if (claimed && !identical)
        return no(c, "deterministic, but the runs were not identical");
    if ((claimed || identical) && number_at(c, "test_results.determinism.runs") < 2)
        return no(c, "%s, but there was no second run to compare with",
                  claimed ? "deterministic" : "identical");
    if (!claimed && identical && strcmp(text_at(c, "request.command"), "run") == 0)
        return no(c, "identical runs, but not deterministic");
    if (claimed && !json_is_true(at(c->root, "environment.BITNET_DETERMINISTIC")))
        return no(c, "deterministic, but environment.BITNET_DETERMINISTIC is false");
    if (claimed && number_at(c, "test_results.passed") < 1)
        return no(c, "deterministic, but the comparison is not among the tests that passed");
    if (claimed && tokens != generated)
        return no(c, "%.0f tokens were compared, %.0f generated", tokens, generated);
    return flags_agree(c);
}

static bool gate_summary(checking *c)
{
    return bnet_form_summary(c) && bnet_evidence_gpu(c);
}

/* In a receipt of one answer: no kernel served others more often than it was called. */
static bool shares_fit(checking *c, const json_t *calls)
{
    const json_t *shared = at(c->root, "shared_calls");
    if (shared && strcmp(text_at(c, "request.command"), "run") == 0)
        return no(c, "shared_calls in a receipt of run, which serves nobody else");
    for (size_t i = 0; shared && i < n_ids(c); i++) {
        const json_t *n = json_object_get(shared, id_at(c, i));
        json_int_t most = json_integer_value(json_object_get(calls, id_at(c, i)));
        if (!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) > most)
            return no(c, "shared_calls of kernel %s must be 0..%lld", id_at(c, i), (long long)most);
    }
    return !shared || json_object_size(shared) == n_ids(c) ||
           no(c, "shared_calls has %zu entries for %zu kernels", json_object_size(shared),
              n_ids(c));
}

static bool gate_calls(checking *c)
{
    const json_t *calls = at(c->root, "kernel_calls");
    for (size_t i = 0; i < n_ids(c); i++) {
        const char *id = id_at(c, i);
        const json_t *n = json_object_get(calls, id);
        if (!json_is_integer(n) || json_integer_value(n) < 1)
            return no(c, "kernel %s has no calls", id);
        if (json_integer_value(n) > BNET_RECEIPT_WHOLE)
            return no(c, "kernel %s has too many calls", id);
        for (size_t k = 0; k < i; k++)
            if (strcmp(id_at(c, k), id) == 0)
                return no(c, "kernel %s is named twice", id);
    }
    if (json_object_size(calls) != n_ids(c))
        return no(c, "kernel_calls has %zu entries for %zu kernels", json_object_size(calls),
                  n_ids(c));
    return shares_fit(c, calls) && bnet_evidence_layers(c) && bnet_evidence_replays(c) &&
           bnet_counts_of_passes(c);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 0.01 * BNET_MAX(fabs(a), fabs(b)) + 0.001;
}

static bool gate_arithmetic(checking *c)
{
    double n = number_at(c, "performance_baseline.tokens_generated");
    double ms = number_at(c, "performance_baseline.total_time_ms");
    double rate = number_at(c, "performance_baseline.tokens_per_second");
    double first = number_at(c, "performance_baseline.first_token_latency_ms");
    double each = number_at(c, "performance_baseline.average_token_latency_ms");
    double rest = n > 1 ? each * (n - 1) : 0;
    if (n > 0 && !(ms > 0))
        return no(c, "%.0f tokens in no time", n);
    if (!near(rate, ms > 0 ? n * 1e3 / ms : 0))
        return no(c, "%.0f tokens in %.3f ms are not %.3f tokens/s", n, ms, rate);
    if (first + rest > 1.01 * ms + 1)
        return no(c,
                  "the first token after %.3f ms and %.3f ms for the rest exceed the total %.3f ms",
                  first, rest, ms);
    bool timed_whole = strcmp(text_at(c, "request.command"), "run") == 0 && n > 1;
    return !timed_whole || fabs(first + rest - ms) <= 0.001 + 1e-6 * n ||
           no(c, "the first token after %.3f ms and %.3f ms for the rest are not the total %.3f ms",
              first, rest, ms);
}

static bool gate_model(checking *c)
{
    const char *sha = text_at(c, "model_info.sha256");
    char hex[65];
    if (!bnet_form_hex(at(c->root, "model_info.sha256")))
        return no(c, "model_info.sha256 is not 64 hexadecimal digits");
    if (!c->o->model_path)
        return true;
    c->broken = bitnet_file_sha256(c->o->model_path, hex, c->err);
    if (c->broken != BITNET_OK)
        return false;
    if (strcmp(hex, sha) != 0)
        return no(c, "the receipt is of model %.12s..., %s is %.12s...", sha, c->o->model_path,
                  hex);
    return bnet_evidence_model(c);
}

static bool gate_when(checking *c)
{
    const char *s = text_at(c, "timestamp");
    double then, day = 86400;
    char buf[64];
    if (!bnet_form_time(s, &then))
        return no(c, "timestamp \"%s\" is not RFC 3339", shown(s, buf));
    return then <= (double)time(NULL) + day || no(c, "timestamp %.40s lies in the future", s);
}

/* Nothing has the digest of nothing, and only that. */
static bool empty_fits(checking *c, const char *n, const char *sha)
{
    static const char nothing[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    bool empty = number_at(c, n) == 0;
    return empty == (strcmp(text_at(c, sha), nothing) == 0) ||
           no(c, "%s is %.0f, %s is %s digest of nothing", n, number_at(c, n), sha,
              empty ? "not the" : "the");
}

/* The commands that write text say which; what a program or bench measures may have none. */
static bool gate_output(checking *c)
{
    double n = number_at(c, "generation.output_tokens");
    double timed = number_at(c, "performance_baseline.tokens_generated");
    const char *command = text_at(c, "request.command");
    bool writes = strcmp(command, "run") == 0 || strcmp(command, "chat") == 0;
    if ((writes || n > 0) && n != timed)
        return no(c, "generation.output_tokens is %.0f, tokens_generated is %.0f", n, timed);
    if (writes && !text_at(c, "generation.finish")[0])
        return no(c, "generation.finish is empty");
    if (writes && number_at(c, "generation.prompt_tokens") == 0)
        return no(c, "generation.prompt_tokens is 0, %s begins with a prompt", command);
    return empty_fits(c, "generation.prompt_tokens", "generation.prompt_ids_sha256") &&
           empty_fits(c, "generation.output_tokens", "generation.output_ids_sha256") &&
           empty_fits(c, "generation.text_bytes", "generation.text_sha256");
}

static bool gate_digest(checking *c)
{
    char hex[65];
    c->broken = bnet_receipt_digest(c->root, hex, c->err);
    if (c->broken != BITNET_OK)
        return false;
    return strcmp(text_at(c, BNET_RECEIPT_DIGEST), hex) == 0 ||
           no(c, BNET_RECEIPT_DIGEST " is not that of the other fields: one was changed after "
                                     "writing");
}

static bool gate_signature(checking *c)
{
    return bnet_sign_check(c);
}

/* ---- all of them ---- */

static const struct gate {
    int number;
    const char *text;
    bool (*pass)(checking *c);
} gates[] = {
#define GATE(number, function, text) {number, text, gate_##function},
#include "receipt/receipt_gates.inc"
#undef GATE
};

bool bitnet_gate_at(int i, int *number, const char **text)
{
    if (!number || !text)
        return false;
    if (i < 0 || (size_t)i >= BNET_COUNT(gates))
        return false;
    *number = gates[i].number;
    *text = gates[i].text;
    return true;
}

void bitnet_verify_options_init(bitnet_verify_options *o)
{
    if (!o)
        return;
    *o = (bitnet_verify_options){.struct_size = sizeof *o};
}

static bitnet_status refuse(checking *c, const char *path, const struct gate *g, const char *why,
                            int *gate)
{
    *gate = g->number;
    return bnet_fail(c->err, BITNET_RECEIPT, "%s: refused by gate %d (%s): %s", path, g->number,
                     g->text, why);
}

static bitnet_status apply(checking *c, const char *path, int *gate)
{
    for (size_t i = 0; i < BNET_COUNT(gates); i++) {
        if (gates[i].pass(c))
            continue;
        if (c->broken != BITNET_OK)
            return c->broken;
        return refuse(c, path, &gates[i], c->why, gate);
    }
    return BITNET_OK;
}

bitnet_status bnet_receipt_read(const char *path, const bitnet_verify_options *o, json_t **out,
                                int *gate, bitnet_error *err)
{
    char why[200];
    json_t *root = NULL;
    bitnet_status st = bnet_json_read(path, BNET_RECEIPT_BYTES, &root, why, sizeof why, err);
    if (st != BITNET_OK)
        return st;
    checking c = {.root = root, .o = o, .err = err};
    st = root ? apply(&c, path, gate) : refuse(&c, path, &gates[0], why, gate);
    if (st == BITNET_OK)
        *out = root;
    else
        json_decref(root);
    return st;
}

bitnet_status bitnet_receipt_verify(const char *path, const bitnet_verify_options *options,
                                    int *gate, bitnet_error *err)
{
    bitnet_verify_options o;
    int number = 0;
    json_t *root = NULL;
    if (!path)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: path must not be NULL");
    bitnet_verify_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "verify options", err);
    if (st == BITNET_OK && o.public_key)
        st = bnet_sign_check_key(o.public_key, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_receipt_read(path, &o, &root, &number, err);
    json_decref(root);
    if (gate && (st == BITNET_OK || st == BITNET_RECEIPT))
        *gate = number;
    return st;
}
