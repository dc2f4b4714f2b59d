/* progress.h - how far something long has come, told to a caller who asked for it, and whether the
 * caller wants no more of it. */
#ifndef BNET_PROGRESS_H
#define BNET_PROGRESS_H

#include <pthread.h>

#include "base/base.h"

/* Whom long work asks, on the thread that called, whether to end. */
typedef struct bnet_cancel {
    bitnet_cancel_fn ask; /* NULL: nobody */
    void *user;
} bnet_cancel;

static inline bool bnet_cancelled(const bnet_cancel *c)
{
    return c->ask && c->ask(c->user);
}

/* A condition for bnet_cond_wait. */
void bnet_cond_init(pthread_cond_t *cond);
/* Waits like pthread_cond_wait, but for a few milliseconds at a time if there is somebody to ask,
 * who is asked without the lock: what the lock guards may have changed. False: the caller wants no
 * more. */
bool bnet_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, const bnet_cancel *c);

typedef struct bnet_progress {
    bitnet_progress_fn tell; /* NULL: nobody asked */
    void *user;
    uint64_t done, total;
    bnet_cancel cancel;
} bnet_progress;

/* So much is done in all. What is told never falls. False: the caller wants no more of it. */
static inline bool bnet_progress_at(bnet_progress *p, uint64_t done)
{
    if (!p)
        return true;
    p->done = BNET_MAX(p->done, BNET_MIN(done, p->total));
    return !bnet_cancelled(&p->cancel) && (!p->tell || p->tell(p->user, p->done, p->total));
}

/* So much more is done. */
static inline bool bnet_progress_add(bnet_progress *p, uint64_t n)
{
    return !p || bnet_progress_at(p, p->done + n);
}

/* All of it is, whether it was told in pieces or not. */
static inline bool bnet_progress_end(bnet_progress *p)
{
    return !p || p->done == p->total || bnet_progress_at(p, p->total);
}

#endif
