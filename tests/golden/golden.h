/* golden.h - the stored references of one model: prompts with ids, float64 logits and a greedy
 * continuation (golden.json and its .f32 files), documents with log-likelihoods (score.json,
 * score.txt). Loading ends the program with a message on anything unexpected: a test without its
 * reference proves nothing. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <stddef.h>
#include <stdint.h>

typedef struct golden_prompt {
    char *text;
    int32_t *ids; /* [n_ids], BOS included */
    size_t n_ids;
    float *logits; /* [n_ids][n_vocab] */
    size_t n_vocab;
    int32_t *greedy; /* [n_greedy] the continuation */
    double *margin;  /* [n_greedy] distance from the best to the second logit */
    size_t n_greedy;
} golden_prompt;

typedef struct golden_document {
    char *text;
    size_t n_bytes;
    size_t n_tokens;
    double nll;
} golden_document;

typedef struct golden {
    golden_prompt *prompts;
    size_t n_prompts;
    golden_document *documents;
    size_t n_documents;
} golden;

/* `folder` holds golden.json, score.json, score.txt. */
golden *golden_load(const char *folder);
void golden_free(golden *g);

/* A whole file, NUL-terminated; the caller frees. */
char *golden_read(const char *path, size_t *n_bytes);

#endif
