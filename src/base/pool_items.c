/* pool_items.c - a range of items divided among the threads of a pool. */
#include "base/thread.h"

typedef struct items_job {
    size_t n, grain;
    bnet_items_fn fn;
    void *arg;
} items_job;

static void items_part(void *arg, bnet_share part)
{
    const items_job *j = arg;
    size_t begin, end;
    bnet_split(j->n, j->grain, part.index, part.count, &begin, &end);
    if (begin < end)
        j->fn(j->arg, begin, end);
}

void bnet_pool_items(bnet_pool *pool, size_t n, size_t grain, size_t cost, bnet_items_fn fn,
                     void *arg)
{
    if (n * cost < BNET_POOL_SMALL || n <= grain) {
        fn(arg, 0, n);
        return;
    }
    items_job job = {n, grain, fn, arg};
    bnet_pool_run(pool, items_part, &job);
}
