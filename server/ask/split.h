/* split.h - an answer's text, as it comes, taken apart: what is said, what is thought
 * (<think>...</think>), which tools are called and with what.
 *
 * A call is begun when its name and the beginning of its arguments are there; its arguments then
 * come piece by piece. Text that looks like a call and is none (no JSON, a name that is not among
 * the tools) comes as what is said, unchanged; what turns out to be no JSON after it was begun ends
 * as a call that is cut, and the rest of it is said. With `whole` no call is begun before all of it
 * is there. The beginning of a call that must be, and of a closing mark, comes as nothing. */
#ifndef SRV_SPLIT_H
#define SRV_SPLIT_H

#include "ask/ask.h"

/* How models write calls. */
typedef enum srv_tool_style {
    SRV_TOOLS_NONE,    /* not known, or no tools */
    SRV_TOOLS_HERMES,  /* <tool_call>{"name": , "arguments": }</tool_call>, any number */
    SRV_TOOLS_LLAMA3,  /* the answer begins with {"name": , "parameters": }; more after ; */
    SRV_TOOLS_XML,     /* <tool_call><function=NAME><parameter=KEY>VALUE</parameter>... */
    SRV_TOOLS_MISTRAL, /* [TOOL_CALLS][{"name": , "arguments": }, ...] */
} srv_tool_style;

typedef struct srv_split_options {
    srv_tool_style style;
    const json_t *tools; /* whose calls are calls; borrowed while the split is open */
    bool reasoning;      /* <think> at the beginning is thought */
    bool hidden;         /* and not told (answer.c) */
    bool one_call;       /* nothing is told after the first call (answer.c) */
    bool thinking;       /* the prompt ended inside <think> */
    bool calling;        /* the prompt ended where a call's object begins */
    bool whole;          /* a call comes in one piece, and as text if it is none */
} srv_split_options;

typedef struct srv_piece {
    srv_delta_kind kind; /* TEXT, REASONING, TOOL_BEGIN, TOOL_ARGS, TOOL_END */
    const char *text;    /* n_text bytes; of TOOL_BEGIN the name, with a NUL */
    size_t n_text;
    int tool_index;
    bool cut; /* TOOL_END: the answer ended inside the arguments, or they are no JSON */
} srv_piece;

typedef struct srv_split srv_split;

srv_split *srv_split_open(const srv_split_options *options); /* NULL: out of memory */
void srv_split_close(srv_split *s);
/* The next text, valid UTF-8; _finish: no more follows. False: out of memory. */
bool srv_split_push(srv_split *s, const char *text, size_t n);
bool srv_split_finish(srv_split *s);
/* The next piece; false: none until more is pushed. Its text lives until the next _push. */
bool srv_split_next(srv_split *s, srv_piece *out);
/* Calls begun so far. */
int srv_split_calls(const srv_split *s);
/* After _finish: a call was cut. */
bool srv_split_cut(const srv_split *s);

#endif
