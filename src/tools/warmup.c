/* warmup.c - one real step before the first that somebody waits for: kernels are found, images and
 * weights in place, workspaces taken. */
#include "engine/engine.h"

/* A prompt of two tokens and a step of one, with their logits. */
static bitnet_status one_step(bitnet_session *s, bitnet_error *err)
{
    const int32_t ids[] = {0, 0};
    for (size_t n = 2; n > 0; n--) {
        bitnet_status st = bitnet_session_append(s, ids, n, NULL, NULL, err);
        if (st != BITNET_OK)
            return st;
        if (!bitnet_session_logits(s))
            return bnet_fail(err, BITNET_NOT_AVAILABLE, "warm-up: the step gave no logits");
    }
    return BITNET_OK;
}

bitnet_status bitnet_engine_warmup(bitnet_engine *engine, double *ms, bitnet_error *err)
{
    if (!engine)
        return bnet_fail(err, BITNET_ARGUMENT, "warm-up: engine must not be NULL");
    bitnet_session_options o;
    bitnet_session *s = NULL;
    double begun = bnet_now_ms();
    bitnet_session_options_init(&o);
    o.n_ctx = BNET_MAX(BNET_MIN(o.n_batch, engine->info.n_ctx_train), 4); /* as passes are wide */
    bitnet_status st = bitnet_session_open(engine, &o, &s, err);
    if (st == BITNET_OK)
        st = one_step(s, err);
    bitnet_session_close(s);
    if (ms)
        *ms = bnet_now_ms() - begun;
    return st;
}
