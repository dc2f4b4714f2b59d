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

/* A build with the backend says for what, one without says nothing. */
static void test_DET_18_this_build(void **state)
{
    (void)state;
#ifdef BITNET_HAVE_CUDA
    assert_true(*bnet_cuda_archs() != '\0');
#else
    assert_string_equal(bnet_cuda_archs(), "");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_DET_18_who_is_served),
        cmocka_unit_test(test_DET_18_which_kernels_a_chip_has),
        cmocka_unit_test(test_DET_18_this_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
