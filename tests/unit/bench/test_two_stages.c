/* test_two_stages.c - a generation that computes exactly only the logits its sampler can need
 * chooses what one with all of them chooses, for every kind of sampling; and whoever asks for the
 * logits afterwards gets all of them. */
#include "unit/engine/nano.h"

#include "bitnet_tools.h"
#include <unistd.h>

#include "engine/engine.h"
#include "sampler/sampler.h"
#include "model/weights.h"

#define STORY_PATH TEST_SOURCE_DIR "/models/story.gguf"

enum { N_IDS = 12, N_NEW = 24 };

static nano story_open(int n_threads)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = n_threads;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, STORY_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

/* The nano shape with random weights and this head. */
static nano synthetic_open(int n_threads, const char *head)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_synthetic *made = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = n_threads;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_synthetic_open("story", head, &made, &err));
    OK(bitnet_synthetic_engine(made, n.runtime, NULL, &n.engine, &err));
    bitnet_synthetic_close(made);
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static uint64_t scans(const nano *n)
{
    bitnet_kernel_use uses[64];
    size_t n_uses = bitnet_engine_kernels(n->engine, uses, BNET_COUNT(uses));
    uint64_t calls = 0;
    for (size_t i = 0; i < n_uses && i < BNET_COUNT(uses); i++)
        if (strncmp(uses[i].id, "head_scan", 9) == 0)
            calls += uses[i].n_calls;
    return calls;
}

/* Whether this CPU has a kernel for the first stage; said once per test. */
static bool has_scan(const nano *n)
{
    if (bnet_op_top_bytes(n->engine->backend, n->engine->model->head) > 0)
        return true;
    print_message("no scan of the head on this CPU or for this type\n");
    return false;
}

typedef struct told {
    int32_t ids[N_NEW + 1];
    size_t n;
} told;

static bool on_text(void *user, const char *text, size_t n, int32_t id)
{
    told *t = user;
    (void)text;
    (void)n;
    if (t->n < N_NEW)
        t->ids[t->n++] = id;
    return true;
}

/* `late` (may be NULL): two ids that are stop ids once three tokens were made, and none before. */
static told generate_late(bitnet_session *s, const bitnet_sampler_options *o, int n_vocab,
                          const int32_t *ids, size_t n_ids, const int32_t *late)
{
    told t = {.n = 0};
    bitnet_sampler *pick = NULL;
    bitnet_generate_options g;
    bitnet_generate_options_init(&g);
    g.max_tokens = N_NEW;
    g.ignore_eos = true;
    g.stop_ids = late;
    g.n_stop_ids = late ? 2 : 0;
    g.min_tokens = late ? 3 : 0;
    g.on_text = on_text;
    g.user = &t;
    OK(bitnet_sampler_open(o, n_vocab, &pick, &err));
    OK(bitnet_generate(s, pick, ids, n_ids, &g, NULL, &err));
    bitnet_sampler_close(pick);
    return t;
}

static told generate(bitnet_session *s, const bitnet_sampler_options *o, int n_vocab,
                     const int32_t *ids, size_t n_ids)
{
    return generate_late(s, o, n_vocab, ids, n_ids, NULL);
}

static void assert_same_ids(const told *a, const told *b, int i)
{
    assert_int_equal(a->n, b->n);
    for (size_t t = 0; t < a->n; t++)
        if (a->ids[t] != b->ids[t])
            fail_msg("setting %d, token %zu: %d with the logits it needs, %d with all", i, t,
                     a->ids[t], b->ids[t]);
}

/* A spread of settings; the last ones are rolled. */
static bitnet_sampler_options setting(int i, uint64_t *seed)
{
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    o.seed = test_rand(seed);
    switch (i) {
    case 0:
        o.temperature = 0;
        break;
    case 1:
        break; /* the defaults */
    case 2:
        o.top_k = 1;
        break;
    case 3:
        o.top_k = 0, o.temperature = 0.1f;
        break;
    case 4:
        o.top_k = 0, o.top_p = 0.9f, o.temperature = 1.5f;
        break;
    case 5:
        o.repetition_penalty = 1.3f;
        break;
    case 6:
        o.repetition_penalty = 0.5f, o.temperature = 0;
        break; /* raises what was said */
    case 7:
        o.presence_penalty = -3, o.frequency_penalty = -1;
        break;
    case 8:
        o.frequency_penalty = 2, o.temperature = 0, o.penalty_window = 0;
        break;
    case 9:
        o.typical_p = 0.6f, o.temperature = 1.2f, o.top_p = 1;
        break;
    case 10:
        o.typical_p = 0.5f, o.top_k = 0, o.temperature = 0.3f;
        break;
    case 11:
        o.min_p = 0.1f, o.top_k = 200;
        break;
    case 12:
        o.top_k = 100000;
        break;
    default:
        o.temperature = (float)(test_rand(seed) % 200) / 100;
        o.top_k = (int)(test_rand(seed) % 120);
        o.top_p = (float)(50 + test_rand(seed) % 51) / 100;
        o.typical_p = (float)(50 + test_rand(seed) % 101) / 100;
        o.typical_p = o.typical_p > 1 ? 1 : o.typical_p;
        o.min_p = (float)(test_rand(seed) % 20) / 100;
        o.repetition_penalty = test_rand(seed) % 2 ? 1 : (float)(50 + test_rand(seed) % 150) / 100;
        o.presence_penalty = test_rand(seed) % 2 ? 0 : (float)(test_rand(seed) % 400) / 100 - 2;
        o.penalty_window = (int)(test_rand(seed) % 40);
        o.penalty_from = test_rand(seed) % 3 * 8;
    }
    return o;
}

static void compare_settings(const nano *n, int n_settings, uint64_t seed)
{
    bitnet_session *less = nano_session(n, 256, 16, BITNET_KV_F16);
    bitnet_session *all = nano_session(n, 256, 16, BITNET_KV_F16);
    all->always_full = true;
    for (int i = 0; i < n_settings; i++) {
        int32_t ids[N_IDS];
        bitnet_sampler_options o = setting(i, &seed);
        nano_ids(n, seed, ids, N_IDS);
        told a = generate(less, &o, n->n_vocab, ids, N_IDS);
        told b = generate(all, &o, n->n_vocab, ids, N_IDS);
        assert_int_equal(a.n, N_NEW);
        assert_same_ids(&a, &b, i);
        const int32_t late[] = {a.ids[0], a.ids[1]};
        a = generate_late(less, &o, n->n_vocab, ids, N_IDS, late);
        b = generate_late(all, &o, n->n_vocab, ids, N_IDS, late);
        assert_true(a.n > 3);
        for (int k = 0; k < 3; k++)
            assert_true(a.ids[k] != late[0] && a.ids[k] != late[1]);
        assert_same_ids(&a, &b, i);
        a = generate(less, &o, n->n_vocab, ids, N_IDS);
        b = generate(all, &o, n->n_vocab, ids, N_IDS);
        assert_same_ids(&a, &b, i);
        assert_same_logits(n, bitnet_session_logits(less), bitnet_session_logits(all), "after it");
    }
    bitnet_session_close(less);
    bitnet_session_close(all);
}

static void test_same_choice_on_the_story_model(void **state)
{
    (void)state;
    struct stat st;
    if (stat(STORY_PATH, &st) != 0)
        skip();
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        nano n = story_open(n_threads);
        compare_settings(&n, n_threads == 1 ? 40 : 4, 77);
        if (has_scan(&n))
            assert_true(scans(&n) > (n_threads == 1 ? 500 : 50));
        nano_close(&n);
    }
}

static void test_same_choice_on_every_head(void **state)
{
    (void)state;
    static const char *const heads[] = {"q8_0", "q6_k", "f16",
                                        "bf16", "q4_0", "f32"}; /* 4 scanned */
    bool quick = getenv("BITNET_GOLDEN_QUICK") != NULL;         /* where everything takes long */
    int n_settings = quick ? 4 : 16;
    nano file = nano_open(1);
    compare_settings(&file, 30, 3);
    nano_close(&file);
    for (size_t i = 0; i < BNET_COUNT(heads); i++) {
        nano n = synthetic_open(1, heads[i]);
        compare_settings(&n, n_settings, 5 + i);
        if (i < 4 && has_scan(&n))
            assert_true(scans(&n) > 6 * (uint64_t)n_settings);
        nano_close(&n);
    }
}

/* What else can be done with a session whose logits nobody has asked for yet. */
static void test_logits_can_be_asked_for_later(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet_two_stages_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    nano n = synthetic_open(2, "q6_k");
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    int32_t ids[N_IDS], next = 7;
    nano_ids(&n, 9, ids, N_IDS);
    bitnet_session *s = nano_session(&n, 256, 16, BITNET_KV_F16);
    bitnet_session *all = nano_session(&n, 256, 16, BITNET_KV_F16);
    bitnet_session *other = nano_session(&n, 256, 16, BITNET_KV_F16);
    all->always_full = true;
    generate(s, &o, n.n_vocab, ids, N_IDS);
    generate(all, &o, n.n_vocab, ids, N_IDS);
    assert_true(!s->row || !has_scan(&n));
    OK(bitnet_session_save(s, path, &err)); /* the first to ask comes after that */
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(all), "saved");
    assert_non_null(s->row);
    OK(bitnet_session_load(s, path, &err));
    assert_null(bitnet_session_logits(s));
    generate(s, &o, n.n_vocab, ids, N_IDS);
    OK(bitnet_session_rewind(s, bitnet_session_position(s), &err)); /* nothing changes */
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(all), "not rewound");
    OK(bitnet_session_rewind(s, 3, &err));
    assert_null(bitnet_session_logits(s));
    generate(s, &o, n.n_vocab, ids, N_IDS);
    OK(bitnet_session_append(s, &next, 1, NULL, NULL, &err));
    OK(bitnet_session_append(all, &next, 1, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(all), "appended");
    generate(s, &o, n.n_vocab, ids, N_IDS);
    generate(all, &o, n.n_vocab, ids, N_IDS);
    bitnet_session *both[] = {s, other};
    OK(step_each(n.engine, both, NULL, (int32_t[]){next, next}, 2, NULL, &err));
    OK(bitnet_session_append(all, &next, 1, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(all), "in a batch");
    generate(s, &o, n.n_vocab, ids, N_IDS);
    assert_int_not_equal(step_each(n.engine, both, NULL, (int32_t[]){next, -1}, 2, NULL, NULL),
                         BITNET_OK);
    generate(all, &o, n.n_vocab, ids, N_IDS);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(all), "refused batch");
    bitnet_session_close(s);
    bitnet_session_close(all);
    bitnet_session_close(other);
    nano_close(&n);
    unlink(path);
}

/* A list that holds what is wanted is as good as the row, whatever else it holds. */
static void test_sampler_among_candidates(void **state)
{
    (void)state;
    enum { V = 1000, H = 30 };
    uint64_t seed = 4;
    float logits[V], listed[V];
    int32_t history[H], ids[V];
    for (int round = 0; round < 400; round++) {
        bitnet_sampler_options o = setting(round % 40, &seed);
        bitnet_sampler *a = NULL, *b = NULL;
        OK(bitnet_sampler_open(&o, V, &a, &err));
        OK(bitnet_sampler_open(&o, V, &b, &err));
        for (int i = 0; i < V; i++) /* many ties */
            logits[i] = (float)(test_rand(&seed) % (round % 2 ? 40 : 4000)) / 10;
        for (int i = 0; i < H; i++)
            history[i] = (int32_t)(test_rand(&seed) % V);
        bnet_top_want want;
        if (bnet_sampler_want(b, history, H, &want)) {
            size_t n = 0;
            for (int32_t i = 0; i < V; i++) {
                size_t above = 0;
                bool named = test_rand(&seed) % 10 == 0; /* some that nobody wants */
                for (int k = 0; k < V; k++)
                    above += logits[k] > logits[i] + want.range;
                for (size_t k = 0; k < want.n_ids; k++)
                    named = named || want.ids[k] == i;
                if (above < want.k + want.n_ids || named) {
                    ids[n] = i;
                    listed[n++] = logits[i];
                }
            }
            bnet_top top = {ids, listed, n};
            int32_t x = -1, y = -1;
            OK(bitnet_sampler_pick(a, logits, history, H, &x, &err));
            OK(bnet_sampler_pick_among(b, &top, history, H, &y, &err));
            if (x != y)
                fail_msg("round %d: %d of all, %d of %zu", round, x, y, n);
        }
        bitnet_sampler_close(a);
        bitnet_sampler_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampler_among_candidates),
        cmocka_unit_test(test_same_choice_on_the_story_model),
        cmocka_unit_test(test_same_choice_on_every_head),
        cmocka_unit_test(test_logits_can_be_asked_for_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
