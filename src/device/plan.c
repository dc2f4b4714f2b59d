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

/* ---- memory ---- */

enum { PASS_TOKENS = 16 }; /* of a prompt for each timeline that is planned for */

bnet_memory_plan bnet_memory_policy(const bnet_gpu *g)
{
    const uint64_t GB = 1000000000; /* as cards are sold: an 8 GB card is not below 8 GB */
    uint64_t total = g->total_memory, tenth = total / 10;
    bnet_memory_plan p;
    if (total < 8 * GB)
        p = (bnet_memory_plan){8, 0, total / 20, 0, "conservative"};
    else if (total <= 16 * GB)
        p = (bnet_memory_plan){32, 0, BNET_MIN(tenth, 2 * GB), 0, "standard"};
    else
        p = (bnet_memory_plan){64, 0, BNET_MIN(tenth, 8 * GB), 0, "large"};
    p.pass_tokens = PASS_TOKENS * p.max_batch;
    p.shared_bytes = BNET_MAX(g->max_shared_memory_per_block, g->max_shared_memory_optin);
    return p;
}

uint64_t bnet_buffer_cap(uint64_t device_bytes)
{
    const uint64_t most = (uint64_t)2 << 30;
    return device_bytes ? BNET_MIN(most, device_bytes / 10) : most;
}
