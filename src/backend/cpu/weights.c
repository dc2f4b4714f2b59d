/* weights.c - a weight of the CPU backend: rows as format/weight_rows reads them, or as an earlier
 * run packed them. Which kernel reads them: weights_kernel.c. */
#include "backend/cpu/cpu.h"

void bnet_cpu_weight_free(bnet_backend *b, bnet_weight *w)
{
    (void)b;
    bnet_free(w->owned);
    bnet_free(w->block_scales);
    bnet_cpu_head_free(w);
    bnet_free(w->picks);
    bnet_free(w);
}

/* Takes over what the rows own. Ternary rows whose scales vary by row are decoded on the way. */
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

static bitnet_status read_rows(cpu_backend *be, const bnet_weight_request *r, const bnet_log *log,
                               bnet_weight *w, bitnet_error *err)
{
    bnet_weight_rows rows;
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
