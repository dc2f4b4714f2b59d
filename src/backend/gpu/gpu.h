/* gpu.h - the inside of the host that all GPUs share: objects, staging, the step buffer, counting.
 * What is launched is decided by records of the registry, whose functions (gpu_fn_*) belong to the
 * folder of one vendor and build their kernels' arguments from these objects.
 *
 * Invariants: one thread at a time is inside (be->lock); the first failure is kept until sync, and
 * nothing is launched after it; places on the device never leave this layer. */
#ifndef BNET_GPU_H
#define BNET_GPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/gpu/driver.h"
#include "base/thread.h"
#include "ops/inspect.h"
#include "ops/open.h"
#include "ops/pass.h"

typedef struct gpu_backend gpu_backend;

/* ---- objects ---- */

typedef struct gpu_buffer {
    size_t n_bytes;
    gpu_at p;
    void *mirror; /* host view, made when somebody reads; NULL before */
    uint64_t id;  /* of no other buffer of the backend's life, unlike its place */
} gpu_buffer;

/* How the rows of a weight lie on the device. */
typedef enum gpu_layout {
    GPU_VECTOR, /* floats */
    GPU_W2,     /* ternary tiles */
    GPU_F32,
    GPU_F16,
    GPU_BF16,
    GPU_Q8,  /* codes; scales of 32 */
    GPU_Q6K, /* low bits; high bits; scales of 16; scales of 256 */
} gpu_layout;

typedef struct gpu_weight {
    bnet_weight_info info;
    gpu_layout layout;
    gpu_at w[4];         /* parts of one piece of memory */
    size_t n_bytes;      /* of all of them */
    uint32_t stride;     /* elements of a row, padded */
    gpu_at block_scales; /* ternary with varying scales */
    size_t scales_bytes;
    float scale;            /* of integer sums, ternary */
    bool with_i8;           /* float rows that take int8 activations */
    bool half;              /* rows and inputs in the backend's precision */
    uint32_t first, paired; /* place in a fused matrix: first tile; 0, 1 or 2 */
    bool borrowed;          /* w[0] belongs to a fused matrix */
    gpu_at head_copy;       /* of a head: a copy that finds the best rows; or nowhere */
    size_t head_copy_bytes;
    const bnet_kernel_record *copy_kernel[2]; /* of few rows of inputs, of batches; NULL: none */
    bnet_kernel_query query;
    bnet_picks picks;
} gpu_weight;

typedef struct gpu_kv {
    bnet_kv_shape shape;
    gpu_backend *be; /* entries that get no backend need it */
    size_t part_bytes, block_bytes, n_bytes;
    gpu_at data; /* [layer][block][kv head][K part, V part] */
} gpu_kv;

/* ---- kernels ---- */

/* What a row of a vendor's kernels.inc says in addition to its record. */
typedef struct gpu_kernel_row {
    const char *id;
    const char *symbols; /* names in the image, separated by spaces; the first serves the record */
} gpu_kernel_row;

enum { GPU_SYMBOLS = 8 };

/* What a launch needs besides its arguments. */
typedef struct gpu_launch {
    const bnet_kernel_record *kernel;
    int symbol; /* which kernel of the record's row */
    bool more;  /* a further kernel of one use: it is not counted as a use */
    gpu_dims dims;
} gpu_launch;

typedef struct gpu_choice {
    const bnet_kernel_record *rmsnorm, *quantize, *rope_norm, *rope_neox, *kv_store[3],
        *attention[3], *glu_relu2, *glu_silu, *add, *gather, *topk, *table, *pack;
} gpu_choice;

/* Where the current step lies on the device, for arguments. */
typedef struct gpu_step_view {
    gpu_at ids, pos[3], seq, seqs, tables, rows, tiles; /* pos by type of cache: -1 elsewhere */
    int n_tokens, n_seqs, n_rows, n_tiles, max_pos;
    bool used[3]; /* types of cache in the pass */
    bool single;  /* no timeline has two tokens */
} gpu_step_view;

enum { GPU_STEP_BYTES = 1 << 19 }; /* of the step buffer at first */
enum { GPU_CHUNKS = 4, GPU_CHUNK_BYTES = 16 << 20, GPU_SHAPES = 64 };

typedef struct gpu_stage { /* pinned memory in a ring, for everything that goes to the device */
    uint8_t *chunk[GPU_CHUNKS];
    bool waited_for[GPU_CHUNKS]; /* a stamp was set behind its last copy */
    int now;
    size_t used;
} gpu_stage;

typedef struct gpu_load { /* bringing the weights */
    double begun, ms;     /* ms: 0 until all are there */
    uint64_t file_bytes;
    double read_ms, alloc_ms, wait_ms, copy_ms; /* where the time went */
} gpu_load;

/* Memory for buffers (buffer_pool.c), held by somebody or kept for the next request. */
typedef struct gpu_buffer_pool {
    struct gpu_piece *held, *kept; /* the newest first */
    double looked_ms;              /* when old ones were last looked for */
    uint64_t cap_bytes, held_bytes, kept_bytes;
    uint64_t n_hits, n_misses; /* requests served by kept memory; by the driver */
} gpu_buffer_pool;

struct gpu_backend {
    bnet_backend base; /* first: a bnet_backend * is a gpu_backend * */
    gpu_driver *d;
    bnet_device_kind kind;
    const gpu_kernel_row *rows;
    size_t n_kernel_rows;
    bnet_pool *pool; /* our own: reads and copies what goes to the device */
    const bnet_registry *registry;
    bnet_capabilities caps;
    bool strict;
    bool batch_invariant; /* no sum is divided by the number of timelines or rows */
    bnet_log log;
    gpu_buffer_pool buffers;
    pthread_mutex_t lock; /* recursive: a step is several operations */
    int depth;            /* how often the holder has entered */
    bool inside;          /* the driver was entered */

    gpu_result failed; /* the first failure since the last sync, */
    bitnet_status failed_as;
    bitnet_error why; /* and what the driver said of it */
    bool lost;

    bitnet_precision precision; /* of float matrices, settled (precision.c) */
    double half_ms[3];          /* by precision: conversions and products, as far as timed */
    const bnet_kernel_record *to_half;
    size_t n_half; /* weights that are kept in it */

    gpu_choice use;
    gpu_kernel code[BNET_KERNELS_MAX][GPU_SYMBOLS]; /* by slot; found when first used */
    atomic_uint_fast64_t calls[BNET_KERNELS_MAX];
    atomic_uint_fast64_t n_h2d, n_d2h, h2d_bytes, d2h_bytes, n_replays, n_launches, n_unrecorded;
    uint64_t weight_bytes, kv_bytes, other_bytes, n_buffers; /* n_buffers: made so far */
    gpu_stage stage;
    uint64_t own_bytes, own_peak; /* of all memory we took on the device */
    uint64_t foreign_bytes;       /* in use there before: the context, other programs */
    gpu_load load;
    bnet_memory_plan plan;            /* what the device's memory is good for (DET-14) */
    struct gpu_clock *clock;          /* time.h */
    uint16_t block[BNET_KERNELS_MAX]; /* threads by bnet_gpu_block, 0: not asked yet */
    gpu_launch last;                  /* that counted */

    gpu_step_view step;
    gpu_at step_at;
    size_t step_cap, step_bytes;
    uint8_t *step_shadow; /* the step on the device; in its second half the one made last */
    size_t shadow_cap, made_bytes;
    uint8_t *step_host; /* pinned: a step that recorded work fetches itself */
    size_t host_cap;
    bool fetching; /* it may not have been read yet */
    struct {
        gpu_at base;    /* step_at of an earlier pass: other streams may write there */
        uint8_t *bytes; /* a step that was brought before its pass */
        size_t cap, n_bytes;
        int slot;  /* 0, 1: where; the pass before it may be using the other */
        bool used; /* by the step that was made last */
    } ahead;

    gpu_at angles; /* [positions][n_rot / 2][2] */
    double *inv_freq;
    int n_angles, n_rot;
    uint32_t epoch; /* changes when an address that recorded work knows has moved */

    gpu_at scratch; /* for kernels that want some */
    size_t scratch_bytes;
    gpu_at zeros; /* kept zero by those who use it */
    size_t zeros_bytes;

    uint32_t *recording; /* counts of kernels while work is recorded, else NULL */
    uint32_t n_recorded; /* launches of them all, further kernels of one use too */
    bool unrecordable;   /* recording failed once: passes are launched from then on */
    struct gpu_net *net; /* the whole network, once a pass was asked for; the vendor's */
    void (*net_free)(gpu_backend *be, struct gpu_net *net);
    void (*head_loaded)(gpu_backend *be, gpu_weight *w); /* gpu_vendor's */
    gpu_weight *head;              /* of the model that was loaded; NULL: none yet */
    struct gpu_compiled *compiled; /* kernels compiled for shapes; the vendor's, NULL: none */
    void (*compiled_free)(gpu_backend *be, struct gpu_compiled *compiled);

    bnet_kernel_query shapes[GPU_SHAPES];
    size_t n_shapes;
};

static inline gpu_backend *gpu_of(bnet_backend *b)
{
    return (gpu_backend *)b;
}
static inline gpu_buffer *gpu_buf(bnet_buffer *b)
{
    return (gpu_buffer *)(void *)b;
}
static inline gpu_weight *gpu_w(const bnet_weight *w)
{
    return (gpu_weight *)(void *)(uintptr_t)(const void *)w;
}

/* ---- failures ---- */

/* Notes a failure, the first with the driver's explanation; true if the call went well. */
bool bnet_gpu_ok(gpu_backend *be, const char *what, gpu_result r);
static inline bool gpu_alive(const gpu_backend *be)
{
    return be->failed == GPU_OK;
}
/* A range that a profiler shows, from here to gpu_pop of the same thread. */
static inline void gpu_push(const gpu_backend *be, const char *name)
{
    if (be->d->range_push)
        be->d->range_push(name);
}
static inline void gpu_pop(const gpu_backend *be)
{
    if (be->d->range_pop)
        be->d->range_pop();
}
/* The first failure since the last call, as a status; a lost device stays failed. */
bitnet_status bnet_gpu_verdict(gpu_backend *be, bitnet_error *err);
void bnet_gpu_lock_init(pthread_mutex_t *lock);
/* Take and release the lock and the driver, around every entry of the table that touches the
 * device. Pairs may be nested. */
void bnet_gpu_enter(gpu_backend *be);
void bnet_gpu_leave(gpu_backend *be);

/* ---- memory (memory.c) ---- */

bitnet_status bnet_gpu_memory_open(gpu_backend *be, bitnet_error *err);
void bnet_gpu_memory_close(gpu_backend *be);
/* Outside the pool's cap: weights and caches. Nowhere: no memory, not noted as a failure. Where
 * memory is short what the pool keeps for later is given back first, then the copy of the head
 * (bnet_gpu_give_head_copy). */
gpu_at bnet_gpu_take(gpu_backend *be, size_t n_bytes, uint64_t *counter);
void bnet_gpu_give(gpu_backend *be, gpu_at p, size_t n_bytes, uint64_t *counter);
bool bnet_gpu_give_head_copy(gpu_backend *be); /* weights.c; false: there is none to give */
/* buffer_pool.c. Fails MEMORY: beyond the cap, or the device has none. `file` and `line` say who
 * asked, in the message about memory that was never given back. */
bitnet_status bnet_gpu_pool_take(gpu_backend *be, size_t n_bytes, const char *file, int line,
                                 gpu_at *out, bitnet_error *err);
void bnet_gpu_pool_give(gpu_backend *be, gpu_at memory); /* nowhere: does nothing */
void bnet_gpu_pool_empty(gpu_backend *be);               /* releases what is kept */
uint64_t bnet_gpu_pool_idle(const gpu_backend *be);      /* bytes that it would release now */
void bnet_gpu_pool_close(gpu_backend *be);
bnet_buffer *bnet_gpu_buffer_new(bnet_backend *b, size_t n_bytes);
void bnet_gpu_buffer_free(bnet_backend *b, bnet_buffer *buf);
const void *bnet_gpu_read(bnet_backend *b, bnet_buffer *buf, size_t n_bytes);
void bnet_gpu_write(bnet_backend *b, bnet_buffer *buf, const void *bytes, size_t n_bytes);
/* Copies bytes of the host through the ring; they may change when it returns. */
void bnet_gpu_upload(gpu_backend *be, gpu_at dst, const void *bytes, size_t n_bytes);
/* The same while the work that was asked for is being done (driver.h); at most half a chunk. */
void bnet_gpu_upload_aside(gpu_backend *be, gpu_at dst, const void *bytes, size_t n_bytes);
void bnet_gpu_download(gpu_backend *be, void *bytes, gpu_at src, size_t n_bytes); /* waits */
/* Waits for kernels that write n bytes to pinned memory themselves. */
bool bnet_gpu_await(gpu_backend *be, size_t n_bytes);
/* At least n bytes of scratch, or of zeroed memory that its users leave zeroed. Returns nowhere on
 * failure, which is noted. */
gpu_at bnet_gpu_scratch(gpu_backend *be, size_t n_bytes);
gpu_at bnet_gpu_zeros(gpu_backend *be, size_t n_bytes);

/* ---- the step (step.c) ---- */

/* Brings the step to the device unless it is there already, and tells where. rows may be NULL. */
bool bnet_gpu_step(gpu_backend *be, const bnet_step *s, const int32_t *rows, int n_rows);
/* The same in two parts: put together; then brought, or left in pinned memory for work that begins
 * with fetching it (*n_bytes from step_host to step_at; a multiple of 1 KiB). */
bool bnet_gpu_step_make(gpu_backend *be, const bnet_step *s, const int32_t *rows, int n_rows);
bool bnet_gpu_step_bring(gpu_backend *be);
bool bnet_gpu_step_leave(gpu_backend *be, size_t *n_bytes);
/* While the pass that was asked for runs: brings what the next one will want, if there is a way. */
void bnet_gpu_step_ahead(gpu_backend *be, const bnet_step *s, const int32_t *rows, int n_rows);
/* Cosines and sines of positions up to the step's largest. */
bool bnet_gpu_angles(gpu_backend *be, const bnet_rope *r, int n_pos);

/* ---- launching (gpu.c) ---- */

/* Launches and counts one use of the record. A failure is noted. */
void bnet_gpu_launch(gpu_backend *be, const gpu_launch *l, const gpu_arg *args, int n_args);
/* The same, but what the driver refuses is neither noted as a failure nor counted: it is returned.
 */
gpu_result bnet_gpu_try(gpu_backend *be, const gpu_launch *l, const gpu_arg *args, int n_args);
/* Is that kernel in the images that were loaded? */
bool bnet_gpu_has(gpu_backend *be, const bnet_kernel_record *k, int symbol);
const bnet_kernel_record *bnet_gpu_pick(gpu_backend *be, const gpu_weight *w, size_t m);

/* The kernel for as many of *m rows as one takes: fewer at once where that is much faster. NULL:
 * there is none, noted. */
const bnet_kernel_record *bnet_gpu_pick_for(gpu_backend *be, const gpu_weight *w, size_t *m);
/* The same for a question: q->m becomes that number of rows. */
void bnet_gpu_divide(const bnet_serving *s, bnet_kernel_query *q);
/* bnet_<driver>_kept of open.h, for every driver. */
void bnet_gpu_kept(const bnet_serving *s, bnet_kernel_query *q);

/* For adopting a program's kernel (open.h), but for needs of the device: the adapter that calls it.
 * Engines that were opened before it do not meet its needs. */
bitnet_status bnet_gpu_adopt(bnet_kernel_record *k);
/* Has a program registered kernels of this kind of device? */
bool bnet_gpu_has_programs(const bnet_registry *r, bnet_device_kind kind);

/* ---- entries of the table ---- */

bitnet_status bnet_gpu_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                      const bnet_log *log, bnet_weight **out, bitnet_error *err);
void bnet_gpu_weight_free(bnet_backend *b, bnet_weight *w);
bnet_kv_store *bnet_gpu_kv_new(bnet_backend *b, const bnet_kv_shape *shape);
void bnet_gpu_kv_free(bnet_backend *b, bnet_kv_store *kv);
void bnet_gpu_kv_get(bnet_kv_store *kv, int layer, int block, void *bytes);
void bnet_gpu_kv_put(bnet_kv_store *kv, int layer, int block, const void *bytes);
void bnet_gpu_kv_clear(bnet_kv_store *kv, int block);
void bnet_gpu_kv_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from);
void bnet_gpu_fill_ops(bnet_backend_vtable *v); /* ops.c */

/* What kinds of kernel there are; each function launches. Rows: `record.fn`. */
typedef void gpu_fn_embed(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          gpu_at x);
typedef void gpu_fn_norm(gpu_backend *be, const bnet_kernel_record *k, gpu_at x,
                         const gpu_weight *w, float eps, int n_rows, gpu_at y);
typedef struct gpu_act8 {
    gpu_at q, scale, sum;
    size_t stride;
} gpu_act8;
typedef void gpu_fn_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                             size_t n_cols, const gpu_act8 *act);
typedef void gpu_fn_ternary(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                            const gpu_act8 *act, int n_rows, gpu_at y);
typedef void gpu_fn_linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                           gpu_at x, int n_rows, gpu_at y);
typedef void gpu_fn_rope(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r,
                         gpu_at cs, int n_rows, int n_heads, gpu_at x);
typedef void gpu_fn_table(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r,
                          gpu_at cs);
/* The step's tokens whose cache is of this type. */
typedef void gpu_fn_kv_store(gpu_backend *be, const bnet_kernel_record *rec, const gpu_kv *kv,
                             int layer, gpu_at k, gpu_at v);
typedef void gpu_fn_attention(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                              int layer, int n_heads, gpu_at q, gpu_at y);
typedef void gpu_fn_glu(gpu_backend *be, const bnet_kernel_record *k, gpu_at gate, gpu_at up,
                        size_t n, gpu_at y);
typedef void gpu_fn_add(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at y, size_t n);
typedef void gpu_fn_gather(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at rows,
                           int n_rows, size_t n_cols, gpu_at y);
typedef void gpu_fn_topk(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                         size_t n_cols, int n_best, gpu_at value, gpu_at index);
/* From rows as files have them to rows as kernels read them (layouts other than GPU_VECTOR). */
typedef struct gpu_pack {
    gpu_layout layout;
    int type;   /* bnet_type of the rows in `src` where the layout leaves a choice */
    gpu_at src; /* rows [first_row, first_row + n_rows) */
    uint64_t row_bytes, first_row, n_rows;
} gpu_pack;
typedef void gpu_fn_pack(gpu_backend *be, const bnet_kernel_record *k, const gpu_pack *p,
                         const gpu_weight *w);

/* Opens the backend of a vendor; takes the driver, also on failure. `pass` may be NULL. */
typedef bool gpu_pass(bnet_backend *b, const bnet_pass *p);
typedef struct gpu_vendor {
    const gpu_kernel_row *rows;
    size_t n_rows;
    gpu_pass *pass; /* whole passes, NULL: composed */
    uint64_t (*pass_bytes)(bnet_backend *b, const bnet_net *net, int n_tokens);
    bool (*pass_reserve)(bnet_backend *b, const bnet_net *net, int n_tokens);
    bool (*call_kernel)(bnet_backend *b, const bnet_kernel_call *a);
    /* Called when all weights are loaded, to prepare the head further. NULL: no need */
    void (*head_loaded)(gpu_backend *be, gpu_weight *w);
    bnet_features features; /* of networks whose passes `pass` computes */
} gpu_vendor;
bitnet_status bnet_gpu_open(const bnet_backend_want *w, gpu_driver *d, const gpu_vendor *vendor,
                            bnet_backend **out, bitnet_error *err);

/* ---- what is taken of the device (usage.c) ---- */

/* Counts an allocation (n > 0) or a release (n < 0) on the device; every one must come here. */
static inline void bnet_gpu_own(gpu_backend *be, int64_t n_bytes)
{
    be->own_bytes += (uint64_t)n_bytes;
    be->own_peak = BNET_MAX(be->own_peak, be->own_bytes);
}

/* Call it when the driver is open and before anything is allocated. */
void bnet_gpu_usage_begin(gpu_backend *be);
/* Call it at the end: logs memory that was not released; the pool reports buffers of passes. */
void bnet_gpu_usage_end(const gpu_backend *be);
/* Before a tensor of the file is read. */
void bnet_gpu_load_begin(gpu_backend *be, uint64_t n_bytes);

/* Entries of the table. */
void bnet_gpu_weights_done(bnet_backend *b, const bnet_log *log);
void bnet_gpu_usage(bnet_backend *b, bitnet_memory_use *out, uint64_t *reclaimable);
int bnet_gpu_batch_limit(const bnet_backend *b);

/* ---- measuring single kernels and the speed of memory (bench.c) ---- */

bitnet_status bnet_gpu_bench_new(bnet_backend *b, const bnet_kernel_query *q, bnet_bench **out,
                                 bitnet_error *err);
double bnet_gpu_bench_run(bnet_bench *b, const bnet_kernel_record *k, bitnet_launch *shape);
void bnet_gpu_bench_free(bnet_bench *b);
double bnet_gpu_read_limit(bnet_backend *b); /* GB/s; 0: it could not be measured */

#endif
