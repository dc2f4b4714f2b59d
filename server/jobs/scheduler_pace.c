/* scheduler_pace.c - how many prompt tokens a step may have (scheduler_pace.h).
 *
 * With b the time of a step without prompts and c that of one more prompt token, a step of p prompt
 * tokens takes b + p c. Those who generate wait as long: 3.5 b for p c = 2.5 b, and the prompt's
 * tokens take c + b / p = 1.4 c each. Where tokens in such a step cost more than in one of their
 * own (small tiles, a pass of its own on a GPU), the aim is raised until they do not, within
 * bounds. A step of 10 ms is one that nobody notices. */
#include "jobs/scheduler_pace.h"

enum {
    LEAST = 8,  /* tokens of a prompt: fewer would be all overhead */
    FIRST = 16, /* while nothing is known */
    ALONE_LEAST = 128,
    MEASURED = 64, /* tokens without company that tell what a token costs alone */
    REFRESH = 64,  /* steps with prompts, then one without */
    TILE = 16,     /* rows that kernels compute together */
};
static const double least_aim = 3.5, most_aim = 4.3, unnoticed_ms = 10;
static const double slow = 1.42, quick = 1.35, very_slow = 2;
static const double alone_most_ms = 500, weight = 0.3, memory = 0.9;

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

/* The usual time of a step of n_rows without prompts; 0: not known. */
static double plain_ms(const srv_pace *p, size_t n_rows)
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

/* ---- alone ---- */

static void note_alone(srv_alone *a, double at, double each)
{
    a->n = memory * a->n + 1;
    a->x = memory * a->x + at;
    a->xx = memory * a->xx + at * at;
    a->y = memory * a->y + each;
    a->xy = memory * a->xy + at * each;
}

/* A prompt token's time at this position; 0: not known. */
static double alone_at(const srv_alone *a, double at)
{
    if (a->n <= 0)
        return 0;
    double mean = a->y / a->n, spread = a->n * a->xx - a->x * a->x;
    double slope = spread > 1 ? (a->n * a->xy - a->x * a->y) / spread : 0;
    double each = slope > 0 ? mean + slope * (at - a->x / a->n) : mean;
    return each > mean / 4 ? each : mean / 4;
}

static size_t room_alone(const srv_pace *p, size_t most)
{
    double each = p->alone.n > 0 ? p->alone.y / p->alone.n : p->mixed_ms;
    if (each <= 0 || alone_most_ms / each >= (double)most)
        return most;
    size_t n = (size_t)(alone_most_ms / each) / 64 * 64;
    return least(most, n < ALONE_LEAST ? ALONE_LEAST : n);
}

/* ---- beside others ---- */

/* What a step may take at most: a multiple of its usual time. */
static double bound(double plain)
{
    double most = unnoticed_ms / plain;
    return most > most_aim ? most : most_aim;
}

static double aim_of(const srv_pace *p, double plain)
{
    double most = bound(plain), aim = p->aim > least_aim ? p->aim : least_aim;
    return aim < most ? aim : most;
}

/* Whole tiles of kernels, together with the rows, where that changes little. */
static size_t whole_tiles(size_t room, size_t n_rows)
{
    if (room < 2 * TILE)
        return room / 4 * 4;
    return room - (room + n_rows) % TILE;
}

size_t srv_pace_room(const srv_pace *p, size_t n_rows, size_t most)
{
    if (n_rows == 0)
        return room_alone(p, most);
    double plain = plain_ms(p, n_rows);
    if (plain <= 0 || p->n_mixed >= REFRESH)
        return 0;
    double each = p->mixed_ms > 0 ? p->mixed_ms : alone_at(&p->alone, 0);
    if (each <= 0)
        return least(FIRST, most);
    double n = (aim_of(p, plain) - 1) * plain / each;
    if (n >= (double)most)
        return most;
    size_t room = whole_tiles((size_t)n, n_rows);
    return least(most, room < LEAST ? LEAST : room);
}

/* ---- measuring ---- */

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

/* A prompt that takes too long gets longer steps, one that is quick shorter ones. */
static void adjust(srv_pace *p, double plain)
{
    double aim = aim_of(p, plain), patience = aim > most_aim ? 0.06 : 0;
    if (p->rate > slow + patience)
        aim *= p->rate > very_slow ? 1.35 : 1.05;
    else if (p->rate < quick + 1.5 * patience)
        aim /= 1.05;
    double most = bound(plain);
    p->aim = aim < most ? aim : most;
}

static void note_mixed(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms)
{
    double plain = plain_ms(p, n_rows), n = (double)n_prompt;
    double alone = alone_at(&p->alone, at);
    p->n_mixed++;
    if (n_prompt < LEAST || plain <= 0)
        return;
    blend(&p->mixed_ms, ms > plain ? (ms - plain) / n : p->mixed_ms / 2);
    if (alone > 0) {
        blend(&p->rate, ms / n / alone);
        adjust(p, plain);
    }
}

void srv_pace_note(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms)
{
    if (n_rows && n_prompt) {
        note_mixed(p, n_rows, n_prompt, at, ms);
    } else if (n_rows) {
        srv_plain *b = &p->plain[bucket(n_rows)];
        b->ms[b->n++ % SRV_PACE_KEPT] = ms;
        p->n_mixed = 0;
    } else if (n_prompt >= MEASURED) {
        note_alone(&p->alone, at, ms / (double)n_prompt);
    }
}
