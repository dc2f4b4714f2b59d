/* jinja_exec.c - the statements of a template at work.
 *
 * Statements stand within statements, and macros call macros that have many of them: what is open
 * is kept in frames of the machine's own, so that the stack of the caller holds expressions and
 * calls alone. A statement that has a body puts a frame on top; the loop of bnet_jinja_exec lets
 * the innermost frame go on until those are gone that were opened since. */
#include "jinja/jinja_impl.h"

typedef enum frame_kind {
    FRAME_BODY,  /* a BODY: its statements one after another */
    FRAME_LOOP,  /* a FOR: its rounds */
    FRAME_SCOPE, /* when what is above it ends, `inside` is left for `scope` */
} frame_kind;

struct jinja_frame {
    frame_kind kind;
    const jinja_node *node;
    size_t next; /* BODY: the statement that comes next */
    jinja_loop *loop;
    bool ended; /* LOOP: a round came to its end, without break or continue */
    jinja_scope *inside, *scope;
};

static void open_frame(jinja *m, jinja_frame frame)
{
    void *frames = m->frames;
    if (m->failed || !bnet_jinja_room(m, &frames, m->n_frames, &m->cap_frames, sizeof *m->frames))
        return;
    m->frames = frames;
    m->frames[m->n_frames++] = frame;
}

/* A scope that is left when the frames above it are gone. */
static void open_scope(jinja *m, jinja_scope *before)
{
    jinja_scope *inside = bnet_jinja_push(m, before);
    open_frame(m, (jinja_frame){.kind = FRAME_SCOPE, .inside = inside, .scope = before});
}

static void open_body(jinja *m, const jinja_node *body)
{
    if (body)
        open_frame(m, (jinja_frame){.kind = FRAME_BODY, .node = body});
}

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

/* The body of the first condition that holds, or else's, is opened. */
static JINJA_APART void if_statement(jinja *m, const jinja_node *n)
{
    size_t i = 0;
    for (; i + 1 < n->n_kids && !m->failed; i += 2)
        if (bnet_jinja_true(m, bnet_jinja_eval(m, n->kids[i]))) {
            open_body(m, n->kids[i + 1]);
            return;
        }
    if (i < n->n_kids)
        open_body(m, n->kids[i]);
}

/* ---- loops ---- */

/* One item that the condition is asked for; of several names the values become a tuple. */
static void ask(jinja *m, jinja_loop *loop)
{
    jinja_value all = {.type = JINJA_LIST, .u.list = loop->items};
    jinja_scope *own = bnet_jinja_push(m, loop->home);
    bnet_jinja_assign(m, loop->node->a, loop->all->items[loop->asked++]);
    if (bnet_jinja_true(m, bnet_jinja_eval(m, loop->node->c)))
        bnet_jinja_append(m, all, bnet_jinja_eval(m, loop->node->a));
    bnet_jinja_leave(m, own, loop->home);
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
    if (n->c) /* who has the loop may ask it for what the condition says of later items */
        bnet_jinja_keep(m->scope);
    if (loop && !m->failed)
        *loop = (jinja_loop){.node = n, .home = m->scope, .all = all.u.list, .items = some.u.list};
    return m->failed ? NULL : loop;
}

static JINJA_APART void for_statement(jinja *m, const jinja_node *n)
{
    jinja_loop *loop = loop_of(m, n);
    if (loop)
        open_frame(m, (jinja_frame){.kind = FRAME_LOOP, .node = n, .loop = loop});
}

/* The body of the next round is opened. False: there is no further round. */
static bool open_round(jinja *m, jinja_loop *loop)
{
    bnet_jinja_choose(m, loop, loop->round + 1);
    if (m->failed || loop->round >= loop->items->n)
        return false;
    loop->round++;
    loop->inside = bnet_jinja_push(m, loop->home);
    bnet_jinja_define(m, (bnet_span){"loop", 4}, (jinja_value){.type = JINJA_LOOP, .u.loop = loop});
    bnet_jinja_assign(m, loop->node->a, loop->items->items[loop->round - 1]);
    open_body(m, loop->node->d);
    return true;
}

/* A loop goes on before its first round and behind each; else's body follows where none ended. */
static JINJA_APART void go_on_with_loop(jinja *m, jinja_frame *f)
{
    jinja_loop *loop = f->loop;
    size_t here = m->n_frames;
    f->ended = f->ended || (loop->round && m->flow == FLOW_ON);
    bool ended = f->ended, broken = m->flow == FLOW_BREAK;
    if (loop->round)
        bnet_jinja_leave(m, loop->inside, loop->home);
    m->flow = FLOW_ON;
    if (!broken && open_round(m, loop))
        return;
    m->n_frames = here - 1;
    if (!loop->node->e || ended || m->failed)
        return;
    open_scope(m, loop->home);
    open_body(m, loop->node->e);
}

/* ---- blocks, macros ---- */

/* The text of a block, through the filters around it. */
static JINJA_APART jinja_value block_text(jinja *m, const jinja_node *n)
{
    jinja_scope *before = m->scope, *own = bnet_jinja_push(m, before);
    jinja_value v = bnet_jinja_captured(m, n->d);
    if (n->b && m->flow == FLOW_ON) {
        bnet_jinja_define(m, (bnet_span){"", 0}, v); /* the NAME at the end of the filters */
        v = bnet_jinja_eval(m, n->b);
    }
    bnet_jinja_leave(m, own, before);
    return v;
}

static jinja_value macro_value(jinja *m, const jinja_node *n)
{
    jinja_value v = {.type = JINJA_MACRO, .u.macro = bnet_jinja_alloc(m, sizeof(jinja_macro))};
    if (v.u.macro)
        *v.u.macro = (jinja_macro){n, m->scope};
    bnet_jinja_keep(m->scope);
    return v;
}

/* {% call f(1) %}text{% endcall %}: f gets `caller`, a macro of the text. */
static JINJA_APART void call_statement(jinja *m, const jinja_node *n)
{
    size_t from = m->n_args;
    jinja_value f = bnet_jinja_eval(m, n->b->a);
    bnet_jinja_push_arguments(m, n->b);
    bnet_jinja_push_argument(m, from, (bnet_span){"caller", 6}, macro_value(m, n));
    jinja_args a = bnet_jinja_args_from(m, from);
    write_value(m, bnet_jinja_call(m, f, &a));
    m->n_args = from;
}

static JINJA_APART void with_statement(jinja *m, const jinja_node *n)
{
    jinja_scope *before = m->scope;
    jinja_value values = bnet_jinja_list_of(m, JINJA_LIST);
    for (size_t i = 1; i < n->n_kids && !m->failed; i += 2)
        bnet_jinja_append(m, values, bnet_jinja_eval(m, n->kids[i]));
    open_scope(m, before);
    for (size_t i = 0; i < n->n_kids && !m->failed; i += 2)
        bnet_jinja_assign(m, n->kids[i], values.u.list->items[i / 2]);
    open_body(m, n->d);
}

/* The text of a block that break or continue left is nobody's. */
static JINJA_APART void set_statement(jinja *m, const jinja_node *n)
{
    jinja_value v = n->kind == NODE_SET ? bnet_jinja_eval(m, n->b) : block_text(m, n);
    if (m->flow == FLOW_ON)
        bnet_jinja_assign(m, n->a, v);
}

static JINJA_APART void print_statement(jinja *m, const jinja_node *n)
{
    jinja_value v = n->kind == NODE_PRINT ? bnet_jinja_eval(m, n->a) : block_text(m, n);
    if (m->flow == FLOW_ON)
        write_value(m, v);
}

/* ---- all of them ---- */

static void start(jinja *m, const jinja_node *n)
{
    if (!n || !bnet_jinja_step(m, 0))
        return;
    m->line = n->line;
    switch (n->kind) {
    case NODE_TEXT:
        write_value(m, bnet_jinja_span(n->name));
        return;
    case NODE_PRINT:
    case NODE_FILTER_BLOCK:
        print_statement(m, n);
        return;
    case NODE_BODY:
        open_body(m, n);
        return;
    case NODE_IF:
        if_statement(m, n);
        return;
    case NODE_FOR:
        for_statement(m, n);
        return;
    case NODE_SET:
    case NODE_SET_BLOCK:
        set_statement(m, n);
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

/* The innermost frame goes on, and goes where it has ended. */
static void go_on(jinja *m)
{
    jinja_frame *f = &m->frames[m->n_frames - 1];
    if (f->kind == FRAME_LOOP) {
        go_on_with_loop(m, f);
    } else if (f->kind == FRAME_SCOPE) {
        bnet_jinja_leave(m, f->inside, f->scope);
        m->n_frames--;
    } else if (f->next < f->node->n_kids && m->flow == FLOW_ON) {
        start(m, f->node->kids[f->next++]);
    } else {
        m->n_frames--;
    }
}

void bnet_jinja_exec(jinja *m, const jinja_node *n)
{
    size_t before = m->n_frames;
    if (!bnet_jinja_fits_stack(m))
        return;
    start(m, n);
    while (!m->failed && m->n_frames > before)
        go_on(m);
}
