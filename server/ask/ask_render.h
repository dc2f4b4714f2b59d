/* ask_render.h - the prompt of an ask by itself: nothing is computed. */
#ifndef SRV_ASK_RENDER_H
#define SRV_ASK_RENDER_H

#include "ask/ask.h"
#include "ask/textbuf.h"

/* What the model's template makes of the ask's messages, added to *text. False: the client has been
 * told. */
bool srv_ask_render(srv_exchange *x, const srv_ask *a, srv_textbuf *text);
/* How many tokens the prompt has. False: the client has been told. */
bool srv_ask_count(srv_exchange *x, const srv_ask *a, size_t *n_tokens);

#endif
