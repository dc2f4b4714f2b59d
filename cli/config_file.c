/* config_file.c - options from a file: lines of NAME = VALUE, a subset of TOML. Values are
 * numbers, true and false, texts in quotes, and lists of texts in brackets on one line. Hides how
 * such a file is read; what a name means is in options.inc. */
#include <ctype.h>

#include "cli.h"

typedef struct line {
    args *a;
    const char *path;
    size_t number;
    const char *p; /* what is left of it */
    char name[64]; /* of the option, as it was written but for underscores */
    bool negated;  /* the name is no-NAME of a switch */
} line;

static int complain(const line *l, const char *what)
{
    return fail(EXIT_USAGE, "%s:%zu: %s", l->path, l->number, what);
}

static void skip_blanks(line *l)
{
    l->p += strspn(l->p, " \t\r");
}

/* At the end of what counts: a comment may follow. */
static bool is_over(line *l)
{
    skip_blanks(l);
    return !*l->p || *l->p == '#';
}

/* A text in quotes; NULL: it does not end, or has an escape that means nothing. */
static char *quoted(line *l)
{
    char quote = *l->p++;
    buffer t = {0};
    text_add(&t, "", 0);
    for (; *l->p && *l->p != quote; l->p++) {
        char c = *l->p;
        if (c == '\\' && quote == '"') {
            const char *known = strchr("\"\"\\\\n\nt\t", *++l->p);
            if (!*l->p || !known || (known - "\"\"\\\\n\nt\t") % 2)
                break;
            c = known[1];
        }
        text_add(&t, &c, 1);
    }
    bool whole = *l->p == quote;
    l->p += whole;
    char *kept = whole ? args_keep(l->a, t.data ? t.data : "", t.n) : NULL;
    free(t.data);
    return kept;
}

/* A number or a word. */
static char *bare(line *l)
{
    size_t n = strcspn(l->p, " \t\r,]#");
    char *kept = args_keep(l->a, l->p, n);
    l->p += n;
    return kept;
}

static int set_one(line *l, const option *o, const char *origin)
{
    skip_blanks(l);
    bool text = *l->p == '"' || *l->p == '\'';
    const char *written = text ? quoted(l) : bare(l);
    if (!written)
        return complain(l, "the text in quotes does not end, or has an unknown escape");
    if (!text && !*written)
        return complain(l, "there is no value behind the =");
    int rc = args_set(l->a, o, origin, written);
    if (!rc && l->negated)
        rc = args_set(l->a, o, origin, opt_on(l->a, o->key) ? "off" : "on");
    return rc;
}

/* [ "a", "b" ] */
static int set_list(line *l, const option *o, const char *origin)
{
    int rc = EXIT_OK;
    l->p++;
    for (skip_blanks(l); *l->p && *l->p != ']' && !rc; skip_blanks(l)) {
        rc = set_one(l, o, origin);
        skip_blanks(l);
        if (!rc && *l->p != ',' && *l->p != ']')
            rc = complain(l, "a list is written [\"a\", \"b\"], on one line");
        l->p += *l->p == ',';
    }
    if (!rc && *l->p != ']')
        rc = complain(l, "the list does not end on this line");
    l->p += !rc;
    return rc;
}

static int unknown_name(const line *l, const suggestion *near)
{
    const char *best = suggest_best(near);
    return fail(EXIT_USAGE, "%s:%zu: there is no option '%s'%s%s%s", l->path, l->number, l->name,
                best ? "; did you mean " : " (see bitnet help serve --all)", best ? best : "",
                best ? "?" : "");
}

/* Shorthands and what is asked of the command itself have no line in a file. */
static int check_place(const line *l, const option *o)
{
    if (o->type == TYPE_SHORTHAND)
        return fail(EXIT_USAGE, "%s:%zu: %s is short for another option; write %s = \"%s\"",
                    l->path, l->number, l->name, option_at(o->target)->name, o->initial);
    if (o->key == OPT_CONFIG_FILE || option_everywhere(o))
        return complain(l, "this option belongs on the command line");
    return EXIT_OK;
}

/* Reads "NAME =" and finds the option. */
static int read_name(line *l, const option **out)
{
    suggestion near;
    size_t n = 0;
    for (; isalnum((unsigned char)*l->p) || *l->p == '-' || *l->p == '_'; l->p++)
        if (n + 1 < sizeof l->name)
            l->name[n++] = *l->p == '_' ? '-' : *l->p;
    l->name[n] = '\0';
    skip_blanks(l);
    if (*l->p == '[')
        return complain(l, "sections are not used here; write NAME = VALUE");
    if (!n || *l->p != '=')
        return complain(l, "a line is NAME = VALUE");
    l->p++;
    *out = option_named(l->name, l->a->command, &near);
    if (!*out)
        return unknown_name(l, &near);
    l->negated = !option_is_called(*out, l->name);
    return check_place(l, *out);
}

/* `seen`: options that a line above has set. */
static int read_line(line *l, bool seen[N_OPTIONS])
{
    const option *o = NULL;
    if (is_over(l))
        return EXIT_OK;
    int rc = read_name(l, &o);
    if (rc)
        return rc;
    if (seen[o->key])
        return complain(l, "the option was set by a line above; a list is written [\"a\", \"b\"]");
    if (l->a->values[o->key].origin) /* said more plainly */
        return EXIT_OK;
    seen[o->key] = true;
    skip_blanks(l);
    char *origin = xformat("%s:%zu: %s%s", l->path, l->number, l->negated ? "no-" : "", o->name);
    char *kept = args_keep(l->a, origin, strlen(origin));
    free(origin);
    if (*l->p == '[' && o->type != TYPE_TEXTS)
        return complain(l, "this option takes one value, not a list");
    rc = *l->p == '[' ? set_list(l, o, kept) : set_one(l, o, kept);
    if (!rc && !is_over(l))
        rc = complain(l, "something follows the value");
    return rc;
}

int config_file_read(args *a)
{
    bool seen[N_OPTIONS] = {false};
    buffer text = {0};
    const char *path = opt_text(a, OPT_CONFIG_FILE);
    if (!path || !a->command || !option_on(option_at(OPT_CONFIG_FILE), a->command->key))
        return EXIT_OK;
    int rc = read_input(path, &text);
    char *all = rc ? NULL : args_keep(a, text.data ? text.data : "", text.n);
    line l = {.a = a, .path = path};
    for (char *p = after_bom(all); p && *p && !rc;) {
        char *end = p + strcspn(p, "\n");
        char *next = end + (*end != '\0');
        *end = '\0';
        l.number++;
        l.p = p;
        rc = read_line(&l, seen);
        p = next;
    }
    if (!rc && all && strlen(text.data ? text.data : "") != text.n)
        rc = complain(&l, "a zero byte: this is no text");
    free(text.data);
    return rc;
}
