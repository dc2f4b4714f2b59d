/* jinja_lex.c - cuts a template into text and tokens, with Jinja's rules for the white space around
 * tags: "-" takes all of it, a block's line end and the blanks before a block go by themselves
 * (trim_blocks, lstrip_blocks), "+" keeps them. */
#include "jinja/jinja_lex.h"

#include <stdlib.h>

/* ---- the source ---- */

jinja_lexer bnet_jinja_lexer(jinja *m, bnet_span source)
{
    jinja_lexer l = {.m = m, .line = 1, .line_begins = true};
    char *copy = bnet_jinja_step(m, source.n) ? bnet_jinja_alloc(m, source.n + 1) : NULL;
    size_t n = 0;
    for (size_t i = 0; copy && i < source.n; i++) {
        char c = source.data[i];
        if (c == '\r' && i + 1 < source.n && source.data[i + 1] == '\n')
            continue;
        copy[n++] = c == '\r' ? '\n' : c;
    }
    if (n && copy[n - 1] == '\n')
        n--;
    l.source = (bnet_span){copy ? copy : "", copy ? n : 0};
    return l;
}

static bool ahead(const jinja_lexer *l, const char *text)
{
    size_t n = strlen(text);
    return l->source.n - l->at >= n && memcmp(l->source.data + l->at, text, n) == 0;
}

static bnet_span rest(const jinja_lexer *l)
{
    return (bnet_span){l->source.data + l->at, l->source.n - l->at};
}

static void advance(jinja_lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->source.data[l->at + i] == '\n';
    if (n)
        l->line_begins = l->source.data[l->at + n - 1] == '\n';
    l->at += n;
}

/* ---- text between tags ---- */

/* Where the next tag begins, or the end. */
static size_t find_tag(const jinja_lexer *l)
{
    for (size_t i = l->at; i + 1 < l->source.n; i++)
        if (l->source.data[i] == '{' && strchr("{%#", l->source.data[i + 1]) &&
            l->source.data[i + 1])
            return i;
    return l->source.n;
}

/* The text up to `tag`, less what the tag takes away in front of it. */
static bnet_span text_before(const jinja_lexer *l, size_t tag)
{
    bnet_span s = {l->source.data + l->at, tag - l->at};
    bool whole = tag == l->source.n;
    char kind = whole ? 0 : l->source.data[tag + 1], sign = 0;
    if (!whole && tag + 2 < l->source.n)
        sign = l->source.data[tag + 2];
    if (whole || sign == '+')
        return s;
    if (sign == '-') {
        s.n -= bnet_jinja_blank_end(s);
        return s;
    }
    size_t n = s.n;
    while (kind != '{' && n && (s.data[n - 1] == ' ' || s.data[n - 1] == '\t'))
        n--;
    if (kind != '{' && (n ? s.data[n - 1] == '\n' : l->line_begins))
        s.n = n;
    return s;
}

/* Behind a tag's end: "-" takes white space, a block or comment takes one line end. */
static void after_tag(jinja_lexer *l, char sign, bool block)
{
    l->line_begins = false;
    if (sign == '-')
        advance(l, bnet_jinja_blank(rest(l)));
    else if (block && sign != '+' && ahead(l, "\n"))
        advance(l, 1);
}

static void skip_comment(jinja_lexer *l)
{
    const char *end = memmem(l->source.data + l->at, l->source.n - l->at, "#}", 2);
    if (!end || end < l->source.data + l->at + 2) {
        l->m->line = l->line;
        bnet_jinja_fail(l->m, "a comment {# does not end");
        return;
    }
    char sign = end[-1];
    if (end == l->source.data + l->at + 2)
        sign = 0;
    advance(l, (size_t)(end + 2 - l->source.data) - l->at);
    after_tag(l, sign, true);
}

/* At "{%": the length of a tag that is this word alone, its signs; 0: it is another. */
static size_t lone_tag(const jinja_lexer *l, size_t at, const char *word, char *front, char *back)
{
    size_t i = at + 2, n = strlen(word), end = l->source.n;
    const char *s = l->source.data;
    *front = *back = 0;
    if (i < end && (s[i] == '-' || s[i] == '+'))
        *front = s[i++];
    while (i < end && strchr(" \t\n", s[i]) && s[i])
        i++;
    if (end - i < n || memcmp(s + i, word, n) != 0)
        return 0;
    i += n;
    while (i < end && strchr(" \t\n", s[i]) && s[i])
        i++;
    if (i < end && (s[i] == '-' || s[i] == '+'))
        *back = s[i++];
    return end - i >= 2 && s[i] == '%' && s[i + 1] == '}' ? i + 2 - at : 0;
}

/* At {% raw %}: all up to {% endraw %} is text. */
static bool raw_text(jinja_lexer *l, size_t length, char sign, bnet_span *text)
{
    char front, back;
    advance(l, length);
    after_tag(l, sign, false);
    for (size_t i = l->at; i + 1 < l->source.n; i++) {
        if (l->source.data[i] != '{' || l->source.data[i + 1] != '%')
            continue;
        size_t n = lone_tag(l, i, "endraw", &front, &back);
        if (!n)
            continue;
        *text = text_before(l, i);
        advance(l, i - l->at + n);
        after_tag(l, back, true);
        return true;
    }
    l->m->line = l->line;
    bnet_jinja_fail(l->m, "{%% raw %%} has no {%% endraw %%}");
    return false;
}

static jinja_token token_of(const jinja_lexer *l, jinja_token_kind kind, bnet_span s)
{
    return (jinja_token){.kind = kind, .line = l->line, .s = s};
}

/* Outside of a tag: text, or the beginning of one. */
static jinja_token next_outside(jinja_lexer *l)
{
    char front, back;
    bnet_span text;
    while (!l->m->failed && l->at < l->source.n) {
        size_t tag = find_tag(l);
        text = text_before(l, tag);
        jinja_token t = token_of(l, TOKEN_TEXT, text);
        advance(l, tag - l->at);
        if (text.n)
            return t;
        size_t raw = ahead(l, "{%") ? lone_tag(l, l->at, "raw", &front, &back) : 0;
        if (raw) {
            t.line = l->line;
            if (raw_text(l, raw, back, &t.s) && t.s.n)
                return t;
        } else if (ahead(l, "{#")) {
            skip_comment(l);
        } else if (l->at < l->source.n) {
            l->block = ahead(l, "{%");
            l->in_tag = true;
            l->open = 0;
            t = token_of(l, l->block ? TOKEN_BLOCK : TOKEN_PRINT, rest(l));
            advance(l, 2);
            if (ahead(l, "-") || ahead(l, "+"))
                advance(l, 1);
            return t;
        }
    }
    return token_of(l, TOKEN_END, (bnet_span){"", 0});
}

/* ---- tokens ---- */

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Hexadecimal digits of an escape become a character; false: they are none. */
static bool put_code(bnet_str *out, const char *s, size_t n, size_t digits, int base)
{
    char number[12] = {0}, utf8[4], *end;
    if (n < digits)
        return false;
    memcpy(number, s, digits);
    unsigned long code = strtoul(number, &end, base);
    if (*end || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return false;
    bnet_str_add(out, utf8, (size_t)bnet_utf8_encode((uint32_t)code, utf8));
    return true;
}

/* The escape behind a backslash; returns the bytes it takes, 0: wrong. */
static size_t put_escape(bnet_str *out, const char *s, size_t n)
{
    static const char plain[] = "n\nt\tr\ra\ab\bf\fv\v\\\\''\"\"";
    for (size_t i = 0; i + 1 < sizeof plain; i += 2)
        if (plain[i] == s[0]) {
            bnet_str_putc(out, plain[i + 1]);
            return 1;
        }
    if (s[0] == '\n')
        return 1;
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (digits)
        return put_code(out, s + 1, n - 1, digits, 16) ? digits + 1 : 0;
    while (digits < 3 && digits < n && s[digits] >= '0' && s[digits] <= '7')
        digits++;
    if (digits)
        return put_code(out, s, n, digits, 8) ? digits : 0;
    bnet_str_putc(out, '\\');
    bnet_str_putc(out, s[0]);
    return 1;
}

static jinja_token next_string(jinja_lexer *l)
{
    bnet_span s = rest(l);
    bnet_str text = {0};
    jinja_token t = token_of(l, TOKEN_STRING, s);
    size_t i = 1;
    while (i < s.n && s.data[i] != s.data[0]) {
        size_t n = 1;
        if (s.data[i] != '\\')
            bnet_str_putc(&text, s.data[i]);
        else if (i + 1 >= s.n || !(n = put_escape(&text, s.data + i + 1, s.n - i - 1)))
            break;
        i += s.data[i] == '\\' ? n + 1 : 1;
    }
    if (i >= s.n || s.data[i] != s.data[0])
        bnet_jinja_fail(l->m, "a string does not end, or has a wrong escape");
    else
        advance(l, i + 1);
    t.value = bnet_jinja_take(l->m, &text);
    return t;
}

static jinja_token next_number(jinja_lexer *l)
{
    bnet_span s = rest(l);
    char text[64];
    size_t n = 0, i = 0;
    bool real = false;
    for (; i < s.n && n + 1 < sizeof text; i++) {
        bool exponent = (s.data[i] == 'e' || s.data[i] == 'E') && i + 1 < s.n &&
                        (digit(s.data[i + 1]) || ((s.data[i + 1] == '-' || s.data[i + 1] == '+') &&
                                                  i + 2 < s.n && digit(s.data[i + 2])));
        bool point = s.data[i] == '.' && !real && i + 1 < s.n && digit(s.data[i + 1]);
        bool sign = (s.data[i] == '-' || s.data[i] == '+') && i && strchr("eE", s.data[i - 1]);
        if (!digit(s.data[i]) && s.data[i] != '_' && !exponent && !point && !sign)
            break;
        real = real || exponent || point;
        if (s.data[i] != '_')
            text[n++] = s.data[i];
    }
    text[n] = '\0';
    jinja_token t = token_of(l, real ? TOKEN_FLOAT : TOKEN_INT, s);
    if (n + 1 >= sizeof text || (!real && n > 18) || (i < s.n && letter(s.data[i])))
        bnet_jinja_fail(l->m, "a number is too long or no number");
    t.value = real ? bnet_jinja_float(strtod(text, NULL)) : bnet_jinja_int(strtoll(text, NULL, 10));
    advance(l, i);
    return t;
}

static jinja_token next_sign(jinja_lexer *l)
{
    static const char *const two[] = {"**", "//", "==", "!=", "<=", ">="};
    bnet_span s = rest(l);
    size_t n = 1;
    for (size_t i = 0; i < BNET_COUNT(two); i++)
        n = ahead(l, two[i]) ? 2 : n;
    if (n == 1 && (!s.data[0] || !strchr("+-*/%~|()[]{}<>=.,:;", s.data[0])))
        bnet_jinja_fail(l->m, "character %#x has no place in a tag", (unsigned char)s.data[0]);
    if (n == 1 && strchr("([{", s.data[0]))
        l->open++;
    if (n == 1 && strchr(")]}", s.data[0]))
        l->open--;
    jinja_token t = token_of(l, TOKEN_SIGN, (bnet_span){s.data, n});
    advance(l, n);
    return t;
}

/* The tag's end with its sign, if it is here. */
static bool tag_ends(jinja_lexer *l, jinja_token *t)
{
    const char *end = l->block ? "%}" : "}}";
    char sign = ahead(l, "-") || (l->block && ahead(l, "+")) ? l->source.data[l->at] : 0;
    jinja_lexer here = *l;
    here.at += sign != 0;
    if (l->open > 0 || !ahead(&here, end))
        return false;
    *t = token_of(l, l->block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, rest(l));
    advance(l, 2 + (sign != 0));
    after_tag(l, sign, l->block);
    l->in_tag = false;
    return true;
}

jinja_token bnet_jinja_next(jinja_lexer *l)
{
    jinja_token t;
    if (!l->in_tag || !bnet_jinja_step(l->m, 0))
        return next_outside(l);
    advance(l, bnet_jinja_blank(rest(l)));
    l->m->line = l->line;
    bnet_span s = rest(l);
    if (s.n == 0) {
        bnet_jinja_fail(l->m, "a tag does not end");
        return token_of(l, TOKEN_END, s);
    }
    if (tag_ends(l, &t))
        return t;
    if (s.data[0] == '"' || s.data[0] == '\'')
        return next_string(l);
    if (digit(s.data[0]))
        return next_number(l);
    if (!letter(s.data[0]))
        return next_sign(l);
    size_t n = 1;
    while (n < s.n && (letter(s.data[n]) || digit(s.data[n])))
        n++;
    t = token_of(l, TOKEN_NAME, (bnet_span){s.data, n});
    advance(l, n);
    return t;
}
