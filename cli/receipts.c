/* receipts.c - what run and chat share to tell what was computed: receipts, statistics; and `bitnet
 * receipt`. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

int receipt_begin(const loaded *m, bitnet_receipt **out)
{
    bitnet_error err = {0};
    *out = NULL;
    if (!opt_given(m->args, OPT_RECEIPT))
        return EXIT_OK;
    return outcome(bitnet_receipt_open(m->engine, out, &err), &err);
}

bool receipt_records(const option *o, command_key c)
{
    bool makes = o->group == GROUP_MODEL || o->group == GROUP_TEXT || o->group == GROUP_SAMPLING ||
                 o->group == GROUP_STOPPING || o->group == GROUP_MACHINE;
    bool names = o->type == TYPE_PATH || o->type == TYPE_OUT || o->key == OPT_CACHE;
    bool private = o->key == OPT_PROMPT || o->key == OPT_RUN_SYSTEM;
    return option_on(o, c) && makes && !names && !private && o->type != TYPE_SHORTHAND &&
           !option_is_habit(o);
}

/* Of the machine only what was asked for; the seed is recorded as it was chosen, the template as
 * it was meant. */
static bool is_recorded(const args *a, const option *o)
{
    const value *v = &a->values[o->key];
    if (o->key == OPT_SEED || (o->key == OPT_RUN_TEMPLATE && a->answers && !v->origin))
        return false;
    return receipt_records(o, a->command->key) && v->text &&
           (v->origin || o->group != GROUP_MACHINE);
}

static void record(stop_list *flags, const char *name, const char *as)
{
    char *flag = xformat("%s=%s", name, as);
    stop_list_add(flags, flag);
    free(flag);
}

static void record_all(const args *a, stop_list *flags)
{
    char id[16];
    for (size_t i = 0; option_at(i); i++) {
        const option *o = option_at(i);
        const value *v = &a->values[i];
        if (!is_recorded(a, o))
            continue;
        for (size_t k = 0; k < v->n_list; k++) {
            if (v->ids)
                snprintf(id, sizeof id, "%d", v->ids[k]);
            record(flags, o->name, v->ids ? id : v->list[k]);
        }
        if (v->n_list == 0)
            record(flags, o->name, option_takes_value(o) ? v->text : v->on ? "on" : "off");
    }
}

int receipt_save(const args *a, bitnet_receipt *receipt, bitnet_receipt_facts *facts)
{
    bitnet_error err = {0};
    stop_list flags = {0};
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)facts->seed);
    record_all(a, &flags);
    record(&flags, "seed", seed);
    if (a->answers && !opt_given(a, OPT_RUN_TEMPLATE))
        record(&flags, "template", "auto");
    if (opt_given(a, OPT_DUMP_LOGITS))
        record(&flags, "dump-logits", "on");
    if (opt_given(a, OPT_LOGIT_STEPS) || opt_given(a, OPT_ASSERT_GREEDY))
        record(&flags, "logits", "on"); /* of some tokens all are computed */
    facts->command = a->command->name;
    facts->flags = (const char *const *)flags.data;
    facts->n_flags = flags.n;
    progress_begin(UNIT_NONE, "writing the receipt");
    bitnet_status st = bitnet_receipt_write(receipt, facts, opt_text(a, OPT_RECEIPT), &err);
    progress_end();
    stop_list_free(&flags);
    return outcome(st, &err);
}

/* ---- statistics ---- */

static json_t *device_json(const bitnet_stats *s)
{
    const bitnet_device_stats *d = &s->on_device;
    return j_object("memory_used:n memory_total:n gpu_efficiency:f gpu_effective:b "
                    "fallback_count:n dequantised_calls:n quantize_ops:n matmul_ops:n "
                    "avg_quantize_ms:f avg_matmul_ms:f graph_replays:n unrecorded_steps:n",
                    d->memory_used, d->memory_total, d->gpu_efficiency,
                    bitnet_stats_gpu_effective(s), d->fallback_count, d->dequantised_calls,
                    d->n_quantize, d->n_matmul, d->avg_quantize_ms, d->avg_matmul_ms, d->n_replays,
                    d->n_unrecorded);
}

json_t *engine_stats_json(const loaded *m)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    if (bitnet_engine_stats(m->engine, &s, NULL) != BITNET_OK)
        return json_null();
    const bitnet_performance_stats *f = &s.performance;
    const bitnet_precision_stats *p = &s.precision;
    json_t *performance = j_object(
        "launches:n exec_ms:f h2d:n d2h:n h2d_bytes:n d2h_bytes:n cache_hits:n cache_misses:n",
        f->n_launches, f->exec_ms, f->n_h2d, f->n_d2h, f->h2d_bytes, f->d2h_bytes, f->cache_hits,
        f->cache_misses);
    json_t *precision = j_object("ops:n fp16_ms:f bf16_ms:f fp32_ms:f memory_allocated:n "
                                 "memory_peak:n h2d:n d2h:n h2d_bytes:n d2h_bytes:n",
                                 p->n_ops, p->fp16_ms, p->bf16_ms, p->fp32_ms, p->memory_allocated,
                                 p->memory_peak, p->n_h2d, p->n_d2h, p->h2d_bytes, p->d2h_bytes);
    return j_object("device:t provider:t precision:t timed:b performance:j mixed_precision:j "
                    "on_device:j",
                    s.device, s.provider, s.ran_in, s.timed, performance, precision,
                    device_json(&s));
}

void engine_stats_text(const loaded *m, buffer *out)
{
    bitnet_stats s;
    char line[512];
    bitnet_stats_init(&s);
    if (bitnet_engine_stats(m->engine, &s, NULL) != BITNET_OK)
        return;
    bitnet_stats_summary(&s, line, sizeof line);
    text_puts(out, line);
}

/* ---- bitnet receipt ---- */

static int list_gates(const args *a)
{
    int number;
    const char *what;
    json_t *list = json_array();
    for (int i = 0; bitnet_gate_at(i, &number, &what); i++)
        if (opt_json(a))
            json_array_append_new(list, j_object("gate:i asks_for:t", number, what));
        else
            out_printf("%2d  %s\n", number, what);
    if (opt_json(a))
        j_print(list);
    else
        json_decref(list);
    return EXIT_OK;
}

/* The verdict: why NULL is a receipt accepted; gate 0: the replay refused it. */
static int tell_verdict(const args *a, const char *path, int gate, const char *why)
{
    if (opt_json(a))
        j_print(j_object("receipt:t accepted:b gate:i replayed:b reason:t", path, why == NULL, gate,
                         opt_on(a, OPT_REPLAY) && gate == 0, why));
    else if (!why)
        out_printf("%s: accepted%s\n", path,
                   opt_on(a, OPT_REPLAY) ? ", and made again with the same result" : "");
    return why ? fail(EXIT_RECEIPT, "%s", why) : EXIT_OK;
}

static int verify(const args *a, const char *path)
{
    bitnet_verify_options o;
    bitnet_error err = {0};
    char why[128], *refused;
    int gate = 0;
    bitnet_verify_options_init(&o);
    o.require_gpu = opt_on(a, OPT_REQUIRE_GPU);
    o.model_path = opt_text(a, OPT_VERIFY_MODEL);
    o.public_key = opt_text(a, OPT_PUBLIC_KEY);
    bitnet_status st = bitnet_receipt_verify(path, &o, &gate, &err);
    if (st != BITNET_OK && st != BITNET_RECEIPT)
        return fail_with(&err);
    if (st != BITNET_OK || !opt_on(a, OPT_REPLAY))
        return tell_verdict(a, path, gate, st == BITNET_OK ? NULL : err.message);
    int rc = receipt_replay(a, path, why, sizeof why);
    if (rc && rc != EXIT_RECEIPT)
        return rc;
    refused = rc ? xformat("%s: refused by the replay: %s", path, why) : NULL;
    rc = tell_verdict(a, path, 0, refused);
    free(refused);
    return rc;
}

/* The secret key into a new file that only its owner reads, the public one on standard output. */
static int make_key(const args *a, const char *path)
{
    char secret[65], pub[65];
    bitnet_error err = {0};
    if (bitnet_receipt_key(secret, pub, &err) != BITNET_OK)
        return fail_with(&err);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file < 0)
        return fail(EXIT_IO, "%s: %s", path, strerror(errno));
    bool ok = write(file, secret, 64) == 64;
    explicit_bzero(secret, sizeof secret);
    if (close(file) != 0 || !ok) {
        remove(path);
        return fail(EXIT_IO, "%s: the key cannot be written", path);
    }
    if (opt_json(a))
        j_print(j_object("key_file:t public_key:t", path, pub));
    else
        out_printf("%s\n", pub);
    return EXIT_OK;
}

static int sign(const args *a, const char *path)
{
    buffer key = {0};
    bitnet_error err = {0};
    if (!opt_given(a, OPT_KEY))
        return fail(EXIT_USAGE, "receipt sign: --key FILE is missing; receipt key FILE makes one");
    int rc = read_input(opt_text(a, OPT_KEY), &key);
    if (!rc && key.n && key.data[key.n - 1] == '\n')
        key.data[--key.n] = '\0';
    if (!rc && (key.n != 64 || strspn(key.data, "0123456789abcdef") != 64))
        rc = fail(EXIT_USAGE, "%s: not a key: 64 hexadecimal digits", opt_text(a, OPT_KEY));
    rc = rc ? rc : outcome(bitnet_receipt_sign(path, key.data, &err), &err);
    if (key.data)
        explicit_bzero(key.data, key.n);
    free_buffer(&key);
    return rc;
}

int cmd_receipt(args *a)
{
    if (a->n_words == 1 && strcmp(a->words[0], "gates") == 0)
        return list_gates(a);
    if (a->n_words == 2 && strcmp(a->words[0], "verify") == 0)
        return verify(a, a->words[1]);
    if (a->n_words == 2 && strcmp(a->words[0], "key") == 0)
        return make_key(a, a->words[1]);
    if (a->n_words == 2 && strcmp(a->words[0], "sign") == 0)
        return sign(a, a->words[1]);
    return fail(EXIT_USAGE,
                "receipt: use bitnet receipt verify FILE, sign FILE, key FILE or gates");
}
