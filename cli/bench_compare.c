/* bench_compare.c - sides measured in turn, so that a machine that slows down slows every row:
 * `bitnet bench --compare`, two choices side by side, and --crowded, decoding while other programs
 * want the same CPUs. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

/* ---- --compare ---- */

typedef struct pair {
    char label[2][4096];
    bench_source source[2];
    const char *isa[2];
    bench_side side[2];
} pair;

static bool is_isa(const char *s)
{
    bitnet_kernel_info k;
    for (int i = 0; bitnet_kernel_at(i, &k); i++)
        if (strcmp(k.isa, s) == 0)
            return true;
    return false;
}

static bool is_shape(const char *s)
{
    bitnet_synthetic_info info;
    for (int i = 0; bitnet_synthetic_at(i, &info); i++)
        if (strcmp(info.name, s) == 0)
            return true;
    return false;
}

static bool both(const pair *q, bool (*is)(const char *))
{
    return is(q->label[0]) && is(q->label[1]);
}

static bool is_head(const char *s)
{
    return word_in("q6_k|q8_0|q4_0|f16|bf16|f32", '|', s);
}

/* What the two words are: instruction sets, heads of the synthetic model, shapes, or files. */
static int open_sources(const bench_plan *p, pair *q)
{
    const args *a = p->args;
    const char *shape = opt_text(a, OPT_SYNTHETIC), *head = opt_text(a, OPT_HEAD);
    /* one of them is; the other may be one that this machine has not */
    bool isas = (is_isa(q->label[0]) || is_isa(q->label[1])) && access(q->label[0], F_OK) != 0 &&
                access(q->label[1], F_OK) != 0;
    bool heads = !isas && shape && both(q, is_head), shapes = !isas && !heads && both(q, is_shape);
    int rc = EXIT_OK;
    for (int i = 0; !rc && i < 2; i++) {
        q->isa[i] = isas ? q->label[i] : NULL;
        bool file = !isas && !heads && !shapes;
        rc = source_open(a, file ? q->label[i] : NULL,
                         file     ? NULL
                         : shapes ? q->label[i]
                                  : shape,
                         heads ? q->label[i] : head, &q->source[i]);
    }
    return rc;
}

static int split_pair(const args *a, pair *q)
{
    const char *text = opt_text(a, OPT_COMPARE);
    char more[8];
    if (word_at(text, ',', 0, q->label[0], sizeof q->label[0]) &&
        word_at(text, ',', 1, q->label[1], sizeof q->label[1]) && q->label[0][0] &&
        !word_at(text, ',', 2, more, sizeof more))
        return EXIT_OK;
    return fail(EXIT_USAGE,
                "--compare: '%s' is not A,B: two instruction sets, two heads of --synthetic, two "
                "shapes or two files",
                text);
}

static void print_ratio(const bench_plan *p, const pair *q, const bench_row *r,
                        const bitnet_summary *ratio)
{
    int n_threads = r[0].limits.n_threads, depth = r[0].test.depth;
    if (opt_json(p->args))
        j_print(j_object("test:t threads:i depth:i a:t b:t ratio:f ratio_min:f ratio_max:f "
                         "spread:f row_a:j row_b:j",
                         r[0].what, n_threads, depth, q->label[0], q->label[1], ratio->median,
                         ratio->min, ratio->max, ratio->spread, row_json(p, &r[0]),
                         row_json(p, &r[1])));
    else
        out_printf("%-8s %7d %7d %12.2f %12.2f %8.3f  (%.3f .. %.3f)\n", r[0].what, n_threads,
                   depth, r[0].tok_s.median, r[1].tok_s.median, ratio->median, ratio->min,
                   ratio->max);
}

/* Run by run in turn, so that a machine that slows down slows both; the ratio is taken of each
 * pair of runs. */
static int compare_test(const bench_plan *p, pair *q, const bitnet_bench_test *t)
{
    double tok_s[2][BENCH_REPEATS_MAX], ratio[BENCH_REPEATS_MAX];
    bench_row rows[2] = {0};
    int rc = EXIT_OK;
    for (int i = 0; !rc && i < 2; i++) {
        rc = side_warm(&q->side[i], t);
        bitnet_bench_forget(q->side[i].bench);
    }
    for (int r = 0; !rc && r < p->n_repeats; r++) {
        for (int i = 0; !rc && i < 2; i++)
            rc = side_once(&q->side[i], t, &tok_s[i][r]);
        ratio[r] = rc || tok_s[1][r] <= 0 ? 0 : tok_s[0][r] / tok_s[1][r];
    }
    if (rc)
        return rc;
    for (int i = 0; i < 2; i++)
        fill_row(p, &q->side[i], t, tok_s[i], (size_t)p->n_repeats, &rows[i]);
    bitnet_summary s = bitnet_summarize(ratio, (size_t)p->n_repeats);
    print_ratio(p, q, rows, &s);
    row_free(&rows[0]);
    row_free(&rows[1]);
    return EXIT_OK;
}

static int compare_threads(const bench_plan *p, pair *q, size_t which)
{
    int rc = EXIT_OK, n_threads = p->threads.data[which];
    for (int i = 0; i < 2; i++) /* both are closed below, opened or not */
        q->side[i] = (bench_side){0};
    for (int i = 0; !rc && i < 2; i++)
        rc = side_open(p, &q->source[i], n_threads, q->isa[i], &q->side[i]);
    if (!rc && which == 0 && !opt_json(p->args))
        out_printf("%-8s %7s %7s %12.12s %12.12s %8s\n", "test", "threads", "depth", q->label[0],
                   q->label[1], "ratio");
    for (int i = 0; !rc && i < 2; i++)
        side_expect(p, &q->side[i]);
    for (size_t d = 0; d < p->depths.n; d++)
        for (size_t i = 0; !rc && i < p->n_tests; i++) {
            bitnet_bench_test t = p->tests[i];
            t.depth = p->depths.data[d];
            rc = compare_test(p, q, &t);
        }
    progress_end();
    side_close(&q->side[0]);
    side_close(&q->side[1]);
    return rc;
}

int bench_compare(const bench_plan *p)
{
    int rc = check_alone(p, OPT_COMPARE);
    if (rc)
        return rc;
    pair *q = xmalloc(sizeof *q);
    memset(q, 0, sizeof *q);
    rc = split_pair(p->args, q);
    rc = rc ? rc : open_sources(p, q);
    for (size_t i = 0; !rc && i < p->threads.n; i++)
        rc = compare_threads(p, q, i);
    source_close(&q->source[0]);
    source_close(&q->source[1]);
    free(q);
    return rc;
}

/* ---- --crowded: the others ---- */

/* Processes that do nothing but count, not tied to any CPU. They are started before this process
 * has threads, stopped and continued to make a load, and end with this process, however it ends. */
typedef struct crowd {
    pid_t *pids;
    int n;
} crowd;

static void count_forever(pid_t parent)
{
    static volatile unsigned counter;
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the parent, which then ends this */
    signal(SIGTERM, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_OTHER);
    raise(SIGSTOP);
    for (;;)
        counter++;
}

static pid_t wait_for(pid_t pid, int *how, int flags)
{
    pid_t found;
    do
        found = waitpid(pid, how, flags);
    while (found < 0 && errno == EINTR);
    return found;
}

/* Starts n processes, stopped; to be closed also on failure. */
static int crowd_open(crowd *c, int n)
{
    pid_t parent = getpid();
    *c = (crowd){.pids = xmalloc((size_t)n * sizeof *c->pids)};
    while (c->n < n) {
        int how = 0;
        pid_t pid = fork();
        if (pid == 0)
            count_forever(parent);
        if (pid < 0)
            return fail(EXIT_OTHER, "--crowded: cannot start busy process %d of %d: %s", c->n + 1,
                        n, strerror(errno));
        c->pids[c->n++] = pid;
        if (wait_for(pid, &how, WUNTRACED) != pid || !WIFSTOPPED(how))
            return fail(EXIT_OTHER, "--crowded: a busy process ended at once");
    }
    return EXIT_OK;
}

/* The first n_busy count, the others rest. */
static void crowd_load(const crowd *c, int n_busy)
{
    for (int i = 0; i < c->n; i++)
        kill(c->pids[i], i < n_busy ? SIGCONT : SIGSTOP);
}

static void crowd_close(crowd *c)
{
    for (int i = 0; i < c->n; i++)
        kill(c->pids[i], SIGKILL);
    for (int i = 0; i < c->n; i++)
        wait_for(c->pids[i], NULL, 0);
    free(c->pids);
    *c = (crowd){0};
}

enum { LOADS_MAX = 3, REPEATS = 5, WARM_MS = 1000, FIGURE_MS = 500 };

/* ---- --crowded: measuring ---- */

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
    int rc;
    do
        rc = side_warm(s, t);
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

static void print_crowded(const contest *c, size_t l, size_t k)
{
    const bench_row *r = &c->rows[l][k];
    double own = r->tok_s.median, idle = own / c->rows[0][k].tok_s.median;
    double one = own / c->rows[l][0].tok_s.median, one_idle = own / c->rows[0][0].tok_s.median;
    if (!opt_json(c->plan.args)) {
        out_printf("%10d %8d %10.2f %6.1f %% %9.3f %13.3f %18.3f\n", c->loads[l],
                   r->limits.n_threads, own, 100 * r->tok_s.spread, idle, one, one_idle);
        return;
    }
    json_t *j = row_json(&c->plan, r);
    char *name = xformat("%s busy=%d", r->name, c->loads[l]);
    j_add(j, "busy:i of_idle:f of_one_thread:f of_one_idle_thread:f name:t", c->loads[l], idle, one,
          one_idle, name);
    free(name);
    j_print(j);
}

static void tell(contest *c)
{
    if (!opt_json(c->plan.args)) {
        print_head(&c->plan, c->sides[0].model);
        out_printf("%s, median of %d; busy loops are processes that only count\n%10s %8s %10s %8s "
                   "%9s %13s %18s\n",
                   c->rows[0][0].what, c->plan.n_repeats, "busy loops", "threads", "tok/s",
                   "spread", "of idle", "of one thread", "of one idle thread");
    }
    for (size_t i = 0; i < c->n_loads * c->n_sides; i++)
        print_crowded(c, i / c->n_sides, i % c->n_sides);
    for (size_t i = 0; i < c->n_loads * c->n_sides; i++)
        row_free(&c->rows[i / c->n_sides][i % c->n_sides]);
}

static int check_plan(const bench_plan *p)
{
    int rc = check_alone(p, OPT_CROWDED);
    if (!rc &&
        (p->n_tests != 1 || p->tests[0].prompt || p->tests[0].n_sessions || p->depths.n != 1))
        rc = fail(EXIT_USAGE, "--crowded: --tests must be one tgN, and --depth one number");
    return rc;
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
    rc = rc ? rc : crowd_open(&c->others, choose_loads(c));
    if (!rc)
        rc = source_open(p->args, NULL, opt_text(p->args, OPT_SYNTHETIC),
                         opt_text(p->args, OPT_HEAD), &src);
    rc = rc ? rc : open_side(c, &src, 1);
    for (size_t i = 0; !rc && i < p->threads.n; i++)
        rc = open_side(c, &src, p->threads.data[i]);
    rc = rc ? rc : measure(c);
    crowd_close(&c->others);
    if (!rc)
        tell(c);
    for (size_t k = 0; k < c->n_sides; k++)
        side_close(&c->sides[k]);
    source_close(&src);
    free(c);
    return rc;
}
