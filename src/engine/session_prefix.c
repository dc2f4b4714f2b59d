/* session_prefix.c - texts that sessions of a pool have in common: a timeline begins with blocks
 * that another one computed. */
#include "engine/engine.h"

/* Tokens that the timeline has in common with ids, but for the last of these. */
static size_t common_prefix(const bitnet_session *s, const int32_t *ids, size_t n_ids)
{
    size_t n = 0;
    while (n < s->n_pos && n + 1 < n_ids && s->tokens[n] == ids[n])
        n++;
    return n;
}

bitnet_status bitnet_session_reuse(bitnet_session *s, uint64_t scope, const int32_t *ids,
                                   size_t n_ids, size_t *n_reused, bitnet_error *err)
{
    if (!s)
        return bnet_fail(err, BITNET_ARGUMENT, "reuse: session must not be NULL");
    bitnet_status st = bnet_check_ids(s->engine, "reuse", ids, n_ids, err);
    if (st != BITNET_OK)
        return st;
    size_t own = BNET_MIN(common_prefix(s, ids, n_ids), bitnet_session_cached(s));
    size_t most = n_ids > 0 ? BNET_MIN(n_ids - 1, (size_t)s->n_ctx) : 0;
    bitnet_session_rewind(s, own, NULL);
    size_t found = bnet_kv_adopt(&s->entry, scope, ids, most);
    if (found > own) {
        memcpy(s->tokens + own, ids + own, (found - own) * sizeof *ids);
        s->n_pos = found;
        if (s->begins) /* how the blocks were computed is not known */
            memset(s->begins, 0, (found / 64 + 1) * sizeof *s->begins);
        bnet_session_forget(s);
    }
    if (n_reused)
        *n_reused = s->n_pos;
    return BITNET_OK;
}

bitnet_status bitnet_session_publish(bitnet_session *s, uint64_t scope, bitnet_error *err)
{
    if (!s)
        return bnet_fail(err, BITNET_ARGUMENT, "publish: session must not be NULL");
    return bnet_kv_publish(&s->entry, scope, s->tokens, err);
}
