/* json_limits.h - bounds on a text of JSON before a tree is made of it. */
#ifndef SRV_JSON_LIMITS_H
#define SRV_JSON_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

/* What a tree of JSON would cost. */
typedef struct srv_json_cost {
    size_t depth;    /* of the deepest array or object; 0: none */
    size_t n_values; /* at most so many values and keys */
    size_t n_bytes;  /* about so many for the tree and its texts */
} srv_json_cost;

/* Counts brackets, braces, commas and colons outside strings; the text need not be valid. Reads
 * each byte once and takes no memory. */
srv_json_cost srv_json_measure(const char *text, size_t n_bytes);

#endif
