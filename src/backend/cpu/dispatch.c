/* dispatch.c - the kernel list as data, and choosing from it by what this CPU really has. */
#include "backend/cpu/cpu.h"
#include "device/cpu_features.h"

const cpu_row bnet_cpu_rows[N_ROWS] = {
#define KERNEL(op, format, isa, arch, proto, k_mult, agreement)                                    \
    BNET_ON_##arch({#op "_" #format "." #isa, #op, #format, ISA_##isa, k_mult,                     \
                    (cpu_fn)bnet_##op##_##format##_##isa}, )
#include "backend/cpu/kernels.inc"
#undef KERNEL
};

static const struct {
    const char *name;
    uint32_t needs;
} isas[N_ISAS] = {
#define ISA(name, needs) {#name, needs},
#include "backend/cpu/isa.inc"
#undef ISA
};

static bool isa_present(int isa, uint32_t features)
{
    return (isas[isa].needs & features) == isas[isa].needs;
}

static bitnet_status unknown_isa(const char *isa, bitnet_error *err)
{
    char names[128] = "";
    size_t n = 0;
    for (int i = 0; i < N_ISAS; i++) {
        size_t len = strlen(isas[i].name);
        if (n + len + 2 < sizeof names) {
            memcpy(names + n, isas[i].name, len);
            memcpy(names + n + len, " ", 2);
            n += len + 1;
        }
    }
    char quoted[64];
    return bnet_fail(err, BITNET_ARGUMENT, "isa '%s' is unknown; known: %s",
                     bnet_quote(isa, strlen(isa), quoted, 64), names);
}

/* A named set allows itself and those it builds on: the rows of isa.inc whose needs it includes. */
bitnet_status bnet_cpu_isa_mask(const char *isa, uint32_t *mask, bitnet_error *err)
{
    uint32_t features = bnet_cpu_features(), m = 0;
    int top = -1;
    for (int i = 0; isa && i < N_ISAS; i++)
        if (strcmp(isa, isas[i].name) == 0)
            top = i;
    if (isa && top < 0)
        return unknown_isa(isa, err);
    if (isa && !isa_present(top, features))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "isa '%s' is not available on this CPU", isa);
    for (int i = 0; i < N_ISAS; i++)
        if (isa_present(i, isa ? features & isas[top].needs : features))
            m |= 1u << i;
    *mask = m;
    return BITNET_OK;
}

int bnet_cpu_select(const cpu_backend *be, const char *op, const char *format, uint64_t k)
{
    for (int i = 0; i < N_ROWS; i++) {
        const cpu_row *r = &bnet_cpu_rows[i];
        if (be->isa_mask >> r->isa & 1 && k % r->k_mult == 0 && strcmp(r->op, op) == 0 &&
            strcmp(r->format, format) == 0)
            return i;
    }
    return -1;
}

bool bnet_backend_kernel_at(int i, bnet_kernel_row *out)
{
    if (i < 0 || i >= N_ROWS)
        return false;
    const cpu_row *r = &bnet_cpu_rows[i];
    *out = (bnet_kernel_row){r->id, r->op, r->format, isas[r->isa].name,
                             isa_present(r->isa, bnet_cpu_features())};
    return true;
}
