/* json_file.h - a JSON document from a file. */
#ifndef BNET_JSON_FILE_H
#define BNET_JSON_FILE_H

#include <jansson.h>

#include "base/base.h"

/* Reads a file of at most `max` bytes. OK with *out NULL: it is no JSON (or has a key twice), and
 * why says where. Else the caller owns *out. Fails: IO, MEMORY. */
bitnet_status bnet_json_read(const char *path, size_t max, json_t **out, char *why, size_t cap,
                             bitnet_error *err);

#endif
