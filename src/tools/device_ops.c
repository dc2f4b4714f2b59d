/* device_ops.c - single operations on the runtime's device. Sizes are checked here; what the device
 * cannot do any more goes to the CPU, where that is allowed. */
#include "tools/device_ops.h"

#include <math.h>

_Static_assert((int)BITNET_OPS_STEPS == (int)BNET_PLAIN_STEPS, "one list of steps");

/* ---- opening ---- */

static bool may_leave(const bitnet_runtime *r)
{
    return r->selection.is_auto && !r->strict;
}

static bitnet_status open_device(bitnet_ops *o, bitnet_precision precision, bitnet_error *err)
{
    const bitnet_runtime *r = o->runtime;
    const bnet_backend_want want = {.device = r->selection.kind,
                                    .index = r->selection.index,
                                    .pool = r->pool,
                                    .registry = r->registry,
                                    .isa = r->isa,
                                    .strict = r->strict,
                                    .log = &r->log,
                                    .precision = precision};
    bitnet_error why = {0};
    bitnet_status st = bnet_backend_open(&want, &o->device, &why);
    if (st == BITNET_OK || !may_leave(r))
        return st == BITNET_OK ? st : bnet_fail(err, st, "%s", why.message);
    bnet_logf(&r->log, BITNET_LOG_WARN, "device", "%s; the CPU computes instead", why.message);
    return BITNET_OK;
}

bitnet_status bitnet_ops_open(bitnet_runtime *runtime, bitnet_precision precision, bitnet_ops **out,
                              bitnet_error *err)
{
    if (!runtime || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "operations: runtime and out must not be NULL");
    bitnet_status st = bnet_check_int("operations", "precision", (int)precision,
                                      BITNET_PRECISION_FP32, BITNET_PRECISION_AUTO, err);
    if (st != BITNET_OK)
        return st;
    bitnet_ops *o = bnet_calloc(1, sizeof *o);
    if (!o)
        return bnet_no_memory(err, "operations");
    pthread_mutex_init(&o->lock, NULL);
    o->runtime = runtime;
    o->cpu = bnet_runtime_cpu_provider(runtime);
    o->gpu = bnet_provider_find(bnet_device_name(runtime->selection.kind));
    if (runtime->selection.kind != BNET_DEV_CPU && o->gpu)
        st = open_device(o, precision, err);
    if (st == BITNET_OK && !o->device)
        st = bnet_precision_on_cpu(precision, runtime->strict, &runtime->log, err);
    if (st != BITNET_OK) {
        bitnet_ops_close(o);
        return st;
    }
    bnet_backend_stats d;
    bnet_backend_stats_read(o->device, &d);
    o->precision = d.settled;
    *out = o;
    return BITNET_OK;
}

void bitnet_ops_close(bitnet_ops *o)
{
    if (!o)
        return;
    bnet_backend_close(o->device);
    pthread_mutex_destroy(&o->lock);
    bnet_free(o);
}

/* ---- running ---- */

static void note(bitnet_ops *o, const bnet_plain *p, bool on_device)
{
    bitnet_ops_stats *s = &o->stats;
    double ms = 0;
    for (int i = 0; i < BNET_PLAIN_STEPS; i++) {
        s->step_ms[i] += p->ms[i];
        ms += p->ms[i];
    }
    s->n_ops++;
    s->n_device_ops += on_device;
    if (p->kernel)
        s->kernel = p->kernel;
    if (p->op == BNET_PLAIN_QUANTIZE) {
        s->n_quantize++;
        o->quantize_ms += ms;
    } else if (p->op == BNET_PLAIN_MATMUL || p->op == BNET_PLAIN_MATMUL_I2S) {
        s->n_matmul++;
        o->matmul_ms += ms;
    }
    if (p->op != BNET_PLAIN_MATMUL)
        return;
    s->precision.n_ops++;
    double *to[] = {&s->precision.fp32_ms, &s->precision.fp16_ms, &s->precision.bf16_ms};
    *to[on_device ? p->precision : BITNET_PRECISION_FP32] +=
        p->ms[BNET_STEP_CONVERT_IN] + p->ms[BNET_STEP_EXECUTE] + p->ms[BNET_STEP_CONVERT_OUT];
}

static uint64_t add_device(const bitnet_ops *o, bitnet_precision_stats *s)
{
    bnet_backend_stats d;
    bnet_backend_stats_read(o->device, &d);
    s->memory_allocated = d.memory_allocated;
    s->memory_peak = d.memory_peak;
    s->n_h2d += d.n_h2d;
    s->n_d2h += d.n_d2h;
    s->h2d_bytes += d.h2d_bytes;
    s->d2h_bytes += d.d2h_bytes;
    return d.memory_pool;
}

/* The device failed: it is reset and closed, the CPU goes on. */
static bitnet_status leave(bitnet_ops *o, size_t n, bitnet_status why, bitnet_error *err)
{
    if (why != BITNET_NOT_AVAILABLE || !may_leave(o->runtime))
        return why;
    bnet_logf(&o->runtime->log, BITNET_LOG_WARN, "device", "%s; the CPU goes on", err->message);
    add_device(o, &o->stats.precision); /* what it counted is kept */
    bnet_backend_close(o->device);
    o->device = NULL;
    o->precision = BITNET_PRECISION_FP32;
    o->stats.fallback_count += n;
    return BITNET_OK;
}

bitnet_status bnet_ops_run(bitnet_ops *o, bnet_plain *p, size_t n, bitnet_error *err)
{
    bitnet_error local = {0}, *e = err ? err : &local;
    bitnet_status st = BITNET_OK;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < n; i++)
        p[i].precision = o->precision;
    if (o->device) {
        st = bnet_plain_run(o->device, p, n, e);
        for (size_t i = 0; st == BITNET_OK && i < n; i++)
            note(o, &p[i], true);
        if (st == BITNET_OK || (st = leave(o, n, st, e)) != BITNET_OK) {
            pthread_mutex_unlock(&o->lock);
            return st;
        }
    }
    pthread_mutex_unlock(&o->lock);
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        memset(p[i].ms, 0, sizeof p[i].ms);
        p[i].kernel = NULL;
        st = bnet_provider_run(o->cpu, NULL, &p[i], e);
        pthread_mutex_lock(&o->lock);
        if (st == BITNET_OK)
            note(o, &p[i], false);
        pthread_mutex_unlock(&o->lock);
    }
    return st;
}

bool bnet_ops_on_device(bitnet_ops *o)
{
    pthread_mutex_lock(&o->lock);
    bool yes = o->device != NULL;
    pthread_mutex_unlock(&o->lock);
    return yes;
}

/* ---- facts ---- */

const char *bitnet_ops_provider(bitnet_ops *o)
{
    return !o ? NULL : bnet_ops_on_device(o) ? o->gpu->name : o->cpu->name;
}

bitnet_precision bitnet_ops_precision(bitnet_ops *o)
{
    if (!o)
        return BITNET_PRECISION_FP32;
    pthread_mutex_lock(&o->lock);
    bitnet_precision p = o->precision;
    pthread_mutex_unlock(&o->lock);
    return p;
}

void bitnet_ops_stats_init(bitnet_ops_stats *s)
{
    if (s)
        *s = (bitnet_ops_stats){.struct_size = sizeof *s};
}

bitnet_status bitnet_ops_read(bitnet_ops *o, bitnet_ops_stats *stats, bitnet_error *err)
{
    if (!o || !stats)
        return bnet_fail(err, BITNET_ARGUMENT, "operations: ops and stats must not be NULL");
    size_t given = stats->struct_size;
    if (given < sizeof given || given > sizeof *stats)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "operations: struct_size is %zu, must be %zu..%zu; call "
                         "bitnet_ops_stats_init",
                         given, sizeof given, sizeof *stats);
    pthread_mutex_lock(&o->lock);
    bitnet_ops_stats s = o->stats;
    s.memory_current = add_device(o, &s.precision);
    s.provider = o->device ? o->gpu->name : o->cpu->name;
    s.avg_quantize_ms = s.n_quantize ? o->quantize_ms / (double)s.n_quantize : 0;
    s.avg_matmul_ms = s.n_matmul ? o->matmul_ms / (double)s.n_matmul : 0;
    pthread_mutex_unlock(&o->lock);
    s.struct_size = given;
    memcpy(stats, &s, given);
    return BITNET_OK;
}
