/* w2_repack.cu - canonical I2_S rows into W2 units on the device (pack.c says how). */
#include "common.cuh"

static __device__ __forceinline__ uint32_t reverse_fields(uint32_t v)
{
    v = (v & 0x0f0f0f0fu) << 4 | (v >> 4 & 0x0f0f0f0fu);
    return (v & 0x33333333u) << 2 | (v >> 2 & 0x33333333u);
}

KERNEL bnet_w2_repack(const __grid_constant__ bnet_cu_repack_args a)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, c = i / 8, j = i % 8;
    if (c >= a.n_chunks)
        return;
    for (uint32_t n = blockIdx.y; n < a.n_rows; n += gridDim.y) {
        uint32_t r = a.r0 + n, tile = a.pairs ? r / 8 : a.first_tile + r / 16;
        uint32_t in_tile = a.pairs ? r % 8 + 8 * (a.pairs - 1) : r % 16;
        uint32_t v = *(const uint32_t *)(a.rows + n * a.row_bytes + 4 * i);
        uint8_t *unit = a.w + ((size_t)tile * a.n_chunks + c) * BNET_W2_UNIT;
        *(uint32_t *)(unit + (in_tile % 8 * 4 + j % 4) * 16 + (in_tile / 8 + j / 4 * 2) * 4) =
            reverse_fields(v);
    }
}
