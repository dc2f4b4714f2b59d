/* jinja_value.c - values of a template: the arena they live in, making them, asking what they are.
 */
#include "jinja/jinja_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_reader.h"

enum { BLOCK_BYTES = 16384 };

struct jinja_block {
    jinja_block *next;
    size_t used, cap;
    _Alignas(16) char bytes[];
};

/* ---- the arena, bounds, failures ---- */

static bool add_block(jinja *m, size_t n)
{
    size_t cap = n > BLOCK_BYTES ? n : BLOCK_BYTES;
    if (cap > m->limits.memory - m->used) {
        bnet_jinja_fail(m, "its values take more than %zu bytes", m->limits.memory);
        return false;
    }
    jinja_block *b = bnet_alloc(sizeof *b + cap);
    if (!b) {
        m->failed = true;
        m->status = bnet_no_memory(m->err, "values of a chat template");
        return false;
    }
    *b = (jinja_block){.next = m->blocks, .cap = cap};
    m->blocks = b;
    m->used += cap;
    return true;
}

void *bnet_jinja_alloc(jinja *m, size_t n)
{
    if (m->failed)
        return NULL;
    n = (n + 15) & ~(size_t)15;
    if (n > m->limits.memory) {
        bnet_jinja_fail(m, "its values take more than %zu bytes", m->limits.memory);
        return NULL;
    }
    if ((!m->blocks || m->blocks->cap - m->blocks->used < n) && !add_block(m, n))
        return NULL;
    void *p = m->blocks->bytes + m->blocks->used;
    m->blocks->used += n;
    return memset(p, 0, n);
}

void bnet_jinja_close(jinja *m)
{
    for (jinja_block *b = m->blocks, *next; b; b = next) {
        next = b->next;
        bnet_free(b);
    }
    m->blocks = NULL;
}

bool bnet_jinja_step(jinja *m, size_t bytes)
{
    if (m->failed)
        return false;
    m->steps += 1 + bytes / 64;
    if (m->steps > m->limits.steps)
        bnet_jinja_fail(m, "it takes more than %llu steps", (unsigned long long)m->limits.steps);
    return !m->failed;
}

bool bnet_jinja_room(jinja *m, void **items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 4;
    void *p = bnet_jinja_step(m, n * size) ? bnet_jinja_alloc(m, more * size) : NULL;
    if (!p)
        return false;
    if (n)
        memcpy(p, *items, n * size);
    *items = p;
    *cap = more;
    return true;
}

bool bnet_jinja_fits_stack(jinja *m)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if ((here > m->stack ? here - m->stack : m->stack - here) > JINJA_STACK)
        bnet_jinja_fail(m, "its parts nest too deep");
    return !m->failed;
}

jinja_value bnet_jinja_fail(jinja *m, const char *fmt, ...)
{
    char text[BITNET_MESSAGE_MAX / 2];
    va_list list;
    if (!m->failed) {
        va_start(list, fmt);
        vsnprintf(text, sizeof text, fmt, list);
        va_end(list);
        m->failed = true;
        m->status =
            bnet_fail(m->err, BITNET_TOKENIZER, "chat template, line %u: %s", m->line, text);
    }
    return (jinja_value){.type = JINJA_UNDEFINED};
}

/* ---- making ---- */

jinja_value bnet_jinja_bool(bool b)
{
    return (jinja_value){.type = JINJA_BOOL, .u.b = b};
}

jinja_value bnet_jinja_int(int64_t i)
{
    return (jinja_value){.type = JINJA_INT, .u.i = i};
}

jinja_value bnet_jinja_float(double f)
{
    return (jinja_value){.type = JINJA_FLOAT, .u.f = f};
}

jinja_value bnet_jinja_span(bnet_span s)
{
    return (jinja_value){.type = JINJA_STRING, .u.s = s};
}

jinja_value bnet_jinja_undefined(bnet_span name)
{
    return (jinja_value){.type = JINJA_UNDEFINED, .u.s = name};
}

jinja_value bnet_jinja_copy(jinja *m, const char *s, size_t n)
{
    char *copy = bnet_jinja_step(m, n) ? bnet_jinja_alloc(m, n) : NULL;
    if (!copy)
        return bnet_jinja_span((bnet_span){"", 0});
    if (n)
        memcpy(copy, s, n);
    return bnet_jinja_span((bnet_span){copy, n});
}

jinja_value bnet_jinja_take(jinja *m, bnet_str *s)
{
    if (s->failed && !m->failed) {
        m->failed = true;
        m->status = bnet_no_memory(m->err, "text of a chat template");
    }
    jinja_value v = bnet_jinja_copy(m, s->data, s->n);
    bnet_str_free(s);
    return v;
}

jinja_value bnet_jinja_list_of(jinja *m, jinja_type type)
{
    jinja_value v = {.type = type, .u.list = bnet_jinja_alloc(m, sizeof(jinja_list))};
    return v.u.list ? v : (jinja_value){.type = JINJA_UNDEFINED};
}

jinja_value bnet_jinja_list_for(jinja *m, jinja_type type, size_t n)
{
    jinja_value v = bnet_jinja_list_of(m, type);
    size_t bytes = 0;
    bool fits = !__builtin_mul_overflow(n, sizeof(jinja_value), &bytes);
    jinja_value *items =
        bnet_jinja_step(m, fits ? bytes : SIZE_MAX - 64) ? bnet_jinja_alloc(m, bytes) : NULL;
    if (!items)
        return (jinja_value){.type = JINJA_UNDEFINED};
    *v.u.list = (jinja_list){.items = items, .cap = n};
    return v;
}

void bnet_jinja_append(jinja *m, jinja_value list, jinja_value item)
{
    if (m->failed)
        return;
    jinja_list *l = list.u.list;
    void *items = l->items;
    if (!bnet_jinja_room(m, &items, l->n, &l->cap, sizeof item))
        return;
    l->items = items;
    l->items[l->n++] = item;
}

/* ---- from JSON ---- */

static jinja_value json_scalar(jinja *m, const bnet_json_reader *r)
{
    bnet_str text = {0};
    char number[64];
    int64_t i;
    switch (r->event) {
    case BNET_JSON_STRING:
    case BNET_JSON_KEY:
        bnet_json_text(r, &text);
        return bnet_jinja_take(m, &text);
    case BNET_JSON_INTEGER:
        if (bnet_json_int64(r, &i))
            return bnet_jinja_int(i);
        return bnet_jinja_fail(m, "an integer of its values has more than 64 bits");
    case BNET_JSON_REAL:
        if (r->raw.n >= sizeof number)
            return bnet_jinja_fail(m, "a number of its values has more than 63 characters");
        memcpy(number, r->raw.data, r->raw.n);
        number[r->raw.n] = '\0';
        return bnet_jinja_float(strtod(number, NULL));
    case BNET_JSON_TRUE:
    case BNET_JSON_FALSE:
        return bnet_jinja_bool(r->event == BNET_JSON_TRUE);
    default:
        return (jinja_value){.type = JINJA_NONE};
    }
}

typedef struct json_level {
    jinja_value box, key;
} json_level;

static void place(jinja *m, json_level *level, jinja_value v)
{
    if (m->failed)
        return;
    if (level->box.type == JINJA_LIST)
        bnet_jinja_append(m, level->box, v);
    else
        bnet_jinja_put(m, level->box.u.dict, level->key, v);
}

jinja_value bnet_jinja_from_json(jinja *m, bnet_span text)
{
    bnet_json_reader r = bnet_json_reader_of(text.data, text.n);
    json_level *levels = bnet_jinja_alloc(m, (BNET_JSON_DEPTH + 2) * sizeof *levels);
    jinja_value all = bnet_jinja_list_of(m, JINJA_LIST);
    int depth = 0;
    if (m->failed)
        return all;
    levels[0].box = all;
    for (bnet_json_event e; (e = bnet_json_next(&r)) != BNET_JSON_END && !m->failed;) {
        if (e == BNET_JSON_BAD)
            break;
        if (e == BNET_JSON_KEY) {
            levels[depth].key = json_scalar(m, &r);
        } else if (e == BNET_JSON_OBJECT || e == BNET_JSON_ARRAY) {
            jinja_value box =
                e == BNET_JSON_ARRAY ? bnet_jinja_list_of(m, JINJA_LIST) : bnet_jinja_dict_of(m);
            place(m, &levels[depth], box);
            levels[++depth].box = box;
        } else if (e == BNET_JSON_OBJECT_END || e == BNET_JSON_ARRAY_END) {
            depth--;
        } else {
            place(m, &levels[depth], json_scalar(m, &r));
        }
    }
    if (!m->failed && (r.event != BNET_JSON_END || all.u.list->items[0].type != JINJA_DICT)) {
        m->failed = true;
        m->status = bnet_fail(m->err, BITNET_ARGUMENT,
                              "the values of a chat template are no JSON object%s%s",
                              r.why && r.event == BNET_JSON_BAD ? ": " : "",
                              r.why && r.event == BNET_JSON_BAD ? r.why : "");
    }
    return m->failed ? all : all.u.list->items[0];
}

/* ---- asking ---- */

const char *bnet_jinja_type_name(jinja_value v)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined", [JINJA_NONE] = "None",
        [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",         [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",           [JINJA_NAMESPACE] = "namespace",
        [JINJA_MACRO] = "macro",         [JINJA_FUNCTION] = "function",
        [JINJA_LOOP] = "loop",
    };
    return names[v.type];
}

bool bnet_jinja_true(jinja *m, jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.u.b;
    case JINJA_INT:
        return v.u.i != 0;
    case JINJA_FLOAT:
        return v.u.f != 0;
    case JINJA_STRING:
        return v.u.s.n != 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.u.list->n != 0;
    case JINJA_DICT:
        return v.u.dict->n != 0;
    case JINJA_LOOP: /* its length */
        bnet_jinja_choose(m, v.u.loop, SIZE_MAX);
        return true;
    default:
        return true;
    }
}

bool bnet_jinja_whole(jinja_value v, int64_t *i)
{
    if (v.type != JINJA_INT && v.type != JINJA_BOOL)
        return false;
    *i = v.type == JINJA_INT ? v.u.i : v.u.b;
    return true;
}

bool bnet_jinja_number(jinja_value v, double *f)
{
    int64_t i;
    if (v.type == JINJA_FLOAT)
        *f = v.u.f;
    else if (bnet_jinja_whole(v, &i))
        *f = (double)i;
    else
        return false;
    return true;
}

bool bnet_jinja_named(bnet_span s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.data, text, s.n) == 0;
}
