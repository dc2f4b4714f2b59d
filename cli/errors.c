/* errors.c - how the command speaks of failure: messages, exit codes, memory it cannot do without.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "progress.h"

static const struct {
    int code;
    const char *text;
} codes[] = {
#define EXIT_CODE(name, code, text) {code, text},
#include "exit_codes.inc"
#undef EXIT_CODE
};

#define SAME(name) _Static_assert((int)BITNET_##name == (int)EXIT_##name, "exit code of " #name)
SAME(OK);
SAME(MODEL);
SAME(TOKENIZER);
SAME(IO);
SAME(MEMORY);
SAME(MISMATCH);
SAME(SUSPICIOUS);
SAME(PERFORMANCE);
SAME(MEMORY_GATE);
SAME(NOT_COMPILED);
SAME(NOT_AVAILABLE);
SAME(RECEIPT);
SAME(VANISHED);
_Static_assert((int)BITNET_ARGUMENT == (int)EXIT_USAGE, "exit code of ARGUMENT");
_Static_assert((int)BITNET_ERROR == (int)EXIT_OTHER, "exit code of ERROR");

bool exit_code_at(size_t i, int *code, const char **meaning)
{
    if (i >= sizeof codes / sizeof codes[0])
        return false;
    *code = codes[i].code;
    *meaning = codes[i].text;
    return true;
}

int status_exit(bitnet_status status)
{
    if (status == BITNET_CANCELLED)
        return interrupted() ? interrupted() : EXIT_OTHER;
    return (int)status <= EXIT_VANISHED ? (int)status : EXIT_OTHER;
}

int fail_with(const bitnet_error *err)
{
    return fail(status_exit(err->status), "%s",
                err->message[0] ? err->message : bitnet_status_text(err->status));
}

int fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    progress_pause();
    if (!log_own_line(BITNET_LOG_ERROR, code, fmt, ap)) {
        fputs("bitnet: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
    }
    progress_resume(false);
    va_end(ap);
    return code;
}

void warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    progress_pause();
    if (!log_own_line(BITNET_LOG_WARN, -1, fmt, ap)) {
        fputs("bitnet: warning: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
    }
    progress_resume(false);
    va_end(ap);
}

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

static char *format_list(const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *p = xmalloc(n < 0 ? 1 : (size_t)n + 1);
    p[0] = '\0';
    if (n >= 0)
        vsnprintf(p, (size_t)n + 1, fmt, ap);
    return p;
}

char *xformat(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = format_list(fmt, ap);
    va_end(ap);
    return p;
}

void text_add(buffer *t, const char *bytes, size_t n)
{
    if (t->cap - t->n < n + 1) {
        t->cap = (t->n + n + 1) * 2 + 64;
        t->data = xrealloc(t->data, t->cap);
    }
    if (n)
        memcpy(t->data + t->n, bytes, n);
    t->n += n;
    t->data[t->n] = '\0';
}

void text_puts(buffer *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_printf(buffer *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = format_list(fmt, ap);
    va_end(ap);
    text_puts(t, s);
    free(s);
}

void free_buffer(buffer *t)
{
    free(t->data);
    *t = (buffer){0};
}
