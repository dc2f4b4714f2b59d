/* bench_rates.c - `bench --serve`: how fast library and server make text, measured by turns. */
#include "bench_server.h"

enum { CROWD = 16, LARGE = 64, CROWD_TOKENS = 32, ALONE_TOKENS = 48 };

/* What a round consists of. */
typedef struct rate {
    const char *test; /* of the library; NULL: the server's */
    int n_streams;    /* of the server */
    bool gpu_only;
    double *median;
    double tok_s[BENCH_REPEATS_MAX];
    size_t n;
} rate;
enum { N_RATES = 7 };

typedef struct rounds {
    bench_side *library;
    traffic_plan plan;
    server_figures *f;
    traffic_result crowd; /* the last one */
    rate rates[N_RATES];
} rounds;

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

int rates_open(const bench_plan *p, const bench_source *src, bench_side *s, library_figures *f)
{
    bench_plan plan = *p;
    plan.n_tests = 0; /* room for the longest of ours */
    bitnet_bench_parse("pp128", &plan.tests[plan.n_tests++]);
    int rc = side_open(&plan, src, p->threads.data[0], NULL, s);
    if (rc)
        return rc;
    describe(s, f);
    if (!opt_json(p->args))
        out_printf("%s on %s, %d threads\n", s->model, p->cpu, bitnet_runtime_threads(s->runtime));
    return EXIT_OK;
}

int traffic_go(const traffic_plan *plan, server_figures *f, traffic_result *r)
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

/* So many streams, each of which asks once. */
static int run_streams(rounds *m, int n_streams, double *tok_s)
{
    traffic_result r;
    m->plan.n_prompt = 1; /* what tg48, bt16 and bt64 compute */
    m->plan.n_new = n_streams > 1 ? CROWD_TOKENS : ALONE_TOKENS;
    m->plan.n_streams = n_streams;
    m->plan.n_requests = (size_t)n_streams;
    m->plan.seed += 1;
    int rc = traffic_go(&m->plan, m->f, &r);
    if (rc)
        return rc;
    *tok_s = together(&r);
    if (n_streams == CROWD) { /* r gets what is no longer needed */
        traffic_result last = m->crowd;
        m->crowd = r;
        r = last;
    }
    traffic_free(&r);
    return EXIT_OK;
}

static int run_once(rounds *m, const rate *r, double *tok_s)
{
    bitnet_bench_test t;
    if (!r->test)
        return run_streams(m, r->n_streams, tok_s);
    bitnet_bench_parse(r->test, &t);
    return side_once(m->library, &t, tok_s);
}

/* Other timelines than before may be set up for it; the server keeps its own. */
static int warm(rounds *m, const rate *r)
{
    bitnet_bench_test t;
    if (!r->test)
        return EXIT_OK;
    bitnet_bench_parse(r->test, &t);
    return side_warm(m->library, &t);
}

/* What a small model makes is over in milliseconds, of which the first ones are slow: it is made
 * again for a while. */
static int run_rate(rounds *m, rate *r)
{
    enum { LEAST_MS = 200 };
    int rc = warm(m, r);
    bool more = !rc && r->n < BENCH_REPEATS_MAX;
    for (double began = now_ms(); more; more = more && now_ms() - began < LEAST_MS) {
        rc = run_once(m, r, &r->tok_s[r->n]);
        more = !rc && ++r->n < BENCH_REPEATS_MAX;
    }
    return rc;
}

static int run_round(rounds *m, bool gpu)
{
    int rc = EXIT_OK;
    for (size_t i = 0; !rc && i < N_RATES; i++)
        if (!m->rates[i].gpu_only || gpu)
            rc = run_rate(m, &m->rates[i]);
    return rc;
}

int measure_rates(bench_side *library, const traffic_plan *server, int n, library_figures *l,
                  server_figures *s)
{
    rounds m = {.library = library,
                .plan = *server,
                .f = s,
                .rates = {{.test = "pp128", .median = &l->prompt},
                          {.test = "bt16", .median = &l->crowd},
                          {.n_streams = CROWD, .median = &s->crowd},
                          {.test = "tg48", .median = &l->one},
                          {.n_streams = 1, .median = &s->one},
                          {.test = "bt64", .gpu_only = true, .median = &l->large},
                          {.n_streams = LARGE, .gpu_only = true, .median = &s->large}}};
    int rc = EXIT_OK;
    for (int round = 0; !rc && round <= n; round++) {
        progress_detail("round %d of %d", round + 1, n + 1);
        for (size_t i = 0; round <= 1 && i < N_RATES; i++)
            m.rates[i].n = 0; /* the first round warms up */
        rc = run_round(&m, l->gpu);
    }
    for (size_t i = 0; !rc && i < N_RATES; i++)
        if (m.rates[i].n)
            *m.rates[i].median = bitnet_summarize(m.rates[i].tok_s, m.rates[i].n).median;
    s->first_p50 = rc ? 0 : figures_share(&m.crowd.first_ms, 0.5);
    s->first_p99 = rc ? 0 : figures_share(&m.crowd.first_ms, 0.99);
    s->gap_p50 = rc ? 0 : figures_share(&m.crowd.gap_ms, 0.5);
    s->gap_p99 = rc ? 0 : figures_share(&m.crowd.gap_ms, 0.99);
    traffic_free(&m.crowd);
    return rc;
}
