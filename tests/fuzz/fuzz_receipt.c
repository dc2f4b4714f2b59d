/* fuzz_receipt.c - the bytes of a receipt: it passes the gates or is refused with a message, as it
 * is and once more with the right checksum over its fields, which anybody can compute and which
 * leads to the gates behind it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "base/json_reader.h"
#include "receipt/receipt_seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_receipt: %s\n", #what);                                          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static char path[] = "/tmp/bitnet-fuzz-receipt-XXXXXX";

static void remove_file(void)
{
    unlink(path);
}

static void verify_as(const bitnet_verify_options *o)
{
    bitnet_error err = {0};
    int gate = -1;
    bitnet_status st = bitnet_receipt_verify(path, o, &gate, &err);
    CHECK(st == BITNET_OK || (st == BITNET_RECEIPT && err.message[0] && gate > 0));
}

/* By itself, as one of a GPU, as one of the nano model. */
static void verify(void)
{
    bitnet_verify_options o;
    verify_as(NULL);
    bitnet_verify_options_init(&o);
    o.require_gpu = true;
    verify_as(&o);
    o.require_gpu = false;
    o.model_path = TEST_SOURCE_DIR "/models/nano.gguf";
    verify_as(&o);
}

static void verify_text(const uint8_t *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && (n == 0 || fwrite(data, 1, n, f) == n) && fclose(f) == 0);
    verify();
}

/* With the checksum of what it says. */
static void verify_sealed(const char *text, size_t n)
{
    char why[200];
    bitnet_error err = {0};
    if (bnet_json_measure(text, n, 10000, why, sizeof why))
        return;
    json_t *root = json_loadb(text, n, 0, NULL);
    if (json_is_object(root) && bnet_receipt_seal(root, &err) == BITNET_OK) {
        CHECK(json_dump_file(root, path, 0) == 0); /* bnet_receipt_save would wait for the disk */
        verify();
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static bool made;
    if (!made) {
        int fd = mkstemp(path);
        CHECK(fd >= 0 && close(fd) == 0 && atexit(remove_file) == 0);
        made = true;
        int number;
        const char *text;
        for (int i = 0; bitnet_gate_at(i, &number, &text); i++)
            CHECK(number > 0 && text[0]);
    }
    verify_text(data, n_bytes);
    verify_sealed((const char *)data, n_bytes);
    return 0;
}
