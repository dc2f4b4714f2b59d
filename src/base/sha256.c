/* sha256.c - through libcrypto's EVP, which uses the CPU's own instructions where it has them. */
#include "base/sha256.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/file.h"
#include "bitnet_tools.h"

struct bnet_sha256 {
    EVP_MD_CTX *ctx;
    bool failed;
};

bitnet_status bnet_sha256_open(bnet_sha256 **out, bitnet_error *err)
{
    bnet_sha256 *h = bnet_calloc(1, sizeof *h);
    ERR_set_mark(); /* the thread's error queue belongs to the program: leave it as it was */
    if (h)
        h->ctx = EVP_MD_CTX_new();
    bool ok = h && h->ctx && EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) == 1;
    ERR_pop_to_mark();
    if (!ok) {
        bnet_sha256_close(h);
        return bnet_no_memory(err, "sha256");
    }
    *out = h;
    return BITNET_OK;
}

void bnet_sha256_add(bnet_sha256 *h, const void *data, size_t n)
{
    if (n && EVP_DigestUpdate(h->ctx, data, n) != 1)
        h->failed = true;
}

bitnet_status bnet_sha256_finish(bnet_sha256 *h, uint8_t out[BNET_SHA256_BYTES], bitnet_error *err)
{
    unsigned n = 0;
    if (h->failed || EVP_DigestFinal_ex(h->ctx, out, &n) != 1 || n != BNET_SHA256_BYTES)
        return bnet_fail(err, BITNET_ERROR, "sha256: the crypto library failed");
    return BITNET_OK;
}

void bnet_sha256_close(bnet_sha256 *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    bnet_free(h);
}

/* Reads the map in steps and lets go of each, so that hashing a model does not fill the memory. */
static void add_map(bnet_sha256 *h, const bnet_map *map)
{
    enum { STEP = 8 << 20 };
    for (size_t at = 0; at < map->n_bytes; at += STEP) {
        size_t n = BNET_MIN((size_t)STEP, map->n_bytes - at);
        bnet_sha256_add(h, map->data + at, n);
        bnet_map_release(map->data + at, n);
    }
}

static void to_hex(const uint8_t digest[BNET_SHA256_BYTES], char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < BNET_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = '\0';
}

bitnet_status bnet_sha256_hex(const void *data, size_t n, char hex[65], bitnet_error *err)
{
    return bnet_sha256_hex_by(data, n, NULL, NULL, hex, err);
}

bitnet_status bnet_sha256_hex_by(const void *data, size_t n, bitnet_progress_fn each, void *user,
                                 char hex[65], bitnet_error *err)
{
    enum { PIECE = 1 << 20 };
    uint8_t digest[BNET_SHA256_BYTES];
    bnet_sha256 *h = NULL;
    bitnet_status st = bnet_sha256_open(&h, err);
    for (size_t at = 0, k; st == BITNET_OK && at < n; at += k) {
        k = BNET_MIN(n - at, (size_t)PIECE);
        bnet_sha256_add(h, (const uint8_t *)data + at, k);
        if (each && !each(user, at + k, n))
            st = bnet_fail(err, BITNET_CANCELLED, "sha256: cancelled");
    }
    if (st == BITNET_OK)
        st = bnet_sha256_finish(h, digest, err);
    bnet_sha256_close(h);
    if (st == BITNET_OK)
        to_hex(digest, hex);
    return st;
}

bitnet_status bitnet_file_sha256(const char *path, char hex[65], bitnet_error *err)
{
    if (!path || !hex)
        return bnet_fail(err, BITNET_ARGUMENT, "sha256: path and hex must not be NULL");
    bnet_map map = {0};
    bnet_sha256 *h = NULL;
    uint8_t digest[BNET_SHA256_BYTES];
    bitnet_status st = bnet_map_open(path, &map, err);
    if (st == BITNET_OK)
        st = bnet_sha256_open(&h, err);
    if (st == BITNET_OK) {
        add_map(h, &map);
        st = bnet_sha256_finish(h, digest, err);
    }
    if (st == BITNET_OK)
        to_hex(digest, hex);
    bnet_sha256_close(h);
    bnet_map_close(&map);
    return st;
}
