/* gpu.h - the GPU of a test program: the emulated one of this build, or with BITNET_TEST_REAL_GPU=1
 * the machine's own, on which failures cannot be made to order. */
#ifndef BNET_TEST_GPU_H
#define BNET_TEST_GPU_H

#include "nano.h"

#include <unistd.h>

#define EMULATED TEST_BINARY_DIR "/emulated"

static bool has_gpu, real_gpu;

static inline void need_gpu(void)
{
    if (!has_gpu) {
        print_message("the CUDA backend is not compiled in\n");
        skip();
    }
}

/* Starts the program anew with the emulated library where it was built, unless a real GPU is
 * wanted. Call it first in main. */
static inline void choose_gpu(char **argv)
{
    const char *path = getenv("LD_LIBRARY_PATH"), *real = getenv("BITNET_TEST_REAL_GPU");
    struct stat st;
    real_gpu = real && *real == '1';
    has_gpu = real_gpu || stat(EMULATED "/libcuda.so.1", &st) == 0;
    if (!has_gpu || real_gpu || (path && strncmp(path, EMULATED, sizeof EMULATED - 1) == 0))
        return;
    char list[4096];
    snprintf(list, sizeof list, EMULATED "%s%s", path ? ":" : "", path ? path : "");
    setenv("LD_LIBRARY_PATH", list, 1);
    setenv("BITNET_EMULATED_CC", "90", 1);
    execv("/proc/self/exe", argv);
    has_gpu = false;
}

#endif
