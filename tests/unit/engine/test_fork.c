/* Sessions that share cache blocks: forks say what sessions of their own say, bit for bit, whatever
 * is appended, rewound, evicted or closed around them; on the CPU and on a GPU (gpu.h). */
#include "crowd.h"
#include "gpu.h"

#include <pthread.h>

enum { N_CTX = 256, N_SLOTS = 5, LOG_MAX = 400 };

static bitnet_session *fork_at(const bitnet_session *s, size_t position)
{
    bitnet_session *f = NULL;
    OK(bitnet_session_fork(s, position, &f, &err));
    assert_int_equal(bitnet_session_position(f), position);
    assert_int_equal(bitnet_session_context(f), bitnet_session_context(s));
    assert_memory_equal(bitnet_session_tokens(f), bitnet_session_tokens(s),
                        position * sizeof(int32_t));
    assert_null(bitnet_session_logits(f));
    return f;
}

static void append(bitnet_session *s, const int32_t *ids, size_t n)
{
    OK(bitnet_session_append(s, ids, n, NULL, NULL, &err));
}

/* ---- what is shared ---- */

static void test_shares_blocks(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 8, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, N_CTX), *alone = nano_session(&n, N_CTX, 0, 0);
    int32_t ids[N_CTX];
    nano_ids(&n, 5, ids, N_CTX);
    append(s, ids, 150);
    bitnet_session *f = fork_at(s, 150);
    bitnet_kv_pool_stats st = crowd_stats(p);
    assert_int_equal(st.n_used, 3);
    assert_int_equal(st.n_shared, 3);
    assert_int_equal(st.n_sessions, 2);
    append(f, ids + 150, 1); /* writes into the third block */
    st = crowd_stats(p);
    assert_int_equal(st.n_used, 4);
    assert_int_equal(st.n_shared, 2);
    assert_int_equal(st.n_rebuilds, 0);
    append(alone, ids, 151);
    assert_same_logits(&n, bitnet_session_logits(f), bitnet_session_logits(alone), "fork");
    append(s, ids + 160, 30); /* has its block for itself now: no copy */
    assert_int_equal(crowd_stats(p).n_used, 4);
    OK(bitnet_session_rewind(alone, 150, &err));
    append(alone, ids + 160, 30);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "forked");
    bitnet_session_close(s); /* the fork lives on */
    append(f, ids + 151, 20);
    OK(bitnet_session_rewind(alone, 150, &err));
    append(alone, ids + 150, 21);
    assert_same_logits(&n, bitnet_session_logits(f), bitnet_session_logits(alone), "lives on");
    bitnet_session_close(f);
    assert_int_equal(crowd_stats(p).n_free, 8);
    bitnet_session_close(alone);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* Full blocks and a rewind: the write after it goes into a block that was shared as full. */
static void test_rewinds_into_shared(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 8, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, N_CTX), *alone = nano_session(&n, N_CTX, 0, 0);
    int32_t ids[N_CTX];
    nano_ids(&n, 6, ids, N_CTX);
    append(s, ids, 192);
    bitnet_session *f = fork_at(s, 128), *g = fork_at(f, 70), *none = fork_at(s, 0);
    assert_int_equal(crowd_stats(p).n_used, 3);
    assert_int_equal(crowd_stats(p).n_shared, 2);
    OK(bitnet_session_rewind(f, 30, &err));
    append(f, ids + 7, 60);
    append(alone, ids, 30);
    append(alone, ids + 7, 60);
    assert_same_logits(&n, bitnet_session_logits(f), bitnet_session_logits(alone), "rewound");
    append(g, ids + 70, 58);
    append(none, ids, 128);
    assert_same_logits(&n, bitnet_session_logits(g), bitnet_session_logits(none), "twice forked");
    append(s, ids + 192, 10);
    OK(bitnet_session_rewind(alone, 0, &err));
    append(alone, ids, 202);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "untouched");
    bitnet_session *all[] = {s, f, g, none, alone};
    for (int i = 0; i < 5; i++)
        bitnet_session_close(all[i]);
    assert_int_equal(crowd_stats(p).n_free, 8);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* A pool that two timelines fill: the one that writes gets the block of the one that idles, and a
 * fork of what was evicted computes it again. */
static void test_shares_a_full_pool(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    for (int whole = 0; whole < 2; whole++) {
        bitnet_kv_pool *p = crowd_pool(&n, 2, crowd_options(BITNET_KV_LRU, whole));
        bitnet_session *s = crowd_session(&n, p, N_CTX), *alone = nano_session(&n, N_CTX, 0, 0);
        int32_t ids[N_CTX];
        nano_ids(&n, 7, ids, N_CTX);
        append(s, ids, 100);
        bitnet_session *f = fork_at(s, 100);
        append(f, ids + 100, 5);
        append(alone, ids, 105);
        assert_same_logits(&n, bitnet_session_logits(f), bitnet_session_logits(alone), "full");
        bitnet_session *g = fork_at(s, 90);
        append(g, ids + 90, 15);
        assert_same_logits(&n, bitnet_session_logits(g), bitnet_session_logits(alone), "evicted");
        append(s, ids + 100, 5);
        assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(alone), "again");
        bitnet_session_close(s);
        bitnet_session_close(f);
        bitnet_session_close(g);
        bitnet_session_close(alone);
        assert_int_equal(crowd_stats(p).n_free, 2);
        bitnet_kv_pool_close(p);
    }
    nano_close(&n);
}

static void copies_without_pool(const nano *n)
{
    for (int kv = 0; kv < 3; kv++) {
        bitnet_session *s = nano_session(n, N_CTX, 32, (bitnet_kv_type)kv),
                       *alone = nano_session(n, N_CTX, 32, (bitnet_kv_type)kv);
        int32_t ids[N_CTX];
        nano_ids(n, 8, ids, N_CTX);
        append(s, ids, 96);
        append(alone, ids, 96);
        OK(bitnet_session_rewind(alone, 70, &err)); /* the same passes: bits of a GPU follow them */
        bitnet_session *f = fork_at(s, 70);
        append(s, ids + 3, 20);
        append(f, ids + 9, 20);
        append(alone, ids + 9, 20);
        assert_same_logits(n, bitnet_session_logits(f), bitnet_session_logits(alone), "copied");
        bitnet_session_close(s);
        bitnet_session_close(f);
        bitnet_session_close(alone);
    }
}

static void test_copies_without_pool(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    copies_without_pool(&n);
    bitnet_session *s = nano_session(&n, 64, 0, BITNET_KV_F16), *f = NULL;
    append(s, (const int32_t[]){1, 2, 3}, 3);
    FAILS(bitnet_session_fork(s, 4, &f, &err), BITNET_ARGUMENT,
          "position 4 is beyond the timeline's 3");
    FAILS(bitnet_session_fork(s, 3, NULL, &err), BITNET_ARGUMENT, "out must not be NULL");
    assert_null(f);
    bitnet_session_close(s);
    nano_close(&n);
}

/* ---- at random ---- */

/* Every call that made a timeline, so that it can be made again alone. */
typedef struct call {
    int32_t first; /* ids are ids_of[first...]; -1: a rewind to n */
    int n;
} call;

typedef struct slot {
    bitnet_session *s;
    call log[LOG_MAX];
    int n_log;
} slot;

typedef struct game {
    const nano *n;
    bitnet_kv_pool *pool;
    int32_t ids[2 * N_CTX];
    slot slots[N_SLOTS];
    uint64_t seed;
    int n_compared;
} game;

static size_t any(game *g, size_t n)
{
    return (size_t)(test_rand(&g->seed) % n);
}

static void note(slot *s, int32_t first, size_t n)
{
    assert_true(s->n_log < LOG_MAX);
    s->log[s->n_log++] = (call){first, (int)n};
}

static void compare_alone(game *g, const slot *s)
{
    bitnet_session *alone = nano_session(g->n, N_CTX, 32, s->s->kv_type);
    for (int i = 0; i < s->n_log; i++)
        if (s->log[i].first < 0)
            OK(bitnet_session_rewind(alone, (size_t)s->log[i].n, &err));
        else
            append(alone, g->ids + s->log[i].first, (size_t)s->log[i].n);
    assert_int_equal(bitnet_session_position(alone), bitnet_session_position(s->s));
    assert_same_logits(g->n, bitnet_session_logits(s->s), bitnet_session_logits(alone), "game");
    bitnet_session_close(alone);
    g->n_compared++;
}

static void do_append(game *g, slot *s)
{
    size_t room = N_CTX - bitnet_session_position(s->s);
    size_t n = any(g, 3) ? 1 + any(g, 4) : 1 + any(g, 100);
    n = n < room ? n : room;
    if (n == 0)
        return;
    int32_t first = (int32_t)any(g, N_CTX);
    append(s->s, g->ids + first, n);
    note(s, first, n);
    if (any(g, 2))
        compare_alone(g, s);
}

static void do_rewind(game *g, slot *s)
{
    size_t to = any(g, bitnet_session_position(s->s) + 1);
    OK(bitnet_session_rewind(s->s, to, &err));
    note(s, -1, to);
    if (to == 0)
        s->n_log = 0;
}

static void do_fork(game *g, const slot *from, slot *to)
{
    if (from == to)
        return;
    bitnet_session_close(to->s);
    size_t at = any(g, bitnet_session_position(from->s) + 1);
    *to = *from;
    to->s = fork_at(from->s, at);
    note(to, -1, at);
}

static void play(const nano *n, bitnet_kv_pool_options o, size_t n_blocks, int n_rounds,
                 uint64_t seed)
{
    game *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->n = n;
    g->seed = seed;
    g->pool = n_blocks ? crowd_pool(n, n_blocks, o) : NULL;
    nano_ids(n, seed, g->ids, 2 * N_CTX);
    for (int i = 0; i < N_SLOTS; i++)
        g->slots[i].s =
            g->pool ? crowd_session(n, g->pool, N_CTX) : nano_session(n, N_CTX, 32, o.kv_type);
    for (int i = 0; i < n_rounds; i++) {
        slot *s = &g->slots[any(g, N_SLOTS)];
        size_t what = any(g, 10);
        if (s->n_log > LOG_MAX / 2 || what == 0)
            do_rewind(g, s);
        else if (what < 4)
            do_fork(g, s, &g->slots[any(g, N_SLOTS)]);
        else
            do_append(g, s);
    }
    assert_true(g->n_compared > n_rounds / 8);
    for (int i = 0; i < N_SLOTS; i++)
        bitnet_session_close(g->slots[i].s);
    if (g->pool)
        assert_int_equal(crowd_stats(g->pool).n_free, n_blocks);
    bitnet_kv_pool_close(g->pool);
    free(g);
}

static void test_random_forks(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    static const size_t n_blocks[] = {24, 8, 4, 0};
    for (int i = 0; i < (CROWD_SLOW ? 2 : 8); i++) {
        bitnet_kv_pool_options o = crowd_options((bitnet_kv_policy)(i % 3), i % 2);
        o.kv_type = (bitnet_kv_type)(i % 3);
        play(&n, o, n_blocks[i % 4], 60, 1000 + (uint64_t)i);
    }
    nano_close(&n);
}

static void test_random_forks_on_gpu(void **state)
{
    (void)state;
    need_gpu();
    nano n = nano_on("cuda");
    copies_without_pool(&n);
    for (int i = 0; i < (CROWD_SLOW ? 1 : 3);
         i++) { /* nothing is evicted: what is computed again has other passes */
        bitnet_kv_pool_options o = crowd_options(BITNET_KV_LRU, false);
        o.kv_type = (bitnet_kv_type)i;
        play(&n, o, 4 * N_SLOTS + 1, 40, 2000 + (uint64_t)i);
    }
    nano_close(&n);
}

/* ---- threads ---- */

typedef struct forker {
    const bitnet_session *from;
    const int32_t *ids;
    float *logits;
    size_t n_vocab;
    bitnet_status status;
    bitnet_error err;
} forker;

/* No asserts: it runs in threads. */
static void *fork_often(void *arg)
{
    forker *w = arg;
    for (int i = 0; i < 12 && w->status == BITNET_OK; i++) {
        bitnet_session *s = NULL;
        w->status = bitnet_session_fork(w->from, 100, &s, &w->err);
        if (w->status == BITNET_OK)
            w->status = bitnet_session_append(s, w->ids, 10, NULL, NULL, &w->err);
        const float *l = bitnet_session_logits(s);
        if (l)
            memcpy(w->logits, l, w->n_vocab * sizeof *l);
        bitnet_session_close(s);
    }
    return NULL;
}

static void test_forks_of_many_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 4, crowd_options(BITNET_KV_LRU, false)); /* tight */
    bitnet_session *s = crowd_session(&n, p, N_CTX), *alone = nano_session(&n, N_CTX, 0, 0);
    int32_t ids[N_CTX];
    pthread_t threads[THREADS];
    forker w[THREADS];
    nano_ids(&n, 9, ids, N_CTX);
    append(s, ids, 120);
    append(alone, ids, 100);
    append(alone, ids + 30, 10);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (forker){.from = s, .ids = ids + 30, .n_vocab = (size_t)n.n_vocab};
        w[i].logits = calloc((size_t)n.n_vocab, sizeof(float));
        assert_int_equal(pthread_create(&threads[i], NULL, fork_often, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (w[i].status != BITNET_OK)
            fail_msg("thread %d: %s", i, w[i].err.message);
        assert_same_logits(&n, w[i].logits, bitnet_session_logits(alone), "thread");
        free(w[i].logits);
    }
    bitnet_session_close(s);
    bitnet_session_close(alone);
    assert_int_equal(crowd_stats(p).n_free, 4);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

int main(int argc, char **argv)
{
    (void)argc;
    choose_gpu(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_blocks),       cmocka_unit_test(test_rewinds_into_shared),
        cmocka_unit_test(test_shares_a_full_pool),  cmocka_unit_test(test_copies_without_pool),
        cmocka_unit_test(test_random_forks),        cmocka_unit_test(test_forks_of_many_threads),
        cmocka_unit_test(test_random_forks_on_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
