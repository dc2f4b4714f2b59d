/* json_text.h - a text as a JSON string, alone or as a member of an object. */
#ifndef BNET_JSON_TEXT_H
#define BNET_JSON_TEXT_H

#include "base/str.h"

/* Appends s with its quotes; bytes that are no UTF-8 become U+FFFD. */
static inline void bnet_json_text(bnet_str *out, const char *s)
{
    size_t n = strlen(s);
    bnet_str_putc(out, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        int len = bnet_utf8_len(s + i, n - i);
        if (len <= 0)
            bnet_str_puts(out, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            bnet_str_addf(out, "\\%c", c);
        else if (c < 0x20)
            bnet_str_addf(out, "\\u%04x", c);
        else
            bnet_str_add(out, s + i, (size_t)len);
        i += len <= 0 ? 1 : (size_t)len;
    }
    bnet_str_putc(out, '"');
}

/* "name": "value", and what follows it. */
static inline void bnet_json_member(bnet_str *out, const char *name, const char *value,
                                    const char *after)
{
    bnet_str_addf(out, "\"%s\": ", name);
    bnet_json_text(out, value);
    bnet_str_puts(out, after);
}

#endif
