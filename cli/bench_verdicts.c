/* bench_verdicts.c - what `bench --serve` promises, and whether it was kept: the bounds are here.
 * They are meant for the 2B-4T shape; HTTP may cost a small model more. */
#include "bench_server.h"

enum { LARGE_MODEL = 2048 }; /* wide */

/* share() for a promise of the most: what could not be measured was not kept. */
static double times(double a, double b)
{
    return a > 0 && b > 0 ? share(a, b) : 1e6;
}

static bool kept(const verdict *v)
{
    return v->least ? v->value >= v->bound : v->value <= v->bound;
}

size_t list_verdicts(const library_figures *l, const server_figures *s, verdict *out)
{
    size_t n = 0;
    out[n++] = (verdict){"bt16_of_pp128", "16 timelines by the rate of a prompt",
                         share(l->crowd, l->prompt), 0.70, true};
    out[n++] = (verdict){"stream16_of_bt16", "16 streams by 16 timelines",
                         share(s->crowd, l->crowd), 0.90, true};
    if (l->gpu)
        out[n++] = (verdict){"stream64_of_bt64", "64 streams by 64 timelines",
                             share(s->large, l->large), 0.80, true};
    else
        out[n++] = (verdict){"stream16_of_stream1", "16 streams by one stream",
                             share(s->crowd, s->one), l->matrix ? 2.5 : 1.7, true};
    out[n++] = (verdict){"others_gap", "gap of others beside a long prompt",
                         times(s->during_p99, s->others_p50), 5, false};
    out[n++] = (verdict){"long_prompt", "that prompt by its time alone",
                         times(s->long_among, s->long_alone), 1.5, false};
    out[n++] = (verdict){"prefix", "a prefix, so much sooner again",
                         share(s->prefix_first, s->prefix_again), 10, true};
    out[n++] = (verdict){"http_adds", "HTTP adds to one timeline", times(l->one, s->one) - 1,
                         l->n_embd >= LARGE_MODEL ? 0.03 : 0.15, false};
    return n;
}

void print_verdicts(const library_figures *l, const server_figures *s)
{
    verdict v[VERDICTS_MAX];
    size_t n = list_verdicts(l, s, v), n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        out_printf("%-36s %8.2f  at %s %-5.4g %s\n", v[i].text, v[i].value,
                   v[i].least ? "least" : "most ", v[i].bound, kept(&v[i]) ? "ok" : "missed");
        n_kept += kept(&v[i]);
    }
    out_printf("%zu of %zu bounds hold\n", n_kept, n);
}

json_t *verdicts_json(const library_figures *l, const server_figures *s)
{
    verdict v[VERDICTS_MAX];
    size_t n = list_verdicts(l, s, v);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, j_object("name:t value:f bound:f is:t ok:b", v[i].name,
                                             v[i].value, v[i].bound,
                                             v[i].least ? "at least" : "at most", kept(&v[i])));
    return list;
}
