/* jinja_compare.c - values against each other: equality, order, membership, elements. */
#include "jinja/jinja_impl.h"

static int compare_text(bnet_span a, bnet_span b)
{
    size_t n = BNET_MIN(a.n, b.n);
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

bool bnet_jinja_same(jinja *m, bnet_span a, bnet_span b)
{
    if (a.n != b.n || a.n == 0)
        return a.n == b.n;
    return (a.n < 64 || bnet_jinja_step(m, a.n)) && memcmp(a.data, b.data, a.n) == 0;
}

static bool equal_within(jinja *m, jinja_value a, jinja_value b, int depth);

static bool equal_lists(jinja *m, const jinja_list *a, const jinja_list *b, int depth)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n && !m->failed; i++)
        if (!equal_within(m, a->items[i], b->items[i], depth))
            return false;
    return true;
}

static bool equal_dicts(jinja *m, const jinja_dict *a, const jinja_dict *b, int depth)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n && !m->failed; i++) {
        const jinja_value *other = bnet_jinja_get(m, b, a->pairs[i].key);
        if (!other || !equal_within(m, a->pairs[i].value, *other, depth))
            return false;
    }
    return true;
}

static bool equal_within(jinja *m, jinja_value a, jinja_value b, int depth)
{
    double x, y;
    int64_t i, j;
    if (depth >= JINJA_PRINTED || !bnet_jinja_step(m, 0)) {
        bnet_jinja_fail(m, "lists nest deeper than %d", JINJA_PRINTED);
        return false;
    }
    if (bnet_jinja_whole(a, &i) && bnet_jinja_whole(b, &j))
        return i == j;
    if (bnet_jinja_number(a, &x) && bnet_jinja_number(b, &y))
        return x == y;
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case JINJA_STRING:
        return bnet_jinja_same(m, a.u.s, b.u.s);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(m, a.u.list, b.u.list, depth + 1);
    case JINJA_DICT:
        return equal_dicts(m, a.u.dict, b.u.dict, depth + 1);
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    default:
        return a.u.loop == b.u.loop;
    }
}

bool bnet_jinja_equal(jinja *m, jinja_value a, jinja_value b)
{
    return equal_within(m, a, b, 0);
}

static int order_lists(jinja *m, const jinja_list *a, const jinja_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n && !m->failed; i++)
        if (!bnet_jinja_equal(m, a->items[i], b->items[i])) {
            jinja_value x = a->items[i], y = b->items[i];
            if (x.type == JINJA_LIST || x.type == JINJA_TUPLE) {
                bnet_jinja_fail(m, "lists of lists have no order here");
                return 0;
            }
            return bnet_jinja_order(m, x, y);
        }
    return (a->n > b->n) - (a->n < b->n);
}

int bnet_jinja_order(jinja *m, jinja_value a, jinja_value b)
{
    double x, y;
    int64_t i, j;
    if (bnet_jinja_whole(a, &i) && bnet_jinja_whole(b, &j))
        return (i > j) - (i < j);
    if (bnet_jinja_number(a, &x) && bnet_jinja_number(b, &y))
        return (x > y) - (x < y);
    if (a.type == JINJA_STRING && b.type == JINJA_STRING)
        return bnet_jinja_step(m, BNET_MIN(a.u.s.n, b.u.s.n)) ? compare_text(a.u.s, b.u.s) : 0;
    if (a.type == b.type && (a.type == JINJA_LIST || a.type == JINJA_TUPLE))
        return order_lists(m, a.u.list, b.u.list);
    bnet_jinja_fail(m, "%s and %s cannot be put in order", bnet_jinja_type_name(a),
                    bnet_jinja_type_name(b));
    return 0;
}

static bool holds_text(jinja *m, bnet_span all, bnet_span part)
{
    if (!bnet_jinja_step(m, all.n))
        return false;
    return part.n == 0 || (all.n >= part.n && memmem(all.data, all.n, part.data, part.n) != NULL);
}

bool bnet_jinja_in(jinja *m, jinja_value item, jinja_value all)
{
    switch (all.type) {
    case JINJA_STRING:
        if (item.type == JINJA_STRING)
            return holds_text(m, all.u.s, item.u.s);
        bnet_jinja_fail(m, "'in' a string asks for a string, not for %s",
                        bnet_jinja_type_name(item));
        return false;
    case JINJA_LIST:
    case JINJA_TUPLE:
        for (size_t i = 0; i < all.u.list->n && !m->failed; i++)
            if (bnet_jinja_equal(m, item, all.u.list->items[i]))
                return true;
        return false;
    case JINJA_DICT:
        return bnet_jinja_get(m, all.u.dict, item) != NULL;
    case JINJA_UNDEFINED:
        return false;
    default:
        bnet_jinja_fail(m, "'in' cannot look into %s", bnet_jinja_type_name(all));
        return false;
    }
}

static jinja_value characters(jinja *m, bnet_span s)
{
    size_t n = bnet_jinja_step(m, s.n) ? bnet_jinja_characters(s) : 0;
    jinja_value all = bnet_jinja_list_for(m, JINJA_LIST, n);
    while (s.n && !m->failed) {
        bnet_span c = bnet_jinja_character(s, 0);
        bnet_jinja_append(m, all, bnet_jinja_span(c));
        s = (bnet_span){s.data + c.n, s.n - c.n};
    }
    return all;
}

jinja_value bnet_jinja_elements(jinja *m, jinja_value v)
{
    if (v.type == JINJA_LIST || v.type == JINJA_TUPLE)
        return (jinja_value){.type = JINJA_LIST, .u.list = v.u.list};
    if (v.type == JINJA_STRING)
        return characters(m, v.u.s);
    if (v.type != JINJA_DICT && v.type != JINJA_UNDEFINED)
        return bnet_jinja_fail(m, "%s cannot be iterated", bnet_jinja_type_name(v));
    size_t n = v.type == JINJA_DICT ? v.u.dict->n : 0;
    jinja_value all = bnet_jinja_list_for(m, JINJA_LIST, n);
    for (size_t i = 0; i < n && !m->failed; i++)
        bnet_jinja_append(m, all, v.u.dict->pairs[i].key);
    return all;
}

size_t bnet_jinja_length(jinja *m, jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_STRING:
        return bnet_jinja_step(m, v.u.s.n) ? bnet_jinja_characters(v.u.s) : 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.u.list->n;
    case JINJA_DICT:
        return v.u.dict->n;
    default:
        bnet_jinja_fail(m, "%s has no length", bnet_jinja_type_name(v));
        return 0;
    }
}
