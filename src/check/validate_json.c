/* validate_json.c - the results of validation as one JSON object. */
#include "check/validate.h"

#include "ops/json_text.h"

#include <math.h>

static const char *verdict_name(bitnet_verdict v)
{
    static const char *const names[] = {"pass", "fail", "skip"};
    return names[v];
}

static const char *truth(bool b)
{
    return b ? "true" : "false";
}

static void put_num(bnet_str *s, const char *name, double x, const char *after)
{
    if (isfinite(x))
        bnet_str_addf(s, "\"%s\": %.9g%s", name, x, after);
    else
        bnet_str_addf(s, "\"%s\": null%s", name, after);
}

static void put_u64(bnet_str *s, const char *name, uint64_t x, const char *after)
{
    bnet_str_addf(s, "\"%s\": %llu%s", name, (unsigned long long)x, after);
}

static void put_shape(bnet_str *s, uint64_t m, uint64_t n, uint64_t k)
{
    put_u64(s, "m", m, ", ");
    put_u64(s, "n", n, ", ");
    put_u64(s, "k", k, ", ");
}

static void put_key(bnet_str *s, const char *kernel, const char *op, const char *format,
                    const char *dtype)
{
    bnet_json_member(s, "kernel", kernel, ", ");
    bnet_json_member(s, "op", op, ", ");
    bnet_json_member(s, "format", format, ", ");
    bnet_json_member(s, "dtype", dtype, ", ");
}

static void put_accuracy(bnet_str *s, const bitnet_validation *v)
{
    bnet_str_puts(s, "\"accuracy\": [");
    for (size_t i = 0; i < v->n_accuracy; i++) {
        const bitnet_accuracy *a = &v->accuracy[i];
        bnet_str_puts(s, i ? ", {" : "{");
        put_key(s, a->kernel, a->op, a->format, a->dtype);
        put_shape(s, a->m, a->n, a->k);
        bnet_json_member(s, "agreement", a->agreement, ", ");
        bnet_json_member(s, "verdict", verdict_name(a->verdict), ", ");
        put_num(s, "max_error", a->max_error, ", ");
        put_num(s, "bound", a->bound, ", ");
        bnet_json_member(s, "note", a->note, "}");
    }
    bnet_str_puts(s, "], ");
}

static void put_performance(bnet_str *s, const bitnet_validation *v)
{
    bnet_str_puts(s, "\"performance\": [");
    for (size_t i = 0; i < v->n_performance; i++) {
        const bitnet_performance *p = &v->performance[i];
        bnet_str_puts(s, i ? ", {" : "{");
        put_key(s, p->kernel, p->op, p->format, p->dtype);
        put_shape(s, p->m, p->n, p->k);
        put_num(s, "device_ms", p->device_ms, ", ");
        put_num(s, "wall_ms", p->wall_ms, ", ");
        put_num(s, "reference_ms", p->reference_ms, ", ");
        put_num(s, "speedup", p->speedup, ", ");
        put_num(s, "gflops", p->gflops, "}");
    }
    bnet_str_puts(s, "], ");
}

static void put_memory(bnet_str *s, const bitnet_memory_result *m)
{
    if (m->verdict == BITNET_VERDICT_SKIP) {
        bnet_str_puts(s, "\"memory\": null, "); /* an optional result */
        return;
    }
    bnet_str_puts(s, "\"memory\": {");
    bnet_json_member(s, "verdict", verdict_name(m->verdict), ", ");
    put_u64(s, "rounds", (uint64_t)m->n_rounds, ", ");
    put_u64(s, "start_bytes", m->start_bytes, ", ");
    put_u64(s, "end_bytes", m->end_bytes, ", ");
    bnet_str_addf(s, "\"growth_bytes\": %lld, ", (long long)m->growth_bytes);
    bnet_json_member(s, "note", m->note, "}, ");
}

static void put_difference(bnet_str *s, const bitnet_model_result *m)
{
    bnet_str_puts(s, "\"first_difference\": ");
    if (m->n_differ == 0) {
        bnet_str_puts(s, "null, ");
        return;
    }
    bnet_str_puts(s, "{");
    bnet_json_member(s, "op", m->op, ", ");
    bnet_json_member(s, "tensor", m->tensor, ", ");
    bnet_str_addf(s, "\"layer\": %d, \"position\": %d, ", m->layer, m->position);
    put_u64(s, "element", m->element, ", ");
    put_num(s, "got", m->got, ", ");
    put_num(s, "want", m->want, ", ");
    bnet_json_member(s, "kernels", m->kernels, ", ");
    bnet_json_member(s, "reference_kernels", m->reference_kernels, "}, ");
}

static void put_model(bnet_str *s, const bitnet_model_result *m)
{
    bnet_str_puts(s, "\"model\": {");
    bnet_json_member(s, "verdict", verdict_name(m->verdict), ", ");
    put_u64(s, "tokens", m->n_tokens, ", ");
    put_u64(s, "ops", m->n_ops, ", ");
    put_u64(s, "values", m->n_values, ", ");
    put_u64(s, "differing_ops", m->n_differ, ", ");
    put_u64(s, "ties", m->n_ties, ", ");
    put_num(s, "max_error", m->max_error, ", ");
    put_difference(s, m);
    bnet_json_member(s, "note", m->note, "}, ");
}

static void put_golden(bnet_str *s, const bitnet_golden_result *g)
{
    bnet_str_puts(s, "\"golden\": {");
    bnet_json_member(s, "verdict", verdict_name(g->verdict), ", ");
    put_u64(s, "prompts", g->n_prompts, ", ");
    put_u64(s, "positions", g->n_positions, ", ");
    put_num(s, "min_cosine", g->min_cosine, ", ");
    put_u64(s, "argmax_checked", g->n_argmax, ", ");
    put_u64(s, "argmax_wrong", g->n_wrong, ", ");
    bnet_json_member(s, "note", g->note, "}, ");
}

static void put_comparison(bnet_str *s, const char *name, const bitnet_comparison *c,
                           const char *after)
{
    bnet_str_addf(s, "\"%s\": {", name);
    put_u64(s, "native_ns", c->native_ns, ", ");
    put_u64(s, "reference_ns", c->reference_ns, ", ");
    bnet_str_addf(s, "\"accuracy_match\": %s, ", truth(c->accuracy_match));
    put_num(s, "max_error", c->max_error, ", ");
    put_num(s, "improvement", c->improvement, ", ");
    bnet_str_addf(s, "\"migration_recommended\": %s, \"release_gate\": %s}%s",
                  truth(c->migration_recommended), truth(c->release_gate), after);
}

static void put_bridge(bnet_str *s, const bitnet_bridge_result *b)
{
    bnet_str_puts(s, "\"bridge\": {");
    bnet_json_member(s, "verdict", verdict_name(b->verdict), ", ");
    if (b->verdict != BITNET_VERDICT_SKIP) {
        put_comparison(s, "matmul_i2s", &b->matmul, ", ");
        put_comparison(s, "one_token", &b->one_token, ", ");
        bnet_json_member(s, "one_kernel", b->one_kernel, ", ");
        put_comparison(s, "many_tokens", &b->many_tokens, ", ");
        bnet_json_member(s, "many_kernel", b->many_kernel, ", ");
        put_comparison(s, "quantize", &b->quantize, ", ");
    }
    bnet_json_member(s, "note", b->note, "}");
}

bitnet_status bitnet_validation_json(const bitnet_validation *v, char *out, size_t cap,
                                     size_t *n_bytes, bitnet_error *err)
{
    if (!v || !n_bytes || (cap && !out))
        return bnet_fail(err, BITNET_ARGUMENT, "validation, out and n_bytes must be given");
    bnet_str s = {0};
    bnet_str_addf(&s, "{\"success\": %s, ", truth(v->success));
    bnet_json_member(&s, "device", v->device, ", ");
    bnet_json_member(&s, "against", v->against, ", ");
    put_accuracy(&s, v);
    put_performance(&s, v);
    put_memory(&s, &v->memory);
    put_model(&s, &v->model);
    put_golden(&s, &v->golden);
    put_bridge(&s, &v->bridge);
    bnet_str_putc(&s, '}');
    bitnet_status st = s.failed ? bnet_no_memory(err, "validation") : BITNET_OK;
    *n_bytes = s.failed ? 0 : s.n;
    if (st == BITNET_OK && cap)
        memcpy(out, s.data, BNET_MIN(cap, s.n));
    if (st == BITNET_OK && s.n > cap)
        st = bnet_fail(err, BITNET_ARGUMENT, "validation: the text has %zu bytes, the buffer %zu",
                       s.n, cap);
    bnet_str_free(&s);
    return st;
}
