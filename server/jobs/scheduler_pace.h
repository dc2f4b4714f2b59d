/* scheduler_pace.h - how many prompt tokens a step may have beside those that generate. Measures
 * the steps: their time without prompts is what the others are used to. A step with prompts shall
 * take about 3.5 times that; up to 4.3 times, or 10 ms, where the prompt would otherwise need more
 * than 1.4 times what it needs alone. */
#ifndef SRV_SCHEDULER_PACE_H
#define SRV_SCHEDULER_PACE_H

#include <stddef.h>

enum { SRV_PACE_ROWS = 20, SRV_PACE_KEPT = 9 };

typedef struct srv_plain { /* the latest steps without prompts, of about so many rows */
    double ms[SRV_PACE_KEPT];
    unsigned n;
} srv_plain;

/* What a prompt token costs in steps without others, by its position: a line through the latest
 * ones, as sums in which older ones count less and less. */
typedef struct srv_alone {
    double n, x, xx, y, xy;
} srv_alone;

typedef struct srv_pace {
    srv_plain plain[SRV_PACE_ROWS];
    srv_alone alone;
    double mixed_ms; /* a prompt token's share of a step with others; 0: not known */
    double rate; /* such a step's time for each of its prompt tokens, by that alone; 0: the same */
    double aim;  /* a step with prompts takes so many times one without; 0: the least */
    unsigned n_mixed; /* steps with prompts since the last one without */
} srv_pace;

/* How many prompt tokens the next step may have beside n_rows generating ones; at most `most`. 0:
 * this step has none, so that one without prompts is measured. Without rows: as many as half a
 * second takes, 128 at least. */
size_t srv_pace_room(const srv_pace *p, size_t n_rows, size_t most);
/* A step took so long; its prompt tokens stood at position `at` on average. */
void srv_pace_note(srv_pace *p, size_t n_rows, size_t n_prompt, double at, double ms);

#endif
