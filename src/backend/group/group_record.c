/* group_record.c - decode steps of a group as recorded work: the operations of all ranks, and what
 * travels between them, become one graph that the first rank's stream repeats. The first such pass
 * is done as it is, so that all memory is there; the second is recorded while it is composed.
 *
 * While a pass is recorded no other thread uses the group. A repetition finds its step, its angles
 * and the owners of its rows at the recorded addresses, and leaves the buffers' states as the
 * recorded operations left them. */
#include "backend/group/group.h"
#include "backend/gpu/record.h"
#include "backend/gpu/time.h"

enum { RECORDS = 16, TOUCHED = 24, TOKENS = 64 };

typedef struct touched {
    group_buffer *at;
    group_buffer state; /* as the pass leaves it */
} touched;

typedef struct touched_list {
    touched buffer[TOUCHED];
    int n;
} touched_list;

struct group_records {
    gpu_records base; /* the first RECORDS of them */
    touched_list touched[RECORDS];
    gpu_recorded *now; /* the pass that is being composed */
    bool recording;
    uint32_t counts[BNET_KERNELS_MAX]; /* uses of kernels while recording, all ranks */
    bool too_many;                     /* buffers for one record */
    gpu_at owners[GPU_RANKS];
    bool brought; /* they are the current pass's */
};

static gpu_backend *rank_at(const gpu_group *g, int r)
{
    return gpu_of(g->rank[r]);
}

static uint32_t epoch_of(const gpu_group *g)
{
    uint32_t n = g->epoch;
    for (int r = 0; r < g->n; r++)
        n += rank_at(g, r)->epoch;
    return n;
}

static bool alive(const gpu_group *g)
{
    return bnet_gpu_exchange_alive(g->exchange);
}

static void waits_for(const gpu_group *g, int r, int other)
{
    gpu_backend *be = rank_at(g, r);
    bnet_gpu_enter(be);
    if (gpu_alive(be))
        bnet_gpu_ok(be, "waiting for another rank", be->d->c->after(be->d, rank_at(g, other)->d));
    bnet_gpu_leave(be);
}

/* All other ranks' work before what the first one does next; or after it. */
static void join(const gpu_group *g)
{
    for (int r = 1; r < g->n; r++)
        waits_for(g, 0, r);
}

static void spread(const gpu_group *g)
{
    for (int r = 1; r < g->n; r++)
        waits_for(g, r, 0);
}

/* ---- records ---- */

static touched_list *touched_by(const gpu_group *g, const gpu_recorded *rec)
{
    return &g->records->touched[rec - g->records->base.all];
}

static gpu_recorded *find(gpu_group *g, const gpu_record_key *key)
{
    gpu_backend *be = rank_at(g, 0);
    bnet_gpu_enter(be);
    gpu_recorded *rec = bnet_gpu_record_find(be, &g->records->base, RECORDS, key, epoch_of(g));
    bnet_gpu_leave(be);
    return rec;
}

void bnet_group_records_free(gpu_group *g)
{
    for (int r = 0; g->records && r < g->n; r++) {
        gpu_backend *be = rank_at(g, r);
        bnet_gpu_enter(be);
        if (r == 0)
            bnet_gpu_records_free(be, &g->records->base);
        bnet_gpu_give(be, g->records->owners[r], TOKENS * sizeof(int32_t), &be->other_bytes);
        bnet_gpu_leave(be);
    }
    bnet_free(g->records);
    g->records = NULL;
}

void bnet_group_touch(gpu_group *g, group_buffer *b)
{
    if (!g->records || !g->records->recording)
        return;
    touched_list *list = touched_by(g, g->records->now);
    int i = 0;
    while (i < list->n && list->buffer[i].at != b)
        i++;
    if (i < list->n)
        return;
    if (i < TOUCHED)
        list->buffer[list->n++].at = b;
    else
        g->records->too_many = true;
}

gpu_at bnet_group_owners_at(const gpu_group *g, int r)
{
    return g->records && g->records->brought ? g->records->owners[r] : (gpu_at){0};
}

/* ---- before a pass ---- */

static bool in_sequence(const bnet_pass *p)
{
    for (int i = 0; i < p->n_rows; i++)
        if (p->rows[i] != i)
            return false;
    return p->n_rows == 0 || p->n_rows == p->step->n_tokens;
}

/* Is there anything to gain, and can it be done at all? */
static bool may_repeat(gpu_group *g, const bnet_pass *p)
{
    if (p->step->n_tokens > BNET_MIN(g->plan.max_batch, (int)TOKENS) || !in_sequence(p) ||
        !g->exchange->recordable || !alive(g) || !rank_at(g, 0)->d->c->record_begin ||
        gpu_profiling(rank_at(g, 0)))
        return false;
    if (!g->records)
        g->records = bnet_calloc(1, sizeof *g->records);
    return g->records != NULL;
}

static bool bring_owners(gpu_group *g, int r, const bnet_step *s)
{
    gpu_backend *be = rank_at(g, r);
    gpu_at *at = &g->records->owners[r];
    if (gpu_none(*at))
        *at = bnet_gpu_take(be, TOKENS * sizeof *g->ids, &be->other_bytes);
    if (!gpu_none(*at)) {
        bnet_group_owners(g, s);
        bnet_gpu_upload(be, *at, g->ids, (size_t)s->n_tokens * sizeof *g->ids);
    }
    return !gpu_none(*at);
}

/* What changes from pass to pass, to where the ranks look for it. */
static bool bring(gpu_group *g, const bnet_pass *p)
{
    bool ok = true;
    g->embd = group_w(p->net->embd);
    for (int r = 0; ok && r < g->n; r++) {
        gpu_backend *be = rank_at(g, r);
        bnet_step mine;
        ok = bnet_group_step(g, p->step, r, &mine);
        bnet_gpu_enter(be);
        ok = ok && bnet_gpu_step(be, &mine, NULL, 0) &&
             bnet_gpu_angles(be, &p->net->rope, be->step.max_pos + 1) &&
             (!g->embd->divided || bring_owners(g, r, p->step));
        bnet_gpu_leave(be);
    }
    g->records->brought = ok && g->embd->divided;
    return ok;
}

/* One token per timeline and one type of cache: then nothing else of the step is in launches. */
static bool is_decode(const gpu_group *g, int *kv_type)
{
    const gpu_step_view *v = &rank_at(g, 0)->step;
    *kv_type = v->used[0] ? 0 : v->used[1] ? 1 : 2;
    return v->single && v->used[0] + v->used[1] + v->used[2] == 1;
}

/* ---- recording and repeating ---- */

static void set_recording(gpu_group *g, uint32_t *counts)
{
    for (int r = 0; r < g->n; r++) {
        rank_at(g, r)->recording = counts;
        rank_at(g, r)->n_recorded = 0;
    }
    g->records->recording = counts != NULL;
}

/* A failure to record does not fail the pass (bnet_gpu_unrecord): the pass is composed again, and
 * no further one is recorded. */
static void give_up(gpu_group *g)
{
    bool told = false;
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = rank_at(g, r);
        bnet_gpu_enter(be);
        if (!gpu_alive(be) && told && !be->lost)
            be->failed = GPU_OK;
        else if (!gpu_alive(be))
            told = bnet_gpu_unrecord(be);
        bnet_gpu_leave(be);
    }
    rank_at(g, 0)->unrecordable = told;
    if (told)
        bnet_gpu_count_unrecorded(rank_at(g, 0));
}

/* False: it cannot be recorded. */
static bool begin(gpu_group *g, const gpu_recorded *rec)
{
    gpu_backend *be = rank_at(g, 0);
    join(g);
    bnet_gpu_enter(be);
    if (alive(g))
        bnet_gpu_ok(be, "recording a step", be->d->c->record_begin(be->d));
    bnet_gpu_leave(be);
    if (!alive(g)) {
        give_up(g);
        return false;
    }
    spread(g);
    g->exchange->n_settled++;
    touched_by(g, rec)->n = 0;
    memset(g->records->counts, 0, sizeof g->records->counts);
    set_recording(g, g->records->counts);
    return true;
}

static void replay(gpu_group *g, const gpu_recorded *rec)
{
    gpu_backend *be = rank_at(g, 0);
    const touched_list *list = touched_by(g, rec);
    join(g);
    bnet_gpu_enter(be);
    if (gpu_alive(be))
        bnet_gpu_record_replay(be, rec);
    bnet_gpu_leave(be);
    spread(g);
    g->exchange->n_settled++;
    for (int i = 0; i < list->n; i++) {
        group_buffer state = list->buffer[i].state;
        state.host = list->buffer[i].at->host;
        *list->buffer[i].at = state;
    }
}

static bool end(gpu_group *g, gpu_recorded *rec)
{
    gpu_backend *be = rank_at(g, 0);
    touched_list *list = touched_by(g, rec);
    uint32_t n_launches = 0;
    join(g);
    for (int r = 0; r < g->n; r++)
        n_launches += rank_at(g, r)->n_recorded;
    set_recording(g, NULL);
    bnet_gpu_enter(be);
    gpu_result ended = be->d->c->record_end(be->d, &rec->graph);
    if (ended == GPU_OK && g->records->too_many)
        ended = GPU_UNSUPPORTED;
    bnet_gpu_ok(be, "recording a step", ended);
    if (!alive(g))
        bnet_gpu_record_forget(be, rec);
    bnet_gpu_leave(be);
    for (int i = 0; i < list->n; i++) {
        list->buffer[i].state = *list->buffer[i].at;
        list->buffer[i].state.read_at = 0; /* all wait for the end */
    }
    if (!alive(g)) {
        give_up(g);
        return !alive(g);
    }
    bnet_gpu_record_note(rec, g->records->counts, n_launches, epoch_of(g));
    replay(g, rec);
    return true;
}

/* ---- entries of the table ---- */

/* True: it was repeated. Else the pass is composed, as it is or into a record. */
static bool serve(gpu_group *g, const bnet_pass *p)
{
    struct group_records *all = g->records;
    int kv_type;
    if (!is_decode(g, &kv_type))
        return false;
    if (rank_at(g, 0)->unrecordable) {
        bnet_gpu_count_unrecorded(rank_at(g, 0));
        return false;
    }
    const gpu_step_view *v = &rank_at(g, 0)->step;
    const gpu_record_key key = {.n_tokens = p->step->n_tokens,
                                .n_rows = p->n_rows,
                                .n_seqs = v->n_seqs,
                                .n_tiles = v->n_tiles,
                                .last = gpu_buf(group_buf(p->last)->at[0])->id,
                                .kv_type = kv_type};
    gpu_recorded *rec = find(g, &key);
    if (rec->graph) {
        replay(g, rec);
        return true;
    }
    if (!rec->seen || begin(g, rec)) {
        all->now = rec;
        pthread_mutex_lock(&g->lock); /* until it is composed */
    }
    return false;
}

bool bnet_group_repeat(bnet_backend *b, const bnet_pass *p)
{
    gpu_group *g = group_of(b);
    group_lock(g);
    gpu_push(rank_at(g, 0), "step of several ranks");
    bool done = may_repeat(g, p) && bring(g, p) && serve(g, p);
    if (done) /* else when it is composed */
        gpu_pop(rank_at(g, 0));
    if (g->records && (done || !g->records->now))
        g->records->brought = false;
    group_unlock(g);
    return done;
}

bool bnet_group_composed(bnet_backend *b)
{
    gpu_group *g = group_of(b);
    bool done = true;
    group_lock(g);
    gpu_recorded *rec = g->records ? g->records->now : NULL;
    if (rec && g->records->recording)
        done = end(g, rec);
    else if (rec)
        rec->seen = alive(g);
    if (rec && !rec->graph)
        rec->epoch = epoch_of(g);
    if (rec) {
        g->records->now = NULL;
        g->records->brought = false;
        group_unlock(g);
    }
    if (done)
        gpu_pop(rank_at(g, 0));
    group_unlock(g);
    return done;
}
