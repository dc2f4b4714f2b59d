/* json_file.h - a JSON document as a tree: strict, unique keys, no deeper than BNET_JSON_DEPTH, of
 * at most BNET_JSON_VALUES values (base/json_reader.h), so that no text takes more than megabytes.
 */
#ifndef BNET_JSON_FILE_H
#define BNET_JSON_FILE_H

#include <jansson.h>

#include "base/base.h"

/* Reads n bytes. OK with *out NULL: they are no such JSON, and why says where. Else the caller owns
 * *out. Fails: MEMORY, naming `name`. */
bitnet_status bnet_json_load(const char *data, size_t n, const char *name, json_t **out, char *why,
                             size_t cap, bitnet_error *err);
/* The same, and of members of one name the last counts, as in Python. */
bitnet_status bnet_json_load_last(const char *data, size_t n, const char *name, json_t **out,
                                  char *why, size_t cap, bitnet_error *err);
/* The same from a file of at most `max` bytes. Fails: IO too. */
bitnet_status bnet_json_read(const char *path, size_t max, json_t **out, char *why, size_t cap,
                             bitnet_error *err);

#endif
