/* events.h - a reply as programs read it (--json, --format jsonl) and the parts of it that run and
 * chat make alike. */
#ifndef BITNET_CLI_EVENTS_H
#define BITNET_CLI_EVENTS_H

#include "cli.h"

typedef struct top_token {
    int32_t id;
    float logit;
} top_token;

/* Best n of the logits into top (ties to the lower id). */
void top_tokens(const float *logits, int n_vocab, top_token *top, size_t n);

/* One reply on its way: what was told of it so far. */
typedef struct reply_events {
    const loaded *m;
    bool trims;           /* it begins after a template: white space before its text is not shown */
    bool begun;           /* text was shown */
    size_t position;      /* of the token told last */
    struct json_t *steps; /* --json --logprobs: an entry for every token; NULL: none wanted */
} reply_events;

/* --logprobs asks for numbers that only JSON can hold. */
int events_check(const args *a);
void events_begin(reply_events *e, const loaded *m, bool trims);
/* What of a piece is text of the reply: cuts its beginning off *bytes and *n. */
void events_trim(reply_events *e, const char **bytes, size_t *n);
/* A token was chosen; the piece is trimmed already. With --format jsonl its event is printed.
 * False: standard output is closed. */
bool events_token(reply_events *e, const char *bytes, size_t n, int32_t id);
/* Puts the log-probabilities into the object of the reply (NULL: there is none), if --json is to
 * have them, and forgets them. */
void events_finish(reply_events *e, struct json_t *reply);
/* "eos", "stop", "length", "cancelled" or "timeout". */
const char *finish_word(bitnet_finish finish, const loaded *m);

#endif
