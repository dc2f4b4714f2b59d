/* config.h - what the person who runs the server decided. The command fills it from its one table
 * of options (flags, environment, configuration file); nothing here reads any of them. */
#ifndef SRV_CONFIG_H
#define SRV_CONFIG_H

#include "models.h"

typedef struct srv_config {
    const char *host;        /* "127.0.0.1" */
    int port;                /* 8080; 0: the system chooses */
    const char *unix_path;   /* a socket in the file system instead; NULL: none */
    const char *const *keys; /* API keys; none: no key is asked for */
    size_t n_keys;
    bool allow_open;     /* listen beyond loopback without keys */
    const char *cors;    /* an origin that may call from a browser, or "*"; NULL: none */
    bool share_prefixes; /* among all keys */
    bool receipts;       /* keep a receipt of every answer for a while */
    bool no_page;
    /* limits */
    size_t max_body, max_prompt_tokens, max_tokens, max_grammar;
    int max_choices, max_depth, max_connections, max_requests;
    double per_key_per_s, per_address_per_s; /* requests; 0: no limit */
    double read_timeout_s, write_timeout_s, idle_timeout_s, request_timeout_s, drain_s;
    int n_threads_http;
    srv_models_options models;
    bitnet_log_fn log; /* never prompt text */
    void *log_user;
} srv_config;

#endif
