/* index.h - from a text to its number in a table of the file, compactly: four bytes per slot,
 * texts stay where they are. Hides: hashing and probing. The first text put under a key stays:
 * duplicates do not replace it. A look-up examines at most BNET_INDEX_PROBES slots. */
#ifndef BNET_INDEX_H
#define BNET_INDEX_H

#include "base/hash.h"
#include "format/gguf.h"

/* ---- texts: a string array of the file, addressed by number ---- */

typedef struct bnet_texts {
    const uint8_t *base; /* first byte of the array in the mapped file */
    uint32_t *at;        /* [n] offset of each text from base; its u64 length lies just before it */
    size_t n;
    size_t longest; /* bytes of the longest text */
    size_t n_bytes; /* of all texts together */
} bnet_texts;

static inline bnet_span bnet_text_at(const bnet_texts *t, size_t i)
{
    const uint8_t *p = t->base + t->at[i];
    return (bnet_span){(const char *)p, (size_t)bnet_u64(p - 8)};
}

/* Fails TOKENIZER where the array is too large to address, MEMORY. */
bitnet_status bnet_texts_open(bnet_texts *t, const bnet_gguf *g, const bnet_gguf_kv *kv,
                              bitnet_error *err);
void bnet_texts_close(bnet_texts *t);

/* ---- index ---- */

typedef struct bnet_index {
    uint32_t *slots; /* number + 1 in the low bits, upper bits of the hash above them; 0: empty */
    uint64_t slot_mask; /* number of slots - 1 */
    uint32_t number_mask;
    bnet_hash_key key;   /* secret: no file can be built to collide */
    uint32_t ends[2048]; /* bit 256 * first byte + last byte: some text has them */
} bnet_index;

/* At most two thirds of the slots are taken, so that a random key puts a text this far from its
 * place about once in 10^30 tables. */
#define BNET_INDEX_PROBES 1024u

/* What to do with text i, and under which hash. */
typedef enum bnet_fill { BNET_FILL_SKIP, BNET_FILL_PUT, BNET_FILL_BAD } bnet_fill;
typedef bnet_fill (*bnet_fill_fn)(const void *owner, bnet_hash_key key, size_t i, uint64_t *hash);

/* Puts all texts the function wants, under another key if they do not fit within the probes of the
 * first. *bad is the first text it called bad, or texts->n. Fails MEMORY, and TOKENIZER if the
 * texts collide under every key tried. */
bitnet_status bnet_index_open(bnet_index *x, const bnet_texts *texts, bnet_fill_fn fill,
                              const void *owner, size_t *bad, bitnet_error *err);
void bnet_index_close(bnet_index *x);

/* False: no text begins with the byte `first` and ends with `last`. */
static inline bool bnet_index_ends(const bnet_index *x, char first, char last)
{
    return x->ends[(unsigned char)first << 3 | (unsigned char)last >> 5] >> (last & 31) & 1;
}

/* Walks the numbers that may be stored under a hash: start with *at = hash; -1 ends. */
static inline int64_t bnet_index_next(const bnet_index *x, uint64_t hash, uint64_t *at)
{
    uint32_t tag = (uint32_t)(hash >> 32) & ~x->number_mask;
    for (uint64_t i = *at; i - hash < BNET_INDEX_PROBES; i++) {
        uint32_t slot = x->slots[i & x->slot_mask];
        if (!slot)
            break;
        if ((slot & ~x->number_mask) == tag) {
            *at = i + 1;
            return (int64_t)(slot & x->number_mask) - 1;
        }
    }
    return -1;
}

/* The first text equal to s, for an index filled under bnet_hash(key, text). `room` (faster): the 8
 * bytes before s may be read. */
bool bnet_index_get(const bnet_index *x, const bnet_texts *texts, const char *s, size_t n,
                    bool room, uint32_t *number);

#endif
