/* test_head_copy.c - the copy of the head in bytes: what it means, when it is made and left, and
 * the bound it is scanned with. */
#include "head_fixture.h"

/* Codes times scale, and integers times unit, are what they stand for, but for the lengths that are
 * told; the scan of them is their product. */
static void test_copy_means_the_row(void **state)
{
    (void)state;
    enum { K = 520 };
    static const float sizes[] = {1, 1e-20f, 1e20f, 1e-31f};
    uint8_t group[BNET_COPY_ROWS * K + BNET_COPY_LINE] = {0};
    float row[K], x[K], y[BNET_COPY_INPUTS][BNET_COPY_ROWS];
    for (size_t s = 0; s < BNET_COUNT(sizes); s++)
        for (int outliers = 0; outliers < 3; outliers++) {
            bnet_head_eight e[BNET_COPY_EIGHTS];
            double rr = 0, ee = 0, dot = 0, vv = 0;
            float scale;
            eights_new(e, K);
            for (size_t i = 0; i < K; i++) {
                row[i] = sizes[s] * random_float();
                x[i] = random_float() * (i % 50 == 3 ? powf(100, (float)outliers) : 1);
            }
            double rest = bnet_copy_row(row, K, 5, group);
            bnet_copy_clear(e, K);
            bnet_copy_loss l = place(e, x, K);
            bnet_copy_finish(e, K);
            bnet_head_scan_i8_r8_scalar(group, 1, e, 1, K, y);
            memcpy(&scale, group + BNET_COPY_ROWS * K + 5 * sizeof scale, sizeof scale);
            for (size_t i = 0; i < K; i++) {
                double v = (double)scale * (group[i / 8 * 64 + 40 + i % 8] - 128);
                double q = e->low[i / 8 * 64 + i % 8];
                for (size_t h = 0; h < e->n_high; h++)
                    q += e->lines[h] == i / 8 ? 254.0 * e->high[64 * h + i % 8] : 0;
                q *= (double)l.unit;
                rr += (row[i] - v) * (row[i] - v);
                ee += (x[i] - q) * (x[i] - q);
                vv += v * v;
                dot += v * q;
            }
            assert_true(sqrt(rr) <= rest * (1 + 1e-9) && rest <= sqrt(rr) * (1 + 1e-9));
            assert_true(sqrt(ee) <= l.rest * (1 + 1e-9) && l.rest < 0.01 * l.x);
            assert_true(fabs(dot - (double)y[0][5] * (double)l.unit) <=
                        7 * 0x1p-24 * sqrt(vv) * l.parts + 1e-37);
            if (sizes[s] > 1e-30f)
                assert_true(rest < 0.02 * sqrt(vv));
            eights_free(e);
        }
}

/* A copy is made part by part, and for what it is good for: several inputs, or any where it is half
 * of the rows; not of small heads. */
static void test_when_a_copy_is_made(void **state)
{
    (void)state;
    enum { K = 256 };
    static const struct {
        bnet_type type;
        size_t n_out;
        int n_rows;
        bool made;
    } cases[] = {{BNET_Q6_K, 2000, 1, false}, {BNET_Q6_K, 2000, 2, true},
                 {BNET_Q8_0, 2000, 1, false}, {BNET_Q8_0, 2000, 16, true},
                 {BNET_F16, 2000, 1, true},   {BNET_BF16, 2000, 3, true},
                 {BNET_F16, 1000, 8, false},  {BNET_F16, 20000, 2, true}};
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        float *rows = random_rows(cases[i].n_out, K), x[BNET_TOP_ROWS * K];
        fixture f = fixture_new(2, cases[i].type, rows, cases[i].n_out, K);
        bnet_top_want wants[BNET_TOP_ROWS] = {{0}};
        bnet_top tops[BNET_TOP_ROWS];
        int calls = 0, most = test_quick() ? 40 : 100;
        for (size_t c = 0; c < BNET_COUNT(x); c++)
            x[c] = random_float();
        for (int r = 0; r < cases[i].n_rows; r++)
            wants[r].k = 1;
        f.be->v->write(f.be, f.x, x, sizeof x);
        while (calls < most && calls_of(&f, copy_scan(&f)) == 0) {
            f.be->pass->top(f.be, f.w, f.x, cases[i].n_rows, wants, f.room, f.scratch, tops);
            calls++;
        }
        if (cases[i].n_out < 1024)
            assert_null(copy_scan(&f));
        if (copy_scan(&f) && cases[i].made)
            assert_true(calls > 1 && calls <= 32);
        else
            assert_int_equal(calls, most);
        fixture_free(&f);
        free(rows);
    }
}

/* ---- the bound of the copy ---- */

/* Makes the copy of a head whole. False: there is none on this CPU. */
static bool copy_whole(fixture *f)
{
    bnet_top_want wants[2] = {{.k = 1}, {.k = 1}};
    bnet_top tops[2];
    float *x = malloc(2 * f->n_in * sizeof *x);
    for (size_t i = 0; i < 2 * f->n_in; i++)
        x[i] = random_float();
    f->be->v->write(f->be, f->x, x, 2 * f->n_in * sizeof *x);
    for (int call = 0; call < 40 && copy_scan(f); call++)
        f->be->pass->top(f->be, f->w, f->x, 2, wants, f->room, f->scratch, tops);
    free(x);
    if (copy_scan(f))
        assert_int_equal(atomic_load(&f->w->head->copy->n_made), f->w->head->copy->n_groups);
    return copy_scan(f) != NULL;
}

/* Every logit is within its bound. Returns the largest part of a bound that was needed, -1 if the
 * input is not for the copy. */
static double check_bounds(fixture *f, const float *x)
{
    const cpu_copy *copy = f->w->head->copy;
    size_t n = f->n_in;
    double worst = 0;
    top_work *work = calloc(1, sizeof *work);
    top_row t = {.in = x};
    work->copy = copy;
    eights_new(work->eights, n);
    f->be->v->write(f->be, f->x, x, n * sizeof *x);
    f->be->v->linear_float(f->be, f->w, f->x, 1, f->y);
    const float *exact = f->y->data;
    bool taken = bnet_top_input(f->w, work, &t);
    if (taken)
        bnet_copy_finish(&work->eights[0], n);
    for (size_t r = 0; r < f->n_out && taken; r++) {
        float got[BNET_COPY_INPUTS][BNET_COPY_ROWS];
        bnet_head_scan_i8_r8_scalar(copy->groups + r / 8 * bnet_copy_group_bytes(n), 1,
                                    work->eights, 1, n, got);
        float a = got[0][r % 8] * t.unit;
        float b = f->w->head->norms[r] * t.c + copy->rests[r] * t.d + 1e-37f;
        if (!(a - b <= exact[r] && exact[r] <= a + b))
            fail_msg("row %zu: %.9g, a %.9g, b %.9g", r, (double)exact[r], (double)a, (double)b);
        worst = fmax(worst, fabs((double)a - (double)exact[r]) / (double)b);
    }
    eights_free(work->eights);
    free(work);
    return taken ? worst : -1;
}

/* An input that points where the codes of a row differ from it needs all of the row's bound. */
static void test_bound_of_rows(void **state)
{
    (void)state;
    enum { N = 1024, K = 512 };
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        float *rows = random_rows(N, K), w[K], x[K], scale;
        fixture f = fixture_new(1, types[i], rows, N, K);
        double most = 0;
        bool made = copy_whole(&f);
        for (size_t r = 5; made && r < N; r += test_quick() ? 499 : 97) {
            const uint8_t *group = f.w->head->copy->groups + r / 8 * bnet_copy_group_bytes(K);
            memcpy(&scale, group + BNET_COPY_ROWS * K + r % 8 * sizeof scale, sizeof scale);
            bnet_decode_row(types[i], f.bytes + r * f.w->row_bytes, w, K);
            for (size_t c = 0; c < K; c++)
                x[c] = w[c] - scale * (float)(group[c / 8 * 64 + r % 8 * 8 + c % 8] - 128);
            double part = check_bounds(&f, x);
            assert_true(part <= 1);
            most = fmax(most, part);
        }
        assert_true(!made || most > 0.25); /* of 40 seeds the least has 0.30 */
        fixture_free(&f);
        free(rows);
    }
}

/* A row that points where the integers of an input differ from it needs all of the input's. */
static void test_bound_of_inputs(void **state)
{
    (void)state;
    enum { N = 1024, K = 512 };
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        float *rows = random_rows(N, K), x[K];
        bnet_head_eight e[BNET_COPY_EIGHTS];
        eights_new(e, K);
        for (size_t c = 0; c < K; c++)
            x[c] = random_float() * (c % 61 == 7 ? 20.0f : 1.0f);
        bnet_copy_clear(e, K);
        bnet_copy_loss l = place(e, x, K);
        for (size_t c = 0; c < K; c++) { /* integers, which codes tell exactly */
            int q = e->low[c / 8 * 64 + c % 8] + 254 * e->high[c / 8 * 64 + c % 8];
            float off = fminf(fmaxf(x[c] / l.unit - (float)q, -0.5f), 0.5f);
            for (size_t r = 0; r < N; r += 3)
                rows[r * K + c] = rintf(254 * (c == 9 ? 0.5f : off)) * (r % 2 ? 1.0f : -1.0f);
        }
        fixture f = fixture_new(1, types[i], rows, N, K);
        if (copy_whole(&f)) {
            double part = check_bounds(&f, x);
            assert_true(part > (types[i] == BNET_F16 || types[i] == BNET_BF16 ? 0.95 : 0.5) &&
                        part <= 1);
        }
        eights_free(e);
        fixture_free(&f);
        free(rows);
    }
}

/* A row whose codes tell nothing of what makes it the best, beside rows that seem better. */
static void test_what_codes_lose_is_found(void **state)
{
    (void)state;
    enum { N = 1100, K = 512, FEW = 10, T = 2 };
    static const bnet_type floats[] = {BNET_F16, BNET_BF16};
    float *rows = random_rows(N, K), x[T * K], all[N];
    for (size_t r = 0; r < N; r++)
        for (size_t c = 0; c < K; c++) {
            float *v = &rows[r * K + c];
            *v *= r < FEW ? 0.4f : r < 2 * FEW ? 0 : 1e-3f;
            if (c == 0 && r < 2 * FEW)
                *v = r < FEW ? 127 : 133;
        }
    double rest = 0;
    for (size_t c = 1; c < K; c++)
        rest += (double)rows[c] * (double)rows[c];
    for (size_t c = 0; c < T * K; c++)
        x[c] = c % K ? rows[c % K] : 0.5f * (float)sqrt(rest);
    for (size_t i = 0; i < BNET_COUNT(floats); i++) {
        fixture f = fixture_new(1, floats[i], rows, N, K);
        bnet_top_want wants[T] = {{.k = 1}, {.k = 1}};
        bnet_top tops[T];
        if (copy_whole(&f)) {
            uint64_t before = calls_of(&f, f.w->head->scan);
            f.be->v->write(f.be, f.x, x, sizeof x);
            f.be->v->linear_float(f.be, f.w, f.x, 1, f.y);
            memcpy(all, f.y->data, sizeof all);
            f.be->pass->top(f.be, f.w, f.x, T, wants, f.room, f.scratch, tops);
            assert_int_equal(calls_of(&f, f.w->head->scan), before); /* by the copy alone */
            assert_true(check_listed(&f, all, &wants[0], &tops[0]) > 0);
            assert_true(holds(&tops[0], 0) && all[0] > all[FEW]);
        }
        fixture_free(&f);
    }
    free(rows);
}

/* Weights and inputs at the ends of what floats can hold. */
static void test_bound_of_extremes(void **state)
{
    (void)state;
    enum { N = 1024, K = 256 };
    static const struct {
        float w, x;
        bool taken;
    } cases[] = {{1e-40f, 1e25f, true},  {1e-34f, 1e28f, true}, {1e-30f, 1e-25f, true},
                 {1e-10f, 1e-29f, true}, {1e20f, 1e8f, true},   {1e28f, 1e5f, true},
                 {1e28f, 1e10f, false},  {1, 1e38f, false}};
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        float *rows = random_rows(N, K), x[K];
        for (size_t c = 0; c < N * K; c++)
            rows[c] *= cases[i].w * (c / K % 5 == 3 ? 1e-3f : 1.0f);
        for (size_t c = 0; c < K; c++)
            x[c] = cases[i].x * random_float();
        fixture f = fixture_new(1, BNET_BF16, rows, N, K);
        if (copy_whole(&f))
            assert_int_equal(check_bounds(&f, x) >= 0, cases[i].taken);
        fixture_free(&f);
        free(rows);
    }
}

/* Rows all but equal leave more to compute than a scan of the rows themselves costs. */
static void test_a_copy_that_does_not_pay_is_left(void **state)
{
    (void)state;
    enum { N = 4096, K = 256, T = 4 };
    float *rows = random_rows(N, K), x[T * K];
    for (size_t r = 1; r < N; r++)
        for (size_t c = 0; c < K; c++)
            rows[r * K + c] = rows[c] + 1e-2f * rows[r * K + c];
    for (size_t c = 0; c < T * K; c++)
        x[c] = random_float();
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        fixture f = fixture_new(2, types[i], rows, N, K);
        bnet_top_want wants[T] = {{.k = 1}, {.k = 1}, {.k = 1}, {.k = 1}};
        bnet_top tops[T];
        f.be->v->write(f.be, f.x, x, sizeof x);
        for (int call = 0; call < (test_quick() ? 30 : 100); call++)
            f.be->pass->top(f.be, f.w, f.x, T, wants, f.room, f.scratch, tops);
        if (copy_scan(&f))
            assert_in_range(calls_of(&f, copy_scan(&f)), 1, 3);
        fixture_free(&f);
    }
    free(rows);
}

int main(void)
{
    head_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_means_the_row),
        cmocka_unit_test(test_when_a_copy_is_made),
        cmocka_unit_test(test_bound_of_rows),
        cmocka_unit_test(test_bound_of_inputs),
        cmocka_unit_test(test_what_codes_lose_is_found),
        cmocka_unit_test(test_bound_of_extremes),
        cmocka_unit_test(test_a_copy_that_does_not_pay_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
