/* emulated_spoil.c - faults of kernels, for tests of what finds them: BITNET_EMULATED_WRONG names a
 * kernel, and one value of what it left is wrong. With ".k" behind the name rope and append get a
 * wrong key instead: then only the cache is. ".neox": it rotates neighbours, whatever it is told.
 * ".none": the first row has no best. */
#define BNET_CUDA_EMULATED_FAST 1
#include "backend/cuda/batch.h"
#include "backend/cuda/decode.h"
#include "backend/cuda/head_copy.h"
#include "backend/gpu/ref/ref_args.h"
#include "emulated_fast.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static void bend(float *x)
{
    if (x)
        *x = *x * 1.5f + 1.0f;
}

static void after_norm(void *p)
{
    const bnet_cu_norm_args *a = p;
    bend(a->y);
    if (a->act.q)
        a->act.q[3] ^= 16;
}

static void after_w2(void *p)
{
    const bnet_cu_gemm_args *a = p;
    bend(a->m.part[0].y + 5);
}

static void after_gemv(void *p)
{
    const bnet_cu_gemv_args *a = p;
    bend(a->m.part[0].y);
}

static void after_attention(void *p)
{
    bend(((const bnet_cu_attn_args *)p)->y);
}

static void after_append(void *p)
{
    bend(((const bnet_cu_attn_args *)p)->q);
}

static void before_append(void *p)
{
    bend(((const bnet_cu_attn_args *)p)->k);
}

static void before_neox(void *p)
{
    ((bnet_cu_attn_args *)p)->neox = 0;
}

static void after_layers(void *p)
{
    bend(((const bnet_cu_decode_args *)p)->x);
}

static void after_best(void *p)
{
    const bnet_cu_sample_args *a = p;
    a->id[0] ^= 1;
}

static void after_no_best(void *p)
{
    ((const bnet_cu_sample_args *)p)->id[0] = -1;
}

static void after_ref_best(void *p)
{
    bend(((const ref_topk_args *)p)->value);
}

static void after_gather(void *p)
{
    bend(((const ref_gather_args *)p)->y);
}

static void after_table(void *p)
{
    bend(((const ref_rope_table_args *)p)->cs + 2);
}

static void after_fetch(void *p)
{
    ((const ref_fetch_args *)p)->dst[0] ^= 1;
}

static void after_pack(void *p)
{
    ((const ref_pack_args *)p)->w[0][1] ^= 1;
}

static void after_pair(void *p)
{
    ((const ref_pair_args *)p)->out[1] ^= 0x14;
}

/* Bounds of the copy that say the opposite, bounds that are too low, a row that is not the best. */
static void after_screen_pack(void *p)
{
    const bnet_cu_screen_args *a = p;
    for (uint32_t i = 0; i < a->m.n_rows; i++)
        a->rows[i].scale = -a->rows[i].scale;
}

static void after_screen_scan(void *p)
{
    const bnet_cu_screen_args *a = p;
    uint64_t n = a->least ? (uint64_t)a->n_groups * 32 : a->m.n_rows;
    for (uint64_t i = 0; i < a->n_tokens * n; i++)
        a->most[i] = -INFINITY;
}

static void after_screen_split(void *p)
{
    const bnet_cu_screen_args *a = p;
    for (uint32_t i = 0; i < a->n_tokens; i++)
        a->inputs[4 * i] = -a->inputs[4 * i];
}

static void after_screen_first(void *p)
{
    ((const bnet_cu_screen_args *)p)->least[0] = 0xfffffffeu;
}

static void after_screen(void *p)
{
    ((const bnet_cu_screen_args *)p)->lists[0] ^= 1ull << 50;
}

static void after_screen_best(void *p)
{
    ((const bnet_cu_screen_args *)p)->id[0] ^= 1;
}

static const struct {
    const char *kernel;
    bool before;
    void (*spoil)(void *args);
} faults[] = {{"bnet_norm_quantize", false, after_norm},
              {"bnet_norm_tiles", false, after_norm},
              {"bnet_norm_rows", false, after_norm},
              {"bnet_w2_tiles_128", false, after_w2},
              {"bnet_w2_tiles_256", false, after_w2},
              {"bnet_w2_prompt", false, after_w2},
              {"bnet_w2_prompt_96", false, after_w2},
              {"bnet_w2_rows", false, after_w2},
              {"bnet_w2_tiles_128_16", false, after_w2},
              {"bnet_w2_tiles_128_32", false, after_w2},
              {"bnet_w2_rows_16", false, after_w2},
              {"bnet_w2_one", false, after_gemv},
              {"bnet_rope_append", false, after_append},
              {"bnet_rope_append.k", true, before_append},
              {"bnet_rope_append.neox", true, before_neox},
              {"bnet_attn_prefill_f16_128.neox", true, before_neox},
              {"bnet_attn_prefill_i8_64.neox", true, before_neox},
              {"bnet_attn_prefill_f16_64", false, after_attention},
              {"bnet_attn_prefill_f16_128", false, after_attention},
              {"bnet_attn_prefill_i8_64", false, after_attention},
              {"bnet_attn_prefill_i8_128", false, after_attention},
              {"bnet_attn_batch_h128", false, after_attention},
              {"bnet_attn_batch_h128_i8", false, after_attention},
              {"bnet_attn_shared_h128", false, after_attention},
              {"bnet_attn_shared_h128_i8", false, after_attention},
              {"bnet_decode_step", false, after_layers},
              {"bnet_topk_merge", false, after_best},
              {"bnet_topk_join", false, after_best},
              {"bnet_topk_merge.none", false, after_no_best},
              {"bnet_topk_join.none", false, after_no_best},
              {"bnet_screen_pack_f16", false, after_screen_pack},
              {"bnet_screen_pack_bf16", false, after_screen_pack},
              {"bnet_screen_pack_f32", false, after_screen_pack},
              {"bnet_screen_scan_4", false, after_screen_scan},
              {"bnet_screen_scan_8", false, after_screen_scan},
              {"bnet_screen_f16", false, after_screen},
              {"bnet_screen_bf16", false, after_screen},
              {"bnet_screen_f32", false, after_screen},
              {"bnet_screen_rest_f16", false, after_screen},
              {"bnet_screen_rest_bf16", false, after_screen},
              {"bnet_screen_rest_f32", false, after_screen},
              {"bnet_screen_best", false, after_screen_best},
              {"bnet_screen_best_batch", false, after_screen_best},
              {"bnet_screen_split", false, after_screen_split},
              {"bnet_screen_batch_16", false, after_screen_scan},
              {"bnet_screen_batch_32", false, after_screen_scan},
              {"bnet_screen_batch_64", false, after_screen_scan},
              {"bnet_screen_first_f16", false, after_screen_first},
              {"bnet_screen_first_bf16", false, after_screen_first},
              {"bnet_screen_first_f32", false, after_screen_first},
              {"bnet_ref_topk", false, after_ref_best},
              {"bnet_ref_gather", false, after_gather},
              {"bnet_ref_rope_table", false, after_table},
              {"bnet_ref_fetch", false, after_fetch},
              {"bnet_ref_pack", false, after_pack},
              {"bnet_ref_pair", false, after_pair}};

void bnet_emulated_spoil(const char *kernel, int before, void *args)
{
    size_t n = strlen(kernel);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const char *f = faults[i].kernel;
        if (faults[i].before == !!before && strncmp(f, kernel, n) == 0 &&
            (f[n] == '\0' || f[n] == '.') && emulated_wrong(f))
            faults[i].spoil(args);
    }
}
