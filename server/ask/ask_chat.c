/* ask_chat.c - the text that the model's chat template makes of messages. The one place that knows
 * how the library is asked for it. */
#include <stdlib.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "ask/fields.h"
#include "http/short_memory.h"

static srv_tool_style style_of(bitnet_tool_style style)
{
    switch (style) {
    case BITNET_TOOLS_HERMES:
        return SRV_TOOLS_HERMES;
    case BITNET_TOOLS_LLAMA3:
        return SRV_TOOLS_LLAMA3;
    case BITNET_TOOLS_XML:
        return SRV_TOOLS_XML;
    case BITNET_TOOLS_MISTRAL:
        return SRV_TOOLS_MISTRAL;
    default:
        return SRV_TOOLS_NONE;
    }
}

static bool read_features(srv_exchange *x, const srv_model *model, const srv_ask *a,
                          const json_t *tools, srv_chat *chat)
{
    bitnet_chat_features f;
    bitnet_error err = {BITNET_OK, ""};
    bitnet_chat_features_init(&f);
    if (bitnet_chat_features_get(model->engine, NULL, &f, &err) != BITNET_OK) {
        srv_fail_with(x, &err);
        return false;
    }
    chat->style = style_of(f.tool_style);
    chat->thinks = f.thinking;
    if (!tools || f.tools)
        return true;
    srv_fail(x, 400, "unsupported_value", "tools",
             "tools: the chat template of %s has none: leave them out%s", model->name,
             srv_ask_no_tools(a));
    return false;
}

static char *request_text(const srv_ask *a, const json_t *messages, const json_t *tools)
{
    json_t *request = json_pack("{s:O, s:O*, s:O*}", "messages", messages, "tools", tools,
                                "chat_template_kwargs", a->template_kwargs);
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    return text;
}

/* Makes room until the text fits; templates may write another length the second time. */
static bitnet_status render(const srv_model *model, const char *request, srv_textbuf *out,
                            bitnet_error *err)
{
    size_t n = strlen(request), cap = n + 256, n_bytes = 0;
    bitnet_status st = BITNET_MEMORY;
    *err = (bitnet_error){BITNET_MEMORY, "out of memory"};
    for (int round = 0; round < 3; round++) {
        char *bytes = malloc(cap);
        if (!bytes)
            return BITNET_MEMORY;
        st = bitnet_chat_render_json(model->engine, NULL, request, n, bytes, cap, &n_bytes, err);
        if (st == BITNET_OK)
            srv_textbuf_add(out, bytes, n_bytes);
        free(bytes);
        if (st != BITNET_ARGUMENT || n_bytes <= cap)
            break;
        cap = n_bytes;
    }
    return st == BITNET_OK && out->failed ? BITNET_MEMORY : st;
}

/* The text ends with <think>, blanks aside: the answer begins inside. */
static bool ends_thinking(const srv_textbuf *t)
{
    static const char mark[] = "<think>";
    size_t n = t->n, k = sizeof mark - 1;
    while (n && strchr(" \n\r\t", t->data[n - 1]))
        n--;
    return n >= k && memcmp(t->data + n - k, mark, k) == 0;
}

bool srv_chat_render(srv_exchange *x, const srv_model *model, const srv_ask *a,
                     const json_t *messages, const json_t *tools, srv_chat *chat)
{
    bitnet_error err;
    *chat = (srv_chat){0};
    if (!read_features(x, model, a, tools, chat))
        return false;
    char *request = request_text(a, messages, tools);
    if (!request)
        return srv_no_room(x);
    bitnet_status st = BITNET_MEMORY;
    err = (bitnet_error){BITNET_MEMORY, "out of memory"};
    if (srv_memory_reserve(strlen(request)))
        st = render(model, request, &chat->text, &err);
    srv_memory_release();
    free(request);
    if (st == BITNET_ARGUMENT || st == BITNET_TOKENIZER)
        srv_fail(x, 400, "invalid_value", srv_ask_said(a), "%s", err.message);
    else if (st != BITNET_OK)
        srv_fail_with(x, &err);
    else
        chat->thinking = ends_thinking(&chat->text);
    return st == BITNET_OK;
}
