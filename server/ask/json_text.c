/* json_text.c - bytes as JSON texts. */
#include "ask/json_text.h"

#include "http/json_limits.h"
#include "http/json_numbers.h"

json_t *srv_json_text(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes, n);
    srv_textbuf mended = {0};
    if (text)
        return text;
    srv_textbuf_utf8(&mended, bytes, n);
    text = mended.failed ? NULL : json_stringn(mended.n ? mended.data : "", mended.n);
    srv_textbuf_free(&mended);
    return text;
}

json_t *srv_json_buf(const srv_textbuf *b)
{
    return b->failed ? NULL : srv_json_text(b->n ? b->data : "", b->n);
}

json_t *srv_json_value(const char *bytes, size_t n)
{
    if (srv_json_measure(bytes, n).depth > SRV_JSON_DEPTH)
        return NULL;
    json_error_t e;
    return srv_json_load_wide(bytes, n, JSON_ALLOW_NUL, &e);
}

json_t *srv_json_arguments(const srv_textbuf *b)
{
    json_t *value = b->n && !b->failed ? srv_json_value(b->data, b->n) : NULL;
    if (json_is_object(value))
        return value;
    json_decref(value);
    return NULL;
}
