/* json_text.c - bytes as JSON texts. */
#include "json_text.h"

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
