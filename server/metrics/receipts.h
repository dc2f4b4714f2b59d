/* receipts.h - receipts of the latest answers, by id, for a while: a bounded number of texts. */
#ifndef SRV_RECEIPTS_H
#define SRV_RECEIPTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct srv_receipts srv_receipts;

/* `most` receipts are kept, 1 at least. NULL: no memory. */
srv_receipts *srv_receipts_open(size_t most);
/* NULL is legal. */
void srv_receipts_close(srv_receipts *r);
/* A new id, which nobody can guess. False: the system has no random numbers. Any thread. */
bool srv_receipts_new(char id[40]);
/* There will be a receipt of this new id, or there is one already: the oldest beyond `most` goes.
 * Any thread. */
void srv_receipts_keep(srv_receipts *r, const char *id);
/* Its text is there: kept as if by srv_receipts_keep. Where there is no memory for a copy, there is
 * no receipt. Any thread. */
void srv_receipts_put(srv_receipts *r, const char *id, const char *text, size_t n_bytes);
/* The receipt, to be freed; NULL: not there (yet, or any more). Any text is a legal id. Any thread.
 */
json_t *srv_receipts_get(srv_receipts *r, const char *id);
/* Was there an answer of this id, so that its receipt is there or may yet come? Any thread. */
bool srv_receipts_expected(srv_receipts *r, const char *id);

#endif
