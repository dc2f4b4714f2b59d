/* workspaces.c - the workspaces and rows of logits that an engine lends to calls. Hides: how many
 * there are. There are as many workspaces as calls were ever computing at one time, usually one;
 * whoever is the only user allocates nothing after opening. */
#include "engine/workspaces.h"

void bnet_workspaces_init(bnet_workspaces *w)
{
    *w = (bnet_workspaces){.first = NULL};
    pthread_mutex_init(&w->lock, NULL);
    bnet_cond_init(&w->returned);
}

/* ---- one workspace ---- */

uint64_t bnet_scratch_bytes(const bnet_model *m, int n_batch)
{
    uint64_t per_token = 5 * sizeof(int32_t) + sizeof(bnet_kv *);
    return sizeof(bnet_scratch) + bnet_workspace_bytes(m, n_batch) + (uint64_t)n_batch * per_token +
           BNET_KERNELS_MAX * sizeof(bitnet_kernel_use);
}

static void scratch_close(bnet_scratch *s)
{
    if (!s)
        return;
    bnet_workspace_close(s->ws);
    bnet_free(s->pos);
    bnet_free(s->seq);
    bnet_free(s->rows);
    bnet_free(s->ids);
    bnet_free(s->kvs);
    bnet_free(s->uses);
    bnet_free(s);
}

static bitnet_status scratch_open(const bnet_model *m, int n_batch, bnet_scratch **out,
                                  bitnet_error *err)
{
    size_t n = (size_t)n_batch;
    bnet_scratch *s = bnet_calloc(1, sizeof *s);
    if (!s)
        return bnet_no_memory(err, "workspace");
    *s = (bnet_scratch){.model = m,
                        .n_batch = n_batch,
                        .pos = bnet_calloc(2 * n, sizeof *s->pos),
                        .seq = bnet_calloc(n, sizeof *s->seq),
                        .rows = bnet_calloc(n, sizeof *s->rows),
                        .ids = bnet_calloc(n, sizeof *s->ids),
                        .kvs = bnet_calloc(n, sizeof(bnet_kv *)),
                        .uses = bnet_calloc(BNET_KERNELS_MAX, sizeof *s->uses)};
    bitnet_status st = s->pos && s->seq && s->rows && s->ids && s->kvs && s->uses
                           ? bnet_workspace_open(m, n_batch, &s->ws, err)
                           : bnet_no_memory(err, "workspace");
    if (st == BITNET_OK)
        *out = s;
    else
        scratch_close(s);
    return st;
}

/* ---- the list; all below here under the lock ---- */

static bool serves(const bnet_scratch *s, const bnet_model *m, int n_batch)
{
    return s->model == m && s->n_batch >= n_batch;
}

/* Closes the workspaces of a model, up to a size, that are not lent. */
static void close_free(bnet_workspaces *w, const bnet_model *m, int n_batch)
{
    for (bnet_scratch **at = &w->first, *s; (s = *at) != NULL;) {
        if (s->lent || (m && (s->model != m || s->n_batch > n_batch))) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        scratch_close(s);
    }
}

/* Enters a new one, which replaces the smaller ones. */
static void enter(bnet_workspaces *w, bnet_scratch *s)
{
    close_free(w, s->model, s->n_batch - 1);
    s->next = w->first;
    w->first = s;
}

/* ---- users ---- */

void bnet_workspaces_close(bnet_workspaces *w)
{
    close_free(w, NULL, 0);
    bnet_free(w->row);
    pthread_cond_destroy(&w->returned);
    pthread_mutex_destroy(&w->lock);
}

bool bnet_workspaces_have(bnet_workspaces *w, const bnet_model *m, int n_batch)
{
    bool there = false;
    pthread_mutex_lock(&w->lock);
    for (const bnet_scratch *s = w->first; s; s = s->next)
        there = there || serves(s, m, n_batch);
    pthread_mutex_unlock(&w->lock);
    return there;
}

bitnet_status bnet_workspaces_need(bnet_workspaces *w, const bnet_model *m, int n_batch,
                                   bitnet_error *err)
{
    if (bnet_workspaces_have(w, m, n_batch))
        return BITNET_OK;
    bnet_scratch *fresh;
    bitnet_status st = scratch_open(m, n_batch, &fresh, err); /* may wait for the device */
    if (st != BITNET_OK)
        return st;
    pthread_mutex_lock(&w->lock);
    enter(w, fresh);
    pthread_mutex_unlock(&w->lock);
    return BITNET_OK;
}

void bnet_workspaces_enter(bnet_workspaces *w)
{
    pthread_mutex_lock(&w->lock);
    w->n_users++;
    pthread_mutex_unlock(&w->lock);
}

void bnet_workspaces_leave(bnet_workspaces *w)
{
    pthread_mutex_lock(&w->lock);
    if (--w->n_users == 0) {
        close_free(w, NULL, 0);
        bnet_free(w->row);
        w->row = NULL;
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- lending ---- */

static bnet_scratch *find_free(bnet_workspaces *w, const bnet_model *m, int n_batch,
                               const bnet_scratch *before)
{
    bnet_scratch *best = NULL;
    for (bnet_scratch *s = w->first; s; s = s->next)
        if (!s->lent && serves(s, m, n_batch) && (!best || s == before))
            best = s;
    return best;
}

/* Another thread has one and will return it. */
static bool can_wait(const bnet_workspaces *w, const bnet_model *m, int n_batch)
{
    bool some = false;
    for (const bnet_scratch *s = w->first; s; s = s->next) {
        if (s->lent && pthread_equal(s->borrower, pthread_self()))
            return false;
        some = some || serves(s, m, n_batch);
    }
    return some;
}

static bnet_scratch *lend(bnet_scratch *s)
{
    if (s) {
        s->lent = true;
        s->borrower = pthread_self();
    }
    return s;
}

/* Waits for one that another thread has, after an error for which there is no new one: that error
 * stays if there is none to wait for. */
static bitnet_status wait_for(bnet_workspaces *w, const bnet_model *m, int n_batch,
                              const bnet_cancel *wait, bnet_scratch **s, bitnet_error *err)
{
    while (!(*s = lend(find_free(w, m, n_batch, NULL))) && can_wait(w, m, n_batch))
        if (!bnet_cond_wait(&w->returned, &w->lock, wait))
            return bnet_fail(err, BITNET_CANCELLED, "cancelled while waiting for a workspace");
    return *s ? BITNET_OK : BITNET_MEMORY;
}

bitnet_status bnet_scratch_borrow(bnet_workspaces *w, const bnet_model *m, int n_batch,
                                  const bnet_scratch *before, const bnet_cancel *wait,
                                  bnet_scratch **out, bitnet_error *err)
{
    pthread_mutex_lock(&w->lock);
    bnet_scratch *s = lend(find_free(w, m, n_batch, before));
    pthread_mutex_unlock(&w->lock);
    bitnet_status st = s ? BITNET_OK : scratch_open(m, n_batch, &s, err);
    if (st != BITNET_OK || !s->lent) {
        pthread_mutex_lock(&w->lock);
        if (st == BITNET_OK)
            enter(w, lend(s));
        else if (st == BITNET_MEMORY)
            st = wait_for(w, m, n_batch, wait, &s, err);
        pthread_mutex_unlock(&w->lock);
    }
    if (st == BITNET_OK)
        *out = s;
    return st;
}

void bnet_scratch_return(bnet_workspaces *w, bnet_scratch *s)
{
    pthread_mutex_lock(&w->lock);
    s->lent = false;
    pthread_cond_broadcast(&w->returned);
    pthread_mutex_unlock(&w->lock);
}

void bnet_guest_enter(bnet_workspaces *w)
{
    pthread_mutex_lock(&w->lock);
    w->n_guests++;
    for (bnet_scratch *x = w->first; x; x = x->next)
        x->accompanied |= x->lent;
    pthread_mutex_unlock(&w->lock);
}

void bnet_guest_leave(bnet_workspaces *w)
{
    pthread_mutex_lock(&w->lock);
    w->n_guests--;
    pthread_mutex_unlock(&w->lock);
}

bool bnet_scratch_accompanied(bnet_workspaces *w, bnet_scratch *s)
{
    pthread_mutex_lock(&w->lock);
    bool some = s->accompanied || w->n_guests > 0;
    s->accompanied = false;
    for (bnet_scratch *x = w->first; x; x = x->next)
        if (x != s && x->lent)
            some = x->accompanied = true;
    pthread_mutex_unlock(&w->lock);
    return some;
}

float *bnet_row_borrow(bnet_workspaces *w, size_t n_vocab)
{
    pthread_mutex_lock(&w->lock);
    float *r = w->row;
    w->row = NULL;
    pthread_mutex_unlock(&w->lock);
    return r ? r : bnet_alloc(n_vocab * sizeof *r);
}

void bnet_row_return(bnet_workspaces *w, float *row)
{
    if (!row)
        return;
    pthread_mutex_lock(&w->lock);
    float *before = w->row; /* one is enough for a caller that asks again and again */
    w->row = row;
    pthread_mutex_unlock(&w->lock);
    bnet_free(before);
}
