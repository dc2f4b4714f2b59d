/* validate.c - is what this machine computes right, how fast is it, does it give memory back? The
 * order of checks, and what they share. */
#include "check/validate.h"

#include <stdio.h>

enum { NAME_MAX = 32 };

typedef struct holder { /* the texts of the result live with it */
    bitnet_validation v;
    char device[NAME_MAX], against[NAME_MAX];
} holder;

void bitnet_validate_options_init(bitnet_validate_options *o)
{
    if (!o)
        return;
    *o = (bitnet_validate_options){.struct_size = sizeof *o, .against = "cpu:scalar"};
}

bitnet_status bnet_validate_poll(const validation_run *r)
{
    if (r->o.cancel && r->o.cancel(r->o.cancel_user))
        return bnet_fail(r->err, BITNET_CANCELLED, "validation was cancelled");
    return BITNET_OK;
}

bitnet_status bnet_validate_at(validation_run *r, size_t i, size_t n)
{
    uint64_t done = r->part_begin + r->part_share * i / n;
    if (!bnet_progress_at(&r->progress, done))
        return bnet_fail(r->err, BITNET_CANCELLED, "validation was cancelled");
    return bnet_validate_poll(r);
}

size_t bnet_validate_work(const validation_run *r, size_t n_records)
{
    enum { LINEAR = 16, OTHER = 1 };
    const bnet_kernel_record *k;
    size_t sum = 1;
    for (size_t i = 0; i < n_records && (k = bnet_registry_at(r->runtime->registry, i)); i++)
        if (bnet_validate_wants(r, k) && k->device == r->device.device)
            sum += bnet_case_linear(k) ? LINEAR : OTHER;
    return sum;
}

/* "auto", "cpu", "cpu:neon", "cuda:1". The instruction set behind "cpu:" lives in `text`. */
static bitnet_status parse_device(const validation_run *r, const char *field, char text[NAME_MAX],
                                  bnet_backend_want *out, bnet_capabilities *caps)
{
    bnet_request q;
    bnet_selection s = r->runtime->selection;
    bool isa = strncmp(text, "cpu:", 4) == 0;
    bitnet_status st = bnet_request_parse(isa ? "cpu" : text, field, &q, r->err);
    if (st == BITNET_OK && q.ranks.n > 1)
        st = bnet_fail(r->err, BITNET_ARGUMENT, "%s: one device at a time", q.text);
    if (st == BITNET_OK && !q.is_auto)
        st = bnet_select(r->runtime->devices, &q, &s, r->err);
    if (st != BITNET_OK)
        return bnet_wrap(r->err, st, "%s", field);
    *out = (bnet_backend_want){.device = s.kind,
                               .index = BNET_MAX(s.index, 0),
                               .pool = r->runtime->pool,
                               .isa = isa ? text + 4 : NULL};
    if (s.kind != BNET_DEV_CPU) {
        *caps = bnet_runtime_gpu(r->runtime, out->device, out->index);
        return BITNET_OK;
    }
    return bnet_cpu_capabilities(out->isa ? out->isa : r->runtime->isa, caps, r->err);
}

bitnet_status bnet_validate_open_device(const validation_run *r, const bnet_registry *registry,
                                        const bnet_log *log, bnet_backend **be)
{
    bnet_backend_want w = r->device;
    w.registry = registry;
    w.log = log;
    return bnet_backend_open(&w, be, r->err);
}

bitnet_status bnet_validate_open_reference(const validation_run *r, bnet_backend **be)
{
    bnet_backend_want w = r->against;
    w.registry = r->reference;
    return bnet_backend_open(&w, be, r->err);
}

static bitnet_status copy_name(const char *field, const char *text, char out[NAME_MAX],
                               bitnet_error *err)
{
    if (strlen(text) >= NAME_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: the name of a device is shorter than that",
                         field);
    snprintf(out, NAME_MAX, "%s", text);
    return BITNET_OK;
}

/* The kernel asked for must exist and be the device's; otherwise nothing would be checked. */
static bitnet_status find_kernel(const validation_run *r)
{
    const char *id = r->o.kernel;
    const bnet_kernel_record *k = id ? bnet_registry_find(r->runtime->registry, id) : NULL;
    if (id && !k)
        return bnet_fail(r->err, BITNET_ARGUMENT,
                         "kernel: there is no '%s' in this build; bitnet_kernel_at lists them", id);
    if (k && k->device != r->device.device)
        return bnet_fail(r->err, BITNET_ARGUMENT,
                         "kernel: '%s' runs on %s, not on %s; choose that device", id,
                         bnet_device_name(k->device), bnet_device_name(r->device.device));
    return BITNET_OK;
}

/* Both devices, what they can run, and a registry of the tree's kernels alone. */
static bitnet_status set_up(validation_run *r, holder *h)
{
    bitnet_status st = copy_name("device", r->o.device ? r->o.device : "auto", h->device, r->err);
    if (st == BITNET_OK)
        st = copy_name("against", r->o.against ? r->o.against : "cpu:scalar", h->against, r->err);
    if (st == BITNET_OK)
        st = parse_device(r, "device", h->device, &r->device, &r->caps);
    if (st == BITNET_OK)
        st = parse_device(r, "against", h->against, &r->against, &r->ref_caps);
    if (st == BITNET_OK)
        st = bnet_registry_open(&r->reference, r->err);
    if (st == BITNET_OK)
        st = find_kernel(r);
    if (!r->device.isa)
        r->device.isa = r->runtime->isa;
    if (strcmp(h->device, "auto") == 0)
        snprintf(h->device, sizeof h->device, "%s", bnet_device_name(r->device.device));
    h->v.device = h->device;
    h->v.against = h->against;
    return st;
}

static bool nothing_failed(const bitnet_validation *v)
{
    for (size_t i = 0; i < v->n_accuracy; i++)
        if (v->accuracy[i].verdict == BITNET_VERDICT_FAIL)
            return false;
    return v->memory.verdict != BITNET_VERDICT_FAIL && v->model.verdict != BITNET_VERDICT_FAIL &&
           v->golden.verdict != BITNET_VERDICT_FAIL && v->bridge.verdict != BITNET_VERDICT_FAIL;
}

/* Parts that read the caller's files come first, so that a bad file is reported before long work.
 * The share is the part's usual share of the time, in thousandths. */
static const struct {
    unsigned part;
    uint64_t share;
    bitnet_status (*run)(validation_run *r);
} parts[] = {
    {BITNET_VALIDATE_GOLDEN, 20, bnet_validate_golden},
    {BITNET_VALIDATE_BRIDGE, 10, bnet_validate_bridge},
    {BITNET_VALIDATE_MODEL, 80, bnet_validate_model},
    {BITNET_VALIDATE_ACCURACY, 400, bnet_validate_accuracy},
    {BITNET_VALIDATE_MEMORY, 30, bnet_validate_memory},
    {BITNET_VALIDATE_PERFORMANCE, 460, bnet_validate_speed},
};

static bool wanted(const validation_run *r, size_t i)
{
    return !r->o.parts || (r->o.parts & parts[i].part);
}

static void plan_progress(validation_run *r)
{
    r->progress = (bnet_progress){.tell = r->o.on_progress, .user = r->o.progress_user};
    for (size_t i = 0; i < BNET_COUNT(parts); i++)
        r->progress.total += wanted(r, i) ? parts[i].share : 0;
}

/* Keeps the device open, because opening it again is then quick. A failure is ignored here: it
 * comes again, and is reported, when a case opens the device. */
static void hold(validation_run *r)
{
    bitnet_error unused = {0};
    validation_run quiet = *r;
    quiet.err = &unused;
    if (r->device.device != BNET_DEV_CPU &&
        bnet_validate_open_device(&quiet, r->reference, NULL, &r->held) != BITNET_OK)
        r->held = NULL;
}

static bitnet_status run_parts(validation_run *r)
{
    static const char unasked[] = "was not asked for";
    bitnet_validation *v = r->out;
    bitnet_status st = BITNET_OK;
    v->memory = (bitnet_memory_result){.verdict = BITNET_VERDICT_SKIP};
    v->model = (bitnet_model_result){.verdict = BITNET_VERDICT_SKIP, .layer = -1, .position = -1};
    v->golden = (bitnet_golden_result){.verdict = BITNET_VERDICT_SKIP};
    v->bridge = (bitnet_bridge_result){.verdict = BITNET_VERDICT_SKIP};
    char *notes[] = {v->memory.note, v->model.note, v->golden.note, v->bridge.note};
    for (size_t i = 0; i < BNET_COUNT(notes); i++)
        memcpy(notes[i], unasked, sizeof unasked);
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(parts); i++) {
        if (!wanted(r, i))
            continue;
        r->part_share = parts[i].share;
        st = bnet_validate_at(r, 0, 1);
        if (st == BITNET_OK)
            st = parts[i].run(r);
        r->part_begin += r->part_share;
        r->part_share = 0;
    }
    return st == BITNET_OK ? bnet_validate_at(r, 0, 1) : st;
}

bitnet_status bitnet_validate(bitnet_runtime *runtime, const bitnet_validate_options *options,
                              bitnet_validation **out, bitnet_error *err)
{
    if (!runtime || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "validate: runtime and out must not be NULL");
    validation_run r = {.runtime = runtime, .err = err};
    bitnet_validate_options_init(&r.o);
    bitnet_status st = bnet_options_copy(&r.o, sizeof r.o, options, "validate options", err);
    holder *h = bnet_calloc(1, sizeof *h);
    if (!h)
        return bnet_no_memory(err, "validation");
    r.out = &h->v;
    if (st == BITNET_OK)
        st = set_up(&r, h);
    plan_progress(&r);
    if (st == BITNET_OK)
        hold(&r);
    if (st == BITNET_OK)
        st = run_parts(&r);
    bnet_backend_close(r.held);
    bnet_registry_close(r.reference);
    if (st != BITNET_OK) {
        bitnet_validation_free(&h->v);
        return st;
    }
    h->v.success = nothing_failed(&h->v);
    *out = &h->v;
    return BITNET_OK;
}

void bitnet_validation_free(bitnet_validation *v)
{
    if (!v)
        return;
    bnet_free(v->accuracy);
    bnet_free(v->performance);
    bnet_free(v); /* the first member of its holder */
}
