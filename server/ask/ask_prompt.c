/* ask_prompt.c - from what is to be continued (messages, a text, tokens) to the tokens of a prompt,
 * within the server's limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "ask/fields.h"
#include "ask/tokens.h"
#include "server.h"

bool srv_no_room(srv_exchange *x)
{
    srv_fail(x, 503, "out_of_memory", NULL, "the server is out of memory: try again later");
    return false;
}

/* ---- tokens ---- */

static bool copy_ids(srv_exchange *x, const srv_model *model, const srv_ask *a, srv_prompt *p)
{
    for (size_t i = 0; i < a->n_ids; i++)
        if (a->ids[i] < 0 || a->ids[i] >= model->info->n_vocab) {
            srv_fail(x, 400, "invalid_value", srv_ask_said(a),
                     "%s: token %d at place %zu is not in the vocabulary, which has 0 to %d",
                     srv_ask_said(a), (int)a->ids[i], i, model->info->n_vocab - 1);
            return false;
        }
    p->ids = malloc((a->n_ids + 1) * sizeof *p->ids);
    if (!p->ids)
        return srv_no_room(x);
    if (a->n_ids)
        memcpy(p->ids, a->ids, a->n_ids * sizeof *p->ids);
    p->n_ids = a->n_ids;
    return true;
}

/* ---- messages ---- */

/* A prompt that ends inside <think> goes on with what the answer must be: thinking is over. */
static void end_thinking(srv_chat *chat)
{
    if (chat->thinking)
        srv_textbuf_str(&chat->text, "\n</think>\n\n");
    chat->thinking = false;
}

static bool force_call(srv_exchange *x, const srv_model *model, srv_chat *chat, srv_prompt *p)
{
    if (chat->style == SRV_TOOLS_NONE || chat->style == SRV_TOOLS_XML) {
        srv_fail(x, 400, "unsupported_value", "tool_choice",
                 "tool_choice: %s %s, so none can be forced: use \"auto\" or \"none\"", model->name,
                 chat->style == SRV_TOOLS_XML ? "writes calls as XML"
                                              : "writes calls nobody knows how");
        return false;
    }
    end_thinking(chat);
    srv_textbuf_str(&chat->text, srv_tool_opening(chat->style));
    p->split.calling = true;
    p->schema = srv_tool_schema(&p->plan, chat->style);
    return p->schema || srv_no_room(x);
}

/* The answer is JSON from its first character on. A grammar may have calls and thoughts itself. */
static bool is_json(const srv_ask *a)
{
    return a->schema || a->json_object;
}

static bool finish_chat(srv_exchange *x, const srv_model *model, const srv_ask *a, srv_chat *chat,
                        srv_prompt *p)
{
    p->split.tools = p->plan.tools;
    p->split.style = p->plan.tools ? chat->style : SRV_TOOLS_NONE;
    p->split.whole = a->whole_calls;
    if (p->plan.tools && is_json(a)) {
        srv_fail(x, 400, "unsupported_value", srv_ask_form(a),
                 "%s and tools together are not supported: leave one out%s", srv_ask_form(a),
                 srv_ask_no_tools(a));
        return false;
    }
    if (is_json(a))
        end_thinking(chat);
    if (p->plan.forced && !force_call(x, model, chat, p))
        return false;
    p->split.reasoning = a->split_reasoning && chat->thinks;
    p->split.hidden = a->hide_reasoning;
    p->split.one_call = a->one_call;
    p->split.thinking = p->split.reasoning && chat->thinking;
    if (chat->text.failed)
        return srv_no_room(x);
    return srv_tokenize(x, model, chat->text.n ? chat->text.data : "", chat->text.n,
                        BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, &p->ids, &p->n_ids);
}

static bool render(srv_exchange *x, const srv_model *model, const srv_ask *a,
                   const json_t *messages, srv_prompt *p)
{
    srv_chat chat = {0};
    json_decref(p->schema); /* of a longer prompt */
    p->schema = NULL;
    bool good = srv_chat_render(x, model, a, messages, p->plan.tools, &chat) &&
                finish_chat(x, model, a, &chat, p);
    srv_textbuf_free(&chat.text);
    return good;
}

/* ---- conversations that are too long ---- */

static size_t most_prompt(const srv_exchange *x, const srv_model *model)
{
    size_t most = srv_server_of(x)->config->max_prompt_tokens;
    size_t context = model->n_ctx > 0 ? (size_t)model->n_ctx : SIZE_MAX;
    return most && most < context ? most : context;
}

static bool has_role(const json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));
    return is && strcmp(is, role) == 0;
}

/* What the system says, and all from the `nth` turn of the user on; a new value, NULL: no memory.
 */
static json_t *without_oldest(const json_t *messages, size_t nth)
{
    size_t i, n_turns = 0;
    json_t *message, *out = json_array();
    json_array_foreach(messages, i, message)
    {
        n_turns += has_role(message, "user");
        if ((n_turns > nth || has_role(message, "system")) && json_array_append(out, message)) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static bool render_from(srv_exchange *x, const srv_model *model, const srv_ask *a,
                        const json_t *messages, size_t nth, srv_prompt *p)
{
    json_t *less = without_oldest(messages, nth);
    bool good = less ? render(x, model, a, less, p) : srv_no_room(x);
    p->n_dropped = json_array_size(messages) - json_array_size(less);
    json_decref(less);
    return good;
}

static size_t count_turns(const json_t *messages)
{
    size_t i, n = 0;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        n += has_role(message, "user");
    }
    return n;
}

/* Leaves out as few of the oldest turns as lets an answer of a quarter of the context follow. What
 * is still too long with the last turn alone stays so, and is refused. */
static bool render_less(srv_exchange *x, const srv_model *model, const srv_ask *a,
                        const json_t *messages, srv_prompt *p)
{
    size_t n_turns = count_turns(messages), most = most_prompt(x, model) / 4 * 3;
    size_t low = 1, high = n_turns - 1;
    if (n_turns < 2)
        return true;
    bool good = render_from(x, model, a, messages, high, p);
    if (p->n_ids > most_prompt(x, model)) /* in vain */
        return good;
    while (good && low < high && !srv_gone(x)) {
        size_t middle = low + (high - low) / 2;
        good = render_from(x, model, a, messages, middle, p);
        low = p->n_ids <= most ? low : middle + 1;
        high = p->n_ids <= most ? middle : high;
    }
    return good && render_from(x, model, a, messages, low, p);
}

static bool from_messages(srv_exchange *x, const srv_model *model, const srv_ask *a, srv_prompt *p)
{
    json_t *messages = srv_messages_plain(x, a);
    bool good = messages && srv_tool_plan_read(x, a, &p->plan) && render(x, model, a, messages, p);
    if (good && a->drop_oldest && p->n_ids > most_prompt(x, model))
        good = render_less(x, model, a, messages, p);
    if (good && p->n_dropped) {
        char n[24];
        snprintf(n, sizeof n, "%zu", p->n_dropped);
        srv_reply_header(x, "x-bitnet-dropped-messages", n);
    }
    json_decref(messages);
    return good;
}

bool srv_prompt_make(srv_exchange *x, const srv_model *model, const srv_ask *a, srv_prompt *p)
{
    bool good;
    *p = (srv_prompt){0};
    unsigned bos = a->no_bos ? 0u : BITNET_TEXT_BOS;
    if (a->messages)
        good = from_messages(x, model, a, p);
    else if (a->text)
        good = srv_tokenize(x, model, a->text, a->n_text, bos | BITNET_TEXT_SPECIAL, &p->ids,
                            &p->n_ids);
    else
        good = copy_ids(x, model, a, p);
    return good;
}

bool srv_prompt_check(srv_exchange *x, const srv_model *model, const srv_ask *a,
                      const srv_prompt *p)
{
    size_t n = p->n_ids, most = most_prompt(x, model);
    const char *field = srv_ask_said(a);
    if (n == 0) {
        srv_fail(x, 400, "invalid_value", field, "%s is empty: the model needs one token at least",
                 field);
        return false;
    }
    if (n > most)
        srv_fail(x, 400, "context_length_exceeded", field,
                 a->words.too_long ? a->words.too_long
                                   : "the prompt has %zu tokens: this model's maximum context "
                                     "length is %zu tokens here",
                 n, most);
    return n <= most;
}

void srv_prompt_free(srv_prompt *p)
{
    free(p->ids);
    srv_tool_plan_free(&p->plan);
    json_decref(p->schema);
    *p = (srv_prompt){0};
}
