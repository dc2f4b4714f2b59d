/* group_transfers.c - where the contents of a group's buffers are, and how they get where they are
 * needed. */
#include "backend/group/group.h"

static gpu_at place_of(const group_buffer *b, int r)
{
    return gpu_buf(b->at[r])->p;
}

static size_t widest(const gpu_group *g, const uint64_t *first)
{
    size_t n = 0;
    for (int r = 0; r < g->n; r++)
        n = BNET_MAX(n, (size_t)(first[r + 1] - first[r]));
    return n;
}

/* ---- about to be written ---- */

/* Other ranks may still read it. */
static void settle(gpu_group *g, const group_buffer *b)
{
    if (b->read_at > 0 && b->read_at == g->exchange->n_settled)
        g->exchange->c->settle(g->exchange);
}

void bnet_group_make(gpu_group *g, group_buffer *b, rank_set ranks)
{
    bnet_group_touch(g, b);
    settle(g, b);
    b->whole = ranks;
    b->divided = false;
}

void bnet_group_make_divided(gpu_group *g, group_buffer *b, const uint64_t *first, size_t n_rows)
{
    bnet_group_touch(g, b);
    settle(g, b);
    b->divided = true;
    b->n_rows = n_rows;
    b->in_place = n_rows == 1;
    memmove(b->first, first, sizeof b->first); /* they may be its own */
    for (int r = 1; r < g->n; r++)
        b->in_place = b->in_place && b->first[r + 1] - b->first[r] == b->first[1];
}

void bnet_group_forget(gpu_group *g, group_buffer *b)
{
    gpu_backend *be = gpu_of(g->rank[0]);
    settle(g, b);
    g->epoch++;
    bnet_gpu_enter(be);
    be->d->c->host_release(be->d, b->host);
    bnet_gpu_leave(be);
}

bnet_buffer *bnet_group_part(const group_buffer *b, int r, gpu_buffer *view)
{
    if (!b->divided || !b->in_place)
        return b->at[r];
    *view = *gpu_buf(b->at[r]);
    view->p = gpu_plus(view->p, b->first[r] * sizeof(float));
    return (bnet_buffer *)(void *)view;
}

/* ---- from parts to the whole ---- */

static void unite_in_place(gpu_group *g, group_buffer *b)
{
    gpu_at from[GPU_RANKS], to[GPU_RANKS];
    for (int r = 0; r < g->n; r++) {
        to[r] = place_of(b, r);
        from[r] = gpu_plus(to[r], b->first[r] * sizeof(float));
    }
    g->exchange->c->all_gather(g->exchange, from, to, (size_t)b->first[1] * sizeof(float));
    b->read_at = g->exchange->n_settled;
}

static bool scratch(gpu_group *g, size_t n_bytes, gpu_at *to)
{
    bool ok = true;
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = gpu_of(g->rank[r]);
        bnet_gpu_enter(be);
        to[r] = bnet_gpu_scratch(be, n_bytes);
        bnet_gpu_leave(be);
        ok = ok && !gpu_none(to[r]);
    }
    return ok;
}

/* Every rank's first n bytes of b to every rank's scratch, behind which `more` bytes are free. */
static bool gather(gpu_group *g, const group_buffer *b, size_t n_bytes, size_t more, gpu_at *to)
{
    gpu_at from[GPU_RANKS];
    if (!scratch(g, n_bytes * (size_t)g->n + more, to))
        return false;
    for (int r = 0; r < g->n; r++)
        from[r] = place_of(b, r);
    g->exchange->c->all_gather(g->exchange, from, to, n_bytes);
    g->exchange->c->settle(g->exchange);
    return true;
}

static void place(gpu_backend *be, const gpu_rows *rows)
{
    bnet_gpu_enter(be);
    if (gpu_alive(be))
        bnet_gpu_ok(be, "putting rows together", be->d->c->copy_rows(be->d, rows));
    bnet_gpu_leave(be);
}

/* Every part to every rank, then row by row into place. */
static void unite_rows(gpu_group *g, group_buffer *b)
{
    size_t row = (size_t)b->first[g->n] * sizeof(float);
    size_t part = b->n_rows * widest(g, b->first) * sizeof(float);
    gpu_at from[GPU_RANKS];
    if (!gather(g, b, part, 0, from))
        return;
    for (int r = 0; r < g->n; r++)
        for (int i = 0; i < g->n; i++) {
            size_t n = (size_t)(b->first[i + 1] - b->first[i]) * sizeof(float);
            const gpu_rows rows = {.dst = gpu_plus(place_of(b, r), b->first[i] * sizeof(float)),
                                   .src = gpu_plus(from[r], (size_t)i * part),
                                   .dst_pitch = row,
                                   .src_pitch = n,
                                   .n_bytes = n,
                                   .n_rows = b->n_rows};
            place(gpu_of(g->rank[r]), &rows);
        }
}

void bnet_group_need(gpu_group *g, group_buffer *b, rank_set ranks, size_t n_bytes)
{
    bnet_group_touch(g, b);
    if (b->divided) {
        b->divided = false;
        b->whole = all_ranks(g);
        if (b->in_place)
            unite_in_place(g, b);
        else
            unite_rows(g, b);
    }
    int from = __builtin_ctz(b->whole);
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks & ~b->whole, r))
            g->exchange->c->send(g->exchange, from, place_of(b, from), r, place_of(b, r), n_bytes);
    b->whole |= ranks;
}

void bnet_group_pick(gpu_group *g, group_buffer *x, int n_rows, size_t n_cols)
{
    size_t part = (size_t)n_rows * n_cols * sizeof(float), list = (size_t)n_rows * sizeof *g->ids;
    gpu_at from[GPU_RANKS];
    if (!gather(g, x, part, list, from))
        return;
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = gpu_of(g->rank[r]);
        const bnet_kernel_record *k = be->use.gather;
        gpu_at at = bnet_group_owners_at(g, r);
        bnet_gpu_enter(be);
        if (gpu_none(at)) {
            at = gpu_plus(from[r], part * (size_t)g->n);
            bnet_gpu_upload(be, at, g->ids, list);
        }
        if (gpu_alive(be))
            ((gpu_fn_gather *)k->fn)(be, k, from[r], at, n_rows, n_cols, place_of(x, r));
        bnet_gpu_leave(be);
    }
}

/* ---- to the host ---- */

static uint8_t *pinned(gpu_group *g, size_t n_bytes)
{
    gpu_backend *be = gpu_of(g->rank[0]);
    bnet_gpu_enter(be);
    uint8_t *p = be->d->c->host_alloc(be->d, n_bytes);
    if (!p)
        bnet_gpu_ok(be, "pinned memory", GPU_NO_MEMORY);
    bnet_gpu_leave(be);
    return p;
}

static bool download(gpu_backend *be, void *to, gpu_at from, size_t n_bytes)
{
    bnet_gpu_enter(be);
    bnet_gpu_download(be, to, from, n_bytes);
    bool ok = gpu_alive(be);
    bnet_gpu_leave(be);
    return ok;
}

/* Divided rows are put together on the way. */
static bool read_parts(gpu_group *g, const group_buffer *b, size_t n_rows)
{
    size_t row = (size_t)b->first[g->n] * sizeof(float);
    bool ok = true;
    for (int r = 0; ok && r < g->n; r++) {
        size_t at = (size_t)b->first[r] * sizeof(float);
        size_t n = (size_t)b->first[r + 1] * sizeof(float) - at;
        if (b->in_place) {
            ok = download(gpu_of(g->rank[r]), b->host + at, gpu_plus(place_of(b, r), at), n);
            continue;
        }
        const uint8_t *rows = g->rank[r]->v->read(g->rank[r], b->at[r], n_rows * n);
        ok = rows != NULL;
        for (size_t t = 0; rows && t < n_rows; t++)
            memcpy(b->host + t * row + at, rows + t * n, n);
    }
    return ok;
}

const void *bnet_group_read(bnet_backend *be, bnet_buffer *buf, size_t n_bytes)
{
    gpu_group *g = group_of(be);
    group_buffer *b = group_buf(buf);
    const void *view = NULL;
    group_lock(g);
    if (!b->divided) {
        int r = __builtin_ctz(b->whole);
        view = g->rank[r]->v->read(g->rank[r], b->at[r], n_bytes);
    } else if (b->host || (b->host = pinned(g, b->n_bytes))) {
        bool ok = read_parts(g, b, n_bytes / ((size_t)b->first[g->n] * sizeof(float)));
        view = ok ? b->host : NULL;
    }
    group_unlock(g);
    return view;
}
