/* jinja_strings.c - the methods of strings in templates. */
#include "jinja/jinja_impl.h"

/* The characters to strip; which of ASCII are among them is known without looking for them. */
typedef struct char_set {
    bnet_span all;
    bool ascii[128];
} char_set;

static void read_set(char_set *set, bnet_span all)
{
    *set = (char_set){.all = all};
    for (size_t i = 0; i < all.n; i++)
        if ((unsigned char)all.data[i] < 128)
            set->ascii[(unsigned char)all.data[i]] = true;
}

static bool in_set(jinja *m, const char_set *set, const char *at, size_t n)
{
    unsigned char c = (unsigned char)*at;
    if (n == 1 && c < 128)
        return set->ascii[c];
    return set->all.n && bnet_jinja_step(m, set->all.n) &&
           memmem(set->all.data, set->all.n, at, n) != NULL;
}

/* Bytes of the characters at one end of s that are in `set`. */
static size_t edge(jinja *m, bnet_span s, const char_set *set, bool end)
{
    size_t taken = 0;
    while (taken < s.n) {
        size_t n = 1;
        const char *at = end ? s.data + s.n - taken - 1 : s.data + taken;
        if (end)
            while (n < 4 && taken + n < s.n && ((unsigned char)*at & 0xc0) == 0x80)
                at--, n++;
        else
            n = bnet_jinja_character((bnet_span){at, s.n - taken}, 0).n;
        if (!in_set(m, set, at, n))
            break;
        taken += n;
    }
    return taken;
}

static jinja_value strip(jinja *m, jinja_value self, const jinja_args *a, bool left, bool right)
{
    bnet_span s = self.u.s;
    char_set set;
    jinja_value given = bnet_jinja_arg(a, 0, "chars");
    bool blanks = given.type == JINJA_UNDEFINED || given.type == JINJA_NONE;
    if (!bnet_jinja_args_are(m, "strip", a, 1, "chars") || !bnet_jinja_step(m, s.n))
        return self;
    if (!blanks && given.type != JINJA_STRING)
        return bnet_jinja_fail(m, "strip takes a string, not %s", bnet_jinja_type_name(given));
    if (!blanks && bnet_jinja_step(m, given.u.s.n))
        read_set(&set, given.u.s);
    if (left && !m->failed) {
        size_t n = blanks ? bnet_jinja_blank(s) : edge(m, s, &set, false);
        s = (bnet_span){s.data + n, s.n - n};
    }
    if (right && !m->failed)
        s.n -= blanks ? bnet_jinja_blank_end(s) : edge(m, s, &set, true);
    return bnet_jinja_span(s);
}

static jinja_value str_strip(jinja *m, jinja_value self, jinja_args *a)
{
    return strip(m, self, a, true, true);
}

static jinja_value str_lstrip(jinja *m, jinja_value self, jinja_args *a)
{
    return strip(m, self, a, true, false);
}

static jinja_value str_rstrip(jinja *m, jinja_value self, jinja_args *a)
{
    return strip(m, self, a, false, true);
}

static bool has_at_edge(jinja *m, bnet_span s, jinja_value part, bool end)
{
    bnet_span p = part.u.s;
    if (!bnet_jinja_step(m, 0) || part.type != JINJA_STRING || p.n > s.n)
        return false;
    return bnet_jinja_same(m, (bnet_span){end ? s.data + s.n - p.n : s.data, p.n}, p);
}

/* True if s begins (or ends) with the argument, or with one of a tuple. */
static jinja_value at_edge(jinja *m, jinja_value self, const jinja_args *a, bool end)
{
    jinja_value v = bnet_jinja_arg(a, 0, "");
    if (!bnet_jinja_args_are(m, end ? "endswith" : "startswith", a, 1, ""))
        return self;
    if (v.type == JINJA_STRING)
        return bnet_jinja_bool(has_at_edge(m, self.u.s, v, end));
    if (v.type != JINJA_TUPLE)
        return bnet_jinja_fail(m, "startswith and endswith take a string, not %s",
                               bnet_jinja_type_name(v));
    for (size_t i = 0; i < v.u.list->n && !m->failed; i++)
        if (has_at_edge(m, self.u.s, v.u.list->items[i], end))
            return bnet_jinja_bool(true);
    return bnet_jinja_bool(false);
}

static jinja_value str_startswith(jinja *m, jinja_value self, jinja_args *a)
{
    return at_edge(m, self, a, false);
}

static jinja_value str_endswith(jinja *m, jinja_value self, jinja_args *a)
{
    return at_edge(m, self, a, true);
}

/* A method that is a filter of the same name. */
#define AS_FILTER(name)                                                                            \
    static jinja_value str_##name(jinja *m, jinja_value self, jinja_args *a)                       \
    {                                                                                              \
        return bnet_jinja_filter(m, (bnet_span){#name, sizeof #name - 1}, self, a);                \
    }
AS_FILTER(upper)
AS_FILTER(lower)
AS_FILTER(capitalize)
AS_FILTER(replace)

/* The method title: a capital begins each run of letters, also after a digit or an apostrophe. */
static jinja_value str_title(jinja *m, jinja_value self, jinja_args *a)
{
    jinja_value copy = bnet_jinja_copy(m, self.u.s.data, self.u.s.n);
    bool inside = false;
    if (!bnet_jinja_args_are(m, "title", a, 0, ""))
        return self;
    for (size_t i = 0; i < copy.u.s.n; i++) {
        char *c = (char *)copy.u.s.data + i;
        bool letter = (*c | 32) >= 'a' && (*c | 32) <= 'z';
        if ((unsigned char)*c >= 128)
            return bnet_jinja_fail(m,
                                   "title() is for ASCII text only; the filter title takes more");
        if (letter)
            *c = (char)(inside ? *c | 32 : *c & ~32);
        inside = letter;
    }
    return copy;
}

static void split_blanks(jinja *m, bnet_span s, int64_t most, jinja_value out)
{
    for (size_t n; !m->failed;) {
        n = bnet_jinja_blank(s);
        s = (bnet_span){s.data + n, s.n - n};
        if (!s.n)
            return;
        size_t end = 0;
        while (end < s.n && !bnet_jinja_blank((bnet_span){s.data + end, s.n - end}))
            end += bnet_jinja_character((bnet_span){s.data + end, s.n - end}, 0).n;
        if (most-- == 0)
            end = s.n;
        bnet_jinja_append(m, out, bnet_jinja_span((bnet_span){s.data, end}));
        s = (bnet_span){s.data + end, s.n - end};
    }
}

enum { UNCOUNTED = 4096 }; /* bytes that are compared before they count as steps */

/* The last place of `part` in s, or NULL. Every byte that is compared counts: of a part that nearly
 * fits at every place that is much more than s has. */
static const char *find_last(jinja *m, bnet_span s, bnet_span part)
{
    size_t compared = 0;
    for (size_t i = s.n >= part.n ? s.n - part.n + 1 : 0; i-- > 0;) {
        size_t same = 0;
        while (same < part.n && s.data[i + same] == part.data[same])
            same++;
        compared += same + 1;
        bool found = same == part.n;
        if ((found || compared >= UNCOUNTED) && !bnet_jinja_step(m, compared))
            return NULL;
        if (found)
            return s.data + i;
        compared = compared >= UNCOUNTED ? 0 : compared;
    }
    bnet_jinja_step(m, compared);
    return NULL;
}

/* The parts between separators; with `last` they are found, and listed, from the end. */
static void split_at(jinja *m, bnet_span s, bnet_span sep, int64_t most, bool last, jinja_value out)
{
    while (!m->failed && most != 0) {
        const char *at = last ? find_last(m, s, sep) : memmem(s.data, s.n, sep.data, sep.n);
        if (!at || !bnet_jinja_step(m, 0))
            break;
        size_t n = (size_t)(at - s.data), after = n + sep.n;
        bnet_span front = {s.data, n}, rest = {s.data + after, s.n - after};
        bnet_jinja_append(m, out, bnet_jinja_span(last ? rest : front));
        s = last ? front : rest;
        most -= most > 0;
    }
    bnet_jinja_append(m, out, bnet_jinja_span(s));
}

static jinja_value split(jinja *m, jinja_value self, const jinja_args *a, bool last)
{
    jinja_value sep = bnet_jinja_arg(a, 0, "sep"), max = bnet_jinja_arg(a, 1, "maxsplit");
    jinja_value out = bnet_jinja_list_of(m, JINJA_LIST);
    jinja_args none = {.n = 0};
    bnet_span s = self.u.s;
    int64_t most = -1;
    if (!bnet_jinja_args_are(m, "split", a, 2, "sep maxsplit") || !bnet_jinja_step(m, s.n))
        return out;
    if (max.type != JINJA_UNDEFINED && !bnet_jinja_whole(max, &most))
        return bnet_jinja_fail(m, "split: maxsplit is %s", bnet_jinja_type_name(max));
    if (sep.type == JINJA_UNDEFINED || sep.type == JINJA_NONE) {
        if (last && most >= 0)
            return bnet_jinja_fail(m, "rsplit needs a separator");
        split_blanks(m, s, most, out);
        return out;
    }
    if (sep.type != JINJA_STRING || !sep.u.s.n)
        return bnet_jinja_fail(m, "split: the separator is empty or no string");
    split_at(m, s, sep.u.s, most, last, out);
    return last && !m->failed ? bnet_jinja_filter(m, (bnet_span){"reverse", 7}, out, &none) : out;
}

static jinja_value str_split(jinja *m, jinja_value self, jinja_args *a)
{
    return split(m, self, a, false);
}

static jinja_value str_rsplit(jinja *m, jinja_value self, jinja_args *a)
{
    return split(m, self, a, true);
}

static jinja_value str_splitlines(jinja *m, jinja_value self, jinja_args *a)
{
    bnet_span s = self.u.s;
    jinja_value out = bnet_jinja_list_of(m, JINJA_LIST);
    if (!bnet_jinja_args_are(m, "splitlines", a, 0, "") || !bnet_jinja_step(m, s.n))
        return out;
    while (s.n && !m->failed)
        bnet_jinja_append(m, out, bnet_jinja_span(bnet_jinja_line(&s)));
    return out;
}

static jinja_value str_find(jinja *m, jinja_value self, jinja_args *a)
{
    bnet_span part = {"", 0}, s = self.u.s;
    if (!bnet_jinja_args_are(m, "find", a, 1, "") || !bnet_jinja_text_arg(m, a, 0, "", &part) ||
        !bnet_jinja_step(m, s.n))
        return self;
    const char *at = part.n ? memmem(s.data, s.n, part.data, part.n) : s.data;
    return bnet_jinja_int(
        at ? (int64_t)bnet_jinja_characters((bnet_span){s.data, (size_t)(at - s.data)}) : -1);
}

static jinja_value str_count(jinja *m, jinja_value self, jinja_args *a)
{
    bnet_span part = {"", 0}, s = self.u.s;
    int64_t n = 0;
    if (!bnet_jinja_args_are(m, "count", a, 1, "") || !bnet_jinja_text_arg(m, a, 0, "", &part) ||
        !bnet_jinja_step(m, s.n))
        return self;
    if (!part.n)
        return bnet_jinja_int((int64_t)bnet_jinja_characters(s) + 1);
    for (const char *at; (at = memmem(s.data, s.n, part.data, part.n)) != NULL; n++)
        s = (bnet_span){at + part.n, s.n - (size_t)(at - s.data) - part.n};
    return bnet_jinja_int(n);
}

static jinja_value str_join(jinja *m, jinja_value self, jinja_args *a)
{
    if (a->n != 1)
        return bnet_jinja_fail(m, "join takes one argument");
    const jinja_arg own = {.value = self};
    jinja_args separator = {.at = &own, .n = 1};
    return bnet_jinja_filter(m, (bnet_span){"join", 4}, a->at[0].value, &separator);
}

/* True if s is not empty and all its bytes are within lo..hi (or, letters, either case). */
static jinja_value all_within(jinja *m, jinja_value self, const jinja_args *a, bool digits,
                              bool letters)
{
    bnet_span s = self.u.s;
    bool all = s.n > 0;
    if (!bnet_jinja_args_are(m, "a question to a string", a, 0, "") || !bnet_jinja_step(m, s.n))
        return self;
    for (size_t i = 0; i < s.n && all; i++) {
        char c = s.data[i];
        if ((unsigned char)c >= 128)
            return bnet_jinja_fail(m, "isdigit, isalpha and isalnum answer for ASCII text only");
        all = (digits && c >= '0' && c <= '9') || (letters && ((c | 32) >= 'a' && (c | 32) <= 'z'));
    }
    return bnet_jinja_bool(all);
}

static jinja_value str_isdigit(jinja *m, jinja_value self, jinja_args *a)
{
    return all_within(m, self, a, true, false);
}

static jinja_value str_isalpha(jinja *m, jinja_value self, jinja_args *a)
{
    return all_within(m, self, a, false, true);
}

static jinja_value str_isalnum(jinja *m, jinja_value self, jinja_args *a)
{
    return all_within(m, self, a, true, true);
}

static jinja_value without(jinja *m, jinja_value self, jinja_args *a, bool end)
{
    bnet_span part = {"", 0}, s = self.u.s;
    jinja_value there = at_edge(m, self, a, end);
    if (m->failed || !bnet_jinja_text_arg(m, a, 0, "", &part) || !there.u.b)
        return self;
    return bnet_jinja_span((bnet_span){end ? s.data : s.data + part.n, s.n - part.n});
}

static jinja_value str_removeprefix(jinja *m, jinja_value self, jinja_args *a)
{
    return without(m, self, a, false);
}

static jinja_value str_removesuffix(jinja *m, jinja_value self, jinja_args *a)
{
    return without(m, self, a, true);
}

const jinja_named bnet_jinja_string_methods[] = {
    {"strip", str_strip},
    {"lstrip", str_lstrip},
    {"rstrip", str_rstrip},
    {"startswith", str_startswith},
    {"endswith", str_endswith},
    {"upper", str_upper},
    {"lower", str_lower},
    {"title", str_title},
    {"capitalize", str_capitalize},
    {"replace", str_replace},
    {"split", str_split},
    {"rsplit", str_rsplit},
    {"splitlines", str_splitlines},
    {"find", str_find},
    {"count", str_count},
    {"join", str_join},
    {"isdigit", str_isdigit},
    {"isalpha", str_isalpha},
    {"isalnum", str_isalnum},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {NULL, NULL},
};
