/* gbnf.c - reads a grammar in GBNF:
 *
 *   root  ::= "yes" | "no" tail?      # a comment
 *   tail  ::= (" " [a-z]+){1,3} [^\n] .
 *
 * Rules, literals, classes of characters with ranges and ^, any character (.), groups, |, and the
 * repetitions * + ? {n} {n,} {n,m}. Escapes in literals and classes: \n \r \t \\ \" \[ \] \- \^
 * \xNN \uNNNN \UNNNNNNNN, the last three naming a character. A rule ends with its line unless a
 * group is open or | or ::= stands last. The text begins with the rule `root`. */
#include "grammar/charset.h"
#include "grammar/grammar.h"

enum { MAX_DEPTH = 64 };

typedef struct reader {
    const char *at, *end, *begin;
    bnet_program *p;
    bnet_strmap names;
    int depth;
} reader;

static bool going(const reader *r)
{
    return r->p->status == BITNET_OK;
}

static void refuse(reader *r, const char *what)
{
    size_t line = 1;
    for (const char *c = r->begin; c < r->at; c++)
        line += *c == '\n';
    char near[40];
    size_t n = (size_t)(r->end - r->at);
    if (n == 0)
        bnet_program_fail(r->p, BITNET_ARGUMENT, "line %zu, at the end: %s", line, what);
    else
        bnet_program_fail(r->p, BITNET_ARGUMENT, "line %zu, at \"%s\": %s", line,
                          bnet_quote(r->at, BNET_MIN(n, 20), near, sizeof near), what);
}

static char peek(const reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(reader *r, char c)
{
    if (r->at >= r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* Passes over blanks and comments, over the ends of lines too if `lines`. */
static void space(reader *r, bool lines)
{
    while (r->at < r->end) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else if (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || (lines && *r->at == '\n'))
            r->at++;
        else
            return;
    }
}

/* ---- names ---- */

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static bnet_span name(reader *r)
{
    bnet_span s = {r->at, 0};
    while (r->at < r->end && in_name(*r->at))
        r->at++;
    s.n = (size_t)(r->at - s.data);
    return s;
}

/* The rule of that name, made where there is none yet. */
static uint32_t rule_of(reader *r, bnet_span s)
{
    uint32_t rule;
    if (bnet_strmap_get(&r->names, s.data, s.n, &rule))
        return rule;
    rule = bnet_program_rule(r->p, s.data, s.n);
    if (going(r) && !bnet_strmap_put(&r->names, s.data, s.n, rule, NULL))
        r->p->status = bnet_no_memory(r->p->err, "grammar");
    return rule;
}

/* ---- characters ---- */

static uint32_t hex(reader *r, int n_digits)
{
    uint32_t v = 0;
    for (int i = 0; i < n_digits; i++) {
        int digit = bnet_hex_digit(peek(r));
        if (digit < 0) {
            refuse(r, "an escape wants hexadecimal digits: \\xNN, \\uNNNN or \\UNNNNNNNN");
            return 0;
        }
        v = v << 4 | (uint32_t)digit;
        r->at++;
    }
    if (v > BNET_LAST_CHAR || (v >= 0xd800 && v <= 0xdfff))
        refuse(r, "the escape before this is no character");
    return v;
}

/* After a backslash. */
static uint32_t escape(reader *r)
{
    static const char from[] = "nrt\\\"[]-^", to[] = "\n\r\t\\\"[]-^";
    char c = peek(r);
    const char *known = c ? strchr(from, c) : NULL;
    if (known || c == 'x' || c == 'u' || c == 'U')
        r->at++;
    if (known)
        return (unsigned char)to[known - from];
    if (c == 'x' || c == 'u' || c == 'U')
        return hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    refuse(r, "there is no such escape");
    return 0;
}

static uint32_t character(reader *r)
{
    if (take(r, '\\'))
        return escape(r);
    int n = bnet_utf8_len(r->at, (size_t)(r->end - r->at)); /* the whole text is UTF-8 */
    uint32_t c = bnet_utf8_decode(r->at, n);
    r->at += n;
    return c;
}

/* After the first quote. */
static void literal(reader *r)
{
    while (going(r) && !take(r, '"')) {
        if (r->at >= r->end) {
            refuse(r, "a literal has no second quote");
            return;
        }
        char utf8[4];
        int n = bnet_utf8_encode(character(r), utf8);
        bnet_program_text(r->p, utf8, (size_t)n);
    }
}

/* After the first bracket. */
static void char_class(reader *r)
{
    bnet_charset set = {0};
    bool inverted = take(r, '^');
    while (going(r) && !take(r, ']')) {
        if (r->at >= r->end) {
            refuse(r, "a class of characters has no closing bracket");
            break;
        }
        uint32_t lo = character(r), hi = lo;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            hi = character(r);
        }
        if (lo > hi)
            refuse(r, "the range before this ends before it begins");
        bnet_charset_add(&set, lo, hi);
    }
    if (inverted)
        bnet_charset_invert(&set);
    else
        bnet_charset_tidy(&set);
    if (going(r))
        bnet_charset_write(&set, r->p);
    bnet_charset_free(&set);
}

static void any_character(reader *r)
{
    bnet_charset set = {0};
    bnet_charset_add(&set, 0, BNET_LAST_CHAR);
    bnet_charset_write(&set, r->p);
    bnet_charset_free(&set);
}

/* ---- repetitions ---- */

static uint32_t number(reader *r)
{
    uint32_t v = 0;
    if (peek(r) < '0' || peek(r) > '9')
        refuse(r, "a repetition wants numbers: {2}, {2,} or {2,5}");
    while (going(r) && peek(r) >= '0' && peek(r) <= '9') {
        v = v * 10 + (uint32_t)(*r->at++ - '0');
        if (v > BNET_GRAM_COUNT / 10)
            refuse(r, "the number of repetitions before this is too large");
    }
    return v;
}

/* After the brace. */
static void bounds(reader *r, uint32_t *min, uint32_t *max)
{
    space(r, false);
    *min = *max = number(r);
    space(r, false);
    if (take(r, ',')) {
        space(r, false);
        *max = peek(r) == '}' ? BNET_GRAM_MANY : number(r);
        space(r, false);
    }
    if (going(r) && !take(r, '}'))
        refuse(r, "a repetition has no closing brace");
    if (going(r) && *min > *max)
        refuse(r, "the repetition before this wants more than it allows");
}

/* False: no repetition follows. */
static bool repetition(reader *r, uint32_t *min, uint32_t *max)
{
    char c = peek(r);
    if (c == '\0' || !strchr("*+?{", c))
        return false;
    r->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : BNET_GRAM_MANY;
    if (c == '{')
        bounds(r, min, max);
    return true;
}

/* ---- rules ---- */

static void alternatives(reader *r);

static void group(reader *r)
{
    if (++r->depth > MAX_DEPTH) {
        refuse(r, "groups are nested more than 64 deep");
        return;
    }
    space(r, true);
    alternatives(r);
    if (going(r) && !take(r, ')'))
        refuse(r, "a group has no closing parenthesis");
    r->depth--;
}

/* One literal, class, name or group with its repetitions; false: there is none. */
static bool item(reader *r)
{
    size_t loop = bnet_program_loop(r->p);
    uint32_t min, max;
    if (take(r, '"'))
        literal(r);
    else if (take(r, '['))
        char_class(r);
    else if (take(r, '('))
        group(r);
    else if (take(r, '.'))
        any_character(r);
    else if (in_name(peek(r)))
        bnet_program_call(r->p, rule_of(r, name(r)), 1, 1);
    else
        return false;
    space(r, r->depth > 0);
    if (going(r) && repetition(r, &min, &max)) {
        bnet_program_loop_end(r->p, loop, min, max);
        space(r, r->depth > 0);
        if (going(r) && repetition(r, &min, &max))
            refuse(r, "a repetition of a repetition wants a group around the first");
    }
    return true;
}

static void alternatives(reader *r)
{
    bnet_choice c = bnet_program_either(r->p);
    c.may_be_empty = true;
    while (going(r)) {
        while (going(r) && item(r))
            continue;
        if (!going(r) || !take(r, '|'))
            break;
        bnet_program_or(r->p, &c);
        space(r, true);
    }
    bnet_program_close(r->p, &c);
}

static void rule(reader *r)
{
    bnet_span s = name(r);
    if (s.n == 0) {
        refuse(r, "a rule wants a name: letters, digits, - and _");
        return;
    }
    uint32_t index = rule_of(r, s);
    space(r, false);
    if (going(r) && r->p->rules[index].defined)
        refuse(r, "this rule was defined before");
    if (going(r) && (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0))
        refuse(r, "\"::=\" is missing behind the name of a rule");
    if (!going(r))
        return;
    r->at += 3;
    space(r, true);
    bnet_program_begin(r->p, index);
    alternatives(r);
    bnet_program_end(r->p);
    if (going(r) && r->at < r->end && *r->at != '\n')
        refuse(r, "a literal, class, name, group or the end of the line was expected");
}

static bool is_utf8(bnet_span s)
{
    for (size_t i = 0; i < s.n;) {
        int n = bnet_utf8_len(s.data + i, s.n - i);
        if (n <= 0)
            return false;
        i += (size_t)n;
    }
    return true;
}

void bnet_gbnf_read(bnet_span text, bnet_program *p)
{
    reader r = {.at = text.data, .end = text.data + text.n, .begin = text.data, .p = p};
    if (!is_utf8(text)) {
        bnet_program_fail(p, BITNET_ARGUMENT, "it is no UTF-8");
        return;
    }
    if (!bnet_strmap_init(&r.names, 16)) {
        p->status = bnet_no_memory(p->err, "grammar");
        return;
    }
    space(&r, true);
    while (going(&r) && r.at < r.end) {
        rule(&r);
        space(&r, true);
    }
    uint32_t root;
    if (going(&r) && !bnet_strmap_get(&r.names, "root", 4, &root))
        bnet_program_fail(p, BITNET_ARGUMENT, "it has no rule \"root\", with which texts begin");
    if (going(&r))
        p->root = root;
    bnet_strmap_free(&r.names);
}
