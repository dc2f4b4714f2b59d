/* 32 sessions at a time join a batch and leave it at random: prompts in chunks of any length,
 * shared prefixes by forks, caches in a pool that is too small and of their own, masks that change
 * with every token, steps that fail. Every text is the one its session has alone. */
#include "crowd.h"

#include "broken.h"

enum {
    SLOTS = 32,
    MEMBERS = 120,
    PROMPT_MOST = 100,
    OUT_MOST = 10,
    PREFIX = 70,
    STEP_TOKENS = 120
};

typedef struct member {
    uint64_t seed;
    int32_t prompt[PROMPT_MOST];
    size_t n_prompt, n_out; /* as planned */
    size_t n_done, n_made;  /* ids of the prompt appended, tokens chosen */
    int32_t out[OUT_MOST];
    bool masked;
    bitnet_session *session; /* NULL: the slot is empty */
    bitnet_sampler *sampler;
} member;

typedef struct world {
    nano n, ref;
    bitnet_kv_pool *pool;
    bitnet_batch *batch;
    uint64_t rng;
    int32_t prefix[PREFIX];
    member m[SLOTS];
    int n_begun, n_forks, n_faults, n_refused, n_ended, n_again;
} world;

static uint64_t roll(world *w, uint64_t n)
{
    return test_rand(&w->rng) % n;
}

/* ---- one member ---- */

static bitnet_sampler *sampler_of(const member *m, int n_vocab)
{
    bitnet_sampler *s = NULL;
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    o.temperature = m->seed % 5 == 0 ? 0 : 1.1f;
    o.top_k = m->seed % 3 == 0 ? 0 : 20;
    o.repetition_penalty = m->seed % 4 == 0 ? 1.2f : 1;
    o.seed = m->seed;
    OK(bitnet_sampler_open(&o, n_vocab, &s, &err));
    return s;
}

/* What its k-th token may be. */
static void mask(const member *m, bitnet_sampler *s, size_t k)
{
    uint32_t words[16];
    uint64_t rng = m->seed * 31 + k;
    if (!m->masked)
        return;
    for (size_t i = 0; i < 16; i++)
        words[i] = (uint32_t)test_rand(&rng) | 1;
    bitnet_constraints c;
    bitnet_constraints_init(&c);
    c.allowed = words;
    OK(bitnet_sampler_constrain(s, &c, &err));
}

static void check_alone(const world *w, const member *m)
{
    bitnet_session *s = nano_session(&w->ref, 128, 64, BITNET_KV_F16);
    bitnet_sampler *p = sampler_of(m, w->ref.n_vocab);
    OK(bitnet_session_append(s, m->prompt, m->n_prompt, NULL, NULL, &err));
    for (size_t k = 0; k < m->n_made; k++) {
        int32_t id;
        mask(m, p, k);
        OK(bitnet_sampler_pick(p, bitnet_session_logits(s), bitnet_session_tokens(s),
                               bitnet_session_position(s), &id, &err));
        if (id != m->out[k])
            fail_msg("member %llu: token %zu is %d, alone %d", (unsigned long long)m->seed, k,
                     m->out[k], id);
        OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    }
    bitnet_sampler_close(p);
    bitnet_session_close(s);
}

/* ---- coming and going ---- */

/* A session that begins with the first n ids of the prefix, if there is one to fork. */
static bool fork_one(world *w, member *m, size_t n)
{
    size_t first = roll(w, SLOTS);
    for (size_t i = 0; i < SLOTS; i++) {
        const bitnet_session *s = w->m[(first + i) % SLOTS].session;
        if (!s || bitnet_session_position(s) < n ||
            memcmp(bitnet_session_tokens(s), w->prefix, n * sizeof *w->prefix) != 0)
            continue;
        OK(bitnet_session_fork(s, n, &m->session, &err));
        w->n_forks++;
        return true;
    }
    return false;
}

static void join(world *w, member *m)
{
    size_t n_shared = roll(w, 2) ? 20 + roll(w, PREFIX - 19) : 0;
    *m = (member){.seed = (uint64_t)++w->n_begun, .masked = roll(w, 2)};
    m->n_out = 1 + roll(w, OUT_MOST);
    m->n_prompt = n_shared + 1 + roll(w, 29);
    nano_ids(&w->n, m->seed, m->prompt, (int)m->n_prompt);
    memcpy(m->prompt, w->prefix, n_shared * sizeof *m->prompt);
    if (n_shared && fork_one(w, m, n_shared))
        m->n_done = n_shared;
    else if (roll(w, 3))
        m->session = crowd_session(&w->n, w->pool, 128);
    else
        m->session = nano_session(&w->n, 128, 16, BITNET_KV_F16);
    m->sampler = sampler_of(m, w->n.n_vocab);
}

static void leave(world *w, member *m)
{
    check_alone(w, m);
    bitnet_session_close(m->session);
    bitnet_sampler_close(m->sampler);
    m->session = NULL;
    w->n_ended++;
}

/* ---- a step ---- */

static bitnet_batch_item item_of(world *w, member *m, size_t room)
{
    bitnet_batch_item i;
    bitnet_batch_item_init(&i);
    i.session = m->session;
    size_t left = m->n_prompt - m->n_done, most = 1 + roll(w, 40);
    i.ids = left ? m->prompt + m->n_done : &m->out[m->n_made - 1];
    i.n_ids = left ? BNET_MIN(BNET_MIN(left, room), most) : 1;
    if (left == 0 || i.n_ids == left) {
        i.sampler = m->sampler;
        mask(m, m->sampler, m->n_made);
    }
    i.keep_logits = roll(w, 8) == 0;
    i.want_logprob = i.sampler && roll(w, 6) == 0;
    return i;
}

/* The step; sometimes the backend fails in it, and either the CPU takes its place or the step is
 * refused and made again. */
static void step(world *w, bitnet_batch_item *items, size_t n)
{
    bool fault = roll(w, 6) == 0, refused = fault && roll(w, 4);
    bitnet_engine *e = w->n.engine;
    bitnet_error err = {0};
    if (fault)
        break_engine(e, 1 + (int)roll(w, 4), false);
    e->selection.kind = refused ? BNET_DEV_CUDA : BNET_DEV_CPU;
    bitnet_status st = bitnet_batch_step(w->batch, items, n, &err);
    e->selection.kind = BNET_DEV_CPU;
    if (fault)
        unbreak_engine(e);
    w->n_faults += fault;
    if (st != BITNET_OK && st != BITNET_AGAIN) {
        if (!refused)
            fail_msg("%s", err.message);
        w->n_refused++;
        st = bitnet_batch_step(w->batch, items, n, &err);
    }
    if (st != BITNET_OK && st != BITNET_AGAIN)
        fail_msg("%s", err.message);
}

static void advance(world *w)
{
    bitnet_batch_item items[SLOTS];
    member *who[SLOTS];
    size_t n = 0, room = STEP_TOKENS;
    for (size_t i = 0; i < SLOTS && room > 0; i++) {
        member *m = &w->m[i];
        if (!m->session || roll(w, 4) == 0)
            continue;
        who[n] = m;
        items[n] = item_of(w, m, room);
        room -= items[n++].n_ids;
    }
    step(w, items, n);
    for (size_t i = 0; i < n; i++) {
        member *m = who[i];
        if (items[i].status == BITNET_AGAIN) { /* its lost cache was too much for the step */
            w->n_again++;
            continue;
        }
        if (m->n_done < m->n_prompt)
            m->n_done += items[i].n_ids;
        assert_int_equal(items[i].status, BITNET_OK);
        assert_true((bitnet_session_logits(m->session) != NULL) == items[i].keep_logits);
        if (items[i].sampler)
            m->out[m->n_made++] = items[i].next;
        if (m->n_made == m->n_out || roll(w, 60) == 0)
            leave(w, m);
    }
}

static void test_every_text_is_the_one_alone(void **state)
{
    (void)state;
    world *w = calloc(1, sizeof *w);
    w->n = nano_open(2);
    w->ref = nano_open(1);
    w->rng = 2024;
    w->n.engine->selection.is_auto = false;
    nano_ids(&w->n, 99, w->prefix, PREFIX);
    w->pool = crowd_pool(&w->n, 16, crowd_options(BITNET_KV_LRU, false));
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = STEP_TOKENS;
    OK(bitnet_batch_open(w->n.engine, &o, &w->batch, &err));
    while (w->n_ended < MEMBERS) {
        for (int i = 0; i < SLOTS; i++)
            if (!w->m[i].session && w->n_begun < MEMBERS && roll(w, 2))
                join(w, &w->m[i]);
        advance(w);
    }
    assert_true(w->n_forks > 5 && w->n_faults > 5 && w->n_refused > 3);
    assert_true(w->n.engine->n_fallbacks > 0 && w->n_again > 0);
    bitnet_batch_close(w->batch);
    bitnet_kv_pool_close(w->pool);
    nano_close(&w->n);
    nano_close(&w->ref);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_text_is_the_one_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
