/* jinja_parse.h - what the two halves of the parser share: expressions and statements. */
#ifndef BNET_JINJA_PARSE_H
#define BNET_JINJA_PARSE_H

#include "jinja/jinja_lex.h"

typedef struct jinja_parser {
    jinja *m;
    jinja_lexer lexer;
    jinja_token token, ahead; /* the current one and the next */
    int nesting;
    int loops;               /* around here, for break */
    const jinja_node *macro; /* around here; NULL: none */
} jinja_parser;

/* Reading tokens: `take` and its kin go on if the current one is what they ask for. */
void bnet_jinja_go_on(jinja_parser *p);
bool bnet_jinja_is_sign(const jinja_parser *p, const char *sign);
bool bnet_jinja_is_word(const jinja_parser *p, const char *word);
bool bnet_jinja_take_sign(jinja_parser *p, const char *sign);
bool bnet_jinja_take_word(jinja_parser *p, const char *word);
void bnet_jinja_need_sign(jinja_parser *p, const char *sign);
bnet_span bnet_jinja_need_name(jinja_parser *p);
jinja_node *bnet_jinja_wrong(jinja_parser *p, const char *wanted); /* fails; NULL */
bool bnet_jinja_deeper(jinja_parser *p);                           /* false: too deep */

/* Fails for names that Jinja gives a meaning here which we do not know. */
void bnet_jinja_check_name(jinja_parser *p, bnet_span name);
jinja_node *bnet_jinja_node(jinja_parser *p, jinja_kind kind);
void bnet_jinja_add_kid(jinja_parser *p, jinja_node *n, jinja_node *kid);

/* Expressions. NULL: failed. */
jinja_node *bnet_jinja_expression(jinja_parser *p);
jinja_node *bnet_jinja_or(jinja_parser *p);                           /* without `if` */
jinja_node *bnet_jinja_tuple(jinja_parser *p, bool conditional);      /* a, b or one of them */
jinja_node *bnet_jinja_filters(jinja_parser *p, jinja_node *operand); /* | a | b(1) */
void bnet_jinja_arguments(jinja_parser *p, jinja_node *call);         /* behind "(" */

#endif
