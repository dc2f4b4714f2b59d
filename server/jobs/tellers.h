/* tellers.h - threads that tell clients what was made for them, many clients each. The thread of a
 * request sleeps meanwhile: a step of a scheduler wakes one thread for the streams of many
 * requests, not one for each. */
#ifndef SRV_TELLERS_H
#define SRV_TELLERS_H

#include "jobs/bell.h"

typedef struct srv_tellers srv_tellers;

/* At most so many threads; each is started when those before have enough to do. NULL: no memory. */
srv_tellers *srv_tellers_open(int most);
/* Requires: no call of srv_tellers_run is under way, and nobody rings their bells any more. */
void srv_tellers_close(srv_tellers *t);

typedef struct srv_telling {
    /* Tells what there is without waiting for anything. False: this was the last time. */
    bool (*tell)(void *user);
    /* From now on this bell is to be rung when there is something; NULL: none is. */
    void (*listen)(void *user, srv_bell *bell);
    void *user;
} srv_telling;

/* Has a thread call `tell` whenever its bell was rung, and every 50 ms in any case, until it
 * returns false; the calling thread sleeps so long. False: there is no thread for that, nothing was
 * done. */
bool srv_tellers_run(srv_tellers *t, const srv_telling *what);

#endif
