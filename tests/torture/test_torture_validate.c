/* Every allocation of a health check, of a comparison through the bridge and of baselines fails
 * once; those of a whole validation in steps, since it has thousands. */
#include "torture/torture.h"

#include "bitnet_check.h"
#include "bitnet_tools.h"

#define MODEL TEST_SOURCE_DIR "/models/nano.gguf"

static bitnet_status open_runtime(bitnet_runtime **out, bitnet_error *err)
{
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.fake_gpu = "none"; /* no driver of this machine is loaded */
    return bitnet_runtime_open(&o, out, err);
}

static bitnet_status check_health(void *user, bitnet_error *err)
{
    bitnet_engine *e = user;
    bitnet_health h;
    char json[600];
    bitnet_health_init(&h);
    bitnet_status st = bitnet_health_check(e, &h, err);
    if (st == BITNET_OK && (!h.compute_ok || !h.cache_ok))
        fail_msg("%s", h.detail);
    if (st == BITNET_OK && bitnet_health_json(&h, json, sizeof json) == 0) {
        *err = (bitnet_error){BITNET_MEMORY, "no memory for the text"};
        st = BITNET_MEMORY;
    }
    return st;
}

static void test_V_6_health(void **state)
{
    (void)state;
    bitnet_runtime *r = NULL;
    bitnet_engine *e = NULL;
    bitnet_error err;
    assert_int_equal(open_runtime(&r, &err), BITNET_OK);
    assert_int_equal(bitnet_engine_open(r, MODEL, NULL, &e, &err), BITNET_OK);
    torture(check_health, e, false, 1);
    torture(check_health, e, true, 1);
    bitnet_engine_close(e);
    bitnet_runtime_close(r);
}

typedef struct crossing {
    bitnet_runtime *runtime;
    bitnet_bridge *bridge;
} crossing;

static bitnet_status cross_bridge(void *user, bitnet_error *err)
{
    const crossing *c = user;
    bitnet_comparison out;
    bitnet_status st = bitnet_bridge_compare_matmul(c->runtime, c->bridge, 3, 4, 5, &out, err);
    if (st == BITNET_OK)
        st =
            bitnet_bridge_compare_quantize(c->runtime, c->bridge, BITNET_QTYPE_I2S, 300, &out, err);
    if (st == BITNET_OK)
        st = bitnet_bridge_compare_linear(c->runtime, c->bridge, 2, 4, 128, NULL, &out, err);
    return st;
}

/* Opened before: the dynamic loader keeps what it allocates for its own messages. */
static void test_F_1_bridge(void **state)
{
    (void)state;
    crossing c = {NULL, NULL};
    bitnet_error err;
    assert_int_equal(open_runtime(&c.runtime, &err), BITNET_OK);
    assert_int_equal(bitnet_bridge_open(TEST_BINARY_DIR "/bridge/good.so", &c.bridge, &err),
                     BITNET_OK);
    torture(cross_bridge, &c, false, 1);
    torture(cross_bridge, &c, true, 1);
    bitnet_bridge_close(c.bridge);
    bitnet_runtime_close(c.runtime);
}

static bitnet_status compare_lines(void *user, bitnet_error *err)
{
    (void)user;
    static const char lines[] =
        "{\"name\": \"a\", \"value\": 1}\n{\"name\": \"b\", \"value\": 2}\n";
    bitnet_status st = bitnet_baseline_compare(lines, sizeof lines - 1, lines, sizeof lines - 1,
                                               0.05, NULL, NULL, NULL, err);
    /* jansson does not tell a lack of memory from a text that is no JSON */
    return st == BITNET_ARGUMENT ? (err->status = BITNET_MEMORY) : st;
}

static void test_V_8_baselines(void **state)
{
    (void)state;
    torture(compare_lines, NULL, false, 1);
}

typedef struct validating {
    bitnet_runtime *runtime;
    const char *kernel, *model; /* NULL: all kernels; no model */
} validating;

static bitnet_status validate(void *user, bitnet_error *err)
{
    const validating *u = user;
    bitnet_validate_options o;
    bitnet_validation *v = NULL;
    bitnet_validate_options_init(&o);
    o.quick = true;
    o.kernel = u->kernel;
    o.model_path = u->model;
    bitnet_status st = bitnet_validate(u->runtime, &o, &v, err);
    bitnet_validation_free(v);
    return st;
}

static void test_V_1_validation(void **state)
{
    (void)state;
    validating all = {.model = MODEL}, one = {.kernel = "linear_q6_k.scalar"};
    bitnet_error err;
    assert_int_equal(open_runtime(&all.runtime, &err), BITNET_OK);
    one.runtime = all.runtime;
    torture(validate, &one, false, 7);
    torture(validate, &all, false, 39989);
    bitnet_runtime_close(all.runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_V_6_health),
        cmocka_unit_test(test_F_1_bridge),
        cmocka_unit_test(test_V_8_baselines),
        cmocka_unit_test(test_V_1_validation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
