/* test_kernel_registry.c - the registry as a program meets it: a kernel from outside serves a whole
 * model, a tuning cache changes what runs, the list as JSON, providers (BE-13, REG-2, REG-9,
 * REG-17, REG-20), all at once from eight threads. */
#include "unit/engine/nano.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "backend/cpu/kernels.h"
#include "base/file.h"
#include "bitnet_tools.h"
#include "format/codec.h"
#include "format/gguf.h"
#include "gpu/program_kernel.h"
#include "ops/open.h"

/* The public types are the ones the backend calls. */
#define SAME(name)                                                                                 \
    _Static_assert(_Generic((bnet_fn_##name *)0, bitnet_fn_##name * : 1, default : 0), #name)
SAME(ternary);
SAME(ternary_scaled);
SAME(linear);
SAME(rmsnorm);
SAME(quantize);
SAME(glu);
SAME(add);

enum { N_IDS = 24 };

static uint64_t calls_of(const bitnet_engine *e, const char *id)
{
    bitnet_kernel_use use[64];
    size_t n = bitnet_engine_kernels(e, use, 64);
    for (size_t i = 0; i < n; i++)
        if (strcmp(use[i].id, id) == 0)
            return use[i].n_calls;
    return 0;
}

/* Logits after a prompt and four single tokens, the caller frees them. */
static float *logits_of(const nano *n)
{
    bitnet_session *s = nano_session(n, 64, 0, BITNET_KV_F32);
    int32_t ids[N_IDS + 4];
    nano_ids(n, 5, ids, N_IDS + 4);
    OK(bitnet_session_append(s, ids, N_IDS, NULL, NULL, &err));
    assert_non_null(bitnet_session_logits(s)); /* the head runs where logits are asked for */
    for (int i = 0; i < 4; i++) {
        OK(bitnet_session_append(s, ids + N_IDS + i, 1, NULL, NULL, &err));
        assert_non_null(bitnet_session_logits(s));
    }
    float *out = malloc((size_t)n->n_vocab * sizeof *out);
    memcpy(out, bitnet_session_logits(s), (size_t)n->n_vocab * sizeof *out);
    bitnet_session_close(s);
    return out;
}

/* ---- a kernel from outside ---- */

/* The meaning, written anew: decodes every weight by the documented layout. */
static void toy_ternary(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                        size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    (void)x_sum;
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++) {
            int32_t sum = 0;
            for (size_t i = 0; i < 128 * n_blocks; i++) {
                uint8_t b = w[32 * (n_blocks * r + i / 128) + i % 32];
                sum += ((b >> (6 - 2 * (i % 128 / 32)) & 3) - 1) * x[t * x_stride + i];
            }
            acc[t * n_rows + r] = sum;
        }
}

static bitnet_kernel toy(const char *id)
{
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = id;
    k.op = "linear";
    k.format = "i2s";
    k.dtype = "i8";
    k.tier = BITNET_TIER_EXTREMELY;
    k.k.multiple = 128;
    k.fn = (void (*)(void))toy_ternary;
    return k;
}

static nano open_with(const bitnet_kernel *kernels, size_t n_kernels, const char *tuning)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.tuning_path = tuning;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    for (size_t i = 0; i < n_kernels; i++)
        OK(bitnet_kernel_register(n.runtime, &kernels[i], &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static void test_REG_9_kernel_from_outside_runs_a_model(void **state)
{
    (void)state;
    bitnet_kernel one = toy("linear_i2s.toy_one"), all = toy("linear_i2s.toy");
    one.m.max = 1; /* single tokens only; registered first, so it wins the tie there */
    const bitnet_kernel both[] = {one, all};
    nano plain = open_with(NULL, 0, NULL), other = open_with(both, 2, NULL);
    float *want = logits_of(&plain), *got = logits_of(&other);
    assert_same_logits(&plain, want, got, "a kernel from outside");
    assert_int_equal(calls_of(other.engine, "linear_i2s.toy_one"), 4 * 2 * 7); /* tokens, layers */
    assert_int_equal(calls_of(plain.engine, "linear_i2s.toy_one"), 0);
    /* of equal tier one from outside goes before the tree's own GEMM */
    assert_true(calls_of(other.engine, "linear_i2s.toy") > 0);
    assert_int_equal(calls_of(other.engine, "matmul_i2s.dotprod"), 0);
    assert_int_equal(calls_of(other.engine, "matmul_i2s.avx2"), 0);
    free(want);
    free(got);
    nano_close(&plain);
    nano_close(&other);
}

static void test_REG_9_registration_errors(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kernel k = toy("linear_i2s.toy");
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "linear_i2s.toy");
    FAILS(bitnet_kernel_register(n.runtime, NULL, &err), BITNET_ARGUMENT, "NULL");
    k = toy("a");
    k.isa = "avx9000";
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "avx9000");
    k = toy("b");
    k.abi = 99;
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "ABI 99");
    k = toy("c");
    k.fn = NULL;
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "fn");
    k = toy("d");
    k.struct_size = 3;
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "struct_size");
    k = toy(NULL);
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "id");
    k = toy("e");
    k.device = "quantum\n";
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "device 'quantum\\x0a'");
    k.device = "vulkan";
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_NOT_COMPILED, "Vulkan");
    k.device = "host";
    k.format = "i2s_b256";
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "no kernel type for host");
#ifdef BITNET_HAVE_CUDA
    k = program_kernel("f", "cuda");
    k.isa = "sm_12";
    FAILS(bitnet_kernel_register(n.runtime, &k, &err), BITNET_ARGUMENT, "isa 'sm_12'");
    k.isa = "sm_80";
    OK(bitnet_kernel_register(n.runtime, &k, &err));
#endif
    nano_close(&n);
}

static void test_REG_9_wrong_fields_are_refused(void **state)
{
    (void)state;
    static char long_id[] = "a23456789.b23456789.c23456789.d23456789.e23456789.f23456789.g23456789."
                            "h23456789.i23456789.j23456789.k23456789.l23456789.m23456789";
    const struct {
        const char *id, *op, *format, *dtype, *agreement, *says; /* says NULL: taken */
        bitnet_dim_rule m, k;
    } rows[] = {
        {"a", "warp", "f32", "f32", "exact", "op 'warp'", {0}, {0}},
        {"a", "linear", "i2s", "f32", "exact", "dtype 'f32'", {0}, {0}},
        {"a", "linear", "q9\x1b[2J", "f32", "exact", "format 'q9\\x1b[2J'", {0}, {0}},
        {"a", "add", "q4_k", "f32", "exact", "no kernel type", {0}, {0}},
        /* keys that rows of the tree have, but no type of the header */
        {"a", "linear", "i2s_r16", "i8", "exact", "no kernel type", {0}, {0}},
        {"a", "linear", "tl1", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "linear", "tq2_0", "i8", "exact", "no kernel type", {0}, {0}},
        {"a", "linear", "q4_k", "i8", "exact", "no kernel type", {0}, {0}},
        {"tl2", "linear", "tl2", "i8", "exact", NULL, {0}, {0}},
        {"a", "linear", "q6_k_r4", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "linear", "fallback", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "linear", "fallback", "i8", "exact", "no kernel type", {0}, {0}},
        {"a", "norm_quantize", "i8", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "attention", "f16", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "head_scan", "f16", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "kv_store", "f16", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "rope", "neox", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "embed", "row", "f32", "exact", "no kernel type", {0}, {0}},
        {"a", "add", "f32", "f32", "roughly", "agreement 'roughly'", {0}, {0}},
        {"a", "add", "f32", "f32", "close(1025 ulp)", "1 to 1024", {0}, {0}},
        {"a", "add", "f32", "f32", "close(99999999999999 ulp)", "1 to 1024", {0}, {0}},
        {"a", "add", "f32", "f32", "close(0 ulp)", "close(0 ulp)", {0}, {0}},
        {"a", "add", "f32", "f32", "close( ulp)", "close( ulp)", {0}, {0}},
        {"a", "add", "f32", "f32", "close(4 ulp) or so", "or so", {0}, {0}},
        {"a", "add", "f32", "f32", "exact", "op linear alone", {1, 1, 1}, {0}},
        {"a", "add", "f32", "f32", "exact", "op linear alone", {0}, {0, 0, 32}},
        {"a\n\x1b[31m", "add", "f32", "f32", "exact", "a\\x0a\\x1b[31m", {0}, {0}},
        {"a b", "add", "f32", "f32", "exact", "letters", {0}, {0}},
        {"add.Mocked", "add", "f32", "f32", "exact", "'mock'", {0}, {0}},
        {long_id, "add", "f32", "f32", "exact", "129 characters", {0}, {0}},
        {long_id + 1, "add", "f32", "f32", "close(1024 ulp)", NULL, {1, 0, 1}, {0}},
        {"A-z_0.9:x", "linear", "iq4_nl", "f32", "close(1 ulp)", NULL, {1, 4, 1}, {32, 0, 32}},
    };
    nano n = nano_open(1);
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_kernel k = toy(rows[i].id);
        bitnet_error e = {0};
        k.op = rows[i].op, k.format = rows[i].format, k.dtype = rows[i].dtype;
        k.agreement = rows[i].agreement;
        k.m = rows[i].m, k.k = rows[i].k;
        bitnet_status st = bitnet_kernel_register(n.runtime, &k, &e);
        if (st != (rows[i].says ? BITNET_ARGUMENT : BITNET_OK) ||
            (rows[i].says && !strstr(e.message, rows[i].says)))
            fail_msg("row %zu: status %d, \"%s\"", i, (int)st, e.message);
    }
    nano_close(&n);
}

/* ---- a format that only a program reads ---- */

/* The nano model whose ternary matrices say that they are TL1, in memory the caller frees: as many
 * bytes, whose meaning is the kernel's affair. */
static char *nano_as_tl1(size_t *n_bytes)
{
    char *file;
    const bnet_tensor *t;
    bnet_gguf *g;
    OK(bnet_read_file(NANO_PATH, 1 << 24, &file, n_bytes, &err));
    OK(bnet_gguf_open_memory(file, *n_bytes, "nano", NULL, &g, &err));
    for (size_t i = 0; (t = bnet_gguf_tensor_at(g, i)) != NULL; i++) {
        size_t n = strlen(t->name), at = 0;
        uint32_t type = BNET_TL1;
        while (t->type == BNET_I2_S && memcmp(file + at, t->name, n) != 0)
            at++;
        if (t->type == BNET_I2_S) /* n_dims, two dims, then the type */
            memcpy(file + at + n + 4 + 2 * 8, &type, sizeof type);
    }
    bnet_gguf_close(g);
    return file;
}

/* Bytes of I2_S, with the scale behind them. */
static void toy_matrix(const bitnet_matrix *w, size_t first, size_t n_rows, const int8_t *x,
                       size_t x_stride, const float *x_scale, size_t n_tokens, float *y,
                       size_t y_stride)
{
    size_t n_blocks = w->n_in / 128;
    int32_t acc[16 * 32];
    float scale;
    assert_true(first % 32 == 0 && n_rows <= 32 && n_tokens <= 16 && w->scale == 1);
    assert_int_equal(w->n_bytes, w->n_out * w->n_in / 4 + 32);
    memcpy(&scale, (const char *)w->data + w->n_out * w->n_in / 4, sizeof scale);
    toy_ternary((const uint8_t *)w->data + first * 32 * n_blocks, n_blocks, n_rows, x, x_stride,
                NULL, n_tokens, acc);
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++)
            y[t * y_stride + r] = (float)acc[t * n_rows + r] * (x_scale[t] * scale);
}

static void test_REG_9_a_new_format(void **state)
{
    (void)state;
    size_t n_bytes;
    char *file = nano_as_tl1(&n_bytes);
    nano plain = nano_open(2), odd = {0};
    bitnet_runtime_options o;
    const char *id = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.device = "cpu";
    OK(bitnet_runtime_open(&o, &odd.runtime, &err));
    FAILS(bitnet_engine_open_memory(odd.runtime, file, n_bytes, NULL, &odd.engine, &err),
          BITNET_MODEL, "UnsupportedKernelConfiguration{device: cpu, qtype: tl1");
    assert_false(bitnet_runtime_has_kernel(odd.runtime, "cpu", "linear", "tl1", "i8"));
    bitnet_kernel k = toy("linear_tl1.mine");
    k.format = "tl1";
    k.k.multiple = 1;
    k.m.max = 20; /* a prompt of 24 tokens comes in halves */
    k.fn = (void (*)(void))toy_matrix;
    OK(bitnet_kernel_register(odd.runtime, &k, &err));
    assert_true(bitnet_runtime_has_kernel(odd.runtime, "cpu", "linear", "tl1", "i8"));
    const bitnet_kernel_query q = {.op = "linear", .format = "tl1", .dtype = "i8", .m = 24};
    OK(bitnet_runtime_select(odd.runtime, &q, &id, &err));
    assert_string_equal(id, "linear_tl1.mine");
    OK(bitnet_engine_open_memory(odd.runtime, file, n_bytes, NULL, &odd.engine, &err));
    odd.n_vocab = plain.n_vocab;
    float *want = logits_of(&plain), *got = logits_of(&odd);
    assert_same_logits(&plain, want, got, "a format of a program");
    assert_int_equal(calls_of(odd.engine, "linear_tl1.mine"), (4 + 2) * 2 * 7);
    free(want);
    free(got);
    nano_close(&plain);
    nano_close(&odd);
    bnet_free(file);
}

static void test_REG_9_a_kernel_for_another_device(void **state)
{
    (void)state;
    nano n = {0}, later = {0};
    bitnet_runtime_options o;
    const bitnet_kernel_query q = {.op = "linear", .format = "i2s", .dtype = "i8", .m = 1};
    const char *id = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.device = "host";
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    bitnet_kernel k = program_kernel("linear_i2s.mine", "host");
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
    assert_string_equal(id, "linear_i2s.mine");
    later.runtime = n.runtime;
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &later.engine, &err));
    later.n_vocab = n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    float *want = logits_of(&n), *got = logits_of(&later);
    assert_same_logits(&n, want, got, "a kernel of a program");
    assert_int_equal(calls_of(n.engine, "linear_i2s.mine"), 0); /* it was open before */
    assert_int_equal(calls_of(later.engine, "linear_i2s.mine"), 5 * 2 * 7);
    assert_int_equal(calls_of(later.engine, "i2s_host_ref"), 0);
    free(want);
    free(got);
    program_fails = 1; /* a step that fails is repeated on the CPU, or is an error */
    bitnet_session *s = nano_session(&later, 64, 0, BITNET_KV_F32);
    int32_t ids[4];
    nano_ids(&later, 5, ids, 4);
    bitnet_error e = {0};
    assert_int_equal(bitnet_session_append(s, ids, 4, NULL, NULL, &e), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(e.message, "linear_i2s.mine"));
    bitnet_session_close(s);
    program_fails = 0;
    bitnet_engine_close(later.engine);
    nano_close(&n);
}

static bool is_row_of(const char *id, const char *op, const char *format)
{
    bitnet_kernel_info k;
    for (int i = 0; bitnet_kernel_at(i, &k); i++)
        if (strcmp(k.id, id) == 0)
            return strcmp(k.op, op) == 0 && strcmp(k.format, format) == 0;
    return false;
}

static void test_REG_10_15_questions(void **state)
{
    (void)state;
    nano n = nano_open(1);
    const char *id = NULL;
    assert_true(bitnet_runtime_has_kernel(n.runtime, NULL, "linear", "i2s", "i8"));
    assert_false(bitnet_runtime_has_kernel(n.runtime, NULL, "linear", "unknown", "i8"));
    assert_false(bitnet_runtime_has_kernel(n.runtime, NULL, "linear", "i2s", "f16"));
    assert_false(bitnet_runtime_has_kernel(n.runtime, NULL, NULL, NULL, NULL));
    bitnet_kernel_query q = {.op = "linear", .format = "i2s", .dtype = "i8", .m = 1, .k = 256};
    OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
    assert_true(is_row_of(id, "linear", "i2s") || is_row_of(id, "linear", "i2s_r16"));
    q.no_pack = true;
    OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
    assert_true(is_row_of(id, "linear", "i2s"));
    q.device = "cpu";
    OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
    q.device = "quantum";
    FAILS(bitnet_runtime_select(n.runtime, &q, &id, &err), BITNET_ARGUMENT, "quantum");
    assert_false(bitnet_runtime_has_kernel(n.runtime, "quantum", "linear", "i2s", "i8"));
    q.device = "host"; /* part of every build */
    OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
    assert_string_equal(id, "i2s_host_ref");
    assert_true(bitnet_runtime_has_kernel(n.runtime, "host", "linear", "i2s", "i8"));
    assert_false(bitnet_runtime_has_kernel(n.runtime, "host", "linear", "i2s_r16", "i8"));
    q.device = NULL;
    q.priority = BITNET_PRIORITY_REFERENCE;
    OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
    assert_string_equal(id, "linear_i2s.scalar");
    q.k = 100;
    FAILS(bitnet_runtime_select(n.runtime, &q, &id, &err), BITNET_NOT_AVAILABLE,
          "linear_i2s.scalar: K = 100 is below its minimum 128");
    q.format = "unknown";
    FAILS(bitnet_runtime_select(n.runtime, &q, &id, &err), BITNET_NOT_AVAILABLE,
          "UnsupportedKernelConfiguration{device: cpu, qtype: unknown, operation: linear}");
    q.op = NULL;
    FAILS(bitnet_runtime_select(n.runtime, &q, &id, &err), BITNET_ARGUMENT, "NULL");
    nano_close(&n);
}

/* ---- the list ---- */

static json_t *list_of(const bitnet_runtime *r, const bitnet_kernel_query *q)
{
    size_t n = 0, again = 0;
    bitnet_error e = {0};
    assert_int_equal(bitnet_kernels_json(r, q, NULL, 0, &n, &e), BITNET_ARGUMENT);
    assert_true(n > 2);
    char *text = malloc(n);
    OK(bitnet_kernels_json(r, q, text, n, &again, &err));
    assert_int_equal(again, n);
    json_error_t je;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        fail_msg("line %d: %s", je.line, je.text);
    free(text);
    return root;
}

static void test_REG_5_list_has_every_field(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kernel k = toy("Odd-name_1:x");
    k.m = (bitnet_dim_rule){2, 8, 2};
    k.temp_bytes = 512;
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    json_t *root = list_of(n.runtime, NULL), *rows = json_object_get(root, "kernels");
    bitnet_kernel_info info;
    size_t compiled = 0, of_cpu = 0;
    while (bitnet_kernel_at((int)compiled, &info))
        compiled++;
    for (size_t i = 0; i < json_array_size(rows); i++)
        of_cpu += strcmp(json_string_value(json_object_get(json_array_get(rows, i), "device")),
                         "cpu") == 0;
    assert_int_equal(of_cpu, compiled + 1);
    static const char *const fields[] = {
        "id",         "device",    "op",          "format",   "dtype",     "isa", "tier",
        "temp_bytes", "alignment", "constraints", "requires", "agreement", "abi", "available"};
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t f = 0; f < BNET_COUNT(fields); f++)
            if (!json_object_get(json_array_get(rows, i), fields[f]))
                fail_msg("kernel %zu has no %s", i, fields[f]);
    json_t *mine = json_array_get(rows, json_array_size(rows) - 1);
    assert_string_equal(json_string_value(json_object_get(mine, "id")), "Odd-name_1:x");
    assert_string_equal(json_string_value(json_object_get(mine, "tier")), "extremely");
    assert_int_equal(json_integer_value(json_object_get(mine, "temp_bytes")), 512);
    json_t *m = json_object_get(json_object_get(mine, "constraints"), "m");
    assert_int_equal(json_integer_value(json_object_get(m, "max")), 8);
    assert_int_equal(json_integer_value(json_object_get(m, "multiple")), 2);
    json_decref(root);
    nano_close(&n);
}

static void test_REG_14_list_judges_a_query(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kernel k = toy("linear_i2s.narrow");
    k.m = (bitnet_dim_rule){2, 8, 2};
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    bitnet_kernel_query q = {
        .op = "linear", .format = "i2s", .m = 9, .n = 64, .k = 256, .no_pack = true};
    json_t *root = list_of(n.runtime, &q), *rows = json_object_get(root, "kernels");
    int n_selected = 0, n_mine = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *veto = json_string_value(json_object_get(row, "veto"));
        assert_string_equal(json_string_value(json_object_get(row, "format")), "i2s");
        n_selected += json_is_true(json_object_get(row, "selected"));
        if (strcmp(json_string_value(json_object_get(row, "id")), "linear_i2s.narrow") == 0) {
            assert_string_equal(veto, "M = 9 is above its maximum 8");
            n_mine++;
        }
    }
    assert_int_equal(n_selected, 1);
    assert_int_equal(n_mine, 1);
    json_decref(root);
    nano_close(&n);
}

/* ---- the answer is what runs ---- */

typedef struct id_set {
    const char *id[64];
    size_t n;
} id_set;

static void put(id_set *s, const char *id)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->id[i], id) == 0)
            return;
    assert_true(s->n < BNET_COUNT(s->id));
    s->id[s->n++] = id;
}

/* The kernels of matrices that computed something. */
static id_set that_ran(const bitnet_engine *e, const char *op)
{
    id_set s = {.n = 0};
    bitnet_kernel_use use[64];
    size_t n = bitnet_engine_kernels(e, use, 64);
    for (size_t i = 0; i < n; i++) {
        const bnet_kernel_record *row = bnet_kernel_row_find(use[i].id); /* NULL: from outside */
        if (!row || row->op == bnet_op_find(op))
            put(&s, use[i].id);
    }
    return s;
}

/* What the registry answers for the model's matrices: ternary ones with one token and with a
 * prompt, the head for single rows. */
static id_set answers(const bitnet_runtime *r, const bitnet_engine *e, bool no_pack)
{
    id_set s = {.n = 0};
    bitnet_kernel_query shapes[32];
    size_t n = bitnet_engine_shapes(e, shapes, 32);
    for (size_t i = 0; i < n; i++)
        for (int many = 0; many < 2; many++) {
            bitnet_kernel_query *q = &shapes[i];
            const char *id = NULL;
            bool ternary = strcmp(q->dtype, "i8") == 0;
            if (ternary)
                q->format = "i2_s"; /* as the file has it */
            q->m = many && ternary ? N_IDS : 1;
            q->no_pack = no_pack;
            q->head = !ternary;
            OK(bitnet_runtime_select(r, q, &id, &err));
            put(&s, id);
        }
    return s;
}

static void must_be_same(const id_set *ran, const id_set *told, const char *what)
{
    for (size_t i = 0; i < ran->n + told->n; i++) {
        const char *id = i < ran->n ? ran->id[i] : told->id[i - ran->n];
        bool both[2] = {false, false};
        for (size_t k = 0; k < ran->n; k++)
            both[0] = both[0] || strcmp(ran->id[k], id) == 0;
        for (size_t k = 0; k < told->n; k++)
            both[1] = both[1] || strcmp(told->id[k], id) == 0;
        if (!both[0] || !both[1])
            fail_msg("%s: %s %s", what, id, both[0] ? "ran, and is no answer" : "did not run");
    }
}

static void compare_answers(const char *isa, const char *device, bool no_pack,
                            const bitnet_kernel *mine)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_engine_options eo;
    char what[96];
    bitnet_runtime_options_init(&o);
    bitnet_engine_options_init(&eo);
    o.n_threads = 2;
    o.isa = isa;
    o.device = device;
    eo.no_pack = no_pack;
    if (bitnet_runtime_open(&o, &n.runtime, NULL) != BITNET_OK)
        return; /* not a set of this CPU */
    if (mine)
        OK(bitnet_kernel_register(n.runtime, mine, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &eo, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    free(logits_of(&n));
    id_set ran = that_ran(n.engine, "linear"), told = answers(n.runtime, n.engine, no_pack);
    snprintf(what, sizeof what, "isa %s on %s%s%s", isa ? isa : "best", device,
             no_pack ? ", not packed" : "", mine ? ", a kernel from outside" : "");
    assert_true(ran.n >= 2);
    must_be_same(&ran, &told, what);
    nano_close(&n);
}

static void test_REG_14_answer_is_the_kernel_that_runs(void **state)
{
    (void)state;
    bitnet_kernel k = toy("linear_i2s.some");
    k.m.max = 16; /* of 24 tokens it takes two halves */
    for (int i = 0; bnet_cpu_isa_at(i); i++)
        for (int no_pack = 0; no_pack < 2; no_pack++)
            compare_answers(bnet_cpu_isa_at(i), "cpu", no_pack, NULL);
    compare_answers(NULL, "cpu", false, NULL);
    compare_answers("scalar", "cpu", true, &k);
    compare_answers(NULL, "host", false, NULL);
}

static void test_BE_13_provider_name(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_provider_info p;
    const char *active = bitnet_runtime_provider(n.runtime), *best = NULL;
    int last = 0;
    for (int i = 0; bitnet_provider_at(n.runtime, i, &p); i++) {
        assert_true(p.priority >= last);
        last = p.priority;
        if (!best && p.available)
            best = p.name;
        assert_true(p.available || strcmp(p.name, "fallback") != 0);
        assert_true(!p.available || strcmp(p.device, "cpu") == 0); /* this build computes there */
    }
    assert_int_equal(last, 8);
    assert_string_equal(active, best);
    assert_ptr_equal(bitnet_runtime_provider(n.runtime), active);
    assert_false(bitnet_provider_at(n.runtime, -1, &p));
    /* the kernel that runs is the provider's */
    float *l = logits_of(&n);
    char id[64];
    bool rows = strcmp(active, "neon") == 0 || strcmp(active, "fallback") == 0;
    snprintf(id, sizeof id, "%s.%s", rows ? "linear_i2s" : "gemm_i2s_r16",
             strcmp(active, "fallback") ? active : "scalar");
    assert_true(calls_of(n.engine, id) > 0);
    free(l);
    nano_close(&n);
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.isa = "scalar";
    bitnet_runtime *r;
    OK(bitnet_runtime_open(&o, &r, &err));
    assert_string_equal(bitnet_runtime_provider(r), "fallback");
    bitnet_runtime_close(r);
}

/* ---- tuning ---- */

typedef struct medians {
    int n, n_best;
    double worst;
} medians;

static void on_median(void *user, const bitnet_tune_result *r)
{
    medians *m = user;
    m->n++;
    m->n_best += r->best;
    assert_true(r->median_ms >= 0);
    assert_non_null(r->kernel);
}

static void tuning_path(char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/tuning-%d.json", TEST_BINARY_DIR, (int)getpid());
    unlink(buf);
}

/* Measures the nano model's shapes and writes the cache. Returns how many choices there are. */
static size_t tune_nano(const char *path)
{
    nano n = nano_open(2);
    bitnet_kernel_query shapes[64];
    size_t n_shapes = bitnet_engine_shapes(n.engine, shapes, 32);
    assert_true(n_shapes >= 5 && n_shapes <= 32); /* 256x256, 128x256, 512x256, 256x512, head */
    for (size_t i = 0; i < n_shapes; i++) {
        shapes[n_shapes + i] = shapes[i];
        shapes[i].m = 1;
        shapes[n_shapes + i].m = N_IDS;
    }
    medians m = {0};
    OK(bitnet_runtime_tune(n.runtime, shapes, 2 * n_shapes, 3, path, on_median, &m, &err));
    assert_int_equal(m.n_best, 2 * n_shapes);
    assert_true(m.n >= m.n_best);
    nano_close(&n);
    return 2 * n_shapes;
}

static char *read_text(const char *path, size_t *n)
{
    char *text;
    OK(bnet_read_file(path, 1 << 20, &text, n, &err));
    return text;
}

/* Every ternary choice of the file becomes the scalar kernel; "key" becomes another machine's if
 * `foreign`. */
static void rewrite(const char *path, bool foreign)
{
    json_error_t je;
    json_t *root = json_load_file(path, 0, &je), *choices = json_object_get(root, "choices");
    for (size_t i = 0; i < json_array_size(choices); i++) {
        json_t *c = json_array_get(choices, i);
        const char *format = json_string_value(json_object_get(c, "format"));
        if (strcmp(format, "i2s") == 0)
            json_object_set_new(c, "kernel", json_string("linear_i2s.scalar"));
        if (strcmp(format, "i2s_r16") == 0)
            json_object_set_new(c, "kernel", json_string("linear_i2s_r16.scalar"));
    }
    if (foreign)
        json_object_set_new(root, "key", json_string("another machine"));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

static void test_REG_20_cache_changes_the_kernel_that_runs(void **state)
{
    (void)state;
    char path[256];
    tuning_path(path, sizeof path);
    size_t n_choices = tune_nano(path), n;
    char *text = read_text(path, &n);
    assert_non_null(strstr(text, BITNET_VERSION));
    bnet_free(text);
    nano plain = open_with(NULL, 0, NULL), measured = open_with(NULL, 0, path);
    json_t *list = list_of(measured.runtime, NULL);
    assert_int_equal(json_integer_value(json_object_get(list, "choices")), n_choices);
    json_decref(list);
    float *want = logits_of(&plain), *got = logits_of(&measured);
    assert_same_logits(&plain, want, got, "with a tuning cache");
    free(got);
    nano_close(&measured);
    rewrite(path, false);
    nano scalar = open_with(NULL, 0, path);
    got = logits_of(&scalar);
    assert_same_logits(&plain, want, got, "with a cache that says scalar");
    assert_true(calls_of(scalar.engine, "linear_i2s.scalar") +
                    calls_of(scalar.engine, "linear_i2s_r16.scalar") >=
                5 * 2 * 7);
    free(got);
    nano_close(&scalar);
    rewrite(path, true);
    nano foreign = open_with(NULL, 0, path); /* ignored: the same kernels as without a cache */
    got = logits_of(&foreign);
    bitnet_kernel_use a[64], b[64];
    size_t n_a = bitnet_engine_kernels(plain.engine, a, 64);
    assert_int_equal(bitnet_engine_kernels(foreign.engine, b, 64), n_a);
    for (size_t i = 0; i < n_a; i++)
        assert_string_equal(a[i].id, b[i].id);
    free(got);
    free(want);
    nano_close(&foreign);
    nano_close(&plain);
    unlink(path);
}

static void test_REG_20_tune_errors(void **state)
{
    (void)state;
    char path[256];
    tuning_path(path, sizeof path);
    nano n = nano_open(1);
    bitnet_kernel_query q = {
        .op = "linear", .format = "i2s", .dtype = "i8", .m = 1, .n = 8, .k = 0};
    FAILS(bitnet_runtime_tune(n.runtime, &q, 1, 1, path, NULL, NULL, &err), BITNET_ARGUMENT, "k 0");
    q.k = 256;
    q.m = 1 << 23, q.n = 1 << 23;
    FAILS(bitnet_runtime_tune(n.runtime, &q, 1, 1, path, NULL, NULL, &err), BITNET_ARGUMENT,
          "can be made");
    q = (bitnet_kernel_query){.op = "add", .format = "f32", .dtype = "f32", .m = 1, .n = 1, .k = 1};
    FAILS(bitnet_runtime_tune(n.runtime, &q, 1, 1, path, NULL, NULL, &err), BITNET_ARGUMENT,
          "only linear");
    q.op = "nothing";
    FAILS(bitnet_runtime_tune(n.runtime, &q, 1, 1, path, NULL, NULL, &err), BITNET_NOT_AVAILABLE,
          "nothing");
    FAILS(bitnet_runtime_tune(n.runtime, NULL, 0, -1, path, NULL, NULL, &err), BITNET_ARGUMENT,
          "n_repeats");
    assert_true(access(path, F_OK) != 0); /* nothing was written */
    static const char *const formats[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q6_k"};
    for (size_t i = 0; i < BNET_COUNT(formats); i++) {
        q = (bitnet_kernel_query){
            .op = "linear", .format = formats[i], .dtype = "f32", .m = 3, .n = 8, .k = 256};
        OK(bitnet_runtime_tune(n.runtime, &q, 1, 1, NULL, NULL, NULL, &err));
    }
    nano_close(&n);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"key\":", f);
    fclose(f);
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.tuning_path = path;
    bitnet_runtime *r = NULL;
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT, path);
    unlink(path);
}

/* ---- refining ---- */

static atomic_int n_slow; /* rows computed by the slow kernel */

/* The scalar kernel's bits, a thousand times as slow. */
static void slow_f16(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                     size_t n_tokens, float *y)
{
    for (int i = 0; i < 30; i++)
        bnet_linear_f16_scalar(row, x, x_stride, n_cols, n_tokens, y);
    atomic_fetch_add(&n_slow, 1);
}

static nano open_refining(bool refine)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_kernel k = toy("linear_f16.slow");
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.device = "cpu";
    o.refine = refine;
    k.format = "f16", k.dtype = "f32";
    k.k.multiple = 1;
    k.fn = (void (*)(void))slow_f16;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static void test_REG_20_real_timings_refine_the_choice(void **state)
{
    (void)state;
    const bitnet_kernel_query head = {
        .op = "linear", .format = "f16", .dtype = "f32", .m = 1, .n = 512, .k = 256};
    bitnet_kernel_query q = head;
    bitnet_kernel_query shapes[32];
    nano plain = nano_open(1);
    float *want = logits_of(&plain);
    for (int refine = 0; refine < 2; refine++) {
        nano n = open_refining(refine);
        const char *id = NULL;
        size_t n_shapes = bitnet_engine_shapes(n.engine, shapes, 32);
        for (size_t i = 0; i < n_shapes; i++)
            if (strcmp(shapes[i].format, "f16") == 0)
                q.n = shapes[i].n, q.k = shapes[i].k;
        OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
        assert_string_equal(id, "linear_f16.slow"); /* by its tier */
        for (int i = 0; i < 8; i++) {               /* 5 heads each: all have had their turns */
            float *got = logits_of(&n);
            assert_same_logits(&n, want, got, "while kernels take turns");
            free(got);
        }
        int before = atomic_load(&n_slow);
        assert_true(before > 0);
        free(logits_of(&n));
        OK(bitnet_runtime_select(n.runtime, &q, &id, &err));
        if (refine && strcmp(bitnet_runtime_provider(n.runtime), "fallback") != 0) {
            assert_int_equal(atomic_load(&n_slow), before);
            assert_string_not_equal(id, "linear_f16.slow");
        } else {
            assert_true(atomic_load(&n_slow) > before);
            assert_string_equal(id, "linear_f16.slow");
        }
        nano_close(&n);
    }
    free(want);
    nano_close(&plain);
}

/* ---- the fallback through a model ---- */

static const int8_t iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

/* 32 floats into an IQ4_NL block, nearest value by search. */
static void iq4_nl_encode(const float *x, uint8_t *b)
{
    float most = 1e-8f;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float d = most / 113.0f;
    uint16_t h = bnet_f32_to_f16(d);
    memcpy(b, &h, 2);
    memset(b + 2, 0, 16);
    for (int i = 0; i < 32; i++) {
        int best = 0;
        for (int c = 1; c < 16; c++)
            if (fabsf(x[i] - d * iq4_nl_values[c]) < fabsf(x[i] - d * iq4_nl_values[best]))
                best = c;
        b[2 + i % 16] |= (uint8_t)(best << (i < 16 ? 0 : 4));
    }
}

/* The nano model with its F16 embedding (and head) as IQ4_NL, in memory the caller frees. */
static char *nano_with_iq4_nl(size_t *n_bytes)
{
    static const char name[] = "token_embd.weight";
    char *file;
    OK(bnet_read_file(NANO_PATH, 1 << 24, &file, n_bytes, &err));
    bnet_gguf *g;
    OK(bnet_gguf_open_memory(file, *n_bytes, "nano", NULL, &g, &err));
    const bnet_tensor *t = bnet_gguf_tensor(g, name);
    assert_true(t && t->type == BNET_F16 && t->ne[0] % 32 == 0);
    size_t n = (size_t)bnet_tensor_elems(t), at = 0;
    uint8_t *data = (uint8_t *)file + (t->data - (const uint8_t *)file);
    float *x = malloc(n * sizeof *x);
    assert_true(bnet_decode_row(BNET_F16, data, x, n));
    for (size_t i = 0; i < n / 32; i++)
        iq4_nl_encode(x + 32 * i, data + 18 * i);
    while (memcmp(file + at, name, sizeof name - 1) != 0)
        at++;
    at += sizeof name - 1 + 4 + 2 * 8; /* n_dims, two dims, then the type */
    uint32_t type = BNET_IQ4_NL;
    memcpy(file + at, &type, sizeof type);
    bnet_gguf_close(g);
    free(x);
    return file;
}

typedef struct warnings {
    int n;
    char last[512];
} warnings;

static void on_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    warnings *w = user;
    if (level == BITNET_LOG_WARN && strcmp(module, "cpu") == 0 && ++w->n)
        snprintf(w->last, sizeof w->last, "%s", message);
}

static double cosine(const float *a, const float *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static void test_REG_17_model_with_a_type_without_kernel(void **state)
{
    (void)state;
    nano plain = nano_open(2), odd = {0};
    size_t n_bytes;
    char *file = nano_with_iq4_nl(&n_bytes);
    warnings w = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.log = on_log;
    o.log_user = &w;
    OK(bitnet_runtime_open(&o, &odd.runtime, &err));
    OK(bitnet_engine_open_memory(odd.runtime, file, n_bytes, NULL, &odd.engine, &err));
    odd.n_vocab = plain.n_vocab;
    assert_int_equal(w.n, 1);
    assert_non_null(strstr(w.last, "IQ4_NL"));
    assert_non_null(strstr(w.last, "device cpu"));
    float *want = logits_of(&plain), *got = logits_of(&odd);
    double c = cosine(want, got, plain.n_vocab);
    print_message("cosine of the logits, F16 against IQ4_NL embedding: %.5f\n", c);
    assert_true(c > 0.95);
    assert_int_equal(bitnet_engine_fallbacks(plain.engine), 0);
    assert_int_equal(bitnet_engine_fallbacks(odd.engine), 5); /* heads computed */
    assert_int_equal(calls_of(odd.engine, "linear_fallback.scalar"), 5);
    assert_string_equal(bitnet_engine_model(odd.engine)->head_type, "IQ4_NL");
    nano_close(&odd);
    o.strict = true;
    bitnet_engine *e = NULL;
    bitnet_runtime *r = NULL;
    OK(bitnet_runtime_open(&o, &r, &err));
    FAILS(bitnet_engine_open_memory(r, file, n_bytes, NULL, &e, &err), BITNET_MODEL,
          "UnsupportedKernelConfiguration{device: cpu, qtype: iq4_nl, operation: linear}");
    OK(bitnet_engine_open(r, NANO_PATH, NULL, &e, &err)); /* nothing to complain about here */
    bitnet_engine_close(e);
    bitnet_runtime_close(r);
    free(want);
    free(got);
    bnet_free(file);
    nano_close(&plain);
}

/* ---- all at once ---- */

typedef struct worker {
    const nano *n;
    int thread;
    const float *want;
    atomic_int *n_failed;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int round = 0; round < 6; round++) {
        char id[32];
        const char *chosen;
        snprintf(id, sizeof id, "linear_i2s.t%d_%d", w->thread, round);
        bitnet_kernel k = toy(id);
        bitnet_kernel_query q = {.op = "linear", .format = "i2s", .dtype = "i8", .m = 1, .k = 256};
        k.tier = (bitnet_kernel_tier)(round % 4);
        int bad = bitnet_kernel_register(w->n->runtime, &k, NULL) != BITNET_OK;
        bad += bitnet_runtime_select(w->n->runtime, &q, &chosen, NULL) != BITNET_OK;
        float *got = logits_of(w->n);
        bad += memcmp(got, w->want, (size_t)w->n->n_vocab * sizeof *got) != 0;
        free(got);
        atomic_fetch_add(w->n_failed, bad);
    }
    return NULL;
}

static void test_REG_9_eight_threads_select_register_run(void **state)
{
    (void)state;
    nano n = nano_open(2);
    float *want = logits_of(&n);
    atomic_int n_failed = 0;
    pthread_t t[8];
    worker w[8];
    for (int i = 0; i < 8; i++) {
        w[i] = (worker){&n, i, want, &n_failed};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_int_equal(atomic_load(&n_failed), 0);
    free(want);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_REG_9_kernel_from_outside_runs_a_model),
        cmocka_unit_test(test_REG_9_registration_errors),
        cmocka_unit_test(test_REG_9_wrong_fields_are_refused),
        cmocka_unit_test(test_REG_9_a_new_format),
        cmocka_unit_test(test_REG_9_a_kernel_for_another_device),
        cmocka_unit_test(test_REG_9_eight_threads_select_register_run),
        cmocka_unit_test(test_REG_10_15_questions),
        cmocka_unit_test(test_REG_5_list_has_every_field),
        cmocka_unit_test(test_REG_14_list_judges_a_query),
        cmocka_unit_test(test_REG_14_answer_is_the_kernel_that_runs),
        cmocka_unit_test(test_BE_13_provider_name),
        cmocka_unit_test(test_REG_17_model_with_a_type_without_kernel),
        cmocka_unit_test(test_REG_20_cache_changes_the_kernel_that_runs),
        cmocka_unit_test(test_REG_20_tune_errors),
        cmocka_unit_test(test_REG_20_real_timings_refine_the_choice),
    };
    return cmocka_run_group_tests_name("kernel registry", tests, NULL, NULL);
}
