/* validate.h - the inside of validation, shared by its files. A case is one operation of one kernel
 * on one shape, on any backend: alone to be timed, on a tee to be compared. */
#ifndef BNET_VALIDATE_H
#define BNET_VALIDATE_H

#include "check/tee.h"
#include "bitnet_check.h"
#include "engine/engine.h"

typedef struct validation_run {
    bitnet_runtime *runtime;
    bitnet_validate_options o;
    bitnet_validation *out;
    bnet_backend_want device, against; /* registries are filled in when one is opened */
    bnet_capabilities caps, ref_caps;
    bnet_registry *reference; /* the kernels of the tree alone */
    bnet_backend *held;       /* keeps the device open between cases; or NULL */
    size_t cap_accuracy, cap_performance;
    bnet_progress progress;
    uint64_t part_begin, part_share; /* of progress: the part that runs now */
    bitnet_error *err;
} validation_run;

typedef struct case_shape {
    uint64_t m, n, k; /* vectors: m rows of n, k 0 */
} case_shape;

/* What ternary cases are filled with. Extremes give the largest possible sums of either sign: rows
 * of weights are all +1 and all -1 in turn, tokens all 127 and all -127 in turn; the fill names the
 * sign of the first token. */
typedef enum case_fill { CASE_RANDOM, CASE_EXTREME_PLUS, CASE_EXTREME_MINUS } case_fill;

enum { CASE_BUFFERS = 5, CASE_HEAD = 64 }; /* CASE_HEAD: the usual width of heads */

typedef struct kernel_case {
    bnet_backend *be;
    const bnet_kernel_record *rec;
    case_shape s;
    case_fill fill;
    int variant; /* of cases that differ in more than the shape */
    bool other;  /* the other way in which a kernel can be called */
    bool neox;   /* rotated in halves, by a kernel of any rotation */
    uint64_t seed;
    /* a weight and the tensor it was prepared from */
    bnet_tensor tensor;
    uint8_t *bytes;
    bool ternarise;
    bnet_weight *w;
    /* inputs first, the result last used */
    bnet_buffer *buf[CASE_BUFFERS];
    size_t n_bytes[CASE_BUFFERS];
    float *host[CASE_BUFFERS]; /* what buffer i is filled with before a run; NULL: nothing */
    int n_buffers, result;
    bnet_act8 act;
    int8_t *q;
    float *scales;
    int32_t *sums;
    /* cache and positions */
    int head; /* width of heads */
    bitnet_kv_type kv_type;
    bnet_kv_shape kv_shape;
    bnet_kv_store *kv;
    int32_t *ids, *pos, *seq, *blocks;
    bnet_seq timeline;
    bnet_step step;
    double *inv_freq;
    bnet_rope rope;
} kernel_case;

/* Makes data for the record's operation. *skip is set to a reason if no case of this kind can be
 * made (the status is OK then). */
bitnet_status bnet_case_open(bnet_backend *be, const bnet_kernel_record *rec, case_shape s,
                             case_fill fill, kernel_case *out, const char **skip,
                             bitnet_error *err);
void bnet_case_close(kernel_case *c);
void bnet_case_load(kernel_case *c);                            /* inputs to the backend */
bitnet_status bnet_case_run(kernel_case *c, bitnet_error *err); /* the operation, until done */
const float *bnet_case_result(kernel_case *c);
/* Decodes a row of the weight into s.k floats. False: there is no weight or no decoder. */
bool bnet_case_weight_row(const kernel_case *c, uint64_t row, float *out);
/* Fills c->tensor and c->bytes with a weight of the record's format (validate_weights.c). */
bitnet_status bnet_case_weight(kernel_case *c, const char **skip, bitnet_error *err);
uint64_t bnet_case_random(uint64_t *seed);

/* ---- what a case is made of; false: no memory ---- */

/* The next buffer, of floats; an input is filled, any other is the result unless one follows. */
bool bnet_case_buffer(kernel_case *c, size_t n_floats, bool input);
bool bnet_case_act(kernel_case *c, size_t n_cols); /* int8 activations, m rows */
bool bnet_case_step(kernel_case *c);               /* m tokens of one timeline */
bool bnet_case_cache(kernel_case *c); /* the step with a cache; buffers 0 and 1: keys, values */
bool bnet_case_rope(kernel_case *c);  /* a buffer for the table, one of rows to rotate */
bool bnet_case_embedding(kernel_case *c, bnet_format type); /* rows of it, the step, the result */
bool bnet_case_norm_quantize(kernel_case *c);               /* x, room, activations */
bool bnet_case_attention(kernel_case *c);                   /* the cache, queries, the result */
bool bnet_case_matrix(kernel_case *c);                      /* an input, the result */
bitnet_status bnet_case_prepare(kernel_case *c, bitnet_error *err); /* c->tensor, on the backend */

static inline int bnet_case_heads(const kernel_case *c)
{
    return (int)c->s.n / c->head;
}
static inline bitnet_kv_type bnet_case_kv_type(bnet_format format)
{
    return format == BNET_FORMAT_F32   ? BITNET_KV_F32
           : format == BNET_FORMAT_F16 ? BITNET_KV_F16
                                       : BITNET_KV_INT8;
}

/* Is the record's operation a product with a matrix of a model? */
static inline bool bnet_case_linear(const bnet_kernel_record *k)
{
    return k->op == BNET_OP_LINEAR;
}
/* Is it a product of any kind, so that its choice depends on the shape? */
static inline bool bnet_case_product(const bnet_kernel_record *k)
{
    return bnet_case_linear(k) || k->op == BNET_OP_MATMUL;
}
/* Does it take int8 activations? The rows of tiles say f32, which is what they come from. */
static inline bool bnet_case_ternary(const bnet_kernel_record *k)
{
    return k->dtype == BNET_DTYPE_I8 || k->op == BNET_OP_LINEAR_TILES;
}
/* The first stage of the head: checked as part of the whole, which no other backend has. */
static inline bool bnet_case_head(const bnet_kernel_record *k)
{
    return k->op == BNET_OP_HEAD_SCAN;
}
/* Several operations in one call: compared with what they must give, not with another backend's
 * call, which would be made of several. */
static inline bool bnet_case_fused(const bnet_kernel_record *k)
{
    return k->op == BNET_OP_NORM_QUANTIZE || k->op == BNET_OP_ADD_NORM_QUANTIZE ||
           k->op == BNET_OP_GLU_NORM_QUANTIZE;
}
/* Does it leave int8 values, in c->act? */
static inline bool bnet_case_quantizes(const bnet_kernel_record *k)
{
    return k->op == BNET_OP_QUANTIZE || bnet_case_fused(k);
}
/* The query under which a backend asks for the kernel of this case. */
bnet_kernel_query bnet_case_query(const bnet_kernel_record *k, case_shape s);

/* A kernel that a registry of its own makes the choice. */
typedef struct forced_kernel {
    const bnet_kernel_record *k;
    case_shape s;
    bnet_kernel_query query;
    bnet_registry *registry;
    bnet_backend *be; /* of the device; whatever stands here afterwards is closed */
} forced_kernel;
typedef bitnet_status (*forced_fn)(validation_run *r, forced_kernel *f, const void *what,
                                   bitnet_accuracy *a);
/* Opens the device with the kernel as its choice and calls `use`. If the device cannot run it, that
 * is noted in the row (may be NULL) and the status is OK. */
bitnet_status bnet_validate_forced(validation_run *r, const bnet_kernel_record *k, case_shape s,
                                   forced_fn use, const void *what, bitnet_accuracy *a);
bitnet_status bnet_validate_open_reference(const validation_run *r, bnet_backend **be);
bitnet_status bnet_validate_open_device(const validation_run *r, const bnet_registry *registry,
                                        const bnet_log *log, bnet_backend **be);
/* Replaces *be, whose kernels stand in `registry`, by a tee of it and the reference; on failure *be
 * stays. */
bitnet_status bnet_validate_open_tee(const validation_run *r, const bnet_registry *registry,
                                     bnet_backend **be);
/* Runs the case and compares its result with plain arithmetic in double: sets verdict, max_error,
 * bound and note (validate_double.c). */
bitnet_status bnet_validate_double(kernel_case *c, bitnet_accuracy *a, bitnet_error *err);
/* Kernels of single operations: which records they are, the check of one (validate_single_ops.c).
 */
bool bnet_case_single(const bnet_kernel_record *k);
bitnet_status bnet_validate_single_op(validation_run *r, const bnet_kernel_record *k);
/* Kernels of whole passes, alone (validate_pass_kernels.c) and in passes of a small model
 * (validate_pass.c): which records these are, all cases of one; all passes, once. */
bool bnet_case_alone(const bnet_kernel_record *k);
bool bnet_case_alone_only(const bnet_kernel_record *k); /* no other cases */
bitnet_status bnet_validate_pass_kernel(validation_run *r, const bnet_kernel_record *k);
bool bnet_case_pass_only(const bnet_kernel_record *k); /* it has no other case */
bitnet_status bnet_validate_passes(validation_run *r);
#define NOT_CALLED "the kernel was not called"
void bnet_validate_note(bitnet_accuracy *a, bitnet_verdict verdict, const char *note);
/* How often the backend called the kernel. */
uint64_t bnet_validate_calls(const bnet_backend *be, const char *id);
/* A new row of the result, with the record's bound; NULL: no memory, said in err. */
bitnet_accuracy *bnet_validate_row(validation_run *r, const bnet_kernel_record *k, case_shape s);
/* The precision in which a backend must be opened for this kernel to serve. */
bitnet_precision bnet_validate_precision(const bnet_kernel_record *k);
/* Returns CANCELLED if the caller has asked to stop. */
bitnet_status bnet_validate_poll(const validation_run *r);
/* The same, and reports that i of n pieces of the current part are done. */
bitnet_status bnet_validate_at(validation_run *r, size_t i, size_t n);
/* How long the first n_records of the registry take, in pieces of work; SIZE_MAX: all of them. */
size_t bnet_validate_work(const validation_run *r, size_t n_records);
/* Is this one of those the caller asked for? */
static inline bool bnet_validate_wants(const validation_run *r, const bnet_kernel_record *k)
{
    return !r->o.kernel || strcmp(r->o.kernel, k->id) == 0;
}

bitnet_status bnet_validate_accuracy(validation_run *r);
bitnet_status bnet_validate_speed(validation_run *r);
bitnet_status bnet_validate_model(validation_run *r);
bitnet_status bnet_validate_memory(validation_run *r);
bitnet_status bnet_validate_golden(validation_run *r);
bitnet_status bnet_validate_bridge(validation_run *r);

#endif
