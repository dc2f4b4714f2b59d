/* crowd.h - sessions on a shared cache, for the tests of it. */
#ifndef BNET_TEST_CROWD_H
#define BNET_TEST_CROWD_H

#include "nano.h"

#include "engine/engine.h"

/* Sanitizers are slow: the same paths, fewer of the random cases. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CROWD_SLOW = 1 };
#else
enum { CROWD_SLOW = 0 };
#endif

static inline nano nano_on(const char *device)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.device = device;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

/* A pool of n_blocks blocks of 64 positions; the rest of the options as set by the caller. */
static inline bitnet_kv_pool *crowd_pool(const nano *n, size_t n_blocks, bitnet_kv_pool_options o)
{
    bitnet_kv_pool *p = NULL;
    bitnet_kv_type type = o.compression ? BITNET_KV_INT8 : o.kv_type;
    o.max_bytes = n_blocks * bnet_kv_block_bytes(n->engine->model, type) + 1;
    OK(bitnet_kv_pool_open(n->engine, &o, &p, &err));
    return p;
}

static inline bitnet_kv_pool_options crowd_options(bitnet_kv_policy policy, bool whole)
{
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    o.policy = policy;
    o.whole_sequences = whole;
    return o;
}

static inline bitnet_session *crowd_session(const nano *n, bitnet_kv_pool *pool, int n_ctx)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = n_ctx;
    o.n_batch = 32;
    o.kv_pool = pool;
    bitnet_session *s = NULL;
    OK(bitnet_session_open(n->engine, &o, &s, &err));
    return s;
}

static inline bitnet_kv_pool_stats crowd_stats(bitnet_kv_pool *p)
{
    bitnet_kv_pool_stats s;
    bitnet_kv_pool_read(p, &s);
    assert_int_equal(s.n_used + s.n_cached + s.n_free, s.n_blocks);
    return s;
}

static inline int32_t crowd_best(const nano *n, const bitnet_session *s)
{
    const float *l = bitnet_session_logits(s);
    assert_non_null(l);
    int32_t best = 0;
    for (int32_t i = 1; i < n->n_vocab; i++)
        if (l[i] > l[best])
            best = i;
    return best;
}

#endif
