/* embed.cu - rows of the embedding (or of any matrix) as floats: one block per token. */
#include "matrix.cuh"

template <typename ROWS> static __device__ __forceinline__ void embed(const bnet_cu_embed_args &a)
{
    pdl_launch();
    pdl_wait();
    int32_t id = a.ids[blockIdx.x];
    float *y = a.y + (size_t)blockIdx.x * a.m.k;
    bool known = id >= 0 && (uint32_t)id < a.m.n_rows;
    for (uint32_t at = threadIdx.x * ROWS::E; at < a.m.k; at += blockDim.x * ROWS::E) {
        float f[ROWS::E];
        ROWS r;
        if (known) {
            r.load(a.m, (size_t)id, at);
            r.floats(f);
        }
#pragma unroll
        for (uint32_t j = 0; j < ROWS::E; j++)
            if (at + j < a.m.k)
                y[at + j] = known ? f[j] : 0.0f;
    }
}

#define EMBED(name)                                                                                \
    KERNEL bnet_embed_##name(const __grid_constant__ bnet_cu_embed_args a)                         \
    {                                                                                              \
        embed<rows_##name>(a);                                                                     \
    }
EMBED(f16)
EMBED(bf16)
EMBED(f32)
EMBED(q8)
EMBED(q6k)
