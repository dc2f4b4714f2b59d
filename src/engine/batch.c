/* batch.c - tokens of many timelines in one step. Hides: which of them go through the model
 * together, and that a step whose device failed is computed again on the CPU. Invariant: a session
 * moves only after everything its step wanted has succeeded. */
#include "engine/batch.h"
#include "sampler/sampler.h"

enum { TOKENS_MAX = 65536, TOKENS_DEFAULT = 512 };

static const char owner[] = "batch options";

/* ---- opening ---- */

void bitnet_batch_options_init(bitnet_batch_options *o)
{
    if (o)
        *o = (bitnet_batch_options){.struct_size = sizeof *o, .n_tokens = TOKENS_DEFAULT};
}

void bitnet_batch_item_init(bitnet_batch_item *i)
{
    if (i)
        *i = (bitnet_batch_item){.struct_size = sizeof *i, .next = -1};
}

static bitnet_status open_parts(bitnet_batch *b, bitnet_error *err)
{
    size_t n = (size_t)b->n_tokens;
    b->tasks = bnet_calloc(n, sizeof *b->tasks);
    b->sessions = bnet_calloc(n, sizeof(bitnet_session *));
    b->ends = bnet_calloc(n, sizeof *b->ends);
    b->row_task = bnet_calloc(n, sizeof *b->row_task);
    if (!b->tasks || !b->sessions || !b->ends || !b->row_task)
        return bnet_no_memory(err, "batch");
    return bnet_workspaces_need(&b->engine->workspaces, b->engine->model, b->n_tokens, err);
}

bitnet_status bitnet_batch_open(bitnet_engine *e, const bitnet_batch_options *options,
                                bitnet_batch **out, bitnet_error *err)
{
    if (!e || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: engine and out must not be NULL");
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    bitnet_status st = bnet_check_weights(e, err);
    if (st == BITNET_OK)
        st = bnet_options_copy(&o, sizeof o, options, owner, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "n_tokens", o.n_tokens, 1, TOKENS_MAX, err);
    if (st != BITNET_OK)
        return st;
    bitnet_batch *b = bnet_calloc(1, sizeof *b);
    if (!b)
        return bnet_no_memory(err, "batch");
    b->engine = e;
    b->n_tokens = bnet_op_batch_limit(e->backend, o.n_tokens);
    bnet_workspaces_enter(&e->workspaces);
    st = open_parts(b, err);
    if (st != BITNET_OK) {
        bitnet_batch_close(b);
        return st;
    }
    *out = b;
    return BITNET_OK;
}

void bitnet_batch_close(bitnet_batch *b)
{
    if (!b || b->busy)
        return;
    bnet_workspaces_leave(&b->engine->workspaces);
    bnet_free(b->tasks);
    bnet_free(b->sessions);
    bnet_free(b->ends);
    bnet_free(b->row_task);
    bnet_free(b);
}

int bitnet_batch_tokens(const bitnet_batch *b)
{
    return b ? b->n_tokens : 0;
}

/* ---- checking ---- */

static bitnet_status check_wishes(const bitnet_batch *b, const bitnet_batch_item *item, size_t i,
                                  bitnet_error *err)
{
    int n_vocab = b->engine->info.n_vocab;
    if (item->sampler && bnet_sampler_vocab(item->sampler) != n_vocab)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: the sampler of item %zu was opened for %d tokens, the model has "
                         "%d",
                         i, bnet_sampler_vocab(item->sampler), n_vocab);
    if ((item->n_chosen && !item->chosen) || (item->n_top && !item->top))
        return bnet_fail(err, BITNET_ARGUMENT, "batch: chosen or top of item %zu is NULL", i);
    if (item->n_chosen > (size_t)n_vocab)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: n_chosen of item %zu is %zu, must be 0..%d",
                         i, item->n_chosen, n_vocab);
    if (item->n_top > BITNET_LOGPROBS_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: n_top of item %zu is %zu, must be 0..%d", i,
                         item->n_top, BITNET_LOGPROBS_MAX);
    if (item->want_logprob && !item->sampler)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: item %zu has want_logprob but no sampler to choose a token", i);
    size_t n_chosen = item->n_chosen * (item->every_position ? item->n_ids : 1);
    for (size_t k = 0; k < n_chosen; k++)
        if (item->chosen[k].id < 0 || item->chosen[k].id >= n_vocab)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "batch: chosen[%zu].id of item %zu is %d, must be 0..%d", k, i,
                             (int)item->chosen[k].id, n_vocab - 1);
    return BITNET_OK;
}

/* What is wrong with the call itself; room: tokens that the items before it left. */
static bitnet_status check_item(const bitnet_batch *b, const bitnet_batch_item *item, size_t i,
                                size_t room, bitnet_error *err)
{
    if (item->struct_size != sizeof *item)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: struct_size of item %zu is %zu; call bitnet_batch_item_init", i,
                         item->struct_size);
    if (!item->session)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: the session of item %zu is NULL", i);
    if (item->session->engine != b->engine)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: the session of item %zu belongs to another engine", i);
    if (item->session->busy == b)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: the session of item %zu is named twice", i);
    if (item->n_ids < 1 || !item->ids)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: item %zu has no ids", i);
    if (item->n_ids > room)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: the ids up to item %zu are more than the batch's n_tokens, %d", i,
                         b->n_tokens);
    bitnet_status st = check_wishes(b, item, i, err);
    return st == BITNET_OK ? bnet_check_ids(b->engine, "batch", item->ids, item->n_ids, err) : st;
}

/* Why this session alone cannot take part, or OK. */
static bitnet_status check_timeline(const bitnet_batch_item *item, size_t i, bitnet_error *err)
{
    const bitnet_session *s = item->session;
    if (bnet_session_cancelled(s))
        return bnet_fail(err, BITNET_CANCELLED, "batch: item %zu was cancelled", i);
    if (item->n_ids > (size_t)s->n_ctx - s->n_pos)
        return bnet_fail(err, BITNET_CONTEXT,
                         "context is full: %zu tokens of item %zu do not fit behind position %zu "
                         "of %d",
                         item->n_ids, i, s->n_pos, s->n_ctx);
    return bnet_kv_fits(&s->entry, s->n_pos + item->n_ids, err);
}

static void leave_all(const bitnet_batch *b, bitnet_batch_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bnet_busy_leave(&items[i].session->busy, b);
        bnet_sampler_leave(items[i].sampler, b);
    }
}

/* Checks every item and enters its session and its sampler; on failure none is entered. */
static bitnet_status enter_all(bitnet_batch *b, bitnet_batch_item *items, size_t n,
                               bitnet_error *err)
{
    size_t room = (size_t)b->n_tokens;
    for (size_t i = 0; i < n; i++) {
        bitnet_status st = check_item(b, &items[i], i, room, err);
        if (st == BITNET_OK)
            st = bnet_busy_enter(&items[i].session->busy, b, "batch", "session", err);
        if (st == BITNET_OK && (st = bnet_sampler_enter(items[i].sampler, b, "batch", err)))
            bnet_busy_leave(&items[i].session->busy, b);
        if (st != BITNET_OK) {
            leave_all(b, items, i);
            return st;
        }
        room -= items[i].n_ids;
    }
    return BITNET_OK;
}

/* ---- groups: tasks that go through the model together ---- */

/* Tasks of one kind share a pass: they are on the same model (the engine's or its spare), and where
 * the backend runs whole passes, single tokens are kept apart from prompts: their kernels differ.
 */
static int kind_of(const bitnet_batch_item *item)
{
    const bitnet_session *s = item->session;
    bool whole = bnet_model_passes(bnet_session_model(s));
    return 2 * s->fallen + (whole && item->n_ids > 1);
}

/* Fills b->tasks with the items that can take part, kind after kind. Returns how many. */
static size_t line_up(bitnet_batch *b, bitnet_batch_item *items, size_t n_items, bitnet_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_items; i++) {
        bitnet_status st = check_timeline(&items[i], i, b->first == BITNET_OK ? err : NULL);
        items[i].status = BITNET_OK;
        if (st != BITNET_OK)
            bnet_item_fails(b, &items[i], st);
    }
    for (int turn = 0; turn < 8; turn++) /* who was told AGAIN comes first, then kind by kind */
        for (size_t i = 0; i < n_items; i++) {
            if (items[i].status != BITNET_OK || kind_of(&items[i]) != turn % 4 ||
                items[i].session->again != (turn < 4))
                continue;
            b->tasks[n] = (bnet_task){.item = &items[i]};
            bitnet_sampler_save(items[i].sampler, &b->tasks[n].saved);
            n++;
        }
    return n;
}

/* Puts samplers back where they were before the step or, less, before the last pass: what they
 * chose for tasks of earlier passes stays. */
static void restore(bnet_task *tasks, size_t n, bool step)
{
    for (size_t i = 0; i < n; i++)
        bitnet_sampler_restore(tasks[i].item->sampler, step ? &tasks[i].saved : &tasks[i].begun);
}

/* Notes where the samplers of the tasks of a pass stand before it. */
static void note_samplers(bnet_task *tasks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bitnet_sampler_save(tasks[i].item->sampler, &tasks[i].begun);
}

/* Describes the pass of n tasks in x. Their ids are written behind each session's last token, where
 * they do not count until the step is committed. */
static bnet_batch describe(bitnet_batch *b, bnet_scratch *x, bnet_task *tasks, size_t n)
{
    int n_tokens = 0, n_rows = 0;
    bool some = false;
    for (size_t i = 0; i < n; i++) {
        const bitnet_batch_item *item = tasks[i].item;
        bitnet_session *s = item->session;
        memmove(s->tokens + s->n_pos, item->ids, item->n_ids * sizeof *item->ids);
        bnet_batch_want(&tasks[i]);
        some = some || (item->sampler && !tasks[i].all);
        tasks[i].first_row = n_rows;
        x->kvs[i] = s->kv;
        for (size_t k = 0; k < item->n_ids; k++, n_tokens++) {
            x->ids[n_tokens] = s->tokens[s->n_pos + k];
            x->pos[n_tokens] = (int32_t)(s->n_pos + k);
            x->seq[n_tokens] = (int32_t)i;
            if (k + (size_t)tasks[i].n_rows < item->n_ids)
                continue;
            b->row_task[n_rows] = (int32_t)i;
            x->rows[n_rows++] = n_tokens;
        }
    }
    return (bnet_batch){n_tokens, x->ids, x->pos, x->seq, x->kvs, (int)n,
                        x->rows,  n_rows, !some,  NULL,   NULL};
}

/* What the sessions of a group share is ended when none of them wants it. */
static bool all_cancelled(void *user)
{
    const bitnet_batch *b = user;
    size_t i = 0;
    while (i < b->n_sessions && bnet_session_cancelled(b->sessions[i]))
        i++;
    return i == b->n_sessions;
}

static bool on_layer(void *user, int n_done, int n_layers)
{
    (void)n_done, (void)n_layers;
    return !all_cancelled(user);
}

/* A pass with prompts in it may take long: it is asked about between layers. */
static bitnet_status forward(bitnet_batch *b, bnet_scratch *x, const bnet_batch *p,
                             bitnet_error *err)
{
    bnet_workspace_on_layer(x->ws, p->n_tokens > p->n_seqs ? on_layer : NULL, b);
    bitnet_status st = bnet_forward(x->ws, p, err);
    bnet_workspace_on_layer(x->ws, NULL, NULL);
    atomic_fetch_add(&b->engine->n_cut, st == BITNET_CANCELLED);
    return st;
}

/* The pass of n tasks of one kind and their answers, with a workspace lent for it. *computed says
 * whether it came so far that a failure is the backend's. */
static bitnet_status pass(bitnet_batch *b, bnet_task *tasks, size_t n, bool *computed,
                          bitnet_error *err)
{
    const bnet_cancel wait = {all_cancelled, b};
    b->n_sessions = n;
    bnet_workspaces *w = &b->engine->workspaces;
    const bitnet_session *s = tasks[0].item->session;
    const bnet_scratch **before = &b->before[s->fallen];
    bnet_scratch *x;
    bitnet_status st =
        bnet_scratch_borrow(w, bnet_session_model(s), b->n_tokens, *before, &wait, &x, err);
    *computed = st == BITNET_OK;
    if (st != BITNET_OK)
        return st;
    *before = x;
    bnet_kernels_begin(x, s);
    bnet_batch p = describe(b, x, tasks, n);
    st = forward(b, x, &p, err);
    *computed = st != BITNET_CANCELLED;
    if (st == BITNET_OK)
        st = bnet_batch_answer(b, x->ws, tasks, n, err);
    bnet_kernels_end(x, b->sessions, n);
    bnet_scratch_return(w, x);
    return st;
}

/* If the backend fails, all of them move to the spare model, which computes the pass again. */
static bitnet_status safe_pass(bitnet_batch *b, bnet_task *tasks, size_t n, bitnet_error *err)
{
    bool computed;
    note_samplers(tasks, n);
    bitnet_status first = b->first, st = pass(b, tasks, n, &computed, err);
    if (st == BITNET_OK || !computed)
        return st;
    bitnet_status why = st;
    restore(tasks, n, false);
    b->first = first;
    st = BITNET_OK;
    for (size_t i = 0; i < n && st == BITNET_OK; i++) {
        tasks[i].item->status = BITNET_OK;
        st = bnet_session_fall_back(tasks[i].item->session, why, err);
    }
    return st == BITNET_OK ? pass(b, tasks, n, &computed, err) : st;
}

static size_t same_kind(const bnet_task *tasks, size_t n)
{
    size_t k = 1;
    while (k < n && kind_of(tasks[k].item) == kind_of(tasks[0].item))
        k++;
    return k;
}

/* The i-th task fails alone: it goes before the others, whose order stays. */
static void set_aside(bitnet_batch *b, bnet_task *tasks, size_t i, bitnet_status st)
{
    bnet_task failed = tasks[i];
    memmove(tasks + 1, tasks, i * sizeof *tasks);
    tasks[0] = failed;
    bnet_item_fails(b, failed.item, st);
}

/* The first task and as many after it as are of its kind and find room in their caches; *n_done
 * says how many. */
static bitnet_status run_group(bitnet_batch *b, bnet_task *tasks, size_t n_tasks, size_t *n_done,
                               bitnet_error *err)
{
    int kind = kind_of(tasks[0].item);
    size_t n = same_kind(tasks, n_tasks);
    for (size_t i = 0; i < n; i++) {
        b->sessions[i] = tasks[i].item->session;
        b->ends[i] = b->sessions[i]->n_pos + tasks[i].item->n_ids;
    }
    *n_done = 0;
    bitnet_error why = {0};
    bitnet_status st = bnet_session_hold_group(b->sessions, b->ends, n, &n, &b->n_again, &why);
    bool alone = st == BITNET_CANCELLED || st == BITNET_AGAIN;
    if (st != BITNET_OK && err && (!alone || b->first == BITNET_OK))
        *err = why;
    if (alone) { /* one session, while its cache was computed again */
        b->sessions[n]->again = st == BITNET_AGAIN;
        set_aside(b, tasks, n, st);
        *n_done = 1;
        return BITNET_OK;
    }
    if (st != BITNET_OK)
        return st;
    /* a session may have moved to the spare model while its cache was rebuilt: group them again */
    if (same_kind(tasks, n) == n && kind_of(tasks[0].item) == kind) {
        st = safe_pass(b, tasks, n, err);
        *n_done = st == BITNET_OK || st == BITNET_CANCELLED ? n : 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (st == BITNET_CANCELLED)
            bnet_item_fails(b, tasks[i].item, st);
        else if (*n_done)
            bnet_kv_filled(&b->sessions[i]->entry, b->ends[i]);
        bnet_session_let_go(b->sessions[i]);
    }
    return st == BITNET_CANCELLED ? BITNET_OK : st;
}

/* ---- a step ---- */

static void commit(bnet_task *tasks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bitnet_session *s = tasks[i].item->session;
        if (tasks[i].item->status != BITNET_OK)
            continue;
        bnet_session_note_pass(s, s->n_pos, tasks[i].item->n_ids);
        s->n_pos += tasks[i].item->n_ids;
        s->again = false;
        (tasks[i].item->keep_logits ? bnet_session_adopt : bnet_session_forget)(s);
    }
}

static void refuse(bnet_task *tasks, size_t n, bitnet_status st)
{
    restore(tasks, n, true);
    for (size_t i = 0; i < n; i++)
        tasks[i].item->status = st;
}

static bitnet_status step(bitnet_batch *b, bitnet_batch_item *items, size_t n_items,
                          bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    b->first = BITNET_OK;
    b->n_again = (size_t)b->n_tokens;
    size_t n = line_up(b, items, n_items, err);
    for (size_t i = 0; i < n; i++)
        bnet_kv_want(&b->tasks[i].item->session->entry, true);
    for (size_t i = 0, k; i < n && st == BITNET_OK; i += k)
        st = run_group(b, b->tasks + i, n - i, &k, err);
    for (size_t i = 0; i < n; i++)
        bnet_kv_want(&b->tasks[i].item->session->entry, false);
    if (st == BITNET_OK)
        commit(b->tasks, n);
    else
        refuse(b->tasks, n, st);
    return st == BITNET_OK ? b->first : st;
}

bitnet_status bitnet_batch_step(bitnet_batch *b, bitnet_batch_item *items, size_t n_items,
                                bitnet_error *err)
{
    if (!b || (n_items && !items))
        return bnet_fail(err, BITNET_ARGUMENT, "batch: batch and items must not be NULL");
    bitnet_status st = bnet_busy_enter(&b->busy, b, "batch", "batch", err);
    if (st != BITNET_OK)
        return st;
    st = enter_all(b, items, n_items, err);
    if (st == BITNET_OK) {
        st = step(b, items, n_items, err);
        leave_all(b, items, n_items);
    }
    bnet_busy_leave(&b->busy, b);
    return st;
}
