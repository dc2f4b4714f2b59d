/* conversation.c - who said what: growing, forgetting, saving, loading. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

void conversation_add(conversation *c, const char *role, const char *bytes)
{
    if (c->n == c->cap) {
        c->cap = c->cap * 2 + 16;
        c->turns = xrealloc(c->turns, c->cap * sizeof *c->turns);
    }
    c->turns[c->n++] = (turn_text){role, xstrdup(bytes)};
}

void conversation_pop(conversation *c)
{
    if (c->n)
        free(c->turns[--c->n].text);
}

void conversation_clear(conversation *c)
{
    while (c->n)
        conversation_pop(c);
}

void conversation_free(conversation *c)
{
    conversation_clear(c);
    free(c->turns);
    free(c->system);
    *c = (conversation){0};
}

static bool is_question(const turn_text *t)
{
    return strcmp(t->role, "user") == 0;
}

size_t conversation_exchanges(const conversation *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += is_question(&c->turns[i]);
    return n;
}

size_t conversation_spare(const conversation *c)
{
    return conversation_exchanges(c) - (c->n && is_question(&c->turns[0]));
}

/* Where the conversation begins without its oldest exchanges: at a question that follows something.
 */
static size_t begin_without(const conversation *c, size_t n_exchanges)
{
    size_t at = 0;
    while (n_exchanges && at < c->n)
        n_exchanges -= ++at < c->n && is_question(&c->turns[at]);
    return at;
}

conversation conversation_tail(const conversation *c, size_t n_exchanges)
{
    size_t at = begin_without(c, n_exchanges);
    return (conversation){c->system, c->turns + at, c->n - at, 0};
}

void conversation_forget(conversation *c, size_t n_exchanges)
{
    size_t n = begin_without(c, n_exchanges);
    for (size_t i = 0; i < n; i++)
        free(c->turns[i].text);
    if (n)
        memmove(c->turns, c->turns + n, (c->n - n) * sizeof *c->turns);
    c->n -= n;
}

static const turn_text *newest_question(const conversation *c)
{
    for (size_t i = c->n; i-- > 0;)
        if (is_question(&c->turns[i]))
            return &c->turns[i];
    return NULL;
}

const char *conversation_question(const conversation *c)
{
    const turn_text *t = newest_question(c);
    return t ? t->text : NULL;
}

void conversation_append(conversation *c, const conversation *other)
{
    for (size_t i = 0; i < other->n; i++)
        conversation_add(c, other->turns[i].role, other->turns[i].text);
}

/* Where the newest question stands; past the end: there is none. */
static size_t newest_at(const conversation *c)
{
    const turn_text *t = newest_question(c);
    return t ? (size_t)(t - c->turns) : c->n;
}

conversation conversation_newest(const conversation *c)
{
    conversation copy = {0};
    size_t at = newest_at(c);
    if (at < c->n)
        conversation_append(&copy, &(conversation){NULL, c->turns + at, c->n - at, 0});
    return copy;
}

bool conversation_drop_newest(conversation *c)
{
    size_t keep = newest_at(c);
    bool found = keep < c->n;
    while (c->n > keep)
        conversation_pop(c);
    return found;
}

int conversation_render(const conversation *c, const loaded *m, const char *template_name,
                        buffer *out)
{
    bitnet_message *messages = xmalloc((c->n + 1) * sizeof *messages);
    size_t n = 0;
    if (c->system)
        messages[n++] = (bitnet_message){"system", c->system};
    for (size_t i = 0; i < c->n; i++)
        messages[n++] = (bitnet_message){c->turns[i].role, c->turns[i].text};
    int rc = render_chat(m, template_name, messages, n, out);
    free(messages);
    return rc;
}

/* ---- files ---- */

int conversation_save(const conversation *c, const char *model, const char *path)
{
    json_t *list = json_array(), *j = json_object();
    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(list, json_pack("{s:s, s:o}", "role", c->turns[i].role, "text",
                                              j_str(c->turns[i].text)));
    json_object_set_new(j, "format", json_string("bitnet-chat-1"));
    json_object_set_new(j, "model", j_str(model));
    json_object_set_new(j, "system", j_str(c->system));
    json_object_set_new(j, "messages", list);
    int rc = j_save(j, path);
    json_decref(j);
    return rc;
}

/* One message of a file; "content" is understood for "text" since other programs write that. */
static bool load_message(conversation *c, json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const char *said = json_string_value(json_object_get(message, "text"));
    if (!said)
        said = json_string_value(json_object_get(message, "content"));
    if (!role || !said)
        return false;
    if (strcmp(role, "system") == 0) {
        free(c->system);
        c->system = xstrdup(said);
        return true;
    }
    if (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
        return false;
    conversation_add(c, role[0] == 'u' ? "user" : "assistant", said);
    return true;
}

static int load_messages(conversation *c, json_t *j, const char *path)
{
    json_t *list = json_is_array(j) ? j : json_object_get(j, "messages");
    const char *system = json_string_value(json_object_get(j, "system"));
    if (!json_is_array(list))
        return fail(EXIT_IO, "%s: not a conversation: it has no list of messages", path);
    if (system)
        c->system = xstrdup(system);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!load_message(c, json_array_get(list, i)))
            return fail(EXIT_IO,
                        "%s: message %zu has no text or no role that is user, assistant or system",
                        path, i + 1);
    return EXIT_OK;
}

int conversation_load(conversation *c, const char *path)
{
    buffer bytes = {0};
    json_error_t why;
    conversation fresh = {0};
    int rc = read_input(path, &bytes);
    json_t *j = rc ? NULL : json_loadb(bytes.data, bytes.n, JSON_REJECT_DUPLICATES, &why);
    if (!rc && !j)
        rc = fail(EXIT_IO, "%s: not a conversation: line %d: %s", path, why.line, why.text);
    if (!rc)
        rc = load_messages(&fresh, j, path);
    json_decref(j);
    free_buffer(&bytes);
    if (rc) {
        conversation_free(&fresh);
        return rc;
    }
    conversation_free(c);
    *c = fresh;
    return EXIT_OK;
}
