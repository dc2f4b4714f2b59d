/* cpu_features.c - CPUID, XGETBV and arch_prctl on x86, the auxiliary vector on ARM. */
#include "device/cpu_features.h"

typedef struct feature {
    uint32_t bit;
    const char *name;
} feature;

static const feature features_list[] = {
#define FEATURE(name, bit, text) {1u << (bit), text},
#include "device/cpu_features.inc"
#undef FEATURE
};

bool bnet_cpu_feature_at(int i, uint32_t *bit, const char **name)
{
    if (i < 0 || (size_t)i >= BNET_COUNT(features_list))
        return false;
    *bit = features_list[i].bit;
    *name = features_list[i].name;
    return true;
}

const char *bnet_cpu_need_name(int bit)
{
    uint32_t mask;
    const char *name;
    for (int i = 0; bit < 32 && bnet_cpu_feature_at(i, &mask, &name); i++)
        if (mask >> bit == 1)
            return name;
    return NULL;
}

void bnet_cpu_features_text(uint32_t features, bnet_str *out)
{
    bool any = false;
    for (size_t i = 0; i < BNET_COUNT(features_list); i++) {
        if (!(features & features_list[i].bit))
            continue;
        if (any)
            bnet_str_putc(out, ' ');
        bnet_str_puts(out, features_list[i].name);
        any = true;
    }
    if (!any)
        bnet_str_puts(out, "scalar");
}

/* ---- decoding ---- */

typedef struct bit_rule {
    uint32_t reg, bit, feature;
} bit_rule;

static void apply(const bit_rule *rules, size_t n, const uint32_t *regs, uint32_t *f)
{
    for (size_t i = 0; i < n; i++)
        if (regs[rules[i].reg] & (1u << rules[i].bit))
            *f |= rules[i].feature;
}

enum { ECX1, EBX7, ECX7, EDX7, EAX71 };
#define XCR0_YMM    0x06u    /* SSE and AVX state */
#define XCR0_ZMM    0xe6u    /* and mask registers, upper halves, upper registers */
#define XCR0_TILES  0x60000u /* tile configuration and data */
#define ECX1_AVX    (1u << 28)
#define ECX1_F16C   (1u << 29)
#define EBX7_AVX2   (1u << 5)
#define EBX7_AVX512 (1u << 16)

static const bit_rule sse_rules[] = {{ECX1, 9, BNET_CPU_SSSE3}, {ECX1, 19, BNET_CPU_SSE41}};
static const bit_rule avx_rules[] = {{ECX1, 12, BNET_CPU_FMA}, {ECX1, 29, BNET_CPU_F16C}};
static const bit_rule zmm_rules[] = {
    {EBX7, 16, BNET_CPU_AVX512F},    {EBX7, 17, BNET_CPU_AVX512DQ},
    {EBX7, 30, BNET_CPU_AVX512BW},   {EBX7, 31, BNET_CPU_AVX512VL},
    {ECX7, 1, BNET_CPU_AVX512VBMI},  {ECX7, 11, BNET_CPU_AVX512VNNI},
    {EDX7, 23, BNET_CPU_AVX512FP16}, {EAX71, 5, BNET_CPU_AVX512BF16},
};
static const bit_rule tile_rules[] = {{EDX7, 24, BNET_CPU_AMX_TILE}, {EDX7, 25, BNET_CPU_AMX_INT8}};

uint32_t bnet_x86_features(const bnet_x86_regs *r)
{
    const uint32_t regs[] = {r->ecx1, r->ebx7, r->ecx7, r->edx7, r->eax71};
    uint32_t f = 0;
    apply(sse_rules, BNET_COUNT(sse_rules), regs, &f);
    if ((r->xcr0 & XCR0_YMM) != XCR0_YMM || !(r->ecx1 & ECX1_AVX))
        return f;
    apply(avx_rules, BNET_COUNT(avx_rules), regs, &f);
    if (!(r->ebx7 & EBX7_AVX2) || !(r->ecx1 & ECX1_F16C))
        return f;
    f |= BNET_CPU_AVX2;
    if (r->eax71 & (1u << 4))
        f |= BNET_CPU_AVXVNNI;
    if ((r->xcr0 & XCR0_ZMM) == XCR0_ZMM && (r->ebx7 & EBX7_AVX512))
        apply(zmm_rules, BNET_COUNT(zmm_rules), regs, &f);
    if ((r->xcr0 & XCR0_TILES) == XCR0_TILES && r->amx_permitted && (r->edx7 & (1u << 24)))
        apply(tile_rules, BNET_COUNT(tile_rules), regs, &f);
    return f;
}

/* Bits of the Linux ABI, written out so that old headers do. */
uint32_t bnet_arm_features(uint64_t hwcap, uint64_t hwcap2)
{
    enum { HWCAP, HWCAP2 };
    static const bit_rule rules[] = {
        {HWCAP, 1, BNET_CPU_NEON},     {HWCAP, 10, BNET_CPU_FP16},  {HWCAP, 20, BNET_CPU_DOTPROD},
        {HWCAP, 22, BNET_CPU_SVE},     {HWCAP, 23, BNET_CPU_FHM},   {HWCAP2, 1, BNET_CPU_SVE2},
        {HWCAP2, 9, BNET_CPU_SVEI8MM}, {HWCAP2, 13, BNET_CPU_I8MM}, {HWCAP2, 14, BNET_CPU_BF16}};
    const uint32_t regs[] = {(uint32_t)hwcap, (uint32_t)hwcap2};
    uint32_t f = 0;
    apply(rules, BNET_COUNT(rules), regs, &f);
    return f;
}

/* ---- asking ---- */

#if defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>

uint32_t bnet_cpu_features(void)
{
    return bnet_arm_features(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
}

bool bnet_cpu_is_virtual(void)
{
    return false;
}

int bnet_cpu_sve_bytes(void)
{
    enum { SVE_GET_VL = 51, SVE_VL_LEN_MASK = 0xffff };
    if (!(bnet_cpu_features() & BNET_CPU_SVE))
        return 0;
    int r = prctl(SVE_GET_VL, 0, 0, 0, 0);
    return r < 0 ? 0 : r & SVE_VL_LEN_MASK;
}

#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tile data is large, so the kernel hands it out on request only, per process and for good. */
static bool permit_amx(void)
{
    enum { GET_XCOMP_PERM = 0x1022, REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    uint64_t mask = 0;
    if (syscall(SYS_arch_prctl, GET_XCOMP_PERM, &mask) == 0 && (mask & (1u << TILE_DATA)))
        return true;
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) == 0;
}

uint32_t bnet_cpu_features(void)
{
    bnet_x86_regs r = {0};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &r.ecx1, &d))
        return 0;
    if (r.ecx1 & (1u << 27)) { /* OSXSAVE */
        uint32_t lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        r.xcr0 = (uint64_t)hi << 32 | lo;
    }
    if (__get_cpuid_count(7, 0, &a, &r.ebx7, &r.ecx7, &r.edx7) && a >= 1)
        __get_cpuid_count(7, 1, &r.eax71, &b, &c, &d);
    if ((r.edx7 & (1u << 24)) && (r.xcr0 & XCR0_TILES) == XCR0_TILES)
        r.amx_permitted = permit_amx();
    return bnet_x86_features(&r);
}

bool bnet_cpu_is_virtual(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 31));
}

int bnet_cpu_sve_bytes(void)
{
    return 0;
}

#else

uint32_t bnet_cpu_features(void)
{
    return 0;
}

bool bnet_cpu_is_virtual(void)
{
    return false;
}

int bnet_cpu_sve_bytes(void)
{
    return 0;
}

#endif
