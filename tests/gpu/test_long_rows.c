/* test_long_rows.c - a ternary product of eight tokens whose vectors and sums do not fit into a
 * block's shared memory together is done in halves: on the emulated device, which refuses a launch
 * that asks for more than the chip has, and against the CPU. */
#include "device.h"

#include <math.h>

#include "model/kv.h"
#include "model/model.h"
#include "unit/model/tiny.h"

enum { N_TOKENS = 8 }; /* the most that the kernel for few tokens takes */

typedef struct machine {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *backend;
} machine;

static machine machine_on(bnet_device_kind device)
{
    machine m = {0};
    OK(bnet_pool_open(2, &m.pool, &err));
    OK(bnet_registry_open(&m.registry, &err));
    const bnet_backend_want want = {.device = device, .pool = m.pool, .registry = m.registry};
    OK(bnet_backend_open(&want, &m.backend, &err));
    return m;
}

static void machine_close(machine *m)
{
    bnet_backend_close(m->backend);
    bnet_registry_close(m->registry);
    bnet_pool_close(m->pool);
}

static void forward(const bnet_model *m, float *logits)
{
    int32_t ids[N_TOKENS], pos[N_TOKENS], seq[N_TOKENS] = {0};
    int n_vocab = bnet_model_hparams(m)->n_vocab;
    bnet_kv *kv;
    bnet_workspace *ws;
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = (5 * i + 1) % n_vocab;
        pos[i] = i;
    }
    OK(bnet_kv_open(m, N_TOKENS, BITNET_KV_F32, &kv, &err));
    OK(bnet_workspace_open(m, N_TOKENS, &ws, &err));
    bnet_batch b = {N_TOKENS, ids, pos, seq, &kv, 1, pos, N_TOKENS, false, NULL, NULL};
    OK(bnet_forward(ws, &b, &err));
    for (int i = 0; i < N_TOKENS; i++) {
        const float *row;
        OK(bnet_head(ws, i, 1, &row, &err));
        memcpy(logits + i * n_vocab, row, (size_t)n_vocab * sizeof *row);
    }
    bnet_workspace_close(ws);
    bnet_kv_close(kv);
}

/* Logits [N_TOKENS][n_vocab] of a model with rows of n_ff; how many kernels the device ran. */
static uint64_t run(bnet_device_kind device, const tiny *t, float *logits)
{
    char path[512];
    bnet_gguf *g;
    bnet_model *m;
    machine on = machine_on(device);
    tiny_file(t, path, sizeof path);
    OK(bnet_gguf_open(path, NULL, &g, &err));
    OK(bnet_model_open(g, on.backend, t->layout, NULL, NULL, &m, &err));
    uint64_t before = emulated ? emulated->n_launches : 0;
    forward(m, logits);
    uint64_t n = emulated ? emulated->n_launches - before : 0;
    bnet_model_close(m);
    bnet_gguf_close(g);
    machine_close(&on);
    unlink(path);
    return n;
}

/* How many kernels more than with rows that fit; the results are the CPU's. */
static uint64_t further_launches(const char *cc, int n_ff)
{
    float got[N_TOKENS * 64], want[N_TOKENS * 64];
    double worst = 0, most = 0;
    tiny t = tiny_default();
    t.n_layers = 1, t.n_embd = 128, t.n_heads = 2, t.n_kv = 1;
    setenv("BITNET_EMULATED_CC", cc, 1);
    uint64_t few = run(BNET_DEV_CUDA, &t, got);
    t.n_ff = n_ff;
    uint64_t n = run(BNET_DEV_CUDA, &t, got);
    run(BNET_DEV_CPU, &t, want);
    for (int i = 0; i < N_TOKENS * t.n_vocab; i++) {
        double off = fabs((double)got[i] - (double)want[i]), size = fabs((double)want[i]);
        worst = off <= worst ? worst : off; /* gcc 12 dies of fmax here; not a number stays */
        most = size <= most ? most : size;
    }
    print_message("%s: rows of %d: %d kernels, off by %g of %g\n", cc, n_ff, (int)n, worst, most);
    assert_true(worst <= 1e-5 * most);
    return n - few;
}

/* The emulated chip has two multiprocessors and, at 7.5, 63 KB for a block: eight vectors and the
 * sums of its rows. Gate and up of 8192 and more rows leave room for one token's sums alone. */
static void test_long_rows_in_parts(void **state)
{
    (void)state;
    assert_int_equal(further_launches("75", 1024), 0);
    assert_int_equal(further_launches("75", 2048), 1);      /* gate and up by 4 tokens */
    assert_int_equal(further_launches("75", 8192), 7 + 1);  /* down by 4: 8 x 8 KB */
    assert_int_equal(further_launches("75", 16384), 7 + 3); /* down by 2: 4 x 16 KB and sums */
    assert_int_equal(further_launches("90", 16384), 0);     /* 226 KB */
}

/* Bytes of the copy that a head with rows of n_embd gets (head_copy.h). */
static uint64_t copy_of(const char *cc, int n_embd)
{
    char path[512];
    bnet_gguf *g;
    bnet_model *m;
    bitnet_memory_use u;
    uint64_t reclaimable;
    tiny t = tiny_default();
    const bnet_log none = {0};
    t.n_layers = 1, t.n_embd = n_embd;
    setenv("BITNET_EMULATED_CC", cc, 1);
    machine on = machine_on(BNET_DEV_CUDA);
    tiny_file(&t, path, sizeof path);
    OK(bnet_gguf_open(path, NULL, &g, &err));
    OK(bnet_model_open(g, on.backend, t.layout, NULL, NULL, &m, &err));
    on.backend->v->weights_done(on.backend, &none);
    on.backend->inspect->usage(on.backend, &u, &reclaimable);
    bnet_model_close(m);
    bnet_gguf_close(g);
    machine_close(&on);
    unlink(path);
    return reclaimable;
}

/* A copy whose kernels ask for more shared memory than a block has would lie there for nothing. */
static void test_a_copy_of_the_head_that_can_be_used(void **state)
{
    const uint64_t rows = 32; /* 24 in tiles of 16 */
    (void)state;
    assert_int_equal(copy_of("75", 1024), rows * (1024 + 16));
    assert_int_equal(copy_of("75", 1152), 0);
    assert_int_equal(copy_of("90", 1152), rows * (1152 + 16));
}

int main(void)
{
    find_device("75");
    if (!emulated) {
        fprintf(stderr, "needs the emulated device\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_rows_in_parts),
                                       cmocka_unit_test(test_a_copy_of_the_head_that_can_be_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
