/* Every allocation of a look at the devices fails once. */
#include "torture/torture.h"

#include "bitnet_tools.h"

static bitnet_status look(void *user, bitnet_error *err)
{
    bitnet_devices_options o;
    bitnet_devices *d = NULL;
    bitnet_devices_options_init(&o);
    o.gpu_fake = user; /* no driver of this machine is loaded: only our own allocations count */
    bitnet_status st = bitnet_devices_open(&o, &d, err);
    if (st == BITNET_OK)
        assert_non_null(bitnet_devices_json(d, BITNET_DEVICES_LIST));
    bitnet_devices_close(d);
    return st;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    torture(look, (char *)"cuda,rocm", false, 1);
}

static void test_all_allocations_fail_from_the_nth_on(void **state)
{
    (void)state;
    torture(look, (char *)"none", true, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_fails),
        cmocka_unit_test(test_all_allocations_fail_from_the_nth_on),
    };
    return cmocka_run_group_tests_name("torture/devices", tests, NULL, NULL);
}
