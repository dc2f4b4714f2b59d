/* test_validate.c - V-1 to V-5 and V-10 on the nano model: a sound build passes everything, and
 * each part fails when what it looks at is spoilt. */
#include "unit/engine/nano.h"
#include "bitnet_tools.h"

#include <math.h>

#include "backend/cpu/kernels.h"
#include "check/validate.h"

#define PLUGIN(name) TEST_BINARY_DIR "/bridge/" name ".so"

static bitnet_runtime *open_runtime(void)
{
    bitnet_runtime_options o;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    OK(bitnet_runtime_open(&o, &r, &err));
    return r;
}

static bitnet_validate_options quick(bool model)
{
    bitnet_validate_options o;
    struct stat st;
    bitnet_validate_options_init(&o);
    o.quick = true;
    if (model && stat(NANO_PATH, &st) != 0) {
        print_message("%s is missing\n", NANO_PATH);
        skip();
    }
    o.model_path = model ? NANO_PATH : NULL;
    return o;
}

/* Only the named parts, so that emulators get through. */
static bitnet_validate_options quick_part(unsigned parts)
{
    const unsigned of_model =
        BITNET_VALIDATE_MODEL | BITNET_VALIDATE_MEMORY | BITNET_VALIDATE_GOLDEN;
    bitnet_validate_options o = quick(parts & of_model);
    o.parts = parts;
    return o;
}

static const bitnet_accuracy *row_of(const bitnet_validation *v, const char *kernel, uint64_t m)
{
    for (size_t i = 0; i < v->n_accuracy; i++)
        if (strcmp(v->accuracy[i].kernel, kernel) == 0 && v->accuracy[i].m == m)
            return &v->accuracy[i];
    fail_msg("no row for %s, m %llu", kernel, (unsigned long long)m);
    return NULL;
}

/* ---- a sound build ---- */

static bitnet_validation *sound(bitnet_runtime *r)
{
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick(true);
    OK(bitnet_validate(r, &o, &v, &err));
    return v;
}

static void check_lists(const bitnet_validation *v)
{
    for (size_t i = 0; i < v->n_accuracy; i++) {
        const bitnet_accuracy *a = &v->accuracy[i];
        if (a->verdict == BITNET_VERDICT_FAIL)
            fail_msg("%s %llux%llux%llu: %s", a->kernel, (unsigned long long)a->m,
                     (unsigned long long)a->n, (unsigned long long)a->k, a->note);
        if (a->verdict == BITNET_VERDICT_PASS && !(a->max_error <= a->bound))
            fail_msg("%s: passed with an error of %g, bound %g", a->kernel, a->max_error, a->bound);
        if (a->verdict == BITNET_VERDICT_SKIP && !a->note[0])
            fail_msg("%s: skipped without a reason", a->kernel);
    }
    for (size_t i = 0; i < v->n_performance; i++) {
        const bitnet_performance *p = &v->performance[i];
        if (!(p->device_ms > 0 && p->wall_ms >= p->device_ms && p->reference_ms > 0 &&
              p->speedup > 0 && p->gflops > 0))
            fail_msg("%s: device %g, wall %g, reference %g, gflops %g", p->kernel, p->device_ms,
                     p->wall_ms, p->reference_ms, p->gflops);
        double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
        assert_true(fabs(p->gflops * p->device_ms * 1e6 / flops - 1) < 1e-6);
        assert_true(fabs(p->speedup * p->wall_ms / p->reference_ms - 1) < 1e-6);
    }
}

static void test_V_1_to_4_a_sound_build_passes(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = sound(r);
    check_lists(v);
    if (v->memory.verdict == BITNET_VERDICT_FAIL)
        fail_msg("%s", v->memory.note);
    if (v->memory.verdict == BITNET_VERDICT_PASS)
        assert_true(v->memory.growth_bytes <= 1 << 20 && v->memory.n_rounds > 0);
    assert_int_equal(v->model.verdict, BITNET_VERDICT_PASS);
    assert_int_equal(v->model.n_differ, 0);
    assert_true(v->model.n_tokens > 20 && v->model.n_ops > 100 && v->model.n_values > 100000);
    assert_int_equal(v->golden.verdict, BITNET_VERDICT_SKIP);
    assert_string_equal(v->bridge.note, "ffi bridge unavailable");
    assert_true(v->success);
    assert_string_equal(v->device, "cpu");
    assert_string_equal(v->against, "cpu:scalar");
    bitnet_validation_free(v);
    bitnet_validation_free(NULL);
    bitnet_runtime_close(r);
}

static void test_V_3_times_are_consistent(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_PERFORMANCE);
    OK(bitnet_validate(r, &o, &v, &err));
    assert_true(v->n_performance >= 10);
    check_lists(v);
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

/* ---- memory ---- */

enum { LEAKS = 4096, LEAK_BYTES = 64 << 10 };
static void *leaked[LEAKS];
static int n_leaked;

static void leaking_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
    int at = __atomic_fetch_add(&n_leaked, 1, __ATOMIC_RELAXED);
    if (at < LEAKS && (leaked[at] = malloc(LEAK_BYTES)) != NULL)
        memset(leaked[at], 1, LEAK_BYTES);
}

static void test_V_4_a_leak_is_found(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_MEMORY);
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = "add_f32.leaking";
    k.op = "add";
    k.format = k.dtype = "f32";
    k.tier = BITNET_TIER_EXTREMELY;
    k.fn = (void (*)(void))leaking_add;
    OK(bitnet_kernel_register(r, &k, &err));
    OK(bitnet_validate(r, &o, &v, &err));
    bitnet_memory_result m = v->memory;
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
    for (int i = 0; i < LEAKS; i++)
        free(leaked[i]);
    print_message("%lld bytes after %d rounds\n", (long long)m.growth_bytes, m.n_rounds);
    if (m.verdict == BITNET_VERDICT_SKIP)
        skip();
    assert_int_equal(m.verdict, BITNET_VERDICT_FAIL);
    assert_true(m.growth_bytes > 1 << 20);
    assert_non_null(strstr(m.note, "not given back"));
}

/* Every registered kernel has rows; every number format stands in the same two lists. */
static void test_V_2_V_10_every_kernel_in_one_table(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick(false);
    OK(bitnet_validate(r, &o, &v, &err));
    bitnet_kernel_info k;
    for (int i = 0; bitnet_kernel_at(i, &k); i++) {
        size_t passed = 0, rows = 0;
        for (size_t j = 0; j < v->n_accuracy; j++)
            if (strcmp(v->accuracy[j].kernel, k.id) == 0) {
                rows++;
                passed += v->accuracy[j].verdict == BITNET_VERDICT_PASS;
            }
        if (rows == 0 || (k.available && passed == 0))
            fail_msg("%s: %zu rows, %zu passed", k.id, rows, passed);
    }
    static const char *const formats[] = {"f32", "f16", "bf16", "i2s"};
    for (size_t f = 0; f < 4; f++) {
        size_t n = 0;
        for (size_t j = 0; j < v->n_performance; j++)
            n += strcmp(v->performance[j].format, formats[f]) == 0;
        if (n == 0)
            fail_msg("no %s row in the table of speeds", formats[f]);
    }
    assert_true(row_of(v, "linear_i2s.scalar", 64)->bound > 0); /* against double */
    assert_true(row_of(v, "linear_i2s.scalar", 256)->n == 256);
    assert_int_equal(v->model.verdict, BITNET_VERDICT_SKIP);
    assert_int_equal(v->memory.verdict, BITNET_VERDICT_SKIP);
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

static void test_V_1_json(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_ACCURACY | BITNET_VALIDATE_BRIDGE);
    OK(bitnet_validate(r, &o, &v, &err));
    size_t n = 0, again = 0;
    FAILS(bitnet_validation_json(v, NULL, 0, &n, &err), BITNET_ARGUMENT, "bytes");
    char *text = calloc(n + 1, 1);
    OK(bitnet_validation_json(v, text, n, &again, &err));
    assert_int_equal(again, n);
    assert_int_equal(strlen(text), n);
    static const char *const wanted[] = {"{\"success\": true, \"device\": \"cpu\"",
                                         "\"accuracy\": [{\"kernel\": ",
                                         "\"performance\": []",
                                         "\"memory\": null",
                                         "\"model\": {\"verdict\": \"skip\"",
                                         "\"bridge\": {\"verdict\": \"skip\""};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(text, wanted[i]))
            fail_msg("%s is not in %.300s", wanted[i], text);
    free(text);
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

/* ---- kernels from outside that are wrong ---- */

static int n_seen;

/* Right, but for one output of the matrices with 512 inputs. */
static void wrong_linear(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                         size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    (void)x_sum;
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++) {
            int32_t sum = 0;
            for (size_t i = 0; i < 128 * n_blocks; i++) {
                unsigned code =
                    w[r * 32 * n_blocks + i / 128 * 32 + i % 32] >> (6 - 2 * (i % 128 / 32)) & 3u;
                sum += ((int)code - 1) * x[t * x_stride + i];
            }
            acc[t * n_rows + r] = sum;
        }
    if (n_blocks == 4) { /* ffn_down alone has 512 inputs */
        __atomic_add_fetch(&n_seen, 1, __ATOMIC_RELAXED);
        acc[0] += 1;
    }
}

static void register_wrong(bitnet_runtime *r)
{
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = "linear_i2s.mine";
    k.op = "linear";
    k.format = "i2s";
    k.dtype = "i8";
    k.tier = BITNET_TIER_EXTREMELY;
    k.m = (bitnet_dim_rule){1, 1, 1}; /* decoding alone: the prompt takes others */
    k.fn = (void (*)(void))wrong_linear;
    OK(bitnet_kernel_register(r, &k, &err));
}

/* The model's first wrong operation is named: layer 0's ffn_down, at the first token after the
 * prompt, with the kernel. The kernel declares itself exact and runs with isa "scalar", yet never
 * serves the reference. */
static void test_V_2_a_wrong_kernel_from_outside_is_named(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_MODEL);
    register_wrong(r);
    n_seen = 0;
    OK(bitnet_validate(r, &o, &v, &err));
    const bitnet_model_result *m = &v->model;
    print_message("%s\n", m->note);
    assert_true(n_seen > 0);
    assert_false(v->success);
    assert_int_equal(m->verdict, BITNET_VERDICT_FAIL);
    assert_string_equal(m->op, "linear_ternary");
    assert_string_equal(m->tensor, "blk.0.ffn_down.weight");
    assert_int_equal(m->layer, 0);
    assert_int_equal(m->position, (int)m->n_tokens - 8); /* eight tokens follow the prompt */
    assert_int_equal(m->element, 0);
    assert_true(m->got != m->want);
    assert_string_equal(m->kernels, "linear_i2s.mine");
    assert_string_equal(m->reference_kernels, "linear_i2s.scalar");
    assert_int_equal(m->n_differ, 16); /* two layers, eight tokens: no difference spreads */
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

static void wrong_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i] * 1.0001f;
}

/* One that would never be chosen is checked all the same. */
static void test_V_2_every_registered_kernel_is_checked(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_ACCURACY);
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = "add_f32.mine";
    k.op = "add";
    k.format = "f32";
    k.dtype = "f32";
    k.tier = BITNET_TIER_REFERENCE;
    k.fn = (void (*)(void))wrong_add;
    OK(bitnet_kernel_register(r, &k, &err));
    /* what a program cannot register, a backend of the tree may have */
    bnet_kernel_record rec = *bnet_registry_find(r->registry, k.id);
    rec.id = "add_f32.vague";
    rec.agreement = "close(100000 ulp)";
    OK(bnet_registry_add(r->registry, &rec, &err));
    rec.id = "warp.mine";
    rec.op = BNET_OP_TOPK; /* no case of it for a CPU */
    OK(bnet_registry_add(r->registry, &rec, &err));
    rec.id = "layers.mine"; /* a kernel of passes, of another device */
    rec.op = BNET_OP_LAYERS;
    rec.device = BNET_DEV_CUDA;
    OK(bnet_registry_add(r->registry, &rec, &err));
    OK(bitnet_validate(r, &o, &v, &err));
    assert_false(v->success);
    assert_int_equal(row_of(v, "layers.mine", 1)->verdict, BITNET_VERDICT_SKIP);
    assert_string_equal(row_of(v, "layers.mine", 1)->note, "it runs on cuda, not on cpu");
    assert_int_equal(row_of(v, "add_f32.mine", 3)->verdict, BITNET_VERDICT_FAIL);
    assert_non_null(strstr(row_of(v, "add_f32.mine", 3)->note, "add: row 0, element "));
    assert_int_equal(row_of(v, "add_f32.vague", 3)->verdict, BITNET_VERDICT_PASS);
    assert_true(row_of(v, "add_f32.vague", 3)->max_error > 0);
    assert_true(row_of(v, "add_f32.vague", 3)->bound > 0.01);
    assert_int_equal(row_of(v, "warp.mine", 3)->verdict, BITNET_VERDICT_SKIP);
    assert_int_equal(row_of(v, "add_f32.scalar", 3)->verdict, BITNET_VERDICT_PASS);
    bitnet_validation_free(v);
    o.kernel = "layers.mine";
    FAILS(bitnet_validate(r, &o, &v, &err), BITNET_ARGUMENT,
          "'layers.mine' runs on cuda, not on cpu; choose that device");
    bitnet_runtime_close(r);
}

/* Right as long as sums fit into 16 bits. */
static void wrapping_linear(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                            size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    bnet_linear_i2s_scalar(w, n_blocks, n_rows, x, x_stride, x_sum, n_tokens, acc);
    for (size_t i = 0; i < n_tokens * n_rows; i++)
        acc[i] = (int16_t)(uint16_t)(uint32_t)acc[i];
}

/* Right for sums up to 18 bits, which random weights and activations never leave. */
static void saturating_linear(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                              size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    bnet_linear_i2s_scalar(w, n_blocks, n_rows, x, x_stride, x_sum, n_tokens, acc);
    for (size_t i = 0; i < n_tokens * n_rows; i++)
        acc[i] = BNET_MIN(acc[i], 1 << 18);
}

/* Right up to 2048 inputs. */
static void short_linear(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                         size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    bnet_linear_i2s_scalar(w, n_blocks, n_rows, x, x_stride, x_sum, n_tokens, acc);
    for (size_t i = 0; n_blocks > 16 && i < n_tokens * n_rows; i++)
        acc[i] -= x[i / n_rows * x_stride + 2048];
}

static size_t n_failed(const bitnet_validation *v, const char *kernel, uint64_t k, const char *note)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n_accuracy; i++) {
        const bitnet_accuracy *a = &v->accuracy[i];
        n += strcmp(a->kernel, kernel) == 0 && a->k == k && a->verdict == BITNET_VERDICT_FAIL &&
             strstr(a->note, note) != NULL;
    }
    return n;
}

/* Kernels that are wrong for the long rows of models alone, or for their largest sums. */
static void test_V_2_long_rows_and_large_sums(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        void (*fn)(const uint8_t *, size_t, size_t, const int8_t *, size_t, const int32_t *, size_t,
                   int32_t *);
        size_t n_failed;  /* rows of each long shape, of three */
        size_t n_extreme; /* of these, with extreme values */
    } rows[] = {
        {"linear_i2s.wrapping", wrapping_linear, 2, 2},
        {"linear_i2s.saturating", saturating_linear, 2, 2},
        {"linear_i2s.short", short_linear, 3, 2},
        {"linear_i2s.scalar", NULL, 0, 0},
    };
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_ACCURACY);
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.op = "linear";
    k.format = "i2s";
    k.dtype = "i8";
    k.tier = BITNET_TIER_REFERENCE;
    for (size_t i = 0; i < BNET_COUNT(rows) && rows[i].fn; i++) {
        k.id = rows[i].id;
        k.fn = (void (*)(void))rows[i].fn;
        OK(bitnet_kernel_register(r, &k, &err));
    }
    OK(bitnet_validate(r, &o, &v, &err));
    assert_false(v->success);
    for (size_t i = 0; i < BNET_COUNT(rows); i++)
        for (uint64_t width = 6912; width <= 8192; width += 1280) {
            size_t all = n_failed(v, rows[i].id, width, "");
            size_t extreme = n_failed(v, rows[i].id, width, "extreme values");
            if (all < rows[i].n_failed || extreme != rows[i].n_extreme ||
                n_failed(v, rows[i].id, 64, "") != 0)
                fail_msg("%s, k %llu: %zu rows fail, %zu with extreme values", rows[i].id,
                         (unsigned long long)width, all, extreme);
            if (!rows[i].fn)
                assert_int_equal(all, 0);
        }
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

/* ---- the reference itself, against double ---- */

static void bad_i2s(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                    size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    bnet_linear_i2s_scalar(w, n_blocks, n_rows, x, x_stride, x_sum, n_tokens, acc);
    acc[0] += 3;
}

static void bad_f16(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                    size_t n_tokens, float *y)
{
    bnet_linear_f16_scalar(row, x, x_stride, n_cols, n_tokens, y);
    y[0] *= 1.001f;
}

static void bad_norm(const float *x, const float *w, size_t n, float eps, float *y)
{
    bnet_rmsnorm_f32_scalar(x, w, n, 10 * eps, y);
    y[n - 1] *= 1.001f;
}

static void bad_embed(bnet_type type, const uint8_t *row, size_t n_cols, float *y)
{
    bnet_embed_row_scalar(type, row, n_cols, y);
    y[n_cols / 2] += 0.01f;
}

static float bad_quantize(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float scale = bnet_quantize_i8_scalar(x, n, stride, q, sum);
    q[n / 2] = (int8_t)(q[n / 2] > 0 ? q[n / 2] - 2 : q[n / 2] + 2);
    return scale;
}

static void bad_rope(float *x, const float *cs, size_t n_rot)
{
    bnet_rope_norm_scalar(x, cs, n_rot); /* of the other kind */
}

static void bad_glu(const float *gate, const float *up, size_t n, float *y)
{
    bnet_glu_relu2_scalar(gate, up, n, y);
}

static void bad_store(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    bnet_kv_store_f16_scalar(x, head_dim, pos ? pos : 1, part);
}

static void bad_attention(const bnet_attend *a)
{
    bnet_attend twice = *a;
    twice.scale *= 2;
    bnet_attention_i8_scalar(&twice);
}

static void judge_double(const bnet_kernel_record *k, bitnet_accuracy *a)
{
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    kernel_case c;
    const char *why;
    case_shape s = {3, 256, bnet_case_linear(k) ? 256 : 0};
    OK(bnet_pool_open(1, &pool, &err));
    OK(bnet_registry_open(&registry, &err));
    OK(bnet_registry_add(registry, k, &err));
    OK(bnet_backend_open_cpu(pool, registry, NULL, false, NULL, &be, &err));
    OK(bnet_case_open(be, k, s, CASE_RANDOM, &c, &why, &err));
    assert_null(why);
    OK(bnet_validate_double(&c, a, &err));
    bnet_case_close(&c);
    bnet_backend_close(be);
    bnet_registry_close(registry);
    bnet_pool_close(pool);
}

#define RECORD(op_, format_, dtype_, fn_)                                                          \
    {                                                                                              \
        .id = #op_ ".bad", .device = BNET_DEV_CPU, .op = BNET_OP_##op_,                            \
        .format = BNET_FORMAT_##format_, .dtype = BNET_DTYPE_##dtype_, .isa = "scalar",            \
        .tier = BITNET_TIER_EXTREMELY, .alignment = 1, .abi = BITNET_KERNEL_ABI,                   \
        .agreement = "exact", .outside = true, .fn = (bnet_kernel_fn)(fn_)                         \
    }

/* The arithmetic in double knows right from wrong, for every operation. */
static void test_V_2_the_reference_is_checked_in_double(void **state)
{
    (void)state;
    const struct {
        bnet_kernel_record bad;
        bnet_kernel_fn good;
    } rows[] = {
        {RECORD(LINEAR, I2S, I8, bad_i2s), (bnet_kernel_fn)bnet_linear_i2s_scalar},
        {RECORD(LINEAR, F16, F32, bad_f16), (bnet_kernel_fn)bnet_linear_f16_scalar},
        {RECORD(RMSNORM, F32, F32, bad_norm), (bnet_kernel_fn)bnet_rmsnorm_f32_scalar},
        {RECORD(EMBED, ROW, F32, bad_embed), (bnet_kernel_fn)bnet_embed_row_scalar},
        {RECORD(QUANTIZE, I8, F32, bad_quantize), (bnet_kernel_fn)bnet_quantize_i8_scalar},
        {RECORD(ROPE, NEOX, F32, bad_rope), (bnet_kernel_fn)bnet_rope_neox_scalar},
        {RECORD(GLU, SILU, F32, bad_glu), (bnet_kernel_fn)bnet_glu_silu_scalar},
        {RECORD(ADD, F32, F32, wrong_add), (bnet_kernel_fn)bnet_add_f32_scalar},
        {RECORD(KV_STORE, F16, F32, bad_store), (bnet_kernel_fn)bnet_kv_store_f16_scalar},
        {RECORD(ATTENTION, I8, F32, bad_attention), (bnet_kernel_fn)bnet_attention_i8_scalar},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_accuracy a = {0};
        bnet_kernel_record k = rows[i].bad;
        judge_double(&k, &a);
        if (a.verdict != BITNET_VERDICT_FAIL)
            fail_msg("%s: a wrong kernel passes, error %g, bound %g", k.id, a.max_error, a.bound);
        k.fn = rows[i].good;
        judge_double(&k, &a);
        if (a.verdict != BITNET_VERDICT_PASS)
            fail_msg("%s: the right kernel fails, error %g, bound %g", k.id, a.max_error, a.bound);
    }
}

/* ---- V-5 ---- */

static void test_V_5_golden_logits(void **state)
{
    (void)state;
    char buf[4096];
    const char *dir = shared_path("story-model/nano/golden", buf, sizeof buf);
    if (!dir)
        skip();
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_GOLDEN);
    o.golden_dir = dir;
    OK(bitnet_validate(r, &o, &v, &err));
    print_message("%llu positions, least cosine %.6f, %llu of %llu choices wrong\n",
                  (unsigned long long)v->golden.n_positions, v->golden.min_cosine,
                  (unsigned long long)v->golden.n_wrong, (unsigned long long)v->golden.n_argmax);
    assert_int_equal(v->golden.verdict, BITNET_VERDICT_PASS);
    assert_int_equal(v->golden.n_prompts, 9);
    assert_true(v->golden.n_positions > 100 && v->golden.n_argmax > 100);
    assert_true(v->golden.min_cosine >= 0.998 && v->golden.min_cosine < 1);
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

static void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void test_V_5_bad_golden_logits(void **state)
{
    (void)state;
    char dir[] = "/tmp/bitnet-golden-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    bitnet_validate_options o = quick_part(BITNET_VALIDATE_GOLDEN);
    o.golden_dir = dir;
    FAILS(bitnet_validate(r, &o, &v, &err), BITNET_IO, "golden.json");
    static const char *const bad[][2] = {
        {"nonsense", "golden.json"},
        {"[]", "a list of prompts"},
        {"[{\"ids\": [1]}]", "prompt 0: \"ids\" and the name"},
        {"[{\"ids\": [1], \"logits\": \"../x\"}]", "prompt 0: \"ids\" and the name"},
        {"[{\"ids\": [1], \"logits\": \"a.f32\", \"greedy\": [1]}]", "equally long"},
        {"[{\"ids\": [1, 2], \"logits\": \"a.f32\"}]", "ids times vocabulary"},
        {"[{\"ids\": [99999], \"logits\": \"a.f32\"}]", "outside the vocabulary"},
    };
    float *noise = calloc(512, sizeof *noise);
    for (int i = 0; i < 512; i++)
        noise[i] = (float)(i % 7) - 3;
    write_file(dir, "a.f32", noise, 512 * sizeof *noise);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(dir, "golden.json", bad[i][0], strlen(bad[i][0]));
        FAILS(bitnet_validate(r, &o, &v, &err), BITNET_ARGUMENT, bad[i][1]);
    }
    const char *other = "[{\"ids\": [1], \"logits\": \"a.f32\", \"greedy\": [511], "
                        "\"greedy_margin\": [9]}]";
    write_file(dir, "golden.json", other, strlen(other));
    OK(bitnet_validate(r, &o, &v, &err));
    assert_int_equal(v->golden.verdict, BITNET_VERDICT_FAIL);
    assert_int_equal(v->golden.n_wrong, 1);
    assert_false(v->success);
    assert_non_null(strstr(v->golden.note, "1 of 1 sure choices differ"));
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
    free(noise);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void test_V_5_F_3_through_the_bridge(void **state)
{
    (void)state;
    static const struct {
        const char *plugin;
        bitnet_verdict verdict;
        const char *note;
    } rows[] = {
        {PLUGIN("good"), BITNET_VERDICT_PASS, ""},
        {PLUGIN("wrong_matmul"), BITNET_VERDICT_FAIL, "matmul_i2s: the other implementation"},
        {PLUGIN("wrong_quantize"), BITNET_VERDICT_FAIL, "quantize: the other implementation"},
        {PLUGIN("wrong_linear"), BITNET_VERDICT_FAIL, "one_token: the other implementation"},
        {PLUGIN("fast"), BITNET_VERDICT_FAIL, "matmul_i2s: results match, but ours has"},
    };
    bitnet_runtime *r = open_runtime();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bitnet_validation *v = NULL;
        bitnet_validate_options o = quick_part(BITNET_VALIDATE_BRIDGE);
        OK(bitnet_bridge_open(rows[i].plugin, &o.bridge, &err));
        OK(bitnet_validate(r, &o, &v, &err));
        assert_int_equal(v->bridge.verdict, rows[i].verdict);
        assert_int_equal(v->success, rows[i].verdict == BITNET_VERDICT_PASS);
        assert_non_null(strstr(v->bridge.note, rows[i].note));
        assert_true(v->bridge.matmul.native_ns > 0 && v->bridge.many_tokens.native_ns > 0);
        assert_non_null(strstr(v->bridge.one_kernel, "i2s"));
        bitnet_validation_free(v);
        bitnet_bridge_close(o.bridge);
    }
    bitnet_runtime_close(r);
}

/* ---- requests ---- */

static bool stop_third(void *user)
{
    return ++*(int *)user >= 3;
}

static void test_requests(void **state)
{
    (void)state;
    bitnet_runtime *r = open_runtime();
    bitnet_validation *v = NULL;
    static const struct {
        const char *device, *against;
        bitnet_status status;
        const char *text;
    } rows[] = {
        {"metal", NULL, BITNET_NOT_COMPILED,
         "device: metal: Apple Metal is not supported by this version"},
        {"toaster", NULL, BITNET_ARGUMENT, "toaster"},
        {"cpu:mmx", NULL, BITNET_ARGUMENT, "mmx"},
        {"cpu", "cpu:mmx", BITNET_ARGUMENT, "mmx"},
        {"cpu", "metal", BITNET_NOT_COMPILED, "against"},
        {"cpu:0123456789012345678901234567890123456789", NULL, BITNET_ARGUMENT, "shorter"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bitnet_validate_options o = quick(false);
        o.device = rows[i].device;
        if (rows[i].against)
            o.against = rows[i].against;
        FAILS(bitnet_validate(r, &o, &v, &err), rows[i].status, rows[i].text);
    }
    FAILS(bitnet_validate(NULL, NULL, &v, &err), BITNET_ARGUMENT, "runtime");
    bitnet_validate_options o = quick(false);
    int polled = 0;
    o.cancel = stop_third;
    o.cancel_user = &polled;
    FAILS(bitnet_validate(r, &o, &v, &err), BITNET_CANCELLED, "cancelled");
    o = quick(false);
    o.model_path = "/nonexistent.gguf";
    FAILS(bitnet_validate(r, &o, &v, &err), BITNET_IO, "/nonexistent.gguf");
    assert_null(v);
    o = quick_part(BITNET_VALIDATE_BRIDGE);
    o.device = "cpu:scalar";
    OK(bitnet_validate(r, &o, &v, &err));
    assert_string_equal(v->device, "cpu:scalar");
    assert_string_equal(v->model.note, "was not asked for");
    assert_int_equal(v->n_accuracy, 0);
    assert_true(v->success);
    bitnet_validation_free(v);
    bitnet_runtime_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_V_1_to_4_a_sound_build_passes),
        cmocka_unit_test(test_V_3_times_are_consistent),
        cmocka_unit_test(test_V_4_a_leak_is_found),
        cmocka_unit_test(test_V_2_V_10_every_kernel_in_one_table),
        cmocka_unit_test(test_V_1_json),
        cmocka_unit_test(test_V_2_a_wrong_kernel_from_outside_is_named),
        cmocka_unit_test(test_V_2_every_registered_kernel_is_checked),
        cmocka_unit_test(test_V_2_long_rows_and_large_sums),
        cmocka_unit_test(test_V_2_the_reference_is_checked_in_double),
        cmocka_unit_test(test_V_5_golden_logits),
        cmocka_unit_test(test_V_5_bad_golden_logits),
        cmocka_unit_test(test_V_5_F_3_through_the_bridge),
        cmocka_unit_test(test_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
