/* hf_tokenizer.h - tokenizer.json, tokenizer_config.json and chat_template.jinja become a
 * vocabulary. Hides: the spellings of that family of files; which splitters and normalisers mean a
 * tokenizer we run. */
#ifndef BNET_HF_TOKENIZER_H
#define BNET_HF_TOKENIZER_H

#include "convert/hf_config.h"
#include "convert/json.h"
#include "convert/vocab.h"

/* The n bytes of a tokenizer.json. Ids must be below n_vocab, the rows of the embedding. Fails
 * TOKENIZER naming `path`, key and value; *out is then empty. Free with bnet_vocab_free. */
bitnet_status bnet_hf_tokenizer_parse(const char *data, size_t n, const char *path, size_t n_vocab,
                                      const bnet_log *log, bnet_vocab *out, bitnet_error *err);
/* All tokenizer files of a directory; special ids come from the model's config first, then from
 * names. */
bitnet_status bnet_hf_tokenizer_read(const char *dir, const bnet_hf_config *config,
                                     const bnet_log *log, bnet_vocab *out, bitnet_error *err);

/* ---- between the files of this module ---- */

/* The long lists are pulled from the text, the rest is a small tree. */
typedef struct bnet_hf_tok {
    /* each stands at the first event of its value, or its event is END: there is none, or null */
    bnet_json_reader vocab, merges, added;
    json_t *root;        /* normalizer, pre_tokenizer, post_processor; "model" with what is short */
    const json_t *model; /* of root */
    bnet_json_at at;
    const bnet_log *log;
    bnet_vocab *v;       /* v->text has room for all the texts, so that it never moves */
    bnet_strmap by_text; /* keys borrowed from v->text */
    bool byte_level;     /* false: SentencePiece form */
} bnet_hf_tok;

/* Finds the parts of a tokenizer.json of n bytes (hf_sections.c). Failures are recorded in t->at.
 */
void bnet_hf_read_sections(bnet_hf_tok *t, const char *data, size_t n);
/* Decides model and pre from pre_tokenizer, normalizer and the model's flags (hf_splitter.c).
 * Failures are recorded in t->at. */
void bnet_hf_read_splitter(bnet_hf_tok *t);
/* Reads add_bos from post_processor, where that says it (hf_splitter.c). */
void bnet_hf_read_template(bnet_hf_tok *t);

#endif
