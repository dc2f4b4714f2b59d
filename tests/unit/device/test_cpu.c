/* test_cpu.c - CPU features from register values of known machines, and the rest from made-up /proc
 * and /sys (DET-17, D-35). Both architectures are decoded on any host. */
#include "stand_in.h"

#include "device/cpu_features.h"

#define AVX512 (BNET_CPU_AVX512F | BNET_CPU_AVX512BW | BNET_CPU_AVX512VL | BNET_CPU_AVX512DQ)
#define SSE    (BNET_CPU_SSSE3 | BNET_CPU_SSE41)
#define AVX2   (SSE | BNET_CPU_FMA | BNET_CPU_F16C | BNET_CPU_AVX2)

/* leaf 1 ecx: SSSE3 9, FMA 12, SSE4.1 19, OSXSAVE 27, AVX 28, F16C 29 */
#define ECX_SSE   (1u << 9 | 1u << 19)
#define ECX_AVX   (ECX_SSE | 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29)
#define EBX_AVX2  (1u << 5)
#define EBX_512   (EBX_AVX2 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)
#define ECX7_ICX  (1u << 1 | 1u << 11)
#define EDX7_SPR  (1u << 22 | 1u << 23 | 1u << 24 | 1u << 25)
#define EAX71_SPR (1u << 4 | 1u << 5)

static void test_x86_64_feature_detection(void **state)
{
    static const struct {
        const char *machine;
        bnet_x86_regs r;
        uint32_t want;
    } rows[] = {
        {"nothing", {0}, 0},
        {"Nehalem", {.ecx1 = ECX_SSE}, SSE},
        {"Haswell", {.ecx1 = ECX_AVX, .ebx7 = EBX_AVX2, .xcr0 = 7}, AVX2},
        {"Haswell, system does not save YMM", {.ecx1 = ECX_AVX, .ebx7 = EBX_AVX2, .xcr0 = 3}, SSE},
        {"Haswell, no OSXSAVE", {.ecx1 = ECX_AVX & ~(1u << 27), .ebx7 = EBX_AVX2}, SSE},
        {"Sandy Bridge", {.ecx1 = ECX_SSE | 1u << 27 | 1u << 28, .xcr0 = 7}, SSE},
        {"AVX2 without F16C",
         {.ecx1 = ECX_AVX & ~(1u << 29), .ebx7 = EBX_AVX2, .xcr0 = 7},
         SSE | BNET_CPU_FMA},
        {"Alder Lake",
         {.ecx1 = ECX_AVX, .ebx7 = EBX_AVX2, .eax71 = 1u << 4, .xcr0 = 7},
         AVX2 | BNET_CPU_AVXVNNI},
        {"Skylake-X", {.ecx1 = ECX_AVX, .ebx7 = EBX_512, .xcr0 = 0xe7}, AVX2 | AVX512},
        {"Skylake-X, ZMM not saved", {.ecx1 = ECX_AVX, .ebx7 = EBX_512, .xcr0 = 7}, AVX2},
        {"Skylake-X, masks not saved", {.ecx1 = ECX_AVX, .ebx7 = EBX_512, .xcr0 = 0xc7}, AVX2},
        {"Ice Lake",
         {.ecx1 = ECX_AVX, .ebx7 = EBX_512, .ecx7 = ECX7_ICX, .xcr0 = 0xe7},
         AVX2 | AVX512 | BNET_CPU_AVX512VNNI | BNET_CPU_AVX512VBMI},
        {"Sapphire Rapids",
         {ECX_AVX, EBX_512, ECX7_ICX, EDX7_SPR, EAX71_SPR, 0x600e7, true},
         AVX2 | AVX512 | BNET_CPU_AVX512VNNI | BNET_CPU_AVX512VBMI | BNET_CPU_AVXVNNI |
             BNET_CPU_AVX512BF16 | BNET_CPU_AVX512FP16 | BNET_CPU_AMX_TILE | BNET_CPU_AMX_INT8},
        {"Sapphire Rapids, the kernel denies tiles",
         {ECX_AVX, EBX_512, ECX7_ICX, EDX7_SPR, EAX71_SPR, 0x600e7, false},
         AVX2 | AVX512 | BNET_CPU_AVX512VNNI | BNET_CPU_AVX512VBMI | BNET_CPU_AVXVNNI |
             BNET_CPU_AVX512BF16 | BNET_CPU_AVX512FP16},
        {"Sapphire Rapids, an old kernel saves no tiles",
         {ECX_AVX, EBX_512, ECX7_ICX, EDX7_SPR, EAX71_SPR, 0xe7, true},
         AVX2 | AVX512 | BNET_CPU_AVX512VNNI | BNET_CPU_AVX512VBMI | BNET_CPU_AVXVNNI |
             BNET_CPU_AVX512BF16 | BNET_CPU_AVX512FP16},
        {"AMX_INT8 claimed without AMX_TILE",
         {ECX_AVX, EBX_AVX2, 0, 1u << 25, 0, 0x600e7, true},
         AVX2},
        {"VNNI bit without AVX-512F", {ECX_AVX, EBX_AVX2, ECX7_ICX, 0, 0, 0xe7, false}, AVX2},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_str got = {0}, want = {0};
        bnet_cpu_features_text(bnet_x86_features(&rows[i].r), &got);
        bnet_cpu_features_text(rows[i].want, &want);
        print_message("%s: %s\n", rows[i].machine, got.data);
        assert_string_equal(got.data, want.data);
        bnet_str_free(&got);
        bnet_str_free(&want);
    }
}

static void test_aarch64_feature_detection(void **state)
{
    static const struct {
        const char *machine;
        uint64_t hwcap, hwcap2;
        const char *want;
    } rows[] = {
        {"nothing", 0, 0, "scalar"},
        {"Cortex-A53", 0xff, 0, "neon"},
        {"Cortex-A76", 1u << 1 | 1u << 10 | 1u << 20, 0, "neon dotprod fp16"},
        {"Neoverse V1, SVE hidden", 1u << 1 | 1u << 10 | 1u << 20 | 1u << 23, 1u << 13 | 1u << 14,
         "neon dotprod i8mm bf16 fp16 fhm"},
        {"A64FX", 1u << 1 | 1u << 10 | 1u << 22, 0, "neon sve fp16"},
        {"Neoverse V2", 1u << 1 | 1u << 10 | 1u << 20 | 1u << 22,
         1u << 1 | 1u << 9 | 1u << 13 | 1u << 14, "neon dotprod i8mm bf16 sve sve2 fp16 svei8mm"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_str got = {0};
        bnet_cpu_features_text(bnet_arm_features(rows[i].hwcap, rows[i].hwcap2), &got);
        print_message("%s: %s\n", rows[i].machine, got.data);
        assert_string_equal(got.data, rows[i].want);
        bnet_str_free(&got);
    }
}

static void test_DET_17_features_of_this_machine(void **state)
{
    (void)state;
    uint32_t f = bnet_cpu_features(), all = 0, bit;
    const char *name;
    for (int i = 0; bnet_cpu_feature_at(i, &bit, &name); i++) {
        assert_int_equal(bit & (bit - 1), 0); /* one bit, nobody else's */
        assert_int_equal(all & bit, 0);
        assert_true(name[0]);
        all |= bit;
    }
    assert_int_equal(f & ~all, 0);
    assert_int_equal(f, bnet_cpu_features()); /* the same at every call */
    assert_false(bnet_cpu_feature_at(-1, &bit, &name));
    assert_false(bnet_cpu_feature_at(99, &bit, &name));
    uint32_t arm = BNET_CPU_NEON | BNET_CPU_DOTPROD | BNET_CPU_I8MM | BNET_CPU_BF16 | BNET_CPU_SVE |
                   BNET_CPU_SVE2 | BNET_CPU_SVEI8MM | BNET_CPU_FP16 | BNET_CPU_FHM;
#if defined(__aarch64__)
    assert_true(f & BNET_CPU_NEON);
    assert_int_equal(f & ~arm, 0);
    assert_int_equal(bnet_cpu_sve_bytes() > 0, (f & BNET_CPU_SVE) != 0);
#else
    assert_int_equal(f & arm, 0);
    assert_int_equal(bnet_cpu_sve_bytes(), 0);
#endif
}

/* ---- /proc and /sys ---- */

static char dir[256];

static int setup(void **state)
{
    (void)state;
    make_dir(dir, sizeof dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

static bnet_cpu_info probe(void)
{
    bnet_world w = {.root = dir};
    bnet_cpu_info c;
    bnet_probe_cpu(&w, &c);
    return c;
}

static void test_cpu_nothing_to_read(void **state)
{
    (void)state;
    bnet_cpu_info c = probe();
    assert_string_equal(c.brand, "unknown");
    assert_true(c.n_logical >= 1 && c.n_physical >= 1 && c.n_usable >= 1);
    assert_int_equal(c.n_numa_nodes, 1);
    assert_int_equal(c.memory_total, 0);
    assert_int_equal(c.memory_limit, 0);
    assert_int_equal(c.l3_bytes, 0);
}

static void test_cpu_brand(void **state)
{
    static const struct {
        const char *cpuinfo, *want;
    } rows[] = {
        {"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 207\n"
         "model name\t: Intel(R) Xeon(R)   Platinum 8480+  \nstepping\t: 2\n",
         "Intel(R) Xeon(R) Platinum 8480+"},
        {"processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
         "CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n",
         "ARM Neoverse V1"},
        {"CPU implementer\t: 0x99\nCPU part\t: 0x123\n", "ARM implementer 0x99 part 0x123"},
        {"CPU implementer\t: 0x41\n", "unknown"},
        {"model name\t:\n", "unknown"},
        {"model name", "unknown"},
        {"garbage \xff\xfe\n\n\n", "unknown"},
        {"", "unknown"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        put_file(dir, "/proc/cpuinfo", rows[i].cpuinfo, 0644);
        assert_string_equal(probe().brand, rows[i].want);
    }
}

static void put_cpu(int cpu, const char *siblings)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    put_file(dir, path, siblings, 0644);
}

static void test_cpu_cores(void **state)
{
    (void)state;
    put_file(dir, "/sys/devices/system/cpu/online", "0-3,6\n", 0644);
    put_cpu(0, "0,2\n");
    put_cpu(1, "1,3\n");
    put_cpu(2, "0,2\n");
    put_cpu(3, "1,3\n");
    put_cpu(6, "6\n");
    put_file(dir, "/sys/devices/system/node/online", "0-1\n", 0644);
    bnet_cpu_info c = probe();
    assert_int_equal(c.n_logical, 5);
    assert_int_equal(c.n_physical, 3);
    assert_int_equal(c.n_numa_nodes, 2);
    static const char *const bad[] = {"", "\n", "x", "9-3\n", "0-99999999999999999999\n", "-1\n"};
    for (size_t i = 0; i < BNET_COUNT(bad); i++) {
        put_file(dir, "/sys/devices/system/cpu/online", bad[i], 0644);
        put_file(dir, "/sys/devices/system/node/online", bad[i], 0644);
        c = probe();
        assert_true(c.n_logical >= 1 && c.n_physical >= 1 && c.n_numa_nodes >= 1);
    }
}

static void put_cache(int index, const char *level, const char *type, const char *size)
{
    char path[128];
    static const char *const names[] = {"level", "type", "size"};
    const char *const values[] = {level, type, size};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
                 names[i]);
        put_file(dir, path, values[i], 0644);
    }
}

static void test_cpu_caches(void **state)
{
    (void)state;
    put_cache(0, "1\n", "Data\n", "48K\n");
    put_cache(1, "1\n", "Instruction\n", "32K\n");
    put_cache(2, "2\n", "Unified\n", "2048K\n");
    put_cache(3, "3\n", "Unified\n", "300M\n");
    put_cache(4, "4\n", "Unified\n", "1G\n");
    bnet_cpu_info c = probe();
    assert_int_equal(c.l1d_bytes, 48 << 10);
    assert_int_equal(c.l2_bytes, 2 << 20);
    assert_int_equal(c.l3_bytes, 300 << 20);
}

static void test_D_35_memory_of_process_and_system(void **state)
{
    (void)state;
    put_file(dir, "/proc/meminfo",
             "MemTotal:       16384000 kB\nMemFree:         1000 kB\nMemAvailable:    8192000 kB\n",
             0644);
    put_file(dir, "/proc/self/status", "Name:\tbitnet\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n",
             0644);
    bnet_cpu_info c = probe();
    assert_int_equal(c.memory_total, (uint64_t)16384000 << 10);
    assert_int_equal(c.memory_available, (uint64_t)8192000 << 10);
    assert_int_equal(c.process_rss, (uint64_t)102400 << 10);
    assert_int_equal(c.process_peak_rss, (uint64_t)204800 << 10);
    put_file(dir, "/proc/meminfo", "MemTotal: 99999999999999999999 kB\nMemAvailable: -3 kB\n",
             0644);
    c = probe();
    assert_int_equal(c.memory_total, 0);
}

static void test_cpu_usable_under_cgroups(void **state)
{
    static const struct {
        const char *cgroup, *file, *text;
        int usable; /* 0: no limit */
        const char *memory_file, *memory_text;
        uint64_t memory;
    } rows[] = {
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "100000 100000\n", 1, "/sys/fs/cgroup/memory.max",
         "1073741824\n", 1073741824},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "max 100000\n", 0, "/sys/fs/cgroup/memory.max",
         "max\n", 0},
        {"0::/a/b\n", "/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n", 1,
         "/sys/fs/cgroup/a/memory.max", "5000000\n", 5000000}, /* of the group above */
        {"0::/not/mounted/here\n", "/sys/fs/cgroup/cpu.max", "20000 100000\n", 1,
         "/sys/fs/cgroup/memory.max", "7000000\n", 7000000},
        {"12:memory:/d\n3:cpu,cpuacct:/d\n", "/sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "100000\n", 1,
         "/sys/fs/cgroup/memory/d/memory.limit_in_bytes", "6000000\n", 6000000},
        {"9:name=systemd:/\n4:memory:/jobs/one\n3:cpuset:/s\n2:cpuacct:/\n1:cpu:/c\n0::/\n",
         "/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "100000\n", 1, /* a tree for each controller */
         "/sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "8000000\n", 8000000},
        {"3:cpu,cpuacct:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n", 0,
         "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n", 0},
        {"0::/../../x\n", "/sys/fs/cgroup/cpu.max", "100000 100000\n", 1,
         "/sys/fs/cgroup/memory.max", "max\n", 0},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "1 0\n", 0, "/sys/fs/cgroup/memory.max", "\n", 0},
        {"garbage\n:::\n\n", "/sys/fs/cgroup/cpu.max", "garbage\n", 0, "/sys/fs/cgroup/memory.max",
         "garbage\n", 0},
    };
    int free_count = probe().n_usable;
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        char quota[512];
        remove_tree(dir);
        mkdir(dir, 0755);
        put_file(dir, "/proc/self/cgroup", rows[i].cgroup, 0644);
        put_file(dir, rows[i].file, rows[i].text, 0644);
        put_file(dir, rows[i].memory_file, rows[i].memory_text, 0644);
        snprintf(quota, sizeof quota, "%s", rows[i].file);
        char *at = strstr(quota, "cfs_quota_us");
        if (at) {
            memcpy(at, "cfs_period_us", 14);
            put_file(dir, quota, "100000\n", 0644);
        }
        bnet_cpu_info c = probe();
        print_message("row %zu: usable %d, memory limit %llu\n", i, c.n_usable,
                      (unsigned long long)c.memory_limit);
        assert_int_equal(c.n_usable, rows[i].usable ? rows[i].usable : free_count);
        assert_int_equal(c.memory_limit, rows[i].memory);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_x86_64_feature_detection),
        cmocka_unit_test(test_aarch64_feature_detection),
        cmocka_unit_test(test_DET_17_features_of_this_machine),
        T(test_cpu_nothing_to_read),
        T(test_cpu_brand),
        T(test_cpu_cores),
        T(test_cpu_caches),
        T(test_D_35_memory_of_process_and_system),
        T(test_cpu_usable_under_cgroups),
    };
    return cmocka_run_group_tests_name("device/cpu", tests, NULL, NULL);
}
