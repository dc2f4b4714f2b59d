/* validate_bridge.c - the part of a validation that a plugin takes: equal results, and the release
 * gate of every comparison. */
#include "check/validate.h"

#include <stdio.h>

#define AGAIN_MS 1000.0 /* for so long a missed gate is measured again: other programs disturb */

typedef struct bridge_part {
    const char *name;
    bitnet_status (*compare)(validation_run *r, bitnet_comparison *out);
    size_t to; /* offset in bitnet_bridge_result */
} bridge_part;

static bitnet_status compare_matmul(validation_run *r, bitnet_comparison *out)
{
    size_t side = r->o.quick ? 64 : 256;
    return bitnet_bridge_compare_matmul(r->runtime, r->o.bridge, side, side, side, out, r->err);
}

static bitnet_status compare_one(validation_run *r, bitnet_comparison *out)
{
    return bitnet_bridge_compare_linear(r->runtime, r->o.bridge, 1, 1024, 1024,
                                        &r->out->bridge.one_kernel, out, r->err);
}

static bitnet_status compare_many(validation_run *r, bitnet_comparison *out)
{
    size_t side = r->o.quick ? 512 : 1024;
    return bitnet_bridge_compare_linear(r->runtime, r->o.bridge, r->o.quick ? 16 : 64, side, side,
                                        &r->out->bridge.many_kernel, out, r->err);
}

static bitnet_status compare_quantize(validation_run *r, bitnet_comparison *out)
{
    size_t n = r->o.quick ? 1 << 14 : 1 << 16;
    return bitnet_bridge_compare_quantize(r->runtime, r->o.bridge, BITNET_QTYPE_I2S, n, out,
                                          r->err);
}

static const bridge_part parts[] = {
    {"matmul_i2s", compare_matmul, offsetof(bitnet_bridge_result, matmul)},
    {"one_token", compare_one, offsetof(bitnet_bridge_result, one_token)},
    {"many_tokens", compare_many, offsetof(bitnet_bridge_result, many_tokens)},
    {"quantize", compare_quantize, offsetof(bitnet_bridge_result, quantize)},
};

/* The first part that fails is the reason; different results are a worse one than time. */
static void judge(bitnet_bridge_result *b, const bridge_part *p, const bitnet_comparison *c,
                  bool *differs)
{
    if (c->release_gate || *differs)
        return;
    if (!c->accuracy_match)
        snprintf(b->note, sizeof b->note, "%s: the other implementation differs by %g", p->name,
                 c->max_error);
    else if (b->verdict == BITNET_VERDICT_PASS)
        snprintf(b->note, sizeof b->note,
                 "%s: results match, but ours has %.0f %% of the other's speed, at least 95 %% are "
                 "asked for",
                 p->name, 100 * (1 + c->improvement));
    b->verdict = BITNET_VERDICT_FAIL;
    *differs = !c->accuracy_match;
}

static bitnet_status compare(validation_run *r, const bridge_part *p, bitnet_comparison *out)
{
    double end = bnet_now_ms() + AGAIN_MS;
    bitnet_status st;
    do
        st = p->compare(r, out);
    while (st == BITNET_OK && out->accuracy_match && !out->release_gate && bnet_now_ms() < end);
    return st;
}

bitnet_status bnet_validate_bridge(validation_run *r)
{
    bitnet_bridge_result *b = &r->out->bridge;
    bitnet_status st = BITNET_OK;
    bool differs = false;
    *b =
        (bitnet_bridge_result){.verdict = BITNET_VERDICT_PASS, .one_kernel = "", .many_kernel = ""};
    if (!r->o.bridge) {
        b->verdict = BITNET_VERDICT_SKIP;
        snprintf(b->note, sizeof b->note, "ffi bridge unavailable");
        return BITNET_OK;
    }
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(parts); i++) {
        bitnet_comparison c = {0};
        st = compare(r, &parts[i], &c);
        memcpy((char *)b + parts[i].to, &c, sizeof c);
        if (st == BITNET_OK)
            judge(b, &parts[i], &c, &differs);
        if (st == BITNET_OK)
            st = bnet_validate_at(r, i + 1, BNET_COUNT(parts));
    }
    return st;
}
