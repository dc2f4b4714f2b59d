/* logprob.c - the sum over a row, and its most likely tokens. */
#include "sampler/logprob.h"

#include <float.h>
#include <math.h>

#include "base/mathf.h"
#include "sampler/candidates.h"

enum {
    BLOCK = 64, /* logits looked at together */
    ROUND = 512 /* candidates held at once, 6 KiB */
};

bool bnet_logprob_begin(const float *logits, size_t n_vocab, bnet_logprob_row *out)
{
    float largest = -FLT_MAX, e[BLOCK];
    for (size_t i = 0; i < n_vocab; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i += BLOCK) {
        size_t n = BNET_MIN((size_t)BLOCK, n_vocab - i);
        for (size_t k = 0; k < n; k++)
            e[k] = bnet_expf(logits[i + k] - largest);
        for (size_t k = 0; k < n; k++)
            sum += (double)e[k];
    }
    *out = (bnet_logprob_row){largest, log(sum)};
    return isfinite(out->log_sum);
}

static bool reached(const float *logits, float least)
{
    unsigned any = 0;
    for (size_t k = 0; k < BLOCK; k++)
        any |= logits[k] > least;
    return any;
}

/* The best n <= ROUND of those that are worse than `after` (an id below 0: of all), which is
 * replaced by the last of them. */
static void fill_round(const float *logits, size_t n_vocab, const bnet_logprob_row *r,
                       bnet_candidate *after, bitnet_logprob *top, size_t n)
{
    bnet_candidate best[ROUND];
    bnet_candidates h = {.c = best};
    for (size_t i = 0; i < n_vocab; i++) {
        while (h.n == n && i % BLOCK == 0 && n_vocab - i > BLOCK &&
               !reached(logits + i, best[0].key))
            i += BLOCK;
        bnet_candidate c = {logits[i], 0, (int32_t)i};
        if (logits[i] >= -FLT_MAX && (after->id < 0 || bnet_better(after, &c)))
            bnet_candidates_offer(&h, n, c);
    }
    bnet_candidates_restart(&h);
    for (size_t i = 0; i < n; i++) {
        const bnet_candidate *c = i < h.n ? bnet_candidates_nth(&h, i) : NULL;
        top[i] = c ? (bitnet_logprob){c->id, bnet_logprob_of(r, c->key)}
                   : (bitnet_logprob){-1, -INFINITY};
        *after = c ? *c : *after;
    }
}

static void fill_top(const float *logits, size_t n_vocab, const bnet_logprob_row *r,
                     bitnet_logprob *top, size_t n_top)
{
    bnet_candidate after = {0, 0, -1};
    for (size_t i = 0; i < n_top; i += ROUND)
        fill_round(logits, n_vocab, r, &after, top + i, BNET_MIN(n_top - i, (size_t)ROUND));
}

static bitnet_status check(const float *logits, int n_vocab, const bitnet_logprob *chosen,
                           size_t n_chosen, const bitnet_logprob *top, size_t n_top,
                           bitnet_error *err)
{
    if (!logits || (n_chosen && !chosen) || (n_top && !top))
        return bnet_fail(err, BITNET_ARGUMENT, "logprobs: logits, chosen and top must not be NULL");
    if (n_vocab < 1)
        return bnet_fail(err, BITNET_ARGUMENT, "logprobs: n_vocab is %d, must be 1..", n_vocab);
    if (n_top > BITNET_LOGPROBS_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "logprobs: n_top is %zu, must be 0..%d", n_top,
                         BITNET_LOGPROBS_MAX);
    for (size_t i = 0; i < n_chosen; i++)
        if (chosen[i].id < 0 || chosen[i].id >= n_vocab)
            return bnet_fail(err, BITNET_ARGUMENT, "logprobs: chosen[%zu].id is %d, must be 0..%d",
                             i, chosen[i].id, n_vocab - 1);
    return BITNET_OK;
}

bitnet_status bitnet_logprobs(const float *logits, int n_vocab, bitnet_logprob *chosen,
                              size_t n_chosen, bitnet_logprob *top, size_t n_top, bitnet_error *err)
{
    bnet_logprob_row r;
    bitnet_status st = check(logits, n_vocab, chosen, n_chosen, top, n_top, err);
    if (st != BITNET_OK)
        return st;
    if (!bnet_logprob_begin(logits, (size_t)n_vocab, &r))
        return bnet_fail(err, BITNET_ERROR,
                         "logprobs: the %d logits are not finite; the weights or the cache are "
                         "damaged",
                         n_vocab);
    for (size_t i = 0; i < n_chosen; i++)
        chosen[i].logprob = bnet_logprob_of(&r, logits[chosen[i].id]);
    fill_top(logits, (size_t)n_vocab, &r, top, n_top);
    return BITNET_OK;
}
