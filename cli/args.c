/* args.c - the command line and the environment read against the option table.
 * Precedence: option, then environment variable, then default. Bad input is refused with option,
 * value and range. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { NAME_MAX_BYTES = 64 };

/* ---- looking up ---- */

/* Copies an option name with dashes for underscores; false if it is too long to be one. */
static bool normal_name(const char *name, size_t n, char buf[NAME_MAX_BYTES])
{
    if (n >= NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        buf[i] = name[i] == '_' ? '-' : name[i];
    buf[n] = '\0';
    return true;
}

static bool row_serves(const option *o, const command *c)
{
    return !c || option_on(o, c->key);
}

/* The row for a long name under command c (NULL: any). *negated: it was --no-name of a switch. */
static const option *find_long(const char *name, const command *c, bool *negated)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const option *o = option_at(i);
        if (!row_serves(o, c))
            continue;
        *negated = false;
        if (strcmp(o->name, name) == 0 || word_in(o->aliases, ' ', name))
            return o;
        *negated = true;
        if (o->type == TYPE_SWITCH && strncmp(name, "no-", 3) == 0 &&
            (strcmp(o->name, name + 3) == 0 || word_in(o->aliases, ' ', name + 3)))
            return o;
    }
    return NULL;
}

static const option *find_letter(char letter, const command *c)
{
    for (size_t i = 0; i < OPT_COUNT; i++)
        if (option_at(i)->letter == letter && letter && row_serves(option_at(i), c))
            return option_at(i);
    return NULL;
}

static void offer_names(suggestion *s, const option *o)
{
    char word[NAME_MAX_BYTES], negated[NAME_MAX_BYTES + 3];
    suggest_offer(s, o->name, strlen(o->name));
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        suggest_offer(s, word, strlen(word));
    if (o->type == TYPE_SWITCH) {
        snprintf(negated, sizeof negated, "no-%s", o->name);
        suggest_offer(s, negated, strlen(negated));
    }
}

/* Says why --name is no option of command c: of another command, misspelt, or plain unknown. */
static int unknown_long(const char *name, const command *c)
{
    bool negated;
    const option *elsewhere = find_long(name, NULL, &negated);
    const char *where = c ? c->name : "bitnet";
    if (elsewhere && elsewhere->type != TYPE_REFUSED)
        return fail(EXIT_USAGE, "%s has no option --%s (see bitnet help %s)", where, name,
                    c ? c->name : "");
    suggestion near;
    suggest_start(&near, name);
    for (size_t i = 0; i < OPT_COUNT; i++)
        if (row_serves(option_at(i), c) && option_at(i)->type != TYPE_REFUSED)
            offer_names(&near, option_at(i));
    const char *best = suggest_best(&near);
    if (best)
        return fail(EXIT_USAGE, "unknown option --%s; did you mean --%s?", name, best);
    return fail(EXIT_USAGE, "unknown option --%s (see bitnet help%s%s)", name, c ? " " : "",
                c ? c->name : "");
}

/* ---- the command ---- */

/* True if argv[i] is an option that takes argv[i + 1] as its value, whatever the command. */
static bool eats_next(const char *arg)
{
    char name[NAME_MAX_BYTES];
    bool negated;
    const option *o = NULL;
    if (strncmp(arg, "--", 2) == 0) {
        if (!strchr(arg, '=') && normal_name(arg + 2, strlen(arg + 2), name))
            o = find_long(name, NULL, &negated);
    } else if (arg[2] == '\0') {
        o = find_letter(arg[1], NULL);
    }
    return o && option_takes_value(o);
}

/* Index of the word that names the command, or argc. */
static int command_index(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0)
            return argc;
        if (argv[i][0] != '-' || !argv[i][1])
            return i;
        if (eats_next(argv[i]))
            i++;
    }
    return argc;
}

int unknown_command(const char *name)
{
    suggestion near;
    suggest_start(&near, name);
    for (size_t i = 0; i < CMD_COUNT; i++)
        suggest_offer(&near, command_at(i)->name, strlen(command_at(i)->name));
    const char *best = suggest_best(&near);
    if (best)
        return fail(EXIT_USAGE, "unknown command '%s'; did you mean %s?", name, best);
    return fail(EXIT_USAGE, "unknown command '%s' (see bitnet help)", name);
}

/* ---- the command line ---- */

static int set_value(args *a, const option *o, const char *origin, const char *written)
{
    value *v = &a->values[o->key];
    int rc = value_parse(o, origin, written, v);
    if (!rc)
        v->origin = origin;
    if (!rc && o->key == OPT_LOG_FORMAT) /* at once: the next complaint may be about an option */
        log_as_json(v->text[0] == 'j');
    return rc;
}

static int set_option(args *a, const option *o, const char *origin, const char *written)
{
    if (o->type == TYPE_SHORTHAND)
        return set_value(a, option_at(o->target), origin, o->initial);
    return set_value(a, o, origin, written);
}

/* The value of an option that needs one: attached, or the next word unless that is an option. */
static int take_value(const option *o, const char *shown, const char *attached, int argc,
                      char **argv, int *i, const char **out)
{
    char name[NAME_MAX_BYTES];
    bool negated;
    if (attached) {
        *out = attached;
        return EXIT_OK;
    }
    if (*i + 1 >= argc)
        return fail(EXIT_USAGE, "%s needs a value (%s)", shown, o->argument);
    const char *next = argv[*i + 1];
    if (strncmp(next, "--", 2) == 0 && next[2] && normal_name(next + 2, strlen(next + 2), name) &&
        find_long(name, NULL, &negated))
        return fail(EXIT_USAGE,
                    "%s needs a value (%s), not the option %s; if %s is meant as the "
                    "value write --%s=%s",
                    shown, o->argument, next, next, o->name, next);
    *out = next;
    ++*i;
    return EXIT_OK;
}

static int parse_long(args *a, int argc, char **argv, int *i)
{
    const char *arg = argv[*i] + 2, *equals = strchr(arg, '='), *written = "on";
    char name[NAME_MAX_BYTES];
    bool negated = false;
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    if (!normal_name(arg, n, name))
        return fail(EXIT_USAGE, "unknown option --%.*s...", NAME_MAX_BYTES, arg);
    const option *o = find_long(name, a->command, &negated);
    if (!o)
        return unknown_long(name, a->command);
    if (o->type == TYPE_REFUSED)
        return fail(EXIT_USAGE, "--%s is refused: %s", name, o->help);
    char *shown = xformat("--%s", name); /* kept as the origin of the value */
    int rc = EXIT_OK;
    if (option_takes_value(o))
        rc = take_value(o, shown, equals ? equals + 1 : NULL, argc, argv, i, &written);
    else if (equals)
        rc = fail(EXIT_USAGE, "--%s takes no value ('%s' given)", name, equals + 1);
    else if (negated)
        written = "off";
    if (!rc)
        rc = set_option(a, o, shown, written);
    a->origins = xrealloc(a->origins, (a->n_origins + 1) * sizeof *a->origins);
    a->origins[a->n_origins++] = shown;
    return rc;
}

/* -m FILE, -mFILE, -hV: letters without values may stand together. */
static int parse_letters(args *a, int argc, char **argv, int *i)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const option *o = find_letter(*p, a->command);
        const char *written = "on";
        char shown[3] = {'-', *p, '\0'};
        if (!o)
            return fail(EXIT_USAGE, "unknown option -%c (see bitnet help%s%s)", *p,
                        a->command ? " " : "", a->command ? a->command->name : "");
        bool valued = option_takes_value(o);
        int rc = EXIT_OK;
        if (valued)
            rc = take_value(o, shown, p[1] ? p + 1 : NULL, argc, argv, i, &written);
        if (!rc)
            rc = set_option(a, o, o->dashed, written);
        if (rc || valued)
            return rc;
    }
    return EXIT_OK;
}

static int parse_line(args *a, int argc, char **argv, int i_command)
{
    bool words_only = false;
    for (int i = 1; i < argc; i++) {
        int rc = EXIT_OK;
        if (i == i_command)
            continue;
        if (words_only || argv[i][0] != '-' || !argv[i][1])
            a->words[a->n_words++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            words_only = true;
        else if (argv[i][1] == '-')
            rc = parse_long(a, argc, argv, &i);
        else
            rc = parse_letters(a, argc, argv, &i);
        if (rc)
            return rc;
    }
    return EXIT_OK;
}

/* ---- environment and defaults ---- */

static int from_environment(args *a, const option *o)
{
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; word_at(o->environment, ' ', i, name, sizeof name); i++) {
        const char *written = getenv(name);
        if (!written || !*written)
            continue;
        char *origin = xstrdup(name);
        a->origins = xrealloc(a->origins, (a->n_origins + 1) * sizeof *a->origins);
        a->origins[a->n_origins++] = origin;
        return set_value(a, o, origin, written);
    }
    return EXIT_OK;
}

static int fill_rest(args *a)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const option *o = option_at(i);
        value *v = &a->values[o->key];
        if (v->origin || o->type == TYPE_SHORTHAND || o->type == TYPE_REFUSED)
            continue;
        int rc = EXIT_OK;
        if (row_serves(o, a->command) && a->command)
            rc = from_environment(a, o);
        if (!rc && !v->origin && o->initial)
            rc = value_parse(o, o->name, o->initial, v);
        if (rc)
            return rc;
    }
    return EXIT_OK;
}

static int check_words(const args *a)
{
    const command *c = a->command;
    if (!c)
        return EXIT_OK;
    if ((int)a->n_words < c->fewest)
        return fail(EXIT_USAGE, "%s needs %s (see bitnet help %s)", c->name, c->arguments, c->name);
    if (c->most >= 0 && (int)a->n_words > c->most)
        return fail(EXIT_USAGE, "%s: unexpected argument '%s' (usage: bitnet %s [OPTION...]%s%s)",
                    c->name, a->words[c->most], c->name, c->arguments[0] ? " " : "", c->arguments);
    return EXIT_OK;
}

int args_parse(args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    a->words = xmalloc((size_t)(argc > 0 ? argc : 1) * sizeof *a->words);
    int i_command = command_index(argc, argv);
    if (i_command < argc) {
        a->command = command_find(argv[i_command]);
        if (!a->command)
            return unknown_command(argv[i_command]);
    }
    int rc = parse_line(a, argc, argv, i_command);
    if (!rc && (opt_given(a, OPT_HELP) || opt_given(a, OPT_VERSION)))
        return EXIT_OK; /* asked for help: neither the environment nor the arguments matter */
    if (!rc)
        rc = fill_rest(a);
    return rc ? rc : check_words(a);
}

void args_free(args *a)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        free(a->values[i].list);
        free(a->values[i].ids);
    }
    for (size_t i = 0; i < a->n_origins; i++)
        free(a->origins[i]);
    free(a->origins);
    free(a->words);
}
