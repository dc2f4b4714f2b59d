/* cpu_features.h - what instruction sets this CPU and operating system offer, asked at run time. */
#ifndef BNET_CPU_FEATURES_H
#define BNET_CPU_FEATURES_H

#include "base/base.h"

enum {
    BNET_CPU_NEON = 1 << 0,
    BNET_CPU_DOTPROD = 1 << 1,
    BNET_CPU_I8MM = 1 << 2,
    BNET_CPU_AVX2 = 1 << 8, /* with F16C and the operating system saving YMM */
    BNET_CPU_FMA = 1 << 9,
};

uint32_t bnet_cpu_features(void);

#endif
