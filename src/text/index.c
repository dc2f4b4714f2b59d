/* index.c - tables of texts in the file and the hash that finds them. */
#include "text/index.h"

bitnet_status bnet_texts_open(bnet_texts *t, const bnet_gguf *g, const bnet_gguf_kv *kv,
                              bitnet_error *err)
{
    *t = (bnet_texts){.base = kv->data, .n = (size_t)kv->count};
    uint64_t n_bytes;
    if (!bnet_mul(kv->count, sizeof *t->at, &n_bytes) || !(t->at = bnet_alloc((size_t)n_bytes)))
        return bnet_no_memory(err, "vocabulary");
    const uint8_t *cursor = kv->data;
    for (size_t i = 0; i < t->n; i++) {
        bnet_span s = bnet_gguf_next_string(&cursor);
        uint64_t at = (uint64_t)((const uint8_t *)s.data - kv->data);
        if (s.n > UINT32_MAX || at + s.n > UINT32_MAX)
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: %.*s: the texts take more than 4 GiB (element %zu)",
                             bnet_gguf_path(g), (int)kv->key.n, kv->key.data, i);
        t->at[i] = (uint32_t)at;
        t->n_bytes += s.n;
        t->longest = BNET_MAX(t->longest, s.n);
    }
    return BITNET_OK;
}

void bnet_texts_close(bnet_texts *t)
{
    bnet_free(t->at);
    memset(t, 0, sizeof *t);
}

static bool make_slots(bnet_index *x, size_t n_texts)
{
    uint64_t n_slots = 16;
    while (n_slots / 3 * 2 <= n_texts)
        n_slots *= 2;
    x->slots = bnet_calloc((size_t)n_slots, sizeof *x->slots);
    x->slot_mask = n_slots - 1;
    x->number_mask = (uint32_t)BNET_MIN(x->slot_mask, (uint64_t)UINT32_MAX);
    return x->slots != NULL;
}

static bool same(bnet_span a, bnet_span b)
{
    return a.n == b.n && memcmp(a.data, b.data, a.n) == 0;
}

static void add_ends(bnet_index *x, bnet_span s)
{
    if (s.n)
        x->ends[(unsigned char)s.data[0] << 3 | (unsigned char)s.data[s.n - 1] >> 5] |=
            1u << (s.data[s.n - 1] & 31);
}

/* The first of equal texts stays. False: every slot that a look-up would examine is taken. */
static bool put(bnet_index *x, const bnet_texts *texts, size_t number, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32) & ~x->number_mask;
    for (uint64_t at = hash; at - hash < BNET_INDEX_PROBES; at++) {
        uint32_t *slot = &x->slots[at & x->slot_mask], other = *slot & x->number_mask;
        if (!*slot) {
            *slot = tag | (uint32_t)(number + 1);
            add_ends(x, bnet_text_at(texts, number));
            return true;
        }
        if ((*slot & ~x->number_mask) == tag &&
            same(bnet_text_at(texts, other - 1), bnet_text_at(texts, number)))
            return true;
    }
    return false;
}

#define BATCH 32 /* slots fetched ahead: the table is larger than the near caches */

/* False: a text did not fit within the probes. */
static bool fill_all(bnet_index *x, const bnet_texts *texts, bnet_fill_fn fill, const void *owner,
                     size_t *bad)
{
    uint64_t hash[BATCH];
    bnet_fill what[BATCH];
    for (size_t i = 0; i < texts->n; i += BATCH) {
        size_t n = BNET_MIN((size_t)BATCH, texts->n - i);
        for (size_t j = 0; j < n; j++) {
            what[j] = fill(owner, x->key, i + j, &hash[j]);
            if (what[j] == BNET_FILL_PUT)
                __builtin_prefetch(&x->slots[hash[j] & x->slot_mask], 1);
        }
        for (size_t j = 0; j < n; j++) {
            if (what[j] == BNET_FILL_PUT && !put(x, texts, i + j, hash[j]))
                return false;
            if (what[j] == BNET_FILL_BAD) {
                *bad = i + j;
                return true;
            }
        }
    }
    return true;
}

bitnet_status bnet_index_open(bnet_index *x, const bnet_texts *texts, bnet_fill_fn fill,
                              const void *owner, size_t *bad, bitnet_error *err)
{
    *bad = texts->n;
    if (!make_slots(x, texts->n))
        return bnet_no_memory(err, "vocabulary");
    for (int attempt = 0; attempt < 3; attempt++) {
        if (attempt)
            memset(x->slots, 0, (size_t)(x->slot_mask + 1) * sizeof *x->slots);
        x->key = bnet_hash_key_new();
        if (fill_all(x, texts, fill, owner, bad))
            return BITNET_OK;
    }
    return bnet_fail(err, BITNET_TOKENIZER,
                     "vocabulary: more than %u of %zu texts share a hash under every key tried",
                     BNET_INDEX_PROBES, texts->n);
}

void bnet_index_close(bnet_index *x)
{
    bnet_free(x->slots);
    memset(x, 0, sizeof *x);
}

bool bnet_index_get(const bnet_index *x, const bnet_texts *texts, const char *s, size_t n,
                    bool room, uint32_t *number)
{
    bnet_span key = {s, n};
    uint64_t hash = room ? bnet_hash(x->key, s, n, true) : bnet_hash(x->key, s, n, false);
    uint64_t at = hash;
    for (int64_t i; (i = bnet_index_next(x, hash, &at)) >= 0;)
        if (same(bnet_text_at(texts, (size_t)i), key)) {
            *number = (uint32_t)i;
            return true;
        }
    return false;
}
