/* record.c - decode steps as recorded work. Kernels that a recording launches are counted into it
 * and added to the backend's counters at every repetition, so that results and receipts say what
 * really ran. */
#include "backend/gpu/record.h"
#include "backend/gpu/time.h"

static bool same(const gpu_record_key *a, const gpu_record_key *b)
{
    return a->n_tokens == b->n_tokens && a->n_rows == b->n_rows && a->n_seqs == b->n_seqs &&
           a->n_tiles == b->n_tiles && a->n_bytes == b->n_bytes && a->last == b->last &&
           a->kv_type == b->kv_type && a->best == b->best && a->blocks == b->blocks;
}

void bnet_gpu_record_forget(gpu_backend *be, gpu_recorded *g)
{
    if (g->graph)
        be->d->c->graph_release(be->d, g->graph);
    g->graph = NULL;
    g->seen = false;
    g->n_uses = 0;
}

gpu_recorded *bnet_gpu_record_find(gpu_backend *be, gpu_records *r, int cap,
                                   const gpu_record_key *key, uint32_t epoch)
{
    gpu_recorded *g = NULL, *oldest = &r->all[0];
    for (int i = 0; !g && i < r->n; i++) {
        g = same(&r->all[i].key, key) ? &r->all[i] : NULL;
        if (r->all[i].last_used < oldest->last_used)
            oldest = &r->all[i];
    }
    bool known = g && g->epoch == epoch;
    if (!g)
        g = r->n < cap ? &r->all[r->n++] : oldest;
    if (!known)
        bnet_gpu_record_forget(be, g);
    g->key = *key;
    g->last_used = ++r->clock;
    return g;
}

void bnet_gpu_record_note(gpu_recorded *g, const uint32_t counts[BNET_KERNELS_MAX],
                          uint32_t n_launches, uint32_t epoch)
{
    g->n_launches = n_launches;
    g->epoch = epoch;
    g->n_uses = 0;
    for (uint32_t i = 0; i < BNET_KERNELS_MAX; i++)
        if (counts[i] && g->n_uses < GPU_RECORD_USES) {
            g->uses[g->n_uses].slot = i;
            g->uses[g->n_uses++].n = counts[i];
        }
}

static void count_uses(gpu_backend *be, const gpu_recorded *g)
{
    for (int i = 0; i < g->n_uses; i++)
        atomic_fetch_add_explicit(&be->calls[g->uses[i].slot], g->uses[i].n, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->n_replays, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->n_launches, g->n_launches, memory_order_relaxed);
}

bool bnet_gpu_unrecord(gpu_backend *be)
{
    if (be->lost || be->strict)
        return false;
    bnet_logf(&be->log, BITNET_LOG_WARN, be->d->c->name,
              "a step could not be recorded: %s; steps are launched kernel by kernel from now on, "
              "which is slower",
              be->why.message);
    be->failed = GPU_OK;
    be->unrecordable = true;
    return true;
}

static void record(gpu_backend *be, gpu_recorded *g, gpu_work *work, void *user)
{
    uint32_t counts[BNET_KERNELS_MAX] = {0}, epoch = be->epoch;
    if (!bnet_gpu_ok(be, "recording a step", be->d->c->record_begin(be->d)))
        return;
    be->recording = counts;
    be->n_recorded = 0;
    gpu_push(be, "record");
    work(be, user);
    gpu_pop(be);
    be->recording = NULL;
    bnet_gpu_ok(be, "recording a step", be->d->c->record_end(be->d, &g->graph));
    if (gpu_alive(be))
        bnet_gpu_record_note(g, counts, be->n_recorded, epoch);
    else /* a launch is missing in it */
        bnet_gpu_record_forget(be, g);
}

void bnet_gpu_work(gpu_backend *be, gpu_work *work, void *user)
{
    int span = bnet_gpu_time_pass(be, false);
    gpu_push(be, "launch");
    work(be, user);
    gpu_pop(be);
    bnet_gpu_time_end(be, span);
}

void bnet_gpu_record_replay(gpu_backend *be, const gpu_recorded *g)
{
    int span = bnet_gpu_time_pass(be, true);
    gpu_push(be, "repeat");
    if (bnet_gpu_ok(be, "repeating a step", be->d->c->replay(be->d, g->graph)))
        count_uses(be, g);
    gpu_pop(be);
    bnet_gpu_time_end(be, span);
}

static void launch_instead(gpu_backend *be, gpu_work *work, void *user)
{
    bnet_gpu_count_unrecorded(be);
    bnet_gpu_work(be, work, user);
}

void bnet_gpu_repeat(gpu_backend *be, gpu_records *r, const gpu_record_key *key, gpu_work *work,
                     void *user)
{
    if (!be->d->c->record_begin || gpu_profiling(be)) {
        bnet_gpu_work(be, work, user);
        return;
    }
    if (be->unrecordable) {
        launch_instead(be, work, user);
        return;
    }
    gpu_recorded *g = bnet_gpu_record_find(be, r, GPU_RECORDS, key, be->epoch);
    if (!g->seen) {
        bnet_gpu_work(be, work, user);
        g->seen = gpu_alive(be);
        g->epoch = be->epoch;
        return;
    }
    if (!g->graph)
        record(be, g, work, user);
    if (gpu_alive(be))
        bnet_gpu_record_replay(be, g);
    else if (!g->graph && bnet_gpu_unrecord(be))
        launch_instead(be, work, user);
}

void bnet_gpu_records_free(gpu_backend *be, gpu_records *r)
{
    for (int i = 0; i < r->n; i++)
        bnet_gpu_record_forget(be, &r->all[i]);
}
