/* providers.c - what the runtime's devices can run: the capabilities of each, the provider that
 * serves ternary matrices. */
#include "device/cuda_needs.h"
#include "engine/engine.h"

bnet_capabilities bnet_runtime_gpu(const bitnet_runtime *r, bnet_device_kind kind, int index)
{
    const bnet_device_status *d = &r->devices->kind[kind];
    bnet_capabilities c = {.device = kind, .builds = 1u << kind};
    if (kind == BNET_DEV_CUDA && index < d->n_gpus)
        c.has = bnet_cuda_may_use(&d->gpus[index], c.level, sizeof c.level);
    return c;
}

bnet_capabilities bnet_runtime_caps(const bitnet_runtime *r)
{
    const bnet_selection *s = &r->selection;
    return s->kind == BNET_DEV_CPU ? r->caps : bnet_runtime_gpu(r, s->kind, BNET_MAX(s->index, 0));
}

size_t bnet_runtime_devices(void *user, bnet_capabilities *out, size_t cap)
{
    const bitnet_runtime *r = user;
    const bnet_device_status *d = &r->devices->kind[r->selection.kind];
    bool gpu = r->selection.kind != BNET_DEV_CPU && BNET_MAX(r->selection.index, 0) < d->n_gpus;
    const bnet_capabilities all[] = {r->caps, bnet_runtime_caps(r)};
    size_t n = BNET_MIN(cap, gpu ? 2u : 1u);
    memcpy(out, all, n * sizeof *out);
    return n;
}

const bnet_provider *bnet_runtime_cpu_provider(const bitnet_runtime *r)
{
    const bnet_provider *p;
    for (size_t i = 0; (p = bnet_manager_at(r->manager, i)) != NULL; i++)
        if (p->device == BNET_DEV_CPU && p->single)
            return p;
    return bnet_provider_find("fallback");
}

const char *bitnet_runtime_provider(const bitnet_runtime *r)
{
    if (!r)
        return NULL;
    const bnet_provider *p = bnet_manager_best(r->manager);
    return p ? p->name : "";
}
