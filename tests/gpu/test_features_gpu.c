/* A network with a feature that the fused path does not know is composed on a device too, with the
 * same choices; one it knows runs in whole passes. */
#include "device.h"

#include "model/weights.h"

enum { PROMPT = 20, STEPS = 12 };

typedef struct result {
    int32_t ids[STEPS];
    uint64_t n_passes;
} result;

/* more: bits that the file does not have. */
static result generate(bnet_features more)
{
    result out = {0};
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    bitnet_session *s;
    bitnet_runtime_options r;
    bitnet_session_options so;
    int32_t ids[PROMPT];
    bitnet_runtime_options_init(&r);
    r.device = "cuda";
    r.n_threads = 2;
    OK(bitnet_runtime_open(&r, &runtime, &err));
    OK(bitnet_engine_open(runtime, test_model(), NULL, &engine, &err));
    engine->model->net.features |= more;
    bitnet_session_options_init(&so);
    so.n_ctx = 128;
    OK(bitnet_session_open(engine, &so, &s, &err));
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 10 + i;
    OK(bitnet_session_append(s, ids, PROMPT, NULL, NULL, &err));
    for (int i = 0; i < STEPS; i++) {
        const float *x = bitnet_session_logits(s);
        int32_t best = 0;
        for (int j = 1; j < bitnet_engine_model(engine)->n_vocab; j++)
            best = x[j] > x[best] ? j : best;
        out.ids[i] = best;
        OK(bitnet_session_append(s, &best, 1, NULL, NULL, &err));
    }
    bitnet_kernel_use uses[BNET_KERNELS_MAX];
    size_t n = bnet_backend_kernels(engine->backend, uses, BNET_KERNELS_MAX);
    for (size_t i = 0; i < n; i++) /* it serves in whole passes alone */
        if (strncmp(uses[i].id, "norm_quantize", 13) == 0 ||
            strncmp(uses[i].id, "norm_tiles", 10) == 0)
            out.n_passes += uses[i].n_calls;
    bitnet_session_close(s);
    bitnet_engine_close(engine);
    bitnet_runtime_close(runtime);
    return out;
}

static void test_unknown_feature_is_composed(void **state)
{
    (void)state;
    result whole = generate(0), composed = generate(BNET_FEATURE(QK_NORM)),
           unnamed = generate((bnet_features)1 << 63);
    assert_true(whole.n_passes > 0);
    assert_int_equal(composed.n_passes, 0);
    assert_int_equal(unnamed.n_passes, 0);
    assert_memory_equal(composed.ids, unnamed.ids, sizeof composed.ids);
    assert_memory_equal(whole.ids, composed.ids, sizeof whole.ids);
}

int main(void)
{
    find_device("90");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unknown_feature_is_composed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
