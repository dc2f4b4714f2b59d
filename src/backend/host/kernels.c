/* kernels.c - the reference kernels of backend/gpu as C functions, and how much memory each reads
 * and writes for its arguments. */
#define BNET_KERNEL_CODE 1
#include "backend/gpu/ref/ref_attention.h"
#include "backend/gpu/ref/ref_linear.h"
#include "backend/gpu/ref/ref_pack.h"
#include "backend/gpu/ref/ref_vector.h"
#include "backend/host/host.h"

enum { SOME_POSITIONS = 256 }; /* how many attention is taken to look at, for its cost */

static uint64_t product(uint64_t a, uint64_t b, uint64_t c)
{
    return a * b * c;
}

static uint64_t div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Bytes of the four parts of n_rows rows of a layout (layouts.h). */
static void rows_need(int layout, uint64_t n_rows, uint64_t stride, uint64_t n_bytes[4])
{
    uint64_t n = n_rows * stride;
    switch (layout) {
    case REF_F32:
        n_bytes[0] = 4 * n;
        break;
    case REF_F16:
    case REF_BF16:
        n_bytes[0] = 2 * n;
        break;
    case REF_Q8:
        n_bytes[0] = n;
        n_bytes[1] = n / 32 * 2;
        break;
    default:
        n_bytes[0] = n / 2;
        n_bytes[1] = n / 4;
        n_bytes[2] = n / 16;
        n_bytes[3] = n / 256 * 2;
    }
}

static void ternary_needs(const void *args, host_needs *out)
{
    const ref_ternary_args *a = args;
    uint64_t m = (uint64_t)a->m, n = (uint64_t)a->n, chunks = (uint64_t)a->n_chunks;
    uint64_t tiles = (uint64_t)a->first_tile + div_up(n, a->paired ? 8 : 16);
    *out =
        (host_needs){{product(tiles, chunks, BNET_W2_UNIT), a->scales ? product(n, chunks, 2) : 0,
                      m * a->act.stride, 4 * m, 0, product(m, n, 4)},
                     128 * chunks};
}

static void linear_needs(const void *args, host_needs *out)
{
    const ref_linear_args *a = args;
    uint64_t m = (uint64_t)a->m;
    *out = (host_needs){{0}, a->w.k};
    rows_need(a->type, a->w.n_rows, a->w.stride, out->n_bytes);
    out->n_bytes[4] = a->x ? product(m, a->w.k, 4) : 0;
    out->n_bytes[5] = a->x ? 0 : m * a->act.stride;
    out->n_bytes[6] = a->x ? 0 : 4 * m;
    out->n_bytes[8] = product(m, a->w.n_rows, 4);
}

static void embed_needs(const void *args, host_needs *out)
{
    const ref_embed_args *a = args;
    *out = (host_needs){{0}, 2};
    rows_need(a->type, a->m.n_rows, a->m.stride, out->n_bytes);
    out->n_bytes[4] = 4 * (uint64_t)a->n_tokens;
    out->n_bytes[5] = product((uint64_t)a->n_tokens, a->m.k, 4);
}

static void norm_needs(const void *args, host_needs *out)
{
    const ref_norm_args *a = args;
    uint64_t n = (uint64_t)a->n, all = product((uint64_t)a->n_rows, n, 4);
    *out = (host_needs){{all, 4 * n, all}, 2 * n};
}

static void quantize_needs(const void *args, host_needs *out)
{
    const ref_quantize_args *a = args;
    uint64_t m = (uint64_t)a->n_rows, n = (uint64_t)a->n;
    *out = (host_needs){{product(m, n, 4), m * a->act.stride, 4 * m, 4 * m}, 2 * n};
}

static void table_needs(const void *args, host_needs *out)
{
    const ref_rope_table_args *a = args;
    uint64_t n = (uint64_t)a->n_tokens;
    *out = (host_needs){{4 * n, 0, product(n, (uint64_t)a->n_rot, 4)}, 2};
}

static void rope_needs(const void *args, host_needs *out)
{
    const ref_rope_args *a = args;
    uint64_t m = (uint64_t)a->n_rows;
    *out = (host_needs){{product(m, (uint64_t)a->n_heads, 4 * (uint64_t)a->head_dim),
                         product(m, (uint64_t)a->n_rot, 4)},
                        4};
}

static void kv_needs(const void *args, host_needs *out)
{
    const ref_kv_args *a = args;
    uint64_t n = (uint64_t)a->n_tokens, hd = 4 * (uint64_t)a->head_dim;
    uint64_t kv = product(n, (uint64_t)a->n_kv_heads, hd);
    uint64_t all = product(n, (uint64_t)a->n_heads, hd);
    *out = (host_needs){{0, 4 * n, 4 * n, sizeof *a->step.seqs, 4, a->k ? kv : 0, a->v ? kv : 0,
                         a->q ? all : 0, a->y ? all : 0},
                        (uint64_t)a->head_dim * (a->q ? 2 * SOME_POSITIONS : 1)};
}

static void glu_needs(const void *args, host_needs *out)
{
    const ref_glu_args *a = args;
    *out = (host_needs){{4 * a->n, 4 * a->n, 4 * a->n}, a->silu ? 32 : 2};
}

static void add_needs(const void *args, host_needs *out)
{
    const ref_add_args *a = args;
    *out = (host_needs){{4 * a->n, 4 * a->n}, 1};
}

static void gather_needs(const void *args, host_needs *out)
{
    const ref_gather_args *a = args;
    uint64_t n = (uint64_t)a->n_rows;
    *out = (host_needs){{0, 4 * n, product(n, (uint64_t)a->n_cols, 4)}, 1};
}

static void topk_needs(const void *args, host_needs *out)
{
    const ref_topk_args *a = args;
    uint64_t m = (uint64_t)a->m, best = product(m, (uint64_t)a->k, 4);
    *out =
        (host_needs){{product(m, (uint64_t)a->n, 4), best, best}, (uint64_t)a->n * (uint64_t)a->k};
}

static void pack_needs(const void *args, host_needs *out)
{
    const ref_pack_args *a = args;
    uint64_t end = a->first_row + a->n_rows, stride = (uint64_t)a->stride;
    *out = (host_needs){{a->n_rows * a->row_bytes}, 64};
    if (a->from == REF_FROM_I2S)
        out->n_bytes[1] = product(div_up(end, BNET_W2_TILE), (uint64_t)a->n_chunks, BNET_W2_UNIT);
    else if (a->from == REF_FROM_PLAIN)
        out->n_bytes[1] = product(end, stride, (uint64_t)a->elem);
    else
        rows_need(a->from == REF_FROM_Q6_K ? REF_Q6K : REF_Q8, end, stride, out->n_bytes + 1);
}

const host_kernel *bnet_host_kernel(const char *name)
{
#define ROW(symbol, args, needs)                                                                   \
    {                                                                                              \
#symbol, sizeof(args), symbol, needs                                                       \
    }
    static const host_kernel all[] = {
        ROW(bnet_ref_linear_i2s, ref_ternary_args, ternary_needs),
        ROW(bnet_ref_linear, ref_linear_args, linear_needs),
        ROW(bnet_ref_embed, ref_embed_args, embed_needs),
        ROW(bnet_ref_rmsnorm, ref_norm_args, norm_needs),
        ROW(bnet_ref_quantize_i8, ref_quantize_args, quantize_needs),
        ROW(bnet_ref_rope_table, ref_rope_table_args, table_needs),
        ROW(bnet_ref_rope, ref_rope_args, rope_needs),
        ROW(bnet_ref_kv_store, ref_kv_args, kv_needs),
        ROW(bnet_ref_attention, ref_kv_args, kv_needs),
        ROW(bnet_ref_glu, ref_glu_args, glu_needs),
        ROW(bnet_ref_add, ref_add_args, add_needs),
        ROW(bnet_ref_gather, ref_gather_args, gather_needs),
        ROW(bnet_ref_topk, ref_topk_args, topk_needs),
        ROW(bnet_ref_pack, ref_pack_args, pack_needs),
    };
#undef ROW
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}
