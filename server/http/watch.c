/* watch.c - what libmicrohttpd does not see: clients that go away while their request is computed,
 * and those that take forever to ask or to listen. One thread looks every 50 ms at the connections
 * whose requests run or come in, and at a few of those that wait, in turn; thousands of idle
 * connections cost it next to nothing. */
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "http/http.h"
#include "jobs/clock.h"

/* How many a round looks at, of those whose requests are on their way and of those that wait. */
enum { PERIOD_MS = 50, MOST_READING = 1024, MOST_WAITING = 256 };

static const double PING_MS = 250; /* so often streams are looked at that may be silent */

typedef struct list {
    watched *first, *last; /* longest in this state first */
    size_t n;
    /* Some are looked at in each round, in turn, until all that were there at the first have been:
     * those that come meanwhile, at the end, must not keep the others waiting. */
    watched *in_turn;
    size_t n_left;
} list;

struct srv_watch {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool ends, pings;
    double most_ms[N_WATCH_STATES]; /* 0: no limit */
    list lists[N_WATCH_STATES];
    /* of the thread alone */
    struct pollfd *polled;
    srv_exchange **exchanges;
    size_t n_room;
    double pinged_ms;
};

/* ---- lists ---- */

static void unlink_from(list *l, watched *c)
{
    l->n--;
    if (l->in_turn == c)
        l->in_turn = c->after;
    *(c->before ? &c->before->after : &l->first) = c->after;
    *(c->after ? &c->after->before : &l->last) = c->before;
    c->before = c->after = NULL;
}

static void append_to(list *l, watched *c)
{
    l->n++;
    c->before = l->last;
    c->after = NULL;
    *(l->last ? &l->last->after : &l->first) = c;
    l->last = c;
}

static void put(srv_watch *w, watched *c, watch_state state, srv_exchange *x)
{
    c->state = state;
    c->exchange = x;
    c->since_ms = srv_steady_ms();
    append_to(&w->lists[state], c);
}

static void take(srv_watch *w, watched *c)
{
    unlink_from(&w->lists[c->state], c);
}

void srv_watch_add(srv_watch *w, watched *c, int fd)
{
    pthread_mutex_lock(&w->lock);
    c->fd = fd;
    put(w, c, WATCH_WAITING, NULL);
    pthread_mutex_unlock(&w->lock);
}

void srv_watch_move(srv_watch *w, watched *c, watch_state state, srv_exchange *x)
{
    pthread_mutex_lock(&w->lock);
    take(w, c);
    put(w, c, state, x);
    pthread_mutex_unlock(&w->lock);
}

void srv_watch_remove(srv_watch *w, watched *c)
{
    pthread_mutex_lock(&w->lock);
    take(w, c);
    pthread_mutex_unlock(&w->lock);
}

/* ---- looking ---- */

/* libmicrohttpd finds the connection closed and lets go of it. The descriptor is still the same
 * one: a connection leaves its list before it is closed. */
static void shut(const watched *c)
{
    shutdown(c->fd, SHUT_RDWR);
}

static void shut_overdue(srv_watch *w, watch_state state, double now)
{
    for (watched *c = w->lists[state].first; c; c = w->lists[state].first) {
        if (!w->most_ms[state] || now - c->since_ms <= w->most_ms[state])
            return;
        shut(c);
        take(w, c);
        put(w, c, state, c->exchange); /* once is enough for a while */
    }
}

static bool make_room(srv_watch *w)
{
    size_t n = w->lists[WATCH_BUSY].n, most = n > MOST_READING ? n : MOST_READING;
    size_t room = most + most / 2;
    if (most <= w->n_room)
        return true;
    struct pollfd *polled = realloc(w->polled, room * sizeof *polled);
    w->polled = polled ? polled : w->polled;
    srv_exchange **exchanges = realloc(w->exchanges, room * sizeof *exchanges);
    w->exchanges = exchanges ? exchanges : w->exchanges;
    if (polled && exchanges)
        w->n_room = room;
    return polled && exchanges;
}

/* Looks at the clocks of a running exchange. */
static void check_times(const watched *c, double now)
{
    srv_exchange *x = c->exchange;
    int64_t send_by = atomic_load(&x->send_by_ms);
    if (send_by && now > (double)send_by)
        shut(c);
    if (x->deadline_ms > 0 && now > x->deadline_ms)
        atomic_store(&x->late, true);
}

static bool has_unread(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

/* Puts those whose turn it is into `polled`. Returns how many. */
static size_t take_turns(srv_watch *w, list *l, size_t most)
{
    size_t n = 0;
    if (!l->in_turn || !l->n_left) {
        l->in_turn = l->first;
        l->n_left = l->n;
    }
    for (; l->in_turn && l->n_left && n < most; l->in_turn = l->in_turn->after, l->n_left--)
        w->polled[n++] = (struct pollfd){.fd = l->in_turn->fd, .events = POLLRDHUP};
    return n;
}

/* Clients that have closed their side with half a request, or after the last. libmicrohttpd hears
 * of changes alone, and forgets such an end if it came with the bytes read last. It is told by one
 * more change, after which it still reads what came before, and sends: what was read may have
 * become a whole request by now. */
static void tell_of_ends(srv_watch *w, watch_state state, size_t most)
{
    size_t n = take_turns(w, &w->lists[state], most);
    if (!n || poll(w->polled, n, 0) <= 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (w->polled[i].revents && !has_unread(w->polled[i].fd))
            shutdown(w->polled[i].fd, SHUT_RD);
}

/* Which clients of running exchanges have closed something? Those exchanges are held, for the
 * caller to look after. */
static size_t find_closed(srv_watch *w, double now)
{
    size_t n = 0, n_closed = 0;
    for (watched *c = w->lists[WATCH_BUSY].first; c; c = c->after) {
        check_times(c, now);
        w->exchanges[n] = c->exchange;
        w->polled[n++] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
    }
    if (!n || poll(w->polled, n, 0) <= 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (!w->polled[i].revents || atomic_load(&w->exchanges[i]->client_gone))
            continue;
        srv_exchange_hold(w->exchanges[i]);
        w->exchanges[n_closed] = w->exchanges[i];
        w->polled[n_closed++] = w->polled[i];
    }
    return n_closed;
}

/* A client that has closed both sides has gone, and so has one that sends no more and cannot be
 * asked. */
static void look_after(srv_exchange *x, const struct pollfd *polled, double now)
{
    bool both = polled->revents & ~POLLRDHUP;
    if (both || !srv_exchange_ask_back(x, polled->fd, now))
        srv_exchange_hung_up(x);
    srv_exchange_release(x);
}

/* Now and then, all running exchanges, held. */
static size_t hold_running(srv_watch *w, double now)
{
    size_t n = 0;
    if (!w->pings || now - w->pinged_ms < PING_MS)
        return 0;
    w->pinged_ms = now;
    for (watched *c = w->lists[WATCH_BUSY].first; c; c = c->after) {
        srv_exchange_hold(c->exchange);
        w->exchanges[n++] = c->exchange;
    }
    return n;
}

/* Streams that are silent send a comment. */
static void ping(srv_watch *w, double now)
{
    size_t n = hold_running(w, now);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < n; i++) {
        srv_exchange_ping(w->exchanges[i], now);
        srv_exchange_release(w->exchanges[i]);
    }
    pthread_mutex_lock(&w->lock);
}

/* A round; the lock is let go for what may take another. */
static void look(srv_watch *w)
{
    double now = srv_steady_ms();
    shut_overdue(w, WATCH_WAITING, now);
    shut_overdue(w, WATCH_READING, now);
    bool room = make_room(w);
    if (room) {
        tell_of_ends(w, WATCH_READING, MOST_READING);
        tell_of_ends(w, WATCH_WAITING, MOST_WAITING);
    }
    size_t n_closed = room ? find_closed(w, now) : 0;
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < n_closed; i++)
        look_after(w->exchanges[i], &w->polled[i], now);
    pthread_mutex_lock(&w->lock);
    if (make_room(w))
        ping(w, now);
}

static void pause_for(srv_watch *w, long ms)
{
    struct timespec t = srv_clock_after((double)ms);
    if (!w->ends)
        pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

static void *watch_main(void *watch)
{
    srv_watch *w = watch;
    pthread_mutex_lock(&w->lock);
    while (!w->ends) {
        look(w);
        pause_for(w, PERIOD_MS);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- life ---- */

srv_watch *srv_watch_open(const srv_config *config)
{
    srv_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    /* a first line that trickles in is bounded, too */
    w->most_ms[WATCH_WAITING] = (config->idle_timeout_s + config->read_timeout_s) * 1e3;
    w->most_ms[WATCH_READING] = config->read_timeout_s * 1e3;
    w->pings = config->ping_s > 0;
    pthread_mutex_init(&w->lock, NULL);
    srv_cond_open(&w->wake);
    if (pthread_create(&w->thread, NULL, watch_main, w) == 0)
        return w;
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void srv_watch_close(srv_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->polled);
    free(w->exchanges);
    free(w);
}
