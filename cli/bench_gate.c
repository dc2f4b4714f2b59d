/* bench_gate.c - what becomes of the rows of bench: a file, the comparison with an earlier one, a
 * picture. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

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
    text_puts(out, "'");
    for (; *s; s++)
        text_add(out, *s == '\'' ? "''" : s, *s == '\'' ? 2 : 1);
    text_puts(out, "'");
}

static bool same_series(const bench_row *a, const bench_row *b, bool over_threads)
{
    return a->test.prompt == b->test.prompt && a->test.n_tokens == b->test.n_tokens &&
           (over_threads ? a->test.depth == b->test.depth : a->n_threads == b->n_threads);
}

/* One line per test: tok/s over threads (or over depth), with the spread as bars. */
static void plot_series(buffer *out, const bench_rows *rows, bool over_threads)
{
    buffer commands = {0}, data = {0};
    for (size_t i = 0; i < rows->n; i++) {
        const bench_row *r = &rows->data[i];
        char name[32];
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first = first && !same_series(r, &rows->data[k], over_threads);
        if (!first)
            continue;
        test_name(&r->test, name, sizeof name);
        text_printf(&commands, "%s'-' using 1:2:3:4 with yerrorlines title '%s, %s %d'",
                    commands.n ? ", " : "plot ", name, over_threads ? "depth" : "threads",
                    over_threads ? r->test.depth : r->n_threads);
        for (size_t k = i; k < rows->n; k++)
            if (same_series(r, &rows->data[k], over_threads))
                text_printf(&data, "%d %g %g %g\n",
                            over_threads ? rows->data[k].n_threads : rows->data[k].test.depth,
                            rows->data[k].tok_s.median, rows->data[k].tok_s.min,
                            rows->data[k].tok_s.max);
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
    if (!rc)
        rc = plot(p, rows);
    if (!rc)
        rc = compare_baseline(p, &now);
    free_buffer(&now);
    return rc;
}
