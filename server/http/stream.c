/* stream.c - a reply in pieces: a bounded buffer between the thread that makes them and HTTP's
 * thread that sends them. The connection sleeps while the buffer is empty. Waking HTTP's thread for
 * every piece would cost more than sending it: while the connection sleeps, the thread that makes
 * the piece sends it itself, as a chunk of the reply, and wakes HTTP's thread only if the client
 * does not take it at once. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http.h"
#include "http/short_memory.h"
#include "jobs/clock.h"

enum {
    FIRST_ROOM = 4096,
    MOST_ROOM = 256 * 1024,
    MOST_GATHERED = 16 * MOST_ROOM, /* while nobody may wait for the client */
    BLOCK = 8192,
    SLICE_MS = 50
};

/* ---- HTTP's side ---- */

static ssize_t give(srv_exchange *x, char *buf, size_t cap)
{
    size_t n = x->n_out < cap ? x->n_out : cap;
    memcpy(buf, x->out + x->out_at, n);
    x->out_at += n;
    x->n_out -= n;
    x->out_moved_ms = srv_steady_ms();
    pthread_cond_broadcast(&x->room);
    return (ssize_t)n;
}

/* libmicrohttpd asks for what comes next. */
static ssize_t on_read(void *exchange, uint64_t position, char *buf, size_t cap)
{
    srv_exchange *x = exchange;
    ssize_t n = 0;
    (void)position;
    pthread_mutex_lock(&x->lock);
    if (x->n_rest) /* a chunk was begun that nobody finishes */
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (x->n_out)
        n = give(x, buf, cap);
    else if (x->stream_ended && !x->cut) /* also for a client that asks no more, but listens */
        n = MHD_CONTENT_READER_END_OF_STREAM;
    else if (x->cut || atomic_load(&x->client_gone))
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    else {
        x->suspended = true;
        x->may_send = !x->is_old; /* it asks for more once all that went before is sent */
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return n;
}

static void on_free(void *exchange)
{
    srv_exchange_release(exchange);
}

/* ---- the handler's side ---- */

void srv_stream_begin(srv_exchange *x, const char *content_type)
{
    if (x->local) {
        srv_fail(x, 400, "no_stream", "stream", "there are no streams here; leave stream out");
        return;
    }
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, x, on_free);
    if (!r) {
        srv_fail(x, 503, "out_of_memory", NULL, "there is no memory for a stream");
        return;
    }
    srv_exchange_hold(x); /* the response's */
    MHD_add_response_header(r, "Content-Type", content_type);
    MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* nginx: pass every piece on */
    pthread_mutex_lock(&x->lock);
    x->streaming = !x->replied;
    x->nothing = strncmp(content_type, "text/event-stream", 17) == 0 ? ":\n\n" : " ";
    x->out_moved_ms = srv_steady_ms();
    pthread_mutex_unlock(&x->lock);
    srv_reply_with(x, 200, r, 0);
}

/* ---- sending ---- */

/* Keeps what the client did not take of a chunk: the bytes from `from` on of its three parts. */
static void keep_rest(srv_exchange *x, const struct iovec *parts, size_t from)
{
    size_t n = 0, all = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
    x->rest = malloc(all - from);
    x->n_rest = all - from;
    for (size_t i = 0; x->rest && i < 3; i++) {
        size_t skip = from < parts[i].iov_len ? from : parts[i].iov_len;
        memcpy(x->rest + n, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
        n += parts[i].iov_len - skip;
        from -= skip;
    }
    x->cut |= !x->rest;
}

/* Sends all that is in the buffer as one chunk, if HTTP's thread sleeps and the client takes it
 * now. What is left in the buffer is for HTTP's thread; a rest is for finish_rest. Under the lock.
 */
static void send_now(srv_exchange *x)
{
    char size[24];
    if (!x->suspended || !x->may_send || !x->n_out || x->n_rest || x->cut)
        return;
    struct iovec parts[3] = {{size, (size_t)snprintf(size, sizeof size, "%zx\r\n", x->n_out)},
                             {x->out + x->out_at, x->n_out},
                             {(char *)(uintptr_t) "\r\n", 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    ssize_t n = sendmsg(x->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0)
        return;
    if ((size_t)n < parts[0].iov_len + x->n_out + 2)
        keep_rest(x, parts, (size_t)n);
    x->out_at = x->n_out = 0;
    x->out_moved_ms = srv_steady_ms();
}

/* Lets go of the lock. HTTP's thread is woken if there is something for it to do. */
static void unlock(srv_exchange *x)
{
    bool sleeps_on = x->suspended && x->may_send && !x->n_out && !x->stream_ended && !x->cut;
    if (sleeps_on)
        pthread_mutex_unlock(&x->lock);
    else
        srv_exchange_unlock(x);
}

/* Makes room for n more bytes, at most MOST_ROOM in all, or MOST_GATHERED. False: not now. */
static bool make_room(srv_exchange *x, size_t n)
{
    if (x->out_at + x->n_out + n <= x->n_out_room)
        return true;
    if (x->n_out + n > (x->gathers ? MOST_GATHERED : MOST_ROOM))
        return false;
    if (x->out_at) {
        memmove(x->out, x->out + x->out_at, x->n_out);
        x->out_at = 0;
    }
    size_t room = x->n_out_room ? x->n_out_room : FIRST_ROOM;
    while (room < x->n_out + n)
        room *= 2;
    char *grown = room == x->n_out_room ? x->out : realloc(x->out, room);
    if (!grown)
        return false;
    x->out = grown;
    x->n_out_room = room;
    return true;
}

/* Waits until the client has taken something, at most for a moment: nobody wakes who waits when the
 * deadline passes or the server ends. False: the client has taken nothing for too long. */
static bool wait_for_client(srv_exchange *x)
{
    double now = srv_steady_ms();
    if (now > x->out_moved_ms + x->server->config->write_timeout_s * 1e3)
        return false;
    struct timespec t = srv_clock_after(SLICE_MS);
    pthread_cond_timedwait(&x->room, &x->lock, &t);
    return true;
}

/* The client reads nothing: as good as gone. The watcher ends the connection. */
static void give_up(srv_exchange *x)
{
    atomic_store(&x->send_by_ms, 1);
    srv_exchange_hung_up(x);
}

/* Waits until the client has taken the rest of a chunk that was begun, as long as it takes
 * something. Under the lock, which is let go meanwhile: HTTP's thread sleeps. */
static void finish_rest(srv_exchange *x)
{
    size_t at = 0;
    x->cut |= !x->suspended || x->completed; /* then the descriptor may be another client's */
    while (x->rest && at < x->n_rest && !x->cut) {
        ssize_t n = send(x->fd, x->rest + at, x->n_rest - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        double now = srv_steady_ms();
        if (n > 0) {
            at += (size_t)n;
            x->out_moved_ms = now;
            continue;
        }
        x->cut = (errno != EAGAIN && errno != EINTR) || srv_gone(x) ||
                 now > x->out_moved_ms + x->server->config->write_timeout_s * 1e3;
        struct pollfd p = {.fd = x->fd, .events = POLLOUT};
        pthread_mutex_unlock(&x->lock);
        poll(&p, 1, SLICE_MS);
        pthread_mutex_lock(&x->lock);
        x->cut |= !x->suspended; /* woken by whoever found the client gone: it is HTTP's again */
    }
    if (!x->cut) {
        free(x->rest);
        x->rest = NULL;
        x->n_rest = 0;
    }
}

/* Appends a piece of at most MOST_ROOM / 2 bytes; `more`: it goes on. Where there is room, also
 * after the deadline: a stream may say why it ends. False: the piece is lost, and the stream is
 * seen to be cut. */
static bool push(srv_exchange *x, const char *bytes, size_t n, bool more)
{
    bool in_time = true, room;
    pthread_mutex_lock(&x->lock);
    if (x->n_rest)
        finish_rest(x);
    while (!(room = make_room(x, n)) && !x->gathers && in_time && !srv_gone(x) && !x->completed)
        in_time = wait_for_client(x);
    bool there =
        room && !x->n_rest && !atomic_load(&x->client_gone) && !x->completed && x->streaming;
    x->cut |= !there;
    x->mid = more;
    if (there) {
        if (!x->n_out)
            x->out_moved_ms = srv_steady_ms();
        memcpy(x->out + x->out_at + x->n_out, bytes, n);
        x->n_out += n;
    }
    if (x->gathers && there) {
        pthread_mutex_unlock(&x->lock);
        return true;
    }
    send_now(x);
    if (x->n_rest)
        finish_rest(x);
    unlock(x);
    if (!in_time && !room)
        give_up(x);
    return there;
}

bool srv_stream_write(srv_exchange *x, const void *bytes, size_t n_bytes)
{
    const char *p = bytes;
    for (size_t n; n_bytes; p += n, n_bytes -= n) {
        n = n_bytes < MOST_ROOM / 2 ? n_bytes : MOST_ROOM / 2;
        if (!push(x, p, n, n < n_bytes))
            return false;
    }
    return !atomic_load(&x->client_gone);
}

void srv_stream_gather(srv_exchange *x, bool gathers)
{
    pthread_mutex_lock(&x->lock);
    x->gathers = gathers;
    if (!gathers && x->n_rest)
        finish_rest(x);
    if (!gathers && (x->n_out || x->cut))
        unlock(x);
    else
        pthread_mutex_unlock(&x->lock);
}

static bool is_quick(const srv_exchange *x)
{
    return !x->n_rest && x->n_out < MOST_ROOM / 8;
}

bool srv_stream_room(srv_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool quick = is_quick(x);
    pthread_mutex_unlock(&x->lock);
    return quick;
}

bool srv_stream_flush(srv_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    send_now(x);
    bool quick = is_quick(x);
    if (!x->n_out && !x->cut)
        pthread_mutex_unlock(&x->lock);
    else
        unlock(x);
    return quick;
}

void srv_stream_end(srv_exchange *x)
{
    double patience = x->server->config->write_timeout_s * 1e3;
    pthread_mutex_lock(&x->lock);
    x->gathers = false;
    send_now(x);
    if (x->n_rest)
        finish_rest(x);
    x->stream_ended = true;
    x->cut |= atomic_load(&x->client_gone); /* the handler may have stopped for that */
    atomic_store(&x->send_by_ms, (int64_t)(srv_steady_ms() + patience));
    srv_exchange_unlock(x);
}

/* A piece could not be made: the stream is seen to be cut. Returns false. */
static bool lose(srv_exchange *x)
{
    srv_memory_forget();
    pthread_mutex_lock(&x->lock);
    x->cut = true;
    pthread_mutex_unlock(&x->lock);
    return false;
}

bool srv_stream_event(srv_exchange *x, const char *name, json_t *value)
{
    char head[80] = "data: ";
    size_t n_head = 6;
    char *data = srv_json_whole(value);
    json_decref(value);
    if (!data)
        return lose(x);
    if (name)
        n_head = (size_t)snprintf(head, sizeof head, "event: %.60s\ndata: ", name);
    size_t n_data = strlen(data);
    char *event = malloc(n_head + n_data + 2);
    if (event) {
        memcpy(event, head, n_head);
        memcpy(event + n_head, data, n_data);
        memcpy(event + n_head + n_data, "\n\n", 2);
    }
    bool ok = event ? srv_stream_write(x, event, n_head + n_data + 2) : lose(x);
    free(event);
    free(data);
    return ok;
}
