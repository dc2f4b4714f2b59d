/* charset.c - sets of characters, and their UTF-8. */
#include "grammar/charset.h"

#include <stdlib.h>

void bnet_charset_free(bnet_charset *s)
{
    bnet_free(s->ranges);
    *s = (bnet_charset){0};
}

void bnet_charset_add(bnet_charset *s, uint32_t lo, uint32_t hi)
{
    if (s->failed || lo > hi)
        return;
    if (s->n == s->cap && !bnet_grow(&s->ranges, &s->cap, s->n + 1, sizeof *s->ranges))
        s->failed = true;
    else
        s->ranges[s->n++] = (bnet_chars){lo, hi};
}

static int by_start(const void *a, const void *b)
{
    uint32_t x = ((const bnet_chars *)a)->lo, y = ((const bnet_chars *)b)->lo;
    return (x > y) - (x < y);
}

void bnet_charset_tidy(bnet_charset *s)
{
    size_t n = 0;
    if (s->n == 0)
        return;
    qsort(s->ranges, s->n, sizeof *s->ranges, by_start);
    for (size_t i = 1; i < s->n; i++) {
        if (s->ranges[i].lo <= s->ranges[n].hi + 1)
            s->ranges[n].hi = BNET_MAX(s->ranges[n].hi, s->ranges[i].hi);
        else
            s->ranges[++n] = s->ranges[i];
    }
    s->n = n + 1;
}

void bnet_charset_invert(bnet_charset *s)
{
    bnet_charset all = {.failed = s->failed};
    uint32_t next = 0;
    bnet_charset_tidy(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->ranges[i].lo > next)
            bnet_charset_add(&all, next, s->ranges[i].lo - 1);
        next = s->ranges[i].hi + 1;
    }
    if (next <= BNET_LAST_CHAR)
        bnet_charset_add(&all, next, BNET_LAST_CHAR);
    bnet_free(s->ranges);
    *s = all;
}

void bnet_charset_within(bnet_charset *s, uint32_t lo, uint32_t hi)
{
    size_t n = 0;
    bnet_charset_tidy(s);
    for (size_t i = 0; i < s->n; i++) {
        bnet_chars r = {BNET_MAX(lo, s->ranges[i].lo), BNET_MIN(hi, s->ranges[i].hi)};
        if (r.lo <= r.hi)
            s->ranges[n++] = r;
    }
    s->n = n;
}

void bnet_charset_remove(bnet_charset *s, uint32_t c)
{
    bnet_charset_tidy(s);
    for (size_t i = 0; i < s->n; i++) {
        bnet_chars r = s->ranges[i];
        if (c < r.lo || c > r.hi)
            continue;
        s->ranges[i] = s->ranges[--s->n];
        if (r.lo < c)
            bnet_charset_add(s, r.lo, c - 1);
        bnet_charset_add(s, c + 1, r.hi);
        break;
    }
    bnet_charset_tidy(s);
}

bool bnet_charset_has(const bnet_charset *s, uint32_t c)
{
    for (size_t i = 0; i < s->n; i++)
        if (c >= s->ranges[i].lo && c <= s->ranges[i].hi)
            return true;
    return false;
}

/* ---- UTF-8 ---- */

typedef struct writer {
    bnet_program *p;
    bnet_choice choice;
    bool begun;
} writer;

/* All characters of the range have UTF-8 of the same length, whose bytes vary independently. */
static void write_alike(writer *w, bnet_chars r)
{
    char lo[4], hi[4];
    int n = bnet_utf8_encode(r.lo, lo);
    bnet_utf8_encode(r.hi, hi);
    if (w->begun)
        bnet_program_or(w->p, &w->choice);
    w->begun = true;
    for (int i = 0; i < n; i++)
        bnet_program_byte(w->p, (unsigned char)lo[i], (unsigned char)hi[i]);
}

/* Where a range must be cut so that its first part is nearer to being alike: the last character of
 * that part, or r.hi if no cut is needed. */
static uint32_t cut_of(bnet_chars r)
{
    static const uint32_t last[] = {0x7f, 0x7ff, 0xffff}; /* of one, two, three bytes */
    for (size_t i = 0; i < BNET_COUNT(last); i++)
        if (r.lo <= last[i] && r.hi > last[i])
            return last[i];
    for (int bits = 6; r.lo > 0x7f && bits <= 18; bits += 6) {
        uint32_t low = ((uint32_t)1 << bits) - 1;
        if ((r.lo & ~low) == (r.hi & ~low))
            continue;
        if (r.lo & low)
            return r.lo | low;
        if ((r.hi & low) != low)
            return (r.hi & ~low) - 1;
    }
    return r.hi;
}

static void write_range(writer *w, bnet_chars r)
{
    while (r.lo <= r.hi) {
        bnet_chars part = {r.lo, r.hi};
        for (uint32_t cut = cut_of(part); cut != part.hi; cut = cut_of(part))
            part.hi = cut;
        write_alike(w, part);
        r.lo = part.hi + 1;
    }
}

void bnet_charset_write(const bnet_charset *s, bnet_program *p)
{
    writer w = {.p = p, .choice = bnet_program_either(p)};
    for (size_t i = 0; i < s->n && p->status == BITNET_OK; i++) {
        bnet_chars r = s->ranges[i];
        if (r.lo < 0xd800)
            write_range(&w, (bnet_chars){r.lo, BNET_MIN(r.hi, 0xd7ffu)});
        if (r.hi > 0xdfff)
            write_range(&w, (bnet_chars){BNET_MAX(r.lo, 0xe000u), r.hi});
    }
    if (s->failed && p->status == BITNET_OK)
        p->status = bnet_no_memory(p->err, "grammar");
    if (!w.begun)
        bnet_program_fail(p, BITNET_ARGUMENT, "a class of characters is empty");
    bnet_program_close(p, &w.choice);
}
