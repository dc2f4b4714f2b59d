/* jinja_rows.c - the filters of templates for lists, dicts and what may be undefined. */
#include "jinja/jinja_impl.h"

/* There is an i-th element. Each that is looked at is a step. */
static bool has(jinja *m, jinja_value all, size_t i)
{
    return !m->failed && i < all.u.list->n && bnet_jinja_step(m, 0);
}

static jinja_value in_lower(jinja *m, jinja_value v)
{
    jinja_args none = {.n = 0};
    return bnet_jinja_filter(m, (bnet_span){"lower", 5}, v, &none);
}

static jinja_value length(jinja *m, jinja_value v, jinja_args *a)
{
    (void)a;
    return bnet_jinja_int((int64_t)bnet_jinja_length(m, v));
}

static jinja_value to_list(jinja *m, jinja_value v, jinja_args *a)
{
    (void)a;
    jinja_value all = bnet_jinja_elements(m, v);
    if (v.type != JINJA_LIST && v.type != JINJA_TUPLE) /* made for us alone */
        return all;
    jinja_value copy = bnet_jinja_list_for(m, JINJA_LIST, all.u.list->n);
    for (size_t i = 0; !m->failed && i < all.u.list->n; i++)
        bnet_jinja_append(m, copy, all.u.list->items[i]);
    return copy;
}

static jinja_value first(jinja *m, jinja_value v, jinja_args *a)
{
    (void)a;
    jinja_value all = bnet_jinja_elements(m, v);
    return m->failed || !all.u.list->n ? bnet_jinja_undefined((bnet_span){"first", 5})
                                       : all.u.list->items[0];
}

static jinja_value last(jinja *m, jinja_value v, jinja_args *a)
{
    (void)a;
    jinja_value all = bnet_jinja_elements(m, v);
    return m->failed || !all.u.list->n ? bnet_jinja_undefined((bnet_span){"last", 4})
                                       : all.u.list->items[all.u.list->n - 1];
}

static jinja_value reverse(jinja *m, jinja_value v, jinja_args *a)
{
    (void)a;
    jinja_value all = bnet_jinja_elements(m, v), out = bnet_jinja_list_of(m, JINJA_LIST);
    bnet_str text = {0};
    for (size_t i = m->failed ? 0 : all.u.list->n; i-- > 0 && !m->failed;) {
        jinja_value item = all.u.list->items[i];
        if (v.type == JINJA_STRING)
            bnet_str_add(&text, item.u.s.data, item.u.s.n);
        else
            bnet_jinja_append(m, out, item);
    }
    return v.type == JINJA_STRING ? bnet_jinja_take(m, &text) : out;
}

/* A part of a path: digits are an index. */
static jinja_value path_part(bnet_span s)
{
    int64_t index = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.data[i] < '0' || s.data[i] > '9' || s.n > 18)
            return bnet_jinja_span(s);
        index = 10 * index + (s.data[i] - '0');
    }
    return s.n ? bnet_jinja_int(index) : bnet_jinja_span(s);
}

/* The member `path` ("a.b", "0.a", or an index) of a value. */
static jinja_value member(jinja *m, jinja_value v, jinja_value path)
{
    if (path.type != JINJA_STRING)
        return bnet_jinja_attribute(m, v, path, true);
    for (bnet_span s = path.u.s; !m->failed;) {
        const char *dot = s.n ? memchr(s.data, '.', s.n) : NULL;
        size_t n = dot ? (size_t)(dot - s.data) : s.n;
        v = bnet_jinja_attribute(m, v, path_part((bnet_span){s.data, n}), true);
        if (!dot)
            break;
        s = (bnet_span){dot + 1, s.n - n - 1};
    }
    return v;
}

static jinja_value join(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value d = bnet_jinja_arg(a, 0, "d"), path = bnet_jinja_arg(a, 1, "attribute");
    jinja_value all = bnet_jinja_elements(m, v);
    bnet_str out = {0};
    if (!bnet_jinja_args_are(m, "join", a, 2, "d attribute"))
        return v;
    d = bnet_jinja_string(m, d);
    for (size_t i = 0; has(m, all, i); i++) {
        jinja_value item = all.u.list->items[i];
        if (!bnet_jinja_is_undefined(path))
            item = member(m, item, path);
        if (i)
            bnet_str_add(&out, d.u.s.data, d.u.s.n);
        bnet_jinja_str(m, item, &out);
        if (out.n > m->limits.output)
            bnet_jinja_fail(m, "a text has more than %zu bytes", m->limits.output);
    }
    return bnet_jinja_take(m, &out);
}

/* The elements with what they are sorted by: a member of theirs, or they themselves. */
static jinja_pair *keyed(jinja *m, const jinja_list *l, jinja_value path, bool exact)
{
    jinja_pair *pairs =
        bnet_jinja_step(m, l->n * sizeof *pairs) ? bnet_jinja_alloc(m, l->n * sizeof *pairs) : NULL;
    for (size_t i = 0; i < l->n && !m->failed; i++) {
        jinja_value key = l->items[i];
        if (!bnet_jinja_is_undefined(path))
            key = member(m, key, path);
        if (!exact && key.type == JINJA_STRING)
            key = in_lower(m, key);
        pairs[i] = (jinja_pair){key, l->items[i]};
    }
    return pairs;
}

static jinja_value sorted(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value path = bnet_jinja_arg(a, 2, "attribute"), out = to_list(m, v, a);
    bool back = bnet_jinja_true(m, bnet_jinja_arg(a, 0, "reverse"));
    bool exact = bnet_jinja_true(m, bnet_jinja_arg(a, 1, "case_sensitive"));
    if (!bnet_jinja_args_are(m, "sort", a, 2, "reverse case_sensitive attribute"))
        return v;
    size_t n = out.u.list->n;
    if (n < 2) /* whose order nobody asks for */
        return out;
    jinja_pair *pairs = keyed(m, out.u.list, path, exact);
    if (!m->failed)
        bnet_jinja_sort(m, pairs, n, back);
    for (size_t i = 0; i < n && !m->failed; i++)
        out.u.list->items[i] = pairs[i].value;
    return out;
}

static jinja_value dict_sorted(jinja *m, jinja_value v, jinja_args *a)
{
    const jinja_arg key = {.name = {"attribute", 9}, .value = bnet_jinja_int(0)};
    jinja_args none = {.n = 0}, by_key = {.at = &key, .n = 1};
    if (v.type != JINJA_DICT || a->n)
        return bnet_jinja_fail(m, "dictsort takes a dict and no arguments");
    jinja_value items = bnet_jinja_method(m, v, (bnet_span){"items", 5});
    items = bnet_jinja_call(m, items, &none);
    return m->failed ? v : sorted(m, items, &by_key);
}

static jinja_value items(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_args none = {.n = 0};
    (void)a;
    if (bnet_jinja_is_undefined(v))
        return bnet_jinja_list_of(m, JINJA_LIST);
    if (v.type != JINJA_DICT)
        return bnet_jinja_fail(m, "items of %s", bnet_jinja_type_name(v));
    return bnet_jinja_call(m, bnet_jinja_method(m, v, (bnet_span){"items", 5}), &none);
}

static jinja_value unique(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value all = bnet_jinja_elements(m, v), out = bnet_jinja_list_of(m, JINJA_LIST);
    if (!bnet_jinja_args_are(m, "unique", a, 0, ""))
        return v;
    jinja_value seen = bnet_jinja_dict_of(m);
    for (size_t i = 0; has(m, all, i); i++) {
        jinja_value item = all.u.list->items[i];
        jinja_value key = item.type == JINJA_STRING ? in_lower(m, item) : item;
        if (m->failed || bnet_jinja_get(m, seen.u.dict, key))
            continue;
        bnet_jinja_put(m, seen.u.dict, key, key);
        bnet_jinja_append(m, out, item);
    }
    return out;
}

/* The first of the least (sign < 0) or greatest elements; texts compare without regard to case. */
static jinja_value extreme(jinja *m, jinja_value v, int sign)
{
    jinja_value all = bnet_jinja_elements(m, v), best = {.type = JINJA_UNDEFINED}, best_key = best;
    for (size_t i = 0; has(m, all, i); i++) {
        jinja_value item = all.u.list->items[i];
        jinja_value key = item.type == JINJA_STRING ? in_lower(m, item) : item;
        if (i && sign * bnet_jinja_order(m, key, best_key) <= 0)
            continue;
        best = item;
        best_key = key;
    }
    return best;
}

static jinja_value least(jinja *m, jinja_value v, jinja_args *a)
{
    return bnet_jinja_args_are(m, "min", a, 0, "") ? extreme(m, v, -1) : v;
}

static jinja_value greatest(jinja *m, jinja_value v, jinja_args *a)
{
    return bnet_jinja_args_are(m, "max", a, 0, "") ? extreme(m, v, 1) : v;
}

static jinja_value sum(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value all = bnet_jinja_elements(m, v), total = bnet_jinja_int(0);
    jinja_value path = bnet_jinja_arg(a, 0, "attribute");
    if (!bnet_jinja_args_are(m, "sum", a, 1, "attribute"))
        return v;
    for (size_t i = 0; has(m, all, i); i++) {
        jinja_value item = all.u.list->items[i];
        total = bnet_jinja_operate(m, OP_ADD, total,
                                   bnet_jinja_is_undefined(path) ? item : member(m, item, path));
    }
    return total;
}

/* ---- choosing ---- */

static jinja_value otherwise(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value other = bnet_jinja_arg(a, 0, "default_value");
    bool also_false = bnet_jinja_true(m, bnet_jinja_arg(a, 1, "boolean"));
    if (!bnet_jinja_args_are(m, "default", a, 2, "default_value boolean"))
        return v;
    if (bnet_jinja_is_undefined(other))
        other = bnet_jinja_span((bnet_span){"", 0});
    return bnet_jinja_is_undefined(v) || (also_false && !bnet_jinja_true(m, v)) ? other : v;
}

/* The arguments from `from` on. */
static jinja_args later(const jinja_args *a, size_t from)
{
    return (jinja_args){.at = from < a->n ? a->at + from : NULL,
                        .n = from < a->n ? a->n - from : 0};
}

/* map(attribute="a", default=1), map("filter", ...) */
static jinja_value map(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value path = bnet_jinja_arg(a, JINJA_ARGS, "attribute");
    jinja_value other = bnet_jinja_arg(a, JINJA_ARGS, "default");
    jinja_value name = bnet_jinja_arg(a, 0, ""), all = bnet_jinja_elements(m, v);
    jinja_value out = bnet_jinja_list_of(m, JINJA_LIST);
    jinja_args rest = later(a, 1);
    if (bnet_jinja_is_undefined(path) &&
        (name.type != JINJA_STRING || !bnet_jinja_has_filter(name.u.s)))
        return bnet_jinja_fail(m, "map takes attribute= or the name of a filter");
    for (size_t i = 0; has(m, all, i); i++) {
        jinja_value item = all.u.list->items[i];
        if (!bnet_jinja_is_undefined(path)) {
            item = member(m, item, path);
            item = bnet_jinja_is_undefined(item) && !bnet_jinja_is_undefined(other) ? other : item;
        } else {
            item = bnet_jinja_filter(m, name.u.s, item, &rest);
        }
        bnet_jinja_append(m, out, item);
    }
    return out;
}

/* select and reject (by the element), selectattr and rejectattr (by a member of it). */
static jinja_value choose(jinja *m, jinja_value v, const jinja_args *a, bool wanted, bool by_member)
{
    jinja_value all = bnet_jinja_elements(m, v), out = bnet_jinja_list_of(m, JINJA_LIST);
    jinja_value path =
        by_member ? bnet_jinja_arg(a, 0, "") : (jinja_value){.type = JINJA_UNDEFINED};
    jinja_value name = bnet_jinja_arg(a, by_member, "");
    jinja_args rest = later(a, (size_t)by_member + 1);
    bool tested = !bnet_jinja_is_undefined(name);
    if ((by_member && bnet_jinja_is_undefined(path)) ||
        (tested && (name.type != JINJA_STRING || !bnet_jinja_has_test(name.u.s))))
        return bnet_jinja_fail(
            m, "select and reject take the name of a test, with attr of a member before it");
    for (size_t i = 0; has(m, all, i); i++) {
        jinja_value item = all.u.list->items[i];
        jinja_value asked = by_member ? member(m, item, path) : item;
        bool yes = tested ? bnet_jinja_test(m, name.u.s, asked, &rest) : bnet_jinja_true(m, asked);
        if (yes == wanted)
            bnet_jinja_append(m, out, item);
    }
    return out;
}

static jinja_value select_(jinja *m, jinja_value v, jinja_args *a)
{
    return choose(m, v, a, true, false);
}

static jinja_value reject(jinja *m, jinja_value v, jinja_args *a)
{
    return choose(m, v, a, false, false);
}

static jinja_value select_attr(jinja *m, jinja_value v, jinja_args *a)
{
    return choose(m, v, a, true, true);
}

static jinja_value reject_attr(jinja *m, jinja_value v, jinja_args *a)
{
    return choose(m, v, a, false, true);
}

const jinja_named bnet_jinja_row_filters[] = {
    {"count", length},
    {"d", otherwise},
    {"default", otherwise},
    {"dictsort", dict_sorted},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"map", map},
    {"max", greatest},
    {"min", least},
    {"reject", reject},
    {"rejectattr", reject_attr},
    {"reverse", reverse},
    {"select", select_},
    {"selectattr", select_attr},
    {"sort", sorted},
    {"sum", sum},
    {"unique", unique},
    {NULL, NULL},
};
