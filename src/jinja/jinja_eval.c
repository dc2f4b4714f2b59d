/* jinja_eval.c - expressions of a template at work: names, members, operators. */
#include <math.h>

#include "jinja/jinja_impl.h"

/* ---- names ---- */

static JINJA_APART jinja_value look_up(jinja *m, bnet_span name)
{
    for (const jinja_scope *s = m->scope; s && !m->failed; s = s->parent) {
        const jinja_value *v = bnet_jinja_get(m, &s->names, bnet_jinja_span(name));
        if (v)
            return *v;
    }
    return bnet_jinja_global(m, name);
}

jinja_scope *bnet_jinja_push(jinja *m, jinja_scope *parent)
{
    jinja_scope *s = m->failed ? NULL : m->spare;
    if (s)
        m->spare = s->parent;
    else if (!(s = bnet_jinja_alloc(m, sizeof *s)))
        return NULL;
    *s = (jinja_scope){.parent = parent, .names = {.pairs = s->names.pairs, .cap = s->names.cap}};
    m->scope = s;
    return s;
}

void bnet_jinja_leave(jinja *m, jinja_scope *scope, jinja_scope *before)
{
    m->scope = before;
    if (m->failed || scope->kept)
        return;
    scope->parent = m->spare;
    m->spare = scope;
}

void bnet_jinja_keep(jinja_scope *scope)
{
    for (; scope && !scope->kept; scope = scope->parent)
        scope->kept = true;
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

/* ---- members, items ---- */

/* The condition of the loop is asked as far as the member needs it. */
static void look_ahead(jinja *m, jinja_loop *l, bnet_span name)
{
    if (bnet_jinja_named(name, "last") || bnet_jinja_named(name, "nextitem"))
        bnet_jinja_choose(m, l, l->round + 1);
    if (bnet_jinja_named(name, "length") || bnet_jinja_named(name, "revindex") ||
        bnet_jinja_named(name, "revindex0"))
        bnet_jinja_choose(m, l, SIZE_MAX);
}

static JINJA_APART jinja_value loop_member(jinja *m, jinja_loop *l, bnet_span name)
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

static JINJA_APART jinja_value comparison(jinja *m, const jinja_node *n)
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

static JINJA_APART jinja_value row_of_operators(jinja *m, const jinja_node *n)
{
    jinja_value left = bnet_jinja_eval(m, n->kids[0]);
    for (size_t i = 1; i < n->n_kids && !m->failed; i++)
        left = bnet_jinja_operate(m, n->kids[i]->op, left, bnet_jinja_eval(m, n->kids[i]->a));
    return left;
}

/* and, or: the operand that decides. */
static JINJA_APART jinja_value junction(jinja *m, const jinja_node *n)
{
    jinja_value v = {.type = JINJA_NONE};
    for (size_t i = 0; i < n->n_kids && !m->failed; i++) {
        v = bnet_jinja_eval(m, n->kids[i]);
        if (bnet_jinja_true(m, v) == (n->kind == NODE_OR))
            break;
    }
    return v;
}

static JINJA_APART jinja_value unary(jinja *m, const jinja_node *n)
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

static JINJA_APART jinja_value built(jinja *m, const jinja_node *n)
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

static JINJA_APART jinja_value member(jinja *m, const jinja_node *n)
{
    jinja_value v = bnet_jinja_eval(m, n->a);
    if (n->kind == NODE_ATTRIBUTE)
        return bnet_jinja_attribute(m, v, bnet_jinja_span(n->name), false);
    return bnet_jinja_attribute(m, v, bnet_jinja_eval(m, n->b), true);
}

static JINJA_APART jinja_value chosen(jinja *m, const jinja_node *n)
{
    return bnet_jinja_eval(m, bnet_jinja_true(m, bnet_jinja_eval(m, n->b)) ? n->a : n->c);
}

/* All that nests comes through here: what a kind of node needs on the stack is its own function's.
 */
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
    case NODE_ITEM:
        return member(m, n);
    case NODE_SLICE:
        return bnet_jinja_slice(m, n);
    case NODE_CALL:
        return bnet_jinja_called(m, n);
    case NODE_FILTER:
        return bnet_jinja_filtered(m, n);
    case NODE_TEST:
        return bnet_jinja_tested(m, n);
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
        return chosen(m, n);
    default:
        return bnet_jinja_fail(m, "a statement stands where a value is wanted");
    }
}
