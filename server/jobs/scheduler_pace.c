/* scheduler_pace.c - how many prompt tokens a step may have (scheduler_pace.h).
 *
 * With d the time of a step without prompts and c that of one more prompt token, a step of p prompt
 * tokens takes d + p c. Those who generate wait as long: 4 d for p c = 3 d, and the prompt's tokens
 * take c + d / p = 1.33 c each. Steps are not that simple: prompts may need a pass of their own,
 * or other kernels, whose fixed cost is as much as d; and a token costs more the further back it
 * looks. So two lines are drawn through what was measured: what a token costs alone, by its
 * position; and what prompts add to a step with others, by what they would cost alone. Short
 * prompts, which are all fixed cost, then say nothing wrong about long ones. */
#include "jobs/scheduler_pace.h"

enum {
    LEAST = 8,  /* tokens of a prompt: fewer would be all overhead */
    FIRST = 16, /* while nothing is known */
    ALONE_LEAST = 128,
    MEASURED = 64, /* tokens without company that tell what a token costs alone */
    REFRESH = 64,  /* steps with prompts, then one without */
    TILE = 16,     /* rows that kernels compute together */
    GROWTH = 4,    /* a piece is at most so many times the longest one of late */
    SURE = 1,      /* so many measurements of steps with prompts count */
};
/* A step takes so many tenths of one without prompts ... */
enum { LEAST_TENTHS = 36, USUAL_TENTHS = 45, MOST_TENTHS = 46 };
static const double unnoticed_ms = 10;
/* ... depending on what a prompt token takes in it, by what it takes alone. */
static const double quick = 1.38, fair = 1.45, slow = 1.5;
static const double alone_most_ms = 500, least_ms = 1e-4;
/* What of a line's older points is kept for each new one. Of a prompt that is read alone the
 * beginning is not forgotten over some thousand tokens: the next one begins there. */
static const double memory = 0.9, memory_alone = 0.97;
/* A step is taken for at most so many times what was expected: one that was held up by something
 * else is no measure. */
static const double most_odd = 1.5;
/* While pieces were all about as long, this share of what they add is taken for the tokens' own;
 * how firmly; and it is never less than the last. */
static const double usual_share = 0.7, firmness = 0.1, least_share = 0.25;

/* 1..8 rows each have their own bucket, more share one by halves of powers of two. */
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

/* ---- lines ---- */

static void note_point(srv_line *l, double keep, double x, double y)
{
    l->n = keep * l->n + 1;
    l->x = keep * l->x + x;
    l->xx = keep * l->xx + x * x;
    l->y = keep * l->y + y;
    l->xy = keep * l->xy + x * y;
}

/* The slope of the line. Points that are about one above the other have the slope `guess`, as far
 * as that is held firmly. */
static double slope_of(const srv_line *l, double guess, double firm)
{
    double at = l->x / l->n, weight = firm * at * at + 1e-12;
    double spread = l->xx - l->x * at, rise = l->xy - l->y * at;
    return (rise + weight * guess) / (spread + weight);
}

/* What was measured, at most so odd. */
static double within(double measured, double expected)
{
    double most = most_odd * expected, least = expected / most_odd;
    return measured > most ? most : measured < least ? least : measured;
}

/* ---- alone ---- */

/* A prompt token's time at this position; 0: not known. */
static double alone_at(const srv_pace *p, double at)
{
    const srv_line *l = &p->alone;
    if (l->n <= 0)
        return 0;
    double mean = l->y / l->n, slope = slope_of(l, 0, 1e-6);
    double each = slope > 0 ? mean + slope * (at - l->x / l->n) : mean;
    return each > mean / 4 ? each : mean / 4;
}

/* Short pieces are mostly fixed cost: they tell nothing where longer ones are known, unless they
 * are expected to take long themselves: slow machines have no longer ones after their first. */
static void note_alone(srv_pace *p, double n, double at, double ms)
{
    double each = ms / n, expected = alone_at(p, at);
    if (n > 2 * p->longest_alone) {
        p->alone = (srv_line){0};
        p->added = (srv_line){0}; /* it was measured by those */
    } else if (n < p->longest_alone / 2) {
        if (n * expected < alone_most_ms / 4)
            return;
        each = within(each, expected);
    }
    p->longest_alone = n > p->longest_alone ? n : p->longest_alone;
    note_point(&p->alone, memory_alone, at, each);
}

static size_t room_alone(const srv_pace *p, size_t most, double at)
{
    double each = alone_at(p, at);
    if (each <= 0 || alone_most_ms / each >= (double)most)
        return most;
    size_t n = (size_t)(alone_most_ms / each) / 64 * 64;
    return least(most, n < ALONE_LEAST ? ALONE_LEAST : n);
}

/* ---- beside others: what prompts add to a step ---- */

/* What the line is drawn by: what a token costs alone; while that is not known, one. */
static double unit(const srv_pace *p, double at)
{
    double each = alone_at(p, at);
    return each > 0 ? each : 1;
}

/* Prompts add *fixed, and *share of what they would cost alone. False: nothing is known. */
static bool read_added(const srv_pace *p, double *fixed, double *share)
{
    const srv_line *l = &p->added;
    if (l->n <= 0)
        return false;
    double all = l->y / l->x, most = l->xy / l->xx; /* if nothing is fixed */
    *share = slope_of(l, usual_share * all, firmness);
    *share = *share > least_share * all ? *share : least_share * all;
    *share = *share < most ? *share : most;
    *fixed = (l->y - *share * l->x) / l->n;
    *fixed = *fixed > 0 ? *fixed : 0;
    return true;
}

/* A step of n prompt tokens took `ms` more than without them. */
static void note_added(srv_pace *p, double n, double at, double ms)
{
    double fixed, share, x = n * unit(p, at);
    if (p->added.n > 1 && read_added(p, &fixed, &share))
        ms = within(ms, fixed + share * x);
    note_point(&p->added, memory, x, ms);
    p->longest = x > memory * p->longest ? x : memory * p->longest;
}

/* So many tokens at this position add at most `ms` to a step; 0: not even one does. Requires:
 * something is known. */
static double tokens_in(const srv_pace *p, double ms, double at)
{
    double fixed, share, n = 0;
    if (read_added(p, &fixed, &share) && ms > fixed)
        n = (ms - fixed) / share;
    return (n < GROWTH * p->longest ? n : GROWTH * p->longest) / unit(p, at);
}

/* ---- beside others: the room ---- */

/* Whole tiles of kernels, together with the rows, where that changes little. */
static size_t whole_tiles(size_t room, size_t n_rows)
{
    size_t rest = (room + n_rows) % TILE;
    return rest <= room / TILE ? room - rest : room;
}

/* A step of so many milliseconds takes so many times what its n prompt tokens take alone; 0: that
 * is not known. */
static double rate_in(const srv_pace *p, double n, double at, double ms)
{
    double alone = alone_at(p, at);
    return alone <= 0 ? 0 : n > 0 ? ms / n / alone : slow + 1;
}

/* The shortest step in which the prompt goes on quickly; if there is none, one of the usual length
 * where that is fair to it, or else the longest one that the others may wait for, or one that
 * nobody notices. */
static double room_beside(const srv_pace *p, double plain, double most, double at)
{
    double times = 0, n = 0, rate = 0;
    for (int tenths = LEAST_TENTHS; tenths <= MOST_TENTHS; tenths++) {
        times = tenths / 10.0;
        n = tokens_in(p, (times - 1) * plain, at);
        rate = rate_in(p, n, at, times * plain);
        if (n >= most || rate <= (tenths < USUAL_TENTHS ? quick : fair))
            return n;
    }
    bool sure = p->added.n > SURE;
    for (; sure && rate > slow && n < most && times * plain < unnoticed_ms; times *= 1.05) {
        n = tokens_in(p, (times - 1) * plain, at);
        rate = rate_in(p, n, at, times * plain);
    }
    return n;
}

size_t srv_pace_room(const srv_pace *p, size_t n_rows, size_t most, double at)
{
    if (n_rows == 0)
        return room_alone(p, most, at);
    double plain = plain_ms(p, n_rows), each = alone_at(p, at), n;
    if (plain <= 0 || p->n_mixed >= REFRESH)
        return 0;
    if (p->added.n > 0)
        n = room_beside(p, plain, (double)most, at);
    else /* the first piece ever is a careful one */
        n = each > 0 ? 0.8 * (LEAST_TENTHS / 10.0 - 1) * plain / each : FIRST;
    if (n >= (double)most)
        return most;
    size_t room = whole_tiles((size_t)n, n_rows);
    return least(most, room < LEAST ? LEAST : room);
}

/* ---- measuring ---- */

static void note_mixed(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms)
{
    double plain = plain_ms(p, n_rows);
    p->n_mixed++;
    if (plain > 0) /* a step that was quicker than usual tells little: it added something */
        note_added(p, (double)n_prompt, at, ms > 1.05 * plain ? ms - plain : 0.05 * plain);
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
        note_alone(p, (double)n_prompt, at, ms);
    }
}
