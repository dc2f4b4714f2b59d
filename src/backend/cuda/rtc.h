/* rtc.h - kernels compiled at run time: sources that the library carries, NVRTC found by its name,
 * results kept in a folder. Hides: the compiler's interface, the file's format, what a result
 * depends on. One thread at a time. */
#ifndef BNET_CUDA_RTC_H
#define BNET_CUDA_RTC_H

#include "base/str.h"
#include "device/probe.h"

typedef struct cuda_rtc cuda_rtc;

/* Machine code for one kind of chip. */
typedef struct cuda_code {
    void *bytes; /* bnet_free */
    size_t n_bytes;
    bool kept; /* it came from the folder */
    double ms; /* compiling took */
} cuda_code;

/* library NULL: the system's; folder NULL: nothing is kept. Fails NOT_AVAILABLE (the library is
 * missing or too old, with the remedy), MEMORY. */
bitnet_status bnet_rtc_open(const bnet_loader *l, const char *library, const char *folder,
                            const bnet_log *log, cuda_rtc **out, bitnet_error *err);
void bnet_rtc_close(cuda_rtc *r); /* NULL is legal */
/* "13.0" */
const char *bnet_rtc_version(const cuda_rtc *r);
/* Compiles one of the sources (sources.c) with options like "-DNAME=1" for a chip ("sm_90a"), or
 * takes what was kept of exactly this: same sources, options, compiler and chip. A damaged file is
 * compiled anew. Fails NOT_AVAILABLE (the compiler's first words are in the message), MEMORY. */
bitnet_status bnet_rtc_make(cuda_rtc *r, const char *source, const char *chip,
                            const char *const *options, int n_options, cuda_code *out,
                            bitnet_error *err);

/* sources.c: the i-th source of this build, NULL past the end; *name is what includes call it. */
const char *bnet_cuda_source(size_t i, const char **name);

#endif
