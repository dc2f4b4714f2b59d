/* pages.c - the files of the chat page, which are in the program itself. */
#include <string.h>
#include <strings.h>

#include "http/http.h"
#include "native/web.h"

/* Whether a list of tags has this one (RFC 9110, 13.1.2); "W/" in front of one makes no difference
 * here, and "*" is any. What is no list has none. */
static bool has_tag(const char *list, const char *tag)
{
    size_t n = strlen(tag);
    if (strcmp(list, "*") == 0)
        return true;
    while (*(list += strspn(list, " \t,"))) {
        list += strncmp(list, "W/", 2) == 0 ? 2 : 0;
        const char *end = *list == '"' ? strchr(list + 1, '"') : NULL;
        if (!end)
            return false;
        if ((size_t)(end + 1 - list) == n && memcmp(list, tag, n) == 0)
            return true;
        list = end + 1;
    }
    return false;
}

/* The client has this version of the file; the header may come several times. */
static bool is_known(const srv_exchange *x, const char *tag)
{
    for (const pair *p = x->pairs; p; p = p->next)
        if (p->kind == OF_HEADER && strcasecmp(p->name, "If-None-Match") == 0 &&
            has_tag(p->value, tag))
            return true;
    return false;
}

static void serve_page(srv_exchange *x)
{
    const srv_file *f = srv_web_find(x->path);
    if (!f) {
        srv_fail(x, 404, "not_found", NULL, "there is no such page");
        return;
    }
    srv_reply_header(x, "ETag", f->etag);
    srv_reply_header(x, "Cache-Control", "no-cache"); /* kept, and asked for again by its ETag */
    srv_reply_header(x, "Content-Security-Policy", SRV_WEB_POLICY);
    srv_reply_header(x, "Referrer-Policy", "no-referrer");
    if (is_known(x, f->etag))
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
