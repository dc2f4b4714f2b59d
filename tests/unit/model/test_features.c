/* What a network has is told to the backend as bits, and a backend that runs whole passes is never
 * asked for one with a bit it does not list: the model composes. */
#include "test.h"

#include "model/kv.h"
#include "model/weights.h"
#include "ops/open.h"
#include "tiny.h"

/* ---- a stand-in that claims to run passes ---- */

static int n_passes, n_repeats, n_reserved;

static bool count_pass(bnet_backend *be, const bnet_pass *p)
{
    (void)be, (void)p;
    n_passes++;
    return false; /* so the model composes: the results are right in any case */
}

static bool count_repeat(bnet_backend *be, const bnet_pass *p)
{
    (void)be, (void)p;
    n_repeats++;
    return false;
}

static bool composed(bnet_backend *be)
{
    (void)be;
    return true;
}

static uint64_t some_bytes(bnet_backend *be, const bnet_net *net, int n_tokens)
{
    (void)be, (void)net, (void)n_tokens;
    return 12345;
}

static bool reserve(bnet_backend *be, const bnet_net *net, int n_tokens)
{
    (void)be, (void)net, (void)n_tokens;
    n_reserved++;
    return true;
}

typedef struct run {
    char path[512];
    bnet_gguf *g;
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_model *m;
} run;

static void run_open(run *r, const tiny *t)
{
    bitnet_error err = {0};
    tiny_file(t, r->path, sizeof r->path);
    assert_int_equal(bnet_gguf_open(r->path, NULL, &r->g, &err), BITNET_OK);
    assert_int_equal(bnet_pool_open(1, &r->pool, &err), BITNET_OK);
    assert_int_equal(bnet_registry_open(&r->registry, &err), BITNET_OK);
    assert_int_equal(
        bnet_backend_open_cpu(r->pool, r->registry, "scalar", false, NULL, &r->be, &err),
        BITNET_OK);
    if (bnet_model_open(r->g, r->be, t->layout, NULL, NULL, &r->m, &err) != BITNET_OK)
        fail_msg("%s", err.message);
}

static void run_close(run *r)
{
    bnet_model_close(r->m);
    bnet_backend_close(r->be);
    bnet_registry_close(r->registry);
    bnet_pool_close(r->pool);
    bnet_gguf_close(r->g);
    unlink(r->path);
}

static void step(run *r, float *logits)
{
    bnet_workspace *ws;
    bnet_kv *kv;
    int32_t ids[3] = {1, 2, 3}, pos[3] = {0, 1, 2}, seq[3] = {0}, rows[1] = {2};
    assert_int_equal(bnet_kv_open(r->m, 64, BITNET_KV_F16, &kv, NULL), BITNET_OK);
    assert_int_equal(bnet_workspace_open(r->m, 3, &ws, NULL), BITNET_OK);
    bnet_batch b = {.n_tokens = 3,
                    .n_seqs = 1,
                    .n_rows = 1,
                    .ids = ids,
                    .pos = pos,
                    .seq = seq,
                    .kv = &kv,
                    .rows = rows};
    const float *out;
    assert_int_equal(bnet_forward(ws, &b, NULL), BITNET_OK);
    assert_int_equal(bnet_head(ws, 0, 1, &out, NULL), BITNET_OK);
    memcpy(logits, out, (size_t)r->m->hp.n_vocab * sizeof *out);
    bnet_workspace_close(ws);
    bnet_kv_close(kv);
}

/* The bit of every family to come is refused like one that nobody has named yet. */
static void test_unknown_feature_is_composed(void **state)
{
    (void)state;
    tiny t = tiny_default();
    run r;
    run_open(&r, &t);
    bnet_pass_ops claims = *r.be->pass;
    claims.pass = count_pass;
    claims.repeat = count_repeat;
    claims.composed = composed;
    claims.pass_bytes = some_bytes;
    claims.pass_reserve = reserve;
    claims.features = r.m->net.features;
    uint64_t plain = bnet_workspace_bytes(r.m, 3);
    r.be->pass = &claims;
    const bnet_features more[] = {0, BNET_FEATURE(QK_NORM), BNET_FEATURE(BIASES),
                                  (bnet_features)1 << BNET_N_FEATURES, (bnet_features)1 << 63};
    float logits[BNET_COUNT(more)][24];
    for (size_t i = 0; i < BNET_COUNT(more); i++) {
        bool known = more[i] == 0;
        n_passes = n_repeats = n_reserved = 0;
        r.m->net.features = claims.features | more[i];
        assert_true(bnet_op_unknown(r.be, &r.m->net) == more[i]);
        assert_int_equal(bnet_op_passes(r.be, &r.m->net), known);
        assert_int_equal(bnet_op_repeats(r.be, &r.m->net), known);
        step(&r, logits[i]);
        assert_int_equal(n_passes, known);
        assert_int_equal(n_repeats, known);
        assert_int_equal(n_reserved, known);
        assert_int_equal(bnet_workspace_bytes(r.m, 3), plain + (known ? 12345 : 0));
        assert_memory_equal(logits[i], logits[0], sizeof logits[0]);
    }
    run_close(&r);
}

/* ---- which bits a file gets ---- */

static bnet_features features_of(const tiny *t)
{
    run r;
    run_open(&r, t);
    bnet_features f = r.m->net.features;
    run_close(&r);
    return f;
}

static void test_features_of_files(void **state)
{
    (void)state;
    tiny t = tiny_default();
    bnet_features usual = BNET_FEATURE(RELU2) | BNET_FEATURE(SUB_NORMS) | BNET_FEATURE(TIED_HEAD) |
                          BNET_FEATURE(FLOAT_HEAD) | BNET_FEATURE(ROPE_HALVES);
    assert_true(features_of(&t) == usual);
    t.untied = true;
    assert_true(features_of(&t) == (usual & ~BNET_FEATURE(TIED_HEAD)));
    t = tiny_default();
    t.rope_freqs = true;
    assert_true(features_of(&t) == (usual | BNET_FEATURE(ROPE_FACTORS)));
    t = tiny_default();
    t.extra = "blk.0.attn_q.scale";
    assert_true(features_of(&t) == (usual | BNET_FEATURE(SCALES)));
    t = tiny_default();
    t.type = BNET_TQ2_0;
    t.mixed_scales = true;
    assert_true(features_of(&t) == (usual | BNET_FEATURE(BLOCK_SCALES)));
    t = tiny_default();
    t.arch = "llama";
    t.type = BNET_F32;
    t.sub_norms = false;
    assert_true(features_of(&t) ==
                (BNET_FEATURE(SILU) | BNET_FEATURE(FLOAT_MATRICES) | BNET_FEATURE(TIED_HEAD) |
                 BNET_FEATURE(FLOAT_HEAD) | BNET_FEATURE(ROPE_PAIRS)));
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < BNET_N_FEATURES; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(bnet_feature_name((bnet_feature_index)i),
                                    bnet_feature_name((bnet_feature_index)j));
    assert_string_equal(bnet_feature_name(BNET_FEATURE_INDEX_QK_NORM), "qk-norm");
    assert_string_equal(bnet_feature_name(BNET_N_FEATURES), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_feature_is_composed),
        cmocka_unit_test(test_features_of_files),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
