/* grammar_driver.c - follows grammars for a script. Standard input has requests: the kind, the
 * vocabulary (0: a model file's, the only argument; 1: byte-level; 2: SentencePiece), the number of
 * random walks, their seed, the number of texts, all 32 bits; then records, each a length and its
 * bytes: the grammar and the texts. The answer: a status and a record with the message; with status
 * 0, for every walk a number (0: a whole text, 1: cut off, 2: failed) and a record, and for every
 * text the number of its tokens that were taken, or -1 if it is a whole text of the grammar. */
#include <stdio.h>
#include <stdlib.h>

#include "grammar/grammar.h"
#include "unit/text/vocab_build.h"

enum { CUT = 700, STEER = 120, MASK = 1 << 13 };

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 31);
}

static uint32_t number(void)
{
    uint32_t v = 0;
    if (fread(&v, sizeof v, 1, stdin) != 1)
        exit(0);
    return v;
}

static bnet_span record(void)
{
    uint32_t n = number();
    char *bytes = malloc(n ? n : 1);
    if (!bytes || fread(bytes, 1, n, stdin) != n)
        exit(1);
    return (bnet_span){bytes, n};
}

static void answer(int32_t value)
{
    fwrite(&value, sizeof value, 1, stdout);
}

static void answer_text(const char *bytes, size_t n)
{
    answer((int32_t)n);
    fwrite(bytes, 1, n, stdout);
}

static bool allowed(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* Of the allowed ids one by chance, or one that leads to the end where the text has become long. */
static int32_t choose(const bnet_tokenizer *t, const uint32_t *mask, int n, int step,
                      uint64_t *seed)
{
    static const char ends[] = "\"}]0e:,";
    int32_t stop = -1, id;
    const int32_t *stops;
    size_t n_stops = bnet_token_stop_list(t, &stops);
    for (size_t i = 0; i < n_stops; i++)
        stop = allowed(mask, stops[i]) ? stops[i] : stop;
    if (stop >= 0 && (step > STEER || draw(seed) % 3 == 0))
        return stop;
    for (size_t k = 0; step > STEER && k < sizeof ends - 1; k++)
        for (id = 0; id < n; id++) {
            size_t n_bytes;
            const char *bytes = bnet_token_text(t, id, &n_bytes);
            if (bytes && n_bytes == 1 && bytes[0] == ends[k] && allowed(mask, id))
                return id;
        }
    size_t n_allowed = 0;
    for (id = 0; id < n; id++)
        n_allowed += allowed(mask, id);
    size_t which = n_allowed ? draw(seed) % n_allowed : 0;
    for (id = 0; id < n; id++)
        if (allowed(mask, id) && which-- == 0)
            break;
    return id;
}

/* One random walk. `continues`: as for bitnet_matcher_open. */
static int32_t walk(bitnet_grammar *g, bool continues, uint64_t *seed, bnet_str *text,
                    bitnet_error *err)
{
    static uint32_t mask[MASK];
    bnet_detok d;
    bitnet_matcher *m = NULL;
    int32_t result = 1;
    bool ok = bitnet_matcher_open(g, continues, &m, err) == BITNET_OK;
    bnet_detok_init(&d, g->tokenizer, false, !continues);
    for (int i = 0; ok && i < CUT && result; i++) {
        ok = bitnet_matcher_mask(m, mask, bnet_grammar_words(g), err) == BITNET_OK;
        int32_t id = ok ? choose(g->tokenizer, mask, g->n_vocab, i, seed) : 0;
        ok = ok && bitnet_matcher_accept(m, id, err) == BITNET_OK;
        if (ok && bnet_token_stops(g->tokenizer, id))
            result = 0;
        else
            bnet_detok_push(&d, id, text);
    }
    bnet_detok_finish(&d, text);
    bitnet_matcher_close(m);
    return ok ? result : 2;
}

/* How many of a text's tokens follow one another; *whole: all, and it may end there. */
static int32_t follow(bitnet_grammar *g, bnet_span text, bool *whole)
{
    bitnet_matcher *m = NULL;
    bnet_ids ids = {0};
    bnet_cancel nobody = {0};
    bitnet_error err = {0};
    size_t i = 0;
    if (bnet_tokenize(g->tokenizer, text.data, text.n, 0, &ids, &nobody, &err) != BITNET_OK ||
        bitnet_matcher_open(g, false, &m, &err) != BITNET_OK)
        exit(1);
    while (i < ids.n && bitnet_matcher_accept(m, ids.data[i], &err) == BITNET_OK)
        i++;
    *whole = i == ids.n && bitnet_matcher_done(m);
    bitnet_matcher_close(m);
    bnet_free(ids.data);
    return (int32_t)i;
}

static void serve(bnet_tokenizer *const *tokenizers)
{
    uint32_t kind = number(), which = number(), n_walks = number(), n_texts;
    uint64_t seed = number();
    n_texts = number();
    bnet_tokenizer *t = tokenizers[which % 3];
    bnet_span source = record();
    bitnet_grammar *g = NULL;
    bitnet_error err = {0};
    bitnet_status st = bnet_grammar_open(t, (int)bnet_tokenizer_size(t), (bitnet_grammar_kind)kind,
                                         source, &g, &err);
    answer((int32_t)st);
    answer_text(err.message, strlen(err.message));
    for (uint32_t i = 0; g && i < n_walks; i++) {
        bnet_str text = {0};
        bnet_str_puts(&text, "");
        int32_t result = walk(g, i & 1, &seed, &text, &err);
        answer(result);
        if (result == 2)
            answer_text(err.message, strlen(err.message));
        else
            answer_text(text.data, text.n);
        bnet_str_free(&text);
    }
    for (uint32_t i = 0; i < n_texts; i++) {
        bnet_span text = record();
        bool whole = false;
        int32_t n = g ? follow(g, text, &whole) : 0;
        if (g)
            answer(whole ? -1 : n);
        free((char *)text.data);
    }
    fflush(stdout);
    bitnet_grammar_close(g);
    free((char *)source.data);
}

int main(int argc, char **argv)
{
    static vocab v;
    bnet_gguf *files[3] = {0};
    bnet_tokenizer *tokenizers[3] = {0};
    bitnet_error err = {0};
    if (argc != 2 || bnet_gguf_open(argv[1], NULL, &files[0], &err) != BITNET_OK)
        return 2;
    bpe_base(&v);
    files[1] = vocab_write(&v);
    spm_base(&v);
    files[2] = vocab_write(&v);
    for (int i = 0; i < 3; i++)
        if (!files[i] ||
            bnet_tokenizer_open(files[i], 0, NULL, &tokenizers[i], &err) != BITNET_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 2;
        }
    for (int c = getc(stdin); c != EOF; c = getc(stdin)) {
        ungetc(c, stdin);
        serve(tokenizers);
    }
    for (int i = 0; i < 3; i++) {
        bnet_tokenizer_close(tokenizers[i]);
        bnet_gguf_close(files[i]);
    }
    return 0;
}
