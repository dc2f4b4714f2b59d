/* image.c - the kernels as nvcc made them, carried inside the library: one image per file. */
#include "backend/cuda/cuda.h"

#define IMAGE(name, file)                                                                          \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 64\n"                                                                         \
            ".globl bnet_cuda_image_" #name "\n"                                                   \
            ".hidden bnet_cuda_image_" #name "\n"                                                  \
            "bnet_cuda_image_" #name ":\n"                                                         \
            ".incbin \"" file "\"\n"                                                               \
            ".globl bnet_cuda_image_end_" #name "\n"                                               \
            ".hidden bnet_cuda_image_end_" #name "\n"                                              \
            "bnet_cuda_image_end_" #name ":\n"                                                     \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const uint8_t bnet_cuda_image_##name[], bnet_cuda_image_end_##name[];
#include <images.inc>
#undef IMAGE

const void *bnet_cuda_image(size_t i, size_t *n_bytes)
{
    static const struct {
        const uint8_t *begin, *end;
    } images[] = {
#define IMAGE(name, file) {bnet_cuda_image_##name, bnet_cuda_image_end_##name},
#include <images.inc>
#undef IMAGE
    };
    if (i >= BNET_COUNT(images))
        return NULL;
    *n_bytes = (size_t)(images[i].end - images[i].begin);
    return images[i].begin;
}
