/* emulated_devices.c - one or several devices, each with memory of its own, for the emulated
 * libcuda. What a real driver would refuse or get wrong is refused: work in the stream of a device
 * that is not current, copies to or from the memory of another except between peers.
 *
 * BITNET_EMULATED_DEVICES=N: how many (1). BITNET_EMULATED_MEMORY: bytes each has; a list: each its
 * own. BITNET_EMULATED_PEERS=1: they can read each other's memory. */
#include "emulated_modules.h"

#include <pthread.h>
#include <string.h>

enum { DEVICES = 8 };

typedef struct device { /* its address is its context */
    size_t used;
    unsigned reaches; /* bit i: it may read device i */
} device;

typedef struct piece {
    struct piece *next;
    uint64_t at;
    size_t n;
    int device;
} piece;

static device devices[DEVICES];
static _Thread_local int current = -1; /* none: nothing of a device can be used */
static piece *pieces;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int number(const char *variable, int otherwise)
{
    const char *s = getenv(variable);
    return s ? atoi(s) : otherwise;
}

int bnet_emulated_devices(void)
{
    int n = number("BITNET_EMULATED_DEVICES", 1);
    return n < 1 ? 1 : n > DEVICES ? DEVICES : n;
}

int bnet_emulated_current(void)
{
    return current;
}

size_t bnet_emulated_memory(int d)
{
    const char *s = getenv("BITNET_EMULATED_MEMORY");
    size_t n = s ? (size_t)strtoull(s, NULL, 10) : (size_t)1 << 32;
    for (; s && d > 0 && (s = strchr(s, ',')) != NULL; d--)
        n = (size_t)strtoull(++s, NULL, 10);
    return n;
}

size_t bnet_emulated_used(void)
{
    pthread_mutex_lock(&lock);
    size_t n = current >= 0 ? devices[current].used : 0;
    pthread_mutex_unlock(&lock);
    return n;
}

void *bnet_emulated_context(int d)
{
    return &devices[d];
}

static int index_of(void *context)
{
    return (int)((device *)context - devices);
}

/* ---- the stack of contexts of a thread ---- */

static _Thread_local int below[16], depth;

API int cuCtxPushCurrent_v2(void *c)
{
    int r = bnet_emulated_fault("cuCtxPushCurrent");
    if (r != OK || depth == (int)(sizeof below / sizeof *below))
        return r != OK ? r : OUT_OF_MEMORY;
    below[depth++] = current;
    current = index_of(c);
    return OK;
}

API int cuCtxPopCurrent_v2(void **out)
{
    if (depth == 0)
        return 201; /* CUDA_ERROR_INVALID_CONTEXT */
    *out = current >= 0 ? &devices[current] : NULL;
    current = below[--depth];
    return OK;
}

/* A program's own calls, for tests: the library never makes them. */
API int cuCtxGetCurrent(void **out)
{
    *out = current >= 0 ? &devices[current] : NULL;
    return OK;
}

API int cuCtxSetCurrent(void *c)
{
    current = c ? index_of(c) : -1;
    return OK;
}

/* ---- memory ---- */

bool bnet_emulated_note(uint64_t p, size_t n)
{
    piece *note = malloc(sizeof *note);
    pthread_mutex_lock(&lock);
    bool ok = note && current >= 0 && devices[current].used + n <= bnet_emulated_memory(current);
    if (ok) {
        *note = (piece){pieces, p, n, current};
        pieces = note;
        devices[current].used += n;
    }
    pthread_mutex_unlock(&lock);
    if (!ok)
        free(note);
    return ok;
}

bool bnet_emulated_forget(uint64_t p)
{
    pthread_mutex_lock(&lock);
    piece **at = &pieces;
    while (*at && (*at)->at != p)
        at = &(*at)->next;
    piece *gone = *at;
    if (gone) {
        *at = gone->next;
        devices[gone->device].used -= gone->n;
    }
    pthread_mutex_unlock(&lock);
    free(gone);
    return gone != NULL;
}

int bnet_emulated_device_of(uint64_t p)
{
    int d = -1;
    pthread_mutex_lock(&lock);
    for (const piece *i = pieces; i && d < 0; i = i->next)
        if (p >= i->at && p < i->at + (i->n ? i->n : 1))
            d = i->device;
    pthread_mutex_unlock(&lock);
    return d;
}

/* CUDA_MEMCPY2D: between places of device memory */
typedef struct copy_2d {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    uint64_t src;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    uint64_t dst;
    void *dst_array;
    size_t dst_pitch, width, height;
} copy_2d;

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, void *s);

API int cuMemcpy2DAsync_v2(const copy_2d *c, void *s)
{
    int r = bnet_emulated_fault("cuMemcpy2D");
    if (c->src_type != 2 || c->dst_type != 2 || c->src_pitch < c->width || c->dst_pitch < c->width)
        return INVALID;
    for (size_t y = 0; r == OK && y < c->height; y++)
        r = cuMemcpyDtoDAsync_v2(c->dst + y * c->dst_pitch, c->src + y * c->src_pitch, c->width, s);
    return r;
}

/* ---- peers ---- */

API int cuDeviceCanAccessPeer(int *can, int d, int other)
{
    *can = d != other && number("BITNET_EMULATED_PEERS", 0);
    return bnet_emulated_fault("cuDeviceCanAccessPeer");
}

API int cuCtxEnablePeerAccess(void *context, unsigned flags)
{
    unsigned bit = 1u << index_of(context);
    int r = bnet_emulated_fault("cuCtxEnablePeerAccess");
    (void)flags;
    if (r != OK || !number("BITNET_EMULATED_PEERS", 0))
        return r != OK ? r : NO_PEER;
    if (devices[current].reaches & bit)
        return PEER_ALREADY;
    devices[current].reaches |= bit;
    return OK;
}

typedef struct access { /* CUmemAccessDesc */
    int type, device, flags;
} access;

API int cuMemPoolSetAccess(void *pool, const access *a, size_t n)
{
    int r = bnet_emulated_fault("cuMemPoolSetAccess");
    return r != OK ? r : pool && n == 1 && a->type == 1 && a->flags == 3 ? OK : INVALID;
}

int bnet_emulated_may_fetch(void *to, uint64_t dst, void *from, uint64_t src)
{
    int reader = index_of(to), owner = index_of(from);
    if (bnet_emulated_device_of(dst) != reader || bnet_emulated_device_of(src) != owner)
        return BAD_HANDLE;
    return devices[reader].reaches >> owner & 1 ? OK : PEER_NOT_ENABLED;
}
