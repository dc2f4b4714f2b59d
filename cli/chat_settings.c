/* chat_settings.c - what can be changed in the middle of a chat: how tokens are chosen, how long a
 * reply may be, the model. A change that fails changes nothing. */
#include <ctype.h>

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

/* ---- opening ---- */

/* What belongs to a model and changes with it. This template has no stop token: a new question in
 * the reply ends it. */
static int open_all(chat_state *s)
{
    int rc = load_engine(s->m, s->args, false);
    rc = rc ? rc : choose_template(s->m, opt_text(s->args, OPT_TEMPLATE), &s->template_name);
    rc = rc ? rc : load_session(s->m);
    rc = rc ? rc : open_sampler(s->m, s->seed, &s->sampler);
    rc = rc ? rc : form_open(s->m, &s->form);
    if (rc)
        return rc;
    if (strcmp(s->template_name, "instruct") == 0) {
        stop_list_add(&s->stops, "\n\nQ:");
        stop_list_add(&s->stops, "\n\nHuman:");
    }
    rc = generate_options(s->m, &s->options, &s->stops);
    s->options.min_tokens = 1; /* a reply that is nothing but its end is none */
    return rc;
}

void chat_close(chat_state *s)
{
    stop_list_free(&s->stops);
    form_close(&s->form);
    bitnet_sampler_close(s->sampler);
    if (s->m)
        load_close(s->m);
    free(s->m);
    s->m = NULL;
    s->sampler = NULL;
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
    chat_state fresh = *s;
    fresh.m = xmalloc(sizeof *fresh.m);
    fresh.sampler = NULL;
    fresh.form = (text_form){0};
    fresh.stops = (stop_list){0};
    int rc = open_all(&fresh);
    if (rc) {
        chat_close(&fresh);
        return rc;
    }
    chat_close(s);
    *s = fresh;
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

static void show_settings(const chat_state *s)
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
        suggest_offer(&near, o->name);
        if (option_is_called(o, name))
            break;
    }
    if (!o)
        fail(EXIT_USAGE, "/set: there is no '%s'; %s", key,
             suggest_or(&near, "/set lists what there is"));
    free(name);
    return o;
}

/* A seed that is set begins its draws anew. Any other setting continues with the next seed, so
 * that what was drawn already is not drawn again. */
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

/* Sets it to what is written (n bytes). On failure it stays as it was; false: nothing to show. */
static bool set_to(chat_state *s, const option *o, const char *written, size_t n)
{
    char origin[64];
    value *v = &s->args->values[o->key], before = *v, after = before;
    snprintf(origin, sizeof origin, "/set %s", o->name);
    after.origin = "/set";
    if (value_parse(o, origin, args_keep(s->args, written, n), &after) != EXIT_OK)
        return false;
    if (o->key == OPT_MAX_TOKENS && after.integer == 0) {
        fail(EXIT_USAGE, "%s: a reply has at least 1 token; -1: as many as fit", origin);
        return false;
    }
    *v = after;
    if (apply_setting(s, o) != EXIT_OK)
        *v = before;
    return true;
}

int chat_set(chat_state *s, const char *argument)
{
    size_t n_key = strcspn(argument, " \t=");
    const char *written = argument + n_key + strspn(argument + n_key, " \t=");
    size_t n = strlen(written);
    while (n && isspace((unsigned char)written[n - 1]))
        n--;
    if (!*argument) {
        show_settings(s);
        return EXIT_OK;
    }
    char *key = xmemdup(argument, n_key);
    const option *o = find_setting(key);
    free(key);
    if (o && (n == 0 || set_to(s, o, written, n))) {
        buffer now = {0};
        setting_text(s, o, &now);
        chat_note(s, "[%s is %s]", o->name, now.data);
        free_buffer(&now);
    }
    return EXIT_OK;
}

/* ---- /model ---- */

static void show_model(const chat_state *s)
{
    const bitnet_model_info *i = s->m->info;
    chat_note(s, "[%s: %s, %d layers, %s weights, template %s, context of %zu tokens]", s->m->path,
              *i->name ? i->name : i->architecture, i->n_layers, i->weight_type, s->template_name,
              bitnet_session_context(s->m->session));
}

int chat_switch_model(chat_state *s, const char *path)
{
    if (!*path) {
        show_model(s);
        return EXIT_OK;
    }
    if (s->receipt)
        return fail(EXIT_USAGE, "/model: a receipt is of one model; start without --receipt to "
                                "change it"),
               EXIT_OK;
    value before = s->args->values[OPT_MODEL];
    char *expanded = expand_home(path);
    s->args->values[OPT_MODEL].text = args_keep(s->args, expanded, strlen(expanded));
    s->args->values[OPT_MODEL].origin = "/model";
    free(expanded);
    if (chat_open(s) == EXIT_OK) {
        s->totals = (chat_totals){0};
        show_model(s);
        chat_count(s);
        return EXIT_OK;
    }
    s->args->values[OPT_MODEL] = before;
    signals_name_model(s->m->path);
    signals_watch_engine(s->m->engine);
    chat_note(s, "[the model stays %s]", s->m->path);
    return chat_interrupted(s);
}
