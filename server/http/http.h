/* http.h - what the files of HTTP share, and no API sees: the daemon, an exchange from inside, the
 * watcher, the threads of requests.
 *
 * Who owns what. HTTP's threads (libmicrohttpd) read requests and send replies; they never wait.
 * A request whose route needs a key is handed to a thread of its own, and its connection is
 * suspended until there is something to send. An exchange lives while the connection or the thread
 * still holds it. Its `lock` guards everything below that comment; it is taken before any lock of
 * libmicrohttpd and after none of ours. */
#ifndef SRV_HTTP_H
#define SRV_HTTP_H

#include <microhttpd.h>
#include <pthread.h>
#include <setjmp.h>

#include "http/local.h"
#include "http/rate_limit.h"
#include "http/routes.h"
#include "server.h"

/* ---- watcher (watch.c): connections by what they are doing, and how long already ---- */

typedef enum watch_state { WATCH_WAITING, WATCH_READING, WATCH_BUSY, N_WATCH_STATES } watch_state;

typedef struct watched {
    struct watched *before, *after;
    watch_state state;
    double since_ms;
    int fd;
    srv_exchange *exchange; /* BUSY: the request on it */
} watched;

typedef struct srv_watch srv_watch;

/* Starts the thread that shuts down connections that take too long and tells exchanges whose
 * client has gone. NULL: it cannot. */
srv_watch *srv_watch_open(const srv_config *config);
void srv_watch_close(srv_watch *w);
void srv_watch_add(srv_watch *w, watched *c, int fd);
/* The connection does something else from now on. */
void srv_watch_move(srv_watch *w, watched *c, watch_state state, srv_exchange *x);
void srv_watch_remove(srv_watch *w, watched *c);

/* ---- threads of requests (workers.c) ---- */

typedef struct srv_workers srv_workers;

srv_workers *srv_workers_open(int most);
/* Waits until all threads have ended; no more exchanges are taken. */
void srv_workers_end(srv_workers *w);
/* The same, and frees them: nobody may give exchanges any more. NULL is legal. */
void srv_workers_close(srv_workers *w);
/* A thread will call srv_exchange_work(x). False: all are busy, or have been told to end. */
bool srv_workers_give(srv_workers *w, srv_exchange *x);

/* ---- the daemon ---- */

typedef struct srv_http {
    srv_server *server;
    struct MHD_Daemon *daemon;
    srv_watch *watch;
    srv_workers *workers;
    srv_rates *by_key, *by_address;
    bool is_unix, is_loopback; /* where it listens */
    char bound_host[256];      /* name or number as it was asked for */
    uint64_t id_base;          /* random: ids of two runs differ */
    _Atomic uint64_t n_ids;
    atomic_size_t n_running;  /* exchanges that were handed to threads and still live */
    atomic_size_t body_bytes; /* of all bodies in memory */
    atomic_size_t json_bytes; /* of their trees of JSON and of work on texts, estimated */
    /* while it stops listening: where its thread begins again */
    bool stopping;
    pthread_t stopper;
    jmp_buf again;
} srv_http;

/* Serves what comes in on the socket, which stays the caller's. Fails: MEMORY, ERROR. */
bitnet_status srv_http_open(srv_server *server, int listen_fd, bool is_unix, bool is_loopback,
                            srv_http **out, bitnet_error *err);
/* Ends all that runs and waits for it. */
void srv_http_close(srv_http *h);

/* ---- an exchange from inside ---- */

/* A header of the request, a variable of its query, or a header of the reply. */
typedef struct pair {
    struct pair *next;
    enum { OF_HEADER, OF_QUERY, OF_REPLY } kind;
    char *name, *value; /* both in this allocation */
} pair;

struct srv_exchange {
    srv_http *http;
    srv_server *server;
    struct MHD_Connection *connection; /* only while it is suspended, or on its own thread */
    watched *conn;                     /* only on its own thread */
    int fd;                            /* of the connection: while it is suspended; -1: none */
    atomic_int n_holders;
    srv_exchange *next; /* in the queue of workers */
    /* what was asked: set by HTTP's thread, constant once a handler sees it */
    const srv_route *route; /* NULL: none */
    srv_api api;
    char id[72], method[16];
    char *path, *part;
    pair *pairs;
    bool other_host; /* the first line asks for another host than the header */
    size_t key;      /* from 1; 0: none */
    char *body;
    size_t n_body, n_body_room;
    json_t *json;
    size_t n_json_bytes;  /* its part of the sum */
    size_t n_reply_bytes; /* and of that the part of its reply */
    bool begun;           /* headers were seen */
    bool handed;          /* to a handler */
    int refusal; /* of a body that is too large: this status, once it has been read; 0: none */
    bool closes; /* no other request comes on this connection */
    bool is_old; /* HTTP/1.0, which has no interim replies */
    double began_ms, deadline_ms; /* deadline 0: none */
    size_t n_prompt, n_generated;
    /* told by the watcher and by HTTP's thread */
    atomic_bool client_gone, late;
    _Atomic int64_t send_by_ms; /* when the client must have taken the reply; 0: no matter */
    /* the reply: under the lock */
    pthread_mutex_t lock;
    pthread_cond_t room;
    bool suspended, replied, completed, streaming, stream_ended;
    bool cut;            /* something of the stream was lost */
    bool mid;            /* the stream's last piece goes on */
    const char *nothing; /* what says nothing between two pieces of the stream */
    double asked_ms;     /* when a client that sends no more was last asked whether it listens */
    /* Libmicrohttpd has sent all it was given and sleeps until there is more: whoever has the lock
     * may send, too, in chunks as it does */
    bool may_send;
    bool gathers; /* what is written waits for srv_stream_flush */
    char *rest;   /* of a chunk that the client did not take whole: nothing may come before it */
    size_t n_rest;
    int status;
    struct MHD_Response *response; /* until it is queued */
    char *out; /* bytes of a stream that the client has not got: n_out from out_at on */
    size_t out_at, n_out, n_out_room;
    double out_moved_ms;
    srv_local_reply *local; /* where the reply goes instead of a connection (local.c); NULL: none */
};

double srv_steady_ms(void); /* of a clock that only goes forward */

srv_exchange *srv_exchange_new(srv_http *h, struct MHD_Connection *connection, watched *conn);
void srv_exchange_hold(srv_exchange *x);
/* The last one to let go logs the request and frees it. */
void srv_exchange_release(srv_exchange *x);
/* Runs the handler on the calling thread, sees to it that there is a reply, and lets go. */
void srv_exchange_work(srv_exchange *x);
/* For who has the lock: lets it go, and if the connection is suspended it goes on. In this order,
 * because HTTP's thread begins by taking the lock. */
void srv_exchange_unlock(srv_exchange *x);
/* The client is not there any more. */
void srv_exchange_hung_up(srv_exchange *x);
/* The client sends no more; fd is its connection. Whether it has gone or listens shows when it is
 * sent something: where nothing was sent for a while it gets what says nothing. False: it cannot
 * be asked (ask_back.c). */
bool srv_exchange_ask_back(srv_exchange *x, int fd, double now);
/* A stream of events that has been silent for `ping_s` sends a comment: clients and proxies give up
 * those that say nothing for a minute or some. */
void srv_exchange_ping(srv_exchange *x, double now);

/* ---- parts of HTTP ---- */

/* Copies headers and query, and decides on the request before its body is read. False: it has been
 * refused, the reply is there (http_gate.c). */
bool srv_gate(srv_exchange *x, const char *url, const char *method, const char *version);
/* Appends to the body; what does not fit is dropped and remembered. False: end the connection
 * (http_body.c). */
bool srv_body_add(srv_exchange *x, const char *bytes, size_t n);
void srv_body_drop(srv_exchange *x);
/* A body that is read although the request was refused by its headers: so the client gets the reply
 * while it still sends, and may keep the connection. */
bool srv_body_is_short(const srv_exchange *x);
/* The reply is this response, which is taken over; NULL: there is no memory for one (reply.c). */
void srv_reply_with(srv_exchange *x, int status, struct MHD_Response *response, size_t n_bytes);
/* The reply of an exchange from inside the process: its body is taken over (local.c). */
void srv_local_take(srv_exchange *x, int status, char *body, size_t n_bytes);
/* Replies with bytes that live as long as the program. */
void srv_reply_static(srv_exchange *x, int status, const char *content_type, const void *bytes,
                      size_t n_bytes);
const char *srv_pair_find(const pair *list, int kind, const char *name);
bool srv_pair_add(pair **list, int kind, const char *name, const char *value, size_t n_value);
void srv_pairs_free(pair *list);

/* Is the name in a Host header one that browsers may use here; is the origin one whose pages may
 * call (hosts.c)? */
bool srv_host_allowed(const srv_http *h, const char *host);
bool srv_origin_allowed(const srv_http *h, const char *origin, const char *host);
bool srv_cors_allows(const srv_config *config, const char *origin);
/* Is each member of the list an origin, or "*"? If not, the first that is none. */
/* The first name of the list that no client can send; NULL: there is none. */
const char *srv_hosts_wrong(const srv_config *config);
bool srv_cors_is_valid(const char *list, const char **bad, size_t *n_bad);

/* The route of the page's files; not in routes.inc (pages.c). NULL: no file has this path. */
const srv_route *srv_page_route(const srv_config *config, const char *method, const char *path);

/* An error in the words of an API (errors.c); NULL: out of memory. */
json_t *srv_error_json(srv_api api, int status, const char *code, const char *param,
                       const char *message, const char *request_id);
void srv_log(const srv_server *server, bitnet_log_level level, const char *format, ...)
    BITNET_PRINTF(3, 4);

/* Computes a little with every loaded model and remembers whether the results are right; takes some
 * milliseconds for each (health.c). */
void srv_health_look(srv_server *server);

/* ---- life of the process ---- */

/* Opens the socket that the configuration asks for; *address says where, as a URL. On failure *fd
 * is -1, and no file that was there before has gone (listen.c). */
bitnet_status srv_listen(const srv_config *config, int *fd, bool *is_unix, bool *is_loopback,
                         char *address, size_t cap, bitnet_error *err);
/* Closes what srv_listen has opened, and removes the file that it made. */
void srv_unlisten(const srv_config *config, int fd);
/* Tells systemd, where it wants to hear: "READY=1" (notify.c). */
void srv_notify(const srv_config *config, const char *state);

#endif
