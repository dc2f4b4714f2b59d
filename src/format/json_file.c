/* json_file.c - reading JSON, and telling a malformed text from a lack of memory, which jansson
 * mostly reports as a syntax error: a text counts as malformed if it fails twice in the same place.
 */
#include "format/json_file.h"

#include <stdio.h>

#include "base/file.h"
#include "base/json_reader.h"

static bitnet_status load(const char *data, size_t n, size_t flags, const char *name, json_t **out,
                          char *why, size_t cap, bitnet_error *err)
{
    json_error_t first = {0}, e = {0};
    char quoted[JSON_ERROR_TEXT_LENGTH * 2];
    *out = NULL;
    if (bnet_json_measure(data, n, BNET_JSON_VALUES, why, cap))
        return BITNET_OK;
    json_t *root = json_loadb(data, n, flags, &first);
    if (!root)
        root = json_loadb(data, n, flags, &e);
    bool lacking = !root && (json_error_code(&e) == json_error_out_of_memory || !e.text[0] ||
                             e.position != first.position);
    if (lacking)
        return bnet_no_memory(err, name);
    if (!root)
        snprintf(why, cap, "line %d, column %d: %s", e.line, e.column,
                 bnet_quote(e.text, strlen(e.text), quoted, sizeof quoted));
    *out = root;
    return BITNET_OK;
}

bitnet_status bnet_json_load(const char *data, size_t n, const char *name, json_t **out, char *why,
                             size_t cap, bitnet_error *err)
{
    return load(data, n, JSON_REJECT_DUPLICATES, name, out, why, cap, err);
}

bitnet_status bnet_json_load_last(const char *data, size_t n, const char *name, json_t **out,
                                  char *why, size_t cap, bitnet_error *err)
{
    return load(data, n, 0, name, out, why, cap, err);
}

bitnet_status bnet_json_read(const char *path, size_t max, json_t **out, char *why, size_t cap,
                             bitnet_error *err)
{
    char *data;
    size_t n;
    *out = NULL;
    bitnet_status st = bnet_read_file(path, max, &data, &n, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_json_load(data, n, path, out, why, cap, err);
    bnet_free(data);
    return st;
}
