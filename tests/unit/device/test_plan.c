/* test_plan.c - pure planning over device records: tiers, launches, memory, architectures, access
 * patterns, CUDA errors, the status matrix (DET-13..16, DET-19, DET-20, K-22, M-6, P-7, T-3). */
#include "stand_in.h"

static const uint64_t GB = 1000000000;

/* Cards of the range of DET-16, and some that do not exist. */
static const bnet_gpu cards[] = {
    {.name = "GTX 960",
     .cc_major = 5,
     .cc_minor = 2,
     .total_memory = 4294967296,
     .multiprocessors = 8,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152},
    {.name = "P100",
     .cc_major = 6,
     .cc_minor = 0,
     .total_memory = 17071734784,
     .multiprocessors = 56,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152},
    {.name = "GTX 1060",
     .cc_major = 6,
     .cc_minor = 1,
     .total_memory = 6370295808,
     .multiprocessors = 10,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152},
    {.name = "V100",
     .cc_major = 7,
     .cc_minor = 0,
     .total_memory = 16945512448,
     .multiprocessors = 80,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152,
     .max_shared_memory_optin = 98304},
    {.name = "T4",
     .cc_major = 7,
     .cc_minor = 5,
     .total_memory = 15843721216,
     .multiprocessors = 40,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152},
    {.name = "A100",
     .cc_major = 8,
     .cc_minor = 0,
     .total_memory = 42505273344,
     .multiprocessors = 108,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152},
    {.name = "L4",
     .cc_major = 8,
     .cc_minor = 9,
     .total_memory = 23572709376,
     .multiprocessors = 58,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152},
    {.name = "H100",
     .cc_major = 9,
     .cc_minor = 0,
     .total_memory = 85045870592,
     .multiprocessors = 132,
     .max_threads_per_block = 1024,
     .max_shared_memory_per_block = 49152,
     .max_shared_memory_optin = 232448},
    {.name = "512 threads",
     .cc_major = 6,
     .max_threads_per_block = 512,
     .max_shared_memory_per_block = 16384},
    {.name = "128 threads", .max_threads_per_block = 128, .max_shared_memory_per_block = 16384},
    {.name = "1 KiB shared", .max_threads_per_block = 1024, .max_shared_memory_per_block = 1024},
    {.name = "nothing known"},
};

static void test_DET_13_D_8_D_9_D_10_device_capability_validation(void **state)
{
    static const struct {
        int major, minor;
        bnet_gpu_caps want; /* fp16, tensor cores, bf16, fp8, auto prefers fp16 */
    } rows[] = {
        {0, 0, {0, 0, 0, 0, 0}}, {5, 2, {0, 0, 0, 0, 0}},  {6, 0, {1, 0, 0, 0, 0}},
        {6, 1, {1, 0, 0, 0, 0}}, {7, 0, {1, 1, 0, 0, 1}},  {7, 5, {1, 1, 0, 0, 1}},
        {8, 0, {1, 1, 1, 0, 1}}, {8, 6, {1, 1, 1, 0, 1}},  {8, 9, {1, 1, 1, 1, 1}},
        {9, 0, {1, 1, 1, 1, 1}}, {10, 0, {1, 1, 1, 1, 1}}, {12, 1, {1, 1, 1, 1, 1}},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_gpu_caps c = bnet_gpu_capabilities(rows[i].major, rows[i].minor);
        print_message("CC %d.%d\n", rows[i].major, rows[i].minor);
        assert_int_equal(c.fp16, rows[i].want.fp16);
        assert_int_equal(c.tensor_cores, rows[i].want.tensor_cores);
        assert_int_equal(c.bf16, rows[i].want.bf16);
        assert_int_equal(c.fp8, rows[i].want.fp8);
        assert_int_equal(c.auto_fp16, rows[i].want.auto_fp16);
    }
}

static void test_K_22_D_11_launch_parameters(void **state)
{
    static const uint64_t sizes[] = {1, 15, 16, 17, 31, 32, 33, 100, 2560, 128256};
    static const int blocks[] = {32, 32, 32, 32, 32, 32, 32, 32, 16, 8, 16, 1};
    (void)state;
    for (size_t c = 0; c < BNET_COUNT(cards); c++)
        for (size_t i = 0; i < BNET_COUNT(sizes); i++)
            for (size_t j = 0; j < BNET_COUNT(sizes); j++) {
                uint64_t m = sizes[i], n = sizes[j];
                bnet_launch l = bnet_launch_params(&cards[c], m, n, 64);
                int block = l.block;
                assert_int_equal(block, blocks[c]);
                assert_true(block == 1 || block * block <= cards[c].max_threads_per_block);
                assert_int_equal(l.shared_bytes, 2 * block * block);
                /* x over columns, y over rows; covered, and by no block too many */
                assert_true((uint64_t)l.grid_x * (uint64_t)block >= n);
                assert_true((uint64_t)(l.grid_x - 1) * (uint64_t)block < n);
                if (l.grid_y < 65535) {
                    assert_true((uint64_t)l.grid_y * (uint64_t)block >= m);
                    assert_true((uint64_t)(l.grid_y - 1) * (uint64_t)block < m);
                }
            }
}

static void test_K_22_launch_of_nothing_and_of_far_too_much(void **state)
{
    bnet_gpu g = h200();
    (void)state;
    for (int zero = 0; zero < 3; zero++) {
        bnet_launch l = bnet_launch_params(&g, zero != 0, zero != 1, zero != 2);
        assert_int_equal(l.grid_x, 0);
        assert_int_equal(l.grid_y, 0);
    }
    bnet_launch l = bnet_launch_params(&g, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_int_equal(l.grid_x, INT32_MAX);
    assert_int_equal(l.grid_y, 65535);
    l = bnet_launch_params(&g, 7, 2560, 2560);
    assert_int_equal(l.grid_x, 80);
    assert_int_equal(l.grid_y, 1);
}

static void test_DET_15_persistent_grid(void **state)
{
    static const struct {
        int sms, per_sm, want;
    } rows[] = {{132, 1, 132},
                {132, 2, 264},
                {10, 4, 40},
                {0, 3, 3},
                {80, 0, 80},
                {-1, -1, 1},
                {INT32_MAX, INT32_MAX, INT32_MAX}};
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_gpu g = {.multiprocessors = rows[i].sms};
        assert_int_equal(bnet_persistent_grid(&g, rows[i].per_sm), rows[i].want);
    }
}

static void test_DET_14_D_34_memory_policy(void **state)
{
    static const struct {
        uint64_t gb_tenths;
        const char *policy;
        int batch;
    } rows[] = {
        {0, "conservative", 8}, {40, "conservative", 8}, {79, "conservative", 8},
        {80, "standard", 32},   {120, "standard", 32},   {160, "standard", 32},
        {161, "large", 64},     {240, "large", 64},      {1501, "large", 64},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_gpu g = {.total_memory = rows[i].gb_tenths * GB / 10,
                      .max_shared_memory_per_block = 49152};
        bnet_memory_plan p = bnet_memory_policy(&g);
        assert_string_equal(p.policy, rows[i].policy);
        assert_int_equal(p.max_batch, rows[i].batch);
        assert_true(p.workspace_bytes <= g.total_memory / 10);
        assert_int_equal(p.shared_bytes, 49152);
        g.max_shared_memory_optin = 232448;
        assert_int_equal(bnet_memory_policy(&g).shared_bytes, 232448);
    }
    bnet_gpu g = {.total_memory = 12 * GB};
    assert_int_equal(bnet_memory_policy(&g).workspace_bytes, 12 * GB / 10);
    g.total_memory = 24 * GB;
    assert_int_equal(bnet_memory_policy(&g).workspace_bytes, 24 * GB / 10);
    g.total_memory = 140 * GB;
    assert_int_equal(bnet_memory_policy(&g).workspace_bytes, 8 * GB);
}

/* T-3: the hardware matrix through probe, selection and planning at once. */
static void test_T_3_hardware_matrix(void **state)
{
    static const struct {
        const char *name;
        int n_gpus;
        uint64_t gb;
        int major;
        const char *summary, *policy;
        bool tensor_cores, bf16, fp8;
    } rows[] = {
        {"no-gpu", 0, 0, 0, "requested=auto detected=[cpu] selected=cpu", NULL, 0, 0, 0},
        {"4gb cc6", 1, 4, 6, "requested=auto detected=[cuda,cpu] selected=cuda", "conservative", 0,
         0, 0},
        {"12gb cc7", 1, 12, 7, "requested=auto detected=[cuda,cpu] selected=cuda", "standard", 1, 0,
         0},
        {"24gb cc8", 1, 24, 8, "requested=auto detected=[cuda,cpu] selected=cuda", "large", 1, 1,
         0},
        {"multi-gpu cc9", 4, 80, 9, "requested=auto detected=[cuda,cpu] selected=cuda", "large", 1,
         1, 1},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_world w = {.loader = &stand_in_loader, .root = "/nonexistent"};
        bnet_probe_options o;
        bnet_devices d;
        bnet_request r;
        bnet_selection s;
        bitnet_error err = {0};
        S = (stand_in){.libraries = rows[i].n_gpus ? "libcuda.so.1" : NULL,
                       .n_cuda = rows[i].n_gpus};
        for (int k = 0; k < rows[i].n_gpus; k++) {
            S.cuda[k] = h200();
            S.cuda[k].cc_major = rows[i].major;
            S.cuda[k].total_memory = rows[i].gb * GB;
        }
        w.compiled[BNET_DEV_CUDA] = true;
        bnet_probe_options_init(&o);
        assert_int_equal(bnet_probe_world(&o, &w, &d, &err), BITNET_OK);
        assert_int_equal(bnet_request_parse("auto", "--device", &r, &err), BITNET_OK);
        assert_int_equal(bnet_select(&d, &r, &s, &err), BITNET_OK);
        bool served = !*bnet_cuda_archs() || !rows[i].n_gpus ||
                      bnet_cuda_serves(bnet_cuda_archs(), rows[i].major, 0);
        assert_string_equal(s.summary, served ? rows[i].summary
                                              : "requested=auto detected=[cuda,cpu] selected=cpu");
        assert_int_equal(d.kind[BNET_DEV_CUDA].n_gpus, rows[i].n_gpus);
        for (int k = 0; k < rows[i].n_gpus; k++) {
            const bnet_gpu *g = &d.kind[BNET_DEV_CUDA].gpus[k];
            bnet_gpu_caps c = bnet_gpu_capabilities(g->cc_major, g->cc_minor);
            assert_int_equal(g->device_id, k);
            assert_string_equal(bnet_memory_policy(g).policy, rows[i].policy);
            assert_int_equal(c.tensor_cores, rows[i].tensor_cores);
            assert_int_equal(c.bf16, rows[i].bf16);
            assert_int_equal(g->bf16, rows[i].bf16);
            assert_int_equal(c.fp8, rows[i].fp8);
        }
    }
}

/* ---- errors and documents ---- */

static void test_DET_20_cuda_errors(void **state)
{
    static const struct {
        int code;
        const char *name, *hint;
    } rows[] = {
        {2, "CUDA_ERROR_OUT_OF_MEMORY", "smaller"},
        {100, "CUDA_ERROR_NO_DEVICE", "nvidia-smi"},
        {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "driver is too old"},
        {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "watchdog"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "a build for its architecture"},
        {-1, "an unknown CUDA error", "nvidia-smi"},
        {123456, "an unknown CUDA error", "--device cpu"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        const char *name = NULL;
        const char *hint = bnet_cuda_error_hint(rows[i].code, &name);
        assert_string_equal(name, rows[i].name);
        assert_non_null(strstr(hint, rows[i].hint));
        assert_ptr_equal(bnet_cuda_error_hint(rows[i].code, NULL), hint);
    }
    for (int code = -5; code < 1100; code++) {
        const char *name = NULL, *hint = bnet_cuda_error_hint(code, &name);
        assert_true(name && name[0] && hint && hint[0]);
        assert_true(strlen(hint) < sizeof((bnet_device_status *)0)->hint); /* fits where it goes */
    }
}

/* The table in docs/DEVICES.md is what the code says for a build without GPU backends. */
static void test_DET_19_status_matrix_in_the_docs(void **state)
{
    bool compiled[BNET_DEV_COUNT] = {[BNET_DEV_CPU] = true, [BNET_DEV_HOST] = true};
    bnet_str table = {0};
    static char text[65536];
    (void)state;
    bnet_device_matrix(compiled, &table);
    assert_non_null(strstr(table.data, "| NVIDIA CUDA | `cuda` |"));
    assert_non_null(strstr(table.data, "| AMD ROCm | `hip`, `rocm` |"));
    assert_true(bnet_read_text(TEST_SOURCE_DIR, "/docs/DEVICES.md", text, sizeof text) > 0);
    if (!strstr(text, table.data))
        print_error("docs/DEVICES.md must contain:\n%s", table.data);
    assert_non_null(strstr(text, table.data));
    bnet_str_free(&table);
    compiled[BNET_DEV_CUDA] = true;
    bnet_device_matrix(compiled, &table);
    assert_null(strstr(text, table.data));
    bnet_str_free(&table);
}

/* Auto: BF16 from 8.0, else FP16 from 7.0 (6.x has it, slower than floats), else FP32; by name:
 * what the device has, else FP32. */
static void test_K_18_precision_of_devices(void **state)
{
    (void)state;
    enum { F32 = BITNET_PRECISION_FP32, F16 = BITNET_PRECISION_FP16, BF16 = BITNET_PRECISION_BF16 };
    static const struct {
        int major, minor, wanted, tried[3];
    } cases[] = {{5, 2, BITNET_PRECISION_AUTO, {F32, F32, F32}},
                 {6, 1, BITNET_PRECISION_AUTO, {F32, F32, F32}},
                 {7, 0, BITNET_PRECISION_AUTO, {F16, F32, F32}},
                 {7, 5, BITNET_PRECISION_AUTO, {F16, F32, F32}},
                 {8, 0, BITNET_PRECISION_AUTO, {BF16, F16, F32}},
                 {9, 0, BITNET_PRECISION_AUTO, {BF16, F16, F32}},
                 {5, 2, F16, {F32, F32, F32}},
                 {6, 1, F16, {F16, F32, F32}},
                 {7, 5, BF16, {F32, F32, F32}},
                 {8, 6, BF16, {BF16, F32, F32}},
                 {9, 0, F32, {F32, F32, F32}}};
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        bnet_gpu_caps c = bnet_gpu_capabilities(cases[i].major, cases[i].minor);
        for (int k = 0; k < 3; k++)
            assert_int_equal(bnet_precision_at(&c, (bitnet_precision)cases[i].wanted, k),
                             cases[i].tried[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K_18_precision_of_devices),
        cmocka_unit_test(test_DET_13_D_8_D_9_D_10_device_capability_validation),
        cmocka_unit_test(test_K_22_D_11_launch_parameters),
        cmocka_unit_test(test_K_22_launch_of_nothing_and_of_far_too_much),
        cmocka_unit_test(test_DET_15_persistent_grid),
        cmocka_unit_test(test_DET_14_D_34_memory_policy),
        cmocka_unit_test(test_T_3_hardware_matrix),
        cmocka_unit_test(test_DET_20_cuda_errors),
        cmocka_unit_test(test_DET_19_status_matrix_in_the_docs),
    };
    return cmocka_run_group_tests_name("device/plan", tests, NULL, NULL);
}
