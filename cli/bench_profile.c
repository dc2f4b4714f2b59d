/* bench_profile.c - what bench shows beside tokens per second: where the time of a step goes,
 * kernels one by one, and of a GPU how they were launched, memory as computed and as taken, how
 * fast weights were brought. */
#include <math.h>

#include "bench.h"

enum { TIMES_MAX = 256, ENTRIES_MAX = 64 };
static const double share_most = 0.10; /* of what is neither a linear layer nor the head */

bool on_device(const bench_side *s)
{
    bitnet_stats stats;
    bitnet_stats_init(&stats);
    return bitnet_engine_stats(s->engine, &stats, NULL) == BITNET_OK &&
           strcmp(stats.device, "cpu") != 0;
}

/* ---- launches ---- */

static void launch_text(const bitnet_launch *l, char *buf, size_t cap)
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

static json_t *launch_json(const bitnet_launch *l)
{
    json_t *grid = json_pack("[iii]", (int)l->grid[0], (int)l->grid[1], (int)l->grid[2]);
    return j_object("grid:j block:i shared_bytes:i registers:i blocks_per_sm:i occupancy:f", grid,
                    (int)l->block, (int)l->shared_bytes, l->registers, l->blocks_per_sm,
                    (double)l->occupancy);
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

static json_t *times_json(const bench_side *s, const timing *t)
{
    char test[32];
    json_t *list = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const bitnet_kernel_time *k = &t->t[i];
        json_array_append_new(list, j_object("kernel:t op:t variant:i launches:n ms:f launch:j",
                                             k->kernel, k->op, k->variant, k->n_launches, k->ms,
                                             launch_json(&k->launch)));
    }
    test_name(&t->test, test, sizeof test);
    return j_object("test:t of:t depth:i ms_per_step:f kernels_ms_per_step:f kernels:j model:t",
                    "profile", test, t->test.depth, t->total_ms / steps_of(t),
                    t->sum_ms / launched_steps(t), list, s->model);
}

static void times_text(const timing *t)
{
    const bitnet_bench_test *x = &t->test;
    char launch[96], name[64];
    double steps = launched_steps(t);
    if (x->prompt)
        out_printf("prompt of %d", x->n_tokens);
    else if (x->n_sessions)
        out_printf("decode step of %d timelines", x->n_sessions);
    else
        out_puts("decode step");
    out_printf(" at depth %d: %.4f ms; kernels by themselves, by the device's clock: %.4f ms\n",
               x->depth, t->total_ms / steps_of(t), t->sum_ms / steps);
    out_printf("  %-26s %7s %9s %8s %8s  %s\n", "kernel", "share", "ms", "launches", "us each",
               "grid x block, shared, registers, blocks per multiprocessor, occupancy");
    for (size_t i = 0; i < t->n; i++) {
        const bitnet_kernel_time *k = &t->t[i];
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
        return fail_with(&err);
    for (size_t i = 0; i < t.n; i++)
        t.sum_ms += t.t[i].ms;
    if (opt_json(p->args))
        j_print(times_json(s, &t));
    else
        times_text(&t);
    return EXIT_OK;
}

/* The tests of --tests at the deepest of --depth; without them a decode step. */
static int profile_device(const bench_plan *p, bench_side *s)
{
    int rc = EXIT_OK, depth = deepest(p);
    if (!p->measures)
        return show_times(p, s,
                          (bitnet_bench_test){.n_tokens = PROFILE_TOKENS,
                                              .depth = depth ? depth : PROFILE_DEPTH});
    for (size_t i = 0; !rc && i < p->n_tests; i++) {
        bitnet_bench_test each = p->tests[i];
        each.depth = depth;
        rc = show_times(p, s, each);
    }
    return rc;
}

/* ---- memory and loading ---- */

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
    if (opt_json(p->args))
        j_print(j_object("test:t weights:n session:n computed:n allocated_peak:n before_us:n "
                         "total:n load_ms:f load_bytes:n",
                         "memory", m.weights, session, m.weights + session, m.own_peak, m.foreign,
                         m.total, m.load_ms, m.load_bytes));
    else
        memory_text(&m, session);
}

/* ---- --profile ---- */

static json_t *profile_json(const bench_side *s, const bitnet_bench_test *t,
                            const bitnet_profile_entry *e, size_t n, double ms, const char *worst)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, j_object("op:t calls:n ms:f share:f", e[i].name, e[i].n_calls,
                                             e[i].ms, e[i].share));
    json_t *o = j_object(t->prompt ? "test:t of:t threads:i depth:i tokens:i ms:f ops:j "
                                     "above_10_percent:t model:t"
                                   : "test:t of:t threads:i depth:i steps:i ms_per_step:f ops:j "
                                     "above_10_percent:t model:t",
                         "profile", t->prompt ? "prompt" : "step", s->limits.n_threads, t->depth,
                         t->n_tokens, t->prompt ? ms : ms / t->n_tokens, list, worst, s->model);
    if (t->n_sessions)
        json_object_set_new(o, "timelines", json_integer(t->n_sessions));
    return o;
}

static void profile_text(const bench_side *s, const bitnet_bench_test *t,
                         const bitnet_profile_entry *e, size_t n, double ms, const char *worst)
{
    double per = t->prompt ? 1 : t->n_tokens;
    if (t->prompt)
        out_printf("profile of a prompt of %d token%s", t->n_tokens, plural((uint64_t)t->n_tokens));
    else if (t->n_sessions)
        out_printf("profile of a step of %d timeline%s", t->n_sessions,
                   plural((uint64_t)t->n_sessions));
    else
        out_printf("profile of a decode step");
    out_printf(" at depth %d, %d thread%s: %.3f ms\n", t->depth, s->limits.n_threads,
               plural((uint64_t)s->limits.n_threads), ms / per);
    for (size_t i = 0; i < n; i++)
        out_printf("  %-17s %6.2f %%  %9.4f ms  %8.1f calls\n", e[i].name, 100 * e[i].share,
                   e[i].ms / per, (double)e[i].n_calls / per);
    if (t->prompt || t->n_sessions)
        return;
    if (worst)
        out_printf("  verdict: %s takes more than %.0f %% of a step\n", worst, 100 * share_most);
    else
        out_printf("  verdict: nothing but linear layers and head takes more than %.0f %%\n",
                   100 * share_most);
}

static int profile_one(const bench_plan *p, bench_side *s, const bitnet_bench_test *t)
{
    bitnet_profile_entry e[ENTRIES_MAX];
    bitnet_error err = {0};
    size_t n = 0;
    double ms = 0;
    const char *worst = NULL;
    for (int round = 0; round < 2; round++) /* the first one warms up */
        if (bitnet_bench_profile(s->bench, t, e, ENTRIES_MAX, &n, &ms, &err) != BITNET_OK)
            return fail_with(&err);
    for (size_t i = n; i-- > 0;)
        if (!word_in("linear head", ' ', e[i].name) && e[i].share > share_most)
            worst = e[i].name;
    if (opt_json(p->args))
        j_print(profile_json(s, t, e, n, ms, worst));
    else
        profile_text(s, t, e, n, ms, worst);
    return EXIT_OK;
}

/* A step at the deepest of --depth, or where problems show: at 512; and the prompts and batches of
 * --tests, at the beginning. */
int bench_profile(const bench_plan *p, bench_side *s)
{
    int depth = deepest(p);
    if (on_device(s))
        return profile_device(p, s);
    int rc = profile_one(
        p, s,
        &(bitnet_bench_test){.n_tokens = PROFILE_TOKENS, .depth = depth ? depth : PROFILE_DEPTH});
    for (size_t i = 0; p->measures && i < p->n_tests && rc == EXIT_OK; i++)
        if (p->tests[i].prompt || p->tests[i].n_sessions)
            rc = profile_one(p, s,
                             &(bitnet_bench_test){.prompt = p->tests[i].prompt,
                                                  .n_tokens = p->tests[i].n_tokens,
                                                  .n_sessions = p->tests[i].n_sessions});
    return rc;
}

/* ---- --kernels ---- */

typedef struct rates {
    const bench_plan *plan;
    const bench_side *side;
} rates;

/* How a GPU was used, and by how much. */
static void print_launched(const bitnet_kernel_rate *r)
{
    char launch[96];
    launch_text(&r->launch, launch, sizeof launch);
    out_printf("  %-26s %4llu x %6llu x %6llu %9.2f us ", r->kernel, (unsigned long long)r->shape.m,
               (unsigned long long)r->shape.n, (unsigned long long)r->shape.k, 1e3 * r->ms);
    if (r->shape.m == 1)
        out_printf("%8.1f GB/s", r->gb_s);
    else
        out_printf("%8.1f TOPS", r->gop_s / 1e3);
    out_printf("  %s%s\n", launch, r->chosen ? ", chosen" : "");
}

static void print_rate(void *user, const bitnet_kernel_rate *r)
{
    const rates *t = user;
    const bitnet_limits *l = &t->side->limits;
    double of_read = share_of(r->gb_s, l->read_gb_s), of_peak = share_of(r->gop_s, peak_of(l));
    const bitnet_kernel_query *s = &r->shape;
    if (opt_json(t->plan->args)) {
        json_t *j = j_object("test:t threads:i kernel:t format:t m:n n:n k:n ms:f gb_s:f "
                             "share_of_read_limit:f gop_s:f share_of_peak:f chosen:b",
                             "kernel", l->n_threads, r->kernel, s->format, s->m, s->n, s->k, r->ms,
                             r->gb_s, of_read, r->gop_s, of_peak, r->chosen);
        if (r->launch.block)
            j_add(j, "launch:j", launch_json(&r->launch));
        j_print(j);
        return;
    }
    if (r->launch.block) {
        print_launched(r);
        return;
    }
    out_printf("  %-26s %4llu x %6llu x %6llu %10.4f ms ", r->kernel, (unsigned long long)s->m,
               (unsigned long long)s->n, (unsigned long long)s->k, r->ms);
    if (s->m == 1)
        out_printf("%9.2f GB/s ", r->gb_s);
    else
        out_printf("%9.1f Gop/s", r->gop_s);
    if (s->m == 1 && isfinite(of_read))
        out_printf(" %5.1f %% of the read limit", 100 * of_read);
    if (s->m > 1 && isfinite(of_peak))
        out_printf(" %5.1f %% of %s", 100 * of_peak, l->peaks[0].name);
    out_puts(r->chosen ? ", chosen\n" : "\n");
}

int bench_kernels(const bench_plan *p, bench_side *s)
{
    static const uint64_t sizes[] = {1, 512};
    bitnet_error err = {0};
    rates t = {p, s};
    if (!opt_json(p->args) && on_device(s))
        out_printf(
            "kernels one by one, cold: tokens x outputs x inputs; grid x block, shared memory, "
            "registers, blocks per multiprocessor, occupancy\n");
    else if (!opt_json(p->args))
        out_printf("kernels one by one, %d thread%s: tokens x outputs x inputs\n",
                   s->limits.n_threads, plural((uint64_t)s->limits.n_threads));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (bitnet_bench_each_kernel(s->engine, sizes[i], p->n_repeats, print_rate, &t, &err) !=
            BITNET_OK)
            return fail_with(&err);
    return interrupted();
}
