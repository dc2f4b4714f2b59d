/* textbuf.h - a growing text. A failed allocation is remembered, so that callers ask once. */
#ifndef SRV_TEXTBUF_H
#define SRV_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct srv_textbuf {
    char *data; /* data[n] is NUL once something was added */
    size_t n, cap;
    bool failed; /* memory was short: something is missing */
} srv_textbuf;

void srv_textbuf_add(srv_textbuf *b, const char *p, size_t n);
void srv_textbuf_str(srv_textbuf *b, const char *text);
/* Adds text as UTF-8: bytes that are none become U+FFFD. */
void srv_textbuf_utf8(srv_textbuf *b, const char *p, size_t n);
/* Takes the first n bytes away. */
void srv_textbuf_drop(srv_textbuf *b, size_t n);
void srv_textbuf_free(srv_textbuf *b);

/* Length of the UTF-8 character at p (1..4), or 0 if there is no whole valid one in n bytes. */
size_t srv_utf8_length(const char *p, size_t n);
/* Number of characters in valid UTF-8. */
size_t srv_utf8_count(const char *p, size_t n);

#endif
