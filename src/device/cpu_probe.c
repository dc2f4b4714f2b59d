/* cpu_probe.c - the CPU as Linux describes it in /proc and /sys. Every file may be missing (a
 * container, another kernel): then the figure is 0, or for counts what the process itself can tell.
 */
#include "device/cpu_features.h"
#include "device/probe.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, CPUS_MAX = 4096, KIB = 1024 };

typedef struct part {
    unsigned implementer, part;
    const char *name;
} part;

static const part arm_parts[] = {
#define PART(implementer, part, name) {implementer, part, name},
#include "device/arm_parts.inc"
#undef PART
};

/* The value of the first line "key : value" of such a file, trimmed; NULL if there is none. */
static const char *value_of(const char *text, const char *key, size_t *n)
{
    size_t key_n = strlen(key);
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        if (strncmp(p, key, key_n) != 0)
            continue;
        const char *v = p + key_n + strspn(p + key_n, " \t");
        if (*v != ':')
            continue;
        v += 1 + strspn(v + 1, " \t");
        *n = strcspn(v, "\n");
        return v;
    }
    return NULL;
}

uint64_t bnet_kib_of(const char *text, const char *key)
{
    size_t n;
    const char *v = value_of(text, key, &n);
    uint64_t kib = v ? strtoull(v, NULL, 10) : 0;
    return kib > UINT64_MAX / KIB ? 0 : kib * KIB;
}

/* ---- name ---- */

static bool arm_name(const char *text, char *out, size_t cap)
{
    size_t n;
    const char *imp = value_of(text, "CPU implementer", &n), *num = value_of(text, "CPU part", &n);
    if (!imp || !num)
        return false;
    unsigned long implementer = strtoul(imp, NULL, 0), number = strtoul(num, NULL, 0);
    for (size_t i = 0; i < BNET_COUNT(arm_parts); i++)
        if (arm_parts[i].implementer == implementer && arm_parts[i].part == number) {
            snprintf(out, cap, "%s", arm_parts[i].name);
            return true;
        }
    snprintf(out, cap, "ARM implementer 0x%02lx part 0x%03lx", implementer, number);
    return true;
}

static void probe_brand(const char *root, char *text, bnet_cpu_info *out)
{
    size_t n;
    snprintf(out->brand, sizeof out->brand, "unknown");
    if (bnet_read_text(root, "/proc/cpuinfo", text, TEXT_MAX) <= 0)
        return;
    const char *v = value_of(text, "model name", &n);
    if (v && n)
        bnet_copy_name(out->brand, sizeof out->brand, v, n);
    else
        arm_name(text, out->brand, sizeof out->brand);
}

/* ---- cores ---- */

/* Walks "0-3,8,10-11"; calls each(arg, i) and returns how many numbers there are. */
static int walk_list(const char *list, void (*each)(void *arg, int i), void *arg)
{
    int count = 0;
    for (const char *p = list; *p >= '0' && *p <= '9';) {
        char *end;
        unsigned long a = strtoul(p, &end, 10), b = a;
        if (*end == '-')
            b = strtoul(end + 1, &end, 10);
        if (b >= CPUS_MAX || b < a)
            break;
        for (unsigned long i = a; i <= b; i++, count++)
            if (each)
                each(arg, (int)i);
        p = *end == ',' ? end + 1 : end;
    }
    return count;
}

typedef struct core_count {
    const char *root;
    int n;
} core_count;

/* Of the threads of one core, the lowest counts. */
static void count_core(void *arg, int cpu)
{
    static const char *const files[] = {"core_cpus_list", "thread_siblings_list"};
    core_count *c = arg;
    char path[128], list[256];
    for (size_t i = 0; i < BNET_COUNT(files); i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, files[i]);
        if (bnet_read_text(c->root, path, list, sizeof list) <= 0)
            continue;
        c->n += strtol(list, NULL, 10) == cpu;
        return;
    }
    c->n++;
}

static void probe_cores(const char *root, char *text, bnet_cpu_info *out)
{
    core_count cores = {root, 0};
    if (bnet_read_text(root, "/sys/devices/system/cpu/online", text, TEXT_MAX) > 0)
        out->n_logical = walk_list(text, count_core, &cores);
    if (out->n_logical < 1) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        out->n_logical = n < 1 ? 1 : (int)n;
    }
    out->n_physical = cores.n > 0 ? cores.n : out->n_logical;
    out->n_numa_nodes = 1;
    if (bnet_read_text(root, "/sys/devices/system/node/online", text, TEXT_MAX) > 0)
        out->n_numa_nodes = BNET_MAX(1, walk_list(text, NULL, NULL));
}

/* ---- caches ---- */

/* "48K", "2M" or bytes */
static uint64_t size_of(const char *s)
{
    char *end;
    uint64_t v = strtoull(s, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return v > UINT64_MAX >> shift ? 0 : v << shift;
}

static void probe_caches(const char *root, bnet_cpu_info *out)
{
    uint64_t *const by_level[] = {NULL, &out->l1d_bytes, &out->l2_bytes, &out->l3_bytes};
    for (int i = 0; i < 16; i++) {
        char path[128], level[32], type[32], size[32];
        int n = snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/", i);
        snprintf(path + n, sizeof path - (size_t)n, "level");
        if (bnet_read_text(root, path, level, sizeof level) <= 0)
            return;
        snprintf(path + n, sizeof path - (size_t)n, "type");
        if (bnet_read_text(root, path, type, sizeof type) <= 0 ||
            strncmp(type, "Instruction", 11) == 0)
            continue;
        snprintf(path + n, sizeof path - (size_t)n, "size");
        long l = strtol(level, NULL, 10);
        if (l >= 1 && l <= 3 && bnet_read_text(root, path, size, sizeof size) > 0)
            *by_level[l] = size_of(size);
    }
}

/* ---- control group ---- */

typedef struct limits {
    uint64_t cpus, memory; /* 0: none */
} limits;

static void lower(uint64_t *limit, uint64_t value)
{
    if (value && (!*limit || value < *limit))
        *limit = value;
}

/* What is in a file of a group; false: it is not there. */
static bool read_file(const char *root, const char *folder, const char *name, char text[64])
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return bnet_read_text(root, path, text, 64) > 0;
}

typedef struct asked {
    const char *root;
    limits *found;
} asked;

/* Version 2: cpu.max is "max 100000" or "<quota> <period>"; version 1: -1 or microseconds. */
static void group_cpus(void *user, bool unified, const char *folder, const char *group)
{
    const asked *a = user;
    char text[64], *end;
    uint64_t quota = 0, period = 0;
    (void)group;
    if (unified && read_file(a->root, folder, "cpu.max", text)) {
        quota = strtoull(text, &end, 10);
        period = strtoull(end, NULL, 10);
    }
    if (!unified && read_file(a->root, folder, "cpu.cfs_quota_us", text) && text[0] != '-') {
        quota = strtoull(text, NULL, 10);
        period =
            read_file(a->root, folder, "cpu.cfs_period_us", text) ? strtoull(text, NULL, 10) : 0;
    }
    if (quota && period)
        lower(&a->found->cpus, quota / period + (quota % period != 0));
}

/* Version 2: memory.max is a number or "max"; version 1: unlimited is a number near 2^63. */
static void group_memory(void *user, bool unified, const char *folder, const char *group)
{
    const asked *a = user;
    char text[64];
    (void)group;
    if (!read_file(a->root, folder, unified ? "memory.max" : "memory.limit_in_bytes", text))
        return;
    uint64_t bytes = strtoull(text, NULL, 10);
    lower(&a->found->memory, bytes < (uint64_t)1 << 60 ? bytes : 0);
}

static limits probe_limits(const char *root)
{
    limits l = {0, 0};
    asked a = {root, &l};
    bnet_control_groups(root, "cpu", group_cpus, &a);
    bnet_control_groups(root, "memory", group_memory, &a);
    return l;
}

void bnet_probe_cpu(const bnet_world *w, bnet_cpu_info *out)
{
    char text[TEXT_MAX];
    *out = (bnet_cpu_info){.features = bnet_cpu_features(), .sve_bytes = bnet_cpu_sve_bytes()};
    probe_brand(w->root, text, out);
    probe_cores(w->root, text, out);
    probe_caches(w->root, out);
    limits l = probe_limits(w->root);
    uint64_t usable = (uint64_t)bnet_cpu_count();
    lower(&usable, l.cpus);
    out->n_usable = (int)usable;
    out->memory_limit = l.memory;
    bitnet_host_memory m = {0};
    bnet_host_memory_read(w->root, &m);
    out->memory_total = m.total_bytes;
    out->memory_available = m.available_bytes;
    out->process_rss = m.process_bytes;
    out->process_peak_rss = m.process_peak_bytes;
}
