/* test_head.c - the two-stage head: its packing, its kernels against the scalar ones bit for bit,
 * the bound of its first stage, and that nothing wanted is ever missing, whatever the rows are. */
#include "test.h"

#include "guarded.h"

#include <math.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/head_work.h"
#include "backend/cpu/pack_q6.h"
#include "base/mathf.h"
#include "device/cpu_features.h"

static uint64_t seed;

static float random_float(void)
{
    return (float)((double)(int64_t)test_rand(&seed) / 9.3e18);
}

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

/* ---- the copy ---- */

enum { MOST_INPUTS = BNET_COPY_EIGHTS * BNET_COPY_INPUTS };

static void eights_new(bnet_head_eight e[BNET_COPY_EIGHTS], size_t n_cols)
{
    for (size_t i = 0; i < BNET_COPY_EIGHTS; i++)
        e[i] = (bnet_head_eight){.low = malloc(8 * n_cols),
                                 .high = malloc(8 * n_cols),
                                 .lines = malloc(n_cols / 8 * sizeof(uint32_t))};
}

static void eights_free(bnet_head_eight e[BNET_COPY_EIGHTS])
{
    for (size_t i = 0; i < BNET_COPY_EIGHTS; i++)
        free(e[i].low), free(e[i].high), free(e[i].lines);
}

static bnet_copy_loss place(bnet_head_eight *e, const float *x, size_t n_cols)
{
    float most = 0;
    double sum = 0;
    for (size_t i = 0; i < n_cols; i++) {
        most = BNET_MAX(most, fabsf(x[i]));
        sum += (double)x[i] * (double)x[i];
    }
    return bnet_copy_input(e, x, n_cols, most, sqrt(sum));
}

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

/* ---- the operation ---- */

typedef struct fixture {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_weight *w;
    uint8_t *bytes;
    bnet_buffer *x, *y, *room, *scratch; /* x, y and room: of BNET_TOP_ROWS rows */
    size_t n_in, n_out;
} fixture;

static fixture fixture_new(int n_threads, bnet_type type, const float *rows, size_t n_out,
                           size_t n_in)
{
    fixture f = {.n_in = n_in, .n_out = n_out};
    uint64_t n_bytes = 0;
    assert_true(bnet_type_bytes(type, n_in, n_out, &n_bytes));
    f.bytes = malloc((size_t)n_bytes);
    for (size_t r = 0; r < n_out; r++)
        assert_true(
            bnet_encode_row(type, rows + r * n_in, f.bytes + r * (size_t)(n_bytes / n_out), n_in));
    bnet_tensor t = {.name = "output.weight",
                     .n_dims = 2,
                     .ne = {n_in, n_out, 1, 1},
                     .type = type,
                     .data = f.bytes,
                     .n_bytes = n_bytes};
    bnet_weight_request r = {
        .source.tensor = &t, .source.file = "test", .source.extra_scale = 1, .head = true};
    assert_int_equal(bnet_pool_open(n_threads, &f.pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&f.registry, NULL), BITNET_OK);
    assert_int_equal(bnet_backend_open_cpu(f.pool, f.registry, NULL, false, NULL, &f.be, NULL),
                     BITNET_OK);
    assert_int_equal(f.be->v->weight_prepare(f.be, &r, NULL, &f.w, NULL), BITNET_OK);
    f.x = f.be->v->buffer_new(f.be, BNET_TOP_ROWS * n_in * sizeof(float));
    f.y = f.be->v->buffer_new(f.be, BNET_TOP_ROWS * n_out * sizeof(float));
    f.room = f.be->v->buffer_new(f.be, BNET_TOP_ROWS * n_out * sizeof(float));
    f.scratch = f.be->v->buffer_new(f.be, f.be->pass->top_bytes(f.be, f.w) + 1);
    return f;
}

static void fixture_free(fixture *f)
{
    bnet_buffer *all[] = {f->x, f->y, f->room, f->scratch};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        f->be->v->buffer_free(f->be, all[i]);
    f->be->v->weight_free(f->be, f->w);
    bnet_backend_close(f->be);
    bnet_registry_close(f->registry);
    bnet_pool_close(f->pool);
    free(f->bytes);
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static bool holds(const bnet_top *t, int32_t id)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->ids[i] == id)
            return true;
    return false;
}

/* What is listed is exact and in order; nothing wanted is missing. Returns how many were listed, 0
 * if it was refused. y: all logits. */
static size_t check_listed(const fixture *f, const float *y, const bnet_top_want *want,
                           const bnet_top *top)
{
    if (!top->ids)
        return 0;
    for (size_t i = 0; i < top->n; i++) {
        assert_true(i == 0 || top->ids[i] > top->ids[i - 1]);
        assert_memory_equal(&top->logits[i], &y[top->ids[i]], sizeof *y);
    }
    float *sorted = malloc(f->n_out * sizeof *sorted);
    memcpy(sorted, y, f->n_out * sizeof *sorted);
    qsort(sorted, f->n_out, sizeof *sorted, descending);
    float least = sorted[want->k + want->n_ids - 1] - want->range;
    assert_true(want->k > 0 || top->n == want->n_ids);
    for (size_t r = 0; r < f->n_out && want->k > 0; r++)
        if (y[r] >= least && !holds(top, (int32_t)r))
            fail_msg("row %zu is missing: %.9g, the least wanted is %.9g", r, (double)y[r],
                     (double)least);
    for (size_t i = 0; i < want->n_ids; i++)
        assert_true(holds(top, want->ids[i]));
    free(sorted);
    return top->n;
}

static size_t check_top(fixture *f, const float *x, const bnet_top_want *want)
{
    bnet_top top = {0};
    f->be->v->write(f->be, f->x, x, f->n_in * sizeof *x);
    f->be->v->linear_float(f->be, f->w, f->x, 1, f->y);
    f->be->pass->top(f->be, f->w, f->x, 1, want, f->room, f->scratch, &top);
    return check_listed(f, f->y->data, want, &top);
}

static bool served_here(const fixture *f)
{
    if (f->be->pass->top_bytes(f->be, f->w) > 0)
        return true;
    print_message("no scan on this CPU: every row is computed\n");
    return false;
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

static float *random_rows(size_t n_out, size_t n_in)
{
    float *rows = malloc(n_out * n_in * sizeof *rows);
    for (size_t i = 0; i < n_out * n_in; i++)
        rows[i] = random_float();
    return rows;
}

static const bnet_type types[] = {BNET_Q6_K, BNET_Q8_0, BNET_F16, BNET_BF16};

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

/* How often a kernel was called. */
static uint64_t calls_of(const fixture *f, const bnet_kernel_record *k)
{
    return k ? atomic_load(&((cpu_backend *)f->be)->calls[k->slot]) : 0;
}

static const bnet_kernel_record *copy_scan(const fixture *f)
{
    return f->w->head && f->w->head->copy ? f->w->head->copy->scan : NULL;
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
        for (size_t r = 5; copy_whole(&f) && r < N; r += test_quick() ? 499 : 97) {
            const uint8_t *group = f.w->head->copy->groups + r / 8 * bnet_copy_group_bytes(K);
            memcpy(&scale, group + BNET_COPY_ROWS * K + r % 8 * sizeof scale, sizeof scale);
            bnet_decode_row(types[i], f.bytes + r * f.w->row_bytes, w, K);
            for (size_t c = 0; c < K; c++)
                x[c] = w[c] - scale * (float)(group[c / 8 * 64 + r % 8 * 8 + c % 8] - 128);
            double part = check_bounds(&f, x);
            assert_true(part > 0.15 && part <= 1);
        }
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
    const char *given = getenv("KCHECK_SEED");
    seed = given ? strtoull(given, NULL, 0) : 20260401;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing_comes_back),
        cmocka_unit_test(test_kernel_rows),
        cmocka_unit_test(test_scan_means_the_dot),
        cmocka_unit_test(test_top_of_random_rows),
        cmocka_unit_test(test_many_rows_are_one_by_one),
        cmocka_unit_test(test_copy_means_the_row),
        cmocka_unit_test(test_when_a_copy_is_made),
        cmocka_unit_test(test_bound_of_rows),
        cmocka_unit_test(test_bound_of_inputs),
        cmocka_unit_test(test_what_codes_lose_is_found),
        cmocka_unit_test(test_bound_of_extremes),
        cmocka_unit_test(test_a_copy_that_does_not_pay_is_left),
        cmocka_unit_test(test_top_of_near_ties),
        cmocka_unit_test(test_all_equal_is_refused),
        cmocka_unit_test(test_not_finite_is_refused),
        cmocka_unit_test(test_packed_is_the_same_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
