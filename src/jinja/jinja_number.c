/* jinja_number.c - int and float of a template: numbers out of texts, as Python reads them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "jinja/jinja_impl.h"

enum { NUMBER_BYTES = 128 };

typedef enum number_form { NO_NUMBER, WHOLE, REAL } number_form;

static bool is_digit(bnet_span s, size_t i)
{
    return i < s.n && s.data[i] >= '0' && s.data[i] <= '9';
}

/* Where the digits from i on end; single underscores may stand between them. */
static size_t after_digits(bnet_span s, size_t i)
{
    size_t from = i;
    while (is_digit(s, i) || (i > from && i < s.n && s.data[i] == '_' && is_digit(s, i + 1)))
        i++;
    return i;
}

static size_t after_sign(bnet_span s, size_t i)
{
    return i + (i < s.n && (s.data[i] == '+' || s.data[i] == '-'));
}

/* inf, infinity, nan in any case. */
static bool is_word(bnet_span s, size_t i)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    for (size_t k = 0; k < BNET_COUNT(words); k++) {
        size_t n = strlen(words[k]), same = 0;
        while (s.n - i == n && same < n && (s.data[i + same] | 32) == words[k][same])
            same++;
        if (same == n)
            return true;
    }
    return false;
}

static number_form form_of(bnet_span s)
{
    size_t begin = after_sign(s, 0), i = after_digits(s, begin);
    bool digits = i > begin;
    if (is_word(s, begin) || (digits && i == s.n))
        return digits ? WHOLE : REAL;
    if (i < s.n && s.data[i] == '.') {
        size_t fraction = i + 1;
        i = after_digits(s, fraction);
        digits = digits || i > fraction;
    }
    if (digits && i < s.n && (s.data[i] | 32) == 'e') {
        size_t exponent = after_sign(s, i + 1);
        i = after_digits(s, exponent);
        digits = i > exponent;
    }
    return digits && i == s.n ? REAL : NO_NUMBER;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* What kind of number the text has, and `number` without blanks and underscores for C. */
static number_form read_number(jinja *m, bnet_span s, char number[NUMBER_BYTES])
{
    size_t used = 0;
    s.n = bnet_jinja_step(m, s.n) ? s.n : 0;
    for (; s.n && is_blank(s.data[0]); s.n--)
        s.data++;
    while (s.n && is_blank(s.data[s.n - 1]))
        s.n--;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.data[i] >= 128)
            bnet_jinja_fail(m, "int and float read ASCII text only");
    number_form form = m->failed ? NO_NUMBER : form_of(s);
    if (form != NO_NUMBER && s.n >= NUMBER_BYTES)
        bnet_jinja_fail(m, "a number has more than %d characters", NUMBER_BYTES - 1);
    for (size_t i = 0; form != NO_NUMBER && i < s.n && !m->failed; i++)
        if (s.data[i] != '_')
            number[used++] = s.data[i];
    number[used] = '\0';
    return m->failed ? NO_NUMBER : form;
}

static jinja_value too_large(jinja *m)
{
    return bnet_jinja_fail(m, "int: the number has more than 64 bits");
}

static jinja_value int_of_text(jinja *m, bnet_span s, jinja_value other)
{
    char number[NUMBER_BYTES];
    number_form form = read_number(m, s, number);
    if (form == NO_NUMBER)
        return other;
    if (form == REAL) {
        double f = strtod(number, NULL);
        return !isfinite(f) ? other : fabs(f) >= 0x1p63 ? too_large(m) : bnet_jinja_int((int64_t)f);
    }
    errno = 0;
    int64_t i = strtoll(number, NULL, 10);
    return errno ? too_large(m) : bnet_jinja_int(i);
}

/* The value that stands for no number. */
static jinja_value fallback(const jinja_args *a, jinja_value usual)
{
    jinja_value other = bnet_jinja_arg(a, 0, "default");
    return bnet_jinja_is_undefined(other) ? usual : other;
}

static jinja_value to_int(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value other = fallback(a, bnet_jinja_int(0));
    int64_t i;
    if (!bnet_jinja_args_are(m, "int", a, 1, "default"))
        return v;
    if (bnet_jinja_is_undefined(v))
        return bnet_jinja_fail(m, "int of an undefined value");
    if (bnet_jinja_whole(v, &i))
        return bnet_jinja_int(i);
    if (v.type == JINJA_STRING)
        return int_of_text(m, v.u.s, other);
    if (v.type != JINJA_FLOAT || isnan(v.u.f))
        return other;
    return fabs(v.u.f) >= 0x1p63 ? too_large(m) : bnet_jinja_int((int64_t)v.u.f);
}

static jinja_value to_float(jinja *m, jinja_value v, jinja_args *a)
{
    jinja_value other = fallback(a, bnet_jinja_float(0));
    char number[NUMBER_BYTES];
    double f;
    if (!bnet_jinja_args_are(m, "float", a, 1, "default"))
        return v;
    if (bnet_jinja_is_undefined(v))
        return bnet_jinja_fail(m, "float of an undefined value");
    if (bnet_jinja_number(v, &f))
        return bnet_jinja_float(f);
    if (v.type != JINJA_STRING || read_number(m, v.u.s, number) == NO_NUMBER)
        return other;
    return bnet_jinja_float(strtod(number, NULL));
}

const jinja_named bnet_jinja_number_filters[] = {
    {"float", to_float},
    {"int", to_int},
    {NULL, NULL},
};
