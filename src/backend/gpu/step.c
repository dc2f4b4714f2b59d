/* step.c - what changes from pass to pass, brought to the device in one piece: ids, positions,
 * timelines, tables of blocks, rows. The piece lies at the same address for all recorded work, so
 * that the work finds the new values. The step of a prompt's next pass is uploaded while the pass
 * before it runs, into two places behind the piece in turn. And the angles of rotation by position,
 * computed once on the host, so that they are the CPU's to the last bit. */
#include "backend/gpu/gpu.h"
#include "backend/gpu/layouts.h"

#include <math.h>

enum { TYPES = 3, ANGLES_FIRST = 512, FETCH_BYTES = 1 << 10 };

/* Where everything lies inside the piece, in bytes. */
typedef struct places {
    size_t ids, pos[TYPES], seq, rows, tiles, seqs, tables, total;
    int n_seqs, n_tiles, n_table;
} places;

static gpu_kv *kv_of(const bnet_step *s, int seq)
{
    return (gpu_kv *)(void *)s->seqs[seq].store;
}

static size_t after(size_t *at, size_t n_bytes)
{
    size_t here = *at;
    *at = (here + n_bytes + 15) / 16 * 16;
    return here;
}

static int blocks_of(int32_t pos)
{
    return pos / 64 + 1;
}

/* True if token t ends a tile: the last of its timeline or the 64th. */
static bool ends_tile(const bnet_step *s, int t, int n)
{
    return t + 1 == s->n_tokens || s->seq[t + 1] != s->seq[t] || n == BNET_DEV_TILE_TOKENS;
}

static places plan(const bnet_step *s, int n_rows)
{
    places p = {0};
    size_t n = (size_t)s->n_tokens * 4, at = 0;
    for (int t = 0, in_tile = 1; t < s->n_tokens; t++, in_tile++) {
        p.n_seqs = BNET_MAX(p.n_seqs, s->seq[t] + 1);
        if (t + 1 == s->n_tokens || s->seq[t + 1] != s->seq[t])
            p.n_table += blocks_of(s->pos[t]);
        if (ends_tile(s, t, in_tile)) {
            p.n_tiles++;
            in_tile = 0;
        }
    }
    p.ids = after(&at, n);
    for (int i = 0; i < TYPES; i++)
        p.pos[i] = after(&at, n);
    p.seq = after(&at, n);
    p.rows = after(&at, (size_t)n_rows * 4);
    p.tiles = after(&at, (size_t)p.n_tiles * sizeof(bnet_dev_tile));
    p.seqs = after(&at, (size_t)p.n_seqs * sizeof(bnet_dev_seq));
    p.tables = after(&at, (size_t)p.n_table * 4);
    p.total = at;
    return p;
}

static void fill_tokens(const bnet_step *s, const places *p, uint8_t *out, gpu_step_view *v)
{
    size_t n = (size_t)s->n_tokens;
    memcpy(out + p->ids, s->ids, n * 4);
    memcpy(out + p->seq, s->seq, n * 4);
    v->single = true;
    for (size_t t = 0; t < n; t++) {
        int type = (int)kv_of(s, s->seq[t])->shape.type;
        for (int i = 0; i < TYPES; i++) {
            int32_t pos = i == type ? s->pos[t] : -1;
            memcpy(out + p->pos[i] + 4 * t, &pos, 4);
        }
        v->used[type] = true;
        v->max_pos = BNET_MAX(v->max_pos, s->pos[t]);
        v->single = v->single && (t == 0 || s->seq[t] != s->seq[t - 1]);
    }
}

static void fill_tiles(const bnet_step *s, const places *p, uint8_t *out)
{
    bnet_dev_tile *tile = (bnet_dev_tile *)(void *)(out + p->tiles);
    for (int t = 0, n = 1; t < s->n_tokens; t++, n++)
        if (ends_tile(s, t, n)) {
            *tile++ = (bnet_dev_tile){t + 1 - n, n};
            n = 0;
        }
}

static void fill_seqs(gpu_driver *d, const bnet_step *s, const places *p, uint8_t *out)
{
    bnet_dev_seq *seqs = (bnet_dev_seq *)(void *)(out + p->seqs);
    int32_t *tables = (int32_t *)(void *)(out + p->tables);
    uint32_t at = 0;
    memset(seqs, 0, (size_t)p->n_seqs * sizeof *seqs);
    for (int t = 0; t < s->n_tokens; t++) {
        if (t + 1 < s->n_tokens && s->seq[t + 1] == s->seq[t])
            continue;
        const gpu_kv *kv = kv_of(s, s->seq[t]);
        int n = blocks_of(s->pos[t]);
        seqs[s->seq[t]] =
            (bnet_dev_seq){.kv = d->c->address(d, kv->data.memory) + kv->data.offset,
                           .layer_bytes = (uint64_t)kv->shape.n_blocks * kv->block_bytes,
                           .table = at};
        memcpy(tables + at, s->seqs[s->seq[t]].blocks, (size_t)n * 4);
        at += (uint32_t)n;
    }
}

/* Steps without a cache (embedding alone) have positions of type 0. */
static void fill_plain(const bnet_step *s, const places *p, uint8_t *out, gpu_step_view *v)
{
    size_t n = (size_t)s->n_tokens * 4;
    memcpy(out + p->ids, s->ids, n);
    memset(out + p->seq, 0, n);
    for (int i = 0; i < TYPES; i++)
        memcpy(out + p->pos[i], s->pos, n);
    for (int t = 0; t < s->n_tokens; t++)
        v->max_pos = BNET_MAX(v->max_pos, s->pos[t]);
}

static bool has_cache(const bnet_step *s)
{
    return s->seqs && s->seqs[s->seq[0]].store;
}

static void point(gpu_backend *be, const places *p, gpu_at a)
{
    gpu_step_view *v = &be->step;
    v->ids = gpu_plus(a, p->ids);
    for (int i = 0; i < TYPES; i++)
        v->pos[i] = gpu_plus(a, p->pos[i]);
    v->seq = gpu_plus(a, p->seq);
    v->rows = gpu_plus(a, p->rows);
    v->tiles = gpu_plus(a, p->tiles);
    v->seqs = gpu_plus(a, p->seqs);
    v->tables = gpu_plus(a, p->tables);
    v->n_seqs = p->n_seqs;
    v->n_tiles = p->n_tiles;
}

/* Where a new step is put together. */
static uint8_t *made(const gpu_backend *be)
{
    return be->step_shadow + be->shadow_cap / 32 * 16; /* aligned as its parts are */
}

/* The second half of the piece is for steps that come before their pass. */
static gpu_at ahead_at(const gpu_backend *be)
{
    return gpu_plus(be->step_at, be->step_cap / 4 / 16 * 16 * (size_t)(2 + be->ahead.slot));
}

static bool room(gpu_backend *be, size_t n_bytes)
{
    size_t n = BNET_MAX(n_bytes, (size_t)GPU_STEP_BYTES / 2);
    if (n <= be->step_cap)
        return true;
    gpu_at fresh = bnet_gpu_take(be, 2 * n, &be->other_bytes);
    if (gpu_none(fresh))
        return bnet_gpu_ok(be, "step buffer", GPU_NO_MEMORY);
    bnet_gpu_give(be, be->step_at, be->step_cap, &be->other_bytes);
    be->step_at = fresh;
    be->step_cap = 2 * n;
    be->step_bytes = 0;
    be->ahead.n_bytes = 0;
    be->epoch++;
    return true;
}

static void fill(gpu_driver *d, const bnet_step *s, const places *p, const int32_t *rows,
                 uint8_t *out, gpu_step_view *v)
{
    memset(out, 0, p->total);
    if (has_cache(s)) {
        fill_tokens(s, p, out, v);
        fill_seqs(d, s, p, out);
    } else {
        fill_plain(s, p, out, v);
    }
    fill_tiles(s, p, out);
    if (v->n_rows)
        memcpy(out + p->rows, rows, (size_t)v->n_rows * 4);
}

/* Where the step lies if it was brought while the pass before ran; else nowhere. */
static gpu_at foreseen(gpu_backend *be, size_t n_bytes)
{
    double ms = 0;
    bool same = be->ahead.n_bytes == n_bytes && memcmp(be->ahead.bytes, made(be), n_bytes) == 0;
    if (!same || be->step.single ||
        /* that may be recorded */ be->d->c->aside_lead(be->d, &ms) != GPU_OK)
        return (gpu_at){0};
    bnet_logf(&be->log, BITNET_LOG_DEBUG, be->d->c->name,
              "a step of %d tokens was there %.3f ms before the pass before it ended",
              be->step.n_tokens, ms);
    return ahead_at(be);
}

bool bnet_gpu_step_make(gpu_backend *be, const bnet_step *s, const int32_t *rows, int n_rows)
{
    places p = plan(s, n_rows);
    if (!gpu_alive(be) || !room(be, p.total + FETCH_BYTES))
        return false;
    if (!bnet_grow(&be->step_shadow, &be->shadow_cap, 2 * p.total + 32, 1))
        return bnet_gpu_ok(be, "step buffer", GPU_NO_MEMORY);
    uint8_t *out = made(be);
    gpu_step_view v = {.n_tokens = s->n_tokens, .n_rows = n_rows};
    fill(be->d, s, &p, rows, out, &v);
    be->step = v;
    be->made_bytes = p.total;
    gpu_at there = foreseen(be, p.total);
    be->ahead.used = !gpu_none(there);
    be->ahead.n_bytes = 0;
    point(be, &p, be->ahead.used ? there : be->step_at);
    return true;
}

void bnet_gpu_step_ahead(gpu_backend *be, const bnet_step *s, const int32_t *rows, int n_rows)
{
    places p = plan(s, n_rows);
    gpu_step_view unused = {.n_tokens = s->n_tokens, .n_rows = n_rows};
    bool known = gpu_same(be->ahead.base, be->step_at);
    be->ahead.base = be->step_at;
    if (!be->d->c->upload_aside || !known || !gpu_alive(be) || p.total > be->step_cap / 4 ||
        be->made_bytes > be->step_cap / 2 || /* the pass that runs uses all of the piece */
        !bnet_grow(&be->ahead.bytes, &be->ahead.cap, p.total, 1))
        return;
    fill(be->d, s, &p, rows, be->ahead.bytes, &unused);
    be->ahead.slot = !be->ahead.slot;
    bnet_gpu_upload_aside(be, ahead_at(be), be->ahead.bytes, p.total);
    be->ahead.n_bytes = gpu_alive(be) ? p.total : 0;
}

bool bnet_gpu_step_bring(gpu_backend *be)
{
    const uint8_t *out = made(be);
    size_t n = be->made_bytes;
    if (be->ahead.used || (be->step_bytes == n && memcmp(be->step_shadow, out, n) == 0))
        return gpu_alive(be);
    memcpy(be->step_shadow, out, n);
    be->step_bytes = n;
    bnet_gpu_upload(be, be->step_at, out, n);
    return gpu_alive(be);
}

/* Pinned memory as large as the piece on the device, free to be written. */
static bool host_room(gpu_backend *be)
{
    if (be->fetching && !bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d)))
        return false;
    be->fetching = false;
    if (be->host_cap >= be->step_cap)
        return true;
    be->d->c->host_release(be->d, be->step_host);
    be->step_host = be->d->c->host_alloc(be->d, be->step_cap);
    be->host_cap = be->step_host ? be->step_cap : 0;
    be->epoch++;
    return be->step_host || bnet_gpu_ok(be, "pinned step buffer", GPU_NO_MEMORY);
}

bool bnet_gpu_step_leave(gpu_backend *be, size_t *n_bytes)
{
    size_t n = be->made_bytes;
    if (!gpu_alive(be) || !host_room(be))
        return false;
    memcpy(be->step_host, made(be), n);
    memcpy(be->step_shadow, made(be), n);
    be->step_bytes = n;
    be->fetching = true;
    *n_bytes = (n + FETCH_BYTES - 1) / FETCH_BYTES * FETCH_BYTES;
    atomic_fetch_add(&be->n_h2d, 1);
    atomic_fetch_add(&be->h2d_bytes, *n_bytes);
    return true;
}

bool bnet_gpu_step(gpu_backend *be, const bnet_step *s, const int32_t *rows, int n_rows)
{
    return bnet_gpu_step_make(be, s, rows, n_rows) && bnet_gpu_step_bring(be);
}

/* ---- angles ---- */

typedef struct angles_job {
    const bnet_rope *r;
    float *out;
    size_t n_pos;
} angles_job;

static void angles_part(void *arg, bnet_share part)
{
    const angles_job *j = arg;
    size_t half = (size_t)j->r->n_rot / 2, begin, end;
    bnet_split(j->n_pos, 16, part.index, part.count, &begin, &end);
    for (size_t p = begin; p < end; p++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)p * j->r->inv_freq[i];
            j->out[2 * (p * half + i)] = (float)cos(angle);
            j->out[2 * (p * half + i) + 1] = (float)sin(angle);
        }
}

bool bnet_gpu_angles(gpu_backend *be, const bnet_rope *r, int n_pos)
{
    size_t half = (size_t)r->n_rot / 2;
    bool same = be->inv_freq && be->n_rot == r->n_rot &&
                memcmp(be->inv_freq, r->inv_freq, half * sizeof *r->inv_freq) == 0;
    if (same && n_pos <= be->n_angles)
        return true;
    int n = ANGLES_FIRST;
    while (n < n_pos)
        n *= 2;
    size_t n_bytes = (size_t)n * half * 2 * sizeof(float);
    angles_job j = {r, bnet_alloc(n_bytes), (size_t)n};
    double *copy = bnet_alloc(half * sizeof *copy);
    gpu_at fresh = j.out && copy ? bnet_gpu_take(be, n_bytes, &be->other_bytes) : (gpu_at){0};
    if (gpu_none(fresh)) {
        bnet_free(j.out);
        bnet_free(copy);
        return bnet_gpu_ok(be, "angles of rotation", GPU_NO_MEMORY);
    }
    bnet_pool_run(be->pool, angles_part, &j);
    bnet_gpu_upload(be, fresh, j.out, n_bytes);
    bnet_free(j.out);
    bnet_gpu_give(be, be->angles, (size_t)be->n_angles * (size_t)be->n_rot * sizeof(float),
                  &be->other_bytes);
    bnet_free(be->inv_freq);
    memcpy(copy, r->inv_freq, half * sizeof *copy);
    be->inv_freq = copy;
    be->angles = fresh;
    be->n_angles = n;
    be->n_rot = r->n_rot;
    be->epoch++;
    return gpu_alive(be);
}
