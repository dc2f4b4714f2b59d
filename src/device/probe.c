/* probe.c - one look at the machine: the CPU always really, the GPUs really or as BITNET_GPU_FAKE
 * pretends. */
#include "device/probe.h"

#include <stdio.h>
#include <strings.h>

enum { DEADLINE_MS = 2000, DEADLINE_MAX_MS = 60000 };

void bnet_probe_options_init(bnet_probe_options *o)
{
    *o = (bnet_probe_options){.tool_deadline_ms = DEADLINE_MS};
}

void bnet_world_real(bnet_world *w)
{
    *w = (bnet_world){.loader = &bnet_dl, .root = ""};
    bnet_compiled(w->compiled);
}

/* Kinds nobody can have here. */
static void absent(bnet_device_status *s, const char *reason)
{
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

typedef void (*probe_fn)(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s);

static void probe_slow(probe_fn probe, bnet_device_kind k, const bnet_world *w,
                       const bnet_probe_options *o, bnet_devices *out)
{
    if (!o->quick || w->compiled[k])
        probe(w, o, &out->kind[k]);
    else
        absent(&out->kind[k], "not asked when starting up, since this build could not use it: "
                              "bitnet devices asks");
}

static void probe_real(const bnet_world *w, const bnet_probe_options *o, bnet_devices *out)
{
    bnet_probe_cuda(w, o, &out->kind[BNET_DEV_CUDA]);
    bnet_probe_hip(w, o, &out->kind[BNET_DEV_HIP]);
    probe_slow(bnet_probe_oneapi, BNET_DEV_ONEAPI, w, o, out);
    probe_slow(bnet_probe_opencl, BNET_DEV_OPENCL, w, o, out);
    probe_slow(bnet_probe_vulkan, BNET_DEV_VULKAN, w, o, out);
    absent(&out->kind[BNET_DEV_METAL], "Metal exists on macOS only");
    absent(&out->kind[BNET_DEV_NPU], "no NPU interface is known to this version");
}

/* ---- fakes: listed as present and as fake, never computing ---- */

static bitnet_status unknown_fake(const char *item, size_t n, bitnet_error *err)
{
    char quoted[64];
    return bnet_fail(
        err, BITNET_ARGUMENT,
        "BITNET_GPU_FAKE: \"%s\" is not known; use a comma list of cuda (or gpu), rocm "
        "(or hip), oneapi, metal, opencl (or ocl), vulkan, npu, or none alone",
        bnet_quote(item, n, quoted, sizeof quoted));
}

static bool is(const char *name, const char *item, size_t n)
{
    return strlen(name) == n && strncasecmp(name, item, n) == 0;
}

/* A comma list of kinds in any case, `gpu` = cuda, "" or "none" alone = no GPU. Fails ARGUMENT
 * naming the known values. */
static bitnet_status parse_fake(const char *text, bool faked[BNET_DEV_COUNT], bitnet_error *err)
{
    bool found[BNET_DEV_COUNT] = {false}, none = false, any = false;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ","), skip = n + (p[n] == ',');
        const char *item = p + strspn(p, " \t");
        item = BNET_MIN(item, p + n);
        n -= (size_t)(item - p);
        p += skip;
        while (n && (item[n - 1] == ' ' || item[n - 1] == '\t'))
            n--;
        bnet_device_kind k = BNET_DEV_CUDA;
        if (n == 0)
            continue;
        if (is("none", item, n)) {
            none = true;
            continue;
        }
        if (!is("gpu", item, n) && (!bnet_kind_find(item, n, &k) || k >= BNET_DEV_CPU))
            return unknown_fake(item, n, err);
        found[k] = any = true;
    }
    if (none && any)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "BITNET_GPU_FAKE=%.200s: none stands alone, not beside a device", text);
    memcpy(faked, found, sizeof found);
    return BITNET_OK;
}

/* The record of a fake says so and nothing else: no memory, no capability to plan with. */
static void apply_fake(const bnet_probe_options *o, const bool faked[BNET_DEV_COUNT],
                       bnet_devices *out)
{
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        bnet_device_status *s = &out->kind[k];
        if (!faked[k]) {
            snprintf(s->reason, sizeof s->reason, "hidden by BITNET_GPU_FAKE=%.100s", o->fake);
            snprintf(s->hint, sizeof s->hint, "unset BITNET_GPU_FAKE to see the real devices");
            continue;
        }
        s->available = s->fake = true;
        snprintf(s->source, sizeof s->source, "fake");
        snprintf(s->hint, sizeof s->hint, "a fake computes nothing; unset BITNET_GPU_FAKE");
        s->n_gpus = 1;
        snprintf(s->gpus[0].name, sizeof s->gpus[0].name, "fake %s device",
                 bnet_device_name((bnet_device_kind)k));
    }
    bnet_logf(o->log, BITNET_LOG_WARN, "device", "BITNET_GPU_FAKE=%.100s: real GPUs are hidden%s",
              o->fake, bnet_gpu_present(out) ? ", fake ones are listed and never compute" : "");
}

/* *use: the fake decides what is there. */
static bitnet_status judge_fake(const bnet_probe_options *o, bool faked[BNET_DEV_COUNT], bool *use,
                                bnet_devices *out, bitnet_error *err)
{
    *use = false;
    if (!o->fake)
        return BITNET_OK;
    bitnet_status st = parse_fake(o->fake, faked, err);
    if (st != BITNET_OK)
        return st;
    bool any = false;
    for (int k = 0; k < BNET_DEV_COUNT; k++)
        any |= faked[k];
    if (any && o->no_fake)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "BITNET_GPU_FAKE=%.100s names fake devices, which "
                         "BITNET_STRICT_NO_FAKE_GPU forbids; unset one of the two",
                         o->fake);
    if (o->strict) {
        out->fake_ignored = true;
        bnet_logf(o->log, BITNET_LOG_WARN, "device",
                  "strict mode ignores BITNET_GPU_FAKE=%.100s; the real machine is probed",
                  o->fake);
        return BITNET_OK;
    }
    *use = true;
    return BITNET_OK;
}

static void host_status(const bnet_cpu_info *cpu, bnet_device_status *s)
{
    s->available = s->runnable = true;
    snprintf(s->source, sizeof s->source, "build");
    s->n_gpus = 1;
    s->gpus[0] = (bnet_gpu){.name = "plain memory",
                            .total_memory = cpu->memory_total,
                            .multiprocessors = cpu->n_usable,
                            .max_threads_per_block = 1024,
                            .software = true};
}

bitnet_status bnet_probe_world(const bnet_probe_options *options, const bnet_world *w,
                               bnet_devices *out, bitnet_error *err)
{
    bnet_probe_options o = *options;
    bool faked[BNET_DEV_COUNT] = {false}, use_fake;
    if (o.tool_deadline_ms <= 0)
        o.tool_deadline_ms = DEADLINE_MS;
    o.tool_deadline_ms = BNET_MIN(o.tool_deadline_ms, DEADLINE_MAX_MS);
    memset(out, 0, sizeof *out);
    bitnet_status st = judge_fake(&o, faked, &use_fake, out, err);
    if (st != BITNET_OK)
        return st;
    bnet_probe_cpu(w, &out->cpu);
    if (use_fake)
        apply_fake(&o, faked, out);
    else
        probe_real(w, &o, out);
    for (int k = 0; k < BNET_DEV_COUNT; k++)
        out->kind[k].compiled = w->compiled[k];
    bnet_device_status *cpu = &out->kind[BNET_DEV_CPU];
    cpu->compiled = cpu->available = cpu->runnable = true;
    snprintf(cpu->source, sizeof cpu->source, "system");
    host_status(&out->cpu, &out->kind[BNET_DEV_HOST]);
#ifdef BITNET_HAVE_NULL
    out->kind[BNET_DEV_NULL].available = out->kind[BNET_DEV_NULL].runnable = true;
    snprintf(out->kind[BNET_DEV_NULL].source, sizeof cpu->source, "build");
#endif
    out->wgpu = bnet_gpu_present(out);
    return BITNET_OK;
}

bitnet_status bnet_probe(const bnet_probe_options *o, bnet_devices *out, bitnet_error *err)
{
    bnet_world w;
    bnet_world_real(&w);
    return bnet_probe_world(o, &w, out, err);
}

/* ---- what was found ---- */

/* A driver that computes on the CPU makes its kind present, but it is no GPU. */
static bool has_gpu(const bnet_device_status *s)
{
    for (int i = 0; s->available && i < s->n_gpus; i++)
        if (!s->gpus[i].software)
            return true;
    return false;
}

bnet_device_kind bnet_gpu_kind(const bnet_devices *d)
{
    enum { NOTHING, PRESENT, COMPILED, BOTH };
    int best = NOTHING;
    bnet_device_kind found = BNET_DEV_CPU;
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        int is = (d->kind[k].compiled ? COMPILED : 0) + (has_gpu(&d->kind[k]) ? PRESENT : 0);
        if (is > best)
            found = (bnet_device_kind)k;
        best = BNET_MAX(best, is);
    }
    return found;
}

bool bnet_gpu_compiled(const bnet_devices *d)
{
    bnet_device_kind k = bnet_gpu_kind(d);
    return k != BNET_DEV_CPU && d->kind[k].compiled;
}

bool bnet_gpu_available_runtime(const bnet_devices *d)
{
    bnet_device_kind k = bnet_gpu_kind(d);
    return k != BNET_DEV_CPU && has_gpu(&d->kind[k]);
}

bool bnet_gpu_present(const bnet_devices *d)
{
    for (int k = 0; k < BNET_DEV_CPU; k++)
        if (has_gpu(&d->kind[k]))
            return true;
    return false;
}

bool bnet_supports_device(const bnet_devices *d, bnet_device_kind k)
{
    return k == BNET_DEV_CPU || (d->kind[k].compiled && d->kind[k].available);
}

void bnet_devices_summary(const bnet_devices *d, bnet_str *out)
{
    bool any = false;
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        const bnet_device_status *s = &d->kind[k];
        if (!s->available)
            continue;
        bnet_str_addf(out, "%s%s %d device(s)", any ? ", " : "",
                      bnet_device_name((bnet_device_kind)k), s->n_gpus);
        if (s->fake)
            bnet_str_puts(out, " (fake)");
        else if (!has_gpu(s))
            bnet_str_puts(out, " (software, on the CPU)");
        else if (s->version[0])
            bnet_str_addf(out, " (%s %s)", k == BNET_DEV_CUDA ? "CUDA" : "version", s->version);
        any = true;
    }
    if (!any)
        bnet_str_puts(out, "no GPU backend available");
}
