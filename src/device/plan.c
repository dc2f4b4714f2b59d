/* plan.c - what to do with a device, computed from its record alone. */
#include "device/device.h"

bnet_gpu_caps bnet_gpu_capabilities(int cc_major, int cc_minor)
{
    int cc = cc_major * 10 + cc_minor;
    return (bnet_gpu_caps){
        .fp16 = cc >= 60,
        .tensor_cores = cc >= 70,
        .bf16 = cc >= 80,
        .fp8 = cc >= 89,
        .auto_fp16 = cc >= 70, /* 6.1 has FP16 arithmetic but runs it slower than FP32 */
    };
}

/* ---- precision ---- */

bool bnet_precision_has(const bnet_gpu_caps *c, bitnet_precision p)
{
    return p == BITNET_PRECISION_FP16 ? c->fp16 : p == BITNET_PRECISION_BF16 ? c->bf16 : true;
}

bitnet_precision bnet_precision_at(const bnet_gpu_caps *c, bitnet_precision wanted, int i)
{
    bitnet_precision list[3];
    int n = 0;
    if (wanted == BITNET_PRECISION_AUTO) {
        if (c->bf16)
            list[n++] = BITNET_PRECISION_BF16;
        if (c->auto_fp16)
            list[n++] = BITNET_PRECISION_FP16;
    } else if (bnet_precision_has(c, wanted)) {
        list[n++] = wanted;
    }
    return i < n ? list[i] : BITNET_PRECISION_FP32;
}

/* ---- launches ---- */

enum { GRID_Y_MAX = 65535 }; /* of every compute capability; x goes up to INT_MAX */

static int ceil_div_clamped(uint64_t a, uint64_t b, int max)
{
    uint64_t q = a / b + (a % b != 0);
    return q > (uint64_t)max ? max : (int)q;
}

/* One tile of int8 for each factor. */
static uint64_t tile_bytes(int block)
{
    return 2 * (uint64_t)block * (uint64_t)block;
}

static bool fits(const bnet_gpu *g, int block)
{
    return block * block <= g->max_threads_per_block &&
           tile_bytes(block) <= g->max_shared_memory_per_block;
}

bnet_launch bnet_launch_params(const bnet_gpu *g, uint64_t m, uint64_t n, uint64_t k)
{
    int block = 32;
    while (block > 1 && !fits(g, block))
        block /= 2;
    bnet_launch l = {.block = block, .shared_bytes = tile_bytes(block)};
    if (m && n && k) { /* else there is nothing to launch: an empty grid */
        l.grid_x = ceil_div_clamped(n, (uint64_t)block, INT32_MAX);
        l.grid_y = ceil_div_clamped(m, (uint64_t)block, GRID_Y_MAX);
    }
    return l;
}

int bnet_persistent_grid(const bnet_gpu *g, int per_sm)
{
    int64_t n = (int64_t)BNET_MAX(g->multiprocessors, 1) * BNET_MAX(per_sm, 1);
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

bitnet_status bnet_cuda_arch_check(const bnet_gpu *g, int toolkit_major, bitnet_error *err)
{
    /* CUDA 13 dropped everything before Turing; our kernels want Pascal in any case */
    int toolkit = toolkit_major >= 13 ? 75 : 50, ours = 60;
    int least = BNET_MAX(toolkit, ours), cc = g->cc_major * 10 + g->cc_minor;
    if (cc >= least)
        return BITNET_OK;
    return bnet_fail(err, BITNET_NOT_AVAILABLE,
                     "NotAvailableRuntime: device %d (%s) has compute capability %d.%d; this build "
                     "needs %d.%d (CUDA %d compiles from %d.%d, the kernels use %d.%d); %s",
                     g->device_id, g->name, g->cc_major, g->cc_minor, least / 10, least % 10,
                     toolkit_major, toolkit / 10, toolkit % 10, ours / 10, ours % 10,
                     cc >= ours ? "rebuild with CUDA 12 or use the CPU" : "use the CPU");
}

/* ---- memory ---- */

bnet_memory_plan bnet_memory_policy(const bnet_gpu *g)
{
    const uint64_t GB = 1000000000; /* as cards are sold: an 8 GB card is not below 8 GB */
    uint64_t total = g->total_memory, tenth = total / 10;
    bnet_memory_plan p;
    if (total < 8 * GB)
        p = (bnet_memory_plan){8, total / 20, 0, "conservative"};
    else if (total <= 16 * GB)
        p = (bnet_memory_plan){32, BNET_MIN(tenth, 2 * GB), 0, "standard"};
    else
        p = (bnet_memory_plan){64, BNET_MIN(tenth, 8 * GB), 0, "large"};
    p.shared_bytes = BNET_MAX(g->max_shared_memory_per_block, g->max_shared_memory_optin);
    return p;
}

uint64_t bnet_buffer_cap(uint64_t device_bytes)
{
    const uint64_t most = (uint64_t)2 << 30;
    return device_bytes ? BNET_MIN(most, device_bytes / 10) : most;
}

/* ---- access patterns ---- */

/* b - a if that is a 64-bit integer. */
static bool difference(uint64_t a, uint64_t b, int64_t *out)
{
    bool negative = b < a;
    uint64_t d = negative ? a - b : b - a;
    if (d > INT64_MAX)
        return false;
    *out = negative ? -(int64_t)d : (int64_t)d;
    return true;
}

/* All neighbours of index[0..n) are `stride` apart. */
static bool evenly(const uint64_t *index, size_t n, int64_t stride)
{
    for (size_t i = 1; i < n; i++) {
        int64_t d;
        if (!difference(index[i - 1], index[i], &d) || d != stride)
            return false;
    }
    return true;
}

/* At least two whole rows of at least two columns, all equally far apart, none overlapping. */
static bool tiled(const uint64_t *index, size_t n, bnet_access *out)
{
    size_t columns = 1;
    while (columns < n && index[columns] == index[columns - 1] + 1 && index[columns] != 0)
        columns++;
    int64_t pitch;
    if (columns < 2 || columns == n || n % columns || !difference(index[0], index[columns], &pitch))
        return false;
    if ((pitch < 0 ? (uint64_t)-pitch : (uint64_t)pitch) < columns)
        return false;
    for (size_t row = columns; row < n; row += columns) {
        int64_t d;
        if (!difference(index[row - columns], index[row], &d) || d != pitch ||
            !evenly(index + row, columns, 1))
            return false;
    }
    *out = (bnet_access){BNET_ACCESS_TILED, 0, pitch, (int64_t)columns};
    return true;
}

bnet_access bnet_access_pattern(const uint64_t *index, size_t n)
{
    bnet_access a = {BNET_ACCESS_SEQUENTIAL, 0, 0, 0};
    int64_t stride;
    if (n < 2)
        return a;
    if (difference(index[0], index[1], &stride) && evenly(index, n, stride)) {
        if (stride == 1 && n > 2)
            return a;
        return (bnet_access){BNET_ACCESS_STRIDED, stride, 0, 0};
    }
    if (tiled(index, n, &a))
        return a;
    return (bnet_access){BNET_ACCESS_RANDOM, 0, 0, 0};
}
