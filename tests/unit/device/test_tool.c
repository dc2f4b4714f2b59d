/* test_tool.c - the runner of vendor tools and the parsers of what they print: real output,
 * garbage, nothing, far too much, and tools that hang. */
#include "stand_in.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static char dir[256];

enum { LONG_MS = 30000 }; /* no test waits for it */

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

static bnet_tool_result run(const char *script, int deadline_ms, bnet_str *out)
{
    const char *const argv[] = {"tool", "a b", "$HOME;`id`", NULL};
    char path[1024];
    put_file(dir, "/tool", script, 0755);
    snprintf(path, sizeof path, "/nonexistent::%s:/usr/bin:/bin", dir);
    return bnet_tool_run(path, argv, deadline_ms, out);
}

/* No child is left, not even as a zombie. */
static void assert_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static bool alive(const char *file)
{
    char text[64];
    struct stat st;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (stat(path, &st) != 0 || bnet_read_text(dir, path + strlen(dir), text, sizeof text) <= 0)
        return false;
    for (int i = 0; i < 200; i++) { /* its new parent needs a moment to reap it */
        if (kill((pid_t)atol(text), 0) != 0)
            return false;
        char stat_path[64], line[256];
        snprintf(stat_path, sizeof stat_path, "/proc/%ld/stat", atol(text));
        if (bnet_read_text("", stat_path, line, sizeof line) <= 0 || strstr(line, ") Z "))
            return false;
        usleep(10000);
    }
    return true;
}

static void test_tool_output_and_arguments(void **state)
{
    (void)state;
    bnet_str out = {0};
    int fds = count_fds();
    assert_int_equal(run("#!/bin/sh\nprintf '%s|%s|%s' \"$#\" \"$1\" \"$2\"\n", LONG_MS, &out),
                     BNET_TOOL_OK);
    assert_string_equal(out.data, "2|a b|$HOME;`id`"); /* no shell looked at them */
    bnet_str_free(&out);
    assert_int_equal(count_fds(), fds);
    assert_no_children();
}

static void test_tool_sees_a_minimal_world(void **state)
{
    (void)state;
    bnet_str out = {0};
    setenv("BITNET_TEST_SECRET", "1", 1);
    int leak = open("/dev/null", O_RDONLY); /* not close-on-exec, as careless programs do */
    assert_in_range(leak, 3, 9);
    assert_int_equal(run("#!/bin/sh\n"
                         "echo \"secret=$BITNET_TEST_SECRET lc=$LC_ALL\"\n"
                         "read line; echo \"stdin=$line\"; echo noise >&2\n"
                         "for fd in 3 4 5 6 7 8 9; do\n"
                         "if (: <&$fd) 2>/dev/null; then echo open $fd; fi; done; exit 0\n",
                         LONG_MS, &out),
                     BNET_TOOL_OK);
    assert_string_equal(out.data, "secret= lc=C\nstdin=\n");
    bnet_str_free(&out);
    close(leak);
}

static void test_tool_results(void **state)
{
    static const struct {
        const char *script;
        bnet_tool_result want;
    } rows[] = {
        {"#!/bin/sh\nexit 0\n", BNET_TOOL_OK},
        {"#!/bin/sh\necho partial\nexit 9\n", BNET_TOOL_FAILED},
        {"#!/bin/sh\nkill -SEGV $$\n", BNET_TOOL_FAILED},
        {"#!/no/such/interpreter\n", BNET_TOOL_FAILED},
        {"not a program\n", BNET_TOOL_FAILED},
        {"", BNET_TOOL_FAILED},
    };
    (void)state;
    int fds = count_fds();
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_str out = {0};
        print_message("row %zu\n", i);
        assert_int_equal(run(rows[i].script, LONG_MS, &out), rows[i].want);
        bnet_str_free(&out);
        assert_no_children();
    }
    assert_int_equal(count_fds(), fds);
}

static void test_tool_absent(void **state)
{
    (void)state;
    const char *const tool[] = {"tool", NULL}, *const slash[] = {"../bin/sh", NULL};
    bnet_str out = {0};
    char path[512];
    put_file(dir, "/tool", "#!/bin/sh\n", 0644); /* not executable */
    assert_int_equal(bnet_tool_run(dir, tool, 1000, &out), BNET_TOOL_ABSENT);
    put_file(dir, "/d/tool/x", "", 0644); /* a folder of that name */
    snprintf(path, sizeof path, "%s/d", dir);
    assert_int_equal(bnet_tool_run(path, tool, 1000, &out), BNET_TOOL_ABSENT);
    assert_int_equal(bnet_tool_run("", tool, 1000, &out), BNET_TOOL_ABSENT);
    assert_int_equal(bnet_tool_run(NULL, tool, 1000, &out), BNET_TOOL_ABSENT);
    assert_int_equal(bnet_tool_run("/bin", slash, 1000, &out), BNET_TOOL_ABSENT);
    char *long_path = test_malloc(10001);
    memset(long_path, 'x', 10000);
    long_path[10000] = '\0';
    assert_int_equal(bnet_tool_run(long_path, tool, 1000, &out), BNET_TOOL_ABSENT);
    test_free(long_path);
    bnet_str_free(&out);
}

static void expect_timeout(const char *script)
{
    bnet_str out = {0};
    int fds = count_fds();
    double t = bnet_now_ms();
    assert_int_equal(run(script, 200, &out), BNET_TOOL_TIMEOUT);
    t = bnet_now_ms() - t;
    print_message("killed after %.0f ms\n", t);
    assert_true(t >= 150 && t < 5000);
    bnet_str_free(&out);
    assert_int_equal(count_fds(), fds);
    assert_no_children();
}

static void test_tool_that_hangs_is_killed_with_all_it_started(void **state)
{
    (void)state;
    expect_timeout("#!/bin/sh\necho $$ > ${0%/*}/leader\n"
                   "(trap '' TERM HUP INT; echo $(exec sh -c 'echo $PPID') > ${0%/*}/child;"
                   " sleep 300) &\ntrap '' TERM\nsleep 300\n");
    assert_false(alive("leader"));
    assert_false(alive("child"));
}

static void test_tool_that_closes_its_output_and_hangs(void **state)
{
    (void)state;
    expect_timeout("#!/bin/sh\nexec >&-\nsleep 300\n");
}

/* The tool ends, but something it left in the background holds the pipe open. */
static void test_tool_that_leaves_something_behind(void **state)
{
    (void)state;
    expect_timeout("#!/bin/sh\nsleep 300 &\necho $! > ${0%/*}/child\necho done\n");
    assert_false(alive("child"));
    bnet_str out = {0};
    assert_int_equal(run("#!/bin/sh\nsleep 300 >/dev/null &\necho $! > ${0%/*}/child\necho done\n",
                         LONG_MS, &out),
                     BNET_TOOL_OK);
    assert_string_equal(out.data, "done\n");
    bnet_str_free(&out);
    assert_false(alive("child"));
    assert_no_children();
}

static void test_tool_that_prints_without_end(void **state)
{
    (void)state;
    bnet_str out = {0};
    double t = bnet_now_ms();
    assert_int_equal(
        run("#!/bin/sh\nwhile :; do echo 0123456789012345678901234567890123456789012345"
            "678901234567890123456789012345678901234567890123456789; done\n",
            20000, &out),
        BNET_TOOL_FLOOD);
    assert_true(out.n <= BNET_TOOL_MAX_OUTPUT);
    assert_true(bnet_now_ms() - t < 20000);
    bnet_str_free(&out);
    assert_no_children();
}

static void test_tool_when_the_program_ignores_its_children(void **state)
{
    (void)state;
    bnet_str out = {0};
    void (*old)(int) = signal(SIGCHLD, SIG_IGN);
    assert_int_equal(run("#!/bin/sh\necho hello\n", LONG_MS, &out), BNET_TOOL_OK);
    assert_string_equal(out.data, "hello\n");
    bnet_str_free(&out);
    assert_int_equal(run("#!/bin/sh\nsleep 300\n", 200, &out), BNET_TOOL_TIMEOUT);
    bnet_str_free(&out);
    signal(SIGCHLD, old);
}

/* Tools started by several threads at once: each reads its own output to the end, so no other tool
 * holds the writing end of its pipe. */
static void *run_many(void *arg)
{
    const char *const argv[] = {"tool", arg, NULL};
    for (int i = 0; i < 10; i++) {
        bnet_str out = {0};
        bnet_tool_result r = bnet_tool_run(dir, argv, LONG_MS, &out);
        bool ok = r == BNET_TOOL_OK && out.data && strcmp(out.data, arg) == 0;
        bnet_str_free(&out);
        if (!ok)
            return arg;
    }
    return NULL;
}

static void test_BE_14_tools_from_several_threads(void **state)
{
    static char names[8][16];
    pthread_t threads[8];
    (void)state;
    put_file(dir, "/tool", "#!/bin/sh\nprintf %s \"$1\"\n", 0755);
    int fds = count_fds();
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, names[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(count_fds(), fds);
    assert_no_children();
}

static void test_tool_texts(void **state)
{
    (void)state;
    for (int r = BNET_TOOL_OK; r <= BNET_TOOL_FLOOD; r++)
        assert_true(strlen(bnet_tool_text((bnet_tool_result)r)) > 4);
}

/* ---- parsers ---- */

static int smi(const char *text, bnet_gpu *out, char *driver)
{
    return bnet_parse_nvidia_smi(text, strlen(text), out, BNET_GPUS_MAX, NULL, driver, 48);
}

static void test_DET_3_parse_nvidia_smi(void **state)
{
    static const struct {
        const char *text;
        int n;
        const char *name;
        uint64_t mib;
        int cc;
        const char *driver;
    } rows[] = {
        {"0, GPU-45b790c7-e483-7e6c-dcc1-4fbc9e64ad21, NVIDIA H200, 143771, 9.0, 580.159.04\n", 1,
         "NVIDIA H200", 143771, 90, "580.159.04"},
        {"0, GPU-1, NVIDIA GeForce GTX 1060 6GB, 6144, 6.1, 535.54.03\r\n", 1,
         "NVIDIA GeForce GTX 1060 6GB", 6144, 61, "535.54.03"},
        {"0, GPU-1, Orin (nvgpu), [N/A], 8.7, N/A\n", 1, "Orin (nvgpu)", 0, 87, ""},
        {"0, GPU-1, Tesla K80, 11441, [N/A], 470.82.01", 1, "Tesla K80", 11441, 0, "470.82.01"},
        {"", 0, NULL, 0, 0, ""},
        {"\n\n\n", 0, NULL, 0, 0, ""},
        {"No devices were found\n", 0, NULL, 0, 0, ""},
        {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 0, NULL,
         0, 0, ""},
        {"Failed to initialize NVML: Driver/library version mismatch\n", 0, NULL, 0, 0, ""},
        {"0, GPU-1, , 1, 9.0, 1.0\n", 0, NULL, 0, 0, ""},
        {"-1, GPU-1, X, 1, 9.0, 1.0\n", 0, NULL, 0, 0, ""},
        {"x, GPU-1, X, 1, 9.0, 1.0\n", 0, NULL, 0, 0, ""},
        {"0, GPU-1, X, 1, 9.0\n", 0, NULL, 0, 0, ""},
        {"0, GPU-1, X, 1, 9.0, 1.0, 7\n", 0, NULL, 0, 0, ""},
        {"99999999999999999999, GPU-1, X, 1, 9.0, 1.0\n", 0, NULL, 0, 0, ""},
        {"0, GPU-1, X, 99999999999999999999999, 9.0, 1.0\n", 1, "X", 0, 90, "1.0"},
        {"0, GPU-1, X, 1, 900.1, 1.0\n", 1, "X", 1, 0, "1.0"},
        {"0, GPU-1, X\x1b[2J\x07Y, 1, 9.0, 1.0\n", 1, "X [2J Y", 1, 90, "1.0"},
        {"0, GPU-1, \xff\xc3, 1, 9.0, 1.0\n", 1, "??", 1, 90, "1.0"},
        {"0, GPU-1, \xc3\xa9, 1, 9.0, 1.0\n", 1, "\xc3\xa9", 1, 90, "1.0"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_gpu g[BNET_GPUS_MAX];
        char driver[48] = "?";
        print_message("row %zu: %s\n", i, rows[i].text);
        assert_int_equal(smi(rows[i].text, g, driver), rows[i].n);
        assert_string_equal(driver, rows[i].driver);
        if (!rows[i].n)
            continue;
        assert_string_equal(g[0].name, rows[i].name);
        assert_int_equal(g[0].total_memory, rows[i].mib << 20);
        assert_int_equal(g[0].cc_major * 10 + g[0].cc_minor, rows[i].cc);
    }
}

static void test_parse_huge(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *text = test_malloc(n), version[48];
    bnet_gpu g[BNET_GPUS_MAX];
    static const char line[] = "0, GPU-1, NVIDIA H200, 143771, 9.0, 580.159.04\n";
    for (size_t i = 0; i < n; i++)
        text[i] = line[i % (sizeof line - 1)];
    assert_int_equal(bnet_parse_nvidia_smi(text, n, g, BNET_GPUS_MAX, NULL, version, 48),
                     BNET_GPUS_MAX);
    memset(text, 'A', n); /* one line of a megabyte */
    assert_int_equal(bnet_parse_nvidia_smi(text, n, g, BNET_GPUS_MAX, NULL, version, 48), 0);
    memset(text, '9', n);
    assert_int_equal(bnet_parse_nvidia_smi(text, n, g, BNET_GPUS_MAX, NULL, version, 48), 0);
    memcpy(text, "release ", 8);
    assert_false(bnet_parse_nvcc(text, n, version, sizeof version));
    memset(text, ',', n);
    assert_int_equal(bnet_parse_nvidia_smi(text, n, g, BNET_GPUS_MAX, NULL, version, 48), 0);
    memset(text, '\n', n);
    assert_int_equal(bnet_parse_rocm_smi(text, n, g, BNET_GPUS_MAX), 0);
    test_free(text);
}

typedef bool (*version_fn)(const char *s, size_t n, char *version, size_t cap);

static const struct {
    version_fn parse;
    const char *text, *want; /* NULL: refused */
} version_rows[] = {
    {bnet_parse_nvcc,
     "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
     "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n"
     "Cuda compilation tools, release 13.0, V13.0.88\nBuild "
     "cuda_13.0.r13.0/compiler.36424714_0\n",
     "13.0"},
    {bnet_parse_nvcc, "Cuda compilation tools, release 9.1, V9.1.85", "9.1"},
    {bnet_parse_nvcc, "", NULL},
    {bnet_parse_nvcc, "release", NULL},
    {bnet_parse_nvcc, "release ", NULL},
    {bnet_parse_nvcc, "release x.y", NULL},
    {bnet_parse_nvcc, "sh: nvcc: command not found", NULL},
    {bnet_parse_cuda_json,
     "{\n   \"cuda\" : {\n      \"name\" : \"CUDA SDK\",\n      \"version\" : \"12.4.1\"\n   "
     "},\n"
     "   \"cuda_cccl\" : {\n      \"name\" : \"CUDA C++ Core Compute Libraries\",\n"
     "      \"version\" : \"12.4.127\"\n   }\n}\n",
     "12.4.1"},
    {bnet_parse_cuda_json,
     "{\"cuda_nvcc\":{\"version\":\"1.2\"},\"cuda\":{\"version\":\"11.8.0\"}}", "11.8.0"},
    {bnet_parse_cuda_json, "{\"cuda\":{\"name\":\"x\"},\"other\":{\"version\":\"1.2\"}}", NULL},
    {bnet_parse_cuda_json, "{\"cuda\":{\"version\":12}}", NULL},
    {bnet_parse_cuda_json, "{\"cuda\":{\"version\"", NULL},
    {bnet_parse_cuda_json, "{\"cuda\"", NULL},
    {bnet_parse_cuda_json, "{}", NULL},
    {bnet_parse_cuda_json, "", NULL},
    {bnet_parse_nvidia_proc,
     "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
     "580.159.04"},
    {bnet_parse_nvidia_proc,
     "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 UTC "
     "2021\n",
     "470.82.01"},
    {bnet_parse_nvidia_proc, "something else 1.2\n", NULL},
    {bnet_parse_nvidia_proc, "NVRM version:\n1.2\n", NULL},
    {bnet_parse_nvidia_proc, "", NULL},
    {bnet_parse_rocm_version, "ROCM-SMI version: 2.3.1+8e1a6c5\nROCM-SMI-LIB version: 7.3.0\n",
     "2.3.1"},
    {bnet_parse_rocm_version, "ROCM-SMI version: 1.4.1+unknown\n", "1.4.1"},
    {bnet_parse_rocm_version, "usage: rocm-smi [-h]\n", NULL},
    {bnet_parse_rocm_version, "ROCM-SMI version:", NULL},
    {bnet_parse_rocm_version, "", NULL},
};

static void test_DET_3_parse_versions(void **state)
{
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(version_rows); i++) {
        char version[48] = "untouched", tiny[2];
        size_t n = strlen(version_rows[i].text);
        print_message("row %zu\n", i);
        assert_int_equal(version_rows[i].parse(version_rows[i].text, n, version, sizeof version),
                         version_rows[i].want != NULL);
        assert_string_equal(version, version_rows[i].want ? version_rows[i].want : "untouched");
        assert_false(version_rows[i].parse(version_rows[i].text, n, tiny, sizeof tiny));
        for (size_t cut = 0; cut < n;
             cut++) { /* every beginning, with no byte to spare behind it */
            char *copy = test_malloc(cut ? cut : 1);
            memcpy(copy, version_rows[i].text, cut);
            version_rows[i].parse(copy, cut, version, sizeof version);
            test_free(copy);
        }
    }
}

static void test_DET_5_parse_rocm_smi(void **state)
{
    static const struct {
        const char *text;
        int n;
        const char *name;
    } rows[] = {
        {"\n\n============================ ROCm System Management Interface ===================\n"
         "========================================== ID ==================================\n"
         "GPU[0]\t\t: Device Name: \t\tAMD Instinct MI300X\n"
         "GPU[0]\t\t: Device ID: \t\t0x74a1\n"
         "GPU[0]\t\t: Device Rev: \t\t0x00\n"
         "GPU[0]\t\t: Subsystem ID: \t0x74a1\n"
         "GPU[0]\t\t: GUID: \t\t28851\n"
         "GPU[1]\t\t: Device Name: \t\tAMD Instinct MI300X\n"
         "GPU[1]\t\t: Device ID: \t\t0x74a1\n"
         "================================================================================\n"
         "============================= End of ROCm SMI Log ==============================\n",
         2, "AMD Instinct MI300X"},
        {"GPU[0]\t\t: GPU ID: \t\t0x66af\n", 1, "AMD GPU"},
        {"GPU[0]\t\t: Card series: \t\tVega 20\nGPU[0]\t\t: Card model: \t\t0x834\n", 1, "Vega 20"},
        {"GPU[0] : Device Name: N/A\n", 1, "AMD GPU"},
        {"GPU[0]\t\t: Device Name: \n", 0, NULL},
        {"ERROR: No AMD GPUs specified\n", 0, NULL},
        {"cat: /sys/module/amdgpu/initstate: No such file or directory\n", 0, NULL},
        {"GPU[", 0, NULL},
        {"GPU[]: a: b", 0, NULL},
        {"GPU[0", 0, NULL},
        {"GPU[0]", 0, NULL},
        {"GPU[0]:", 0, NULL},
        {"GPU[0]: x", 0, NULL},
        {"GPU[99999999999999999999]: x: y", 0, NULL},
        {"", 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_gpu g[BNET_GPUS_MAX] = {{0}};
        print_message("row %zu\n", i);
        assert_int_equal(bnet_parse_rocm_smi(rows[i].text, strlen(rows[i].text), g, BNET_GPUS_MAX),
                         rows[i].n);
        if (rows[i].n)
            assert_string_equal(g[0].name, rows[i].name);
    }
    bnet_gpu g[2];
    const char *three = "GPU[0]: a: b\nGPU[1]: a: b\nGPU[2]: a: b\n";
    assert_int_equal(bnet_parse_rocm_smi(three, strlen(three), g, 2), 2);
}

/* Any bytes: only the sanitizers judge. */
static void test_parse_garbage(void **state)
{
    (void)state;
    static const char alphabet[] =
        "GPU[]:0123456789., \t\r\n\"{}cudaversionreleaseROCM-SMI\xff\x00x";
    uint64_t seed = 20240611;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 4000; round++) {
        size_t n = test_rand(&seed) % 200;
        char *text = test_malloc(n ? n : 1), version[16], uuids[BNET_GPUS_MAX][BNET_UUID_MAX];
        bnet_gpu g[BNET_GPUS_MAX];
        for (size_t i = 0; i < n; i++)
            text[i] = alphabet[test_rand(&seed) % sizeof alphabet];
        int a = bnet_parse_nvidia_smi(text, n, g, BNET_GPUS_MAX, uuids, version, sizeof version);
        int b = bnet_parse_rocm_smi(text, n, g, BNET_GPUS_MAX);
        assert_in_range(a, 0, BNET_GPUS_MAX);
        assert_in_range(b, 0, BNET_GPUS_MAX);
        bnet_parse_nvcc(text, n, version, sizeof version);
        bnet_parse_cuda_json(text, n, version, sizeof version);
        bnet_parse_nvidia_proc(text, n, version, sizeof version);
        bnet_parse_rocm_version(text, n, version, sizeof version);
        test_free(text);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_tool_output_and_arguments),
        T(test_tool_sees_a_minimal_world),
        T(test_tool_results),
        T(test_tool_absent),
        T(test_tool_that_hangs_is_killed_with_all_it_started),
        T(test_tool_that_closes_its_output_and_hangs),
        T(test_tool_that_leaves_something_behind),
        T(test_tool_that_prints_without_end),
        T(test_tool_when_the_program_ignores_its_children),
        T(test_BE_14_tools_from_several_threads),
        T(test_tool_texts),
        T(test_DET_3_parse_nvidia_smi),
        T(test_DET_3_parse_versions),
        T(test_DET_5_parse_rocm_smi),
        T(test_parse_huge),
        T(test_parse_garbage),
    };
    return cmocka_run_group_tests_name("device/tool", tests, NULL, NULL);
}
