/* compiler.c - NVRTC behind rtc.h. What is kept is a cachefile (base) with the code and its
 * size; its identity names everything the code depends on, its name is a digest of that. */
#include "backend/cuda/rtc/rtc.h"

#include <stdio.h>

#include "base/cache_folder.h"
#include "base/cachefile.h"
#include "base/file.h"

enum { OPTIONS_MAX = 24, FOLDER_BYTES = 64 << 20, WORDS = 400 };

typedef struct nvrtc_program *program; /* nvrtcProgram */

/* The compiler's functions; all return an nvrtcResult but error_text. */
typedef struct nvrtc_calls {
    int (*version)(int *major, int *minor);
    int (*create)(program *p, const char *text, const char *name, int n_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(program *p);
    int (*compile)(program p, int n_options, const char *const *options);
    int (*log_size)(program p, size_t *n);
    int (*log)(program p, char *text);
    int (*code_size)(program p, size_t *n);
    int (*code)(program p, char *bytes);
    const char *(*error_text)(int result);
} nvrtc_calls;

static const char *const symbols[] = {"nvrtcVersion",           "nvrtcCreateProgram",
                                      "nvrtcDestroyProgram",    "nvrtcCompileProgram",
                                      "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                      "nvrtcGetCUBINSize",      "nvrtcGetCUBIN",
                                      "nvrtcGetErrorString",    NULL};
static_assert(sizeof(nvrtc_calls) / sizeof(bnet_fn) == sizeof symbols / sizeof *symbols - 1,
              "one name each, in order");

struct cuda_rtc {
    bnet_library library;
    nvrtc_calls c;
    char version[16];
    char *folder; /* NULL: nothing is kept */
    uint64_t sum; /* of all sources */
    bnet_log log;
    const char *const *names, *const *texts; /* of the sources */
    int n_sources;
};

/* FNV-1a: tells sources apart, guards against nothing. */
static uint64_t digest(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

static const uint64_t digest_start = 0xcbf29ce484222325u;

bitnet_status bnet_rtc_open(const bnet_loader *l, const char *library, const char *folder,
                            const bnet_log *log, cuda_rtc **out, bitnet_error *err)
{
    const char *const named[] = {library, NULL};
    static const char *const files[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so", NULL};
    char reason[160];
    int major = 0, minor = 0;
    cuda_rtc *r = bnet_calloc(1, sizeof *r);
    if (!r || (folder && !(r->folder = bnet_strdup(folder)))) {
        bnet_free(r);
        return bnet_no_memory(err, "run-time compiler");
    }
    if (!bnet_library_open(l, library ? named : files, symbols, &r->library, reason,
                           sizeof reason)) {
        bnet_rtc_close(r);
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "cuda: %s: install NVRTC of the CUDA toolkit (package cuda-nvrtc)",
                         reason);
    }
    memcpy(&r->c, r->library.fn, sizeof r->c);
    r->c.version(&major, &minor);
    snprintf(r->version, sizeof r->version, "%d.%d", major, minor);
    r->log = log ? *log : (bnet_log){NULL, NULL};
    if (r->folder && !bnet_cache_folder(r->folder, &r->log)) {
        bnet_free(r->folder);
        r->folder = NULL;
    }
    r->n_sources = bnet_cuda_sources(&r->names, &r->texts);
    r->sum = digest_start;
    for (int i = 0; i < r->n_sources; i++)
        r->sum = digest(digest(r->sum, r->names[i]), r->texts[i]);
    *out = r;
    return BITNET_OK;
}

void bnet_rtc_close(cuda_rtc *r)
{
    if (!r)
        return;
    if (r->library.handle)
        bnet_library_close(&r->library);
    bnet_free(r->folder);
    bnet_free(r);
}

/* ---- what is kept ---- */

typedef struct place {
    char *path, *identity;
} place;

static void place_free(place *p)
{
    bnet_free(p->path);
    bnet_free(p->identity);
    *p = (place){0};
}

/* False: nothing is kept. */
static bool place_of(const cuda_rtc *r, const char *source, const char *chip,
                     const char *const *options, int n, place *out)
{
    bnet_str identity = {0}, path = {0};
    *out = (place){0};
    if (!r->folder)
        return false;
    bnet_str_addf(&identity, "bitnet %s nvrtc %s %s %s sources %016llx", BITNET_VERSION, r->version,
                  chip, source, (unsigned long long)r->sum);
    for (int i = 0; i < n; i++)
        bnet_str_addf(&identity, " %s", options[i]);
    if (!identity.failed)
        bnet_str_addf(&path, "%s/%016llx" BNET_CODE_SUFFIX, r->folder,
                      (unsigned long long)digest(digest_start, identity.data));
    *out = (place){path.data, identity.data};
    if (!identity.failed && !path.failed)
        return true;
    place_free(out);
    return false;
}

static bool load(const cuda_rtc *r, const place *p, cuda_code *out)
{
    bitnet_error why = {0};
    bnet_cachefile *f = bnet_cachefile_open(p->path, p->identity, &why);
    uint64_t n = 0;
    double unused;
    if (why.message[0])
        bnet_logf(&r->log, BITNET_LOG_WARN, "cache", "%s", why.message);
    const void *size = f ? bnet_cachefile_find(f, "size", sizeof n, &unused) : NULL;
    if (size)
        memcpy(&n, size, sizeof n);
    const void *code = size && n ? bnet_cachefile_find(f, "code", n, &unused) : NULL;
    void *copy = code ? bnet_alloc((size_t)n) : NULL;
    if (copy)
        *out = (cuda_code){.bytes = memcpy(copy, code, (size_t)n), .n_bytes = n, .kept = true};
    bnet_cachefile_close(f);
    return copy != NULL;
}

static void keep(const cuda_rtc *r, const place *p, const cuda_code *code)
{
    uint64_t n = code->n_bytes;
    const bnet_cachepiece pieces[] = {{.name = "size", .data = &n, .n_bytes = sizeof n},
                                      {.name = "code", .data = code->bytes, .n_bytes = n}};
    bitnet_error why = {0};
    if (bnet_cachefile_write(p->path, p->identity, pieces, 2, &why) != BITNET_OK)
        bnet_logf(&r->log, BITNET_LOG_INFO, "cuda", "kernels are not kept: %s", why.message);
    else
        bnet_cache_trim(r->folder, FOLDER_BYTES);
}

/* ---- compiling ---- */

/* The first line that says error, or the first of all. */
static bitnet_status explain(const cuda_rtc *r, program p, const char *source, int result,
                             bitnet_error *err)
{
    size_t n = 0;
    bool any = p && r->c.log_size(p, &n) == 0 && n > 1 && n < (1 << 20);
    char *log = any ? bnet_calloc(1, n + 1) : NULL;
    if (log)
        r->c.log(p, log);
    const char *at = log ? strstr(log, "error") : NULL;
    while (at && at > log && at[-1] != '\n')
        at--;
    at = at ? at : log ? log : "";
    bitnet_status st =
        bnet_fail(err, BITNET_NOT_AVAILABLE, "cuda: NVRTC %s cannot compile %s: %s%s%.*s",
                  r->version, source, r->c.error_text(result), *at ? ": " : "",
                  (int)BNET_MIN(strcspn(at, "\n"), (size_t)WORDS), at);
    bnet_free(log);
    return st;
}

static int fetch(const cuda_rtc *r, program p, cuda_code *out)
{
    int result = r->c.code_size(p, &out->n_bytes);
    if (result != 0 || out->n_bytes == 0)
        return result ? result : 7; /* NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: no code came out */
    out->bytes = bnet_alloc(out->n_bytes);
    return out->bytes ? r->c.code(p, out->bytes) : 1; /* NVRTC_ERROR_OUT_OF_MEMORY */
}

static bitnet_status compile(const cuda_rtc *r, const char *source, const char *chip,
                             const char *const *options, int n, cuda_code *out, bitnet_error *err)
{
    char arch[48], text[96];
    const char *all[OPTIONS_MAX] = {arch, "-std=c++17", "-default-device"};
    int n_all = 3;
    program p = NULL;
    snprintf(arch, sizeof arch, "-arch=%s", chip);
    snprintf(text, sizeof text, "#include \"%s\"\n", source);
    for (int i = 0; i < n && n_all < OPTIONS_MAX; i++)
        all[n_all++] = options[i];
    double begun = bnet_now_ms();
    int result = r->c.create(&p, text, "specialised.cu", r->n_sources, r->texts, r->names);
    if (result == 0)
        result = r->c.compile(p, n_all, all);
    if (result == 0)
        result = fetch(r, p, out);
    out->ms = bnet_now_ms() - begun;
    bitnet_status st = result == 0 ? BITNET_OK : explain(r, p, source, result, err);
    if (p)
        r->c.destroy(&p);
    if (st != BITNET_OK)
        bnet_free(out->bytes), *out = (cuda_code){0};
    return st;
}

bitnet_status bnet_rtc_make(cuda_rtc *r, const char *source, const char *chip,
                            const char *const *options, int n_options, cuda_code *out,
                            bitnet_error *err)
{
    place p;
    *out = (cuda_code){0};
    bool keeps = place_of(r, source, chip, options, n_options, &p);
    bitnet_status st = BITNET_OK;
    if (!keeps || !load(r, &p, out)) {
        st = compile(r, source, chip, options, n_options, out, err);
        if (st == BITNET_OK && keeps)
            keep(r, &p, out);
    }
    out->compiler = r->version;
    place_free(&p);
    return st;
}
