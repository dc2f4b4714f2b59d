/* cuda_chips.c - what chips can do, what the driver's results mean, and which chips the CUDA
 * kernels of this build are for: what CUDA_ARCH said when it was configured. Machine code (sm_80)
 * runs on its own generation from that capability on, code with instructions of one chip alone
 * (sm_90a, its PTX compute_90a) on that chip, other PTX (compute_80) on all later ones. */
#include "device/cuda_needs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef BITNET_HAVE_CUDA
#include <archs.inc>
#else
#define BNET_CUDA_ARCHS ""
#endif

const char *bnet_cuda_archs(void)
{
    return BNET_CUDA_ARCHS;
}

/* The highest architecture of the list whose code a chip runs, ten times its number; 0: none. */
static int best_code(const char *archs, int cc)
{
    int best = 0;
    for (const char *at = archs; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        size_t begin = strcspn(at, "0123456789 ");
        char *end;
        int of = (int)strtol(at + begin, &end, 10);
        bool ptx = strncmp(at, "compute_", 8) == 0, alone = isalpha((unsigned char)*end);
        if (alone ? cc == of : ptx ? cc >= of : cc / 10 == of / 10 && cc >= of)
            best = BNET_MAX(best, of);
    }
    return best;
}

bool bnet_cuda_serves(const char *archs, int cc_major, int cc_minor)
{
    return best_code(archs, 10 * cc_major + cc_minor) != 0;
}

void bnet_cuda_code(const char *archs, int *major, int *minor)
{
    int cc = 10 * *major + *minor, code = best_code(archs, cc);
    if (code == 0 || (cc == 90 && strstr(archs, "sm_90a")))
        return;
    if (code >= 80) /* from 8.0 on code is the same but for Hopper's own */
        code = BNET_MIN(cc, 89);
    *major = code / 10;
    *minor = code % 10;
}

/* ---- from a compute capability to the bits a kernel may need ---- */

static const struct {
    int cc;
    const char *name;
} levels[] = {
#define LEVEL(cc, name) {cc, name},
#include "device/cuda_levels.inc"
#undef LEVEL
};

uint64_t bnet_cuda_has(int cc_major, int cc_minor, bool tensor_cores)
{
    uint64_t has = BNET_CUDA_NEED(BUILT) | (tensor_cores ? BNET_CUDA_NEED(TENSOR_CORES) : 0);
    for (size_t i = 0; i < BNET_COUNT(levels); i++)
        if (10 * cc_major + cc_minor >= levels[i].cc)
            has |= UINT64_C(1) << i;
    return has;
}

uint64_t bnet_cuda_may_use(const bnet_gpu *g, char *level, size_t cap)
{
    int major = g->cc_major, minor = g->cc_minor;
    bnet_cuda_code(bnet_cuda_archs(), &major, &minor);
    snprintf(level, cap, "compute capability %d.%d", major, minor);
    return bnet_cuda_has(major, minor,
                         bnet_gpu_capabilities(g->cc_major, g->cc_minor).tensor_cores);
}

const char *bnet_cuda_need_name(int bit)
{
    if (bit == BNET_CUDA_INDEX_TENSOR_CORES)
        return "tensor cores";
    if (bit == BNET_CUDA_INDEX_BUILT)
        return "one of " BNET_CUDA_ARCHS;
    return bit >= 0 && (size_t)bit < BNET_COUNT(levels) ? levels[bit].name : NULL;
}

/* ---- results of the driver ---- */

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
