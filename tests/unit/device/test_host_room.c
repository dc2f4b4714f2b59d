/* test_host_room.c - what memory a process can still take, by faked files of /proc and control
 * groups of both versions, and by limits of the process that are real. */
#include "test.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "stand_in.h"

#define MIB ((uint64_t)1 << 20)

static char dir[] = "/tmp/bitnet-room-XXXXXX";

typedef struct file {
    const char *path, *text;
} file;

static void lay_out(const file *files, size_t n)
{
    remove_tree(dir);
    mkdir(dir, 0755);
    for (size_t i = 0; i < n && files[i].path; i++)
        put_file(dir, files[i].path, files[i].text, 0644);
}

#define MEMINFO                                                                                    \
    {                                                                                              \
        "/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n"         \
    }
#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"

static const struct {
    const char *name;
    file files[10];
    uint64_t free_mib;
    const char *limit;
} rows[] = {
    {"no group", {MEMINFO}, 4096, "the machine's memory"},
    {"v2, its own limit",
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a/b\n"},
      {V2 "/a/b/memory.max", "1073741824\n"},
      {V2 "/a/b/memory.current", "268435456\n"}},
     768,
     "the limit of control group /a/b of 1.00 GiB"},
    {"v2, the limit of a group above",
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a/b\n"},
      {V2 "/a/b/memory.max", "1073741824\n"},
      {V2 "/a/b/memory.current", "268435456\n"},
      {V2 "/a/memory.max", "2147483648\n"},
      {V2 "/a/memory.current", "2042626048\n"}},
     100,
     "the limit of control group /a of 2.00 GiB"},
    {"v2, cached files are given up",
     {MEMINFO,
      {"/proc/self/cgroup", "0::/\n"},
      {V2 "/memory.max", "1073741824\n"},
      {V2 "/memory.current", "1073741824\n"},
      {V2 "/memory.stat", "anon 5\nfile 99\nactive_file 104857600\ninactive_file 536870912\n"}},
     612,
     "the limit of control group / of 1.00 GiB"},
    {"v2, no limit",
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {V2 "/a/memory.max", "max\n"},
      {V2 "/a/memory.current", "268435456\n"}},
     4096,
     "the machine's memory"},
    {"v2, used up",
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {V2 "/a/memory.max", "1073741824\n"},
      {V2 "/a/memory.current", "1073745920\n"}},
     0,
     "control group /a"},
    {"v2, the namespace shows its root alone",
     {MEMINFO,
      {"/proc/self/cgroup", "0::/../x\n"},
      {V2 "/memory.max", "104857600\n"},
      {V2 "/memory.current", "0\n"}},
     100,
     "control group / of 0.10 GiB"},
    {"v1 among other controllers",
     {MEMINFO,
      {"/proc/self/cgroup", "3:cpu,cpuacct:/c\n5:hugetlb,memory,pids:/d/e\n1:name=x:/\n"},
      {V1 "/d/e/memory.limit_in_bytes", "9223372036854771712\n"},
      {V1 "/d/e/memory.usage_in_bytes", "1048576\n"},
      {V1 "/d/memory.limit_in_bytes", "1073741824\n"},
      {V1 "/d/memory.usage_in_bytes", "536870912\n"},
      {V1 "/d/memory.stat",
       "inactive_file 1\ntotal_inactive_file 134217728\ntotal_active_file 134217728\n"}},
     768,
     "the limit of control group /d of 1.00 GiB"},
    {"both versions",
     {MEMINFO,
      {"/proc/self/cgroup", "5:memory:/d\n0::/u\n"},
      {V1 "/d/memory.limit_in_bytes", "314572800\n"},
      {V1 "/d/memory.usage_in_bytes", "0\n"}},
     300,
     "control group /d"},
    {"a broken file",
     {MEMINFO,
      {"/proc/self/cgroup", "nonsense\n::\n0::/a\n"},
      {V2 "/a/memory.max", "-5\n"},
      {V2 "/a/memory.current", "x\n"}},
     4096,
     "the machine's memory"},
};

static void test_room(void **state)
{
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        lay_out(rows[i].files, BNET_COUNT(rows[i].files));
        bnet_host_room r = bnet_host_room_read(dir);
        if (r.free / MIB != rows[i].free_mib || !strstr(r.limit, rows[i].limit))
            fail_msg("%s: %llu MiB, \"%s\"; %llu and \"%s\" were expected", rows[i].name,
                     (unsigned long long)(r.free / MIB), r.limit,
                     (unsigned long long)rows[i].free_mib, rows[i].limit);
    }
}

/* Where nothing is said, the machine's size. */
static void test_nothing_known(void **state)
{
    (void)state;
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(bnet_host_room_read("/nowhere").free <= total);
    assert_true(bnet_host_room_read("/nowhere").free > 0);
    assert_true(bnet_host_room_read("").free < total);
}

static void test_admission(void **state)
{
    (void)state;
    lay_out(rows[1].files, BNET_COUNT(rows[1].files)); /* 768 MiB are free */
    bnet_host_ledger l = {.root = dir};
    bitnet_error err = {0};
    uint64_t held = 7;
    assert_int_equal(bnet_host_admit(&l, 768 * MIB, "it needs", "ask less", NULL, &err), BITNET_OK);
    assert_int_equal(l.reserved, 0);
    assert_int_equal(bnet_host_admit(&l, 500 * MIB, "it needs", "ask less", &held, &err),
                     BITNET_OK);
    assert_int_equal(held, 500 * MIB);
    assert_int_equal(l.reserved, 500 * MIB);
    assert_int_equal(bnet_host_admit(&l, 268 * MIB + 1, "it needs", "ask less", &held, &err),
                     BITNET_MEMORY);
    assert_int_equal(held, 0);
    assert_int_equal(l.reserved, 500 * MIB);
    assert_string_equal(err.message,
                        "it needs 0.262 GiB; free are 0.750 GiB (the limit of control group /a/b "
                        "of 1.00 GiB), of which open sessions and pools have reserved 0.488 GiB; "
                        "ask less");
    assert_int_equal(bnet_host_admit(&l, 268 * MIB, "it needs", "ask less", &held, &err),
                     BITNET_OK);
    assert_int_equal(bnet_host_admit(&l, UINT64_MAX, "it needs", "ask less", &held, &err),
                     BITNET_MEMORY);
}

enum { NO_LIMITS = 3 };

/* In a process of its own, for the limit stays: 0 if the limit was seen. */
static int limited(int resource, const char *name)
{
    bnet_host_room before = bnet_host_room_read("");
    struct rlimit l = {(rlim_t)200 << 20, (rlim_t)200 << 20};
    if (setrlimit(resource, &l) != 0 || getrlimit(resource, &l) != 0 ||
        l.rlim_cur != (rlim_t)200 << 20)
        return NO_LIMITS; /* an emulator keeps its own */
    bnet_host_room after = bnet_host_room_read("");
    return after.free < 200 * MIB && after.free < before.free &&
                   strncmp(after.limit, name, strlen(name)) == 0
               ? 0
               : 1;
}

static void test_limits_of_the_process(void **state)
{
    (void)state;
    static const struct {
        int resource;
        const char *name;
    } kinds[] = {{RLIMIT_AS, "RLIMIT_AS of 0.20 GiB"}, {RLIMIT_DATA, "RLIMIT_DATA of 0.20 GiB"}};
    for (size_t i = 0; i < BNET_COUNT(kinds); i++) {
        int status = 0;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(limited(kinds[i].resource, kinds[i].name));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == NO_LIMITS)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room), cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_admission), cmocka_unit_test(test_limits_of_the_process)};
    return cmocka_run_group_tests_name("host_room", tests, set_up, tear_down);
}
