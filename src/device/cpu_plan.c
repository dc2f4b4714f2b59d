/* cpu_plan.c - cores, their threads and their speeds from sysfs.
 *
 * Work is divided evenly and waits for the slowest, so n threads compute as fast as n times their
 * slowest core: slow cores are taken where that product grows. Second threads of a core share what
 * a ternary kernel needs (vector units, memory ports) and are never taken by themselves. */
#include "device/cpu_plan.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/probe.h"

typedef struct cpu_entry {
    int cpu, core;       /* core: the lowest CPU that shares it */
    bool second;         /* not the first of its core that we may use */
    unsigned long speed; /* in any unit, the same for all */
} cpu_entry;

/* A number in root + /sys/devices/system/cpu/cpuN/file; `otherwise` where there is none. */
static unsigned long number_of(const char *root, int cpu, const char *file, unsigned long otherwise)
{
    char path[128], text[64];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
    if (bnet_read_text(root, path, text, sizeof text) <= 0)
        return otherwise;
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    return end == text ? otherwise : v;
}

static cpu_entry entry_of(const char *root, int cpu)
{
    unsigned long me = (unsigned long)cpu, core;
    core = number_of(root, cpu, "topology/thread_siblings_list", me);
    core = number_of(root, cpu, "topology/core_cpus_list", core);
    unsigned long speed = number_of(root, cpu, "cpufreq/cpuinfo_max_freq", 1);
    speed = number_of(root, cpu, "cpu_capacity", speed);
    return (cpu_entry){cpu, core <= me ? (int)core : cpu, false, speed ? speed : 1};
}

static int better_first(const void *pa, const void *pb)
{
    const cpu_entry *a = pa, *b = pb;
    if (a->second != b->second)
        return a->second ? 1 : -1;
    if (a->speed != b->speed)
        return a->speed > b->speed ? -1 : 1;
    return a->cpu - b->cpu;
}

/* The affinity mask of this thread; returns how many were written. */
static int allowed_here(int *out, int cap)
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int i = 0; i < CPU_SETSIZE && n < cap; i++)
        if (CPU_ISSET((size_t)i, &set))
            out[n++] = i;
    return n;
}

static int best_count(const cpu_entry *e, int n, int n_usable)
{
    int best = 1;
    for (int k = 1; k <= n && k <= n_usable && !e[k - 1].second; k++)
        if ((double)k * (double)e[k - 1].speed > (double)best * (double)e[best - 1].speed)
            best = k;
    return best;
}

bitnet_status bnet_cpu_plan_make(const char *root, const int *allowed, int n_allowed, int n_usable,
                                 bnet_cpu_plan *out, bitnet_error *err)
{
    if (allowed)
        memcpy(out->cpu, allowed, (size_t)BNET_MIN(n_allowed, (int)BNET_PLAN_CPUS) * sizeof(int));
    else
        n_allowed = allowed_here(out->cpu, BNET_PLAN_CPUS);
    out->n = BNET_MIN(n_allowed, (int)BNET_PLAN_CPUS);
    if (out->n < 1) { /* nothing is known: one thread, wherever it runs */
        *out = (bnet_cpu_plan){.n = 1, .n_threads = 1};
        return BITNET_OK;
    }
    cpu_entry *e = bnet_calloc((size_t)out->n, sizeof *e);
    if (!e)
        return bnet_no_memory(err, "plan of CPUs");
    for (int i = 0; i < out->n; i++) {
        e[i] = entry_of(root, out->cpu[i]);
        for (int k = 0; k < i; k++)
            e[i].second |= e[k].core == e[i].core;
    }
    qsort(e, (size_t)out->n, sizeof *e, better_first);
    for (int i = 0; i < out->n; i++)
        out->cpu[i] = e[i].cpu;
    out->n_threads = best_count(e, out->n, n_usable);
    bnet_free(e);
    return BITNET_OK;
}
