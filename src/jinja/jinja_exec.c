/* jinja_exec.c - the statements of a template at work. */
#include "jinja/jinja_impl.h"

static void write_value(jinja *m, jinja_value v)
{
    size_t before = m->out->n;
    if (m->failed)
        return;
    bnet_jinja_str(m, v, m->out);
    m->written += m->out->n - before;
    if (m->written > 4 * m->limits.output)
        bnet_jinja_fail(m, "it writes more than %zu bytes", m->limits.output);
}

static void if_statement(jinja *m, const jinja_node *n)
{
    size_t i = 0;
    for (; i + 1 < n->n_kids && !m->failed; i += 2)
        if (bnet_jinja_true(m, bnet_jinja_eval(m, n->kids[i]))) {
            bnet_jinja_exec(m, n->kids[i + 1]);
            return;
        }
    if (i < n->n_kids)
        bnet_jinja_exec(m, n->kids[i]);
}

/* One item that the condition is asked for; of several names the values become a tuple. */
static void ask(jinja *m, jinja_loop *loop)
{
    jinja_value all = {.type = JINJA_LIST, .u.list = loop->items};
    bnet_jinja_push(m, loop->home);
    bnet_jinja_assign(m, loop->node->a, loop->all->items[loop->asked++]);
    if (bnet_jinja_true(m, bnet_jinja_eval(m, loop->node->c)))
        bnet_jinja_append(m, all, bnet_jinja_eval(m, loop->node->a));
}

/* The condition runs as late as jinja2 lets it run: it may see what the body did before. */
void bnet_jinja_choose(jinja *m, jinja_loop *loop, size_t wanted)
{
    jinja_scope *before = m->scope;
    uint32_t line = m->line;
    if (!loop->node->c || loop->items->n >= wanted)
        return;
    if (loop->asking)
        bnet_jinja_fail(m, "a loop's condition asks what the loop does not know yet");
    loop->asking = true;
    while (!m->failed && loop->items->n < wanted && loop->asked < loop->all->n)
        ask(m, loop);
    loop->asking = false;
    m->scope = before;
    m->line = line;
}

static jinja_loop *loop_of(jinja *m, const jinja_node *n)
{
    jinja_value all = bnet_jinja_elements(m, bnet_jinja_eval(m, n->b));
    jinja_value some = n->c ? bnet_jinja_list_of(m, JINJA_LIST) : all;
    jinja_loop *loop = bnet_jinja_alloc(m, sizeof *loop);
    if (loop && !m->failed)
        *loop = (jinja_loop){.node = n, .home = m->scope, .all = all.u.list, .items = some.u.list};
    return m->failed ? NULL : loop;
}

/* True: there is a further round, and it ran. */
static bool run_round(jinja *m, jinja_loop *loop)
{
    bnet_jinja_choose(m, loop, loop->round + 1);
    if (m->failed || loop->round >= loop->items->n)
        return false;
    loop->round++;
    bnet_jinja_push(m, loop->home);
    bnet_jinja_define(m, (bnet_span){"loop", 4}, (jinja_value){.type = JINJA_LOOP, .u.loop = loop});
    bnet_jinja_assign(m, loop->node->a, loop->items->items[loop->round - 1]);
    bnet_jinja_exec(m, loop->node->d);
    m->scope = loop->home;
    return true;
}

static void for_statement(jinja *m, const jinja_node *n)
{
    jinja_loop *loop = loop_of(m, n);
    if (!loop)
        return;
    bool ended = false; /* a round, without break or continue */
    while (m->flow != FLOW_BREAK && run_round(m, loop)) {
        ended = ended || m->flow == FLOW_ON;
        if (m->flow == FLOW_CONTINUE)
            m->flow = FLOW_ON;
    }
    m->flow = FLOW_ON;
    if (!n->e || ended)
        return;
    bnet_jinja_push(m, loop->home);
    bnet_jinja_exec(m, n->e);
    m->scope = loop->home;
}

/* The text of a block, through the filters around it. */
static jinja_value block_text(jinja *m, const jinja_node *n)
{
    jinja_scope *before = m->scope;
    bnet_jinja_push(m, before);
    jinja_value v = bnet_jinja_captured(m, n->d);
    if (n->b) {
        bnet_jinja_define(m, (bnet_span){"", 0}, v); /* the NAME at the end of the filters */
        v = bnet_jinja_eval(m, n->b);
    }
    m->scope = before;
    return v;
}

static jinja_value macro_value(jinja *m, const jinja_node *n)
{
    jinja_value v = {.type = JINJA_MACRO, .u.macro = bnet_jinja_alloc(m, sizeof(jinja_macro))};
    if (v.u.macro)
        *v.u.macro = (jinja_macro){n, m->scope};
    return v;
}

/* {% call f(1) %}text{% endcall %}: f gets `caller`, a macro of the text. */
static void call_statement(jinja *m, const jinja_node *n)
{
    jinja_args a;
    jinja_value f = bnet_jinja_eval(m, n->b->a);
    bnet_jinja_arguments_of(m, n->b, &a);
    if (!m->failed && a.n == JINJA_ARGS)
        bnet_jinja_fail(m, "a call has more than %d arguments", JINJA_ARGS - 1);
    if (m->failed)
        return;
    a.names[a.n] = (bnet_span){"caller", 6};
    a.at[a.n++] = macro_value(m, n);
    write_value(m, bnet_jinja_call(m, f, &a));
}

static void with_statement(jinja *m, const jinja_node *n)
{
    jinja_scope *before = m->scope;
    jinja_value values = bnet_jinja_list_of(m, JINJA_LIST);
    for (size_t i = 1; i < n->n_kids && !m->failed; i += 2)
        bnet_jinja_append(m, values, bnet_jinja_eval(m, n->kids[i]));
    bnet_jinja_push(m, before);
    for (size_t i = 0; i < n->n_kids && !m->failed; i += 2)
        bnet_jinja_assign(m, n->kids[i], values.u.list->items[i / 2]);
    bnet_jinja_exec(m, n->d);
    m->scope = before;
}

static void body(jinja *m, const jinja_node *n)
{
    for (size_t i = 0; i < n->n_kids && !m->failed && m->flow == FLOW_ON; i++)
        bnet_jinja_exec(m, n->kids[i]);
}

void bnet_jinja_exec(jinja *m, const jinja_node *n)
{
    if (!n || !bnet_jinja_step(m, 0) || !bnet_jinja_fits_stack(m))
        return;
    m->line = n->line;
    switch (n->kind) {
    case NODE_TEXT:
        write_value(m, bnet_jinja_span(n->name));
        return;
    case NODE_PRINT:
        write_value(m, bnet_jinja_eval(m, n->a));
        return;
    case NODE_BODY:
        body(m, n);
        return;
    case NODE_IF:
        if_statement(m, n);
        return;
    case NODE_FOR:
        for_statement(m, n);
        return;
    case NODE_SET:
        bnet_jinja_assign(m, n->a, bnet_jinja_eval(m, n->b));
        return;
    case NODE_SET_BLOCK:
        bnet_jinja_assign(m, n->a, block_text(m, n));
        return;
    case NODE_FILTER_BLOCK:
        write_value(m, block_text(m, n));
        return;
    case NODE_MACRO:
        bnet_jinja_define(m, n->name, macro_value(m, n));
        return;
    case NODE_CALL_BLOCK:
        call_statement(m, n);
        return;
    case NODE_WITH:
        with_statement(m, n);
        return;
    case NODE_BREAK:
    case NODE_CONTINUE:
        m->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return;
    default:
        bnet_jinja_fail(m, "a value stands where a statement is wanted");
    }
}
