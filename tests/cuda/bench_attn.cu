/* bench_attn.cu - attention, cache and head: against double precision, then timed. */
#include "backend/cuda/attn_batch.h"
#include "backend/cuda/batch.h"
#include "backend/cuda/tiles.h"
#include "kbench.cuh"
#include "pack.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
__global__ void bnet_attn_decode_f16(const bnet_cu_attn_args a);
__global__ void bnet_rope_append(const bnet_cu_attn_args a);
__global__ void bnet_attn_prefill_f16_64(const bnet_cu_attn_args a);
__global__ void bnet_attn_prefill_f16_128(const bnet_cu_attn_args a);
__global__ void bnet_attn_prefill_i8_64(const bnet_cu_attn_args a);
__global__ void bnet_attn_prefill_i8_128(const bnet_cu_attn_args a);
__global__ void bnet_attn_batch_h128(const bnet_cu_attn_args a);
__global__ void bnet_attn_batch_h128_i8(const bnet_cu_attn_args a);
__global__ void bnet_attn_shared_h128(const bnet_cu_attn_args a);
__global__ void bnet_attn_shared_h128_i8(const bnet_cu_attn_args a);
__global__ void bnet_attn_decode_f32(const bnet_cu_attn_args a);
__global__ void bnet_attn_decode_i8(const bnet_cu_attn_args a);
__global__ void bnet_head_f16(const bnet_cu_head_args a);
__global__ void bnet_head_bf16(const bnet_cu_head_args a);
__global__ void bnet_head_f32(const bnet_cu_head_args a);
__global__ void bnet_head_split(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_f16(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_f16_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q6k_16(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q6k_32(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q6k_64(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q8_16(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q8_32(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q8_64(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q6k_16_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q6k_32_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q6k_64_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q8_16_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q8_32_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_q8_64_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_head_q8(const bnet_cu_head_args a);
__global__ void bnet_head_q6k(const bnet_cu_head_args a);
}

typedef void attn_fn(const bnet_cu_attn_args);
static attn_fn *const decoders[3] = {bnet_attn_decode_f16, bnet_attn_decode_f32,
                                     bnet_attn_decode_i8};
static const char *const kv_names[3] = {"f16", "f32", "i8"};

static uint32_t part_bytes(int type, uint32_t hd)
{
    uint32_t n = 64 * hd * (type == 1 ? 4 : type == 0 ? 2 : 1);
    if (type == 2)
        n = (n + 3) / 4 * 4 + 64 * ((hd + 31) / 32) * 4;
    return (n + 63) / 64 * 64;
}

static void store(int type, uint32_t hd, uint32_t p, const float *x, uint8_t *part, float *back)
{
    for (uint32_t d = 0; d < hd; d++) {
        if (type == 1) {
            ((float *)part)[p * hd + d] = back[d] = x[d];
        } else if (type == 0) {
            ((__half *)part)[p * hd + d] = __float2half(x[d]);
            back[d] = __half2float(__float2half(x[d]));
        } else {
            uint32_t g = d / 32, n_g = (hd + 31) / 32;
            float top = 0;
            for (uint32_t i = g * 32; i < std::min(hd, g * 32 + 32); i++)
                top = fmaxf(top, fabsf(x[i]));
            int q = (int)lrintf(x[d] * (top > 0 ? 127.0f / top : 0));
            ((int8_t *)part)[p * hd + d] = (int8_t)q;
            ((float *)(part + (64 * hd + 3) / 4 * 4))[p * n_g + g] = top / 127.0f;
            back[d] = (float)q * (top / 127.0f);
        }
    }
}

/* Timelines of given lengths in shuffled blocks; keys and values as they read back. */
struct cache {
    int type;
    uint32_t heads, kv_heads, hd, n_seqs, n_layers = 2, n_blocks = 1;
    std::vector<uint8_t> bytes;
    std::vector<int32_t> tables;
    std::vector<bnet_dev_seq> seqs;
    std::vector<std::vector<float>> k, v; /* [seq][pos][kv head][hd] */
    dev<uint8_t> *d = nullptr;

    cache(int t, uint32_t h, uint32_t kvh, uint32_t hd_, const std::vector<uint32_t> &lengths,
          rng &g)
        : type(t), heads(h), kv_heads(kvh), hd(hd_), n_seqs((uint32_t)lengths.size())
    {
        uint32_t pb = part_bytes(type, hd), stride = 0;
        for (uint32_t n : lengths)
            n_blocks += bnet_cu_div(n, 64), stride = std::max(stride, bnet_cu_div(n, 64));
        std::vector<int32_t> order(n_blocks);
        for (uint32_t i = 0; i < n_blocks; i++)
            order[i] = (int32_t)i;
        for (uint32_t i = n_blocks - 1; i; i--)
            std::swap(order[i], order[g.below((int)i + 1)]);
        bytes.assign((size_t)n_layers * n_blocks * kv_heads * 2 * pb, 0x7f);
        tables.assign((size_t)n_seqs * stride, -1);
        uint32_t used = 0;
        for (uint32_t s = 0; s < n_seqs; s++) {
            seqs.push_back({0, (uint64_t)n_blocks * kv_heads * 2 * pb, s * stride, 0});
            for (uint32_t b = 0; b < bnet_cu_div(lengths[s], 64); b++)
                tables[s * stride + b] = order[used++];
            k.emplace_back((size_t)lengths[s] * kv_heads * hd);
            v.emplace_back((size_t)lengths[s] * kv_heads * hd);
            std::vector<float> x(hd);
            for (uint32_t p = 0; p < lengths[s]; p++)
                for (uint32_t i = 0; i < kv_heads * 2; i++) {
                    for (auto &e : x)
                        e = g.normal();
                    int32_t blk = tables[s * stride + p / 64];
                    uint8_t *part =
                        &bytes[(((size_t)n_blocks + (size_t)blk) * kv_heads * 2 + i) * pb];
                    store(type, hd, p % 64, x.data(), part,
                          &(i & 1 ? v : k)[s][((size_t)p * kv_heads + i / 2) * hd]);
                }
        }
        d = new dev<uint8_t>(bytes);
        for (auto &s : seqs)
            s.kv = (uint64_t)d->p;
    }
    ~cache() { delete d; }

    /* reference: one head of one query over n positions */
    void attend(uint32_t s, uint32_t n, uint32_t head, const float *q, double *o) const
    {
        uint32_t kvh = head / (heads / kv_heads);
        std::vector<double> w(n);
        double top = -1e300, sum = 0;
        for (uint32_t p = 0; p < n; p++) {
            double x = 0;
            for (uint32_t i = 0; i < hd; i++)
                x += (double)q[i] * k[s][((size_t)p * kv_heads + kvh) * hd + i];
            w[p] = x / sqrt((double)hd);
            top = std::max(top, w[p]);
        }
        for (uint32_t i = 0; i < hd; i++)
            o[i] = 0;
        for (uint32_t p = 0; p < n; p++) {
            double e = exp(w[p] - top);
            sum += e;
            for (uint32_t i = 0; i < hd; i++)
                o[i] += e * v[s][((size_t)p * kv_heads + kvh) * hd + i];
        }
        for (uint32_t i = 0; i < hd; i++)
            o[i] /= sum;
    }
};

struct step_buffers {
    dev<int32_t> ids, pos, seq, tables;
    dev<bnet_dev_seq> seqs;
    step_buffers(const cache &c, const std::vector<int32_t> &p, const std::vector<int32_t> &s)
        : ids(p.size()), pos(p), seq(s), tables(c.tables), seqs(c.seqs)
    {
    }
    bnet_dev_step step() const { return {ids.p, pos.p, seq.p, seqs.p, tables.p}; }
};

static void rope(std::vector<float> &x, const std::vector<float> &cs, uint32_t n_rot, bool neox)
{
    for (uint32_t j = 0; j < n_rot / 2; j++) {
        uint32_t ia = neox ? j : 2 * j, ib = neox ? j + n_rot / 2 : 2 * j + 1;
        float a = x[ia], b = x[ib];
        x[ia] = a * cs[2 * j] - b * cs[2 * j + 1];
        x[ib] = a * cs[2 * j + 1] + b * cs[2 * j];
    }
}

static attn_fn *of_batches(int type, uint32_t splits)
{
    if (splits > 1)
        return type ? bnet_attn_shared_h128_i8 : bnet_attn_shared_h128;
    return type ? bnet_attn_batch_h128_i8 : bnet_attn_batch_h128;
}

static void check_decode(int type, uint32_t heads, uint32_t kvh, uint32_t hd, uint32_t splits,
                         int fused, bool neox, bool batch = false)
{ /* fused: 0 rotated and stored before, 1 inside, 2 by rope_append */
    rng g(hd + heads + splits);
    std::vector<uint32_t> lengths = {1, 64, 130, 17, batch ? 2201u : 777u};
    cache c(type, heads, kvh, hd, lengths, g);
    uint32_t t_n = 6, n_rot = hd;
    std::vector<int32_t> pos, seq;
    for (uint32_t s = 0; s < 5; s++)
        pos.push_back((int32_t)lengths[s] - 1), seq.push_back((int32_t)s);
    pos.push_back(-1), seq.push_back(0); /* padding */
    std::vector<float> q((size_t)t_n * heads * hd), k((size_t)t_n * kvh * hd), v(k.size()),
        cs((size_t)t_n * n_rot);
    for (auto *x : {&q, &k, &v})
        for (auto &e : *x)
            e = g.normal();
    for (uint32_t i = 0; i < cs.size(); i += 2) {
        float w = g.uniform() * 3;
        cs[i] = cosf(w), cs[i + 1] = sinf(w);
    }
    step_buffers sb(c, pos, seq);
    dev<float> dq(q), dk(k), dv(v), dcs(cs), y((size_t)t_n * heads * hd);
    dev<uint32_t> counters(t_n * heads);
    counters.zero();
    bnet_cu_attn_args a = {};
    a.step = sb.step();
    a.q = dq.p, a.k = dk.p, a.v = dv.p, a.cs = fused ? dcs.p : nullptr, a.y = y.p;
    a.ldq = heads * hd, a.ldk = kvh * hd, a.layer = 1, a.n_heads = heads, a.n_kv_heads = kvh;
    a.head_dim = hd, a.kv_type = (uint32_t)type, a.part_bytes = part_bytes(type, hd);
    a.n_rot = n_rot, a.neox = neox, a.n_tokens = t_n, a.n_splits = splits;
    a.scale = 1.0f / sqrtf((float)hd);
    dev<float> work(bnet_attn_work_bytes(&a) / 4 + 4 * bnet_attn_batch_work_bytes(&a) + 1);
    a.work = work.p, a.counters = counters.p;
    if (fused == 2) {
        launch(bnet_rope_append, a, bnet_rope_append_launch(&a));
        a.cs = nullptr;
    }
    for (int twice = 0; twice < 2; twice++)
        if (batch)
            launch(of_batches(type, a.n_splits), a, bnet_attn_batch_h128_launch(&a));
        else
            launch(decoders[type], a, bnet_attn_decode_launch(&a));
    std::vector<float> got = y.get();
    std::vector<uint8_t> after = c.d->get();
    bool same = true; /* whatever the number of blocks that share the stretches */
    if (batch) {
        a.n_splits = splits == 1 ? 2 : 1;
        launch(of_batches(type, a.n_splits), a, bnet_attn_batch_h128_launch(&a));
        same = memcmp(y.get().data(), got.data(), (size_t)5 * heads * hd * sizeof(float)) == 0;
    }
    std::vector<double> want;
    std::vector<float> out;
    for (uint32_t t = 0; t < 5; t++) {
        std::vector<float> scratch(hd);
        for (uint32_t h = 0; fused && h < kvh; h++)
            for (int is_v = 0; is_v < 2; is_v++) {
                std::vector<float> x(hd);
                std::copy_n(&(is_v ? v : k)[((size_t)t * kvh + h) * hd], hd, x.begin());
                if (!is_v)
                    rope(x, {cs.begin() + t * n_rot, cs.begin() + (t + 1) * n_rot}, n_rot, neox);
                int32_t blk = c.tables[c.seqs[t].table + (uint32_t)pos[t] / 64];
                uint8_t *part =
                    &c.bytes[(((size_t)c.n_blocks + (size_t)blk) * kvh * 2 + h * 2 + is_v) *
                             a.part_bytes];
                store(type, hd, (uint32_t)pos[t] % 64, x.data(), part,
                      &(is_v ? c.v : c.k)[t][((size_t)pos[t] * kvh + h) * hd]);
            }
        for (uint32_t h = 0; h < heads; h++) {
            std::vector<float> x(&q[((size_t)t * heads + h) * hd],
                                 &q[((size_t)t * heads + h) * hd] + hd);
            if (fused)
                rope(x, {cs.begin() + t * n_rot, cs.begin() + (t + 1) * n_rot}, n_rot, neox);
            std::vector<double> o(hd);
            c.attend(t, (uint32_t)pos[t] + 1, h, x.data(), o.data());
            want.insert(want.end(), o.begin(), o.end());
            for (uint32_t i = 0; i < hd; i++)
                out.push_back(got[((size_t)t * heads + h) * hd + i]);
        }
    }
    double e = distance(out, want);
    bool stored = after == c.bytes;
    char what[160];
    snprintf(what, sizeof what, "attn_%s %s heads %u/%u hd %u splits %u fused %d neox %d: %.1e%s%s",
             batch ? "batch" : "decode", kv_names[type], heads, kvh, hd, splits, fused, neox, e,
             stored ? "" : " cache differs", same ? "" : " other bits with other splits");
    verdict(what, e < 1e-5 && stored && same);
}

SECTION(attn_check)
{
    for (int fused = 0; fused < 2; fused++) {
        for (int type : {0, 2})
            for (uint32_t splits : {1u, 4u, 16u}) {
                check_decode(type, 20, 5, 128, splits, fused, true, true);
                check_decode(type, 12, 1, 128, splits, fused, false, true);
                check_decode(type, 3, 3, 128, splits, fused, true, true);
            }
    }
    for (int type = 0; type < 3; type++) {
        check_decode(type, 20, 5, 128, 8, 2, true);
        check_decode(type, 3, 1, 80, 2, 2, false);
        check_decode(type, 20, 5, 128, 8, true, true);
        check_decode(type, 20, 5, 128, 1, false, true);
        check_decode(type, 4, 4, 64, 5, true, false);
        check_decode(type, 6, 2, 32, 3, true, true);
        check_decode(type, 5, 1, 100, 16, true, true);
        check_decode(type, 8, 1, 256, 4, true, false);
    }
}

SECTION(attn_time)
{
    row("attention decode 20/5 heads x 128, us (TB/s) by splits; c: clusters");
    for (int type : {0, 2, 1})
        for (auto s : {std::pair<uint32_t, uint32_t>{1, 128}, {1, 4096}, {8, 512}, {64, 512}}) {
            rng g(9);
            std::string line;
            uint32_t pb = part_bytes(type, 128), tokens = s.first, len = s.second;
            uint32_t blocks = tokens * bnet_cu_div(len, 64), layers = 30;
            dev<uint8_t> kv((size_t)layers * blocks * 5 * 2 * pb);
            kv.zero();
            std::vector<int32_t> pos(tokens, (int32_t)len - 1), seq(tokens), tables(blocks);
            std::vector<bnet_dev_seq> seqs;
            for (uint32_t t = 0; t < tokens; t++) {
                seq[t] = (int32_t)t;
                seqs.push_back(
                    {(uint64_t)kv.p, (uint64_t)blocks * 10 * pb, t * blocks / tokens, 0});
            }
            for (uint32_t i = 0; i < blocks; i++)
                tables[i] = (int32_t)((i * 7919u) % blocks);
            dev<int32_t> dpos(pos), dseq(seq), dt(tables);
            dev<bnet_dev_seq> ds(seqs);
            std::vector<float> f((size_t)tokens * 3840);
            for (auto &e : f)
                e = g.normal();
            dev<float> q(f), cs(f), y((size_t)tokens * 2560),
                work((size_t)tokens * 5 * 16 * 128 * 34);
            dev<uint32_t> counters(tokens * 5);
            counters.zero();
            for (uint32_t splits :
                 {1u, 4u, 8u, 16u, 101u, 104u, 116u}) { /* above 100: the kernel of batches */
                bool batch = splits > 100;
                uint32_t n = splits % 100;
                if (n * tokens > 520 || (batch && type == 1))
                    continue;
                bnet_cu_attn_args a = {};
                a.step = {dpos.p, dpos.p, dseq.p, ds.p, dt.p};
                a.q = q.p, a.k = q.p + 2560, a.v = q.p + 3200, a.cs = cs.p, a.y = y.p;
                a.ldq = a.ldk = 3840, a.n_heads = 20, a.n_kv_heads = 5, a.head_dim = 128;
                a.kv_type = (uint32_t)type, a.part_bytes = pb, a.n_rot = 128, a.neox = 1;
                a.n_tokens = tokens, a.n_splits = n, a.scale = 0.088f, a.work = work.p;
                a.counters = counters.p;
                double us = time_graph(90, [&](int i) {
                    bnet_cu_attn_args b = a;
                    b.layer = (uint32_t)i % layers;
                    if (batch)
                        launch(of_batches(type, n), b, bnet_attn_batch_h128_launch(&b), true);
                    else
                        launch(decoders[type], b, bnet_attn_decode_launch(&b), true);
                });
                char cell[60];
                snprintf(cell, sizeof cell, " %s%u: %.2f(%.2f)", batch ? "batch " : "", n, us,
                         (double)blocks * 10 * pb / us * 1e-6);
                line += cell;
            }
            row("%s T=%u ctx %u:%s", kv_names[type], tokens, len, line.c_str());
        }
}

/* ---- prefill ---- */

static attn_fn *prefiller(int type, uint32_t hd)
{
    return type == 0 ? (hd == 64 ? bnet_attn_prefill_f16_64 : bnet_attn_prefill_f16_128)
                     : (hd == 64 ? bnet_attn_prefill_i8_64 : bnet_attn_prefill_i8_128);
}

static void check_prefill(int type, uint32_t heads, uint32_t kvh, uint32_t hd, uint32_t n_rot,
                          bool neox)
{ /* n_rot 0: rotated before */
    rng g(hd + heads);
    std::vector<uint32_t> lengths = {130, 64, 200, 1}, from = {70, 0, 100, 0};
    cache c(type, heads, kvh, hd, lengths, g);
    std::vector<int32_t> pos, seq;
    std::vector<bnet_dev_tile> tiles;
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t p = from[s]; p < lengths[s]; p += 64) {
            uint32_t n = std::min(64u, lengths[s] - p);
            tiles.push_back({(int32_t)pos.size(), (int32_t)n});
            for (uint32_t i = 0; i < n; i++)
                pos.push_back((int32_t)(p + i)), seq.push_back((int32_t)s);
        }
    tiles.push_back({0, 0});
    std::vector<float> q(pos.size() * heads * hd);
    for (auto &e : q)
        e = g.normal();
    std::vector<float> cs(pos.size() * n_rot + 2);
    for (size_t i = 0; i < cs.size(); i += 2) {
        float w = g.uniform() * 3;
        cs[i] = cosf(w), cs[i + 1] = sinf(w);
    }
    step_buffers sb(c, pos, seq);
    dev<float> dq(q), y(q.size()), dcs(cs);
    dev<bnet_dev_tile> dt(tiles);
    bnet_cu_attn_args a = {};
    a.step = sb.step();
    a.q = dq.p, a.y = y.p, a.tiles = dt.p, a.n_tiles = (uint32_t)tiles.size();
    a.ldq = heads * hd, a.layer = 1, a.n_heads = heads, a.n_kv_heads = kvh, a.head_dim = hd;
    a.kv_type = (uint32_t)type, a.part_bytes = part_bytes(type, hd);
    a.n_tokens = (uint32_t)pos.size(), a.scale = 1.0f / sqrtf((float)hd);
    a.cs = n_rot ? dcs.p : nullptr, a.n_rot = n_rot, a.neox = neox;
    launch(prefiller(type, hd), a, bnet_attn_prefill_groups(&a, shared_max));
    std::vector<float> got = y.get();
    std::vector<double> want(got.size());
    for (size_t t = 0; t < pos.size(); t++)
        for (uint32_t h = 0; h < heads; h++) {
            std::vector<float> x(&q[(t * heads + h) * hd], &q[(t * heads + h) * hd] + hd);
            rope(x, {cs.begin() + t * n_rot, cs.begin() + (t + 1) * n_rot}, n_rot, neox);
            c.attend((uint32_t)seq[t], (uint32_t)pos[t] + 1, h, x.data(),
                     &want[(t * heads + h) * hd]);
        }
    double e = distance(got, want);
    char what[120];
    snprintf(what, sizeof what, "attn_prefill %s heads %u/%u hd %u rotated %u neox %d: %.1e",
             kv_names[type], heads, kvh, hd, n_rot, neox, e);
    verdict(what, e < 1.5e-3);
}

SECTION(prefill_check)
{
    for (int type : {0, 2})
        for (uint32_t hd : {64u, 128u}) {
            check_prefill(type, 4, 1, hd, 0, false);
            check_prefill(type, 3, 3, hd, hd, true);
            check_prefill(type, 3, 1, hd, hd, false);
            check_prefill(type, 2, 1, hd, hd / 2, true);
        }
}

SECTION(prefill_time)
{
    row("attention prefill 20/5 heads x 128: us for 512 tokens at position 0, at 3584");
    for (int type : {0, 2}) {
        uint32_t pb = part_bytes(type, 128), blocks = 64;
        dev<uint8_t> kv((size_t)blocks * 10 * pb);
        kv.zero();
        double us[2];
        for (int late = 0; late < 2; late++) {
            std::vector<int32_t> pos(512), tables(blocks);
            std::vector<bnet_dev_tile> tiles(8);
            for (int i = 0; i < 512; i++)
                pos[i] = i + late * 3584;
            for (int i = 0; i < 8; i++)
                tiles[i] = {64 * i, 64};
            for (uint32_t i = 0; i < blocks; i++)
                tables[i] = (int32_t)i;
            dev<int32_t> dpos(pos), dseq(std::vector<int32_t>(512, 0)), dt(tables);
            dev<bnet_dev_seq> ds(std::vector<bnet_dev_seq>{{(uint64_t)kv.p, 0, 0, 0}});
            dev<bnet_dev_tile> dtiles(tiles);
            dev<float> q(std::vector<float>(512 * 2560, 0.1f)), y(512 * 2560), cs(512 * 128);
            cs.zero();
            bnet_cu_attn_args a = {};
            a.step = {dpos.p, dpos.p, dseq.p, ds.p, dt.p};
            a.q = q.p, a.y = y.p, a.tiles = dtiles.p, a.n_tiles = 8, a.ldq = 2560, a.n_heads = 20;
            a.n_kv_heads = 5, a.head_dim = 128, a.part_bytes = pb, a.n_tokens = 512,
            a.scale = 0.088f;
            a.cs = cs.p, a.n_rot = 128, a.neox = 1;
            us[late] = time_graph(20, [&](int) {
                launch(prefiller(type, 128), a, bnet_attn_prefill_groups(&a, shared_max), true);
            });
        }
        row("%s: %.1f %.1f", kv_names[type], us[0], us[1]);
    }
}

/* ---- head ---- */

typedef void head_fn(const bnet_cu_head_args);
static const struct {
    const char *name;
    head_fn *fn;
    int type; /* 0 f32 1 f16 2 bf16 3 q8 4 q6k */
    double bytes;
} heads[] = {{"f32", bnet_head_f32, 0, 4},
             {"f16", bnet_head_f16, 1, 2},
             {"bf16", bnet_head_bf16, 2, 2},
             {"q8", bnet_head_q8, 3, 1.0625},
             {"q6k", bnet_head_q6k, 4, 0.8203125}};

static float half_value(uint16_t h)
{
    __half x;
    memcpy(&x, &h, 2);
    return __half2float(x);
}

/* Random rows in a type's planes and their values. */
struct weights {
    std::vector<uint8_t> plane[4];
    std::vector<float> value; /* [n][stride] */
    std::vector<dev<uint8_t> *> d;
    bnet_dev_matrix m = {};
    weights(int type, uint32_t n, uint32_t k, rng &g)
    {
        m.n_rows = n, m.k = k, m.stride = type == 4 ? (k + 255) / 256 * 256 : (k + 63) / 64 * 64;
        uint32_t s = m.stride;
        value.assign((size_t)n * s, 0);
        plane[0].assign((size_t)n * s *
                            (type == 0  ? 4
                             : type < 3 ? 2
                                        : 1) /
                            (type == 4 ? 2 : 1),
                        0);
        if (type == 3)
            plane[1].assign((size_t)n * s / 32 * 2, 0);
        if (type == 4) {
            plane[1].assign((size_t)n * s / 4, 0);
            plane[2].assign((size_t)n * s / 16, 0);
            plane[3].assign((size_t)n * s / 256 * 2, 0);
        }
        for (uint32_t r = 0; r < n; r++) {
            if (type == 3)
                fill_q8(r, g);
            else if (type == 4)
                fill_q6k(r, g);
            else
                for (uint32_t i = 0; i < k; i++)
                    put(type, (size_t)r * s + i, g.normal());
        }
        for (int i = 0; i < 4; i++) {
            d.push_back(plane[i].empty() ? nullptr : new dev<uint8_t>(plane[i]));
            m.w[i] = d[i] ? d[i]->p : nullptr;
        }
    }
    ~weights()
    {
        for (auto p : d)
            delete p;
    }
    void put(int type, size_t at, float v)
    {
        if (type == 0) {
            memcpy(&plane[0][at * 4], &v, 4);
            value[at] = v;
        } else if (type == 1) {
            __half h = __float2half(v);
            memcpy(&plane[0][at * 2], &h, 2);
            value[at] = __half2float(h);
        } else {
            __nv_bfloat16 h = __float2bfloat16(v);
            memcpy(&plane[0][at * 2], &h, 2);
            value[at] = __bfloat162float(h);
        }
    }
    void fill_q8(uint32_t r, rng &g)
    {
        uint32_t nb = (m.k + 31) / 32, s = m.stride;
        std::vector<uint8_t> blocks(nb * 34);
        for (uint32_t b = 0; b < nb; b++) {
            __half h = __float2half(0.01f + 0.001f * (float)g.below(100));
            memcpy(&blocks[b * 34], &h, 2);
            for (uint32_t i = 0; i < 32; i++) {
                int c = b * 32 + i < m.k ? g.below(255) - 127 : 0;
                blocks[b * 34 + 2 + i] = (uint8_t)c;
                value[(size_t)r * s + b * 32 + i] = (float)c * __half2float(h);
            }
        }
        bnet_pack_q8_row(blocks.data(), nb, s, (int8_t *)&plane[0][(size_t)r * s],
                         (uint16_t *)&plane[1][(size_t)r * s / 32 * 2]);
    }
    void fill_q6k(uint32_t r, rng &g)
    {
        uint32_t nb = m.stride / 256, s = m.stride;
        std::vector<uint8_t> blocks(nb * 210);
        for (auto &b : blocks)
            b = (uint8_t)g.u32();
        for (uint32_t b = 0; b < nb; b++) {
            __half h = __float2half(0.001f * (float)(1 + g.below(100)));
            memcpy(&blocks[b * 210 + 208], &h, 2);
            for (uint32_t i = 0; i < 256; i++) {
                const uint8_t *p = &blocks[b * 210];
                uint32_t hf = i / 128, gr = i % 128 / 32, l = i % 32;
                int lo = p[64 * hf + l + 32 * (gr & 1)] >> (gr < 2 ? 0 : 4) & 15;
                int hi = p[128 + 32 * hf + l] >> 2 * gr & 3;
                value[(size_t)r * s + b * 256 + i] =
                    __half2float(h) * (float)(int8_t)p[192 + i / 16] * (float)((lo | hi << 4) - 32);
            }
        }
        bnet_pack_q6k_row(blocks.data(), nb, &plane[0][(size_t)r * s / 2],
                          &plane[1][(size_t)r * s / 4], (int8_t *)&plane[2][(size_t)r * s / 16],
                          (uint16_t *)&plane[3][(size_t)r * s / 256 * 2]);
    }
};

SECTION(head_check)
{
    rng g(11);
    (void)half_value;
    for (auto &h : heads)
        for (uint32_t k : {2560u, 300u, 4100u})
            for (uint32_t tokens : {1u, 2u, 3u, 8u})
                for (int norm = 0; norm < 2; norm++) {
                    uint32_t kk = h.type == 4 ? (k + 255) / 256 * 256 : k, n = 997;
                    weights w(h.type, n, kk, g);
                    std::vector<float> x((size_t)tokens * kk), nw(kk);
                    for (auto &e : x)
                        e = g.normal();
                    for (auto &e : nw)
                        e = 1 + 0.1f * g.normal();
                    dev<float> dx(x), dn(nw), y((size_t)tokens * n);
                    bnet_cu_head_args a = {};
                    a.m = w.m, a.x = dx.p, a.norm = norm ? dn.p : nullptr, a.y = y.p;
                    a.n_tokens = tokens, a.ldx = kk, a.ld = n, a.eps = 1e-5f;
                    launch(h.fn, a, bnet_head_launch(&a, (uint32_t)n_sm, shared_max));
                    std::vector<double> want;
                    for (uint32_t t = 0; t < tokens; t++) {
                        double ss = 0;
                        for (uint32_t i = 0; i < kk; i++)
                            ss += (double)x[t * kk + i] * x[t * kk + i];
                        double s = norm ? 1 / sqrt(ss / kk + 1e-5) : 1;
                        for (uint32_t r = 0; r < n; r++) {
                            double o = 0;
                            for (uint32_t i = 0; i < kk; i++)
                                o += (double)w.value[(size_t)r * w.m.stride + i] * x[t * kk + i] *
                                     (norm ? s * nw[i] : 1);
                            want.push_back(o);
                        }
                    }
                    double e = distance(y.get(), want);
                    char what[100];
                    snprintf(what, sizeof what, "head %s k %u tokens %u norm %d: %.1e", h.name, kk,
                             tokens, norm, e);
                    verdict(what, e < 2e-6);
                }
}

SECTION(head_time)
{
    row("head 128256 x 2560, us (TB/s) for 1, 2, 4, 8 tokens");
    rng g(12);
    for (auto &h : heads) {
        size_t n = 128256, k = 2560;
        std::string line;
        std::vector<uint8_t> some(1 << 20);
        for (auto &b : some)
            b = (uint8_t)(g.u32() & 0x3f);
        dev<uint8_t> w((size_t)((double)(n * k) * h.bytes) + 4096);
        for (size_t at = 0; at < w.n; at += some.size())
            CU(cudaMemcpy(w.p + at, some.data(), std::min(some.size(), w.n - at),
                          cudaMemcpyHostToDevice));
        std::vector<float> x(8 * k);
        for (auto &e : x)
            e = g.normal();
        dev<float> dx(x), y(8 * n);
        for (uint32_t tokens : {1u, 2u, 4u, 8u}) {
            bnet_cu_head_args a = {};
            a.m.n_rows = (uint32_t)n, a.m.k = a.m.stride = (uint32_t)k;
            a.m.w[0] = w.p;
            if (h.type >= 3)
                a.m.w[1] = w.p + (h.type == 4 ? n * k / 2 : n * k);
            if (h.type == 4)
                a.m.w[2] = w.p + n * k / 4 * 3, a.m.w[3] = w.p + n * k / 16 * 13;
            a.x = dx.p, a.norm = dx.p, a.y = y.p, a.n_tokens = tokens, a.ldx = (uint32_t)k;
            a.ld = (uint32_t)n, a.eps = 1e-5f;
            double us = time_graph(10, [&](int) {
                launch(h.fn, a, bnet_head_launch(&a, (uint32_t)n_sm, shared_max), true);
            });
            char cell[60];
            snprintf(cell, sizeof cell, " %.1f(%.2f)", us, (double)(n * k) * h.bytes / us * 1e-6);
            line += cell;
        }
        row("%s:%s", h.name, line.c_str());
    }
}

/* ---- the head of batches ---- */

typedef void batch_fn(const bnet_cu_batch_args);
static batch_fn *const of_codes[4][3] = {
    {bnet_head_batch_q8_16, bnet_head_batch_q8_32, bnet_head_batch_q8_64},
    {bnet_head_batch_q6k_16, bnet_head_batch_q6k_32, bnet_head_batch_q6k_64},
    {bnet_head_batch_q8_16_wgmma, bnet_head_batch_q8_32_wgmma, bnet_head_batch_q8_64_wgmma},
    {bnet_head_batch_q6k_16_wgmma, bnet_head_batch_q6k_32_wgmma, bnet_head_batch_q6k_64_wgmma}};

/* By mma, by wgmma; type as heads[]. */
static const struct {
    const char *name;
    int type;
    bool wgmma;
} batches[] = {{"f16", 1, false},     {"f16 wgmma", 1, true}, {"q8", 3, false},
               {"q8 wgmma", 3, true}, {"q6k", 4, false},      {"q6k wgmma", 4, true}};

static void run_batch(bnet_cu_batch_args &a, int type, bool wgmma, bool pdl)
{
    bnet_cu_launch l = bnet_head_batch_launch(&a);
    batch_fn *fn = wgmma ? bnet_head_batch_f16_wgmma : bnet_head_batch_f16;
    l.shared += wgmma ? 1024 : 0;
    a.places = type > 1;
    if (type > 1) {
        l = wgmma ? bnet_head_qwgmma_launch(&a) : bnet_head_qbatch_launch(&a, shared_max);
        fn = of_codes[type - 3 + 2 * wgmma][bnet_head_qbatch_tokens(a.n_tokens) / 32];
    }
    launch(bnet_head_split, a, bnet_head_split_launch(&a), pdl);
    launch(fn, a, l, pdl);
}

SECTION(head_batch_check)
{
    rng g(13);
    for (int type : {1, 3, 4}) /* as heads[] */
        for (uint32_t some : {2560u, 300u})
            for (uint32_t tokens : {9u, 17u, 64u, 70u}) {
                uint32_t k = type == 4 ? (some + 255) / 256 * 256 : some, n = 997;
                uint32_t padded = bnet_head_batch_padded(tokens);
                weights w(type, n, k, g);
                std::vector<float> x((size_t)tokens * k);
                for (auto &e : x)
                    e = g.normal();
                dev<float> dx(x), y((size_t)tokens * n), scale(padded);
                dev<uint16_t> halves((size_t)2 * padded * w.m.stride);
                bnet_cu_batch_args a = {};
                a.m = w.m, a.x = dx.p, a.y = y.p, a.halves = halves.p, a.scale = scale.p;
                a.n_tokens = tokens, a.ldx = k, a.ld = n;
                std::vector<double> want;
                for (uint32_t t = 0; t < tokens; t++)
                    for (uint32_t r = 0; r < n; r++) {
                        double o = 0;
                        for (uint32_t i = 0; i < k; i++)
                            o += (double)w.value[(size_t)r * w.m.stride + i] * x[(size_t)t * k + i];
                        want.push_back(o);
                    }
                for (auto &b : batches) {
                    if (b.type != type)
                        continue;
                    CU(cudaMemset(y.p, 0xCB, y.n * 4));
                    run_batch(a, type, b.wgmma, false);
                    double e = distance(y.get(), want);
                    char what[100];
                    snprintf(what, sizeof what, "head_batch %s k %u tokens %u: %.1e", b.name, k,
                             tokens, e);
                    verdict(what, e < 64 * 1.2e-7); /* the row promises 64 ulp */
                }
            }
}

SECTION(head_batch_time)
{
    uint32_t n = 128256, k = 2560;
    dev<uint16_t> w((size_t)n * k), halves((size_t)2 * 128 * k);
    CU(cudaMemset(w.p, 0x11, w.n * 2));
    dev<float> x(std::vector<float>((size_t)128 * k, 0.5f)), y((size_t)128 * n), scale(128);
    for (auto &b : batches) {
        std::string line;
        for (uint32_t tokens : {16u, 32u, 64u, 128u}) {
            bnet_cu_batch_args a = {};
            const uint8_t *p = (const uint8_t *)w.p;
            size_t all = (size_t)n * k;
            a.m.w[0] = p, a.m.n_rows = n, a.m.k = a.m.stride = k;
            if (b.type > 1)
                a.m.w[1] = p + (b.type == 4 ? all / 2 : all);
            if (b.type == 4)
                a.m.w[2] = p + all / 4 * 3, a.m.w[3] = p + all / 16 * 13;
            a.x = x.p, a.y = y.p, a.halves = halves.p, a.scale = scale.p;
            a.n_tokens = tokens, a.ldx = k, a.ld = n;
            char cell[60];
            snprintf(cell, sizeof cell, " %u: %.1f", tokens,
                     time_graph(10, [&](int) { run_batch(a, b.type, b.wgmma, true); }));
            line += cell;
        }
        row("head of batches, %s 128256 x 2560, us by tokens:%s", b.name, line.c_str());
    }
}
