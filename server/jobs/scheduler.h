/* scheduler.h - the one owner of the sessions of a model. A thread of its own steps them all
 * together: rows that generate and pieces of prompts in every step.
 *
 * A job is one prompt and one or more continuations of it (choices). Whoever submitted it takes its
 * events, in order, from any one thread. Other jobs never wait for that thread. The job itself does
 * where all jobs together have more events that nobody has taken than there may be, and it more
 * than a megabyte of them; it keeps its slots meanwhile. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobs/bell.h"
#include "bitnet.h"

typedef struct srv_scheduler srv_scheduler;
typedef struct srv_job srv_job;

typedef enum srv_priority { SRV_LOW, SRV_NORMAL, SRV_HIGH, SRV_CRITICAL } srv_priority;

/* Gets the receipt of an answer, a JSON text, on a thread that computes nothing. */
typedef void (*srv_receipt_fn)(void *user, const char *id, const char *text, size_t n_bytes);

typedef struct srv_scheduler_options {
    uint64_t kv_bytes;       /* of the cache shared by all sessions; 0: chosen from free memory */
    uint64_t kv_most;        /* where it is chosen: no more than this; 0: no such bound */
    int n_ctx;               /* longest timeline; 0: what the model was trained with */
    bitnet_kv_policy policy; /* who loses cached prefixes first */
    bitnet_kv_type kv_type;
    int n_tokens;           /* most tokens of a step; 0: 512 */
    int max_active;         /* continuations computed at a time; 0: 64 */
    int max_queued;         /* jobs that may wait; 0: 256. More: srv_job_submit fails with AGAIN */
    size_t max_unread;      /* bytes of events that nobody has taken; 0: 256 MB */
    srv_receipt_fn receipt; /* NULL: no receipts */
    void *receipt_user;
    /* 0: pieces of prompts are as long as the others' steps allow. Else every prompt is divided at
     * multiples of this number, itself a multiple of 64, whatever else is computed: on a GPU, with
     * batch_invariant, the bits of an answer are then those of the prompt alone. Cached prefixes
     * are reused up to such a multiple, and answers are not cached */
    int piece;
} srv_scheduler_options;

/* Bytes of the cache for one timeline of n_ctx tokens (0: as many as the model was trained with),
 * of the options' type. Fails: as bitnet_session_memory. */
bitnet_status srv_scheduler_timeline(const bitnet_engine *engine,
                                     const srv_scheduler_options *options, int n_ctx, uint64_t *out,
                                     bitnet_error *err);
/* Opens cache, batch and thread. Requires: the engine outlives it. */
bitnet_status srv_scheduler_open(bitnet_engine *engine, const srv_scheduler_options *options,
                                 srv_scheduler **out, bitnet_error *err);
/* Ends running jobs with CANCELLED and joins the thread. Jobs must be released first or afterwards;
 * both work. */
void srv_scheduler_close(srv_scheduler *s);
/* No new jobs (submit fails with CANCELLED); running and queued ones go on. */
void srv_scheduler_drain(srv_scheduler *s);

/* What a job computes. Arrays are copied by submit. */
typedef enum srv_job_kind {
    SRV_GENERATE,
    SRV_EMBED, /* hidden states, pooled; no tokens are chosen */
} srv_job_kind;

typedef struct srv_job_options {
    srv_job_kind kind;
    const int32_t *ids; /* the prompt, 1 token at least */
    size_t n_ids;
    int n_choices; /* 1..; the prompt is computed once for all. Choice i draws with seed + i */
    bitnet_sampler_options sampling;
    const bitnet_bias *biases;
    size_t n_biases;
    const char *const *stops;
    size_t n_stops;
    size_t max_tokens, min_tokens; /* max_tokens 0: the prompt alone (prompt_logprobs) */
    bool any_length; /* nobody wished for max_tokens: fewer where the cache has no room for all */
    bool ignore_eos, print_special;
    /* Special tokens that are not printed may be marks: what is held back for a stop string comes
     * with them, before the mark, and no stop string reaches across */
    bool marks;
    int n_top; /* most likely ids told with each token; -1: not even its own log-probability */
    bool prompt_logprobs; /* SRV_PROMPT events for every prompt token but the first, which has none
                           */
    bool mean_pooling;    /* EMBED: the mean of all positions; else the last one */
    /* Restricts every choice; ends then come where it allows them, whatever ignore_eos and
     * min_tokens say. It may be closed after submit. NULL: free */
    bitnet_grammar *grammar;
    srv_priority priority;
    double deadline_ms; /* from now; 0: none */
    uint64_t scope;     /* whose prefixes it may reuse; 0: its own only, nothing is published */
    bitnet_cancel_fn cancel; /* asked now and then on the scheduler's thread; NULL: nobody */
    void *cancel_user;
    /* NULL: no receipt for this job. Else the scheduler's receipt_fn gets that of choice 0 by this
     * name, soon after SRV_END. Letters, digits, '-' and '_' */
    const char *receipt_id;
} srv_job_options;

void srv_job_options_init(srv_job_options *o);

typedef enum srv_event_kind {
    SRV_PROMPT, /* log-probability of a prompt token: index, id, logprob, top */
    SRV_TOKEN,  /* a chosen token: choice, id, text that may now be shown (possibly none), logprob,
                   top. A token that ends the choice by itself (EOS) is counted and not told */
    SRV_VECTOR, /* EMBED: n floats */
    SRV_FINISH, /* a choice has ended: choice, finish, rest of its text */
    SRV_END,    /* the job has ended: status, usage. Always the last event, and always comes */
} srv_event_kind;

typedef struct srv_usage {
    size_t n_prompt, n_cached; /* tokens of the prompt; of these, those found in the cache */
    size_t n_generated;        /* by all choices, stopping tokens included */
    double queue_ms, prompt_ms, first_token_ms, decode_ms; /* first_token_ms: since submit */
} srv_usage;

/* Texts and arrays live until the next call for the same job. */
typedef struct srv_event {
    srv_event_kind kind;
    int choice;
    size_t index; /* of the token in the prompt, or in the choice's output */
    int32_t id;
    const char *text;
    size_t n_text;
    double logprob;
    const bitnet_logprob *top;
    size_t n_top;
    bitnet_finish finish;
    const char *stop; /* FINISH by a stop string: which; else NULL */
    const float *vector;
    size_t n_vector;
    bitnet_error error; /* END: status OK, or why it failed. CONTEXT: the prompt does not fit */
    srv_usage usage;
} srv_event;

/* Queues a job. Fails: ARGUMENT naming the field, CONTEXT (prompt longer than a timeline may be),
 * AGAIN (the queue is full: try later), CANCELLED (draining), MEMORY. */
bitnet_status srv_job_submit(srv_scheduler *s, const srv_job_options *o, srv_job **out,
                             bitnet_error *err);
/* Waits at most so many milliseconds for the next event. False: none came in time. After SRV_END:
 * false at once. */
bool srv_job_next(srv_job *job, double wait_ms, srv_event *event);
/* From now on this bell is rung when events come, once for all jobs of a step that have it, instead
 * of waking who waits in srv_job_next; NULL: the other way again. Requires: the bell outlives the
 * scheduler. */
void srv_job_listen(srv_job *job, srv_bell *bell);
/* Ends it soon; events of what was done still come, then SRV_END with CANCELLED. Any thread. */
void srv_job_cancel(srv_job *job);
/* Cancels it if it still runs and forgets it; waits for nothing. */
void srv_job_release(srv_job *job);

/* ---- how it is doing; any thread, never waits for a step ---- */

typedef struct srv_load {
    size_t n_queued, n_active,
        n_prompting; /* jobs waiting; choices computed; of these, reading a prompt */
    int max_active, max_queued, n_ctx;
    bitnet_kv_pool_stats kv;
    uint64_t n_steps, n_jobs, n_cancelled, n_failed, n_prompt_tokens, n_cached_tokens, n_tokens;
    double step_ms;      /* recent median */
    double tokens_per_s; /* generated, over the last seconds */
} srv_load;
void srv_scheduler_load(srv_scheduler *s, srv_load *out);

/* One continuation that is computed, for /slots: no text. */
typedef struct srv_slot {
    uint64_t job;
    int choice;
    bool prompting;
    size_t n_prompt, n_done, n_generated;
    double age_ms;
} srv_slot;
size_t srv_scheduler_slots(srv_scheduler *s, srv_slot *out, size_t cap);

/* Seconds until a queued request may hope to begin: for Retry-After. At least 1. */
int srv_scheduler_wait(srv_scheduler *s);

#endif
