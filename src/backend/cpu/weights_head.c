/* weights_head.c - what the head needs beyond a plain matrix, made when the weight is prepared: a
 * kernel that scans its rows, a bound on the length of every row, and for Q6_K the packed order
 * (pack_q6.h), which takes the place of the rows in the file. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/half_inline.h"
#include "backend/cpu/pack_q6.h"
#include "base/file.h"

#include <math.h>

enum { LEAST_ROWS = 64 }; /* with fewer, all rows are computed */
#define NORM_MAX 1e30f    /* beyond it bounds could leave the range of floats */

typedef struct head_job {
    const bnet_weight *w;
    float *norms;    /* NULL: not wanted */
    uint8_t *packed; /* NULL: the rows stay as they are */
    atomic_bool bad; /* a row's length is NaN or too large */
} head_job;

/* ---- lengths of rows ---- */

static double squares(const int8_t *q, size_t n)
{
    int32_t sum = 0; /* n <= 32: at most 32 * 128 * 128 */
    for (size_t i = 0; i < n; i++)
        sum += q[i] * q[i];
    return (double)sum;
}

/* The codes less 32, in the order of columns. */
static void q6_values(const uint8_t *b, int8_t q[256])
{
    for (size_t h = 0; h < 2; h++)
        for (size_t i = 0; i < 32; i++) {
            const uint8_t *ql = b + 64 * h + i;
            unsigned high = b[128 + 32 * h + i];
            int8_t *to = q + 128 * h + i;
            to[0] = (int8_t)(((ql[0] & 15u) | (high & 3u) << 4) - 32u);
            to[32] = (int8_t)(((ql[32] & 15u) | (high >> 2 & 3u) << 4) - 32u);
            to[64] = (int8_t)(((unsigned)ql[0] >> 4 | (high >> 4 & 3u) << 4) - 32u);
            to[96] = (int8_t)(((unsigned)ql[32] >> 4 | (high >> 6) << 4) - 32u);
        }
}

static double q6_squares(const uint8_t *row, size_t n)
{
    double sum = 0;
    for (size_t b = 0; b < n / 256; b++, row += BNET_Q6_BLOCK) {
        int8_t q[256];
        double d = (double)half_to_float(bnet_u16(row + 208)), part = 0;
        q6_values(row, q);
        for (size_t s = 0; s < 16; s++) {
            double scale = (double)(int8_t)row[192 + s];
            part += scale * scale * squares(q + 16 * s, 16);
        }
        sum += d * d * part;
    }
    return sum;
}

static double q8_squares(const uint8_t *row, size_t n)
{
    double sum = 0;
    for (size_t b = 0; b < n / 32; b++, row += 34) {
        double d = (double)half_to_float(bnet_u16(row));
        sum += d * d * squares((const int8_t *)row + 2, 32);
    }
    return sum;
}

/* 16-bit floats: eight running sums, so that they can be vectors. */
static double f_squares(const uint8_t *row, size_t n, bool bf16)
{
    double sum[8] = {0}, all = 0;
    for (size_t i = 0; i < n; i += 8)
        for (size_t k = 0; k < 8; k++) {
            uint16_t h = bnet_u16(row + 2 * (i + k));
            double v = (double)(bf16 ? bf16_to_float(h) : half_to_float(h));
            sum[k] += v * v;
        }
    for (size_t k = 0; k < 8; k++)
        all += sum[k];
    return all;
}

/* A little more than the length: doubles are off by a few 2^-53 per term, the float by 2^-24. */
static float row_norm(const bnet_weight *w, const uint8_t *row)
{
    size_t n = w->info.n_in;
    double sum = w->info.type == BNET_Q6_K   ? q6_squares(row, n)
                 : w->info.type == BNET_Q8_0 ? q8_squares(row, n)
                                             : f_squares(row, n, w->info.type == BNET_BF16);
    return (float)(sqrt(sum) * (1 + 1e-6));
}

/* ---- one pass over the rows ---- */

static void head_groups(void *arg, size_t begin, size_t end)
{
    head_job *j = arg;
    const bnet_weight *w = j->w;
    size_t group = bnet_q6r4_group_bytes(w->info.n_in);
    for (size_t g = begin; g < end; g++) {
        size_t first = g * BNET_Q6R4_ROWS;
        size_t n = BNET_MIN(w->info.n_out - first, (size_t)BNET_Q6R4_ROWS);
        const uint8_t *rows = w->data + first * w->row_bytes;
        if (j->packed)
            bnet_q6r4_pack(rows, w->row_bytes, n, w->info.n_in, j->packed + g * group);
        for (size_t r = 0; r < BNET_Q6R4_ROWS && j->norms; r++) {
            float norm = r < n ? row_norm(w, rows + r * w->row_bytes) : 0;
            j->norms[first + r] = norm;
            if (!(norm <= NORM_MAX))
                atomic_store_explicit(&j->bad, true, memory_order_relaxed);
        }
    }
}

/* The scan takes any size of its type; only matrices are chosen by their sizes. */
static bnet_kernel_query query_of(const bnet_weight *w, bnet_op op, bnet_format format)
{
    bnet_kernel_query q = {.op = op, .format = format, .dtype = BNET_DTYPE_F32};
    if (op == BNET_OP_LINEAR)
        q.m = 1, q.n = w->info.n_out, q.k = w->info.n_in;
    return q;
}

static bool tuned(const cpu_backend *be, const bnet_weight *w, bnet_op op, bnet_format format)
{
    bnet_kernel_query q = query_of(w, op, format);
    return bnet_registry_tuned(be->registry, &be->caps, &q);
}

static const bnet_kernel_record *find(const cpu_backend *be, const bnet_weight *w, bnet_op op,
                                      bnet_format format)
{
    const bnet_kernel_record *k = NULL;
    bnet_kernel_query q = query_of(w, op, format);
    return bnet_registry_select(be->registry, &be->caps, &q, &k, NULL) == BITNET_OK ? k : NULL;
}

static bool wants_r4(const cpu_backend *be, const bnet_weight *w)
{
    bnet_kernel_query rows = query_of(w, BNET_OP_LINEAR, BNET_FORMAT_Q6_K);
    return w->info.type == BNET_Q6_K && (tuned(be, w, BNET_OP_HEAD_SCAN, BNET_FORMAT_Q6_K_R4) ||
                                         bnet_cpu_wants_packing(be, &rows, BNET_FORMAT_Q6_K_R4));
}

/* A scan pays where its kernel is better than the reference (or is asked for): exact rows are the
 * rule. The bound of the first stage is one on our own kernels: one from outside may round
 * differently, and computes all rows. */
static bitnet_status make_head(const cpu_backend *be, bnet_weight *w, bool r4,
                               const bnet_weight_request *r, bitnet_error *err)
{
    const struct {
        bnet_type type;
        bnet_format scan, exact;
    } known[] = {{BNET_Q6_K, BNET_FORMAT_Q6_K_R4, BNET_FORMAT_Q6_K},
                 {BNET_Q8_0, BNET_FORMAT_Q8_0, BNET_FORMAT_Q8_0},
                 {BNET_F16, BNET_FORMAT_F16, BNET_FORMAT_F16},
                 {BNET_BF16, BNET_FORMAT_BF16, BNET_FORMAT_BF16}};
    const bnet_kernel_record *scan = NULL, *exact = NULL;
    bool wanted = false;
    for (size_t i = 0; i < BNET_COUNT(known); i++)
        if (known[i].type == w->info.type && (i > 0 || r4)) {
            scan = find(be, w, BNET_OP_HEAD_SCAN, known[i].scan);
            exact = find(be, w, BNET_OP_LINEAR, known[i].exact);
            wanted = tuned(be, w, BNET_OP_HEAD_SCAN, known[i].scan) ||
                     tuned(be, w, BNET_OP_HEAD_SCAN, BNET_FORMAT_I8_R8);
        }
    if (!scan || !exact || exact->outside || w->info.n_in % 32 ||
        (scan->tier == BITNET_TIER_REFERENCE && !wanted))
        return BITNET_OK;
    size_t n = bnet_q6r4_groups(w->info.n_out) * BNET_Q6R4_ROWS;
    w->head = bnet_calloc(1, sizeof *w->head);
    if (w->head)
        *w->head = (cpu_head){
            .scan = scan, .exact = exact, .norms = bnet_calloc(n, sizeof *w->head->norms)};
    return w->head && w->head->norms ? BITNET_OK : bnet_no_memory(err, r->source.tensor->name);
}

/* Replaces the rows by what the job made of them. */
static void take(bnet_weight *w, const bnet_weight_request *r, head_job *j)
{
    if (j->packed) {
        if (r->mapped)
            bnet_map_release(w->data, w->info.n_out * w->row_bytes);
        w->data = j->packed;
        w->r4 = true;
    }
    if (w->head && atomic_load(&j->bad))
        w->head->scan = NULL;
    for (size_t i = 0; i < w->info.n_out && w->head; i++)
        w->head->norm_max = BNET_MAX(w->head->norm_max, j->norms[i]);
}

/* ---- between runs ---- */

static uint64_t norm_bytes(const bnet_weight *w)
{
    return bnet_q6r4_groups(w->info.n_out) * BNET_Q6R4_ROWS * sizeof(float);
}

static void keep(cpu_backend *be, const bnet_weight *w, const bnet_weight_request *r,
                 uint64_t n_bytes)
{
    const char *name = r->source.tensor->name;
    if (w->r4)
        bnet_cpu_cache_note(be, "q6_k_r4", name, w->data, n_bytes, 0, true);
    if (w->head)
        bnet_cpu_cache_note(be, "norms", name, w->head->norms, norm_bytes(w),
                            w->head->scan ? (double)w->head->norm_max : -1, true);
}

static bool from_cache(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r, bool r4,
                       uint64_t n_bytes)
{
    double note, norm_max = 0;
    const char *name = r->source.tensor->name;
    const void *rows = r4 ? bnet_cpu_cache_find(be, "q6_k_r4", name, n_bytes, &note) : NULL;
    const void *norms = NULL;
    if (w->head && (rows || !r4))
        norms = bnet_cpu_cache_find(be, "norms", name, norm_bytes(w), &norm_max);
    if ((r4 && !rows) || (w->head && !norms))
        return false;
    if (r4) {
        w->data = rows;
        w->r4 = true;
        bnet_cpu_cache_note(be, "q6_k_r4", name, rows, n_bytes, note, false);
    }
    if (!w->head)
        return true;
    memcpy(w->head->norms, norms, (size_t)norm_bytes(w));
    w->head->norm_max = (float)BNET_MAX(norm_max, 0);
    if (norm_max < 0)
        w->head->scan = NULL;
    bnet_cpu_cache_note(be, "norms", name, norms, norm_bytes(w), norm_max, false);
    return true;
}

/* Packed rows and lengths, from an earlier run or from the file. */
static bitnet_status make_rows(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                               bool r4, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    head_job j = {.w = w};
    uint64_t total = 0;
    j.norms = w->head ? w->head->norms : NULL;
    size_t n_groups = bnet_q6r4_groups(w->info.n_out);
    bool sized = bnet_mul(n_groups, bnet_q6r4_group_bytes(w->info.n_in), &total);
    if (sized && from_cache(be, w, r, r4, total))
        return BITNET_OK;
    if (r4 && !sized)
        return bnet_no_memory(err, r->source.tensor->name);
    if (r4)
        st = bnet_cpu_piece_take(be, r->source.tensor->name, total, &j.packed, err);
    if (st != BITNET_OK)
        return st;
    bnet_pool_items(be->pool, n_groups, 16, w->info.n_in * 4, head_groups, &j);
    take(w, r, &j);
    keep(be, w, r, total);
    return BITNET_OK;
}

bitnet_status bnet_cpu_head_prepare(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                                    bitnet_error *err)
{
    if (w->info.n_out < LEAST_ROWS)
        return BITNET_OK;
    bool r4 = wants_r4(be, w);
    bitnet_status st = make_head(be, w, r4, r, err);
    if (st == BITNET_OK && (r4 || w->head))
        st = make_rows(be, w, r, r4, err);
    return st == BITNET_OK && w->head ? bnet_cpu_copy_prepare(be, w, err) : st;
}

const uint8_t *bnet_cpu_plain_row(const bnet_weight *w, size_t id, uint8_t *plain)
{
    size_t n = w->info.n_in;
    if (!w->r4)
        return w->data + id * w->row_bytes;
    bnet_q6r4_unpack_row(w->data + id / 4 * bnet_q6r4_group_bytes(n), id % 4, n, plain);
    return plain;
}

void bnet_cpu_head_free(bnet_weight *w)
{
    if (!w->head)
        return;
    bnet_cpu_copy_free(w);
    bnet_free(w->head->norms);
    bnet_free(w->head);
}
