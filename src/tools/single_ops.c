/* single_ops.c - single operations on the runtime's device; what the device cannot do any more goes
 * to the CPU, where that is allowed. */
#include "bitnet_kernel.h"
#include "engine/engine.h"

struct bitnet_single {
    const bitnet_runtime *runtime;
    const bnet_provider *gpu, *cpu;
    pthread_mutex_t lock; /* of all below; held while the device works */
    bnet_backend *device; /* NULL: the CPU computes */
    bitnet_precision precision;
    uint64_t n_fallbacks;
    bitnet_precision_stats left; /* what a device counted that was left */
};

/* ---- opening ---- */

static bool may_leave(const bitnet_runtime *r)
{
    return r->selection.is_auto && !r->strict;
}

static bitnet_status open_device(bitnet_single *o, bitnet_precision precision, bitnet_error *err)
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

bitnet_status bitnet_single_open(bitnet_runtime *runtime, bitnet_precision precision,
                                 bitnet_single **out, bitnet_error *err)
{
    if (!runtime || !out)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "single operations: runtime and out must not be NULL");
    bitnet_status st = bnet_check_int("single operations", "precision", (int)precision,
                                      BITNET_PRECISION_FP32, BITNET_PRECISION_AUTO, err);
    if (st != BITNET_OK)
        return st;
    bitnet_single *o = bnet_calloc(1, sizeof *o);
    if (!o)
        return bnet_no_memory(err, "single operations");
    pthread_mutex_init(&o->lock, NULL);
    o->runtime = runtime;
    o->cpu = bnet_runtime_cpu_provider(runtime);
    o->gpu = bnet_provider_find(bnet_device_name(runtime->selection.kind));
    if (runtime->selection.kind != BNET_DEV_CPU && o->gpu)
        st = open_device(o, precision, err);
    if (st == BITNET_OK && !o->device)
        st = bnet_precision_on_cpu(precision, runtime->strict, &runtime->log, err);
    if (st != BITNET_OK) {
        bitnet_single_close(o);
        return st;
    }
    bnet_backend_stats d;
    bnet_backend_stats_read(o->device, &d);
    o->precision = d.settled;
    *out = o;
    return BITNET_OK;
}

void bitnet_single_close(bitnet_single *o)
{
    if (!o)
        return;
    bnet_backend_close(o->device);
    pthread_mutex_destroy(&o->lock);
    bnet_free(o);
}

/* ---- running ---- */

static void add_device(const bitnet_single *o, bitnet_precision_stats *s, uint64_t *memory_current)
{
    bnet_backend_stats d;
    bnet_backend_stats_read(o->device, &d);
    s->memory_allocated = d.memory_allocated;
    s->memory_peak = d.memory_peak;
    s->n_h2d += d.n_h2d;
    s->n_d2h += d.n_d2h;
    s->h2d_bytes += d.h2d_bytes;
    s->d2h_bytes += d.d2h_bytes;
    *memory_current = d.memory_pool;
}

/* The device failed: it is closed, which resets it, and the CPU takes over. */
static bitnet_status leave(bitnet_single *o, size_t n, bitnet_status why, bitnet_error *err)
{
    uint64_t unused;
    if (why != BITNET_NOT_AVAILABLE || !may_leave(o->runtime))
        return why;
    bnet_logf(&o->runtime->log, BITNET_LOG_WARN, "device", "%s; the CPU continues", err->message);
    add_device(o, &o->left, &unused);
    bnet_backend_close(o->device);
    o->device = NULL;
    o->precision = BITNET_PRECISION_FP32;
    o->n_fallbacks += n;
    return BITNET_OK;
}

static bitnet_status on_cpu(const bnet_provider *cpu, bitnet_single_op *p, size_t n,
                            bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        memset(p[i].ms, 0, sizeof p[i].ms);
        p[i].kernel = NULL;
        p[i].precision = BITNET_PRECISION_FP32;
        st = bnet_provider_run(cpu, NULL, &p[i], err);
    }
    return st;
}

/* Returns true, with *st, if the device has done it or failed for good. */
static bool on_device(bitnet_single *o, bitnet_single_op *p, size_t n, bitnet_status *st,
                      bitnet_error *err)
{
    bool done = false;
    pthread_mutex_lock(&o->lock);
    if (o->device) {
        for (size_t i = 0; i < n; i++)
            p[i].precision = o->precision;
        *st = bnet_single_run(o->device, p, n, err);
        done = *st == BITNET_OK || (*st = leave(o, n, *st, err)) != BITNET_OK;
    }
    pthread_mutex_unlock(&o->lock);
    return done;
}

/* ---- checking ---- */

/* How many values `type` may have; 0: it is not looked at. */
static int n_types(bitnet_single_kind op)
{
    switch (op) {
    case BITNET_SINGLE_QUANTIZE:
    case BITNET_SINGLE_DEQUANTIZE:
        return BITNET_QTYPE_TL2 + 1;
    case BITNET_SINGLE_QK256:
        return BITNET_CODES_NOZERO + 1;
    case BITNET_SINGLE_CONVERT:
        return BITNET_BF16_TO_F32 + 1;
    case BITNET_SINGLE_VECTOR:
        return BITNET_VECTOR_GLU_SILU + 1;
    default:
        return 0;
    }
}

static bitnet_status check_blocks(const bitnet_single_op *p, bitnet_error *err)
{
    if (p->op != BITNET_SINGLE_QUANTIZE && p->op != BITNET_SINGLE_DEQUANTIZE)
        return BITNET_OK;
    if (p->k < 1)
        return bnet_fail(err, BITNET_ARGUMENT, "single operations: k is 0, there is no scale");
    if (p->op == BITNET_SINGLE_DEQUANTIZE)
        return BITNET_OK;
    if (p->m < 1 || p->k < p->n / p->m + (p->n % p->m != 0))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "single operations: %zu scales for %zu values each are not enough for %zu",
                         p->k, p->m, p->n);
    const float *in = p->in[0];
    size_t bad = in ? bnet_first_not_finite(in, p->n) : p->n;
    if (bad < p->n)
        return bnet_fail(err, BITNET_ARGUMENT, "quantize: value %zu is %g, not a finite number",
                         bad, (double)in[bad]);
    return BITNET_OK;
}

static bitnet_status check(const bitnet_single_op *p, size_t n, bool *cpu_alone, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; i < n && st == BITNET_OK; i++, p++) {
        int most = n_types(p->op);
        st =
            bnet_check_int("single operations", "op", (int)p->op, 0, BITNET_SINGLE_DEQUANTIZE, err);
        if (st == BITNET_OK && most)
            st = bnet_check_int("single operations", "type", p->type, 0, most - 1, err);
        if (st == BITNET_OK)
            st = check_blocks(p, err);
        *cpu_alone = *cpu_alone || p->op == BITNET_SINGLE_DEQUANTIZE;
    }
    return st;
}

bitnet_status bitnet_single_run(bitnet_single *o, bitnet_single_op *p, size_t n, bitnet_error *err)
{
    bitnet_error unused = {0}, *e = err ? err : &unused;
    bool cpu_alone = false;
    if (n && !p)
        return bnet_fail(err, BITNET_ARGUMENT, "single operations: ops must not be NULL");
    bitnet_status st = check(p, n, &cpu_alone, e);
    if (st != BITNET_OK || (o && n && !cpu_alone && on_device(o, p, n, &st, e)))
        return st;
    return on_cpu(o ? o->cpu : bnet_provider_find("fallback"), p, n, e);
}

void bitnet_single_read(bitnet_single *o, bitnet_single_info *out)
{
    if (!o || !out)
        return;
    pthread_mutex_lock(&o->lock);
    *out = (bitnet_single_info){.provider = o->device ? o->gpu->name : o->cpu->name,
                                .on_device = o->device != NULL,
                                .precision = o->precision,
                                .n_fallbacks = o->n_fallbacks,
                                .device = o->left};
    add_device(o, &out->device, &out->memory_current);
    pthread_mutex_unlock(&o->lock);
}
