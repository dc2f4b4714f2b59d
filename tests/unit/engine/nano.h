/* nano.h - the nano model opened for a test, with the messages of failures printed. */
#ifndef BNET_TEST_NANO_H
#define BNET_TEST_NANO_H

#include "test.h"

#include "bitnet.h"
#include "unit/engine/step.h"

#define NANO_PATH TEST_SOURCE_DIR "/models/nano.gguf"

/* Fails the test with the library's own words. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        bitnet_status st_ = (call);                                                                \
        if (st_ != BITNET_OK)                                                                      \
            fail_msg("%s: status %d: %s", #call, (int)st_, err.message);                           \
    } while (0)

/* The call must fail with this status and a message that contains the text. */
#define FAILS(call, status_, text_)                                                                \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        bitnet_status st_ = (call);                                                                \
        if (st_ != (status_) || err.status != (status_) || !strstr(err.message, text_))            \
            fail_msg("%s: status %d, message \"%s\", wanted %d and \"%s\"", #call, (int)st_,       \
                     err.message, (int)(status_), text_);                                          \
    } while (0)

typedef struct nano {
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    int n_vocab;
} nano;

static inline nano nano_open(int n_threads)
{
    nano n = {0};
    struct stat st;
    if (stat(NANO_PATH, &st) != 0) {
        print_message("%s is missing\n", NANO_PATH);
        skip();
    }
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = n_threads;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static inline void nano_close(nano *n)
{
    bitnet_engine_close(n->engine);
    bitnet_runtime_close(n->runtime);
}

static inline bitnet_session *nano_session(const nano *n, int n_ctx, int n_batch, bitnet_kv_type kv)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = n_ctx;
    if (n_batch)
        o.n_batch = n_batch;
    o.kv_type = kv;
    bitnet_session *s = NULL;
    OK(bitnet_session_open(n->engine, &o, &s, &err));
    return s;
}

/* Ids that look like text to nobody, the same ones for the same seed. */
static inline void nano_ids(const nano *n, uint64_t seed, int32_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++)
        ids[i] = (int32_t)(test_rand(&seed) % (uint64_t)n->n_vocab);
}

static inline void assert_same_logits(const nano *n, const float *a, const float *b,
                                      const char *what)
{
    if (!a || !b)
        fail_msg("%s: no logits", what);
    if (memcmp(a, b, (size_t)n->n_vocab * sizeof *a) != 0)
        fail_msg("%s: the logits differ", what);
}

#endif
