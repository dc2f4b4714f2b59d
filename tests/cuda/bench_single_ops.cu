/* bench_single_ops.cu - vectors, float matrices, quantising: against plain C++. */
#include "kbench.cuh"

#include "backend/cuda/matmul_i2s.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#define VEC(name) __global__ void bnet_##name(const bnet_cu_vec_args a);
VEC(add) VEC(mul) VEC(relu2) VEC(silu) VEC(glu_relu2) VEC(glu_silu) VEC(softmax)
VEC(to_f16) VEC(to_bf16) VEC(from_f16) VEC(from_bf16)
#define MAT(name) __global__ void bnet_##name(const bnet_cu_matmul_args a);
MAT(matmul_f16_nt) MAT(matmul_bf16_nt) MAT(matmul_bf16_nn) MAT(wmma_matmul_f16)
MAT(matmul_f32_nn)
#define QUANT(name) __global__ void bnet_quantize_##name(const bnet_cu_quantize_args a);
QUANT(scales) QUANT(i2s) QUANT(tl1) QUANT(tl2)
__global__ void bnet_qk256_gemv(const bnet_cu_qk256_args a);
__global__ void bnet_matmul_i2s(const bnet_cu_matmul_i2s_args a);
__global__ void bnet_wmma_matmul_i2s(const bnet_cu_matmul_i2s_args a);
}

static std::vector<float> normals(size_t n, rng &g)
{
    std::vector<float> v(n);
    for (auto &e : v)
        e = g.normal() * 3;
    return v;
}

SECTION(vec_check)
{
    rng g(31);
    const struct {
        const char *name;
        void (*fn)(const bnet_cu_vec_args);
        double (*want)(double x, double z);
    } list[] = {
        {"add", bnet_add, [](double x, double z) { return x + z; }},
        {"mul", bnet_mul, [](double x, double z) { return x * z; }},
        {"relu2", bnet_relu2, [](double x, double) { return x > 0 ? x * x : 0; }},
        {"silu", bnet_silu, [](double x, double) { return x / (1 + exp(-x)); }},
        {"glu_relu2", bnet_glu_relu2, [](double x, double z) { return x > 0 ? x * x * z : 0; }},
        {"glu_silu", bnet_glu_silu, [](double x, double z) { return x / (1 + exp(-x)) * z; }}};
    for (auto &v : list)
        for (size_t n : {1ul, 1000ul, 5000001ul}) {
            std::vector<float> x = normals(n, g), z = normals(n, g);
            dev<float> dx(x), dy(n), dz(z);
            bnet_cu_vec_args a = {dx.p, dz.p, dy.p, n};
            launch(v.fn, a, bnet_vec_launch(n));
            std::vector<double> want;
            for (size_t i = 0; i < n; i++)
                want.push_back(v.want(x[i], z[i]));
            double e = distance(dy.get(), want);
            verdict(std::string(v.name) + " " + std::to_string(n) + ": " + std::to_string(e), e < 1e-6);
        }
    for (uint32_t n : {1u, 33u, 4097u}) {
        std::vector<float> x = normals(3 * n, g);
        dev<float> dx(x), y(3 * n);
        bnet_cu_vec_args a = {dx.p, nullptr, y.p, n};
        launch(bnet_softmax, a, bnet_cu_launch{{3, 1, 1}, 256, 0});
        std::vector<double> want;
        for (uint32_t r = 0; r < 3; r++) {
            double sum = 0;
            for (uint32_t i = 0; i < n; i++)
                sum += exp((double)x[r * n + i]);
            for (uint32_t i = 0; i < n; i++)
                want.push_back(exp((double)x[r * n + i]) / sum);
        }
        double e = distance(y.get(), want);
        verdict("softmax " + std::to_string(n) + ": " + std::to_string(e), e < 1e-6);
    }
}

/* Every half there is and back, and floats on and beside the middle between two. */
SECTION(convert_check)
{
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); i++)
        all[i] = (uint16_t)i;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        dev<uint16_t> h(all), back(4 * all.size());
        dev<float> f(all.size());
        bnet_cu_vec_args a = {h.p, nullptr, f.p, all.size()};
        launch(bf16 ? bnet_from_bf16 : bnet_from_f16, a, bnet_vec_launch(a.n));
        std::vector<float> got = f.get(), more;
        size_t bad = 0;
        for (size_t i = 0; i < all.size(); i++) {
            __half_raw hr;
            hr.x = all[i];
            uint32_t bits = (uint32_t)all[i] << 16;
            float want;
            memcpy(&want, &bits, 4);
            if (!bf16)
                want = __half2float(__half(hr));
            bad += memcmp(&want, &got[i], 4) != 0 && want == want;
            memcpy(&bits, &got[i], 4);
            for (uint32_t d : {0u, bf16 ? 0x7fffu : 0xfffu, bf16 ? 0x8000u : 0x1000u,
                               bf16 ? 0x8001u : 0x1001u}) {
                uint32_t b = bits + d;
                float x;
                memcpy(&x, &b, 4);
                more.push_back(x == x ? x : 0.0f);
            }
        }
        dev<float> dm(more);
        a = {dm.p, nullptr, back.p, more.size()};
        launch(bf16 ? bnet_to_bf16 : bnet_to_f16, a, bnet_vec_launch(a.n));
        std::vector<uint16_t> codes = back.get();
        for (size_t i = 0; i < more.size(); i++) {
            uint32_t b;
            memcpy(&b, &more[i], 4);
            uint16_t want = (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
            if (!bf16) {
                __half h16 = __float2half_rn(more[i]);
                memcpy(&want, &h16, 2);
            }
            bad += want != codes[i];
        }
        verdict(bf16 ? "convert bf16" : "convert f16", bad == 0, std::to_string(bad) + " differ");
    }
}

SECTION(matmul_check)
{
    rng g(32);
    const struct {
        const char *name;
        void (*fn)(const bnet_cu_matmul_args);
        int bf16, nn, f32;
    } list[] = {{"f16_nt", bnet_matmul_f16_nt, 0, 0, 0},
                {"bf16_nt", bnet_matmul_bf16_nt, 1, 0, 0}, {"bf16_nn", bnet_matmul_bf16_nn, 1, 1, 0},
                {"wmma", bnet_wmma_matmul_f16, 0, 1, 0},   {"f32_nn", bnet_matmul_f32_nn, 0, 1, 1}};
    const uint32_t sizes[][3] = {{1, 1, 1}, {64, 128, 32}, {65, 130, 47}, {200, 96, 333}, {128, 256, 512}};
    for (auto &v : list)
        for (auto &s : sizes)
            for (uint32_t odd = 0; odd < 2; odd++) {
                bnet_cu_matmul_args a = {};
                a.m = s[0], a.n = s[1], a.k = s[2];
                a.lda = (a.k + 7) / 8 * 8 + odd, a.ldb = ((v.nn ? a.n : a.k) + 7) / 8 * 8 + odd;
                a.ldc = a.n + odd;
                std::vector<float> x = normals((size_t)a.m * a.lda, g);
                std::vector<float> y = normals((size_t)(v.nn ? a.k : a.n) * a.ldb, g);
                std::vector<uint16_t> hx(x.size()), hy(y.size());
                auto round = [&](std::vector<float> &f, std::vector<uint16_t> &h) {
                    for (size_t i = 0; i < f.size() && !v.f32; i++) {
                        __half p = __float2half(f[i]);
                        __nv_bfloat16 q = __float2bfloat16(f[i]);
                        memcpy(&h[i], v.bf16 ? (void *)&q : (void *)&p, 2);
                        f[i] = v.bf16 ? __bfloat162float(q) : __half2float(p);
                    }
                };
                round(x, hx), round(y, hy);
                dev<uint16_t> da(hx), db(hy);
                dev<float> fa(x), fb(y), c((size_t)a.m * a.ldc);
                a.a = v.f32 ? (const uint16_t *)fa.p : da.p, a.b = v.f32 ? (const uint16_t *)fb.p : db.p;
                a.c = c.p;
                launch(v.fn, a, bnet_matmul_launch(&a));
                std::vector<float> got = c.get(), out;
                std::vector<double> want;
                for (uint32_t i = 0; i < a.m; i++)
                    for (uint32_t j = 0; j < a.n; j++) {
                        double sum = 0;
                        for (uint32_t k = 0; k < a.k; k++)
                            sum += (double)x[(size_t)i * a.lda + k] *
                                   (v.nn ? y[(size_t)k * a.ldb + j] : y[(size_t)j * a.ldb + k]);
                        want.push_back(sum), out.push_back(got[(size_t)i * a.ldc + j]);
                    }
                double e = distance(out, want);
                char what[100];
                snprintf(what, sizeof what, "matmul %s %ux%ux%u odd %u: %.1e", v.name, a.m, a.n, a.k,
                         odd, e);
                verdict(what, e < 2e-6);
            }
}

static int plain_trit(uint32_t rule, float x, float scale)
{
    float q = x / scale;
    return rule ? (q > 0.5f) - (q < -0.5f) : (int)fmaxf(-1, fminf(1, rintf(q)));
}

static std::vector<uint8_t> plain_pack(int type, const std::vector<int> &t)
{
    size_t n = t.size(), triples = (n + 2) / 3;
    auto at = [&](size_t i) { return i < n ? t[i] : 0; };
    std::vector<uint8_t> out;
    if (type < 2)
        for (size_t i = 0; i < n; i += 4) {
            int b = type == 0 ? (at(i) + 1) | (at(i + 1) + 1) << 2 | (at(i + 2) + 1) << 4 | (at(i + 3) + 1) << 6
                              : (3 * at(i) + at(i + 1) + 4) << 4 | (3 * at(i + 2) + at(i + 3) + 4);
            out.push_back((uint8_t)b);
        }
    auto triple = [&](size_t i) { return 9 * at(3 * i) + 3 * at(3 * i + 1) + at(3 * i + 2); };
    for (size_t i = 0; type == 2 && i < triples; i += 2)
        out.push_back((uint8_t)(abs(triple(i)) << 4 | abs(triple(i + 1))));
    for (size_t i = 0; type == 2 && i < triples; i += 8) {
        int s = 0;
        for (size_t j = 0; j < 8; j++)
            s |= (triple(i + j) < 0) << j;
        out.push_back((uint8_t)s);
    }
    return out;
}

/* Integers, so equal: any edge of the tiles, the largest sums. */
SECTION(matmul_i2s_check)
{
    rng g(35);
    const uint32_t shapes[][3] = {{1, 1, 1}, {32, 32, 32}, {33, 65, 130}, {64, 8, 1000}, {8, 40, 131072}};
    for (auto &s : shapes)
        for (int wmma = 0; wmma < 2; wmma++) {
            uint32_t m = s[0], n = s[1], k = s[2];
            std::vector<int8_t> x((size_t)m * k);
            std::vector<uint8_t> y((size_t)k * n);
            for (auto &e : x)
                e = k > 100000 ? -128 : (int8_t)g.u32();
            for (auto &e : y)
                e = k > 100000 ? 0 : (uint8_t)(g.u32() % 5);
            dev<int8_t> dx(x);
            dev<uint8_t> dy(y);
            dev<float> c((size_t)m * n);
            bnet_cu_matmul_i2s_args a = {dx.p, dy.p, c.p, m, n, k, 0};
            if (wmma)
                launch(bnet_wmma_matmul_i2s, a,
                       bnet_cu_launch{{bnet_cu_div(n, 32), bnet_cu_div(m, 32), 1}, 128, 0});
            else
                bnet_matmul_i2s<<<dim3(bnet_cu_div(n, 32), bnet_cu_div(m, 32)), dim3(32, 32),
                                  bnet_matmul_i2s_shared(32)>>>(a);
            std::vector<float> got = c.get();
            size_t bad = 0;
            for (uint32_t i = 0; i < m; i++)
                for (uint32_t j = 0; j < n; j++) {
                    int sum = 0;
                    for (uint32_t l = 0; l < k; l++) {
                        int code = y[(size_t)l * n + j];
                        sum += x[(size_t)i * k + l] * (code <= 2 ? code - 1 : 0);
                    }
                    bad += got[(size_t)i * n + j] != (float)sum;
                }
            verdict(std::string(wmma ? "wmma" : "plain") + " i2s " + std::to_string(m) + "x" +
                        std::to_string(n) + "x" + std::to_string(k),
                    bad == 0, std::to_string(bad) + " differ");
        }
}

SECTION(quantize_check)
{
    rng g(33);
    for (uint64_t n : {1ul, 23ul, 256ul, 10007ul})
        for (uint32_t n_scales : {1u, 7u})
            for (uint32_t rule = 0; rule < 2; rule++) {
                std::vector<float> x = normals(n, g);
                dev<float> dx(x), scales(n_scales);
                dev<uint8_t> out(n + 64);
                bnet_cu_quantize_args a = {dx.p, out.p, scales.p, n, (n + n_scales - 1) / n_scales,
                                           n_scales, rule};
                launch(bnet_quantize_scales, a, bnet_quantize_scales_launch(n_scales));
                std::vector<float> s = scales.get();
                size_t bad = 0;
                for (uint32_t b = 0; b < n_scales; b++) {
                    double sum = 0, most = 0, count = 0;
                    for (uint64_t i = b * a.block; i < std::min(n, (b + 1) * a.block); i++)
                        sum += fabs(x[i]), most = fmax(most, fabs(x[i])), count++;
                    double want = count == 0 ? 0 : rule ? most / 1.5 : fmax(sum / count, 1e-5);
                    bad += fabs(s[b] - want) > 1e-6 * fabs(want);
                }
                std::vector<int> t;
                for (uint64_t i = 0; i < n; i++)
                    t.push_back(plain_trit(rule, x[i], s[i / a.block]));
                for (int type = 0; type < 3; type++) {
                    launch(type == 0   ? bnet_quantize_i2s
                           : type == 1 ? bnet_quantize_tl1
                                       : bnet_quantize_tl2,
                           a, bnet_quantize_launch(n));
                    std::vector<uint8_t> got = out.get(), want = plain_pack(type, t);
                    for (size_t i = 0; i < want.size(); i++)
                        bad += got[i] != want[i];
                }
                verdict("quantize " + std::to_string(n) + " scales " + std::to_string(n_scales) +
                            " rule " + std::to_string(rule),
                        bad == 0, std::to_string(bad) + " differ");
            }
}

SECTION(qk256_check)
{
    rng g(34);
    static const int value[3][4] = {{-1, 0, 1, 0}, {-2, -1, 0, 1}, {-2, -1, 1, 2}};
    for (uint32_t cols : {256u, 300u, 2560u})
        for (uint32_t map = 0; map < 3; map++)
            for (int scaled = 0; scaled < 2; scaled++) {
                uint32_t rows = 37, blocks = (cols + 255) / 256;
                std::vector<uint8_t> w((size_t)rows * blocks * 64);
                for (auto &b : w)
                    b = (uint8_t)g.u32();
                std::vector<float> x = normals(cols, g), s = normals((size_t)rows * blocks, g);
                dev<uint8_t> dw(w);
                dev<float> dx(x), ds(s), y(rows);
                bnet_cu_qk256_args a = {dw.p, scaled ? ds.p : nullptr, dx.p, y.p, rows, cols, map, 0};
                launch(bnet_qk256_gemv, a, bnet_qk256_launch(rows));
                std::vector<double> want(rows);
                for (uint32_t r = 0; r < rows; r++)
                    for (uint32_t c = 0; c < cols; c++) {
                        size_t b = (size_t)r * blocks + c / 256;
                        want[r] += (scaled ? s[b] : 1.0) * x[c] *
                                   value[map][w[b * 64 + c % 256 / 4] >> 2 * (c % 4) & 3];
                    }
                double e = distance(y.get(), want);
                verdict("qk256 " + std::to_string(cols) + " map " + std::to_string(map), e < 1e-6,
                        std::to_string(e));
            }
}
