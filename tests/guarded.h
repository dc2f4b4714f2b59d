/* guarded.h - inputs of kernels that end at a guard page: one byte read too far ends the test. */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include "test.h"

#include <sys/mman.h>
#include <unistd.h>

/* n bytes that end exactly at an unreadable page. */
typedef struct guarded {
    uint8_t *map, *data;
    size_t n_map;
} guarded;

static inline guarded guard_new(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    guarded g = {.n_map = body + page};
    g.map = mmap(NULL, g.n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + body, page, PROT_NONE), 0);
    g.data = g.map + body - n;
    return g;
}

static inline void guard_free(guarded *g)
{
    munmap(g->map, g->n_map);
}

#endif
