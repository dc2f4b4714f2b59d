/* preflight.c - is this machine ready to compute on a GPU with this build, and if not, what to do
 * about it for each vendor. */
#include "device/probe.h"

void bnet_gpu_text(const bnet_gpu *g, bnet_str *out)
{
    bnet_str_addf(out, "Device %d: %s", g->device_id, g->name[0] ? g->name : "(no name)");
    if (g->cc_major)
        bnet_str_addf(out, " (CC %d.%d)", g->cc_major, g->cc_minor);
    bnet_str_puts(out, g->software ? " [software, on the CPU]\n" : "\n");
    if (g->total_memory)
        bnet_str_addf(out, "  Memory: %.1f GB\n", (double)g->total_memory / 1e9);
    if (g->multiprocessors)
        bnet_str_addf(out, "  Multiprocessors: %d\n", g->multiprocessors);
    if (g->max_threads_per_block)
        bnet_str_addf(out, "  Max threads per block: %d\n", g->max_threads_per_block);
    if (g->max_shared_memory_per_block)
        bnet_str_addf(out, "  Shared memory per block: %llu bytes\n",
                      (unsigned long long)g->max_shared_memory_per_block);
    bnet_str_addf(out, "  FP16: %s\n  BF16: %s\n", g->fp16 ? "yes" : "no", g->bf16 ? "yes" : "no");
}

static void found_line(bnet_device_kind k, const bnet_device_status *s, bnet_str *out)
{
    bnet_str_addf(out, "  found: %d device(s) by %s", s->n_gpus, s->source);
    if (s->version[0])
        bnet_str_addf(out, ", API %s", s->version);
    if (s->driver[0])
        bnet_str_addf(out, ", driver %s", s->driver);
    if (s->toolkit[0])
        bnet_str_addf(out, ", toolkit %s", s->toolkit);
    bnet_str_putc(out, '\n');
    for (int i = 0; k == BNET_DEV_CUDA && i < s->n_gpus; i++)
        if (s->gpus[i].cc_major)
            bnet_str_addf(out, "  device %d: %s, compute capability %d.%d\n", i, s->gpus[i].name,
                          s->gpus[i].cc_major, s->gpus[i].cc_minor);
}

/* What could be done about a kind: only if it would help this version of the program. */
static void remedy_lines(const bnet_devices *d, bnet_device_kind k, bnet_str *out)
{
    const bnet_device_status *s = &d->kind[k];
    bitnet_error err = {0};
    if (s->reason[0])
        bnet_str_addf(out, "  problem: %s\n", s->reason);
    if (!s->compiled && !s->fake)
        bnet_str_addf(out, "  remedy: %s\n", bnet_kind_info(k)->remedy);
    else if (s->hint[0])
        bnet_str_addf(out, "  remedy: %s\n", s->hint);
    for (int i = 0; s->compiled && s->runnable && i < s->n_gpus; i++)
        if (bnet_device_check(d, k, i, &err) != BITNET_OK)
            bnet_str_addf(out, "  problem: %s\n", err.message);
}

static void kind_lines(const bnet_devices *d, bnet_device_kind k, bnet_str *out)
{
    const bnet_device_status *s = &d->kind[k];
    bnet_str_addf(out, "%s (%s): compiled %s, available %s%s", bnet_device_name(k),
                  bnet_device_label(k), s->compiled ? "yes" : "no", s->available ? "yes" : "no",
                  s->fake ? " (fake)" : "");
    bnet_str_puts(out, bnet_device_supported(k) ? "\n" : "; not supported by this version\n");
    if (s->available && !s->fake)
        found_line(k, s, out);
    if (k == BNET_DEV_CUDA && s->compiled && *bnet_cuda_archs()) {
        bnet_str_puts(out, "  this build: ");
        bnet_cuda_minima(&bnet_cuda_this_build, out);
        bnet_str_putc(out, '\n');
    }
    if (bnet_device_supported(k))
        remedy_lines(d, k, out);
}

bitnet_status bnet_preflight(const bnet_devices *d, bnet_str *out, bitnet_error *err)
{
    bnet_request r;
    bnet_selection s;
    bitnet_status st = bnet_request_parse("gpu", "preflight", &r, err);
    if (st == BITNET_OK)
        st = bnet_select(d, &r, &s, err);
    if (st == BITNET_OK)
        bnet_str_addf(out, "GPU preflight: ok, %s computes on %s\n", bnet_device_name(s.kind),
                      d->kind[s.kind].gpus[s.index].name);
    else
        bnet_str_addf(out, "GPU preflight: no GPU to compute on; the CPU does the work\n  %s\n",
                      err->message);
    if (d->fake_ignored)
        bnet_str_puts(out, "BITNET_GPU_FAKE is set and ignored in strict mode\n");
    for (int k = 0; k < BNET_DEV_CPU; k++)
        kind_lines(d, (bnet_device_kind)k, out);
    return st;
}
