/* schema_ref.c - what "$ref" refers to: places of the schema itself, as JSON pointers in a URI. */
#include "grammar/schema.h"

void bnet_schema_check_id(bnet_schema *s, const json_t *node, const char *path)
{
    const json_t *id = json_object_get(node, "$id");
    char quoted[120];
    if (id && node != s->root)
        bnet_schema_refuse(
            s, path, "$id",
            "\"%s\" is not at the root, so \"$ref\" would mean other places in this part: leave it "
            "out",
            bnet_quote(json_string_value(id), json_string_length(id), quoted, sizeof quoted));
}

/* The byte that "%41" at `at` stands for; 0: it stands for itself. */
static int encoded(const char *at)
{
    int high = at[0] == '%' ? bnet_hex_digit(at[1]) : -1;
    int low = high >= 0 ? bnet_hex_digit(at[2]) : -1;
    return low >= 0 ? high << 4 | low : 0;
}

void bnet_schema_place(const char *ref, char place[BNET_SCHEMA_REF + 1])
{
    while (*ref) {
        int byte = encoded(ref);
        *place++ = byte ? (char)byte : *ref;
        ref += byte ? 3 : 1;
    }
    *place = '\0';
}

/* A step of a JSON pointer without its escapes, in place. */
static void unescape(char *step)
{
    char *to = step;
    while (*step) {
        char c = *step++;
        if (c == '~' && (*step == '0' || *step == '1'))
            c = *step++ == '0' ? '~' : '/';
        *to++ = c;
    }
    *to = '\0';
}

/* The index of a list has one spelling: RFC 6901 lets no zeros stand in front of it. */
static json_t *step_into(json_t *node, const char *step)
{
    if (json_is_object(node))
        return json_object_get(node, step);
    size_t index = 0;
    if (step[0] == '0' && step[1])
        return NULL;
    for (const char *c = step; *c; c++) {
        if (*c < '0' || *c > '9' || index > 1000000)
            return NULL;
        index = index * 10 + (size_t)(*c - '0');
    }
    return *step ? json_array_get(node, index) : NULL;
}

/* From the root; `place` as bnet_schema_place gives it, which is taken apart. */
static json_t *walk(bnet_schema *s, char *place, const char *ref)
{
    json_t *node = s->root;
    char *next = place[1] ? place + 2 : NULL; /* behind "#/" */
    while (node && next) {
        char *step = next, *end = strchr(step, '/');
        next = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        unescape(step);
        node = step_into(node, step);
        if (json_is_string(json_object_get(node, "$id"))) /* a property may have this name, too */
            bnet_schema_check_id(s, node, ref);
    }
    return node;
}

json_t *bnet_schema_look_up(bnet_schema *s, const char *ref)
{
    char quoted[120], place[BNET_SCHEMA_REF + 1];
    size_t n = strlen(ref);
    if (n > BNET_SCHEMA_REF)
        bnet_schema_refuse(s, s->at, "$ref", "\"%s\" is longer than %d bytes",
                           bnet_quote(ref, n, quoted, sizeof quoted), BNET_SCHEMA_REF);
    if (n > BNET_SCHEMA_REF || ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/'))
        return NULL;
    bnet_schema_place(ref, place);
    return walk(s, place, ref);
}

json_t *bnet_schema_find(bnet_schema *s, const char *path, const char *ref)
{
    json_t *node = bnet_schema_look_up(s, ref);
    char quoted[120];
    if (!node)
        bnet_schema_refuse(s, path, "$ref", "\"%s\" names nothing in this schema (\"#/$defs/...\")",
                           bnet_quote(ref, strlen(ref), quoted, sizeof quoted));
    return node;
}
