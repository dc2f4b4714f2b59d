/* jinja_print.c - values as text: as Python's str and repr write them, and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_impl.h"

static void put(jinja *m, bnet_str *out, const char *bytes, size_t n)
{
    if (!bnet_jinja_step(m, n))
        return;
    if (out->n + n > m->limits.output)
        bnet_jinja_fail(m, "it writes more than %zu bytes", m->limits.output);
    else
        bnet_str_add(out, bytes, n);
}

static void puts_of(jinja *m, bnet_str *out, const char *text)
{
    put(m, out, text, strlen(text));
}

enum { FLOAT_BYTES = 512 }; /* digits of a float take as long as moving so many */

/* The shortest digits that give the number back, in Python's form: 1.0, 0.0001, 1e-05, 1e+16. */
static void put_float(jinja *m, double f, bnet_str *out)
{
    char e[40], text[64];
    if (isnan(f) || isinf(f)) {
        puts_of(m, out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 0;
    do
        snprintf(e, sizeof e, "%.*e", digits, f);
    while (bnet_jinja_step(m, FLOAT_BYTES) && strtod(e, NULL) != f && ++digits < 17);
    int exponent = (int)strtol(strchr(e, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        puts_of(m, out, e);
        return;
    }
    snprintf(text, sizeof text, "%.*f", BNET_MAX(1, digits - exponent), f);
    puts_of(m, out, text);
}

/* ---- as Python ---- */

/* The escape that repr writes for a character within these quotes; false: it needs none. */
static bool repr_escape(uint32_t c, char quote, char escape[16])
{
    const char *at = c && c < ' ' ? strchr("\nn\rr\tt", (int)c) : NULL;
    if (c == (unsigned char)quote || c == '\\')
        snprintf(escape, 16, "\\%c", (int)c);
    else if (at)
        snprintf(escape, 16, "\\%c", at[1]);
    else if (c == ' ' || bnet_jinja_printable(c))
        return false;
    else
        snprintf(escape, 16, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    return true;
}

/* repr of a string: in single quotes unless only double ones avoid escapes. */
static void put_repr(jinja *m, bnet_span s, bnet_str *out)
{
    char escape[16];
    bool twice = s.n && memchr(s.data, '\'', s.n) && !memchr(s.data, '"', s.n);
    char quote = twice ? '"' : '\'';
    size_t from = 0;
    put(m, out, &quote, 1);
    for (size_t i = 0, n; i < s.n && !m->failed; i += n) {
        int len = bnet_utf8_len(s.data + i, s.n - i);
        n = len > 0 ? (size_t)len : 1;
        if (len <= 0 || !repr_escape(bnet_utf8_decode(s.data + i, len), quote, escape))
            continue;
        put(m, out, s.data + from, i - from);
        puts_of(m, out, escape);
        from = i + n;
    }
    put(m, out, s.data + from, s.n - from);
    put(m, out, &quote, 1);
}

static void put_value(jinja *m, jinja_value v, bool repr, int depth, bnet_str *out);

static void put_list(jinja *m, jinja_value v, int depth, bnet_str *out)
{
    bool tuple = v.type == JINJA_TUPLE;
    puts_of(m, out, tuple ? "(" : "[");
    for (size_t i = 0; i < v.u.list->n && !m->failed; i++) {
        puts_of(m, out, i ? ", " : "");
        put_value(m, v.u.list->items[i], true, depth + 1, out);
    }
    puts_of(m, out, tuple ? (v.u.list->n == 1 ? ",)" : ")") : "]");
}

static void put_dict(jinja *m, const jinja_dict *d, int depth, bnet_str *out)
{
    puts_of(m, out, "{");
    for (size_t i = 0; i < d->n && !m->failed; i++) {
        puts_of(m, out, i ? ", " : "");
        put_value(m, d->pairs[i].key, true, depth + 1, out);
        puts_of(m, out, ": ");
        put_value(m, d->pairs[i].value, true, depth + 1, out);
    }
    puts_of(m, out, "}");
}

static void put_scalar(jinja *m, jinja_value v, bnet_str *out)
{
    char text[32];
    if (v.type == JINJA_INT) {
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
        puts_of(m, out, text);
    } else if (v.type == JINJA_FLOAT) {
        put_float(m, v.u.f, out);
    } else if (v.type == JINJA_BOOL) {
        puts_of(m, out, v.u.b ? "True" : "False");
    } else if (v.type == JINJA_NONE) {
        puts_of(m, out, "None");
    } else if (v.type != JINJA_UNDEFINED) {
        bnet_jinja_fail(m, "a %s cannot be printed", bnet_jinja_type_name(v));
    }
}

static void put_value(jinja *m, jinja_value v, bool repr, int depth, bnet_str *out)
{
    if (depth > JINJA_PRINTED)
        bnet_jinja_fail(m, "lists nest deeper than %d", JINJA_PRINTED);
    else if (v.type == JINJA_STRING && repr)
        put_repr(m, v.u.s, out);
    else if (v.type == JINJA_STRING)
        put(m, out, v.u.s.data, v.u.s.n);
    else if (v.type == JINJA_LIST || v.type == JINJA_TUPLE)
        put_list(m, v, depth, out);
    else if (v.type == JINJA_DICT)
        put_dict(m, v.u.dict, depth, out);
    else if (v.type == JINJA_UNDEFINED && repr)
        puts_of(m, out, "Undefined");
    else
        put_scalar(m, v, out);
}

void bnet_jinja_str(jinja *m, jinja_value v, bnet_str *out)
{
    put_value(m, v, false, 0, out);
}

jinja_value bnet_jinja_string(jinja *m, jinja_value v)
{
    bnet_str text = {0};
    if (v.type == JINJA_STRING)
        return v;
    bnet_jinja_str(m, v, &text);
    return bnet_jinja_take(m, &text);
}

/* ---- as JSON ---- */

static void put_json_text(jinja *m, bnet_span s, bnet_str *out)
{
    static const char plain[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    size_t from = 0;
    char escape[8];
    puts_of(m, out, "\"");
    for (size_t i = 0; i < s.n && !m->failed; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c >= ' ' && c != '"' && c != '\\')
            continue;
        put(m, out, s.data + from, i - from);
        from = i + 1;
        snprintf(escape, sizeof escape, "\\u%04x", c);
        for (size_t k = 0; k + 1 < sizeof plain; k += 2)
            if ((unsigned char)plain[k] == c)
                snprintf(escape, sizeof escape, "\\%c", plain[k + 1]);
        puts_of(m, out, escape);
    }
    put(m, out, s.data + from, s.n - from);
    puts_of(m, out, "\"");
}

typedef struct json_job {
    jinja *m;
    const jinja_json_form *form;
    bnet_str *out;
} json_job;

static void json_value(json_job *j, jinja_value v, int depth);

/* What stands before an element (`first`: the first one) or, `last`, before the closing bracket. */
static void json_gap(json_job *j, int depth, bool first, bool last)
{
    bool lines = j->form->indent >= 0;
    if (!first && !last)
        put(j->m, j->out, j->form->comma.data, j->form->comma.n);
    if (!lines)
        return;
    puts_of(j->m, j->out, "\n");
    for (int64_t i = (int64_t)j->form->indent * (depth - last); i > 0 && !j->m->failed; i--)
        puts_of(j->m, j->out, " ");
}

static void json_list(json_job *j, const jinja_list *l, int depth)
{
    puts_of(j->m, j->out, "[");
    for (size_t i = 0; i < l->n && !j->m->failed; i++) {
        json_gap(j, depth, i == 0, false);
        json_value(j, l->items[i], depth);
    }
    if (l->n)
        json_gap(j, depth, false, true);
    puts_of(j->m, j->out, "]");
}

/* A dict's pairs in the order asked for. */
static const jinja_pair *pairs_of(json_job *j, const jinja_dict *d)
{
    size_t bytes = d->n * sizeof *d->pairs;
    if (!j->form->sorted || d->n < 2)
        return d->pairs;
    jinja_pair *pairs = bnet_jinja_step(j->m, bytes) ? bnet_jinja_alloc(j->m, bytes) : NULL;
    if (!pairs)
        return d->pairs;
    memcpy(pairs, d->pairs, bytes);
    bnet_jinja_sort(j->m, pairs, d->n, false);
    return pairs;
}

static void json_key(json_job *j, jinja_value key)
{
    bool text = key.type == JINJA_STRING;
    if (!text)
        puts_of(j->m, j->out, "\"");
    json_value(j, key, JINJA_PRINTED); /* no lists */
    if (!text)
        puts_of(j->m, j->out, "\"");
}

static void json_dict(json_job *j, const jinja_dict *d, int depth)
{
    const jinja_pair *pairs = pairs_of(j, d);
    puts_of(j->m, j->out, "{");
    for (size_t i = 0; i < d->n && !j->m->failed; i++) {
        json_gap(j, depth, i == 0, false);
        json_key(j, pairs[i].key);
        put(j->m, j->out, j->form->colon.data, j->form->colon.n);
        json_value(j, pairs[i].value, depth);
    }
    if (d->n)
        json_gap(j, depth, false, true);
    puts_of(j->m, j->out, "}");
}

static void json_value(json_job *j, jinja_value v, int depth)
{
    bool box = v.type == JINJA_LIST || v.type == JINJA_TUPLE || v.type == JINJA_DICT;
    if (box && depth >= JINJA_PRINTED)
        bnet_jinja_fail(j->m, "tojson: values nest deeper than %d", JINJA_PRINTED);
    else if (v.type == JINJA_DICT)
        json_dict(j, v.u.dict, depth + 1);
    else if (box)
        json_list(j, v.u.list, depth + 1);
    else if (v.type == JINJA_STRING)
        put_json_text(j->m, v.u.s, j->out);
    else if (v.type == JINJA_BOOL)
        puts_of(j->m, j->out, v.u.b ? "true" : "false");
    else if (v.type == JINJA_NONE)
        puts_of(j->m, j->out, "null");
    else if (v.type == JINJA_FLOAT && !isfinite(v.u.f))
        puts_of(j->m, j->out, isnan(v.u.f) ? "NaN" : v.u.f < 0 ? "-Infinity" : "Infinity");
    else if (v.type == JINJA_INT || v.type == JINJA_FLOAT)
        put_scalar(j->m, v, j->out);
    else
        bnet_jinja_fail(j->m, "tojson: %s is no JSON", bnet_jinja_type_name(v));
}

void bnet_jinja_json(jinja *m, jinja_value v, const jinja_json_form *form, bnet_str *out)
{
    json_job j = {m, form, out};
    json_value(&j, v, 0);
}
