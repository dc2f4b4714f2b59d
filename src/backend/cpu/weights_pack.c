/* weights_pack.c - ternary rows into the order kernels stream, once, when the weight is prepared.
 * The threads that will compute a row pack it, so its pages are near them. */
#include "backend/cpu/cpu.h"
#include "base/file.h"

typedef struct pack_job {
    const bnet_weight *w;
    uint8_t *to;
} pack_job;

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
    if (bnet_mul(n_groups, group, &total) && total <= PTRDIFF_MAX)
        j.to = bnet_cpu_piece_take(be, (size_t)total);
    if (!j.to)
        return bnet_no_memory(err, r->source.tensor->name);
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
