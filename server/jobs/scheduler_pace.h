/* scheduler_pace.h - how many prompt tokens a step may have beside those that generate. Measures
 * the steps: their time without prompts is what the others are used to. A step with prompts shall
 * take 3.6 to 4.5 times that, as short as lets a prompt take 1.38 times what it needs alone. Where
 * it would need more than 1.45 times that, steps may take 4.6 times, and where it would need more
 * than 1.5 times even so, 10 ms. */
#ifndef SRV_SCHEDULER_PACE_H
#define SRV_SCHEDULER_PACE_H

#include <stdbool.h>
#include <stddef.h>

enum { SRV_PACE_SIZES = 20, SRV_PACE_KEPT = 15 }; /* the median of 9 is 3 % off at times */

typedef struct srv_plain { /* the latest steps without prompts, of about so many rows */
    double ms[SRV_PACE_KEPT];
    unsigned n;
    double rows; /* of the latest */
} srv_plain;

/* A line through the latest points, as sums in which older ones count less and less. */
typedef struct srv_line {
    double n, x, xx, y, xy;
} srv_line;

typedef struct srv_pace {
    srv_plain plain[SRV_PACE_SIZES];
    srv_line alone;       /* what a prompt token costs in steps without others, by its position */
    double longest_alone; /* piece of a prompt, tokens */
    srv_line added;       /* what prompts add to steps with others, by what they would cost alone */
    double longest;       /* of late, by the same measure */
    unsigned n_mixed;     /* steps with prompts since the last one without */
} srv_pace;

/* How many prompt tokens the next step may have beside n_rows generating ones; at most `most`. They
 * stand about at position `at`. 0: this step has none, so that one without prompts is measured.
 * Without rows: as many as half a second takes, 128 at least. */
size_t srv_pace_room(const srv_pace *p, size_t n_rows, size_t most, double at);
/* A step took so long; its prompt tokens stood at position `at` on average. */
void srv_pace_note(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms);

#endif
