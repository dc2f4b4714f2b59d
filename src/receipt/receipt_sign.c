/* receipt_sign.c - the signature of a receipt: Ed25519 over its canonical form. Keys and signatures
 * are hexadecimal digits. */
#include "base/ed25519.h"
#include "receipt/receipt_check.h"
#include "receipt/receipt_seal.h"

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Exactly n bytes of small digits. */
static bool from_hex(const char *s, uint8_t *out, size_t n)
{
    if (!s || strlen(s) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = digit(s[2 * i]), low = digit(s[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void to_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

bitnet_status bitnet_receipt_key(char secret[65], char public_key[65], bitnet_error *err)
{
    uint8_t key[BNET_ED25519_KEY], pub[BNET_ED25519_KEY];
    if (!secret || !public_key)
        return bnet_fail(err, BITNET_ARGUMENT, "key: secret and public_key must not be NULL");
    bitnet_status st = bnet_ed25519_generate(key, err);
    if (st == BITNET_OK)
        st = bnet_ed25519_public(key, pub, err);
    if (st != BITNET_OK)
        return st;
    to_hex(key, sizeof key, secret);
    to_hex(pub, sizeof pub, public_key);
    return BITNET_OK;
}

static bitnet_status sign(json_t *root, const uint8_t key[BNET_ED25519_KEY], bitnet_error *err)
{
    uint8_t pub[BNET_ED25519_KEY], signature[BNET_ED25519_SIGNATURE];
    char pub_hex[65], hex[129];
    bnet_str form = {0};
    bitnet_status st = bnet_receipt_canonical(root, &form, err);
    if (st == BITNET_OK)
        st = bnet_ed25519_public(key, pub, err);
    if (st == BITNET_OK)
        st = bnet_ed25519_sign(key, form.data, form.n, signature, err);
    bnet_str_free(&form);
    if (st != BITNET_OK)
        return st;
    to_hex(pub, sizeof pub, pub_hex);
    to_hex(signature, sizeof signature, hex);
    json_t *o = json_pack("{s:s, s:s}", "public_key", pub_hex, "ed25519", hex);
    return json_object_set_new(root, BNET_RECEIPT_SIGNATURE, o) == 0
               ? BITNET_OK
               : bnet_no_memory(err, "receipt");
}

bitnet_status bitnet_receipt_sign(const char *path, const char *secret, bitnet_error *err)
{
    uint8_t key[BNET_ED25519_KEY];
    json_t *root = NULL;
    bitnet_verify_options o;
    int gate;
    if (!path)
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: path must not be NULL");
    if (!from_hex(secret, key, sizeof key))
        return bnet_fail(err, BITNET_ARGUMENT, "receipt: secret must be 64 hexadecimal digits");
    bitnet_verify_options_init(&o);
    bitnet_status st = bnet_receipt_read(path, &o, &root, &gate, err); /* what it signs */
    if (st == BITNET_OK)
        st = sign(root, key, err);
    if (st == BITNET_OK)
        st = bnet_receipt_save(root, path, err);
    json_decref(root);
    return st;
}

bitnet_status bnet_sign_check_key(const char *public_key, bitnet_error *err)
{
    uint8_t key[BNET_ED25519_KEY];
    if (from_hex(public_key, key, sizeof key))
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "receipt: public_key must be 64 hexadecimal digits");
}

bool bnet_sign_check(checking *c)
{
    const json_t *there = at(c->root, BNET_RECEIPT_SIGNATURE);
    const char *wanted = c->o->public_key;
    const char *key = text_at(c, BNET_RECEIPT_SIGNATURE ".public_key");
    uint8_t pub[BNET_ED25519_KEY], signature[BNET_ED25519_SIGNATURE];
    bnet_str form = {0};
    if (!there)
        return !wanted || no(c, "a signature is required, the receipt has none");
    if (wanted && strcmp(wanted, key) != 0)
        return no(c, "it is signed with another key");
    if (!from_hex(key, pub, sizeof pub) ||
        !from_hex(text_at(c, BNET_RECEIPT_SIGNATURE ".ed25519"), signature, sizeof signature))
        return no(c, "key or signature are not 64 and 128 hexadecimal digits");
    c->broken = bnet_receipt_canonical(c->root, &form, c->err);
    bool right = c->broken == BITNET_OK && bnet_ed25519_verify(pub, form.data, form.n, signature);
    bnet_str_free(&form);
    return right || no(c, "the signature is not of this receipt");
}
