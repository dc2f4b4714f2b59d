/* schema_tree.c - the tree of a schema's text, put together from the events of our own reader: a
 * parser that loses a character where memory is short would let through what a schema forbids. */
#include "grammar/schema.h"

#include <stdlib.h>

#include "base/json_reader.h"

typedef struct builder {
    bnet_schema *s;
    bnet_program *p;
    bnet_json_reader r;
    json_t *open[BNET_JSON_DEPTH + 1]; /* lists and objects that are not complete */
    int depth;
    bnet_str key, text;
} builder;

static void no_memory(builder *b)
{
    if (b->p->status == BITNET_OK)
        b->p->status = bnet_no_memory(b->p->err, "schema");
}

static void refuse(builder *b, const char *what)
{
    char quoted[80];
    bnet_program_fail(b->p, BITNET_ARGUMENT, "schema: it is no JSON: %s: \"%s\"", what,
                      bnet_quote(b->r.raw.data, b->r.raw.n, quoted, sizeof quoted));
}

/* The characters of a key or string. */
static void read_text(builder *b, bnet_str *into)
{
    into->n = 0;
    bnet_str_puts(into, "");
    bnet_json_text(&b->r, into);
    if (into->failed)
        no_memory(b);
    else if (memchr(into->data, '\0', into->n))
        refuse(b, "a character U+0000 has no place in a schema");
}

/* ---- numbers ---- */

/* Keeps how it is written; returns it, or NULL without memory. */
static json_t *keep_digits(bnet_schema *s, json_t *number, bnet_span text)
{
    if (number && bnet_grow(&s->digits, &s->cap_digits, s->n_digits + 1, sizeof *s->digits)) {
        s->digits[s->n_digits++] = (bnet_schema_digits){number, text};
        return number;
    }
    json_decref(number);
    return NULL;
}

static json_t *number(builder *b)
{
    int64_t value;
    if (b->r.event == BNET_JSON_INTEGER && bnet_json_int64(&b->r, &value))
        return json_integer(value);
    char *copy = bnet_memdup(b->r.raw.data, b->r.raw.n);
    double real = copy ? strtod(copy, NULL) : 0;
    bool finite = real - real == 0;
    bnet_free(copy);
    if (copy && !finite)
        refuse(b, "a number is too large");
    return copy && finite ? keep_digits(b->s, json_real(real), b->r.raw) : NULL;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const bnet_schema_digits *)a)->number;
    uintptr_t y = (uintptr_t)((const bnet_schema_digits *)b)->number;
    return (x > y) - (x < y);
}

bnet_span bnet_schema_digits_of(const bnet_schema *s, const json_t *real)
{
    bnet_schema_digits key = {.number = real}, *found = NULL;
    if (s->n_digits)
        found = bsearch(&key, s->digits, s->n_digits, sizeof key, by_address);
    return found ? found->text : (bnet_span){0};
}

/* ---- the tree ---- */

/* The value that an event is or begins; NULL: the builder has failed. */
static json_t *value(builder *b)
{
    json_t *v = NULL;
    switch (b->r.event) {
    case BNET_JSON_OBJECT:
        v = json_object();
        break;
    case BNET_JSON_ARRAY:
        v = json_array();
        break;
    case BNET_JSON_STRING:
        read_text(b, &b->text);
        v = b->text.failed ? NULL : json_stringn_nocheck(b->text.data, b->text.n);
        break;
    case BNET_JSON_INTEGER:
    case BNET_JSON_REAL:
        v = number(b);
        break;
    case BNET_JSON_TRUE:
    case BNET_JSON_FALSE:
        v = json_boolean(b->r.event == BNET_JSON_TRUE);
        break;
    default:
        v = json_null();
    }
    if (!v)
        no_memory(b);
    return v;
}

/* Puts the value where it belongs; the reference is taken over. */
static void place(builder *b, json_t *v)
{
    json_t *in = b->depth ? b->open[b->depth - 1] : NULL;
    if (!in) {
        b->s->root = v;
    } else if (json_is_array(in)) {
        if (json_array_append_new(in, v) != 0)
            no_memory(b);
    } else if (json_object_get(in, b->key.data)) {
        json_decref(v);
        bnet_program_fail(b->p, BITNET_ARGUMENT, "schema: the key \"%.80s\" comes twice",
                          b->key.data);
    } else if (json_object_set_new_nocheck(in, b->key.data, v) != 0) {
        no_memory(b);
    }
}

static void take(builder *b)
{
    if (b->r.event == BNET_JSON_KEY) {
        read_text(b, &b->key);
    } else if (b->r.event == BNET_JSON_OBJECT_END || b->r.event == BNET_JSON_ARRAY_END) {
        b->depth--;
    } else {
        json_t *v = value(b);
        if (b->p->status != BITNET_OK) {
            json_decref(v);
            return;
        }
        place(b, v);
        if (b->p->status == BITNET_OK &&
            (b->r.event == BNET_JSON_OBJECT || b->r.event == BNET_JSON_ARRAY))
            b->open[b->depth++] = v; /* borrowed of where it was placed */
    }
}

void bnet_schema_tree(bnet_schema *s, bnet_span text)
{
    char why[200];
    builder b = {.s = s, .p = s->p, .r = bnet_json_reader_of(text.data, text.n)};
    const char *what = bnet_json_measure(text.data, text.n, BNET_JSON_VALUES, why, sizeof why);
    if (what)
        bnet_program_fail(s->p, BITNET_ARGUMENT, "schema: it is %s: %s", what, why);
    while (s->p->status == BITNET_OK && bnet_json_next(&b.r) != BNET_JSON_END)
        take(&b);
    if (s->n_digits)
        qsort(s->digits, s->n_digits, sizeof *s->digits, by_address);
    bnet_str_free(&b.key);
    bnet_str_free(&b.text);
}
