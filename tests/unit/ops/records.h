/* records.h - synthetic records, capabilities and queries for tests of the registry. */
#ifndef BNET_TEST_RECORDS_H
#define BNET_TEST_RECORDS_H

#include "test.h"

#include "device/cpu_features.h"
#include "device/cuda_needs.h"
#include "ops/open.h"
#include "ops/registry.h"

static inline void nothing(void) {}

/* Most tests add records of (softmax, tl1, ...), a key that no row for a CPU has. */
static inline bnet_kernel_record record_of(const char *id, const char *op, const char *format,
                                           const char *dtype, bitnet_kernel_tier tier)
{
    return (bnet_kernel_record){.id = id,
                                .device = BNET_DEV_CPU,
                                .op = bnet_op_find(op),
                                .format = bnet_format_find(format),
                                .dtype = bnet_dtype_find(dtype),
                                .isa = "scalar",
                                .tier = tier,
                                .alignment = 1,
                                .abi = BITNET_KERNEL_ABI,
                                .need_name = bnet_cpu_need_name,
                                .agreement = "exact",
                                .fn = nothing};
}

static inline bnet_capabilities cpu_with(uint32_t features)
{
    return (bnet_capabilities){
        .device = BNET_DEV_CPU, .has = features, .builds = 1u << BNET_DEV_CPU};
}

static inline bnet_capabilities cuda_with(int major, int minor)
{
    bnet_gpu_caps g = bnet_gpu_capabilities(major, minor);
    bnet_capabilities c = {.device = BNET_DEV_CUDA,
                           .has = bnet_cuda_has(major, minor, g.tensor_cores),
                           .builds = 1u << BNET_DEV_CPU | 1u << BNET_DEV_CUDA};
    snprintf(c.level, sizeof c.level, "compute capability %d.%d", major, minor);
    return c;
}

static inline bnet_kernel_query ask(const char *op, const char *format, const char *dtype,
                                    uint64_t m, uint64_t n, uint64_t k)
{
    return (bnet_kernel_query){.op = bnet_op_find(op),
                               .format = bnet_format_find(format),
                               .dtype = bnet_dtype_find(dtype),
                               .m = m,
                               .n = n,
                               .k = k};
}

static inline bnet_registry *registry_new(void)
{
    bnet_registry *r = NULL;
    bitnet_error err = {0};
    if (bnet_registry_open(&r, &err) != BITNET_OK)
        fail_msg("registry: %s", err.message);
    return r;
}

static inline void must_add(bnet_registry *r, bnet_kernel_record k)
{
    bitnet_error err = {0};
    if (bnet_registry_add(r, &k, &err) != BITNET_OK)
        fail_msg("add %s: %s", k.id ? k.id : "?", err.message);
}

/* The id of what is selected, "" if nothing is. */
static inline const char *selected(const bnet_registry *r, bnet_capabilities c, bnet_kernel_query q)
{
    const bnet_kernel_record *k = NULL;
    return bnet_registry_select(r, &c, &q, &k, NULL) == BITNET_OK ? k->id : "";
}

static inline void must_select(const bnet_registry *r, bnet_capabilities c, bnet_kernel_query q,
                               const char *id)
{
    const char *got = selected(r, c, q);
    if (strcmp(got, id) != 0)
        fail_msg("(%s, %s, %s) m %llu n %llu k %llu: selected '%s', wanted '%s'",
                 bnet_op_name(q.op), bnet_format_name(q.format), bnet_dtype_name(q.dtype),
                 (unsigned long long)q.m, (unsigned long long)q.n, (unsigned long long)q.k, got,
                 id);
}

#endif
