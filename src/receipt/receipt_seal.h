/* receipt_seal.h - the digest over a whole receipt. */
#ifndef BNET_RECEIPT_SEAL_H
#define BNET_RECEIPT_SEAL_H

#include <jansson.h>

#include "base/str.h"

#define BNET_RECEIPT_SCHEMA "1.1.0"
/* The field that holds the digest. */
#define BNET_RECEIPT_DIGEST "receipt_sha256"
/* The object that holds the signature. */
#define BNET_RECEIPT_SIGNATURE "signature"

/* Appends the canonical form of a receipt to `out`: compact JSON without digest and signature, keys
 * sorted by their bytes, every number that is not whole as a text of C's "%.15g". Fails: MEMORY. */
bitnet_status bnet_receipt_canonical(const json_t *root, bnet_str *out, bitnet_error *err);
/* The SHA-256 of the canonical form, as 64 digits. Fails: MEMORY. */
bitnet_status bnet_receipt_digest(const json_t *root, char hex[65], bitnet_error *err);
/* Puts the digest into the receipt, in place of one it has. Fails: MEMORY. */
bitnet_status bnet_receipt_seal(json_t *root, bitnet_error *err);
/* Writes it to `path`, through a temporary file (receipt_save.c). Fails: IO, MEMORY. */
bitnet_status bnet_receipt_save(const json_t *root, const char *path, bitnet_error *err);
/* The same bytes through a function. Fails: CANCELLED (it returned false), MEMORY. */
bitnet_status bnet_receipt_give(const json_t *root, bitnet_bytes_fn write, void *user,
                                bitnet_error *err);

#endif
