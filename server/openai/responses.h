/* responses.h - what the files of /v1/responses share; nobody else includes it. */
#ifndef SRV_RESPONSES_H
#define SRV_RESPONSES_H

#include "http/ids.h"
#include "openai/openai.h"
#include "ask/textbuf.h"

/* Input (a text or items) and instructions as messages in the form of chat completions, a new
 * value. NULL: the client was told. */
json_t *srv_responses_messages(srv_exchange *x, const json_t *body);
/* Tools in the form of chat completions, a new value; NULL: there are none, or no memory. */
json_t *srv_responses_tools(const json_t *tools);

typedef enum srv_item { SRV_ITEM_NONE, SRV_ITEM_THOUGHT, SRV_ITEM_MESSAGE, SRV_ITEM_CALL } srv_item;

/* The output as it grows: items, one after another, each told by events while it comes. */
typedef struct srv_output {
    srv_exchange *x;
    bool stream, logprobs;
    const srv_model *model;
    json_int_t sequence;                      /* of the next event */
    json_t *items;                            /* finished */
    srv_item kind;                            /* of the item that is coming */
    char id[SRV_ID_MAX], call_id[SRV_ID_MAX]; /* its */
    json_t *name;                             /* of a call */
    srv_textbuf text;                         /* its */
    json_t *token_logprobs;                   /* of a message */
    json_t *early_logprobs;                   /* of tokens whose text comes with a later one */
    size_t n_thought;                         /* tokens of thoughts */
    size_t n_silent;                          /* tokens since the last text */
    bool gone;                                /* nobody listens to the events */
} srv_output;

bool srv_output_open(srv_output *o); /* of zeros; false: out of memory */
void srv_output_free(srv_output *o);
/* One event; takes `value`, an object, over and numbers it. */
void srv_output_event(srv_output *o, const char *name, json_t *value);
void srv_output_take(srv_output *o, const srv_delta *d);
/* Ends the item that is coming. An answer without any gets an empty message. */
void srv_output_finish(srv_output *o, bool complete);

#endif
