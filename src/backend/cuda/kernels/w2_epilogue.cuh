/* w2_epilogue.cuh - from an integer sum of a ternary matrix to what is stored, once for GEMV and
 * GEMM. Products and sums are rounded one by one (no fma): the CPU does the same. */
#ifndef BNET_W2_EPILOGUE_CUH
#define BNET_W2_EPILOGUE_CUH

#include "common.cuh"

static __device__ __forceinline__ int w2_part_of(const bnet_cu_w2 &m, uint32_t tile)
{
    int p = 0;
#pragma unroll
    for (int i = 1; i < BNET_CU_PARTS; i++)
        p += i < (int)m.n_parts && tile >= m.part[i].first_tile;
    return p;
}

static __device__ __forceinline__ void w2_store(const bnet_cu_part &p, uint32_t row, uint32_t token,
                                                int sum, float x_scale, uint32_t epilogue)
{
    if (row >= p.n_rows || !p.y)
        return;
    float f = __fmul_rn((float)sum, __fmul_rn(x_scale, p.scale));
    float *y = p.y + (size_t)token * p.ld + row;
    *y = epilogue == BNET_CU_ADD ? __fadd_rn(*y, f) : f;
}

/* Rows g (0..7) and g + 8 of a tile for one token. */
static __device__ __forceinline__ void w2_finish(const bnet_cu_w2 &m, uint32_t tile, uint32_t g,
                                                 uint32_t token, int low, int high, float x_scale,
                                                 uint32_t epilogue)
{
    if (!m.paired) {
        const bnet_cu_part &p = m.part[w2_part_of(m, tile)];
        uint32_t row = (tile - p.first_tile) * BNET_W2_TILE + g;
        w2_store(p, row, token, low, x_scale, epilogue);
        w2_store(p, row + 8, token, high, x_scale, epilogue);
        return;
    }
    uint32_t row = tile * 8 + g;
    if (epilogue < BNET_CU_RELU2) {
        w2_store(m.part[0], row, token, low, x_scale, epilogue);
        w2_store(m.part[1], row, token, high, x_scale, epilogue);
        return;
    }
    if (row >= m.part[0].n_rows)
        return;
    float gate = __fmul_rn((float)low, __fmul_rn(x_scale, m.part[0].scale));
    float up = __fmul_rn((float)high, __fmul_rn(x_scale, m.part[1].scale));
    m.part[0].y[(size_t)token * m.part[0].ld + row] =
        epilogue == BNET_CU_RELU2 ? relu2_gate(gate, up) : silu_gate(gate, up);
}

#endif
