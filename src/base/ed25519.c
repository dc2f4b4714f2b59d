/* ed25519.c - through libcrypto's EVP. The thread's error queue is left as it was. */
#include "base/ed25519.h"

#include <openssl/err.h>
#include <openssl/evp.h>

static bitnet_status outcome(bool ok, bitnet_error *err)
{
    return ok ? BITNET_OK : bnet_fail(err, BITNET_ERROR, "ed25519: the crypto library failed");
}

bitnet_status bnet_ed25519_generate(uint8_t secret[BNET_ED25519_KEY], bitnet_error *err)
{
    size_t n = BNET_ED25519_KEY;
    ERR_set_mark();
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    bool ok = key && EVP_PKEY_get_raw_private_key(key, secret, &n) == 1;
    EVP_PKEY_free(key);
    ERR_pop_to_mark();
    return outcome(ok, err);
}

static EVP_PKEY *secret_key(const uint8_t secret[BNET_ED25519_KEY])
{
    return EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, BNET_ED25519_KEY);
}

bitnet_status bnet_ed25519_public(const uint8_t secret[BNET_ED25519_KEY],
                                  uint8_t out[BNET_ED25519_KEY], bitnet_error *err)
{
    size_t n = BNET_ED25519_KEY;
    ERR_set_mark();
    EVP_PKEY *key = secret_key(secret);
    bool ok = key && EVP_PKEY_get_raw_public_key(key, out, &n) == 1;
    EVP_PKEY_free(key);
    ERR_pop_to_mark();
    return outcome(ok, err);
}

bitnet_status bnet_ed25519_sign(const uint8_t secret[BNET_ED25519_KEY], const void *data, size_t n,
                                uint8_t out[BNET_ED25519_SIGNATURE], bitnet_error *err)
{
    size_t n_out = BNET_ED25519_SIGNATURE;
    ERR_set_mark();
    EVP_PKEY *key = secret_key(secret);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = key && ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestSign(ctx, out, &n_out, data, n) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    ERR_pop_to_mark();
    return outcome(ok, err);
}

bool bnet_ed25519_verify(const uint8_t key[BNET_ED25519_KEY], const void *data, size_t n,
                         const uint8_t signature[BNET_ED25519_SIGNATURE])
{
    ERR_set_mark();
    EVP_PKEY *k = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, BNET_ED25519_KEY);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = k && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k) == 1 &&
              EVP_DigestVerify(ctx, signature, BNET_ED25519_SIGNATURE, data, n) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(k);
    ERR_pop_to_mark();
    return ok;
}
