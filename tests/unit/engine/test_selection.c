/* BE_*: requests, what exists, what was chosen; the startup summary in log, runtime and receipt. */
#include "nano.h"

#include <math.h>

#include "engine/engine.h"

typedef struct heard {
    char info[4][256];
    size_t n_info, n_warnings;
    char warning[512];
} heard;

static void hear(void *user, bitnet_log_level level, const char *module, const char *message)
{
    heard *h = user;
    if (level == BITNET_LOG_INFO && strcmp(module, "device") == 0 && h->n_info < 4)
        snprintf(h->info[h->n_info++], sizeof h->info[0], "%s", message);
    if (level == BITNET_LOG_WARN) {
        h->n_warnings++;
        snprintf(h->warning, sizeof h->warning, "%s", message);
    }
}

static bitnet_runtime_options plain(heard *h)
{
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.fake_gpu = "none"; /* the same on every machine */
    o.log = hear;
    o.log_user = h;
    return o;
}

/* BE-6, X-4 */
static void BE_6_summary_is_logged_and_kept(void **state)
{
    (void)state;
    heard h = {0};
    bitnet_runtime *r = NULL;
    bitnet_runtime_options o = plain(&h);
    OK(bitnet_runtime_open(&o, &r, &err));
    assert_string_equal(bitnet_runtime_summary(r), "requested=auto detected=[cpu] selected=cpu");
    assert_int_equal(h.n_info, 1);
    assert_string_equal(h.info[0], bitnet_runtime_summary(r));
    bitnet_runtime_close(r);
}

/* What a request says that has no device behind it: is the backend in this build? */
#ifdef BITNET_HAVE_CUDA
#define NO_CUDA BITNET_NOT_AVAILABLE, ": hidden by BITNET_GPU_FAKE=none"
#define NO_GPU  BITNET_NOT_AVAILABLE, "no GPU this build can use"
#else
#define NO_CUDA BITNET_NOT_COMPILED, "cuda: this build has no"
#define NO_GPU  BITNET_NOT_COMPILED, "gpu: this build has no"
#endif

/* BE-1, BE-3, BE-5, BE-10, D-13..D-16: each cell its status and its words. */
static void BE_1_requests_and_what_exists(void **state)
{
    (void)state;
    static const struct {
        const char *device, *fake;
        bool strict, no_fake;
        bitnet_status status;
        const char *says; /* of the summary on success, of the message on failure */
    } rows[] = {
        {NULL, "none", 0, 0, BITNET_OK, "requested=auto detected=[cpu] selected=cpu"},
        {"auto", "", 0, 0, BITNET_OK, "requested=auto detected=["},
        {"AUTO", "none", 0, 0, BITNET_OK, "requested=auto detected=[cpu] selected=cpu"},
        {"cpu", "none", 0, 0, BITNET_OK, "requested=cpu detected=[cpu] selected=cpu"},
        {"cpu", "cuda", 0, 0, BITNET_OK, "requested=cpu detected=[cuda,cpu] selected=cpu"},
        {"auto", "cuda,rocm", 0, 0, BITNET_OK,
         "requested=auto detected=[cuda,hip,cpu] selected=cpu"},
        {"auto", "GPU", 0, 0, BITNET_OK, "requested=auto detected=[cuda,cpu] selected=cpu"},
        {"cuda", "cuda", 0, 0, BITNET_NOT_AVAILABLE, "fake"},
        {"gpu", "cuda", 0, 0, BITNET_NOT_AVAILABLE, "fake"},
        {"hip", "rocm", 0, 0, BITNET_NOT_AVAILABLE, "fake"},
        {"gpu", "none", 0, 0, NO_GPU},
        {"cuda", "none", 0, 0, NO_CUDA},
        {"cuda:1", "none", 0, 0, NO_CUDA},
        {"vulkan", "none", 0, 0, BITNET_NOT_COMPILED, "vulkan: "},
        {"ocl", "none", 0, 0, BITNET_NOT_COMPILED, "opencl: "},
        {"oneapi", "none", 0, 0, BITNET_NOT_COMPILED, "oneapi: "},
        {"metal", "none", 0, 0, BITNET_NOT_COMPILED, "metal: "},
        {"npu", "none", 0, 0, BITNET_NOT_COMPILED, "npu: "},
        {"toaster", "none", 0, 0, BITNET_ARGUMENT, "\"toaster\" is not a device"},
        {"cpu:1", "none", 0, 0, BITNET_ARGUMENT, "is not a device"},
        {"auto", "teapot", 0, 0, BITNET_ARGUMENT, "BITNET_GPU_FAKE"},
        {"auto", "cuda", 0, 1, BITNET_NOT_AVAILABLE, "BITNET_STRICT_NO_FAKE_GPU"},
        {"auto", "cuda", 1, 1, BITNET_NOT_AVAILABLE, "BITNET_STRICT_NO_FAKE_GPU"},
        {"auto", "none", 1, 1, BITNET_OK, "requested=auto"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heard h = {0};
        bitnet_runtime *r = NULL;
        bitnet_error err = {0};
        bitnet_runtime_options o = plain(&h);
        o.device = rows[i].device;
        o.fake_gpu = rows[i].fake;
        o.strict = rows[i].strict;
        o.no_fake_gpu = rows[i].no_fake;
        bitnet_status st = bitnet_runtime_open(&o, &r, &err);
        const char *said = st == BITNET_OK ? bitnet_runtime_summary(r) : err.message;
        if (st != rows[i].status || !strstr(said, rows[i].says))
            fail_msg("row %zu (device %s, fake %s): status %d, \"%s\"; wanted %d, \"%s\"", i,
                     rows[i].device ? rows[i].device : "NULL", rows[i].fake, (int)st, said,
                     (int)rows[i].status, rows[i].says);
        bitnet_runtime_close(r);
    }
}

/* X-1, D-14: strict mode looks at the real machine, whatever the fake says. */
static void X_1_strict_ignores_a_fake(void **state)
{
    (void)state;
    heard h = {0};
    bitnet_runtime *r = NULL;
    bitnet_runtime_options o = plain(&h);
    o.fake_gpu = "cuda";
    o.strict = true;
    OK(bitnet_runtime_open(&o, &r, &err));
    assert_true(h.n_warnings >= 1);
    assert_non_null(strstr(h.warning, "strict mode ignores BITNET_GPU_FAKE=cuda"));
    assert_true(r->devices->fake_ignored);
    assert_false(r->devices->kind[BNET_DEV_CUDA].fake);
    bitnet_runtime_close(r);
}

/* BE-2: who asked is named. */
static void BE_2_origin_in_messages(void **state)
{
    (void)state;
    heard h = {0};
    bitnet_runtime *r = NULL;
    bitnet_runtime_options o = plain(&h);
    o.device = "toaster";
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT, "device: \"toaster\"");
    o.device_origin = "BITNET_DEVICE";
    FAILS(bitnet_runtime_open(&o, &r, &err), BITNET_ARGUMENT, "BITNET_DEVICE: \"toaster\"");
}

/* Opening must stay cheap: the look at a machine without GPUs runs no tool. The best of several,
 * since other programs run too. */
static void BE_5_opening_is_fast(void **state)
{
    (void)state;
    double best = 1e9;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    for (int i = 0; i < 20; i++) {
        bitnet_runtime *r = NULL;
        double start = bnet_now_ms();
        OK(bitnet_runtime_open(&o, &r, &err));
        best = fmin(best, bnet_now_ms() - start);
        bool gpu = bnet_gpu_available_runtime(r->devices);
        bitnet_runtime_close(r);
        if (gpu) {
            print_message("there is a GPU: its driver takes its own time\n");
            skip();
        }
    }
    print_message("opening a runtime: %.3f ms\n", best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(best < 5);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(BE_6_summary_is_logged_and_kept),
        cmocka_unit_test(BE_1_requests_and_what_exists),
        cmocka_unit_test(X_1_strict_ignores_a_fake),
        cmocka_unit_test(BE_2_origin_in_messages),
        cmocka_unit_test(BE_5_opening_is_fast),
    };
    return cmocka_run_group_tests_name("selection", tests, NULL, NULL);
}
