/* json_text.h - bytes that a model wrote as JSON texts, which must be UTF-8: other bytes become
 * U+FFFD. NULL: out of memory. */
#ifndef SRV_JSON_TEXT_H
#define SRV_JSON_TEXT_H

#include <jansson.h>

#include "ask/textbuf.h"

json_t *srv_json_text(const char *bytes, size_t n);
/* Also NULL where the bytes have failed. */
json_t *srv_json_buf(const srv_textbuf *b);
/* The other way: the value of a text of JSON, which is an object or an array, nested at most so
 * deep: readers and writers of trees call themselves for every level, on stacks that are small.
 * Takes all else that JSON allows: of members of one name the last, U+0000 in texts, whole numbers
 * beyond 64 bits (then all numbers are reals). NULL: it is none. */
enum { SRV_JSON_DEPTH = 512 };
json_t *srv_json_value(const char *bytes, size_t n);
/* The arguments of a call that is not cut: an object. */
json_t *srv_json_arguments(const srv_textbuf *b);

#endif
