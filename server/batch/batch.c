/* batch.c - a file of requests through the server's handlers, many at a time: who takes which line,
 * what becomes of it, and when to stop. */
#include "batch/batch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "batch/batch_files.h"
#include "batch/batch_request.h"
#include "http/short_memory.h"
#include "http/local.h"
#include "server.h"

enum { MAX_PARALLEL = 1024, MAX_REFUSALS = 10, STACK_BYTES = 512 * 1024 };

typedef struct batch {
    const srv_batch_options *options;
    srv_server server;
    srv_local *local;
    srv_results *results;
    pthread_mutex_t
        reading; /* of the lines; taken before the other one, and held while one waits */
    srv_lines lines;
    pthread_mutex_t mutex; /* of everything below */
    bool over;             /* no more lines: the end, a failure, or told to stop */
    srv_batch_progress progress;
    bitnet_error error;
} batch;

static void vtell(bitnet_error *err, bitnet_status status, const char *format, va_list ap)
{
    err->status = status;
    vsnprintf(err->message, sizeof err->message, format, ap);
}

static bitnet_status tell(bitnet_error *err, bitnet_status status, const char *format, ...)
    BITNET_PRINTF(3, 4);
static bitnet_status tell(bitnet_error *err, bitnet_status status, const char *format, ...)
{
    va_list ap;
    bitnet_error ignored;
    va_start(ap, format);
    vtell(err ? err : &ignored, status, format, ap);
    va_end(ap);
    return status;
}

/* The batch ends: nobody takes another line. The first reason counts. Requires the mutex. */
static void give_up(batch *b, bitnet_status status, const char *format, ...) BITNET_PRINTF(3, 4);
static void give_up(batch *b, bitnet_status status, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (b->error.status == BITNET_OK)
        vtell(&b->error, status, format, ap);
    va_end(ap);
    b->over = true;
}

static bool stopping(batch *b)
{
    return atomic_load(&b->server.ending);
}

static bool stopping_fn(void *b)
{
    return stopping(b);
}

/* ---- which line is next ---- */

static bool is_blank(const char *line, size_t n)
{
    return strspn(line, " \t\r") == n;
}

/* True: the line is to be computed. Requires the mutex. */
static bool wanted(batch *b, const srv_batch_line *job)
{
    bool same;
    if (srv_memory_short()) { /* it may lack its custom_id */
        give_up(b, BITNET_MEMORY, "%s: line %zu: no memory for it", b->options->in, job->line);
        return false;
    }
    if (!srv_results_has(b->results, job->line, job->custom_id, &same))
        return true;
    if (same || job->too_long || job->too_complex) /* its custom_id is not known */
        b->progress.n_known++;
    else
        give_up(b, BITNET_ARGUMENT,
                "%s: line %zu has another custom_id than its result in %s, which is of another "
                "input; name another file for the results",
                b->options->in, job->line, b->options->out);
    return false;
}

/* The next line of this shard, known or not. Requires `reading`. */
static srv_line_kind next_line(batch *b, srv_batch_line *job)
{
    const srv_batch_options *o = b->options;
    char *line;
    size_t n;
    for (;;) {
        srv_line_kind kind = srv_lines_next(&b->lines, &line, &n);
        if (kind == SRV_LINE_BAD || kind == SRV_LINE_NONE || kind == SRV_LINE_STOPPED)
            return kind;
        if ((b->lines.number - 1) % o->n_shards != o->shard - 1)
            continue;
        *job = (srv_batch_line){.line = b->lines.number, .too_long = kind == SRV_LINE_LONG};
        if (!job->too_long && is_blank(line, n))
            continue;
        if (!job->too_long)
            srv_batch_line_read(job, line, n, (size_t)b->server.config->max_depth);
        return kind;
    }
}

/* What a look for a line has brought. True: a line that is to be computed, which runs from now on.
 * Requires `reading`; `why` is errno of a line that cannot be read. */
static bool begin_line(batch *b, srv_line_kind kind, const srv_batch_line *job, int why)
{
    bool found = kind != SRV_LINE_BAD && kind != SRV_LINE_NONE && kind != SRV_LINE_STOPPED;
    pthread_mutex_lock(&b->mutex);
    b->progress.in_bytes = b->lines.n_bytes;
    if (kind == SRV_LINE_BAD)
        give_up(b, BITNET_IO, "%s: cannot be read: %s", b->options->in, strerror(why));
    b->over |= !found;
    bool begins = found && wanted(b, job);
    b->progress.n_running += begins;
    pthread_mutex_unlock(&b->mutex);
    if (found && !begins)
        json_decref(job->request);
    return begins;
}

static bool is_over(batch *b)
{
    pthread_mutex_lock(&b->mutex);
    bool over = b->over;
    pthread_mutex_unlock(&b->mutex);
    return over;
}

/* False: nothing is left to do. */
static bool take(batch *b, srv_batch_line *job)
{
    bool found = false;
    pthread_mutex_lock(&b->reading);
    while (!found && !is_over(b)) {
        srv_line_kind kind = next_line(b, job);
        found = begin_line(b, kind, job, errno);
    }
    pthread_mutex_unlock(&b->reading);
    return found;
}

/* ---- what becomes of it ---- */

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* In small parts, to hear when it is told to stop. */
static void pause_long(batch *b, long ms)
{
    for (; ms > 0 && !stopping(b); ms -= 50)
        pause_ms(ms < 50 ? ms : 50);
}

/* Does the server only lack a place, which others' requests leave when they end? */
static bool lacks_place(const srv_local_reply *reply)
{
    json_t *body = srv_json_load(reply->body, reply->n_body, JSON_ALLOW_NUL, NULL);
    const char *code = json_string_value(json_object_get(json_object_get(body, "error"), "code"));
    bool busy = code && (strcmp(code, "server_busy") == 0 || strcmp(code, "overloaded") == 0);
    json_decref(body);
    return busy;
}

static size_t n_answered(batch *b)
{
    pthread_mutex_lock(&b->mutex);
    size_t n = b->progress.n_answered;
    pthread_mutex_unlock(&b->mutex);
    return n;
}

/* How often a request was refused that may succeed later. */
typedef struct patience {
    int n_refused;     /* since a line was answered */
    size_t n_answered; /* lines, when it was refused last */
    long pause_ms;
} patience;

/* True: the refused request is to be made once more. For ever while a place is what is missing;
 * other refusals (no memory for a model beside those in use) only while other lines are answered.
 */
static bool once_more(batch *b, const srv_local_reply *reply, patience *p)
{
    size_t now = n_answered(b);
    if ((reply->status != 503 && reply->status != 429) || stopping(b))
        return false;
    p->n_refused = now != p->n_answered || lacks_place(reply) ? 0 : p->n_refused + 1;
    p->n_answered = now;
    return p->n_refused < MAX_REFUSALS;
}

/* Asks until there is an answer or no hope of one. False: told to stop, or out of memory. */
static bool ask(batch *b, const json_t *request, srv_local_reply *reply)
{
    long first = b->options->pause_ms > 0 ? b->options->pause_ms : 50;
    patience p = {.n_answered = n_answered(b), .pause_ms = first};
    const char *url = json_string_value(json_object_get(request, "url"));
    char *body = srv_json_whole(json_object_get(request, "body"));
    bool there = body && srv_local_call(b->local, "POST", url, body, strlen(body), reply);
    while (there && once_more(b, reply, &p)) {
        free(reply->body);
        reply->body = NULL;
        pause_long(b, p.pause_ms);
        p.pause_ms = p.pause_ms < 50 * first ? 2 * p.pause_ms : p.pause_ms;
        there = srv_local_call(b->local, "POST", url, body, strlen(body), reply);
    }
    free(body);
    return there && !stopping(b);
}

/* One line's result; NULL: there is none, the line stays to be done. */
static json_t *compute(batch *b, const srv_batch_line *job, bool *ok)
{
    const char *why = srv_batch_line_fault(job);
    srv_local_reply reply = {0};
    json_t *result = NULL;
    *ok = false;
    if (why)
        return srv_batch_refusal(job, why);
    if (ask(b, job->request, &reply)) {
        result = srv_batch_answer(job, &reply);
        *ok = reply.status < 400;
    }
    free(reply.body);
    return result;
}

static void finish(batch *b, const srv_batch_line *job)
{
    bool ok, written = false;
    json_t *result = compute(b, job, &ok);
    char *text = srv_json_whole(result);
    bool no_room = !text && !stopping(b);
    if (text)
        written = srv_results_add(b->results, text);
    int why = errno;
    pthread_mutex_lock(&b->mutex);
    if (no_room)
        give_up(b, BITNET_MEMORY, "%s: line %zu: no memory for its result", b->options->in,
                job->line);
    else if (text && !written)
        give_up(b, BITNET_IO, "%s: cannot be written: %s", b->options->out, strerror(why));
    b->progress.n_answered += written && ok;
    b->progress.n_failed += written && !ok;
    b->progress.n_running--;
    pthread_mutex_unlock(&b->mutex);
    free(text);
    json_decref(result);
}

static void *work(void *user)
{
    batch *b = user;
    srv_batch_line job;
    while (take(b, &job)) {
        finish(b, &job);
        json_decref(job.request);
    }
    return NULL;
}

/* ---- all of it ---- */

/* Tells how far it is, has results brought to the disk, and stops when told to, until all lines are
 * done. */
static void watch(batch *b, bitnet_cancel_fn stop, void *stop_user)
{
    for (bool done = false; !done; pause_ms(done ? 0 : 50)) {
        bool told = stop && stop(stop_user), written = srv_results_sync(b->results);
        int why = errno;
        pthread_mutex_lock(&b->mutex);
        if (!written)
            give_up(b, BITNET_IO, "%s: cannot be written: %s", b->options->out, strerror(why));
        if (told && !stopping(b)) {
            give_up(b, BITNET_CANCELLED, "the batch was stopped; run it again to continue");
            atomic_store(&b->server.ending, true);
        }
        if (b->error.status != BITNET_OK)
            atomic_store(&b->server.ending, true);
        done = b->over && b->progress.n_running == 0;
        srv_batch_progress now = b->progress;
        pthread_mutex_unlock(&b->mutex);
        if (b->options->on_progress)
            b->options->on_progress(b->options->user, &now);
    }
}

/* Starts up to so many threads; returns how many. What asks the program to end is for the thread
 * that watches. */
static int start_threads(batch *b, pthread_t *threads, int most)
{
    int n = 0;
    pthread_attr_t small;
    sigset_t asks, before;
    sigemptyset(&asks);
    sigaddset(&asks, SIGINT);
    sigaddset(&asks, SIGTERM);
    sigaddset(&asks, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &asks, &before);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    while (n < most && pthread_create(&threads[n], &small, work, b) == 0)
        n++;
    pthread_attr_destroy(&small);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

static void run_workers(batch *b, bitnet_cancel_fn stop, void *stop_user)
{
    int most = b->options->n_parallel;
    most = most < 1 ? 1 : most > MAX_PARALLEL ? MAX_PARALLEL : most;
    pthread_t *threads = calloc((size_t)most, sizeof *threads);
    int n = threads ? start_threads(b, threads, most) : 0;
    if (!n) {
        pthread_mutex_lock(&b->mutex);
        give_up(b, BITNET_MEMORY, "no thread can be started");
        pthread_mutex_unlock(&b->mutex);
    }
    watch(b, stop, stop_user);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

/* A file of requests, or standard input. By name only files are read that are there as a whole: a
 * pipe would wait for its writer before anything is said. */
static bitnet_status open_input(const char *path, int *fd, struct stat *is, bitnet_error *err)
{
    bool standard = strcmp(path, "-") == 0;
    *fd = standard ? dup(0) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, is) != 0)
        return tell(err, BITNET_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!standard && !S_ISREG(is->st_mode))
        return tell(err, BITNET_ARGUMENT,
                    "%s: is no regular file; a pipe is read from standard input, which is named -",
                    path);
    return BITNET_OK;
}

static bitnet_status open_files(batch *b, const srv_config *config, int *in, bitnet_error *err)
{
    const srv_batch_options *o = b->options;
    struct stat a, c;
    if (strcmp(o->out, "-") == 0)
        return tell(err, BITNET_ARGUMENT,
                    "-: results go to a file, which is read again when the work is resumed; name "
                    "one");
    bitnet_status st = open_input(o->in, in, &a, err);
    if (st != BITNET_OK)
        return st;
    if (stat(o->out, &c) == 0 && a.st_dev == c.st_dev && a.st_ino == c.st_ino)
        return tell(err, BITNET_ARGUMENT,
                    "%s: is the input, too; name another file for the results", o->out);
    b->progress.in_size = S_ISREG(a.st_mode) ? (uint64_t)a.st_size : 0;
    srv_lines_open(&b->lines, *in, config->max_body + 65536);
    b->lines.stop = stopping_fn;
    b->lines.stop_user = b;
    return srv_results_open(o->out, &b->results, err);
}

static bitnet_status open_server(batch *b, const srv_config *config, bitnet_error *err)
{
    b->server.config = config;
    b->server.started = time(NULL);
    b->server.metrics = srv_metrics_open();
    b->local = srv_local_open(&b->server);
    if (!b->server.metrics || !b->local)
        return tell(err, BITNET_MEMORY, "batch: no memory");
    bitnet_status st = srv_models_open(&config->models, false, &b->server.models, err);
    atomic_store(&b->server.ready, st == BITNET_OK);
    return st;
}

static void close_all(batch *b, int in)
{
    srv_models_close(b->server.models);
    srv_local_close(b->local);
    srv_metrics_close(b->server.metrics);
    srv_lines_close(&b->lines);
    if (in >= 0)
        close(in);
    pthread_mutex_destroy(&b->mutex);
    pthread_mutex_destroy(&b->reading);
}

bitnet_status srv_batch(const srv_config *config, const srv_batch_options *options,
                        bitnet_cancel_fn stop, void *stop_user, srv_batch_progress *progress,
                        bitnet_error *err)
{
    batch b = {.options = options};
    int in = -1;
    srv_memory_watch();
    pthread_mutex_init(&b.mutex, NULL);
    pthread_mutex_init(&b.reading, NULL);
    bitnet_status st = open_files(&b, config, &in, err);
    st = st == BITNET_OK ? open_server(&b, config, err) : st;
    if (st == BITNET_OK) {
        run_workers(&b, stop, stop_user);
        st = b.error.status;
        if (st != BITNET_OK && err)
            *err = b.error;
    }
    *progress = b.progress;
    if (b.results && !srv_results_close(b.results) && st == BITNET_OK)
        st = tell(err, BITNET_IO, "%s: cannot be written: %s", options->out, strerror(errno));
    close_all(&b, in);
    return st;
}
