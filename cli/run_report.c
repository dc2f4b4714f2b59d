/* run_report.c - what `bitnet run` tells besides the text: the JSON object, the closing line, the
 * dumps. */
#include <jansson.h>
#include <string.h>

#include "run.h"

void top_tokens(const float *logits, int n_vocab, top_token *top, size_t n)
{
    size_t have = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        if (have == n && !(logits[id] > top[n - 1].logit))
            continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[id] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at] = (top_token){id, logits[id]};
    }
}

const char *finish_reason(const run_state *r)
{
    if (r->result.finish == BITNET_FINISH_CANCELLED && r->m.timed_out)
        return "timeout";
    return bitnet_finish_text(r->result.finish);
}

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

int run_report(const run_state *r)
{
    if (!opt_json(r->args) && !opt_given(r->args, OPT_JSON_OUT))
        return EXIT_OK;
    json_t *j = json_object();
    json_object_set_new(j, "prompt", j_text(r->prompt.data, r->prompt.n));
    json_object_set_new(j, "prompt_ids", j_ids(r->prompt_ids.data, r->prompt_ids.n));
    json_object_set_new(j, "ids", j_ids(r->ids.data, r->ids.n));
    json_object_set_new(j, "text", j_text(r->made.data ? r->made.data : "", r->made.n));
    json_object_set_new(j, "finish_reason", j_str(finish_reason(r)));
    json_object_set_new(j, "counts", counts_json(r));
    json_object_set_new(j, "timing_ms", timing_json(r));
    json_object_set_new(j, "throughput_tps", throughput_json(r));
    json_object_set_new(j, "kernels", kernels_json(&r->m));
    json_object_set_new(j, "backend_summary", j_str(bitnet_runtime_summary(r->m.runtime)));
    json_object_set_new(j, "stats", engine_stats_json(&r->m));
    json_object_set_new(j, "seed", json_integer((json_int_t)r->seed));
    json_object_set_new(j, "sampling", sampling_json(r));
    json_object_set_new(j, "threads", json_integer(bitnet_runtime_threads(r->m.runtime)));
    json_object_set_new(j, "kv", j_str(opt_text(r->args, OPT_KV)));
    json_object_set_new(j, "context",
                        json_integer((json_int_t)bitnet_session_context(r->m.session)));
    json_object_set_new(j, "model", model_json(r->m.info));
    if (opt_int(r->args, OPT_LOGIT_STEPS))
        json_object_set_new(j, "logits", steps_json(r));
    json_object_set_new(j, "version", j_str(bitnet_version()));
    return j_report(r->args, j);
}

/* ---- for people ---- */

void run_closing_line(const run_state *r)
{
    buffer kernels = {0};
    const char *slash = strrchr(r->m.path, '/');
    kernels_text(&r->m, &kernels);
    note(r->args,
         "[%s: %zu tokens, %.1f tok/s; prompt %zu tokens, %.1f tok/s; stopped by %s; seed %llu; "
         "kernels %s]\n",
         slash ? slash + 1 : r->m.path, r->result.n_generated,
         per_second(n_decoded(r), r->result.decode_ms), r->prompt_ids.n,
         per_second(n_prefilled(r), prefill_ms(r)), finish_reason(r), (unsigned long long)r->seed,
         kernels.data);
    free_buffer(&kernels);
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
