/* chat_reply.c - one turn of a chat: the whole conversation is rendered, shortened until it fits,
 * and answered. The session keeps what it has computed of the beginning they share, so only new
 * tokens cost time. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "progress.h"
#include "terminal.h"

static const char speaker[] = "assistant> ";

/* ---- making room ---- */

/* The ids of the conversation without its oldest exchanges. */
static int render_ids(const chat_state *s, size_t n_dropped, id_list *v)
{
    buffer rendered = {0};
    conversation talk = conversation_tail(&s->talk, n_dropped);
    int rc = conversation_render(&talk, s->m, s->template_name, &rendered);
    if (!rc)
        rc = tokenize_text(s->m, rendered.data, rendered.n, BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL,
                           v);
    free_buffer(&rendered);
    return rc;
}

/* Room is left for a reply. */
static bool has_room(const chat_state *s, const id_list *v)
{
    size_t n_ctx = bitnet_session_context(s->m->session), n_reply = n_ctx / 4;
    return v->n + (s->options.max_tokens < n_reply ? s->options.max_tokens : n_reply) <= n_ctx;
}

/* The ids with the fewest oldest exchanges dropped that leave room, or of the newest alone. */
static int render_fitting(const chat_state *s, size_t *n_dropped, id_list *v)
{
    size_t low = *n_dropped, high = conversation_spare(&s->talk);
    int rc = render_ids(s, low, v);
    if (rc || has_room(s, v) || low == high)
        return rc;
    for (low++; !rc && low < high;) {
        size_t middle = (low + high) / 2;
        rc = render_ids(s, middle, v);
        if (has_room(s, v))
            high = middle;
        else
            low = middle + 1;
    }
    *n_dropped = low;
    return rc ? rc : render_ids(s, low, v);
}

/* The ids of the conversation, oldest exchanges forgotten until it fits. *fits false: the newest
 * alone is too long, and nothing is forgotten. */
static int fit(chat_state *s, id_list *v, bool *fits)
{
    size_t limit = (size_t)opt_int(s->args, OPT_HISTORY_LIMIT);
    size_t n_kept = conversation_spare(&s->talk) + 1;
    size_t n_beyond = limit && n_kept > limit ? n_kept - limit : 0, n_dropped = n_beyond;
    int rc = render_fitting(s, &n_dropped, v);
    *fits = !rc && v->n < bitnet_session_context(s->m->session);
    if (!*fits)
        return rc;
    conversation_forget(&s->talk, n_dropped);
    s->totals.n_dropped += n_dropped;
    n_dropped -= n_beyond;
    if (n_dropped)
        chat_note(s, "[the context is full: the oldest %zu exchange%s forgotten]", n_dropped,
                  n_dropped == 1 ? " was" : "s were");
    return EXIT_OK;
}

int chat_count(chat_state *s)
{
    id_list v = {0};
    s->n_used = 0;
    int rc = s->talk.n ? render_ids(s, 0, &v) : EXIT_OK;
    if (!rc)
        s->n_used = v.n;
    free(v.data);
    return rc;
}

/* ---- showing ---- */

/* Text of the reply; at a terminal in lines that end with words. */
static bool show(chat_state *s, const char *bytes, size_t n, bool last)
{
    return wrap_write(&s->wrap, opt_on(s->args, OPT_WRAP), bytes, n, last);
}

/* The prompt is computed: what was shown of its progress goes, and the reply begins. */
static void announce(chat_state *s)
{
    if (s->announced)
        return;
    s->announced = true;
    progress_end();
    terminal_was_left();
    if (!opt_json(s->args))
        out_puts(speaker);
}

static bool streams(const chat_state *s)
{
    return !opt_json(s->args) && opt_on(s->args, OPT_STREAM);
}

static bool on_text(void *user, const char *bytes, size_t n, int32_t id)
{
    chat_state *s = user;
    announce(s);
    ids_push(&s->ids, id);
    text_add(&s->made, bytes, n);
    events_trim(&s->events, &bytes, &n);
    text_add(&s->shown, bytes, n);
    return events_token(&s->events, bytes, n, id) && (!streams(s) || show(s, bytes, n, false));
}

/* ---- telling how it went ---- */

static void reply_json(chat_state *s, size_t n_prompt)
{
    const bitnet_generate_result *r = &s->last;
    json_t *j = json_pack("{s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:{s:o, s:o}, s:{s:o, s:o}, s:I}",
                          "role", "assistant", "text", j_text(s->shown.data, s->shown.n), "ids",
                          j_ids(s->ids.data, s->ids.n), "finish_reason",
                          finish_word(r->finish, s->m), "prompt_tokens", (json_int_t)n_prompt,
                          "computed_tokens", (json_int_t)r->n_prefilled, "generated_tokens",
                          (json_int_t)r->n_generated, "timing_ms", "prefill", j_num(r->prefill_ms),
                          "decode", j_num(r->decode_ms), "throughput_tps", "prefill",
                          j_num(per_second(r->n_prefilled, r->prefill_ms)), "decode",
                          j_num(per_second(r->n_generated ? r->n_generated - 1 : 0, r->decode_ms)),
                          "seed", (json_int_t)s->seed);
    json_object_set_new(j, "template", j_str(s->template_name));
    events_finish(&s->events, j);
    j_print(j);
    json_decref(j);
}

static bool is_empty(const chat_state *s)
{
    return s->shown.data[strspn(s->shown.data, " \t\r\n")] == '\0';
}

/* What a reader could not know from the text alone. */
static void tell_end(const chat_state *s)
{
    const bitnet_generate_result *r = &s->last;
    if (r->finish == BITNET_FINISH_CANCELLED)
        chat_note(s, "[stopped%s]", s->m->timed_out ? " by --timeout" : "");
    else if (is_empty(s))
        chat_note(s, "[the model said nothing]");
    else if (r->finish == BITNET_FINISH_CONTEXT)
        chat_note(s, "[the context is full: the reply is cut here]");
    else if (r->finish == BITNET_FINISH_LENGTH)
        chat_note(s, "[cut after %zu token%s; /set max-tokens -1 takes the limit away]",
                  r->n_generated, plural(r->n_generated));
}

static void tell_metrics(const chat_state *s, size_t n_prompt)
{
    char rate[32];
    const bitnet_generate_result *r = &s->last;
    size_t n = r->n_generated;
    chat_note(s, "[%zu token%s, %s tok/s; prompt %zu token%s, %zu reused]", n, plural(n),
              rate_text(per_second(n ? n - 1 : 0, r->decode_ms), rate, sizeof rate), n_prompt,
              plural(n_prompt), n_prompt - r->n_prefilled);
}

static void tell_reply(chat_state *s, size_t n_prompt)
{
    if (opt_json(s->args)) {
        reply_json(s, n_prompt);
        return;
    }
    if (streams(s))
        show(s, "", 0, true);
    else
        show(s, s->shown.data, s->shown.n, true);
    out_puts("\n");
    if (out_failed())
        return;
    tell_end(s);
    if (opt_on(s->args, OPT_METRICS))
        tell_metrics(s, n_prompt);
}

static void count(chat_state *s, size_t n_prompt)
{
    chat_totals *t = &s->totals;
    t->n_replies++;
    t->n_prompt += n_prompt;
    t->n_computed += s->last.n_prefilled;
    t->n_generated += s->last.n_generated;
    t->prefill_ms += s->last.prefill_ms;
    t->decode_ms += s->last.decode_ms;
    t->first_token_ms += s->last.first_token_ms;
}

/* Of all replies together. No reply was made twice, so none is called deterministic. */
static int write_receipt(const chat_state *s)
{
    bitnet_receipt_facts f;
    const chat_totals *t = &s->totals;
    if (!s->receipt)
        return EXIT_OK;
    bitnet_receipt_facts_init(&f);
    f.seed = s->seed;
    f.deterministic_asked = opt_on(s->args, OPT_DETERMINISTIC);
    f.n_generated = t->n_generated;
    f.first_token_ms = t->first_token_ms;
    f.decode_ms = t->decode_ms;
    f.total_ms = t->first_token_ms + t->decode_ms;
    return receipt_save(s->m, s->receipt, &f);
}

/* ---- the turn ---- */

/* A cancelled reply may tell its last token twice, a stopped one not at all. */
static void settle_ids(chat_state *s)
{
    if (s->ids.n > s->last.n_generated)
        s->ids.n = s->last.n_generated;
    else if (s->ids.n < s->last.n_generated)
        ids_push(&s->ids, s->last.last_id);
}

static void begin_reply(chat_state *s)
{
    s->made.n = s->shown.n = s->ids.n = 0;
    text_add(&s->made, "", 0);
    text_add(&s->shown, "", 0);
    events_finish(&s->events, NULL);
    events_begin(&s->events, s->m, true);
    wrap_begin(&s->wrap, sizeof speaker - 1);
    s->announced = false;
    progress_begin(UNIT_TOKENS, "reading the prompt");
}

static int answer(chat_state *s, const id_list *v)
{
    bitnet_error err = {0};
    begin_reply(s);
    s->options.on_text = on_text;
    s->options.user = s;
    deadline_start(s->m);
    terminal_quiet(line_edits(s->lines));
    bitnet_status st =
        bitnet_generate(s->m->session, s->sampler, v->data, v->n, &s->options, &s->last, &err);
    terminal_quiet(false);
    announce(s);
    if (st == BITNET_CANCELLED)
        s->last.finish = BITNET_FINISH_CANCELLED;
    else if (st != BITNET_OK)
        return fail_with(&err);
    settle_ids(s);
    count(s, v->n);
    tell_reply(s, v->n);
    s->n_used = bitnet_session_position(s->m->session);
    s->unanswered = is_empty(s);
    if (!s->unanswered)
        conversation_add(&s->talk, "assistant", s->made.data);
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

int chat_turn(chat_state *s, const char *said)
{
    id_list v = {0};
    bool fits = true;
    if (said && s->unanswered)
        conversation_pop(&s->talk);
    s->unanswered = false;
    if (said)
        conversation_add(&s->talk, "user", said);
    int rc = fit(s, &v, &fits);
    s->refused = !rc && !fits;
    if (s->refused) {
        fail(EXIT_OTHER, "this message has %zu tokens and the context holds %zu; it is not sent",
             v.n, bitnet_session_context(s->m->session));
        if (said)
            conversation_pop(&s->talk);
    } else if (!rc) {
        rc = answer(s, &v);
    }
    free(v.data);
    return rc ? rc : after_interrupt(s);
}

int chat_resend(chat_state *s, const char *said)
{
    conversation old = conversation_newest(&s->talk);
    bool unanswered = s->unanswered;
    conversation_drop_newest(&s->talk);
    s->unanswered = false;
    int rc = chat_turn(s, said);
    if (s->refused) {
        conversation_append(&s->talk, &old);
        s->unanswered = unanswered;
    }
    conversation_free(&old);
    return rc;
}
