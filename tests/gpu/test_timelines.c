/* test_timelines.c - an engine with batch_invariant on a GPU: the logits of a timeline are the same
 * bytes alone and in steps of 2, 8, 16 and 64 timelines, wherever it stands among them, at several
 * positions, with every type of cache, for heads of 64 and of 128. On the emulated device or on a
 * real one (device.h), there with models of true size. */
#include "device.h"

#include "bitnet_tools.h"
#include "unit/engine/step.h"

enum { MOST = 64 };

/* Steps after a prompt of that many tokens. */
typedef struct stretch {
    int prompt, steps;
} stretch;

typedef struct crowd {
    bitnet_session *of[MOST];
    int n, n_vocab;
} crowd;

static bool real(void)
{
    return emulated == NULL;
}

/* The first and the last timeline are the same; every other one has its own tokens and length. */
static bool watched(const crowd *c, int i)
{
    return i == 0 || i == c->n - 1;
}

static int32_t token(const crowd *c, int timeline, int at)
{
    int who = watched(c, timeline) ? 0 : timeline;
    return (int32_t)((3 + 7 * at + 31 * who + at * at % 5) % c->n_vocab);
}

static void open_one(bitnet_engine *engine, crowd *c, int i, bitnet_kv_type kv, const stretch *s)
{
    int32_t prompt[2048];
    int n = watched(c, i) ? s->prompt : 1 + i % 9;
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = s->prompt + s->steps + 9;
    o.n_batch = 128;
    o.kv_type = kv;
    for (int k = 0; k < n; k++)
        prompt[k] = token(c, i, k);
    OK(bitnet_session_open(engine, &o, &c->of[i], &err));
    OK(bitnet_session_append(c->of[i], prompt, (size_t)n, NULL, NULL, &err));
}

static void step(crowd *c, int k)
{
    int32_t ids[MOST];
    for (int i = 0; i < c->n; i++)
        ids[i] = token(c, i, 100 + k);
    OK(step_each(c->of[0]->engine, c->of, NULL, ids, (size_t)c->n, NULL, &err));
}

/* How many of two rows of floats differ in a bit. */
static int differing(const float *a, const float *b, int n)
{
    int d = 0;
    for (int i = 0; i < n; i++)
        d += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return d;
}

/* logits [steps][n_vocab]: n == 1 writes them, others are compared with them. */
static void run_crowd(bitnet_engine *engine, int n, bitnet_kv_type kv, const stretch *s,
                      float *logits)
{
    crowd c = {.n = n, .n_vocab = bitnet_engine_model(engine)->n_vocab};
    for (int i = 0; i < n; i++)
        open_one(engine, &c, i, kv, s);
    for (int k = 0; k < s->steps; k++) {
        float *want = logits + (size_t)k * (size_t)c.n_vocab;
        step(&c, k);
        if (n == 1)
            memcpy(want, bitnet_session_logits(c.of[0]), (size_t)c.n_vocab * sizeof *want);
        for (int i = 0; n > 1 && i < n; i += n - 1) {
            int d = differing(bitnet_session_logits(c.of[i]), want, c.n_vocab);
            if (d)
                fail_msg("%s, cache %d: timeline %d of %d, position %d: %d of %d logits differ",
                         bitnet_engine_model(engine)->name, (int)kv, i, n, s->prompt + k, d,
                         c.n_vocab);
        }
    }
    for (int i = 0; i < n; i++)
        bitnet_session_close(c.of[i]);
}

static void compare(bitnet_engine *engine, const stretch *s)
{
    static const int sizes[] = {1, 2, 8, 16, 64};
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    size_t n = (size_t)s->steps * (size_t)bitnet_engine_model(engine)->n_vocab;
    float *logits = calloc(n, sizeof *logits);
    assert_non_null(logits);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < (real() || t == 0 ? 5 : 3); i++)
            run_crowd(engine, sizes[i], types[t], s, logits);
    free(logits);
}

typedef struct world {
    bitnet_runtime *runtime;
    bitnet_synthetic *synthetic;
    bitnet_engine *engine;
} world;

static world open_world(const char *shape, const char *head, bool invariant)
{
    world w = {NULL, NULL, NULL};
    bitnet_runtime_options r;
    bitnet_engine_options o;
    bitnet_runtime_options_init(&r);
    r.device = "cuda";
    bitnet_engine_options_init(&o);
    o.batch_invariant = invariant;
    OK(bitnet_runtime_open(&r, &w.runtime, &err));
    OK(bitnet_synthetic_open(shape, head, &w.synthetic, &err));
    OK(bitnet_synthetic_engine(w.synthetic, w.runtime, &o, &w.engine, &err));
    return w;
}

static void close_world(world *w)
{
    bitnet_engine_close(w->engine);
    bitnet_synthetic_close(w->synthetic);
    bitnet_runtime_close(w->runtime);
}

/* A synthetic model of that shape through all its stretches. */
static void check(const char *shape, const char *head, const stretch *s, int n)
{
    world w = open_world(shape, head, true);
    for (int i = 0; i < n; i++)
        compare(w.engine, &s[i]);
    close_world(&w);
}

/* ---- kernels ---- */

/* The names of the kernels that steps of n timelines launched, one behind the other, without those
 * of ternary products: integers have no order. */
static void names_of(int n, bool invariant, char *out, size_t cap)
{
    static const stretch s = {2, 3};
    world w = open_world("mini-128", "f16", invariant);
    bitnet_kernel_use use[64];
    float *logits = calloc((size_t)s.steps * 512, sizeof *logits);
    assert_non_null(logits);
    run_crowd(w.engine, 1, BITNET_KV_F16, &s, logits);
    if (n > 1)
        run_crowd(w.engine, n, BITNET_KV_F16, &s, logits);
    size_t used = bitnet_engine_kernels(w.engine, use, 64);
    out[0] = 0;
    for (size_t i = 0; i < used && i < 64; i++)
        if (use[i].n_calls && !strstr(use[i].id, "i2s_gpu_gem"))
            snprintf(out + strlen(out), cap - strlen(out), "%s ", use[i].id);
    free(logits);
    close_world(&w);
}

static void test_steps_launch_the_same_kernels(void **state)
{
    char one[2048], all[2048];
    (void)state;
    names_of(1, false, all, sizeof all);
    assert_non_null(strstr(all, "i2s_gpu_layers"));
    names_of(1, true, one, sizeof one);
    names_of(16, true, all, sizeof all);
    assert_null(strstr(one, "i2s_gpu_layers"));
    assert_string_equal(one, all);
}

static const stretch few[] = {{5, 2}};
static const stretch many[] = {{9, 12}, {440, 12}, {1030, 4}};

static void check_all(const char *shape, const char *head)
{
    if (real())
        check(shape, head, many, 3);
    else
        check(shape, head, few, 1);
}

static void test_heads_of_64(void **state)
{
    (void)state;
    check_all(real() ? "story" : "nano", "q6_k");
}

static void test_heads_of_128(void **state)
{
    (void)state;
    check_all("mini-128", "q8_0");
}

static void test_a_head_of_halves(void **state)
{
    (void)state;
    check_all("mini-128", "f16");
}

static void test_the_large_shape(void **state)
{
    static const stretch some[] = {{9, 4}, {446, 4}};
    (void)state;
    if (!real())
        skip();
    check("2b-4t", "f16", some, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_launch_the_same_kernels),
        cmocka_unit_test(test_heads_of_64),
        cmocka_unit_test(test_heads_of_128),
        cmocka_unit_test(test_a_head_of_halves),
        cmocka_unit_test(test_the_large_shape),
    };
    find_device("90");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
