/* receipts.c - what run and chat share to tell what was computed: receipts, statistics; and `bitnet
 * receipt`. */
#include <jansson.h>
#include <string.h>

#include "cli.h"
#include "progress.h"

int receipt_begin(const loaded *m, bitnet_receipt **out)
{
    bitnet_error err = {0};
    *out = NULL;
    if (!opt_given(m->args, OPT_RECEIPT))
        return EXIT_OK;
    return bitnet_receipt_open(m->engine, out, &err) == BITNET_OK ? EXIT_OK : fail_with(&err);
}

int receipt_save(const loaded *m, bitnet_receipt *receipt, const bitnet_receipt_facts *facts)
{
    bitnet_error err = {0};
    const char *path = opt_text(m->args, OPT_RECEIPT);
    progress_begin(UNIT_NONE, "writing the receipt");
    bitnet_status st = bitnet_receipt_write(receipt, facts, path, &err);
    progress_end();
    return st == BITNET_OK ? EXIT_OK : fail_with(&err);
}

/* ---- statistics ---- */

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *performance_json(const bitnet_performance_stats *p)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "launches", count(p->n_launches),
                     "exec_ms", j_num(p->exec_ms), "h2d", count(p->n_h2d), "d2h", count(p->n_d2h),
                     "h2d_bytes", count(p->h2d_bytes), "d2h_bytes", count(p->d2h_bytes),
                     "cache_hits", count(p->cache_hits), "cache_misses", count(p->cache_misses));
}

static json_t *precision_json(const bitnet_precision_stats *p)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "ops", count(p->n_ops),
                     "fp16_ms", j_num(p->fp16_ms), "bf16_ms", j_num(p->bf16_ms), "fp32_ms",
                     j_num(p->fp32_ms), "memory_allocated", count(p->memory_allocated),
                     "memory_peak", count(p->memory_peak), "h2d", count(p->n_h2d), "d2h",
                     count(p->n_d2h), "h2d_bytes", count(p->h2d_bytes), "d2h_bytes",
                     count(p->d2h_bytes));
}

static json_t *device_json(const bitnet_stats *s)
{
    const bitnet_device_stats *d = &s->on_device;
    return json_pack(
        "{s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "memory_used",
        count(d->memory_used), "memory_total", count(d->memory_total), "gpu_efficiency",
        j_num(d->gpu_efficiency), "gpu_effective", bitnet_stats_gpu_effective(s), "fallback_count",
        count(d->fallback_count), "dequantised_calls", count(d->dequantised_calls), "quantize_ops",
        count(d->n_quantize), "matmul_ops", count(d->n_matmul), "avg_quantize_ms",
        j_num(d->avg_quantize_ms), "avg_matmul_ms", j_num(d->avg_matmul_ms), "graph_replays",
        count(d->n_replays), "unrecorded_steps", count(d->n_unrecorded));
}

static bool take_stats(const loaded *m, bitnet_stats *s)
{
    bitnet_stats_init(s);
    return bitnet_engine_stats(m->engine, s, NULL) == BITNET_OK;
}

json_t *engine_stats_json(const loaded *m)
{
    bitnet_stats s;
    if (!take_stats(m, &s))
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "device", j_str(s.device), "provider",
                     j_str(s.provider), "precision", j_str(s.ran_in), "timed", s.timed,
                     "performance", performance_json(&s.performance), "mixed_precision",
                     precision_json(&s.precision), "on_device", device_json(&s));
}

void engine_stats_text(const loaded *m, buffer *out)
{
    bitnet_stats s;
    char line[512];
    if (!take_stats(m, &s))
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
            json_array_append_new(list, json_pack("{s:i, s:s}", "gate", number, "asks_for", what));
        else
            out_printf("%2d  %s\n", number, what);
    if (opt_json(a))
        j_print(list);
    json_decref(list);
    return EXIT_OK;
}

static int verify(const args *a, const char *path)
{
    bitnet_verify_options o;
    bitnet_error err = {0};
    int gate = 0;
    bitnet_verify_options_init(&o);
    o.require_gpu = opt_on(a, OPT_REQUIRE_GPU);
    o.model_path = opt_text(a, OPT_VERIFY_MODEL);
    bitnet_status st = bitnet_receipt_verify(path, &o, &gate, &err);
    if (st != BITNET_OK && st != BITNET_RECEIPT)
        return fail_with(&err);
    if (opt_json(a)) {
        json_t *j =
            json_pack("{s:o, s:b, s:i, s:o}", "receipt", j_str(path), "accepted", st == BITNET_OK,
                      "gate", gate, "reason", st == BITNET_OK ? json_null() : j_str(err.message));
        j_print(j);
        json_decref(j);
    } else if (st == BITNET_OK) {
        out_printf("%s: accepted\n", path);
    }
    return st == BITNET_OK ? EXIT_OK : fail_with(&err);
}

int cmd_receipt(args *a)
{
    if (a->n_words == 1 && strcmp(a->words[0], "gates") == 0)
        return list_gates(a);
    if (a->n_words == 2 && strcmp(a->words[0], "verify") == 0)
        return verify(a, a->words[1]);
    return fail(EXIT_USAGE, "receipt: use bitnet receipt verify FILE or bitnet receipt gates");
}
