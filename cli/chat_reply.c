/* chat_reply.c - one turn of a chat: the whole conversation is rendered, shortened until it fits,
 * and answered. The session keeps what it has computed of the beginning they share, so only new
 * tokens cost time. */
#include "chat.h"
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
    size_t low = *n_dropped, high = conversation_droppable(&s->talk);
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
    size_t n_kept = conversation_droppable(&s->talk) + 1;
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

void chat_count(chat_state *s)
{
    id_list v = {0};
    bool known = s->talk.n && render_ids(s, 0, &v) == EXIT_OK;
    s->n_used = known ? v.n : 0;
    free(v.data);
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
    return events_token(&s->events, bytes, n, id) && (!streams(s) || show(s, bytes, n, false)) &&
           form_follow(&s->form, id);
}

/* ---- telling how it went ---- */

static void reply_json(chat_state *s, size_t n_prompt)
{
    const bitnet_generate_result *r = &s->last;
    size_t n_decoded = r->n_generated ? r->n_generated - 1 : 0;
    json_t *j =
        j_object("role:t text:j ids:j finish_reason:t prompt_tokens:n computed_tokens:n "
                 "generated_tokens:n timing_ms:j throughput_tps:j seed:n template:t",
                 "assistant", j_text(s->shown.data, s->shown.n), j_ids(s->ids.data, s->ids.n),
                 finish_word(r->finish, s->m), n_prompt, r->n_prefilled, r->n_generated,
                 j_object("prefill:f decode:f", r->prefill_ms, r->decode_ms),
                 j_object("prefill:f decode:f", per_second(r->n_prefilled, r->prefill_ms),
                          per_second(n_decoded, r->decode_ms)),
                 s->seed, s->template_name);
    events_finish(&s->events, j);
    j_print(j);
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
    if (form_is_cut(&s->form))
        chat_note(s, "[the reply is not a whole text of the %s]",
                  opt_given(s->args, OPT_GRAMMAR) ? "grammar" : "schema");
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

/* Of all replies together, and the newest prompt, which holds the conversation. No reply was made
 * twice, so none is called deterministic. */
static int write_receipt(chat_state *s, const id_list *prompt)
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
    for (size_t i = 0; i < s->ids.n; i++)
        ids_push(&s->all_ids, s->ids.data[i]);
    text_add(&s->all_made, s->made.data, s->made.n);
    f.prompt_ids = prompt->data;
    f.n_prompt = prompt->n;
    f.output_ids = s->all_ids.data;
    f.n_output = s->all_ids.n;
    f.text = s->all_made.data;
    f.n_text = s->all_made.n;
    f.finish = finish_word(s->last.finish, s->m);
    return receipt_save(s->args, s->receipt, &f);
}

/* ---- the turn ---- */

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
    int rc = form_begin(&s->form, s->sampler, v);
    if (rc)
        return rc;
    begin_reply(s);
    s->options.on_text = on_text;
    s->options.user = s;
    deadline_start(s->m);
    terminal_quiet(s->edits_lines);
    bitnet_status st =
        bitnet_generate(s->m->session, s->sampler, v->data, v->n, &s->options, &s->last, &err);
    s->m->deadline_ms = 0;
    terminal_quiet(false);
    announce(s);
    if (st == BITNET_CANCELLED)
        s->last.finish = BITNET_FINISH_CANCELLED;
    else if (st != BITNET_OK)
        return fail_with(&err);
    rc = form_outcome(&s->form);
    if (rc)
        return rc;
    settle_ids(&s->ids, &s->last);
    count(s, v->n);
    tell_reply(s, v->n);
    s->n_used = bitnet_session_position(s->m->session);
    s->unanswered = is_empty(s);
    if (!s->unanswered)
        conversation_add(&s->talk, "assistant", s->made.data);
    return write_receipt(s, v);
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
    if (rc && rc == interrupted()) { /* Ctrl-C while a long message was tokenized */
        rc = EXIT_OK;
        if (said)
            conversation_pop(&s->talk);
    } else if (s->refused) {
        fail(EXIT_OTHER, "this message has %zu tokens and the context holds %zu; it is not sent",
             v.n, bitnet_session_context(s->m->session));
        if (said)
            conversation_pop(&s->talk);
    } else if (!rc) {
        rc = answer(s, &v);
    }
    free(v.data);
    return rc ? rc : chat_interrupted(s);
}

int chat_resend(chat_state *s, const char *said)
{
    bool unanswered = s->unanswered;
    conversation old = conversation_take_newest(&s->talk);
    s->unanswered = false;
    int rc = chat_turn(s, said);
    for (size_t i = 0; s->refused && i < old.n; i++)
        conversation_add(&s->talk, old.turns[i].role, old.turns[i].text);
    if (s->refused)
        s->unanswered = unanswered;
    conversation_free(&old);
    return rc;
}
