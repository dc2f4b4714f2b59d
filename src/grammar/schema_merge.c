/* schema_merge.c - schemas that must hold together become one, keyword by keyword; what cannot be
 * one keyword is refused. */
#include "grammar/schema.h"

enum { MAX_REFS = 32, MAX_WORK = 1 << 18, NAME_UNIT = 64 };

/* A schema that is being put together. */
typedef struct merging {
    bnet_schema *s;
    const char *path;
    json_t *all;                   /* our own; what its keywords say belongs to the parts... */
    json_t *properties, *required; /* ...but for these, where they are not NULL */
    bnet_strmap names;             /* those in `required` */
} merging;

/* ---- bounds on the work ---- */

/* Counts values that are copied or compared and references that are followed, of all schemas of a
 * text. False: refused. */
static bool work(merging *m, size_t n)
{
    m->s->n_merged += n;
    if (m->s->n_merged > MAX_WORK)
        bnet_schema_refuse(m->s, m->path, NULL,
                           "there are too many parts, or too large ones, to be put together");
    return bnet_schema_ok(m->s);
}

/* What it takes to copy an object: its members, and more for long names. */
static size_t members(json_t *object)
{
    const char *name;
    json_t *value;
    size_t n = 8;
    json_object_foreach(object, name, value)
    {
        n += 1 + strlen(name) / NAME_UNIT;
    }
    return n;
}

/* What it takes to compare a value with another; as deep as JSON that is read here. */
static size_t weight(json_t *v)
{
    size_t n = 1 + json_string_length(v) / NAME_UNIT, i;
    const char *name;
    json_t *value;
    json_object_foreach(v, name, value)
    {
        n += weight(value) + strlen(name) / NAME_UNIT;
    }
    json_array_foreach(v, i, value)
    {
        n += weight(value);
    }
    return n;
}

/* Of equal values: their reals are written alike, too. */
static bool same_digits(const bnet_schema *s, json_t *a, json_t *b)
{
    const char *name;
    json_t *value;
    size_t i;
    bool good = true;
    if (json_is_real(a)) {
        bnet_span x = bnet_schema_digits_of(s, a), y = bnet_schema_digits_of(s, b);
        good = x.n == y.n && memcmp(x.data, y.data, x.n) == 0;
    }
    json_object_foreach(a, name, value)
    {
        good = good && same_digits(s, value, json_object_get(b, name));
    }
    json_array_foreach(a, i, value)
    {
        good = good && same_digits(s, value, json_array_get(b, i));
    }
    return good;
}

static bool same(merging *m, json_t *a, json_t *b)
{
    return a == b || (work(m, weight(b)) && json_equal(a, b) && same_digits(m->s, a, b));
}

static void check_beside_ref(merging *m, json_t *node)
{
    const char *keyword;
    json_t *value;
    bnet_schema_check_id(m->s, node, m->path);
    json_object_foreach(node, keyword, value)
    {
        if (strcmp(keyword, "$ref") != 0 && !bnet_schema_is_note(keyword, value))
            bnet_schema_refuse(m->s, m->path, keyword, "it is not supported beside \"$ref\"");
    }
}

/* What a schema of nothing but a reference refers to. One reference that is short is a part of the
 * work that the schema itself is. */
static json_t *follow(merging *m, json_t *node)
{
    json_t *ref;
    for (int i = 0; json_is_object(node) && (ref = json_object_get(node, "$ref")); i++) {
        check_beside_ref(m, node);
        if (!json_is_string(ref) || i == MAX_REFS)
            bnet_schema_refuse(m->s, m->path, "$ref",
                               i == MAX_REFS ? "it leads back to itself" : "it must be a string");
        node = work(m, (i > 0) + json_string_length(ref) / NAME_UNIT)
                   ? bnet_schema_find(m->s, m->path, json_string_value(ref))
                   : NULL;
    }
    bnet_schema_check_id(m->s, node, m->path);
    if (node && !json_is_object(node) && !json_is_true(node)) {
        bnet_schema_refuse(m->s, m->path, "allOf", "a part of it is no schema that has values");
        return NULL;
    }
    return node;
}

static void put(bnet_schema *s, json_t *into, const char *keyword, json_t *value)
{
    if (!value || json_object_set_new(into, keyword, value) != 0)
        bnet_schema_no_memory(s);
}

/* ---- names that must be there ---- */

static void add_name(merging *m, json_t *name)
{
    bool existed = false;
    const char *text = json_string_value(name);
    if (!text)
        bnet_schema_refuse(m->s, m->path, "required", "it must be a list of names");
    else if (!bnet_strmap_put(&m->names, text, json_string_length(name), 0, &existed) ||
             (!existed && json_array_append(m->required, name) != 0))
        bnet_schema_no_memory(m->s);
}

static void add_names(merging *m, json_t *list)
{
    if (json_array_size(list) > BNET_SCHEMA_REQUIRED)
        bnet_schema_refuse(m->s, m->path, "required", "it has more than %d names",
                           BNET_SCHEMA_REQUIRED);
    if (!bnet_schema_ok(m->s) || !work(m, weight(list)))
        return;
    for (size_t i = 0; i < json_array_size(list) && bnet_schema_ok(m->s); i++)
        add_name(m, json_array_get(list, i));
}

static void merge_required(merging *m, json_t *before, json_t *more)
{
    if (!m->required) {
        json_t *list = json_array();
        if (!bnet_strmap_init(&m->names, 64))
            bnet_schema_no_memory(m->s);
        m->required = list;
        json_incref(before); /* its place in `all` is taken */
        put(m->s, m->all, "required", list);
        if (bnet_schema_ok(m->s))
            add_names(m, before);
        json_decref(before);
    }
    if (bnet_schema_ok(m->s))
        add_names(m, more);
}

/* ---- properties ---- */

/* Both are asked of the same property: a schema that asks for both. One that asks for several
 * already gets one more, so that schemas do not grow deep. */
static json_t *both(merging *m, json_t *a, json_t *b)
{
    json_t *list = json_object_get(a, "allOf");
    bool several = json_object_size(a) == 1 && json_array_size(list) > 0;
    if (same(m, a, b))
        return json_incref(a);
    if (!work(m, several ? json_array_size(list) : 1))
        return NULL;
    list = several ? bnet_schema_copy(m->s, list) : json_pack("[O]", a);
    json_t *made =
        list && json_array_append(list, b) == 0 ? json_pack("{s:O}", "allOf", list) : NULL;
    json_decref(list);
    return made;
}

static void merge_properties(merging *m, json_t *before, json_t *more)
{
    const char *name;
    json_t *value;
    if (!m->properties && work(m, members(before))) {
        m->properties = bnet_schema_copy(m->s, before);
        put(m->s, m->all, "properties", m->properties);
    }
    if (!bnet_schema_ok(m->s) || !work(m, members(more)))
        return;
    json_object_foreach(more, name, value)
    {
        json_t *old = json_object_get(m->properties, name);
        if (bnet_schema_ok(m->s))
            put(m->s, m->properties, name, old ? both(m, old, value) : json_incref(value));
    }
}

/* ---- other keywords ---- */

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

static int compare(const json_t *a, const json_t *b)
{
    json_int_t i = json_integer_value(a), j = json_integer_value(b);
    double x = json_number_value(a), y = json_number_value(b);
    if (json_is_integer(a) && json_is_integer(b))
        return (i > j) - (i < j);
    return (x > y) - (x < y);
}

/* The larger of two lower bounds, the smaller of two upper ones. Of an integer and a real that look
 * equal the real: it is refused later where it may not be what was written. */
static bool merge_bound(bnet_schema *s, json_t *all, const char *keyword, json_t *a, json_t *b)
{
    bool lower = strncmp(keyword, "min", 3) == 0 || strcmp(keyword, "exclusiveMinimum") == 0;
    bool upper = strncmp(keyword, "max", 3) == 0 || strcmp(keyword, "exclusiveMaximum") == 0;
    if ((!lower && !upper) || !json_is_number(a) || !json_is_number(b))
        return false;
    int more = compare(b, a);
    if (more ? (more > 0) == lower : json_is_real(b))
        put(s, all, keyword, json_incref(b));
    return true;
}

static void merge_keyword(merging *m, json_t *b, const char *keyword)
{
    bnet_schema *s = m->s;
    json_t *x = json_object_get(m->all, keyword), *y = json_object_get(b, keyword);
    if (!x)
        put(s, m->all, keyword, json_incref(y));
    else if (strcmp(keyword, "required") == 0 && json_is_array(x) && json_is_array(y))
        merge_required(m, x, y);
    else if (strcmp(keyword, "properties") == 0 && json_is_object(x) && json_is_object(y))
        merge_properties(m, x, y);
    else if (same(m, x, y))
        return;
    else if (strcmp(keyword, "type") == 0 && work(m, weight(x)))
        merge_type(s, m->all, b, m->path);
    else if (!merge_bound(s, m->all, keyword, x, y))
        bnet_schema_refuse(s, m->path, keyword,
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

static void merge_part(merging *m, json_t *part)
{
    json_t *b = follow(m, part), *value;
    const char *keyword;
    if (!b || !work(m, json_is_true(b) ? 1 : members(b)) || json_is_true(b))
        return;
    check_closed(m->s, m->all, b, m->path);
    check_closed(m->s, b, m->all, m->path);
    check_items(m->s, m->all, b, m->path);
    check_items(m->s, b, m->all, m->path);
    json_object_foreach(b, keyword, value)
    {
        if (!bnet_schema_is_note(keyword, value) && bnet_schema_ok(m->s))
            merge_keyword(m, b, keyword);
    }
}

json_t *bnet_schema_merge(bnet_schema *s, json_t *node, const char *keyword, size_t first, size_t n,
                          const char *path)
{
    json_t *list = json_object_get(node, keyword);
    merging m = {.s = s, .path = path};
    if (work(&m, members(node)))
        m.all = bnet_schema_keep(s, bnet_schema_copy(s, node));
    if (m.all) {
        json_object_del(m.all, keyword);
        json_object_del(m.all, "$id"); /* the node's own place, which was checked */
    }
    for (size_t i = 0; i < n && bnet_schema_ok(s); i++)
        merge_part(&m, json_array_get(list, first + i));
    bnet_strmap_free(&m.names);
    return bnet_schema_ok(s) ? m.all : NULL;
}
