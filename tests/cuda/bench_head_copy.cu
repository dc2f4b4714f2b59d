/* bench_head_copy.cu - the best logits by a copy of the head in int8: bit for bit those of the head
 * itself, for awkward heads and inputs too; what they cost. */
#include "backend/cuda/batch.h"
#include "backend/cuda/head_copy.h"
#include "backend/cuda/tiles.h"
#include "kbench.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#define HEADS(type)                                                                                \
    __global__ void bnet_head_##type(const bnet_cu_head_args a);                                   \
    __global__ void bnet_screen_##type(const bnet_cu_screen_args a);                               \
    __global__ void bnet_screen_pack_##type(const bnet_cu_screen_args a);                          \
    __global__ void bnet_screen_rest_##type(const bnet_cu_screen_args a);                          \
    __global__ void bnet_screen_first_##type(const bnet_cu_screen_args a);
HEADS(f16) HEADS(bf16) HEADS(f32)
__global__ void bnet_screen_scan_4(const bnet_cu_screen_args a);
__global__ void bnet_screen_scan_8(const bnet_cu_screen_args a);
__global__ void bnet_screen_split(const bnet_cu_screen_args a);
__global__ void bnet_screen_batch_16(const bnet_cu_screen_args a);
__global__ void bnet_screen_batch_32(const bnet_cu_screen_args a);
__global__ void bnet_screen_batch_64(const bnet_cu_screen_args a);
__global__ void bnet_screen_best(const bnet_cu_screen_args a);
__global__ void bnet_screen_best_batch(const bnet_cu_screen_args a);
__global__ void bnet_head_split(const bnet_cu_batch_args a);
__global__ void bnet_head_batch_f16_wgmma(const bnet_cu_batch_args a);
__global__ void bnet_topk_rows(const bnet_cu_sample_args a);
__global__ void bnet_topk_join(const bnet_cu_sample_args a);
__global__ void bnet_topk_part(const bnet_cu_sample_args a);
__global__ void bnet_topk_merge(const bnet_cu_sample_args a);
}

static const struct type {
    const char *name;
    uint32_t bytes;
    void (*head)(const bnet_cu_head_args);
    void (*pick)(const bnet_cu_screen_args);
    void (*pack)(const bnet_cu_screen_args);
    void (*first)(const bnet_cu_screen_args);
    void (*rest)(const bnet_cu_screen_args);
#define TYPE(name, bytes)                                                                          \
    {#name, bytes, bnet_head_##name, bnet_screen_##name, bnet_screen_pack_##name, bnet_screen_first_##name, bnet_screen_rest_##name}
} types[] = {TYPE(f16, 2), TYPE(bf16, 2), TYPE(f32, 4)};

/* A head with its copy, and all that a call takes. */
struct screened {
    const type &t;
    uint32_t n, k, stride, tokens;
    dev<uint8_t> w;
    dev<int8_t> codes;
    dev<bnet_cu_screen_row> rows;
    dev<float> x, y, most, value;
    dev<uint32_t> groups, computed;
    dev<unsigned long long> lists, leaders;
    dev<int32_t> id;
    dev<uint8_t> bytes;
    dev<float> inputs;
    dev<uint32_t> least;
    bnet_cu_head_args head = {};
    bnet_cu_screen_args a = {};
    bnet_cu_launch scan;

    screened(const type &type, uint32_t rows_, uint32_t k_, uint32_t tokens_)
        : t(type), n(rows_), k(k_), stride((k_ + 63) / 64 * 64), tokens(tokens_),
          w((size_t)n * stride * t.bytes), codes(bnet_screen_codes_bytes(n, stride)),
          rows((n + 15) / 16 * 16), x((size_t)tokens * k), y((size_t)tokens * n),
          most((size_t)tokens * bnet_screen_most(n)), value(tokens * 64), groups(tokens * std::max<size_t>(2 * n_sm * 16, bnet_screen_most(n) / 32)),
          computed(tokens), lists((size_t)(tokens < 64 ? 256 : 4 * tokens) * 64),
          leaders((size_t)tokens * ((n + 255) / 256 * 8)), id(tokens * 64),
          bytes((size_t)(stride + 127) / 128 * 128 * 128), inputs(64 * 4), least(tokens)
    {
        head.m.w[0] = w.p, head.m.n_rows = n, head.m.k = k, head.m.stride = stride;
        head.x = x.p, head.y = y.p, head.n_tokens = tokens, head.ldx = k, head.ld = n;
        a.m = head.m, a.codes = codes.p, a.rows = rows.p, a.x = x.p, a.most = most.p;
        a.groups = groups.p, a.lists = lists.p, a.id = id.p, a.value = value.p;
        a.computed = computed.p, a.n_tokens = tokens, a.ldx = k, a.k = 64;
        a.bytes = bytes.p, a.inputs = inputs.p, a.leaders = leaders.p;
        a.least = tokens > BNET_SCREEN_TOKENS ? least.p : nullptr;
        scan = a.least ? bnet_screen_batch_launch(&a, n_sm) : bnet_screen_scan_launch(&a, n_sm);
    }
    void logits()
    {
        for (uint32_t t = 0; t < tokens; t += 8) {
            bnet_cu_head_args h = head;
            h.x += (size_t)t * k, h.y += (size_t)t * n, h.n_tokens = std::min(tokens - t, 8u);
            launch(this->t.head, h, bnet_head_launch(&h, n_sm, shared_max));
        }
    }
    void put(const std::vector<float> &f) /* [n][k] */
    {
        std::vector<uint8_t> b(w.n);
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t i = 0; i < k; i++) {
                float v = f[(size_t)r * k + i];
                size_t at = (size_t)r * stride + i;
                if (t.bytes == 4)
                    ((float *)b.data())[at] = v;
                else if (t.head == bnet_head_f16)
                    ((__half *)b.data())[at] = __float2half_rn(v);
                else
                    ((__nv_bfloat16 *)b.data())[at] = __float2bfloat16_rn(v);
            }
        put(b);
    }
    void put(const std::vector<uint8_t> &b)
    {
        w.put(b);
        launch(t.pack, a, bnet_screen_pack_launch(&a));
    }
    void screen(bool pdl, int stages = 4) /* 1: the scan, 2: the leaders too, 3: rows too */
    {
        if (a.least) {
            launch(bnet_screen_split, a, bnet_screen_split_launch(&a), pdl);
            launch(a.columns == 32   ? bnet_screen_batch_16
                   : a.columns == 64 ? bnet_screen_batch_32
                                     : bnet_screen_batch_64,
                   a, scan, pdl);
            if (stages > 1)
                launch(t.first, a, bnet_screen_first_launch(&a), pdl);
        } else {
            launch(tokens > 4 ? bnet_screen_scan_8 : bnet_screen_scan_4, a, scan, pdl);
        }
        if (stages > 2)
            launch(a.least ? t.rest : t.pick, a, bnet_screen_pick_launch(&a), pdl);
        if (stages > 3)
            launch(a.least ? bnet_screen_best_batch : bnet_screen_best, a, bnet_screen_best_launch(&a), pdl);
    }
};

/* Where a row's bound lies. */
static size_t most_at(const screened &s, uint32_t token, uint32_t row)
{
    uint32_t r = row % 256, group = row / 256 * 8 + r / 128 * 4 + r % 64 / 16;
    return s.a.least ? ((size_t)token * s.a.n_groups + group) * 32 + r % 8 * 4 + r % 128 / 64 * 2 + r % 16 / 8
                     : (size_t)token * s.n + row;
}

/* Against the head's own logits, sorted here. */
static void check(screened &s, const std::string &what)
{
    s.computed.zero();
    s.logits();
    s.screen(false);
    std::vector<float> y = s.y.get(), most = s.most.get(), value = s.value.get();
    std::vector<int32_t> id = s.id.get();
    std::vector<uint32_t> computed = s.computed.get();
    size_t bad = 0, above = 0, rows = 0;
    for (uint32_t t = 0; t < s.tokens; t++) {
        std::vector<uint32_t> order;
        const float *l = &y[(size_t)t * s.n];
        rows += computed[t];
        for (uint32_t i = 0; i < s.n; i++) {
            if (std::isfinite(l[i]))
                order.push_back(i);
            above += std::isfinite(l[i]) && !(most[most_at(s, t, i)] >= l[i]);
        }
        std::stable_sort(order.begin(), order.end(), [&](uint32_t p, uint32_t q) { return l[p] > l[q]; });
        for (uint32_t i = 0; i < 64; i++)
            bad += i < order.size() ? id[64 * t + i] != (int32_t)order[i] || value[64 * t + i] != l[order[i]]
                                    : id[64 * t + i] != -1;
    }
    char line[160];
    snprintf(line, sizeof line, "screen %s %s %u x %u, %u tokens: %.1f rows computed", s.t.name, what.c_str(), s.n,
             s.k, s.tokens, (double)rows / s.tokens);
    verdict(line, bad == 0 && above == 0,
            std::to_string(bad) + " of the best wrong, " + std::to_string(above) + " above what they are at most");
}

/* Heads: 0 normal, 1 equal rows, 2 huge rows, 3 zeros, 4 not finite, 5 overflowing, 6 integers (ties), 7 one outlier
 * column, 8 tiny. Inputs: 0 normal, 1 zeros, 2 with an infinity, 3 with a NaN, 4 subnormal, 5 huge, 6 an outlier. */
static void fill(screened &s, int head, int input, rng &g)
{
    std::vector<float> w((size_t)s.n * s.k), x((size_t)s.tokens * s.k);
    for (uint32_t r = 0; r < s.n; r++)
        for (uint32_t i = 0; i < s.k; i++) {
            float v = g.normal();
            v = head == 1 && r ? w[i] : head == 3 ? 0 : head == 6 ? (float)g.below(5) - 2 : v;
            v *= head == 2 && r % 97 == 5 ? 1000.0f : head == 8 ? 1e-7f : 1.0f;
            v *= head == 5 && r % 3 == 1 ? (s.t.head == bnet_head_f16 ? 6e4f : 3e38f) : 1.0f;
            v = head == 7 && i == 3 ? v * 300 : v;
            v = head == 4 && i == 7 && r % 50 == 3 ? (r % 100 == 3 ? INFINITY : NAN) : v;
            w[(size_t)r * s.k + i] = v;
        }
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = g.normal() * (input == 4 ? 1e-42f : input == 5 ? 1e30f : 1.0f);
        x[i] = input == 1 ? 0 : head == 6 && input == 0 ? (float)g.below(7) - 3 : x[i];
        if (i % s.k == s.k / 2)
            x[i] = input == 2 ? INFINITY : input == 3 ? NAN : input == 6 ? 1e4f : x[i];
    }
    s.put(w);
    s.x.put(x);
}

SECTION(screen_check)
{
    rng g(71);
    const uint32_t shapes[][3] = {{1, 64, 1},    {40, 100, 1},   {64, 256, 2},    {65, 64, 3},    {1000, 320, 4},
                                  {4099, 512, 5}, {33001, 96, 8}, {5000, 2560, 1}, {700, 12288, 1}, {40007, 256, 7},
                                  {1, 64, 9},    {100, 100, 16},  {4099, 512, 17}, {40007, 224, 64}, {5000, 2560, 33}};
    for (auto &t : types)
        for (auto &h : shapes) {
            screened s(t, h[0], h[1], h[2]);
            fill(s, 0, 0, g);
            check(s, "normal");
        }
}

SECTION(screen_awkward)
{
    rng g(73);
    const char *heads[] = {"normal", "equal rows", "huge rows", "zeros", "not finite", "overflowing", "ties", "outlier column", "tiny"};
    const char *inputs[] = {"", ", zeros", ", an infinity", ", a NaN", ", subnormal", ", huge", ", an outlier"};
    for (auto &t : types)
        for (uint32_t tokens : {1u, 6u, 20u}) {
            screened s(t, 4243, 200, tokens);
            for (int h = 0; h < 9; h++)
                for (int i = 0; i < 7; i++)
                    if (h == 0 || i == 0) {
                        fill(s, h, i, g);
                        check(s, std::string(heads[h]) + inputs[i]);
                    }
        }
}

/* The head itself and the best of it, as passes do it without a copy. */
static double plain(screened &s)
{
    bnet_cu_sample_args b = {};
    b.logits = s.y.p, b.id = s.id.p, b.value = s.value.p, b.n = b.ld = s.n, b.k = 64, b.rows = s.tokens;
    dev<unsigned long long> work((size_t)s.tokens * BNET_TOPK_SLICES * 64);
    dev<uint16_t> halves((size_t)2 * 64 * s.stride);
    dev<float> scale(64);
    b.work = work.p;
    bnet_cu_batch_args h = {};
    h.m = s.head.m, h.x = s.x.p, h.y = s.y.p, h.halves = halves.p, h.scale = scale.p;
    h.n_tokens = s.tokens, h.ldx = s.k, h.ld = s.n;
    bnet_cu_launch product = bnet_head_batch_launch(&h);
    product.shared += 1024;
    return time_graph(10, [&](int) {
        if (s.tokens > 8) {
            launch(bnet_head_split, h, bnet_head_split_launch(&h), true);
            launch(bnet_head_batch_f16_wgmma, h, product, true);
        } else {
            launch(s.t.head, s.head, bnet_head_launch(&s.head, n_sm, shared_max), true);
        }
        launch(s.tokens < 4 ? bnet_topk_part : bnet_topk_rows, b,
               s.tokens < 4 ? bnet_topk_part_launch(s.tokens) : bnet_topk_rows_launch(&b), true);
        launch(s.tokens < 4 ? bnet_topk_merge : bnet_topk_join, b,
               s.tokens < 4 ? bnet_topk_merge_launch(s.tokens) : bnet_topk_join_launch(&b), true);
    });
}

/* Few and small, for the checkers of memory and races. */
SECTION(screen_race)
{
    rng g(74);
    for (uint32_t tokens : {1u, 6u, 20u, 40u}) {
        screened s(types[0], 3001, 320, tokens);
        fill(s, 0, 0, g);
        check(s, "small");
    }
}

SECTION(screen_time)
{
    rng g(72);
    std::vector<__half> bank(1 << 20);
    std::vector<uint8_t> w((size_t)128256 * 2560 * 2);
    for (auto &v : bank)
        v = __float2half_rn(g.normal() * 0.06f);
    for (size_t i = 0; i < w.size(); i += 512) /* as synthetic models have it */
        memcpy(&w[i], &bank[g.below(4096) * 256], 512);
    for (uint32_t tokens : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
        screened s(types[0], 128256, 2560, tokens);
        std::vector<float> x(s.x.n);
        for (auto &v : x)
            v = g.normal();
        s.x.put(x), s.put(w);
        check(s, "synthetic");
        s.a.computed = nullptr;
        double t[4];
        for (int i = 1; i <= 4; i++)
            t[i - 1] = time_graph(10, [&](int) { s.screen(true, i); });
        row("best of 128256 x 2560 f16, %u tokens, us: head and topk %.1f; scan %.1f, with leaders %.1f, with rows %.1f, "
            "all %.1f", tokens, plain(s), t[0], t[1], t[2], t[3]);
    }
}
