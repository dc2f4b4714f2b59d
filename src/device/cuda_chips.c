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
const bnet_cuda_build bnet_cuda_this_build = {BNET_CUDA_ARCHS, BNET_CUDA_TOOLKIT, BNET_CUDA_KNOWN,
                                              BITNET_CUDA_MAJOR};
#else
#define BNET_CUDA_ARCHS "no architecture"
const bnet_cuda_build bnet_cuda_this_build = {"", "", "", 0};
#endif

const char *bnet_cuda_archs(void)
{
    return bnet_cuda_this_build.archs;
}

int bnet_cuda_least(const char *archs)
{
    int least = 0;
    for (const char *at = archs; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        int of = (int)strtol(at + strcspn(at, "0123456789 "), NULL, 10);
        least = least == 0 || of < least ? of : least;
    }
    return least;
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

/* ---- can the build run there? ---- */

void bnet_cuda_minima(const bnet_cuda_build *b, bnet_str *out)
{
    int ours = bnet_cuda_least(b->archs), toolkit = bnet_cuda_least(b->known);
    bnet_str_addf(
        out,
        "kernels for %s (compute capability %d.%d and later), compiled with CUDA %s, which "
        "begins at %d.%d; the driver must serve CUDA %d.0 or later",
        b->archs, ours / 10, ours % 10, b->toolkit, toolkit / 10, toolkit % 10, b->driver);
}

/* Does the word stand in the list? */
static bool lists(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == n && memcmp(at, word, n) == 0)
            return true;
    return false;
}

/* What CUDA_ARCH would make the same toolkit compile for the chip; "": nothing does. */
static const char *arch_for(const bnet_cuda_build *b, const bnet_gpu *g, char *out, size_t cap)
{
    snprintf(out, cap, "sm_%d%d", g->cc_major, g->cc_minor);
    if (lists(b->known, out))
        return out;
    return 10 * g->cc_major + g->cc_minor >= 80 ? "default" : ""; /* PTX for 8.0 and later */
}

static bitnet_status no_kernels(const bnet_cuda_build *b, const bnet_gpu *g, bitnet_error *err)
{
    char word[32];
    bnet_str has = {0};
    const char *arch = arch_for(b, g, word, sizeof word);
    bnet_cuda_minima(b, &has);
    bitnet_status st =
        bnet_fail(err, BITNET_NOT_COMPILED,
                  "cuda: device %d (%s) has compute capability %d.%d, which this build does not "
                  "serve: it has "
                  "%s; %s%s%suse --device cpu",
                  g->device_id, g->name, g->cc_major, g->cc_minor, has.failed ? "none" : has.data,
                  *arch ? "build it with CUDA_ARCH=" : "", arch, *arch ? ", or " : "");
    bnet_str_free(&has);
    return st;
}

bitnet_status bnet_cuda_check(const bnet_cuda_build *b, const char *driver_api, const bnet_gpu *g,
                              bitnet_error *err)
{
    if (!*b->archs || g->software)
        return BITNET_OK;
    if (*driver_api && strtol(driver_api, NULL, 10) < b->driver) {
        int ours = bnet_cuda_least(b->archs);
        return bnet_fail(
            err, BITNET_NOT_AVAILABLE,
            "cuda: the driver serves CUDA %s, but this build needs one that serves CUDA "
            "%d.0 or later (and a device of compute capability %d.%d or later); update "
            "the driver, or use --device cpu",
            driver_api, b->driver, ours / 10, ours % 10);
    }
    if (g->cc_major == 0 || bnet_cuda_serves(b->archs, g->cc_major, g->cc_minor))
        return BITNET_OK;
    return no_kernels(b, g, err);
}

/* ---- from a compute capability to the code that runs ---- */

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
    int major = g->cc_major ? g->cc_major : 5, minor = g->cc_minor; /* not known: the least */
    bnet_cuda_code(bnet_cuda_archs(), &major, &minor);
    snprintf(level, cap, "compute capability %d.%d", major, minor);
    return bnet_cuda_has(major, minor,
                         bnet_gpu_capabilities(g->cc_major, g->cc_minor).tensor_cores);
}

uint64_t bnet_cuda_need_of(const char *isa)
{
    char name[16];
    for (size_t i = 0; i < BNET_COUNT(levels); i++) {
        snprintf(name, sizeof name, "sm_%d", levels[i].cc);
        if (strcmp(name, isa) == 0)
            return UINT64_C(1) << i;
    }
    return 0;
}

const char *bnet_cuda_need_name(int bit)
{
    if (bit == 63)
        return "an engine that is opened after its registration";
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
