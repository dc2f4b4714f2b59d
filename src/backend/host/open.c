/* open.c - the host-memory backend as the registry and the engine see it: its rows, its opening. */
#include "backend/gpu/launch_ref.h"
#include "backend/group/group.h"
#include "backend/host/host.h"

static const bnet_kernel_record records[] = {
#define REF(name, symbols, fn_, op_, format_, dtype_, agree)                                       \
    {.id = #name "_host_ref",                                                                      \
     .device = BNET_DEV_HOST,                                                                      \
     .op = BNET_OP_##op_,                                                                          \
     .format = BNET_FORMAT_##format_,                                                              \
     .dtype = BNET_DTYPE_##dtype_,                                                                 \
     .isa = "portable",                                                                            \
     .tier = BITNET_TIER_REFERENCE,                                                                \
     .alignment = 16,                                                                              \
     .m = {1, 0, 1},                                                                               \
     .n = {1, 0, 1},                                                                               \
     .k = {1, 0, 1},                                                                               \
     .build = "host",                                                                              \
     .abi = BITNET_KERNEL_ABI,                                                                     \
     .agreement = agree,                                                                           \
     .fn = (bnet_kernel_fn)bnet_##fn_},
#include "backend/gpu/ref/ref_kernels.inc"
#undef REF
};

const bnet_kernel_record *bnet_host_kernel_rows(size_t *n)
{
    *n = BNET_COUNT(records);
    return records;
}

static const char *need_name(int bit)
{
    return bit == 63 ? "an engine that is opened after its registration" : NULL;
}

bitnet_status bnet_host_adopt(bnet_kernel_record *k, bitnet_error *err)
{
    (void)err;
    k->need_name = need_name;
    return bnet_gpu_adopt(k);
}

void bnet_host_kept(const bnet_serving *s, bnet_kernel_query *q)
{
    bnet_gpu_kept(s, q);
}

static bitnet_status open_one(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    static const gpu_kernel_row rows[] = {
#define REF(name, symbols, ...) {#name "_host_ref", symbols},
#include "backend/gpu/ref/ref_kernels.inc"
#undef REF
    };
    const gpu_vendor vendor = {.rows = rows, .n_rows = BNET_COUNT(rows)};
    gpu_driver *d = NULL;
    bitnet_status st = bnet_host_driver_open(w->pool, &d, err);
    return st == BITNET_OK ? bnet_gpu_open(w, d, &vendor, out, err) : st;
}

static bitnet_status join(gpu_backend *const *ranks, int n, const bnet_log *log, gpu_exchange **out,
                          bitnet_error *err)
{
    (void)log;
    return bnet_gpu_copies_open(ranks, n, out, err);
}

bitnet_status bnet_host_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    static const gpu_group_vendor several = {open_one, join};
    return w->ranks.n > 1 ? bnet_group_open(w, &several, out, err) : open_one(w, out, err);
}
