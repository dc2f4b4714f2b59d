/* values.c - the text of an option turned into its value, strictly: no rest, no overflow, no NaN.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

/* A double as people write it: 0.7, 65536. */
static const char *plain(double x, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.10g", x);
    return buf;
}

static int bad_number(const option *o, const char *origin, const char *written, const char *kind)
{
    char low[32], high[32];
    return fail(EXIT_USAGE, "%s: '%s' is not %s from %s to %s", origin, written, kind,
                plain(o->low, low, sizeof low), plain(o->high, high, sizeof high));
}

static int parse_int(const option *o, const char *origin, const char *written, value *v)
{
    char *end;
    errno = 0;
    long long x = strtoll(written, &end, 10);
    bool digit = isdigit((unsigned char)written[written[0] == '-' || written[0] == '+']);
    bool or_auto = strstr(o->argument, "|auto") != NULL;
    if (or_auto && (strcmp(written, "auto") == 0 || strcmp(written, "-1") == 0)) {
        v->integer = 0;
        v->number = 0;
        return EXIT_OK;
    }
    if (!digit || *end || errno || (double)x < o->low || (double)x > o->high)
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
        suggest_offer(&near, word, strlen(word));
        if (strcasecmp(word, written) != 0)
            continue;
        v->integer = (int64_t)i;
        return EXIT_OK;
    }
    const char *best = suggest_best(&near);
    return fail(EXIT_USAGE, "%s: '%s' is not one of %s%s%s%s", origin, written, o->argument,
                best ? " (did you mean " : "", best ? best : "", best ? "?)" : "");
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

/* Where there need be no file, an empty name is none, as the word off. */
static int parse_path(const option *o, const char *origin, const char *written)
{
    bool may_be_none = strstr(o->argument, "|off") != NULL;
    return *written || may_be_none ? EXIT_OK : fail(EXIT_USAGE, "%s: the path is empty", origin);
}

static int parse_levels(const char *origin, const char *written)
{
    char module[64];
    if (log_levels_ok(written)) {
        if (log_unknown_module(written, module, sizeof module))
            warn("%s: no part of the program is called '%s'", origin, module);
        return EXIT_OK;
    }
    return fail(EXIT_USAGE,
                "%s: '%s' is neither error, warn, info or debug nor a list like "
                "device=debug,gguf=info",
                origin, written);
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
    case TYPE_OUT:
        return parse_path(o, origin, written);
    case TYPE_LEVELS:
        return parse_levels(origin, written);
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
