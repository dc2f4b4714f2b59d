/* bench_batch.cu - the layers of a step of 64 timelines of the 2B-4T shape in one graph: what its
 * kernels cost together, and with one sort of them left out. */
#include "backend/cuda/attn_batch.h"
#include "backend/cuda/tiles.h"
#include "kbench.cuh"

extern "C" {
__global__ void bnet_w2_tiles_128(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_256(const bnet_cu_gemm_args a);
__global__ void bnet_w2_rows(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_128_16(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_128_32(const bnet_cu_gemm_args a);
__global__ void bnet_w2_rows_16(const bnet_cu_gemm_args a);
__global__ void bnet_norm_tiles(const bnet_cu_norm_args a);
__global__ void bnet_attn_batch_h128(const bnet_cu_attn_args a);
}

enum { EMBD = 2560, FF = 6912, QKV = 3840, LAYERS = 30, TOKENS = 64 };
enum { NORMS = 1, GEMMS = 2, ATTENTION = 4 };

struct shape {
    uint32_t rows, splits; /* 64 rows: all columns in a block */
};

struct batch {
    uint32_t ctx, blocks;
    dev<uint8_t> w, kv;
    dev<float> x, qkv, att, mid, norm, cs, scale;
    dev<int32_t> sum, pos, seq, tables;
    dev<int8_t> act;
    dev<bnet_dev_seq> seqs;
    size_t layer_bytes, kv_layer;
    uint32_t n = TOKENS,
             skip = 0; /* tokens; kernels left out, by bit: norm and matrix of four, attention */
    shape shapes[4] = {
        {64, 1}, {64, 1}, {128, 1}, {128, 4}}; /* as launch_tiles.c chooses on an H200 */

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
          norm(std::vector<float>(FF, 1.0f)), cs(std::vector<float>(TOKENS * 128, 0.7f)),
          scale(TOKENS), sum(TOKENS), pos(std::vector<int32_t>(TOKENS, (int32_t)c - 1)),
          seq(TOKENS), tables(shuffled(blocks)), act((size_t)TOKENS * 7168), seqs(TOKENS)
    {
        layer_bytes = w.n / LAYERS;
        kv_layer = kv.n / LAYERS;
        CU(cudaMemset(w.p, 0x61, w.n));
        kv.zero(), att.zero(), mid.zero();
        std::vector<int32_t> s(TOKENS);
        std::vector<bnet_dev_seq> v;
        for (uint32_t i = 0; i < TOKENS; i++) {
            s[i] = (int32_t)i;
            v.push_back({(uint64_t)kv.p, kv_layer, i * blocks / TOKENS, 0});
        }
        seq.put(s), seqs.put(v);
    }
    void project(uint32_t what, int which, const uint8_t *at, uint32_t rows, uint32_t k,
                 float *from, float *to, uint32_t epilogue)
    {
        bnet_dev_act8 q = {act.p, scale.p, sum.p, k, 0};
        bnet_cu_norm_args na = {};
        na.x = from, na.norm = norm.p, na.k = na.ld = k, na.eps = 1e-5f, na.act = q;
        if (what & NORMS && !(skip >> 2 * which & 1))
            launch(bnet_norm_tiles, na, bnet_norm_tiles_launch(n), true);
        bool paired = epilogue == BNET_CU_RELU2;
        uint32_t ld = paired ? rows / 2 : rows;
        bnet_cu_gemm_args a = {};
        a.m.w = at, a.m.n_tiles = rows / 16, a.m.n_chunks = k / 128, a.m.n_parts = paired ? 2 : 1;
        a.m.paired = paired;
        a.m.part[0] = {0, ld, 0.001f, ld, to};
        a.m.part[1] = a.m.part[0];
        a.act = q, a.n_tokens = n, a.epilogue = epilogue, a.splits = shapes[which].splits;
        if (!(what & GEMMS) || skip >> (2 * which + 1) & 1)
            return;
        uint32_t height = bnet_tile_tokens(n), by = height == 16 ? 16 : 32;
        auto by_128 = height == 16   ? bnet_w2_tiles_128_16
                      : height == 32 ? bnet_w2_tiles_128_32
                                     : bnet_w2_tiles_128;
        if (shapes[which].rows == 64)
            launch(by == 16 ? bnet_w2_rows_16 : bnet_w2_rows, a, bnet_w2_rows_launch(&a, by), true);
        else if (shapes[which].rows == 128)
            launch(by_128, a, bnet_w2_tiles_launch(&a, 128, height), true, a.splits);
        else /* reads tiles of 64 tokens, whatever n is: times alone count */
            launch(bnet_w2_tiles_256, a, bnet_w2_tiles_launch(&a, 256, 64), true, a.splits);
    }
    void attend(uint32_t what, uint32_t layer)
    {
        bnet_cu_attn_args a = {};
        a.step = {pos.p, pos.p, seq.p, seqs.p, tables.p};
        a.q = qkv.p, a.k = qkv.p + 2560, a.v = qkv.p + 3200, a.cs = cs.p, a.y = att.p;
        a.ldq = a.ldk = QKV, a.n_heads = 20, a.n_kv_heads = 5, a.head_dim = 128, a.layer = layer;
        a.part_bytes = 64 * 256, a.n_rot = 128, a.neox = 1, a.n_tokens = n, a.scale = 0.088f;
        if (skip >> 8 & 1)
            return;
        a.n_splits = 1; /* and one stretch: no memory */
        if (what & ATTENTION)
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
    row("a layer of 64 timelines at context 512, us: all / no attention / no norms / attention "
        "alone / matrices alone");
    batch b(512);
    row("%.2f / %.2f / %.2f / %.2f / %.2f", b.time(NORMS | GEMMS | ATTENTION),
        b.time(NORMS | GEMMS), b.time(GEMMS | ATTENTION), b.time(ATTENTION), b.time(GEMMS));
}

/* What a layer costs less without a kernel: more than the kernel alone where it hides nothing of
 * others. */
SECTION(batch_kernels)
{
    static const char *const names[] = {"norm",     "qkv",  "norm", "o",        "norm",
                                        "gate, up", "norm", "down", "attention"};
    batch b(512);
    std::string line;
    double all = b.time(NORMS | GEMMS | ATTENTION);
    for (uint32_t i = 0; i < 9; i++) {
        char one[60];
        b.skip = 1u << i;
        snprintf(one, sizeof one, ", %s %.2f", names[i], all - b.time(NORMS | GEMMS | ATTENTION));
        line += one;
    }
    row("a layer of 64 timelines %.2f us, of it%s", all, line.c_str() + 1);
}

/* Blocks with all columns of 64 rows, or clusters that divide the columns of 128. */
SECTION(rows_time)
{
    batch b(512);
    for (b.n = 64; b.n >= 16; b.n /= 2) {
        double t[4];
        for (int i = 0; i < 4; i++) {
            b.shapes[0] = i & 1 ? shape{64, 1} : shape{128, 3},
            b.shapes[1] = i & 2 ? shape{64, 1} : shape{128, 3};
            t[i] = b.time(NORMS | GEMMS | ATTENTION);
        }
        row("a layer of %u timelines, us: clusters %.2f, qkv by rows %.2f, o by rows %.2f, both "
            "%.2f",
            b.n, t[0], t[1], t[2], t[3]);
    }
}

/* The two ways leave the same floats. */
SECTION(rows_check)
{
    batch b(64);
    rng r(7);
    std::vector<uint8_t> w(QKV * 4096 / 4);
    std::vector<int8_t> q(TOKENS * 4096);
    std::vector<float> x(TOKENS * QKV);
    for (auto &v : w)
        for (int i = 0; i < 4; i++)
            v = (uint8_t)(v << 2 | r.below(3));
    for (auto &v : q)
        v = (int8_t)(r.below(255) - 127);
    for (auto &v : x)
        v = r.normal();
    b.w.put(w), b.act.put(q), b.scale.put(std::vector<float>(TOKENS, 0.013f)),
        b.sum.put(std::vector<int32_t>(TOKENS, 77));
    for (uint32_t n : {64u, 33u, 12u})
        for (uint32_t k : {128u, 640u, 2560u, 4096u})
            for (int which : {0, 1}) {
                std::vector<float> got[2];
                uint32_t rows = which == 0 ? QKV : 1040;
                b.n = n;
                for (int i = 0; i < 2; i++) {
                    b.shapes[which] = i ? shape{64, 1} : shape{128, k > 128 ? 4u : 1u};
                    b.qkv.put(x);
                    b.project(GEMMS, which, b.w.p, rows, k, b.att.p, b.qkv.p,
                              which ? BNET_CU_ADD : BNET_CU_STORE);
                    got[i] = b.qkv.get();
                }
                char name[80];
                snprintf(name, sizeof name, "rows with all columns %ux%u, %u tokens", rows, k, n);
                verdict(name, got[0] == got[1] && got[0] != x);
            }
}
