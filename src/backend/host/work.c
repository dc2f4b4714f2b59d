/* work.c - work of the host-memory driver: put into a list and done when somebody waits for it,
 * when memory is released, or when the list is full. Launches are checked when they are asked for.
 */
#include "backend/host/work.h"

#include <stdio.h>

/* ---- failures ---- */

gpu_result bnet_host_why(host_driver *h, gpu_result r, const char *why, uint64_t a, uint64_t b)
{
    snprintf(h->why[r], sizeof h->why[r], "%s (%llu, %llu)", why, (unsigned long long)a,
             (unsigned long long)b);
    return r;
}

/* Counts a call; fails if it is one that should, or stands outside enter and leave. */
gpu_result bnet_host_count(host_driver *h, host_call call)
{
    uint64_t n = ++h->n_calls[call];
    if (!h->inside)
        return bnet_host_why(h, GPU_FAILED, "a call outside of enter and leave", call, n);
    bool lasts = h->fail_with[call] == GPU_NO_MEMORY;
    if (h->fail_at[call] && (lasts ? n >= h->fail_at[call] : n == h->fail_at[call]))
        return bnet_host_why(h, h->fail_with[call], "this call was made to fail", call, n);
    return GPU_OK;
}

/* The bytes at a place; NULL: they are not all inside its memory. */
uint8_t *bnet_host_bytes(host_driver *h, gpu_at at, uint64_t n_bytes)
{
    if (!at.memory || at.offset > at.memory->n_bytes || n_bytes > at.memory->n_bytes - at.offset) {
        bnet_host_why(h, GPU_FAILED, "bytes outside of their memory", at.offset + n_bytes,
                      at.memory ? at.memory->n_bytes : 0);
        return NULL;
    }
    return at.memory->data + at.offset;
}

/* ---- work ---- */

static void run_threads(void *arg, size_t begin, size_t end)
{
    const host_work *w = arg;
    w->kernel->run(w->args, begin, end);
}

static void run(host_driver *h, host_work *w)
{
    for (size_t i = 0; i < w->n_rows; i++)
        if (w->kind == HOST_DO_COPY)
            memmove(w->dst + i * w->dst_pitch, w->src + i * w->src_pitch, w->n_bytes);
        else
            memset(w->dst + i * w->dst_pitch, w->value, w->n_bytes);
    if (w->kind == HOST_DO_LAUNCH)
        bnet_pool_items(h->pool, (size_t)w->n_threads, 1, (size_t)w->cost, run_threads, w);
    if (w->kind == HOST_DO_STAMP)
        h->stamps[w->value] = bnet_now_ms();
}

void bnet_host_run_queue(host_driver *h)
{
    for (size_t i = 0; i < h->n_queued; i++)
        run(h, &h->queue[i]);
    h->n_queued = 0;
}

gpu_result bnet_host_submit(host_driver *h, const host_work *w)
{
    struct gpu_record *rec = h->recording;
    if (rec) {
        if (!bnet_grow(&rec->works, &rec->cap, rec->n + 1, sizeof *rec->works))
            return bnet_host_why(h, GPU_NO_MEMORY, "no memory for a record", rec->n,
                                 sizeof *rec->works);
        rec->works[rec->n++] = *w;
        return GPU_OK;
    }
    if (h->n_queued == HOST_QUEUE)
        bnet_host_run_queue(h);
    h->queue[h->n_queued++] = *w;
    return GPU_OK;
}

/* ---- launches ---- */

gpu_result bnet_host_find(gpu_driver *d, const char *name, gpu_kernel *out)
{
    const host_kernel *k = bnet_host_kernel(name);
    *out = (gpu_kernel)(uintptr_t)(const void *)k;
    return k ? GPU_OK : bnet_host_why(host_of(d), GPU_NO_KERNEL, name, 0, 0);
}

/* Every place among the arguments has the bytes that the kernel will read or write there. */
static gpu_result check_places(host_driver *h, const host_kernel *k, const gpu_arg *args, int n,
                               const host_needs *needs)
{
    int place = 0;
    for (int i = 0; i < n; i++) {
        if (args[i].kind != GPU_ARG_AT)
            continue;
        uint64_t need = place < HOST_PLACES ? needs->n_bytes[place] : 0;
        gpu_at at = args[i].of.at;
        if ((need || !gpu_none(at)) && !bnet_host_bytes(h, at, need))
            return bnet_host_why(h, GPU_FAILED, k->name, (uint64_t)place, need);
        place++;
    }
    return GPU_OK;
}

gpu_result bnet_host_launch(gpu_driver *d, gpu_kernel code, const gpu_dims *dims,
                            const gpu_arg *args, int n_args)
{
    host_driver *h = host_of(d);
    host_work w = {.kind = HOST_DO_LAUNCH, .kernel = (const host_kernel *)(const void *)code};
    host_needs needs;
    gpu_result r = bnet_host_count(h, HOST_LAUNCH);
    if (r != GPU_OK)
        return r;
    size_t n_bytes = bnet_gpu_pack_args(d, args, n_args, w.args, sizeof w.args);
    if (n_bytes != (w.kernel->args_bytes + 7) / 8 * 8)
        return bnet_host_why(h, GPU_FAILED, "arguments that are not the kernel's", n_bytes,
                             w.kernel->args_bytes);
    w.kernel->needs(w.args, &needs);
    r = check_places(h, w.kernel, args, n_args, &needs);
    if (r != GPU_OK)
        return r;
    w.cost = needs.cost;
    w.n_threads = 1;
    for (int i = 0; i < 3; i++)
        w.n_threads *= (uint64_t)dims->grid[i] * dims->block[i];
    return bnet_host_submit(h, &w);
}

/* ---- records ---- */

gpu_result bnet_host_record_begin(gpu_driver *d)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_RECORD);
    if (r != GPU_OK)
        return r;
    h->recording = bnet_calloc(1, sizeof *h->recording);
    return h->recording ? GPU_OK : bnet_host_why(h, GPU_NO_MEMORY, "no memory for a record", 0, 0);
}

void bnet_host_graph_release(gpu_driver *d, gpu_graph g)
{
    (void)d;
    if (g)
        bnet_free(g->works);
    bnet_free(g);
}

gpu_result bnet_host_record_end(gpu_driver *d, gpu_graph *out)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_RECORD);
    gpu_graph g = h->recording;
    h->recording = NULL;
    for (int i = 0; g && i < g->n_joined; i++)
        g->joined[i]->recording = NULL;
    if (r != GPU_OK)
        bnet_host_graph_release(d, g);
    else
        *out = g;
    return r;
}

gpu_result bnet_host_replay(gpu_driver *d, gpu_graph g)
{
    gpu_result r = bnet_host_count(host_of(d), HOST_RECORD);
    for (size_t i = 0; r == GPU_OK && i < g->n; i++)
        r = bnet_host_submit(host_of(d), &g->works[i]);
    return r;
}
