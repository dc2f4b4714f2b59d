/* test_base.c - the ground floor: checked arithmetic, messages, strings, maps, UTF-8, files, the
 * thread pool. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/ed25519.h"
#include "base/file.h"
#include "base/str.h"
#include "base/thread.h"

static void test_arithmetic(void **state)
{
    (void)state;
    uint64_t r = 7;
    assert_true(bnet_mul(1ull << 32, (1ull << 32) - 1, &r));
    assert_true(r == ((1ull << 32) - 1) << 32);
    assert_false(bnet_mul(1ull << 32, 1ull << 32, &r));
    assert_false(bnet_add(UINT64_MAX, 1, &r));
    assert_true(bnet_round_up(33, 32, &r) && r == 64);
    assert_true(bnet_round_up(0, 32, &r) && r == 0);
    assert_false(bnet_round_up(UINT64_MAX - 3, 32, &r));
    assert_null(bnet_alloc(SIZE_MAX));
    assert_null(bnet_calloc(SIZE_MAX / 2, 3));
}

/* Elements stay, growing is rare, and a size that cannot be had changes nothing. */
static void test_grow(void **state)
{
    (void)state;
    uint64_t *p = NULL;
    size_t cap = 0, n_grown = 0;
    for (size_t n = 0; n < 1000; n++) {
        size_t before = cap;
        assert_true(bnet_grow(&p, &cap, n + 1, sizeof *p));
        assert_true(cap > n);
        n_grown += cap != before;
        p[n] = 3 * n;
    }
    assert_true(n_grown < 20);
    uint64_t *old = p;
    size_t old_cap = cap;
    static const size_t needs[] = {SIZE_MAX, SIZE_MAX / 8, SIZE_MAX / 16};
    for (size_t i = 0; i < BNET_COUNT(needs); i++)
        assert_false(bnet_grow(&p, &cap, needs[i], sizeof *p));
    assert_ptr_equal(p, old);
    assert_int_equal(cap, old_cap);
    for (size_t n = 0; n < 1000; n++)
        assert_true(p[n] == 3 * n);
    bnet_free(p);
}

static void test_messages(void **state)
{
    (void)state;
    bitnet_error err = {0};
    char quoted[24];
    assert_int_equal(bnet_fail(&err, BITNET_MODEL, "tensor %s: size %d", "blk.0", 7), BITNET_MODEL);
    assert_string_equal(err.message, "tensor blk.0: size 7");
    assert_int_equal(bnet_wrap(&err, BITNET_IO, "a.%s", "gguf"), BITNET_IO);
    assert_string_equal(err.message, "a.gguf: tensor blk.0: size 7");
    assert_int_equal(err.status, BITNET_IO);
    assert_int_equal(bnet_fail(NULL, BITNET_IO, "nobody listens"), BITNET_IO);
    char longer[2 * BITNET_MESSAGE_MAX];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    bnet_fail(&err, BITNET_IO, "%s", longer);
    assert_int_equal(strlen(err.message), BITNET_MESSAGE_MAX - 1);
    bnet_wrap(&err, BITNET_IO, "%s", longer);
    assert_int_equal(strlen(err.message), BITNET_MESSAGE_MAX - 1);
    assert_string_equal(bnet_quote("a\nb\x7f", 4, quoted, sizeof quoted), "a\\x0ab\\x7f");
    assert_string_equal(bnet_quote("0123456789012345678901234567890", 31, quoted, sizeof quoted),
                        "0123456789012345...");
    /* a title set by an escape, the same by a C1 control (as a character and as a byte of no
     * character), text turned around, a line of its own; letters of any script stay */
    static const char hostile[] =
        "\x1b]0;t\x07 \xc2\x9b\x9b \xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8 \xc3\xa4\xe4\xb8\xad";
    static const char shown[] =
        "\\x1b]0;t\\x07 \\u009b\\x9b \\u202e\\u2066\\u2028 \xc3\xa4\xe4\xb8\xad";
    char wide[128];
    assert_string_equal(bnet_quote(hostile, sizeof hostile - 1, wide, sizeof wide), shown);
    bnet_fail(&err, BITNET_MODEL, "%s", hostile);
    assert_string_equal(err.message, shown);
    bnet_wrap(&err, BITNET_MODEL, "a\rb");
    assert_memory_equal(err.message, "a\\x0db: \\x1b]0;t", 16);
    memset(longer, '\x1b', sizeof longer - 1);
    bnet_fail(&err, BITNET_IO, "%s", longer);
    assert_null(strchr(err.message, '\x1b'));
    assert_true(strlen(err.message) < BITNET_MESSAGE_MAX);
    for (int s = -1; s < 40; s++)
        assert_non_null(bitnet_status_text((bitnet_status)s));
    assert_string_equal(bitnet_status_text((bitnet_status)99), "unknown status");
}

static void test_strings(void **state)
{
    (void)state;
    bnet_str s = {0};
    for (int i = 0; i < 1000; i++)
        bnet_str_addf(&s, "%d,", i);
    bnet_str_putc(&s, '!');
    bnet_str_puts(&s, "end");
    assert_false(s.failed);
    assert_int_equal(s.n, 10 * 2 + 90 * 3 + 900 * 4 + 4);
    assert_string_equal(s.data + s.n - 4, "!end");
    bnet_str_free(&s);
    assert_null(s.data);
}

static void test_strmap(void **state)
{
    (void)state;
    enum { N = 5000 };
    static char keys[N][16];
    bnet_strmap m;
    bool existed = true;
    uint32_t v;
    assert_true(bnet_strmap_init(&m, 0));
    for (uint32_t i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key%u", i * 7919u);
        assert_true(bnet_strmap_put(&m, keys[i], strlen(keys[i]), i, &existed));
        assert_false(existed);
    }
    assert_true(bnet_strmap_put(&m, "key0", 4, 99, &existed));
    assert_true(existed);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(bnet_strmap_get(&m, keys[i], strlen(keys[i]), &v));
        assert_int_equal(v, i);
    }
    assert_false(bnet_strmap_get(&m, "key", 3, &v));
    assert_true(
        bnet_strmap_put(&m, "", 0, 5, &existed)); /* the empty string is a key like any other */
    assert_true(bnet_strmap_get(&m, "", 0, &v) && v == 5);
    bnet_strmap_free(&m);
}

static void test_utf8(void **state)
{
    (void)state;
    char out[4];
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        if (cp >= 0xd800 && cp <= 0xdfff)
            continue;
        int n = bnet_utf8_encode(cp, out);
        assert_int_equal(bnet_utf8_len(out, (size_t)n), n);
        assert_int_equal(bnet_utf8_decode(out, n), cp);
        for (int cut = 1; cut < n; cut++)
            assert_int_equal(bnet_utf8_len(out, (size_t)cut), -1);
    }
    static const char *const bad[] = {
        "\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x80\x80",
        "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff",         "\xe2\x28\xa1",     "\xe2\x82\x28"};
    for (size_t i = 0; i < BNET_COUNT(bad); i++)
        assert_int_equal(bnet_utf8_len(bad[i], strlen(bad[i])), 0);
}

static void in_dir(char *buf, size_t cap, const char *name)
{
    snprintf(buf, cap, "%s/%s", TEST_BINARY_DIR, name);
}

static void test_map(void **state)
{
    (void)state;
    bitnet_error err;
    bnet_map map;
    assert_int_equal(bnet_map_open("/nonexistent/file", &map, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "/nonexistent/file"));
    assert_int_equal(bnet_map_open("/tmp", &map, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "directory"));
    assert_int_equal(bnet_map_open("/dev/null", &map, &err), BITNET_IO);
}

static void test_writer(void **state)
{
    (void)state;
    char path[512], big[100000];
    bitnet_error err;
    bnet_writer *w;
    bnet_map map;
    in_dir(path, sizeof path, "test_base.out");
    memset(big, 'q', sizeof big);
    assert_int_equal(bnet_writer_open(path, &w, &err), BITNET_OK);
    assert_int_equal(bnet_writer_write(w, "head", 4, &err), BITNET_OK);
    assert_int_equal(bnet_writer_write(w, big, sizeof big, &err), BITNET_OK);
    assert_int_equal(bnet_writer_zeros(w, 5000, &err), BITNET_OK);
    assert_int_equal(bnet_writer_offset(w), 4 + sizeof big + 5000);
    char temp[600];
    snprintf(temp, sizeof temp, "%s", bnet_writer_temp_path(w));
    assert_int_equal(access(path, F_OK), -1); /* not there until it is whole */
    assert_int_equal(bnet_writer_commit(w, &err), BITNET_OK);
    assert_int_equal(access(temp, F_OK), -1);
    assert_int_equal(bnet_map_open(path, &map, &err), BITNET_OK);
    assert_int_equal(map.n_bytes, 4 + sizeof big + 5000);
    assert_memory_equal(map.data, "headqqqq", 8);
    assert_int_equal(map.data[map.n_bytes - 1], 0);
    bnet_map_close(&map);
    unlink(path);
    assert_int_equal(bnet_writer_open("/nonexistent/x", &w, &err), BITNET_IO);
    assert_int_equal(bnet_writer_open("/dev/null", &w, &err), BITNET_IO);
}

/* The mask of the process holds, and nobody has to ask for it: that would change it for a moment.
 */
static void test_writer_mode(void **state)
{
    (void)state;
    char path[512];
    bnet_writer *w;
    struct stat st;
    in_dir(path, sizeof path, "test_base.mode");
    mode_t before = umask(027);
    assert_int_equal(bnet_writer_open(path, &w, NULL), BITNET_OK);
    assert_int_equal(bnet_writer_commit(w, NULL), BITNET_OK);
    umask(before);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    unlink(path);
}

/* A file-size limit stands in for a full disk: the write fails, the old file stays, nothing is left
 * behind. */
static void test_writer_full(void **state)
{
    (void)state;
    char path[512], block[4096] = {1}, temp[600];
    bitnet_error err;
    bnet_writer *w;
    struct rlimit old, small;
    in_dir(path, sizeof path, "test_base.full");
    assert_int_equal(bnet_writer_open(path, &w, &err), BITNET_OK);
    assert_int_equal(bnet_writer_write(w, "old", 3, &err), BITNET_OK);
    assert_int_equal(bnet_writer_commit(w, &err), BITNET_OK);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 150000;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(bnet_writer_open(path, &w, &err), BITNET_OK);
    snprintf(temp, sizeof temp, "%s", bnet_writer_temp_path(w));
    bitnet_status st = BITNET_OK;
    for (int i = 0; i < 100 && st == BITNET_OK; i++)
        st = bnet_writer_write(w, block, sizeof block, &err);
    assert_int_equal(st, BITNET_IO);
    assert_int_equal(bnet_writer_write(w, "more", 4, &err), BITNET_IO);
    assert_int_equal(bnet_writer_commit(w, &err), BITNET_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(access(temp, F_OK), -1);
    char *data;
    size_t n;
    assert_int_equal(bnet_read_file(path, 100, &data, &n, &err), BITNET_OK);
    assert_int_equal(n, 3);
    bnet_free(data);
    assert_int_equal(bnet_read_file(path, 2, &data, &n, &err), BITNET_IO);
    unlink(path);
}

typedef struct tally {
    atomic_int hits[64];
    int n_seen;
} tally;

/* What must be a regular file is refused at once if it is a pipe, by whatever name. */
static void test_regular_file(void **state)
{
    (void)state;
    char path[512], other[512], *data;
    size_t n;
    bitnet_error err = {0};
    in_dir(path, sizeof path, "base_pipe");
    in_dir(other, sizeof other, "base_regular");
    unlink(path);
    unlink(other);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20); /* ends a test that hangs */
    assert_int_equal(bnet_read_file(path, 100, &data, &n, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "base_pipe: is a device or pipe"));
    alarm(0);
    assert_int_equal(bnet_read_file(TEST_BINARY_DIR, 100, &data, &n, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "a directory"));
    assert_int_equal(bnet_read_file("-", 100, &data, &n, &err), BITNET_IO);
    assert_false(bnet_same_file(path, other));
    int ends[2], fd = open(other, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    assert_int_equal(bnet_read_file(other, 100, &data, &n, &err), BITNET_OK);
    assert_int_equal(n, 5);
    assert_string_equal(data, "hello");
    bnet_free(data);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(bnet_read_file(path, 100, &data, &n, &err), BITNET_IO);
    close(ends[0]);
    in_dir(path, sizeof path, "base_pipe");
    unlink(path);
    assert_int_equal(symlink("base_regular", path), 0);
    assert_true(bnet_same_file(path, other));
    assert_false(bnet_same_file(path, TEST_BINARY_DIR));
    unlink(path);
    unlink(other);
}

static void mark(void *arg, bnet_share s)
{
    tally *t = arg;
    size_t b, e;
    bnet_split(64, 3, s.index, s.count, &b, &e);
    for (size_t i = b; i < e; i++)
        atomic_fetch_add(&t->hits[i], 1);
    if (s.index == 0)
        t->n_seen = s.count;
}

static void test_pool(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 7};
    for (size_t c = 0; c < BNET_COUNT(counts); c++) {
        bnet_pool *p;
        assert_int_equal(bnet_pool_open(counts[c], &p, NULL), BITNET_OK);
        assert_int_equal(bnet_pool_threads(p), counts[c]);
        tally t = {0};
        for (int round = 0; round < 300; round++) {
            int n_shares = bnet_pool_run(p, mark, &t);
            assert_int_equal(t.n_seen, n_shares);
            assert_true(n_shares <= bnet_pool_shares(p));
            if (round % 100 == 99)
                usleep(20000); /* let workers fall asleep */
        }
        bnet_pool_each(p, mark, &t);
        assert_int_equal(t.n_seen, counts[c]);
        for (int i = 0; i < 64; i++)
            assert_int_equal(atomic_load(&t.hits[i]), 301);
        bnet_pool_close(p);
    }
    bnet_pool_close(NULL);
    assert_true(bnet_cpu_count() >= 1);
}

/* The first of the vectors that other implementations of SipHash-1-3 are tested with: key 00 01 ..
 * 0f, text 00 01 .. */
static void test_hash(void **state)
{
    (void)state;
    bnet_hash_key key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    const uint64_t expected[] = {0xabac0158050fc4dcu, 0xc9f49bf37d57ca93u, 0x82cb9b024dc7d44du};
    char text[8 + 64] = {0};
    for (int i = 0; i < 64; i++)
        text[8 + i] = (char)i;
    for (size_t n = 0; n < 3; n++)
        assert_true(bnet_hash(key, text + 8, n, false) == expected[n]);
    assert_true(bnet_hash(key, text + 8, 15, false) == 0xd320d86d2a519956u);
    for (size_t n = 0; n <= 64; n++)
        assert_true(bnet_hash(key, text + 8, n, false) == bnet_hash(key, text + 8, n, true));
    for (size_t n = 1; n < 64; n++)
        for (size_t m = 1; m < n; m++) /* where the pair is cut counts */
            assert_true(bnet_hash_pair(key, text + 8, m, text + 8 + m, 64 - m, true) !=
                        bnet_hash_pair(key, text + 8, n, text + 8 + n, 64 - n, true));
}

/* Nobody who knows the keys knows their places. */
static void test_strmap_secret(void **state)
{
    (void)state;
    bnet_strmap a, b;
    size_t n_same = 0;
    char keys[256][8];
    assert_true(bnet_strmap_init(&a, 256) && bnet_strmap_init(&b, 256));
    for (uint32_t i = 0; i < 256; i++) {
        snprintf(keys[i], sizeof keys[i], "k%u", i);
        assert_true(bnet_strmap_put(&a, keys[i], strlen(keys[i]), i, NULL) &&
                    bnet_strmap_put(&b, keys[i], strlen(keys[i]), i, NULL));
    }
    for (size_t i = 0; i < a.n_slots; i++)
        n_same += a.slots[i].key && a.slots[i].key == b.slots[i].key;
    assert_true(n_same < 64);
    bnet_strmap_free(&a);
    bnet_strmap_free(&b);
}

/* A message that does not fit behind its beginning is cut, and nothing behind it is touched. */
static void test_wrapped_message_is_cut(void **state)
{
    (void)state;
    struct {
        bitnet_error err;
        char guard[16];
    } g;
    char long_text[BITNET_MESSAGE_MAX];
    memset(&g, 7, sizeof g);
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    bnet_fail(&g.err, BITNET_IO, "%s", long_text);
    assert_int_equal(bnet_wrap(&g.err, BITNET_MODEL, "begin"), BITNET_MODEL);
    assert_int_equal(g.err.status, BITNET_MODEL);
    assert_true(strncmp(g.err.message, "begin: xxx", 10) == 0);
    assert_int_equal(strlen(g.err.message), BITNET_MESSAGE_MAX - 1);
    for (size_t k = 0; k < sizeof g.guard; k++)
        assert_int_equal(g.guard[k], 7);
}

/* What was signed is accepted, and nothing else: the first vector of RFC 8032 is of no bytes. */
static void test_signatures(void **state)
{
    (void)state;
    static const uint8_t secret[BNET_ED25519_KEY] = {
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a,
        0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32,
        0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60};
    static const uint8_t starts[] = {0xe5, 0x56, 0x43, 0x00, 0xc3, 0x60, 0xac, 0x72};
    uint8_t key[BNET_ED25519_KEY], s[BNET_ED25519_SIGNATURE], text[] = "a receipt";
    bitnet_error err = {0};
    assert_int_equal(bnet_ed25519_public(secret, key, &err), BITNET_OK);
    assert_int_equal(bnet_ed25519_sign(secret, "", 0, s, &err), BITNET_OK);
    assert_memory_equal(s, starts, sizeof starts);
    assert_true(bnet_ed25519_verify(key, "", 0, s));
    assert_false(bnet_ed25519_verify(key, text, 1, s));
    assert_int_equal(bnet_ed25519_sign(secret, text, sizeof text, s, &err), BITNET_OK);
    assert_true(bnet_ed25519_verify(key, text, sizeof text, s));
    s[40] ^= 1;
    assert_false(bnet_ed25519_verify(key, text, sizeof text, s));
    s[40] ^= 1;
    key[3] ^= 1;
    assert_false(bnet_ed25519_verify(key, text, sizeof text, s));
}

/* Keys of hash tables come from the system: one tells nothing of the next. */
static void test_hash_keys_differ(void **state)
{
    (void)state;
    bnet_hash_key a = bnet_hash_key_new(), b = bnet_hash_key_new();
    assert_true(a.k0 != b.k0 && a.k1 != b.k1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_strmap_secret),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_strmap),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_writer_mode),
        cmocka_unit_test(test_writer_full),
        cmocka_unit_test(test_regular_file),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_wrapped_message_is_cut),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_hash_keys_differ),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
