/* test_model.c - the forward pass against a naive double-precision network that shares no code with
 * it, on small models of every shape the families allow; the same network from every weight type;
 * every way a file can fail to be a model. */
#include "test.h"

#include "model/kv.h"
#include "model/model.h"
#include "ops/open.h"
#include "tiny.h"

typedef struct run {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_gguf *g;
    bnet_model *m;
    int n_warnings;
    char path[512];
} run;

static void count_warning(void *user, bitnet_log_level level, const char *module,
                          const char *message)
{
    (void)module;
    (void)message;
    if (level <= BITNET_LOG_WARN)
        ((run *)user)->n_warnings++;
}

static bitnet_status run_open(run *r, const tiny *t, const char *isa, int n_threads,
                              bitnet_error *err)
{
    memset(r, 0, sizeof *r);
    bnet_log log = {count_warning, r};
    tiny_file(t, r->path, sizeof r->path);
    assert_int_equal(bnet_pool_open(n_threads, &r->pool, err), BITNET_OK);
    assert_int_equal(bnet_registry_open(&r->registry, err), BITNET_OK);
    assert_int_equal(bnet_backend_open_cpu(r->pool, r->registry, isa, false, &log, &r->be, err),
                     BITNET_OK);
    bitnet_status st = bnet_gguf_open(r->path, &log, &r->g, err);
    if (st == BITNET_OK)
        st = bnet_model_open(r->g, r->be, t->layout, &log, NULL, &r->m, err);
    return st;
}

static void run_close(run *r)
{
    bnet_model_close(r->m);
    bnet_gguf_close(r->g);
    bnet_backend_close(r->be);
    bnet_registry_close(r->registry);
    bnet_pool_close(r->pool);
    unlink(r->path);
}

enum { N_TOKENS = 70 }; /* crosses a block of the cache */

static void token_ids(const tiny *t, int32_t *ids)
{
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (int32_t)(tiny_hash("ids", (uint64_t)i) % (uint64_t)t->n_vocab);
}

/* Logits of every position, fed in batches of n_batch. */
static float *logits_of(const bnet_model *m, const int32_t *ids, int n_batch, bitnet_kv_type type)
{
    int n_vocab = bnet_model_hparams(m)->n_vocab;
    float *out = malloc((size_t)N_TOKENS * (size_t)n_vocab * sizeof *out);
    int32_t pos[N_TOKENS], seq[N_TOKENS] = {0}, rows[N_TOKENS];
    bnet_kv *kv;
    bnet_workspace *ws;
    assert_int_equal(bnet_kv_open(m, N_TOKENS, type, &kv, NULL), BITNET_OK);
    assert_int_equal(bnet_workspace_open(m, n_batch, &ws, NULL), BITNET_OK);
    for (int i = 0; i < N_TOKENS; i++) {
        pos[i] = i;
        rows[i] = i % n_batch;
    }
    for (int done = 0; done < N_TOKENS; done += n_batch) {
        int n = BNET_MIN(n_batch, N_TOKENS - done);
        bnet_batch b = {n, ids + done, pos + done, seq, &kv, 1, rows, n, false, NULL, NULL};
        assert_int_equal(bnet_forward(ws, &b, NULL), BITNET_OK);
        for (int i = 0; i < n; i++) {
            const float *l;
            assert_int_equal(bnet_head(ws, i, 1, &l, NULL), BITNET_OK);
            memcpy(out + (size_t)(done + i) * (size_t)n_vocab, l, (size_t)n_vocab * sizeof *l);
        }
    }
    bnet_workspace_close(ws);
    bnet_kv_close(kv);
    return out;
}

/* ---- the naive network ---- */

static void naive_norm(const tiny *t, const char *name, const double *x, int n, double *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + (double)t->eps) * (double)tiny_value(name, (uint64_t)i);
}

/* The weights of a tensor as doubles, computed once per network. */
static struct {
    char name[64];
    double *w;
} known[64];

static void forget_weights(void)
{
    for (size_t i = 0; i < BNET_COUNT(known) && known[i].w; i++) {
        free(known[i].w);
        known[i].w = NULL;
    }
}

/* as the file has them: projections by the rule of their type, a head of its own as f16 */
static double naive_weight(const tiny *t, const char *name, uint64_t k)
{
    if (strcmp(name, "output.weight") == 0)
        return (double)bnet_f16_to_f32(bnet_f32_to_f16(tiny_value(name, k)));
    if (strcmp(name, "token_embd.weight") == 0)
        return (double)tiny_value(name, k);
    return (double)tiny_weight(t, name, k);
}

static const double *naive_weights(const tiny *t, const char *name, uint64_t n)
{
    size_t i = 0;
    while (known[i].w && strcmp(known[i].name, name) != 0)
        i++;
    if (known[i].w)
        return known[i].w;
    snprintf(known[i].name, sizeof known[i].name, "%s", name);
    known[i].w = malloc(n * sizeof *known[i].w);
    for (uint64_t k = 0; k < n; k++)
        known[i].w[k] = naive_weight(t, name, k);
    return known[i].w;
}

static void naive_linear(const tiny *t, const char *name, const double *x, int n_in, int n_out,
                         double *y)
{
    double *q = malloc((size_t)n_in * sizeof *q), amax = 1e-5;
    bool ternary = bnet_type_is_ternary(t->type) || strncmp(t->arch, "bitnet", 6) == 0;
    const double *w = naive_weights(t, name, (uint64_t)n_in * (uint64_t)n_out);
    for (int i = 0; i < n_in; i++)
        amax = fmax(amax, fabs(x[i]));
    for (int i = 0; i < n_in; i++)
        q[i] = ternary ? nearbyint(x[i] * 127 / amax) * amax / 127 : x[i];
    for (int r = 0; r < n_out; r++) {
        y[r] = 0;
        for (int i = 0; i < n_in; i++)
            y[r] += q[i] * w[(size_t)r * (size_t)n_in + (size_t)i];
    }
    free(q);
}

static void naive_rope(const tiny *t, double *x, int n_heads, int pos)
{
    bool neox = strncmp(t->arch, "bitnet", 6) == 0;
    for (int h = 0; h < n_heads; h++)
        for (int j = 0; j < t->n_rot / 2; j++) {
            double *head = x + h * t->head_dim,
                   theta = pos * pow((double)t->base, -2.0 * j / t->n_rot);
            if (t->rope_freqs)
                theta /= (double)tiny_plain(t, "rope_freqs.weight", (uint64_t)j);
            double *a = head + (neox ? j : 2 * j),
                   *b = head + (neox ? j + t->n_rot / 2 : 2 * j + 1), u = *a, v = *b;
            *a = u * cos(theta) - v * sin(theta);
            *b = u * sin(theta) + v * cos(theta);
        }
}

static void naive_attend(const tiny *t, const double *q, const double *ks, const double *vs,
                         int n_pos, double *o)
{
    int hd = t->head_dim, kv_width = t->n_kv * hd;
    for (int h = 0; h < t->n_heads; h++) {
        int off = h / (t->n_heads / t->n_kv) * hd;
        double total = 0;
        for (int i = 0; i < hd; i++)
            o[h * hd + i] = 0;
        for (int p = 0; p < n_pos; p++) {
            double s = 0;
            for (int i = 0; i < hd; i++)
                s += q[h * hd + i] * ks[p * kv_width + off + i];
            double e = exp(s / sqrt((double)hd));
            total += e;
            for (int i = 0; i < hd; i++)
                o[h * hd + i] += e * vs[p * kv_width + off + i];
        }
        for (int i = 0; i < hd; i++)
            o[h * hd + i] /= total;
    }
}

typedef struct naive_cache {
    double k[2][N_TOKENS * 512], v[2][N_TOKENS * 512];
} naive_cache;

static const char *blk(int layer, const char *suffix)
{
    static char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, suffix);
    return name;
}

static void naive_layer(const tiny *t, naive_cache *c, int layer, int pos, double *x)
{
    double h[2048], q[2048], a[2048], g[2048], u[2048], out[2048];
    int nq = t->n_heads * t->head_dim, nkv = t->n_kv * t->head_dim, e = t->n_embd;
    bool relu2 = t->relu2_key || (strcmp(t->arch, "bitnet") != 0 &&
                                  strncmp(t->arch, "bitnet", 6) == 0 && !t->silu_key);
    naive_norm(t, blk(layer, "attn_norm"), x, e, h);
    naive_linear(t, blk(layer, "attn_q"), h, e, nq, q);
    naive_linear(t, blk(layer, "attn_k"), h, e, nkv, c->k[layer] + pos * nkv);
    naive_linear(t, blk(layer, "attn_v"), h, e, nkv, c->v[layer] + pos * nkv);
    naive_rope(t, q, t->n_heads, pos);
    naive_rope(t, c->k[layer] + pos * nkv, t->n_kv, pos);
    naive_attend(t, q, c->k[layer], c->v[layer], pos + 1, a);
    if (t->sub_norms)
        naive_norm(t, blk(layer, "attn_sub_norm"), a, nq, a);
    naive_linear(t, blk(layer, "attn_output"), a, nq, e, out);
    for (int i = 0; i < e; i++)
        x[i] += out[i];
    naive_norm(t, blk(layer, "ffn_norm"), x, e, h);
    naive_linear(t, blk(layer, "ffn_gate"), h, e, t->n_ff, g);
    naive_linear(t, blk(layer, "ffn_up"), h, e, t->n_ff, u);
    for (int i = 0; i < t->n_ff; i++)
        g[i] = (relu2 ? (g[i] > 0 ? g[i] * g[i] : 0) : g[i] / (1 + exp(-g[i]))) * u[i];
    if (t->sub_norms)
        naive_norm(t, blk(layer, "ffn_sub_norm"), g, t->n_ff, g);
    naive_linear(t, blk(layer, "ffn_down"), g, t->n_ff, e, out);
    for (int i = 0; i < e; i++)
        x[i] += out[i];
}

static void naive_logits(const tiny *t, const double *x, double *logits)
{
    double h[2048];
    const char *head = t->untied ? "output.weight" : "token_embd.weight";
    naive_norm(t, "output_norm.weight", x, t->n_embd, h);
    const double *w = naive_weights(t, head, (uint64_t)t->n_vocab * (uint64_t)t->n_embd);
    for (int v = 0; v < t->n_vocab; v++) {
        logits[v] = 0;
        for (int i = 0; i < t->n_embd; i++)
            logits[v] += h[i] * w[v * t->n_embd + i];
    }
}

/* Worst cosine over the first n positions; int8 rounding ties may flip, so single logits may move a
 * little. */
static double worst_cosine(const tiny *t, const float *got, const int32_t *ids, int n)
{
    static naive_cache c;
    double worst = 1;
    forget_weights();
    for (int p = 0; p < n; p++) {
        double x[2048], want[64], ab = 0, aa = 0, bb = 0;
        for (int i = 0; i < t->n_embd; i++)
            x[i] = (double)tiny_value("token_embd.weight",
                                      (uint64_t)ids[p] * (uint64_t)t->n_embd + (uint64_t)i);
        for (int l = 0; l < t->n_layers; l++)
            naive_layer(t, &c, l, p, x);
        naive_logits(t, x, want);
        for (int v = 0; v < t->n_vocab; v++) {
            double g = (double)got[p * t->n_vocab + v];
            ab += g * want[v], aa += g * g, bb += want[v] * want[v];
        }
        worst = fmin(worst, ab / sqrt(aa * bb));
    }
    return worst;
}

/* All positions of the first network; where all is slow, the others cross one batch. */
static void check_network(const tiny *t, const char *what)
{
    bool all = !test_quick() || strcmp(what, "bitnet-b1.58") == 0;
    run r;
    bitnet_error err = {0};
    int32_t ids[N_TOKENS];
    token_ids(t, ids);
    if (run_open(&r, t, NULL, 2, &err) != BITNET_OK)
        fail_msg("%s: %s", what, err.message);
    float *got = logits_of(r.m, ids, 16, BITNET_KV_F32);
    double c = worst_cosine(t, got, ids, all ? N_TOKENS : 17);
    print_message("%-34s cosine %.7f\n", what, c);
    assert_true(c > 0.9995);
    free(got);
    run_close(&r);
}

static void test_networks(void **state)
{
    (void)state;
    tiny t = tiny_default();
    check_network(&t, "bitnet-b1.58");
    t.arch = "bitnet-25";
    t.untied = true; /* the first published file carries one */
    check_network(&t, "bitnet-25 with a head of its own");
    t = tiny_default();
    t.arch = "bitnet";
    check_network(&t, "bitnet, silu by default");
    t.relu2_key = true;
    check_network(&t, "bitnet, relu2 by key");
    t = tiny_default();
    t.silu_key = true;
    check_network(&t, "bitnet-b1.58, silu by key");
    t = tiny_default();
    t.n_heads = t.n_kv = 2, t.head_dim = 96, t.n_rot = 96, t.n_embd = 384, t.type = BNET_F16;
    t.arch = "bitnet";
    t.n_heads = t.n_kv = 4;
    check_network(&t, "head size 96, all heads");
    t = tiny_default();
    t.n_heads = 5, t.n_kv = 1, t.head_dim = 100, t.n_rot = 100, t.n_embd = 500, t.n_ff = 300,
    t.type = BNET_F32;
    check_network(&t, "odd widths from F32 (500, 300)");
    t = tiny_default();
    t.arch = "llama", t.sub_norms = false, t.untied = true, t.rope_freqs = true;
    check_network(&t, "llama ternary, head, rope_freqs");
    t.head_dim = 128, t.n_rot = 64, t.type = BNET_TQ2_0;
    check_network(&t, "llama, key_length, partial rope");
    t = tiny_default();
    t.arch = "llama", t.sub_norms = false, t.type = BNET_F16, t.untied = true;
    check_network(&t, "llama, float activations");
    t = tiny_default();
    t.type = BNET_TQ2_0, t.mixed_scales = true;
    check_network(&t, "TQ2_0 with varying scales");
    forget_weights();
}

/* The same network from every type and layout: the same bits. */
static void test_types_agree(void **state)
{
    (void)state;
    static const struct {
        bnet_type type;
        bitnet_i2s_layout layout;
    } forms[] = {{BNET_I2_S, BITNET_I2S_128},
                 {BNET_I2_S, BITNET_I2S_64},
                 {BNET_I2_S, BITNET_I2S_4ROW},
                 {BNET_TQ1_0, 0},
                 {BNET_TQ2_0, 0},
                 {BNET_F16, 0},
                 {BNET_F32, 0},
                 {BNET_BF16, 0}};
    float *first = NULL;
    int32_t ids[N_TOKENS];
    for (size_t i = 0; i < BNET_COUNT(forms); i++) {
        tiny t = tiny_default();
        run r;
        bitnet_error err = {0};
        t.type = forms[i].type;
        t.layout = forms[i].layout;
        token_ids(&t, ids);
        if (run_open(&r, &t, NULL, 1, &err) != BITNET_OK)
            fail_msg("form %zu: %s", i, err.message);
        float *got = logits_of(r.m, ids, 70, BITNET_KV_F16);
        if (first)
            assert_memory_equal(got, first, (size_t)N_TOKENS * (size_t)t.n_vocab * sizeof *got);
        if (first)
            free(got);
        else
            first = got;
        run_close(&r);
    }
    free(first);
}

static bool isa_here(const char *isa)
{
    bitnet_kernel_info row;
    for (int i = 0; isa && bnet_backend_kernel_at(i, &row); i++)
        if (strcmp(row.isa, isa) == 0)
            return row.available;
    return isa == NULL;
}

/* Batches, threads, instruction sets, cache types: not one bit moves (cache types apart, of
 * course). */
static void test_bits(void **state)
{
    (void)state;
    static const char *const isas[] = {NULL, "scalar", "neon", "dotprod", "avx2"};
    static const int batches[] = {70, 1, 7, 64}, threads[] = {1, 2, 3, 7};
    tiny t = tiny_default();
    int32_t ids[N_TOKENS];
    size_t n_bytes = (size_t)N_TOKENS * (size_t)t.n_vocab * sizeof(float);
    token_ids(&t, ids);
    for (int kv = 0; kv < 3; kv++) {
        float *first = NULL;
        for (size_t i = 0; i < BNET_COUNT(isas); i++)
            for (size_t k = 0; k < 4; k++) {
                run r;
                bitnet_error err;
                if (!isa_here(isas[i]) || (test_quick() && (i + k + (size_t)kv) % 3 != 0))
                    continue;
                assert_int_equal(run_open(&r, &t, isas[i], threads[k], &err), BITNET_OK);
                float *got = logits_of(r.m, ids, batches[k], (bitnet_kv_type)kv);
                if (first)
                    assert_memory_equal(got, first, n_bytes);
                if (first)
                    free(got);
                else
                    first = got;
                run_close(&r);
            }
        free(first);
    }
}

/* Two timelines in one pass equal each alone. */
static void test_two_timelines(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    bitnet_error err;
    enum { A = 40, B = 66 };
    int32_t ids[A + B], pos[A + B], seq[A + B], rows[2] = {A - 1, A + B - 1};
    assert_int_equal(run_open(&r, &t, NULL, 2, &err), BITNET_OK);
    for (int i = 0; i < A + B; i++) {
        ids[i] = (int32_t)(tiny_hash("two", (uint64_t)i) % 24);
        seq[i] = i >= A;
        pos[i] = i < A ? i : i - A;
    }
    bnet_kv *kv[2], *alone;
    bnet_workspace *ws;
    assert_int_equal(bnet_kv_open(r.m, 128, BITNET_KV_F16, &kv[0], &err), BITNET_OK);
    assert_int_equal(bnet_kv_open(r.m, 128, BITNET_KV_F16, &kv[1], &err), BITNET_OK);
    assert_int_equal(bnet_workspace_open(r.m, A + B, &ws, &err), BITNET_OK);
    bnet_batch both = {A + B, ids, pos, seq, kv, 2, rows, 2, false, NULL, NULL};
    const float *l;
    float together[2][24];
    assert_int_equal(bnet_forward(ws, &both, &err), BITNET_OK);
    assert_int_equal(bnet_head(ws, 0, 2, &l, &err), BITNET_OK);
    memcpy(together, l, sizeof together);
    for (int s = 0; s < 2; s++) {
        int32_t zero[B] = {0}, last = (s ? B : A) - 1;
        assert_int_equal(bnet_kv_open(r.m, 128, BITNET_KV_F16, &alone, &err), BITNET_OK);
        bnet_batch one = {
            s ? B : A, ids + (s ? A : 0), pos + (s ? A : 0), zero, &alone, 1, &last, 1, false, NULL,
            NULL};
        assert_int_equal(bnet_forward(ws, &one, &err), BITNET_OK);
        assert_int_equal(bnet_head(ws, 0, 1, &l, &err), BITNET_OK);
        assert_memory_equal(l, together[s], sizeof together[s]);
        bnet_kv_close(alone);
    }
    bnet_workspace_close(ws);
    bnet_kv_close(kv[0]);
    bnet_kv_close(kv[1]);
    run_close(&r);
}

/* Blocks come back to the free list on rewinding and are found again. */
static void test_paging(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    bnet_kv *kv;
    bitnet_error err;
    assert_int_equal(run_open(&r, &t, NULL, 1, &err), BITNET_OK);
    assert_int_equal(bnet_kv_open(r.m, 300, BITNET_KV_INT8, &kv, &err), BITNET_OK);
    assert_int_equal(kv->blocks->shape.n_blocks, 5);
    assert_int_equal(tiny_reserve(kv, 0, 65, NULL), BITNET_OK);
    assert_int_equal(kv->n_mapped, 2);
    assert_int_equal(tiny_reserve(kv, 0, 300, NULL), BITNET_OK);
    assert_int_equal(kv->n_mapped, 5);
    assert_int_equal(kv->blocks->n_free, 0);
    assert_int_equal(tiny_reserve(kv, 0, 1, NULL), BITNET_OK);
    assert_int_equal(kv->blocks->n_free, 4);
    bool seen[5] = {false};
    assert_int_equal(tiny_reserve(kv, 0, 257, NULL), BITNET_OK);
    for (int i = 0; i < 5; i++) {
        assert_false(seen[kv->table[i]]);
        seen[kv->table[i]] = true;
    }
    bnet_kv_close(kv);
    run_close(&r);
}

static void test_code_3(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    bitnet_error err;
    t.code_3 = true;
    assert_int_equal(run_open(&r, &t, NULL, 1, &err), BITNET_OK);
    assert_int_equal(r.n_warnings, 1); /* read as 0, and said */
    run_close(&r);
}

typedef struct bad {
    const char *what, *expect;
    tiny t;
} bad;

#define BAD(text, ...)                                                                             \
    {                                                                                              \
#__VA_ARGS__, text,                                                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const bad bad_models[] = {
    BAD("general.architecture is missing", .drop_key = "general.architecture"),
    BAD("'gpt2' is not supported", .arch = "gpt2"),
    BAD("block_count is missing", .drop_key = "block_count"),
    BAD("block_count", .int_key = "block_count", .int_value = 0),
    BAD("block_count", .int_key = "block_count", .int_value = 99999),
    BAD("blk.2.attn_norm.weight is missing", .int_key = "block_count", .int_value = 3),
    BAD("embedding_length is missing", .drop_key = "embedding_length"),
    BAD("does not divide embedding_length", .int_key = "embedding_length", .int_value = 255),
    BAD("differs from key_length", .int_key = "embedding_length", .int_value = 512),
    BAD("blk.0.attn_norm.weight: shape", .reshape = "blk.0.attn_norm.weight"),
    BAD("feed_forward_length is missing", .drop_key = "feed_forward_length"),
    BAD("head_count is missing", .drop_key = "attention.head_count"),
    BAD("head_count", .int_key = "attention.head_count", .int_value = 0),
    BAD("does not divide head_count", .int_key = "attention.head_count_kv", .int_value = 3),
    BAD("head_count_kv", .int_key = "attention.head_count_kv", .int_value = 0),
    BAD("larger than the head size", .int_key = "rope.dimension_count", .int_value = 66),
    BAD("is odd", .int_key = "rope.dimension_count", .int_value = 63),
    BAD("differs from key_length", .int_key = "attention.value_length", .int_value = 32),
    BAD("layer_norm_rms_epsilon is missing", .drop_key = "attention.layer_norm_rms_epsilon"),
    BAD("layer_norm_rms_epsilon", .eps = NAN),
    BAD("layer_norm_rms_epsilon", .eps = -1.0f),
    BAD("rope.freq_base", .base = INFINITY),
    BAD("rope.freq_base", .base = -5.0f),
    BAD("'gelu' is not supported", .string_key = "hidden_activation", .string_value = "gelu"),
    BAD("token_embd.weight is missing", .drop = "token_embd.weight"),
    BAD("output_norm.weight is missing", .drop = "output_norm.weight"),
    BAD("blk.1.ffn_down.weight is missing", .drop = "blk.1.ffn_down.weight"),
    BAD("blk.0.attn_sub_norm.weight is missing", .drop = "blk.0.attn_sub_norm.weight"),
    BAD("blk.0.ffn_sub_norm.weight is missing", .drop = "blk.0.ffn_sub_norm.weight"),
    BAD("blk.1.attn_sub_norm.weight is missing", .drop = "blk.1.attn_sub_norm.weight"),
    BAD("blk.0.attn_k.weight: shape", .reshape = "blk.0.attn_k.weight"),
    BAD("blk.1.attn_norm.weight: shape", .reshape = "blk.1.attn_norm.weight"),
    BAD("biases are not supported", .extra = "blk.0.attn_q.bias"),
    BAD("blk.0.attn_q_norm.weight: norms of queries and keys are not supported",
        .extra = "blk.0.attn_q_norm.weight"),
    BAD("blk.1.attn_k_norm.weight: norms of queries and keys are not supported",
        .extra = "blk.1.attn_k_norm.weight"),
    BAD("is not a finite number", .nan_in = "blk.1.ffn_up.weight"),
    BAD("are not ternary", .bad_type = "blk.0.attn_v.weight"),
    BAD("rope_freqs.weight", .rope_freqs = true, .reshape = "rope_freqs.weight"),
    BAD("rope_freqs.weight: value 0", .rope_freqs = true, .nan_in = "rope_freqs.weight"),
};

static void test_bad_models(void **state)
{
    (void)state;
    tiny d = tiny_default();
    for (size_t i = 0; i < BNET_COUNT(bad_models); i++) {
        tiny t = bad_models[i].t;
        run r;
        bitnet_error err = {0};
        tiny base = d;
        base.arch = t.arch ? t.arch : d.arch;
        base.eps = t.eps != 0 ? t.eps : d.eps;
        base.base = t.base != 0 ? t.base : d.base;
        base.drop = t.drop, base.reshape = t.reshape, base.extra = t.extra,
        base.bad_type = t.bad_type;
        base.nan_in = t.nan_in, base.drop_key = t.drop_key, base.int_key = t.int_key,
        base.int_value = t.int_value;
        base.string_key = t.string_key, base.string_value = t.string_value,
        base.rope_freqs = t.rope_freqs;
        bitnet_status st = run_open(&r, &base, NULL, 1, &err);
        if (st != BITNET_MODEL || !strstr(err.message, bad_models[i].expect) ||
            !strstr(err.message, "tiny-"))
            fail_msg("%s: status %d, message '%s', expected '%s'", bad_models[i].what, st,
                     err.message, bad_models[i].expect);
        run_close(&r);
    }
}

/* A separate ".scale" tensor is taken and multiplies the weight's own. */
static void test_separate_scale(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    bitnet_error err = {0};
    int32_t ids[N_TOKENS];
    token_ids(&t, ids);
    t.arch = "bitnet";
    t.extra = "blk.0.attn_output.scale"; /* 0.5 */
    if (run_open(&r, &t, NULL, 1, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(r.n_warnings, 0); /* the tensor found its place */
    float *got = logits_of(r.m, ids, 70, BITNET_KV_F32);
    double with_half =
        worst_cosine(&t, got, ids, N_TOKENS); /* the naive network has the halved weight too */
    t.extra = NULL;
    double without = worst_cosine(&t, got, ids, N_TOKENS);
    print_message("with the scale %.7f, without %.7f\n", with_half, without);
    assert_true(with_half > 0.9995 && without < with_half);
    free(got);
    forget_weights();
    run_close(&r);
}

/* A negative one turns every sign of the matrix: said, but computed with. */
static void test_negative_separate_scale(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    bitnet_error err = {0};
    t.arch = "bitnet";
    t.extra = "blk.0.attn_output.scale";
    t.scale = -0.5f;
    if (run_open(&r, &t, NULL, 1, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(r.n_warnings, 1);
    run_close(&r);
}

/* Only ternary weights may have one; a scale of 1 changes nothing and harms none. */
static void test_separate_scale_of_floats(void **state)
{
    (void)state;
    static const bnet_type types[] = {BNET_F32, BNET_F16, BNET_I2_S};
    for (size_t i = 0; i < BNET_COUNT(types); i++)
        for (int one = 0; one < 2; one++) {
            tiny t = tiny_default();
            run r;
            bitnet_error err = {0};
            t.arch = "llama";
            t.type = types[i];
            t.extra = "blk.1.ffn_up.scale";
            t.scale = one ? 1.0f : 1.5f;
            bitnet_status st = run_open(&r, &t, NULL, 1, &err);
            bool wrong = types[i] != BNET_I2_S && !one;
            if (st != (wrong ? BITNET_MODEL : BITNET_OK) ||
                (wrong && !strstr(err.message, "blk.1.ffn_up.scale: only ternary weights")))
                fail_msg("type %d, scale %g: status %d, %s", (int)types[i], (double)t.scale,
                         (int)st, err.message);
            run_close(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks),
        cmocka_unit_test(test_types_agree),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_two_timelines),
        cmocka_unit_test(test_paging),
        cmocka_unit_test(test_code_3),
        cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_separate_scale),
        cmocka_unit_test(test_negative_separate_scale),
        cmocka_unit_test(test_separate_scale_of_floats),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
