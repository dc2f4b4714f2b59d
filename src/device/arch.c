/* arch.c - which chips the CUDA kernels of this build are for: what CUDA_ARCH said when it was
 * configured. Machine code (sm_80) runs on its own generation from that capability on, code with
 * instructions of one chip alone (sm_90a, its PTX compute_90a) on that chip, other PTX (compute_80)
 * on all later ones. */
#include "device/device.h"

#include <ctype.h>
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
