/* fuzz_tokenizer_json.c - the bytes of a tokenizer.json: refused with a message, or a vocabulary
 * whose every text lies in its store and which goes into a GGUF writer. */
#include <stdlib.h>

#include "convert/hf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define N_VOCAB 512

static void check(bnet_vocab *v)
{
    bitnet_error err = {0};
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    if (!v->model || !v->pre || v->n_tokens != N_VOCAB)
        abort();
    for (size_t i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].text.at + v->tokens[i].text.n > v->text.n)
            abort();
    for (size_t i = 0; i < v->n_merges; i++)
        if (v->merges[i].at + v->merges[i].n > v->text.n)
            abort();
    if (bnet_vocab_find(v, "a", 1) >= N_VOCAB)
        abort();
    if (w && bnet_vocab_put(v, w, &err) != BITNET_OK)
        abort();
    bnet_gguf_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    bnet_vocab v;
    bitnet_error err = {0};
    if (bnet_hf_tokenizer_parse((const char *)data, n_bytes, "fuzz", N_VOCAB, NULL, &v, &err) ==
        BITNET_OK)
        check(&v);
    else if (!err.message[0] || v.tokens)
        abort();
    bnet_vocab_free(&v);
    return 0;
}
