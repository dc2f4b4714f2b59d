/* weights_copy.c - the copy of the head (head_copy.h): whether one is made, and its making, a part
 * in every call that would use it, so that no call waits for all of it. */
#include "backend/cpu/cpu.h"
#include "format/codec.h"

enum {
    LEAST_ROWS = 1024, /* of a head that is copied */
    FEW = 2,          /* inputs that it is made for; 16-bit floats: any, since it is half of them */
    PARTS = 32,       /* it is made in, at most */
    LEAST_PART = 128, /* groups */
    ROOM = 4,         /* times its size must be free */
    COSTLY = 64,      /* where more than one row in so many is left, block formats pause */
    PAUSE = 64        /* calls */
};

static bool is_blocks(const bnet_weight *w)
{
    return w->info.type == BNET_Q6_K || w->info.type == BNET_Q8_0;
}

bitnet_status bnet_cpu_copy_prepare(const cpu_backend *be, bnet_weight *w, bitnet_error *err)
{
    bnet_kernel_query q = {
        .op = BNET_OP_HEAD_SCAN, .format = BNET_FORMAT_I8_R8, .dtype = BNET_DTYPE_F32};
    const bnet_kernel_record *scan = NULL;
    bool wanted = bnet_registry_tuned(be->registry, &be->caps, &q);
    if (!w->head->scan || w->info.n_in > BNET_COPY_COLUMNS ||
        bnet_registry_select(be->registry, &be->caps, &q, &scan, NULL) != BITNET_OK)
        return BITNET_OK;
    if (is_blocks(w) && scan->tier < w->head->scan->tier && !wanted)
        return BITNET_OK; /* it would read more, and compute no faster */
    if (!wanted && (!be->pack || scan->tier == BITNET_TIER_REFERENCE || w->info.n_out < LEAST_ROWS))
        return BITNET_OK;
    size_t n_groups = (w->info.n_out + BNET_COPY_ROWS - 1) / BNET_COPY_ROWS;
    w->head->copy = bnet_calloc(1, sizeof *w->head->copy);
    if (!w->head->copy)
        return bnet_no_memory(err, "a copy of the head");
    w->head->copy->scan = scan;
    w->head->copy->wanted = wanted;
    w->head->copy->n_groups = n_groups;
    return BITNET_OK;
}

void bnet_cpu_copy_free(bnet_weight *w)
{
    if (!w->head->copy)
        return;
    bnet_free(w->head->copy->groups);
    bnet_free(w->head->copy->rests);
    bnet_free(w->head->copy);
}

/* ---- making ---- */

typedef struct copy_job {
    const bnet_weight *w;
    size_t first;        /* group */
    atomic_bool no_room; /* for the floats of a row */
} copy_job;

/* A little more than the length, as the lengths of weights_head.c. */
static float raised(double length)
{
    return (float)(length * (1 + 1e-6) + 1e-37);
}

static void make_group(const bnet_weight *w, size_t g, uint8_t *plain, float *row)
{
    const cpu_copy *c = w->head->copy;
    size_t n = w->info.n_in, bytes = bnet_copy_group_bytes(n), first = g * BNET_COPY_ROWS;
    uint8_t *group = c->groups + g * bytes;
    memset(group + bytes - BNET_COPY_LINE, 0, BNET_COPY_LINE);
    for (size_t r = 0; r < BNET_COPY_ROWS && first + r < w->info.n_out; r++) {
        bnet_decode_row(w->info.type, bnet_cpu_plain_row(w, first + r, plain), row, n);
        c->rests[first + r] = raised(bnet_copy_row(row, n, r, group));
    }
}

static void make_groups(void *arg, size_t begin, size_t end)
{
    copy_job *j = arg;
    const bnet_weight *w = j->w;
    float *row = bnet_alloc(w->info.n_in * sizeof *row);
    uint8_t *plain = bnet_alloc(w->row_bytes);
    for (size_t g = begin; g < end && row && plain; g++)
        make_group(w, j->first + g, plain, row);
    if (!row || !plain)
        atomic_store_explicit(&j->no_room, true, memory_order_relaxed);
    bnet_free(row);
    bnet_free(plain);
}

/* Memory for all of it, where most of what is free stays free. False: not now. */
static bool take_room(const bnet_weight *w, cpu_copy *c)
{
    uint64_t n_bytes;
    if (c->groups && c->rests)
        return true;
    if (!bnet_mul(c->n_groups, bnet_copy_group_bytes(w->info.n_in), &n_bytes) ||
        (!c->wanted && bnet_host_room_read("").free / ROOM < n_bytes))
        return false;
    if (!c->groups)
        c->groups = bnet_alloc_huge((size_t)n_bytes);
    if (!c->rests)
        c->rests = bnet_calloc(c->n_groups * BNET_COPY_ROWS, sizeof *c->rests);
    return c->groups && c->rests;
}

static void make_part(cpu_backend *be, const bnet_weight *w, cpu_copy *c)
{
    size_t made = atomic_load_explicit(&c->n_made, memory_order_relaxed);
    size_t n = c->wanted ? c->n_groups : BNET_MAX(c->n_groups / PARTS + 1, (size_t)LEAST_PART);
    copy_job j = {.w = w, .first = made};
    n = BNET_MIN(n, c->n_groups - made);
    if (!take_room(w, c)) {
        atomic_store_explicit(&c->pause, PAUSE, memory_order_relaxed);
        return;
    }
    bnet_pool_items(be->pool, n, 4, w->info.n_in * 64, make_groups, &j);
    if (!atomic_load(&j.no_room))
        atomic_store_explicit(&c->n_made, made + n, memory_order_release);
}

/* ---- using ---- */

/* True in every call of a pause. */
static bool pauses(cpu_copy *c)
{
    int left = atomic_load_explicit(&c->pause, memory_order_relaxed);
    if (left > 0)
        atomic_store_explicit(&c->pause, left - 1, memory_order_relaxed);
    return left > 0;
}

const cpu_copy *bnet_cpu_copy_for(cpu_backend *be, const bnet_weight *w, size_t n_inputs)
{
    cpu_copy *c = w->head->copy;
    size_t few = is_blocks(w) && !(c && c->wanted) ? FEW : 1;
    if (!c || n_inputs < few || pauses(c))
        return NULL;
    if (atomic_load_explicit(&c->n_made, memory_order_acquire) < c->n_groups &&
        !atomic_exchange_explicit(&c->busy, true, memory_order_acquire)) {
        if (atomic_load_explicit(&c->n_made, memory_order_relaxed) < c->n_groups)
            make_part(be, w, c);
        atomic_store_explicit(&c->busy, false, memory_order_release);
    }
    return atomic_load_explicit(&c->n_made, memory_order_acquire) == c->n_groups ? c : NULL;
}

void bnet_cpu_copy_left(const bnet_weight *w, size_t n_inputs, size_t n_rows, bool too_many)
{
    cpu_copy *c = w->head->copy;
    bool costly = is_blocks(w) && n_rows > n_inputs * (w->info.n_out / COSTLY);
    if (!c->wanted && (too_many || costly))
        atomic_store_explicit(&c->pause, PAUSE, memory_order_relaxed);
}
