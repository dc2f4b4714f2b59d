/* test_kernel_list.c - the records of the tree and what they mean for every instruction set and
 * every kind of chip, against the lists that are kept beside this file (REG-12, REG-13): rows of
 * all architectures, whatever machine this is. A list that is meant to change is written anew by
 * BITNET_WRITE_LISTS=1. */
#include "test.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/str.h"
#include "records.h"

#define LISTS TEST_SOURCE_DIR "/tests/unit/ops/"

/* ---- rows ---- */

static void put_rule(bnet_str *s, char dim, const bitnet_dim_rule *r)
{
    if (r->min > 1)
        bnet_str_addf(s, " %c>=%llu", dim, (unsigned long long)r->min);
    if (r->max)
        bnet_str_addf(s, " %c<=%llu", dim, (unsigned long long)r->max);
    if (r->multiple > 1)
        bnet_str_addf(s, " %c%%%llu", dim, (unsigned long long)r->multiple);
}

static void put_row(bnet_str *s, const bnet_kernel_record *k)
{
    bnet_str_addf(s, "%s: %s %s %s, isa %s, %s, temp %llu, align %u, %s;", k->id,
                  bnet_op_name(k->op), bnet_format_name(k->format), bnet_dtype_name(k->dtype),
                  k->isa, bnet_tier_name(k->tier), (unsigned long long)k->temp_bytes, k->alignment,
                  k->agreement);
    put_rule(s, 'M', &k->m);
    put_rule(s, 'N', &k->n);
    put_rule(s, 'K', &k->k);
    for (int bit = 0; bit < 64; bit++)
        if (k->needs >> bit & 1)
            bnet_str_addf(s, " [%s]", k->need_name(bit));
    bnet_str_puts(s, "\n");
}

/* Rows of a backend in a registry of their own: those of other architectures, too. */
static bnet_registry *registry_of(const bnet_kernel_record *rows, size_t n)
{
    bnet_registry *r = registry_new();
    for (size_t i = 0; i < n; i++) {
        bnet_kernel_record k = rows[i];
        k.fn = nothing;
        if (!rows[i].fn)
            must_add(r, k);
    }
    return r;
}

/* ---- answers ---- */

/* What a model runs on the device for matrices of 2560 x 2560, and the ops of every pass. */
static void put_answers(bnet_str *s, const bnet_registry *r, const bnet_capabilities *c)
{
    static const struct {
        const char *op, *format, *dtype;
        uint64_t m;
    } asked[] = {{"linear", "i2_s", "i8", 1},       {"linear", "i2_s", "i8", 512},
                 {"linear", "i2s_b256", "i8", 1},   {"linear", "f16", "f32", 1},
                 {"linear", "f16", "f32", 512},     {"linear", "q6_k", "f32", 1},
                 {"linear", "q4_0", "f32", 1},      {"head_scan", "f16", "f32", 1},
                 {"rmsnorm", "f32", "f32", 0},      {"quantize", "i8", "f32", 0},
                 {"norm_quantize", "i8", "f32", 0}, {"rope", "neox", "f32", 0},
                 {"attention", "f16", "f32", 0},    {"attention", "i8", "f32", 0},
                 {"glu", "relu2", "f32", 0},        {"add", "f32", "f32", 0},
                 {"matmul", "i2s", "i8", 64},       {"linear_tiles", "i2s", "f32", 512},
                 {"layers", "i2s", "f32", 1},       {"linear", "bf16", "bf16", 512}};
    const bnet_serving how = {.registry = r, .caps = c};
    for (size_t i = 0; i < BNET_COUNT(asked); i++) {
        const bnet_kernel_record *k = NULL;
        bnet_kernel_query q =
            ask(asked[i].op, asked[i].format, asked[i].dtype, asked[i].m, 2560, 2560);
        if (asked[i].m == 0)
            q.n = q.k = 0;
        if (bnet_kernel_serving(&how, &q, &k, NULL) != BITNET_OK)
            continue;
        bnet_str_addf(s, "  %s %s %s", asked[i].op, asked[i].format, asked[i].dtype);
        if (asked[i].m)
            bnet_str_addf(s, " m=%llu", (unsigned long long)asked[i].m);
        bnet_str_addf(s, ": %s\n", k->id);
    }
}

static size_t count_available(const bnet_registry *r, const bnet_capabilities *c)
{
    const bnet_kernel_record *k;
    size_t n = 0;
    char why[160];
    for (size_t i = 0; (k = bnet_registry_at(r, i)) != NULL; i++) {
        bnet_kernel_query own = bnet_query_for(k);
        n += !*bnet_kernel_veto(k, c, &own, why, sizeof why);
    }
    return n;
}

/* ---- comparing ---- */

static void compare(const char *name, const bnet_str *got)
{
    char path[256], *want;
    size_t n, line = 1, at = 0;
    bitnet_error err = {0};
    snprintf(path, sizeof path, LISTS "%s", name);
    assert_false(got->failed);
    if (getenv("BITNET_WRITE_LISTS")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(got->data, 1, got->n, f), got->n);
        assert_int_equal(fclose(f), 0);
    }
    if (bnet_read_file(path, 1 << 20, &want, &n, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    while (at < n && at < got->n && want[at] == got->data[at])
        line += want[at++] == '\n';
    while (at > 0 && want[at - 1] != '\n')
        at--;
    if (n != got->n || memcmp(want, got->data, n) != 0)
        fail_msg("%s:%zu: listed now: %.*s\n(BITNET_WRITE_LISTS=1 writes the list anew)", name,
                 line, (int)strcspn(got->data + BNET_MIN(at, got->n), "\n"),
                 got->data + BNET_MIN(at, got->n));
    bnet_free(want);
}

static void test_REG_12_list_of_every_instruction_set(void **state)
{
    (void)state;
    bnet_str s = {0};
    size_t n;
    const bnet_kernel_record *rows = bnet_cpu_kernel_rows(&n);
    bnet_registry *r = registry_of(rows, n);
    for (size_t i = 0; i < n; i++)
        put_row(&s, &rows[i]);
    for (int i = 0; bnet_cpu_isa_at(i); i++) {
        uint32_t needs = 0;
        assert_int_equal(bnet_cpu_isa_needs(bnet_cpu_isa_at(i), &needs, NULL), BITNET_OK);
        bnet_capabilities c = cpu_with(needs);
        bnet_str_addf(&s, "\n%s: %zu available\n", bnet_cpu_isa_at(i), count_available(r, &c));
        put_answers(&s, r, &c);
    }
    compare("kernels_cpu.txt", &s);
    bnet_str_free(&s);
    bnet_registry_close(r);
}

static void test_REG_13_list_of_every_chip(void **state)
{
    (void)state;
#ifdef BITNET_HAVE_CUDA
    static const int chips[] = {61, 75, 80, 86, 89, 90, 100, 120};
    bnet_str s = {0};
    size_t n;
    const bnet_kernel_record *rows = bnet_cuda_kernel_rows(&n);
    if (strcmp(bnet_cuda_archs(), "sm_75 sm_80 sm_90a compute_80") != 0)
        skip(); /* a build for other chips has another list */
    bnet_registry *r = registry_of(rows, n);
    for (size_t i = 0; i < n; i++)
        put_row(&s, &rows[i]);
    for (size_t i = 0; i < BNET_COUNT(chips); i++) {
        bnet_gpu g = {.cc_major = chips[i] / 10, .cc_minor = chips[i] % 10};
        bnet_capabilities c = {.device = BNET_DEV_CUDA, .builds = 1u << BNET_DEV_CUDA};
        c.has = bnet_cuda_may_use(&g, c.level, sizeof c.level);
        if (!bnet_cuda_serves(bnet_cuda_archs(), g.cc_major, g.cc_minor))
            c.has &= ~BNET_CUDA_NEED(BUILT);
        bnet_str_addf(&s, "\nsm_%d: %zu available\n", chips[i], count_available(r, &c));
        put_answers(&s, r, &c);
    }
    compare("kernels_cuda.txt", &s);
    bnet_str_free(&s);
    bnet_registry_close(r);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_REG_12_list_of_every_instruction_set),
        cmocka_unit_test(test_REG_13_list_of_every_chip),
    };
    return cmocka_run_group_tests_name("list of kernels", tests, NULL, NULL);
}
