/* emulated_nvtx.c - what marks ranges for profilers, for tests: BITNET_EMULATED_NVTX names a file
 * that gets a line for each, indented by how deep it lies. A range that is closed and was not
 * opened is told. */
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

static _Thread_local int depth;

static void say(const char *text)
{
    const char *path = getenv("BITNET_EMULATED_NVTX");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fprintf(f, "%*s%s\n", 2 * depth, "", text);
        fclose(f);
    }
}

API int nvtxRangePushA(const char *name)
{
    say(name);
    return depth++;
}

API int nvtxRangePop(void)
{
    if (--depth < 0)
        say("closed too often");
    return depth;
}
