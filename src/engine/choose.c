/* choose.c - three ways to a row's next token, the cheapest first: from the best logits that the
 * pass brought along, from those the sampler says it can need, from all. */
#include "engine/choose.h"

typedef struct group {
    bnet_workspace *ws;
    int first, n;
    bnet_choice *rows;
    bool chosen[BNET_HEAD_ROWS];
    bnet_top_want wants[BNET_HEAD_ROWS]; /* empty where the pass had enough, or all is needed */
    bool any;                            /* of them is not empty */
} group;

static bitnet_status pick_among(group *g, int i, const bnet_top *top, bitnet_error *err)
{
    bnet_choice *c = &g->rows[i];
    g->chosen[i] = true;
    return bnet_sampler_pick_among(c->sampler, top, c->tokens, c->n_tokens, &c->next, err);
}

static bitnet_status ask(group *g, int i, bitnet_error *err)
{
    bnet_choice *c = &g->rows[i];
    bnet_top_want want;
    bnet_top top;
    if (!bnet_sampler_want(c->sampler, c->tokens, c->n_tokens, &want))
        return BITNET_OK;
    if (bnet_best_top(g->ws, g->first + i, &want, &top))
        return pick_among(g, i, &top, err);
    g->wants[i] = want;
    g->any = true;
    return BITNET_OK;
}

static bitnet_status choose_from_lists(group *g, int *at, bitnet_error *err)
{
    bnet_top tops[BNET_HEAD_ROWS];
    bitnet_status st = bnet_head_tops(g->ws, g->first, g->n, g->wants, tops, err);
    if (st != BITNET_OK)
        return st;
    for (*at = 0; st == BITNET_OK && *at < g->n; (*at)++)
        if (tops[*at].ids && (st = pick_among(g, *at, &tops[*at], err)) != BITNET_OK)
            break;
    return st;
}

static bitnet_status choose_from_all(group *g, int *at, bitnet_error *err)
{
    int32_t rows[BNET_HEAD_ROWS];
    int n = 0;
    const float *all;
    for (int i = 0; i < g->n; i++)
        if (!g->chosen[i])
            rows[n++] = g->first + i;
    *at = -1;
    bitnet_status st = n ? bnet_head_rows(g->ws, rows, n, &all, err) : BITNET_OK;
    for (int k = 0; st == BITNET_OK && k < n; k++) {
        *at = rows[k] - g->first;
        bnet_choice *c = &g->rows[*at];
        st = bitnet_sampler_pick(c->sampler,
                                 all + (size_t)k * (size_t)bnet_sampler_vocab(c->sampler),
                                 c->tokens, c->n_tokens, &c->next, err);
    }
    return st;
}

static bitnet_status choose_group(group *g, int *at, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (*at = 0; *at < g->n; (*at)++)
        if ((st = ask(g, *at, err)) != BITNET_OK)
            return st;
    *at = -1;
    if (g->any)
        st = choose_from_lists(g, at, err);
    return st == BITNET_OK ? choose_from_all(g, at, err) : st;
}

/* How many rows from the first on have a sampler of their own: they can be served in any order. */
static int distinct(const bnet_choice *rows, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            if (rows[k].sampler == rows[i].sampler)
                return i;
    return n;
}

bitnet_status bnet_choose(bnet_workspace *ws, int first, bnet_choice *rows, int n, int *failed,
                          bitnet_error *err)
{
    for (int i = 0, k; i < n; i += k) {
        k = distinct(rows + i, n - i);
        group g = {.ws = ws, .first = first + i, .n = k, .rows = rows + i};
        int at = 0;
        bitnet_status st = choose_group(&g, &at, err);
        if (st != BITNET_OK) {
            *failed = at < 0 ? -1 : i + at;
            return st;
        }
    }
    return BITNET_OK;
}
