/* vocab.c - the travelling vocabulary. */
#include "convert/vocab.h"

#include <stdio.h>

bool bnet_vocab_init(bnet_vocab *v, size_t n_tokens)
{
    *v = (bnet_vocab){.add_bos = -1, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1};
    v->tokens = bnet_calloc(n_tokens, sizeof *v->tokens);
    v->n_tokens = v->tokens ? n_tokens : 0;
    return v->tokens != NULL;
}

void bnet_vocab_free(bnet_vocab *v)
{
    bnet_str_free(&v->text);
    bnet_str_free(&v->chat_template);
    bnet_free(v->tokens);
    bnet_free(v->merges);
    memset(v, 0, sizeof *v);
}

bool bnet_vocab_store(bnet_vocab *v, const char *bytes, size_t n, bnet_vocab_text *out)
{
    if (n > UINT32_MAX - v->text.n)
        return false;
    *out = (bnet_vocab_text){(uint32_t)v->text.n, (uint32_t)n};
    bnet_str_add(&v->text, bytes, n);
    return !v->text.failed;
}

int32_t bnet_vocab_find(const bnet_vocab *v, const char *text, size_t n)
{
    for (size_t i = 0; i < v->n_tokens; i++) {
        const bnet_vocab_token *t = &v->tokens[i];
        if (t->type != BNET_TOKEN_ABSENT && t->text.n == n &&
            memcmp(bnet_vocab_bytes(v, t->text), text, n) == 0)
            return (int32_t)i;
    }
    return -1;
}

static bool name_holes(bnet_vocab *v)
{
    for (size_t i = 0; i < v->n_tokens; i++) {
        char name[32];
        bnet_vocab_token *t = &v->tokens[i];
        if (t->type != BNET_TOKEN_ABSENT)
            continue;
        int n = snprintf(name, sizeof name, "[PAD%zu]", i);
        if (!bnet_vocab_store(v, name, (size_t)n, &t->text))
            return false;
        t->type = BNET_TOKEN_UNUSED;
        t->score = -1000;
    }
    return true;
}

static void put_merges(bnet_vocab *v, bnet_gguf_writer *w, bnet_span *spans)
{
    for (size_t i = 0; i < v->n_merges; i++)
        spans[i] = (bnet_span){bnet_vocab_bytes(v, v->merges[i]), v->merges[i].n};
    bnet_gguf_put_strings(w, "tokenizer.ggml.merges", spans, v->n_merges);
}

/* tokens, scores, token_type, merges; `spans` has room for the larger of tokens and merges. */
static void put_lists(bnet_vocab *v, bnet_gguf_writer *w, bnet_span *spans, float *scores,
                      int32_t *types)
{
    for (size_t i = 0; i < v->n_tokens; i++) {
        spans[i] = (bnet_span){bnet_vocab_bytes(v, v->tokens[i].text), v->tokens[i].text.n};
        scores[i] = v->tokens[i].score;
        types[i] = (int32_t)v->tokens[i].type;
    }
    bnet_gguf_put_strings(w, "tokenizer.ggml.tokens", spans, v->n_tokens);
    bnet_gguf_put_array(w, "tokenizer.ggml.scores", BNET_GGUF_F32, scores, v->n_tokens);
    bnet_gguf_put_array(w, "tokenizer.ggml.token_type", BNET_GGUF_I32, types, v->n_tokens);
    if (v->n_merges)
        put_merges(v, w, spans);
}

static void put_id(bnet_gguf_writer *w, const char *key, int32_t id)
{
    if (id >= 0)
        bnet_gguf_put_u32(w, key, (uint32_t)id);
}

static void put_ids(const bnet_vocab *v, bnet_gguf_writer *w)
{
    put_id(w, "tokenizer.ggml.bos_token_id", v->bos);
    put_id(w, "tokenizer.ggml.eos_token_id", v->eos);
    put_id(w, "tokenizer.ggml.eot_token_id", v->eot);
    put_id(w, "tokenizer.ggml.unknown_token_id", v->unk);
    put_id(w, "tokenizer.ggml.padding_token_id", v->pad);
    if (strcmp(v->model, "llama") == 0)
        bnet_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);
    if (v->chat_template.n)
        bnet_gguf_put_string(w, "tokenizer.chat_template", v->chat_template.data,
                             v->chat_template.n);
}

bitnet_status bnet_vocab_put(bnet_vocab *v, bnet_gguf_writer *w, bitnet_error *err)
{
    size_t n = BNET_MAX(v->n_tokens, v->n_merges);
    bnet_span *spans = bnet_calloc(n, sizeof *spans);
    float *scores = bnet_calloc(v->n_tokens, sizeof *scores);
    int32_t *types = bnet_calloc(v->n_tokens, sizeof *types);
    bool ok = spans && scores && types && name_holes(v);
    if (ok) {
        bnet_gguf_put_string(w, "tokenizer.ggml.model", v->model, strlen(v->model));
        bnet_gguf_put_string(w, "tokenizer.ggml.pre", v->pre, strlen(v->pre));
        put_lists(v, w, spans, scores, types);
        put_ids(v, w);
    }
    bnet_free(spans);
    bnet_free(scores);
    bnet_free(types);
    return ok ? BITNET_OK : bnet_no_memory(err, "vocabulary");
}
