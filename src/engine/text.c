/* text.c - the tokenizer behind the calls of bitnet.h: growable results become caller's buffers. */
#include "engine/engine.h"

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
        st = bnet_hand_out(all.data, all.n, sizeof *ids, ids, cap, n_ids, "tokenize", err);
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
                     : bnet_hand_out(text.data, text.n, 1, bytes, cap, n_bytes, "detokenize", err);
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
