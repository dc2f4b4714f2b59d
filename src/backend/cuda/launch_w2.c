/* launch_w2.c - ternary matrices: which kernel of a row, how many blocks, what scratch. */
#include "backend/cuda/w2_few_tokens.h"
#include "backend/cuda/rtc/rtc.h"

/* SHARED_MOST: every chip from 8.0 on has it. That of the device would move one case only: eight
 * tokens, rows of 9729 to 10240, on chips with more than 100 KB; nobody has timed it. */
enum { SPLITS_MAX = 8, CHUNKS_PER_SPLIT = 4, SHARED_MOST = 96 << 10 };

static uint32_t n_sm(const gpu_backend *be)
{
    return (uint32_t)bnet_persistent_grid(&be->d->gpu, 1);
}

/* The kernels of w2_few_tokens.h, where chip and matrix allow them; build: the row of the build's
 * kernels. */
static bool dealt(gpu_backend *be, const bnet_kernel_record *build, const bnet_cu_gemv_args *a,
                  bool compiled)
{
    int symbol = a->n_tokens > 1 ? 3 : a->x ? 2 : 1;
    bnet_cu_few_args o = {.g = *a};
    if (be->d->gpu.cc_major < 8 || (a->x && (a->n_tokens > 1 || a->k % 4)) ||
        !bnet_gpu_has(be, build, symbol))
        return false;
    bnet_cu_launch l = bnet_few_launch(&o, n_sm(be));
    if (!l.grid[0] || l.shared > SHARED_MOST)
        return false;
    if (!compiled || !bnet_cuda_compiled_few(be, &o, &l))
        bnet_cuda_run(be, build, symbol, &l, GPU_OVERLAP, &o);
    return true;
}

/* The same product for the tokens from n on. */
static cuda_w2_call tokens_from(cuda_w2_call c, uint32_t n)
{
    c.n_tokens -= n;
    c.act.q += (uint64_t)n * c.act.stride;
    c.act.scale += n * sizeof(float);
    c.act.sum += n * sizeof(int32_t);
    for (int i = 0; i < BNET_CU_PARTS; i++)
        if (c.m.part[i].y)
            c.m.part[i].y += (uint64_t)n * c.m.part[i].ld * sizeof(float);
    return c;
}

/* compiled: the row of the compiled ones was chosen; the build's serves what it cannot. */
static void gemv(gpu_backend *be, const bnet_kernel_record *asked, const cuda_w2_call *c, bool rtc)
{
    const bnet_kernel_record *k = asked;
    bool compiled = rtc || bnet_cuda_compiled_wanted(be);
    bnet_cu_gemv_args a = {.m = c->m,
                           .act = c->act,
                           .x = cuda_at(c->x),
                           .norm = cuda_at(c->norm),
                           .eps = c->eps,
                           .k = c->k,
                           .n_tokens = c->n_tokens,
                           .epilogue = c->epilogue};
    if (rtc)
        k = bnet_registry_find(be->registry, "i2s_gpu_gemv");
    if (dealt(be, k, &a, compiled))
        return;
    /* one token: two blocks per multiprocessor, so that one multiplies while the other waits */
    bnet_cu_launch l = bnet_w2_gemv_launch(&a, c->n_tokens == 1 ? 2 * n_sm(be) : n_sm(be));
    if (c->n_tokens > 1 && l.shared > bnet_cuda_shared_max(be)) { /* long rows */
        cuda_w2_call low = *c, high = tokens_from(*c, c->n_tokens / 2);
        low.n_tokens /= 2;
        gemv(be, asked, &low, rtc);
        gemv(be, asked, &high, rtc);
        return;
    }
    if (!compiled || !bnet_cuda_compiled_gemv(be, &a, &l))
        bnet_cuda_run(be, k, 0, &l, GPU_OVERLAP, &a);
}

/* Wide tiles read the weights less often; they pay where they still fill the device thrice. */
static uint32_t tile_tokens(const gpu_backend *be, const bnet_cu_w2 *m, uint32_t n_tokens)
{
    uint32_t tiles =
        bnet_cu_div(n_tokens, 128) * bnet_cu_div(m->n_tiles, BNET_GEMM_ROWS / BNET_W2_TILE);
    return tiles >= 3 * n_sm(be) ? 128 : 64;
}

static uint32_t splits_for(const gpu_backend *be, const bnet_cu_w2 *m, uint32_t n_tokens,
                           uint32_t tokens)
{
    uint32_t tiles =
        bnet_cu_div(n_tokens, tokens) * bnet_cu_div(m->n_tiles, BNET_GEMM_ROWS / BNET_W2_TILE);
    uint32_t s = n_sm(be) / BNET_MAX(tiles, 1u);
    s = BNET_MIN(s, m->n_chunks / CHUNKS_PER_SPLIT);
    return BNET_MAX(BNET_MIN(s, (uint32_t)SPLITS_MAX), 1u);
}

static void gemm(gpu_backend *be, const bnet_kernel_record *k, const cuda_w2_call *c, bool wgmma)
{
    uint32_t tokens = wgmma ? tile_tokens(be, &c->m, c->n_tokens) : 64;
    bnet_cu_gemm_args a = {.m = c->m,
                           .act = c->act,
                           .n_tokens = c->n_tokens,
                           .epilogue = c->epilogue,
                           .splits = splits_for(be, &c->m, c->n_tokens, tokens)};
    bnet_cu_launch l = bnet_w2_gemm_launch(&a, tokens, wgmma);
    size_t work = (size_t)bnet_w2_gemm_work_bytes(&a, tokens);
    size_t counters = (size_t)l.grid[0] * l.grid[1] * 4;
    if (a.splits > 1) {
        a.counters = cuda_at(bnet_gpu_zeros(be, counters + 256 + work));
        a.work = (a.counters + counters + 255) / 256 * 256;
        if (!a.counters)
            return;
    }
    bnet_cuda_run(be, k, tokens == 64 ? 0 : 1, &l, 0, &a);
}

void bnet_cuda_w2(gpu_backend *be, const bnet_kernel_record *k, const cuda_w2_call *call)
{
    if (bnet_cuda_w2_norms(k))
        gemv(be, k, call, strcmp(k->isa, "nvrtc") == 0);
    else
        gemm(be, k, call, (k->needs & BNET_CUDA_NEED(90)) != 0);
}

bool bnet_cuda_w2_norms(const bnet_kernel_record *k)
{
    return k->fn == (bnet_kernel_fn)bnet_cuda_w2_gemv;
}

bool bnet_cuda_w2_fast(const bnet_kernel_record *k)
{
    return bnet_cuda_w2_norms(k) || k->fn == (bnet_kernel_fn)bnet_cuda_w2_gemm;
}

bnet_cu_w2 bnet_cuda_w2_of(const gpu_weight *w, gpu_at y)
{
    uint32_t n = (uint32_t)w->info.n_out;
    bnet_cu_w2 m = {.w = cuda_at(w->w[0]),
                    .n_tiles = bnet_cu_div(n, w->paired ? 8 : BNET_W2_TILE),
                    .n_chunks = w->stride / BNET_W2_CHUNK,
                    .n_parts = w->paired ? 2 : 1,
                    .paired = w->paired != 0};
    bnet_cu_part *mine = &m.part[w->paired == 2];
    if (w->paired)
        m.part[w->paired != 2] = (bnet_cu_part){.n_rows = n, .ld = n};
    *mine = (bnet_cu_part){.n_rows = n, .scale = w->scale, .ld = n, .y = cuda_at(y)};
    return m;
}

void bnet_cuda_w2_gemm(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                       const gpu_act8 *act, int n_rows, gpu_at y)
{
    cuda_w2_call c = {.m = bnet_cuda_w2_of(w, y),
                      .act = cuda_act(act),
                      .k = (uint32_t)w->info.n_in,
                      .n_tokens = (uint32_t)n_rows,
                      .epilogue = BNET_CU_STORE};
    bnet_cuda_w2(be, k, &c);
}

void bnet_cuda_w2_gemv(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                       const gpu_act8 *act, int n_rows, gpu_at y)
{
    bnet_cuda_w2_gemm(be, k, w, act, n_rows, y);
}
