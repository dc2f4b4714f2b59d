/* bench_reports.c - what bench shows beside tokens per second: where the time of a step goes,
 * kernels one by one, and two choices side by side. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "progress.h"

enum { PROFILE_TOKENS = 32, PROFILE_DEPTH = 512, ENTRIES_MAX = 64 };
static const double share_most = 0.10; /* of what is neither a linear layer nor the head */

/* ---- --profile ---- */

static bool is_main(const char *name)
{
    return strcmp(name, "linear") == 0 || strcmp(name, "head") == 0;
}

static json_t *profile_json(const bench_side *s, const bitnet_bench_test *t,
                            const bitnet_profile_entry *e, size_t n, double ms, const char *worst)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:o, s:o}", "op", e[i].name, "calls",
                                              (json_int_t)e[i].n_calls, "ms", j_num(e[i].ms),
                                              "share", j_num(e[i].share)));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "test", "profile", "of",
                     t->prompt ? "prompt" : "step", "threads", s->limits.n_threads, "depth",
                     t->depth, t->prompt ? "tokens" : "steps", t->n_tokens,
                     t->prompt ? "ms" : "ms_per_step", j_num(t->prompt ? ms : ms / t->n_tokens),
                     "ops", list, "above_10_percent", j_str(worst), "model", j_str(s->model));
}

static void profile_text(const bench_side *s, const bitnet_bench_test *t,
                         const bitnet_profile_entry *e, size_t n, double ms, const char *worst)
{
    double per = t->prompt ? 1 : t->n_tokens;
    if (t->prompt)
        out_printf("profile of a prompt of %d token%s", t->n_tokens, plural((uint64_t)t->n_tokens));
    else
        out_printf("profile of a decode step");
    out_printf(" at depth %d, %d thread%s: %.3f ms\n", t->depth, s->limits.n_threads,
               plural((uint64_t)s->limits.n_threads), ms / per);
    for (size_t i = 0; i < n; i++)
        out_printf("  %-17s %6.2f %%  %9.4f ms  %8.1f calls\n", e[i].name, 100 * e[i].share,
                   e[i].ms / per, (double)e[i].n_calls / per);
    if (t->prompt)
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
            return interrupted() ? interrupted() : fail_with(&err);
    for (size_t i = n; i-- > 0;)
        if (!is_main(e[i].name) && e[i].share > share_most)
            worst = e[i].name;
    if (opt_json(p->args)) {
        json_t *j = profile_json(s, t, e, n, ms, worst);
        j_print(j);
        json_decref(j);
    } else
        profile_text(s, t, e, n, ms, worst);
    return EXIT_OK;
}

/* A step at the deepest of --depth, without it where issues are seen: at 512; and the prompts of
 * --tests, at the beginning. */
int bench_profile(const bench_plan *p, bench_side *s)
{
    bitnet_bench_test t = {.n_tokens = PROFILE_TOKENS};
    for (size_t i = 0; i < p->depths.n; i++)
        t.depth = p->depths.data[i] > t.depth ? p->depths.data[i] : t.depth;
    if (t.depth == 0)
        t.depth = PROFILE_DEPTH;
    if (on_device(s))
        return bench_device_profile(p, s);
    int rc = profile_one(p, s, &t);
    for (size_t i = 0; p->measures && i < p->n_tests && rc == EXIT_OK; i++)
        if (p->tests[i].prompt && p->tests[i].n_sessions == 0)
            rc = profile_one(
                p, s, &(bitnet_bench_test){.prompt = true, .n_tokens = p->tests[i].n_tokens});
    return rc;
}

/* ---- --kernels ---- */

typedef struct rates {
    const bench_plan *plan;
    const bench_side *side;
} rates;

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

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
    double peak = l->n_peaks ? l->peaks[0].gop_s : 0;
    if (opt_json(t->plan->args)) {
        json_t *j = json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b}",
                              "test", "kernel", "threads", l->n_threads, "kernel", r->kernel,
                              "format", r->shape.format, "m", (json_int_t)r->shape.m, "n",
                              (json_int_t)r->shape.n, "k", (json_int_t)r->shape.k, "ms",
                              j_num(r->ms), "gb_s", j_num(r->gb_s), "share_of_read_limit",
                              j_num(share(r->gb_s, l->read_gb_s)), "gop_s", j_num(r->gop_s),
                              "share_of_peak", j_num(share(r->gop_s, peak)), "chosen", r->chosen);
        if (r->launch.block)
            json_object_set_new(j, "launch", launch_json(&r->launch));
        j_print(j);
        json_decref(j);
        return;
    }
    if (r->launch.block) {
        print_launched(r);
        return;
    }
    out_printf("  %-26s %4llu x %6llu x %6llu %10.4f ms ", r->kernel,
               (unsigned long long)r->shape.m, (unsigned long long)r->shape.n,
               (unsigned long long)r->shape.k, r->ms);
    if (r->shape.m == 1)
        out_printf("%9.2f GB/s  %5.1f %% of the read limit", r->gb_s,
                   100 * share(r->gb_s, l->read_gb_s));
    else
        out_printf("%9.1f Gop/s %5.1f %% of %s", r->gop_s, 100 * share(r->gop_s, peak),
                   l->n_peaks ? l->peaks[0].name : "nothing");
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

/* One of them is; the other may be one that this machine has not. */
static bool are_isas(const pair *q)
{
    return (is_isa(q->label[0]) || is_isa(q->label[1])) && access(q->label[0], F_OK) != 0 &&
           access(q->label[1], F_OK) != 0;
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
    bool isas = are_isas(q), heads = !isas && shape && both(q, is_head),
         shapes = !isas && !heads && both(q, is_shape);
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
    char test[32];
    test_name(&r[0].test, test, sizeof test);
    if (opt_json(p->args)) {
        json_t *j =
            json_pack("{s:s, s:i, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "test", test,
                      "threads", r[0].n_threads, "depth", r[0].test.depth, "a", q->label[0], "b",
                      q->label[1], "ratio", j_num(ratio->median), "ratio_min", j_num(ratio->min),
                      "ratio_max", j_num(ratio->max), "spread", j_num(ratio->spread), "row_a",
                      row_json(p, &r[0]), "row_b", row_json(p, &r[1]));
        j_print(j);
        json_decref(j);
        return;
    }
    out_printf("%-8s %7d %7d %12.2f %12.2f %8.3f  (%.3f .. %.3f)\n", test, r[0].n_threads,
               r[0].test.depth, r[0].tok_s.median, r[1].tok_s.median, ratio->median, ratio->min,
               ratio->max);
}

/* Run by run in turn, so that a machine that slows down slows both; the ratio is taken of each
 * pair of runs. */
static int compare_test(const bench_plan *p, pair *q, const bitnet_bench_test *t)
{
    double tok_s[2][BENCH_REPEATS_MAX], ratio[BENCH_REPEATS_MAX], unused;
    bitnet_bench_test warm = *t;
    bench_row rows[2] = {0};
    int rc = EXIT_OK;
    warm.n_tokens = t->n_tokens < 8 ? t->n_tokens : 8;
    for (int i = 0; !rc && i < 2; i++) {
        rc = side_once(&q->side[i], &warm, &unused);
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
    static const option_key useless[] = {OPT_BASELINE, OPT_SAVE,          OPT_PLOT,     OPT_RECEIPT,
                                         OPT_PROFILE,  OPT_BENCH_KERNELS, OPT_MODEL_OUT};
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
        if (opt_given(p->args, useless[i]))
            return fail(EXIT_USAGE, "bench: %s has no meaning with --compare",
                        option_at(useless[i])->dashed);
    pair *q = xmalloc(sizeof *q);
    memset(q, 0, sizeof *q);
    int rc = split_pair(p->args, q);
    if (!rc)
        rc = open_sources(p, q);
    for (size_t i = 0; !rc && i < p->threads.n; i++)
        rc = compare_threads(p, q, i);
    source_close(&q->source[0]);
    source_close(&q->source[1]);
    free(q);
    return rc;
}
