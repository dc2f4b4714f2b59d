/* jinja_text.c - characters of UTF-8 text, and what Python takes for white space and for lines. */
#include "jinja/jinja_impl.h"

static size_t character_bytes(const char *s, size_t n)
{
    int len = bnet_utf8_len(s, n);
    return len > 0 ? (size_t)len : 1;
}

size_t bnet_jinja_characters(bnet_span s)
{
    size_t count = 0;
    for (size_t i = 0; i < s.n; count++)
        i += character_bytes(s.data + i, s.n - i);
    return count;
}

size_t bnet_jinja_offset(bnet_span s, size_t index)
{
    size_t i = 0;
    for (; index && i < s.n; index--)
        i += character_bytes(s.data + i, s.n - i);
    return i;
}

bnet_span bnet_jinja_character(bnet_span s, size_t index)
{
    size_t i = bnet_jinja_offset(s, index);
    return (bnet_span){s.data + i, i < s.n ? character_bytes(s.data + i, s.n - i) : 0};
}

static bool is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Blanks but the space, controls, formats and private characters are not. Those from U+10FF00 on
 * are, unlike in Python: callers put characters in disguise there. Neither are unassigned ones
 * escaped, which differ from one Python to the next. */
bool bnet_jinja_printable(uint32_t c)
{
    static const uint32_t hidden[][2] = {
        {0x00, 0x1f},       {0x7f, 0xa0},       {0xad, 0xad},         {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},       {0x890, 0x891},
        {0x8e2, 0x8e2},     {0x1680, 0x1680},   {0x180e, 0x180e},     {0x2000, 0x200f},
        {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},     {0xe000, 0xf8ff},
        {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},   {0x110cd, 0x110cd},
        {0x13430, 0x13438}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},   {0xe0001, 0xe0001},
        {0xe0020, 0xe007f}, {0xf0000, 0xffffd}, {0x100000, 0x10feff},
    };
    if (c > ' ' && c < 0x7f)
        return true;
    for (size_t i = 0; i < BNET_COUNT(hidden) && hidden[i][0] <= c; i++)
        if (c <= hidden[i][1])
            return false;
    return true;
}

/* Bytes of the white space character at s; 0: there is none. */
static size_t blank_at(const char *s, size_t n)
{
    int len = bnet_utf8_len(s, n);
    return len > 0 && is_blank(bnet_utf8_decode(s, len)) ? (size_t)len : 0;
}

size_t bnet_jinja_blank(bnet_span s)
{
    size_t i = 0;
    for (size_t n; i < s.n && (n = blank_at(s.data + i, s.n - i)) != 0;)
        i += n;
    return i;
}

size_t bnet_jinja_blank_end(bnet_span s)
{
    size_t end = s.n;
    while (end) {
        size_t start = end - 1;
        while (start && end - start < 4 && ((unsigned char)s.data[start] & 0xc0) == 0x80)
            start--;
        if (blank_at(s.data + start, end - start) != end - start)
            break;
        end = start;
    }
    return s.n - end;
}

/* Bytes of the end of a line at s; 0: there is none. */
static size_t line_end_at(const char *s, size_t n)
{
    int len = bnet_utf8_len(s, n);
    uint32_t c = len > 0 ? bnet_utf8_decode(s, len) : 0;
    if (c == '\r' && n > 1 && s[1] == '\n')
        return 2;
    bool ends =
        (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return ends ? (size_t)len : 0;
}

bnet_span bnet_jinja_line(bnet_span *s)
{
    bnet_span line = {s->data, 0};
    size_t end = 0;
    while (line.n < s->n && (end = line_end_at(s->data + line.n, s->n - line.n)) == 0)
        line.n++;
    *s = (bnet_span){s->data + line.n + end, s->n - line.n - end};
    return line;
}
