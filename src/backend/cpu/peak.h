/* peak.h - what the files that measure this machine share: loops over registers, and readers of
 * memory. */
#ifndef BNET_CPU_PEAK_H
#define BNET_CPU_PEAK_H

#include "backend/cpu/kernels.h"

/* n rounds; returns the operations done (a product and a sum are two). The sink makes the result
 * matter. */
typedef uint64_t bnet_fn_peak(size_t n_rounds, uint64_t *sink);
#define PEAK(name, isa, arch) BNET_ON_##arch(bnet_fn_peak bnet_peak_##name##_##isa;)
#include "backend/cpu/peaks.inc"
#undef PEAK

/* Reads n_bytes (a multiple of 1024 * n_streams) as n_streams runs side by side, 64 bytes of each
 * in turn; ahead > 0: asks for the line so many bytes ahead. */
typedef void bnet_fn_reader(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,
                            uint64_t *sink);
bnet_fn_reader bnet_reader_scalar;
BNET_ON_ARM(bnet_fn_reader bnet_reader_neon;)
BNET_ON_X86(bnet_fn_reader bnet_reader_avx2; bnet_fn_reader bnet_reader_avx512;)

#endif
