/* bench_server.c - `bench --server URL`: load on a server that runs; `bench --serve`: what the
 * server makes of what the library can do, both measured in the same run. */
#include "bench_server.h"

#include <unistd.h>

enum { CROWD = 16, LARGE = 64, CROWD_TOKENS = 32, NEW_TOKENS = 48, SHORT_PROMPT = 8, OTHERS = 8 };

/* ---- --server ---- */

static json_t *load_json(traffic_result *r)
{
    return j_object("streams_tok_s:f requests:n failed:n tokens:n seconds:f first_p50_ms:f "
                    "first_p99_ms:f token_p50_ms:f token_p99_ms:f client_cpu_s:f",
                    r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0.0,
                    (uint64_t)r->n_answered, (uint64_t)r->n_failed, (uint64_t)r->n_tokens,
                    r->seconds, figures_share(&r->first_ms, 0.5), figures_share(&r->first_ms, 0.99),
                    figures_share(&r->gap_ms, 0.5), figures_share(&r->gap_ms, 0.99),
                    r->cpu_seconds);
}

static void print_load(const args *a, const traffic_plan *plan, traffic_result *r)
{
    if (opt_json(a)) {
        json_t *j = load_json(r);
        j_add(j, "loop:t streams:i rate:f", plan->rate > 0 ? "open" : "closed",
              plan->rate > 0 ? 0 : plan->n_streams, plan->rate);
        j_print(j);
        return;
    }
    out_printf("%zu requests in %.1f s, %zu failed: %zu tokens, %.1f tok/s\n", r->n_answered,
               r->seconds, r->n_failed, r->n_tokens,
               r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0.0);
    out_printf("first token  p50 %9.2f ms   p99 %9.2f ms\n", figures_share(&r->first_ms, 0.5),
               figures_share(&r->first_ms, 0.99));
    out_printf("each token   p50 %9.2f ms   p99 %9.2f ms\n", figures_share(&r->gap_ms, 0.5),
               figures_share(&r->gap_ms, 0.99));
    out_printf("client       %.2f s of CPU time\n", r->cpu_seconds);
}

int bench_url(const bench_plan *p)
{
    const args *a = p->args;
    traffic_server at = {.key = opt_text(a, OPT_BENCH_KEY), .model = opt_text(a, OPT_LOAD_MODEL)};
    traffic_plan plan = {.server = &at,
                         .n_streams = (int)opt_int(a, OPT_STREAMS),
                         .rate = opt_float(a, OPT_RATE),
                         .seconds = opt_float(a, OPT_DURATION),
                         .n_prompt = (int)opt_int(a, OPT_LOAD_PROMPT),
                         .n_new = (int)opt_int(a, OPT_LOAD_NEW)};
    traffic_result r;
    int rc = traffic_parse(opt_text(a, OPT_SERVER_URL), &at);
    if (rc)
        return rc;
    rc = traffic_run(&plan, &r);
    if (!rc)
        print_load(a, &plan, &r);
    if (!rc && r.n_failed)
        rc = fail(EXIT_OTHER, "%zu of %zu requests failed, the first with status %d", r.n_failed,
                  r.n_failed + r.n_answered, r.failed_status);
    traffic_free(&r);
    return rc;
}

/* ---- --serve: the library's part ---- */

/* Runs of a small model are over in milliseconds, and one of them says little: there are at least n
 * of them, and as many more as LEAST_MS take. True: another one. */
static bool goes_on(int done, int n, double began_ms)
{
    enum { LEAST_MS = 500 };
    return done < n || (done < BENCH_REPEATS_MAX && now_ms() - began_ms < LEAST_MS);
}

static int median_of(bench_side *s, const char *test, int n, double *out)
{
    bitnet_bench_test t;
    double tok_s[BENCH_REPEATS_MAX];
    bitnet_bench_parse(test, &t);
    progress_detail("%s", test);
    int rc = side_warm(s, &t), done = 0;
    for (double began = now_ms(); !rc && goes_on(done, n, began); done++)
        rc = side_once(s, &t, &tok_s[done]);
    *out = rc ? 0 : bitnet_summarize(tok_s, (size_t)done).median;
    return rc;
}

/* What the promises depend on. */
static void describe(const bench_side *s, library_figures *f)
{
    static const char *const fast[] = {"i8mm", "svei8mm", "avxvnni", "avx512vnni", "amx"};
    const bitnet_model_info *info = bitnet_engine_model(s->engine);
    f->n_ctx = info->n_ctx_train;
    f->n_embd = info->n_embd;
    f->gpu = s->limits.n_peaks == 0;
    for (size_t i = 0; i < s->limits.n_peaks; i++)
        for (size_t k = 0; k < sizeof fast / sizeof *fast; k++)
            f->matrix |= strcmp(s->limits.peaks[i].isa, fast[k]) == 0;
}

static int measure_library(const bench_plan *p, const bench_source *src, library_figures *f)
{
    bench_plan plan = *p;
    bench_side s;
    plan.n_tests = 0; /* room for the longest of ours */
    bitnet_bench_parse("pp128", &plan.tests[plan.n_tests++]);
    int rc = side_open(&plan, src, p->threads.data[0], NULL, &s);
    progress_begin(UNIT_NONE, "measuring the library");
    rc = rc ? rc : median_of(&s, "pp128", p->n_repeats, &f->prompt);
    rc = rc ? rc : median_of(&s, "bt16", p->n_repeats, &f->crowd);
    rc = rc ? rc : median_of(&s, "tg48", p->n_repeats, &f->one);
    if (!rc && s.limits.n_peaks == 0)
        rc = median_of(&s, "bt64", p->n_repeats, &f->large);
    progress_end();
    if (!rc)
        describe(&s, f);
    if (!rc && !opt_json(p->args))
        out_printf("%s on %s, %d threads\n", s.model, p->cpu, bitnet_runtime_threads(s.runtime));
    side_close(&s);
    return rc;
}

/* ---- --serve: the server's part ---- */

static int go(const traffic_plan *plan, server_figures *f, traffic_result *r)
{
    int rc = traffic_run(plan, r);
    f->client_cpu += r->cpu_seconds;
    f->seconds += r->seconds;
    if (!rc && r->n_failed)
        rc = fail(EXIT_OTHER, "bench: %zu requests failed, the first with status %d", r->n_failed,
                  r->failed_status);
    if (rc)
        traffic_free(r);
    return rc;
}

static double together(const traffic_result *r)
{
    if (r->together_s > 0 && r->n_together) /* else they are too fast to be seen together */
        return (double)r->n_together / r->together_s;
    return r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0;
}

/* The rate of so many streams that each ask once, the median of n runs or more after one that is
 * not counted; *last gets the last run, to be freed. */
static int streams(traffic_plan plan, int n_streams, int n, server_figures *f, double *tok_s,
                   traffic_result *last)
{
    double rates[BENCH_REPEATS_MAX];
    plan.n_prompt = 1; /* what tg48, bt16 and bt64 compute */
    plan.n_new = n_streams > 1 ? CROWD_TOKENS : NEW_TOKENS;
    plan.n_streams = n_streams;
    plan.n_requests = (size_t)n_streams;
    progress_detail("%d streams", n_streams);
    int rc = go(&plan, f, last), done = 0;
    for (double began = now_ms(); !rc && goes_on(done, n, began); done++) {
        traffic_free(last);
        plan.seed += 1;
        rc = go(&plan, f, last);
        rates[done] = rc ? 0 : together(last);
    }
    *tok_s = rc ? 0 : bitnet_summarize(rates, (size_t)done).median;
    return rc;
}

static int measure_crowds(traffic_plan plan, int n, bool large, server_figures *f)
{
    traffic_result r;
    plan.seed = 10;
    int rc = streams(plan, 1, n, f, &f->one, &r);
    if (rc)
        return rc;
    traffic_free(&r);
    plan.seed = 50;
    rc = streams(plan, CROWD, n, f, &f->crowd, &r);
    if (rc)
        return rc;
    f->first_p50 = figures_share(&r.first_ms, 0.5);
    f->first_p99 = figures_share(&r.first_ms, 0.99);
    f->gap_p50 = figures_share(&r.gap_ms, 0.5);
    f->gap_p99 = figures_share(&r.gap_ms, 0.99);
    traffic_free(&r);
    plan.seed = 90;
    if (large && (rc = streams(plan, LARGE, n, f, &f->large, &r)) == EXIT_OK)
        traffic_free(&r);
    return rc;
}

static int first_of(traffic_plan plan, server_figures *f, double *ms)
{
    traffic_result r;
    plan.n_streams = 1;
    plan.n_requests = 1;
    plan.n_new = 1;
    int rc = go(&plan, f, &r);
    if (rc)
        return rc;
    *ms = figures_share(&r.first_ms, 0.5);
    traffic_free(&r);
    return EXIT_OK;
}

static double median_ms(double *ms, int n)
{
    return bitnet_summarize(ms, (size_t)n).median;
}

/* Long prompts are measured as often as asked for, within some minutes. */
static bool again(int done, int n, double began_ms)
{
    enum { MOST_MS = 300000 };
    return done == 0 || (done < n && now_ms() - began_ms < MOST_MS);
}

static int long_among(traffic_plan plan, server_figures *f, double *during, double *usual,
                      double *among)
{
    traffic_result r;
    plan.n_streams = OTHERS;
    plan.n_prompt = SHORT_PROMPT;
    plan.n_new = NEW_TOKENS;
    plan.extra_prompt = f->n_long;
    plan.extra_after = 2;
    progress_detail("the same among %d others", OTHERS);
    int rc = go(&plan, f, &r);
    if (rc)
        return rc;
    *usual = figures_share(&r.gap_ms, 0.5);
    *during = figures_share(&r.during_ms, 0.99);
    *among = r.extra_ms;
    traffic_free(&r);
    return EXIT_OK;
}

static int measure_long(traffic_plan plan, int n, server_figures *f)
{
    double alone[BENCH_REPEATS_MAX], among[BENCH_REPEATS_MAX], usual[BENCH_REPEATS_MAX];
    double during[BENCH_REPEATS_MAX];
    int rc = EXIT_OK, k = 0;
    double began = now_ms();
    plan.seed = 120;
    for (; !rc && again(k, n, began); k++) {
        plan.n_prompt = f->n_long;
        plan.seed++;
        progress_detail("a prompt of %d tokens", f->n_long);
        rc = first_of(plan, f, &alone[k]);
        plan.seed++;
        rc = rc ? rc : long_among(plan, f, &during[k], &usual[k], &among[k]);
    }
    if (rc)
        return rc;
    f->long_alone = median_ms(alone, k);
    f->long_among = median_ms(among, k);
    f->others_p50 = median_ms(usual, k);
    f->during_p99 = median_ms(during, k);
    return EXIT_OK;
}

static int measure_prefix(traffic_plan plan, int n, server_figures *f)
{
    double first[BENCH_REPEATS_MAX], second[BENCH_REPEATS_MAX];
    int rc = EXIT_OK, k = 0;
    double began = now_ms();
    plan.n_prompt = f->n_shared;
    plan.same_prompt = true;
    plan.seed = 5;
    progress_detail("a prefix of %d tokens, twice", f->n_shared);
    for (; !rc && again(k, n, began); k++, plan.seed++) {
        rc = first_of(plan, f, &first[k]);
        rc = rc ? rc : first_of(plan, f, &second[k]);
    }
    if (rc)
        return rc;
    f->prefix_first = median_ms(first, k);
    f->prefix_again = median_ms(second, k);
    return EXIT_OK;
}

static int measure_server(const bench_plan *p, const char *model, const library_figures *l,
                          server_figures *f)
{
    own_server own;
    int room = l->n_ctx - NEW_TOKENS - 16;
    progress_begin(UNIT_NONE, "starting a server");
    int rc = own_server_start(p->args, model, &own);
    traffic_plan plan = {.server = &own.at};
    f->n_long = room < 4000 ? room : 4000;
    f->n_shared = room < 1000 ? room : 1000;
    progress_begin(UNIT_NONE, "measuring the server");
    rc = rc ? rc : measure_crowds(plan, p->n_repeats, l->gpu, f);
    rc = rc ? rc : measure_long(plan, p->n_repeats, f);
    rc = rc ? rc : measure_prefix(plan, p->n_repeats, f);
    progress_end();
    own_server_stop(&own);
    return rc;
}

/* ---- --serve: both ---- */

static void print_json(const library_figures *l, const server_figures *s)
{
    json_t *j =
        j_object("pp128_tok_s:f bt16_tok_s:f tg48_tok_s:f bt16_of_pp128:f stream1_tok_s:f "
                 "stream16_tok_s:f stream16_of_bt16:f stream16_of_stream1:f http_adds:f",
                 l->prompt, l->crowd, l->one, share(l->crowd, l->prompt), s->one, s->crowd,
                 share(s->crowd, l->crowd), share(s->crowd, s->one), share(l->one, s->one) - 1);
    j_add(j,
          "first_p50_ms:f first_p99_ms:f token_p50_ms:f token_p99_ms:f long_prompt_tokens:i "
          "others_p50_ms:f others_during_p99_ms:f long_alone_ms:f long_among_ms:f",
          s->first_p50, s->first_p99, s->gap_p50, s->gap_p99, s->n_long, s->others_p50,
          s->during_p99, s->long_alone, s->long_among);
    j_add(j, "prefix_tokens:i prefix_first_ms:f prefix_again_ms:f client_cpu_s:f seconds:f",
          s->n_shared, s->prefix_first, s->prefix_again, s->client_cpu, s->seconds);
    if (l->gpu)
        j_add(j, "bt64_tok_s:f stream64_tok_s:f stream64_of_bt64:f", l->large, s->large,
              share(s->large, l->large));
    json_object_set_new(j, "verdicts", verdicts_json(l, s));
    j_print(j);
}

static void line(const char *what, double number, const char *unit, const char *fmt, ...)
    BITNET_PRINTF(4, 5);
static void line(const char *what, double number, const char *unit, const char *fmt, ...)
{
    char about[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(about, sizeof about, fmt, ap);
    va_end(ap);
    out_printf("%-34s %10.2f %-6s %s\n", what, number, unit, about);
}

static void print_text(const library_figures *l, const server_figures *s)
{
    line("library, prompt of 128", l->prompt, "tok/s", "%s", "");
    line("library, 16 timelines", l->crowd, "tok/s", "%.0f %% of the prompt's rate",
         100 * share(l->crowd, l->prompt));
    line("library, one timeline", l->one, "tok/s", "%s", "");
    line("server, 1 stream", s->one, "tok/s", "HTTP adds %.1f %% to one timeline",
         100 * (share(l->one, s->one) - 1));
    line("server, 16 streams", s->crowd, "tok/s", "%.0f %% of 16 timelines, %.2f times one stream",
         100 * share(s->crowd, l->crowd), share(s->crowd, s->one));
    line("  first token, p50", s->first_p50, "ms", "p99 %.2f ms", s->first_p99);
    line("  each token, p50", s->gap_p50, "ms", "p99 %.2f ms", s->gap_p99);
    line("8 others, each token, p50", s->others_p50, "ms",
         "p99 while a prompt of %d is read: %.2f ms, %.2f times", s->n_long, s->during_p99,
         share(s->during_p99, s->others_p50));
    line("that prompt alone", s->long_alone, "ms", "among the others %.2f ms, %.2f times",
         s->long_among, share(s->long_among, s->long_alone));
    line("a new prefix, first token", s->prefix_first, "ms",
         "%d tokens; the second time %.2f ms, %.1f times sooner", s->n_shared, s->prefix_again,
         share(s->prefix_first, s->prefix_again));
    if (l->gpu)
        line("server, 64 streams", s->large, "tok/s", "library, 64 timelines %.0f tok/s", l->large);
    line("client", s->client_cpu, "s", "of CPU time in %.1f s", s->seconds);
    print_verdicts(l, s);
}

/* A synthetic model becomes a file for as long as the server needs it. */
static int served_file(const bench_source *src, char *path, size_t cap)
{
    bitnet_error err = {0};
    const char *folder = getenv("TMPDIR");
    snprintf(path, cap, "%s/bitnet-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0)
        return fail(EXIT_IO, "bench: %s cannot be made", path);
    close(fd);
    signals_name_temp(path);
    return outcome(bitnet_synthetic_save(src->synthetic, path, &err), &err);
}

int bench_own(const bench_plan *p)
{
    const args *a = p->args;
    bench_source src;
    library_figures library = {0};
    server_figures server = {0};
    char path[4096] = "";
    int rc = source_open(a, NULL, opt_text(a, OPT_SYNTHETIC), opt_text(a, OPT_HEAD), &src);
    rc = rc ? rc : measure_library(p, &src, &library);
    if (!rc && src.synthetic)
        rc = served_file(&src, path, sizeof path);
    if (!rc)
        rc = measure_server(p, *path ? path : src.path, &library, &server);
    if (*path) {
        unlink(path);
        signals_name_temp(NULL);
    }
    if (!rc && opt_json(a))
        print_json(&library, &server);
    else if (!rc)
        print_text(&library, &server);
    source_close(&src);
    return rc;
}
