/* program.c - kernels of a program for a GPU (bitnet_fn_gpu_linear): from the backend's places to
 * addresses, and the program's function called where the backend's own would launch. */
#include "backend/gpu/gpu.h"

static uint64_t address(gpu_backend *be, gpu_at at)
{
    return gpu_none(at) ? 0 : be->d->c->address(be->d, at.memory) + at.offset;
}

/* A driver without a stream does its work when it is waited for: what the kernel reads must be
 * there. */
static void call(gpu_backend *be, const bnet_kernel_record *k, bitnet_gpu_linear *a)
{
    const gpu_calls *c = be->d->c;
    if (!gpu_alive(be))
        return;
    a->stream = c->stream ? c->stream(be->d) : NULL;
    if (!c->stream && !bnet_gpu_ok(be, k->id, c->wait(be->d)))
        return;
    be->last = (gpu_launch){.kernel = k};
    if (((bitnet_fn_gpu_linear *)k->program)(a) != 0) {
        bnet_gpu_ok(be, k->id, GPU_FAILED);
        return;
    }
    atomic_fetch_add_explicit(&be->n_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->calls[k->slot], 1, memory_order_relaxed);
}

static bitnet_gpu_linear matrix_of(gpu_backend *be, const gpu_weight *w, int n_rows, gpu_at y)
{
    return (bitnet_gpu_linear){.m = (size_t)n_rows,
                               .n = (size_t)w->info.n_out,
                               .k = (size_t)w->info.n_in,
                               .w = address(be, w->w[0]),
                               .w_stride = w->stride,
                               .w_scale = w->scale,
                               .y = address(be, y)};
}

static void ternary(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                    const gpu_act8 *act, int n_rows, gpu_at y)
{
    bitnet_gpu_linear a = matrix_of(be, w, n_rows, y);
    a.x = address(be, act->q);
    a.x_stride = act->stride;
    a.x_scale = address(be, act->scale);
    call(be, k, &a);
}

static void floats(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x,
                   int n_rows, gpu_at y)
{
    bitnet_gpu_linear a = matrix_of(be, w, n_rows, y);
    a.w_scale = 1;
    a.x = address(be, x);
    a.x_stride = a.k;
    call(be, k, &a);
}

bitnet_status bnet_gpu_adopt(bnet_kernel_record *k)
{
    bool plain = k->format == BNET_FORMAT_F32 || k->format == BNET_FORMAT_F16 ||
                 k->format == BNET_FORMAT_BF16;
    bool with_i8 = k->format == BNET_FORMAT_I2S && k->dtype == BNET_DTYPE_I8;
    if (k->op != BNET_OP_LINEAR || !(with_i8 || (plain && k->dtype == BNET_DTYPE_F32)))
        return BITNET_NOT_AVAILABLE;
    k->program = k->fn;
    if (k->fn)
        k->fn = with_i8 ? (bnet_kernel_fn)ternary : (bnet_kernel_fn)floats;
    k->needs |= BNET_NEED_PROGRAM;
    return BITNET_OK;
}

bool bnet_gpu_has_programs(const bnet_registry *r, bnet_device_kind kind)
{
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(r, i)) != NULL; i++)
        if (k->device == kind && k->program)
            return true;
    return false;
}
