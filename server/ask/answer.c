/* answer.c - events of a job as deltas of an answer: text made valid UTF-8, taken apart into what
 * is said, thought and called. Hides when a client that has gone is noticed. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/ask_impl.h"
#include "http/ids.h"
#include "http/short_memory.h"
#include "jobs/clock.h"
#include "server.h"

#define WAIT_MS 50.0 /* a client that has gone is noticed after so long */

typedef struct voice { /* one choice */
    srv_split *split;
    double token_s; /* when its last token came; 0: none came */
    bool called;    /* its only call is whole: nothing else is told */
    char tool_id[SRV_ID_MAX];
} voice;

struct srv_answer {
    srv_exchange *x;
    srv_model *model;
    srv_prompt prompt;
    srv_job *job;
    srv_job_kind kind;
    voice *voices;
    int n_voices;
    char receipt[40]; /* "": none */
    srv_event event;  /* the one that deltas are made from */
    bool has_event;   /* it is not used up */
    bool has_token;   /* its token was not told */
    srv_delta delta;  /* made from it */
    bool has_delta;   /* it was not handed out */
    bool over, told_end, given_up;
    srv_textbuf text; /* its text as UTF-8 */
    bool no_room;
    double begun_s; /* when it was asked */
};

static double now_s(void)
{
    return srv_clock_ms() / 1e3;
}

/* ---- opening and closing ---- */

static bool open_voices(srv_answer *w)
{
    w->voices = calloc((size_t)w->n_voices, sizeof *w->voices);
    if (!w->voices)
        return false;
    for (int i = 0; i < w->n_voices; i++)
        if (!(w->voices[i].split = srv_split_open(&w->prompt.split)))
            return false;
    return true;
}

static void close_voices(srv_answer *w)
{
    for (int i = 0; w->voices && i < w->n_voices; i++)
        srv_split_close(w->voices[i].split);
    free(w->voices);
}

srv_answer *srv_answer_open(srv_exchange *x, srv_model *model, srv_prompt *prompt, srv_job *job,
                            const srv_job_options *options)
{
    srv_answer *w = calloc(1, sizeof *w);
    if (w) {
        *w = (srv_answer){.x = x, .job = job, .kind = options->kind, .begun_s = now_s()};
        w->n_voices = options->n_choices;
        w->prompt.split = prompt->split;
    }
    if (!w || !open_voices(w)) {
        srv_job_release(job);
        if (w)
            close_voices(w);
        free(w);
        return NULL;
    }
    w->model = model;
    w->prompt = *prompt;
    if (options->receipt_id)
        strncpy(w->receipt, options->receipt_id, sizeof w->receipt - 1);
    return w;
}

void srv_answer_close(srv_answer *w)
{
    if (!w)
        return;
    srv_job_release(w->job);
    close_voices(w);
    srv_prompt_free(&w->prompt);
    srv_textbuf_free(&w->text);
    srv_model_release(srv_server_of(w->x)->models, w->model);
    free(w);
}

const srv_model *srv_answer_model(const srv_answer *w)
{
    return w->model;
}

const char *srv_answer_receipt(const srv_answer *w)
{
    return w->receipt[0] ? w->receipt : NULL;
}

void srv_answer_tell_receipt(srv_exchange *x, const srv_answer *w)
{
    if (w->receipt[0])
        srv_reply_header(x, "x-bitnet-receipt", w->receipt);
}

size_t srv_answer_prompt_tokens(const srv_answer *w)
{
    return w->prompt.n_ids;
}

const int32_t *srv_answer_prompt(const srv_answer *w, size_t *n)
{
    *n = w->prompt.n_ids;
    return w->prompt.ids;
}

/* ---- events ---- */

/* Counts an event that has come. */
static void count(srv_answer *w)
{
    srv_metrics *metrics = srv_server_of(w->x)->metrics;
    const srv_usage *u = &w->event.usage;
    if (w->event.kind == SRV_TOKEN) {
        voice *v = &w->voices[w->event.choice];
        double now = now_s();
        if (v->token_s > 0)
            srv_metrics_token(metrics, now - v->token_s);
        else
            srv_metrics_first_token(metrics, now - w->begun_s);
        v->token_s = now;
    } else if (w->event.kind == SRV_END) {
        srv_metrics_inference(metrics, (u->queue_ms + u->prompt_ms + u->decode_ms) / 1e3);
        srv_count_tokens(w->x, u->n_prompt, u->n_generated);
    }
}

/* Takes the next event if it comes in time; a client that has gone ends the job, whose last event
 * then comes. */
static bool take_event(srv_answer *w, double wait_ms)
{
    w->has_event = false; /* the one before is used up, and overwritten even if none comes */
    if (!w->given_up && srv_gone(w->x)) { /* also while events come one after the other */
        w->given_up = true;
        srv_job_cancel(w->job);
    }
    if (!srv_job_next(w->job, wait_ms, &w->event))
        return false;
    w->has_event = true;
    w->has_token = w->event.kind == SRV_TOKEN;
    count(w);
    return true;
}

/* Marks that models write as special tokens, whose text is otherwise not shown. */
static const char *mark_of(const srv_answer *w, int32_t id)
{
    static const char *const marks[] = {"<think>", "</think>", "<tool_call>", "</tool_call>",
                                        "[TOOL_CALLS]"};
    size_t n = 0;
    if (w->prompt.split.style == SRV_TOOLS_NONE && !w->prompt.split.reasoning)
        return NULL;
    if (!bitnet_token_special(w->model->engine, id))
        return NULL;
    const char *bytes = bitnet_token_bytes(w->model->engine, id, &n);
    for (size_t i = 0; bytes && i < sizeof marks / sizeof *marks; i++)
        if (strlen(marks[i]) == n && memcmp(marks[i], bytes, n) == 0)
            return marks[i];
    return NULL;
}

/* Hands the event's text to the choice's split. */
static void take_text(srv_answer *w)
{
    srv_event *e = &w->event;
    srv_split *split = w->voices[e->choice].split;
    const char *mark = e->kind == SRV_TOKEN ? mark_of(w, e->id) : NULL;
    srv_textbuf_drop(&w->text, w->text.n);
    srv_textbuf_utf8(&w->text, e->text ? e->text : "", e->text ? e->n_text : 0);
    if (mark)
        srv_textbuf_str(&w->text, mark);
    w->no_room |= w->text.failed || !srv_split_push(split, w->text.data, w->text.n);
    if (e->kind == SRV_FINISH)
        w->no_room |= !srv_split_finish(split);
}

/* ---- deltas ---- */

/* What the client does not want to hear of: a delta without text stands for it. */
static bool is_untold(const srv_answer *w, const srv_piece *piece, voice *v)
{
    bool untold = v->called || (piece->kind == SRV_DELTA_REASONING && w->prompt.split.hidden);
    v->called |= w->prompt.split.one_call && piece->kind == SRV_DELTA_TOOL_END && !piece->cut;
    return untold;
}

static void fill_piece(srv_answer *w, const srv_piece *piece, srv_delta *d)
{
    voice *v = &w->voices[w->event.choice];
    if (is_untold(w, piece, v)) {
        d->kind = SRV_DELTA_TEXT;
        return;
    }
    d->kind = piece->kind;
    d->tool_index = piece->tool_index;
    d->text = piece->text;
    d->n_text = piece->n_text;
    d->cut = piece->cut;
    if (piece->kind == SRV_DELTA_TOOL_BEGIN) {
        srv_id(v->tool_id, "call_");
        d->tool_name = piece->text;
        d->tool_id = v->tool_id;
        d->text = "";
        d->n_text = 0;
    }
}

/* A call without an end is told as an answer that was too long, whatever ended it: no client takes
 * it for a whole one. */
static const char *finish_word(const srv_answer *w)
{
    const srv_split *split = w->voices[w->event.choice].split;
    if (w->voices[w->event.choice].called)
        return "tool_calls";
    bool full = w->event.finish == BITNET_FINISH_LENGTH ||
                w->event.finish == BITNET_FINISH_CONTEXT || srv_split_cut(split);
    if (!full && srv_split_calls(split) > 0)
        return "tool_calls";
    return full ? "length" : "stop";
}

/* The next delta of an event with text; false: it is used up. */
static bool text_delta(srv_answer *w, srv_delta *d)
{
    srv_piece piece;
    srv_split *split = w->voices[w->event.choice].split;
    if (srv_split_next(split, &piece))
        fill_piece(w, &piece, d);
    else if (w->has_token)
        *d = (srv_delta){.kind = SRV_DELTA_TEXT, .text = ""};
    else
        return false;
    d->has_token = w->has_token;
    w->has_token = false;
    return true;
}

static bool finish_delta(srv_answer *w, srv_delta *d)
{
    if (text_delta(w, d))
        return true;
    d->kind = SRV_DELTA_FINISH;
    d->finish = finish_word(w);
    const voice *v = &w->voices[w->event.choice];
    d->stop = v->called || srv_split_cut(v->split) ? NULL : w->event.stop;
    w->has_event = false;
    return true;
}

static bool end_delta(srv_answer *w, srv_delta *d)
{
    d->kind = SRV_DELTA_END;
    w->over = true;
    w->has_event = false;
    if (w->no_room && w->event.error.status == BITNET_OK) {
        w->event.error.status = BITNET_MEMORY;
        strncpy(w->event.error.message, "out of memory", sizeof w->event.error.message - 1);
    }
    return true;
}

/* Makes the next delta of the event at hand; false: it is used up. */
static bool make_delta(srv_answer *w, srv_delta *d)
{
    *d = (srv_delta){.choice = w->event.choice, .text = "", .event = &w->event};
    switch (w->event.kind) {
    case SRV_TOKEN:
        return text_delta(w, d);
    case SRV_FINISH:
        return finish_delta(w, d);
    case SRV_END:
        return end_delta(w, d);
    default:
        d->kind = w->event.kind == SRV_PROMPT ? SRV_DELTA_PROMPT : SRV_DELTA_VECTOR;
        w->has_event = false;
        return true;
    }
}

/* Makes the next delta of what has come. */
static bool next_delta(srv_answer *w)
{
    w->has_delta = w->has_event && make_delta(w, &w->delta);
    if (w->has_delta) {
        w->delta.event = &w->event;
        w->delta.choice = w->event.choice;
    }
    return w->has_delta;
}

bool srv_answer_ready(srv_answer *w, double wait_ms)
{
    double end = wait_ms > 0 ? now_s() + wait_ms / 1e3 : 0;
    while (!w->over && !w->has_delta && !next_delta(w)) {
        double left = wait_ms > 0 ? (end - now_s()) * 1e3 : 0;
        if (take_event(w, left < 0 ? 0 : left < WAIT_MS ? left : WAIT_MS)) {
            if (w->event.kind == SRV_TOKEN || w->event.kind == SRV_FINISH)
                take_text(w);
        } else if (left <= 0) {
            return false;
        }
    }
    return true;
}

bool srv_answer_soon(srv_answer *w)
{
    double most = srv_server_of(w->x)->config->ping_s * 1e3;
    return most <= 0 || srv_answer_ready(w, most);
}

bool srv_answer_next(srv_answer *w, srv_delta *delta)
{
    if (w->told_end)
        return false;
    while (!srv_answer_ready(w, 1e3))
        ;
    *delta = w->delta;
    w->has_delta = false;
    w->told_end = w->delta.kind == SRV_DELTA_END;
    return true;
}

/* ---- all of them ---- */

typedef struct telling {
    srv_answer *w;
    srv_delta_fn fn;
    void *user;
    srv_delta *last;
    bool over;
} telling;

/* Hands out the next delta; false: it was the last one. */
static bool tell_next(telling *t)
{
    srv_answer_next(t->w, t->last);
    t->over = t->w->told_end || !t->fn(t->user, t->last);
    return !t->over;
}

/* Tells what has come. False: it is over, or the client is behind and gets the request's own
 * thread.
 */
static bool tell(void *telling_)
{
    telling *t = telling_;
    bool quick = true;
    srv_memory_forget(); /* what this thread told others */
    while (quick && srv_answer_ready(t->w, 0)) {
        if (!tell_next(t))
            return false;
        quick = srv_stream_room(t->w->x);
    }
    return srv_stream_flush(t->w->x) && quick;
}

static void listen(void *telling_, srv_bell *bell)
{
    telling *t = telling_;
    srv_job_listen(t->w->job, bell);
}

bool srv_answer_each(srv_answer *w, srv_delta_fn fn, void *user, srv_delta *last)
{
    telling t = {w, fn, user, last, w->told_end};
    srv_tellers *tellers = srv_server_of(w->x)->tellers;
    if (tellers && !t.over) {
        srv_stream_gather(w->x, true);
        srv_tellers_run(tellers, &(srv_telling){tell, listen, &t});
    }
    if (!w->told_end)
        srv_stream_gather(w->x, false);
    while (!t.over)
        tell_next(&t);
    return w->told_end;
}
