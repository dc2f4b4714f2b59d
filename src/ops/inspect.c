/* inspect.c - the entries of inspect.h for callers: each says what a backend without it answers. */
#include "ops/inspect.h"

#define HAS(be, entry) ((be)->inspect && (be)->inspect->entry)

void bnet_backend_each_kernel(const bnet_backend *be, bnet_use_fn *each, void *user)
{
    if (HAS(be, kernels))
        be->inspect->kernels(be, each, user);
}

void bnet_use_list(void *list, const bitnet_kernel_use *use)
{
    bnet_uses *l = list;
    if (l->n < l->cap)
        l->out[l->n] = *use;
    l->n++;
}

size_t bnet_backend_kernels(const bnet_backend *be, bitnet_kernel_use *out, size_t cap)
{
    bnet_uses list = {out, cap, 0};
    bnet_backend_each_kernel(be, bnet_use_list, &list);
    return list.n;
}

uint64_t bnet_backend_fallbacks(const bnet_backend *be)
{
    return HAS(be, fallbacks) ? be->inspect->fallbacks(be) : 0;
}

size_t bnet_backend_shapes(const bnet_backend *be, bnet_kernel_query *out, size_t cap)
{
    return HAS(be, shapes) ? be->inspect->shapes(be, out, cap) : 0;
}

const bnet_capabilities *bnet_backend_capabilities(const bnet_backend *be)
{
    return HAS(be, capabilities) ? be->inspect->capabilities(be) : NULL;
}

bool bnet_backend_stats_read(const bnet_backend *be, bnet_backend_stats *out)
{
    *out = (bnet_backend_stats){0};
    if (!be || !HAS(be, stats))
        return false;
    be->inspect->stats(be, out);
    return true;
}

bool bnet_backend_usage(bnet_backend *be, bitnet_memory_use *out, uint64_t *reclaimable)
{
    *out = (bitnet_memory_use){0};
    *reclaimable = 0;
    if (!be || !HAS(be, usage))
        return false;
    be->inspect->usage(be, out, reclaimable);
    return true;
}

bool bnet_backend_maps(const bnet_backend *be, const void *address)
{
    return be && HAS(be, maps) && be->inspect->maps(be, address);
}

bool bnet_backend_admit(bnet_backend *be, uint64_t need, const char *what, const char *remedy,
                        bitnet_status *st, bitnet_error *err)
{
    bitnet_memory_use u;
    uint64_t reclaimable;
    *st = BITNET_OK;
    if (!bnet_backend_usage(be, &u, &reclaimable))
        return false;
    uint64_t taken = u.own - reclaimable + u.foreign, have = u.total > taken ? u.total - taken : 0;
    if (need > have)
        *st = bnet_fail(err, BITNET_MEMORY,
                        "%s %.2f GiB, the device's memory has %.2f GiB left; %s, close other "
                        "programs on the device, or use device cpu",
                        what, (double)need / 0x1p30, (double)have / 0x1p30, remedy);
    return true;
}

bool bnet_bench_possible(const bnet_backend *be)
{
    return HAS(be, bench_new);
}

bitnet_status bnet_bench_new(bnet_backend *be, const bnet_kernel_query *q, bnet_bench **out,
                             bitnet_error *err)
{
    if (!bnet_bench_possible(be))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "backend %s cannot measure single kernels",
                         bnet_backend_name(be));
    return be->inspect->bench_new(be, q, out, err);
}

double bnet_bench_run(const bnet_backend *be, bnet_bench *b, const bnet_kernel_record *k,
                      bitnet_launch *shape)
{
    if (shape)
        *shape = (bitnet_launch){0};
    return be->inspect->bench_run(b, k, shape);
}

void bnet_bench_free(const bnet_backend *be, bnet_bench *b)
{
    if (b)
        be->inspect->bench_free(b);
}

bool bnet_profile_possible(const bnet_backend *be)
{
    return HAS(be, profile);
}

bool bnet_profile(bnet_backend *be, bool on)
{
    return HAS(be, profile) && be->inspect->profile(be, on);
}

size_t bnet_profile_read(bnet_backend *be, bitnet_kernel_time *out, size_t cap)
{
    return HAS(be, profile_read) ? be->inspect->profile_read(be, out, cap) : 0;
}

bool bnet_backend_read_limit(bnet_backend *be, double *gb_s)
{
    if (!be || !HAS(be, read_limit))
        return false;
    *gb_s = be->inspect->read_limit(be);
    return true;
}

bitnet_status bnet_single_run(bnet_backend *be, bitnet_single_op *p, size_t n, bitnet_error *err)
{
    if (!be || !HAS(be, single))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "no device that serves single operations");
    return be->inspect->single(be, p, n, err);
}

bool bnet_kernel_call_run(bnet_backend *be, const bnet_kernel_call *a)
{
    return HAS(be, call_kernel) && be->inspect->call_kernel(be, a);
}
