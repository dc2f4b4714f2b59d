/* scheduler_pace.c - how many prompt tokens a step may have (scheduler_pace.h).
 *
 * With d the time of a step without prompts and c that of one more prompt token, a step of p prompt
 * tokens takes d + p c. Those who generate wait as long: 4 d for p c = 3 d, and the prompt's tokens
 * take c + d / p = 1.33 c each. Steps are not that simple: prompts may need a pass of their own,
 * whose fixed cost is as much as d, and kernels work in tiles. So what prompts add to a step is
 * kept by their number of tokens, and the room is read from that curve: short prompts, which are
 * all fixed cost, say nothing about long ones. */
#include "jobs/scheduler_pace.h"

enum {
    LEAST = 8,  /* tokens of a prompt: fewer would be all overhead */
    FIRST = 16, /* while nothing is known */
    ALONE_LEAST = 128,
    MEASURED = 64, /* tokens without company that tell what a token costs alone */
    REFRESH = 64,  /* steps with prompts, then one without */
    TILE = 16,     /* rows that kernels compute together */
    GROWTH = 4,    /* a piece is at most so many times the longest one known */
};
/* A step takes so many times one without prompts ... */
static const double least_times = 3.6, most_times = 4.6, unnoticed_ms = 10;
/* ... depending on what a prompt token takes in it, by what it takes alone. */
static const double quick = 1.36, slow = 1.5;
static const double alone_most_ms = 500, least_ms = 1e-4, memory = 0.9;
/* How much a step changes what is known of steps with as many prompt tokens, and of others. */
static const double weight = 0.35, drift = 0.15, most_change = 0.6;

/* 1..8 rows or tokens each have their own bucket, more share one by halves of powers of two. */
static size_t bucket(size_t n)
{
    size_t b = 8, from = 8;
    if (n <= 8)
        return n - 1;
    while (n > 2 * from && b + 2 < SRV_PACE_SIZES) {
        from *= 2;
        b += 2;
    }
    return b + (n > from + from / 2);
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

/* The usual time of a step of n_rows without prompts, between those of fewer and of more rows if
 * need be; 0: not known. */
static double plain_ms(const srv_pace *p, size_t n_rows)
{
    const srv_plain *fewer = NULL, *more = NULL;
    size_t b = bucket(n_rows);
    for (size_t i = 0; i < SRV_PACE_SIZES; i++) {
        const srv_plain *known = p->plain[i].n ? &p->plain[i] : NULL;
        fewer = known && i <= b ? known : fewer;
        more = known && i >= b && !more ? known : more;
    }
    if (!fewer || !more || fewer == more)
        return fewer ? of_bucket(fewer) : more ? of_bucket(more) : 0;
    double from = of_bucket(fewer), to = of_bucket(more);
    double part = ((double)n_rows - fewer->rows) / (more->rows - fewer->rows);
    return to > from ? from + (to - from) * part : to;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- alone ---- */

/* Short pieces are mostly fixed cost: they tell nothing where longer ones are known. */
static void note_alone(srv_alone *a, double n, double at, double ms)
{
    if (n > 2 * a->longest)
        *a = (srv_alone){0};
    if (n < a->longest / 2)
        return;
    a->longest = n > a->longest ? n : a->longest;
    a->n = memory * a->n + 1;
    a->x = memory * a->x + at;
    a->xx = memory * a->xx + at * at;
    a->y = memory * a->y + ms / n;
    a->xy = memory * a->xy + at * ms / n;
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
    double each = p->alone.n > 0 ? p->alone.y / p->alone.n : 0;
    if (each <= 0 || alone_most_ms / each >= (double)most)
        return most;
    size_t n = (size_t)(alone_most_ms / each) / 64 * 64;
    return least(most, n < ALONE_LEAST ? ALONE_LEAST : n);
}

/* ---- beside others: what prompts add to a step ---- */

/* What lies beyond the longest piece known, `last`, costs what tokens cost alone or between the two
 * longest pieces known, whichever is less, within reason. */
static double slope_after(const srv_pace *p, const srv_added *last, const srv_added *before)
{
    double each = last->ms / last->n, alone = alone_at(&p->alone, p->at);
    double most = alone > 0 && alone < each ? alone : each;
    double seen = before ? (last->ms - before->ms) / (last->n - before->n) : most;
    return seen < most / 4 ? most / 4 : seen < most ? seen : most;
}

/* So many tokens add at most `ms` to a step, as far as is known; 0: nothing is. Pieces never seem
 * to get cheaper by being longer. */
static double tokens_in(const srv_pace *p, double ms)
{
    srv_added a = {0, 0}, before = {0, 0};
    for (size_t i = 0; i < SRV_PACE_SIZES; i++) {
        srv_added b = p->added[i];
        if (b.n <= 0)
            continue;
        b.ms = b.ms > a.ms ? b.ms : a.ms;
        if (b.ms > ms)
            return a.n + (b.n - a.n) * (ms - a.ms) / (b.ms - a.ms);
        before = a;
        a = b;
    }
    if (a.n <= 0)
        return 0;
    double slope = slope_after(p, &a, before.n > 0 ? &before : NULL);
    double n = slope > 0 ? a.n + (ms - a.ms) / slope : GROWTH * a.n;
    return n < GROWTH * a.n ? n : GROWTH * a.n;
}

/* What n tokens add to a step; 0: not known. */
static double added_by(const srv_pace *p, double n)
{
    srv_added a = {0, 0};
    for (size_t i = 0; i < SRV_PACE_SIZES; i++) {
        srv_added b = p->added[i];
        if (b.n <= 0)
            continue;
        b.ms = b.ms > a.ms ? b.ms : a.ms;
        if (b.n >= n)
            return a.ms + (b.ms - a.ms) * (n - a.n) / (b.n - a.n);
        a = b;
    }
    return a.n > 0 ? a.ms + (n - a.n) * slope_after(p, &a, NULL) : 0;
}

/* A step of n prompt tokens took `ms` more than without them. Where that is not what was expected,
 * pieces of other lengths are taken to have become dearer or cheaper, too, but less. */
static void note_added(srv_pace *p, double n, double ms)
{
    srv_added *own = &p->added[bucket((size_t)n)];
    double expected = added_by(p, n), change = expected > 0 ? ms / expected - 1 : 0;
    change = change > most_change ? most_change : change < -most_change ? -most_change : change;
    for (size_t i = 0; i < SRV_PACE_SIZES; i++)
        p->added[i].ms *= 1 + (&p->added[i] == own ? 0 : drift * change);
    if (own->n <= 0) {
        *own = (srv_added){n, ms};
        return;
    }
    own->ms += weight * ((1 + change) * expected - own->ms);
    own->n += weight * (n - own->n);
}

/* ---- beside others: the room ---- */

/* Whole tiles of kernels, together with the rows, where that changes little. */
static size_t whole_tiles(size_t room, size_t n_rows)
{
    size_t rest = (room + n_rows) % TILE;
    return rest <= room / TILE ? room - rest : room;
}

/* A token's time in a step of so many milliseconds, by what it takes alone; 0: not known. */
static double rate_in(const srv_pace *p, double n, double ms)
{
    double alone = alone_at(&p->alone, p->at);
    return alone > 0 && n > 0 ? ms / n / alone : 0;
}

/* The shortest step in which the prompt goes on quickly; if there is none, the longest one that the
 * others may wait for, or one that nobody notices. */
static double room_beside(const srv_pace *p, double plain, double most)
{
    double times = least_times, n = 0, rate = 0;
    for (; times <= most_times; times += 0.1) {
        n = tokens_in(p, (times - 1) * plain);
        rate = rate_in(p, n, times * plain);
        if (n >= most || rate <= quick)
            return n;
    }
    for (; rate > slow && n < most && times * plain < unnoticed_ms; times *= 1.05) {
        n = tokens_in(p, (times - 1) * plain);
        rate = rate_in(p, n, times * plain);
    }
    return n;
}

size_t srv_pace_room(const srv_pace *p, size_t n_rows, size_t most)
{
    if (n_rows == 0)
        return room_alone(p, most);
    double plain = plain_ms(p, n_rows), each = alone_at(&p->alone, 0);
    if (plain <= 0 || p->n_mixed >= REFRESH)
        return 0;
    double n = room_beside(p, plain, (double)most);
    if (n <= 0) /* the first piece ever is a careful one */
        n = each > 0 ? 0.8 * (least_times - 1) * plain / each : FIRST;
    if (n >= (double)most)
        return most;
    size_t room = whole_tiles((size_t)n, n_rows);
    return least(most, room < LEAST ? LEAST : room);
}

/* ---- measuring ---- */

static void note_mixed(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms)
{
    double plain = plain_ms(p, n_rows), n = (double)n_prompt;
    p->n_mixed++;
    p->at = at;
    if (plain > 0) /* a step that was quicker than usual tells little: it added something */
        note_added(p, n, ms > 1.05 * plain ? ms - plain : 0.05 * plain);
}

void srv_pace_note(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms)
{
    ms = ms > least_ms ? ms : least_ms;
    if (n_rows && n_prompt) {
        note_mixed(p, n_rows, n_prompt, at, ms);
    } else if (n_rows) {
        srv_plain *b = &p->plain[bucket(n_rows)];
        b->ms[b->n++ % SRV_PACE_KEPT] = ms;
        b->rows = (double)n_rows;
        p->n_mixed = 0;
    } else if (n_prompt >= MEASURED) {
        note_alone(&p->alone, (double)n_prompt, at, ms);
    }
}
