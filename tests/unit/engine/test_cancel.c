/* Calls that are ended before they are done: by a callback at any of its questions, by a time, by
 * another thread; and which of our files a signal handler finds an address in. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crowd.h"

enum { ROUNDS = 5, LATE_MS = 150 }; /* LATE_MS: what a busy machine may add, in one of the rounds */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Says yes when asked for the yes_at-th time; 0: never. */
typedef struct asked {
    size_t n, yes_at;
} asked;

static bool ask(void *user)
{
    asked *a = user;
    return ++a->n == a->yes_at;
}

/* From then on. */
static bool ask_from(void *user)
{
    asked *a = user;
    return ++a->n >= a->yes_at;
}

/* ---- limits ---- */

static void test_limits(void **state)
{
    (void)state;
    bitnet_limit limit;
    bitnet_limit_set(&limit, 0);
    assert_false(bitnet_limit_reached(&limit));
    bitnet_limit_end(&limit);
    assert_true(bitnet_limit_reached(&limit));
    bitnet_limit_set(&limit, 1e300); /* and an end is forgotten */
    assert_false(bitnet_limit_reached(&limit));
    bitnet_limit_set(&limit, 20);
    usleep(30000);
    assert_true(bitnet_limit_reached(&limit));
    assert_false(bitnet_limit_reached(NULL));
    bitnet_limit_set(NULL, 1);
    bitnet_limit_end(NULL);
}

/* ---- opening ---- */

static bitnet_status open_asking(const nano *n, bool vocab_only, bitnet_cancel_fn cancel,
                                 void *user, bitnet_engine **e, bitnet_error *err)
{
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.vocab_only = vocab_only;
    o.cancel = cancel;
    o.cancel_user = user;
    return bitnet_engine_open(n->runtime, NANO_PATH, &o, e, err);
}

static void test_opening(void **state)
{
    (void)state;
    nano n = nano_open(1);
    for (int vocab_only = 0; vocab_only < 2; vocab_only++) {
        asked never = {0};
        bitnet_engine *e = NULL;
        OK(open_asking(&n, vocab_only, ask, &never, &e, &err));
        bitnet_engine_close(e);
        size_t n_tensors = vocab_only ? 0 : bnet_gguf_n_tensors(n.engine->gguf);
        assert_true(never.n >= n_tensors + 2); /* every tensor, the beginning and the end */
        for (size_t at = 1; at <= never.n; at++) {
            asked once = {.yes_at = at};
            bitnet_engine *none = NULL;
            FAILS(open_asking(&n, vocab_only, ask, &once, &none, &err), BITNET_CANCELLED,
                  "nano.gguf: loading was cancelled");
            assert_null(none);
            assert_int_equal(once.n, at);
        }
        bitnet_limit over;
        bitnet_limit_set(&over, 0);
        bitnet_limit_end(&over);
        FAILS(open_asking(&n, vocab_only, bitnet_limit_reached, &over, &e, &err), BITNET_CANCELLED,
              "loading was cancelled");
    }
    nano_close(&n);
}

/* ---- times ---- */

/* The call, which takes long, ends within LATE_MS after 30 ms in one of the rounds. */
static void check_time(bitnet_limit *limit, bitnet_status (*call)(void *arg), void *arg)
{
    double late = 1e9;
    for (int i = 0; i < ROUNDS && late > LATE_MS; i++) {
        bitnet_limit_set(limit, 30);
        double begun = now_ms();
        assert_int_equal(call(arg), BITNET_CANCELLED);
        double took = now_ms() - begun;
        assert_true(took >= 29);
        late = BNET_MIN(late, took - 30);
    }
    print_message("ended %.1f ms after its time\n", late);
    assert_true(late <= LATE_MS);
}

typedef struct work {
    bitnet_engine *engine;
    bitnet_session *session;
    char *text;
    size_t n_text;
    int32_t *ids;
} work;

static bitnet_status tokenize(void *arg)
{
    work *w = arg;
    size_t n_ids = 1;
    bitnet_status st = bitnet_tokenize(w->engine, w->text, w->n_text, 0, NULL, 0, &n_ids, NULL);
    assert_int_equal(n_ids, 0);
    return st;
}

static void test_tokenizing_in_time(void **state)
{
    (void)state;
    bitnet_limit limit;
    bitnet_limit_set(&limit, 0);
    nano n = nano_open(1);
    work w = {.n_text = 64 << 20};
    OK(open_asking(&n, true, bitnet_limit_reached, &limit, &w.engine, &err));
    assert_non_null(w.text = malloc(w.n_text));
    memset(w.text, 'a', w.n_text); /* seconds of work: one piece of 64 MB */
    check_time(&limit, tokenize, &w);
    free(w.text);
    bitnet_engine_close(w.engine);
    nano_close(&n);
}

static bitnet_status append(void *arg)
{
    work *w = arg;
    size_t before = bitnet_session_position(w->session);
    bitnet_status st = bitnet_session_append(w->session, w->ids, 50, NULL, NULL, NULL);
    assert_int_equal(bitnet_session_position(w->session), before);
    return st;
}

/* Another thread's pass has all blocks of the pool: whoever waits for them waits for its time. */
static void test_waiting_in_time(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[50];
    bitnet_limit limit;
    nano_ids(&n, 1, ids, 50);
    bitnet_kv_pool *p = crowd_pool(&n, 1, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *holder = crowd_session(&n, p, 64);
    work w = {.session = crowd_session(&n, p, 64), .ids = ids};
    bitnet_session_on_cancel(w.session, bitnet_limit_reached, &limit);
    OK(bnet_session_hold(holder, 10, &err)); /* as a pass does */
    check_time(&limit, append, &w);
    for (int batch = 0; batch < 2; batch++) {
        asked third = {.yes_at = 3}; /* the first question comes before the wait */
        bitnet_session_on_cancel(w.session, ask, &third);
        FAILS(batch ? step_each(n.engine, &w.session, NULL, ids, 1, NULL, &err)
                    : bitnet_session_append(w.session, ids, 1, NULL, NULL, &err),
              BITNET_CANCELLED, "cancelled at position 0, while waiting for cache blocks");
    }
    bnet_session_let_go(holder);
    bitnet_session_on_cancel(w.session, NULL, NULL);
    OK(bitnet_session_append(w.session, ids, 50, NULL, NULL, &err));
    bitnet_session_close(holder);
    bitnet_session_close(w.session);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* ---- prompts ---- */

/* The prompt is ended at every question, and then computed as if nothing had been. */
static void cancel_everywhere(nano *n, bitnet_session *s, const bitnet_session *whole,
                              const int32_t *ids, size_t n_ids, size_t n_least)
{
    asked never = {0};
    bitnet_session_on_cancel(s, ask, &never);
    OK(bitnet_session_append(s, ids, n_ids, NULL, NULL, &err));
    assert_true(never.n >= n_least);
    for (size_t at = 1; at <= never.n; at++) {
        asked once = {.yes_at = at};
        OK(bitnet_session_rewind(s, 0, &err));
        bitnet_session_on_cancel(s, ask, &once);
        FAILS(bitnet_session_append(s, ids, n_ids, NULL, NULL, &err), BITNET_CANCELLED,
              "cancelled at position");
        assert_int_equal(once.n, at);
        size_t done = bitnet_session_position(s);
        assert_int_equal(done % 32, 0); /* whole passes */
        OK(bitnet_session_append(s, ids + done, n_ids - done, NULL, NULL, &err));
        assert_same_logits(n, bitnet_session_logits(s), bitnet_session_logits(whole), "prompt");
    }
}

static void test_prompts(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[80];
    nano_ids(&n, 3, ids, 80);
    bitnet_session *s = nano_session(&n, 128, 32, BITNET_KV_F16);
    bitnet_session *whole = nano_session(&n, 128, 32, BITNET_KV_F16);
    OK(bitnet_session_append(whole, ids, 80, NULL, NULL, &err));
    size_t n_layers = (size_t)bitnet_engine_model(n.engine)->n_layers;
    cancel_everywhere(&n, s, whole, ids, 80, 3 * (n_layers + 1)); /* 3 passes */
    bitnet_session_close(whole);
    bitnet_session_close(s);
    nano_close(&n);
}

/* What others took from a cache is computed again between questions, too. */
static void test_computing_again(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[65];
    nano_ids(&n, 4, ids, 65);
    bitnet_kv_pool *p = crowd_pool(&n, 2, crowd_options(BITNET_KV_LRU, true));
    bitnet_session *s = crowd_session(&n, p, 128), *other = crowd_session(&n, p, 128);
    bitnet_session *whole = nano_session(&n, 128, 32, BITNET_KV_F16);
    OK(bitnet_session_append(whole, ids, 65, NULL, NULL, &err));
    OK(bitnet_session_append(s, ids, 64, NULL, NULL, &err));
    size_t n_layers = (size_t)bitnet_engine_model(n.engine)->n_layers;
    for (size_t at = 2; at < 2 + 2 * (n_layers + 1); at++) {
        asked once = {.yes_at = at};
        bitnet_session_on_cancel(s, NULL, NULL);
        OK(bitnet_session_rewind(s, 64, &err));
        OK(bitnet_session_rewind(other, 0, &err));
        OK(bitnet_session_append(other, ids, 65, NULL, NULL, &err)); /* takes both blocks */
        assert_int_equal(bitnet_session_cached(s), 0);
        bitnet_session_on_cancel(s, ask, &once);
        FAILS(bitnet_session_append(s, ids + 64, 1, NULL, NULL, &err), BITNET_CANCELLED,
              "cancelled at position 64, while the cache was computed again");
        assert_int_equal(bitnet_session_position(s), 64);
        OK(bitnet_session_append(s, ids + 64, 1, NULL, NULL, &err));
        assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(whole), "again");
    }
    bitnet_session_close(whole);
    bitnet_session_close(other);
    bitnet_session_close(s);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* A pass of several prompts is ended if all of them say so, and else goes on. */
static void test_batches(void **state)
{
    (void)state;
    enum { N = 20 };
    nano n = nano_open(1);
    int32_t ids[N];
    nano_ids(&n, 6, ids, N);
    bitnet_batch *b = NULL;
    OK(bitnet_batch_open(n.engine, NULL, &b, &err));
    size_t n_layers = (size_t)bitnet_engine_model(n.engine)->n_layers;
    for (size_t at = 1; at <= 2 + n_layers; at++) {
        asked all[2] = {{.yes_at = 2}, {.yes_at = at}};
        bitnet_session *s[2];
        bitnet_batch_item items[2];
        for (int i = 0; i < 2; i++) {
            s[i] = nano_session(&n, 64, 0, BITNET_KV_F16);
            bitnet_session_on_cancel(s[i], ask_from, &all[i]);
            bitnet_batch_item_init(&items[i]);
            items[i].session = s[i];
            items[i].ids = ids;
            items[i].n_ids = N;
        }
        bool ends = at <= 1 + n_layers; /* asked before the pass, then after each layer */
        assert_int_equal(bitnet_batch_step(b, items, 2, NULL), ends ? BITNET_CANCELLED : BITNET_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(items[i].status, ends ? BITNET_CANCELLED : BITNET_OK);
            assert_int_equal(bitnet_session_position(s[i]), ends ? 0 : N);
            bitnet_session_close(s[i]);
        }
    }
    bitnet_batch_close(b);
    nano_close(&n);
}

/* A session without a callback of its own asks the engine's. */
static void test_sessions_ask_the_engine(void **state)
{
    (void)state;
    bitnet_limit of_engine, own;
    bitnet_limit_set(&of_engine, 0);
    bitnet_limit_set(&own, 0);
    nano n = nano_open(1);
    bitnet_engine_close(n.engine);
    n.engine = NULL;
    OK(open_asking(&n, false, bitnet_limit_reached, &of_engine, &n.engine, &err));
    bitnet_session *s = nano_session(&n, 64, 0, BITNET_KV_F16);
    const int32_t id = 5;
    bitnet_limit_end(&of_engine);
    FAILS(bitnet_session_append(s, &id, 1, NULL, NULL, &err), BITNET_CANCELLED, "position 0");
    bitnet_session_on_cancel(s, bitnet_limit_reached, &own);
    OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    bitnet_session_on_cancel(s, NULL, NULL);
    FAILS(bitnet_session_append(s, &id, 1, NULL, NULL, &err), BITNET_CANCELLED, "position 1");
    bitnet_session_close(s);
    nano_close(&n);
}

/* ---- maps ---- */

/* Where a file is mapped, as the system says; NULL: nowhere. */
static char *map_of(const char *path)
{
    char line[4096];
    unsigned long begin = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (!begin && fgets(line, sizeof line, f))
        if (strstr(line, path))
            assert_int_equal(sscanf(line, "%lx-", &begin), 1);
    fclose(f);
    return (char *)begin;
}

static void copy_nano(const char *to)
{
    char command[600];
    snprintf(command, sizeof command, "cp '%s' '%s'", NANO_PATH, to);
    assert_int_equal(system(command), 0);
}

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/bitnet-maps-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static bitnet_engine *open_copy(const nano *n, const char *path, bool packed)
{
    bitnet_engine_options o;
    bitnet_engine *e = NULL;
    bitnet_engine_options_init(&o);
    o.no_pack = !packed;
    o.cache_dir = packed ? folder : NULL;
    o.cache_min_bytes = 1;
    OK(bitnet_engine_open(n->runtime, path, &o, &e, &err));
    return e;
}

/* The path of the packed weights in the folder. */
static void find_pack(char *out, size_t cap)
{
    char command[200];
    snprintf(command, sizeof command, "ls %s/*.pack", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(out, (int)cap, f));
    out[strcspn(out, "\n")] = '\0';
    pclose(f);
}

/* Its neighbour may be the other file. */
static bool in_model(const bitnet_engine *e, const char *address)
{
    const char *path = bitnet_engine_map(e, address);
    return path && strcmp(path, NANO_PATH) == 0;
}

static void test_addresses(void **state)
{
    (void)state;
    char pack[300];
    struct stat size;
    nano n = nano_open(1);
    bitnet_engine_close(n.engine);
    make_folder();
    assert_int_equal(stat(NANO_PATH, &size), 0);
    bitnet_engine_close(open_copy(&n, NANO_PATH, true)); /* writes the packed form */
    find_pack(pack, sizeof pack);
    bitnet_engine *e = open_copy(&n, NANO_PATH, true);
    char *at = map_of("nano.gguf"), *packed = map_of(pack);
    assert_true(at && packed);
    assert_true(in_model(e, at) && in_model(e, at + size.st_size - 1));
    assert_false(in_model(e, at - 1) || in_model(e, at + size.st_size));
    assert_string_equal(bitnet_engine_map(e, packed), pack);
    assert_null(bitnet_engine_map(e, NULL));
    assert_null(bitnet_engine_map(e, &n));
    n.engine = open_copy(&n, NANO_PATH, false);
    assert_null(bitnet_engine_map(n.engine, at)); /* another engine's */
    assert_null(bitnet_engine_map(NULL, at));
    bitnet_engine_close(e);
    nano_close(&n);
}

static bitnet_engine *watched;
static char awaited[300];

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    const char *path = bitnet_engine_map(watched, info->si_addr);
    _exit(!path ? 1 : strcmp(path, awaited) == 0 ? 42 : 2);
}

/* In a child: a handler of its own, a file that shrinks under the model. */
static _Noreturn void lose(const char *model, const char *file, bool packed)
{
    struct sigaction sa = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    int32_t ids[40];
    nano n = nano_open(1);
    watched = open_copy(&n, model, packed);
    snprintf(awaited, sizeof awaited, "%s", file);
    bitnet_engine_close(n.engine);
    n.engine = watched;
    bitnet_session *s = nano_session(&n, 64, 0, BITNET_KV_F16);
    nano_ids(&n, 1, ids, 40);
    sigaction(SIGBUS, &sa, NULL);
    if (truncate(file, 4096) != 0)
        _exit(3);
    bitnet_session_append(s, ids, 40, NULL, NULL, NULL);
    _exit(4); /* it was read to the end */
}

/* The packed form is that of the model in the tree: of a file that is seconds old none is kept. */
static void test_a_vanished_file(void **state)
{
    (void)state;
    char model[100], pack[300];
    make_folder();
    snprintf(model, sizeof model, "%s/copy.gguf", folder);
    copy_nano(model);
    nano n = nano_open(1);
    bitnet_engine_close(open_copy(&n, NANO_PATH, true));
    nano_close(&n);
    find_pack(pack, sizeof pack);
    for (int packed = 1; packed >= 0; packed--) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            lose(packed ? NANO_PATH : model, packed ? pack : model, packed);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 42)
            fail_msg("%s: the child ended with %#x", packed ? "pack" : "model", (unsigned)status);
    }
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_tokenizing_in_time),
        cmocka_unit_test(test_waiting_in_time),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_computing_again),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_sessions_ask_the_engine),
        cmocka_unit_test_teardown(test_addresses, remove_folder),
        cmocka_unit_test_teardown(test_a_vanished_file, remove_folder),
    };
    return cmocka_run_group_tests_name("cancel", tests, NULL, NULL);
}
