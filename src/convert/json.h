/* json.h - JSON documents of checkpoints: parsed with limits, read with errors that name file, key
 * and value. Long ones (a vocabulary, a header of tensors) are pulled through base/json_reader.h;
 * the trees here are of short ones. Hides: the JSON library's flags and error records. */
#ifndef BNET_CONVERT_JSON_H
#define BNET_CONVERT_JSON_H

#include <jansson.h>

#include "base/file.h"
#include "base/json_reader.h"

/* Where values stand, for messages, and the first failure. `kind` is the status of a malformed
 * value: MODEL or TOKENIZER. After a failure every read returns what an absent value gives, and
 * later failures are not recorded; so a caller may look at `status` once, after several reads. */
typedef struct bnet_json_at {
    const char *file;
    const char *section; /* "" or a prefix such as "quantization_config." */
    bitnet_status kind;
    bitnet_error *err; /* may be NULL */
    bitnet_status status;
} bnet_json_at;

/* The text of r, which has not begun, is JSON to its end and an object, which messages call `what`.
 * r stays where it is. Returns at->status. */
bitnet_status bnet_json_check(const bnet_json_reader *r, const char *what, bnet_json_at *at);
/* Parses n bytes: strict JSON, unique keys, bounded depth, at most BNET_JSON_VALUES values. The
 * root must be an object, which messages call `what`. Returns it, to be freed with json_decref;
 * NULL: at->status says why. */
json_t *bnet_json_parse(const char *data, size_t n, const char *what, bnet_json_at *at);
/* The same of one value of whatever kind, the one of `key` in messages. */
json_t *bnet_json_value(bnet_span text, const char *key, bnet_json_at *at);
/* As _parse from the file at->file of at most `max` bytes. IO if it cannot be read. */
json_t *bnet_json_file(size_t max, bnet_json_at *at);

/* Typed reads of obj[key]; `absent` is returned where the value is absent or null. Another type, or
 * a value outside [lo, hi], fails and names it. Texts, objects and arrays are borrowed from obj. */
int64_t bnet_json_int(const json_t *obj, bnet_json_at *at, const char *key, int64_t lo, int64_t hi,
                      int64_t absent);
double bnet_json_float(const json_t *obj, bnet_json_at *at, const char *key, double lo, double hi,
                       double absent);
bool bnet_json_bool(const json_t *obj, bnet_json_at *at, const char *key, bool absent);
const char *bnet_json_string(const json_t *obj, bnet_json_at *at, const char *key,
                             const char *absent);
/* NULL: absent. */
json_t *bnet_json_object(const json_t *obj, bnet_json_at *at, const char *key);
json_t *bnet_json_array(const json_t *obj, bnet_json_at *at, const char *key);
/* "an object", "a string": what a value is, for messages. */
const char *bnet_json_kind(const json_t *value);
/* Fails with "<file>: key <section><key>: " before the formatted text; returns at->status. */
bitnet_status bnet_json_fail(bnet_json_at *at, const char *key, const char *fmt, ...)
    BITNET_PRINTF(3, 4);
/* The same with the text in quotes and escaped before `why`. */
bitnet_status bnet_json_refuse(bnet_json_at *at, const char *key, const char *value,
                               const char *why);
/* Records that there is no memory, unless something failed before. */
void bnet_json_no_memory(bnet_json_at *at);

#endif
