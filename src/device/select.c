/* select.c - from a wish to a device. Only `auto` falls back; everything else is obeyed or refused
 * with one of two reasons: not compiled into this build, or not available on this machine. */
#include "device/probe.h"

#include <stdio.h>
#include <strings.h>

/* ---- request ---- */

static bool parse_index(const char *text, int *out)
{
    int v = 0;
    size_t n = strlen(text);
    if (n < 1 || n > 3)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (text[i] - '0');
    }
    *out = v;
    return true;
}

static void echo(bnet_request *r)
{
    const char *name = r->is_auto ? "auto" : r->any_gpu ? "gpu" : bnet_device_name(r->kind);
    if (r->index >= 0)
        snprintf(r->text, sizeof r->text, "%s:%d", name, r->index);
    else
        snprintf(r->text, sizeof r->text, "%s", name);
}

bitnet_status bnet_request_parse(const char *text, const char *source, bnet_request *out,
                                 bitnet_error *err)
{
    bnet_request r = {.kind = BNET_DEV_CPU, .index = -1};
    const char *given = text ? text : "auto";
    size_t n = strcspn(given, ":");
    bool ok = true;
    if (strchr(given, ','))
        return bnet_ranks_parse(given, source, out, err);
    if (strcasecmp(given, "auto") == 0)
        r.is_auto = true;
    else if (strcasecmp(given, "gpu") == 0)
        r.any_gpu = true;
    else
        ok = bnet_kind_find(given, n, &r.kind) &&
             (!given[n] || (r.kind != BNET_DEV_CPU && parse_index(given + n + 1, &r.index)));
    if (!ok) {
        char quoted[64], values[BNET_KIND_VALUES];
        return bnet_fail(
            err, BITNET_ARGUMENT,
            "%s: \"%s\" is not a device; use one of %s; one of several GPUs by its number: cuda:1",
            source, bnet_quote(given, strlen(given), quoted, sizeof quoted),
            bnet_kind_values(values));
    }
    echo(&r);
    *out = r;
    return BITNET_OK;
}

/* ---- selection ---- */

/* What is there. The host's memory is part of every build: it is told of where it was chosen. */
static void detected(const bnet_devices *d, bnet_device_kind chosen, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    for (int k = 0; k < BNET_DEV_COUNT; k++)
        if (d->kind[k].available && (k != BNET_DEV_HOST || chosen == BNET_DEV_HOST) && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? "," : "",
                                  bnet_device_name((bnet_device_kind)k));
}

static void select_ranks(const bnet_devices *d, const bnet_request *r, bnet_device_kind k,
                         int index, const bnet_selection_ranks *ranks, bnet_selection *out)
{
    char list[64], name[200];
    detected(d, k, list, sizeof list);
    if (ranks->n > 1)
        bnet_ranks_text(k, ranks, name, sizeof name);
    else if (r->index >= 0)
        snprintf(name, sizeof name, "%s:%d", bnet_device_name(k), index);
    else
        snprintf(name, sizeof name, "%s", bnet_device_name(k));
    *out = (bnet_selection){.kind = k, .index = index, .is_auto = r->is_auto, .ranks = *ranks};
    snprintf(out->summary, sizeof out->summary, "requested=%s detected=[%s] selected=%s", r->text,
             list, name);
}

static void select_kind(const bnet_devices *d, const bnet_request *r, bnet_device_kind k, int index,
                        bnet_selection *out)
{
    const bnet_selection_ranks one = {.n = 0};
    select_ranks(d, r, k, index, &one, out);
}

/* ---- can this build compute on it? ---- */

static bitnet_status fail_fake(const char *what, bitnet_error *err)
{
    return bnet_fail(err, BITNET_NOT_AVAILABLE,
                     "%s is a fake device (BITNET_GPU_FAKE), which never computes; unset "
                     "BITNET_GPU_FAKE, or use --device cpu or auto",
                     what);
}

static bitnet_status fail_not_compiled(const bnet_devices *d, bnet_device_kind k, bitnet_error *err)
{
    char list[64];
    const char *remedy = bnet_kind_info(k)->remedy;
    detected(d, BNET_DEV_CPU, list, sizeof list);
    if (!remedy)
        return bnet_fail(err, BITNET_NOT_COMPILED,
                         "%s: %s is not supported by this version of bitnet (detected: %s); use "
                         "--device cpu or auto",
                         bnet_device_name(k), bnet_device_label(k), list);
    return bnet_fail(err, BITNET_NOT_COMPILED,
                     "%s: this build has no %s backend (detected: %s); %s, or use --device cpu or "
                     "auto",
                     bnet_device_name(k), bnet_device_label(k), list, remedy);
}

static bitnet_status fail_index(bnet_device_kind k, const bnet_device_status *s, const char *asked,
                                bitnet_error *err)
{
    char list[256] = "";
    size_t n = 0;
    for (int i = 0; i < s->n_gpus && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s:%d (%s)", i ? ", " : "",
                              bnet_device_name(k), i, s->gpus[i].name);
    return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s was requested, but there %s: %s", asked,
                     s->n_gpus == 1 ? "is one device" : "are fewer devices", list);
}

/* `asked`: what the device is called in messages. */
static bitnet_status check(const bnet_devices *d, bnet_device_kind k, int index, const char *asked,
                           bitnet_error *err)
{
    const bnet_device_status *s = &d->kind[k];
    if (s->fake)
        return fail_fake(asked, err);
    if (!s->compiled)
        return fail_not_compiled(d, k, err);
    if (!s->runnable)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s: %s%s%s; %s", asked,
                         s->available ? s->source : "", s->available ? " lists a device, but " : "",
                         s->reason[0] ? s->reason : "no device", s->hint);
    if (s->n_gpus == 0 && index == 0) /* the CPU, and what forwards to it */
        return BITNET_OK;
    if (index >= s->n_gpus)
        return fail_index(k, s, asked, err);
    return k != BNET_DEV_CUDA
               ? BITNET_OK
               : bnet_cuda_check(&bnet_cuda_this_build, s->version, &s->gpus[index], err);
}

bitnet_status bnet_device_check(const bnet_devices *d, bnet_device_kind k, int index,
                                bitnet_error *err)
{
    char asked[32];
    snprintf(asked, sizeof asked, "%s:%d", bnet_device_name(k), index);
    return check(d, k, index, asked, err);
}

/* The first device of the kind that can be used: a GPU, or a driver on the CPU; -1: none. */
static int usable(const bnet_devices *d, bnet_device_kind k, bool software)
{
    for (int i = 0; i < d->kind[k].n_gpus; i++)
        if (d->kind[k].gpus[i].software == software &&
            bnet_device_check(d, k, i, NULL) == BITNET_OK)
            return i;
    return -1;
}

static bool first_gpu(const bnet_devices *d, bnet_device_kind *k, int *index)
{
    for (int i = 0; i < BNET_DEV_CPU; i++) {
        *index = usable(d, (bnet_device_kind)i, false);
        *k = (bnet_device_kind)i;
        if (*index >= 0)
            return true;
    }
    return false;
}

/* Is there a real GPU of a kind in this build that fails the check? Then as that did. */
static bitnet_status check_first(const bnet_devices *d, bitnet_error *err)
{
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        const bnet_device_status *s = &d->kind[k];
        for (int i = 0; s->compiled && s->runnable && !s->fake && i < s->n_gpus; i++)
            if (!s->gpus[i].software)
                return bnet_device_check(d, (bnet_device_kind)k, i, err);
    }
    return BITNET_OK;
}

/* ---- choosing ---- */

static bitnet_status fail_any_gpu(const bnet_devices *d, bitnet_error *err)
{
    char list[64], why[400] = "";
    size_t n = 0;
    bitnet_status st = check_first(d, err);
    if (st != BITNET_OK)
        return st;
    detected(d, BNET_DEV_CPU, list, sizeof list);
    for (int k = 0; k < BNET_DEV_CPU; k++)
        if (d->kind[k].fake)
            return fail_fake(bnet_device_name((bnet_device_kind)k), err);
    if (!bnet_gpu_compiled(d))
        return bnet_fail(err, BITNET_NOT_COMPILED,
                         "gpu: this build has no GPU backend (detected: %s); %s, or use --device "
                         "cpu or auto",
                         list, bnet_kind_info(BNET_DEV_CUDA)->remedy);
    for (int k = 0; k < BNET_DEV_CPU && n < sizeof why; k++) {
        const bnet_device_status *s = &d->kind[k];
        if (s->compiled)
            n += (size_t)snprintf(why + n, sizeof why - n, "%s%s: %s", n ? "; " : "",
                                  bnet_device_name((bnet_device_kind)k),
                                  s->reason[0] ? s->reason : "only software devices");
    }
    return bnet_fail(err, BITNET_NOT_AVAILABLE,
                     "no GPU this build can use (detected: %s): %s; run bitnet preflight for "
                     "remedies, or use --device cpu or auto",
                     list, why);
}

static bitnet_status select_named(const bnet_devices *d, const bnet_request *r, bnet_selection *out,
                                  bitnet_error *err)
{
    const bnet_device_status *s = &d->kind[r->kind];
    bnet_selection_ranks ranks = r->ranks;
    int gpu = usable(d, r->kind, false), any = gpu >= 0 ? gpu : usable(d, r->kind, true);
    int index = r->index >= 0 ? r->index : BNET_MAX(any, 0);
    bitnet_status st = check(d, r->kind, index, r->text, err);
    for (int i = 0; i < s->n_gpus && r->all; i++)
        ranks.index[ranks.n++] = i;
    for (int i = 0; i < ranks.n && st == BITNET_OK; i++)
        st = check(d, r->kind, ranks.index[i], r->text, err);
    if (st == BITNET_OK)
        select_ranks(d, r, r->kind, index, &ranks, out);
    return st;
}

/* auto, and no GPU to be had: the CPU, with the reason if there is a GPU all the same. */
static bitnet_status select_cpu(const bnet_devices *d, const bnet_request *r, bnet_selection *out,
                                bitnet_error *err)
{
    bitnet_error why = {0};
    bitnet_status st = check_first(d, &why);
    if (st != BITNET_OK && r->strict)
        return bnet_fail(err, st, "%s", why.message);
    select_kind(d, r, BNET_DEV_CPU, 0, out);
    for (int k = 0; k < BNET_DEV_CPU && st == BITNET_OK; k++)
        if (d->kind[k].hidden && d->kind[k].compiled)
            snprintf(why.message, sizeof why.message, "%s", d->kind[k].reason);
    snprintf(out->passed, sizeof out->passed, "%.399s", why.message);
    return BITNET_OK;
}

bitnet_status bnet_select(const bnet_devices *d, const bnet_request *r, bnet_selection *out,
                          bitnet_error *err)
{
    bnet_device_kind k;
    int index;
    if (!r->is_auto && !r->any_gpu)
        return select_named(d, r, out, err);
    if (first_gpu(d, &k, &index)) {
        select_kind(d, r, k, index, out);
        return BITNET_OK;
    }
    return r->any_gpu ? fail_any_gpu(d, err) : select_cpu(d, r, out, err);
}

void bnet_select_cpu(bnet_selection *s)
{
    char *at = strstr(s->summary, "selected=");
    s->kind = BNET_DEV_CPU;
    s->index = 0;
    s->ranks = (bnet_selection_ranks){.n = 0};
    if (at)
        snprintf(at, sizeof s->summary - (size_t)(at - s->summary), "selected=cpu");
}
