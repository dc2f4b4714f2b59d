/* Names of operations, formats and activations: every value has one, and it leads back. */
#include "records.h"

static void test_every_name_parses_back(void **state)
{
    (void)state;
    for (int i = 1; i < BNET_OPS; i++)
        assert_int_equal(bnet_op_find(bnet_op_name((bnet_op)i)), i); /* so no two are the same */
    for (int i = 1; i < BNET_FORMATS; i++)
        assert_int_equal(bnet_format_find(bnet_format_name((bnet_format)i)), i);
    for (int i = 1; i < BNET_DTYPES; i++)
        assert_int_equal(bnet_dtype_find(bnet_dtype_name((bnet_dtype)i)), i);
    assert_true(BNET_OPS <= 64); /* bnet_op_set */
}

static void test_what_is_no_name(void **state)
{
    (void)state;
    static const char *const unknown[] = {NULL, "", "Linear", "LINEAR", "linea", "linear ", "i2s,"};
    for (size_t i = 0; i < BNET_COUNT(unknown); i++) {
        assert_int_equal(bnet_op_find(unknown[i]), BNET_OP_NONE);
        assert_int_equal(bnet_format_find(unknown[i]), BNET_FORMAT_NONE);
        assert_int_equal(bnet_dtype_find(unknown[i]), BNET_DTYPE_NONE);
    }
    assert_string_equal(bnet_op_name(BNET_OP_NONE), "");
    assert_string_equal(bnet_op_name(BNET_OPS), "");
    assert_string_equal(bnet_format_name(BNET_FORMATS), "");
    assert_string_equal(bnet_dtype_name((bnet_dtype)-1), "");
}

static void test_every_row_has_names(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    const bnet_kernel_record *k;
    size_t n = 0;
    for (; (k = bnet_registry_at(r, n)) != NULL; n++) {
        const bnet_kernel_record *row = bnet_kernel_row_find(k->id);
        if (!*bnet_op_name(k->op) || !*bnet_format_name(k->format) || !*bnet_dtype_name(k->dtype))
            fail_msg("%s: a part of its key has no name", k->id);
        if (!row || row->op != k->op || row->format != k->format || row->device != k->device)
            fail_msg("%s: its name says another key", k->id);
    }
    assert_true(n > 100);
    bnet_registry_close(r);
}

static void test_tensor_types(void **state)
{
    (void)state;
    static const bnet_type types[] = {
#define TYPE(id, key, block, bytes, kind) BNET_##key,
#include "format/tensor_types.inc"
#undef TYPE
    };
    for (size_t i = 0; i < BNET_COUNT(types); i++)
        assert_int_equal(bnet_format_type(bnet_format_of_type(types[i]))->type, types[i]);
    assert_null(bnet_format_type(BNET_FORMAT_I2S));
    assert_null(bnet_format_type(BNET_FORMAT_NONE));
    assert_int_equal(bnet_format_of_type((bnet_type)12345), BNET_FORMAT_NONE);
    assert_true(bnet_format_ternary(BNET_FORMAT_I2S_B256) && !bnet_format_ternary(BNET_FORMAT_F16));
}

static void test_parts_of_an_operation(void **state)
{
    (void)state;
    assert_int_equal(bnet_op_parts(BNET_OP_LINEAR), BNET_OP_BIT(LINEAR));
    assert_int_equal(bnet_op_parts(BNET_OP_GLU_NORM_QUANTIZE),
                     BNET_OP_BIT(GLU_NORM_QUANTIZE) | BNET_OP_BIT(GLU) | BNET_OP_BIT(RMSNORM) |
                         BNET_OP_BIT(QUANTIZE));
    assert_true(bnet_op_parts(BNET_OP_ADD_NORM_QUANTIZE) & BNET_OP_BIT(ADD));
    assert_false(bnet_op_parts(BNET_OP_NORM_QUANTIZE) & BNET_OP_BIT(ADD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_name_parses_back), cmocka_unit_test(test_what_is_no_name),
        cmocka_unit_test(test_every_row_has_names),    cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_parts_of_an_operation),
    };
    return cmocka_run_group_tests_name("kernel_key", tests, NULL, NULL);
}
