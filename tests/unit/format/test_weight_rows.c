/* test_weight_rows.c - reading weights: every type that can be a matrix gives the values its codec
 * gives, ternary ones in canonical rows; what is damaged is named. */
#include "test.h"

#include <math.h>

#include "format/weight_rows.h"

typedef struct rig {
    bnet_pool *pool;
    bnet_tensor t;
    bnet_weight_source s;
    uint8_t *bytes;
    bnet_weight_rows rows;
    int n_warnings;
    char warning[256];
    bitnet_error err;
} rig;

static uint64_t seed = 11;

static void on_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    rig *g = user;
    assert_string_equal(module, "some");
    if (level == BITNET_LOG_WARN && ++g->n_warnings)
        snprintf(g->warning, sizeof g->warning, "%s", message);
}

static void put_half(uint8_t *p, float v)
{
    bnet_put_u16(p, bnet_f32_to_f16(v));
}

/* The scale of every block of a row, at its place in the block. */
static void set_scales(bnet_type t, uint8_t *row, size_t row_bytes, float d)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    if (t == BNET_IQ2_BN || t == BNET_IQ1_BN) {
        if (t == BNET_IQ2_BN)
            bnet_put_f32(row, d);
        else
            put_half(row, d);
        return;
    }
    bool last = t == BNET_TQ1_0 || t == BNET_TQ2_0 || t == BNET_Q6_K;
    for (size_t b = 0; b + info->n_bytes <= row_bytes; b += info->n_bytes) {
        put_half(row + b + (last ? info->n_bytes - 2 : 0), d);
        if (t == BNET_Q4_K)
            put_half(row + b + 2, d / 2);
    }
}

/* A matrix of random codes; scales differ from row to row unless `same`. */
static void rig_open(rig *g, bnet_type type, size_t k, size_t n, bool same)
{
    uint64_t total = 0, row = 0;
    memset(g, 0, sizeof *g);
    assert_int_equal(bnet_pool_open(3, &g->pool, NULL), BITNET_OK);
    assert_true(bnet_type_bytes(type, k, n, &total));
    assert_true(bnet_type_bytes(type, k, 1, &row));
    g->bytes = malloc((size_t)total);
    for (size_t i = 0; i < total; i++) {
        g->bytes[i] = (uint8_t)test_rand(&seed);
        if (type == BNET_IQ2_BN || type == BNET_I2_S || type == BNET_TQ2_0) /* no code 3 */
            g->bytes[i] &= (uint8_t) ~(g->bytes[i] >> 1 & 0x55);
    }
    float *f = malloc(k * sizeof *f);
    for (size_t r = 0; r < n && type != BNET_I2_S; r++) {
        for (size_t i = 0; i < k; i++)
            f[i] = (float)((int)(test_rand(&seed) % 201) - 100) / 64.0f;
        if (bnet_type_find((uint32_t)type)->kind == BNET_KIND_FLOAT)
            bnet_encode_row(type, f, g->bytes + r * row, k);
        else
            set_scales(type, g->bytes + r * row, (size_t)row,
                       same ? 0.125f : 0.01f * (float)(r + 1));
    }
    free(f);
    if (type == BNET_I2_S)
        bnet_put_f32(g->bytes + k * n / 4, 0.125f);
    g->t = (bnet_tensor){.name = "blk.0.attn_q.weight",
                         .n_dims = 2,
                         .ne = {k, n, 1, 1},
                         .type = type,
                         .data = g->bytes,
                         .n_bytes = total,
                         .n_span = total};
    g->s = (bnet_weight_source){
        .tensor = &g->t, .file = "test.gguf", .layout = BITNET_I2S_128, .extra_scale = 1};
}

static bitnet_status rig_read(rig *g)
{
    bnet_log log = {on_log, g};
    return bnet_weight_rows_read(&g->s, "some", g->pool, &log, &g->rows, &g->err);
}

static void rig_close(rig *g)
{
    bnet_weight_rows_free(&g->rows);
    bnet_pool_close(g->pool);
    free(g->bytes);
}

/* The value of an element as the codecs read the tensor. */
static float stored_value(const rig *g, size_t row, size_t col)
{
    size_t k = (size_t)g->t.ne[0];
    if (g->t.type == BNET_I2_S) {
        uint64_t byte;
        unsigned shift;
        bnet_i2s_locate(g->s.layout, k, row, col, &byte, &shift);
        int code = g->bytes[byte] >> shift & 3;
        return code == 3 ? 0
                         : (float)(code - 1) * bnet_i2s_scale(g->bytes, bnet_tensor_elems(&g->t));
    }
    uint64_t row_bytes = 0;
    bnet_type_bytes(g->t.type, k, 1, &row_bytes);
    float *f = malloc(k * sizeof *f);
    bnet_decode_part(g->t.type, g->bytes + row * row_bytes, 0, k, f);
    float v = f[col];
    free(f);
    return v;
}

/* The same from what was read. */
static float read_value(const bnet_weight_rows *rows, size_t row, size_t col)
{
    const uint8_t *p = rows->data + row * rows->row_bytes;
    if (rows->form == BNET_ROWS_VECTOR)
        return bnet_f32(p + 4 * col);
    if (rows->form == BNET_ROWS_TERNARY) {
        int code = p[32 * (col / 128) + col % 32] >> (6 - 2 * (col % 128 / 32)) & 3;
        assert_int_not_equal(code, 3);
        float scale = rows->block_scales ? rows->block_scales[row * (rows->n_in / 256) + col / 256]
                                         : rows->scale;
        return (float)(code - 1) * scale;
    }
    float *f = malloc((size_t)rows->n_in * sizeof *f);
    assert_true(bnet_decode_part(rows->type, p, 0, (size_t)rows->n_in, f));
    float v = f[col] * (rows->ternary ? rows->scale : 1);
    free(f);
    return v;
}

static void assert_same_values(const rig *g)
{
    for (size_t r = 0; r < g->t.ne[1]; r += 3)
        for (size_t c = 0; c < g->t.ne[0]; c += 41)
            assert_true(read_value(&g->rows, r, c) == stored_value(g, r, c) * g->s.extra_scale);
}

static void test_every_type_keeps_its_values(void **state)
{
    static const struct {
        bnet_type type;
        bnet_rows_form same, varied;
    } cases[] = {
        {BNET_I2_S, BNET_ROWS_TERNARY, BNET_ROWS_TERNARY},
        {BNET_TQ1_0, BNET_ROWS_TERNARY, BNET_ROWS_TERNARY},
        {BNET_TQ2_0, BNET_ROWS_TERNARY, BNET_ROWS_TERNARY},
        {BNET_IQ2_BN, BNET_ROWS_TERNARY, BNET_ROWS_STORED},
        {BNET_IQ1_BN, BNET_ROWS_TERNARY, BNET_ROWS_STORED},
        {BNET_F32, BNET_ROWS_STORED, BNET_ROWS_STORED},
        {BNET_F16, BNET_ROWS_STORED, BNET_ROWS_STORED},
        {BNET_BF16, BNET_ROWS_STORED, BNET_ROWS_STORED},
        {BNET_Q8_0, BNET_ROWS_STORED, BNET_ROWS_STORED},
        {BNET_Q6_K, BNET_ROWS_STORED, BNET_ROWS_STORED},
        {BNET_Q4_0, BNET_ROWS_STORED, BNET_ROWS_STORED},
        {BNET_Q4_K, BNET_ROWS_STORED, BNET_ROWS_STORED},
    };
    (void)state;
    for (size_t i = 0; i < 2 * BNET_COUNT(cases); i++) {
        rig g;
        bool same = i % 2 == 0;
        rig_open(&g, cases[i / 2].type, 512, 24, same);
        assert_int_equal(rig_read(&g), BITNET_OK);
        assert_int_equal(g.rows.form, same ? cases[i / 2].same : cases[i / 2].varied);
        assert_int_equal(g.rows.ternary, i / 2 < 5);
        assert_false(g.rows.damaged);
        assert_int_equal(g.n_warnings, 0);
        assert_same_values(&g);
        rig_close(&g);
    }
}

static void test_scales_are_one_where_they_agree(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        rig g;
        rig_open(&g, BNET_TQ2_0, 512, 8, same);
        g.s.extra_scale = 2;
        assert_int_equal(rig_read(&g), BITNET_OK);
        assert_true(same ? g.rows.block_scales == NULL : g.rows.block_scales != NULL);
        assert_true(g.rows.scale == (same ? 0.25f : 0));
        assert_same_values(&g);
        rig_close(&g);
    }
}

static void test_canonical_i2s_is_used_in_place_and_other_packings_are_not(void **state)
{
    static const bitnet_i2s_layout layouts[] = {BITNET_I2S_128, BITNET_I2S_64, BITNET_I2S_4ROW};
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(layouts); i++) {
        rig g;
        rig_open(&g, BNET_I2_S, 256, 12, true);
        g.s.layout = layouts[i];
        assert_int_equal(rig_read(&g), BITNET_OK);
        assert_true(i ? g.rows.owned != NULL : g.rows.data == g.bytes && !g.rows.owned);
        assert_same_values(&g);
        rig_close(&g);
    }
}

static void test_floats_that_must_be_ternary_are_padded_to_whole_groups(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, BNET_F32, 200, 5, true);
    for (size_t i = 0; i < 1000; i++)
        bnet_put_f32(g.bytes + 4 * i, 0.5f * (float)((int)(test_rand(&seed) % 3) - 1));
    g.s.ternarise = true;
    assert_int_equal(rig_read(&g), BITNET_OK);
    assert_int_equal(g.rows.form, BNET_ROWS_TERNARY);
    assert_int_equal(g.rows.row_bytes, 64);
    assert_same_values(&g);
    for (size_t c = 200; c < 256; c++) /* zeros */
        assert_true(read_value(&g.rows, 4, c) == 0);
    rig_close(&g);
}

static void test_vectors_become_floats(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, BNET_F16, 96, 1, true);
    g.t.n_dims = 1;
    assert_int_equal(rig_read(&g), BITNET_OK);
    assert_int_equal(g.rows.form, BNET_ROWS_VECTOR);
    assert_int_equal(g.rows.n_out, 1);
    assert_same_values(&g);
    rig_close(&g);
}

static void test_a_part_has_its_rows_and_scales(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, BNET_TQ1_0, 512, 16, false);
    assert_int_equal(rig_read(&g), BITNET_OK);
    bnet_weight_rows part = bnet_weight_rows_part(&g.rows, 5, 7);
    assert_int_equal(part.n_out, 7);
    assert_null(part.owned);
    for (size_t r = 0; r < 7; r++)
        for (size_t c = 0; c < 512; c += 37)
            assert_true(read_value(&part, r, c) == read_value(&g.rows, r + 5, c));
    rig_close(&g);
}

static void test_invalid_codes_are_zeros_and_are_counted(void **state)
{
    static const bnet_type types[] = {BNET_I2_S, BNET_TQ2_0};
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        rig g;
        rig_open(&g, types[i], 256, 4, true);
        g.bytes[3] |= 0x30;
        g.bytes[9] |= 0xc3;
        assert_int_equal(rig_read(&g), BITNET_OK);
        assert_true(g.rows.damaged);
        assert_int_equal(g.n_warnings, 1);
        assert_string_equal(g.warning, "test.gguf: tensor blk.0.attn_q.weight: 3 invalid codes (3) "
                                       "are read as 0: the file is damaged");
        for (size_t c = 0; c < 256; c++) /* read_value refuses code 3 */
            read_value(&g.rows, 0, c);
        rig_close(&g);
    }
}

static void test_scales_are_checked(void **state)
{
    (void)state;
    static const struct {
        bnet_type type;
        float scale;
        bitnet_status st;
    } cases[] = {{BNET_I2_S, -0.5f, BITNET_OK},
                 {BNET_I2_S, NAN, BITNET_MODEL},
                 {BNET_TQ1_0, -0.5f, BITNET_OK},
                 {BNET_TQ2_0, INFINITY, BITNET_MODEL}};
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        rig g;
        rig_open(&g, cases[i].type, 256, 4, true);
        if (cases[i].type == BNET_I2_S)
            bnet_put_f32(g.bytes + 256, cases[i].scale);
        else
            set_scales(cases[i].type, g.bytes, cases[i].type == BNET_TQ1_0 ? 54 : 66,
                       cases[i].scale);
        assert_int_equal(rig_read(&g), cases[i].st);
        assert_int_equal(g.rows.damaged, cases[i].st == BITNET_OK);
        assert_non_null(strstr(cases[i].st == BITNET_OK ? g.warning : g.err.message,
                               cases[i].st == BITNET_OK
                                   ? "blk.0.attn_q.weight: scale -0.5 is not positive"
                                   : "is not a finite number (offset 0x"));
        rig_close(&g);
    }
}

static void test_what_cannot_be_read_is_named(void **state)
{
    (void)state;
    rig g;
    rig_open(&g, BNET_F32, 64, 3, true);
    g.s.ternarise = true;
    assert_int_equal(rig_read(&g), BITNET_MODEL);
    assert_non_null(strstr(g.err.message, "F32 weights are not ternary ("));
    assert_null(g.rows.owned);
    rig_close(&g);
    rig_open(&g, BNET_I2_S, 128, 6, true);
    g.s.layout = BITNET_I2S_4ROW;
    assert_int_equal(rig_read(&g), BITNET_MODEL);
    assert_non_null(strstr(g.err.message, "6 rows do not fit the four-row I2_S layout"));
    rig_close(&g);
    rig_open(&g, BNET_I2_S, 128, 4, true);
    g.t.type = BNET_I32;
    assert_int_equal(rig_read(&g), BITNET_MODEL);
    assert_non_null(strstr(g.err.message, "UnsupportedKernelConfiguration{device: some, qtype: "
                                          "i32, operation: linear}: type I32 is not supported"));
    g.t.n_dims = 1;
    assert_int_equal(rig_read(&g), BITNET_MODEL);
    assert_non_null(strstr(g.err.message, "type I32 cannot be a vector"));
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_keeps_its_values),
        cmocka_unit_test(test_scales_are_one_where_they_agree),
        cmocka_unit_test(test_canonical_i2s_is_used_in_place_and_other_packings_are_not),
        cmocka_unit_test(test_floats_that_must_be_ternary_are_padded_to_whole_groups),
        cmocka_unit_test(test_vectors_become_floats),
        cmocka_unit_test(test_a_part_has_its_rows_and_scales),
        cmocka_unit_test(test_invalid_codes_are_zeros_and_are_counted),
        cmocka_unit_test(test_scales_are_checked),
        cmocka_unit_test(test_what_cannot_be_read_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
