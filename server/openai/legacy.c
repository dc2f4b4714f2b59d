/* legacy.c - see legacy.h. */
#include "openai/legacy.h"

#include <stdio.h>
#include <string.h>

#include "openai/openai.h"

static void begin_lists(srv_legacy *l)
{
    l->tokens = json_array();
    l->token_logprobs = json_array();
    l->top_logprobs = json_array();
    l->offsets = json_array();
}

static void end_lists(srv_legacy *l)
{
    json_decref(l->tokens);
    json_decref(l->token_logprobs);
    json_decref(l->top_logprobs);
    json_decref(l->offsets);
}

void srv_legacy_open(srv_legacy *l)
{
    *l = (srv_legacy){0};
    begin_lists(l);
}

void srv_legacy_free(srv_legacy *l)
{
    end_lists(l);
    bitnet_stream_close(l->plain);
    *l = (srv_legacy){0};
}

static bool is_utf8(const char *bytes, size_t n)
{
    for (size_t i = 0, k; i < n; i += k)
        if ((k = srv_utf8_length(bytes + i, n - i)) == 0)
            return false;
    return true;
}

/* The token's text, or "bytes:\xe2\x96" where it is part of a character: names stay different. */
static void add_name(const srv_model *model, int32_t id, srv_textbuf *out)
{
    size_t n = 0;
    char one[8];
    const char *bytes = bitnet_token_bytes(model->engine, id, &n);
    if (!bytes || (is_utf8(bytes, n) && !memchr(bytes, '\0', n))) {
        srv_textbuf_add(out, bytes ? bytes : "", n);
        return;
    }
    srv_textbuf_str(out, "bytes:");
    for (size_t i = 0; i < n; i++) {
        snprintf(one, sizeof one, "\\x%02x", (unsigned char)bytes[i]);
        srv_textbuf_str(out, one);
    }
}

/* Of tokens with equal names the likeliest is told, which comes first. */
static void add_top(json_t *top, const srv_model *model, int32_t id, double logprob)
{
    srv_textbuf name = {0};
    add_name(model, id, &name);
    const char *key = name.n ? name.data : "";
    if (!name.failed && !json_object_get(top, key))
        json_object_set_new(top, key, srv_logprob_number(logprob));
    srv_textbuf_free(&name);
}

/* The likeliest tokens, and the one that is there. */
static json_t *top_of(const srv_model *model, const srv_event *e)
{
    json_t *top = json_object();
    for (size_t i = 0; i < e->n_top && e->top[i].id >= 0; i++)
        add_top(top, model, e->top[i].id, e->top[i].logprob);
    add_top(top, model, e->id, e->logprob);
    return top;
}

void srv_legacy_add(srv_legacy *l, const srv_model *model, int32_t id, const srv_event *event,
                    size_t offset)
{
    srv_textbuf name = {0};
    add_name(model, id, &name);
    json_array_append_new(l->tokens, json_stringn(name.data ? name.data : "", name.n));
    json_array_append_new(l->token_logprobs,
                          event ? srv_logprob_number(event->logprob) : json_null());
    json_array_append_new(l->top_logprobs, event ? top_of(model, event) : json_null());
    json_array_append_new(l->offsets, json_integer((json_int_t)offset));
    srv_textbuf_free(&name);
}

static bool open_plain(srv_legacy *l, const srv_answer *answer)
{
    size_t n;
    const int32_t *ids = srv_answer_prompt(answer, &n);
    const bitnet_engine *engine = srv_answer_model(answer)->engine;
    bitnet_stream_options o;
    bitnet_stream_options_init(&o);
    o.continues = n && !bitnet_token_special(engine, ids[n - 1]);
    return bitnet_stream_open(engine, &o, &l->plain, NULL) == BITNET_OK;
}

size_t srv_legacy_chars(const char *bytes, size_t n)
{
    srv_textbuf shown = {0};
    srv_textbuf_utf8(&shown, bytes, n);
    size_t chars = shown.failed || !shown.n ? 0 : srv_utf8_count(shown.data, shown.n);
    srv_textbuf_free(&shown);
    return chars;
}

bool srv_legacy_made(srv_legacy *l, const srv_answer *answer, const srv_event *event)
{
    const char *text = "";
    size_t n = 0;
    srv_legacy_add(l, srv_answer_model(answer), event->id, event, l->n_chars);
    if ((!l->plain && !open_plain(l, answer)) ||
        bitnet_stream_push(l->plain, event->id, &text, &n, NULL, NULL) != BITNET_OK)
        return false;
    l->n_chars += srv_legacy_chars(text, n);
    return true;
}

json_t *srv_legacy_take(srv_legacy *l)
{
    json_t *out =
        json_pack("{s:O, s:O, s:O, s:O}", "tokens", l->tokens, "token_logprobs", l->token_logprobs,
                  "top_logprobs", l->top_logprobs, "text_offset", l->offsets);
    end_lists(l);
    begin_lists(l);
    return out;
}
