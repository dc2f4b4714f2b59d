/* KV-1 to KV-4: the shared cache by its options, its victims, its compression; and that a prompt
 * computed at once is a prompt computed token by token. */
#include "crowd.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static void test_KV_1_config_defaults(void **state)
{
    (void)state;
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    assert_int_equal(o.struct_size, sizeof o);
    assert_int_equal(o.max_bytes, 1073741824u);
    assert_int_equal(o.max_sequence, 2048);
    assert_int_equal(o.block_size, 64);
    assert_int_equal(o.policy, BITNET_KV_LRU);
    assert_false(o.compression);
    nano n = nano_open(1);
    bitnet_kv_pool *p = NULL;
    OK(bitnet_kv_pool_open(n.engine, NULL, &p, &err));
    bitnet_kv_pool_stats s = crowd_stats(p);
    assert_int_equal(s.n_blocks, 1073741824u / s.block_bytes);
    assert_int_equal(s.n_used, 0);
    bitnet_kv_pool_close(p);
    bitnet_kv_pool_close(NULL);
    nano_close(&n);
}

static void test_KV_1_refusals(void **state)
{
    (void)state;
    nano n = nano_open(1), other = nano_open(1);
    bitnet_kv_pool *p = NULL;
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    FAILS(bitnet_kv_pool_open(NULL, &o, &p, &err), BITNET_ARGUMENT, "engine");
    o.block_size = 32;
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_ARGUMENT, "block_size is 32");
    bitnet_kv_pool_options_init(&o);
    o.max_bytes = 100;
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_MEMORY, "holds no block");
    o.max_bytes = (uint64_t)1 << 50;
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_MEMORY, "GiB");
    bitnet_kv_pool_options_init(&o);
    o.policy = (bitnet_kv_policy)7;
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_ARGUMENT, "policy is 7");
    bitnet_kv_pool_options_init(&o);
    o.max_sequence = 0;
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_ARGUMENT, "max_sequence is 0");
    assert_null(p);
    o.max_sequence = 150;
    p = crowd_pool(&n, 2, o);
    bitnet_session_options so;
    bitnet_session_options_init(&so);
    bitnet_session *s = NULL;
    so.kv_pool = p;
    FAILS(bitnet_session_open(other.engine, &so, &s, &err), BITNET_ARGUMENT, "another engine");
    so.n_ctx = 151;
    FAILS(bitnet_session_open(n.engine, &so, &s, &err), BITNET_ARGUMENT, "max_sequence");
    so.n_ctx = 0;
    OK(bitnet_session_open(n.engine, &so, &s, &err));
    assert_int_equal(bitnet_session_context(s), 150);
    bitnet_session_close(s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
    nano_close(&other);
}

/* Longer than the whole pool: refused before anything is computed, and the session lives on. */
static void test_KV_1_overflow(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 2, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, 200), *t = crowd_session(&n, p, 200);
    int32_t ids[200];
    nano_ids(&n, 3, ids, 200);
    OK(bitnet_session_append(t, ids, 30, NULL, NULL, &err));
    FAILS(bitnet_session_append(s, ids, 129, NULL, NULL, &err), BITNET_CONTEXT, "has 2");
    FAILS(bitnet_session_sync(s, ids, 129, NULL, &err), BITNET_CONTEXT, "max_bytes");
    assert_int_equal(bitnet_session_position(s), 0);
    assert_int_equal(crowd_stats(p).n_evictions, 0);
    OK(bitnet_session_append(s, ids, 128, NULL, NULL, &err));
    FAILS(bitnet_session_append(s, ids, 1, NULL, NULL, &err), BITNET_CONTEXT, "3 blocks");
    bitnet_session *both[2] = {t, s};
    FAILS(step_each(n.engine, both, NULL, ids, 2, NULL, &err), BITNET_CONTEXT, "3 blocks");
    assert_int_equal(bitnet_session_position(t), 31); /* the other failed alone */
    assert_int_equal(bitnet_session_position(s), 128);
    bitnet_session_close(s);
    bitnet_session_close(t);
    assert_int_equal(crowd_stats(p).n_free, 2);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* A pool that holds less than the context: a reply ends where the pool does. */
static void test_KV_1_a_reply_fills_the_pool(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 1, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, 200);
    bitnet_sampler *greedy = NULL;
    bitnet_sampler_options so;
    bitnet_sampler_options_init(&so);
    so.temperature = 0;
    OK(bitnet_sampler_open(&so, n.n_vocab, &greedy, &err));
    int32_t ids[60];
    nano_ids(&n, 3, ids, 60);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.ignore_eos = true;
    bitnet_generate_result r;
    OK(bitnet_generate(s, greedy, ids, 60, &o, &r, &err));
    assert_int_equal(r.finish, BITNET_FINISH_CONTEXT);
    assert_int_equal(r.n_generated, 5); /* the last one is chosen, not appended */
    assert_int_equal(bitnet_session_position(s), 64);
    bitnet_sampler_close(greedy);
    bitnet_session_close(s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* A letter is a use of that session, which appends one token to it. */
typedef struct trace {
    bitnet_kv_policy policy;
    const char *uses, *victims;
} trace;

enum { N_LETTERS = 5 };

static void run_trace(const nano *n, const trace *t, bool whole)
{
    bitnet_kv_pool *p = crowd_pool(n, 3, crowd_options(t->policy, whole));
    bitnet_session *s[N_LETTERS], *alone[N_LETTERS];
    char victims[32] = "";
    for (int i = 0; i < N_LETTERS; i++) {
        s[i] = crowd_session(n, p, 64);
        alone[i] = nano_session(n, 64, 0, BITNET_KV_F16);
    }
    for (const char *u = t->uses; *u; u++) {
        bool had[N_LETTERS];
        for (int i = 0; i < N_LETTERS; i++)
            had[i] = bnet_kv_mapped(s[i]->kv) > 0;
        int32_t id = (int32_t)(u - t->uses) + 3;
        OK(bitnet_session_append(s[*u - 'A'], &id, 1, NULL, NULL, &err));
        OK(bitnet_session_append(alone[*u - 'A'], &id, 1, NULL, NULL, &err));
        for (int i = 0; i < N_LETTERS; i++)
            if (had[i] && bnet_kv_mapped(s[i]->kv) == 0)
                snprintf(victims + strlen(victims), 2, "%c", 'A' + i);
    }
    if (strcmp(victims, t->victims) != 0)
        fail_msg("policy %d: uses %s: victims %s, wanted %s", (int)t->policy, t->uses, victims,
                 t->victims);
    assert_int_equal(crowd_stats(p).n_evictions, strlen(t->victims));
    for (int i = 0; i < N_LETTERS; i++) {
        if (bitnet_session_position(s[i]))
            assert_same_logits(n, bitnet_session_logits(s[i]), bitnet_session_logits(alone[i]),
                               "trace");
        bitnet_session_close(s[i]);
        bitnet_session_close(alone[i]);
    }
    bitnet_kv_pool_close(p);
}

static void test_KV_2_eviction_traces(void **state)
{
    (void)state;
    static const trace traces[] = {
        {BITNET_KV_LRU, "ABCADBAC", "BCD"},      {BITNET_KV_LRU, "ABCDEABCDE", "ABCDEAB"},
        {BITNET_KV_LRU, "AAABBCD", "A"},         {BITNET_KV_FIFO, "ABCADBAC", "AB"},
        {BITNET_KV_FIFO, "ABCAAADAE", "ABC"},    {BITNET_KV_LFU, "AAABBCDCD", "CDB"},
        {BITNET_KV_LFU, "AABBCCDDDCCEA", "ABE"}, {BITNET_KV_LFU, "ABCD", "A"},
    };
    nano n = nano_open(1);
    for (size_t i = 0; i < sizeof traces / sizeof traces[0]; i++) {
        run_trace(&n, &traces[i], true);
        run_trace(&n, &traces[i], false);
    }
    nano_close(&n);
}

/* Blocks leave from the end of the victim and are computed again from there. */
static void test_KV_2_tail_blocks(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[250];
    nano_ids(&n, 5, ids, 250);
    for (int whole = 0; whole < 2; whole++) {
        bitnet_kv_pool *p = crowd_pool(&n, 5, crowd_options(BITNET_KV_LRU, whole));
        bitnet_session *a = crowd_session(&n, p, 256), *b = crowd_session(&n, p, 256);
        OK(bitnet_session_append(a, ids, 200, NULL, NULL, &err));
        OK(bitnet_session_append(b, ids, 100, NULL, NULL, &err));
        assert_int_equal(bnet_kv_mapped(a->kv), whole ? 0 : 3);
        assert_int_equal(crowd_stats(p).n_blocks_evicted, whole ? 4 : 1);
        OK(bitnet_session_append(a, ids + 200, 1, NULL, NULL, &err));
        bitnet_kv_pool_stats s = crowd_stats(p);
        assert_int_equal(s.n_rebuilds, 1);
        assert_int_equal(s.n_tokens_rebuilt, whole ? 200 : 200 - 192);
        assert_int_equal(bitnet_session_position(a), 201);
        bitnet_session *alone = nano_session(&n, 256, 0, BITNET_KV_F16);
        OK(bitnet_session_append(alone, ids, 201, NULL, NULL, &err));
        assert_same_logits(&n, bitnet_session_logits(a), bitnet_session_logits(alone), "tail");
        bitnet_session_close(alone);
        bitnet_session_close(a);
        bitnet_session_close(b);
        bitnet_kv_pool_close(p);
    }
    nano_close(&n);
}

/* Sessions of a step that has not come to them are evicted last, whatever the policy says. */
static void test_KV_2_a_step_spares_its_own(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[64];
    nano_ids(&n, 6, ids, 64);
    bitnet_kv_pool *p = crowd_pool(&n, 3, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s[3];
    for (int i = 0; i < 3; i++) {
        s[i] = crowd_session(&n, p, 128);
        OK(bitnet_session_append(s[i], ids, i == 0 ? 64 : 10, NULL, NULL, &err));
    }
    OK(step_each(n.engine, s, NULL, ids, 2, NULL,
                 &err)); /* the first needs a block; the second is the oldest */
    assert_int_equal(bnet_kv_mapped(s[0]->kv), 2);
    assert_int_equal(bnet_kv_mapped(s[1]->kv), 1);
    assert_int_equal(bnet_kv_mapped(s[2]->kv), 0);
    assert_int_equal(crowd_stats(p).n_rebuilds, 0);
    assert_false(s[0]->entry.wanted || s[1]->entry.wanted);
    OK(bitnet_session_append(s[2], ids, 1, NULL, NULL,
                             &err)); /* after it, the policy rules again */
    assert_int_equal(bnet_kv_mapped(s[0]->kv), 1);
    for (int i = 0; i < 3; i++)
        bitnet_session_close(s[i]);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* Lost tokens that are computed again in several steps are counted once each. */
static void test_tokens_rebuilt_in_steps(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[65];
    nano_ids(&n, 2, ids, 65);
    bitnet_kv_pool *p = crowd_pool(&n, 1, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, 64), *other = crowd_session(&n, p, 64);
    bitnet_batch_options o;
    bitnet_batch *b = NULL;
    bitnet_batch_item item;
    bitnet_batch_options_init(&o);
    o.n_tokens = 8;
    OK(bitnet_batch_open(n.engine, &o, &b, &err));
    OK(bitnet_session_append(s, ids, 60, NULL, NULL, &err));
    OK(bitnet_session_append(other, ids, 1, NULL, NULL, &err)); /* takes the only block */
    bitnet_batch_item_init(&item);
    item.session = s;
    item.ids = ids + 60;
    item.n_ids = 1;
    int n_steps = 1;
    while (bitnet_batch_step(b, &item, 1, NULL) == BITNET_AGAIN)
        n_steps++;
    assert_int_equal(item.status, BITNET_OK);
    assert_int_equal(n_steps, 8); /* of 8 tokens each */
    assert_int_equal(crowd_stats(p).n_tokens_rebuilt, 60);
    assert_int_equal(crowd_stats(p).n_rebuilds, 8);
    bitnet_batch_close(b);
    bitnet_session_close(s);
    bitnet_session_close(other);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

typedef struct waiting {
    bitnet_session *s;
    atomic_int done;
    bitnet_status st;
} waiting;

static void *append_one(void *arg)
{
    waiting *w = arg;
    int32_t id = 5;
    w->st = bitnet_session_append(w->s, &id, 1, NULL, NULL, NULL);
    atomic_store(&w->done, 1);
    return NULL;
}

/* While a pass of another thread needs all blocks, a session waits; when it ends, it goes on. */
static void test_KV_2_waiting(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 1, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *a = crowd_session(&n, p, 64);
    waiting w = {.s = crowd_session(&n, p, 64)};
    pthread_t t;
    OK(bnet_session_hold(a, 10, &err)); /* as a pass does */
    assert_int_equal(pthread_create(&t, NULL, append_one, &w), 0);
    usleep(100000);
    assert_int_equal(atomic_load(&w.done), 0);
    bnet_session_let_go(a);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    if (pthread_timedjoin_np(t, NULL, &end) != 0)
        fail_msg("nobody told the session that waits");
    assert_int_equal(w.st, BITNET_OK);
    assert_int_equal(bnet_kv_mapped(a->kv), 0);
    bitnet_session_close(a);
    bitnet_session_close(w.s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* ---- a device that takes its time ---- */

static atomic_bool slow_begun, slow_end;
static const bnet_backend_vtable *quick;

static void slow_clear(bnet_kv_store *kv, int block)
{
    atomic_store(&slow_begun, true);
    while (!atomic_load(&slow_end))
        usleep(1000);
    quick->kv_clear(kv, block);
}

static void *read_pool(void *arg)
{
    bitnet_kv_pool_stats s;
    bitnet_kv_pool_read(arg, &s);
    return NULL;
}

/* Whoever waits for the device with fresh blocks keeps nobody else from the pool. */
static void test_KV_2_the_device_holds_up_nobody(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 3, crowd_options(BITNET_KV_LRU, false));
    waiting w = {.s = crowd_session(&n, p, 64)};
    bitnet_session *other = crowd_session(&n, p, 64);
    quick = n.engine->backend->v;
    bnet_backend_vtable slow = *quick;
    slow.kv_clear = slow_clear;
    n.engine->backend->v = &slow;
    pthread_t t, reader;
    assert_int_equal(pthread_create(&t, NULL, append_one, &w), 0);
    while (!atomic_load(&slow_begun))
        usleep(1000);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    assert_int_equal(pthread_create(&reader, NULL, read_pool, p), 0);
    int late = pthread_timedjoin_np(reader, NULL, &end);
    atomic_store(&slow_end, true);
    if (late)
        fail_msg("the pool is locked while the device is waited for");
    pthread_join(t, NULL);
    n.engine->backend->v = quick;
    assert_int_equal(w.st, BITNET_OK);
    bitnet_session_close(other);
    bitnet_session_close(w.s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* ---- a step's share of what was lost ---- */

static void test_KV_2_a_step_computes_little_again(void **state)
{
    (void)state;
    enum { N = 300, STEP = 64 };
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 10, crowd_options(BITNET_KV_LRU, true));
    bitnet_session *a = crowd_session(&n, p, 512), *b = crowd_session(&n, p, 512),
                   *hog = crowd_session(&n, p, 640), *alone = nano_session(&n, 512, 0, 0);
    int32_t ids[640];
    nano_ids(&n, 41, ids, 640);
    OK(bitnet_session_append(a, ids, N, NULL, NULL, &err));
    OK(bitnet_session_append(b, ids, 40, NULL, NULL, &err));
    assert_int_equal(bitnet_session_cached(a), N);
    OK(bitnet_session_append(hog, ids, 640, NULL, NULL, &err));
    assert_int_equal(bitnet_session_cached(a), 0);
    assert_int_equal(bitnet_session_cached(b), 0);
    assert_int_equal(bitnet_session_position(a), N);
    bitnet_session_close(hog);
    bitnet_batch *batch = NULL;
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = STEP;
    OK(bitnet_batch_open(n.engine, &o, &batch, &err));
    bitnet_batch_item items[2];
    bitnet_session *both[2] = {b, a};
    for (int i = 0; i < 2; i++) {
        bitnet_batch_item_init(&items[i]);
        items[i].session = both[i];
        items[i].ids = ids + (i ? N : 40);
        items[i].n_ids = 1;
        items[i].keep_logits = true;
    }
    FAILS(bitnet_batch_step(batch, items, 2, &err), BITNET_AGAIN, "repeat the step");
    assert_int_equal(items[0].status, BITNET_OK);
    assert_int_equal(items[1].status, BITNET_AGAIN);
    assert_int_equal(bitnet_session_position(b), 41);
    assert_int_equal(bitnet_session_position(a), N);
    size_t done = bitnet_session_cached(a);
    assert_int_equal(done, STEP - 40);
    bitnet_status st = BITNET_AGAIN;
    for (int i = 0; st == BITNET_AGAIN; i++) {
        st = bitnet_batch_step(batch, items + 1, 1, NULL);
        size_t now = bitnet_session_cached(a);
        assert_true(now > done && now <= done + STEP + 1 && i < 10);
        done = now;
    }
    assert_int_equal(st, BITNET_OK);
    OK(bitnet_session_append(alone, ids, N + 1, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(a), bitnet_session_logits(alone), "bit by bit");
    bitnet_batch_close(batch);
    bitnet_session_close(a);
    bitnet_session_close(b);
    bitnet_session_close(alone);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

typedef struct worst {
    const float *want; /* [n][n_vocab] */
    int n_vocab;
    double cosine;
} worst;

static bool keep(void *user, size_t i, const float *logits)
{
    worst *w = user;
    memcpy((float *)w->want + i * (size_t)w->n_vocab, logits, (size_t)w->n_vocab * sizeof *logits);
    return true;
}

static bool compare(void *user, size_t i, const float *logits)
{
    worst *w = user;
    const float *want = w->want + i * (size_t)w->n_vocab;
    double xy = 0, xx = 0, yy = 0;
    for (int k = 0; k < w->n_vocab; k++) {
        xy += (double)want[k] * (double)logits[k];
        xx += (double)want[k] * (double)want[k];
        yy += (double)logits[k] * (double)logits[k];
    }
    w->cosine = fmin(w->cosine, xy / sqrt(xx * yy));
    return true;
}

static bitnet_session *typed_session(const nano *n, bitnet_kv_type type, bool compress,
                                     bitnet_kv_pool **pool)
{
    bitnet_kv_pool_options o = crowd_options(BITNET_KV_LRU, false);
    o.kv_type = type;
    o.compression = compress;
    *pool = crowd_pool(n, 3, o);
    return crowd_session(n, *pool, 192);
}

static void compress_model(const char *path)
{
    enum { N = 150 };
    nano n = {0};
    struct stat st;
    if (stat(path, &st) != 0) {
        print_message("%s is missing\n", path);
        skip();
    }
    OK(bitnet_runtime_open(NULL, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, path, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    const char *text =
        "Once upon a time there was a little dog who lived in a small house. One day "
        "the dog saw a big red ball in the park and wanted to play with it.";
    int32_t ids[N];
    size_t n_ids = 0;
    bitnet_tokenize(n.engine, text, strlen(text), BITNET_TEXT_BOS, ids, N, &n_ids, NULL);
    n_ids = n_ids < N ? n_ids : N;
    bitnet_kv_pool *p[3];
    bitnet_session *s[3] = {typed_session(&n, BITNET_KV_F32, false, &p[0]),
                            typed_session(&n, BITNET_KV_F16, false, &p[1]),
                            typed_session(&n, BITNET_KV_F32, true, &p[2])};
    double f32 = (double)crowd_stats(p[0]).block_bytes, f16 = (double)crowd_stats(p[1]).block_bytes,
           i8 = (double)crowd_stats(p[2]).block_bytes;
    float *want = calloc(N * (size_t)n.n_vocab, sizeof *want);
    assert_non_null(want);
    worst w = {want, n.n_vocab, 1};
    OK(bitnet_session_append(s[0], ids, n_ids, keep, &w, &err));
    OK(bitnet_session_append(s[1], ids, n_ids, compare, &w, &err));
    double half = w.cosine;
    w.cosine = 1;
    OK(bitnet_session_append(s[2], ids, n_ids, compare, &w, &err));
    print_message("%s: head %d, f32/f16 %.3f, f16/int8 %.3f bytes; worst cosine f16 %.6f, int8 "
                  "%.6f\n",
                  strrchr(path, '/') + 1, bitnet_engine_model(n.engine)->head_dim, f32 / f16,
                  f16 / i8, half, w.cosine);
    assert_true(f32 / f16 == 2);
    assert_true(f16 / i8 >= 1.75 && f16 / i8 < 2);
    assert_true(half >= 0.998); /* D-43 */
    assert_true(w.cosine >= 0.998);
    assert_true(w.cosine < 1); /* it is another cache */
    free(want);
    for (int i = 0; i < 3; i++) {
        bitnet_session_close(s[i]);
        bitnet_kv_pool_close(p[i]);
    }
    nano_close(&n);
}

static void test_KV_3_compression_nano(void **state)
{
    (void)state;
    compress_model(NANO_PATH);
}

static void test_KV_3_compression_story(void **state)
{
    (void)state;
    compress_model(TEST_SOURCE_DIR "/models/story.gguf");
}

/* prefill(n) is n single steps, to the bit, for every type, on a pool and off it. */
static void test_KV_4_prefill_decode_parity(void **state)
{
    (void)state;
    enum { N = 140 };
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    nano n = nano_open(2);
    int32_t ids[N];
    nano_ids(&n, 9, ids, N);
    for (int t = 0; t < 3; t++)
        for (int pooled = 0; pooled < 2; pooled++) {
            bitnet_kv_pool_options o = crowd_options(BITNET_KV_LRU, false);
            o.kv_type = types[t];
            bitnet_kv_pool *p = pooled ? crowd_pool(&n, 6, o) : NULL;
            bitnet_session *a = p ? crowd_session(&n, p, 192) : nano_session(&n, 192, 0, types[t]);
            bitnet_session *b = p ? crowd_session(&n, p, 192) : nano_session(&n, 192, 0, types[t]);
            OK(bitnet_session_append(a, ids, N, NULL, NULL, &err));
            for (size_t i = 0; i < N; i++)
                OK(bitnet_session_append(b, ids + i, 1, NULL, NULL, &err));
            assert_same_logits(&n, bitnet_session_logits(a), bitnet_session_logits(b), "parity");
            bitnet_session_close(a);
            bitnet_session_close(b);
            bitnet_kv_pool_close(p);
        }
    nano_close(&n);
}

/* Sessions that lose their blocks to each other in every step all come on: who was told AGAIN is
 * served first. */
static void test_nobody_starves(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 10, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *c = crowd_session(&n, p, 640), *b = crowd_session(&n, p, 640);
    int32_t ids[640];
    nano_ids(&n, 43, ids, 640);
    OK(bitnet_session_append(b, ids, 576, NULL, NULL, &err));
    OK(bitnet_session_append(c, ids, 300, NULL, NULL, &err));
    bitnet_batch *batch = NULL;
    OK(bitnet_batch_open(n.engine, NULL, &batch, &err));
    for (int step = 0; step < 6; step++) {
        bitnet_batch_item items[2];
        bitnet_session *both[2] = {c, b};
        for (int i = 0; i < 2; i++) {
            bitnet_batch_item_init(&items[i]);
            items[i].session = both[i];
            items[i].ids = ids + bitnet_session_position(both[i]);
            items[i].n_ids = 1;
        }
        bitnet_batch_step(batch, items, 2, NULL);
    }
    assert_true(bitnet_session_position(b) > 577 && bitnet_session_position(c) > 301);
    bitnet_batch_close(batch);
    bitnet_session_close(b);
    bitnet_session_close(c);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_KV_1_config_defaults),
        cmocka_unit_test(test_KV_1_refusals),
        cmocka_unit_test(test_KV_1_overflow),
        cmocka_unit_test(test_KV_2_the_device_holds_up_nobody),
        cmocka_unit_test(test_KV_2_a_step_computes_little_again),
        cmocka_unit_test(test_KV_1_a_reply_fills_the_pool),
        cmocka_unit_test(test_KV_2_eviction_traces),
        cmocka_unit_test(test_KV_2_tail_blocks),
        cmocka_unit_test(test_KV_2_a_step_spares_its_own),
        cmocka_unit_test(test_tokens_rebuilt_in_steps),
        cmocka_unit_test(test_KV_2_waiting),
        cmocka_unit_test(test_nobody_starves),
        cmocka_unit_test(test_KV_3_compression_nano),
        cmocka_unit_test(test_KV_3_compression_story),
        cmocka_unit_test(test_KV_4_prefill_decode_parity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
