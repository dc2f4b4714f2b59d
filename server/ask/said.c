/* said.c - see said.h. */
#include "ask/said.h"

static bool begin_call(srv_said *s, const srv_delta *d)
{
    if (!s->calls)
        s->calls = json_array();
    srv_textbuf_drop(&s->args, s->args.n);
    return json_array_append_new(s->calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", d->tool_id,
                                                     "type", "function", "function", "name",
                                                     d->tool_name, "arguments", "")) == 0;
}

static bool end_call(srv_said *s)
{
    json_t *call = json_array_get(s->calls, json_array_size(s->calls) - 1);
    json_t *function = json_object_get(call, "function");
    return json_object_set_new(function, "arguments", srv_said_text(&s->args)) == 0;
}

bool srv_said_take(srv_said *s, const srv_delta *d)
{
    switch (d->kind) {
    case SRV_DELTA_TEXT:
        srv_textbuf_add(&s->text, d->text, d->n_text);
        return !s->text.failed;
    case SRV_DELTA_REASONING:
        srv_textbuf_add(&s->reasoning, d->text, d->n_text);
        return !s->reasoning.failed;
    case SRV_DELTA_TOOL_BEGIN:
        return begin_call(s, d);
    case SRV_DELTA_TOOL_ARGS:
        srv_textbuf_add(&s->args, d->text, d->n_text);
        return !s->args.failed;
    case SRV_DELTA_TOOL_END:
        return end_call(s);
    case SRV_DELTA_FINISH:
        s->finish = d->finish;
        s->stop = d->stop;
        return true;
    default:
        return true;
    }
}

void srv_said_free(srv_said *s)
{
    srv_textbuf_free(&s->text);
    srv_textbuf_free(&s->reasoning);
    srv_textbuf_free(&s->args);
    json_decref(s->calls);
    *s = (srv_said){0};
}

json_t *srv_said_text(const srv_textbuf *text)
{
    return json_stringn(text->n ? text->data : "", text->n);
}
