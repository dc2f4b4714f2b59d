/* The batch object: steps of several sessions equal those of each alone, whatever is mixed in them;
 * what fails leaves everything as it was. */
#include "crowd.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "broken.h"

enum { K = 5, STEPS = 12, N_PROMPT = 40 };

static bitnet_batch *open_batch(const nano *n, int n_tokens)
{
    bitnet_batch *b = NULL;
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = n_tokens;
    OK(bitnet_batch_open(n->engine, &o, &b, &err));
    return b;
}

static bitnet_batch_item item(bitnet_session *s, const int32_t *ids, size_t n_ids)
{
    bitnet_batch_item i;
    bitnet_batch_item_init(&i);
    i.session = s;
    i.ids = ids;
    i.n_ids = n_ids;
    return i;
}

static bitnet_sampler *sampler_of(const nano *n, int i)
{
    bitnet_sampler *s = NULL;
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    o.temperature = i == 0 ? 0 : 0.4f * (float)i;
    o.top_k = i == 2 ? 3 : i == 3 ? 0 : 40;
    o.repetition_penalty = i == 4 ? 1.3f : 1;
    o.seed = 7 + (uint64_t)i;
    OK(bitnet_sampler_open(&o, n->n_vocab, &s, &err));
    return s;
}

static void choices_equal_those_alone(void **state)
{
    (void)state;
    nano n = nano_open(2);
    bitnet_session *a[K], *b[K];
    bitnet_sampler *sa[K], *sb[K];
    int32_t ids[K], prompt[80];
    nano_ids(&n, 6, prompt, 80);
    bitnet_batch *batch = open_batch(&n, 64);
    bitnet_batch_item items[K];
    for (int i = 0; i < K; i++) {
        sa[i] = sampler_of(&n, i);
        sb[i] = sampler_of(&n, i);
        a[i] = nano_session(&n, 100, 3, BITNET_KV_F16);
        b[i] = nano_session(&n, 100, 64, BITNET_KV_F16);
        OK(bitnet_session_append(a[i], prompt, (size_t)i * 13 + 1, NULL, NULL, &err));
        OK(bitnet_session_append(b[i], prompt, (size_t)i * 13 + 1, NULL, NULL, &err));
        ids[i] = prompt[i];
        items[i] = item(a[i], &ids[i], 1);
        items[i].sampler = sa[i];
    }
    for (int step = 0; step < STEPS; step++) {
        OK(bitnet_batch_step(batch, items, K, &err));
        for (int i = 0; i < K; i++) {
            int32_t want;
            OK(bitnet_session_append(b[i], &ids[i], 1, NULL, NULL, &err));
            size_t at = bitnet_session_position(b[i]);
            OK(bitnet_sampler_pick(sb[i], bitnet_session_logits(b[i]), bitnet_session_tokens(b[i]),
                                   at, &want, &err));
            assert_int_equal(items[i].next, want);
            assert_int_equal(bitnet_session_position(a[i]), at);
            assert_null(bitnet_session_logits(a[i]));
            ids[i] = items[i].next;
        }
    }
    for (int i = 0; i < K; i++) {
        bitnet_session_close(a[i]);
        bitnet_session_close(b[i]);
        bitnet_sampler_close(sa[i]);
        bitnet_sampler_close(sb[i]);
    }
    bitnet_batch_close(batch);
    nano_close(&n);
}

typedef struct rows {
    float *logits;
    size_t n_vocab;
} rows;

static bool collect(void *user, size_t index, const float *logits)
{
    rows *r = user;
    memcpy(r->logits + index * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    return true;
}

enum { TOP = 3 };

/* What a step said of every position is what follows from its logits. */
static void check_logprobs(const nano *n, const rows *want, const int32_t *ids,
                           const bitnet_logprob *chosen, const bitnet_logprob *top)
{
    for (int i = 0; i < N_PROMPT; i++) {
        const float *row = want->logits + (size_t)i * want->n_vocab;
        bitnet_logprob own = {ids[i + 1], 0}, best[TOP];
        OK(bitnet_logprobs(row, n->n_vocab, &own, 1, best, TOP, &err));
        assert_true(own.logprob == chosen[i].logprob);
        for (int k = 0; k < TOP; k++)
            assert_true(best[k].id == top[i * TOP + k].id &&
                        best[k].logprob == top[i * TOP + k].logprob);
    }
}

/* A prompt with everything asked of every position, beside single tokens of others. */
static void answers_of_a_mixed_step(void **state)
{
    (void)state;
    nano n = nano_open(2);
    size_t n_vocab = (size_t)n.n_vocab;
    size_t n_embd = (size_t)bitnet_engine_model(n.engine)->n_embd;
    bitnet_batch *batch = open_batch(&n, 100);
    bitnet_session *a = nano_session(&n, 100, 64, BITNET_KV_F16),
                   *b = nano_session(&n, 100, 64, BITNET_KV_F16),
                   *alone = nano_session(&n, 100, 64, BITNET_KV_F16);
    int32_t ids[N_PROMPT + 1];
    nano_ids(&n, 3, ids, N_PROMPT + 1);
    rows want = {malloc(N_PROMPT * n_vocab * sizeof(float)), n_vocab};
    float *got = malloc(N_PROMPT * n_vocab * sizeof(float));
    float *hidden = malloc(N_PROMPT * n_embd * sizeof(float));
    bitnet_logprob chosen[N_PROMPT], top[N_PROMPT * TOP];
    for (int i = 0; i < N_PROMPT; i++)
        chosen[i].id = ids[i + 1];
    OK(bitnet_session_append(alone, ids, N_PROMPT, collect, &want, &err));
    bitnet_sampler *sampler = sampler_of(&n, 1);
    bitnet_batch_item items[2] = {item(b, ids, 1), item(a, ids, N_PROMPT)};
    items[0].keep_logits = true;
    items[1].every_position = items[1].want_logprob = true;
    items[1].sampler = sampler;
    items[1].logits = got;
    items[1].hidden = hidden;
    items[1].chosen = chosen;
    items[1].n_chosen = 1;
    items[1].top = top;
    items[1].n_top = TOP;
    OK(bitnet_batch_step(batch, items, 2, &err));
    assert_memory_equal(got, want.logits, N_PROMPT * n_vocab * sizeof(float));
    assert_same_logits(&n, bitnet_session_logits(b), want.logits, "kept");
    check_logprobs(&n, &want, ids, chosen, top);
    bitnet_logprob next = {items[1].next, 0};
    OK(bitnet_logprobs(want.logits + (N_PROMPT - 1) * n_vocab, n.n_vocab, &next, 1, NULL, 0, &err));
    assert_true(next.logprob == items[1].logprob);
    float largest = 0;
    for (size_t i = 0; i < N_PROMPT * n_embd; i++)
        largest = fmaxf(largest, fabsf(hidden[i]));
    assert_true(largest > 0 && isfinite(largest));
    /* the same state alone */
    float last[512];
    assert_true(n_embd <= 512);
    OK(bitnet_session_rewind(alone, 0, &err));
    bitnet_batch_item again = item(alone, ids, N_PROMPT);
    again.hidden = last;
    OK(bitnet_batch_step(batch, &again, 1, &err));
    assert_memory_equal(last, hidden + (N_PROMPT - 1) * n_embd, n_embd * sizeof *last);
    free(want.logits);
    free(got);
    free(hidden);
    bitnet_sampler_close(sampler);
    bitnet_batch_close(batch);
    bitnet_session_close(a);
    bitnet_session_close(b);
    bitnet_session_close(alone);
    nano_close(&n);
}

/* A step that fails because of the device changes nothing, and repeated it draws the same. */
static void a_failed_step_changes_nothing(void **state)
{
    (void)state;
    nano n = nano_open(2);
    n.engine->selection.kind = BNET_DEV_CUDA; /* asked for by name: nothing stands in for it */
    n.engine->selection.is_auto = false;
    int32_t ids[9], draws[2][3];
    nano_ids(&n, 9, ids, 9);
    bitnet_batch *batch = open_batch(&n, 64);
    for (int round = 0; round < 2; round++) {
        bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
        bitnet_session *t = nano_session(&n, 64, 8, BITNET_KV_F16);
        bitnet_sampler *p = sampler_of(&n, 3), *q = sampler_of(&n, 2);
        OK(bitnet_session_append(s, ids, 8, NULL, NULL, &err));
        float *logits = malloc((size_t)n.n_vocab * sizeof *logits);
        memcpy(logits, bitnet_session_logits(s), (size_t)n.n_vocab * sizeof *logits);
        bitnet_batch_item items[2] = {item(s, &ids[8], 1), item(t, ids, 5)};
        items[0].sampler = p;
        items[1].sampler = q;
        items[0].keep_logits = items[1].keep_logits = true;
        for (int at = 1; round == 1 && at <= 3; at++) {
            break_engine(n.engine, at, false);
            FAILS(bitnet_batch_step(batch, items, 2, &err), BITNET_ERROR, "injected failure");
            unbreak_engine(n.engine);
            assert_int_equal(items[0].status, BITNET_ERROR);
            assert_int_equal(items[1].status, BITNET_ERROR);
            assert_int_equal(bitnet_session_position(s), 8);
            assert_int_equal(bitnet_session_position(t), 0);
            assert_false(s->fallen || t->fallen);
            assert_same_logits(&n, bitnet_session_logits(s), logits, "after a failed step");
            assert_null(bitnet_session_logits(t));
        }
        OK(bitnet_batch_step(batch, items, 2, &err));
        draws[round][0] = items[0].next;
        draws[round][1] = items[1].next;
        OK(bitnet_sampler_pick(p, logits, NULL, 0, &draws[round][2], &err)); /* where it stands */
        free(logits);
        bitnet_sampler_close(p);
        bitnet_sampler_close(q);
        bitnet_session_close(s);
        bitnet_session_close(t);
    }
    assert_memory_equal(draws[0], draws[1], sizeof draws[0]);
    n.engine->selection.kind = BNET_DEV_CPU;
    bitnet_batch_close(batch);
    nano_close(&n);
}

/* No finite logit is the model's fault: the item fails, the CPU is not asked to do better. */
static void a_row_without_a_choice_fails_alone(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[9];
    nano_ids(&n, 9, ids, 9);
    bitnet_batch *batch = open_batch(&n, 64);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    bitnet_session *t = nano_session(&n, 64, 8, BITNET_KV_F16);
    bitnet_sampler *p = sampler_of(&n, 1), *q = sampler_of(&n, 1);
    bitnet_bias *none = calloc((size_t)n.n_vocab, sizeof *none);
    for (int i = 0; i < n.n_vocab; i++)
        none[i] = (bitnet_bias){i, -INFINITY};
    bitnet_constraints c;
    bitnet_constraints_init(&c);
    c.biases = none;
    c.n_biases = (size_t)n.n_vocab;
    OK(bitnet_sampler_constrain(p, &c, &err));
    bitnet_batch_item items[2] = {item(s, ids, 3), item(t, ids, 5)};
    items[0].sampler = p;
    items[1].sampler = q;
    FAILS(bitnet_batch_step(batch, items, 2, &err), BITNET_ERROR, "position 0");
    assert_int_equal(items[0].status, BITNET_ERROR);
    assert_int_equal(items[1].status, BITNET_OK);
    assert_int_equal(bitnet_session_position(s), 0);
    assert_int_equal(bitnet_session_position(t), 5);
    assert_false(s->fallen || t->fallen);
    assert_int_equal(n.engine->n_fallbacks, 0);
    free(none);
    bitnet_sampler_close(p);
    bitnet_sampler_close(q);
    bitnet_session_close(s);
    bitnet_session_close(t);
    bitnet_batch_close(batch);
    nano_close(&n);
}

/* ---- a pool that has blocks for one of two sessions ---- */

typedef struct pair {
    nano n;
    bitnet_kv_pool *pool;
    bitnet_session *s[2]; /* of 150 and 100 tokens; the first one has lost its blocks */
    bitnet_batch *batch;
    int32_t ids[150];
} pair;

static pair pair_open(void)
{
    pair p = {.n = nano_open(1)};
    p.pool = crowd_pool(&p.n, 4, crowd_options(BITNET_KV_LRU, true));
    p.batch = open_batch(&p.n, 256);
    nano_ids(&p.n, 4, p.ids, 150);
    for (int i = 0; i < 2; i++) {
        p.s[i] = crowd_session(&p.n, p.pool, 200);
        OK(bitnet_session_append(p.s[i], p.ids, i ? 100 : 150, NULL, NULL, &err));
    }
    assert_int_equal(p.s[0]->entry.n_valid, 0);
    return p;
}

static void pair_close(pair *p)
{
    bitnet_batch_close(p->batch);
    for (int i = 0; i < 2; i++)
        bitnet_session_close(p->s[i]);
    bitnet_kv_pool_close(p->pool);
    nano_close(&p->n);
}

static bool stop_at_third(void *user)
{
    return ++*(int *)user >= 3;
}

/* A session cancelled while its cache is computed again fails alone, too. */
static void cancelled_in_rebuild_fails_alone(void **state)
{
    (void)state;
    pair p = pair_open();
    int polls = 0;
    bitnet_session_on_cancel(p.s[0], stop_at_third, &polls);
    bitnet_batch_item items[2] = {item(p.s[0], p.ids, 1), item(p.s[1], p.ids, 1)};
    FAILS(bitnet_batch_step(p.batch, items, 2, &err), BITNET_CANCELLED,
          "cancelled at position 150");
    assert_int_equal(items[0].status, BITNET_CANCELLED);
    assert_int_equal(items[1].status, BITNET_OK);
    assert_int_equal(bitnet_session_position(p.s[0]), 150);
    assert_int_equal(bitnet_session_position(p.s[1]), 101);
    pair_close(&p);
}

/* A sampler that serves two passes of a step: if the second one is computed again on the CPU, the
 * choice of the first one stays and is not drawn again. */
static void a_shared_sampler_draws_once(void **state)
{
    (void)state;
    int32_t want[3] = {0};
    bool fell = false;
    for (int at = 0; at <= 16; at++) { /* which word of the backend is a failure; 0: none */
        pair p = pair_open();
        bitnet_sampler *q = sampler_of(&p.n, 4);
        bitnet_batch_item items[2] = {item(p.s[0], p.ids, 1), item(p.s[1], p.ids, 1)};
        items[0].sampler = items[1].sampler = q;
        break_engine(p.n.engine, at, false);
        OK(bitnet_batch_step(p.batch, items, 2, &err));
        unbreak_engine(p.n.engine);
        bitnet_sampler_state stands;
        bitnet_sampler_save(q, &stands);
        assert_int_equal(stands.n_draws, 2);
        const int32_t got[3] = {items[0].next, items[1].next, 2};
        if (at == 0)
            memcpy(want, got, sizeof want);
        assert_memory_equal(got, want, sizeof want);
        fell = fell || (p.s[1]->fallen && !p.s[0]->fallen);
        bitnet_sampler_close(q);
        pair_close(&p);
    }
    assert_true(fell);
}

static bnet_buffer *no_buffer(bnet_backend *be, size_t n_bytes)
{
    (void)be;
    (void)n_bytes;
    return NULL;
}

typedef struct rival {
    pair *p;
    pthread_t thread;
    int polls;
} rival;

static void *append_second(void *user)
{
    pair *p = user;
    OK(bitnet_session_append(p->s[1], p->ids, 30, NULL, NULL, &err));
    return NULL;
}

/* Called while the first session has all blocks and no workspace yet: the other one takes the only
 * workspace and waits for blocks. */
static bool begin_rival(void *user)
{
    rival *r = user;
    if (++r->polls == 2) {
        assert_int_equal(pthread_create(&r->thread, NULL, append_second, r->p), 0);
        usleep(100000);
    }
    return false;
}

/* Whoever waits for blocks has no workspace: those who have the blocks may be waiting for it. */
static void blocks_and_workspaces_do_not_wait_for_each_other(void **state)
{
    (void)state;
    pair p = pair_open();
    rival r = {.p = &p};
    break_engine(p.n.engine, 0, false);
    the_broken.table.buffer_new = no_buffer; /* no memory for a second workspace */
    bitnet_session_on_cancel(p.s[0], begin_rival, &r);
    bitnet_batch_item i = item(p.s[0], p.ids, 1);
    OK(bitnet_batch_step(p.batch, &i, 1, &err));
    assert_int_equal(pthread_join(r.thread, NULL), 0);
    assert_int_equal(bitnet_session_position(p.s[0]), 151);
    assert_int_equal(bitnet_session_position(p.s[1]), 130);
    unbreak_engine(p.n.engine);
    pair_close(&p);
}

/* ---- failures of one session ---- */

/* A token whose choice failed is taken back, and so are its logits. */
static void logits_are_those_of_the_position(void **state)
{
    (void)state;
    nano n = nano_open(1);
    n.engine->selection.kind = BNET_DEV_CUDA; /* asked for by name: nothing stands in for it */
    n.engine->selection.is_auto = false;
    int32_t ids[9];
    nano_ids(&n, 9, ids, 9);
    bitnet_session *alone = nano_session(&n, 64, 8, BITNET_KV_F16);
    OK(bitnet_session_append(alone, ids, 8, NULL, NULL, &err));
    for (int at = 1; at <= 2; at++) {
        bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
        bitnet_sampler *p = sampler_of(&n, 0);
        OK(bitnet_session_append(s, ids, 8, NULL, NULL, &err));
        break_engine(n.engine, at, false);
        FAILS(bitnet_generate(s, p, ids, 9, NULL, NULL, &err), BITNET_ERROR, "injected failure");
        unbreak_engine(n.engine);
        assert_int_equal(bitnet_session_position(s), 8);
        const float *logits = bitnet_session_logits(s);
        if (logits)
            assert_same_logits(&n, logits, bitnet_session_logits(alone), "after a failed choice");
        bitnet_sampler_close(p);
        bitnet_session_close(s);
    }
    bitnet_session_close(alone);
    n.engine->selection.kind = BNET_DEV_CPU;
    nano_close(&n);
}

/* Without memory on the CPU a session stays what and where it was. */
static void a_failed_fallback_changes_nothing(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[9];
    nano_ids(&n, 9, ids, 9);
    bitnet_session *first = nano_session(&n, 64, 8, BITNET_KV_F16);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    OK(bitnet_session_append(s, ids, 8, NULL, NULL, &err));
    break_engine(n.engine, 1, true);
    OK(bitnet_session_append(first, ids, 8, NULL, NULL, &err)); /* opens the spare */
    assert_true(first->fallen);
    bnet_backend_vtable table = *n.engine->spare->v;
    const bnet_backend_vtable *whole = n.engine->spare->v;
    table.buffer_new = no_buffer;
    n.engine->spare->v = &table;
    FAILS(bitnet_session_append(s, &ids[8], 1, NULL, NULL, &err), BITNET_MEMORY, "falling back");
    n.engine->spare->v = whole;
    unbreak_engine(n.engine);
    assert_false(s->fallen);
    assert_int_equal(bitnet_session_position(s), 8);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(first), "as before");
    OK(bitnet_session_append(s, &ids[8], 1, NULL, NULL, &err));
    bitnet_session_close(first);
    bitnet_session_close(s);
    nano_close(&n);
}

static uint64_t calls(const bitnet_session *s, uint64_t *n_shared)
{
    bitnet_session_kernel used[BNET_SESSION_KERNELS];
    uint64_t sum = 0;
    *n_shared = 0;
    size_t n = bitnet_session_kernels(s, used, BNET_SESSION_KERNELS);
    for (size_t i = 0; i < n; i++) {
        sum += used[i].n_calls;
        *n_shared += used[i].n_shared;
    }
    return sum;
}

static void kernels_are_counted_per_session(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[4] = {1, 2, 3, 4};
    bitnet_batch *batch = open_batch(&n, 64);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    bitnet_session *t = nano_session(&n, 64, 8, BITNET_KV_F16);
    uint64_t shared, mine, first;
    assert_int_equal(calls(s, &shared), 0);
    OK(bitnet_session_append(s, ids, 4, NULL, NULL, &err));
    first = calls(s, &shared);
    assert_true(first > 0 && shared == 0);
    assert_int_equal(calls(t, &shared), 0);
    bitnet_batch_item items[2] = {item(s, ids, 1), item(t, ids, 4)};
    OK(bitnet_batch_step(batch, items, 2, &err));
    mine = calls(t, &shared);
    assert_true(mine > 0 && shared == mine);
    assert_int_equal(calls(s, &shared), first + mine);
    assert_int_equal(shared, mine);
    bitnet_session_close(s);
    bitnet_session_close(t);
    bitnet_batch_close(batch);
    nano_close(&n);
}

static void wrong_arguments(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = nano_session(&n, 16, 4, BITNET_KV_F16);
    bitnet_sampler *p = NULL;
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    OK(bitnet_sampler_open(&o, n.n_vocab - 1, &p, &err));
    int32_t ids[5] = {1, 2, 3, 4, 5};
    bitnet_batch *b = open_batch(&n, 4);
    assert_int_equal(bitnet_batch_tokens(b), 4);
    bitnet_batch_options bo;
    bitnet_batch_options_init(&bo);
    bo.n_tokens = 0;
    bitnet_batch *none = NULL;
    FAILS(bitnet_batch_open(n.engine, &bo, &none, &err), BITNET_ARGUMENT, "n_tokens is 0");
    bitnet_batch_item i = item(s, ids, 1);
    i.sampler = p;
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "sampler of item 0");
    i = item(s, ids, 5);
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "n_tokens, 4");
    i = item(s, ids, 0);
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "item 0 has no ids");
    i = item(s, ids, 1);
    i.n_top = 1;
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "top of item 0 is NULL");
    i = item(s, ids, 1);
    i.want_logprob = true;
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "want_logprob");
    i = item(s, ids, 1);
    bitnet_logprob outside = {n.n_vocab, 0};
    i.chosen = &outside;
    i.n_chosen = 1;
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "chosen[0].id of item 0");
    i = item(s, ids, 2);
    i.chosen = &outside;
    i.n_chosen = SIZE_MAX / 2 + 1; /* twice that is 0 */
    i.every_position = true;
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "n_chosen of item 0");
    i = item(s, ids, 1);
    i.struct_size = 8;
    FAILS(bitnet_batch_step(b, &i, 1, &err), BITNET_ARGUMENT, "struct_size of item 0");
    bitnet_batch_item twice[2] = {item(s, ids, 1), item(s, ids, 1)};
    FAILS(bitnet_batch_step(b, twice, 2, &err), BITNET_ARGUMENT,
          "the session of item 1 is named twice");
    OK(bitnet_batch_step(b, NULL, 0, &err));
    assert_int_equal(bitnet_session_position(s), 0);
    bitnet_sampler_close(p);
    bitnet_session_close(s);
    bitnet_batch_close(b);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_equal_those_alone),
        cmocka_unit_test(answers_of_a_mixed_step),
        cmocka_unit_test(a_failed_step_changes_nothing),
        cmocka_unit_test(a_row_without_a_choice_fails_alone),
        cmocka_unit_test(cancelled_in_rebuild_fails_alone),
        cmocka_unit_test(a_shared_sampler_draws_once),
        cmocka_unit_test(blocks_and_workspaces_do_not_wait_for_each_other),
        cmocka_unit_test(logits_are_those_of_the_position),
        cmocka_unit_test(a_failed_fallback_changes_nothing),
        cmocka_unit_test(kernels_are_counted_per_session),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
