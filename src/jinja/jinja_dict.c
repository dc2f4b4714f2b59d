/* jinja_dict.c - dicts of templates: pairs in the order of insertion, and where there are more than
 * a few an index by the hash of their keys. */
#include "jinja/jinja_impl.h"

enum { FEW = 8, FIRST_SLOTS = 32 };

jinja_value bnet_jinja_dict_of(jinja *m)
{
    jinja_value v = {.type = JINJA_DICT, .u.dict = bnet_jinja_alloc(m, sizeof(jinja_dict))};
    return v.u.dict ? v : (jinja_value){.type = JINJA_UNDEFINED};
}

static bool same_key(jinja *m, jinja_value a, jinja_value b)
{
    if (a.type == JINJA_STRING && b.type == JINJA_STRING)
        return bnet_jinja_same(m, a.u.s, b.u.s);
    return a.type != JINJA_STRING && b.type != JINJA_STRING && bnet_jinja_equal(m, a, b);
}

/* Keys that are equal have the same hash: 1, 1.0 and true are, and so may tuples of them be. */
static uint64_t hash_of(jinja *m, jinja_value key)
{
    double f = 0;
    char bytes[sizeof f];
    if (!m->has_key) {
        m->key = bnet_hash_key_new();
        m->has_key = true;
    }
    if (key.type == JINJA_STRING)
        return bnet_jinja_step(m, key.u.s.n) ? bnet_hash(m->key, key.u.s.data, key.u.s.n, false)
                                             : 0;
    if (bnet_jinja_number(key, &f)) {
        f += 0.0; /* which makes -0.0 the other zero */
        memcpy(bytes, &f, sizeof bytes);
        return bnet_hash(m->key, bytes, sizeof bytes, false);
    }
    return key.type == JINJA_TUPLE ? key.u.list->n : (uint64_t)key.type;
}

/* The slot that has the key's pair, or an empty one for it. */
static uint32_t *slot_of(jinja *m, const jinja_dict *d, jinja_value key)
{
    size_t i = (size_t)hash_of(m, key) & (d->n_slots - 1);
    while (d->slots[i] && !same_key(m, d->pairs[d->slots[i] - 1].key, key) && bnet_jinja_step(m, 0))
        i = (i + 1) & (d->n_slots - 1);
    return &d->slots[i];
}

const jinja_value *bnet_jinja_get(jinja *m, const jinja_dict *d, jinja_value key)
{
    bnet_jinja_step(m, 0);
    if (d->slots) {
        uint32_t at = *slot_of(m, d, key);
        return at && !m->failed ? &d->pairs[at - 1].value : NULL;
    }
    for (size_t i = 0; i < d->n && !m->failed; i++)
        if (same_key(m, d->pairs[i].key, key))
            return m->failed ? NULL : &d->pairs[i].value;
    return NULL;
}

/* Slots for twice as many pairs as there are at least; those that are there get theirs. */
static void make_slots(jinja *m, jinja_dict *d)
{
    size_t n = d->n_slots ? 2 * d->n_slots : FIRST_SLOTS;
    uint32_t *slots =
        bnet_jinja_step(m, n * sizeof *slots) ? bnet_jinja_alloc(m, n * sizeof *slots) : NULL;
    if (d->n >= UINT32_MAX)
        bnet_jinja_fail(m, "a dict has %zu keys", d->n);
    if (!slots || m->failed)
        return;
    d->slots = slots;
    d->n_slots = n;
    for (size_t i = 0; i < d->n && !m->failed; i++)
        *slot_of(m, d, d->pairs[i].key) = (uint32_t)i + 1;
}

void bnet_jinja_put(jinja *m, jinja_dict *d, jinja_value key, jinja_value value)
{
    jinja_value *old = (jinja_value *)bnet_jinja_get(m, d, key);
    void *pairs = d->pairs;
    if (old)
        *old = value;
    if (old || m->failed || !bnet_jinja_room(m, &pairs, d->n, &d->cap, sizeof(jinja_pair)))
        return;
    d->pairs = pairs;
    d->pairs[d->n++] = (jinja_pair){key, value};
    if (d->n > FEW && 2 * d->n > d->n_slots)
        make_slots(m, d);
    else if (d->slots)
        *slot_of(m, d, key) = (uint32_t)d->n;
}
