/* jinja_methods.c - what a template can call: methods of dicts and loops, the global functions, and
 * their arguments. */
#include <time.h>

#include "jinja/jinja_impl.h"

/* ---- arguments ---- */

jinja_value bnet_jinja_arg(const jinja_args *a, size_t position, const char *name)
{
    if (position < a->n && !a->at[position].name.n)
        return a->at[position].value;
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i].name.n && bnet_jinja_named(a->at[i].name, name))
            return a->at[i].value;
    return (jinja_value){.type = JINJA_UNDEFINED};
}

static bool listed(bnet_span name, const char *names)
{
    for (const char *at = names; *at;) {
        size_t n = strcspn(at, " ");
        if (name.n == n && memcmp(name.data, at, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

bool bnet_jinja_args_are(jinja *m, const char *what, const jinja_args *a, size_t most,
                         const char *names)
{
    size_t positions = 0;
    for (size_t i = 0; i < a->n && !m->failed; i++) {
        bnet_span name = a->at[i].name;
        positions += name.n == 0;
        if (name.n && !listed(name, names))
            bnet_jinja_fail(m, "%s takes no argument '%.*s'", what,
                            (int)BNET_MIN(name.n, (size_t)40), name.data);
    }
    if (positions > most)
        bnet_jinja_fail(m, "%s takes at most %zu arguments", what, most);
    return !m->failed;
}

/* The argument as a string; false, and failed: it is none. */
bool bnet_jinja_text_arg(jinja *m, const jinja_args *a, size_t position, const char *name,
                         bnet_span *s)
{
    jinja_value v = bnet_jinja_arg(a, position, name);
    if (v.type != JINJA_STRING)
        bnet_jinja_fail(m, "an argument is %s, not str", bnet_jinja_type_name(v));
    else
        *s = v.u.s;
    return !m->failed;
}

/* ---- dicts ---- */

static jinja_value dict_row(jinja *m, jinja_value self, bool keys, bool values)
{
    jinja_value out = bnet_jinja_list_of(m, JINJA_LIST);
    for (size_t i = 0; i < self.u.dict->n && !m->failed; i++) {
        jinja_pair p = self.u.dict->pairs[i];
        jinja_value pair = keys && values ? bnet_jinja_list_of(m, JINJA_TUPLE)
                           : keys         ? p.key
                                          : p.value;
        if (keys && values && !m->failed) {
            bnet_jinja_append(m, pair, p.key);
            bnet_jinja_append(m, pair, p.value);
        }
        bnet_jinja_append(m, out, pair);
    }
    return out;
}

static jinja_value dict_items(jinja *m, jinja_value self, jinja_args *a)
{
    return bnet_jinja_args_are(m, "items", a, 0, "") ? dict_row(m, self, true, true) : self;
}

static jinja_value dict_keys(jinja *m, jinja_value self, jinja_args *a)
{
    return bnet_jinja_args_are(m, "keys", a, 0, "") ? dict_row(m, self, true, false) : self;
}

static jinja_value dict_values(jinja *m, jinja_value self, jinja_args *a)
{
    return bnet_jinja_args_are(m, "values", a, 0, "") ? dict_row(m, self, false, true) : self;
}

static jinja_value dict_get(jinja *m, jinja_value self, jinja_args *a)
{
    if (!bnet_jinja_args_are(m, "get", a, 2, "") || a->n == 0)
        return bnet_jinja_fail(m, "get takes a key");
    const jinja_value *v = bnet_jinja_get(m, self.u.dict, a->at[0].value);
    return v ? *v : a->n > 1 ? a->at[1].value : (jinja_value){.type = JINJA_NONE};
}

/* ---- loops ---- */

static jinja_value loop_cycle(jinja *m, jinja_value self, jinja_args *a)
{
    if (a->n == 0)
        return bnet_jinja_fail(m, "loop.cycle takes the values to choose from");
    return a->at[(self.u.loop->round - 1) % a->n].value;
}

static jinja_value loop_changed(jinja *m, jinja_value self, jinja_args *a)
{
    jinja_value now = bnet_jinja_list_of(m, JINJA_LIST);
    for (size_t i = 0; i < a->n && !m->failed; i++)
        bnet_jinja_append(m, now, a->at[i].value);
    bool same = !m->failed && self.u.loop->changed.type == JINJA_LIST &&
                bnet_jinja_equal(m, now, self.u.loop->changed);
    self.u.loop->changed = now;
    return bnet_jinja_bool(!same);
}

/* ---- global functions ---- */

static jinja_value raise(jinja *m, jinja_value self, jinja_args *a)
{
    bnet_str why = {0};
    (void)self;
    if (a->n)
        bnet_jinja_str(m, a->at[0].value, &why);
    if (!m->failed) {
        m->failed = true;
        m->status =
            bnet_fail(m->err, BITNET_ARGUMENT, "the model's chat template refuses this: %.*s",
                      (int)BNET_MIN(why.n, (size_t)400), why.n ? why.data : "");
    }
    bnet_str_free(&why);
    return (jinja_value){.type = JINJA_UNDEFINED};
}

/* The format for strftime of C: Python has %f, microseconds, and for a time without a zone %z and
 * %Z are empty. The full stop at the end tells an empty date from one that does not fit. */
static void add_format(bnet_str *out, bnet_span s, long microseconds)
{
    for (size_t i = 0; i < s.n; i++) {
        char what = s.data[i] == '%' && i + 1 < s.n ? s.data[i + 1] : '\0';
        if (what == 'f')
            bnet_str_addf(out, "%06ld", microseconds);
        else if (what != 'z' && what != 'Z')
            bnet_str_add(out, s.data + i, what ? 2 : 1);
        i += what != '\0';
    }
    bnet_str_putc(out, '.');
}

/* What some C libraries take between % and the letter: Python leaves it to them. */
static bool has_flags(bnet_span s)
{
    for (size_t i = 0; i + 1 < s.n; i++)
        if (s.data[i] == '%' && s.data[++i] && strchr("EO^#_0123456789+:", s.data[i]))
            return true;
    return false;
}

enum { DATE_BYTES = 4096 }; /* a date takes as long as moving so many */

static jinja_value now(jinja *m, jinja_value self, jinja_args *a)
{
    char text[1024];
    bnet_span s = {"", 0};
    bnet_str format = {0};
    struct tm parts;
    struct timespec t = {.tv_sec = (time_t)m->limits.now};
    if (!m->limits.now)
        clock_gettime(CLOCK_REALTIME, &t);
    if (!bnet_jinja_text_arg(m, a, 0, "format", &s) || !bnet_jinja_step(m, DATE_BYTES))
        return self;
    if (has_flags(s))
        return bnet_jinja_fail(m,
                               "strftime_now: flags and widths after %% are not supported but -");
    if (s.n > 127 || (s.n && memchr(s.data, 0, s.n)))
        return bnet_jinja_fail(m, "strftime_now: the format has more than 127 bytes, or a NUL");
    add_format(&format, s, t.tv_nsec / 1000);
    size_t n = !format.failed && localtime_r(&t.tv_sec, &parts)
                   ? strftime(text, sizeof text, format.data, &parts)
                   : 0;
    bnet_str_free(&format);
    return n ? bnet_jinja_copy(m, text, n - 1)
             : bnet_jinja_fail(m, "strftime_now: the date cannot be written");
}

static jinja_value range(jinja *m, jinja_value self, jinja_args *a)
{
    int64_t at[3] = {0, 0, 1};
    (void)self;
    for (size_t i = 0; i < a->n && i < 3; i++)
        if (!bnet_jinja_whole(a->at[i].value, &at[i]))
            return bnet_jinja_fail(m, "range takes integers, not %s",
                                   bnet_jinja_type_name(a->at[i].value));
    if (a->n == 0 || a->n > 3 || at[2] == 0)
        return bnet_jinja_fail(m, "range takes one to three integers, and no step of 0");
    if (a->n == 1) {
        at[1] = at[0];
        at[0] = 0;
    }
    jinja_value out = bnet_jinja_list_of(m, JINJA_LIST);
    for (int64_t i = at[0]; (at[2] > 0 ? i < at[1] : i > at[1]) && bnet_jinja_step(m, 0);) {
        bnet_jinja_append(m, out, bnet_jinja_int(i));
        if (__builtin_add_overflow(i, at[2], &i))
            break;
    }
    return out;
}

/* dict(a=1) and namespace(a=1). */
static jinja_value members(jinja *m, const jinja_args *a, jinja_type type)
{
    jinja_value v = bnet_jinja_dict_of(m);
    for (size_t i = 0; i < a->n && !m->failed; i++) {
        jinja_value given = a->at[i].value;
        if (a->at[i].name.n)
            bnet_jinja_put(m, v.u.dict, bnet_jinja_span(a->at[i].name), given);
        else if (given.type == JINJA_DICT)
            for (size_t k = 0; k < given.u.dict->n && !m->failed; k++)
                bnet_jinja_put(m, v.u.dict, given.u.dict->pairs[k].key,
                               given.u.dict->pairs[k].value);
        else
            bnet_jinja_fail(m, "dict and namespace take members by name");
    }
    v.type = m->failed ? JINJA_UNDEFINED : type;
    return v;
}

static jinja_value make_dict(jinja *m, jinja_value self, jinja_args *a)
{
    (void)self;
    return members(m, a, JINJA_DICT);
}

static jinja_value make_namespace(jinja *m, jinja_value self, jinja_args *a)
{
    (void)self;
    return members(m, a, JINJA_NAMESPACE);
}

/* ---- finding them ---- */

static const jinja_named dict_methods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values},
    {"get", dict_get},     {NULL, NULL},
};
static const jinja_named loop_methods[] = {
    {"cycle", loop_cycle},
    {"changed", loop_changed},
    {NULL, NULL},
};
static const jinja_named globals[] = {
    {"raise_exception", raise}, {"strftime_now", now},         {"range", range},
    {"dict", make_dict},        {"namespace", make_namespace}, {NULL, NULL},
};

jinja_fn *bnet_jinja_find(const jinja_named *table, bnet_span name)
{
    for (; table->name; table++)
        if (bnet_jinja_named(name, table->name))
            return table->fn;
    return NULL;
}

jinja_value bnet_jinja_method(jinja *m, jinja_value self, bnet_span name)
{
    const jinja_named *table = self.type == JINJA_STRING      ? bnet_jinja_string_methods
                               : self.type == JINJA_DICT      ? dict_methods
                               : self.type == JINJA_LOOP      ? loop_methods
                               : self.type == JINJA_UNDEFINED ? globals
                                                              : NULL;
    jinja_fn *fn = table ? bnet_jinja_find(table, name) : NULL;
    jinja_method *method = fn ? bnet_jinja_alloc(m, sizeof *method) : NULL;
    if (!method)
        return bnet_jinja_undefined(name);
    *method = (jinja_method){fn, self};
    return (jinja_value){.type = JINJA_FUNCTION, .u.method = method};
}

jinja_value bnet_jinja_global(jinja *m, bnet_span name)
{
    return bnet_jinja_method(m, (jinja_value){.type = JINJA_UNDEFINED}, name);
}
