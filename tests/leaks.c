/* leaks.c - linked into every program of a build with AddressSanitizer: looks for leaks at exit as
 * LeakSanitizer would, but asks it only when there is a block that could be one. On aarch64 each
 * look takes it four seconds (it walks all the 2^28 regions its allocator there could have), and a
 * suite starts hundreds of programs; most have freed everything.
 *
 * Blocks are known by the sanitizer's hooks, from a constructor on that runs before those of the
 * program. Of the living ones the dynamic linker's are left out, as LeakSanitizer does, and the C
 * library is asked to free its own. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* the sanitizer's, of which gcc installs not every header */
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                              void (*free_hook)(const volatile void *));
size_t __asan_get_alloc_stack(void *at, void **frames, size_t n_frames, int *thread);
void __lsan_do_leak_check(void);
void __libc_freeres(void) __attribute__((weak)); /* glibc's alone */

enum { BUCKETS = 1 << 16, BLOCKS = 1 << 20 };

typedef struct block {
    uintptr_t hidden; /* ~address, lest LeakSanitizer take it for a pointer; 0: free */
    uint32_t next;    /* 1 + index, 0: none */
} block;

static block blocks[BLOCKS];
static uint32_t heads[BUCKETS], spare, used;
static bool overflown;
static atomic_flag taken = ATOMIC_FLAG_INIT;
static char out_buffer[BUFSIZ]; /* a block that stdio would have to the end */

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))
        ;
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&taken, memory_order_release);
}

static uint32_t *bucket_of(const volatile void *at)
{
    return &heads[((uintptr_t)at >> 4) * 0x9e3779b97f4a7c15u >> 48];
}

static void born(const volatile void *at, size_t size)
{
    (void)size;
    lock();
    uint32_t i = spare ? spare : used < BLOCKS ? ++used : 0;
    if (i) {
        block *b = &blocks[i - 1];
        if (i == spare)
            spare = b->next;
        uint32_t *head = bucket_of(at);
        *b = (block){~(uintptr_t)at, *head};
        *head = i;
    } else {
        overflown = true;
    }
    unlock();
}

static void died(const volatile void *at)
{
    lock();
    for (uint32_t *link = bucket_of(at); *link; link = &blocks[*link - 1].next)
        if (blocks[*link - 1].hidden == ~(uintptr_t)at) {
            uint32_t i = *link;
            *link = blocks[i - 1].next;
            blocks[i - 1] = (block){0, spare};
            spare = i;
            break;
        }
    unlock();
}

/* frame 0 is malloc or one of its kin, frame 1 who called it */
static bool of_linker(void *at)
{
    void *frames[2] = {0};
    int thread;
    Dl_info who;
    if (__asan_get_alloc_stack(at, frames, 2, &thread) < 2 || !dladdr(frames[1], &who))
        return false;
    return strstr(who.dli_fname, "/ld-linux") != NULL;
}

static bool any_left(void)
{
    bool any = overflown;
    for (uint32_t i = 0; i < used && !any; i++)
        any = blocks[i].hidden && !of_linker((void *)~blocks[i].hidden);
    return any;
}

static void look(void)
{
    fflush(NULL);
    if (any_left() && __libc_freeres) /* locale, environment, time zone: the C library's own */
        __libc_freeres();
    if (any_left())
        __lsan_do_leak_check();
}

/* read by the sanitizer before anything else; what ASAN_OPTIONS says comes after it */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "leak_check_at_exit=0:allocator_may_return_null=1"; /* no memory is NULL here, too */
}

__attribute__((constructor(101))) static void begin(void)
{
    __sanitizer_install_malloc_and_free_hooks(born, died);
    if (!isatty(STDOUT_FILENO))
        setvbuf(stdout, out_buffer, _IOFBF, sizeof out_buffer);
    pthread_atfork(lock, unlock, unlock);
    atexit(look); /* the first to be registered is the last to run */
}
