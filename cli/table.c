/* table.c - the tables of commands and options made from their lists, and how to look things up in
 * them. */
#include <string.h>

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
#define ELSEWHERE(...)
#include "commands.inc"
#undef COMMAND
#undef ELSEWHERE
};

static const option options[] = {
#define GROUP(key, title)
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
#undef GROUP
#undef OPTION
#undef SHORTHAND
#undef REFUSED
#undef IGNORED
};

static const char *const groups[] = {
#define GROUP(key, title) title,
#define OPTION(...)
#define SHORTHAND(...)
#define REFUSED(...)
#define IGNORED(...)
#include "options.inc"
#undef GROUP
#undef OPTION
#undef SHORTHAND
#undef REFUSED
#undef IGNORED
};

_Static_assert(CMD_COUNT <= 32, "one bit per command");

const option *option_at(size_t i)
{
    return i < OPT_COUNT ? &options[i] : NULL;
}

const command *command_at(size_t i)
{
    return i < CMD_COUNT ? &commands[i] : NULL;
}

const char *group_title(option_group g)
{
    return groups[g];
}

bool option_is_path(const option *o)
{
    return o->type == TYPE_PATH || o->type == TYPE_OUT;
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
    for (size_t i = 0; i < CMD_COUNT; i++)
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
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[nb];
}

void suggest_start(suggestion *s, const char *wanted)
{
    s->wanted = wanted;
    s->best[0] = '\0';
    s->distance = (size_t)-1;
}

void suggest_offer(suggestion *s, const char *name, size_t n)
{
    size_t n_wanted = strlen(s->wanted);
    if (n_wanted > LONGEST || n > LONGEST || n == 0)
        return;
    size_t d = distance(s->wanted, n_wanted, name, n);
    /* a name that continues what was written is near however long it is */
    if (n_wanted >= 3 && n > n_wanted && memcmp(name, s->wanted, n_wanted) == 0)
        d = 1;
    if (d < s->distance) {
        s->distance = d;
        memcpy(s->best, name, n);
        s->best[n] = '\0';
    }
}

const char *suggest_best(const suggestion *s)
{
    return s->best[0] && s->distance <= 1 + strlen(s->wanted) / 4 ? s->best : NULL;
}
