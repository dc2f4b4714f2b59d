/* registry_veto.c - why a record cannot serve: device, key, build, needs, sizes. Each condition
 * alone is enough; the first that fails is the reason. */
#include "ops/registry_impl.h"

#include <stdio.h>

bnet_device_kind bnet_registry_kind(const char *name)
{
    for (int i = 0; i < BNET_DEV_COUNT; i++)
        if (strcmp(bnet_device_name((bnet_device_kind)i), name) == 0)
            return (bnet_device_kind)i;
    return BNET_DEV_COUNT;
}

static bool rule_allows(const bitnet_dim_rule *r, uint64_t size)
{
    if (size == 0)
        return true;
    return size >= r->min && (r->max == 0 || size <= r->max) &&
           (r->multiple <= 1 || size % r->multiple == 0);
}

static bool is_built(const bnet_kernel_record *k, const bnet_capabilities *c)
{
    if (!k->build)
        return true;
    bnet_device_kind kind = bnet_registry_kind(k->build);
    return kind != BNET_DEV_COUNT && (c->builds >> kind & 1) != 0;
}

registry_veto bnet_registry_veto(const bnet_kernel_record *k, const bnet_capabilities *c,
                                 const bnet_kernel_query *q)
{
    if (!is_built(k, c))
        return VETO_BUILD;
    if (k->needs & ~c->has)
        return VETO_NEEDS;
    if (!rule_allows(&k->m, q->m))
        return VETO_M;
    if (!rule_allows(&k->n, q->n))
        return VETO_N;
    return rule_allows(&k->k, q->k) ? VETO_NONE : VETO_K;
}

/* "M = 8 is below its minimum 32" */
static void say_rule(char dim, const bitnet_dim_rule *r, uint64_t size, char *buf, size_t cap)
{
    unsigned long long v = size;
    if (size < r->min)
        snprintf(buf, cap, "%c = %llu is below its minimum %llu", dim, v,
                 (unsigned long long)r->min);
    else if (r->max && size > r->max)
        snprintf(buf, cap, "%c = %llu is above its maximum %llu", dim, v,
                 (unsigned long long)r->max);
    else
        snprintf(buf, cap, "%c = %llu is not a multiple of %llu", dim, v,
                 (unsigned long long)r->multiple);
}

static void say_key(const bnet_kernel_record *k, const bnet_kernel_query *q, char *buf, size_t cap)
{
    if (k->op != q->op)
        snprintf(buf, cap, "it does %s, not %s", bnet_op_name(k->op), bnet_op_name(q->op));
    else if (k->format != q->format)
        snprintf(buf, cap, "it takes %s weights, not %s", bnet_format_name(k->format),
                 bnet_format_name(q->format));
    else
        snprintf(buf, cap, "it takes %s activations, not %s", bnet_dtype_name(k->dtype),
                 bnet_dtype_name(q->dtype));
}

/* "needs avx2, fma, which this CPU (or the isa option) lacks" */
static void say_needs(const bnet_kernel_record *k, const bnet_capabilities *c, char *buf,
                      size_t cap)
{
    bnet_str names = {0};
    uint64_t missing = k->needs & ~c->has;
    for (int bit = 0; bit < 64; bit++) {
        const char *name = missing >> bit & 1 && k->need_name ? k->need_name(bit) : NULL;
        if (name)
            bnet_str_addf(&names, "%s%s", names.n ? ", " : "", name);
    }
    const char *text = names.data ? names.data : "more";
    if (*c->level)
        snprintf(buf, cap, "needs %s, the device has %s", text, c->level);
    else
        snprintf(buf, cap, "needs %s, which this %s (or the isa option) lacks", text,
                 c->device == BNET_DEV_CPU ? "CPU" : "device");
    bnet_str_free(&names);
}

static void say(registry_veto v, const bnet_kernel_record *k, const bnet_capabilities *c,
                const bnet_kernel_query *q, char *buf, size_t cap)
{
    switch (v) {
    case VETO_NONE:
        snprintf(buf, cap, "%s", "");
        break;
    case VETO_DEVICE:
        snprintf(buf, cap, "it runs on %s, not on %s", bnet_device_name(k->device),
                 bnet_device_name(c->device));
        break;
    case VETO_KEY:
        say_key(k, q, buf, cap);
        break;
    case VETO_BUILD:
        snprintf(buf, cap, "this build has no %s backend", k->build);
        break;
    case VETO_NEEDS:
        say_needs(k, c, buf, cap);
        break;
    case VETO_M:
        say_rule('M', &k->m, q->m, buf, cap);
        break;
    case VETO_N:
        say_rule('N', &k->n, q->n, buf, cap);
        break;
    case VETO_K:
        say_rule('K', &k->k, q->k, buf, cap);
        break;
    }
}

const char *bnet_kernel_veto(const bnet_kernel_record *k, const bnet_capabilities *c,
                             const bnet_kernel_query *q, char *buf, size_t cap)
{
    registry_veto v = VETO_NONE;
    if (k->device != c->device)
        v = VETO_DEVICE;
    else if (!registry_same_key(k, q))
        v = VETO_KEY;
    else
        v = bnet_registry_veto(k, c, q);
    say(v, k, c, q, buf, cap);
    return buf;
}
