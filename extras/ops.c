/* ops.c - single operations on the runtime's device: opening, counting and timing them. */
#include <pthread.h>
#include <stdlib.h>

#include "ops.h"

struct bitnet_ops {
    bitnet_single *single;
    pthread_mutex_t lock; /* of all below */
    bitnet_ops_stats stats;
    double quantize_ms, matmul_ms;
};

bitnet_status bitnet_ops_open(bitnet_runtime *runtime, bitnet_precision precision, bitnet_ops **out,
                              bitnet_error *err)
{
    if (!runtime || !out)
        return fail(err, BITNET_ARGUMENT, "operations: runtime and out must not be NULL");
    bitnet_ops *o = calloc(1, sizeof *o);
    if (!o)
        return fail(err, BITNET_MEMORY, "out of memory: operations");
    bitnet_status st = bitnet_single_open(runtime, precision, &o->single, err);
    if (st != BITNET_OK) {
        free(o);
        return st;
    }
    pthread_mutex_init(&o->lock, NULL);
    *out = o;
    return BITNET_OK;
}

void bitnet_ops_close(bitnet_ops *o)
{
    if (!o)
        return;
    bitnet_single_close(o->single);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- running ---- */

static void note_product(bitnet_precision_stats *s, const bitnet_single_op *p)
{
    double *to[] = {&s->fp32_ms, &s->fp16_ms, &s->bf16_ms};
    s->n_ops++;
    *to[p->precision] +=
        p->ms[BITNET_STEP_CONVERT_IN] + p->ms[BITNET_STEP_EXECUTE] + p->ms[BITNET_STEP_CONVERT_OUT];
}

static void note(bitnet_ops *o, const bitnet_single_op *p)
{
    bitnet_ops_stats *s = &o->stats;
    double ms = 0;
    for (int i = 0; i < BITNET_SINGLE_STEPS; i++) {
        s->step_ms[i] += p->ms[i];
        ms += p->ms[i];
    }
    s->n_ops++;
    s->n_device_ops += p->kernel != NULL;
    if (p->kernel)
        s->kernel = p->kernel;
    if (p->op == BITNET_SINGLE_QUANTIZE) {
        s->n_quantize++;
        o->quantize_ms += ms;
    } else if (p->op == BITNET_SINGLE_MATMUL || p->op == BITNET_SINGLE_MATMUL_I2S) {
        s->n_matmul++;
        o->matmul_ms += ms;
    }
    if (p->op == BITNET_SINGLE_MATMUL)
        note_product(&s->precision, p);
}

bitnet_status bnetx_run(bitnet_ops *o, bitnet_single_op *ops, size_t n, bitnet_error *err)
{
    bitnet_status st = bitnet_single_run(o ? o->single : NULL, ops, n, err);
    if (!o || st != BITNET_OK)
        return st;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < n; i++)
        note(o, &ops[i]);
    pthread_mutex_unlock(&o->lock);
    return BITNET_OK;
}

bool bnetx_on_device(bitnet_ops *o)
{
    bitnet_single_info info = {0};
    if (o)
        bitnet_single_read(o->single, &info);
    return info.on_device;
}

/* ---- facts ---- */

const char *bitnet_ops_provider(bitnet_ops *o)
{
    bitnet_single_info info = {0};
    if (o)
        bitnet_single_read(o->single, &info);
    return info.provider;
}

bitnet_precision bitnet_ops_precision(bitnet_ops *o)
{
    bitnet_single_info info = {.precision = BITNET_PRECISION_FP32};
    if (o)
        bitnet_single_read(o->single, &info);
    return info.precision;
}

void bitnet_ops_stats_init(bitnet_ops_stats *s)
{
    if (s)
        *s = (bitnet_ops_stats){.struct_size = sizeof *s};
}

static double average(double ms, uint64_t n)
{
    return n ? ms / (double)n : 0;
}

bitnet_status bitnet_ops_read(bitnet_ops *o, bitnet_ops_stats *stats, bitnet_error *err)
{
    if (!o || !stats)
        return fail(err, BITNET_ARGUMENT, "operations: ops and stats must not be NULL");
    size_t given = stats->struct_size;
    if (given < sizeof given || given > sizeof *stats)
        return fail(err, BITNET_ARGUMENT,
                    "operations: struct_size is %zu, must be %zu..%zu; call bitnet_ops_stats_init",
                    given, sizeof given, sizeof *stats);
    bitnet_single_info info;
    bitnet_single_read(o->single, &info);
    pthread_mutex_lock(&o->lock);
    bitnet_ops_stats s = o->stats;
    s.avg_quantize_ms = average(o->quantize_ms, s.n_quantize);
    s.avg_matmul_ms = average(o->matmul_ms, s.n_matmul);
    pthread_mutex_unlock(&o->lock);
    bitnet_precision_stats times = s.precision;
    s.precision = info.device;
    s.precision.n_ops = times.n_ops;
    s.precision.fp32_ms = times.fp32_ms;
    s.precision.fp16_ms = times.fp16_ms;
    s.precision.bf16_ms = times.bf16_ms;
    s.provider = info.provider;
    s.fallback_count = info.n_fallbacks;
    s.memory_current = info.memory_current;
    s.struct_size = given;
    memcpy(stats, &s, given);
    return BITNET_OK;
}
