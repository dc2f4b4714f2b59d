/* exchange_copies.c - ranks joined by copies. Whoever receives asks for the copy, in its own
 * stream, which first waits for the sender's; before the sender overwrites what was read, it waits
 * in turn. */
#include "backend/group/exchange.h"

#include <stdio.h>

typedef struct copies_exchange {
    gpu_exchange base;
    bool direct[GPU_RANKS][GPU_RANKS]; /* [reader][owner] */
    void *stage[GPU_RANKS];            /* pinned: what a rank sends by way of the host */
    size_t cap[GPU_RANKS];
    uint64_t staged_at; /* n_settled when all were last told to read it; 0: never */
} copies_exchange;

static copies_exchange *copies(gpu_exchange *l)
{
    return (copies_exchange *)l;
}

bool bnet_gpu_exchange_alive(const gpu_exchange *l)
{
    for (int r = 0; r < l->n; r++)
        if (!gpu_alive(l->rank[r]))
            return false;
    return true;
}

static void waits_for(gpu_backend *be, const gpu_backend *other)
{
    if (be == other || !gpu_alive(be))
        return;
    bnet_gpu_enter(be);
    bnet_gpu_ok(be, "waiting for another rank", be->d->c->after(be->d, other->d));
    bnet_gpu_leave(be);
}

static void copies_settle(gpu_exchange *l)
{
    l->n_settled++;
    for (int r = 0; r < l->n; r++)
        for (int i = 0; i < l->n; i++)
            waits_for(l->rank[r], l->rank[i]);
}

/* ---- by way of the host ---- */

/* Waits until no rank reads a stage. It enters one device after the other, so the caller is in
 * none. */
static void wait_for_readers(copies_exchange *l)
{
    for (int i = 0; i < l->base.n; i++) {
        gpu_backend *reader = l->base.rank[i];
        bnet_gpu_enter(reader);
        reader->d->c->wait(reader->d);
        bnet_gpu_leave(reader);
    }
}

/* Pinned memory of a rank, whose device is entered, free to be written in its order of work. */
static bool room(copies_exchange *l, int r, size_t n_bytes)
{
    gpu_backend *be = l->base.rank[r];
    if (l->cap[r] >= n_bytes)
        return true;
    be->d->c->host_release(be->d, l->stage[r]);
    l->stage[r] = be->d->c->host_alloc(be->d, n_bytes);
    l->cap[r] = l->stage[r] ? n_bytes : 0;
    return l->stage[r] || bnet_gpu_ok(be, "pinned memory between ranks", GPU_NO_MEMORY);
}

/* Nobody reads the stage any more, in the order of work. */
static void clear_stage(copies_exchange *l)
{
    if (l->staged_at > 0 && l->staged_at == l->base.n_settled)
        copies_settle(&l->base);
}

static void put_on_stage(copies_exchange *l, int from, gpu_at src, size_t n_bytes)
{
    gpu_backend *be = l->base.rank[from];
    if (l->cap[from] < n_bytes)
        wait_for_readers(l);
    bnet_gpu_enter(be);
    if (gpu_alive(be) && room(l, from, n_bytes)) {
        bnet_gpu_ok(be, "copying to another rank",
                    be->d->c->to_host(be->d, l->stage[from], src, n_bytes));
        atomic_fetch_add(&be->n_d2h, 1);
        atomic_fetch_add(&be->d2h_bytes, n_bytes);
    }
    bnet_gpu_leave(be);
}

/* ---- one copy ---- */

/* The receiver's part, after it was made to wait for the sender's. */
static void take(copies_exchange *l, int from, gpu_at src, int to, gpu_at dst, size_t n_bytes)
{
    gpu_backend *be = l->base.rank[to];
    const gpu_calls *c = be->d->c;
    bnet_gpu_enter(be);
    if (!gpu_alive(be)) {
        bnet_gpu_leave(be);
        return;
    }
    if (l->direct[to][from]) {
        bnet_gpu_ok(be, "copying from another rank",
                    c->fetch(be->d, dst, l->base.rank[from]->d, src, n_bytes));
    } else {
        bnet_gpu_ok(be, "copying from another rank",
                    c->to_device(be->d, dst, l->stage[from], n_bytes));
        atomic_fetch_add(&be->n_h2d, 1);
        atomic_fetch_add(&be->h2d_bytes, n_bytes);
    }
    bnet_gpu_leave(be);
}

static void copies_send(gpu_exchange *exchange, int from, gpu_at src, int to, gpu_at dst,
                        size_t n_bytes)
{
    copies_exchange *l = copies(exchange);
    if (!l->direct[to][from]) {
        clear_stage(l);
        put_on_stage(l, from, src, n_bytes);
    }
    if (!bnet_gpu_exchange_alive(exchange))
        return;
    waits_for(exchange->rank[to], exchange->rank[from]);
    take(l, from, src, to, dst, n_bytes);
    waits_for(exchange->rank[from], exchange->rank[to]);
}

static bool staged(const copies_exchange *l, int from)
{
    for (int to = 0; to < l->base.n; to++)
        if (!l->direct[to][from])
            return true;
    return false;
}

static void copies_all_gather(gpu_exchange *exchange, const gpu_at *from, const gpu_at *to,
                              size_t n_bytes)
{
    copies_exchange *l = copies(exchange);
    bool any = false;
    clear_stage(l);
    for (int r = 0; r < exchange->n; r++)
        if (staged(l, r)) {
            put_on_stage(l, r, from[r], n_bytes);
            any = true;
        }
    if (!bnet_gpu_exchange_alive(exchange))
        return;
    copies_settle(exchange);
    l->staged_at = any ? exchange->n_settled : 0;
    for (int r = 0; r < exchange->n; r++)
        for (int i = 0; i < exchange->n; i++)
            if (i != r || !gpu_same(from[r], gpu_plus(to[r], (size_t)r * n_bytes)))
                take(l, i, from[i], r, gpu_plus(to[r], (size_t)i * n_bytes), n_bytes);
}

/* ---- opening ---- */

static void copies_close(gpu_exchange *exchange)
{
    copies_exchange *l = copies(exchange);
    for (int r = 0; r < exchange->n; r++) {
        gpu_backend *be = exchange->rank[r];
        bnet_gpu_enter(be);
        be->d->c->wait(be->d);
        be->d->c->host_release(be->d, l->stage[r]);
        bnet_gpu_leave(be);
    }
    bnet_free(l);
}

static bool reach(gpu_backend *be, gpu_backend *other)
{
    if (be == other)
        return true;
    bnet_gpu_enter(be);
    bool can = be->d->c->reach(be->d, other->d);
    bnet_gpu_leave(be);
    return can;
}

bitnet_status bnet_gpu_copies_open(gpu_backend *const *ranks, int n, gpu_exchange **out,
                                   bitnet_error *err)
{
    static const gpu_exchange_calls calls = {copies_close, copies_send, copies_all_gather,
                                             copies_settle, NULL};
    copies_exchange *l = bnet_calloc(1, sizeof *l);
    if (!l)
        return bnet_no_memory(err, "exchange between ranks");
    l->base.c = &calls;
    l->base.n = n;
    l->base.recordable = true;
    memcpy(l->base.rank, ranks, (size_t)n * sizeof *ranks);
    int n_staged = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < n; i++) {
            l->direct[r][i] = reach(ranks[r], ranks[i]);
            n_staged += !l->direct[r][i];
        }
    snprintf(l->base.name, sizeof l->base.name, "%s",
             n_staged == 0             ? "direct copies"
             : n_staged == n * (n - 1) ? "copies through the host"
                                       : "copies, some through the host");
    *out = &l->base;
    return BITNET_OK;
}
