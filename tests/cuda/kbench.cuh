/* kbench.cuh - helpers of the CUDA kernel check: device memory, random data, graphs of launches,
 * medians. Every call is checked; a failed one is told and ends the section, not the program. */
#ifndef KBENCH_CUH
#define KBENCH_CUH

#include "backend/cuda/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

#define CU(call)                                                                                   \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess)                                                                     \
            throw failure(std::string(#call) + ": " + cudaGetErrorString(e_));                     \
    } while (0)

struct rng {
    uint64_t s;
    explicit rng(uint64_t seed) : s(seed * 0x9e3779b97f4a7c15u + 1) {}
    uint32_t u32()
    {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        return (uint32_t)(s >> 32);
    }
    int below(int n) { return (int)(u32() % (uint32_t)n); }
    float uniform() { return (float)(u32() >> 8) / 16777216.0f * 2 - 1; }
    float normal()
    {
        float t = 0;
        for (int i = 0; i < 4; i++)
            t += uniform();
        return t * 0.866f;
    }
};

/* Device memory of n elements, freed at the end of the scope; poisoned with 0xCB. */
template <typename T> struct dev {
    T *p = nullptr;
    size_t n = 0;
    explicit dev(size_t count) : n(count)
    {
        CU(cudaMalloc(&p, count * sizeof(T) + 256));
        CU(cudaMemset(p, 0xCB, count * sizeof(T) + 256));
    }
    explicit dev(const std::vector<T> &v) : dev(v.size())
    {
        CU(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    dev(const dev &) = delete;
    ~dev() { cudaFree(p); }
    void zero() { CU(cudaMemset(p, 0, n * sizeof(T))); }
    void put(const std::vector<T> &v)
    {
        CU(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        CU(cudaDeviceSynchronize());
        CU(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

extern cudaStream_t stream;
extern int n_sm;
extern uint32_t shared_max; /* dynamic bytes of a block */

template <typename A>
void launch(void (*kernel)(A), const A &args, bnet_cu_launch l, bool pdl = false,
            uint32_t cluster = 0) /* blocks of a cluster along x; 0: as the kernel says */
{
    if (l.shared > BNET_CU_PLAIN_SHARED)
        CU(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)l.shared));
    cudaLaunchAttribute attr[2];
    attr[1].id = cudaLaunchAttributeClusterDimension;
    attr[1].val.clusterDim = {cluster, 1, 1};
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(l.grid[0], l.grid[1], l.grid[2]);
    c.blockDim = dim3(l.block);
    c.dynamicSmemBytes = l.shared;
    c.stream = stream;
    c.attrs = pdl ? attr : attr + 1;
    c.numAttrs = (pdl ? 1 : 0) + (cluster ? 1 : 0);
    A copy = args;
    void *p[] = {&copy};
    cudaError_t e = cudaLaunchKernelExC(&c, (const void *)kernel, p);
    if (e == cudaSuccess)
        return;
    const char *name = "?";
    cudaFuncGetName(&name, (const void *)kernel);
    char what[200];
    snprintf(what, sizeof what, "%s grid %u %u %u block %u shared %u: %s", name, l.grid[0],
             l.grid[1], l.grid[2], l.block, l.shared, cudaGetErrorString(e));
    cudaGetLastError();
    throw failure(what);
}

/* Median microseconds of one `work` call inside a replayed graph of n of them. */
static inline double time_graph(int n, const std::function<void(int)> &work)
{
    cudaGraph_t g;
    cudaGraphExec_t x;
    cudaEvent_t a, b;
    CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
        for (int i = 0; i < n; i++)
            work(i);
    } catch (...) {
        cudaStreamEndCapture(stream, &g);
        throw;
    }
    CU(cudaStreamEndCapture(stream, &g));
    CU(cudaGraphInstantiate(&x, g, 0));
    CU(cudaEventCreate(&a));
    CU(cudaEventCreate(&b));
    std::vector<float> t;
    for (int r = 0; r < 9; r++) {
        float ms;
        CU(cudaEventRecord(a, stream));
        CU(cudaGraphLaunch(x, stream));
        CU(cudaEventRecord(b, stream));
        CU(cudaEventSynchronize(b));
        CU(cudaEventElapsedTime(&ms, a, b));
        if (r >= 2)
            t.push_back(ms);
    }
    std::sort(t.begin(), t.end());
    cudaEventDestroy(a), cudaEventDestroy(b);
    cudaGraphExecDestroy(x), cudaGraphDestroy(g);
    return t[t.size() / 2] * 1000.0 / n;
}

void row(const char *format, ...) __attribute__((format(printf, 1, 2)));
void verdict(const std::string &what, bool ok, const std::string &detail = "");
double distance(const std::vector<float> &a, const std::vector<double> &b); /* |a-b| / |b| */

struct section {
    const char *name;
    void (*run)();
    section *next;
    static section *first;
    section(const char *n, void (*f)()) : name(n), run(f), next(first) { first = this; }
};
#define SECTION(name)                                                                              \
    static void name();                                                                            \
    static section name##_section(#name, name);                                                    \
    static void name()

#endif
