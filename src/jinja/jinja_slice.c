/* jinja_slice.c - parts of lists and texts: [begin:end:step]. */
#include "jinja/jinja_impl.h"

enum { MOST_STEP = 1000000 };

/* The elements i, i + step, ... before `end`. */
typedef struct slice_range {
    int64_t i, end, step;
} slice_range;

/* A slice's bound as Python reads it: from the end if negative, clipped to lo..hi. */
static int64_t bound(jinja *m, const jinja_node *part, int64_t n, int64_t absent, int64_t lo,
                     int64_t hi)
{
    int64_t i;
    jinja_value v = part ? bnet_jinja_eval(m, part) : (jinja_value){.type = JINJA_NONE};
    if (v.type == JINJA_NONE)
        return absent;
    if (!bnet_jinja_whole(v, &i)) {
        bnet_jinja_fail(m, "a slice's bound is %s", bnet_jinja_type_name(v));
        return absent;
    }
    i += i < 0 ? n : 0;
    return BNET_MAX(lo, BNET_MIN(hi, i));
}

static int64_t step_of(jinja *m, const jinja_node *part)
{
    jinja_value v = part ? bnet_jinja_eval(m, part) : (jinja_value){.type = JINJA_NONE};
    int64_t step = 1;
    if (v.type != JINJA_NONE &&
        (!bnet_jinja_whole(v, &step) || step == 0 || step < -MOST_STEP || step > MOST_STEP))
        bnet_jinja_fail(m, "a slice's step is no number, 0 or too large");
    return step;
}

static slice_range range_of(jinja *m, const jinja_node *node, int64_t step, int64_t n)
{
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    slice_range r = {.step = step};
    r.i = bound(m, node->kids[0], n, step < 0 ? hi : lo, lo, hi);
    r.end = bound(m, node->kids[1], n, step < 0 ? lo : hi, lo, hi);
    return r;
}

static bool goes_on(jinja *m, const slice_range *r)
{
    return (r->step > 0 ? r->i < r->end : r->i > r->end) && bnet_jinja_step(m, 0);
}

static jinja_value list_part(jinja *m, const jinja_node *node, jinja_value v, int64_t step)
{
    slice_range r = range_of(m, node, step, (int64_t)v.u.list->n);
    jinja_value out = bnet_jinja_list_of(m, v.type);
    for (; goes_on(m, &r); r.i += r.step)
        bnet_jinja_append(m, out, v.u.list->items[r.i]);
    return out;
}

/* Characters that stand together are bytes that do; the others are gone through one by one. */
static jinja_value text_part(jinja *m, const jinja_node *node, bnet_span s, int64_t step)
{
    slice_range r = range_of(m, node, step, (int64_t)bnet_jinja_length(m, bnet_jinja_span(s)));
    bnet_str chars = {0};
    if (m->failed || (step == 1 && r.i >= r.end))
        return bnet_jinja_span((bnet_span){"", 0});
    if (step == 1) {
        size_t from = bnet_jinja_offset(s, (size_t)r.i);
        bnet_span rest = {s.data + from, s.n - from};
        return bnet_jinja_span(
            (bnet_span){rest.data, bnet_jinja_offset(rest, (size_t)(r.end - r.i))});
    }
    jinja_value all = bnet_jinja_elements(m, bnet_jinja_span(s));
    for (; goes_on(m, &r); r.i += r.step)
        bnet_str_add(&chars, all.u.list->items[r.i].u.s.data, all.u.list->items[r.i].u.s.n);
    return bnet_jinja_take(m, &chars);
}

jinja_value bnet_jinja_slice(jinja *m, const jinja_node *n)
{
    jinja_value v = bnet_jinja_eval(m, n->a);
    int64_t step = step_of(m, n->kids[2]);
    if (m->failed)
        return v;
    if (v.type == JINJA_STRING)
        return text_part(m, n, v.u.s, step);
    if (v.type == JINJA_LIST || v.type == JINJA_TUPLE)
        return list_part(m, n, v, step);
    return bnet_jinja_fail(m, "%s cannot be sliced", bnet_jinja_type_name(v));
}
