/* bitnet_extras.h - libbitnet-extras: what needs no model. Operations on ternary weights in host
 * memory, single operations on a device, memory pools, CUDA kernels and streams of a program's own.
 *
 * The rules of bitnet.h hold (errors, ownership, threads); there is no promise of stability between
 * versions. */
#ifndef BITNET_EXTRAS_H
#define BITNET_EXTRAS_H

#include "bitnet_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reference operations: plain, exact, single-threaded; the meaning of the words. Pure
 * functions: any thread may call them. Here and below, NULL is an array of no elements ---- */

/* One product: c [m][n] = a [m][k] times b [k][n], b one I2S code per byte (above 2: 0). */
typedef struct bitnet_matmul {
    const int8_t *a;
    size_t n_a;
    const uint8_t *b;
    size_t n_b;
    float *c;
    size_t n_c, m, n, k;
} bitnet_matmul;

/* c [m][n] = a [m][k] times b [k][n], b one I2S code per byte (above 2: 0). Exact for k <= 131072.
 * Fails ARGUMENT: "Matrix dimension mismatch" unless n_a = m*k, n_b = k*n, n_c = m*n. */
BITNET_API bitnet_status bitnet_matmul_i2s(const int8_t *a, size_t n_a, const uint8_t *b,
                                           size_t n_b, float *c, size_t n_c, size_t m, size_t n,
                                           size_t k, bitnet_error *err);

/* Many at once, in the order of their shapes (m, n, k); each result lies in its item's c. None: OK.
 * All are checked before the first is computed; the message names the item. */
BITNET_API bitnet_status bitnet_batch_matmul_i2s(const bitnet_matmul *items, size_t n_items,
                                                 bitnet_error *err);

/* Bytes n weights take packed. */
BITNET_API size_t bitnet_quantized_bytes(bitnet_qtype type, size_t n);
/* n floats to ternary with n_scales scales, each for ceil(n / n_scales) weights. The three types
 * hold the same weights. Fails ARGUMENT: unknown type or rule, sizes, a value that is not finite.
 */
BITNET_API bitnet_status bitnet_quantize(bitnet_qtype type, bitnet_scale_rule rule, const float *in,
                                         size_t n, uint8_t *out, size_t n_out, float *scales,
                                         size_t n_scales, bitnet_error *err);
BITNET_API bitnet_status bitnet_dequantize(bitnet_qtype type, const uint8_t *in, size_t n_in,
                                           size_t n, const float *scales, size_t n_scales,
                                           float *out, bitnet_error *err);
/* n codes of packed I2S, one per byte: what bitnet_matmul_i2s takes. */
BITNET_API void bitnet_i2s_unpack(const uint8_t *packed, size_t n, uint8_t *codes);
/* The trit of a code: 0,1,2 = -1,0,+1; anything else 0. */
BITNET_API int bitnet_i2s_trit(uint8_t code);

/* y [rows] = w x for rows of 2-bit codes (lowest bits first) in blocks of 256 = 64 bytes, each row
 * padded to whole blocks, so n_w = rows * ceil(cols / 256) * 64; scales one per block, or NULL
 * for 1. Fails ARGUMENT: sizes, unknown map. */
BITNET_API bitnet_status bitnet_qk256_gemv(const uint8_t *w, size_t n_w, const float *scales,
                                           size_t n_scales, size_t rows, size_t cols,
                                           const float *x, bitnet_code_map map, float *y,
                                           bitnet_error *err);

/* BitNet32-F16: blocks of 32 weights in 10 bytes, codes then an f16 scale. Maps OFFSET (the one
 * that has a zero) and NOZERO (|scale| limited to 1e-3..1e3) both occur; files do not say which.
 * n_data = ceil(n / 32) * 10; for _gemv cols must be a multiple of 32. */
BITNET_API bitnet_status bitnet_bitnet32_decode(const uint8_t *data, size_t n_data, size_t n,
                                                bitnet_code_map map, float *out, bitnet_error *err);
BITNET_API bitnet_status bitnet_bitnet32_gemv(const uint8_t *data, size_t n_data, size_t rows,
                                              size_t cols, const float *x, bitnet_code_map map,
                                              float *y, bitnet_error *err);

/* ---- single operations on a device: what the reference operations mean, and some more, computed
 * by the kernels of the runtime's device, or by the best instruction set of the CPU ---- */

typedef struct bitnet_ops_stats {
    size_t struct_size;
    const char *provider; /* that computes now: "cuda", "neon" */
    const char *kernel;   /* of the last call on a device; NULL: there was none */
    uint64_t n_ops, n_device_ops, n_quantize, n_matmul;
    double avg_quantize_ms, avg_matmul_ms;
    uint64_t fallback_count; /* calls that failed on the device and were computed on the CPU */
    double step_ms[BITNET_SINGLE_STEPS]; /* of all calls together */
    bitnet_precision_stats precision;
    uint64_t memory_current; /* held by calls at work; 0 between them */
} bitnet_ops_stats;

typedef struct bitnet_ops bitnet_ops;

/* Opens the runtime's device for operations in a precision (that of bitnet_ops_matmul). Where the
 * runtime was asked for `auto`, a device that cannot be opened, or fails later, leaves its work to
 * the CPU, with a warning, unless the runtime is strict. Any thread may call the object. Fails as
 * bitnet_engine_open for device and precision; MEMORY. */
BITNET_API bitnet_status bitnet_ops_open(bitnet_runtime *runtime, bitnet_precision precision,
                                         bitnet_ops **out, bitnet_error *err);
BITNET_API void bitnet_ops_close(bitnet_ops *ops);
/* The provider that computes, "cuda" or a family of the CPU's kernels; lives as long as the
 * runtime. */
BITNET_API const char *bitnet_ops_provider(bitnet_ops *ops);
BITNET_API bitnet_precision bitnet_ops_precision(bitnet_ops *ops); /* never AUTO */
/* Fails: ARGUMENT (NULL, struct_size). */
BITNET_API bitnet_status bitnet_ops_read(bitnet_ops *ops, bitnet_ops_stats *stats,
                                         bitnet_error *err);
BITNET_API void bitnet_ops_stats_init(bitnet_ops_stats *stats);

/* As bitnet_matmul_i2s, _batch_matmul_i2s, _quantize, _qk256_gemv; the same bits, but for the last,
 * which may be off by one unit in the last place. All fail also: MEMORY (the device has no room;
 * all is given back, the object stays usable), NOT_AVAILABLE (the device failed). A batch is done
 * by shape, as many at once as fit; quantising goes in pieces where the whole does not fit. */
BITNET_API bitnet_status bitnet_ops_matmul_i2s(bitnet_ops *ops, const bitnet_matmul *item,
                                               bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_batch_matmul_i2s(bitnet_ops *ops, const bitnet_matmul *items,
                                                     size_t n_items, bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_quantize(bitnet_ops *ops, bitnet_qtype type,
                                             bitnet_scale_rule rule, const float *in, size_t n,
                                             uint8_t *out, size_t n_out, float *scales,
                                             size_t n_scales, bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_qk256_gemv(bitnet_ops *ops, const uint8_t *w, size_t n_w,
                                               const float *scales, size_t n_scales, size_t rows,
                                               size_t cols, const float *x, bitnet_code_map map,
                                               float *y, bitnet_error *err);
/* c [m][n] = a [m][k] b [k][n] in the object's precision with float sums. Off from exact arithmetic
 * by at most (2 u + u^2 + k 2^-23) times the sum of |a b|, u = 0 (FP32), 2^-11 (FP16, for values it
 * can hold: below 65520, not below 2^-14), 2^-8 (BF16). */
BITNET_API bitnet_status bitnet_ops_matmul(bitnet_ops *ops, const float *a, const float *b,
                                           float *c, size_t m, size_t n, size_t k,
                                           bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_convert(bitnet_ops *ops, bitnet_conversion conversion,
                                            const void *in, size_t n, void *out, bitnet_error *err);
/* z: NULL where the function has none. */
BITNET_API bitnet_status bitnet_ops_vector(bitnet_ops *ops, bitnet_vector function, const float *x,
                                           const float *z, size_t n, float *y, bitnet_error *err);
/* Rows of x [rows][n]; a row without a finite value becomes not-a-number. */
BITNET_API bitnet_status bitnet_ops_softmax(bitnet_ops *ops, const float *x, size_t rows, size_t n,
                                            float *y, bitnet_error *err);
/* The index of each row's largest finite value, the lowest of equal ones; -1: there is none. */
BITNET_API bitnet_status bitnet_ops_argmax(bitnet_ops *ops, const float *x, size_t rows, size_t n,
                                           int32_t *index, bitnet_error *err);

/* ---- access patterns: how a list of indices walks through memory ---- */

typedef enum bitnet_access_kind {
    BITNET_ACCESS_SEQUENTIAL, /* each one more than the last, of three or more; fewer than two */
    BITNET_ACCESS_STRIDED,    /* all equally far apart; two are, even neighbours */
    BITNET_ACCESS_TILED,      /* rows of neighbours, all equally long and equally far apart */
    BITNET_ACCESS_RANDOM      /* none of these, or farther apart than 63 bits can say */
} bitnet_access_kind;
typedef struct bitnet_access {
    bitnet_access_kind kind;
    int64_t stride;               /* STRIDED: may be negative */
    int64_t row_pitch, n_columns; /* TILED: rows of n_columns successive indices, row_pitch apart */
} bitnet_access;
BITNET_API bitnet_access bitnet_access_pattern(const uint64_t *index, size_t n);

/* ---- memory pools: buffers of one device, freed ones kept for reuse by their size ---- */

/* Where a pool gets its bytes. Called under the pool's lock: must not call the pool. */
typedef struct bitnet_allocator {
    void *(*take)(void *user, size_t n_bytes); /* NULL: no memory */
    void (*give)(void *user, void *p, size_t n_bytes);
    void *user;
} bitnet_allocator;

typedef struct bitnet_mempool_options {
    size_t struct_size;
    uint64_t max_pool_size; /* bytes in use and cached together. Default 2 GiB; weights and caches
                               of keys and values are outside of it */
    uint64_t device_memory; /* of the device; default 0, not known. Else max_pool_size is at most
                               a tenth of it */
    size_t max_cached_buffers; /* over all sizes. Default 1000 */
    int cleanup_interval_ms;   /* cached buffers unused for so long are given back. Default 30000 */
    bool tracking;             /* time and site of every buffer, for _leaks. Default true */
    int device_id;
    bitnet_allocator allocator;     /* take NULL: memory of the host, 64-byte aligned */
    double (*clock_ms)(void *user); /* NULL: the monotonic clock */
    void *clock_user;
    bitnet_log_fn log; /* told about leaks by _close; may be NULL */
    void *log_user;
} bitnet_mempool_options;

typedef struct bitnet_mempool_stats {
    uint64_t allocated_bytes, freed_bytes; /* handed out and brought back, reused ones counted */
    uint64_t current_bytes, peak_bytes;
    uint64_t n_allocs, n_frees;
    uint64_t n_hits, n_misses; /* served from the cache; by the allocator */
    uint64_t cached_bytes, n_cached;
    uint64_t n_expired; /* given back for their age or to make room */
    uint64_t n_refused; /* asked beyond the cap, or the allocator had none */
} bitnet_mempool_stats;

typedef struct bitnet_mempool_leak {
    const void *p;
    size_t n_bytes;
    double age_ms;
    const char *file; /* of the line that asked */
    int line;
} bitnet_mempool_leak;

typedef struct bitnet_mempool bitnet_mempool;

/* Any thread may use a pool at any time. */
BITNET_API void bitnet_mempool_options_init(bitnet_mempool_options *options);
BITNET_API bitnet_status bitnet_mempool_open(const bitnet_mempool_options *options,
                                             bitnet_mempool **out, bitnet_error *err);
/* Gives back everything, also what is still held, which is logged as leaked. */
BITNET_API void bitnet_mempool_close(bitnet_mempool *pool);
BITNET_API int bitnet_mempool_device_id(const bitnet_mempool *pool);
/* A reused buffer holds what its last owner left. `file` must live as long as the pool. Fails:
 * ARGUMENT (0 bytes), MEMORY (beyond max_pool_size, or the allocator has none). */
BITNET_API bitnet_status bitnet_mempool_alloc_at(bitnet_mempool *pool, size_t n_bytes,
                                                 const char *file, int line, void **out,
                                                 bitnet_error *err);
#define bitnet_mempool_alloc(pool, n_bytes, out, err)                                              \
    bitnet_mempool_alloc_at(pool, n_bytes, __FILE__, __LINE__, out, err)
/* Fails: ARGUMENT if p is no buffer in use of this pool (freed twice, of another pool). NULL: OK.
 */
BITNET_API bitnet_status bitnet_mempool_free(bitnet_mempool *pool, void *p, bitnet_error *err);
/* Gives cached buffers back: the expired ones, or all. Returns how many. */
BITNET_API size_t bitnet_mempool_cleanup(bitnet_mempool *pool, bool all);
BITNET_API void bitnet_mempool_read(bitnet_mempool *pool, bitnet_mempool_stats *out);
/* Buffers now held, the oldest first, at most cap of them; returns how many there are. Without
 * tracking: 0. */
BITNET_API size_t bitnet_mempool_leaks(bitnet_mempool *pool, bitnet_mempool_leak *out, size_t cap);
/* Quick look for servers (a few file reads): OK, or MEMORY_GATE with what is wrong: hardly any host
 * memory available, a pool nearly full, requests refused, buffers held longer than held_ms (0: not
 * looked at). pool may be NULL. */
BITNET_API bitnet_status bitnet_memory_health(bitnet_mempool *pool, double held_ms,
                                              bitnet_error *err);

/* ---- CUDA: kernels of your own, streams, memory of the device (docs/KERNEL.md) ----
 *
 * The device's primary context, in which engines of this process compute too, with streams of its
 * own. Handles of the driver's interface are returned as void *, so that other CUDA code can use
 * them; nothing of the toolkit is needed to build. Any thread may call; its current context is the
 * same before and after. */

typedef struct bitnet_cuda bitnet_cuda;
typedef struct bitnet_cuda_module bitnet_cuda_module;

enum { BITNET_CUDA_STREAMS = 8 }; /* numbered from 0; made when first used */

/* Device `index` as `bitnet devices` numbers them. Fails: ARGUMENT (below 0),
 * NOT_AVAILABLE (no driver, no such device; the remedy is in the message), MEMORY. */
BITNET_API bitnet_status bitnet_cuda_open(int index, bitnet_cuda **out, bitnet_error *err);
/* Waits for what was submitted, unloads modules that are left. Pools and work first. */
BITNET_API void bitnet_cuda_close(bitnet_cuda *cuda);
BITNET_API void *bitnet_cuda_context(const bitnet_cuda *cuda); /* CUcontext */
/* CUstream; NULL: no such number, or the driver has none left. */
BITNET_API void *bitnet_cuda_stream(bitnet_cuda *cuda, int stream);

/* PTX (text with a NUL), a cubin or a fatbin. Fails: NOT_AVAILABLE (not for this device, damaged),
 * MEMORY. */
BITNET_API bitnet_status bitnet_cuda_module_load(bitnet_cuda *cuda, const void *image,
                                                 bitnet_cuda_module **out, bitnet_error *err);
/* None of its kernels may be at work. */
BITNET_API void bitnet_cuda_module_free(bitnet_cuda_module *module);
BITNET_API void *bitnet_cuda_module_handle(const bitnet_cuda_module *module); /* CUmodule */
/* CUfunction of a kernel in the module; module NULL: in the images of libbitnet. Fails
 * NOT_AVAILABLE: it is not there. */
BITNET_API bitnet_status bitnet_cuda_kernel(bitnet_cuda *cuda, const bitnet_cuda_module *module,
                                            const char *name, void **out, bitnet_error *err);

/* For bitnet_mempool_options.allocator: memory of the device in stream order, from a pool of the
 * driver that belongs to this object (drivers without such pools: plain memory). Every stream may
 * use a buffer at once; wait for the work on a buffer before freeing it, because the pool may hand
 * it to somebody else. */
BITNET_API bitnet_allocator bitnet_cuda_allocator(bitnet_cuda *cuda);
/* Pinned memory of the host, without which copies do not overlap. NULL: there is none. */
BITNET_API void *bitnet_cuda_host_alloc(bitnet_cuda *cuda, size_t n_bytes);
BITNET_API void bitnet_cuda_host_free(bitnet_cuda *cuda, void *p);

/* ---- work: submitted to a stream, done while the host continues ---- */

typedef enum bitnet_copy {
    BITNET_COPY_NONE = 0, /* the work is a kernel */
    BITNET_COPY_TO_DEVICE = 1,
    BITNET_COPY_TO_HOST = 2,
    BITNET_COPY_ON_DEVICE = 3,
} bitnet_copy;

typedef struct bitnet_work bitnet_work;

typedef struct bitnet_work_options {
    size_t struct_size;
    int stream; /* 0..BITNET_CUDA_STREAMS - 1; work of one stream is done in its order */
    const bitnet_work *after; /* of any stream: begins when that is done; NULL: none */
    /* a kernel, with the arguments as cuLaunchKernel takes them: copied before _submit returns */
    void *kernel;
    unsigned grid[3], block[3]; /* default 1 */
    unsigned shared_bytes;
    void **params;
    /* or a copy; memory of the host must stay until the work is done */
    bitnet_copy copy;
    void *dst;
    const void *src;
    size_t n_bytes;
} bitnet_work_options;

BITNET_API void bitnet_work_options_init(bitnet_work_options *options);
/* Returns at once. Fails: ARGUMENT, NOT_AVAILABLE (the driver refuses), MEMORY. */
BITNET_API bitnet_status bitnet_work_submit(bitnet_cuda *cuda, const bitnet_work_options *options,
                                            bitnet_work **out, bitnet_error *err);
/* Is it done (or failed, which _wait tells)? */
BITNET_API bool bitnet_work_done(const bitnet_work *work);
/* Returns when it is done. Fails NOT_AVAILABLE: it, or work before it, failed on the device. */
BITNET_API bitnet_status bitnet_work_wait(const bitnet_work *work, bitnet_error *err);
/* When it began and ended, in ms since _open by the device's clock; waits for it. */
BITNET_API bitnet_status bitnet_work_times(const bitnet_work *work, double *begin_ms,
                                           double *end_ms, bitnet_error *err);
BITNET_API void bitnet_work_free(bitnet_work *work); /* may still be at work */

#ifdef __cplusplus
}
#endif
#endif
