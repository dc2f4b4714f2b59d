/* traffic.h - a generator of load for servers that speak the OpenAI API: one thread, many
 * connections, every answer streamed and timed. The client's own CPU time is told apart. */
#ifndef BITNET_CLI_TRAFFIC_H
#define BITNET_CLI_TRAFFIC_H

#include "cli.h"

/* A growing list of numbers. */
typedef struct figures {
    double *data;
    size_t n, cap;
} figures;

void figures_add(figures *f, double x);
double figures_share(figures *f, double q); /* the q-quantile; sorts; 0 without any */
void figures_free(figures *f);

/* Where a server listens. */
typedef struct traffic_server {
    char host[256], port[16];
    const char *key;   /* API key; NULL: none */
    const char *model; /* NULL: the server's first */
} traffic_server;

/* "http://127.0.0.1:8080" */
int traffic_parse(const char *url, traffic_server *out);

typedef struct traffic_plan {
    const traffic_server *server;
    int n_streams;       /* closed loop: each asks again when it is answered */
    double rate;         /* open loop: so many requests begin in a second, whatever the answers do;
                            0: closed */
    double seconds;      /* no request begins later; 0: no limit */
    size_t n_requests;   /* no more than that; 0: no limit */
    int n_prompt, n_new; /* tokens */
    bool same_prompt;    /* all ask the same; else no two prompts begin alike */
    int seed;            /* runs with different ones have different prompts */
    int extra_prompt;    /* one more request with a prompt this long ...; 0: none */
    double extra_after;  /* ... begins so many seconds after the first token, and 16 tokens of each
                            stream. It asks for one token; when it has ended no other begins */
} traffic_plan;

typedef struct traffic_result {
    size_t n_answered, n_failed;
    size_t n_tokens;
    int failed_status;  /* of the first that failed; 0: no answer at all */
    figures first_ms;   /* from when the request was due to its first token */
    figures gap_ms;     /* between tokens of an answer; of an extra request: until it begins ... */
    figures during_ms;  /* ... and while its prompt is read */
    double extra_ms;    /* from the extra request to its first token */
    double seconds;     /* from the first request to the last token */
    double together_s;  /* closed loop, a request each: while all streams generated ... */
    size_t n_together;  /* ... so many tokens */
    double cpu_seconds; /* of the client */
} traffic_result;

/* Runs the plan. Fails if the server cannot be reached, or on a signal. */
int traffic_run(const traffic_plan *plan, traffic_result *out);
void traffic_free(traffic_result *r);

/* ---- one connection (traffic_http.c) ---- */

typedef enum talk_state {
    TALK_IDLE,
    TALK_CONNECTING,
    TALK_SENDING,
    TALK_HEAD,
    TALK_BODY
} talk_state;

/* What a call of talk_go noticed. */
typedef struct talk_news {
    size_t n_tokens; /* events with text, since the last call */
    bool ended;      /* the answer is whole, or failed */
    bool failed;
} talk_news;

typedef struct talk {
    talk_state state;
    int fd; /* -1: none; kept open between requests */
    buffer out;
    size_t n_sent;
    buffer in;   /* what was read and not used */
    buffer line; /* of the events' text, without its end yet */
    int status;
    bool chunked, stays, done;
    size_t n_left;   /* bytes of the chunk or body that are still to come */
    bool wants_size; /* a chunk's size comes next */
    long n_usage;    /* completion_tokens, as the server counted; -1: not told */
    /* the caller's */
    double due_ms, first_ms, last_ms;
    size_t n_events;
    bool extra, used;
} talk;

/* Sends a request; connects if need be. False: it cannot. */
bool talk_begin(talk *t, const traffic_server *server, const char *body);
/* Reads and writes what can be without waiting. */
talk_news talk_go(talk *t);
short talk_events(const talk *t); /* what poll should wait for */
void talk_close(talk *t);

#endif
