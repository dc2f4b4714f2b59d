/* cpu_features.h - what instruction sets this CPU and operating system offer, asked at run time. */
#ifndef BNET_CPU_FEATURES_H
#define BNET_CPU_FEATURES_H

#include "base/str.h"

enum {
#define FEATURE(name, bit, text) BNET_CPU_##name = 1 << (bit),
#include "device/cpu_features.inc"
#undef FEATURE
};

/* Bits of this machine. Where the CPU has AMX, asks the kernel once for leave to use it. */
uint32_t bnet_cpu_features(void);
/* Does the CPU say that something stands between it and us: a hypervisor, an emulator? Only x86-64
 * CPUs can say so. */
bool bnet_cpu_is_virtual(void);
/* The i-th feature of the list, any architecture; false past the end. */
bool bnet_cpu_feature_at(int i, uint32_t *bit, const char **name);
const char *bnet_cpu_need_name(int bit); /* of the feature with this bit; NULL: none */
/* "neon dotprod i8mm"; "scalar" for none. */
void bnet_cpu_features_text(uint32_t features, bnet_str *out);
/* Vector length of SVE in bytes as the kernel grants it, 0 without SVE. */
int bnet_cpu_sve_bytes(void);

/* ---- the decoding, apart from the asking, so that any machine can test both ---- */

/* What CPUID, XGETBV and arch_prctl answered. */
typedef struct bnet_x86_regs {
    uint32_t ecx1;                    /* leaf 1 */
    uint32_t ebx7, ecx7, edx7, eax71; /* leaf 7, subleaves 0 and 1 */
    uint64_t xcr0;                    /* 0 without OSXSAVE */
    bool amx_permitted;               /* the kernel lets this process use tile data */
} bnet_x86_regs;

uint32_t bnet_x86_features(const bnet_x86_regs *r);
/* AT_HWCAP and AT_HWCAP2 of Linux on aarch64. */
uint32_t bnet_arm_features(uint64_t hwcap, uint64_t hwcap2);

#endif
