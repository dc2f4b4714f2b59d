/* devices.c - devices for tools: probed once, rendered once, then only read, from any thread. */
#include "tools/devices.h"

#include <stdio.h>

#include "device/cpu_features.h"

void bitnet_devices_options_init(bitnet_devices_options *o)
{
    if (!o)
        return;
    *o = (bitnet_devices_options){.struct_size = sizeof *o};
}

/* ---- text ---- */

static const char *yes(bool b)
{
    return b ? "yes" : "no";
}

static void put_size(bnet_str *out, const char *name, uint64_t bytes)
{
    if (!bytes)
        return;
    if (bytes >> 20)
        bnet_str_addf(out, " %s %g MiB", name, (double)bytes / (1 << 20));
    else
        bnet_str_addf(out, " %s %g KiB", name, (double)bytes / 1024);
}

static void cpu_text(const bnet_cpu_info *c, bnet_str *out)
{
    bnet_str_addf(out, "CPU: %s\n  features: ", c->brand);
    bnet_cpu_features_text(c->features, out);
    if (c->sve_bytes)
        bnet_str_addf(out, " (SVE vectors of %d bits)", c->sve_bytes * 8);
    bnet_str_addf(out, "\n  cores: %d physical, %d logical, %d usable; %d NUMA node(s)\n",
                  c->n_physical, c->n_logical, c->n_usable, c->n_numa_nodes);
    if (c->l1d_bytes || c->l2_bytes || c->l3_bytes) {
        bnet_str_puts(out, "  caches:");
        put_size(out, "L1d", c->l1d_bytes);
        put_size(out, "L2", c->l2_bytes);
        put_size(out, "L3", c->l3_bytes);
        bnet_str_putc(out, '\n');
    }
    bnet_str_addf(out, "  memory: %.1f GB, %.1f GB available", (double)c->memory_total / 1e9,
                  (double)c->memory_available / 1e9);
    if (c->memory_limit)
        bnet_str_addf(out, ", limited to %.1f GB", (double)c->memory_limit / 1e9);
    bnet_str_addf(out, "; this process %.1f MB, peak %.1f MB\n", (double)c->process_rss / 1e6,
                  (double)c->process_peak_rss / 1e6);
}

/* "yes", with the chips where there is code for some only. */
static void compiled_text(bnet_device_kind k, const bnet_device_status *s, bnet_str *out)
{
    const char *archs = k == BNET_DEV_CUDA && s->compiled ? bnet_cuda_archs() : "";
    bnet_str_addf(out, "compiled %s%s%s%s", yes(s->compiled), *archs ? " (" : "", archs,
                  *archs ? ")" : "");
}

/* Does this build compute on it, why not, and how much at once? */
static void usable_text(const bnet_devices *d, bnet_device_kind k, int i, bnet_str *out)
{
    bitnet_error err = {0};
    if (bnet_device_check(d, k, i, &err) != BITNET_OK) {
        bnet_str_addf(out, "  Usable: no: %s\n", err.message);
        return;
    }
    bnet_memory_plan p = bnet_memory_policy(&d->kind[k].gpus[i]);
    bnet_str_addf(out,
                  "  Usable: yes, recorded steps of up to %d timelines, passes of up to %d "
                  "tokens\n",
                  p.max_batch, p.pass_tokens);
}

bool bnet_devices_usable(const bnet_devices *d, int k)
{
    for (int i = 0; i < d->kind[k].n_gpus; i++)
        if (bnet_device_check(d, (bnet_device_kind)k, i, NULL) == BITNET_OK)
            return true;
    return k == BNET_DEV_CPU;
}

static void info_text(const bnet_devices *d, bnet_str *out)
{
    cpu_text(&d->cpu, out);
    bnet_device_kind of = bnet_gpu_kind(d);
    bnet_str_puts(out, "GPU: ");
    bnet_devices_summary(d, out);
    bnet_str_addf(out, "\n  %s%scompiled: %s, available: %s, WebGPU: %s\n",
                  of == BNET_DEV_CPU ? "" : bnet_device_name(of), of == BNET_DEV_CPU ? "" : " ",
                  yes(bnet_gpu_compiled(d)), yes(bnet_gpu_available_runtime(d)), yes(d->wgpu));
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        bnet_str_addf(out, "  %s: ", bnet_device_name((bnet_device_kind)k));
        compiled_text((bnet_device_kind)k, &d->kind[k], out);
        bnet_str_addf(out, ", available %s%s, usable %s%s\n", yes(d->kind[k].available),
                      d->kind[k].fake ? " (fake)" : "", yes(bnet_devices_usable(d, k)),
                      bnet_device_supported(k) ? "" : "; not supported by this version");
    }
}

static void list_text(const bnet_devices *d, bnet_str *out)
{
    for (int k = 0; k < BNET_DEV_COUNT; k++) {
        const bnet_device_status *s = &d->kind[k];
        bnet_device_kind kind = (bnet_device_kind)k;
        bnet_str_addf(out, "%s (%s): ", bnet_device_name(kind), bnet_device_label(kind));
        compiled_text(kind, s, out);
        bnet_str_addf(out, ", available %s%s", yes(s->available), s->fake ? " (fake)" : "");
        if (s->available && !s->fake && k != BNET_DEV_CPU)
            bnet_str_addf(out, " by %s", s->source);
        if (s->version[0])
            bnet_str_addf(out, ", API %s", s->version);
        if (s->driver[0])
            bnet_str_addf(out, ", driver %s", s->driver);
        if (s->toolkit[0])
            bnet_str_addf(out, ", toolkit %s", s->toolkit);
        if (s->reason[0])
            bnet_str_addf(out, ": %s", s->reason);
        bnet_str_puts(out,
                      bnet_device_supported(kind) ? "\n" : "; not supported by this version\n");
        for (int i = 0; i < s->n_gpus; i++) {
            bnet_gpu_text(&s->gpus[i], out);
            usable_text(d, kind, i, out);
        }
        bnet_topology_text(kind, s, out);
    }
    cpu_text(&d->cpu, out);
}

/* ---- open, ask, close ---- */

static bool render(bitnet_devices *d)
{
    info_text(&d->found, &d->text[BITNET_DEVICES_INFO]);
    list_text(&d->found, &d->text[BITNET_DEVICES_LIST]);
    bnet_preflight(&d->found, &d->text[BITNET_DEVICES_PREFLIGHT], &d->verdict);
    bool ok = true;
    for (int v = 0; v < BNET_DEVICES_VIEWS; v++)
        ok = ok && !d->text[v].failed &&
             bnet_devices_render_json(d, (bitnet_devices_view)v, &d->json[v]);
    return ok;
}

bitnet_status bitnet_devices_open(const bitnet_devices_options *options, bitnet_devices **out,
                                  bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "devices: out must not be NULL");
    bitnet_devices_options o;
    bitnet_devices_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "devices options", err);
    if (st == BITNET_OK)
        st = bnet_check_int("devices options", "tool_deadline_ms", o.tool_deadline_ms, 0, 60000,
                            err);
    if (st != BITNET_OK)
        return st;
    bitnet_devices *d = bnet_calloc(1, sizeof *d);
    if (!d)
        return bnet_no_memory(err, "devices");
    const bnet_log log = {o.log, o.log_user};
    const bnet_probe_options p = {
        .fake = o.gpu_fake,
        .strict = o.strict,
        .no_fake = o.no_fake_gpu,
        .visible = o.cuda_visible_devices,
        .cuda_home = o.cuda_home,
        .tool_path = o.tool_path,
        .tool_deadline_ms = o.tool_deadline_ms,
        .quick = o.quick,
        .log = &log,
    };
    st = bnet_probe(&p, &d->found, err);
    if (st == BITNET_OK && !render(d))
        st = bnet_no_memory(err, "devices");
    if (st != BITNET_OK) {
        bitnet_devices_close(d);
        return st;
    }
    *out = d;
    return BITNET_OK;
}

void bitnet_devices_close(bitnet_devices *d)
{
    if (!d)
        return;
    for (int v = 0; v < BNET_DEVICES_VIEWS; v++) {
        bnet_str_free(&d->text[v]);
        bnet_str_free(&d->json[v]);
    }
    bnet_free(d);
}

static bool is_view(bitnet_devices_view v)
{
    return (int)v >= 0 && (int)v < BNET_DEVICES_VIEWS;
}

const char *bitnet_devices_text(const bitnet_devices *d, bitnet_devices_view view)
{
    return d && is_view(view) ? d->text[view].data : NULL;
}

const char *bitnet_devices_json(const bitnet_devices *d, bitnet_devices_view view)
{
    return d && is_view(view) ? d->json[view].data : NULL;
}

bool bitnet_devices_preflight(const bitnet_devices *d)
{
    return d && d->verdict.status == BITNET_OK;
}

bool bitnet_devices_gpu_compiled(const bitnet_devices *d)
{
    return d && bnet_gpu_compiled(&d->found);
}

bool bitnet_devices_gpu_available(const bitnet_devices *d)
{
    return d && bnet_gpu_available_runtime(&d->found);
}

bool bitnet_devices_supports(const bitnet_devices *d, const char *device)
{
    if (!d || !device)
        return false;
    bnet_request r;
    if (bnet_request_parse(device, "device", &r, NULL) != BITNET_OK || r.is_auto || r.any_gpu)
        return false;
    return bnet_supports_device(&d->found, r.kind) &&
           (r.index < 0 || r.index < d->found.kind[r.kind].n_gpus);
}
