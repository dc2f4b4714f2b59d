/* test_tee.c - the tee finds what is wrong, where it is wrong, and nothing else. Side 1 is the
 * scalar CPU with the kernels of the tree alone; side 0 is a CPU whose registry may hold a kernel
 * that cheats. */
#include "test.h"

#include <math.h>

#include "backend/cpu/cpu.h"
#include "ops/kv_block.h"
#include "check/tee.h"

enum { T = 3, K = 256, N = 96, HEADS = 4, KV_HEADS = 2, HD = 64, STRIDE = 256 };

#define OK(call)                                                                                   \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        if ((call) != BITNET_OK)                                                                   \
            fail_msg("%s: %s", #call, err.message);                                                \
    } while (0)

typedef struct stage {
    bnet_pool *pool;
    bnet_registry *registry[2];
    bnet_backend *tee;
    float embd[8 * K], norm[K], wf[N * K];
    uint8_t wt[N * K / 4 + 32];
    bnet_weight *w_embd, *w_norm, *w_float, *w_ternary;
    bnet_buffer *x, *h, *y, *big, *cs, *q, *a, *k, *v;
    bnet_act8 act;
    bnet_kv_store *kv;
    double inv_freq[HD / 2];
    bnet_rope rope;
    int32_t ids[T], pos[T], seq[T], blocks[2];
    bnet_seq seqs[1];
    bnet_step step;
} stage;

static float value(uint64_t *seed)
{
    return (float)(int64_t)(test_rand(seed) % 2001 - 1000) / 500.0f;
}

static bnet_weight *prepare(stage *s, const char *name, bnet_type type, uint64_t n_in,
                            uint64_t n_out, const void *data)
{
    bnet_tensor t = {.name = name,
                     .n_dims = n_out ? 2 : 1,
                     .ne = {n_in, n_out ? n_out : 1, 1, 1},
                     .type = type,
                     .data = data};
    bnet_weight_request r = {.source.tensor = &t,
                             .source.file = "test",
                             .source.layout = BITNET_I2S_128,
                             .source.extra_scale = 1.0f};
    bnet_weight *w = NULL;
    OK(s->tee->v->weight_prepare(s->tee, &r, NULL, &w, &err));
    return w;
}

static bnet_buffer *buffer(stage *s, size_t n_floats)
{
    bnet_buffer *b = s->tee->v->buffer_new(s->tee, n_floats * sizeof(float));
    assert_non_null(b);
    return b;
}

static void open_sides(stage *s, const bnet_kernel_record *cheat)
{
    bnet_tee_side side[2] = {{0}};
    OK(bnet_pool_open(2, &s->pool, &err));
    for (int i = 0; i < 2; i++)
        OK(bnet_registry_open(&s->registry[i], &err));
    if (cheat)
        OK(bnet_registry_add(s->registry[0], cheat, &err));
    for (int i = 0; i < 2; i++) {
        side[i].registry = s->registry[i];
        OK(bnet_backend_open_cpu(s->pool, s->registry[i], i ? "scalar" : NULL, false, NULL,
                                 &side[i].backend, &err));
    }
    OK(bnet_backend_open_tee(&side[0], &side[1], &s->tee, &err));
}

static void make_buffers(stage *s)
{
    s->x = buffer(s, T * K);
    s->h = buffer(s, T * K);
    s->y = buffer(s, T * K);
    s->big = buffer(s, T * N);
    s->cs = buffer(s, T * HD);
    s->q = buffer(s, T * HEADS * HD);
    s->a = buffer(s, T * HEADS * HD);
    s->k = buffer(s, T * KV_HEADS * HD);
    s->v = buffer(s, T * KV_HEADS * HD);
    s->act = (bnet_act8){buffer(s, T * STRIDE), buffer(s, T), buffer(s, T), STRIDE};
}

static void make_step(stage *s, bitnet_kv_type type)
{
    bnet_kv_shape shape = {2, 2, KV_HEADS, HD, type, HEADS};
    s->kv = s->tee->v->kv_new(s->tee, &shape);
    assert_non_null(s->kv);
    s->blocks[0] = 1;
    s->blocks[1] = 0;
    s->seqs[0] = (bnet_seq){s->kv, s->blocks};
    for (int i = 0; i < T; i++) {
        s->ids[i] = 2 * i + 1;
        s->pos[i] = 62 + i; /* into the second block */
    }
    for (int i = 0; i < HD / 2; i++)
        s->inv_freq[i] = pow(10000.0, -2.0 * i / HD);
    s->rope = (bnet_rope){s->inv_freq, HD, HD, true};
    s->step = (bnet_step){T, s->ids, s->pos, s->seq, s->seqs};
}

static stage *stage_open(const bnet_kernel_record *cheat, bitnet_kv_type type)
{
    stage *s = calloc(1, sizeof *s);
    uint64_t seed = 7;
    open_sides(s, cheat);
    for (size_t i = 0; i < 8 * K; i++)
        s->embd[i] = value(&seed);
    for (size_t i = 0; i < K; i++)
        s->norm[i] = value(&seed);
    for (size_t i = 0; i < N * K; i++)
        s->wf[i] = value(&seed);
    for (size_t i = 0; i < N * K / 4; i++)
        s->wt[i] = (uint8_t)(test_rand(&seed) % 3 * 85); /* 4 equal codes, 0..2 */
    bnet_i2s_tail(0.25f, s->wt + N * K / 4);
    s->w_embd = prepare(s, "token_embd.weight", BNET_F32, K, 8, s->embd);
    s->w_norm = prepare(s, "blk.1.attn_norm.weight", BNET_F32, K, 0, s->norm);
    s->w_float = prepare(s, "output.weight", BNET_F32, K, N, s->wf);
    s->w_ternary = prepare(s, "blk.1.attn_q.weight", BNET_I2_S, K, N, s->wt);
    make_buffers(s);
    make_step(s, type);
    return s;
}

static void stage_close(stage *s)
{
    const bnet_backend_vtable *v = s->tee->v;
    bnet_weight *w[] = {s->w_embd, s->w_norm, s->w_float, s->w_ternary};
    bnet_buffer *b[] = {s->x, s->h, s->y, s->big,   s->cs,        s->q,
                        s->a, s->k, s->v, s->act.q, s->act.scale, s->act.sum};
    for (size_t i = 0; i < BNET_COUNT(w); i++)
        v->weight_free(s->tee, w[i]);
    for (size_t i = 0; i < BNET_COUNT(b); i++)
        v->buffer_free(s->tee, b[i]);
    v->kv_free(s->tee, s->kv);
    bnet_backend_close(s->tee);
    for (int i = 0; i < 2; i++)
        bnet_registry_close(s->registry[i]);
    bnet_pool_close(s->pool);
    free(s);
}

/* One of each operation, as a layer would call them. */
static void pass(stage *s)
{
    const bnet_backend_vtable *v = s->tee->v;
    bnet_backend *be = s->tee;
    be->inspect->mark(be, -1);
    v->embed(be, s->w_embd, &s->step, s->x);
    v->rope_table(be, &s->rope, &s->step, s->cs);
    be->inspect->mark(be, 1);
    v->rmsnorm(be, s->x, s->w_norm, 1e-5f, T, s->h);
    v->quantize_i8(be, s->h, T, K, &s->act);
    v->linear_ternary(be, s->w_ternary, &s->act, T, s->big);
    v->linear_float(be, s->w_float, s->h, T, s->big);
    v->write(be, s->q, v->read(be, s->h, T * K * 4), T * K * 4);
    v->write(be, s->k, v->read(be, s->x, T * KV_HEADS * HD * 4), T * KV_HEADS * HD * 4);
    v->write(be, s->v, v->read(be, s->h, T * KV_HEADS * HD * 4), T * KV_HEADS * HD * 4);
    v->rope(be, &s->rope, s->cs, T, HEADS, s->q);
    v->kv_append(be, &s->step, 1, s->k, s->v);
    v->attention(be, &s->step, 1, HEADS, s->q, s->a);
    v->glu(be, BNET_ACT_RELU2, s->x, s->h, T * K, s->y);
    v->glu(be, BNET_ACT_SILU, s->y, s->h, T * K, s->y);
    v->add(be, s->x, s->a, T * K);
    be->inspect->mark(be, -1);
    int32_t rows[2] = {0, 2}, one[1] = {1};
    v->gather(be, s->x, rows, 2, K, s->y);
    v->gather(be, s->y, one, 1, K, s->h);
    OK(v->sync(be, &err));
}

/* Blocks start empty, as the model leaves them. */
static void clear_cache(stage *s)
{
    for (int b = 0; b < 2; b++)
        s->tee->v->kv_clear(s->kv, b);
}

static void print_diff(const bnet_tee_report *r)
{
    const bnet_tee_diff *d = &r->diff;
    print_message("%llu ops, %llu differ; first: %s %s layer %d row %d position %d element %zu: "
                  "%.9g and %.9g (%s | %s)\n",
                  (unsigned long long)r->n_ops, (unsigned long long)r->n_differ, d->op, d->tensor,
                  d->layer, d->row, (int)d->position, d->element, d->first, d->second,
                  d->kernels[0], d->kernels[1]);
}

static void test_equal_sides_never_differ(void **state)
{
    (void)state;
    for (int type = 0; type < 3; type++) {
        stage *s = stage_open(NULL, (bitnet_kv_type)type);
        clear_cache(s);
        pass(s);
        const bnet_tee_report *r = bnet_tee_result(s->tee);
        if (r->n_differ)
            print_diff(r);
        assert_int_equal(r->n_differ, 0);
        assert_int_equal(r->n_ops, 14);
        assert_true(r->n_values > 5000);
        assert_true(r->max_error == 0);
        stage_close(s);
    }
}

/* ---- kernels that cheat ---- */

static void cheat_linear(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                         size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    bnet_linear_i2s_scalar(w, n_blocks, n_rows, x, x_stride, x_sum, n_tokens, acc);
    acc[(n_tokens - 1) * n_rows + 5] += 1;
}

static void cheat_float(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                        size_t n_tokens, float *y)
{
    bnet_linear_f32_scalar(row, x, x_stride, n_cols, n_tokens, y);
    y[1] = nextafterf(y[1], 1e30f);
}

static void cheat_norm(const float *x, const float *w, size_t n, float eps, float *y)
{
    bnet_rmsnorm_f32_scalar(x, w, n, eps, y);
    y[7] = -y[7];
}

static float cheat_quantize(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float scale = bnet_quantize_i8_scalar(x, n, stride, q, sum);
    int step = q[9] > 0 ? -1 : 1;
    q[9] = (int8_t)(q[9] + step);
    *sum += step;
    return scale;
}

static float cheat_sum(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float scale = bnet_quantize_i8_scalar(x, n, stride, q, sum);
    *sum += 1;
    return scale;
}

static void cheat_rope(float *x, const float *cs, size_t n_rot)
{
    bnet_rope_neox_scalar(x, cs, n_rot);
    x[3] += 1;
}

static void cheat_store(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    bnet_kv_store_f16_scalar(x, head_dim, pos, part);
    if (pos == 0) /* the third token alone: position 64 */
        part[2 * (pos * head_dim + 11)] ^= 1;
}

static void cheat_attention(const bnet_attend *a)
{
    bnet_attention_f16_scalar(a);
    (a->run ? a->y : a->o)[2] *= 1.5f; /* what the block was joined to, or what will be joined */
}

static void cheat_glu(const float *gate, const float *up, size_t n, float *y)
{
    bnet_glu_relu2_scalar(gate, up, n, y);
    y[4] += 0.5f;
}

static void cheat_add(float *x, const float *y, size_t n)
{
    bnet_add_f32_scalar(x, y, n);
    x[n - 1] = NAN;
}

#define CHEAT(op_, format_, dtype_, fn_)                                                           \
    {                                                                                              \
        .id = #op_ ".cheat", .device = BNET_DEV_CPU, .op = BNET_OP_##op_,                          \
        .format = BNET_FORMAT_##format_, .dtype = BNET_DTYPE_##dtype_, .isa = "scalar",            \
        .tier = BITNET_TIER_EXTREMELY, .alignment = 1, .abi = BITNET_KERNEL_ABI,                   \
        .agreement = "exact", .outside = true, .fn = (bnet_kernel_fn)(fn_)                         \
    }

typedef struct expected {
    bnet_kernel_record cheat;
    const char *op, *tensor;
    int layer, row, position;
    size_t element;
    bool spreads; /* a wrong sum is an input that kernels rightly use or not */
} expected;

static const expected table[] = {
    {CHEAT(LINEAR, I2S, I8, cheat_linear), "linear_ternary", "blk.1.attn_q.weight", 1, 2, 64, 5,
     false},
    {CHEAT(LINEAR, F32, F32, cheat_float), "linear_float", "output.weight", 1, 1, 63, 0, false},
    {CHEAT(RMSNORM, F32, F32, cheat_norm), "rmsnorm", "blk.1.attn_norm.weight", 1, 0, 62, 7, false},
    {CHEAT(QUANTIZE, I8, F32, cheat_quantize), "quantize_i8", "", 1, 0, 62, 9, false},
    {CHEAT(QUANTIZE, I8, F32, cheat_sum), "quantize_i8", "", 1, 0, 62, K, true},
    {CHEAT(ROPE, NEOX, F32, cheat_rope), "rope", "", 1, 0, 62, 3, false},
    {CHEAT(KV_STORE, F16, F32, cheat_store), "kv_append", "", 1, 2, 64, 11, false},
    {CHEAT(ATTENTION, F16, F32, cheat_attention), "attention", "", 1, 0, 62, 2, false},
    {CHEAT(GLU, RELU2, F32, cheat_glu), "glu_relu2", "", 1, 0, 62, 4, false},
    {CHEAT(ADD, F32, F32, cheat_add), "add", "", 1, 2, 64, K - 1, false},
};

/* V-1, V-2: op, layer, position and element are named, and since the second side is fed copies no
 * later operation is blamed. */
static void test_V_2_every_cheat_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(table); i++) {
        const expected *e = &table[i];
        stage *s = stage_open(&e->cheat, BITNET_KV_F16);
        clear_cache(s);
        pass(s);
        const bnet_tee_report *r = bnet_tee_result(s->tee);
        const bnet_tee_diff *d = &r->diff;
        if (r->n_differ < 1 || (r->n_differ > 1 && !e->spreads) || strcmp(d->op, e->op) != 0 ||
            d->layer != e->layer || d->row != e->row || d->position != e->position ||
            d->element != e->element) {
            print_diff(r);
            fail_msg("row %zu: wanted %s, layer %d, row %d, position %d, element %zu, one op", i,
                     e->op, e->layer, e->row, e->position, e->element);
        }
        assert_string_equal(d->tensor, e->tensor);
        assert_string_equal(d->kernels[0], e->cheat.id);
        assert_non_null(strstr(d->kernels[1], ".scalar"));
        assert_true(!(d->first == d->second));
        stage_close(s);
    }
}

/* After two gathers the rows are still known by position. */
static void test_positions_follow_gathered_rows(void **state)
{
    (void)state;
    bnet_kernel_record cheat = table[2].cheat;
    stage *s = stage_open(&cheat, BITNET_KV_F16);
    clear_cache(s);
    pass(s);
    memset((void *)(uintptr_t)bnet_tee_result(s->tee), 0, sizeof(bnet_tee_report));
    s->tee->v->rmsnorm(s->tee, s->h, s->w_norm, 1e-5f, 1, s->h); /* row 1 of rows 0, 2 */
    const bnet_tee_diff *d = &bnet_tee_result(s->tee)->diff;
    assert_int_equal(d->row, 0);
    assert_int_equal(d->position, 64);
    assert_int_equal(d->layer, -1);
    stage_close(s);
}

/* ---- bounds ---- */

static void nearly_norm(const float *x, const float *w, size_t n, float eps, float *y)
{
    bnet_rmsnorm_f32_scalar(x, w, n, eps, y);
    for (size_t i = 0; i < n; i++)
        y[i] = nextafterf(y[i], 1e30f);
}

static uint64_t differing(const char *agreement, bool *inexact)
{
    bnet_kernel_record k = CHEAT(RMSNORM, F32, F32, nearly_norm);
    k.agreement = agreement;
    stage *s = stage_open(&k, BITNET_KV_F16);
    clear_cache(s);
    pass(s);
    uint64_t n = bnet_tee_result(s->tee)->n_differ;
    *inexact = bnet_tee_result(s->tee)->max_error > 0;
    stage_close(s);
    return n;
}

static void test_V_2_floats_within_the_bound_of_the_row(void **state)
{
    (void)state;
    bool inexact;
    assert_int_equal(differing("close(2 ulp)", &inexact), 0);
    assert_true(inexact);
    assert_int_equal(differing("exact", &inexact), 1);
    assert_int_equal(differing("close(0.01 ulp)", &inexact), 1);
}

/* Ties to even becomes ties away: allowed for what stands on a tie. */
static float away_quantize(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float scale = bnet_quantize_i8_scalar(x, n, stride, q, sum);
    *sum = 0;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)roundf(x[i] / scale);
        *sum += q[i];
    }
    return scale;
}

static void test_V_2_ties_may_fall_either_way(void **state)
{
    (void)state;
    bnet_kernel_record k = CHEAT(QUANTIZE, I8, F32, away_quantize);
    stage *s = stage_open(&k, BITNET_KV_F16);
    float x[K];
    for (int i = 0; i < K; i++)
        x[i] = (float)(i % 127) + (i % 3 == 0 ? 0.5f : 0.25f);
    x[1] = 127; /* so the scale is 1 */
    x[126] = x[253] = 126;
    s->tee->v->write(s->tee, s->x, x, sizeof x);
    s->tee->v->quantize_i8(s->tee, s->x, 1, K, &s->act);
    const bnet_tee_report *r = bnet_tee_result(s->tee);
    if (r->n_differ)
        print_diff(r);
    assert_int_equal(r->n_differ, 0);
    assert_true(r->n_ties > 10);
    stage_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_sides_never_differ),
        cmocka_unit_test(test_V_2_every_cheat_is_found),
        cmocka_unit_test(test_positions_follow_gathered_rows),
        cmocka_unit_test(test_V_2_floats_within_the_bound_of_the_row),
        cmocka_unit_test(test_V_2_ties_may_fall_either_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
