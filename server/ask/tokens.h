/* tokens.h - texts and tokens of a loaded model, for handlers. False: the client has been told. */
#ifndef SRV_TOKENS_H
#define SRV_TOKENS_H

#include "http/exchange.h"
#include "jobs/models.h"
#include "ask/textbuf.h"

/* The tokens of a text (BITNET_TEXT_* flags), to be freed. */
bool srv_tokenize(srv_exchange *x, const srv_model *model, const char *text, size_t n_text,
                  unsigned flags, int32_t **ids, size_t *n_ids);
/* The bytes of tokens, added to *out. */
bool srv_detokenize(srv_exchange *x, const srv_model *model, const int32_t *ids, size_t n_ids,
                    unsigned flags, srv_textbuf *out);

#endif
