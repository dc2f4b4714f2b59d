/* jinja_expr.c - expressions of a template become nodes. */
#include <stdio.h>

#include "jinja/jinja_parse.h"

/* ---- tokens ---- */

void bnet_jinja_go_on(jinja_parser *p)
{
    p->token = p->ahead;
    if (p->m->failed)
        p->ahead = (jinja_token){.kind = TOKEN_END};
    else if (p->token.kind != TOKEN_END)
        p->ahead = bnet_jinja_next(&p->lexer);
    p->m->line = p->token.line;
}

bool bnet_jinja_is_sign(const jinja_parser *p, const char *sign)
{
    return p->token.kind == TOKEN_SIGN && bnet_jinja_named(p->token.s, sign);
}

bool bnet_jinja_is_word(const jinja_parser *p, const char *word)
{
    return p->token.kind == TOKEN_NAME && bnet_jinja_named(p->token.s, word);
}

bool bnet_jinja_take_sign(jinja_parser *p, const char *sign)
{
    if (!bnet_jinja_is_sign(p, sign))
        return false;
    bnet_jinja_go_on(p);
    return true;
}

bool bnet_jinja_take_word(jinja_parser *p, const char *word)
{
    if (!bnet_jinja_is_word(p, word))
        return false;
    bnet_jinja_go_on(p);
    return true;
}

jinja_node *bnet_jinja_wrong(jinja_parser *p, const char *wanted)
{
    bnet_span s = p->token.s;
    bool said = p->token.kind == TOKEN_NAME || p->token.kind == TOKEN_SIGN;
    bnet_jinja_fail(p->m, "%s is missing%s%.*s%s", wanted, said ? " before '" : "",
                    said ? (int)BNET_MIN(s.n, (size_t)40) : 0, said ? s.data : "", said ? "'" : "");
    return NULL;
}

void bnet_jinja_need_sign(jinja_parser *p, const char *sign)
{
    char wanted[16];
    snprintf(wanted, sizeof wanted, "'%s'", sign);
    if (!bnet_jinja_take_sign(p, sign))
        bnet_jinja_wrong(p, wanted);
}

bnet_span bnet_jinja_need_name(jinja_parser *p)
{
    bnet_span s = p->token.s;
    if (p->token.kind != TOKEN_NAME)
        bnet_jinja_wrong(p, "a name");
    else
        bnet_jinja_go_on(p);
    return s;
}

bool bnet_jinja_deeper(jinja_parser *p)
{
    if (++p->nesting > JINJA_NESTING)
        bnet_jinja_fail(p->m, "its parts nest deeper than %d", JINJA_NESTING);
    return bnet_jinja_fits_stack(p->m);
}

jinja_node *bnet_jinja_node(jinja_parser *p, jinja_kind kind)
{
    jinja_node *n = bnet_jinja_alloc(p->m, sizeof *n);
    if (n) {
        n->kind = kind;
        n->line = p->token.line;
    }
    return n;
}

void bnet_jinja_add_kid(jinja_parser *p, jinja_node *n, jinja_node *kid)
{
    if (!n || p->m->failed)
        return;
    if (n->n_kids == n->cap_kids) {
        size_t cap = n->cap_kids ? 2 * n->cap_kids : 4;
        jinja_node **kids = bnet_jinja_alloc(p->m, cap * sizeof *kids);
        if (!kids)
            return;
        if (n->n_kids)
            memcpy(kids, n->kids, n->n_kids * sizeof *kids);
        n->kids = kids;
        n->cap_kids = cap;
    }
    n->kids[n->n_kids++] = kid;
}

static jinja_node *operation(jinja_parser *p, jinja_kind kind, jinja_node *a)
{
    jinja_node *n = bnet_jinja_node(p, kind);
    if (n)
        n->a = a;
    return n;
}

/* ---- primaries ---- */

static jinja_node *constant(jinja_parser *p, jinja_value v)
{
    jinja_node *n = bnet_jinja_node(p, NODE_CONST);
    if (n)
        n->value = v;
    bnet_jinja_go_on(p);
    return n;
}

/* Strings that follow each other are one. */
static jinja_node *string(jinja_parser *p)
{
    bnet_str all = {0};
    if (p->ahead.kind != TOKEN_STRING)
        return constant(p, p->token.value);
    for (; p->ahead.kind == TOKEN_STRING; bnet_jinja_go_on(p))
        bnet_str_add(&all, p->token.value.u.s.data, p->token.value.u.s.n);
    bnet_str_add(&all, p->token.value.u.s.data, p->token.value.u.s.n);
    return constant(p, bnet_jinja_take(p->m, &all));
}

static jinja_node *name(jinja_parser *p)
{
    bnet_span s = p->token.s;
    if (bnet_jinja_named(s, "true") || bnet_jinja_named(s, "True"))
        return constant(p, bnet_jinja_bool(true));
    if (bnet_jinja_named(s, "false") || bnet_jinja_named(s, "False"))
        return constant(p, bnet_jinja_bool(false));
    if (bnet_jinja_named(s, "none") || bnet_jinja_named(s, "None"))
        return constant(p, (jinja_value){.type = JINJA_NONE});
    bnet_jinja_check_name(p, s);
    jinja_node *n = bnet_jinja_node(p, NODE_NAME);
    if (n)
        n->name = s;
    bnet_jinja_go_on(p);
    return n;
}

/* Elements up to `end`, whose opening was taken; DICT: key : value. */
static jinja_node *elements(jinja_parser *p, jinja_kind kind, const char *end)
{
    jinja_node *n = bnet_jinja_node(p, kind);
    while (!p->m->failed && !bnet_jinja_is_sign(p, end)) {
        bnet_jinja_add_kid(p, n, bnet_jinja_expression(p));
        if (kind == NODE_DICT) {
            bnet_jinja_need_sign(p, ":");
            bnet_jinja_add_kid(p, n, bnet_jinja_expression(p));
        }
        if (!bnet_jinja_take_sign(p, ","))
            break;
    }
    bnet_jinja_need_sign(p, end);
    return n;
}

static jinja_node *parentheses(jinja_parser *p)
{
    if (bnet_jinja_take_sign(p, ")"))
        return bnet_jinja_node(p, NODE_TUPLE);
    jinja_node *n = bnet_jinja_tuple(p, true);
    bnet_jinja_need_sign(p, ")");
    return n;
}

static jinja_node *primary(jinja_parser *p)
{
    jinja_node *n = NULL;
    if (!bnet_jinja_deeper(p))
        return NULL;
    if (p->token.kind == TOKEN_NAME)
        n = name(p);
    else if (p->token.kind == TOKEN_STRING)
        n = string(p);
    else if (p->token.kind == TOKEN_INT || p->token.kind == TOKEN_FLOAT)
        n = constant(p, p->token.value);
    else if (bnet_jinja_take_sign(p, "("))
        n = parentheses(p);
    else if (bnet_jinja_take_sign(p, "["))
        n = elements(p, NODE_LIST, "]");
    else if (bnet_jinja_take_sign(p, "{"))
        n = elements(p, NODE_DICT, "}");
    else
        bnet_jinja_wrong(p, "a value");
    p->nesting--;
    return n;
}

/* ---- what follows a primary: .name [item] (call) | filter, is test ---- */

/* name=value */
static jinja_node *keyword(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_node(p, NODE_KEYWORD);
    bnet_span s = bnet_jinja_need_name(p);
    bnet_jinja_go_on(p);
    if (n) {
        n->name = s;
        n->a = bnet_jinja_expression(p);
    }
    return n;
}

/* One argument of a call. *spread: a list of them came, behind which no single one may stand. */
static jinja_node *argument(jinja_parser *p, bool *spread)
{
    bool named = p->token.kind == TOKEN_NAME && p->ahead.kind == TOKEN_SIGN &&
                 bnet_jinja_named(p->ahead.s, "=");
    if (named)
        return keyword(p);
    if (bnet_jinja_is_sign(p, "**"))
        bnet_jinja_fail(p->m, "arguments by ** are not supported");
    if (*spread)
        bnet_jinja_fail(p->m, "an argument by position stands behind one by *");
    *spread = bnet_jinja_take_sign(p, "*");
    jinja_node *value = bnet_jinja_expression(p);
    return *spread ? operation(p, NODE_SPREAD, value) : value;
}

void bnet_jinja_arguments(jinja_parser *p, jinja_node *call)
{
    bool spread = false;
    while (!p->m->failed && !bnet_jinja_is_sign(p, ")")) {
        bnet_jinja_add_kid(p, call, argument(p, &spread));
        if (!bnet_jinja_take_sign(p, ","))
            break;
    }
    bnet_jinja_need_sign(p, ")");
    if (call && call->n_kids > JINJA_ARGS)
        bnet_jinja_fail(p->m, "a call has more than %d arguments", JINJA_ARGS);
}

/* Behind "[": an index, or a slice whose parts may be left out. */
static jinja_node *subscript(jinja_parser *p, jinja_node *a)
{
    jinja_node *parts[3] = {NULL}, *n;
    size_t count = 0;
    if (!bnet_jinja_is_sign(p, ":"))
        parts[0] = bnet_jinja_expression(p);
    while (bnet_jinja_take_sign(p, ":") && ++count < 3)
        if (!bnet_jinja_is_sign(p, ":") && !bnet_jinja_is_sign(p, "]"))
            parts[count] = bnet_jinja_expression(p);
    n = operation(p, count ? NODE_SLICE : NODE_ITEM, a);
    for (size_t i = 0; n && i < 3 && count; i++)
        bnet_jinja_add_kid(p, n, parts[i]);
    if (n && !count)
        n->b = parts[0];
    bnet_jinja_need_sign(p, "]");
    return n;
}

static jinja_node *attribute(jinja_parser *p, jinja_node *a)
{
    jinja_node *n = operation(p, p->token.kind == TOKEN_INT ? NODE_ITEM : NODE_ATTRIBUTE, a);
    if (p->token.kind == TOKEN_INT) {
        jinja_node *index = constant(p, p->token.value);
        if (n)
            n->b = index;
        return n;
    }
    bnet_span s = bnet_jinja_need_name(p);
    if (n)
        n->name = s;
    return n;
}

static jinja_node *postfix(jinja_parser *p, jinja_node *n)
{
    while (!p->m->failed) {
        if (bnet_jinja_take_sign(p, ".")) {
            n = attribute(p, n);
        } else if (bnet_jinja_take_sign(p, "[")) {
            n = subscript(p, n);
        } else if (bnet_jinja_take_sign(p, "(")) {
            n = operation(p, NODE_CALL, n);
            bnet_jinja_arguments(p, n);
        } else {
            break;
        }
    }
    return n;
}

static jinja_node *filter(jinja_parser *p, jinja_node *a)
{
    jinja_node *n = operation(p, NODE_FILTER, a);
    bnet_span s = bnet_jinja_need_name(p);
    if (!p->m->failed && !bnet_jinja_has_filter(s))
        bnet_jinja_fail(p->m, "there is no filter '%.*s'", (int)BNET_MIN(s.n, (size_t)40), s.data);
    if (n)
        n->name = s;
    if (bnet_jinja_take_sign(p, "("))
        bnet_jinja_arguments(p, n);
    return n;
}

/* A value begins here, as the argument of a test without parentheses. */
static bool argument_follows(const jinja_parser *p)
{
    static const char *const words[] = {"else", "or", "and"};
    for (size_t i = 0; i < BNET_COUNT(words); i++)
        if (bnet_jinja_is_word(p, words[i]))
            return false;
    return p->token.kind == TOKEN_NAME || p->token.kind == TOKEN_STRING ||
           p->token.kind == TOKEN_INT || p->token.kind == TOKEN_FLOAT ||
           bnet_jinja_is_sign(p, "[") || bnet_jinja_is_sign(p, "{");
}

static jinja_node *test(jinja_parser *p, jinja_node *a)
{
    jinja_node *n = operation(p, NODE_TEST, a);
    bool negated = bnet_jinja_take_word(p, "not");
    bnet_span s = bnet_jinja_need_name(p);
    if (!p->m->failed && !bnet_jinja_has_test(s))
        bnet_jinja_fail(p->m, "there is no test '%.*s'", (int)BNET_MIN(s.n, (size_t)40), s.data);
    if (n) {
        n->negated = negated;
        n->name = s;
    }
    if (bnet_jinja_take_sign(p, "("))
        bnet_jinja_arguments(p, n);
    else if (argument_follows(p))
        bnet_jinja_add_kid(p, n, postfix(p, primary(p)));
    return n;
}

jinja_node *bnet_jinja_filters(jinja_parser *p, jinja_node *n)
{
    while (!p->m->failed) {
        if (bnet_jinja_take_sign(p, "|"))
            n = filter(p, n);
        else if (bnet_jinja_take_word(p, "is"))
            n = test(p, n);
        else if (bnet_jinja_is_sign(p, "(") || bnet_jinja_is_sign(p, ".") ||
                 bnet_jinja_is_sign(p, "["))
            n = postfix(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ---- */

static jinja_node *unary(jinja_parser *p, bool filters)
{
    bool minus = bnet_jinja_is_sign(p, "-");
    jinja_node *n;
    if (minus || bnet_jinja_is_sign(p, "+")) {
        n = bnet_jinja_node(p, NODE_UNARY);
        bnet_jinja_go_on(p);
        jinja_node *a = bnet_jinja_deeper(p) ? unary(p, false) : NULL;
        p->nesting--;
        if (n) {
            n->op = minus ? OP_NEG : OP_POS;
            n->a = a;
        }
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    return filters ? bnet_jinja_filters(p, n) : n;
}

/* Binary operators from the strongest level to the weakest. */
static const struct {
    int level;
    const char *sign;
    jinja_op op;
} binary[] = {
    {0, "**", OP_POW},   {1, "*", OP_MUL}, {1, "/", OP_DIV}, {1, "//", OP_FLOOR}, {1, "%", OP_MOD},
    {2, "~", OP_CONCAT}, {3, "+", OP_ADD}, {3, "-", OP_SUB}, {4, "==", OP_EQ},    {4, "!=", OP_NE},
    {4, "<", OP_LT},     {4, "<=", OP_LE}, {4, ">", OP_GT},  {4, ">=", OP_GE},
};
enum { COMPARISON = 4 };

static jinja_op operator_at(jinja_parser *p, int level)
{
    for (size_t i = 0; i < BNET_COUNT(binary); i++)
        if (binary[i].level == level && bnet_jinja_take_sign(p, binary[i].sign))
            return binary[i].op;
    if (level != COMPARISON)
        return OP_NONE;
    if (bnet_jinja_take_word(p, "in"))
        return OP_IN;
    if (bnet_jinja_is_word(p, "not") && p->ahead.kind == TOKEN_NAME &&
        bnet_jinja_named(p->ahead.s, "in")) {
        bnet_jinja_go_on(p);
        bnet_jinja_go_on(p);
        return OP_NOT_IN;
    }
    return OP_NONE;
}

/* Operands of one level in a row; each but the first in a KEYWORD that notes its operator. */
static jinja_node *chain(jinja_parser *p, int level)
{
    jinja_node *first = level ? chain(p, level - 1) : unary(p, true), *all = NULL;
    for (jinja_op op; !p->m->failed && (op = operator_at(p, level)) != OP_NONE;) {
        if (!all) {
            all = bnet_jinja_node(p, level == COMPARISON ? NODE_COMPARE : NODE_CHAIN);
            bnet_jinja_add_kid(p, all, first);
        }
        jinja_node *right = operation(p, NODE_KEYWORD, NULL);
        if (right) {
            right->op = op;
            right->a = level ? chain(p, level - 1) : unary(p, true);
        }
        bnet_jinja_add_kid(p, all, right);
    }
    return all ? all : first;
}

/* Of a row of `not` only whether their number is odd matters, and that there was one: it makes a
 * bool. */
static jinja_node *negation(jinja_parser *p)
{
    size_t times = 0;
    while (bnet_jinja_take_word(p, "not"))
        times++;
    jinja_node *n = chain(p, COMPARISON);
    for (times = times > 2 ? 2 - times % 2 : times; times && !p->m->failed; times--) {
        n = operation(p, NODE_UNARY, n);
        if (n)
            n->op = OP_NOT;
    }
    return n;
}

static jinja_node *junction(jinja_parser *p, const char *word, jinja_kind kind)
{
    jinja_node *all = NULL;
    jinja_node *first = kind == NODE_OR ? junction(p, "and", NODE_AND) : negation(p);
    while (!p->m->failed && bnet_jinja_take_word(p, word)) {
        if (!all) {
            all = bnet_jinja_node(p, kind);
            bnet_jinja_add_kid(p, all, first);
        }
        bnet_jinja_add_kid(p, all, kind == NODE_OR ? junction(p, "and", NODE_AND) : negation(p));
    }
    return all ? all : first;
}

jinja_node *bnet_jinja_or(jinja_parser *p)
{
    return junction(p, "or", NODE_OR);
}

jinja_node *bnet_jinja_expression(jinja_parser *p)
{
    jinja_node *n = bnet_jinja_deeper(p) ? bnet_jinja_or(p) : NULL;
    while (!p->m->failed && bnet_jinja_take_word(p, "if")) {
        n = operation(p, NODE_IF_ELSE, n);
        jinja_node *condition = bnet_jinja_or(p);
        jinja_node *other = bnet_jinja_take_word(p, "else") ? bnet_jinja_expression(p) : NULL;
        if (n) {
            n->b = condition;
            n->c = other;
        }
    }
    p->nesting--;
    return n;
}

jinja_node *bnet_jinja_tuple(jinja_parser *p, bool conditional)
{
    jinja_node *all = NULL;
    jinja_node *first = conditional ? bnet_jinja_expression(p) : bnet_jinja_or(p);
    while (!p->m->failed && bnet_jinja_take_sign(p, ",")) {
        if (!all) {
            all = bnet_jinja_node(p, NODE_TUPLE);
            bnet_jinja_add_kid(p, all, first);
        }
        if (bnet_jinja_is_sign(p, ")") || p->token.kind == TOKEN_BLOCK_END ||
            p->token.kind == TOKEN_PRINT_END)
            break;
        bnet_jinja_add_kid(p, all, conditional ? bnet_jinja_expression(p) : bnet_jinja_or(p));
    }
    return all ? all : first;
}
