/* split_impl.h - what the files of split share; nobody else includes it. split.c has the state
 * machine, split_json.c calls written as JSON, split_xml.c calls written as XML. */
#ifndef SRV_SPLIT_IMPL_H
#define SRV_SPLIT_IMPL_H

#include "ask/json_text.h"
#include "ask/split.h"
#include "ask/textbuf.h"

enum { SRV_SPLIT_DEPTH = SRV_JSON_DEPTH }; /* of objects and lists: no deeper ones are read */

typedef enum state { START, SAID, THOUGHT, CALL, AFTER } state;

typedef struct row {
    srv_delta_kind kind;
    size_t at, n; /* in `out` */
    int tool_index;
    bool cut;
} row;

struct srv_split {
    srv_split_options o;
    state state;
    srv_textbuf hold;  /* text that came and is not decided */
    srv_textbuf out;   /* text of the pieces */
    srv_textbuf rows;  /* row[]: the pieces */
    size_t n_taken;    /* rows handed out */
    srv_textbuf gap;   /* blanks that stand before what is said next, if anything is */
    bool said;         /* something was */
    bool thought_over; /* <think> is no longer looked for */
    bool drop_space;   /* blanks at the beginning of hold are nobody's */
    int n_calls;
    bool cut; /* a call has no end */
    /* the call in hold: bytes before its object, bytes scanned, where in the JSON that is */
    size_t marker, scan;
    int depth, n_tries;
    char open[SRV_SPLIT_DEPTH]; /* the brackets that are open there */
    bool in_text, escaped;
    json_t *head;                /* an object with its name; NULL: not known yet */
    size_t args, args_end, sent; /* where its arguments begin (0: nowhere yet), end, were told to */
    bool begun;                  /* it was announced */
    bool in_args;                /* what is scanned are its arguments */
    const json_t *function;      /* XML: the tool that it calls; borrowed */
    json_t *told;                /* XML: has the names of its parameters that were told, or NULL */
};

static inline bool srv_split_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* How hold, from `at`, and a word compare: 1 it begins with it, 0 it may when more comes, -1 no. */
int srv_split_begins(const srv_split *s, size_t at, const char *word);
/* A piece with this text. */
void srv_split_emit(srv_split *s, srv_delta_kind kind, const char *text, size_t n);
/* The function among the tools that has this name; NULL: none. */
const json_t *srv_split_tool(const srv_split *s, const char *name);
/* The end of the call; `cut`: it is not whole. */
void srv_split_end(srv_split *s, bool cut);
/* A call of it begins. */
void srv_split_announce(srv_split *s, const char *name);
/* It was no call: the marker is text, what follows it is looked at again. */
void srv_split_no_call(srv_split *s);

/* In state CALL: returns whether there may be more to do with what is in hold. */
bool srv_split_step_json(srv_split *s);
/* Tells what has come of a call that waits to be whole. */
void srv_split_tell_held(srv_split *s);

/* In state CALL of a model that writes XML: returns whether there may be more to do with what is in
 * hold. */
bool srv_split_step_xml(srv_split *s);

#endif
