/* driver.c - gpu/driver.h on plain memory: pieces of memory, copies, time, opening. */
#include "backend/host/work.h"
#include "device/probe.h"

#include <stdio.h>

enum { FRESH = 0xa5 }; /* what memory holds that nobody has written */

void bnet_host_fail(gpu_driver *d, host_call call, uint64_t nth, gpu_result r)
{
    host_driver *h = host_of(d);
    h->fail_at[call] = nth ? h->n_calls[call] + nth : 0;
    h->fail_with[call] = r;
}

uint64_t bnet_host_calls(const gpu_driver *d, host_call call)
{
    return host_of(d)->n_calls[call];
}

uint64_t bnet_host_used(const gpu_driver *d)
{
    return host_of(d)->n_used;
}

static bitnet_status host_explain(const gpu_driver *d, const char *what, gpu_result r,
                                  bitnet_error *err)
{
    static const char *const hints[GPU_RESULTS] = {
        [GPU_NO_MEMORY] = "close other programs, or take a smaller context or model",
        [GPU_NO_KERNEL] = "this build lacks a kernel: report it",
        [GPU_UNSUPPORTED] = "report it",
        [GPU_FAILED] = "report it",
        [GPU_LOST] = "open the model again"};
    const char *why = host_of(d)->why[r];
    return bnet_fail(err, r == GPU_NO_MEMORY ? BITNET_MEMORY : BITNET_NOT_AVAILABLE,
                     "host: device 0 (%s): %s: %s; %s", d->gpu.name, what,
                     why[0] ? why : "it failed", hints[r]);
}

/* ---- memory ---- */

static gpu_result host_alloc(gpu_driver *d, size_t n_bytes, gpu_memory *out)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_ALLOC);
    if (r != GPU_OK)
        return r;
    gpu_memory m = bnet_calloc(1, sizeof *m);
    uint8_t *data = m ? bnet_alloc(n_bytes) : NULL;
    if (!data) {
        bnet_free(m);
        return bnet_host_why(h, GPU_NO_MEMORY, "no memory of that many bytes", n_bytes, h->n_used);
    }
    memset(data, FRESH, n_bytes);
    *m = (struct gpu_memory){NULL, h->pieces, n_bytes, data};
    if (h->pieces)
        h->pieces->prev = m;
    h->pieces = m;
    h->n_used += n_bytes;
    *out = m;
    return GPU_OK;
}

static void host_release(gpu_driver *d, gpu_memory m)
{
    host_driver *h = host_of(d);
    if (!m)
        return;
    bnet_host_run_queue(h);
    if (m->prev)
        m->prev->next = m->next;
    else
        h->pieces = m->next;
    if (m->next)
        m->next->prev = m->prev;
    h->n_used -= m->n_bytes;
    bnet_free(m->data);
    bnet_free(m);
}

static uint64_t host_address(gpu_driver *d, gpu_memory m)
{
    (void)d;
    return (uint64_t)(uintptr_t)m->data;
}

static void *host_pinned(gpu_driver *d, size_t n_bytes)
{
    (void)d;
    return bnet_alloc(n_bytes);
}

static void host_unpin(gpu_driver *d, void *p)
{
    bnet_host_run_queue(host_of(d));
    bnet_free(p);
}

static void host_memory(gpu_driver *d, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const host_driver *h = host_of(d);
    *total_bytes = h->n_total;
    *free_bytes = h->n_total - BNET_MIN(h->n_used, h->n_total);
}

/* Bytes from the first of n rows to the last. */
static uint64_t span(size_t pitch, size_t n_bytes, size_t n_rows)
{
    return n_rows ? (uint64_t)pitch * (n_rows - 1) + n_bytes : 0;
}

/* ---- copies ---- */

static gpu_result host_to_device(gpu_driver *d, gpu_at dst, const void *src, size_t n_bytes)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_COPY);
    uint8_t *to = r == GPU_OK ? bnet_host_bytes(h, dst, n_bytes) : NULL;
    if (!to)
        return r == GPU_OK ? GPU_FAILED : r;
    return bnet_host_submit(
        h,
        &(host_work){.kind = HOST_DO_COPY, .dst = to, .src = src, .n_bytes = n_bytes, .n_rows = 1});
}

static gpu_result host_to_host(gpu_driver *d, void *dst, gpu_at src, size_t n_bytes)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_COPY);
    const uint8_t *from = r == GPU_OK ? bnet_host_bytes(h, src, n_bytes) : NULL;
    if (!from)
        return r == GPU_OK ? GPU_FAILED : r;
    return bnet_host_submit(
        h, &(host_work){
               .kind = HOST_DO_COPY, .dst = dst, .src = from, .n_bytes = n_bytes, .n_rows = 1});
}

static gpu_result host_copy_rows(gpu_driver *d, const gpu_rows *rows)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_COPY);
    if (r != GPU_OK)
        return r;
    uint8_t *dst =
        bnet_host_bytes(h, rows->dst, span(rows->dst_pitch, rows->n_bytes, rows->n_rows));
    const uint8_t *src =
        bnet_host_bytes(h, rows->src, span(rows->src_pitch, rows->n_bytes, rows->n_rows));
    if (!dst || !src)
        return GPU_FAILED;
    return bnet_host_submit(h, &(host_work){.kind = HOST_DO_COPY,
                                            .dst = dst,
                                            .src = src,
                                            .dst_pitch = rows->dst_pitch,
                                            .src_pitch = rows->src_pitch,
                                            .n_bytes = rows->n_bytes,
                                            .n_rows = rows->n_rows});
}

static gpu_result host_copy(gpu_driver *d, gpu_at dst, gpu_at src, size_t n_bytes)
{
    return host_copy_rows(d, &(gpu_rows){.dst = dst, .src = src, .n_bytes = n_bytes, .n_rows = 1});
}

static gpu_result host_fill_rows(gpu_driver *d, const gpu_rows *rows, int byte)
{
    host_driver *h = host_of(d);
    gpu_result r = bnet_host_count(h, HOST_COPY);
    if (r != GPU_OK)
        return r;
    uint8_t *dst =
        bnet_host_bytes(h, rows->dst, span(rows->dst_pitch, rows->n_bytes, rows->n_rows));
    if (!dst)
        return GPU_FAILED;
    return bnet_host_submit(h, &(host_work){.kind = HOST_DO_FILL,
                                            .dst = dst,
                                            .dst_pitch = rows->dst_pitch,
                                            .n_bytes = rows->n_bytes,
                                            .n_rows = rows->n_rows,
                                            .value = byte});
}

static gpu_result host_fill(gpu_driver *d, gpu_at dst, int byte, size_t n_bytes)
{
    return host_fill_rows(d, &(gpu_rows){.dst = dst, .n_bytes = n_bytes, .n_rows = 1}, byte);
}

static gpu_result host_wait(gpu_driver *d)
{
    gpu_result r = bnet_host_count(host_of(d), HOST_WAIT);
    bnet_host_run_queue(host_of(d));
    return r;
}

/* ---- time, several devices ---- */

static gpu_result host_stamp(gpu_driver *d, int slot)
{
    return bnet_host_submit(host_of(d), &(host_work){.kind = HOST_DO_STAMP, .value = slot});
}

static gpu_result host_between(gpu_driver *d, int first, int second, double *ms)
{
    host_driver *h = host_of(d);
    bnet_host_run_queue(h);
    *ms = h->stamps[second] - h->stamps[first];
    return GPU_OK;
}

/* What waits for work that is being recorded becomes part of the record. */
static gpu_result host_after(gpu_driver *d, gpu_driver *other)
{
    host_driver *h = host_of(d), *o = host_of(other);
    struct gpu_record *rec = o->recording;
    bnet_host_run_queue(o);
    if (!rec || h->recording)
        return GPU_OK;
    if (rec->n_joined == BNET_GPUS_MAX)
        return bnet_host_why(h, GPU_FAILED, "too many devices in a record", BNET_GPUS_MAX, 0);
    bnet_host_run_queue(h);
    rec->joined[rec->n_joined++] = h;
    h->recording = rec;
    return GPU_OK;
}

static bool host_reach(gpu_driver *d, gpu_driver *other)
{
    (void)d;
    (void)other;
    return true;
}

static gpu_result host_fetch(gpu_driver *d, gpu_at dst, gpu_driver *other, gpu_at src,
                             size_t n_bytes)
{
    bnet_host_run_queue(host_of(other));
    return host_copy(d, dst, src, n_bytes);
}

/* ---- opening ---- */

static gpu_result host_enter(gpu_driver *d)
{
    host_driver *h = host_of(d);
    h->inside = true;
    gpu_result r = bnet_host_count(h, HOST_ENTER);
    h->inside = r == GPU_OK;
    return r;
}

static void host_leave(gpu_driver *d)
{
    host_of(d)->inside = false;
}

static void host_close(gpu_driver *d)
{
    host_driver *h = host_of(d);
    bnet_host_run_queue(h);
    while (h->pieces)
        host_release(d, h->pieces);
    bnet_free(h);
}

static const gpu_calls calls = {.name = "host",
                                .close = host_close,
                                .enter = host_enter,
                                .leave = host_leave,
                                .alloc = host_alloc,
                                .release = host_release,
                                .address = host_address,
                                .host_alloc = host_pinned,
                                .host_release = host_unpin,
                                .memory = host_memory,
                                .to_device = host_to_device,
                                .to_host = host_to_host,
                                .copy = host_copy,
                                .fill = host_fill,
                                .wait = host_wait,
                                .find = bnet_host_find,
                                .launch = bnet_host_launch,
                                .explain = host_explain,
                                .fill_rows = host_fill_rows,
                                .record_begin = bnet_host_record_begin,
                                .record_end = bnet_host_record_end,
                                .replay = bnet_host_replay,
                                .graph_release = bnet_host_graph_release,
                                .stamp = host_stamp,
                                .between = host_between,
                                .after = host_after,
                                .reach = host_reach,
                                .fetch = host_fetch,
                                .copy_rows = host_copy_rows};

/* What the machine has, or what this process may use of it. */
static uint64_t memory_total(void)
{
    bnet_world w;
    bnet_cpu_info cpu = {.memory_total = 0};
    bnet_world_real(&w);
    bnet_probe_cpu(&w, &cpu);
    return cpu.memory_limit ? BNET_MIN(cpu.memory_limit, cpu.memory_total) : cpu.memory_total;
}

bitnet_status bnet_host_driver_open(bnet_pool *pool, gpu_driver **out, bitnet_error *err)
{
    host_driver *h = bnet_calloc(1, sizeof *h);
    if (!h)
        return bnet_no_memory(err, "host");
    h->pool = pool;
    h->n_total = memory_total();
    h->base.c = &calls;
    h->base.gpu = (bnet_gpu){.name = "plain memory",
                             .total_memory = h->n_total,
                             .multiprocessors = bnet_pool_threads(pool),
                             .max_threads_per_block = 1024,
                             .software = true};
    h->base.caps = (bnet_capabilities){.device = BNET_DEV_HOST, .builds = 1u << BNET_DEV_HOST};
    snprintf(h->base.chip, sizeof h->base.chip, "the CPU");
    snprintf(h->base.version, sizeof h->base.version, "portable C");
    *out = &h->base;
    return BITNET_OK;
}
