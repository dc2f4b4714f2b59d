/* cmd_run.c - `bitnet run`: a prompt in, its continuation out as it is made. */
#include "run.h"
#include "terminal.h"

/* ---- the prompt ---- */

static int render_first(run_state *r, const char *system)
{
    bitnet_message messages[2];
    buffer rendered = {0};
    size_t n = 0;
    char *said = system ? unescaped(r->args, system) : NULL;
    if (said)
        messages[n++] = (bitnet_message){"system", said};
    messages[n++] = (bitnet_message){"user", r->prompt.data};
    int rc = render_chat(&r->m, r->template_name, messages, n, &rendered);
    free(said);
    free_buffer(&r->prompt);
    r->prompt = rendered;
    return rc;
}

/* With --template the prompt is the first message of a conversation. Where no command was named it
 * is one too, if the file has a template; else it is continued. */
static int apply_template(run_state *r)
{
    const args *a = r->args;
    bool answers = a->answers && !opt_given(a, OPT_RUN_TEMPLATE) && r->m.info->chat_template[0];
    const char *wanted = answers ? "auto" : opt_text(a, OPT_RUN_TEMPLATE);
    const char *system = opt_text(a, OPT_RUN_SYSTEM);
    bool raw = strcmp(wanted, "raw") == 0;
    r->template_name = "raw";
    if (raw)
        return system ? fail(EXIT_USAGE, "--system needs --template: run takes the prompt as it is")
                      : EXIT_OK;
    int rc = choose_template(&r->m, wanted, &r->template_name);
    return rc ? rc : render_first(r, system);
}

static int read_prompt(run_state *r)
{
    bool found, from_file;
    int rc = read_text(r->args, OPT_PROMPT, OPT_RUN_FILE, &r->prompt, &found, &from_file);
    buffer *p = &r->prompt;
    if (!rc && from_file && p->n && p->data[p->n - 1] == '\n')
        p->data[--p->n] = '\0';
    if (!rc && !found)
        note(r->args,
             "[no prompt: the model begins a text of its own; bitnet chat talks with it]\n");
    if (!rc && r->args->answers && p->n == 0)
        rc = fail(EXIT_USAGE, "standard input is empty: nothing to answer; bitnet run begins a "
                              "text without a prompt");
    return rc;
}

static int tokenize_prompt(run_state *r)
{
    double start = now_ms();
    int rc = apply_template(r);
    if (!rc)
        rc = tokenize_text(&r->m, r->prompt.data, r->prompt.n, text_flags(r->args), &r->prompt_ids);
    r->tokenize_ms = now_ms() - start;
    if (!rc && r->prompt_ids.n == 0)
        rc = fail(EXIT_USAGE,
                  "the prompt is empty and nothing begins the text: give a prompt, or allow the "
                  "beginning-of-text token if the model has one");
    return rc;
}

static int check_fit(const run_state *r)
{
    size_t n_ctx = bitnet_session_context(r->m.session);
    if (r->prompt_ids.n <= n_ctx)
        return EXIT_OK;
    return fail(EXIT_OTHER,
                "the prompt has %zu token%s and the context holds %zu; shorten it or raise --ctx",
                r->prompt_ids.n, plural(r->prompt_ids.n), n_ctx);
}

/* ---- --dump-logits ---- */

typedef struct dump {
    outfile file;
    size_t n_bytes; /* of a row */
    bool failed;
} dump;

static bool write_row(void *user, size_t index, const float *logits)
{
    dump *d = user;
    (void)index;
    d->failed = !outfile_write(&d->file, logits, d->n_bytes);
    return !d->failed;
}

/* Computes the prompt, every position's logits to the file. */
static int dump_logits(run_state *r)
{
    dump d = {.n_bytes = (size_t)r->m.info->n_vocab * sizeof(float)};
    bitnet_error err = {0};
    double start = now_ms();
    int rc = outfile_open(&d.file, opt_text(r->args, OPT_DUMP_LOGITS));
    if (rc)
        return rc;
    progress_begin(UNIT_TOKENS, "reading the prompt");
    bitnet_status st = bitnet_session_append(r->m.session, r->prompt_ids.data, r->prompt_ids.n,
                                             write_row, &d, &err);
    progress_end();
    r->dump_ms = now_ms() - start;
    if (st == BITNET_OK || d.failed)
        return outfile_commit(&d.file); /* after a failed write it tells the reason */
    outfile_abort(&d.file);
    return fail_with(&err);
}

/* ---- generation ---- */

/* What --dump-logit-steps and --assert-greedy want to know: the logits that the token was chosen
 * from. */
static void watch(run_state *r, int32_t id)
{
    size_t n_wanted = (size_t)opt_int(r->args, OPT_LOGIT_STEPS);
    bool greedy = opt_on(r->args, OPT_ASSERT_GREEDY) && r->first_not_greedy < 0;
    top_token best;
    if (!greedy && r->n_steps >= n_wanted) /* asking would have all of them computed */
        return;
    const float *logits = bitnet_session_logits(r->m.session);
    if (!logits)
        return;
    top_tokens(logits, r->m.info->n_vocab, &best, 1);
    if (greedy && best.id != id)
        r->first_not_greedy = (int32_t)r->ids.n;
    if (r->n_steps >= n_wanted)
        return;
    size_t n_top = (size_t)opt_int(r->args, OPT_LOGIT_TOPK);
    if (n_top > (size_t)r->m.info->n_vocab)
        n_top = (size_t)r->m.info->n_vocab;
    step s = {.chosen = id, .top = xmalloc(n_top * sizeof *s.top), .n_top = n_top};
    top_tokens(logits, r->m.info->n_vocab, s.top, n_top);
    r->steps = xrealloc(r->steps, (r->n_steps + 1) * sizeof *r->steps);
    r->steps[r->n_steps++] = s;
}

static bool streams(const run_state *r)
{
    return !opt_json(r->args) && opt_on(r->args, OPT_STREAM);
}

/* At a terminal in lines that end with words. */
static bool show(run_state *r, const char *bytes, size_t n, bool last)
{
    return wrap_write(&r->wrap, opt_on(r->args, OPT_WRAP), bytes, n, last);
}

/* Nobody sees the text before it is whole. */
static bool is_silent(const run_state *r)
{
    return !streams(r) && !opt_jsonl(r->args);
}

/* The prompt is computed: what was shown of its progress goes. */
static void begin_text(run_state *r)
{
    progress_end();
    if (opt_on(r->args, OPT_ECHO) && !opt_json(r->args))
        show(r, r->prompt.data, r->prompt.n, false);
    if (is_silent(r))
        progress_begin(UNIT_TOKENS, "writing the text");
    r->text_begun = true;
}

static bool on_text(void *user, const char *bytes, size_t n, int32_t id)
{
    run_state *r = user;
    if (!r->text_begun)
        begin_text(r);
    if (is_silent(r))
        progress_step(NULL, r->ids.n + 1, 0);
    watch(r, id);
    ids_push(&r->ids, id);
    events_trim(&r->events, &bytes, &n);
    text_add(&r->made, bytes, n);
    return events_token(&r->events, bytes, n, id) && (!streams(r) || show(r, bytes, n, false)) &&
           r->first_not_greedy < 0 && form_follow(&r->form, id);
}

static int generate(run_state *r)
{
    bitnet_generate_options o;
    bitnet_error err = {0};
    int rc = generate_options(&r->m, &o, &r->stops);
    rc = rc ? rc : form_begin(&r->form, r->sampler, &r->prompt_ids);
    if (rc)
        return rc;
    o.on_text = on_text;
    o.user = r;
    events_begin(&r->events, &r->m, strcmp(r->template_name, "raw") != 0);
    progress_begin(UNIT_TOKENS, "reading the prompt");
    bitnet_status st = bitnet_generate(r->m.session, r->sampler, r->prompt_ids.data,
                                       r->prompt_ids.n, &o, &r->result, &err);
    if (!r->text_begun)
        begin_text(r);
    progress_end();
    settle_ids(&r->ids, &r->result);
    if (st == BITNET_CANCELLED) {
        r->result.finish = BITNET_FINISH_CANCELLED;
        return EXIT_OK;
    }
    rc = outcome(st, &err);
    return rc ? rc : form_outcome(&r->form);
}

/* ---- --receipt ---- */

/* The tokens of the second run, and how many the first one made. */
typedef struct second_run {
    id_list ids;
    size_t n_first;
} second_run;

static bool keep_id(void *user, const char *bytes, size_t n, int32_t id)
{
    second_run *again = user;
    (void)bytes, (void)n;
    ids_push(&again->ids, id);
    return progress_step(NULL, again->ids.n, again->n_first);
}

/* The same prompt and seed from the beginning, in silence. */
static int repeat(run_state *r)
{
    bitnet_generate_options o;
    bitnet_generate_result result;
    bitnet_error err = {0};
    second_run again = {.n_first = r->ids.n};
    stop_list stops = {0};
    bitnet_sampler *sampler = NULL;
    r->m.deadline_ms = 0;
    int rc = generate_options(&r->m, &o, &stops);
    rc = rc ? rc : open_sampler(&r->m, r->seed, &sampler);
    o.on_text = keep_id;
    o.user = &again;
    rc = rc ? rc : outcome(bitnet_session_rewind(r->m.session, 0, &err), &err);
    bitnet_session_on_progress(r->m.session, NULL, NULL); /* the tokens are counted instead */
    progress_begin(UNIT_TOKENS, "making the text again");
    if (!rc)
        rc = outcome(bitnet_generate(r->m.session, sampler, r->prompt_ids.data, r->prompt_ids.n, &o,
                                     &result, &err),
                     &err);
    progress_end();
    if (!rc) {
        settle_ids(&again.ids, &result);
        size_t n = again.ids.n;
        r->repeated = true;
        r->identical = n == r->ids.n &&
                       (n == 0 || memcmp(again.ids.data, r->ids.data, n * sizeof(int32_t)) == 0);
    }
    free(again.ids.data);
    stop_list_free(&stops);
    bitnet_sampler_close(sampler);
    return rc;
}

static int write_receipt(run_state *r)
{
    bitnet_receipt_facts f;
    int rc = EXIT_OK;
    if (!r->receipt)
        return EXIT_OK;
    if (opt_on(r->args, OPT_DETERMINISTIC) && r->result.finish != BITNET_FINISH_CANCELLED)
        rc = repeat(r);
    bitnet_receipt_facts_init(&f);
    f.deterministic = r->repeated;
    f.deterministic_asked = opt_on(r->args, OPT_DETERMINISTIC);
    f.identical = r->identical;
    f.n_runs = r->repeated ? 2 : 1;
    f.n_passed = r->repeated && r->identical;
    f.n_failed = r->repeated && !r->identical;
    f.seed = r->seed;
    f.n_generated = r->result.n_generated;
    f.first_token_ms = r->dump_ms + r->result.first_token_ms;
    f.decode_ms = r->result.decode_ms;
    f.total_ms = f.first_token_ms + f.decode_ms;
    f.prompt_ids = r->prompt_ids.data;
    f.n_prompt = r->prompt_ids.n;
    f.output_ids = r->ids.data;
    f.n_output = r->ids.n;
    f.text = r->made.data;
    f.n_text = r->made.n;
    f.finish = finish_word(r->result.finish, &r->m);
    rc = rc ? rc : receipt_save(r->args, r->receipt, &f);
    if (!rc && r->repeated && !r->identical)
        rc = fail(EXIT_MISMATCH, "--deterministic: the second run made other tokens");
    return rc;
}

/* ---- the command ---- */

static int prepare(run_state *r)
{
    int rc = events_check(r->args);
    rc = rc ? rc : read_prompt(r);
    r->start_ms = now_ms();
    rc = rc ? rc : load_engine(&r->m, r->args, false);
    rc = rc ? rc : tokenize_prompt(r);
    rc = rc ? rc : load_session(&r->m);
    rc = rc ? rc : check_fit(r);
    rc = rc ? rc : open_sampler(&r->m, r->seed = choose_seed(r->args), &r->sampler);
    rc = rc ? rc : form_open(&r->m, &r->form);
    rc = rc ? rc : receipt_begin(&r->m, &r->receipt);
    return rc;
}

/* Ends the text on stdout with a newline, where there is any; --output gets exactly what was made.
 */
static int finish_text(run_state *r)
{
    const char *made = r->made.data ? r->made.data : "";
    bool silent = r->result.n_generated == 0 && !opt_on(r->args, OPT_ECHO);
    if (!opt_json(r->args)) {
        show(r, made, streams(r) ? 0 : r->made.n, true);
        if (!silent && (r->made.n == 0 || made[r->made.n - 1] != '\n'))
            out_puts("\n");
    }
    if (!opt_given(r->args, OPT_RUN_OUT))
        return EXIT_OK;
    return save_bytes(opt_text(r->args, OPT_RUN_OUT), made, r->made.n);
}

static int tell(run_state *r)
{
    int rc = finish_text(r), rc_report = run_report(r);
    if (!opt_json(r->args) && !out_failed()) {
        run_dump_steps(r);
        run_closing_line(r);
    }
    if (form_is_cut(&r->form) && opt_int(r->args, OPT_MAX_TOKENS) != 0)
        warn("the text is cut: it is not a whole text of the %s",
             opt_given(r->args, OPT_GRAMMAR) ? "grammar" : "schema");
    if (opt_on(r->args, OPT_DUMP_IDS))
        run_dump_ids(r);
    rc = rc ? rc : rc_report;
    rc = rc ? rc : write_receipt(r);
    if (!rc && r->first_not_greedy >= 0)
        rc =
            fail(EXIT_MISMATCH,
                 "--assert-greedy: token %d of the continuation (id %d) is not the most likely one",
                 r->first_not_greedy, r->ids.data[r->first_not_greedy]);
    return rc ? rc : interrupted();
}

static void release(run_state *r)
{
    for (size_t i = 0; i < r->n_steps; i++)
        free(r->steps[i].top);
    free(r->steps);
    events_finish(&r->events, NULL);
    free(r->prompt_ids.data);
    free(r->ids.data);
    free_buffer(&r->prompt);
    free_buffer(&r->made);
    wrap_free(&r->wrap);
    stop_list_free(&r->stops);
    form_close(&r->form);
    bitnet_sampler_close(r->sampler);
    bitnet_receipt_close(r->receipt);
    load_close(&r->m);
}

int cmd_run(args *a)
{
    run_state r = {.args = a, .first_not_greedy = -1};
    terminal_watch();
    int rc = prepare(&r);
    if (!rc && opt_given(a, OPT_DUMP_LOGITS))
        rc = dump_logits(&r);
    rc = rc ? rc : generate(&r);
    r.total_ms = now_ms() - r.start_ms;
    rc = rc ? rc : tell(&r);
    release(&r);
    return rc;
}
