/* emulated_nvrtc.c - a libnvrtc for machines without a GPU: it looks whether what it is given could
 * be compiled (every include has its header, the options name a chip and constants) and gives out
 * its options as code, by which the emulated libcuda checks that a kernel is launched with what it
 * was compiled for.
 *
 * BITNET_EMULATED_NVRTC_LOG: a file to which every compilation appends a line.
 * BITNET_EMULATED_NVRTC: "fail": compilation fails, as an error in the source would; "12": another
 * version. */
#include "emulated_modules.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { COMPILATION = 6 };

typedef struct program {
    char *text;
    int n;
    const char *const *headers, *const *names;
    char log[256], code[1024];
} program;

static const char *mode(void)
{
    const char *s = getenv("BITNET_EMULATED_NVRTC");
    return s ? s : "";
}

API int nvrtcVersion(int *major, int *minor)
{
    *major = strcmp(mode(), "12") == 0 ? 12 : 13;
    *minor = 0;
    return 0;
}

API int nvrtcCreateProgram(program **out, const char *text, const char *name, int n,
                           const char *const *headers, const char *const *names)
{
    (void)name;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return 1;
    **out = (program){.text = strdup(text), .n = n, .headers = headers, .names = names};
    if ((*out)->text)
        return 0;
    free(*out);
    *out = NULL;
    return 1;
}

API int nvrtcDestroyProgram(program **p)
{
    free((*p)->text);
    free(*p);
    *p = NULL;
    return 0;
}

/* Is every include of the text, and of what it includes, among the headers? */
static bool complete(program *p, const char *text, int depth)
{
    for (const char *at = text; depth < 16 && (at = strstr(at, "#include ")) != NULL;) {
        char name[96] = "";
        bool found = false;
        at += strlen("#include ");
        sscanf(at, "%*[\"<]%95[^\">]", name);
        for (int i = 0; i < p->n && !found; i++)
            if (strcmp(p->names[i], name) == 0) {
                found = true;
                if (!complete(p, p->headers[i], depth + 1))
                    return false;
            }
        if (!found) {
            snprintf(p->log, sizeof p->log, "error: cannot open source file \"%s\"\n", name);
            return false;
        }
    }
    return true;
}

static void note(const program *p)
{
    const char *path = getenv("BITNET_EMULATED_NVRTC_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%s\n", p->code);
    fclose(f);
}

API int nvrtcCompileProgram(program *p, int n, const char *const *options)
{
    size_t at = (size_t)snprintf(p->code, sizeof p->code, EMULATED_CODE);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(p->code + at, sizeof p->code - at, " %s", options[i]);
    snprintf(p->code + at, sizeof p->code - at, " ");
    note(p);
    if (strcmp(mode(), "fail") == 0)
        snprintf(p->log, sizeof p->log, "a warning\nw2_gemv.cu(7): error: emulated mistake\n");
    else if (!strstr(p->code, "-arch=sm_"))
        snprintf(p->log, sizeof p->log, "error: no chip\n");
    else if (complete(p, p->text, 0))
        return 0;
    return COMPILATION;
}

API int nvrtcGetProgramLogSize(program *p, size_t *n)
{
    *n = strlen(p->log) + 1;
    return 0;
}

API int nvrtcGetProgramLog(program *p, char *text)
{
    memcpy(text, p->log, strlen(p->log) + 1);
    return 0;
}

API int nvrtcGetCUBINSize(program *p, size_t *n)
{
    *n = strlen(p->code) + 1;
    return 0;
}

API int nvrtcGetCUBIN(program *p, char *code)
{
    memcpy(code, p->code, strlen(p->code) + 1);
    return 0;
}

API const char *nvrtcGetErrorString(int result)
{
    return result == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
