/* receipt_seal.c - one form of a receipt that does not depend on who wrote the file, and its
 * digest. Anyone can recompute it: it tells a changed receipt from a whole one, not an honest one
 * from a forged one. */
#include "receipt/receipt_seal.h"

#include <stdio.h>

#include "base/sha256.h"

/* Writers of JSON differ in how they print numbers that are not whole: NULL, or the text that
 * stands for one. */
static json_t *plain_number(const json_t *j)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.15g", json_real_value(j));
    char *comma = strchr(digits, ','); /* of the program's locale */
    if (comma)
        *comma = '.';
    return json_string(digits);
}

/* Replaces numbers that are not whole, however deep. The depth is bounded by the reader. */
static bool replace_reals(json_t *j)
{
    const char *key;
    json_t *value;
    void *next;
    size_t i;
    json_object_foreach_safe(j, next, key, value)
    {
        bool real = json_is_real(value);
        if (real ? json_object_set_new(j, key, plain_number(value)) != 0 : !replace_reals(value))
            return false;
    }
    json_array_foreach(j, i, value)
    {
        bool real = json_is_real(value);
        if (real ? json_array_set_new(j, i, plain_number(value)) != 0 : !replace_reals(value))
            return false;
    }
    return true;
}

static int take(const char *bytes, size_t n, void *user)
{
    bnet_str *out = user;
    bnet_str_add(out, bytes, n);
    return out->failed ? -1 : 0;
}

bitnet_status bnet_receipt_canonical(const json_t *root, bnet_str *out, bitnet_error *err)
{
    json_t *copy = json_deep_copy(root);
    json_object_del(copy, BNET_RECEIPT_DIGEST);
    json_object_del(copy, BNET_RECEIPT_SIGNATURE);
    bool ok = copy && replace_reals(copy) &&
              json_dump_callback(copy, take, out, JSON_COMPACT | JSON_SORT_KEYS) == 0;
    json_decref(copy);
    return ok ? BITNET_OK : bnet_no_memory(err, "receipt");
}

bitnet_status bnet_receipt_digest(const json_t *root, char hex[65], bitnet_error *err)
{
    bnet_str form = {0};
    bitnet_status st = bnet_receipt_canonical(root, &form, err);
    if (st == BITNET_OK)
        st = bnet_sha256_hex(form.data, form.n, hex, err);
    bnet_str_free(&form);
    return st;
}

bitnet_status bnet_receipt_seal(json_t *root, bitnet_error *err)
{
    char hex[65];
    bitnet_status st = bnet_receipt_digest(root, hex, err);
    if (st == BITNET_OK && json_object_set_new(root, BNET_RECEIPT_DIGEST, json_string(hex)) != 0)
        st = bnet_no_memory(err, "receipt");
    return st;
}
