/* replay.c - stands in for libFuzzer where there is none: gives every file of the folders named on
 * the command line to the target once, so that the committed corpus guards every build and every
 * sanitizer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Reads a whole file into memory of exactly its size, so that AddressSanitizer sees the end. */
static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 0;
    }
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int ok = data && size >= 0 && fread(data, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    if (ok)
        LLVMFuzzerTestOneInput(data, (size_t)size);
    else
        fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    return ok;
}

static void replay_folder(const char *folder, int *n_passed, int *n_failed)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        perror(folder);
        (*n_failed)++;
        return;
    }
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (replay_file(path))
            (*n_passed)++;
        else
            (*n_failed)++;
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    int n_files = 0, n_failed = 0;
    for (int i = 1; i < argc; i++)
        replay_folder(argv[i], &n_files, &n_failed);
    printf("replayed %d corpus files\n", n_files);
    if (n_files == 0)
        fprintf(stderr, "the corpus is empty\n");
    return n_failed || n_files == 0;
}
