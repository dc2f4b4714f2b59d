/* inspect.h - the optional table of what a backend reports on itself: kernels that ran, statistics,
 * memory, timing and profiling, kernels called by themselves. Every entry is optional; the
 * functions below the table say what callers get without it. */
#ifndef BNET_INSPECT_H
#define BNET_INSPECT_H

#include "bitnet_kernel.h"
#include "bitnet_tools.h"
#include "ops/backend.h"

typedef struct bnet_bench bnet_bench; /* a synthetic weight and input to measure kernels with */

/* What a device has counted since it was opened. */
typedef struct bnet_backend_stats {
    uint64_t n_h2d, n_d2h, h2d_bytes, d2h_bytes, cache_hits, cache_misses;
    uint64_t memory_allocated, memory_peak, memory_used, memory_total;
    uint64_t n_launches;   /* of kernels; one use may take several. 0: one for each use */
    uint64_t n_replays;    /* of recorded passes; their kernels are counted like all others */
    uint64_t n_unrecorded; /* passes that were launched because recording them failed */
    uint64_t memory_pool;  /* of memory_allocated: buffers of passes and calls */
    double fp16_ms, bf16_ms;
    bitnet_precision precision; /* the weights' float matrices are multiplied in */
    bitnet_precision settled;   /* what was settled on, with or without such weights */
    char device[128];           /* "NVIDIA H200, compute capability 9.0, CUDA 13.0" */
} bnet_backend_stats;

/* A call of one kernel that otherwise runs only inside whole passes, so that it can be checked. The
 * members that each op reads -> writes; it ignores the others:
 *   norm_quantize, norm_tiles  x [m][n], w (of the norm), eps -> act, its rows as elsewhere
 *   linear_tiles               act [m], w, way: which of the row's kernels, from 1; 0: the one for
 *                              the shape -> y [m][N]
 *   rope_append                step, rope, cs, x (queries; NULL: none), k, v -> x, layer 0 of the
 *                              cache
 *   prefill                    step, x (queries), cs, rope (cs NULL: queries are rotated), the
 *                              cache's layer 0 -> y
 *   topk                       x [m][n] -> y [m][BNET_BEST], ids [m][BNET_BEST], -1: no more
 *   best                       x [m][K], w -> y, ids: topk of its product with the head w [n][K]
 *   step                       step -> ids [3][T]: ids, positions, timelines as kernels see them */
typedef struct bnet_kernel_call {
    const struct bnet_kernel_record *kernel;
    const struct bnet_step *step;
    const struct bnet_rope *rope;
    const struct bnet_weight *w;
    struct bnet_buffer *x, *k, *v, *cs, *y, *ids;
    const struct bnet_act8 *act;
    int m, n_heads, way;
    size_t n;
    float eps;
} bnet_kernel_call;

/* A kernel and how often it was called. */
typedef void bnet_use_fn(void *user, const bitnet_kernel_use *use);

struct bnet_inspect_ops {
    bool own_clock; /* it adds the time of its operations to the meter itself, by `stats` at the
                       latest */
    /* Tells of each kernel that ran, in the registry's order. */
    void (*kernels)(const bnet_backend *be, bnet_use_fn *each, void *user);
    /* Calls that a dequantised fallback served for want of a kernel. */
    uint64_t (*fallbacks)(const bnet_backend *be);
    /* The distinct (op, format, dtype, n, k) of the weights prepared so far, m = 0; returns how
     * many there are. */
    size_t (*shapes)(const bnet_backend *be, bnet_kernel_query *out, size_t cap);
    /* What kernels may use on the device. */
    const bnet_capabilities *(*capabilities)(const bnet_backend *be);
    void (*stats)(const bnet_backend *be, bnet_backend_stats *out);
    /* What its memory is used for, all but struct_size. *reclaimable: of `own`, freed as soon as
     * another purpose lacks memory. */
    void (*usage)(bnet_backend *be, bitnet_memory_use *out, uint64_t *reclaimable);
    /* For messages: writes where memory was missing when buffer_new or kv_new last returned NULL;
     * "" if neither has. */
    void (*short_of)(bnet_backend *be, char *out, size_t cap);
    /* Does the address lie in a file that it has mapped (bnet_pack_cache)? Called in signal
     * handlers. */
    bool (*maps)(const bnet_backend *be, const void *address);
    /* The operations that follow belong to this layer, -1: to none. */
    void (*mark)(bnet_backend *be, int layer);

    /* ---- measuring ---- */
    /* All three or none. bench_run: one call of kernel k, in milliseconds; shape (NULL: not wanted)
     * is set to that of the launch, zeros where nothing is launched. */
    bitnet_status (*bench_new)(bnet_backend *be, const bnet_kernel_query *q, bnet_bench **out,
                               bitnet_error *err);
    double (*bench_run)(bnet_bench *b, const bnet_kernel_record *k, bitnet_launch *shape);
    void (*bench_free)(bnet_bench *b);
    /* Both or neither. While on, every kernel is launched and timed by itself. Returns false if
     * that cannot be done. profile_read: what was measured; returns how many kernels there are. */
    bool (*profile)(bnet_backend *be, bool on);
    size_t (*profile_read)(bnet_backend *be, bitnet_kernel_time *out, size_t cap);
    /* How fast the device's own memory can be read, measured now, in GB/s; 0: it failed. */
    double (*read_limit)(bnet_backend *be);

    /* ---- kernels called by themselves ---- */
    /* n operations that do not need each other, host memory to host memory, from any thread;
     * returns when they are done. Fails MEMORY (all it took is given back), NOT_AVAILABLE (no
     * kernel, or the device failed). */
    bitnet_status (*single)(bnet_backend *be, bitnet_single_op *p, size_t n, bitnet_error *err);
    /* For checking. Returns false if it knows no such operation. */
    bool (*call_kernel)(bnet_backend *be, const bnet_kernel_call *a);
};

/* ---- for callers; be may not be NULL unless it says so ---- */

void bnet_backend_each_kernel(const bnet_backend *be, bnet_use_fn *each, void *user);
/* A bnet_use_fn that puts them into a list, which counts also those it has no room for. */
typedef struct bnet_uses {
    bitnet_kernel_use *out;
    size_t cap, n;
} bnet_uses;
bnet_use_fn bnet_use_list;
/* The first `cap` of them; returns how many there are. */
size_t bnet_backend_kernels(const bnet_backend *be, bitnet_kernel_use *out, size_t cap);
uint64_t bnet_backend_fallbacks(const bnet_backend *be);
size_t bnet_backend_shapes(const bnet_backend *be, bnet_kernel_query *out, size_t cap);
/* NULL: kernels may use what the runtime knows of the CPU. */
const bnet_capabilities *bnet_backend_capabilities(const bnet_backend *be);
/* Both return false, with zeros in *out, if the backend has no memory of its own (CPU) or is NULL.
 */
bool bnet_backend_stats_read(const bnet_backend *be, bnet_backend_stats *out);
bool bnet_backend_usage(bnet_backend *be, bitnet_memory_use *out, uint64_t *reclaimable);
/* False: be has no memory of its own or is NULL. Else *st is MEMORY, with a message of what, the
 * size and the remedy, if `need` bytes are more than its device has left. */
bool bnet_backend_admit(bnet_backend *be, uint64_t need, const char *what, const char *remedy,
                        bitnet_status *st, bitnet_error *err);

/* Also where be is NULL. */
bool bnet_backend_maps(const bnet_backend *be, const void *address);

/* bnet_bench_new fails NOT_AVAILABLE if it is not possible; run and free: a bench made by be. */
bool bnet_bench_possible(const bnet_backend *be);
bitnet_status bnet_bench_new(bnet_backend *be, const bnet_kernel_query *q, bnet_bench **out,
                             bitnet_error *err);
double bnet_bench_run(const bnet_backend *be, bnet_bench *b, const bnet_kernel_record *k,
                      bitnet_launch *shape);
void bnet_bench_free(const bnet_backend *be, bnet_bench *b);
bool bnet_profile_possible(const bnet_backend *be);
bool bnet_profile(bnet_backend *be, bool on);
size_t bnet_profile_read(bnet_backend *be, bitnet_kernel_time *out, size_t cap);
/* Returns false if the backend measures none, or is NULL. */
bool bnet_backend_read_limit(bnet_backend *be, double *gb_s);

/* Fails NOT_AVAILABLE if the backend has no such calls, or is NULL. */
bitnet_status bnet_single_run(bnet_backend *be, bitnet_single_op *p, size_t n, bitnet_error *err);
bool bnet_kernel_call_run(bnet_backend *be, const bnet_kernel_call *a);

#endif
