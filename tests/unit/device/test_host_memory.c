/* Memory of the host and of this process as /proc has it, and the cap of a device's buffers. */
#include "test.h"

#include <unistd.h>

#include "device/device.h"
#include "device/probe.h"

static void test_M_1_cap_of_a_device(void **state)
{
    (void)state;
    /* D-34 */
    assert_int_equal(bnet_buffer_cap(0), 2147483648u);
    assert_int_equal(bnet_buffer_cap((uint64_t)140 << 30), 2147483648u);
    assert_int_equal(bnet_buffer_cap((uint64_t)8 << 30), ((uint64_t)8 << 30) / 10);
}

static uint64_t field(const char *path, const char *key)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen(path, "r");
    if (!f) {
        print_message("%s cannot be read\n", path);
        skip();
    }
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %llu", &kb);
    fclose(f);
    return kb * 1024;
}

static void near(const char *what, uint64_t got, uint64_t want, uint64_t tolerance)
{
    if (got + tolerance < want || want + tolerance < got)
        fail_msg("%s: %llu, /proc says %llu", what, (unsigned long long)got,
                 (unsigned long long)want);
}

static void test_M_8_host_memory(void **state)
{
    (void)state;
    bitnet_host_memory m;
    uint64_t total = field("/proc/meminfo", "MemTotal");
    assert_true(bnet_host_memory_read("", &m));
    uint64_t available = field("/proc/meminfo", "MemAvailable");
    assert_int_equal(m.total_bytes, total);
    near("available", m.available_bytes, available, total / 10); /* others work here too */
    assert_int_equal(m.used_bytes, m.total_bytes - m.available_bytes);
    assert_true(m.used_percent > 0 && m.used_percent < 100);
    near("resident", m.process_bytes, field("/proc/self/status", "VmRSS"), 4 << 20);
    assert_true(m.process_peak_bytes >= m.process_bytes);
    /* refreshed: what we now touch is seen by the next call */
    size_t n = 32 << 20;
    char *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i += 512)
        ((volatile char *)p)[i] = 1;
    bitnet_host_memory after;
    assert_true(bnet_host_memory_read("", &after));
    if (after.process_bytes < m.process_bytes + n / 2)
        fail_msg("32 MiB more in use, but %llu became %llu", (unsigned long long)m.process_bytes,
                 (unsigned long long)after.process_bytes);
    free(p);
    bnet_cpu_info cpu;
    bnet_world real;
    bnet_world_real(&real);
    bnet_probe_cpu(&real, &cpu);
    assert_int_equal(cpu.memory_total, m.total_bytes);
    assert_false(bnet_host_memory_read("/nowhere", &m));
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Page by page where the kernel tells it, else what the counters say. */
static void test_V_4_resident_memory(void **state)
{
    (void)state;
    uint64_t n = 0;
    assert_true(bnet_resident_read("", &n));
    near("resident", n, field("/proc/self/status", "VmRSS"), 4 << 20);
    assert_false(bnet_resident_read("/nowhere", &n));
    char root[] = "/tmp/bitnet-resident-XXXXXX", path[96];
    assert_non_null(mkdtemp(root));
    const char *folders[] = {"proc", "proc/self"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    write_file(path, "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    write_file(path, "VmHWM: 90 kB\nVmRSS: 70 kB\n");
    assert_true(bnet_resident_read(root, &n));
    assert_int_equal(n, 70 << 10);
    snprintf(path, sizeof path, "%s/proc/self/smaps_rollup", root);
    write_file(path, "00400000-7fff0000 ---p 00000000 00:00 0 [rollup]\nRss: 64 kB\nPss: 9 kB\n");
    assert_true(bnet_resident_read(root, &n));
    assert_int_equal(n, 64 << 10);
    const char *all[] = {
        "proc/self/smaps_rollup", "proc/self/status", "proc/meminfo", "proc/self", "proc", ""};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", root, all[i]);
        assert_int_equal(remove(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M_1_cap_of_a_device),
        cmocka_unit_test(test_M_8_host_memory),
        cmocka_unit_test(test_V_4_resident_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
