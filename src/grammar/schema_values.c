/* schema_values.c - lists of values and arrays of a schema. */
#include "grammar/schema.h"

#include <stdio.h>

static int take_text(const char *bytes, size_t n, void *out)
{
    bnet_str_add(out, bytes, n);
    return ((bnet_str *)out)->failed ? -1 : 0;
}

void bnet_schema_json(bnet_schema *s, const json_t *value)
{
    bnet_str text = {0};
    if (!value || json_dump_callback(value, take_text, &text, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        bnet_schema_no_memory(s);
    else
        bnet_program_text(s->p, text.data, text.n);
    bnet_str_free(&text);
}

/* ---- enum and const ---- */

/* Digits and a fraction of zeros alone: 1.0 is an integer, too. With an exponent it is not looked
 * at. */
static bool is_whole(bnet_span digits)
{
    const char *point = memchr(digits.data, '.', digits.n);
    size_t n = point ? (size_t)(point - digits.data) : digits.n, i = n + 1;
    while (i < digits.n && digits.data[i] == '0')
        i++;
    return i >= digits.n && !memchr(digits.data, 'e', n) && !memchr(digits.data, 'E', n);
}

static unsigned type_bits(const bnet_schema *s, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return BNET_TYPE_STRING;
    case JSON_INTEGER:
        return BNET_TYPE_INTEGER | BNET_TYPE_NUMBER;
    case JSON_REAL:
        return BNET_TYPE_NUMBER | (is_whole(bnet_schema_digits_of(s, v)) ? BNET_TYPE_INTEGER : 0u);
    case JSON_TRUE:
    case JSON_FALSE:
        return BNET_TYPE_BOOLEAN;
    case JSON_NULL:
        return BNET_TYPE_NULL;
    case JSON_OBJECT:
        return BNET_TYPE_OBJECT;
    case JSON_ARRAY:
        return BNET_TYPE_ARRAY;
    }
    return 0;
}

/* A value that has no parts. */
static void write_leaf(bnet_schema *s, const json_t *v)
{
    bnet_span digits = json_is_real(v) ? bnet_schema_digits_of(s, v) : (bnet_span){0};
    if (digits.n)
        bnet_program_text(s->p, digits.data, digits.n);
    else
        bnet_schema_json(s, v);
}

/* A value with white space where it may be; as deep as JSON that is read here. */
static void write_json(bnet_schema *s, json_t *v)
{
    bool object = json_is_object(v), first = true;
    const char *name;
    json_t *item;
    size_t i;
    if (json_object_size(v) + json_array_size(v) == 0) {
        write_leaf(s, v);
        return;
    }
    bnet_program_text(s->p, object ? "{" : "[", 1);
    json_object_foreach(v, name, item)
    {
        json_t *text = json_string(name);
        if (first)
            bnet_program_call(s->p, s->json.space, 1, 1);
        else
            bnet_json_comma(s->p, &s->json);
        first = false;
        bnet_schema_json(s, text);
        bnet_json_colon(s->p);
        write_json(s, item);
        json_decref(text);
    }
    json_array_foreach(v, i, item)
    {
        if (i == 0)
            bnet_program_call(s->p, s->json.space, 1, 1);
        else
            bnet_json_comma(s->p, &s->json);
        write_json(s, item);
    }
    bnet_program_call(s->p, s->json.space, 1, 1);
    bnet_program_text(s->p, object ? "}" : "]", 1);
}

static size_t write_value(bnet_schema *s, json_t *v, unsigned types, bnet_choice *c, size_t n)
{
    if (types && !(types & type_bits(s, v)))
        return n;
    if (n)
        bnet_program_or(s->p, c);
    write_json(s, v);
    return n + 1;
}

void bnet_schema_enum(bnet_schema *s, const json_t *node, const char *path)
{
    json_t *one = json_object_get(node, "const");
    const json_t *list = json_object_get(node, "enum");
    unsigned types = json_object_get(node, "type") ? bnet_schema_types(s, node, path) : 0;
    const char *keyword = one ? "const" : "enum";
    size_t n = 0;
    if (!one && !json_is_array(list))
        bnet_schema_refuse(s, path, keyword, "it must be a list of values");
    bnet_choice c = bnet_program_either(s->p);
    if (one)
        n = write_value(s, one, types, &c, n);
    for (size_t i = 0; !one && i < json_array_size(list); i++)
        n = write_value(s, json_array_get(list, i), types, &c, n);
    if (n == 0)
        bnet_schema_refuse(s, path, keyword, "it has no value of the type that is asked for");
    bnet_program_close(s->p, &c);
}

/* ---- arrays ---- */

typedef struct array {
    const json_t *first; /* schemas of the first items, a list; NULL: none are special */
    const char *first_word, *rest_word;
    size_t n_first;
    json_t *rest; /* the schema of those behind them; NULL: there are none */
    uint32_t min, max;
} array;

static array read_array(bnet_schema *s, const json_t *node, const char *path)
{
    array a = {.first = json_object_get(node, "prefixItems"),
               .first_word = "prefixItems",
               .rest_word = "items",
               .rest = json_object_get(node, "items"),
               .min = bnet_schema_count(s, node, path, "minItems", 0),
               .max = bnet_schema_count(s, node, path, "maxItems", BNET_GRAM_MANY)};
    if (!a.first && json_is_array(a.rest)) { /* as schemas of before 2020 have it */
        a.first = a.rest;
        a.first_word = "items";
        a.rest_word = "additionalItems";
        a.rest = json_object_get(node, "additionalItems");
    }
    if (a.first && !json_is_array(a.first))
        bnet_schema_refuse(s, path, "prefixItems", "it must be a list of schemas");
    if (json_object_get(node, "uniqueItems") &&
        !json_is_false(json_object_get(node, "uniqueItems")))
        bnet_schema_refuse(s, path, "uniqueItems", "it is not supported");
    a.n_first = json_array_size(a.first);
    if (a.n_first > a.max)
        a.n_first = a.max;
    if (!a.rest && (!a.first || a.min > a.n_first))
        a.rest = json_true();
    if (json_is_false(a.rest))
        a.rest = NULL;
    return a;
}

/* Whether the bounds can be met; the most items there will be, in a->max. */
static void check_array(bnet_schema *s, array *a, const char *path)
{
    if (!a->rest && a->max > a->n_first)
        a->max = (uint32_t)a->n_first;
    if (a->min > a->max)
        bnet_schema_refuse(s, path, "minItems", "it is %u, but there may be no more than %u items",
                           a->min, a->max);
}

static void write_first_items(bnet_schema *s, const array *a, const char *path, size_t *exits)
{
    for (size_t i = 0; i < a->n_first && bnet_schema_ok(s); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if (i && i >= a->min)
            exits[i] = bnet_program_skip(s->p);
        if (i)
            bnet_json_comma(s->p, &s->json);
        bnet_program_call(
            s->p, bnet_schema_rule(s, json_array_get(a->first, i), path, a->first_word, number), 1,
            1);
    }
}

static void write_rest(bnet_schema *s, const array *a, const char *path)
{
    uint32_t n = (uint32_t)a->n_first;
    uint32_t min = a->min > n ? a->min - n : 0;
    uint32_t max = a->max == BNET_GRAM_MANY ? BNET_GRAM_MANY : a->max - n;
    if (!a->rest || max == 0)
        return;
    uint32_t item = bnet_schema_rule(s, a->rest, path, a->rest_word, NULL);
    if (n == 0) { /* the first has no comma */
        bnet_program_call(s->p, item, 1, 1);
        min -= min > 0;
        max -= max != BNET_GRAM_MANY;
    }
    size_t loop = bnet_program_loop(s->p);
    bnet_json_comma(s->p, &s->json);
    bnet_program_call(s->p, item, 1, 1);
    bnet_program_loop_end(s->p, loop, min, max);
}

void bnet_schema_array(bnet_schema *s, const json_t *node, const char *path)
{
    array a = read_array(s, node, path);
    check_array(s, &a, path);
    size_t *exits = bnet_calloc(a.n_first + 1, sizeof *exits);
    if (!exits) {
        bnet_schema_no_memory(s);
        return;
    }
    bnet_program_text(s->p, "[", 1);
    bnet_program_call(s->p, s->json.space, 1, 1);
    size_t none = 0;
    if (a.max > 0) {
        if (a.min == 0)
            none = bnet_program_skip(s->p);
        write_first_items(s, &a, path, exits);
        if (a.n_first && a.n_first >= a.min)
            exits[0] = bnet_program_skip(s->p);
        write_rest(s, &a, path);
        for (size_t i = 0; i <= a.n_first; i++)
            if (exits[i])
                bnet_program_land(s->p, exits[i]);
        bnet_program_call(s->p, s->json.space, 1, 1);
    }
    if (none)
        bnet_program_land(s->p, none);
    bnet_program_text(s->p, "]", 1);
    bnet_free(exits);
}
