/* score.c - how likely a text is under the model. Sums are double and in token order. */
#include "engine/engine.h"

#include <float.h>

#include "sampler/logprob.h"

typedef struct scoring {
    const int32_t *targets; /* targets[i] follows the i-th appended token */
    int n_vocab;
    size_t n_scored;
    double nll;
    bool bad; /* a logit is not finite */
} scoring;

static bool score_one(void *user, size_t index, const float *logits)
{
    scoring *s = user;
    bnet_logprob_row row;
    float target = logits[s->targets[index]];
    s->bad = !bnet_logprob_begin(logits, (size_t)s->n_vocab, &row) || !(target >= -FLT_MAX);
    if (s->bad)
        return false;
    s->nll -= bnet_logprob_of(&row, target);
    s->n_scored++;
    return true;
}

/* One window: ids[begin, end) in a fresh timeline; predicts the targets from `first` on (begin <
 * first < end). */
static bitnet_status score_window(bitnet_session *session, const int32_t *ids, size_t begin,
                                  size_t first, size_t end, scoring *s, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    bnet_session_cut(session, 0);
    if (first - 1 > begin)
        st = bnet_session_append(session, ids + begin, first - 1 - begin, NULL, NULL, err);
    if (st != BITNET_OK)
        return st;
    s->targets = ids + first;
    st = bnet_session_append(session, ids + first - 1, end - first, score_one, s, err);
    if (s->bad)
        return bnet_fail(err, BITNET_ERROR,
                         "score: the logits that predict token %zu are not finite",
                         1 + s->n_scored);
    return st;
}

/* Of all windows: what they share is computed in each. */
static size_t tokens_to_compute(size_t n, size_t n_ctx, size_t stride)
{
    size_t sum = 0;
    for (size_t begin = 0, next = 1; next < n; begin += stride) {
        next = BNET_MIN(begin + n_ctx, n);
        sum += next - 1 - begin;
    }
    return sum;
}

static bitnet_status score(bitnet_session *session, const int32_t *ids, size_t n_ids, size_t stride,
                           bitnet_score_result *result, bitnet_error *err)
{
    size_t n_ctx = (size_t)session->n_ctx;
    if (stride && stride >= n_ctx)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "score: stride is %zu, must be 0 or 1..%zu (context - 1)", stride,
                         n_ctx - 1);
    bitnet_status st = bnet_check_ids(session->engine, "score", ids, n_ids, err);
    if (st == BITNET_OK)
        bnet_session_cut(session, 0);
    size_t n = stride ? n_ids : BNET_MIN(n_ids, n_ctx);
    bnet_session_count(session, tokens_to_compute(n, n_ctx, stride), n > 1);
    session->in_score = true;
    scoring s = {.n_vocab = session->engine->info.n_vocab};
    /* Window k covers [k*stride, k*stride + n_ctx) and predicts what the ones before did not. */
    for (size_t begin = 0, next = 1; st == BITNET_OK && next < n; begin += stride) {
        size_t end = BNET_MIN(begin + n_ctx, n);
        st = score_window(session, ids, begin, next, end, &s, err);
        next = end;
    }
    session->in_score = false;
    if (st == BITNET_OK)
        *result = (bitnet_score_result){n, s.n_scored, s.nll};
    return st;
}

bitnet_status bitnet_score(bitnet_session *session, const int32_t *ids, size_t n_ids, size_t stride,
                           bitnet_score_result *result, bitnet_error *err)
{
    if (!session || !result)
        return bnet_fail(err, BITNET_ARGUMENT, "score: session and result must not be NULL");
    bitnet_status st = bnet_session_enter(session, "score", err);
    if (st != BITNET_OK)
        return st;
    return bnet_session_leave(session, score(session, ids, n_ids, stride, result, err));
}
