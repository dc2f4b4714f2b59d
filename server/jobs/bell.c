/* bell.c - see bell.h. */
#include "jobs/bell.h"

#include <time.h>

void srv_bell_open(srv_bell *b)
{
    pthread_condattr_t steady;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&b->sound, &steady);
    pthread_condattr_destroy(&steady);
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
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long ns = (long long)(ms * 1e6) + t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&b->lock);
    while (!b->rung)
        if (pthread_cond_timedwait(&b->sound, &b->lock, &t) != 0)
            break;
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
}
