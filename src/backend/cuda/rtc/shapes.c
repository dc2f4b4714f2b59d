/* shapes.c - which shapes of the GEMV were compiled so far, and compiling the others. A shape that
 * failed is not tried again; while a step is recorded nothing is compiled. */
#include "backend/cuda/rtc/rtc.h"

#include <stdio.h>

#include "base/cache_folder.h"

enum { SHAPES = 64, DEFINES = 12 };
enum { TOKENS = 5, FLOATS = 7, PER = 11 }; /* of the names below */
static const char row[] = "i2s_gpu_gemv_rtc";

typedef struct shape {
    uint32_t of[DEFINES]; /* as names[] below */
    cu_module module;     /* NULL: it could not be made */
    gpu_kernel code;
} shape;

typedef struct gpu_compiled {
    char *folder;  /* NULL: nothing is kept */
    char *library; /* NULL: the system's */
    bool wanted;
    cuda_rtc *rtc; /* found when first used */
    bool absent;   /* looked for and not there */
    const bnet_kernel_record *record;
    shape shapes[SHAPES];
    int n;
} gpu_compiled;

static void compiled_free(gpu_backend *be, gpu_compiled *s)
{
    const cuda_driver *c = (const cuda_driver *)be->d;
    be->d->c->wait(be->d);
    for (int i = 0; i < s->n; i++)
        if (s->shapes[i].module)
            c->cu.module_free(s->shapes[i].module);
    bnet_rtc_close(s->rtc);
    bnet_free(s->folder);
    bnet_free(s->library);
    bnet_free(s);
}

/* Can it serve on this chip? In strict mode that is an error, else a warning. */
static bitnet_status check_chip(const gpu_backend *be, const bnet_kernel_record *k,
                                bitnet_error *err)
{
    const bnet_gpu *g = &be->d->gpu;
    bitnet_error why = {0};
    if (!(k->needs & ~bnet_cuda_has(g->cc_major, g->cc_minor, be->d->has.tensor_cores)))
        return BITNET_OK;
    bnet_fail(&why, BITNET_NOT_AVAILABLE,
              "gpu-specialise: what it compiles serves from %s on, device %d "
              "has %d.%d: nothing is compiled",
              bnet_cuda_need_name(__builtin_ctzll(k->needs)), g->device_id, g->cc_major,
              g->cc_minor);
    if (be->strict)
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "%s; omit it", why.message);
    bnet_logf(&be->log, BITNET_LOG_WARN, be->d->c->name, "%s", why.message);
    return BITNET_OK;
}

bitnet_status bnet_cuda_compiled_open(gpu_backend *be, const bnet_backend_want *want,
                                      bitnet_error *err)
{
    gpu_compiled *s = bnet_calloc(1, sizeof *s);
    bnet_str folder = {0};
    if (!s)
        return bnet_no_memory(err, "kernels compiled at run time");
    if (want->cache_dir)
        bnet_str_addf(&folder, "%s/" BNET_CODE_FOLDER, want->cache_dir);
    *s = (gpu_compiled){.folder = folder.data,
                        .library = want->nvrtc ? bnet_strdup(want->nvrtc) : NULL,
                        .wanted = want->specialise,
                        .record = bnet_registry_find(be->registry, row)};
    be->compiled = s;
    be->compiled_free = compiled_free;
    if (want->nvrtc && !s->library)
        return bnet_no_memory(err, "kernels compiled at run time");
    bitnet_status st = s->wanted ? check_chip(be, s->record, err) : BITNET_OK;
    if (st == BITNET_OK && s->wanted && be->strict)
        st = bnet_rtc_open(&bnet_dl, s->library, s->folder, &be->log, &s->rtc, err);
    return st == BITNET_OK ? st : bnet_wrap(err, st, "strict mode");
}

bool bnet_cuda_compiled_wanted(const gpu_backend *be)
{
    return be->compiled && be->compiled->wanted;
}

/* ---- compiling ---- */

static bool find_compiler(gpu_backend *be, gpu_compiled *s)
{
    bitnet_error why = {0};
    if (s->rtc || s->absent)
        return s->rtc != NULL;
    s->absent =
        bnet_rtc_open(&bnet_dl, s->library, s->folder, &be->log, &s->rtc, &why) != BITNET_OK;
    if (!s->absent)
        return true;
    bnet_logf(&be->log, BITNET_LOG_WARN, be->d->c->name,
              "%s; kernels are not specialised, those of the build are used", why.message);
    return false;
}

static bitnet_status make(gpu_backend *be, gpu_compiled *s, shape *x, bitnet_error *err)
{
    static const char *const names[DEFINES] = {"TILES", "CHUNKS", "PARTS",    "PAIRED",
                                               "K",     "TOKENS", "EPILOGUE", "FLOATS",
                                               "MINE",  "MORE",   "SPLIT",    "PER"};
    bool one = x->of[PER] > 0; /* a kernel of w2_few_tokens.h */
    const char *symbol = !one                ? "bnet_w2_gemv_ldg"
                         : x->of[TOKENS] > 1 ? "bnet_w2_few"
                         : x->of[FLOATS]     ? "bnet_w2_one_norm"
                                             : "bnet_w2_one";
    const cuda_driver *c = (const cuda_driver *)be->d;
    const bnet_gpu *g = &be->d->gpu;
    char text[DEFINES][48], chip[16];
    const char *options[DEFINES];
    cuda_code code;
    cu_function f = NULL;
    for (int i = 0; i < DEFINES; i++) {
        snprintf(text[i], sizeof text[i], "-DBNET_SPEC_%s=%u", names[i], x->of[i]);
        options[i] = text[i];
    }
    /* chips with instructions of their own (an "a" in the name) want code for exactly them */
    snprintf(chip, sizeof chip, "sm_%d%d%s", g->cc_major, g->cc_minor, g->cc_major >= 9 ? "a" : "");
    bitnet_status st = bnet_rtc_make(s->rtc, one ? "w2_few_tokens_spec.cuh" : "w2_gemv_spec.cuh",
                                     chip, options, DEFINES, &code, err);
    if (st != BITNET_OK)
        return st;
    bnet_logf(&be->log, BITNET_LOG_INFO, be->d->c->name,
              "%s for %u tiles x %u columns, %u tokens: %s (%s, NVRTC %s, %.0f ms)", row, x->of[0],
              x->of[4], x->of[5], code.kept ? "kept from before" : "compiled", chip, code.compiler,
              code.ms);
    int r = c->cu.module_load(&x->module, code.bytes);
    bnet_free(code.bytes);
    if (r == 0)
        r = c->cu.module_function(&f, x->module, symbol);
    x->code = (gpu_kernel)(void *)f;
    return r == 0 ? BITNET_OK : bnet_cuda_explain(be->d, "loading a compiled kernel", r, err);
}

/* The kernel of this shape, compiled if need be. NULL: there is none. */
static gpu_kernel code_of(gpu_backend *be, gpu_compiled *s, const uint32_t of[DEFINES])
{
    bitnet_error why = {0};
    for (int i = 0; i < s->n; i++)
        if (memcmp(s->shapes[i].of, of, sizeof s->shapes[i].of) == 0)
            return s->shapes[i].code;
    if (be->recording || s->n == SHAPES || !find_compiler(be, s))
        return NULL;
    shape *x = &s->shapes[s->n++];
    *x = (shape){.module = NULL};
    memcpy(x->of, of, sizeof x->of);
    if (make(be, s, x, &why) == BITNET_OK)
        return x->code;
    bool refused = be->strict && s->wanted;
    bnet_logf(&be->log, refused ? BITNET_LOG_ERROR : BITNET_LOG_WARN, be->d->c->name, "%s; %s",
              why.message,
              refused ? "strict mode takes no other" : "the kernel of the build is used for it");
    if (refused)
        bnet_gpu_ok(be, row, GPU_NO_KERNEL);
    return x->code = NULL;
}

/* args: of the kernel. False: the build's must serve. */
static bool run(gpu_backend *be, const uint32_t of[DEFINES], const bnet_cu_launch *l, void *args)
{
    gpu_compiled *s = be->compiled;
    gpu_kernel code = s && gpu_alive(be) ? code_of(be, s, of) : NULL;
    if (!code)
        return false;
    be->code[s->record->slot][0] = code;
    bnet_cuda_run(be, s->record, 0, l, GPU_OVERLAP, args);
    return true;
}

bool bnet_cuda_compiled_gemv(gpu_backend *be, bnet_cu_gemv_args *a, const bnet_cu_launch *l)
{
    const uint32_t of[DEFINES] = {a->m.n_tiles, a->m.n_chunks, a->m.n_parts, a->m.paired,
                                  a->k,         a->n_tokens,   a->epilogue};
    return run(be, of, l, a);
}

bool bnet_cuda_compiled_few(gpu_backend *be, bnet_cu_few_args *o, const bnet_cu_launch *l)
{
    const bnet_cu_gemv_args *a = &o->g;
    const uint32_t of[DEFINES] = {a->m.n_tiles, a->m.n_chunks, a->m.n_parts, a->m.paired,
                                  a->k,         a->n_tokens,   a->epilogue,  a->x != 0,
                                  o->tiles,     o->more,       o->split,     o->per};
    return run(be, of, l, o);
}
