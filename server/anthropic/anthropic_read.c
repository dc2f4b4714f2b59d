/* anthropic_read.c - translates a request of Anthropic's messages API: system, messages made of
 * blocks, tools, tool_choice, thinking and sampling. What this server cannot do (images and
 * documents of the user, tools without a schema, known by their type alone) is refused by name or,
 * for tools, left out. */
#include "anthropic/anthropic_read.h"

#include <stdio.h>
#include <string.h>

#include "ask/fields.h"
#include "anthropic/anthropic_blocks.h"
#include "ask/json_text.h"
#include "http/refuse.h"
#include "server.h"

static bool push(srv_exchange *x, json_t *messages, json_t *message)
{
    return json_array_append_new(messages, message) == 0 ? true : srv_no_memory(x);
}

/* Parts of the user that came before a tool result, or at the end. Two turns of the user that
 * follow each other are one. */
static bool flush_user(srv_exchange *x, json_t *messages, json_t *parts)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool same = role && strcmp(role, "user") == 0, ok = true;
    if (json_array_size(parts) == 0)
        return true;
    if (same)
        ok = json_array_extend(json_object_get(last, "content"), parts) == 0 || srv_no_memory(x);
    else
        ok =
            push(x, messages, json_pack("{s:s, s:o}", "role", "user", "content", json_copy(parts)));
    json_array_clear(parts);
    return ok;
}

/* ---- the user's blocks ---- */

static bool read_tool_result(srv_exchange *x, json_t *block, const char *where, json_t *messages)
{
    json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id))
        return srv_missing(x, "tool_use_id");
    json_t *parts = json_array();
    bool ok = parts || srv_no_memory(x);
    ok = ok && srv_block_result(x, block, where, parts) && srv_block_or_empty(x, parts);
    ok = ok &&
         push(x, messages,
              json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id, "content", parts));
    json_decref(parts);
    return ok;
}

static bool read_user_block(srv_exchange *x, json_t *block, const char *where, json_t *parts,
                            json_t *messages)
{
    const char *type = srv_block_type(block);
    if (strcmp(type, "tool_result") == 0)
        return flush_user(x, messages, parts) && read_tool_result(x, block, where, messages);
    if (strcmp(type, "text") != 0)
        return srv_block_refuse(x, where, type);
    json_t *text = json_object_get(block, "text");
    return json_is_string(text) ? srv_block_add(x, parts, text) : srv_missing(x, "text");
}

static bool read_user(srv_exchange *x, json_t *content, const char *where, json_t *messages)
{
    json_t *parts = json_array(), *block;
    size_t i;
    bool ok = parts || srv_no_memory(x);
    if (ok && !json_is_array(content))
        ok = srv_block_texts(x, content, where, parts);
    else
        json_array_foreach(content, i, block)
        {
            ok = ok && read_user_block(x, block, where, parts, messages);
        }
    ok = ok && flush_user(x, messages, parts);
    json_decref(parts);
    return ok;
}

/* ---- the assistant's blocks ---- */

#define THOUGHTS "thoughts" /* of a turn, a list until all messages are read */

/* What becomes of one message of the assistant. */
typedef struct spoken {
    json_t *parts, *calls, *thoughts;
} spoken;

static bool add_call(srv_exchange *x, json_t *calls, json_t *id, json_t *name, json_t *input)
{
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", input);
    return json_array_append_new(calls, call) == 0 || srv_no_memory(x);
}

static bool read_tool_use(srv_exchange *x, json_t *block, json_t *calls)
{
    json_t *id = json_object_get(block, "id");
    json_t *name = json_object_get(block, "name");
    json_t *input = json_object_get(block, "input");
    if (!json_is_string(id))
        return srv_missing(x, "id");
    if (!json_is_string(name))
        return srv_missing(x, "name");
    return json_is_object(input) ? add_call(x, calls, id, name, input) : srv_missing(x, "input");
}

static bool read_assistant_block(srv_exchange *x, json_t *block, const char *where, spoken *s)
{
    const char *type = srv_block_type(block);
    json_t *text = json_object_get(block, "text"), *thinking = json_object_get(block, "thinking");
    if (strcmp(type, "tool_use") == 0)
        return read_tool_use(x, block, s->calls);
    if (strcmp(type, "redacted_thinking") == 0)
        return true; /* nobody here can read it */
    if (strcmp(type, "thinking") == 0 && json_is_string(thinking))
        return json_array_append(s->thoughts, thinking) == 0 || srv_no_memory(x);
    if (strcmp(type, "text") == 0 && json_is_string(text))
        return srv_block_add(x, s->parts, text);
    return strcmp(type, "text") == 0 ? srv_missing(x, "text") : srv_block_refuse(x, where, type);
}

/* What the assistant said last is one turn with what it says now; a borrowed value. NULL: the last
 * turn is not the assistant's. */
static json_t *open_turn(const json_t *messages)
{
    size_t n = json_array_size(messages);
    json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "assistant") == 0 ? last : NULL;
}

/* Adds what is in the list to the member, which is a list too or not there yet. */
static int add_to(json_t *turn, const char *member, json_t *list)
{
    json_t *there = json_object_get(turn, member);
    return there ? json_array_extend(there, list) : json_object_set(turn, member, list);
}

static bool push_spoken(srv_exchange *x, const spoken *s, json_t *messages)
{
    json_t *m = json_incref(open_turn(messages));
    int bad = 0;
    if (!m) {
        m = json_pack("{s:s}", "role", "assistant");
        bad |= json_array_append(messages, m);
    }
    bad |= add_to(m, "content", s->parts);
    if (json_array_size(s->calls))
        bad |= add_to(m, "tool_calls", s->calls);
    if (json_array_size(s->thoughts))
        bad |= add_to(m, THOUGHTS, s->thoughts);
    json_decref(m);
    return !bad || srv_no_memory(x);
}

static bool read_assistant(srv_exchange *x, json_t *content, const char *where, json_t *messages)
{
    spoken s = {json_array(), json_array(), json_array()};
    json_t *block;
    size_t i;
    bool ok = (s.parts && s.calls && s.thoughts) || srv_no_memory(x);
    if (ok && !json_is_array(content))
        ok = srv_block_texts(x, content, where, s.parts);
    else
        json_array_foreach(content, i, block)
        {
            ok = ok && read_assistant_block(x, block, where, &s);
        }
    ok = ok && (open_turn(messages) || srv_block_or_empty(x, s.parts)) &&
         push_spoken(x, &s, messages);
    json_decref(s.parts);
    json_decref(s.calls);
    json_decref(s.thoughts);
    return ok;
}

/* ---- messages ---- */

/* What the system says, in `system` or between turns. Nothing: no turn. */
static bool read_system(srv_exchange *x, json_t *system, const char *where, json_t *messages)
{
    if (!system || (json_is_string(system) && json_string_length(system) == 0))
        return true;
    json_t *parts = json_array();
    bool ok = parts ? srv_block_texts(x, system, where, parts) : srv_no_memory(x);
    if (ok && json_array_size(parts))
        ok = push(x, messages, json_pack("{s:s, s:O}", "role", "system", "content", parts));
    json_decref(parts);
    return ok;
}

static bool read_message(srv_exchange *x, json_t *message, size_t i, json_t *messages)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = srv_field(message, "content");
    char where[64];
    snprintf(where, sizeof where, "messages.%zu.content", i);
    if (!role)
        return srv_missing(x, "messages.role");
    if (!content)
        return srv_missing(x, where);
    if (strcmp(role, "user") == 0 && json_is_array(content) && json_array_size(content) == 0)
        return srv_field_wrong(x, where, "a text or a list with one block at least");
    if (strcmp(role, "user") == 0)
        return read_user(x, content, where, messages);
    if (strcmp(role, "assistant") == 0)
        return read_assistant(x, content, where, messages);
    if (strcmp(role, "system") == 0)
        return read_system(x, content, where, messages);
    snprintf(where, sizeof where, "messages.%zu.role", i);
    return srv_field_wrong(x, where, "'user', 'assistant' or 'system'");
}

/* Thoughts of a turn become one text. */
static bool join_thoughts(srv_exchange *x, json_t *message)
{
    size_t i;
    json_t *thought, *all = json_object_get(message, THOUGHTS);
    srv_textbuf text = {0};
    if (!all)
        return true;
    json_array_foreach(all, i, thought)
    {
        srv_textbuf_str(&text, i ? "\n" : "");
        srv_textbuf_add(&text, json_string_value(thought), json_string_length(thought));
    }
    int bad = json_object_set_new(message, "reasoning_content", srv_json_buf(&text));
    json_object_del(message, THOUGHTS);
    srv_textbuf_free(&text);
    return !bad || srv_no_memory(x);
}

static bool read_messages(srv_exchange *x, json_t *body, srv_anthropic *r)
{
    json_t *given = NULL, *message;
    size_t i;
    if (!srv_field_array(x, body, "messages", SIZE_MAX, &given))
        return false;
    if (!given)
        return srv_missing(x, "messages");
    if (json_array_size(given) == 0)
        return srv_field_wrong(x, "messages", "a list with one message at least");
    bool ok = read_system(x, srv_field(body, "system"), "system", r->messages);
    json_array_foreach(given, i, message)
    {
        ok = ok && read_message(x, message, i, r->messages);
    }
    json_array_foreach(r->messages, i, message)
    {
        ok = ok && join_thoughts(x, message);
    }
    r->ask.messages = r->messages;
    return ok;
}

/* ---- tools ---- */

static bool read_tool(srv_exchange *x, json_t *tool, json_t *tools)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    json_t *name = json_object_get(tool, "name"), *about = srv_field(tool, "description");
    json_t *schema = json_object_get(tool, "input_schema");
    if (type && strcmp(type, "custom") != 0)
        return true; /* known by a type alone, to Anthropic's models: here they do not exist */
    if (!json_is_string(name))
        return srv_missing(x, "tools.name");
    if (!json_is_object(schema))
        return srv_missing(x, "tools.input_schema");
    json_t *made = json_pack("{s:s, s:{s:O, s:O}}", "type", "function", "function", "name", name,
                             "parameters", schema);
    int bad = json_is_string(about) &&
              json_object_set(json_object_get(made, "function"), "description", about);
    bad |= json_array_append(tools, made);
    json_decref(made);
    return !bad || srv_no_memory(x);
}

static bool read_tools(srv_exchange *x, json_t *body, srv_anthropic *r)
{
    json_t *given = NULL, *tool;
    size_t i;
    bool ok = srv_field_array(x, body, "tools", SIZE_MAX, &given);
    json_array_foreach(given, i, tool)
    {
        ok = ok && read_tool(x, tool, r->tools);
    }
    r->ask.tools = json_array_size(r->tools) ? r->tools : NULL;
    return ok;
}

/* auto, any, tool, none in OpenAI's words; NULL: no such word, or no memory. */
static json_t *choice_of(const char *type, const char *name)
{
    if (strcmp(type, "tool") == 0 && name)
        return json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name);
    if (strcmp(type, "any") == 0)
        return json_string("required");
    return strcmp(type, "auto") == 0 || strcmp(type, "none") == 0 ? json_string(type) : NULL;
}

static bool read_tool_choice(srv_exchange *x, json_t *body, srv_anthropic *r)
{
    json_t *choice = NULL;
    if (!srv_field_object(x, body, "tool_choice", &choice))
        return false;
    if (!choice)
        return true;
    if (!srv_field_bool(x, choice, "disable_parallel_tool_use", &r->ask.one_call))
        return false;
    r->tool_choice =
        choice_of(srv_block_type(choice), json_string_value(json_object_get(choice, "name")));
    r->ask.tool_choice = r->tool_choice;
    return r->tool_choice ||
           srv_field_wrong(x, "tool_choice.type", "'auto', 'any', 'none', or 'tool' with a name");
}

/* ---- thinking, sampling ---- */

static bool read_thinking(srv_exchange *x, json_t *body, srv_anthropic *r)
{
    json_t *thinking = NULL;
    if (!srv_field_object(x, body, "thinking", &thinking))
        return false;
    const char *type = thinking ? srv_block_type(thinking) : "disabled";
    const char *display = json_string_value(json_object_get(thinking, "display"));
    bool on = strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0 ||
              strcmp(type, "between_tools") == 0;
    if (!on && strcmp(type, "disabled") != 0)
        return srv_field_wrong(x, "thinking.type",
                               "'enabled', 'adaptive', 'between_tools' or 'disabled'");
    r->kwargs = json_pack("{s:b}", "enable_thinking", on);
    r->ask.template_kwargs = r->kwargs;
    r->ask.split_reasoning = true; /* some models think whatever they are told */
    r->ask.hide_reasoning = !on || (display && strcmp(display, "omitted") == 0);
    return r->kwargs || srv_no_memory(x);
}

/* The answer is JSON of a schema: output_config.format, or output_format as it was called first. */
static bool read_format(srv_exchange *x, json_t *body, srv_anthropic *r)
{
    json_t *config = NULL, *format = NULL;
    if (!srv_field_object(x, body, "output_config", &config) ||
        !srv_field_object(x, body, "output_format", &format))
        return false;
    const char *param = srv_field(config, "format") ? "output_config.format" : "output_format";
    format = srv_field(config, "format") ? srv_field(config, "format") : format;
    if (!format)
        return true;
    r->ask.schema = json_object_get(format, "schema");
    return (strcmp(srv_block_type(format), "json_schema") == 0 && json_is_object(r->ask.schema)) ||
           srv_field_wrong(x, param, "an object whose type is \"json_schema\", with a schema");
}

/* More tokens than the server allows are cut to what it does: clients always ask for many, and the
 * stop reason says that there were no more. */
static json_int_t most_tokens(srv_exchange *x, int64_t wanted)
{
    size_t most = srv_server_of(x)->config->max_tokens;
    return most && (uint64_t)wanted > most ? (json_int_t)most : (json_int_t)wanted;
}

/* Fields that have OpenAI's meaning under another name, or other bounds. */
static bool read_sampling(srv_exchange *x, json_t *body, srv_anthropic *r)
{
    static const char *const same[] = {"temperature", "top_p", "top_k", "priority", "timeout_ms"};
    json_t *stops = NULL;
    double temperature = 1.0;
    int64_t most = 0;
    if (!srv_field(body, "max_tokens"))
        return srv_missing(x, "max_tokens");
    if (!srv_field_int(x, body, "max_tokens", 0, INT32_MAX, &most) ||
        !srv_field_number(x, body, "temperature", 0.0, 1.0, &temperature) ||
        !srv_field_array(x, body, "stop_sequences", 64, &stops) ||
        !srv_field_bool(x, body, "stream", &r->stream))
        return false;
    r->ask.whole_calls = !r->stream;
    r->ask.no_tokens = true; /* 0: the prompt is read into the cache */
    r->sampling = json_pack("{s:f, s:f, s:i}", "temperature", 1.0, "top_p", 1.0, "top_k", 0);
    int bad = !r->sampling;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (srv_field(body, same[i]))
            bad |= json_object_set(r->sampling, same[i], srv_field(body, same[i]));
    bad |= json_object_set_new(r->sampling, "max_tokens", json_integer(most_tokens(x, most)));
    if (stops && json_array_size(stops))
        bad |= json_object_set(r->sampling, "stop_sequences", stops);
    return bad ? srv_no_memory(x) : srv_ask_read_sampling(x, &r->ask, r->sampling);
}

bool srv_anthropic_read(srv_exchange *x, bool counting, srv_anthropic *r)
{
    json_t *body = srv_body_json(x);
    *r = (srv_anthropic){0};
    srv_ask_init(&r->ask);
    if (!body)
        return false;
    r->ask.words.stop = "stop_sequences";
    r->ask.words.too_long = "prompt is too long: %zu tokens > %zu maximum"; /* clients know it */
    r->messages = json_array();
    r->tools = json_array();
    if (!r->messages || !r->tools)
        return srv_no_memory(x);
    if (!srv_field_text(x, body, "model", 256, &r->ask.model))
        return false;
    if (!r->ask.model)
        return srv_missing(x, "model");
    return read_messages(x, body, r) && read_tools(x, body, r) && read_tool_choice(x, body, r) &&
           read_thinking(x, body, r) &&
           (counting || (read_format(x, body, r) && read_sampling(x, body, r)));
}

void srv_anthropic_free(srv_anthropic *r)
{
    srv_ask_free(&r->ask);
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->tool_choice);
    json_decref(r->sampling);
    json_decref(r->kwargs);
}
