/* ask_messages.c - messages as clients send them, in the one form that chat templates expect. */
#include <stdlib.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "ask/fields.h"
#include "http/short_memory.h"

#define MAX_MESSAGES 8192

/* ---- contents ---- */

static bool is_text_part(const char *type)
{
    static const char *const names[] = {"text", "input_text", "output_text", "refusal"};
    for (size_t i = 0; type && i < sizeof names / sizeof *names; i++)
        if (strcmp(type, names[i]) == 0)
            return true;
    return false;
}

static bool add_part(srv_exchange *x, const char *field, const json_t *part, srv_textbuf *out)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    if (!text)
        text = json_object_get(part, "refusal");
    if (type && !is_text_part(type)) {
        srv_fail(x, 400, "unsupported_value", field,
                 "%s: a part of type \"%.40s\" is not supported: models here read text alone",
                 field, type);
        return false;
    }
    if (!json_is_string(text))
        return srv_field_wrong(x, field, "a list of messages whose parts have a type and a text");
    if (out->n)
        srv_textbuf_str(out, "\n");
    srv_textbuf_add(out, json_string_value(text), json_string_length(text));
    return true;
}

/* A content as one text, a new value. NULL: the client was told. */
static json_t *plain_content(srv_exchange *x, const char *field, const json_t *content)
{
    size_t i;
    json_t *part;
    srv_textbuf text = {0};
    if (!content || json_is_null(content))
        return json_string("");
    if (json_is_string(content))
        return json_stringn(json_string_value(content), json_string_length(content));
    bool good =
        json_is_array(content) ||
        srv_field_wrong(x, field, "a list of messages whose content is a text or a list of parts");
    json_array_foreach(content, i, part)
    {
        good = good && add_part(x, field, part, &text);
    }
    if (good && text.failed)
        good = srv_no_room(x);
    json_t *out = good ? json_stringn(text.n ? text.data : "", text.n) : NULL;
    srv_textbuf_free(&text);
    return out;
}

/* ---- calls that the assistant made ---- */

/* Arguments come as a text of JSON, and stay so: the template's side makes an object of it where
 * one is expected. A text of nothing is an empty object. NULL: the client was told. */
static json_t *plain_arguments(srv_exchange *x, const char *field, json_t *arguments)
{
    const char *text = json_string_value(arguments);
    size_t n = json_string_length(arguments);
    if (!arguments || (text && strspn(text, " \t\r\n") == n))
        return json_object();
    return text && !srv_json_admit(x, field, text, n) ? NULL : json_incref(arguments);
}

/* NULL: the client was told. */
static json_t *plain_call(srv_exchange *x, const char *field, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *name = json_object_get(function, "name");
    const char *id = json_string_value(json_object_get(call, "id"));
    if (!json_is_string(name)) {
        srv_field_wrong(x, field,
                        "a list of messages whose tool_calls have a function with a name and "
                        "arguments");
        return NULL;
    }
    json_t *arguments = plain_arguments(x, field, json_object_get(function, "arguments"));
    if (!arguments)
        return NULL;
    json_t *plain = json_pack("{s:s*, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function",
                              "name", name, "arguments", arguments);
    if (!plain)
        srv_no_room(x);
    return plain;
}

static json_t *plain_calls(srv_exchange *x, const char *field, const json_t *calls)
{
    size_t i;
    json_t *call, *out = json_array();
    json_array_foreach(calls, i, call)
    {
        json_t *plain = plain_call(x, field, call);
        if (plain && json_array_append_new(out, plain) == 0)
            continue;
        if (plain)
            srv_no_room(x);
        json_decref(out);
        return NULL;
    }
    return out;
}

/* ---- messages ---- */

static const char *plain_role(const char *role)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    if (!role)
        return NULL;
    if (strcmp(role, "developer") == 0)
        return "system";
    if (strcmp(role, "function") == 0)
        return "tool";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(role, names[i]) == 0)
            return names[i];
    return NULL;
}

/* Members that templates may ask for, as they are, where they are texts. */
static void copy_texts(const json_t *from, json_t *to)
{
    static const char *const names[] = {"name", "tool_call_id", "reasoning_content"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(from, names[i]);
        if (json_is_string(value))
            json_object_set(to, names[i], value);
    }
}

/* The calls of a message, a new value; NULL: none. Before there were tools a message had at most
 * one, as "function_call". */
static json_t *calls_of(const json_t *message)
{
    json_t *calls = srv_field(message, "tool_calls"), *old = srv_field(message, "function_call");
    if (json_is_array(calls) && json_array_size(calls))
        return json_incref(calls);
    return old ? json_pack("[{s:O}]", "function", old) : NULL;
}

/* A turn of the user says something; other APIs have filled in what theirs may leave out. */
static bool has_content(srv_exchange *x, const char *field, const char *role, const json_t *message)
{
    return strcmp(role, "user") != 0 || srv_field(message, "content") ||
           srv_field_wrong(x, field, "a list of messages; those of the user have a content");
}

static json_t *plain_message(srv_exchange *x, const char *field, const json_t *message)
{
    const char *role = plain_role(json_string_value(json_object_get(message, "role")));
    if (!role) {
        srv_field_wrong(x, field,
                        "a list of messages whose role is system, developer, user, assistant or "
                        "tool");
        return NULL;
    }
    if (!has_content(x, field, role, message))
        return NULL;
    json_t *content = plain_content(x, field, srv_field(message, "content"));
    json_t *out = content ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL;
    if (content && !out)
        srv_no_room(x);
    copy_texts(message, out);
    json_t *calls = out ? calls_of(message) : NULL;
    if (!calls)
        return out;
    json_t *plain = plain_calls(x, field, calls);
    json_decref(calls);
    if (plain && json_object_set_new(out, "tool_calls", plain) == 0)
        return out;
    json_decref(out);
    return NULL;
}

json_t *srv_messages_plain(srv_exchange *x, const srv_ask *a)
{
    const char *field = srv_ask_said(a);
    const json_t *messages = a->messages;
    size_t i, n = json_array_size(messages);
    json_t *message;
    if (!json_is_array(messages) || n == 0 || n > MAX_MESSAGES) {
        srv_field_wrong(x, field, "a list of 1 to 8192 messages");
        return NULL;
    }
    json_t *out = json_array();
    json_array_foreach(messages, i, message)
    {
        json_t *plain = plain_message(x, field, message);
        if (!plain || json_array_append_new(out, plain)) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
