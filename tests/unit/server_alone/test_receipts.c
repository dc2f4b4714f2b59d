/* test_receipts.c - the folder of receipts: private, bounded, swept, gone in the end; ids that
 * nobody guesses and that name nothing else. */
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include "../server/metrics/receipts.h"

static char parent[64];

static int make_parent(void **state)
{
    (void)state;
    snprintf(parent, sizeof parent, "/tmp/bitnet-test-XXXXXX");
    return mkdtemp(parent) ? 0 : -1;
}

static int remove_parent(void **state)
{
    (void)state;
    return rmdir(parent); /* fails if anything was left */
}

static void write_receipt(const char *dir, const char *id, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s.json", dir, id);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool keep_new(srv_receipts *r, char id[40])
{
    bool made = srv_receipts_new(id);
    if (made)
        srv_receipts_keep(r, id);
    return made;
}

static void a_receipt_comes_back(void **state)
{
    (void)state;
    char id[40];
    srv_receipts *r = srv_receipts_open_in(parent, 4);
    assert_non_null(r);
    assert_true(keep_new(r, id));
    assert_null(srv_receipts_get(r, id));
    write_receipt(srv_receipts_dir(r), id, "{\"backend\": \"cpu\"}");
    json_t *got = srv_receipts_get(r, id);
    assert_string_equal(json_string_value(json_object_get(got, "backend")), "cpu");
    json_decref(got);
    srv_receipts_close(r);
}

static void the_folder_is_private(void **state)
{
    (void)state;
    struct stat st;
    srv_receipts *r = srv_receipts_open_in(parent, 4);
    assert_int_equal(stat(srv_receipts_dir(r), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    srv_receipts_close(r);
    r = srv_receipts_open(4);
    assert_int_equal(stat(srv_receipts_dir(r), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    srv_receipts_close(r);
    assert_null(srv_receipts_open_in("/nowhere/at/all", 4));
}

static void the_oldest_go(void **state)
{
    (void)state;
    char ids[6][40];
    srv_receipts *r = srv_receipts_open_in(parent, 4);
    for (int i = 0; i < 6; i++) {
        assert_true(keep_new(r, ids[i]));
        write_receipt(srv_receipts_dir(r), ids[i], "{}");
    }
    for (int i = 0; i < 6; i++) {
        json_t *got = srv_receipts_get(r, ids[i]);
        assert_int_equal(got != NULL, i >= 2);
        json_decref(got);
    }
    srv_receipts_close(r);
}

/* A request that is refused has had an id all the same. */
static void ids_alone_drive_out_nothing(void **state)
{
    (void)state;
    char id[40], unused[40];
    srv_receipts *r = srv_receipts_open_in(parent, 2);
    assert_true(keep_new(r, id));
    write_receipt(srv_receipts_dir(r), id, "{}");
    for (int i = 0; i < 10; i++)
        assert_true(srv_receipts_new(unused));
    json_t *got = srv_receipts_get(r, id);
    assert_non_null(got);
    json_decref(got);
    srv_receipts_close(r);
}

/* A receipt may be written when its id was forgotten already: it goes, but not while it is fresh.
 */
static void late_files_go(void **state)
{
    (void)state;
    char late[40], id[40], path[256];
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    srv_receipts *r = srv_receipts_open_in(parent, 2);
    assert_true(keep_new(r, late));
    assert_true(keep_new(r, id));
    assert_true(keep_new(r, id)); /* forgets `late` */
    write_receipt(srv_receipts_dir(r), late, "{}");
    assert_true(keep_new(r, id)); /* once around: it is fresh */
    snprintf(path, sizeof path, "%s/%s.json", srv_receipts_dir(r), late);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(keep_new(r, id));
    assert_true(keep_new(r, id));
    assert_int_equal(access(path, F_OK), -1);
    srv_receipts_close(r);
}

static void only_ids_name_receipts(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "lock",
        "../../../../etc/passwd",
        "rcp_",
        "rcp_0123456789abcdef0123456789abcde",
        "rcp_0123456789abcdef0123456789abcdef0",
        "rcp_0123456789ABCDEF0123456789ABCDEF",
        "rcp_../../../../../../../etc/hostname",
        "rcp_0123456789abcdef0123456789abc/..",
    };
    srv_receipts *r = srv_receipts_open_in(parent, 4);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!strchr(bad[i], '/') && *bad[i])
            write_receipt(srv_receipts_dir(r), bad[i], "{}");
        assert_null(srv_receipts_get(r, bad[i]));
    }
    srv_receipts_close(r);
}

static void ids_differ(void **state)
{
    (void)state;
    char a[40], b[40];
    srv_receipts *r = srv_receipts_open_in(parent, 4);
    assert_true(keep_new(r, a) && keep_new(r, b));
    int same = 0;
    for (int i = 4; i < 36; i++)
        same += a[i] == b[i];
    assert_int_equal(strlen(a), 36);
    assert_true(same < 16); /* of 32 digits two are equal by chance */
    srv_receipts_close(r);
}

/* A folder whose server was killed: its lock is free. One whose server lives, one that has just
 * been made, and one that is open to others stay. */
static void leftovers_are_swept(void **state)
{
    (void)state;
    char dead[128], fresh[128], open_to_all[128], alive[128], path[160];
    snprintf(dead, sizeof dead, "%s/bitnet-receipts-dead00", parent);
    snprintf(fresh, sizeof fresh, "%s/bitnet-receipts-fresh0", parent);
    snprintf(open_to_all, sizeof open_to_all, "%s/bitnet-receipts-other0", parent);
    assert_int_equal(mkdir(dead, 0700) | mkdir(fresh, 0700) | mkdir(open_to_all, 0700), 0);
    assert_int_equal(chmod(open_to_all, 0777), 0);
    write_receipt(dead, "rcp_x", "{}");
    snprintf(path, sizeof path, "%s/lock", dead);
    close(open(path, O_CREAT | O_RDWR, 0600));
    snprintf(path, sizeof path, "%s/lock", open_to_all);
    close(open(path, O_CREAT | O_RDWR, 0600));
    srv_receipts *first = srv_receipts_open_in(parent, 4);
    snprintf(alive, sizeof alive, "%s", srv_receipts_dir(first));
    srv_receipts *second = srv_receipts_open_in(parent, 4);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(fresh, F_OK) | access(alive, F_OK) | access(open_to_all, F_OK), 0);
    srv_receipts_close(first);
    srv_receipts_close(second);
    assert_int_equal(access(alive, F_OK), -1);
    assert_int_equal(unlink(path) | rmdir(open_to_all) | rmdir(fresh), 0);
}

static void *take_ids(void *r)
{
    char id[40];
    for (int i = 0; i < 500; i++) {
        assert_true(keep_new(r, id));
        json_decref(srv_receipts_get(r, id));
    }
    return NULL;
}

static void threads_take_ids(void **state)
{
    (void)state;
    pthread_t threads[4];
    srv_receipts *r = srv_receipts_open_in(parent, 8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_ids, r), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    srv_receipts_close(r);
    srv_receipts_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receipt_comes_back), cmocka_unit_test(the_folder_is_private),
        cmocka_unit_test(the_oldest_go),        cmocka_unit_test(ids_alone_drive_out_nothing),
        cmocka_unit_test(late_files_go),        cmocka_unit_test(only_ids_name_receipts),
        cmocka_unit_test(ids_differ),           cmocka_unit_test(leftovers_are_swept),
        cmocka_unit_test(threads_take_ids),
    };
    return cmocka_run_group_tests(tests, make_parent, remove_parent);
}
