/* schema_object.c - objects: properties in the order of the schema, those that must be there and
 * those that may, and others behind them, whose names are none of these. */
#include "grammar/schema.h"

#include <stdlib.h>

typedef struct property {
    const char *name;
    json_t *node; /* NULL: of any kind */
    bool required;
    uint32_t pair; /* the rule of name and value */
} property;

typedef struct object {
    property *list;
    size_t n;
    size_t *leaps;        /* [n] behind the property, where it came first */
    json_t *others;       /* the schema of other properties; NULL: there are none */
    uint32_t other;       /* the rule of such a pair */
    bool empty;           /* no property must be there */
    bnet_strmap required; /* names that must be there, and their places in the keyword's list */
} object;

/* ---- what the keywords say ---- */

static void read_required(bnet_schema *s, object *o, const json_t *list, const char *path)
{
    if (json_array_size(list) > BNET_SCHEMA_REQUIRED)
        bnet_schema_refuse(s, path, "required", "it has more than %d names", BNET_SCHEMA_REQUIRED);
    else if (!bnet_strmap_init(&o->required, json_array_size(list) + 1))
        bnet_schema_no_memory(s);
    for (size_t i = 0; i < json_array_size(list) && bnet_schema_ok(s); i++) {
        const json_t *name = json_array_get(list, i);
        if (!bnet_strmap_put(&o->required, json_string_value(name), json_string_length(name),
                             (uint32_t)i, NULL))
            bnet_schema_no_memory(s);
    }
}

/* Its first place in the list, where a name must be there. */
static bool is_required(const object *o, const char *name, uint32_t *place)
{
    return bnet_strmap_get(&o->required, name, strlen(name), place);
}

static void check_shapes(bnet_schema *s, const json_t *node, const char *path)
{
    const json_t *properties = json_object_get(node, "properties");
    const json_t *required = json_object_get(node, "required");
    if (properties && !json_is_object(properties))
        bnet_schema_refuse(s, path, "properties", "it must be an object");
    if (required && !json_is_array(required))
        bnet_schema_refuse(s, path, "required", "it must be a list of names");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_is_string(json_array_get(required, i)))
            bnet_schema_refuse(s, path, "required", "it must be a list of names");
}

/* Without the keyword, an object that names its properties has no others. */
static json_t *others_of(const json_t *node)
{
    json_t *others = json_object_get(node, "additionalProperties");
    if (!others && !json_object_get(node, "properties"))
        return json_true();
    return json_is_false(others) ? NULL : others;
}

/* Names that are required and have no schema: values of any kind, if there may be others. */
static void add_unnamed(bnet_schema *s, object *o, const json_t *node, const char *path)
{
    const json_t *required = json_object_get(node, "required");
    const json_t *properties = json_object_get(node, "properties");
    const json_t *rule = json_object_get(node, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        uint32_t place = 0;
        if (json_object_get(properties, name) || !is_required(o, name, &place) || place != i)
            continue; /* has a schema, or came before */
        if (json_is_false(rule))
            bnet_schema_refuse(s, path, "required",
                               "\"%.80s\" is not among the properties, and there may be no others",
                               name);
        o->list[o->n++] = (property){name, json_is_object(rule) ? (json_t *)rule : NULL, true, 0};
    }
}

static bool collect(bnet_schema *s, object *o, const json_t *node, const char *path)
{
    json_t *properties = json_object_get(node, "properties"), *value;
    const json_t *required = json_object_get(node, "required");
    size_t most = json_object_size(properties) + json_array_size(required) + 1;
    const char *name;
    o->list = bnet_calloc(most, sizeof *o->list);
    o->leaps = bnet_calloc(most, sizeof *o->leaps);
    if (!o->list || !o->leaps) {
        bnet_schema_no_memory(s);
        return false;
    }
    read_required(s, o, required, path);
    if (!bnet_schema_ok(s))
        return false;
    json_object_foreach(properties, name, value)
    {
        uint32_t place;
        o->list[o->n++] = (property){name, value, is_required(o, name, &place), 0};
    }
    add_unnamed(s, o, node, path);
    o->empty = true;
    for (size_t i = 0; i < o->n; i++)
        o->empty = o->empty && !o->list[i].required;
    o->others = others_of(node);
    return bnet_schema_ok(s);
}

/* ---- names of other properties ---- */

/* Names [lo, hi) of a sorted list have their first `at` bytes in common, and the rule is for what
 * may follow these. */
typedef struct branch {
    size_t lo, hi, at;
    uint32_t rule;
} branch;

typedef struct name_list {
    const char **names;
    size_t n;
    branch *todo;
    size_t n_todo, cap_todo;
} name_list;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static uint32_t char_at(const char *name, size_t at, int *n)
{
    *n = bnet_utf8_len(name + at, strlen(name + at));
    return bnet_utf8_decode(name + at, *n);
}

static bool is_bare(uint32_t c)
{
    return c >= ' ' && c != '"' && c != '\\';
}

static uint32_t add_branch(bnet_schema *s, name_list *l, branch b)
{
    b.rule = bnet_rule_named(s->p, "name of another property");
    if (!bnet_grow(&l->todo, &l->cap_todo, l->n_todo + 1, sizeof *l->todo))
        bnet_schema_no_memory(s);
    else
        l->todo[l->n_todo++] = b;
    return b.rule;
}

/* Characters that lead further into names of the list, each with what follows; `known` gets them.
 */
static void write_known(bnet_schema *s, name_list *l, branch b, bnet_choice *c, bnet_charset *known)
{
    for (size_t i = b.lo; i < b.hi && bnet_schema_ok(s);) {
        int n;
        uint32_t next = char_at(l->names[i], b.at, &n);
        size_t end = i + 1;
        while (end < b.hi && strncmp(l->names[end] + b.at, l->names[i] + b.at, (size_t)n) == 0)
            end++;
        if (is_bare(next)) {
            bnet_charset_add(known, next, next);
            bnet_program_or(s->p, c);
            bnet_program_text(s->p, l->names[i] + b.at, (size_t)n);
            bnet_program_call(s->p, add_branch(s, l, (branch){i, end, b.at + (size_t)n, 0}), 1, 1);
        }
        i = end;
    }
}

/* What may follow the beginning of a name so that it becomes none of the list, the quote included.
 */
static void write_branch(bnet_schema *s, name_list *l, branch b)
{
    bool is_name = b.lo < b.hi && !l->names[b.lo][b.at]; /* the shortest comes first */
    bnet_charset set = {0};                              /* what leads to no other name... */
    bnet_charset_add(&set, 0, ' ' - 1);
    bnet_charset_add(&set, '"', '"');
    bnet_charset_add(&set, '\\', '\\');
    bnet_program_begin(s->p, b.rule);
    bnet_choice c = bnet_program_either(s->p);
    size_t first = bnet_program_leap(s->p); /* to a character of none of them */
    b.lo += is_name;
    write_known(s, l, b, &c, &set);
    if (!is_name) {
        bnet_program_or(s->p, &c);
        bnet_program_text(s->p, "\"", 1);
    }
    bnet_program_close(s->p, &c);
    bnet_program_end(s->p);
    bnet_program_land(s->p, first);
    bnet_charset_invert(&set); /* ...and what does */
    bnet_charset_write(&set, s->p);
    bnet_program_call(s->p, s->json.bare, 0, BNET_GRAM_MANY);
    bnet_program_text(s->p, "\"", 1);
    bnet_program_end(s->p);
    bnet_charset_free(&set);
}

/* Pairs whose name is none of the object's; such names are written without escapes. */
static void write_others(bnet_schema *s, const object *o, const char *path)
{
    name_list l = {.names = bnet_calloc(o->n + 1, sizeof *l.names)};
    for (size_t i = 0; l.names && i < o->n; i++)
        l.names[l.n++] = o->list[i].name;
    if (!l.names) {
        bnet_schema_no_memory(s);
        return;
    }
    qsort(l.names, l.n, sizeof *l.names, by_name);
    uint32_t name = add_branch(s, &l, (branch){0, l.n, 0, 0});
    for (size_t i = 0; i < l.n_todo && bnet_schema_ok(s); i++)
        write_branch(s, &l, l.todo[i]);
    bnet_program_begin(s->p, o->other);
    bnet_program_text(s->p, "\"", 1);
    bnet_program_call(s->p, name, 1, 1);
    bnet_json_colon(s->p);
    bnet_program_call(s->p, bnet_schema_rule(s, o->others, path, "additionalProperties", NULL), 1,
                      1);
    bnet_program_end(s->p);
    bnet_free(l.names);
    bnet_free(l.todo);
}

/* ---- the object ---- */

static void write_pair(bnet_schema *s, const property *p, const char *path)
{
    json_t *name = json_string(p->name);
    bnet_program_begin(s->p, p->pair);
    bnet_schema_json(s, name);
    bnet_json_colon(s->p);
    uint32_t value =
        p->node ? bnet_schema_rule(s, p->node, path, "properties", p->name) : s->json.value;
    bnet_program_call(s->p, value, 1, 1);
    bnet_program_end(s->p);
    json_decref(name);
}

/* The property that comes first: any up to the first that must be there. Each way leaps. */
static void write_first(bnet_schema *s, object *o, size_t *other, size_t *none)
{
    bnet_choice c = bnet_program_either(s->p);
    for (size_t i = 0; i < o->n; i++) {
        bnet_program_call(s->p, o->list[i].pair, 1, 1);
        o->leaps[i] = bnet_program_leap(s->p);
        if (o->list[i].required)
            break;
        bnet_program_or(s->p, &c);
    }
    if (o->empty && o->others) {
        bnet_program_call(s->p, o->other, 1, 1);
        *other = bnet_program_leap(s->p);
        bnet_program_or(s->p, &c);
    }
    if (o->empty)
        *none = bnet_program_leap(s->p);
    bnet_program_close(s->p, &c);
}

/* Properties behind the first, from whichever that was. */
static void write_further(bnet_schema *s, object *o, size_t other)
{
    for (size_t i = 1; i < o->n; i++) {
        if (o->leaps[i - 1])
            bnet_program_land(s->p, o->leaps[i - 1]);
        size_t skip = o->list[i].required ? 0 : bnet_program_skip(s->p);
        bnet_json_comma(s->p, &s->json);
        bnet_program_call(s->p, o->list[i].pair, 1, 1);
        if (skip)
            bnet_program_land(s->p, skip);
    }
    if (o->n && o->leaps[o->n - 1])
        bnet_program_land(s->p, o->leaps[o->n - 1]);
    if (other)
        bnet_program_land(s->p, other);
    if (!o->others)
        return;
    size_t loop = bnet_program_loop(s->p);
    bnet_json_comma(s->p, &s->json);
    bnet_program_call(s->p, o->other, 1, 1);
    bnet_program_loop_end(s->p, loop, 0, BNET_GRAM_MANY);
}

static void write_object(bnet_schema *s, object *o, uint32_t rule)
{
    size_t other = 0, none = 0;
    bnet_program_begin(s->p, rule);
    bnet_program_text(s->p, "{", 1);
    bnet_program_call(s->p, s->json.space, 1, 1);
    write_first(s, o, &other, &none);
    write_further(s, o, other);
    bnet_program_call(s->p, s->json.space, 1, 1);
    if (none)
        bnet_program_land(s->p, none);
    bnet_program_text(s->p, "}", 1);
    bnet_program_end(s->p);
}

void bnet_schema_object(bnet_schema *s, const json_t *node, const char *path)
{
    object o = {0};
    check_shapes(s, node, path);
    /* rules of their own, written around the one that is being written */
    size_t over = bnet_program_leap(s->p);
    uint32_t current = s->p->current, rule = bnet_rule_named(s->p, "object");
    if (bnet_schema_ok(s) && collect(s, &o, node, path)) {
        for (size_t i = 0; i < o.n && bnet_schema_ok(s); i++) {
            o.list[i].pair = bnet_rule_named(s->p, "property");
            write_pair(s, &o.list[i], path);
        }
        if (o.others) {
            o.other = bnet_rule_named(s->p, "property");
            write_others(s, &o, path);
        }
        write_object(s, &o, rule);
    }
    bnet_program_land(s->p, over);
    s->p->current = current;
    bnet_program_call(s->p, rule, 1, 1);
    bnet_free(o.list);
    bnet_free(o.leaps);
    bnet_strmap_free(&o.required);
}
