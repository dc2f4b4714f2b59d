/* mask.c - which tokens may follow in a state: the tree of the vocabulary's bytes is walked with
 * the machine. Masks that were found are kept, a few megabytes of them. */
#include "grammar/grammar.h"

enum { KEPT_BYTES = 4 << 20, KEPT_LEAST = 8, KEPT_MOST = 1024 };

bool bnet_masks_open(bitnet_grammar *g)
{
    size_t n = KEPT_BYTES / (bnet_grammar_words(g) * sizeof(uint32_t));
    g->n_masks = BNET_MIN(BNET_MAX(n, KEPT_LEAST), KEPT_MOST);
    g->masks = bnet_calloc(g->n_masks, sizeof *g->masks);
    g->mask_owner = bnet_calloc(g->n_masks, sizeof *g->mask_owner);
    if (!g->masks || !g->mask_owner)
        return false;
    bnet_masks_forget(g);
    return true;
}

void bnet_masks_forget(bitnet_grammar *g)
{
    for (size_t i = 0; i < g->n_masks; i++)
        g->mask_owner[i] = -1;
}

void bnet_masks_close(bitnet_grammar *g)
{
    for (size_t i = 0; g->masks && i < g->n_masks; i++)
        bnet_free(g->masks[i]);
    bnet_free(g->masks);
    bnet_free(g->mask_owner);
}

static void allow(uint32_t *mask, int32_t id)
{
    mask[id / 32] |= (uint32_t)1 << id % 32;
}

static void allow_all(const bnet_trie *t, size_t place, uint32_t *mask)
{
    for (int32_t id = t->token[place]; id >= 0; id = t->same[id])
        allow(mask, id);
}

/* False: the machine failed. */
static bool walk(bnet_machine *m, const bnet_trie *t, int32_t start, bool fresh, uint32_t *mask)
{
    int32_t state[BNET_TRIE_DEPTH + 1];
    bool drops = fresh && t->drops_space;
    state[0] = start;
    for (size_t i = 1; i < t->n;) {
        size_t d = t->depth[i];
        bool dropped = drops && d == 1 && t->byte[i] == ' ';
        int32_t to = dropped ? start : bnet_machine_next(m, state[d - 1], t->byte[i]);
        if (to == BNET_STATE_ERROR)
            return false;
        if (to == BNET_STATE_DEAD) {
            i = t->end[i];
            continue;
        }
        state[d] = to;
        if (t->token[i] >= 0)
            allow_all(t, i, mask);
        i++;
    }
    return true;
}

static bool is_empty(const uint32_t *mask, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mask[i])
            return false;
    return true;
}

static bitnet_status nothing_follows(bool ends, bitnet_error *err)
{
    return bnet_fail(err, BITNET_ERROR, "%s",
                     ends ? "grammar: the text is complete, and the model has no token to end with"
                          : "grammar: no token of the vocabulary continues the text");
}

static bitnet_status find_mask(bitnet_grammar *g, int32_t state, bool fresh, uint32_t *mask,
                               bitnet_error *err)
{
    const int32_t *stops;
    size_t n_stops = bnet_token_stop_list(g->tokenizer, &stops);
    bool ends = g->machine.states[state].ends;
    memset(mask, 0, bnet_grammar_words(g) * sizeof *mask);
    if (!walk(&g->machine, g->trie, state, fresh, mask))
        return bnet_machine_fail(&g->machine, err);
    for (size_t i = 0; ends && i < n_stops; i++)
        allow(mask, stops[i]);
    return is_empty(mask, bnet_grammar_words(g)) ? nothing_follows(ends, err) : BITNET_OK;
}

/* A place among the kept masks, whose former owner loses it; NULL: no memory for one. */
static uint32_t *place_for(bitnet_grammar *g, size_t *which)
{
    size_t i = g->next_mask;
    if (!g->masks[i] && !(g->masks[i] = bnet_calloc(bnet_grammar_words(g), sizeof(uint32_t))))
        return NULL;
    if (g->mask_owner[i] >= 0)
        g->machine.states[g->mask_owner[i]].mask = -1;
    g->mask_owner[i] = -1;
    g->next_mask = (i + 1) % g->n_masks;
    *which = i;
    return g->masks[i];
}

bitnet_status bnet_grammar_mask(bitnet_grammar *g, int32_t state, bool fresh, uint32_t *scratch,
                                const uint32_t **found, bitnet_error *err)
{
    int32_t known = g->machine.states[state].mask;
    bool kept = !(fresh && g->trie->drops_space);
    size_t which = 0;
    uint32_t *mask = scratch;
    if (kept && known >= 0) {
        *found = g->masks[known];
        return BITNET_OK;
    }
    if (kept && !(mask = place_for(g, &which)))
        return bnet_no_memory(err, "mask of allowed tokens");
    bitnet_status st = find_mask(g, state, fresh, mask, err);
    if (st == BITNET_OK && kept) {
        g->mask_owner[which] = state;
        g->machine.states[state].mask = (int32_t)which;
    }
    *found = mask;
    return st;
}
