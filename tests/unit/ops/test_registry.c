/* test_registry.c - the kernel registry, requirement by requirement (REG-4 .. REG-15, REG-18,
 * REG-19), with real rows and with synthetic records for machines that are not here. */
#include "test.h"

#include "base/thread.h"
#include "records.h"

#define EVERYTHING 0xffffffffu

static void test_REG_4_key_holds_several_kernels(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    must_add(r, record_of("toy.a", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE));
    must_add(r, record_of("toy.b", "softmax", "tl1", "i8", BITNET_TIER_OPTIMIZED));
    must_add(r,
             record_of("toy.c", "softmax", "tl1", "f32", BITNET_TIER_EXTREMELY)); /* another key */
    bnet_kernel_record gpu = record_of("toy.gpu", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY);
    gpu.device = BNET_DEV_CUDA;
    must_add(r, gpu);
    must_add(r, record_of("toy.d", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE)); /* a, b, d */
    must_select(r, cpu_with(0), ask("softmax", "tl1", "i8", 1, 1, 1), "toy.b");
    must_select(r, cpu_with(0), ask("softmax", "tl1", "f32", 1, 1, 1), "toy.c");
    must_select(r, cuda_with(9, 0), ask("softmax", "tl1", "i8", 1, 1, 1), "toy.gpu");
    /* no part of the key is optional, none matches by its beginning */
    must_select(r, cpu_with(0), ask("softmax", "tl2", "i8", 1, 1, 1), "");
    must_select(r, cpu_with(0), ask("argmax", "tl1", "i8", 1, 1, 1), "");
    must_select(r, cpu_with(0), ask("softmax", "tl1", "f16", 1, 1, 1), "");
    bnet_registry_close(r);
}

static void test_REG_5_record_is_copied(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    char id[] = "toy.copied", isa[] = "neon", agreement[] = "close(4 ulp)", build[] = "cpu";
    bnet_kernel_record k = record_of(id, "softmax", "tl1", "i8", BITNET_TIER_HIGHLY);
    k.isa = isa;
    k.agreement = agreement;
    k.build = build;
    k.temp_bytes = 8192;
    k.alignment = 256;
    k.m = (bitnet_dim_rule){1, 2, 3};
    k.slot = 77;
    must_add(r, k);
    memset(id, 'x', 3);
    memset(isa, 'x', 4), memset(agreement, 'x', 5), memset(build, 'x', 3);
    const bnet_kernel_record *got = bnet_registry_find(r, "toy.copied");
    assert_non_null(got);
    assert_int_equal(got->op, BNET_OP_SOFTMAX);
    assert_int_equal(got->format, BNET_FORMAT_TL1);
    assert_int_equal(got->dtype, BNET_DTYPE_I8);
    assert_string_equal(got->isa, "neon");
    assert_string_equal(got->agreement, "close(4 ulp)");
    assert_string_equal(got->build, "cpu");
    assert_int_equal(got->temp_bytes, 8192);
    assert_int_equal(got->alignment, 256);
    assert_int_equal(got->m.multiple, 3);
    assert_ptr_equal(got, bnet_registry_at(r, got->slot)); /* its own slot, not the caller's */
    assert_int_equal(got->slot, bnet_registry_count(r) - 1);
    assert_null(bnet_registry_at(r, bnet_registry_count(r)));
    assert_null(bnet_registry_find(r, "toy"));
    bnet_registry_close(r);
    bnet_registry_close(NULL);
}

static void test_REG_9_outside_wins_ties(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    bnet_kernel_record low = record_of("low", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE),
                       mine = record_of("mine", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY),
                       later = record_of("later", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY),
                       low_mine =
                           record_of("low_mine", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE);
    bnet_kernel_query q = ask("softmax", "tl1", "i8", 1, 64, 64);
    low_mine.outside = mine.outside = later.outside = true;
    must_add(r, low);
    must_add(r, record_of("tree", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY));
    must_select(r, cpu_with(0), q, "tree");
    must_add(r, low_mine);
    must_select(r, cpu_with(0), q, "tree"); /* a lower tier never wins */
    must_add(r, mine);
    must_add(r, later);
    must_select(r, cpu_with(0), q, "mine"); /* the earlier one of two from outside */
    q.priority = BITNET_PRIORITY_MEMORY;
    must_select(r, cpu_with(0), q, "mine");
    q.priority = BITNET_PRIORITY_REFERENCE;
    must_select(r, cpu_with(0), q, "low"); /* what others are checked against stays the tree's */
    must_add(r, record_of("top", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY));
    q.priority = BITNET_PRIORITY_SPEED;
    must_select(r, cpu_with(0), q, "top");
    bnet_registry_close(r);
}

static void test_REG_6_tiers_are_ordered(void **state)
{
    (void)state;
    assert_true(BITNET_TIER_REFERENCE < BITNET_TIER_OPTIMIZED);
    assert_true(BITNET_TIER_OPTIMIZED < BITNET_TIER_HIGHLY &&
                BITNET_TIER_HIGHLY < BITNET_TIER_EXTREMELY);
    assert_string_equal(bnet_tier_name(BITNET_TIER_REFERENCE), "reference");
    assert_string_equal(bnet_tier_name(BITNET_TIER_EXTREMELY), "extremely");
    assert_string_equal(bnet_tier_name((bitnet_kernel_tier)9), "unknown");
    bnet_registry *r = registry_new();
    static const char *const ids[] = {"t.reference", "t.optimized", "t.highly", "t.extremely"};
    for (int t = 0; t < 4; t++) { /* whatever the order of registration */
        int tier = (t * 3 + 1) % 4;
        must_add(r, record_of(ids[tier], "softmax", "tl1", "i8", (bitnet_kernel_tier)tier));
        bnet_kernel_record twin = record_of(ids[tier] + 1, "softmax", "tl1", "i8",
                                            (bitnet_kernel_tier)tier); /* later: loses ties */
        must_add(r, twin);
    }
    must_select(r, cpu_with(0), ask("softmax", "tl1", "i8", 1, 1, 1), "t.extremely");
    bnet_registry_close(r);
}

static void test_REG_7_shape_rules_at_their_edges(void **state)
{
    (void)state;
    static const struct {
        bitnet_dim_rule rule;
        uint64_t size;
        bool fits;
    } cases[] = {
        {{32, 0, 0}, 31, false},   {{32, 0, 0}, 32, true},      {{32, 0, 0}, 33, true},
        {{0, 64, 0}, 63, true},    {{0, 64, 0}, 64, true},      {{0, 64, 0}, 65, false},
        {{0, 0, 8}, 7, false},     {{0, 0, 8}, 8, true},        {{0, 0, 8}, 9, false},
        {{0, 0, 8}, 16, true},     {{16, 48, 16}, 15, false},   {{16, 48, 16}, 16, true},
        {{16, 48, 16}, 17, false}, {{16, 48, 16}, 48, true},    {{16, 48, 16}, 49, false},
        {{16, 48, 16}, 64, false}, {{1, 0, 1}, 1u << 31, true}, {{32, 0, 0}, 0, true},
    };
    bnet_capabilities c = cpu_with(0);
    char buf[160];
    for (size_t i = 0; i < BNET_COUNT(cases); i++)
        for (int dim = 0; dim < 3; dim++) {
            bnet_kernel_record k =
                record_of("toy.rule", "softmax", "tl1", "i8", BITNET_TIER_OPTIMIZED);
            uint64_t size[3] = {1, 1, 1};
            *(dim == 0 ? &k.m : dim == 1 ? &k.n : &k.k) = cases[i].rule;
            size[dim] = cases[i].size;
            bnet_kernel_query q = ask("softmax", "tl1", "i8", size[0], size[1], size[2]);
            const char *why = bnet_kernel_veto(&k, &c, &q, buf, sizeof buf);
            if ((*why == '\0') != cases[i].fits)
                fail_msg("case %zu on %c: '%s'", i, "MNK"[dim], why);
            if (*why && why[0] != "MNK"[dim])
                fail_msg("case %zu: '%s' does not name %c", i, why, "MNK"[dim]);
        }
}

static void test_REG_8_each_feature_requirement(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    bnet_kernel_record k = record_of("toy.scalar", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE);
    must_add(r, k);
    k = record_of("toy.avx2", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY);
    k.needs = BNET_CPU_AVX2;
    k.isa = "avx2";
    must_add(r, k);
    k = record_of("toy.avx512", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY);
    k.needs = BNET_CPU_AVX512F | BNET_CPU_AVX512BW;
    k.isa = "avx512";
    must_add(r, k);
    bnet_kernel_query q = ask("softmax", "tl1", "i8", 1, 1, 1);
    uint32_t avx512 = BNET_CPU_AVX2 | BNET_CPU_AVX512F | BNET_CPU_AVX512BW;
    must_select(r, cpu_with(0), q, "toy.scalar");
    must_select(r, cpu_with(BNET_CPU_NEON | BNET_CPU_DOTPROD), q, "toy.scalar");
    must_select(r, cpu_with(BNET_CPU_AVX2), q, "toy.avx2");
    must_select(r, cpu_with(BNET_CPU_AVX2 | BNET_CPU_AVX512F), q, "toy.avx2"); /* one bit short */
    must_select(r, cpu_with(avx512), q, "toy.avx512");
    char buf[160];
    bnet_capabilities c = cpu_with(BNET_CPU_AVX2 | BNET_CPU_AVX512F);
    assert_non_null(strstr(bnet_kernel_veto(bnet_registry_find(r, "toy.avx512"), &c, &q, buf, 160),
                           "needs avx512bw"));
    bnet_registry_close(r);
}

/* How many rows have a function; these are registered, the others, of other architectures, not. */
static size_t runnable(const bnet_registry *r, const bnet_kernel_record *rows, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if ((bnet_registry_find(r, rows[i].id) != NULL) != (rows[i].fn != NULL))
            fail_msg("%s: registered without a function, or not with one", rows[i].id);
        found += rows[i].fn != NULL;
    }
    return found;
}

static void test_REG_9_registration(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    size_t n = bnet_registry_count(r), n_rows = 0, n_of;
    const bnet_kernel_record *rows;
#define BACKEND(name)                                                                              \
    rows = bnet_##name##_kernel_rows(&n_of);                                                       \
    n_rows += runnable(r, rows, n_of);
#include "ops/backends.inc"
#undef BACKEND
    assert_int_equal(n, n_rows); /* every backend's rows are there from the start, each of them */
    uint32_t before = bnet_registry_generation(r);
    bnet_kernel_record k =
        record_of("linear_i2s.mine", "linear", "i2s", "i8", BITNET_TIER_EXTREMELY);
    must_add(r, k);
    assert_true(bnet_registry_generation(r) != before);
    must_select(r, cpu_with(0), ask("linear", "i2s", "i8", 1, 64, 128), "linear_i2s.mine");
    bitnet_error err = {0};
    assert_int_equal(bnet_registry_add(r, &k, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "linear_i2s.mine"));
    char id[32];
    for (size_t i = n + 1; i < BNET_KERNELS_MAX; i++) {
        snprintf(id, sizeof id, "toy.%zu", i);
        must_add(r, record_of(id, "softmax", "tl1", "i8", BITNET_TIER_REFERENCE));
    }
    k.id = "toy.too_many";
    assert_int_equal(bnet_registry_add(r, &k, &err), BITNET_MEMORY);
    assert_int_equal(bnet_registry_count(r), BNET_KERNELS_MAX);
    bnet_registry_close(r);
}

static void test_REG_9_refuses_incomplete_records(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    const bnet_kernel_record good =
        record_of("toy.x", "softmax", "tl1", "i8", BITNET_TIER_OPTIMIZED);
    struct {
        bnet_kernel_record k;
        const char *says;
    } bad[] = {{good, "id"},        {good, "op"},    {good, "format"}, {good, "dtype"},
               {good, "agreement"}, {good, "fn"},    {good, "device"}, {good, "tier"},
               {good, "alignment"}, {good, "build"}, {good, "min"},    {good, "op"}};
    bad[0].k.id = NULL;
    bad[1].k.op = BNET_OP_NONE;
    bad[2].k.format = BNET_FORMATS;
    bad[3].k.dtype = BNET_DTYPE_NONE;
    bad[4].k.agreement = NULL;
    bad[5].k.fn = NULL;
    bad[6].k.device = BNET_DEV_COUNT;
    bad[7].k.tier = (bitnet_kernel_tier)7;
    bad[8].k.alignment = 48;
    bad[9].k.build = "quantum";
    bad[10].k.n = (bitnet_dim_rule){9, 8, 0};
    bad[11].k.op = BNET_OPS;
    size_t n = bnet_registry_count(r);
    for (size_t i = 0; i < BNET_COUNT(bad); i++) {
        bitnet_error err = {0};
        assert_int_equal(bnet_registry_add(r, &bad[i].k, &err), BITNET_ARGUMENT);
        if (!strstr(err.message, bad[i].says))
            fail_msg("case %zu: \"%s\" does not say %s", i, err.message, bad[i].says);
    }
    assert_int_equal(bnet_registry_count(r), n);
    bnet_registry_close(r);
}

static bool has(const bnet_registry *r, const bnet_capabilities *c, const char *op,
                const char *format, const char *dtype)
{
    return bnet_registry_has(r, c, bnet_op_find(op), bnet_format_find(format),
                             bnet_dtype_find(dtype));
}

static void test_REG_10_has_kernel(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    bnet_capabilities cpu = cpu_with(0), cuda = cuda_with(9, 0);
    assert_true(has(r, &cpu, "linear", "i2s", "i8"));
    assert_true(has(r, &cpu, "linear", "f16", "f32"));
    static const char *const unknown[][3] = {
        {"linear", "unknown", "i8"},
        {"linear", "i2s", "f16"},
        {"linear", "q4_k", "f32"},
        {"convolve", "i2s", "i8"},
        {"", "", ""},
        {"linear", "", "i8"},
    };
    for (size_t i = 0; i < BNET_COUNT(unknown); i++)
        if (has(r, &cpu, unknown[i][0], unknown[i][1], unknown[i][2]))
            fail_msg("(%s, %s, %s) does not exist", unknown[i][0], unknown[i][1], unknown[i][2]);
    cuda.builds = 1u << BNET_DEV_CPU; /* a build without that backend has none of its kernels */
    assert_false(has(r, &cuda, "linear", "i2s", "i8"));
    bnet_kernel_record k = record_of("toy.avx512", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY);
    k.needs = BNET_CPU_AVX512F;
    must_add(r, k);
    assert_false(has(r, &cpu, "softmax", "tl1", "i8")); /* there, but not for this CPU */
    cpu = cpu_with(BNET_CPU_AVX512F);
    assert_true(has(r, &cpu, "softmax", "tl1", "i8"));
    bnet_registry_close(r);
}

static void test_REG_11_each_condition_alone_vetoes(void **state)
{
    (void)state;
    bnet_kernel_record k = record_of("toy.gpu", "softmax", "tl1", "f16", BITNET_TIER_EXTREMELY);
    k.device = BNET_DEV_CUDA;
    k.build = "cuda";
    k.needs = BNET_CUDA_NEED(75) | BNET_CUDA_NEED(TENSOR_CORES);
    k.need_name = bnet_cuda_need_name;
    k.m = (bitnet_dim_rule){.multiple = 8};
    const bnet_capabilities all = cuda_with(8, 0);
    const bnet_kernel_query fits = ask("softmax", "tl1", "f16", 16, 16, 16);
    struct {
        bnet_capabilities c;
        bnet_kernel_query q;
        const char *says;
    } cases[] = {{all, fits, ""},
                 {all, fits, "runs on cuda, not on hip"},
                 {all, fits, "no cuda backend"},
                 {all, fits, "needs compute capability 7.5, the device has compute capability 7.4"},
                 {all, fits, "needs compute capability 7.5, the device has compute capability 6.9"},
                 {all, fits, "tensor cores"},
                 {all, fits, "M = 12 is not a multiple of 8"},
                 {all, fits, "takes f16 activations, not f32"},
                 {all, fits, "takes tl1 weights, not tl2"},
                 {all, fits, "does softmax, not argmax"}};
    cases[1].c.device = BNET_DEV_HIP;
    cases[2].c.builds = 1u << BNET_DEV_CPU;
    cases[3].c = cuda_with(7, 4);
    cases[4].c = cuda_with(6, 9);
    cases[4].c.has |= BNET_CUDA_NEED(TENSOR_CORES);
    cases[5].c.has &= ~BNET_CUDA_NEED(TENSOR_CORES);
    cases[6].q.m = 12;
    cases[7].q.dtype = BNET_DTYPE_F32;
    cases[8].q.format = BNET_FORMAT_TL2;
    cases[9].q.op = BNET_OP_ARGMAX;
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        char buf[160];
        const char *why = bnet_kernel_veto(&k, &cases[i].c, &cases[i].q, buf, sizeof buf);
        if (*cases[i].says ? !strstr(why, cases[i].says) : *why)
            fail_msg("case %zu: '%s', wanted '%s'", i, why, cases[i].says);
    }
}

/* The tree's own CPU rows: what each kind of machine gets for one token and for a batch. */
static void test_REG_12_default_cpu_set(void **state)
{
    (void)state;
    static const struct {
        uint32_t features;
        const char *one, *many;
    } machines[] = {
        {0, "linear_i2s.scalar", "linear_i2s.scalar"},
#if defined(__aarch64__)
        {BNET_CPU_NEON, "linear_i2s.neon", "linear_i2s.neon"},
        {BNET_CPU_NEON | BNET_CPU_DOTPROD, "linear_i2s.dotprod", "matmul_i2s.dotprod"},
#elif defined(__x86_64__)
        {BNET_CPU_SSSE3 | BNET_CPU_SSE41 | BNET_CPU_AVX2 | BNET_CPU_FMA | BNET_CPU_F16C,
         "linear_i2s.avx2", "matmul_i2s.avx2"},
#endif
    };
    bnet_registry *r = registry_new();
    for (size_t i = 0; i < BNET_COUNT(machines); i++) {
        must_select(r, cpu_with(machines[i].features), ask("linear", "i2s", "i8", 1, 2560, 2560),
                    machines[i].one);
        must_select(r, cpu_with(machines[i].features), ask("linear", "i2s", "i8", 512, 2560, 2560),
                    machines[i].many);
    }
    const bnet_kernel_record *k = bnet_registry_find(r, "linear_i2s.scalar");
    assert_int_equal(k->tier, BITNET_TIER_REFERENCE);
    assert_int_equal(k->temp_bytes, 0);
    assert_int_equal(k->k.multiple, 128);
    assert_int_equal(k->n.max, 0); /* a head of 128256 rows is no problem */
    must_select(r, cpu_with(0), ask("linear", "f16", "f32", 1, 128256, 2560), "linear_f16.scalar");
    /* every scalar row can run anywhere, and each has a name of its own */
    for (size_t i = 0; (k = bnet_registry_at(r, i)) != NULL; i++) {
        assert_ptr_equal(bnet_registry_find(r, k->id), k);
        assert_int_equal(k->slot, i);
        assert_true(k->device != BNET_DEV_CPU ||
                    (strcmp(k->isa, "scalar") == 0) == (k->needs == 0));
    }
    bnet_registry_close(r);
}

/* GPUs by compute capability, with records as a CUDA backend registers them. */
static void test_REG_13_cuda_records_by_capability(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    bnet_kernel_record k = record_of("gemv.sm_60", "linear", "i2s", "f16", BITNET_TIER_OPTIMIZED);
    k.device = BNET_DEV_CUDA;
    k.build = "cuda";
    k.needs = BNET_CUDA_NEED(60);
    k.need_name = bnet_cuda_need_name;
    k.m = (bitnet_dim_rule){.max = 31};
    must_add(r, k);
    k.id = "gemm.sm_60";
    k.tier = BITNET_TIER_HIGHLY;
    k.m = (bitnet_dim_rule){.min = 32};
    k.temp_bytes = 8192;
    must_add(r, k);
    k.id = "gemm_tc.sm_70";
    k.tier = BITNET_TIER_EXTREMELY;
    k.needs = BNET_CUDA_NEED(70) | BNET_CUDA_NEED(TENSOR_CORES);
    k.m = k.n = (bitnet_dim_rule){.multiple = 8};
    must_add(r, k);
    k.id = "gemm_fp8.sm_90";
    k.needs = BNET_CUDA_NEED(90) | BNET_CUDA_NEED(TENSOR_CORES);
    k.m = (bitnet_dim_rule){.min = 64, .multiple = 64};
    must_add(r, k); /* the same tier as the one before it: wins nothing by being newer */
    static const struct {
        int major, minor;
        uint64_t m;
        const char *id;
    } cases[] = {
        {5, 2, 1, ""},
        {6, 0, 1, "gemv.sm_60"},
        {6, 1, 1, "gemv.sm_60"},
        {6, 1, 31, "gemv.sm_60"},
        {6, 1, 32, "gemm.sm_60"},
        {6, 1, 512, "gemm.sm_60"},
        {7, 0, 1, "gemv.sm_60"},
        {7, 0, 512, "gemm_tc.sm_70"},
        {7, 0, 511, "gemm.sm_60"},
        {9, 0, 1, "gemv.sm_60"},
        {9, 0, 512, "gemm_tc.sm_70"},
    };
    for (size_t i = 0; i < BNET_COUNT(cases); i++)
        must_select(r, cuda_with(cases[i].major, cases[i].minor),
                    ask("linear", "i2s", "f16", cases[i].m, 2560, 2560), cases[i].id);
    bnet_capabilities cpu_build = cuda_with(9, 0);
    cpu_build.builds = 1u << BNET_DEV_CPU; /* the same card, a build without CUDA */
    must_select(r, cpu_build, ask("linear", "i2s", "f16", 1, 2560, 2560), "");
    bnet_registry_close(r);
}

static void test_REG_14_gemv_for_one_gemm_for_many(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    bnet_kernel_record gemv = record_of("gemv", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY),
                       gemm = record_of("gemm", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY),
                       small = record_of("small", "softmax", "tl1", "i8", BITNET_TIER_OPTIMIZED),
                       plain = record_of("plain", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE);
    gemv.temp_bytes = 100;
    gemm.m.min = 16;
    gemm.temp_bytes = 4096;
    plain.temp_bytes = 7;
    must_add(r, gemv);
    must_add(r, gemm);
    must_add(r, small);
    must_add(r, plain);
    bnet_kernel_query q = ask("softmax", "tl1", "i8", 1, 64, 64);
    must_select(r, cpu_with(0), q, "gemv");
    q.m = 512;
    must_select(r, cpu_with(0), q, "gemm");
    q.priority = BITNET_PRIORITY_MEMORY;
    must_select(r, cpu_with(0), q, "small");
    q.priority = BITNET_PRIORITY_REFERENCE;
    must_select(r, cpu_with(0), q, "plain");
    bnet_registry_close(r);
}

static void test_REG_15_messages_name_every_field(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    const bnet_kernel_record *out = NULL;
    bitnet_error err = {0};
    bnet_capabilities c = cpu_with(0);
    const bitnet_kernel_query names = {
        .op = "linear", .format = "unknown", .dtype = "i8", .m = 1, .n = 2, .k = 3};
    bnet_kernel_query q;
    assert_int_equal(bnet_query_read(&names, BNET_DEV_CPU, &q, &err), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(err.message, "UnsupportedKernelConfiguration{device: cpu, qtype: "
                                        "unknown, operation: linear}"));
    bnet_kernel_record k = record_of("toy.wide", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY);
    k.k.multiple = 256;
    must_add(r, k);
    k.id = "toy.avx2";
    k.needs = BNET_CPU_AVX2;
    k.k.multiple = 1;
    must_add(r, k);
    q = ask("softmax", "tl1", "i8", 5, 6, 700);
    assert_int_equal(bnet_registry_select(r, &c, &q, &out, &err), BITNET_NOT_AVAILABLE);
    static const char *const parts[] = {"NoCompatibleKernel{device: cpu, qtype: tl1",
                                        "operation: softmax, dtype: i8, m: 5, n: 6, k: 700}",
                                        "toy.wide: K = 700 is not a multiple of 256",
                                        "toy.avx2: needs avx2"};
    for (size_t i = 0; i < BNET_COUNT(parts); i++)
        if (!strstr(err.message, parts[i]))
            fail_msg("\"%s\" does not say \"%s\"", err.message, parts[i]);
    assert_null(out);
    assert_int_equal(bnet_registry_select(r, &c, &q, &out, NULL), BITNET_NOT_AVAILABLE);
    bnet_registry_close(r);
}

static void test_REG_18_abi_version(void **state)
{
    (void)state;
    bnet_registry *r = registry_new();
    bnet_kernel_record k = record_of("toy.old", "softmax", "tl1", "i8", BITNET_TIER_HIGHLY);
    bitnet_error err = {0};
    for (uint32_t abi = 0; abi < 4; abi++) {
        k.abi = abi;
        bitnet_status st = bnet_registry_add(r, &k, &err);
        assert_int_equal(st, abi == BITNET_KERNEL_ABI ? BITNET_OK : BITNET_ARGUMENT);
        if (st != BITNET_OK)
            assert_non_null(strstr(err.message, "ABI"));
    }
    bnet_registry_close(r);
}

/* ns per selection, best of several rounds */
static double lookup_ns(const bnet_registry *r, const bnet_capabilities *c, bnet_kernel_query q)
{
    enum { N = 2000 };
    double best = 1e9;
    for (int round = 0; round < 400; round++) {
        const bnet_kernel_record *k = NULL;
        double start = bnet_now_ms();
        for (int i = 0; i < N; i++) {
            q.m = (uint64_t)(i & 511) + 1;
            if (bnet_registry_select(r, c, &q, &k, NULL) != BITNET_OK)
                fail_msg("nothing selected");
        }
        double ns = (bnet_now_ms() - start) * 1e6 / N;
        best = ns < best ? ns : best;
    }
    return best;
}

static void test_REG_19_lookup_and_init_cost(void **state)
{
    (void)state;
    double init_ms = 1e9;
    bnet_registry *r = NULL;
    for (int i = 0; i < 20; i++) { /* the best of many: other work may run beside us */
        bnet_registry_close(r);
        double start = bnet_now_ms();
        r = registry_new();
        init_ms = BNET_MIN(init_ms, bnet_now_ms() - start);
    }
    bnet_capabilities c = cpu_with(bnet_cpu_features());
    bnet_kernel_query q = ask("linear", "i2s", "i8", 1, 2560, 2560);
    double plain = lookup_ns(r, &c, q);
    q.m = 1;
    assert_int_equal(bnet_registry_tune(r, &q, "linear_i2s.scalar", NULL), BITNET_OK);
    double tuned = lookup_ns(r, &c, q);
    print_message("init %.3f ms; lookup with constraint check %.1f ns, with a tuning cache %.1f "
                  "ns\n",
                  init_ms, plain, tuned);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    double slow = test_quick() ? 50 : 1; /* an emulator of a slow machine takes long */
    assert_true(init_ms < 5 * slow);
    assert_true(plain < 100 * slow && tuned < 100 * slow);
#endif
    bnet_registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_REG_4_key_holds_several_kernels),
        cmocka_unit_test(test_REG_5_record_is_copied),
        cmocka_unit_test(test_REG_6_tiers_are_ordered),
        cmocka_unit_test(test_REG_9_outside_wins_ties),
        cmocka_unit_test(test_REG_7_shape_rules_at_their_edges),
        cmocka_unit_test(test_REG_8_each_feature_requirement),
        cmocka_unit_test(test_REG_9_registration),
        cmocka_unit_test(test_REG_9_refuses_incomplete_records),
        cmocka_unit_test(test_REG_10_has_kernel),
        cmocka_unit_test(test_REG_11_each_condition_alone_vetoes),
        cmocka_unit_test(test_REG_12_default_cpu_set),
        cmocka_unit_test(test_REG_13_cuda_records_by_capability),
        cmocka_unit_test(test_REG_14_gemv_for_one_gemm_for_many),
        cmocka_unit_test(test_REG_15_messages_name_every_field),
        cmocka_unit_test(test_REG_18_abi_version),
        cmocka_unit_test(test_REG_19_lookup_and_init_cost),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
