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

/* size_t and the types of halves are built in, or not needed by what is compiled here */
static const char *const all_names[] = {
#define SOURCE(id, name, file) name,
#include <sources.inc>
#undef SOURCE
    "stdint.h", "stddef.h", "cuda_fp16.h", "cuda_bf16.h"};
static const char *const all_texts[] = {
#define SOURCE(id, name, file) bnet_cuda_source_##id,
#include <sources.inc>
#undef SOURCE
    stdint_h, "", "", ""};
static_assert(sizeof all_names == sizeof all_texts, "one text for each name");

int bnet_cuda_sources(const char *const **names, const char *const **texts)
{
    *names = all_names;
    *texts = all_texts;
    return (int)BNET_COUNT(all_names);
}
