/* test_null.c - the backend of docs/BACKEND.md: a model computes the same bits through it, every
 * operation passes it, and nobody can take it for a device of its own (E-1). */
#include "test.h"

#include "backend/null/null.h"
#include "model/kv.h"
#include "model/model.h"

enum { N = 9 };

typedef struct place {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_gguf *gguf;
    bnet_model *model;
    char said[200];
} place;

static void hear(void *user, bitnet_log_level level, const char *module, const char *message)
{
    if (level <= BITNET_LOG_WARN && strcmp(module, "null") == 0)
        snprintf(((place *)user)->said, sizeof((place *)user)->said, "%s", message);
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        if ((call) != BITNET_OK)                                                                   \
            fail_msg("%s: %s", #call, err.message);                                                \
    } while (0)

typedef bitnet_status open_fn(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);

static void open_place(place *p, open_fn *open)
{
    bnet_log log = {hear, p};
    memset(p, 0, sizeof *p);
    OK(bnet_pool_open(2, &p->pool, &err));
    OK(bnet_registry_open(&p->registry, &err));
    bnet_backend_want w = {
        .device = BNET_DEV_CPU, .pool = p->pool, .registry = p->registry, .log = &log};
    OK(open(&w, &p->be, &err));
    OK(bnet_gguf_open(TEST_SOURCE_DIR "/models/nano.gguf", NULL, &p->gguf, &err));
    OK(bnet_model_open(p->gguf, p->be, BITNET_I2S_128, NULL, NULL, &p->model, &err));
}

static void close_place(place *p)
{
    bnet_model_close(p->model);
    bnet_gguf_close(p->gguf);
    bnet_backend_close(p->be);
    bnet_registry_close(p->registry);
    bnet_pool_close(p->pool);
}

/* Logits of the last of N tokens, and how many numbers that are. */
static float *last_logits(const place *p, size_t *n)
{
    static const int32_t ids[N] = {1, 5, 9, 300, 42, 7, 7, 100, 3}, seq[N] = {0};
    int32_t pos[N], row = N - 1;
    bnet_kv *kv;
    bnet_workspace *ws;
    for (int i = 0; i < N; i++)
        pos[i] = i;
    OK(bnet_kv_open(p->model, 64, BITNET_KV_F16, &kv, &err));
    OK(bnet_workspace_open(p->model, N, &ws, &err));
    bnet_batch b = {N, ids, pos, seq, &kv, 1, &row, 1, false, NULL, NULL};
    OK(bnet_forward(ws, &b, &err));
    *n = (size_t)bnet_model_hparams(p->model)->n_vocab;
    float *out = malloc(*n * sizeof *out);
    const float *logits;
    OK(bnet_head(ws, 0, 1, &logits, &err));
    memcpy(out, logits, *n * sizeof *out);
    bnet_workspace_close(ws);
    bnet_kv_close(kv);
    return out;
}

static void test_E_1_forwards_everything(void **state)
{
    (void)state;
    place cpu, null;
    size_t n_cpu, n_null;
    open_place(&cpu, bnet_backend_open);
    open_place(&null, bnet_null_open);
    assert_int_equal(bnet_null_ops(null.be), 0);
    float *want = last_logits(&cpu, &n_cpu), *got = last_logits(&null, &n_null);
    assert_int_equal(n_cpu, n_null);
    assert_memory_equal(got, want, n_cpu * sizeof *got);
    /* embed, rope table, head with its norm and gather; every layer: 2 norms, 2 sub-norms, 7
     * matrices behind quantizations, 2 ropes, cache, attention, gate, 2 sums. At least that. */
    uint64_t layers = (uint64_t)bnet_model_hparams(null.model)->n_layers;
    print_message("%d operations, %d layers\n", (int)bnet_null_ops(null.be), (int)layers);
    assert_true(bnet_null_ops(null.be) >= 5 + 15 * layers);
    free(want);
    free(got);
    close_place(&cpu);
    close_place(&null);
}

static void test_E_1_says_what_it_is(void **state)
{
    (void)state;
    place p;
    size_t n;
    bitnet_kernel_use ids[64];
    open_place(&p, bnet_null_open);
    assert_string_equal(p.be->v->name, "null(cpu)");
    assert_non_null(strstr(p.said, "the CPU computes"));
    bnet_null_kernel_rows(&n);
    assert_int_equal(n, 0);
    free(last_logits(&p, &n));
    size_t used = bnet_backend_kernels(p.be, ids, 64);
    assert_true(used > 5 && used <= 64);
    for (size_t i = 0; i < used; i++) { /* ids of the CPU, none of its own */
        const bnet_kernel_record *k = bnet_kernel_row_find(ids[i].id);
        assert_non_null(k);
        assert_int_equal(k->device, BNET_DEV_CPU);
    }
    close_place(&p);
}

static void test_E_1_a_kind_without_backend(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bnet_backend *be = NULL;
    bnet_backend_want w = {.device = BNET_DEV_NPU};
    assert_int_equal(bnet_backend_open(&w, &be, &err), BITNET_NOT_COMPILED);
    assert_non_null(strstr(err.message, "npu: this build has no NPU backend"));
    assert_null(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_E_1_forwards_everything),
        cmocka_unit_test(test_E_1_says_what_it_is),
        cmocka_unit_test(test_E_1_a_kind_without_backend),
    };
    return cmocka_run_group_tests_name("model/null", tests, NULL, NULL);
}
