/* str.h - a growable byte string, a borrowed one, and a map from byte strings to numbers. */
#ifndef BNET_STR_H
#define BNET_STR_H

#include "base/hash.h"

/* A byte string inside something else: not NUL-terminated. */
typedef struct bnet_span {
    const char *data;
    size_t n;
} bnet_span;

/* Zero-initialise to use; `data` is NUL-terminated whenever it is not NULL. A failed append sets
 * `failed` and every later append is a no-op, so callers check once at the end. */
typedef struct bnet_str {
    char *data;
    size_t n, cap;
    bool failed;
} bnet_str;

void bnet_str_add(bnet_str *s, const void *bytes, size_t n);
void bnet_str_puts(bnet_str *s, const char *text);
void bnet_str_putc(bnet_str *s, char c);
/* Room for n bytes more, so that appending them moves nothing. False, and s->failed: no memory. */
bool bnet_str_reserve(bnet_str *s, size_t n);
void bnet_str_addf(bnet_str *s, const char *fmt, ...) BITNET_PRINTF(2, 3);
void bnet_str_free(bnet_str *s); /* back to the zero state */

/* Open-addressing hash map, byte-string keys, u32 values. Keys are borrowed: they must outlive the
 * map. Keyed hash (hash.h): no keys can be chosen to collide; load factor at most 1/2. */
typedef struct bnet_strmap_slot {
    const char *key; /* NULL: empty */
    uint32_t n, value;
} bnet_strmap_slot;

typedef struct bnet_strmap {
    bnet_strmap_slot *slots;
    size_t n_slots, n_used; /* n_slots: 0 or a power of two */
    bnet_hash_key key;
} bnet_strmap;

bool bnet_strmap_init(bnet_strmap *m, size_t n_expected);
void bnet_strmap_free(bnet_strmap *m);
/* False: no memory. If the key exists, nothing changes and *existed (may be NULL) is true. */
bool bnet_strmap_put(bnet_strmap *m, const char *key, size_t n, uint32_t value, bool *existed);
bool bnet_strmap_get(const bnet_strmap *m, const char *key, size_t n, uint32_t *value);

/* Length of the valid UTF-8 character at s (1..4), 0 if the bytes there are invalid, -1 if they are
 * a valid beginning cut short by n. Overlong forms and surrogates are invalid. */
int bnet_utf8_len(const char *s, size_t n);
/* Decodes a character bnet_utf8_len found valid. */
uint32_t bnet_utf8_decode(const char *s, int len);
int bnet_utf8_encode(uint32_t cp, char out[4]); /* returns the length */

/* The value of a hexadecimal digit in either case; -1: it is none. */
static inline int bnet_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
