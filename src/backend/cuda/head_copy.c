/* head_copy.c - the best logits of a head of floats by a copy of it in int8 (head_copy.h): when
 * there is such a copy, its making, the launches of a call. */
#include "backend/cuda/head_copy.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/net.h"

enum { L2_CACHE_SIZE = 38 };                      /* CU_DEVICE_ATTRIBUTE_ */
enum { SHARE = 4 };                               /* of the free memory it may take one part */
enum { SCAN_4 = 1, SCAN_8, BEST, PACK };          /* symbols of a row, after that of rows */
enum { SPLIT = 1, BATCH, FIRST = 5, BEST_BATCH }; /* of a batches' one; BATCH: 16, 32, 64 tokens */

static bnet_cu_screen_args args_of(const gpu_weight *w, int n_tokens)
{
    return (bnet_cu_screen_args){.m = cuda_matrix(w),
                                 .codes = cuda_at(w->head_copy),
                                 .rows = cuda_at(w->head_copy) +
                                         bnet_screen_codes_bytes(w->info.n_out, w->stride),
                                 .n_tokens = (uint32_t)n_tokens,
                                 .ldx = (uint32_t)w->info.n_in,
                                 .k = BNET_BEST};
}

/* Fills in what depends on the grid, too. */
static bnet_cu_launch scan_launch(const gpu_backend *be, bnet_cu_screen_args *a)
{
    uint32_t n_sm = (uint32_t)be->d->gpu.multiprocessors;
    return a->n_tokens <= BNET_SCREEN_TOKENS ? bnet_screen_scan_launch(a, n_sm)
                                             : bnet_screen_batch_launch(a, n_sm);
}

/* ---- the copy ---- */

static const bnet_kernel_record *find(gpu_backend *be, const gpu_weight *w, uint64_t m)
{
    const bnet_kernel_record *k;
    const bnet_kernel_query q = {.op = BNET_OP_BEST,
                                 .format = w->query.format,
                                 .dtype = BNET_DTYPE_F32,
                                 .m = m,
                                 .n = w->info.n_out,
                                 .k = w->info.n_in};
    bool there = bnet_registry_select(be->registry, &be->caps, &q, &k, NULL) == BITNET_OK &&
                 bnet_gpu_has(be, k, 0);
    return there && (m <= BNET_SCREEN_TOKENS || bnet_gpu_has(be, k, BATCH)) ? k : NULL;
}

bool bnet_cuda_head_copy_make(gpu_backend *be, gpu_weight *w)
{
    bool floats = w->layout == GPU_F16 || w->layout == GPU_BF16 || w->layout == GPU_F32;
    if (!gpu_none(w->head_copy) || !floats || w->half || w->with_i8)
        return !gpu_none(w->head_copy);
    w->copy_kernel[0] = find(be, w, 1);
    w->copy_kernel[1] = find(be, w, BNET_SCREEN_BATCH);
    if (!w->copy_kernel[0])
        return false;
    w->head_copy_bytes = (size_t)bnet_screen_bytes(w->info.n_out, w->stride);
    w->head_copy = bnet_gpu_take(be, w->head_copy_bytes, &be->weight_bytes);
    if (gpu_none(w->head_copy))
        return false;
    bnet_cu_screen_args a = args_of(w, 1);
    bnet_cu_launch l = bnet_screen_pack_launch(&a);
    bnet_cuda_run_more(be, w->copy_kernel[0], PACK, &l, 0, &a);
    return gpu_alive(be);
}

/* Static shared memory of the scans that bnet_cuda_shared_max does not reserve. */
enum { MORE_STATIC = 1 << 10 };

/* The launches of a call of that many rows fit the chip. */
static bool fits(gpu_backend *be, const gpu_weight *w, int n_rows)
{
    bnet_cu_screen_args a = args_of(w, n_rows);
    bnet_cu_launch scan = scan_launch(be, &a);
    bnet_cu_launch rows = bnet_screen_pick_launch(&a);
    return BNET_MAX(scan.shared + MORE_STATIC, rows.shared) <= bnet_cuda_shared_max(be);
}

/* Whole passes are for ternary matrices (net.c); others are composed, with all logits. */
static bool passes(const gpu_backend *be)
{
    for (size_t i = 0; i < be->n_shapes; i++)
        if (be->shapes[i].format == BNET_FORMAT_I2S)
            return true;
    return false;
}

/* A head that the second level of cache holds is read faster than a copy is looked at. */
void bnet_cuda_head_loaded(gpu_backend *be, gpu_weight *w)
{
    const cuda_driver *d = (const cuda_driver *)be->d;
    uint64_t left = 0, total = 0, n = bnet_screen_bytes(w->info.n_out, w->stride);
    int cache = 0;
    be->d->c->memory(be->d, &left, &total);
    if (d->cu.device_attribute(&cache, L2_CACHE_SIZE, d->device) != 0)
        cache = 0;
    if (w->n_bytes <= (uint64_t)cache || n > left / SHARE || !passes(be) || !fits(be, w, 1) ||
        !bnet_cuda_head_copy_make(be, w))
        return;
    bnet_logf(&be->log, BITNET_LOG_DEBUG, be->d->c->name,
              "a copy of the head in int8, %.1f MB, finds its best rows", (double)n / 1e6);
}

/* ---- calls ---- */

static bnet_cu_screen_args call_of(const gpu_weight *w, gpu_at x, int n_rows, gpu_at most,
                                   gpu_at value, gpu_at index)
{
    bnet_cu_screen_args a = args_of(w, n_rows);
    a.x = cuda_at(x);
    a.most = cuda_at(most);
    a.id = cuda_at(index);
    a.value = cuda_at(value);
    return a;
}

static void more(gpu_backend *be, const bnet_kernel_record *k, int symbol, bnet_cu_launch l,
                 bnet_cu_screen_args *a)
{
    bnet_cuda_run_more(be, k, symbol, &l, GPU_OVERLAP, a);
}

static size_t lists_bytes(const bnet_cu_screen_args *a)
{
    return (size_t)a->n_tokens * a->n_slices * BNET_TOPK_MAX * 8;
}

/* Lists, then groups; false: no memory, or the copy was given back for it. */
static bool take_lists(gpu_backend *be, const gpu_weight *w, bnet_cu_screen_args *a)
{
    a->lists =
        cuda_at(bnet_gpu_scratch(be, lists_bytes(a) + (size_t)a->n_tokens * a->n_groups * 4));
    a->groups = a->lists + lists_bytes(a);
    return a->lists && !gpu_none(w->head_copy);
}

void bnet_cuda_best(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x,
                    int n_rows, gpu_at most, gpu_at value, gpu_at index)
{
    bnet_cu_screen_args a = call_of(w, x, n_rows, most, value, index);
    bnet_cu_launch scan = scan_launch(be, &a);
    bnet_cu_launch rows = bnet_screen_pick_launch(&a);
    if (!take_lists(be, w, &a)) {
        bnet_gpu_ok(be, k->id, GPU_NO_MEMORY);
        return;
    }
    more(be, k, n_rows > 4 ? SCAN_8 : SCAN_4, scan, &a);
    bnet_cuda_run(be, k, 0, &rows, GPU_OVERLAP, &a);
    more(be, k, BEST, bnet_screen_best_launch(&a), &a);
}

/* Lists, groups and their leaders, bytes and what is known of vectors, one behind the other; false:
 * no memory. */
static bool take_scratch(gpu_backend *be, bnet_cu_screen_args *a)
{
    size_t leaders = (size_t)a->n_tokens * a->n_groups * 8, groups = leaders / 2;
    size_t bytes = (size_t)bnet_screen_batch_bytes(a), inputs = (size_t)a->columns / 2 * 16;
    size_t total = lists_bytes(a) + leaders + groups + 512 + bytes + inputs + a->n_tokens * 4;
    a->lists = cuda_at(bnet_gpu_scratch(be, total));
    a->leaders = a->lists + lists_bytes(a);
    a->groups = a->leaders + leaders;
    a->bytes = (a->groups + groups + 511) / 512 * 512;
    a->inputs = a->bytes + bytes;
    a->least = a->inputs + inputs;
    return a->lists != 0;
}

void bnet_cuda_best_batch(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          gpu_at x, int n_rows, gpu_at most, gpu_at value, gpu_at index)
{
    bnet_cu_screen_args a = call_of(w, x, n_rows, most, value, index);
    bnet_cu_launch scan = scan_launch(be, &a);
    bnet_cu_launch rows = bnet_screen_pick_launch(&a);
    if (!take_scratch(be, &a) || gpu_none(w->head_copy)) {
        bnet_gpu_ok(be, k->id, GPU_NO_MEMORY);
        return;
    }
    more(be, k, SPLIT, bnet_screen_split_launch(&a), &a);
    more(be, k, BATCH + (int)(a.columns / 64), scan, &a);
    more(be, k, FIRST, bnet_screen_first_launch(&a), &a);
    bnet_cuda_run(be, k, 0, &rows, GPU_OVERLAP, &a);
    more(be, k, BEST_BATCH, bnet_screen_best_launch(&a), &a);
}

/* Takes the scratch memory of the call, too: where the copy is given back for it, the head itself
 * is computed. */
const bnet_kernel_record *bnet_cuda_head_copy_kernel(gpu_backend *be, const gpu_weight *w,
                                                     int n_rows)
{
    bnet_cu_screen_args a = args_of(w, n_rows);
    const bnet_kernel_record *plain = gpu_none(w->head_copy) ? NULL : bnet_gpu_pick(be, w, 1);
    bool few = n_rows <= BNET_SCREEN_TOKENS, there;
    const bnet_kernel_record *k = w->copy_kernel[few ? 0 : 1];
    if (!plain || plain->fn != (bnet_kernel_fn)bnet_cuda_head || n_rows > BNET_SCREEN_BATCH || !k ||
        !fits(be, w, n_rows))
        return NULL;
    scan_launch(be, &a);
    there = few ? take_lists(be, w, &a) : take_scratch(be, &a);
    return there && !gpu_none(w->head_copy) ? k : NULL;
}
