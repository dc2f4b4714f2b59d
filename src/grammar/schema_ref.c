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

bnet_str bnet_schema_place(bnet_schema *s, const char *ref)
{
    bnet_str place = {0};
    bnet_str_puts(&place, "");
    while (*ref) {
        int byte = encoded(ref);
        bnet_str_putc(&place, byte ? (char)byte : *ref);
        ref += byte ? 3 : 1;
    }
    if (place.failed)
        bnet_schema_no_memory(s);
    return place;
}

/* The step of a JSON pointer that begins at `at`, decoded, in *step. Returns its end. */
static const char *read_step(const char *at, bnet_str *step)
{
    step->n = 0;
    bnet_str_puts(step, "");
    while (*at && *at != '/') {
        char c = *at++;
        if (c == '~' && (*at == '0' || *at == '1'))
            c = *at++ == '0' ? '~' : '/';
        bnet_str_putc(step, c);
    }
    return at;
}

static json_t *step_into(json_t *node, const char *step)
{
    if (json_is_object(node))
        return json_object_get(node, step);
    size_t index = 0;
    for (const char *c = step; *c; c++) {
        if (*c < '0' || *c > '9' || index > 1000000)
            return NULL;
        index = index * 10 + (size_t)(*c - '0');
    }
    return *step ? json_array_get(node, index) : NULL;
}

/* From the root; `place` as bnet_schema_place gives it. */
static json_t *walk(bnet_schema *s, const char *place)
{
    json_t *node = s->root;
    bnet_str step = {0};
    for (const char *at = place + 1; node && *at == '/';) {
        at = read_step(at + 1, &step);
        node = step.failed ? NULL : step_into(node, step.data);
        if (json_is_string(json_object_get(node, "$id"))) /* a property may have this name, too */
            bnet_schema_check_id(s, node, place);
    }
    if (step.failed)
        bnet_schema_no_memory(s);
    bnet_str_free(&step);
    return node;
}

json_t *bnet_schema_look_up(bnet_schema *s, const char *ref)
{
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/'))
        return NULL;
    bnet_str place = bnet_schema_place(s, ref);
    json_t *node = bnet_schema_ok(s) ? walk(s, place.data) : NULL;
    bnet_str_free(&place);
    return node;
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
