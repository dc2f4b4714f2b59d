/* bench_step.cu - the kernels of a whole decode step of the 2B-4T shape in one graph: what they
 * cost together. */
#include "backend/cuda/attn_batch.h"
#include "backend/cuda/w2_few_tokens.h"
#include "kbench.cuh"

extern "C" {
__global__ void bnet_w2_gemv_ldg(const bnet_cu_gemv_args a);
__global__ void bnet_w2_one_norm(const bnet_cu_few_args a);
__global__ void bnet_attn_shared_h128(const bnet_cu_attn_args a);
__global__ void bnet_head_f16(const bnet_cu_head_args a);
}

enum { EMBD = 2560, FF = 6912, QKV = 3840, LAYERS = 30, VOCAB = 128256 };

struct network {
    dev<uint8_t> w, head, kv;
    dev<float> x, qkv, att, mid, norm, cs, logits, work;
    dev<int32_t> pos, tables;
    dev<bnet_dev_seq> seqs;
    dev<uint32_t> counters;
    size_t layer_bytes;
    uint32_t splits = 8;

    explicit network(uint32_t ctx)
        : w((size_t)LAYERS * (QKV * EMBD + EMBD * EMBD + 2 * FF * EMBD + FF * EMBD) / 4),
          head((size_t)VOCAB * EMBD * 2), kv((size_t)LAYERS * bnet_cu_div(ctx, 64) * 10 * 64 * 256),
          x(std::vector<float>(EMBD, 0.5f)), qkv(std::vector<float>(QKV, 0.1f)), att(EMBD), mid(FF),
          norm(std::vector<float>(FF, 1.0f)), cs(std::vector<float>(128, 0.7f)), logits(VOCAB),
          work(5 * 16 * 128 * 34), pos(std::vector<int32_t>{(int32_t)ctx - 1, 0}), tables(1024),
          seqs(1), counters(5)
    {
        layer_bytes = w.n / LAYERS;
        CU(cudaMemset(w.p, 0x61, w.n));
        CU(cudaMemset(head.p, 0x11, head.n));
        kv.zero(), counters.zero();
        std::vector<int32_t> t(1024);
        for (int i = 0; i < 1024; i++)
            t[i] = i;
        tables.put(t);
        seqs.put({{(uint64_t)kv.p, kv.n / LAYERS, 0, 0}});
    }
    void gemv(bool pdl, const uint8_t *at, uint32_t n, uint32_t k, float *from, float *to,
              uint32_t epilogue, bool paired, int more)
    {
        bnet_cu_gemv_args a = {};
        a.m.w = at, a.m.n_tiles = n / 16, a.m.n_chunks = k / 128, a.m.n_parts = paired ? 2 : 1;
        a.m.paired = paired;
        a.m.part[0] = {0, paired ? n / 2 : n, 0.01f, paired ? n / 2 : n, to};
        a.m.part[1] = a.m.part[0];
        a.x = from, a.norm = norm.p, a.eps = 1e-5f, a.k = k, a.n_tokens = 1, a.epilogue = epilogue;
        if (more <= 2) {
            launch(bnet_w2_gemv_ldg, a, bnet_w2_gemv_launch(&a, (uint32_t)(n_sm * more)), pdl);
            return;
        }
        bnet_cu_few_args o = {};
        o.g = a;
        bnet_cu_launch l = bnet_few_launch(&o, (uint32_t)n_sm);
        launch(bnet_w2_one_norm, o, l, pdl);
    }
    void run(bool pdl, bool attention, bool with_head, int more)
    {
        for (uint32_t l = 0; l < LAYERS; l++) {
            const uint8_t *p = w.p + l * layer_bytes;
            gemv(pdl, p, QKV, EMBD, x.p, qkv.p, BNET_CU_STORE, false, more);
            p += QKV * EMBD / 4;
            bnet_cu_attn_args a = {};
            a.step = {pos.p, pos.p, pos.p + 1, seqs.p, tables.p};
            a.q = qkv.p, a.k = qkv.p + 2560, a.v = qkv.p + 3200, a.cs = cs.p, a.y = att.p;
            a.ldq = a.ldk = 3840, a.n_heads = 20, a.n_kv_heads = 5, a.head_dim = 128;
            a.part_bytes = 64 * 256, a.n_rot = 128, a.neox = 1, a.n_tokens = 1, a.layer = l;
            a.n_splits = splits, a.scale = 0.088f, a.work = work.p, a.counters = counters.p;
            if (attention)
                launch(bnet_attn_shared_h128, a, bnet_attn_batch_h128_launch(&a), pdl);
            gemv(pdl, p, EMBD, EMBD, att.p, x.p, BNET_CU_ADD, false, more);
            p += EMBD * EMBD / 4;
            gemv(pdl, p, 2 * FF, EMBD, x.p, mid.p, BNET_CU_RELU2, true, more);
            p += 2 * FF * EMBD / 4;
            gemv(pdl, p, EMBD, FF, mid.p, x.p, BNET_CU_ADD, false, more);
        }
        if (!with_head)
            return;
        bnet_cu_head_args h = {};
        h.m.n_rows = VOCAB, h.m.k = h.m.stride = EMBD, h.m.w[0] = head.p;
        h.x = x.p, h.norm = norm.p, h.y = logits.p, h.n_tokens = 1, h.ldx = EMBD, h.ld = VOCAB;
        h.eps = 1e-5f;
        launch(bnet_head_f16, h, bnet_head_launch(&h, (uint32_t)n_sm, shared_max), pdl);
    }
};

SECTION(step_time)
{
    row("decode step of 2B-4T, us: linear layers only / + attention / + f16 head");
    for (uint32_t ctx : {128u, 4096u}) {
        network n(ctx);
        for (uint32_t splits : {4u, 8u})
            for (int more = 1; more <= 3; more++) { /* 3: one token by bit planes */
                n.splits = splits;
                double t[3];
                for (int i = 0; i < 3; i++)
                    t[i] = time_graph(2, [&](int) { n.run(true, i > 0, i > 1, more); });
                row("ctx %u blocks %u %s: %.1f / %.1f / %.1f", ctx, splits,
                    more == 3   ? "one"
                    : more == 2 ? "x2"
                                : "x1",
                    t[0], t[1], t[2]);
            }
    }
}
