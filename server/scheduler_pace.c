/* scheduler_pace.c - how many prompt tokens a step may have (scheduler_pace.h).
 *
 * With b the time of a step without prompts and c that of one more prompt token, a step of p prompt
 * tokens takes b + p c. Those who generate wait as long, so p c is 2.5 b: a gap of 3.5 times what
 * they are used to. The prompt's token takes c + b / p = 1.4 c. Where tokens cost more in such a
 * step than in one of their own, p c is 3.4 b instead. */
#include "scheduler_pace.h"

enum {
    LEAST = 8,  /* tokens of a prompt: fewer would be all overhead */
    FIRST = 16, /* while nothing is known */
    ALONE_LEAST = 128,
    MEASURED = 64, /* tokens without company that tell what a token costs alone */
    REFRESH = 64,  /* steps with prompts, then one without */
};
static const double gap = 2.5, long_gap = 3.4, slow = 1.03, alone_most_ms = 500, weight = 0.3;

/* 1..8 rows each have their own bucket, more share one by halves of powers of two. */
static size_t bucket(size_t n_rows)
{
    size_t b = 8, from = 8;
    if (n_rows <= 8)
        return n_rows - 1;
    while (n_rows > 2 * from && b + 2 < SRV_PACE_ROWS) {
        from *= 2;
        b += 2;
    }
    return b + (n_rows > from + from / 2);
}

static double median(const double *values, unsigned n)
{
    double sorted[SRV_PACE_KEPT];
    for (unsigned i = 0; i < n; i++) {
        unsigned k = i;
        for (; k > 0 && sorted[k - 1] > values[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = values[i];
    }
    return sorted[n / 2];
}

static double of_bucket(const srv_plain *p)
{
    unsigned n = p->n < SRV_PACE_KEPT ? p->n : SRV_PACE_KEPT;
    return n ? median(p->ms, n) : 0;
}

double srv_pace_plain(const srv_pace *p, size_t n_rows)
{
    size_t b = bucket(n_rows ? n_rows : 1);
    for (size_t i = b + 1; i-- > 0;) /* fewer rows take less time: the careful side */
        if (p->plain[i].n)
            return of_bucket(&p->plain[i]);
    for (size_t i = b + 1; i < SRV_PACE_ROWS; i++)
        if (p->plain[i].n)
            return of_bucket(&p->plain[i]);
    return 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t room_alone(const srv_pace *p, size_t most)
{
    double each = p->alone_ms > 0 ? p->alone_ms : p->mixed_ms;
    if (each <= 0 || alone_most_ms / each >= (double)most)
        return most;
    size_t n = (size_t)(alone_most_ms / each) / 64 * 64;
    return least(most, n < ALONE_LEAST ? ALONE_LEAST : n);
}

size_t srv_pace_room(const srv_pace *p, size_t n_rows, size_t most)
{
    if (n_rows == 0)
        return room_alone(p, most);
    double plain = srv_pace_plain(p, n_rows);
    if (plain <= 0 || p->n_mixed >= REFRESH)
        return 0;
    double each = p->mixed_ms > 0 ? p->mixed_ms : p->alone_ms;
    if (each <= 0)
        return least(FIRST, most);
    double share = p->alone_ms > 0 && each > slow * p->alone_ms ? long_gap : gap;
    double n = share * plain / each;
    if (n >= (double)most)
        return most;
    size_t step = n >= 64 ? 16 : 4; /* whole tiles of kernels, where that changes little */
    size_t room = (size_t)n / step * step;
    return least(most, room < LEAST ? LEAST : room);
}

static void blend(double *estimate, double sample)
{
    if (*estimate <= 0) {
        *estimate = sample;
        return;
    }
    if (sample > 3 * *estimate)
        sample = 3 * *estimate;
    if (sample < *estimate / 3)
        sample = *estimate / 3;
    *estimate += weight * (sample - *estimate);
}

void srv_pace_note(srv_pace *p, size_t n_rows, size_t n_prompt, double ms)
{
    if (n_rows && n_prompt) {
        double plain = srv_pace_plain(p, n_rows);
        p->n_mixed++;
        if (n_prompt >= LEAST && plain > 0)
            blend(&p->mixed_ms, ms > plain ? (ms - plain) / (double)n_prompt : p->mixed_ms / 2);
    } else if (n_rows) {
        srv_plain *b = &p->plain[bucket(n_rows)];
        b->ms[b->n++ % SRV_PACE_KEPT] = ms;
        p->n_mixed = 0;
    } else if (n_prompt >= MEASURED) {
        blend(&p->alone_ms, ms / (double)n_prompt);
    }
}
