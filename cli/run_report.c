/* run_report.c - what `bitnet run` tells besides the text: the JSON object, the closing line, the
 * dumps. */
#include <jansson.h>
#include <string.h>

#include "run.h"

/* ---- figures ---- */

static double prefill_ms(const run_state *r)
{
    return r->dump_ms + r->result.prefill_ms;
}

/* The first token comes out of the prefill; decoding made the others. */
static size_t n_decoded(const run_state *r)
{
    return r->result.n_generated ? r->result.n_generated - 1 : 0;
}

static double rounded(double ms)
{
    return (double)(int64_t)(ms * 1e3 + 0.5) / 1e3;
}

static size_t n_prefilled(const run_state *r)
{
    return r->dump_ms > 0 ? r->prompt_ids.n : r->result.n_prefilled;
}

static json_t *timing_json(const run_state *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "load", j_num(rounded(r->m.load_ms)),
                     "tokenize", j_num(rounded(r->tokenize_ms)), "prefill",
                     j_num(rounded(prefill_ms(r))), "decode", j_num(rounded(r->result.decode_ms)),
                     "first_token", j_num(rounded(r->dump_ms + r->result.first_token_ms)), "total",
                     j_num(rounded(r->total_ms)));
}

static json_t *throughput_json(const run_state *r)
{
    double all_ms = prefill_ms(r) + r->result.decode_ms;
    return json_pack("{s:o, s:o, s:o}", "prefill",
                     j_num(rounded(per_second(n_prefilled(r), prefill_ms(r)))), "decode",
                     j_num(rounded(per_second(n_decoded(r), r->result.decode_ms))), "e2e",
                     j_num(rounded(per_second(r->result.n_generated, all_ms))));
}

static json_t *model_json(const bitnet_model_info *i)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o}", "path", j_str(i->path),
                     "name", j_str(i->name), "architecture", j_str(i->architecture), "weight_type",
                     j_str(i->weight_type), "embedding_type", j_str(i->embedding_type), "tokenizer",
                     j_str(i->tokenizer), "n_layers", i->n_layers, "n_vocab", i->n_vocab,
                     "bits_per_weight", j_num(i->bits_per_weight));
}

static json_t *sampling_json(const run_state *r)
{
    const args *a = r->args;
    return json_pack(
        "{s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "temperature",
        j_num(opt_float(a, OPT_TEMPERATURE)), "top_k", (json_int_t)opt_int(a, OPT_TOP_K), "top_p",
        j_num(opt_float(a, OPT_TOP_P)), "min_p", j_num(opt_float(a, OPT_MIN_P)), "typical_p",
        j_num(opt_float(a, OPT_TYPICAL)), "repetition_penalty", j_num(opt_float(a, OPT_REPETITION)),
        "presence_penalty", j_num(opt_float(a, OPT_PRESENCE)), "frequency_penalty",
        j_num(opt_float(a, OPT_FREQUENCY)));
}

static json_t *piece_json(const run_state *r, int32_t id)
{
    size_t n = 0;
    const char *bytes = bitnet_token_bytes(r->m.engine, id, &n);
    return j_text(bytes ? bytes : "", bytes ? n : 0);
}

static json_t *steps_json(const run_state *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_steps; i++) {
        json_t *top = json_array();
        for (size_t k = 0; k < r->steps[i].n_top; k++) {
            top_token t = r->steps[i].top[k];
            json_array_append_new(top, json_pack("{s:i, s:o, s:o}", "id", t.id, "logit",
                                                 j_num(t.logit), "piece", piece_json(r, t.id)));
        }
        json_array_append_new(list, json_pack("{s:I, s:i, s:o}", "step", (json_int_t)i, "chosen",
                                              r->steps[i].chosen, "top", top));
    }
    return list;
}

static json_t *counts_json(const run_state *r)
{
    return json_pack("{s:I, s:I, s:I}", "prompt", (json_int_t)r->prompt_ids.n, "generated",
                     (json_int_t)r->result.n_generated, "total",
                     (json_int_t)(r->prompt_ids.n + r->result.n_generated));
}

int run_report(run_state *r)
{
    if (!opt_json(r->args) && !opt_given(r->args, OPT_JSON_OUT))
        return EXIT_OK;
    json_t *j = json_object();
    json_object_set_new(j, "role", json_string("assistant"));
    json_object_set_new(j, "prompt", j_text(r->prompt.data, r->prompt.n));
    json_object_set_new(j, "prompt_ids", j_ids(r->prompt_ids.data, r->prompt_ids.n));
    json_object_set_new(j, "ids", j_ids(r->ids.data, r->ids.n));
    json_object_set_new(j, "text", j_text(r->made.data ? r->made.data : "", r->made.n));
    json_object_set_new(j, "finish_reason", j_str(finish_word(r->result.finish, &r->m)));
    json_object_set_new(j, "counts", counts_json(r));
    json_object_set_new(j, "timing_ms", timing_json(r));
    json_object_set_new(j, "throughput_tps", throughput_json(r));
    json_object_set_new(j, "kernels", kernels_json(&r->m));
    json_object_set_new(j, "backend_summary", j_str(bitnet_runtime_summary(r->m.runtime)));
    json_object_set_new(j, "stats", engine_stats_json(&r->m));
    json_object_set_new(j, "seed", json_integer((json_int_t)r->seed));
    json_object_set_new(j, "sampling", sampling_json(r));
    json_object_set_new(j, "threads", json_integer(bitnet_runtime_threads(r->m.runtime)));
    json_object_set_new(j, "template", j_str(r->template_name));
    json_object_set_new(j, "kv", j_str(opt_text(r->args, OPT_KV)));
    json_object_set_new(j, "context",
                        json_integer((json_int_t)bitnet_session_context(r->m.session)));
    json_object_set_new(j, "model", model_json(r->m.info));
    if (opt_int(r->args, OPT_LOGIT_STEPS))
        json_object_set_new(j, "logits", steps_json(r));
    events_finish(&r->events, j);
    json_object_set_new(j, "version", j_str(bitnet_version()));
    return j_report(r->args, j);
}

/* ---- for people ---- */

/* What ended a text that did not end by itself or by a limit. */
static const char *who_cancelled(const run_state *r)
{
    if (r->first_not_greedy >= 0)
        return "stopped by --assert-greedy";
    if (r->m.timed_out)
        return "stopped by --timeout";
    return interrupted() == EXIT_INTERRUPTED ? "stopped by Ctrl-C" : "stopped by a signal";
}

static void how_it_ended(const run_state *r, bool briefly, char *buf, size_t cap)
{
    size_t n_ctx = bitnet_session_context(r->m.session);
    switch (r->result.finish) {
    case BITNET_FINISH_LENGTH:
        snprintf(buf, cap, "cut at -n %lld", (long long)opt_int(r->args, OPT_MAX_TOKENS));
        break;
    case BITNET_FINISH_STOP_ID:
        snprintf(buf, cap, "stopped at token %d", (int)r->result.last_id);
        break;
    case BITNET_FINISH_EOS:
        snprintf(buf, cap, r->made.n ? "ended by itself" : "ended at once: the text is empty");
        break;
    case BITNET_FINISH_STOP_STRING:
        snprintf(buf, cap, "stopped at a --stop text");
        break;
    case BITNET_FINISH_CONTEXT:
        snprintf(buf, cap, briefly ? "cut: context full" : "cut: the context of %zu tokens is full",
                 n_ctx);
        break;
    case BITNET_FINISH_CANCELLED:
        snprintf(buf, cap, "%s", who_cancelled(r));
        break;
    }
}

/* A speed is told where there is one: the first token comes out of the prompt. */
static void closing_text(const run_state *r, bool briefly, buffer *out)
{
    char number[32], rate[32], how[80];
    size_t n = r->result.n_generated;
    text_printf(out, "[%s token%s", grouped(n, number, sizeof number), plural(n));
    if (n_decoded(r) && r->result.decode_ms > 0)
        text_printf(out, ", %s tok/s",
                    rate_text(per_second(n_decoded(r), r->result.decode_ms), rate, sizeof rate));
    if (n && opt_float(r->args, OPT_TEMPERATURE) > 0)
        text_printf(out, ", seed %llu", (unsigned long long)r->seed);
    how_it_ended(r, briefly, how, sizeof how);
    text_printf(out, ", %s]", how);
}

/* With --verbose: the prompt and what computed. */
static void tell_details(const run_state *r)
{
    buffer line = {0};
    char rate[32];
    size_t n = r->prompt_ids.n;
    text_printf(&line, "prompt of %zu token%s", n, plural(n));
    if (n_prefilled(r) && prefill_ms(r) > 0)
        text_printf(&line, ", %s tok/s",
                    rate_text(per_second(n_prefilled(r), prefill_ms(r)), rate, sizeof rate));
    text_puts(&line, "; kernels ");
    kernels_text(&r->m, &line);
    log_sink((void *)(uintptr_t)r->args, BITNET_LOG_INFO, "run", line.data);
    free_buffer(&line);
}

void run_closing_line(const run_state *r)
{
    enum { COLUMNS = 80 };
    buffer line = {0};
    tell_details(r);
    closing_text(r, false, &line);
    if (line.n > COLUMNS) {
        line.n = 0;
        closing_text(r, true, &line);
    }
    note(r->args, "%s\n", line.data);
    free_buffer(&line);
}

static void print_ids(const char *title, const id_list *v)
{
    fprintf(stderr, "%s:", title);
    for (size_t i = 0; i < v->n; i++)
        fprintf(stderr, " %d", v->data[i]);
    fputc('\n', stderr);
}

void run_dump_ids(const run_state *r)
{
    print_ids("prompt ids", &r->prompt_ids);
    print_ids("ids", &r->ids);
}

void run_dump_steps(const run_state *r)
{
    for (size_t i = 0; i < r->n_steps; i++) {
        fprintf(stderr, "step %zu: chose %d;", i, r->steps[i].chosen);
        for (size_t k = 0; k < r->steps[i].n_top; k++)
            fprintf(stderr, " %d %.4f", r->steps[i].top[k].id, (double)r->steps[i].top[k].logit);
        fputc('\n', stderr);
    }
}
