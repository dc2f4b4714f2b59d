/* test_head.c - the two-stage head: that nothing wanted is ever missing, and all that is listed is
 * exact, whatever the rows are. */
#include "head_fixture.h"

static size_t check_top(fixture *f, const float *x, const bnet_top_want *want)
{
    bnet_top top = {0};
    f->be->v->write(f->be, f->x, x, f->n_in * sizeof *x);
    f->be->v->linear_float(f->be, f->w, f->x, 1, f->y);
    f->be->pass->top(f->be, f->w, f->x, 1, want, f->room, f->scratch, &top);
    return check_listed(f, f->y->data, want, &top);
}

static void check_settings(fixture *f, const float *x, size_t *n_served)
{
    static const size_t ks[] = {1, 2, 40, 100};
    int32_t ids[7];
    for (size_t i = 0; i < BNET_COUNT(ids); i++)
        ids[i] =
            (int32_t)((i + (test_rand(&seed) % 100) / 100.0) * (double)f->n_out / BNET_COUNT(ids));
    const bnet_top_want alone = {0, 0, ids, BNET_COUNT(ids)};
    assert_int_equal(check_top(f, x, &alone), served_here(f) ? BNET_COUNT(ids) : 0);
    for (size_t i = 0; i < BNET_COUNT(ks); i++)
        for (int with = 0; with < 2; with++) {
            bnet_top_want want = {ks[i], with ? 0.5f : 0, ids, with ? BNET_COUNT(ids) : 0};
            *n_served += check_top(f, x, &want) > 0;
        }
}

static void test_top_of_random_rows(void **state)
{
    (void)state;
    enum { N = 1501, K = 512 }; /* no multiple of four */
    for (size_t i = 0; i < BNET_COUNT(types); i++)
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            if (test_quick() && n_threads != 1 + (int)i % 3)
                continue;
            float *rows = random_rows(N, K), x[K];
            fixture f = fixture_new(n_threads, types[i], rows, N, K);
            size_t served = 0;
            int n_rounds = test_quick() ? 4 : 20;
            for (int round = 0; round < n_rounds; round++) {
                for (size_t c = 0; c < K; c++)
                    x[c] = random_float() * (c % 97 == 0 ? 30.0f : 1.0f);
                check_settings(&f, x, &served);
            }
            if (served_here(&f))
                assert_true(served > (size_t)(3 * n_rounds));
            fixture_free(&f);
            free(rows);
        }
}

/* Some rows, of which different things are wanted, of some nothing. */
static void roll_wants(const fixture *f, int n, int32_t ids[][5], bnet_top_want *wants)
{
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < 5; i++)
            ids[r][i] = (int32_t)((i * 7 + test_rand(&seed) % 7) * f->n_out / 35);
        unsigned kind = (unsigned)(test_rand(&seed) % 5);
        wants[r] = (bnet_top_want){kind == 0   ? 0
                                   : kind == 1 ? 1
                                               : test_rand(&seed) % 60,
                                   kind == 3 ? 0.7f : 0, ids[r], kind == 2 ? 5 : 0};
        if (kind == 0 && test_rand(&seed) % 2)
            wants[r].n_ids = 5; /* these alone */
    }
}

/* All rows of a step in one call: the logits of a call for each, and nothing wanted is missing, be
 * it that the rows themselves are scanned, that their copy is being made, or that it is used. */
static void test_many_rows_are_one_by_one(void **state)
{
    (void)state;
    enum { N = 1501, K = 512, T = BNET_TOP_ROWS, CALLS = 40 };
    static float x[T * K], one[T][N];
    static int32_t ids[T][5];
    for (size_t i = 0; i < BNET_COUNT(types); i++)
        for (int round = 0; round < (test_quick() ? 1 : 12); round++) {
            float *rows = random_rows(N, K);
            fixture f = fixture_new(1 + round % 3, types[i], rows, N, K);
            int n = 1 + (int)(test_rand(&seed) % T);
            bnet_top_want wants[T];
            bnet_top tops[T];
            size_t n_served = 0;
            for (size_t c = 0; c < T * K; c++)
                x[c] = random_float() * (c % 97 == 0 ? 30.0f : 1.0f);
            x[K] = round % 4 ? x[K] : INFINITY; /* one that is not for it */
            for (int r = 0; r < n; r++) {
                f.be->v->write(f.be, f.x, x + r * K, K * sizeof *x);
                f.be->v->linear_float(f.be, f.w, f.x, 1, f.y);
                memcpy(one[r], f.y->data, sizeof one[r]);
            }
            f.be->v->write(f.be, f.x, x, (size_t)n * K * sizeof *x);
            f.be->v->linear_float(f.be, f.w, f.x, n, f.y);
            assert_memory_equal(f.y->data, one, (size_t)n * sizeof one[0]);
            for (int call = 0; call < CALLS; call++) {
                roll_wants(&f, n, ids, wants);
                f.be->pass->top(f.be, f.w, f.x, n, wants, f.room, f.scratch, tops);
                bool looked_at = call < 2 || call % 16 == 15 || call >= CALLS - 3;
                for (int r = 0; r < n && looked_at; r++)
                    n_served += check_listed(&f, one[r], &wants[r], &tops[r]) > 0;
            }
            if (served_here(&f))
                assert_true(n_served > 0);
            if (copy_scan(&f) && n >= 8 && round % 4)
                assert_true(calls_of(&f, copy_scan(&f)) > 0);
            fixture_free(&f);
            free(rows);
        }
}

/* Rows that differ by less than the first stage can tell apart, and rows that do not differ. */
static void test_top_of_near_ties(void **state)
{
    (void)state;
    enum { N = 2000, K = 256 };
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        float *rows = random_rows(N, K), x[K];
        for (size_t r = 0; r < N; r++)
            for (size_t c = 0; c < K; c++) {
                float *v = &rows[r * K + c];
                if (r % 40 == 7) /* copies of one row that is long, hence among the best */
                    *v = 3 * rows[c];
                else if (r % 40 == 8) /* all but equal to it */
                    *v = 3 * rows[c] + (c == r % K ? 1e-2f : 0);
            }
        fixture f = fixture_new(2, types[i], rows, N, K);
        size_t served = 0;
        for (int round = 0; round < (test_quick() ? 4 : 20); round++) {
            for (size_t c = 0; c < K; c++)
                x[c] = rows[c] + 0.1f * random_float();
            check_settings(&f, x, &served);
        }
        if (served_here(&f))
            assert_true(served > 0);
        fixture_free(&f);
        free(rows);
    }
}

/* Everything is a candidate: the answer is "compute all", never a wrong list. */
static void test_all_equal_is_refused(void **state)
{
    (void)state;
    enum { N = 512, K = 256 };
    float *rows = malloc(N * K * sizeof *rows), x[K];
    bnet_top_want want = {1, 0, NULL, 0};
    for (size_t i = 0; i < N * K; i++)
        rows[i] = (float)(i % K) - 100.0f;
    for (size_t c = 0; c < K; c++)
        x[c] = random_float();
    fixture f = fixture_new(2, BNET_Q6_K, rows, N, K);
    assert_int_equal(check_top(&f, x, &want), 0);
    memset(x, 0, sizeof x);
    assert_int_equal(check_top(&f, x, &want), 0);
    fixture_free(&f);
    free(rows);
}

/* Values no integer form can bear, and weights without a length: computed in full. */
static void test_not_finite_is_refused(void **state)
{
    (void)state;
    enum { N = 256, K = 256 };
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f, 1e-38f};
    float *rows = random_rows(N, K), x[K];
    bnet_top_want want = {1, 0, NULL, 0};
    bnet_top top;
    fixture f = fixture_new(1, BNET_Q6_K, rows, N, K);
    for (size_t i = 0; i < BNET_COUNT(bad); i++) {
        for (size_t c = 0; c < K; c++)
            x[c] = fabsf(bad[i]) < 1 ? bad[i] : random_float();
        x[i] = bad[i];
        f.be->v->write(f.be, f.x, x, sizeof x);
        f.be->pass->top(f.be, f.w, f.x, 1, &want, f.room, f.scratch, &top);
        assert_null(top.ids);
    }
    fixture_free(&f);
    static const uint16_t halves[] = {0x7c00, 0x7e00, 0xfc00};
    for (size_t i = 0; i < BNET_COUNT(halves); i++) {
        f = fixture_new(1, BNET_Q8_0, rows, N, K);
        memcpy(f.bytes + 5 * 34, &halves[i], 2); /* too late for this one */
        bnet_tensor t = {.name = "output.weight",
                         .n_dims = 2,
                         .ne = {K, N, 1, 1},
                         .type = BNET_Q8_0,
                         .data = f.bytes,
                         .n_bytes = N * K / 32 * 34};
        bnet_weight_request r = {
            .source.tensor = &t, .source.file = "test", .source.extra_scale = 1, .head = true};
        bnet_weight *w = NULL;
        assert_int_equal(f.be->v->weight_prepare(f.be, &r, NULL, &w, NULL), BITNET_OK);
        assert_int_equal(f.be->pass->top_bytes(f.be, w), 0);
        f.be->v->weight_free(f.be, w);
        fixture_free(&f);
    }
    free(rows);
}

/* A packed matrix is the same matrix: products of several tokens, and rows as embeddings. */
static void test_packed_is_the_same_matrix(void **state)
{
    (void)state;
    enum { N = 203, K = 512, T = 11 };
    float *rows = random_rows(N, K), *w = malloc(K * sizeof *w);
    fixture f = fixture_new(2, BNET_Q6_K, rows, N, K);
    bnet_buffer *x = f.be->v->buffer_new(f.be, T * K * sizeof(float));
    bnet_buffer *y = f.be->v->buffer_new(f.be, T * N * sizeof(float));
    float *xs = x->data, *ys = y->data;
    for (size_t i = 0; i < T * K; i++)
        xs[i] = random_float();
    f.be->v->linear_float(f.be, f.w, x, T, y);
    for (size_t r = 0; r < N; r++) {
        bnet_decode_row(BNET_Q6_K, f.bytes + r * K / 256 * 210, w, K);
        for (size_t t = 0; t < T; t++)
            assert_true(ys[t * N + r] == bnet_dot_f32(w, xs + t * K, K));
    }
    const int32_t ids[3] = {0, 202, 77};
    bnet_step step = {3, ids, ids, ids, NULL};
    f.be->v->embed(f.be, f.w, &step, x);
    for (size_t t = 0; t < 3; t++) {
        bnet_decode_row(BNET_Q6_K, f.bytes + (size_t)ids[t] * K / 256 * 210, w, K);
        assert_memory_equal(xs + t * K, w, K * sizeof *w);
    }
    f.be->v->buffer_free(f.be, x);
    f.be->v->buffer_free(f.be, y);
    fixture_free(&f);
    free(rows);
    free(w);
}

int main(void)
{
    head_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_of_random_rows),
        cmocka_unit_test(test_many_rows_are_one_by_one),
        cmocka_unit_test(test_top_of_near_ties),
        cmocka_unit_test(test_all_equal_is_refused),
        cmocka_unit_test(test_not_finite_is_refused),
        cmocka_unit_test(test_packed_is_the_same_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
