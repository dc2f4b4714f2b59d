/* output.c - how the command speaks: standard output, messages on standard error, exit codes, and
 * memory it cannot do without. Every byte to stdout goes through out_write, at once and checked, so
 * that a closed reader ends the program quietly (141) and a full disk is told (5). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cli.h"

/* ---- memory ---- */

static void *need(void *p)
{
    if (!p)
        exit(fail(EXIT_MEMORY, "out of memory"));
    return p;
}

void *xmalloc(size_t n)
{
    return need(malloc(n ? n : 1));
}

void *xrealloc(void *p, size_t n)
{
    return need(realloc(p, n ? n : 1));
}

char *xmemdup(const char *s, size_t n)
{
    char *p = xmalloc(n + 1);
    if (n)
        memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

char *xstrdup(const char *s)
{
    return xmemdup(s, strlen(s));
}

char *text_room(buffer *t, size_t n)
{
    if (t->cap - t->n < n + 1) {
        t->cap = (t->n + n + 1) * 2 + 64;
        t->data = xrealloc(t->data, t->cap);
    }
    t->data[t->n + n] = '\0';
    return t->data + t->n;
}

static void add_formatted(buffer *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *s = text_room(t, n < 0 ? 0 : (size_t)n);
    if (n > 0)
        vsnprintf(s, (size_t)n + 1, fmt, ap);
    t->n += n > 0 ? (size_t)n : 0;
}

char *xformat(const char *fmt, ...)
{
    buffer t = {0};
    va_list ap;
    va_start(ap, fmt);
    add_formatted(&t, fmt, ap);
    va_end(ap);
    return t.data;
}

void text_add(buffer *t, const char *bytes, size_t n)
{
    char *s = text_room(t, n);
    if (n)
        memcpy(s, bytes, n);
    t->n += n;
}

void text_puts(buffer *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_printf(buffer *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_formatted(t, fmt, ap);
    va_end(ap);
}

void text_mapped(buffer *t, const char *s, const char *from, const char *const *to)
{
    for (; *s; s++) {
        const char *at = strchr(from, *s);
        if (at)
            text_puts(t, to[at - from]);
        else
            text_add(t, s, 1);
    }
}

/* ---- text that comes from elsewhere ---- */

static uint32_t code_point(const unsigned char *s, size_t k)
{
    uint32_t c = k == 1 ? s[0] : s[0] & (0x7fu >> k);
    for (size_t i = 1; i < k; i++)
        c = c << 6 | (s[i] & 0x3f);
    return c;
}

bool is_control(const char *s, size_t k)
{
    uint32_t c = code_point((const unsigned char *)s, k);
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x061c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

enum { ESCAPE = 6 }; /* bytes that a byte can become, at most */

/* The bytes into out, which has room for ESCAPE times as many and a NUL; returns how many. */
static size_t make_visible(const char *bytes, size_t n, bool lines, char *out)
{
    char *p = out;
    for (size_t i = 0, k; i < n; i += k ? k : 1) {
        const char *s = bytes + i;
        k = utf8_length((const unsigned char *)s, n - i);
        if (k && (!is_control(s, k) || (lines && (*s == '\n' || *s == '\t'))))
            p = (char *)memcpy(p, s, k) + k;
        else if (!lines && *s == '\n')
            p += snprintf(p, ESCAPE + 1, "\\n");
        else if (k <= 1 && *s != 0x7f)
            p += snprintf(p, ESCAPE + 1, "\\x%02x", (unsigned char)*s);
        else /* as JSON writes it, too */
            p += snprintf(p, ESCAPE + 1, "\\u%04x",
                          (unsigned)code_point((const unsigned char *)s, k));
    }
    *p = '\0';
    return (size_t)(p - out);
}

void text_visible(buffer *t, const char *bytes, size_t n, bool lines)
{
    char *room = text_room(t, ESCAPE * n);
    t->n += make_visible(bytes, n, lines, room);
}

char *visible(const char *s)
{
    buffer t = {0};
    text_visible(&t, s, strlen(s), false);
    return t.data;
}

void free_buffer(buffer *t)
{
    free(t->data);
    *t = (buffer){0};
}

/* ---- standard output ---- */

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

bool out_command(const char *bytes)
{
    progress_pause();
    write_all(bytes, strlen(bytes));
    progress_resume(true);
    return !out_errno;
}

/* Whether standard output is a terminal does not change while the program runs. */
static bool tty_stdout(void)
{
    static int is_one = -1;
    if (is_one < 0)
        is_one = isatty(STDOUT_FILENO);
    return is_one;
}

bool out_write(const char *bytes, size_t n)
{
    buffer shown = {0};
    if (n == 0)
        return !out_errno;
    progress_pause();
    if (tty_stdout())
        text_visible(&shown, bytes, n, true);
    write_all(shown.data ? shown.data : bytes, shown.data ? shown.n : n);
    progress_resume(bytes[n - 1] != '\n');
    free_buffer(&shown);
    return !out_errno;
}

bool out_puts(const char *s)
{
    return out_write(s, strlen(s));
}

bool out_printf(const char *fmt, ...)
{
    buffer t = {0};
    va_list ap;
    va_start(ap, fmt);
    add_formatted(&t, fmt, ap);
    va_end(ap);
    return out_buffer(&t);
}

bool out_buffer(buffer *t)
{
    bool ok = out_write(t->data, t->n);
    free_buffer(t);
    return ok;
}

bool out_failed(void)
{
    return out_errno != 0;
}

bool wants_to_stop(void *unused)
{
    (void)unused;
    return interrupted() || out_errno;
}

int out_finish(int code)
{
    if (out_errno == EPIPE)
        return EXIT_CLOSED;
    if (out_errno)
        return fail(EXIT_IO, "standard output: %s", strerror(out_errno));
    return code;
}

bool tty_stderr(void)
{
    return isatty(STDERR_FILENO);
}

/* ---- messages ---- */

/* Says it with controls escaped; where there is no memory for that, as it is. */
static void say(const char *fmt, va_list ap)
{
    char *text = NULL, *shown = NULL;
    va_list again;
    va_copy(again, ap);
    int n = vasprintf(&text, fmt, again);
    va_end(again);
    if (n >= 0 && (shown = malloc(ESCAPE * (size_t)n + 1))) {
        make_visible(text, (size_t)n, true, shown);
        fputs(shown, stderr);
    } else {
        vfprintf(stderr, fmt, ap);
    }
    free(shown);
    if (n >= 0)
        free(text);
}

/* code < 0: the message ends nothing. */
static void speak(bitnet_log_level level, int code, const char *before, const char *fmt, va_list ap,
                  const char *after)
{
    progress_pause();
    if (!log_own_line(level, code, fmt, ap)) {
        fputs(before, stderr);
        say(fmt, ap);
        fputs(after, stderr);
    }
    progress_resume(false);
}

int fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    speak(BITNET_LOG_ERROR, code, "bitnet: ", fmt, ap, "\n");
    va_end(ap);
    return code;
}

void warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    speak(BITNET_LOG_WARN, -1, "bitnet: warning: ", fmt, ap, "\n");
    va_end(ap);
}

void note(const args *a, const char *fmt, ...)
{
    va_list ap;
    if (opt_on(a, OPT_QUIET) || out_errno)
        return;
    va_start(ap, fmt);
    speak(BITNET_LOG_INFO, -1, "", fmt, ap, "");
    va_end(ap);
}

/* ---- exit codes ---- */

#define SAME(name) ((int)BITNET_##name == (int)EXIT_##name)
_Static_assert(SAME(OK) && SAME(MODEL) && SAME(TOKENIZER) && SAME(IO) && SAME(MEMORY) &&
                   SAME(MISMATCH) && SAME(SUSPICIOUS) && SAME(PERFORMANCE) && SAME(MEMORY_GATE) &&
                   SAME(NOT_COMPILED) && SAME(NOT_AVAILABLE) && SAME(RECEIPT) && SAME(VANISHED) &&
                   (int)BITNET_ARGUMENT == EXIT_USAGE && (int)BITNET_ERROR == EXIT_OTHER,
               "a status is its exit code");

int fail_with(const bitnet_error *err)
{
    if (err->status == BITNET_CANCELLED && interrupted())
        return interrupted();
    char text[2 * sizeof err->message];
    bool names_fields = err->status == BITNET_ARGUMENT || err->status == BITNET_MEMORY ||
                        err->status == BITNET_CONTEXT;
    return fail((int)err->status <= EXIT_VANISHED ? (int)err->status : EXIT_OTHER, "%s",
                names_fields && err->message[0] ? in_flags(err->message, text, sizeof text)
                : err->message[0]               ? err->message
                                                : bitnet_status_text(err->status));
}

int outcome(bitnet_status status, const bitnet_error *err)
{
    return status == BITNET_OK ? EXIT_OK : fail_with(err);
}
