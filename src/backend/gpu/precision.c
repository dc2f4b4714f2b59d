/* precision.c - settles the precision of float matrices: the device must have it, its kernels must
 * be in the image, and a small product by them must be right. Otherwise the next precision is
 * tried, and at last FP32, which is the reference. */
#include "backend/gpu/precision.h"

#include <math.h>

enum { CHECK_FEW = 3, CHECK_M = 12, CHECK_N = 21, CHECK_K = 70, CHECK_STRIDE = 128, MANY = 512 };

bitnet_precision bnet_gpu_precision_of(const gpu_backend *be, const bnet_kernel_record *k)
{
    bool product =
        k->op == BNET_OP_LINEAR && (k->dtype == BNET_DTYPE_F16 || k->dtype == BNET_DTYPE_BF16);
    return product || k == be->to_half ? be->precision : BITNET_PRECISION_FP32;
}

/* ---- kernels ---- */

static const bnet_kernel_record *find(gpu_backend *be, bnet_op op, bnet_format format,
                                      bnet_dtype dtype, uint64_t m, bitnet_error *err)
{
    bnet_kernel_query q = {.op = op, .format = format, .dtype = dtype, .m = m};
    const bnet_kernel_record *k = NULL;
    if (bnet_registry_select(be->registry, &be->caps, &q, &k, err) != BITNET_OK)
        return NULL;
    if (bnet_gpu_has(be, k, 0))
        return k;
    bnet_fail(err, BITNET_NOT_AVAILABLE,
              "kernel %s is not in the images for device %d (%s, %s), or its code could not be "
              "compiled for it; update the driver, rebuild for this device, or use --precision "
              "fp32",
              k->id, be->d->gpu.device_id, be->d->gpu.name, be->d->chip);
    return NULL;
}

static bool has_kernels(gpu_backend *be, bitnet_precision p, bitnet_error *err)
{
    bnet_format half = gpu_float_format(p);
    bnet_dtype dtype = gpu_float_dtype(p);
    be->to_half = find(be, BNET_OP_CONVERT, half, BNET_DTYPE_F32, 0, err);
    return be->to_half && find(be, BNET_OP_LINEAR, half, dtype, 1, err) &&
           find(be, BNET_OP_LINEAR, half, dtype, MANY, err) &&
           find(be, BNET_OP_MATMUL, half, dtype, 0, err) &&
           find(be, BNET_OP_EMBED, half, BNET_DTYPE_F32, 0, err);
}

/* ---- the check ---- */

/* A product of made-up numbers. */
typedef struct sample {
    float a[CHECK_M * CHECK_K], b[CHECK_K * CHECK_N], c[CHECK_M * CHECK_N];
    float rows[CHECK_N * CHECK_STRIDE]; /* b as weights lie: the other way round, padded */
} sample;

static void fill(sample *s)
{
    uint32_t seed = 12345;
    for (size_t i = 0; i < BNET_COUNT(s->a) + BNET_COUNT(s->b); i++) {
        seed = seed * 1664525u + 1013904223u;
        float v = (float)((int)(seed >> 8 & 0xffff) - 32768) / 8192.0f;
        if (i < BNET_COUNT(s->a))
            s->a[i] = v;
        else
            s->b[i - BNET_COUNT(s->a)] = v;
    }
    for (size_t l = 0; l < CHECK_K; l++)
        for (size_t j = 0; j < CHECK_N; j++)
            s->rows[j * CHECK_STRIDE + l] = s->b[l * CHECK_N + j];
}

/* What an element may be off by: both factors are rounded once, sums are floats. */
static bool right(const sample *s, size_t m, double unit)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < CHECK_N; j++) {
            double want = 0, sizes = 0;
            for (size_t l = 0; l < CHECK_K; l++) {
                double t = (double)s->a[i * CHECK_K + l] * (double)s->b[l * CHECK_N + j];
                want += t;
                sizes += fabs(t);
            }
            double error = fabs((double)s->c[i * CHECK_N + j] - want);
            if (!(error <= sizes * (2.0 * unit + unit * unit + CHECK_K * 0x1p-23)))
                return false;
        }
    return true;
}

static bitnet_status by_itself(gpu_backend *be, bitnet_precision p, sample *s, bitnet_error *err)
{
    bitnet_single_op call = {.op = BITNET_SINGLE_MATMUL,
                             .precision = p,
                             .m = CHECK_M,
                             .n = CHECK_N,
                             .k = CHECK_K,
                             .in = {s->a, s->b},
                             .in_bytes = {sizeof s->a, sizeof s->b},
                             .out = {s->c},
                             .out_bytes = {sizeof s->c}};
    return bnet_gpu_single(&be->base, &call, 1, err);
}

/* As a model does it, by the kernel for m tokens. */
static bitnet_status by_weight(gpu_backend *be, bitnet_precision p, size_t m, sample *s,
                               bitnet_error *err)
{
    const bnet_kernel_record *k =
        find(be, BNET_OP_LINEAR, gpu_float_format(p), gpu_float_dtype(p), m, err);
    size_t parts[] = {sizeof s->rows, sizeof s->rows, sizeof s->a, sizeof s->c}, total = 0;
    gpu_at at[BNET_COUNT(parts)];
    if (!k)
        return BITNET_NOT_AVAILABLE;
    bnet_gpu_enter(be);
    for (size_t i = 0; i < BNET_COUNT(parts); i++)
        total += (parts[i] + 255) / 256 * 256;
    gpu_at base = bnet_gpu_take(be, total, &be->other_bytes), next = base;
    for (size_t i = 0; i < BNET_COUNT(parts); i++) {
        at[i] = next;
        next = gpu_plus(next, (parts[i] + 255) / 256 * 256);
    }
    gpu_weight w = {.info = {.n_out = CHECK_N, .n_in = CHECK_K},
                    .layout = p == BITNET_PRECISION_FP16 ? GPU_F16 : GPU_BF16,
                    .w = {at[1]},
                    .stride = CHECK_STRIDE,
                    .half = true};
    bnet_gpu_ok(be, "checking a precision", gpu_none(base) ? GPU_NO_MEMORY : GPU_OK);
    bnet_gpu_upload(be, at[0], s->rows, sizeof s->rows);
    ((gpu_fn_convert *)be->to_half->fn)(be, be->to_half, at[0], BNET_COUNT(s->rows), at[1]);
    bnet_gpu_upload(be, at[2], s->a, sizeof s->a);
    ((gpu_fn_linear *)k->fn)(be, k, &w, at[2], (int)m, at[3]);
    bnet_gpu_download(be, s->c, at[3], m * CHECK_N * sizeof(float));
    bitnet_status st = bnet_gpu_verdict(be, err);
    bnet_gpu_give(be, base, total, &be->other_bytes);
    bnet_gpu_leave(be);
    return st;
}

/* Every way a product may take, against double arithmetic. */
static bitnet_status check(gpu_backend *be, bitnet_precision p, bool *ok, bitnet_error *err)
{
    static const size_t tokens[] = {CHECK_FEW, CHECK_M};
    double unit = p == BITNET_PRECISION_FP16 ? 0x1p-11 : 0x1p-8;
    sample *s = bnet_calloc(1, sizeof *s);
    if (!s)
        return bnet_no_memory(err, "checking a precision");
    fill(s);
    bitnet_status st = by_itself(be, p, s, err);
    *ok = st == BITNET_OK && right(s, CHECK_M, unit);
    for (size_t i = 0; *ok && i < BNET_COUNT(tokens); i++) {
        memset(s->c, 0, sizeof s->c);
        st = by_weight(be, p, tokens[i], s, err);
        *ok = st == BITNET_OK && right(s, tokens[i], unit);
    }
    bnet_free(s);
    return st;
}

/* The check is not part of anybody's work: its kernels are not counted. */
static void forget(gpu_backend *be)
{
    for (size_t i = 0; i < BNET_KERNELS_MAX; i++)
        be->calls[i] = 0;
    be->n_h2d = be->n_d2h = be->h2d_bytes = be->d2h_bytes = 0;
    memset(be->half_ms, 0, sizeof be->half_ms);
    bnet_gpu_pool_empty(be);
}

/* ---- the choice ---- */

/* Takes p or says in err why not. */
static bitnet_status try(gpu_backend *be, bitnet_precision p, bitnet_error *err)
{
    bool ok = true;
    bitnet_status st = BITNET_OK;
    if (!gpu_half(p))
        return BITNET_OK;
    if (!has_kernels(be, p, err))
        return BITNET_NOT_AVAILABLE;
    st = check(be, p, &ok, err);
    if (st == BITNET_OK && !ok)
        st = bnet_fail(err, BITNET_MISMATCH,
                       "its products are not what the reference says they should be");
    return st;
}

static void tell(const gpu_backend *be, bitnet_precision wanted, const char *why)
{
    if (wanted != BITNET_PRECISION_FP32)
        bnet_logf(&be->log,
                  why[0] && wanted != BITNET_PRECISION_AUTO ? BITNET_LOG_WARN : BITNET_LOG_INFO,
                  be->d->c->name, "precision %s: float matrices are multiplied in %s%s%s",
                  bitnet_precision_text(wanted), bitnet_precision_text(be->precision),
                  why[0] ? ": " : "", why);
}

bitnet_status bnet_gpu_precision(gpu_backend *be, bitnet_precision wanted, bitnet_error *err)
{
    const bnet_gpu *g = &be->d->gpu;
    bitnet_error why = {0};
    bitnet_status st = BITNET_OK;
    if (!bnet_precision_has(&be->d->has, wanted))
        bnet_fail(&why, BITNET_NOT_AVAILABLE, "device %d (%s) of %s has no such arithmetic",
                  g->device_id, g->name, be->d->chip);
    for (int i = 0;; i++) {
        be->precision = bnet_precision_at(&be->d->has, wanted, i);
        st = try(be, be->precision, &why);
        if (st == BITNET_OK)
            break;
        bool other = wanted == BITNET_PRECISION_AUTO || st == BITNET_MISMATCH;
        if (!other) /* no kernel, no memory, a failure: another would not help */
            return bnet_fail(err, st, "precision %s: %s", bitnet_precision_text(wanted),
                             why.message);
        bnet_logf(&be->log, BITNET_LOG_WARN, be->d->c->name, "precision %s: %s",
                  bitnet_precision_text(be->precision), why.message);
    }
    if (be->strict && wanted != BITNET_PRECISION_AUTO && be->precision != wanted)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "precision %s: %s; strict mode allows no other precision",
                         bitnet_precision_text(wanted), why.message);
    forget(be);
    tell(be, wanted, why.message);
    return BITNET_OK;
}

void bnet_gpu_precision_used(const gpu_backend *be, size_t n_half, const bnet_log *log)
{
    if (gpu_half(be->precision) && !n_half)
        bnet_logf(log, BITNET_LOG_WARN, be->d->c->name,
                  "precision %s: the model has no matrix of floats, nothing is computed in it",
                  bitnet_precision_text(be->precision));
}
