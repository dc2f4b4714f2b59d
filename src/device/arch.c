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

bool bnet_cuda_serves(const char *archs, int cc_major, int cc_minor)
{
    int cc = 10 * cc_major + cc_minor;
    for (const char *at = archs; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        size_t begin = strcspn(at, "0123456789 ");
        char *end;
        int of = (int)strtol(at + begin, &end, 10);
        bool ptx = strncmp(at, "compute_", 8) == 0, alone = isalpha((unsigned char)*end);
        if (alone ? cc == of : ptx ? cc >= of : cc_major == of / 10 && cc >= of)
            return true;
    }
    return false;
}

void bnet_cuda_code(const char *archs, int *major, int *minor)
{
    bool own = *major == 9 && *minor == 0 && strstr(archs, "sm_90a");
    if (*major < 9 || own)
        return;
    *major = 8; /* what later chips run of ours is what earlier ones do */
    *minor = 9;
}
