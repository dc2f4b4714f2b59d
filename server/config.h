/* config.h - what the person who runs the server decided. The command fills it from its one table
 * of options (flags, environment, configuration file); nothing here reads any of them. */
#ifndef SRV_CONFIG_H
#define SRV_CONFIG_H

#include "jobs/models.h"

/* What the log may know of a request that has ended: nothing of what it said. */
typedef struct srv_request_line {
    const char *id, *method, *route; /* route: the pattern, not the path; "-": none matched */
    int status;                      /* 499: the client went away before the end */
    double ms;
    size_t n_prompt, n_generated; /* tokens */
} srv_request_line;

typedef struct srv_config {
    const char *host;      /* "127.0.0.1" */
    int port;              /* 8080; 0: the system chooses */
    const char *unix_path; /* a socket in the file system instead; NULL: none */
    int listen_fd;         /* a socket that somebody else listens with (systemd) instead; 0: none */
    const char *const *keys; /* API keys; none: no key is asked for */
    size_t n_keys;
    bool allow_open;          /* listen beyond loopback without keys */
    const char *cors;         /* origins that may call from a browser, or "*"; NULL: none */
    const char *const *hosts; /* more names by which browsers may call; "*": any */
    size_t n_hosts;
    bool share_prefixes; /* among all keys */
    bool receipts;       /* keep a receipt of every answer for a while */
    bool no_page;
    /* limits */
    size_t max_body, max_prompt_tokens, max_tokens, max_grammar;
    size_t json_room; /* bytes of the JSON of all requests together, about; 0: 1 GiB */
    int max_choices, max_depth, max_connections, max_requests;
    double per_key_per_s, per_address_per_s; /* requests; 0: no limit */
    double read_timeout_s, write_timeout_s, idle_timeout_s, request_timeout_s, drain_s;
    double ping_s; /* a stream of events that is silent for so long sends a comment; 0: never */
    int n_threads_http;
    const char *notify_socket; /* where systemd wants to hear of the start; NULL: nowhere */
    double watchdog_s;         /* it wants a sign of life this often; 0: it does not */
    srv_models_options models;
    bitnet_log_fn log; /* never prompt text */
    void *log_user;
    void (*on_request)(void *user, const srv_request_line *line); /* NULL: nobody; any thread */
    void *on_request_user;
} srv_config;

/* Everything as it is where nobody decides: loopback, port 8080, moderate limits. */
void srv_config_init(srv_config *config);

#endif
