/* open.c - from a chosen device to its backend, from an id to its row. The list is backends.inc; a
 * kind without a row there was not compiled in. */
#include "ops/open.h"

#include "ops/trace.h"

static const struct {
    const char *device;
    bitnet_status (*open)(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);
    const bnet_kernel_record *(*rows)(size_t *n);
    void (*kept)(const bnet_serving *s, bnet_kernel_query *q);
    bitnet_status (*adopt)(bnet_kernel_record *k, bitnet_error *err);
} backends[] = {
#define BACKEND(name)                                                                              \
    {#name, bnet_##name##_open, bnet_##name##_kernel_rows, bnet_##name##_kept, bnet_##name##_adopt},
#include "ops/backends.inc"
#undef BACKEND
};

bitnet_status bnet_precision_on_cpu(bitnet_precision wanted, bool strict, const bnet_log *log,
                                    bitnet_error *err)
{
    if (wanted == BITNET_PRECISION_FP32 || wanted == BITNET_PRECISION_AUTO)
        return BITNET_OK;
    if (strict)
        return bnet_fail(
            err, BITNET_NOT_AVAILABLE,
            "precision %s: the CPU multiplies float matrices in fp32 only; use fp32 or "
            "auto, or a GPU; strict mode allows no other precision",
            bitnet_precision_text(wanted));
    bnet_logf(log, BITNET_LOG_WARN, "device",
              "precision %s: the CPU multiplies float matrices in fp32 only: fp32 is used",
              bitnet_precision_text(wanted));
    return BITNET_OK;
}

/* A wish that CUDA devices alone fulfil. */
static bitnet_status cuda_only(const bnet_backend_want *w, bool wanted, const char *why,
                               bitnet_error *err)
{
    if (!wanted || w->device == BNET_DEV_CUDA)
        return BITNET_OK;
    if (w->strict)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s; omit it or use device cuda", why);
    bnet_logf(w->log, BITNET_LOG_WARN, "device", "%s", why);
    return BITNET_OK;
}

static bitnet_status check_wishes(const bnet_backend_want *w, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    if (w->device == BNET_DEV_CPU)
        st = bnet_precision_on_cpu(w->precision, w->strict, w->log, err);
    if (st == BITNET_OK)
        st = cuda_only(
            w, w->specialise,
            "gpu-specialise: the CPU's kernels are those of the build: nothing is compiled", err);
    if (st == BITNET_OK)
        st = cuda_only(w, w->ranges, "nvtx: ranges are marked on CUDA devices alone", err);
    return st;
}

/* Results of several devices are parts of tensors, which a trace could not put together. */
static bitnet_status add_trace(bnet_backend *be, const char *folder, bitnet_error *err)
{
    if (be->v->n_ranks > 1)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "trace: %d devices compute together; a trace is of one", be->v->n_ranks);
    return bnet_trace_open(folder, &be->trace, err);
}

static bitnet_status open_traced(size_t i, const bnet_backend_want *w, bnet_backend **out,
                                 bitnet_error *err)
{
    bnet_backend *be = NULL;
    bitnet_status st = backends[i].open(w, &be, err);
    if (st == BITNET_OK && w->trace_dir)
        st = add_trace(be, w->trace_dir, err);
    if (st == BITNET_OK)
        *out = be;
    else
        bnet_backend_close(be);
    return st;
}

static bitnet_status not_compiled(bnet_device_kind device, bitnet_error *err)
{
    return bnet_fail(err, BITNET_NOT_COMPILED,
                     "%s: this build has no %s backend; use device cpu or auto",
                     bnet_device_name(device), bnet_device_label(device));
}

bitnet_status bnet_backend_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    const char *device = bnet_device_name(w->device);
    bitnet_status st = check_wishes(w, err);
    if (st != BITNET_OK)
        return st;
    for (size_t i = 0; i < BNET_COUNT(backends); i++)
        if (strcmp(backends[i].device, device) == 0)
            return open_traced(i, w, out, err);
    return not_compiled(w->device, err);
}

bitnet_status bnet_kernel_adopt(bnet_kernel_record *k, bitnet_error *err)
{
    const char *device = bnet_device_name(k->device);
    for (size_t i = 0; i < BNET_COUNT(backends); i++)
        if (strcmp(backends[i].device, device) == 0)
            return backends[i].adopt(k, err);
    return not_compiled(k->device, err);
}

bitnet_status bnet_kernel_serving(const bnet_serving *s, bnet_kernel_query *q,
                                  const bnet_kernel_record **out, bitnet_error *err)
{
    const char *device = bnet_device_name(s->caps->device);
    for (size_t i = 0; q->priority == BITNET_PRIORITY_SPEED && i < BNET_COUNT(backends); i++)
        if (strcmp(backends[i].device, device) == 0)
            backends[i].kept(s, q);
    return bnet_registry_select(s->registry, s->caps, q, out, err);
}

const bnet_kernel_record *bnet_kernel_row_find(const char *id)
{
    for (size_t b = 0; b < BNET_COUNT(backends); b++) {
        size_t n;
        const bnet_kernel_record *rows = backends[b].rows(&n);
        for (size_t i = 0; i < n; i++)
            if (strcmp(rows[i].id, id) == 0)
                return &rows[i];
    }
    return NULL;
}

const char *bnet_backend_at(int i)
{
    return i >= 0 && (size_t)i < BNET_COUNT(backends) ? backends[i].device : NULL;
}
