/* weights_head.c - what the head needs beyond a plain matrix, made when the weight is prepared: a
 * kernel that scans its rows, a bound on the length of every row, and for Q6_K the packed order
 * (pack_q6.h), which takes the place of the rows in the file. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/half_inline.h"
#include "backend/cpu/pack_q6.h"
#include "base/file.h"

#include <math.h>

enum { LEAST_ROWS = 64 }; /* fewer are computed at once */
#define NORM_MAX 1e30f    /* beyond it bounds could leave the range of floats */

typedef struct head_job {
    const bnet_weight *w;
    float *norms;    /* NULL: not wanted */
    uint8_t *packed; /* NULL: the rows stay as they are */
    atomic_bool bad; /* a row's length is no number we can use */
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

/* A little more than the length: doubles are off by a few 2^-53 per term, the float by 2^-24. */
static float row_norm(const bnet_weight *w, const uint8_t *row)
{
    double sum =
        w->info.type == BNET_Q6_K ? q6_squares(row, w->info.n_in) : q8_squares(row, w->info.n_in);
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

/* Only kernels better than the reference are worth a scan: it is exact rows that are the rule. */
static const bnet_kernel_record *find(const cpu_backend *be, const char *op, const char *format,
                                      const bnet_weight *w, bool fast)
{
    const bnet_kernel_record *k = NULL;
    bnet_kernel_query q = {
        .op = op, .format = format, .dtype = "f32", .m = 1, .n = w->info.n_out, .k = w->info.n_in};
    if (bnet_registry_select(be->registry, &be->caps, &q, &k, NULL) != BITNET_OK)
        return NULL;
    return fast && k->tier == BNET_TIER_REFERENCE ? NULL : k;
}

/* Packed rows can be read by a kernel that stands as high as that of plain ones; one from outside,
 * which knows plain rows alone, is not passed over. */
static bool wants_r4(const cpu_backend *be, const bnet_weight *w, const bnet_kernel_record *plain)
{
    const bnet_kernel_record *r4 = find(be, "linear", "q6_k_r4", w, true);
    return be->pack && r4 && r4->tier >= plain->tier && (!plain->outside || r4->tier > plain->tier);
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
    if (atomic_load(&j->bad))
        w->head->scan = NULL;
    for (size_t i = 0; i < w->info.n_out; i++)
        w->head->norm_max = BNET_MAX(w->head->norm_max, j->norms[i]);
}

bitnet_status bnet_cpu_head_prepare(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                                    bitnet_error *err)
{
    bool q6 = w->info.type == BNET_Q6_K;
    size_t n_groups = bnet_q6r4_groups(w->info.n_out);
    if ((!q6 && w->info.type != BNET_Q8_0) || w->info.n_out < LEAST_ROWS)
        return BITNET_OK;
    const bnet_kernel_record *exact = find(be, "linear", q6 ? "q6_k" : "q8_0", w, false);
    const bnet_kernel_record *scan = find(be, "head_scan", q6 ? "q6_k_r4" : "q8_0", w, true);
    if (!exact || !scan || exact->tier == BNET_TIER_REFERENCE || (q6 && !wants_r4(be, w, exact)))
        return BITNET_OK;
    head_job j = {.w = w};
    uint64_t total;
    w->head = bnet_calloc(1, sizeof *w->head);
    if (!w->head)
        return bnet_no_memory(err, r->tensor->name);
    *w->head = (cpu_head){.scan = scan,
                          .exact = exact,
                          .norms = bnet_calloc(n_groups * BNET_Q6R4_ROWS, sizeof(float))};
    j.norms = w->head->norms;
    if (q6 && bnet_mul(n_groups, bnet_q6r4_group_bytes(w->info.n_in), &total))
        j.packed = bnet_cpu_piece_take(be, (size_t)total);
    if (!j.norms || (q6 && !j.packed))
        return bnet_no_memory(err, r->tensor->name);
    bnet_cpu_items(be, n_groups, 16, w->info.n_in * 4, head_groups, &j);
    take(w, r, &j);
    return BITNET_OK;
}

void bnet_cpu_head_free(bnet_weight *w)
{
    if (w->head)
        bnet_free(w->head->norms);
    bnet_free(w->head);
}
