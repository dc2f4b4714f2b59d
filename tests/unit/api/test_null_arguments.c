/* test_null_arguments.c - every function of both headers with NULL for every pointer, and the
 * mixtures that once crashed: ARGUMENT where there is a status, nothing or 0 elsewhere. The last
 * test reads the headers, so that a new function cannot be forgotten here. */
#include <sys/mman.h>
#include <unistd.h>

#include "unit/engine/nano.h"

#include "bitnet_check.h"
#include "bitnet_extras.h"
#include "bitnet_tools.h"

#define REFUSED(call) FAILS(call, BITNET_ARGUMENT, "")

static void test_options(void **state)
{
    (void)state;
    bitnet_runtime_options_init(NULL);
    bitnet_engine_options_init(NULL);
    bitnet_session_options_init(NULL);
    bitnet_sampler_options_init(NULL);
    bitnet_constraints_init(NULL);
    bitnet_stream_options_init(NULL);
    bitnet_generate_options_init(NULL);
    bitnet_kv_pool_options_init(NULL);
    bitnet_receipt_facts_init(NULL);
    bitnet_verify_options_init(NULL);
    bitnet_stats_init(NULL);
    bitnet_kernel_init(NULL);
    bitnet_devices_options_init(NULL);
    bitnet_mempool_options_init(NULL);
    bitnet_validate_options_init(NULL);
    bitnet_health_init(NULL);
    bitnet_limits_init(NULL);
    bitnet_bench_options_init(NULL);
    bitnet_memory_use_init(NULL);
}

static void test_closing(void **state)
{
    (void)state;
    bitnet_runtime_close(NULL);
    bitnet_engine_close(NULL);
    bitnet_session_close(NULL);
    bitnet_sampler_close(NULL);
    bitnet_stream_close(NULL);
    bitnet_kv_pool_close(NULL);
    bitnet_receipt_close(NULL);
    bitnet_inspect_close(NULL);
    bitnet_devices_close(NULL);
    bitnet_mempool_close(NULL);
    bitnet_bridge_close(NULL);
    bitnet_validation_free(NULL);
    bitnet_synthetic_close(NULL);
    bitnet_bench_close(NULL);
}

/* What takes no pointer, or only an index. */
static void test_lists(void **state)
{
    (void)state;
    assert_non_null(bitnet_status_text((bitnet_status)-1));
    assert_non_null(bitnet_version());
    assert_int_equal(bitnet_api_version(), BITNET_API_VERSION);
    assert_non_null(bitnet_finish_text((bitnet_finish)-1));
    assert_null(bitnet_backend_list(-1));
    assert_null(bitnet_template_list(-1));
    assert_null(bitnet_architecture_list(-1));
    assert_null(bitnet_isa_at(-1));
    assert_int_equal(bitnet_isa_self_test("scalar", NULL), BITNET_OK);
    assert_int_equal(bitnet_isa_self_test("", NULL), BITNET_ARGUMENT);
    (void)bitnet_cpu_is_virtual();
    assert_false(bitnet_kernel_at(0, NULL));
    assert_false(bitnet_kernel_at(-1, &(bitnet_kernel_info){0}));
    assert_false(bitnet_gate_at(0, NULL, NULL));
    assert_int_equal(bitnet_quantized_bytes((bitnet_qtype)-1, 0), 0);
    assert_int_equal(bitnet_i2s_trit(3), 0);
    assert_false(bitnet_compare_times(0, 0, false, 0).release_gate);
}

static void test_engine(void **state)
{
    (void)state;
    bitnet_kernel_use use;
    size_t n = 7;
    REFUSED(bitnet_runtime_open(NULL, NULL, &err));
    assert_int_equal(bitnet_runtime_threads(NULL), 0);
    assert_false(bitnet_engine_pin_caller(NULL));
    assert_null(bitnet_runtime_summary(NULL));
    REFUSED(bitnet_engine_open(NULL, NULL, NULL, NULL, &err));
    REFUSED(bitnet_engine_open_memory(NULL, NULL, 0, NULL, NULL, &err));
    assert_null(bitnet_engine_model(NULL));
    assert_null(bitnet_engine_map(NULL, NULL));
    bitnet_limit_set(NULL, 1);
    bitnet_limit_end(NULL);
    assert_false(bitnet_limit_reached(NULL));
    assert_int_equal(bitnet_engine_kernels(NULL, &use, 1), 0);
    assert_int_equal(bitnet_engine_kernels(NULL, NULL, 1), 0);
    REFUSED(bitnet_engine_stats(NULL, NULL, &err));
    bitnet_engine_stats_reset(NULL);
    REFUSED(bitnet_engine_warmup(NULL, NULL, &err));
    assert_int_equal(bitnet_stats_summary(NULL, NULL, 9), 0);
    assert_false(bitnet_stats_gpu_effective(NULL));
    REFUSED(bitnet_tokenize(NULL, NULL, 0, 0, NULL, 0, NULL, &err));
    REFUSED(bitnet_detokenize(NULL, NULL, 0, 0, NULL, 0, NULL, &err));
    assert_null(bitnet_token_bytes(NULL, 0, NULL));
    assert_null(bitnet_token_bytes(NULL, 0, &n));
    assert_int_equal(n, 0);
    assert_false(bitnet_token_special(NULL, 0));
    assert_false(bitnet_token_stops(NULL, 0));
    REFUSED(bitnet_chat_render(NULL, NULL, NULL, 0, true, NULL, 0, NULL, &err));
    REFUSED(bitnet_chat_render_json(NULL, NULL, NULL, 0, NULL, 0, NULL, &err));
    bitnet_chat_features_init(NULL);
    REFUSED(bitnet_chat_features_get(NULL, NULL, NULL, &err));
    REFUSED(bitnet_template_render(NULL, 0, NULL, 0, NULL, 0, NULL, &err));
    REFUSED(bitnet_grammar_open(NULL, BITNET_GRAMMAR_GBNF, NULL, 0, NULL, &err));
    bitnet_grammar_close(NULL);
    REFUSED(bitnet_matcher_open(NULL, true, NULL, &err));
    REFUSED(bitnet_matcher_fork(NULL, NULL, &err));
    bitnet_matcher_close(NULL);
    REFUSED(bitnet_matcher_mask(NULL, NULL, 0, &err));
    REFUSED(bitnet_matcher_accept(NULL, 0, &err));
    assert_false(bitnet_matcher_done(NULL));
    REFUSED(bitnet_matcher_constrain(NULL, NULL, NULL, 0, &err));
    REFUSED(bitnet_receipt_open(NULL, NULL, &err));
    REFUSED(bitnet_receipt_write(NULL, NULL, NULL, &err));
    REFUSED(bitnet_receipt_digest(NULL, NULL, NULL, &err));
    REFUSED(bitnet_receipt_write_to(NULL, NULL, NULL, NULL, &err));
    REFUSED(bitnet_receipt_verify(NULL, NULL, NULL, &err));
    REFUSED(bitnet_receipt_key(NULL, NULL, &err));
    REFUSED(bitnet_receipt_sign(NULL, NULL, &err));
}

static void test_session(void **state)
{
    (void)state;
    int32_t id = 1;
    REFUSED(bitnet_session_memory(NULL, NULL, NULL, &err));
    REFUSED(bitnet_session_open(NULL, NULL, NULL, &err));
    bitnet_session_on_cancel(NULL, NULL, NULL);
    bitnet_session_on_progress(NULL, NULL, NULL);
    REFUSED(bitnet_session_append(NULL, &id, 1, NULL, NULL, &err));
    REFUSED(bitnet_session_append(NULL, NULL, 0, NULL, NULL, &err));
    REFUSED(bitnet_session_sync(NULL, NULL, 0, NULL, &err));
    REFUSED(bitnet_session_rewind(NULL, 0, &err));
    REFUSED(bitnet_session_fork(NULL, 0, NULL, &err));
    assert_int_equal(bitnet_session_position(NULL), 0);
    assert_int_equal(bitnet_session_cached(NULL), 0);
    assert_int_equal(bitnet_session_context(NULL), 0);
    assert_int_equal(bitnet_session_cached(NULL), 0);
    assert_null(bitnet_session_tokens(NULL));
    assert_null(bitnet_session_logits(NULL));
    REFUSED(bitnet_session_save(NULL, NULL, &err));
    REFUSED(bitnet_session_load(NULL, NULL, &err));
    REFUSED(bitnet_session_save_to(NULL, NULL, NULL, &err));
    REFUSED(bitnet_session_load_memory(NULL, NULL, 0, &err));
    assert_int_equal(bitnet_session_kernels(NULL, NULL, 0), 0);
    bitnet_batch_options_init(NULL);
    bitnet_batch_item_init(NULL);
    REFUSED(bitnet_batch_open(NULL, NULL, NULL, &err));
    REFUSED(bitnet_batch_step(NULL, NULL, 0, &err));
    assert_int_equal(bitnet_batch_tokens(NULL), 0);
    bitnet_batch_close(NULL);
    REFUSED(bitnet_kv_pool_open(NULL, NULL, NULL, &err));
    bitnet_kv_pool_read(NULL, NULL);
    REFUSED(bitnet_session_publish(NULL, 0, &err));
    REFUSED(bitnet_session_publish_all(NULL, 0, &err));
    REFUSED(bitnet_session_reuse(NULL, 0, &id, 1, NULL, &err));
    REFUSED(bitnet_sampler_open(NULL, 10, NULL, &err));
    REFUSED(bitnet_sampler_pick(NULL, NULL, NULL, 0, NULL, &err));
    REFUSED(bitnet_sampler_constrain(NULL, NULL, &err));
    bitnet_sampler_save(NULL, NULL);
    REFUSED(bitnet_stream_open(NULL, NULL, NULL, &err));
    REFUSED(bitnet_stream_push(NULL, 0, NULL, NULL, NULL, &err));
    REFUSED(bitnet_stream_finish(NULL, NULL, NULL, &err));
    bitnet_stream_reset(NULL);
    REFUSED(bitnet_logprobs(NULL, 1, NULL, 0, NULL, 0, &err));
    REFUSED(bitnet_logprobs(&(float){0}, 1, NULL, 1, NULL, 0, &err));
    REFUSED(bitnet_logprobs(&(float){0}, 1, NULL, 0, NULL, 1, &err));
    bitnet_sampler_restore(NULL, NULL);
    REFUSED(bitnet_generate(NULL, NULL, NULL, 0, NULL, NULL, &err));
    REFUSED(bitnet_score(NULL, NULL, 0, 0, NULL, &err));
}

static void test_tools(void **state)
{
    (void)state;
    char path[] = "/nonexistent";
    REFUSED(bitnet_inspect_open(NULL, NULL, &err));
    assert_int_equal(bitnet_inspect_version(NULL), 0);
    assert_int_equal(bitnet_inspect_file_bytes(NULL), 0);
    assert_int_equal(bitnet_inspect_n_kv(NULL), 0);
    assert_int_equal(bitnet_inspect_n_tensors(NULL), 0);
    assert_false(bitnet_inspect_kv_at(NULL, 0, NULL));
    assert_false(bitnet_inspect_tensor_at(NULL, 0, NULL));
    REFUSED(bitnet_inspect_stats(NULL, 0, NULL, &err));
    REFUSED(bitnet_cache_list(NULL, NULL, NULL, &err));
    REFUSED(bitnet_cache_list(".", NULL, NULL, &err));
    REFUSED(bitnet_cache_clear(NULL, NULL, NULL, &err));
    REFUSED(bitnet_file_sha256(NULL, NULL, &err));
    REFUSED(bitnet_file_sha256(path, NULL, &err));
    REFUSED(bitnet_kernel_register(NULL, NULL, &err));
    assert_false(bitnet_runtime_has_kernel(NULL, NULL, NULL, NULL, NULL));
    assert_false(bitnet_runtime_has_kernel(NULL, NULL, "linear", "i2s", "i8"));
    REFUSED(bitnet_runtime_select(NULL, NULL, NULL, &err));
    REFUSED(bitnet_kernels_json(NULL, NULL, NULL, 0, NULL, &err));
    assert_false(bitnet_provider_at(NULL, 0, NULL));
    assert_null(bitnet_runtime_provider(NULL));
    assert_int_equal(bitnet_engine_shapes(NULL, NULL, 1), 0);
    REFUSED(bitnet_runtime_tune(NULL, NULL, 0, 0, NULL, NULL, NULL, &err));
    assert_int_equal(bitnet_engine_fallbacks(NULL), 0);
    REFUSED(bitnet_bridge_open(NULL, NULL, &err));
    REFUSED(bitnet_bridge_compare_matmul(NULL, NULL, 1, 1, 1, NULL, &err));
    REFUSED(bitnet_bridge_compare_quantize(NULL, NULL, BITNET_QTYPE_I2S, 1, NULL, &err));
    REFUSED(bitnet_bridge_compare_linear(NULL, NULL, 1, 1, 128, NULL, NULL, &err));
    REFUSED(bitnet_bridge_serve(NULL, NULL, &err));
    REFUSED(bitnet_validate(NULL, NULL, NULL, &err));
    REFUSED(bitnet_validation_json(NULL, NULL, 0, NULL, &err));
    REFUSED(bitnet_health_check(NULL, NULL, &err));
    assert_int_equal(bitnet_health_json(NULL, NULL, 1), 0);
    assert_false(bitnet_synthetic_at(0, NULL));
    REFUSED(bitnet_synthetic_open(NULL, NULL, NULL, &err));
    assert_null(bitnet_synthetic_name(NULL));
    REFUSED(bitnet_synthetic_engine(NULL, NULL, NULL, NULL, &err));
    REFUSED(bitnet_synthetic_save(NULL, NULL, &err));
    REFUSED(bitnet_limits_measure(NULL, NULL, &err));
    assert_false(bitnet_bench_parse(NULL, NULL));
    assert_false(bitnet_bench_parse("pp1", NULL));
    REFUSED(bitnet_bench_open(NULL, NULL, NULL, &err));
    REFUSED(bitnet_bench_once(NULL, NULL, NULL, &err));
    assert_int_equal(bitnet_bench_kernels(NULL, NULL, 1), 0);
    bitnet_bench_forget(NULL);
    assert_int_equal(bitnet_summarize(NULL, 3).n, 0);
    assert_int_equal(bitnet_engine_token_bytes(NULL), 0);
    assert_int_equal(bitnet_engine_token_ops(NULL), 0);
    REFUSED(bitnet_bench_profile(NULL, NULL, NULL, 0, NULL, NULL, &err));
    REFUSED(bitnet_bench_kernel_times(NULL, NULL, NULL, 0, NULL, NULL, &err));
    assert_int_equal(bitnet_bench_memory(NULL), 0);
    REFUSED(bitnet_engine_memory_use(NULL, NULL, &err));
    REFUSED(bitnet_bench_each_kernel(NULL, 1, 1, NULL, NULL, &err));
    REFUSED(bitnet_baseline_compare(NULL, 1, NULL, 1, 0.05, NULL, NULL, NULL, &err));
    REFUSED(bitnet_baseline_compare(NULL, 0, NULL, 0, 0.05, NULL, NULL, NULL, &err));
}

static void test_reference_operations(void **state)
{
    (void)state;
    const bitnet_matmul item = {.n_a = 1, .n_b = 1, .n_c = 1, .m = 1, .n = 1, .k = 1};
    REFUSED(bitnet_matmul_i2s(NULL, 1, NULL, 1, NULL, 1, 1, 1, 1, &err));
    assert_int_equal(bitnet_batch_matmul_i2s(NULL, 0, NULL), BITNET_OK);
    REFUSED(bitnet_batch_matmul_i2s(NULL, 1, &err));
    REFUSED(bitnet_batch_matmul_i2s(&item, 1, &err));
    REFUSED(
        bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMEAN, NULL, 4, NULL, 1, NULL, 1, &err));
    REFUSED(bitnet_dequantize(BITNET_QTYPE_I2S, NULL, 1, 4, NULL, 1, NULL, &err));
    bitnet_i2s_unpack(NULL, 4, NULL);
    REFUSED(bitnet_qk256_gemv(NULL, 64, NULL, 0, 1, 256, NULL, BITNET_CODES_TERNARY, NULL, &err));
    REFUSED(bitnet_bitnet32_decode(NULL, 10, 32, BITNET_CODES_OFFSET, NULL, &err));
    REFUSED(bitnet_bitnet32_gemv(NULL, 10, 1, 32, NULL, BITNET_CODES_OFFSET, NULL, &err));
}

static void test_single_operations(void **state)
{
    (void)state;
    REFUSED(bitnet_ops_open(NULL, BITNET_PRECISION_FP32, NULL, &err));
    bitnet_ops_close(NULL);
    assert_null(bitnet_ops_provider(NULL));
    assert_int_equal(bitnet_ops_precision(NULL), BITNET_PRECISION_FP32);
    bitnet_ops_stats_init(NULL);
    REFUSED(bitnet_ops_read(NULL, NULL, &err));
    REFUSED(bitnet_ops_matmul_i2s(NULL, NULL, &err));
    REFUSED(bitnet_ops_batch_matmul_i2s(NULL, NULL, 1, &err));
    REFUSED(bitnet_ops_quantize(NULL, BITNET_QTYPE_I2S, BITNET_SCALE_ABSMEAN, NULL, 1, NULL, 1,
                                NULL, 1, &err));
    REFUSED(bitnet_ops_qk256_gemv(NULL, NULL, 64, NULL, 0, 1, 256, NULL, BITNET_CODES_TERNARY, NULL,
                                  &err));
    REFUSED(bitnet_ops_matmul(NULL, NULL, NULL, NULL, 1, 1, 1, &err));
    REFUSED(bitnet_ops_convert(NULL, BITNET_F32_TO_F16, NULL, 1, NULL, &err));
    REFUSED(bitnet_ops_vector(NULL, BITNET_VECTOR_ADD, NULL, NULL, 1, NULL, &err));
    REFUSED(bitnet_ops_softmax(NULL, NULL, 1, 1, NULL, &err));
    REFUSED(bitnet_ops_argmax(NULL, NULL, 1, 1, NULL, &err));
    bitnet_single_info info;
    REFUSED(bitnet_single_open(NULL, BITNET_PRECISION_FP32, NULL, &err));
    REFUSED(bitnet_single_run(NULL, NULL, 1, &err));
    OK(bitnet_single_run(NULL, NULL, 0, &err));
    bitnet_single_read(NULL, &info);
    bitnet_single_close(NULL);
    assert_string_equal(bitnet_precision_text((bitnet_precision)9), "unknown");
}

static void test_devices_and_pools(void **state)
{
    (void)state;
    bitnet_mempool *pool = NULL;
    char held;
    REFUSED(bitnet_devices_open(NULL, NULL, &err));
    assert_null(bitnet_devices_text(NULL, BITNET_DEVICES_INFO));
    assert_null(bitnet_devices_json(NULL, BITNET_DEVICES_INFO));
    assert_false(bitnet_devices_preflight(NULL));
    assert_false(bitnet_devices_gpu_compiled(NULL));
    assert_false(bitnet_devices_gpu_available(NULL));
    assert_false(bitnet_devices_supports(NULL, NULL));
    assert_false(bitnet_devices_supports(NULL, "cpu"));
    REFUSED(bitnet_mempool_open(NULL, NULL, &err));
    assert_int_equal(bitnet_mempool_device_id(NULL), 0);
    REFUSED(bitnet_mempool_alloc_at(NULL, 1, NULL, 0, NULL, &err));
    REFUSED(bitnet_mempool_free(NULL, &held, &err));
    assert_int_equal(bitnet_mempool_free(NULL, NULL, NULL), BITNET_OK);
    assert_int_equal(bitnet_mempool_cleanup(NULL, true), 0);
    bitnet_mempool_read(NULL, NULL);
    assert_int_equal(bitnet_mempool_leaks(NULL, NULL, 1), 0);
    REFUSED(bitnet_host_memory_read(NULL, &err));
    assert_null(bitnet_cuda_image(SIZE_MAX));
    assert_int_equal(bitnet_access_pattern(NULL, 0).kind, BITNET_ACCESS_SEQUENTIAL);
    bitnet_status st = bitnet_memory_health(NULL, 0, NULL);
    assert_true(st == BITNET_OK || st == BITNET_MEMORY_GATE);
    OK(bitnet_mempool_open(NULL, &pool, &err));
    REFUSED(bitnet_mempool_alloc_at(pool, 1, NULL, 0, NULL, &err));
    bitnet_mempool_read(pool, NULL);
    assert_int_equal(bitnet_mempool_leaks(pool, NULL, 1), 0);
    bitnet_mempool_close(pool);
}

/* Real objects with NULL beside them. */
static void test_cuda(void **state)
{
    (void)state;
    double ms;
    REFUSED(bitnet_cuda_open(0, NULL, &err));
    REFUSED(bitnet_cuda_open(-1, (bitnet_cuda **)&ms, &err));
    bitnet_cuda_close(NULL);
    assert_null(bitnet_cuda_context(NULL));
    assert_null(bitnet_cuda_stream(NULL, 0));
    REFUSED(bitnet_cuda_module_load(NULL, NULL, NULL, &err));
    bitnet_cuda_module_free(NULL);
    assert_null(bitnet_cuda_module_handle(NULL));
    REFUSED(bitnet_cuda_kernel(NULL, NULL, NULL, NULL, &err));
    assert_null(bitnet_cuda_allocator(NULL).take);
    assert_null(bitnet_cuda_host_alloc(NULL, 1));
    bitnet_cuda_host_free(NULL, NULL);
    bitnet_work_options_init(NULL);
    REFUSED(bitnet_work_submit(NULL, NULL, NULL, &err));
    assert_false(bitnet_work_done(NULL));
    REFUSED(bitnet_work_wait(NULL, &err));
    REFUSED(bitnet_work_times(NULL, &ms, &ms, &err));
    bitnet_work_free(NULL);
}

static void test_mixed(void **state)
{
    (void)state;
    nano m = nano_open(1);
    bitnet_session *s = nano_session(&m, 64, 0, BITNET_KV_F16);
    bitnet_kernel_use use[4];
    bitnet_stats stats;
    bitnet_health health;
    bitnet_inspect *file = NULL;
    REFUSED(bitnet_session_append(s, NULL, 1, NULL, NULL, &err));
    REFUSED(bitnet_session_sync(s, NULL, 1, NULL, &err));
    REFUSED(bitnet_session_save(s, NULL, &err));
    REFUSED(bitnet_session_load(s, NULL, &err));
    assert_true(bitnet_engine_kernels(m.engine, NULL, 4) <= 64);
    assert_true(bitnet_engine_kernels(m.engine, use, 4) <= 64);
    bitnet_stats_init(&stats);
    assert_true(bitnet_stats_summary(&stats, NULL, 9) > 0);
    bitnet_health_init(&health);
    assert_true(bitnet_health_json(&health, NULL, 9) > 0);
    assert_int_equal(bitnet_engine_shapes(m.engine, NULL, 1), 0);
    assert_false(bitnet_provider_at(m.runtime, 0, NULL));
    REFUSED(bitnet_engine_open(m.runtime, NULL, NULL, NULL, &err));
    REFUSED(bitnet_generate(s, NULL, NULL, 0, NULL, NULL, &err));
    OK(bitnet_inspect_open(NANO_PATH, &file, &err));
    assert_false(bitnet_inspect_kv_at(file, 0, NULL));
    assert_false(bitnet_inspect_tensor_at(file, 0, NULL));
    REFUSED(bitnet_inspect_stats(file, 0, NULL, &err));
    bitnet_inspect_close(file);
    bitnet_session_close(s);
    nano_close(&m);
}

/* More ids than the context holds are refused before any is read: here reading them would crash. */
static void test_many_ids(void **state)
{
    (void)state;
    nano m = nano_open(1);
    bitnet_session *s = nano_session(&m, 64, 0, BITNET_KV_F16);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(closed != MAP_FAILED);
    FAILS(bitnet_session_append(s, closed, SIZE_MAX / 8, NULL, NULL, &err), BITNET_CONTEXT, "fit");
    FAILS(bitnet_session_sync(s, closed, 65, NULL, &err), BITNET_CONTEXT, "fit");
    assert_int_equal(bitnet_session_position(s), 0);
    munmap(closed, page);
    bitnet_session_close(s);
    nano_close(&m);
}

static char *read_source(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", TEST_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (!f || !text || fread(text, 1, (1 << 20) - 1, f) == 0)
        fail_msg("cannot read %s", path);
    fclose(f);
    return text;
}

/* The calls of this file, by name and "(". */
static int count_missing(const char *header, const char *calls)
{
    int n_missing = 0, n_found = 0;
    for (const char *p = header; (p = strstr(p, "\nBITNET_API ")) != NULL;) {
        char call[128];
        p += 12;
        const char *open = strchr(p, '('), *name = open;
        while (name > p && strchr("abcdefghijklmnopqrstuvwxyz_0123456789", name[-1]))
            name--;
        snprintf(call, sizeof call, "%.*s(", (int)(open - name), name);
        n_found++;
        if (!strstr(calls, call)) {
            print_error("%s is not called with NULL\n", call);
            n_missing++;
        }
    }
    return n_found < 10 ? -1 : n_missing;
}

static void test_every_function_is_here(void **state)
{
    (void)state;
    char *calls = read_source("tests/unit/api/test_null_arguments.c");
    static const char *const headers[] = {"include/bitnet.h", "include/bitnet_tools.h",
                                          "include/bitnet_kernel.h", "include/bitnet_check.h",
                                          "extras/bitnet_extras.h"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        char *header = read_source(headers[i]);
        assert_int_equal(count_missing(header, calls), 0);
        free(header);
    }
    free(calls);
}

/* NULL with a size of 0 is nothing, as an address with a size of 0 is: no complaint about NULL. */
static void test_nothing(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = nano_session(&n, 16, 0, BITNET_KV_F16);
    bitnet_engine *e = NULL;
    bitnet_batch *b = NULL;
    size_t count = 7;
    FAILS(bitnet_engine_open_memory(n.runtime, NULL, 0, NULL, &e, &err), BITNET_MODEL, "");
    REFUSED(bitnet_engine_open_memory(n.runtime, NULL, 1, NULL, &e, &err));
    FAILS(bitnet_session_load_memory(s, NULL, 0, &err), BITNET_MODEL, "not a session file");
    REFUSED(bitnet_session_load_memory(s, NULL, 1, &err));
    OK(bitnet_tokenize(n.engine, NULL, 0, 0, NULL, 0, &count, &err));
    assert_int_equal(count, 0);
    OK(bitnet_detokenize(n.engine, NULL, 0, 0, NULL, 0, &count, &err));
    OK(bitnet_chat_render(n.engine, "raw", NULL, 0, true, NULL, 0, &count, &err));
    assert_int_equal(count, 0);
    OK(bitnet_session_append(s, NULL, 0, NULL, NULL, &err));
    OK(bitnet_session_sync(s, NULL, 0, &count, &err));
    OK(bitnet_session_reuse(s, 0, NULL, 0, &count, &err));
    OK(bitnet_batch_open(n.engine, NULL, &b, &err));
    OK(bitnet_batch_step(b, NULL, 0, &err));
    assert_int_equal(bitnet_session_kernels(s, NULL, 0), 0);
    bitnet_batch_close(b);
    bitnet_session_close(s);
    nano_close(&n);
}

/* The same for extras; sizes that lie beside a 0 may be anything. */
static void test_nothing_in_extras(void **state)
{
    (void)state;
    const size_t huge = SIZE_MAX, k = 3;
    nano n = nano_open(1);
    bitnet_ops *o = NULL;
    const bitnet_matmul empty[] = {{.m = huge}, {.n = huge}, {.m = huge, .k = 0, .n = 0}};
    bitnet_single_op one = {.op = BITNET_SINGLE_MATMUL_I2S, .n = huge};
    float c[6] = {7, 7, 7, 7, 7, 7}, x = 1;
    int32_t id = 5;
    OK(bitnet_ops_open(n.runtime, BITNET_PRECISION_FP32, &o, &err));
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        OK(bitnet_matmul_i2s(NULL, 0, NULL, 0, NULL, 0, empty[i].m, empty[i].n, 0, &err));
        OK(bitnet_ops_matmul_i2s(o, &empty[i], &err));
    }
    OK(bitnet_matmul_i2s(NULL, 0, NULL, 0, c, 6, 2, 3, 0, &err)); /* sums of nothing */
    for (size_t i = 0; i < 6; i++)
        assert_true(c[i] == 0);
    REFUSED(bitnet_matmul_i2s(NULL, 3, NULL, 0, NULL, 0, 1, 0, k, &err));
    OK(bitnet_batch_matmul_i2s(NULL, 0, &err));
    OK(bitnet_batch_matmul_i2s(empty, 3, &err));
    OK(bitnet_ops_batch_matmul_i2s(o, NULL, 0, &err));
    OK(bitnet_ops_batch_matmul_i2s(o, empty, 3, &err));
    OK(bitnet_single_run(NULL, &one, 1, &err));
    one = (bitnet_single_op){.op = BITNET_SINGLE_SOFTMAX, .m = huge};
    OK(bitnet_single_run(NULL, &one, 1, &err));
    OK(bitnet_single_run(NULL, NULL, 0, &err));
    OK(bitnet_ops_matmul(o, NULL, NULL, NULL, 0, 0, 0, &err));
    OK(bitnet_ops_matmul(o, NULL, &x, NULL, 0, 1, 1, &err));
    OK(bitnet_ops_matmul(o, NULL, NULL, c, 1, 1, 0, &err));
    REFUSED(bitnet_ops_matmul(o, NULL, &x, c, 1, 1, 1, &err));
    OK(bitnet_ops_convert(o, BITNET_F32_TO_F16, NULL, 0, NULL, &err));
    REFUSED(bitnet_ops_convert(o, BITNET_F32_TO_F16, NULL, 1, c, &err));
    OK(bitnet_ops_vector(o, BITNET_VECTOR_ADD, NULL, NULL, 0, NULL, &err));
    REFUSED(bitnet_ops_vector(o, BITNET_VECTOR_ADD, &x, NULL, 1, c, &err));
    OK(bitnet_ops_softmax(o, NULL, 0, 5, NULL, &err));
    OK(bitnet_ops_argmax(o, NULL, 1, 0, &id, &err));
    assert_int_equal(id, -1);
    OK(bitnet_ops_argmax(o, NULL, 0, 5, NULL, &err));
    REFUSED(bitnet_ops_argmax(o, NULL, 1, 1, &id, &err));
    OK(bitnet_qk256_gemv(NULL, 0, NULL, 0, 0, 0, NULL, BITNET_CODES_TERNARY, NULL, &err));
    OK(bitnet_ops_qk256_gemv(o, NULL, 0, NULL, 0, 0, 0, NULL, BITNET_CODES_TERNARY, NULL, &err));
    OK(bitnet_qk256_gemv(NULL, 0, NULL, 0, 1, 0, NULL, BITNET_CODES_TERNARY, c, &err));
    OK(bitnet_bitnet32_decode(NULL, 0, 0, BITNET_CODES_TERNARY, NULL, &err));
    OK(bitnet_bitnet32_gemv(NULL, 0, 0, 0, NULL, BITNET_CODES_TERNARY, NULL, &err));
    FAILS(bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, NULL, 0, NULL, 0, NULL, 0, &err),
          BITNET_ARGUMENT, "0 values");
    assert_int_equal(bitnet_access_pattern(NULL, 3).kind, BITNET_ACCESS_SEQUENTIAL);
    bitnet_ops_close(o);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_nothing_in_extras),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_closing),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_reference_operations),
        cmocka_unit_test(test_single_operations),
        cmocka_unit_test(test_devices_and_pools),
        cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_many_ids),
        cmocka_unit_test(test_every_function_is_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
