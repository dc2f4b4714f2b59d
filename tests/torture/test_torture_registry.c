/* Every allocation of the kernel registry fails once: opening, registering, choosing, saving. */
#include "torture/torture.h"

#include <unistd.h>

#include "ops/provider.h"

static const char path[] = TEST_BINARY_DIR "/torture_tuning.json";

static void nothing(void) {}

static size_t one_cpu(void *user, bnet_capabilities *out, size_t cap)
{
    (void)cap;
    *out = *(const bnet_capabilities *)user;
    return 1;
}

static bitnet_status use(bnet_registry *r, bnet_capabilities *c, bitnet_error *err)
{
    bnet_kernel_record k = {.id = "toy.a",
                            .device = BNET_DEV_CPU,
                            .op = BNET_OP_SOFTMAX,
                            .format = BNET_FORMAT_TL1,
                            .dtype = BNET_DTYPE_I8,
                            .abi = BITNET_KERNEL_ABI,
                            .agreement = "exact",
                            .fn = nothing};
    bnet_kernel_query q = {.op = BNET_OP_SOFTMAX,
                           .format = BNET_FORMAT_TL1,
                           .dtype = BNET_DTYPE_I8,
                           .m = 1,
                           .n = 2,
                           .k = 3};
    const bnet_kernel_record *out;
    bnet_manager *m = NULL;
    bitnet_status st = bnet_registry_add(r, &k, err);
    if (st == BITNET_OK)
        st = bnet_registry_tune(r, &q, "toy.a", err);
    if (st == BITNET_OK)
        st = bnet_registry_select(r, c, &q, &out, err);
    if (st == BITNET_OK)
        st = bnet_registry_save_tuning(r, "key", path, err);
    if (st == BITNET_OK)
        st = bnet_manager_open(r, one_cpu, c, &m, err);
    if (st == BITNET_OK && !bnet_manager_best(m))
        st = BITNET_ERROR;
    bnet_manager_close(m);
    return st;
}

static bitnet_status everything(void *user, bitnet_error *err)
{
    (void)user;
    bnet_registry *r = NULL;
    bnet_capabilities c = {.device = BNET_DEV_CPU};
    bitnet_status st = bnet_registry_open(&r, err);
    if (st == BITNET_OK)
        st = use(r, &c, err);
    bnet_registry_close(r);
    return st;
}

static void one_fails(void **state)
{
    (void)state;
    assert_true(torture(everything, NULL, false, 1) > 50);
    unlink(path);
}

static void all_fail_onward(void **state)
{
    (void)state;
    torture(everything, NULL, true, 1);
    unlink(path);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_fails),
                                       cmocka_unit_test(all_fail_onward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
