/* emulated.h - what emulated_cuda.c counts, exported as bnet_emulated_counts. */
#ifndef BNET_TEST_EMULATED_H
#define BNET_TEST_EMULATED_H

#include <stdint.h>

typedef struct emulated_counts {
    uint64_t n_launches; /* kernels that ran, in graphs too */
    uint64_t n_h2d, n_d2h, h2d_bytes, d2h_bytes;
    uint64_t n_modules; /* that were loaded, also those that are gone again */
} emulated_counts;

#endif
