/* bench_server_options.c - which options go with `bench --server` and `bench --serve`, and which
 * with --server alone: the others are refused before anything is measured; what the server of
 * --serve has, too, becomes words for it. */
#include <unistd.h>

#include "bench_server.h"

static bool is_among(option_key key, const option_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] == key)
            return true;
    return false;
}
#define IS_AMONG(key, ...)                                                                         \
    is_among(key, (const option_key[]){__VA_ARGS__},                                               \
             sizeof((const option_key[]){__VA_ARGS__}) / sizeof(option_key))

/* A value that the command line gave, as an option or as the argument, and not the environment. */
static bool is_typed(const args *a, option_key key)
{
    const char *origin = a->values[key].origin;
    return origin && strncmp(origin, "BITNET_", 7) != 0;
}

static bool serve_has(const option *o)
{
    suggestion unused;
    return option_named(o->name, command_at(CMD_SERVE), &unused) != NULL;
}

/* ---- refusing ---- */

/* How the command itself looks and talks, in every mode. */
static bool is_general(const option *o)
{
    return o->group == GROUP_GENERAL || o->key == OPT_FORMAT;
}

/* What a server that runs is asked, and how. */
static bool is_load(const option *o)
{
    return IS_AMONG(o->key, OPT_STREAMS, OPT_RATE, OPT_DURATION, OPT_LOAD_PROMPT, OPT_LOAD_NEW,
                    OPT_LOAD_MODEL, OPT_BENCH_KEY);
}

static bool url_takes(const option *o)
{
    return is_general(o) || o->key == OPT_SERVER_URL || is_load(o);
}

/* What is for a server that runs is not, though serve has an --api-key, too; --nvtx marks what the
 * library computes. */
static bool own_takes(const option *o)
{
    return is_general(o) ||
           IS_AMONG(o->key, OPT_BENCH_SERVE, OPT_SYNTHETIC, OPT_HEAD, OPT_REPEAT, OPT_GPU_LAYERS,
                    OPT_NVTX) ||
           (serve_has(o) && o->key != OPT_BENCH_KEY);
}

/* What to do instead. */
static const char *remedy(option_key mode, const option *o)
{
    bool url = mode == OPT_SERVER_URL;
    if (IS_AMONG(o->key, OPT_SAVE, OPT_BASELINE, OPT_MAX_REGRESS, OPT_PLOT, OPT_RECEIPT))
        return "there are no rows of --tests; leave it out, and --json prints what is measured";
    if (IS_AMONG(o->key, OPT_TESTS, OPT_DEPTH))
        return url ? "--prompt-tokens and --new-tokens say what is asked for"
                   : "what it measures is fixed; leave one of them out";
    if (url && serve_has(o))
        return "the server that runs decides that; give it to bitnet serve";
    if (!url && is_load(o))
        return "it is for a server that runs: --server URL";
    return "leave one of them out";
}

static int check_option(const args *a, const option *o)
{
    bool url = opt_given(a, OPT_SERVER_URL), own = opt_on(a, OPT_BENCH_SERVE);
    option_key mode = url ? OPT_SERVER_URL : OPT_BENCH_SERVE;
    if (!is_typed(a, o->key) || (url ? url_takes(o) : own ? own_takes(o) : !is_load(o)))
        return EXIT_OK;
    if (url || own)
        return fail(EXIT_USAGE, "bench: %s has no meaning with %s: %s", o->dashed,
                    option_at(mode)->dashed, remedy(mode, o));
    return fail(EXIT_USAGE, "bench: %s has no meaning without --server URL, a server that runs",
                o->dashed);
}

int check_server_options(const bench_plan *p)
{
    const args *a = p->args;
    int rc = EXIT_OK;
    for (size_t i = 0; i < N_OPTIONS && rc == EXIT_OK; i++)
        rc = check_option(a, option_at(i));
    if (rc != EXIT_OK)
        return rc;
    const value *threads = &a->values[OPT_BENCH_THREADS];
    if (!opt_given(a, OPT_SERVER_URL) && opt_on(a, OPT_BENCH_SERVE) && p->threads.n > 1)
        return fail(EXIT_USAGE,
                    "%s: '%s' has %zu numbers, and --serve measures with one; run it once for each",
                    threads->origin, threads->text, p->threads.n);
    return EXIT_OK;
}

/* ---- handing on ---- */

static void word_add(word_list *l, char *word)
{
    l->data = xrealloc(l->data, (l->n + 2) * sizeof *l->data);
    l->data[l->n++] = word;
    l->data[l->n] = NULL;
}

void words_free(word_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->data[i]);
    free(l->data);
    *l = (word_list){0};
}

/* "--kv int8", "--no-pack", "--no-strict": a value of bench for its server. */
static void add_value(const option *o, const value *v, word_list *out)
{
    bool on = option_takes_value(o) || v->on;
    if (on || o->type == TYPE_SWITCH)
        word_add(out, xformat("--%s%s", on ? "" : "no-", o->name));
    if (option_takes_value(o))
        word_add(out, xstrdup(v->text));
}

void server_words(const args *a, const char *model, word_list *out)
{
    const char *fixed[] = {"bitnet",  "serve", "--model",   model,
                           "--port",  "0",     "--quiet",   "--no-log-requests",
                           "--cache", "off",   "--timeout", "0"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        word_add(out, xstrdup(fixed[i]));
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        bool own = IS_AMONG(o->key, OPT_MODEL, OPT_BENCH_CACHE, OPT_BENCH_KEY, OPT_QUIET);
        if (opt_given(a, o->key) && !option_is_habit(o) && !own && serve_has(o))
            add_value(o, &a->values[o->key], out);
    }
}

/* ---- the environment ---- */

/* A variable ("NAME=value") that serve reads as an option. Fake devices are none here: bench has
 * them from their variable alone, and they stay. */
static bool is_of_serve(const char *entry)
{
    char name[64];
    size_t n = strcspn(entry, "=");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        if (!option_on(o, CMD_SERVE) || o->key == OPT_GPU_FAKE)
            continue;
        for (size_t k = 0; word_at(o->environment, ' ', k, name, sizeof name); k++)
            if (strlen(name) == n && memcmp(name, entry, n) == 0)
                return true;
    }
    return false;
}

void server_environment(word_list *out)
{
    for (char **entry = environ; *entry; entry++)
        if (!is_of_serve(*entry))
            word_add(out, xstrdup(*entry));
}
