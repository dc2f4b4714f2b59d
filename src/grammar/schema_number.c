/* schema_number.c - integers and numbers within bounds, exact by their digits. */
#include "grammar/schema.h"

#include <math.h>

/* Readers of JSON refuse integers beyond 64 bits. Where a side has no bound, 18 digits are written.
 */
enum { LONGEST = 19, USUAL = 18, SHORT = 9, FRACTION = 6 }; /* digits; SHORT: of bounded numbers */
#define EXACT_MAX 9007199254740992.0 /* 2^53: below it a double is one integer */
#define SHORT_MAX 1e9                /* of a number's */

static uint64_t power(int n)
{
    uint64_t p = 1;
    while (n-- > 0)
        p *= 10;
    return p;
}

/* Numbers lo..hi, all written with n digits. */
static void write_same_length(bnet_program *p, uint64_t lo, uint64_t hi, int n)
{
    uint64_t unit = power(n - 1), a = lo / unit, b = hi / unit;
    bool first = true;
    if (n == 1 || a == b) {
        bnet_program_byte(p, (unsigned)('0' + a), (unsigned)('0' + b));
        if (n > 1)
            write_same_length(p, lo % unit, hi % unit, n - 1);
        return;
    }
    bnet_choice c = bnet_program_either(p);
    if (lo % unit != 0) { /* the lowest first digit has not all that may follow */
        bnet_program_byte(p, (unsigned)('0' + a), (unsigned)('0' + a));
        write_same_length(p, lo % unit, unit - 1, n - 1);
        first = false;
        a++;
    }
    if (hi % unit != unit - 1) { /* nor has the highest */
        if (!first)
            bnet_program_or(p, &c);
        bnet_program_byte(p, (unsigned)('0' + b), (unsigned)('0' + b));
        write_same_length(p, 0, hi % unit, n - 1);
        first = false;
        b--;
    }
    if (a <= b) {
        if (!first)
            bnet_program_or(p, &c);
        bnet_program_byte(p, (unsigned)('0' + a), (unsigned)('0' + b));
        bnet_json_digits(p, '0', '9', (uint32_t)n - 1, (uint32_t)n - 1);
    }
    bnet_program_close(p, &c);
}

/* The numbers lo..hi without a sign, at most 19 digits. */
static void write_range(bnet_program *p, uint64_t lo, uint64_t hi)
{
    bool first = true;
    bnet_choice c = bnet_program_either(p);
    for (int n = 1; n <= LONGEST; n++) {
        uint64_t a = BNET_MAX(lo, n > 1 ? power(n - 1) : 0), b = BNET_MIN(hi, power(n) - 1);
        if (a > b)
            continue;
        if (!first)
            bnet_program_or(p, &c);
        first = false;
        write_same_length(p, a, b, n);
    }
    bnet_program_close(p, &c);
}

/* ---- formats ---- */

typedef struct number_format {
    const char *name;
    bool whole; /* of integers: from lo to hi, which is no bound where it is `open` */
    bool open;
    int64_t lo, hi;
} number_format;

/* "int" and "uint" are a machine's word: what the smallest one holds. No integer is written that
 * has more than 63 bits. */
static const number_format formats[] = {
    {"int8", true, false, INT8_MIN, INT8_MAX},
    {"int16", true, false, INT16_MIN, INT16_MAX},
    {"int32", true, false, INT32_MIN, INT32_MAX},
    {"int64", true, false, INT64_MIN, INT64_MAX},
    {"uint8", true, false, 0, UINT8_MAX},
    {"uint16", true, false, 0, UINT16_MAX},
    {"uint32", true, false, 0, UINT32_MAX},
    {"uint64", true, true, 0, 0},
    {"int", true, false, INT32_MIN, INT32_MAX},
    {"uint", true, false, 0, UINT32_MAX},
    {"float", false, false, 0, 0},
    {"double", false, false, 0, 0},
};

static const number_format *format_of(const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "format"));
    for (size_t i = 0; name && i < BNET_COUNT(formats); i++)
        if (strcmp(name, formats[i].name) == 0)
            return &formats[i];
    return NULL;
}

unsigned bnet_schema_format_type(const json_t *node)
{
    const number_format *f = format_of(node);
    return !f ? BNET_TYPE_STRING : f->whole ? BNET_TYPE_INTEGER : BNET_TYPE_NUMBER;
}

/* Where the value may be a string as well, its format is the string's business. */
static void check_format(bnet_schema *s, const json_t *node, const char *path)
{
    const json_t *format = json_object_get(node, "format");
    char quoted[80];
    if (!format || format_of(node) || bnet_schema_types(s, node, path) & BNET_TYPE_STRING)
        return;
    bnet_schema_refuse(
        s, path, "format",
        "\"%s\" of a number is not supported; int8, int16, int32, int64, int, the same with \"u\" "
        "before them, float and double are",
        bnet_quote(json_string_value(format), json_string_length(format), quoted, sizeof quoted));
}

/* ---- integers ---- */

/* The integers that are allowed. */
typedef struct span {
    int64_t lo, hi;
    bool below, above; /* there is a lowest, a highest */
    bool none;         /* a bound leaves nothing */
} span;

static void at_least(span *n, int64_t v)
{
    n->lo = n->below && n->lo > v ? n->lo : v;
    n->below = true;
}

static void at_most(span *n, int64_t v)
{
    n->hi = n->above && n->hi < v ? n->hi : v;
    n->above = true;
}

/* Reads a keyword that bounds integers. Reals from 2^53 on are not what was written in the text. */
static void bound_integers(bnet_schema *s, const json_t *node, const char *path,
                           const char *keyword, span *n)
{
    const json_t *v = json_object_get(node, keyword);
    bool lower = strstr(keyword, "inimum"), without = keyword[0] == 'e';
    double real = json_real_value(v);
    if (!v)
        return;
    if (!json_is_number(v))
        bnet_schema_refuse(s, path, keyword, "it must be a number");
    else if (json_is_real(v) && fabs(real) >= EXACT_MAX)
        bnet_schema_refuse(
            s, path, keyword,
            "from 2^53 on it must be a whole number within 64 bits, written as such");
    if (!bnet_schema_ok(s))
        return;
    int64_t whole = json_is_integer(v) ? json_integer_value(v)
                    : lower            ? (int64_t)ceil(real)
                                       : (int64_t)floor(real);
    bool itself = json_is_integer(v) || (double)whole == real;
    if (without && itself && whole == (lower ? INT64_MAX : INT64_MIN))
        n->none = true;
    else if (lower)
        at_least(n, whole + (without && itself));
    else
        at_most(n, whole - (without && itself));
}

/* The size of a negative number. */
static uint64_t size_of(int64_t v)
{
    return (uint64_t) - (v + 1) + 1;
}

static void write_integers(bnet_schema *s, span n)
{
    int64_t usual = (int64_t)power(USUAL) - 1;
    int64_t hi = n.above ? n.hi : n.lo > usual ? INT64_MAX : usual;
    int64_t lo = n.below ? n.lo : n.hi < -usual ? INT64_MIN : -usual;
    bool first = true;
    bnet_choice c = bnet_program_either(s->p);
    if (hi >= 0) {
        write_range(s->p, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi);
        first = false;
    }
    if (lo < 0) {
        if (!first)
            bnet_program_or(s->p, &c);
        bnet_program_text(s->p, "-", 1);
        write_range(s->p, hi < 0 ? size_of(hi) : 1, size_of(lo));
    }
    bnet_program_close(s->p, &c);
}

/* What the keywords and the format leave. */
static span read_span(bnet_schema *s, const json_t *node, const char *path)
{
    static const char *const keywords[] = {"minimum", "exclusiveMinimum", "maximum",
                                           "exclusiveMaximum"};
    const number_format *f = format_of(node);
    span n = {0};
    for (size_t i = 0; i < BNET_COUNT(keywords) && bnet_schema_ok(s); i++)
        bound_integers(s, node, path, keywords[i], &n);
    const char *keyword = n.below ? "minimum" : "maximum"; /* as far as they were given */
    if (f && f->whole)
        at_least(&n, f->lo);
    if (f && f->whole && !f->open)
        at_most(&n, f->hi);
    if (n.none || (n.below && n.above && n.lo > n.hi))
        bnet_schema_refuse(s, path, keyword, "there is no such integer%s%s",
                           f ? " in the format " : "", f ? f->name : "");
    return n;
}

static void integers(bnet_schema *s, const json_t *node, const char *path)
{
    span n = read_span(s, node, path);
    if (!bnet_schema_ok(s))
        return;
    if (n.below || n.above)
        write_integers(s, n);
    else
        bnet_program_call(s->p, s->json.integer, 1, 1);
}

/* ---- numbers ---- */

typedef struct bounds {
    double lo, hi;    /* infinite: none */
    bool over, under; /* lo, hi are not in themselves */
} bounds;

static double bound(bnet_schema *s, const json_t *node, const char *path, const char *keyword,
                    double absent)
{
    const json_t *v = json_object_get(node, keyword);
    if (!v)
        return absent;
    if (!json_is_number(v))
        bnet_schema_refuse(s, path, keyword, "it must be a number");
    return json_number_value(v);
}

static bounds read_bounds(bnet_schema *s, const json_t *node, const char *path)
{
    bounds b = {bound(s, node, path, "minimum", -INFINITY),
                bound(s, node, path, "maximum", INFINITY), false, false};
    double over = bound(s, node, path, "exclusiveMinimum", -INFINITY);
    double under = bound(s, node, path, "exclusiveMaximum", INFINITY);
    if (over >= b.lo && over > -INFINITY) {
        b.lo = over;
        b.over = true;
    }
    if (under <= b.hi && under < INFINITY) {
        b.hi = under;
        b.under = true;
    }
    return b;
}

static void no_values(bnet_schema *s, const char *path, bounds b)
{
    bnet_schema_refuse(s, path, b.lo > -INFINITY ? "minimum" : "maximum",
                       "there is no such number, or none that is written here");
}

/* A point and digits; `more`: not only zeros. */
static void write_fraction(bnet_program *p, bool more)
{
    bnet_program_text(p, ".", 1);
    if (!more) {
        bnet_json_digits(p, '0', '9', 1, FRACTION);
        return;
    }
    bnet_json_digits(p, '0', '0', 0, FRACTION / 2);
    bnet_program_byte(p, '1', '9');
    bnet_json_digits(p, '0', '9', 0, FRACTION / 2 - 1);
}

static void write_whole(bnet_program *p, uint64_t lo, uint64_t hi)
{
    write_range(p, lo, hi);
    size_t loop = bnet_program_loop(p);
    write_fraction(p, false);
    bnet_program_loop_end(p, loop, 0, 1);
}

/* Sizes from lo to hi, both whole; `over`, `under`: without lo, hi; `open`: there is no bound
 * above, hi is the largest whole part that is written. */
static void write_sizes(bnet_program *p, uint64_t lo, bool over, uint64_t hi, bool under, bool open)
{
    bool first = true;
    bnet_choice c = bnet_program_either(p);
    uint64_t from = lo + over, to = open ? hi : hi - (hi > 0);
    if (from <= to && (open || hi > 0)) { /* with any fraction */
        write_whole(p, from, to);
        first = false;
    }
    if (over && (open || lo < hi)) {
        if (!first)
            bnet_program_or(p, &c);
        write_range(p, lo, lo);
        write_fraction(p, true);
        first = false;
    }
    if (!open && !under && (lo < hi || !over)) { /* hi itself */
        if (!first)
            bnet_program_or(p, &c);
        write_range(p, hi, hi);
        size_t loop = bnet_program_loop(p);
        bnet_program_text(p, ".", 1);
        bnet_json_digits(p, '0', '0', 1, FRACTION);
        bnet_program_loop_end(p, loop, 0, 1);
    }
    bnet_program_close(p, &c);
}

static bool whole(double x)
{
    return isinf(x) || (x == floor(x) && fabs(x) <= SHORT_MAX);
}

static void write_numbers(bnet_schema *s, bounds b, const char *path)
{
    uint64_t top = power(SHORT) - 1;
    if (!whole(b.lo) || !whole(b.hi)) {
        bnet_schema_refuse(s, path, whole(b.lo) ? "maximum" : "minimum",
                           "bounds of a number must be whole, and at most 10^9");
        return;
    }
    if (b.lo > b.hi || (b.lo == b.hi && (b.over || b.under)) || b.lo >= SHORT_MAX ||
        b.hi <= -SHORT_MAX) {
        no_values(s, path, b);
        return;
    }
    bool first = true;
    bnet_choice c = bnet_program_either(s->p);
    if (b.hi > 0 || (b.hi == 0 && !b.under)) {
        bool open = isinf(b.hi);
        write_sizes(s->p, b.lo > 0 ? (uint64_t)b.lo : 0, b.lo >= 0 && b.over,
                    open ? top : (uint64_t)b.hi, b.under, open);
        first = false;
    }
    if (b.lo < 0) {
        bool open = isinf(b.lo);
        if (!first)
            bnet_program_or(s->p, &c);
        bnet_program_text(s->p, "-", 1);
        write_sizes(s->p, b.hi < 0 ? (uint64_t)-b.hi : 0, b.hi <= 0 && b.under,
                    open ? top : (uint64_t)-b.lo, b.over, open);
    }
    bnet_program_close(s->p, &c);
}

static void numbers(bnet_schema *s, const json_t *node, const char *path)
{
    bounds b = read_bounds(s, node, path);
    if (!bnet_schema_ok(s))
        return;
    if (isinf(b.lo) && isinf(b.hi))
        bnet_program_call(s->p, s->json.number, 1, 1);
    else
        write_numbers(s, b, path);
}

void bnet_schema_number(bnet_schema *s, const json_t *node, const char *path, bool integer)
{
    const number_format *f = format_of(node);
    bool whole = json_object_get(node, "multipleOf"); /* of 1, as was checked */
    check_format(s, node, path);
    if (integer || whole || (f && f->whole))
        integers(s, node, path);
    else
        numbers(s, node, path);
}
