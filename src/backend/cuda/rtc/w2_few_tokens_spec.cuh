/* w2_few_tokens_spec.cuh - the GEMV of one token or a few (w2_one_token.cuh, w2_few_tokens.cuh) for
 * one matrix, compiled at run time (compiler.c): a warp's units, the epilogue and where rows go are
 * known to the compiler. Wants what w2_spec.cuh does and BNET_SPEC_{FLOATS, MINE, MORE, SPLIT,
 * PER}: is x given; a block's tiles and how many blocks have one more, the warps of a tile and the
 * chunks of a warp.
 */
#include "backend/cuda/w2_few_tokens.h"
#include "w2_spec.cuh"

struct spec_few_args {
    static constexpr uint32_t tiles = BNET_SPEC_MINE, more = BNET_SPEC_MORE;
    static constexpr uint32_t split = BNET_SPEC_SPLIT, inv = 65536 / BNET_SPEC_SPLIT + 1;
    static constexpr uint32_t per = BNET_SPEC_PER;
    spec_gemv_args g;
    uint32_t gap[6];
};
static_assert(sizeof(spec_few_args) == sizeof(bnet_cu_few_args), "one layout");

#define bnet_cu_w2        spec_w2
#define bnet_cu_gemv_args spec_gemv_args
#define bnet_cu_few_args  spec_few_args
#include "backend/cuda/kernels/w2_few_tokens.cuh"

#if BNET_SPEC_TOKENS > 1
#define NAME bnet_w2_few
#define RUN  few_tokens<BNET_SPEC_PER>
#elif BNET_SPEC_FLOATS
#define NAME bnet_w2_one_norm
#define RUN  one_token<BNET_SPEC_PER, true>
#else
#define NAME bnet_w2_one
#define RUN  one_token<BNET_SPEC_PER, false>
#endif
KERNEL __launch_bounds__(BNET_ONE_THREADS, 2) NAME(const __grid_constant__ spec_few_args o)
{
    RUN(o);
}
