/* grammar_test.h - a vocabulary, a grammar on it, and texts given to it byte by byte. */
#ifndef GRAMMAR_TEST_H
#define GRAMMAR_TEST_H

#include "test.h"

#include "grammar/grammar.h"
#include "unit/text/vocab_build.h"

typedef struct words {
    bnet_gguf *file;
    bnet_tokenizer *t;
    int n;
    int first_byte; /* id of byte 0; the others follow */
} words;

static inline words words_open(bool spm)
{
    static vocab v; /* too large for some stacks */
    words w = {0};
    bitnet_error err = {0};
    if (spm)
        spm_base(&v);
    else
        bpe_base(&v);
    vocab_add(&v, "unused", 5, 0);
    w.file = vocab_write(&v);
    assert_non_null(w.file);
    if (bnet_tokenizer_open(w.file, 0, NULL, &w.t, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    w.n = (int)bnet_tokenizer_size(w.t);
    w.first_byte = spm ? 3 : 0;
    return w;
}

static inline void words_close(words *w)
{
    bnet_tokenizer_close(w->t);
    bnet_gguf_close(w->file);
}

static inline bitnet_status grammar_try(const words *w, bitnet_grammar_kind kind, const char *text,
                                        bitnet_grammar **out, bitnet_error *err)
{
    return bnet_grammar_open(w->t, w->n, kind, (bnet_span){text, strlen(text)}, out, err);
}

static inline bitnet_grammar *grammar_of(const words *w, bitnet_grammar_kind kind, const char *text)
{
    bitnet_grammar *g = NULL;
    bitnet_error err = {0};
    if (grammar_try(w, kind, text, &g, &err) != BITNET_OK)
        fail_msg("%s: %s", text, err.message);
    return g;
}

/* How many bytes of the text may follow one another; *done: it may end behind them. */
static inline size_t grammar_takes(const words *w, bitnet_grammar *g, const char *text, size_t n,
                                   bool *done)
{
    bitnet_matcher *m = NULL;
    bitnet_error err = {0};
    size_t i = 0;
    assert_int_equal(bitnet_matcher_open(g, true, &m, &err), BITNET_OK);
    while (i < n &&
           bitnet_matcher_accept(m, w->first_byte + (unsigned char)text[i], &err) == BITNET_OK)
        i++;
    *done = bitnet_matcher_done(m);
    bitnet_matcher_close(m);
    return i;
}

static inline bool grammar_has(const words *w, bitnet_grammar *g, const char *text)
{
    bool done;
    return grammar_takes(w, g, text, strlen(text), &done) == strlen(text) && done;
}

#endif
