/* test_model_cache.c - packed weights and checksums between runs: the second load maps what the
 * first one packed, results are the same bits, and whatever happens to the files costs time alone.
 */
#include "unit/engine/nano.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "bitnet_tools.h"
#include "model/model_cache.h"

static char folder[] = "/tmp/bitnet-modelcache-XXXXXX";
static char model[128], cache[160];
static char said[4096]; /* what the library logged since the last open */

static void listen(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user;
    (void)level;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s: %s\n", module, message);
}

static void copy_file(const char *from, const char *to)
{
    char buf[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        assert_int_equal(fwrite(buf, 1, n, out), n);
    fclose(in);
    fclose(out);
}

/* Until a change of the model is older than the file system's clock can miss. */
static void settle(void)
{
    struct timespec t = {0, 150000000};
    nanosleep(&t, NULL);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(model, sizeof model, "%s/nano.gguf", folder);
    snprintf(cache, sizeof cache, "%s/deep/er", folder);
    struct stat st;
    if (stat(NANO_PATH, &st) == 0)
        copy_file(NANO_PATH, model);
    settle();
    return 0;
}

/* Files in the cache that end so; the last one's path in buf. */
static int count_files(const char *suffix, char *buf, size_t cap)
{
    int n = 0;
    DIR *d = opendir(cache);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        size_t len = strlen(e->d_name), k = strlen(suffix);
        if (len < k || strcmp(e->d_name + len - k, suffix) != 0)
            continue;
        n++;
        snprintf(buf, cap, "%s/%s", cache, e->d_name);
    }
    if (d)
        closedir(d);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    char p[512];
    while (count_files(".pack", p, sizeof p) || count_files(".sha256", p, sizeof p))
        if (remove(p) != 0)
            return -1;
    remove(model);
    rmdir(cache);
    snprintf(p, sizeof p, "%s/deep", folder);
    rmdir(p);
    return rmdir(folder);
}

static nano open_in(const char *isa, bool no_pack, const char *dir, bitnet_i2s_layout layout)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_engine_options eo;
    struct stat st;
    if (stat(model, &st) != 0) {
        print_message("%s is missing\n", NANO_PATH);
        skip();
    }
    bitnet_runtime_options_init(&o);
    bitnet_engine_options_init(&eo);
    o.n_threads = 2;
    o.isa = isa;
    o.log = listen;
    eo.cache_dir = dir;
    eo.cache_min_bytes = 1;
    eo.no_pack = no_pack;
    eo.i2s_layout = layout;
    said[0] = '\0';
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, model, &eo, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static nano open_cached(const char *isa, bool no_pack, const char *dir)
{
    return open_in(isa, no_pack, dir, BITNET_I2S_128);
}

static float *logits_of(const nano *n)
{
    int32_t ids[20];
    bitnet_session *s = nano_session(n, 64, 8, BITNET_KV_F32);
    nano_ids(n, 5, ids, 20);
    OK(bitnet_session_append(s, ids, 20, NULL, NULL, &err));
    const float *row = bitnet_session_logits(s);
    assert_non_null(row);
    float *copy = malloc((size_t)n->n_vocab * sizeof *copy);
    memcpy(copy, row, (size_t)n->n_vocab * sizeof *copy);
    bitnet_session_close(s);
    return copy;
}

/* Something here is packed at all: a CPU with nothing but scalar code uses the file as it is. */
static bool packs(void)
{
    nano n = open_cached(NULL, false, NULL);
    float *l = logits_of(&n);
    bitnet_kernel_use use[64];
    size_t n_use = bitnet_engine_kernels(n.engine, use, 64);
    bool yes = false;
    for (size_t i = 0; i < n_use && i < 64; i++)
        yes = yes || strstr(use[i].id, "i2s_r16");
    free(l);
    nano_close(&n);
    return yes;
}

static void load(const char *what, const char *says)
{
    nano plain = open_cached(NULL, true, NULL), n = open_cached(NULL, false, cache);
    if (says && !strstr(said, says))
        fail_msg("%s: wanted \"%s\" in: %s", what, says, said);
    float *a = logits_of(&plain), *b = logits_of(&n);
    assert_same_logits(&n, a, b, what);
    free(a);
    free(b);
    nano_close(&plain);
    nano_close(&n);
}

static void test_second_load_maps(void **state)
{
    (void)state;
    char p[512];
    if (!packs()) {
        print_message("nothing is packed on this CPU\n");
        skip();
    }
    load("first", "packed weights kept in");
    assert_int_equal(count_files(".pack", p, sizeof p), 1);
    load("second", "packed weights mapped from");
    assert_int_equal(count_files(".pack", p, sizeof p), 1);
}

static void test_damaged_files_are_made_again(void **state)
{
    (void)state;
    char p[512];
    struct stat st;
    if (!packs())
        skip();
    load("whole", NULL);
    assert_int_equal(count_files(".pack", p, sizeof p), 1);
    assert_int_equal(stat(p, &st), 0);
    for (int i = 0; i < 6; i++) {
        int fd = open(p, O_RDWR);
        assert_true(fd >= 0);
        uint8_t byte = 0;
        off_t at = i == 0 ? 3 : st.st_size * i / 6;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        if (i == 5)
            assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
        close(fd);
        load("damaged", NULL); /* a byte between two pieces harms nothing and is not noticed */
    }
    load("mended", "packed weights mapped from");
}

static void test_another_file_is_another_key(void **state)
{
    (void)state;
    char p[512];
    if (!packs())
        skip();
    load("before", NULL);
    int n = count_files(".pack", p, sizeof p);
    struct timespec t[2] = {{1, 5}, {1, 5}};
    assert_int_equal(utimensat(AT_FDCWD, model, t, 0), 0);
    settle();
    load("touched", "packed weights kept in");
    assert_int_equal(count_files(".pack", p, sizeof p), n + 1);
    t[1].tv_nsec++; /* the same second */
    assert_int_equal(utimensat(AT_FDCWD, model, t, 0), 0);
    settle();
    load("touched again", "packed weights kept in");
    assert_int_equal(count_files(".pack", p, sizeof p), n + 2);
}

/* The same bytes read as another layout are other weights. */
static void test_another_layout_is_another_key(void **state)
{
    (void)state;
    char p[512];
    if (!packs())
        skip();
    load("128", NULL);
    int n_files = count_files(".pack", p, sizeof p);
    nano plain = open_in(NULL, true, NULL, BITNET_I2S_64);
    nano kept = open_in(NULL, false, cache, BITNET_I2S_64);
    assert_int_equal(count_files(".pack", p, sizeof p), n_files + 1);
    float *a = logits_of(&plain), *b = logits_of(&kept);
    assert_same_logits(&kept, a, b, "64");
    free(a);
    free(b);
    nano_close(&plain);
    nano_close(&kept);
}

/* One byte of a weight, in place; size and time of writing stay what they were. */
static void change_weight(off_t at)
{
    struct stat st;
    uint8_t byte;
    assert_int_equal(stat(model, &st), 0);
    int fd = open(model, O_RDWR);
    assert_true(fd >= 0);
    at = at < 0 ? st.st_size + at : at;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x15;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    struct timespec t[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, model, t, 0), 0);
    settle();
}

static void test_changed_in_place_is_another_key(void **state)
{
    (void)state;
    if (!packs())
        skip();
    struct stat st;
    assert_int_equal(stat(model, &st), 0);
    load("before", NULL);
    load("kept", "packed weights mapped from");
    change_weight(st.st_size * 2 / 3);
    load("changed", "packed weights kept in"); /* compares with the file's own weights */
    change_weight(st.st_size * 2 / 3);
    load("changed back", "packed weights kept in");
}

/* The key of the model as it is now: `g`, or the file opened anew. */
static void key_of(const bnet_gguf *g, char key[BNET_IDENTITY_CAP])
{
    bnet_model_cache c;
    bnet_gguf *own = NULL;
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.cache_dir = cache;
    o.cache_min_bytes = 1;
    if (!g)
        OK(bnet_gguf_open(model, NULL, &own, &err));
    OK(bnet_model_cache_open(&o, model, g ? g : own, NULL, &c, &err));
    assert_non_null(c.folder);
    memcpy(key, c.identity, BNET_IDENTITY_CAP);
    bnet_model_cache_close(&c);
    bnet_gguf_close(own);
}

/* The time of the last change alone, to the nanosecond. */
static void test_time_of_change_is_in_the_key(void **state)
{
    (void)state;
    char before[BNET_IDENTITY_CAP], after[BNET_IDENTITY_CAP];
    nano n = open_cached(NULL, false, NULL); /* skips without the model */
    nano_close(&n);
    key_of(NULL, before);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(model, i % 2 ? 0644 : 0600), 0);
        settle();
        key_of(NULL, after);
        assert_string_not_equal(after, before);
        memcpy(before, after, sizeof before);
    }
}

/* A map shows what is written into its file; its times are those of opening it. So of these two
 * keys nothing but the samples differs. */
static void test_samples_are_in_the_key(void **state)
{
    (void)state;
    char before[BNET_IDENTITY_CAP], after[BNET_IDENTITY_CAP];
    bnet_gguf *g = NULL;
    nano n = open_cached(NULL, false, NULL);
    nano_close(&n);
    OK(bnet_gguf_open(model, NULL, &g, &err));
    uint64_t head = bnet_gguf_head_bytes(g), size = bnet_gguf_file_bytes(g);
    const uint64_t at[] = {head, head + 255, size - 256, size - 1,
                           head + (size - head - 256) / 63 * 31 + 100};
    key_of(g, before);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        change_weight((off_t)at[i]);
        key_of(g, after);
        if (strcmp(after, before) == 0)
            fail_msg("byte %llu of %llu is in no sample", (unsigned long long)at[i],
                     (unsigned long long)size);
        change_weight((off_t)at[i]);
        key_of(g, after);
        assert_string_equal(after, before);
    }
    bnet_gguf_close(g);
}

/* What was changed a moment ago may change again without another time. */
static void test_young_file_is_not_kept(void **state)
{
    (void)state;
    bnet_model_cache c;
    bnet_gguf *g = NULL;
    bitnet_engine_options o;
    const bnet_log log = {listen, NULL};
    nano n = open_cached(NULL, false, NULL); /* skips without the model */
    nano_close(&n);
    bitnet_engine_options_init(&o);
    o.cache_dir = cache;
    o.cache_min_bytes = 1;
    bool kept = true;
    for (int tries = 0; kept && tries < 50; tries++) { /* a machine may be slow */
        struct timespec t[2] = {{2, 5 + tries}, {2, 5 + tries}};
        said[0] = '\0';
        assert_int_equal(utimensat(AT_FDCWD, model, t, 0), 0);
        OK(bnet_gguf_open(model, NULL, &g, &err));
        OK(bnet_model_cache_open(&o, model, g, &log, &c, &err));
        kept = c.folder != NULL;
        bnet_model_cache_close(&c);
        bnet_gguf_close(g);
    }
    assert_false(kept);
    assert_non_null(strstr(said, "nothing is kept: "));
    assert_non_null(strstr(said, "was changed a moment ago"));
    settle();
}

static void test_no_folder_no_harm(void **state)
{
    (void)state;
    nano n = open_cached(NULL, false, "/proc/nowhere/cache");
    assert_non_null(strstr(said, "nothing is kept"));
    nano_close(&n);
}

static void receipt_to(const char *path)
{
    nano n = open_cached("scalar", false, cache);
    bitnet_receipt *r = NULL;
    bitnet_receipt_facts f;
    OK(bitnet_receipt_open(n.engine, &r, &err));
    bitnet_receipt_facts_init(&f);
    float *l = logits_of(&n);
    free(l);
    OK(bitnet_receipt_write(r, &f, path, &err));
    bitnet_receipt_close(r);
    nano_close(&n);
}

/* The checksum in a receipt is the file's, remembered or not; one of another file is not taken. */
static void test_checksum_is_remembered(void **state)
{
    (void)state;
    char out[160], p[512], hex[65], *text;
    size_t n_text;
    snprintf(out, sizeof out, "%s/receipt.json", folder);
    OK(bitnet_file_sha256(model, hex, &err));
    for (int round = 0; round < 3; round++) {
        receipt_to(out);
        FILE *f = fopen(out, "rb");
        text = calloc(1, 1 << 16);
        n_text = fread(text, 1, (1 << 16) - 1, f);
        fclose(f);
        assert_true(n_text > 0);
        if (!strstr(text, hex))
            fail_msg("round %d: the receipt lacks %s", round, hex);
        free(text);
        assert_true(count_files(".sha256", p, sizeof p) >= 1);
        if (round == 1) { /* a record that speaks of another file */
            f = fopen(p, "wb");
            for (int i = 0; i < 64; i++)
                fputc('a', f);
            fputs(" bitnet of another file", f);
            fclose(f);
        }
    }
    remove(out);
}

static void expect_digest(const bitnet_receipt *r, const char *out, const char *what)
{
    char hex[65], text[1 << 14];
    bitnet_receipt_facts f;
    bitnet_receipt_facts_init(&f);
    OK(bitnet_receipt_write((bitnet_receipt *)(uintptr_t)r, &f, out, &err));
    OK(bitnet_file_sha256(model, hex, &err));
    FILE *in = fopen(out, "rb");
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    if (!strstr(text, hex))
        fail_msg("%s: the receipt lacks %s", what, hex);
}

/* All side files, one behind the other, to be freed. */
static char *side_files(void)
{
    char *all = calloc(1, 1 << 16), p[512];
    size_t n = 0;
    DIR *d = opendir(cache);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (!strstr(e->d_name, ".sha256"))
            continue;
        snprintf(p, sizeof p, "%s/%s", cache, e->d_name);
        FILE *f = fopen(p, "rb");
        n += fread(all + n, 1, (1 << 16) - 1 - n, f);
        fclose(f);
    }
    closedir(d);
    return all;
}

/* Changed between opening and the receipt, or between two runs: the digest is that of the bytes,
 * and what was changed while it was open is not remembered. */
static void test_digest_is_of_the_bytes(void **state)
{
    (void)state;
    char out[160];
    snprintf(out, sizeof out, "%s/receipt.json", folder);
    receipt_to(out); /* remembered */
    for (int round = 0; round < 2; round++) {
        nano n = open_cached("scalar", false, cache);
        bitnet_receipt *r = NULL;
        OK(bitnet_receipt_open(n.engine, &r, &err));
        float *l = logits_of(&n);
        free(l);
        char *before = side_files();
        if (round == 0)
            change_weight(-40);
        expect_digest(r, out, round ? "changed before" : "changed while open");
        char *after = side_files();
        assert_int_equal(strcmp(before, after) == 0, round == 0);
        free(before);
        free(after);
        bitnet_receipt_close(r);
        nano_close(&n);
    }
    remove(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_load_maps),
        cmocka_unit_test(test_damaged_files_are_made_again),
        cmocka_unit_test(test_another_file_is_another_key),
        cmocka_unit_test(test_another_layout_is_another_key),
        cmocka_unit_test(test_changed_in_place_is_another_key),
        cmocka_unit_test(test_time_of_change_is_in_the_key),
        cmocka_unit_test(test_samples_are_in_the_key),
        cmocka_unit_test(test_young_file_is_not_kept),
        cmocka_unit_test(test_no_folder_no_harm),
        cmocka_unit_test(test_checksum_is_remembered),
        cmocka_unit_test(test_digest_is_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
