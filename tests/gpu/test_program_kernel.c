/* test_program_kernel.c - a kernel that a program registers for CUDA serves a model on the device:
 * chosen, counted, told by questions, and put on the stream of the engine (REG-9, E-2). The
 * emulated device alone: its memory is the host's, where the kernel of this test computes. */
#include "device.h"

#include <math.h>

#include "program_kernel.h"

enum { N_IDS = 9 };

static float *logits_with(const bitnet_kernel *mine, uint64_t *n_calls, const char **answer)
{
    bitnet_runtime_options o;
    bitnet_runtime *r;
    bitnet_engine *e;
    bitnet_session *s;
    bitnet_session_options so;
    bitnet_kernel_use use[64];
    const int32_t ids[N_IDS] = {1, 17, 29, 31, 40, 51, 66, 70, 81};
    const bitnet_kernel_query q = {.op = "linear", .format = "i2s", .dtype = "i8", .m = 1};
    bitnet_runtime_options_init(&o);
    o.device = "cuda";
    o.n_threads = 1;
    OK(bitnet_runtime_open(&o, &r, &err));
    if (mine)
        OK(bitnet_kernel_register(r, mine, &err));
    OK(bitnet_runtime_select(r, &q, answer, &err));
    *answer = strdup(*answer);
    OK(bitnet_engine_open(r, test_model(), NULL, &e, &err));
    bitnet_session_options_init(&so);
    so.kv_type = BITNET_KV_F32;
    OK(bitnet_session_open(e, &so, &s, &err));
    OK(bitnet_session_append(s, ids, N_IDS - 1, NULL, NULL, &err));
    OK(bitnet_session_append(s, ids + N_IDS - 1, 1, NULL, NULL, &err));
    size_t n = (size_t)bitnet_engine_model(e)->n_vocab;
    float *out = malloc(n * sizeof *out);
    memcpy(out, bitnet_session_logits(s), n * sizeof *out);
    *n_calls = 0;
    size_t n_use = bitnet_engine_kernels(e, use, 64);
    for (size_t i = 0; mine && i < n_use; i++)
        if (strcmp(use[i].id, mine->id) == 0)
            *n_calls += use[i].n_calls;
    bitnet_session_close(s);
    bitnet_engine_close(e);
    bitnet_runtime_close(r);
    return out;
}

static void test_REG_9_E_2_a_kernel_of_a_program_on_cuda(void **state)
{
    (void)state;
    bitnet_kernel mine = program_kernel("linear_i2s.program", "cuda"), beyond = mine;
    const char *answer;
    uint64_t n;
    float *want = logits_with(NULL, &n, &answer);
    assert_string_equal(answer, "i2s_gpu_gemv");
    free((char *)(uintptr_t)answer);
    mine.isa = "sm_80";
    float *got = logits_with(&mine, &n, &answer);
    assert_string_equal(answer, mine.id);
    free((char *)(uintptr_t)answer);
    assert_int_equal(n, 2 * 2 * 7); /* passes, layers, matrices */
    assert_non_null(program_stream);
    for (int i = 0; i < 200; i++)
        if (fabsf(want[i] - got[i]) > 1e-3f * fmaxf(1, fabsf(want[i])))
            fail_msg("logit %d: %g with the build's kernels, %g with the program's", i,
                     (double)want[i], (double)got[i]);
    free(got);
    setenv("BITNET_EMULATED_CC", "75", 1); /* a chip that it is not for */
    beyond.isa = "sm_80";
    got = logits_with(&beyond, &n, &answer);
    assert_string_equal(answer, "i2s_gpu_gemv");
    assert_int_equal(n, 0);
    free((char *)(uintptr_t)answer);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_REG_9_E_2_a_kernel_of_a_program_on_cuda),
    };
    if (getenv("BITNET_TEST_REAL_GPU"))
        return 77;
    find_device("90");
    return cmocka_run_group_tests_name("a program's kernel", tests, NULL, NULL);
}
