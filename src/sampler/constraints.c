/* constraints.c - a copy of the caller's mask, and of its biases in the order of ids. */
#include "sampler/constraints.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

void bitnet_constraints_init(bitnet_constraints *c)
{
    if (c)
        *c = (bitnet_constraints){.struct_size = sizeof *c};
}

static size_t n_words(int n_vocab)
{
    return ((size_t)n_vocab + 63) / 64 * 2;
}

/* Word w of the mask without the bits beyond the vocabulary. */
static uint32_t word(const uint32_t *allowed, size_t w, int n_vocab)
{
    size_t begin = 32 * w, n = (size_t)n_vocab;
    if (begin >= n)
        return 0;
    return n - begin >= 32 ? allowed[w] : allowed[w] & ((1u << (n - begin)) - 1);
}

static size_t count_allowed(const uint32_t *allowed, int n_vocab)
{
    size_t n = 0;
    for (size_t w = 0; w < n_words(n_vocab); w++)
        for (uint32_t bits = word(allowed, w, n_vocab); bits; bits &= bits - 1)
            n++;
    return n;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const bitnet_bias *)a)->id, y = ((const bitnet_bias *)b)->id;
    return (x > y) - (x < y);
}

static bitnet_status check_bias(const bitnet_bias *b, size_t i, int n_vocab, bitnet_error *err)
{
    if (b->id < 0 || b->id >= n_vocab)
        return bnet_fail(err, BITNET_ARGUMENT, "constraints: biases[%zu].id is %d, must be 0..%d",
                         i, b->id, n_vocab - 1);
    if (!(b->bias <= FLT_MAX)) /* true for NaN */
        return bnet_fail(err, BITNET_ARGUMENT,
                         "constraints: biases[%zu].bias is %g, must be finite or -infinity", i,
                         (double)b->bias);
    return BITNET_OK;
}

/* A checked copy in the order of ids, in *out; NULL for none. */
static bitnet_status copy_biases(const bitnet_constraints *from, int n_vocab, bitnet_bias **out,
                                 bitnet_error *err)
{
    size_t n = from->n_biases;
    bitnet_status st = BITNET_OK;
    *out = NULL;
    if (n > (size_t)n_vocab)
        return bnet_fail(err, BITNET_ARGUMENT, "constraints: n_biases is %zu, but there are %d ids",
                         n, n_vocab);
    if (n && !from->biases)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "constraints: biases must not be NULL when n_biases is %zu", n);
    for (size_t i = 0; i < n && st == BITNET_OK; i++)
        st = check_bias(&from->biases[i], i, n_vocab, err);
    if (st != BITNET_OK || n == 0)
        return st;
    bitnet_bias *copy = bnet_calloc(n, sizeof *copy);
    if (!copy)
        return bnet_no_memory(err, "biases");
    memcpy(copy, from->biases, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_id);
    for (size_t i = 1; i < n; i++)
        if (copy[i].id == copy[i - 1].id) {
            st =
                bnet_fail(err, BITNET_ARGUMENT, "constraints: biases name id %d twice", copy[i].id);
            bnet_free(copy);
            return st;
        }
    *out = copy;
    return BITNET_OK;
}

/* How many ids the mask allows; all of them without one. */
static bitnet_status check_mask(const bitnet_constraints *from, int n_vocab, size_t *n_allowed,
                                bitnet_error *err)
{
    *n_allowed = from->allowed ? count_allowed(from->allowed, n_vocab) : (size_t)n_vocab;
    if (*n_allowed > 0)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT,
                     "constraints: allowed has no bit set for any of the %d ids; set one, or let "
                     "allowed be NULL",
                     n_vocab);
}

bitnet_status bnet_constraints_set(bnet_constraints *c, const bitnet_constraints *from, int n_vocab,
                                   bitnet_error *err)
{
    bitnet_constraints o;
    bitnet_bias *biases = NULL;
    size_t n_allowed;
    bitnet_constraints_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, from, "constraints", err);
    if (st == BITNET_OK)
        st = check_mask(&o, n_vocab, &n_allowed, err);
    if (st == BITNET_OK)
        st = copy_biases(&o, n_vocab, &biases, err);
    if (st != BITNET_OK)
        return st;
    bool masked = n_allowed < (size_t)n_vocab;
    if (masked && !c->allowed && !(c->allowed = bnet_calloc(n_words(n_vocab), sizeof(uint32_t)))) {
        bnet_free(biases);
        return bnet_no_memory(err, "mask of allowed tokens");
    }
    for (size_t w = 0; masked && w < n_words(n_vocab); w++)
        c->allowed[w] = word(o.allowed, w, n_vocab);
    bnet_free(c->biases);
    *c = (bnet_constraints){masked, n_allowed, c->allowed, biases, o.n_biases};
    return BITNET_OK;
}

void bnet_constraints_free(bnet_constraints *c)
{
    bnet_free(c->allowed);
    bnet_free(c->biases);
}

bool bnet_constraints_bias(const bnet_constraints *c, int32_t id, float *bias)
{
    size_t lo = 0, hi = c->n_biases;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c->biases[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == c->n_biases || c->biases[lo].id != id)
        return false;
    *bias = c->biases[lo].bias;
    return true;
}

void bnet_constraints_list(const bnet_constraints *c, int32_t *ids)
{
    size_t n = 0;
    for (int32_t id = 0; n < c->n_allowed; id++)
        if (bnet_constraints_allow(c, id))
            ids[n++] = id;
}
