/* json_text.h - bytes that a model wrote as JSON texts, which must be UTF-8: other bytes become
 * U+FFFD. NULL: out of memory. */
#ifndef SRV_JSON_TEXT_H
#define SRV_JSON_TEXT_H

#include <jansson.h>

#include "textbuf.h"

json_t *srv_json_text(const char *bytes, size_t n);
/* Also NULL where the bytes have failed. */
json_t *srv_json_buf(const srv_textbuf *b);

#endif
