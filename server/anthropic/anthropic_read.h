/* anthropic_read.h - a request of Anthropic's messages API as an ask. */
#ifndef SRV_ANTHROPIC_READ_H
#define SRV_ANTHROPIC_READ_H

#include "ask/ask.h"

/* An ask and the values made for it: what the ask borrows lives here and in the body. */
typedef struct srv_anthropic {
    srv_ask ask;
    json_t *messages, *tools, *tool_choice, *sampling, *kwargs; /* OpenAI's forms, made */
    bool stream;
} srv_anthropic;

/* Reads the body. `counting`: only what count_tokens has (no max_tokens, no sampling). False: the
 * client has been told. _free in any case. */
bool srv_anthropic_read(srv_exchange *x, bool counting, srv_anthropic *r);
void srv_anthropic_free(srv_anthropic *r);

#endif
