/* batch_answer.c - from a pass to what its items want: a choice, logits, log-probabilities, hidden
 * states. Hides: that only those logits are computed that a choice can depend on. */
#include "engine/batch.h"
#include "engine/choose.h"

static bool wants_logits(const bitnet_batch_item *i)
{
    return i->logits || i->n_chosen || i->n_top || i->want_logprob;
}

void bnet_batch_want(bnet_task *t)
{
    const bitnet_batch_item *i = t->item;
    const bitnet_session *s = i->session;
    bnet_top_want want;
    bool any = wants_logits(i) || i->hidden || i->sampler || i->keep_logits;
    t->n_rows = !any ? 0 : i->every_position ? (int)i->n_ids : 1;
    t->all = wants_logits(i) ||
             (i->sampler && !bnet_sampler_want(i->sampler, s->tokens, s->n_pos + i->n_ids, &want));
}

/* ---- choices ---- */

static bool is_last(const bnet_task *t, int row)
{
    return row == t->first_row + t->n_rows - 1;
}

static bitnet_status choose_from_all(const bnet_task *t, const float *all, bitnet_error *err)
{
    bitnet_batch_item *i = t->item;
    bitnet_sampler_state before;
    bitnet_sampler_save(i->sampler, &before);
    const bitnet_session *s = i->session;
    bitnet_status st =
        bnet_sampler_pick_all(i->sampler, all, s->tokens, s->n_pos + i->n_ids, &i->next, err);
    if (st != BITNET_OK || !i->want_logprob)
        return st;
    bitnet_logprob next = {i->next, 0};
    st = bitnet_logprobs(all, s->engine->info.n_vocab, &next, 1, NULL, 0, err);
    if (st != BITNET_OK)
        bitnet_sampler_restore(i->sampler, &before);
    i->logprob = next.logprob;
    return st;
}

/* All that is wanted of a row whose logits are known. */
static bitnet_status answer_row(const bnet_task *t, int row, const float *all, bitnet_error *err)
{
    bitnet_batch_item *i = t->item;
    size_t n_vocab = (size_t)i->session->engine->info.n_vocab, at = (size_t)(row - t->first_row);
    bitnet_status st = BITNET_OK;
    if (i->logits)
        memcpy(i->logits + at * n_vocab, all, n_vocab * sizeof *all);
    if (i->n_chosen || i->n_top)
        st = bitnet_logprobs(all, (int)n_vocab, i->chosen + at * i->n_chosen, i->n_chosen,
                             i->top + at * i->n_top, i->n_top, err);
    if (st == BITNET_OK && i->sampler && is_last(t, row))
        st = choose_from_all(t, all, err);
    return st;
}

/* ---- rows ---- */

static void judge(bitnet_batch *b, const bnet_task *t, bitnet_status st, bitnet_error *err)
{
    if (st == BITNET_OK)
        return;
    if (b->first == BITNET_OK)
        bnet_wrap(err, st, "batch: the session at position %zu", t->item->session->n_pos);
    bnet_item_fails(b, t->item, st);
}

/* Rows [first, first + n) of the pass, all of whose logits are wanted. */
static bitnet_status answer_rows(bitnet_batch *b, bnet_workspace *ws, const bnet_task *tasks,
                                 int first, int n, bitnet_error *err)
{
    const float *out;
    bitnet_status st = bnet_head(ws, first, n, &out, err);
    for (int r = first; st == BITNET_OK && r < first + n; r++) {
        const bnet_task *t = &tasks[b->row_task[r]];
        const float *row = out + (size_t)(r - first) * (size_t)b->engine->info.n_vocab;
        bitnet_error *told = b->first == BITNET_OK ? err : NULL;
        if (t->item->status == BITNET_OK)
            judge(b, t, answer_row(t, r, row, told), told);
    }
    return st;
}

/* Nothing but a choice is wanted of the row, or nothing. */
static bool only_chosen(const bnet_task *t, int row)
{
    return !t->all && t->item->sampler && is_last(t, row);
}

/* Rows [first, first + n) of the pass, of which only choices are wanted. */
static bitnet_status choose_rows(bitnet_batch *b, bnet_workspace *ws, const bnet_task *tasks,
                                 int first, int n, bitnet_error *err)
{
    bnet_choice rows[BNET_HEAD_ROWS];
    bitnet_error other = {0}; /* the first failure of an item has been told */
    bool told = b->first != BITNET_OK;
    for (int i = 0; i < n; i++) {
        const bitnet_batch_item *item = tasks[b->row_task[first + i]].item;
        const bitnet_session *s = item->session;
        rows[i] = (bnet_choice){
            .sampler = item->sampler, .tokens = s->tokens, .n_tokens = s->n_pos + item->n_ids};
    }
    bitnet_status st = bnet_choose(ws, first, rows, n, told ? &other : err);
    if (st != BITNET_OK && told && err)
        *err = other;
    for (int i = 0; st == BITNET_OK && i < n; i++) {
        const bnet_task *t = &tasks[b->row_task[first + i]];
        t->item->next = rows[i].next;
        judge(b, t, rows[i].status, err);
    }
    return st;
}

/* The row and as many after it as are answered in the same way; *n says how many. */
static bitnet_status next_rows(bitnet_batch *b, bnet_workspace *ws, const bnet_task *tasks, int row,
                               int n_rows, int *n, bitnet_error *err)
{
    const bnet_task *t = &tasks[b->row_task[row]];
    bool all = t->all, chosen = only_chosen(t, row);
    *n = 1;
    if (!all && !chosen)
        return BITNET_OK; /* its hidden state alone is wanted */
    for (; *n < BNET_HEAD_ROWS && row + *n < n_rows; ++*n) {
        t = &tasks[b->row_task[row + *n]];
        if (t->all != all || (chosen && !only_chosen(t, row + *n)))
            break;
    }
    return all ? answer_rows(b, ws, tasks, row, *n, err) : choose_rows(b, ws, tasks, row, *n, err);
}

static bitnet_status give_hidden(bnet_workspace *ws, const bnet_task *t, bitnet_error *err)
{
    size_t n_embd = (size_t)t->item->session->engine->info.n_embd;
    bitnet_status st = BITNET_OK;
    if (t->item->keep_logits)
        st = bnet_hidden_keep(ws, t->first_row + t->n_rows - 1, t->item->session->fresh, err);
    for (int i = 0, k; t->item->hidden && i < t->n_rows && st == BITNET_OK; i += k) {
        const float *rows;
        k = BNET_MIN(BNET_HEAD_ROWS, t->n_rows - i);
        st = bnet_hidden_read(ws, t->first_row + i, k, &rows, err);
        if (st == BITNET_OK)
            memcpy(t->item->hidden + (size_t)i * n_embd, rows, (size_t)k * n_embd * sizeof *rows);
    }
    return st;
}

bitnet_status bnet_batch_answer(bitnet_batch *b, bnet_workspace *ws, bnet_task *tasks, size_t n,
                                bitnet_error *err)
{
    int n_rows = tasks[n - 1].first_row + tasks[n - 1].n_rows;
    bitnet_status st = BITNET_OK;
    for (int row = 0, k; row < n_rows && st == BITNET_OK; row += k)
        st = next_rows(b, ws, tasks, row, n_rows, &k, err);
    for (size_t i = 0; i < n && st == BITNET_OK; i++)
        st = give_hidden(ws, &tasks[i], err);
    return st;
}
