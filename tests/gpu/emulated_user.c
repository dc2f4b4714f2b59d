/* emulated_user.c - modules of the emulated libcuda: images of this build, whose kernels take one
 * struct, and PTX that a program brings, whose entries say what they take. What such a kernel does
 * is a function of the same name here: nothing interprets PTX. */
#include "emulated_modules.h"

#include "backend/cuda/w2_few_tokens.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

extern _Thread_local uint64_t bnet_emulated_thread;

typedef struct module {
    char *text;    /* NULL: an image of the build */
    char *options; /* of the emulated compiler */
    emulated_function *functions;
} module;

static int is_text(const char *image)
{
    return strncmp(image, ".version", 8) == 0 || strncmp(image, "//", 2) == 0;
}

void *bnet_emulated_module(const void *image)
{
    module *m = calloc(1, sizeof *m);
    if (m && is_text(image)) {
        m->text = strdup(image);
        if (!strstr(m->text, ".version") || !strstr(m->text, ".target") ||
            !strstr(m->text, ".entry")) {
            bnet_emulated_module_free(m);
            return NULL;
        }
    }
    if (m && strncmp(image, EMULATED_CODE, strlen(EMULATED_CODE)) == 0)
        m->options = strdup(image);
    return m;
}

void bnet_emulated_module_free(void *p)
{
    module *m = p;
    for (emulated_function *f = m ? m->functions : NULL, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    if (m)
        free(m->text), free(m->options);
    free(m);
}

/* "(.param .u64 a, .param .f32 b)" into sizes; -1: there is no such entry. */
static int read_entry(const char *text, const char *name, int sizes[16])
{
    char head[96];
    snprintf(head, sizeof head, ".entry %s(", name);
    const char *at = strstr(text, head), *end = at ? strchr(at, ')') : NULL;
    int n = 0;
    if (!end)
        return -1;
    while (n < 16 && (at = strstr(at, ".param .")) != NULL && at < end) {
        at += strlen(".param .");
        while (isalpha((unsigned char)*at))
            at++;
        sizes[n++] = atoi(at) / 8;
    }
    return n;
}

emulated_function *bnet_emulated_function(void *p, const char *name, void *fn)
{
    module *m = p;
    for (emulated_function *f = m->functions; f; f = f->next)
        if (strcmp(f->name, name) == 0)
            return f;
    emulated_function *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->fn = fn;
    f->n_params = m->text ? read_entry(m->text, name, f->sizes) : -1;
    if (m->text && f->n_params < 0) {
        free(f);
        return NULL;
    }
    f->options = m->options;
    f->next = m->functions;
    m->functions = f;
    return f;
}

static int same(const char *options, const char *name, uint32_t value)
{
    char want[64];
    snprintf(want, sizeof want, " -DBNET_SPEC_%s=%u ", name, value);
    return strstr(options, want) != NULL;
}

/* The kernel of one token also knows how the matrix is dealt out. */
static int fits_one(const char *options, const bnet_cu_few_args *o)
{
    return same(options, "PER", 0) ||
           (same(options, "FLOATS", o->g.x != NULL) && same(options, "MINE", o->tiles) &&
            same(options, "MORE", o->more) && same(options, "SPLIT", o->split) &&
            same(options, "PER", o->per));
}

int bnet_emulated_fits(const emulated_function *f, const void *args)
{
    const bnet_cu_gemv_args *a = args;
    return !f->options ||
           (same(f->options, "TILES", a->m.n_tiles) && same(f->options, "CHUNKS", a->m.n_chunks) &&
            same(f->options, "PARTS", a->m.n_parts) && same(f->options, "PAIRED", a->m.paired) &&
            same(f->options, "K", a->k) && same(f->options, "TOKENS", a->n_tokens) &&
            same(f->options, "EPILOGUE", a->epilogue) && fits_one(f->options, args));
}

void bnet_emulated_params(const emulated_function *f, void **params, uint8_t *to)
{
    size_t at = 0;
    for (int i = 0; i < f->n_params; i++) {
        size_t n = (size_t)f->sizes[i];
        at = (at + n - 1) / n * n;
        memcpy(to + at, params[i], n);
        at += n;
    }
}

/* ---- what the kernels of tests/gpu/user_kernel.h do, a thread at a time ---- */

typedef struct scale_add_args {
    float *y;
    const float *x;
    float a;
    uint32_t n;
} scale_add_args;

API void user_scale_add(void *p);
void user_scale_add(void *p)
{
    const scale_add_args *a = p;
    uint64_t i = bnet_emulated_thread;
    if (i < a->n)
        a->y[i] = a->a * a->x[i] + a->y[i];
}

typedef struct spin_args {
    uint32_t *out;
    uint32_t n_rounds;
} spin_args;

/* out[i] = the n-th number of a linear congruence that begins with i */
API void user_spin(void *p);
void user_spin(void *p)
{
    const spin_args *a = p;
    uint32_t v = (uint32_t)bnet_emulated_thread;
    for (uint32_t r = 0; r < a->n_rounds; r++)
        v = v * 1664525u + 1013904223u;
    a->out[bnet_emulated_thread] = v;
}
