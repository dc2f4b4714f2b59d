/* user_cuda.c - a device for kernels of programs, as bitnet_device.h shows it: arguments are
 * checked here, the rest is behind ops/user_device.h, where a build with CUDA has it. */
#include "ops/user_device.h"
#include "engine/engine.h"

static_assert((int)BITNET_CUDA_STREAMS == (int)BNET_USER_STREAMS, "one number");
static_assert((int)BITNET_COPY_ON_DEVICE == (int)BNET_USER_ON_DEVICE, "one order");

static bitnet_status missing(const char *what, bitnet_error *err)
{
    return bnet_fail(err, BITNET_ARGUMENT, "cuda: %s must not be NULL", what);
}

bitnet_status bitnet_cuda_open(int index, bitnet_cuda **out, bitnet_error *err)
{
    if (!out)
        return missing("out", err);
    if (index < 0)
        return bnet_fail(err, BITNET_ARGUMENT, "cuda: device %d: numbers begin at 0", index);
#ifdef BITNET_HAVE_CUDA
    return bnet_cuda_user_open(index, out, err);
#else
    return bnet_fail(err, BITNET_NOT_COMPILED,
                     "NotCompiled: feature cuda: this build has no CUDA backend; build it where "
                     "nvcc is installed");
#endif
}

void bitnet_cuda_close(bitnet_cuda *cuda)
{
    if (cuda)
        cuda->c->close(cuda);
}

void *bitnet_cuda_context(const bitnet_cuda *cuda)
{
    return cuda ? cuda->c->context(cuda) : NULL;
}

void *bitnet_cuda_stream(bitnet_cuda *cuda, int stream)
{
    return cuda && stream >= 0 && stream < BNET_USER_STREAMS ? cuda->c->stream(cuda, stream) : NULL;
}

bitnet_status bitnet_cuda_module_load(bitnet_cuda *cuda, const void *image,
                                      bitnet_cuda_module **out, bitnet_error *err)
{
    if (!cuda || !image || !out)
        return missing("cuda, image and out", err);
    return cuda->c->module_load(cuda, image, out, err);
}

void bitnet_cuda_module_free(bitnet_cuda_module *module)
{
    if (module)
        module->device->c->module_free(module);
}

void *bitnet_cuda_module_handle(const bitnet_cuda_module *module)
{
    return module ? module->device->c->module_handle(module) : NULL;
}

bitnet_status bitnet_cuda_kernel(bitnet_cuda *cuda, const bitnet_cuda_module *module,
                                 const char *name, void **out, bitnet_error *err)
{
    if (!cuda || !name || !out)
        return missing("cuda, name and out", err);
    return cuda->c->kernel(cuda, module, name, out, err);
}

bitnet_allocator bitnet_cuda_allocator(bitnet_cuda *cuda)
{
    bitnet_allocator none = {NULL, NULL, NULL};
    return cuda ? (bitnet_allocator){cuda->c->take, cuda->c->give, cuda} : none;
}

void *bitnet_cuda_host_alloc(bitnet_cuda *cuda, size_t n_bytes)
{
    return cuda && n_bytes ? cuda->c->host_take(cuda, n_bytes) : NULL;
}

void bitnet_cuda_host_free(bitnet_cuda *cuda, void *p)
{
    if (cuda && p)
        cuda->c->host_give(cuda, p);
}

/* ---- work ---- */

void bitnet_work_options_init(bitnet_work_options *o)
{
    if (o)
        *o = (bitnet_work_options){.struct_size = sizeof *o, .grid = {1, 1, 1}, .block = {1, 1, 1}};
}

static bitnet_status check(const bitnet_work_options *o, bitnet_error *err)
{
    static const char owner[] = "work options";
    bitnet_status st = bnet_check_int(owner, "stream", o->stream, 0, BITNET_CUDA_STREAMS - 1, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "copy", (int)o->copy, 0, BNET_USER_COPIES - 1, err);
    if (st != BITNET_OK)
        return st;
    if (!o->copy != !!o->kernel)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: set either kernel or copy", owner);
    if (o->copy && (!o->dst || !o->src || !o->n_bytes))
        return bnet_fail(err, BITNET_ARGUMENT, "%s: a copy needs dst, src and n_bytes", owner);
    for (int i = 0; o->kernel && i < 3; i++)
        if (!o->grid[i] || !o->block[i])
            return bnet_fail(err, BITNET_ARGUMENT, "%s: grid and block must not be 0", owner);
    return BITNET_OK;
}

bitnet_status bitnet_work_submit(bitnet_cuda *cuda, const bitnet_work_options *options,
                                 bitnet_work **out, bitnet_error *err)
{
    if (!cuda || !options || !out)
        return missing("cuda, options and out", err);
    bitnet_work_options o;
    bitnet_work_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "work options", err);
    if (st == BITNET_OK)
        st = check(&o, err);
    if (st != BITNET_OK)
        return st;
    const bnet_user_order order = {.stream = o.stream,
                                   .after = o.after,
                                   .kind = (bnet_user_copy)o.copy,
                                   .kernel = o.kernel,
                                   .params = o.params,
                                   .grid = {o.grid[0], o.grid[1], o.grid[2]},
                                   .block = {o.block[0], o.block[1], o.block[2]},
                                   .shared_bytes = o.shared_bytes,
                                   .dst = o.dst,
                                   .src = o.src,
                                   .n_bytes = o.n_bytes};
    return cuda->c->submit(cuda, &order, out, err);
}

bool bitnet_work_done(const bitnet_work *work)
{
    return work && work->device->c->done(work);
}

bitnet_status bitnet_work_wait(const bitnet_work *work, bitnet_error *err)
{
    return work ? work->device->c->wait(work, err) : missing("work", err);
}

bitnet_status bitnet_work_times(const bitnet_work *work, double *begin_ms, double *end_ms,
                                bitnet_error *err)
{
    if (!work || !begin_ms || !end_ms)
        return missing("work, begin_ms and end_ms", err);
    return work->device->c->times(work, begin_ms, end_ms, err);
}

void bitnet_work_free(bitnet_work *work)
{
    if (work)
        work->device->c->work_free(work);
}
