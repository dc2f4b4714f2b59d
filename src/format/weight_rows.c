/* weight_rows.c - reading a weight. Canonical I2_S and types that kernels decode are used in place;
 * every other ternary matrix is repacked into canonical rows. */
#include "format/weight_rows.h"
#include "base/file.h"

#include <ctype.h>
#include <stdatomic.h>
#include <math.h>

enum { SCAN_BYTES = 128 << 10, BLOCK = 256, BLOCK_BYTES = BLOCK / 4 };

typedef struct reading {
    const bnet_weight_source *s;
    const char *device;
    bnet_pool *pool;
    const bnet_log *log;
    bnet_weight_rows *rows;
    float magnitude;     /* of a matrix of floats that must turn out ternary */
    atomic_size_t n_bad; /* codes of 3, or values that are not ternary */
    atomic_bool no_memory;
} reading;

static bitnet_status no_memory(const reading *j, bitnet_error *err)
{
    return bnet_no_memory(err, j->s->tensor->name);
}

static size_t stored_row_bytes(const bnet_tensor *t)
{
    uint64_t n = 0;
    bnet_type_bytes(t->type, t->ne[0], 1, &n);
    return (size_t)n;
}

/* ---- repacking ---- */

/* Trits to a row, a multiple of 128 of them. */
static void pack_row(uint8_t *row, const int8_t *trits, size_t n_padded)
{
    for (size_t b = 0; b < n_padded / 128; b++) {
        const int8_t *t = trits + 128 * b;
        for (size_t i = 0; i < 32; i++)
            row[32 * b + i] = (uint8_t)((t[i] + 1) << 6 | (t[32 + i] + 1) << 4 |
                                        (t[64 + i] + 1) << 2 | (t[96 + i] + 1));
    }
}

/* Trits of one row of floats: 0 or +-magnitude. Returns how many values are neither. */
static size_t ternarise_row(const reading *j, const uint8_t *src, float *f, int8_t *trits)
{
    size_t n = j->rows->n_in, bad = 0;
    bnet_decode_part(j->s->tensor->type, src, 0, n, f);
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

/* One row as trits; returns how many of its codes or values are invalid. */
static size_t read_row(const reading *j, size_t row, float *f, int8_t *trits)
{
    const bnet_tensor *t = j->s->tensor;
    size_t n = (size_t)t->ne[0];
    if (t->type == BNET_I2_S)
        return bnet_i2s_decode_row(j->s->layout, t->data, n, row, trits);
    const uint8_t *src = t->data + row * stored_row_bytes(t);
    if (!bnet_type_is_tq(t->type))
        return ternarise_row(j, src, f, trits);
    bnet_tq_decode_row(t->type, src, trits, j->rows->block_scales + row * (n / BLOCK), n);
    return clear_invalid(trits, n);
}

static void repack_rows(void *arg, size_t begin, size_t end)
{
    reading *j = arg;
    const bnet_weight_rows *rows = j->rows;
    size_t n_padded = rows->row_bytes * 4;
    int8_t *trits = bnet_calloc(n_padded, 1);
    float *f = bnet_alloc(rows->n_in * sizeof *f);
    if (!trits || !f)
        atomic_store(&j->no_memory, true);
    for (size_t r = begin; trits && f && r < end; r++) {
        atomic_fetch_add(&j->n_bad, read_row(j, r, f, trits));
        pack_row(rows->owned + r * rows->row_bytes, trits, n_padded);
    }
    bnet_free(trits);
    bnet_free(f);
}

static bitnet_status repack(reading *j, bitnet_error *err)
{
    bnet_weight_rows *rows = j->rows;
    rows->form = BNET_ROWS_TERNARY;
    rows->row_bytes = (size_t)(rows->n_in + 127) / 128 * 32;
    rows->owned = bnet_calloc(rows->n_out, rows->row_bytes);
    if (!rows->owned)
        return no_memory(j, err);
    rows->data = rows->owned;
    bnet_pool_items(j->pool, rows->n_out, 1, rows->n_in * 4, repack_rows, j);
    return atomic_load(&j->no_memory) ? no_memory(j, err) : BITNET_OK;
}

/* ---- checks ---- */

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

/* The same with all threads: this is the first time the tensor is read from its file. */
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

static bool any_code_3(bnet_pool *pool, const uint8_t *p, size_t n)
{
    scan_job j = {.p = p, .n = n};
    bnet_pool_items(pool, (n + SCAN_BYTES - 1) / SCAN_BYTES, 1, SCAN_BYTES, scan_pieces, &j);
    return atomic_load(&j.found);
}

static bitnet_status check_scale(const reading *j, float scale, bitnet_error *err)
{
    const bnet_tensor *t = j->s->tensor;
    if (!isfinite(scale))
        return bnet_fail(err, BITNET_MODEL,
                         "%s: tensor %s: scale %g is not a finite number (offset 0x%llx)",
                         j->s->file, t->name, (double)scale,
                         (unsigned long long)(t->offset + bnet_tensor_elems(t) / 4));
    if (scale <= 0) {
        j->rows->damaged = true;
        bnet_logf(j->log, BITNET_LOG_WARN, j->device, "%s: tensor %s: scale %g is not positive",
                  j->s->file, t->name, (double)scale);
    }
    return BITNET_OK;
}

static void warn_codes(const reading *j)
{
    size_t n_bad = atomic_load(&j->n_bad);
    if (n_bad == 0)
        return;
    j->rows->damaged = true;
    bnet_logf(j->log, BITNET_LOG_WARN, j->device,
              "%s: tensor %s: %zu invalid codes (3) are read as 0: the file is damaged", j->s->file,
              j->s->tensor->name, n_bad);
}

/* ---- one function per kind of tensor ---- */

static bitnet_status read_i2s(reading *j, bitnet_error *err)
{
    const bnet_tensor *t = j->s->tensor;
    bnet_weight_rows *rows = j->rows;
    uint64_t n = bnet_tensor_elems(t);
    float scale = bnet_i2s_scale(t->data, n);
    bitnet_status st = check_scale(j, scale, err);
    if (st != BITNET_OK)
        return st;
    if (j->s->layout == BITNET_I2S_4ROW && rows->n_out % 4 != 0)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: tensor %s: %llu rows do not fit the four-row I2_S layout", j->s->file,
                         t->name, (unsigned long long)rows->n_out);
    rows->form = BNET_ROWS_TERNARY;
    rows->scale = scale * j->s->extra_scale;
    rows->row_bytes = (size_t)rows->n_in / 4;
    rows->data = t->data;
    if (j->s->layout == BITNET_I2S_128 && !any_code_3(j->pool, t->data, (size_t)(n / 4)))
        return BITNET_OK;
    st = repack(j, err);
    if (st == BITNET_OK)
        warn_codes(j);
    return st;
}

static bool is_zero_block(const uint8_t *p)
{
    for (int i = 0; i < BLOCK_BYTES; i++)
        if (p[i] != 0x55) /* four codes of 1 */
            return false;
    return true;
}

/* If every block that has a non-zero weight has the same scale, one scale serves the tensor and
 * sums stay integers. */
static void unify_scales(bnet_weight_rows *rows)
{
    size_t n = (size_t)(rows->n_out * (rows->n_in / BLOCK));
    float scale = 0;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        if (is_zero_block(rows->data + BLOCK_BYTES * i))
            continue;
        if (found && rows->block_scales[i] != scale)
            return;
        scale = rows->block_scales[i];
        found = true;
    }
    rows->scale = scale;
    bnet_free(rows->block_scales);
    rows->block_scales = NULL;
}

/* A scale of 0 belongs to a block without weights; the first negative one gives a warning. */
static bitnet_status check_block_scales(const reading *j, size_t n, bitnet_error *err)
{
    float *scales = j->rows->block_scales;
    bool warned = false;
    for (size_t i = 0; i < n; i++) {
        bool negative = scales[i] < 0;
        if (!isfinite(scales[i]) || (negative && !warned)) {
            bitnet_status st = check_scale(j, scales[i], err);
            if (st != BITNET_OK)
                return st;
        }
        warned = warned || negative;
        scales[i] *= j->s->extra_scale;
    }
    return BITNET_OK;
}

static bitnet_status read_tq(reading *j, bitnet_error *err)
{
    bnet_weight_rows *rows = j->rows;
    size_t n = (size_t)(rows->n_out * (rows->n_in / BLOCK));
    rows->block_scales = bnet_calloc(n, sizeof *rows->block_scales);
    if (!rows->block_scales)
        return no_memory(j, err);
    bitnet_status st = repack(j, err);
    if (st != BITNET_OK)
        return st;
    warn_codes(j);
    st = check_block_scales(j, n, err);
    if (st == BITNET_OK)
        unify_scales(rows);
    return st;
}

/* The first magnitude that is not 0; 0 if there is none. */
static bool find_magnitude(reading *j)
{
    const bnet_tensor *t = j->s->tensor;
    size_t n = (size_t)t->ne[0], row_bytes = stored_row_bytes(t);
    float *f = bnet_alloc(n * sizeof *f);
    for (size_t r = 0; f && r < j->rows->n_out && j->magnitude == 0; r++) {
        bnet_decode_part(t->type, t->data + r * row_bytes, 0, n, f);
        for (size_t i = 0; i < n && j->magnitude == 0; i++)
            j->magnitude = fabsf(f[i]);
    }
    bnet_free(f);
    return f != NULL;
}

static bitnet_status read_ternarised(reading *j, bitnet_error *err)
{
    const bnet_tensor *t = j->s->tensor;
    if (!find_magnitude(j))
        return no_memory(j, err);
    j->rows->scale = j->magnitude * j->s->extra_scale;
    bitnet_status st = repack(j, err);
    size_t n_bad = atomic_load(&j->n_bad); /* that differ from the magnitude */
    if (st != BITNET_OK || (n_bad == 0 && isfinite(j->magnitude)))
        return st;
    return bnet_fail(
        err, BITNET_MODEL,
        "%s: tensor %s: %s weights are not ternary (%zu values are neither 0 nor +-%g); this "
        "architecture needs ternary projections: convert the checkpoint with --type i2_s",
        j->s->file, t->name, bnet_type_find(t->type)->name, n_bad, (double)j->magnitude);
}

static bitnet_status read_vector(const reading *j, bitnet_error *err)
{
    const bnet_tensor *t = j->s->tensor;
    bnet_weight_rows *rows = j->rows;
    rows->form = BNET_ROWS_VECTOR;
    rows->row_bytes = (size_t)rows->n_in * sizeof(float);
    rows->owned = bnet_alloc(rows->row_bytes);
    if (!rows->owned)
        return no_memory(j, err);
    rows->data = rows->owned;
    if (!bnet_can_decode(t->type) ||
        !bnet_decode_part(t->type, t->data, 0, (size_t)rows->n_in, (float *)(void *)rows->owned))
        return bnet_fail(err, BITNET_MODEL, "%s: tensor %s: type %s cannot be a vector", j->s->file,
                         t->name, bnet_type_find(t->type)->name);
    return BITNET_OK;
}

static bitnet_status use_in_place(const reading *j)
{
    j->rows->form = BNET_ROWS_STORED;
    j->rows->row_bytes = stored_row_bytes(j->s->tensor);
    j->rows->data = j->s->tensor->data;
    return BITNET_OK;
}

/* Ternary with a scale per row or block: where all scales agree, the rows become canonical. */
static bitnet_status read_scaled(reading *j, bitnet_error *err)
{
    bitnet_status st = read_ternarised(j, err);
    if (st != BITNET_MODEL)
        return st;
    bnet_free(j->rows->owned);
    j->rows->owned = NULL;
    j->rows->scale = j->s->extra_scale;
    return use_in_place(j);
}

static bitnet_status unsupported(const reading *j, bitnet_error *err)
{
    const bnet_tensor *t = j->s->tensor;
    const char *type = bnet_type_find((uint32_t)t->type)->name;
    char format[24] = ""; /* as kernels spell it: "q4_k" */
    for (size_t n = 0; type[n] && n + 1 < sizeof format; n++)
        format[n] = (char)tolower((unsigned char)type[n]);
    return bnet_fail(err, BITNET_MODEL,
                     "%s: tensor %s: UnsupportedKernelConfiguration{device: %s, qtype: %s, "
                     "operation: linear}: type %s is not supported; requantise it to I2_S, TQ2_0, "
                     "Q8_0 or F16",
                     j->s->file, t->name, j->device, format, type);
}

static bitnet_status read_any(reading *j, bitnet_error *err)
{
    const bnet_tensor *t = j->s->tensor;
    if (t->n_dims == 1)
        return read_vector(j, err);
    if (t->type == BNET_I2_S)
        return read_i2s(j, err);
    if (bnet_type_is_tq(t->type))
        return read_tq(j, err);
    if (!bnet_can_decode(t->type))
        return unsupported(j, err);
    if (bnet_type_is_bn(t->type) || bnet_type_is_ternary(t->type))
        return read_scaled(j, err);
    return j->s->ternarise ? read_ternarised(j, err) : use_in_place(j);
}

bitnet_status bnet_weight_rows_read(const bnet_weight_source *s, const char *device,
                                    bnet_pool *pool, const bnet_log *log, bnet_weight_rows *out,
                                    bitnet_error *err)
{
    const bnet_tensor *t = s->tensor;
    bool matrix = t->n_dims > 1;
    *out = (bnet_weight_rows){.type = t->type,
                              .n_in = t->ne[0],
                              .n_out = matrix ? t->ne[1] : 1,
                              .ternary = bnet_weight_is_ternary(s)};
    reading j = {.s = s, .device = device, .pool = pool, .log = log, .rows = out};
    bitnet_status st = read_any(&j, err);
    if (st != BITNET_OK)
        bnet_weight_rows_free(out);
    return st;
}

void bnet_weight_rows_free(bnet_weight_rows *rows)
{
    bnet_free(rows->owned);
    bnet_free(rows->block_scales);
    *rows = (bnet_weight_rows){0};
}

bnet_weight_rows bnet_weight_rows_part(const bnet_weight_rows *rows, uint64_t first, uint64_t n)
{
    bnet_weight_rows part = *rows;
    part.n_out = n;
    part.data += first * rows->row_bytes;
    if (rows->block_scales)
        part.block_scales += first * (rows->n_in / BLOCK);
    part.owned = NULL;
    return part;
}
