/* Every allocation of making a synthetic model, of a timed run and of measuring kernels fails once:
 * MEMORY is told, nothing is lost. */
#include "torture/torture.h"

#include "bitnet_tools.h"

static bitnet_status open_runtime(bitnet_runtime **out, bitnet_error *err)
{
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.fake_gpu = "none"; /* no driver of this machine is loaded */
    return bitnet_runtime_open(&o, out, err);
}

static bitnet_status make_model(void *user, bitnet_error *err)
{
    bitnet_synthetic *s = NULL;
    (void)user;
    bitnet_status st = bitnet_synthetic_open("nano", "q6_k", &s, err);
    bitnet_synthetic_close(s);
    return st;
}

static void test_synthetic(void **state)
{
    (void)state;
    torture(make_model, NULL, false, 1); /* its last allocations are done without */
}

static bitnet_status time_once(void *user, bitnet_error *err)
{
    bitnet_bench *b = NULL;
    bitnet_bench_run run;
    bitnet_bench_options o;
    bitnet_bench_options_init(&o);
    o.n_ctx = 16;
    bitnet_status st = bitnet_bench_open(user, &o, &b, err);
    if (st == BITNET_OK)
        st = bitnet_bench_once(b, &(bitnet_bench_test){false, 2, 4, 0}, &run, err);
    if (st == BITNET_OK)
        st = bitnet_bench_once(b, &(bitnet_bench_test){true, 2, 4, 0}, &run, err);
    bitnet_bench_close(b);
    return st;
}

static void ignore(void *user, const bitnet_kernel_rate *rate)
{
    (void)user, (void)rate;
}

static bitnet_status each_kernel(void *user, bitnet_error *err)
{
    return bitnet_bench_each_kernel(user, 2, 1, ignore, NULL, err);
}

static void test_measuring(void **state)
{
    (void)state;
    bitnet_runtime *r = NULL;
    bitnet_synthetic *s = NULL;
    bitnet_engine *e = NULL;
    bitnet_error err;
    assert_int_equal(open_runtime(&r, &err), BITNET_OK);
    assert_int_equal(bitnet_synthetic_open("nano", NULL, &s, &err), BITNET_OK);
    assert_int_equal(bitnet_synthetic_engine(s, r, NULL, &e, &err), BITNET_OK);
    bitnet_synthetic_close(s);
    torture(time_once, e, false, 1);
    torture(time_once, e, true, 1);
    torture(each_kernel, e, false, 7);
    torture(each_kernel, e, true, 7);
    bitnet_engine_close(e);
    bitnet_runtime_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_measuring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
