/* test_cache_folder.c - only our files count and go, the longest unused first, and nothing that a
 * living process writes; a folder of others is not used. */
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cache_folder.h"
#include "base/file.h"

static char root[] = "/tmp/bitnet-cachefolder-XXXXXX";
static char folder[64];
static char said[1024];
static bitnet_log_level level_said;

static void listen(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user;
    (void)module;
    level_said = level;
    snprintf(said, sizeof said, "%s", message);
}

static const bnet_log log_here = {listen, NULL};

static int make_root(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return -1;
    snprintf(folder, sizeof folder, "%s/a/b", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    char p[128];
    bnet_cache_trim(folder, 0);
    snprintf(p, sizeof p, "%s/nvrtc", folder);
    rmdir(p);
    rmdir(folder);
    snprintf(p, sizeof p, "%s/a", root);
    rmdir(p);
    return rmdir(root);
}

static void path_of(const char *name, char p[160])
{
    snprintf(p, 160, "%s/%s", folder, name);
}

static bool exists(const char *name)
{
    char p[160];
    struct stat st;
    path_of(name, p);
    return stat(p, &st) == 0;
}

/* A file of n bytes, used so many seconds after 1970. */
static void make(const char *name, size_t n, long used)
{
    char p[160];
    path_of(name, p);
    FILE *f = fopen(p, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        fputc('x', f);
    fclose(f);
    struct timespec t[2] = {{used, 0}, {used, 0}};
    assert_int_equal(utimensat(AT_FDCWD, p, t, 0), 0);
}

static void drop(const char *name)
{
    char p[160];
    path_of(name, p);
    remove(p);
}

static void test_folder_must_be_ours(void **state)
{
    (void)state;
    char p[160];
    said[0] = '\0';
    assert_true(bnet_cache_folder(folder, &log_here));
    assert_true(bnet_cache_folder(folder, &log_here));
    assert_string_equal(said, "");
    static const mode_t modes[] = {0720, 0702, 01777};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(folder, modes[i]), 0);
        said[0] = '\0';
        assert_false(bnet_cache_folder(folder, &log_here));
        assert_non_null(strstr(said, folder));
        assert_non_null(strstr(said, "others may write to it (mode "));
        assert_non_null(strstr(said, "chmod go-w '"));
        assert_int_equal(level_said, BITNET_LOG_WARN);
    }
    assert_int_equal(chmod(folder, 0755), 0);
    assert_true(bnet_cache_folder(folder, &log_here));
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 4711, (gid_t)-1), 0);
        assert_false(bnet_cache_folder(folder, &log_here));
        assert_non_null(strstr(said, "belongs to user 4711 and you are user 0"));
        assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
    }
    make("file", 1, 1);
    path_of("file", p);
    assert_false(bnet_cache_folder(p, &log_here));
    assert_non_null(strstr(said, "cannot be made"));
    assert_int_equal(level_said, BITNET_LOG_INFO);
    drop("file");
}

static void make_all(void)
{
    char p[160];
    assert_true(bnet_cache_folder(folder, NULL));
    path_of("nvrtc", p);
    mkdir(p, 0700);
    make("mid.pack", 100, 1002);
    make("new.pack", 100, 1004);
    make("old.sha256", 10, 1001);
    make("nvrtc/k.cubin", 30, 1003);
    make("notes.txt", 1000, 1);
    make("nvrtc/notes.txt", 1000, 1);
    make(".pack", 1000, 1);
}

static void drop_foreign(void)
{
    drop("notes.txt");
    drop("nvrtc/notes.txt");
    drop(".pack");
}

static void test_list(void **state)
{
    (void)state;
    static const char *const names[] = {"old.sha256", "mid.pack", "nvrtc/k.cubin", "new.pack"};
    static const char *const kinds[] = {"checksum", "packed weights", "kernels", "packed weights"};
    static const uint64_t sizes[] = {10, 100, 30, 100};
    bnet_cached *files;
    size_t n;
    bitnet_error err = {0};
    make_all();
    assert_int_equal(bnet_cache_list(folder, &files, &n, &err), BITNET_OK);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(files[i].name, names[i]);
        assert_string_equal(files[i].kind, kinds[i]);
        assert_int_equal(files[i].n_bytes, sizes[i]);
        assert_int_equal(files[i].used_ns, (1001 + (int64_t)i) * 1000000000);
        assert_false(files[i].unfinished);
    }
    bnet_free(files);
    assert_int_equal(bnet_cache_list("/nowhere/at/all", &files, &n, &err), BITNET_OK);
    assert_int_equal(n, 0);
    assert_int_equal(bnet_cache_list("/dev/null", &files, &n, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "/dev/null: cannot be listed: "));
    drop_foreign();
}

static void test_trim_counts_all(void **state)
{
    (void)state;
    make_all();
    bnet_cache_trim(folder, 240);
    assert_true(exists("old.sha256") && exists("mid.pack") && exists("new.pack"));
    bnet_cache_trim(folder, 239);
    assert_true(!exists("old.sha256") && exists("mid.pack") && exists("nvrtc/k.cubin"));
    bnet_cache_trim(folder, 130);
    assert_true(!exists("mid.pack") && exists("nvrtc/k.cubin") && exists("new.pack"));
    bnet_cache_trim(folder, 100);
    assert_true(!exists("nvrtc/k.cubin") && exists("new.pack"));
    bnet_cache_trim(folder, 99);
    assert_true(!exists("new.pack") && exists("notes.txt") && exists("nvrtc/notes.txt"));
    assert_true(exists(".pack"));
    bnet_cache_trim("/nowhere/at/all", 0);
    drop_foreign();
}

/* A child that ends in the middle of writing leaves its temporary behind. */
static void leave_temporary(const char *name)
{
    char p[160];
    path_of(name, p);
    pid_t child = fork();
    if (child == 0) {
        bnet_writer *w;
        _exit(bnet_writer_open_private(p, &w, NULL) != BITNET_OK);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_sweep_leaves_the_living(void **state)
{
    (void)state;
    char p[160];
    uint64_t n_bytes = 7;
    bnet_writer *w;
    bitnet_error err = {0};
    assert_true(bnet_cache_folder(folder, NULL));
    assert_int_equal(bnet_cache_sweep(folder, &n_bytes), 0);
    assert_int_equal(n_bytes, 0);
    path_of("live.pack", p);
    assert_int_equal(bnet_writer_open_private(p, &w, &err), BITNET_OK);
    leave_temporary("dead.pack");
    leave_temporary("dead.sha256");
    make("dead.pack.abcdef.tmp", 50, 5);
    make("x.abcdef.tmp", 50, 5); /* of somebody else */
    make("dead.pack.tmp", 50, 5);
    assert_int_equal(bnet_cache_sweep(folder, &n_bytes), 3);
    assert_int_equal(n_bytes, 50);
    assert_int_equal(bnet_cache_sweep(folder, &n_bytes), 0);
    assert_true(exists("x.abcdef.tmp") && exists("dead.pack.tmp"));
    assert_int_equal(bnet_writer_write(w, "12", 2, &err), BITNET_OK);
    assert_int_equal(bnet_writer_publish(w, &err), BITNET_OK);
    assert_true(exists("live.pack"));
    bnet_cache_trim(folder, 0);
    drop("x.abcdef.tmp");
    drop("dead.pack.tmp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_must_be_ours),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_trim_counts_all),
        cmocka_unit_test(test_sweep_leaves_the_living),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
