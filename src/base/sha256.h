/* sha256.h - SHA-256 in pieces. Hides: the crypto library. */
#ifndef BNET_SHA256_H
#define BNET_SHA256_H

#include "base/base.h"

#define BNET_SHA256_BYTES 32

typedef struct bnet_sha256 bnet_sha256;

bitnet_status bnet_sha256_open(bnet_sha256 **out, bitnet_error *err);
void bnet_sha256_add(bnet_sha256 *h, const void *data,
                     size_t n); /* a failure is reported by _finish */
bitnet_status bnet_sha256_finish(bnet_sha256 *h, uint8_t out[BNET_SHA256_BYTES], bitnet_error *err);
/* All at once, as 64 digits. */
bitnet_status bnet_sha256_hex(const void *data, size_t n, char hex[65], bitnet_error *err);
/* The same in pieces of a megabyte, after each of which `each` is called and may cancel. */
bitnet_status bnet_sha256_hex_by(const void *data, size_t n, bitnet_progress_fn each, void *user,
                                 char hex[65], bitnet_error *err);
void bnet_sha256_close(bnet_sha256 *h); /* NULL is legal */

#endif
