/* tokenizer.h - text to token ids and back, for the two families ternary models use:
 * byte-level BPE (llama-3 and gpt-2 splitters) and SentencePiece BPE.
 * Hides: vocabularies, merges, splitting regexes, byte-to-unicode, byte fallback. Immutable after
 * open; safe to use from several threads. */
#ifndef BNET_TOKENIZER_H
#define BNET_TOKENIZER_H

#include "base/progress.h"
#include "format/gguf.h"

typedef struct bnet_tokenizer bnet_tokenizer;

/* Reads tokenizer.ggml.* of an open file (which must stay open). Where tokenizer.ggml.pre is
 * missing or "default", the vocabulary decides which splitter is meant, with a warning through log.
 * Fails TOKENIZER naming file and key. n_vocab: rows of the embedding, or 0 if unknown (vocab-only
 * file); a vocabulary larger than that is refused. */
bitnet_status bnet_tokenizer_open(const bnet_gguf *g, uint64_t n_vocab, const bnet_log *log,
                                  bnet_tokenizer **out, bitnet_error *err);
void bnet_tokenizer_close(bnet_tokenizer *t);

const char *bnet_tokenizer_name(const bnet_tokenizer *t); /* "bpe/llama-3", "bpe/gpt-2", "spm" */
size_t bnet_tokenizer_size(const bnet_tokenizer *t);
int32_t bnet_tokenizer_bos(const bnet_tokenizer *t); /* -1: none */
int32_t bnet_tokenizer_eos(const bnet_tokenizer *t);
bool bnet_tokenizer_adds_bos(const bnet_tokenizer *t);

typedef struct bnet_ids {
    int32_t *data;
    size_t n, cap;
} bnet_ids; /* zero-initialise; free with bnet_free(ids.data) */

/* Appends the ids of text to *out. flags: BITNET_TEXT_BOS, BITNET_TEXT_SPECIAL. BOS is not doubled
 * when the text already begins with it (parsed). Linear-ish time in n: a 1 MB run of one letter
 * must not be quadratic. `cancel` (NULL: nobody) is asked every few milliseconds. Fails: MEMORY,
 * CANCELLED; then *out is as before. */
bitnet_status bnet_tokenize(const bnet_tokenizer *t, const char *text, size_t n, unsigned flags,
                            bnet_ids *out, const bnet_cancel *cancel, bitnet_error *err);
/* The bytes of a token in running text (SPM: leading U+2581 as space; special tokens: their name).
 * NULL if out of range. Borrowed. */
const char *bnet_token_bytes(const bnet_tokenizer *t, int32_t id, size_t *n);
size_t bnet_token_longest(const bnet_tokenizer *t);           /* of these, the most bytes */
bool bnet_token_special(const bnet_tokenizer *t, int32_t id); /* control or unknown type */
/* Does the model end a reply with it? EOS, EOT, EOM of the file, and special or user-defined tokens
 * of the known names (<|eot_id|>, <|im_end|>, </s>, ...). */
bool bnet_token_stops(const bnet_tokenizer *t, int32_t id);
/* All of those; returns how many. */
size_t bnet_token_stop_list(const bnet_tokenizer *t, const int32_t **ids);
/* By the exact text the file has for it; false: no such token. */
bool bnet_token_find(const bnet_tokenizer *t, const char *text, size_t n, int32_t *id);

/* Streaming detokeniser: feed ids, receive whole UTF-8 characters. Never emits half a character;
 * bytes that can no longer become one are passed through as they are. For SPM drops the one
 * leading space that tokenizing put at the start of a text and behind printed special tokens.
 * Allocates nothing per token once *out has grown. */
typedef struct bnet_detok {
    const bnet_tokenizer *t;
    bool special;  /* print special tokens as text */
    bool at_start; /* SPM: strip the space of the next piece */
    char held[8];  /* beginning of an unfinished character */
    size_t n_held;
} bnet_detok;

void bnet_detok_init(bnet_detok *d, const bnet_tokenizer *t, bool special, bool at_start);
/* Appends the text that became complete to *out (check out->failed). */
void bnet_detok_push(bnet_detok *d, int32_t id, bnet_str *out);
void bnet_detok_finish(bnet_detok *d, bnet_str *out); /* whatever is still held */

#endif
