/* json.h - JSON documents of checkpoints: parsed with limits, read with errors that name file, key
 * and value. Hides: the JSON library's flags and error records. */
#ifndef BNET_CONVERT_JSON_H
#define BNET_CONVERT_JSON_H

#include <jansson.h>

#include "base/file.h"

/* Where a value stands, for messages. `kind` is the status of a malformed value: MODEL or
 * TOKENIZER. */
typedef struct bnet_json_at {
    const char *file;
    const char *section; /* "" or a prefix such as "quantization_config." */
    bitnet_status kind;
    bitnet_error *err; /* may be NULL */
} bnet_json_at;

/* Parses n bytes: strict JSON, unique keys, bounded depth. Free with json_decref. */
bitnet_status bnet_json_parse(const char *data, size_t n, const bnet_json_at *at, json_t **out);
/* The same from a file of at most `max` bytes; the root must be an object. IO if it cannot be read.
 */
bitnet_status bnet_json_file(size_t max, const bnet_json_at *at, json_t **out);

/* Typed reads of obj[key]. Absent or null: *out is left alone, *found (may be NULL) is false.
 * Another type, or a value outside [lo, hi], fails naming it. */
bitnet_status bnet_json_int(const json_t *obj, const bnet_json_at *at, const char *key, int64_t lo,
                            int64_t hi, int64_t *out, bool *found);
bitnet_status bnet_json_float(const json_t *obj, const bnet_json_at *at, const char *key, double lo,
                              double hi, double *out, bool *found);
bitnet_status bnet_json_bool(const json_t *obj, const bnet_json_at *at, const char *key, bool *out);
/* Borrowed from obj. */
bitnet_status bnet_json_string(const json_t *obj, const bnet_json_at *at, const char *key,
                               const char **out);
bitnet_status bnet_json_object(const json_t *obj, const bnet_json_at *at, const char *key,
                               json_t **out);
bitnet_status bnet_json_array(const json_t *obj, const bnet_json_at *at, const char *key,
                              json_t **out);
/* "an object", "a string": what a value is, for messages. */
const char *bnet_json_kind(const json_t *value);
/* Fails with "<file>: key <section><key>: " before the formatted text. */
bitnet_status bnet_json_fail(const bnet_json_at *at, const char *key, const char *fmt, ...)
    BITNET_PRINTF(3, 4);

#endif
