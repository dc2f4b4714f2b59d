/* bench_vec.cu - norm, quantisation, rotation, sampling: checked as the CPU's scalar kernels
 * compute them, then timed. */
#include "backend/cuda/tiles.h"
#include "kbench.cuh"

extern "C" {
__global__ void bnet_norm_quantize(const bnet_cu_norm_args a);
__global__ void bnet_argmax(const bnet_cu_sample_args a);
__global__ void bnet_topk_part(const bnet_cu_sample_args a);
__global__ void bnet_topk_merge(const bnet_cu_sample_args a);
__global__ void bnet_topk_rows(const bnet_cu_sample_args a);
__global__ void bnet_topk_join(const bnet_cu_sample_args a);
}

static std::vector<float> normals(size_t n, rng &g)
{
    std::vector<float> v(n);
    for (auto &e : v)
        e = g.normal();
    return v;
}

static void check_norm(uint32_t k, uint32_t rows, bool norm, rng &g)
{
    uint32_t ld = k + (k % 2 ? 0 : 4), stride = bnet_cu_div(k, 128) * 128;
    std::vector<float> x = normals((size_t)rows * ld, g), w = normals(k, g);
    dev<float> dx(x), dw(w), y((size_t)rows * k), scale(rows);
    dev<int8_t> q((size_t)rows * stride);
    dev<int32_t> sum(rows);
    bnet_cu_norm_args a = {};
    a.x = dx.p, a.norm = norm ? dw.p : nullptr, a.y = y.p, a.eps = 1e-5f;
    a.act = {q.p, scale.p, sum.p, stride, 0};
    a.k = k, a.ld = ld;
    launch(bnet_norm_quantize, a, bnet_norm_launch(rows));
    std::vector<float> gy = y.get(), gs = scale.get();
    std::vector<int8_t> gq = q.get();
    std::vector<int32_t> gsum = sum.get();
    size_t bad = 0, codes = 0;
    for (uint32_t r = 0; r < rows; r++) {
        std::vector<float> h(k);
        double ss = 0;
        for (uint32_t i = 0; i < k; i++) {
            h[i] = x[(size_t)r * ld + i];
            ss += (double)h[i] * h[i];
        }
        double s = norm ? 1 / sqrt(ss / k + (double)1e-5f) : 1;
        float top = 1e-5f;
        for (uint32_t i = 0; i < k; i++) {
            h[i] = (float)((double)h[i] * s * (norm ? w[i] : 1.0f));
            top = fmaxf(top, fabsf(h[i]));
            bad += !(fabsf(gy[(size_t)r * k + i] - h[i]) <= 1e-6f * fabsf(h[i]));
        }
        int total = 0;
        for (uint32_t i = 0; i < stride; i++) {
            int c = i < k ? (int)lrint((double)h[i] * (127.0 / (double)top)) : 0;
            codes += gq[(size_t)r * stride + i] != c;
            total += gq[(size_t)r * stride + i];
        }
        bad += total != gsum[r] || fabsf(gs[r] - top / 127.0f) > 1e-6f * top;
    }
    char what[120];
    snprintf(what, sizeof what, "norm_quantize k %u rows %u norm %d: %zu wrong, %zu codes", k, rows,
             norm, bad, codes);
    verdict(what, bad == 0 && codes <= rows / 4);
}

SECTION(norm_check)
{
    rng g(31);
    for (uint32_t k : {2560u, 6912u, 100u, 333u, 10240u})
        for (int norm = 0; norm < 2; norm++)
            check_norm(k, 3, norm, g);
}

SECTION(sample_check)
{
    rng g(32);
    for (uint32_t n : {128256u, 1000u, 50u, 300001u}) {
        uint32_t rows = 3, k = 40;
        std::vector<float> x((size_t)rows * n);
        for (auto &e : x)
            e = (float)g.below(200000) * 0.01f - 1000;
        x[7] = INFINITY, x[n + 3] = NAN;
        dev<float> dx(x), value(rows * k);
        dev<int32_t> id(rows * k), next(rows), pos(rows);
        dev<unsigned long long> work((size_t)rows * BNET_TOPK_SLICES * 64), zero(rows * 2);
        zero.zero(), pos.zero();
        bnet_cu_sample_args a = {};
        a.logits = dx.p, a.id = id.p, a.value = value.p, a.work = work.p, a.n = a.ld = n, a.k = k;
        a.rows = rows;
        launch(bnet_topk_part, a, bnet_topk_part_launch(rows));
        launch(bnet_topk_merge, a, bnet_topk_merge_launch(rows));
        std::vector<int32_t> got = id.get();
        std::vector<float> gv = value.get();
        id.zero(), value.zero();
        launch(bnet_topk_rows, a, bnet_topk_rows_launch(&a));
        launch(bnet_topk_join, a, bnet_topk_join_launch(&a));
        verdict("sample of rows " + std::to_string(n), got == id.get() && gv == value.get());
        a.work = zero.p, a.next_id = next.p, a.next_pos = pos.p;
        for (int twice = 0; twice < 2; twice++)
            launch(bnet_argmax, a, bnet_argmax_launch(rows));
        std::vector<int32_t> best = id.get(), moved = pos.get(), nid = next.get();
        size_t bad = 0;
        for (uint32_t r = 0; r < rows; r++) {
            std::vector<uint32_t> order;
            for (uint32_t i = 0; i < n; i++)
                if (std::isfinite(x[(size_t)r * n + i]))
                    order.push_back(i);
            std::stable_sort(order.begin(), order.end(), [&](uint32_t p, uint32_t q) {
                return x[(size_t)r * n + p] > x[(size_t)r * n + q];
            });
            for (uint32_t i = 0; i < std::min<uint32_t>(k, (uint32_t)order.size()); i++)
                bad += got[r * k + i] != (int32_t)order[i] ||
                       gv[r * k + i] != x[(size_t)r * n + order[i]];
            bad += best[r] != (int32_t)order[0] || nid[r] != best[r] || moved[r] != 2;
        }
        verdict("sample n " + std::to_string(n), bad == 0, std::to_string(bad) + " wrong");
    }
}

SECTION(vec_time)
{
    rng g(33);
    uint32_t n = 128256;
    std::string line;
    for (uint32_t rows : {1u, 8u, 64u}) {
        dev<float> x(normals((size_t)rows * n, g));
        dev<int32_t> id(rows * 64);
        dev<unsigned long long> work((size_t)rows * BNET_TOPK_SLICES * 64), zero(rows * 2);
        zero.zero();
        bnet_cu_sample_args a = {};
        a.logits = x.p, a.id = id.p, a.n = a.ld = n, a.k = 40, a.rows = rows, a.work = zero.p;
        double t0 =
            time_graph(30, [&](int) { launch(bnet_argmax, a, bnet_argmax_launch(rows), true); });
        a.work = work.p;
        double t1 = time_graph(30, [&](int) {
            launch(bnet_topk_part, a, bnet_topk_part_launch(rows), true);
            launch(bnet_topk_merge, a, bnet_topk_merge_launch(rows), true);
        });
        double t2 = time_graph(30, [&](int) {
            launch(bnet_topk_rows, a, bnet_topk_rows_launch(&a), true);
            launch(bnet_topk_join, a, bnet_topk_join_launch(&a), true);
        });
        char cell[80];
        snprintf(cell, sizeof cell, " %u rows: argmax %.1f topk %.1f by rows %.1f;", rows, t0, t1,
                 t2);
        line += cell;
    }
    row("sampling of %u, us:%s", n, line.c_str());
    line.clear();
    for (uint32_t k : {2560u, 6912u})
        for (uint32_t rows : {1u, 64u, 512u}) {
            dev<float> x(normals((size_t)rows * k, g)), w(normals(k, g)), scale(rows);
            dev<int8_t> q((size_t)rows * k);
            dev<int32_t> sum(rows);
            bnet_cu_norm_args a = {};
            a.x = a.up = x.p, a.norm = w.p, a.act = {q.p, scale.p, sum.p, k, 0}, a.k = a.ld = k;
            a.eps = 1e-5f;
            char cell[80];
            snprintf(cell, sizeof cell, " %ux%u %.2f", rows, k, time_graph(40, [&](int) {
                         launch(bnet_norm_quantize, a, bnet_norm_launch(rows), true);
                     }));
            line += cell;
        }
    row("norm + quantise, us:%s", line.c_str());
}
