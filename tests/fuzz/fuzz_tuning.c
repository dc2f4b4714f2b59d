/* fuzz_tuning.c - the bytes of a tuning cache: refused with a message, passed over, or taken whole;
 * what was taken names kernels that exist. A text that begins with '{' gets the version of this
 * build for "VERSION", so that the corpus outlives it. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "ops/open.h"
#include "ops/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_tuning: %s\n", #what);                                           \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static char path[] = "/tmp/bitnet-fuzz-tuning-XXXXXX";

static void remove_file(void)
{
    unlink(path);
}

static void put_file(const uint8_t *data, size_t n)
{
    static const char word[] = "VERSION";
    FILE *f = fopen(path, "wb");
    const uint8_t *at = n ? memmem(data, n, word, sizeof word - 1) : NULL;
    CHECK(f);
    if (at) {
        fwrite(data, 1, (size_t)(at - data), f);
        fputs(BITNET_VERSION, f);
        n -= (size_t)(at - data) + sizeof word - 1;
        data = at + sizeof word - 1;
    }
    CHECK(n == 0 || fwrite(data, 1, n, f) == n);
    CHECK(fclose(f) == 0);
}

static void drop(void *user, bitnet_log_level level, const char *module, const char *text)
{
    *(size_t *)user += strlen(text) + strlen(module) + (size_t)level;
}

/* A choice for what is asked is one that this machine can run. */
static void ask(const bnet_registry *r)
{
    static const uint64_t rows[] = {0, 1, 8, 512, UINT64_MAX};
    bnet_capabilities c;
    CHECK(bnet_cpu_capabilities(NULL, &c, NULL) == BITNET_OK);
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        const bitnet_kernel_query names = {
            .op = "linear", .format = "i2s", .dtype = "i8", .m = rows[i], .n = 256, .k = 256};
        bnet_kernel_query q;
        if (bnet_query_read(&names, BNET_DEV_CPU, &q, NULL) == BITNET_OK)
            (void)bnet_registry_tuned(r, &c, &q);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static bool made;
    bnet_registry *r = NULL;
    bitnet_error err = {0};
    size_t logged = 0;
    bnet_log log = {drop, &logged};
    bool used = false;
    if (!made) {
        int fd = mkstemp(path);
        CHECK(fd >= 0 && close(fd) == 0 && atexit(remove_file) == 0);
        made = true;
    }
    put_file(data, n_bytes);
    CHECK(bnet_registry_open(&r, &err) == BITNET_OK);
    bitnet_status st = bnet_registry_load_tuning(r, "machine", path, &log, &used, &err);
    CHECK(st == BITNET_OK || (err.message[0] && !used));
    if (used)
        ask(r);
    if (used) { /* what was taken can be written and read again */
        size_t n = bnet_registry_choices(r);
        CHECK(bnet_registry_save_tuning(r, "machine", path, &err) == BITNET_OK);
        CHECK(bnet_registry_load_tuning(r, "machine", path, &log, &used, &err) == BITNET_OK &&
              used);
        CHECK(bnet_registry_choices(r) == n);
    }
    bnet_registry_close(r);
    return 0;
}
