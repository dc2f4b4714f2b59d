/* jinja_filters.c - the filters of templates for texts and numbers, and finding any filter. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_impl.h"

/* ---- text ---- */

static jinja_value trim(jinja *m, jinja_value v, jinja_args *a)
{
    v = bnet_jinja_string(m, v);
    jinja_value strip = bnet_jinja_method(m, v, (bnet_span){"strip", 5});
    return m->failed ? v : bnet_jinja_call(m, strip, a);
}

static jinja_value replace(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value from = bnet_jinja_arg(a, 0, "old"), to = bnet_jinja_arg(a, 1, "new");
    jinja_value most = bnet_jinja_arg(a, 2, "count");
    int64_t count = -1;
    bnet_str out = {0};
    v = bnet_jinja_string(m, v);
    if (!bnet_jinja_args_are(m, "replace", a, 3, "old new count"))
        return v;
    if (from.type != JINJA_STRING || to.type != JINJA_STRING || !from.u.s.n ||
        (!bnet_jinja_is_undefined(most) && most.type != JINJA_NONE &&
         !bnet_jinja_whole(most, &count)))
        return bnet_jinja_fail(m, "replace takes a text that is not empty, another, and a count");
    bnet_span s = v.u.s;
    for (const char *at;
         count != 0 && bnet_jinja_step(m, from.u.s.n + to.u.s.n) && out.n <= m->limits.output &&
         (at = memmem(s.data, s.n, from.u.s.data, from.u.s.n)) != NULL;
         count--) {
        size_t n = (size_t)(at - s.data);
        bnet_str_add(&out, s.data, n);
        bnet_str_add(&out, to.u.s.data, to.u.s.n);
        s = (bnet_span){at + from.u.s.n, s.n - n - from.u.s.n};
    }
    bnet_str_add(&out, s.data, s.n);
    return bnet_jinja_take(m, &out);
}

/* What `width`, a number or a text, puts before a line. */
static void indent_of(jinja *m, jinja_value width, bnet_str *space)
{
    int64_t n = 4;
    if (width.type == JINJA_STRING)
        bnet_str_add(space, width.u.s.data, width.u.s.n);
    else if (!bnet_jinja_is_undefined(width) && (!bnet_jinja_whole(width, &n) || n < 0 || n > 1000))
        bnet_jinja_fail(m, "indent: the width is no number of 0 to 1000");
    for (; width.type != JINJA_STRING && n > 0 && !m->failed; n--)
        bnet_str_putc(space, ' ');
}

/* Jinja ends the text with a line feed more and writes each line's end as one. */
static jinja_value indent(jinja *m, jinja_value v, jinja_args *a)
{
    bool first = bnet_jinja_true(m, bnet_jinja_arg(a, 1, "first"));
    bool blank = bnet_jinja_true(m, bnet_jinja_arg(a, 2, "blank"));
    bnet_str out = {0}, space = {0}, text = {0};
    if (!bnet_jinja_args_are(m, "indent", a, 3, "width first blank"))
        return v;
    if (v.type != JINJA_STRING)
        return bnet_jinja_fail(m, "indent of %s", bnet_jinja_type_name(v));
    indent_of(m, bnet_jinja_arg(a, 0, "width"), &space);
    bnet_str_add(&text, v.u.s.data, v.u.s.n);
    bnet_str_putc(&text, '\n');
    bnet_span rest = {text.data, text.failed ? 0 : text.n};
    for (bool begins = true; rest.n && bnet_jinja_step(m, space.n); begins = false) {
        bnet_span line = bnet_jinja_line(&rest);
        if (!begins)
            bnet_str_putc(&out, '\n');
        if (begins ? first : blank || line.n)
            bnet_str_add(&out, space.data, space.n);
        bnet_str_add(&out, line.data, line.n);
    }
    out.failed = out.failed || text.failed || space.failed;
    bnet_str_free(&space);
    bnet_str_free(&text);
    return bnet_jinja_take(m, &out);
}

/* The two texts of separators=(",", ":"), where they are given. */
static void read_separators(jinja *m, jinja_value v, jinja_json_form *form)
{
    if (bnet_jinja_is_undefined(v) || v.type == JINJA_NONE)
        return;
    if ((v.type != JINJA_TUPLE && v.type != JINJA_LIST) || v.u.list->n != 2 ||
        v.u.list->items[0].type != JINJA_STRING || v.u.list->items[1].type != JINJA_STRING) {
        bnet_jinja_fail(m, "tojson: separators are no two strings");
        return;
    }
    form->comma = v.u.list->items[0].u.s;
    form->colon = v.u.list->items[1].u.s;
}

/* tojson as transformers defines it, by position too. */
static jinja_value to_json(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value ascii = bnet_jinja_arg(a, 0, "ensure_ascii"),
                width = bnet_jinja_arg(a, 1, "indent"),
                separators = bnet_jinja_arg(a, 2, "separators"),
                sorted = bnet_jinja_arg(a, 3, "sort_keys");
    bool lines = !bnet_jinja_is_undefined(width) && width.type != JINJA_NONE;
    int64_t n = -1;
    bnet_str out = {0};
    if (!bnet_jinja_args_are(m, "tojson", a, 4, "ensure_ascii indent separators sort_keys"))
        return v;
    if (bnet_jinja_true(m, ascii))
        return bnet_jinja_fail(m, "tojson: ensure_ascii is not supported");
    if (lines && (!bnet_jinja_whole(width, &n) || n < 0 || n > 1000))
        return bnet_jinja_fail(m, "tojson: indent is no number of 0 to 1000");
    jinja_json_form form = {.indent = (int)n,
                            .sorted = bnet_jinja_true(m, sorted),
                            .comma = {lines ? "," : ", ", lines ? 1 : 2},
                            .colon = {": ", 2}};
    read_separators(m, separators, &form);
    bnet_jinja_json(m, v, &form, &out);
    return bnet_jinja_take(m, &out);
}

static jinja_value to_string(jinja *m, jinja_value v, jinja_args *a)
{
    return bnet_jinja_args_are(m, "string", a, 0, "") ? bnet_jinja_string(m, v) : v;
}

/* ---- numbers ---- */

static jinja_value absolute(jinja *m, jinja_value v, jinja_args *a)
{
    int64_t i;
    (void)a;
    if (bnet_jinja_whole(v, &i) && i != INT64_MIN)
        return bnet_jinja_int(i < 0 ? -i : i);
    return v.type == JINJA_FLOAT ? bnet_jinja_float(fabs(v.u.f))
                                 : bnet_jinja_fail(m, "abs of %s", bnet_jinja_type_name(v));
}

static jinja_value rounded(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value places = bnet_jinja_arg(a, 0, "precision");
    int64_t n = 0;
    double f;
    char text[64];
    if (!bnet_jinja_args_are(m, "round", a, 1, "precision"))
        return v;
    if (!bnet_jinja_number(v, &f) || fabs(f) > 1e15 ||
        (!bnet_jinja_is_undefined(places) && !bnet_jinja_whole(places, &n)) || n < 0 || n > 15)
        return bnet_jinja_fail(m, "round takes a number and 0 to 15 places");
    snprintf(text, sizeof text, "%.*f", (int)n, f);
    return bnet_jinja_float(strtod(text, NULL));
}

static jinja_value unchanged(jinja *m, jinja_value v, jinja_args *a)
{
    return bnet_jinja_args_are(m, "safe", a, 0, "") ? bnet_jinja_string(m, v) : v;
}

static const jinja_named texts[] = {
    {"abs", absolute},   {"indent", indent},  {"replace", replace},
    {"round", rounded},  {"safe", unchanged}, {"string", to_string},
    {"tojson", to_json}, {"trim", trim},      {NULL, NULL},
};

static jinja_fn *find_filter(bnet_span name)
{
    const jinja_named *const tables[] = {texts, bnet_jinja_case_filters, bnet_jinja_number_filters,
                                         bnet_jinja_row_filters};
    jinja_fn *fn = NULL;
    for (size_t i = 0; i < BNET_COUNT(tables) && !fn; i++)
        fn = bnet_jinja_find(tables[i], name);
    return fn;
}

bool bnet_jinja_has_filter(bnet_span name)
{
    return find_filter(name) != NULL;
}

jinja_value bnet_jinja_filter(jinja *m, bnet_span name, jinja_value v, jinja_args *a)
{
    jinja_fn *fn = find_filter(name);
    return !m->failed && fn && bnet_jinja_step(m, 0) ? fn(m, v, a) : v;
}
