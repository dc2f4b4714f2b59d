/* Looking into files: keys as text, tensors, their values, and what looks wrong with them. */
#include "unit/engine/nano.h"

#include <math.h>
#include <unistd.h>

#include "bitnet_tools.h"
#include "format/codec.h"
#include "format/gguf.h"

static const char path[] = TEST_BINARY_DIR "/inspect_test.gguf";

static bitnet_inspect *open_ok(const char *name)
{
    bitnet_inspect *in = NULL;
    OK(bitnet_inspect_open(name, &in, &err));
    return in;
}

/* ---- a file made to be looked at ---- */

enum { ROWS = 3, COLS = 256, ELEMS = ROWS * COLS };

typedef struct made {
    const char *name;
    bnet_type type;
    uint8_t bytes[ELEMS * 4];
} made;

static void set_f32(made *t, const float *v)
{
    memcpy(t->bytes, v, ELEMS * sizeof *v);
}

static void set_trits(made *t, int mode, float scale, size_t n_bad)
{
    memset(t->bytes, 0, sizeof t->bytes);
    for (uint64_t r = 0; r < ROWS; r++) {
        int8_t trits[COLS];
        for (int c = 0; c < COLS; c++)
            trits[c] = (int8_t)(mode == 0 ? c % 3 - 1 : mode == 1 ? 1 : 0);
        bnet_i2s_encode_row(BITNET_I2S_128, t->bytes, COLS, r, trits);
    }
    for (size_t i = 0; i < n_bad; i++)
        t->bytes[i] |= 0xc0;
    bnet_put_f32(t->bytes + ELEMS / 4, scale);
}

static void write_file(made *all, size_t n)
{
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    const uint64_t ne[2] = {COLS, ROWS};
    bnet_gguf_put_string(w, "general.name", "made", 4);
    bnet_gguf_put_u32(w, "a.number", 42);
    bnet_gguf_put_f32(w, "a.float", 0.5f);
    bnet_gguf_put_bool(w, "a.bool", true);
    int32_t many[100] = {1, 2, 3};
    bnet_gguf_put_array(w, "a.array", BNET_GGUF_I32, many, 100);
    bnet_span words[2] = {{"one", 3}, {"two", 3}};
    bnet_gguf_put_strings(w, "a.words", words, 2);
    bnet_gguf_put_string(w, "a.empty", "", 0);
    for (size_t i = 0; i < n; i++)
        bnet_gguf_declare(w, all[i].name, all[i].type, ne, 2);
    OK(bnet_gguf_begin(w, path, &err));
    for (size_t i = 0; i < n; i++) {
        uint64_t n_bytes;
        assert_true(bnet_type_bytes(all[i].type, COLS, ROWS, &n_bytes));
        OK(bnet_gguf_data(w, all[i].bytes, (size_t)n_bytes, &err));
    }
    OK(bnet_gguf_finish(w, &err));
    bnet_gguf_writer_free(w);
}

/* ---- tests ---- */

static void keys(void **state)
{
    (void)state;
    write_file(NULL, 0);
    bitnet_inspect *in = open_ok(path);
    static const char *const want[][3] = {
        {"general.name", "string", "made"}, {"a.number", "u32", "42"},
        {"a.float", "f32", "0.5"},          {"a.bool", "bool", "true"},
        {"a.array", "array of i32", NULL},  {"a.words", "array of string", NULL},
        {"a.empty", "string", ""}};
    size_t n_found = 0;
    bitnet_inspect_kv kv, again;
    for (size_t i = 0; bitnet_inspect_kv_at(in, i, &kv); i++)
        for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
            if (strcmp(kv.key, want[k][0]) != 0)
                continue;
            n_found++;
            assert_string_equal(kv.type, want[k][1]);
            if (want[k][2])
                assert_string_equal(kv.value, want[k][2]);
            assert_true(bitnet_inspect_kv_at(
                in, i, &again)); /* borrowed until close: asking again moves nothing */
            assert_ptr_equal(kv.value, again.value);
            if (strcmp(kv.key, "a.array") == 0)
                assert_true(strlen(kv.value) < 120 && strstr(kv.value, "100") != NULL);
        }
    assert_int_equal(n_found, 7);
    assert_int_equal(bitnet_inspect_version(in), 3);
    assert_int_equal(bitnet_inspect_n_tensors(in), 0);
    bitnet_inspect_tensor t;
    assert_false(bitnet_inspect_tensor_at(in, 0, &t));
    bitnet_tensor_stats s;
    FAILS(bitnet_inspect_stats(in, 0, &s, &err), BITNET_ARGUMENT, "tensor 0, the file has 0");
    bitnet_inspect_close(in);
    bitnet_inspect_close(NULL);
}

static void values(void **state)
{
    (void)state;
    static made all[5] = {{"f32", BNET_F32, {0}},
                          {"f16", BNET_F16, {0}},
                          {"tq2", BNET_TQ2_0, {0}},
                          {"i2s", BNET_I2_S, {0}},
                          {"q8", BNET_Q8_0, {0}}};
    float v[ELEMS];
    double sum = 0, sq = 0;
    for (int i = 0; i < ELEMS; i++) {
        v[i] = (float)(i % 3 - 1) * 0.25f; /* -0.25, 0, 0.25: exact in every type */
        sum += (double)v[i];
        sq += (double)v[i] * (double)v[i];
    }
    set_f32(&all[0], v);
    for (int t = 1; t < 5; t++)
        if (all[t].type != BNET_I2_S)
            for (int r = 0; r < ROWS; r++) {
                uint64_t n_row;
                assert_true(bnet_type_bytes(all[t].type, COLS, 1, &n_row));
                assert_true(bnet_encode_row(all[t].type, v + r * COLS,
                                            all[t].bytes + (size_t)r * n_row, COLS));
            }
    for (uint64_t r = 0; r < ROWS; r++) {
        int8_t trits[COLS];
        for (int c = 0; c < COLS; c++)
            trits[c] = (int8_t)(((int)r * COLS + c) % 3 - 1);
        bnet_i2s_encode_row(BITNET_I2S_128, all[3].bytes, COLS, r, trits);
    }
    bnet_put_f32(all[3].bytes + ELEMS / 4, 0.25f);
    write_file(all, 5);
    bitnet_inspect *in = open_ok(path);
    for (size_t i = 0; i < 5; i++) {
        bitnet_inspect_tensor t;
        bitnet_tensor_stats s;
        assert_true(bitnet_inspect_tensor_at(in, i, &t));
        assert_string_equal(t.name, all[i].name);
        assert_string_equal(t.type, bnet_type_find((uint32_t)all[i].type)->name);
        assert_int_equal(t.n_elems, ELEMS);
        assert_int_equal(t.dims[0], COLS);
        assert_int_equal(t.dims[1], ROWS);
        assert_int_equal(t.dims[2], 1);
        assert_int_equal(t.n_dims, 2);
        OK(bitnet_inspect_stats(in, i, &s, &err));
        bool ternary = bnet_type_is_ternary(all[i].type);
        assert_int_equal(s.ternary, ternary);
        assert_int_equal(s.n_minus, ternary ? 256 : 0);
        assert_int_equal(s.n_plus, ternary ? 256 : 0);
        assert_int_equal(s.n_zero, 256);
        double tolerance =
            all[i].type == BNET_Q8_0 ? 1e-4 : 1e-9; /* 0.25/127 is not exact in f16 */
        assert_true(fabs(s.min + 0.25) <= tolerance && fabs(s.max - 0.25) <= tolerance);
        assert_true(fabs(s.mean - sum / ELEMS) <= tolerance &&
                    fabs(s.rms - sqrt(sq / ELEMS)) <= tolerance);
        assert_true(s.scale == (all[i].type == BNET_I2_S ? 0.25f : 0.0f));
        assert_int_equal(s.n_nan + s.n_inf + s.n_invalid, 0);
        assert_string_equal(s.suspicious, "");
    }
    bitnet_inspect_close(in);
}

static void suspicions(void **state)
{
    (void)state;
    static made all[10] = {{"nan", BNET_F32, {0}},       {"inf", BNET_F32, {0}},
                           {"zero", BNET_F32, {0}},      {"blk.0.attn_norm.weight", BNET_F32, {0}},
                           {"codes", BNET_I2_S, {0}},    {"scale", BNET_I2_S, {0}},
                           {"negative", BNET_I2_S, {0}}, {"ones", BNET_I2_S, {0}},
                           {"zeros", BNET_I2_S, {0}},    {"blk.1.attn_norm.weight", BNET_F32, {0}}};
    static const char *const want[10] = {"3 values are nan", "1 value is infinite",
                                         "all zero",         "rms 1e-06",
                                         "12 codes are 3",   "scale is nan",
                                         "scale is -1",      "all weights are +1",
                                         "all zero",         ""};
    float v[ELEMS];
    for (int i = 0; i < ELEMS; i++)
        v[i] = 0.5f;
    set_f32(&all[9], v);
    v[7] = v[8] = v[500] = NAN;
    set_f32(&all[0], v);
    v[7] = v[8] = 1;
    v[500] = -INFINITY;
    set_f32(&all[1], v);
    for (int i = 0; i < ELEMS; i++)
        v[i] = 1e-6f;
    set_f32(&all[3], v);
    set_trits(&all[4], 0, 1, 12);
    set_trits(&all[5], 0, NAN, 0);
    set_trits(&all[6], 0, -1, 0);
    set_trits(&all[7], 1, 1, 0);
    set_trits(&all[8], 2, 1, 0);
    write_file(all, 10);
    bitnet_inspect *in = open_ok(path);
    for (size_t i = 0; i < 10; i++) {
        bitnet_tensor_stats s;
        OK(bitnet_inspect_stats(in, i, &s, &err));
        if (want[i][0] ? !strstr(s.suspicious, want[i]) : s.suspicious[0] != '\0')
            fail_msg("%s: \"%s\", wanted \"%s\"", all[i].name, s.suspicious, want[i]);
    }
    bitnet_inspect_close(in);
}

static void the_nano_model_is_sound(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_inspect *in = open_ok(NANO_PATH);
    uint64_t n_elems = 0;
    bitnet_inspect_tensor t;
    for (size_t i = 0; bitnet_inspect_tensor_at(in, i, &t); i++) {
        bitnet_tensor_stats s;
        OK(bitnet_inspect_stats(in, i, &s, &err));
        if (s.suspicious[0])
            fail_msg("%s: %s", t.name, s.suspicious);
        assert_true(s.rms > 0);
        n_elems += t.n_elems;
    }
    assert_int_equal(n_elems, bitnet_engine_model(n.engine)->n_params);
    assert_int_equal(bitnet_inspect_file_bytes(in), bitnet_engine_model(n.engine)->n_file_bytes);
    bitnet_inspect_close(in);
    nano_close(&n);
}

/* The two examples of the standard, and a file longer than one reading step. */
static void sha256(void **state)
{
    (void)state;
    char hex[65];
    FILE *f = fopen(path, "wb");
    fputs("abc", f);
    fclose(f);
    OK(bitnet_file_sha256(path, hex, &err));
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    f = fopen(path, "wb");
    fclose(f);
    OK(bitnet_file_sha256(path, hex, &err));
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    f = fopen(path, "wb");
    for (int i = 0; i < 20000000; i++)
        putc('a', f);
    fclose(f);
    OK(bitnet_file_sha256(path, hex, &err));
    assert_string_equal(hex, "aded0ea9b4d06589b13d00bab483faf479d61ed5de21f1760aa7018a28e330e5");
    FAILS(bitnet_file_sha256("/no/such/file", hex, &err), BITNET_IO, "/no/such/file");
    bitnet_inspect *in = NULL;
    FAILS(bitnet_inspect_open(path, &in, &err), BITNET_MODEL, "inspect_test.gguf");
    FAILS(bitnet_inspect_open(NULL, &in, &err), BITNET_ARGUMENT, "must not be NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys), cmocka_unit_test(values), cmocka_unit_test(suspicions),
        cmocka_unit_test(the_nano_model_is_sound), cmocka_unit_test(sha256)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
