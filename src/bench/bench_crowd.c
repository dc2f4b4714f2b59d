/* bench_crowd.c - timing many timelines at once: each makes its tokens, all together one pass a
 * step, through a batch. In a pool some lose cache blocks to others and compute them again. */
#include "bench/bench.h"

void bnet_bench_crowd_close(bitnet_bench *b)
{
    for (size_t i = 0; i < b->n_crowd; i++)
        bitnet_session_close(b->crowd[i]);
    bnet_free(b->crowd);
    bitnet_kv_pool_close(b->pool);
    bitnet_batch_close(b->batch);
    bnet_free(b->items);
    bnet_free(b->left);
    bnet_free(b->now);
    b->crowd = NULL;
    b->pool = NULL;
    b->batch = NULL;
    b->items = b->left = NULL;
    b->now = NULL;
    b->n_crowd = 0;
}

static bitnet_status open_one(bitnet_bench *b, size_t i, size_t n, bitnet_error *err)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = b->options.n_ctx;
    o.kv_type = b->options.kv_type;
    o.kv_pool = b->pool;
    o.n_batch = (int)BNET_MAX(n, (size_t)64);
    bitnet_status st = bnet_bench_session(b, &o, &b->crowd_memory, &b->crowd[i], err);
    if (st == BITNET_OK) {
        b->n_crowd = i + 1;
        bitnet_batch_item_init(&b->items[i]);
        b->items[i].session = b->crowd[i];
        b->items[i].ids = &b->now[i];
        b->items[i].n_ids = 1;
        b->items[i].sampler = b->sampler;
    }
    return st == BITNET_OK ? st : bnet_wrap(err, st, "bench: timeline %zu of %zu", i, n);
}

static bitnet_status open_pool(bitnet_bench *b, bitnet_error *err)
{
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    if (!b->options.kv_pool_bytes)
        return BITNET_OK;
    o.max_bytes = b->options.kv_pool_bytes;
    o.max_sequence = b->n_ctx;
    o.policy = b->options.kv_policy;
    o.kv_type = b->options.kv_type;
    b->crowd_memory += o.max_bytes;
    return bitnet_kv_pool_open(b->engine, &o, &b->pool, err);
}

static bitnet_status open_crowd(bitnet_bench *b, size_t n, bitnet_error *err)
{
    if (b->n_crowd == n)
        return BITNET_OK;
    bnet_bench_crowd_close(b);
    b->crowd_memory = 0;
    b->crowd = bnet_calloc(n, sizeof *b->crowd);
    b->items = bnet_calloc(n, sizeof *b->items);
    b->left = bnet_calloc(n, sizeof *b->left);
    b->now = bnet_calloc(n, sizeof *b->now);
    if (!b->crowd || !b->items || !b->left || !b->now)
        return bnet_no_memory(err, "bench");
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = (int)BNET_MAX(n, (size_t)64);
    bitnet_status st = bitnet_batch_open(b->engine, &o, &b->batch, err);
    if (st == BITNET_OK)
        st = open_pool(b, err);
    for (size_t i = 0; st == BITNET_OK && i < n; i++)
        st = open_one(b, i, n, err);
    return st;
}

/* Every timeline stands at the depth, each with a text of its own. */
static bitnet_status fill(bitnet_bench *b, size_t depth, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < b->n_crowd; i++) {
        bitnet_session *s = b->crowd[i];
        size_t have = BNET_MIN(s->n_pos, depth), first = i % (size_t)b->n_ctx;
        size_t shift = BNET_MIN(first, (size_t)b->n_ctx - depth);
        st = bitnet_session_rewind(s, have, err);
        if (st == BITNET_OK && have < depth)
            st = bitnet_session_append(s, b->ids + shift + have, depth - have, NULL, NULL, err);
        b->now[i] = b->ids[i % (size_t)b->n_ctx];
    }
    return st;
}

/* One token of every timeline. Those that lost too much of their cache are told to come again. */
static bitnet_status step(bitnet_bench *b, size_t n, bitnet_error *err)
{
    bitnet_status st;
    memcpy(b->left, b->items, n * sizeof *b->left);
    do {
        st = bitnet_batch_step(b->batch, b->left, n, err);
        size_t n_left = 0;
        for (size_t i = 0; (st == BITNET_OK || st == BITNET_AGAIN) && i < n; i++) {
            const bitnet_batch_item *x = &b->left[i];
            if (x->status == BITNET_OK)
                b->now[x->ids - b->now] = x->next;
            else if (x->status == BITNET_AGAIN)
                b->left[n_left++] = *x;
            else
                return x->status;
        }
        n = n_left;
    } while (st == BITNET_AGAIN && n > 0);
    return st == BITNET_AGAIN ? BITNET_OK : st;
}

static uint64_t rebuilt(const bitnet_bench *b)
{
    bitnet_kv_pool_stats s = {0};
    bitnet_kv_pool_read(b->pool, &s);
    return s.n_tokens_rebuilt;
}

bitnet_status bnet_bench_crowd_open(bitnet_bench *b, const bitnet_bench_test *t, bitnet_error *err)
{
    bitnet_status st = open_crowd(b, (size_t)t->n_sessions, err);
    return st == BITNET_OK ? fill(b, (size_t)t->depth, err) : st;
}

bitnet_status bnet_bench_crowd_run(bitnet_bench *b, const bitnet_bench_test *t, bitnet_bench_run *r,
                                   bitnet_error *err)
{
    size_t n = (size_t)t->n_sessions;
    bitnet_status st = BITNET_OK;
    uint64_t before = rebuilt(b);
    double start = bnet_now_ms();
    for (int i = 0; st == BITNET_OK && i < t->n_tokens; i++) {
        if (b->options.cancel && b->options.cancel(b->options.cancel_user))
            return bnet_fail(err, BITNET_CANCELLED, "bench: cancelled");
        st = step(b, n, err);
    }
    r->n_rebuilt = (size_t)(rebuilt(b) - before);
    r->ms = r->total_ms = bnet_now_ms() - start;
    r->n_tokens = n * (size_t)t->n_tokens;
    return st;
}
