/* jinja_eval.c - expressions of a template at work: names, members, calls, operators. */
#include <math.h>

#include "jinja/jinja_impl.h"

/* ---- names ---- */

static jinja_value look_up(jinja *m, bnet_span name)
{
    for (const jinja_scope *s = m->scope; s && !m->failed; s = s->parent) {
        const jinja_value *v = bnet_jinja_get(m, &s->names, bnet_jinja_span(name));
        if (v)
            return *v;
    }
    return bnet_jinja_global(m, name);
}

void bnet_jinja_push(jinja *m, jinja_scope *parent)
{
    jinja_scope *s = bnet_jinja_alloc(m, sizeof *s);
    if (!s)
        return;
    s->parent = parent;
    m->scope = s;
}

void bnet_jinja_define(jinja *m, bnet_span name, jinja_value v)
{
    if (!m->failed)
        bnet_jinja_put(m, &m->scope->names, bnet_jinja_span(name), v);
}

void bnet_jinja_assign(jinja *m, const jinja_node *target, jinja_value v)
{
    if (m->failed)
        return;
    if (target->kind == NODE_NAME) {
        bnet_jinja_define(m, target->name, v);
    } else if (target->kind == NODE_ATTRIBUTE) {
        jinja_value box = bnet_jinja_eval(m, target->a);
        if (box.type != JINJA_NAMESPACE)
            bnet_jinja_fail(m, "only a namespace's members can be set, not those of %s",
                            bnet_jinja_type_name(box));
        else
            bnet_jinja_put(m, box.u.dict, bnet_jinja_span(target->name), v);
    } else {
        jinja_value parts = bnet_jinja_elements(m, v);
        if (!m->failed && parts.u.list->n != target->n_kids)
            bnet_jinja_fail(m, "%zu values for %zu names", parts.u.list->n, target->n_kids);
        for (size_t i = 0; i < target->n_kids && !m->failed; i++)
            bnet_jinja_assign(m, target->kids[i], parts.u.list->items[i]);
    }
}

/* ---- members, items, slices ---- */

/* The condition of the loop is asked as far as the member needs it. */
static void look_ahead(jinja *m, jinja_loop *l, bnet_span name)
{
    if (bnet_jinja_named(name, "last") || bnet_jinja_named(name, "nextitem"))
        bnet_jinja_choose(m, l, l->round + 1);
    if (bnet_jinja_named(name, "length") || bnet_jinja_named(name, "revindex") ||
        bnet_jinja_named(name, "revindex0"))
        bnet_jinja_choose(m, l, SIZE_MAX);
}

static jinja_value loop_member(jinja *m, jinja_loop *l, bnet_span name)
{
    look_ahead(m, l, name);
    int64_t at = (int64_t)l->round - 1, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        jinja_value value;
    } members[] = {
        {"index", bnet_jinja_int(at + 1)},    {"index0", bnet_jinja_int(at)},
        {"revindex", bnet_jinja_int(n - at)}, {"revindex0", bnet_jinja_int(n - at - 1)},
        {"first", bnet_jinja_bool(at == 0)},  {"last", bnet_jinja_bool(at == n - 1)},
        {"length", bnet_jinja_int(n)},        {"depth", bnet_jinja_int(1)},
        {"depth0", bnet_jinja_int(0)},
    };
    for (size_t i = 0; i < BNET_COUNT(members); i++)
        if (bnet_jinja_named(name, members[i].name))
            return members[i].value;
    if (bnet_jinja_named(name, "previtem") && at > 0)
        return l->items->items[at - 1];
    if (bnet_jinja_named(name, "nextitem") && at + 1 < n)
        return l->items->items[at + 1];
    return bnet_jinja_undefined(name);
}

static jinja_value item_of(jinja *m, jinja_value v, jinja_value key)
{
    int64_t i = 0;
    bool list = v.type == JINJA_LIST || v.type == JINJA_TUPLE;
    if (v.type == JINJA_DICT || v.type == JINJA_NAMESPACE) {
        const jinja_value *found = bnet_jinja_get(m, v.u.dict, key);
        return found
                   ? *found
                   : bnet_jinja_undefined(key.type == JINJA_STRING ? key.u.s : (bnet_span){"", 0});
    }
    if ((list || v.type == JINJA_STRING) && bnet_jinja_whole(key, &i)) {
        int64_t n = (int64_t)bnet_jinja_length(m, v);
        i += i < 0 ? n : 0;
        if (i < 0 || i >= n)
            return bnet_jinja_undefined((bnet_span){"an element", 10});
        return list ? v.u.list->items[i] : bnet_jinja_span(bnet_jinja_character(v.u.s, (size_t)i));
    }
    return bnet_jinja_undefined(key.type == JINJA_STRING ? key.u.s : (bnet_span){"an element", 10});
}

jinja_value bnet_jinja_attribute(jinja *m, jinja_value v, jinja_value name, bool item_first)
{
    if (v.type == JINJA_UNDEFINED)
        return bnet_jinja_fail(m, "'%.*s' is undefined", (int)BNET_MIN(v.u.s.n, (size_t)80),
                               v.u.s.data);
    jinja_value found = item_first || v.type == JINJA_NAMESPACE
                            ? item_of(m, v, name)
                            : (jinja_value){.type = JINJA_UNDEFINED};
    if (found.type == JINJA_UNDEFINED && name.type == JINJA_STRING && v.type == JINJA_LOOP)
        found = loop_member(m, v.u.loop, name.u.s);
    if (found.type == JINJA_UNDEFINED && name.type == JINJA_STRING)
        found = bnet_jinja_method(m, v, name.u.s);
    return found.type == JINJA_UNDEFINED && !item_first ? item_of(m, v, name) : found;
}

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

static jinja_value slice(jinja *m, const jinja_node *node)
{
    jinja_value v = bnet_jinja_eval(m, node->a), step_of = {.type = JINJA_NONE};
    int64_t step = 1;
    if (node->kids[2])
        step_of = bnet_jinja_eval(m, node->kids[2]);
    if (step_of.type != JINJA_NONE &&
        (!bnet_jinja_whole(step_of, &step) || step == 0 || step < -1000000 || step > 1000000))
        return bnet_jinja_fail(m, "a slice's step is no number, 0 or too large");
    if (v.type != JINJA_LIST && v.type != JINJA_TUPLE && v.type != JINJA_STRING)
        return bnet_jinja_fail(m, "%s cannot be sliced", bnet_jinja_type_name(v));
    jinja_value items = bnet_jinja_elements(m, v);
    if (m->failed)
        return items;
    int64_t n = (int64_t)items.u.list->n, lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    int64_t i = bound(m, node->kids[0], n, step < 0 ? hi : lo, lo, hi);
    int64_t end = bound(m, node->kids[1], n, step < 0 ? lo : hi, lo, hi);
    jinja_value out = bnet_jinja_list_of(m, v.type == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST);
    bnet_str chars = {0};
    for (; (step > 0 ? i < end : i > end) && bnet_jinja_step(m, 0); i += step) {
        jinja_value item = items.u.list->items[i];
        if (v.type == JINJA_STRING)
            bnet_str_add(&chars, item.u.s.data, item.u.s.n);
        else
            bnet_jinja_append(m, out, item);
    }
    return v.type == JINJA_STRING ? bnet_jinja_take(m, &chars) : out;
}

/* ---- calls ---- */

static void add_argument(jinja *m, jinja_args *a, bnet_span name, jinja_value v)
{
    if (a->n == JINJA_ARGS) {
        bnet_jinja_fail(m, "a call has more than %d arguments", JINJA_ARGS);
        return;
    }
    a->names[a->n] = name;
    a->at[a->n++] = v;
}

/* An argument by position, or all that a SPREAD has. */
static void add_by_position(jinja *m, jinja_args *a, const jinja_node *kid)
{
    const bnet_span unnamed = {NULL, 0};
    if (kid->kind != NODE_SPREAD) {
        add_argument(m, a, unnamed, bnet_jinja_eval(m, kid));
        return;
    }
    jinja_value list = bnet_jinja_elements(m, bnet_jinja_eval(m, kid->a));
    for (size_t k = 0; !m->failed && k < list.u.list->n; k++)
        add_argument(m, a, unnamed, list.u.list->items[k]);
}

/* Those by name come last, wherever they were written. */
void bnet_jinja_arguments_of(jinja *m, const jinja_node *call, jinja_args *a)
{
    a->n = 0;
    for (size_t i = 0; i < call->n_kids && !m->failed; i++)
        if (call->kids[i]->kind != NODE_KEYWORD)
            add_by_position(m, a, call->kids[i]);
    for (size_t i = 0; i < call->n_kids && !m->failed; i++)
        if (call->kids[i]->kind == NODE_KEYWORD)
            add_argument(m, a, call->kids[i]->name, bnet_jinja_eval(m, call->kids[i]->a));
}

/* The parameters of a macro get their values in the scope that was made for the call. */
static void bind(jinja *m, const jinja_node *macro, const jinja_args *a)
{
    size_t used = 0;
    for (size_t i = 0; i < macro->n_kids && !m->failed; i++) {
        const jinja_node *kid = macro->kids[i];
        jinja_value v = {.type = JINJA_UNDEFINED, .u.s = kid->name};
        bool given = false;
        for (size_t k = 0; k < a->n && !given; k++)
            if (a->names[k].n ? a->names[k].n == kid->name.n &&
                                    memcmp(a->names[k].data, kid->name.data, kid->name.n) == 0
                              : k == i) {
                v = a->at[k];
                given = true;
                used++;
            }
        if (!given && kid->kind == NODE_KEYWORD)
            v = bnet_jinja_eval(m, kid->a);
        bnet_jinja_define(m, kid->name, v);
    }
    for (size_t k = 0; k < a->n; k++)
        if (bnet_jinja_named(a->names[k], "caller")) {
            bnet_jinja_define(m, a->names[k], a->at[k]);
            used++;
        }
    if (used != a->n)
        bnet_jinja_fail(m, "macro '%.*s' takes no such argument",
                        (int)BNET_MIN(macro->name.n, (size_t)40), macro->name.data);
}

/* Runs a body and returns what it wrote. */
jinja_value bnet_jinja_captured(jinja *m, const jinja_node *body)
{
    bnet_str written = {0}, *before = m->out;
    m->out = &written;
    bnet_jinja_exec(m, body);
    m->out = before;
    return bnet_jinja_take(m, &written);
}

static jinja_value call_macro(jinja *m, const jinja_macro *macro, const jinja_args *a)
{
    jinja_scope *before = m->scope;
    if (++m->calls > JINJA_CALLS)
        return bnet_jinja_fail(m, "macros call each other more than %d deep", JINJA_CALLS);
    bnet_jinja_push(m, macro->home);
    bind(m, macro->node, a);
    jinja_value v = bnet_jinja_captured(m, macro->node->d);
    m->scope = before;
    m->calls--;
    return v;
}

jinja_value bnet_jinja_call(jinja *m, jinja_value f, jinja_args *a)
{
    if (m->failed)
        return f;
    if (f.type == JINJA_MACRO)
        return call_macro(m, f.u.macro, a);
    if (f.type == JINJA_FUNCTION)
        return f.u.method->fn(m, f.u.method->self, a);
    if (f.type == JINJA_UNDEFINED)
        return bnet_jinja_fail(m, "'%.*s' is undefined", (int)BNET_MIN(f.u.s.n, (size_t)80),
                               f.u.s.data);
    return bnet_jinja_fail(m, "%s cannot be called", bnet_jinja_type_name(f));
}

static jinja_value call(jinja *m, const jinja_node *n)
{
    jinja_args a;
    jinja_value f = bnet_jinja_eval(m, n->a);
    bnet_jinja_arguments_of(m, n, &a);
    return bnet_jinja_call(m, f, &a);
}

static jinja_value filtered(jinja *m, const jinja_node *n)
{
    jinja_args a;
    jinja_value v = bnet_jinja_eval(m, n->a);
    bnet_jinja_arguments_of(m, n, &a);
    return m->failed ? v : bnet_jinja_filter(m, n->name, v, &a);
}

static jinja_value tested(jinja *m, const jinja_node *n)
{
    jinja_args a;
    jinja_value v = bnet_jinja_eval(m, n->a);
    bnet_jinja_arguments_of(m, n, &a);
    return bnet_jinja_bool(!m->failed && bnet_jinja_test(m, n->name, v, &a) != n->negated);
}

/* ---- operators ---- */

static bool compared(jinja *m, jinja_op op, jinja_value a, jinja_value b)
{
    switch (op) {
    case OP_EQ:
        return bnet_jinja_equal(m, a, b);
    case OP_NE:
        return !bnet_jinja_equal(m, a, b);
    case OP_IN:
        return bnet_jinja_in(m, a, b);
    case OP_NOT_IN:
        return !bnet_jinja_in(m, a, b);
    default:
        break;
    }
    if ((a.type == JINJA_FLOAT && isnan(a.u.f)) || (b.type == JINJA_FLOAT && isnan(b.u.f)))
        return false;
    int order = bnet_jinja_order(m, a, b);
    return op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
}

static jinja_value comparison(jinja *m, const jinja_node *n)
{
    jinja_value left = bnet_jinja_eval(m, n->kids[0]);
    for (size_t i = 1; i < n->n_kids && !m->failed; i++) {
        jinja_value right = bnet_jinja_eval(m, n->kids[i]->a);
        if (m->failed || !compared(m, n->kids[i]->op, left, right))
            return bnet_jinja_bool(false);
        left = right;
    }
    return bnet_jinja_bool(true);
}

static jinja_value row_of_operators(jinja *m, const jinja_node *n)
{
    jinja_value left = bnet_jinja_eval(m, n->kids[0]);
    for (size_t i = 1; i < n->n_kids && !m->failed; i++)
        left = bnet_jinja_operate(m, n->kids[i]->op, left, bnet_jinja_eval(m, n->kids[i]->a));
    return left;
}

/* and, or: the operand that decides. */
static jinja_value junction(jinja *m, const jinja_node *n)
{
    jinja_value v = {.type = JINJA_NONE};
    for (size_t i = 0; i < n->n_kids && !m->failed; i++) {
        v = bnet_jinja_eval(m, n->kids[i]);
        if (bnet_jinja_true(m, v) == (n->kind == NODE_OR))
            break;
    }
    return v;
}

static jinja_value unary(jinja *m, const jinja_node *n)
{
    jinja_value v = bnet_jinja_eval(m, n->a);
    int64_t i;
    if (m->failed)
        return v;
    if (n->op == OP_NOT)
        return bnet_jinja_bool(!bnet_jinja_true(m, v));
    if (v.type == JINJA_FLOAT)
        return bnet_jinja_float(n->op == OP_NEG ? -v.u.f : v.u.f);
    if (bnet_jinja_whole(v, &i) && i != INT64_MIN)
        return bnet_jinja_int(n->op == OP_NEG ? -i : i);
    return bnet_jinja_fail(m, "%s has no sign", bnet_jinja_type_name(v));
}

/* ---- expressions ---- */

static jinja_value built(jinja *m, const jinja_node *n)
{
    jinja_value v = n->kind == NODE_DICT
                        ? bnet_jinja_dict_of(m)
                        : bnet_jinja_list_of(m, n->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE);
    for (size_t i = 0; i < n->n_kids && !m->failed; i++) {
        jinja_value item = bnet_jinja_eval(m, n->kids[i]);
        if (n->kind != NODE_DICT)
            bnet_jinja_append(m, v, item);
        else if (item.type == JINJA_LIST || item.type == JINJA_DICT)
            bnet_jinja_fail(m, "%s cannot be a key", bnet_jinja_type_name(item));
        else
            bnet_jinja_put(m, v.u.dict, item, bnet_jinja_eval(m, n->kids[++i]));
    }
    return v;
}

jinja_value bnet_jinja_eval(jinja *m, const jinja_node *n)
{
    if (!n || !bnet_jinja_step(m, 0) || !bnet_jinja_fits_stack(m))
        return (jinja_value){.type = JINJA_UNDEFINED};
    m->line = n->line;
    switch (n->kind) {
    case NODE_CONST:
        return n->value;
    case NODE_NAME:
        return look_up(m, n->name);
    case NODE_LIST:
    case NODE_TUPLE:
    case NODE_DICT:
        return built(m, n);
    case NODE_ATTRIBUTE:
        return bnet_jinja_attribute(m, bnet_jinja_eval(m, n->a), bnet_jinja_span(n->name), false);
    case NODE_ITEM: {
        jinja_value v = bnet_jinja_eval(m, n->a);
        return bnet_jinja_attribute(m, v, bnet_jinja_eval(m, n->b), true);
    }
    case NODE_SLICE:
        return slice(m, n);
    case NODE_CALL:
        return call(m, n);
    case NODE_FILTER:
        return filtered(m, n);
    case NODE_TEST:
        return tested(m, n);
    case NODE_UNARY:
        return unary(m, n);
    case NODE_CHAIN:
        return row_of_operators(m, n);
    case NODE_COMPARE:
        return comparison(m, n);
    case NODE_AND:
    case NODE_OR:
        return junction(m, n);
    case NODE_IF_ELSE:
        return bnet_jinja_eval(m, bnet_jinja_true(m, bnet_jinja_eval(m, n->b)) ? n->a : n->c);
    default:
        return bnet_jinja_fail(m, "a statement stands where a value is wanted");
    }
}
