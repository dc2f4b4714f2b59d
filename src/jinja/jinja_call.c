/* jinja_call.c - calls of a template: arguments, macros, methods, filters, tests.
 *
 * The arguments of all calls that run now lie behind each other in one array of the machine's.
 * Where it has to grow, the old one stays as it is in the arena, and who has it may go on reading.
 */
#include "jinja/jinja_impl.h"

/* ---- arguments ---- */

void bnet_jinja_push_argument(jinja *m, size_t from, bnet_span name, jinja_value v)
{
    void *args = m->args;
    if (m->failed)
        return;
    if (m->n_args - from >= JINJA_ARGS)
        bnet_jinja_fail(m, "a call has more than %d arguments", JINJA_ARGS);
    if (m->failed || !bnet_jinja_room(m, &args, m->n_args, &m->cap_args, sizeof *m->args))
        return;
    m->args = args;
    m->args[m->n_args++] = (jinja_arg){name, v};
}

/* An argument by position, or all that a SPREAD has. */
static void push_by_position(jinja *m, size_t from, const jinja_node *kid)
{
    const bnet_span unnamed = {NULL, 0};
    if (kid->kind != NODE_SPREAD) {
        bnet_jinja_push_argument(m, from, unnamed, bnet_jinja_eval(m, kid));
        return;
    }
    jinja_value list = bnet_jinja_elements(m, bnet_jinja_eval(m, kid->a));
    for (size_t k = 0; !m->failed && k < list.u.list->n; k++)
        bnet_jinja_push_argument(m, from, unnamed, list.u.list->items[k]);
}

/* Those by name come last, wherever they were written. */
void bnet_jinja_push_arguments(jinja *m, const jinja_node *call)
{
    size_t from = m->n_args;
    for (size_t i = 0; i < call->n_kids && !m->failed; i++)
        if (call->kids[i]->kind != NODE_KEYWORD)
            push_by_position(m, from, call->kids[i]);
    for (size_t i = 0; i < call->n_kids && !m->failed; i++)
        if (call->kids[i]->kind == NODE_KEYWORD)
            bnet_jinja_push_argument(m, from, call->kids[i]->name,
                                     bnet_jinja_eval(m, call->kids[i]->a));
}

jinja_args bnet_jinja_args_from(const jinja *m, size_t from)
{
    return (jinja_args){.at = m->args ? m->args + from : NULL, .n = m->n_args - from};
}

/* ---- macros ---- */

/* The argument for the i-th parameter of a macro; NULL: it was not given. */
static const jinja_arg *given(jinja *m, const jinja_args *a, size_t i, bnet_span name)
{
    for (size_t k = 0; k < a->n; k++)
        if (a->at[k].name.n ? bnet_jinja_same(m, a->at[k].name, name) : k == i)
            return &a->at[k];
    return NULL;
}

/* The parameters of a macro get their values in the scope that was made for the call. */
static JINJA_APART void bind(jinja *m, const jinja_node *macro, const jinja_args *a)
{
    size_t used = 0;
    for (size_t i = 0; i < macro->n_kids && !m->failed; i++) {
        const jinja_node *kid = macro->kids[i];
        const jinja_arg *arg = given(m, a, i, kid->name);
        jinja_value v = {.type = JINJA_UNDEFINED, .u.s = kid->name};
        if (arg)
            v = arg->value;
        else if (kid->kind == NODE_KEYWORD)
            v = bnet_jinja_eval(m, kid->a);
        used += arg != NULL;
        bnet_jinja_define(m, kid->name, v);
    }
    for (size_t k = 0; k < a->n; k++)
        if (bnet_jinja_named(a->at[k].name, "caller")) {
            bnet_jinja_define(m, a->at[k].name, a->at[k].value);
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
    jinja_scope *own = bnet_jinja_push(m, macro->home);
    bind(m, macro->node, a);
    jinja_value v = bnet_jinja_captured(m, macro->node->d);
    bnet_jinja_leave(m, own, before);
    m->calls--;
    return v;
}

/* ---- calls ---- */

static JINJA_APART jinja_value cannot_call(jinja *m, jinja_value f)
{
    if (f.type != JINJA_UNDEFINED)
        return bnet_jinja_fail(m, "%s cannot be called", bnet_jinja_type_name(f));
    return bnet_jinja_fail(m, "'%.*s' is undefined", (int)BNET_MIN(f.u.s.n, (size_t)80),
                           f.u.s.data);
}

jinja_value bnet_jinja_call(jinja *m, jinja_value f, jinja_args *a)
{
    if (m->failed)
        return f;
    if (f.type == JINJA_MACRO)
        return call_macro(m, f.u.macro, a);
    if (f.type == JINJA_FUNCTION)
        return f.u.method->fn(m, f.u.method->self, a);
    return cannot_call(m, f);
}

jinja_value bnet_jinja_called(jinja *m, const jinja_node *n)
{
    size_t from = m->n_args;
    jinja_value v = bnet_jinja_eval(m, n->a);
    bnet_jinja_push_arguments(m, n);
    jinja_args a = bnet_jinja_args_from(m, from);
    v = bnet_jinja_call(m, v, &a);
    m->n_args = from;
    return v;
}

jinja_value bnet_jinja_filtered(jinja *m, const jinja_node *n)
{
    size_t from = m->n_args;
    jinja_value v = bnet_jinja_eval(m, n->a);
    bnet_jinja_push_arguments(m, n);
    jinja_args a = bnet_jinja_args_from(m, from);
    if (!m->failed)
        v = bnet_jinja_filter(m, n->name, v, &a);
    m->n_args = from;
    return v;
}

jinja_value bnet_jinja_tested(jinja *m, const jinja_node *n)
{
    size_t from = m->n_args;
    jinja_value v = bnet_jinja_eval(m, n->a);
    bnet_jinja_push_arguments(m, n);
    jinja_args a = bnet_jinja_args_from(m, from);
    bool yes = !m->failed && bnet_jinja_test(m, n->name, v, &a);
    m->n_args = from;
    return bnet_jinja_bool(yes != n->negated);
}
