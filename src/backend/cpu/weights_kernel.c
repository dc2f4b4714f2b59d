/* weights_kernel.c - which kernel serves a prepared weight. The registry is asked when the weight
 * is made; a type without a kernel is an error in strict mode; otherwise its weights take the
 * dequantised fallback, which is announced once per type and counted at every call. */
#include "backend/cpu/cpu.h"

/* Warns once per engine and type, when the first weight takes the fallback. */
static void announce(cpu_backend *be, const bnet_weight_request *r, const bnet_log *log)
{
    bnet_type t = r->source.tensor->type;
    for (size_t i = 0; i < be->n_warned; i++)
        if (be->warned[i] == t)
            return;
    if (be->n_warned == CPU_WARNED)
        return;
    be->warned[be->n_warned++] = t;
    bnet_logf(log, BITNET_LOG_WARN, "cpu",
              "%s: tensor %s: device cpu has no kernel for %s weights: they are dequantised for "
              "every use, which is slow",
              r->source.file, r->source.tensor->name, bnet_type_find((uint32_t)t)->name);
}

static bool wants_packing(const bnet_serving *s, const bnet_kernel_query *rows,
                          bnet_format packed_format)
{
    const bnet_kernel_record *plain = NULL, *packed = NULL;
    bnet_kernel_query groups = *rows;
    groups.format = packed_format;
    if (bnet_registry_tuned(s->registry, s->caps, &groups))
        return true;
    if (s->no_pack || bnet_registry_tuned(s->registry, s->caps, rows) ||
        bnet_registry_select(s->registry, s->caps, &groups, &packed, NULL) != BITNET_OK)
        return false;
    if (bnet_registry_select(s->registry, s->caps, rows, &plain, NULL) != BITNET_OK)
        return true;
    if (packed->tier == BITNET_TIER_REFERENCE || packed->tier < plain->tier)
        return false;
    return !plain->outside || packed->tier > plain->tier;
}

bool bnet_cpu_wants_packing(const cpu_backend *be, const bnet_kernel_query *rows,
                            bnet_format packed_format)
{
    const bnet_serving s = {.registry = be->registry, .caps = &be->caps, .no_pack = !be->pack};
    return wants_packing(&s, rows, packed_format);
}

/* As pick_for of ops_linear.c cuts passes. */
static void cut_down(const bnet_serving *s, bnet_kernel_query *q)
{
    const bnet_kernel_record *k;
    bnet_kernel_query part = *q;
    while (bnet_registry_select(s->registry, s->caps, &part, &k, NULL) != BITNET_OK) {
        if (part.m <= 1)
            return;
        part.m = (part.m + 1) / 2;
    }
    q->m = part.m;
}

void bnet_cpu_kept(const bnet_serving *s, bnet_kernel_query *q)
{
    const bnet_type_info *type = bnet_format_type(q->format);
    bnet_kernel_query rows = *q, scan = {.op = BNET_OP_HEAD_SCAN,
                                         .format = BNET_FORMAT_Q6_K_R4,
                                         .dtype = BNET_DTYPE_F32};
    if (q->op != BNET_OP_LINEAR)
        return;
    if (q->dtype == BNET_DTYPE_I8 && type && type->kind == BNET_KIND_TERNARY) /* of a file */
        rows.format = q->format = BNET_FORMAT_I2S;
    rows.m = 1; /* weights are packed before anybody knows of passes */
    if (q->format == BNET_FORMAT_I2S && q->dtype == BNET_DTYPE_I8 &&
        wants_packing(s, &rows, BNET_FORMAT_I2S_R16))
        q->format = BNET_FORMAT_I2S_R16;
    if (s->head && q->format == BNET_FORMAT_Q6_K && q->dtype == BNET_DTYPE_F32 &&
        (bnet_registry_tuned(s->registry, s->caps, &scan) ||
         wants_packing(s, &rows, BNET_FORMAT_Q6_K_R4)))
        q->format = BNET_FORMAT_Q6_K_R4;
    cut_down(s, q);
}

static bitnet_status select_one(const cpu_backend *be, const bnet_kernel_query *q, bnet_weight *w,
                                bitnet_error *err)
{
    bitnet_status st = bnet_registry_select(be->registry, &be->caps, q, &w->kernel, err);
    if (st != BITNET_OK)
        return st;
    w->query = bnet_query_for(w->kernel);
    w->query.n = q->n;
    w->query.k = q->k;
    return BITNET_OK;
}

static bitnet_status refuse(const bnet_weight_request *r, bitnet_status st, const char *why,
                            bitnet_error *err)
{
    return bnet_wrap(err, st == BITNET_MEMORY ? st : BITNET_MODEL, "%s: tensor %s%s",
                     r->source.file, r->source.tensor->name, why);
}

/* Remembers the shape for tuning and says what was chosen for it. */
static void note_shape(cpu_backend *be, const bnet_weight *w, const bnet_log *log)
{
    const bnet_kernel_query *q = &w->query;
    for (size_t i = 0; i < be->n_shapes; i++) {
        const bnet_kernel_query *s = &be->shapes[i];
        if (s->n == q->n && s->k == q->k && s->format == q->format && s->dtype == q->dtype)
            return;
    }
    bnet_logf(log, BITNET_LOG_DEBUG, "cpu",
              "linear %s x %s, n %llu, k %llu: kernel %s (%s) for one token",
              bnet_format_name(q->format), bnet_dtype_name(q->dtype), (unsigned long long)q->n,
              (unsigned long long)q->k, w->kernel->id, bnet_tier_name(w->kernel->tier));
    if (be->n_shapes < CPU_SHAPES && !w->whole) /* nobody can make such a weight to measure with */
        be->shapes[be->n_shapes++] = *q;
}

bitnet_status bnet_cpu_weight_kernel(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                                     const bnet_log *log, bitnet_error *err)
{
    bool packed = w->info.ternary && !w->fallback && !w->whole;
    bnet_kernel_query q = {.op = BNET_OP_LINEAR,
                           .format = w->block_scales ? BNET_FORMAT_I2S_B256
                                     : packed        ? BNET_FORMAT_I2S
                                                     : bnet_format_of_type(w->info.type),
                           .dtype = w->info.ternary ? BNET_DTYPE_I8 : BNET_DTYPE_F32,
                           .m = 1,
                           .n = w->info.n_out,
                           .k = packed ? w->row_bytes * 4 : w->info.n_in};
    w->picks = bnet_calloc(1, sizeof *w->picks);
    if (!w->picks)
        return bnet_no_memory(err, r->source.tensor->name);
    if (packed && !w->packed && !w->block_scales &&
        bnet_cpu_wants_packing(be, &q, BNET_FORMAT_I2S_R16)) {
        bitnet_status done = bnet_cpu_pack(be, w, r, err);
        if (done != BITNET_OK)
            return done;
    }
    if (w->packed)
        q.format = BNET_FORMAT_I2S_R16;
    if (r->head && !w->info.ternary) {
        bitnet_status done = bnet_cpu_head_prepare(be, w, r, err);
        if (done != BITNET_OK)
            return done;
        q.format = w->r4 ? BNET_FORMAT_Q6_K_R4 : q.format;
    }
    bitnet_status st = w->fallback ? BITNET_NOT_AVAILABLE : select_one(be, &q, w, err);
    if (st != BITNET_OK && (packed || w->whole))
        return refuse(r, st, "", err);
    if (st != BITNET_OK && be->strict) {
        const bnet_kernel_record *none;
        st = bnet_registry_select(be->registry, &be->caps, &q, &none, err);
        return refuse(r, st, ": strict mode allows no dequantised fallback", err);
    }
    if (st != BITNET_OK) {
        q.format = BNET_FORMAT_FALLBACK;
        w->fallback = true;
        st = select_one(be, &q, w, err);
        if (st != BITNET_OK)
            return refuse(r, st, "", err);
        announce(be, r, log);
    }
    note_shape(be, w, log);
    return BITNET_OK;
}

size_t bnet_cpu_shapes(const bnet_backend *b, bnet_kernel_query *out, size_t cap)
{
    const cpu_backend *be = (const cpu_backend *)b;
    for (size_t i = 0; i < be->n_shapes && i < cap; i++)
        out[i] = be->shapes[i];
    return be->n_shapes;
}
