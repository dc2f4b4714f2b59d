/* test_safetensors.c - headers good and broken, shards and their index. */
#include <time.h>

#include "unit/convert/malformed.h"

#include "convert/safetensors.h"

/* Two tensors over 24 bytes of data. */
static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                           "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,24]}}";
#define N_DATA  24
#define LONG64  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define LONG512 LONG64 LONG64 LONG64 LONG64 LONG64 LONG64 LONG64 LONG64

static bitnet_status parse_text(const char *header, bnet_st_file *f, bitnet_error *err)
{
    static const uint8_t data[N_DATA];
    bnet_str bytes = {0};
    fx_join(header, data, sizeof data, &bytes);
    /* a copy of exact size, so that AddressSanitizer sees a read behind the end */
    uint8_t *exact = malloc(bytes.n);
    assert_non_null(exact);
    memcpy(exact, bytes.data, bytes.n);
    bitnet_status st = bnet_st_parse(exact, bytes.n, "m.safetensors", f, err);
    free(exact);
    bnet_str_free(&bytes);
    return st;
}

static void test_good(void **state)
{
    (void)state;
    bnet_st_file f;
    bitnet_error err = {0};
    char text[64];
    if (parse_text(good, &f, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(f.n_tensors, 2);
    assert_string_equal(f.tensors[0].name, "a");
    assert_int_equal(f.tensors[0].dtype, BNET_ST_F32);
    assert_int_equal(f.tensors[0].n_dims, 2);
    assert_string_equal(bnet_st_shape_text(&f.tensors[0], text, sizeof text), "[2, 2]");
    assert_string_equal(f.tensors[1].name, "b");
    assert_string_equal(bnet_st_dtype_name(f.tensors[1].dtype), "BF16");
    assert_int_equal(f.tensors[1].begin, 16);
    bnet_st_close(&f);
}

/* Legal oddities: trailing spaces, tensors named in another order than their data, scalars, empty
 * tensors. */
static void test_good_oddities(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[24],\"data_offsets\":[0,24]}}      ",
        "{\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
        "\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
        "\"z\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[8,24]}}",
    };
    for (size_t i = 0; i < BNET_COUNT(headers); i++) {
        bnet_st_file f;
        bitnet_error err = {0};
        if (parse_text(headers[i], &f, &err) != BITNET_OK)
            fail_msg("header %zu: %s", i, err.message);
        assert_int_equal(f.tensors[0].begin, 0);
        bnet_st_close(&f);
    }
}

static const malformed broken[] = {
    {"{\"__", "[\"__", BITNET_MODEL, "does not begin with '{'"},
    {NULL, "", BITNET_MODEL, "the header is empty (offset 0x0)"},
    {"}}", "}", BITNET_MODEL, "not valid JSON"},
    {"\"b\":{", "\"b\" {", BITNET_MODEL, "not valid JSON: line 1"},
    {"\"b\":{", "\"a\":{", BITNET_MODEL, "duplicate object key \"a\""},
    {"\"a\":{", "\"\\u0062\":{", BITNET_MODEL, "duplicate object key \"b\""},
    {"[4],\"data", "[4],\"shape\":[4],\"data", BITNET_MODEL, "key b: shape: duplicate object key"},
    {"\"pt\"", "\"pt\",\"format\":\"\"", BITNET_MODEL, "duplicate object key \"format\""},
    {"}}", "}}x", BITNET_MODEL, "text behind the value"},
    {"[4],\"data", "[4],\"x\":\"\\ud800\",\"data", BITNET_MODEL, "a lone surrogate"},
    {"[4],\"data", "[4],\"x\":\"\xff\",\"data", BITNET_MODEL,
     "not valid JSON: line 1, column 126, byte 125: not UTF-8"},
    {NULL, "{\"a\":1}", BITNET_MODEL, "tensor a: is an integer; an object was expected"},
    {"\"b\":{", "\"\":{", BITNET_MODEL, "length 0 is outside 1.."},
    {"\"b\":{", "\"" LONG512 LONG512 LONG64 "\":{", BITNET_MODEL, "length 1088 is outside 1.."},
    {"\"dtype\":\"F32\",", "", BITNET_MODEL, "key a: dtype: is missing"},
    {"\"shape\":[2,2],", "", BITNET_MODEL, "key a: shape: is missing"},
    {"\"data_offsets\":[0,16]", "\"other\":[0,16]", BITNET_MODEL,
     "key a: data_offsets: is missing"},
    {"\"F32\"", "32", BITNET_MODEL, "dtype: is an integer; a string was expected"},
    {"\"F32\"", "\"F33\"", BITNET_MODEL, "\"F33\" is not a type of this format"},
    {"[2,2]", "\"2x2\"", BITNET_MODEL, "shape: is a string; an array was expected"},
    {"[2,2]", "[2,2.5]", BITNET_MODEL, "shape: element 1 is a fractional number"},
    {"[2,2]", "[2,-2]", BITNET_MODEL, "shape: element 1 is negative: -2"},
    {"[2,2]", "[1,1,1,1,1,1,1,2,2]", BITNET_MODEL, "has 9 dimensions; at most 8"},
    {"[2,2]", "[4294967296,4294967296]", BITNET_MODEL, "overflows 64 bits at element 1"},
    {"[2,2]", "[2,99999999999999999999]", BITNET_MODEL, "too big integer"},
    {"[2,2]", "[2,3]", BITNET_MODEL, "span 16 bytes, but the shape needs 24"},
    {"[0,16]", "[0]", BITNET_MODEL, "data_offsets: has 1 elements"},
    {"[0,16]", "[0,true]", BITNET_MODEL, "data_offsets: element 1 is a boolean"},
    {"[0,16]", "[16,0]", BITNET_MODEL, "begin 16 is behind end 0"},
    {"[16,24]", "[24,32]", BITNET_MODEL, "end 32 is behind the end of the data (24 bytes)"},
    {"[16,24]", "[8,16]", BITNET_MODEL,
     "tensor b begins at data byte 8, but the tensor before it ends at 16: tensors overlap"},
    {"[2,2],\"data_offsets\":[0,16]", "[1,2],\"data_offsets\":[0,8]", BITNET_MODEL,
     "bytes belong to nothing"},
    {"[4],\"data_offsets\":[16,24]", "[2],\"data_offsets\":[16,20]", BITNET_MODEL,
     "4 bytes behind the last tensor"},
    {NULL, "{}", BITNET_MODEL, "24 bytes behind the last tensor"},
    {"{\"format\":\"pt\"}", "3", BITNET_MODEL,
     "__metadata__: is an integer; an object was expected"},
    {"{\"format\":\"pt\"}", "{\"format\":[]}", BITNET_MODEL,
     "__metadata__: holds an array; only strings"},
    {"\"b\":{", "\"b\\u0000\":{", BITNET_MODEL, "the name \"b\\x00\" holds \\u0000"},
};

static void test_malformed(void **state)
{
    (void)state;
    malformed_run run = {0};
    for (size_t i = 0; i < BNET_COUNT(broken); i++) {
        bnet_st_file f;
        bitnet_error err = {0};
        char *text = fx_replace(good, broken[i].from, broken[i].to);
        bitnet_status st = parse_text(text, &f, &err);
        malformed_check(&run, &broken[i], st, &err);
        assert_null(f.tensors);
        assert_non_null(strstr(err.message, "m.safetensors"));
        free(text);
    }
    malformed_end(&run, 30);
}

/* What text cannot say: the length field, truncation, nesting. */
static void test_malformed_bytes(void **state)
{
    (void)state;
    bnet_st_file f;
    bitnet_error err = {0};
    uint8_t bytes[64] = {0};
    assert_int_equal(bnet_st_parse(bytes, 7, "m", &f, &err), BITNET_MODEL);
    assert_non_null(strstr(err.message, "7 bytes: too short"));
    assert_int_equal(bnet_st_parse(NULL, 0, "m", &f, &err), BITNET_MODEL);
    bnet_put_u64(bytes, 57);
    assert_int_equal(bnet_st_parse(bytes, 64, "m", &f, &err), BITNET_MODEL);
    assert_non_null(strstr(err.message, "header length 57 exceeds the file (64 bytes)"));
    bnet_put_u64(bytes, UINT64_MAX);
    assert_int_equal(bnet_st_parse(bytes, 64, "m", &f, &err), BITNET_MODEL);
    assert_non_null(strstr(err.message, "exceeds the limit"));
    enum { DEPTH = 100000 };
    char *deep = malloc(DEPTH + 16);
    assert_non_null(deep);
    strcpy(deep, "{\"a\":");
    memset(deep + 5, '[', DEPTH);
    deep[5 + DEPTH] = '\0';
    assert_int_equal(parse_text(deep, &f, &err), BITNET_MODEL);
    assert_non_null(strstr(err.message, "nested more than 64 deep"));
    free(deep);
}

/* Every prefix of a good file is refused, and none reads behind its end. */
static void test_truncated(void **state)
{
    (void)state;
    static const uint8_t data[N_DATA];
    bnet_str bytes = {0};
    fx_join(good, data, sizeof data, &bytes);
    for (size_t n = 0; n < bytes.n; n++) {
        bnet_st_file f;
        uint8_t *exact = malloc(n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, bytes.data, n);
        assert_int_equal(bnet_st_parse(exact, n, "m", &f, NULL), BITNET_MODEL);
        free(exact);
    }
    bnet_str_free(&bytes);
}

/* ---- shards ---- */

static char dir[1024];

static int set_up(void **state)
{
    (void)state;
    fx_make_dir(dir, sizeof dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_remove_dir(dir);
    return 0;
}

static void write_shard(const char *file, const char *const *names, int n)
{
    fx_file f = {0};
    for (int i = 0; i < n; i++)
        fx_add_floats(&f, names[i], "F32", 0, 4);
    fx_finish(&f, dir, file);
}

static const char good_index[] = "{\"metadata\":{\"total_size\":48},\"weight_map\":{\"a\":\"1."
                                 "safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";

static void write_shards(void)
{
    static const char *const first[] = {"a", "b"}, *const second[] = {"c"};
    write_shard("1.safetensors", first, 2);
    write_shard("2.safetensors", second, 1);
}

static void test_good_index(void **state)
{
    (void)state;
    bnet_checkpoint c;
    bitnet_error err = {0};
    write_shards();
    fx_write_text(dir, "model.safetensors.index.json", good_index);
    if (bnet_checkpoint_open(dir, &c, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(c.n_files, 2);
    assert_int_equal(c.n_tensors, 3);
    const bnet_st_tensor *t = bnet_checkpoint_find(&c, "c");
    assert_non_null(t);
    assert_non_null(strstr(t->path, "2.safetensors"));
    assert_true(bnet_f32(t->data) == fx_value("c", 0, 0));
    assert_null(bnet_checkpoint_find(&c, "d"));
    bnet_checkpoint_close(&c);
}

static const malformed broken_index[] = {
    {NULL, "[]", BITNET_MODEL, "the document is an array; an object was expected"},
    {NULL, "{}", BITNET_MODEL, "weight_map: is missing"},
    {NULL, "{\"weight_map\":{}}", BITNET_MODEL, "weight_map: is empty"},
    {NULL, "{\"weight_map\":7}", BITNET_MODEL, "weight_map: is an integer; an object was expected"},
    {NULL, "{\"weight_map\":", BITNET_MODEL, "not valid JSON"},
    {"\"a\":\"1.safetensors\"", "\"a\":1", BITNET_MODEL,
     "tensor a: is an integer; a file name was expected"},
    {"\"a\":\"1.safetensors\"", "\"a\":\"../1.safetensors\"", BITNET_MODEL,
     "\"../1.safetensors\" is not the name"},
    {"\"a\":\"1.safetensors\"", "\"a\":\"pytorch_model.bin\"", BITNET_MODEL,
     "\"pytorch_model.bin\" is not the name"},
    {"\"c\":\"2.safetensors\"", "\"c\":\"3.safetensors\"", BITNET_IO, "3.safetensors: cannot open"},
    {"\"b\":\"1.safetensors\",", "", BITNET_MODEL, "tensor b is in"},
    {"\"b\":\"1.safetensors\",", "\"b\":\"2.safetensors\",", BITNET_MODEL,
     "but the weight_map says 2.safetensors"},
    {"\"b\":\"1.safetensors\",", "\"b\":\"1.safetensors\",\"d\":\"1.safetensors\",", BITNET_MODEL,
     "tensor d is not in its shard 1.safetensors"},
    {"\"c\":\"2.safetensors\"", "\"c\":\"bad.safetensors\"", BITNET_MODEL,
     "bad.safetensors: 4 bytes: too short"},
};

static void test_malformed_index(void **state)
{
    (void)state;
    malformed_run run = {0};
    write_shards();
    fx_write_text(dir, "bad.safetensors", "oops");
    for (size_t i = 0; i < BNET_COUNT(broken_index); i++) {
        bnet_checkpoint c;
        bitnet_error err = {0};
        char *text = fx_replace(good_index, broken_index[i].from, broken_index[i].to);
        fx_write_text(dir, "model.safetensors.index.json", text);
        bitnet_status st = bnet_checkpoint_open(dir, &c, &err);
        malformed_check(&run, &broken_index[i], st, &err);
        assert_null(c.files);
        free(text);
    }
    malformed_end(&run, 13);
}

/* A shard of very many empty tensors and an index that names one more: comparing each name with
 * each took several seconds. */
static void test_large_index(void **state)
{
    (void)state;
    enum { N = 30000 };
    bnet_checkpoint c;
    bitnet_error err = {0};
    bnet_str header = {0}, index = {0};
    uint8_t n_bytes[8] = {0};
    for (int i = 0; i < N; i++) {
        bnet_str_addf(&header, "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                      i ? "," : "{", i);
        bnet_str_addf(&index, "%s\"t%d\":\"1.safetensors\"", i ? "," : "{\"weight_map\":{", i);
    }
    bnet_str_puts(&header, "}");
    bnet_str_puts(&index, ",\"more\":\"1.safetensors\"}}");
    for (int i = 0; i < 8; i++)
        n_bytes[i] = (uint8_t)((uint64_t)header.n >> 8 * i);
    char path[512];
    fx_path(dir, "1.safetensors", path, sizeof path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(n_bytes, 1, 8, f);
    fwrite(header.data, 1, header.n, f);
    fclose(f);
    fx_write_text(dir, "model.safetensors.index.json", index.data);
    clock_t start = clock();
    assert_int_equal(bnet_checkpoint_open(dir, &c, &err), BITNET_MODEL);
    assert_true(clock() - start < CLOCKS_PER_SEC);
    assert_non_null(strstr(err.message, "tensor more is not in its shard 1.safetensors"));
    bnet_str_free(&header);
    bnet_str_free(&index);
}

static void test_no_weights(void **state)
{
    (void)state;
    bnet_checkpoint c;
    bitnet_error err = {0};
    assert_int_equal(bnet_checkpoint_open(dir, &c, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "neither model.safetensors nor"));
    fx_write_text(dir, "pytorch_model.bin", "x");
    assert_int_equal(bnet_checkpoint_open(dir, &c, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "pickle"));
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),      cmocka_unit_test(test_good_oddities),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_malformed_bytes),
        cmocka_unit_test(test_truncated), IN_DIR(test_good_index),
        IN_DIR(test_malformed_index),     IN_DIR(test_no_weights),
        IN_DIR(test_large_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
