/* fuzz_cachefile.c - a file of the packed-weight cache: whatever its bytes are, it is refused with
 * a message or gives pieces that lie inside it.
 *
 * Input: byte 0 says what becomes of the rest. 0: it is the file. Else it is changes to a good file
 * of three pieces, four bytes each (where, two bytes, modulo the size; what is done there; with
 * what), and with bit 1 the checksum of the index is made right again, which reaches deeper. */
#include "base/cachefile.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_cachefile: %s\n", #what);                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { HEADER = 24, ENTRY = BNET_CACHE_NAME + 32, N_PIECES = 3, IDENTITY = 8 };

static char path[] = "/tmp/bitnet-fuzz-cache-XXXXXX";
static uint8_t *good;
static size_t n_good;

static void remove_file(void)
{
    unlink(path);
}

/* The same sum as cachefile.c has: a fuzzer does not find it by chance. */
static uint64_t checksum(const uint8_t *p, size_t n)
{
    uint64_t lane[8] = {1, 2, 3, 4, 5, 6, 7, 8}, h = n;
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (size_t l = 0; l < 8; l++) {
            lane[l] = (lane[l] ^ bnet_u64(p + i + 8 * l)) * 0x9e3779b97f4a7c15u;
            lane[l] ^= lane[l] >> 29;
        }
    for (; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    for (size_t l = 0; l < 8; l++)
        h = (h ^ lane[l]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static void make_good(void)
{
    static const uint8_t bytes[100] = {1, 2, 3};
    static const bnet_cachepiece pieces[N_PIECES] = {{BNET_CACHE_SOURCE, "model.gguf", 11, 0},
                                                     {"blk.0.attn_q.weight", bytes, 100, 0.5},
                                                     {"empty", bytes, 0, 1}};
    char *read = NULL;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0 && atexit(remove_file) == 0);
    CHECK(bnet_cachefile_write(path, "identity", pieces, N_PIECES, NULL) == BITNET_OK);
    CHECK(bnet_read_file(path, 1 << 20, &read, &n_good, NULL) == BITNET_OK);
    good = (uint8_t *)read;
}

static void put_file(const uint8_t *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
    CHECK(chmod(path, 0600) == 0);
}

/* Every piece that is found can be read to its end. */
static void use(const char *identity)
{
    static const char *const names[] = {BNET_CACHE_SOURCE, "blk.0.attn_q.weight", "empty", "",
                                        "none"};
    bitnet_error err = {0};
    bnet_cachefile *c = bnet_cachefile_open(path, identity, &err);
    unsigned sum = 0;
    CHECK(!c || !err.message[0]);
    for (size_t i = 0; c && i < BNET_COUNT(names); i++) {
        uint64_t n = 0;
        double note;
        const uint8_t *p = bnet_cachefile_piece(c, names[i], &n);
        for (uint64_t k = 0; p && k < n; k++)
            sum += p[k];
        CHECK(!p || n == 0 || (bnet_cachefile_holds(c, p) && bnet_cachefile_holds(c, p + n - 1)));
        CHECK(!bnet_cachefile_find(c, names[i], n + 1, &note));
    }
    bnet_cachefile_close(c);
    CHECK(sum != UINT32_MAX);
}

static void change(uint8_t *file, size_t *n, const uint8_t *how)
{
    static const uint64_t odd[] = {0,          1,          4095,      4096,       UINT32_MAX,
                                   1ull << 63, UINT64_MAX, INT64_MAX, 1ull << 16, 8192};
    size_t at = (size_t)(how[0] | how[1] << 8) % n_good;
    switch (how[2] % 4) {
    case 0:
        file[at] ^= how[3];
        break;
    case 1: /* a number of the header or of an entry */
        at = at % 64 < 4 ? 8 + at % 4 * 4
                         : HEADER + IDENTITY + at % N_PIECES * ENTRY + BNET_CACHE_NAME + at % 4 * 8;
        bnet_put_u64(file + at, odd[how[3] % BNET_COUNT(odd)]);
        break;
    case 2:
        *n = at;
        break;
    default:
        memset(file + HEADER + IDENTITY + at % N_PIECES * ENTRY, how[3], BNET_CACHE_NAME);
        break;
    }
}

static void edited(const uint8_t *data, size_t n_bytes, bool mend)
{
    size_t n = n_good, head = HEADER + IDENTITY + N_PIECES * ENTRY;
    uint8_t *file = malloc(n_good);
    CHECK(file);
    memcpy(file, good, n_good);
    for (size_t i = 0; i + 4 <= n_bytes && i < 64; i += 4)
        change(file, &n, data + i);
    if (mend)
        bnet_put_u64(file + head, checksum(file, head));
    if (mend && n_bytes % 4 == 1)
        bnet_put_u64(file + 16, n); /* and its size */
    put_file(file, n);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (!good)
        make_good();
    if (n_bytes == 0)
        return 0;
    if (data[0] & 1)
        edited(data + 1, n_bytes - 1, data[0] & 2);
    else
        put_file(data + 1, n_bytes - 1);
    use(NULL);
    use("identity");
    return 0;
}
