/* said.h - a whole answer, put together from its deltas. */
#ifndef SRV_SAID_H
#define SRV_SAID_H

#include "ask/ask.h"
#include "ask/textbuf.h"

/* One choice. Zero-initialise; free with srv_said_free. */
typedef struct srv_said {
    srv_textbuf text, reasoning;
    json_t *calls;    /* [{"id", "type", "function": {"name", "arguments"}}]; NULL: none */
    srv_textbuf args; /* of the call that is coming */
    const char *finish, *stop;
} srv_said;

/* Takes one delta of this choice. False: out of memory. */
bool srv_said_take(srv_said *s, const srv_delta *d);
void srv_said_free(srv_said *s);
/* A text as JSON, a new value. */
json_t *srv_said_text(const srv_textbuf *text);

#endif
