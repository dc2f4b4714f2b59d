/* test_kernels_vector.c - kcheck for the rows test_kernels.c does not compare: norms, int8, rope,
 * cache, attention, gates, sums, embedding rows. Every row this CPU can run gets the same inputs as
 * the scalar row of its key; the results must agree as the row promises. Inputs and outputs end at
 * a guard page, outputs start poisoned, sizes cover every tail. A kernel that is wrong in one value
 * is found: that is tested too. KCHECK_SEED repeats a run. */
#include "guarded.h"

#include <math.h>
#include "backend/cpu/cpu.h"
#include "ops/kv_block.h"
#include "backend/cpu/softmax.h"
#include "device/cpu_features.h"

enum { MAX_N = 2561, MAX_BYTES = 5 * MAX_N + 2048 };

static uint64_t seed;

/* A region whose last byte lies before an unreadable page. */
static uint8_t *region(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (MAX_BYTES + page - 1) / page * page;
    uint8_t *map =
        mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + body, page, PROT_NONE), 0);
    return map + body;
}

/* Ends of the regions: three inputs and the output; they live as long as the program. */
typedef struct stage {
    uint8_t *end[3], *out_end;
    float values[3][MAX_N];
    uint8_t part[2][64 * 4 * 256 + 4096]; /* keys and values of one block */
} stage;

static stage *stage_new(void)
{
    stage *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < 3; i++)
        s->end[i] = region();
    s->out_end = region();
    return s;
}

/* Input i: n values that end at the guard page. */
static float *input(stage *s, int i, size_t n)
{
    float *x = (float *)(void *)(s->end[i] - n * sizeof *x);
    memcpy(x, s->values[i], n * sizeof *x);
    return x;
}

static uint8_t *output(stage *s, size_t n_bytes)
{
    memset(s->out_end - n_bytes, 0x7f, n_bytes);
    return s->out_end - n_bytes;
}

/* ---- one op each: calls fn on the stage's inputs, leaves n_bytes of result before out_end; floats
 * first, whose number is returned (what follows must be equal) ---- */

typedef size_t run_fn(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes);

static size_t run_add(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    float *x = (float *)(void *)output(s, *n_bytes = n * sizeof *x);
    memcpy(x, s->values[0], *n_bytes);
    ((bnet_fn_add *)r->fn)(x, input(s, 1, n), n);
    return n;
}

static size_t run_glu(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    float *y = (float *)(void *)output(s, *n_bytes = n * sizeof *y);
    ((bnet_fn_glu *)r->fn)(input(s, 0, n), input(s, 1, n), n, y);
    return n;
}

static size_t run_rmsnorm(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    float *y = (float *)(void *)output(s, *n_bytes = n * sizeof *y);
    ((bnet_fn_rmsnorm *)r->fn)(input(s, 0, n), input(s, 1, n), n, 1e-5f, y);
    return n;
}

/* The int8 values lie before the scale and the sum. */
static size_t run_quantize(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    size_t stride = (n + 127) / 128 * 128;
    uint8_t *out = output(s, *n_bytes = stride + 8);
    int32_t sum = 0x7f7f7f7f;
    float scale = ((bnet_fn_quantize *)r->fn)(input(s, 0, n), n, stride, (int8_t *)out, &sum);
    memcpy(out + stride, &scale, 4);
    memcpy(out + stride + 4, &sum, 4);
    return 0;
}

/* What several operations leave: int8 values, scale and sum at the end of n_bytes. */
static bnet_normed normed(stage *s, size_t n, uint8_t *q, int32_t *sum)
{
    static float room[MAX_N];
    return (bnet_normed){input(s, 2, n), n, 1e-5f, room, (n + 127) / 128 * 128, (int8_t *)q, sum};
}

static void put_scale(stage *s, float scale, int32_t sum)
{
    memcpy(s->out_end - 8, &scale, 4);
    memcpy(s->out_end - 4, &sum, 4);
}

/* Every other size works in place of its input. */
static size_t run_norm_quantize(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    int32_t sum = 0x7f7f7f7f;
    bnet_normed to = normed(s, n, output(s, *n_bytes = (n + 127) / 128 * 128 + 8), &sum);
    float *x = input(s, 0, n);
    to.y = n % 2 ? x : to.y;
    float scale = ((bnet_fn_norm_quantize *)r->fn)(x, &to);
    put_scale(s, scale, sum);
    return 0;
}

static size_t run_add_norm_quantize(stage *s, const bnet_kernel_record *r, size_t n,
                                    size_t *n_bytes)
{
    int32_t sum = 0x7f7f7f7f;
    uint8_t *out = output(s, *n_bytes = n * sizeof(float) + (n + 127) / 128 * 128 + 8);
    bnet_normed to = normed(s, n, out + n * sizeof(float), &sum);
    float *x = (float *)(void *)out;
    memcpy(x, s->values[0], n * sizeof *x);
    float scale = ((bnet_fn_add_norm_quantize *)r->fn)(x, input(s, 1, n), &to);
    put_scale(s, scale, sum);
    return n;
}

static size_t run_glu_norm_quantize(stage *s, const bnet_kernel_record *r, size_t n,
                                    size_t *n_bytes)
{
    int32_t sum = 0x7f7f7f7f;
    bnet_normed to = normed(s, n, output(s, *n_bytes = (n + 127) / 128 * 128 + 8), &sum);
    float *gate = input(s, 0, n);
    to.y = n % 2 ? gate : to.y;
    float scale = ((bnet_fn_glu_norm_quantize *)r->fn)(gate, input(s, 1, n), &to);
    put_scale(s, scale, sum);
    return 0;
}

static size_t run_rope(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    n = BNET_MAX(n / 2 * 2, (size_t)2);
    float *x = (float *)(void *)output(s, *n_bytes = n * sizeof *x);
    memcpy(x, s->values[0], *n_bytes);
    ((bnet_fn_rope *)r->fn)(x, input(s, 1, n), n);
    return n;
}

static size_t run_embed(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    float *y = (float *)(void *)output(s, *n_bytes = n * sizeof *y);
    const uint8_t *row = (const uint8_t *)input(s, 0, n);
    ((bnet_fn_embed *)r->fn)(BNET_F32, row, n, y);
    return n;
}

static bitnet_kv_type kv_type_of(const bnet_kernel_record *r)
{
    return r->format == BNET_FORMAT_F32   ? BITNET_KV_F32
           : r->format == BNET_FORMAT_F16 ? BITNET_KV_F16
                                          : BITNET_KV_INT8;
}

static size_t run_kv_store(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    n = (n - 1) % 256 + 1;
    size_t part = bnet_kv_part_bytes(kv_type_of(r), n);
    assert_true(part <= sizeof s->part[0]);
    memset(s->part[0], 0, part);
    ((bnet_fn_kv_store *)r->fn)(input(s, 0, n), n, 5, s->part[0]);
    ((bnet_fn_kv_store *)r->fn)(input(s, 1, n), n, 63, s->part[0]);
    *n_bytes = 8; /* of all it wrote, folded: the block is larger than the output */
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < part; i++)
        hash = (hash ^ s->part[0][i]) * 1099511628211u;
    memcpy(output(s, *n_bytes), &hash, sizeof hash);
    return 0;
}

static bnet_fn_kv_store *store_of(bitnet_kv_type t)
{
    return t == BITNET_KV_F32   ? bnet_kv_store_f32_scalar
           : t == BITNET_KV_F16 ? bnet_kv_store_f16_scalar
                                : bnet_kv_store_i8_scalar;
}

enum { MAX_QUERIES = 24, MAX_HEAD = 256 };

/* 1..4 tokens, of which the last ones see more, times 1..6 heads; every head size to 256. The
 * queries end at a guard page, and so does the part of the values that is read. */
/* Calls an attention row with the scratch that its record promises, and not a byte more. */
static void run_with_temp(const bnet_kernel_record *r, bnet_attend *a)
{
    guarded temp = guard_new(r->temp_bytes);
    a->temp = temp.data;
    ((bnet_fn_attention *)r->fn)(a);
    guard_free(&temp);
}

static size_t run_attention(stage *s, const bnet_kernel_record *r, size_t n, size_t *n_bytes)
{
    size_t hd = (n - 1) % MAX_HEAD + 1, n_pos = n * 7 % 64 + 1, n_heads = n % 6 + 1;
    size_t n_tokens = n / 6 % 4 + 1, stride = n_heads * hd + 3;
    bitnet_kv_type type = kv_type_of(r);
    while (n_tokens > 1 && (n_tokens * (stride + 2) > MAX_N || n_tokens > n_pos))
        n_tokens--;
    n_heads = BNET_MIN(n_heads, MAX_N / (hd + 2));
    for (size_t p = 0; p < n_pos; p++) {
        store_of(type)(s->values[1] + p * 7, hd, p, s->part[0]);
        store_of(type)(s->values[2] + p * 5, hd, p, s->part[1]);
    }
    uint8_t seen[4];
    for (size_t t = 0; t < n_tokens; t++)
        seen[t] = (uint8_t)(n_pos - (n_tokens - 1 - t));
    size_t n_q = n_tokens * n_heads;
    float *o = (float *)(void *)output(s, *n_bytes = n_q * (hd + 2) * sizeof *o);
    bnet_softmax block[MAX_QUERIES];
    bnet_attend a = {.q = input(s, 0, (n_tokens - 1) * stride + n_heads * hd),
                     .q_stride = stride,
                     .n_tokens = n_tokens,
                     .n_heads = n_heads,
                     .head_dim = hd,
                     .k_part = s->part[0],
                     .v_part = s->part[1],
                     .n_pos = seen,
                     .scale = 1 / sqrtf((float)hd),
                     .block = block,
                     .o = o};
    run_with_temp(r, &a);
    for (size_t i = 0; i < n_q; i++) {
        o[n_q * hd + 2 * i] = block[i].m;
        o[n_q * hd + 2 * i + 1] = block[i].l;
    }
    return n_q * (hd + 2);
}

/* Heads as wide as any, of sizes for vectors and others, with as much scratch as the row says. */
static void test_scratch_of_attention(void **state)
{
    (void)state;
    static const size_t dims[] = {128, 1023, BNET_MAX_HEAD_DIM};
    enum { TOKENS = 3, HEADS = 5, VALUES = TOKENS * HEADS * BNET_MAX_HEAD_DIM };
    static uint8_t part[64 * 4 * BNET_MAX_HEAD_DIM + 64 * 4 * BNET_MAX_HEAD_DIM / 16];
    static float q[VALUES], o[VALUES];
    const uint8_t n_pos[TOKENS] = {64, 64, 64};
    bnet_softmax block[TOKENS * HEADS];
    size_t n = 0, n_rows;
    const bnet_kernel_record *r = bnet_cpu_kernel_rows(&n_rows);
    for (size_t i = 0; i < n_rows; i++, r++)
        for (size_t d = 0; d < BNET_COUNT(dims); d++) {
            if (r->op != BNET_OP_ATTENTION || !r->fn || (r->needs & ~bnet_cpu_features()))
                continue;
            run_with_temp(r, &(bnet_attend){.q = q,
                                            .q_stride = HEADS * dims[d],
                                            .n_tokens = TOKENS,
                                            .n_heads = HEADS,
                                            .head_dim = dims[d],
                                            .k_part = part,
                                            .v_part = part,
                                            .n_pos = n_pos,
                                            .scale = 1,
                                            .block = block,
                                            .o = o});
            n++;
        }
    assert_true(n >= 9);
}

static const struct {
    bnet_op op;
    run_fn *run;
} ops[] = {
    {BNET_OP_ADD, run_add},
    {BNET_OP_GLU, run_glu},
    {BNET_OP_RMSNORM, run_rmsnorm},
    {BNET_OP_QUANTIZE, run_quantize},
    {BNET_OP_NORM_QUANTIZE, run_norm_quantize},
    {BNET_OP_ADD_NORM_QUANTIZE, run_add_norm_quantize},
    {BNET_OP_GLU_NORM_QUANTIZE, run_glu_norm_quantize},
    {BNET_OP_ROPE, run_rope},
    {BNET_OP_EMBED, run_embed},
    {BNET_OP_KV_STORE, run_kv_store},
    {BNET_OP_ATTENTION, run_attention},
};

/* ---- comparison ---- */

static run_fn *run_of(bnet_op op)
{
    for (size_t i = 0; i < BNET_COUNT(ops); i++)
        if (ops[i].op == op)
            return ops[i].run;
    return NULL;
}

/* Units in the last place of the largest value that the row may be off by; 0: equal bits. */
static double ulps_of(const bnet_kernel_record *r)
{
    double u = 0;
    if (strcmp(r->agreement, "exact") != 0 && sscanf(r->agreement, "close(%lf ulp)", &u) != 1)
        fail_msg("%s: agreement \"%s\" is neither exact nor close(N ulp)", r->id, r->agreement);
    return u;
}

static bool agree(const uint8_t *got, const uint8_t *want, size_t n_floats, size_t n_bytes,
                  double ulps)
{
    const float *a = (const float *)(const void *)got, *b = (const float *)(const void *)want;
    if (ulps == 0) { /* equal bits; of values that are no numbers, that they are none */
        for (size_t i = 0; i < n_floats; i++)
            if (memcmp(&a[i], &b[i], 4) != 0 && !(isnan(a[i]) && isnan(b[i])))
                return false;
        return memcmp(got + 4 * n_floats, want + 4 * n_floats, n_bytes - 4 * n_floats) == 0;
    }
    float largest = 0;
    for (size_t i = 0; i < n_floats; i++)
        largest = isfinite(b[i]) && fabsf(b[i]) > largest ? fabsf(b[i]) : largest;
    for (size_t i = 0; i < n_floats; i++)
        if (isfinite(a[i]) && isfinite(b[i]) &&
            !(fabs((double)a[i] - (double)b[i]) <= ulps * 0x1p-23 * (double)largest))
            return false;
    return true;
}

enum {
    PLAIN,
    LARGE,
    SPARSE,
    SUBNORMAL,
    HUGE_VALUES,
    TIES,
    NO_NUMBERS,
    NEAR_TIES,
    EVEN,
    BAD_WEIGHTS
};
enum { KINDS = BAD_WEIGHTS + 1 };

/* What a norm and int8 find hard: values on a rounding tie, or about as far from one as the error
 * of a float is, that a sum (input 1) and a norm (input 2) leave so; products that are all but
 * equal, so that which is the largest shows in the last bit only. */
static void fill_hard(stage *s, size_t n, int kind)
{
    for (size_t k = 0; k < MAX_N; k++) {
        double r = (double)(int64_t)test_rand(&seed) / 9.3e18, half = (double)(k % 255) / 2 - 63.5;
        s->values[0][k] =
            kind == NEAR_TIES ? (float)((half + r * 4e-5) * 1.1) : (float)(1.5 + r / 2.1);
        s->values[1][k] = 0;
        s->values[2][k] = kind == NEAR_TIES ? 1 : 1 / s->values[0][k];
    }
    if (kind == NEAR_TIES)
        s->values[0][n / 2] = 127 * 1.1f; /* the scale becomes about one */
}

static void fill(stage *s, size_t n, int kind)
{
    static const double sizes[KINDS] = {1, 300, 1e-6, 1e-41, 3e38, 1, 2, 1, 1, 1};
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < MAX_N; k++) {
            double v = sizes[kind] * ((double)(int64_t)test_rand(&seed) / 9.3e18);
            s->values[i][k] = kind == SPARSE && k % 3 ? 0.0f
                              : kind == TIES && k % 7 ? (float)(k % 255) / 2 - 63.5f
                                                      : (float)v;
        }
    if (kind == LARGE)
        s->values[0][n - 1] = -0.0f;
    if (kind == TIES)
        s->values[0][n / 2] = 127; /* the scale becomes one */
    if (kind == NO_NUMBERS) {
        s->values[0][n / 2] = n % 2 ? INFINITY : -INFINITY;
        s->values[0][n / 3] = n % 3 ? NAN : 1;
    }
    if (kind == BAD_WEIGHTS)
        s->values[2][n / 2] = n % 2 ? INFINITY : NAN;
    if (kind == NEAR_TIES || kind == EVEN)
        fill_hard(s, n, kind);
}

/* The first size at which the row does not agree with the scalar one; 0: it always does. */
static size_t first_difference(stage *s, const bnet_kernel_record *r, const bnet_kernel_record *ref)
{
    static const size_t more[] = {127, 128, 129, 255, 256, 640, 1000, 2560};
    static uint8_t want[MAX_BYTES];
    run_fn *run = run_of(r->op);
    for (size_t i = 0; i < 70 + BNET_COUNT(more); i++)
        for (int kind = 0; kind < KINDS; kind++) {
            size_t n = i < 70 ? i + 1 : more[i - 70], n_bytes, n_ref;
            fill(s, n, kind);
            run(s, ref, n, &n_ref);
            memcpy(want, s->out_end - n_ref, n_ref);
            size_t n_floats = run(s, r, n, &n_bytes);
            assert_int_equal(n_bytes, n_ref);
            if (!agree(s->out_end - n_bytes, want, n_floats, n_bytes, ulps_of(r)))
                return n;
        }
    return 0;
}

static const bnet_kernel_record *scalar_of(const bnet_kernel_record *r)
{
    size_t n;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].isa, "scalar") == 0 && rows[i].op == r->op &&
            rows[i].format == r->format && rows[i].dtype == r->dtype)
            return &rows[i];
    return NULL;
}

static bool any_size(const bitnet_dim_rule *d)
{
    return d->min <= 1 && d->max == 0 && d->multiple <= 1;
}

static void test_vector_rows(void **state)
{
    stage *s = *state;
    size_t n;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (size_t i = 0; i < n; i++) {
        const bnet_kernel_record *r = &rows[i], *ref = scalar_of(r);
        if (!ref)
            fail_msg("%s has no scalar row of its key to agree with", r->id);
        if (r->op == BNET_OP_LINEAR || r->op == BNET_OP_HEAD_SCAN)
            continue; /* test_kernels.c, test_head_kernels.c */
        if (!run_of(r->op))
            fail_msg("%s: nothing here checks rows of op %s", r->id, bnet_op_name(r->op));
        if (!any_size(&r->m) || !any_size(&r->n) || !any_size(&r->k))
            fail_msg("%s: op %s is chosen before sizes are known, so it cannot have rules on them",
                     r->id, bnet_op_name(r->op));
        if ((r->needs & ~bnet_cpu_features()) != 0) {
            print_message("%s: not available on this CPU, not checked\n", r->id);
            continue;
        }
        size_t bad = first_difference(s, r, ref); /* the scalar row itself: no state is kept */
        if (bad)
            fail_msg("%s differs from %s at size %zu", r->id, ref->id, bad);
    }
}

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)(int64_t)test_rand(&seed) / 9.3e18);
    return x;
}

/* ---- attention of several tokens, whose blocks are converted ahead ---- */

enum { TURN_TOKENS = 3, TURN_HEADS = 4, TURN_DIM = 128, TURN_GAP = 3 };
enum { TURN_VALUES = TURN_TOKENS * (TURN_HEADS * TURN_DIM + TURN_GAP) };

typedef struct turned {
    float o[TURN_TOKENS * TURN_HEADS * TURN_DIM], y[TURN_VALUES];
    bnet_softmax block[TURN_TOKENS * TURN_HEADS], run[TURN_TOKENS * TURN_HEADS];
} turned;

/* Three tokens; the last of them sees `last` positions, the others one and two fewer. What they see
 * is joined to what `out` holds: by the row, or afterwards. */
static void attend_three(const bnet_kernel_record *r, stage *s, const float *q, size_t hd,
                         size_t n_heads, size_t last, bool by_row, turned *out)
{
    const uint8_t n_pos[TURN_TOKENS] = {(uint8_t)(last - 2), (uint8_t)(last - 1), (uint8_t)last};
    run_with_temp(r, &(bnet_attend){.q = q,
                                    .q_stride = n_heads * hd + TURN_GAP,
                                    .n_tokens = TURN_TOKENS,
                                    .n_heads = n_heads,
                                    .head_dim = hd,
                                    .k_part = s->part[0],
                                    .v_part = s->part[1],
                                    .k_next = s->part[0],
                                    .n_pos = n_pos,
                                    .scale = 0.1f,
                                    .block = out->block,
                                    .o = out->o,
                                    .run = by_row ? out->run : NULL,
                                    .y = out->y});
    for (size_t i = 0; !by_row && i < TURN_TOKENS * n_heads; i++)
        bnet_softmax_merge(&out->run[i], out->y + i * hd + i / n_heads * TURN_GAP, &out->block[i],
                           out->o + i * hd, hd);
}

static void start_three(turned *t)
{
    memset(t, 0x7f, sizeof *t);
    for (size_t i = 0; i < TURN_TOKENS * TURN_HEADS; i++)
        t->run[i] = bnet_softmax_start(t->y, TURN_VALUES);
}

static void check_three(stage *s, const bnet_kernel_record *r, size_t hd)
{
    static const size_t last[] = {3, 8, 9, 16, 17, 31, 33, 48, 63, 64};
    float *q = random_floats(TURN_VALUES), *kv = random_floats(2 * 64 * hd);
    for (size_t p = 0; p < 128; p++)
        store_of(kv_type_of(r))(kv + p * hd, hd, p % 64, s->part[p / 64]);
    for (size_t heads = 1; heads <= TURN_HEADS; heads++)
        for (size_t i = 0; i < BNET_COUNT(last); i++) {
            turned got, want;
            start_three(&got);
            start_three(&want);
            attend_three(r, s, q, hd, heads, 64, true, &got);
            attend_three(scalar_of(r), s, q, hd, heads, 64, false, &want);
            attend_three(r, s, q, hd, heads, last[i], true, &got);
            attend_three(scalar_of(r), s, q, hd, heads, last[i], false, &want);
            if (memcmp(&got, &want, sizeof got) != 0)
                fail_msg("%s: heads of %zu, %zu of them, %zu positions: other bits than scalar",
                         r->id, hd, heads, last[i]);
        }
    free(q);
    free(kv);
}

static void test_attention_of_several_tokens(void **state)
{
    static const size_t dims[] = {16, 64, 112, 128};
    size_t n_rows;
    const bnet_kernel_record *r = bnet_cpu_kernel_rows(&n_rows);
    for (size_t i = 0; i < n_rows; i++, r++)
        for (size_t d = 0; d < BNET_COUNT(dims); d++)
            if (r->op == BNET_OP_ATTENTION && r->fn && !(r->needs & ~bnet_cpu_features()))
                check_three(*state, r, dims[d]);
}

/* ---- the check itself: kernels that are almost right ---- */

static void add_wrong(float *x, const float *y, size_t n)
{
    bnet_add_f32_scalar(x, y, n);
    if (n % 4 == 3) /* a forgotten tail */
        x[n - 1] -= y[n - 1];
}

static void norm_wrong(const float *x, const float *w, size_t n, float eps, float *y)
{
    bnet_rmsnorm_f32_scalar(x, w, n, eps, y);
    y[0] *= 1.0000001f; /* one unit in the last place */
}

static float quantize_wrong(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float scale = bnet_quantize_i8_scalar(x, n, stride, q, sum);
    q[stride - 1] = stride > n ? 1 : q[stride - 1]; /* the zeros behind the row */
    return scale;
}

static float norm_quantize_wrong(const float *x, const bnet_normed *to)
{
    float scale = bnet_norm_quantize_scalar(x, to);
    to->q[to->n / 2] ^= 1; /* one value the wrong side of a tie */
    return scale;
}

static float add_norm_quantize_wrong(float *x, const float *b, const bnet_normed *to)
{
    float scale = bnet_add_norm_quantize_scalar(x, b, to);
    x[0] -= b[0]; /* what is left in x counts, too */
    return scale;
}

static float glu_norm_quantize_wrong(const float *gate, const float *up, const bnet_normed *to)
{
    return bnet_glu_relu2_norm_quantize_scalar(gate, up, to) * 1.0000001f;
}

static void store_wrong(const float *x, size_t hd, size_t pos, uint8_t *part)
{
    bnet_kv_store_f16_scalar(x, hd, pos ^ (hd > 33), part);
}

static void attention_wrong(const bnet_attend *a)
{
    bnet_attend b = *a;
    uint8_t n_pos[4]; /* one position less of a full block */
    for (size_t t = 0; t < BNET_MIN(a->n_tokens, (size_t)4); t++)
        n_pos[t] = (uint8_t)(a->n_pos[t] - (a->n_pos[t] == 64));
    b.n_pos = n_pos;
    bnet_attention_f16_scalar(&b);
}

static void rope_wrong(float *x, const float *cs, size_t n_rot)
{
    bnet_rope_norm_scalar(x, cs, n_rot - (n_rot > 64 ? 2 : 0));
}

static void glu_wrong(const float *gate, const float *up, size_t n, float *y)
{
    bnet_glu_silu_scalar(gate, up, n, y);
    y[n / 2] *= 1.0000002f;
}

static void embed_wrong(bnet_type type, const uint8_t *row, size_t n_cols, float *y)
{
    bnet_embed_row_scalar(type, row, n_cols - (n_cols > 1), y);
}

static void test_a_wrong_kernel_is_found(void **state)
{
    stage *s = *state;
    static const struct {
        bnet_op op;
        bnet_format format;
        bnet_kernel_fn fn;
    } wrong[] = {
        {BNET_OP_ADD, BNET_FORMAT_F32, (bnet_kernel_fn)add_wrong},
        {BNET_OP_RMSNORM, BNET_FORMAT_F32, (bnet_kernel_fn)norm_wrong},
        {BNET_OP_QUANTIZE, BNET_FORMAT_I8, (bnet_kernel_fn)quantize_wrong},
        {BNET_OP_NORM_QUANTIZE, BNET_FORMAT_I8, (bnet_kernel_fn)norm_quantize_wrong},
        {BNET_OP_ADD_NORM_QUANTIZE, BNET_FORMAT_I8, (bnet_kernel_fn)add_norm_quantize_wrong},
        {BNET_OP_GLU_NORM_QUANTIZE, BNET_FORMAT_RELU2, (bnet_kernel_fn)glu_norm_quantize_wrong},
        {BNET_OP_KV_STORE, BNET_FORMAT_F16, (bnet_kernel_fn)store_wrong},
        {BNET_OP_ATTENTION, BNET_FORMAT_F16, (bnet_kernel_fn)attention_wrong},
        {BNET_OP_ROPE, BNET_FORMAT_NORM, (bnet_kernel_fn)rope_wrong},
        {BNET_OP_GLU, BNET_FORMAT_SILU, (bnet_kernel_fn)glu_wrong},
        {BNET_OP_EMBED, BNET_FORMAT_ROW, (bnet_kernel_fn)embed_wrong},
    };
    assert_int_equal(BNET_COUNT(wrong), BNET_COUNT(ops));
    for (size_t i = 0; i < BNET_COUNT(wrong); i++) {
        bnet_kernel_record key = {
            .op = wrong[i].op, .format = wrong[i].format, .dtype = BNET_DTYPE_F32};
        const bnet_kernel_record *ref = scalar_of(&key);
        assert_non_null(ref);
        bnet_kernel_record r = *ref;
        r.fn = wrong[i].fn;
        size_t at = first_difference(s, &r, ref);
        print_message("%s: found at size %zu\n", r.id, at);
        assert_true(at > 0);
    }
}

/* ---- several operations in one, on rows as long as models have them and longer ---- */

typedef struct long_row {
    float *x, *b, *w, *y;
    int8_t *q;
    int32_t sum;
    float scale;
} long_row;

static long_row long_row_new(size_t n)
{
    return (long_row){random_floats(n),
                      random_floats(n),
                      random_floats(n),
                      random_floats(n),
                      malloc(n + 128),
                      0,
                      0};
}

static void long_row_free(long_row *l)
{
    free(l->x);
    free(l->b);
    free(l->w);
    free(l->y);
    free(l->q);
}

static void long_row_run(long_row *l, const bnet_kernel_record *r, size_t n)
{
    bnet_normed to = {l->w, n, 1e-5f, l->y, (n + 127) / 128 * 128, l->q, &l->sum};
    if (r->op == BNET_OP_NORM_QUANTIZE)
        l->scale = ((bnet_fn_norm_quantize *)r->fn)(l->x, &to);
    else if (r->op == BNET_OP_ADD_NORM_QUANTIZE)
        l->scale = ((bnet_fn_add_norm_quantize *)r->fn)(l->x, l->b, &to);
    else
        l->scale = ((bnet_fn_glu_norm_quantize *)r->fn)(l->x, l->b, &to);
}

static void check_long_row(const bnet_kernel_record *r, size_t n)
{
    uint64_t from = seed;
    long_row got = long_row_new(n);
    seed = from;
    long_row want = long_row_new(n);
    long_row_run(&got, r, n);
    long_row_run(&want, scalar_of(r), n);
    size_t stride = (n + 127) / 128 * 128;
    if (memcmp(got.q, want.q, stride) != 0 || memcmp(&got.scale, &want.scale, 4) != 0 ||
        got.sum != want.sum || memcmp(got.x, want.x, n * 4) != 0)
        fail_msg("%s differs from the scalar row at size %zu", r->id, n);
    long_row_free(&got);
    long_row_free(&want);
}

static void test_long_rows_of_several_operations(void **state)
{
    (void)state;
    static const size_t sizes[] = {6912, 13824, 27648, 32767, 32768, 32831, 32832, 33000};
    size_t n;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (strstr(bnet_op_name(rows[i].op), "norm_quantize") &&
            !(rows[i].needs & ~bnet_cpu_features()))
            for (size_t k = 0; k < BNET_COUNT(sizes); k++)
                check_long_row(&rows[i], sizes[k]);
}

/* One unit in the last place is no difference for a row that promises no more. */
static void test_agreement_is_what_the_row_says(void **state)
{
    stage *s = *state;
    bnet_kernel_record key = {
        .op = BNET_OP_RMSNORM, .format = BNET_FORMAT_F32, .dtype = BNET_DTYPE_F32};
    const bnet_kernel_record *ref = scalar_of(&key);
    bnet_kernel_record r = *ref;
    r.fn = (bnet_kernel_fn)norm_wrong;
    r.agreement = "close(2 ulp)";
    assert_int_equal(first_difference(s, &r, ref), 0);
    r.agreement = "exact";
    assert_true(first_difference(s, &r, ref) > 0);
}

/* ---- softmax inside attention: scores of any size ---- */

enum { SM_POS = 100 }; /* a block and a part of one */

/* Attention over 100 positions with head size 1, whose scores and values are given. */
static float softmax_of(const bnet_kernel_record *r, const float *scores, const float *values)
{
    static uint8_t k[2][1024], v[2][1024];
    const float q = 1;
    float o, ob;
    bnet_softmax block, run = bnet_softmax_start(&o, 1);
    for (size_t p = 0; p < SM_POS; p++) {
        bnet_kv_store_f32_scalar(&scores[p], 1, p % 64, k[p / 64]);
        bnet_kv_store_f32_scalar(&values[p], 1, p % 64, v[p / 64]);
    }
    for (size_t b = 0; b < 2; b++) {
        uint8_t n_pos = b ? SM_POS - 64 : 64;
        bnet_attend a = {&q,     1, 1,      1,   1,    k[b], v[b], NULL,
                         &n_pos, 1, &block, &ob, NULL, NULL, NULL};
        run_with_temp(r, &a);
        bnet_softmax_merge(&run, &o, &block, &ob, 1);
    }
    return o / run.l;
}

/* cmocka's own comparison takes what is not a number for any number. */
static bool is_near(float a, float b, float bound)
{
    return fabsf(a - b) <= bound;
}

static void check_softmax(const bnet_kernel_record *r)
{
    static const float sizes[] = {0, 1, 80, 1e4f, 1e30f};
    float s[SM_POS], ones[SM_POS], v[SM_POS];
    for (size_t k = 0; k < BNET_COUNT(sizes); k++) {
        for (size_t p = 0; p < SM_POS; p++) {
            s[p] = sizes[k] * (float)((double)(int64_t)test_rand(&seed) / 9.3e18);
            ones[p] = 1;
            v[p] = (float)p;
        }
        assert_true(is_near(softmax_of(r, s, ones), 1, 1e-6f)); /* weights sum to one */
    }
    for (size_t top = 0; top < SM_POS; top += 33) { /* one score above all others */
        for (size_t p = 0; p < SM_POS; p++)
            s[p] = p == top ? 1e4f : -1e4f;
        assert_true(is_near(softmax_of(r, s, v), (float)top, 0));
    }
    for (size_t p = 0; p < SM_POS; p++)
        s[p] = -1e4f;
    assert_true(is_near(softmax_of(r, s, v), (SM_POS - 1) / 2.0f, 1e-4f)); /* alike: the mean */
    for (size_t p = 0; p < SM_POS; p++)
        s[p] = -INFINITY; /* nothing to look at: not a number, rather than a plausible one */
    assert_true(isnan(softmax_of(r, s, v)));
}

static void test_K_12_softmax_of_any_scores(void **state)
{
    (void)state;
    size_t n, checked = 0;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].op == BNET_OP_ATTENTION && rows[i].format == BNET_FORMAT_F32 &&
            (rows[i].needs & ~bnet_cpu_features()) == 0) {
            check_softmax(&rows[i]);
            checked++;
        }
    assert_true(checked > 0);
}

static int setup(void **state)
{
    *state = stage_new();
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const char *s = getenv("KCHECK_SEED");
    seed = s ? strtoull(s, NULL, 0) : 20261;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scratch_of_attention),
        cmocka_unit_test(test_vector_rows),
        cmocka_unit_test(test_attention_of_several_tokens),
        cmocka_unit_test(test_a_wrong_kernel_is_found),
        cmocka_unit_test(test_agreement_is_what_the_row_says),
        cmocka_unit_test(test_long_rows_of_several_operations),
        cmocka_unit_test(test_K_12_softmax_of_any_scores),
    };
    return cmocka_run_group_tests_name("kernels/vector", tests, setup, teardown);
}
