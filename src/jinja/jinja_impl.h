/* jinja_impl.h - what the files of the template interpreter share: values, the parsed template, the
 * machine that runs it.
 *
 * All memory of a rendering is in one arena and goes with it. A failure is written once into the
 * machine; from then on every function returns at once, with an undefined value where one is asked
 * for, so callers look at `failed` only where they loop. */
#ifndef BNET_JINJA_IMPL_H
#define BNET_JINJA_IMPL_H

#include "base/hash.h"
#include "jinja/jinja.h"

/* Bytes of the caller's stack that what nests may take: threads may have 64 KB, and the functions
 * that nest no further need 11 KB more. Statements within statements take none of it
 * (jinja_exec.c); a macro that calls itself takes 450 bytes, more where the call stands deep in an
 * expression. Frames grow manyfold with a sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define JINJA_STACK (1 << 19)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define JINJA_STACK (1 << 19)
#endif
#endif
#ifndef JINJA_STACK
#define JINJA_STACK (1 << 15)
#endif

enum {
    JINJA_NESTING = 40, /* brackets and blocks within each other in a template */
    JINJA_CALLS = 40,   /* macros that call macros */
    JINJA_ARGS = 64,    /* of a filter, test, method or macro */
    JINJA_PRINTED = 48, /* lists within lists that are printed or compared */
};

/* A function of which this stands keeps its frame out of those that nest. */
#define JINJA_APART __attribute__((noinline))

/* ---- values ---- */

typedef enum jinja_type {
    JINJA_UNDEFINED, /* s: its name, for messages */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global, or a method together with its object */
    JINJA_LOOP,
} jinja_type;

typedef struct jinja_value jinja_value;
typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_method jinja_method;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_node jinja_node;
typedef struct jinja_scope jinja_scope;

struct jinja_value {
    jinja_type type;
    union {
        bool b;
        int64_t i;
        double f;
        bnet_span s;
        jinja_list *list; /* of a tuple, too */
        jinja_dict *dict; /* of a namespace, too */
        jinja_macro *macro;
        jinja_method *method;
        jinja_loop *loop;
    } u;
};

struct jinja_list {
    jinja_value *items;
    size_t n, cap;
};

typedef struct jinja_pair {
    jinja_value key, value;
} jinja_pair;

struct jinja_dict { /* in the order of insertion */
    jinja_pair *pairs;
    size_t n, cap;
    uint32_t *slots; /* the numbers of pairs + 1 by their keys' hash; NULL: there are few */
    size_t n_slots;  /* a power of two */
};

typedef struct jinja_arg {
    bnet_span name; /* n == 0: by position */
    jinja_value value;
} jinja_arg;

/* What was written between the parentheses of a call. */
typedef struct jinja_args {
    const jinja_arg *at;
    size_t n;
} jinja_args;

typedef struct jinja jinja;
typedef jinja_value jinja_fn(jinja *m, jinja_value self, jinja_args *a);

struct jinja_method {
    jinja_fn *fn;
    jinja_value self;
};

typedef struct jinja_named { /* tables of these end in NULL */
    const char *name;
    jinja_fn *fn;
} jinja_named;

struct jinja_macro {
    const jinja_node *node;
    jinja_scope *home; /* where it was defined */
};

struct jinja_loop {
    const jinja_node *node;
    jinja_scope *home;   /* around the loop */
    jinja_scope *inside; /* of the round that runs */
    jinja_list *all;     /* what is iterated */
    size_t asked;        /* of these: the condition was asked */
    bool asking;         /* the condition runs now */
    jinja_list *items;   /* those that fulfil it, as far as asked; without a condition all */
    size_t round;        /* 1: the first */
    jinja_value changed; /* what changed() saw last */
};

struct jinja_scope {
    jinja_scope *parent; /* of a spare one: the next */
    jinja_dict names;
    bool kept; /* a macro or a loop may look names up here later */
};

/* ---- the parsed template ---- */

typedef enum jinja_kind {
    /* expressions */
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_UNARY,
    NODE_CHAIN,
    NODE_COMPARE,
    NODE_AND,
    NODE_OR,
    NODE_IF_ELSE,
    NODE_KEYWORD,
    NODE_SPREAD,
    /* statements */
    NODE_TEXT,
    NODE_PRINT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_BODY,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_WITH,
} jinja_kind;

/* Operators of UNARY, CHAIN (a row of operands and operators of one precedence) and COMPARE. */
typedef enum jinja_op {
    OP_NONE,
    OP_NOT,
    OP_NEG,
    OP_POS,
    OP_ADD,
    OP_SUB,
    OP_CONCAT,
    OP_MUL,
    OP_DIV,
    OP_FLOOR,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
} jinja_op;

/* What `kids` holds: LIST, TUPLE, BODY: the elements. DICT: keys and values in turn. CALL, FILTER,
 * TEST: the arguments (SPREAD: a has any number of them). AND, OR: the operands. CHAIN, COMPARE:
 * the operands, all but the first in a KEYWORD that has the operator before it. SLICE: begin, end,
 * step (NULL: left out). IF: conditions and bodies in turn, else's body alone at the end. MACRO:
 * parameters (KEYWORD with a default, else NAME). WITH: targets and values in turn. What a, b, c
 * are: ATTRIBUTE, ITEM, SLICE, CALL, FILTER, TEST, UNARY: a the operand. IF_ELSE: a if b else c.
 * KEYWORD: a the value of `name`. PRINT: a. FOR: a the target, b the items, c the condition, d the
 * body, e else's. SET: a the target, b the value. SET_BLOCK: a the target, b the filters around it,
 * d the body. MACRO, CALL_BLOCK, FILTER_BLOCK, WITH: d the body; CALL_BLOCK: b the call;
 * FILTER_BLOCK: b the filters. The filters of a block end in a NAME that stands for its text. */
struct jinja_node {
    jinja_kind kind;
    jinja_op op;
    uint32_t line;
    bool negated; /* of a TEST: is not */
    bnet_span name;
    jinja_value value;
    jinja_node *a, *b, *c, *d, *e;
    jinja_node **kids;
    size_t n_kids, cap_kids;
};

/* ---- the machine ---- */

typedef struct jinja_block jinja_block;
typedef struct jinja_frame jinja_frame;

struct jinja {
    bnet_jinja_limits limits;
    jinja_block *blocks; /* the arena */
    size_t used;
    uint64_t steps;
    uint32_t line;   /* of what runs now */
    uintptr_t stack; /* where it began */
    bool failed;
    bitnet_status status;
    bitnet_error *err;
    bnet_str *out; /* what is being written: the result, or a block's or macro's own */
    size_t written;
    jinja_scope *scope, *spare; /* the innermost; those that were left */
    jinja_frame *frames;        /* statements that are open, the innermost last */
    size_t n_frames, cap_frames;
    jinja_arg *args; /* of the calls that run or are prepared now, those of the innermost last */
    size_t n_args, cap_args;
    bnet_hash_key key; /* of the dicts' hashes */
    bool has_key;
    int calls;
    enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;
};

/* arena and failures (jinja_value.c) */
void *bnet_jinja_alloc(jinja *m, size_t n); /* zeroed; NULL: failed */
void bnet_jinja_close(jinja *m);
/* Counts one step and `bytes` that are moved. False: too many, or failed before. */
bool bnet_jinja_step(jinja *m, size_t bytes);
/* Room in *items for one more of `size` bytes each; what was there before stays in the arena. */
bool bnet_jinja_room(jinja *m, void **items, size_t n, size_t *cap, size_t size);
/* False, and failed: the calls of the interpreter nest too deep for a small stack. */
bool bnet_jinja_fits_stack(jinja *m);
jinja_value bnet_jinja_fail(jinja *m, const char *fmt, ...) BITNET_PRINTF(2, 3);

/* making values (jinja_value.c) */
jinja_value bnet_jinja_bool(bool b);
jinja_value bnet_jinja_int(int64_t i);
jinja_value bnet_jinja_float(double f);
jinja_value bnet_jinja_span(bnet_span s); /* borrowed */
jinja_value bnet_jinja_copy(jinja *m, const char *s, size_t n);
jinja_value bnet_jinja_take(jinja *m, bnet_str *s); /* copies, and frees s */
jinja_value bnet_jinja_undefined(bnet_span name);
jinja_value bnet_jinja_list_of(jinja *m, jinja_type type);
jinja_value bnet_jinja_list_for(jinja *m, jinja_type type,
                                size_t n); /* room for n from the start */
void bnet_jinja_append(jinja *m, jinja_value list, jinja_value item);
jinja_value bnet_jinja_from_json(jinja *m, bnet_span text);

/* dicts (jinja_dict.c) */
jinja_value bnet_jinja_dict_of(jinja *m);
void bnet_jinja_put(jinja *m, jinja_dict *d, jinja_value key, jinja_value value);
const jinja_value *bnet_jinja_get(jinja *m, const jinja_dict *d, jinja_value key); /* or NULL */

/* asking values (jinja_value.c, jinja_compare.c) */
const char *bnet_jinja_type_name(jinja_value v); /* as Python calls it */
bool bnet_jinja_true(jinja *m, jinja_value v);
bool bnet_jinja_number(jinja_value v, double *f);         /* bool, int, float */
bool bnet_jinja_whole(jinja_value v, int64_t *i);         /* bool, int */
bool bnet_jinja_same(jinja *m, bnet_span a, bnet_span b); /* texts; the bytes are counted */
bool bnet_jinja_equal(jinja *m, jinja_value a, jinja_value b);
int bnet_jinja_order(jinja *m, jinja_value a, jinja_value b); /* fails for what has no order */
bool bnet_jinja_in(jinja *m, jinja_value item, jinja_value all);
/* The elements of anything that can be iterated, as a list; of a string its characters. */
jinja_value bnet_jinja_elements(jinja *m, jinja_value v);
size_t bnet_jinja_length(jinja *m, jinja_value v);
static inline bool bnet_jinja_is_undefined(jinja_value v)
{
    return v.type == JINJA_UNDEFINED;
}
bool bnet_jinja_named(bnet_span s, const char *text);
jinja_value bnet_jinja_operate(jinja *m, jinja_op op, jinja_value a, jinja_value b);

/* sorting (jinja_sort.c) */
/* Puts pairs in the order of their keys; those of equal keys keep theirs. Fails for keys that have
 * no order. */
void bnet_jinja_sort(jinja *m, jinja_pair *pairs, size_t n, bool back);

/* characters (jinja_text.c) */
size_t bnet_jinja_characters(bnet_span s);
bnet_span bnet_jinja_character(bnet_span s, size_t index); /* n == 0: past the end */
size_t bnet_jinja_offset(bnet_span s, size_t index);       /* of that character, in bytes */
bool bnet_jinja_printable(uint32_t c);    /* false: Python's repr writes it as an escape */
size_t bnet_jinja_blank(bnet_span s);     /* bytes of white space at the beginning */
size_t bnet_jinja_blank_end(bnet_span s); /* ... at the end */
/* Takes a line off the beginning of *s, without what ends it. */
bnet_span bnet_jinja_line(bnet_span *s);

/* printing (jinja_print.c) */
void bnet_jinja_str(jinja *m, jinja_value v, bnet_str *out);
jinja_value bnet_jinja_string(jinja *m, jinja_value v); /* the same as a value */
typedef struct jinja_json_form {
    int indent; /* below 0: one line */
    bool sorted;
    bnet_span comma, colon;
} jinja_json_form;
void bnet_jinja_json(jinja *m, jinja_value v, const jinja_json_form *form, bnet_str *out);

/* reading (jinja_lex.c, jinja_parse.c) */
jinja_node *bnet_jinja_parse(jinja *m, bnet_span source);

/* what a template can call (jinja_filters.c, jinja_tests.c, jinja_methods.c) */
/* The argument by position or name; undefined: not given. */
jinja_value bnet_jinja_arg(const jinja_args *a, size_t position, const char *name);
/* Fails for arguments by names that are not in the list (separated by blanks), or too many. */
bool bnet_jinja_args_are(jinja *m, const char *what, const jinja_args *a, size_t most,
                         const char *names);
bool bnet_jinja_text_arg(jinja *m, const jinja_args *a, size_t position, const char *name,
                         bnet_span *s);
jinja_fn *bnet_jinja_find(const jinja_named *table, bnet_span name); /* NULL: it has none */
extern const jinja_named bnet_jinja_case_filters[];                  /* jinja_case.c */
extern const jinja_named bnet_jinja_number_filters[];                /* jinja_number.c */
extern const jinja_named bnet_jinja_row_filters[];                   /* jinja_rows.c */
extern const jinja_named bnet_jinja_string_methods[];                /* jinja_strings.c */
jinja_value bnet_jinja_filter(jinja *m, bnet_span name, jinja_value v, jinja_args *a);
bool bnet_jinja_test(jinja *m, bnet_span name, jinja_value v, jinja_args *a);
bool bnet_jinja_has_filter(bnet_span name);
bool bnet_jinja_has_test(bnet_span name);
jinja_value bnet_jinja_method(jinja *m, jinja_value self, bnet_span name); /* undefined: none */
jinja_value bnet_jinja_global(jinja *m, bnet_span name);                   /* undefined: none */

/* expressions (jinja_eval.c, jinja_slice.c) */
jinja_value bnet_jinja_eval(jinja *m, const jinja_node *n);
jinja_value bnet_jinja_slice(jinja *m, const jinja_node *n);
jinja_value bnet_jinja_attribute(jinja *m, jinja_value v, jinja_value name, bool item_first);
jinja_scope *bnet_jinja_push(jinja *m, jinja_scope *parent); /* a new scope; NULL: failed */
/* Goes back to the scope `before`. The one that is left may serve again, unless it is kept. */
void bnet_jinja_leave(jinja *m, jinja_scope *scope, jinja_scope *before);
void bnet_jinja_keep(jinja_scope *scope); /* and those around it */
void bnet_jinja_define(jinja *m, bnet_span name, jinja_value v);
void bnet_jinja_assign(jinja *m, const jinja_node *target, jinja_value v);

/* calls (jinja_call.c) */
jinja_value bnet_jinja_call(jinja *m, jinja_value f, jinja_args *a);
jinja_value bnet_jinja_called(jinja *m, const jinja_node *n);      /* CALL */
jinja_value bnet_jinja_filtered(jinja *m, const jinja_node *n);    /* FILTER */
jinja_value bnet_jinja_tested(jinja *m, const jinja_node *n);      /* TEST */
jinja_value bnet_jinja_captured(jinja *m, const jinja_node *body); /* what a body writes */
/* Evaluates the arguments of a CALL, FILTER or TEST, behind those of the calls that run now. Who
 * asks sets n_args back to what it was before (`from` below) after the call. */
void bnet_jinja_push_arguments(jinja *m, const jinja_node *call);
void bnet_jinja_push_argument(jinja *m, size_t from, bnet_span name, jinja_value v);
jinja_args bnet_jinja_args_from(const jinja *m, size_t from); /* valid for the whole rendering */

/* statements (jinja_exec.c) */
/* Asks the loop's condition until `wanted` items fulfil it or none is left. */
void bnet_jinja_choose(jinja *m, jinja_loop *loop, size_t wanted);
void bnet_jinja_exec(jinja *m, const jinja_node *n);

#endif
