/* jinja_lex.h - a template cut into its pieces: text, and the tokens between {{ }} and {% %}. */
#ifndef BNET_JINJA_LEX_H
#define BNET_JINJA_LEX_H

#include "jinja/jinja_impl.h"

typedef enum jinja_token_kind {
    TOKEN_END,       /* of the template */
    TOKEN_TEXT,      /* outside of all tags */
    TOKEN_PRINT,     /* {{ */
    TOKEN_PRINT_END, /* }} */
    TOKEN_BLOCK,     /* {% */
    TOKEN_BLOCK_END, /* %} */
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_SIGN, /* an operator or bracket: s */
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    uint32_t line;
    bnet_span s;       /* of TEXT, NAME, SIGN: the bytes */
    jinja_value value; /* of STRING, INT, FLOAT */
} jinja_token;

typedef struct jinja_lexer {
    jinja *m;
    bnet_span source;
    size_t at;
    uint32_t line;
    bool in_tag, block; /* block: the tag is {% %} */
    int open;           /* brackets */
    bool line_begins;   /* what was read last ended a line */
} jinja_lexer;

/* The lexer of a template whose line ends are made \n and which loses one at its end, as in Jinja.
 */
jinja_lexer bnet_jinja_lexer(jinja *m, bnet_span source);
jinja_token bnet_jinja_next(jinja_lexer *l);

#endif
