/* sources.c - sources of kernels as text, carried inside the library for compilation at run time;
 * and the few system headers they name, of which the run-time compiler has none. */
#include "backend/cuda/rtc/rtc.h"

#define SOURCE(id, name, file)                                                                     \
    __asm__(".pushsection .rodata\n"                                                               \
            ".globl bnet_cuda_source_" #id "\n"                                                    \
            ".hidden bnet_cuda_source_" #id "\n"                                                   \
            "bnet_cuda_source_" #id ":\n"                                                          \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const char bnet_cuda_source_##id[];
#include <sources.inc>
#undef SOURCE

static const char stdint_h[] = "typedef signed char int8_t;\n"
                               "typedef unsigned char uint8_t;\n"
                               "typedef short int16_t; typedef unsigned short uint16_t;\n"
                               "typedef int int32_t; typedef unsigned int uint32_t;\n"
                               "typedef long long int64_t;\n"
                               "typedef unsigned long long uint64_t, uintptr_t;\n";

const char *bnet_cuda_source(size_t i, const char **name)
{
    const struct {
        const char *name, *text;
    } all[] = {
#define SOURCE(id, name, file) {name, bnet_cuda_source_##id},
#include <sources.inc>
#undef SOURCE
        {"stdint.h", stdint_h},
        {"stddef.h", ""}, /* size_t is built in */
        {"cuda_fp16.h", ""},
        {"cuda_bf16.h", ""}, /* named by common.cuh; what is compiled here needs no such types */
    };
    if (i >= BNET_COUNT(all))
        return NULL;
    *name = all[i].name;
    return all[i].text;
}
