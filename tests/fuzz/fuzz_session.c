/* fuzz_session.c - the bytes of a session file: refused with a message and nothing changed, or a
 * timeline that goes on.
 *
 * Input: byte 0 says what becomes of the rest. Bit 0 clear: it is the file. Else it is changes to a
 * good file of the nano model, four bytes each (where, two bytes; what is done there; with what),
 * and with bit 1 the checksum is made right again, which reaches deeper. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "base/sha256.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_session: %s\n", #what);                                          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { HEADER = 64, N_IDS = 7 };

static bitnet_session *session;
static uint8_t *good;
static size_t n_good;
static const int32_t ids[N_IDS] = {1, 20, 300, 41, 5, 6, 7};

static char path[] = "/tmp/bitnet-fuzz-session-XXXXXX";

static void remove_file(void)
{
    unlink(path);
}

static bool keep(void *user, const void *bytes, size_t n)
{
    (void)user;
    uint8_t *more = realloc(good, n_good + n);
    CHECK(more);
    memcpy(more + n_good, bytes, n);
    good = more;
    n_good += n;
    return true;
}

static void open_once(void)
{
    bitnet_error err = {0};
    bitnet_runtime *runtime = NULL;
    bitnet_engine *engine = NULL;
    bitnet_runtime_options ro;
    bitnet_session_options so;
    bitnet_runtime_options_init(&ro);
    ro.n_threads = 1;
    ro.device = "cpu";
    bitnet_session_options_init(&so);
    so.n_ctx = 64;
    so.n_batch = 8;
    CHECK(bitnet_runtime_open(&ro, &runtime, &err) == BITNET_OK);
    CHECK(bitnet_engine_open(runtime, TEST_SOURCE_DIR "/models/nano.gguf", NULL, &engine, &err) ==
          BITNET_OK);
    CHECK(bitnet_session_open(engine, &so, &session, &err) == BITNET_OK);
    CHECK(bitnet_session_append(session, ids, N_IDS, NULL, NULL, &err) == BITNET_OK);
    CHECK(bitnet_session_save_to(session, keep, NULL, &err) == BITNET_OK);
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0 && atexit(remove_file) == 0);
    CHECK(bitnet_session_save(session, path, &err) == BITNET_OK);
    CHECK(bitnet_session_load(session, path, &err) == BITNET_OK);
}

static void change(uint8_t *file, size_t *n, const uint8_t *how)
{
    static const uint64_t odd[] = {0,          1,         63,        64,         65,        512,
                                   UINT32_MAX, INT32_MAX, INT64_MAX, UINT64_MAX, 1ull << 32};
    size_t at = (size_t)(how[0] | how[1] << 8);
    switch (how[2] % 4) {
    case 0: /* of the header and the tokens */
        file[at % (HEADER + 4 * N_IDS)] ^= how[3];
        break;
    case 1:
        bnet_put_u32(file + 8 + at % 6 * 4, (uint32_t)odd[how[3] % BNET_COUNT(odd)]);
        break;
    case 2:
        *n = BNET_MAX(at % 2 ? n_good - at % 300 : at % n_good, (size_t)1);
        break;
    default:
        file[at * 7 % n_good] = how[3];
        break;
    }
}

static void mend(uint8_t *file, size_t n)
{
    bnet_sha256 *h = NULL;
    if (n < BNET_SHA256_BYTES)
        return;
    CHECK(bnet_sha256_open(&h, NULL) == BITNET_OK);
    bnet_sha256_add(h, file, n - BNET_SHA256_BYTES);
    CHECK(bnet_sha256_finish(h, file + n - BNET_SHA256_BYTES, NULL) == BITNET_OK);
    bnet_sha256_close(h);
}

/* The same through a file. */
static bitnet_status load_file(const uint8_t *bytes, size_t n, bitnet_error *err)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && (n == 0 || fwrite(bytes, 1, n, f) == n) && fclose(f) == 0);
    return bitnet_session_load(session, path, err);
}

static void load(const uint8_t *file, size_t n)
{
    bitnet_error err = {0};
    size_t before = bitnet_session_position(session);
    uint8_t *exact = malloc(n ? n : 1); /* a sanitizer sees its end */
    CHECK(exact);
    if (n)
        memcpy(exact, file, n);
    bitnet_status st = n % 4 == 3 ? load_file(exact, n, &err)
                                  : bitnet_session_load_memory(session, exact, n, &err);
    free(exact);
    if (st != BITNET_OK) {
        CHECK(err.message[0] && bitnet_session_position(session) == before);
        return;
    }
    size_t position = bitnet_session_position(session);
    CHECK(position <= 64);
    if (position < 64)
        CHECK(bitnet_session_append(session, ids, 1, NULL, NULL, &err) == BITNET_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (!session)
        open_once();
    if (n_bytes == 0)
        return 0;
    if (!(data[0] & 1)) {
        load(data + 1, n_bytes - 1);
        return 0;
    }
    size_t n = n_good;
    uint8_t *file = malloc(n_good);
    CHECK(file);
    memcpy(file, good, n_good);
    for (size_t i = 1; i + 4 <= n_bytes && i < 65; i += 4)
        change(file, &n, data + i);
    if (data[0] & 2)
        mend(file, n);
    load(file, n);
    free(file);
    return 0;
}
