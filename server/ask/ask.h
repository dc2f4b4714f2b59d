/* ask.h - a question and its answer in no API's words. Each API translates its request into an ask,
 * and the deltas of the answer into its own events; everything between is here: chat template,
 * tokenizing, limits, tools, structured output, splitting of reasoning and tool calls, receipts. */
#ifndef SRV_ASK_H
#define SRV_ASK_H

#include "http/exchange.h"
#include "jobs/models.h"

/* What the request's API calls its fields, for errors about them. NULL: as OpenAI's chat does. */
typedef struct srv_words {
    const char *said;     /* what is continued: "messages", or "prompt" where it is no messages */
    const char *form;     /* "response_format" */
    const char *stop;     /* "stop"; read under this name, too */
    const char *too_long; /* a format: the prompt has %zu tokens, of at most %zu */
    const char *no_tools; /* how tools are turned off: ", or set tool_choice to \"none\"" */
} srv_words;

/* One request. Begin with srv_ask_init, fill, srv_ask_start; srv_ask_free in the end, also after a
 * failure. JSON values are borrowed from the request's body. */
typedef struct srv_ask {
    const char *model; /* NULL: the first */
    srv_words words;
    /* what to continue: one of these three */
    json_t
        *messages; /* OpenAI's form: role, content (text or parts), tool_calls, tool_call_id ... */
    const char *text; /* as it is, no template; n_text bytes */
    size_t n_text;
    const int32_t *ids; /* as they are */
    size_t n_ids;
    bool drop_oldest;            /* of messages that are too long together; the system's stay */
    bool no_bos;                 /* of text */
    json_t *tools, *tool_choice; /* OpenAI's form, or NULL */
    json_t *template_kwargs;     /* more variables for the template, or NULL */
    json_t *schema;              /* the answer is JSON of this schema */
    bool json_object;            /* or any JSON object */
    const char *grammar;         /* or a text of this grammar (GBNF) */
    bool split_reasoning;        /* <think>...</think> comes as reasoning */
    bool hide_reasoning;         /* or as nothing */
    bool one_call;               /* the answer is over with its first call */
    bool whole_calls;            /* a call comes in one piece, and as text if it is no JSON */
    srv_job_options
        job; /* sampling, stops, counts, log-probabilities; ids and grammar are set by _start */
    bool want_receipt;        /* where the server keeps receipts; so from _init on */
    bool no_tokens;           /* max_tokens may be 0 */
    bool random_seed;         /* no seed was given: so from _init on */
    bool penalise_prompt;     /* presence and frequency count its last tokens, too */
    const char **owned_stops; /* of srv_ask_read_sampling */
    bitnet_bias *owned_biases;
    json_t *owned_kwargs;
} srv_ask;

typedef enum srv_delta_kind {
    SRV_DELTA_PROMPT, /* one prompt token with its log-probability (job.prompt_logprobs) */
    SRV_DELTA_TEXT,   /* text of the answer; may be empty where only token and logprob are new */
    SRV_DELTA_REASONING,
    SRV_DELTA_TOOL_BEGIN, /* tool: index, name, call id */
    SRV_DELTA_TOOL_ARGS,  /* a piece of its arguments (JSON text) */
    SRV_DELTA_TOOL_END,
    SRV_DELTA_VECTOR,
    SRV_DELTA_FINISH, /* of one choice */
    SRV_DELTA_END,    /* of all: always last */
} srv_delta_kind;

typedef struct srv_delta {
    srv_delta_kind kind;
    int choice;
    const char *text; /* n_text bytes, valid UTF-8 */
    size_t n_text;
    bool has_token; /* event: the token this came with */
    int tool_index;
    const char *tool_name, *tool_id;
    bool cut;               /* TOOL_END: the arguments have no end, or are no JSON */
    const char *finish;     /* FINISH: "stop", "length", "tool_calls" */
    const char *stop;       /* FINISH: the stop string that ended it, or NULL */
    const srv_event *event; /* what it was made from; of END: usage and error */
} srv_delta;

typedef struct srv_answer srv_answer;

void srv_ask_init(srv_ask *a);
void srv_ask_free(srv_ask *a);
/* Renders, tokenizes, compiles, queues. On failure the client has been told (srv_fail) and false is
 * returned. */
bool srv_ask_start(srv_exchange *x, srv_ask *a, srv_answer **out);
/* Waits for the next delta. When the client goes away the job is cancelled; END comes in any case.
 */
bool srv_answer_next(srv_answer *answer, srv_delta *delta);
/* Calls fn for every delta but END, until it returns false. That happens on a thread that does this
 * for many answers, while the caller sleeps: fn must not wait for anything. What fn writes into a
 * stream is gathered, and sent when no more has come; a client that does not take it is told by the
 * calling thread from then on. Returns whether END came; *last is the last delta, whose texts live
 * until the next call for this answer. A stream that has heard of END still gathers: what is said
 * last goes with it. */
typedef bool (*srv_delta_fn)(void *user, const srv_delta *delta);
bool srv_answer_each(srv_answer *answer, srv_delta_fn fn, void *user, srv_delta *last);
/* Waits at most so many milliseconds. True: srv_answer_next will not wait. */
bool srv_answer_ready(srv_answer *answer, double wait_ms);
/* Waits for the first delta as long as a stream may be silent. False: it takes longer, so the
 * stream is to begin without it. */
bool srv_answer_soon(srv_answer *answer);
/* The model that answers. */
const srv_model *srv_answer_model(const srv_answer *answer);
const char *srv_answer_receipt(const srv_answer *answer); /* id; NULL: none */
/* The same as the reply's header x-bitnet-receipt; before the reply begins. */
void srv_answer_tell_receipt(srv_exchange *x, const srv_answer *answer);
size_t srv_answer_prompt_tokens(const srv_answer *answer);
const int32_t *srv_answer_prompt(const srv_answer *answer, size_t *n);
/* Releases job and model. */
void srv_answer_close(srv_answer *answer);

/* Fields that several APIs share, read from a body into a->job, with their bounds: max_tokens,
 * temperature, top_p, top_k, min_p, typical_p, repetition_penalty, presence_penalty,
 * frequency_penalty, seed, stop, logit_bias, n, priority, timeout_ms. False: a field is wrong, and
 * the client has been told which. */
bool srv_ask_read_sampling(srv_exchange *x, srv_ask *a, json_t *body);
/* Of these priority and timeout_ms alone. */
bool srv_ask_read_priority(srv_exchange *x, srv_ask *a, const json_t *body);

#endif
