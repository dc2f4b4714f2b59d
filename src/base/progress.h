/* progress.h - how far something long has come, told to a caller who asked for it. */
#ifndef BNET_PROGRESS_H
#define BNET_PROGRESS_H

#include "base/base.h"

typedef struct bnet_progress {
    bitnet_progress_fn tell; /* NULL: nobody asked */
    void *user;
    uint64_t done, total;
} bnet_progress;

/* So much is done in all. What is told never falls. False: the caller wants no more of it. */
static inline bool bnet_progress_at(bnet_progress *p, uint64_t done)
{
    if (!p || !p->tell)
        return true;
    p->done = BNET_MAX(p->done, BNET_MIN(done, p->total));
    return p->tell(p->user, p->done, p->total);
}

/* So much more is done. */
static inline bool bnet_progress_add(bnet_progress *p, uint64_t n)
{
    return !p || !p->tell || bnet_progress_at(p, p->done + n);
}

/* All of it is, whether it was told in pieces or not. */
static inline bool bnet_progress_end(bnet_progress *p)
{
    return !p || p->done == p->total || bnet_progress_at(p, p->total);
}

#endif
