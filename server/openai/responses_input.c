/* responses_input.c - what /v1/responses is given, in the form of chat completions. */
#include <string.h>

#include "ask/fields.h"
#include "openai/responses.h"

#define MAX_ITEMS 8192

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static const char *text_of(const json_t *item, const char *name)
{
    return json_string_value(json_object_get(item, name));
}

/* ---- items ---- */

static json_t *message_item(const json_t *item)
{
    json_t *content = json_object_get(item, "content");
    return json_pack("{s:s?, s:O?}", "role", text_of(item, "role"), "content", content);
}

static json_t *call_item(const json_t *item)
{
    const char *id = text_of(item, "call_id"), *name = text_of(item, "name");
    const char *arguments = text_of(item, "arguments");
    if (!name)
        return NULL;
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id ? id : "", "type", "function", "function",
                     "name", name, "arguments", arguments ? arguments : "{}");
}

/* A call belongs to the turn of the assistant that it follows; takes it over. */
static bool add_call(json_t *call, json_t *out)
{
    size_t n = json_array_size(out);
    json_t *last = n ? json_array_get(out, n - 1) : NULL;
    json_t *calls = json_object_get(last, "tool_calls");
    if (!call || !is(text_of(last, "role"), "assistant"))
        return call &&
               json_array_append_new(out, json_pack("{s:s, s:n, s:[o]}", "role", "assistant",
                                                    "content", "tool_calls", call)) == 0;
    if (calls)
        return json_array_append_new(calls, call) == 0;
    return json_object_set_new(last, "tool_calls", json_pack("[o]", call)) == 0;
}

static json_t *output_item(const json_t *item)
{
    const char *id = text_of(item, "call_id");
    json_t *output = json_object_get(item, "output");
    if (!output)
        return NULL;
    return json_pack("{s:s, s:s, s:O}", "role", "tool", "tool_call_id", id ? id : "", "content",
                     output);
}

static bool refuse_item(srv_exchange *x, const char *type)
{
    if (is(type, "item_reference"))
        srv_fail(
            x, 400, "unsupported_value", "input",
            "input: an item of type \"item_reference\" stands for one that a server has stored, "
            "and this server stores nothing; send the items themselves (most clients do with "
            "store set to false)");
    else
        srv_fail(x, 400, "unsupported_value", "input",
                 "input: an item of type \"%.40s\" is not supported: message, function_call and "
                 "function_call_output are",
                 type);
    return false;
}

/* Of an earlier answer, whole or by its name alone. */
static bool is_thought(const json_t *item, const char *type)
{
    const char *id = text_of(item, "id");
    return is(type, "reasoning") ||
           (is(type, "item_reference") && id && strncmp(id, "rs_", 3) == 0);
}

/* Adds what an item says. Thoughts of earlier answers are left out. */
static bool add_item(srv_exchange *x, const json_t *item, json_t *out)
{
    const char *type = text_of(item, "type");
    json_t *m = NULL;
    if (is_thought(item, type))
        return true;
    if (json_is_object(item) && (!type || is(type, "message")))
        m = message_item(item);
    else if (is(type, "function_call")) {
        if (add_call(call_item(item), out))
            return true;
    } else if (is(type, "function_call_output"))
        m = output_item(item);
    else if (type)
        return refuse_item(x, type);
    if (m && json_array_append_new(out, m) == 0)
        return true;
    return srv_field_wrong(x, "input",
                           "a text or a list of items (message, function_call, "
                           "function_call_output)");
}

static bool add_input(srv_exchange *x, const json_t *input, json_t *out)
{
    size_t i;
    json_t *item;
    if (json_is_string(input))
        return json_array_append_new(
                   out, json_pack("{s:s, s:O}", "role", "user", "content", input)) == 0;
    if (!json_is_array(input) || json_array_size(input) == 0 || json_array_size(input) > MAX_ITEMS)
        return srv_field_wrong(x, "input", "a text or a list of 1 to 8192 items");
    json_array_foreach(input, i, item)
    {
        if (!add_item(x, item, out))
            return false;
    }
    return json_array_size(out) > 0 ||
           srv_field_wrong(x, "input", "a list with one message at least");
}

json_t *srv_responses_messages(srv_exchange *x, const json_t *body)
{
    const char *instructions = NULL;
    json_t *out = json_array();
    bool good = srv_field_text(x, body, "instructions", SIZE_MAX, &instructions);
    if (good && instructions)
        json_array_append_new(out,
                              json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (good && add_input(x, srv_field(body, "input"), out))
        return out;
    json_decref(out);
    return NULL;
}

/* ---- tools ---- */

json_t *srv_responses_tools(const json_t *tools)
{
    size_t i;
    json_t *tool, *out = json_is_array(tools) ? json_array() : NULL;
    json_array_foreach(tools, i, tool)
    {
        const char *type = text_of(tool, "type");
        bool inside = json_object_get(tool, "function") || !is(type, "function");
        json_t *one = inside ? json_incref(tool)
                             : json_pack("{s:s, s:O}", "type", "function", "function", tool);
        json_array_append_new(out, one);
    }
    return out;
}
