/* test_kernels_r16.c - kcheck of the packed groups of 16 rows: packing against the format's own
 * decoder, and every kernel row bit for bit against the plain scalar sums. Inputs end at a guard
 * page, outputs start poisoned, every tail of rows and tokens is met, fills are the extremes. */
#include "test.h"

#include "guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "device/cpu_features.h"
#include "format/codec.h"

static uint64_t seed;

enum { LOWEST, HIGHEST, UNEQUAL, ZEROS, RANDOM, FILLS };

static void fill_rows(uint8_t *w, size_t n, int fill)
{
    static const uint8_t fills[] = {0x00, 0xaa, 0xaa, 0x55};
    for (size_t i = 0; i < n; i++) {
        uint8_t b = 0;
        for (int k = 0; k < 4; k++)
            b = (uint8_t)(b << 2 | test_rand(&seed) % 3);
        w[i] = fill < RANDOM ? fills[fill] : b;
    }
}

/* The I2_S row that was packed as row r of a group. */
static void unpack_row(const uint8_t *group, size_t r, size_t n_cols, uint8_t *row)
{
    memset(row, 0, n_cols / 4);
    for (size_t k = 0; k < n_cols; k++) {
        unsigned code = group[k / 16 * BNET_R16_LINE + 4 * r + k % 4] >> (k % 16 / 4 * 2) & 3;
        row[k / 128 * 32 + k % 32] |= (uint8_t)(code << (6 - k % 128 / 32 * 2));
    }
}

static void test_packing(void **state)
{
    (void)state;
    static const size_t cols[] = {128, 256, 640, 6912};
    for (size_t c = 0; c < BNET_COUNT(cols); c++)
        for (size_t n_rows = 1; n_rows <= BNET_R16_ROWS; n_rows++) {
            size_t k = cols[c], row_bytes = k / 4, n_group = bnet_r16_group_bytes(k);
            uint8_t *rows = malloc(n_rows * row_bytes), *group = malloc(n_group),
                    *back = malloc(row_bytes);
            int8_t *trits = malloc(k);
            fill_rows(rows, n_rows * row_bytes, RANDOM);
            bnet_r16_pack(rows, row_bytes, n_rows, k, group);
            for (size_t r = 0; r < BNET_R16_ROWS; r++) {
                unpack_row(group, r, k, back);
                if (r < n_rows)
                    assert_memory_equal(back, rows + r * row_bytes, row_bytes);
                else
                    for (size_t i = 0; i < row_bytes; i++)
                        assert_int_equal(back[i], 0x55);
            }
            /* the layout as pack.h words it, from the format's own decoder */
            assert_int_equal(bnet_i2s_decode_row(BITNET_I2S_128, rows, k, n_rows - 1, trits), 0);
            for (size_t i = 0; i < k; i++) {
                const uint8_t *byte = group + i / 16 * 64 + 4 * (n_rows - 1) + i % 4;
                assert_int_equal((*byte >> (i % 16 / 4 * 2) & 3) - 1, trits[i]);
            }
            free(rows);
            free(group);
            free(back);
            free(trits);
        }
}

typedef struct r16_case {
    size_t k, n_rows, n_tokens;
    int fill;
    size_t off; /* bytes between the inputs' end and the guard page: misaligns them */
} r16_case;

/* Sums of the plain rows, then the one epilogue. */
static void expected(const r16_case *c, const uint8_t *rows, const bnet_r16 *a, float *y)
{
    int32_t *acc = malloc(c->n_rows * sizeof *acc);
    for (size_t t = 0; t < c->n_tokens; t++) {
        bnet_linear_i2s_scalar(rows, c->k / 128, c->n_rows, a->x + t * a->x_stride, a->x_stride,
                               a->x_sum + t, 1, acc);
        float scale = a->x_scale[t] * a->w_scale;
        for (size_t r = 0; r < c->n_rows; r++)
            y[t * a->y_stride + r] = (float)acc[r] * scale;
    }
    free(acc);
}

static void fill_tokens(const r16_case *c, int8_t *x, size_t stride, int32_t *sum, float *scale)
{
    for (size_t t = 0; t < c->n_tokens; t++) {
        sum[t] = 0;
        scale[t] = c->fill == RANDOM ? (float)(test_rand(&seed) % 1000 + 1) / 777.0f : 1.0f;
        for (size_t i = 0; i < stride; i++) {
            int8_t v = c->fill == LOWEST    ? -128
                       : c->fill == HIGHEST ? 127
                       : c->fill == UNEQUAL ? -128 /* the largest code times the lowest value */
                       : c->fill == ZEROS   ? -127
                                            : (int8_t)test_rand(&seed);
            x[t * stride + i] = i < c->k ? v : 0;
            sum[t] += x[t * stride + i];
        }
    }
}

static void check_case(const bnet_kernel_record *r, r16_case c)
{
    size_t row_bytes = c.k / 4, n_groups = bnet_r16_groups(c.n_rows), y_stride = c.n_rows + 3;
    size_t n_y = c.n_tokens * y_stride, group = bnet_r16_group_bytes(c.k);
    uint8_t *rows = malloc(c.n_rows * row_bytes);
    guarded gw = guard_new(n_groups * group + c.off);
    guarded gx = guard_new(c.n_tokens * c.k + c.off);
    guarded temp = guard_new((r->temp_bytes + 63) / 64 * 64);
    int32_t *sum = malloc(c.n_tokens * sizeof *sum);
    float *scale = malloc(c.n_tokens * sizeof *scale), *got = malloc(n_y * sizeof *got),
          *want = malloc(n_y * sizeof *want);
    fill_rows(rows, c.n_rows * row_bytes, c.fill);
    for (size_t g = 0; g < n_groups; g++)
        bnet_r16_pack(rows + 16 * g * row_bytes, row_bytes, BNET_MIN(c.n_rows - 16 * g, 16ul), c.k,
                      gw.data + g * group);
    fill_tokens(&c, (int8_t *)gx.data, c.k, sum, scale);
    memset(got, 0x7f, n_y * sizeof *got);
    memset(want, 0x7f, n_y * sizeof *want);
    bnet_r16 a = {gw.data, c.k / 16,   c.n_rows, (int8_t *)gx.data, c.k,      sum, scale,
                  0.75f,   c.n_tokens, got,      y_stride,          temp.data};
    expected(&c, rows, &a, want);
    ((bnet_fn_r16 *)r->fn)(&a);
    for (size_t i = 0; i < n_y; i++) /* what lies between the rows of y must be untouched, too */
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: k %zu, %zu rows, %zu tokens, fill %d, offset %zu: token %zu row %zu is "
                     "%g, reference %g",
                     r->id, c.k, c.n_rows, c.n_tokens, c.fill, c.off, i / y_stride, i % y_stride,
                     (double)got[i], (double)want[i]);
    free(rows);
    free(sum);
    free(scale);
    free(got);
    free(want);
    guard_free(&gw);
    guard_free(&gx);
    guard_free(&temp);
}

/* How many bytes of temp a call reaches, at least: up to the last that two fillings do not keep. */
static size_t temp_used(const bnet_kernel_record *r, size_t k, size_t n_rows, size_t n_tokens)
{
    size_t group = bnet_r16_group_bytes(k), used = 0;
    uint8_t *w = malloc(bnet_r16_groups(n_rows) * group), *temp = aligned_alloc(64, r->temp_bytes);
    int8_t *x = malloc(n_tokens * k);
    int32_t *sum = calloc(n_tokens, sizeof *sum);
    float *scale = calloc(n_tokens, sizeof *scale), *y = malloc(n_tokens * n_rows * sizeof *y);
    memset(w, 0x66, bnet_r16_groups(n_rows) * group);
    memset(x, 3, n_tokens * k);
    for (int fill = 0; fill < 2; fill++) {
        bnet_r16 a = {w, k / 16, n_rows, x, k, sum, scale, 1, n_tokens, y, n_rows, temp};
        memset(temp, fill ? 0x5a : 0xa5, r->temp_bytes);
        ((bnet_fn_r16 *)r->fn)(&a);
        for (size_t i = used; i < r->temp_bytes; i++)
            used = temp[i] != (fill ? 0x5a : 0xa5) ? i + 1 : used;
    }
    free(w), free(temp), free(x), free(sum), free(scale), free(y);
    return used;
}

/* temp_bytes is what the kernel uses at its most: no less (guard pages elsewhere) and no more. */
static void test_REG_12_temp_bytes_are_used(void **state)
{
    (void)state;
    size_t n;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (const bnet_kernel_record *r = rows; r < rows + n; r++) {
        if (!r->fn || !r->temp_bytes || (r->needs & ~bnet_cpu_features()))
            continue;
        if (r->format != BNET_FORMAT_I2S_R16) { /* test_kernels_vector: test_scratch_of_attention */
            assert_int_equal(r->op, BNET_OP_ATTENTION);
            continue;
        }
        size_t short_rows = temp_used(r, 128, 4096, 32), long_rows = temp_used(r, 32768, 16, 32);
        size_t many_tokens = temp_used(r, 10880, 48, 64);
        size_t most = BNET_MAX(many_tokens, BNET_MAX(short_rows, long_rows));
        if (most + 64 < r->temp_bytes)
            fail_msg("%s: temp_bytes is %llu, of which %zu are used", r->id,
                     (unsigned long long)r->temp_bytes, most);
    }
}

static size_t least_tokens(const bnet_kernel_record *r)
{
    return r->m.min ? (size_t)r->m.min : 1;
}

static bool takes(const bnet_kernel_record *r, size_t m)
{
    return m >= least_tokens(r) && (r->m.max == 0 || m <= r->m.max);
}

static void check_row(const bnet_kernel_record *r)
{
    static const size_t cols[] = {128, 256, 384, 640, 2560, 6912, 27648};
    size_t few = least_tokens(r);
    for (size_t c = 0; c < BNET_COUNT(cols); c++)
        for (int fill = 0; fill < FILLS; fill++)
            check_case(r, (r16_case){cols[c], 16 + 5 * c, few, fill, c % 3});
    for (size_t n_rows = 1; n_rows <= 70; n_rows++)
        check_case(r, (r16_case){256, n_rows, few + n_rows % 3, RANDOM, n_rows % 2 * 7});
    for (size_t m = 1; m <= 70; m++)
        if (takes(r, m))
            check_case(r, (r16_case){384, 35, m, m % FILLS, m % 2});
    if (takes(r, 515)) { /* more rows than a block, more tokens than a tile */
        check_case(r, (r16_case){128, 300, 515, RANDOM, 0});
        check_case(r, (r16_case){256, 70, 50, RANDOM, 1});   /* two groups are left over */
        check_case(r, (r16_case){256, 530, 27, RANDOM, 1});  /* copied, in two parts */
        check_case(r, (r16_case){16512, 512, 9, RANDOM, 1}); /* too long for that */
        check_case(r, (r16_case){6912, 100, 33, RANDOM, 0});
        check_case(r, (r16_case){4096, 40, 150, RANDOM, 0}); /* two batches */
        check_case(r, (r16_case){32768, 40, 9, HIGHEST, 1});
        check_case(r, (r16_case){32768, 40, 9, UNEQUAL, 1});
    }
}

/* Where a length of SVE's vectors is asked for, it must be the one the rows are checked at. */
static void expect_sve(const char *bytes)
{
    if (!bytes)
        return;
    assert_int_equal(bnet_cpu_sve_bytes(), strtol(bytes, NULL, 10));
    print_message("SVE with vectors of %s bytes\n", bytes);
}

static void test_rows(void **state)
{
    (void)state;
    size_t n;
    expect_sve(getenv("KCHECK_SVE_BYTES"));
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].format != BNET_FORMAT_I2S_R16)
            continue;
        if (rows[i].needs & ~bnet_cpu_features())
            print_message("%s: not available on this CPU, not checked\n", rows[i].id);
        else
            check_row(&rows[i]);
    }
}

int main(void)
{
    const char *text = getenv("KCHECK_SEED");
    seed = text ? strtoull(text, NULL, 0) : 20261115;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_REG_12_temp_bytes_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
