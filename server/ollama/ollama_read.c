/* ollama_read.c - translates a request of Ollama's chat and generate: messages
 * whose tool calls have objects as arguments, options under names of their own, format, think. */
#include "ollama/ollama_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ask/fields.h"
#include "http/refuse.h"
#include "server.h"

/* ---- the model's name ---- */

bool srv_ollama_model(srv_exchange *x, json_t *body, const char **called)
{
    *called = NULL;
    if (!srv_field_text(x, body, "model", SRV_OLLAMA_NAME_MAX - 1, called))
        return false;
    if (!*called && !srv_field_text(x, body, "name", SRV_OLLAMA_NAME_MAX - 1, called))
        return false;
    if (!*called || !**called)
        return srv_missing(x, "model");
    return true;
}

/* ---- messages ---- */

/* {"function": {"name", "arguments": object}} as OpenAI has it: with an id. */
static json_t *call_of(json_t *given, size_t i)
{
    json_t *function = json_object_get(given, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    const char *id = json_string_value(json_object_get(given, "id"));
    char made[32];
    snprintf(made, sizeof made, "call_%zu", i);
    return json_pack("{s:s, s:s, s:{s:s, s:O*}}", "id", id ? id : made, "type", "function",
                     "function", "name", name ? name : "", "arguments",
                     srv_field(function, "arguments"));
}

static bool read_calls(srv_exchange *x, json_t *message, json_t *made)
{
    json_t *given = NULL, *call, *calls;
    size_t i;
    if (!srv_field_array(x, message, "tool_calls", 128, &given))
        return false;
    if (!json_array_size(given))
        return true;
    calls = json_array();
    json_array_foreach(given, i, call)
    {
        if (json_array_append_new(calls, call_of(call, i)))
            break;
    }
    bool ok =
        calls && i == json_array_size(given) && json_object_set(made, "tool_calls", calls) == 0;
    json_decref(calls);
    return ok || srv_no_memory(x);
}

/* Texts of a message that keep their meaning under OpenAI's name. */
static int copy_texts(json_t *message, json_t *made)
{
    static const char *const names[][2] = {
        {"thinking", "reasoning_content"}, {"tool_name", "name"}, {"tool_call_id", "tool_call_id"}};
    int bad = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(message, names[i][0]);
        if (json_is_string(v) && json_string_length(v))
            bad |= json_object_set(made, names[i][1], v);
    }
    return bad;
}

static bool read_message(srv_exchange *x, json_t *message, json_t *messages)
{
    const char *role = NULL;
    json_t *content = srv_field(message, "content");
    if (!json_is_object(message))
        return srv_field_wrong(x, "messages", "a list of objects");
    if (!srv_field_text(x, message, "role", 64, &role) ||
        !srv_field_refuse(x, message, "images", "this server reads text"))
        return false;
    if (!role)
        return srv_missing(x, "role");
    if (content && !json_is_string(content))
        return srv_field_wrong(x, "content", "a string");
    json_t *made = json_pack("{s:s}", "role", role);
    int bad = content ? json_object_set(made, "content", content)
                      : json_object_set_new(made, "content", json_string(""));
    bad |= copy_texts(message, made);
    bool ok = !bad || srv_no_memory(x);
    ok = ok && read_calls(x, message, made);
    ok = ok && (json_array_append(messages, made) == 0 || srv_no_memory(x));
    json_decref(made);
    return ok;
}

static bool read_messages(srv_exchange *x, json_t *body, srv_ollama *r)
{
    json_t *given = NULL, *message;
    size_t i;
    bool ok = srv_field_array(x, body, "messages", SIZE_MAX, &given);
    json_array_foreach(given, i, message)
    {
        ok = ok && read_message(x, message, r->messages);
    }
    r->nothing = json_array_size(given) == 0;
    r->ask.messages = r->messages;
    return ok && srv_field_array(x, body, "tools", SIZE_MAX, &r->ask.tools);
}

/* ---- the prompt of /api/generate ---- */

static bool add_turn(srv_exchange *x, json_t *messages, const char *role, const json_t *text)
{
    return json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", role, "content",
                                                     json_string_value(text),
                                                     json_string_length(text))) == 0 ||
           srv_no_memory(x);
}

static bool read_prompt(srv_exchange *x, json_t *body, srv_ollama *r)
{
    json_t *prompt = srv_field(body, "prompt"), *system = srv_field(body, "system");
    bool raw = false;
    if (!srv_field_bool(x, body, "raw", &raw) ||
        !srv_field_refuse(x, body, "suffix", "the models here do not fill in the middle") ||
        !srv_field_refuse(x, body, "images", "this server reads text") ||
        !srv_field_refuse(x, body, "context", "send the conversation to /api/chat instead") ||
        !srv_field_refuse(x, body, "template",
                          "the model's own is used; raw sends a text as it is"))
        return false;
    if ((prompt && !json_is_string(prompt)) || (system && !json_is_string(system)))
        return srv_field_wrong(x, prompt && !json_is_string(prompt) ? "prompt" : "system",
                               "a string");
    r->nothing = !prompt || json_string_length(prompt) == 0;
    if (r->nothing)
        return true;
    if (raw) {
        r->ask.text = json_string_value(prompt);
        r->ask.n_text = json_string_length(prompt);
        return true;
    }
    r->ask.messages = r->messages;
    return (!system || !json_string_length(system) || add_turn(x, r->messages, "system", system)) &&
           add_turn(x, r->messages, "user", prompt);
}

/* ---- options ---- */

/* These mean the same to the other APIs. */
enum { LONGEST_WINDOW = 1 << 20 }; /* tokens that are looked back on */
static const char *const same[] = {
    "temperature",       "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "stop"};

/* A number beyond the bounds of the other APIs, which Ollama does not have, is the nearest one
 * within; a new value. */
static json_t *bounded(const char *name, json_t *v)
{
    static const struct {
        const char *name;
        double least, most;
    } bounds[] = {
#define NUMBER(name, member, least, most) {name, least, most},
#include "ask/sampling_fields.inc"
#undef NUMBER
    };
    for (size_t i = 0; json_is_number(v) && i < sizeof bounds / sizeof *bounds; i++)
        if (strcmp(bounds[i].name, name) == 0)
            return json_real(fmin(fmax(json_number_value(v), bounds[i].least), bounds[i].most));
    return json_incref(v);
}

/* More than the server allows is cut to what it does. */
static json_int_t most_tokens(srv_exchange *x, int64_t wanted)
{
    size_t most = srv_server_of(x)->config->max_tokens;
    return most && (uint64_t)wanted > most ? (json_int_t)most : (json_int_t)wanted;
}

/* Numbers that mean "none" or "all" there when they are negative. */
static bool read_counts(srv_exchange *x, json_t *options, srv_ollama *r)
{
    int64_t most = -1, seed = -1, window = 64, top_k = 40;
    int bad = 0;
    if (!srv_field_int(x, options, "num_predict", INT64_MIN, INT64_MAX, &most) ||
        !srv_field_int(x, options, "seed", INT64_MIN, INT64_MAX, &seed) ||
        !srv_field_int(x, options, "top_k", INT64_MIN, INT64_MAX, &top_k) ||
        !srv_field_int(x, options, "repeat_last_n", INT64_MIN, INT64_MAX, &window))
        return false;
    top_k = top_k < -1 ? -1 : top_k > INT32_MAX ? INT32_MAX : top_k;
    bad |= json_object_set_new(r->sampling, "top_k", json_integer(top_k));
    most = most > INT32_MAX ? INT32_MAX : most;
    window = window > LONGEST_WINDOW ? LONGEST_WINDOW : window;
    if (most > 0)
        bad |= json_object_set_new(r->sampling, "max_tokens", json_integer(most_tokens(x, most)));
    if (seed >= 0)
        bad |= json_object_set_new(r->sampling, "seed", json_integer(seed));
    if (window == 0)
        bad |= json_object_set_new(r->sampling, "repeat_penalty", json_real(1.0));
    r->ask.penalise_prompt = true;
    r->ask.job.sampling.penalty_window = window < 0 ? 0 : window == 0 ? 64 : (int)window;
    return !bad || srv_no_memory(x);
}

static bool read_options(srv_exchange *x, json_t *body, srv_ollama *r)
{
    json_t *options = NULL;
    if (!srv_field_object(x, body, "options", &options))
        return false;
    r->sampling = json_pack("{s:f, s:f}", "temperature", 0.8, "top_p", 0.9);
    int bad = !r->sampling;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *v = srv_field(options, same[i]);
        if (v)
            bad |= json_object_set_new(r->sampling, same[i], bounded(same[i], v));
    }
    if (bad)
        return srv_no_memory(x);
    return read_counts(x, options, r) && srv_ask_read_sampling(x, &r->ask, r->sampling);
}

/* "json", a schema, or nothing. */
static bool read_format(srv_exchange *x, json_t *body, srv_ollama *r)
{
    json_t *format = srv_field(body, "format");
    if (!format || (json_is_string(format) && json_string_length(format) == 0))
        return true;
    if (json_is_object(format))
        r->ask.schema = format;
    else if (json_is_string(format) && strcmp(json_string_value(format), "json") == 0)
        r->ask.json_object = true;
    else
        return srv_field_wrong(x, "format", "\"json\" or a JSON schema");
    return true;
}

static bool is_amount(const char *word)
{
    return word && (strcmp(word, "low") == 0 || strcmp(word, "medium") == 0 ||
                    strcmp(word, "high") == 0 || strcmp(word, "max") == 0);
}

/* true, false, or how much ("low", "medium", "high"): any of these is a yes here. Without it the
 * model does as it does. What it thinks is told apart in any case. */
static bool read_think(srv_exchange *x, json_t *body, srv_ollama *r)
{
    json_t *think = srv_field(body, "think");
    r->ask.split_reasoning = true;
    if (!think)
        return true;
    if (!json_is_boolean(think) && !is_amount(json_string_value(think)))
        return srv_field_bad(x, "think", think,
                             "true, false, \"low\", \"medium\", \"high\" or \"max\"");
    bool on = !json_is_false(think);
    r->kwargs = json_pack("{s:b}", "enable_thinking", on);
    r->ask.template_kwargs = r->kwargs;
    return r->kwargs || srv_no_memory(x);
}

/* Models stay until others need their memory, so of a time to keep them only "not at all" counts.
 */
static bool read_keep_alive(srv_exchange *x, json_t *body, srv_ollama *r)
{
    json_t *keep = srv_field(body, "keep_alive");
    if (keep && !json_is_number(keep) && !json_is_string(keep))
        return srv_field_wrong(x, "keep_alive", "seconds, or a time such as \"5m\"");
    const char *text = json_string_value(keep);
    r->unload = keep && (text ? text[0] == '0' && strspn(text, "0smh.") == strlen(text)
                              : json_number_value(keep) == 0);
    return true;
}

bool srv_ollama_read(srv_exchange *x, bool chat, srv_ollama *r)
{
    json_t *body = srv_body_json(x);
    *r = (srv_ollama){.chat = chat, .stream = true};
    srv_ask_init(&r->ask);
    r->ask.whole_calls = true; /* in a stream, too */
    if (!body)
        return false;
    r->ask.words = (srv_words){.said = chat ? NULL : "prompt", .form = "format", .no_tools = ""};
    r->messages = json_array();
    if (!r->messages)
        return srv_no_memory(x);
    if (!srv_ollama_model(x, body, &r->called))
        return false;
    r->ask.model = r->called;
    r->ask.drop_oldest = true;
    return srv_field_bool(x, body, "stream", &r->stream) &&
           srv_field_bool(x, body, "truncate", &r->ask.drop_oldest) &&
           read_keep_alive(x, body, r) &&
           (chat ? read_messages(x, body, r) : read_prompt(x, body, r)) &&
           read_format(x, body, r) && read_think(x, body, r) && read_options(x, body, r);
}

void srv_ollama_free(srv_ollama *r)
{
    srv_ask_free(&r->ask);
    json_decref(r->messages);
    json_decref(r->sampling);
    json_decref(r->kwargs);
}
