/* output.c - standard output and standard error. Every byte to stdout goes through out_write, at
 * once and checked, so that a closed reader ends the program quietly (141) and a full disk is told
 * (5). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "progress.h"

static int out_errno; /* of the first failed write; 0: none */

/* A closed descriptor 0, 1 or 2 would be given to the next file opened; a stand-in that cannot be
 * written keeps writes to it failing as they should. */
void out_guard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

static bool wait_writable(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, -1) >= 0 || errno == EINTR;
}

static void write_all(const char *bytes, size_t n)
{
    while (n && !out_errno) {
        ssize_t k = write(STDOUT_FILENO, bytes, n);
        if (k >= 0) {
            bytes += k;
            n -= (size_t)k;
        } else if (errno == EAGAIN && wait_writable()) {
            continue;
        } else if (errno != EINTR) {
            out_errno = errno;
        }
    }
}

bool out_write(const char *bytes, size_t n)
{
    if (n) {
        progress_pause();
        write_all(bytes, n);
        progress_resume(bytes[n - 1] != '\n');
    }
    return !out_errno;
}

bool out_puts(const char *s)
{
    return out_write(s, strlen(s));
}

bool out_printf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && out_write(s, (size_t)n);
    if (n >= 0)
        free(s);
    return ok;
}

bool out_failed(void)
{
    return out_errno != 0;
}

int out_finish(int code)
{
    if (out_errno == EPIPE)
        return EXIT_CLOSED;
    if (out_errno)
        return fail(EXIT_IO, "standard output: %s", strerror(out_errno));
    return code;
}

void note(const args *a, const char *fmt, ...)
{
    va_list ap;
    if (opt_on(a, OPT_QUIET) || out_errno)
        return;
    va_start(ap, fmt);
    progress_pause();
    if (!log_own_line(BITNET_LOG_INFO, -1, fmt, ap))
        vfprintf(stderr, fmt, ap);
    progress_resume(false);
    va_end(ap);
}

bool tty_stderr(void)
{
    return isatty(STDERR_FILENO);
}
