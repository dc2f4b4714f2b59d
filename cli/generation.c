/* generation.c - what run, chat, tokenize and score share: text to ids and back, templates,
 * sampler, stops, kernels. */
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* ---- text and ids ---- */

void ids_push(id_list *v, int32_t id)
{
    if (v->n == v->cap) {
        v->cap = v->cap * 2 + 64;
        v->data = xrealloc(v->data, v->cap * sizeof *v->data);
    }
    v->data[v->n++] = id;
}

unsigned text_flags(const args *a)
{
    return (opt_on(a, OPT_BOS) ? BITNET_TEXT_BOS : 0u) |
           (opt_on(a, OPT_SPECIAL) ? BITNET_TEXT_SPECIAL : 0u);
}

int tokenize_text(const loaded *m, const char *bytes, size_t n, unsigned flags, id_list *out)
{
    bitnet_error err = {0};
    out->n = 0;
    if (out->cap < n / 2 + 16) {
        out->cap = n / 2 + 16;
        out->data = xrealloc(out->data, out->cap * sizeof *out->data);
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t n_ids = 0;
        bitnet_status st =
            bitnet_tokenize(m->engine, bytes, n, flags, out->data, out->cap, &n_ids, &err);
        if (st == BITNET_OK) {
            out->n = n_ids;
            return EXIT_OK;
        }
        if (st != BITNET_ARGUMENT || n_ids <= out->cap)
            break;
        out->cap = n_ids;
        out->data = xrealloc(out->data, out->cap * sizeof *out->data);
    }
    return loaded_outcome(m, err.status, &err);
}

int detokenize(const loaded *m, const int32_t *v, size_t n, unsigned flags, buffer *out)
{
    bitnet_error err = {0};
    size_t n_bytes = 0;
    bitnet_detokenize(m->engine, v, n, flags, NULL, 0, &n_bytes, NULL);
    char *bytes = text_room(out, n_bytes);
    int rc =
        outcome(bitnet_detokenize(m->engine, v, n, flags, bytes, n_bytes, &n_bytes, &err), &err);
    out->n += rc ? 0 : n_bytes;
    return rc;
}

/* ---- chat templates ---- */

/* The file's own: told where it is not what will be written, and why. */
static const char *own_template(const loaded *m)
{
    const char *name = m->info->chat_template;
    char *text = NULL;
    bitnet_chat_features f;
    bitnet_chat_features_init(&f);
    bitnet_chat_features_get(m->engine, NULL, &f, NULL);
    if (!name[0])
        text = xformat("%s: no chat template of this file is known: the text is given to the model "
                       "as it is (choose one with --template)",
                       m->path);
    else if (m->info->template_match == BITNET_TEMPLATE_GUESSED)
        text = xformat("%s: the file's own chat template cannot be rendered: %s; the built-in form "
                       "'%s' is used instead (--template NAME chooses another; bitnet "
                       "list-templates)",
                       m->path, f.problem, name);
    if (text)
        log_sink((void *)(uintptr_t)m->args, BITNET_LOG_WARN, "template", text);
    free(text);
    return name[0] ? name : "raw";
}

int choose_template(const loaded *m, const char *wanted, const char **name)
{
    const char *known;
    suggestion near;
    suggest_start(&near, wanted);
    if (strcmp(wanted, "auto") == 0) {
        *name = own_template(m);
        return EXIT_OK;
    }
    for (int i = 0; (known = bitnet_template_list(i)); i++) {
        suggest_offer(&near, known);
        if (strcmp(known, wanted) == 0)
            return *name = known, EXIT_OK;
    }
    return fail(EXIT_USAGE, "--template: '%s' is not a template; %s", wanted,
                suggest_or(&near, "see bitnet list-templates"));
}

int render_chat(const loaded *m, const char *template_name, const bitnet_message *messages,
                size_t n, buffer *out)
{
    bitnet_error err = {0};
    size_t n_bytes = 0;
    bitnet_chat_render(m->engine, template_name, messages, n, true, NULL, 0, &n_bytes, NULL);
    char *bytes = text_room(out, n_bytes);
    int rc = outcome(bitnet_chat_render(m->engine, template_name, messages, n, true, bytes, n_bytes,
                                        &n_bytes, &err),
                     &err);
    out->n += rc ? 0 : n_bytes;
    return rc;
}

/* ---- sampler ---- */

uint64_t choose_seed(const args *a)
{
    uint32_t seed = 0;
    if (opt_int(a, OPT_SEED) >= 0)
        return (uint64_t)opt_int(a, OPT_SEED);
    if (opt_on(a, OPT_DETERMINISTIC))
        return 42;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint32_t)time(NULL) ^ (uint32_t)getpid() * 2654435761u;
    return seed;
}

int open_sampler(const loaded *m, uint64_t seed, bitnet_sampler **out)
{
    bitnet_sampler_options o;
    bitnet_error err = {0};
    const args *a = m->args;
    bitnet_sampler_options_init(&o);
    o.temperature = (float)opt_float(a, OPT_TEMPERATURE);
    o.top_k = (int)opt_int(a, OPT_TOP_K);
    o.top_p = (float)opt_float(a, OPT_TOP_P);
    o.min_p = (float)opt_float(a, OPT_MIN_P);
    o.typical_p = (float)opt_float(a, OPT_TYPICAL);
    o.repetition_penalty = (float)opt_float(a, OPT_REPETITION);
    o.presence_penalty = (float)opt_float(a, OPT_PRESENCE);
    o.frequency_penalty = (float)opt_float(a, OPT_FREQUENCY);
    o.penalty_window = (int)opt_int(a, OPT_WINDOW);
    o.seed = seed;
    return outcome(bitnet_sampler_open(&o, m->info->n_vocab, out, &err), &err);
}

/* ---- stops ---- */

void stop_list_add(stop_list *s, const char *stop)
{
    s->data = xrealloc(s->data, (s->n + 1) * sizeof *s->data);
    s->data[s->n++] = xstrdup(stop);
}

void stop_list_free(stop_list *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->data[i]);
    free(s->data);
    *s = (stop_list){0};
}

static int add_stops(const args *a, stop_list *stops)
{
    const value *v = &a->values[OPT_STOP];
    for (size_t i = 0; i < v->n_list; i++) {
        char *text = unescaped(a, v->list[i]);
        size_t n = strlen(text);
        stop_list_add(stops, text);
        free(text);
        if (n == 0 || n > BITNET_STOP_MAX)
            return fail(EXIT_USAGE, "%s: a stop text has 1 to %d bytes", v->origin,
                        BITNET_STOP_MAX);
    }
    return EXIT_OK;
}

static int check_stop_ids(const loaded *m)
{
    const value *v = &m->args->values[OPT_STOP_ID];
    for (size_t i = 0; i < v->n_list; i++)
        if (v->ids[i] >= m->info->n_vocab)
            return fail(EXIT_USAGE, "%s: %d is not a token of this model (0 to %d)", v->origin,
                        v->ids[i], m->info->n_vocab - 1);
    return EXIT_OK;
}

int generate_options(const loaded *m, bitnet_generate_options *o, stop_list *stops)
{
    const args *a = m->args;
    bitnet_generate_options_init(o);
    int rc = check_stop_ids(m);
    rc = rc ? rc : add_stops(a, stops);
    int64_t most = opt_int(a, OPT_MAX_TOKENS);
    o->max_tokens = most < 0 ? SIZE_MAX : (size_t)most; /* then the context ends it */
    o->stop_ids = a->values[OPT_STOP_ID].ids;
    o->n_stop_ids = a->values[OPT_STOP_ID].n_list;
    o->ignore_eos = opt_on(a, OPT_IGNORE_EOS);
    o->stops = (const char *const *)stops->data;
    o->n_stops = stops->n;
    o->print_special = opt_on(a, OPT_PRINT_SPECIAL);
    return rc;
}

void settle_ids(id_list *ids, const bitnet_generate_result *r)
{
    if (ids->n > r->n_generated)
        ids->n = r->n_generated;
    else if (ids->n < r->n_generated)
        ids_push(ids, r->last_id);
}

/* ---- figures ---- */

double per_second(size_t n, double ms)
{
    return ms > 0 ? (double)n * 1e3 / ms : 0;
}

const char *grouped(uint64_t n, char *buf, size_t cap)
{
    char digits[24];
    size_t n_digits = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n),
           at = 0;
    for (size_t i = 0; i < n_digits && at + 3 < cap; i++) {
        if (i && (n_digits - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *rate_text(double per_s, char *buf, size_t cap)
{
    if (per_s >= 100)
        return grouped((uint64_t)(per_s + 0.5), buf, cap);
    snprintf(buf, cap, "%.*f", per_s >= 9.995 ? 1 : 2, per_s);
    return buf;
}

static bitnet_kernel_use *kernels_used(const loaded *m, size_t *n)
{
    size_t cap = bitnet_engine_kernels(m->engine, NULL, 0);
    bitnet_kernel_use *list = xmalloc((cap + 1) * sizeof *list);
    *n = bitnet_engine_kernels(m->engine, list, cap);
    if (*n > cap)
        *n = cap;
    return list;
}

void kernels_text(const loaded *m, buffer *out)
{
    size_t n;
    bitnet_kernel_use *list = kernels_used(m, &n);
    for (size_t i = 0; i < n; i++)
        text_printf(out, "%s%s", i ? " " : "", list[i].id);
    if (n == 0)
        text_puts(out, "none");
    free(list);
}

json_t *kernels_json(const loaded *m)
{
    size_t n;
    json_t *array = json_array();
    bitnet_kernel_use *list = kernels_used(m, &n);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, j_object("id:t calls:n", list[i].id, list[i].n_calls));
    free(list);
    return array;
}

void top_tokens(const float *logits, int n_vocab, top_token *top, size_t n)
{
    size_t have = 0;
    for (int32_t id = 0; id < n_vocab && n; id++) {
        if (have == n && !(logits[id] > top[n - 1].logit))
            continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[id] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at] = (top_token){id, logits[id]};
    }
}

const char *finish_word(bitnet_finish finish, const loaded *m)
{
    switch (finish) {
    case BITNET_FINISH_STOP_ID:
    case BITNET_FINISH_STOP_STRING:
        return "stop";
    case BITNET_FINISH_LENGTH:
    case BITNET_FINISH_CONTEXT:
        return "length";
    case BITNET_FINISH_CANCELLED:
        return m->timed_out ? "timeout" : "cancelled";
    default:
        return bitnet_finish_text(finish);
    }
}

/* ---- log-probabilities ---- */

json_t *j_piece(const loaded *m, int32_t id)
{
    size_t n = 0;
    const char *bytes = bitnet_token_bytes(m->engine, id, &n);
    return j_text(bytes, bytes ? n : 0);
}

static void add_logprobs(const loaded *m, json_t *event, int32_t id)
{
    const float *logits = bitnet_session_logits(m->session);
    size_t n = (size_t)opt_int(m->args, OPT_LOGPROBS);
    bitnet_logprob chosen = {.id = id}, *top = xmalloc((n + 1) * sizeof *top);
    if (logits &&
        bitnet_logprobs(logits, m->info->n_vocab, &chosen, 1, top, n, NULL) == BITNET_OK) {
        json_t *list = json_array();
        for (size_t i = 0; i < n && top[i].id >= 0; i++)
            json_array_append_new(list, j_object("id:i text:j logprob:f", top[i].id,
                                                 j_piece(m, top[i].id), (double)top[i].logprob));
        j_add(event, "logprob:f top_logprobs:j", (double)chosen.logprob, list);
    }
    free(top);
}

/* ---- a reply ---- */

int events_check(const args *a)
{
    if (opt_given(a, OPT_LOGPROBS) && !opt_json(a))
        return fail(EXIT_USAGE,
                    "%s: log-probabilities are part of JSON; add --json or --format jsonl",
                    a->values[OPT_LOGPROBS].origin);
    return EXIT_OK;
}

void events_begin(reply_events *e, const loaded *m, bool trims)
{
    bool keeps = opt_given(m->args, OPT_LOGPROBS) && !opt_jsonl(m->args);
    *e = (reply_events){.m = m, .trims = trims, .position = SIZE_MAX};
    e->steps = keeps ? json_array() : NULL;
}

void events_trim(reply_events *e, const char **bytes, size_t *n)
{
    while (e->trims && !e->begun && *n && (**bytes == ' ' || **bytes == '\n'))
        ++*bytes, --*n;
    e->begun = e->begun || *n > 0;
}

bool events_token(reply_events *e, const char *bytes, size_t n, int32_t id)
{
    if (!e->steps && !opt_jsonl(e->m->args))
        return true;
    /* a cancelled generation may tell what it held back with the token it has told already */
    size_t position = bitnet_session_position(e->m->session);
    bool again = position == e->position;
    e->position = position;
    json_t *event = e->steps ? json_object() : j_object("event:t", "token");
    j_add(event, "text:j id:j", j_text(bytes, n), again ? json_null() : json_integer(id));
    if (opt_given(e->m->args, OPT_LOGPROBS) && !again)
        add_logprobs(e->m, event, id);
    if (!e->steps)
        return j_print(event);
    if (again)
        json_decref(event);
    else
        json_array_append_new(e->steps, event);
    return true;
}

void events_finish(reply_events *e, json_t *reply)
{
    if (e->steps && reply)
        json_object_set(reply, "logprobs", e->steps);
    json_decref(e->steps);
    e->steps = NULL;
}
