/* synthetic_fill.c - the random weights of a synthetic model.
 *
 * Invariants: what is written depends on nothing but the place in the file, so any number of
 * threads writes the same bytes; activations stay finite, because the scale of every matrix keeps
 * its outputs at the size of its inputs; every code is valid, so that strict mode accepts it. */
#include <math.h>

#include "bench/synthetic.h"

static uint64_t next(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Roughly normal, variance 1: four uniform numbers added up. */
static float normal(uint64_t *s)
{
    uint64_t r = next(s);
    int sum =
        (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) + (int)(r >> 48);
    return ((float)sum - 131070.0f) / 37837.0f;
}

/* Blocks of 256 values encoded once; rows of embeddings are dealt from them, so that their values
 * are distributed like a model's and filling costs a copy. */
enum { BANK_BLOCKS = 1024, BANK_VALUES = 256 };

typedef struct filling {
    bnet_gguf *gguf;
    uint8_t *bank;
    size_t bank_bytes; /* of one block */
    size_t bank_values;
    bnet_type head;
} filling;

static bitnet_status make_bank(filling *f, int n_embd, bitnet_error *err)
{
    const bnet_type_info *t = bnet_type_find(f->head);
    uint64_t n_bytes = 0, seed = 1;
    f->bank_values = (size_t)n_embd % BANK_VALUES ? 32 : BANK_VALUES;
    float values[BANK_VALUES], scale = 3.0f / sqrtf((float)n_embd);
    if ((size_t)n_embd % f->bank_values || !bnet_type_bytes(f->head, f->bank_values, 1, &n_bytes))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "synthetic model: rows of %d values cannot be stored as %s", n_embd,
                         t->name);
    f->bank_bytes = (size_t)n_bytes;
    f->bank = bnet_calloc(BANK_BLOCKS, f->bank_bytes);
    if (!f->bank)
        return bnet_no_memory(err, "synthetic model");
    for (size_t b = 0; b < BANK_BLOCKS; b++) {
        for (size_t i = 0; i < f->bank_values; i++)
            values[i] = scale * normal(&seed);
        if (!bnet_encode_row(f->head, values, f->bank + b * f->bank_bytes, f->bank_values))
            return bnet_fail(err, BITNET_ARGUMENT, "synthetic model: nothing encodes %s", t->name);
    }
    return BITNET_OK;
}

/* Two random bits each, the invalid 3 turned into 1: half of the weights are 0. */
static void fill_codes(uint8_t *p, size_t n_bytes, uint64_t seed)
{
    size_t i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        uint64_t x = next(&seed);
        bnet_put_u64(p + i, x ^ (x & x >> 1 & 0x5555555555555555u) << 1);
    }
    memset(p + i, 0x55, n_bytes - i);
}

static void fill_rows(const filling *f, uint8_t *p, size_t n_bytes, uint64_t seed)
{
    for (size_t i = 0; i + f->bank_bytes <= n_bytes; i += f->bank_bytes)
        memcpy(p + i, f->bank + next(&seed) % BANK_BLOCKS * f->bank_bytes, f->bank_bytes);
}

static void fill_norm(uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        bnet_put_f32(p + 4 * i, 1.0f + 0.1f * normal(&seed));
}

/* Tensors are cut into pieces of this many bytes (whole blocks of a bank), dealt to the threads. */
static size_t piece_bytes(const filling *f, const bnet_tensor *t)
{
    size_t about = (size_t)1 << 20;
    return t->type == BNET_F32 && t->n_dims == 1 ? (size_t)t->n_bytes
           : t->type == BNET_I2_S                ? about
                                                 : about / f->bank_bytes * f->bank_bytes;
}

static void fill_piece(const filling *f, const bnet_tensor *t, uint64_t seed, size_t begin,
                       size_t end)
{
    uint8_t *data = (uint8_t *)(uintptr_t)t->data;
    if (t->type == BNET_F32 && t->n_dims == 1)
        fill_norm(data, (size_t)bnet_tensor_elems(t), seed);
    else if (t->type != BNET_I2_S)
        fill_rows(f, data + begin, end - begin, seed);
    else {
        size_t n_codes = (size_t)bnet_tensor_elems(t) / 4;
        fill_codes(data + begin, BNET_MIN(end, n_codes) - begin, seed);
        if (end > n_codes) /* half of n_in products are +-1: this keeps the variance */
            bnet_i2s_tail(sqrtf(2.0f / (float)t->ne[0]), data + n_codes);
    }
}

static void fill_share(void *arg, bnet_share part)
{
    const filling *f = arg;
    uint64_t n = 0;
    for (size_t i = 0; i < bnet_gguf_n_tensors(f->gguf); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(f->gguf, i);
        size_t piece = piece_bytes(f, t), total = (size_t)t->n_bytes;
        for (size_t at = 0; at < total; n++) {
            size_t end = at + piece;
            if (end > total || (t->type == BNET_I2_S && total - end <= 32))
                end = total; /* the scale of I2_S stays with the last codes */
            if (n % (uint64_t)part.count == (uint64_t)part.index)
                fill_piece(f, t, n * 0x2545f4914f6cdd1du, at, end);
            at = end;
        }
    }
}

bitnet_status bnet_synthetic_fill(uint8_t *data, size_t n_bytes, bnet_type head, int n_embd,
                                  bitnet_error *err)
{
    filling f = {.head = head};
    bnet_pool *pool = NULL;
    bitnet_status st = bnet_gguf_open_memory(data, n_bytes, "synthetic", NULL, &f.gguf, err);
    if (st == BITNET_OK)
        st = make_bank(&f, n_embd, err);
    if (st == BITNET_OK)
        st = bnet_pool_open(bnet_cpu_count(), &pool, err);
    if (st == BITNET_OK)
        bnet_pool_run(pool, fill_share, &f);
    bnet_pool_close(pool);
    bnet_gguf_close(f.gguf);
    bnet_free(f.bank);
    return st;
}
