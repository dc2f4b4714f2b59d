/* scheduler_impl.h - what the files of the scheduler share: jobs, their choices, and the scheduler
 * itself. Nobody else includes it.
 *
 * Who may touch what: fields under "waiting" belong to whoever holds the scheduler's lock, those
 * under "events" to whoever holds the job's lock, everything else of a job to the thread that
 * submits it until it is queued and to the scheduler's thread from then on. A thread that holds a
 * job's lock takes no other. */
#ifndef SRV_SCHEDULER_IMPL_H
#define SRV_SCHEDULER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "jobs/scheduler_pace.h"
#include "jobs/scheduler.h"

enum {
    SRV_BLOCK = 64,          /* positions of a block of the cache */
    SRV_UNREAD = 1024 * 1024 /* bytes of events that a job may have untaken in any case */
};

/* Bytes in a line: appended at the end, taken from the front. */
typedef struct srv_bytes {
    char *data;
    size_t head, tail, cap; /* [head, tail) is in use */
} srv_bytes;

/* One continuation. */
typedef struct srv_choice {
    srv_job *job;
    int index;
    bool live;               /* it has a session and has not finished */
    bool left;               /* its slot and blocks were given back */
    bitnet_session *session; /* NULL: not begun, or given back */
    bitnet_sampler *sampler;
    bitnet_stream *stream;
    bitnet_matcher *matcher; /* of a grammar; NULL: free */
    int32_t next;            /* chosen, not yet appended */
    size_t n_made;           /* tokens chosen */
    bool no_ends;            /* ends are forbidden until min_tokens are made */
    uint64_t waits;          /* its turn among those that wait for a mask; 0: it does not */
    double mask_ms;          /* what masks have taken lately */
    int32_t *ids;            /* all n_made of them, for the receipt; NULL: not wanted */
    srv_bytes text;          /* the same */
    double first_ms;         /* when its first token came */
} srv_choice;

typedef enum srv_job_state { SRV_JOB_QUEUED, SRV_JOB_ACTIVE, SRV_JOB_OVER } srv_job_state;

struct srv_job {
    srv_scheduler *s;
    atomic_int refs; /* the submitter's and the scheduler's */
    uint64_t id;
    srv_job_options o; /* arrays are the job's own */
    char *receipt_id;
    double submitted_ms, end_ms; /* end_ms: the deadline, or INFINITY */
    atomic_bool cancelled;
    double asked_ms; /* when o.cancel was last asked */
    /* waiting */
    srv_job *prev, *next;
    srv_job_state state;
    /* computing */
    srv_choice *choices; /* [o.n_choices] */
    int n_open;          /* choices that have not finished */
    bool prompting, over;
    bool held;                  /* in this step: its reader is behind */
    size_t n_done;              /* prompt tokens computed */
    size_t n_piece;             /* of these tokens in the coming step */
    size_t most;                /* tokens that one choice may make */
    size_t n_shared, n_private; /* blocks reserved: for all choices, for each */
    uint64_t seq;               /* order of admission */
    double begun_ms;
    srv_usage usage;
    double *sum;     /* EMBED: of hidden states, [n_embd] */
    srv_bytes stage; /* events of the step, and of those before that were not told */
    double told_ms;  /* the last time they were; 0: never */
    bool no_room;    /* an event found no memory: the job fails */
    /* events */
    pthread_mutex_t lock;
    pthread_cond_t come;
    srv_bell *bell; /* rung instead of signalling `come`; NULL: none */
    srv_bytes queue;
    atomic_size_t n_unread; /* bytes in it, for any thread */
    float *vector;
    size_t n_vector;
    bool ended; /* error and usage are final */
    bitnet_error error;
    srv_usage final;
    /* of the thread that takes the events */
    srv_bytes taken;
    bool told_end;
};

/* Jobs that wait, in the order they came, and when each scope was last served. */
typedef struct srv_served {
    uint64_t scope, tick;
} srv_served;
enum { SRV_SCOPES = 256 };
typedef struct srv_queue {
    srv_job *first, *last;
    size_t n;
    srv_served served[SRV_SCOPES];
    size_t n_served;
    uint64_t tick;
} srv_queue;

/* An item of a step: whose it is. */
typedef struct srv_part {
    srv_job *job;
    srv_choice *choice;
    size_t n_piece; /* tokens of the prompt; 0: a generated token */
} srv_part;

typedef struct srv_scribe srv_scribe; /* scheduler_receipt.c */

enum { SRV_SECONDS = 8 };
/* What srv_scheduler_load tells: under its own lock. */
typedef struct srv_figures {
    pthread_mutex_t lock;
    srv_load load;
    srv_slot *slots; /* [max_active] */
    size_t n_slots;
    double steps_ms[15];
    uint64_t second[SRV_SECONDS], tokens[SRV_SECONDS]; /* tokens made in these seconds */
    double job_ms;                                     /* how long jobs take, on average */
} srv_figures;

struct srv_scheduler {
    atomic_int refs; /* the owner's, and one for every job */
    bitnet_engine *engine;
    const bitnet_model_info *info;
    srv_scheduler_options o; /* defaults filled in */
    bitnet_kv_pool *pool;
    bitnet_batch *batch;
    int n_tokens;    /* of a step */
    size_t n_blocks; /* of the pool */
    size_t limit;    /* longest timeline: of n_ctx, and of the pool */
    int32_t *ends;   /* ids that the model ends with */
    size_t n_ends;
    srv_scribe *scribe; /* NULL: no receipts */
    pthread_t thread;
    bool started;
    atomic_bool closing;
    atomic_bool busy;       /* there is something to compute */
    atomic_size_t n_unread; /* bytes of events that nobody has taken, of all jobs */
    /* waiting */
    pthread_mutex_t lock;
    pthread_cond_t work;
    srv_queue queue;
    bool draining;
    uint64_t last_id;
    /* computing */
    srv_job **jobs; /* [max_active] in the order of admission */
    size_t n_jobs;
    int n_slots;       /* choices that active jobs have or will have */
    size_t n_reserved; /* blocks */
    uint64_t seq;
    srv_pace pace;
    size_t credit; /* prompt tokens that the others' steps have left, where pieces are fixed */
    bitnet_batch_item *items; /* [max_active] */
    srv_part *parts;          /* [max_active] */
    size_t n_items;
    size_t n_made;      /* tokens chosen in this step */
    uint64_t last_wait; /* the last turn that was given for a mask */
    double step_ms;     /* the last step */
    double mask_debt;   /* milliseconds that slow masks have taken beyond what they may */
    bitnet_logprob *tops, *chosen; /* scratch of a step */
    size_t cap_tops, cap_chosen;
    float *hidden;
    size_t cap_hidden;
    srv_figures figures;
};

double srv_now_ms(void);
/* Sets err and returns the status. */
bitnet_status srv_error(bitnet_error *err, bitnet_status status, const char *format, ...)
    BITNET_PRINTF(3, 4);
bitnet_status srv_no_memory(bitnet_error *err);
/* Room for n elements behind *array, which may move; false: no memory, nothing changed. */
bool srv_room(void *array, size_t *cap, size_t n, size_t each);

/* ---- scheduler_bytes.c ---- */
bool srv_bytes_add(srv_bytes *b, const void *bytes, size_t n);
void srv_bytes_free(srv_bytes *b);

/* ---- scheduler_queue.c: under the scheduler's lock ---- */
void srv_queue_add(srv_queue *q, srv_job *job);
void srv_queue_return(srv_queue *q, srv_job *job); /* to the front, where it came from */
void srv_queue_remove(srv_queue *q, srv_job *job);
/* Whose turn it is; NULL: nobody waits. The job stays in the queue. */
srv_job *srv_queue_next(const srv_queue *q, double now_ms);
/* Notes that the job's scope has had its turn. */
void srv_queue_served(srv_queue *q, uint64_t scope);

/* ---- scheduler_job.c ---- */
void srv_job_drop(srv_job *job); /* one reference less */
/* Its submitter wants no more of it: cancelled, deadline, callback. *why gets a text. */
bool srv_job_unwanted(srv_job *job, double now_ms, const char **why);
bool srv_job_unwanted_fn(void *job); /* as a bitnet_cancel_fn, of sessions */
void srv_scheduler_unref(srv_scheduler *s);

/* ---- scheduler_events.c ---- */
bool srv_event_prompt(srv_job *job, size_t index, bitnet_logprob token, const bitnet_logprob *top,
                      size_t n_top);
typedef struct srv_told {
    int32_t id;
    double logprob;
    const bitnet_logprob *top;
    size_t n_top;
} srv_told;
bool srv_event_token(srv_choice *c, const srv_told *told, const char *text, size_t n_text);
bool srv_event_finish(srv_choice *c, bitnet_finish finish, int stop, const char *text,
                      size_t n_text);
void srv_event_vector(srv_job *job, float *vector, size_t n); /* takes it over */
/* Hands what was staged to whoever takes the events, and wakes it, unless it has a bell: that one
 * is returned, for the caller to ring. NULL: nothing is left to do. */
srv_bell *srv_events_flush(srv_job *job);
/* The last event. Needs no memory. */
void srv_events_end(srv_job *job, const bitnet_error *error);

/* ---- scheduler_admit.c: on the scheduler's thread ---- */
/* The most tokens each choice may make, and blocks for them. Fails: CONTEXT. */
bitnet_status srv_admit_plan(const srv_scheduler *s, srv_job *job, bitnet_error *err);
/* Begins as many queued jobs as there is room for; ends queued ones that nobody wants. */
void srv_admit(srv_scheduler *s);

/* ---- scheduler_choice.c: on the scheduler's thread, but for _open ---- */
bitnet_status srv_choice_open(srv_scheduler *s, srv_choice *c, bitnet_error *err);
void srv_choice_close(srv_choice *c);
/* The prompt is computed; `told` is what choice 0 chose. Begins the other choices. */
void srv_choices_begin(srv_scheduler *s, srv_job *job, const srv_told *told);
void srv_choice_take(srv_scheduler *s, srv_choice *c, const srv_told *told);
/* Restricts what follows c->next, or finishes the choice where nothing may. */
void srv_choice_restrict(srv_scheduler *s, srv_choice *c);
void srv_choice_finish(srv_scheduler *s, srv_choice *c, bitnet_finish finish, int stop);

/* ---- scheduler_end.c: on the scheduler's thread ---- */
/* Ends a job that is active: OK, or why it failed. It is removed by srv_sweep. */
void srv_job_end(srv_scheduler *s, srv_job *job, bitnet_status status, const char *format, ...)
    BITNET_PRINTF(4, 5);
/* A choice needs its session, blocks and slot no more. */
void srv_choice_leave(srv_scheduler *s, srv_choice *c, bitnet_finish finish);
void srv_sweep(srv_scheduler *s);

/* ---- scheduler_step.c ---- */
void srv_step(srv_scheduler *s);
/* scheduler_masks.c: computes what choices may say next that have waited for it, as many as time
 * allows. */
void srv_masks(srv_scheduler *s);

/* ---- scheduler_receipt.c ---- */
bitnet_status srv_scribe_open(const srv_scheduler *s, srv_scribe **out, bitnet_error *err);
/* Gives what is waiting, then ends. */
void srv_scribe_close(srv_scribe *w);
/* Takes over session, ids and text of the choice, which is over. */
void srv_scribe_write(srv_scribe *w, srv_choice *c, bitnet_finish finish);

/* ---- scheduler_load.c ---- */
bool srv_figures_open(srv_figures *f, const srv_scheduler *s);
void srv_figures_close(srv_figures *f);
void srv_figures_step(srv_scheduler *s, double ms, size_t n_prompt);
void srv_figures_slots(srv_scheduler *s);
void srv_figures_queue(srv_scheduler *s); /* under the scheduler's lock */
void srv_figures_end(srv_scheduler *s, const srv_job *job, bitnet_status status);

#endif
