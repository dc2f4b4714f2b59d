/* emulated_kernel.h - what makes functions of the emulated device of the reference kernels: one
 * call is one thread. Included before them by the compiler (tests/CMakeLists.txt). */
#ifndef BNET_EMULATED_KERNEL_H
#define BNET_EMULATED_KERNEL_H

#include <stdint.h>

extern _Thread_local uint64_t bnet_emulated_thread;
#define REF_KERNEL(name, args)                                                                     \
    static void name##_body(args a);                                                               \
    void name(void *p);                                                                            \
    void name(void *p)                                                                             \
    {                                                                                              \
        name##_body(*(args *)p);                                                                   \
    }                                                                                              \
    static void name##_body(args a)
#define REF_THREAD bnet_emulated_thread

#endif
