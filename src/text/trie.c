/* trie.c - sorting tokens by their bytes, and the tree that follows from the order. */
#include "text/trie.h"
#include "text/vocab.h"

#include <stdlib.h>

const char *bnet_token_text(const bnet_tokenizer *t, int32_t id, size_t *n)
{
    const char *bytes = bnet_token_bytes(t, id, n);
    if (!bytes || *n == 0 || *n > BNET_TRIE_DEPTH || bnet_token_stops(t, id))
        return NULL;
    bnet_token_type type = bnet_type_of(t, (size_t)id);
    return bnet_type_plain(type) || type == BNET_TOKEN_BYTE ? bytes : NULL;
}

bool bnet_token_restarts(const bnet_tokenizer *t, int32_t id)
{
    return bnet_type_of(t, (size_t)id) == BNET_TOKEN_USER;
}

typedef struct entry {
    const char *bytes;
    size_t n;
    int32_t id;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int d = memcmp(x->bytes, y->bytes, BNET_MIN(x->n, y->n));
    if (d != 0 || x->n != y->n)
        return d ? d : x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static size_t list_tokens(const bnet_tokenizer *t, entry *list)
{
    size_t n = 0, n_tokens = bnet_tokenizer_size(t);
    for (size_t id = 0; id < n_tokens; id++) {
        entry e = {.id = (int32_t)id};
        e.bytes = bnet_token_text(t, e.id, &e.n);
        if (e.bytes)
            list[n++] = e;
    }
    qsort(list, n, sizeof *list, by_bytes);
    return n;
}

static size_t common(const entry *a, const entry *b)
{
    size_t i = 0;
    while (i < a->n && i < b->n && a->bytes[i] == b->bytes[i])
        i++;
    return i;
}

static size_t count_places(const entry *list, size_t n)
{
    size_t places = 1;
    for (size_t i = 0; i < n; i++)
        places += list[i].n - (i ? common(&list[i - 1], &list[i]) : 0);
    return places;
}

/* The places that a token adds to those of the one before it. at[d]: the open place of depth d. */
static void add_token(bnet_trie *trie, const entry *e, size_t shared, uint32_t *at, size_t *open)
{
    while (*open > shared)
        trie->end[at[(*open)--]] = (uint32_t)trie->n;
    for (size_t d = shared; d < e->n; d++) {
        size_t i = trie->n++;
        trie->byte[i] = (uint8_t)e->bytes[d];
        trie->depth[i] = (uint8_t)(d + 1);
        trie->token[i] = -1;
        at[++*open] = (uint32_t)i;
    }
    int32_t *place = &trie->token[at[e->n]];
    trie->same[e->id] = *place; /* ids ascend, so that the last one is met first */
    *place = e->id;
}

static void fill(bnet_trie *trie, const entry *list, size_t n)
{
    uint32_t at[BNET_TRIE_DEPTH + 1] = {0};
    size_t open = 0;
    trie->n = 1;
    trie->byte[0] = trie->depth[0] = 0;
    trie->token[0] = -1;
    for (size_t i = 0; i < n; i++)
        add_token(trie, &list[i], i ? common(&list[i - 1], &list[i]) : 0, at, &open);
    for (size_t d = 0; d <= open; d++)
        trie->end[at[d]] = (uint32_t)trie->n;
}

static bool allocate(bnet_trie *trie, size_t places, size_t n_tokens)
{
    trie->byte = bnet_alloc(places);
    trie->depth = bnet_alloc(places);
    trie->end = bnet_calloc(places, sizeof *trie->end);
    trie->token = bnet_calloc(places, sizeof *trie->token);
    trie->same = bnet_calloc(n_tokens, sizeof *trie->same);
    return trie->byte && trie->depth && trie->end && trie->token && trie->same;
}

void bnet_trie_free(bnet_trie *trie)
{
    if (!trie)
        return;
    bnet_free(trie->byte);
    bnet_free(trie->depth);
    bnet_free(trie->end);
    bnet_free(trie->token);
    bnet_free(trie->same);
    bnet_free(trie);
}

static bnet_trie *make(const bnet_tokenizer *t)
{
    size_t n_tokens = bnet_tokenizer_size(t), n = 0;
    entry *list = bnet_calloc(n_tokens, sizeof *list);
    bnet_trie *trie = bnet_calloc(1, sizeof *trie);
    bool ok = list && trie;
    if (ok) {
        n = list_tokens(t, list);
        ok = allocate(trie, count_places(list, n), n_tokens);
    }
    if (ok) {
        fill(trie, list, n);
        trie->drops_space = t->spm && t->space_prefix;
    } else {
        bnet_trie_free(trie);
        trie = NULL;
    }
    bnet_free(list);
    return trie;
}

bitnet_status bnet_tokenizer_trie(bnet_tokenizer *t, const bnet_trie **out, bitnet_error *err)
{
    pthread_mutex_lock(&t->trie_lock);
    if (!t->trie)
        t->trie = make(t);
    *out = t->trie;
    pthread_mutex_unlock(&t->trie_lock);
    return *out ? BITNET_OK : bnet_no_memory(err, "tree of the vocabulary");
}
