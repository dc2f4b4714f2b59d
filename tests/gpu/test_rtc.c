/* test_rtc.c - the run-time compiler without a device: found, missing, too old; what it is given;
 * what is kept of its work. The compiler is the emulated one. */
#include "device.h"

#include <dirent.h>
#include <unistd.h>

#include "backend/cuda/rtc/rtc.h"
#include "base/file.h"
#include "torture/interpose.h"

typedef struct world {
    const char *lacks; /* a function, or "" for the library itself */
} world;

static void *world_open(void *user, const char *name)
{
    const world *w = user;
    return *w->lacks && strcmp(name, "libnvrtc.so.13") == 0
               ? dlopen(TEST_BINARY_DIR "/emulated/libnvrtc.so.13", RTLD_NOW)
               : NULL;
}

static bnet_fn world_sym(void *user, void *lib, const char *name)
{
    const world *w = user;
    void *p = strcmp(name, w->lacks) == 0 ? NULL : dlsym(lib, name);
    bnet_fn f;
    memcpy(&f, &p, sizeof f);
    return f;
}

static void world_close(void *user, void *lib)
{
    (void)user;
    dlclose(lib);
}

static bnet_loader loader(world *w)
{
    return (bnet_loader){world_open, world_sym, world_close, w};
}

static const char *const options[] = {"-DBNET_SPEC_TILES=4", "-DBNET_SPEC_K=128"};

static void test_P_6_a_compiler_that_is_not_there(void **state)
{
    (void)state;
    const struct {
        const char *lacks, *says;
    } cases[] = {{"", "the library libnvrtc.so.13 is not installed: install NVRTC"},
                 {"nvrtcGetCUBIN", "has no function nvrtcGetCUBIN: too old"}};
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        world w = {cases[i].lacks};
        bnet_loader l = loader(&w);
        cuda_rtc *r = NULL;
        bitnet_error err = {0};
        assert_int_equal(bnet_rtc_open(&l, NULL, NULL, NULL, &r, &err), BITNET_NOT_AVAILABLE);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s", err.message);
        assert_null(r);
    }
}

static cuda_rtc *open_compiler(world *w, bnet_loader *l, const char *folder)
{
    cuda_rtc *r = NULL;
    *w = (world){"nothing"};
    *l = loader(w);
    OK(bnet_rtc_open(l, NULL, folder, NULL, &r, &err));
    return r;
}

static cuda_code make(cuda_rtc *r, const char *chip, int n_options)
{
    cuda_code code;
    OK(bnet_rtc_make(r, "w2_gemv_spec.cuh", chip, options, n_options, &code, &err));
    return code;
}

/* Everything the code depends on is in its name: chip, options; and what is kept is the same. */
static void test_P_6_what_is_kept(void **state)
{
    (void)state;
    char folder[] = "/tmp/bitnet-rtc-XXXXXX", below[64];
    world w;
    bnet_loader l;
    assert_non_null(mkdtemp(folder));
    snprintf(below, sizeof below, "%s/a/b", folder);
    cuda_rtc *r = open_compiler(&w, &l, below);
    cuda_code first = make(r, "sm_90a", 2), again = make(r, "sm_90a", 2);
    assert_string_equal(first.compiler, "13.0");
    assert_false(first.kept);
    assert_true(again.kept);
    assert_int_equal(first.n_bytes, again.n_bytes);
    assert_memory_equal(first.bytes, again.bytes, first.n_bytes);
    assert_non_null(strstr(first.bytes, "-arch=sm_90a"));
    cuda_code other = make(r, "sm_80", 2), fewer = make(r, "sm_90a", 1);
    assert_false(other.kept || fewer.kept);
    cuda_code *all[] = {&first, &again, &other, &fewer};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        bnet_free(all[i]->bytes);
    bnet_rtc_close(r);
    r = open_compiler(&w, &l, "/dev/null/x"); /* cannot be written: done without */
    first = make(r, "sm_90a", 2);
    assert_false(first.kept);
    bnet_free(first.bytes);
    bnet_rtc_close(r);
    char command[160];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Whichever allocation fails, nothing is freed twice, and what is made is right. */
static void test_P_6_every_allocation_fails_once(void **state)
{
    (void)state;
    char folder[] = "/tmp/bitnet-rtc-XXXXXX", command[160];
    world w;
    bnet_loader l;
    assert_non_null(mkdtemp(folder));
    cuda_rtc *r = open_compiler(&w, &l, folder);
    cuda_code want = make(r, "sm_90a", 2);
    bool done = false;
    for (long i = 0; !done; i++) {
        cuda_code code;
        bitnet_error err = {0};
        interpose_start(i, false);
        bitnet_status st = bnet_rtc_make(r, "w2_gemv_spec.cuh", "sm_90a", options, 2, &code, &err);
        done = interpose_stop() <= i; /* there was none to fail */
        assert_true(st == BITNET_OK || !code.bytes);
        if (st == BITNET_OK)
            assert_memory_equal(code.bytes, want.bytes, want.n_bytes);
        bnet_free(code.bytes);
    }
    bnet_free(want.bytes);
    bnet_rtc_close(r);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Every include of what is compiled is among the sources the library carries. */
static void test_P_6_sources_are_complete(void **state)
{
    (void)state;
    world w;
    bnet_loader l;
    cuda_rtc *r = open_compiler(&w, &l, NULL);
    cuda_code code = make(r, "sm_90a", 2);
    bnet_free(code.bytes);
    OK(bnet_rtc_make(r, "w2_few_tokens_spec.cuh", "sm_90a", options, 2, &code, &err));
    bnet_free(code.bytes);
    bitnet_error err = {0};
    assert_int_equal(bnet_rtc_make(r, "absent.cuh", "sm_90a", options, 2, &code, &err),
                     BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(err.message, "cannot open source file \"absent.cuh\""));
    bnet_rtc_close(r);
    const char *const *names, *const *texts;
    int n = 0, n_all = bnet_cuda_sources(&names, &texts);
    for (int i = 0; i < n_all; i++)
        n += strcmp(names[i], "backend/cuda/kernels/w2_gemv.cu") == 0 &&
             strstr(texts[i], "bnet_w2_gemv_ldg");
    assert_int_equal(n, 1);
    assert_true(emulated != NULL); /* these tests are about the emulated compiler */
}

int main(void)
{
    if (getenv("BITNET_TEST_REAL_GPU"))
        return 77;
    find_device("90");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_6_a_compiler_that_is_not_there),
        cmocka_unit_test(test_P_6_what_is_kept),
        cmocka_unit_test(test_P_6_every_allocation_fails_once),
        cmocka_unit_test(test_P_6_sources_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
