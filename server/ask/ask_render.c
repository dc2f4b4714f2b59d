/* ask_render.c - stops on the way from an ask to a job, where its prompt is known. */
#include "ask/ask_render.h"

#include "ask/ask_impl.h"
#include "http/refuse.h"
#include "server.h"
#include "ask/use_model.h"

bool srv_ask_render(srv_exchange *x, const srv_ask *a, srv_textbuf *text)
{
    srv_model *model = NULL;
    srv_tool_plan plan = {0};
    srv_chat chat = {0};
    if (!srv_use_model(x, a->model, &model))
        return false;
    json_t *messages = srv_messages_plain(x, a);
    bool ok = messages && srv_tool_plan_read(x, a, &plan) &&
              srv_chat_render(x, model, a, messages, plan.tools, &chat);
    if (ok)
        srv_textbuf_add(text, chat.text.n ? chat.text.data : "", chat.text.n);
    srv_textbuf_free(&chat.text);
    srv_tool_plan_free(&plan);
    json_decref(messages);
    srv_model_release(srv_server_of(x)->models, model);
    return ok && (!text->failed || srv_no_memory(x));
}

bool srv_ask_count(srv_exchange *x, const srv_ask *a, size_t *n_tokens)
{
    srv_model *model = NULL;
    srv_prompt prompt = {0};
    if (!srv_use_model(x, a->model, &model))
        return false;
    bool ok = srv_prompt_make(x, model, a, &prompt);
    *n_tokens = prompt.n_ids;
    srv_prompt_free(&prompt);
    srv_model_release(srv_server_of(x)->models, model);
    return ok;
}
