/* tellers.c - see tellers.h. Hides: which thread tells whom. A thread takes up to 16 before the
 * next one is started, so that few streams wake one thread and many are told by several at a time.
 */
#include "jobs/tellers.h"

#include <stdlib.h>

enum { FEW = 16, MOST_TELLERS = 8 };
static const double look_ms = 50, forever_ms = 1e9;

/* One call of srv_tellers_run; on its stack. */
typedef struct entry {
    const srv_telling *what;
    struct entry *next;
    pthread_cond_t over;
    bool done;
} entry;

typedef struct teller {
    srv_tellers *all;
    srv_bell bell;
    pthread_t thread;
    bool started;
    size_t n;      /* tellings: under the lock */
    entry *coming; /* not yet seen by the thread: under the lock */
    bool ends;     /* under the lock */
    entry *mine;   /* of the thread alone */
} teller;

struct srv_tellers {
    pthread_mutex_t lock;
    teller tellers[MOST_TELLERS];
    int n;
};

/* ---- the threads ---- */

static void finish(teller *t, entry *e)
{
    pthread_mutex_lock(&t->all->lock);
    t->n--;
    e->done = true;
    pthread_cond_signal(&e->over);
    pthread_mutex_unlock(&t->all->lock);
}

static void tell_all(teller *t)
{
    for (entry **at = &t->mine; *at;) {
        entry *e = *at;
        if (e->what->tell(e->what->user)) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        finish(t, e);
    }
}

/* Takes who has come to the others. False: it is to end. */
static bool take_coming(teller *t)
{
    pthread_mutex_lock(&t->all->lock);
    entry **last = &t->mine;
    while (*last)
        last = &(*last)->next;
    *last = t->coming;
    t->coming = NULL;
    bool go_on = !t->ends;
    pthread_mutex_unlock(&t->all->lock);
    return go_on;
}

static void *teller_main(void *teller_)
{
    teller *t = teller_;
    while (take_coming(t)) {
        tell_all(t);
        srv_bell_wait(&t->bell, t->mine ? look_ms : forever_ms);
    }
    return NULL;
}

/* ---- who tells ---- */

/* The first that has room; if none has, the one that has least to do. */
static teller *choose(srv_tellers *all)
{
    teller *best = NULL;
    for (int i = 0; i < all->n; i++) {
        teller *t = &all->tellers[i];
        if (t->n < FEW)
            return t;
        if (!best || t->n < best->n)
            best = t;
    }
    return best;
}

/* Under the lock. NULL: no thread could be started. */
static teller *ready_teller(srv_tellers *all)
{
    teller *t = choose(all);
    if (!t->started)
        t->started = pthread_create(&t->thread, NULL, teller_main, t) == 0;
    return t->started ? t : NULL;
}

bool srv_tellers_run(srv_tellers *all, const srv_telling *what)
{
    entry e = {.what = what};
    pthread_mutex_lock(&all->lock);
    teller *t = ready_teller(all);
    if (t) {
        pthread_cond_init(&e.over, NULL);
        t->n++;
        e.next = t->coming;
        t->coming = &e;
        what->listen(what->user, &t->bell);
    }
    pthread_mutex_unlock(&all->lock);
    if (!t)
        return false;
    srv_bell_ring(&t->bell);
    pthread_mutex_lock(&all->lock);
    while (!e.done)
        pthread_cond_wait(&e.over, &all->lock);
    pthread_mutex_unlock(&all->lock);
    what->listen(what->user, NULL);
    pthread_cond_destroy(&e.over);
    return true;
}

/* ---- life ---- */

srv_tellers *srv_tellers_open(int most)
{
    srv_tellers *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    pthread_mutex_init(&all->lock, NULL);
    all->n = most < 1 ? 1 : most < MOST_TELLERS ? most : MOST_TELLERS;
    for (int i = 0; i < all->n; i++) {
        all->tellers[i].all = all;
        srv_bell_open(&all->tellers[i].bell);
    }
    return all;
}

static void end_teller(srv_tellers *all, teller *t)
{
    pthread_mutex_lock(&all->lock);
    t->ends = true;
    pthread_mutex_unlock(&all->lock);
    srv_bell_ring(&t->bell);
    if (t->started)
        pthread_join(t->thread, NULL);
    srv_bell_close(&t->bell);
}

void srv_tellers_close(srv_tellers *all)
{
    if (!all)
        return;
    for (int i = 0; i < all->n; i++)
        end_teller(all, &all->tellers[i]);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
