/* test_exchange_copies.c - what joins ranks, from inside: every byte arrives, and none that was
 * written after the call (P-4). On the emulated driver with two devices, directly and through the
 * host, and with an emulated NCCL; on a real GPU over virtual ranks, where streams really run at
 * the same time, and with NCCL for the one rank it allows there. */
#include "device.h"

#include "backend/cuda/cuda.h"

enum { MOST = 3, BIG = 1 << 20, ROUNDS = 50 };

static bnet_pool *pool;
static bnet_registry *registry;

typedef struct group {
    int n;
    bnet_backend *rank[MOST];
    bnet_buffer *from[MOST], *to[MOST];
    gpu_exchange *exchange;
} group;

/* Why NCCL is not used, on a machine that should have it. */
static void say(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user, (void)level, (void)module;
    if (strstr(message, "NCCL"))
        print_message("%s\n", message);
}

/* nccl: else by copies, whatever the machine has. */
static group open_group(const int *devices, int n, bool nccl)
{
    group g = {.n = n};
    gpu_backend *ranks[MOST];
    for (int r = 0; r < n; r++) {
        const bnet_backend_want want = {
            .device = BNET_DEV_CUDA, .index = devices[r], .pool = pool, .registry = registry};
        OK(bnet_cuda_open(&want, &g.rank[r], &err));
        ranks[r] = gpu_of(g.rank[r]);
        g.from[r] = g.rank[r]->v->buffer_new(g.rank[r], BIG);
        g.to[r] = g.rank[r]->v->buffer_new(g.rank[r], (size_t)n * BIG);
        assert_true(g.from[r] && g.to[r]);
    }
    const bnet_log log = {say, NULL};
    if (nccl)
        OK(bnet_cuda_exchange_open(ranks, n, &log, &g.exchange, &err));
    else
        OK(bnet_gpu_copies_open(ranks, n, &g.exchange, &err));
    return g;
}

static void close_group(group *g)
{
    g->exchange->c->close(g->exchange);
    for (int r = 0; r < g->n; r++) {
        OK(g->rank[r]->v->sync(g->rank[r], &err));
        g->rank[r]->v->buffer_free(g->rank[r], g->from[r]);
        g->rank[r]->v->buffer_free(g->rank[r], g->to[r]);
        bnet_backend_close(g->rank[r]);
    }
}

static void fill(const group *g, int r, int value, size_t n)
{
    gpu_backend *be = gpu_of(g->rank[r]);
    bnet_gpu_enter(be);
    assert_int_equal(be->d->c->fill(be->d, gpu_buf(g->from[r])->p, value, n), 0);
    bnet_gpu_leave(be);
}

static void expect_bytes(const uint8_t *p, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (uint8_t)value)
            fail_msg("byte %zu of %zu: %d, not %d", i, n, p[i], value);
}

/* Fills, gathers, and fills again at once: what arrives is from before. */
static void gather_rounds(const group *g)
{
    static const size_t sizes[] = {4, 640, 10240, 65536, BIG};
    gpu_at from[MOST], to[MOST];
    for (int r = 0; r < g->n; r++) {
        from[r] = gpu_buf(g->from[r])->p;
        to[r] = gpu_buf(g->to[r])->p;
    }
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = sizes[round % 5];
        for (int r = 0; r < g->n; r++)
            fill(g, r, round + 7 * r, n);
        g->exchange->c->all_gather(g->exchange, from, to, n);
        g->exchange->c->settle(g->exchange);
        for (int r = 0; r < g->n; r++)
            fill(g, r, 255, n);
        for (int r = 0; r < g->n; r++) {
            const uint8_t *got = g->rank[r]->v->read(g->rank[r], g->to[r], (size_t)g->n * n);
            for (int i = 0; i < g->n; i++)
                expect_bytes(got + (size_t)i * n, n, round + 7 * i);
        }
    }
}

/* The same, each part in its own place already. */
static void gather_in_place(const group *g)
{
    gpu_at from[MOST], to[MOST];
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = round % 2 ? BIG / 4 : 64;
        for (int r = 0; r < g->n; r++) {
            gpu_backend *be = gpu_of(g->rank[r]);
            to[r] = gpu_buf(g->to[r])->p;
            from[r] = gpu_plus(to[r], (size_t)r * n);
            bnet_gpu_enter(be);
            assert_int_equal(be->d->c->fill(be->d, from[r], round + 7 * r, n), GPU_OK);
            bnet_gpu_leave(be);
        }
        g->exchange->c->all_gather(g->exchange, from, to, n);
        for (int r = 0; r < g->n; r++) {
            const uint8_t *got = g->rank[r]->v->read(g->rank[r], g->to[r], (size_t)g->n * n);
            for (int i = 0; i < g->n; i++)
                expect_bytes(got + (size_t)i * n, n, round + 7 * i);
        }
    }
}

static void send_rounds(const group *g)
{
    for (int round = 0; round < ROUNDS; round++) {
        int from = round % g->n, to = (round + 1) % g->n;
        size_t n = round % 2 ? BIG : 12;
        fill(g, from, round, n);
        g->exchange->c->send(g->exchange, from, gpu_buf(g->from[from])->p, to,
                             gpu_buf(g->to[to])->p, n);
        fill(g, from, 255, n);
        expect_bytes(g->rank[to]->v->read(g->rank[to], g->to[to], n), n, round);
    }
}

static void test_P_4_virtual_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        group g = open_group((const int[MOST]){0}, n, true);
        if (n > 1)
            assert_string_equal(g.exchange->name, "direct copies");
        gather_rounds(&g);
        gather_in_place(&g);
        if (n > 1)
            send_rounds(&g);
        close_group(&g);
    }
}

static void test_P_4_two_devices(void **state)
{
    (void)state;
    if (!emulated)
        skip(); /* one GPU: see the virtual ranks */
    for (int peers = 0; peers < 2; peers++) {
        setenv("BITNET_EMULATED_PEERS", peers ? "1" : "0", 1);
        group g = open_group((const int[]){0, 1, 0}, 3, false);
        assert_string_equal(g.exchange->name,
                            peers ? "direct copies" : "copies, some through the host");
        gather_rounds(&g);
        gather_in_place(&g);
        send_rounds(&g);
        close_group(&g);
    }
}

/* On one real GPU NCCL takes one rank: its calls are made, nothing travels. */
static void test_nccl(void **state)
{
    (void)state;
    group g = open_group((const int[]){0, 1}, emulated ? 2 : 1, true);
    print_message("joined by %s\n", g.exchange->name);
    bool there = strncmp(g.exchange->name, "NCCL", 4) == 0;
    if (there) {
        gather_rounds(&g);
        gather_in_place(&g);
    }
    if (there && g.n > 1)
        send_rounds(&g);
    close_group(&g);
    assert_true(there || !emulated);
    if (!there)
        skip();
}

static int open_all(void **state)
{
    (void)state;
    OK(bnet_pool_open(1, &pool, &err));
    OK(bnet_registry_open(&registry, &err));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    bnet_registry_close(registry);
    bnet_pool_close(pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_4_virtual_ranks),
        cmocka_unit_test(test_P_4_two_devices),
        cmocka_unit_test(test_nccl),
    };
    find_device("90");
    if (emulated) {
        setenv("BITNET_EMULATED_DEVICES", "2", 1);
        if (!dlopen(TEST_BINARY_DIR "/emulated/nccl/libnccl.so.2", RTLD_NOW | RTLD_GLOBAL))
            return 77;
    }
    return cmocka_run_group_tests(tests, open_all, close_all);
}
