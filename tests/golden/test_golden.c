/* test_golden.c MODEL FILE.gguf - the truth about a whole model, seen through bitnet.h alone: token
 * ids, logits, argmax, log-likelihoods and texts against references that other programs computed,
 * and one result for any number of threads and any batch. MODEL is nano, nano-master, story or
 * llama2c; FILE.gguf was converted from it with float embeddings.
 *
 * Logits: int8 activations that sit on a rounding tie may fall either way, which moves the logits
 * of that position (and of those that look at it) by up to about 0.7; so a share of the positions
 * must be close, and all must point the same way. BITNET_GOLDEN_QUICK=1 is for sanitizers and
 * emulators: fewer documents, and every number of threads and every batch once instead of all
 * pairs; 2 is for slow devices there: two prompts, one document, and f32 caches where several types
 * would take the same path.
 * BITNET_GOLDEN_DEVICE=cuda asks for another device, where bits may differ from the CPU's: then the
 * comparisons with other programs run, in one pass and step by step, and the bound of each
 * document's likelihood is for f32 caches: what is asked of the fast ones there is the direction of
 * the logits, the choice of tokens and the mean likelihood. It may be a list (cuda:0,cuda:0: two
 * virtual ranks), divided as BITNET_GOLDEN_SPLIT says. */
#include "test.h"

#include <math.h>

#include "bitnet.h"
#include "golden.h"
#include "unit/engine/step.h"

#define MIN_COSINE 0.998
#define CLOSE      1e-3
#define MARGIN     0.5

typedef struct fixture {
    const char *model, *path;
    double min_share; /* of positions within CLOSE */
    char folder[4096];
    golden *g;
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    size_t n_vocab;
} fixture;

static fixture fx;

static void check(bitnet_status status, const bitnet_error *err)
{
    if (status != BITNET_OK)
        fail_msg("%s: %s", bitnet_status_text(status), err->message);
}

static bool quick(void)
{
    const char *value = getenv("BITNET_GOLDEN_QUICK");
    return value && *value && strcmp(value, "0") != 0;
}

static bool quickest(void)
{
    const char *value = getenv("BITNET_GOLDEN_QUICK");
    return value && strcmp(value, "2") == 0;
}

static const char *device(void) /* NULL: the CPU */
{
    const char *value = getenv("BITNET_GOLDEN_DEVICE");
    return value && *value ? value : NULL;
}

static bitnet_session *open_session(bitnet_engine *engine, bitnet_kv_type kv, int n_batch)
{
    bitnet_error err = {0};
    bitnet_session_options options;
    bitnet_session *session = NULL;
    bitnet_session_options_init(&options);
    options.kv_type = kv;
    options.n_batch = n_batch;
    check(bitnet_session_open(engine, &options, &session, &err), &err);
    return session;
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* ---- token ids ---- */

static void test_token_ids(void **state)
{
    (void)state;
    for (size_t p = 0; p < fx.g->n_prompts; p++) {
        const golden_prompt *want = &fx.g->prompts[p];
        int32_t ids[1024];
        size_t n_ids = 0;
        bitnet_error err = {0};
        check(bitnet_tokenize(fx.engine, want->text, strlen(want->text),
                              BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, ids, 1024, &n_ids, &err),
              &err);
        if (n_ids != want->n_ids || memcmp(ids, want->ids, n_ids * sizeof *ids) != 0) {
            for (size_t i = 0; i < n_ids || i < want->n_ids; i++)
                print_message("  %zu: %d, expected %d\n", i, i < n_ids ? ids[i] : -1,
                              i < want->n_ids ? want->ids[i] : -1);
            fail_msg("prompt %zu (%s): other ids", p, want->text);
        }
    }
}

/* ---- logits and argmax ---- */

typedef struct comparison {
    const golden_prompt *want;
    size_t n_positions, n_close, n_checked, n_wrong;
    double min_cosine;
} comparison;

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static void compare_position(comparison *c, size_t index, const float *logits)
{
    const float *want = c->want->logits + index * fx.n_vocab;
    double worst = 0, cos = cosine(logits, want, fx.n_vocab);
    for (size_t i = 0; i < fx.n_vocab; i++) {
        double off = fabs((double)logits[i] - (double)want[i]);
        if (!(off <= worst))
            worst = off;
    }
    c->n_positions++;
    c->n_close += worst <= CLOSE;
    if (!(cos >= c->min_cosine)) /* also true for a NaN */
        c->min_cosine = cos;
}

/* One call per appended token: prompt positions have logits to compare, and from the last of them
 * on the argmax is the stored continuation wherever the reference was sure of it. */
static bool on_logits(void *user, size_t index, const float *logits)
{
    comparison *c = user;
    const golden_prompt *want = c->want;
    if (index < want->n_ids)
        compare_position(c, index, logits);
    if (index + 1 >= want->n_ids) {
        size_t step = index + 1 - want->n_ids;
        if (step < want->n_greedy && want->margin[step] >= MARGIN) {
            size_t best = argmax(logits, fx.n_vocab);
            c->n_checked++;
            if (best != (size_t)want->greedy[step]) {
                c->n_wrong++;
                print_message("  %s: step %zu chose %zu, expected %d (margin %.3f)\n", want->text,
                              step, best, want->greedy[step], want->margin[step]);
            }
        }
    }
    return true;
}

static comparison compare_all(bitnet_kv_type kv, int n_batch)
{
    comparison c = {.min_cosine = 2};
    bitnet_session *session = open_session(fx.engine, kv, n_batch);
    for (size_t p = 0; p < fx.g->n_prompts && (p < 2 || !quickest()); p++) {
        const golden_prompt *want = &fx.g->prompts[p];
        bitnet_error err = {0};
        size_t n = want->n_ids + want->n_greedy;
        int32_t *ids = test_malloc(n * sizeof *ids);
        memcpy(ids, want->ids, want->n_ids * sizeof *ids);
        memcpy(ids + want->n_ids, want->greedy, want->n_greedy * sizeof *ids);
        c.want = want;
        check(bitnet_session_rewind(session, 0, &err), &err);
        check(bitnet_session_append(session, ids, n, on_logits, &c, &err), &err);
        test_free(ids);
    }
    bitnet_session_close(session);
    print_message(
        "%zu positions: %zu within %g, lowest cosine %.6f; argmax right in %zu of %zu steps\n",
        c.n_positions, c.n_close, CLOSE, c.min_cosine, c.n_checked - c.n_wrong, c.n_checked);
    assert_true(c.n_positions > 0);
    assert_true(c.n_checked > 0);
    assert_true(c.min_cosine >= MIN_COSINE);
    assert_true(c.min_cosine <= 1 + 1e-9);
    assert_int_equal(c.n_wrong, 0);
    return c;
}

static void test_logits_f32(void **state)
{
    (void)state;
    comparison c = compare_all(BITNET_KV_F32, 512);
    assert_true((double)c.n_close >= fx.min_share * (double)c.n_positions);
}

static void test_logits_f16(void **state)
{
    (void)state;
    compare_all(BITNET_KV_F16, 512);
}

static void test_logits_int8(void **state)
{
    (void)state;
    compare_all(BITNET_KV_INT8, 512);
}

/* Every token a step of its own: another path on devices that have one for steps. */
static void test_logits_steps(void **state)
{
    (void)state;
    comparison c = compare_all(BITNET_KV_F32, 1);
    assert_true((double)c.n_close >= fx.min_share * (double)c.n_positions);
    if (quickest())
        return;
    compare_all(BITNET_KV_F16, 1);
    compare_all(BITNET_KV_INT8, 1);
}

/* ---- log-likelihoods ---- */

static size_t documents_to_score(void)
{
    size_t most = quickest() ? 1 : quick() ? 4 : fx.g->n_documents;
    return most < fx.g->n_documents ? most : fx.g->n_documents;
}

static bitnet_score_result score_document(bitnet_session *session, const golden_document *d)
{
    bitnet_error err = {0};
    bitnet_score_result result = {0};
    size_t n_ids = 0, cap = d->n_bytes + 16;
    int32_t *ids = test_malloc(cap * sizeof *ids);
    check(bitnet_tokenize(fx.engine, d->text, d->n_bytes, BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL,
                          ids, cap, &n_ids, &err),
          &err);
    check(bitnet_score(session, ids, n_ids, 0, &result, &err), &err);
    test_free(ids);
    return result;
}

static void check_score(bitnet_kv_type kv)
{
    bitnet_session *session = open_session(fx.engine, kv, 512);
    size_t n_documents = documents_to_score(), n_scored = 0, n_bad = 0;
    double sum = 0, want_sum = 0, worst = 0, most = device() && kv != BITNET_KV_F32 ? 1 : 0.01;
    for (size_t i = 0; i < n_documents; i++) {
        const golden_document *d = &fx.g->documents[i];
        bitnet_score_result r = score_document(session, d);
        double off = fabs(r.nll / d->nll - 1);
        if (r.n_tokens != d->n_tokens || r.n_scored != d->n_tokens - 1 || !(off <= most)) {
            n_bad++;
            print_message("  document %zu: %zu tokens, nll %.4f; expected %zu, %.4f\n", i,
                          r.n_tokens, r.nll, d->n_tokens, d->nll);
        }
        worst = fmax(worst, off);
        sum += r.nll;
        want_sum += d->nll;
        n_scored += d->n_tokens - 1;
    }
    bitnet_session_close(session);
    print_message("%zu of %zu documents, %zu predictions: mean nll %.5f, expected %.5f; worst "
                  "document %.3f %% off\n",
                  n_documents, fx.g->n_documents, n_scored, sum / (double)n_scored,
                  want_sum / (double)n_scored, 100 * worst);
    assert_int_equal(n_bad, 0);
    assert_true(fabs(sum / want_sum - 1) <= 0.002);
}

static void test_score(void **state)
{
    (void)state;
    check_score(BITNET_KV_F32);
    if (!quickest())
        check_score(BITNET_KV_F16);
}

/* ---- one result for any number of threads and any batch ---- */

typedef struct transcript {
    char text[4096];
    size_t n_bytes;
    int32_t ids[512];
    size_t n_ids;
    uint64_t hash; /* of the bits of all prompt logits */
} transcript;

static bool on_text(void *user, const char *text, size_t n_bytes, int32_t id)
{
    transcript *t = user;
    assert_true(t->n_bytes + n_bytes < sizeof t->text && t->n_ids < 512);
    memcpy(t->text + t->n_bytes, text, n_bytes);
    t->n_bytes += n_bytes;
    t->ids[t->n_ids++] = id;
    return true;
}

static bool on_hash(void *user, size_t index, const float *logits)
{
    transcript *t = user;
    (void)index;
    for (size_t i = 0; i < fx.n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        t->hash = (t->hash ^ bits) * 0x100000001b3u;
    }
    return true;
}

static void generate(bitnet_session *session, const bitnet_sampler_options *sampling,
                     const int32_t *ids, size_t n_ids, size_t max_tokens, transcript *t)
{
    bitnet_error err = {0};
    bitnet_sampler *sampler = NULL;
    bitnet_generate_options options;
    bitnet_generate_result result;
    bitnet_generate_options_init(&options);
    options.max_tokens = max_tokens;
    options.ignore_eos = sampling->temperature > 0; /* a long text shows more differences */
    options.on_text = on_text;
    options.user = t;
    check(bitnet_sampler_open(sampling, (int)fx.n_vocab, &sampler, &err), &err);
    check(bitnet_generate(session, sampler, ids, n_ids, &options, &result, &err), &err);
    bitnet_sampler_close(sampler);
}

/* A prompt long enough to fill more than one cache block: the golden prompts one after the other.
 */
static size_t long_prompt(int32_t *ids, size_t cap)
{
    size_t n = 0;
    for (size_t p = 0; p < fx.g->n_prompts; p++)
        for (size_t i = p > 0; i < fx.g->prompts[p].n_ids && n < cap; i++)
            ids[n++] = fx.g->prompts[p].ids[i];
    return n;
}

static bitnet_engine *open_engine(const char *path, int n_threads, bitnet_runtime **runtime)
{
    bitnet_error err = {0};
    bitnet_engine *engine = NULL;
    bitnet_runtime_options options;
    bitnet_runtime_options_init(&options);
    options.n_threads = n_threads;
    options.device = device() ? device() : "cpu";
    options.split = getenv("BITNET_GOLDEN_SPLIT");
    check(bitnet_runtime_open(&options, runtime, &err), &err);
    check(bitnet_engine_open(*runtime, path, NULL, &engine, &err), &err);
    return engine;
}

static void tell(bitnet_engine *engine, int n_batch, bitnet_kv_type kv, transcript *t)
{
    bitnet_error err = {0};
    int32_t ids[200];
    size_t n_ids = long_prompt(ids, fx.n_vocab < 1024 ? 120 : 85);
    bitnet_sampler_options sampling;
    bitnet_sampler_options_init(&sampling);
    sampling.temperature = 1.0f;
    sampling.seed = 7;
    memset(t, 0, sizeof *t);
    bitnet_session *session = open_session(engine, kv, n_batch);
    check(bitnet_session_append(session, ids, n_ids, on_hash, t, &err), &err);
    check(bitnet_session_rewind(session, 0, &err), &err);
    generate(session, &sampling, ids, n_ids, 40, t);
    bitnet_session_close(session);
}

static void expect_same(const transcript *t, const transcript *first, int n_threads, int n_batch)
{
    if (t->hash != first->hash)
        fail_msg("%d threads, batch %d: the logits of the prompt differ", n_threads, n_batch);
    if (t->n_bytes != first->n_bytes || memcmp(t->text, first->text, t->n_bytes) != 0)
        fail_msg("%d threads, batch %d: \"%.*s\" instead of \"%.*s\"", n_threads, n_batch,
                 (int)t->n_bytes, t->text, (int)first->n_bytes, first->text);
}

/* What seed 7 tells, on every machine: the choices of the sampler and the bits of the logits do not
 * depend on the CPU. */
static void expect_stored(const transcript *t)
{
    static const struct {
        const char *model;
        uint64_t hash;
        const char *text;
    } rows[] = {
#define TRANSCRIPT(model, hash, text) {model, hash, text},
#include "transcripts.inc"
#undef TRANSCRIPT
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].model, fx.model) != 0)
            continue;
        if (rows[i].hash != t->hash || strlen(rows[i].text) != t->n_bytes ||
            memcmp(rows[i].text, t->text, t->n_bytes) != 0)
            fail_msg("told 0x%016llx \"%.*s\", transcripts.inc has 0x%016llx \"%s\"",
                     (unsigned long long)t->hash, (int)t->n_bytes, t->text,
                     (unsigned long long)rows[i].hash, rows[i].text);
        return;
    }
    fail_msg("transcripts.inc has no row for %s, which told 0x%016llx \"%.*s\"", fx.model,
             (unsigned long long)t->hash, (int)t->n_bytes, t->text);
}

static void test_threads_and_batches(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7}, batches[] = {1, 7, 512};
    static transcript first[3], t;
    bool known[3] = {false};
    for (size_t i = 0; i < 4; i++) {
        bitnet_runtime *runtime = NULL;
        bitnet_engine *engine = open_engine(fx.path, threads[i], &runtime);
        assert_int_equal(bitnet_runtime_threads(runtime), threads[i]);
        for (size_t j = 0; j < 3; j++) {
            if (quick() && j != i % 3)
                continue;
            /* every kind of cache at batch 7, the default kind at all */
            for (int kv = 0; kv < (batches[j] == 7 && !quick() ? 3 : 1); kv++) {
                tell(engine, batches[j], (bitnet_kv_type)kv, known[kv] ? &t : &first[kv]);
                if (known[kv])
                    expect_same(&t, &first[kv], threads[i], batches[j]);
                known[kv] = true;
            }
        }
        bitnet_engine_close(engine);
        bitnet_runtime_close(runtime);
    }
    expect_stored(&first[BITNET_KV_F16]);
}

/* Appending token by token, and several sessions in one pass, give the bits of one append. */
static void test_steps_equal_prefill(void **state)
{
    (void)state;
    bitnet_error err = {0};
    int32_t ids[200];
    static transcript whole, steps;
    size_t n_ids = long_prompt(ids, 80);
    bitnet_session *a = open_session(fx.engine, BITNET_KV_F16, 512);
    bitnet_session *b = open_session(fx.engine, BITNET_KV_F16, 512);
    bitnet_session *both[2] = {a, b};
    memset(&whole, 0, sizeof whole);
    memset(&steps, 0, sizeof steps);
    check(bitnet_session_append(a, ids, n_ids, on_hash, &whole, &err), &err);
    check(bitnet_session_rewind(a, 0, &err), &err);
    for (size_t i = 0; i < n_ids; i++) {
        int32_t pair[2] = {ids[i], ids[n_ids - 1 - i]};
        check(step_each(fx.engine, both, NULL, pair, 2, NULL, &err), &err);
        on_hash(&steps, i, bitnet_session_logits(a));
    }
    assert_int_equal(bitnet_session_position(a), n_ids);
    assert_true(whole.hash == steps.hash);
    bitnet_session_close(a);
    bitnet_session_close(b);
}

/* ---- llama2.c ---- */

static void expect_greedy(const char *prompt, size_t max_tokens, const char *file)
{
    char path[4096], rel[256], text[4096];
    int32_t ids[512];
    size_t n_ids = 0, n_want = 0, n_text = 0;
    bitnet_error err = {0};
    static transcript t;
    bitnet_sampler_options sampling;
    bitnet_sampler_options_init(&sampling);
    sampling.temperature = 0;
    snprintf(rel, sizeof rel, "third-party/%s", file);
    char *want = golden_read(shared_path(rel, path, sizeof path), &n_want);
    check(
        bitnet_tokenize(fx.engine, prompt, strlen(prompt), BITNET_TEXT_BOS, ids, 256, &n_ids, &err),
        &err);
    memset(&t, 0, sizeof t);
    bitnet_session *session = open_session(fx.engine, BITNET_KV_F32, 512);
    generate(session, &sampling, ids, n_ids, max_tokens, &t);
    bitnet_session_close(session);
    memcpy(ids + n_ids, t.ids, t.n_ids * sizeof *ids);
    check(
        bitnet_detokenize(fx.engine, ids, n_ids + t.n_ids, 0, text, sizeof text - 1, &n_text, &err),
        &err);
    text[n_text++] = '\n'; /* the reference program ends its output so */
    if (n_text != n_want || memcmp(text, want, n_want) != 0)
        fail_msg("told:\n%.*s\nexpected:\n%s", (int)n_text, text, want);
    free(want);
}

static void test_llama2c_story(void **state)
{
    (void)state;
    expect_greedy("", 200, "stories260K.greedy-200.txt");
}

static void test_llama2c_prompt(void **state)
{
    (void)state;
    expect_greedy("One day, Lily met a", 113, "stories260K.greedy-120-lily.txt");
}

/* ---- set-up ---- */

static int group_setup(void **state)
{
    (void)state;
    if (fx.folder[0])
        fx.g = golden_load(fx.folder);
    fx.engine = open_engine(fx.path, 2, &fx.runtime);
    fx.n_vocab = (size_t)bitnet_engine_model(fx.engine)->n_vocab;
    return fx.g && fx.n_vocab != fx.g->prompts[0].n_vocab;
}

static int group_teardown(void **state)
{
    (void)state;
    bitnet_engine_close(fx.engine);
    bitnet_runtime_close(fx.runtime);
    if (fx.g)
        golden_free(fx.g);
    return 0;
}

int main(int argc, char **argv)
{
    char rel[256], path[3072];
    const struct CMUnitTest bitnet_tests[] = {
        cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_logits_f32),
        cmocka_unit_test(test_logits_f16),
        cmocka_unit_test(test_logits_int8),
        cmocka_unit_test(test_score),
        cmocka_unit_test(test_threads_and_batches),
        cmocka_unit_test(test_steps_equal_prefill),
    };
    const struct CMUnitTest device_tests[] = {
        cmocka_unit_test(test_logits_f32),  cmocka_unit_test(test_logits_f16),
        cmocka_unit_test(test_logits_int8), cmocka_unit_test(test_logits_steps),
        cmocka_unit_test(test_score),
    };
    const struct CMUnitTest llama_tests[] = {
        cmocka_unit_test(test_llama2c_story),
        cmocka_unit_test(test_llama2c_prompt),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: test_golden nano|nano-master|story|llama2c FILE.gguf\n");
        return 2;
    }
    fx.model = argv[1];
    fx.path = argv[2];
    fx.min_share = strcmp(fx.model, "story") == 0 ? 0.25 : 0.70;
    if (strcmp(fx.model, "llama2c") == 0) {
        if (!shared_path("third-party/stories260K.bin", path, sizeof path))
            return 77;
        return cmocka_run_group_tests(llama_tests, group_setup, group_teardown);
    }
    snprintf(rel, sizeof rel, "story-model/%s/golden", fx.model);
    if (!shared_path(rel, path, sizeof path))
        return 77;
    snprintf(fx.folder, sizeof fx.folder, "%s", path);
    return device() ? cmocka_run_group_tests(device_tests, group_setup, group_teardown)
                    : cmocka_run_group_tests(bitnet_tests, group_setup, group_teardown);
}
