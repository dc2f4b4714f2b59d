/* bench_w2.cu - ternary GEMV and GEMM: exact against integer sums, then timed over matrices that
 * together exceed the L2 cache. */
#include "backend/cuda/kernels/w2_units.cuh"
#include "backend/cuda/w2_few_tokens.h"
#include "backend/cuda/tiles.h"
#include "kbench.cuh"
#include "pack.h"

#include <cstdarg>

extern "C" {
__global__ void bnet_w2_gemv_ldg(const bnet_cu_gemv_args a);
__global__ void bnet_w2_one(const bnet_cu_few_args a);
__global__ void bnet_w2_one_norm(const bnet_cu_few_args a);
__global__ void bnet_w2_few(const bnet_cu_few_args a);
__global__ void bnet_w2_gemm_mma_64(const bnet_cu_gemm_args a);
__global__ void bnet_w2_gemm_wgmma_64(const bnet_cu_gemm_args a);
__global__ void bnet_w2_gemm_wgmma_128(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_128(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_256(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_128_16(const bnet_cu_gemm_args a);
__global__ void bnet_w2_tiles_128_32(const bnet_cu_gemm_args a);
__global__ void bnet_w2_prompt(const bnet_cu_gemm_args a);
__global__ void bnet_w2_prompt_96(const bnet_cu_gemm_args a);
__global__ void bnet_norm_tiles(const bnet_cu_norm_args a);
}

typedef void gemm_fn(const bnet_cu_gemm_args);

/* A random matrix of parts, its trits on the host and its units on the device. */
struct matrix {
    std::vector<uint32_t> rows;
    uint32_t k;
    bool paired;
    std::vector<int8_t> trits; /* parts one after the other */
    bnet_cu_w2 m = {};
    dev<uint8_t> *w = nullptr;
    std::vector<dev<float> *> y;

    matrix(std::vector<uint32_t> r, uint32_t k_, bool p, uint32_t tokens, rng &g)
        : rows(r), k(k_), paired(p)
    {
        uint32_t total = 0, tiles = 0;
        for (uint32_t n : rows)
            total += n;
        trits.resize((size_t)total * k);
        for (auto &t : trits)
            t = (int8_t)(g.below(3) - 1);
        m.n_chunks = bnet_cu_div(k, 128);
        m.n_parts = (uint32_t)rows.size();
        m.paired = p;
        for (size_t i = 0; i < rows.size(); i++) {
            m.part[i].first_tile = p ? 0 : tiles;
            m.part[i].n_rows = rows[i];
            m.part[i].scale = 0.01f + 0.01f * (float)i;
            m.part[i].ld = rows[i];
            y.push_back(new dev<float>((size_t)rows[i] * tokens));
            m.part[i].y = y[i]->p;
            tiles += bnet_cu_div(rows[i], p ? 8 : 16);
        }
        m.n_tiles = p ? bnet_cu_div(rows[0], 8) : tiles;
        std::vector<uint8_t> b(bnet_w2_bytes(m.n_tiles, m.n_chunks), BNET_W2_ZERO);
        size_t at = 0;
        for (uint32_t i = 0; i < rows.size(); at += (size_t)rows[i] * k, i++)
            if (p)
                bnet_w2_pack_paired(b.data(), m.n_chunks, i, 0, rows[i], &trits[at], k, k);
            else
                bnet_w2_pack(b.data(), m.n_chunks, m.part[i].first_tile, 0, rows[i], &trits[at], k,
                             k);
        w = new dev<uint8_t>(b);
        m.w = w->p;
    }
    ~matrix()
    {
        delete w;
        for (auto p : y)
            delete p;
    }
    void poison(uint32_t tokens)
    {
        for (size_t i = 0; i < y.size(); i++)
            CU(cudaMemset(y[i]->p, 0xCB, (size_t)rows[i] * tokens * 4));
    }
};

struct acts {
    uint32_t k, stride, tokens;
    std::vector<int8_t> q;
    std::vector<float> scale;
    std::vector<int32_t> sum;
    dev<int8_t> *dq;
    dev<float> *ds;
    dev<int32_t> *dsum;
    bnet_dev_act8 a;
    mutable std::vector<int> dots; /* of the one matrix this is used with, when first wanted */
    acts(uint32_t k_, uint32_t t, rng &g) : k(k_), stride(bnet_cu_div(k_, 128) * 128), tokens(t)
    {
        q.assign((size_t)t * stride, 0);
        scale.resize(t);
        sum.assign(t, 0);
        for (uint32_t i = 0; i < t; i++) {
            scale[i] = 0.001f * (float)(1 + g.below(100));
            for (uint32_t j = 0; j < k; j++) {
                q[(size_t)i * stride + j] = (int8_t)(g.below(255) - 127);
                sum[i] += q[(size_t)i * stride + j];
            }
        }
        dq = new dev<int8_t>(q);
        ds = new dev<float>(scale);
        dsum = new dev<int32_t>(sum);
        a = {dq->p, ds->p, dsum->p, stride, 0};
    }
    ~acts() { delete dq, delete ds, delete dsum; }
};

static int dot(const matrix &m, size_t row, const int8_t *q)
{
    int s = 0;
    for (uint32_t j = 0; j < m.k; j++)
        s += m.trits[row * m.k + j] * q[j];
    return s;
}

/* Wrong elements of every part, for a sample of tokens. slack: by how much integer sums may differ
 * (codes next to a rounding boundary). */
static size_t compare(const matrix &m, const acts &x, uint32_t epilogue, float before,
                      float slack = 0)
{
    size_t bad = 0, at = 0, n_rows = m.trits.size() / m.k;
    if (x.dots.empty())
        for (uint32_t t = 0; t<x.tokens; t += x.tokens> 40 ? 13 : 1)
            for (size_t r = 0; r < n_rows; r++)
                x.dots.push_back(dot(m, r, &x.q[(size_t)t * x.stride]));
    for (size_t p = 0; p < m.rows.size(); at += m.rows[p], p++) {
        std::vector<float> y = m.y[p]->get();
        if (epilogue >= BNET_CU_RELU2 && p == 1)
            break;
        for (uint32_t t = 0, i = 0; t<x.tokens; t += x.tokens> 40 ? 13 : 1, i++)
            for (uint32_t r = 0; r < m.rows[p]; r++) {
                const int *sum = &x.dots[i * n_rows];
                float f = (float)sum[at + r] * (x.scale[t] * m.m.part[p].scale);
                float off = slack * x.scale[t] * m.m.part[p].scale + slack * 1e-6f * fabsf(f);
                if (epilogue == BNET_CU_ADD)
                    f = before + f;
                if (epilogue == BNET_CU_RELU2) {
                    float u = (float)sum[m.rows[0] + r] * (x.scale[t] * m.m.part[1].scale);
                    f = f > 0 ? f : 0;
                    off = (f + off) * (f + off) * (fabsf(u) + off) - f * f * fabsf(u);
                    f = f * f * u;
                }
                bad += !(fabsf(y[(size_t)t * m.rows[p] + r] - f) <= (slack > 0 ? off : 0));
            }
    }
    return bad;
}

static void prefill(matrix &m, uint32_t tokens, float v)
{
    for (size_t i = 0; i < m.y.size(); i++)
        m.y[i]->put(std::vector<float>((size_t)m.rows[i] * tokens, v));
}

/* ldg: on every chip, x2: two blocks per multiprocessor; one: one token by bit planes, a few, what
 * the backend launches from 8.0 on. False: this one does not serve it. */
static const char *const gemvs[] = {"ldg", "ldgx2", "one"};
static bool run_gemv(int which, const bnet_cu_gemv_args &a, bool pdl = false)
{
    if (which < 2) {
        launch(bnet_w2_gemv_ldg, a, bnet_w2_gemv_launch(&a, (uint32_t)(n_sm * (which + 1))), pdl);
        return true;
    }
    bnet_cu_few_args o = {};
    o.g = a;
    bnet_cu_launch l = bnet_few_launch(&o, (uint32_t)n_sm);
    if (!l.grid[0] || (a.x && a.k % 4))
        return false;
    launch(a.n_tokens > 1 ? bnet_w2_few : a.x ? bnet_w2_one_norm : bnet_w2_one, o, l, pdl);
    return true;
}
static const struct {
    const char *name;
    gemm_fn *fn;
    uint32_t tokens;
    int wgmma;
} gemms[] = {{"mma_64", bnet_w2_gemm_mma_64, 64, 0},
             {"wgmma_64", bnet_w2_gemm_wgmma_64, 64, 1},
             {"wgmma_128", bnet_w2_gemm_wgmma_128, 128, 1}};

struct shape {
    std::vector<uint32_t> rows;
    uint32_t k;
    bool paired;
    uint32_t epilogue;
};
static const shape shapes[] = {{{640, 160, 160}, 640, false, BNET_CU_STORE},
                               {{1000, 1000}, 2560, true, BNET_CU_RELU2},
                               {{77}, 300, false, BNET_CU_ADD},
                               {{2560}, 6912, false, BNET_CU_ADD},
                               {{33, 33}, 129, true, BNET_CU_STORE},
                               {{5000}, 100, false, BNET_CU_STORE}};
/* Of one token: every way a matrix can be dealt out to blocks and warps. */
static const shape single[] = {{{40000}, 130, false, BNET_CU_ADD},
                               {{6912, 6912}, 2560, true, BNET_CU_RELU2},
                               {{3200, 640, 640}, 5120, false, BNET_CU_STORE},
                               {{48}, 14336, false, BNET_CU_STORE},
                               {{48}, 15000, false, BNET_CU_STORE}};

static void check_gemv(const shape &s, uint32_t tokens, rng &g)
{
    matrix m(s.rows, s.k, s.paired, tokens, g);
    acts x(s.k, tokens, g);
    bnet_cu_gemv_args a = {};
    a.m = m.m, a.act = x.a, a.k = s.k, a.n_tokens = tokens, a.epilogue = s.epilogue;
    for (int v = 0; v < 3; v++) {
        m.poison(tokens);
        if (s.epilogue == BNET_CU_ADD)
            prefill(m, tokens, 1.25f);
        if (!run_gemv(v, a))
            continue;
        size_t bad = compare(m, x, s.epilogue, 1.25f);
        char what[120];
        snprintf(what, sizeof what, "gemv %s %ux%u parts %zu tokens %u", gemvs[v], s.rows[0], s.k,
                 s.rows.size(), tokens);
        verdict(what, bad == 0, bad ? std::to_string(bad) + " differ" : "");
    }
}

SECTION(gemv_check)
{
    rng g(1);
    for (const shape &s : shapes)
        for (uint32_t tokens : {1u, 2u, 5u, 8u})
            check_gemv(s, tokens, g);
    for (const shape &s : single)
        check_gemv(s, 1, g);
}

/* rmsnorm and quantisation as the CPU's scalar kernels */
static void quantised(const std::vector<float> &x, const float *w, float eps,
                      std::vector<int8_t> &q, float *scale)
{
    size_t n = x.size();
    std::vector<float> h(x);
    if (w) {
        double acc[8] = {};
        for (size_t i = 0; i < n; i++)
            acc[i % 8] += (double)x[i] * x[i];
        double t =
            ((acc[0] + acc[4]) + (acc[2] + acc[6])) + ((acc[1] + acc[5]) + (acc[3] + acc[7]));
        double s = 1.0 / sqrt(t / (double)n + (double)eps);
        for (size_t i = 0; i < n; i++)
            h[i] = (float)((double)x[i] * s * (double)w[i]);
    }
    float top = 1e-5f;
    for (float v : h)
        top = fmaxf(top, fabsf(v));
    double s = 127.0 / (double)top;
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)lrint(fmin(fmax((double)h[i] * s, -128.0), 127.0));
    *scale = top / 127.0f;
}

SECTION(gemv_norm_check)
{
    rng g(2);
    for (const shape &s :
         {shapes[0], shapes[1], shapes[3], single[0], single[3],
          shape{{48}, 10000, false, BNET_CU_STORE}, shape{{64}, 333, false, BNET_CU_STORE}})
        for (int with_norm = 0; with_norm < 2; with_norm++) {
            matrix m(s.rows, s.k, s.paired, 1, g);
            acts x(s.k, 1, g);
            std::vector<float> v(s.k), w(s.k);
            for (uint32_t i = 0; i < s.k; i++)
                v[i] = g.normal() * 3, w[i] = 1 + 0.2f * g.normal();
            x.q.assign(x.stride, 0);
            x.dots.clear();
            std::vector<int8_t> q(s.k);
            quantised(v, with_norm ? w.data() : nullptr, 1e-5f, q, &x.scale[0]);
            std::copy(q.begin(), q.end(), x.q.begin());
            dev<float> dv(v), dw(w);
            bnet_cu_gemv_args a = {};
            a.m = m.m, a.x = dv.p, a.norm = with_norm ? dw.p : nullptr, a.eps = 1e-5f;
            a.k = s.k, a.n_tokens = 1, a.epilogue = s.epilogue;
            for (int f = 0; f < 3; f++) {
                m.poison(1);
                if (s.epilogue == BNET_CU_ADD)
                    prefill(m, 1, -0.5f);
                if (!run_gemv(f, a))
                    continue;
                size_t bad = compare(m, x, s.epilogue, -0.5f, 4);
                char what[120];
                snprintf(what, sizeof what, "gemv+norm %s %ux%u norm %d", gemvs[f], s.rows[0], s.k,
                         with_norm);
                verdict(what, bad == 0, bad ? std::to_string(bad) + " differ" : "");
            }
        }
}

SECTION(gemm_check)
{
    rng g(3);
    for (const shape &s : shapes)
        for (uint32_t tokens : {1u, 17u, 64u, 200u, 300u}) {
            if (tokens > 64 && s.k > 3000)
                continue;
            matrix m(s.rows, s.k, s.paired, tokens, g);
            acts x(s.k, tokens, g);
            for (auto &v : gemms)
                for (uint32_t splits : {1u, 3u}) {
                    if (splits > m.m.n_chunks)
                        continue;
                    bnet_cu_gemm_args a = {};
                    a.m = m.m, a.act = x.a, a.n_tokens = tokens, a.epilogue = s.epilogue;
                    a.splits = splits;
                    dev<int32_t> work(bnet_w2_gemm_work_bytes(&a, v.tokens) / 4 + 1);
                    dev<uint32_t> counters(4096);
                    work.zero(), counters.zero();
                    a.work = work.p, a.counters = counters.p;
                    m.poison(tokens);
                    size_t bad = 0;
                    for (int twice = 0; twice < 2; twice++) {
                        if (s.epilogue == BNET_CU_ADD)
                            prefill(m, tokens, 0.75f);
                        launch(v.fn, a, bnet_w2_gemm_launch(&a, v.tokens, v.wgmma));
                        bad += compare(m, x, s.epilogue, 0.75f);
                    }
                    char what[120];
                    snprintf(what, sizeof what, "gemm %s %ux%u parts %zu tokens %u splits %u",
                             v.name, s.rows[0], s.k, s.rows.size(), tokens, splits);
                    verdict(what, bad == 0, bad ? std::to_string(bad) + " differ" : "");
                }
        }
}

/* The same activations in the order of tiles.h. */
static std::vector<int8_t> tiled(const std::vector<int8_t> &q, uint32_t stride, uint32_t tokens)
{
    uint32_t n = bnet_cu_div(tokens, BNET_TILE_TOKENS) * BNET_TILE_TOKENS;
    std::vector<int8_t> v((size_t)n * stride, 77);
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t c = 0; c < stride; c++) {
            v[bnet_tile_place(tokens, stride, t, c)] = q[(size_t)t * stride + c];
        }
    return v;
}

SECTION(tiles_check)
{
    rng g(21);
    for (auto &s : shapes)
        for (uint32_t tokens : {1u, 9u, 27u, 64u, 150u, 300u}) {
            matrix m(s.rows, s.k, s.paired, tokens, g);
            acts x(s.k, tokens, g);
            uint32_t height = bnet_tile_tokens(tokens);
            auto by_128 = height == 16   ? bnet_w2_tiles_128_16
                          : height == 32 ? bnet_w2_tiles_128_32
                                         : bnet_w2_tiles_128;
            dev<int8_t> q(tiled(x.q, x.stride, tokens));
            for (uint32_t rows :
                 {96u, 0u, 128u, 256u}) /* 0, 96: for prompts, by 128 or 96 tokens */
                for (uint32_t splits : {1u, 2u, 3u, 4u, 5u, 8u}) {
                    bnet_cu_gemm_args a = {};
                    a.m = m.m, a.act = x.a, a.n_tokens = tokens, a.epilogue = s.epilogue;
                    a.act.q = q.p, a.splits = splits;
                    if (splits > m.m.n_chunks || (rows <= 96 && splits > BNET_PROMPT_SPLITS) ||
                        (rows != 128 && height < BNET_TILE_TOKENS))
                        continue;
                    if (rows > 96 &&
                        (bnet_cu_div(m.m.n_chunks, splits) > BNET_W2_TILES_CHUNKS ||
                         bnet_w2_tiles_shared(m.m.n_chunks, rows, splits, height) > shared_max))
                        continue;
                    size_t bad = 0;
                    for (int twice = 0; twice < 2; twice++) {
                        m.poison(tokens);
                        if (s.epilogue == BNET_CU_ADD)
                            prefill(m, tokens, 0.75f);
                        if (rows > 96)
                            launch(rows == 128 ? by_128 : bnet_w2_tiles_256, a,
                                   bnet_w2_tiles_launch(&a, rows, height), twice, splits);
                        else
                            launch(rows ? bnet_w2_prompt_96 : bnet_w2_prompt, a,
                                   bnet_w2_prompt_launch(&a, rows ? 96 : 128), twice, splits);
                        bad += compare(m, x, s.epilogue, 0.75f);
                    }
                    char what[120];
                    snprintf(what, sizeof what,
                             "tiles of %u rows %ux%u parts %zu tokens %u splits %u", rows,
                             s.rows[0], s.k, s.rows.size(), tokens, splits);
                    verdict(what, bad == 0, bad ? std::to_string(bad) + " differ" : "");
                }
        }
}

/* Codes into tiles; near a boundary of rounding they may differ by one. */
SECTION(norm_tiles_check)
{
    rng g(22);
    for (uint32_t k : {2560u, 6912u, 300u, 77u, 8193u})
        for (int with_norm = 0; with_norm < 2; with_norm++) {
            uint32_t tokens = k == 300 ? 13 : 70, stride = bnet_cu_div(k, 128) * 128, ld = k + (k == 300 ? 1 : 0);
            std::vector<float> f((size_t)tokens * ld), w(k);
            for (auto &v : f)
                v = g.normal();
            for (auto &v : w)
                v = 1 + 0.3f * g.normal();
            dev<float> dx(f), dw(w), scale(tokens);
            dev<int32_t> sum(tokens);
            dev<int8_t> q((size_t)128 * stride);
            bnet_cu_norm_args a = {};
            a.x = dx.p, a.norm = with_norm ? dw.p : nullptr, a.k = k, a.ld = ld, a.eps = 1e-5f;
            a.act = {q.p, scale.p, sum.p, stride, 0};
            launch(bnet_norm_tiles, a, bnet_norm_tiles_launch(tokens), true);
            std::vector<int8_t> got = q.get(), want((size_t)tokens * stride), dif;
            std::vector<int32_t> sums = sum.get();
            std::vector<float> scales = scale.get();
            size_t bad = 0, off = 0;
            std::vector<int8_t> flat((size_t)tokens * stride);
            for (uint32_t t = 0; t < tokens; t++) {
                double ss = 0, top = 1e-5;
                for (uint32_t i = 0; i < k; i++)
                    ss += (double)f[(size_t)t * ld + i] * f[(size_t)t * ld + i];
                double inv = with_norm ? 1 / sqrt(ss / k + 1e-5) : 1;
                for (uint32_t i = 0; i < k; i++)
                    top = std::max(
                        top, fabs((double)f[(size_t)t * ld + i] * inv * (with_norm ? w[i] : 1)));
                bad += fabs(scales[t] - top / 127) > 2e-6 * top / 127;
                int total = 0;
                for (uint32_t i = 0; i < stride; i++) {
                    int8_t c = got[bnet_tile_place(tokens, stride, t, i)];
                    double v = i < k ? (double)f[(size_t)t * ld + i] * inv *
                                           (with_norm ? w[i] : 1) * 127 / top
                                     : 0;
                    bad += fabs(c - v) > 0.5 + 1e-4;
                    off += c != (int)nearbyint(v);
                    total += c;
                }
                bad += total != sums[t];
            }
            char what[120];
            snprintf(what, sizeof what, "norm_tiles %ux%u norm %d: %zu codes on the other side",
                     tokens, k, with_norm, off);
            verdict(what, bad == 0, bad ? std::to_string(bad) + " wrong" : "");
        }
}

/* ---- times ---- */

/* A matrix to be timed: random units in several copies, more than the L2 cache keeps. */
struct timed {
    size_t bytes, copies;
    dev<uint8_t> w;
    bnet_cu_w2 m = {};
    timed(const uint32_t s[2], size_t total, rng &g)
        : bytes((size_t)s[0] * s[1] / 4), copies(total / bytes + 1), w(bytes * copies)
    {
        std::vector<uint8_t> some(1 << 20); /* every byte made of codes 0..2 */
        for (auto &b : some)
            b = (uint8_t)(g.below(3) | g.below(3) << 2 | g.below(3) << 4 | g.below(3) << 6);
        for (size_t at = 0; at < w.n; at += some.size())
            CU(cudaMemcpy(w.p + at, some.data(), std::min(some.size(), w.n - at),
                          cudaMemcpyHostToDevice));
        m.n_tiles = s[0] / 16, m.n_chunks = s[1] / 128, m.n_parts = 1;
        m.part[0] = {0, s[0], 0.01f, s[0], nullptr};
    }
    bnet_cu_w2 copy(int i) const
    {
        bnet_cu_w2 c = m;
        c.w = w.p + (size_t)i % copies * bytes;
        return c;
    }
};

/* What goes in and out: floats, their codes, a norm, and the outputs of the matrix. */
struct timed_tokens {
    acts x;
    std::vector<float> f;
    dev<float> dx, norm, y;
    bnet_cu_norm_args n = {};
    timed_tokens(timed &t, uint32_t k, uint32_t tokens, rng &g)
        : x(k, tokens, g), f(normals((size_t)k * tokens, g)), dx(f), norm(f),
          y((size_t)t.m.part[0].n_rows * tokens)
    {
        t.m.part[0].y = y.p;
        n.x = dx.p, n.norm = norm.p, n.k = n.ld = k, n.eps = 1e-5f, n.act = x.a;
    }
    static std::vector<float> normals(size_t n, rng &g)
    {
        std::vector<float> f(n);
        for (auto &v : f)
            v = g.normal();
        return f;
    }
    bnet_cu_gemm_args gemm(const timed &t, uint32_t splits) const
    {
        bnet_cu_gemm_args a = {};
        a.m = t.m, a.act = x.a, a.n_tokens = x.tokens, a.splits = splits;
        return a;
    }
};

static std::string cell(const char *format, ...)
{
    char text[80];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return text;
}

static double tops(const uint32_t s[2], uint32_t tokens, double us)
{
    return 2.0 * s[0] * s[1] * tokens / us * 1e-6;
}

SECTION(gemv_time)
{
    rng g(4);
    const uint32_t list[][2] = {{3840, 2560}, {2560, 2560},  {13824, 2560},
                                {2560, 6912}, {3200, 10240}, {20480, 3200}};
    row("GEMV cold, us (TB/s); pdl: programmatic launch; n: norm inside; t4, t8: tokens");
    for (auto &s : list) {
        timed t(s, 300000000, g);
        timed_tokens x(t, s[1], 8, g);
        std::string line;
        for (int v = 0; v < 3; v++)
            for (int kind = 0; kind < 4; kind++) /* act8 of 1, of 8 tokens, norm inside, 4 tokens */
                for (int pdl = 0; pdl < 2; pdl++) {
                    bnet_cu_gemv_args a = {};
                    a.k = s[1], a.epilogue = BNET_CU_STORE, a.eps = 1e-5f, a.act = x.x.a;
                    a.n_tokens = kind == 1 ? 8 : kind == 3 ? 4 : 1;
                    a.x = kind == 2 ? x.dx.p : nullptr;
                    a.norm = kind == 2 ? x.norm.p : nullptr;
                    a.m = t.copy(0);
                    if (!run_gemv(v, a))
                        continue;
                    double us = time_graph(120, [&](int i) {
                        a.m = t.copy(i);
                        run_gemv(v, a, pdl);
                    });
                    line += cell(" %s%s%s %.2f(%.3f)", gemvs[v],
                                 kind == 1   ? "t8"
                                 : kind == 2 ? "n"
                                 : kind == 3 ? "t4"
                                             : "",
                                 pdl ? "+pdl" : "", us, (double)t.bytes / us * 1e-6);
                }
        row("%ux%u:%s", s[0], s[1], line.c_str());
    }
}

SECTION(gemm_time)
{
    rng g(5);
    const uint32_t list[][2] = {{13824, 2560}, {2560, 6912}, {3840, 2560}, {2560, 2560}};
    row("GEMM us (TOPS), s: split K");
    for (auto &s : list) {
        timed t(s, 100000000, g);
        for (uint32_t tokens : {16u, 64u, 512u, 2048u}) {
            timed_tokens x(t, s[1], tokens, g);
            dev<int32_t> work(64 << 20);
            dev<uint32_t> counters(65536);
            work.zero(), counters.zero();
            std::string line;
            for (auto &v : gemms)
                for (uint32_t splits : {1u, 2u, 4u}) {
                    bnet_cu_gemm_args a = x.gemm(t, splits);
                    a.work = work.p, a.counters = counters.p;
                    if ((splits > 1 && tokens > 600) || (v.tokens > 64 && tokens <= 64))
                        continue;
                    double us = time_graph(tokens > 600 ? 20 : 60, [&](int i) {
                        a.m = t.copy(i);
                        launch(v.fn, a, bnet_w2_gemm_launch(&a, v.tokens, v.wgmma));
                    });
                    line += cell(" %s%s %.1f(%.0f)", v.name,
                                 splits == 1   ? ""
                                 : splits == 2 ? "s2"
                                               : "s4",
                                 us, tops(s, tokens, us));
                }
            row("%ux%u T=%u:%s", s[0], s[1], tokens, line.c_str());
        }
    }
}

static const uint32_t matrices[][2] = {{3840, 2560}, {2560, 2560}, {13824, 2560}, {2560, 6912}};

static double norm_us(const timed_tokens &x)
{
    return time_graph(
        40, [&](int) { launch(bnet_norm_tiles, x.n, bnet_norm_tiles_launch(x.x.tokens), true); });
}

SECTION(tiles_time)
{
    rng g(23);
    row("GEMM of tiles, 64 tokens, us: rows/splits without, with norm before (both pdl)");
    for (auto &s : matrices) {
        timed t(s, 200000000, g);
        timed_tokens x(t, s[1], 64, g);
        std::string line;
        for (uint32_t rows : {128u, 256u})
            for (uint32_t splits : {1u, 2u, 3u, 4u, 5u, 6u, 8u}) {
                bnet_cu_gemm_args a = x.gemm(t, splits);
                bnet_cu_launch l = bnet_w2_tiles_launch(&a, rows, 64);
                if (bnet_cu_div(a.m.n_chunks, splits) > BNET_W2_TILES_CHUNKS ||
                    l.shared > shared_max || l.grid[0] * l.grid[1] > 200 ||
                    l.grid[0] * l.grid[1] < 50)
                    continue;
                double us[2];
                for (int with = 0; with < 2; with++)
                    us[with] = time_graph(100, [&](int i) {
                        a.m = t.copy(i);
                        if (with)
                            launch(bnet_norm_tiles, x.n, bnet_norm_tiles_launch(64), true);
                        launch(rows == 128 ? bnet_w2_tiles_128 : bnet_w2_tiles_256, a, l, true,
                               splits);
                    });
                line +=
                    cell(" %u/%u(%u) %.2f,%.2f", rows, splits, l.grid[0] * l.grid[1], us[0], us[1]);
            }
        row("%ux%u: norm %.2f;%s", s[0], s[1], norm_us(x), line.c_str());
    }
}

/* As a prompt launches it: `*` is what the backend chooses. */
SECTION(prompt_time)
{
    rng g(24);
    row("GEMM of prompts, us (TOPS) by tokens of a tile/splits, * the backend's; norm before it");
    for (auto &s : matrices) {
        timed t(s, 100000000, g);
        for (uint32_t tokens : {128u, 512u, 2048u}) {
            timed_tokens x(t, s[1], tokens, g);
            bnet_cu_gemm_args best = x.gemm(t, 1);
            uint32_t best_of = bnet_w2_prompt_shape(&best, (uint32_t)n_sm);
            std::string line;
            for (uint32_t of : {128u, 96u})
                for (uint32_t splits = 1; splits <= BNET_PROMPT_SPLITS; splits++) {
                    bnet_cu_gemm_args a = x.gemm(t, splits);
                    bool chosen = best_of == of && best.splits == splits;
                    if (!chosen && splits > 2 && tokens > 128)
                        continue;
                    double us = time_graph(40, [&](int i) {
                        a.m = t.copy(i);
                        launch(of == 96 ? bnet_w2_prompt_96 : bnet_w2_prompt, a,
                               bnet_w2_prompt_launch(&a, of), true, splits);
                    });
                    line += cell(" %u/%u%s %.1f(%.0f)", of, splits, chosen ? "*" : "", us,
                                 tops(s, tokens, us));
                }
            row("%ux%u T=%u: norm %.2f;%s", s[0], s[1], tokens, norm_us(x), line.c_str());
        }
    }
}
