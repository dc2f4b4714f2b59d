/* cmd_batch.c - `bitnet batch IN.jsonl OUT.jsonl`: requests of a file through the server's
 * scheduler, without a server. */
#include <unistd.h>

#include "cli.h"
#include "server/batch/batch.h"

enum { MOST_PROMPTS = 8 }; /* that one line has computed side by side */

/* "2/4": the second of four. */
static int read_shard(const args *a, srv_batch_options *o)
{
    unsigned shard = 1, n = 1;
    int used = 0;
    const char *text = opt_text(a, OPT_SHARD);
    if (text && (sscanf(text, "%u/%u%n", &shard, &n, &used) != 2 || text[used] || shard < 1 ||
                 shard > n || n > 1000000))
        return fail(EXIT_USAGE, "--shard: '%s' is not I/N with I from 1 to N, such as 2/4", text);
    o->shard = shard;
    o->n_shards = n;
    return EXIT_OK;
}

static void fill_models(const args *a, srv_config *c, const char *const *path, char *folder,
                        size_t cap)
{
    srv_models_options *o = &c->models;
    engine_options(a, &o->engine);
    o->engine.cache_dir = cache_folder(opt_text(a, OPT_CACHE), folder, cap);
    o->engine.cache_max_bytes = (uint64_t)opt_int(a, OPT_CACHE_SIZE) << 20;
    o->engine.cache_min_bytes =
        ((uint64_t)opt_int(a, OPT_CACHE_MIN) << 20) + !opt_int(a, OPT_CACHE_MIN);
    o->scheduler.kv_bytes = (uint64_t)opt_int(a, OPT_SERVE_KV_POOL) << 20;
    o->scheduler.n_ctx = (int)opt_int(a, OPT_SERVE_CTX);
    o->scheduler.kv_type = cache_type(a);
    int lines = (int)opt_int(a, OPT_IN_FLIGHT);
    o->scheduler.max_active = lines > c->max_choices ? lines : c->max_choices;
    o->scheduler.max_queued = MOST_PROMPTS * lines;
    o->paths = path;
    o->n_paths = 1;
}

static void show_progress(void *user, const srv_batch_progress *p)
{
    (void)user;
    progress_detail("%zu answered, %zu failed, %zu running", p->n_answered, p->n_failed,
                    p->n_running);
    progress_step(NULL, p->in_bytes, p->in_size);
}

static int report(const args *a, const srv_batch_progress *p, double ms)
{
    json_t *j = j_object("answered:n failed:n known:n ms:f", (uint64_t)p->n_answered,
                         (uint64_t)p->n_failed, (uint64_t)p->n_known, ms);
    if (!opt_json(a))
        note(a, "[%zu answered, %zu failed, %zu were there already, %.1f s]\n", p->n_answered,
             p->n_failed, p->n_known, ms / 1e3);
    return j_report(a, j);
}

static int run_batch(const args *a, const srv_config *c, srv_batch_options *o)
{
    bitnet_error err = {0};
    srv_batch_progress p = {0};
    double start = now_ms();
    progress_begin(UNIT_SHARE, "batch");
    bitnet_status st = srv_batch(c, o, wants_to_stop, NULL, &p, &err);
    progress_end();
    int rc = st == BITNET_OK || st == BITNET_CANCELLED ? report(a, &p, now_ms() - start) : EXIT_OK;
    if (st == BITNET_CANCELLED && interrupted())
        note(a, "bitnet: stopped; the same command goes on where it was\n");
    if (st != BITNET_OK)
        rc = interrupted() ? interrupted() : fail_with(&err);
    return rc;
}

int cmd_batch(args *a)
{
    srv_config c;
    char folder[4096], *path = NULL;
    srv_batch_options o = {.in = a->words[0],
                           .out = a->words[1],
                           .n_parallel = (int)opt_int(a, OPT_IN_FLIGHT),
                           .on_progress = show_progress};
    srv_config_init(&c);
    int rc = read_shard(a, &o);
    rc = rc ? rc : model_path(a, &path);
    rc = rc ? rc : runtime_options(a, (int)opt_int(a, OPT_THREADS), &c.models.runtime);
    if (!rc) {
        c.receipts = false;
        c.request_timeout_s = 0;
        c.max_body = (size_t)opt_int(a, OPT_MAX_BODY) << 10;
        c.log = c.models.runtime.log = log_sink;
        c.log_user = c.models.runtime.log_user = a;
        fill_models(a, &c, (const char *const *)&path, folder, sizeof folder);
        rc = run_batch(a, &c, &o);
    }
    free(path);
    return rc;
}
