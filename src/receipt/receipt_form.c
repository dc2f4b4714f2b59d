/* receipt_form.c - the form of a receipt to the letter: the types of its fields, its keys, sizes,
 * startup summary, time. */
#include <time.h>

#include "receipt/receipt_check.h"

static const struct {
    const char *path;
    char type;
} fields[] = {
#define FIELD(path, type) {path, type},
#include "receipt/receipt_fields.inc"
#undef FIELD
};

/* ---- types ---- */

/* 2^63 to 2^64 - 1 as text: JSON readers rarely take such numbers. */
static bool is_large(const json_t *j)
{
    static const char least[] = "9223372036854775808", most[] = "18446744073709551615";
    const char *s = json_string_value(j);
    size_t n = s ? strlen(s) : 0;
    if (!s || strspn(s, "0123456789") != n)
        return false;
    return (n == sizeof least - 1 && strcmp(s, least) >= 0) ||
           (n == sizeof most - 1 && strcmp(s, most) <= 0);
}

bool bnet_form_hex(const json_t *j)
{
    const char *s = json_string_value(j);
    return s && strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

bool bnet_form_types(checking *c)
{
    for (size_t i = 0; i < BNET_COUNT(fields); i++) {
        const json_t *j = at(c->root, fields[i].path);
        char t = fields[i].type;
        bool whole = json_is_integer(j) && json_integer_value(j) >= 0;
        bool ok = t == 's'   ? json_is_string(j)
                  : t == 'h' ? bnet_form_hex(j)
                  : t == 't' ? !j || json_is_string(j)
                  : t == 'i' ? whole
                  : t == 'c' ? !j || whole
                  : t == 'p' ? !j || json_is_object(j)
                  : t == 'u' ? whole || is_large(j)
                  : t == 'n' ? json_is_number(j) && json_number_value(j) >= 0
                  : t == 'b' ? json_is_boolean(j)
                  : t == 'a' ? json_is_array(j)
                             : json_is_object(j);
        if (!ok)
            return no(c, "%s is missing or of the wrong type%s", fields[i].path,
                      t == 'h' ? ": not 64 hexadecimal digits" : "");
    }
    return true;
}

/* ---- keys ---- */

typedef enum known { UNKNOWN, LEAF, PART } known;

static known find_path(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < BNET_COUNT(fields); i++) {
        if (strcmp(fields[i].path, path) == 0)
            return LEAF;
        if (strncmp(fields[i].path, path, n) == 0 && fields[i].path[n] == '.')
            return PART;
    }
    return strcmp(path, "schema_version") == 0 ? LEAF : UNKNOWN;
}

/* Of one object; `prefix` is "" or ends with a point. Parts of parts are at most two deep. */
static bool known_keys(checking *c, const json_t *object, const char *prefix)
{
    char path[200], buf[64];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        known k = UNKNOWN;
        if (!strchr(key, '.') && strlen(key) <= 60) {
            snprintf(path, sizeof path, "%.99s%.60s", prefix, key);
            k = find_path(path);
        }
        if (k == UNKNOWN)
            return no(c, "%s\"%s\" is no field of a receipt", prefix, shown(key, buf));
        snprintf(path, sizeof path, "%.99s%.60s.", prefix, key);
        if (k == PART && !known_keys(c, value, path))
            return false;
    }
    return true;
}

bool bnet_form_keys(checking *c)
{
    return known_keys(c, c->root, "");
}

bool bnet_form_sizes(checking *c)
{
    static const char *const sizes[] = {"model_info.layers",
                                        "model_info.hidden_size",
                                        "model_info.num_attention_heads",
                                        "model_info.num_key_value_heads",
                                        "model_info.vocab_size",
                                        "model_info.file_bytes",
                                        "environment.threads"};
    for (size_t i = 0; i < BNET_COUNT(sizes); i++)
        if (number_at(c, sizes[i]) < 1)
            return no(c, "%s is 0", sizes[i]);
    for (size_t i = 0; i < BNET_COUNT(fields); i++)
        if ((fields[i].type == 'i' || fields[i].type == 'c') &&
            json_integer_value(at(c->root, fields[i].path)) > BNET_RECEIPT_WHOLE)
            return no(c, "%s is above 2^53", fields[i].path);
    return true;
}

/* ---- the startup summary ---- */

/* Takes `key` and the word of small letters, digits and `more` behind it. */
static bool take_word(const char **s, const char *key, const char *more, char *out, size_t cap)
{
    char allowed[64];
    size_t n = strlen(key);
    if (strncmp(*s, key, n) != 0)
        return false;
    snprintf(allowed, sizeof allowed, "abcdefghijklmnopqrstuvwxyz0123456789%s", more);
    *s += n;
    n = strspn(*s, allowed);
    if (n == 0 || n >= cap)
        return false;
    snprintf(out, cap, "%.*s", (int)n, *s);
    *s += n;
    return true;
}

/* "kind" or "kind:i"; the CPU has no index. */
static bool is_device(const char *s)
{
    size_t n = strcspn(s, ":");
    if (!s[n])
        return true;
    size_t digits = strspn(s + n + 1, "0123456789");
    return digits >= 1 && digits <= 3 && !s[n + 1 + digits] && strncmp(s, "cpu:", 4) != 0;
}

/* What stands behind the names of several devices is what those names make it. */
static bool is_group(const char *selected, const char *rest)
{
    bnet_request r;
    char want[256], got[256];
    if (bnet_request_parse(selected, "", &r, NULL) != BITNET_OK || r.ranks.n < 2)
        return false;
    bool tensor = strncmp(rest, " split=tensor", 13) == 0;
    r.ranks.split = tensor ? BNET_SPLIT_TENSOR : BNET_SPLIT_LAYER;
    bnet_ranks_text(r.kind, &r.ranks, want, sizeof want);
    int n = snprintf(got, sizeof got, "%s%s", selected, rest);
    return n > 0 && (size_t)n < sizeof got && strcmp(want, got) == 0;
}

/* Of the CPU and of one GPU nothing follows; of several how the model is divided. */
static bool ends_well(const char *selected, const char *rest)
{
    return strchr(selected, ',') ? is_group(selected, rest) : is_device(selected) && !*rest;
}

/* Was that asked for? All devices of a kind may be, by its name. */
static bool was_asked_for(const char *requested, const char *kind, const char *selected)
{
    bool any = strcmp(requested, "auto") == 0 ||
               (strcmp(requested, "gpu") == 0 && strcmp(kind, "cpu") != 0);
    if (any)
        return !strchr(selected, ':');
    return strcmp(requested, selected) == 0 ||
           (strcmp(requested, kind) == 0 && strchr(selected, ','));
}

bool bnet_form_summary(checking *c)
{
    const char *s = text_at(c, "backend_summary"), *backend = text_at(c, "backend");
    char selected[160], detected[128], requested[160], item[162], list[132], kind[160];
    if (!take_word(&s, "requested=", ":,", requested, sizeof requested) ||
        !take_word(&s, " detected=[", ",", detected, sizeof detected) ||
        !take_word(&s, "] selected=", ":,", selected, sizeof selected) ||
        (*s && !strchr(selected, ',')))
        return no(c, "backend_summary lacks or exceeds "
                     "\"requested=X detected=[X,Y] selected=X\"");
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(selected, ":"), selected);
    if (strcmp(kind, backend) != 0)
        return no(c, "backend_summary selected %s, the backend is %.20s", kind, backend);
    if (!ends_well(selected, s) || !was_asked_for(requested, kind, selected))
        return no(c, "backend_summary: %s was requested, %s cannot be selected", requested,
                  selected);
    snprintf(item, sizeof item, ",%s,", kind);
    snprintf(list, sizeof list, ",%s,", detected);
    return (strstr(list, item) && !strstr(list, ",,")) ||
           no(c, "%s was selected, but only [%s] detected", kind, detected);
}

/* ---- time ---- */

/* Every 0 of the form is a digit, everything else itself. */
static bool has_form(const char *s, const char *form)
{
    for (; *form; s++, form++)
        if (*form == '0' ? *s < '0' || *s > '9' : *s != *form)
            return false;
    return true;
}

static int two(const char *s)
{
    return (s[0] - '0') * 10 + s[1] - '0';
}

static int days_of(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

/* "Z", "+hh:mm" or "-hh:mm": *out in seconds. */
static bool parse_offset(const char *s, double *out)
{
    *out = 0;
    if (strcmp(s, "Z") == 0)
        return true;
    if ((*s != '+' && *s != '-') || !has_form(s + 1, "00:00") || s[6])
        return false;
    int hours = two(s + 1), minutes = two(s + 4);
    *out = (*s == '-' ? -1 : 1) * (hours * 3600.0 + minutes * 60.0);
    return hours <= 23 && minutes <= 59;
}

bool bnet_form_time(const char *s, double *out)
{
    double offset;
    if (!has_form(s, "0000-00-00T00:00:00"))
        return false;
    int year = two(s) * 100 + two(s + 2), month = two(s + 5);
    struct tm t = {.tm_year = year - 1900,
                   .tm_mon = month - 1,
                   .tm_mday = two(s + 8),
                   .tm_hour = two(s + 11),
                   .tm_min = two(s + 14),
                   .tm_sec = two(s + 17)};
    if (month < 1 || month > 12 || t.tm_mday < 1 || t.tm_mday > days_of(year, month) ||
        t.tm_hour > 23 || t.tm_min > 59 || t.tm_sec > 60)
        return false;
    s += 19;
    if (*s == '.') {
        size_t n = strspn(s + 1, "0123456789");
        if (n == 0)
            return false;
        s += 1 + n;
    }
    if (!parse_offset(s, &offset))
        return false;
    *out = (double)timegm(&t) - offset;
    return true;
}
