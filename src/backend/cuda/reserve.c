/* reserve.c - memory of passes before there is one: what they will take, and taking it when a
 * session is opened, so that a lack of it shows there and no step waits for an allocation. */
#include "backend/cuda/net.h"

enum { ROWS = 1 }; /* a prompt's or a step's; batches of timelines take more when they come */

uint64_t bnet_cuda_pass_bytes(bnet_backend *b, const bnet_net *net, int n_tokens)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    const struct gpu_net *n = be->net;
    size_t have = n ? n->arena.n_bytes : 0;
    bool whole = !n || (n->net == net && n->usable);
    int tokens = n ? BNET_MAX(n_tokens, n->arena.n_tokens) : n_tokens;
    size_t need = bnet_cuda_arena_bytes(net, tokens, n ? BNET_MAX(n->arena.n_rows, ROWS) : ROWS);
    need += gpu_none(be->step_at) ? GPU_STEP_BYTES : 0;
    bnet_gpu_leave(be);
    return whole && need > have ? need - have : 0;
}

bool bnet_cuda_pass_reserve(bnet_backend *b, const bnet_net *net, int n_tokens)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    struct gpu_net *n = bnet_cuda_net(be, net);
    bool ok = !n || !n->usable || bnet_cuda_arena(be, n, n_tokens, ROWS, true);
    if (!ok && !be->lost)
        be->failed = GPU_OK; /* the session is not opened, others go on */
    ok = ok && gpu_alive(be);
    bnet_gpu_leave(be);
    return ok;
}
