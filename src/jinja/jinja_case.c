/* jinja_case.c - the filters of templates that change the case of letters.
 *
 * Every character of the rows below becomes one other, wherever it stands. Text with any other, and
 * with what becomes several (the upper case of U+00DF) or depends on its place (the sigma U+03A3),
 * is refused. */
#include "jinja/jinja_impl.h"

enum { UNKNOWN = 9999 };

/* Characters first, first + stride, ... last: what lower and upper add to them. */
static const struct case_row {
    uint32_t first, last, stride;
    int lower, upper;
} rows[] = {
    /* ASCII and Latin-1 */
    {0x0, 0x40, 1, 0, 0},
    {0x41, 0x5a, 1, 32, 0},
    {0x5b, 0x60, 1, 0, 0},
    {0x61, 0x7a, 1, 0, -32},
    {0x7b, 0xb4, 1, 0, 0},
    {0xb5, 0xb5, 1, 0, 743},
    {0xb6, 0xbf, 1, 0, 0},
    {0xc0, 0xd6, 1, 32, 0},
    {0xd7, 0xd7, 1, 0, 0},
    {0xd8, 0xde, 1, 32, 0},
    {0xdf, 0xdf, 1, 0, UNKNOWN},
    {0xe0, 0xf6, 1, 0, -32},
    {0xf7, 0xf7, 1, 0, 0},
    {0xf8, 0xfe, 1, 0, -32},
    {0xff, 0xff, 1, 0, 121},
    /* Latin Extended-A */
    {0x100, 0x12e, 2, 1, 0},
    {0x101, 0x12f, 2, 0, -1},
    {0x131, 0x131, 1, 0, -232},
    {0x132, 0x136, 2, 1, 0},
    {0x133, 0x137, 2, 0, -1},
    {0x139, 0x147, 2, 1, 0},
    {0x13a, 0x148, 2, 0, -1},
    {0x14a, 0x176, 2, 1, 0},
    {0x14b, 0x177, 2, 0, -1},
    {0x178, 0x178, 1, -121, 0},
    {0x179, 0x17d, 2, 1, 0},
    {0x17a, 0x17e, 2, 0, -1},
    /* marks, Greek */
    {0x300, 0x344, 1, 0, 0},
    {0x386, 0x386, 1, 38, 0},
    {0x388, 0x38a, 1, 37, 0},
    {0x38c, 0x38c, 1, 64, 0},
    {0x38e, 0x38f, 1, 63, 0},
    {0x391, 0x3a1, 1, 32, 0},
    {0x3a4, 0x3ab, 1, 32, 0},
    {0x3ac, 0x3ac, 1, 0, -38},
    {0x3ad, 0x3af, 1, 0, -37},
    {0x3b1, 0x3c1, 1, 0, -32},
    {0x3c2, 0x3c2, 1, 0, -31},
    {0x3c3, 0x3cb, 1, 0, -32},
    {0x3cc, 0x3cc, 1, 0, -64},
    {0x3cd, 0x3ce, 1, 0, -63},
    /* Cyrillic */
    {0x400, 0x40f, 1, 80, 0},
    {0x410, 0x42f, 1, 32, 0},
    {0x430, 0x44f, 1, 0, -32},
    {0x450, 0x45f, 1, 0, -80},
    {0x48a, 0x4be, 2, 1, 0},
    {0x48b, 0x4bf, 2, 0, -1},
    /* scripts without cases */
    {0x589, 0x109f, 1, 0, 0},
    {0x1100, 0x139f, 1, 0, 0},
    {0x1400, 0x1c7f, 1, 0, 0},
    /* Latin Extended Additional */
    {0x1e00, 0x1e94, 2, 1, 0},
    {0x1e01, 0x1e95, 2, 0, -1},
    {0x1ea0, 0x1efe, 2, 1, 0},
    {0x1ea1, 0x1eff, 2, 0, -1},
    /* signs, scripts without cases */
    {0x2000, 0x2125, 1, 0, 0},
    {0x2190, 0x24b5, 1, 0, 0},
    {0x24ea, 0x2bff, 1, 0, 0},
    {0x2e00, 0xa63f, 1, 0, 0},
    {0xac00, 0xd7ff, 1, 0, 0},
    {0xe000, 0xfaff, 1, 0, 0},
    {0xfb1d, 0xff20, 1, 0, 0},
    /* wide forms */
    {0xff21, 0xff3a, 1, 32, 0},
    {0xff3b, 0xff40, 1, 0, 0},
    {0xff41, 0xff5a, 1, 0, -32},
    /* signs, emoji, ideographs, private use */
    {0xff5b, 0xfffd, 1, 0, 0},
    {0x1f000, 0x1fbff, 1, 0, 0},
    {0x20000, 0x3ffff, 1, 0, 0},
    {0xe0000, 0x10ffff, 1, 0, 0},
};

static uint32_t in_case(jinja *m, uint32_t c, bool upper)
{
    int add = UNKNOWN;
    for (size_t i = 0; i < BNET_COUNT(rows) && add == UNKNOWN; i++)
        if (c >= rows[i].first && c <= rows[i].last && (c - rows[i].first) % rows[i].stride == 0)
            add = upper ? rows[i].upper : rows[i].lower;
    if (add == UNKNOWN)
        bnet_jinja_fail(m, "the %s case of U+%04X is not supported", upper ? "upper" : "lower",
                        (unsigned)c);
    return (uint32_t)((int64_t)c + add);
}

/* A word of the filter title begins after this. */
static bool parts_words(bnet_span s)
{
    return memchr("-([{<", s.data[0], 5) != NULL || bnet_jinja_blank(s) != 0;
}

/* which: 'u' all upper, 'l' all lower, 'c' the first upper, 't' the first of each word. */
static jinja_value change_case(jinja *m, jinja_value v, const jinja_args *a, char which)
{
    bnet_str out = {0};
    bool begins = true;
    v = bnet_jinja_string(m, v);
    if (!bnet_jinja_args_are(m, "a change of case", a, 0, "") || !bnet_jinja_step(m, v.u.s.n))
        return v;
    for (bnet_span s = v.u.s; s.n && !m->failed;) {
        char bytes[4];
        int n = bnet_utf8_len(s.data, s.n);
        if (n <= 0) {
            bnet_jinja_fail(m, "a change of case: the text is no UTF-8");
            break;
        }
        bool upper = which == 'u' || (which != 'l' && begins);
        uint32_t c = in_case(m, bnet_utf8_decode(s.data, n), upper);
        bnet_str_add(&out, bytes, (size_t)bnet_utf8_encode(c, bytes));
        begins = which == 't' && parts_words((bnet_span){s.data, (size_t)n});
        s = (bnet_span){s.data + n, s.n - (size_t)n};
    }
    return bnet_jinja_take(m, &out);
}

static jinja_value upper(jinja *m, jinja_value v, jinja_args *a)
{
    return change_case(m, v, a, 'u');
}

static jinja_value lower(jinja *m, jinja_value v, jinja_args *a)
{
    return change_case(m, v, a, 'l');
}

static jinja_value capitalize(jinja *m, jinja_value v, jinja_args *a)
{
    return change_case(m, v, a, 'c');
}

static jinja_value title(jinja *m, jinja_value v, jinja_args *a)
{
    return change_case(m, v, a, 't');
}

const jinja_named bnet_jinja_case_filters[] = {
    {"capitalize", capitalize}, {"lower", lower}, {"title", title}, {"upper", upper}, {NULL, NULL},
};
