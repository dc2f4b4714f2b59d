/* Masks and biases: any choice under them is the one an unconstrained sampler makes from logits
 * they were written into; from all logits, from those a sampler says it needs, and in the engine.
 */
#include "constrained.h"

#include "sampler/sampler.h"

enum { V_MAX = 1200, H = 20 };

typedef struct fixture {
    int n_vocab;
    float logits[V_MAX], applied[V_MAX];
    int32_t history[H];
    constrained r;
    bitnet_sampler *constrained, *plain;
} fixture;

static void roll(fixture *f, uint64_t *rng)
{
    f->n_vocab = 1 + (int)(test_rand(rng) % V_MAX);
    bool ties = test_rand(rng) % 2;
    for (int i = 0; i < f->n_vocab; i++)
        f->logits[i] = (float)(test_rand(rng) % (ties ? 40 : 4000)) / (ties ? 4.0f : 400.0f) - 3;
    for (int i = 0; i < H; i++)
        f->history[i] = (int32_t)(test_rand(rng) % (unsigned)f->n_vocab);
    roll_constraints(&f->r, f->n_vocab, rng);
    bitnet_sampler_options o = rolled_options(rng);
    OK(bitnet_sampler_open(&o, f->n_vocab, &f->constrained, &err));
    OK(bitnet_sampler_open(&o, f->n_vocab, &f->plain, &err));
    OK(bitnet_sampler_constrain(f->constrained, &f->r.c, &err));
    apply_constraints(&f->r.c, f->logits, f->n_vocab, f->applied);
}

static void drop(fixture *f)
{
    bitnet_sampler_close(f->constrained);
    bitnet_sampler_close(f->plain);
}

/* What bnet_sampler_want describes, by plain comparison. */
static size_t list(const fixture *f, const bnet_top_want *want, int32_t *ids, float *listed)
{
    size_t n = 0;
    for (int32_t i = 0; i < f->n_vocab; i++) {
        size_t above = 0;
        bool named = false;
        for (int k = 0; k < f->n_vocab; k++)
            above += f->logits[k] > f->logits[i] + want->range;
        for (size_t k = 0; k < want->n_ids; k++)
            named = named || want->ids[k] == i;
        if ((want->k && above < want->k + want->n_ids) || named) {
            ids[n] = i;
            listed[n++] = f->logits[i];
        }
    }
    return n;
}

static void same_choice_as_from_changed_logits(void **state)
{
    (void)state;
    uint64_t rng = 11;
    static fixture f;
    size_t n_listed = 0, n_none = 0;
    for (int round = 0; round < 1500; round++) {
        roll(&f, &rng);
        if (!any_finite(f.applied, f.n_vocab)) {
            int32_t id;
            FAILS(bitnet_sampler_pick(f.constrained, f.logits, f.history, H, &id, &err),
                  BITNET_ERROR, "no token is left");
            n_none++;
        } else {
            for (int i = 0; i < 3; i++) {
                int32_t want = -1, all = -1, among = -1, ids[V_MAX];
                float listed[V_MAX];
                bitnet_sampler_state before;
                bitnet_sampler_save(f.constrained, &before);
                OK(bitnet_sampler_pick(f.plain, f.applied, f.history, H, &want, &err));
                OK(bitnet_sampler_pick(f.constrained, f.logits, f.history, H, &all, &err));
                assert_int_equal(all, want);
                bnet_top_want need;
                if (!bnet_sampler_want(f.constrained, f.history, H, &need))
                    continue;
                bnet_top top = {ids, listed, list(&f, &need, ids, listed)};
                bitnet_sampler_restore(f.constrained, &before);
                OK(bnet_sampler_pick_among(f.constrained, &top, f.history, H, &among, &err));
                assert_int_equal(among, want);
                n_listed++;
            }
        }
        drop(&f);
    }
    print_message("%zu choices from lists, %zu rounds without a token\n", n_listed, n_none);
    assert_true(n_listed > 500 && n_none > 0);
}

/* A mask of ones, an empty set of constraints and NULL are no constraints: the same bits, and the
 * same few logits are asked for. */
static void nothing_is_constrained(void **state)
{
    (void)state;
    uint64_t rng = 12;
    static fixture f;
    for (int round = 0; round < 300; round++) {
        roll(&f, &rng);
        memset(f.r.allowed, 0xff, sizeof f.r.allowed);
        bitnet_constraints c;
        bitnet_constraints_init(&c);
        c.allowed = round % 3 == 0 ? f.r.allowed : NULL;
        OK(bitnet_sampler_constrain(f.constrained, round % 3 == 2 ? NULL : &c, &err));
        bnet_top_want a, b;
        assert_int_equal(bnet_sampler_want(f.constrained, f.history, H, &a),
                         bnet_sampler_want(f.plain, f.history, H, &b));
        assert_int_equal(a.k, b.k);
        assert_int_equal(a.n_ids, b.n_ids);
        for (int i = 0; i < 4; i++) {
            int32_t x = -1, y = -1;
            OK(bitnet_sampler_pick(f.constrained, f.logits, f.history, H, &x, &err));
            OK(bitnet_sampler_pick(f.plain, f.logits, f.history, H, &y, &err));
            assert_int_equal(x, y);
        }
        drop(&f);
    }
}

/* -100 bans and +100 forces, as programs written for other servers expect. */
static void strong_biases(void **state)
{
    (void)state;
    const float logits[4] = {9, 8, -7, 1};
    bitnet_constraints c;
    bitnet_constraints_init(&c);
    bitnet_sampler *s = NULL;
    OK(bitnet_sampler_open(NULL, 4, &s, &err));
    for (int i = 0; i < 50; i++) {
        int32_t id;
        c.biases = (const bitnet_bias[]){{0, -100}};
        c.n_biases = 1;
        OK(bitnet_sampler_constrain(s, &c, &err));
        OK(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err));
        assert_int_not_equal(id, 0);
        c.biases = (const bitnet_bias[]){{2, 100}};
        OK(bitnet_sampler_constrain(s, &c, &err));
        OK(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err));
        assert_int_equal(id, 2);
    }
    bitnet_sampler_close(s);
}

/* What is refused is named, and leaves the constraints as they were. */
static void wrong_constraints(void **state)
{
    (void)state;
    const float logits[40] = {[5] = 1, [7] = 9};
    uint32_t words[2] = {1u << 5, 0}, none[2] = {0, ~0u << 8};
    bitnet_constraints c;
    bitnet_constraints_init(&c);
    bitnet_sampler *s = NULL;
    OK(bitnet_sampler_open(NULL, 40, &s, &err));
    c.allowed = words;
    OK(bitnet_sampler_constrain(s, &c, &err));
    words[0] = 0; /* it was copied */
    c.allowed = none;
    FAILS(bitnet_sampler_constrain(s, &c, &err), BITNET_ARGUMENT, "allowed has no bit set");
    c.allowed = NULL;
    c.n_biases = 1;
    FAILS(bitnet_sampler_constrain(s, &c, &err), BITNET_ARGUMENT, "biases must not be NULL");
    const bitnet_bias wrong[][2] = {{{40, 1}, {0, 0}},
                                    {{-1, 1}, {0, 0}},
                                    {{3, NAN}, {0, 0}},
                                    {{3, INFINITY}, {0, 0}},
                                    {{3, 1}, {3, 2}}};
    static const char *const texts[] = {"biases[0].id is 40, must be 0..39", "is -1",
                                        "biases[0].bias is", "finite or -infinity", "id 3 twice"};
    c.n_biases = 2;
    for (size_t i = 0; i < BNET_COUNT(wrong); i++) {
        c.biases = wrong[i];
        FAILS(bitnet_sampler_constrain(s, &c, &err), BITNET_ARGUMENT, texts[i]);
    }
    c.n_biases = 41;
    FAILS(bitnet_sampler_constrain(s, &c, &err), BITNET_ARGUMENT, "n_biases is 41");
    int32_t id;
    OK(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err));
    assert_int_equal(id, 5);
    c.struct_size = 3;
    FAILS(bitnet_sampler_constrain(s, &c, &err), BITNET_ARGUMENT, "struct_size");
    bnet_sampler_forbid(s, 5, true); /* min_tokens over a mask that leaves only the end */
    FAILS(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err), BITNET_ERROR, "no token is left");
    OK(bitnet_sampler_constrain(s, NULL, &err));
    OK(bitnet_sampler_pick(s, logits, NULL, 0, &id, &err));
    assert_int_equal(id, 7);
    bitnet_sampler_close(s);
}

static void generations(void **state)
{
    (void)state;
    static const char *const models[] = {TEST_SOURCE_DIR "/models/nano.gguf",
                                         TEST_SOURCE_DIR "/models/story.gguf"};
    for (size_t m = 0; m < BNET_COUNT(models); m++) {
        bitnet_runtime *runtime = NULL;
        bitnet_engine *engine = NULL;
        bitnet_runtime_options o;
        bitnet_runtime_options_init(&o);
        o.n_threads = 2;
        o.device = "cpu";
        OK(bitnet_runtime_open(&o, &runtime, &err));
        OK(bitnet_engine_open(runtime, models[m], NULL, &engine, &err));
        for (int round = 0; round < 12; round++)
            check_constrained_generation(engine, round);
        bitnet_engine_close(engine);
        bitnet_runtime_close(runtime);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_choice_as_from_changed_logits),
        cmocka_unit_test(nothing_is_constrained),
        cmocka_unit_test(strong_biases),
        cmocka_unit_test(wrong_constraints),
        cmocka_unit_test(generations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
