/* device.h - the device of the programs in this folder: the emulated one, whose library is loaded
 * by its path before anybody asks for libcuda.so.1; with BITNET_TEST_REAL_GPU=1 the machine's own.
 */
#ifndef BNET_TEST_DEVICE_H
#define BNET_TEST_DEVICE_H

#include "test.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "emulated.h"
#include "engine/engine.h"

static emulated_counts *emulated; /* NULL: a real device */

/* Compute capability 9.0 chooses the fast kernels. Call it first in main. */
static inline void find_device(const char *cc)
{
    if (getenv("BITNET_TEST_REAL_GPU"))
        return;
    setenv("BITNET_EMULATED_CC", cc, 1);
    void *lib = dlopen(TEST_BINARY_DIR "/emulated/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    emulated = lib ? dlsym(lib, "bnet_emulated_counts") : NULL;
    if (!emulated) {
        fprintf(stderr, "no emulated device: %s\n", dlerror());
        exit(77);
    }
}

/* For sanitizers: the same paths, fewer of the cases. */
static inline bool quick(void)
{
    const char *s = getenv("BITNET_GOLDEN_QUICK");
    return s && strcmp(s, "0") != 0;
}

static inline const char *test_model(void)
{
    const char *s = getenv("BITNET_TEST_MODEL");
    return s ? s : TEST_SOURCE_DIR "/models/nano.gguf";
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        bitnet_status st_ = (call);                                                                \
        if (st_ != BITNET_OK)                                                                      \
            fail_msg("%s: status %d: %s", #call, (int)st_, err.message);                           \
    } while (0)

#endif
