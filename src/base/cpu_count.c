/* cpu_count.c - how many CPUs this process may use: what its affinity mask and its control group
 * leave of the machine's. */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/thread.h"

/* cgroup v2: "max 100000" or "<quota> <period>" in cpu.max of our own group's root view. */
static int cgroup_limit(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f)
        return 0;
    long long quota = 0, period = 0;
    int n = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    return n == 2 && quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int bnet_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int limit = cgroup_limit();
    if (limit > 0 && limit < n)
        n = limit;
    return n < 1 ? 1 : n;
}
