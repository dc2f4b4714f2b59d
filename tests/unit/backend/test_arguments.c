/* test_arguments.c - lists of kernel arguments as the one struct that drivers pass by value. */
#include "test.h"

#include <stddef.h>

#include "backend/gpu/driver.h"

static uint64_t address(gpu_driver *d, gpu_memory m)
{
    (void)d;
    return (uint64_t)(uintptr_t)m;
}

static const gpu_calls calls = {.address = address};

typedef struct mixed {
    uint64_t first;
    int32_t i;
    float f;
    uint64_t none;
    int32_t alone; /* padded to eight bytes before n */
    uint64_t n;
    int32_t last; /* and at the end */
} mixed;

static void test_members_lie_as_in_c(void **state)
{
    (void)state;
    gpu_driver d = {.c = &calls};
    char memory[64];
    const gpu_at place = {(gpu_memory)(void *)memory, 16};
    const gpu_arg args[] = {gpu_arg_at(place), gpu_arg_i32(-7),
                            gpu_arg_f32(1.5f), gpu_arg_at(gpu_plus((gpu_at){0}, 99)),
                            gpu_arg_i32(3),    gpu_arg_u64(UINT64_C(1) << 40),
                            gpu_arg_i32(9)};
    mixed m;
    memset(&m, 0xee, sizeof m);
    assert_int_equal(bnet_gpu_pack_args(&d, args, 7, &m, sizeof m), sizeof m);
    assert_true(m.first == (uint64_t)(uintptr_t)(memory + 16));
    assert_int_equal(m.i, -7);
    assert_true(m.f == 1.5f);
    assert_true(m.none == 0);
    assert_int_equal(m.alone, 3);
    assert_true(m.n == UINT64_C(1) << 40);
    assert_int_equal(m.last, 9);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    gpu_driver d = {.c = &calls};
    const gpu_arg args[] = {gpu_arg_u64(1), gpu_arg_i32(2)};
    const gpu_arg whole = {GPU_ARG_STRUCT, {.whole = args}};
    uint64_t out[2];
    assert_int_equal(bnet_gpu_pack_args(&d, args, 2, out, 16), 16);
    assert_int_equal(bnet_gpu_pack_args(&d, args, 2, out, 15), 0);
    assert_int_equal(bnet_gpu_pack_args(&d, args, 2, out, 8), 0);
    assert_int_equal(bnet_gpu_pack_args(&d, &whole, 1, out, 16), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_members_lie_as_in_c),
                                       cmocka_unit_test(test_what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
