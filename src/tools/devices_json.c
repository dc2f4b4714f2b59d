/* devices_json.c - devices as JSON; the field names of docs/DEVICES.md. What is unknown is null,
 * never an invented figure. */
#include <jansson.h>

#include "device/cpu_features.h"
#include "tools/devices.h"

/* Each helper takes over `value` and remembers a failure in *ok, so that callers check once. */
static void put(json_t *object, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(object, key, value) != 0)
        *ok = false;
}

static void append(json_t *array, json_t *value, bool *ok)
{
    if (json_array_append_new(array, value) != 0)
        *ok = false;
}

static json_t *text_or_null(const char *s)
{
    return s[0] ? json_string(s) : json_null();
}

static json_t *count_or_null(uint64_t n)
{
    return n ? json_integer((json_int_t)n) : json_null();
}

/* The name programs know a failure by; people read the message. */
static json_t *error_name(bitnet_status st)
{
    return st == BITNET_OK
               ? json_null()
               : json_string(st == BITNET_NOT_COMPILED ? "NotCompiled" : "NotAvailableRuntime");
}

/* Whether this build computes on the device, why not, and how much at once. */
static void put_use(json_t *o, const bnet_devices *d, bnet_device_kind k, int i, bool *ok)
{
    bitnet_error err = {0};
    bitnet_status st = bnet_device_check(d, k, i, &err);
    bnet_memory_plan p = bnet_memory_policy(&d->kind[k].gpus[i]);
    bool usable = st == BITNET_OK;
    put(o, "usable", json_boolean(usable), ok);
    put(o, "error", error_name(st), ok);
    put(o, "why", text_or_null(usable ? "" : err.message), ok);
    put(o, "max_batch", count_or_null(usable ? (uint64_t)p.max_batch : 0), ok);
    put(o, "max_pass_tokens", count_or_null(usable ? (uint64_t)p.pass_tokens : 0), ok);
}

static json_t *gpu_json(const bnet_devices *d, bnet_device_kind k, int i, bool *ok)
{
    const bnet_gpu *g = &d->kind[k].gpus[i];
    json_t *o = json_object();
    put(o, "device_id", json_integer(g->device_id), ok);
    put(o, "name", json_string(g->name), ok);
    put(o, "compute_capability",
        g->cc_major ? json_pack("[ii]", g->cc_major, g->cc_minor) : json_null(), ok);
    put(o, "total_memory", count_or_null(g->total_memory), ok);
    put(o, "multiprocessor_count", count_or_null((uint64_t)g->multiprocessors), ok);
    put(o, "max_threads_per_block", count_or_null((uint64_t)g->max_threads_per_block), ok);
    put(o, "max_shared_memory_per_block", count_or_null(g->max_shared_memory_per_block), ok);
    put(o, "max_shared_memory_optin", count_or_null(g->max_shared_memory_optin), ok);
    put(o, "supports_fp16", json_boolean(g->fp16), ok);
    put(o, "supports_bf16", json_boolean(g->bf16), ok);
    put(o, "software", json_boolean(g->software), ok);
    put_use(o, d, k, i, ok);
    return o;
}

static json_t *capability(int ten_times)
{
    return ten_times ? json_pack("[ii]", ten_times / 10, ten_times % 10) : json_null();
}

/* What a build asks of a device and its driver; null where it has no such backend. */
static json_t *minima_json(bnet_device_kind k, const bnet_device_status *s, bool *ok)
{
    const bnet_cuda_build *b = &bnet_cuda_this_build;
    if (k != BNET_DEV_CUDA || !s->compiled)
        return json_null();
    json_t *o = json_object();
    put(o, "compute_capability", capability(bnet_cuda_least(b->archs)), ok);
    put(o, "toolkit_version", text_or_null(b->toolkit), ok);
    put(o, "toolkit_compute_capability", capability(bnet_cuda_least(b->known)), ok);
    put(o, "driver_api", b->driver ? json_sprintf("%d.0", b->driver) : json_null(), ok);
    return o;
}

/* Row i: whose memory device i can read itself. */
static json_t *peers_json(const bnet_device_status *s, bool *ok)
{
    if (!s->peers_known)
        return json_null();
    json_t *rows = json_array();
    for (int i = 0; i < s->n_gpus; i++) {
        json_t *row = json_array();
        for (int k = 0; k < s->n_gpus; k++)
            append(row, json_boolean(s->peers[i] >> k & 1), ok);
        append(rows, row, ok);
    }
    return rows;
}

/* The facts of a kind that info has too. */
static json_t *facts_json(const bnet_devices *d, bnet_device_kind k, bool *ok)
{
    const bnet_device_status *s = &d->kind[k];
    json_t *o = json_object();
    put(o, "device", json_string(bnet_device_name(k)), ok);
    put(o, "supported", json_boolean(bnet_device_supported(k)), ok);
    put(o, "compiled", json_boolean(s->compiled), ok);
    put(o, "available", json_boolean(s->available), ok);
    put(o, "usable", json_boolean(bnet_devices_usable(d, k)), ok);
    return o;
}

static json_t *kind_json(const bnet_devices *d, bnet_device_kind k, bool *ok)
{
    const bnet_device_status *s = &d->kind[k];
    json_t *o = facts_json(d, k, ok), *gpus = json_array();
    put(o, "label", json_string(bnet_device_label(k)), ok);
    put(o, "architectures",
        text_or_null(k == BNET_DEV_CUDA && s->compiled ? bnet_cuda_archs() : ""), ok);
    put(o, "minimum", minima_json(k, s, ok), ok);
    put(o, "fake", json_boolean(s->fake), ok);
    put(o, "runnable", json_boolean(s->runnable), ok);
    put(o, "source", text_or_null(s->source), ok);
    put(o, "version", text_or_null(s->version), ok);
    put(o, "driver_version", text_or_null(s->driver), ok);
    put(o, "toolkit_version", text_or_null(s->toolkit), ok);
    put(o, "reason", text_or_null(s->reason), ok);
    put(o, "hint", text_or_null(s->hint), ok);
    for (int i = 0; i < s->n_gpus; i++)
        append(gpus, gpu_json(d, k, i, ok), ok);
    put(o, "gpus", gpus, ok);
    put(o, "peers", peers_json(s, ok), ok);
    return o;
}

static json_t *kinds_json(const bnet_devices *d, bool *ok)
{
    json_t *list = json_array();
    for (int k = 0; k < BNET_DEV_COUNT; k++)
        append(list, kind_json(d, (bnet_device_kind)k, ok), ok);
    return list;
}

static json_t *features_json(uint32_t features, bool *ok)
{
    json_t *list = json_array();
    uint32_t bit;
    const char *name;
    for (int i = 0; bnet_cpu_feature_at(i, &bit, &name); i++)
        if (features & bit)
            append(list, json_string(name), ok);
    return list;
}

static json_t *cpu_json(const bnet_cpu_info *c, bool *ok)
{
    json_t *o = json_object(), *cores = json_object(), *caches = json_object(),
           *memory = json_object();
    put(cores, "physical", json_integer(c->n_physical), ok);
    put(cores, "logical", json_integer(c->n_logical), ok);
    put(cores, "usable", json_integer(c->n_usable), ok);
    put(caches, "l1d", count_or_null(c->l1d_bytes), ok);
    put(caches, "l2", count_or_null(c->l2_bytes), ok);
    put(caches, "l3", count_or_null(c->l3_bytes), ok);
    put(memory, "system_total", count_or_null(c->memory_total), ok);
    put(memory, "system_available", count_or_null(c->memory_available), ok);
    put(memory, "limit", count_or_null(c->memory_limit), ok);
    put(memory, "process", count_or_null(c->process_rss), ok);
    put(memory, "process_peak", count_or_null(c->process_peak_rss), ok);
    put(o, "name", json_string(c->brand), ok);
    put(o, "features", features_json(c->features, ok), ok);
    put(o, "sve_bits", json_integer(c->sve_bytes * 8), ok);
    put(o, "cores", cores, ok);
    put(o, "numa_nodes", json_integer(c->n_numa_nodes), ok);
    put(o, "cache_bytes", caches, ok);
    put(o, "memory_bytes", memory, ok);
    return o;
}

/* The record of DET-2, the two booleans of DET-9, both of `kind`, and the facts of every kind. */
static json_t *gpu_summary_json(const bnet_devices *d, bool *ok)
{
    json_t *o = json_object();
    json_t *kinds = json_array();
    bnet_str summary = {0};
    bnet_device_kind of = bnet_gpu_kind(d);
    bnet_devices_summary(d, &summary);
    for (int k = 0; k < BNET_DEV_CPU; k++)
        append(kinds, facts_json(d, (bnet_device_kind)k, ok), ok);
    put(o, "kind", of == BNET_DEV_CPU ? json_null() : json_string(bnet_device_name(of)), ok);
    put(o, "compiled", json_boolean(bnet_gpu_compiled(d)), ok);
    put(o, "available", json_boolean(bnet_gpu_available_runtime(d)), ok);
    put(o, "present", json_boolean(bnet_gpu_present(d)), ok);
    put(o, "kinds", kinds, ok);
    put(o, "cuda", json_boolean(d->kind[BNET_DEV_CUDA].available), ok);
    put(o, "metal", json_boolean(d->kind[BNET_DEV_METAL].available), ok);
    put(o, "rocm", json_boolean(d->kind[BNET_DEV_HIP].available), ok);
    put(o, "oneapi", json_boolean(d->kind[BNET_DEV_ONEAPI].available), ok);
    put(o, "opencl", json_boolean(d->kind[BNET_DEV_OPENCL].available), ok);
    put(o, "vulkan", json_boolean(d->kind[BNET_DEV_VULKAN].available), ok);
    put(o, "npu", json_boolean(d->kind[BNET_DEV_NPU].available), ok);
    put(o, "wgpu", json_boolean(d->wgpu), ok);
    put(o, "cuda_version", text_or_null(d->kind[BNET_DEV_CUDA].version), ok);
    put(o, "cuda_toolkit_version", text_or_null(d->kind[BNET_DEV_CUDA].toolkit), ok);
    put(o, "summary", summary.failed ? NULL : json_string(summary.data), ok);
    bnet_str_free(&summary);
    return o;
}

static int append_bytes(const char *bytes, size_t n, void *user)
{
    bnet_str *s = user;
    bnet_str_add(s, bytes, n);
    return s->failed ? -1 : 0;
}

bool bnet_devices_render_json(const bitnet_devices *d, bitnet_devices_view view, bnet_str *out)
{
    const bnet_devices *f = &d->found;
    json_t *o = json_object();
    bool ok = true;
    if (view == BITNET_DEVICES_PREFLIGHT) {
        put(o, "ok", json_boolean(d->verdict.status == BITNET_OK), &ok);
        put(o, "error", error_name(d->verdict.status), &ok);
        put(o, "why", text_or_null(d->verdict.message), &ok);
    }
    if (view != BITNET_DEVICES_LIST)
        put(o, "gpu", gpu_summary_json(f, &ok), &ok);
    if (view != BITNET_DEVICES_PREFLIGHT)
        put(o, "cpu", cpu_json(&f->cpu, &ok), &ok);
    if (view != BITNET_DEVICES_INFO)
        put(o, "devices", kinds_json(f, &ok), &ok);
    put(o, "fake_ignored", json_boolean(f->fake_ignored), &ok);
    ok = ok && json_dump_callback(o, append_bytes, out, JSON_INDENT(2)) == 0;
    bnet_str_putc(out, '\n');
    json_decref(o);
    return ok && !out->failed;
}
