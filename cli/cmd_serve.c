/* cmd_serve.c - `bitnet serve`: the options become a configuration, the environment's words of
 * systemd too; what the server tells becomes lines. */
#include <errno.h>
#include <malloc.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "server/serve.h"

/* ---- keys ---- */

typedef struct texts {
    const char **data;
    size_t n;
} texts;

static void texts_add(texts *t, const char *text)
{
    t->data = xrealloc(t->data, (t->n + 1) * sizeof *t->data);
    t->data[t->n++] = text;
}

/* Keys of the command line are not left where lists of processes show them. */
static void take_given_keys(args *a, texts *keys)
{
    value *v = &a->values[OPT_API_KEY];
    for (size_t i = 0; i < v->n_list; i++) {
        char *given = (char *)(uintptr_t)v->list[i];
        texts_add(keys, args_keep(a, given, strlen(given)));
        memset(given, '*', strlen(given));
    }
}

/* A variable that should have brought a key and is empty would leave the door open. */
static int check_key_variables(const texts *keys)
{
    static const char *const names[] = {"BITNET_API_KEY", "BITNET_API_KEYS"};
    for (size_t i = 0; i < 2 && !keys->n; i++) {
        const char *given = getenv(names[i]);
        if (given && !given[strspn(given, ", \t")])
            return fail(EXIT_USAGE, "%s: is set, and has no key; unset it if everybody may ask",
                        names[i]);
    }
    return EXIT_OK;
}

/* A line of n bytes: a key between blanks, nothing, or a comment. */
static void take_key_line(args *a, texts *keys, const char *line, size_t n)
{
    size_t from = strspn(line, " \t");
    while (n > from && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    if (n > from && line[from] != '#')
        texts_add(keys, args_keep(a, line + from, n - from));
}

static int take_key_file(args *a, texts *keys)
{
    buffer text = {0};
    const char *path = opt_text(a, OPT_API_KEY_FILE);
    size_t had = keys->n;
    int rc = path ? read_input(path, &text) : EXIT_OK;
    for (char *p = rc ? NULL : after_bom(text.data); p && *p;) {
        size_t n = strcspn(p, "\r\n");
        take_key_line(a, keys, p, n);
        p += n + strspn(p + n, "\r\n");
    }
    if (!rc && path && keys->n == had)
        rc = fail(EXIT_USAGE, "%s: %s has no key", a->values[OPT_API_KEY_FILE].origin, path);
    free(text.data);
    return rc;
}

static int take_keys(args *a, texts *keys)
{
    take_given_keys(a, keys);
    int rc = take_key_file(a, keys);
    rc = rc ? rc : check_key_variables(keys);
    for (size_t i = 0; i < keys->n && !rc; i++)
        if (!keys->data[i][strspn(keys->data[i], " \t")])
            rc = fail(EXIT_USAGE, "API key %zu is empty", i + 1);
    for (size_t i = 0; i < keys->n && !rc; i++)
        for (size_t k = 0; k < i && !rc; k++)
            if (strcmp(keys->data[i], keys->data[k]) == 0)
                rc = fail(EXIT_USAGE, "API key %zu and %zu are the same", k + 1, i + 1);
    return rc;
}

/* ---- what it says ---- */

static void stamp(char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t) || !strftime(buf, cap, "%Y-%m-%dT%H:%M:%SZ", &t))
        buf[0] = '\0';
}

static void say_request(void *user, const srv_request_line *r)
{
    const args *a = user;
    char now[32];
    stamp(now, sizeof now);
    if (opt_text(a, OPT_LOG_FORMAT)[0] != 'j') {
        char *method = visible(r->method); /* whatever the client has written */
        fprintf(stderr, "%s %s %s %s %d %.1f ms, %zu + %zu tokens\n", now, r->id, method, r->route,
                r->status, r->ms, r->n_prompt, r->n_generated);
        free(method);
        return;
    }
    json_t *j = j_object("time:t level:t module:t id:t method:t route:t status:i ms:f "
                         "prompt_tokens:n tokens:n",
                         now, "info", "http", r->id, r->method, r->route, r->status, r->ms,
                         (uint64_t)r->n_prompt, (uint64_t)r->n_generated);
    char *line = json_dumps(j, JSON_COMPACT);
    if (line)
        fprintf(stderr, "%s\n", line);
    free(line);
    json_decref(j);
}

/* "http://127.0.0.1:8080" as curl wants it. */
static void say_curl(const args *a, const char *address, bool with_key)
{
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    note(a,
         "try:       curl %s%s%s/v1/chat/completions%s -H 'content-type: application/json' "
         "-d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story about a "
         "fox\"}]}'\n",
         is_unix ? "--unix-socket " : "", is_unix ? address + 5 : address,
         is_unix ? " http://localhost" : "", with_key ? " -H \"Authorization: Bearer $KEY\"" : "");
}

typedef struct announcement {
    const args *args;
    const srv_config *config;
} announcement;

static void announce(void *user, const char *address, srv_models *models)
{
    const announcement *n = user;
    srv_model *m = NULL;
    bitnet_error err = {0};
    progress_end();
    out_printf("bitnet serves at %s\n", address);
    if (models && srv_model_use(models, NULL, NULL, NULL, &m, &err) == BITNET_OK) {
        note(n->args, "model:     %s, %d tokens of context\n", m->name, m->n_ctx);
        note(n->args, "computes:  %s\n", m->summary ? m->summary : m->device);
        srv_model_release(models, m);
    }
    if (!n->config->no_page && strncmp(address, "http", 4) == 0)
        note(n->args, "chat page: %s/\n", address);
    say_curl(n->args, address, n->config->n_keys > 0);
}

/* ---- options into the configuration ---- */

static void fill_limits(const args *a, srv_config *c)
{
    c->max_body = (size_t)opt_int(a, OPT_MAX_BODY) << 10;
    c->max_prompt_tokens = (size_t)opt_int(a, OPT_MAX_PROMPT);
    c->max_tokens = (size_t)opt_int(a, OPT_SERVE_MAX_TOKENS);
    c->max_choices = (int)opt_int(a, OPT_MAX_CHOICES);
    c->max_depth = (int)opt_int(a, OPT_MAX_DEPTH);
    c->max_connections = (int)opt_int(a, OPT_MAX_CONNECTIONS);
    c->max_requests = (int)opt_int(a, OPT_MAX_REQUESTS);
    c->per_key_per_s = opt_float(a, OPT_RATE_KEY);
    c->per_address_per_s = opt_float(a, OPT_RATE_ADDRESS);
    c->read_timeout_s = opt_float(a, OPT_READ_TIMEOUT);
    c->write_timeout_s = opt_float(a, OPT_WRITE_TIMEOUT);
    c->idle_timeout_s = opt_float(a, OPT_IDLE_TIMEOUT);
    c->ping_s = opt_float(a, OPT_PING);
    c->request_timeout_s = opt_float(a, OPT_SERVE_TIMEOUT);
    c->drain_s = opt_float(a, OPT_DRAIN);
    c->n_threads_http = (int)opt_int(a, OPT_HTTP_THREADS);
}

static void fill_serving(const args *a, srv_config *c)
{
    c->host = opt_text(a, OPT_HOST);
    c->port = (int)opt_int(a, OPT_PORT);
    c->unix_path = opt_text(a, OPT_UNIX);
    c->allow_open = opt_on(a, OPT_ALLOW_OPEN);
    c->cors = opt_text(a, OPT_CORS);
    c->hosts = a->values[OPT_ALLOWED_HOST].list;
    c->n_hosts = a->values[OPT_ALLOWED_HOST].n_list;
    c->share_prefixes = opt_on(a, OPT_SHARE_PREFIXES);
    c->receipts = opt_on(a, OPT_KEEP_RECEIPTS);
    c->no_page = !opt_on(a, OPT_PAGE);
}

static void fill_scheduler(const args *a, srv_scheduler_options *o)
{
    o->kv_bytes = (uint64_t)opt_int(a, OPT_SERVE_KV_POOL) << 20;
    o->n_ctx = (int)opt_int(a, OPT_SERVE_CTX);
    o->policy = (bitnet_kv_policy)opt_int(a, OPT_KV_POLICY); /* words as enumerated */
    o->kv_type = cache_type(a);
    o->n_tokens = (int)opt_int(a, OPT_BATCH);
    o->max_active = (int)opt_int(a, OPT_PARALLEL_SERVE);
    o->max_queued = (int)opt_int(a, OPT_MAX_QUEUED);
}

static void fill_engine(const args *a, bitnet_engine_options *o, char *folder, size_t cap)
{
    engine_options(a, o);
    o->policy_path = opt_text(a, OPT_POLICY);
    o->cache_dir = cache_folder(opt_text(a, OPT_CACHE), folder, cap);
    o->cache_max_bytes = (uint64_t)opt_int(a, OPT_CACHE_SIZE) << 20;
    o->cache_min_bytes = ((uint64_t)opt_int(a, OPT_CACHE_MIN) << 20) + !opt_int(a, OPT_CACHE_MIN);
}

/* A number of the environment; 0: it is none. */
static double env_number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : 0;
}

/* systemd: the socket it listens with, and where it wants to hear. */
static void fill_supervisor(srv_config *c)
{
    if (env_number("LISTEN_FDS") >= 1 && (pid_t)env_number("LISTEN_PID") == getpid())
        c->listen_fd = 3;
    c->notify_socket = getenv("NOTIFY_SOCKET");
    c->watchdog_s = env_number("WATCHDOG_USEC") / 1e6;
}

static int check_folders(const value *dirs)
{
    struct stat is;
    for (size_t i = 0; i < dirs->n_list; i++) {
        errno = ENOTDIR;
        if (stat(dirs->list[i], &is) != 0 || !S_ISDIR(is.st_mode))
            return fail(EXIT_IO, "--model-dir %s: %s", dirs->list[i], strerror(errno));
    }
    return EXIT_OK;
}

/* The models: options and arguments; without any, those of the environment or of the file; or the
 * story. */
static int fill_models(args *a, srv_models_options *o, texts *paths, char **story)
{
    const value *given = &a->values[OPT_SERVE_MODEL];
    const char *typed = option_at(OPT_SERVE_MODEL)->dashed; /* the origin of -m, too */
    bool counts = !a->n_words || (given->origin && strcmp(given->origin, typed) == 0);
    for (size_t i = 0; counts && i < given->n_list; i++)
        texts_add(paths, given->list[i]);
    for (size_t i = 0; i < a->n_words; i++)
        texts_add(paths, a->words[i]);
    if (!paths->n) {
        int rc = model_path(a, story);
        if (rc)
            return rc;
        texts_add(paths, *story);
    }
    o->paths = paths->data;
    o->n_paths = paths->n;
    o->load_dirs = a->values[OPT_MODEL_DIR].list;
    o->n_load_dirs = a->values[OPT_MODEL_DIR].n_list;
    o->budget_bytes = (uint64_t)opt_int(a, OPT_MODEL_MEMORY) << 20;
    o->max_loaded = (int)opt_int(a, OPT_MAX_LOADED);
    return check_folders(&a->values[OPT_MODEL_DIR]);
}

/* ---- the command ---- */

static bool told_to_stop(void *unused)
{
    (void)unused;
    return interrupted() != 0;
}

static int serve(args *a, srv_config *c)
{
    bitnet_error err = {0};
    announcement n = {a, c};
    progress_begin(UNIT_BYTES, "loading %s", file_name(c->models.paths[0]));
    bitnet_status st = srv_serve(c, told_to_stop, NULL, announce, &n, &err);
    progress_end();
    if (st != BITNET_OK && !(st == BITNET_CANCELLED && interrupted()))
        return fail_with(&err);
    note(a, "stopped\n");
    interrupt_clear();
    return EXIT_OK;
}

/* Every thread of requests would otherwise keep a heap of its own for what it once had: with models
 * that come and go that is more than all requests need. Large blocks go back to the system. */
static void keep_little(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

int cmd_serve(args *a)
{
    srv_config c;
    char folder[4096], *story = NULL;
    texts keys = {0}, paths = {0};
    keep_little();
    srv_config_init(&c);
    int rc = take_keys(a, &keys);
    rc = rc ? rc : fill_models(a, &c.models, &paths, &story);
    if (!rc) {
        fill_limits(a, &c);
        fill_serving(a, &c);
        fill_scheduler(a, &c.models.scheduler);
        fill_engine(a, &c.models.engine, folder, sizeof folder);
        fill_supervisor(&c);
        c.keys = keys.data;
        c.n_keys = keys.n;
        c.log = log_sink;
        c.log_user = a;
        c.on_request = opt_on(a, OPT_LOG_REQUESTS) && !opt_on(a, OPT_QUIET) ? say_request : NULL;
        c.on_request_user = a;
        rc = runtime_options(a, (int)opt_int(a, OPT_THREADS), &c.models.runtime);
        c.models.runtime.log = log_sink;
        c.models.runtime.log_user = a;
    }
    rc = rc ? rc : serve(a, &c);
    free(keys.data);
    free(paths.data);
    free(story);
    return rc;
}
