/* cmd_validate.c - `bitnet validate`: is what this machine computes right? Prints what the library
 * found out; a difference is exit status 7, a plugin that is faster 9, memory that is not given
 * back 10. */
#include <unistd.h>

#include "cli.h"

static const char *const verdicts[] = {"pass", "FAIL", "skip"};

/* ---- devices ---- */

/* [{"device", "name", "compute_capability"}], the CPU first. */
static json_t *list_devices(const args *a)
{
    bitnet_devices_options o;
    json_t *out = json_array(), *kind, *gpu;
    size_t i, j;
    bitnet_devices_options_init(&o);
    o.cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES");
    o.quick = true;
    o.log = log_sink;
    o.log_user = (void *)(uintptr_t)a;
    json_t *all = devices_json(&o);
    json_array_append_new(out, json_pack("{s:s, s:O?, s:n}", "device", "cpu", "name",
                                         json_object_get(json_object_get(all, "cpu"), "name"),
                                         "compute_capability"));
    json_array_foreach(json_object_get(all, "devices"), i, kind)
    {
        json_array_foreach(json_object_get(kind, "gpus"), j, gpu) json_array_append_new(
            out, json_pack("{s:O, s:O, s:O}", "device", json_object_get(kind, "device"), "name",
                           json_object_get(gpu, "name"), "compute_capability",
                           json_object_get(gpu, "compute_capability")));
    }
    json_decref(all);
    return out;
}

static void print_devices(buffer *out, const json_t *devices)
{
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *d = json_array_get(devices, i);
        const char *name = json_string_value(json_object_get(d, "name"));
        const json_t *cc = json_object_get(d, "compute_capability"); /* [9, 0] */
        char text[32] = "none";
        if (json_array_size(cc) == 2)
            snprintf(text, sizeof text, "%d.%d", (int)json_integer_value(json_array_get(cc, 0)),
                     (int)json_integer_value(json_array_get(cc, 1)));
        text_printf(out, "device %s: %s, compute capability %s\n",
                    json_string_value(json_object_get(d, "device")), name ? name : "unknown", text);
    }
}

/* ---- the tables ---- */

static void print_accuracy_row(buffer *out, const bitnet_accuracy *r)
{
    char shape[64];
    snprintf(shape, sizeof shape, "%llux%llux%llu", (unsigned long long)r->m,
             (unsigned long long)r->n, (unsigned long long)r->k);
    text_printf(out, "%-31s %-17s %-9s %-5s %16s  %-4s %10.3g ", r->kernel, r->op, r->format,
                r->dtype, shape, verdicts[r->verdict], r->max_error);
    if (r->bound > 0)
        text_printf(out, "%9.1e  %s\n", r->bound, r->note);
    else
        text_printf(out, "%9s  %s\n", "exact", r->note);
}

static void print_accuracy(buffer *out, const bitnet_validation *v)
{
    text_printf(out, "\n%-31s %-17s %-9s %-5s %16s  %-4s %10s %9s  %s\n", "kernel", "op", "format",
                "dtype", "m x n x k", "", "max error", "bound", "note");
    for (size_t i = 0; i < v->n_accuracy; i++)
        print_accuracy_row(out, &v->accuracy[i]);
}

/* The hundreds of rows in two lines, for a person at a terminal; those that failed are shown. */
static void print_summary(buffer *out, const bitnet_validation *v)
{
    size_t n_of[3] = {0};
    for (size_t i = 0; i < v->n_accuracy; i++)
        n_of[v->accuracy[i].verdict]++;
    text_printf(out, "\nkernels: %s, %zu comparison%s passed, %zu failed, %zu skipped\n",
                verdicts[n_of[BITNET_VERDICT_FAIL] > 0], n_of[BITNET_VERDICT_PASS],
                plural(n_of[BITNET_VERDICT_PASS]), n_of[BITNET_VERDICT_FAIL],
                n_of[BITNET_VERDICT_SKIP]);
    for (size_t i = 0; i < v->n_accuracy; i++)
        if (v->accuracy[i].verdict == BITNET_VERDICT_FAIL)
            print_accuracy_row(out, &v->accuracy[i]);
    text_puts(out, "  (-v shows each of them, and how fast every kernel is)\n");
}

static void print_performance(buffer *out, const bitnet_validation *v)
{
    text_printf(out, "\n%-24s %-9s %-5s %16s %11s %11s %11s %9s %9s\n", "kernel", "format", "dtype",
                "m x n x k", "device ms", "wall ms", "reference", "speed-up", "GFLOPS");
    for (size_t i = 0; i < v->n_performance; i++) {
        const bitnet_performance *p = &v->performance[i];
        char shape[64];
        snprintf(shape, sizeof shape, "%llux%llux%llu", (unsigned long long)p->m,
                 (unsigned long long)p->n, (unsigned long long)p->k);
        text_printf(out, "%-24s %-9s %-5s %16s %11.4f %11.4f %11.4f %9.2f %9.2f\n", p->kernel,
                    p->format, p->dtype, shape, p->device_ms, p->wall_ms, p->reference_ms,
                    p->speedup, p->gflops);
    }
}

static void print_model(buffer *out, const bitnet_model_result *m)
{
    text_printf(out, "\nmodel: %s", verdicts[m->verdict]);
    if (m->verdict != BITNET_VERDICT_SKIP)
        text_printf(out, ", %llu token%s, %llu operation%s, %llu value%s compared, %llu tie%s",
                    (unsigned long long)m->n_tokens, plural(m->n_tokens),
                    (unsigned long long)m->n_ops, plural(m->n_ops), (unsigned long long)m->n_values,
                    plural(m->n_values), (unsigned long long)m->n_ties, plural(m->n_ties));
    if (m->n_differ)
        text_printf(out,
                    "\n  %llu operation%s, the first is %s %s, layer %d, position %d, "
                    "element %llu: %.9g instead of %.9g\n  kernels: %s; reference: %s",
                    (unsigned long long)m->n_differ, m->n_differ == 1 ? " differs" : "s differ",
                    m->op, m->tensor, m->layer, m->position, (unsigned long long)m->element, m->got,
                    m->want, m->kernels, m->reference_kernels);
    else if (m->note[0])
        text_printf(out, ": %s", m->note);
    text_puts(out, "\n");
}

static void print_checks(buffer *out, const bitnet_validation *v)
{
    print_model(out, &v->model);
    const bitnet_golden_result *g = &v->golden;
    text_printf(out, "golden logits: %s", verdicts[g->verdict]);
    if (g->verdict != BITNET_VERDICT_SKIP)
        text_printf(out, ", %llu position%s, least cosine %.6f, %llu of %llu sure choices differ",
                    (unsigned long long)g->n_positions, plural(g->n_positions), g->min_cosine,
                    (unsigned long long)g->n_wrong, (unsigned long long)g->n_argmax);
    text_printf(out, "%s%s\n", g->verdict == BITNET_VERDICT_SKIP ? ": " : "",
                g->verdict == BITNET_VERDICT_SKIP ? g->note : "");
    const bitnet_memory_result *m = &v->memory;
    text_printf(out, "memory: %s", verdicts[m->verdict]);
    if (m->verdict == BITNET_VERDICT_SKIP)
        text_printf(out, ": %s\n", m->note);
    else
        text_printf(out, ", %d round%s of opening, generating and closing: %+lld bytes\n",
                    m->n_rounds, plural((uint64_t)m->n_rounds), (long long)m->growth_bytes);
}

static void print_comparison(buffer *out, const char *name, const char *kernel,
                             const bitnet_comparison *c)
{
    text_printf(out,
                "  %s%s%s: native %llu ns, reference %llu ns, %s, max error %g, improvement "
                "%+.1f %%, migration %srecommended, release gate %s\n",
                name, *kernel ? " by " : "", kernel, (unsigned long long)c->native_ns,
                (unsigned long long)c->reference_ns,
                c->accuracy_match ? "results match" : "results differ", c->max_error,
                100 * c->improvement, c->migration_recommended ? "" : "not ",
                c->release_gate ? "passed" : "MISSED");
}

static void print_bridge(buffer *out, const bitnet_bridge_result *b)
{
    text_printf(out, "bridge: %s%s%s\n", verdicts[b->verdict], b->note[0] ? ": " : "", b->note);
    if (b->verdict == BITNET_VERDICT_SKIP)
        return;
    print_comparison(out, "matmul_i2s", "", &b->matmul);
    print_comparison(out, "one token", b->one_kernel, &b->one_token);
    print_comparison(out, "many tokens", b->many_kernel, &b->many_tokens);
    print_comparison(out, "quantize", "", &b->quantize);
}

static void print_text(const args *a, const bitnet_validation *v, const json_t *devices)
{
    buffer out = {0};
    print_devices(&out, devices);
    text_printf(&out, "validating %s against %s\n", v->device, v->against);
    if (isatty(STDOUT_FILENO) && !opt_given(a, OPT_KERNEL) && !opt_given(a, OPT_LOG_LEVEL)) {
        print_summary(&out, v);
    } else {
        print_accuracy(&out, v);
        print_performance(&out, v);
    }
    print_checks(&out, v);
    print_bridge(&out, &v->bridge);
    text_printf(&out, "\nresult: %s\n", v->success ? "success" : "FAILED");
    out_buffer(&out);
}

static int print_json(const args *a, const bitnet_validation *v, json_t *devices)
{
    size_t n = 0;
    bitnet_validation_json(v, NULL, 0, &n, NULL);
    char *bytes = xmalloc(n + 1);
    json_t *j = NULL;
    if (bitnet_validation_json(v, bytes, n, &n, NULL) == BITNET_OK)
        j = json_loadb(bytes, n, 0, NULL);
    free(bytes);
    if (!j || json_object_set(j, "devices", devices) != 0) {
        json_decref(j);
        return fail(EXIT_MEMORY, "out of memory while writing JSON");
    }
    return j_report(a, j);
}

/* ---- the bridge ---- */

/* --bridge must work; what the environment names may be absent, which is said. */
static int open_bridge(const args *a, bitnet_bridge **out)
{
    bitnet_error err = {0};
    const value *given = &a->values[OPT_BRIDGE];
    const char *folder = getenv("BITNET_CPP_DIR");
    char *path = given->text         ? xstrdup(given->text)
                 : folder && *folder ? xformat("%s/libbitnet_bridge.so", folder)
                                     : NULL;
    bitnet_status st = bitnet_bridge_open(path, out, &err);
    bool demanded = given->origin && given->origin[0] == '-';
    int rc = st != BITNET_OK && demanded ? fail_with(&err) : EXIT_OK;
    if (st != BITNET_OK && !demanded && path)
        warn("%s: %s", given->text ? given->origin : "BITNET_CPP_DIR", err.message);
    free(path);
    return rc;
}

/* ---- the command ---- */

/* A bridge that failed with equal results missed the release gate. */
static bool bridge_differs(const bitnet_bridge_result *b)
{
    return b->verdict == BITNET_VERDICT_FAIL &&
           !(b->matmul.accuracy_match && b->one_token.accuracy_match &&
             b->many_tokens.accuracy_match && b->quantize.accuracy_match);
}

static int exit_of(const bitnet_validation *v)
{
    bool other = v->model.verdict == BITNET_VERDICT_FAIL ||
                 v->golden.verdict == BITNET_VERDICT_FAIL || bridge_differs(&v->bridge);
    for (size_t i = 0; i < v->n_accuracy; i++)
        other = other || v->accuracy[i].verdict == BITNET_VERDICT_FAIL;
    if (v->success)
        return EXIT_OK;
    if (other)
        return fail(EXIT_MISMATCH, "validate: results differ from the reference");
    return v->bridge.verdict == BITNET_VERDICT_FAIL
               ? fail(EXIT_PERFORMANCE, "validate: bridge: %s", v->bridge.note)
               : fail(EXIT_MEMORY_GATE, "validate: memory is not given back");
}

static int validate(const args *a, bitnet_runtime *runtime, bitnet_validate_options *o)
{
    bitnet_validation *v = NULL;
    bitnet_error err = {0};
    progress_begin(UNIT_SHARE, "validating");
    bitnet_status st = bitnet_validate(runtime, o, &v, &err);
    progress_end();
    if (st != BITNET_OK)
        return fail_with(&err);
    json_t *devices = list_devices(a);
    int rc = print_json(a, v, devices);
    if (!rc && !opt_json(a))
        print_text(a, v, devices);
    rc = rc ? rc : exit_of(v);
    json_decref(devices);
    bitnet_validation_free(v);
    return rc;
}

/* Model, memory and golden logits run on what is checked. */
static void aim_runtime(args *a)
{
    const value *given = &a->values[OPT_VALIDATE_DEVICE];
    a->values[OPT_DEVICE] = *given;
    if (strncmp(given->text, "cpu:", 4) == 0) {
        a->values[OPT_DEVICE].text = "cpu";
        a->values[OPT_ISA].text = given->text + 4;
    }
}

int cmd_validate(args *a)
{
    bitnet_validate_options o;
    bitnet_runtime *runtime = NULL;
    char *path = NULL;
    bitnet_validate_options_init(&o);
    o.device = opt_text(a, OPT_VALIDATE_DEVICE);
    o.against = opt_text(a, OPT_AGAINST);
    o.golden_dir = opt_text(a, OPT_GOLDEN);
    o.quick = opt_on(a, OPT_QUICK);
    o.i2s_layout = (bitnet_i2s_layout)opt_int(a, OPT_I2S_LAYOUT);
    o.cancel = wants_to_stop;
    o.on_progress = progress_step;
    o.kernel = opt_text(a, OPT_KERNEL);
    bool no_model = opt_on(a, OPT_KERNELS_ONLY) || o.kernel;
    if (no_model && (o.golden_dir || opt_given(a, OPT_MODEL)))
        return fail(EXIT_USAGE, "validate: %s uses no model",
                    o.kernel ? "--kernel" : "--kernels-only");
    int rc = no_model ? EXIT_OK : model_path(a, &path);
    o.model_path = path;
    if (path)
        signals_name_model(path);
    rc = rc ? rc : open_bridge(a, &o.bridge);
    aim_runtime(a);
    rc = rc ? rc : open_runtime(a, (int)opt_int(a, OPT_THREADS), &runtime);
    rc = rc ? rc : validate(a, runtime, &o);
    bitnet_runtime_close(runtime);
    bitnet_bridge_close(o.bridge);
    free(path);
    return rc;
}
