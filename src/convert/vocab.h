/* vocab.h - a vocabulary on its way from a checkpoint to GGUF keys, whatever file it came from.
 * Hides: how texts are stored while they travel. */
#ifndef BNET_CONVERT_VOCAB_H
#define BNET_CONVERT_VOCAB_H

#include "format/gguf.h"

typedef enum bnet_token_type {
    BNET_TOKEN_ABSENT = 0, /* a hole: becomes an unused [PADi] */
    BNET_TOKEN_NORMAL = 1,
    BNET_TOKEN_UNKNOWN = 2,
    BNET_TOKEN_CONTROL = 3,
    BNET_TOKEN_USER = 4,
    BNET_TOKEN_UNUSED = 5,
    BNET_TOKEN_BYTE = 6,
} bnet_token_type;

typedef struct bnet_vocab_text {
    uint32_t at, n; /* in vocab.text, which is shorter than 4 GiB */
} bnet_vocab_text;

typedef struct bnet_vocab_token {
    bnet_vocab_text text;
    bnet_token_type type;
    float score;
} bnet_vocab_token;

typedef struct bnet_vocab {
    const char *model; /* "gpt2" (byte-level BPE) or "llama" (SentencePiece) */
    const char *pre;   /* "llama-bpe", "gpt-2", "default" */
    bnet_str text;     /* every token and merge, one behind the other */
    bnet_vocab_token *tokens;
    size_t n_tokens;         /* as many as the embedding has rows */
    bnet_vocab_text *merges; /* "left right" */
    size_t n_merges, cap_merges;
    int add_bos;                     /* -1: the checkpoint does not say */
    bool add_space_prefix;           /* SentencePiece */
    int32_t bos, eos, eot, unk, pad; /* -1: none */
    bnet_str chat_template;
} bnet_vocab;

/* n_tokens holes. */
bool bnet_vocab_init(bnet_vocab *v, size_t n_tokens);
void bnet_vocab_free(bnet_vocab *v);
/* Appends bytes to the text store; false: no memory. */
bool bnet_vocab_store(bnet_vocab *v, const char *bytes, size_t n, bnet_vocab_text *out);
static inline const char *bnet_vocab_bytes(const bnet_vocab *v, bnet_vocab_text t)
{
    return v->text.data + t.at;
}
/* The id with exactly this text, or -1. Linear: for a handful of special names. */
int32_t bnet_vocab_find(const bnet_vocab *v, const char *text, size_t n);
/* Gives the holes names and puts every tokenizer.* key. */
bitnet_status bnet_vocab_put(bnet_vocab *v, bnet_gguf_writer *w, bitnet_error *err);

#endif
