/* cpu_features.c - CPUID and XGETBV on x86, the auxiliary vector on ARM. */
#include "device/cpu_features.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of AT_HWCAP / AT_HWCAP2 in the Linux ABI, written out so that old headers do. */
#define HWCAP_ASIMD_BIT   (1ul << 1)
#define HWCAP_ASIMDDP_BIT (1ul << 20)
#define HWCAP2_I8MM_BIT   (1ul << 13)

uint32_t bnet_cpu_features(void)
{
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    uint32_t f = 0;
    if (cap & HWCAP_ASIMD_BIT)
        f |= BNET_CPU_NEON;
    if (cap & HWCAP_ASIMDDP_BIT)
        f |= BNET_CPU_DOTPROD;
    if (cap2 & HWCAP2_I8MM_BIT)
        f |= BNET_CPU_I8MM;
    return f;
}

#elif defined(__x86_64__)
#include <cpuid.h>

static bool os_saves_ymm(uint32_t ecx1)
{
    if (!(ecx1 & (1u << 27))) /* OSXSAVE */
        return false;
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & 6) == 6;
}

uint32_t bnet_cpu_features(void)
{
    uint32_t a, b, c, d, b7 = 0, c7, d7, f = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !os_saves_ymm(c))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return 0;
    bool avx = c & (1u << 28), f16c = c & (1u << 29), fma = c & (1u << 12);
    if (avx && f16c && (b7 & (1u << 5)))
        f |= BNET_CPU_AVX2;
    if (avx && fma)
        f |= BNET_CPU_FMA;
    return f;
}

#else

uint32_t bnet_cpu_features(void)
{
    return 0;
}

#endif
