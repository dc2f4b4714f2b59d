/* json_reader.c - the grammar of RFC 8259 as a machine of five states and a word of bits. */
#include "base/json_reader.h"

#include <stdio.h>

/* What may come next. */
enum { VALUE, VALUE_OR_END, KEY, KEY_OR_END, AFTER };

bnet_json_reader bnet_json_reader_of(const char *data, size_t n)
{
    return (bnet_json_reader){.data = data, .n = n, .state = VALUE, .event = BNET_JSON_NULL};
}

static bnet_json_event bad(bnet_json_reader *r, const char *why)
{
    r->why = why;
    return r->event = BNET_JSON_BAD;
}

static void skip_blanks(bnet_json_reader *r)
{
    while (r->at < r->n && (r->data[r->at] == ' ' || r->data[r->at] == '\n' ||
                            r->data[r->at] == '\r' || r->data[r->at] == '\t'))
        r->at++;
}

/* The next byte; 0, which no JSON has outside of strings, at the end. */
static char peek(const bnet_json_reader *r)
{
    return r->at < r->n ? r->data[r->at] : '\0';
}

/* ---- strings ---- */

/* The four digits of \uXXXX; -1: there are none. */
static int32_t hex4(const char *s, size_t n)
{
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < n ? bnet_hex_digit(s[i]) : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Reads the escape at s, whose first byte is a backslash. Returns its length in bytes; 0: it is
 * none, *why says what is wrong. */
static size_t read_escape(const char *s, size_t n, uint32_t *cp, const char **why)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = n > 1 && s[1] ? strchr(names, s[1]) : NULL;
    if (name) {
        *cp = (unsigned char)values[name - names];
        return 2;
    }
    int32_t high = n > 1 && s[1] == 'u' ? hex4(s + 2, n - 2) : -1;
    *why = "not an escape";
    if (high < 0)
        return 0;
    *cp = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff)
        return 6;
    int32_t low = n > 7 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8, n - 8) : -1;
    *why = "a lone surrogate";
    if (high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return 0;
    *cp = 0x10000u + (((uint32_t)high - 0xd800u) << 10) + ((uint32_t)low - 0xdc00u);
    return 12;
}

/* The character or escape at r->at, which is not a plain ASCII one. False: bad. */
static bool pass_special(bnet_json_reader *r)
{
    const char *s = r->data + r->at;
    uint32_t cp;
    if (*s == '\\') {
        size_t n = read_escape(s, r->n - r->at, &cp, &r->why);
        r->at += n;
        r->escaped = true;
        return n > 0;
    }
    int n = (unsigned char)*s < 0x20 ? 0 : bnet_utf8_len(s, r->n - r->at);
    r->why = (unsigned char)*s < 0x20 ? "a control character in a string" : "not UTF-8";
    r->at += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* r->at is behind the opening quote; leaves it behind the closing one. */
static bool pass_string(bnet_json_reader *r)
{
    size_t begin = r->at;
    r->escaped = false;
    while (r->at < r->n) {
        unsigned char c = (unsigned char)r->data[r->at];
        if (c == '"') {
            r->raw = (bnet_span){r->data + begin, r->at - begin};
            r->at++;
            return true;
        }
        if (c >= 0x20 && c < 0x80 && c != '\\')
            r->at++;
        else if (!pass_special(r))
            return false;
    }
    r->why = "the string does not end";
    return false;
}

void bnet_json_text(const bnet_json_reader *r, bnet_str *s)
{
    const char *p = r->raw.data, *end = p + r->raw.n, *why;
    while (p < end) {
        const char *next = r->escaped ? memchr(p, '\\', (size_t)(end - p)) : NULL;
        bnet_str_add(s, p, (size_t)((next ? next : end) - p));
        p = next ? next : end;
        if (next) {
            uint32_t cp = 0;
            char utf8[4];
            p += read_escape(p, (size_t)(end - p), &cp, &why);
            bnet_str_add(s, utf8, (size_t)bnet_utf8_encode(cp, utf8));
        }
    }
}

bool bnet_json_text_is(const bnet_json_reader *r, const char *text)
{
    const char *p = r->raw.data, *end = p + r->raw.n, *why;
    while (p < end) {
        uint32_t cp = 0;
        char utf8[4] = {*p};
        size_t n = *p == '\\' ? read_escape(p, (size_t)(end - p), &cp, &why) : 1;
        size_t n_utf8 = *p == '\\' ? (size_t)bnet_utf8_encode(cp, utf8) : 1;
        if (strncmp(text, utf8, n_utf8) != 0 || utf8[0] == '\0')
            return false;
        text += n_utf8;
        p += n;
    }
    return *text == '\0';
}

/* ---- numbers and words ---- */

static bool pass_digits(bnet_json_reader *r)
{
    size_t begin = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return r->at > begin;
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static bnet_json_event pass_number(bnet_json_reader *r)
{
    size_t begin = r->at;
    bool real = false;
    r->at += peek(r) == '-';
    if (peek(r) == '0')
        r->at++;
    else if (!pass_digits(r))
        return bad(r, "not a value");
    if (peek(r) == '.') {
        r->at++;
        real = true;
        if (!pass_digits(r))
            return bad(r, "a digit was expected");
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        r->at++;
        real = true;
        r->at += peek(r) == '+' || peek(r) == '-';
        if (!pass_digits(r))
            return bad(r, "a digit was expected");
    }
    r->raw = (bnet_span){r->data + begin, r->at - begin};
    return real ? BNET_JSON_REAL : BNET_JSON_INTEGER;
}

bool bnet_json_int64(const bnet_json_reader *r, int64_t *out)
{
    bool negative = r->raw.data[0] == '-';
    int64_t value = 0;
    for (size_t i = negative; i < r->raw.n; i++) {
        int digit = r->raw.data[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return false;
    }
    *out = value;
    return true;
}

static bnet_json_event pass_word(bnet_json_reader *r, const char *word, bnet_json_event e)
{
    size_t n = strlen(word);
    if (r->n - r->at < n || memcmp(r->data + r->at, word, n) != 0)
        return bad(r, "not a value");
    r->at += n;
    return e;
}

/* ---- the machine ---- */

static bool in_object(const bnet_json_reader *r)
{
    return r->objects >> (r->depth - 1) & 1;
}

static bnet_json_event open_container(bnet_json_reader *r, bool object)
{
    if (r->depth == BNET_JSON_DEPTH)
        return bad(r, "arrays and objects are nested more than 64 deep");
    r->at++;
    r->objects &= ~((uint64_t)1 << r->depth);
    r->objects |= (uint64_t)object << r->depth;
    r->depth++;
    r->state = object ? KEY_OR_END : VALUE_OR_END;
    return r->event = object ? BNET_JSON_OBJECT : BNET_JSON_ARRAY;
}

static bnet_json_event close_container(bnet_json_reader *r)
{
    bool object = in_object(r);
    r->at++;
    r->depth--;
    r->state = AFTER;
    return r->event = object ? BNET_JSON_OBJECT_END : BNET_JSON_ARRAY_END;
}

static bnet_json_event pass_scalar(bnet_json_reader *r)
{
    r->state = AFTER;
    switch (peek(r)) {
    case '"':
        r->at++;
        return r->event = pass_string(r) ? BNET_JSON_STRING : BNET_JSON_BAD;
    case 't':
        return r->event = pass_word(r, "true", BNET_JSON_TRUE);
    case 'f':
        return r->event = pass_word(r, "false", BNET_JSON_FALSE);
    case 'n':
        return r->event = pass_word(r, "null", BNET_JSON_NULL);
    default:
        return r->event = pass_number(r);
    }
}

static bnet_json_event pass_value(bnet_json_reader *r)
{
    char c = peek(r);
    if (r->at == r->n)
        return bad(r, "the text ends where a value was expected");
    r->n_values++;
    return c == '{' || c == '[' ? open_container(r, c == '{') : pass_scalar(r);
}

/* A key and the colon behind it. */
static bnet_json_event pass_key(bnet_json_reader *r)
{
    if (peek(r) != '"')
        return bad(r, "a key in quotes was expected");
    r->at++;
    if (!pass_string(r))
        return r->event = BNET_JSON_BAD;
    skip_blanks(r);
    if (peek(r) != ':')
        return bad(r, "a colon was expected");
    r->at++;
    r->state = VALUE;
    return r->event = BNET_JSON_KEY;
}

/* A value has ended: the text too, or its container, or a comma follows. True: go on. */
static bool pass_comma(bnet_json_reader *r)
{
    if (peek(r) != ',') {
        bad(r, "a comma or the closing bracket was expected");
        return false;
    }
    r->at++;
    r->state = in_object(r) ? KEY : VALUE;
    skip_blanks(r);
    return true;
}

bnet_json_event bnet_json_next(bnet_json_reader *r)
{
    if (r->event == BNET_JSON_BAD)
        return BNET_JSON_BAD;
    skip_blanks(r);
    if (r->state == AFTER && r->depth == 0)
        return r->at < r->n ? bad(r, "text behind the value") : (r->event = BNET_JSON_END);
    if (r->state != VALUE && r->state != KEY && peek(r) == (in_object(r) ? '}' : ']'))
        return close_container(r);
    if (r->state == AFTER && !pass_comma(r))
        return BNET_JSON_BAD;
    return r->state == KEY || r->state == KEY_OR_END ? pass_key(r) : pass_value(r);
}

bnet_json_event bnet_json_skip(bnet_json_reader *r)
{
    int depth = r->depth;
    if (r->event != BNET_JSON_OBJECT && r->event != BNET_JSON_ARRAY)
        return r->event;
    while (r->depth >= depth && r->event != BNET_JSON_BAD)
        bnet_json_next(r);
    return r->event;
}

/* ---- for people ---- */

const char *bnet_json_event_name(bnet_json_event e)
{
    static const char *const names[] = {
        [BNET_JSON_OBJECT] = "an object",         [BNET_JSON_ARRAY] = "an array",
        [BNET_JSON_STRING] = "a string",          [BNET_JSON_INTEGER] = "an integer",
        [BNET_JSON_TRUE] = "a boolean",           [BNET_JSON_FALSE] = "a boolean",
        [BNET_JSON_REAL] = "a fractional number", [BNET_JSON_NULL] = "null"};
    const char *name = (size_t)e < BNET_COUNT(names) ? names[e] : NULL;
    return name ? name : "nothing";
}

const char *bnet_json_where(const bnet_json_reader *r, char *buf, size_t cap)
{
    size_t line = 1, begin = 0, at = BNET_MIN(r->at, r->n);
    for (size_t i = 0; i < at; i++)
        if (r->data[i] == '\n') {
            line++;
            begin = i + 1;
        }
    snprintf(buf, cap, "line %zu, column %zu, byte %zu: %s", line, at - begin + 1, at,
             r->why ? r->why : "");
    return buf;
}

const char *bnet_json_measure(const char *data, size_t n, size_t max_values, char *why, size_t cap)
{
    char limit[64];
    bnet_json_reader r = bnet_json_reader_of(data, n);
    while (bnet_json_next(&r) != BNET_JSON_END && r.event != BNET_JSON_BAD)
        if (r.n_values > max_values) {
            snprintf(limit, sizeof limit, "more than %zu values", max_values);
            r.why = limit;
            bnet_json_where(&r, why, cap);
            return "too much JSON";
        }
    if (r.event == BNET_JSON_BAD)
        bnet_json_where(&r, why, cap);
    return r.event == BNET_JSON_BAD ? "not valid JSON" : NULL;
}
