/* bench_rows.c - what becomes of the measurements of bench: an aligned table for people, one JSON
 * object per line for programs, a file, the comparison with an earlier one, a picture. */
#include <commit.h>
#include <math.h>
#include <unistd.h>

#include "bench.h"

void test_name(const bitnet_bench_test *t, char *buf, size_t cap)
{
    if (t->n_sessions)
        snprintf(buf, cap, "bt%d", t->n_sessions);
    else
        snprintf(buf, cap, "%s%d", t->prompt ? "pp" : "tg", t->n_tokens);
}

double share_of(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* As the devices layer names it. */
char *cpu_name(void)
{
    bitnet_devices_options o;
    bitnet_devices_options_init(&o);
    o.gpu_fake = "none";
    o.quick = true;
    json_t *all = devices_json(&o);
    const char *name = json_string_value(json_object_get(json_object_get(all, "cpu"), "name"));
    char *copy = xstrdup(name ? name : "unknown");
    json_decref(all);
    return copy;
}

static json_t *kernel_list(const bench_row *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_kernels; i++)
        json_array_append_new(list,
                              j_object("id:t calls:n", r->kernels[i].id, r->kernels[i].n_calls));
    return list;
}

/* {"smmla.i8mm": 332.7, ...}: Gop/s of every instruction set there is. */
static json_t *peaks_json(const bitnet_limits *l)
{
    json_t *o = json_object();
    for (size_t i = 0; i < l->n_peaks; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", l->peaks[i].name, l->peaks[i].isa);
        json_object_set_new(o, key, j_num(l->peaks[i].gop_s));
    }
    return o;
}

double peak_of(const bitnet_limits *l)
{
    return l->n_peaks ? l->peaks[0].gop_s : 0;
}

json_t *row_json(const bench_plan *p, const bench_row *r)
{
    const bitnet_limits *l = &r->limits;
    return j_object(
        "test:t threads:i depth:i tok_s:f spread:f min:f max:f runs:n gb_s:f read_limit_gb_s:f "
        "read_best_gb_s:f share_of_read_limit:f gop_s:f peak_gop_s:f peak_instruction:t "
        "share_of_peak:f rebuilt_tokens:n peaks:j kernels:j model:t device:t load_ms:f rss_mb:f "
        "version:t commit:t "
        "compiler:t cpu:t kv:t precision:t name:t value:f",
        r->what, l->n_threads, r->test.depth, r->tok_s.median, r->tok_s.spread, r->tok_s.min,
        r->tok_s.max, r->tok_s.n, r->gb_s, l->read_gb_s, l->read_best_gb_s,
        share_of(r->gb_s, l->read_gb_s), r->gop_s, peak_of(l), l->n_peaks ? l->peaks[0].name : "",
        share_of(r->gop_s, peak_of(l)), r->n_rebuilt, peaks_json(l), kernel_list(r), r->model,
        r->device, r->load_ms, r->rss_mb, bitnet_version(), BITNET_COMMIT, COMPILER, p->cpu,
        opt_text(p->args, OPT_KV), opt_text(p->args, OPT_PRECISION), r->name, r->tok_s.median);
}

void print_head(const bench_plan *p, const char *model)
{
    if (opt_json(p->args))
        return;
    out_printf("%s on %s, version %s (%s), %s\n", model, p->cpu, bitnet_version(), BITNET_COMMIT,
               COMPILER);
    if (p->measures)
        out_printf("%-8s %7s %7s %10s %8s %8s %12s %9s %9s\n", "test", "threads", "depth", "tok/s",
                   "spread", "GB/s", "of the limit", "Gop/s", "of peak");
}

/* "66.5 %"; "-" of a limit that was not measured (other devices, --no-limits). */
static const char *percent(double part, char *buf, size_t cap)
{
    if (isfinite(part))
        snprintf(buf, cap, "%.1f %%", 100 * part);
    else
        snprintf(buf, cap, "-");
    return buf;
}

void print_limits(const bitnet_limits *l)
{
    char best[24];
    if (!(l->read_gb_s > 0))
        return;
    snprintf(best, sizeof best, "best %.1f", l->read_best_gb_s);
    out_printf("limit    %7d %7s %10s %8s %8.1f %12s", l->n_threads, "", "", "", l->read_gb_s,
               best);
    for (size_t i = 0; i < l->n_peaks; i++)
        out_printf("%*s %9.1f %s.%s\n", i ? 66 : 0, "", l->peaks[i].gop_s, l->peaks[i].name,
                   l->peaks[i].isa);
    if (!l->n_peaks)
        out_puts("\n");
}

void print_row(const bench_plan *p, const bench_row *r)
{
    const bitnet_limits *l = &r->limits;
    char of_read[24], of_peak[24];
    if (opt_json(p->args)) {
        j_print(row_json(p, r));
        return;
    }
    out_printf("%-8s %7d %7d %10.2f %6.1f %% %8.2f %12s %9.1f %9s\n", r->what, l->n_threads,
               r->test.depth, r->tok_s.median, 100 * r->tok_s.spread, r->gb_s,
               percent(share_of(r->gb_s, l->read_gb_s), of_read, sizeof of_read), r->gop_s,
               percent(share_of(r->gop_s, peak_of(l)), of_peak, sizeof of_peak));
    if (r->test.n_sessions && opt_given(p->args, OPT_KV_POOL))
        out_printf("         %zu tokens computed again: a cache of %lld MB for all, %s\n",
                   r->n_rebuilt, (long long)opt_int(p->args, OPT_KV_POOL),
                   opt_text(p->args, OPT_KV_POLICY));
}

/* Every kernel of any row once, with all its calls. */
void print_kernels(const bench_rows *rows)
{
    bitnet_kernel_use all[BENCH_KERNELS_MAX];
    size_t n = 0;
    for (size_t r = 0; r < rows->n; r++)
        for (size_t i = 0; i < rows->data[r].n_kernels; i++) {
            const bitnet_kernel_use *u = &rows->data[r].kernels[i];
            size_t k = 0;
            while (k < n && strcmp(all[k].id, u->id) != 0)
                k++;
            if (k == n && n < BENCH_KERNELS_MAX)
                all[n++] = (bitnet_kernel_use){u->id, 0};
            if (k < n)
                all[k].n_calls += u->n_calls;
        }
    if (n)
        out_puts("kernels\n");
    for (size_t i = 0; i < n; i++)
        out_printf("  %-28s %12llu calls\n", all[i].id, (unsigned long long)all[i].n_calls);
}

/* ---- the picture ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char folder[4096];
    for (size_t i = 0; path && word_at(path, ':', i, folder, sizeof folder); i++) {
        char *file = xformat("%s/%s", folder, program);
        bool found = access(file, X_OK) == 0;
        free(file);
        if (found)
            return true;
    }
    return false;
}

/* Gnuplot quotes with '' inside '...'. */
static void quote(buffer *out, const char *s)
{
    static const char *const doubled[] = {"''"};
    text_puts(out, "'");
    text_mapped(out, s, "'", doubled);
    text_puts(out, "'");
}

static bool same_series(const bench_row *a, const bench_row *b, bool over_threads)
{
    return a->test.prompt == b->test.prompt && a->test.n_tokens == b->test.n_tokens &&
           (over_threads ? a->test.depth == b->test.depth
                         : a->limits.n_threads == b->limits.n_threads);
}

/* One line per test: tok/s over threads (or over depth), with the spread as bars. */
static void plot_series(buffer *out, const bench_rows *rows, bool over_threads)
{
    buffer commands = {0}, data = {0};
    for (size_t i = 0; i < rows->n; i++) {
        const bench_row *r = &rows->data[i];
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first = first && !same_series(r, &rows->data[k], over_threads);
        if (!first)
            continue;
        text_printf(&commands, "%s'-' using 1:2:3:4 with yerrorlines title '%s, %s %d'",
                    commands.n ? ", " : "plot ", r->what, over_threads ? "depth" : "threads",
                    over_threads ? r->test.depth : r->limits.n_threads);
        for (const bench_row *x = r; x < rows->data + rows->n; x++)
            if (same_series(r, x, over_threads))
                text_printf(&data, "%d %g %g %g\n",
                            over_threads ? x->limits.n_threads : x->test.depth, x->tok_s.median,
                            x->tok_s.min, x->tok_s.max);
        text_puts(&data, "e\n");
    }
    text_printf(out, "set xlabel '%s'\nset ylabel 'tokens per second'\n%s\n%s",
                over_threads ? "threads" : "depth", commands.data, data.data);
    free_buffer(&commands);
    free_buffer(&data);
}

static void plot_script(buffer *out, const char *path, const bench_rows *rows)
{
    bool deep = false;
    for (size_t i = 1; i < rows->n; i++)
        deep = deep || rows->data[i].test.depth != rows->data[0].test.depth;
    text_printf(out, "set terminal %s size %d,480\nset output ",
                ends_with(path, ".svg") ? "svg" : "png", deep ? 1280 : 640);
    quote(out, path);
    text_puts(out, "\nset grid\nset yrange [0:*]\nset key bottom right\nset title ");
    quote(out, rows->data[0].model);
    text_printf(out, "\nset multiplot layout 1,%d\n", deep ? 2 : 1);
    plot_series(out, rows, true);
    if (deep)
        plot_series(out, rows, false);
    text_puts(out, "unset multiplot\n");
}

static int plot(const bench_plan *p, const bench_rows *rows)
{
    const char *path = opt_text(p->args, OPT_PLOT);
    buffer script = {0};
    if (!path || rows->n == 0)
        return EXIT_OK;
    plot_script(&script, path, rows);
    FILE *gnuplot = popen("gnuplot", "w");
    bool ok = gnuplot && fwrite(script.data, 1, script.n, gnuplot) == script.n;
    ok = gnuplot && pclose(gnuplot) == 0 && ok;
    free_buffer(&script);
    return ok ? EXIT_OK : fail(EXIT_IO, "--plot: gnuplot could not draw %s", path);
}

/* ---- earlier rows ---- */

static void tell(void *user, const bitnet_regression *r)
{
    const args *a = user;
    if (r->missing)
        note(a, "baseline: %s: missing now\n", r->name);
    else
        note(a, "baseline: %s: %.2f, was %.2f (%+.1f %%)%s\n", r->name, r->now, r->before,
             100 * r->change, r->regressed ? ": regression" : "");
}

/* now NULL: only to see whether the baseline can be compared with. */
static int compare_baseline(const bench_plan *p, const buffer *now)
{
    const char *path = opt_text(p->args, OPT_BASELINE);
    buffer before = {0};
    bitnet_error err = {0};
    if (!path)
        return EXIT_OK;
    int rc = read_input(path, &before);
    const buffer *with = now ? now : &before;
    if (!rc && bitnet_baseline_compare(before.data, before.n, with->data, with->n, p->max_regress,
                                       now ? tell : NULL, (void *)(uintptr_t)p->args, NULL,
                                       &err) != BITNET_OK)
        rc = err.status == BITNET_ARGUMENT ? fail(EXIT_USAGE, "%s: %s", path, err.message)
                                           : fail_with(&err);
    free_buffer(&before);
    return rc;
}

int gate_prepare(const bench_plan *p)
{
    const args *a = p->args;
    const char *picture = opt_text(a, OPT_PLOT), *baseline = opt_text(a, OPT_BASELINE);
    if (opt_given(a, OPT_MAX_REGRESS) && !baseline)
        return fail(EXIT_USAGE, "--max-regress: there is no --baseline to compare with");
    if (!p->measures && (baseline || picture || opt_given(a, OPT_SAVE)))
        return fail(EXIT_USAGE, "bench: --baseline, --save and --plot need --tests");
    if (picture && !ends_with(picture, ".svg") && !ends_with(picture, ".png"))
        return fail(EXIT_USAGE, "--plot: %s must end in .svg or .png", picture);
    if (picture && !in_path("gnuplot"))
        return fail(EXIT_NOT_AVAILABLE,
                    "--plot: gnuplot is not installed; install it, or take the rows of --json");
    return compare_baseline(p, NULL);
}

int gate_finish(const bench_plan *p, const bench_rows *rows)
{
    buffer now = {0};
    for (size_t i = 0; i < rows->n; i++) {
        json_t *o = row_json(p, &rows->data[i]);
        char *line = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
        text_printf(&now, "%s\n", line ? line : "");
        free(line);
        json_decref(o);
    }
    text_add(&now, "", 0);
    int rc = EXIT_OK;
    if (opt_given(p->args, OPT_SAVE))
        rc = save_bytes(opt_text(p->args, OPT_SAVE), now.data, now.n);
    rc = rc ? rc : plot(p, rows);
    rc = rc ? rc : compare_baseline(p, &now);
    free_buffer(&now);
    return rc;
}
