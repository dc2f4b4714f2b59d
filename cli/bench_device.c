/* bench_device.c - what bench shows of a GPU: kernels of a step or prompt one by one with how they
 * were launched, memory as computed and as taken, how fast weights were brought. */
#include <jansson.h>
#include <string.h>

#include "bench.h"

enum { TIMES_MAX = 256, PROFILE_TOKENS = 32, PROFILE_DEPTH = 512 };

bool on_device(const bench_side *s)
{
    bitnet_stats stats;
    bitnet_stats_init(&stats);
    return bitnet_engine_stats(s->engine, &stats, NULL) == BITNET_OK &&
           strcmp(stats.device, "cpu") != 0;
}

/* ---- launches ---- */

void launch_text(const bitnet_launch *l, char *buf, size_t cap)
{
    char grid[40];
    if (l->grid[2] > 1)
        snprintf(grid, sizeof grid, "%ux%ux%u", l->grid[0], l->grid[1], l->grid[2]);
    else if (l->grid[1] > 1)
        snprintf(grid, sizeof grid, "%ux%u", l->grid[0], l->grid[1]);
    else
        snprintf(grid, sizeof grid, "%u", l->grid[0]);
    snprintf(buf, cap, "%10s x %4u %7u B %4d regs %2d/SM %4.0f %%", grid, l->block, l->shared_bytes,
             l->registers, l->blocks_per_sm, 100 * l->occupancy);
}

json_t *launch_json(const bitnet_launch *l)
{
    return json_pack("{s:[iii], s:i, s:i, s:i, s:i, s:o}", "grid", (int)l->grid[0], (int)l->grid[1],
                     (int)l->grid[2], "block", (int)l->block, "shared_bytes", (int)l->shared_bytes,
                     "registers", l->registers, "blocks_per_sm", l->blocks_per_sm, "occupancy",
                     j_num(l->occupancy));
}

/* ---- kernel by kernel ---- */

typedef struct timing {
    bitnet_bench_test test;
    bitnet_kernel_time t[TIMES_MAX];
    size_t n;
    double total_ms, sum_ms;
} timing;

static double steps_of(const timing *t)
{
    return t->test.prompt ? 1 : t->test.n_tokens;
}

/* Of what was timed kernel by kernel: decoding begins with one step that the clock does not count.
 */
static double launched_steps(const timing *t)
{
    return steps_of(t) + (!t->test.prompt && !t->test.n_sessions);
}

static void what_of(const timing *t, char *buf, size_t cap)
{
    const bitnet_bench_test *x = &t->test;
    if (x->prompt)
        snprintf(buf, cap, "prompt of %d at depth %d", x->n_tokens, x->depth);
    else if (x->n_sessions)
        snprintf(buf, cap, "decode step of %d timelines at depth %d", x->n_sessions, x->depth);
    else
        snprintf(buf, cap, "decode step at depth %d", x->depth);
}

static json_t *times_json(const bench_side *s, const timing *t)
{
    char test[32];
    json_t *list = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:i, s:I, s:o, s:o}", "kernel", t->t[i].kernel,
                                        "op", t->t[i].op, "variant", t->t[i].variant, "launches",
                                        (json_int_t)t->t[i].n_launches, "ms", j_num(t->t[i].ms),
                                        "launch", launch_json(&t->t[i].launch)));
    test_name(&t->test, test, sizeof test);
    return json_pack("{s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "test", "profile", "of", test, "depth",
                     t->test.depth, "ms_per_step", j_num(t->total_ms / steps_of(t)),
                     "kernels_ms_per_step", j_num(t->sum_ms / launched_steps(t)), "kernels", list,
                     "model", j_str(s->model));
}

static void times_text(const timing *t)
{
    char launch[96], what[80];
    double steps = launched_steps(t);
    what_of(t, what, sizeof what);
    out_printf("%s: %.4f ms; kernels by themselves, by the device's clock: %.4f ms\n", what,
               t->total_ms / steps_of(t), t->sum_ms / steps);
    out_printf("  %-26s %7s %9s %8s %8s  %s\n", "kernel", "share", "ms", "launches", "us each",
               "grid x block, shared, registers, blocks per multiprocessor, occupancy");
    for (size_t i = 0; i < t->n; i++) {
        const bitnet_kernel_time *k = &t->t[i];
        char name[64];
        snprintf(name, sizeof name, k->variant ? "%s/%d" : "%s", k->kernel, k->variant);
        launch_text(&k->launch, launch, sizeof launch);
        out_printf("  %-26s %5.1f %% %9.4f %8.1f %8.2f  %s\n", name,
                   t->sum_ms > 0 ? 100 * k->ms / t->sum_ms : 0, k->ms / steps,
                   (double)k->n_launches / steps, 1e3 * k->ms / (double)k->n_launches, launch);
    }
}

static int show_times(const bench_plan *p, bench_side *s, bitnet_bench_test test)
{
    bitnet_error err = {0};
    timing t = {.test = test};
    if (bitnet_bench_kernel_times(s->bench, &test, t.t, TIMES_MAX, &t.n, &t.total_ms, &err) !=
        BITNET_OK)
        return interrupted() ? interrupted() : fail_with(&err);
    for (size_t i = 0; i < t.n; i++)
        t.sum_ms += t.t[i].ms;
    if (opt_json(p->args)) {
        json_t *j = times_json(s, &t);
        j_print(j);
        json_decref(j);
    } else
        times_text(&t);
    return EXIT_OK;
}

/* The tests of --tests at the deepest of --depth; without them a decode step. */
int bench_device_profile(const bench_plan *p, bench_side *s)
{
    bitnet_bench_test t = {.n_tokens = PROFILE_TOKENS};
    int rc = EXIT_OK;
    for (size_t i = 0; i < p->depths.n; i++)
        t.depth = p->depths.data[i] > t.depth ? p->depths.data[i] : t.depth;
    if (!p->measures) {
        t.depth = t.depth ? t.depth : PROFILE_DEPTH;
        return show_times(p, s, t);
    }
    for (size_t i = 0; !rc && i < p->n_tests; i++) {
        bitnet_bench_test each = p->tests[i];
        each.depth = t.depth;
        rc = show_times(p, s, each);
    }
    return rc;
}

/* ---- memory and loading ---- */

static json_t *memory_json(const bitnet_memory_use *m, uint64_t session)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I}", "test", "memory", "weights",
                     (json_int_t)m->weights, "session", (json_int_t)session, "computed",
                     (json_int_t)(m->weights + session), "allocated_peak", (json_int_t)m->own_peak,
                     "before_us", (json_int_t)m->foreign, "total", (json_int_t)m->total, "load_ms",
                     j_num(m->load_ms), "load_bytes", (json_int_t)m->load_bytes);
}

static void memory_text(const bitnet_memory_use *m, uint64_t session)
{
    double computed = (double)(m->weights + session), peak = (double)m->own_peak;
    out_printf("memory   computed %.1f MB (weights %.1f, session %.1f), taken at most %.1f MB "
               "(%+.1f %%); before us %.1f MB (driver's context and other programs) of %.1f GB\n",
               computed / 1e6, (double)m->weights / 1e6, (double)session / 1e6, peak / 1e6,
               computed > 0 ? 100 * (peak / computed - 1) : 0, (double)m->foreign / 1e6,
               (double)m->total / 1e9);
    if (m->load_ms > 0)
        out_printf("load     %.1f MB of weights to the device in %.1f ms, %.2f GB/s\n",
                   (double)m->load_bytes / 1e6, m->load_ms,
                   (double)m->load_bytes / m->load_ms / 1e6);
}

void bench_device_memory(const bench_plan *p, const bench_side *s)
{
    bitnet_memory_use m;
    bitnet_memory_use_init(&m);
    uint64_t session = bitnet_bench_memory(s->bench);
    if (bitnet_engine_memory_use(s->engine, &m, NULL) != BITNET_OK)
        return;
    if (opt_json(p->args)) {
        json_t *j = memory_json(&m, session);
        j_print(j);
        json_decref(j);
    } else
        memory_text(&m, session);
}
