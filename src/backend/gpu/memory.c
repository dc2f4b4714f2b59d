/* memory.c - memory of the device and the ways to it. Buffers of passes come from a pool with a
 * cap, weights and caches are taken outside it; everything that goes up passes a ring of pinned
 * memory, so that copies run at the bus's speed while the next bytes are read. */
#include "backend/gpu/gpu.h"
#include "base/file.h"

enum { STAMP_CHUNKS = 12, ALIGNED = 256 }; /* stamps 12..15 belong to the ring */

/* ---- allocation ---- */

bitnet_status bnet_gpu_memory_open(gpu_backend *be, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    be->buffers.cap_bytes =
        BNET_MAX(bnet_buffer_cap(be->d->gpu.total_memory), be->plan.workspace_bytes);
    for (int i = 0; st == BITNET_OK && i < GPU_CHUNKS; i++) {
        be->stage.chunk[i] = be->d->c->host_alloc(be->d, GPU_CHUNK_BYTES);
        if (!be->stage.chunk[i])
            st = bnet_no_memory(err, "pinned memory for copies to the device");
    }
    return st;
}

void bnet_gpu_memory_close(gpu_backend *be)
{
    const gpu_calls *c = be->d->c;
    gpu_at all[] = {be->step_at, be->angles, be->scratch, be->zeros};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        c->release(be->d, all[i].memory);
    bnet_gpu_pool_close(be);
    c->wait(be->d);
    for (int i = 0; i < GPU_CHUNKS; i++)
        c->host_release(be->d, be->stage.chunk[i]);
    c->host_release(be->d, be->step_host);
}

static gpu_at take(gpu_backend *be, size_t n_bytes, uint64_t *counter)
{
    gpu_at p = {0};
    double begun = bnet_now_ms();
    gpu_result r =
        gpu_alive(be) ? be->d->c->alloc(be->d, BNET_MAX(n_bytes, 1), &p.memory) : GPU_NO_MEMORY;
    be->load.alloc_ms += bnet_now_ms() - begun;
    if (r != GPU_OK)
        return (gpu_at){0};
    *counter += n_bytes;
    bnet_gpu_own(be, (int64_t)n_bytes);
    return p;
}

gpu_at bnet_gpu_take(gpu_backend *be, size_t n_bytes, uint64_t *counter)
{
    gpu_at p = take(be, n_bytes, counter);
    if (gpu_none(p) && bnet_gpu_pool_idle(be)) {
        bnet_gpu_pool_empty(be);
        p = take(be, n_bytes, counter);
    }
    return !gpu_none(p) || !bnet_gpu_give_head_copy(be) ? p : take(be, n_bytes, counter);
}

void bnet_gpu_give(gpu_backend *be, gpu_at p, size_t n_bytes, uint64_t *counter)
{
    if (gpu_none(p))
        return;
    be->d->c->release(be->d, p.memory);
    *counter -= n_bytes;
    bnet_gpu_own(be, -(int64_t)n_bytes);
}

/* Replaces *p by something larger; recorded work that uses it is not repeated any more. */
static gpu_at grow(gpu_backend *be, gpu_at *p, size_t *have, size_t need, bool zero)
{
    if (need <= *have && !gpu_none(*p))
        return *p;
    size_t n = BNET_MAX(need, 2 * *have);
    gpu_at fresh = bnet_gpu_take(be, n, &be->other_bytes);
    if (gpu_none(fresh)) {
        bnet_gpu_ok(be, "scratch memory", GPU_NO_MEMORY);
        return fresh;
    }
    if (zero && !bnet_gpu_ok(be, "clearing", be->d->c->fill(be->d, fresh, 0, n))) {
        bnet_gpu_give(be, fresh, n, &be->other_bytes);
        return (gpu_at){0};
    }
    bnet_gpu_give(be, *p, *have, &be->other_bytes);
    *p = fresh;
    *have = n;
    be->epoch++;
    return fresh;
}

gpu_at bnet_gpu_scratch(gpu_backend *be, size_t n_bytes)
{
    return grow(be, &be->scratch, &be->scratch_bytes, n_bytes, false);
}

gpu_at bnet_gpu_zeros(gpu_backend *be, size_t n_bytes)
{
    return grow(be, &be->zeros, &be->zeros_bytes, n_bytes, true);
}

/* ---- the ring ---- */

/* Room for n bytes (at most a chunk), free to be written. NULL: something failed. */
static uint8_t *stage(gpu_backend *be, size_t n_bytes)
{
    gpu_stage *s = &be->stage;
    const gpu_calls *c = be->d->c;
    size_t at = (s->used + ALIGNED - 1) / ALIGNED * ALIGNED;
    double ms;
    if (at + n_bytes <= GPU_CHUNK_BYTES) {
        s->used = at + n_bytes;
        return s->chunk[s->now] + at;
    }
    bool ok = c->stamp ? bnet_gpu_ok(be, "staging", c->stamp(be->d, STAMP_CHUNKS + s->now))
                       : bnet_gpu_ok(be, "staging", c->wait(be->d));
    s->waited_for[s->now] = c->stamp != NULL;
    s->now = (s->now + 1) % GPU_CHUNKS;
    if (ok && s->waited_for[s->now])
        ok = bnet_gpu_ok(be, "staging",
                         c->between(be->d, STAMP_CHUNKS + s->now, STAMP_CHUNKS + s->now, &ms));
    s->waited_for[s->now] = false;
    s->used = n_bytes;
    return ok ? s->chunk[s->now] : NULL;
}

typedef struct copy_job {
    uint8_t *to;
    const uint8_t *from;
    size_t n;
} copy_job;

static void copy_part(void *arg, bnet_share part)
{
    const copy_job *j = arg;
    size_t begin, end;
    bnet_split(j->n, 1 << 16, part.index, part.count, &begin, &end);
    if (begin < end)
        bnet_map_fetch(j->from + begin, end - begin);
    memcpy(j->to + begin, j->from + begin, end - begin);
}

/* The pages may have to come from the disk: all threads ask for them. */
static void copy_in(gpu_backend *be, uint8_t *to, const uint8_t *from, size_t n)
{
    copy_job j = {to, from, n};
    if (n < 1 << 20)
        memcpy(to, from, n);
    else
        bnet_pool_run(be->pool, copy_part, &j);
}

void bnet_gpu_upload(gpu_backend *be, gpu_at dst, const void *bytes, size_t n_bytes)
{
    const uint8_t *from = bytes;
    for (size_t i = 0, n; i < n_bytes && gpu_alive(be); i += n) {
        n = BNET_MIN(n_bytes - i, (size_t)GPU_CHUNK_BYTES / 2);
        double begun = bnet_now_ms();
        uint8_t *to = stage(be, n);
        if (!to)
            return;
        double staged = bnet_now_ms();
        copy_in(be, to, from + i, n);
        be->load.wait_ms += staged - begun;
        be->load.copy_ms += bnet_now_ms() - staged;
        if (!bnet_gpu_ok(be, "copying to the device",
                         be->d->c->to_device(be->d, gpu_plus(dst, i), to, n)))
            return;
        atomic_fetch_add(&be->n_h2d, 1);
        atomic_fetch_add(&be->h2d_bytes, n);
    }
}

void bnet_gpu_upload_aside(gpu_backend *be, gpu_at dst, const void *bytes, size_t n_bytes)
{
    uint8_t *to = gpu_alive(be) ? stage(be, n_bytes) : NULL;
    if (!to)
        return;
    memcpy(to, bytes, n_bytes);
    bnet_gpu_ok(be, "copying during a pass", be->d->c->upload_aside(be->d, dst, to, n_bytes));
    atomic_fetch_add(&be->n_h2d, 1);
    atomic_fetch_add(&be->h2d_bytes, n_bytes);
}

void bnet_gpu_download(gpu_backend *be, void *bytes, gpu_at src, size_t n_bytes)
{
    if (!gpu_alive(be) ||
        !bnet_gpu_ok(be, "copying to the host", be->d->c->to_host(be->d, bytes, src, n_bytes)))
        return;
    bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d));
    atomic_fetch_add(&be->n_d2h, 1);
    atomic_fetch_add(&be->d2h_bytes, n_bytes);
}

bool bnet_gpu_await(gpu_backend *be, size_t n_bytes)
{
    if (!gpu_alive(be) || !bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d)))
        return false;
    be->fetching = false;
    atomic_fetch_add(&be->n_d2h, 1);
    atomic_fetch_add(&be->d2h_bytes, n_bytes);
    return true;
}

/* ---- buffers ---- */

bnet_buffer *bnet_gpu_buffer_new(bnet_backend *b, size_t n_bytes)
{
    gpu_backend *be = gpu_of(b);
    gpu_buffer *buf = bnet_calloc(1, sizeof *buf);
    gpu_at at = {0};
    if (!buf)
        return NULL;
    bnet_gpu_enter(be);
    bool ok = gpu_alive(be) && bnet_gpu_pool_take(be, BNET_MAX(n_bytes, 1), __FILE__, __LINE__, &at,
                                                  NULL) == BITNET_OK;
    if (ok)
        ok = bnet_gpu_ok(be, "clearing", be->d->c->fill(be->d, at, 0, n_bytes));
    if (!ok)
        bnet_gpu_pool_give(be, at);
    *buf = (gpu_buffer){n_bytes, at, NULL, ++be->n_buffers};
    bnet_gpu_leave(be);
    if (!ok) {
        bnet_free(buf);
        return NULL;
    }
    return (bnet_buffer *)(void *)buf;
}

void bnet_gpu_buffer_free(bnet_backend *b, bnet_buffer *buffer)
{
    gpu_backend *be = gpu_of(b);
    gpu_buffer *buf = gpu_buf(buffer);
    bnet_gpu_enter(be);
    bnet_gpu_pool_give(be, buf->p);
    if (buf->mirror) {
        be->d->c->wait(be->d);
        be->d->c->host_release(be->d, buf->mirror);
    }
    bnet_gpu_leave(be);
    bnet_free(buf);
}

const void *bnet_gpu_read(bnet_backend *b, bnet_buffer *buffer, size_t n_bytes)
{
    gpu_backend *be = gpu_of(b);
    gpu_buffer *buf = gpu_buf(buffer);
    bnet_gpu_enter(be);
    if (!buf->mirror)
        buf->mirror = be->d->c->host_alloc(be->d, BNET_MAX(buf->n_bytes, 1));
    if (buf->mirror)
        bnet_gpu_download(be, buf->mirror, buf->p, n_bytes);
    else
        bnet_gpu_ok(be, "pinned memory", GPU_NO_MEMORY);
    const void *view = gpu_alive(be) ? buf->mirror : NULL;
    bnet_gpu_leave(be);
    return view;
}

void bnet_gpu_write(bnet_backend *b, bnet_buffer *buffer, const void *bytes, size_t n_bytes)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    bnet_gpu_upload(be, gpu_buf(buffer)->p, bytes, n_bytes);
    bnet_gpu_leave(be);
}
