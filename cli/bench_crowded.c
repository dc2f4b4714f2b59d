/* bench_crowded.c - `bitnet bench --crowded`: decoding while other programs want the same CPUs. The
 * loads and the numbers of threads take turns, so that a machine that slows down slows every row.
 */
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "progress.h"

enum { LOADS_MAX = 3, REPEATS = 5, WARM_MS = 1000, FIGURE_MS = 500 };

/* ---- measuring ---- */

typedef struct contest {
    bench_plan plan; /* one test, one depth */
    bitnet_bench_test test;
    crowd others;
    int loads[LOADS_MAX]; /* busy processes, the first 0 */
    size_t n_loads;
    bench_side sides[BENCH_LIST_MAX + 1]; /* numbers of threads, the first 1 */
    size_t n_sides;
    bench_row rows[LOADS_MAX][BENCH_LIST_MAX + 1];
    double tok_s[LOADS_MAX][BENCH_LIST_MAX + 1][BENCH_REPEATS_MAX];
} contest;

/* A short test is repeated: a figure is of many turns of the scheduler. */
static int measure_once(bench_side *s, const bitnet_bench_test *t, double *tok_s)
{
    double start = now_ms(), n_tokens = 0, ms = 0, unused;
    bitnet_bench_test warm = *t;
    int rc;
    warm.n_tokens = t->n_tokens < 8 ? t->n_tokens : 8;
    do
        rc = side_once(s, &warm, &unused);
    while (!rc && now_ms() - start < WARM_MS);
    while (!rc && ms < FIGURE_MS) {
        rc = side_once(s, t, &unused);
        n_tokens += (double)s->last.n_tokens;
        ms += s->last.ms;
    }
    *tok_s = ms > 0 ? 1e3 * n_tokens / ms : 0;
    return rc;
}

/* One turn: every number of threads under every load. */
static int measure_turn(contest *c, size_t r)
{
    size_t n_turn = c->n_loads * c->n_sides, n_all = n_turn * (size_t)c->plan.n_repeats;
    int rc = EXIT_OK;
    for (size_t i = 0; !rc && i < n_turn; i++) {
        size_t l = i / c->n_sides, k = i % c->n_sides;
        crowd_load(&c->others, c->loads[l]);
        progress_step(NULL, r * n_turn + i, n_all);
        progress_detail("%d thread%s beside %d busy", c->sides[k].limits.n_threads,
                        plural((uint64_t)c->sides[k].limits.n_threads), c->loads[l]);
        rc = measure_once(&c->sides[k], &c->test, &c->tok_s[l][k][r]);
    }
    return rc;
}

static int measure(contest *c)
{
    size_t n = (size_t)c->plan.n_repeats;
    int rc = EXIT_OK;
    progress_begin(UNIT_NONE, "measuring");
    for (size_t r = 0; !rc && r < n; r++)
        rc = measure_turn(c, r);
    progress_end();
    for (size_t l = 0; !rc && l < c->n_loads; l++)
        for (size_t k = 0; k < c->n_sides; k++)
            fill_row(&c->plan, &c->sides[k], &c->test, c->tok_s[l][k], n, &c->rows[l][k]);
    return rc;
}

/* ---- telling ---- */

static void print_crowded(const contest *c, size_t l, size_t k)
{
    const bench_row *r = &c->rows[l][k];
    double own = r->tok_s.median, idle = own / c->rows[0][k].tok_s.median;
    double one = own / c->rows[l][0].tok_s.median, one_idle = own / c->rows[0][0].tok_s.median;
    if (!opt_json(c->plan.args)) {
        out_printf("%10d %8d %10.2f %6.1f %% %9.3f %13.3f %18.3f\n", c->loads[l], r->n_threads, own,
                   100 * r->tok_s.spread, idle, one, one_idle);
        return;
    }
    json_t *j = row_json(&c->plan, r), *more;
    char name[128];
    snprintf(name, sizeof name, "%s busy=%d", r->name, c->loads[l]);
    more =
        json_pack("{s:i, s:o, s:o, s:o, s:s}", "busy", c->loads[l], "of_idle", j_num(idle),
                  "of_one_thread", j_num(one), "of_one_idle_thread", j_num(one_idle), "name", name);
    json_object_update(j, more);
    j_print(j);
    json_decref(more);
    json_decref(j);
}

static void tell(contest *c)
{
    char test[32];
    test_name(&c->test, test, sizeof test);
    if (!opt_json(c->plan.args)) {
        print_head(&c->plan, c->sides[0].model);
        out_printf("%s, median of %d; busy loops are processes that only count\n%10s %8s %10s %8s "
                   "%9s %13s %18s\n",
                   test, c->plan.n_repeats, "busy loops", "threads", "tok/s", "spread", "of idle",
                   "of one thread", "of one idle thread");
    }
    for (size_t l = 0; l < c->n_loads; l++)
        for (size_t k = 0; k < c->n_sides; k++)
            print_crowded(c, l, k);
    for (size_t l = 0; l < c->n_loads; l++)
        for (size_t k = 0; k < c->n_sides; k++)
            row_free(&c->rows[l][k]);
}

/* ---- the command ---- */

static int check_plan(const bench_plan *p)
{
    static const option_key useless[] = {OPT_COMPARE,       OPT_BASELINE, OPT_SAVE,
                                         OPT_PLOT,          OPT_RECEIPT,  OPT_PROFILE,
                                         OPT_BENCH_KERNELS, OPT_MODEL_OUT};
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
        if (opt_given(p->args, useless[i]))
            return fail(EXIT_USAGE, "bench: %s has no meaning with --crowded",
                        option_at(useless[i])->dashed);
    if (p->n_tests != 1 || p->tests[0].prompt || p->tests[0].n_sessions || p->depths.n != 1)
        return fail(EXIT_USAGE, "--crowded: --tests must be one tgN, and --depth one number");
    return EXIT_OK;
}

/* None busy, a quarter of the CPUs that this process may use, all of them. */
static int choose_loads(contest *c)
{
    cpu_set_t mask;
    int n = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
    int quarter = n / 4 > 0 ? n / 4 : 1;
    c->loads[c->n_loads++] = 0;
    if (quarter < n)
        c->loads[c->n_loads++] = quarter;
    return c->loads[c->n_loads++] = n;
}

/* A number of threads that is open already is not opened again. */
static int open_side(contest *c, const bench_source *src, int n_threads)
{
    bench_side *s = &c->sides[c->n_sides++];
    int rc = side_open(&c->plan, src, n_threads, NULL, s);
    bool again = false;
    for (size_t k = 0; !rc && k + 1 < c->n_sides; k++)
        again = again || c->sides[k].limits.n_threads == s->limits.n_threads;
    if (again)
        side_close(&c->sides[--c->n_sides]);
    return rc;
}

int bench_crowded(const bench_plan *p)
{
    bench_source src = {0};
    contest *c = xmalloc(sizeof *c);
    memset(c, 0, sizeof *c);
    c->plan = *p;
    c->plan.measures = false; /* no columns of the usual table */
    if (!opt_given(p->args, OPT_REPEAT))
        c->plan.n_repeats = REPEATS;
    if (!opt_given(p->args, OPT_TESTS))
        c->plan.n_tests = bitnet_bench_parse("tg64", c->plan.tests);
    c->test = c->plan.tests[0];
    c->test.depth = c->plan.depths.data[0];
    int rc = check_plan(&c->plan);
    if (!rc)
        rc = crowd_open(&c->others, choose_loads(c));
    if (!rc)
        rc = source_open(p->args, NULL, opt_text(p->args, OPT_SYNTHETIC),
                         opt_text(p->args, OPT_HEAD), &src);
    if (!rc)
        rc = open_side(c, &src, 1);
    for (size_t i = 0; !rc && i < p->threads.n; i++)
        rc = open_side(c, &src, p->threads.data[i]);
    if (!rc)
        rc = measure(c);
    crowd_close(&c->others);
    if (!rc)
        tell(c);
    for (size_t k = 0; k < c->n_sides; k++)
        side_close(&c->sides[k]);
    source_close(&src);
    free(c);
    return rc;
}
