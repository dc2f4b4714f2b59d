/* jinja_parse.c - statements of a template become nodes. */
#include "jinja/jinja_parse.h"

static jinja_node *body(jinja_parser *p, const char *ends);

static void need_end(jinja_parser *p)
{
    if (p->token.kind != TOKEN_BLOCK_END)
        bnet_jinja_wrong(p, "'%}'");
    else
        bnet_jinja_go_on(p);
}

/* The statements up to one of `ends`, whose word is taken; the rest of its tag is not. */
static jinja_node *inner(jinja_parser *p, const char *ends)
{
    need_end(p);
    return body(p, ends);
}

/* One of the words in `list`, which are separated by blanks. */
static bool listed(bnet_span word, const char *list)
{
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, " ");
        if (word.n == n && memcmp(word.data, at, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

/* ---- what is assigned to ---- */

static jinja_node *member_target(jinja_parser *p, jinja_node *a)
{
    jinja_node *n = bnet_jinja_node(p, NODE_ATTRIBUTE);
    bnet_span s = bnet_jinja_need_name(p);
    if (n) {
        n->a = a;
        n->name = s;
    }
    return n;
}

static jinja_node *one_target(jinja_parser *p, bool attributes)
{
    jinja_node *n = bnet_jinja_node(p, NODE_NAME);
    bnet_span s = bnet_jinja_need_name(p);
    if (n)
        n->name = s;
    return attributes && bnet_jinja_take_sign(p, ".") ? member_target(p, n) : n;
}

static jinja_node *target_of(jinja_parser *p, bool attributes)
{
    bool open = bnet_jinja_take_sign(p, "(");
    jinja_node *first = one_target(p, attributes), *all = NULL;
    while (!p->m->failed && bnet_jinja_take_sign(p, ",")) {
        if (!all) {
            all = bnet_jinja_node(p, NODE_TUPLE);
            bnet_jinja_add_kid(p, all, first);
        }
        if (p->token.kind != TOKEN_NAME)
            break;
        bnet_jinja_add_kid(p, all, one_target(p, false));
    }
    if (open)
        bnet_jinja_need_sign(p, ")");
    return all ? all : first;
}

/* ---- if, for ---- */

static jinja_node *if_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_IF);
    bnet_span end;
    do {
        bnet_jinja_add_kid(p, n, bnet_jinja_tuple(p, false));
        bnet_jinja_add_kid(p, n, inner(p, "elif else endif"));
        end = bnet_jinja_need_name(p);
    } while (!p->m->failed && bnet_jinja_named(end, "elif"));
    if (!p->m->failed && bnet_jinja_named(end, "else")) {
        bnet_jinja_add_kid(p, n, inner(p, "endif"));
        bnet_jinja_go_on(p);
    }
    return n;
}

static jinja_node *for_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_FOR);
    jinja_node *target = target_of(p, false);
    if (!bnet_jinja_take_word(p, "in"))
        return bnet_jinja_wrong(p, "'in'");
    jinja_node *items = bnet_jinja_tuple(p, false), *condition = NULL, *other = NULL;
    if (bnet_jinja_take_word(p, "if"))
        condition = bnet_jinja_expression(p);
    if (bnet_jinja_is_word(p, "recursive"))
        bnet_jinja_fail(p->m, "recursive loops are not supported");
    p->loops++;
    jinja_node *inside = inner(p, "else endfor");
    p->loops--;
    if (bnet_jinja_take_word(p, "else"))
        other = inner(p, "endfor");
    bnet_jinja_go_on(p);
    if (n) {
        n->a = target;
        n->b = items;
        n->c = condition;
        n->d = inside;
        n->e = other;
    }
    return n;
}

/* ---- set, with ---- */

static jinja_node *set_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_SET), *target = target_of(p, true);
    if (!n)
        return NULL;
    n->a = target;
    if (bnet_jinja_take_sign(p, "=")) {
        n->b = bnet_jinja_tuple(p, true);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    if (bnet_jinja_is_sign(p, "|"))
        n->b = bnet_jinja_filters(p, bnet_jinja_node(p, NODE_NAME));
    n->d = inner(p, "endset");
    bnet_jinja_go_on(p);
    return n;
}

static jinja_node *with_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_WITH);
    while (!p->m->failed && p->token.kind == TOKEN_NAME) {
        bnet_jinja_add_kid(p, n, target_of(p, false));
        bnet_jinja_need_sign(p, "=");
        bnet_jinja_add_kid(p, n, bnet_jinja_expression(p));
        if (!bnet_jinja_take_sign(p, ","))
            break;
    }
    jinja_node *inside = inner(p, "endwith");
    bnet_jinja_go_on(p);
    if (n)
        n->d = inside;
    return n;
}

/* ---- macro, call, filter ---- */

static void parameters(jinja_parser *p, jinja_node *n)
{
    while (!p->m->failed && !bnet_jinja_is_sign(p, ")")) {
        jinja_node *kid = bnet_jinja_node(p, NODE_NAME);
        bnet_span s = bnet_jinja_need_name(p);
        if (kid) {
            kid->name = s;
            if (bnet_jinja_take_sign(p, "=")) {
                kid->kind = NODE_KEYWORD;
                kid->a = bnet_jinja_expression(p);
            }
        }
        bnet_jinja_add_kid(p, n, kid);
        if (!bnet_jinja_take_sign(p, ","))
            break;
    }
    bnet_jinja_need_sign(p, ")");
    if (n && n->n_kids > JINJA_ARGS)
        bnet_jinja_fail(p->m, "a macro has more than %d parameters", JINJA_ARGS);
}

/* varargs and kwargs are what a macro was given beyond its parameters, unless one has the name. */
void bnet_jinja_check_name(jinja_parser *p, bnet_span name)
{
    if (!p->macro || !listed(name, "varargs kwargs"))
        return;
    for (size_t i = 0; i < p->macro->n_kids; i++)
        if (p->macro->kids[i] && p->macro->kids[i]->name.n == name.n &&
            memcmp(p->macro->kids[i]->name.data, name.data, name.n) == 0)
            return;
    bnet_jinja_fail(p->m, "'%.*s' of a macro is not supported", (int)name.n, name.data);
}

/* The statements of a macro, or of what a call hands over: no loop goes around them. */
static jinja_node *macro_body(jinja_parser *p, const jinja_node *n, const char *end)
{
    int loops = p->loops;
    const jinja_node *macro = p->macro;
    p->loops = 0;
    p->macro = n;
    jinja_node *inside = inner(p, end);
    p->loops = loops;
    p->macro = macro;
    bnet_jinja_go_on(p);
    return inside;
}

static jinja_node *macro_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_MACRO);
    bnet_span s = bnet_jinja_need_name(p);
    bnet_jinja_need_sign(p, "(");
    parameters(p, n);
    jinja_node *inside = macro_body(p, n, "endmacro");
    if (p->token.kind == TOKEN_NAME) /* {% endmacro name %} */
        bnet_jinja_go_on(p);
    if (n) {
        n->name = s;
        n->d = inside;
    }
    return n;
}

static jinja_node *call_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_CALL_BLOCK);
    if (bnet_jinja_take_sign(p, "("))
        parameters(p, n);
    jinja_node *call = bnet_jinja_expression(p);
    if (call && call->kind != NODE_CALL)
        bnet_jinja_fail(p->m, "{%% call %%} needs a call");
    jinja_node *inside = macro_body(p, n, "endcall");
    if (n) {
        n->b = call;
        n->d = inside;
    }
    return n;
}

static jinja_node *filter_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_FILTER_BLOCK), *text = bnet_jinja_node(p, NODE_NAME);
    jinja_token first = p->token;
    if (first.kind != TOKEN_NAME)
        return bnet_jinja_wrong(p, "a filter");
    jinja_node *filters = bnet_jinja_node(p, NODE_FILTER);
    bnet_jinja_go_on(p);
    if (!bnet_jinja_has_filter(first.s))
        bnet_jinja_fail(p->m, "there is no filter '%.*s'", (int)BNET_MIN(first.s.n, (size_t)40),
                        first.s.data);
    if (filters) {
        filters->name = first.s;
        filters->a = text;
    }
    if (bnet_jinja_take_sign(p, "("))
        bnet_jinja_arguments(p, filters);
    filters = bnet_jinja_filters(p, filters);
    jinja_node *inside = inner(p, "endfilter");
    bnet_jinja_go_on(p);
    if (n) {
        n->b = filters;
        n->d = inside;
    }
    return n;
}

/* ---- all of them ---- */

static jinja_node *loop_control(jinja_parser *p, jinja_kind kind)
{
    if (!p->loops)
        bnet_jinja_fail(p->m, "break and continue belong into a loop");
    return bnet_jinja_node(p, kind);
}

static jinja_node *break_statement(jinja_parser *p)
{
    return loop_control(p, NODE_BREAK);
}

static jinja_node *continue_statement(jinja_parser *p)
{
    return loop_control(p, NODE_CONTINUE);
}

/* What trainers mask by; rendering shows what is inside. */
static jinja_node *generation_statement(jinja_parser *p)
{
    jinja_node *n = inner(p, "endgeneration");
    bnet_jinja_go_on(p);
    return n;
}

static jinja_node *statement(jinja_parser *p)
{
    static const struct {
        const char *word;
        jinja_node *(*parse)(jinja_parser *p);
    } known[] = {
        {"if", if_statement},
        {"for", for_statement},
        {"set", set_statement},
        {"macro", macro_statement},
        {"call", call_statement},
        {"filter", filter_statement},
        {"with", with_statement},
        {"break", break_statement},
        {"continue", continue_statement},
        {"generation", generation_statement},
    };
    bnet_span word = bnet_jinja_need_name(p);
    jinja_node *n = NULL;
    for (size_t i = 0; i < BNET_COUNT(known) && !p->m->failed; i++)
        if (bnet_jinja_named(word, known[i].word)) {
            n = bnet_jinja_deeper(p) ? known[i].parse(p) : NULL;
            p->nesting--;
            need_end(p);
            return n;
        }
    bnet_jinja_fail(p->m, "{%% %.*s %%} is not supported, or not here",
                    (int)BNET_MIN(word.n, (size_t)40), word.data);
    return NULL;
}

static jinja_node *print_statement(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_PRINT);
    jinja_node *a = bnet_jinja_tuple(p, true);
    if (n)
        n->a = a;
    if (p->token.kind != TOKEN_PRINT_END)
        return bnet_jinja_wrong(p, "'}}'");
    bnet_jinja_go_on(p);
    return n;
}

static jinja_node *text_node(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_TEXT);
    if (n)
        n->name = p->token.s;
    bnet_jinja_go_on(p);
    return n;
}

static jinja_node *body(jinja_parser *p, const char *ends)
{
    jinja_node *all = bnet_jinja_node(p, NODE_BODY);
    while (!p->m->failed && p->token.kind != TOKEN_END) {
        jinja_token_kind kind = p->token.kind;
        if (kind == TOKEN_TEXT) {
            bnet_jinja_add_kid(p, all, text_node(p));
            continue;
        }
        bnet_jinja_go_on(p); /* {{ or {% */
        if (kind == TOKEN_BLOCK && p->token.kind == TOKEN_NAME && listed(p->token.s, ends))
            return all;
        bnet_jinja_add_kid(p, all, kind == TOKEN_PRINT ? print_statement(p) : statement(p));
    }
    if (*ends && !p->m->failed)
        bnet_jinja_fail(p->m, "the template ends where one of '%s' is missing", ends);
    return all;
}

jinja_node *bnet_jinja_parse(jinja *m, bnet_span source)
{
    jinja_parser p = {.m = m, .lexer = bnet_jinja_lexer(m, source)};
    m->line = 1;
    p.ahead = bnet_jinja_next(&p.lexer);
    bnet_jinja_go_on(&p);
    return body(&p, "");
}
