/* batch_results.c - the file of results: what is in it is never computed again. Results are
 * appended by one write each, so that they survive the process; the disk gets them once a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "batch/batch_files.h"
#include "http/short_memory.h"

enum { MAX_LINE = 256 << 20, MAX_LINES = 1 << 30 };
static const double sync_seconds = 1;

struct srv_results {
    int fd;
    pthread_mutex_t mutex;
    uint32_t *marks; /* of line i + 1 of IN: 0 not there, else a digest of its custom_id */
    size_t n_marks;
    double synced_at;
    bool dirty, failed;
    int why; /* failed: errno of then */
};

static bitnet_status tell(bitnet_error *err, bitnet_status status, const char *format, ...)
    BITNET_PRINTF(3, 4);
static bitnet_status tell(bitnet_error *err, bitnet_status status, const char *format, ...)
{
    va_list ap;
    if (err) {
        err->status = status;
        va_start(ap, format);
        vsnprintf(err->message, sizeof err->message, format, ap);
        va_end(ap);
    }
    return status;
}

/* ---- what is there ---- */

/* Never 0. */
static uint32_t digest(const char *text)
{
    uint32_t h = 2166136261u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h ? h : 1;
}

static bool mark(srv_results *r, size_t line, uint32_t value)
{
    if (line > r->n_marks) {
        size_t n = 2 * line + 1024;
        uint32_t *marks = realloc(r->marks, n * sizeof *marks);
        if (!marks)
            return false;
        memset(marks + r->n_marks, 0, (n - r->n_marks) * sizeof *marks);
        r->marks = marks;
        r->n_marks = n;
    }
    r->marks[line - 1] = value;
    return true;
}

/* The line of IN that a result belongs to; 0: it is none of our results. */
static size_t line_of(const json_t *result, const char **custom_id)
{
    static const char prefix[] = "batch_req_";
    const char *id = json_string_value(json_object_get(result, "id"));
    const char *name = json_string_value(json_object_get(result, "custom_id"));
    *custom_id = name ? name : "";
    if (!id || strncmp(id, prefix, sizeof prefix - 1) != 0)
        return 0;
    char *end;
    unsigned long n = strtoul(id + sizeof prefix - 1, &end, 10);
    return *end || n > MAX_LINES ? 0 : n;
}

/* Is it the beginning of a result as we write them? */
static bool may_be_result(const char *line, size_t n)
{
    static const char begin[] = "{\"id\":\"batch_req_";
    return strncmp(line, begin, n < sizeof begin - 1 ? n : sizeof begin - 1) == 0;
}

/* False: the line is no result. What its numbers are does not matter here. */
static bool remember(srv_results *r, const char *line, size_t n, bool *no_room)
{
    const char *custom_id;
    json_t *result = srv_json_load(line, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    size_t of = line_of(result, &custom_id);
    *no_room = srv_memory_short() || (of && !mark(r, of, digest(custom_id)));
    json_decref(result);
    return of != 0;
}

/* Reads all results; *whole: the bytes up to the end of the last whole one. */
static bitnet_status read_results(srv_results *r, const char *path, off_t *whole, bitnet_error *err)
{
    srv_lines lines;
    char *line;
    size_t n, bad = 0;
    srv_line_kind kind;
    bool no_room = false;
    srv_lines_open(&lines, r->fd, MAX_LINE);
    while (!no_room && (kind = srv_lines_next(&lines, &line, &n)) == SRV_LINE) {
        if (bad) /* what is not whole may only be the last */
            break;
        if (remember(r, line, n, &no_room))
            *whole = (off_t)lines.n_bytes;
        else
            bad = lines.number;
    }
    bitnet_status st = BITNET_OK;
    if (no_room)
        st = tell(err, BITNET_MEMORY, "%s: no memory for the list of its lines", path);
    else if (kind == SRV_LINE_BAD)
        st = tell(err, BITNET_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (kind == SRV_LINE_LONG || (bad && (kind != SRV_LINE_NONE || *whole == 0)))
        st = tell(err, BITNET_ARGUMENT,
                  "%s: line %zu is no result of a batch; name another file for the results", path,
                  bad ? bad : lines.number);
    else if (kind == SRV_LINE_CUT && *whole == 0 && !may_be_result(line, n))
        st = tell(err, BITNET_ARGUMENT,
                  "%s: holds something else than results; name another file for them", path);
    srv_lines_close(&lines);
    return st;
}

/* ---- on the disk ---- */

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The first reason stays. */
static void fail(srv_results *r, int why)
{
    r->why = r->failed ? r->why : why;
    r->failed = true;
}

static void sync_now(srv_results *r)
{
    r->synced_at = now_seconds();
    r->dirty = false;
    if (fdatasync(r->fd) != 0 && errno != EINVAL)
        fail(r, errno);
}

/* ---- opening ---- */

/* The file alone that this program may spoil: empty, or of results. */
static bitnet_status prepare(srv_results *r, const char *path, bitnet_error *err)
{
    off_t whole = 0;
    struct stat st_file;
    if (fstat(r->fd, &st_file) != 0 || !S_ISREG(st_file.st_mode))
        return tell(err, BITNET_ARGUMENT, "%s: results go into a regular file", path);
    if (flock(r->fd, LOCK_EX | LOCK_NB) != 0)
        return tell(err, errno == EWOULDBLOCK ? BITNET_ARGUMENT : BITNET_IO, "%s: %s", path,
                    errno == EWOULDBLOCK ? "another batch is writing it" : strerror(errno));
    bitnet_status st = read_results(r, path, &whole, err);
    if (st == BITNET_OK && lseek(r->fd, 0, SEEK_END) != whole && ftruncate(r->fd, whole) != 0)
        st = tell(err, BITNET_IO, "%s: its last line was cut and cannot be removed: %s", path,
                  strerror(errno));
    return st;
}

bitnet_status srv_results_open(const char *path, srv_results **out, bitnet_error *err)
{
    srv_results *r = calloc(1, sizeof *r);
    if (!r)
        return tell(err, BITNET_MEMORY, "%s: no memory", path);
    pthread_mutex_init(&r->mutex, NULL);
    struct stat is;
    bool pipe = stat(path, &is) == 0 && (S_ISFIFO(is.st_mode) || S_ISSOCK(is.st_mode));
    r->fd = pipe ? -1 : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    bitnet_status st =
        pipe        ? tell(err, BITNET_ARGUMENT,
                           "%s: is a pipe; results go to a file, which is read first", path)
        : r->fd < 0 ? tell(err, BITNET_IO, "%s: cannot be written: %s", path, strerror(errno))
                    : prepare(r, path, err);
    if (st == BITNET_OK)
        *out = r;
    else
        srv_results_close(r);
    return st;
}

bool srv_results_close(srv_results *r)
{
    if (r->fd >= 0 && r->dirty)
        sync_now(r);
    if (r->fd >= 0 && close(r->fd) != 0)
        fail(r, errno);
    bool ok = !r->failed;
    int why = r->why;
    pthread_mutex_destroy(&r->mutex);
    free(r->marks);
    free(r);
    errno = ok ? errno : why;
    return ok;
}

bool srv_results_has(const srv_results *r, size_t line, const char *custom_id, bool *same)
{
    uint32_t found = line <= r->n_marks ? r->marks[line - 1] : 0;
    *same = found == digest(custom_id ? custom_id : "") || found == digest("");
    return found != 0;
}

/* ---- appending ---- */

/* A result that is written in part is taken back, so that the next one begins a line. */
static bool write_line(int fd, const char *json)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)json, strlen(json)}, {"\n", 1}};
    off_t before = lseek(fd, 0, SEEK_END);
    ssize_t n;
    do
        n = writev(fd, parts, 2);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)(parts[0].iov_len + 1))
        return true;
    int why = n < 0 ? errno : ENOSPC;
    if (n > 0 && ftruncate(fd, before) != 0)
        why = errno;
    errno = why;
    return false;
}

/* Lets the lock go. False: it has failed before or now, errno says why. */
static bool leave(srv_results *r)
{
    if (r->dirty && !r->failed && now_seconds() - r->synced_at >= sync_seconds)
        sync_now(r);
    bool ok = !r->failed;
    int why = r->why;
    pthread_mutex_unlock(&r->mutex);
    errno = ok ? errno : why;
    return ok;
}

bool srv_results_add(srv_results *r, const char *json)
{
    pthread_mutex_lock(&r->mutex);
    if (!r->failed && !write_line(r->fd, json))
        fail(r, errno);
    r->dirty = true;
    return leave(r);
}

bool srv_results_sync(srv_results *r)
{
    pthread_mutex_lock(&r->mutex);
    return leave(r);
}
