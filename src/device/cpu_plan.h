/* cpu_plan.h - which CPUs threads should run on, and how many threads that makes. */
#ifndef BNET_CPU_PLAN_H
#define BNET_CPU_PLAN_H

#include "base/base.h"

enum { BNET_PLAN_CPUS = 1024 };

typedef struct bnet_cpu_plan {
    int n;                   /* CPUs the process may run on, at least 1 */
    int cpu[BNET_PLAN_CPUS]; /* the fastest cores first, one thread of each core before any second
                              */
    int n_threads;           /* that compute fastest; never more than the control group lets run */
} bnet_cpu_plan;

/* root: prefix of /sys ("" for the real one). allowed: the CPUs of the affinity mask, ascending;
 * NULL: those of the calling thread. n_usable: an upper limit on threads (cgroup quota). Fails:
 * MEMORY. */
bitnet_status bnet_cpu_plan_make(const char *root, const int *allowed, int n_allowed, int n_usable,
                                 bnet_cpu_plan *out, bitnet_error *err);

#endif
