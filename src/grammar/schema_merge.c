/* schema_merge.c - two schemas that must hold together become one, keyword by keyword; what cannot
 * be one keyword is refused. */
#include "grammar/schema.h"

enum { MAX_REFS = 32, MAX_MADE = 4096 };

/* What a schema of nothing but a reference refers to. */
static json_t *follow(bnet_schema *s, json_t *node, const char *path)
{
    for (int i = 0; node && json_is_object(node) && json_object_get(node, "$ref"); i++) {
        const char *ref = json_string_value(json_object_get(node, "$ref")), *keyword;
        json_t *value;
        json_object_foreach(node, keyword, value)
        {
            if (strcmp(keyword, "$ref") != 0 && !bnet_schema_is_note(keyword))
                bnet_schema_refuse(s, path, keyword, "it is not supported beside \"$ref\"");
        }
        if (!ref || i == MAX_REFS)
            bnet_schema_refuse(s, path, "$ref",
                               ref ? "it leads back to itself" : "it must be a string");
        node = bnet_schema_ok(s) ? bnet_schema_find(s, path, ref) : NULL;
    }
    if (node && !json_is_object(node) && !json_is_true(node)) {
        bnet_schema_refuse(s, path, "allOf", "a part of it is no schema that has values");
        return NULL;
    }
    return node;
}

static void put(bnet_schema *s, json_t *into, const char *keyword, json_t *value)
{
    if (!value || json_object_set_new(into, keyword, value) != 0)
        bnet_schema_no_memory(s);
}

/* ---- keywords that both have ---- */

static json_t *type_names(bnet_schema *s, unsigned bits)
{
    static const char *const names[] = {"string", "integer", "number", "boolean",
                                        "null",   "object",  "array"};
    json_t *list = json_array();
    for (size_t i = 0; i < BNET_COUNT(names); i++)
        if (bits >> i & 1 && json_array_append_new(list, json_string(names[i])) != 0)
            bnet_schema_no_memory(s);
    return list;
}

static void merge_type(bnet_schema *s, json_t *all, json_t *b, const char *path)
{
    unsigned x = bnet_schema_types(s, all, path), y = bnet_schema_types(s, b, path);
    if (x & BNET_TYPE_NUMBER)
        x |= BNET_TYPE_INTEGER;
    if (y & BNET_TYPE_NUMBER)
        y |= BNET_TYPE_INTEGER;
    if (!(x & y))
        bnet_schema_refuse(s, path, "type", "no value has all the types that are asked for");
    put(s, all, "type", type_names(s, x & y));
}

static bool listed(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value))
            return true;
    return false;
}

static void merge_required(bnet_schema *s, json_t *all, const json_t *b)
{
    json_t *list = bnet_schema_copy(s, json_object_get(all, "required"));
    const json_t *more = json_object_get(b, "required");
    for (size_t i = 0; i < json_array_size(more); i++)
        if (!listed(list, json_array_get(more, i)) &&
            json_array_append(list, json_array_get(more, i)) != 0)
            bnet_schema_no_memory(s);
    put(s, all, "required", list);
}

/* Both are asked of the same property: a schema that asks for both. */
static json_t *both(bnet_schema *s, json_t *a, json_t *b)
{
    if (json_equal(a, b))
        return json_incref(a);
    json_t *made = json_pack("{s:[O,O]}", "allOf", a, b);
    if (!made)
        bnet_schema_no_memory(s);
    return made;
}

static void merge_properties(bnet_schema *s, json_t *all, const json_t *b)
{
    json_t *list = bnet_schema_copy(s, json_object_get(all, "properties")), *value;
    const char *name;
    json_object_foreach(json_object_get(b, "properties"), name, value)
    {
        json_t *before = json_object_get(list, name);
        put(s, list, name, before ? both(s, before, value) : json_incref(value));
    }
    put(s, all, "properties", list);
}

/* The larger of two lower bounds, the smaller of two upper ones. */
static bool merge_bound(bnet_schema *s, json_t *all, const char *keyword, json_t *a, json_t *b)
{
    bool lower = strncmp(keyword, "min", 3) == 0 || strcmp(keyword, "exclusiveMinimum") == 0;
    bool upper = strncmp(keyword, "max", 3) == 0 || strcmp(keyword, "exclusiveMaximum") == 0;
    if ((!lower && !upper) || !json_is_number(a) || !json_is_number(b))
        return false;
    bool take = lower ? json_number_value(b) > json_number_value(a)
                      : json_number_value(b) < json_number_value(a);
    if (take)
        put(s, all, keyword, json_incref(b));
    return true;
}

static void merge_keyword(bnet_schema *s, json_t *all, json_t *b, const char *keyword,
                          const char *path)
{
    json_t *x = json_object_get(all, keyword), *y = json_object_get(b, keyword);
    if (!x)
        put(s, all, keyword, json_incref(y));
    else if (strcmp(keyword, "type") == 0)
        merge_type(s, all, b, path);
    else if (strcmp(keyword, "required") == 0 && json_is_array(x) && json_is_array(y))
        merge_required(s, all, b);
    else if (strcmp(keyword, "properties") == 0 && json_is_object(x) && json_is_object(y))
        merge_properties(s, all, b);
    else if (!json_equal(x, y) && !merge_bound(s, all, keyword, x, y))
        bnet_schema_refuse(s, path, keyword,
                           "two of them must hold together, which is not supported");
}

/* A side that names all properties there may be must know those of the other. */
static void check_closed(bnet_schema *s, const json_t *closed, const json_t *other,
                         const char *path)
{
    const json_t *rule = json_object_get(closed, "additionalProperties");
    const json_t *mine = json_object_get(closed, "properties");
    const char *name;
    json_t *value;
    if (!rule || json_is_true(rule))
        return;
    json_object_foreach(json_object_get(other, "properties"), name, value)
    {
        if (!json_object_get(mine, name))
            bnet_schema_refuse(s, path, "additionalProperties",
                               "another part of the schema has the property \"%.80s\", which this "
                               "part does not name",
                               name);
    }
}

/* The keyword with schemas of the first items; "": there is none. */
static const char *first_items(const json_t *node)
{
    if (json_object_get(node, "prefixItems"))
        return "prefixItems";
    return json_is_array(json_object_get(node, "items")) ? "items" : "";
}

/* A side that says what items are, all of them, is not heard by the first ones where the other side
 * has schemas of their own for these: they would have to be put together one by one. */
static void check_items(bnet_schema *s, const json_t *side, const json_t *other, const char *path)
{
    const char *keyword = json_object_get(side, "items") ? "items" : "additionalItems";
    const char *first = first_items(other);
    if (json_object_get(side, keyword) && *first && strcmp(first, first_items(side)) != 0)
        bnet_schema_refuse(s, path, keyword,
                           "another part of the schema has schemas of the first items, which this "
                           "part does not name");
}

json_t *bnet_schema_merge(bnet_schema *s, json_t *a, json_t *b, const char *path)
{
    const char *keyword;
    json_t *value;
    if (json_array_size(s->made) >= MAX_MADE)
        bnet_schema_refuse(s, path, "allOf", "too many schemas must hold together");
    a = follow(s, a, path);
    b = follow(s, b, path);
    if (!a || !b || !bnet_schema_ok(s))
        return NULL;
    if (json_is_true(a) || json_is_true(b))
        return json_is_true(a) ? b : a;
    check_closed(s, a, b, path);
    check_closed(s, b, a, path);
    check_items(s, a, b, path);
    check_items(s, b, a, path);
    json_t *all = bnet_schema_ok(s) ? bnet_schema_keep(s, bnet_schema_copy(s, a)) : NULL;
    if (!all)
        return NULL;
    json_object_foreach(b, keyword, value)
    {
        if (!bnet_schema_is_note(keyword) && bnet_schema_ok(s))
            merge_keyword(s, all, b, keyword, path);
    }
    return bnet_schema_ok(s) ? all : NULL;
}
