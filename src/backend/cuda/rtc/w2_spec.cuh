/* w2_spec.cuh - the arguments of a GEMV with what the host knows when it is compiled (compiler.c):
 * members that are constants leave a gap, the layout stays that of kernels.h. Wants
 * BNET_SPEC_{TILES, CHUNKS, PARTS, PAIRED, K, TOKENS, EPILOGUE}. */
#include "backend/cuda/kernels.h"

struct spec_w2 {
    static constexpr uint32_t n_tiles = BNET_SPEC_TILES, n_chunks = BNET_SPEC_CHUNKS;
    static constexpr uint32_t n_parts = BNET_SPEC_PARTS, paired = BNET_SPEC_PAIRED;
    const uint8_t *w;
    uint32_t gap[4];
    bnet_cu_part part[BNET_CU_PARTS];
};

struct spec_gemv_args {
    static constexpr uint32_t k = BNET_SPEC_K, n_tokens = BNET_SPEC_TOKENS;
    static constexpr uint32_t epilogue = BNET_SPEC_EPILOGUE;
    spec_w2 m;
    bnet_dev_act8 act;
    const float *x;
    const float *norm;
    float eps;
    uint32_t gap[3];
};
static_assert(sizeof(spec_w2) == sizeof(bnet_cu_w2), "one layout");
static_assert(sizeof(spec_gemv_args) == sizeof(bnet_cu_gemv_args), "one layout");
