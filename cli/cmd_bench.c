/* cmd_bench.c - `bitnet bench`: how fast a model is here, and what share of what the machine could
 * do that is. Reads the options, opens one engine per number of threads, times the tests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "progress.h"

/* ---- what is asked for ---- */

static int parse_number(const char *origin, const char *word, long low, long high, int *out)
{
    char *end;
    errno = 0;
    long n = strtol(word, &end, 10);
    if (*word < '0' || *word > '9' || *end || errno || n < low || n > high)
        return fail(EXIT_USAGE, "%s: '%s' is not a number from %ld to %ld", origin, word, low,
                    high);
    *out = (int)n;
    return EXIT_OK;
}

/* `auto`, where a list of threads may have it, is 0. */
static int parse_entry(const char *origin, option_key key, const char *word, long low, long high,
                       int *out)
{
    *out = 0;
    if (key == OPT_BENCH_THREADS && strcmp(word, "auto") == 0)
        return EXIT_OK;
    return parse_number(origin, word, low, high, out);
}

static int parse_numbers(const args *a, option_key key, long low, long high, number_list *out)
{
    const option *o = option_at(key);
    char word[32];
    int rc = EXIT_OK;
    for (size_t i = 0; !rc && word_at(opt_text(a, key), ',', i, word, sizeof word); i++) {
        if (out->n == BENCH_LIST_MAX)
            return fail(EXIT_USAGE, "%s: more than %d numbers", o->dashed, BENCH_LIST_MAX);
        rc = parse_entry(o->dashed, key, word, low, high, &out->data[out->n]);
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
    if (!rc)
        rc = parse_numbers(a, OPT_BENCH_THREADS, 0, 1024, &p->threads);
    if (!rc)
        rc = parse_numbers(a, OPT_DEPTH, 0, 1048576, &p->depths);
    if (!rc)
        rc = parse_share(a, p);
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
    return st == BITNET_OK ? EXIT_OK : fail_with(&err);
}

void source_close(bench_source *s)
{
    bitnet_synthetic_close(s->synthetic);
    free(s->path);
    *s = (bench_source){0};
}

static bool should_stop(void *user)
{
    (void)user;
    return interrupted() || out_failed();
}

/* The longest test decides. */
static int context_needed(const bench_plan *p)
{
    int most = 0, deepest = 0;
    for (size_t i = 0; i < p->n_tests; i++)
        most = p->tests[i].n_tokens > most ? p->tests[i].n_tokens : most;
    for (size_t i = 0; i < p->depths.n; i++)
        deepest = p->depths.data[i] > deepest ? p->depths.data[i] : deepest;
    if (opt_on(p->args, OPT_PROFILE)) { /* at depth 512 unless told otherwise */
        deepest = deepest ? deepest : 512;
        most = most > 32 ? most : 32;
    }
    return most + deepest + 1;
}

static int open_bench(const bench_plan *p, bench_side *s)
{
    static const bitnet_kv_type kinds[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    bitnet_bench_options o;
    bitnet_error err = {0};
    bitnet_bench_options_init(&o);
    o.n_ctx = context_needed(p);
    o.n_batch = (int)opt_int(p->args, OPT_BATCH);
    o.kv_type = kinds[opt_int(p->args, OPT_KV)];
    o.cancel = should_stop;
    return bitnet_bench_open(s->engine, &o, &s->bench, &err) == BITNET_OK ? EXIT_OK
                                                                          : fail_with(&err);
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
    bitnet_engine_options_init(&o);
    o.no_pack = opt_on(&s->args, OPT_NO_PACK);
    o.gpu_specialise = opt_on(&s->args, OPT_SPECIALISE);
    o.nvrtc_path = opt_text(&s->args, OPT_NVRTC);
    o.nvtx = opt_on(&s->args, OPT_NVTX);
    o.batch_invariant = opt_on(&s->args, OPT_BATCH_INVARIANT);
    if (o.gpu_specialise) /* packed weights are not taken from there: loading is measured */
        o.cache_dir = cache_folder(opt_text(&s->args, OPT_BENCH_CACHE), folder, sizeof folder);
    o.i2s_layout = (bitnet_i2s_layout)opt_int(&s->args, OPT_I2S_LAYOUT);
    o.precision = (bitnet_precision)opt_int(&s->args, OPT_PRECISION);
    o.on_progress = progress_step;
    if (src->path)
        signals_name_model(src->path);
    bitnet_status st =
        src->synthetic ? bitnet_synthetic_engine(src->synthetic, s->runtime, &o, &s->engine, &err)
                       : bitnet_engine_open(s->runtime, src->path, &o, &s->engine, &err);
    if (st == BITNET_CANCELLED && interrupted())
        return interrupted();
    if (st != BITNET_OK)
        return fail_with(&err);
    s->model = xstrdup(source_name(src));
    return interrupted();
}

int side_open(const bench_plan *p, const bench_source *src, int n_threads, const char *isa,
              bench_side *s)
{
    bitnet_error err = {0};
    *s = (bench_side){.args = *p->args};
    if (isa)
        s->args.values[OPT_ISA].text = isa;
    double start = now_ms();
    progress_begin(UNIT_BYTES, "loading %s", source_name(src));
    int rc = open_runtime(&s->args, n_threads, &s->runtime);
    if (!rc)
        rc = open_engine(src, s);
    s->load_ms = now_ms() - start;
    progress_begin(UNIT_NONE, "measuring what the machine can do");
    bitnet_limits_init(&s->limits);
    if (!rc && bitnet_limits_measure(s->runtime, &s->limits, &err) != BITNET_OK)
        rc = fail_with(&err);
    progress_end();
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
    if (s->n_runs_planned) /* else somebody else counts */
        progress_step(NULL, s->n_runs++, s->n_runs_planned);
    if (bitnet_bench_once(s->bench, t, &run, &err) != BITNET_OK)
        return interrupted() ? interrupted() : fail_with(&err);
    *tok_s = run.tok_s;
    if (!t->prompt)
        s->last = run;
    return EXIT_OK;
}

static void name_row(const args *a, const bitnet_bench_test *t, char *buf, size_t cap)
{
    size_t n;
    test_name(t, buf, cap);
    if (t->depth)
        n = strlen(buf), snprintf(buf + n, cap - n, "@d%d", t->depth);
    if (opt_int(a, OPT_KV) != 0)
        n = strlen(buf), snprintf(buf + n, cap - n, " kv=%s", opt_text(a, OPT_KV));
    if (opt_int(a, OPT_PRECISION) != 0)
        n = strlen(buf), snprintf(buf + n, cap - n, " %s", opt_text(a, OPT_PRECISION));
    if (wanted_isa(a))
        n = strlen(buf), snprintf(buf + n, cap - n, " isa=%.20s", wanted_isa(a));
}

void fill_row(const bench_plan *p, bench_side *s, const bitnet_bench_test *t, double *tok_s,
              size_t n, bench_row *r)
{
    bitnet_host_memory memory;
    *r = (bench_row){.test = *t, .n_threads = s->limits.n_threads, .load_ms = s->load_ms};
    name_row(&s->args, t, r->name, sizeof r->name);
    r->model = xstrdup(s->model);
    bitnet_stats stats;
    bitnet_stats_init(&stats);
    if (bitnet_engine_stats(s->engine, &stats, NULL) == BITNET_OK)
        snprintf(r->device, sizeof r->device, "%s", stats.device);
    r->tok_s = bitnet_summarize(tok_s, n);
    int batch = (int)opt_int(p->args, OPT_BATCH);
    double passes = t->prompt       ? (t->n_tokens < batch ? t->n_tokens : batch)
                    : t->n_sessions ? t->n_sessions
                                    : 1;
    r->gb_s = (double)bitnet_engine_token_bytes(s->engine) * r->tok_s.median / passes / 1e9;
    r->read_limit_gb_s = s->limits.read_gb_s;
    r->read_best_gb_s = s->limits.read_best_gb_s;
    r->gop_s = (double)bitnet_engine_token_ops(s->engine) * r->tok_s.median / 1e9;
    memcpy(r->peaks, s->limits.peaks, sizeof r->peaks);
    r->n_peaks = s->limits.n_peaks;
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
    *r = (bench_row){0};
}

void side_expect(const bench_plan *p, bench_side *s)
{
    size_t n_threads = (size_t)s->limits.n_threads;
    s->n_runs = 0;
    s->n_runs_planned = p->depths.n * p->n_tests * ((size_t)p->n_repeats + 1);
    progress_begin(UNIT_NONE, "measuring with %zu thread%s", n_threads, plural(n_threads));
}

int side_measure(const bench_plan *p, bench_side *s, const bitnet_bench_test *t, bench_row *out)
{
    double tok_s[BENCH_REPEATS_MAX], unused;
    bitnet_bench_test warm = *t;
    char name[32];
    test_name(t, name, sizeof name);
    progress_detail("%s", name);
    warm.n_tokens = t->n_tokens < 8 ? t->n_tokens : 8;
    int rc = side_once(s, &warm, &unused);
    bitnet_bench_forget(s->bench);
    for (int i = 0; !rc && i < p->n_repeats; i++) {
        char rate[32];
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
    bitnet_error err = {0};
    if (!s->receipt)
        return EXIT_OK;
    bitnet_receipt_facts_init(&facts);
    facts.n_generated = s->last.n_tokens ? s->last.n_tokens + 1 : 0;
    facts.total_ms = s->last.total_ms;
    facts.first_token_ms = s->last.first_token_ms;
    facts.decode_ms = s->last.ms;
    return bitnet_receipt_write(s->receipt, &facts, opt_text(a, OPT_RECEIPT), &err) == BITNET_OK
               ? EXIT_OK
               : fail_with(&err);
}

static int bench_threads(const bench_plan *p, const bench_source *src, size_t i, bench_rows *rows)
{
    bench_side s;
    bitnet_error err = {0};
    int rc = side_open(p, src, p->threads.data[i], NULL, &s);
    if (!rc && i == 0)
        print_head(p, s.model);
    if (!rc)
        print_limits(opt_json(p->args) ? NULL : &s.limits);
    if (!rc && opt_given(p->args, OPT_RECEIPT) && i + 1 == p->threads.n &&
        bitnet_receipt_open(s.engine, &s.receipt, &err) != BITNET_OK)
        rc = fail_with(&err);
    if (!rc && p->measures)
        rc = measure_all(p, &s, rows);
    if (!rc && opt_on(p->args, OPT_PROFILE))
        rc = bench_profile(p, &s);
    if (!rc && on_device(&s)) /* before kernels take memory of their own */
        bench_device_memory(p, &s);
    if (!rc && opt_on(p->args, OPT_BENCH_KERNELS))
        rc = bench_kernels(p, &s);
    if (!rc)
        rc = save_receipt(p->args, &s);
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
    if (!rc && opt_given(a, OPT_MODEL_OUT) &&
        bitnet_synthetic_save(src.synthetic, opt_text(a, OPT_MODEL_OUT), &err) != BITNET_OK)
        rc = fail_with(&err);
    for (size_t i = 0; !rc && i < p->threads.n; i++)
        rc = bench_threads(p, &src, i, &rows);
    if (!rc && !opt_json(a))
        print_kernels(&rows);
    if (!rc)
        rc = gate_finish(p, &rows);
    for (size_t i = 0; i < rows.n; i++)
        row_free(&rows.data[i]);
    free(rows.data);
    source_close(&src);
    return rc;
}

static int list_shapes(const args *a)
{
    bitnet_synthetic_info s;
    (void)a;
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
        return list_shapes(a);
    int rc = make_plan(a, &p);
    p.cpu = cpu_name();
    if (!rc)
        rc = gate_prepare(&p);
    if (!rc)
        rc = opt_on(a, OPT_CROWDED)      ? bench_crowded(&p)
             : opt_given(a, OPT_COMPARE) ? bench_compare(&p)
                                         : bench_all(&p);
    free(p.cpu);
    return rc;
}
