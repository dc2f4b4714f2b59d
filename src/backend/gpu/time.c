/* time.c - spans of work on the device: a ring of pairs of stamps, the meter they fill, and the
 * profile of single kernels. */
#include "backend/gpu/time.h"

#include "backend/gpu/precision.h"

enum { SINGLE_PASSES = 4, PAIRS = 9 };

/* ---- spans ---- */

/* What an operation's time is added to; what belongs to no single one is the pass's. */
static bnet_op_entry entry_of(bnet_op op)
{
    switch (op) {
    case BNET_OP_LINEAR:
    case BNET_OP_BEST:
        return BNET_ENTRY_LINEAR;
    case BNET_OP_QUANTIZE:
    case BNET_OP_NORM_QUANTIZE:
        return BNET_ENTRY_QUANTIZE;
    case BNET_OP_RMSNORM:
        return BNET_ENTRY_NORM;
    case BNET_OP_EMBED:
        return BNET_ENTRY_EMBED;
    case BNET_OP_ROPE:
    case BNET_OP_ROPE_TABLE:
    case BNET_OP_ROPE_APPEND:
        return BNET_ENTRY_ROPE;
    case BNET_OP_KV_STORE:
        return BNET_ENTRY_KV_APPEND;
    case BNET_OP_ATTENTION:
    case BNET_OP_PREFILL:
        return BNET_ENTRY_ATTENTION;
    case BNET_OP_GLU:
        return BNET_ENTRY_GLU;
    case BNET_OP_ADD:
        return BNET_ENTRY_ADD;
    case BNET_OP_GATHER:
        return BNET_ENTRY_GATHER;
    default:
        return BNET_ENTRY_PASS;
    }
}

static void add(gpu_backend *be, const gpu_span *s, double ms)
{
    bnet_meter *m = be->base.meter;
    if (m) {
        atomic_fetch_add_explicit(&m->n[s->entry], s->n_counts, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->ns[s->entry], (uint64_t)(ms * 1e6), memory_order_relaxed);
        if (be->n_half && s->symbol >= 0)
            be->half_ms[bnet_gpu_precision_of(be, bnet_registry_at(be->registry, s->slot))] += ms;
    }
    if (be->clock->each && s->symbol >= 0) {
        gpu_timed *t = &be->clock->each[s->slot].symbol[s->symbol];
        t->n++;
        t->ms += BNET_MAX(ms - be->clock->pair_ms, 0.0);
    }
}

static int stamp_of(int span)
{
    return GPU_SPAN_STAMPS + 2 * span;
}

static void read_first(gpu_backend *be)
{
    struct gpu_clock *c = be->clock;
    double ms = 0;
    int i = c->first;
    c->first = (c->first + 1) % GPU_SPANS;
    c->n--;
    if (gpu_alive(be) && bnet_gpu_ok(be, "measuring time",
                                     be->d->c->between(be->d, stamp_of(i), stamp_of(i) + 1, &ms)))
        add(be, &c->spans[i], ms);
}

void bnet_gpu_time_read(gpu_backend *be)
{
    while (be->clock->n)
        read_first(be);
}

static int begin(gpu_backend *be, gpu_span s)
{
    struct gpu_clock *c = be->clock;
    if (c->n == GPU_SPANS)
        read_first(be);
    int i = (c->first + c->n) % GPU_SPANS;
    if (!gpu_alive(be) || !bnet_gpu_ok(be, "measuring time", be->d->c->stamp(be->d, stamp_of(i))))
        return -1;
    c->spans[i] = s;
    c->n++;
    return i;
}

void bnet_gpu_time_end(gpu_backend *be, int span)
{
    if (span < 0)
        return;
    if (be->clock->spans[span].symbol < 0)
        be->clock->in_pass = false;
    if (gpu_alive(be) &&
        bnet_gpu_ok(be, "measuring time", be->d->c->stamp(be->d, stamp_of(span) + 1)))
        return;
    be->clock->n = 0; /* whatever was under way has failed */
}

int bnet_gpu_time_launch(gpu_backend *be, const gpu_launch *l)
{
    const struct gpu_clock *c = be->clock;
    const bnet_kernel_record *k = l->kernel;
    if (c->each)
        c->each[k->slot].symbol[l->symbol].dims = l->dims;
    if (be->recording || !be->d->c->stamp || c->in_pass || (!c->each && !be->base.meter))
        return -1;
    return begin(be, (gpu_span){.entry = (uint8_t)entry_of(k->op),
                                .n_counts = !l->more,
                                .symbol = (int8_t)l->symbol,
                                .slot = (uint16_t)k->slot});
}

int bnet_gpu_time_pass(gpu_backend *be, bool repeated)
{
    struct gpu_clock *c = be->clock;
    if (!be->base.meter || c->each || !be->d->c->stamp || be->n_half)
        return -1; /* with halves every launch counts for its precision */
    if (!repeated && c->n_single < SINGLE_PASSES) {
        c->n_single++;
        return -1;
    }
    int span = begin(be, (gpu_span){.entry = BNET_ENTRY_PASS, .n_counts = 1, .symbol = -1});
    c->in_pass = span >= 0;
    return span;
}

/* ---- profiling ---- */

/* What two stamps cost by themselves: the median of a few pairs. */
static double pair_cost(gpu_backend *be)
{
    const gpu_calls *c = be->d->c;
    double ms[PAIRS] = {0};
    for (int i = 0; i < PAIRS; i++) {
        int at = GPU_SPAN_STAMPS;
        if (!bnet_gpu_ok(be, "measuring time", c->stamp(be->d, at)) ||
            !bnet_gpu_ok(be, "measuring time", c->stamp(be->d, at + 1)) ||
            !bnet_gpu_ok(be, "measuring time", c->between(be->d, at, at + 1, &ms[i])))
            return 0;
        for (int k = i; k > 0 && ms[k] < ms[k - 1]; k--) {
            double t = ms[k];
            ms[k] = ms[k - 1];
            ms[k - 1] = t;
        }
    }
    return ms[PAIRS / 2];
}

bool bnet_gpu_profile(bnet_backend *b, bool on)
{
    gpu_backend *be = gpu_of(b);
    struct gpu_clock *c = be->clock;
    bnet_gpu_enter(be);
    if (be->d->c->stamp)
        bnet_gpu_time_read(be);
    bnet_free(c->each);
    c->each = NULL;
    if (on && be->d->c->stamp) {
        c->pair_ms = pair_cost(be);
        c->each = bnet_calloc(BNET_KERNELS_MAX, sizeof *c->each);
    }
    bool ok = c->each != NULL;
    bnet_gpu_leave(be);
    return ok;
}

bitnet_launch bnet_gpu_launch_shape(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                                    const gpu_dims *d)
{
    gpu_occupancy o = {0};
    unsigned threads = d->block[0] * d->block[1] * d->block[2];
    bitnet_launch s = {.grid = {d->grid[0], d->grid[1], d->grid[2]},
                       .block = threads,
                       .shared_bytes = d->shared_bytes};
    if (!be->d->c->occupancy || !bnet_gpu_has(be, k, symbol) ||
        be->d->c->occupancy(be->d, be->code[k->slot][symbol], d, &o) != GPU_OK)
        return s;
    s.shared_bytes += (unsigned)o.shared_bytes;
    s.registers = o.registers;
    s.blocks_per_sm = o.blocks_per_sm;
    if (o.threads_per_sm > 0)
        s.occupancy = (double)o.blocks_per_sm * threads / o.threads_per_sm;
    return s;
}

unsigned bnet_gpu_block(gpu_backend *be, const bnet_kernel_record *k)
{
    static const unsigned sizes[] = {128, 256, 64, 512};
    unsigned best = be->block[k->slot];
    double most = 0;
    for (size_t i = 0; !be->block[k->slot] && i < BNET_COUNT(sizes); i++) {
        const gpu_dims d = {.grid = {1, 1, 1}, .block = {sizes[i], 1, 1}};
        double share = bnet_gpu_launch_shape(be, k, 0, &d).occupancy;
        if (best && !(share > most))
            continue;
        most = share;
        best = sizes[i];
    }
    be->block[k->slot] = (uint16_t)best;
    return best;
}

size_t bnet_gpu_profile_read(bnet_backend *b, bitnet_kernel_time *out, size_t cap)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k;
    size_t n = 0;
    bnet_gpu_enter(be);
    bnet_gpu_time_read(be);
    for (size_t i = 0; be->clock->each && (k = bnet_registry_at(be->registry, i)); i++)
        for (int s = 0; s < GPU_SYMBOLS; s++) {
            const gpu_timed *t = &be->clock->each[k->slot].symbol[s];
            if (t->n == 0)
                continue;
            if (n < cap)
                out[n] = (bitnet_kernel_time){k->id, bnet_op_name(k->op),
                                              s,     t->n,
                                              t->ms, bnet_gpu_launch_shape(be, k, s, &t->dims)};
            n++;
        }
    bnet_gpu_leave(be);
    return n;
}
