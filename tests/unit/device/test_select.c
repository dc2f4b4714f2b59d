/* test_select.c - requests, selection, the startup summary, the two failures, preflight (BE-1..6,
 * BE-9, BE-10, BE-14, DET-7, D-15..D-18). */
#include "stand_in.h"

#include <pthread.h>

static bnet_request request(const char *text)
{
    bnet_request r;
    bitnet_error err = {0};
    bitnet_status st = bnet_request_parse(text, "--device", &r, &err);
    if (st != BITNET_OK)
        print_error("%s\n", err.message);
    assert_int_equal(st, BITNET_OK);
    return r;
}

/* ---- machines: one letter per kind and fact, e.g. "Cc" ---- */

enum { N_GPUS = 2 };

/* `compiled` and `present` are comma lists of names; a name in `fake` is faked, one in `tool` only
 * listed by a tool, one in `software` has CPU drivers only. */
typedef struct machine {
    const char *compiled, *present, *fake, *tool, *software;
} machine;

static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && memcmp(p, name, n) == 0)
            return true;
    return false;
}

static bnet_devices make(machine m)
{
    bnet_devices d;
    memset(&d, 0, sizeof d);
    for (int k = 0; k < BNET_DEV_COUNT; k++) {
        const char *name = bnet_device_name((bnet_device_kind)k);
        bnet_device_status *s = &d.kind[k];
        bool cpu = k == BNET_DEV_CPU;
        s->compiled = cpu || listed(m.compiled, name);
        s->fake = listed(m.fake, name);
        s->available = cpu || s->fake || listed(m.present, name) || listed(m.tool, name) ||
                       listed(m.software, name);
        s->runnable = s->available && !s->fake && !listed(m.tool, name);
        s->n_gpus = cpu ? 0 : s->fake ? 1 : s->available ? N_GPUS : 0;
        snprintf(s->source, sizeof s->source, "%s", listed(m.tool, name) ? "tool" : "driver");
        for (int i = 0; i < s->n_gpus; i++) {
            s->gpus[i].device_id = i;
            snprintf(s->gpus[i].name, sizeof s->gpus[i].name, "%s card %d", name, i);
            s->gpus[i].software = listed(m.software, name);
        }
        if (!s->runnable) {
            snprintf(s->reason, sizeof s->reason, "no %s driver", name);
            snprintf(s->hint, sizeof s->hint, "install %s", name);
        }
    }
    return d;
}

/* ---- requests ---- */

static void test_BE_1_BE_3_BE_4_values(void **state)
{
    static const struct {
        const char *text;
        bool is_auto, any_gpu;
        bnet_device_kind kind;
        int index;
        const char *echo;
    } rows[] = {
        {NULL, true, false, BNET_DEV_CPU, -1, "auto"},
        {"auto", true, false, BNET_DEV_CPU, -1, "auto"},
        {"AUTO", true, false, BNET_DEV_CPU, -1, "auto"},
        {"gpu", false, true, BNET_DEV_CPU, -1, "gpu"},
        {"cpu", false, false, BNET_DEV_CPU, -1, "cpu"},
        {"CPU", false, false, BNET_DEV_CPU, -1, "cpu"},
        {"cuda", false, false, BNET_DEV_CUDA, -1, "cuda"},
        {"Cuda", false, false, BNET_DEV_CUDA, -1, "cuda"},
        {"cuda:0", false, false, BNET_DEV_CUDA, 0, "cuda:0"},
        {"CUDA:15", false, false, BNET_DEV_CUDA, 15, "cuda:15"},
        {"hip", false, false, BNET_DEV_HIP, -1, "hip"},
        {"rocm", false, false, BNET_DEV_HIP, -1, "hip"},
        {"oneapi", false, false, BNET_DEV_ONEAPI, -1, "oneapi"},
        {"opencl", false, false, BNET_DEV_OPENCL, -1, "opencl"},
        {"ocl", false, false, BNET_DEV_OPENCL, -1, "opencl"},
        {"vulkan", false, false, BNET_DEV_VULKAN, -1, "vulkan"},
        {"vulkan:1", false, false, BNET_DEV_VULKAN, 1, "vulkan:1"},
        {"metal", false, false, BNET_DEV_METAL, -1, "metal"},
        {"npu", false, false, BNET_DEV_NPU, -1, "npu"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_request r = request(rows[i].text);
        assert_int_equal(r.is_auto, rows[i].is_auto);
        assert_int_equal(r.any_gpu, rows[i].any_gpu);
        assert_int_equal(r.kind, rows[i].kind);
        assert_int_equal(r.index, rows[i].index);
        assert_string_equal(r.text, rows[i].echo);
    }
}

static void test_BE_4_unknown_values_name_the_allowed(void **state)
{
    static const char *const rows[] = {
        "",      "nvidia", "cuda:",       "cuda:x",   "cuda:-1", "cuda:1x", "cuda:1234",
        "cpu:0", "gpu:0",  "auto:0",      "cuda,cpu", " cuda",   "cuda ",   "cuda:1:2",
        "cud",   "cudaa",  "\x1b[31mcpu", ":",        "cuda:+1", "webgpu",
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_error err = {0};
        bnet_request r = {.index = 77};
        assert_int_equal(bnet_request_parse(rows[i], "BITNET_DEVICE", &r, &err), BITNET_ARGUMENT);
        assert_int_equal(r.index, 77);
        assert_non_null(strstr(err.message, "BITNET_DEVICE: \""));
        assert_non_null(strstr(err.message,
                               "auto, cpu, gpu, cuda, hip (rocm), oneapi, metal, opencl (ocl), "
                               "vulkan, npu, host"));
        assert_null(strchr(err.message, 0x1b));
    }
    char huge[5000];
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    bnet_request r;
    assert_int_equal(bnet_request_parse(huge, "--device", &r, NULL), BITNET_ARGUMENT);
}

static void test_BE_2_values_name_their_source(void **state)
{
    static const struct {
        const char *value, *source, *want; /* want NULL: an error that names the source */
    } rows[] = {
        {NULL, "default", "auto"},   {"cuda", "BITNET_DEVICE", "cuda"},
        {"cpu", "--device", "cpu"},  {"auto", "--device", "auto"},
        {"", "--device", NULL},      {"bogus", "BITNET_DEVICE", NULL},
        {"bogus", "--device", NULL},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_request r;
        bitnet_error err = {0};
        bitnet_status st = bnet_request_parse(rows[i].value, rows[i].source, &r, &err);
        assert_int_equal(st, rows[i].want ? BITNET_OK : BITNET_ARGUMENT);
        if (rows[i].want)
            assert_string_equal(r.text, rows[i].want);
        else
            assert_ptr_equal(strstr(err.message, rows[i].source), err.message);
    }
}

/* ---- selection: requests x machines ---- */

typedef struct select_row {
    const char *request;
    machine m;
    bitnet_status status;
    const char *want;     /* the summary, or a part of the message */
    const char *want_too; /* another part of the message */
} select_row;

static void check_rows(const select_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bnet_devices d = make(rows[i].m);
        bnet_request r = request(rows[i].request);
        bnet_selection s = {.index = 99};
        bitnet_error err = {0};
        bitnet_status st = bnet_select(&d, &r, &s, &err);
        print_message("row %zu: %s: %d %s%s\n", i, rows[i].request, st, s.summary, err.message);
        assert_int_equal(st, rows[i].status);
        if (st == BITNET_OK) {
            assert_string_equal(s.summary, rows[i].want);
            continue;
        }
        assert_int_equal(s.index, 99); /* untouched */
        assert_non_null(strstr(err.message, rows[i].want));
        if (rows[i].want_too)
            assert_non_null(strstr(err.message, rows[i].want_too));
        assert_int_equal(bnet_select(&d, &r, &s, NULL), st);
    }
}

#define CPU_ONLY                                                                                   \
    {                                                                                              \
        NULL, NULL, NULL, NULL, NULL                                                               \
    }
#define OK        BITNET_OK
#define NOT_BUILT BITNET_NOT_COMPILED
#define NOT_HERE  BITNET_NOT_AVAILABLE

static void test_BE_5_BE_6_auto(void **state)
{
    static const select_row rows[] = {
        {"auto", CPU_ONLY, OK, "requested=auto detected=[cpu] selected=cpu", NULL},
        {"auto",
         {"cuda", "cuda", 0, 0, 0},
         OK,
         "requested=auto detected=[cuda,cpu] selected=cuda",
         0},
        /* present but not in this build: said, not used */
        {"auto", {0, "cuda", 0, 0, 0}, OK, "requested=auto detected=[cuda,cpu] selected=cpu", 0},
        {"auto", {"cuda", 0, 0, 0, 0}, OK, "requested=auto detected=[cpu] selected=cpu", 0},
        /* a fake is detected and never chosen */
        {"auto",
         {"cuda", 0, "cuda", 0, 0},
         OK,
         "requested=auto detected=[cuda,cpu] selected=cpu",
         0},
        {"auto",
         {0, 0, "cuda,hip", 0, 0},
         OK,
         "requested=auto detected=[cuda,hip,cpu] selected=cpu",
         0},
        /* a tool's word is not enough, nor a driver on the CPU */
        {"auto",
         {"cuda", 0, 0, "cuda", 0},
         OK,
         "requested=auto detected=[cuda,cpu] selected=cpu",
         0},
        {"auto",
         {"opencl", 0, 0, 0, "opencl"},
         OK,
         "requested=auto detected=[opencl,cpu] selected=cpu",
         0},
        /* order of preference */
        {"auto",
         {"vulkan,opencl", "opencl,vulkan", 0, 0, 0},
         OK,
         "requested=auto detected=[opencl,vulkan,cpu] selected=opencl",
         0},
        {"auto",
         {"vulkan", "cuda,opencl,vulkan", 0, 0, 0},
         OK,
         "requested=auto detected=[cuda,opencl,vulkan,cpu] selected=vulkan",
         0},
        {"auto",
         {"cuda,hip,oneapi,metal,opencl,vulkan,npu", "cuda,hip,oneapi,metal,opencl,vulkan,npu", 0,
          0, 0},
         OK,
         "requested=auto detected=[cuda,hip,oneapi,metal,opencl,vulkan,npu,cpu] selected=cuda",
         0},
    };
    (void)state;
    check_rows(rows, BNET_COUNT(rows));
}

static void test_BE_1_cpu_is_always_there(void **state)
{
    static const select_row rows[] = {
        {"cpu", CPU_ONLY, OK, "requested=cpu detected=[cpu] selected=cpu", 0},
        {"cpu", {"cuda", "cuda", 0, 0, 0}, OK, "requested=cpu detected=[cuda,cpu] selected=cpu", 0},
    };
    (void)state;
    check_rows(rows, BNET_COUNT(rows));
}

static void test_BE_1_D_15_gpu_never_falls_back(void **state)
{
    static const select_row rows[] = {
        {"gpu", CPU_ONLY, NOT_BUILT, "gpu: this build has no GPU backend",
         "build bitnet again, or use --device cpu or auto"},
        {"gpu",
         {0, "cuda", 0, 0, 0},
         NOT_BUILT,
         "gpu: this build has no GPU backend",
         "detected: cuda,cpu"},
        {"gpu", {"cuda", 0, 0, 0, 0}, NOT_HERE, "no GPU this build can use", "no cuda driver"},
        {"gpu",
         {"cuda", "vulkan", 0, 0, 0},
         NOT_HERE,
         "no GPU this build can use",
         "cuda: no cuda driver"},
        {"gpu", {"cuda", 0, 0, "cuda", 0}, NOT_HERE, "no GPU this build can use", "no cuda driver"},
        {"gpu",
         {"opencl", 0, 0, 0, "opencl"},
         NOT_HERE,
         "no GPU this build can use",
         "only software"},
        {"gpu", {"cuda", 0, "cuda", 0, 0}, NOT_HERE, "cuda is a fake device", "BITNET_GPU_FAKE"},
        {"gpu", {0, 0, "metal", 0, 0}, NOT_HERE, "metal is a fake device", "never computes"},
        {"gpu",
         {"cuda", "cuda", 0, 0, 0},
         OK,
         "requested=gpu detected=[cuda,cpu] selected=cuda",
         0},
        {"gpu",
         {"vulkan", "cuda,vulkan", 0, 0, 0},
         OK,
         "requested=gpu detected=[cuda,vulkan,cpu] selected=vulkan",
         0},
    };
    (void)state;
    check_rows(rows, BNET_COUNT(rows));
}

static void test_BE_10_two_kinds_of_failure(void **state)
{
    static const select_row rows[] = {
        {"cuda", CPU_ONLY, NOT_BUILT, "cuda: this build has no NVIDIA CUDA backend",
         "; install the CUDA toolkit (nvcc) and build bitnet again, or use --device cpu or auto"},
        {"cuda",
         {0, "cuda", 0, 0, 0},
         NOT_BUILT,
         "cuda: this build has no NVIDIA CUDA backend",
         "detected: cuda,cpu"},
        {"cuda", {"cuda", 0, 0, 0, 0}, NOT_HERE, "cuda: no cuda driver", "install cuda"},
        {"cuda",
         {"cuda", 0, 0, "cuda", 0},
         NOT_HERE,
         "cuda: tool lists a device, but no cuda driver",
         "install cuda"},
        {"cuda",
         {"cuda", "cuda", 0, 0, 0},
         OK,
         "requested=cuda detected=[cuda,cpu] selected=cuda",
         0},
        /* a fake says so first, whether compiled or not: it is what the user set */
        {"cuda", {"cuda", 0, "cuda", 0, 0}, NOT_HERE, "cuda is a fake", 0},
        {"cuda", {0, 0, "cuda", 0, 0}, NOT_HERE, "cuda is a fake", 0},
        {"rocm", {0, 0, "hip", 0, 0}, NOT_HERE, "hip is a fake", 0},
        /* another kind never stands in for it (never an alias to CUDA) */
        {"vulkan",
         {"cuda", "cuda,vulkan", 0, 0, 0},
         NOT_BUILT,
         "vulkan: Vulkan is not supported by this version",
         "use --device cpu"},
        {"ocl",
         {"cuda", "cuda", 0, 0, 0},
         NOT_BUILT,
         "opencl: OpenCL is not supported by this version",
         0},
        {"npu",
         {"cuda", "cuda", 0, 0, 0},
         NOT_BUILT,
         "npu: NPU is not supported by this version",
         "use --device cpu"},
        {"metal", CPU_ONLY, NOT_BUILT, "metal: Apple Metal is not supported by this version", 0},
        {"hip", CPU_ONLY, NOT_BUILT, "hip: AMD ROCm is not supported by this version", 0},
        {"oneapi", CPU_ONLY, NOT_BUILT,
         "oneapi: Intel oneAPI Level Zero is not supported by this version", 0},
        /* asked for by name, a driver on the CPU is what was asked for */
        {"opencl",
         {"opencl", 0, 0, 0, "opencl"},
         OK,
         "requested=opencl detected=[opencl,cpu] selected=opencl",
         0},
    };
    (void)state;
    check_rows(rows, BNET_COUNT(rows));
}

static void test_DET_12_BE_14_multi_gpu_selection(void **state)
{
    static const select_row rows[] = {
        {"cuda:0",
         {"cuda", "cuda", 0, 0, 0},
         OK,
         "requested=cuda:0 detected=[cuda,cpu] selected=cuda:0",
         0},
        {"cuda:1",
         {"cuda", "cuda", 0, 0, 0},
         OK,
         "requested=cuda:1 detected=[cuda,cpu] selected=cuda:1",
         0},
        {"cuda:2",
         {"cuda", "cuda", 0, 0, 0},
         NOT_HERE,
         "cuda:2 was requested, but there are fewer devices: cuda:0 (cuda "
         "card "
         "0), cuda:1 (cuda card 1)",
         0},
        {"cuda:999", {"cuda", "cuda", 0, 0, 0}, NOT_HERE, "cuda:999", 0},
        {"cuda:0", {"cuda", 0, "cuda", 0, 0}, NOT_HERE, "cuda:0 is a fake", 0},
        {"cuda:1", CPU_ONLY, NOT_BUILT, "cuda: this build has no NVIDIA CUDA backend", 0},
        {"cuda:1", {"cuda", 0, 0, 0, 0}, NOT_HERE, "cuda:1: no cuda driver", 0},
    };
    (void)state;
    check_rows(rows, BNET_COUNT(rows));

    bnet_devices d = make((machine){"cuda", "cuda", 0, 0, 0});
    bnet_request r = request("cuda:1");
    bnet_selection a, b;
    bitnet_error err = {0};
    assert_int_equal(bnet_select(&d, &r, &a, &err), BITNET_OK);
    assert_int_equal(a.index, 1);
    r = request("cuda");
    assert_int_equal(bnet_select(&d, &r, &b, &err), BITNET_OK);
    assert_int_equal(b.index, 0);
    assert_int_equal(a.index, 1); /* selections are values, independent of each other */
    d.kind[BNET_DEV_CUDA].n_gpus = 1;
    r = request("cuda:1");
    assert_int_equal(bnet_select(&d, &r, &a, &err), BITNET_NOT_AVAILABLE);
    assert_string_equal(err.message, "cuda:1 was requested, but there is one "
                                     "device: cuda:0 (cuda card 0)");
    /* a software device first in the list is passed over unless asked for */
    d = make((machine){"opencl", "opencl", 0, 0, 0});
    d.kind[BNET_DEV_OPENCL].gpus[0].software = true;
    r = request("auto");
    assert_int_equal(bnet_select(&d, &r, &a, &err), BITNET_OK);
    assert_int_equal(a.index, 1);
    r = request("opencl");
    assert_int_equal(bnet_select(&d, &r, &a, &err), BITNET_OK);
    assert_int_equal(a.index, 1);
    r = request("opencl:0");
    assert_int_equal(bnet_select(&d, &r, &a, &err), BITNET_OK);
    assert_int_equal(a.index, 0);
}

/* The GPU host on plain memory is in every build: its name chooses it, nothing else does. */
static void test_host_memory_is_chosen_by_name_alone(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bnet_selection s;
    bnet_devices d = make((machine){"host", 0, 0, 0, "host"});
    bnet_request r = request("auto");
    assert_int_equal(bnet_select(&d, &r, &s, &err), BITNET_OK);
    assert_string_equal(s.summary, "requested=auto detected=[cpu] selected=cpu");
    r = request("gpu");
    assert_int_equal(bnet_select(&d, &r, &s, &err), BITNET_NOT_COMPILED);
    r = request("host");
    assert_int_equal(bnet_select(&d, &r, &s, &err), BITNET_OK);
    assert_int_equal(s.kind, BNET_DEV_HOST);
    assert_string_equal(s.summary, "requested=host detected=[cpu,host] selected=host");
}

/* compiled x available x fake for auto, gpu and cuda: the status of each cell */
static void test_BE_10_truth_table(void **state)
{
    static const char *const requests[] = {"auto", "gpu", "cuda"};
    (void)state;
    for (int bits = 0; bits < 8; bits++) {
        bool compiled = bits & 1, available = bits & 2, fake = bits & 4;
        machine m = {compiled ? "cuda" : NULL, available ? "cuda" : NULL, fake ? "cuda" : NULL, 0,
                     0};
        bnet_devices d = make(m);
        for (size_t i = 0; i < BNET_COUNT(requests); i++) {
            bnet_request r = request(requests[i]);
            bnet_selection s;
            bitnet_status want = fake        ? BITNET_NOT_AVAILABLE
                                 : !compiled ? BITNET_NOT_COMPILED
                                 : available ? BITNET_OK
                                             : BITNET_NOT_AVAILABLE;
            if (i == 0)
                want = BITNET_OK;
            assert_int_equal(bnet_select(&d, &r, &s, NULL), want);
            if (want == BITNET_OK)
                assert_int_equal(s.kind,
                                 compiled && available && !fake ? BNET_DEV_CUDA : BNET_DEV_CPU);
        }
    }
}

/* The same through the probe: what a user sets, and the exit code and words he gets. */
static void test_D_13_D_14_selection_of_fakes(void **state)
{
    static const struct {
        const char *fake;
        bool strict, no_fake, compiled, real;
        const char *request;
        bitnet_status status;
        const char *want;
    } rows[] = {
        {"cuda", 0, 0, 1, 1, "auto", OK, "requested=auto detected=[cuda,cpu] selected=cpu"},
        {"cuda", 0, 0, 1, 1, "cuda", NOT_HERE, "fake"},
        {"cuda", 0, 0, 0, 0, "cuda", NOT_HERE, "fake"},
        {"cuda", 1, 0, 1, 1, "auto", OK, "requested=auto detected=[cuda,cpu] selected=cuda"},
        {"cuda", 1, 0, 1, 0, "auto", OK, "requested=auto detected=[cpu] selected=cpu"},
        {"cuda", 1, 0, 1, 0, "cuda", NOT_HERE, "libcuda.so.1 is not installed"},
        {"cuda", 1, 0, 0, 1, "cuda", NOT_BUILT, "this build has no NVIDIA CUDA backend"},
        {"cuda", 0, 1, 1, 1, "auto", NOT_HERE, "BITNET_STRICT_NO_FAKE_GPU"},
        {"cuda", 1, 1, 1, 1, "auto", NOT_HERE, "BITNET_STRICT_NO_FAKE_GPU"},
        {"none", 0, 0, 1, 1, "auto", OK, "requested=auto detected=[cpu] selected=cpu"},
        {"none", 0, 0, 1, 1, "gpu", NOT_HERE, "hidden by BITNET_GPU_FAKE=none"},
        {"none", 1, 0, 1, 1, "gpu", OK, "requested=gpu detected=[cuda,cpu] selected=cuda"},
        {"none", 0, 1, 1, 1, "auto", OK, "requested=auto detected=[cpu] selected=cpu"},
        {"", 0, 0, 1, 1, "auto", OK, "requested=auto detected=[cpu] selected=cpu"},
        {"bogus", 0, 0, 1, 1, "auto", BITNET_ARGUMENT, "\"bogus\" is not known"},
        {NULL, 0, 0, 1, 1, "auto", OK, "requested=auto detected=[cuda,cpu] selected=cuda"},
        {NULL, 1, 1, 1, 1, "auto", OK, "requested=auto detected=[cuda,cpu] selected=cuda"},
        {NULL, 0, 0, 1, 0, "cuda", NOT_HERE, "libcuda.so.1 is not installed"},
        {NULL, 0, 0, 0, 0, "cuda", NOT_BUILT, "this build has no NVIDIA CUDA backend"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_world w = {.loader = &stand_in_loader, .root = "/nonexistent"};
        bnet_probe_options o;
        bnet_devices d;
        bnet_selection s = {0};
        bitnet_error err = {0};
        bnet_request r = request(rows[i].request);
        S = (stand_in){.libraries = rows[i].real ? "libcuda.so.1" : NULL, .n_cuda = 1};
        S.cuda[0] = h200();
        w.compiled[BNET_DEV_CUDA] = rows[i].compiled;
        bnet_probe_options_init(&o);
        o.fake = rows[i].fake;
        o.strict = rows[i].strict;
        o.no_fake = rows[i].no_fake;
        bitnet_status st = bnet_probe_world(&o, &w, &d, &err);
        if (st == BITNET_OK)
            st = bnet_select(&d, &r, &s, &err);
        print_message("row %zu: %d %s%s\n", i, st, s.summary, err.message);
        assert_int_equal(st, rows[i].status);
        assert_non_null(strstr(st == BITNET_OK ? s.summary : err.message, rows[i].want));
    }
}

/* Eight threads look at the same made-up machine and choose: no state is shared. */
static void *select_many(void *arg)
{
    const bnet_devices *found = arg;
    for (int i = 0; i < 50; i++) {
        bnet_probe_options o;
        bnet_devices *d = bnet_calloc(1, sizeof *d);
        bnet_request r;
        bnet_selection s;
        bnet_probe_options_init(&o);
        o.fake = i % 2 ? "cuda" : "none";
        bool ok =
            d && bnet_probe(&o, d, NULL) == BITNET_OK &&
            bnet_request_parse(i % 2 ? "cuda:1" : "auto", "--device", &r, NULL) == BITNET_OK &&
            bnet_select(found, &r, &s, NULL) == BITNET_OK && s.kind == BNET_DEV_CUDA &&
            s.index == i % 2;
        bnet_free(d);
        if (!ok)
            return arg;
    }
    return NULL;
}

static void test_BE_14_selection_from_several_threads(void **state)
{
    bnet_devices d = make((machine){"cuda", "cuda", 0, 0, 0});
    pthread_t threads[8];
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, select_many, &d), 0);
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int k = 0; k < BNET_DEV_COUNT; k++) {
        bnet_device_kind found;
        const char *name = bnet_device_name((bnet_device_kind)k);
        assert_true(bnet_kind_find(name, strlen(name), &found));
        assert_int_equal(found, k);
        assert_true(bnet_device_label((bnet_device_kind)k)[0]);
    }
}

/* ---- preflight ---- */

/* Every fact has a line of its own. */
static void check_lines(const char *text)
{
    static const char *const starts[] = {"  found: ", "  problem: ", "  remedy: "};
    for (size_t i = 0; i < BNET_COUNT(starts); i++)
        for (const char *p = text; (p = strstr(p, starts[i])); p++)
            if (p == text || p[-1] != '\n')
                fail_msg("not at the start of a line: %s", p);
}

static void test_DET_7_preflight(void **state)
{
    static const struct {
        machine m;
        bool ok;
        const char *want[4];
    } rows[] = {
        {CPU_ONLY,
         false,
         {"no GPU to compute on", "gpu: this build has no GPU backend",
          "remedy: install the CUDA toolkit (nvcc) and build bitnet again",
          "hip (AMD ROCm): compiled no, available no; not supported by this version\n"}},
        {{"cuda", 0, 0, 0, 0},
         false,
         {"problem: no cuda driver", "remedy: install cuda", "compiled yes, available no",
          "no GPU this build can use"}},
        {{0, "cuda", 0, 0, 0},
         false,
         {"compiled no, available yes", "found: 2 device(s) by driver",
          "remedy: install the CUDA toolkit (nvcc) and build bitnet again",
          "this build has no GPU backend"}},
        {{0, "hip", 0, 0, 0},
         false,
         {"hip (AMD ROCm): compiled no, available yes; not supported by this version\n  found: 2",
          0}},
        {{"cuda", 0, "cuda", 0, 0}, false, {"available yes (fake)", "is a fake device", 0}},
        {{"cuda", "cuda", 0, 0, 0},
         true,
         {"GPU preflight: ok, cuda computes on cuda card 0", "compiled yes, available yes", 0}},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_devices d = make(rows[i].m);
        bnet_str out = {0};
        bitnet_error err = {0};
        bool ok = bnet_preflight(&d, &out, &err) == BITNET_OK;
        print_message("row %zu:\n%s", i, out.data);
        assert_int_equal(ok, rows[i].ok);
        check_lines(out.data);
        assert_null(strstr(out.data, "NotCompiled"));
        assert_null(strstr(out.data, "NotAvailable"));
        for (int k = 0; k < 4 && rows[i].want[k]; k++)
            assert_non_null(strstr(out.data, rows[i].want[k]));
        for (int k = 0; k < BNET_DEV_CPU; k++) /* every vendor is spoken of */
            assert_non_null(strstr(out.data, bnet_device_label((bnet_device_kind)k)));
        bnet_str_free(&out);
    }
}

/* A bare machine, from the real probes: a remedy for what this version computes on, and no advice
 * to install what it could not use. */
static void test_DET_7_remedies_that_help(void **state)
{
    static const char *const useless[] = {"rocm-smi", "Level Zero loader", "clinfo", "vulkaninfo"};
    bnet_world w = {.loader = &stand_in_loader, .root = "/nonexistent"};
    bnet_probe_options o;
    bnet_devices d;
    bnet_str out = {0};
    bitnet_error err = {0};
    (void)state;
    S = (stand_in){0};
    bnet_probe_options_init(&o);
    w.compiled[BNET_DEV_CUDA] = true;
    assert_int_equal(bnet_probe_world(&o, &w, &d, NULL), BITNET_OK);
    assert_int_equal(bnet_preflight(&d, &out, &err), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(out.data, "remedy: install the NVIDIA driver and check it with nvidia"));
    for (size_t i = 0; i < BNET_COUNT(useless); i++)
        assert_null(strstr(out.data, useless[i]));
    for (int k = BNET_DEV_CUDA + 1; k < BNET_DEV_CPU; k++) {
        char line[128];
        snprintf(line, sizeof line,
                 "\n%s (%s): compiled no, available no; not supported by this version",
                 bnet_device_name((bnet_device_kind)k), bnet_device_label((bnet_device_kind)k));
        assert_non_null(strstr(out.data, line));
    }
    d.fake_ignored = true;
    bnet_preflight(&d, &out, &err);
    assert_non_null(strstr(out.data, "ignored in strict mode"));
    bnet_str_free(&out);
}

/* The check that everything asks: a request, preflight and the listing agree on every card. */
static void test_DET_7_DET_16_one_function_decides(void **state)
{
    static const int cc[] = {50, 61, 70, 75, 80, 86, 90, 100};
    (void)state;
    if (!*bnet_cuda_archs())
        skip(); /* nothing is known of what such a build serves */
    for (size_t i = 0; i < BNET_COUNT(cc); i++) {
        bnet_devices d = make((machine){"cuda", "cuda", 0, 0, 0});
        bnet_str out = {0};
        bnet_selection s;
        bitnet_error err = {0};
        for (int g = 0; g < N_GPUS; g++) {
            d.kind[BNET_DEV_CUDA].gpus[g].cc_major = cc[i] / 10;
            d.kind[BNET_DEV_CUDA].gpus[g].cc_minor = cc[i] % 10;
        }
        bool served = bnet_cuda_serves(bnet_cuda_archs(), cc[i] / 10, cc[i] % 10);
        bitnet_status want = served ? BITNET_OK : BITNET_NOT_COMPILED;
        assert_int_equal(bnet_device_check(&d, BNET_DEV_CUDA, 1, &err), want);
        assert_int_equal(bnet_preflight(&d, &out, &err), want);
        bnet_request r = request("cuda");
        assert_int_equal(bnet_select(&d, &r, &s, &err), want);
        r = request("auto");
        assert_int_equal(bnet_select(&d, &r, &s, &err), BITNET_OK);
        assert_int_equal(s.kind, served ? BNET_DEV_CUDA : BNET_DEV_CPU);
        assert_int_equal(s.passed[0] == '\0', served); /* a card that is not used is told of */
        r.strict = true;
        assert_int_equal(bnet_select(&d, &r, &s, &err), want);
        d.kind[BNET_DEV_CUDA].gpus[1].cc_major = 9; /* one of two serves */
        d.kind[BNET_DEV_CUDA].gpus[1].cc_minor = 0;
        assert_int_equal(bnet_select(&d, &r, &s, &err), BITNET_OK);
        assert_int_equal(s.index, served ? 0 : 1);
        bnet_str_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_BE_1_BE_3_BE_4_values),
        cmocka_unit_test(test_BE_4_unknown_values_name_the_allowed),
        cmocka_unit_test(test_BE_2_values_name_their_source),
        cmocka_unit_test(test_BE_5_BE_6_auto),
        cmocka_unit_test(test_BE_1_cpu_is_always_there),
        cmocka_unit_test(test_BE_1_D_15_gpu_never_falls_back),
        cmocka_unit_test(test_BE_10_two_kinds_of_failure),
        cmocka_unit_test(test_DET_12_BE_14_multi_gpu_selection),
        cmocka_unit_test(test_host_memory_is_chosen_by_name_alone),
        cmocka_unit_test(test_BE_10_truth_table),
        cmocka_unit_test(test_D_13_D_14_selection_of_fakes),
        cmocka_unit_test(test_BE_14_selection_from_several_threads),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_DET_7_preflight),
        cmocka_unit_test(test_DET_7_remedies_that_help),
        cmocka_unit_test(test_DET_7_DET_16_one_function_decides),
    };
    return cmocka_run_group_tests_name("device/select", tests, NULL, NULL);
}
