/* openai.h - what the OpenAI APIs share: fields that several requests have, parts that several
 * replies have. */
#ifndef SRV_OPENAI_H
#define SRV_OPENAI_H

#include "ask/ask.h"
#include "ask/textbuf.h"

/* The handlers of routes.inc. */
void srv_openai_chat(srv_exchange *x);
void srv_openai_completions(srv_exchange *x);
void srv_openai_responses(srv_exchange *x);
void srv_openai_embeddings(srv_exchange *x);
void srv_openai_models(srv_exchange *x);
void srv_openai_model(srv_exchange *x);

/* Reads model, the sampling fields, response_format, grammar, chat_template_kwargs,
 * reasoning_format. False: the client was told. */
bool srv_openai_read(srv_exchange *x, srv_ask *a, json_t *body);
/* {"type": "text" | "json_object" | "json_schema", ...} into a; `param` names it in messages. The
 * schema lies in an object of its own ("json_schema") or beside the type. */
bool srv_openai_format(srv_exchange *x, srv_ask *a, const json_t *format, const char *param);

/* -INFINITY is no JSON: -9999 stands for it. */
json_t *srv_logprob_number(double logprob);
/* {"token", "logprob", "bytes", "top_logprobs"} of a token event, a new value. */
json_t *srv_openai_logprob(const srv_model *model, const srv_event *e);
/* What that takes in memory with so many others beside it, about. */
#define SRV_LOGPROB_BYTES(n_top) (900 * (size_t)(1 + ((n_top) > 0 ? (n_top) : 0)))
/* "usage" of completions, a new value. */
json_t *srv_openai_usage(const srv_usage *u);
const char *srv_openai_fingerprint(void);
/* Adds "receipt" to a reply that has one. */
void srv_openai_receipt(json_t *reply, const srv_answer *answer);

/* Fields "stream" and "stream_options"."include_usage". */
bool srv_openai_read_stream(srv_exchange *x, const json_t *body, bool *stream, bool *usage);

/* A failure after a stream has begun: an event {"error": ...}. */
void srv_openai_stream_error(srv_exchange *x, const bitnet_error *err);
void srv_openai_stream_done(srv_exchange *x); /* "data: [DONE]" and the end */

#endif
