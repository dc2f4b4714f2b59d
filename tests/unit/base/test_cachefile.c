/* test_cachefile.c - what is kept comes back, and whatever happens to the file is noticed. */
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cachefile.h"

static char folder[] = "/tmp/bitnet-cachefile-XXXXXX";
static char path[128];
static const char identity[] = "file 7 of tuesday";
static uint8_t first[5000], second[130];

static int make_folder(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof first; i++)
        first[i] = (uint8_t)test_rand(&seed);
    memset(second, 9, sizeof second);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.pack", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove(path);
    return rmdir(folder);
}

static void write_file(const char *to)
{
    bitnet_error err = {0};
    bnet_cachepiece p[] = {{"r16 one", first, sizeof first, 0.25}, {"two", second, 130, -3}};
    if (bnet_cachefile_write(to, identity, p, 2, &err) != BITNET_OK)
        fail_msg("%s", err.message);
}

static void test_comes_back(void **state)
{
    (void)state;
    double note = 0;
    write_file(path);
    bnet_cachefile *c = bnet_cachefile_open(path, identity);
    assert_non_null(c);
    const void *one = bnet_cachefile_find(c, "r16 one", sizeof first, &note);
    assert_non_null(one);
    assert_memory_equal(one, first, sizeof first);
    assert_true(note == 0.25 && (uintptr_t)one % 64 == 0);
    const void *two = bnet_cachefile_find(c, "two", sizeof second, &note);
    assert_non_null(two);
    assert_memory_equal(two, second, sizeof second);
    assert_true(note == -3);
    assert_null(bnet_cachefile_find(c, "two", 129, &note));
    assert_null(bnet_cachefile_find(c, "three", 130, &note));
    bnet_cachefile_close(c);
    bnet_cachefile_close(NULL);
    assert_null(bnet_cachefile_open(path, "file 7 of wednesday"));
    assert_null(bnet_cachefile_open(path, "file 7"));
    assert_null(bnet_cachefile_open("/nowhere/at/all", identity));
}

/* Any byte of it flipped, and any length cut: never wrong bytes, never a crash. */
static void test_damage_is_noticed(void **state)
{
    (void)state;
    struct stat st;
    write_file(path);
    assert_int_equal(stat(path, &st), 0);
    size_t n = (size_t)st.st_size;
    uint8_t *whole = malloc(n);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(whole, 1, n, f), n);
    fclose(f);
    for (size_t at = 0; at < 2 * n; at += at < 600 ? 1 : 97) {
        f = fopen(path, "wb");
        size_t keep = at < n ? n : at - n;
        if (at < n)
            whole[at] ^= 4;
        assert_int_equal(fwrite(whole, 1, keep, f), keep);
        if (at < n)
            whole[at] ^= 4;
        fclose(f);
        double note;
        bnet_cachefile *c = bnet_cachefile_open(path, identity);
        const void *one = c ? bnet_cachefile_find(c, "r16 one", sizeof first, &note) : NULL;
        const void *two = c ? bnet_cachefile_find(c, "two", sizeof second, &note) : NULL;
        if (one)
            assert_memory_equal(one, first, sizeof first);
        if (two)
            assert_memory_equal(two, second, sizeof second);
        bnet_cachefile_close(c);
    }
    free(whole);
}

static void test_cannot_write(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bnet_cachepiece p = {"x", second, sizeof second, 0};
    assert_int_equal(bnet_cachefile_write("/nowhere/at/all.pack", identity, &p, 1, &err),
                     BITNET_IO);
    assert_non_null(strstr(err.message, "/nowhere/at/all.pack"));
    char big[2048];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    assert_int_equal(bnet_cachefile_write(path, big, &p, 1, &err), BITNET_ARGUMENT);
}

static bool exists(const char *name)
{
    char p[160];
    struct stat st;
    snprintf(p, sizeof p, "%s/%s", folder, name);
    return stat(p, &st) == 0;
}

/* The longest unused go first; the one in use and foreign files stay. */
static void test_trim(void **state)
{
    (void)state;
    static const char *const names[] = {"old.pack", "mid.pack", "new.pack", "other.txt"};
    char p[4][160];
    struct stat st;
    for (int i = 0; i < 4; i++) {
        snprintf(p[i], sizeof p[i], "%s/%s", folder, names[i]);
        write_file(p[i]);
        struct timespec t[2] = {{1000 + i, 0}, {1000 + i, 0}};
        assert_int_equal(utimensat(AT_FDCWD, p[i], t, 0), 0);
    }
    remove(path);
    assert_int_equal(stat(p[0], &st), 0);
    uint64_t one = (uint64_t)st.st_size;
    bnet_cache_trim(folder, ".pack", 3 * one, NULL);
    assert_true(exists("old.pack") && exists("mid.pack") && exists("new.pack"));
    bnet_cache_trim(folder, ".pack", 2 * one, p[0]);
    assert_true(exists("old.pack") && !exists("mid.pack") && exists("new.pack"));
    bnet_cachefile *used = bnet_cachefile_open(p[0], identity);
    assert_non_null(used);
    bnet_cachefile_close(used);
    bnet_cache_trim(folder, ".pack", one, NULL); /* old.pack was used just now */
    assert_true(exists("old.pack") && !exists("new.pack"));
    bnet_cache_trim(folder, ".pack", 0, NULL);
    assert_true(!exists("old.pack") && exists("other.txt"));
    bnet_cache_trim("/nowhere/at/all", ".pack", 0, NULL);
    remove(p[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_cannot_write),
        cmocka_unit_test(test_trim),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
