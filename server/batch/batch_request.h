/* batch_request.h - a line of IN as a request, and what becomes of it as a line of OUT. */
#ifndef SRV_BATCH_REQUEST_H
#define SRV_BATCH_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "http/local.h"

/* A line of IN on its way. */
typedef struct srv_batch_line {
    size_t line;                           /* its number, from 1 */
    json_t *request;                       /* NULL: it is no JSON; the owner lets go of it */
    bool too_long, too_complex, too_large; /* too_large: one of its numbers */
    const char *custom_id;                 /* of the request; NULL: none */
} srv_batch_line;

/* Fills all but the first and too_long. Without memory srv_memory_short() is true. */
void srv_batch_line_read(srv_batch_line *job, const char *line, size_t n, size_t max_depth);
/* Why the line is no request; NULL: it is one. */
const char *srv_batch_line_fault(const srv_batch_line *job);
/* Results. NULL: out of memory. */
json_t *srv_batch_refusal(const srv_batch_line *job, const char *why);
json_t *srv_batch_answer(const srv_batch_line *job, const srv_local_reply *reply);

#endif
