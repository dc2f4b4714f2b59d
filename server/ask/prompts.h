/* prompts.h - one text or several, as /v1/completions and /v1/embeddings take them: a string, a
 * list of strings, a list of tokens, a list of lists of tokens. */
#ifndef SRV_PROMPTS_H
#define SRV_PROMPTS_H

#include "ask/ask.h"

typedef struct srv_prompts {
    const char *name;
    const json_t *value; /* borrowed */
    size_t n;
    bool is_list; /* of prompts; else value is the only one */
    int32_t *ids; /* of the one that was set last */
} srv_prompts;

/* Reads the field, which must be there. False: the client was told. Free in any case. */
bool srv_prompts_read(srv_exchange *x, const json_t *body, const char *name, srv_prompts *p);
/* Makes the i-th what the ask continues; it borrows from p until the next call. */
bool srv_prompts_set(srv_exchange *x, srv_prompts *p, size_t i, srv_ask *a);
void srv_prompts_free(srv_prompts *p);

#endif
