/* chat_values.c - writing the variables of a file's own chat template. */
#include "text/chat_values.h"

void bnet_values_close(bnet_values *v)
{
    bnet_str_free(&v->text);
    bnet_str_free(&v->scratch);
}

void bnet_values_comma(bnet_values *v)
{
    char last = v->text.n ? v->text.data[v->text.n - 1] : '{';
    if (last != '{' && last != '[' && last != ':')
        bnet_str_putc(&v->text, ',');
}

static void quote(bnet_str *out, bnet_span s)
{
    size_t from = 0;
    bnet_str_putc(out, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c >= ' ' && c != '"' && c != '\\')
            continue;
        bnet_str_add(out, s.data + from, i - from);
        bnet_str_addf(out, "\\u%04x", c);
        from = i + 1;
    }
    bnet_str_add(out, s.data + from, s.n - from);
    bnet_str_putc(out, '"');
}

void bnet_values_text(bnet_values *v, bnet_span text, bnet_guard_kind kind)
{
    v->scratch.n = 0;
    bnet_guard_disguise(&v->own->guard, text, kind, &v->scratch);
    v->text.failed = v->text.failed || v->scratch.failed;
    quote(&v->text, (bnet_span){v->scratch.data ? v->scratch.data : "", v->scratch.n});
}

void bnet_values_name(bnet_values *v, const char *name)
{
    bnet_values_comma(v);
    bnet_str_addf(&v->text, "\"%s\":", name);
}

static void write_number(bnet_values *v, const json_t *number)
{
    char text[64];
    size_t n = json_dumpb(number, text, sizeof text, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    bnet_str_add(&v->text, text, BNET_MIN(n, sizeof text));
}

static void write_object(bnet_values *v, json_t *tree)
{
    const char *key;
    json_t *value;
    bnet_str_putc(&v->text, '{');
    json_object_foreach(tree, key, value)
    {
        bnet_values_comma(v);
        bnet_values_text(v, (bnet_span){key, strlen(key)}, BNET_GUARD_KEY);
        bnet_str_putc(&v->text, ':');
        bnet_values_tree(v, value);
    }
    bnet_str_putc(&v->text, '}');
}

static void write_array(bnet_values *v, const json_t *tree)
{
    bnet_str_putc(&v->text, '[');
    for (size_t i = 0; i < json_array_size(tree); i++) {
        bnet_values_comma(v);
        bnet_values_tree(v, json_array_get(tree, i));
    }
    bnet_str_putc(&v->text, ']');
}

void bnet_values_tree(bnet_values *v, const json_t *tree)
{
    switch (json_typeof(tree)) {
    case JSON_OBJECT:
        write_object(v, (json_t *)(uintptr_t)tree); /* the iterator of jansson asks for it */
        break;
    case JSON_ARRAY:
        write_array(v, tree);
        break;
    case JSON_STRING:
        bnet_values_text(v, (bnet_span){json_string_value(tree), json_string_length(tree)},
                         BNET_GUARD_TEXT);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        write_number(v, tree);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        bnet_str_puts(&v->text, json_is_true(tree) ? "true" : "false");
        break;
    default:
        bnet_str_puts(&v->text, "null");
    }
}

void bnet_values_content(bnet_values *v, bnet_span text, bnet_guard_kind kind)
{
    if (v->own->typed)
        bnet_str_puts(&v->text, "[{\"type\":\"text\",\"text\":");
    bnet_values_text(v, text, kind);
    if (v->own->typed)
        bnet_str_puts(&v->text, "}]");
}

/* The name of a token; a file without it has none to write. */
static void write_token(bnet_values *v, const char *name, int32_t id)
{
    size_t n = 0;
    const char *bytes = bnet_token_bytes(v->own->t, id, &n);
    bnet_values_name(v, name);
    quote(&v->text, (bnet_span){bytes ? bytes : "", bytes ? n : 0});
}

static void write_tree(bnet_values *v, const char *name, const json_t *tree)
{
    bnet_values_name(v, name);
    if (tree)
        bnet_values_tree(v, tree);
    else
        bnet_str_puts(&v->text, "null");
}

void bnet_values_rest(bnet_values *v, const json_t *tools, const json_t *documents, bool reply)
{
    write_tree(v, "tools", tools);
    write_tree(v, "documents", documents);
    bnet_values_name(v, "add_generation_prompt");
    bnet_str_puts(&v->text, reply ? "true" : "false");
    write_token(v, "bos_token", bnet_tokenizer_bos(v->own->t));
    write_token(v, "eos_token", bnet_tokenizer_eos(v->own->t));
}
