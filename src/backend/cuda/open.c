/* open.c - the CUDA backend as the registry and the engine see it: its rows, its opening. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rtc/rtc.h"
#include "backend/group/group.h"

#include <archs.inc>

#define D(least, most, multiple_of)                                                                \
    {                                                                                              \
        least, most, multiple_of                                                                   \
    }
#define CHIP(cc)  BNET_CUDA_FOR_##cc
#define NVRTC(cc) "nvrtc"
static const bnet_kernel_record records[] = {
#define OP(key) BNET_OP_BIT(key)
#define KERNEL(id_, symbols, fn_, op_, format_, dtype_, isa_, tier_, m_, n_, k_, temp, align,      \
               major, minor, tc, agree, fused_)                                                    \
    {.id = #id_,                                                                                   \
     .device = BNET_DEV_CUDA,                                                                      \
     .op = BNET_OP_##op_,                                                                          \
     .format = BNET_FORMAT_##format_,                                                              \
     .dtype = BNET_DTYPE_##dtype_,                                                                 \
     .fused = fused_,                                                                              \
     .isa = isa_(major##minor),                                                                    \
     .tier = BITNET_TIER_##tier_,                                                                  \
     .temp_bytes = temp,                                                                           \
     .alignment = align,                                                                           \
     .m = m_,                                                                                      \
     .n = n_,                                                                                      \
     .k = k_,                                                                                      \
     .needs = BNET_CUDA_NEED(major##minor) | BNET_CUDA_NEED(BUILT) |                               \
              (tc ? BNET_CUDA_NEED(TENSOR_CORES) : 0),                                             \
     .need_name = bnet_cuda_need_name,                                                             \
     .build = "cuda",                                                                              \
     .abi = BITNET_KERNEL_ABI,                                                                     \
     .agreement = agree,                                                                           \
     .fn = (bnet_kernel_fn)bnet_##fn_},
#include "backend/cuda/kernels.inc"
#undef KERNEL
#undef OP
};

static const gpu_kernel_row rows[] = {
#define KERNEL(id, symbols, ...) {#id, symbols},
#include "backend/cuda/kernels.inc"
#undef KERNEL
};

const bnet_kernel_record *bnet_cuda_kernel_rows(size_t *n)
{
    *n = BNET_COUNT(records);
    return records;
}

bitnet_status bnet_cuda_adopt(bnet_kernel_record *k, bitnet_error *err)
{
    char quoted[64];
    bitnet_status st = bnet_gpu_adopt(k);
    k->need_name = bnet_cuda_need_name;
    if (st != BITNET_OK || !*k->isa || strcmp(k->isa, "scalar") == 0)
        return st;
    uint64_t level = bnet_cuda_need_of(k->isa);
    k->needs |= level;
    return level ? BITNET_OK
                 : bnet_fail(err, BITNET_ARGUMENT,
                             "isa '%s' is unknown; of CUDA devices: sm_50 sm_60 sm_61 sm_70 sm_75 "
                             "sm_80 sm_90",
                             bnet_quote(k->isa, strlen(k->isa), quoted, sizeof quoted));
}

void bnet_cuda_kept(const bnet_serving *s, bnet_kernel_query *q)
{
    bnet_gpu_kept(s, q);
}

/* What pass.c and decode.c compute. Matrices must be ternary with one scale each (net.c). */
static const bnet_features in_passes =
    BNET_FEATURE(RELU2) | BNET_FEATURE(SILU) | BNET_FEATURE(SUB_NORMS) | BNET_FEATURE(SCALES) |
    BNET_FEATURE(TIED_HEAD) | BNET_FEATURE(FLOAT_HEAD) | BNET_FEATURE(QUANTISED_HEAD) |
    BNET_FEATURE(ROPE_PAIRS) | BNET_FEATURE(ROPE_HALVES) | BNET_FEATURE(ROPE_FACTORS);

/* Ranges that NVIDIA's profilers show next to the kernels: passes, their phases, tensors on their
 * way. The library is found at run time; it hands the ranges to a profiler that is attached and
 * does nothing else. Where it is missing a warning says so; if strict, it fails NOT_AVAILABLE. */
static bitnet_status ranges_open(gpu_driver *d, const bnet_log *log, bool strict, bitnet_error *err)
{
    static const char *const names[] = {"libnvtx3interop.so.1", "libnvToolsExt.so.1", NULL};
    static const char *const wanted[] = {"nvtxRangePushA", "nvtxRangePop", NULL};
    cuda_driver *c = (cuda_driver *)d;
    char why[160];
    if (bnet_library_open(c->loader, names, wanted, &c->nvtx, why, sizeof why)) {
        memcpy(&d->range_push, &c->nvtx.fn[0], sizeof d->range_push);
        memcpy(&d->range_pop, &c->nvtx.fn[1], sizeof d->range_pop);
        return BITNET_OK;
    }
    if (strict)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "nvtx: %s: install the CUDA toolkit's NVTX (package cuda-nvtx)", why);
    bnet_logf(log, BITNET_LOG_WARN, "cuda",
              "nvtx: %s: no ranges are marked; install the CUDA toolkit's NVTX (package cuda-nvtx)",
              why);
    return BITNET_OK;
}

static bitnet_status open_one(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    gpu_driver *d = NULL;
    bitnet_status st = bnet_cuda_driver_open(&bnet_dl, BNET_MAX(w->index, 0), &d, err);
    const gpu_vendor vendor = {rows,
                               BNET_COUNT(rows),
                               bnet_cuda_pass,
                               bnet_cuda_pass_bytes,
                               bnet_cuda_pass_reserve,
                               bnet_cuda_kernel_call,
                               bnet_cuda_head_loaded,
                               in_passes};
    if (st == BITNET_OK && w->ranges)
        st = ranges_open(d, w->log, w->strict, err);
    if (st != BITNET_OK && d)
        d->c->close(d);
    if (st == BITNET_OK)
        st = bnet_gpu_open(w, d, &vendor, out, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_cuda_compiled_open(gpu_of(*out), w, err);
    if (st != BITNET_OK) {
        bnet_backend_close(*out);
        *out = NULL;
    }
    return st;
}

bitnet_status bnet_cuda_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    static const gpu_group_vendor several = {open_one, bnet_cuda_exchange_open};
    return w->ranks.n > 1 ? bnet_group_open(w, &several, out, err) : open_one(w, out, err);
}
