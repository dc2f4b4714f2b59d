/* batch_lines.c - lines of a file of any length, in memory of one line. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/batch_files.h"

enum { ROOM = 65536, LOOK_MS = 50 };

void srv_lines_open(srv_lines *l, int fd, size_t most)
{
    *l = (srv_lines){.fd = fd, .most = most};
}

void srv_lines_close(srv_lines *l)
{
    free(l->buf);
    *l = (srv_lines){.fd = -1};
}

static bool make_room(srv_lines *l)
{
    if (l->begin > 0) {
        memmove(l->buf, l->buf + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->cap - l->end < ROOM) {
        size_t cap = 2 * l->cap + ROOM + 1;
        char *buf = realloc(l->buf, cap);
        if (!buf) {
            errno = ENOMEM;
            return false;
        }
        l->buf = buf;
        l->cap = cap;
    }
    return true;
}

/* Waits until something can be read, or the end. False: told to stop. */
static bool wait_for_more(srv_lines *l)
{
    struct pollfd in = {.fd = l->fd, .events = POLLIN};
    while (!l->stopped && poll(&in, 1, LOOK_MS) <= 0)
        l->stopped = l->stop(l->stop_user);
    return !l->stopped;
}

/* Reads more behind what is there. False: it cannot, or was told to stop. */
static bool fill(srv_lines *l)
{
    ssize_t n;
    if (!make_room(l) || (l->stop && !wait_for_more(l)))
        return false;
    do
        n = read(l->fd, l->buf + l->end, l->cap - l->end - 1);
    while (n < 0 && errno == EINTR);
    l->at_end = n == 0;
    l->end += n > 0 ? (size_t)n : 0;
    return n >= 0;
}

static srv_line_kind without_more(const srv_lines *l)
{
    return l->stopped ? SRV_LINE_STOPPED : SRV_LINE_BAD;
}

static srv_line_kind take(srv_lines *l, size_t n, bool newline, char **line, size_t *n_line)
{
    *line = l->buf + l->begin;
    *n_line = n;
    (*line)[n] = '\0';
    l->begin += n + newline;
    l->n_bytes += n + newline;
    l->number++;
    return newline ? SRV_LINE : SRV_LINE_CUT;
}

/* The line is too long already: forgets it up to its end. */
static srv_line_kind skip(srv_lines *l)
{
    l->number++;
    for (;;) {
        char *newline = memchr(l->buf + l->begin, '\n', l->end - l->begin);
        size_t n = newline ? (size_t)(newline - l->buf) - l->begin + 1 : l->end - l->begin;
        l->begin += n;
        l->n_bytes += n;
        if (newline || l->at_end)
            return SRV_LINE_LONG;
        if (!fill(l))
            return without_more(l);
    }
}

srv_line_kind srv_lines_next(srv_lines *l, char **line, size_t *n)
{
    size_t seen = 0;
    for (;;) {
        size_t have = l->end - l->begin;
        char *newline = have > seen ? memchr(l->buf + l->begin + seen, '\n', have - seen) : NULL;
        if (newline && (size_t)(newline - l->buf) - l->begin <= l->most)
            return take(l, (size_t)(newline - l->buf) - l->begin, true, line, n);
        if (newline || have > l->most)
            return skip(l);
        if (l->at_end)
            return have ? take(l, have, false, line, n) : SRV_LINE_NONE;
        seen = have;
        if (!fill(l))
            return without_more(l);
    }
}
