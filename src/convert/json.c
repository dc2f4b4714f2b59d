/* json.c - strict parsing and typed reads. */
#include "convert/json.h"

#include <math.h>
#include <stdio.h>

bitnet_status bnet_json_fail(const bnet_json_at *at, const char *key, const char *fmt, ...)
{
    char text[512], quoted[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return bnet_fail(at->err, at->kind, "%s: key %s%s: %s", at->file, at->section,
                     bnet_quote(key, strlen(key), quoted, sizeof quoted), text);
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

static json_t *load(const char *data, size_t n, json_error_t *e)
{
    json_set_alloc_funcs(take, bnet_free);
    bnet_json_starved = false;
    json_t *root = json_loadb(data, n, JSON_REJECT_DUPLICATES, e);
    if (root && bnet_json_starved) {
        json_decref(root);
        return NULL;
    }
    return root;
}

bitnet_status bnet_json_parse(const char *data, size_t n, const bnet_json_at *at, json_t **out)
{
    json_error_t e;
    char quoted[JSON_ERROR_TEXT_LENGTH * 2];
    json_t *root = load(data, n, &e);
    if (root) {
        *out = root;
        return BITNET_OK;
    }
    if (bnet_json_starved)
        return bnet_no_memory(at->err, at->file);
    return bnet_fail(at->err, at->kind, "%s: not valid JSON: line %d, column %d, byte %d: %s",
                     at->file, e.line, e.column, e.position,
                     bnet_quote(e.text, strlen(e.text), quoted, sizeof quoted));
}

bitnet_status bnet_json_file(size_t max, const bnet_json_at *at, json_t **out)
{
    char *data;
    size_t n;
    json_t *root = NULL;
    bitnet_status st = bnet_read_regular_file(at->file, max, &data, &n, at->err);
    if (st != BITNET_OK)
        return st;
    st = bnet_json_parse(data, n, at, &root);
    bnet_free(data);
    if (st == BITNET_OK && !json_is_object(root)) {
        st = bnet_fail(at->err, at->kind, "%s: the document is %s; an object was expected",
                       at->file, bnet_json_kind(root));
        json_decref(root);
    }
    if (st == BITNET_OK)
        *out = root;
    return st;
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

/* obj[key], or NULL where it is absent or null. */
static json_t *value_at(const json_t *obj, const char *key)
{
    json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

static bitnet_status wrong_kind(const bnet_json_at *at, const char *key, const json_t *v,
                                const char *want)
{
    return bnet_json_fail(at, key, "is %s; %s was expected", bnet_json_kind(v), want);
}

bitnet_status bnet_json_int(const json_t *obj, const bnet_json_at *at, const char *key, int64_t lo,
                            int64_t hi, int64_t *out, bool *found)
{
    json_t *v = value_at(obj, key);
    if (found)
        *found = v != NULL;
    if (!v)
        return BITNET_OK;
    if (!json_is_integer(v))
        return wrong_kind(at, key, v, "an integer");
    int64_t i = json_integer_value(v);
    if (i < lo || i > hi)
        return bnet_json_fail(at, key, "value %lld is outside %lld..%lld", (long long)i,
                              (long long)lo, (long long)hi);
    *out = i;
    return BITNET_OK;
}

bitnet_status bnet_json_float(const json_t *obj, const bnet_json_at *at, const char *key, double lo,
                              double hi, double *out, bool *found)
{
    json_t *v = value_at(obj, key);
    if (found)
        *found = v != NULL;
    if (!v)
        return BITNET_OK;
    if (!json_is_number(v))
        return wrong_kind(at, key, v, "a number");
    double d = json_number_value(v);
    if (!(d >= lo && d <= hi))
        return bnet_json_fail(at, key, "value %g is outside %g..%g", d, lo, hi);
    *out = d;
    return BITNET_OK;
}

bitnet_status bnet_json_bool(const json_t *obj, const bnet_json_at *at, const char *key, bool *out)
{
    json_t *v = value_at(obj, key);
    if (v && !json_is_boolean(v))
        return wrong_kind(at, key, v, "true or false");
    if (v)
        *out = json_is_true(v);
    return BITNET_OK;
}

bitnet_status bnet_json_string(const json_t *obj, const bnet_json_at *at, const char *key,
                               const char **out)
{
    json_t *v = value_at(obj, key);
    if (v && !json_is_string(v))
        return wrong_kind(at, key, v, "a string");
    if (v)
        *out = json_string_value(v);
    return BITNET_OK;
}

bitnet_status bnet_json_object(const json_t *obj, const bnet_json_at *at, const char *key,
                               json_t **out)
{
    json_t *v = value_at(obj, key);
    if (v && !json_is_object(v))
        return wrong_kind(at, key, v, "an object");
    if (v)
        *out = v;
    return BITNET_OK;
}

bitnet_status bnet_json_array(const json_t *obj, const bnet_json_at *at, const char *key,
                              json_t **out)
{
    json_t *v = value_at(obj, key);
    if (v && !json_is_array(v))
        return wrong_kind(at, key, v, "an array");
    if (v)
        *out = v;
    return BITNET_OK;
}
