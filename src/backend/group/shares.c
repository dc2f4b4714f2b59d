/* shares.c - who takes how much. */
#include "backend/group/shares.h"

#include "backend/group/exchange.h"

enum { ROW_UNIT = 64, LEAST_UNITS = 8 };
/* A tenth of what is free is left for caches, passes and others. */
static const double USABLE = 0.9;

bool bnet_gpu_shares(const gpu_rank_facts *ranks, int n_ranks, uint64_t n, uint64_t *first)
{
    uint64_t count = (uint64_t)n_ranks;
    double total = 0, sum = 0;
    if (n < count)
        return false;
    for (int r = 0; r < n_ranks; r++)
        total += ranks[r].speed;
    first[0] = 0;
    for (int r = 0; r < n_ranks; r++) {
        sum += ranks[r].speed;
        uint64_t end = (uint64_t)((double)n * sum / total + 0.5);
        uint64_t most = n - (count - 1 - (uint64_t)r); /* the others need one each */
        end = BNET_MIN(end, most);
        first[r + 1] = BNET_MAX(end, first[r] + 1);
    }
    first[n_ranks] = n;
    return true;
}

bool bnet_gpu_share_rows(const gpu_rank_facts *ranks, int n_ranks, uint64_t n, uint64_t *first)
{
    uint64_t unit = ROW_UNIT;
    while (unit > 1 && n / unit < LEAST_UNITS * (uint64_t)n_ranks)
        unit /= 2;
    if (!bnet_gpu_shares(ranks, n_ranks, n / unit, first))
        return false;
    for (int r = 1; r < n_ranks; r++)
        first[r] *= unit;
    first[n_ranks] = n;
    return true;
}

/* How many layers fit on a rank with everything else it holds. */
static uint64_t capacity(const gpu_rank_facts *f, const gpu_layers *l, int r, int n_ranks)
{
    double room = USABLE * (double)f->free_bytes;
    room -= r == 0 ? (double)l->first_bytes : 0;
    room -= r == n_ranks - 1 ? (double)l->last_bytes : 0;
    double n = room / (double)BNET_MAX(l->layer_bytes, (uint64_t)1);
    return n < 0 ? 0 : n > l->n ? (uint64_t)l->n : (uint64_t)n;
}

/* The fastest rank that has room for one more; -1: none. */
static int with_room(const gpu_rank_facts *ranks, int n_ranks, const uint64_t *count,
                     const uint64_t *most)
{
    int best = -1;
    for (int r = 0; r < n_ranks; r++)
        if (count[r] < most[r] && (best < 0 || ranks[r].speed > ranks[best].speed))
            best = r;
    return best;
}

bitnet_status bnet_gpu_share_layers(const gpu_rank_facts *ranks, int n_ranks, const gpu_layers *l,
                                    uint64_t *first, bitnet_error *err)
{
    uint64_t count[GPU_RANKS], most[GPU_RANKS], left = 0, fit = 0;
    if (!bnet_gpu_shares(ranks, n_ranks, (uint64_t)l->n, first))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: %d layers cannot be divided among %d devices; name at most %d",
                         l->file, l->n, n_ranks, l->n);
    for (int r = 0; r < n_ranks; r++) {
        most[r] = capacity(&ranks[r], l, r, n_ranks);
        count[r] = BNET_MIN(first[r + 1] - first[r], most[r]);
        left += first[r + 1] - first[r] - count[r];
        fit += most[r];
    }
    for (int r; left > 0 && (r = with_room(ranks, n_ranks, count, most)) >= 0; left--)
        count[r]++;
    for (int r = 0; r < n_ranks; r++) {
        if (left > 0 || count[r] == 0)
            return bnet_fail(err, BITNET_MEMORY,
                             "%s: %d layers of %.2f GB do not fit on these devices: there is room "
                             "for %llu, for %llu of them on rank %d (%.2f GB free); close other "
                             "programs on it, leave it out or name more devices",
                             l->file, l->n, (double)l->layer_bytes / 1e9, (unsigned long long)fit,
                             (unsigned long long)most[r], r, (double)ranks[r].free_bytes / 1e9);
        first[r + 1] = first[r] + count[r];
    }
    return BITNET_OK;
}

/* Milliseconds in which a device reads what ranks r and later have on it. */
static double reading_ms(const gpu_rank_read *ranks, int n_ranks, int r)
{
    double ms = 0;
    for (int i = r; i < n_ranks; i++)
        if (ranks[i].device == ranks[r].device)
            ms += (double)ranks[i].n_bytes / ranks[i].gb_s / 1e6;
    return ms;
}

double bnet_gpu_read_rate(const gpu_rank_read *ranks, int n_ranks, bool at_once)
{
    double bytes = 0, sum = 0, longest = 0, least = ranks[0].gb_s;
    for (int r = 0; r < n_ranks; r++) {
        if (!(ranks[r].gb_s > 0))
            return 0;
        bytes += (double)ranks[r].n_bytes;
        least = BNET_MIN(least, ranks[r].gb_s);
        sum += (double)ranks[r].n_bytes / ranks[r].gb_s / 1e6;
        longest = BNET_MAX(longest, reading_ms(ranks, n_ranks, r));
    }
    double ms = at_once ? longest : sum;
    return ms > 0 ? bytes / ms / 1e6 : least;
}
