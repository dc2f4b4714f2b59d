/* json.c - strict parsing and typed reads. */
#include "convert/json.h"

#include <stdio.h>

bitnet_status bnet_json_fail(bnet_json_at *at, const char *key, const char *fmt, ...)
{
    char text[512], quoted[96];
    va_list ap;
    if (at->status != BITNET_OK)
        return at->status;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    at->status = bnet_fail(at->err, at->kind, "%s: key %s%s: %s", at->file, at->section,
                           bnet_quote(key, strlen(key), quoted, sizeof quoted), text);
    return at->status;
}

bitnet_status bnet_json_refuse(bnet_json_at *at, const char *key, const char *value,
                               const char *why)
{
    char quoted[128];
    return bnet_json_fail(at, key, "\"%s\" %s",
                          bnet_quote(value, strlen(value), quoted, sizeof quoted), why);
}

void bnet_json_no_memory(bnet_json_at *at)
{
    if (at->status == BITNET_OK)
        at->status = bnet_no_memory(at->err, at->file);
}

/* When a buffer of jansson cannot grow it drops characters and goes on, so a text could change its
 * meaning in silence. Its allocations therefore come through here, and one that fails is remembered
 * until the end of the text; jansson hands no context to its allocator, hence a variable per
 * thread. */
_Thread_local bool bnet_json_starved;

static void *take(size_t n)
{
    void *p = bnet_alloc_small(n);
    if (!p)
        bnet_json_starved = true;
    return p;
}

static json_t *load(const char *data, size_t n, size_t flags, json_error_t *e)
{
    json_set_alloc_funcs(take, bnet_free);
    bnet_json_starved = false;
    json_t *root = json_loadb(data, n, JSON_REJECT_DUPLICATES | flags, e);
    if (root && bnet_json_starved) {
        json_decref(root);
        return NULL;
    }
    return root;
}

bitnet_status bnet_json_check(const bnet_json_reader *r, const char *what, bnet_json_at *at)
{
    char why[256];
    bnet_json_reader first = *r;
    const char *wrong = bnet_json_measure(r->data, r->n, SIZE_MAX, why, sizeof why);
    if (wrong)
        at->status = bnet_fail(at->err, at->kind, "%s: %s: %s", at->file, wrong, why);
    else if (bnet_json_next(&first) != BNET_JSON_OBJECT)
        at->status = bnet_fail(at->err, at->kind, "%s: the %s is %s; an object was expected",
                               at->file, what, bnet_json_event_name(first.event));
    return at->status;
}

json_t *bnet_json_parse(const char *data, size_t n, const char *what, bnet_json_at *at)
{
    json_error_t e;
    char quoted[JSON_ERROR_TEXT_LENGTH * 2], why[256];
    const char *wrong = bnet_json_measure(data, n, BNET_JSON_VALUES, why, sizeof why);
    json_t *root = wrong ? NULL : load(data, n, 0, &e);
    if (wrong)
        at->status = bnet_fail(at->err, at->kind, "%s: %s: %s", at->file, wrong, why);
    else if (!root && bnet_json_starved)
        at->status = bnet_no_memory(at->err, at->file);
    else if (!root)
        at->status =
            bnet_fail(at->err, at->kind, "%s: not valid JSON: line %d, column %d, byte %d: %s",
                      at->file, e.line, e.column, e.position,
                      bnet_quote(e.text, strlen(e.text), quoted, sizeof quoted));
    else if (!json_is_object(root))
        at->status = bnet_fail(at->err, at->kind, "%s: the %s is %s; an object was expected",
                               at->file, what, bnet_json_kind(root));
    if (at->status == BITNET_OK)
        return root;
    json_decref(root);
    return NULL;
}

json_t *bnet_json_value(bnet_span text, const char *key, bnet_json_at *at)
{
    json_error_t e = {0};
    char quoted[JSON_ERROR_TEXT_LENGTH * 2];
    json_t *v = at->status == BITNET_OK ? load(text.data, text.n, JSON_DECODE_ANY, &e) : NULL;
    if (!v && at->status == BITNET_OK && bnet_json_starved)
        bnet_json_no_memory(at);
    else if (!v)
        bnet_json_fail(at, key, "%s", bnet_quote(e.text, strlen(e.text), quoted, sizeof quoted));
    return v;
}

json_t *bnet_json_file(size_t max, bnet_json_at *at)
{
    char *data = NULL;
    size_t n = 0;
    at->status = bnet_read_file(at->file, max, &data, &n, at->err);
    json_t *root = at->status == BITNET_OK ? bnet_json_parse(data, n, "document", at) : NULL;
    bnet_free(data);
    return root;
}

const char *bnet_json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a fractional number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* obj[key], or NULL where it is absent, null or of a type whose bit is not in `types`. */
static json_t *value_at(const json_t *obj, bnet_json_at *at, const char *key, unsigned types,
                        const char *want)
{
    json_t *v = at->status == BITNET_OK ? json_object_get(obj, key) : NULL;
    if (!v || json_is_null(v) || types >> json_typeof(v) & 1)
        return v && !json_is_null(v) ? v : NULL;
    bnet_json_fail(at, key, "is %s; %s was expected", bnet_json_kind(v), want);
    return NULL;
}

int64_t bnet_json_int(const json_t *obj, bnet_json_at *at, const char *key, int64_t lo, int64_t hi,
                      int64_t absent)
{
    json_t *v = value_at(obj, at, key, 1u << JSON_INTEGER, "an integer");
    int64_t i = v ? json_integer_value(v) : absent;
    if (v && (i < lo || i > hi))
        bnet_json_fail(at, key, "value %lld is outside %lld..%lld", (long long)i, (long long)lo,
                       (long long)hi);
    return at->status == BITNET_OK ? i : absent;
}

double bnet_json_float(const json_t *obj, bnet_json_at *at, const char *key, double lo, double hi,
                       double absent)
{
    json_t *v = value_at(obj, at, key, 1u << JSON_INTEGER | 1u << JSON_REAL, "a number");
    double d = v ? json_number_value(v) : absent;
    if (v && !(d >= lo && d <= hi))
        bnet_json_fail(at, key, "value %g is outside %g..%g", d, lo, hi);
    return at->status == BITNET_OK ? d : absent;
}

bool bnet_json_bool(const json_t *obj, bnet_json_at *at, const char *key, bool absent)
{
    json_t *v = value_at(obj, at, key, 1u << JSON_TRUE | 1u << JSON_FALSE, "true or false");
    return v ? json_is_true(v) : absent;
}

const char *bnet_json_string(const json_t *obj, bnet_json_at *at, const char *key,
                             const char *absent)
{
    json_t *v = value_at(obj, at, key, 1u << JSON_STRING, "a string");
    return v ? json_string_value(v) : absent;
}

json_t *bnet_json_object(const json_t *obj, bnet_json_at *at, const char *key)
{
    return value_at(obj, at, key, 1u << JSON_OBJECT, "an object");
}

json_t *bnet_json_array(const json_t *obj, bnet_json_at *at, const char *key)
{
    return value_at(obj, at, key, 1u << JSON_ARRAY, "an array");
}
