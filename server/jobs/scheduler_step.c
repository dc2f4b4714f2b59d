/* scheduler_step.c - one step: every choice that generates and pieces of prompts, together. Hides:
 * how the room for prompts is shared, and what becomes of items that fail. */
#include <stdlib.h>
#include <string.h>

#include "jobs/clock.h"
#include "jobs/scheduler_impl.h"

enum {
    BELLS = 16, /* of one step; more are rung more than once */
    READ_MS = 2 /* between two looks at readers who are behind, while nothing else is to do */
};

/* ---- who gets how much ---- */

static size_t remaining(const srv_job *job)
{
    return job->o.n_ids - job->n_done - job->n_piece;
}

static size_t give(srv_job *job, size_t room)
{
    size_t n = remaining(job) < room ? remaining(job) : room;
    job->n_piece += n;
    return room - n;
}

/* Its reader is behind, and there is no room for more that nobody takes. */
static bool is_held(const srv_scheduler *s, const srv_job *job)
{
    return atomic_load(&job->n_unread) > SRV_UNREAD && atomic_load(&s->n_unread) > s->o.max_unread;
}

/* Its prompt is read on in this step. */
static bool reads(const srv_job *job)
{
    return job->prompting && !job->held;
}

/* The prompt that is done soonest, of those that are not done in this step; the earlier of equals.
 * Jobs stand in the order they began. */
static srv_job *shortest(const srv_scheduler *s)
{
    srv_job *best = NULL;
    for (size_t i = 0; i < s->n_jobs; i++) {
        srv_job *job = s->jobs[i];
        if (reads(job) && remaining(job) && (!best || remaining(job) < remaining(best)))
            best = job;
    }
    return best;
}

/* Half for the prompts that are done soonest, the rest for the one that has been read for longest,
 * what is left for the others: short ones need not wait for long ones, and no one is left behind.
 */
static void share(srv_scheduler *s, size_t room)
{
    size_t first = room - room / 2, rest = room / 2;
    for (srv_job *quick = shortest(s); quick && first; quick = shortest(s))
        first = give(quick, first);
    rest += first;
    for (size_t i = 0; i < s->n_jobs && rest; i++)
        if (reads(s->jobs[i]))
            rest = give(s->jobs[i], rest);
}

/* Up to the next multiple of `piece`, or not at all. */
static size_t give_piece(srv_job *job, size_t piece, size_t room)
{
    size_t n = piece - job->n_done % piece;
    if (n > job->o.n_ids - job->n_done)
        n = job->o.n_ids - job->n_done;
    if (job->n_piece || n > room)
        return room;
    job->n_piece = n;
    return room - n;
}

/* The same with pieces that do not depend on anything else. What a step leaves of its room is kept
 * until it makes a piece. */
static void share_pieces(srv_scheduler *s, size_t room, size_t most)
{
    size_t piece = (size_t)s->o.piece;
    srv_job *quick = shortest(s);
    if (!quick)
        return;
    s->credit = s->credit + room > most ? most : s->credit + room;
    s->credit = give_piece(quick, piece, s->credit);
    for (size_t i = 0; i < s->n_jobs; i++)
        if (reads(s->jobs[i]))
            s->credit = give_piece(s->jobs[i], piece, s->credit);
}

/* Where the prompt stands that has been read for longest. */
static double where(const srv_scheduler *s)
{
    for (size_t i = 0; i < s->n_jobs; i++)
        if (reads(s->jobs[i]))
            return (double)s->jobs[i]->n_done;
    return 0;
}

static size_t n_waiting(const srv_scheduler *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_jobs; i++)
        for (int k = 0; k < s->jobs[i]->o.n_choices; k++)
            n += s->jobs[i]->choices[k].live && s->jobs[i]->choices[k].waits;
    return n;
}

/* Those who wait for a mask wait for the prompts, too. */
static void divide(srv_scheduler *s, size_t n_rows)
{
    size_t most = (size_t)s->n_tokens - n_rows, n_others = n_rows + n_waiting(s);
    size_t room = srv_pace_room(&s->pace, n_others, most, where(s));
    for (size_t i = 0; i < s->n_jobs; i++)
        s->jobs[i]->n_piece = 0;
    if (s->o.piece)
        share_pieces(s, n_others ? room : most, most);
    else
        share(s, room);
}

/* ---- items ---- */

static bitnet_batch_item *add(srv_scheduler *s, srv_choice *c, size_t n_piece)
{
    bitnet_batch_item *item = &s->items[s->n_items];
    s->parts[s->n_items++] = (srv_part){c->job, c, n_piece};
    bitnet_batch_item_init(item);
    item->session = c->session;
    item->status = BITNET_ERROR; /* a step that does nothing writes none */
    return item;
}

/* A token is chosen after the last id, and told as the job wishes. */
static void choose(const srv_job *job, const srv_choice *c, bitnet_batch_item *item)
{
    item->sampler = c->sampler;
    item->want_logprob = job->o.n_top >= 0;
    item->n_top = job->o.n_top > 0 ? (size_t)job->o.n_top : 0;
}

static void add_row(srv_scheduler *s, srv_choice *c)
{
    bitnet_batch_item *item = add(s, c, 0);
    item->ids = &c->next;
    item->n_ids = 1;
    choose(c->job, c, item);
}

/* Log-probabilities of the tokens that follow in the prompt; the last one has none. */
static void want_prompt(srv_scheduler *s, const srv_job *job, bitnet_batch_item *item,
                        size_t *n_chosen)
{
    bitnet_logprob *chosen = s->chosen + *n_chosen;
    for (size_t i = 0; i < item->n_ids; i++) {
        size_t at = job->n_done + i + 1;
        chosen[i].id = at < job->o.n_ids ? job->o.ids[at] : 0;
    }
    item->every_position = true;
    item->chosen = chosen;
    item->n_chosen = 1;
    item->n_top = job->o.n_top > 0 ? (size_t)job->o.n_top : 0;
    *n_chosen += item->n_ids;
}

static void add_piece(srv_scheduler *s, srv_job *job, size_t *n_chosen, size_t *n_hidden)
{
    srv_choice *c = &job->choices[0];
    bitnet_batch_item *item = add(s, c, job->n_piece);
    bool last = job->n_done + job->n_piece == job->o.n_ids;
    item->ids = job->o.ids + job->n_done;
    item->n_ids = job->n_piece;
    if (job->o.kind == SRV_EMBED) {
        item->every_position = job->o.mean_pooling;
        item->hidden = last || item->every_position ? s->hidden + *n_hidden : NULL;
        *n_hidden += (item->every_position ? item->n_ids : 1) * (size_t)s->info->n_embd;
        return;
    }
    if (last && job->o.max_tokens) {
        choose(job, c, item);
        item->keep_logits = job->o.n_choices > 1;
    }
    if (job->o.prompt_logprobs)
        want_prompt(s, job, item, n_chosen);
}

static void place_tops(srv_scheduler *s)
{
    bitnet_logprob *at = s->tops;
    for (size_t i = 0; i < s->n_items; i++) {
        bitnet_batch_item *item = &s->items[i];
        item->top = item->n_top ? at : NULL;
        at += item->n_top * (item->every_position ? item->n_ids : 1);
    }
}

/* Where the prompt tokens of the step stand, on average. */
static double middle(const srv_scheduler *s, size_t n_prompt)
{
    double sum = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        double n = (double)s->parts[i].n_piece;
        sum += n * ((double)s->parts[i].job->n_done + n / 2);
    }
    return n_prompt ? sum / (double)n_prompt : 0;
}

/* Fills s->items. Returns the number of prompt tokens in them. */
static size_t compose(srv_scheduler *s, size_t *n_rows)
{
    size_t n_prompt = 0, n_chosen = 0, n_hidden = 0;
    s->n_items = 0;
    for (size_t i = 0; i < s->n_jobs; i++) {
        srv_job *job = s->jobs[i];
        job->held = is_held(s, job);
        for (int k = 0; !job->prompting && !job->held && k < job->o.n_choices; k++)
            if (job->choices[k].live && !job->choices[k].waits)
                add_row(s, &job->choices[k]);
    }
    *n_rows = s->n_items;
    divide(s, *n_rows);
    for (size_t i = 0; i < s->n_jobs; i++) {
        if (s->jobs[i]->n_piece == 0)
            continue;
        n_prompt += s->jobs[i]->n_piece;
        add_piece(s, s->jobs[i], &n_chosen, &n_hidden);
    }
    place_tops(s);
    return n_prompt;
}

/* ---- what an item brought ---- */

static void tell_prompt(srv_job *job, const bitnet_batch_item *item, size_t n_piece)
{
    for (size_t i = 0; i < n_piece; i++) {
        size_t at = job->n_done + i + 1;
        if (at < job->o.n_ids)
            srv_event_prompt(job, at, item->chosen[i],
                             item->n_top ? item->top + i * item->n_top : NULL, item->n_top);
    }
}

static void pool_hidden(srv_scheduler *s, srv_job *job, const bitnet_batch_item *item)
{
    size_t n_embd = (size_t)s->info->n_embd, n_rows = item->every_position ? item->n_ids : 1;
    for (size_t r = 0; item->hidden && r < n_rows; r++)
        for (size_t k = 0; k < n_embd; k++)
            job->sum[k] += item->hidden[r * n_embd + k];
}

static void tell_vector(srv_scheduler *s, srv_job *job)
{
    size_t n_embd = (size_t)s->info->n_embd;
    double n_rows = job->o.mean_pooling ? (double)job->o.n_ids : 1;
    float *vector = malloc(n_embd * sizeof *vector);
    if (!vector) {
        srv_job_end(s, job, BITNET_MEMORY, "the server is out of memory");
        return;
    }
    for (size_t k = 0; k < n_embd; k++)
        vector[k] = (float)(job->sum[k] / n_rows);
    srv_event_vector(job, vector, n_embd);
    srv_job_end(s, job, BITNET_OK, "%s", "");
}

/* With every position answered, what was asked of the last one stands at the end. */
static srv_told told_by(const bitnet_batch_item *item)
{
    size_t last = item->every_position ? item->n_ids - 1 : 0;
    return (srv_told){.id = item->next,
                      .logprob = item->logprob,
                      .top = item->top ? item->top + last * item->n_top : NULL,
                      .n_top = item->n_top};
}

/* Others may begin with what of the prompt is computed: all of it, at its end; of fixed pieces only
 * whole ones, since those who begin with it promise the bits of such pieces. */
static void publish_prompt(const srv_scheduler *s, const srv_job *job, bitnet_session *session)
{
    size_t piece = (size_t)s->o.piece;
    bool due = piece ? job->n_done % piece == 0 : job->n_done == job->o.n_ids;
    if (due && job->o.scope && job->o.kind == SRV_GENERATE)
        bitnet_session_publish(session, job->o.scope, NULL);
}

static void prompt_done(srv_scheduler *s, srv_job *job, const bitnet_batch_item *item)
{
    job->prompting = false;
    job->usage.prompt_ms = srv_now_ms() - job->begun_ms;
    if (job->o.kind == SRV_EMBED) {
        tell_vector(s, job);
        return;
    }
    srv_told told = told_by(item);
    if (job->o.max_tokens)
        srv_choices_begin(s, job, &told);
    else
        for (int i = 0; i < job->o.n_choices && !job->over; i++)
            srv_choice_finish(s, &job->choices[i], BITNET_FINISH_LENGTH, -1);
}

static void item_done(srv_scheduler *s, const srv_part *part, const bitnet_batch_item *item)
{
    srv_job *job = part->job;
    if (part->n_piece == 0) {
        srv_told told = told_by(item);
        srv_choice_take(s, part->choice, &told);
        return;
    }
    if (job->o.prompt_logprobs && job->o.kind == SRV_GENERATE)
        tell_prompt(job, item, part->n_piece);
    if (job->o.kind == SRV_EMBED)
        pool_hidden(s, job, item);
    job->n_done += part->n_piece;
    publish_prompt(s, job, item->session);
    if (job->n_done == job->o.n_ids)
        prompt_done(s, job, item);
}

/* ---- failures ---- */

static void item_failed(srv_scheduler *s, const srv_part *part, bitnet_status status,
                        const bitnet_error *e)
{
    const char *why = "the request was cancelled";
    srv_job *job = part->job;
    if (status == BITNET_AGAIN)
        return; /* its cache is computed again: the next step continues */
    if (status == BITNET_CANCELLED) {
        srv_job_unwanted(job, srv_now_ms(), &why);
        srv_job_end(s, job, BITNET_CANCELLED, "%s", why);
    } else if (status == BITNET_CONTEXT && part->n_piece == 0) {
        srv_choice_finish(s, part->choice, BITNET_FINISH_CONTEXT, -1);
    } else {
        srv_job_end(s, job, status, "%s",
                    e->status == status ? e->message : bitnet_status_text(status));
    }
}

/* Fails alone, whatever the device does. */
static bool alone(bitnet_status st)
{
    return st == BITNET_AGAIN || st == BITNET_CONTEXT || st == BITNET_CANCELLED;
}

/* Nothing was done, and not because of what single items are. */
static bool failed_whole(const srv_scheduler *s)
{
    bool some = false;
    for (size_t i = 0; i < s->n_items; i++) {
        if (s->items[i].status == BITNET_OK)
            return false;
        some = some || !alone(s->items[i].status);
    }
    return some;
}

/* A step that failed as a whole left everything as it was: it is repeated once. */
static void run(srv_scheduler *s, bitnet_error *e)
{
    for (int turn = 0; turn < 2; turn++) {
        *e = (bitnet_error){0};
        bitnet_status st = bitnet_batch_step(s->batch, s->items, s->n_items, e);
        if (st == BITNET_OK || !failed_whole(s))
            return;
    }
}

static void end_unwanted(srv_scheduler *s)
{
    const char *why;
    double now = srv_now_ms();
    for (size_t i = 0; i < s->n_jobs; i++) {
        srv_job *job = s->jobs[i];
        if (srv_job_unwanted(job, now, &why))
            srv_job_end(s, job, BITNET_CANCELLED, "%s", why);
    }
    srv_sweep(s);
}

/* Telling takes as long as a small model computes: what it makes within TELL_MS of the last time
 * waits for a later step, or for the end; but not where prompts make steps long. */
static bool is_due(srv_job *job, double now, bool prompts)
{
    enum { TELL_MS = 2 };
    if (job->stage.head == job->stage.tail || (now < job->told_ms + TELL_MS && !prompts))
        return false;
    job->told_ms = now;
    return true;
}

/* What the step has brought goes to those who wait for it. A bell of many jobs is rung once, when
 * all of them have their events. */
static void hand_out(srv_scheduler *s, bool prompts)
{
    srv_bell *bells[BELLS];
    size_t n = 0, k;
    double now = srv_now_ms();
    for (size_t i = 0; i < s->n_jobs; i++) {
        srv_job *job = s->jobs[i];
        bool tell = !job->over && !job->no_room && is_due(job, now, prompts);
        srv_bell *bell = tell ? srv_events_flush(job) : NULL;
        if (job->no_room)
            srv_job_end(s, job, BITNET_MEMORY, "the server is out of memory");
        for (k = 0; k < n && bells[k] != bell; k++)
            ;
        if (bell && k == n && n == BELLS)
            srv_bell_ring(bell);
        else if (bell && k == n)
            bells[n++] = bell;
    }
    for (size_t i = 0; i < n; i++)
        srv_bell_ring(bells[i]);
}

/* Nothing can be computed: those who are left wait for their masks, which come next, or for
 * readers, who get a moment, if nobody else comes. */
static void step_of_nothing(srv_scheduler *s)
{
    s->mask_debt = 0;
    hand_out(s, false);
    srv_sweep(s);
    srv_figures_slots(s);
    if (s->n_jobs == 0 || n_waiting(s))
        return;
    struct timespec t = srv_clock_after(READ_MS);
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->busy, false);
    if (!atomic_load(&s->closing))
        pthread_cond_timedwait(&s->work, &s->lock, &t);
    pthread_mutex_unlock(&s->lock);
}

void srv_step(srv_scheduler *s)
{
    bitnet_error e;
    size_t n_rows, n_prompt;
    end_unwanted(s);
    srv_masks(s);
    srv_sweep(s);
    if (s->n_jobs == 0)
        return;
    n_prompt = compose(s, &n_rows);
    if (s->n_items == 0) {
        step_of_nothing(s);
        return;
    }
    double at = middle(s, n_prompt), begun = srv_now_ms();
    run(s, &e);
    double ms = srv_now_ms() - begun;
    srv_pace_note(&s->pace, n_rows, n_prompt, at, ms);
    s->step_ms = ms;
    s->n_made = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        const srv_part *part = &s->parts[i];
        if (part->job->over)
            continue; /* another choice of it failed */
        if (s->items[i].status == BITNET_OK)
            item_done(s, part, &s->items[i]);
        else
            item_failed(s, part, s->items[i].status, &e);
    }
    hand_out(s, n_prompt > 0);
    srv_figures_step(s, ms, n_prompt);
    srv_sweep(s);
}
