/* interpose.h - the allocator of a test program, replaced by one that counts and, when told, fails.
 * Include it in one file of the program. Everything in the process goes through it, libraries too.
 *
 * Under a sanitizer, which has an allocator of its own, only aligned_alloc is replaced: the one
 * call by which the library gets memory. Leaks are then the sanitizer's to find. */
#ifndef TEST_INTERPOSE_H
#define TEST_INTERPOSE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INTERPOSE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INTERPOSE_SANITIZED 1
#endif
#endif
#ifndef INTERPOSE_SANITIZED
#define INTERPOSE_SANITIZED 0
#endif

static atomic_long n_allocs;    /* since interpose_start */
static atomic_long n_live;      /* not yet freed */
static atomic_long fail_at;     /* which of them fails, counted from 0; -1: none */
static atomic_bool fail_onward; /* and all after it */
static atomic_bool armed;

static bool interpose_fails(void)
{
    if (!atomic_load(&armed))
        return false;
    long i = atomic_fetch_add(&n_allocs, 1), at = atomic_load(&fail_at);
    if (at < 0 || (atomic_load(&fail_onward) ? i < at : i != at))
        return false;
    errno = ENOMEM;
    return true;
}

/* From here on allocations are counted; the at-th fails (-1: none), with `onward` all that follow
 * too. */
static inline void interpose_start(long at, bool onward)
{
    atomic_store(&n_allocs, 0);
    atomic_store(&fail_at, at);
    atomic_store(&fail_onward, onward);
    atomic_store(&armed, true);
}

/* How many allocations were asked for. */
static inline long interpose_stop(void)
{
    atomic_store(&armed, false);
    return atomic_load(&n_allocs);
}

static inline long interpose_live(void)
{
    return atomic_load(&n_live);
}

/* The build hides symbols by default; shared libraries must find these. */
#define SEEN __attribute__((visibility("default")))

#if INTERPOSE_SANITIZED

SEEN void *aligned_alloc(size_t align, size_t n)
{
    void *p = NULL;
    return !interpose_fails() && posix_memalign(&p, align, n) == 0 ? p : NULL;
}

#else

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static void *interpose_count(void *p)
{
    if (p)
        atomic_fetch_add(&n_live, 1);
    return p;
}

SEEN void *malloc(size_t n)
{
    return interpose_fails() ? NULL : interpose_count(__libc_malloc(n));
}

SEEN void *calloc(size_t n, size_t size)
{
    return interpose_fails() ? NULL : interpose_count(__libc_calloc(n, size));
}

SEEN void *realloc(void *p, size_t n)
{
    if (interpose_fails())
        return NULL;
    void *q = __libc_realloc(p, n);
    return p ? q : interpose_count(q);
}

SEEN void *aligned_alloc(size_t align, size_t n)
{
    return interpose_fails() ? NULL : interpose_count(__libc_memalign(align, n));
}

SEEN void *memalign(size_t align, size_t n)
{
    return interpose_fails() ? NULL : interpose_count(__libc_memalign(align, n));
}

SEEN int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = interpose_fails() ? NULL : interpose_count(__libc_memalign(align, n));
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

SEEN void free(void *p)
{
    if (p)
        atomic_fetch_sub(&n_live, 1);
    __libc_free(p);
}

#endif
#endif
