/* workers.c - threads that run handlers. They come when needed, up to a bound, and go when nobody
 * has needed them for a while. */
#include <limits.h>
#include <stdlib.h>

#include "http/http.h"
#include "jobs/clock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK_BYTES = 4 << 20 }; /* frames of a sanitizer are larger */
#else
enum { STACK_BYTES = 1 << 20 }; /* of memory it takes what was used, 512 levels of JSON at most */
#endif
enum { LINGER_S = 20 };

struct srv_workers {
    pthread_mutex_t lock;
    pthread_cond_t work, gone;
    srv_exchange *first, **last; /* the queue */
    int most, n_threads, n_idle; /* idle: waiting, and not yet promised to a queued exchange */
    bool ends;
};

srv_workers *srv_workers_open(int most)
{
    srv_workers *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->most = most;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    srv_cond_open(&w->work);
    pthread_cond_init(&w->gone, NULL);
    return w;
}

/* The next exchange; NULL: none came for a while, or it is over. The caller has the lock. */
static srv_exchange *next(srv_workers *w)
{
    struct timespec t = srv_clock_after(LINGER_S * 1e3);
    while (!w->first && !w->ends)
        if (pthread_cond_timedwait(&w->work, &w->lock, &t) != 0)
            break;
    srv_exchange *x = w->first;
    if (!x)
        return NULL;
    w->first = x->next;
    if (!w->first)
        w->last = &w->first;
    return x;
}

static void *worker_main(void *workers)
{
    srv_workers *w = workers;
    srv_exchange *x;
    pthread_mutex_lock(&w->lock);
    while ((x = next(w)) != NULL) {
        pthread_mutex_unlock(&w->lock);
        srv_exchange_work(x);
        pthread_mutex_lock(&w->lock);
        w->n_idle++;
    }
    w->n_idle--;
    w->n_threads--;
    pthread_cond_signal(&w->gone);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static bool start_thread(srv_workers *w)
{
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small,
                              STACK_BYTES > PTHREAD_STACK_MIN ? STACK_BYTES : PTHREAD_STACK_MIN);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    bool ok = pthread_create(&thread, &small, worker_main, w) == 0;
    pthread_attr_destroy(&small);
    w->n_threads += ok;
    return ok;
}

bool srv_workers_give(srv_workers *w, srv_exchange *x)
{
    bool ok = true;
    pthread_mutex_lock(&w->lock);
    if (w->ends)
        ok = false;
    else if (w->n_idle > 0)
        w->n_idle--;
    else
        ok = w->n_threads < w->most && start_thread(w);
    if (ok) {
        x->next = NULL;
        *w->last = x;
        w->last = &x->next;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return ok;
}

void srv_workers_end(srv_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_broadcast(&w->work);
    while (w->n_threads)
        pthread_cond_wait(&w->gone, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void srv_workers_close(srv_workers *w)
{
    if (!w)
        return;
    srv_workers_end(w);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->gone);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
