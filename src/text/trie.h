/* trie.h - the tokens that stand for text, as a tree of their bytes in one list: whoever wants to
 * know which of them may follow reads the list from its beginning, and passes over the whole branch
 * of a byte that may not. */
#ifndef BNET_TRIE_H
#define BNET_TRIE_H

#include "text/tokenizer.h"

#define BNET_TRIE_DEPTH 255 /* bytes: longer tokens are not in it */

typedef struct bnet_trie {
    size_t n;       /* places; place 0 is the root, and each is followed by its branches */
    uint8_t *byte;  /* [n] that leads to it */
    uint8_t *depth; /* [n] bytes up to it */
    uint32_t *end;  /* [n] the place behind its branches */
    int32_t *token; /* [n] the first token with exactly these bytes; -1: none */
    int32_t *same;  /* [n_tokens] the next token with the same bytes; -1: none */
    /* The text of a reply has no space in front where its first token has one. */
    bool drops_space;
} bnet_trie;

/* Made when it is first asked for; lives as long as the tokenizer. Any thread. Fails: MEMORY. */
bitnet_status bnet_tokenizer_trie(bnet_tokenizer *t, const bnet_trie **out, bitnet_error *err);
/* The bytes of a token that stands for text and is in the trie: not a special, unused or stop
 * token, one byte at least. NULL: it is none of these. */
const char *bnet_token_text(const bnet_tokenizer *t, int32_t id, size_t *n);
/* The token is one behind which a text begins anew for bnet_detok: a space in front of the next is
 * dropped where the trie says so. */
bool bnet_token_restarts(const bnet_tokenizer *t, int32_t id);

#endif
