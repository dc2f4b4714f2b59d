/* bench_decode.cu - the kernel of a whole decode step against a plain network, then timed alone and
 * with the head. */
#include "backend/cuda/decode.h"
#include "kbench.cuh"
#include "pack.h"

#include <cuda_fp16.h>

extern "C" {
__global__ void bnet_decode_step(const bnet_cu_decode_args a);
__global__ void bnet_head_f16(const bnet_cu_head_args a);
__global__ void bnet_head_q6k(const bnet_cu_head_args a);
}

struct dims {
    uint32_t embd, ff, heads, kv_heads, layers, blocks /* of the cache */;
};

/* Weights, cache and buffers of a model; plain: trits on the host for the reference. */
struct model {
    dims d;
    uint32_t qkv;
    std::vector<std::vector<int8_t>> trits; /* [layer * 4 + matrix], rows one after the other */
    std::vector<std::vector<float>> norms;
    std::vector<bnet_cu_layer> layers;
    std::vector<dev<uint8_t> *> w;
    std::vector<dev<float> *> n;
    std::vector<uint16_t> cache; /* halves */
    dev<uint16_t> *kv;
    std::vector<float> angles, x;
    dev<int32_t> pos, zero, table;
    dev<bnet_dev_seq> seqs;
    dev<float> dx, dangles;
    dev<bnet_cu_layer> dlayers;
    dev<uint32_t> plan, epoch;
    dev<float> exchange;
    dev<long long> trace;
    bnet_cu_decode_args a = {};

    static uint32_t rows(const dims &d, int m)
    {
        return m == 0 ? (d.heads + 2 * d.kv_heads) * 128 : m == 2 ? 2 * d.ff : d.embd;
    }
    static uint32_t cols(const dims &d, int m) { return m == 3 ? d.ff : d.embd; }
    static std::vector<int32_t> count(uint32_t n)
    {
        std::vector<int32_t> t(n);
        for (uint32_t i = 0; i < n; i++)
            t[i] = (int32_t)(n - 1 - i);
        return t;
    }

    model(dims dd, bool plain, rng &g)
        : d(dd), qkv((dd.heads + 2 * dd.kv_heads) * 128), layers(dd.layers), kv(nullptr), pos(1),
          zero(std::vector<int32_t>{0}), table(count(dd.blocks)), seqs(1), dx(dd.embd),
          dangles((size_t)dd.blocks * 64 * 128), dlayers(dd.layers), plan((size_t)n_sm * 8),
          epoch(1024), exchange(1 << 20), trace((size_t)n_sm * 64)
    {
        for (uint32_t l = 0; l < d.layers; l++)
            for (int m = 0; m < 4; m++)
                add_matrix(l, m, plain, g);
        for (uint32_t l = 0; l < d.layers; l++)
            for (int i = 0; i < 7; i++)
                layers[l].scale[i] = 0.02f + 0.003f * (float)i;
        cache.resize((size_t)d.layers * d.blocks * d.kv_heads * 2 * 64 * 128);
        uint16_t some[4096];
        for (auto &s : some) {
            __half h = __float2half(g.normal());
            memcpy(&s, &h, 2);
        }
        for (auto &c : cache)
            c = some[g.u32() & 4095];
        kv = new dev<uint16_t>(cache);
        angles.resize((size_t)d.blocks * 64 * 128);
        for (size_t i = 0; i < angles.size(); i += 2) {
            double w = (double)(i / 128) / pow(10000.0, (double)(i % 128) / 128);
            angles[i] = (float)cos(w), angles[i + 1] = (float)sin(w);
        }
        dangles.put(angles);
        seqs.put({{(uint64_t)kv->p, cache.size() * 2 / d.layers, 0, 0}});
        dlayers.put(layers);
        epoch.zero();
        CU(cudaMemset(exchange.p, BNET_DECODE_NONE, exchange.n * 4));
        x.resize(d.embd);
        for (auto &e : x)
            e = g.normal();
        a.step = {zero.p, pos.p, zero.p, seqs.p, table.p};
        a.layers = dlayers.p, a.plan = plan.p, a.x = dx.p, a.angles = dangles.p;
        a.exchange = exchange.p, a.epoch = epoch.p;
        a.n_layers = d.layers, a.n_embd = d.embd, a.n_ff = d.ff, a.n_heads = d.heads;
        a.n_kv_heads = d.kv_heads, a.part_bytes = 64 * 256, a.n_rot = 128, a.neox = 1;
        a.eps = 1e-5f, a.scale = 1 / sqrtf(128.0f);
        std::vector<uint32_t> p((size_t)n_sm * 8);
        bnet_decode_plan(&a, resident(), 232448 - 1024, p.data());
        plan.put(p);
        if (!bnet_decode_fits(&a, 232448 - 1024) || bnet_decode_exchange_bytes(&a) > exchange.n * 4)
            throw failure("the model does not fit");
    }
    ~model()
    {
        for (auto p : w)
            delete p;
        for (auto p : n)
            delete p;
        delete kv;
    }
    void add_matrix(uint32_t l, int m, bool plain, rng &g)
    {
        uint32_t r = rows(d, m), c = cols(d, m), chunks = c / 128;
        std::vector<uint8_t> b((size_t)r * c / 4);
        if (plain) {
            std::vector<int8_t> t((size_t)r * c);
            for (auto &e : t)
                e = (int8_t)(g.below(3) - 1);
            memset(b.data(), BNET_W2_ZERO, b.size());
            if (m == 2)
                for (uint32_t i = 0; i < 2; i++)
                    bnet_w2_pack_paired(b.data(), chunks, i, 0, r / 2, &t[(size_t)i * r / 2 * c], c,
                                        c);
            else
                bnet_w2_pack(b.data(), chunks, 0, 0, r, t.data(), c, c);
            trits.push_back(t);
        } else {
            static std::vector<uint8_t> some;
            if (some.empty())
                for (int i = 0; i < 1 << 20; i++)
                    some.push_back((uint8_t)(g.below(3) | g.below(3) << 2 | g.below(3) << 4 |
                                             g.below(3) << 6));
            for (size_t i = 0; i < b.size(); i += 4096)
                memcpy(&b[i], &some[(size_t)g.below(255) * 4096],
                       std::min<size_t>(4096, b.size() - i));
        }
        w.push_back(new dev<uint8_t>(b));
        std::vector<float> v(c);
        for (auto &e : v)
            e = 1 + 0.2f * g.normal();
        norms.push_back(v);
        n.push_back(new dev<float>(v));
        layers[l].w[m] = w.back()->p;
        layers[l].norm[m] = n.back()->p;
    }
    bnet_cu_launch shape() const { return bnet_decode_launch(&a); }
    /* Blocks that are resident together, in clusters. */
    static uint32_t resident()
    {
        cudaLaunchConfig_t c = {};
        int n = 0;
        c.gridDim = dim3(BNET_DECODE_CLUSTER), c.blockDim = dim3(BNET_DECODE_THREADS);
        c.dynamicSmemBytes = BNET_DECODE_MUCH_SHARED;
        CU(cudaFuncSetAttribute((const void *)bnet_decode_step,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BNET_DECODE_MUCH_SHARED));
        CU(cudaOccupancyMaxActiveClusters(&n, bnet_decode_step, &c));
        return (uint32_t)n * BNET_DECODE_CLUSTER;
    }

    /* ---- the reference ---- */
    double noise = 0; /* inputs of matrices are changed by so much of themselves */
    rng ties{5};
    std::vector<float> linear(uint32_t l, int m, std::vector<float> in)
    {
        size_t c = in.size(), r = rows(d, m);
        if (noise > 0)
            for (float &v : in)
                v = (float)((double)v * (1 + noise * (double)ties.uniform()));
        const std::vector<float> &nw = norms[l * 4 + m];
        double ss = 0;
        for (float v : in)
            ss += (double)v * v;
        double s = 1 / sqrt(ss / (double)c + 1e-5);
        std::vector<float> h(c);
        float top = 1e-5f;
        for (size_t i = 0; i < c; i++) {
            h[i] = (float)((double)in[i] * s * nw[i]);
            top = fmaxf(top, fabsf(h[i]));
        }
        std::vector<int8_t> q(c);
        for (size_t i = 0; i < c; i++)
            q[i] = (int8_t)lrint((double)h[i] * 127.0 / (double)top);
        std::vector<float> out(r);
        const std::vector<int8_t> &t = trits[l * 4 + m];
        for (size_t i = 0; i < r; i++) {
            int sum = 0;
            for (size_t j = 0; j < c; j++)
                sum += t[i * c + j] * q[j];
            int part = m == 0   ? (i < d.heads * 128                  ? 0
                                   : i < (d.heads + d.kv_heads) * 128 ? 1
                                                                      : 2)
                       : m == 1 ? 3
                       : m == 2 ? (i < r / 2 ? 4 : 5)
                                : 6;
            out[i] = (float)sum * (top / 127.0f * layers[l].scale[part]);
        }
        return out;
    }
    uint16_t *row(uint32_t l, uint32_t p, uint32_t head, int is_v)
    {
        size_t blk = d.blocks - 1 - p / 64;
        return &cache[((((size_t)l * d.blocks + blk) * d.kv_heads + head) * 2 + (size_t)is_v) * 64 *
                          128 +
                      p % 64 * 128];
    }
    static float half_of(uint16_t h)
    {
        __half x;
        memcpy(&x, &h, 2);
        return __half2float(x);
    }
    void rope(float *v, uint32_t p) const
    {
        for (int j = 0; j < 64; j++) {
            float c = angles[(size_t)p * 128 + 2 * j], s = angles[(size_t)p * 128 + 2 * j + 1];
            float x = v[j], y = v[j + 64];
            v[j] = x * c - y * s, v[j + 64] = x * s + y * c;
        }
    }
    std::vector<float> attention(uint32_t l, uint32_t p, std::vector<float> q)
    {
        uint32_t group = d.heads / d.kv_heads;
        for (uint32_t h = 0; h < d.heads + d.kv_heads; h++)
            rope(&q[h * 128], p);
        for (uint32_t h = 0; h < d.kv_heads; h++)
            for (int v = 0; v < 2; v++)
                for (int i = 0; i < 128; i++) {
                    __half x = __float2half(q[(d.heads + (v ? d.kv_heads : 0) + h) * 128 + i]);
                    memcpy(row(l, p, h, v) + i, &x, 2);
                }
        std::vector<float> y(d.embd);
        for (uint32_t h = 0; h < d.heads; h++) {
            std::vector<double> s(p + 1), o(128, 0.0);
            double top = -1e30, sum = 0;
            for (uint32_t j = 0; j <= p; j++) {
                const uint16_t *k = row(l, j, h / group, 0);
                for (int i = 0; i < 128; i++)
                    s[j] += (double)q[h * 128 + i] * half_of(k[i]);
                s[j] *= (double)a.scale;
                top = std::max(top, s[j]);
            }
            for (uint32_t j = 0; j <= p; j++) {
                double e = exp(s[j] - top);
                const uint16_t *v = row(l, j, h / group, 1);
                sum += e;
                for (int i = 0; i < 128; i++)
                    o[i] += e * half_of(v[i]);
            }
            for (int i = 0; i < 128; i++)
                y[h * 128 + i] = (float)(o[i] / sum);
        }
        return y;
    }
    std::vector<double> reference(uint32_t p)
    {
        std::vector<float> v = x;
        for (uint32_t l = 0; l < d.layers; l++) {
            std::vector<float> o = linear(l, 1, attention(l, p, linear(l, 0, v)));
            for (uint32_t i = 0; i < d.embd; i++)
                v[i] += o[i];
            std::vector<float> gu = linear(l, 2, v), mid(d.ff);
            for (uint32_t i = 0; i < d.ff; i++) {
                float g = gu[i] > 0 ? gu[i] : 0;
                mid[i] = g * g * gu[d.ff + i];
            }
            o = linear(l, 3, mid);
            for (uint32_t i = 0; i < d.embd; i++)
                v[i] += o[i];
        }
        return std::vector<double>(v.begin(), v.end());
    }
};

/* A code that lies on the edge of two changes a hundredth of all that follows: where a result is
 * that far off, a reference whose inputs differ by a few float roundings must hit it; its cache is
 * the model's then. Returns how many were asked, 0: none had to. */
static int settle(model &m, uint32_t p, const std::vector<float> &got, double *e)
{
    int tries = 0;
    for (; *e >= 5e-3 && tries < 300; tries++) {
        m.noise = tries < 100 ? 3e-7 : 1e-6;
        double d = distance(got, m.reference(p));
        *e = d < 1e-4 ? d : *e;
    }
    m.noise = 0;
    return tries;
}

/* near: below it one block per kv head attends */
static void check_model(const dims &d, const std::vector<uint32_t> &positions, uint32_t near)
{
    rng g(d.embd);
    model m(d, true, g);
    m.a.near = near;
    for (uint32_t p : positions) {
        m.pos.put({(int32_t)p});
        std::vector<float> got[2];
        for (auto &r : got) {
            m.dx.put(m.x);
            launch(bnet_decode_step, m.a, m.shape());
            r = m.dx.get();
        }
        double e = distance(got[0], m.reference(p));
        int tries = settle(m, p, got[0], &e);
        std::vector<uint16_t> after = m.kv->get();
        size_t differ = 0;
        for (size_t i = 0; i < after.size(); i++)
            differ += fabsf(model::half_of(after[i]) - model::half_of(m.cache[i])) > 0.05f;
        m.cache = after; /* what later positions read */
        char what[160];
        snprintf(what, sizeof what, "decode_step %ux%u heads %u/%u layers %u pos %u%s: %.1e%s%s%s",
                 d.embd, d.ff, d.heads, d.kv_heads, d.layers, p, p < near ? " near" : "", e,
                 tries ? " of a code on an edge" : "", differ ? " cache differs" : "",
                 got[0] == got[1] ? "" : " two runs differ");
        verdict(what, e < 5e-3 && differ == 0 && got[0] == got[1]);
    }
}

SECTION(decode_tiny) /* for the memory and race checkers */
{
    check_model({128, 128, 1, 1, 1, 2}, {1, 100}, 0);
    check_model({256, 640, 2, 2, 3, 8}, {5, 130}, BNET_DECODE_NEAR);
    check_model({256, 640, 2, 2, 3, 8}, {5, 300}, 0);
}

SECTION(decode_check)
{
    check_model({512, 1408, 4, 1, 5, 4}, {0, 1, 16, 100, 255}, BNET_DECODE_NEAR);
    check_model({512, 1408, 4, 1, 5, 4}, {0, 100, 255}, 0);
    check_model({256, 640, 2, 2, 3, 8}, {0, 400}, 0);
    /* what blocks of another plan left behind must not be taken for new */
    check_model({2560, 6912, 20, 5, 2, 90}, {0, 127, 300, 4200, 5700, 10, 5701, 700, 5702},
                BNET_DECODE_NEAR);
    check_model({2560, 6912, 20, 5, 3, 30}, {0, 127, 600, 1900}, 0);
    /* values of the second half of a block come from registers */
    check_model({512, 1408, 4, 1, 2, 8}, {300, 400, 511}, BNET_DECODE_ROWS);
}

/* One to four heads a kv head; kv heads so many that eight, four, two or one block attend to each.
 * One layer: a code on an edge has less to change. */
SECTION(decode_shapes)
{
    const std::vector<uint32_t> edges = {0, 15, 16, 127, 128, 255, 257, 400, 511, 600};
    for (dims d : {dims{1536, 3072, 12, 3, 1, 10}, dims{1536, 3072, 12, 6, 1, 10},
                   dims{1024, 2816, 8, 8, 1, 10}, dims{2560, 2688, 20, 10, 1, 10},
                   dims{2048, 5504, 16, 16, 1, 10}, dims{2560, 6912, 20, 20, 1, 10},
                   dims{2688, 7168, 21, 7, 1, 10}, dims{1920, 5120, 15, 5, 1, 10},
                   dims{768, 2048, 6, 2, 1, 10}})
        check_model(d, edges, BNET_DECODE_NEAR);
    check_model({1536, 4096, 12, 12, 1, 66}, {3, 255, 300, 700, 1000, 2047, 4095},
                BNET_DECODE_NEAR);
    check_model({1024, 2816, 8, 4, 1, 66}, {3, 255, 300, 1000, 4095}, BNET_DECODE_NEAR);
}

/* With the attributes of a cooperative launch, of an early one, or both. */
static void launch_with(const bnet_cu_decode_args &args, bnet_cu_launch l, bool cooperative,
                        bool early)
{
    cudaLaunchAttribute attr[2];
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(l.grid[0]), c.blockDim = dim3(l.block), c.dynamicSmemBytes = l.shared;
    c.stream = stream, c.attrs = attr;
    if (cooperative) {
        attr[c.numAttrs].id = cudaLaunchAttributeCooperative;
        attr[c.numAttrs++].val.cooperative = 1;
    }
    if (early) {
        attr[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    bnet_cu_decode_args copy = args;
    void *p[] = {&copy};
    CU(cudaFuncSetAttribute((const void *)bnet_decode_step,
                            cudaFuncAttributeMaxDynamicSharedMemorySize, (int)l.shared));
    CU(cudaLaunchKernelExC(&c, (const void *)bnet_decode_step, p));
}

/* Where the time of a layer goes, by the kernel built with BNET_DECODE_TRACE. */
static void print_trace(model &m, int pos)
{
    m.pos.put({pos});
    m.trace.zero();
    launch(bnet_decode_step, m.a, m.shape());
    std::vector<long long> c = m.trace.get();
    row("clocks of a layer's phases at position %d, mean of all blocks that have them (largest): "
        "collected, codes, "
        "multiplied, all warps, given; built with BNET_DECODE_TRACE",
        pos);
    char extra[160];
    const char *names[] = {"qkv", "o", "gate+up", "down", "attention"};
    for (int ph : {0, 4, 1, 2, 3}) {
        std::string line;
        for (int i = 1; i < 6; i++) {
            double sum = 0, most = 0, n_blocks = 0;
            for (int b = 0; b < n_sm; b++) {
                const long long *t = &c[(size_t)b * 64 + (size_t)ph * 8 + (size_t)i];
                if (!t[0] || !t[-1])
                    continue;
                sum += (double)(t[0] - t[-1]), n_blocks++;
                most = std::max(most, (double)(t[0] - t[-1]));
            }
            char text[40];
            snprintf(text, sizeof text, " %.0f (%.0f)", n_blocks ? sum / n_blocks : 0, most);
            line += text;
        }
        double part[4] = {}, n_blocks = 0;
        for (size_t b = 0; b < m.a.blocks; b++) {
            const long long *t = &c[b * 64 + (size_t)ph * 8];
            if (!t[6] || !t[7])
                continue;
            part[0] += (double)(t[7] - t[2]), part[1] += (double)(t[3] - t[7]);
            part[2] += (double)(t[6] - t[4]), part[3] += (double)(t[5] - t[6]), n_blocks++;
        }
        if (n_blocks)
            snprintf(extra, sizeof extra, "; products %.0f %.0f, given %.0f %.0f",
                     part[0] / n_blocks, part[1] / n_blocks, part[2] / n_blocks,
                     part[3] / n_blocks);
        row("  %s:%s%s", names[ph], line.c_str(), n_blocks ? extra : "");
    }
    /* when blocks of all multiprocessors pass a mark, by the time they share */
    auto when = [&](size_t b, int ph, int i) {
        const long long *t = &c[b * 64];
        double rate = (double)(t[63] - t[61]) / (double)(t[62] - t[60]);
        return (double)t[61] + (double)(t[ph * 8 + i] - t[60]) * rate;
    };
    double begin = INFINITY;
    for (size_t b = 0; b < m.a.blocks; b++)
        if (c[b * 64])
            begin = std::min(begin, when(b, 0, 0));
    row("ns since the first block began the layer, of the first, mean and last block at a mark");
    for (int ph : {0, 4, 1, 2, 3}) {
        std::string line;
        for (int i = 0; i < 6; i++) {
            double first = INFINITY, sum = 0, last = 0, n_blocks = 0;
            for (size_t b = 0; b < m.a.blocks; b++)
                if (c[b * 64 + (size_t)ph * 8 + (size_t)i]) {
                    double t = when(b, ph, i) - begin;
                    first = std::min(first, t), last = std::max(last, t), sum += t, n_blocks++;
                }
            char text[60];
            snprintf(text, sizeof text, "  %.0f %.0f %.0f", first, sum / n_blocks, last);
            line += n_blocks ? text : "";
        }
        row("  %s:%s", names[ph], line.c_str());
    }
}

SECTION(decode_time)
{
    rng g(77);
    model m({2560, 6912, 20, 5, 30, 66}, false, g);
    size_t n = 128256, k = 2560;
    dev<uint8_t> head(n * k * 2);
    CU(cudaMemset(head.p, 0x11, head.n));
    dev<float> logits(n);
    bnet_cu_head_args h = {};
    h.m.n_rows = (uint32_t)n, h.m.k = h.m.stride = (uint32_t)k, h.m.w[0] = head.p;
    h.x = m.dx.p, h.norm = m.n[0]->p, h.y = logits.p, h.n_tokens = 1, h.ldx = (uint32_t)k;
    h.ld = (uint32_t)n, h.eps = 1e-5f;
    row("decode step in one kernel, 2B-4T shape, us: plain, early, cooperative, both; both + f16 "
        "head; %u blocks in "
        "clusters of %d",
        m.a.blocks, BNET_DECODE_CLUSTER);
    for (uint32_t near : {0u, 512u})
        for (uint32_t p : {127u, 255u, 511u}) {
            m.pos.put({(int32_t)p});
            m.a.near = near;
            row("pos %u, %s: %.1f", p, p < near ? "one block attends to a kv head" : "a cluster",
                time_graph(4, [&](int) { launch_with(m.a, m.shape(), true, true); }));
        }
    m.a.near = BNET_DECODE_NEAR;
    for (uint32_t p : {0u, 127u, 255u, 511u, 1023u, 4095u}) {
        m.pos.put({(int32_t)p});
        std::string line;
        for (int i = 0; i < 5; i++) {
            m.dx.put(m.x);
            try {
                line += " " + std::to_string(time_graph(4, [&](int) {
                            launch_with(m.a, m.shape(), i > 1, i & 1 || i == 4);
                            if (i == 4)
                                launch(bnet_head_f16, h,
                                       bnet_head_launch(&h, (uint32_t)n_sm, shared_max), true);
                        }));
            } catch (failure &e) {
                line += std::string(" ") + e.what();
                cudaGetLastError();
            }
            if (p != 127 && i == 0)
                break;
        }
        row("pos %u:%s", p, line.c_str());
    }
    m.a.trace = m.trace.p;
    for (int p : {127, 4095})
        print_trace(m, p);
}
