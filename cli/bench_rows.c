/* bench_rows.c - how the measurements of bench look: an aligned table for people, one JSON object
 * per line for programs. */
#include <commit.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "build_info.h"

void test_name(const bitnet_bench_test *t, char *buf, size_t cap)
{
    if (t->n_sessions)
        snprintf(buf, cap, "bt%d", t->n_sessions);
    else
        snprintf(buf, cap, "%s%d", t->prompt ? "pp" : "tg", t->n_tokens);
}

/* Not a number where the limit is not known. */
static double share(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* As the devices layer names it. */
char *cpu_name(void)
{
    bitnet_devices_options o;
    bitnet_devices *d = NULL;
    char *name = NULL;
    bitnet_devices_options_init(&o);
    o.gpu_fake = "none";
    o.quick = true;
    if (bitnet_devices_open(&o, &d, NULL) == BITNET_OK) {
        json_t *all = json_loads(bitnet_devices_json(d, BITNET_DEVICES_LIST), 0, NULL);
        const char *s = json_string_value(json_object_get(json_object_get(all, "cpu"), "name"));
        name = s ? xstrdup(s) : NULL;
        json_decref(all);
    }
    bitnet_devices_close(d);
    return name ? name : xstrdup("unknown");
}

static json_t *kernel_list(const bench_row *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_kernels; i++)
        json_array_append_new(list, json_pack("{s:o, s:I}", "id", j_str(r->kernels[i].id), "calls",
                                              (json_int_t)r->kernels[i].n_calls));
    return list;
}

static double peak_of(const bench_row *r)
{
    return r->n_peaks ? r->peaks[0].gop_s : 0;
}

/* {"smmla.i8mm": 332.7, ...}: Gop/s of every instruction set there is. */
static json_t *peaks_json(const bench_row *r)
{
    json_t *o = json_object();
    for (size_t i = 0; i < r->n_peaks; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", r->peaks[i].name, r->peaks[i].isa);
        json_object_set_new(o, key, j_num(r->peaks[i].gop_s));
    }
    return o;
}

static void put(json_t *o, const char *key, json_t *j)
{
    if (!j || json_object_set_new(o, key, j) != 0)
        exit(fail(EXIT_MEMORY, "out of memory while writing JSON"));
}

static void put_build(const bench_plan *p, json_t *o)
{
    put(o, "version", j_str(bitnet_version()));
    put(o, "commit", j_str(BITNET_COMMIT));
    put(o, "compiler", j_str(COMPILER));
    put(o, "cpu", j_str(p->cpu));
    put(o, "kv", j_str(opt_text(p->args, OPT_KV)));
    put(o, "precision", j_str(opt_text(p->args, OPT_PRECISION)));
}

json_t *row_json(const bench_plan *p, const bench_row *r)
{
    json_t *o = json_object();
    char test[32];
    test_name(&r->test, test, sizeof test);
    put(o, "test", j_str(test));
    put(o, "threads", json_integer(r->n_threads));
    put(o, "depth", json_integer(r->test.depth));
    put(o, "tok_s", j_num(r->tok_s.median));
    put(o, "spread", j_num(r->tok_s.spread));
    put(o, "min", j_num(r->tok_s.min));
    put(o, "max", j_num(r->tok_s.max));
    put(o, "runs", json_integer((json_int_t)r->tok_s.n));
    put(o, "gb_s", j_num(r->gb_s));
    put(o, "read_limit_gb_s", j_num(r->read_limit_gb_s));
    put(o, "read_best_gb_s", j_num(r->read_best_gb_s));
    put(o, "share_of_read_limit", j_num(share(r->gb_s, r->read_limit_gb_s)));
    put(o, "gop_s", j_num(r->gop_s));
    put(o, "peak_gop_s", j_num(peak_of(r)));
    put(o, "peak_instruction", j_str(r->n_peaks ? r->peaks[0].name : ""));
    put(o, "share_of_peak", j_num(share(r->gop_s, peak_of(r))));
    put(o, "peaks", peaks_json(r));
    put(o, "kernels", kernel_list(r));
    put(o, "model", j_str(r->model));
    put(o, "device", j_str(r->device));
    put(o, "load_ms", j_num(r->load_ms));
    put(o, "rss_mb", j_num(r->rss_mb));
    put_build(p, o);
    put(o, "name", j_str(r->name));
    put(o, "value", j_num(r->tok_s.median));
    return o;
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

/* "66.5 %"; "-" of a limit that was not measured (other devices). */
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
    if (!l || !(l->read_gb_s > 0))
        return;
    char best[24];
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
    if (opt_json(p->args)) {
        json_t *o = row_json(p, r);
        j_print(o);
        json_decref(o);
        return;
    }
    char test[32];
    test_name(&r->test, test, sizeof test);
    char of_read[24], of_peak[24];
    out_printf("%-8s %7d %7d %10.2f %6.1f %% %8.2f %12s %9.1f %9s\n", test, r->n_threads,
               r->test.depth, r->tok_s.median, 100 * r->tok_s.spread, r->gb_s,
               percent(share(r->gb_s, r->read_limit_gb_s), of_read, sizeof of_read), r->gop_s,
               percent(share(r->gop_s, peak_of(r)), of_peak, sizeof of_peak));
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
