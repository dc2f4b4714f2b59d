/* bench.c - timing what users wait for: a prompt through bitnet_session_append, tokens through
 * bitnet_generate. Hides: what is computed before the clock starts, and which text is used. */
#include <stdlib.h>

#include "bench/bench.h"

enum { TOKENS_MAX = 1 << 20, N_BATCH = 512, CROWD_MAX = 1024, CROWD_TOKENS = 32 };

void bitnet_bench_options_init(bitnet_bench_options *o)
{
    if (!o)
        return;
    *o = (bitnet_bench_options){.struct_size = sizeof *o, .n_batch = N_BATCH};
}

bool bitnet_bench_parse(const char *text, bitnet_bench_test *out)
{
    if (!text || !out || strlen(text) < 3 || text[2] < '1' || text[2] > '9')
        return false;
    bool prompt = strncmp(text, "pp", 2) == 0, crowd = strncmp(text, "bt", 2) == 0;
    char *end;
    long n = strtol(text + 2, &end, 10);
    bool known = prompt || crowd || strncmp(text, "tg", 2) == 0;
    if (!known || *end || n < 1 || n > (crowd ? CROWD_MAX : TOKENS_MAX))
        return false;
    *out = (bitnet_bench_test){.prompt = prompt,
                               .n_tokens = crowd ? CROWD_TOKENS : (int)n,
                               .n_sessions = crowd ? (int)n : 0};
    return true;
}

bitnet_status bnet_bench_session(bitnet_bench *b, const bitnet_session_options *o, uint64_t *memory,
                                 bitnet_session **out, bitnet_error *err)
{
    bitnet_session_cost c = {0, 0, 0};
    bitnet_status st = bitnet_session_memory(b->engine, o, &c, err);
    *memory += c.session_bytes + c.cache_bytes;
    b->workspace = BNET_MAX(b->workspace, c.workspace_bytes);
    return st == BITNET_OK ? bitnet_session_open(b->engine, o, out, err) : st;
}

uint64_t bitnet_bench_memory(const bitnet_bench *b)
{
    return b ? b->memory + b->crowd_memory + b->workspace : 0;
}

static bitnet_status open_parts(bitnet_bench *b, const bitnet_bench_options *o, bitnet_error *err)
{
    bitnet_session_options so;
    bitnet_sampler_options po;
    bitnet_session_options_init(&so);
    so.n_ctx = o->n_ctx;
    so.n_batch = o->n_batch;
    so.kv_type = o->kv_type;
    bitnet_sampler_options_init(&po);
    po.temperature = 0;
    bitnet_status st = bnet_bench_session(b, &so, &b->memory, &b->session, err);
    if (st == BITNET_OK)
        st = bitnet_sampler_open(&po, b->engine->info.n_vocab, &b->sampler, err);
    if (st != BITNET_OK)
        return st;
    b->n_ctx = b->session->n_ctx;
    b->ids = bnet_calloc((size_t)b->n_ctx, sizeof *b->ids);
    if (!b->ids)
        return bnet_no_memory(err, "bench");
    for (int i = 0; i < b->n_ctx; i++)
        b->ids[i] = (int32_t)(((int64_t)i * 7919 + 13) % b->engine->info.n_vocab);
    bitnet_session_on_cancel(b->session, o->cancel, o->cancel_user);
    bitnet_bench_forget(b);
    return BITNET_OK;
}

bitnet_status bitnet_bench_open(bitnet_engine *engine, const bitnet_bench_options *options,
                                bitnet_bench **out, bitnet_error *err)
{
    bitnet_bench_options o;
    if (!engine || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "bench: engine and out must not be NULL");
    bitnet_bench_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "bench options", err);
    if (st != BITNET_OK)
        return st;
    bitnet_bench *b = bnet_calloc(1, sizeof *b);
    if (!b)
        return bnet_no_memory(err, "bench");
    b->engine = engine;
    b->options = o;
    st = open_parts(b, &o, err);
    if (st != BITNET_OK) {
        bitnet_bench_close(b);
        return st;
    }
    *out = b;
    return BITNET_OK;
}

void bitnet_bench_close(bitnet_bench *b)
{
    if (!b)
        return;
    bnet_bench_crowd_close(b);
    bitnet_sampler_close(b->sampler);
    bitnet_session_close(b->session);
    bnet_free(b->ids);
    bnet_free(b);
}

/* ---- one run ---- */

bitnet_status bnet_bench_check(const bitnet_bench *b, const bitnet_bench_test *t, bitnet_error *err)
{
    int64_t need = (int64_t)t->depth + t->n_tokens + 1;
    if (t->n_tokens < 1 || t->depth < 0)
        return bnet_fail(err, BITNET_ARGUMENT, "bench: %d tokens at depth %d cannot be measured",
                         t->n_tokens, t->depth);
    if (need > b->n_ctx)
        return bnet_fail(err, BITNET_CONTEXT,
                         "bench: %d tokens at depth %d need a context of %lld, there are %d",
                         t->n_tokens, t->depth, (long long)need, b->n_ctx);
    return BITNET_OK;
}

bitnet_status bnet_bench_fill(bitnet_bench *b, size_t n, bitnet_error *err)
{
    const bitnet_session *s = b->session;
    size_t same = 0;
    while (same < s->n_pos && same < n && s->tokens[same] == b->ids[same])
        same++;
    bitnet_status st = bitnet_session_rewind(b->session, same, err);
    if (st == BITNET_OK && n > same)
        st = bitnet_session_append(b->session, b->ids + same, n - same, NULL, NULL, err);
    return st;
}

static bitnet_status run_prompt(bitnet_bench *b, const bitnet_bench_test *t, bitnet_bench_run *r,
                                bitnet_error *err)
{
    bitnet_status st = bnet_bench_fill(b, (size_t)t->depth, err);
    if (st != BITNET_OK)
        return st;
    double start = bnet_now_ms();
    st = bitnet_session_append(b->session, b->ids + t->depth, (size_t)t->n_tokens, NULL, NULL, err);
    if (st == BITNET_OK && !bitnet_session_logits(b->session))
        st = bnet_no_memory(err, "bench: logits");
    r->ms = r->total_ms = bnet_now_ms() - start;
    r->n_tokens = (size_t)t->n_tokens;
    return st;
}

/* One token more than is timed: the clock of decoding starts at the first one chosen. */
static bitnet_status run_tokens(bitnet_bench *b, const bitnet_bench_test *t, bitnet_bench_run *r,
                                bitnet_error *err)
{
    bitnet_generate_options o;
    bitnet_generate_result g;
    size_t n_prompt = t->depth > 0 ? (size_t)t->depth : 1;
    bitnet_generate_options_init(&o);
    o.max_tokens = (size_t)t->n_tokens + 1;
    o.ignore_eos = true;
    bitnet_status st = bnet_bench_fill(b, n_prompt, err);
    if (st == BITNET_OK)
        st = bitnet_generate(b->session, b->sampler, b->ids, n_prompt, &o, &g, err);
    if (st != BITNET_OK)
        return st;
    if (g.finish == BITNET_FINISH_CANCELLED)
        return bnet_fail(err, BITNET_CANCELLED, "bench: cancelled");
    r->ms = g.decode_ms;
    r->n_tokens = g.n_generated - 1;
    r->first_token_ms = g.first_token_ms;
    r->total_ms = g.first_token_ms + g.decode_ms;
    return BITNET_OK;
}

static bitnet_status run_crowd(bitnet_bench *b, const bitnet_bench_test *t, bitnet_bench_run *r,
                               bitnet_error *err)
{
    bitnet_status st = bnet_bench_crowd_open(b, t, err);
    return st == BITNET_OK ? bnet_bench_crowd_run(b, t, r, err) : st;
}

bitnet_status bitnet_bench_once(bitnet_bench *b, const bitnet_bench_test *t, bitnet_bench_run *run,
                                bitnet_error *err)
{
    bitnet_bench_run r = {0};
    if (!b || !t || !run)
        return bnet_fail(err, BITNET_ARGUMENT, "bench: bench, test and run must not be NULL");
    bitnet_status st = bnet_bench_check(b, t, err);
    if (st == BITNET_OK)
        st = t->n_sessions > 0 ? run_crowd(b, t, &r, err)
             : t->prompt       ? run_prompt(b, t, &r, err)
                               : run_tokens(b, t, &r, err);
    if (st != BITNET_OK)
        return st;
    r.tok_s = r.ms > 0 ? (double)r.n_tokens * 1e3 / r.ms : 0;
    *run = r;
    return BITNET_OK;
}

/* ---- which kernels ---- */

void bitnet_bench_forget(bitnet_bench *b)
{
    if (b)
        b->n_before = bitnet_engine_kernels(b->engine, b->before, BNET_KERNELS_MAX);
}

typedef struct since {
    const bitnet_bench *bench;
    bnet_uses list;
} since;

static void list_since(void *user, const bitnet_kernel_use *u)
{
    since *s = user;
    bitnet_kernel_use now = *u;
    for (size_t k = 0; k < s->bench->n_before; k++)
        if (strcmp(s->bench->before[k].id, u->id) == 0)
            now.n_calls -= s->bench->before[k].n_calls;
    if (now.n_calls)
        bnet_use_list(&s->list, &now);
}

size_t bitnet_bench_kernels(const bitnet_bench *b, bitnet_kernel_use *out, size_t cap)
{
    since s = {b, {out, cap, 0}};
    if (b)
        bnet_engine_uses(b->engine, list_since, &s);
    return s.list.n;
}
