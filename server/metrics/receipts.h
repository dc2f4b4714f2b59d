/* receipts.h - receipts of the latest answers, by id, for a while: a bounded number of files in a
 * private folder that goes when the server ends. */
#ifndef SRV_RECEIPTS_H
#define SRV_RECEIPTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct srv_receipts srv_receipts;

/* Makes the folder, readable by this user alone, and removes those that servers which no longer run
 * have left. _open_in makes it below `parent`; _open below /run/user/UID, or /tmp where there is no
 * such folder. `most` receipts are kept, 1 at least. NULL: no folder can be made, or no memory. */
srv_receipts *srv_receipts_open(size_t most);
srv_receipts *srv_receipts_open_in(const char *parent, size_t most);
/* Removes the folder with what is in it; NULL is legal. */
void srv_receipts_close(srv_receipts *r);
/* The folder into which schedulers write ID.json. */
const char *srv_receipts_dir(const srv_receipts *r);
/* A new id, which nobody can guess. False: the system has no random numbers. Any thread. */
bool srv_receipts_new(char id[40]);
/* There will be a receipt of this new id, or there is one already: it is kept, and the oldest
 * beyond `most` go. Without this call it goes after a while. Any thread. */
void srv_receipts_keep(srv_receipts *r, const char id[40]);
/* The receipt, to be freed; NULL: not there (yet, or any more). Any text is a legal id. Any thread.
 */
json_t *srv_receipts_get(srv_receipts *r, const char *id);
/* Was there an answer of this id, so that its receipt is there or may yet come? Any thread. */
bool srv_receipts_expected(srv_receipts *r, const char *id);

#endif
