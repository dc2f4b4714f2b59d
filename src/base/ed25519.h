/* ed25519.h - Ed25519 signatures. Hides: the crypto library. */
#ifndef BNET_ED25519_H
#define BNET_ED25519_H

#include "base/base.h"

enum { BNET_ED25519_KEY = 32, BNET_ED25519_SIGNATURE = 64 };

/* A new secret key, from the system's random numbers. Fails: ERROR, MEMORY. */
bitnet_status bnet_ed25519_generate(uint8_t secret[BNET_ED25519_KEY], bitnet_error *err);
/* The public key of a secret one. Fails: ERROR. */
bitnet_status bnet_ed25519_public(const uint8_t secret[BNET_ED25519_KEY],
                                  uint8_t out[BNET_ED25519_KEY], bitnet_error *err);
bitnet_status bnet_ed25519_sign(const uint8_t secret[BNET_ED25519_KEY], const void *data, size_t n,
                                uint8_t out[BNET_ED25519_SIGNATURE], bitnet_error *err);
/* False also where the key is none or memory is short. */
bool bnet_ed25519_verify(const uint8_t key[BNET_ED25519_KEY], const void *data, size_t n,
                         const uint8_t signature[BNET_ED25519_SIGNATURE]);

#endif
