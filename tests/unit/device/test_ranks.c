/* test_ranks.c - several devices by name, how they are divided among, what is virtual (P-3). */
#include "stand_in.h"

static bnet_devices machine(int n_gpus)
{
    bnet_devices d;
    memset(&d, 0, sizeof d);
    d.kind[BNET_DEV_CPU].compiled = d.kind[BNET_DEV_CPU].available = true;
    d.kind[BNET_DEV_CPU].runnable = true;
    bnet_device_status *s = &d.kind[BNET_DEV_CUDA];
    s->compiled = s->available = s->runnable = n_gpus > 0;
    s->n_gpus = n_gpus;
    for (int i = 0; i < n_gpus; i++)
        snprintf(s->gpus[i].name, sizeof s->gpus[i].name, "card %d", i);
    return d;
}

static bitnet_status choose(int n_gpus, const char *device, const char *split, bnet_selection *out,
                            bitnet_error *err)
{
    bnet_devices d = machine(n_gpus);
    bnet_request r;
    bitnet_status st = bnet_request_parse(device, "--device", &r, err);
    if (st == BITNET_OK)
        st = bnet_request_split(split, "--split", &r, err);
    return st == BITNET_OK ? bnet_select(&d, &r, out, err) : st;
}

static void test_P_3_lists_and_splits(void **state)
{
    static const struct {
        int n_gpus;
        const char *device, *split, *summary;
        int n, n_devices;
    } rows[] = {
        {1, "cuda", NULL, "requested=cuda detected=[cuda,cpu] selected=cuda", 0, 0},
        {2, "cuda", NULL, "requested=cuda detected=[cuda,cpu] selected=cuda", 0, 0},
        {2, "cuda", "none", "requested=cuda detected=[cuda,cpu] selected=cuda", 0, 0},
        {1, "cuda", "tensor", "requested=cuda detected=[cuda,cpu] selected=cuda", 1, 1},
        {2, "cuda:1", "none", "requested=cuda:1 detected=[cuda,cpu] selected=cuda:1", 0, 0},
        {2, "cuda", "tensor",
         "requested=cuda detected=[cuda,cpu] selected=cuda:0,cuda:1 split=tensor", 2, 2},
        {2, "CUDA:1,cuda:0", NULL,
         "requested=cuda:1,cuda:0 detected=[cuda,cpu] selected=cuda:1,cuda:0 split=layer", 2, 2},
        {1, "cuda:0,cuda:0", "Tensor",
         "requested=cuda:0,cuda:0 detected=[cuda,cpu] selected=cuda:0,cuda:0 split=tensor (2 "
         "virtual ranks on one device)",
         2, 1},
        {2, "cuda:0,cuda:1,cuda:1", "layer",
         "requested=cuda:0,cuda:1,cuda:1 detected=[cuda,cpu] selected=cuda:0,cuda:1,cuda:1 "
         "split=layer (3 virtual ranks on 2 devices)",
         3, 2},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_selection s;
        bitnet_error err = {0};
        assert_int_equal(choose(rows[i].n_gpus, rows[i].device, rows[i].split, &s, &err),
                         BITNET_OK);
        assert_string_equal(s.summary, rows[i].summary);
        assert_int_equal(s.ranks.n, rows[i].n);
        assert_int_equal(bnet_ranks_devices(&s.ranks), rows[i].n_devices);
    }
}

static void test_sixteen_of_them(void **state)
{
    char list[200] = "", more[220];
    bnet_selection s;
    bitnet_error err = {0};
    (void)state;
    for (int i = 0; i < BNET_GPUS_MAX; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%scuda:%d", i ? "," : "", i);
    assert_int_equal(choose(16, list, NULL, &s, &err), BITNET_OK);
    assert_int_equal(s.ranks.n, 16);
    assert_non_null(strstr(s.summary, "cuda:14,cuda:15 split=layer"));
    bnet_select_cpu(&s);
    assert_int_equal(s.ranks.n, 0);
    assert_non_null(strstr(s.summary, "selected=cpu"));
    snprintf(more, sizeof more, "%s,cuda:0", list);
    assert_int_equal(choose(16, more, NULL, &s, &err), BITNET_ARGUMENT);
}

static void test_wishes_that_are_refused(void **state)
{
    static const struct {
        const char *device, *split;
        bitnet_status status;
        const char *says;
    } rows[] = {
        {"cuda:0,", NULL, BITNET_ARGUMENT, "not a list of devices"},
        {",", NULL, BITNET_ARGUMENT, "not a list of devices"},
        {"cuda,cuda", NULL, BITNET_ARGUMENT, "each with its number"},
        {"cuda:0,hip:0", NULL, BITNET_ARGUMENT, "of one kind"},
        {"cpu,cpu", NULL, BITNET_ARGUMENT, "not a list"},
        {"cuda:0,auto", NULL, BITNET_ARGUMENT, "not a list"},
        {"cuda:0,cuda:1,cuda:00000000000000000000000", NULL, BITNET_ARGUMENT, "not a list"},
        {"cuda:0,cuda:1", "none", BITNET_ARGUMENT, "several devices are named (cuda:0,cuda:1)"},
        {"cuda:0,cuda:1", "rows", BITNET_ARGUMENT, "is none of none, layer, tensor"},
        {"cpu", "layer", BITNET_ARGUMENT, "but the device is cpu"},
        {"auto", "tensor", BITNET_ARGUMENT, "but the device is auto"},
        {"gpu", "tensor", BITNET_ARGUMENT, "but the device is gpu"},
        {"cuda:0", "tensor", BITNET_ARGUMENT,
         "but only cuda:0 is named; name several (cuda:0,cuda:0"},
        {"cuda:1", "layer", BITNET_ARGUMENT, "but only cuda:1 is named"},
        {"cuda:0,cuda:2", NULL, BITNET_NOT_AVAILABLE, "fewer devices: cuda:0 (card 0), cuda:1"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_selection s;
        bitnet_error err = {0};
        assert_int_equal(choose(2, rows[i].device, rows[i].split, &s, &err), rows[i].status);
        if (!strstr(err.message, rows[i].says))
            fail_msg("%s: %s", rows[i].device, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_3_lists_and_splits),
        cmocka_unit_test(test_sixteen_of_them),
        cmocka_unit_test(test_wishes_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
