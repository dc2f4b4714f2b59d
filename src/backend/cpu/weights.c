/* weights.c - a weight of the CPU backend: rows as format/weight_rows reads them, or as an earlier
 * run packed them. Which kernel reads them: weights_kernel.c. */
#include "backend/cpu/cpu.h"
#include "base/file.h"

void bnet_cpu_weight_free(bnet_backend *b, bnet_weight *w)
{
    (void)b;
    bnet_free(w->owned);
    bnet_free(w->block_scales);
    bnet_cpu_head_free(w);
    bnet_free(w->picks);
    bnet_free(w);
}

/* Takes over what the rows own. Ternary rows whose scales vary by row are decoded in
 * every pass. */
static void take_rows(bnet_weight *w, const bnet_weight_rows *rows)
{
    w->data = rows->data;
    w->row_bytes = rows->row_bytes;
    w->owned = rows->owned;
    w->block_scales = rows->block_scales;
    w->fallback = rows->ternary && rows->form == BNET_ROWS_STORED;
    w->fallback_scale = w->fallback ? rows->scale : 0;
    w->info.scale = w->fallback ? 0 : rows->scale;
}

/* A type that nothing here reads, and a program has a kernel for. */
static bool take_whole(const cpu_backend *be, const bnet_weight_request *r, bnet_weight *w)
{
    const bnet_tensor *t = r->source.tensor;
    bnet_format format = bnet_format_of_type(t->type);
    if (!w->info.ternary || !bnet_cpu_whole(format) ||
        !bnet_registry_has(be->registry, &be->caps, BNET_OP_LINEAR, format, BNET_DTYPE_I8))
        return false;
    w->whole = true;
    w->data = t->data;
    w->n_bytes = (size_t)t->n_bytes;
    w->info.scale = r->source.extra_scale;
    return true;
}

static bitnet_status read_rows(cpu_backend *be, const bnet_weight_request *r, const bnet_log *log,
                               bnet_weight *w, bitnet_error *err)
{
    bnet_weight_rows rows;
    if (take_whole(be, r, w))
        return BITNET_OK;
    if (bnet_cpu_cache_ternary(be, w, r))
        return BITNET_OK;
    bitnet_status st = bnet_weight_rows_read(&r->source, "cpu", be->pool, log, &rows, err);
    if (st != BITNET_OK)
        return st;
    be->cache.unfit = be->cache.unfit || rows.damaged;
    take_rows(w, &rows);
    return BITNET_OK;
}

bitnet_status bnet_cpu_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                      const bnet_log *log, bnet_weight **out, bitnet_error *err)
{
    cpu_backend *be = (cpu_backend *)b;
    const bnet_tensor *t = r->source.tensor;
    bnet_weight *w = bnet_calloc(1, sizeof *w);
    if (!w)
        return bnet_no_memory(err, t->name);
    bool matrix = t->n_dims > 1;
    w->info = (bnet_weight_info){.n_in = t->ne[0],
                                 .n_out = matrix ? t->ne[1] : 1,
                                 .type = t->type,
                                 .ternary = bnet_weight_is_ternary(&r->source)};
    bitnet_status st = read_rows(be, r, log, w, err);
    if (st == BITNET_OK && matrix)
        st = bnet_cpu_weight_kernel(be, w, r, log, err);
    if (st != BITNET_OK) {
        bnet_cpu_weight_free(b, w);
        return st;
    }
    *out = w;
    return BITNET_OK;
}

/* ---- ternary rows into the order kernels stream ---- */

typedef struct pack_job {
    const bnet_weight *w;
    uint8_t *to;
} pack_job;

/* The threads that will compute a row pack it, so its pages are near them. */
static void pack_groups(void *arg, size_t begin, size_t end)
{
    const pack_job *j = arg;
    const bnet_weight *w = j->w;
    size_t n_cols = w->row_bytes * 4, group = bnet_r16_group_bytes(n_cols);
    for (size_t g = begin; g < end; g++) {
        size_t row = g * BNET_R16_ROWS, n = BNET_MIN(w->info.n_out - row, (size_t)BNET_R16_ROWS);
        bnet_r16_pack(w->data + row * w->row_bytes, w->row_bytes, n, n_cols, j->to + g * group);
    }
}

bitnet_status bnet_cpu_pack(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                            bitnet_error *err)
{
    size_t n_groups = bnet_r16_groups(w->info.n_out);
    size_t group = bnet_r16_group_bytes(w->row_bytes * 4);
    uint64_t total;
    pack_job j = {w, NULL};
    if (!bnet_mul(n_groups, group, &total))
        return bnet_no_memory(err, r->source.tensor->name);
    bitnet_status st = bnet_cpu_piece_take(be, r->source.tensor->name, total, &j.to, err);
    if (st != BITNET_OK)
        return st;
    bnet_pool_items(be->pool, n_groups, 1, group * 8, pack_groups, &j);
    if (!w->owned && r->mapped)
        bnet_map_release(w->data, w->info.n_out * w->row_bytes);
    bnet_free(w->owned);
    w->owned = NULL;
    w->data = j.to;
    w->packed = true;
    bnet_cpu_cache_note(be, "r16", r->source.tensor->name, w->data, total, (double)w->info.scale,
                        true);
    return BITNET_OK;
}
