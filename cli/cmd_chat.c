/* cmd_chat.c - `bitnet chat`: read a line, render the whole conversation, answer. The session keeps
 * what it has computed of the beginning they share, so only new tokens cost time. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

/* ---- making room ---- */

static int render_ids(chat_state *s, id_list *v)
{
    buffer rendered = {0};
    int rc = conversation_render(&s->talk, &s->m, s->template_name, &rendered);
    if (!rc)
        rc = tokenize_text(&s->m, rendered.data, rendered.n, BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL,
                           v);
    free_buffer(&rendered);
    return rc;
}

/* Tokens to keep free for a reply. */
static size_t reply_room(const chat_state *s)
{
    size_t n_ctx = bitnet_session_context(s->m.session);
    return s->options.max_tokens < n_ctx / 4 ? s->options.max_tokens : n_ctx / 4;
}

/* The ids of the conversation, oldest exchanges dropped until it fits. *fits false: the newest
 * alone is too long. */
static int fit(chat_state *s, id_list *v, bool *fits)
{
    size_t n_ctx = bitnet_session_context(s->m.session), n_dropped = 0;
    size_t limit = (size_t)opt_int(s->args, OPT_HISTORY_LIMIT);
    while (limit && conversation_exchanges(&s->talk) > limit && conversation_drop_oldest(&s->talk))
        s->n_dropped++;
    for (;;) {
        int rc = render_ids(s, v);
        if (rc)
            return rc;
        *fits = v->n < n_ctx;
        if (v->n + reply_room(s) <= n_ctx || !conversation_drop_oldest(&s->talk))
            break;
        n_dropped++;
    }
    s->n_dropped += n_dropped;
    if (n_dropped)
        note(s->args, "[the context is full: the oldest %zu exchange%s forgotten]\n", n_dropped,
             n_dropped == 1 ? " was" : "s were");
    return EXIT_OK;
}

/* ---- answering ---- */

static bool streams(const chat_state *s)
{
    return !opt_json(s->args) && opt_on(s->args, OPT_STREAM);
}

static bool on_text(void *user, const char *bytes, size_t n, int32_t id)
{
    chat_state *s = user;
    ids_push(&s->ids, id);
    text_add(&s->made, bytes, n);
    events_trim(&s->events, &bytes, &n);
    text_add(&s->shown, bytes, n);
    return events_token(&s->events, bytes, n, id) && (!streams(s) || out_write(bytes, n));
}

static void reply_json(chat_state *s, size_t n_prompt)
{
    const bitnet_generate_result *r = &s->last;
    json_t *j = json_pack("{s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:{s:o, s:o}, s:{s:o, s:o}, s:I}",
                          "role", "assistant", "text", j_text(s->shown.data, s->shown.n), "ids",
                          j_ids(s->ids.data, s->ids.n), "finish_reason",
                          finish_word(r->finish, &s->m), "prompt_tokens", (json_int_t)n_prompt,
                          "computed_tokens", (json_int_t)r->n_prefilled, "generated_tokens",
                          (json_int_t)r->n_generated, "timing_ms", "prefill", j_num(r->prefill_ms),
                          "decode", j_num(r->decode_ms), "throughput_tps", "prefill",
                          j_num(per_second(r->n_prefilled, r->prefill_ms)), "decode",
                          j_num(per_second(r->n_generated ? r->n_generated - 1 : 0, r->decode_ms)),
                          "seed", (json_int_t)s->seed);
    events_finish(&s->events, j);
    j_print(j);
    json_decref(j);
}

static void tell_reply(chat_state *s, size_t n_prompt)
{
    const bitnet_generate_result *r = &s->last;
    if (opt_json(s->args)) {
        reply_json(s, n_prompt);
        return;
    }
    if (!streams(s))
        out_write(s->shown.data, s->shown.n);
    out_puts("\n");
    if (r->finish == BITNET_FINISH_CANCELLED && !out_failed())
        note(s->args, "[stopped%s]\n", s->m.timed_out ? " by --timeout" : "");
    if (r->finish == BITNET_FINISH_CONTEXT)
        note(s->args, "[the context is full: the reply ends here]\n");
    if (opt_on(s->args, OPT_METRICS))
        note(s->args, "[%zu tokens, %.1f tok/s; prompt %zu tokens, %zu reused]\n", r->n_generated,
             per_second(r->n_generated ? r->n_generated - 1 : 0, r->decode_ms), n_prompt,
             n_prompt - r->n_prefilled);
}

static void count(chat_state *s, size_t n_prompt)
{
    s->n_replies++;
    s->n_prompt += n_prompt;
    s->n_computed += s->last.n_prefilled;
    s->n_generated += s->last.n_generated;
    s->prefill_ms += s->last.prefill_ms;
    s->decode_ms += s->last.decode_ms;
    s->first_token_ms += s->last.first_token_ms;
}

/* Of all replies together. No reply was made twice, so none is called deterministic. */
static int write_receipt(const chat_state *s)
{
    bitnet_receipt_facts f;
    if (!s->receipt)
        return EXIT_OK;
    bitnet_receipt_facts_init(&f);
    f.seed = s->seed;
    f.deterministic_asked = opt_on(s->args, OPT_DETERMINISTIC);
    f.n_generated = s->n_generated;
    f.first_token_ms = s->first_token_ms;
    f.decode_ms = s->decode_ms;
    f.total_ms = s->first_token_ms + s->decode_ms;
    return receipt_save(&s->m, s->receipt, &f);
}

/* A cancelled reply may tell its last token twice, a stopped one not at all. */
static void settle_ids(chat_state *s)
{
    if (s->ids.n > s->last.n_generated)
        s->ids.n = s->last.n_generated;
    else if (s->ids.n < s->last.n_generated)
        ids_push(&s->ids, s->last.last_id);
}

static int answer(chat_state *s, const id_list *v)
{
    bitnet_error err = {0};
    s->made.n = s->shown.n = s->ids.n = 0;
    text_add(&s->made, "", 0);
    text_add(&s->shown, "", 0);
    events_begin(&s->events, &s->m, true);
    if (!opt_json(s->args))
        out_puts("assistant> ");
    deadline_start(&s->m);
    bitnet_status st =
        bitnet_generate(s->m.session, s->sampler, v->data, v->n, &s->options, &s->last, &err);
    if (st == BITNET_CANCELLED)
        s->last.finish = BITNET_FINISH_CANCELLED;
    else if (st != BITNET_OK)
        return fail_with(&err);
    settle_ids(s);
    count(s, v->n);
    tell_reply(s, v->n);
    if (s->made.n)
        conversation_add(&s->talk, "assistant", s->made.data);
    else
        conversation_pop(&s->talk); /* nothing was said: the question is not kept either */
    return write_receipt(s);
}

/* After a reply: Ctrl-C at a terminal was meant for the reply alone. */
static int after_interrupt(chat_state *s)
{
    int code = interrupted();
    if (code == EXIT_INTERRUPTED && s->interactive) {
        interrupt_clear();
        return EXIT_OK;
    }
    return code;
}

static int turn(chat_state *s, const char *said)
{
    id_list v = {0};
    bool fits = true;
    conversation_add(&s->talk, "user", said);
    int rc = fit(s, &v, &fits);
    if (!rc && !fits) {
        fail(EXIT_OTHER, "this message has %zu tokens and the context holds %zu; it is not sent",
             v.n, bitnet_session_context(s->m.session));
        conversation_pop(&s->talk);
    } else if (!rc) {
        rc = answer(s, &v);
    }
    free(v.data);
    return rc ? rc : after_interrupt(s);
}

/* ---- the loop ---- */

/* A line, and those that follow it while they end with a backslash. */
static line_result read_message(chat_state *s, buffer *out)
{
    line_result result = line_read(s->lines, opt_json(s->args) ? "" : "you> ", out);
    while (result == LINE_OK && out->n && out->data[out->n - 1] == '\\') {
        out->data[out->n - 1] = '\n';
        buffer more = {0};
        result = line_read(s->lines, opt_json(s->args) ? "" : "...> ", &more);
        text_add(out, more.data, more.n);
        free_buffer(&more);
        if (result == LINE_END)
            return LINE_OK;
    }
    if (out->n && out->data[out->n - 1] == '\r')
        out->data[--out->n] = '\0';
    return result;
}

static int obey(chat_state *s, const char *line, bool *leave)
{
    if (line[strspn(line, " \t\n")] == '\0')
        return EXIT_OK;
    if (!s->interactive && !opt_json(s->args))
        out_printf("you> %s\n", line);
    if (line[0] == '/' && line[1] != '/') {
        chat_command(s, line, leave);
        return EXIT_OK;
    }
    return turn(s, line[0] == '/' ? line + 1 : line);
}

/* Ctrl-C at the prompt: the first asks, the second in a row leaves. */
static int prompt_interrupted(chat_state *s, int *n_in_a_row)
{
    int code = interrupted();
    out_puts("\n");
    if (code != EXIT_INTERRUPTED || !s->interactive || ++*n_in_a_row > 1)
        return code;
    interrupt_clear();
    note(s->args, "(Ctrl-C again, Ctrl-D or /exit leaves)\n");
    return EXIT_OK;
}

static int converse(chat_state *s)
{
    int rc = EXIT_OK, n_interrupts = 0;
    bool leave = false;
    while (!rc && !leave && !out_failed()) {
        buffer line = {0};
        switch (read_message(s, &line)) {
        case LINE_OK:
            n_interrupts = 0;
            rc = obey(s, line.data, &leave);
            break;
        case LINE_INTERRUPTED:
            rc = prompt_interrupted(s, &n_interrupts);
            break;
        case LINE_END:
            leave = true;
            if (s->interactive)
                out_puts("\n");
            break;
        case LINE_FAILED:
            rc = fail(EXIT_IO, "standard input: cannot read");
            break;
        }
        free_buffer(&line);
    }
    return rc;
}

/* ---- the command ---- */

static int prepare(chat_state *s)
{
    int rc = load_engine(&s->m, s->args, false);
    if (!rc)
        rc = choose_template(&s->m, opt_text(s->args, OPT_TEMPLATE), &s->template_name);
    if (!rc)
        rc = load_session(&s->m);
    if (!rc)
        rc = open_sampler(&s->m, s->seed = choose_seed(s->args), &s->sampler);
    if (rc)
        return rc;
    /* this template has no stop token: a new question in the reply ends it */
    const char *name = s->template_name ? s->template_name : s->m.info->chat_template;
    if (strcmp(name, "instruct") == 0) {
        stop_list_add(&s->stops, "\n\nQ:");
        stop_list_add(&s->stops, "\n\nHuman:");
    }
    rc = generate_options(&s->m, &s->options, &s->stops);
    s->options.on_text = on_text;
    s->options.user = s;
    return rc ? rc : receipt_begin(&s->m, &s->receipt);
}

static void set_system(chat_state *s)
{
    buffer t = {0};
    if (!opt_text(s->args, OPT_SYSTEM))
        return;
    text_puts(&t, opt_text(s->args, OPT_SYSTEM));
    if (opt_on(s->args, OPT_ESCAPES))
        unescape(&t);
    s->talk.system = xstrdup(t.data);
    free_buffer(&t);
}

int cmd_chat(args *a)
{
    chat_state s = {.args = a};
    int rc = EXIT_OK;
    if (opt_int(a, OPT_MAX_TOKENS) == 0)
        return fail(EXIT_USAGE, "chat: --max-tokens must be at least 1");
    rc = events_check(a);
    if (!rc)
        rc = prepare(&s);
    if (!rc) {
        set_system(&s);
        s.lines = line_open(opt_text(a, OPT_HISTORY));
        s.interactive = line_interactive(s.lines);
        if (s.interactive)
            note(a, "bitnet %s, %s, seed %llu. /help lists the commands.\n", bitnet_version(),
                 s.m.path, (unsigned long long)s.seed);
        rc = converse(&s);
    }
    line_close(s.lines);
    conversation_free(&s.talk);
    stop_list_free(&s.stops);
    free_buffer(&s.made);
    free_buffer(&s.shown);
    events_finish(&s.events, NULL);
    free(s.ids.data);
    bitnet_sampler_close(s.sampler);
    bitnet_receipt_close(s.receipt);
    load_close(&s.m);
    return rc;
}
