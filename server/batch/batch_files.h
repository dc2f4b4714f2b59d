/* batch_files.h - the two files of a batch: lines that are read with a limit, and results that are
 * acknowledged once they are written. */
#ifndef SRV_BATCH_FILES_H
#define SRV_BATCH_FILES_H

#include <stdio.h>

#include "bitnet.h"

/* ---- lines ---- */

typedef struct srv_lines {
    int fd;
    char *buf;
    size_t begin, end, cap, most; /* most: bytes of a line */
    bool at_end;
    uint64_t n_bytes;      /* of the file, up to and with the line that was read last */
    size_t number;         /* of that line, from 1 */
    bitnet_cancel_fn stop; /* asked while nothing comes; NULL: nobody */
    void *stop_user;
    bool stopped; /* it said so */
} srv_lines;

typedef enum srv_line_kind {
    SRV_LINE,         /* whole */
    SRV_LINE_LONG,    /* it has more than `most` bytes, which were skipped */
    SRV_LINE_CUT,     /* the last one, without its newline */
    SRV_LINE_NONE,    /* the file has ended */
    SRV_LINE_BAD,     /* it cannot be read: errno; or there is no memory */
    SRV_LINE_STOPPED, /* `stop` said so before a line was there */
} srv_line_kind;

/* Begins to read at the descriptor's position; it stays the caller's. The caller may set `stop`. */
void srv_lines_open(srv_lines *l, int fd, size_t most);
void srv_lines_close(srv_lines *l);
/* The next line without its newline, NUL-terminated, until the next call. */
srv_line_kind srv_lines_next(srv_lines *l, char **line, size_t *n);

/* ---- results ---- */

typedef struct srv_results srv_results;

/* Opens the file, or makes it; reads what is in it, removes the beginning of a result that was cut,
 * which has no newline. Nobody else may open it until it is closed. Fails: IO, ARGUMENT (it holds
 * other things, and stays as it is; another batch has it), MEMORY. */
bitnet_status srv_results_open(const char *path, srv_results **out, bitnet_error *err);
/* Sees to it that everything is on the disk. False: it is not, errno says why. */
bool srv_results_close(srv_results *r);
/* Was this line of IN acknowledged? *same: its custom_id is that of the result, too, or the result
 * has none, being the refusal of a line that could not be read. */
bool srv_results_has(const srv_results *r, size_t line, const char *custom_id, bool *same);
/* Appends one result, whole or not at all; once it returns true, the end of the process loses
 * nothing of it. False: errno says why; nothing is appended after a failure. Any thread. */
bool srv_results_add(srv_results *r, const char *json);
/* To be called often: results older than a second are brought to the disk, where the end of the
 * machine does not lose them either. False: errno says why. Any thread. */
bool srv_results_sync(srv_results *r);

#endif
