/* head.c - the logits of a pass: all of a row, the best that the pass brought along, or those that
 * a choice can depend on. */
#include "model/workspace.h"

/* The first n bytes of a buffer, once they are there. */
static bitnet_status read_floats(bnet_workspace *ws, bnet_buffer *from, size_t n_bytes,
                                 const float **out, bitnet_error *err)
{
    bitnet_status st = bnet_op_sync(ws->be, err);
    if (st != BITNET_OK)
        return st;
    *out = bnet_op_read(ws->be, from, n_bytes);
    if (!*out) /* the way to the host failed: the backend says why */
        st = bnet_op_sync(ws->be, err);
    return st == BITNET_OK && !*out ? bnet_no_memory(err, "results of a pass") : st;
}

bitnet_status bnet_head_rows(bnet_workspace *ws, const int32_t *rows, int n, const float **out,
                             bitnet_error *err)
{
    assert(n >= 1 && n <= BNET_HEAD_ROWS && rows[0] >= 0 && rows[n - 1] < ws->n_rows);
    bnet_op_hold(ws->be);
    bnet_op_gather(ws->be, ws->last, rows, n, ws->w.embd, ws->pick);
    bnet_op_head(ws->be, ws->m->head, ws->pick, n, ws->logits);
    bitnet_status st =
        read_floats(ws, ws->logits, (size_t)n * ws->w.vocab * sizeof(float), out, err);
    return bnet_op_release(ws->be, st, err);
}

bitnet_status bnet_head(bnet_workspace *ws, int first, int n, const float **out, bitnet_error *err)
{
    int32_t rows[BNET_HEAD_ROWS];
    assert(n >= 1 && n <= BNET_HEAD_ROWS);
    for (int i = 0; i < n; i++)
        rows[i] = first + i;
    return bnet_head_rows(ws, rows, n, out, err);
}

/* Do the best logits of the pass hold all that is wanted? Then they are it, by ascending id. */
static bool serve_best(bnet_workspace *ws, const bnet_best *b, const bnet_top_want *want,
                       bnet_top *out)
{
    bool all = b->n < BNET_BEST;
    if (want->n_ids > 0 || want->k == 0 || b->n == 0 || (!all && want->k >= BNET_BEST))
        return false;
    float least = b->logits[BNET_MIN(want->k, (size_t)b->n) - 1] - want->range;
    if (!all && !(b->logits[b->n - 1] < least))
        return false;
    int n = 0;
    for (int i = 0; i < b->n && b->logits[i] >= least; i++, n++) {
        int at = i;
        for (; at > 0 && ws->top_ids[at - 1] > b->ids[i]; at--) {
            ws->top_ids[at] = ws->top_ids[at - 1];
            ws->top_logits[at] = ws->top_logits[at - 1];
        }
        ws->top_ids[at] = b->ids[i];
        ws->top_logits[at] = b->logits[i];
    }
    *out = (bnet_top){ws->top_ids, ws->top_logits, (size_t)n};
    return true;
}

int bnet_best_rows(const bnet_workspace *ws)
{
    return ws->n_best;
}

bool bnet_best_top(bnet_workspace *ws, int row, const bnet_top_want *want, bnet_top *out)
{
    assert(row >= 0 && row < ws->n_rows);
    return row < ws->n_best && serve_best(ws, &ws->best[row], want, out);
}

bitnet_status bnet_head_tops(bnet_workspace *ws, int first, int n, const bnet_top_want *wants,
                             bnet_top *out, bitnet_error *err)
{
    assert(n >= 1 && n <= BNET_HEAD_ROWS && first >= 0 && first + n <= ws->n_rows);
    int32_t rows[BNET_HEAD_ROWS];
    memset(out, 0, (size_t)n * sizeof *out);
    if (bnet_op_top_bytes(ws->be, ws->m->head) == 0)
        return BITNET_OK;
    for (int i = 0; i < n; i++)
        rows[i] = first + i;
    bnet_op_hold(ws->be);
    bnet_op_gather(ws->be, ws->last, rows, n, ws->w.embd, ws->pick);
    bnet_op_top(ws->be, ws->m->head, ws->pick, n, wants, ws->logits, ws->top, out);
    return bnet_op_release(ws->be, bnet_op_sync(ws->be, err), err);
}

bitnet_status bnet_head_top(bnet_workspace *ws, int row, const bnet_top_want *want, bnet_top *out,
                            bool *served, bitnet_error *err)
{
    *served = bnet_best_top(ws, row, want, out);
    if (*served)
        return BITNET_OK;
    bitnet_status st = bnet_head_tops(ws, row, 1, want, out, err);
    *served = st == BITNET_OK && out->ids;
    return st;
}

uint64_t bnet_hidden_bytes(const bnet_model *m)
{
    return (uint64_t)m->hp.n_embd * sizeof(float);
}

bnet_buffer *bnet_hidden_open(const bnet_model *m)
{
    return bnet_op_buffer(m->be, (size_t)bnet_hidden_bytes(m));
}

void bnet_hidden_close(const bnet_model *m, bnet_buffer *hidden)
{
    if (hidden)
        bnet_op_buffer_free(m->be, hidden);
}

bitnet_status bnet_hidden_keep(bnet_workspace *ws, int row, bnet_buffer *hidden, bitnet_error *err)
{
    assert(row >= 0 && row < ws->n_rows);
    int32_t rows[1] = {row};
    bnet_op_hold(ws->be);
    bnet_op_gather(ws->be, ws->last, rows, 1, ws->w.embd, hidden);
    return bnet_op_release(ws->be, BITNET_OK, err);
}

bitnet_status bnet_hidden_read(bnet_workspace *ws, int first, int n, const float **out,
                               bitnet_error *err)
{
    assert(n >= 1 && n <= BNET_HEAD_ROWS && first >= 0 && first + n <= ws->n_rows);
    int32_t rows[BNET_HEAD_ROWS];
    for (int i = 0; i < n; i++)
        rows[i] = first + i;
    bnet_op_hold(ws->be);
    bnet_op_gather(ws->be, ws->last, rows, n, ws->w.embd, ws->pick);
    size_t n_bytes = (size_t)n * ws->w.embd * sizeof(float);
    return bnet_op_release(ws->be, read_floats(ws, ws->pick, n_bytes, out, err), err);
}

bitnet_status bnet_hidden_head(bnet_workspace *ws, bnet_buffer *hidden, const float **out,
                               bitnet_error *err)
{
    bnet_op_hold(ws->be);
    bnet_op_head(ws->be, ws->m->head, hidden, 1, ws->logits);
    bitnet_status st = read_floats(ws, ws->logits, ws->w.vocab * sizeof(float), out, err);
    return bnet_op_release(ws->be, st, err);
}
