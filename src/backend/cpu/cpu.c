/* cpu.c - opening the CPU backend, its buffers, its table. */
#include "backend/cpu/cpu.h"

static void cpu_close(bnet_backend *b)
{
    bnet_cpu_cache_close((cpu_backend *)b);
    bnet_cpu_memory_close((cpu_backend *)b);
    bnet_free(b);
}

static bnet_buffer *cpu_buffer_new(bnet_backend *b, size_t n_bytes)
{
    (void)b;
    bnet_buffer *buf = bnet_alloc(sizeof *buf);
    void *data = bnet_calloc(n_bytes, 1);
    if (!buf || !data) {
        bnet_free(buf);
        bnet_free(data);
        return NULL;
    }
    *buf = (bnet_buffer){n_bytes, data};
    return buf;
}

static void cpu_buffer_free(bnet_backend *b, bnet_buffer *buf)
{
    (void)b;
    bnet_free(buf->data);
    bnet_free(buf);
}

static const void *cpu_read(bnet_backend *b, bnet_buffer *buf, size_t n_bytes)
{
    (void)b;
    assert(n_bytes <= buf->n_bytes);
    (void)n_bytes;
    return buf->data;
}

static void cpu_write(bnet_backend *b, bnet_buffer *buf, const void *bytes, size_t n_bytes)
{
    (void)b;
    assert(n_bytes <= buf->n_bytes);
    memcpy(buf->data, bytes, n_bytes);
}

/* Every op was complete when it returned, and none can fail. */
static bitnet_status cpu_sync(bnet_backend *b, bitnet_error *err)
{
    (void)b;
    (void)err;
    return BITNET_OK;
}

static const bnet_weight_info *cpu_weight_info(const bnet_weight *w)
{
    return &w->info;
}

static void cpu_kernels(const bnet_backend *b, bnet_use_fn *each, void *user)
{
    const cpu_backend *be = (const cpu_backend *)b;
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(be->registry, i)) != NULL; i++) {
        uint64_t calls = atomic_load_explicit(&be->calls[k->slot], memory_order_relaxed);
        if (calls)
            each(user, &(bitnet_kernel_use){k->id, calls});
    }
}

static uint64_t cpu_fallbacks(const bnet_backend *b)
{
    return atomic_load_explicit(&((const cpu_backend *)b)->n_fallbacks, memory_order_relaxed);
}

static const bnet_backend_vtable cpu_vtable = {
    .name = "cpu",
    .close = cpu_close,
    .buffer_new = cpu_buffer_new,
    .buffer_free = cpu_buffer_free,
    .read = cpu_read,
    .write = cpu_write,
    .sync = cpu_sync,
    .weight_prepare = bnet_cpu_weight_prepare,
    .weight_free = bnet_cpu_weight_free,
    .weight_info = cpu_weight_info,
    .weights_done = bnet_cpu_weights_done,
    .kv_new = bnet_cpu_kv_new,
    .kv_free = bnet_cpu_kv_free,
    .kv_get = bnet_cpu_kv_get,
    .kv_put = bnet_cpu_kv_put,
    .kv_clear = bnet_cpu_kv_clear,
    .kv_copy = bnet_cpu_kv_copy,
    .embed = bnet_cpu_embed,
    .rmsnorm = bnet_cpu_rmsnorm,
    .quantize_i8 = bnet_cpu_quantize_i8,
    .linear_ternary = bnet_cpu_linear_ternary,
    .linear_float = bnet_cpu_linear_float,
    .rope_table = bnet_cpu_rope_table,
    .rope = bnet_cpu_rope,
    .kv_append = bnet_cpu_kv_append,
    .attention = bnet_cpu_attention,
    .glu = bnet_cpu_glu,
    .add = bnet_cpu_add,
    .gather = bnet_cpu_gather,
};

static const bnet_pass_ops cpu_pass = {
    .norm_quantize = bnet_cpu_norm_quantize,
    .glu_norm_quantize = bnet_cpu_glu_norm_quantize,
    .linear_ternary_n = bnet_cpu_linear_ternary_n,
    .top_bytes = bnet_cpu_top_bytes,
    .top = bnet_cpu_top,
};

static const bnet_inspect_ops cpu_inspect = {
    .kernels = cpu_kernels,
    .fallbacks = cpu_fallbacks,
    .shapes = bnet_cpu_shapes,
    .maps = bnet_cpu_cache_maps,
    .bench_new = bnet_cpu_bench_new,
    .bench_run = bnet_cpu_bench_run,
    .bench_free = bnet_cpu_bench_free,
};

/* Ops whose kernel does not depend on the shape. */
static bitnet_status choose(cpu_backend *be, bitnet_error *err)
{
    cpu_choice *u = &be->use;
    const bnet_fixed fixed[] = {
        {BNET_OP_EMBED, BNET_FORMAT_ROW, &u->embed},
        {BNET_OP_RMSNORM, BNET_FORMAT_F32, &u->rmsnorm},
        {BNET_OP_QUANTIZE, BNET_FORMAT_I8, &u->quantize},
        {BNET_OP_NORM_QUANTIZE, BNET_FORMAT_I8, &u->norm_quantize},
        {BNET_OP_ADD_NORM_QUANTIZE, BNET_FORMAT_I8, &u->add_norm_quantize},
        {BNET_OP_GLU_NORM_QUANTIZE, BNET_FORMAT_RELU2, &u->glu_relu2_norm_quantize},
        {BNET_OP_GLU_NORM_QUANTIZE, BNET_FORMAT_SILU, &u->glu_silu_norm_quantize},
        {BNET_OP_ROPE, BNET_FORMAT_NORM, &u->rope_norm},
        {BNET_OP_ROPE, BNET_FORMAT_NEOX, &u->rope_neox},
        {BNET_OP_GLU, BNET_FORMAT_RELU2, &u->glu_relu2},
        {BNET_OP_GLU, BNET_FORMAT_SILU, &u->glu_silu},
        {BNET_OP_ADD, BNET_FORMAT_F32, &u->add},
        {BNET_OP_KV_STORE, BNET_FORMAT_F32, &u->kv_store[BITNET_KV_F32]},
        {BNET_OP_KV_STORE, BNET_FORMAT_F16, &u->kv_store[BITNET_KV_F16]},
        {BNET_OP_KV_STORE, BNET_FORMAT_I8, &u->kv_store[BITNET_KV_INT8]},
        {BNET_OP_ATTENTION, BNET_FORMAT_F32, &u->attention[BITNET_KV_F32]},
        {BNET_OP_ATTENTION, BNET_FORMAT_F16, &u->attention[BITNET_KV_F16]},
        {BNET_OP_ATTENTION, BNET_FORMAT_I8, &u->attention[BITNET_KV_INT8]},
    };
    bitnet_status st =
        bnet_registry_select_all(be->registry, &be->caps, fixed, BNET_COUNT(fixed), err);
    be->fuses = st == BITNET_OK && !u->rmsnorm->outside && !u->quantize->outside &&
                !u->add->outside && !u->glu_relu2->outside && !u->glu_silu->outside;
    return st;
}

bitnet_status bnet_cpu_open(const bnet_backend_want *want, bnet_backend **out, bitnet_error *err)
{
    cpu_backend *be = bnet_calloc(1, sizeof *be);
    if (!be)
        return bnet_no_memory(err, "cpu backend");
    be->base.v = &cpu_vtable;
    be->base.pass = &cpu_pass;
    be->base.inspect = &cpu_inspect;
    be->pool = want->pool;
    be->registry = want->registry;
    be->strict = want->strict;
    be->log = want->log ? *want->log : (bnet_log){NULL, NULL};
    be->pack = !want->no_pack;
    bitnet_status st = bnet_cpu_capabilities(want->isa, &be->caps, err);
    if (st == BITNET_OK)
        st = choose(be, err);
    if (st == BITNET_OK)
        st = bnet_cpu_scratch_open(be, err);
    if (st == BITNET_OK)
        st = bnet_cpu_cache_open(be, want->cache, want->log, err);
    if (st != BITNET_OK) {
        cpu_close(&be->base);
        return st;
    }
    bnet_logf(want->log, BITNET_LOG_DEBUG, "cpu", "%d threads, %zu kernels registered%s",
              bnet_pool_threads(be->pool), bnet_registry_count(be->registry),
              be->strict ? ", strict" : "");
    *out = &be->base;
    return BITNET_OK;
}

bitnet_status bnet_backend_open_cpu(bnet_pool *pool, const bnet_registry *registry, const char *isa,
                                    bool strict, const bnet_log *log, bnet_backend **out,
                                    bitnet_error *err)
{
    bnet_backend_want want = {
        .pool = pool, .registry = registry, .isa = isa, .strict = strict, .log = log};
    return bnet_cpu_open(&want, out, err);
}
