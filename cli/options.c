/* options.c - the tables of commands and options made from their lists, how to look things up in
 * them, and the text of an option turned into its value, strictly: no rest, no overflow, no NaN. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <strings.h>

#include "cli.h"

#define ANY        (-1)
#define NONE       NULL
#define ON(cmd)    (UINT64_C(1) << CMD_##cmd)
#define TOP(cmd)   (ON(cmd) | ON(cmd) << 32)
#define EVERYWHERE UINT64_C(0xffffffff)

static const command commands[] = {
#define COMMAND(key, function, name, aliases, arguments, fewest, most, shown, summary,             \
                description, examples)                                                             \
    {CMD_##key, name,    aliases,     arguments, fewest,  most,                                    \
     shown,     summary, description, examples,  function},
#include "commands.inc"
};

static const option options[] = {
#define OPTION(key, long, letter, type, argument, low, high, initial, environment, commands,       \
               group, aliases, help)                                                               \
    {OPT_##key, long,        "--" long, letter,        TYPE_##type, argument, low,      high,      \
     initial,   environment, commands,  GROUP_##group, aliases,     help,     OPT_##key},
#define SHORTHAND(key, long, letter, target, value, commands, group, aliases, help)                \
    {OPT_##key, long, "--" long, letter,        TYPE_SHORTHAND, "",   0,           0,              \
     value,     "",   commands,  GROUP_##group, aliases,        help, OPT_##target},
#define REFUSED(key, long, aliases, commands, reason)                                              \
    {OPT_##key, long,     "--" long,     0,       TYPE_REFUSED, "",       0, 0, NULL,              \
     "",        commands, GROUP_GENERAL, aliases, reason,       OPT_##key},
#define IGNORED(key, long, argument, aliases, commands, reason)                                    \
    {OPT_##key, long,     "--" long,     0,       TYPE_IGNORED, argument, 0, 0, NULL,              \
     "",        commands, GROUP_GENERAL, aliases, reason,       OPT_##key},
#include "options.inc"
};

static const char *const groups[] = {
#define GROUP(key, title) title,
#include "options.inc"
};

_Static_assert(N_COMMANDS <= 32, "one bit per command");

const option *option_at(size_t i)
{
    return i < N_OPTIONS ? &options[i] : NULL;
}

const command *command_at(size_t i)
{
    return i < N_COMMANDS ? &commands[i] : NULL;
}

const char *group_title(option_group g)
{
    return groups[g];
}

bool option_is_called(const option *o, const char *name)
{
    return strcmp(o->name, name) == 0 || word_in(o->aliases, ' ', name);
}

bool option_is_habit(const option *o)
{
    return o->type == TYPE_REFUSED || o->type == TYPE_IGNORED;
}

bool option_takes_value(const option *o)
{
    if (o->type == TYPE_IGNORED)
        return o->argument[0] && o->argument[0] != '[';
    return o->type != TYPE_FLAG && o->type != TYPE_SWITCH && o->type != TYPE_SHORTHAND &&
           o->type != TYPE_REFUSED;
}

bool option_on(const option *o, command_key c)
{
    return (o->commands >> c) & 1u;
}

bool option_on_top(const option *o, command_key c)
{
    return (o->commands >> 32 >> c) & 1u;
}

bool option_everywhere(const option *o)
{
    return o->commands == EVERYWHERE;
}

bool word_at(const char *list, char separator, size_t i, char *buf, size_t cap)
{
    while (*list) {
        const char *end = strchr(list, separator);
        size_t n = end ? (size_t)(end - list) : strlen(list);
        if (i-- == 0) {
            snprintf(buf, cap, "%.*s", (int)n, list);
            return true;
        }
        list += n + (end != NULL);
    }
    return false;
}

bool word_in(const char *list, char separator, const char *word)
{
    char buf[64];
    for (size_t i = 0; word_at(list, separator, i, buf, sizeof buf); i++)
        if (strcmp(buf, word) == 0)
            return true;
    return false;
}

const command *command_find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0 || word_in(commands[i].aliases, ' ', name))
            return &commands[i];
    return NULL;
}

/* ---- the nearest name ---- */

enum { LONGEST = 63 };

static size_t least(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance: insert, delete, replace, and swap two neighbours, at one each. Three rows suffice.
 */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++)
        above[j] = before[j] = j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1, row[j]);
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[nb];
}

void suggest_start(suggestion *s, const char *wanted)
{
    s->wanted = wanted;
    s->best[0] = '\0';
    s->distance = (size_t)-1;
}

void suggest_offer(suggestion *s, const char *name)
{
    size_t n_wanted = strlen(s->wanted), n = strlen(name);
    if (n_wanted > LONGEST || n > LONGEST || n == 0)
        return;
    size_t d = distance(s->wanted, n_wanted, name, n);
    /* a name that continues what was written is near however long it is */
    if (n_wanted >= 3 && n > n_wanted && memcmp(name, s->wanted, n_wanted) == 0)
        d = 1;
    if (d < s->distance) {
        s->distance = d;
        memcpy(s->best, name, n + 1);
    }
}

const char *suggest_best(const suggestion *s)
{
    return s->best[0] && s->distance <= 1 + strlen(s->wanted) / 4 ? s->best : NULL;
}

const char *suggest_or(suggestion *s, const char *otherwise)
{
    if (!suggest_best(s))
        return otherwise;
    snprintf(s->question, sizeof s->question, "did you mean %s?", s->best);
    return s->question;
}

/* ---- values ---- */

static int bad_number(const option *o, const char *origin, const char *written, const char *kind)
{
    return fail(EXIT_USAGE, "%s: '%s' is not %s from %.10g to %.10g", origin, written, kind, o->low,
                o->high);
}

static int parse_int(const option *o, const char *origin, const char *written, value *v)
{
    char *end;
    errno = 0;
    long long x = strtoll(written, &end, 10);
    bool digit = isdigit((unsigned char)written[written[0] == '-' || written[0] == '+']);
    bool or_auto = strstr(o->argument, "|auto") != NULL;
    if (or_auto && (strcmp(written, "auto") == 0 || strcmp(written, "-1") == 0))
        x = 0;
    else if (!digit || *end || errno || (double)x < o->low || (double)x > o->high)
        return bad_number(o, origin, written,
                          or_auto ? "auto or a whole number" : "a whole number");
    v->integer = x;
    v->number = (double)x;
    return EXIT_OK;
}

static int parse_float(const option *o, const char *origin, const char *written, value *v)
{
    char *end;
    errno = 0;
    double x = strtod(written, &end);
    bool plain_start = written[0] && strchr("0123456789.-+", written[0]) != NULL;
    bool hex = strpbrk(written, "xXnN") != NULL; /* hex, inf and nan are no numbers for people */
    if (!plain_start || hex || end == written || *end || errno == ERANGE || !isfinite(x) ||
        x < o->low || x > o->high)
        return bad_number(o, origin, written, "a number");
    v->number = x;
    return EXIT_OK;
}

static int parse_seed(const char *origin, const char *written, value *v)
{
    char *end;
    errno = 0;
    long long x = strtoll(written, &end, 10);
    if (strcmp(written, "random") == 0 || strcmp(written, "-1") == 0) {
        v->integer = -1;
        return EXIT_OK;
    }
    if (!isdigit((unsigned char)written[0]) || *end || errno)
        return fail(EXIT_USAGE,
                    "%s: '%s' is not a seed: a whole number from 0 to 9223372036854775807, or "
                    "random (-1)",
                    origin, written);
    v->integer = x;
    return EXIT_OK;
}

static int parse_choice(const option *o, const char *origin, const char *written, value *v)
{
    char word[64];
    suggestion near;
    suggest_start(&near, written);
    for (size_t i = 0; word_at(o->argument, '|', i, word, sizeof word); i++) {
        suggest_offer(&near, word);
        if (strcasecmp(word, written) != 0)
            continue;
        v->integer = (int64_t)i;
        return EXIT_OK;
    }
    const char *question = suggest_or(&near, NULL);
    return fail(EXIT_USAGE, "%s: '%s' is not one of %s%s%s%s", origin, written, o->argument,
                question ? " (" : "", question ? question : "", question ? ")" : "");
}

/* Only reached through the environment and defaults: on the command line a switch takes no value.
 */
static int parse_switch(const char *origin, const char *written, value *v)
{
    static const char *const yes[] = {"on", "1", "true", "yes"};
    static const char *const no[] = {"off", "0", "false", "no"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(written, yes[i]) == 0 || strcasecmp(written, no[i]) == 0) {
            v->on = strcasecmp(written, yes[i]) == 0;
            return EXIT_OK;
        }
    }
    return fail(EXIT_USAGE, "%s: '%s' is neither on (1, true, yes) nor off (0, false, no)", origin,
                written);
}

static int add_id(const option *o, const char *origin, const char *written, value *v)
{
    int rc = parse_int(o, origin, written, v);
    if (rc)
        return rc;
    v->ids = xrealloc(v->ids, (v->n_list + 1) * sizeof *v->ids);
    v->ids[v->n_list++] = (int32_t)v->integer;
    return EXIT_OK;
}

static int add_text(const char *origin, const char *written, value *v)
{
    if (!*written)
        return fail(EXIT_USAGE, "%s: the text is empty", origin);
    v->list = xrealloc(v->list, (v->n_list + 1) * sizeof *v->list);
    v->list[v->n_list++] = written;
    return EXIT_OK;
}

static int parse_by_type(const option *o, const char *origin, const char *written, value *v)
{
    switch (o->type) {
    case TYPE_INT:
        return parse_int(o, origin, written, v);
    case TYPE_FLOAT:
        return parse_float(o, origin, written, v);
    case TYPE_SEED:
        return parse_seed(origin, written, v);
    case TYPE_CHOICE:
        return parse_choice(o, origin, written, v);
    case TYPE_FLAG:
    case TYPE_SWITCH:
        return parse_switch(origin, written, v);
    case TYPE_TEXTS:
        return add_text(origin, written, v);
    case TYPE_INTS:
        return add_id(o, origin, written, v);
    case TYPE_PATH:
    case TYPE_OUT: /* where there need be no file, an empty name is none, as the word off */
        return *written || strstr(o->argument, "|off")
                   ? EXIT_OK
                   : fail(EXIT_USAGE, "%s: the path is empty", origin);
    case TYPE_LEVELS:
        return log_levels_check(origin, written);
    default:
        return EXIT_OK;
    }
}

int value_parse(const option *o, const char *origin, const char *written, value *v)
{
    int rc = parse_by_type(o, origin, written, v);
    if (!rc)
        v->text = written;
    return rc;
}
