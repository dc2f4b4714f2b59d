/* self_test.c - does this CPU compute with the instructions it says it has? Every kind of operation
 * once, small, with the kernels an engine would choose, against the scalar ones, bit for bit. */
#include "check/validate.h"

#include "device/cpu_features.h"

#include <math.h>

/* Ternary and head matrices take other kernels for one token than for many; both widths of an AMX
 * block and all tails of a group are met. */
static const struct {
    bnet_kernel_record rec; /* op, format and dtype: what the case is made of */
    case_shape s;
} tests[] = {
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_I2S, .dtype = BNET_DTYPE_I8}, {1, 72, 256}},
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_I2S, .dtype = BNET_DTYPE_I8}, {5, 72, 256}},
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_I2S, .dtype = BNET_DTYPE_I8}, {37, 72, 256}},
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_F16, .dtype = BNET_DTYPE_F32}, {1, 8, 256}},
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_BF16, .dtype = BNET_DTYPE_F32}, {1, 8, 256}},
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_Q8_0, .dtype = BNET_DTYPE_F32}, {1, 8, 256}},
    {{.op = BNET_OP_LINEAR, .format = BNET_FORMAT_Q6_K, .dtype = BNET_DTYPE_F32}, {1, 8, 256}},
    {{.op = BNET_OP_HEAD_SCAN, .format = BNET_FORMAT_Q6_K_R4, .dtype = BNET_DTYPE_F32},
     {1, 64, 256}},
    {{.op = BNET_OP_HEAD_SCAN, .format = BNET_FORMAT_Q8_0, .dtype = BNET_DTYPE_F32}, {1, 64, 256}},
    {{.op = BNET_OP_HEAD_SCAN, .format = BNET_FORMAT_F16, .dtype = BNET_DTYPE_F32}, {1, 1024, 256}},
    {{.op = BNET_OP_EMBED, .format = BNET_FORMAT_F16, .dtype = BNET_DTYPE_F32}, {2, 256, 0}},
    {{.op = BNET_OP_RMSNORM, .format = BNET_FORMAT_F32, .dtype = BNET_DTYPE_F32}, {2, 200, 0}},
    {{.op = BNET_OP_QUANTIZE, .format = BNET_FORMAT_I8, .dtype = BNET_DTYPE_F32}, {2, 200, 0}},
    {{.op = BNET_OP_NORM_QUANTIZE, .format = BNET_FORMAT_I8, .dtype = BNET_DTYPE_F32}, {2, 200, 0}},
    {{.op = BNET_OP_ADD_NORM_QUANTIZE, .format = BNET_FORMAT_I8, .dtype = BNET_DTYPE_F32},
     {2, 200, 0}},
    {{.op = BNET_OP_GLU_NORM_QUANTIZE, .format = BNET_FORMAT_RELU2, .dtype = BNET_DTYPE_F32},
     {2, 200, 0}},
    {{.op = BNET_OP_GLU_NORM_QUANTIZE, .format = BNET_FORMAT_SILU, .dtype = BNET_DTYPE_F32},
     {2, 200, 0}},
    {{.op = BNET_OP_ROPE, .format = BNET_FORMAT_NORM, .dtype = BNET_DTYPE_F32}, {2, 128, 0}},
    {{.op = BNET_OP_ROPE, .format = BNET_FORMAT_NEOX, .dtype = BNET_DTYPE_F32}, {2, 128, 0}},
    {{.op = BNET_OP_ATTENTION, .format = BNET_FORMAT_F16, .dtype = BNET_DTYPE_F32}, {5, 256, 0}},
    {{.op = BNET_OP_ATTENTION, .format = BNET_FORMAT_F32, .dtype = BNET_DTYPE_F32}, {5, 256, 0}},
    {{.op = BNET_OP_ATTENTION, .format = BNET_FORMAT_I8, .dtype = BNET_DTYPE_F32}, {5, 256, 0}},
    {{.op = BNET_OP_GLU, .format = BNET_FORMAT_RELU2, .dtype = BNET_DTYPE_F32}, {1, 200, 0}},
    {{.op = BNET_OP_GLU, .format = BNET_FORMAT_SILU, .dtype = BNET_DTYPE_F32}, {1, 200, 0}},
    {{.op = BNET_OP_ADD, .format = BNET_FORMAT_F32, .dtype = BNET_DTYPE_F32}, {1, 200, 0}},
};

typedef struct pair {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *tested, *scalar;
    const char *name; /* of the set, for messages */
} pair;

static bitnet_status run_once(bnet_backend *be, size_t i, kernel_case *c, const char **skip,
                              bitnet_error *err)
{
    bitnet_status st = bnet_case_open(be, &tests[i].rec, tests[i].s, CASE_RANDOM, c, skip, err);
    if (st != BITNET_OK || *skip)
        return st;
    bnet_case_load(c);
    st = bnet_case_run(c, err);
    if (st != BITNET_OK)
        bnet_case_close(c);
    return st;
}

/* The scalar backend has no scan, so its best logit is marked as not found; the other one's must be
 * found if it scans. */
static bool same_head(kernel_case *got, kernel_case *want)
{
    const float *x = bnet_case_result(got), *y = bnet_case_result(want);
    bool scans = bnet_op_top_bytes(got->be, got->w) > 0;
    if (!x || !y) /* the device failed */
        return false;
    for (size_t i = 0; i < got->s.n; i++)
        if (isnan(y[i]) ? scans && isnan(x[i]) : x[i] != y[i])
            return false;
    return true;
}

/* A result that could not be read counts as different. */
static bool equal(const void *a, const void *b, size_t n)
{
    return a && b && memcmp(a, b, n) == 0;
}

/* Quantisation leaves its result beside the buffers. */
static bool same_act(kernel_case *a, kernel_case *b)
{
    size_t m = (size_t)a->s.m;
    bnet_buffer *x[] = {a->act.q, a->act.scale, a->act.sum},
                *y[] = {b->act.q, b->act.scale, b->act.sum};
    const size_t sizes[] = {m * a->act.stride, m * sizeof(float), m * sizeof(int32_t)};
    for (size_t i = 0; i < BNET_COUNT(x); i++)
        if (!equal(bnet_op_read(a->be, x[i], sizes[i]), bnet_op_read(b->be, y[i], sizes[i]),
                   sizes[i]))
            return false;
    return true;
}

static bool same(kernel_case *got, kernel_case *want)
{
    if (bnet_case_head(got->rec))
        return same_head(got, want);
    if (bnet_case_quantizes(got->rec))
        return same_act(got, want);
    return equal(bnet_case_result(got), bnet_case_result(want), got->n_bytes[got->result]);
}

static bitnet_status compare(const pair *p, size_t i, bitnet_error *err)
{
    kernel_case got, want;
    const char *skip;
    bitnet_status st = run_once(p->scalar, i, &want, &skip, err);
    if (st != BITNET_OK || skip)
        return st;
    st = run_once(p->tested, i, &got, &skip, err);
    if (st == BITNET_OK && !skip) {
        if (!same(&got, &want))
            st = bnet_fail(err, BITNET_MISMATCH,
                           "isa '%s': %s of %s does not give what the scalar kernel gives: this "
                           "CPU or what emulates it is not sound; choose a lower isa",
                           p->name, bnet_op_name(tests[i].rec.op),
                           bnet_format_name(tests[i].rec.format));
        bnet_case_close(&got);
    }
    bnet_case_close(&want);
    return st;
}

bitnet_status bitnet_isa_self_test(const char *isa, bitnet_error *err)
{
    pair p = {.name = isa ? isa : "best"};
    bitnet_status st = bnet_pool_open(1, &p.pool, err); /* no worker: this thread runs it all */
    if (st == BITNET_OK)
        st = bnet_registry_open(&p.registry, err);
    if (st == BITNET_OK)
        st = bnet_backend_open_cpu(p.pool, p.registry, isa, false, NULL, &p.tested, err);
    if (st == BITNET_OK)
        st = bnet_backend_open_cpu(p.pool, p.registry, "scalar", false, NULL, &p.scalar, err);
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(tests); i++)
        st = compare(&p, i, err);
    bnet_backend_close(p.scalar);
    bnet_backend_close(p.tested);
    bnet_registry_close(p.registry);
    bnet_pool_close(p.pool);
    return st;
}

const char *bitnet_isa_at(int i)
{
    return bnet_cpu_isa_at(i);
}

bool bitnet_cpu_is_virtual(void)
{
    return bnet_cpu_is_virtual();
}
