/* GGUF, right files: every value type by hand, writer to reader, types told apart by span,
 * warnings, speed. */
#include "test.h"

#include "format/codec.h"
#include "format/gguf.h"
#include "gguf_build.h"

#include <math.h>
#include <unistd.h>

static build b; /* one file at a time */

static bnet_gguf *open_bytes(const bnet_log *log)
{
    bnet_gguf *g = NULL;
    bitnet_error err = {0};
    if (bnet_gguf_open_memory(b.bytes, b.n, "built", log, &g, &err) != BITNET_OK)
        fail_msg("refused: %s", err.message);
    return g;
}

static void put_every_value(void)
{
    put_header(&b, 0, 15);
    put_key(&b, "a.u8", 0), put_u8(&b, 255);
    put_key(&b, "a.i8", 1), put_u8(&b, 0x80);
    put_key(&b, "a.u16", 2), put_u16(&b, 65535);
    put_key(&b, "a.i16", 3), put_u16(&b, 0x8000);
    put_key(&b, "a.u32", 4), put_u32(&b, 4000000000u);
    put_key(&b, "a.i32", 5), put_u32(&b, (uint32_t)-7);
    put_key(&b, "a.f32", 6), put_f32(&b, 1e-5f);
    put_key(&b, "a.bool", 7), put_u8(&b, 2);
    put_key(&b, "a.string", 8), put_bytes(&b, "a\"\n\xff\x01é", 7);
    put_key(&b, "a.u64", 10), put_u64(&b, UINT64_MAX);
    put_key(&b, "a.i64", 11), put_u64(&b, (uint64_t)INT64_MIN);
    put_key(&b, "a.f64", 12), put_f64(&b, 0.1);
    put_key(&b, "a.ints", 9), put_u32(&b, 5), put_u64(&b, 3), put_u32(&b, 1), put_u32(&b, 2),
        put_u32(&b, (uint32_t)-3);
    put_key(&b, "a.strings", 9), put_u32(&b, 8), put_u64(&b, 3), put_str(&b, "x"), put_str(&b, ""),
        put_str(&b, "q\"z");
    put_key(&b, "a.empty", 9), put_u32(&b, 6), put_u64(&b, 0);
}

static void expect_text(const bnet_gguf *g, const char *key, size_t max, const char *want)
{
    bnet_str s = {0};
    const bnet_gguf_kv *kv = bnet_gguf_find(g, key);
    assert_non_null(kv);
    bnet_gguf_kv_text(kv, &s, max);
    assert_string_equal(s.data, want);
    bnet_str_free(&s);
}

static void values_as_text(void **state)
{
    (void)state;
    put_every_value();
    bnet_gguf *g = open_bytes(NULL);
    expect_text(g, "a.u8", 1, "255");
    expect_text(g, "a.i8", 1, "-128");
    expect_text(g, "a.u16", 1, "65535");
    expect_text(g, "a.i16", 1, "-32768");
    expect_text(g, "a.u32", 1, "4000000000");
    expect_text(g, "a.i32", 1, "-7");
    expect_text(g, "a.f32", 1, "1e-05");
    expect_text(g, "a.bool", 1, "true");
    expect_text(g, "a.string", 1, "a\"\\n\\xff\\x01é");
    expect_text(g, "a.u64", 1, "18446744073709551615");
    expect_text(g, "a.i64", 1, "-9223372036854775808");
    expect_text(g, "a.f64", 1, "0.1");
    expect_text(g, "a.ints", 2, "[1, 2, ... 3 in all]");
    expect_text(g, "a.ints", 3, "[1, 2, -3]");
    expect_text(g, "a.strings", 9, "[\"x\", \"\", \"q\\\"z\"]");
    expect_text(g, "a.empty", 9, "[]");
    expect_text(g, "a.ints", 0, "[... 3 in all]");
    bnet_gguf_close(g);
}

static int64_t get_int(const bnet_gguf *g, const char *key)
{
    int64_t v = 42;
    bool found = false;
    assert_int_equal(bnet_gguf_int(g, key, INT64_MIN, INT64_MAX, &v, &found, NULL), BITNET_OK);
    assert_true(found);
    return v;
}

static void typed_reads(void **state)
{
    (void)state;
    put_every_value();
    bnet_gguf *g = open_bytes(NULL);
    assert_int_equal(get_int(g, "a.u8"), 255);
    assert_int_equal(get_int(g, "a.i8"), -128);
    assert_int_equal(get_int(g, "a.u16"), 65535);
    assert_int_equal(get_int(g, "a.i16"), -32768);
    assert_int_equal(get_int(g, "a.u32"), 4000000000);
    assert_int_equal(get_int(g, "a.i32"), -7);
    assert_true(get_int(g, "a.i64") == INT64_MIN);
    double d = 3;
    bool found = true, flag = false;
    assert_int_equal(bnet_gguf_float(g, "a.f32", 0, 1, &d, &found, NULL), BITNET_OK);
    assert_true(found && (float)d == 1e-5f);
    assert_int_equal(bnet_gguf_float(g, "a.f64", 0, 1, &d, NULL, NULL), BITNET_OK);
    assert_true(d == 0.1);
    assert_int_equal(bnet_gguf_bool(g, "a.bool", &flag, &found, NULL), BITNET_OK);
    assert_true(flag && found);
    bnet_span s = {0};
    assert_int_equal(bnet_gguf_string(g, "a.string", &s, &found, NULL), BITNET_OK);
    assert_int_equal(s.n, 7);
    const bnet_gguf_kv *kv = NULL;
    assert_int_equal(bnet_gguf_array(g, "a.strings", BNET_GGUF_STRING, &kv, NULL), BITNET_OK);
    const uint8_t *cursor = kv->data;
    assert_int_equal(bnet_gguf_next_string(&cursor).n, 1);
    assert_int_equal(bnet_gguf_next_string(&cursor).n, 0);
    assert_memory_equal(bnet_gguf_next_string(&cursor).data, "q\"z", 3);
    bnet_gguf_close(g);
}

static void absent_keys(void **state)
{
    (void)state;
    put_every_value();
    bnet_gguf *g = open_bytes(NULL);
    int64_t v = 42;
    double d = 1.5;
    bool found = true, flag = true;
    bnet_span s = {"default", 7};
    const bnet_gguf_kv *kv = bnet_gguf_kv_at(g, 0);
    assert_int_equal(bnet_gguf_int(g, "a.u", 0, 1, &v, &found, NULL), BITNET_OK);
    assert_true(v == 42 && !found);
    assert_int_equal(bnet_gguf_float(g, "a.u88", 0, 1, &d, NULL, NULL), BITNET_OK);
    assert_true(d == 1.5);
    assert_int_equal(bnet_gguf_bool(g, "", &flag, NULL, NULL), BITNET_OK);
    assert_true(flag);
    assert_int_equal(bnet_gguf_string(g, "zzz", &s, NULL, NULL), BITNET_OK);
    assert_int_equal(s.n, 7);
    assert_int_equal(bnet_gguf_array(g, "nope", BNET_GGUF_I32, &kv, NULL), BITNET_OK);
    assert_null(kv);
    assert_null(bnet_gguf_find(g, "A.u8"));
    assert_null(bnet_gguf_tensor(g, "x"));
    assert_null(bnet_gguf_kv_at(g, 15));
    assert_null(bnet_gguf_tensor_at(g, 0));
    bnet_gguf_close(g);
}

/* ---- writer to reader ---- */

static void add_keys(bnet_gguf_writer *w)
{
    const bnet_span words[] = {{"a", 1}, {"", 0}, {"b\0c", 3}};
    const float floats[] = {0, -1, 1e30f};
    bnet_gguf_put_u32(w, "k.u32", 7);
    bnet_gguf_put_f32(w, "k.f32", 0.5f);
    bnet_gguf_put_bool(w, "k.bool", true);
    bnet_gguf_put_string(w, "k.string", "text", 4);
    bnet_gguf_put_array(w, "k.floats", BNET_GGUF_F32, floats, 3);
    bnet_gguf_put_strings(w, "k.words", words, 3);
}

static void write_file(const char *path)
{
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    bitnet_error err = {0};
    uint8_t row[16] = {1, 2, 3}, i2s[256 * 2 / 4 + 32], tail[32];
    assert_non_null(w);
    add_keys(w);
    bnet_gguf_declare(w, "norm", BNET_F32, (const uint64_t[]){3}, 1);
    bnet_gguf_declare(w, "proj", BNET_I2_S, (const uint64_t[]){256, 2}, 2);
    bnet_gguf_declare(w, "four", BNET_F16, (const uint64_t[]){2, 1, 1, 2}, 4);
    assert_int_equal(bnet_gguf_data_bytes(w), 12 + 160 + 8);
    assert_int_equal(bnet_gguf_begin(w, path, &err), BITNET_OK);
    assert_non_null(bnet_gguf_temp_path(w));
    assert_int_equal(bnet_gguf_data(w, row, 5, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_data(w, row + 5, 8, &err), BITNET_ARGUMENT); /* 7 awaited */
    assert_int_equal(bnet_gguf_data(w, row + 5, 7, &err), BITNET_OK);
    memset(i2s, 0x55, sizeof i2s);
    assert_int_equal(bnet_gguf_data(w, i2s, 128, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_finish(w, &err), BITNET_ARGUMENT); /* not complete */
    assert_non_null(strstr(err.message, "proj: only 128 of 160"));
    bnet_i2s_tail(0.25f, tail);
    assert_int_equal(bnet_gguf_data(w, tail, 32, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_data(w, row, 8, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_data(w, row, 1, &err), BITNET_ARGUMENT);
    assert_int_equal(bnet_gguf_finish(w, &err), BITNET_OK);
    bnet_gguf_writer_free(w);
}

static void check_tensors(const bnet_gguf *g)
{
    const bnet_tensor *t = bnet_gguf_tensor(g, "proj");
    assert_non_null(t);
    assert_ptr_equal(t, bnet_gguf_tensor_at(g, 1));
    assert_int_equal(t->type, BNET_I2_S);
    assert_int_equal(t->n_bytes, 160);
    assert_int_equal(t->n_span, 160);
    assert_int_equal(t->offset % 32, 0);
    assert_true(bnet_i2s_scale(t->data, 512) == 0.25f);
    for (int i = 0; i < 28; i++)
        assert_int_equal(t->data[128 + 4 + i], 0);
    t = bnet_gguf_tensor(g, "four");
    assert_int_equal(t->n_dims, 4);
    assert_int_equal(t->ne[3], 2);
    assert_int_equal(t->n_bytes, 8);
    t = bnet_gguf_tensor(g, "norm");
    assert_int_equal(t->ne[1], 1);
    assert_int_equal(t->data[2], 3);
    assert_ptr_equal(t->data, bnet_gguf_file_data(g) + t->offset);
}

static void writer_to_reader(void **state)
{
    (void)state;
    const char *path = TEST_BINARY_DIR "/test_gguf_out.gguf";
    bnet_gguf *g = NULL;
    bitnet_error err = {0};
    write_file(path);
    assert_int_equal(bnet_gguf_open(path, NULL, &g, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_version(g), 3);
    assert_int_equal(bnet_gguf_n_kv(g), 6);
    assert_int_equal(bnet_gguf_n_tensors(g), 3);
    assert_string_equal(bnet_gguf_path(g), path);
    assert_int_equal(bnet_gguf_file_bytes(g) % 32, 0);
    expect_text(g, "k.u32", 1, "7");
    expect_text(g, "k.f32", 1, "0.5");
    expect_text(g, "k.bool", 1, "true");
    expect_text(g, "k.string", 1, "text");
    expect_text(g, "k.floats", 9, "[0, -1, 1e+30]");
    expect_text(g, "k.words", 9, "[\"a\", \"\", \"b\\x00c\"]");
    check_tensors(g);
    bnet_gguf_close(g);
    unlink(path);
}

static void expect_begin(bnet_gguf_writer *w, bitnet_status want, const char *text)
{
    bitnet_error err = {0};
    const char *path = TEST_BINARY_DIR "/test_gguf_never.gguf";
    assert_int_equal(bnet_gguf_begin(w, path, &err), want);
    if (!strstr(err.message, text))
        fail_msg("'%s' does not say '%s'", err.message, text);
    assert_int_not_equal(access(path, F_OK), 0);
    bnet_gguf_writer_free(w);
}

static void writer_refuses(void **state)
{
    (void)state;
    const uint64_t ne[] = {100, 0};
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    bnet_gguf_put_u32(w, "twice", 1);
    bnet_gguf_put_bool(w, "twice", true);
    expect_begin(w, BITNET_ARGUMENT, "added twice: key twice");
    w = bnet_gguf_writer_new();
    bnet_gguf_declare(w, "t", BNET_Q8_0, ne, 1);
    expect_begin(w, BITNET_ARGUMENT, "tensor t");
    w = bnet_gguf_writer_new();
    bnet_gguf_declare(w, "t", BNET_F32, ne, 2);
    expect_begin(w, BITNET_ARGUMENT, "tensor t");
    w = bnet_gguf_writer_new();
    bnet_gguf_declare(w, "t", BNET_F32, ne, 1);
    bnet_gguf_declare(w, "t", BNET_F32, ne, 1);
    expect_begin(w, BITNET_ARGUMENT, "declared twice: tensor t");
    w = bnet_gguf_writer_new();
    bnet_gguf_put_array(w, "k", BNET_GGUF_STRING, "", 0);
    expect_begin(w, BITNET_ARGUMENT, "element type: key k");
    w = bnet_gguf_writer_new();
    bnet_gguf_put_u32(w, "", 1);
    expect_begin(w, BITNET_ARGUMENT, "cannot add the key");
    w = bnet_gguf_writer_new();
    bnet_gguf_declare(w,
                      "a name of more than sixty-three bytes is refused here as in the reader ..",
                      BNET_F32, ne, 1);
    expect_begin(w, BITNET_ARGUMENT, "cannot be written");
    bnet_gguf_writer_free(NULL);
}

/* Freed without finish: neither the output nor the temporary is left. */
static void writer_leaves_nothing(void **state)
{
    (void)state;
    const char *path = TEST_BINARY_DIR "/test_gguf_never.gguf";
    char temp[512];
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    assert_int_equal(bnet_gguf_finish(w, NULL), BITNET_ARGUMENT);
    bnet_gguf_put_u32(w, "k", 1);
    assert_int_equal(bnet_gguf_begin(w, path, NULL), BITNET_OK);
    snprintf(temp, sizeof temp, "%s", bnet_gguf_temp_path(w));
    assert_int_equal(access(temp, F_OK), 0);
    assert_int_equal(bnet_gguf_begin(w, path, NULL), BITNET_ARGUMENT);
    bnet_gguf_writer_free(w);
    assert_int_not_equal(access(temp, F_OK), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- types told apart by the bytes they have ---- */

static void expect_type(uint32_t id, uint64_t ne0, uint64_t ne1, size_t n_bytes, const char *want)
{
    put_header(&b, 1, 0);
    put_info(&b, "t", ne0, ne1, id, 0);
    put_pad(&b, 32);
    put_fill(&b, 1, n_bytes);
    bnet_gguf *g = open_bytes(NULL);
    const bnet_tensor *t = bnet_gguf_tensor(g, "t");
    assert_string_equal(bnet_type_find((uint32_t)t->type)->name, want);
    assert_int_equal(t->n_bytes, n_bytes);
    bnet_gguf_close(g);
}

static void types_by_span(void **state)
{
    (void)state;
    /* [512, 64]: (512-256)*64/3*5/8 + 256*64/2*4/8 = 3413 + 4096 = 7509, to 32: 7520, and the tail
     */
    expect_type(39, 512, 64, 7520 + 32, "TL2");
    expect_type(39, 512, 64, 512 * 64 / 32 * 17, "MXFP4");
    expect_type(39, 32, 1, 17, "MXFP4");
    expect_type(42, 256, 2, 512 / 64 * 18, "Q2_0");
    expect_type(42, 256, 2, 512 / 128 * 34, "Q2_0_G128");
    expect_type(36, 256, 2, 512 / 4 + 32, "I2_S");
    expect_type(38, 64, 2, 128 / 4 + 32, "TL1");
    expect_type(134, 64, 3, 3 * 15, "IQ1_BN");
    expect_type(135, 128, 3, 3 * 36, "IQ2_BN");
    expect_type(335, 64, 4, 4 * 20, "IQ2_BN_R4");
    expect_type(12, 256, 3, 3 * 144, "Q4_K");
    expect_type(41, 128, 1, 18, "Q1_0");
}

/* ---- odd but legal ---- */

static void count_warning(void *user, bitnet_log_level level, const char *module, const char *text)
{
    (void)module;
    assert_int_equal(level, BITNET_LOG_WARN);
    snprintf(user, 256, "%s", text);
}

static void gaps_warn(void **state)
{
    (void)state;
    char text[256] = "";
    bnet_log log = {count_warning, text};
    put_header(&b, 2, 0); /* listed out of order, with 32 unused bytes between */
    put_info(&b, "second", 8, 1, 0, 64);
    put_info(&b, "first", 8, 1, 0, 0);
    put_pad(&b, 32);
    put_fill(&b, 0, 96);
    bnet_gguf *g = open_bytes(&log);
    assert_non_null(
        strstr(text, "32 unused bytes in 1 gaps between tensors, the first before second"));
    assert_int_equal(bnet_gguf_tensor(g, "first")->n_span, 64);
    bnet_gguf_close(g);
    text[0] = '\0';
    put_fill(&b, 0, 3);
    bnet_gguf_close(open_bytes(&log));
    assert_non_null(strstr(text, "3 bytes behind the last tensor"));
}

static void versions_and_alignment(void **state)
{
    (void)state;
    put_header(&b, 1, 1);
    b.bytes[4] = 2;
    put_key(&b, "general.alignment", 4), put_u32(&b, 8);
    put_info(&b, "t", 3, 1, 0, 8);
    put_pad(&b, 8);
    put_fill(&b, 9, 8 + 12);
    bnet_gguf *g = open_bytes(NULL);
    assert_int_equal(bnet_gguf_version(g), 2);
    assert_int_equal(bnet_gguf_tensor(g, "t")->offset % 8, 0);
    bnet_gguf_close(g);
    put_header(&b, 0, 0); /* the smallest file there is */
    bnet_gguf_close(open_bytes(NULL));
    bnet_gguf_close(NULL);
}

static void vocabulary_opens_fast(void **state)
{
    (void)state;
    char path[1024];
    if (!shared_path("vocab/llama-bpe-rebuilt.gguf", path, sizeof path))
        skip();
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        bnet_gguf *g = NULL;
        double start = bnet_now_ms();
        assert_int_equal(bnet_gguf_open(path, NULL, &g, NULL), BITNET_OK);
        best = fmin(best, bnet_now_ms() - start);
        const bnet_gguf_kv *kv = bnet_gguf_find(g, "tokenizer.ggml.merges");
        assert_non_null(kv);
        assert_int_equal(kv->count, 280147);
        bnet_gguf_close(g);
    }
    print_message("408403 strings opened in %.2f ms\n", best);
    assert_true(best <
                500); /* a second look at each string would not cost that; a quadratic one would */
}

/* As many keys and tensors as are allowed, in the worst order: opening must not become quadratic.
 */
static void largest_counts(void **state)
{
    (void)state;
    enum { N = 65536 };
    char name[16];
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    put_header(&b, N, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "k%d", N - i);
        put_key(&b, name, 0), put_u8(&b, (uint8_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t%d", i);
        put_info(&b, name, 1, 1, BNET_F32, (uint64_t)(N - 1 - i) * 32);
    }
    put_pad(&b, 32);
    put_fill(&b, 0, N * 32);
    assert_true(b.n < BUILD_CAP);
    double start = bnet_now_ms();
    if (bnet_gguf_open_memory(b.bytes, b.n, "large", NULL, &g, &err) != BITNET_OK)
        fail_msg("refused: %s", err.message);
    print_message("65536 keys and tensors opened in %.1f ms\n", bnet_now_ms() - start);
    assert_true(bnet_now_ms() - start < 5000);
    assert_int_equal(bnet_gguf_tensor(g, "t65535")->offset % 32, 0);
    assert_ptr_equal(bnet_gguf_find(g, "k1"), bnet_gguf_kv_at(g, N - 1));
    bnet_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_as_text),
        cmocka_unit_test(typed_reads),
        cmocka_unit_test(absent_keys),
        cmocka_unit_test(writer_to_reader),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(writer_leaves_nothing),
        cmocka_unit_test(types_by_span),
        cmocka_unit_test(gaps_warn),
        cmocka_unit_test(versions_and_alignment),
        cmocka_unit_test(vocabulary_opens_fast),
        cmocka_unit_test(largest_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
