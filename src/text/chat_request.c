/* chat_request.c - a conversation as servers receive it, {"messages": [...], "tools": [...], ...},
 * rendered: by the file's own template with everything in it, or by a built-in form, which has
 * roles and texts alone and refuses the rest by name. */
#include "text/chat.h"

#include "format/json_file.h"
#include "jinja/jinja.h"
#include "text/chat_values.h"
#include "text/vocab.h"

typedef struct request {
    json_t *root;
    const json_t *messages, *tools, *documents, *more; /* NULL: not given, null or empty */
    bool reply;
} request;

/* ---- reading ---- */

static const json_t *given(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    bool empty = (json_is_array(v) && json_array_size(v) == 0) ||
                 (json_is_object(v) && json_object_size(v) == 0);
    return json_is_null(v) || empty ? NULL : v;
}

static bitnet_status check_fields(json_t *root, bitnet_error *err)
{
    static const struct {
        const char *name, *wanted;
        json_type type;
    } fields[] = {
        {"messages", "a list", JSON_ARRAY},
        {"tools", "a list", JSON_ARRAY},
        {"documents", "a list", JSON_ARRAY},
        {"chat_template_kwargs", "an object", JSON_OBJECT},
        {"add_generation_prompt", "true or false", JSON_TRUE},
    };
    const char *key;
    char quoted[64];
    json_t *v;
    json_object_foreach(root, key, v)
    {
        size_t i = 0;
        while (i < BNET_COUNT(fields) && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == BNET_COUNT(fields))
            return bnet_fail(err, BITNET_ARGUMENT, "chat request: \"%s\" is not a field of it",
                             bnet_quote(key, strlen(key), quoted, sizeof quoted));
        bool fits = json_typeof(v) == fields[i].type ||
                    (fields[i].type == JSON_TRUE && json_is_false(v)) || (i > 0 && json_is_null(v));
        if (!fits)
            return bnet_fail(err, BITNET_ARGUMENT, "chat request: %s must be %s", key,
                             fields[i].wanted);
    }
    return BITNET_OK;
}

static bitnet_status read_request(bnet_span text, request *r, bitnet_error *err)
{
    char why[160];
    bitnet_status status =
        bnet_json_load(text.data, text.n, "chat request", &r->root, why, sizeof why, err);
    if (status != BITNET_OK)
        return status;
    if (!r->root)
        return bnet_fail(err, BITNET_ARGUMENT, "chat request: %s", why);
    if (!json_is_object(r->root) || !json_is_array(json_object_get(r->root, "messages")))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "chat request: it must be an object with a list \"messages\"");
    r->messages = json_object_get(r->root, "messages");
    r->tools = given(r->root, "tools");
    r->documents = given(r->root, "documents");
    r->more = given(r->root, "chat_template_kwargs");
    r->reply = !json_is_false(json_object_get(r->root, "add_generation_prompt"));
    return check_fields(r->root, err);
}

/* One of the roles there are: a template may write any other word between the brackets of a mark.
 */
static bitnet_status role_of(const json_t *message, size_t i, const char **role, bitnet_error *err)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    const char *given_role = json_string_value(json_object_get(message, "role"));
    char quoted[64];
    if (!json_is_object(message))
        return bnet_fail(err, BITNET_ARGUMENT, "message %zu is not an object", i);
    for (size_t k = 0; given_role && k < BNET_COUNT(roles); k++)
        if (strcmp(given_role, roles[k]) == 0) {
            *role = roles[k];
            return BITNET_OK;
        }
    return bnet_fail(
        err, BITNET_ARGUMENT,
        "message %zu: role \"%s\" is not system, developer, user, assistant or tool", i,
        given_role ? bnet_quote(given_role, strlen(given_role), quoted, sizeof quoted) : "(none)");
}

static bitnet_status add_part(const json_t *part, size_t i, size_t k, bnet_str *out,
                              bitnet_error *err)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    char quoted[64];
    if (!type || strcmp(type, "text") != 0)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "message %zu: part %zu of its content is of type \"%s\"; only text can be "
                         "read here",
                         i, k, type ? bnet_quote(type, strlen(type), quoted, sizeof quoted) : "");
    if (!json_is_string(text))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "message %zu: part %zu of its content has no string \"text\"", i, k);
    if (k)
        bnet_str_putc(out, '\n');
    bnet_str_add(out, json_string_value(text), json_string_length(text));
    return BITNET_OK;
}

/* Appends the text of a message, parts in lines of their own. What the assistant said may be
 * nothing: it may have called tools. */
static bitnet_status add_content(const json_t *message, const char *role, size_t i, bnet_str *out,
                                 bitnet_error *err)
{
    const json_t *content = json_object_get(message, "content");
    bitnet_status status = BITNET_OK;
    bnet_str_puts(out, "");
    if (json_is_string(content))
        bnet_str_add(out, json_string_value(content), json_string_length(content));
    for (size_t k = 0; k < json_array_size(content) && status == BITNET_OK; k++)
        status = add_part(json_array_get(content, k), i, k, out, err);
    bool none = !content || json_is_null(content);
    if (!json_is_string(content) && !json_is_array(content) &&
        !(none && strcmp(role, "assistant") == 0))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "message %zu (%s): its content must be a string or a list of parts", i,
                         role);
    if (status == BITNET_OK && out->failed)
        return bnet_no_memory(err, "chat text");
    return status;
}

/* ---- by a built-in form ---- */

typedef struct plain_talk {
    bitnet_message *messages;
    bnet_str *texts;
    size_t n;
} plain_talk;

static bitnet_status plain_message(const json_t *m, size_t i, const char *form, plain_talk *talk,
                                   bitnet_error *err)
{
    const char *role = NULL;
    bitnet_status status = role_of(m, i, &role, err);
    if (status != BITNET_OK)
        return status;
    bool calls = given(m, "tool_calls") != NULL;
    if (calls || strcmp(role, "tool") == 0 || strcmp(role, "function") == 0)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "message %zu: the chat template '%s' has no place for %s of tools", i,
                         form, calls ? "calls" : "answers");
    status = add_content(m, role, i, &talk->texts[i], err);
    talk->messages[i] =
        (bitnet_message){strcmp(role, "developer") == 0 ? "system" : role, talk->texts[i].data};
    return status;
}

static bitnet_status render_plain(const bnet_chat_template *c, const bnet_tokenizer *t,
                                  const request *r, bnet_str *out, bitnet_error *err)
{
    plain_talk talk = {.n = json_array_size(r->messages)};
    bitnet_status status = BITNET_OK;
    if (r->tools)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "tools: the chat template '%s' does not show tools to the model; leave "
                         "them out",
                         bnet_chat_name(c));
    talk.messages = bnet_calloc(talk.n, sizeof *talk.messages);
    talk.texts = bnet_calloc(talk.n, sizeof *talk.texts);
    if (!talk.messages || !talk.texts)
        status = bnet_no_memory(err, "chat text");
    for (size_t i = 0; i < talk.n && status == BITNET_OK; i++)
        status = plain_message(json_array_get(r->messages, i), i, bnet_chat_name(c), &talk, err);
    if (status == BITNET_OK)
        status = bnet_chat_render(c, t, talk.messages, talk.n, r->reply, out, err);
    for (size_t i = 0; talk.texts && i < talk.n; i++)
        bnet_str_free(&talk.texts[i]);
    bnet_free(talk.texts);
    bnet_free(talk.messages);
    return status;
}

/* ---- by the file's own ---- */

static int add_bytes(const char *bytes, size_t n, void *out)
{
    bnet_str_add(out, bytes, n);
    return ((bnet_str *)out)->failed ? -1 : 0;
}

/* Appends the text of an object as Python writes it, which tojson of our own does. */
static bitnet_status add_text_of(const json_t *tree, bnet_str *out, bitnet_error *err)
{
    static const char source[] = "{{ o | tojson }}";
    bnet_str values = {0};
    bnet_str_puts(&values, "{\"o\":");
    bool dumped =
        json_dump_callback(tree, add_bytes, &values, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0;
    bnet_str_putc(&values, '}');
    bitnet_status status = BITNET_OK;
    if (!dumped || values.failed)
        status = bnet_no_memory(err, "arguments of a call");
    else
        status = bnet_jinja_render((bnet_span){source, sizeof source - 1},
                                   (bnet_span){values.data, values.n}, NULL, out, err);
    bnet_str_free(&values);
    return status;
}

static bitnet_status text_of(const json_t *tree, json_t **out, bitnet_error *err)
{
    bnet_str text = {0};
    bitnet_status status = add_text_of(tree, &text, err);
    if (status == BITNET_OK) {
        *out = json_stringn(text.data, text.n);
        status = *out ? BITNET_OK : bnet_no_memory(err, "arguments of a call");
    }
    bnet_str_free(&text);
    return status;
}

/* The object whose text this is; NULL: it is no object's. */
static bitnet_status object_of(const json_t *text, json_t **out, bitnet_error *err)
{
    char why[160];
    bitnet_status status = bnet_json_load_last(json_string_value(text), json_string_length(text),
                                               "arguments of a call", out, why, sizeof why, err);
    if (status == BITNET_OK && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

/* The arguments of calls become what the template expects: most an object, some its text. The
 * field's servers exchange the text. What is neither stays as it is. */
static bitnet_status fit_arguments(const bnet_chat_own *o, const json_t *message, bitnet_error *err)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    bitnet_status status = BITNET_OK;
    for (size_t i = 0; i < json_array_size(calls) && status == BITNET_OK; i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function"), *other = NULL;
        const json_t *given_as = json_object_get(function, "arguments");
        if (o->text_arguments && json_is_object(given_as))
            status = text_of(given_as, &other, err);
        else if (!o->text_arguments && json_is_string(given_as))
            status = object_of(given_as, &other, err);
        if (other && json_object_set_new(function, "arguments", other) != 0)
            status = bnet_no_memory(err, "arguments of a call");
    }
    return status;
}

static bool knows(const bnet_chat_own *o, const char *word)
{
    return memmem(o->source.data, o->source.n, word, strlen(word)) != NULL;
}

static const char *role_for(const bnet_chat_own *o, const char *role)
{
    if (strcmp(role, "developer") == 0 && !knows(o, role))
        return "system";
    return strcmp(role, "function") == 0 ? "tool" : role;
}

static void write_members(bnet_values *v, json_t *message)
{
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value)
    {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 || json_is_null(value) ||
            (strcmp(key, "tool_calls") == 0 && !given(message, key)))
            continue;
        bnet_values_comma(v);
        bnet_values_text(v, (bnet_span){key, strlen(key)}, BNET_GUARD_KEY);
        bnet_str_putc(&v->text, ':');
        bnet_values_tree(v, value);
    }
}

/* `calls`: of tools, beside which a template may want no content rather than an empty one. */
static void write_turn(bnet_values *v, const char *role, bnet_span text, bool calls)
{
    bool reply = strcmp(role, "assistant") == 0;
    bnet_values_comma(v);
    bnet_str_addf(&v->text, "{\"role\":\"%s\",\"content\":", role_for(v->own, role));
    if (calls && text.n == 0 && v->own->null_content)
        bnet_str_puts(&v->text, "null");
    else
        bnet_values_content(v, text, reply ? BNET_GUARD_REPLY : BNET_GUARD_TEXT);
}

static bitnet_status write_message(bnet_values *v, json_t *message, size_t i, bitnet_error *err)
{
    const char *role = NULL;
    bnet_str text = {0};
    bitnet_status status = role_of(message, i, &role, err);
    if (status == BITNET_OK)
        status = add_content(message, role, i, &text, err);
    if (status == BITNET_OK)
        status = fit_arguments(v->own, message, err);
    if (status == BITNET_OK) {
        write_turn(v, role, (bnet_span){text.data, text.n}, given(message, "tool_calls") != NULL);
        write_members(v, message);
        bnet_str_putc(&v->text, '}');
    }
    bnet_str_free(&text);
    return status;
}

/* What a request adds to the variables. Those of the conversation keep their meaning. */
static bitnet_status write_more(bnet_values *v, json_t *more, bitnet_error *err)
{
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    const char *key;
    json_t *value;
    json_object_foreach(more, key, value)
    {
        for (size_t i = 0; i < BNET_COUNT(taken); i++)
            if (strcmp(key, taken[i]) == 0)
                return bnet_fail(err, BITNET_ARGUMENT,
                                 "chat_template_kwargs: \"%s\" is a field of the request itself",
                                 key);
        bnet_values_comma(v);
        bnet_values_text(v, (bnet_span){key, strlen(key)}, BNET_GUARD_KEY);
        bnet_str_putc(&v->text, ':');
        bnet_values_tree(v, value);
    }
    return BITNET_OK;
}

static bitnet_status finish(bnet_values *v, bnet_str *out, bitnet_error *err)
{
    bnet_str_putc(&v->text, '}');
    if (v->text.failed)
        return bnet_no_memory(err, "values of a chat template");
    return bnet_chat_own_render(v->own, (bnet_span){v->text.data, v->text.n}, out, err);
}

static bitnet_status render_own(const bnet_chat_own *o, const request *r, bnet_str *out,
                                bitnet_error *err)
{
    bnet_values v = {.own = o};
    bitnet_status status = BITNET_OK;
    if (r->tools && !o->tools)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "tools: the file's own chat template does not show tools to the model; "
                         "leave them out");
    bnet_str_puts(&v.text, "{\"messages\":[");
    for (size_t i = 0; i < json_array_size(r->messages) && status == BITNET_OK; i++)
        status = write_message(&v, json_array_get(r->messages, i), i, err);
    bnet_str_putc(&v.text, ']');
    bnet_values_rest(&v, r->tools, r->documents, r->reply);
    if (status == BITNET_OK && r->more)
        status = write_more(&v, json_object_get(r->root, "chat_template_kwargs"), err);
    if (status == BITNET_OK)
        status = finish(&v, out, err);
    bnet_values_close(&v);
    return status;
}

bitnet_status bnet_chat_own_talk(const bnet_chat_own *o, const bitnet_message *messages, size_t n,
                                 bool reply, bnet_str *out, bitnet_error *err)
{
    bnet_values v = {.own = o};
    bnet_str_puts(&v.text, "{\"messages\":[");
    for (size_t i = 0; i < n; i++) {
        write_turn(&v, messages[i].role, (bnet_span){messages[i].text, strlen(messages[i].text)},
                   false);
        bnet_str_putc(&v.text, '}');
    }
    bnet_str_putc(&v.text, ']');
    bnet_values_rest(&v, NULL, NULL, reply);
    bitnet_status status = finish(&v, out, err);
    bnet_values_close(&v);
    return status;
}

bitnet_status bnet_chat_render_json(const bnet_chat_template *c, const bnet_tokenizer *t,
                                    bnet_span text, bnet_str *out, bitnet_error *err)
{
    request r = {0};
    bitnet_status status = read_request(text, &r, err);
    if (status == BITNET_OK && bnet_chat_is_own(c)) {
        status = bnet_chat_own_check(t, err);
        if (status == BITNET_OK)
            status = render_own(t->own, &r, out, err);
    } else if (status == BITNET_OK) {
        status = render_plain(c, t, &r, out, err);
    }
    json_decref(r.root);
    return status;
}
