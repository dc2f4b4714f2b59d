/* bell.h - wakes one thread that serves many: however often a bell is rung before the thread hears
 * it, the thread wakes once. */
#ifndef SRV_BELL_H
#define SRV_BELL_H

#include <pthread.h>
#include <stdbool.h>

typedef struct srv_bell {
    pthread_mutex_t lock;
    pthread_cond_t sound;
    bool rung;
} srv_bell;

void srv_bell_open(srv_bell *b);
/* Requires: nobody rings it or waits any more. */
void srv_bell_close(srv_bell *b);
/* Any thread; waits for nothing. */
void srv_bell_ring(srv_bell *b);
/* Sleeps until it is rung, or was rung since the last call; at most so many milliseconds. One
 * thread alone. */
void srv_bell_wait(srv_bell *b, double ms);

#endif
