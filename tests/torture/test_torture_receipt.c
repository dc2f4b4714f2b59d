/* Every allocation fails once: opening, a step that falls back, statistics, a receipt
 * written. JSON is not read here: jansson's parser (2.14) frees twice when it gets no memory. */
#include "torture/torture.h"
#include "bitnet_check.h"

#include <openssl/err.h>

#include "bench/read_limit.h"
#include "unit/engine/broken.h"

static const char model[] = TEST_SOURCE_DIR "/models/nano.gguf",
                  receipt[] = TEST_BINARY_DIR "/torture_receipt.json";

/* The linker puts it in the place of bnet_read_limit (tests/CMakeLists.txt), which measures for 50
 * ms and allocates nothing. */
double __wrap_bnet_read_limit(const bitnet_engine *e);
double __wrap_bnet_read_limit(const bitnet_engine *e)
{
    (void)e;
    return 10;
}

typedef struct parts {
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    bitnet_session *session;
    bitnet_receipt *receipt;
} parts;

static bitnet_status open_parts(parts *p, bitnet_error *err)
{
    bitnet_runtime_options o;
    bitnet_session_options so;
    bitnet_runtime_options_init(&o);
    bitnet_session_options_init(&so);
    o.n_threads = 1;
    o.fake_gpu = "none";
    o.statistics = true;
    so.n_ctx = 16;
    so.n_batch = 4;
    bitnet_status st = bitnet_runtime_open(&o, &p->runtime, err);
    if (st == BITNET_OK)
        st = bitnet_engine_open(p->runtime, model, NULL, &p->engine, err);
    if (st == BITNET_OK)
        st = bitnet_session_open(p->engine, &so, &p->session, err);
    return st == BITNET_OK ? bitnet_receipt_open(p->engine, &p->receipt, err) : st;
}

static bitnet_status tell(parts *p, bitnet_error *err)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    bitnet_status st = bitnet_engine_stats(p->engine, &s, err);
    return st == BITNET_OK ? bitnet_receipt_write(p->receipt, NULL, receipt, err) : st;
}

static bitnet_status story(void *user, bitnet_error *err)
{
    const int32_t ids[] = {1, 2, 3, 4, 5, 6};
    (void)user;
    parts p = {0};
    bitnet_status st = open_parts(&p, err);
    if (st == BITNET_OK) {
        break_engine(p.engine, 2, false);
        st = bitnet_session_append(p.session, ids, 6, NULL, NULL, err);
    }
    if (st == BITNET_OK)
        st = tell(&p, err);
    bitnet_receipt_close(p.receipt);
    bitnet_session_close(p.session);
    bitnet_engine_close(p.engine);
    bitnet_runtime_close(p.runtime);
    ERR_clear_error(); /* libcrypto keeps failures for whoever asks */
    return st;
}

static void test_falling_back(void **state)
{
    (void)state;
    torture(story, NULL, false, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_falling_back),
    };
    return cmocka_run_group_tests_name("torture/receipt", tests, NULL, NULL);
}
