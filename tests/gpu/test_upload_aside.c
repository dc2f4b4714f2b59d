/* test_upload_aside.c - a copy during work that could not be announced to it is waited for before
 * the failure is told: its ends are used again then. On entries of the driver that only take notes.
 */
#include "test.h"

#include "backend/cuda/cuda.h"

static char calls[16]; /* a letter each */
static int fail_at;    /* which of them fails, from 1 */
static int side, work;

static int called(char what)
{
    size_t n = strlen(calls);
    assert_true(n + 1 < sizeof calls);
    calls[n] = what;
    return (int)n + 1 == fail_at ? 700 : 0;
}

static int to_device(cu_ptr dst, const void *src, size_t n, cu_stream s)
{
    (void)dst, (void)src, (void)n;
    assert_ptr_equal(s, &side);
    return called('c');
}

static int record(cu_event e, cu_stream s)
{
    (void)e;
    return called(s == (void *)&side ? 'r' : 'R');
}

static int after(cu_stream s, cu_event e, unsigned flags)
{
    (void)e, (void)flags;
    assert_ptr_equal(s, &work);
    return called('a');
}

static int wait(cu_stream s)
{
    assert_ptr_equal(s, &side);
    return called('w');
}

static void test_who_is_told_may_use_the_memory(void **state)
{
    static const char *const want[] = {"crRa", "c", "crw", "crRw", "crRaw"};
    int ends[2];
    cuda_driver d = {.stream = (cu_stream)&work, .side = (cu_stream)&side};
    (void)state;
    d.ends[0] = (cu_event)&ends[0];
    d.ends[1] = (cu_event)&ends[1];
    d.cu.to_device = to_device;
    d.cu.event_record = record;
    d.cu.stream_after = after;
    d.cu.stream_wait = wait;
    for (fail_at = 0; fail_at < 5; fail_at++) {
        memset(calls, 0, sizeof calls);
        assert_int_equal(bnet_cuda_upload_aside(&d.base, (gpu_at){0}, &d, 1),
                         fail_at ? GPU_LOST : GPU_OK);
        assert_string_equal(calls, want[fail_at]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_is_told_may_use_the_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
