/* rtc.h - kernels compiled at run time: sources that the library carries, NVRTC found by its
 * name, results kept in a folder. Hides: the compiler's interface, the file's format, what a result
 * depends on. One thread at a time. */
#ifndef BNET_CUDA_RTC_H
#define BNET_CUDA_RTC_H

#include "backend/cuda/launch.h"
#include "backend/cuda/w2_few_tokens.h"

typedef struct cuda_rtc cuda_rtc;

/* Machine code for one kind of chip. */
typedef struct cuda_code {
    void *bytes; /* bnet_free */
    size_t n_bytes;
    bool kept;            /* it came from the folder */
    double ms;            /* compiling took */
    const char *compiler; /* version, "13.0"; the compiler's */
} cuda_code;

/* library NULL: the system's; folder NULL: nothing is kept. Fails NOT_AVAILABLE (the library is
 * missing or too old, with the remedy), MEMORY. */
bitnet_status bnet_rtc_open(const bnet_loader *l, const char *library, const char *folder,
                            const bnet_log *log, cuda_rtc **out, bitnet_error *err);
void bnet_rtc_close(cuda_rtc *r); /* NULL is legal */
/* Compiles one of the sources (sources.c) with options like "-DNAME=1" for a chip ("sm_90a"), or
 * takes what was kept of exactly this: same sources, options, compiler and chip. A damaged file is
 * compiled anew. Fails NOT_AVAILABLE (the compiler's first words are in the message), MEMORY. */
bitnet_status bnet_rtc_make(cuda_rtc *r, const char *source, const char *chip,
                            const char *const *options, int n_options, cuda_code *out,
                            bitnet_error *err);

/* sources.c: how many sources this build carries, their texts, and what includes call them. */
int bnet_cuda_sources(const char *const **names, const char *const **texts);

/* shapes.c: the GEMV compiled for one matrix's shape when it is first wanted. It stands behind its
 * own row (i2s_gpu_gemv_rtc), which nothing chooses by itself: tuning, validation, or the option
 * that prefers it. What cannot be compiled is served by the build's kernel. */

/* Keeps what `want` says about it; the backend owns the result. Where the
 * option can have no effect, on this chip or without a compiler, a warning says so; in strict mode
 * it fails NOT_AVAILABLE. */
bitnet_status bnet_cuda_compiled_open(gpu_backend *be, const bnet_backend_want *want,
                                      bitnet_error *err);
/* Is it to serve where the build's GEMV was chosen? */
bool bnet_cuda_compiled_wanted(const gpu_backend *be);
/* Launches it; false: the build's kernel must. */
bool bnet_cuda_compiled_gemv(gpu_backend *be, bnet_cu_gemv_args *a, const bnet_cu_launch *l);
bool bnet_cuda_compiled_few(gpu_backend *be, bnet_cu_few_args *o, const bnet_cu_launch *l);

#endif
