/* progress.h - one line on a terminal that says how far long work has come. */
#ifndef BITNET_CLI_PROGRESS_H
#define BITNET_CLI_PROGRESS_H

#include "cli.h"

typedef enum progress_unit { UNIT_NONE, UNIT_BYTES, UNIT_TOKENS, UNIT_SHARE } progress_unit;

/* Decides once whether anything is shown: not without a terminal, with --quiet, or where lines of
 * the log are JSON. */
void progress_allow(const args *a);

/* Work begins; it is shown from --progress-delay on until _end. One at a time: a second one ends
 * the first. */
void progress_begin(progress_unit unit, const char *what, ...) BITNET_PRINTF(2, 3);
/* A bitnet_progress_fn. total 0: nobody knows; done is then a count. False once the user wants to
 * stop. */
bool progress_step(void *user, uint64_t done, uint64_t total);
/* Words behind the percentage: "3 of 12 texts". */
void progress_detail(const char *fmt, ...) BITNET_PRINTF(1, 2);
void progress_end(void);

/* Around everything written to the terminal: the line is wiped, and not drawn before _resume. open:
 * what was written does not end a line, which nothing may be drawn over. */
void progress_pause(void);
void progress_resume(bool open);
/* For signal handlers that end the program. */
void progress_wipe(void);

#endif
