/* The prefix cache of a pool: what is found, by whom, what is given up first, and that logits with
 * reuse are those without, bit for bit, on the CPU and on a GPU (gpu.h). */
#include "crowd.h"
#include "model/kv.h"
#include "gpu.h"

#include <pthread.h>

enum { N_CTX = 320, BLOCK = BNET_KV_BLOCK };

static void append(bitnet_session *s, const int32_t *ids, size_t n)
{
    OK(bitnet_session_append(s, ids, n, NULL, NULL, &err));
}

static size_t reuse(bitnet_session *s, uint64_t scope, const int32_t *ids, size_t n)
{
    size_t n_reused = SIZE_MAX;
    OK(bitnet_session_reuse(s, scope, ids, n, &n_reused, &err));
    assert_int_equal(bitnet_session_position(s), n_reused);
    assert_memory_equal(bitnet_session_tokens(s), ids, n_reused * sizeof *ids);
    return n_reused;
}

/* Computes ids in a session that is closed at once and leaves its full blocks in the cache, or all
 * of them. */
static void cache(const nano *n, bitnet_kv_pool *p, uint64_t scope, const int32_t *ids,
                  size_t n_ids)
{
    bitnet_session *s = crowd_session(n, p, N_CTX);
    append(s, ids, n_ids);
    OK(bitnet_session_publish(s, scope, &err));
    bitnet_session_close(s);
}

static void cache_all(const nano *n, bitnet_kv_pool *p, uint64_t scope, const int32_t *ids,
                      size_t n_ids)
{
    bitnet_session *s = crowd_session(n, p, N_CTX);
    append(s, ids, n_ids);
    OK(bitnet_session_publish_all(s, scope, &err));
    bitnet_session_close(s);
}

/* How much of ids a new session finds. */
static size_t found(const nano *n, bitnet_kv_pool *p, uint64_t scope, const int32_t *ids,
                    size_t n_ids)
{
    bitnet_session *s = crowd_session(n, p, N_CTX);
    size_t n_reused = reuse(s, scope, ids, n_ids);
    bitnet_session_close(s);
    return n_reused;
}

static void compare_alone(const nano *n, const bitnet_session *s, const int32_t *ids, size_t n_ids,
                          int n_batch, const char *what)
{
    bitnet_session *alone = nano_session(n, N_CTX, n_batch, s->kv_type);
    append(alone, ids, n_ids);
    assert_same_logits(n, bitnet_session_logits(s), bitnet_session_logits(alone), what);
    bitnet_session_close(alone);
}

static void test_finds_whole_blocks(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 10, crowd_options(BITNET_KV_LRU, false));
    int32_t ids[N_CTX], other[N_CTX];
    nano_ids(&n, 1, ids, N_CTX);
    assert_int_equal(found(&n, p, 0, ids, 200), 0); /* nothing was published yet */
    cache(&n, p, 0, ids, 200);
    bitnet_kv_pool_stats st = crowd_stats(p);
    assert_int_equal(st.n_cached, 3); /* of four, the last is not full */
    assert_int_equal(st.n_used, 0);
    assert_int_equal(found(&n, p, 0, ids, 200), 192);
    assert_int_equal(found(&n, p, 0, ids, 193), 192);
    assert_int_equal(found(&n, p, 0, ids, 192), 191); /* the last token is always computed */
    assert_int_equal(found(&n, p, 0, ids, 65), 64);
    assert_int_equal(found(&n, p, 0, ids, 64), 63);
    assert_int_equal(found(&n, p, 0, ids, 0), 0);
    assert_int_equal(found(&n, p, 1, ids, 200), 0); /* another scope */
    memcpy(other, ids, sizeof other);
    other[100] = (other[100] + 1) % n.n_vocab;
    assert_int_equal(found(&n, p, 0, other, 200), 100);
    other[0] = (other[0] + 1) % n.n_vocab; /* the third block alone is the same */
    assert_int_equal(found(&n, p, 0, other, 200), 0);
    st = crowd_stats(p);
    assert_int_equal(st.n_prefix_lookups, 10);
    assert_int_equal(st.n_prefix_hits, 6);
    assert_int_equal(st.n_prefix_tokens, 192 + 192 + 191 + 64 + 63 + 100);
    bitnet_session *s = crowd_session(&n, p, N_CTX), *t = crowd_session(&n, p, N_CTX);
    size_t again = 0;
    assert_int_equal(reuse(s, 0, ids, 200), 192);
    OK(bitnet_session_sync(s, ids, 200, &again, &err));
    assert_int_equal(again, 192);
    compare_alone(&n, s, ids, 200, 0, "reused");
    assert_int_equal(reuse(t, 0, ids, 200), 192);
    st = crowd_stats(p);
    assert_int_equal(st.n_used, 4);
    assert_int_equal(st.n_shared, 3);
    assert_int_equal(st.n_cached, 0); /* sessions have them */
    bitnet_session_close(s);
    bitnet_session_close(t);
    assert_int_equal(crowd_stats(p).n_cached, 3);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* What a session has itself counts, too, and is kept if it is more. */
static void test_keeps_its_own(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 10, crowd_options(BITNET_KV_LRU, false));
    int32_t ids[N_CTX];
    nano_ids(&n, 2, ids, N_CTX);
    cache(&n, p, 0, ids, 130);
    bitnet_session *s = crowd_session(&n, p, N_CTX), *own = nano_session(&n, N_CTX, 0, 0);
    append(s, ids, 150);
    assert_int_equal(reuse(s, 0, ids, 200), 150);
    assert_non_null(bitnet_session_logits(s)); /* nothing changed */
    assert_int_equal(reuse(s, 0, ids, 140), 139);
    assert_null(bitnet_session_logits(s));
    OK(bitnet_session_rewind(s, 100, &err));
    append(s, ids + 10, 5);
    assert_int_equal(reuse(s, 0, ids, 200), 128); /* 100 of its own are less */
    append(s, ids + 128, 72);
    compare_alone(&n, s, ids, 200, 0, "exchanged");
    FAILS(bitnet_session_reuse(s, 0, (const int32_t[]){n.n_vocab}, 1, NULL, &err), BITNET_ARGUMENT,
          "reuse: id");
    FAILS(bitnet_session_reuse(s, 0, NULL, 1, NULL, &err), BITNET_ARGUMENT, "reuse: ids");
    assert_int_equal(bitnet_session_position(s), 200);
    append(own, ids, 70); /* without a pool */
    OK(bitnet_session_publish(own, 0, &err));
    assert_int_equal(reuse(own, 0, ids, 200), 70);
    assert_int_equal(reuse(own, 0, ids + 1, 200), 0);
    bitnet_session_close(s);
    bitnet_session_close(own);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* A rewind into a published block: the cached text stays what it was, also where no block is left
 * to copy to. */
static void test_published_blocks_do_not_change(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    for (size_t n_blocks = 2; n_blocks < 5; n_blocks++) {
        bitnet_kv_pool *p = crowd_pool(&n, n_blocks, crowd_options(BITNET_KV_LRU, false));
        int32_t ids[N_CTX], other[N_CTX];
        nano_ids(&n, 3, ids, N_CTX);
        nano_ids(&n, 4, other, N_CTX);
        bitnet_session *s = crowd_session(&n, p, N_CTX), *t = crowd_session(&n, p, N_CTX);
        append(s, ids, 128);
        OK(bitnet_session_publish(s, 0, &err));
        OK(bitnet_session_publish(s, 9, &err)); /* not in two scopes */
        OK(bitnet_session_rewind(s, 20, &err));
        memcpy(other, ids, 20 * sizeof *ids);
        append(s, other + 20, 90);
        compare_alone(&n, s, other, 110, 0, "rewound");
        assert_int_equal(found(&n, p, 9, ids, 128), 0);
        size_t got = reuse(t, 0, ids, 128);
        assert_int_equal(got, n_blocks == 2 ? 0 : n_blocks == 3 ? 64 : 127);
        append(t, ids + got, 128 - got);
        compare_alone(&n, t, ids, 128, 0, "cached");
        bitnet_session_close(s);
        bitnet_session_close(t);
        bitnet_kv_pool_close(p);
    }
    nano_close(&n);
}

/* A copy of ids whose token at `at` is another. */
static void change(const nano *n, const int32_t *ids, size_t at, int32_t *to)
{
    memcpy(to, ids, N_CTX * sizeof *to);
    to[at] = (to[at] + 1) % n->n_vocab;
}

/* Blocks that are not full: found as far as they agree, exchanged for what continues them. */
static void test_finds_the_rest(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 10, crowd_options(BITNET_KV_LRU, false));
    int32_t ids[N_CTX], other[N_CTX];
    nano_ids(&n, 21, ids, N_CTX);
    cache_all(&n, p, 0, ids, 150);
    assert_int_equal(crowd_stats(p).n_cached, 3);
    assert_int_equal(found(&n, p, 0, ids, 300), 150);
    assert_int_equal(found(&n, p, 0, ids, 150), 149);
    assert_int_equal(found(&n, p, 0, ids, 137), 136);
    assert_int_equal(found(&n, p, 0, ids, 136), 128); /* 7 tokens are not worth a block's copy */
    assert_int_equal(found(&n, p, 1, ids, 300), 0);
    change(&n, ids, 140, other);
    assert_int_equal(found(&n, p, 0, other, 300), 140);
    cache_all(&n, p, 0, ids, 140); /* known already */
    assert_int_equal(crowd_stats(p).n_cached, 3);
    cache_all(&n, p, 0, ids, 180); /* continues the rest, whose block is freed */
    assert_int_equal(crowd_stats(p).n_cached, 3);
    assert_int_equal(found(&n, p, 0, ids, 300), 180);
    cache_all(&n, p, 0, other, 160); /* a second way on */
    assert_int_equal(crowd_stats(p).n_cached, 4);
    assert_int_equal(found(&n, p, 0, other, 300), 160);
    assert_int_equal(found(&n, p, 0, ids, 300), 180);
    cache_all(&n, p, 0, ids, 250); /* a full block, and a new rest */
    assert_int_equal(crowd_stats(p).n_cached, 5);
    assert_int_equal(found(&n, p, 0, ids, 300), 250);
    change(&n, ids, 170, other);
    assert_int_equal(found(&n, p, 0, other, 300), 170); /* of the full one */
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* A block that several begin with is written by none of them. */
static void test_the_rest_does_not_change(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    for (size_t n_blocks = 2; n_blocks < 6; n_blocks++) {
        bitnet_kv_pool_options o = crowd_options(BITNET_KV_LRU, false);
        o.kv_type = (bitnet_kv_type)(n_blocks % 3);
        bitnet_kv_pool *p = crowd_pool(&n, n_blocks, o);
        int32_t ids[N_CTX], other[N_CTX];
        nano_ids(&n, 22, ids, N_CTX);
        change(&n, ids, 90, other);
        bitnet_session *s = crowd_session(&n, p, N_CTX), *t = crowd_session(&n, p, N_CTX);
        append(s, ids, 100);
        OK(bitnet_session_publish_all(s, 0, &err));
        assert_int_equal(reuse(t, 0, other, 120), 90);
        append(t, other + 90, 30);
        compare_alone(&n, t, other, 120, 0, "another way on");
        append(s, ids + 100, 20); /* the session itself goes on */
        compare_alone(&n, s, ids, 120, 0, "its own way on");
        bitnet_session_close(t);
        t = crowd_session(&n, p, N_CTX);
        size_t got = reuse(t, 0, ids, 110); /* where blocks are few it was given up */
        assert_int_equal(got, n_blocks == 2 ? 0 : n_blocks == 3 ? 64 : 100);
        append(t, ids + got, 110 - got);
        compare_alone(&n, t, ids, 110, 0, "what was published");
        bitnet_session_close(s);
        bitnet_session_close(t);
        assert_int_equal(crowd_stats(p).n_used, 0);
        bitnet_kv_pool_close(p);
    }
    nano_close(&n);
}

/* Where no block is left, the cache gives up the block that a session is about to write, before
 * another session loses one. */
static void test_the_rest_goes_before_other_sessions(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 4, crowd_options(BITNET_KV_LRU, false));
    int32_t ids[N_CTX], other[N_CTX];
    nano_ids(&n, 23, ids, N_CTX);
    nano_ids(&n, 24, other, N_CTX);
    cache_all(&n, p, 0, ids, 100);
    bitnet_session *idle = crowd_session(&n, p, N_CTX), *s = crowd_session(&n, p, N_CTX);
    append(idle, other, 128);
    OK(bitnet_session_publish(idle, 0, &err));
    assert_int_equal(reuse(s, 0, ids, 110), 100);
    append(s, ids + 100, 10);
    assert_int_equal(crowd_stats(p).n_evictions, 0);
    assert_int_equal(crowd_stats(p).n_cached_evicted, 1);
    assert_int_equal(bitnet_session_cached(idle), 128);
    compare_alone(&n, s, ids, 110, 0, "in the place of the rest");
    assert_int_equal(found(&n, p, 0, other, 128), 127); /* what is known of others stays so */
    bitnet_session_close(idle);
    bitnet_session_close(s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* Texts of one block each in a pool of three; then a session takes one block. A capital letter is a
 * use. */
static void test_policies_choose_what_goes(void **state)
{
    (void)state;
    static const struct {
        bitnet_kv_policy policy;
        const char *uses;
        char gone;
    } rows[] = {
        {BITNET_KV_LRU, "ABCA", 'B'},   {BITNET_KV_LRU, "ABCBA", 'C'},
        {BITNET_KV_FIFO, "ABCA", 'A'},  {BITNET_KV_FIFO, "BACA", 'B'},
        {BITNET_KV_LFU, "ABCAAB", 'C'}, {BITNET_KV_LFU, "ABCCCB", 'A'},
    };
    nano n = nano_on("cpu");
    int32_t ids[4][BLOCK + 1];
    for (int i = 0; i < 4; i++)
        nano_ids(&n, 50 + (uint64_t)i, ids[i], BLOCK + 1);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        bitnet_kv_pool *p = crowd_pool(&n, 3, crowd_options(rows[r].policy, false));
        for (const char *u = rows[r].uses; *u; u++)
            if (found(&n, p, 5, ids[*u - 'A'], BLOCK + 1) == 0)
                cache(&n, p, 5, ids[*u - 'A'], BLOCK);
        assert_int_equal(crowd_stats(p).n_cached, 3);
        bitnet_session *s = crowd_session(&n, p, N_CTX);
        append(s, ids[3], 1);
        assert_int_equal(crowd_stats(p).n_cached_evicted, 1);
        for (int i = 0; i < 3; i++)
            assert_int_equal(found(&n, p, 5, ids[i], BLOCK + 1),
                             'A' + i == rows[r].gone ? 0 : BLOCK);
        bitnet_session_close(s);
        bitnet_kv_pool_close(p);
    }
    nano_close(&n);
}

/* The end of a text goes before its beginning, cached blocks before those of an idle session. */
static void test_order_of_eviction(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 5, crowd_options(BITNET_KV_LRU, false));
    int32_t ids[N_CTX], other[N_CTX];
    nano_ids(&n, 11, ids, N_CTX);
    nano_ids(&n, 12, other, N_CTX);
    cache(&n, p, 0, ids, 192);
    bitnet_session *idle = crowd_session(&n, p, N_CTX), *s = crowd_session(&n, p, N_CTX);
    append(idle, other, 100);
    append(s, other + 5, 100); /* two blocks of the three that are cached */
    assert_int_equal(crowd_stats(p).n_cached, 1);
    assert_int_equal(crowd_stats(p).n_evictions, 0);
    assert_int_equal(found(&n, p, 0, ids, 192), 64);
    append(s, other + 105, 100); /* four blocks: the last cached one, then one of the session */
    assert_int_equal(crowd_stats(p).n_cached, 0);
    assert_int_equal(crowd_stats(p).n_evictions, 1);
    compare_alone(&n, s, other + 5, 200, 0, "after evictions");
    append(idle, other + 100, 1);
    compare_alone(&n, idle, other, 101, 0, "evicted");
    bitnet_session_close(idle);
    bitnet_session_close(s);
    assert_int_equal(crowd_stats(p).n_free, 5);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* An evicted session finds its own text again in the cache. */
static void test_finds_what_it_lost(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 4, crowd_options(BITNET_KV_LRU, true));
    int32_t ids[N_CTX];
    nano_ids(&n, 13, ids, N_CTX);
    bitnet_session *s = crowd_session(&n, p, N_CTX), *other = crowd_session(&n, p, N_CTX);
    append(s, ids, 150);
    OK(bitnet_session_publish(s, 0, &err));
    append(other, ids + 9, 100); /* the session loses all, the cache only what is needed */
    assert_int_equal(bnet_kv_mapped(s->kv), 0);
    assert_int_equal(bitnet_session_position(s), 150);
    assert_int_equal(bitnet_session_cached(s), 0);
    size_t n_reused = reuse(s, 0, ids, 200);
    assert_true(n_reused >= 64 && n_reused < 150); /* nothing that must be computed again */
    assert_int_equal(n_reused, bitnet_session_cached(s));
    append(s, ids + n_reused, 200 - n_reused);
    compare_alone(&n, s, ids, 200, 0, "found again");
    bitnet_session_close(s);
    bitnet_session_close(other);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* ---- the index alone: few buckets, so chains are long ---- */

static void fill_tokens(int32_t *tokens, int32_t value)
{
    for (int i = 0; i < BLOCK; i++)
        tokens[i] = value;
}

static void test_index_compares_everything(void **state)
{
    (void)state;
    bnet_kv_prefixes *x = NULL;
    int32_t a[BLOCK], b[BLOCK];
    fill_tokens(a, 1);
    fill_tokens(b, 1);
    b[BLOCK - 1] = 2;
    nano n = nano_open(1);
    bnet_kv_blocks *blocks = NULL;
    OK(bnet_kv_blocks_open(n.engine->model, 2, BITNET_KV_F16, &blocks, &err));
    assert_null(bnet_kv_prefixes_of(blocks));
    OK(bnet_kv_prefixes_open(blocks, BITNET_KV_LRU, &err));
    x = bnet_kv_prefixes_of(blocks);
    assert_int_equal(bnet_kv_prefix_find(x, 0, BNET_KV_NONE, a), BNET_KV_NONE);
    assert_false(bnet_kv_prefix_has(x, 1));
    assert_false(bnet_kv_prefix_has(NULL, 1));
    bnet_kv_prefix_add(x, 0, BNET_KV_NONE, a, BLOCK, 1, 1);
    bnet_kv_prefix_add(x, 0, 1, a, BLOCK, 0, 2);
    assert_int_equal(bnet_kv_prefix_find(x, 0, BNET_KV_NONE, a), 1);
    assert_int_equal(bnet_kv_prefix_find(x, 0, 1, a), 0);
    assert_int_equal(bnet_kv_prefix_find(x, 0, 0, a), BNET_KV_NONE);
    assert_int_equal(bnet_kv_prefix_find(x, 1, BNET_KV_NONE, a), BNET_KV_NONE);
    assert_int_equal(bnet_kv_prefix_find(x, 0, BNET_KV_NONE, b), BNET_KV_NONE);
    int n_common = -1;
    assert_int_equal(bnet_kv_prefix_begins(x, 0, BNET_KV_NONE, b, BLOCK, &n_common), 1);
    assert_int_equal(n_common, BLOCK - 1);
    assert_int_equal(bnet_kv_prefix_begins(x, 0, 1, b, 10, &n_common), 0);
    assert_int_equal(n_common, 10);
    assert_int_equal(bnet_kv_prefix_begins(x, 1, BNET_KV_NONE, b, BLOCK, &n_common), BNET_KV_NONE);
    assert_int_equal(bnet_kv_prefix_begins(x, 0, 0, b, BLOCK, &n_common), BNET_KV_NONE);
    assert_int_equal(n_common, 0);
    bnet_kv_blocks_close(blocks);
    nano_close(&n);
}

/* ---- who goes first ---- */

enum { HEAP_BLOCKS = 40, HEAP_ROUNDS = 20000 };

/* What the index should know of a block, kept beside it. */
typedef struct shadow {
    bool known;
    int32_t parent;
    int n_children;
    uint64_t last_use, n_uses, entered;
    int n_tokens;
} shadow;

static bool shadow_before(bitnet_kv_policy policy, const shadow *a, const shadow *b)
{
    if (policy == BITNET_KV_FIFO && a->entered != b->entered)
        return a->entered < b->entered;
    if (policy == BITNET_KV_LFU && a->n_uses != b->n_uses)
        return a->n_uses < b->n_uses;
    return a->last_use < b->last_use;
}

static int32_t shadow_victim(const shadow *s, const int32_t *n_refs, bitnet_kv_policy policy,
                             bool used)
{
    int32_t best = BNET_KV_NONE;
    for (int32_t i = 0; i < HEAP_BLOCKS; i++)
        if (s[i].known && s[i].n_children == 0 && (n_refs[i] > 1) == used &&
            (best == BNET_KV_NONE || shadow_before(policy, &s[i], &s[best])))
            best = i;
    return best;
}

static void shadow_drop(shadow *s, int32_t i)
{
    s[i].known = false;
    if (s[i].parent != BNET_KV_NONE)
        s[s[i].parent].n_children--;
}

/* One block more is known, continuing any other; or one is used, held, dropped, given up. */
static void shadow_round(bnet_kv_blocks *b, shadow *s, bitnet_kv_policy policy, uint64_t now,
                         uint64_t *rng)
{
    bnet_kv_prefixes *x = bnet_kv_prefixes_of(b);
    int32_t tokens[BLOCK], i = (int32_t)(test_rand(rng) % HEAP_BLOCKS),
                           parent = (int32_t)(test_rand(rng) % HEAP_BLOCKS);
    uint64_t what = test_rand(rng) % 8;
    bool unused = what % 2;
    fill_tokens(tokens, (int32_t)now);
    if (!s[i].known && what < 6) {
        bool fits = parent != i && s[parent].known && s[parent].n_tokens == BLOCK;
        int n_tokens = now % 3 ? BLOCK : 1 + (int)(now % BLOCK);
        parent = fits ? parent : BNET_KV_NONE;
        bnet_kv_prefix_add(x, 0, parent, tokens, n_tokens, i, now);
        bnet_kv_blocks_hold(b, i);
        if (parent != BNET_KV_NONE)
            s[parent].n_children++;
        s[i] = (shadow){true, parent, 0, now, 1, now, n_tokens};
    } else if (s[i].known && what < 3) {
        bnet_kv_prefix_use(x, i, now);
        s[i].last_use = now;
        s[i].n_uses++;
    } else if (what < 5 && b->n_refs[i] > 1) {
        bnet_kv_blocks_drop(b, i);
    } else if (what < 6) {
        bnet_kv_blocks_hold(b, i);
    } else {
        int32_t want = shadow_victim(s, b->n_refs, policy, false);
        if (want == BNET_KV_NONE && !unused)
            want = shadow_victim(s, b->n_refs, policy, true);
        assert_int_equal(bnet_kv_prefix_evict(x, unused), want);
        if (want != BNET_KV_NONE)
            shadow_drop(s, want);
    }
}

/* Every block that is known, and no other, is found by the tokens it was entered with. */
static void shadow_check(const bnet_kv_blocks *b, const shadow *s)
{
    for (int32_t i = 0; i < HEAP_BLOCKS; i++) {
        int32_t tokens[BLOCK];
        int n_common;
        fill_tokens(tokens, (int32_t)s[i].entered);
        int32_t at = bnet_kv_prefix_begins(b->prefixes, 0, s[i].parent, tokens, BLOCK, &n_common);
        assert_int_equal(at, s[i].known ? i : BNET_KV_NONE);
        assert_int_equal(n_common, s[i].known ? s[i].n_tokens : 0);
    }
}

static void test_index_gives_up_by_the_policy(void **state)
{
    (void)state;
    for (int policy = BITNET_KV_LRU; policy <= BITNET_KV_LFU; policy++) {
        int32_t n_refs[HEAP_BLOCKS];
        shadow s[HEAP_BLOCKS] = {{0}};
        bnet_kv_blocks b = {.shape = {.n_blocks = HEAP_BLOCKS}, .n_refs = n_refs};
        uint64_t rng = 7;
        for (int i = 0; i < HEAP_BLOCKS; i++)
            n_refs[i] = 1;
        OK(bnet_kv_prefixes_open(&b, (bitnet_kv_policy)policy, &err));
        for (uint64_t now = 1; now <= HEAP_ROUNDS; now++)
            shadow_round(&b, s, (bitnet_kv_policy)policy, now, &rng);
        shadow_check(&b, s);
        bnet_kv_prefixes_close(b.prefixes);
    }
}

/* Giving up all of many blocks takes no time to speak of: none of it looks at all of them. */
static void test_a_large_index_is_fast(void **state)
{
    (void)state;
    enum { MANY = 1 << 17 };
    int32_t *n_refs = calloc(MANY, sizeof *n_refs), tokens[BLOCK];
    bnet_kv_blocks b = {.shape = {.n_blocks = MANY}, .n_refs = n_refs};
    OK(bnet_kv_prefixes_open(&b, BITNET_KV_LRU, &err));
    for (int32_t i = 0; i < MANY; i++) {
        n_refs[i] = 1;
        fill_tokens(tokens, i);
        bnet_kv_prefix_add(b.prefixes, 0, i % 3 ? i - 1 : BNET_KV_NONE, tokens, BLOCK, i,
                           (uint64_t)i);
    }
    double begun = bnet_now_ms();
    for (int i = 0; i < MANY; i++)
        assert_true(bnet_kv_prefix_evict(b.prefixes, true) >= 0);
    double ms = bnet_now_ms() - begun;
    assert_int_equal(bnet_kv_prefix_evict(b.prefixes, false), BNET_KV_NONE);
    print_message("%d evictions: %.0f ms\n", MANY, ms);
    assert_true(ms < 10000); /* looking at every node took minutes */
    bnet_kv_prefixes_close(b.prefixes);
    free(n_refs);
}

/* ---- at random ---- */

/* Texts that have beginnings in common: one of two, then one of two, and so on. */
static void any_text(const nano *n, uint64_t *seed, int32_t *ids, size_t n_ids)
{
    uint64_t path = 1;
    for (size_t at = 0; at < n_ids; at += 70) {
        path = path * 2 + test_rand(seed) % 2;
        size_t k = n_ids - at < 70 ? n_ids - at : 70;
        nano_ids(n, path, ids + at, k);
    }
}

static void play(const nano *n, bitnet_kv_pool_options o, size_t n_blocks, int n_rounds,
                 uint64_t seed, bool gpu)
{
    enum { N = 4 };
    bitnet_kv_pool *p = crowd_pool(n, n_blocks, o);
    bitnet_session_options so;
    bitnet_session *s[N] = {NULL};
    bitnet_session_options_init(&so);
    so.n_ctx = N_CTX;
    so.n_batch = BLOCK;
    so.kv_pool = p;
    for (int i = 0; i < n_rounds; i++) {
        int32_t ids[N_CTX];
        bitnet_session **at = &s[test_rand(&seed) % N];
        size_t len = 1 + (size_t)(test_rand(&seed) % 250);
        any_text(n, &seed, ids, len);
        if (!*at || test_rand(&seed) % 2) { /* a new session, so that all passes begin at blocks */
            bitnet_session_close(*at);
            OK(bitnet_session_open(n->engine, &so, at, &err));
            size_t k = reuse(*at, 1, ids, len);
            if (gpu) /* passes begin at blocks, with reuse and without */
                OK(bitnet_session_rewind(*at, k -= k % BLOCK, &err));
            append(*at, ids + k, len - k);
            compare_alone(n, *at, ids, len, BLOCK, "random");
        }
        uint64_t what = test_rand(&seed) % 4;
        if (what < 2)
            OK((what ? bitnet_session_publish : bitnet_session_publish_all)(*at, 1, &err));
    }
    bitnet_kv_pool_stats st = crowd_stats(p);
    assert_true(st.n_prefix_hits > 2);
    for (int i = 0; i < N; i++)
        bitnet_session_close(s[i]);
    assert_int_equal(crowd_stats(p).n_used, 0);
    bitnet_kv_pool_close(p);
}

static void test_random_texts(void **state)
{
    (void)state;
    nano n = nano_on("cpu");
    static const size_t n_blocks[] = {4, 7, 40};
    for (int i = 0; i < (CROWD_SLOW ? 2 : 6); i++) {
        bitnet_kv_pool_options o = crowd_options((bitnet_kv_policy)(i % 3), i % 2);
        o.kv_type = (bitnet_kv_type)(i % 3);
        play(&n, o, n_blocks[i / 2], 40, 300 + (uint64_t)i, false);
    }
    nano_close(&n);
}

static void test_random_texts_on_gpu(void **state)
{
    (void)state;
    need_gpu();
    nano n = nano_on("cuda");
    for (int i = 0; i < (CROWD_SLOW ? 1 : 3); i++) {
        bitnet_kv_pool_options o = crowd_options(BITNET_KV_LRU, false);
        o.kv_type = (bitnet_kv_type)i;
        play(&n, o, i ? 40 : 8, 24, 400 + (uint64_t)i, true);
    }
    nano_close(&n);
}

/* ---- threads ---- */

typedef struct reader {
    const nano *n;
    bitnet_kv_pool *pool;
    const int32_t *ids;
    float *logits;
    bitnet_status status;
    bitnet_error err;
} reader;

/* No asserts: it runs in threads. */
static void *read_often(void *arg)
{
    reader *w = arg;
    bitnet_session_options so;
    bitnet_session_options_init(&so);
    so.n_ctx = N_CTX;
    so.n_batch = 32;
    so.kv_pool = w->pool;
    for (int i = 0; i < 10 && w->status == BITNET_OK; i++) {
        bitnet_session *s = NULL;
        size_t k = 0;
        w->status = bitnet_session_open(w->n->engine, &so, &s, &w->err);
        if (w->status == BITNET_OK)
            w->status = bitnet_session_reuse(s, 3, w->ids, 150, &k, &w->err);
        if (w->status == BITNET_OK)
            w->status = bitnet_session_append(s, w->ids + k, 150 - k, NULL, NULL, &w->err);
        if (w->status == BITNET_OK)
            w->status = i % 2 ? bitnet_session_publish(s, 3, &w->err)
                              : bitnet_session_publish_all(s, 3, &w->err);
        const float *l = bitnet_session_logits(s);
        if (l)
            memcpy(w->logits, l, (size_t)w->n->n_vocab * sizeof *l);
        bitnet_session_close(s);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    nano n = nano_on("cpu");
    bitnet_kv_pool *p = crowd_pool(&n, 7, crowd_options(BITNET_KV_LRU, false));
    int32_t ids[2][N_CTX];
    pthread_t threads[THREADS];
    reader w[THREADS];
    nano_ids(&n, 9, ids[0], N_CTX);
    memcpy(ids[1], ids[0], sizeof ids[0]);
    nano_ids(&n, 10, ids[1] + 70, N_CTX - 70);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (reader){.n = &n, .pool = p, .ids = ids[i % 2]};
        w[i].logits = calloc((size_t)n.n_vocab, sizeof(float));
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (w[i].status != BITNET_OK)
            fail_msg("thread %d: %s", i, w[i].err.message);
        bitnet_session *alone = nano_session(&n, N_CTX, 0, 0);
        append(alone, ids[i % 2], 150);
        assert_same_logits(&n, w[i].logits, bitnet_session_logits(alone), "thread");
        bitnet_session_close(alone);
        free(w[i].logits);
    }
    assert_true(crowd_stats(p).n_prefix_hits > 0);
    assert_int_equal(crowd_stats(p).n_used, 0);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

int main(int argc, char **argv)
{
    (void)argc;
    choose_gpu(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_whole_blocks),
        cmocka_unit_test(test_keeps_its_own),
        cmocka_unit_test(test_published_blocks_do_not_change),
        cmocka_unit_test(test_finds_the_rest),
        cmocka_unit_test(test_the_rest_does_not_change),
        cmocka_unit_test(test_the_rest_goes_before_other_sessions),
        cmocka_unit_test(test_policies_choose_what_goes),
        cmocka_unit_test(test_order_of_eviction),
        cmocka_unit_test(test_finds_what_it_lost),
        cmocka_unit_test(test_index_compares_everything),
        cmocka_unit_test(test_index_gives_up_by_the_policy),
        cmocka_unit_test(test_a_large_index_is_fast),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_random_texts_on_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
