/* textbuf.c - see textbuf.h. */
#include "ask/textbuf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/short_memory.h"

static bool grow(srv_textbuf *b, size_t n)
{
    if (b->failed || n >= SIZE_MAX / 4 - b->n)
        return false;
    if (b->n + n + 1 <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap * 2 : 64;
    while (cap < b->n + n + 1)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (data) {
        b->data = data;
        b->cap = cap;
    }
    return data != NULL;
}

void srv_textbuf_add(srv_textbuf *b, const char *p, size_t n)
{
    if (!grow(b, n)) {
        b->failed = true;
        srv_memory_lost();
        return;
    }
    if (n)
        memcpy(b->data + b->n, p, n);
    b->n += n;
    b->data[b->n] = '\0';
}

void srv_textbuf_str(srv_textbuf *b, const char *text)
{
    srv_textbuf_add(b, text, strlen(text));
}

void srv_textbuf_drop(srv_textbuf *b, size_t n)
{
    if (n >= b->n)
        n = b->n;
    if (n)
        memmove(b->data, b->data + n, b->n - n + 1);
    b->n -= n;
}

void srv_textbuf_free(srv_textbuf *b)
{
    free(b->data);
    *b = (srv_textbuf){0};
}

/* ---- UTF-8 ---- */

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

size_t srv_utf8_length(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if (!is_tail(p[i]))
            return 0;
    bool too_long = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f;
    bool too_large = p[0] == 0xf4 && p[1] > 0x8f;
    return too_long || surrogate || too_large ? 0 : len;
}

void srv_textbuf_utf8(srv_textbuf *b, const char *p, size_t n)
{
    size_t good = 0; /* bytes in a row that are right */
    while (good < n) {
        size_t len = srv_utf8_length(p + good, n - good);
        if (len) {
            good += len;
            continue;
        }
        srv_textbuf_add(b, p, good);
        srv_textbuf_str(b, "\xef\xbf\xbd");
        p += good + 1;
        n -= good + 1;
        good = 0;
    }
    srv_textbuf_add(b, p, good);
}

size_t srv_utf8_count(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !is_tail((unsigned char)p[i]);
    return count;
}
