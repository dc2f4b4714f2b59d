/* receipts.h - receipts of the latest answers, by id, for a while: a bounded number of files in a
 * private folder that goes when the server ends. */
#ifndef SRV_RECEIPTS_H
#define SRV_RECEIPTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct srv_receipts srv_receipts;

srv_receipts *srv_receipts_open(size_t most); /* NULL: no folder can be made, or no memory */
void srv_receipts_close(srv_receipts *r);
/* The folder into which schedulers write ID.json. */
const char *srv_receipts_dir(const srv_receipts *r);
/* A new id; the oldest receipts beyond `most` go. False: out of memory. */
bool srv_receipts_new(srv_receipts *r, char id[40]);
/* The receipt, to be freed; NULL: not there (yet, or any more). */
json_t *srv_receipts_get(srv_receipts *r, const char *id);

#endif
