/* chat_settings.c - what can be changed in the middle of a chat: how tokens are chosen, how long a
 * reply may be, the model. A change that fails changes nothing. */
#include <stdlib.h>
#include <string.h>

#include "chat.h"

/* What /set knows, in the order it is shown; ranges and words are those of the options. */
static const option_key settings[] = {
    OPT_TEMPERATURE, OPT_TOP_K,    OPT_TOP_P,     OPT_MIN_P,   OPT_TYPICAL,
    OPT_REPETITION,  OPT_PRESENCE, OPT_FREQUENCY, OPT_WINDOW,  OPT_SEED,
    OPT_MAX_TOKENS,  OPT_TIMEOUT,  OPT_WRAP,      OPT_METRICS, OPT_HISTORY_LIMIT,
};

const option *setting_at(size_t i)
{
    return i < sizeof settings / sizeof *settings ? option_at(settings[i]) : NULL;
}

const char *chat_keep(chat_state *s, const char *text)
{
    s->kept = xrealloc(s->kept, (s->n_kept + 1) * sizeof *s->kept);
    return s->kept[s->n_kept++] = xstrdup(text);
}

/* ---- opening ---- */

/* What belongs to a model and changes with it. */
typedef struct opened {
    loaded *m;
    bitnet_sampler *sampler;
    const char *template_name;
    stop_list stops;
    bitnet_generate_options options;
} opened;

static void close_opened(opened *o)
{
    stop_list_free(&o->stops);
    bitnet_sampler_close(o->sampler);
    if (o->m)
        load_close(o->m);
    free(o->m);
    *o = (opened){0};
}

/* This template has no stop token: a new question in the reply ends it. */
static void add_template_stops(opened *o)
{
    if (strcmp(o->template_name, "instruct") != 0)
        return;
    stop_list_add(&o->stops, "\n\nQ:");
    stop_list_add(&o->stops, "\n\nHuman:");
}

static int open_all(const chat_state *s, opened *o)
{
    *o = (opened){.m = xmalloc(sizeof *o->m)};
    int rc = load_engine(o->m, s->args, false);
    if (!rc)
        rc = choose_template(o->m, opt_text(s->args, OPT_TEMPLATE), &o->template_name);
    if (!rc)
        rc = load_session(o->m);
    if (!rc)
        rc = open_sampler(o->m, s->seed, &o->sampler);
    if (rc)
        return rc;
    add_template_stops(o);
    rc = generate_options(o->m, &o->options, &o->stops);
    o->options.min_tokens = 1; /* a reply that is nothing but its end is none */
    return rc;
}

void chat_close(chat_state *s)
{
    opened old = {s->m, s->sampler, s->template_name, s->stops, s->options};
    close_opened(&old);
    s->m = NULL;
    s->sampler = NULL;
    s->stops = (stop_list){0};
}

/* A guess is warned of; that there was nothing to guess from is worth a line. */
static void tell_template(const chat_state *s)
{
    const bitnet_model_info *i = s->m->info;
    if (strcmp(opt_text(s->args, OPT_TEMPLATE), "auto") == 0 && i->chat_template[0] &&
        i->template_match == BITNET_TEMPLATE_ABSENT)
        chat_note(s,
                  "[the file has no chat template: the built-in form '%s' is used; --template NAME "
                  "chooses another]",
                  s->template_name);
}

int chat_open(chat_state *s)
{
    opened fresh;
    int rc = open_all(s, &fresh);
    if (rc) {
        close_opened(&fresh);
        return rc;
    }
    chat_close(s);
    s->m = fresh.m;
    s->sampler = fresh.sampler;
    s->template_name = fresh.template_name;
    s->stops = fresh.stops;
    s->options = fresh.options;
    tell_template(s);
    return EXIT_OK;
}

/* ---- /set ---- */

static void setting_text(const chat_state *s, const option *o, buffer *out)
{
    const value *v = &s->args->values[o->key];
    if (o->type == TYPE_FLAG || o->type == TYPE_SWITCH)
        text_puts(out, v->on ? "on" : "off");
    else if (o->key == OPT_SEED)
        text_printf(out, "%llu", (unsigned long long)s->seed);
    else
        text_puts(out, v->text ? v->text : "");
}

void chat_show_settings(const chat_state *s)
{
    const option *o;
    for (size_t i = 0; (o = setting_at(i)); i++) {
        buffer now = {0};
        setting_text(s, o, &now);
        chat_say(s, 32, "  %-18s %-10s %.*s", o->name, now.data, (int)strcspn(o->help, ";"),
                 o->help);
        free_buffer(&now);
    }
}

static const option *find_setting(const char *key)
{
    const option *o;
    suggestion near;
    char *name = xstrdup(key);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    suggest_start(&near, name);
    for (size_t i = 0; (o = setting_at(i)); i++) {
        suggest_offer(&near, o->name, strlen(o->name));
        if (strcmp(o->name, name) == 0 || word_in(o->aliases, ' ', name))
            break;
    }
    const char *best = suggest_best(&near);
    if (!o)
        fail(EXIT_USAGE, "/set: there is no '%s'; %s%s%s", key,
             best ? "did you mean " : "/set lists what there is", best ? best : "",
             best ? "?" : "");
    free(name);
    return o;
}

/* A seed that is set begins its draws anew. Another setting goes on with the next seed, so that
 * what was drawn already is not drawn again. */
static int renew_sampler(chat_state *s, option_key changed)
{
    uint64_t seed = changed == OPT_SEED       ? choose_seed(s->args)
                    : s->totals.n_replies > 0 ? s->seed + 1
                                              : s->seed;
    bitnet_sampler *fresh = NULL;
    int rc = open_sampler(s->m, seed, &fresh);
    if (rc)
        return rc;
    bitnet_sampler_close(s->sampler);
    s->sampler = fresh;
    s->seed = seed;
    return EXIT_OK;
}

static int apply_setting(chat_state *s, const option *o)
{
    switch (o->key) {
    case OPT_MAX_TOKENS: {
        int64_t most = opt_int(s->args, OPT_MAX_TOKENS);
        s->options.max_tokens = most < 0 ? SIZE_MAX : (size_t)most;
        return EXIT_OK;
    }
    case OPT_TIMEOUT:
    case OPT_WRAP:
    case OPT_METRICS:
    case OPT_HISTORY_LIMIT:
        return EXIT_OK;
    default:
        return renew_sampler(s, o->key);
    }
}

void chat_set(chat_state *s, const char *key, const char *written)
{
    char origin[64];
    const option *o = find_setting(key);
    if (!o)
        return;
    value before = s->args->values[o->key], after = before;
    snprintf(origin, sizeof origin, "/set %s", o->name);
    after.origin = "/set";
    if (*written) {
        if (value_parse(o, origin, chat_keep(s, written), &after) != EXIT_OK)
            return;
        if (o->key == OPT_MAX_TOKENS && after.integer == 0) {
            fail(EXIT_USAGE, "%s: a reply has at least 1 token; -1: as many as fit", origin);
            return;
        }
        s->args->values[o->key] = after;
        if (apply_setting(s, o) != EXIT_OK)
            s->args->values[o->key] = before;
    }
    buffer now = {0};
    setting_text(s, o, &now);
    chat_note(s, "[%s is %s]", o->name, now.data);
    free_buffer(&now);
}

/* ---- /model ---- */

static void show_model(const chat_state *s)
{
    const bitnet_model_info *i = s->m->info;
    chat_note(s, "[%s: %s, %d layers, %s weights, template %s, context of %zu tokens]", s->m->path,
              *i->name ? i->name : i->architecture, i->n_layers, i->weight_type, s->template_name,
              bitnet_session_context(s->m->session));
}

void chat_switch_model(chat_state *s, const char *path)
{
    if (!*path) {
        show_model(s);
        return;
    }
    if (s->receipt) {
        fail(EXIT_USAGE, "/model: a receipt is of one model; start without --receipt to change it");
        return;
    }
    value before = s->args->values[OPT_MODEL];
    char *expanded = expand_home(path);
    s->args->values[OPT_MODEL].text = chat_keep(s, expanded);
    s->args->values[OPT_MODEL].origin = "/model";
    free(expanded);
    if (chat_open(s) != EXIT_OK) {
        s->args->values[OPT_MODEL] = before;
        signals_name_model(s->m->path);
        chat_note(s, "[the model stays %s]", s->m->path);
        if (s->interactive && interrupted() == EXIT_INTERRUPTED)
            interrupt_clear();
        return;
    }
    s->totals = (chat_totals){0};
    show_model(s);
    chat_count(s);
}
