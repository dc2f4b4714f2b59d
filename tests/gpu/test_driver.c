/* test_driver.c - the CUDA driver alone, on entries of libcuda that only take notes: a copy during
 * work that could not be announced to the work is waited for before the failure is told, because
 * its ends are used again then; every image is loaded, however many there are. On the emulated
 * libcuda: the context that a program made current stays so. */
#include "device.h"

#include "backend/cuda/cuda.h"

static char calls[16]; /* a letter each */
static int fail_at;    /* which of them fails, from 1 */
static int side, work;

static int called(char what)
{
    size_t n = strlen(calls);
    assert_true(n + 1 < sizeof calls);
    calls[n] = what;
    return (int)n + 1 == fail_at ? 700 : 0;
}

static int to_device(cu_ptr dst, const void *src, size_t n, cu_stream s)
{
    (void)dst, (void)src, (void)n;
    assert_ptr_equal(s, &side);
    return called('c');
}

static int record(cu_event e, cu_stream s)
{
    (void)e;
    return called(s == (void *)&side ? 'r' : 'R');
}

static int after(cu_stream s, cu_event e, unsigned flags)
{
    (void)e, (void)flags;
    assert_ptr_equal(s, &work);
    return called('a');
}

static int wait(cu_stream s)
{
    assert_ptr_equal(s, &side);
    return called('w');
}

static void test_who_is_told_may_use_the_memory(void **state)
{
    static const char *const want[] = {"crRa", "c", "crw", "crRw", "crRaw"};
    int ends[2];
    cuda_driver d = {.stream = (cu_stream)&work, .side = (cu_stream)&side};
    (void)state;
    d.ends[0] = (cu_event)&ends[0];
    d.ends[1] = (cu_event)&ends[1];
    d.cu.to_device = to_device;
    d.cu.event_record = record;
    d.cu.stream_after = after;
    d.cu.stream_wait = wait;
    for (fail_at = 0; fail_at < 5; fail_at++) {
        memset(calls, 0, sizeof calls);
        assert_int_equal(bnet_cuda_upload_aside(&d.base, (gpu_at){0}, &d, 1),
                         fail_at ? GPU_LOST : GPU_OK);
        assert_string_equal(calls, want[fail_at]);
    }
}

/* ---- images ---- */

enum { IMAGES = 100 };

static const void *image_at(size_t i, size_t *n_bytes)
{
    static const char images[IMAGES];
    *n_bytes = 1;
    return i < IMAGES ? &images[i] : NULL;
}

static int odd_ones_fit(cu_module *out, const void *image)
{
    size_t unused;
    size_t i = (size_t)((const char *)image - (const char *)image_at(0, &unused));
    *out = (cu_module)(uintptr_t)(i + 1);
    return i % 2 ? 0 : 209;
}

static int none_fits(cu_module *out, const void *image)
{
    (void)out, (void)image;
    return 209;
}

static void test_every_image_is_loaded(void **state)
{
    (void)state;
    cuda_driver d = {.cu = {.module_load = odd_ones_fit}};
    assert_int_equal(bnet_cuda_load_images(&d, image_at), 0);
    assert_int_equal(d.n_modules, IMAGES / 2);
    for (size_t i = 0; i < d.n_modules; i++)
        assert_int_equal((uintptr_t)d.modules[i], 2 * i + 2);
    bnet_free(d.modules);
    d = (cuda_driver){.cu = {.module_load = none_fits}};
    assert_int_equal(bnet_cuda_load_images(&d, image_at), 209);
    bnet_free(d.modules);
}

/* ---- the caller's context ---- */

typedef int (*get_fn)(void **out);
typedef int (*set_fn)(void *context);
typedef int (*retain_fn)(void **out, int device);

static bnet_fn symbol(const char *name)
{
    static void *lib;
    bnet_fn f;
    lib = lib ? lib : dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(lib);
    void *p = dlsym(lib, name);
    memcpy(&f, &p, sizeof f);
    return f;
}

static void *current(void)
{
    void *c = NULL;
    assert_int_equal(((get_fn)symbol("cuCtxGetCurrent"))(&c), 0);
    return c;
}

static void use_a_device(void *mine)
{
    bitnet_error err = {0};
    gpu_driver *d = NULL;
    gpu_memory m = NULL;
    assert_int_equal(bnet_cuda_driver_open(&bnet_dl, 0, &d, &err), BITNET_OK);
    assert_ptr_equal(current(), mine);
    assert_int_equal(d->c->enter(d), GPU_OK);
    assert_true(current() != mine);
    assert_int_equal(d->c->alloc(d, 64, &m), GPU_OK);
    d->c->release(d, m);
    d->c->leave(d);
    assert_ptr_equal(current(), mine);
    d->c->close(d);
    assert_ptr_equal(current(), mine);
}

static void test_the_callers_context_comes_back(void **state)
{
    (void)state;
    void *second = NULL;
    use_a_device(NULL);
    assert_int_equal(((retain_fn)symbol("cuDevicePrimaryCtxRetain"))(&second, 1), 0);
    assert_int_equal(((set_fn)symbol("cuCtxSetCurrent"))(second), 0);
    use_a_device(second);
}

int main(void)
{
    setenv("BITNET_EMULATED_DEVICES", "2", 1);
    find_device("90");
    if (!emulated)
        return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_is_told_may_use_the_memory),
                                       cmocka_unit_test(test_every_image_is_loaded),
                                       cmocka_unit_test(test_the_callers_context_comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
