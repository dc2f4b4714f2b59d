/* validate.c - is what this machine computes right, how fast is it, does it give memory back? The
 * order of checks, and what they share. */
#include "engine/validate.h"

#include <stdio.h>

enum { NAME_MAX = 32 };

typedef struct holder { /* the texts of the result live with it */
    bitnet_validation v;
    char device[NAME_MAX], against[NAME_MAX];
} holder;

void bitnet_validate_options_init(bitnet_validate_options *o)
{
    *o = (bitnet_validate_options){.struct_size = sizeof *o, .against = "cpu:scalar"};
}

bitnet_status bnet_validate_poll(const validation_run *r)
{
    if (r->o.cancel && r->o.cancel(r->o.cancel_user))
        return bnet_fail(r->err, BITNET_CANCELLED, "validation was cancelled");
    return BITNET_OK;
}

/* "cpu", "cpu:neon", "auto"; what this build has no backend for is said so. The instruction set
 * behind the colon lives in `text`. */
static bitnet_status parse_device(const char *field, char text[NAME_MAX], const char **isa,
                                  bitnet_error *err)
{
    bnet_request q;
    char name[NAME_MAX];
    size_t n = strcspn(text, ":");
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    *isa = text[n] ? text + n + 1 : NULL;
    bitnet_status st = bnet_request_parse(name, field, &q, err);
    if (st != BITNET_OK)
        return st;
    if (!q.is_auto && (q.any_gpu || q.kind != BNET_DEV_CPU))
        return bnet_fail(err, BITNET_NOT_COMPILED,
                         "%s: this build has no backend for '%s'; use cpu or cpu:ISA", field, text);
    return BITNET_OK;
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

/* Both devices, what the first can run, and a registry nobody has added to. */
static bitnet_status set_up(validation_run *r, holder *h)
{
    bnet_capabilities caps;
    bitnet_status st = copy_name("device", r->o.device ? r->o.device : "auto", h->device, r->err);
    if (st == BITNET_OK)
        st = copy_name("against", r->o.against ? r->o.against : "cpu:scalar", h->against, r->err);
    if (st == BITNET_OK)
        st = parse_device("device", h->device, &r->isa, r->err);
    if (st == BITNET_OK)
        st = parse_device("against", h->against, &r->ref_isa, r->err);
    if (st != BITNET_OK)
        return st;
    if (!r->isa)
        r->isa = r->runtime->isa;
    st = bnet_cpu_capabilities(r->isa, &r->caps, r->err);
    if (st == BITNET_OK)
        st = bnet_cpu_capabilities(r->ref_isa, &caps, r->err);
    if (st == BITNET_OK)
        st = bnet_registry_open(&r->reference, r->err);
    if (strcmp(h->device, "auto") == 0)
        snprintf(h->device, sizeof h->device, "cpu");
    h->v.device = h->device;
    h->v.against = h->against;
    return st;
}

bitnet_status bnet_validate_bridge(validation_run *r)
{
    bitnet_bridge_result *b = &r->out->bridge;
    size_t side = r->o.quick ? 64 : 256;
    if (!r->o.bridge) {
        b->verdict = BITNET_VERDICT_SKIP;
        snprintf(b->note, sizeof b->note, "ffi bridge unavailable");
        return BITNET_OK;
    }
    bitnet_status st =
        bitnet_bridge_compare_matmul(r->runtime, r->o.bridge, side, side, side, &b->matmul, r->err);
    if (st == BITNET_OK)
        st = bitnet_bridge_compare_quantize(r->o.bridge, BITNET_QTYPE_I2S, side * side,
                                            &b->quantize, r->err);
    if (st == BITNET_OK && (!b->matmul.accuracy_match || !b->quantize.accuracy_match)) {
        b->verdict = BITNET_VERDICT_FAIL;
        snprintf(b->note, sizeof b->note, "%s: the other implementation differs by %g",
                 b->matmul.accuracy_match ? "quantize" : "matmul_i2s",
                 b->matmul.accuracy_match ? b->quantize.max_error : b->matmul.max_error);
    }
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

bitnet_status bitnet_validate(bitnet_runtime *runtime, const bitnet_validate_options *options,
                              bitnet_validation **out, bitnet_error *err)
{
    static bitnet_status (*const parts[])(validation_run *) = {
        bnet_validate_golden,   bnet_validate_bridge,
        bnet_validate_model, /* what was given, first */
        bnet_validate_accuracy, bnet_validate_memory,
        bnet_validate_speed};
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
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(parts); i++) {
        st = bnet_validate_poll(&r);
        if (st == BITNET_OK)
            st = parts[i](&r);
    }
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
