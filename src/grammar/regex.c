/* regex.c - regular expressions of schemas ("pattern"), written as the JSON strings they match.
 *
 * What is understood: characters, escapes (\d \w \s \D \W \S \n \r \t \f \v \0 \xNN \uNNNN, and a
 * backslash before a mark), classes in brackets, ., groups (also (?: and (?<name>), |, * + ? {n}
 * {n,} {n,m} and their lazy forms, ^ at the beginning and $ at the end of an alternative that is in
 * no group. Where ECMAScript, Python and RE2 disagree, what is written is matched by all of them:
 * \D, \W and \S are ASCII characters, and so is [^\d]; \s and \S are characters that are, or are
 * not, white space in each of them. Classes that begin with ] or have [: are refused. */
#include "grammar/schema.h"

#include <stdio.h>

enum { MAX_DEPTH = 32 };

typedef struct regex {
    bnet_schema *s;
    bnet_program *p;
    const char *path, *keyword, *begin, *at, *end;
    int depth;
} regex;

static bool going(const regex *r)
{
    return bnet_schema_ok(r->s);
}

static void refuse(regex *r, const char *what)
{
    char text[100];
    bnet_schema_refuse(r->s, r->path, r->keyword, "\"%s\": %s (at character %zu)",
                       bnet_quote(r->begin, (size_t)(r->end - r->begin), text, sizeof text), what,
                       (size_t)(r->at - r->begin) + 1);
}

static char peek(const regex *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(regex *r, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* ---- sets of characters ---- */

/* A character that a JSON string must escape. */
static void write_escaped(regex *r, uint32_t ch)
{
    static const char plain[] = "\"\\\b\t\n\f\r", letter[] = "\"\\btnfr";
    const char *known = ch ? strchr(plain, (int)ch) : NULL;
    char text[16];
    if (known)
        snprintf(text, sizeof text, "\\%c", letter[known - plain]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)ch);
    bnet_program_text(r->p, text, strlen(text));
}

/* One character of a tidy set as a JSON string spells it. */
static void write_set(regex *r, const bnet_charset *set)
{
    bnet_charset bare = {.failed = set->failed};
    bool first = true;
    bnet_choice c = bnet_program_either(r->p);
    for (uint32_t ch = 0; ch <= '\\'; ch++) {
        if ((ch >= ' ' && ch != '"' && ch != '\\') || !bnet_charset_has(set, ch))
            continue;
        if (!first)
            bnet_program_or(r->p, &c);
        first = false;
        write_escaped(r, ch);
    }
    for (size_t i = 0; i < set->n; i++)
        bnet_charset_add(&bare, set->ranges[i].lo, set->ranges[i].hi);
    bnet_charset_within(&bare, ' ', BNET_LAST_CHAR);
    bnet_charset_remove(&bare, '"');
    bnet_charset_remove(&bare, '\\');
    if (bare.n || first) { /* an empty set is refused there */
        if (!first)
            bnet_program_or(r->p, &c);
        bnet_charset_write(&bare, r->p);
    }
    bnet_program_close(r->p, &c);
    bnet_charset_free(&bare);
}

static void write_char(regex *r, uint32_t ch)
{
    bnet_charset set = {0};
    bnet_charset_add(&set, ch, ch);
    write_set(r, &set);
    bnet_charset_free(&set);
}

/* Adds what \d, \w or \s stands for, in every language; `any`: in one at least, as far as that is
 * ASCII. */
static void add_named(bnet_charset *set, char name, bool any)
{
    if (name == 'd' || name == 'w')
        bnet_charset_add(set, '0', '9');
    if (name == 'w') {
        bnet_charset_add(set, 'A', 'Z');
        bnet_charset_add(set, '_', '_');
        bnet_charset_add(set, 'a', 'z');
    }
    if (name == 's') {
        bnet_charset_add(set, '\t', '\n');
        bnet_charset_add(set, '\f', '\r');
        bnet_charset_add(set, ' ', ' ');
    }
    if (name == 's' && any) {
        bnet_charset_add(set, '\v', '\v'); /* not of RE2 */
        bnet_charset_add(set, 0x1c, 0x1f); /* of Python alone */
    }
}

/* The same, or with a capital letter its ASCII opposite. False: no such name. */
static bool named_set(bnet_charset *set, char name, bool any)
{
    if (name != '\0' && strchr("dws", name)) {
        add_named(set, name, any);
        return true;
    }
    if (name == '\0' || !strchr("DWS", name))
        return false;
    bnet_charset other = {0};
    add_named(&other, (char)(name - 'A' + 'a'), !any);
    bnet_charset_invert(&other);
    bnet_charset_within(&other, 0, 0x7f);
    for (size_t i = 0; i < other.n; i++)
        bnet_charset_add(set, other.ranges[i].lo, other.ranges[i].hi);
    set->failed = set->failed || other.failed;
    bnet_charset_free(&other);
    return true;
}

static uint32_t hex(regex *r, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++, r->at++) {
        int digit = bnet_hex_digit(peek(r));
        if (digit < 0) {
            refuse(r, "an escape wants hexadecimal digits");
            return 0;
        }
        v = v << 4 | (uint32_t)digit;
    }
    if (v >= 0xd800 && v <= 0xdfff)
        refuse(r, "a surrogate is no character");
    return v;
}

/* After a backslash, where no set is named. */
static uint32_t escape(regex *r)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    char c = peek(r);
    const char *known = c ? strchr(from, c) : NULL;
    if (c == '0' && r->end - r->at > 1 && r->at[1] >= '0' && r->at[1] <= '9')
        known = NULL;
    if (c == 'x' || c == 'u') {
        r->at++;
        return hex(r, c == 'x' ? 2 : 4);
    }
    bool mark =
        c > ' ' && c < 0x7f && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9');
    if (!known && !mark) {
        refuse(r, "this escape is not supported");
        return 0;
    }
    r->at++;
    return known ? (unsigned char)to[known - from] : (unsigned char)c;
}

static uint32_t plain_char(regex *r)
{
    int n = bnet_utf8_len(r->at, (size_t)(r->end - r->at)); /* JSON is UTF-8 */
    uint32_t c = bnet_utf8_decode(r->at, n);
    r->at += n;
    return c;
}

/* One character of a class, or a set, which is added at once: then *is_set. `any`: with what is in
 * the set in one language at least. */
static uint32_t class_char(regex *r, bnet_charset *set, bool any, bool *is_set)
{
    *is_set = false;
    if (!take(r, "\\"))
        return plain_char(r);
    if (peek(r) == 'b' || peek(r) == '-') {
        r->at++;
        return r->at[-1] == 'b' ? '\b' : '-';
    }
    *is_set = named_set(set, peek(r), any);
    if (!*is_set)
        return escape(r);
    r->at++;
    return 0;
}

/* A character, a range or a set, where no class ends. Returns whether it is a set. */
static bool class_item(regex *r, bnet_charset *set, bool any)
{
    bool is_set, to_set = false;
    uint32_t lo = class_char(r, set, any, &is_set), hi = lo;
    if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
        r->at++;
        hi = class_char(r, set, any, &to_set);
        if (going(r) && (is_set || to_set || lo > hi))
            refuse(r, "a range of a class is none");
    }
    if (!is_set)
        bnet_charset_add(set, lo, hi);
    return is_set;
}

/* What follows in a class means the same in all languages; else it is refused. */
static bool class_goes_on(regex *r, bool first)
{
    if (r->at >= r->end)
        refuse(r, "a class has no closing bracket");
    else if (first && peek(r) == ']')
        refuse(r, "a class that begins with ] is not the same in all languages: write \\] for the "
                  "character");
    else if (take(r, "[:"))
        refuse(r, "[: in a class is not the same in all languages: write \\[ for the character, or "
                  "the characters that are meant");
    return going(r) && !take(r, "]");
}

/* After the bracket. */
static void char_class(regex *r)
{
    bnet_charset set = {0};
    bool inverted = take(r, "^"), sets = false;
    for (bool first = true; class_goes_on(r, first); first = false)
        sets |= class_item(r, &set, inverted);
    if (inverted)
        bnet_charset_invert(&set);
    if (inverted && sets)
        bnet_charset_within(&set, 0, 0x7f);
    bnet_charset_tidy(&set);
    if (going(r) && set.n == 0 && !set.failed)
        refuse(r, "a class has no character that is in it in all languages");
    if (going(r))
        write_set(r, &set);
    bnet_charset_free(&set);
}

/* . : no end of a line, in whatever language. */
static void write_any(regex *r)
{
    bnet_charset set = {0};
    bnet_charset_add(&set, '\n', '\n');
    bnet_charset_add(&set, '\r', '\r');
    bnet_charset_add(&set, 0x2028, 0x2029);
    bnet_charset_add(&set, 0x85, 0x85);
    bnet_charset_invert(&set);
    write_set(r, &set);
    bnet_charset_free(&set);
}

static void write_escape(regex *r)
{
    bnet_charset set = {0};
    if (named_set(&set, peek(r), false)) {
        r->at++;
        bnet_charset_tidy(&set);
        write_set(r, &set);
    } else {
        write_char(r, escape(r));
    }
    bnet_charset_free(&set);
}

/* ---- repetitions ---- */

static uint32_t number(regex *r)
{
    uint32_t v = 0;
    while (peek(r) >= '0' && peek(r) <= '9' && v < BNET_GRAM_COUNT / 10)
        v = v * 10 + (uint32_t)(*r->at++ - '0');
    if (peek(r) >= '0' && peek(r) <= '9')
        refuse(r, "a repetition is too large");
    return v;
}

static bool digit_follows(const regex *r)
{
    return r->end - r->at > 1 && r->at[1] >= '0' && r->at[1] <= '9';
}

static bool repetition(regex *r, uint32_t *min, uint32_t *max)
{
    char c = peek(r);
    if (c == '\0' || !strchr("*+?{", c))
        return false;
    if (c == '{' && !digit_follows(r)) {
        refuse(r, "{ wants a number, or a backslash before it");
        return false;
    }
    r->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : BNET_GRAM_MANY;
    if (c == '{') {
        *min = *max = number(r);
        if (take(r, ","))
            *max = peek(r) == '}' ? BNET_GRAM_MANY : number(r);
        if (going(r) && (!take(r, "}") || *min > *max))
            refuse(r, "a repetition is none");
    }
    take(r, "?"); /* lazy: the same strings */
    return true;
}

/* ---- alternatives ---- */

static void alternatives(regex *r);

static void group(regex *r)
{
    if (++r->depth > MAX_DEPTH)
        refuse(r, "groups are nested too deep");
    if (take(r, "?")) {
        bool named = r->end - r->at > 1 && r->at[0] == '<' && r->at[1] != '=' && r->at[1] != '!';
        if (named)
            while (r->at < r->end && !take(r, ">"))
                r->at++;
        else if (!take(r, ":"))
            refuse(r, "this kind of group is not supported");
    }
    if (going(r))
        alternatives(r);
    if (going(r) && !take(r, ")"))
        refuse(r, "a group has no end");
    r->depth--;
}

/* One thing with its repetition; false: an alternative ends here. */
static bool item(regex *r)
{
    uint32_t min, max;
    char c = peek(r);
    if (r->at >= r->end || c == '|' || c == ')' || (c == '$' && r->depth == 0))
        return false;
    size_t loop = bnet_program_loop(r->p);
    if (c && strchr("^$*+?{", c))
        refuse(r, "this mark is not supported here");
    else if (take(r, "("))
        group(r);
    else if (take(r, "["))
        char_class(r);
    else if (take(r, "."))
        write_any(r);
    else if (take(r, "\\"))
        write_escape(r);
    else
        write_char(r, plain_char(r));
    if (going(r) && repetition(r, &min, &max))
        bnet_program_loop_end(r->p, loop, min, max);
    return going(r);
}

static void any_text(regex *r)
{
    bnet_program_call(r->p, r->s->json.character, 0, BNET_GRAM_MANY);
}

/* At the outside, what has no ^ or $ may have any text there. */
static void alternative(regex *r)
{
    bool outside = r->depth == 0;
    if (outside && !take(r, "^"))
        any_text(r);
    while (item(r))
        continue;
    if (outside && going(r) && !take(r, "$"))
        any_text(r);
}

static void alternatives(regex *r)
{
    bnet_choice c = bnet_program_either(r->p);
    c.may_be_empty = true;
    alternative(r);
    while (going(r) && take(r, "|")) {
        bnet_program_or(r->p, &c);
        alternative(r);
    }
    bnet_program_close(r->p, &c);
}

void bnet_regex_write(bnet_schema *s, const char *path, const char *keyword, bnet_span text)
{
    regex r = {.s = s,
               .p = s->p,
               .path = path,
               .keyword = keyword,
               .begin = text.data,
               .at = text.data,
               .end = text.data + text.n};
    bnet_program_text(s->p, "\"", 1);
    alternatives(&r);
    if (going(&r) && r.at < r.end)
        refuse(&r, *r.at == ')' ? "a group ends that has not begun" : "$ must stand at the end");
    bnet_program_text(s->p, "\"", 1);
}
