/* ask_back.c - a client that has closed its side of the connection: has it gone, or does it listen?
 * TCP tells only who sends: a system whose program has gone answers that with a reset, which the
 * watcher finds. So the client is sent what HTTP lets it pass over: before the reply an interim one
 * (100), in a stream what says nothing between two pieces. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http.h"

static const double PERIOD_MS = 1000;
enum { FIRST_ROOM = 256 };

/* The whole of it or nothing: the socket has room, because nothing was sent since the request. */
static void send_interim(int fd)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    (void)!send(fd, interim, sizeof interim - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool stream_nothing(srv_exchange *x)
{
    size_t n = strlen(x->nothing);
    bool idle = x->suspended && !x->n_out && !x->n_rest && !x->mid && !x->stream_ended;
    if (idle && !x->n_out_room && (x->out = malloc(FIRST_ROOM))) /* nothing was written yet */
        x->n_out_room = FIRST_ROOM;
    if (!idle || x->n_out_room < n)
        return false;
    memcpy(x->out, x->nothing, n);
    x->out_at = 0;
    x->n_out = n;
    x->out_moved_ms = srv_steady_ms();
    return true;
}

void srv_exchange_ping(srv_exchange *x, double now)
{
    double most = x->server->config->ping_s * 1e3;
    pthread_mutex_lock(&x->lock);
    bool silent = x->streaming && x->nothing[0] == ':' && now - x->out_moved_ms >= most;
    if (silent && stream_nothing(x))
        srv_exchange_unlock(x);
    else
        pthread_mutex_unlock(&x->lock);
}

bool srv_exchange_ask_back(srv_exchange *x, int fd, double now)
{
    bool can = true;
    pthread_mutex_lock(&x->lock);
    if (now - x->asked_ms < PERIOD_MS || x->completed) {
        pthread_mutex_unlock(&x->lock);
        return true;
    }
    x->asked_ms = now;
    if (x->streaming && stream_nothing(x)) {
        srv_exchange_unlock(x); /* HTTP's thread sends it */
        return true;
    }
    if (!x->replied) {
        can = !x->is_old;
        if (can)
            send_interim(fd);
    }
    pthread_mutex_unlock(&x->lock);
    return can;
}
