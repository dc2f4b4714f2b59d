/* Saved timelines: they come back exactly, and nothing else comes in. */
#include "crowd.h"

#include <malloc.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/engine.h"
#include "base/sha256.h"

enum { N = 100 };

static const char path[] = TEST_BINARY_DIR "/session_test.bin",
                  bad[] = TEST_BINARY_DIR "/session_bad.bin";

static void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static bitnet_session *saved(const nano *n, bitnet_kv_type kv, char **bytes, size_t *n_bytes)
{
    int32_t ids[N];
    nano_ids(n, 9, ids, N);
    bitnet_session *s = nano_session(n, 0, 0, kv);
    OK(bitnet_session_append(s, ids, N, NULL, NULL, &err));
    OK(bitnet_session_save(s, path, &err));
    OK(bnet_read_file(path, (size_t)1 << 30, bytes, n_bytes, &err));
    return s;
}

/* The same tokens make the same file, whatever lay in the memory of the session before. */
static void files_are_reproducible(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *a, *b;
    size_t n_a, n_b;
    mallopt(M_PERTURB, 0x5a); /* new memory is filled with this, so that reading it shows */
    bitnet_session *s = saved(&n, BITNET_KV_F16, &a, &n_a);
    bitnet_session_close(s);
    mallopt(M_PERTURB, 0x33);
    s = saved(&n, BITNET_KV_F16, &b, &n_b);
    bitnet_session_close(s);
    mallopt(M_PERTURB, 0);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    bnet_free(a);
    bnet_free(b);
    nano_close(&n);
}

static void round_trip(void **state)
{
    (void)state;
    nano n = nano_open(2);
    for (int kv = 0; kv < 3; kv++) {
        char *bytes;
        size_t n_bytes;
        bitnet_session *s = saved(&n, (bitnet_kv_type)kv, &bytes, &n_bytes);
        /* into a session of another size, with a past of its own, twice */
        bitnet_session *t = nano_session(&n, kv == 1 ? N + 5 : 200, 9, (bitnet_kv_type)kv);
        int32_t more[5] = {1, 2, 3, 4, 5};
        for (int round = 0; round < 2; round++) {
            OK(bitnet_session_append(t, more, 5, NULL, NULL, &err));
            OK(bitnet_session_load(t, path, &err));
            assert_int_equal(bitnet_session_position(t), N);
            assert_null(bitnet_session_logits(t));
            assert_memory_equal(bitnet_session_tokens(t), bitnet_session_tokens(s),
                                N * sizeof(int32_t));
        }
        OK(bitnet_session_append(s, more, 5, NULL, NULL, &err));
        OK(bitnet_session_append(t, more, 5, NULL, NULL, &err));
        assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(t),
                           "saved and loaded");
        OK(bitnet_session_rewind(s, 0, &err)); /* an empty timeline is one too */
        OK(bitnet_session_save(s, path, &err));
        OK(bitnet_session_load(t, path, &err));
        assert_int_equal(bitnet_session_position(t), 0);
        bnet_free(bytes);
        bitnet_session_close(s);
        bitnet_session_close(t);
    }
    nano_close(&n);
}

/* After a refused file the session goes on as if nothing had happened. */
static void refuse(const nano *n, bitnet_session *s, const char *text, bitnet_status want)
{
    float *before = malloc((size_t)n->n_vocab * sizeof *before);
    memcpy(before, bitnet_session_logits(s), (size_t)n->n_vocab * sizeof *before);
    size_t position = bitnet_session_position(s);
    FAILS(bitnet_session_load(s, bad, &err), want, text);
    assert_int_equal(bitnet_session_position(s), position);
    assert_same_logits(n, bitnet_session_logits(s), before, "after a refusal");
    free(before);
}

static void damage_is_refused(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *bytes;
    size_t n_bytes;
    bitnet_session *s = saved(&n, BITNET_KV_INT8, &bytes, &n_bytes);
    int n_cases = 0;
    for (size_t cut = 0; cut < n_bytes; cut += cut < 400 ? 97 : 97 * 13) {
        write_file(bad, bytes, cut);
        refuse(&n, s, cut < 8 ? "not a session file" : "damaged", BITNET_MODEL);
        n_cases++;
    }
    for (size_t at = 0; at < n_bytes; at += at < 700 ? 1 : 1009) {
        bytes[at] ^= 0x10;
        write_file(bad, bytes, n_bytes);
        refuse(&n, s,
               at < 8    ? "not a session file"
               : at < 12 ? "version"
                         : "damaged",
               BITNET_MODEL);
        bytes[at] ^= 0x10;
        n_cases++;
    }
    char *longer = calloc(1, n_bytes + 100);
    memcpy(longer, bytes, n_bytes);
    write_file(bad, longer, n_bytes + 100);
    refuse(&n, s, "damaged", BITNET_MODEL);
    free(longer);
    print_message("%d damaged files of %zu bytes\n", n_cases, n_bytes);
    assert_true(n_cases > 700);
    /* and the session still computes what an untouched one does */
    bitnet_session *fresh = nano_session(&n, 0, 0, BITNET_KV_INT8);
    OK(bitnet_session_append(fresh, bitnet_session_tokens(s), N, NULL, NULL, &err));
    int32_t more = 7;
    OK(bitnet_session_append(s, &more, 1, NULL, NULL, &err));
    OK(bitnet_session_append(fresh, &more, 1, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(fresh),
                       "after all refusals");
    bnet_free(bytes);
    bitnet_session_close(s);
    bitnet_session_close(fresh);
    nano_close(&n);
}

/* Someone who can compute a checksum. */
static void forge(char *bytes, size_t n_bytes)
{
    bnet_sha256 *h = NULL;
    uint8_t digest[32];
    OK(bnet_sha256_open(&h, &err));
    bnet_sha256_add(h, bytes, n_bytes - 32);
    OK(bnet_sha256_finish(h, digest, &err));
    bnet_sha256_close(h);
    memcpy(bytes + n_bytes - 32, digest, 32);
    write_file(bad, bytes, n_bytes);
}

static void forgeries_are_refused(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *bytes;
    size_t n_bytes;
    bitnet_session *s = saved(&n, BITNET_KV_F16, &bytes, &n_bytes);
    static const struct {
        size_t at;
        uint32_t value;
        const char *text;
        bitnet_status status;
    } rows[] = {
        {12, 1, "holds a cache of type f32, this session has f16", BITNET_MODEL},
        {12, 77, "holds a cache of type unknown", BITNET_MODEL},
        {16, 0, "damaged: ", BITNET_MODEL},
        {16, 99, "bytes where 99 tokens of this model need", BITNET_MODEL},
        {16, 256, "bytes where 256 tokens of this model need", BITNET_MODEL},
        {16, 257, "has 257 tokens, this session's context holds 256", BITNET_CONTEXT},
        {16, 0x80000000u, "has 2147483648 tokens", BITNET_CONTEXT},
        {16, 0xffffffffu, "has 4294967295 tokens", BITNET_CONTEXT},
        {20, 511, "another model", BITNET_MODEL},
        {24, 0, "damaged: ", BITNET_MODEL},
        {28, 0xffffffffu, "damaged: ", BITNET_MODEL},
        {40, 0, "was saved from another model than", BITNET_MODEL},
        {64, 512, "token 512 at byte 64 is outside the vocabulary 0..511", BITNET_MODEL},
        {64 + 99 * 4, 0xffffffffu, "token 4294967295 at byte 460", BITNET_MODEL},
        {8, 2, "session file version 2, this library reads 1", BITNET_MODEL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t old = bnet_u32(bytes + rows[i].at);
        bnet_put_u32(bytes + rows[i].at, rows[i].value);
        forge(bytes, n_bytes);
        refuse(&n, s, rows[i].text, rows[i].status);
        bnet_put_u32(bytes + rows[i].at, old);
    }
    /* cache bytes may be anything: numbers come out wrong, nothing breaks */
    memset(bytes + 64 + N * 4, 0xff, n_bytes - 64 - N * 4 - 32);
    forge(bytes, n_bytes);
    OK(bitnet_session_load(s, bad, &err));
    int32_t more = 7;
    OK(bitnet_session_append(s, &more, 1, NULL, NULL, &err));
    bnet_free(bytes);
    bitnet_session_close(s);
    nano_close(&n);
}

static void other_sessions_are_refused(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *bytes;
    size_t n_bytes;
    bitnet_session *s = saved(&n, BITNET_KV_F16, &bytes, &n_bytes);
    bitnet_session *small = nano_session(&n, N - 1, 0, BITNET_KV_F16),
                   *other = nano_session(&n, 0, 0, BITNET_KV_F32);
    FAILS(bitnet_session_load(small, path, &err), BITNET_CONTEXT,
          "has 100 tokens, this session's context holds 99");
    FAILS(bitnet_session_load(other, path, &err), BITNET_MODEL,
          "holds a cache of type f16, this session has f32");
    FAILS(bitnet_session_load(s, NANO_PATH, &err), BITNET_MODEL, "not a session file");
    FAILS(bitnet_session_load(s, TEST_BINARY_DIR "/no such file", &err), BITNET_IO, "cannot open");
    FAILS(bitnet_session_load(s, TEST_BINARY_DIR, &err), BITNET_IO, "directory");
    FAILS(bitnet_session_save(s, TEST_BINARY_DIR "/no/such/folder", &err), BITNET_IO,
          "cannot create");
    FAILS(bitnet_session_save(s, "/dev/full", &err), BITNET_IO, "not a regular file");
    bnet_free(bytes);
    bitnet_session_close(s);
    bitnet_session_close(small);
    bitnet_session_close(other);
    nano_close(&n);
}

/* ---- through memory, in a pool ---- */

typedef struct store {
    char *bytes;
    size_t n, cap;
} store;

static bool keep(void *user, const void *bytes, size_t n)
{
    store *s = user;
    if (n > s->cap - s->n)
        return false;
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return true;
}

/* A fork is saved and restored into its own shared blocks and elsewhere; the session it was forked
 * of is not touched; bytes that are cut or changed are refused. */
static void memory_and_forks(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *bytes;
    store m = {0};
    bitnet_session *own = saved(&n, BITNET_KV_F16, &bytes, &m.cap), *f = NULL;
    bitnet_kv_pool *p = crowd_pool(&n, 5, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s = crowd_session(&n, p, 200);
    OK(bitnet_session_append(s, bitnet_session_tokens(own), N, NULL, NULL, &err));
    OK(bitnet_session_fork(s, N, &f, &err));
    m.bytes = malloc(m.cap);
    OK(bitnet_session_save_to(f, keep, &m, &err));
    assert_int_equal(m.n, m.cap);
    assert_memory_equal(m.bytes, bytes, m.n); /* as the file of a session without a pool */
    assert_int_equal(crowd_stats(p).n_shared, 2);
    FAILS(bitnet_session_save_to(f, keep, &m, &err), BITNET_CANCELLED, "cancelled"); /* no room */
    for (size_t cut = 0; cut < m.n; cut += 1 + m.n / 40)
        FAILS(bitnet_session_load_memory(f, m.bytes, cut, &err), BITNET_MODEL, "session in memory");
    for (size_t at = 12; at < m.n; at += 1 + m.n / 40) {
        m.bytes[at] ^= 4;
        FAILS(bitnet_session_load_memory(f, m.bytes, m.n, &err), BITNET_MODEL, "damaged");
        m.bytes[at] ^= 4;
    }
    assert_int_equal(crowd_stats(p).n_shared, 2); /* nothing was changed */
    OK(bitnet_session_load_memory(f, m.bytes, m.n, &err));
    assert_int_equal(crowd_stats(p).n_shared, 0);
    int32_t more[3] = {7, 8, 9};
    bitnet_session *all[] = {own, s, f};
    for (int i = 0; i < 3; i++)
        OK(bitnet_session_append(all[i], more, 3, NULL, NULL, &err));
    for (int i = 1; i < 3; i++)
        assert_same_logits(&n, bitnet_session_logits(all[i]), bitnet_session_logits(own), "memory");
    for (int i = 0; i < 3; i++)
        bitnet_session_close(all[i]);
    bitnet_kv_pool_close(p);
    bnet_free(bytes);
    free(m.bytes);
    nano_close(&n);
}

/* A model that differs in one sampled byte of one tensor, or is read with another layout, is
 * another model. */
static void the_fingerprint_tells_models_apart(void **state)
{
    (void)state;
    nano n = nano_open(1);
    char *model;
    size_t n_bytes;
    uint8_t a[32], b[32];
    OK(bnet_read_file(NANO_PATH, (size_t)1 << 30, &model, &n_bytes, &err));
    OK(bnet_engine_fingerprint(n.engine, a, &err));
    for (int round = 0; round < 3; round++) {
        bitnet_engine_options o;
        bitnet_engine_options_init(&o);
        o.vocab_only = true;
        o.i2s_layout = round == 1 ? BITNET_I2S_64 : BITNET_I2S_128;
        model[n_bytes - 40] ^= round == 2;
        bitnet_engine *e = NULL;
        OK(bitnet_engine_open_memory(n.runtime, model, n_bytes, &o, &e, &err));
        OK(bnet_engine_fingerprint(e, b, &err));
        assert_int_equal(memcmp(a, b, sizeof a) == 0, round == 0);
        bitnet_engine_close(e);
    }
    bnet_free(model);
    nano_close(&n);
}

/* How a loaded cache was computed is not known: no piece of the session that took it is left. */
static void pieces_are_forgotten(void **state)
{
    (void)state;
    nano n = {0};
    int32_t ids[N];
    bitnet_runtime_options r;
    bitnet_engine_options o;
    bitnet_runtime_options_init(&r);
    bitnet_engine_options_init(&o);
    r.n_threads = 1;
    r.device = "host";
    o.batch_invariant = true;
    OK(bitnet_runtime_open(&r, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &o, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    nano_ids(&n, 9, ids, N);
    bitnet_session *from = nano_session(&n, N, 0, BITNET_KV_F16);
    bitnet_session *to = nano_session(&n, N, 0, BITNET_KV_F16);
    OK(bitnet_session_append(from, ids, N, NULL, NULL, &err));
    OK(bitnet_session_save(from, path, &err));
    for (int i = 0; i < N; i += 10)
        OK(bitnet_session_append(to, ids + i, 10, NULL, NULL, &err));
    assert_true(to->begins[0] != 0 && to->begins[N / 64] != 0);
    OK(bitnet_session_load(to, path, &err));
    assert_true(to->begins[0] == 0 && to->begins[N / 64] == 0);
    bitnet_session_close(from);
    bitnet_session_close(to);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_are_reproducible),
                                       cmocka_unit_test(round_trip),
                                       cmocka_unit_test(damage_is_refused),
                                       cmocka_unit_test(forgeries_are_refused),
                                       cmocka_unit_test(other_sessions_are_refused),
                                       cmocka_unit_test(memory_and_forks),
                                       cmocka_unit_test(pieces_are_forgotten),
                                       cmocka_unit_test(the_fingerprint_tells_models_apart)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(bad);
    return failed;
}
