/* bench_server.c - `bench --server URL`: load on a server that runs; `bench --serve`: what the
 * server makes of what the library can do, both measured in the same run. */
#include "bench_server.h"

#include <unistd.h>

enum { NEW_TOKENS = 48, SHORT_PROMPT = 8, OTHERS = 8 };

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

/* ---- --serve: what a long prompt and a prefix cost ---- */

static int first_of(traffic_plan plan, server_figures *f, double *ms)
{
    traffic_result r;
    plan.n_streams = 1;
    plan.n_requests = 1;
    plan.n_new = 1;
    int rc = traffic_go(&plan, f, &r);
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
    int rc = traffic_go(&plan, f, &r);
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

/* ---- --serve ---- */

/* The library goes when it has been measured: what is left is the server's alone, but for the size
 * of its cache, which it chose beside the library's. */
static int measure(const bench_plan *p, const bench_source *src, const char *model,
                   library_figures *l, server_figures *s)
{
    own_server own = {0};
    bench_side side;
    int rc = rates_open(p, src, &side, l), room = l->n_ctx - NEW_TOKENS - 16;
    progress_begin(UNIT_NONE, "starting a server");
    rc = rc ? rc : own_server_start(p->args, model, &own);
    traffic_plan plan = {.server = &own.at};
    s->n_long = room < 4000 ? room : 4000;
    s->n_shared = room < 1000 ? room : 1000;
    progress_begin(UNIT_NONE, "measuring library and server in turn");
    rc = rc ? rc : measure_rates(&side, &plan, p->n_repeats, l, s);
    side_close(&side);
    progress_begin(UNIT_NONE, "measuring the server");
    rc = rc ? rc : measure_long(plan, p->n_repeats, s);
    rc = rc ? rc : measure_prefix(plan, p->n_repeats, s);
    progress_end();
    own_server_stop(&own);
    return rc;
}

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
    if (!rc && src.synthetic)
        rc = served_file(&src, path, sizeof path);
    if (!rc)
        rc = measure(p, &src, *path ? path : src.path, &library, &server);
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
