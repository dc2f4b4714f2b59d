/* legacy.h - "logprobs" as /v1/completions has it: four lists side by side, one element for each
 * token. Evaluation harnesses read them, so every token of a prompt must have its element. */
#ifndef SRV_LEGACY_H
#define SRV_LEGACY_H

#include "ask/ask.h"

typedef struct srv_legacy {
    json_t *tokens, *token_logprobs, *top_logprobs, *offsets;
    bitnet_stream
        *plain;     /* text of made tokens without stop strings, for which some is held back */
    size_t n_chars; /* before the next made token, the echo's included */
} srv_legacy;

/* What a token with so many others beside it takes in memory, about. */
#define SRV_LEGACY_BYTES(n_top) (600 + 150 * (size_t)((n_top) > 0 ? (n_top) : 0))

void srv_legacy_open(srv_legacy *l);
void srv_legacy_free(srv_legacy *l);
/* A token whose text begins at a character of the choice's text. event NULL: there is no
 * log-probability (the first token of a prompt). */
void srv_legacy_add(srv_legacy *l, const srv_model *model, int32_t id, const srv_event *event,
                    size_t offset);
/* The characters that stand for the bytes in a text: one for what is none. */
size_t srv_legacy_chars(const char *bytes, size_t n);
/* The next token that was made. False: out of memory. */
bool srv_legacy_made(srv_legacy *l, const srv_answer *answer, const srv_event *event);
/* The object; the lists begin again. NULL: out of memory. */
json_t *srv_legacy_take(srv_legacy *l);

#endif
