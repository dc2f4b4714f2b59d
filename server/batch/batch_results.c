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
    id += sizeof prefix - 1;
    unsigned long n = *id >= '0' && *id <= '9' ? strtoul(id, &end, 10) : 0;
    return n == 0 || *end || n > MAX_LINES ? 0 : n;
}

/* Does the shorter of two texts begin the other one? */
static bool agree(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    return strncmp(a, b, n < m ? n : m) == 0;
}

/* Is the line, of n bytes, the beginning of a result as we write them? */
static bool may_be_result(const char *line, size_t n)
{
    static const char begin[] = "{\"id\":\"batch_req_", then[] = "\",\"custom_id\":";
    if (strlen(line) != n || !agree(line, begin))
        return false;
    const char *rest = line + (n < sizeof begin - 1 ? n : sizeof begin - 1);
    return agree(rest + strspn(rest, "0123456789"), then);
}

typedef enum what { A_RESULT, NO_RESULT, NO_ROOM } what;

/* What its numbers are does not matter here. */
static what remember(srv_results *r, const char *line, size_t n)
{
    const char *custom_id;
    json_t *result = srv_json_load(line, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    size_t of = line_of(result, &custom_id);
    bool no_room = srv_memory_short() || (of && !mark(r, of, digest(custom_id)));
    json_decref(result);
    return no_room ? NO_ROOM : of ? A_RESULT : NO_RESULT;
}

/* Whether the file may be written, after its last line or the first one that is no result. What was
 * cut by the end of a process has no newline: only that is ours to remove. */
static bitnet_status judge(const srv_lines *lines, srv_line_kind kind, what is, bool may_be_cut,
                           const char *path, bitnet_error *err)
{
    if (is == NO_ROOM)
        return tell(err, BITNET_MEMORY, "%s: no memory for the list of its lines", path);
    if (kind == SRV_LINE_BAD)
        return tell(err, BITNET_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (kind == SRV_LINE_LONG || (is == NO_RESULT && !may_be_cut))
        return tell(err, BITNET_ARGUMENT,
                    "%s: line %zu is no result of a batch, so the file stays as it is; remove that "
                    "line, or name another file for the results",
                    path, lines->number);
    return BITNET_OK;
}

/* Reads all results; *whole: the bytes up to the end of the last whole one, which may lack its
 * newline: *no_newline. */
static bitnet_status read_results(srv_results *r, const char *path, off_t *whole, bool *no_newline,
                                  bitnet_error *err)
{
    srv_lines lines;
    char *line;
    size_t n;
    srv_line_kind kind;
    what is = A_RESULT;
    bool may_be_cut = false;
    srv_lines_open(&lines, r->fd, MAX_LINE);
    do {
        kind = srv_lines_next(&lines, &line, &n);
        bool some = kind == SRV_LINE || kind == SRV_LINE_CUT;
        is = some ? remember(r, line, n) : A_RESULT;
        may_be_cut = kind == SRV_LINE_CUT && may_be_result(line, n);
        *no_newline = kind == SRV_LINE_CUT && is == A_RESULT;
        *whole = some && is == A_RESULT ? (off_t)lines.n_bytes : *whole;
    } while (kind == SRV_LINE && is == A_RESULT);
    bitnet_status st = judge(&lines, kind, is, may_be_cut, path, err);
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

/* The name of a new file must be there after the machine's end, too. Where a folder cannot be
 * synced the file system sees to it. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

/* ---- opening ---- */

/* Removes what was cut; a result that is there but for its newline gets that. */
static bool end_last_line(int fd, off_t whole, bool no_newline)
{
    if (lseek(fd, 0, SEEK_END) != whole && ftruncate(fd, whole) != 0)
        return false;
    return !no_newline || write(fd, "\n", 1) == 1;
}

/* The file alone that this program may spoil: empty, or of results. */
static bitnet_status prepare(srv_results *r, const char *path, bitnet_error *err)
{
    off_t whole = 0;
    bool no_newline = false;
    struct stat st_file;
    if (fstat(r->fd, &st_file) != 0 || !S_ISREG(st_file.st_mode))
        return tell(err, BITNET_ARGUMENT, "%s: results go into a regular file", path);
    if (flock(r->fd, LOCK_EX | LOCK_NB) != 0)
        return tell(err, errno == EWOULDBLOCK ? BITNET_ARGUMENT : BITNET_IO, "%s: %s", path,
                    errno == EWOULDBLOCK ? "another batch is writing it" : strerror(errno));
    bitnet_status st = read_results(r, path, &whole, &no_newline, err);
    if (st == BITNET_OK && !end_last_line(r->fd, whole, no_newline))
        st = tell(err, BITNET_IO, "%s: its last line was cut and cannot be mended: %s", path,
                  strerror(errno));
    if (st == BITNET_OK && st_file.st_size == 0)
        sync_folder(path);
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
