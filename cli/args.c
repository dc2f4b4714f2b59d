/* args.c - the command line and the environment read against the option table.
 * Precedence: option, then environment variable, then default. Bad input is refused with option,
 * value and range. */
#include "cli.h"

enum { NAME_MAX_BYTES = 64 };

/* ---- looking up ---- */

/* Copies an option name, which ends before "=", with dashes for underscores; false if it is too
 * long to be one. */
static bool normal_name(const char *written, char buf[NAME_MAX_BYTES])
{
    size_t n = strcspn(written, "=");
    if (n >= NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        buf[i] = written[i] == '_' ? '-' : written[i];
    buf[n] = '\0';
    return true;
}

static bool row_serves(const option *o, const command *c)
{
    return !c || option_on(o, c->key);
}

/* The row for a long name under command c (NULL: any), also where that is --no-name of a switch. */
static const option *find_long(const char *written, const command *c)
{
    char name[NAME_MAX_BYTES];
    if (!normal_name(written, name))
        return NULL;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        bool no = o->type == TYPE_SWITCH && strncmp(name, "no-", 3) == 0;
        if (row_serves(o, c) &&
            (option_is_called(o, name) || (no && option_is_called(o, name + 3))))
            return o;
    }
    return NULL;
}

static const option *find_letter(char letter, const command *c)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (option_at(i)->letter == letter && letter && row_serves(option_at(i), c))
            return option_at(i);
    return NULL;
}

/* The row that has `arg`, a word behind one dash such as -ngl, as an alias. */
static const option *find_dashed(const char *arg, const command *c)
{
    char word[NAME_MAX_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (row_serves(option_at(i), c) && word_in(option_at(i)->aliases, ' ', word))
            return option_at(i);
    return NULL;
}

/* The row that an argument beginning with a dash means under command c. */
static const option *find_any(const char *arg, const command *c)
{
    if (arg[1] == '-')
        return find_long(arg + 2, c);
    const option *o = find_dashed(arg, c);
    return o ? o : find_letter(arg[1], c);
}

static void offer_names(suggestion *s, const option *o)
{
    char word[NAME_MAX_BYTES], negated[NAME_MAX_BYTES + 3];
    suggest_offer(s, o->name);
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        if (word[0] != '-')
            suggest_offer(s, word);
    snprintf(negated, sizeof negated, "no-%s", o->name);
    if (o->type == TYPE_SWITCH)
        suggest_offer(s, negated);
}

/* Says why --name is no option of command c: of another command, misspelt, or plain unknown. */
static int unknown_long(const char *name, const command *c)
{
    const option *elsewhere = find_long(name, NULL);
    const char *of = c ? c->name : "";
    if (elsewhere && !option_is_habit(elsewhere))
        return fail(EXIT_USAGE, "%s has no option --%s (see bitnet help %s --all)", of, name, of);
    suggestion near;
    suggest_start(&near, name);
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (row_serves(option_at(i), c) && !option_is_habit(option_at(i)))
            offer_names(&near, option_at(i));
    const char *best = suggest_best(&near);
    if (best)
        return fail(EXIT_USAGE, "unknown option --%s; did you mean --%s?", name, best);
    return fail(EXIT_USAGE, "unknown option --%s (see bitnet help%s%s --all)", name, c ? " " : "",
                of);
}

/* ---- the command ---- */

/* As run has it, or chat, or any command: those two may be meant without being named. */
static const option *find_first(const char *arg)
{
    const option *o = find_any(arg, command_at(CMD_RUN));
    o = o ? o : find_any(arg, command_at(CMD_CHAT));
    return o ? o : find_any(arg, NULL);
}

/* True if `next` belongs to an option that may have such a word behind it. */
static bool optional_value(const option *o, const char *next)
{
    return o->type == TYPE_IGNORED && o->argument[0] == '[' && next &&
           word_in("on off auto 0 1", ' ', next);
}

/* True if the option takes the next argument as its value. */
static bool eats_next(const option *o, const char *arg, const char *next)
{
    bool letter = arg[1] != '-' && arg[1] == o->letter && !word_in(o->aliases, ' ', arg);
    bool attached = letter ? arg[2] != '\0' : strchr(arg, '=') != NULL;
    return !attached && (option_takes_value(o) || optional_value(o, next));
}

static void glance_at(glance *g, const option *o, const char *arg)
{
    g->model = g->model || o->key == OPT_MODEL;
    g->text = g->text || o->key == OPT_PROMPT || o->key == OPT_RUN_FILE;
    g->talks = g->talks || o->key == OPT_INTERACTIVE;
    g->asks = g->asks || (option_everywhere(o) && !option_is_habit(o));
    if (o->type == TYPE_REFUSED && o->key != OPT_INTERACTIVE && !g->refused) {
        g->refused = o;
        g->refused_as = arg;
    }
}

static void look(int argc, char **argv, glance *g)
{
    *g = (glance){.i_word = argc};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            g->text = g->text || i + 1 < argc;
            return;
        }
        if (argv[i][0] != '-' || !argv[i][1]) {
            g->i_word = g->n_words++ ? g->i_word : i;
            continue;
        }
        const option *o = find_first(argv[i]);
        if (o) {
            glance_at(g, o, argv[i]);
            i += eats_next(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        }
    }
}

static int refuse(const option *o, const char *shown)
{
    return fail(EXIT_USAGE, "%s is refused: %s", shown, o->help);
}

int unknown_command(const char *name)
{
    suggestion near;
    const char *answer = elsewhere_find(name);
    if (answer)
        return fail(EXIT_USAGE, "there is no command '%s': %s", name, answer);
    suggest_start(&near, name);
    for (size_t i = 0; i < N_COMMANDS; i++)
        suggest_offer(&near, command_at(i)->name);
    const char *best = suggest_best(&near);
    if (best)
        return fail(EXIT_USAGE, "unknown command '%s'; did you mean %s?", name, best);
    if (strchr(name, ' '))
        return fail(EXIT_USAGE, "'%s' is no command; to continue a text: bitnet run \"%s\"", name,
                    name);
    return fail(EXIT_USAGE, "unknown command '%s' (see bitnet help)", name);
}

/* The command, by its name or by what is there instead. *i_command: the word that names it. */
static int choose_command(args *a, int argc, char **argv, int *i_command)
{
    glance g;
    look(argc, argv, &g);
    const char *word = g.i_word < argc ? argv[g.i_word] : NULL;
    *i_command = argc;
    a->command = word ? command_find(word) : NULL;
    if (a->command)
        *i_command = g.i_word;
    else if (!g.asks)
        a->command = implied_command(&g, word, &a->answers);
    if (a->command || !word || (g.asks && names_model(word)))
        return EXIT_OK;
    return g.refused ? refuse(g.refused, g.refused_as) : unknown_command(word);
}

/* ---- the command line ---- */

char *args_keep(args *a, const char *text, size_t n)
{
    a->kept = xrealloc(a->kept, (a->n_kept + 1) * sizeof *a->kept);
    return a->kept[a->n_kept++] = xmemdup(text, n);
}

static int set_value(args *a, const option *o, const char *origin, const char *written)
{
    if (o->type == TYPE_SHORTHAND)
        return set_value(a, option_at(o->target), origin, o->initial);
    value *v = &a->values[o->key];
    if ((o->key == OPT_PROMPT || o->key == OPT_TEXT) && v->origin)
        return fail(EXIT_USAGE, "%s is given twice, with '%s' and with '%s'; put all of it in one",
                    origin, v->text, written);
    int rc = o->type == TYPE_IGNORED ? EXIT_OK : value_parse(o, origin, written, v);
    if (!rc)
        v->origin = origin;
    if (!rc && o->key == OPT_LOG_FORMAT) /* at once: the next complaint may be about an option */
        log_as_json(v->text[0] == 'j');
    return rc;
}

/* The value of an option that needs one: attached, or the next word unless that is an option. */
static int take_value(const option *o, const char *shown, const char *attached, int argc,
                      char **argv, int *i, const char **out)
{
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    *out = attached ? attached : next;
    if (attached)
        return EXIT_OK;
    if (!next)
        return fail(EXIT_USAGE, "%s needs a value (%s)", shown, o->argument);
    if (strncmp(next, "--", 2) == 0 && next[2] && !strchr(next, '=') && find_long(next + 2, NULL))
        return fail(EXIT_USAGE,
                    "%s needs a value (%s), not the option %s; if %s is meant as the "
                    "value write --%s=%s",
                    shown, o->argument, next, next, o->name, next);
    ++*i;
    return EXIT_OK;
}

/* The value of an option that was found, behind `equals` or in the next argument, is set. */
static int set_found(args *a, const option *o, char *shown, const char *equals, bool negated,
                     int argc, char **argv, int *i)
{
    const char *written = negated ? "off" : "on", *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    int rc = EXIT_OK;
    if (o->type == TYPE_REFUSED)
        return refuse(o, shown);
    if (option_takes_value(o))
        rc = take_value(o, shown, equals ? equals + 1 : NULL, argc, argv, i, &written);
    else if (equals && o->type != TYPE_IGNORED)
        rc = fail(EXIT_USAGE, "%s takes no value ('%s' given)", shown, equals + 1);
    else if (!equals && optional_value(o, next))
        ++*i;
    return rc ? rc : set_value(a, o, shown, written);
}

static int parse_long(args *a, int argc, char **argv, int *i)
{
    const char *arg = argv[*i] + 2;
    char name[NAME_MAX_BYTES], shown[NAME_MAX_BYTES + 2];
    if (!normal_name(arg, name))
        return fail(EXIT_USAGE, "unknown option --%.*s...", NAME_MAX_BYTES, arg);
    const option *o = find_long(name, a->command);
    if (!o)
        return unknown_long(name, a->command);
    snprintf(shown, sizeof shown, "--%s", name);
    return set_found(a, o, args_keep(a, shown, strlen(shown)), strchr(arg, '='),
                     !option_is_called(o, name), argc, argv, i);
}

/* -temp where --temp is meant: not the letters t, e, m and p. */
static bool lacks_a_dash(const args *a, const char *arg)
{
    return arg[1] && arg[2] && arg[3] && find_long(arg + 1, a->command);
}

/* -m FILE, -mFILE, -hV: letters without values may stand together. */
static int parse_letters(args *a, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    for (const char *p = arg + 1; *p; p++) {
        const option *o = find_letter(*p, a->command);
        const char *written = "on";
        char shown[3] = {'-', *p, '\0'};
        if (!o)
            return fail(EXIT_USAGE, "unknown option %s (see bitnet help%s%s --all)",
                        p == arg + 1 ? arg : shown, a->command ? " " : "",
                        a->command ? a->command->name : "");
        bool valued = option_takes_value(o);
        int rc = EXIT_OK;
        if (valued)
            rc = take_value(o, shown, p[1] ? p + 1 : NULL, argc, argv, i, &written);
        rc = rc ? rc : set_value(a, o, o->dashed, written);
        if (rc || valued)
            return rc;
    }
    return EXIT_OK;
}

/* A word behind one dash: a habit such as -ngl, or letters. */
static int parse_dashed(args *a, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    const option *o = find_dashed(arg, a->command);
    size_t n = strcspn(arg, "=");
    if (o)
        return set_found(a, o, args_keep(a, arg, n), strchr(arg, '='), false, argc, argv, i);
    if (lacks_a_dash(a, arg))
        return fail(EXIT_USAGE, "unknown option %.*s; did you mean -%.*s?", (int)n, arg, (int)n,
                    arg);
    return parse_letters(a, argc, argv, i);
}

/* *n_free: how many words stand before "--". */
static int parse_line(args *a, int argc, char **argv, int i_command, size_t *n_free)
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
            rc = parse_dashed(a, argc, argv, &i);
        if (rc)
            return rc;
        *n_free = words_only ? *n_free : a->n_words;
    }
    return EXIT_OK;
}

/* ---- environment and defaults ---- */

/* What may be given several times is a list with commas there. */
static int set_words(args *a, const option *o, const char *origin, const char *written)
{
    int rc = EXIT_OK;
    if (o->type != TYPE_TEXTS)
        return set_value(a, o, origin, written);
    for (size_t n; *written && !rc; written += n + (written[n] == ',')) {
        n = strcspn(written, ",");
        rc = n ? set_value(a, o, origin, args_keep(a, written, n)) : EXIT_OK;
    }
    return rc;
}

static int from_environment(args *a, const option *o)
{
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; word_at(o->environment, ' ', i, name, sizeof name); i++) {
        const char *written = getenv(name);
        if (written && *written)
            return set_words(a, o, args_keep(a, name, strlen(name)), written);
    }
    return EXIT_OK;
}

static bool may_be_filled(const args *a, const option *o)
{
    return !a->values[o->key].origin && o->type != TYPE_SHORTHAND && !option_is_habit(o);
}

static int fill_from_environment(args *a)
{
    int rc = EXIT_OK;
    for (size_t i = 0; i < N_OPTIONS && !rc; i++)
        if (a->command && may_be_filled(a, option_at(i)) && row_serves(option_at(i), a->command))
            rc = from_environment(a, option_at(i));
    return rc;
}

static int fill_defaults(args *a)
{
    int rc = EXIT_OK;
    for (size_t i = 0; i < N_OPTIONS && !rc; i++) {
        const option *o = option_at(i);
        if (may_be_filled(a, o) && o->initial)
            rc = value_parse(o, o->name, o->initial, &a->values[o->key]);
    }
    return rc;
}

/* ---- a configuration file ---- */

const option *option_named(const char *name, const command *c, suggestion *near)
{
    const option *found = find_long(name, c);
    suggest_start(near, name);
    if (found && !option_is_habit(found))
        return found;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        if (row_serves(o, c) && !option_is_habit(o) && o->type != TYPE_SHORTHAND)
            offer_names(near, o);
    }
    return NULL;
}

int args_set(args *a, const option *o, const char *origin, const char *written)
{
    return set_value(a, o, origin, written);
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
    int i_command = argc;
    size_t n_free = 0;
    memset(a, 0, sizeof *a);
    a->words = xmalloc((size_t)(argc > 0 ? argc : 1) * sizeof *a->words);
    int rc = choose_command(a, argc, argv, &i_command);
    rc = rc ? rc : parse_line(a, argc, argv, i_command, &n_free);
    if (!rc && (opt_given(a, OPT_HELP) || opt_given(a, OPT_HELP_ALL) || opt_given(a, OPT_VERSION)))
        return EXIT_OK; /* asked for help: neither the environment nor the arguments matter */
    rc = rc ? rc : take_model(a, n_free);
    rc = rc ? rc : take_gpu_layers(a);
    rc = rc ? rc : fill_from_environment(a);
    rc = rc ? rc : config_file_read(a);
    rc = rc ? rc : fill_defaults(a);
    rc = rc ? rc : check_words(a);
    if (!rc)
        tell_ignored(a);
    return rc;
}

void args_free(args *a)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        free(a->values[i].list);
        free(a->values[i].ids);
    }
    for (size_t i = 0; i < a->n_kept; i++)
        free(a->kept[i]);
    free(a->kept);
    free(a->words);
}
