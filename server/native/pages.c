/* pages.c - the files of the chat page, which are in the program itself. */
#include <string.h>

#include "http/http.h"
#include "native/web.h"

static void serve_page(srv_exchange *x)
{
    const srv_file *f = srv_web_find(x->path);
    const char *known = srv_header(x, "If-None-Match");
    if (!f) {
        srv_fail(x, 404, "not_found", NULL, "there is no such path");
        return;
    }
    srv_reply_header(x, "ETag", f->etag);
    srv_reply_header(x, "Cache-Control", "no-cache"); /* kept, and asked for again by its ETag */
    srv_reply_header(x, "Content-Security-Policy", SRV_WEB_POLICY);
    srv_reply_header(x, "Referrer-Policy", "no-referrer");
    if (known && strcmp(known, f->etag) == 0)
        srv_reply_bytes(x, 304, NULL, "", 0);
    else
        srv_reply_static(x, 200, f->content_type, f->bytes, f->n_bytes);
}

const srv_route *srv_page_route(const srv_config *config, const char *method, const char *path)
{
    static const srv_route page = {"GET", "/", serve_page, SRV_NATIVE, SRV_OPEN, "the chat page"};
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    return reads && !config->no_page && srv_web_find(path) ? &page : NULL;
}
