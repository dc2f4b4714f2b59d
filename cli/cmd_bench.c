/* cmd_bench.c - `bitnet bench`: how fast a model is here, and what share of what the machine could
 * do that is. Reads the options, opens one engine per number of threads, times the tests. */
#include <errno.h>

#include "bench.h"
#include "bench_server.h"

/* ---- what is asked for ---- */

/* `auto`, where a list of threads may have it, is 0. */
static int parse_entry(const option *o, const char *word, long low, long high, int *out)
{
    char *end;
    errno = 0;
    long n = strtol(word, &end, 10);
    bool automatic = o->key == OPT_BENCH_THREADS && strcmp(word, "auto") == 0;
    if (!automatic && (*word < '0' || *word > '9' || *end || errno || n < low || n > high))
        return fail(EXIT_USAGE, "%s: '%s' is not a number from %ld to %ld", o->dashed, word, low,
                    high);
    *out = automatic ? 0 : (int)n;
    return EXIT_OK;
}

static int parse_numbers(const args *a, option_key key, long low, long high, number_list *out)
{
    const option *o = option_at(key);
    char word[32];
    int rc = EXIT_OK;
    for (size_t i = 0; !rc && word_at(opt_text(a, key), ',', i, word, sizeof word); i++) {
        if (out->n == BENCH_LIST_MAX)
            return fail(EXIT_USAGE, "%s: more than %d numbers", o->dashed, BENCH_LIST_MAX);
        rc = parse_entry(o, word, low, high, &out->data[out->n]);
        out->n += !rc;
    }
    return rc || out->n ? rc : fail(EXIT_USAGE, "%s: no number is given", o->dashed);
}

static int parse_tests(const args *a, bench_plan *p)
{
    char word[32];
    for (size_t i = 0; word_at(opt_text(a, OPT_TESTS), ',', i, word, sizeof word); i++) {
        if (p->n_tests == BENCH_LIST_MAX)
            return fail(EXIT_USAGE, "--tests: more than %d tests", BENCH_LIST_MAX);
        if (!bitnet_bench_parse(word, &p->tests[p->n_tests++]))
            return fail(EXIT_USAGE,
                        "--tests: '%s' is no test: ppN (a prompt of N tokens), tgN (N tokens, one "
                        "after the other) or btN (N timelines of 32 tokens)",
                        word);
    }
    return p->n_tests ? EXIT_OK : fail(EXIT_USAGE, "--tests: no test is given");
}

/* "5%" or "0.05" */
static int parse_share(const args *a, bench_plan *p)
{
    const char *text = opt_text(a, OPT_MAX_REGRESS);
    char *end;
    p->max_regress = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0)
        p->max_regress /= 100, end++;
    if (end == text || *end || !(p->max_regress >= 0 && p->max_regress < 1))
        return fail(EXIT_USAGE, "--max-regress: '%s' is not a share below 1, such as 5%% or 0.05",
                    text);
    return EXIT_OK;
}

static int make_plan(const args *a, bench_plan *p)
{
    *p = (bench_plan){.args = a, .n_repeats = (int)opt_int(a, OPT_REPEAT)};
    bool alone = opt_on(a, OPT_BENCH_KERNELS) || opt_on(a, OPT_PROFILE);
    p->measures = opt_given(a, OPT_TESTS) || !alone;
    int rc = parse_tests(a, p);
    rc = rc ? rc : parse_numbers(a, OPT_BENCH_THREADS, 0, 1024, &p->threads);
    rc = rc ? rc : parse_numbers(a, OPT_DEPTH, 0, 1048576, &p->depths);
    rc = rc ? rc : parse_share(a, p);
    if (!rc && opt_given(a, OPT_SYNTHETIC) && a->values[OPT_MODEL].origin &&
        a->values[OPT_MODEL].origin[0] == '-')
        rc = fail(EXIT_USAGE, "bench: --model and --synthetic are two models; choose one");
    if (!rc && opt_given(a, OPT_HEAD) && !opt_given(a, OPT_SYNTHETIC))
        rc = fail(EXIT_USAGE, "--head: only a --synthetic model can be given another head");
    if (!rc && opt_given(a, OPT_MODEL_OUT) && !opt_given(a, OPT_SYNTHETIC))
        rc = fail(EXIT_USAGE, "--model-out: only a --synthetic model is written");
    return rc;
}

/* ---- models ---- */

int source_open(const args *a, const char *path, const char *shape, const char *head,
                bench_source *out)
{
    bitnet_error err = {0};
    *out = (bench_source){0};
    if (!shape) {
        out->path = path ? xstrdup(path) : NULL;
        return path ? EXIT_OK : model_path(a, &out->path);
    }
    progress_begin(UNIT_NONE, "making the model %s", shape);
    bitnet_status st = bitnet_synthetic_open(shape, head, &out->synthetic, &err);
    progress_end();
    return outcome(st, &err);
}

void source_close(bench_source *s)
{
    bitnet_synthetic_close(s->synthetic);
    free(s->path);
    *s = (bench_source){0};
}

int deepest(const bench_plan *p)
{
    int most = 0;
    for (size_t i = 0; i < p->depths.n; i++)
        most = p->depths.data[i] > most ? p->depths.data[i] : most;
    return most;
}

/* The longest test decides. */
static int context_needed(const bench_plan *p)
{
    int most = 0, depth = deepest(p);
    for (size_t i = 0; i < p->n_tests; i++)
        most = p->tests[i].n_tokens > most ? p->tests[i].n_tokens : most;
    if (opt_on(p->args, OPT_PROFILE)) {
        depth = depth ? depth : PROFILE_DEPTH;
        most = most > PROFILE_TOKENS ? most : PROFILE_TOKENS;
    }
    return most + depth + 1;
}

int check_alone(const bench_plan *p, option_key mode)
{
    static const option_key useless[] = {OPT_COMPARE,       OPT_BASELINE, OPT_SAVE,
                                         OPT_PLOT,          OPT_RECEIPT,  OPT_PROFILE,
                                         OPT_BENCH_KERNELS, OPT_MODEL_OUT};
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
        if (useless[i] != mode && opt_given(p->args, useless[i]))
            return fail(EXIT_USAGE, "bench: %s has no meaning with %s",
                        option_at(useless[i])->dashed, option_at(mode)->dashed);
    return EXIT_OK;
}

static int open_bench(const bench_plan *p, bench_side *s)
{
    bitnet_bench_options o;
    bitnet_error err = {0};
    bitnet_bench_options_init(&o);
    o.n_ctx = context_needed(p);
    o.n_batch = (int)opt_int(p->args, OPT_BATCH);
    o.kv_type = cache_type(p->args);
    o.kv_pool_bytes =
        opt_given(p->args, OPT_KV_POOL) ? (uint64_t)opt_int(p->args, OPT_KV_POOL) << 20 : 0;
    o.kv_policy = (bitnet_kv_policy)opt_int(p->args, OPT_KV_POLICY);
    o.cancel = wants_to_stop;
    return outcome(bitnet_bench_open(s->engine, &o, &s->bench, &err), &err);
}

static const char *source_name(const bench_source *s)
{
    return s->synthetic ? bitnet_synthetic_name(s->synthetic) : file_name(s->path);
}

static int open_engine(const bench_source *src, bench_side *s)
{
    bitnet_engine_options o;
    bitnet_error err = {0};
    char folder[4096];
    engine_options(&s->args, &o);
    if (o.gpu_specialise) /* packed weights are not taken from there: loading is measured */
        o.cache_dir = cache_folder(opt_text(&s->args, OPT_BENCH_CACHE), folder, sizeof folder);
    if (src->path)
        signals_name_model(src->path);
    int rc = outcome(src->synthetic
                         ? bitnet_synthetic_engine(src->synthetic, s->runtime, &o, &s->engine, &err)
                         : bitnet_engine_open(s->runtime, src->path, &o, &s->engine, &err),
                     &err);
    if (!rc)
        s->model = xstrdup(source_name(src));
    return rc ? rc : interrupted();
}

/* Without the limits there are the threads alone. */
static int measure_limits(bench_side *s)
{
    bitnet_error err = {0};
    bitnet_limits_init(&s->limits);
    s->limits.n_threads = bitnet_runtime_threads(s->runtime);
    if (opt_on(&s->args, OPT_NO_LIMITS))
        return EXIT_OK;
    progress_begin(UNIT_NONE, "measuring what the machine can do");
    int rc = outcome(bitnet_limits_measure(s->runtime, &s->limits, &err), &err);
    progress_end();
    return rc;
}

int side_open(const bench_plan *p, const bench_source *src, int n_threads, const char *isa,
              bench_side *s)
{
    *s = (bench_side){.args = *p->args};
    if (isa)
        s->args.values[OPT_ISA].text = isa;
    double start = now_ms();
    progress_begin(UNIT_BYTES, "loading %s", source_name(src));
    int rc = open_runtime(&s->args, n_threads, &s->runtime);
    rc = rc ? rc : open_engine(src, s);
    progress_end();
    s->load_ms = now_ms() - start;
    rc = rc ? rc : measure_limits(s);
    return rc ? rc : open_bench(p, s);
}

void side_close(bench_side *s)
{
    bitnet_receipt_close(s->receipt);
    bitnet_bench_close(s->bench);
    bitnet_engine_close(s->engine);
    bitnet_runtime_close(s->runtime);
    free(s->model);
    *s = (bench_side){0};
}

/* ---- measuring ---- */

int side_once(bench_side *s, const bitnet_bench_test *t, double *tok_s)
{
    bitnet_error err = {0};
    bitnet_bench_run run;
    if (s->n_runs_planned) /* else the caller counts */
        progress_step(NULL, s->n_runs++, s->n_runs_planned);
    if (bitnet_bench_once(s->bench, t, &run, &err) != BITNET_OK)
        return fail_with(&err);
    *tok_s = run.tok_s;
    if (!t->prompt)
        s->last = run;
    return EXIT_OK;
}

static void name_row(const args *a, bench_row *r)
{
    buffer name = {0};
    text_puts(&name, r->what);
    if (r->test.depth)
        text_printf(&name, "@d%d", r->test.depth);
    if (opt_int(a, OPT_KV) != 0)
        text_printf(&name, " kv=%s", opt_text(a, OPT_KV));
    if (opt_int(a, OPT_PRECISION) != 0)
        text_printf(&name, " %s", opt_text(a, OPT_PRECISION));
    if (r->test.n_sessions && opt_given(a, OPT_KV_POOL))
        text_printf(&name, " pool=%lld %s", (long long)opt_int(a, OPT_KV_POOL),
                    opt_text(a, OPT_KV_POLICY));
    if (wanted_isa(a))
        text_printf(&name, " isa=%.20s", wanted_isa(a));
    r->name = name.data;
}

void fill_row(const bench_plan *p, bench_side *s, const bitnet_bench_test *t, double *tok_s,
              size_t n, bench_row *r)
{
    bitnet_host_memory memory;
    bitnet_stats stats;
    int batch = (int)opt_int(p->args, OPT_BATCH);
    *r = (bench_row){.test = *t, .limits = s->limits, .load_ms = s->load_ms};
    test_name(t, r->what, sizeof r->what);
    name_row(&s->args, r);
    r->model = xstrdup(s->model);
    bitnet_stats_init(&stats);
    if (bitnet_engine_stats(s->engine, &stats, NULL) == BITNET_OK)
        snprintf(r->device, sizeof r->device, "%s", stats.device);
    r->tok_s = bitnet_summarize(tok_s, n);
    r->n_rebuilt = t->n_sessions ? s->last.n_rebuilt : 0;
    double passes = t->prompt       ? (t->n_tokens < batch ? t->n_tokens : batch)
                    : t->n_sessions ? t->n_sessions
                                    : 1;
    r->gb_s = (double)bitnet_engine_token_bytes(s->engine) * r->tok_s.median / passes / 1e9;
    r->gop_s = (double)bitnet_engine_token_ops(s->engine) * r->tok_s.median / 1e9;
    r->n_kernels = bitnet_bench_kernels(s->bench, r->kernels, BENCH_KERNELS_MAX);
    if (r->n_kernels > BENCH_KERNELS_MAX)
        r->n_kernels = BENCH_KERNELS_MAX;
    for (size_t i = 0; i < r->n_kernels; i++) /* the engine takes its names along */
        r->kernels[i].id = xstrdup(r->kernels[i].id);
    if (bitnet_host_memory_read(&memory, NULL) == BITNET_OK)
        r->rss_mb = (double)memory.process_bytes / 1e6;
}

void row_free(bench_row *r)
{
    for (size_t i = 0; i < r->n_kernels; i++)
        free((void *)(uintptr_t)r->kernels[i].id);
    free(r->model);
    free(r->name);
    *r = (bench_row){0};
}

void side_expect(const bench_plan *p, bench_side *s)
{
    size_t n_threads = (size_t)s->limits.n_threads;
    s->n_runs = 0;
    s->n_runs_planned = p->depths.n * p->n_tests * ((size_t)p->n_repeats + 1);
    progress_begin(UNIT_NONE, "measuring with %zu thread%s", n_threads, plural(n_threads));
}

int side_warm(bench_side *s, const bitnet_bench_test *t)
{
    double unused;
    bitnet_bench_test warm = *t;
    warm.n_tokens = t->n_tokens < 8 ? t->n_tokens : 8;
    return side_once(s, &warm, &unused);
}

static int side_measure(const bench_plan *p, bench_side *s, const bitnet_bench_test *t,
                        bench_row *out)
{
    double tok_s[BENCH_REPEATS_MAX];
    char name[32], rate[32];
    test_name(t, name, sizeof name);
    progress_detail("%s", name);
    int rc = side_warm(s, t);
    bitnet_bench_forget(s->bench);
    for (int i = 0; !rc && i < p->n_repeats; i++) {
        rc = side_once(s, t, &tok_s[i]);
        if (!rc)
            progress_detail("%s, %s tok/s", name, rate_text(tok_s[i], rate, sizeof rate));
    }
    if (!rc)
        fill_row(p, s, t, tok_s, (size_t)p->n_repeats, out);
    return rc;
}

/* All tests at all depths, with one number of threads. */
static int measure_all(const bench_plan *p, bench_side *s, bench_rows *rows)
{
    int rc = EXIT_OK;
    side_expect(p, s);
    for (size_t d = 0; d < p->depths.n; d++)
        for (size_t i = 0; !rc && i < p->n_tests; i++) {
            bitnet_bench_test t = p->tests[i];
            t.depth = p->depths.data[d];
            rows->data = xrealloc(rows->data, (rows->n + 1) * sizeof *rows->data);
            rc = side_measure(p, s, &t, &rows->data[rows->n]);
            if (!rc)
                print_row(p, &rows->data[rows->n++]);
        }
    progress_end();
    return rc;
}

/* Of the last number of threads: everything it computed, timed by its last tg run. */
static int save_receipt(const args *a, bench_side *s)
{
    bitnet_receipt_facts facts;
    if (!s->receipt)
        return EXIT_OK;
    bitnet_receipt_facts_init(&facts);
    facts.n_generated = s->last.n_tokens ? s->last.n_tokens + 1 : 0;
    facts.total_ms = s->last.total_ms;
    facts.first_token_ms = s->last.first_token_ms;
    facts.decode_ms = s->last.ms;
    return receipt_save(a, s->receipt, &facts);
}

static int bench_threads(const bench_plan *p, const bench_source *src, size_t i, bench_rows *rows)
{
    bench_side s;
    bitnet_error err = {0};
    int rc = side_open(p, src, p->threads.data[i], NULL, &s);
    if (!rc && i == 0)
        print_head(p, s.model);
    if (!rc && !opt_json(p->args))
        print_limits(&s.limits);
    if (!rc && opt_given(p->args, OPT_RECEIPT) && i + 1 == p->threads.n)
        rc = outcome(bitnet_receipt_open(s.engine, &s.receipt, &err), &err);
    if (!rc && p->measures)
        rc = measure_all(p, &s, rows);
    if (!rc && opt_on(p->args, OPT_PROFILE))
        rc = bench_profile(p, &s);
    if (!rc && on_device(&s)) /* before kernels take memory of their own */
        bench_device_memory(p, &s);
    if (!rc && opt_on(p->args, OPT_BENCH_KERNELS))
        rc = bench_kernels(p, &s);
    rc = rc ? rc : save_receipt(p->args, &s);
    side_close(&s);
    return rc;
}

static int bench_all(const bench_plan *p)
{
    const args *a = p->args;
    bench_source src;
    bench_rows rows = {0};
    bitnet_error err = {0};
    int rc = source_open(a, NULL, opt_text(a, OPT_SYNTHETIC), opt_text(a, OPT_HEAD), &src);
    if (!rc && opt_given(a, OPT_MODEL_OUT))
        rc = outcome(bitnet_synthetic_save(src.synthetic, opt_text(a, OPT_MODEL_OUT), &err), &err);
    for (size_t i = 0; !rc && i < p->threads.n; i++)
        rc = bench_threads(p, &src, i, &rows);
    if (!rc && !opt_json(a))
        print_kernels(&rows);
    rc = rc ? rc : gate_finish(p, &rows);
    for (size_t i = 0; i < rows.n; i++)
        row_free(&rows.data[i]);
    free(rows.data);
    source_close(&src);
    return rc;
}

static int list_shapes(void)
{
    bitnet_synthetic_info s;
    out_printf("%-12s %6s %6s %6s %8s %9s %8s  %-6s %s\n", "shape", "layers", "width", "ffn",
               "heads", "head size", "vocab", "head", "of");
    for (int i = 0; bitnet_synthetic_at(i, &s); i++)
        out_printf("%-12s %6d %6d %6d %4d/%-3d %9d %8d  %-6s %s\n", s.name, s.n_layers, s.n_embd,
                   s.n_ff, s.n_heads, s.n_kv_heads, s.head_dim, s.n_vocab, s.head, s.about);
    return EXIT_OK;
}

int cmd_bench(args *a)
{
    bench_plan p;
    if (opt_text(a, OPT_SYNTHETIC) && strcmp(opt_text(a, OPT_SYNTHETIC), "list") == 0)
        return list_shapes();
    int rc = make_plan(a, &p);
    p.cpu = cpu_name();
    rc = rc ? rc : check_server_options(&p);
    rc = rc ? rc : gate_prepare(&p);
    if (!rc)
        rc = opt_given(a, OPT_SERVER_URL) ? bench_url(&p)
             : opt_on(a, OPT_BENCH_SERVE) ? bench_own(&p)
             : opt_on(a, OPT_CROWDED)     ? bench_crowded(&p)
             : opt_given(a, OPT_COMPARE)  ? bench_compare(&p)
                                          : bench_all(&p);
    free(p.cpu);
    return rc;
}
