/* weights.c - from a tensor in the file to what a kernel reads. Canonical I2_S and float types are
 * used in place; everything else ternary is repacked into canonical rows (128 weights in 32 bytes,
 * rows padded with zeros). Which kernel reads it: weights_kernel.c. */
#include "backend/cpu/cpu.h"
#include "base/file.h"
#include "format/codec_extra.h"

#include <math.h>

enum { SCAN_BYTES = 128 << 10 };

void bnet_cpu_weight_free(bnet_backend *b, bnet_weight *w)
{
    (void)b;
    bnet_free(w->owned);
    bnet_free(w->block_scales);
    bnet_cpu_head_free(w);
    bnet_free(w->picks);
    bnet_free(w);
}

typedef struct repack_job {
    const bnet_weight_request *r;
    bnet_weight *w;
    float magnitude;     /* of a ternarised float tensor */
    atomic_size_t n_bad; /* code 3, or a value that is not ternary */
    atomic_bool no_memory;
} repack_job;

static void pack_row(uint8_t *row, const int8_t *trits, size_t n_padded)
{
    for (size_t i = 0; i < n_padded; i++)
        row[32 * (i / 128) + i % 32] |= (uint8_t)((trits[i] + 1) << (6 - 2 * (i % 128 / 32)));
}

/* Trits of one row of a float tensor: 0 or +-magnitude. Returns how many values are neither. */
static size_t ternarise_row(const repack_job *j, const uint8_t *src, float *f, int8_t *trits)
{
    size_t n = j->w->info.n_in, bad = 0;
    bnet_decode_part(j->r->tensor->type, src, 0, n, f);
    for (size_t i = 0; i < n; i++) {
        trits[i] = (int8_t)((f[i] > 0) - (f[i] < 0));
        bad += f[i] != 0 && fabsf(f[i]) != j->magnitude;
    }
    return bad;
}

/* Codes 3 of TQ2_0 decode as +2, which no kernel takes: they become 0, as those of I2_S do. */
static size_t clear_invalid(int8_t *trits, size_t n)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        n_bad += trits[i] > 1;
        trits[i] = trits[i] > 1 ? 0 : trits[i];
    }
    return n_bad;
}

static size_t read_row(const repack_job *j, size_t row, float *f, int8_t *trits)
{
    const bnet_tensor *t = j->r->tensor;
    uint64_t n = t->ne[0];
    if (t->type == BNET_I2_S)
        return bnet_i2s_decode_row(j->r->layout, t->data, n, row, trits);
    uint64_t row_bytes = 0;
    bnet_type_bytes(t->type, n, 1, &row_bytes);
    const uint8_t *src = t->data + row * row_bytes;
    if (!bnet_type_is_ternary(t->type))
        return ternarise_row(j, src, f, trits);
    bnet_tq_decode_row(t->type, src, trits, j->w->block_scales + row * (n / 256), n);
    return clear_invalid(trits, n);
}

static void repack_rows(void *arg, size_t begin, size_t end)
{
    repack_job *j = arg;
    bnet_weight *w = j->w;
    size_t n = w->info.n_in, n_padded = w->row_bytes * 4;
    int8_t *trits = bnet_calloc(n_padded, 1);
    float *f = bnet_alloc(n * sizeof *f);
    if (!trits || !f)
        atomic_store(&j->no_memory, true);
    for (size_t r = begin; trits && f && r < end; r++) {
        atomic_fetch_add(&j->n_bad, read_row(j, r, f, trits));
        pack_row(w->owned + r * w->row_bytes, trits, n_padded);
    }
    bnet_free(trits);
    bnet_free(f);
}

/* True if some 2-bit code of the bytes is 3. */
static bool has_code_3(const uint8_t *p, size_t n)
{
    uint64_t any = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v = bnet_u64(p + i);
        any |= v & v >> 1 & 0x5555555555555555u;
    }
    for (; i < n; i++)
        any |= (uint64_t)(p[i] & p[i] >> 1 & 0x55);
    return any != 0;
}

/* The same by all threads, for this is the first time a tensor is read. */
typedef struct scan_job {
    const uint8_t *p;
    size_t n;
    atomic_bool found;
} scan_job;

static void scan_pieces(void *arg, size_t begin, size_t end)
{
    scan_job *j = arg;
    size_t from = begin * SCAN_BYTES, to = BNET_MIN(end * SCAN_BYTES, j->n);
    if (from >= to)
        return;
    bnet_map_fetch(j->p + from, to - from);
    if (has_code_3(j->p + from, to - from))
        atomic_store(&j->found, true);
}

static bool any_code_3(cpu_backend *be, const uint8_t *p, size_t n)
{
    scan_job j = {.p = p, .n = n};
    bnet_cpu_items(be, (n + SCAN_BYTES - 1) / SCAN_BYTES, 1, SCAN_BYTES, scan_pieces, &j);
    return atomic_load(&j.found);
}

static bitnet_status repack(cpu_backend *be, repack_job *j, bitnet_error *err)
{
    bnet_weight *w = j->w;
    const char *name = j->r->tensor->name;
    w->row_bytes = (w->info.n_in + 127) / 128 * 32;
    w->owned = bnet_calloc(w->info.n_out, w->row_bytes);
    if (!w->owned)
        return bnet_no_memory(err, name);
    w->data = w->owned;
    bnet_cpu_items(be, w->info.n_out, 1, w->info.n_in * 4, repack_rows, j);
    return atomic_load(&j->no_memory) ? bnet_no_memory(err, name) : BITNET_OK;
}

static bitnet_status check_scale(const bnet_weight_request *r, float scale, const bnet_log *log,
                                 bitnet_error *err)
{
    const bnet_tensor *t = r->tensor;
    if (!isfinite(scale))
        return bnet_fail(err, BITNET_MODEL,
                         "%s: tensor %s: scale %g is not a finite number (offset 0x%llx)", r->file,
                         t->name, (double)scale,
                         (unsigned long long)(t->offset + bnet_tensor_elems(t) / 4));
    if (scale <= 0)
        bnet_logf(log, BITNET_LOG_WARN, "cpu", "%s: tensor %s: scale %g is not positive", r->file,
                  t->name, (double)scale);
    return BITNET_OK;
}

static void warn_codes(const repack_job *j, const bnet_log *log)
{
    size_t n_bad = atomic_load(&j->n_bad);
    if (n_bad)
        bnet_logf(log, BITNET_LOG_WARN, "cpu",
                  "%s: tensor %s: %zu invalid codes (3) are read as 0: the file is damaged",
                  j->r->file, j->r->tensor->name, n_bad);
}

static bitnet_status prepare_i2s(cpu_backend *be, repack_job *j, const bnet_log *log,
                                 bitnet_error *err)
{
    const bnet_tensor *t = j->r->tensor;
    bnet_weight *w = j->w;
    uint64_t n = bnet_tensor_elems(t);
    float scale = bnet_i2s_scale(t->data, n);
    bitnet_status st = check_scale(j->r, scale, log, err);
    if (st != BITNET_OK)
        return st;
    w->info.scale = scale * j->r->extra_scale;
    w->row_bytes = w->info.n_in / 4;
    w->data = t->data;
    if (j->r->layout == BITNET_I2S_4ROW && w->info.n_out % 4 != 0)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: tensor %s: %llu rows do not fit the four-row I2_S layout", j->r->file,
                         t->name, (unsigned long long)w->info.n_out);
    if (j->r->layout == BITNET_I2S_128 && !any_code_3(be, t->data, (size_t)(n / 4)))
        return BITNET_OK;
    st = repack(be, j, err);
    if (st == BITNET_OK)
        warn_codes(j, log);
    return st;
}

static bool is_zero_block(const uint8_t *p)
{
    for (int i = 0; i < 64; i++)
        if (p[i] != 0x55) /* four codes of 1 */
            return false;
    return true;
}

/* If every block that has a non-zero weight has the same scale, one scale serves the tensor and
 * sums stay integers. */
static void unify_scales(bnet_weight *w)
{
    size_t n = w->info.n_out * (w->info.n_in / 256);
    float scale = 0;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        if (is_zero_block(w->data + 64 * i))
            continue;
        if (found && w->block_scales[i] != scale)
            return;
        scale = w->block_scales[i];
        found = true;
    }
    w->info.scale = scale;
    bnet_free(w->block_scales);
    w->block_scales = NULL;
}

static bitnet_status prepare_tq(cpu_backend *be, repack_job *j, const bnet_log *log,
                                bitnet_error *err)
{
    bnet_weight *w = j->w;
    size_t n = w->info.n_out * (w->info.n_in / 256);
    w->block_scales = bnet_calloc(n, sizeof *w->block_scales);
    if (!w->block_scales)
        return bnet_no_memory(err, j->r->tensor->name);
    bitnet_status st = repack(be, j, err);
    if (st == BITNET_OK)
        warn_codes(j, log);
    bool warned = false;
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        bool negative = w->block_scales[i] < 0; /* 0: a block without weights */
        if (!isfinite(w->block_scales[i]) || (negative && !warned))
            st = check_scale(j->r, w->block_scales[i], log, err);
        warned = warned || negative;
        w->block_scales[i] *= j->r->extra_scale;
    }
    if (st == BITNET_OK)
        unify_scales(w);
    return st;
}

/* The magnitude is the first non-zero one; the repacking counts what differs. */
static bitnet_status prepare_ternarised(cpu_backend *be, repack_job *j, bitnet_error *err)
{
    const bnet_tensor *t = j->r->tensor;
    bnet_weight *w = j->w;
    uint64_t row_bytes = 0;
    bnet_type_bytes(t->type, t->ne[0], 1, &row_bytes);
    float *f = bnet_alloc(w->info.n_in * sizeof *f);
    if (!f)
        return bnet_no_memory(err, t->name);
    for (size_t r = 0; r < w->info.n_out && j->magnitude == 0; r++) {
        bnet_decode_part(t->type, t->data + r * row_bytes, 0, w->info.n_in, f);
        for (size_t i = 0; i < w->info.n_in && j->magnitude == 0; i++)
            j->magnitude = fabsf(f[i]);
    }
    bnet_free(f);
    w->info.scale = j->magnitude * j->r->extra_scale;
    bitnet_status st = repack(be, j, err);
    size_t n_bad = atomic_load(&j->n_bad);
    if (st == BITNET_OK && (n_bad || !isfinite(j->magnitude)))
        return bnet_fail(
            err, BITNET_MODEL,
            "%s: tensor %s: %s weights are not ternary (%zu values are neither 0 nor +-%g); this "
            "architecture needs ternary projections: convert the checkpoint with --type i2_s",
            j->r->file, t->name, bnet_type_find(t->type)->name, n_bad, (double)j->magnitude);
    return st;
}

/* Vectors (norm weights) become plain floats. */
static bitnet_status prepare_vector(bnet_weight *w, const bnet_weight_request *r, bitnet_error *err)
{
    w->owned = bnet_alloc(w->info.n_in * sizeof(float));
    if (!w->owned)
        return bnet_no_memory(err, r->tensor->name);
    if (!bnet_can_decode(r->tensor->type) ||
        !bnet_decode_part(r->tensor->type, r->tensor->data, 0, w->info.n_in,
                          (float *)(void *)w->owned))
        return bnet_fail(err, BITNET_MODEL, "%s: tensor %s: type %s cannot be a vector", r->file,
                         r->tensor->name, bnet_type_find(r->tensor->type)->name);
    w->data = w->owned;
    w->row_bytes = w->info.n_in * sizeof(float);
    return BITNET_OK;
}

/* Rows as they lie in the file. */
static void use_in_place(bnet_weight *w, const bnet_tensor *t)
{
    uint64_t row_bytes = 0;
    bnet_type_bytes(t->type, t->ne[0], 1, &row_bytes);
    w->row_bytes = (size_t)row_bytes;
    w->data = t->data;
}

/* Ternary with a scale per row: where all rows agree on it, the rows become I2_S; else they are
 * decoded on the way. */
static bitnet_status prepare_bn(cpu_backend *be, repack_job *j, bitnet_error *err)
{
    bitnet_status st = prepare_ternarised(be, j, err);
    if (st != BITNET_MODEL)
        return st;
    bnet_weight *w = j->w;
    bnet_free(w->owned);
    w->owned = NULL;
    w->info.scale = 0;
    w->fallback = true;
    w->fallback_scale = j->r->extra_scale;
    use_in_place(w, j->r->tensor);
    return BITNET_OK;
}

static bitnet_status prepare(cpu_backend *be, repack_job *j, const bnet_log *log, bitnet_error *err)
{
    const bnet_tensor *t = j->r->tensor;
    if (t->n_dims == 1)
        return prepare_vector(j->w, j->r, err);
    if (t->type == BNET_I2_S)
        return prepare_i2s(be, j, log, err);
    if (bnet_type_is_ternary(t->type))
        return prepare_tq(be, j, log, err);
    if (!bnet_can_decode(t->type))
        return bnet_cpu_unsupported(j->r, err);
    if (bnet_type_is_bn(t->type))
        return prepare_bn(be, j, err);
    if (j->r->ternarise)
        return prepare_ternarised(be, j, err);
    use_in_place(j->w, t);
    return BITNET_OK;
}

/* Passes messages on and notices warnings. */
typedef struct listener {
    const bnet_log *log;
    bool *warned;
} listener;

static void listen(void *user, bitnet_log_level level, const char *module, const char *message)
{
    const listener *l = user;
    *l->warned = *l->warned || level <= BITNET_LOG_WARN;
    bnet_logf(l->log, level, module, "%s", message);
}

bitnet_status bnet_cpu_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                      const bnet_log *log, bnet_weight **out, bitnet_error *err)
{
    cpu_backend *be = (cpu_backend *)b;
    const bnet_tensor *t = r->tensor;
    bnet_weight *w = bnet_calloc(1, sizeof *w);
    if (!w)
        return bnet_no_memory(err, t->name);
    bool matrix = t->n_dims > 1;
    w->info = (bnet_weight_info){.n_in = t->ne[0],
                                 .n_out = matrix ? t->ne[1] : 1,
                                 .type = t->type,
                                 .ternary = matrix && (bnet_type_is_ternary(t->type) ||
                                                       bnet_type_is_bn(t->type) || r->ternarise)};
    repack_job j = {.r = r, .w = w};
    bnet_log listening = {listen, &(listener){log, &be->cache.unfit}};
    bitnet_status st = BITNET_OK;
    if (!bnet_cpu_cache_ternary(be, w, r))
        st = prepare(be, &j, &listening, err);
    if (st == BITNET_OK && matrix)
        st = bnet_cpu_weight_kernel(be, w, r, log, err);
    if (st != BITNET_OK) {
        bnet_cpu_weight_free(b, w);
        return st;
    }
    *out = w;
    return BITNET_OK;
}
