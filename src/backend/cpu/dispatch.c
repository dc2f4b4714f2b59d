/* dispatch.c - the kernel list as records, and what a named instruction set may use. */
#include "backend/cpu/cpu.h"
#include "device/cpu_features.h"
#include "format/codec.h"

enum {
#define ISA(name, needs) NEEDS_##name = needs,
#include "backend/cpu/isa.inc"
#undef ISA
};

static const struct {
    const char *name;
    uint32_t needs;
} isas[] = {
#define ISA(name, needs) {#name, needs},
#include "backend/cpu/isa.inc"
#undef ISA
};

#define D(least, most, multiple_of)                                                                \
    {                                                                                              \
        least, most, multiple_of                                                                   \
    }
static const bnet_kernel_record rows[] = {
#define KERNEL(name, set, arch, type, op_, format_, dtype_, tier_, m_, n_, k_, temp, align, agree) \
    {.id = #name "." #set,                                                                         \
     .device = BNET_DEV_CPU,                                                                       \
     .op = BNET_OP_##op_,                                                                          \
     .format = BNET_FORMAT_##format_,                                                              \
     .dtype = BNET_DTYPE_##dtype_,                                                                 \
     .isa = #set,                                                                                  \
     .tier = BITNET_TIER_##tier_,                                                                  \
     .temp_bytes = temp,                                                                           \
     .alignment = align,                                                                           \
     .m = m_,                                                                                      \
     .n = n_,                                                                                      \
     .k = k_,                                                                                      \
     .needs = NEEDS_##set,                                                                         \
     .need_name = bnet_cpu_need_name,                                                              \
     .abi = BITNET_KERNEL_ABI,                                                                     \
     .agreement = agree,                                                                           \
     .fn = BNET_FN_##arch(bnet_##name##_##set)},
#include "backend/cpu/kernels.inc"
#undef KERNEL
};

const bnet_kernel_record *bnet_cpu_kernel_rows(size_t *n)
{
    *n = BNET_COUNT(rows);
    return rows;
}

/* A key without a type is called as only the tree knows: the CPU must never call a program's
 * function so. */
static bool has_type(const bnet_kernel_record *k)
{
    static const struct {
        bnet_op op;
        bnet_format format;
        bnet_dtype dtype;
    } types[] = {
#define PUBLIC_TYPE(op, format, dtype) {BNET_OP_##op, BNET_FORMAT_##format, BNET_DTYPE_##dtype},
#include "backend/cpu/public_types.inc"
#undef PUBLIC_TYPE
    };
    for (size_t i = 0; i < BNET_COUNT(types); i++)
        if (types[i].op == k->op && types[i].format == k->format && types[i].dtype == k->dtype)
            return true;
    return k->op == BNET_OP_LINEAR && k->dtype == BNET_DTYPE_I8 && bnet_cpu_whole(k->format);
}

bool bnet_cpu_whole(bnet_format f)
{
    const bnet_type_info *type = bnet_format_type(f);
    return type && type->kind == BNET_KIND_NAMED && !bnet_can_decode(type->type);
}

bitnet_status bnet_cpu_adopt(bnet_kernel_record *k, bitnet_error *err)
{
    uint32_t needs = 0;
    if (!has_type(k))
        return BITNET_NOT_AVAILABLE;
    bitnet_status st = bnet_cpu_isa_needs(k->isa, &needs, err);
    k->needs = needs;
    k->need_name = bnet_cpu_need_name;
    return st;
}

static int find_isa(const char *name)
{
    for (size_t i = 0; i < BNET_COUNT(isas); i++)
        if (strcmp(name, isas[i].name) == 0)
            return (int)i;
    return -1;
}

static bitnet_status unknown_isa(const char *isa, bitnet_error *err)
{
    char quoted[64];
    bnet_str names = {0};
    for (size_t i = 0; i < BNET_COUNT(isas); i++)
        bnet_str_addf(&names, "%s%s", i ? " " : "", isas[i].name);
    bitnet_status st = bnet_fail(err, BITNET_ARGUMENT, "isa '%s' is unknown; known: %s",
                                 bnet_quote(isa, strlen(isa), quoted, sizeof quoted),
                                 names.data ? names.data : "");
    bnet_str_free(&names);
    return st;
}

const char *bnet_cpu_isa_at(int i)
{
    return i >= 0 && (size_t)i < BNET_COUNT(isas) ? isas[i].name : NULL;
}

bitnet_status bnet_cpu_isa_needs(const char *isa, uint32_t *needs, bitnet_error *err)
{
    int i = find_isa(isa);
    if (i < 0)
        return unknown_isa(isa, err);
    *needs = isas[i].needs;
    return BITNET_OK;
}

/* Vectors of SVE that are no longer than those of NEON compute no faster, and the kernels with NEON
 * are the ones that were timed: shorter SVE is used only where the isa option names it.
 */
static uint32_t preferred(uint32_t features)
{
    enum { NEON_BYTES = 16 };
    const uint32_t sve = BNET_CPU_SVE | BNET_CPU_SVE2 | BNET_CPU_SVEI8MM;
    return bnet_cpu_sve_bytes() > NEON_BYTES ? features : features & ~sve;
}

bitnet_status bnet_cpu_capabilities(const char *isa, bnet_capabilities *out, bitnet_error *err)
{
    uint32_t features = bnet_cpu_features(), needs = preferred(features);
    bitnet_status st = isa ? bnet_cpu_isa_needs(isa, &needs, err) : BITNET_OK;
    if (st != BITNET_OK)
        return st;
    if ((features & needs) != needs)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "isa '%s' is not available on this CPU", isa);
    *out = (bnet_capabilities){.device = BNET_DEV_CPU, .has = needs, .builds = 1u << BNET_DEV_CPU};
    return BITNET_OK;
}

bool bnet_backend_kernel_at(int i, bitnet_kernel_info *out)
{
    const bnet_kernel_record *r = rows, *end = rows + BNET_COUNT(rows);
    while (r < end && (!r->fn || i-- > 0))
        r++;
    if (r == end)
        return false;
    *out = (bitnet_kernel_info){r->id, bnet_op_name(r->op), bnet_format_name(r->format), r->isa,
                                (r->needs & ~bnet_cpu_features()) == 0};
    return true;
}
