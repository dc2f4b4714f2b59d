/* kernels.c - the registry of a runtime as programs see it: adding a kernel, asking for one, the
 * list as JSON, providers. */
#include "bitnet_tools.h"
#include "engine/engine.h"
#include "device/cpu_features.h"
#include "device/cuda_needs.h"
#include "ops/json_text.h"

#include <stdio.h>
#include <strings.h>

const void *bitnet_cuda_image(size_t i)
{
#ifdef BITNET_HAVE_CUDA
    size_t n_bytes;
    return bnet_cuda_image(i, &n_bytes);
#else
    (void)i;
    return NULL;
#endif
}

/* ---- registration ---- */

enum { ID_MAX = 128, ULPS_MAX = 1024 };

void bitnet_kernel_init(bitnet_kernel *k)
{
    if (!k)
        return;
    *k = (bitnet_kernel){.struct_size = sizeof *k,
                         .abi = BITNET_KERNEL_ABI,
                         .isa = "scalar",
                         .tier = BITNET_TIER_OPTIMIZED,
                         .alignment = 1,
                         .agreement = "exact"};
}

/* Ids end up in logs, results and receipts, where "mock" means that nothing was computed. */
static bitnet_status check_id(const char *id, bitnet_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-";
    char quoted[96];
    size_t n = strlen(id);
    bnet_quote(id, n, quoted, sizeof quoted);
    if (n > ID_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "kernel '%s': the id has %zu characters, at most %d",
                         quoted, n, ID_MAX);
    if (id[strspn(id, allowed)])
        return bnet_fail(err, BITNET_ARGUMENT,
                         "kernel '%s': an id has letters, digits and _ . : - only", quoted);
    for (size_t i = 0; i < n; i++)
        if (strncasecmp(id + i, "mock", 4) == 0)
            return bnet_fail(err, BITNET_ARGUMENT, "kernel '%s': an id must not contain 'mock'",
                             quoted);
    return BITNET_OK;
}

/* "exact" or "close(N ulp)", 1 <= N <= ULPS_MAX */
static bool agreement_is_known(const char *s)
{
    unsigned n = 0;
    if (strcmp(s, "exact") == 0)
        return true;
    if (strncmp(s, "close(", 6) != 0 || s[6] == '0')
        return false;
    for (s += 6; *s >= '0' && *s <= '9' && n <= ULPS_MAX; s++)
        n = 10 * n + (unsigned)(*s - '0');
    return n >= 1 && n <= ULPS_MAX && strcmp(s, " ulp)") == 0;
}

static bool any_size(const bitnet_dim_rule *r)
{
    return r->min <= 1 && r->max == 0 && r->multiple <= 1;
}

/* What a kernel of a program must keep beyond what the registry asks of every record; texts that
 * are missing are the registry's to refuse. */
static bitnet_status check_outside(const bitnet_kernel *k, bnet_kernel_record *rec,
                                   bitnet_error *err)
{
    char a[64], b[64], c[64];
    bitnet_status st = k->id ? check_id(k->id, err) : BITNET_OK;
    if (st != BITNET_OK || !k->id || !k->op || !k->format || !k->dtype || !k->agreement)
        return st;
    st = bnet_kernel_adopt(rec, err);
    if (st == BITNET_NOT_AVAILABLE)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "kernel %s: no kernel type for %s has op '%s', format '%s', dtype '%s'; "
                         "bitnet_kernel.h lists them",
                         k->id, bnet_device_name(rec->device),
                         bnet_quote(k->op, strlen(k->op), a, sizeof a),
                         bnet_quote(k->format, strlen(k->format), b, sizeof b),
                         bnet_quote(k->dtype, strlen(k->dtype), c, sizeof c));
    if (st != BITNET_OK)
        return bnet_wrap(err, st, "kernel %s", k->id);
    if (!agreement_is_known(k->agreement))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "kernel %s: agreement '%s' is neither exact nor close(N ulp) with N from "
                         "1 to %d",
                         k->id, bnet_quote(k->agreement, strlen(k->agreement), a, sizeof a),
                         ULPS_MAX);
    if (rec->op != BNET_OP_LINEAR && !(any_size(&k->m) && any_size(&k->n) && any_size(&k->k)))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "kernel %s: rules on M, N and K are for op linear alone, not for %s",
                         k->id, k->op);
    return BITNET_OK;
}

bitnet_status bitnet_kernel_register(bitnet_runtime *r, const bitnet_kernel *kernel,
                                     bitnet_error *err)
{
    if (!r || !kernel)
        return bnet_fail(err, BITNET_ARGUMENT, "kernel: runtime and kernel must not be NULL");
    bitnet_kernel k;
    char quoted[64];
    bitnet_kernel_init(&k);
    bitnet_status st = bnet_options_copy(&k, sizeof k, kernel, "kernel", err);
    if (st != BITNET_OK)
        return st;
    bnet_device_kind device = bnet_registry_kind(k.device ? k.device : "cpu");
    if (device == BNET_DEV_COUNT)
        return bnet_fail(err, BITNET_ARGUMENT, "kernel: device '%s' is unknown; cpu, cuda or host",
                         bnet_quote(k.device, strlen(k.device), quoted, sizeof quoted));
    bnet_kernel_record rec = {.id = k.id,
                              .device = device,
                              .op = bnet_op_find(k.op),
                              .format = bnet_format_find(k.format),
                              .dtype = bnet_dtype_find(k.dtype),
                              .isa = k.isa ? k.isa : "scalar",
                              .tier = k.tier,
                              .temp_bytes = k.temp_bytes,
                              .alignment = k.alignment,
                              .m = k.m,
                              .n = k.n,
                              .k = k.k,
                              .abi = k.abi,
                              .agreement = k.agreement,
                              .fn = k.fn,
                              .outside = true};
    st = check_outside(&k, &rec, err);
    return st == BITNET_OK ? bnet_registry_add(r->registry, &rec, err) : st;
}

/* ---- questions ---- */

/* A chip that this build has no code for can run none of its kernels. */
static bnet_capabilities on_gpu(const bitnet_runtime *r, bnet_device_kind kind, int index)
{
    bnet_capabilities c = bnet_runtime_gpu(r, kind, index);
    const bnet_device_status *s = &r->devices->kind[kind];
    const bnet_gpu *g = &s->gpus[index];
    c.has |= BNET_NEED_PROGRAM; /* of engines that are opened now */
    if (kind == BNET_DEV_CUDA && index < s->n_gpus &&
        !bnet_cuda_serves(bnet_cuda_archs(), g->cc_major, g->cc_minor))
        c.has &= ~BNET_CUDA_NEED(BUILT);
    return c;
}

/* The device that is asked about: its number among those of its kind, and what its kernels may use.
 * Fails as bnet_request_parse and bnet_select. */
static bitnet_status device_of(const bitnet_runtime *r, const char *name, int *index,
                               bnet_capabilities *out, bitnet_error *err)
{
    bnet_selection chosen = r->selection;
    bnet_request request;
    bitnet_status st = BITNET_OK;
    if (name) {
        st = bnet_request_parse(name, "device", &request, err);
        if (st == BITNET_OK)
            st = bnet_select(r->devices, &request, &chosen, err);
    }
    if (st != BITNET_OK)
        return st;
    *index = BNET_MAX(chosen.ranks.n > 1 ? chosen.ranks.index[0] : chosen.index, 0);
    *out = chosen.kind == BNET_DEV_CPU ? r->caps : on_gpu(r, chosen.kind, *index);
    return BITNET_OK;
}

bool bitnet_runtime_has_kernel(const bitnet_runtime *r, const char *device, const char *op,
                               const char *format, const char *dtype)
{
    const bitnet_kernel_query q = {.op = op, .format = format, .dtype = dtype, .device = device};
    const char *id;
    return op && format && dtype && bitnet_runtime_select(r, &q, &id, NULL) == BITNET_OK;
}

bitnet_status bitnet_runtime_select(const bitnet_runtime *r, const bitnet_kernel_query *query,
                                    const char **id, bitnet_error *err)
{
    if (!r || !query || !query->op || !query->format || !query->dtype || !id)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "select: runtime, op, format, dtype and id must not be NULL");
    bnet_capabilities caps;
    bnet_kernel_query q;
    const bnet_kernel_record *k;
    int index;
    bitnet_status st = device_of(r, query->device, &index, &caps, err);
    if (st == BITNET_OK)
        st = bnet_query_read(query, caps.device, &q, err);
    const bnet_serving s = {r->registry, &caps, query->no_pack, query->head};
    if (st == BITNET_OK)
        st = bnet_kernel_serving(&s, &q, &k, err);
    if (st == BITNET_OK)
        *id = k->id;
    return st;
}

/* ---- the list ---- */

bool bitnet_kernel_at(int i, bitnet_kernel_info *out)
{
    return i >= 0 && out && bnet_backend_kernel_at(i, out);
}

static void put_rule(bnet_str *s, const char *name, const bitnet_dim_rule *r, const char *after)
{
    bnet_str_addf(s, "\"%s\": {\"min\": %llu, \"max\": %llu, \"multiple\": %llu}%s", name,
                  (unsigned long long)r->min, (unsigned long long)r->max,
                  (unsigned long long)BNET_MAX(r->multiple, 1), after);
}

static void put_needs(bnet_str *s, const bnet_kernel_record *k)
{
    const char *name, *between = "";
    bnet_str_puts(s, "\"requires\": {\"needs\": [");
    for (int bit = 0; k->need_name && bit < 64; bit++)
        if (k->needs >> bit & 1 && (name = k->need_name(bit)) != NULL) {
            bnet_str_addf(s, "%s\"%s\"", between, name);
            between = ", ";
        }
    bnet_str_puts(s, "], \"build\": ");
    if (k->build)
        bnet_json_text(s, k->build);
    else
        bnet_str_puts(s, "null");
    bnet_str_puts(s, "}, ");
}

/* What is asked for: the list for a query (NULL: all), on a device. */
typedef struct listing {
    const bitnet_runtime *r;
    const bitnet_kernel_query *query;
    bnet_capabilities caps;
    int index;
} listing;

/* Can the record run on this machine: on the device asked about, or the first of another kind? */
static bool available(const listing *l, const bnet_kernel_record *k)
{
    const bnet_device_status *s = &l->r->devices->kind[k->device];
    const bnet_kernel_query own = bnet_query_for(k);
    bnet_capabilities c = l->caps;
    char reason[160];
    if (k->device == BNET_DEV_CPU)
        c = l->r->caps;
    else if (k->device != c.device) {
        if (!s->compiled || !s->runnable || s->fake)
            return false;
        c = on_gpu(l->r, k->device, 0);
    }
    return !*bnet_kernel_veto(k, &c, &own, reason, sizeof reason);
}

static void put_record(bnet_str *s, const listing *l, const bnet_kernel_record *k)
{
    bnet_str_puts(s, "{");
    bnet_json_member(s, "id", k->id, ", ");
    bnet_json_member(s, "device", bnet_device_name(k->device), ", ");
    bnet_json_member(s, "op", bnet_op_name(k->op), ", ");
    bnet_json_member(s, "format", bnet_format_name(k->format), ", ");
    bnet_json_member(s, "dtype", bnet_dtype_name(k->dtype), ", ");
    bnet_json_member(s, "isa", k->isa, ", ");
    bnet_json_member(s, "tier", bnet_tier_name(k->tier), ", ");
    bnet_str_addf(s, "\"temp_bytes\": %llu, \"alignment\": %u, \"constraints\": {",
                  (unsigned long long)k->temp_bytes, k->alignment);
    put_rule(s, "m", &k->m, ", ");
    put_rule(s, "n", &k->n, ", ");
    put_rule(s, "k", &k->k, "}, ");
    put_needs(s, k);
    bnet_json_member(s, "agreement", k->agreement, ", ");
    bnet_str_addf(s, "\"abi\": %u, \"available\": %s", k->abi, available(l, k) ? "true" : "false");
}

/* A record as an answer to the query, with the record's own format and dtype where the query leaves
 * them open. */
typedef struct judgement {
    bool concerned;      /* it is of the query's op, and of its format and dtype or those kept */
    bnet_kernel_query q; /* what a model would ask the registry */
    const bnet_kernel_record *chosen;
} judgement;

static judgement judge(const listing *l, const bnet_kernel_record *k)
{
    const bitnet_kernel_query *query = l->query;
    const bnet_serving s = {l->r->registry, &l->caps, query->no_pack, query->head};
    judgement j = {.q = bnet_query_for(k)};
    if ((query->op && bnet_op_find(query->op) != k->op) ||
        (query->dtype && bnet_dtype_find(query->dtype) != k->dtype))
        return j;
    j.q.format = query->format ? bnet_format_find(query->format) : k->format;
    j.q.m = query->m;
    j.q.n = query->n;
    j.q.k = query->k;
    j.q.priority = query->priority;
    bool named = j.q.format == k->format;
    bnet_kernel_serving(&s, &j.q, &j.chosen, NULL);
    j.concerned = named || j.q.format == k->format;
    return j;
}

static void put_judgement(bnet_str *s, const listing *l, const bnet_kernel_record *k,
                          const judgement *j)
{
    char reason[160];
    if (k->device == l->caps.device && k->format != j->q.format)
        snprintf(reason, sizeof reason, "a model keeps such weights as %s here",
                 bnet_format_name(j->q.format));
    else
        bnet_kernel_veto(k, &l->caps, &j->q, reason, sizeof reason);
    bnet_str_puts(s, ", ");
    bnet_json_member(s, "veto", reason, ", ");
    bnet_str_addf(s, "\"selected\": %s", j->chosen == k ? "true" : "false");
}

/* The operation is one of several that the kernel does in a call. */
static bool does_too(const bnet_kernel_record *k, bnet_op op)
{
    bnet_op_set also = bnet_op_parts(k->op) | k->fused;
    if (k->op == BNET_OP_LINEAR_TILES)
        also |= BNET_OP_BIT(LINEAR);
    return k->op != op && (also >> op & 1) != 0;
}

/* Kernels that would be chosen for their own key and do the query's operation with others. */
static void put_within(bnet_str *s, const listing *l)
{
    const bnet_kernel_record *k, *chosen;
    const char *between = "";
    bnet_op op = bnet_op_find(l->query->op);
    bnet_str_puts(s, ", \"within\": [");
    for (size_t i = 0; op && (k = bnet_registry_at(l->r->registry, i)) != NULL; i++) {
        bnet_kernel_query own = bnet_query_for(k);
        if (k->device != l->caps.device || !does_too(k, op) ||
            bnet_registry_select(l->r->registry, &l->caps, &own, &chosen, NULL) != BITNET_OK ||
            chosen != k)
            continue;
        bnet_str_puts(s, between);
        bnet_json_text(s, k->id);
        between = ", ";
    }
    bnet_str_puts(s, "]");
}

static void put_rows(bnet_str *s, const listing *l)
{
    const bnet_kernel_record *k;
    const char *between = "\n  ";
    for (size_t i = 0; (k = bnet_registry_at(l->r->registry, i)) != NULL; i++) {
        judgement j = {.concerned = true};
        if (l->query)
            j = judge(l, k);
        if (!j.concerned)
            continue;
        bnet_str_puts(s, between);
        put_record(s, l, k);
        if (l->query)
            put_judgement(s, l, k, &j);
        bnet_str_puts(s, "}");
        between = ",\n  ";
    }
}

static void put_list(bnet_str *s, const listing *l)
{
    char device[48];
    snprintf(device, sizeof device, "%s", bnet_device_name(l->caps.device));
    if (l->caps.device != BNET_DEV_CPU)
        snprintf(device, sizeof device, "%s:%d", bnet_device_name(l->caps.device), l->index);
    bnet_str_puts(s, "{");
    bnet_json_member(s, "provider", bitnet_runtime_provider(l->r), ", ");
    bnet_json_member(s, "device", device, ", ");
    bnet_str_addf(s, "\"generation\": %u, \"choices\": %zu, \"kernels\": [",
                  bnet_registry_generation(l->r->registry), bnet_registry_choices(l->r->registry));
    put_rows(s, l);
    bnet_str_puts(s, "\n]");
    if (l->query)
        put_within(s, l);
    bnet_str_puts(s, "}");
}

bitnet_status bitnet_kernels_json(const bitnet_runtime *r, const bitnet_kernel_query *query,
                                  char *out, size_t cap, size_t *n_bytes, bitnet_error *err)
{
    if (!r || !n_bytes || (cap && !out))
        return bnet_fail(err, BITNET_ARGUMENT, "kernels: runtime, out and n_bytes must be given");
    bnet_str s = {0};
    listing l = {.r = r, .query = query};
    bitnet_status st = device_of(r, query ? query->device : NULL, &l.index, &l.caps, err);
    if (st != BITNET_OK)
        return st;
    put_list(&s, &l);
    if (s.failed)
        st = bnet_no_memory(err, "list of kernels");
    else {
        *n_bytes = s.n;
        if (cap)
            memcpy(out, s.data, BNET_MIN(cap, s.n));
        if (s.n > cap)
            st = bnet_fail(err, BITNET_ARGUMENT, "kernels: the list has %zu bytes, the buffer %zu",
                           s.n, cap);
    }
    bnet_str_free(&s);
    return st;
}

/* ---- providers ---- */

bool bitnet_provider_at(const bitnet_runtime *r, int i, bitnet_provider_info *out)
{
    if (!r || !out)
        return false;
    const bnet_provider *p = i < 0 ? NULL : bnet_provider_at((size_t)i), *a;
    if (!p)
        return false;
    *out = (bitnet_provider_info){p->rank, p->name, bnet_device_name(p->device), false};
    for (size_t k = 0; (a = bnet_manager_at(r->manager, k)) != NULL; k++)
        out->available = out->available || a == p;
    return true;
}
