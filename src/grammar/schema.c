/* schema.c - the schemas of a text one after the other: references, alternatives, types. */
#include "grammar/schema.h"

#include <stdio.h>

#include "grammar/grammar.h"

enum { MAX_PATH = 2048, MAX_PATHS = 16 << 20, MAX_NAME_NOTES = 32 };

/* ---- refusing ---- */

void bnet_schema_refuse(bnet_schema *s, const char *path, const char *keyword, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (keyword)
        bnet_program_fail(s->p, BITNET_ARGUMENT, "schema: keyword \"%.80s\" at %.160s: %s", keyword,
                          path, text);
    else
        bnet_program_fail(s->p, BITNET_ARGUMENT, "schema: %.160s: %s", path, text);
}

void bnet_schema_no_memory(bnet_schema *s)
{
    if (bnet_schema_ok(s))
        s->p->status = bnet_no_memory(s->p->err, "schema");
}

json_t *bnet_schema_keep(bnet_schema *s, json_t *node)
{
    if (!node || json_array_append_new(s->made, node) != 0) {
        bnet_schema_no_memory(s);
        return NULL;
    }
    return node;
}

json_t *bnet_schema_copy(bnet_schema *s, json_t *node)
{
    json_t *copy = json_copy(node);
    if (copy && json_object_size(copy) == json_object_size(node) &&
        json_array_size(copy) == json_array_size(node))
        return copy;
    json_decref(copy);
    bnet_schema_no_memory(s);
    return NULL;
}

/* ---- rules of schemas ---- */

/* Appends a step of a path as JSON pointers spell it. */
static void add_step(bnet_str *path, const char *step)
{
    bnet_str_puts(path, "/");
    for (const char *c = step; *c; c++) {
        if (*c == '~' || *c == '/')
            bnet_str_puts(path, *c == '~' ? "~0" : "~1");
        else
            bnet_str_putc(path, *c);
    }
}

static uint32_t add_job(bnet_schema *s, json_t *node, char *path, size_t n)
{
    uint32_t rule = bnet_program_rule(s->p, path, n);
    if (!bnet_schema_ok(s))
        return 0;
    if (!bnet_grow(&s->jobs, &s->cap_jobs, s->n_jobs + 1, sizeof *s->jobs) ||
        !bnet_strmap_put(&s->known, path, n, rule, NULL)) {
        bnet_schema_no_memory(s);
        return 0;
    }
    s->jobs[s->n_jobs++] = (bnet_schema_job){node, path, rule};
    return rule;
}

uint32_t bnet_schema_rule(bnet_schema *s, json_t *node, const char *path, const char *more,
                          const char *last)
{
    bnet_str full = {0};
    uint32_t rule = 0;
    bnet_str_puts(&full, path);
    if (more)
        add_step(&full, more);
    if (last)
        add_step(&full, last);
    if (full.failed)
        bnet_schema_no_memory(s);
    else if (full.n > MAX_PATH || (s->n_path_bytes += full.n) > MAX_PATHS)
        bnet_schema_refuse(s, path, NULL, "schemas lead to one another too far, or are too many");
    else if (!bnet_strmap_get(&s->known, full.data, full.n, &rule)) {
        size_t n_jobs = s->n_jobs;
        rule = bnet_schema_ok(s) ? add_job(s, node, full.data, full.n) : 0;
        if (s->n_jobs > n_jobs)
            return rule; /* the path is the job's now */
    }
    bnet_str_free(&full);
    return rule;
}

/* ---- keywords ---- */

static bool is_annotation(const char *keyword)
{
    static const char *const notes[] = {
        "title",           "description",  "default",     "examples",
        "$schema",         "$id",          "$comment",    "deprecated",
        "readOnly",        "writeOnly",    "$defs",       "definitions",
        "$anchor",         "example",      "$vocabulary", "contentMediaType",
        "contentEncoding", "discriminator"};
    for (size_t i = 0; i < BNET_COUNT(notes); i++)
        if (strcmp(keyword, notes[i]) == 0)
            return true;
    return strncmp(keyword, "x-", 2) == 0;
}

/* A schema that all strings keep to, as names are strings; not seen in one of many keywords, which
 * would be looked at wherever its object is. */
static bool has_all_strings(json_t *node)
{
    const char *keyword, *type = json_string_value(json_object_get(node, "type"));
    json_t *value;
    if (json_object_size(node) > MAX_NAME_NOTES)
        return false;
    json_object_foreach(node, keyword, value)
    {
        if (strcmp(keyword, "type") == 0 ? !type || strcmp(type, "string") != 0
                                         : !is_annotation(keyword))
            return false;
    }
    return json_is_object(node) || json_is_true(node);
}

bool bnet_schema_is_note(const char *keyword, json_t *value)
{
    return is_annotation(keyword) ||
           (strcmp(keyword, "propertyNames") == 0 && has_all_strings(value));
}

typedef struct known_word {
    const char *keyword;
    unsigned type; /* whose values it is about; 0: all */
} known_word;

static const known_word words[] = {
    {"type", 0},
    {"enum", 0},
    {"const", 0},
    {"anyOf", 0},
    {"oneOf", 0},
    {"allOf", 0},
    {"$ref", 0},
    {"properties", BNET_TYPE_OBJECT},
    {"required", BNET_TYPE_OBJECT},
    {"additionalProperties", BNET_TYPE_OBJECT},
    {"items", BNET_TYPE_ARRAY},
    {"prefixItems", BNET_TYPE_ARRAY},
    {"additionalItems", BNET_TYPE_ARRAY},
    {"minItems", BNET_TYPE_ARRAY},
    {"maxItems", BNET_TYPE_ARRAY},
    {"uniqueItems", BNET_TYPE_ARRAY},
    {"minLength", BNET_TYPE_STRING},
    {"maxLength", BNET_TYPE_STRING},
    {"pattern", BNET_TYPE_STRING},
    {"format", 0}, /* by its name */
    {"minimum", BNET_TYPE_NUMBER},
    {"maximum", BNET_TYPE_NUMBER},
    {"exclusiveMinimum", BNET_TYPE_NUMBER},
    {"exclusiveMaximum", BNET_TYPE_NUMBER},
    {"multipleOf", BNET_TYPE_NUMBER},
};

static const known_word *word_of(const char *keyword)
{
    for (size_t i = 0; i < BNET_COUNT(words); i++)
        if (strcmp(keyword, words[i].keyword) == 0)
            return &words[i];
    return NULL;
}

static void check_keywords(bnet_schema *s, json_t *node, const char *path)
{
    const char *keyword;
    json_t *value;
    bnet_schema_check_id(s, node, path);
    json_object_foreach(node, keyword, value)
    {
        if (!bnet_schema_is_note(keyword, value) && !word_of(keyword))
            bnet_schema_refuse(s, path, keyword, "it is not supported");
        if (strcmp(keyword, "multipleOf") == 0 && json_integer_value(value) != 1)
            bnet_schema_refuse(s, path, keyword, "it is not supported but for 1");
    }
}

/* Refuses every keyword that says something, but for `a` and `b`. */
static void check_alone(bnet_schema *s, json_t *node, const char *path, const char *a,
                        const char *b)
{
    const char *keyword;
    json_t *value;
    json_object_foreach(node, keyword, value)
    {
        if (!bnet_schema_is_note(keyword, value) && strcmp(keyword, a) != 0 &&
            strcmp(keyword, b) != 0)
            bnet_schema_refuse(s, path, keyword, "it is not supported beside \"%s\"", a);
    }
}

static bool is_alone(json_t *node, const char *a)
{
    const char *keyword;
    json_t *value;
    json_object_foreach(node, keyword, value)
    {
        if (!bnet_schema_is_note(keyword, value) && strcmp(keyword, a) != 0)
            return false;
    }
    return true;
}

static unsigned type_bit(const char *name)
{
    static const char *const names[] = {"string", "integer", "number", "boolean",
                                        "null",   "object",  "array"};
    for (size_t i = 0; i < BNET_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return 1u << i;
    return 0;
}

static unsigned type_of_value(bnet_schema *s, const json_t *value, const char *path)
{
    unsigned bit = json_is_string(value) ? type_bit(json_string_value(value)) : 0;
    if (!bit)
        bnet_schema_refuse(
            s, path, "type",
            "it must be one of string, integer, number, boolean, null, object, array, "
            "or a list of these");
    return bit;
}

unsigned bnet_schema_types(bnet_schema *s, const json_t *node, const char *path)
{
    const json_t *type = json_object_get(node, "type");
    unsigned bits = 0;
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++)
            bits |= type_of_value(s, json_array_get(type, i), path);
        if (!bits)
            bnet_schema_refuse(s, path, "type", "the list is empty");
        return bits;
    }
    if (type)
        return type_of_value(s, type, path);
    for (size_t i = 0; i < BNET_COUNT(words); i++)
        if (words[i].type && json_object_get(node, words[i].keyword))
            bits |= words[i].type;
    if (json_object_get(node, "format"))
        bits |= bnet_schema_format_type(node);
    return bits;
}

uint32_t bnet_schema_count(bnet_schema *s, const json_t *node, const char *path,
                           const char *keyword, uint32_t absent)
{
    const json_t *v = json_object_get(node, keyword);
    double d = json_number_value(v);
    if (!v)
        return absent;
    if (json_is_number(v) && d >= 0 && d <= BNET_GRAM_COUNT && d == (double)(uint32_t)d)
        return (uint32_t)d;
    bnet_schema_refuse(s, path, keyword, "it must be a whole number from 0 to %u", BNET_GRAM_COUNT);
    return absent;
}

/* ---- references ---- */

static void write_ref(bnet_schema *s, json_t *node, const char *path)
{
    const char *ref = json_string_value(json_object_get(node, "$ref"));
    check_alone(s, node, path, "$ref", "$ref");
    if (!ref)
        bnet_schema_refuse(s, path, "$ref", "it must be a string");
    json_t *target = ref && bnet_schema_ok(s) ? bnet_schema_find(s, path, ref) : NULL;
    if (!target)
        return;
    char place[BNET_SCHEMA_REF + 1];
    bnet_schema_place(ref, place);
    bnet_program_call(s->p, bnet_schema_rule(s, target, place, NULL, NULL), 1, 1);
}

/* ---- alternatives ---- */

/* The schemas of the list, each with what the node asks for beside it, in a new list. */
static json_t *list_ones(bnet_schema *s, json_t *node, const char *path, const char *keyword)
{
    json_t *list = json_object_get(node, keyword), *ones = json_array();
    bool alone = is_alone(node, keyword);
    if (!json_is_array(list) || json_array_size(list) == 0)
        bnet_schema_refuse(s, path, keyword, "it must be a list of schemas, not empty");
    for (size_t i = 0; bnet_schema_ok(s) && i < json_array_size(list); i++) {
        json_t *one =
            alone ? json_array_get(list, i) : bnet_schema_merge(s, node, keyword, i, 1, path);
        if (one && json_array_append(ones, one) != 0)
            bnet_schema_no_memory(s);
    }
    return ones;
}

/* Where no value is in two of the schemas, "one" and "one at least" are the same. */
static void check_apart(bnet_schema *s, json_t *ones, const char *path)
{
    for (size_t j = 1; j < json_array_size(ones); j++)
        for (size_t i = 0; i < j && bnet_schema_ok(s); i++)
            if (!bnet_schema_apart(s, json_array_get(ones, i), json_array_get(ones, j)))
                bnet_schema_refuse(s, path, "oneOf",
                                   "a value may be in both %zu and %zu of its schemas: give them "
                                   "different types, or a required property with different "
                                   "constants, or use \"anyOf\"",
                                   i, j);
}

static void write_any(bnet_schema *s, json_t *node, const char *path, const char *keyword)
{
    bool alone = is_alone(node, keyword);
    json_t *ones = list_ones(s, node, path, keyword);
    if (strcmp(keyword, "oneOf") == 0)
        check_apart(s, ones, path);
    bnet_choice c = bnet_program_either(s->p);
    for (size_t i = 0; bnet_schema_ok(s) && i < json_array_size(ones); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu%s", i,
                 alone ? "" : "*"); /* "*": no place of the text */
        if (i)
            bnet_program_or(s->p, &c);
        bnet_program_call(s->p, bnet_schema_rule(s, json_array_get(ones, i), path, keyword, number),
                          1, 1);
    }
    bnet_program_close(s->p, &c);
    json_decref(ones);
}

static void write_all(bnet_schema *s, json_t *node, const char *path)
{
    json_t *list = json_object_get(node, "allOf");
    json_t *all = NULL;
    if (!json_is_array(list) || json_array_size(list) == 0)
        bnet_schema_refuse(s, path, "allOf", "it must be a list of schemas, not empty");
    if (bnet_schema_ok(s))
        all = bnet_schema_merge(s, node, "allOf", 0, json_array_size(list), path);
    if (all)
        bnet_program_call(s->p, bnet_schema_rule(s, all, path, "allOf", "*"), 1, 1);
}

/* ---- types ---- */

static void write_type(bnet_schema *s, const json_t *node, const char *path, unsigned bit)
{
    if (bit == BNET_TYPE_STRING)
        bnet_schema_string(s, node, path);
    else if (bit == BNET_TYPE_INTEGER || bit == BNET_TYPE_NUMBER)
        bnet_schema_number(s, node, path, bit == BNET_TYPE_INTEGER);
    else if (bit == BNET_TYPE_OBJECT)
        bnet_schema_object(s, node, path);
    else if (bit == BNET_TYPE_ARRAY)
        bnet_schema_array(s, node, path);
    else
        bnet_program_call(s->p, bit == BNET_TYPE_NULL ? s->json.null : s->json.boolean, 1, 1);
}

static void write_types(bnet_schema *s, const json_t *node, const char *path)
{
    unsigned bits = bnet_schema_types(s, node, path);
    bool first = true;
    if (bits & BNET_TYPE_NUMBER)
        bits &= ~(unsigned)BNET_TYPE_INTEGER; /* they are numbers too */
    if (!bits) {
        bnet_program_call(s->p, s->json.value, 1, 1);
        return;
    }
    bnet_choice c = bnet_program_either(s->p);
    for (unsigned bit = 1; bit <= BNET_TYPE_ARRAY; bit <<= 1) {
        if (!(bits & bit))
            continue;
        if (!first)
            bnet_program_or(s->p, &c);
        first = false;
        write_type(s, node, path, bit);
    }
    bnet_program_close(s->p, &c);
}

static void write_schema(bnet_schema *s, json_t *node, const char *path)
{
    const json_t *value = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    check_keywords(s, node, path);
    if (json_object_get(node, "$ref"))
        write_ref(s, node, path);
    else if (json_object_get(node, "allOf"))
        write_all(s, node, path);
    else if (json_object_get(node, "anyOf"))
        write_any(s, node, path, "anyOf");
    else if (json_object_get(node, "oneOf"))
        write_any(s, node, path, "oneOf");
    else if (value || list) {
        check_alone(s, node, path, value ? "const" : "enum", "type");
        bnet_schema_enum(s, node, path);
    } else
        write_types(s, node, path);
}

static void write_job(bnet_schema *s, bnet_schema_job job)
{
    s->at = job.path;
    bnet_program_begin(s->p, job.rule);
    if (json_is_object(job.node))
        write_schema(s, job.node, job.path);
    else if (json_is_true(job.node))
        bnet_program_call(s->p, s->json.value, 1, 1);
    else if (json_is_false(job.node))
        bnet_schema_refuse(s, job.path, NULL, "the schema false has no values");
    else
        bnet_schema_refuse(s, job.path, NULL, "a schema must be an object, true or false");
    bnet_program_end(s->p);
}

static void write_all_jobs(bnet_schema *s)
{
    s->made = json_array();
    if (!s->made || !bnet_strmap_init(&s->known, 64)) {
        bnet_schema_no_memory(s);
        return;
    }
    bnet_json_rules_write(s->p, &s->json);
    s->p->root = bnet_schema_rule(s, s->root, "#", NULL, NULL);
    for (size_t i = 0; bnet_schema_ok(s) && i < s->n_jobs; i++)
        write_job(s, s->jobs[i]);
}

void bnet_schema_read(bnet_span text, bnet_program *p)
{
    bnet_schema s = {.p = p};
    bnet_schema_tree(&s, text);
    if (p->status == BITNET_OK)
        write_all_jobs(&s);
    for (size_t i = 0; i < s.n_jobs; i++)
        bnet_free(s.jobs[i].path);
    bnet_free(s.jobs);
    bnet_free(s.digits);
    if (s.known.slots)
        bnet_strmap_free(&s.known);
    json_decref(s.made);
    json_decref(s.root);
}
