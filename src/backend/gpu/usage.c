/* usage.c - memory of the device by purpose, and the time of loading. */
#include "backend/gpu/gpu.h"

int bnet_gpu_batch_limit(const bnet_backend *b)
{
    return ((const gpu_backend *)b)->plan.pass_tokens;
}

void bnet_gpu_usage_begin(gpu_backend *be)
{
    be->plan = bnet_memory_policy(&be->d->gpu);
    uint64_t left = 0, total = 0;
    be->d->c->memory(be->d, &left, &total);
    be->foreign_bytes = total - left;
}

void bnet_gpu_usage_end(const gpu_backend *be)
{
    if (be->weight_bytes || be->kv_bytes)
        bnet_logf(&be->log, BITNET_LOG_WARN, be->d->c->name,
                  "leak: %llu bytes of weights and %llu of caches were not given back",
                  (unsigned long long)be->weight_bytes, (unsigned long long)be->kv_bytes);
}

void bnet_gpu_load_begin(gpu_backend *be, uint64_t n_bytes)
{
    gpu_load *l = &be->load;
    if (!(l->begun > 0))
        *l = (gpu_load){.begun = bnet_now_ms()};
    if (!(l->ms > 0)) /* later tensors are not part of loading */
        l->file_bytes += n_bytes;
}

/* The scratch memory that uploads went through is more than passes need: they take their own. */
static void give_scratch(gpu_backend *be)
{
    bnet_gpu_give(be, be->scratch, be->scratch_bytes, &be->other_bytes);
    be->scratch = (gpu_at){0};
    be->scratch_bytes = 0;
    be->epoch++;
}

void bnet_gpu_weights_done(bnet_backend *b, const bnet_log *log)
{
    gpu_backend *be = gpu_of(b);
    gpu_load *l = &be->load;
    bnet_gpu_enter(be);
    give_scratch(be);
    if (be->head && be->head_loaded && gpu_alive(be))
        be->head_loaded(be, be->head);
    if (gpu_alive(be))
        bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d));
    l->ms = l->begun > 0 ? bnet_now_ms() - l->begun : 0;
    bnet_gpu_leave(be);
    if (!(l->ms > 0))
        return;
    bnet_logf(log, BITNET_LOG_INFO, be->d->c->name,
              "%.1f MB of weights brought to the device in %.1f ms, %.2f GB/s; there %.1f MB",
              (double)l->file_bytes / 1e6, l->ms, (double)l->file_bytes / l->ms / 1e6,
              (double)be->weight_bytes / 1e6);
    bnet_logf(log, BITNET_LOG_DEBUG, be->d->c->name,
              "of these %.1f ms reading, %.1f ms copying, %.1f ms waiting for copies, %.1f ms "
              "taking memory",
              l->read_ms, l->copy_ms, l->wait_ms, l->alloc_ms);
}

void bnet_gpu_usage(bnet_backend *b, bitnet_memory_use *out, uint64_t *reclaimable)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    *reclaimable = bnet_gpu_pool_idle(be);
    if (be->head && !gpu_none(be->head->head_copy))
        *reclaimable += be->head->head_copy_bytes;
    *out = (bitnet_memory_use){.weights = be->weight_bytes,
                               .caches = be->kv_bytes,
                               .workspace = be->buffers.held_bytes + be->other_bytes,
                               .own = be->own_bytes,
                               .own_peak = be->own_peak,
                               .foreign = be->foreign_bytes,
                               .total = be->d->gpu.total_memory,
                               .load_bytes = be->load.file_bytes,
                               .load_ms = be->load.ms};
    bnet_gpu_leave(be);
}
