/* run_report.c - what `bitnet run` tells besides the text: the JSON object, the closing line, the
 * dumps. */
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
    return j_object("load:f tokenize:f prefill:f decode:f first_token:f total:f",
                    rounded(r->m.load_ms), rounded(r->tokenize_ms), rounded(prefill_ms(r)),
                    rounded(r->result.decode_ms), rounded(r->dump_ms + r->result.first_token_ms),
                    rounded(r->total_ms));
}

static json_t *throughput_json(const run_state *r)
{
    double all_ms = prefill_ms(r) + r->result.decode_ms;
    return j_object("prefill:f decode:f e2e:f", rounded(per_second(n_prefilled(r), prefill_ms(r))),
                    rounded(per_second(n_decoded(r), r->result.decode_ms)),
                    rounded(per_second(r->result.n_generated, all_ms)));
}

static json_t *model_json(const bitnet_model_info *i)
{
    return j_object("path:t name:t architecture:t weight_type:t embedding_type:t tokenizer:t "
                    "n_layers:i n_vocab:i bits_per_weight:f",
                    i->path, i->name, i->architecture, i->weight_type, i->embedding_type,
                    i->tokenizer, i->n_layers, i->n_vocab, i->bits_per_weight);
}

static json_t *sampling_json(const args *a)
{
    return j_object("temperature:f top_k:n top_p:f min_p:f typical_p:f repetition_penalty:f "
                    "presence_penalty:f frequency_penalty:f",
                    opt_float(a, OPT_TEMPERATURE), opt_int(a, OPT_TOP_K), opt_float(a, OPT_TOP_P),
                    opt_float(a, OPT_MIN_P), opt_float(a, OPT_TYPICAL),
                    opt_float(a, OPT_REPETITION), opt_float(a, OPT_PRESENCE),
                    opt_float(a, OPT_FREQUENCY));
}

static json_t *steps_json(const run_state *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_steps; i++) {
        json_t *top = json_array();
        for (size_t k = 0; k < r->steps[i].n_top; k++) {
            top_token t = r->steps[i].top[k];
            json_array_append_new(
                top, j_object("id:i logit:f piece:j", t.id, (double)t.logit, j_piece(&r->m, t.id)));
        }
        json_array_append_new(list, j_object("step:n chosen:i top:j", i, r->steps[i].chosen, top));
    }
    return list;
}

int run_report(run_state *r)
{
    const args *a = r->args;
    size_t n_prompt = r->prompt_ids.n, n = r->result.n_generated;
    if (!opt_report(a))
        return EXIT_OK;
    json_t *j =
        j_object("role:t prompt:j prompt_ids:j ids:j text:j finish_reason:t counts:j timing_ms:j "
                 "throughput_tps:j kernels:j backend_summary:t stats:j seed:n sampling:j threads:i "
                 "template:t kv:t context:n model:j",
                 "assistant", j_text(r->prompt.data, r->prompt.n),
                 j_ids(r->prompt_ids.data, n_prompt), j_ids(r->ids.data, r->ids.n),
                 j_text(r->made.data, r->made.n), finish_word(r->result.finish, &r->m),
                 j_object("prompt:n generated:n total:n", n_prompt, n, n_prompt + n),
                 timing_json(r), throughput_json(r), kernels_json(&r->m),
                 bitnet_runtime_summary(r->m.runtime), engine_stats_json(&r->m), r->seed,
                 sampling_json(a), bitnet_runtime_threads(r->m.runtime), r->template_name,
                 opt_text(a, OPT_KV), bitnet_session_context(r->m.session), model_json(r->m.info));
    if (opt_int(a, OPT_LOGIT_STEPS))
        j_add(j, "logits:j", steps_json(r));
    events_finish(&r->events, j);
    j_add(j, "version:t", bitnet_version());
    return j_report(a, j);
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

static void how_it_ended(const run_state *r, bool briefly, buffer *out)
{
    switch (r->result.finish) {
    case BITNET_FINISH_LENGTH:
        text_printf(out, "cut at -n %lld", (long long)opt_int(r->args, OPT_MAX_TOKENS));
        break;
    case BITNET_FINISH_STOP_ID:
        text_printf(out, "stopped at token %d", (int)r->result.last_id);
        break;
    case BITNET_FINISH_EOS:
        text_puts(out, r->made.n ? "ended by itself" : "ended at once: the text is empty");
        break;
    case BITNET_FINISH_STOP_STRING:
        text_puts(out, "stopped at a --stop text");
        break;
    case BITNET_FINISH_CONTEXT:
        text_printf(out, briefly ? "cut: context full" : "cut: the context of %zu tokens is full",
                    bitnet_session_context(r->m.session));
        break;
    case BITNET_FINISH_CANCELLED:
        text_puts(out, who_cancelled(r));
        break;
    }
}

/* A speed is told where there is one: the first token comes out of the prompt. */
static void closing_text(const run_state *r, bool briefly, buffer *out)
{
    char number[32], rate[32];
    size_t n = r->result.n_generated;
    text_printf(out, "[%s token%s", grouped(n, number, sizeof number), plural(n));
    if (n_decoded(r) && r->result.decode_ms > 0)
        text_printf(out, ", %s tok/s",
                    rate_text(per_second(n_decoded(r), r->result.decode_ms), rate, sizeof rate));
    if (n && opt_float(r->args, OPT_TEMPERATURE) > 0)
        text_printf(out, ", seed %llu", (unsigned long long)r->seed);
    text_puts(out, ", ");
    how_it_ended(r, briefly, out);
    text_puts(out, "]");
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
