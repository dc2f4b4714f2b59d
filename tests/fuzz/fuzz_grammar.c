/* fuzz_grammar.c - any grammar and schema, with any text. Input: "g" (GBNF), "s" (schema) or "o"
 * (any object), the text of the grammar, a byte 0xF8 (which no UTF-8 has), and bytes given to a
 * matcher one by one, with a mask now and then. What must hold: no crash, an end within bounds, a
 * message where it is refused, and masks that say what accepting says. */
#include <stdio.h>
#include <stdlib.h>

#include "grammar/grammar.h"
#include "unit/text/vocab_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { FED = 48, FIRST_BYTE = 3 };

static void insist(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_grammar: %s\n", what);
    abort();
}

static bnet_tokenizer *words(void)
{
    static bnet_gguf *file; /* stays open with the tokenizer, until the end */
    static bnet_tokenizer *t;
    static vocab v;
    bitnet_error err = {0};
    if (file)
        return t;
    spm_base(&v);
    file = vocab_write(&v);
    insist(file && bnet_tokenizer_open(file, 0, NULL, &t, &err) == BITNET_OK, "no vocabulary");
    return t;
}

/* A byte's id is allowed exactly if it is accepted. */
static void feed(bitnet_grammar *g, const uint8_t *bytes, size_t n)
{
    static uint32_t mask[64];
    bitnet_matcher *m = NULL;
    bitnet_error err = {0};
    insist(bitnet_matcher_open(g, true, &m, &err) == BITNET_OK, "no matcher");
    for (size_t i = 0; i < n; i++) {
        int32_t id = FIRST_BYTE + bytes[i];
        bitnet_status known =
            i % 8 ? BITNET_CANCELLED : bitnet_matcher_mask(m, mask, bnet_grammar_words(g), &err);
        bitnet_status st = bitnet_matcher_accept(m, id, &err);
        if (known == BITNET_OK)
            insist((mask[id / 32] >> id % 32 & 1) == (st == BITNET_OK), "mask and accept differ");
        if (st != BITNET_OK)
            break;
    }
    (void)bitnet_matcher_done(m);
    bitnet_matcher_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const uint8_t *cut = n_bytes ? memchr(data, 0xf8, n_bytes) : NULL;
    size_t n_text = cut ? (size_t)(cut - data) : n_bytes;
    bitnet_grammar *g = NULL;
    bitnet_error err = {0};
    if (n_text == 0)
        return 0;
    bitnet_grammar_kind kind = data[0] == 'g'   ? BITNET_GRAMMAR_GBNF
                               : data[0] == 's' ? BITNET_GRAMMAR_JSON_SCHEMA
                                                : BITNET_GRAMMAR_JSON_OBJECT;
    bitnet_status st = bnet_grammar_open(words(), (int)bnet_tokenizer_size(words()), kind,
                                         (bnet_span){(const char *)data + 1, n_text - 1}, &g, &err);
    insist((st == BITNET_OK) == (g != NULL) && (g || err.message[0]),
           "neither grammar nor message");
    if (g && cut)
        feed(g, cut + 1, BNET_MIN(n_bytes - n_text - 1, (size_t)FED));
    bitnet_grammar_close(g);
    return 0;
}
