/* split_xml.c - calls as Qwen3-Coder writes them:
 *
 *     <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>
 *
 * The name begins the call; each parameter comes as a piece of a JSON object once its value is
 * whole. A value is what the tool's schema says it is: a text as it stands, anything else as JSON,
 * and as a text where it is none. */
#include <stdlib.h>
#include <string.h>

#include "ask/json_text.h"
#include "ask/split_impl.h"

enum { MAX_NAME = 256 };

static const char function_open[] = "<function=", function_close[] = "</function>";
static const char parameter_open[] = "<parameter=", parameter_close[] = "</parameter>";

static size_t past_spaces(const srv_split *s, size_t at)
{
    while (at < s->hold.n && srv_split_space(s->hold.data[at]))
        at++;
    return at;
}

/* The name behind an opening that begins at `at`, up to its ">": 1 it is there, *end behind it; 0
 * more must come; -1 there is none. */
static int read_name(const srv_split *s, size_t at, const char *opening, char name[MAX_NAME],
                     size_t *end)
{
    size_t from = at + strlen(opening), n = 0;
    int begins = srv_split_begins(s, at, opening);
    if (begins != 1)
        return begins;
    while (from + n < s->hold.n && s->hold.data[from + n] != '>' && n < MAX_NAME)
        n++;
    if (n == 0 ? from < s->hold.n : n == MAX_NAME || memchr(s->hold.data + from, '\n', n) != NULL)
        return -1;
    if (from + n == s->hold.n)
        return 0;
    memcpy(name, s->hold.data + from, n);
    name[n] = '\0';
    *end = from + n + 1;
    return 1;
}

/* ---- values ---- */

/* A value of JSON of any kind; NULL: it is none. */
static json_t *any_value(const char *text, size_t n)
{
    srv_textbuf list = {0};
    srv_textbuf_str(&list, "[");
    srv_textbuf_add(&list, text, n);
    srv_textbuf_str(&list, "]");
    json_t *values = list.failed ? NULL : srv_json_value(list.data, list.n);
    json_t *value = json_array_size(values) == 1 ? json_incref(json_array_get(values, 0)) : NULL;
    json_decref(values);
    srv_textbuf_free(&list);
    return value;
}

/* Does `type`, a name or a list of names, allow texts? */
static bool allows_text(const json_t *type)
{
    const char *name = json_string_value(type);
    for (size_t i = 0; i < json_array_size(type); i++)
        if (allows_text(json_array_get(type, i)))
            return true;
    return name && strcmp(name, "string") == 0;
}

/* The schema lets the parameter be something else than a text. */
static bool is_typed(const json_t *function, const char *key)
{
    const json_t *properties =
        json_object_get(json_object_get(function, "parameters"), "properties");
    const json_t *schema = json_object_get(properties, key);
    const json_t *first = json_array_get(json_object_get(schema, "enum"), 0);
    return json_is_object(schema) && !json_is_string(first) &&
           !allows_text(json_object_get(schema, "type"));
}

static json_t *value_of(const srv_split *s, const char *key, const char *text, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    json_t *value = NULL;
    if (is_typed(s->function, key)) {
        value = any_value(text, n);
        for (size_t i = 0; !value && i < 3; i++)
            if (strlen(words[i][0]) == n && memcmp(words[i][0], text, n) == 0)
                value = any_value(words[i][1], strlen(words[i][1]));
    }
    return value ? value : srv_json_text(text, n);
}

/* ---- parameters ---- */

/* Keeps the name; false: it was told before in this call, and an object has a name but once. */
static bool is_new(srv_split *s, const json_t *name)
{
    const char *key = json_string_value(name);
    if (!s->told)
        s->told = json_object();
    if (key && json_object_get(s->told, key))
        return false;
    s->hold.failed |= !key || json_object_set_new_nocheck(s->told, key, json_true()) != 0;
    return true;
}

/* A member of the object: what stands before its value, then the value. */
static void emit_member(srv_split *s, const char *key, const json_t *name, const char *text,
                        size_t n)
{
    const char *before = s->depth++ == 0 ? "{" : ", ";
    json_t *value = value_of(s, key, text, n);
    char *left = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    char *right = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    srv_textbuf piece = {0};
    srv_textbuf_str(&piece, before);
    srv_textbuf_str(&piece, left ? left : "");
    srv_textbuf_str(&piece, ": ");
    srv_textbuf_str(&piece, right ? right : "");
    s->hold.failed |= !left || !right || piece.failed;
    if (!s->hold.failed)
        srv_split_emit(s, SRV_DELTA_TOOL_ARGS, piece.data, piece.n);
    srv_textbuf_free(&piece);
    free(left);
    free(right);
    json_decref(value);
}

/* A parameter whose value begins at `from`: false where its end has not come. One line's end on
 * either side is the form's. */
static bool take_parameter(srv_split *s, const char *key, size_t from)
{
    size_t n_close = strlen(parameter_close), at = s->scan > from ? s->scan : from;
    const char *text = s->hold.data;
    const char *close = memmem(text + at, s->hold.n - at, parameter_close, n_close);
    if (!close) { /* what was looked at is not looked at again */
        s->scan = s->hold.n > from + n_close ? s->hold.n - n_close : from;
        return false;
    }
    size_t end = (size_t)(close - text), n = end - from;
    from += n && text[from] == '\n';
    n = end - from;
    n -= n && text[from + n - 1] == '\n';
    json_t *name = srv_json_text(key, strlen(key));
    if (is_new(s, name))
        emit_member(s, key, name, text + from, n);
    json_decref(name);
    srv_textbuf_drop(&s->hold, end + n_close);
    s->scan = 0;
    return true;
}

static void end_function(srv_split *s, size_t end)
{
    const char *rest = s->depth ? "}" : "{}";
    srv_split_emit(s, SRV_DELTA_TOOL_ARGS, rest, strlen(rest));
    srv_split_end(s, false);
    srv_textbuf_drop(&s->hold, end);
    s->in_args = false;
    s->state = AFTER;
}

/* Inside a function. What is neither a parameter nor the end is nobody's. */
static bool step_function(srv_split *s)
{
    char key[MAX_NAME];
    size_t at = past_spaces(s, 0), end = 0;
    int closes = srv_split_begins(s, at, function_close);
    int opens = read_name(s, at, parameter_open, key, &end);
    if (closes == 1) {
        end_function(s, at + strlen(function_close));
        return true;
    }
    if (opens == 1)
        return take_parameter(s, key, end);
    if (at == s->hold.n || closes == 0 || opens == 0)
        return false;
    const char *next = memchr(s->hold.data + at + 1, '<', s->hold.n - at - 1);
    srv_textbuf_drop(&s->hold, next ? (size_t)(next - s->hold.data) : s->hold.n);
    s->scan = 0;
    return true;
}

bool srv_split_step_xml(srv_split *s)
{
    char name[MAX_NAME];
    size_t at = past_spaces(s, s->marker), end = 0;
    if (s->begun)
        return step_function(s);
    if (at == s->hold.n)
        return false;
    int opens = read_name(s, at, function_open, name, &end);
    if (opens == 0)
        return false;
    s->function = opens == 1 ? srv_split_tool(s, name) : NULL;
    if (!s->function) {
        srv_split_no_call(s);
        return true;
    }
    srv_split_announce(s, name);
    srv_textbuf_drop(&s->hold, end);
    s->marker = s->scan = 0;
    s->in_args = true;
    return true;
}
