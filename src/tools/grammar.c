/* grammar.c - grammars of an engine: its vocabulary, and samplers that a matcher restricts. */
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "sampler/sampler.h"

bitnet_status bitnet_grammar_open(bitnet_engine *engine, bitnet_grammar_kind kind, const char *text,
                                  size_t n_bytes, bitnet_grammar **out, bitnet_error *err)
{
    if (!engine || (n_bytes && !text) || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "grammar: engine, text and out must not be NULL");
    return bnet_grammar_open(engine->tokenizer, engine->info.n_vocab, kind,
                             (bnet_span){text ? text : "", n_bytes}, out, err);
}

bitnet_status bitnet_matcher_constrain(bitnet_matcher *matcher, bitnet_sampler *sampler,
                                       const bitnet_bias *biases, size_t n_biases,
                                       bitnet_error *err)
{
    if (!matcher || !sampler)
        return bnet_fail(err, BITNET_ARGUMENT, "matcher: matcher and sampler must not be NULL");
    if (bnet_sampler_vocab(sampler) != matcher->grammar->n_vocab)
        return bnet_fail(
            err, BITNET_ARGUMENT,
            "matcher: the sampler was opened for %d tokens, the grammar's model has %d",
            bnet_sampler_vocab(sampler), matcher->grammar->n_vocab);
    size_t n = bnet_grammar_words(matcher->grammar);
    uint32_t *allowed = bnet_calloc(n, sizeof *allowed);
    if (!allowed)
        return bnet_no_memory(err, "mask of allowed tokens");
    bitnet_status st = bitnet_matcher_mask(matcher, allowed, n, err);
    if (st == BITNET_OK) {
        bitnet_constraints c;
        bitnet_constraints_init(&c);
        c.allowed = allowed;
        c.biases = biases;
        c.n_biases = n_biases;
        st = bitnet_sampler_constrain(sampler, &c, err);
    }
    bnet_free(allowed);
    return st;
}
