/* conversation.c - who said what: growing, forgetting, saving, loading. */
#include "chat.h"

#include "base/json_reader.h"

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

size_t conversation_droppable(const conversation *c)
{
    size_t n = 0;
    for (size_t i = 1; i < c->n; i++)
        n += is_question(&c->turns[i]);
    return n;
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

/* Where the newest question stands; c->n: there is none. */
static size_t newest_at(const conversation *c)
{
    size_t end = c->n;
    while (end && !is_question(&c->turns[end - 1]))
        end--;
    return end ? end - 1 : c->n;
}

const char *conversation_question(const conversation *c)
{
    size_t at = newest_at(c);
    return at < c->n ? c->turns[at].text : NULL;
}

conversation conversation_take_newest(conversation *c)
{
    conversation taken = {0};
    size_t at = newest_at(c);
    for (size_t i = at; i < c->n; i++)
        conversation_add(&taken, c->turns[i].role, c->turns[i].text);
    while (c->n > at)
        conversation_pop(c);
    return taken;
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
    json_t *list = json_array();
    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(list, j_object("role:t text:t", c->turns[i].role, c->turns[i].text));
    json_t *j =
        j_object("format:t model:t system:t messages:j", "bitnet-chat-1", model, c->system, list);
    int rc = j_save(j, path);
    json_decref(j);
    return rc;
}

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* One message of a file; "content" is understood for "text" since other programs write that. */
static bool load_message(conversation *c, const json_t *message)
{
    const char *role = string_of(message, "role"), *said = string_of(message, "text");
    said = said ? said : string_of(message, "content");
    if (!role || !said || !word_in("system user assistant", ' ', role))
        return false;
    if (role[0] == 's') {
        free(c->system);
        c->system = xstrdup(said);
    } else {
        conversation_add(c, role[0] == 'u' ? "user" : "assistant", said);
    }
    return true;
}

static int load_messages(conversation *c, json_t *j, const char *path)
{
    json_t *list = json_is_array(j) ? j : json_object_get(j, "messages");
    const char *system = string_of(j, "system");
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
    char limit[256];
    conversation fresh = {0};
    int rc = read_input(path, &bytes);
    if (!rc && bnet_json_measure(bytes.data, bytes.n, BNET_JSON_VALUES, limit, sizeof limit))
        rc = fail(EXIT_IO, "%s: not a conversation: %s", path, limit);
    json_t *j = rc ? NULL : json_loadb(bytes.data, bytes.n, JSON_REJECT_DUPLICATES, &why);
    if (!rc && !j)
        rc = fail(EXIT_IO, "%s: not a conversation: line %d: %s", path, why.line, why.text);
    rc = rc ? rc : load_messages(&fresh, j, path);
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
