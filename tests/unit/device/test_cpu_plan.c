/* test_cpu_plan.c - how many threads are chosen and where they go, on machines made of files:
 * second threads of a core, fast and slow cores, affinity masks, quotas, nothing known at all. */
#include "stand_in.h"

#include "device/cpu_plan.h"

static char dir[64];

typedef struct machine {
    const char *name;
    int n_cpus;
    const char *siblings[8]; /* thread_siblings_list of each CPU, NULL: no such file */
    const char *capacity[8]; /* cpu_capacity */
    const char *freq[8];     /* cpuinfo_max_freq */
    int allowed[8], n_allowed, n_usable;
    int want_threads, want_order[8];
} machine;

#define ALL4 {0, 1, 2, 3}, 4
#define ALL6 {0, 1, 2, 3, 4, 5}, 6

static const machine machines[] = {
    {"plain", 4, {"0", "1", "2", "3"}, {0}, {0}, ALL4, 4, 4, {0, 1, 2, 3}},
    {"nothing known", 4, {0}, {0}, {0}, ALL4, 4, 4, {0, 1, 2, 3}},
    {"two threads a core", 4, {"0,2", "1,3", "0,2", "1,3"}, {0}, {0}, ALL4, 4, 2, {0, 1, 2, 3}},
    {"neighbours", 4, {"0-1", "0-1", "2-3", "2-3"}, {0}, {0}, ALL4, 4, 2, {0, 2, 1, 3}},
    {"one core's threads allowed",
     4,
     {"0-1", "0-1", "2-3", "2-3"},
     {0},
     {0},
     {2, 3},
     2,
     2,
     1,
     {2, 3}},
    {"second threads alone", 4, {"0-1", "0-1", "2-3", "2-3"}, {0}, {0}, {1, 3}, 2, 2, 2, {1, 3}},
    {"quota", 4, {"0", "1", "2", "3"}, {0}, {0}, ALL4, 3, 3, {0, 1, 2, 3}},
    /* 2 x 1024 beats 6 x 250; the fast ones come first though they are numbered last */
    {"slow cores",
     6,
     {0},
     {"250", "250", "250", "250", "1024", "1024"},
     {0},
     ALL6,
     6,
     2,
     {4, 5, 0, 1, 2, 3}},
    /* 6 x 900 beats 2 x 1024 */
    {"almost as fast",
     6,
     {0},
     {"900", "900", "900", "900", "1024", "1024"},
     {0},
     ALL6,
     6,
     6,
     {4, 5, 0, 1, 2, 3}},
    {"frequencies",
     4,
     {0},
     {0},
     {"1800000", "3600000", "1700000", "3600000"},
     ALL4,
     4,
     2,
     {1, 3, 0, 2}},
    {"broken files",
     4,
     {"x", "", "99", "-1"},
     {"", "fast", "0", "1"},
     {0},
     ALL4,
     4,
     4,
     {0, 1, 2, 3}},
};

static void put(int cpu, const char *file, const char *text)
{
    char path[128];
    if (!text)
        return;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
    put_file(dir, path, text, 0644);
}

static void test_plans(void **state)
{
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(machines); i++) {
        const machine *m = &machines[i];
        remove_tree(dir);
        mkdir(dir, 0755);
        for (int c = 0; c < m->n_cpus; c++) {
            put(c, "topology/thread_siblings_list", m->siblings[c]);
            put(c, "cpu_capacity", m->capacity[c]);
            put(c, "cpufreq/cpuinfo_max_freq", m->freq[c]);
        }
        bnet_cpu_plan p;
        assert_int_equal(bnet_cpu_plan_make(dir, m->allowed, m->n_allowed, m->n_usable, &p, NULL),
                         BITNET_OK);
        print_message("%s: %d threads of %d CPUs, first %d\n", m->name, p.n_threads, p.n, p.cpu[0]);
        assert_int_equal(p.n, m->n_allowed);
        assert_int_equal(p.n_threads, m->want_threads);
        for (int k = 0; k < p.n; k++)
            assert_int_equal(p.cpu[k], m->want_order[k]);
    }
    remove_tree(dir);
}

/* Kernels from 5.3 on call the list of a core's threads core_cpus_list, and mean it even where the
 * old name says otherwise. */
static void test_both_names_of_siblings(void **state)
{
    (void)state;
    const int all[] = {0, 1, 2, 3};
    bnet_cpu_plan p;
    remove_tree(dir);
    mkdir(dir, 0755);
    for (int c = 0; c < 4; c++) {
        put(c, "topology/core_cpus_list", c < 2 ? "0-1" : "2-3");
        put(c, "topology/thread_siblings_list", "0-3");
    }
    assert_int_equal(bnet_cpu_plan_make(dir, all, 4, 4, &p, NULL), BITNET_OK);
    assert_int_equal(p.n_threads, 2);
    assert_true(p.cpu[0] == 0 && p.cpu[1] == 2);
    remove_tree(dir);
}

static void test_this_machine(void **state)
{
    (void)state;
    bnet_cpu_plan p;
    assert_int_equal(bnet_cpu_plan_make("", NULL, 0, 1024, &p, NULL), BITNET_OK);
    assert_true(p.n >= 1 && p.n_threads >= 1 && p.n_threads <= p.n);
    assert_int_equal(bnet_cpu_plan_make("", NULL, 0, 1, &p, NULL), BITNET_OK);
    assert_int_equal(p.n_threads, 1);
    const int none = 0;
    assert_int_equal(bnet_cpu_plan_make("", &none, 0, 8, &p, NULL),
                     BITNET_OK); /* a mask that cannot be read */
    assert_true(p.n == 1 && p.n_threads == 1);
}

int main(void)
{
    snprintf(dir, sizeof dir, "/tmp/bitnet-plan-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_both_names_of_siblings),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests_name("device/cpu_plan", tests, NULL, NULL);
}
