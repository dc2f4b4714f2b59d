/* test_tuning.c - the tuning cache (REG-20): choices, their file, and everything that makes a file
 * not count. */
#include "test.h"

#include <unistd.h>

#include "records.h"

typedef struct fixture {
    bnet_registry *r;
    char path[256];
    int n_lines; /* log lines */
    char last[512];
} fixture;

static void on_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    fixture *f = user;
    (void)level;
    assert_string_equal(module, "tuning");
    f->n_lines++;
    snprintf(f->last, sizeof f->last, "%s", message);
}

static fixture fixture_new(void)
{
    fixture f = {.r = registry_new()};
    snprintf(f.path, sizeof f.path, "%s/tuning-%d.json", TEST_BINARY_DIR, (int)getpid());
    unlink(f.path);
    must_add(f.r, record_of("slow", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE));
    must_add(f.r, record_of("fast", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY));
    return f;
}

static void fixture_free(fixture *f)
{
    unlink(f->path);
    bnet_registry_close(f->r);
}

static bnet_kernel_query toy(uint64_t m, uint64_t n, uint64_t k)
{
    return ask("softmax", "tl1", "i8", m, n, k);
}

static void must_tune(bnet_registry *r, bnet_kernel_query q, const char *id)
{
    bitnet_error err = {0};
    if (bnet_registry_tune(r, &q, id, &err) != BITNET_OK)
        fail_msg("%s", err.message);
}

static void test_REG_20_choice_beats_tier(void **state)
{
    (void)state;
    fixture f = fixture_new();
    must_select(f.r, cpu_with(0), toy(1, 64, 64), "fast");
    must_tune(f.r, toy(1, 64, 64), "slow");
    must_select(f.r, cpu_with(0), toy(1, 64, 64), "slow");
    must_select(f.r, cpu_with(0), toy(2, 64, 64), "fast"); /* exactly that shape */
    must_select(f.r, cpu_with(0), toy(1, 65, 64), "fast");
    must_select(f.r, cpu_with(0), toy(1, 64, 65), "fast");
    bnet_kernel_query q = toy(1, 64, 64);
    q.priority = BITNET_PRIORITY_MEMORY; /* asks for something else than speed */
    must_select(f.r, cpu_with(0), q, "fast");
    must_tune(f.r, toy(1, 64, 64), "fast"); /* replaces */
    must_select(f.r, cpu_with(0), toy(1, 64, 64), "fast");
    assert_int_equal(bnet_registry_choices(f.r), 1);
    fixture_free(&f);
}

/* Somebody asks whether it is worth to look at shapes one by one. */
static void test_REG_20_tuned_says_whether_any_number_of_tokens_is(void **state)
{
    (void)state;
    fixture f = fixture_new();
    bnet_capabilities c = cpu_with(0);
    bnet_kernel_query any = toy(0, 64, 64), one = toy(1, 64, 64), other = toy(0, 65, 64);
    assert_false(bnet_registry_tuned(f.r, &c, &any));
    assert_false(bnet_registry_tuned(f.r, &c, &one));
    must_tune(f.r, toy(512, 64, 64), "slow");
    assert_true(bnet_registry_tuned(f.r, &c, &any));
    assert_true(bnet_registry_tuned(f.r, &c, &one));
    assert_false(bnet_registry_tuned(f.r, &c, &other));
    must_tune(f.r, other, "slow"); /* for no number of tokens */
    assert_true(bnet_registry_tuned(f.r, &c, &other));
    fixture_free(&f);
}

static void test_REG_20_classes_of_m(void **state)
{
    (void)state;
    static const uint64_t classes[][2] = {{0, 0},     {1, 1},     {2, 2},     {3, 4},
                                          {4, 4},     {5, 8},     {8, 8},     {9, 16},
                                          {257, 512}, {512, 512}, {513, 512}, {99999, 512}};
    for (size_t i = 0; i < BNET_COUNT(classes); i++)
        assert_int_equal(bnet_tuning_m(classes[i][0]), classes[i][1]);
    fixture f = fixture_new();
    must_tune(f.r, toy(6, 64, 64), "slow"); /* measured at 6, said for 5..8 */
    for (uint64_t m = 1; m <= 16; m++)
        must_select(f.r, cpu_with(0), toy(m, 64, 64), m >= 5 && m <= 8 ? "slow" : "fast");
    fixture_free(&f);
}

static void test_REG_20_choice_never_overrides_compatibility(void **state)
{
    (void)state;
    fixture f = fixture_new();
    bnet_kernel_record k = record_of("picky", "softmax", "tl1", "i8", BITNET_TIER_REFERENCE);
    k.m = (bitnet_dim_rule){.min = 7, .max = 8};
    k.needs = BNET_CPU_AVX2;
    must_add(f.r, k);
    must_tune(f.r, toy(8, 64, 64), "picky");
    must_select(f.r, cpu_with(BNET_CPU_AVX2), toy(8, 64, 64), "picky");
    must_select(f.r, cpu_with(BNET_CPU_AVX2), toy(6, 64, 64), "fast"); /* of the class, too small */
    must_select(f.r, cpu_with(0), toy(8, 64, 64), "fast");
    bitnet_error err = {0};
    bnet_kernel_query q = toy(1, 1, 1);
    assert_int_equal(bnet_registry_tune(f.r, &q, "nobody", &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "nobody"));
    assert_int_equal(bnet_registry_tune(f.r, &q, "linear_i2s.scalar", &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "linear_i2s.scalar is for (linear, i2s, i8)"));
    fixture_free(&f);
}

static void test_REG_20_file_round_trip(void **state)
{
    (void)state;
    fixture f = fixture_new(), g = fixture_new();
    bnet_log log = {on_log, &g};
    bool used = true;
    assert_int_equal(bnet_registry_load_tuning(g.r, "key", g.path, &log, &used, NULL), BITNET_OK);
    assert_false(used); /* missing: fine, said once */
    assert_int_equal(g.n_lines, 1);
    for (uint64_t n = 1; n <= 300; n++)
        must_tune(f.r, toy(n % 7, n, 64), n % 3 ? "slow" : "fast");
    assert_int_equal(bnet_registry_save_tuning(f.r, "a \"key\"\n", f.path, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_load_tuning(g.r, "a \"key\"\n", f.path, &log, &used, NULL),
                     BITNET_OK);
    assert_true(used);
    assert_int_equal(bnet_registry_choices(g.r), 300);
    for (uint64_t n = 1; n <= 300; n++)
        must_select(g.r, cpu_with(0), toy(n % 7, n, 64), n % 3 ? "slow" : "fast");
    fixture_free(&f);
    fixture_free(&g);
}

static void test_REG_20_other_machine_is_ignored(void **state)
{
    (void)state;
    fixture f = fixture_new(), g = fixture_new();
    bnet_log log = {on_log, &g};
    bool used = true;
    must_tune(f.r, toy(1, 64, 64), "slow");
    assert_int_equal(bnet_registry_save_tuning(f.r, "machine A", f.path, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_load_tuning(g.r, "machine B", f.path, &log, &used, NULL),
                     BITNET_OK);
    assert_false(used);
    assert_int_equal(bnet_registry_choices(g.r), 0);
    assert_non_null(strstr(g.last, "machine A"));
    assert_non_null(strstr(g.last, "machine B"));
    must_select(g.r, cpu_with(0), toy(1, 64, 64), "fast");
    fixture_free(&f);
    fixture_free(&g);
}

static void test_REG_20_key_tells_machines_apart(void **state)
{
    (void)state;
    enum { KEYS = 8 };
    bnet_devices *d = calloc(KEYS, sizeof *d);
    bnet_str keys[KEYS] = {{0}};
    bnet_capabilities cpu = cpu_with(3), gpu = cuda_with(9, 0);
    for (int i = 0; i < KEYS; i++) {
        bnet_device_status *s = &d[i].kind[BNET_DEV_CUDA];
        snprintf(d[i].cpu.brand, sizeof d[i].cpu.brand, i == 2 ? "Other CPU" : "Some CPU");
        d[i].cpu.features = i == 1 ? 7 : 3;
        s->n_gpus = 1;
        snprintf(s->version, sizeof s->version, i == 4 ? "13.1" : "13.0");
        snprintf(s->gpus[0].name, sizeof s->gpus[0].name, i == 5 ? "NVIDIA L4" : "NVIDIA H200");
        s->gpus[0].multiprocessors = i == 6 ? 66 : 132;
        s->gpus[0].total_memory = i == 7 ? 70 : 140;
        bnet_tuning_key(i < 3 ? &cpu : &gpu, &d[i], 0, &keys[i]);
    }
    free(d);
    for (int i = 0; i < KEYS; i++) {
        assert_non_null(strstr(keys[i].data, BITNET_VERSION));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(keys[i].data, keys[j].data);
    }
    for (int i = 0; i < KEYS; i++)
        bnet_str_free(&keys[i]);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

#define HEAD "{\"key\": \"k\", \"version\": \"" BITNET_VERSION "\", "
#define ROW(m, kernel)                                                                             \
    "{\"op\": \"softmax\", \"format\": \"tl1\", \"dtype\": \"i8\", \"m\": " m                      \
    ", \"n\": 64, \"k\": 64, \"kernel\": " kernel "}"

static void test_REG_20_malformed_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "JSON"},
        {"{", "line 1"},
        {"[1, 2]", "key"},
        {"{\"key\": 3}", "key"},
        {"{\"key\": \"k\"}", "version"},
        {HEAD "\"choices\": {}}", "choices"},
        {HEAD "\"choices\": [3]}", "choices[0]"},
        {HEAD "\"choices\": [" ROW("1", "\"slow\"") ", " ROW("-1", "\"slow\"") "]}",
         "choices[1].m"},
        {HEAD "\"choices\": [" ROW("1.5", "\"slow\"") "]}", "choices[0].m"},
        {HEAD "\"choices\": [" ROW("\"1\"", "\"slow\"") "]}", "choices[0].m"},
        {HEAD "\"choices\": [" ROW("1", "7") "]}", "choices[0].kernel"},
        {HEAD "\"choices\": [" ROW("1", "\"linear_i2s.scalar\"") "]}", "linear_i2s.scalar is for"},
        {HEAD "\"key\": \"k\", \"choices\": []}", "duplicate"},
    };
    fixture f = fixture_new();
    for (size_t i = 0; i < BNET_COUNT(bad); i++) {
        bitnet_error err = {0};
        bool used = true;
        write_file(f.path, bad[i].text);
        assert_int_equal(bnet_registry_load_tuning(f.r, "k", f.path, NULL, &used, &err),
                         BITNET_ARGUMENT);
        if (!strstr(err.message, bad[i].says) || !strstr(err.message, f.path) || used)
            fail_msg("case %zu: \"%s\", wanted \"%s\"", i, err.message, bad[i].says);
        assert_int_equal(bnet_registry_choices(f.r), 0); /* all or nothing */
    }
    bool used;
    assert_int_equal(bnet_registry_load_tuning(f.r, "k", TEST_BINARY_DIR, NULL, &used, NULL),
                     BITNET_IO);
    fixture_free(&f);
}

/* A file is anybody's: what it says reaches the terminal as text, and each reason has its words. */
static void test_REG_20_stale_files_are_told_safely(void **state)
{
    (void)state;
    static const char rest[] = "\", \"version\": \"";
    fixture f = fixture_new();
    bnet_log log = {on_log, &f};
    bool used = true;
    char text[256];
    snprintf(text, sizeof text, "{\"key\": \"k%s0.0.1\\u001b[2J\", \"choices\": []}", rest);
    write_file(f.path, text);
    assert_int_equal(bnet_registry_load_tuning(f.r, "k", f.path, &log, &used, NULL), BITNET_OK);
    assert_false(used);
    assert_non_null(strstr(f.last, "version '0.0.1\\x1b[2J'"));
    assert_non_null(strstr(f.last, "this is version '" BITNET_VERSION "'"));
    snprintf(text, sizeof text, "{\"key\": \"a\\nb\\u001b[2J%s%s\", \"choices\": []}", rest,
             BITNET_VERSION);
    write_file(f.path, text);
    assert_int_equal(bnet_registry_load_tuning(f.r, "k", f.path, &log, &used, NULL), BITNET_OK);
    assert_non_null(strstr(f.last, "made for 'a\\x0ab\\x1b[2J', this is 'k'"));
    write_file(f.path, HEAD "\"choices\": [" ROW("1", "\"\\u001b[2J\\n\"") "]}");
    assert_int_equal(bnet_registry_load_tuning(f.r, "k", f.path, &log, &used, NULL), BITNET_OK);
    assert_non_null(strstr(f.last, "no kernel '\\x1b[2J\\x0a' here"));
    assert_null(strchr(f.last, 27));
    fixture_free(&f);
}

static void test_REG_20_unknown_kernels_are_passed_over(void **state)
{
    (void)state;
    fixture f = fixture_new();
    bnet_log log = {on_log, &f};
    bool used = false;
    write_file(f.path, HEAD "\"choices\": [" ROW("1", "\"gone\"") ", " ROW("2", "\"slow\"") "]}");
    assert_int_equal(bnet_registry_load_tuning(f.r, "k", f.path, &log, &used, NULL), BITNET_OK);
    assert_true(used);
    assert_int_equal(f.n_lines, 1);
    assert_non_null(strstr(f.last, "gone"));
    must_select(f.r, cpu_with(0), toy(1, 64, 64), "fast");
    must_select(f.r, cpu_with(0), toy(2, 64, 64), "slow");
    bitnet_error err = {0};
    assert_int_equal(bnet_registry_save_tuning(f.r, "k", TEST_BINARY_DIR "/no/such/dir/x", &err),
                     BITNET_IO);
    fixture_free(&f);
}

static void must_pick(const bnet_registry *r, bnet_picks *picks, uint64_t m, const char *id)
{
    bnet_capabilities c = cpu_with(0);
    bnet_kernel_query q = toy(0, 64, 64);
    const bnet_kernel_record *k = bnet_registry_pick(r, &c, &q, m, picks);
    if (!k || strcmp(k->id, id) != 0)
        fail_msg("%llu tokens: %s, not %s", (unsigned long long)m, k ? k->id : "none", id);
}

/* What is remembered is what would be selected, for each number of tokens, until that changes. */
static void test_REG_20_picks_follow_the_registry(void **state)
{
    (void)state;
    fixture f = fixture_new();
    bnet_picks picks = {{0}};
    bnet_kernel_record few = record_of("few", "softmax", "tl1", "i8", BITNET_TIER_EXTREMELY);
    few.m = (bitnet_dim_rule){.min = 6, .max = 7}; /* two of a class of four */
    few.outside = true;
    must_add(f.r, few);
    for (int round = 0; round < 3; round++)
        for (uint64_t m = 1; m <= 700; m += m < 20 ? 1 : 97)
            must_pick(f.r, &picks, m, m == 6 || m == 7 ? "few" : "fast");
    must_tune(f.r, toy(4, 64, 64), "slow");
    must_pick(f.r, &picks, 4, "slow");
    must_pick(f.r, &picks, 6, "few");
    bnet_capabilities c = cpu_with(0);
    bnet_kernel_query nobody = ask("softmax", "tl2", "i8", 0, 64, 64);
    assert_null(bnet_registry_pick(f.r, &c, &nobody, 1, &(bnet_picks){{0}}));
    fixture_free(&f);
}

static void test_select_all_stops_at_the_first_without(void **state)
{
    (void)state;
    fixture f = fixture_new();
    must_add(f.r, record_of("of floats", "softmax", "tl1", "f32", BITNET_TIER_REFERENCE));
    const bnet_kernel_record *a = NULL, *b = NULL, *c = NULL;
    const bnet_fixed fixed[] = {{BNET_OP_SOFTMAX, BNET_FORMAT_TL1, &a},
                                {BNET_OP_SOFTMAX, BNET_FORMAT_TL2, &b},
                                {BNET_OP_SOFTMAX, BNET_FORMAT_TL1, &c}};
    bnet_capabilities cpu = cpu_with(0);
    bitnet_error err = {0};
    assert_int_equal(bnet_registry_select_all(f.r, &cpu, fixed, 1, &err), BITNET_OK);
    assert_string_equal(a->id, "of floats");
    assert_int_equal(bnet_registry_select_all(f.r, &cpu, fixed, 3, &err), BITNET_NOT_AVAILABLE);
    assert_non_null(strstr(err.message, "tl2"));
    assert_true(!b && !c);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_REG_20_choice_beats_tier),
        cmocka_unit_test(test_REG_20_tuned_says_whether_any_number_of_tokens_is),
        cmocka_unit_test(test_REG_20_classes_of_m),
        cmocka_unit_test(test_REG_20_choice_never_overrides_compatibility),
        cmocka_unit_test(test_REG_20_file_round_trip),
        cmocka_unit_test(test_REG_20_other_machine_is_ignored),
        cmocka_unit_test(test_REG_20_stale_files_are_told_safely),
        cmocka_unit_test(test_REG_20_key_tells_machines_apart),
        cmocka_unit_test(test_REG_20_malformed_files),
        cmocka_unit_test(test_REG_20_unknown_kernels_are_passed_over),
        cmocka_unit_test(test_REG_20_picks_follow_the_registry),
        cmocka_unit_test(test_select_all_stops_at_the_first_without),
    };
    return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
