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
    bnet_cachefile *c = bnet_cachefile_open(path, identity, NULL);
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
    bitnet_error err = {0};
    assert_null(bnet_cachefile_open(path, "file 7 of wednesday", &err));
    assert_null(bnet_cachefile_open(path, "file 7", &err));
    assert_null(bnet_cachefile_open("/nowhere/at/all", identity, &err));
    assert_string_equal(err.message, ""); /* none of these is a fault */
}

/* Whatever it was written for. */
static void test_pieces_of_any_size(void **state)
{
    (void)state;
    uint64_t n = 0;
    write_file(path);
    bnet_cachefile *c = bnet_cachefile_open(path, NULL, NULL);
    assert_non_null(c);
    assert_memory_equal(bnet_cachefile_piece(c, "two", &n), second, sizeof second);
    assert_int_equal(n, sizeof second);
    assert_null(bnet_cachefile_piece(c, "three", &n));
    bnet_cachefile_close(c);
}

static void refused(const char *says)
{
    bitnet_error err = {0};
    bnet_cachefile *c = bnet_cachefile_open(path, identity, &err);
    assert_null(c);
    assert_non_null(strstr(err.message, path));
    if (!strstr(err.message, says))
        fail_msg("wanted \"%s\" in: %s", says, err.message);
}

static void test_what_is_wrong_is_said(void **state)
{
    (void)state;
    char says[80];
    write_file(path);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    const long long cuts[] = {(long long)st.st_size - 1, 4096, 24};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(truncate(path, cuts[i]), 0);
        snprintf(says, sizeof says, "truncated: %lld of %lld bytes", cuts[i],
                 (long long)st.st_size);
        refused(says);
    }
    assert_int_equal(truncate(path, 23), 0);
    refused("truncated: 23 of at least 24 bytes");
    write_file(path);
    assert_int_equal(truncate(path, st.st_size + 1), 0);
    refused("damaged (its size)");
}

/* What others could have written is not read. */
static void test_files_of_others_are_refused(void **state)
{
    (void)state;
    struct stat st;
    mode_t before = umask(0);
    write_file(path);
    umask(before);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    static const mode_t modes[] = {0620, 0602, 0666};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        refused("others may write to it (mode 06");
    }
    assert_int_equal(chmod(path, 0644), 0); /* to read is harmless */
    bnet_cachefile *c = bnet_cachefile_open(path, identity, NULL);
    assert_non_null(c);
    bnet_cachefile_close(c);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 4711, (gid_t)-1), 0);
        refused("belongs to user 4711 and you are user 0");
    }
    remove(path);
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
        bnet_cachefile *c = bnet_cachefile_open(path, identity, NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_pieces_of_any_size),
        cmocka_unit_test(test_what_is_wrong_is_said),
        cmocka_unit_test(test_files_of_others_are_refused),
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_cannot_write),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
