/* schema_apart.c - is there a value that two schemas both have? Looks at types, constants, bounds
 * and required properties; where these do not tell, the answer is that there may be one. */
#include "grammar/schema.h"

#include <math.h>

enum { MAX_DEPTH = 8, MAX_WORK = 1 << 20, TEXT_UNIT = 64, TYPES_UNIT = 8, ANY_TYPE = 127 };

static bool apart(bnet_schema *s, json_t *a, json_t *b, int depth);

/* False: too much was looked at, or the schema is refused. */
static bool work(bnet_schema *s, size_t n)
{
    s->n_apart += n;
    return s->n_apart <= MAX_WORK && bnet_schema_ok(s);
}

/* What a schema refers to, as far as that is simple; a wrong reference is refused elsewhere. Two
 * that are short are a part of the work that the schema itself is. */
static json_t *follow(bnet_schema *s, json_t *node)
{
    for (int i = 0; i < MAX_DEPTH && json_is_object(node); i++) {
        const json_t *ref = json_object_get(node, "$ref");
        if (!json_is_string(ref))
            return node;
        if (!work(s, (i > 1) + json_string_length(ref) / TEXT_UNIT))
            return NULL;
        node = bnet_schema_look_up(s, json_string_value(ref));
    }
    return node;
}

/* ---- types: here an integer is no number, and a number has a fraction ---- */

static unsigned class_of_value(const json_t *v)
{
    double real = json_real_value(v);
    switch (json_typeof(v)) {
    case JSON_STRING:
        return BNET_TYPE_STRING;
    case JSON_INTEGER:
        return BNET_TYPE_INTEGER;
    case JSON_REAL: /* 1.0 is an integer, too */
        return real == floor(real) ? BNET_TYPE_INTEGER : BNET_TYPE_NUMBER;
    case JSON_NULL:
        return BNET_TYPE_NULL;
    case JSON_OBJECT:
        return BNET_TYPE_OBJECT;
    case JSON_ARRAY:
        return BNET_TYPE_ARRAY;
    default:
        return BNET_TYPE_BOOLEAN;
    }
}

static unsigned class_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } names[] = {{"string", BNET_TYPE_STRING},
                 {"integer", BNET_TYPE_INTEGER},
                 {"boolean", BNET_TYPE_BOOLEAN},
                 {"null", BNET_TYPE_NULL},
                 {"object", BNET_TYPE_OBJECT},
                 {"array", BNET_TYPE_ARRAY},
                 {"number", BNET_TYPE_NUMBER | BNET_TYPE_INTEGER}};
    for (size_t i = 0; name && i < BNET_COUNT(names); i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].bits;
    return ANY_TYPE;
}

/* The values of const or enum; NULL: any. *one: it is a single value, no list. */
static const json_t *values_of(const json_t *node, bool *one)
{
    const json_t *value = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    *one = value != NULL;
    return value ? value : json_is_array(list) ? list : NULL;
}

/* The types that a value of the schema can have, by `type`, const and enum alone. */
static unsigned classes(const json_t *node)
{
    const json_t *type = json_object_get(node, "type");
    bool one;
    const json_t *values = values_of(node, &one);
    unsigned bits = ANY_TYPE, sum = 0;
    if (type && !json_is_array(type))
        bits = class_of_name(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        sum |= class_of_name(json_string_value(json_array_get(type, i)));
    bits &= json_array_size(type) ? sum : ANY_TYPE;
    if (values && one)
        return bits & class_of_value(values);
    sum = values ? 0 : ANY_TYPE;
    for (size_t i = 0; values && i < json_array_size(values); i++)
        sum |= class_of_value(json_array_get(values, i));
    return bits & sum;
}

/* ---- constants ---- */

/* Lists and objects are not compared: they may be equal. */
static bool differ(bnet_schema *s, const json_t *a, const json_t *b)
{
    if (!work(s, 1 + json_string_length(a) / TEXT_UNIT))
        return false;
    if (class_of_value(a) != class_of_value(b))
        return true;
    if (json_is_number(a))
        return json_number_value(a) != json_number_value(b);
    if (json_is_string(a))
        return json_string_length(a) != json_string_length(b) ||
               memcmp(json_string_value(a), json_string_value(b), json_string_length(a)) != 0;
    return json_is_boolean(a) && json_is_true(a) != json_is_true(b);
}

static const json_t *value_at(const json_t *values, bool one, size_t i)
{
    return one ? values : json_array_get(values, i);
}

/* Both schemas list their values, and none is in both lists. */
static bool constants_apart(bnet_schema *s, const json_t *a, const json_t *b)
{
    bool one_a, one_b, good = true;
    const json_t *x = values_of(a, &one_a), *y = values_of(b, &one_b);
    size_t n = one_a ? 1 : json_array_size(x), m = one_b ? 1 : json_array_size(y);
    for (size_t i = 0; x && y && good && i < n; i++)
        for (size_t j = 0; good && j < m; j++)
            good = differ(s, value_at(x, one_a, i), value_at(y, one_b, j));
    return x && y && good;
}

/* ---- bounds ---- */

static double number_or(const json_t *node, const char *keyword, double absent)
{
    const json_t *v = json_object_get(node, keyword);
    return json_is_number(v) ? json_number_value(v) : absent;
}

/* All that `low` lets through is below all that `high` does. */
static bool is_below(const json_t *low, const json_t *high, const char *most, const char *least,
                     bool equal)
{
    double top = number_or(low, most, INFINITY), bottom = number_or(high, least, -INFINITY);
    bool exact = fabs(top) < 9007199254740992.0; /* 2^53: above it two integers may look equal */
    return top < bottom || (equal && exact && top == bottom);
}

static bool counts_apart(const json_t *a, const json_t *b, const char *most, const char *least)
{
    return is_below(a, b, most, least, false) || is_below(b, a, most, least, false);
}

static bool numbers_below(const json_t *a, const json_t *b)
{
    return is_below(a, b, "maximum", "minimum", false) ||
           is_below(a, b, "exclusiveMaximum", "minimum", true) ||
           is_below(a, b, "maximum", "exclusiveMinimum", true) ||
           is_below(a, b, "exclusiveMaximum", "exclusiveMinimum", true);
}

/* ---- objects ---- */

/* The schema of a property, or what else there may be. */
static json_t *property(const json_t *node, const char *name)
{
    json_t *own = json_object_get(json_object_get(node, "properties"), name);
    return own ? own : json_object_get(node, "additionalProperties");
}

/* A property that `a` requires can have no value that both allow. */
static bool objects_apart(bnet_schema *s, const json_t *a, const json_t *b, int depth)
{
    const json_t *required = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *text = json_array_get(required, i);
        const char *name = json_string_value(text);
        if (!work(s, 1 + json_string_length(text) / TEXT_UNIT))
            return false;
        json_t *x = name ? property(a, name) : NULL, *y = name ? property(b, name) : NULL;
        if (json_is_false(y) || (x && y && apart(s, x, y, depth - 1)))
            return true;
    }
    return false;
}

/* ---- all together ---- */

/* Of one type. */
static bool type_apart(bnet_schema *s, json_t *a, json_t *b, unsigned type, int depth)
{
    switch (type) {
    case BNET_TYPE_STRING:
        return counts_apart(a, b, "maxLength", "minLength");
    case BNET_TYPE_ARRAY:
        return counts_apart(a, b, "maxItems", "minItems");
    case BNET_TYPE_INTEGER:
    case BNET_TYPE_NUMBER:
        return numbers_below(a, b) || numbers_below(b, a);
    case BNET_TYPE_OBJECT:
        return objects_apart(s, a, b, depth) || objects_apart(s, b, a, depth);
    default:
        return false;
    }
}

/* `b` is apart from all schemas of a list of alternatives, or from one that must hold. */
static bool lists_apart(bnet_schema *s, json_t *a, json_t *b, int depth)
{
    static const char *const any[] = {"anyOf", "oneOf"};
    const json_t *all = json_object_get(a, "allOf");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (apart(s, json_array_get(all, i), b, depth - 1))
            return true;
    for (size_t k = 0; k < BNET_COUNT(any); k++) {
        const json_t *list = json_object_get(a, any[k]);
        size_t i = 0, n = json_array_size(list);
        while (i < n && apart(s, json_array_get(list, i), b, depth - 1))
            i++;
        if (n && i == n)
            return true;
    }
    return false;
}

/* What it takes to find the classes of a schema, beside the schema itself: each type named once is
 * nothing. */
static size_t n_listed(const json_t *node)
{
    return json_array_size(json_object_get(node, "enum")) +
           json_array_size(json_object_get(node, "type")) / TYPES_UNIT;
}

static bool apart(bnet_schema *s, json_t *a, json_t *b, int depth)
{
    a = follow(s, a);
    b = follow(s, b);
    if (!work(s, 1 + n_listed(a) + n_listed(b)) || depth < 0)
        return false;
    if (!json_is_object(a) || !json_is_object(b))
        return json_is_false(a) || json_is_false(b);
    unsigned common = classes(a) & classes(b);
    bool good = true;
    for (unsigned bit = 1; good && bit <= BNET_TYPE_ARRAY; bit <<= 1)
        good = !(common & bit) || type_apart(s, a, b, bit, depth);
    return good || constants_apart(s, a, b) || lists_apart(s, a, b, depth) ||
           lists_apart(s, b, a, depth);
}

bool bnet_schema_apart(bnet_schema *s, json_t *a, json_t *b)
{
    return apart(s, a, b, MAX_DEPTH);
}
