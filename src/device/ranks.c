/* ranks.c - several devices named together, and how a model is divided among them. */
#include "device/probe.h"

#include <stdio.h>
#include <strings.h>

static const char *const splits[] = {"none", "layer", "tensor"};

int bnet_ranks_devices(const bnet_selection_ranks *r)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        bool again = false;
        for (int k = 0; k < i; k++)
            again = again || r->index[k] == r->index[i];
        n += !again;
    }
    return n;
}

static bitnet_status fail_list(const char *given, const char *source, bitnet_error *err)
{
    char quoted[64], values[BNET_KIND_VALUES];
    return bnet_fail(
        err, BITNET_ARGUMENT,
        "%s: \"%s\" is not a list of devices; name up to %d of one kind, each with "
        "its number: cuda:0,cuda:1 (the same one twice: two virtual ranks), or use one "
        "of %s",
        source, bnet_quote(given, strlen(given), quoted, sizeof quoted), BNET_GPUS_MAX,
        bnet_kind_values(values));
}

bitnet_status bnet_ranks_parse(const char *given, const char *source, bnet_request *out,
                               bitnet_error *err)
{
    bnet_request r = {.kind = BNET_DEV_COUNT};
    size_t used = 0;
    for (const char *at = given; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char name[24];
        bnet_request one;
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)BNET_MIN(n, sizeof name), at);
        if (r.ranks.n == BNET_GPUS_MAX || bnet_request_parse(name, source, &one, NULL) != 0 ||
            one.index < 0 || (r.ranks.n > 0 && one.kind != r.kind))
            return fail_list(given, source, err);
        r.kind = one.kind;
        r.ranks.index[r.ranks.n++] = one.index;
        used = BNET_MIN(used, sizeof r.text - 1);
        used += (size_t)snprintf(r.text + used, sizeof r.text - used, "%s%s",
                                 r.ranks.n > 1 ? "," : "", one.text);
    }
    r.index = r.ranks.index[0];
    r.ranks.split = BNET_SPLIT_LAYER;
    *out = r;
    return BITNET_OK;
}

bitnet_status bnet_request_split(const char *text, const char *source, bnet_request *r,
                                 bitnet_error *err)
{
    char quoted[64];
    size_t s = 0;
    if (!text)
        return BITNET_OK;
    while (s < BNET_COUNT(splits) && strcasecmp(text, splits[s]) != 0)
        s++;
    if (s == BNET_COUNT(splits))
        return bnet_fail(err, BITNET_ARGUMENT, "%s: \"%s\" is none of none, layer, tensor", source,
                         bnet_quote(text, strlen(text), quoted, sizeof quoted));
    if (s == BNET_SPLIT_NONE && r->ranks.n > 1)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: none, but several devices are named (%s): name one, or use layer or "
                         "tensor",
                         source, r->text);
    if (s != BNET_SPLIT_NONE && (r->is_auto || r->any_gpu || r->kind == BNET_DEV_CPU))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: %s divides a model among devices, but the device is %s; use "
                         "--device cuda for all of a kind, or a list: --device cuda:0,cuda:1",
                         source, splits[s], r->text);
    if (s != BNET_SPLIT_NONE && r->index >= 0 && r->ranks.n < 2)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: %s divides a model among devices, but only %s is named; name several "
                         "(%s,%s makes two virtual ranks of it), or ask for no split",
                         source, splits[s], r->text, r->text, r->text);
    r->ranks.split = (bnet_split_kind)s;
    r->all = s != BNET_SPLIT_NONE && r->index < 0;
    return BITNET_OK;
}

void bnet_ranks_text(bnet_device_kind k, const bnet_selection_ranks *r, char *out, size_t cap)
{
    size_t n = 0;
    int n_devices = bnet_ranks_devices(r);
    for (int i = 0; i < r->n && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s:%d", i ? "," : "", bnet_device_name(k),
                              r->index[i]);
    if (n < cap)
        n += (size_t)snprintf(out + n, cap - n, " split=%s", splits[r->split]);
    if (n_devices == 1 && n < cap)
        snprintf(out + n, cap - n, " (%d virtual ranks on one device)", r->n);
    else if (n_devices < r->n && n < cap)
        snprintf(out + n, cap - n, " (%d virtual ranks on %d devices)", r->n, n_devices);
}

void bnet_topology_text(bnet_device_kind k, const bnet_device_status *s, bnet_str *out)
{
    if (!s->peers_known || s->n_gpus == 0)
        return;
    if (s->n_gpus == 1) {
        bnet_str_puts(out, "Topology: one device\n");
        return;
    }
    bnet_str_puts(out,
                  "Topology: how a device (row) reads the memory of another (column)\n        ");
    for (int i = 0; i < s->n_gpus; i++)
        bnet_str_addf(out, " %s:%-2d", bnet_device_name(k), i);
    for (int i = 0; i < s->n_gpus; i++) {
        bnet_str_addf(out, "\n %s:%-2d", bnet_device_name(k), i);
        for (int j = 0; j < s->n_gpus; j++)
            bnet_str_addf(out, " %-7s", i == j ? "-" : s->peers[i] >> j & 1 ? "direct" : "host");
    }
    bnet_str_putc(out, '\n');
}
