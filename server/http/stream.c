/* stream.c - a reply in pieces: a bounded buffer between the thread that makes them and HTTP's
 * thread that sends them. The connection sleeps while the buffer is empty, and is woken only if it
 * sleeps: what is written meanwhile goes out with the next packet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/http.h"

enum { FIRST_ROOM = 4096, MOST_ROOM = 256 * 1024, BLOCK = 8192, SLICE_MS = 50 };

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
    if (x->n_out)
        n = give(x, buf, cap);
    else if (x->stream_ended && !x->cut) /* also for a client that asks no more, but listens */
        n = MHD_CONTENT_READER_END_OF_STREAM;
    else if (x->cut || atomic_load(&x->client_gone))
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    else {
        x->suspended = true;
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

/* Makes room for n more bytes, at most MOST_ROOM in all. False: not now. */
static bool make_room(srv_exchange *x, size_t n)
{
    if (x->out_at + x->n_out + n <= x->n_out_room)
        return true;
    if (x->n_out + n > MOST_ROOM)
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
    double until = now + SLICE_MS;
    struct timespec t = {.tv_sec = (time_t)(until / 1e3)};
    t.tv_nsec = (long)((until - (double)t.tv_sec * 1e3) * 1e6);
    pthread_cond_timedwait(&x->room, &x->lock, &t);
    return true;
}

/* The client reads nothing: as good as gone. The watcher ends the connection. */
static void give_up(srv_exchange *x)
{
    atomic_store(&x->send_by_ms, 1);
    srv_exchange_hung_up(x);
}

/* Appends a piece of at most MOST_ROOM / 2 bytes; `more`: it goes on. Where there is room, also
 * after the deadline: a stream may say why it ends. False: the piece is lost, and the stream is
 * seen to be cut. */
static bool push(srv_exchange *x, const char *bytes, size_t n, bool more)
{
    bool in_time = true, room;
    pthread_mutex_lock(&x->lock);
    while (!(room = make_room(x, n)) && in_time && !srv_gone(x) && !x->completed)
        in_time = wait_for_client(x);
    bool there = room && !atomic_load(&x->client_gone) && !x->completed && x->streaming;
    x->cut |= !there;
    x->mid = more;
    if (there) {
        if (!x->n_out)
            x->out_moved_ms = srv_steady_ms();
        memcpy(x->out + x->out_at + x->n_out, bytes, n);
        x->n_out += n;
    }
    srv_exchange_unlock(x);
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

void srv_stream_end(srv_exchange *x)
{
    double patience = x->server->config->write_timeout_s * 1e3;
    pthread_mutex_lock(&x->lock);
    x->stream_ended = true;
    x->cut |= atomic_load(&x->client_gone); /* the handler may have stopped for that */
    atomic_store(&x->send_by_ms, (int64_t)(srv_steady_ms() + patience));
    srv_exchange_unlock(x);
}

bool srv_stream_event(srv_exchange *x, const char *name, json_t *value)
{
    char head[80] = "data: ";
    size_t n_head = 6;
    char *data = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (!data)
        return false;
    if (name)
        n_head = (size_t)snprintf(head, sizeof head, "event: %.60s\ndata: ", name);
    size_t n_data = strlen(data);
    char *event = malloc(n_head + n_data + 2);
    if (event) {
        memcpy(event, head, n_head);
        memcpy(event + n_head, data, n_data);
        memcpy(event + n_head + n_data, "\n\n", 2);
    }
    bool ok = event && srv_stream_write(x, event, n_head + n_data + 2);
    free(event);
    free(data);
    return ok;
}
