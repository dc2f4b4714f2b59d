/* test_admission.c - a session or pool that does not fit what is free is refused before anything is
 * allocated; what others have reserved and not touched is not free; a faked /proc says what is. */
#include "nano.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"

static char root[] = "/tmp/bitnet-admission-XXXXXX";

/* So many bytes are free, says /proc/meminfo. */
static void set_free(uint64_t n_bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "MemTotal: 99999999 kB\nMemAvailable: %llu kB\n",
            (unsigned long long)(n_bytes >> 10));
    fclose(f);
}

static bitnet_session_options of(int n_ctx)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = n_ctx;
    o.n_batch = 8;
    return o;
}

static uint64_t all_of(const nano *n, const bitnet_session_options *o)
{
    bitnet_session_cost c;
    OK(bitnet_session_memory(n->engine, o, &c, &err));
    return c.session_bytes + c.cache_bytes + c.workspace_bytes;
}

static void test_free_memory(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *s = NULL;
    bitnet_session_options o = of(4096);
    n.runtime->ledger.root = root;
    uint64_t need = all_of(&n, &o);
    set_free(need - 1024);
    FAILS(bitnet_session_open(n.engine, &o, &s, &err), BITNET_MEMORY,
          "session: a context of 4096 with batch 8 needs");
    FAILS(bitnet_session_open(n.engine, &o, &s, &err), BITNET_MEMORY, "free are");
    FAILS(bitnet_session_open(n.engine, &o, &s, &err), BITNET_MEMORY,
          "ask for a smaller n_ctx or n_batch or kv_type int8, or close other sessions");
    assert_null(s);
    assert_int_equal(n.engine->workspaces.n_users, 0);
    set_free(need + 1024);
    OK(bitnet_session_open(n.engine, &o, &s, &err));
    bitnet_session_close(s);
    assert_int_equal(n.runtime->ledger.reserved, 0);
    nano_close(&n);
}

/* Of two sessions that each fit, the second does not; once the first has used its cache, what it
 * used is counted by the system, and no longer here. */
static void test_reserved_by_others(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session *a = NULL, *b = NULL;
    bitnet_session_options o = of(4096);
    bitnet_session_cost c;
    int32_t ids[65];
    n.runtime->ledger.root = root;
    OK(bitnet_session_memory(n.engine, &o, &c, &err));
    set_free(all_of(&n, &o) + c.cache_bytes / 2);
    OK(bitnet_session_open(n.engine, &o, &a, &err));
    assert_int_equal(n.runtime->ledger.reserved, c.cache_bytes);
    FAILS(bitnet_session_open(n.engine, &o, &b, &err), BITNET_MEMORY,
          "open sessions and pools have reserved");
    FAILS(bitnet_session_fork(a, 0, &b, &err), BITNET_MEMORY, "have reserved");
    assert_int_equal(n.runtime->ledger.reserved, c.cache_bytes);
    nano_ids(&n, 1, ids, 65);
    OK(bitnet_session_append(a, ids, 65, NULL, NULL, &err));
    assert_int_equal(n.runtime->ledger.reserved, c.cache_bytes / 64 * 62); /* two of 64 blocks */
    OK(bitnet_session_rewind(a, 0, &err));
    OK(bitnet_session_append(a, ids, 65, NULL, NULL, &err));
    assert_int_equal(n.runtime->ledger.reserved, c.cache_bytes / 64 * 62); /* the same two */
    bitnet_session_close(a);
    assert_int_equal(n.runtime->ledger.reserved, 0);
    OK(bitnet_session_open(n.engine, &o, &b, &err));
    bitnet_session_close(b);
    nano_close(&n);
}

static void test_pools(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = NULL, *q = NULL;
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    o.max_bytes = 64 << 20;
    n.runtime->ledger.root = root;
    set_free(63 << 20);
    FAILS(bitnet_kv_pool_open(n.engine, &o, &p, &err), BITNET_MEMORY,
          "cache pool options: max_bytes asks for 0.06");
    set_free(100 << 20);
    OK(bitnet_kv_pool_open(n.engine, &o, &p, &err));
    FAILS(bitnet_kv_pool_open(n.engine, &o, &q, &err), BITNET_MEMORY, "ask for less, or close");
    bitnet_kv_pool_close(p);
    assert_int_equal(n.runtime->ledger.reserved, 0);
    OK(bitnet_kv_pool_open(n.engine, &o, &q, &err));
    bitnet_kv_pool_close(q);
    nano_close(&n);
}

/* A real limit: in a process of its own with little address space left, a session that does not
 * fit is refused by the check, not by the allocator, and a smaller one is opened. */
static int under_a_limit(void)
{
    nano n = nano_open(1);
    bitnet_session *s = NULL;
    bitnet_error err = {0};
    bnet_host_room room = bnet_host_room_read("");
    struct rlimit l;
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!f || fscanf(f, "%lu", &pages) != 1 || fclose(f) != 0)
        return 3;
    l.rlim_cur = l.rlim_max = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)64 << 20);
    if (room.free < (uint64_t)256 << 20 || setrlimit(RLIMIT_AS, &l) != 0)
        return 3;
    bitnet_session_options large = of(1 << 19), small = of(256);
    if (all_of(&n, &large) < (uint64_t)80 << 20)
        return 4;
    if (bitnet_session_open(n.engine, &large, &s, &err) != BITNET_MEMORY ||
        !strstr(err.message, "RLIMIT_AS"))
        return 5;
    if (bitnet_session_open(n.engine, &small, &s, &err) != BITNET_OK)
        return 6;
    bitnet_session_close(s);
    nano_close(&n);
    return 0;
}

static void test_a_real_limit(void **state)
{
    (void)state;
    int status = 0;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* a sanitizer takes terabytes of addresses */
#endif
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(under_a_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 3)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int set_up(void **state)
{
    char path[128];
    (void)state;
    if (!mkdtemp(root))
        return -1;
    snprintf(path, sizeof path, "%s/proc", root);
    return mkdir(path, 0700);
}

static int tear_down(void **state)
{
    static const char *const all[] = {"/proc/meminfo", "/proc", ""};
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(all); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", root, all[i]);
        remove(path);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_memory), cmocka_unit_test(test_reserved_by_others),
        cmocka_unit_test(test_pools), cmocka_unit_test(test_a_real_limit)};
    return cmocka_run_group_tests_name("admission", tests, set_up, tear_down);
}
