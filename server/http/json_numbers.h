/* json_numbers.h - JSON with whole numbers beyond 64 bits, which jansson refuses. */
#ifndef SRV_JSON_NUMBERS_H
#define SRV_JSON_NUMBERS_H

#include <jansson.h>

/* As srv_json_load, but that such numbers, and they alone, are real ones. *error: may not be NULL.
 */
json_t *srv_json_load_wide(const char *text, size_t n, size_t flags, json_error_t *error);

#endif
