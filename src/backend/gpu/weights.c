/* weights.c - from a tensor in the file to rows on the device: format/weight_rows reads and checks
 * them, the ring brings them up as they are, and a kernel puts them into the order the others want.
 */
#include "backend/gpu/precision.h"
#include "backend/gpu/layouts.h"

enum { UPLOAD_BYTES = 16 << 20, MAX_STRIDE = 1 << 30 };

void bnet_gpu_weight_free(bnet_backend *b, bnet_weight *weight)
{
    gpu_backend *be = gpu_of(b);
    gpu_weight *w = gpu_w(weight);
    bnet_gpu_enter(be);
    be->n_half -= w->half;
    be->epoch++;
    if (be->head == w)
        be->head = NULL;
    if (!w->borrowed)
        bnet_gpu_give(be, w->w[0], w->n_bytes, &be->weight_bytes);
    bnet_gpu_give(be, w->block_scales, w->scales_bytes, &be->weight_bytes);
    bnet_gpu_give(be, w->head_copy, w->head_copy_bytes, &be->weight_bytes);
    bnet_gpu_leave(be);
    bnet_free(w);
}

bool bnet_gpu_give_head_copy(gpu_backend *be)
{
    gpu_weight *w = be->head;
    if (!w || gpu_none(w->head_copy) || be->recording || !gpu_alive(be))
        return false;
    bnet_gpu_give(be, w->head_copy, w->head_copy_bytes, &be->weight_bytes);
    w->head_copy = (gpu_at){0};
    be->epoch++;
    bnet_logf(&be->log, BITNET_LOG_DEBUG, be->d->c->name,
              "the copy of the head is given back: its memory is needed");
    return true;
}

/* ---- sizes ---- */

typedef struct extents {
    uint64_t n[4]; /* bytes */
} extents;

static uint64_t round_to(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Rows padded as kernels.h wants them. */
static bool extents_of(gpu_weight *w, extents *e)
{
    uint64_t n = w->info.n_out, k = w->info.n_in, stride = round_to(k, 64), elems;
    *e = (extents){{0}};
    if (w->layout == GPU_W2)
        stride = round_to(k, BNET_W2_CHUNK);
    if (w->layout == GPU_Q6K)
        stride = round_to(k, 256);
    if (stride > MAX_STRIDE || !bnet_mul(n, stride, &elems) || elems > SIZE_MAX / 8)
        return false;
    w->stride = (uint32_t)stride;
    switch (w->layout) {
    case GPU_W2:
        e->n[0] = round_to(n, BNET_W2_TILE) * stride / 4;
        break;
    case GPU_F32:
        e->n[0] = 4 * elems;
        break;
    case GPU_F16:
    case GPU_BF16:
        e->n[0] = 2 * elems;
        break;
    case GPU_Q8:
        e->n[0] = elems;
        e->n[1] = elems / 32 * 2;
        break;
    case GPU_Q6K:
        e->n[0] = elems / 2;
        e->n[1] = elems / 4;
        e->n[2] = elems / 16;
        e->n[3] = elems / 256 * 2;
        break;
    case GPU_VECTOR:
        e->n[0] = 4 * k;
        break;
    }
    return true;
}

/* One piece of memory for all parts, zero where no row fills it. */
static bool take(gpu_backend *be, gpu_weight *w)
{
    extents e;
    if (!extents_of(w, &e))
        return false;
    uint64_t at[4], total = 0;
    for (int i = 0; i < 4; i++) {
        at[i] = total;
        total += round_to(e.n[i], 256);
    }
    w->n_bytes = (size_t)total;
    gpu_at base = bnet_gpu_take(be, w->n_bytes, &be->weight_bytes);
    if (gpu_none(base))
        return false;
    for (int i = 0; i < 4; i++)
        w->w[i] = e.n[i] ? gpu_plus(base, (size_t)at[i]) : (gpu_at){0};
    int zero = w->layout == GPU_W2 ? BNET_W2_ZERO : 0;
    return bnet_gpu_ok(be, "clearing", be->d->c->fill(be->d, base, zero, w->n_bytes));
}

/* ---- rows ---- */

/* What a type of the file becomes on the device; types that no kernel reads become floats. */
static gpu_layout layout_of(bnet_type t)
{
    switch (t) {
    case BNET_F16:
        return GPU_F16;
    case BNET_BF16:
        return GPU_BF16;
    case BNET_Q8_0:
    case BNET_Q4_0:
        return GPU_Q8;
    case BNET_Q6_K:
        return GPU_Q6K;
    default:
        return GPU_F32;
    }
}

/* Floats that become halves: rows go up as floats. */
static bool narrowed(const gpu_weight *w)
{
    return (w->layout == GPU_F16 && w->info.type != BNET_F16) ||
           (w->layout == GPU_BF16 && w->info.type != BNET_BF16);
}

static bool decoded_on_host(const gpu_weight *w)
{
    return (w->layout == GPU_F32 || narrowed(w)) && w->info.type != BNET_F32;
}

/* Rows [first, first + n) of a type that must be decoded before it goes up. */
static bool upload_decoded(gpu_backend *be, const bnet_weight_rows *h, gpu_at to, size_t first,
                           size_t n)
{
    size_t k = h->n_in;
    float *f = bnet_alloc(n * k * sizeof *f);
    for (size_t i = 0; f && i < n; i++)
        bnet_decode_part(h->type, h->data + (first + i) * h->row_bytes, 0, k, f + i * k);
    if (f)
        bnet_gpu_upload(be, to, f, n * k * sizeof *f);
    else
        bnet_gpu_ok(be, "decoding a weight", GPU_NO_MEMORY);
    bnet_free(f);
    return f != NULL;
}

/* Rows [n][k] of floats become halves behind them. */
static gpu_pack narrow(gpu_backend *be, const gpu_weight *w, const gpu_pack *p)
{
    size_t n_bytes = p->n_rows * p->row_bytes;
    gpu_pack half = *p;
    half.src = gpu_plus(p->src, (size_t)round_to(n_bytes, 256));
    half.row_bytes = p->row_bytes / 2;
    half.type = w->layout == GPU_F16 ? BNET_F16 : BNET_BF16;
    ((gpu_fn_convert *)be->to_half->fn)(be, be->to_half, p->src, n_bytes / 4, half.src);
    return half;
}

/* In pieces through scratch memory, each put into place by the packing kernel. */
static void upload_rows(gpu_backend *be, const bnet_weight_rows *h, const gpu_weight *w)
{
    bool decode = decoded_on_host(w);
    size_t row_bytes = decode ? h->n_in * sizeof(float) : h->row_bytes;
    size_t at_once = BNET_MAX((size_t)UPLOAD_BYTES / BNET_MAX(row_bytes, 1), 1);
    const bnet_kernel_record *k = be->use.pack;
    for (size_t row = 0; row < h->n_out && gpu_alive(be); row += at_once) {
        size_t n = BNET_MIN(at_once, h->n_out - row);
        gpu_at to = bnet_gpu_scratch(be, (narrowed(w) ? 2 : 1) * round_to(n * row_bytes, 256));
        if (gpu_none(to))
            return;
        if (decode)
            upload_decoded(be, h, to, row, n);
        else
            bnet_gpu_upload(be, to, h->data + row * row_bytes, n * row_bytes);
        gpu_pack p = {w->layout, (int)(decode ? BNET_F32 : h->type), to, row_bytes, row, n};
        if (narrowed(w))
            p = narrow(be, w, &p);
        ((gpu_fn_pack *)k->fn)(be, k, &p, w);
    }
}

/* ---- kernels ---- */

static bnet_format format_of(const gpu_weight *w)
{
    static const bnet_format formats[] = {
        [GPU_VECTOR] = BNET_FORMAT_F32, [GPU_W2] = BNET_FORMAT_I2S,    [GPU_F32] = BNET_FORMAT_F32,
        [GPU_F16] = BNET_FORMAT_F16,    [GPU_BF16] = BNET_FORMAT_BF16, [GPU_Q8] = BNET_FORMAT_Q8_0,
        [GPU_Q6K] = BNET_FORMAT_Q6_K};
    return !gpu_none(w->block_scales) ? BNET_FORMAT_I2S_B256
           : w->with_i8               ? BNET_FORMAT_FALLBACK
                                      : formats[w->layout];
}

void bnet_gpu_kept(const bnet_serving *s, bnet_kernel_query *q)
{
    const bnet_type_info *type = bnet_format_type(q->format);
    gpu_weight w = {0};
    if (q->op != BNET_OP_LINEAR && q->op != BNET_OP_EMBED)
        return;
    if (type && type->kind == BNET_KIND_TERNARY && q->dtype == BNET_DTYPE_I8) {
        w.layout = GPU_W2;
        q->format = format_of(&w);
    } else if (type && type->kind != BNET_KIND_TERNARY && q->dtype == BNET_DTYPE_F32) {
        w.layout = layout_of(type->type);
        q->format = format_of(&w);
    }
    if (q->op == BNET_OP_LINEAR)
        bnet_gpu_divide(s, q);
}

static void note_shape(gpu_backend *be, const bnet_kernel_query *q)
{
    for (size_t i = 0; i < be->n_shapes; i++) {
        const bnet_kernel_query *s = &be->shapes[i];
        if (s->n == q->n && s->k == q->k && s->format == q->format && s->dtype == q->dtype)
            return;
    }
    if (be->n_shapes < GPU_SHAPES)
        be->shapes[be->n_shapes++] = *q;
}

static bitnet_status refuse(const bnet_weight_request *r, bitnet_status st, const char *why,
                            bitnet_error *err)
{
    return bnet_wrap(err, st == BITNET_MEMORY ? st : BITNET_MODEL, "%s: tensor %s%s",
                     r->source.file, r->source.tensor->name, why);
}

/* Strict mode allows no weights that are kept as floats because no kernel reads their type. */
static bitnet_status check_strict(const gpu_backend *be, const gpu_weight *w,
                                  const bnet_weight_request *r, bitnet_error *err)
{
    const bnet_kernel_record *none;
    bool kept = w->info.ternary ? w->with_i8 : layout_of(w->info.type) == GPU_F32;
    if (!be->strict || !kept || w->info.type == BNET_F32)
        return BITNET_OK;
    bnet_kernel_query q = {.op = BNET_OP_LINEAR,
                           .format = bnet_format_of_type(w->info.type),
                           .dtype = w->info.ternary ? BNET_DTYPE_I8 : BNET_DTYPE_F32,
                           .m = 1,
                           .n = w->info.n_out,
                           .k = w->info.n_in};
    bitnet_status st = bnet_registry_select(be->registry, &be->caps, &q, &none, err);
    return st == BITNET_OK ? st
                           : refuse(r, st, ": strict mode allows no dequantised fallback", err);
}

static bitnet_status choose(gpu_backend *be, gpu_weight *w, const bnet_weight_request *r,
                            const bnet_log *log, bitnet_error *err)
{
    const bnet_kernel_record *k;
    bnet_kernel_query q = {.op = BNET_OP_LINEAR,
                           .format = format_of(w),
                           .dtype = w->info.ternary ? BNET_DTYPE_I8
                                    : w->half       ? gpu_float_dtype(be->precision)
                                                    : BNET_DTYPE_F32,
                           .m = 1,
                           .n = w->info.n_out,
                           .k = w->layout == GPU_W2 ? w->stride : w->info.n_in};
    bitnet_status st = bnet_registry_select(be->registry, &be->caps, &q, &k, err);
    if (st != BITNET_OK)
        return refuse(r, st, "", err);
    w->query = bnet_query_for(k);
    w->query.n = q.n;
    w->query.k = q.k;
    note_shape(be, &w->query);
    if (decoded_on_host(w) && !w->half)
        bnet_logf(log, BITNET_LOG_WARN, be->d->c->name,
                  "%s: tensor %s: the device has no kernel for %s weights: they are kept as floats",
                  r->source.file, r->source.tensor->name, bnet_type_find(w->info.type)->name);
    return BITNET_OK;
}

/* ---- preparing ---- */

/* Matrices of floats take the backend's precision. */
static void take_precision(const gpu_backend *be, gpu_weight *w)
{
    bool floats = w->layout == GPU_F32 || w->layout == GPU_F16 || w->layout == GPU_BF16;
    w->half = floats && gpu_half(be->precision);
    if (w->half)
        w->layout = be->precision == BITNET_PRECISION_FP16 ? GPU_F16 : GPU_BF16;
}

static void describe(const gpu_backend *be, const bnet_weight_rows *h, gpu_weight *w)
{
    bool by_row = h->ternary && h->form == BNET_ROWS_STORED; /* scales vary by row */
    w->info = (bnet_weight_info){.n_out = h->n_out,
                                 .n_in = h->n_in,
                                 .ternary = h->ternary,
                                 .type = h->type,
                                 .scale = by_row ? 0 : h->scale};
    w->scale = h->scale;
    w->layout = layout_of(h->type);
    if (h->form == BNET_ROWS_VECTOR) {
        w->layout = GPU_VECTOR;
    } else if (h->form == BNET_ROWS_TERNARY) {
        w->layout = GPU_W2;
    } else if (by_row) { /* floats that take int8 */
        w->layout = GPU_F32;
        w->with_i8 = true;
    } else {
        take_precision(be, w);
    }
}

/* What failed on the device, with the tensor it failed for. */
static bitnet_status failed(gpu_backend *be, const bnet_weight_request *r, bitnet_error *err)
{
    bitnet_status st = bnet_gpu_verdict(be, err);
    return bnet_wrap(err, st, "%s: tensor %s", r->source.file, r->source.tensor->name);
}

/* Memory was refused, or something failed before it was asked for. */
static bitnet_status no_memory(gpu_backend *be, const bnet_weight_request *r, const gpu_weight *w,
                               bitnet_error *err)
{
    uint64_t left = 0, total = 0;
    if (!gpu_alive(be))
        return failed(be, r, err);
    be->d->c->memory(be->d, &left, &total);
    return bnet_fail(err, BITNET_MEMORY,
                     "%s: tensor %s: %llu bytes do not fit on device %d (%.2f of %.2f GB are "
                     "free); close other programs on it, choose another device, or --device cpu",
                     r->source.file, r->source.tensor->name, (unsigned long long)w->n_bytes,
                     be->d->gpu.device_id, (double)left / 1e9, (double)total / 1e9);
}

static bitnet_status bring(gpu_backend *be, const bnet_weight_request *r, const bnet_weight_rows *h,
                           gpu_weight *w, bitnet_error *err)
{
    size_t n_scales = h->block_scales ? h->n_out * (h->n_in / 256) * sizeof(float) : 0;
    if (!take(be, w))
        return no_memory(be, r, w, err);
    if (n_scales) {
        w->block_scales = bnet_gpu_take(be, n_scales, &be->weight_bytes);
        if (gpu_none(w->block_scales))
            return no_memory(be, r, w, err);
        w->scales_bytes = n_scales;
        bnet_gpu_upload(be, w->block_scales, h->block_scales, n_scales);
    }
    if (w->layout == GPU_VECTOR)
        bnet_gpu_upload(be, w->w[0], h->data, h->n_in * sizeof(float));
    else
        upload_rows(be, h, w);
    return gpu_alive(be) ? BITNET_OK : failed(be, r, err);
}

static bitnet_status place(gpu_backend *be, const bnet_weight_request *r,
                           const bnet_weight_rows *rows, const bnet_log *log, gpu_weight *w,
                           bitnet_error *err)
{
    bool matrix = rows->form != BNET_ROWS_VECTOR;
    describe(be, rows, w);
    bnet_gpu_enter(be);
    gpu_push(be, r->source.tensor->name);
    bitnet_status st = matrix ? check_strict(be, w, r, err) : BITNET_OK;
    if (st == BITNET_OK)
        st = bring(be, r, rows, w, err);
    gpu_pop(be);
    if (st == BITNET_OK && matrix)
        st = choose(be, w, r, log, err);
    if (st == BITNET_OK && matrix && r->head)
        be->head = w;
    be->n_half += w->half;
    bnet_gpu_leave(be);
    return st;
}

bitnet_status bnet_gpu_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                      const bnet_log *log, bnet_weight **out, bitnet_error *err)
{
    gpu_backend *be = gpu_of(b);
    bnet_weight_rows all;
    double begun = bnet_now_ms();
    bnet_gpu_load_begin(be, r->source.tensor->n_bytes);
    bitnet_status st = bnet_weight_rows_read(&r->source, be->d->c->name, be->pool, log, &all, err);
    be->load.read_ms += bnet_now_ms() - begun;
    if (st != BITNET_OK)
        return st;
    gpu_weight *w = bnet_calloc(1, sizeof *w);
    bnet_weight_rows rows = r->n_rows ? bnet_weight_rows_part(&all, r->first_row, r->n_rows) : all;
    st = w ? place(be, r, &rows, log, w, err) : bnet_no_memory(err, r->source.tensor->name);
    bnet_weight_rows_free(&all);
    if (st != BITNET_OK && w)
        bnet_gpu_weight_free(b, (bnet_weight *)(void *)w);
    else if (w)
        *out = (bnet_weight *)(void *)w;
    return st;
}
