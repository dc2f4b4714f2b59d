/* test_arch.c - which chips a list of architectures serves (DET-18). */
#include "test.h"

#include "device/device.h"

static void test_DET_18_who_is_served(void **state)
{
    static const struct {
        const char *archs;
        int cc;
        bool served;
    } rows[] = {
        {"", 80, false},
        {"sm_80", 80, true},
        {"sm_80", 86, true}, /* its own generation from there on */
        {"sm_80", 75, false},
        {"sm_80", 90, false},
        {"sm_86", 80, false},
        {"sm_90a", 90, true}, /* one chip's own instructions */
        {"sm_90a", 100, false},
        {"compute_90a", 90, true}, /* its PTX, too */
        {"compute_90a", 100, false},
        {"compute_90a compute_80", 100, true},
        {"compute_80", 80, true}, /* PTX: all later ones */
        {"compute_80", 120, true},
        {"compute_80", 75, false},
        {"sm_75 sm_90a", 80, false},
        {"sm_75 sm_90a", 90, true},
        {"sm_75 sm_80 sm_90a compute_80", 75, true},
        {"sm_75 sm_80 sm_90a compute_80", 70, false},
        {"sm_75 sm_80 sm_90a compute_80", 121, true},
        {"sm_100", 103, true},
        {"sm_100", 110, false},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++)
        if (bnet_cuda_serves(rows[i].archs, rows[i].cc / 10, rows[i].cc % 10) != rows[i].served)
            fail_msg("\"%s\", %d", rows[i].archs, rows[i].cc);
}

static void test_DET_18_which_kernels_a_chip_has(void **state)
{
    static const struct {
        const char *archs;
        int cc, code;
    } rows[] = {
        {"sm_75 sm_80 sm_90a compute_80", 75, 75},
        {"sm_75 sm_80 sm_90a compute_80", 89, 89},
        {"sm_75 sm_80 sm_90a compute_80", 90, 90},
        {"sm_75 sm_80 sm_90a compute_80", 100, 89},
        {"sm_75 sm_80 sm_90a compute_80", 121, 89},
        {"sm_80 compute_80", 90, 89},
        {"sm_80 compute_80", 86, 86},
        {"compute_90a", 90, 89},
        {"sm_75 compute_75", 86, 75}, /* PTX of 7.5 has none of the kernels of 8.0 */
        {"sm_75 compute_75", 120, 75},
        {"sm_70", 75, 70},
        {"sm_75", 50, 50}, /* not served: nothing is said of it */
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        int major = rows[i].cc / 10, minor = rows[i].cc % 10;
        bnet_cuda_code(rows[i].archs, &major, &minor);
        if (major * 10 + minor != rows[i].code)
            fail_msg("\"%s\", %d: %d.%d", rows[i].archs, rows[i].cc, major, minor);
    }
}

/* Both minima, and advice only where it helps: with a toolkit that begins at 7.5 nothing helps
 * a 6.1. */
static void test_DET_16_D_9_minima_and_advice(void **state)
{
    static const bnet_cuda_build all = {"sm_75 sm_80 sm_90a compute_80", "13.0",
                                        "sm_75 sm_80 sm_86 sm_90 sm_100", 13};
    static const bnet_cuda_build one = {"sm_80", "13.0", "sm_75 sm_80 sm_86 sm_90 sm_100", 13};
    static const bnet_cuda_build old = {"sm_75 sm_80", "12.4", "sm_50 sm_61 sm_70 sm_75 sm_80", 12};
    static const struct {
        const bnet_cuda_build *build;
        const char *api;
        int cc;
        bitnet_status status;
        const char *want;
    } rows[] = {
        {&all, "13.0", 75, BITNET_OK, ""},
        {&all, "13.2", 90, BITNET_OK, ""},
        {&all, "13.0", 0, BITNET_OK, ""}, /* not told: let through */
        {&all, "", 120, BITNET_OK, ""},
        {&all, "13.0", 61, BITNET_NOT_COMPILED,
         "has compute capability 6.1, which this build does not serve: it has kernels for sm_75 "
         "sm_80 sm_90a compute_80 (compute capability 7.5 and later), compiled with CUDA 13.0, "
         "which begins at 7.5; the driver must serve CUDA 13.0 or later; use --device cpu"},
        {&all, "13.0", 70, BITNET_NOT_COMPILED, "or later; use --device cpu"},
        {&one, "13.0", 75, BITNET_NOT_COMPILED, "; build it with CUDA_ARCH=sm_75, or use --device"},
        {&one, "13.0", 100, BITNET_NOT_COMPILED, "; build it with CUDA_ARCH=sm_100, or use"},
        {&one, "13.0", 121, BITNET_NOT_COMPILED, "; build it with CUDA_ARCH=default, or use"},
        {&one, "13.0", 61, BITNET_NOT_COMPILED, "or later; use --device cpu"},
        {&old, "12.4", 61, BITNET_NOT_COMPILED,
         "which begins at 5.0; the driver must serve CUDA "
         "12.0 or later; build it with CUDA_ARCH=sm_61, or"},
        {&all, "12.9", 90, BITNET_NOT_AVAILABLE,
         "the driver serves CUDA 12.9, but this build needs one that serves CUDA 13.0 or later "
         "(and "
         "a device of compute capability 7.5 or later); update the driver"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_gpu g = {.name = "card", .cc_major = rows[i].cc / 10, .cc_minor = rows[i].cc % 10};
        bitnet_error err = {0};
        bitnet_status st = bnet_cuda_check(rows[i].build, rows[i].api, &g, &err);
        print_message("%s\n", err.message);
        assert_int_equal(st, rows[i].status);
        assert_non_null(strstr(err.message, rows[i].want));
        assert_int_equal(bnet_cuda_check(rows[i].build, rows[i].api, &g, NULL), st);
    }
    assert_int_equal(bnet_cuda_least("sm_80 compute_75 sm_90a"), 75);
    assert_int_equal(bnet_cuda_least(""), 0);
}

/* A build with the backend says for what, one without says nothing. */
static void test_DET_18_this_build(void **state)
{
    (void)state;
#ifdef BITNET_HAVE_CUDA
    const bnet_cuda_build *b = &bnet_cuda_this_build;
    assert_true(*bnet_cuda_archs() != '\0' && *b->toolkit && b->driver >= 12);
    assert_true(bnet_cuda_least(b->known) > 0 &&
                bnet_cuda_least(b->known) <= bnet_cuda_least(b->archs));
#else
    assert_string_equal(bnet_cuda_archs(), "");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_DET_18_who_is_served),
        cmocka_unit_test(test_DET_18_which_kernels_a_chip_has),
        cmocka_unit_test(test_DET_16_D_9_minima_and_advice),
        cmocka_unit_test(test_DET_18_this_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
