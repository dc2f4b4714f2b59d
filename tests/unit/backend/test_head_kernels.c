/* test_head_kernels.c - the kernels of the two-stage head, bit for bit against the scalar ones, and
 * the packing of rows they take. */
#include "head_fixture.h"

#include "guarded.h"

#include "backend/cpu/pack_q6.h"
#include "device/cpu_features.h"

/* ---- packing ---- */

static void random_bytes(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)test_rand(&seed);
}

static void test_packing_comes_back(void **state)
{
    (void)state;
    for (size_t n_rows = 1; n_rows <= 4; n_rows++)
        for (size_t n_cols = 256; n_cols <= 1280; n_cols += 256) {
            size_t row_bytes = n_cols / 256 * 210;
            uint8_t *rows = malloc(4 * row_bytes), *back = malloc(row_bytes);
            guarded g = guard_new(bnet_q6r4_group_bytes(n_cols));
            random_bytes(rows, 4 * row_bytes);
            bnet_q6r4_pack(rows, row_bytes, n_rows, n_cols, g.data);
            for (size_t r = 0; r < 4; r++) {
                bnet_q6r4_unpack_row(g.data, r, n_cols, back);
                if (r < n_rows)
                    assert_memory_equal(back, rows + r * row_bytes, row_bytes);
                else
                    for (size_t i = 0; i < row_bytes; i++)
                        assert_int_equal(back[i], 0);
            }
            guard_free(&g);
            free(rows);
            free(back);
        }
}

/* ---- kernels ---- */

/* Inputs of a scan in every order, as ops_head.c makes them, but written down plainly here. */
typedef struct scan_input {
    int8_t *q, *mult, *mult4, *q4;
    int32_t *start4;
    int16_t *pairs4;
    uint8_t *up;
    float *f, *raised;
    bnet_head_x x;
} scan_input;

enum { FILL_RANDOM, FILL_PLUS, FILL_MINUS, FILL_ALTERNATING, N_FILLS };

static scan_input input_new(size_t n, int fill)
{
    scan_input in = {.q = malloc(n),
                     .mult = malloc(n / 16),
                     .mult4 = malloc(n / 4),
                     .q4 = malloc(4 * n),
                     .start4 = malloc(n / 4 * sizeof(int32_t)),
                     .pairs4 = malloc(2 * n * sizeof(int16_t)),
                     .up = malloc(n),
                     .f = malloc(n * sizeof(float)),
                     .raised = malloc(n * sizeof(float))};
    for (size_t i = 0; i < n; i++)
        in.q[i] = fill == FILL_RANDOM  ? (int8_t)((int)(test_rand(&seed) % 255) - 127)
                  : fill == FILL_PLUS  ? 127
                  : fill == FILL_MINUS ? -127
                  : i % 2              ? 127
                                       : -127;
    for (size_t i = 0; i < n / 16; i++)
        in.mult[i] = fill == FILL_RANDOM ? (int8_t)(test_rand(&seed) % (BNET_HEAD_MULT + 1))
                                         : BNET_HEAD_MULT;
    for (size_t i = 1; i < n / 16; i += 2)
        in.mult[i] = n % 256 ? in.mult[i - 1] : in.mult[i]; /* Q8_0: one for 32 columns */
    for (size_t c = 0; c < n; c++)
        for (size_t r = 0; r < 4; r++) {
            in.q4[c / 4 * 16 + 4 * r + c % 4] = in.q[c];
            int16_t *pair = &in.pairs4[c / 4 * 8 + 2 * r + c % 4 / 2];
            *pair = (int16_t)((c % 2 ? *pair : 0) - 32 * in.q[c]);
        }
    for (size_t s = 0; s < n / 16 && n % 256 == 0; s++) {
        size_t h = s % 16 / 8, g = s % 8 / 2, l = s % 2;
        for (size_t r = 0; r < 4; r++) {
            size_t at = s / 16 * 64 + 16 * (2 * h + l) + 4 * g + r;
            in.mult4[at] = in.mult[s];
            in.start4[at] = 0;
            for (size_t i = 0; i < 16; i++)
                in.start4[at] -= 32 * in.q[16 * s + i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        in.up[i] = (uint8_t)(128 + in.q[i]);
        in.f[i] = fill == FILL_RANDOM ? 100 * random_float() : (float)in.q[i] * 250.0f;
        in.raised[i] = in.f[i] * 0x1p112f;
    }
    in.x = (bnet_head_x){.q = in.q,
                         .mult = in.mult,
                         .mult4 = in.mult4,
                         .start4 = in.start4,
                         .q4 = in.q4,
                         .pairs4 = in.pairs4,
                         .up = in.up,
                         .x = in.f,
                         .raised = in.raised};
    return in;
}

/* Column c of input a, of Q6_K, and of the next one, or none, where they stand together. */
static int8_t *two_new(const scan_input *a, const scan_input *b, size_t n)
{
    int8_t *two = calloc(n / 64, BNET_HEAD_TWO);
    for (size_t c = 0; c < n; c++) {
        size_t s = c / 16 % 16, g = s % 8 / 2;
        int8_t *quarter = two + (c / 256 * 4 + s / 8 * 2 + s % 2) * BNET_HEAD_TWO;
        int8_t *at = quarter + 32 * g + 16 * (c % 16 / 8) + c % 8;
        int32_t *mult = (int32_t *)(void *)(quarter + 128 + 16 * g);
        at[0] = a->q[c];
        at[8] = b ? b->q[c] : 0;
        mult[0] = mult[1] = a->mult[c / 16];
        mult[2] = mult[3] = b ? b->mult[c / 16] : 0;
    }
    return two;
}

static void input_free(scan_input *in)
{
    free(in->q), free(in->mult), free(in->mult4), free(in->q4), free(in->start4), free(in->pairs4),
        free(in->up);
    free(in->f), free(in->raised);
}

/* 16-bit floats, all finite: of every size and sign, subnormal ones too, or the largest. */
static void fill_floats(bnet_type type, uint8_t *rows, size_t n, int fill)
{
    uint16_t exponent = type == BNET_F16 ? 0x7c00 : 0x7f80;
    random_bytes(rows, 2 * n);
    for (size_t i = 0; i < n; i++) {
        uint16_t h = bnet_u16(rows + 2 * i);
        if (type == BNET_BF16)
            h = (uint16_t)((h & 0x8fff) | 0x3000); /* no products that overflow */
        if ((h & exponent) == exponent)
            h ^= 0x0400;
        if (type == BNET_F16 && fill != FILL_RANDOM)
            h = fill == FILL_PLUS ? 0x7bff : fill == FILL_MINUS ? 0x8001 : (uint16_t)(i & 0x83ff);
        memcpy(rows + 2 * i, &h, 2);
    }
}

/* Rows of bytes as a file may have them; extremes: all codes and scales at one end. */
static void fill_rows(bnet_type type, uint8_t *rows, size_t n_rows, size_t n_cols, int fill)
{
    size_t block = type == BNET_Q6_K ? 210 : 34, per = type == BNET_Q6_K ? 256 : 32;
    size_t n = n_rows * (n_cols / per), d_at = type == BNET_Q6_K ? 208 : 0;
    if (type == BNET_F16 || type == BNET_BF16) {
        fill_floats(type, rows, n_rows * n_cols, fill);
        return;
    }
    random_bytes(rows, n * block);
    for (size_t b = 0; b < n; b++) {
        uint8_t *p = rows + b * block;
        if (fill == FILL_PLUS)
            memset(p, type == BNET_Q6_K ? 0xff : 0x7f, block);
        if (fill == FILL_MINUS)
            memset(p, type == BNET_Q6_K ? 0 : 0x80, block);
        if (type == BNET_Q6_K && fill != FILL_RANDOM)
            memset(p + 192, fill == FILL_ALTERNATING ? 0x7f : 0x80, 16);
        uint16_t d = bnet_f32_to_f16(0.01f + fabsf(random_float()));
        memcpy(p + d_at, &d, 2);
    }
}

typedef struct scan_format {
    const char *name;
    bnet_type type;
    bnet_fn_head_scan *scalar;
    size_t columns; /* a multiple of them */
} scan_format;

static const scan_format formats[] = {
    {"q6_k_r4", BNET_Q6_K, bnet_head_scan_q6_k_r4_scalar, 256},
    {"q8_0", BNET_Q8_0, bnet_head_scan_q8_0_scalar, 32},
    {"f16", BNET_F16, bnet_head_scan_f16_scalar, 32},
    {"bf16", BNET_BF16, bnet_head_scan_bf16_scalar, 32},
};

static void check_scan(const bnet_kernel_record *k, const scan_format *f, size_t n_rows,
                       size_t n_cols, int fill)
{
    uint64_t bytes = 0;
    bnet_type type = f->type;
    assert_true(bnet_type_bytes(type, n_cols, 1, &bytes));
    size_t row_bytes = (size_t)bytes;
    uint8_t *rows = malloc(n_rows * row_bytes);
    guarded w = guard_new(n_rows * row_bytes);
    enum { T = BNET_TOP_ROWS + 2 };
    size_t n_x = 1 + test_rand(&seed) % T;
    scan_input in[T];
    bnet_head_x x[T];
    float *want = malloc(T * n_rows * sizeof *want), *got = malloc(T * (n_rows + 1) * sizeof *got);
    float *to[T], *into[T];
    for (size_t t = 0; t < n_x; t++) {
        in[t] = input_new(n_cols, fill);
        x[t] = in[t].x;
        to[t] = want + t * n_rows;
        into[t] = got + t * (n_rows + 1);
    }
    for (size_t t = 0; t < n_x && n_x > 1 && type == BNET_Q6_K; t += 2)
        x[t].two = two_new(&in[t], t + 1 < n_x ? &in[t + 1] : NULL, n_cols);
    fill_rows(type, rows, n_rows, n_cols, fill);
    memcpy(w.data, rows, n_rows * row_bytes);
    for (size_t r = 0; r + 4 <= n_rows && type == BNET_Q6_K; r += 4)
        bnet_q6r4_pack(rows + r * row_bytes, row_bytes, 4, n_cols, w.data + r * row_bytes);
    memset(got, 0x7f, n_x * (n_rows + 1) * sizeof *got);
    for (size_t t = 0; t < n_x; t++) /* one by one */
        f->scalar(w.data, n_rows, &x[t], 1, n_cols, &to[t]);
    ((bnet_fn_head_scan *)k->fn)(w.data, n_rows, x, n_x, n_cols, into);
    for (size_t t = 0; t < n_x; t++) {
        for (size_t r = 0; r < n_rows; r++)
            if (memcmp(&into[t][r], &to[t][r], sizeof *got) != 0)
                fail_msg("%s: %zu columns, row %zu of %zu, input %zu of %zu, fill %d: %.9g, scalar "
                         "%.9g",
                         k->id, n_cols, r, n_rows, t, n_x, fill, (double)into[t][r],
                         (double)to[t][r]);
        uint32_t behind;
        memcpy(&behind, into[t] + n_rows, 4);
        assert_int_equal(behind, 0x7f7f7f7f);
        input_free(&in[t]);
        free((void *)(uintptr_t)x[t].two);
    }
    free(rows), free(want), free(got);
    guard_free(&w);
}

static void check_linear_r4(const bnet_kernel_record *k, size_t n_cols, size_t n_tokens)
{
    size_t row_bytes = n_cols / 256 * 210, n_x = n_cols * n_tokens;
    uint8_t *rows = malloc(4 * row_bytes);
    guarded g = guard_new(4 * row_bytes), gx = guard_new(n_x * sizeof(float));
    float *x = (float *)(void *)gx.data, got[4 * BNET_LINEAR_TOKENS], want[BNET_LINEAR_TOKENS];
    fill_rows(BNET_Q6_K, rows, 4, n_cols, (int)(n_tokens % N_FILLS));
    bnet_q6r4_pack(rows, row_bytes, 4, n_cols, g.data);
    for (size_t i = 0; i < n_x; i++)
        x[i] = random_float();
    ((bnet_fn_linear_r4 *)k->fn)(g.data, x, n_cols, n_cols, n_tokens, got);
    for (size_t r = 0; r < 4; r++) {
        bnet_linear_q6_k_scalar(rows + r * row_bytes, x, n_cols, n_cols, n_tokens, want);
        for (size_t t = 0; t < n_tokens; t++)
            if (memcmp(&got[4 * t + r], &want[t], sizeof *want) != 0)
                fail_msg("%s: %zu columns, row %zu, token %zu: %.9g, plain row %.9g", k->id, n_cols,
                         r, t, (double)got[4 * t + r], (double)want[t]);
    }
    free(rows);
    guard_free(&g);
    guard_free(&gx);
}

/* ---- kernels of the copy ---- */

enum { MOST_INPUTS = BNET_COPY_EIGHTS * BNET_COPY_INPUTS };

/* Inputs of a kind: all values at one end, or random ones of which some, or none, are large. */
static void fill_inputs(bnet_head_eight *e, size_t n_cols, size_t n, int fill)
{
    float *x = malloc(n_cols * sizeof *x);
    bnet_copy_clear(e, n_cols);
    for (size_t t = 0; t < n; t++) {
        for (size_t i = 0; i < n_cols; i++)
            x[i] = fill == FILL_RANDOM        ? random_float() * (i % 97 == t ? 3e4f : 1)
                   : fill == FILL_PLUS        ? 1
                   : fill == FILL_ALTERNATING ? (i % 2 ? 1.0f : -1.0f)
                                              : -1;
        place(e, x, n_cols);
        for (size_t i = 0; i < n_cols && fill != FILL_RANDOM; i++) /* as large as there can be */
            e->low[i / 8 * 64 + 8 * t + i % 8] = e->high[i / 8 * 64 + 8 * t + i % 8] =
                (int8_t)(127 * x[i]);
        e->low_sum[t] = e->high_sum[t] = 0;
        for (size_t i = 0; i < n_cols; i++) {
            e->low_sum[t] += 128 * e->low[i / 8 * 64 + 8 * t + i % 8];
            e->high_sum[t] += 128 * e->high[i / 8 * 64 + 8 * t + i % 8];
        }
    }
    bnet_copy_finish(e, n_cols);
    free(x);
}

/* A group of random codes and scales. */
static void fill_group(uint8_t *group, size_t n_cols, int fill)
{
    float *scales = (float *)(void *)(group + BNET_COPY_ROWS * n_cols);
    random_bytes(group, bnet_copy_group_bytes(n_cols));
    for (size_t i = 0; i < BNET_COPY_ROWS * n_cols; i++)
        group[i] = fill == FILL_PLUS ? 255 : fill == FILL_MINUS ? 1 : BNET_MAX(group[i], 1);
    for (size_t r = 0; r < BNET_COPY_ROWS; r++)
        scales[r] = random_float();
}

static void check_copy(const bnet_kernel_record *k, size_t n_cols, size_t n_groups, size_t n,
                       int fill)
{
    size_t n_group = bnet_copy_group_bytes(n_cols), n_y = n_groups * BNET_COPY_CALL;
    guarded g = guard_new(n_groups * n_group);
    bnet_head_eight e[BNET_COPY_EIGHTS];
    float(*got)[BNET_COPY_ROWS] = malloc(n_y * sizeof *got);
    float(*want)[BNET_COPY_ROWS] = malloc(n_y * sizeof *want);
    size_t n_eights = (n + BNET_COPY_INPUTS - 1) / BNET_COPY_INPUTS;
    for (size_t i = 0; i < n_groups; i++)
        fill_group(g.data + i * n_group, n_cols, fill);
    eights_new(e, n_cols);
    for (size_t i = 0; i < n_eights; i++)
        fill_inputs(&e[i], n_cols, BNET_MIN(n - i * BNET_COPY_INPUTS, (size_t)BNET_COPY_INPUTS),
                    fill);
    bnet_head_scan_i8_r8_scalar(g.data, n_groups, e, n_eights, n_cols, want);
    ((bnet_fn_head_copy *)k->fn)(g.data, n_groups, e, n_eights, n_cols, got);
    for (size_t t = 0; t < n_y; t++)
        for (size_t r = 0; r < BNET_COPY_ROWS && t % BNET_COPY_CALL < n; r++)
            if (memcmp(&got[t][r], &want[t][r], sizeof got[t][r]) != 0)
                fail_msg("%s: %zu columns, group %zu of %zu, row %zu, input %zu of %zu, fill %d: "
                         "%.9g, scalar %.9g",
                         k->id, n_cols, t / BNET_COPY_CALL, n_groups, r, t % BNET_COPY_CALL, n,
                         fill, (double)got[t][r], (double)want[t][r]);
    free(got), free(want);
    eights_free(e);
    guard_free(&g);
}

static void check_copy_row(const bnet_kernel_record *k)
{
    static const size_t lines[] = {1, 2, 3,  4,  16, 33, 47, 5,  6, 7,
                                   8, 9, 10, 11, 12, 13, 15, 17, 64};
    for (size_t m = 0; m < (test_quick() ? 7 : BNET_COUNT(lines)); m++)
        for (size_t n = 1; n <= MOST_INPUTS; n++)
            for (int fill = 0; fill < N_FILLS; fill++)
                check_copy(k, 8 * lines[m], 1 + (n + m) % 8, n, fill);
    for (int fill = 0; fill < (test_quick() ? FILL_PLUS + 1 : N_FILLS); fill++)
        check_copy(k, BNET_COPY_COLUMNS, 1, MOST_INPUTS, fill);
}

/* ---- every row of the list ---- */

static void check_scan_row(const bnet_kernel_record *k)
{
    const scan_format *f = NULL;
    for (size_t i = 0; i < BNET_COUNT(formats); i++)
        f = k->format == bnet_format_find(formats[i].name) ? &formats[i] : f;
    assert_non_null(f);
    for (size_t m = 1; m <= 13; m++)
        for (int fill = 0; fill < N_FILLS; fill++)
            check_scan(k, f, f->columns == 256 ? 4 * (m % 6 + 1) : m % 5 + 1, f->columns * m, fill);
    for (int fill = 0; fill < N_FILLS; fill++) /* as long as rows of models are, and longer */
        check_scan(k, f, f->columns == 256 ? 20 : 4, 27648, fill);
}

static void test_kernel_rows(void **state)
{
    (void)state;
    size_t n, checked = 0;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (size_t i = 0; i < n; i++) {
        const bnet_kernel_record *k = &rows[i];
        bool scan = k->op == BNET_OP_HEAD_SCAN, q6 = k->format == BNET_FORMAT_Q6_K_R4;
        if (!scan && !q6)
            continue;
        if (k->needs & ~bnet_cpu_features()) {
            print_message("%s: not available on this CPU, not checked\n", k->id);
            continue;
        }
        checked++;
        if (scan && k->format == BNET_FORMAT_I8_R8)
            check_copy_row(k);
        else if (scan)
            check_scan_row(k);
        else
            for (size_t m = 1; m <= 13; m++)
                check_linear_r4(k, 256 * m, m % BNET_LINEAR_TOKENS + 1);
    }
    assert_true(checked >= 5);
}

/* The scalar scan itself: against real arithmetic. */
static void test_scan_means_the_dot(void **state)
{
    (void)state;
    enum { K = 768, N = 8 };
    uint8_t rows[N * K / 256 * 210], packed[sizeof rows];
    float w[K], y[N];
    scan_input in = input_new(K, FILL_RANDOM);
    fill_rows(BNET_Q6_K, rows, N, K, FILL_RANDOM);
    for (size_t r = 0; r < N; r += 4)
        bnet_q6r4_pack(rows + r * K / 256 * 210, K / 256 * 210, 4, K, packed + r * K / 256 * 210);
    bnet_head_scan_q6_k_r4_scalar(packed, N, &in.x, 1, K, (float *[]){y});
    for (size_t r = 0; r < N; r++) {
        double want = 0, size = 0;
        bnet_decode_row(BNET_Q6_K, rows + r * K / 256 * 210, w, K);
        for (size_t i = 0; i < K; i++) {
            want += (double)w[i] * in.q[i] * in.mult[i / 16];
            size += fabs((double)w[i] * in.q[i] * in.mult[i / 16]);
        }
        assert_true(fabs(y[r] - want) <= 1e-6 * size);
    }
    input_free(&in);
}

int main(void)
{
    head_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing_comes_back),
        cmocka_unit_test(test_kernel_rows),
        cmocka_unit_test(test_scan_means_the_dot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
