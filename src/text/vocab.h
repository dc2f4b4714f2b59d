/* vocab.h - the inside of a tokenizer, for the files of this folder only. */
#ifndef BNET_VOCAB_H
#define BNET_VOCAB_H

#include <pthread.h>

#include "text/chat_own.h"
#include "text/index.h"
#include "text/merge.h"
#include "text/split.h"
#include "text/tokenizer.h"

#define BNET_KEY_MODEL  "tokenizer.ggml.model"
#define BNET_KEY_PRE    "tokenizer.ggml.pre"
#define BNET_KEY_TOKENS "tokenizer.ggml.tokens"
#define BNET_KEY_TYPES  "tokenizer.ggml.token_type"
#define BNET_KEY_SCORES "tokenizer.ggml.scores"
#define BNET_KEY_MERGES "tokenizer.ggml.merges"

typedef enum bnet_token_type { /* the numbers of tokenizer.ggml.token_type */
                               BNET_TOKEN_UNDEFINED,
                               BNET_TOKEN_NORMAL,
                               BNET_TOKEN_UNKNOWN,
                               BNET_TOKEN_CONTROL,
                               BNET_TOKEN_USER,
                               BNET_TOKEN_UNUSED,
                               BNET_TOKEN_BYTE,
                               BNET_TOKEN_TYPES
} bnet_token_type;

/* A token that is looked for in running text before anything else. */
typedef struct bnet_special {
    const char *text;
    uint32_t n;
    int32_t id;
    bool user; /* user-defined: always found; others (control, unknown) only on request */
} bnet_special;

/* A state of the automaton that reads a text from its end: the longest text read last that some
 * special token ends with. */
typedef struct bnet_special_node {
    uint32_t child;      /* the first one; they follow each other, ascending by byte */
    uint32_t fail;       /* the longest state that this one begins with */
    uint32_t all, user;  /* the longest token that the state begins with, + 1; 0: none */
    uint8_t byte;        /* that led here */
    uint16_t n_children; /* at most 256 */
} bnet_special_node;

typedef struct bnet_specials {
    bnet_special *list; /* [n] sorted by text, no two alike */
    size_t n;
    size_t n_user;
    uint32_t first[257];      /* list[first[b] .. first[b + 1]) begin with byte b */
    bnet_special *reversed;   /* [n] the list, sorted by the texts read backwards */
    bnet_special_node *nodes; /* nodes[0] is the start, at most one more per byte of the texts */
    uint32_t root[256];       /* the child of the start by byte; 0: none */
} bnet_specials;

/* A special token in a text. */
typedef struct bnet_special_hit {
    uint32_t at;    /* its first byte in the text */
    uint32_t which; /* in bnet_specials.reversed */
} bnet_special_hit;

typedef struct bnet_special_hits {
    bnet_special_hit *data;
    size_t n, cap;
} bnet_special_hits; /* zero-initialise; free with bnet_free(hits.data) */

#define BNET_MAX_STOPS  16
#define BNET_BYTE_CHARS 0x144 /* code points that stand for bytes are below this one */

struct bnet_tokenizer {
    const char *name;
    bool spm;
    bnet_texts tokens;    /* as the file spells them */
    bnet_index by_text;   /* of the tokens that ordinary text may become */
    uint8_t *types;       /* [n] bnet_token_type */
    char *bytes;          /* what the tokens stand for in running text, one behind the other */
    uint32_t *bytes_at;   /* [n + 1] */
    int32_t byte_id[256]; /* token of a single byte; -1: none */
    int32_t unknown, bos, eos;
    bool adds_bos;
    int32_t stops[BNET_MAX_STOPS];
    size_t n_stops;
    bnet_specials specials;
    bnet_chat_own *own; /* the file's chat template; NULL: none */
    /* byte-level BPE */
    bnet_splitter *splitter;
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
    bnet_texts merges;  /* "left right", rank = number */
    bnet_index by_merge;
    char byte_char[256][2]; /* a byte as the vocabulary spells it: one or two bytes of UTF-8 */
    uint8_t byte_char_n[256];
    int16_t char_byte[BNET_BYTE_CHARS]; /* and back; -1: stands for none */
    /* SentencePiece */
    const uint8_t *scores; /* [n] f32 in the file, unaligned */
    bool space_prefix;
    /* trie.c: made when it is first asked for */
    pthread_mutex_t trie_lock;
    struct bnet_trie *trie;
};

static inline bnet_token_type bnet_type_of(const bnet_tokenizer *t, size_t id)
{
    return (bnet_token_type)t->types[id];
}

static inline bool bnet_type_special(bnet_token_type type)
{
    return type == BNET_TOKEN_CONTROL || type == BNET_TOKEN_UNKNOWN;
}

/* May ordinary text become this token? */
static inline bool bnet_type_plain(bnet_token_type type)
{
    return type == BNET_TOKEN_NORMAL || type == BNET_TOKEN_UNDEFINED || type == BNET_TOKEN_USER;
}

static inline bool bnet_ids_push(bnet_ids *ids, int32_t id)
{
    if (ids->n == ids->cap && !bnet_grow(&ids->data, &ids->cap, ids->n + 1, sizeof *ids->data))
        return false;
    ids->data[ids->n++] = id;
    return true;
}

/* vocab.c: tokens, types and the bytes they stand for; `t` is zeroed but for `spm`. */
bitnet_status bnet_vocab_open(bnet_tokenizer *t, const bnet_gguf *g, uint64_t n_vocab,
                              bitnet_error *err);
/* A failed read of a key, reported as the tokenizer's failure. */
bitnet_status bnet_as_tokenizer(bitnet_status status, bitnet_error *err);
/* The byte of a text "<0xNN>", -1 if it is no such text. */
int bnet_byte_text(bnet_span s);

/* bpe.c */
void bnet_bpe_alphabet(bnet_tokenizer *t);
/* Writes the bytes that the text of a token stands for, at most s.n of them; returns how many. */
size_t bnet_bpe_decode(const bnet_tokenizer *t, bnet_span s, char *out);
bitnet_status bnet_bpe_open(bnet_tokenizer *t, const bnet_gguf *g, const bnet_log *log,
                            bitnet_error *err);
bitnet_status bnet_bpe_encode(const bnet_tokenizer *t, const char *text, size_t n, bnet_scratch *s,
                              bnet_ids *out, bitnet_error *err);

/* spm.c */
size_t bnet_spm_decode(bnet_span s, char *out);
bitnet_status bnet_spm_open(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err);
bitnet_status bnet_spm_encode(const bnet_tokenizer *t, const char *text, size_t n, bool prefix,
                              bnet_scratch *s, bnet_ids *out, bitnet_error *err);

/* trie.c */
void bnet_trie_free(struct bnet_trie *trie);

/* special.c */
bitnet_status bnet_specials_open(bnet_tokenizer *t, bitnet_error *err);
/* The longest special token at the start of s: its length and *id, or 0. `all`: control and unknown
 * ones too. */
size_t bnet_special_match(const bnet_tokenizer *t, const char *s, size_t n, bool all, int32_t *id);
/* Appends the longest special token at every position of s where there is one, the last position
 * first. Linear in n. False: no memory, or cancelled. */
bool bnet_special_scan(const bnet_tokenizer *t, const char *s, size_t n, bool all,
                       bnet_scratch *scratch, bnet_special_hits *hits);
/* The special token with exactly this text, -1 if there is none. */
int32_t bnet_special_find(const bnet_tokenizer *t, const char *text, size_t n);

#endif
