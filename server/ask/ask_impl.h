/* ask_impl.h - what the files of ask share; nobody else includes it.
 *
 * From a request to a job: messages in one form (ask_messages.c), tools (ask_tools.c), the text
 * that the template makes of both (ask_chat.c), its tokens (ask_prompt.c), the grammar
 * (ask_grammar.c), the job (ask.c). From events to deltas: answer.c, split.c. */
#ifndef SRV_ASK_IMPL_H
#define SRV_ASK_IMPL_H

#include "ask/ask.h"
#include "jobs/grammars.h"
#include "ask/split.h"
#include "ask/textbuf.h"

/* The name of what is continued, and of the field that gives the answer a form. */
static inline const char *srv_ask_said(const srv_ask *a)
{
    return a->words.said ? a->words.said : a->messages ? "messages" : "prompt";
}
static inline const char *srv_ask_form(const srv_ask *a)
{
    return a->words.form ? a->words.form : "response_format";
}
/* What a client may do where tools cannot be used, behind "leave them out". */
static inline const char *srv_ask_no_tools(const srv_ask *a)
{
    return a->words.no_tools ? a->words.no_tools : ", or set tool_choice to \"none\"";
}

/* The question's messages as templates expect them, a new value: contents are texts (parts are
 * joined), arguments of tool calls are objects, "developer" is "system". NULL: the client was told
 * what is wrong. */
json_t *srv_messages_plain(srv_exchange *x, const srv_ask *a);

/* What tools mean for this question. */
typedef struct srv_tool_plan {
    json_t *tools;  /* those that are functions, a new array; NULL: none, or not to be used */
    json_t *forced; /* the answer must be a call: one of these, a new array; NULL: it need not */
    const char *choice; /* the name of the forced one, or NULL */
} srv_tool_plan;

/* Reads a->tools and a->tool_choice. False: the client was told. Free the plan in any case. */
bool srv_tool_plan_read(srv_exchange *x, const srv_ask *a, srv_tool_plan *plan);
void srv_tool_plan_free(srv_tool_plan *plan);
/* The schema of a forced call in a style, a new value; NULL: out of memory. */
json_t *srv_tool_schema(const srv_tool_plan *plan, srv_tool_style style);
/* What the prompt ends with so that the answer is the object of a call. */
const char *srv_tool_opening(srv_tool_style style);

/* What the model's template makes of messages. */
typedef struct srv_chat {
    srv_textbuf text;
    srv_tool_style style; /* how the model writes calls */
    bool has_tools;       /* the template can show tools */
    bool thinks;          /* the model thinks in <think> */
    bool thinking;        /* the text ends inside <think> */
} srv_chat;

/* Requires: messages as srv_messages_plain makes them. False: the client was told. Free
 * chat->text in any case. */
bool srv_chat_render(srv_exchange *x, const srv_model *model, const srv_ask *a,
                     const json_t *messages, const json_t *tools, srv_chat *chat);

/* A prompt and what is known of the answer to it. */
typedef struct srv_prompt {
    int32_t *ids;
    size_t n_ids;
    srv_split_options split;
    srv_tool_plan plan;
    size_t n_dropped; /* messages that were left out */
    json_t *schema;   /* of a forced call, or NULL */
} srv_prompt;

/* False: the client was told. Free the prompt in any case. */
bool srv_prompt_make(srv_exchange *x, const srv_model *model, const srv_ask *a, srv_prompt *p);
/* Whether the prompt can be answered: it is not empty, and not longer than the server and the
 * context allow. False: the client was told. */
bool srv_prompt_check(srv_exchange *x, const srv_model *model, const srv_ask *a,
                      const srv_prompt *p);
void srv_prompt_free(srv_prompt *p);

/* The grammar of the answer: of `schema` if it is not NULL, else of what the question wants. *out
 * NULL: it is free; else it is released once the job is queued. False: the client was told. */
bool srv_ask_grammar(srv_exchange *x, const srv_model *model, const srv_ask *a,
                     const json_t *schema, srv_grammar **out);

/* 503; returns false. */
bool srv_no_room(srv_exchange *x);

/* ---- answer.c ---- */

/* Takes over model, prompt and job, which was submitted with these options. NULL: out of memory,
 * then the job alone is released. */
srv_answer *srv_answer_open(srv_exchange *x, srv_model *model, srv_prompt *prompt, srv_job *job,
                            const srv_job_options *options);

#endif
