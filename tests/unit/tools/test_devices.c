/* test_devices.c - devices as tools see them: text, JSON, choice (DET-1, DET-2, DET-7, DET-9..11,
 * DET-17, BE-2, BE-6, BE-9, BE-10). Real GPUs are hidden by a fake, so that every machine gives the
 * same answers. */
#include "test.h"

#include <jansson.h>

#include "tools/devices.h"

static bitnet_devices *open_with(const char *fake)
{
    bitnet_devices_options o;
    bitnet_devices *d = NULL;
    bitnet_error err = {0};
    bitnet_devices_options_init(&o);
    o.gpu_fake = fake;
    bitnet_status st = bitnet_devices_open(&o, &d, &err);
    if (st != BITNET_OK)
        print_error("%s\n", err.message);
    assert_int_equal(st, BITNET_OK);
    return d;
}

static json_t *load(const char *text)
{
    json_error_t e;
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!o)
        print_error("line %d: %s\n%s", e.line, e.text, text);
    assert_non_null(o);
    assert_true(text[strlen(text) - 1] == '\n');
    return o;
}

/* "gpu.available", "devices.0.gpus.0.name"; fails where there is none */
static json_t *at(json_t *o, const char *path)
{
    char part[64];
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, p);
        o = json_is_array(o) ? json_array_get(o, strtoul(part, NULL, 10))
                             : json_object_get(o, part);
        if (!o)
            print_error("no %s in %s\n", part, path);
        assert_non_null(o);
        p += n + (p[n] == '.');
    }
    return o;
}

static void test_DET_1_DET_2_DET_9_info_json(void **state)
{
    static const struct {
        const char *fake;
        bool available, cuda, metal, rocm;
        const char *summary;
    } rows[] = {
        {"", false, false, false, false, "no GPU backend available"},
        {"none", false, false, false, false, "no GPU backend available"},
        {"cuda", true, true, false, false, "cuda 1 device(s) (fake)"},
        {"metal", true, false, true, false, "metal 1 device(s) (fake)"},
        {"rocm,cuda", true, true, false, true, "cuda 1 device(s) (fake), hip 1 device(s) (fake)"},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_devices *d = open_with(rows[i].fake);
        json_t *o = load(bitnet_devices_json(d, BITNET_DEVICES_INFO));
        /* both of the same kind: where a backend is compiled in, another kind's GPU is not meant */
        bool available = json_is_true(at(o, "gpu.compiled")) ? rows[i].cuda : rows[i].available;
        assert_int_equal(json_is_true(at(o, "gpu.available")), available);
        assert_int_equal(json_is_true(at(o, "gpu.present")), rows[i].available);
        for (int k = 0; k < BNET_DEV_CPU; k++) {
            char path[64];
            snprintf(path, sizeof path, "gpu.kinds.%d.available", k);
            assert_int_equal(json_is_true(at(o, path)), d->found.kind[k].available);
            snprintf(path, sizeof path, "gpu.kinds.%d.compiled", k);
            assert_int_equal(json_is_true(at(o, path)), d->found.kind[k].compiled);
            snprintf(path, sizeof path, "gpu.kinds.%d.usable", k);
            assert_true(json_is_false(at(o, path))); /* no fake is */
        }
        assert_int_equal(json_is_true(at(o, "gpu.cuda")), rows[i].cuda);
        assert_int_equal(json_is_true(at(o, "gpu.metal")), rows[i].metal);
        assert_int_equal(json_is_true(at(o, "gpu.rocm")), rows[i].rocm);
        assert_int_equal(json_is_true(at(o, "gpu.wgpu")), rows[i].available);
        assert_true(json_is_boolean(at(o, "gpu.compiled")));
        assert_true(json_is_null(at(o, "gpu.cuda_version")));
        assert_string_equal(json_string_value(at(o, "gpu.summary")), rows[i].summary);
        assert_int_equal(bitnet_devices_gpu_available(d), available);
        assert_int_equal(bitnet_devices_gpu_compiled(d), json_is_true(at(o, "gpu.compiled")));
        assert_non_null(strstr(bitnet_devices_text(d, BITNET_DEVICES_INFO), rows[i].summary));
        json_decref(o);
        bitnet_devices_close(d);
    }
}

static void test_DET_17_D_35_cpu_in_json(void **state)
{
    bitnet_devices *d = open_with("none");
    json_t *o = load(bitnet_devices_json(d, BITNET_DEVICES_INFO));
    (void)state;
    assert_true(json_string_value(at(o, "cpu.name"))[0]);
    assert_true(json_is_array(at(o, "cpu.features")));
    assert_true(json_integer_value(at(o, "cpu.cores.usable")) >= 1);
    assert_true(json_integer_value(at(o, "cpu.cores.logical")) >=
                json_integer_value(at(o, "cpu.cores.physical")));
    assert_true(json_integer_value(at(o, "cpu.numa_nodes")) >= 1);
    assert_true(json_integer_value(at(o, "cpu.memory_bytes.system_total")) > 0);
    assert_true(json_integer_value(at(o, "cpu.memory_bytes.process")) > 0);
    at(o, "cpu.cache_bytes.l1d");
    assert_true(json_is_false(at(o, "fake_ignored")));
#if defined(__aarch64__)
    assert_string_equal(json_string_value(at(o, "cpu.features.0")), "neon");
    assert_non_null(strstr(bitnet_devices_text(d, BITNET_DEVICES_INFO), "features: neon"));
#endif
    json_decref(o);
    bitnet_devices_close(d);
}

static void test_DET_11_BE_9_nine_fields_and_batches_in_json(void **state)
{
    /* a record as the H200's driver gives it, put where the probe would have put it */
    bitnet_devices *d = open_with("cuda");
    bnet_device_status *s = &d->found.kind[BNET_DEV_CUDA];
    bnet_str text = {0};
    (void)state;
    s->fake = false;
    s->runnable = true;
    snprintf(s->version, sizeof s->version, "13.0");
    s->gpus[0] = (bnet_gpu){.device_id = 0,
                            .name = "NVIDIA H200",
                            .cc_major = 9,
                            .total_memory = 150110011392,
                            .multiprocessors = 132,
                            .max_threads_per_block = 1024,
                            .max_shared_memory_per_block = 49152,
                            .fp16 = true,
                            .bf16 = true};
    assert_true(bnet_devices_render_json(d, BITNET_DEVICES_LIST, &text));
    json_t *o = load(text.data), *g = at(o, "devices.0.gpus.0");
    assert_string_equal(json_string_value(at(o, "devices.0.device")), "cuda");
    assert_string_equal(json_string_value(at(o, "devices.0.version")), "13.0");
#ifdef BITNET_HAVE_CUDA
    assert_int_equal(json_integer_value(at(g, "max_batch")), 64); /* as planned, not a constant */
    assert_int_equal(json_integer_value(at(g, "max_pass_tokens")), 1024);
    assert_true(json_is_true(at(g, "usable")) && json_is_null(at(g, "error")));
#endif
    assert_int_equal(json_array_size(at(o, "devices")), BNET_DEV_COUNT);
    assert_int_equal(json_integer_value(at(g, "device_id")), 0);
    assert_string_equal(json_string_value(at(g, "name")), "NVIDIA H200");
    assert_int_equal(json_integer_value(at(g, "compute_capability.0")), 9);
    assert_int_equal(json_integer_value(at(g, "compute_capability.1")), 0);
    assert_int_equal(json_integer_value(at(g, "total_memory")), 150110011392);
    assert_int_equal(json_integer_value(at(g, "multiprocessor_count")), 132);
    assert_int_equal(json_integer_value(at(g, "max_threads_per_block")), 1024);
    assert_int_equal(json_integer_value(at(g, "max_shared_memory_per_block")), 49152);
    assert_true(json_is_true(at(g, "supports_fp16")));
    assert_true(json_is_true(at(g, "supports_bf16")));
    json_decref(o);
    bnet_str_free(&text);
    bitnet_devices_close(d);
}

static void test_a_fake_claims_no_figures(void **state)
{
    bitnet_devices *d = open_with("cuda");
    json_t *o = load(bitnet_devices_json(d, BITNET_DEVICES_LIST));
    (void)state;
    assert_true(json_is_true(at(o, "devices.0.available")));
    assert_true(json_is_true(at(o, "devices.0.fake")));
    assert_true(json_is_false(at(o, "devices.0.runnable")));
    assert_string_equal(json_string_value(at(o, "devices.0.source")), "fake");
    assert_true(json_is_null(at(o, "devices.0.gpus.0.total_memory")));
    assert_true(json_is_null(at(o, "devices.0.gpus.0.compute_capability")));
    assert_non_null(strstr(bitnet_devices_text(d, BITNET_DEVICES_LIST), "available yes (fake)"));
    json_decref(o);
    bitnet_devices_close(d);
}

static void test_DET_7_preflight_views(void **state)
{
    static const char *const fakes[] = {"none", "cuda"};
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(fakes); i++) {
        bitnet_devices *d = open_with(fakes[i]);
        json_t *o = load(bitnet_devices_json(d, BITNET_DEVICES_PREFLIGHT));
        assert_false(bitnet_devices_preflight(d)); /* a fake does not pass either */
        assert_true(json_is_false(at(o, "ok")));
        assert_string_equal(json_string_value(at(o, "error")),
                            d->verdict.status == BITNET_NOT_COMPILED ? "NotCompiled"
                                                                     : "NotAvailableRuntime");
        assert_true(json_string_value(at(o, "why"))[0]);
        assert_null(strstr(bitnet_devices_text(d, BITNET_DEVICES_PREFLIGHT), "NotAvailable"));
        assert_true(json_is_string(at(o, "devices.0.hint")));
        assert_non_null(
            strstr(bitnet_devices_text(d, BITNET_DEVICES_PREFLIGHT), "GPU preflight: no GPU"));
        json_decref(o);
        bitnet_devices_close(d);
    }
}

/* The choice of a runtime, asked as the command does: a value and who gave it. */
static void test_BE_2_BE_6_BE_10_select(void **state)
{
    static const struct {
        const char *fake, *device, *origin;
        bitnet_status status;
        const char *want;
    } rows[] = {
        {"none", NULL, NULL, BITNET_OK, "requested=auto detected=[cpu] selected=cpu"},
        {"none", "cpu", "--device", BITNET_OK, "requested=cpu detected=[cpu] selected=cpu"},
        {"cuda", NULL, NULL, BITNET_OK, "requested=auto detected=[cuda,cpu] selected=cpu"},
        {"cuda", "cuda", "--device", BITNET_NOT_AVAILABLE, "cuda is a fake"},
        {"none", "npu", "BITNET_DEVICE", BITNET_NOT_COMPILED,
         "npu: NPU is not supported by this version"},
        {"none", "bogus", "BITNET_DEVICE", BITNET_ARGUMENT, "BITNET_DEVICE: \"bogus\""},
        {"none", "bogus", "--device", BITNET_ARGUMENT, "--device: \"bogus\""},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_runtime_options o;
        bitnet_runtime *r = NULL;
        bitnet_error err = {0};
        bitnet_runtime_options_init(&o);
        o.n_threads = 1;
        o.fake_gpu = rows[i].fake;
        o.device = rows[i].device;
        o.device_origin = rows[i].origin;
        bitnet_status st = bitnet_runtime_open(&o, &r, &err);
        assert_int_equal(st, rows[i].status);
        if (st == BITNET_OK)
            assert_string_equal(bitnet_runtime_summary(r), rows[i].want);
        else
            assert_non_null(strstr(err.message, rows[i].want));
        bitnet_runtime_close(r);
    }
}

static void test_DET_10_supports(void **state)
{
    bitnet_devices *d = open_with("cuda,metal");
    (void)state;
    assert_true(bitnet_devices_supports(d, "cpu"));
    assert_int_equal(bitnet_devices_supports(d, "cuda"), bitnet_devices_gpu_compiled(d));
    assert_false(bitnet_devices_supports(d, "cuda:7"));
    assert_false(bitnet_devices_supports(d, "metal"));
    assert_false(bitnet_devices_supports(d, "npu"));
    assert_false(bitnet_devices_supports(d, "auto"));
    assert_false(bitnet_devices_supports(d, "bogus"));
    bitnet_devices_close(d);
}

static void test_D_14_strict_and_no_fake(void **state)
{
    bitnet_devices_options o;
    bitnet_devices *d = NULL;
    bitnet_error err = {0};
    (void)state;
    bitnet_devices_options_init(&o);
    o.gpu_fake = "cuda";
    o.no_fake_gpu = true;
    assert_int_equal(bitnet_devices_open(&o, &d, &err), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(err.message, "BITNET_STRICT_NO_FAKE_GPU"));
    assert_null(d);
    o.no_fake_gpu = false;
    o.gpu_fake = "bogus";
    assert_int_equal(bitnet_devices_open(&o, &d, &err), BITNET_ARGUMENT);
    assert_null(d);
}

static void test_options_and_views_out_of_range(void **state)
{
    bitnet_devices_options o;
    bitnet_devices *d = open_with("none");
    bitnet_error err = {0};
    (void)state;
    assert_null(bitnet_devices_text(d, (bitnet_devices_view)3));
    assert_null(bitnet_devices_json(d, (bitnet_devices_view)-1));
    bitnet_devices_close(d);
    bitnet_devices_close(NULL);
    d = NULL;
    bitnet_devices_options_init(&o);
    o.gpu_fake = "none";
    o.tool_deadline_ms = -1;
    assert_int_equal(bitnet_devices_open(&o, &d, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "tool_deadline_ms"));
    o.tool_deadline_ms = 0;
    o.struct_size = 0;
    assert_int_equal(bitnet_devices_open(&o, &d, &err), BITNET_ARGUMENT);
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_DET_1_DET_2_DET_9_info_json),
        cmocka_unit_test(test_DET_17_D_35_cpu_in_json),
        cmocka_unit_test(test_DET_11_BE_9_nine_fields_and_batches_in_json),
        cmocka_unit_test(test_a_fake_claims_no_figures),
        cmocka_unit_test(test_DET_7_preflight_views),
        cmocka_unit_test(test_BE_2_BE_6_BE_10_select),
        cmocka_unit_test(test_DET_10_supports),
        cmocka_unit_test(test_D_14_strict_and_no_fake),
        cmocka_unit_test(test_options_and_views_out_of_range),
    };
    return cmocka_run_group_tests_name("engine/devices", tests, NULL, NULL);
}
