/* alloc.c - the only place that calls the C allocator. Everything is 64-byte aligned so that
 * kernels may use aligned vectors on any buffer. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void *bnet_alloc(size_t n_bytes)
{
    uint64_t padded;
    if (!bnet_round_up(n_bytes ? n_bytes : 1, BNET_ALIGN, &padded) || padded > PTRDIFF_MAX)
        return NULL;
    return aligned_alloc(BNET_ALIGN, (size_t)padded);
}

void *bnet_alloc_small(size_t n_bytes)
{
    return malloc(n_bytes ? n_bytes : 1);
}

void *bnet_alloc_huge(size_t n_bytes)
{
    enum { HUGE_PAGE = 1 << 21 };
    uint64_t padded;
    if (!bnet_round_up(n_bytes ? n_bytes : 1, HUGE_PAGE, &padded) || padded > PTRDIFF_MAX)
        return NULL;
    void *p = aligned_alloc(HUGE_PAGE, (size_t)padded);
    if (p)
        madvise(p, (size_t)padded, MADV_HUGEPAGE); /* a wish: without it the memory is as good */
    return p;
}

void *bnet_calloc(size_t n, size_t size)
{
    uint64_t n_bytes;
    if (!bnet_mul(n, size, &n_bytes))
        return NULL;
    void *p = bnet_alloc((size_t)n_bytes);
    if (p)
        memset(p, 0, (size_t)n_bytes);
    return p;
}

bool bnet_grow(void *p, size_t *cap, size_t need, size_t size)
{
    void *old;
    memcpy(&old, p, sizeof old);
    if (need <= *cap)
        return true;
    size_t new_cap = BNET_MAX(need, *cap + *cap / 2 + 8);
    uint64_t n_bytes;
    if (!bnet_mul(new_cap, size, &n_bytes))
        return false;
    void *fresh = bnet_alloc((size_t)n_bytes);
    if (!fresh)
        return false;
    if (old)
        memcpy(fresh, old, *cap * size);
    bnet_free(old);
    memcpy(p, &fresh, sizeof fresh);
    *cap = new_cap;
    return true;
}

char *bnet_memdup(const void *s, size_t n)
{
    uint64_t n_bytes;
    if (!bnet_add(n, 1, &n_bytes))
        return NULL;
    char *p = bnet_alloc((size_t)n_bytes);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

char *bnet_strdup(const char *s)
{
    return bnet_memdup(s, strlen(s));
}

void bnet_alloc_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void bnet_free(void *p)
{
    free(p);
}
