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
    bool failed;                         /* a choice before: err tells of it */
} group;

static void pick(group *g, int i, const bnet_top *top, const float *all, bitnet_error *err)
{
    bnet_choice *c = &g->rows[i];
    bitnet_error *told = g->failed ? NULL : err;
    g->chosen[i] = true;
    c->status =
        top ? bnet_sampler_pick_among(c->sampler, top, c->tokens, c->n_tokens, &c->next, told)
            : bnet_sampler_pick_all(c->sampler, all, c->tokens, c->n_tokens, &c->next, told);
    g->failed = g->failed || c->status != BITNET_OK;
}

static void ask(group *g, int i, bitnet_error *err)
{
    bnet_choice *c = &g->rows[i];
    bnet_top_want want;
    bnet_top top;
    if (!bnet_sampler_want(c->sampler, c->tokens, c->n_tokens, &want))
        return;
    if (bnet_best_top(g->ws, g->first + i, &want, &top)) {
        pick(g, i, &top, NULL, err);
        return;
    }
    g->wants[i] = want;
    g->any = true;
}

static bitnet_status choose_from_lists(group *g, bitnet_error *err)
{
    bnet_top tops[BNET_HEAD_ROWS];
    bitnet_status st = bnet_head_tops(g->ws, g->first, g->n, g->wants, tops, err);
    for (int i = 0; st == BITNET_OK && i < g->n; i++)
        if (tops[i].ids)
            pick(g, i, &tops[i], NULL, err);
    return st;
}

static bitnet_status choose_from_all(group *g, bitnet_error *err)
{
    int32_t rows[BNET_HEAD_ROWS];
    int n = 0;
    const float *all;
    for (int i = 0; i < g->n; i++)
        if (!g->chosen[i])
            rows[n++] = g->first + i;
    bitnet_status st = n ? bnet_head_rows(g->ws, rows, n, &all, err) : BITNET_OK;
    for (int k = 0; st == BITNET_OK && k < n; k++) {
        int i = rows[k] - g->first;
        pick(g, i, NULL, all + (size_t)k * (size_t)bnet_sampler_vocab(g->rows[i].sampler), err);
    }
    return st;
}

static bitnet_status choose_group(group *g, bitnet_error *err)
{
    for (int i = 0; i < g->n; i++)
        ask(g, i, err);
    bitnet_status st = g->any ? choose_from_lists(g, err) : BITNET_OK;
    return st == BITNET_OK ? choose_from_all(g, err) : st;
}

/* How many rows from the first on can be served in any order: each has a sampler of its own, or one
 * that keeps nothing from choice to choice. */
static int distinct(const bnet_choice *rows, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            if (rows[k].sampler == rows[i].sampler && !bnet_sampler_still(rows[i].sampler))
                return i;
    return n;
}

bitnet_status bnet_choose(bnet_workspace *ws, int first, bnet_choice *rows, int n,
                          bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    bool failed = false;
    for (int i = 0, k; i < n && st == BITNET_OK; i += k) {
        k = distinct(rows + i, n - i);
        group g = {.ws = ws, .first = first + i, .n = k, .rows = rows + i, .failed = failed};
        st = choose_group(&g, err);
        failed = g.failed;
    }
    return st;
}
