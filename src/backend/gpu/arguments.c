/* arguments.c - a list of arguments as the one struct that some vendors' kernels take by value. */
#include "backend/gpu/driver.h"

#include <string.h>

typedef struct writer {
    uint8_t *out;
    size_t n, cap;
} writer;

static bool put(writer *w, const void *bytes, size_t n_bytes)
{
    size_t at = (w->n + n_bytes - 1) / n_bytes * n_bytes; /* a member's alignment is its size */
    if (at + n_bytes > w->cap)
        return false;
    memset(w->out + w->n, 0, at - w->n);
    memcpy(w->out + at, bytes, n_bytes);
    w->n = at + n_bytes;
    return true;
}

static bool put_arg(gpu_driver *d, writer *w, const gpu_arg *a)
{
    uint64_t address;
    switch (a->kind) {
    case GPU_ARG_AT:
        address = gpu_none(a->of.at) ? 0 : d->c->address(d, a->of.at.memory) + a->of.at.offset;
        return put(w, &address, sizeof address);
    case GPU_ARG_I32:
        return put(w, &a->of.i32, sizeof a->of.i32);
    case GPU_ARG_F32:
        return put(w, &a->of.f32, sizeof a->of.f32);
    case GPU_ARG_U64:
        return put(w, &a->of.u64, sizeof a->of.u64);
    default:
        return false;
    }
}

size_t bnet_gpu_pack_args(gpu_driver *d, const gpu_arg *args, int n, void *out, size_t cap)
{
    writer w = {out, 0, cap};
    for (int i = 0; i < n; i++)
        if (!put_arg(d, &w, &args[i]))
            return 0;
    size_t end = (w.n + 7) / 8 * 8; /* the struct's own alignment is a place's */
    if (end > cap)
        return 0;
    memset(w.out + w.n, 0, end - w.n);
    return end;
}
