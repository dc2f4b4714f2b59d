/* single_ops.c - operations from host memory to host memory in seven steps: check the device, find
 * the kernel, take memory from the pool, upload inputs (as halves for products of halves), launch,
 * download the result, note the times. Calls go together, with one wait for each step of them all.
 * Whichever step fails, all memory is given back. */
#include "backend/gpu/precision.h"

enum { INPUTS = 3, OUTPUTS = 2, HALVES = 2 };

typedef struct call {
    gpu_backend *be;
    bitnet_single_op *p;
    const bnet_kernel_record *kernel, *convert;
    gpu_at in[INPUTS], out[OUTPUTS], half[HALVES];
    bitnet_error *err;
} call;

/* ---- which kernel ---- */

static bnet_kernel_query of_key(bnet_op op, bnet_format format, bnet_dtype dtype)
{
    return (bnet_kernel_query){.op = op, .format = format, .dtype = dtype};
}

static bnet_kernel_query query_of(const bitnet_single_op *p)
{
    static const bnet_format packed[] = {BNET_FORMAT_I2S, BNET_FORMAT_TL1, BNET_FORMAT_TL2};
    static const bnet_format vectors[] = {BNET_FORMAT_ADD,       BNET_FORMAT_MUL,
                                          BNET_FORMAT_RELU2,     BNET_FORMAT_SILU,
                                          BNET_FORMAT_GLU_RELU2, BNET_FORMAT_GLU_SILU};
    static const bnet_format to[] = {BNET_FORMAT_F16, BNET_FORMAT_BF16, BNET_FORMAT_F32,
                                     BNET_FORMAT_F32};
    static const bnet_dtype from[] = {BNET_DTYPE_F32, BNET_DTYPE_F32, BNET_DTYPE_F16,
                                      BNET_DTYPE_BF16};
    switch (p->op) {
    case BITNET_SINGLE_MATMUL_I2S:
        return (bnet_kernel_query){BNET_OP_MATMUL, BNET_FORMAT_I2S,      BNET_DTYPE_I8, p->m, p->n,
                                   p->k,           BITNET_PRIORITY_SPEED};
    case BITNET_SINGLE_MATMUL:
        return (bnet_kernel_query){BNET_OP_MATMUL,
                                   gpu_float_format(p->precision),
                                   gpu_float_dtype(p->precision),
                                   p->m,
                                   p->n,
                                   p->k,
                                   BITNET_PRIORITY_SPEED};
    case BITNET_SINGLE_QUANTIZE:
        return of_key(BNET_OP_TERNARISE, packed[p->type], BNET_DTYPE_F32);
    case BITNET_SINGLE_QK256:
        return of_key(BNET_OP_GEMV, BNET_FORMAT_QK256, BNET_DTYPE_F32);
    case BITNET_SINGLE_CONVERT:
        return of_key(BNET_OP_CONVERT, to[p->type], from[p->type]);
    case BITNET_SINGLE_VECTOR:
        return of_key(BNET_OP_VECTOR, vectors[p->type], BNET_DTYPE_F32);
    case BITNET_SINGLE_SOFTMAX:
        return of_key(BNET_OP_SOFTMAX, BNET_FORMAT_F32, BNET_DTYPE_F32);
    default:
        return of_key(BNET_OP_ARGMAX, BNET_FORMAT_F32, BNET_DTYPE_F32);
    }
}

static bitnet_status capability(call *c)
{
    const gpu_driver *d = c->be->d;
    if (c->p->op != BITNET_SINGLE_MATMUL || bnet_precision_has(&d->has, c->p->precision))
        return BITNET_OK;
    return bnet_fail(c->err, BITNET_NOT_AVAILABLE,
                     "precision %s: device %d (%s) has %s, which has none; use fp32",
                     bitnet_precision_text(c->p->precision), d->gpu.device_id, d->gpu.name,
                     d->chip);
}

static bitnet_status need(call *c, const bnet_kernel_query *q, const bnet_kernel_record **out)
{
    gpu_backend *be = c->be;
    bitnet_status st = bnet_registry_select(be->registry, &be->caps, q, out, c->err);
    if (st != BITNET_OK || bnet_gpu_has(be, *out, 0))
        return st;
    return bnet_fail(c->err, BITNET_NOT_AVAILABLE,
                     "%s: kernel %s is not in the images for device %d (%s, %s), or its code could "
                     "not be compiled for it; update the driver, rebuild for this device, or use "
                     "--precision fp32 or --device cpu",
                     be->d->c->name, (*out)->id, be->d->gpu.device_id, be->d->gpu.name,
                     be->d->chip);
}

static bool in_halves(const bitnet_single_op *p)
{
    return p->op == BITNET_SINGLE_MATMUL && gpu_half(p->precision);
}

static bitnet_status kernels(call *c)
{
    bnet_kernel_query q = query_of(c->p);
    bitnet_status st = need(c, &q, &c->kernel);
    if (st != BITNET_OK || !in_halves(c->p))
        return st;
    bnet_kernel_query to_half =
        of_key(BNET_OP_CONVERT, gpu_float_format(c->p->precision), BNET_DTYPE_F32);
    return need(c, &to_half, &c->convert);
}

/* ---- memory ---- */

static bitnet_status take(call *c, size_t n_bytes, gpu_at *out)
{
    if (!n_bytes)
        return BITNET_OK;
    return bnet_gpu_pool_take(c->be, n_bytes, __FILE__, __LINE__, out, c->err);
}

static bitnet_status take_all(call *c)
{
    const bitnet_single_op *p = c->p;
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < INPUTS; i++)
        st = take(c, p->in_bytes[i], &c->in[i]);
    for (int i = 0; st == BITNET_OK && i < OUTPUTS; i++)
        st = take(c, p->out_bytes[i], &c->out[i]);
    for (int i = 0; st == BITNET_OK && in_halves(p) && i < HALVES; i++)
        st = take(c, p->in_bytes[i] / 2, &c->half[i]);
    return st;
}

static void give_all(call *c)
{
    gpu_at *all[] = {c->in, c->out, c->half};
    const int n[] = {INPUTS, OUTPUTS, HALVES};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < n[i]; j++)
            bnet_gpu_pool_give(c->be, all[i][j]);
}

/* ---- work ---- */

static bitnet_status bring(call *c)
{
    const bitnet_single_op *p = c->p;
    for (int i = 0; i < INPUTS; i++)
        if (p->in_bytes[i])
            bnet_gpu_upload(c->be, c->in[i], p->in[i], p->in_bytes[i]);
    for (int i = 0; in_halves(p) && i < HALVES; i++)
        if (p->in_bytes[i])
            ((gpu_fn_convert *)c->convert->fn)(c->be, c->convert, c->in[i], p->in_bytes[i] / 4,
                                               c->half[i]);
    return BITNET_OK;
}

static bitnet_status execute(call *c)
{
    const bnet_kernel_record *k = c->kernel;
    c->p->kernel = k->id;
    if (c->p->op == BITNET_SINGLE_CONVERT)
        ((gpu_fn_convert *)k->fn)(c->be, k, c->in[0], c->p->n, c->out[0]);
    else
        ((gpu_fn_single *)k->fn)(c->be, k, c->p, in_halves(c->p) ? c->half : c->in, c->out);
    return BITNET_OK;
}

static bitnet_status fetch(call *c)
{
    const bitnet_single_op *p = c->p;
    gpu_backend *be = c->be;
    for (int i = 0; i < OUTPUTS; i++) {
        if (!p->out_bytes[i] || !gpu_alive(be))
            continue;
        bnet_gpu_ok(be, "copying to the host",
                    be->d->c->to_host(be->d, p->out[i], c->out[i], p->out_bytes[i]));
        atomic_fetch_add(&be->n_d2h, 1);
        atomic_fetch_add(&be->d2h_bytes, p->out_bytes[i]);
    }
    return BITNET_OK;
}

static bitnet_status record(call *c)
{
    const bitnet_single_op *p = c->p;
    if (p->op == BITNET_SINGLE_MATMUL)
        c->be->half_ms[p->precision] += p->ms[BITNET_STEP_CONVERT_IN] + p->ms[BITNET_STEP_EXECUTE] +
                                        p->ms[BITNET_STEP_CONVERT_OUT];
    return BITNET_OK;
}

/* One step of all calls; the device is waited for once. */
static bitnet_status all_do(call *c, size_t n, bitnet_single_step step)
{
    static bitnet_status (*const steps[BITNET_SINGLE_STEPS])(call *) = {
        capability, kernels, take_all, bring, execute, fetch, record};
    gpu_backend *be = c->be;
    bitnet_status st = BITNET_OK;
    double start = bnet_now_ms();
    for (size_t i = 0; st == BITNET_OK && i < n; i++)
        st = steps[step](&c[i]);
    bool on_device = step >= BITNET_STEP_CONVERT_IN && step <= BITNET_STEP_CONVERT_OUT;
    if (st == BITNET_OK && on_device && gpu_alive(be))
        bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d));
    if (st == BITNET_OK)
        st = bnet_gpu_verdict(be, c->err);
    for (size_t i = 0; i < n; i++)
        c[i].p->ms[step] = (bnet_now_ms() - start) / (double)n;
    return st;
}

bitnet_status bnet_gpu_single(bnet_backend *b, bitnet_single_op *p, size_t n, bitnet_error *err)
{
    bitnet_error unused = {0};
    gpu_backend *be = gpu_of(b);
    call one = {0}, *c = n > 1 ? bnet_calloc(n, sizeof *c) : &one;
    if (!c)
        return bnet_no_memory(err, "a group of operations");
    for (size_t i = 0; i < n; i++)
        c[i] = (call){.be = be, .p = &p[i], .err = err ? err : &unused};
    bnet_gpu_enter(be);
    bitnet_status st = n ? bnet_gpu_verdict(be, c->err) : BITNET_OK;
    for (int i = 0; n && st == BITNET_OK && i < BITNET_SINGLE_STEPS; i++)
        st = all_do(c, n, (bitnet_single_step)i);
    for (size_t i = n; i-- > 0;) /* the pool finds what was taken last first */
        give_all(&c[i]);
    bnet_gpu_leave(be);
    if (c != &one)
        bnet_free(c);
    return st;
}
