/* fields.h - fields of a JSON body, each read with its type and its bounds.
 *
 * All functions: a field that is absent or null leaves *out as it was, and that is right. A field
 * of another type or beyond its bounds is answered with 400 (srv_fail: code "invalid_value", param
 * the name; the message has the value and the range), and false is returned. */
#ifndef SRV_FIELDS_H
#define SRV_FIELDS_H

#include "http/exchange.h"

/* Answers with 400: "NAME must be MUST_BE", and false; _bad says ", not VALUE" too. */
bool srv_field_bad(srv_exchange *x, const char *name, const json_t *value, const char *must_be);
bool srv_field_number(srv_exchange *x, const json_t *body, const char *name, double min, double max,
                      double *out);
/* A whole number; 3.0 is one. */
bool srv_field_int(srv_exchange *x, const json_t *body, const char *name, int64_t min, int64_t max,
                   int64_t *out);
bool srv_field_bool(srv_exchange *x, const json_t *body, const char *name, bool *out);
/* A text without NUL characters, of at most so many bytes; borrowed from the body. */
bool srv_field_text(srv_exchange *x, const json_t *body, const char *name, size_t max_bytes,
                    const char **out);
/* An object; an array of at most so many elements. Borrowed. */
bool srv_field_object(srv_exchange *x, const json_t *body, const char *name, json_t **out);
bool srv_field_array(srv_exchange *x, const json_t *body, const char *name, size_t max_elements,
                     json_t **out);

/* The field's value, or NULL where it is absent or null. */
json_t *srv_field(const json_t *body, const char *name);
/* Tells the client that a field must be something else; returns false. */
bool srv_field_wrong(srv_exchange *x, const char *name, const char *must_be);
/* Refuses a field that is there and not null, false, 0, "" or empty: "NAME is not supported: WHY".
 */
bool srv_field_refuse(srv_exchange *x, const json_t *body, const char *name, const char *why);

#endif
