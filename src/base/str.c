/* str.c - growable strings, string map, UTF-8 primitives. */
#include "base/str.h"

#include <stdio.h>

bool bnet_str_reserve(bnet_str *s, size_t n)
{
    if (s->failed)
        return false;
    s->failed = n > SIZE_MAX - s->n - 1 || !bnet_grow(&s->data, &s->cap, s->n + n + 1, 1);
    if (!s->failed)
        s->data[s->n] = '\0';
    return !s->failed;
}

void bnet_str_add(bnet_str *s, const void *bytes, size_t n)
{
    if (!bnet_str_reserve(s, n))
        return;
    if (n)
        memcpy(s->data + s->n, bytes, n);
    s->n += n;
    s->data[s->n] = '\0';
}

void bnet_str_puts(bnet_str *s, const char *text)
{
    bnet_str_add(s, text, strlen(text));
}

void bnet_str_putc(bnet_str *s, char c)
{
    bnet_str_add(s, &c, 1);
}

void bnet_str_addf(bnet_str *s, const char *fmt, ...)
{
    if (s->failed)
        return;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !bnet_grow(&s->data, &s->cap, s->n + (size_t)n + 1, 1)) {
        s->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(s->data + s->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->n += (size_t)n;
}

void bnet_str_free(bnet_str *s)
{
    bnet_free(s->data);
    memset(s, 0, sizeof *s);
}

bool bnet_strmap_init(bnet_strmap *m, size_t n_expected)
{
    memset(m, 0, sizeof *m);
    size_t n_slots = 16;
    while (n_slots / 2 < n_expected)
        n_slots *= 2;
    m->slots = bnet_calloc(n_slots, sizeof *m->slots);
    m->n_slots = m->slots ? n_slots : 0;
    m->key = bnet_hash_key_new();
    return m->slots != NULL;
}

void bnet_strmap_free(bnet_strmap *m)
{
    bnet_free(m->slots);
    memset(m, 0, sizeof *m);
}

/* The slot that holds the key, or the empty slot where it belongs. */
static bnet_strmap_slot *find_slot(const bnet_strmap *m, const char *key, size_t n)
{
    size_t i = (size_t)bnet_hash(m->key, key, n, false) & (m->n_slots - 1);
    for (;; i = (i + 1) & (m->n_slots - 1)) {
        bnet_strmap_slot *s = &m->slots[i];
        if (!s->key || (s->n == n && memcmp(s->key, key, n) == 0))
            return s;
    }
}

static bool rehash(bnet_strmap *m)
{
    bnet_strmap bigger;
    if (!bnet_strmap_init(&bigger, m->n_slots))
        return false;
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].key)
            *find_slot(&bigger, m->slots[i].key, m->slots[i].n) = m->slots[i];
    bigger.n_used = m->n_used;
    bnet_free(m->slots);
    *m = bigger;
    return true;
}

bool bnet_strmap_put(bnet_strmap *m, const char *key, size_t n, uint32_t value, bool *existed)
{
    if (n > UINT32_MAX || (m->n_used >= m->n_slots / 2 && !rehash(m)))
        return false;
    bnet_strmap_slot *s = find_slot(m, key, n);
    if (existed)
        *existed = s->key != NULL;
    if (s->key)
        return true;
    *s = (bnet_strmap_slot){key, (uint32_t)n, value};
    m->n_used++;
    return true;
}

bool bnet_strmap_get(const bnet_strmap *m, const char *key, size_t n, uint32_t *value)
{
    if (!m->n_slots)
        return false;
    const bnet_strmap_slot *s = find_slot(m, key, n);
    if (!s->key)
        return false;
    *value = s->value;
    return true;
}

/* Table 3-7 of the Unicode standard: lead byte, range of the second byte, length. */
static int utf8_lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef) {
        *lo = c == 0xe0 ? 0xa0 : 0x80;
        *hi = c == 0xed ? 0x9f : 0xbf;
        return 3;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        *lo = c == 0xf0 ? 0x90 : 0x80;
        *hi = c == 0xf4 ? 0x8f : 0xbf;
        return 4;
    }
    return 0;
}

int bnet_utf8_len(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned char lo, hi;
    if (n == 0)
        return -1;
    int len = utf8_lead(u[0], &lo, &hi);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if (u[i] < lo || u[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return len;
}

uint32_t bnet_utf8_decode(const char *s, int len)
{
    const unsigned char *u = (const unsigned char *)s;
    if (len == 1)
        return u[0];
    uint32_t cp = u[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++)
        cp = cp << 6 | (u[i] & 0x3fu);
    return cp;
}

int bnet_utf8_encode(uint32_t cp, char out[4])
{
    int len = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[len] | cp);
    return len;
}
