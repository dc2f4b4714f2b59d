/* bench_batch.cu - the layers of a step of 64 timelines of the 2B-4T shape in one graph: what its
 * kernels cost together, and with one sort of them left out. */
#include "backend/cuda/attn_batch.h"
#include "backend/cuda/tiles.h"
#include "kbench.cuh"

extern "C" {
__global__ void bnet_w2_tiles_128(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_256(const bnet_cu_gemm_args a);
__global__ void bnet_norm_tiles(const bnet_cu_norm_args a);
__global__ void bnet_attn_decode_h128_c1(const bnet_cu_attn_args a);
__global__ void bnet_attn_batch_h128(const bnet_cu_attn_args a);
}

enum { EMBD = 2560, FF = 6912, QKV = 3840, LAYERS = 30, TOKENS = 64 };
enum { NORMS = 1, GEMMS = 2, ATTENTION = 4, OLD = 8 };

struct shape {
    uint32_t rows, splits;
};

struct batch {
    uint32_t ctx, blocks;
    dev<uint8_t> w, kv;
    dev<float> x, qkv, att, mid, norm, cs, scale;
    dev<int32_t> sum, pos, seq, tables;
    dev<int8_t> act;
    dev<bnet_cu_seq> seqs;
    size_t layer_bytes, kv_layer;
    shape shapes[4] = {{128, 3}, {128, 3}, {128, 1}, {128, 4}}; /* as launch_tiles.c chooses on an H200 */

    static std::vector<int32_t> shuffled(uint32_t n)
    {
        std::vector<int32_t> t(n);
        for (uint32_t i = 0; i < n; i++)
            t[i] = (int32_t)(i * 7919u % n);
        return t;
    }
    explicit batch(uint32_t c)
        : ctx(c), blocks(TOKENS * bnet_cu_div(c, 64)),
          w((size_t)LAYERS * (QKV * EMBD + EMBD * EMBD + 2 * FF * EMBD + FF * EMBD) / 4),
          kv((size_t)LAYERS * blocks * 10 * 64 * 256), x(std::vector<float>(TOKENS * EMBD, 0.5f)),
          qkv(std::vector<float>(TOKENS * QKV, 0.1f)), att(TOKENS * EMBD), mid(TOKENS * FF),
          norm(std::vector<float>(FF, 1.0f)), cs(std::vector<float>(TOKENS * 128, 0.7f)), scale(TOKENS),
          sum(TOKENS), pos(std::vector<int32_t>(TOKENS, (int32_t)c - 1)), seq(TOKENS),
          tables(shuffled(blocks)), act((size_t)TOKENS * 7168), seqs(TOKENS)
    {
        layer_bytes = w.n / LAYERS;
        kv_layer = kv.n / LAYERS;
        CU(cudaMemset(w.p, 0x61, w.n));
        kv.zero(), att.zero(), mid.zero();
        std::vector<int32_t> s(TOKENS);
        std::vector<bnet_cu_seq> v;
        for (uint32_t i = 0; i < TOKENS; i++) {
            s[i] = (int32_t)i;
            v.push_back({(uint64_t)kv.p, kv_layer, i * blocks / TOKENS, 0});
        }
        seq.put(s), seqs.put(v);
    }
    void project(uint32_t what, int which, const uint8_t *at, uint32_t n, uint32_t k, float *from, float *to,
                 uint32_t epilogue)
    {
        bnet_cu_act8 q = {act.p, scale.p, sum.p, k, 0};
        bnet_cu_norm_args na = {};
        na.x = from, na.norm = norm.p, na.k = na.ld = k, na.eps = 1e-5f, na.act = q;
        if (what & NORMS)
            launch(bnet_norm_tiles, na, bnet_norm_tiles_launch(TOKENS), true);
        bool paired = epilogue == BNET_CU_RELU2;
        bnet_cu_gemm_args a = {};
        a.m.w = at, a.m.n_tiles = n / 16, a.m.n_chunks = k / 128, a.m.n_parts = paired ? 2 : 1;
        a.m.paired = paired;
        a.m.part[0] = {0, paired ? n / 2 : n, 0.001f, paired ? n / 2 : n, to};
        a.m.part[1] = a.m.part[0];
        a.act = q, a.n_tokens = TOKENS, a.epilogue = epilogue, a.splits = shapes[which].splits;
        if (what & GEMMS)
            launch(shapes[which].rows == 128 ? bnet_w2_tiles_128 : bnet_w2_tiles_256, a,
                   bnet_w2_tiles_launch(&a, shapes[which].rows), true, a.splits);
    }
    void attend(uint32_t what, uint32_t layer)
    {
        bnet_cu_attn_args a = {};
        a.step = {pos.p, pos.p, seq.p, seqs.p, tables.p};
        a.q = qkv.p, a.k = qkv.p + 2560, a.v = qkv.p + 3200, a.cs = cs.p, a.y = att.p;
        a.ldq = a.ldk = QKV, a.n_heads = 20, a.n_kv_heads = 5, a.head_dim = 128, a.layer = layer;
        a.part_bytes = 64 * 256, a.n_rot = 128, a.neox = 1, a.n_tokens = TOKENS, a.scale = 0.088f;
        if (what & OLD)
            launch(bnet_attn_decode_h128_c1, a, bnet_attn_decode_h128_launch(&a, 1), true);
        else if (what & ATTENTION)
            launch(bnet_attn_batch_h128, a, bnet_attn_batch_h128_launch(&a), true);
    }
    void run(uint32_t what)
    {
        for (uint32_t l = 0; l < LAYERS; l++) {
            const uint8_t *p = w.p + l * layer_bytes;
            project(what, 0, p, QKV, EMBD, x.p, qkv.p, BNET_CU_STORE);
            attend(what, l);
            p += QKV * EMBD / 4;
            project(what, 1, p, EMBD, EMBD, att.p, x.p, BNET_CU_ADD);
            p += EMBD * EMBD / 4;
            project(what, 2, p, 2 * FF, EMBD, x.p, mid.p, BNET_CU_RELU2);
            p += 2 * FF * EMBD / 4;
            project(what, 3, p, EMBD, FF, mid.p, x.p, BNET_CU_ADD);
        }
    }
    double time(uint32_t what)
    {
        return time_graph(1, [&](int) { run(what); }) / LAYERS;
    }
};

SECTION(batch_time)
{
    row("a layer of 64 timelines at context 512, us: all / no attention / no norms / attention alone / matrices alone");
    batch b(512);
    row("%.2f / %.2f / %.2f / %.2f / %.2f; attention by clusters of one: all %.2f, alone %.2f",
        b.time(NORMS | GEMMS | ATTENTION), b.time(NORMS | GEMMS), b.time(GEMMS | ATTENTION), b.time(ATTENTION),
        b.time(GEMMS), b.time(NORMS | GEMMS | OLD), b.time(OLD));
}
