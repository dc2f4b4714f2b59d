/* grammar.h - grammars and matchers behind bitnet.h: a program, the machine that follows it, and
 * what the machine's states mean for the tokens of one vocabulary.
 *
 * A grammar does not change for those who use it; inside, tables grow under a lock, for all its
 * matchers together: what one has found the next need not look for. */
#ifndef BNET_GRAMMAR_H
#define BNET_GRAMMAR_H

#include <pthread.h>

#include "grammar/machine.h"
#include "text/trie.h"

/* Readers: they write a program, with p->root set, or fail it. */
void bnet_gbnf_read(bnet_span text, bnet_program *p);
void bnet_schema_read(bnet_span text, bnet_program *p);
void bnet_json_object_write(bnet_program *p);

struct bitnet_grammar {
    bnet_program program;
    bnet_tokenizer *tokenizer;
    const bnet_trie *trie;
    int n_vocab;
    pthread_mutex_t lock; /* of everything below */
    bnet_machine machine;
    int32_t start;
    bitnet_matcher *matchers; /* all that are open */
    size_t n_matchers;
    bool closed; /* by its owner: it goes with its last matcher */
    /* masks that were found, the oldest of which is replaced */
    uint32_t **masks;    /* [n_masks], NULL: not used yet */
    int32_t *mask_owner; /* [n_masks] the state; -1: none */
    size_t n_masks, next_mask;
};

struct bitnet_matcher {
    bitnet_grammar *grammar;
    bitnet_matcher *before, *after; /* in the grammar's list */
    int32_t state;
    bool fresh; /* a text begins here: see bnet_trie.drops_space */
    bool ended; /* a token that ends texts was accepted */
};

/* Compiles a text for the vocabulary of a tokenizer, which must stay open. Fails: ARGUMENT (what
 * the text has that cannot be followed), MEMORY. */
bitnet_status bnet_grammar_open(bnet_tokenizer *t, int n_vocab, bitnet_grammar_kind kind,
                                bnet_span text, bitnet_grammar **out, bitnet_error *err);
/* Words of a mask. */
static inline size_t bnet_grammar_words(const bitnet_grammar *g)
{
    return ((size_t)g->n_vocab + 31) / 32;
}
/* With the lock: the ids that may follow in a state; `fresh` as in a matcher. *found is borrowed
 * until the lock is released (mask.c). */
bitnet_status bnet_grammar_mask(bitnet_grammar *g, int32_t state, bool fresh, uint32_t *scratch,
                                const uint32_t **found, bitnet_error *err);
bool bnet_masks_open(bitnet_grammar *g);
void bnet_masks_forget(bitnet_grammar *g); /* the states have other numbers now */
void bnet_masks_close(bitnet_grammar *g);

#endif
