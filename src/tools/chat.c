/* chat.c - chat templates behind the calls of bitnet.h: which one, what it offers, and its text in
 * a caller's buffer. */
#include "engine/engine.h"

/* ---- which one ---- */

static bitnet_status unknown_template(const char *name, bitnet_error *err)
{
    bnet_str list = {0};
    for (int i = 0; bnet_chat_at(i); i++)
        bnet_str_addf(&list, "%s%s", i ? ", " : "", bnet_chat_name(bnet_chat_at(i)));
    char quoted[64];
    bitnet_status st =
        bnet_fail(err, BITNET_ARGUMENT, "chat: no template is called \"%s\"; there are: %s",
                  bnet_quote(name, strlen(name), quoted, sizeof quoted),
                  list.data && !list.failed ? list.data : "(out of memory)");
    bnet_str_free(&list);
    return st;
}

static bitnet_status choose_template(const bitnet_engine *e, const char *name,
                                     const bnet_chat_template **out, bitnet_error *err)
{
    *out = name ? bnet_chat_by_name(name) : e->chat;
    if (*out)
        return BITNET_OK;
    if (name)
        return unknown_template(name, err);
    return bnet_fail(
        err, BITNET_TOKENIZER,
        "%s: no chat template of this file is known; name one (for example \"llama3\" or \"raw\")",
        e->path);
}

const char *bitnet_template_list(int i)
{
    const bnet_chat_template *c = i < 0 ? NULL : bnet_chat_at(i);
    return c ? bnet_chat_name(c) : NULL;
}

/* ---- its text ---- */

static bitnet_status deliver(bitnet_status st, bnet_str *text, char *bytes, size_t cap,
                             size_t *n_bytes, bitnet_error *err)
{
    if (st == BITNET_OK && text->failed)
        st = bnet_no_memory(err, "chat");
    if (st == BITNET_OK)
        st = bnet_hand_out(text->data, text->n, 1, bytes, cap, n_bytes, "chat", err);
    bnet_str_free(text);
    return st;
}

bitnet_status bitnet_chat_render(const bitnet_engine *e, const char *template_name,
                                 const bitnet_message *messages, size_t n_messages, bool reply,
                                 char *bytes, size_t cap, size_t *n_bytes, bitnet_error *err)
{
    if (!e || (n_messages && !messages) || !n_bytes)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "chat: engine, messages and n_bytes must not be NULL");
    *n_bytes = 0;
    const bnet_chat_template *c;
    bitnet_status st = choose_template(e, template_name, &c, err);
    bnet_str text = {0};
    if (st == BITNET_OK)
        st = bnet_chat_render(c, e->tokenizer, messages, n_messages, reply, &text, err);
    return deliver(st, &text, bytes, cap, n_bytes, err);
}

bitnet_status bitnet_chat_render_json(const bitnet_engine *e, const char *template_name,
                                      const char *request, size_t n_request, char *bytes,
                                      size_t cap, size_t *n_bytes, bitnet_error *err)
{
    if (!e || !request || !n_bytes)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "chat: engine, request and n_bytes must not be NULL");
    *n_bytes = 0;
    const bnet_chat_template *c;
    bitnet_status st = choose_template(e, template_name, &c, err);
    bnet_str text = {0};
    if (st == BITNET_OK)
        st = bnet_chat_render_json(c, e->tokenizer, (bnet_span){request, n_request}, &text, err);
    return deliver(st, &text, bytes, cap, n_bytes, err);
}

/* ---- what it offers ---- */

void bitnet_chat_features_init(bitnet_chat_features *f)
{
    if (f)
        *f = (bitnet_chat_features){.struct_size = sizeof *f};
}

static bitnet_chat_features features_of(const bnet_chat_template *c, const bnet_chat_own *own)
{
    bitnet_chat_features f = {.name = c ? bnet_chat_name(c) : "", .source = "", .problem = ""};
    if (own) {
        f.source = own->source.data;
        f.n_source = own->source.n;
        f.problem = own->problem;
    }
    if (own && own->usable && c && bnet_chat_is_own(c)) {
        f.tools = own->tools;
        f.thinking = own->thinking;
        f.tool_style = own->style;
    }
    return f;
}

bitnet_status bitnet_chat_features_get(const bitnet_engine *e, const char *template_name,
                                       bitnet_chat_features *f, bitnet_error *err)
{
    if (!e || !f)
        return bnet_fail(err, BITNET_ARGUMENT, "chat: engine and features must not be NULL");
    size_t given = f->struct_size;
    if (given < sizeof given || given > sizeof *f)
        return bnet_fail(
            err, BITNET_ARGUMENT,
            "chat features: struct_size is %zu, must be %zu..%zu; call bitnet_chat_features_init",
            given, sizeof given, sizeof *f);
    const bnet_chat_template *c = e->chat;
    if (template_name && !(c = bnet_chat_by_name(template_name)))
        return unknown_template(template_name, err);
    bitnet_chat_features all = features_of(c, bnet_chat_own_of(e->tokenizer));
    all.struct_size = given;
    memcpy(f, &all, given);
    return BITNET_OK;
}
