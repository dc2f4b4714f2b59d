/* provider.c - the ranked list of providers, and the manager that asks the machine once. */
#include "ops/provider.h"

#include "ops/single_op.h"
#include "ops/registry_impl.h"

#define OPS_NONE   NULL, NULL, NULL
#define OPS_SCALAR bnet_ref_matmul_scalar, bnet_ref_quantize, &bnet_single_scalar
#if defined(__aarch64__)
#define OPS_NEON bnet_ref_matmul_neon, bnet_quantize_neon, &bnet_single_neon
#else
#define OPS_NEON OPS_NONE
#endif
#if defined(__x86_64__)
#define OPS_AVX2   bnet_ref_matmul_avx2, bnet_quantize_avx2, &bnet_single_avx2
#define OPS_AVX512 bnet_ref_matmul_avx512, bnet_quantize_avx512, &bnet_single_avx512
#else
#define OPS_AVX2   OPS_NONE
#define OPS_AVX512 OPS_NONE
#endif

static const bnet_provider providers[] = {
#define PROVIDER(name, device, isa, rank, ops) {name, BNET_DEV_##device, isa, rank, OPS_##ops},
#include "ops/providers.inc"
#undef PROVIDER
};

enum { N_PROVIDERS = sizeof providers / sizeof providers[0], DEVICES_MAX = 32 };

const bnet_provider *bnet_provider_at(size_t i)
{
    return i < N_PROVIDERS ? &providers[i] : NULL;
}

const bnet_provider *bnet_provider_find(const char *name)
{
    for (size_t i = 0; i < N_PROVIDERS; i++)
        if (strcmp(providers[i].name, name) == 0)
            return &providers[i];
    return NULL;
}

static bool serves(const bnet_provider *p, const bnet_kernel_record *k, const bnet_capabilities *c,
                   bnet_op op, bnet_format format)
{
    const bnet_kernel_query any_size = bnet_query_for(k);
    return k->device == p->device && k->device == c->device &&
           (!p->isa || strcmp(p->isa, k->isa) == 0) && (!op || op == k->op) &&
           (!format || format == k->format) && bnet_registry_veto(k, c, &any_size) == VETO_NONE;
}

bool bnet_provider_available(const bnet_provider *p, const bnet_registry *r,
                             const bnet_capabilities *devices, size_t n_devices, bnet_op op,
                             bnet_format format)
{
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(r, i)) != NULL; i++)
        for (size_t d = 0; d < n_devices; d++)
            if (serves(p, k, &devices[d], op, format))
                return true;
    return false;
}

struct bnet_manager {
    const bnet_registry *registry;
    bnet_devices_fn devices;
    void *user;
    pthread_mutex_t lock;
    bool asked;          /* the rest is filled */
    uint32_t generation; /* of the registry: one that is registered may bring its provider */
    bnet_capabilities device[DEVICES_MAX];
    size_t n_devices;
    const bnet_provider *best, *available[N_PROVIDERS];
    size_t n_available;
};

bitnet_status bnet_manager_open(const bnet_registry *r, bnet_devices_fn devices, void *user,
                                bnet_manager **out, bitnet_error *err)
{
    bnet_manager *m = bnet_calloc(1, sizeof *m);
    if (!m)
        return bnet_no_memory(err, "provider manager");
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        bnet_free(m);
        return bnet_no_memory(err, "provider manager");
    }
    m->registry = r;
    m->devices = devices;
    m->user = user;
    *out = m;
    return BITNET_OK;
}

void bnet_manager_close(bnet_manager *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    bnet_free(m);
}

static bool multiplies(const bnet_provider *p, const bnet_registry *r, const bnet_capabilities *d,
                       size_t n, bnet_format format)
{
    return bnet_provider_available(p, r, d, n, BNET_OP_LINEAR, format);
}

static void ask(bnet_manager *m)
{
    const bnet_capabilities *d = m->device;
    if (!m->asked)
        m->n_devices = m->devices(m->user, m->device, DEVICES_MAX);
    size_t n = m->n_devices;
    m->generation = bnet_registry_generation(m->registry);
    m->best = NULL;
    m->n_available = 0;
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        const bnet_provider *p = &providers[i];
        if (!bnet_provider_available(p, m->registry, d, n, BNET_OP_NONE, BNET_FORMAT_NONE))
            continue;
        m->available[m->n_available++] = p;
        if (!m->best && (multiplies(p, m->registry, d, n, BNET_FORMAT_I2S_R16) ||
                         multiplies(p, m->registry, d, n, BNET_FORMAT_I2S)))
            m->best = p;
    }
    m->asked = true;
}

/* With the lock, which the caller gives back. */
static void ask_once(bnet_manager *m)
{
    pthread_mutex_lock(&m->lock);
    if (!m->asked || m->generation != bnet_registry_generation(m->registry))
        ask(m);
}

const bnet_provider *bnet_manager_best(bnet_manager *m)
{
    ask_once(m);
    const bnet_provider *best = m->best;
    pthread_mutex_unlock(&m->lock);
    return best;
}

const bnet_provider *bnet_manager_at(bnet_manager *m, size_t i)
{
    ask_once(m);
    const bnet_provider *p = i < m->n_available ? m->available[i] : NULL;
    pthread_mutex_unlock(&m->lock);
    return p;
}
