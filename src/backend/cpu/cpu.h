/* cpu.h - the inside of the CPU backend, shared by its files. */
#ifndef BNET_CPU_H
#define BNET_CPU_H

#include <stdatomic.h>

#include "backend/cpu/kernels.h"
#include "ops/backend.h"

/* ---- the list of kernels as data (dispatch.c) ---- */

enum {
#define KERNEL(op, format, isa, arch, proto, k_mult, agreement)                                    \
    BNET_ON_##arch(ROW_##op##_##format##_##isa, )
#include "backend/cpu/kernels.inc"
#undef KERNEL
    N_ROWS
};

enum {
#define ISA(name, needs) ISA_##name,
#include "backend/cpu/isa.inc"
#undef ISA
    N_ISAS
};

typedef void (*cpu_fn)(void); /* cast to the row's own type before the call */

typedef struct cpu_row {
    const char *id, *op, *format;
    int isa;
    uint32_t k_mult;
    cpu_fn fn;
} cpu_row;

extern const cpu_row bnet_cpu_rows[N_ROWS];

/* Rows chosen once when the backend opens; those of weights are chosen when a weight is prepared.
 */
typedef struct cpu_choice {
    int embed, rmsnorm, quantize, rope_norm, rope_neox, kv_store[3], attention[3], glu_relu2,
        glu_silu, add;
} cpu_choice;

typedef struct cpu_backend {
    bnet_backend base; /* first: a bnet_backend * is a cpu_backend * */
    bnet_pool *pool;
    uint32_t isa_mask; /* bit ISA_x: kernels of that set may run */
    cpu_choice row;
    atomic_uint_fast64_t calls[N_ROWS];
} cpu_backend;

/* The best row for (op, format) that this backend may run and whose K constraint fits; -1: none. */
int bnet_cpu_select(const cpu_backend *be, const char *op, const char *format, uint64_t k);
bitnet_status bnet_cpu_isa_mask(const char *isa, uint32_t *mask, bitnet_error *err);

/* Counts one use of a row and gives its function. */
static inline cpu_fn cpu_use(cpu_backend *be, int row)
{
    atomic_fetch_add_explicit(&be->calls[row], 1, memory_order_relaxed);
    return bnet_cpu_rows[row].fn;
}

/* ---- objects ---- */

struct bnet_buffer {
    size_t n_bytes;
    void *data;
};

struct bnet_weight {
    bnet_weight_info info;
    const uint8_t *data; /* in the mapped file, or in `owned` */
    size_t row_bytes;
    uint8_t *owned;      /* may be NULL */
    float *block_scales; /* ternary with varying scales: [n_out][n_in / 256]; else NULL */
    int row;             /* kernel */
};

struct bnet_kv_store {
    bnet_kv_shape shape;
    size_t part_bytes, block_bytes;
    uint8_t *data; /* [layer][block][kv head][K part, V part] */
};

static inline uint8_t *kv_part(const bnet_kv_store *kv, int layer, int block, int head, int is_v)
{
    size_t b = (size_t)layer * (size_t)kv->shape.n_blocks + (size_t)block;
    return kv->data + b * kv->block_bytes + (2 * (size_t)head + (size_t)is_v) * kv->part_bytes;
}

/* ---- running over items on the pool ---- */

typedef void (*cpu_items_fn)(void *arg, size_t begin, size_t end);
/* Splits [0, n) over the threads in multiples of grain; runs on the caller alone when n * cost is
 * small (a barrier costs about as much as a few thousand simple operations). */
void bnet_cpu_items(cpu_backend *be, size_t n, size_t grain, size_t cost, cpu_items_fn fn,
                    void *arg);

/* ---- entries of the table, by file ---- */

bitnet_status bnet_cpu_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                      const bnet_log *log, bnet_weight **out, bitnet_error *err);
void bnet_cpu_weight_free(bnet_backend *b, bnet_weight *w);
void bnet_cpu_linear_ternary(bnet_backend *b, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                             bnet_buffer *y);
void bnet_cpu_linear_float(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                           bnet_buffer *y);
bnet_kv_store *bnet_cpu_kv_new(bnet_backend *b, const bnet_kv_shape *shape);
void bnet_cpu_kv_free(bnet_backend *b, bnet_kv_store *kv);
uint64_t bnet_cpu_kv_block_bytes(const bnet_kv_shape *shape);
void *bnet_cpu_kv_block(bnet_kv_store *kv, int layer, int block);
void bnet_cpu_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                        bnet_buffer *v);
void bnet_cpu_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                        bnet_buffer *y);
void bnet_cpu_embed(bnet_backend *b, const bnet_weight *w, const bnet_step *s, bnet_buffer *x);
void bnet_cpu_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                      bnet_buffer *y);
void bnet_cpu_quantize_i8(bnet_backend *b, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q);
void bnet_cpu_rope_table(bnet_backend *b, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs);
void bnet_cpu_rope(bnet_backend *b, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                   bnet_buffer *x);
void bnet_cpu_glu_relu2(bnet_backend *b, bnet_buffer *gate, bnet_buffer *up, size_t n,
                        bnet_buffer *y);
void bnet_cpu_glu_silu(bnet_backend *b, bnet_buffer *gate, bnet_buffer *up, size_t n,
                       bnet_buffer *y);
void bnet_cpu_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n);
void bnet_cpu_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                     size_t n_cols, bnet_buffer *y);

#endif
