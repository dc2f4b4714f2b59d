/* cuda_errors.c - CUresult to a name and advice. */
#include "device/device.h"

typedef struct cuda_error {
    int code;
    const char *name, *hint;
} cuda_error;

static const cuda_error errors[] = {
#define CUDA_ERROR(code, name, hint) {code, name, hint},
#include "device/cuda_errors.inc"
#undef CUDA_ERROR
};

const char *bnet_cuda_error_hint(int cu_result, const char **name)
{
    for (size_t i = 0; i < BNET_COUNT(errors); i++)
        if (errors[i].code == cu_result) {
            if (name)
                *name = errors[i].name;
            return errors[i].hint;
        }
    if (name)
        *name = "an unknown CUDA error";
    return "update the NVIDIA driver, check nvidia-smi, or use --device cpu";
}
