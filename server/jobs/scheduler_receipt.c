/* scheduler_receipt.c - receipts of answers, made by a thread of their own: a receipt wants a
 * measurement and a digest of the model's file, and nobody's step shall wait for these. A finished
 * session is kept until its receipt is made, without its blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "jobs/scheduler_impl.h"

enum {
    WAITING_MAX = 1024, /* beyond that, answers have no receipt */
    LATER = 10,         /* the thread's nice value */
    REST_NS = 30000000  /* after a megabyte, which takes half a millisecond */
};

/* What a receipt needs to know of an answer that is over. */
typedef struct note {
    struct note *next;
    char id[80];
    bitnet_session *session;
    int32_t *prompt, *output;
    size_t n_prompt, n_output;
    srv_bytes text;
    bitnet_finish finish;
    uint64_t seed;
    double total_ms, first_token_ms, decode_ms;
} note;

struct srv_scribe {
    bitnet_receipt *receipt;
    srv_receipt_fn give;
    void *user;
    const atomic_bool *busy; /* the scheduler has something to compute */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    note *first, *last;
    size_t n;
    bool closing;
};

/* ---- on its thread ---- */

static void free_note(note *n)
{
    bitnet_session_close(n->session);
    free(n->prompt);
    free(n->output);
    srv_bytes_free(&n->text);
    free(n);
}

static const char *finish_of(bitnet_finish f)
{
    if (f == BITNET_FINISH_STOP_STRING || f == BITNET_FINISH_STOP_ID)
        return "stop";
    return f == BITNET_FINISH_CONTEXT ? "length" : bitnet_finish_text(f);
}

static bool add(void *text, const void *bytes, size_t n)
{
    return srv_bytes_add(text, bytes, n);
}

static void write_note(srv_scribe *w, const note *n)
{
    bitnet_receipt_facts f;
    bitnet_receipt_facts_init(&f);
    f.seed = n->seed;
    f.n_generated = f.n_output = n->n_output;
    f.total_ms = n->total_ms;
    f.first_token_ms = n->first_token_ms;
    f.decode_ms = n->decode_ms;
    f.session = n->session;
    f.prompt_ids = n->prompt;
    f.n_prompt = n->n_prompt;
    f.output_ids = n->output;
    f.text = n->text.data;
    f.n_text = n->text.tail;
    f.finish = finish_of(n->finish);
    f.command = "serve";
    srv_bytes text = {0};
    if (bitnet_receipt_write_to(w->receipt, &f, add, &text, NULL) == BITNET_OK)
        w->give(w->user, n->id, text.data, text.tail); /* else there is none */
    srv_bytes_free(&text);
}

static bool is_closing(srv_scribe *w)
{
    pthread_mutex_lock(&w->lock);
    bool closing = w->closing;
    pthread_mutex_unlock(&w->lock);
    return closing;
}

/* The digest of a large file takes a second of CPU time, which answers would feel: while there are
 * some it rests between two pieces. */
static bool rest(void *scribe, uint64_t done, uint64_t total)
{
    srv_scribe *w = scribe;
    (void)done, (void)total;
    if (atomic_load(w->busy) && !is_closing(w))
        nanosleep(&(struct timespec){0, REST_NS}, NULL);
    return true;
}

/* What every receipt has in common is found once, before the first answer needs it, by a receipt
 * that nobody gets: also how fast weights can be read, which the whole pool measures. */
static void measure(srv_scribe *w)
{
    srv_bytes text = {0};
    if (bitnet_receipt_digest(w->receipt, rest, w, NULL) == BITNET_OK)
        bitnet_receipt_write_to(w->receipt, NULL, add, &text, NULL);
    srv_bytes_free(&text);
}

static note *next(srv_scribe *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->closing)
        pthread_cond_wait(&w->work, &w->lock);
    note *n = w->first;
    if (n) {
        w->first = n->next;
        w->last = w->first ? w->last : NULL;
        w->n--;
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void *work(void *scribe)
{
    srv_scribe *w = scribe;
    note *n;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LATER); /* answers first; it works without, too */
    measure(w);
    while ((n = next(w))) {
        write_note(w, n);
        free_note(n);
    }
    return NULL;
}

/* ---- for the scheduler ---- */

bitnet_status srv_scribe_open(const srv_scheduler *s, srv_scribe **out, bitnet_error *err)
{
    srv_scribe *w = calloc(1, sizeof *w);
    if (!w)
        return srv_no_memory(err);
    w->give = s->o.receipt;
    w->user = s->o.receipt_user;
    w->busy = &s->busy;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    bitnet_status st = bitnet_receipt_open(s->engine, &w->receipt, err);
    if (st == BITNET_OK && pthread_create(&w->thread, NULL, work, w) != 0)
        st = srv_error(err, BITNET_MEMORY, "no thread could be started for receipts");
    if (st == BITNET_OK) {
        *out = w;
        return st;
    }
    bitnet_receipt_close(w->receipt);
    free(w);
    return st;
}

void srv_scribe_close(srv_scribe *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    bitnet_receipt_close(w->receipt);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static note *note_of(srv_choice *c, bitnet_finish finish)
{
    const srv_job *job = c->job;
    note *n = calloc(1, sizeof *n);
    if (!n || !(n->prompt = malloc(job->o.n_ids * sizeof *n->prompt))) {
        free(n);
        return NULL;
    }
    memcpy(n->prompt, job->o.ids, job->o.n_ids * sizeof *n->prompt);
    snprintf(n->id, sizeof n->id, "%s", job->receipt_id);
    n->n_prompt = job->o.n_ids;
    n->session = c->session;
    n->output = c->ids;
    n->n_output = c->n_made;
    n->text = c->text;
    n->finish = finish;
    n->seed = job->o.sampling.seed;
    n->total_ms = srv_now_ms() - job->submitted_ms;
    n->first_token_ms = job->usage.first_token_ms;
    n->decode_ms = c->first_ms > 0 ? job->submitted_ms + n->total_ms - c->first_ms : 0;
    c->session = NULL;
    c->ids = NULL;
    c->text = (srv_bytes){0};
    bitnet_session_on_cancel(n->session, NULL, NULL);
    bitnet_session_rewind(n->session, 0, NULL); /* its blocks are for others */
    return n;
}

void srv_scribe_write(srv_scribe *w, srv_choice *c, bitnet_finish finish)
{
    pthread_mutex_lock(&w->lock);
    note *n = w->n < WAITING_MAX ? note_of(c, finish) : NULL;
    if (n) {
        *(w->last ? &w->last->next : &w->first) = n;
        w->last = n;
        w->n++;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
}
