/* rows.c - memory by rows that lie a pitch apart: copied, filled. */
#include "backend/cuda/cuda.h"

enum { DEVICE_MEMORY = 2, NOT_SUPPORTED = 801, MAX_PITCH = 0x7fffffff };

static cuda_driver *cuda(gpu_driver *d)
{
    return (cuda_driver *)d;
}

int bnet_cuda_copy_rows(gpu_driver *d, const gpu_rows *r)
{
    cuda_driver *c = cuda(d);
    const cu_copy_2d copy = {.src_type = DEVICE_MEMORY,
                             .src = r->src,
                             .src_pitch = r->src_pitch,
                             .dst_type = DEVICE_MEMORY,
                             .dst = r->dst,
                             .dst_pitch = r->dst_pitch,
                             .width = r->n_bytes,
                             .height = r->n_rows};
    if (r->n_rows == 1)
        return c->cu.copy(r->dst, r->src, r->n_bytes, c->stream);
    return c->cu.copy_rows ? c->cu.copy_rows(&copy, c->stream) : NOT_SUPPORTED;
}

int bnet_cuda_fill_rows(gpu_driver *d, const gpu_rows *r, int byte)
{
    cuda_driver *c = cuda(d);
    unsigned char value = (unsigned char)byte;
    if (c->cu.fill_rows && r->dst_pitch < MAX_PITCH)
        return c->cu.fill_rows(r->dst, r->dst_pitch, value, r->n_bytes, r->n_rows, c->stream);
    int failed = 0;
    for (size_t i = 0; i < r->n_rows && failed == 0; i++)
        failed = c->cu.fill(r->dst + i * r->dst_pitch, value, r->n_bytes, c->stream);
    return failed;
}
