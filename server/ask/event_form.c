/* event_form.c - see event_form.h. Hides how a text is written in JSON: as jansson does. */
#include "ask/event_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/short_memory.h"

/* The two characters of a short escape; NULL: there is none. */
static const char *short_escape(unsigned char c)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

static void add_escaped(srv_textbuf *b, const char *text, size_t n)
{
    size_t plain = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        const char *escape = short_escape(c);
        char code[8];
        if (c >= 0x20 && !escape)
            continue;
        if (!escape)
            snprintf(code, sizeof code, "\\u%04X", c);
        srv_textbuf_add(b, text + plain, i - plain);
        srv_textbuf_str(b, escape ? escape : code);
        plain = i + 1;
    }
    srv_textbuf_add(b, text + plain, n - plain);
}

bool srv_form_open(srv_form *f, json_t *value, const char *mark)
{
    char *whole = srv_json_whole(value);
    json_decref(value);
    const char *at = whole ? strstr(whole, mark) : NULL;
    for (const char *next = at; next; next = strstr(next + 1, mark))
        at = next; /* a name before it may look like it */
    if (at) {
        srv_textbuf_str(&f->event, "data: ");
        srv_textbuf_add(&f->event, whole, (size_t)(at - whole));
        srv_textbuf_str(&f->after, at + strlen(mark));
        srv_textbuf_str(&f->after, "\n\n");
    }
    free(whole);
    f->n_before = f->event.n;
    return at && !f->event.failed && !f->after.failed;
}

void srv_form_free(srv_form *f)
{
    srv_textbuf_free(&f->event);
    srv_textbuf_free(&f->after);
    f->n_before = 0;
}

bool srv_form_write(srv_form *f, srv_exchange *x, const char *text, size_t n_text)
{
    f->event.n = f->n_before;
    add_escaped(&f->event, text, n_text);
    srv_textbuf_add(&f->event, f->after.data, f->after.n);
    if (f->event.failed)
        return srv_stream_event(x, NULL, NULL);
    return srv_stream_write(x, f->event.data, f->event.n);
}
