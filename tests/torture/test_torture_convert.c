/* Every allocation of a conversion fails once; no half-written file is left. */
#include "torture/torture.h"

#include <dirent.h>
#include <unistd.h>

#include "convert/convert.h"

static const char folder[] = TEST_BINARY_DIR "/torture_convert",
                  out[] = TEST_BINARY_DIR "/torture_convert/out.gguf";

typedef struct job {
    const char *input, *tokenizer;
    bnet_type type;
    uint64_t digest; /* of the right output; 0: not known yet */
} job;

static uint64_t digest_of(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        h = (h ^ (unsigned)c) * 0x100000001b3u;
    fclose(f);
    return h;
}

/* A conversion that says it succeeded must have written what it writes with all the memory in the
 * world. */
static void check_output(job *j)
{
    uint64_t h = digest_of(out);
    if (!j->digest)
        j->digest = h;
    if (h != j->digest)
        fail_msg("%s: a failed allocation changed the output in silence", j->input);
}

/* The folder must be empty after a failure, hold the finished file alone after a success. */
static void check_folder(bool success)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && !(success && strcmp(e->d_name, "out.gguf") == 0))
            fail_msg("%s was left behind", e->d_name);
    closedir(d);
}

static bitnet_status convert(void *user, bitnet_error *err)
{
    job *j = user;
    bnet_convert_options o;
    bnet_convert_options_init(&o);
    o.weight_type = j->type;
    o.tokenizer = j->tokenizer;
    bitnet_status st = bnet_convert(j->input, out, &o, err);
    bool was_armed = atomic_exchange(&armed, false); /* the test's own calls do not count */
    check_folder(st == BITNET_OK);
    if (st == BITNET_OK)
        check_output(j);
    unlink(out);
    atomic_store(&armed, was_armed);
    return st;
}

static void checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *input, *tokenizer;
        bnet_type type;
    } rows[] = {{"story-model/nano", NULL, BNET_I2_S},
                {"story-model/nano-master", NULL, BNET_TQ2_0},
                {"third-party/stories260K.bin", "third-party/tok512.bin", BNET_F16}};
    int n_done = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char input[1024], tokenizer[1024];
        if (!shared_path(rows[i].input, input, sizeof input) ||
            (rows[i].tokenizer && !shared_path(rows[i].tokenizer, tokenizer, sizeof tokenizer)))
            continue;
        job j = {input, rows[i].tokenizer ? tokenizer : NULL, rows[i].type, 0};
        long step = INTERPOSE_SANITIZED ? 7 : 1; /* there each costs more */
        print_message("%s: ", rows[i].input);
        torture(convert, &j, false, step);
        n_done++;
    }
    if (!n_done)
        skip();
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir(folder, 0777);
    const struct CMUnitTest tests[] = {cmocka_unit_test(checkpoints)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
