/* text.c - tokenizer and chat templates behind the calls of bitnet.h: growable results become
 * caller's buffers. */
#include "engine/engine.h"

/* Reports the full size; copies only if it fits, so that a first call may ask with cap 0. */
static bitnet_status hand_out(const void *data, size_t n, size_t size, void *out, size_t cap,
                              size_t *n_out, const char *what, bitnet_error *err)
{
    *n_out = n;
    size_t n_copy = BNET_MIN(n, cap);
    if (n_copy && out)
        memcpy(out, data, n_copy * size);
    if (n > cap || (n && !out))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: the result has %zu elements, the buffer holds %zu; call again", what,
                         n, out ? cap : 0);
    return BITNET_OK;
}

bitnet_status bitnet_tokenize(const bitnet_engine *e, const char *text, size_t n_bytes,
                              unsigned flags, int32_t *ids, size_t cap, size_t *n_ids,
                              bitnet_error *err)
{
    if (!e || (n_bytes && !text) || !n_ids)
        return bnet_fail(err, BITNET_ARGUMENT, "tokenize: engine, text and n_ids must not be NULL");
    *n_ids = 0;
    bnet_ids all = {0};
    bitnet_status st = bnet_tokenize(e->tokenizer, text, n_bytes, flags, &all, &e->cancel, err);
    if (st == BITNET_OK)
        st = hand_out(all.data, all.n, sizeof *ids, ids, cap, n_ids, "tokenize", err);
    bnet_free(all.data);
    return st;
}

/* The ids must have text: rows of the embedding beyond the tokenizer's list have none. */
static bitnet_status check_text_ids(const bitnet_engine *e, const int32_t *ids, size_t n,
                                    bitnet_error *err)
{
    size_t n_tokens = bnet_tokenizer_size(e->tokenizer);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= n_tokens)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "detokenize: id %d at index %zu is outside the vocabulary 0..%zu",
                             (int)ids[i], i, n_tokens - 1);
    return BITNET_OK;
}

bitnet_status bitnet_detokenize(const bitnet_engine *e, const int32_t *ids, size_t n_ids,
                                unsigned flags, char *bytes, size_t cap, size_t *n_bytes,
                                bitnet_error *err)
{
    if (!e || (n_ids && !ids) || !n_bytes)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "detokenize: engine, ids and n_bytes must not be NULL");
    *n_bytes = 0;
    bitnet_status st = check_text_ids(e, ids, n_ids, err);
    if (st != BITNET_OK)
        return st;
    bnet_str text = {0};
    bnet_detok d;
    bnet_detok_init(&d, e->tokenizer, (flags & BITNET_TEXT_SPECIAL) != 0, true);
    for (size_t i = 0; i < n_ids; i++)
        bnet_detok_push(&d, ids[i], &text);
    bnet_detok_finish(&d, &text);
    st = text.failed ? bnet_no_memory(err, "detokenize")
                     : hand_out(text.data, text.n, 1, bytes, cap, n_bytes, "detokenize", err);
    bnet_str_free(&text);
    return st;
}

const char *bitnet_token_bytes(const bitnet_engine *e, int32_t id, size_t *n_bytes)
{
    size_t n = 0;
    const char *text = e ? bnet_token_bytes(e->tokenizer, id, &n) : NULL;
    if (n_bytes)
        *n_bytes = text ? n : 0;
    return text;
}

bool bitnet_token_special(const bitnet_engine *e, int32_t id)
{
    return e ? bnet_token_special(e->tokenizer, id) : false;
}

bool bitnet_token_stops(const bitnet_engine *e, int32_t id)
{
    return e ? bnet_token_stops(e->tokenizer, id) : false;
}

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
    if (st == BITNET_OK && text.failed)
        st = bnet_no_memory(err, "chat");
    if (st == BITNET_OK)
        st = hand_out(text.data, text.n, 1, bytes, cap, n_bytes, "chat", err);
    bnet_str_free(&text);
    return st;
}

const char *bitnet_template_list(int i)
{
    const bnet_chat_template *c = i < 0 ? NULL : bnet_chat_at(i);
    return c ? bnet_chat_name(c) : NULL;
}
