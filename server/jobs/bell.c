/* bell.c - see bell.h. */
#include "jobs/bell.h"

#include "jobs/clock.h"

void srv_bell_open(srv_bell *b)
{
    pthread_mutex_init(&b->lock, NULL);
    srv_cond_open(&b->sound);
    b->rung = false;
}

void srv_bell_close(srv_bell *b)
{
    pthread_cond_destroy(&b->sound);
    pthread_mutex_destroy(&b->lock);
}

void srv_bell_ring(srv_bell *b)
{
    pthread_mutex_lock(&b->lock);
    bool first = !b->rung;
    b->rung = true;
    pthread_mutex_unlock(&b->lock);
    if (first) /* who wakes finds the lock free */
        pthread_cond_signal(&b->sound);
}

void srv_bell_wait(srv_bell *b, double ms)
{
    struct timespec t = srv_clock_after(ms);
    pthread_mutex_lock(&b->lock);
    while (!b->rung)
        if (pthread_cond_timedwait(&b->sound, &b->lock, &t) != 0)
            break;
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
}
