/* fields.c - see fields.h. Hides how a wrong field is told to the client. */
#include "ask/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *srv_field(const json_t *body, const char *name)
{
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

bool srv_field_wrong(srv_exchange *x, const char *name, const char *must_be)
{
    srv_fail(x, 400, "invalid_value", name, "%s must be %s", name, must_be);
    return false;
}

/* Shows the value where it is short. */
bool srv_field_bad(srv_exchange *x, const char *name, const json_t *value, const char *must_be)
{
    enum { SHORT = 64 };
    const size_t flags = JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15);
    bool simple = value && !json_is_object(value) && !json_is_array(value);
    char *text = simple ? json_dumps(value, flags) : NULL;
    if (text && strlen(text) < SHORT)
        srv_fail(x, 400, "invalid_value", name, "%s must be %s, not %s", name, must_be, text);
    else
        srv_field_wrong(x, name, must_be);
    free(text);
    return false;
}

bool srv_field_number(srv_exchange *x, const json_t *body, const char *name, double min, double max,
                      double *out)
{
    json_t *value = srv_field(body, name);
    if (!value)
        return true;
    double v = json_number_value(value);
    if (json_is_number(value) && v >= min && v <= max) {
        *out = v;
        return true;
    }
    char range[96];
    snprintf(range, sizeof range, "a number from %g to %g", min, max);
    if (!json_is_number(value))
        return srv_field_bad(x, name, value, range);
    srv_fail(x, 400, "invalid_value", name, "%s is %g: it must be from %g to %g", name, v, min,
             max);
    return false;
}

/* A JSON number as a whole number that a double can tell exactly. */
static bool whole(const json_t *value, int64_t *out)
{
    double v = json_number_value(value);
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value) || v != floor(v) || fabs(v) > 9007199254740992.0)
        return false;
    *out = (int64_t)v;
    return true;
}

bool srv_field_int(srv_exchange *x, const json_t *body, const char *name, int64_t min, int64_t max,
                   int64_t *out)
{
    json_t *value = srv_field(body, name);
    int64_t v = 0;
    if (!value)
        return true;
    if (whole(value, &v) && v >= min && v <= max) {
        *out = v;
        return true;
    }
    char range[96];
    snprintf(range, sizeof range, "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    if (!whole(value, &v))
        return srv_field_bad(x, name, value, range);
    srv_fail(x, 400, "invalid_value", name, "%s is %lld: it must be from %lld to %lld", name,
             (long long)v, (long long)min, (long long)max);
    return false;
}

bool srv_field_bool(srv_exchange *x, const json_t *body, const char *name, bool *out)
{
    json_t *value = srv_field(body, name);
    if (!value)
        return true;
    if (!json_is_boolean(value))
        return srv_field_bad(x, name, value, "true or false");
    *out = json_is_true(value);
    return true;
}

bool srv_field_text(srv_exchange *x, const json_t *body, const char *name, size_t max_bytes,
                    const char **out)
{
    json_t *value = srv_field(body, name);
    if (!value)
        return true;
    if (!json_is_string(value))
        return srv_field_bad(x, name, value, "a string");
    size_t n = json_string_length(value);
    if (strlen(json_string_value(value)) != n)
        return srv_field_bad(x, name, value, "a string without NUL characters");
    if (n > max_bytes) {
        srv_fail(x, 400, "invalid_value", name, "%s has %zu bytes: at most %zu are allowed", name,
                 n, max_bytes);
        return false;
    }
    *out = json_string_value(value);
    return true;
}

bool srv_field_object(srv_exchange *x, const json_t *body, const char *name, json_t **out)
{
    json_t *value = srv_field(body, name);
    if (value && !json_is_object(value))
        return srv_field_bad(x, name, value, "an object");
    if (value)
        *out = value;
    return true;
}

bool srv_field_array(srv_exchange *x, const json_t *body, const char *name, size_t max_elements,
                     json_t **out)
{
    json_t *value = srv_field(body, name);
    if (value && !json_is_array(value))
        return srv_field_bad(x, name, value, "an array");
    if (value && json_array_size(value) > max_elements) {
        srv_fail(x, 400, "invalid_value", name, "%s has %zu elements: at most %zu are allowed",
                 name, json_array_size(value), max_elements);
        return false;
    }
    if (value)
        *out = value;
    return true;
}

static bool says_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

bool srv_field_refuse(srv_exchange *x, const json_t *body, const char *name, const char *why)
{
    if (says_nothing(json_object_get(body, name)))
        return true;
    srv_fail(x, 400, "unsupported_value", name, "%s is not supported: %s", name, why);
    return false;
}
